"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 3: how much of attention its output
can tell.

Which token a hidden state still is: see `tokens` and `layers`. How much of a hidden state came from other tokens: see
`mixing`, `context` and `pos`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...metrics.arguments import Array
from ...metrics.intervals import mean_with_interval, statistic_with_interval
from ...metrics.raw_and_effective import (
    PERIOD_OR_COMMA,
    HeadAttention,
    attention_of_heads,
    by_length,
    correlated,
    given_to,
    places_of,
    token_types,
)
from ...model.model import Model
from ...runs.experiments.claims import SAME, Claim, Measured, Rule, Values, Verdict, bounded, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.tables import Table, by, wide_rows
from ...types import Example, Record
from ..globenc.main import mean_of, reach_of
from .values import CLS, IN_FIGURE, SEP, Rows, depth_of, evaluation, of_twelve, select, thirds

EDGES = (0, 16, 32, 48, 64, 80, 96, 112, 129)
RAW, OTHERS = "attention", "others"


# --- what is measured -------------------------------------------------------------------------------------------------


def shortened(example: Example, model: Model, tokens: int) -> Example:
    """The first words of an example (of the text, then of the pair), as many as fit into so many tokens. A cut text
    keeps its id and no spans."""
    if len(model.encode(example).tokens) <= tokens:
        return example
    text, pair = example.text.split(), (example.pair or "").split()

    def first(count: int) -> Example:
        return Example(" ".join(text[:count]), " ".join(pair[: max(0, count - len(text))]) or None, id=example.id)

    counts = range(1, len(text) + len(pair) + 1)
    return first(max(1, bisect_right(counts, tokens, key=lambda count: len(model.encode(first(count)).tokens))))


def prepare_effective(setup: Setup) -> None:
    for written, request in setup.requests.items():
        if request.name != "effective_attention":
            raise InputError(
                f"{written!r}: raw attention is compared with effective_attention (or its variant=paper) alone."
            )
    edges, cuts = setup.options["edges"], setup.options["cuts"]
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"edges= are two or more rising lengths, such as {EDGES}, not {edges!r}.")
    if not isinstance(cuts, list | tuple) or not cuts or not all(isinstance(cut, int) and cut > 3 for cut in cuts):
        raise InputError(f"cuts= is a list of lengths in tokens, each 4 or more, such as [32, 64, 128], not {cuts!r}.")


def by_type(
    layers: Sequence[HeadAttention], types: Sequence[str], side: str
) -> Iterator[tuple[str, dict[str, Any], Array]]:
    """(metric, info, [head]): what all positions give to each type, and what [SEP] and the others give to [SEP]."""
    last = types[-1] if types[-1] not in ("word", "punctuation", PERIOD_OR_COMMA) else ""  # [SEP], where a text ends so
    for number, layer in enumerate(layers, 1):
        weights = getattr(layer, side)
        for name in dict.fromkeys(types):
            info = {"type": name, "layer": number}
            yield "received", info, given_to(weights, range(len(types)), places_of(types, name))
        if last:
            keys = places_of(types, last)
            for source, places in {last: keys, OTHERS: [i for i in range(len(types)) if i not in keys]}.items():
                info = {"source": source, "type": last, "layer": number}
                yield "given", info, given_to(weights, places, keys)


# --- tables and figure ------------------------------------------------------------------------------------------------


def finish_effective(setup: Setup, records: list[Record]) -> list[Table]:
    """Lengths; types, one column for each layer; then one point for each text (Figure 1a), and for each head (1b, 1c,
    5)."""
    lengths = Rows()
    for key, group in by([r for r in records if "n" in r.info], "method", "metric").items():
        values, sizes = [r.value for r in group], [int(r.info["n"]) for r in group]
        classes = by_length(values, sizes, edges=setup.options["edges"], seed=setup.seed)
        lengths += [(*key, f"{low}-{high - 1}", value) for (low, high), value in classes.items()]
    received, given = (select(records, metric) for metric in ("received", "given"))
    layers = range(1, depth_of(received) + 1)
    types = [*wide_rows(received, layers, ("method", "type"), "layer", seed=setup.seed)]
    for method, source, name, *cells in wide_rows(
        given, layers, ("method", "source", "type"), "layer", seed=setup.seed
    ):
        types.append((method, f"{source} to {name}", *cells))
    pooled = select(records, "pearson pooled")
    points = tuple((r.method, r.example, int(r.info["n"]), r.value) for r in pooled)
    heads = Rows()
    for (m, source, name, layer), group in by(received + given, "method", "source", "type", "layer").items():
        means = np.nanmean([r.info["heads"] for r in group], axis=0)
        heads.append((m, source or "all", name, layer, *map(float, means)))
    n = max(map(len, heads), default=4) - 4
    head_columns = ("method", "source", "type", "layer", *(f"head {i}" for i in range(1, n + 1)))
    return [
        Table(
            "length",
            "Raw against effective attention by length",
            ("method", "metric", "tokens", "value"),
            tuple(lengths),
            "Pearson's correlation over all weights of a text (pooled), and its mean over heads and layers. Mean over "
            "texts.",
        ),
        Table(
            "types",
            "What positions give to all tokens of a type",
            ("method", "type", *(f"layer {i}" for i in layers)),
            tuple(types),
            "Mean over heads, positions and texts (those longer than a head is wide). Raw attention adds up to 1 over "
            "the types; effective attention need not. The null attention of a type is raw less effective.",
        ),
        Table("points", "Pearson of each text", ("method", "example", "tokens", "value"), points, printed=False),
        Table("heads", "Attention of each head to a type of token", head_columns, tuple(heads), printed=False),
    ]


def figure_effective(setup: Setup, tables: list[Table], figure: Any) -> None:
    named: dict[str, Any] = {table.name: table for table in tables}
    figure.set_size_inches(10, 6)
    panels = figure.subplots(2, 3).ravel()
    panels[0].scatter(named["points"].column("tokens"), named["points"].column("value"), s=8, rasterized=True)
    panels[0].set_xlabel("tokens")
    panels[0].set_ylabel("Pearson, raw and effective")
    methods = list(dict.fromkeys(row[0] for row in named["heads"].rows))
    whole, of_sep = [("all", name) for name in (CLS, SEP, PERIOD_OR_COMMA)], [(SEP, SEP), (OTHERS, SEP)]
    for first, wanted in ((1, whole), (3, of_sep)):
        for axes, method in zip(panels[first : first + 2], methods, strict=False):
            _draw_heads(axes, named["heads"], method, wanted)
    rows = [row for row in named["length"].rows if row[1] == "null dimension"]
    cells = [row[3] for row in rows]
    panels[5].errorbar(range(len(rows)), [cell.mean for cell in cells], yerr=reach_of(cells), marker=".")
    panels[5].set_xticks(range(len(rows)), [row[2] for row in rows], rotation=45, fontsize=6)
    panels[5].set_ylabel("dimension of the null space")
    panels[5].set_xlabel("tokens")


def _draw_heads(axes: Any, table: Any, method: Any, wanted: Sequence[tuple[str, str]]) -> None:
    """One point for each head, and a line through the mean of each layer."""
    for number, (source, name) in enumerate(wanted):
        rows = [row for row in table.rows if row[:3] == (method, source, name)]
        label = name if source == "all" else f"{source} to {name}"
        for row in rows:
            axes.scatter([row[3]] * len(row[4:]), row[4:], s=6, alpha=0.5, color=f"C{number}")
        axes.plot([row[3] for row in rows], [np.mean(row[4:]) for row in rows], color=f"C{number}", label=label)
    axes.set_title(str(method), fontsize=8)
    axes.set_xlabel("layer")
    axes.legend(fontsize=6)


# --- claims about lengths ---------------------------------------------------------------------------------------------


def short_texts_lose_nothing(run: Measured) -> Verdict:
    """At least 0.99: a head whose values are nearly dependent loses a little by rounding."""
    values = [r.value for r in select(run.records, "pearson pooled") if r.info["n"] <= r.info["width"]]
    if not values:
        return incomparable("no text is as short as a head is wide")
    return bounded({"Pearson": mean_with_interval(values, seed=run.setup.seed)}, low=0.99)


def longer_texts(run: Measured, metric: str) -> list[Record]:
    """The records of texts that are longer than a head is wide."""
    return [r for r in select(run.records, metric) if r.info["n"] > r.info["width"]]


def falls(records: Iterable[Record], sign: int = 1) -> Values:
    """The value at the shortest cut less that at the longest, of the texts that have several cuts; -1: the other way
    round."""
    cuts: dict[str, dict[int, float]] = {}
    for r in records:
        cuts.setdefault(r.example, {})[int(r.info["n"])] = r.value
    return Values({text: sign * (one[min(one)] - one[max(one)]) for text, one in cuts.items() if len(one) > 1})


def correlation_falls_with_length(run: Measured) -> Verdict:
    """With several cuts of a text: its shortest less its longest. With one: the correlation of length and Pearson over
    texts."""
    longer = longer_texts(run, "pearson pooled")
    if fall := falls(longer):
        return run.positive({"shortest - longest cut of a text": fall})
    both = np.array([(r.info["n"], r.value) for r in longer])
    if len({r.info["n"] for r in longer}) < 3:
        return incomparable("too few texts of different lengths are longer than a head is wide")

    def correlation(rows: Any) -> float:
        constant = (both[rows].std(0) == 0).any()
        return float("nan") if constant else float(np.corrcoef(both[rows].T)[0, 1])

    found = statistic_with_interval(correlation, len(both), seed=run.setup.seed)
    return bounded({"correlation of length and Pearson": found}, high=0.0)


def null_space_grows(run: Measured) -> Verdict:
    grows = falls(longer_texts(run, "null dimension"), -1)
    if len(grows) < 2:
        return incomparable("fewer than two texts have two cuts that are longer than a head is wide")
    return run.positive({"longest - shortest cut of a text": grows})


# --- claims about types of tokens -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """The attention given to types of tokens in a run: by `raw` and `effective`, each of (type, layers, source)."""

    run: Measured
    depth: int

    def _to(self, method: str, name: str, layers: Iterable[int], source: str | None = None) -> Values:
        some = self.run.where(lambda r: r.info.get("type") == name and r.info.get("source") == source)
        return some[method, "given" if source else "received", list(layers)]

    def raw(self, *place: Any) -> Values:
        return self._to(RAW, *place)

    def effective(self, *place: Any) -> Values:
        return self._to(self.run.setup.methods[0], *place)

    def lost(self, *place: Any) -> Values:
        """Half of raw less all of effective attention: above 0 where most of raw attention is null attention."""
        return 0.5 * self.raw(*place) - self.effective(*place)

    @property
    def layers(self) -> range:
        return range(1, self.depth + 1)

    @property
    def fourth(self) -> int:
        """Layer 4 of 12."""
        return of_twelve(4, self.depth)

    def peak(self, of: Callable[..., Values], name: str, layers: Iterable[int]) -> Values:
        """Attention to a type of token in these layers less that in the others."""
        return of(name, layers) - of(name, [layer for layer in self.layers if layer not in layers])

    @property
    def even_share(self) -> Values:
        """1 / n of each text, at its longest cut: the one whose attention is told by type."""
        lengths: dict[str, float] = {}
        for r in select(self.run.records, "pearson pooled"):
            lengths[r.example] = max(lengths.get(r.example, 0), r.info["n"])
        return Values({text: 1 / n for text, n in lengths.items()})


Contrasts = Callable[[Given], Mapping[str, Values]]


def by_types(contrasts: Contrasts, premise: Contrasts | None = None) -> Rule:
    """A rule on contrasts of attention by type, all above 0. `premise` gives contrasts of raw attention that must be
    above 0, where the claim says that effective attention lacks something that raw attention has: else both are
    shown."""

    def rule(run: Measured) -> Verdict:
        received = [r for r in run.records if r.metric in ("received", "given")]
        if not received:
            return incomparable("no text is longer than a head is wide")
        given = Given(run, depth_of(received))
        found = run.positive(contrasts(given))
        raw = found if premise is None else run.positive(premise(given))
        if premise is None or raw.word == SAME:
            return found
        reason = "raw attention does not have it here, so that nothing can be missing"
        return incomparable(reason, f"{raw.ours}; {found.ours}")

    return rule


def peaks_of_raw(given: Given) -> Mapping[str, Values]:
    """In the third of the layers where the paper sees most of it, less that in the other layers."""
    places = {"early": CLS, "in the middle": SEP, "deep": PERIOD_OR_COMMA}
    parts = zip(places.items(), thirds(given.depth), strict=True)
    return {f"{name} {place} - elsewhere": given.peak(given.raw, name, layers) for (place, name), layers in parts}


def peak_is_gone(name: str, layers_of: Callable[[int], range]) -> Rule:
    """Effective attention has less than half of a peak that raw attention has in these layers."""

    def of_raw(given: Given) -> Mapping[str, Values]:
        at = layers_of(given.depth)
        return {f"peak of raw, layers {min(at)} to {max(at)}": given.peak(given.raw, name, at)}

    def gone(given: Given) -> Mapping[str, Values]:
        raw, effective = (given.peak(of, name, layers_of(given.depth)) for of in (given.raw, given.effective))
        return {"half of it - peak of effective": 0.5 * raw - effective}

    return by_types(gone, premise=of_raw)


@evaluation(
    name="id-effective-attention",
    shows="Figures 1 and 5: raw and effective attention (sections 3.4, 3.5, A.2)",
    methods=("effective_attention",),
    finish=finish_effective,
    figure=figure_effective,
    takes="map",
    options={"edges": EDGES, "cuts": (128,)},
    prepare=prepare_effective,
    differs=(
        "The paper uses the Wikipedia segments of Clark et al. (2019): two paragraphs of at most 128 tokens in all, "
        "with two [SEP]. Here a text is whatever the data gives, cut to its first words (option cuts). A paragraph of "
        "wikitext has one [SEP].",
        "Texts no longer than a head is wide lose nothing by the theorem. Attention by type of token is averaged over "
        "longer texts alone, at their longest cut; the text of the paper does not say which lengths its Figures 1b and "
        "1c average over.",
        "T = E W_V H has the bias of the values (the default of effective_attention): only then is the output of the "
        "head unchanged. The paper writes T without it: effective_attention:variant=paper.",
    ),
    claims=(
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
            "raw attention to [CLS] is highest in early layers, to [SEP] in middle ones, to periods and commas in deep "
            "ones (read here as the first, second and last third of the layers)",
            "in the figure; first said by Clark et al. (2019)",
            by_types(peaks_of_raw),
        ),
        Claim(
            "3.5, Figure 1c",
            "the peak of [SEP] that raw attention has in the middle layers has disappeared from effective attention "
            "(read here as: less than half of it is left)",
            IN_FIGURE,
            peak_is_gone(SEP, lambda depth: thirds(depth)[1]),
        ),
        Claim(
            "3.5, Figure 1c",
            "the peak of raw attention to periods and commas between layers 10 and 12 of 12 is null attention (read "
            "here as: less than half of it is left in effective attention)",
            IN_FIGURE,
            peak_is_gone(PERIOD_OR_COMMA, lambda depth: range(of_twelve(10, depth), depth + 1)),
        ),
        Claim(
            "3.5, Figure 1c",
            "by effective attention, periods and commas attract more than [CLS] and [SEP]",
            IN_FIGURE,
            by_types(
                lambda given: {
                    f"{PERIOD_OR_COMMA} - {name}": given.effective(PERIOD_OR_COMMA, given.layers)
                    - given.effective(name, given.layers)
                    for name in (CLS, SEP)
                }
            ),
        ),
        Claim(
            "A.2, Figure 5",
            "most of raw attention to [SEP] lies in the null space",
            IN_FIGURE,
            by_types(
                lambda given: {
                    f"half of raw - effective, from {source}": given.lost(SEP, given.layers, source)
                    for source in (SEP, OTHERS)
                }
            ),
        ),
        Claim(
            "A.3, Figure 6",
            "in layer 4 of 12 the attention that raw attention gives to [CLS] and [SEP] has vanished from effective "
            "attention (read here as: less than half of it is left, where raw attention gives each of them more than "
            "an even share)",
            "one head of one passage",
            by_types(
                lambda given: {
                    f"layer {given.fourth}: half of raw - effective, {name}": given.lost(name, [given.fourth])
                    for name in (CLS, SEP)
                },
                premise=lambda given: {
                    f"layer {given.fourth}: raw, {name} - an even share": given.raw(name, [given.fourth])
                    - given.even_share
                    for name in (CLS, SEP)
                },
            ),
        ),
    ),
)
def effective_attention(setup: Setup, example: Example) -> list[Record]:
    """How much of attention can its output tell, the longer the text? And which tokens lose most by it?"""
    name, records = str(example.id), list[Record]()
    cuts = [shortened(example, setup.model, tokens) for tokens in setup.options["cuts"]]
    traces = [setup.model.trace(text) for text in {(one.text, one.pair): one for one in cuts}.values()]
    for trace in traces:  # a length that the text does not reach gives the whole text, once
        facts = {"n": len(trace), "width": trace.layers[0].value.shape[-1]}
        for method, request in setup.requests.items():
            layers = list(attention_of_heads(trace, variant=request.variant or "released"))
            compared = correlated(layers)
            values = {
                "pearson pooled": compared.pooled,
                "pearson by head": mean_of(compared.per_head)[0],
                "null dimension": float(np.mean([layer.null_dimension for layer in layers])),
            }
            records += [Record(name, method, metric, value, facts) for metric, value in values.items()]
            if len(trace) < max(map(len, traces)) or facts["n"] <= facts["width"]:
                continue
            # Raw attention for the first method alone: it is the same for every method.
            sides = {RAW: "raw", method: "effective"} if method == setup.methods[0] else {method: "effective"}
            for told, side in sides.items():
                for metric, info, heads in by_type(layers, token_types(trace), side):
                    of_heads = {**info, "heads": [float(value) for value in heads]}
                    records.append(Record(name, told, metric, float(np.mean(heads)), of_heads))
    return records
