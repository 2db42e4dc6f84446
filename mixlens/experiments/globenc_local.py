"""GlobEnc within one layer: Figure 4 (maps against Hidden Token Attribution) and Figure 5 (the weights of the two norms)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..asking import map_of, maps_of, parse_method
from ..errors import InputError, nearest
from ..maps import known as maps
from ..metrics.agreement import GLOBENC, map_agreement, row_agreement
from ..metrics.geometry import norm_outliers, norm_weights
from ..types import Example, Map, Record
from .claims import DIFFERENT, SAME, Claim, Verdict, above, most
from .experiment import Setup, experiment
from .globenc import known_confidence, lines, mean_of, per_layer
from .tables import Table, by

# --- Figure 4: Hidden Token Attribution -----------------------------------------------------------------------------------

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
    title = f"Agreement with `{setup.options['reference']}`"
    undefined = sum(int(r.info["undefined"]) for r in records)
    confidence = setup.options["confidence"]
    note = f"Mean over texts and {100 * confidence:g} % interval. *whole map*: all entries of a layer's map at once. "
    note += f"*row by row*: mean over a text's rows; {undefined} rows (over all methods and layers) are constant and have none."
    return [per_layer("hta", title, records, ("method", "metric"), seed=setup.seed, note=note, confidence=confidence)]


def figure_hta(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, how in zip(figure.subplots(1, 2, sharey=True), (WHOLE, ROWS), strict=True):
        drawn = Table(whole.name, whole.title, whole.columns, tuple(row for row in whole.rows if row[1] == how))
        lines(drawn, axes, band=True)
        axes.set_title(how)
    axes.legend(fontsize=6)


@experiment(
    name="globenc-hta",
    packages=("scipy",),
    paper=GLOBENC,
    shows="Figure 4, correlation with HTA by layer",
    data="sentiment",
    model="sentiment",
    methods=LOCAL,
    finish=finish_hta,
    figure=figure_hta,
    takes="map",
    options={"reference": "hta_layer_x_input", "confidence": 0.99},
    prepare=known_map_reference,
    differs=(
        "The paper does not say whether the correlation of two maps is over all entries or row by row; both are in the table. "
        "The claims are judged over all entries: rows alone do not see how large one row is beside another, which is what a norm "
        "changes. The released code has Spearman row by row.",
        "HTA x Inputs (eq. 18) is computed in closed form, not by one backward pass for each feature; the numbers are the same.",
    ),
    claims=(
        Claim(
            "Figure 4, section 4.5.3",
            "N_RESLN is considerably less associated with HTA than N_RES and N_ENC, within single layers.",
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
    return [
        Record(str(example.id), method, metric, value, {"layer": layer, "undefined": undefined})
        for method, scores in maps_of(trace, setup.requests).items()
        for metric, layer, value, undefined in _agreements(scores, reference)
    ]


def _agreements(scores: Map, reference: Map) -> Iterator[tuple[str, int, float, int]]:
    """(metric, layer, value, rows without a value) of one map."""
    for layer, value in enumerate(map_agreement(scores, reference), 1):
        yield WHOLE, layer, float(value), 0
    for metric, how in BY_ROW.items():
        for layer, row in enumerate(row_agreement(scores, reference, how=how), 1):
            yield metric, layer, *mean_of(row)


# --- Figure 5: the norms' weights -----------------------------------------------------------------------------------------

CORRELATED = ("pearson", "pearson at outliers")
OUTLIERS = ("first norm", "second norm", "both", *CORRELATED)
WEIGHT = ("weight in the first norm", "weight in the second norm")
SHOWN = 11  # the layer whose weights Figure 5 shows


def finish_outliers(setup: Setup, records: list[Record]) -> list[Table]:
    counts = [record for record in records if record.metric in OUTLIERS]
    rows: list[tuple[Any, ...]] = []
    for (layer,), group in by(counts, "layer").items():
        values = {record.metric: record.value for record in group}
        rows.append((int(layer), *(values[name] if name in CORRELATED else int(values[name]) for name in OUTLIERS)))
    note = f"Outliers: at least {setup.options['sigma']} standard deviations from the mean of a norm's weights."
    table = Table("outliers", "Outlier weights of the two norms of a layer", ("layer", *OUTLIERS), tuple(rows), note)
    return [table, _weights_table([record for record in records if record.metric in WEIGHT])]


def _weights_table(records: Sequence[Record]) -> Table:
    """The outlier features of the layer that is shown, with their weights in both norms."""
    rows = []
    for (feature,), group in by(records, "feature").items():
        values = {record.metric: record.value for record in group}
        rows.append((int(feature), *(values[name] for name in WEIGHT)))
    layer = int(records[0].info["layer"]) if records else None
    title = "No layer has outlier weights to show" if layer is None else f"Weights of the outlier features in layer {layer}"
    return Table("weights", title, ("feature", *WEIGHT), tuple(rows))


def figure_outliers(setup: Setup, tables: list[Table], figure: Any) -> None:
    counts, correlations, weights = figure.subplots(1, 3)
    for name in OUTLIERS:
        axes = correlations if name in CORRELATED else counts
        axes.plot(tables[0].column("layer"), tables[0].column(name), marker=".", label=name)
    counts.set_ylabel("outlier weights")
    correlations.set_ylabel("Pearson of the two norms' weights")
    for axes in (counts, correlations):
        axes.set_xlabel("layer")
        axes.legend(fontsize=6)
    weights.scatter(tables[1].column(WEIGHT[0]), tables[1].column(WEIGHT[1]), s=12)
    weights.set_xlabel(WEIGHT[0])
    weights.set_ylabel(WEIGHT[1])
    weights.set_title(tables[1].title, fontsize=7)


def known_sigma(setup: Setup) -> None:
    sigma, layer = setup.options["sigma"], setup.options["layer"]
    if not isinstance(sigma, int | float) or not sigma > 0:
        raise InputError(f"sigma= is a number of standard deviations above 0, not {sigma!r}.")
    if layer is not None and layer not in range(1, setup.model.n_layers + 1):
        raise InputError(f"layer= is a layer of the model, 1 to {setup.model.n_layers}, not {layer!r}.")


def _opposite(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """A layer's correlation is known exactly: it has no interval. Layers without two different outliers have none."""
    known = {f"layer {r.info['layer']}": r.value for r in records if r.metric == CORRELATED[1] and not math.isnan(r.value)}
    return most({layer: SAME if value < 0 else DIFFERENT for layer, value in known.items()})


@experiment(
    name="globenc-ln-outliers",
    paper=GLOBENC,
    shows="Figure 5, the norms' outlier weights (section 4.5.3)",
    data="sentiment",
    model="sentiment",
    methods=(),
    finish=finish_outliers,
    figure=figure_outliers,
    whole=True,
    options={"sigma": 3.0, "layer": None},
    prepare=known_sigma,
    differs=(
        "The scatter shows the outlier features of layer 11, or of the last layer but one where a model has fewer than 11 layers "
        "(`layer=` takes another).",
    ),
    claims=(
        Claim(
            "Figure 5, section 4.5.3",
            "The outlier weights of a layer's two norms are contrary: their correlation is negative, in almost every layer.",
            "large negative correlations, a curve",
            _opposite,
        ),
    ),
)
def ln_outliers(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """Does a layer's second norm undo what the outlier weights of its first norm enlarge? (The model alone is asked.)"""
    if "weights" in setup.done:
        return
    records = []
    layers = norm_outliers(setup.model, sigma=setup.options["sigma"])
    for one in layers:
        values = (len(one.first), len(one.second), len(one.shared), one.pearson, one.pearson_at_outliers)
        records += [Record("-", "-", n, float(v), {"layer": one.layer + 1}) for n, v in zip(OUTLIERS, values, strict=True)]
    features = {one.layer + 1: sorted({*one.first, *one.second}) for one in layers}
    yield "weights", [*records, *_shown_weights(setup, features)]


def _shown_weights(setup: Setup, features: dict[int, list[int]]) -> list[Record]:
    """The weights of the outlier features of one layer."""
    layer = setup.options["layer"] or (SHOWN if SHOWN in features else sorted(features)[-2:][0])
    both = norm_weights(setup.model).get(layer - 1)
    return [
        Record("-", "-", name, float(weights[feature]), {"layer": layer, "feature": feature})
        for feature in features.get(layer, [])
        for name, weights in zip(WEIGHT, both or (), strict=True)
    ]
