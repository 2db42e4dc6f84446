"""GlobEnc layer by layer: Figure 3 (correlation with saliency), Table 2 (single layers against rollout), Figure 1
([CLS])."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

from ...base.errors import InputError
from ...metrics.agreement import layer_agreement
from ...metrics.intervals import mean_with_interval
from ...runs.experiments.claims import Claim, Measured, Published, Rule, Values
from ...runs.experiments.experiment import Setup
from ...runs.experiments.layer_curves import first_quarter
from ...runs.experiments.tables import Table, layer_records
from ...scoring.aggregate import rows_to_one
from ...scoring.asking import maps_of
from ...types import Example, Record
from .main import (
    FAMILY,
    NAMES,
    ROLLED,
    SALIENCY,
    both_ways,
    globenc,
    known_confidence,
    known_reference,
    lines,
    per_layer,
    reference_of,
    rolled,
)

ALONE, PRODUCT = ROLLED[:2]
AGGREGATED = ("norm", "norm_residual", "globenc")  # the rows of Table 2
RISING = "attention_residual"  # W_RES
WEIGHTS = (("norm", "attention"), ("norm_residual", "attention_residual"))  # section 4.5.1
FIRST, MIDDLE, LAST, MOST = "first layer", "middle layer", "last layer", "highest of all layers"


# --- Figure 3 and Table 2 ---------------------------------------------------------------------------------------------


def finish_layers(setup: Setup, records: list[Record]) -> list[Table]:
    title = f"Spearman with `{setup.options['reference']}` ({setup.options['over']})"
    confidence = setup.options["confidence"]
    note = f"Mean over examples and {100 * confidence:g} % interval. *rolled out*: the matrices as they are, as "
    note += f"published. {NAMES}"
    whole = per_layer("layers", title, records, ("method", "metric"), seed=setup.seed, note=note, confidence=confidence)
    run, rows = Measured(setup, records, []), []
    for metric, method in product((ALONE, PRODUCT), AGGREGATED):
        values = {layer: list(run[method, metric, layer].values()) for layer in run.layers}
        if all(values.values()):
            best = max(values, key=lambda layer: mean_with_interval(values[layer], resamples=1).mean)
            for place, layer in zip((FIRST, MIDDLE, LAST, MOST), (1, run.middle, run.last, best), strict=True):
                rows.append((metric, method, place, mean_with_interval(values[layer], seed=setup.seed)))
    told = "The highest of all layers is that with the highest mean. Means with 95 % intervals."
    columns = ("metric", "method", "layer", "spearman")
    return [whole, Table("table2", "Single layers against rollout", columns, tuple(rows), told)]


def known_over(setup: Setup) -> None:
    known_reference(setup)
    known_confidence(setup)
    if setup.options["over"] not in ("row", "sum"):
        raise InputError(f"over= is row or sum, not {setup.options['over']!r}.")


def _in_most_layers(pairs: Sequence[tuple[str, str]]) -> Rule:
    """The claim that the first of each pair, rolled out, is above the second in almost every layer."""
    names = dict.fromkeys(name for pair in pairs for name in pair)
    return lambda run: run.in_most(
        {f"layer {layer}": {name: run[name, PRODUCT, layer] for name in names} for layer in run.layers}, pairs
    )


def _gain(run: Measured, method: str, layers: Any) -> Values:
    """What rollout adds in a layer, or in the mean of some layers."""
    return run[method, PRODUCT, layers] - run[method, ALONE, layers]


TABLE2 = Published(
    "Table 2",
    "BERT-base, SST2, layers 1, 6, 12",
    "spearman",
    {
        (metric, method, place): cell
        for metric, method, *cells in (
            (ALONE, "norm", "-0.50 ± .18", "+0.28 ± .23", "+0.40 ± .21", "+0.41 ± .21"),
            (ALONE, "norm_residual", "-0.48 ± .18", "+0.29 ± .24", "+0.41 ± .19", "+0.41 ± .19"),
            (ALONE, "globenc", "-0.47 ± .18", "+0.29 ± .24", "+0.41 ± .19", "+0.41 ± .19"),
            (PRODUCT, "norm", "-0.50 ± .18", "+0.44 ± .20", "+0.44 ± .20", "+0.44 ± .20"),
            (PRODUCT, "norm_residual", "-0.48 ± .18", "+0.70 ± .14", "+0.73 ± .13", "+0.73 ± .13"),
            (PRODUCT, "globenc", "-0.47 ± .18", "+0.74 ± .14", "+0.77 ± .12", "+0.78 ± .12"),
        )
        for place, cell in zip((FIRST, MIDDLE, LAST, MOST), cells, strict=True)
    },
    table="table2",
    keys=3,
    std=True,
)


CLAIMS = (
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
        "The curves flatten after a few layers: the first half of the layers adds more than the second (N, N_RES, "
        "N_ENC).",
        "curves; N_ENC: -0.47 in layer 1, 0.74 in layer 6, 0.77 in layer 12",
        lambda run: run.positive(
            {
                name: 2 * run[name, PRODUCT, run.middle] - run[name, PRODUCT, run.first] - run[name, PRODUCT, run.last]
                for name in AGGREGATED
            }
        ),
    ),
    Claim(
        "Figure 3, footnote 11",
        "W_RES increases constantly: it is higher in each layer than in the one before.",
        "a curve",
        lambda run: run.positive(
            {
                f"layer {layer} - layer {one}": run[RISING, PRODUCT, layer] - run[RISING, PRODUCT, one]
                for one, layer in pairwise(run.layers)
            }
        ),
    ),
    Claim(
        "Figure 3, footnote 11",
        "W_RES is the only exception: in the second half of the layers it rises more than N, N_RES and N_ENC do.",
        "a curve",
        lambda run: run.order(
            {name: run[name, PRODUCT, run.last] - run[name, PRODUCT, run.middle] for name in (RISING, *AGGREGATED)},
            [(RISING, name) for name in AGGREGATED],
        ),
    ),
    Claim(
        "Table 2, section 4.5.4",
        "Rollout correlates more than single layers, in the middle layer and in the last (N, N_RES, N_ENC).",
        "layer 6: 0.44, 0.70, 0.74 against 0.28, 0.29, 0.29; layer 12: 0.44, 0.73, 0.77 against 0.40, 0.41, 0.41",
        lambda run: run.positive(
            {
                f"{name}, layer {layer}": _gain(run, name, layer)
                for layer in (run.middle, run.last)
                for name in AGGREGATED
            }
        ),
    ),
    Claim(  # in the first layer alone it adds nothing: the map rolled out is that layer's own
        "Table 2, section 4.5.4",
        "Rollout helps especially in deeper layers: read here as more in the second half of the layers than in the "
        "first (N, N_RES, N_ENC).",
        "N_ENC: nothing in layer 1, 0.45 in layer 6, 0.36 in layer 12",
        lambda run: run.positive(
            {
                f"{name}: second half - first half": _gain(run, name, range(run.middle + 1, run.last + 1))
                - _gain(run, name, range(1, run.middle + 1))
                for name in AGGREGATED
            }
        ),
    ),
)


@globenc(
    name="globenc-layers",
    packages=("scipy",),
    shows="Figure 3 and Table 2",
    methods=FAMILY,
    finish=finish_layers,
    figure=lambda setup, tables, figure: both_ways(setup, tables[0], (ALONE, PRODUCT), "Spearman with", figure),
    task=("classification", "masked-lm"),
    takes="map",
    options={"reference": "grad_x_input_l2", "over": "row", "target": "true", "classes": "", "confidence": 0.99},
    prepare=known_over,
    differs=(
        SALIENCY,
        "Table 2 has layers 1, 6 and 12 of 12. In a model of another depth they are the first, the one half-way and "
        "the last.",
    ),
    published=(TABLE2,),
    claims=CLAIMS,
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
            records += layer_records(example.id, method, how, values)
    return records


# --- Figure 1: the token that predicts --------------------------------------------------------------------------------

OWN = "own share"


def finish_own(setup: Setup, records: list[Record]) -> list[Table]:
    note = "The share that the token itself has in its row of the rolled-out map, rows to 1. Mean and 95 % interval."
    title = "How much of [CLS] is still [CLS]"
    return [per_layer("own", title, records, ("method",), seed=setup.seed, note=note)]


def _own(run: Measured, layers: Sequence[int]) -> dict[str, Values]:
    return {f"layer {layer}": run["globenc", OWN, layer] for layer in layers}


@globenc(
    name="globenc-own-token",
    shows="Figure 1, [CLS] by layer (section 4.5.5)",
    methods=("globenc",),
    finish=finish_own,
    figure=lambda setup, tables, figure: lines(tables[0], figure.subplots(), band=True),
    takes="map",
    differs=(
        "The paper shows two sentences, and so does `mixlens plot --kind layers --rollout`; this is the mean over "
        "many.",
    ),
    claims=(
        Claim(
            "Figure 1, section 4.5.5",
            "In the first few layers [CLS] attends mostly to itself: read here as more than half of its attribution, "
            "in each layer of the first quarter (1 to 3 of 12).",
            "pictures of two sentences",
            lambda run: run.positive(_own(run, range(1, first_quarter(run.last) + 1)), bound=0.5),
        ),
        Claim(
            "Figure 1, section 4.5.5",
            "In deeper layers its attribution moves to other tokens: its own share is lower in the last layer than in "
            "the first.",
            "pictures of two sentences",
            lambda run: run.order(_own(run, (run.first, run.last)), [(f"layer {run.first}", f"layer {run.last}")]),
        ),
    ),
)
def own_token(setup: Setup, example: Example) -> list[Record]:
    """How much of the attribution of the token that predicts is its own, layer by layer?"""
    trace = setup.model.trace(example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        whole = rolled(scores, PRODUCT, setup.requests[method].rollout)
        records += layer_records(
            example.id, method, OWN, rows_to_one(whole.scores.double())[0][:, trace.query, trace.query]
        )
    return records
