"""GlobEnc within one layer: Figure 4 (maps against Hidden Token Attribution) and Figure 5 (the weights of the two
norms)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...base.errors import InputError, nearest
from ...metrics.agreement import map_agreement, row_agreement
from ...metrics.geometry import norm_outliers, norm_weights
from ...runs.experiments.claims import DIFFERENT, SAME, UNDECIDED, Claim, Measured, Verdict, above, most
from ...runs.experiments.experiment import Setup
from ...runs.experiments.tables import Table, by
from ...scoring.asking import map_of, maps_of, parse_method
from ...scoring.maps import known as maps
from ...types import Example, Record
from .main import NAMES, both_ways, globenc, known_confidence, mean_of, per_layer

# --- Figure 4: Hidden Token Attribution -------------------------------------------------------------------------------

WHOLE, ROWS, RELEASED = "pearson, whole map", "pearson, row by row", "spearman, row by row"
BY_ROW = {ROWS: "pearson", RELEASED: "spearman"}
LOCAL = ("norm_residual", "norm_residual_ln", "globenc")  # the maps of Figure 4


def known_map_reference(setup: Setup) -> None:
    name = setup.options["reference"]
    if str(name).split(":")[0] not in maps():
        raise InputError(f"reference= is a map method here, not {name!r}. {nearest(str(name), maps())}")
    parse_method(name)
    known_confidence(setup)


def finish_hta(setup: Setup, records: list[Record]) -> list[Table]:
    title, confidence = f"Agreement with `{setup.options['reference']}`", setup.options["confidence"]
    undefined = sum(int(record.info["undefined"]) for record in records)
    note = (
        f"Mean over texts and {100 * confidence:g} % interval. *whole map*: all entries of a layer's map at once. "
        f"*row by row*: mean over a text's rows; {undefined} rows (over all methods and layers) are constant and have "
        f"none. {NAMES}"
    )
    return [per_layer("hta", title, records, ("method", "metric"), seed=setup.seed, note=note, confidence=confidence)]


@globenc(
    name="globenc-hta",
    packages=("scipy",),
    shows="Figure 4, correlation with HTA by layer",
    methods=LOCAL,
    finish=finish_hta,
    figure=lambda setup, tables, figure: both_ways(setup, tables[0], (WHOLE, ROWS), "correlation with", figure),
    takes="map",
    options={"reference": "hta_layer_x_input", "confidence": 0.99},
    prepare=known_map_reference,
    differs=(
        "The paper does not say whether the correlation of two maps is over all entries or row by row; both are in "
        "the table. The claims are judged over all entries: rows alone do not see how large one row is beside "
        "another, which is what a norm changes. The released code has Spearman row by row.",
        "HTA x Inputs (eq. 18) is computed in closed form, not by one backward pass for each feature; the numbers are "
        "the same.",
    ),
    claims=(
        Claim(
            "Figure 4, section 4.5.3",
            "Within single layers N_RESLN is considerably less associated with HTA than N_RES and N_ENC (here: by any "
            "margin).",
            "curves",
            above(("norm_residual", "globenc"), ("norm_residual_ln",), WHOLE),
        ),
        Claim(
            "Figure 4, section 6",
            "Within single layers N_ENC is more accurate than the partial maps N_RES and N_RESLN.",
            "curves",
            above("globenc", ("norm_residual", "norm_residual_ln"), WHOLE),
        ),
    ),
)
def hta(setup: Setup, example: Example) -> list[Record]:
    """Within one layer, does a map spread a position's row as the layer's own Jacobian (HTA) does?"""
    trace = setup.model.trace(example)
    reference = map_of(trace, setup.options["reference"])
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        rows = {name: row_agreement(scores, reference, how=how) for name, how in BY_ROW.items()}
        found = [(WHOLE, layer, float(one), 0) for layer, one in enumerate(map_agreement(scores, reference), 1)]
        found += [(name, layer, *mean_of(row)) for name, layers in rows.items() for layer, row in enumerate(layers, 1)]
        records += [
            Record(str(example.id), method, metric, value, {"layer": layer, "undefined": undefined})
            for metric, layer, value, undefined in found
        ]
    return records


# --- Figure 5: the norms' weights -------------------------------------------------------------------------------------

CORRELATED = ("pearson", "pearson at outliers")
OUTLIERS = ("first norm", "second norm", "both", *CORRELATED)
WEIGHT = ("weight in the first norm", "weight in the second norm")
LABELS = ("outlier weights", "Pearson of the two norms' weights")
LARGE = -0.5  # a correlation below it counts as large and negative
SHOWN = 11  # the layer whose weights Figure 5 shows


def finish_outliers(setup: Setup, records: list[Record]) -> list[Table]:
    counted = [record for record in records if record.metric in OUTLIERS]
    rows = tuple(
        (int(layer), *(_of(group)[name] for name in OUTLIERS)) for (layer,), group in by(counted, "layer").items()
    )
    note = f"Outliers: at least {setup.options['sigma']} standard deviations from the mean of a norm's weights."
    table = Table("outliers", "Outlier weights of the two norms of a layer", ("layer", *OUTLIERS), rows, note)
    of_weights = [record for record in records if record.metric in WEIGHT]
    groups = by(of_weights, "feature").items()
    weights = tuple((int(feature), *(_of(group)[name] for name in WEIGHT)) for (feature,), group in groups)
    shown = f"in layer {of_weights[0].info['layer']}" if of_weights else "(the layer has none)"
    return [table, Table("weights", f"Weights of the outlier features {shown}", ("feature", *WEIGHT), weights)]


def _of(records: list[Record]) -> dict[str, float]:
    """metric -> value; a number of features is whole."""
    return {r.metric: int(r.value) if r.metric in OUTLIERS[:3] else r.value for r in records}


def figure_outliers(setup: Setup, tables: list[Table], figure: Any) -> None:
    *both, weights = figure.subplots(1, 3)
    table = tables[0]
    for axes, names, label in zip(both, (OUTLIERS[:3], CORRELATED), LABELS, strict=True):
        for name in names:
            axes.plot(table.column("layer"), table.column(name), marker=".", label=name)
        axes.set_ylabel(label)
        axes.set_xlabel("layer")
        axes.legend(fontsize=6)
    weights.scatter(*(tables[1].column(name) for name in WEIGHT), s=12)
    weights.set_xlabel(WEIGHT[0])
    weights.set_ylabel(WEIGHT[1])
    weights.set_title(tables[1].title.removeprefix("Weights of the "), fontsize=8)


def known_sigma(setup: Setup) -> None:
    sigma, layer = setup.options["sigma"], setup.options["layer"]
    if not isinstance(sigma, int | float) or not sigma > 0:
        raise InputError(f"sigma= is a number of standard deviations above 0, not {sigma!r}.")
    if layer is not None and layer not in range(1, setup.model.n_layers + 1):
        raise InputError(f"layer= is a layer of the model, 1 to {setup.model.n_layers}, not {layer!r}.")


def _opposite(run: Measured) -> Verdict:
    """A layer's correlation is known exactly: it has no interval. Two points always have one of 1 or -1: they are left
    out."""
    words = {}
    for (layer,), group in by([record for record in run.records if record.metric in OUTLIERS], "layer").items():
        first, second, both, _, correlation = (_of(group)[name] for name in OUTLIERS)
        if first + second - both > 2:
            word = SAME if correlation < LARGE else DIFFERENT
            words[f"layer {layer}"] = UNDECIDED if math.isnan(correlation) else word
    return most(words, against="not beyond the bound")


@globenc(
    name="globenc-ln-outliers",
    shows="Figure 5, the norms' outlier weights (section 4.5.3)",
    finish=finish_outliers,
    figure=figure_outliers,
    whole=True,
    options={"sigma": 3.0, "layer": None},
    prepare=known_sigma,
    differs=(
        "The scatter shows the outlier features of layer 11, or of the last layer but one where a model has fewer "
        "than 11 layers (`layer=` takes another).",
    ),
    claims=(
        Claim(
            "Figure 5, section 4.5.3",
            "The outlier weights of a layer's two norms are contrary: their correlation is negative and large (below "
            "-0.5), in almost every layer with three outlier features or more.",
            "large negative correlations, a curve",
            _opposite,
        ),
    ),
)
def ln_outliers(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """Does a layer's second norm undo what the outlier weights of its first norm enlarge? (The model alone is
    asked.)"""
    if "weights" in setup.done:
        return
    layers = {one.layer + 1: one for one in norm_outliers(setup.model, sigma=setup.options["sigma"])}
    records = []
    for layer, one in layers.items():
        values = (len(one.first), len(one.second), len(one.shared), one.pearson, one.pearson_at_outliers)
        found = zip(OUTLIERS, values, strict=True)
        records += [Record("-", "-", name, float(value), {"layer": layer}) for name, value in found]
    # The weights of one layer, 11 as in Figure 5, of fewer layers the last but one; none where it does not have two
    # norms.
    shown = setup.options["layer"] or (SHOWN if SHOWN in layers else sorted(layers)[-2:][0])
    if shown in layers:
        both = list(zip(WEIGHT, norm_weights(setup.model)[shown - 1], strict=True))
        for feature in sorted({*layers[shown].first, *layers[shown].second}):
            info = {"layer": shown, "feature": feature}
            records += [Record("-", "-", name, float(weights[feature]), info) for name, weights in both]
    yield "weights", records
