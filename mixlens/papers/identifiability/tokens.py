"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), section 4: which token is a hidden state still?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from ...base.errors import InputError
from ...metrics.arguments import one_of
from ...metrics.intervals import Interval
from ...metrics.mixing_stats import BRUNNER
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
from ...runs.experiments.claims import Published
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table, by
from ...types import Example, Record
from .token_claims import TOKEN_CLAIMS
from .values import depth_of, select

Units = Iterator[tuple[str, list[Record]]]
TRAINED: dict[str, Any] = {
    "rate": 1e-4,
    "search": False,
    "epochs": None,
    "embedding": "sum",
}  # options of every experiment that trains a g
DIFFERS_TRAINED = (
    "The folds are random splits of the texts into 70, 15 and 15 %, so that test sets overlap; the paper does not say how its 10 "
    "folds make these shares.",
    "The input vectors are the sums of word, position and segment embeddings (section 2); option embedding names others.",
    "The paper searched the learning rate and names 0.0001. Option search=true searches its seven rates on the validation texts.",
)


# --- states and options, for every experiment that trains a g ---------------------------------------------------------------


@dataclass(frozen=True)
class States:
    """The input vectors and the hidden states of every text: [pos d] each. Layer 0 is what enters the first layer."""

    inputs: list[Tensor]
    hidden: list[list[Tensor]]  # by text, then by layer

    def layer(self, number: int) -> list[Tensor]:
        return [text[number] for text in self.hidden]


def states_of(model: Model, examples: Sequence[Example], embedding: str) -> States:
    """One forward pass for each text."""
    inputs, hidden = [], []
    for example in examples:
        trace = model.trace(example)
        inputs.append(input_vectors(trace, embedding=embedding))
        hidden.append(list(trace.hidden_states))
    return States(inputs, hidden)


def training_of(setup: Setup) -> dict[str, Any]:
    """The arguments of the metrics that train a g."""
    options = setup.options
    training = Training(rate=options["rate"], epochs=options["epochs"], rates=RATES if options["search"] else ())
    return {"folds": options["folds"], "training": training, "seed": setup.seed}


def prepare_kinds(setup: Setup) -> None:
    """Refuse unknown kinds of g, unknown distances, layers that the model does not have, and too few texts."""
    options = setup.options
    _refuse_names("kinds", options["kinds"], KINDS)
    _refuse_names("distances", options["distances"], DISTANCES)
    _refuse_layers(options.get("layers") or (), setup.model.n_layers)
    if len(setup.examples) < 7 and set(options["kinds"]) - {"naive"}:
        raise InputError(f"{len(setup.examples)} texts cannot be split to train, stop and test a g. Give at least 7.")


def _refuse_names(option: str, names: Any, known: Sequence[str]) -> None:
    if isinstance(names, str) or not names:
        raise InputError(f"{option}= is a list of some of {', '.join(known)}, not {names!r}.")
    for name in names:
        one_of(option, name, known)


def _refuse_layers(layers: Sequence[int], depth: int) -> None:
    for layer in layers:
        if not 0 <= layer <= depth:
            raise InputError(
                f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output)."
            )


def missing(setup: Setup, units: Iterator[tuple[str, Callable[[], list[Record]]]]) -> Units:
    """The units of a run that are not done, measured one after the other."""
    for key, measure in units:
        if key not in setup.done:
            yield key, measure()


@dataclass(frozen=True)
class Trial:
    """A unit of a run that trains a g, and the records of the rates that come of it: one for each part of the texts."""

    key: str
    search: Search
    records: Callable[..., list[Record]]


def trial_units(
    setup: Setup, kind: str, distance: str, trials: Sequence[Trial], parts: Sequence[str] = ("test",)
) -> Units:
    """The trials that are not done. A GPU trains their g side by side; elsewhere they are measured one after the other."""
    left = [one for one in trials if one.key not in setup.done]
    question: dict[str, Any] = {"kind": kind, "distance": distance, "parts": parts, **training_of(setup)}
    for some in portions(left, left[0].search.hidden if left else []):
        for one, rates in zip(some, identified_rates([one.search for one in some], **question), strict=True):
            yield one.key, one.records(*rates)


def portions(left: Sequence[Any], texts: Texts) -> list[Sequence[Any]]:
    """What is trained at once: everything where g are trained side by side, else one after the other."""
    return [left] if left and side_by_side(texts) else [[one] for one in left]


def record_of(identified: Identified, kind: str, metric: str, distance: str, **place: Any) -> Record:
    """One rate. The rate of each text is in `by_text`, the epochs of each training in `epochs`."""
    rate = identified.rate
    low, high, std = (None if np.isnan(value) else value for value in (rate.low, rate.high, rate.std))
    info: dict[str, Any] = {
        "distance": distance,
        "low": low,
        "high": high,
        "std": std,
        "texts": rate.n,
        "folds": list(identified.by_fold),
    }
    info |= {"by_text": [list(row) for row in identified.by_text], "epochs": list(identified.epochs)}
    return Record("all", kind, metric, rate.mean, {**info, **place})


def chance_of(states: States) -> Record:
    """1 / d_s for d_s the mean length of a text (D.1)."""
    return Record("all", "chance", "chance", len(states.inputs) / sum(map(len, states.inputs)), {})


# --- tables -----------------------------------------------------------------------------------------------------------------


def rate_table(name: str, title: str, records: Sequence[Record], fields: Sequence[str]) -> Table:
    """The records of one metric: a row for each group, a column for each layer."""
    layers = sorted({int(r.info["layer"]) for r in records})
    rows = tuple((*key, *_cells(group, layers)) for key, group in by(records, *fields).items())
    return Table(name, title, (*fields, *(f"layer {layer}" for layer in layers)), rows, _note(layers))


def _cells(records: Sequence[Record], layers: Sequence[int]) -> list[Interval | None]:
    found = {int(r.info["layer"]): interval_of(r) for r in records}
    return [found.get(layer) for layer in layers]


def _note(layers: Sequence[int]) -> str:
    first = "Layer 0 is what enters the first layer. " if 0 in layers else ""
    return f"{first}Intervals: texts are resampled, not tokens."


def interval_of(record: Record) -> Interval:
    low, high, std = (np.nan if record.info[name] is None else record.info[name] for name in ("low", "high", "std"))
    return Interval(record.value, low, high, int(record.info["texts"]), std)


def of_metric(metric: str, records: Sequence[Record]) -> list[Record]:
    return select(records, metric)


def epochs_table(records: Sequence[Record]) -> list[Table]:
    """How long the trainings took: the paper stops after 20 epochs without improvement and has no other limit."""
    trained = [r for r in records if r.info.get("epochs") and _counts(r)]
    rows = tuple((*key, *_spread(group)) for key, group in by(trained, "method", "distance").items())
    columns = ("method", "distance", "trainings", "fewest", "median", "most")
    return [Table("epochs", "Epochs of training", columns, rows)] if rows else []


def _counts(record: Record) -> bool:
    """Whether a record stands for its training: the same g is also tested on other layers and on its training texts."""
    return (
        record.metric not in ("train", "gap")
        and record.info.get("trained", record.info["layer"]) == record.info["layer"]
    )


def _spread(records: Sequence[Record]) -> tuple[int, int, float, int]:
    """How many trainings, and their fewest, median and most epochs."""
    epochs = [n for r in records for n in r.info["epochs"]]
    return len(epochs), min(epochs), float(np.median(epochs)), max(epochs)


def summary_table(records: Sequence[Record]) -> list[Table]:
    """What the paper gives in numbers: the last layer, and chance. They are printed beside the paper's."""
    identified, depth = of_metric("identified", records), depth_of(of_metric("identified", records))
    last = tuple((f"{r.method}, {r.info['distance']}", interval_of(r)) for r in identified if r.info["layer"] == depth)
    chance = tuple(("1 / mean length", r.value) for r in of_metric("chance", records))
    tables = [Table("last", "Share of tokens identified, last layer", ("g", "last layer"), last, printed=False)]
    return [*tables, Table("chance", "Share that a guess finds", ("guess", "chance"), chance, printed=False)]


def finish_tokens(setup: Setup, records: list[Record]) -> list[Table]:
    tables = [
        rate_table("identified", "Share of tokens identified", of_metric("identified", records), ("method", "distance"))
    ]
    for metric, title, fields in _MORE:
        if group := of_metric(metric, records):
            tables.append(rate_table(metric, title, group, ("method", "distance", *fields)))
    return [*tables, *summary_table(records), *epochs_table(records)]


_MORE = (
    ("neighbour", "Share of neighbours identified", ("offset",)),
    ("across", "Share of tokens identified in a layer by a g trained on another", ("trained",)),
)


# --- figure -----------------------------------------------------------------------------------------------------------------


def draw_rates(axes: Any, table: Table, names: int) -> None:
    """A line over layers for each row; its first `names` cells are its name. L2 is dotted."""
    layers = [int(name.removeprefix("layer ")) for name in table.columns if name.startswith("layer ")]
    rows: Any = table.rows
    for row in rows:
        cells = [np.nan if cell is None else cell.mean for cell in row[-len(layers) :]]
        axes.plot(
            layers, cells, marker=".", linestyle="-" if "cosine" in row else ":", label=", ".join(map(str, row[:names]))
        )
    axes.set_xlabel("layer")
    axes.set_ylabel("share of tokens identified")
    axes.legend(fontsize=6)


def figure_tokens(setup: Setup, tables: list[Table], figure: Any) -> None:
    drawn = [table for table in tables if any(name.startswith("layer ") for name in table.columns)]
    figure.set_size_inches(5 * len(drawn) + 2, 4)
    for axes, table in zip(np.atleast_1d(figure.subplots(1, len(drawn))), drawn, strict=True):
        draw_rates(axes, table, sum(not name.startswith("layer ") for name in table.columns))
        axes.set_title(table.title, fontsize=7)


# --- the experiment of Figure 2a --------------------------------------------------------------------------------------------


@experiment(
    name="id-token-identifiability",
    paper=BRUNNER,
    shows="Figures 2a, 38, 39: token identifiability (section 4, D.1)",
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
        **TRAINED,
        "offsets": (),
        "across": False,
    },
    prepare=prepare_kinds,
    differs=DIFFERS_TRAINED,
    claims=TOKEN_CLAIMS,
    published=(
        Published("4.2, Figure 2a", "BERT, MRPC", "last layer", {"linear, cosine": "0.93"}, table="last"),
        Published("D.1", "MRPC", "chance", {"1 / mean length": "0.017"}, table="chance"),
        Published("D.1", "CoLA", "chance", {"1 / mean length": "0.09"}, table="chance"),
        Published("D.1", "MNLI", "chance", {"1 / mean length": "0.026"}, table="chance"),
    ),
)
def token_identities(setup: Setup, examples: list[Example]) -> Units:
    """In how many positions is the nearest input token of the text the position's own? As it is, or seen by a trained g."""
    states = states_of(setup.model, examples, setup.options["embedding"])
    options = setup.options
    layers = list(range(setup.model.n_layers + 1)) if options["layers"] is None else list(options["layers"])
    yield from missing(setup, iter([("chance", lambda: [chance_of(states)])]))
    for kind, distance in product(options["kinds"], options["distances"]):
        places = product(layers, (0, *options["offsets"]))
        yield from trial_units(setup, kind, distance, [_identity(states, kind, distance, *place) for place in places])
        if options["across"] and kind != "naive":
            across = (f"{kind}/{distance}/across", _across(setup, states, kind, distance, layers))
            yield from missing(setup, iter([across]))


def _identity(states: States, kind: str, distance: str, layer: int, offset: int) -> Trial:
    def records(found: Identified) -> list[Record]:
        place = {"layer": layer, "offset": offset} if offset else {"layer": layer}
        return [record_of(found, kind, "neighbour" if offset else "identified", distance, **place)]

    return Trial(f"{kind}/{distance}/{layer}/{offset}", Search(states.layer(layer), states.inputs, offset), records)


def _across(
    setup: Setup, states: States, kind: str, distance: str, layers: Sequence[int]
) -> Callable[[], list[Record]]:
    def measure() -> list[Record]:
        every = [states.layer(number) for number in layers]
        rows = identifiability_across_layers(every, states.inputs, kind=kind, distance=distance, **training_of(setup))
        cells = [(n, m, one) for n, row in zip(layers, rows, strict=True) for m, one in zip(layers, row, strict=True)]
        return [record_of(one, kind, "across", distance, layer=tested, trained=n) for n, tested, one in cells]

    return measure
