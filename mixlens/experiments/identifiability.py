"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020): how much of attention its output can tell, and which
token a hidden state still is. How much of a hidden state came from other tokens: see `identifiability_mixing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from ..asking import maps_of, parse_method
from ..errors import InputError
from ..metrics.arguments import array, one_of
from ..metrics.intervals import Interval
from ..metrics.mixing_stats import BRUNNER
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
from ..types import Example, Map, Record
from .experiment import Setup, experiment
from .globenc import lines, mean_of, per_layer, reach_of
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
        left.errorbar(range(len(some)), [r[3].mean for r in some], yerr=reach_of([r[3] for r in some]), marker=".", label=method)
        left.set_xticks(range(len(some)), [r[2] for r in some])
    left.set_xlabel("tokens")
    left.set_ylabel("Pearson of raw and effective attention")
    left.legend()
    lines(tables[1], right, labels=2)
    right.legend(fontsize=6)


def prepare_effective(setup: Setup) -> None:
    for written, request in setup.requests.items():
        if request.name != "effective_attention":
            raise InputError(f"{written!r}: raw attention is compared with effective_attention (or its variant=paper) alone.")
    edges = setup.options["edges"]
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"edges= are two or more rising lengths, such as {EDGES}, not {edges!r}.")


@experiment(
    name="id-effective-attention",
    paper=BRUNNER,
    shows="Figures of raw and effective attention (sections 3.4, 3.5, A.2)",
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
    maps = maps_of(trace, {"attention": parse_method("attention"), **setup.requests})
    records = _received(example, maps["attention"], "attention", types)
    for method, request in setup.requests.items():
        compared = raw_against_effective(trace, variant=request.variant or "released")
        scores = maps[method]
        values = {
            "pearson pooled": compared.pooled,
            "pearson by head": mean_of(compared.per_head)[0],
            "null dimension": float(array(scores.info["null_dimension"], "null dimension", 2).mean()),
        }
        records += [Record(str(example.id), method, metric, value, {"n": len(trace)}) for metric, value in values.items()]
        records += _received(example, scores, method, types)
    return records


def _received(example: Example, scores: Map, method: str, types: Sequence[str]) -> list[Record]:
    return [
        Record(str(example.id), method, "received", float(value), {"type": name, "layer": i})
        for name, values in received_by_type(scores, types=types).items()
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
    training: dict[str, Any] = {"folds": options["folds"], "training": Training(epochs=options["epochs"]), "seed": setup.seed}
    for kind, distance in product(options["kinds"], options["distances"]):
        question = {"kind": kind, "distance": distance, **training}
        for number, offset in product(numbers, (0, *options["offsets"])):
            key = f"{kind}/{distance}/{number}/{offset}"
            if key not in setup.done:
                identified = token_identifiability(hidden[number], inputs, offset=offset, **question)
                place = {"layer": number, "offset": offset} if offset else {"layer": number}
                yield key, [_record_of(identified, kind, "neighbour" if offset else "identified", distance, **place)]
        key = f"{kind}/{distance}/across"
        if options["across"] and kind != "naive" and key not in setup.done:
            rows = identifiability_across_layers([hidden[number] for number in numbers], inputs, **question)
            cells = [(n, m, one) for n, row in zip(numbers, rows, strict=True) for m, one in zip(numbers, row, strict=True)]
            yield key, [_record_of(one, kind, "across", distance, layer=tested, trained=n) for n, tested, one in cells]


def _record_of(identified: Identified, kind: str, metric: str, distance: str, **place: Any) -> Record:
    rate = identified.rate
    low, high, std = (None if np.isnan(value) else value for value in (rate.low, rate.high, rate.std))
    info = {"distance": distance, "low": low, "high": high, "std": std, "texts": rate.n, "folds": list(identified.by_fold)}
    return Record("all", kind, metric, rate.mean, {**info, **place})
