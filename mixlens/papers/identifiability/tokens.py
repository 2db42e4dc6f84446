"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 4: which token is a hidden state
still?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np
from torch import Tensor

from ...base.errors import InputError
from ...metrics.arguments import one_of
from ...metrics.intervals import Interval
from ...metrics.token_identity import (
    DISTANCES,
    KINDS,
    Identified,
    Search,
    Texts,
    identifiability_across_layers,
    identified_rates,
    input_vectors,
    side_by_side,
)
from ...metrics.token_training import RATES, Training
from ...model.model import Model
from ...runs.experiments.claims import (
    Claim,
    Measured,
    Published,
    Rule,
    Values,
    Verdict,
    incomparable,
    mean_over,
    positive,
)
from ...runs.experiments.experiment import Setup
from ...runs.experiments.tables import Table, by
from ...types import Example, Record
from .values import IN_FIGURE, Rows, almost_equal, depth_of, evaluation, of_twelve, select

Units = Iterator[tuple[str, list[Record]]]
# Options of every experiment that trains a g.
TRAINED: dict[str, Any] = {"rate": 1e-4, "search": False, "epochs": None, "embedding": "sum"}
DIFFERS_TRAINED = (
    "The folds are random splits of the texts into 70, 15 and 15 %, so that test sets overlap; the paper does not say "
    "how its 10 folds make these shares.",
    "The input vectors are the sums of word, position and segment embeddings (section 2); option embedding names "
    "others.",
    "The paper searched the learning rate and names 0.0001. Option search=true searches its seven rates on the "
    "validation texts.",
)


# --- states and options, for every experiment that trains a g ---------------------------------------------------------


@dataclass(frozen=True)
class States:
    """The input vectors and the hidden states of every text: [pos d] each. Layer 0 is what enters the first layer."""

    inputs: list[Tensor]
    hidden: list[list[Tensor]]  # by text, then by layer

    def layer(self, number: int) -> list[Tensor]:
        return [text[number] for text in self.hidden]


def states_of(model: Model, examples: Sequence[Example], embedding: str) -> States:
    """One forward pass for each text."""
    traces = (model.trace(example) for example in examples)
    both = [(input_vectors(trace, embedding=embedding), list(trace.hidden_states)) for trace in traces]
    return States([inputs for inputs, _ in both], [hidden for _, hidden in both])


def training_of(setup: Setup) -> dict[str, Any]:
    """The arguments of the metrics that train a g."""
    options = setup.options
    training = Training(rate=options["rate"], epochs=options["epochs"], rates=RATES if options["search"] else ())
    return {"folds": options["folds"], "training": training, "seed": setup.seed}


def prepare_kinds(setup: Setup) -> None:
    """Refuse unknown kinds of g, unknown distances, layers that the model does not have, and too few texts."""
    options, depth = setup.options, setup.model.n_layers
    for option, known in (("kinds", KINDS), ("distances", DISTANCES)):
        if isinstance(options[option], str) or not options[option]:
            raise InputError(f"{option}= is a list of some of {', '.join(known)}, not {options[option]!r}.")
        for name in options[option]:
            one_of(option, name, known)
    for layer in options.get("layers") or ():
        if not 0 <= layer <= depth:
            raise InputError(
                f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output)."
            )
    if len(setup.examples) < 7 and set(options["kinds"]) - {"naive"}:
        raise InputError(f"{len(setup.examples)} texts cannot be split to train, stop and test a g. Give at least 7.")


def identified_units(
    setup: Setup, kind: str, distance: str, trials: Mapping[str, tuple[Search, Any]], parts: Sequence[str] = ("test",)
) -> Iterator[tuple[str, Any, Sequence[Identified]]]:
    """(key, what is said of its place, the rate of each part of the texts) of the trials that are not done. A GPU
    trains their g side by side; elsewhere they are measured one after the other."""
    left = [(key, *trial) for key, trial in trials.items() if key not in setup.done]
    question: dict[str, Any] = {"kind": kind, "distance": distance, "parts": parts, **training_of(setup)}
    for some in portions(left, left[0][1].hidden if left else []):
        found = identified_rates([search for _, search, _ in some], **question)
        for (key, _, place), rates in zip(some, found, strict=True):
            yield key, place, rates


def rate_units(setup: Setup, kind: str, distance: str, trials: Mapping[str, tuple[Search, dict[str, Any]]]) -> Units:
    """One rate of each trial, beside whose search stands the metric and the place of its record."""
    for key, place, (found,) in identified_units(setup, kind, distance, trials):
        yield key, [record_of(found, kind, distance=distance, **place)]


def across_records(
    setup: Setup, states: States, layers: Sequence[int], trained: Sequence[int], kind: str, distance: str
) -> list[list[Record]]:
    """What the g of each trained layer identifies in all layers."""
    question: dict[str, Any] = {"kind": kind, "distance": distance, "trained": [layers.index(one) for one in trained]}
    every = [states.layer(layer) for layer in layers]
    rows = identifiability_across_layers(every, states.inputs, **question, **training_of(setup))
    return [
        [record_of(one, kind, "across", distance, layer=n, trained=m) for n, one in zip(layers, row, strict=True)]
        for m, row in zip(trained, rows, strict=True)
    ]


def portions(left: Sequence[Any], texts: Texts) -> list[Sequence[Any]]:
    """What is trained at once: everything where g are trained side by side, else one after the other."""
    return [left] if left and side_by_side(texts) else [[one] for one in left]


def record_of(identified: Identified, kind: str, metric: str, distance: str, **place: Any) -> Record:
    """One rate. The rate of each text is in `by_text`, the epochs of each training in `epochs`."""
    rate = identified.rate
    low, high, std = (None if np.isnan(value) else value for value in (rate.low, rate.high, rate.std))
    info: dict[str, Any] = {"distance": distance, "low": low, "high": high, "std": std, "texts": rate.n}
    info |= {"folds": list(identified.by_fold), "by_text": [list(row) for row in identified.by_text]}
    return Record("all", kind, metric, rate.mean, {**info, "epochs": list(identified.epochs), **place})


# --- tables and figure ------------------------------------------------------------------------------------------------


def interval_of(record: Record) -> Interval:
    low, high, std = (np.nan if record.info[name] is None else record.info[name] for name in ("low", "high", "std"))
    return Interval(record.value, low, high, int(record.info["texts"]), std)


def rate_table(name: str, title: str, records: Sequence[Record], fields: Sequence[str]) -> Table:
    """The records of one metric: a row for each group, a column for each layer."""
    layers, rows = sorted({int(r.info["layer"]) for r in records}), Rows()
    for key, group in by(records, *fields).items():
        found = {int(r.info["layer"]): interval_of(r) for r in group}
        rows.append((*key, *map(found.get, layers)))
    first = "Layer 0 is what enters the first layer. " if 0 in layers else ""
    note = f"{first}Intervals: texts are resampled, not tokens."
    return Table(name, title, (*fields, *(f"layer {layer}" for layer in layers)), tuple(rows), note)


def epochs_table(records: Sequence[Record]) -> list[Table]:
    """How long the trainings took: the paper stops after 20 epochs without improvement and has no other limit. The same
    g is also tested on other layers and on its training texts: that is no further training."""
    trained = [r for r in records if r.info.get("epochs") and r.metric not in ("train", "gap")]
    trained = [r for r in trained if r.info.get("trained", r.info["layer"]) == r.info["layer"]]
    rows = Rows()
    for key, group in by(trained, "method", "distance").items():
        epochs = [n for r in group for n in r.info["epochs"]]
        rows.append((*key, len(epochs), min(epochs), float(np.median(epochs)), max(epochs)))
    columns = ("method", "distance", "trainings", "fewest", "median", "most")
    return [Table("epochs", "Epochs of training", columns, tuple(rows))] if rows else []


def finish_rates(
    name: str, title: str, metrics: Sequence[str], fields: Sequence[str], more: Callable[..., Table] | None = None
) -> Callable[[Setup, list[Record]], list[Table]]:
    """The tables of an experiment that trains a g: its rates, what else it has to show, and the epochs."""

    def finish(setup: Setup, records: list[Record]) -> list[Table]:
        rates = rate_table(name, title, [r for r in records if r.metric in metrics], fields)
        return [rates, *([more(setup, records)] if more else []), *epochs_table(records)]

    return finish


def finish_tokens(setup: Setup, records: list[Record]) -> list[Table]:
    """The last layer, and chance, are what the paper gives in numbers: they are printed beside the paper's."""
    tables = []
    for metric, title, fields in (
        ("identified", "Share of tokens identified", ()),
        ("neighbour", "Share of neighbours identified", ("offset",)),
        ("across", "Share of tokens identified in a layer by a g trained on another", ("trained",)),
    ):
        group = select(records, metric)
        if group or metric == "identified":
            tables.append(rate_table(metric, title, group, ("method", "distance", *fields)))
    identified = select(records, "identified")
    at_last = select(identified, "identified", layer=depth_of(identified))
    last = tuple((f"{r.method}, {r.info['distance']}", interval_of(r)) for r in at_last)
    chance = tuple(("1 / mean length", r.value) for r in select(records, "chance"))
    return [
        *tables,
        Table("last", "Share of tokens identified, last layer", ("g", "last layer"), last, printed=False),
        Table("chance", "Share that a guess finds", ("guess", "chance"), chance, printed=False),
        *epochs_table(records),
    ]


def layers_in(table: Table) -> list[int]:
    """The layers that have a column."""
    return [int(name.removeprefix("layer ")) for name in table.columns if name.startswith("layer ")]


def draw_rates(axes: Any, table: Table, names: int) -> None:
    """A line over layers for each row; its first `names` cells are its name. L2 is dotted."""
    layers, rows = layers_in(table), table.rows
    for row in rows:
        cells = [getattr(cell, "mean", np.nan) for cell in row[-len(layers) :]]
        style = "-" if "cosine" in row else ":"
        axes.plot(layers, cells, marker=".", linestyle=style, label=", ".join(map(str, row[:names])))
    axes.set_xlabel("layer")
    axes.set_ylabel("share of tokens identified")
    axes.legend(fontsize=6)


def figure_tokens(setup: Setup, tables: list[Table], figure: Any) -> None:
    drawn = [table for table in tables if layers_in(table)]
    figure.set_size_inches(5 * len(drawn) + 2, 4)
    for axes, table in zip(np.atleast_1d(figure.subplots(1, len(drawn))), drawn, strict=True):
        draw_rates(axes, table, len(table.columns) - len(layers_in(table)))
        axes.set_title(table.title, fontsize=7)


# --- claims -----------------------------------------------------------------------------------------------------------


class Rates(dict[tuple[Any, ...], Values]):
    """(kind, distance, layer, fields) -> the rate of each text."""

    depth = 0


def rates_of(run: Measured, metric: str, *fields: str) -> Rates:
    """The share of tokens identified in each text that was tested, by trainings that the validation texts stopped, as
    in the paper. Option epochs= may cut others short."""
    cap, rates, every = run.setup.options.get("epochs"), Rates(), select(run.records, metric)
    rates.depth = depth_of(every)
    for r in every:
        if cap is None or cap not in r.info.get("epochs", ()):
            place = (r.method, r.info["distance"], r.info["layer"], *(r.info.get(name) for name in fields))
            rates[place] = Values({str(text): hits / total for text, hits, total in r.info["by_text"] if total})
    return rates


def by_rates(metric: str, *fields: str) -> Callable[..., Rule]:
    """What makes a rule of contrasts of rates (by default: all are above 0). What a contrast compares may be missing:
    it was not run, or its training was cut short."""

    def with_rule(contrasts: Callable[[Rates], Mapping[str, Any]], judged: Callable[..., Verdict] = positive) -> Rule:
        def rule(run: Measured) -> Verdict:
            try:
                return judged(contrasts(rates_of(run, metric, *fields)), seed=run.setup.seed)
            except KeyError as missing:
                key, cap = missing.args[0], run.setup.options.get("epochs")
                named = f"{key:.0%} of the training texts" if isinstance(key, float) else str(key)
                if isinstance(key, tuple):
                    named = f"{key[0]} g by {key[1]}, layer {key[2]}"
                return incomparable(f"not run: {named}" + ("" if cap is None else f", or cut short by epochs={cap}"))

        return rule

    return with_rule


def cosine_above_l2(rates: Rates) -> dict[str, Values]:
    last = {kind: [rates.get((kind, d, rates.depth)) for d in ("cosine", "l2")] for kind in ("linear", "mlp")}
    found = {f"{kind}: cosine - l2, last layer": one - two for kind, (one, two) in last.items() if one and two}
    if not found:
        raise KeyError("linear or mlp by both distances")
    return found


def naive_falls_late(rates: Rates) -> dict[str, Values]:
    """The fall per layer behind the first third of the layers (layer 4 of 12) less that within it; where that is layer
    1, from the input, which is found."""
    depth, turn, falls = rates.depth, of_twelve(4, rates.depth), {}
    for d in ("cosine", "l2"):
        first, middle, last = (rates["naive", d, layer] for layer in (1, turn, depth))
        if turn == 1:
            first = Values(dict.fromkeys(middle, 1.0))
        before, behind = (first - middle) * (1 / max(1, turn - 1)), (middle - last) * (1 / (depth - turn))
        falls[f"{d}: fall per layer behind layer {turn} - up to it"] = behind - before
    return falls


def cosine_kinds_equal(run: Measured) -> Verdict:
    rates = rates_of(run, "identified")
    layers = sorted(
        key[2] for key in rates if key[:2] == ("linear", "cosine") and ("mlp", *key[1:]) in rates and key[2]
    )
    differences = {f"mlp - linear, layer {i}": rates["mlp", "cosine", i] - rates["linear", "cosine", i] for i in layers}
    if not differences:
        return incomparable("not run: linear and mlp by cosine")
    return almost_equal(differences, seed=run.setup.seed)


def naive_means(rates: Rates, *place: Any) -> dict[str, Values]:
    """Without a g: cosine less L2, mean over layers."""
    every = {d: [rates[("naive", d, layer, *place)] for layer in range(1, rates.depth + 1)] for d in ("cosine", "l2")}
    return {"naive: cosine - l2, mean over layers": mean_over(every["cosine"]) - mean_over(every["l2"])}


AT_D1 = {"cola": "D.1.1, Figure 38", "mnli": "D.1.2, Figure 39"}  # "in line with those for MRPC"
MRPC_ALONE: dict[str, str | None] = {"cola": None, "mnli": None}
of_identified = by_rates("identified")
_OF_FIGURE_2A: tuple[tuple[str, str, Rule], ...] = (
    (
        "a linear g finds most tokens in the last layer by cosine",
        "0.93",
        of_identified(lambda r: {"linear, cosine, last layer, less one half": r["linear", "cosine", r.depth] - 0.5}),
    ),
    (
        "a trained g finds more than none (here: the linear one, by cosine, in the last layer): most of the identity "
        "is still there",
        "0.93 against the naive curve",
        of_identified(
            lambda r: {"linear - naive, last layer": r["linear", "cosine", r.depth] - r["naive", "cosine", r.depth]}
        ),
    ),
    (
        "the rate decreases with depth: lower in the last layer than in the first",
        IN_FIGURE,
        of_identified(lambda r: {"first - last layer": r["linear", "cosine", 1] - r["linear", "cosine", r.depth]}),
    ),
    (
        "without a g, by both distances, states stay near their input up to layer 4 of 12 (the first third), then the "
        "rate falls (read here as: more per layer than before; that the fall is linear is not judged)",
        IN_FIGURE,
        of_identified(naive_falls_late),
    ),
    ("with a trained g, cosine finds more than L2 in the last layer", IN_FIGURE, of_identified(cosine_above_l2)),
    ("without a g, cosine finds more than L2 (mean over layers)", IN_FIGURE, of_identified(naive_means)),
)


# --- the experiment of Figure 2a --------------------------------------------------------------------------------------


@evaluation(
    name="id-token-identifiability",
    shows="Figures 2a, 38, 39: token identifiability (section 4, D.1)",
    finish=finish_tokens,
    figure=figure_tokens,
    whole=True,
    options={
        **{"kinds": KINDS, "distances": DISTANCES, "layers": None, "folds": 10},
        **{**TRAINED, "offsets": (), "across": False},
    },
    prepare=prepare_kinds,
    differs=DIFFERS_TRAINED,
    claims=(
        *(Claim("4.2, Figure 2a", *claim, AT_D1) for claim in _OF_FIGURE_2A),
        Claim(
            "B.2",
            "by cosine, linear and MLP do almost equally well (read here as: within 0.05)",
            "no numbers",
            cosine_kinds_equal,
            MRPC_ALONE,
        ),
    ),
    published=(
        Published("4.2, Figure 2a", "BERT, MRPC", "last layer", {"linear, cosine": "0.93"}, table="last"),
        Published("D.1", "MRPC", "chance", {"1 / mean length": "0.017"}, table="chance"),
        Published("D.1", "CoLA", "chance", {"1 / mean length": "0.09"}, table="chance"),
        Published("D.1", "MNLI", "chance", {"1 / mean length": "0.026"}, table="chance"),
    ),
)
def token_identities(setup: Setup, examples: list[Example]) -> Units:
    """In how many positions is the nearest input token of the text the position's own? As it is, or seen by a trained g."""  # noqa: E501, RUF100
    options, states = setup.options, states_of(setup.model, examples, setup.options["embedding"])
    layers = list(range(setup.model.n_layers + 1)) if options["layers"] is None else list(options["layers"])
    if "chance" not in setup.done:  # 1 / d_s for d_s the mean length of a text (D.1)
        yield "chance", [Record("all", "chance", "chance", len(states.inputs) / sum(map(len, states.inputs)), {})]
    for kind, distance in product(options["kinds"], options["distances"]):
        trials = {}
        for layer, offset in product(layers, (0, *options["offsets"])):
            place = {"metric": "identified", "layer": layer}
            if offset:
                place |= {"metric": "neighbour", "offset": offset}
            search = Search(states.layer(layer), states.inputs, offset)
            trials[f"{kind}/{distance}/{layer}/{offset}"] = search, place
        yield from rate_units(setup, kind, distance, trials)
        key = f"{kind}/{distance}/across"
        if options["across"] and kind != "naive" and key not in setup.done:
            yield key, [*chain.from_iterable(across_records(setup, states, layers, layers, kind, distance))]
