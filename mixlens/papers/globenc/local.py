"""GlobEnc within one layer: Figure 4 (maps against Hidden Token Attribution) and Figure 5 (the weights of the two norms)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import InputError, nearest
from ...metrics.agreement import GLOBENC, map_agreement, row_agreement
from ...metrics.geometry import NormOutliers, norm_outliers, norm_weights
from ...runs.experiments.claims import DIFFERENT, SAME, UNDECIDED, Claim, Verdict, above, most
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table, by
from ...scoring.asking import map_of, maps_of, parse_method
from ...scoring.maps import known as maps
from ...types import Example, Map, Record
from .main import NAMES, known_confidence, lines, mean_of, per_layer, rows_of

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
    confidence = setup.options["confidence"]
    note = f"Mean over texts and {100 * confidence:g} % interval. *whole map*: all entries of a layer's map at once. *row by row*: "
    note += (
        f"mean over a text's rows; {_undefined(records)} rows (over all methods and layers) are constant and have none. "
        + NAMES
    )
    return [per_layer("hta", title, records, ("method", "metric"), seed=setup.seed, note=note, confidence=confidence)]


def _undefined(records: Sequence[Record]) -> int:
    return sum(int(record.info["undefined"]) for record in records)


def figure_hta(setup: Setup, tables: list[Table], figure: Any) -> None:
    both = figure.subplots(1, 2, sharey=True)
    for axes, how in zip(both, (WHOLE, ROWS), strict=True):
        lines(rows_of(tables[0], how), axes, band=True)
        axes.set_title(how)
    both[0].set_ylabel(f"correlation with {setup.options['reference']}")
    both[1].legend(fontsize=6)


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
            "Within single layers N_RESLN is considerably less associated with HTA than N_RES and N_ENC (here: by any margin).",
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
LARGE = -0.5  # a correlation below it counts as large and negative
SHOWN = 11  # the layer whose weights Figure 5 shows


def finish_outliers(setup: Setup, records: list[Record]) -> list[Table]:
    rows = tuple(
        _outlier_row(int(layer), _by_metric(group)) for (layer,), group in by(_with(records, OUTLIERS), "layer").items()
    )
    note = f"Outliers: at least {setup.options['sigma']} standard deviations from the mean of a norm's weights."
    table = Table("outliers", "Outlier weights of the two norms of a layer", ("layer", *OUTLIERS), rows, note)
    return [table, _weights_table(_with(records, WEIGHT))]


def _with(records: Sequence[Record], metrics: Sequence[str]) -> list[Record]:
    return [record for record in records if record.metric in metrics]


def _by_metric(records: Sequence[Record]) -> dict[str, float]:
    return {record.metric: record.value for record in records}


def _outlier_row(layer: int, values: Mapping[str, float]) -> tuple[Any, ...]:
    counts = (int(values[name]) for name in OUTLIERS[:3])
    return layer, *counts, *(values[name] for name in CORRELATED)


def _weights_table(records: Sequence[Record]) -> Table:
    """The outlier features of the layer that is shown, with their weights in both norms."""
    groups = {int(feature): _by_metric(group) for (feature,), group in by(records, "feature").items()}
    rows = tuple((feature, *(values[name] for name in WEIGHT)) for feature, values in groups.items())
    shown = f"in layer {records[0].info['layer']}" if records else "(the layer has none)"
    return Table("weights", f"Weights of the outlier features {shown}", ("feature", *WEIGHT), rows)


def figure_outliers(setup: Setup, tables: list[Table], figure: Any) -> None:
    counts, correlations, weights = figure.subplots(1, 3)
    _draw(counts, tables[0], OUTLIERS[:3], "outlier weights")
    _draw(correlations, tables[0], CORRELATED, "Pearson of the two norms' weights")
    weights.scatter(tables[1].column(WEIGHT[0]), tables[1].column(WEIGHT[1]), s=12)
    weights.set_xlabel(WEIGHT[0])
    weights.set_ylabel(WEIGHT[1])
    weights.set_title(tables[1].title.removeprefix("Weights of the "), fontsize=8)


def _draw(axes: Any, table: Table, names: Sequence[str], label: str) -> None:
    """Columns of a table as lines over layers."""
    for name in names:
        axes.plot(table.column("layer"), table.column(name), marker=".", label=name)
    axes.set_ylabel(label)
    axes.set_xlabel("layer")
    axes.legend(fontsize=6)


def known_sigma(setup: Setup) -> None:
    sigma = setup.options["sigma"]
    if not isinstance(sigma, int | float) or not sigma > 0:
        raise InputError(f"sigma= is a number of standard deviations above 0, not {sigma!r}.")
    known_layer(setup)


def known_layer(setup: Setup) -> None:
    layer = setup.options["layer"]
    if layer is not None and layer not in range(1, setup.model.n_layers + 1):
        raise InputError(f"layer= is a layer of the model, 1 to {setup.model.n_layers}, not {layer!r}.")


def _opposite(setup: Any, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """A layer's correlation is known exactly: it has no interval. Two points always have one of 1 or -1: they are left out."""
    layers = {layer: _by_metric(group) for (layer,), group in by(_with(records, OUTLIERS), "layer").items()}
    words = {
        f"layer {layer}": _word(values[CORRELATED[1]]) for layer, values in layers.items() if _features(values) > 2
    }
    return most(words, against="not beyond the bound")


def _features(values: Mapping[str, float]) -> float:
    """How many features are outliers in one norm or the other."""
    first, second, both = (values[name] for name in OUTLIERS[:3])
    return first + second - both


def _word(correlation: float) -> str:
    """The correlation of two norms' weights has no interval: it is above or below the bound."""
    if math.isnan(correlation):
        return UNDECIDED
    return SAME if correlation < LARGE else DIFFERENT


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
            "The outlier weights of a layer's two norms are contrary: their correlation is negative and large (below -0.5), in "
            "almost every layer with three outlier features or more.",
            "large negative correlations, a curve",
            _opposite,
        ),
    ),
)
def ln_outliers(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """Does a layer's second norm undo what the outlier weights of its first norm enlarge? (The model alone is asked.)"""
    if "weights" in setup.done:
        return
    layers = norm_outliers(setup.model, sigma=setup.options["sigma"])
    records = [record for layer in layers for record in _outlier_records(layer)]
    yield "weights", [*records, *_shown_weights(setup, {one.layer + 1: one for one in layers})]


def _outlier_records(one: NormOutliers) -> list[Record]:
    values = (len(one.first), len(one.second), len(one.shared), one.pearson, one.pearson_at_outliers)
    return [
        Record("-", "-", name, float(value), {"layer": one.layer + 1})
        for name, value in zip(OUTLIERS, values, strict=True)
    ]


def _shown_weights(setup: Setup, layers: Mapping[int, NormOutliers]) -> list[Record]:
    """The weights of the outlier features of one layer; none where the layer does not have two norms."""
    layer = setup.options["layer"] or _shown_layer(layers)
    if layer not in layers:
        return []
    both = norm_weights(setup.model)[layer - 1]
    return [
        Record("-", "-", name, float(weights[feature]), {"layer": layer, "feature": feature})
        for feature in sorted({*layers[layer].first, *layers[layer].second})
        for name, weights in zip(WEIGHT, both, strict=True)
    ]


def _shown_layer(layers: Mapping[int, NormOutliers]) -> int:
    """Layer 11 as in Figure 5; of fewer layers the last but one."""
    return SHOWN if SHOWN in layers else sorted(layers)[-2:][0]
