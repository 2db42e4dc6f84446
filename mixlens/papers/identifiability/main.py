"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 3: how much of attention its output can tell.

Which token a hidden state still is: see `identifiability_tokens` and `identifiability_layers`. How much of a hidden state came
from other tokens: see `identifiability_mixing`, `identifiability_context` and `identifiability_pos`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...metrics.arguments import Array
from ...metrics.intervals import mean_with_interval
from ...metrics.mixing_stats import BRUNNER
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
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table, by
from ...types import Example, Record, Trace
from ..globenc.main import mean_of, reach_of
from .claims import EFFECTIVE_CLAIMS, OTHERS, RAW
from .values import depth_of, select

EDGES = (0, 16, 32, 48, 64, 80, 96, 112, 129)
CUTS = (128,)


# --- texts of several lengths -----------------------------------------------------------------------------------------------


def shortened(example: Example, model: Model, tokens: int) -> Example:
    """The first words of an example, as many as fit into so many tokens. A cut text keeps its id and no spans."""
    n_words = len(_words(example))
    if len(model.encode(example).tokens) <= tokens:
        return example
    fits = bisect_right(
        range(1, n_words + 1), tokens, key=lambda count: len(model.encode(_first_words(example, count)).tokens)
    )
    return _first_words(example, max(1, fits))


def _words(example: Example) -> list[str]:
    return [*example.text.split(), *(example.pair or "").split()]


def _first_words(example: Example, count: int) -> Example:
    """The first words of the text, then those of the pair."""
    text, pair = example.text.split(), (example.pair or "").split()
    return Example(" ".join(text[:count]), " ".join(pair[: max(0, count - len(text))]) or None, id=example.id)


def traces_of(setup: Setup, example: Example) -> Iterator[Trace]:
    """The text cut to each of the lengths; a length that the text does not reach gives the whole text, once."""
    texts = [shortened(example, setup.model, tokens) for tokens in setup.options["cuts"]]
    for text in {(one.text, one.pair): one for one in texts}.values():
        yield setup.model.trace(text)


# --- records ----------------------------------------------------------------------------------------------------------------


def prepare_effective(setup: Setup) -> None:
    for written, request in setup.requests.items():
        if request.name != "effective_attention":
            raise InputError(
                f"{written!r}: raw attention is compared with effective_attention (or its variant=paper) alone."
            )
    _refuse_edges(setup.options["edges"])
    _refuse_cuts(setup.options["cuts"])


def _refuse_edges(edges: Any) -> None:
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"edges= are two or more rising lengths, such as {EDGES}, not {edges!r}.")


def _refuse_cuts(cuts: Any) -> None:
    if not isinstance(cuts, list | tuple) or not cuts or not all(isinstance(cut, int) and cut > 3 for cut in cuts):
        raise InputError(f"cuts= is a list of lengths in tokens, each 4 or more, such as [32, 64, 128], not {cuts!r}.")


DIFFERS_EFFECTIVE = (
    "The paper uses the Wikipedia segments of Clark et al. (2019): two paragraphs of at most 128 tokens in all, with two [SEP]. "
    "Here a text is whatever the data gives, cut to its first words (option cuts). A paragraph of wikitext has one [SEP].",
    "Texts no longer than a head is wide lose nothing by the theorem. Attention by type of token is averaged over longer texts "
    "alone, at their longest cut; the text of the paper does not say which lengths its Figures 1b and 1c average over.",
    "T = E W_V H has the bias of the values (the default of effective_attention): only then is the output of the head unchanged. "
    "The paper writes T without it: effective_attention:variant=paper.",
)


def _length_facts(layers: Sequence[HeadAttention]) -> dict[str, float]:
    compared = correlated(layers)
    return {
        "pearson pooled": compared.pooled,
        "pearson by head": mean_of(compared.per_head)[0],
        "null dimension": float(np.mean([layer.null_dimension for layer in layers])),
    }


def _given(
    layers: Sequence[HeadAttention], types: Sequence[str], side: str
) -> Iterator[tuple[str, dict[str, Any], Array]]:
    """(metric, info, [head]): what all positions give to each type, and what [SEP] and the others give to [SEP]."""
    for number, layer in enumerate(layers, 1):
        weights = getattr(layer, side)
        for name in dict.fromkeys(types):
            yield (
                "received",
                {"type": name, "layer": number},
                given_to(weights, range(len(types)), places_of(types, name)),
            )
        yield from _given_to_separator(weights, types, number)


def _given_to_separator(
    weights: Array, types: Sequence[str], layer: int
) -> Iterator[tuple[str, dict[str, Any], Array]]:
    name = _separator(types)
    if not name:
        return
    keys = places_of(types, name)
    queries = {name: keys, OTHERS: [i for i in range(len(types)) if i not in keys]}
    for source, places in queries.items():
        yield "given", {"source": source, "type": name, "layer": layer}, given_to(weights, places, keys)


def _separator(types: Sequence[str]) -> str:
    """The name of the last special token ([SEP]); empty where a text ends without one."""
    return types[-1] if types[-1] not in ("word", "punctuation", PERIOD_OR_COMMA) else ""


def _type_records(
    example: str, method: str, layers: Sequence[HeadAttention], types: Sequence[str], side: str
) -> list[Record]:
    """The mean over heads of every value; the values of the heads are in `heads`."""
    return [
        Record(example, method, metric, float(np.mean(heads)), {**info, "heads": [float(value) for value in heads]})
        for metric, info, heads in _given(layers, types, side)
    ]


# --- tables and figure ------------------------------------------------------------------------------------------------------


def finish_effective(setup: Setup, records: list[Record]) -> list[Table]:
    return [_by_length(setup, records), _by_type(setup, records), _points(records), _heads(records)]


def _by_length(setup: Setup, records: Sequence[Record]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for key, group in by([r for r in records if "n" in r.info], "method", "metric").items():
        rows += [(*key, tokens, value) for tokens, value in _classes(setup, group)]
    return Table(
        "length",
        "Raw against effective attention by length",
        ("method", "metric", "tokens", "value"),
        tuple(rows),
        _LENGTH,
    )


def _classes(setup: Setup, records: Sequence[Record]) -> list[tuple[str, Any]]:
    """The classes of lengths that hold a text, with their means."""
    lengths, edges = [int(r.info["n"]) for r in records], setup.options["edges"]
    classes = by_length([r.value for r in records], lengths, edges=edges, seed=setup.seed)
    return [(f"{low}-{high - 1}", value) for (low, high), value in classes.items()]


_LENGTH = (
    "Pearson's correlation over all weights of a text (pooled), and its mean over heads and layers. Mean over texts."
)


def _by_type(setup: Setup, records: Sequence[Record]) -> Table:
    """One row for each method and type, one column for each layer; then what [SEP] and the others give to [SEP]."""
    groups = by(_of("received", records), "method", "type")
    groups |= {(m, f"{source} to {name}"): group for (m, source, name), group in _sources(records).items()}
    layers = range(1, depth_of(records) + 1)
    cells = {
        key: [_mean(by(group, "layer").get((i,), []), setup.seed) for i in layers] for key, group in groups.items()
    }
    rows = tuple((*key, *values) for key, values in cells.items())
    columns = ("method", "type", *(f"layer {i}" for i in layers))
    return Table("types", "What positions give to all tokens of a type", columns, rows, _TYPES)


def _sources(records: Sequence[Record]) -> dict[tuple[Any, ...], list[Record]]:
    return by(_of("given", records), "method", "source", "type")


_TYPES = (
    "Mean over heads, positions and texts (those longer than a head is wide). Raw attention adds up to 1 over the types; "
    "effective attention need not. The null attention of a type is raw less effective."
)


def _of(metric: str, records: Sequence[Record]) -> list[Record]:
    return select(records, metric)


def _mean(records: Sequence[Record], seed: int) -> Any:
    return mean_with_interval([r.value for r in records], seed=seed) if records else None


def _points(records: Sequence[Record]) -> Table:
    """Figure 1a: one point for each text."""
    points = _of("pearson pooled", records)
    rows = tuple((r.method, r.example, int(r.info["n"]), r.value) for r in points)
    return Table("points", "Pearson of each text", ("method", "example", "tokens", "value"), rows, printed=False)


def _heads(records: Sequence[Record]) -> Table:
    """Figures 1b, 1c and 5: one value for each head."""
    groups = by(_of("received", records) + _of("given", records), "method", "source", "type", "layer")
    rows = [(*key, np.nanmean([r.info["heads"] for r in group], axis=0)) for key, group in groups.items()]
    n = max((len(row[-1]) for row in rows), default=0)
    columns = ("method", "source", "type", "layer", *(f"head {i}" for i in range(1, n + 1)))
    cells = tuple((m, source or "all", name, layer, *map(float, values)) for m, source, name, layer, values in rows)
    return Table("heads", "Attention of each head to a type of token", columns, cells, printed=False)


def figure_effective(setup: Setup, tables: list[Table], figure: Any) -> None:
    named = {table.name: table for table in tables}
    figure.set_size_inches(10, 6)
    panels = figure.subplots(2, 3).ravel()
    _draw_points(panels[0], named["points"])
    methods = list(dict.fromkeys(row[0] for row in named["heads"].rows))
    for axes, method in zip(panels[1:3], methods, strict=False):
        _draw_heads(axes, named["heads"], method, [("all", name) for name in ("[CLS]", "[SEP]", PERIOD_OR_COMMA)])
    for axes, method in zip(panels[3:5], methods, strict=False):
        _draw_heads(axes, named["heads"], method, [("[SEP]", "[SEP]"), (OTHERS, "[SEP]")])
    _draw_means(panels[5], named["length"])


def _draw_points(axes: Any, table: Table) -> None:
    axes.scatter(table.column("tokens"), table.column("value"), s=8, rasterized=True)
    axes.set_xlabel("tokens")
    axes.set_ylabel("Pearson, raw and effective")


def _draw_heads(axes: Any, table: Table, method: Any, wanted: Sequence[tuple[str, str]]) -> None:
    """One point for each head, and a line through the mean of each layer."""
    for number, (source, name) in enumerate(wanted):
        rows = [row for row in table.rows if row[:3] == (method, source, name)]
        _draw_type(axes, rows, f"C{number}", name if source == "all" else f"{source} to {name}")
    axes.set_title(str(method), fontsize=8)
    axes.set_xlabel("layer")
    axes.legend(fontsize=6)


def _draw_type(axes: Any, rows: Sequence[Any], color: str, label: str) -> None:
    """Rows (method, source, type, layer, one value for each head)."""
    for row in rows:
        axes.scatter([row[3]] * len(row[4:]), row[4:], s=6, alpha=0.5, color=color)
    axes.plot([row[3] for row in rows], [np.mean(row[4:]) for row in rows], color=color, label=label)


def _draw_means(axes: Any, table: Table) -> None:
    rows: Any = [row for row in table.rows if row[1] == "null dimension"]
    axes.errorbar(range(len(rows)), [row[3].mean for row in rows], yerr=reach_of([row[3] for row in rows]), marker=".")
    axes.set_xticks(range(len(rows)), [row[2] for row in rows], rotation=45, fontsize=6)
    axes.set_ylabel("dimension of the null space")
    axes.set_xlabel("tokens")


@experiment(
    name="id-effective-attention",
    paper=BRUNNER,
    shows="Figures 1 and 5: raw and effective attention (sections 3.4, 3.5, A.2)",
    data="agreement",
    model="agreement",
    methods=("effective_attention",),
    finish=finish_effective,
    figure=figure_effective,
    takes="map",
    options={"edges": EDGES, "cuts": CUTS},
    prepare=prepare_effective,
    differs=DIFFERS_EFFECTIVE,
    claims=EFFECTIVE_CLAIMS,
)
def effective_attention(setup: Setup, example: Example) -> list[Record]:
    """How much of attention can its output tell, the longer the text? And which tokens lose most by it?"""
    records: list[Record] = []
    traces = list(traces_of(setup, example))
    for trace in traces:
        records += _of_trace(setup, str(example.id), trace, longest=len(trace) == max(map(len, traces)))
    return records


def _of_trace(setup: Setup, example: str, trace: Trace, *, longest: bool) -> list[Record]:
    records: list[Record] = []
    facts = {"n": len(trace), "width": trace.layers[0].value.shape[-1]}
    for method, request in setup.requests.items():
        layers = list(attention_of_heads(trace, variant=request.variant or "released"))
        records += [Record(example, method, metric, value, facts) for metric, value in _length_facts(layers).items()]
        if longest and facts["n"] > facts["width"]:
            records += _of_sides(setup, example, method, layers, token_types(trace))
    return records


def _of_sides(
    setup: Setup, example: str, method: str, layers: Sequence[HeadAttention], types: Sequence[str]
) -> list[Record]:
    """Effective attention by type; raw attention too for the first method, because it is the same for every method."""
    effective = _type_records(example, method, layers, types, "effective")
    raw = _type_records(example, RAW, layers, types, "raw") if method == setup.methods[0] else []
    return raw + effective
