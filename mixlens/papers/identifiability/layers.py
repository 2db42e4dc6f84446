"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), Appendix B: a g on other layers, on fewer texts, on
neighbours, and from one layer to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ...base.errors import InputError
from ...metrics.mixing_stats import BRUNNER
from ...metrics.token_identity import DISTANCES, KINDS, Identified, Search, identifiability_across_layers
from ...runs.experiments.claims import Published
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table
from ...scoring.provenance import public_name
from ...types import Example, Record
from .layer_claims import ACROSS_CLAIMS, GENERALIZATION_CLAIMS, NEIGHBOUR_CLAIMS, STEP_CLAIMS
from .tokens import (
    DIFFERS_TRAINED,
    TRAINED,
    States,
    Trial,
    Units,
    draw_rates,
    epochs_table,
    figure_tokens,
    interval_of,
    of_metric,
    portions,
    prepare_kinds,
    rate_table,
    record_of,
    states_of,
    training_of,
    trial_units,
)
from .values import depth_of

LEARNED = ("linear", "mlp")
ONE_SPLIT = (
    "The paper names cross validation for Figure 2a alone. Here too the texts are split once (option folds). "
    "Intervals are over the test texts of that split: another split, or another training of g, moves every number."
)


# --- a g on other layers (Figures 2b, 8-10) ---------------------------------------------------------------------------------


def prepare_across(setup: Setup) -> None:
    prepare_kinds(setup)
    if "naive" in setup.options["kinds"]:
        raise InputError("the naive g is not trained, so no layer is its own. Give kinds= of linear and mlp.")
    depth = setup.model.n_layers
    if not all(isinstance(layer, int) and 1 <= layer <= depth for layer in setup.options["trained"] or ()):
        raise InputError(f"trained= is a list of layers from 1 to {depth}, not {setup.options['trained']!r}.")


def trained_layers(setup: Setup) -> list[int]:
    """Layers 1, 6, 11 and 12 of 12, as in the paper; the same places of another depth."""
    depth = setup.model.n_layers
    return (
        sorted({1, max(1, depth // 2), max(1, depth - 1), depth})
        if setup.options["trained"] is None
        else list(setup.options["trained"])
    )


def finish_across(setup: Setup, records: list[Record]) -> list[Table]:
    title = "Share of tokens identified in a layer by a g trained on another"
    across = of_metric("across", records)
    return [
        rate_table("across", title, across, ("method", "distance", "trained")),
        _last_layers(across),
        *epochs_table(records),
    ]


def _last_layers(across: Sequence[Record]) -> Table:
    """What the paper gives in numbers: the last two layers by the g of the first and of the last. They are printed beside it."""
    depth = depth_of(across)
    rates = {(f"{r.method}, {r.info['distance']}", r.info["trained"], r.info["layer"]): interval_of(r) for r in across}
    rows = [
        (g, "first" if trained == 1 else "last", rates.get((g, trained, depth - 1)), rates[g, trained, depth])
        for g, trained in dict.fromkeys(key[:2] for key in rates)
        if trained in (1, depth)
    ]
    return Table("last", "Share of tokens identified in the last two layers", LAST_LAYERS, tuple(rows), printed=False)


LAST_LAYERS = ("g", "of layer", "last layer but one", "last layer")
LINE_NAMES = {
    "trained": "g of layer",
    "offset": "place",
}  # column -> what a line of a panel is called before its number


def figure_panels(setup: Setup, tables: list[Table], figure: Any) -> None:
    """One panel for each kind of g and distance, two in a row, as in Figures 2b, 8 to 10 and 14 to 17."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in tables[0].rows:
        groups.setdefault(row[:2], []).append(row[1:])
    down, named = -(-len(groups) // 2), tables[0].columns[2]
    figure.set_size_inches(9 if len(groups) > 1 else 5, 3.5 * down)
    panels = figure.subplots(down, min(2, len(groups)), squeeze=False).flat
    for axes, (key, rows) in zip(panels, groups.items(), strict=False):
        labelled = [(f"{LINE_NAMES.get(named, named)} {row[1]}", *row) for row in rows]
        draw_rates(axes, Table("", "", ("", *tables[0].columns[1:]), tuple(labelled)), 1)
        axes.set_title(", ".join(map(str, key)), fontsize=8)
    for axes in list(panels):
        axes.remove()


@experiment(
    name="id-across-layers",
    paper=BRUNNER,
    shows="Figures 2b, 8, 9, 10: a g trained on one layer, tested on all (section 4.2, B.3)",
    data="agreement",
    model="agreement",
    methods=(),
    finish=finish_across,
    figure=figure_panels,
    whole=True,
    options={"kinds": LEARNED, "distances": DISTANCES, "trained": None, "folds": 1, **TRAINED},
    prepare=prepare_across,
    differs=(
        *DIFFERS_TRAINED,
        ONE_SPLIT,
        "A model of another depth is trained on its first, middle, last but one and last layer.",
    ),
    claims=ACROSS_CLAIMS,
    published=(
        Published(
            "4.2, Figure 2b",
            "BERT, MRPC",
            "last layer",
            {("linear, cosine", "first"): "below 0.70", ("linear, cosine", "last"): "0.94"},
            table="last",
            keys=2,
        ),
        Published(
            "4.2, Figure 2b",
            "BERT, MRPC",
            "last layer but one",
            {("linear, cosine", "first"): "below 0.70"},
            table="last",
            keys=2,
        ),
    ),
)
def across_layers(setup: Setup, examples: list[Example]) -> Units:
    """How well does a g that was trained on one layer identify the tokens of the other layers?"""
    states = states_of(setup.model, examples, setup.options["embedding"])
    yield from _across_units(setup, states)


def _across_units(setup: Setup, states: States) -> Units:
    """On a GPU the g of all layers are trained side by side."""
    for kind, distance in product(setup.options["kinds"], setup.options["distances"]):
        left = [layer for layer in trained_layers(setup) if f"{kind}/{distance}/{layer}" not in setup.done]
        for some in portions(left, states.inputs):
            for layer, records in zip(some, _across_layers(setup, states, kind, distance, some), strict=True):
                yield f"{kind}/{distance}/{layer}", records


def _across_layers(
    setup: Setup, states: States, kind: str, distance: str, trained: Sequence[int]
) -> Iterator[list[Record]]:
    numbers = range(1, setup.model.n_layers + 1)
    every = [states.layer(number) for number in numbers]
    question = {"kind": kind, "distance": distance, "trained": [layer - 1 for layer in trained], **training_of(setup)}
    for layer, row in zip(trained, identifiability_across_layers(every, states.inputs, **question), strict=True):
        yield [
            record_of(one, kind, "across", distance, layer=n, trained=layer)
            for n, one in zip(numbers, row, strict=True)
        ]


# --- train and test (Figure 7, B.2) -----------------------------------------------------------------------------------------


def finish_generalization(setup: Setup, records: list[Record]) -> list[Table]:
    both = [r for r in records if r.metric in ("train", "test")]
    tables = [
        rate_table(
            "rates",
            "Share of tokens identified in training texts and in others",
            both,
            ("method", "distance", "metric"),
        )
    ]
    rows = tuple((f"{r.info['share']:.0%}", interval_of(r)) for r in of_metric("size", records))
    title = f"Share of tokens identified by an MLP, by L2, in layer {_size_layer(setup)}, by the share of the training texts"
    return [
        *tables,
        Table("sizes", title, ("training texts", "test rate"), rows, printed=False),
        *epochs_table(records),
    ]


def _size_layer(setup: Setup) -> int:
    """Layer 11 of 12, as in the paper."""
    return max(1, setup.model.n_layers - 1) if setup.models else 11


def prepare_shares(setup: Setup) -> None:
    prepare_kinds(setup)
    if not all(isinstance(share, int | float) and 0 < share <= 1 for share in setup.options["shares"]):
        raise InputError(
            f"shares= is a list of shares of the training texts, above 0 and up to 1, not {setup.options['shares']!r}."
        )


@experiment(
    name="id-generalization",
    paper=BRUNNER,
    shows="Figure 7 and the training sizes of B.2: rates of training and test texts",
    data="agreement",
    model="agreement",
    methods=(),
    finish=finish_generalization,
    figure=figure_tokens,
    whole=True,
    options={
        "kinds": LEARNED,
        "distances": ("l2",),
        "layers": None,
        "shares": (0.5, 0.8, 0.9, 1.0),
        "folds": 1,
        **TRAINED,
    },
    prepare=prepare_shares,
    differs=(
        *DIFFERS_TRAINED,
        ONE_SPLIT,
        "The training sizes are those of the last layer but one: layer 11 of the paper's 12.",
    ),
    claims=GENERALIZATION_CLAIMS,
    published=(
        Published(
            "B.2",
            "MLP, L2, layer 11, MRPC",
            "test rate",
            {"50%": "0.74", "80%": "0.80", "90%": "0.81", "100%": "0.82"},
            "sizes",
        ),
    ),
)
def generalization(setup: Setup, examples: list[Example]) -> Units:
    """How much better does a g do on the texts that it was trained on, and what do more training texts bring?"""
    states = states_of(setup.model, examples, setup.options["embedding"])
    options, parts = setup.options, ("train", "test")
    layers = options["layers"] or range(1, setup.model.n_layers + 1)
    for kind, distance in product(options["kinds"], options["distances"]):
        yield from trial_units(
            setup, kind, distance, [_train_and_test(states, kind, distance, layer) for layer in layers], parts
        )
    yield from trial_units(
        setup, "mlp", "l2", [_size(states, share, _size_layer(setup)) for share in options["shares"]]
    )


def _train_and_test(states: States, kind: str, distance: str, layer: int) -> Trial:
    def records(train: Identified, test: Identified) -> list[Record]:
        rates = [record_of(one, kind, name, distance, layer=layer) for name, one in (("train", train), ("test", test))]
        told = {"distance": distance, "layer": layer, "epochs": list(test.epochs)}
        return [*rates, Record("all", kind, "gap", train.value - test.value, told)]

    return Trial(f"{kind}/{distance}/{layer}", Search(states.layer(layer), states.inputs), records)


def _size(states: States, share: float, layer: int) -> Trial:
    def records(test: Identified) -> list[Record]:
        return [record_of(test, "mlp", "size", "l2", layer=layer, share=share)]

    return Trial(f"size/{share}", Search(states.layer(layer), states.inputs, share=share), records)


# --- neighbours (Figures 14-17, B.5) ----------------------------------------------------------------------------------------


def finish_neighbours(setup: Setup, records: list[Record]) -> list[Table]:
    title = "Share of neighbours identified: the input token so many places to the right"
    table = rate_table("neighbours", title, of_metric("neighbour", records), ("method", "distance", "offset"))
    return [table, *epochs_table(records)]


def prepare_offsets(setup: Setup) -> None:
    prepare_kinds(setup)
    if not all(isinstance(offset, int) for offset in setup.options["offsets"]) or not setup.options["offsets"]:
        raise InputError(f"offsets= is a list of places, such as [-1, 0, 1], not {setup.options['offsets']!r}.")


@experiment(
    name="id-neighbours",
    paper=BRUNNER,
    shows="Figures 14-17: neighbouring input tokens (B.5)",
    data="agreement",
    model="agreement",
    methods=(),
    finish=finish_neighbours,
    figure=figure_panels,
    whole=True,
    options={
        "kinds": LEARNED,
        "distances": DISTANCES,
        "layers": None,
        "offsets": (-3, -2, -1, 0, 1, 2, 3),
        "folds": 1,
        **TRAINED,
    },
    prepare=prepare_offsets,
    differs=(*DIFFERS_TRAINED, ONE_SPLIT),
    claims=NEIGHBOUR_CLAIMS,
)
def neighbours(setup: Setup, examples: list[Example]) -> Units:
    """Can the input tokens next to a position be told from its hidden state?"""
    states = states_of(setup.model, examples, setup.options["embedding"])
    options = setup.options
    layers = options["layers"] or range(1, setup.model.n_layers + 1)
    for kind, distance in product(options["kinds"], options["distances"]):
        places = product(layers, options["offsets"])
        yield from trial_units(setup, kind, distance, [_neighbour(states, kind, distance, *place) for place in places])


def _neighbour(states: States, kind: str, distance: str, layer: int, offset: int) -> Trial:
    def records(found: Identified) -> list[Record]:
        return [record_of(found, kind, "neighbour", distance, layer=layer, offset=offset)]

    return Trial(f"{kind}/{distance}/{layer}/{offset}", Search(states.layer(layer), states.inputs, offset), records)


# --- from one layer to the next (Figures 11-13, B.4) ------------------------------------------------------------------------


def finish_steps(setup: Setup, records: list[Record]) -> list[Table]:
    title = "Share of tokens identified among the states that enter the layer"
    table = rate_table("steps", title, of_metric("step", records), ("name", "method", "distance"))
    return [table, *epochs_table(records)]


def figure_steps(setup: Setup, tables: list[Table], figure: Any) -> None:
    draw_rates(figure.subplots(), tables[0], 3)


@experiment(
    name="id-hidden-to-hidden",
    paper=BRUNNER,
    shows="Figures 11, 12, 13: tokens across single layers, of one model or of one before and after fine-tuning (B.4)",
    data="agreement",
    model="agreement",
    methods=(),
    finish=finish_steps,
    figure=figure_steps,
    whole=True,
    options={"kinds": KINDS, "distances": DISTANCES, "folds": 1, **TRAINED},
    prepare=prepare_kinds,
    differs=(
        *DIFFERS_TRAINED,
        ONE_SPLIT,
        "Several models are compared in the order given: the first is the one before fine-tuning.",
    ),
    claims=STEP_CLAIMS,
)
def hidden_to_hidden(setup: Setup, examples: list[Example]) -> Units:
    """Is the nearest of the states that enter a layer the position's own? As it is, or seen by a trained g."""
    for number in range(len(setup.models)):
        yield from _steps(setup, examples, number)


def _steps(setup: Setup, examples: list[Example], number: int) -> Units:
    """The steps of one model. A model whose steps are all done reads no text."""
    model, pairs = setup.models[number], list(product(setup.options["kinds"], setup.options["distances"]))
    layers = range(1, model.n_layers + 1)
    if setup.done.issuperset(
        f"{number}/{kind}/{distance}/{layer}" for (kind, distance), layer in product(pairs, layers)
    ):
        return
    states = states_of(model, examples, setup.options["embedding"])
    for kind, distance in pairs:
        yield from trial_units(
            setup, kind, distance, [_step(setup, states, number, kind, distance, layer) for layer in layers]
        )


def _step(setup: Setup, states: States, number: int, kind: str, distance: str, layer: int) -> Trial:
    before = states.inputs if layer == 1 else states.layer(layer - 1)

    def records(found: Identified) -> list[Record]:
        place = {"layer": layer, "model": number, "name": f"{number + 1}: {public_name(setup.models[number].name)}"}
        return [record_of(found, kind, "step", distance, **place)]

    return Trial(f"{number}/{kind}/{distance}/{layer}", Search(states.layer(layer), before), records)
