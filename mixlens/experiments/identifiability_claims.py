"""What On Identifiability in Transformers (Brunner et al. 2020) says about effective attention (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics.intervals import mean_with_interval, statistic_with_interval
from ..metrics.raw_and_effective import PERIOD_OR_COMMA
from ..types import Record
from .claims import Claim, Examples, Verdict, bounded, incomparable
from .identifiability_values import above_zero, depth_of, less, of_layers, thirds

RAW = "attention"
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
    found = statistic_with_interval(lambda rows: _correlation(lengths[rows], values[rows]), len(values), seed=setup.seed)
    return bounded({"correlation of length and Pearson": found}, high=0.0)


def _pearson(records: Iterable[Record]) -> list[Record]:
    return [r for r in records if r.metric == "pearson pooled"]


def _falls(records: Sequence[Record]) -> dict[str, float]:
    """Pearson at the shortest cut less that at the longest, of the texts that have several cuts."""
    cuts: dict[str, dict[int, float]] = {}
    for r in records:
        cuts.setdefault(r.example, {})[int(r.info["n"])] = r.value
    return {text: one[min(one)] - one[max(one)] for text, one in cuts.items() if len(one) > 1}


def _correlation(lengths: Any, values: Any) -> float:
    constant = lengths.std() == 0 or values.std() == 0
    return float("nan") if constant else float(np.corrcoef(lengths, values)[0, 1])


def _by_types(contrasts: Callable[[Any, str, int], Mapping[str, Examples]]) -> Any:
    """A check of contrasts of attention by type: they get a function of (method, type, layers), the method and the depth."""

    def check(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
        received = [r for r in records if r.metric in ("received", "given")]
        if not received:
            return incomparable("no text is longer than a head is wide")

        def value(method: str, name: str, layers: Iterable[int], source: str | None = None) -> dict[str, float]:
            return of_layers(received, method, "given" if source else "received", layers, type=name, source=source)

        return above_zero(contrasts(value, setup.methods[0], depth_of(received)), seed=setup.seed)

    return check


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
    return {f"{name} - elsewhere": less(value(RAW, t, at), value(RAW, t, _rest(depth, at))) for name, (t, at) in parts.items()}


def _separator_peak_gone(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    return _peak_gone(value, method, SEP, thirds(depth)[1], depth)


def _peak_gone(value: Any, method: str, kind: str, layers: Any, depth: int) -> Mapping[str, Examples]:
    """There is a peak of raw attention in these layers, and effective attention has less than half of it."""
    elsewhere = [layer for layer in range(1, depth + 1) if layer not in layers]
    raw, effective = (less(value(name, kind, layers), value(name, kind, elsewhere)) for name in (RAW, method))
    at = f"layers {min(layers)} to {max(layers)}"
    return {f"peak of raw, {at}": raw, "half of it - peak of effective": less({e: one / 2 for e, one in raw.items()}, effective)}


def _punctuation_peak_gone(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Layers 10 to 12 of 12; the same part of another depth."""
    deep = range(max(1, round(10 * depth / 12)), depth + 1)
    return _peak_gone(value, method, PERIOD_OR_COMMA, deep, depth)


def _punctuation_above(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    layers = range(1, depth + 1)
    marks = value(method, PERIOD_OR_COMMA, layers)
    return {f"{PERIOD_OR_COMMA} - {name}": less(marks, value(method, name, layers)) for name in (CLS, SEP)}


def _separator_in_null_space(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Half of raw attention less all of effective attention: above 0 where most of raw attention is null attention."""
    layers, contrasts = range(1, depth + 1), {}
    for source in (SEP, OTHERS):
        half = {text: number / 2 for text, number in value(RAW, SEP, layers, source).items()}
        contrasts[f"half of raw - effective, from {source}"] = less(half, value(method, SEP, layers, source))
    return contrasts


def _specials_vanish(value: Any, method: str, depth: int) -> Mapping[str, Examples]:
    """Layer 4 of 12; the same part of another depth."""
    layer, contrasts = [max(1, round(depth / 3))], {}
    for name in (CLS, SEP):
        half = {text: number / 2 for text, number in value(RAW, name, layer).items()}
        contrasts[f"layer {layer[0]}: half of raw - effective, {name}"] = less(half, value(method, name, layer))
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
        "Figure 1b",
        "raw attention to [CLS] is highest in early layers, to [SEP] in middle ones, to periods and commas in deep ones",
        "in the figure",
        _by_types(_raw_peaks),
    ),
    Claim(
        "Figure 1c",
        "effective attention has no peak of [SEP] in the middle layers",
        "in the figure",
        _by_types(_separator_peak_gone),
    ),
    Claim(
        "Figure 1c",
        "the peak of raw attention to periods and commas between layers 10 and 12 of 12 is null attention",
        "in the figure",
        _by_types(_punctuation_peak_gone),
    ),
    Claim(
        "Figure 1c",
        "by effective attention, periods and commas attract more than [CLS] and [SEP]",
        "in the figure",
        _by_types(_punctuation_above),
    ),
    Claim(
        "Figure 5", "most of raw attention to [SEP] lies in the null space", "in the figure", _by_types(_separator_in_null_space)
    ),
    Claim(
        "A.3, Figure 6",
        "in layer 4 of 12 the attention to [CLS] and [SEP] has vanished from effective attention",
        "one head of one passage",
        _by_types(_specials_vanish),
    ),
)
