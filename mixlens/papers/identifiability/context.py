"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 5.3: from how far context comes, and what
[CLS] takes from where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...metrics.arguments import Array, array
from ...metrics.intervals import Interval, statistic_with_interval
from ...metrics.mixing_stats import BRUNNER, mean_by_distance, own_share, share_around, share_by_distance
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table, by
from ...types import Example, Map, Record, Trace
from ..globenc.main import lines, per_layer
from .context_claims import CONTEXT_CLAIMS, NAMES
from .mixing import DIFFERS_HTA, every_contribution
from .values import DEPTHS, depth_of, ratio_with_interval, select, three_layers

# --- records ----------------------------------------------------------------------------------------------------------------


def neighbours(scores: Map, *, reach: int) -> dict[int, Array]:
    """For each offset -reach to reach but 0, [layer pos]: the share of the token that far to the right in a position's row."""
    rows = array(scores, "scores", 3)
    total = rows.sum(-1)
    shares = {}
    for offset in (*range(-reach, 0), *range(1, reach + 1)):
        diagonal = np.diagonal(rows, offset, axis1=-2, axis2=-1)
        sums = total[:, max(0, -offset) : max(0, total.shape[-1] - max(0, offset))]
        shares[offset] = np.where(sums == 0, np.nan, diagonal / np.where(sums == 0, 1, sums))
    return shares


def layer_records(example: Example, method: str, metric: str, group: str, values: Array) -> list[Record]:
    """The mean over positions of [layer pos], one record for each layer; none where the text has no such position.

    Curves over places are kept at three layers, as the paper draws them.
    """
    wanted = three_layers(len(values)) if metric in AT_DEPTHS else range(1, len(values) + 1)
    rows = {layer: values[layer - 1][np.isfinite(values[layer - 1])] for layer in wanted}
    place = {"group": group}
    return [
        Record(str(example.id), method, metric, float(row.mean()), {"layer": layer, **place, "count": len(row)})
        for layer, row in rows.items()
        if len(row)
    ]


AT_DEPTHS = ("neighbour", "around", "from place")


def _groups(scores: Map, setup: Setup) -> Iterator[tuple[str, str, Array]]:
    """(metric, group, [layer pos]) of everything that is measured on one map."""
    means, shares = mean_by_distance(scores), share_by_distance(scores)
    for g, name in enumerate(NAMES):
        yield "distance", name, means[..., g]
        if setup.options["others"]:
            yield "of others", name, shares[..., g]
    for offset, values in neighbours(scores, reach=setup.options["reach"]).items():
        yield "neighbour", f"{offset:+d}", values
    yield "context", "all", 1 - own_share(scores)


def _of_first_token(scores: Map, trace: Trace, setup: Setup) -> Iterator[tuple[str, str, Array]]:
    """What the first token ([CLS]) takes: from every position, and around the first [SEP]."""
    row = array(scores, "scores", 3)[:, 0]
    shares = row / row.sum(-1, keepdims=True)
    for place in range(1, len(trace)):
        yield "from place", str(place), shares[:, [place]]
    if any(trace.special[1:]):
        reach = setup.options["around"]
        around = share_around(scores, reach=reach)
        for offset in range(-reach, reach + 1):
            yield "around", f"{offset:+d}", around[:, [offset + reach]]
        yield from _sentences(shares, trace)


def _sentences(shares: Array, trace: Trace) -> Iterator[tuple[str, str, Array]]:
    """The mean share of a token before and of one behind the first [SEP], special tokens left out; none without a second text."""
    middle = trace.special[1:].index(True) + 1
    places = {"first": range(1, middle), "second": range(middle + 1, len(trace))}
    words = {name: [i for i in some if not trace.special[i]] for name, some in places.items()}
    if all(words.values()):
        for name, some in words.items():
            yield "sentence", name, shares[:, some].mean(-1, keepdims=True)


def context_records(setup: Setup, example: Example, trace: Trace, method: str, scores: Map) -> list[Record]:
    """Everything that is measured on one map."""
    groups = (*_groups(scores, setup), *_of_first_token(scores, trace, setup))
    return [
        record for metric, group, values in groups for record in layer_records(example, method, metric, group, values)
    ]


# --- tables -----------------------------------------------------------------------------------------------------------------


def finish_context(setup: Setup, records: list[Record]) -> list[Table]:
    tables = [_by_distance(setup, records), _by_place(setup, records)]
    others = select(records, "of others")
    tables += (
        [per_layer("others", _OTHERS, others, ("method", "group"), seed=setup.seed, note=_TEXTS)] if others else []
    )
    for metric, title, printed in _FIRST_TOKEN:
        tables += _at_depths(setup, metric, title, records, printed)
    return tables


_OTHERS = "By distance, of what comes from others in a layer"
_TEXTS = "Mean over a text's positions, then over texts."
_FIRST_TOKEN = (
    ("around", "What [CLS] takes from the tokens around the first [SEP] (+0)", True),
    ("sentence", "What [CLS] takes from a token of the first and of the second text", True),
    ("from place", "What [CLS] takes from each place of the text", False),
)


def _by_distance(setup: Setup, records: Sequence[Record]) -> Table:
    """Figure 4a: the mean of each group over all tokens, then each group divided by its sum over the layers."""
    layers = range(1, depth_of(records) + 1)
    groups = by(select(records, "distance"), "method", "group")
    rows = tuple((*key, *_normalized(group, len(layers), setup.seed)) for key, group in groups.items())
    columns = ("method", "group", *(f"layer {layer}" for layer in layers))
    return Table("distance", "Relative contribution of neighbours by distance", columns, rows, _NORMALIZED)


_NORMALIZED = (
    "Mean over the neighbours of a group, then over all tokens; then each group is divided by its sum over the layers (C.2), so "
    "that a row adds up to 1 and shows in which layer a group contributes most. Intervals: texts are resampled."
)


def _normalized(records: Sequence[Record], depth: int, seed: int) -> list[Interval]:
    """One cell for each layer: sum_t S_tl / sum_t N_t, divided by its sum over the layers l, for texts t."""
    texts = {text: number for number, text in enumerate(dict.fromkeys(r.example for r in records))}
    sums, counts = np.zeros((len(texts), depth)), np.zeros((len(texts), depth))
    for r in records:
        place = texts[r.example], int(r.info["layer"]) - 1
        sums[place], counts[place] = r.value * r.info["count"], r.info["count"]

    def share(rows: Any, layer: int) -> float:
        means = sums[rows].sum(0) / counts[rows].sum(0)
        return float(means[layer] / means.sum())

    return [statistic_with_interval(partial(share, layer=layer), len(texts), seed=seed) for layer in range(depth)]


def _by_place(setup: Setup, records: Sequence[Record]) -> Table:
    """Figure 4b: the total from each relative place, divided by the total from all other tokens of the layer."""
    groups, layers = by(select(records, "neighbour"), "method", "group"), three_layers(depth_of(records))
    context = by(select(records, "context"), "method", "layer")
    ordered = sorted(groups, key=lambda key: (setup.methods.index(key[0]), int(key[1])))
    rows = tuple(
        (*key, *(_total(groups[key], context[key[0], layer], layer, setup.seed) for layer in layers)) for key in ordered
    )
    title = "Total contribution by relative place, of all that comes from others"
    return Table("neighbour", title, ("method", "group", *DEPTHS), rows, _TOTAL)


_TOTAL = "Summed over all tokens and divided by what comes from all other tokens in the layer. Intervals: texts are resampled."


def _total(neighbours: Sequence[Record], context: Sequence[Record], layer: int, seed: int) -> Interval:
    parts, wholes = _sums(select(neighbours, "neighbour", layer=layer)), _sums(context)
    return ratio_with_interval([parts.get(text, 0.0) for text in wholes], list(wholes.values()), seed=seed)


def _sums(records: Sequence[Record]) -> dict[str, float]:
    """The sum over positions of each text."""
    return {r.example: r.value * r.info["count"] for r in records}


def _at_depths(setup: Setup, metric: str, title: str, records: Sequence[Record], printed: bool) -> list[Table]:
    """A table of the first, middle and last layer."""
    group = select(records, metric)
    if not group:
        return []
    whole = per_layer(
        metric.replace(" ", "_"), title, group, ("method", "group"), seed=setup.seed, note="Mean over texts."
    )
    places = [whole.columns.index(f"layer {layer}") for layer in three_layers(depth_of(group))]
    rows = tuple((*row[:2], *(row[place] for place in places)) for row in _in_order(whole.rows))
    return [Table(whole.name, title, ("method", "group", *DEPTHS), rows, whole.note, printed)]


def _in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows by the number of their group, where it is one."""
    return sorted(rows, key=lambda row: (str(row[0]), int(row[1]) if row[1].lstrip("+-").isdigit() else 0))


# --- figure -----------------------------------------------------------------------------------------------------------------


def figure_context(setup: Setup, tables: list[Table], figure: Any) -> None:
    figure.set_size_inches(10, 7)
    draw_context(figure.subplots(2, 2).ravel(), setup, tables)


def draw_context(panels: Sequence[Any], setup: Setup, tables: Sequence[Table]) -> None:
    """Figures 4a, 4b, 18a and 18b in four panels."""
    named = {table.name: table for table in tables}
    first = tuple(row for row in named["distance"].rows if row[0] == setup.methods[0])
    lines(Table("", "", named["distance"].columns, first), panels[0], labels=2)
    for axes, (name, title) in zip(panels[1:], _PANELS.items(), strict=True):
        if name in named:
            _draw_places(axes, named[name], setup.methods[0])
        axes.set_title(title, fontsize=8)
    panels[0].set_ylabel("relative contribution of a group")
    panels[0].legend(fontsize=6)


_PANELS = {
    "neighbour": "total by relative place (Figure 4b)",
    "from_place": "what [CLS] takes by place (Figure 18a)",
    "around": "what [CLS] takes around the first [SEP] (Figure 18b)",
}


def _draw_places(axes: Any, table: Table, method: str) -> None:
    """A line for each of the three layers over relative places."""
    rows: Any = [row for row in table.rows if row[0] == method]
    for number, name in enumerate(DEPTHS, 2):
        axes.plot([int(row[1]) for row in rows], [row[number].mean for row in rows], marker=".", label=name)
    axes.set_xlabel("place")
    axes.legend(fontsize=6)


# --- the experiment -----------------------------------------------------------------------------------------------------------

CONTEXT_OPTIONS = {"reach": 10, "around": 10, "others": False}
DIFFERS_CONTEXT = (
    *DIFFERS_HTA,
    "Figures 4b and 18 are normalized, and the paper does not say by what. Here a total is divided by all that comes from "
    "other tokens in the layer (4b), and what [CLS] takes is a share of its row (18).",
    "Option others=true also gives the share of each group in all that comes from other tokens. The paper has no such table.",
)


def prepare_context(setup: Setup) -> None:
    for name in ("reach", "around"):
        if not isinstance(setup.options[name], int) or setup.options[name] < 1:
            raise InputError(f"{name}= is a number of tokens, 1 or more, not {setup.options[name]!r}.")


@experiment(
    name="id-context",
    paper=BRUNNER,
    shows="Figures 4, 18, 41, 43: the contribution of the context (section 5.3, C.2, C.3, D.2)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_context,
    figure=figure_context,
    takes="map",
    options=CONTEXT_OPTIONS,
    prepare=prepare_context,
    differs=DIFFERS_CONTEXT,
    claims=CONTEXT_CLAIMS,
)
def context(setup: Setup, example: Example) -> list[Record]:
    """From how far away does what a position takes from others come? And what does [CLS] take around [SEP]?"""
    trace = setup.model.trace(example)
    contributions = every_contribution(trace, setup)
    return [
        record for method, scores in contributions for record in context_records(setup, example, trace, method, scores)
    ]
