"""GlobEnc layer by layer: Figure 3 (correlation with saliency), Table 2 (single layers against rollout), Figure 1 ([CLS])."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ...base.errors import InputError
from ...metrics.agreement import GLOBENC, layer_agreement
from ...metrics.intervals import mean_with_interval
from ...runs.experiments.claims import (
    Check,
    Claim,
    Examples,
    Published,
    Verdict,
    difference,
    in_most,
    order,
    positive,
    values_of,
)
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.layer_curves import first_quarter
from ...runs.experiments.tables import Table, by
from ...scoring.aggregate import rows_to_one
from ...scoring.asking import maps_of
from ...types import Example, Record
from .main import (
    FAMILY,
    NAMES,
    READ,
    ROLLED,
    SALIENCY,
    known_confidence,
    known_reference,
    lines,
    per_layer,
    reference_of,
    rolled,
    rows_of,
)

ALONE, PRODUCT = ROLLED[:2]
AGGREGATED = ("norm", "norm_residual", "globenc")  # the rows of Table 2
RISING = "attention_residual"  # W_RES
WEIGHTS = (("norm", "attention"), ("norm_residual", "attention_residual"))  # section 4.5.1
FIRST, MIDDLE, LAST, MOST = "first layer", "middle layer", "last layer", "highest of all layers"


# --- Figure 3 and Table 2 -----------------------------------------------------------------------------------------------


def finish_layers(setup: Setup, records: list[Record]) -> list[Table]:
    title = f"Spearman with `{setup.options['reference']}` ({setup.options['over']})"
    confidence = setup.options["confidence"]
    note = f"Mean over examples and {100 * confidence:g} % interval. *rolled out*: the matrices as they are, as published. {NAMES}"
    whole = per_layer("layers", title, records, ("method", "metric"), seed=setup.seed, note=note, confidence=confidence)
    return [whole, _table2(setup, records)]


def _table2(setup: Setup, records: Sequence[Record]) -> Table:
    """Table 2: three layers and the highest of all, of single layers and of rollouts."""
    groups = by([r for r in records if r.metric in (ALONE, PRODUCT)], "metric", "method")
    rows = [
        (metric, method, place, mean_with_interval(values, seed=setup.seed))
        for metric in (ALONE, PRODUCT)
        for method in AGGREGATED
        for place, values in _places(groups.get((metric, method), [])).items()
    ]
    note = "The highest of all layers is that with the highest mean. Means with 95 % intervals."
    return Table(
        "table2", "Single layers against rollout", ("metric", "method", "layer", "spearman"), tuple(rows), note
    )


def _places(records: Sequence[Record]) -> dict[str, list[float]]:
    """The values of the first, the middle and the last layer, and of that with the highest mean."""
    of_layer = {int(layer): [r.value for r in group] for (layer,), group in sorted(by(records, "layer").items())}
    if not of_layer:
        return {}
    best = max(of_layer, key=lambda layer: mean_with_interval(of_layer[layer], resamples=1).mean)
    numbers = {FIRST: 1, MIDDLE: middle_of(of_layer), LAST: max(of_layer), MOST: best}
    return {place: of_layer[layer] for place, layer in numbers.items()}


def middle_of(layers: Iterable[int]) -> int:
    """The layer half-way up: 6 of 12, 3 of 6."""
    return max(1, max(layers) // 2)


def figure_layers(setup: Setup, tables: list[Table], figure: Any) -> None:
    both = figure.subplots(1, 2, sharey=True)
    for axes, how in zip(both, (ALONE, PRODUCT), strict=True):
        lines(rows_of(tables[0], how), axes, band=True)
        axes.set_title(how)
    both[0].set_ylabel(f"Spearman with {setup.options['reference']}")
    both[1].legend(fontsize=6)


def known_over(setup: Setup) -> None:
    known_reference(setup)
    known_confidence(setup)
    if setup.options["over"] not in READ:
        raise InputError(f"over= is row or sum, not {setup.options['over']!r}.")


def at(records: Sequence[Record], method: str, metric: str, layer: int) -> dict[str, float]:
    """The values of one method at one layer, by example."""
    return values_of(records, method, metric, lambda record: record.info["layer"] == layer)


def layers_of(records: Sequence[Record]) -> list[int]:
    return sorted({int(record.info["layer"]) for record in records}) or [0]


def _in_most_layers(pairs: Sequence[tuple[str, str]]) -> Check:
    """The claim that the first of each pair, rolled out, is above the second in almost every layer."""
    methods = list(dict.fromkeys(name for pair in pairs for name in pair))

    def check(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
        values = {
            f"layer {layer}": {method: at(records, method, PRODUCT, layer) for method in methods}
            for layer in layers_of(records)
        }
        return in_most(values, pairs, seed=setup.seed)

    return check


def _curves_flatten(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    return positive({method: _flattening(records, method) for method in AGGREGATED}, seed=setup.seed)


def _flattening(records: Sequence[Record], method: str) -> dict[str, float]:
    """What the first half of the layers adds, less what the second half adds, by example."""
    layers = layers_of(records)
    first, middle, last = (at(records, method, PRODUCT, layer) for layer in (layers[0], middle_of(layers), layers[-1]))
    return {example: 2 * middle[example] - first[example] - last[example] for example in first}


def _rises_in_every_layer(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    layers = layers_of(records)
    values = {layer: at(records, RISING, PRODUCT, layer) for layer in layers}
    steps = {f"layer {later} - layer {one}": difference(values[later], values[one]) for one, later in pairwise(layers)}
    return positive(steps, seed=setup.seed)


def _alone_in_rising(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """What the second half of the layers adds to W_RES, less what it adds to each of the curves that are said to flatten."""
    layers = layers_of(records)
    ends = layers[-1], middle_of(layers)
    rises = {name: difference(*(at(records, name, PRODUCT, layer) for layer in ends)) for name in (RISING, *AGGREGATED)}
    return order(rises, [(RISING, name) for name in AGGREGATED], seed=setup.seed)


def _rollout_is_above(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """Rollout against single layers, in the middle layer and in the last."""
    layers = layers_of(records)
    contrasts = {
        f"{method}, layer {layer}": _gain(records, method, layer)
        for layer in dict.fromkeys((middle_of(layers), layers[-1]))
        for method in AGGREGATED
    }
    return positive(contrasts, seed=setup.seed)


def _gain(records: Sequence[Record], method: str, layer: int) -> dict[str, float]:
    product, alone = (at(records, method, metric, layer) for metric in (PRODUCT, ALONE))
    return {example: product[example] - alone[example] for example in product if example in alone}


def _gain_rises(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """What rollout adds in the second half of the layers, less what it adds in the first half, means over layers.

    In the first layer alone it adds nothing: the map rolled out is that layer's own.
    """
    middle = middle_of(layers_of(records))
    rises = {
        f"{name}: second half - first half": difference(
            _mean_gain(records, name, middle + 1), _mean_gain(records, name, 1, middle)
        )
        for name in AGGREGATED
    }
    return positive(rises, seed=setup.seed)


def _mean_gain(records: Sequence[Record], method: str, low: int, high: float = math.inf) -> dict[str, float]:
    """What rollout adds in the layers from `low` to `high`, mean over them, by example."""
    product, alone = (
        values_of(records, method, metric, lambda record: low <= record.info["layer"] <= high)
        for metric in (PRODUCT, ALONE)
    )
    return difference(product, alone)


def _printed(metric: str, method: str, *cells: str) -> dict[tuple[str, str, str], str]:
    return {(metric, method, place): cell for place, cell in zip((FIRST, MIDDLE, LAST, MOST), cells, strict=True)}


TABLE2 = Published(
    "Table 2",
    "BERT-base, SST2, layers 1, 6, 12",
    "spearman",
    {
        **_printed(ALONE, "norm", "-0.50 ± .18", "+0.28 ± .23", "+0.40 ± .21", "+0.41 ± .21"),
        **_printed(ALONE, "norm_residual", "-0.48 ± .18", "+0.29 ± .24", "+0.41 ± .19", "+0.41 ± .19"),
        **_printed(ALONE, "globenc", "-0.47 ± .18", "+0.29 ± .24", "+0.41 ± .19", "+0.41 ± .19"),
        **_printed(PRODUCT, "norm", "-0.50 ± .18", "+0.44 ± .20", "+0.44 ± .20", "+0.44 ± .20"),
        **_printed(PRODUCT, "norm_residual", "-0.48 ± .18", "+0.70 ± .14", "+0.73 ± .13", "+0.73 ± .13"),
        **_printed(PRODUCT, "globenc", "-0.47 ± .18", "+0.74 ± .14", "+0.77 ± .12", "+0.78 ± .12"),
    },
    table="table2",
    keys=3,
    std=True,
)


@experiment(
    name="globenc-layers",
    packages=("scipy",),
    paper=GLOBENC,
    shows="Figure 3 and Table 2",
    data="sentiment",
    model="sentiment",
    methods=FAMILY,
    finish=finish_layers,
    figure=figure_layers,
    task=("classification", "masked-lm"),
    takes="map",
    options={"reference": "grad_x_input_l2", "over": "row", "target": "true", "classes": "", "confidence": 0.99},
    prepare=known_over,
    differs=(
        SALIENCY,
        "Table 2 has layers 1, 6 and 12 of 12. In a model of another depth they are the first, the one half-way and the last.",
    ),
    published=(TABLE2,),
    claims=(
        Claim(
            "Figure 3",
            "GlobEnc, rolled out, has the highest correlation of the eight maps in almost every layer.",
            "curves",
            _in_most_layers([("globenc", rival) for rival in FAMILY[:-1]]),
        ),
        Claim(
            "Figure 3, section 4.5.1",
            "The norm-based maps N and N_RES are above W and W_RES in almost every layer.",
            "curves",
            _in_most_layers(WEIGHTS),
        ),
        Claim(
            "Figure 3, section 4.5.4",
            "The curves flatten after a few layers: the first half of the layers adds more than the second (N, N_RES, N_ENC).",
            "curves; N_ENC: -0.47 in layer 1, 0.74 in layer 6, 0.77 in layer 12",
            _curves_flatten,
        ),
        Claim(
            "Figure 3, footnote 11",
            "W_RES increases constantly: it is higher in each layer than in the one before.",
            "a curve",
            _rises_in_every_layer,
        ),
        Claim(
            "Figure 3, footnote 11",
            "W_RES is the only exception: in the second half of the layers it rises more than N, N_RES and N_ENC do.",
            "a curve",
            _alone_in_rising,
        ),
        Claim(
            "Table 2, section 4.5.4",
            "Rollout correlates more than single layers, in the middle layer and in the last (N, N_RES, N_ENC).",
            "layer 6: 0.44, 0.70, 0.74 against 0.28, 0.29, 0.29; layer 12: 0.44, 0.73, 0.77 against 0.40, 0.41, 0.41",
            _rollout_is_above,
        ),
        Claim(
            "Table 2, section 4.5.4",
            "Rollout helps especially in deeper layers: read here as more in the second half of the layers than in the first "
            "(N, N_RES, N_ENC).",
            "N_ENC: nothing in layer 1, 0.45 in layer 6, 0.36 in layer 12",
            _gain_rises,
        ),
    ),
)
def layers(setup: Setup, example: Example) -> list[Record]:
    """After how many layers does a map, rolled out or alone, rank the input tokens as the gradient does?"""
    trace = setup.model.trace(example)
    reference = reference_of(setup, trace, example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        for how in ROLLED:
            whole = rolled(scores, how, setup.requests[method].rollout)
            values = layer_agreement(whole, reference, query=trace.query, over=setup.options["over"])
            records += [Record(str(example.id), method, how, value, {"layer": i}) for i, value in enumerate(values, 1)]
    return records


# --- Figure 1: the token that predicts ------------------------------------------------------------------------------------

OWN = "own share"


def finish_own(setup: Setup, records: list[Record]) -> list[Table]:
    note = "The share that the token itself has in its row of the rolled-out map, rows to 1. Mean and 95 % interval."
    title = "How much of [CLS] is still [CLS]"
    return [per_layer("own", title, records, ("method",), seed=setup.seed, note=note)]


def _starts_with_itself(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """In each layer of the first quarter: 1 to 3 of 12."""
    quarter = range(1, first_quarter(max(layers_of(records))) + 1)
    return positive(
        {f"layer {layer}": at(records, "globenc", OWN, layer) for layer in quarter}, bound=0.5, seed=setup.seed
    )


def _leaves_itself(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    layers = layers_of(records)
    values: dict[str, Examples] = {
        f"layer {layer}": at(records, "globenc", OWN, layer) for layer in (layers[0], layers[-1])
    }
    return order(values, [(f"layer {layers[0]}", f"layer {layers[-1]}")], seed=setup.seed)


@experiment(
    name="globenc-own-token",
    paper=GLOBENC,
    shows="Figure 1, [CLS] by layer (section 4.5.5)",
    data="sentiment",
    model="sentiment",
    methods=("globenc",),
    finish=finish_own,
    figure=lambda setup, tables, figure: lines(tables[0], figure.subplots(), band=True),
    takes="map",
    differs=(
        "The paper shows two sentences, and so does `mixlens plot --kind layers --rollout`; this is the mean over many.",
    ),
    claims=(
        Claim(
            "Figure 1, section 4.5.5",
            "In the first few layers [CLS] attends mostly to itself: read here as more than half of its attribution, in each "
            "layer of the first quarter (1 to 3 of 12).",
            "pictures of two sentences",
            _starts_with_itself,
        ),
        Claim(
            "Figure 1, section 4.5.5",
            "In deeper layers its attribution moves to other tokens: its own share is lower in the last layer than in the first.",
            "pictures of two sentences",
            _leaves_itself,
        ),
    ),
)
def own_token(setup: Setup, example: Example) -> list[Record]:
    """How much of the attribution of the token that predicts is its own, layer by layer?"""
    trace = setup.model.trace(example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        whole = rolled(scores, PRODUCT, setup.requests[method].rollout)
        shares = rows_to_one(whole.scores.double())[0][:, trace.query, trace.query]
        records += [
            Record(str(example.id), method, OWN, float(share), {"layer": i}) for i, share in enumerate(shares, 1)
        ]
    return records
