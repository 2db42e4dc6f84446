"""What On Identifiability in Transformers (Brunner et al. 2020) says about effective attention (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics.intervals import mean_with_interval, statistic_with_interval
from ...metrics.raw_and_effective import PERIOD_OR_COMMA
from ...runs.experiments.claims import SAME, Claim, Examples, Verdict, bounded, incomparable
from ...types import Record
from .values import above_zero, depth_of, less, of_layers, thirds

RAW = "attention"
EVEN = "even share"  # of one token: 1 / n
OTHERS = "others"
CLS, SEP = "[CLS]", "[SEP]"


# --- effective attention (section 3) ----------------------------------------------------------------------------------------


def short_texts_lose_nothing(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    """At least 0.99: a head whose values are nearly dependent loses a little by rounding."""
    values = [r.value for r in _pearson(records) if r.info["n"] <= r.info["width"]]
    if not values:
        return incomparable("no text is as short as a head is wide")
    return bounded({"Pearson": mean_with_interval(values, seed=setup.seed)}, low=0.99)


def correlation_falls_with_length(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    """With several cuts of a text: its shortest less its longest. With one: the correlation of length and Pearson over texts."""
    longer = [r for r in _pearson(records) if r.info["n"] > r.info["width"]]
    falls = _falls(longer)
    if falls:
        return above_zero({"shortest - longest cut of a text": falls}, seed=setup.seed)
    lengths, values = np.array([r.info["n"] for r in longer]), np.array([r.value for r in longer])
    if len(set(lengths.tolist())) < 3:
        return incomparable("too few texts of different lengths are longer than a head is wide")
    found = statistic_with_interval(
        lambda rows: _correlation(lengths[rows], values[rows]), len(values), seed=setup.seed
    )
    return bounded({"correlation of length and Pearson": found}, high=0.0)


def null_space_grows(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    """With several cuts of a text that are longer than a head is wide: the dimension at its longest less that at its shortest."""
    longer = [r for r in records if r.metric == "null dimension" and r.info["n"] > r.info["width"]]
    grows = {text: -fall for text, fall in _falls(longer).items()}
    if len(grows) < 2:
        return incomparable("fewer than two texts have two cuts that are longer than a head is wide")
    return above_zero({"longest - shortest cut of a text": grows}, seed=setup.seed)


def _pearson(records: Iterable[Record]) -> list[Record]:
    return [r for r in records if r.metric == "pearson pooled"]


def _falls(records: Sequence[Record]) -> dict[str, float]:
    """The value at the shortest cut less that at the longest, of the texts that have several cuts."""
    cuts: dict[str, dict[int, float]] = {}
    for r in records:
        cuts.setdefault(r.example, {})[int(r.info["n"])] = r.value
    return {text: one[min(one)] - one[max(one)] for text, one in cuts.items() if len(one) > 1}


def _correlation(lengths: Any, values: Any) -> float:
    constant = lengths.std() == 0 or values.std() == 0
    return float("nan") if constant else float(np.corrcoef(lengths, values)[0, 1])


def _by_types(
    contrasts: Callable[[Any, str, int], Mapping[str, Examples]], premise: Callable[..., Any] | None = None
) -> Any:
    """A check of contrasts of attention by type: they get a function of (method, type, layers), the method and the depth.

    `premise` gives contrasts of raw attention that must be above 0, where the claim says that effective attention lacks something
    that raw attention has. Where raw attention has no such thing either, nothing can be compared.
    """

    def check(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
        received = [r for r in records if r.metric in ("received", "given")]
        if not received:
            return incomparable("no text is longer than a head is wide")

        def value(method: str, name: str, layers: Iterable[int], source: str | None = None) -> dict[str, float]:
            if method == EVEN:
                return _even_shares(records)
            return of_layers(received, method, "given" if source else "received", layers, type=name, source=source)

        asked = (value, setup.methods[0], depth_of(received))
        found = above_zero(contrasts(*asked), seed=setup.seed)
        raw = above_zero(premise(*asked), seed=setup.seed) if premise else found
        return found if raw is found or raw.word == SAME else _without_premise(raw, found)

    return check


def _even_shares(records: Sequence[Record]) -> dict[str, float]:
    """1 / n of each text, at its longest cut: the one whose attention is told by type."""
    lengths: dict[str, float] = {}
    for r in _pearson(records):
        lengths[r.example] = max(lengths.get(r.example, 0), r.info["n"])
    return {text: 1 / n for text, n in lengths.items()}


def _without_premise(raw: Verdict, found: Verdict) -> Verdict:
    """Both are shown: what raw attention lacks, and what effective attention has."""
    return incomparable(
        "raw attention does not have it here, so that nothing can be missing", f"{raw.ours}; {found.ours}"
    )


def _rest(depth: int, part: Iterable[int]) -> list[int]:
    return [layer for layer in range(1, depth + 1) if layer not in set(part)]


def _raw_peaks(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Raw attention in the third of the layers where the paper sees most of it, less that in the other layers."""
    early, middle, deep = thirds(depth)
    parts = {
        f"{CLS} early": (CLS, early),
        f"{SEP} in the middle": (SEP, middle),
        f"{PERIOD_OR_COMMA} deep": (PERIOD_OR_COMMA, deep),
    }
    return {
        f"{name} - elsewhere": less(value(RAW, t, at), value(RAW, t, _rest(depth, at)))
        for name, (t, at) in parts.items()
    }


Kind = tuple[str, Sequence[int]]  # a type of token, and the layers where the paper sees a peak of raw attention to it


def _separator_peak(depth: int) -> Kind:
    return SEP, thirds(depth)[1]


def _punctuation_peak(depth: int) -> Kind:
    """Layers 10 to 12 of 12; the same part of another depth."""
    return PERIOD_OR_COMMA, range(max(1, round(10 * depth / 12)), depth + 1)


def _peak(value: Any, method: str, kind: Kind, depth: int) -> dict[str, float]:
    """Attention to a type of token in these layers less that in the others."""
    name, layers = kind
    return less(value(method, name, layers), value(method, name, _rest(depth, layers)))


def _peak_claim(kind: Callable[[int], Kind]) -> Any:
    """Effective attention has less than half of a peak that raw attention has."""

    def of_raw(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
        layers = kind(depth)[1]
        return {f"peak of raw, layers {min(layers)} to {max(layers)}": _peak(value, RAW, kind(depth), depth)}

    def gone(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
        raw, effective = (_peak(value, name, kind(depth), depth) for name in (RAW, method))
        return {"half of it - peak of effective": less(_half(raw), effective)}

    return _by_types(gone, premise=of_raw)


def _half(values: Examples) -> dict[str, float]:
    return {text: one / 2 for text, one in values.items()}


def _punctuation_above(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    layers = range(1, depth + 1)
    marks = value(method, PERIOD_OR_COMMA, layers)
    return {f"{PERIOD_OR_COMMA} - {name}": less(marks, value(method, name, layers)) for name in (CLS, SEP)}


def _separator_in_null_space(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Half of raw attention less all of effective attention: above 0 where most of raw attention is null attention."""
    layers, contrasts = range(1, depth + 1), {}
    for source in (SEP, OTHERS):
        half = _half(value(RAW, SEP, layers, source))
        contrasts[f"half of raw - effective, from {source}"] = less(half, value(method, SEP, layers, source))
    return contrasts


def _fourth_of_twelve(depth: int) -> int:
    """Layer 4 of 12; the same part of another depth."""
    return max(1, round(depth / 3))


def _specials_attract(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Raw attention to [CLS] and to [SEP] in this layer, less an even share."""
    layer = _fourth_of_twelve(depth)
    even = value(EVEN, "", [layer])
    return {f"layer {layer}: raw, {name} - an even share": less(value(RAW, name, [layer]), even) for name in (CLS, SEP)}


def _specials_vanish(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    layer, contrasts = _fourth_of_twelve(depth), {}
    for name in (CLS, SEP):
        half = _half(value(RAW, name, [layer]))
        contrasts[f"layer {layer}: half of raw - effective, {name}"] = less(half, value(method, name, [layer]))
    return contrasts


EFFECTIVE_CLAIMS = (
    Claim(
        "Figure 1a",
        "texts no longer than a head is wide have equal raw and effective attention (Pearson at least 0.99)",
        "Pearson 1",
        short_texts_lose_nothing,
    ),
    Claim(
        "Figure 1a",
        "raw and effective attention correlate less the longer a text is",
        "falls from 64 tokens on, to 128",
        correlation_falls_with_length,
    ),
    Claim(
        "3.2, eq. 6",
        "longer texts than a head is wide have a null space, whose dimension increases with the length",
        "at least d_s - d_v",
        null_space_grows,
    ),
    Claim(
        "3.5, Figure 1b",
        "raw attention to [CLS] is highest in early layers, to [SEP] in middle ones, to periods and commas in deep ones "
        "(read here as the first, second and last third of the layers)",
        "in the figure; first said by Clark et al. (2019)",
        _by_types(_raw_peaks),
    ),
    Claim(
        "3.5, Figure 1c",
        "the peak of [SEP] that raw attention has in the middle layers has disappeared from effective attention (read here as: "
        "less than half of it is left)",
        "in the figure",
        _peak_claim(_separator_peak),
    ),
    Claim(
        "3.5, Figure 1c",
        "the peak of raw attention to periods and commas between layers 10 and 12 of 12 is null attention (read here as: less "
        "than half of it is left in effective attention)",
        "in the figure",
        _peak_claim(_punctuation_peak),
    ),
    Claim(
        "3.5, Figure 1c",
        "by effective attention, periods and commas attract more than [CLS] and [SEP]",
        "in the figure",
        _by_types(_punctuation_above),
    ),
    Claim(
        "A.2, Figure 5",
        "most of raw attention to [SEP] lies in the null space",
        "in the figure",
        _by_types(_separator_in_null_space),
    ),
    Claim(
        "A.3, Figure 6",
        "in layer 4 of 12 the attention that raw attention gives to [CLS] and [SEP] has vanished from effective attention (read "
        "here as: less than half of it is left, where raw attention gives each of them more than an even share)",
        "one head of one passage",
        _by_types(_specials_vanish, premise=_specials_attract),
    ),
)
