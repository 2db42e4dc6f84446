"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020): what attention cannot be read off, which token a
hidden state still is, and how much of it came from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..data import span_tokens
from ..errors import InputError
from ..metrics.arguments import Array, array, one_of, tags_at
from ..metrics.intervals import Interval
from ..metrics.mixing_stats import BRUNNER, not_own_top, own_share, share_around, share_by_distance
from ..metrics.mixing_stats import DISTANCES as GROUPS
from ..metrics.raw_and_effective import by_length, raw_against_effective, received_by_type, token_types
from ..metrics.token_identity import (
    DISTANCES,
    KINDS,
    Identified,
    Training,
    identifiability_across_layers,
    input_vectors,
    token_identifiability,
)
from ..types import Example, Map, Record, Trace
from .experiment import Setup, asked, experiment, map_of
from .globenc import lines, mean_of, per_layer
from .tables import Table, by

# --- raw against effective attention ------------------------------------------------------------------------------------

EDGES = (0, 16, 32, 64, 128, 256, 513)


def finish_effective(setup: Setup, records: list[Record]) -> list[Table]:
    edges = setup.options["edges"]
    rows: list[tuple[Any, ...]] = []
    for (method, metric), some in by([r for r in records if "n" in r.info], "method", "metric").items():
        lengths = [int(r.info["n"]) for r in some]
        for (low, high), value in by_length([r.value for r in some], lengths, edges=edges, seed=setup.seed).items():
            rows.append((method, metric, f"{low}-{high - 1}", value))
    length = Table("length", "Raw against effective attention by length", ("method", "metric", "tokens", "value"), tuple(rows))
    received = [r for r in records if r.metric == "received"]
    types = per_layer(
        "types", "What positions give to all tokens of a type", received, ("method", "type"), seed=setup.seed, note=_TYPES
    )
    return [length, types]


_TYPES = "Mean over positions, then over texts. Raw attention adds up to 1 over the types; effective attention need not."


def figure_effective(setup: Setup, tables: list[Table], figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    pooled: list[Any] = [row for row in tables[0].rows if row[1] == "pearson pooled"]
    for method in dict.fromkeys(row[0] for row in pooled):
        some = [row for row in pooled if row[0] == method]
        left.errorbar(range(len(some)), [r[3].mean for r in some], yerr=_reach([r[3] for r in some]), marker=".", label=method)
        left.set_xticks(range(len(some)), [r[2] for r in some])
    left.set_xlabel("tokens")
    left.set_ylabel("Pearson of raw and effective attention")
    left.legend()
    lines(tables[1], right, labels=2)
    right.legend(fontsize=6)


def _reach(intervals: Sequence[Interval]) -> Array:
    """[2 point]: how far an interval goes down and up; 0 where it is not known."""
    return np.nan_to_num([[i.mean - i.low for i in intervals], [i.high - i.mean for i in intervals]])


def prepare_effective(setup: Setup) -> None:
    for written in setup.methods:
        if asked(written).name != "effective_attention":
            raise InputError(f"{written!r}: raw attention is compared with effective_attention (or its variant=paper) alone.")
    edges = setup.options["edges"]
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"edges= are two or more rising lengths, such as {EDGES}, not {edges!r}.")


@experiment(
    name="id-effective-attention",
    paper=BRUNNER,
    shows="Figures of raw and effective attention (section 3.3)",
    data="agreement",
    model="agreement",
    methods=("effective_attention",),
    finish=finish_effective,
    figure=figure_effective,
    takes="map",
    options={"edges": EDGES},
    prepare=prepare_effective,
)
def effective_attention(setup: Setup, example: Example) -> list[Record]:
    """How much of attention can its output tell, the longer the text? And which tokens lose most by it?"""
    trace = setup.model.trace(example)
    types = token_types(trace)
    made = _received(example, map_of(trace, "attention"), "attention", types)
    for method in setup.methods:
        compared = raw_against_effective(trace, variant=asked(method).variant or "released")
        scores = map_of(trace, method)
        found = {
            "pearson pooled": compared.pooled,
            "pearson by head": mean_of(compared.per_head)[0],
            "null dimension": float(array(scores.info["null_dimension"], "null dimension", 2).mean()),
        }
        made += [Record(str(example.id), method, metric, value, {"n": len(trace)}) for metric, value in found.items()]
        made += _received(example, scores, method, types)
    return made


def _received(example: Example, scores: Map, method: str, types: Sequence[str]) -> list[Record]:
    found = received_by_type(scores, types=types)
    return [
        Record(str(example.id), method, "received", float(value), {"type": name, "layer": i})
        for name, values in found.items()
        for i, value in enumerate(values, 1)
    ]


# --- which token is it still? -------------------------------------------------------------------------------------------


def finish_tokens(setup: Setup, records: list[Record]) -> list[Table]:
    tables = [_identified("identified", "Share of tokens identified", records, ("method", "distance"))]
    if any(r.metric == "neighbour" for r in records):
        tables.append(_identified("neighbour", "Share of neighbours identified", records, ("method", "distance", "offset")))
    if any(r.metric == "across" for r in records):
        title = "Share of tokens identified in a layer by a g trained on another"
        tables.append(_identified("across", title, records, ("method", "distance", "trained")))
    return tables


def _identified(metric: str, title: str, records: Sequence[Record], fields: Sequence[str]) -> Table:
    some = [r for r in records if r.metric == metric]
    layers = sorted({int(r.info["layer"]) for r in some})
    rows: list[tuple[Any, ...]] = []
    for key, group in by(some, *fields).items():
        found = {int(r.info["layer"]): _interval(r) for r in group}
        rows.append((*key, *(found.get(layer) for layer in layers)))
    return Table(metric, title, (*fields, *(f"layer {layer}" for layer in layers)), tuple(rows), _FOLDS)


_FOLDS = "Layer 0 is what enters the first layer. Intervals: texts are resampled, not tokens."


def _interval(record: Record) -> Interval:
    low, high, std = (np.nan if record.info[name] is None else record.info[name] for name in ("low", "high", "std"))
    return Interval(record.value, low, high, int(record.info["texts"]), std)


def figure_tokens(setup: Setup, tables: list[Table], figure: Any) -> None:
    axes, table = figure.subplots(), tables[0]
    depth = sum(name.startswith("layer ") for name in table.columns)
    rows: Any = table.rows
    for row in rows:
        cells = [np.nan if cell is None else cell.mean for cell in row[-depth:]]
        named = [int(name.removeprefix("layer ")) for name in table.columns[-depth:]]
        axes.plot(named, cells, marker=".", linestyle="-" if row[1] == "cosine" else ":", label=f"{row[0]}, {row[1]}")
    axes.set_xlabel("layer")
    axes.set_ylabel("share of tokens identified")
    axes.legend()


def prepare_tokens(setup: Setup) -> None:
    options, depth = setup.options, setup.model.n_layers
    for name, known in (("kinds", KINDS), ("distances", DISTANCES)):
        if isinstance(options[name], str) or not options[name]:
            raise InputError(f"{name}= is a list of some of {', '.join(known)}, not {options[name]!r}.")
        for value in options[name]:
            one_of(name, value, known)
    for layer in options["layers"] or ():
        if not 0 <= layer <= depth:
            raise InputError(f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output).")
    if len(setup.examples) < 7 and set(options["kinds"]) - {"naive"}:
        raise InputError(f"{len(setup.examples)} texts cannot be split to train, stop and test a g. Give at least 7.")


@experiment(
    name="id-token-identifiability",
    paper=BRUNNER,
    shows="Figures of token identifiability (section 4)",
    data="agreement",
    model="agreement",
    methods=(),
    finish=finish_tokens,
    figure=figure_tokens,
    whole=True,
    options={
        "kinds": KINDS,
        "distances": DISTANCES,
        "layers": None,
        "folds": 10,
        "epochs": 500,
        "offsets": (),
        "across": False,
        "embedding": "sum",
    },
    prepare=prepare_tokens,
)
def token_identities(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """In how many positions is the nearest input token of the text the position's own? As it is, or seen by a trained g."""
    options = setup.options
    numbers = list(range(setup.model.n_layers + 1)) if options["layers"] is None else list(options["layers"])
    traces = [setup.model.trace(example) for example in examples]
    inputs = [input_vectors(trace, embedding=options["embedding"]) for trace in traces]
    hidden = {number: [trace.hidden_states[number] for trace in traces] for number in numbers}
    trained: dict[str, Any] = {"folds": options["folds"], "training": Training(epochs=options["epochs"]), "seed": setup.seed}
    for kind in options["kinds"]:
        for distance in options["distances"]:
            asked_of = {"kind": kind, "distance": distance, **trained}
            for number in numbers:
                for offset in (0, *options["offsets"]):
                    key = f"{kind}/{distance}/{number}/{offset}"
                    if key in setup.done:
                        continue
                    found = token_identifiability(hidden[number], inputs, offset=offset, **asked_of)
                    told = {"offset": offset} if offset else {}
                    yield key, [_told(found, kind, "neighbour" if offset else "identified", distance, layer=number, **told)]
            key = f"{kind}/{distance}/across"
            if options["across"] and kind != "naive" and key not in setup.done:
                rows = identifiability_across_layers([hidden[number] for number in numbers], inputs, **asked_of)
                yield (
                    key,
                    [
                        _told(one, kind, "across", distance, layer=tested, trained=number)
                        for number, row in zip(numbers, rows, strict=True)
                        for tested, one in zip(numbers, row, strict=True)
                    ],
                )


def _told(found: Identified, kind: str, metric: str, distance: str, **more: Any) -> Record:
    rate = found.rate
    low, high, std = (None if np.isnan(value) else value for value in (rate.low, rate.high, rate.std))
    told = {"distance": distance, "low": low, "high": high, "std": std, "texts": rate.n, "folds": list(found.by_fold)}
    return Record("all", kind, metric, rate.mean, {**told, **more})


# --- mixing: own token, distance, part of speech ------------------------------------------------------------------------


def contributions(trace: Trace, method: str) -> Map:
    """From the input to every layer's output: HTA as it is, other maps rolled out as their papers do, or as is said."""
    return map_of(trace, method).rollout(asked(method).rollout)


MIXING = ("own share", "not own top")


def _positions(example: Example, method: str, scores: Map, tags: Sequence[str | None] | None = None) -> list[Record]:
    """One record for every position and layer: own share, and whether another token contributes more."""
    made = []
    for metric, values in zip(MIXING, (own_share(scores), not_own_top(scores)), strict=True):
        for i, row in enumerate(values, 1):
            for place, value in enumerate(row):
                tag = None if tags is None else tags[place]
                if tags is None or tag is not None:
                    info = {"layer": i} if tags is None else {"layer": i, "tag": tag}
                    made.append(Record(str(example.id), method, metric, float(value), info))
    return made


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
    return [r for method in setup.methods for r in _positions(example, method, contributions(trace, method))]


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
    made: list[Record] = []
    for method in setup.methods:
        scores = contributions(trace, method)
        distance = share_by_distance(scores)
        for g, group in enumerate(GROUPS):
            made += _layers(example, method, "distance", group_name(*group), distance[..., g])
        for offset, values in neighbours(scores, reach=setup.options["reach"]).items():
            made += _layers(example, method, "neighbour", f"{offset:+d}", values)
        if any(trace.special[1:]):
            reach = setup.options["around"]
            shares = share_around(scores, reach=reach)
            for offset in range(-reach, reach + 1):
                made += _layers(example, method, "around", f"{offset:+d}", shares[:, [offset + reach]])
    return made


def neighbours(scores: Map, *, reach: int) -> dict[int, Array]:
    """For each offset -reach to reach but 0, [layer pos]: the share of the token that far to the right in a position's row."""
    made = array(scores, "scores", 3)
    total = made.sum(-1)
    found = {}
    for offset in (*range(-reach, 0), *range(1, reach + 1)):
        diagonal = np.diagonal(made, offset, axis1=-2, axis2=-1)
        rows = total[:, max(0, -offset) : total.shape[-1] - max(0, offset)]
        found[offset] = np.where(rows == 0, np.nan, diagonal / np.where(rows == 0, 1, rows))
    return found


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
    axes.barh([tag for tag, _ in last], [interval.mean for interval in intervals], xerr=_reach(intervals))
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
    return [r for method in setup.methods for r in _positions(example, method, contributions(trace, method), tags)]


def tags_of(example: Example, trace: Trace) -> tuple[str | None, ...]:
    """[pos]: the gold part of speech of each token; "special" for special tokens; None where there is no gold token."""
    spans: dict[str, list[Any]] = {}
    for start, end, tag in example.info["pos"]:
        spans.setdefault(tag, []).append((start, end))
    tags = tags_at({tag: span_tokens(some, trace) for tag, some in spans.items()}, len(trace))
    return tuple("special" if special else tag for tag, special in zip(tags, trace.special, strict=True))
