"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 5: how much of a hidden state comes from its
own token, from how far away the rest comes, and which parts of speech keep most of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..asking import MethodRequest, map_of, maps_of, parse_method
from ..data import span_tokens
from ..errors import InputError
from ..metrics.arguments import Array, array, tags_at
from ..metrics.mixing_stats import BRUNNER, not_own_top, own_share, share_around, share_by_distance
from ..metrics.mixing_stats import DISTANCES as GROUPS
from ..types import Example, Map, Record, Trace
from .experiment import Setup, experiment
from .globenc import lines, mean_of, per_layer, reach_of
from .tables import Table, by


def contributions(trace: Trace, method: str) -> Map:
    """From the input to every layer's output: HTA as it is, other maps rolled out as their papers do, or as is said."""
    return rolled_out(map_of(trace, method), parse_method(method))


def rolled_out(scores: Map, request: MethodRequest) -> Map:
    return scores.rollout(request.rollout)


def every_contribution(trace: Trace, setup: Setup) -> Iterator[tuple[str, Map]]:
    """`contributions` of every method, one after the other."""
    for method, scores in maps_of(trace, setup.requests).items():
        yield method, rolled_out(scores, setup.requests[method])


MIXING = ("own share", "not own top")


def _positions(example: Example, method: str, scores: Map, tags: Sequence[str | None] | None = None) -> list[Record]:
    """One record for every position and layer: own share, and whether another token contributes more."""
    records = []
    for metric, values in zip(MIXING, (own_share(scores), not_own_top(scores)), strict=True):
        for i, row in enumerate(values, 1):
            for place, value in enumerate(row):
                tag = None if tags is None else tags[place]
                if tags is None or tag is not None:
                    info = {"layer": i} if tags is None else {"layer": i, "tag": tag}
                    records.append(Record(str(example.id), method, metric, float(value), info))
    return records


def finish_mixing(setup: Setup, records: list[Record]) -> list[Table]:
    title = "A position's own token: its share, and how often another contributes more"
    return [per_layer("mixing", title, records, ("method", "metric"), seed=setup.seed, note=_TOKENS)]


_TOKENS = "Mean over all positions. Intervals: texts are resampled, not positions."


def figure_mixing(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, metric in zip(figure.subplots(1, 2), MIXING, strict=True):
        lines(Table(whole.name, whole.title, whole.columns, tuple(row for row in whole.rows if row[1] == metric)), axes)
        axes.set_ylim(0, 1)
        axes.set_title(metric)
    axes.legend()


@experiment(
    name="id-mixing",
    paper=BRUNNER,
    shows="Figures of the own token's contribution (section 5.1)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_mixing,
    figure=figure_mixing,
    takes="map",
)
def own_token(setup: Setup, example: Example) -> list[Record]:
    """How much of a hidden state comes from its own input token, and how often does another token contribute more?"""
    trace = setup.model.trace(example)
    return [r for method, scores in every_contribution(trace, setup) for r in _positions(example, method, scores)]


def group_name(first: int, last: int | None) -> str:
    return f"{first}+" if last is None else str(first) if first == last else f"{first}-{last}"


def finish_context(setup: Setup, records: list[Record]) -> list[Table]:
    names = {"distance": "By distance, of what comes from others", "neighbour": "By place relative to the position, of the row"}
    names["around"] = "Around the first [SEP], of the row of the first token"
    some = {metric: [r for r in records if r.metric == metric] for metric in names}
    return [
        per_layer(metric, title, some[metric], ("method", "group"), seed=setup.seed, note=_TEXTS)
        for metric, title in names.items()
        if some[metric]
    ]


_TEXTS = "Mean over a text's positions, then over texts."


def figure_context(setup: Setup, tables: list[Table], figure: Any) -> None:
    for axes, table in zip(np.atleast_1d(figure.subplots(1, len(tables))), tables, strict=True):
        lines(table, axes, labels=2)
        axes.set_title(table.name)
        axes.legend(fontsize=5)


def prepare_context(setup: Setup) -> None:
    for name in ("reach", "around"):
        if not isinstance(setup.options[name], int) or setup.options[name] < 1:
            raise InputError(f"{name}= is a number of tokens, 1 or more, not {setup.options[name]!r}.")


@experiment(
    name="id-context",
    paper=BRUNNER,
    shows="Figures of the contribution of the context (section 5.2)",
    data="agreement",
    model="agreement",
    methods=("hta",),
    finish=finish_context,
    figure=figure_context,
    takes="map",
    options={"reach": 3, "around": 5},
    prepare=prepare_context,
)
def context(setup: Setup, example: Example) -> list[Record]:
    """From how far away does what a position takes from others come? And what does [CLS] take around [SEP]?"""
    trace = setup.model.trace(example)
    records: list[Record] = []
    for method, scores in every_contribution(trace, setup):
        distance = share_by_distance(scores)
        for g, group in enumerate(GROUPS):
            records += _layers(example, method, "distance", group_name(*group), distance[..., g])
        for offset, values in neighbours(scores, reach=setup.options["reach"]).items():
            records += _layers(example, method, "neighbour", f"{offset:+d}", values)
        if any(trace.special[1:]):
            reach = setup.options["around"]
            shares = share_around(scores, reach=reach)
            for offset in range(-reach, reach + 1):
                records += _layers(example, method, "around", f"{offset:+d}", shares[:, [offset + reach]])
    return records


def neighbours(scores: Map, *, reach: int) -> dict[int, Array]:
    """For each offset -reach to reach but 0, [layer pos]: the share of the token that far to the right in a position's row."""
    rows = array(scores, "scores", 3)
    total = rows.sum(-1)
    shares = {}
    for offset in (*range(-reach, 0), *range(1, reach + 1)):
        diagonal = np.diagonal(rows, offset, axis1=-2, axis2=-1)
        sums = total[:, max(0, -offset) : total.shape[-1] - max(0, offset)]
        shares[offset] = np.where(sums == 0, np.nan, diagonal / np.where(sums == 0, 1, sums))
    return shares


def _layers(example: Example, method: str, metric: str, group: str, values: Array) -> list[Record]:
    """The mean over positions of [layer pos], one record for each layer; none where the text has no such position."""
    means = [mean_of(row)[0] if row.size else np.nan for row in values]
    return [
        Record(str(example.id), method, metric, value, {"layer": i, "group": group})
        for i, value in enumerate(means, 1)
        if not np.isnan(value)
    ]


def finish_pos(setup: Setup, records: list[Record]) -> list[Table]:
    titles = {"own share": "Share of the own token", "not own top": "Positions to which another token contributes more"}
    tables = []
    for metric, title in titles.items():
        some = sorted((r for r in records if r.metric == metric), key=lambda r: str(r.info["tag"]))
        tables.append(
            per_layer(
                metric.replace(" ", "_"), f"{title}, by part of speech", some, ("method", "tag"), seed=setup.seed, note=_TOKENS
            )
        )
    counts = by([r for r in records if r.metric == MIXING[0] and r.info["layer"] == 1], "method", "tag")
    rows = tuple((tag, len(some)) for (method, tag), some in sorted(counts.items(), key=str) if method == setup.methods[0])
    return [*tables, Table("counts", "Tokens of each part of speech", ("tag", "tokens"), rows)]


def figure_pos(setup: Setup, tables: list[Table], figure: Any) -> None:
    axes, table = figure.subplots(), tables[1]
    last: list[Any] = [(row[1], row[-1]) for row in table.rows if row[0] == setup.methods[0]]
    last.sort(key=lambda pair: pair[1].mean)
    intervals = [interval for _, interval in last]
    axes.barh([tag for tag, _ in last], [interval.mean for interval in intervals], xerr=reach_of(intervals))
    axes.set_xlabel("another token contributes more (last layer)")


@experiment(
    name="id-pos",
    paper=BRUNNER,
    shows="Figure of the own token's contribution by part of speech (section 5.1)",
    data="ud_english",
    model="agreement",
    methods=("hta",),
    finish=finish_pos,
    figure=figure_pos,
    needs=("pos",),
    takes="map",
)
def parts_of_speech(setup: Setup, example: Example) -> list[Record]:
    """Which parts of speech keep most of their own token, and which take most from others?"""
    trace = setup.model.trace(example)
    tags = tags_of(example, trace)
    return [r for method, scores in every_contribution(trace, setup) for r in _positions(example, method, scores, tags)]


def tags_of(example: Example, trace: Trace) -> tuple[str | None, ...]:
    """[pos]: the gold part of speech of each token; "special" for special tokens; None where there is no gold token."""
    spans: dict[str, list[Any]] = {}
    for start, end, tag in example.info["pos"]:
        spans.setdefault(tag, []).append((start, end))
    tags = tags_at({tag: span_tokens(some, trace) for tag, some in spans.items()}, len(trace))
    return tuple("special" if special else tag for tag, special in zip(tags, trace.special, strict=True))
