"""Evaluations of On Identifiability in Transformers (Brunner et al. 2020), Appendix B: a g on other layers, on fewer
texts, on neighbours, and from one layer to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

from ...base.errors import InputError
from ...metrics.token_identity import DISTANCES, KINDS, Search
from ...runs.experiments.claims import (
    Claim,
    Measured,
    Published,
    Rule,
    Values,
    Verdict,
    in_most,
    incomparable,
    mean_over,
)
from ...runs.experiments.experiment import Setup
from ...runs.experiments.layer_curves import verdict_on_trend
from ...runs.experiments.tables import Table
from ...scoring.provenance import public_name
from ...types import Example, Record
from .tokens import (
    DIFFERS_TRAINED,
    TRAINED,
    Rates,
    Units,
    across_records,
    by_rates,
    draw_rates,
    figure_tokens,
    finish_rates,
    identified_units,
    interval_of,
    naive_means,
    portions,
    prepare_kinds,
    rate_units,
    record_of,
    states_of,
)
from .values import IN_FIGURE, IN_FIGURES, almost_equal, below, depth_of, evaluation, select, unequal

LEARNED = ("linear", "mlp")
LAST_LAYERS = ("g", "of layer", "last layer but one", "last layer")
LINE_NAMES = {"trained": "g of layer", "offset": "place"}  # column -> what a line is called before its number
ONE_SPLIT = (
    "The paper names cross validation for Figure 2a alone. Here too the texts are split once (option folds). "
    "Intervals are over the test texts of that split: another split, or another training of g, moves every number."
)
trains_a_g = partial(evaluation, whole=True)


# --- a g on other layers (Figures 2b, 8-10): claims -------------------------------------------------------------------

Contrasts = dict[str, Values]
Of = Callable[[int, int], Values]  # of a layer by the g that was trained on a layer
of_across = by_rates("across", "trained")


def of_one(contrasts: Callable[[Of, int], Contrasts], *judged: Any) -> Rule:
    """A rule of contrasts of the rates of the kind and distance of Figure 2b, or of the first that was run, and of the
    number of layers."""

    def named(rates: Rates) -> Contrasts:
        pairs, main = dict.fromkeys(key[:2] for key in rates), ("linear", "cosine")
        name = main if main in pairs or not pairs else next(iter(pairs))
        return contrasts(lambda *place: rates[(*name, *place)], rates.depth)

    return of_across(named, *judged)


def last_layer_backwards(of: Of, depth: int) -> Contrasts:
    """Each layer less the next one."""
    every = {layer: of(layer, depth) for layer in range(1, depth + 1)}
    return {f"layer {i} - layer {i + 1}": every[i] - every[i + 1] for i in range(1, depth)}


def last_layer_transfers(of: Of, depth: int) -> Contrasts:
    own = of(depth, depth)
    return {f"layer {i} - layer {depth}": of(i, depth) - own for i in range(1, depth)}


def almost_all_above(contrasts: Contrasts, *, seed: int) -> Verdict:
    """The verdict on "almost all of these are above 0" (three quarters or more), all compared at once."""
    both = {name: {"difference": one, "0": dict.fromkeys(one, 0.0)} for name, one in contrasts.items()}
    return in_most(both, [("difference", "0")], seed=seed)


def middle_of(depth: int) -> int:
    """The middle layer, 6 of 12, where it is neither the first nor the last but one."""
    if depth < 4:
        raise KeyError("a layer between the first and the last but one")
    return depth // 2


def middle_has_both_patterns(of: Of, depth: int) -> Contrasts:
    middle = middle_of(depth)
    first, own, last = (of(layer, middle) for layer in (1, middle, depth))
    return {
        f"g of layer {middle}: layer 1 - own": first - own,
        f"g of layer {middle}: own - layer {depth}": own - last,
    }


def drop_to_the_last_layer(of: Of, depth: int) -> Contrasts:
    """What the g of a layer finds there, less what it finds in the next layer."""
    first, middle, last = (of(i, i) - of(i + 1, i) for i in (1, middle_of(depth), depth - 1))
    names = {1: first, middle_of(depth): middle}
    return {f"drop behind layer {depth - 1} - behind layer {i}": last - one for i, one in names.items()}


def backwards_above_forwards(rates: Rates) -> Contrasts:
    """The g of the later of two layers on the earlier one, less the g of the earlier on the later, over all trained
    layers."""
    pairs = list(combinations(sorted({key[3] for key in rates}), 2))
    return {
        f"{k}, {d}: to earlier - to later layers, mean of {len(pairs)} pairs": mean_over(
            [rates[k, d, early, late] - rates[k, d, late, early] for early, late in pairs]
        )
        for k, d in dict.fromkeys(key[:2] for key in rates)
    }


def linear_generalizes_better(rates: Rates) -> Contrasts:
    """On every layer that a g was not trained on."""
    linear = [key[1:] for key in rates if key[0] == "linear"]
    if not linear:
        raise KeyError("linear")
    others = [key for key in linear if key[1] != key[2] and key[1] > 0]
    means = {kind: mean_over([rates[(kind, *key)] for key in others]) for kind in LEARNED}
    return {"linear - mlp, on other layers": means["linear"] - means["mlp"]}


ACROSS_CLAIMS = (
    Claim(
        "4.2, Figure 2b",
        "the g of layer 1 finds fewer than 70 % in the last two layers",
        "below 0.70",
        of_one(lambda of, depth: {f"0.70 - rate of layer {i}": below(0.7, of(i, 1)) for i in (depth - 1, depth)}),
    ),
    Claim(
        "4.2, Figure 2b",
        "the g of the last layer finds almost always more in a layer than in the next one",
        "0.94 in layer 12, then almost monotonically rising",
        of_one(last_layer_backwards, almost_all_above),
    ),
    Claim(
        "4.2, Figure 2b",
        "what the g of the last layer has learned transfers: it finds more in every earlier layer than in its own",
        "0.94 in layer 12, more in earlier ones",
        of_one(last_layer_transfers),
    ),
    Claim(
        "4.2, Figure 2b",
        "the g of the middle layer (6 of 12) has both patterns: it finds more in the first layer than in its own, and "
        "more in its own than in the last",
        "both patterns",
        of_one(middle_has_both_patterns),
    ),
    Claim(
        "4.2, Figure 2b",
        "generalizing from the last layer but one to the last is hard: the rate drops more than from the first and the "
        "middle layer to the next one",
        "a sudden drop",
        of_one(drop_to_the_last_layer),
    ),
    Claim(
        "B.3, Figures 8-10",
        "generalizing to later layers works worse than to earlier ones",
        IN_FIGURES,
        of_across(backwards_above_forwards),
    ),
    Claim(
        "B.3",
        "linear g generalize better across layers than MLPs",
        IN_FIGURES,
        of_across(linear_generalizes_better),
    ),
)


# --- a g on other layers: the experiment ------------------------------------------------------------------------------


def prepare_across(setup: Setup) -> None:
    prepare_kinds(setup)
    if "naive" in setup.options["kinds"]:
        raise InputError("the naive g is not trained, so no layer is its own. Give kinds= of linear and mlp.")
    trained, depth = setup.options["trained"], setup.model.n_layers
    if not all(isinstance(layer, int) and 1 <= layer <= depth for layer in trained or ()):
        raise InputError(f"trained= is a list of layers from 1 to {depth}, not {trained!r}.")


def last_layers(setup: Setup, records: list[Record]) -> Table:
    """What the paper gives in numbers: the last two layers by the g of the first and of the last."""
    across, depth = select(records, "across"), depth_of(select(records, "across"))
    rates = {(f"{r.method}, {r.info['distance']}", r.info["trained"], r.info["layer"]): interval_of(r) for r in across}
    last = tuple(
        (g, "first" if trained == 1 else "last", rates.get((g, trained, depth - 1)), rates[g, trained, depth])
        for g, trained in dict.fromkeys(key[:2] for key in rates)
        if trained in (1, depth)
    )
    return Table("last", "Share of tokens identified in the last two layers", LAST_LAYERS, last, printed=False)


def figure_panels(setup: Setup, tables: list[Table], figure: Any) -> None:
    """One panel for each kind of g and distance, two in a row, as in Figures 2b, 8 to 10 and 14 to 17."""
    table = tables[0]
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in table.rows:
        name = LINE_NAMES.get(table.columns[2], table.columns[2])
        groups.setdefault(row[:2], []).append((f"{name} {row[2]}", *row[1:]))
    figure.set_size_inches(9 if len(groups) > 1 else 5, 3.5 * -(-len(groups) // 2))
    panels = figure.subplots(-(-len(groups) // 2), min(2, len(groups)), squeeze=False).flat
    for axes, (key, rows) in zip(panels, groups.items(), strict=False):
        draw_rates(axes, Table("", "", ("", *table.columns[1:]), tuple(rows)), 1)
        axes.set_title(", ".join(map(str, key)), fontsize=8)
    for axes in list(panels):
        axes.remove()


@trains_a_g(
    name="id-across-layers",
    shows="Figures 2b, 8, 9, 10: a g trained on one layer, tested on all (section 4.2, B.3)",
    finish=finish_rates(
        "across",
        "Share of tokens identified in a layer by a g trained on another",
        ("across",),
        ("method", "distance", "trained"),
        last_layers,
    ),
    figure=figure_panels,
    options={"kinds": LEARNED, "distances": DISTANCES, "trained": None, "folds": 1, **TRAINED},
    prepare=prepare_across,
    differs=(
        *DIFFERS_TRAINED,
        ONE_SPLIT,
        "A model of another depth is trained on its first, middle, last but one and last layer.",
    ),
    claims=ACROSS_CLAIMS,
    published=tuple(
        Published("4.2, Figure 2b", "BERT, MRPC", column, numbers, table="last", keys=2)
        for column, numbers in {
            "last layer": {("linear, cosine", "first"): "below 0.70", ("linear, cosine", "last"): "0.94"},
            "last layer but one": {("linear, cosine", "first"): "below 0.70"},
        }.items()
    ),
)
def across_layers(setup: Setup, examples: list[Example]) -> Units:
    """How well does a g that was trained on one layer identify the tokens of the other layers?"""
    options, depth = setup.options, setup.model.n_layers
    states = states_of(setup.model, examples, options["embedding"])
    # Layers 1, 6, 11 and 12 of 12, as in the paper; the same places of another depth.
    usual = sorted({1, max(1, depth // 2), max(1, depth - 1), depth})
    trained = usual if options["trained"] is None else list(options["trained"])
    for kind, distance in product(options["kinds"], options["distances"]):
        left = [layer for layer in trained if f"{kind}/{distance}/{layer}" not in setup.done]
        for some in portions(left, states.inputs):
            rows = across_records(setup, states, range(1, depth + 1), some, kind, distance)
            yield from ((f"{kind}/{distance}/{layer}", row) for layer, row in zip(some, rows, strict=True))


# --- train and test (Figure 7, B.2) -----------------------------------------------------------------------------------

LITTLE = 0.02  # of a rate: twice what the last tenth of the texts adds in the paper


def little_gain_from_more(rates: Rates) -> Contrasts:
    of_share = {key[3]: one for key, one in rates.items()}
    return {f"{LITTLE:g} - (1.0 - 0.9) of the training texts": below(LITTLE, of_share[1.0] - of_share[0.9])}


def equal_overfitting(run: Measured) -> Verdict:
    """layer -> the rate of the training texts less that of the others, by trainings that were not cut short."""
    cap = run.setup.options.get("epochs")
    stopped = [r for r in run.records if cap is None or cap not in r.info.get("epochs", ())]
    linear, mlp = (Values({str(r.info["layer"]): r.value for r in select(stopped, "gap", kind)}) for kind in LEARNED)
    if len(mlp) < 3:
        return incomparable("fewer than three layers were trained")
    return almost_equal({"mlp - linear, train less test, over layers": mlp - linear}, seed=run.setup.seed)


def sizes_table(setup: Setup, records: list[Record]) -> Table:
    title = "Share of tokens identified by an MLP, by L2, in layer {}, by the share of the training texts"
    rows = tuple((f"{r.info['share']:.0%}", interval_of(r)) for r in select(records, "size"))
    return Table("sizes", title.format(size_layer(setup)), ("training texts", "test rate"), rows, printed=False)


def size_layer(setup: Setup) -> int:
    """Layer 11 of 12, as in the paper."""
    return max(1, setup.model.n_layers - 1) if setup.models else 11


def prepare_shares(setup: Setup) -> None:
    prepare_kinds(setup)
    shares = setup.options["shares"]
    if not all(isinstance(share, int | float) and 0 < share <= 1 for share in shares):
        raise InputError(f"shares= is a list of shares of the training texts, above 0 and up to 1, not {shares!r}.")


@trains_a_g(
    name="id-generalization",
    shows="Figure 7 and the training sizes of B.2: rates of training and test texts",
    finish=finish_rates(
        "rates",
        "Share of tokens identified in training texts and in others",
        ("train", "test"),
        ("method", "distance", "metric"),
        sizes_table,
    ),
    figure=figure_tokens,
    options={
        **{"kinds": LEARNED, "distances": ("l2",), "layers": None, "shares": (0.5, 0.8, 0.9, 1.0), "folds": 1},
        **TRAINED,
    },
    prepare=prepare_shares,
    differs=(
        *DIFFERS_TRAINED,
        ONE_SPLIT,
        "The training sizes are those of the last layer but one: layer 11 of the paper's 12.",
    ),
    claims=(
        Claim(
            "B.2, Figure 7",
            "linear and MLP overfit to the same degree by L2 (read here as: within 0.05, mean over layers)",
            IN_FIGURE,
            equal_overfitting,
        ),
        Claim(
            "B.2",
            "more training texts would not help the MLP much (read here as: the last tenth adds less than 0.02)",
            "0.74, 0.80, 0.81, 0.82 of 50, 80, 90, 100 %",
            by_rates("size", "share")(little_gain_from_more),
        ),
    ),
    published=(
        Published(
            *("B.2", "MLP, L2, layer 11, MRPC", "test rate"),
            {"50%": "0.74", "80%": "0.80", "90%": "0.81", "100%": "0.82"},
            "sizes",
        ),
    ),
)
def generalization(setup: Setup, examples: list[Example]) -> Units:
    """How much better does a g do on the texts that it was trained on, and what do more training texts bring?"""
    options, states = setup.options, states_of(setup.model, examples, setup.options["embedding"])

    layers, at = options["layers"] or range(1, setup.model.n_layers + 1), size_layer(setup)
    for kind, distance in product(options["kinds"], options["distances"]):
        both = {f"{kind}/{distance}/{layer}": (Search(states.layer(layer), states.inputs), layer) for layer in layers}
        for key, layer, (train, test) in identified_units(setup, kind, distance, both, ("train", "test")):
            rates = {"train": train, "test": test}
            told = {"distance": distance, "layer": layer, "epochs": list(test.epochs)}
            made = [record_of(one, kind, name, distance, layer=layer) for name, one in rates.items()]
            yield key, [*made, Record("all", kind, "gap", train.value - test.value, told)]
    sizes = {}
    for share in options["shares"]:
        search = Search(states.layer(at), states.inputs, share=share)
        sizes[f"size/{share}"] = search, {"metric": "size", "layer": at, "share": share}
    yield from rate_units(setup, "mlp", "l2", sizes)


# --- neighbours (Figures 14-17, B.5) ----------------------------------------------------------------------------------


of_neighbour = by_rates("neighbour", "offset")


def mean_at(rates: Rates, kind: str, distance: str, offset: int) -> Values:
    """Mean over layers 1 and on of the rate of one offset."""
    found = [one for (k, d, layer, o), one in rates.items() if (k, d, o) == (kind, distance, offset) and layer > 0]
    if not found:
        raise KeyError(f"offset {offset}")
    return mean_over(found)


def trained_pairs(rates: Rates) -> dict[tuple[str, str], Any]:
    return dict.fromkeys(key[:2] for key in rates if key[0] != "naive")


def by_offset(contrasts: Mapping[str, Callable[..., Values]], *judged: Any) -> Rule:
    """A rule of contrasts of what each trained g finds, mean over layers, `at` an offset."""
    return of_neighbour(
        lambda rates: {
            f"{k}, {d}: {name}": contrast(partial(mean_at, rates, k, d))
            for k, d in trained_pairs(rates)
            for name, contrast in contrasts.items()
        },
        *judged,
    )


def neighbours_fade(rates: Rates) -> Contrasts:
    def side(k: str, d: str, layer: int) -> Values:
        return mean_over([rates[k, d, layer, 1], rates[k, d, layer, -1]])

    return {f"{k}, {d}: first - last layer": side(k, d, 1) - side(k, d, rates.depth) for k, d in trained_pairs(rates)}


def prepare_offsets(setup: Setup) -> None:
    prepare_kinds(setup)
    offsets = setup.options["offsets"]
    if not all(isinstance(offset, int) for offset in offsets) or not offsets:
        raise InputError(f"offsets= is a list of places, such as [-1, 0, 1], not {offsets!r}.")


NEIGHBOUR_CLAIMS = (
    Claim(
        "B.5, Figures 14-17",
        "nearer neighbours are found more often: the nearest more than the third, mean over layers",
        IN_FIGURES,
        by_offset({"1 - 3 away": lambda at: mean_over([at(1), at(-1)]) - mean_over([at(3), at(-3)])}),
    ),
    Claim(
        "B.5, Figures 14-17",
        "neighbours are found less often with depth: the two nearest together, in the last layer than in the first",
        IN_FIGURES,
        of_neighbour(neighbours_fade),
    ),
    Claim(
        "B.5, Figures 14-17",
        "previous and next neighbours behave differently",
        IN_FIGURES,
        by_offset({"previous - next": lambda at: at(-1) - at(1)}, unequal),
    ),
    Claim(
        "B.5",
        "neighbours are found much less often than the token itself",
        IN_FIGURES,
        by_offset({"own - -1": lambda at: at(0) - at(-1), "own - +1": lambda at: at(0) - at(1)}),
    ),
)


@trains_a_g(
    name="id-neighbours",
    shows="Figures 14-17: neighbouring input tokens (B.5)",
    finish=finish_rates(
        "neighbours",
        "Share of neighbours identified: the input token so many places to the right",
        ("neighbour",),
        ("method", "distance", "offset"),
    ),
    figure=figure_panels,
    options={
        **{"kinds": LEARNED, "distances": DISTANCES, "layers": None, "offsets": tuple(range(-3, 4)), "folds": 1},
        **TRAINED,
    },
    prepare=prepare_offsets,
    differs=(*DIFFERS_TRAINED, ONE_SPLIT),
    claims=NEIGHBOUR_CLAIMS,
)
def neighbours(setup: Setup, examples: list[Example]) -> Units:
    """Can the input tokens next to a position be told from its hidden state?"""
    options, states = setup.options, states_of(setup.model, examples, setup.options["embedding"])
    layers = options["layers"] or range(1, setup.model.n_layers + 1)
    for kind, distance in product(options["kinds"], options["distances"]):
        trials = {}
        for layer, offset in product(layers, options["offsets"]):
            place = {"metric": "neighbour", "layer": layer, "offset": offset}
            search = Search(states.layer(layer), states.inputs, offset)
            trials[f"{kind}/{distance}/{layer}/{offset}"] = search, place
        yield from rate_units(setup, kind, distance, trials)


# --- from one layer to the next (Figures 11-13, B.4) ------------------------------------------------------------------


def naive_does_well(rates: Rates) -> Contrasts:
    places = product(("cosine", "l2"), range(1, rates.depth + 1))
    return {f"naive, {d}, layer {layer}, less one half": rates["naive", d, layer, 0] - 0.5 for d, layer in places}


def naive_curves(rates: Rates) -> dict[str, Sequence[Values]]:
    distances = ("cosine", "l2")
    return {
        f"naive rate by {d}": [rates["naive", d, layer, 0] for layer in range(1, rates.depth + 1)] for d in distances
    }


def fall(rates: Rates, distance: str, layer: int) -> Values:
    """The naive rate across a layer of the first model, less that of the second."""
    if not any(key[3] == 1 for key in rates):
        raise KeyError("a second model, fine-tuned")
    return rates["naive", distance, layer, 0] - rates["naive", distance, layer, 1]


def last_falls_most(rates: Rates) -> Contrasts:
    earlier = mean_over([fall(rates, "l2", layer) for layer in range(1, rates.depth)])
    return {"naive, L2, not tuned - tuned: last layer - mean of the earlier": fall(rates, "l2", rates.depth) - earlier}


of_step = by_rates("step", "model")
STEP_CLAIMS = (
    Claim(
        "B.4, Figure 11",
        "even without a g tokens are found well across single layers (read here as: more than half of them, in every "
        "layer, by both distances)",
        IN_FIGURE,
        of_step(naive_does_well),
        models=1,
    ),
    Claim(
        "B.4, Figure 11",
        "from layer to layer the angle is changed less than the length: naive cosine finds more than naive L2 (mean "
        "over layers)",
        IN_FIGURE,
        of_step(lambda rates: naive_means(rates, 0)),
        models=1,
    ),
    Claim(
        "B.4, Figure 11",
        "tokens are harder to identify across later layers: without a g, the rate falls with depth by both distances",
        IN_FIGURE,
        of_step(naive_curves, partial(verdict_on_trend, falls=True)),
        models=1,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "fine-tuning lowers the rate across the last layer by L2",
        IN_FIGURES,
        of_step(lambda rates: {"naive, L2, last layer: not tuned - tuned": fall(rates, "l2", rates.depth)}),
        models=2,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "the last layers are more strongly affected by fine-tuning (read here as: it lowers the rate by L2 more across "
        "the last layer than across the earlier ones, on average)",
        IN_FIGURES,
        of_step(last_falls_most),
        models=2,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "fine-tuning lowers the rate across the last layer much less by cosine than by L2",
        IN_FIGURES,
        of_step(lambda r: {"fall by L2 - fall by cosine": fall(r, "l2", r.depth) - fall(r, "cosine", r.depth)}),
        models=2,
    ),
)


@trains_a_g(
    name="id-hidden-to-hidden",
    shows="Figures 11, 12, 13: tokens across single layers, of one model or of one before and after fine-tuning (B.4)",
    finish=finish_rates(
        "steps",
        "Share of tokens identified among the states that enter the layer",
        ("step",),
        ("name", "method", "distance"),
    ),
    figure=lambda setup, tables, figure: draw_rates(figure.subplots(), tables[0], 3),
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
    pairs = list(product(setup.options["kinds"], setup.options["distances"]))
    for number, model in enumerate(setup.models):
        layers, name = range(1, model.n_layers + 1), f"{number + 1}: {public_name(model.name)}"
        keys = {(*pair, layer): f"{number}/{pair[0]}/{pair[1]}/{layer}" for pair in pairs for layer in layers}
        if setup.done.issuperset(keys.values()):
            continue  # a model whose steps are all done reads no text
        states = states_of(model, examples, setup.options["embedding"])
        for kind, distance in pairs:
            trials = {}
            for layer in layers:
                search = Search(states.layer(layer), states.inputs if layer == 1 else states.layer(layer - 1))
                place = {"metric": "step", "layer": layer, "model": number, "name": name}
                trials[keys[kind, distance, layer]] = search, place
            yield from rate_units(setup, kind, distance, trials)
