"""What On Identifiability in Transformers (Brunner et al. 2020) says of a g on other layers, texts and tokens (4.2, B.2-B.5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

from ...runs.experiments.claims import Claim, Examples, Verdict, incomparable
from ...runs.experiments.layer_curves import verdict_on_trend
from ...types import Record
from .token_claims import by_rates, not_run, over, rates_of, stopped
from .values import almost_equal, less, mean_over, mostly_above_zero, select, unequal

# --- one layer's g on others (Figures 2b, 8-10) -----------------------------------------------------------------------------


def _main(rates: Any) -> tuple[str, str]:
    """The kind and distance of Figure 2b, or the first that was run."""
    pairs = dict.fromkeys((key[0], key[1]) for key in rates)
    return ("linear", "cosine") if ("linear", "cosine") in pairs or not pairs else next(iter(pairs))


@by_rates("across", "trained")
def first_layer_below(rates: Any, depth: int) -> Any:
    kind, distance = _main(rates)
    found = {layer: rates[kind, distance, layer, 1] for layer in (depth - 1, depth)}
    return {
        f"0.70 - rate of layer {layer}": {text: 0.7 - rate for text, rate in one.items()}
        for layer, one in found.items()
    }


@by_rates("across", "trained", rule=mostly_above_zero)
def last_layer_backwards(rates: Any, depth: int) -> Any:
    """Each layer less the next one: "almost monotonically" is read as three quarters of these steps or more."""
    kind, distance = _main(rates)
    found = {layer: rates[kind, distance, layer, depth] for layer in range(1, depth + 1)}
    return {f"layer {layer} - layer {layer + 1}": less(found[layer], found[layer + 1]) for layer in range(1, depth)}


@by_rates("across", "trained")
def last_layer_transfers(rates: Any, depth: int) -> Any:
    kind, distance = _main(rates)
    own = rates[kind, distance, depth, depth]
    return {f"layer {i} - layer {depth}": less(rates[kind, distance, i, depth], own) for i in range(1, depth)}


@by_rates("across", "trained")
def backwards_above_forwards(rates: Any, depth: int) -> Any:
    """The g of the later of two layers on the earlier one, less the g of the earlier on the later, over all trained layers."""
    kinds = dict.fromkeys((key[0], key[1]) for key in rates)
    trained = sorted({key[3] for key in rates})
    pairs = list(combinations(trained, 2))
    return {
        f"{k}, {d}: to earlier - to later layers, mean of {len(pairs)} pairs": mean_over(
            [less(rates[k, d, early, late], rates[k, d, late, early]) for early, late in pairs]
        )
        for k, d in kinds
    }


def _middle(depth: int) -> int:
    """The middle layer, 6 of 12, where it is neither the first nor the last but one."""
    if depth < 4:
        raise KeyError("a layer between the first and the last but one")
    return depth // 2


def _drop(rates: Any, layer: int) -> dict[str, float]:
    """What the g of a layer finds there, less what it finds in the next layer."""
    kind, distance = _main(rates)
    return less(rates[kind, distance, layer, layer], rates[kind, distance, layer + 1, layer])


@by_rates("across", "trained")
def drop_to_the_last_layer(rates: Any, depth: int) -> Any:
    others = {f"layer {layer}": _drop(rates, layer) for layer in (1, _middle(depth))}
    return {
        f"drop behind layer {depth - 1} - behind {name}": less(_drop(rates, depth - 1), one)
        for name, one in others.items()
    }


@by_rates("across", "trained")
def middle_has_both_patterns(rates: Any, depth: int) -> Any:
    kind, distance = _main(rates)
    middle = _middle(depth)
    first, own, last = (rates[kind, distance, layer, middle] for layer in (1, middle, depth))
    names = f"g of layer {middle}: layer 1 - own", f"g of layer {middle}: own - layer {depth}"
    return dict(zip(names, (less(first, own), less(own, last)), strict=True))


def _other_layers(rates: Any) -> list[tuple[Any, ...]]:
    """(distance, layer, trained) of every linear g on a layer that it was not trained on."""
    linear = [key[1:] for key in rates if key[0] == "linear"]
    if not linear:
        raise KeyError("linear")
    return [key for key in linear if key[1] != key[2] and key[1] > 0]


@by_rates("across", "trained")
def linear_generalizes_better(rates: Any, depth: int) -> Any:
    means = {kind: mean_over([rates[(kind, *key)] for key in _other_layers(rates)]) for kind in ("linear", "mlp")}
    return {"linear - mlp, on other layers": less(means["linear"], means["mlp"])}


ACROSS_CLAIMS = (
    Claim(
        "4.2, Figure 2b",
        "the g of layer 1 finds fewer than 70 % in the last two layers",
        "below 0.70",
        first_layer_below,
    ),
    Claim(
        "4.2, Figure 2b",
        "the g of the last layer finds almost always more in a layer than in the next one",
        "0.94 in layer 12, then almost monotonically rising",
        last_layer_backwards,
    ),
    Claim(
        "4.2, Figure 2b",
        "what the g of the last layer has learned transfers: it finds more in every earlier layer than in its own",
        "0.94 in layer 12, more in earlier ones",
        last_layer_transfers,
    ),
    Claim(
        "4.2, Figure 2b",
        "the g of the middle layer (6 of 12) has both patterns: it finds more in the first layer than in its own, and more in "
        "its own than in the last",
        "both patterns",
        middle_has_both_patterns,
    ),
    Claim(
        "4.2, Figure 2b",
        "generalizing from the last layer but one to the last is hard: the rate drops more than from the first and the middle "
        "layer to the next one",
        "a sudden drop",
        drop_to_the_last_layer,
    ),
    Claim(
        "B.3, Figures 8-10",
        "generalizing to later layers works worse than to earlier ones",
        "in the figures",
        backwards_above_forwards,
    ),
    Claim("B.3", "linear g generalize better across layers than MLPs", "in the figures", linear_generalizes_better),
)


# --- train and test, neighbours, hidden to hidden ---------------------------------------------------------------------------


LITTLE = 0.02  # of a rate: twice what the last tenth of the texts adds in the paper


@by_rates("size", "share")
def little_gain_from_more(rates: Any, depth: int) -> Any:
    of_share = {key[3]: one for key, one in rates.items()}
    gain = less(of_share[1.0], of_share[0.9])
    return {f"{LITTLE:g} - (1.0 - 0.9) of the training texts": {text: LITTLE - value for text, value in gain.items()}}


def equal_overfitting(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    gaps = {kind: _gaps(stopped(setup, records), kind) for kind in ("linear", "mlp")}
    if len(gaps["mlp"]) < 3:
        return incomparable("fewer than three layers were trained")
    return almost_equal(
        {"mlp - linear, train less test, over layers": less(gaps["mlp"], gaps["linear"])}, seed=setup.seed
    )


def _gaps(records: Sequence[Record], kind: str) -> dict[str, float]:
    """layer -> the rate of the training texts less that of the others."""
    return {str(r.info["layer"]): r.value for r in select(records, "gap", kind)}


GENERALIZATION_CLAIMS = (
    Claim(
        "B.2, Figure 7",
        "linear and MLP overfit to the same degree by L2 (read here as: within 0.05, mean over layers)",
        "in the figure",
        equal_overfitting,
    ),
    Claim(
        "B.2",
        "more training texts would not help the MLP much (read here as: the last tenth adds less than 0.02)",
        "0.74, 0.80, 0.81, 0.82 of 50, 80, 90, 100 %",
        little_gain_from_more,
    ),
)


def _at(rates: Any, kind: str, distance: str, offset: int) -> Examples:
    """Mean over layers 1 and on of the rate of one offset."""
    values = [
        one for key, one in rates.items() if key[0] == kind and key[1] == distance and key[2] > 0 and key[3] == offset
    ]
    if not values:
        raise KeyError(f"offset {offset}")
    return mean_over(values)


def _pairs_of(rates: Any) -> list[tuple[str, str]]:
    return list(dict.fromkeys((key[0], key[1]) for key in rates if key[0] != "naive"))


@by_rates("neighbour", "offset")
def nearer_neighbours_above(rates: Any, depth: int) -> Any:
    near = {
        (k, d, far): mean_over([_at(rates, k, d, far), _at(rates, k, d, -far)])
        for k, d in _pairs_of(rates)
        for far in (1, 3)
    }
    return {f"{k}, {d}: 1 - 3 away": less(near[k, d, 1], near[k, d, 3]) for k, d in _pairs_of(rates)}


@by_rates("neighbour", "offset")
def neighbours_fade(rates: Any, depth: int) -> Any:
    side = {
        (k, d, at): mean_over([rates[k, d, at, 1], rates[k, d, at, -1]])
        for k, d in _pairs_of(rates)
        for at in (1, depth)
    }
    return {f"{k}, {d}: first - last layer": less(side[k, d, 1], side[k, d, depth]) for k, d in _pairs_of(rates)}


@by_rates("neighbour", "offset")
def own_token_above_neighbours(rates: Any, depth: int) -> Any:
    sides = [(k, d, side) for k, d in _pairs_of(rates) for side in (-1, 1)]
    return {f"{k}, {d}: own - {side:+d}": less(_at(rates, k, d, 0), _at(rates, k, d, side)) for k, d, side in sides}


def left_and_right_differ(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    rates = rates_of(stopped(setup, records), "neighbour", "offset")
    try:
        pairs = {
            f"{k}, {d}: previous - next": less(_at(rates, k, d, -1), _at(rates, k, d, 1)) for k, d in _pairs_of(rates)
        }
    except KeyError as missing:
        return not_run(setup, missing)
    return unequal(pairs, seed=setup.seed) if pairs else incomparable("no trained g was run")


NEIGHBOUR_CLAIMS = (
    Claim(
        "B.5, Figures 14-17",
        "nearer neighbours are found more often: the nearest more than the third, mean over layers",
        "in the figures",
        nearer_neighbours_above,
    ),
    Claim(
        "B.5, Figures 14-17",
        "neighbours are found less often with depth: the two nearest together, in the last layer than in the first",
        "in the figures",
        neighbours_fade,
    ),
    Claim(
        "B.5, Figures 14-17", "previous and next neighbours behave differently", "in the figures", left_and_right_differ
    ),
    Claim(
        "B.5",
        "neighbours are found much less often than the token itself",
        "in the figures",
        own_token_above_neighbours,
    ),
)


@by_rates("step", "model")
def cosine_above_l2_between_layers(rates: Any, depth: int) -> Any:
    means = {d: mean_over([rates["naive", d, layer, 0] for layer in range(1, depth + 1)]) for d in ("cosine", "l2")}
    return {"naive: cosine - l2, mean over layers": less(means["cosine"], means["l2"])}


@by_rates("step", "model")
def naive_does_well(rates: Any, depth: int) -> Any:
    names = [(d, layer) for d in ("cosine", "l2") for layer in range(1, depth + 1)]
    return {f"naive, {d}, layer {layer}, less one half": over(rates["naive", d, layer, 0], 0.5) for d, layer in names}


@by_rates("step", "model", rule=partial(verdict_on_trend, falls=True))
def later_layers_harder(rates: Any, depth: int) -> Any:
    return {
        f"naive rate by {d}": [rates["naive", d, layer, 0] for layer in range(1, depth + 1)] for d in ("cosine", "l2")
    }


def _fall(rates: Any, distance: str, layer: int) -> Examples:
    """The naive rate across a layer of the first model, less that of the second."""
    if not any(key[3] == 1 for key in rates):
        raise KeyError("a second model, fine-tuned")
    return less(rates["naive", distance, layer, 0], rates["naive", distance, layer, 1])


@by_rates("step", "model")
def tuning_moves_the_last_layer(rates: Any, depth: int) -> Any:
    return {"naive, L2, last layer: not tuned - tuned": _fall(rates, "l2", depth)}


@by_rates("step", "model")
def tuning_moves_the_last_layer_most(rates: Any, depth: int) -> Any:
    earlier = mean_over([_fall(rates, "l2", layer) for layer in range(1, depth)])
    return {"naive, L2, not tuned - tuned: last layer - mean of the earlier": less(_fall(rates, "l2", depth), earlier)}


@by_rates("step", "model")
def tuning_spares_the_angle(rates: Any, depth: int) -> Any:
    return {"fall by L2 - fall by cosine": less(_fall(rates, "l2", depth), _fall(rates, "cosine", depth))}


STEP_CLAIMS = (
    Claim(
        "B.4, Figure 11",
        "even without a g tokens are found well across single layers (read here as: more than half of them, in every layer, by "
        "both distances)",
        "in the figure",
        naive_does_well,
        models=1,
    ),
    Claim(
        "B.4, Figure 11",
        "from layer to layer the angle is changed less than the length: naive cosine finds more than naive L2 (mean over layers)",
        "in the figure",
        cosine_above_l2_between_layers,
        models=1,
    ),
    Claim(
        "B.4, Figure 11",
        "tokens are harder to identify across later layers: without a g, the rate falls with depth by both distances",
        "in the figure",
        later_layers_harder,
        models=1,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "fine-tuning lowers the rate across the last layer by L2",
        "in the figures",
        tuning_moves_the_last_layer,
        models=2,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "the last layers are more strongly affected by fine-tuning (read here as: it lowers the rate by L2 more across the last "
        "layer than across the earlier ones, on average)",
        "in the figures",
        tuning_moves_the_last_layer_most,
        models=2,
    ),
    Claim(
        "B.4, Figures 12, 13",
        "fine-tuning lowers the rate across the last layer much less by cosine than by L2",
        "in the figures",
        tuning_spares_the_angle,
        models=2,
    ),
)
