"""GlobEnc's evaluations (Modarressi et al. 2022, sections 4 and 5): which map says what the gradient says, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..asking import attribution_of, map_of, maps_of, parse_method
from ..attributions import known as attributions
from ..errors import InputError, nearest
from ..maps import known as maps
from ..metrics.agreement import GLOBENC, layer_agreement, row_agreement
from ..metrics.geometry import norm_outliers
from ..metrics.intervals import Interval, mean_with_interval
from ..types import Example, Map, Record, Trace
from .experiment import Setup, experiment
from .tables import Table, by

FAMILY = (  # in the order of the paper's Table 1
    "attention",
    "attention_fixed_residual",
    "attention_residual",
    "norm",
    "norm_fixed_residual",
    "norm_residual",
    "norm_residual_ln",
    "globenc",
)
ROLLED = ("alone", "rolled out", "rolled out, rows to 1")  # how a map is read
READ = ("row", "sum")  # GlobEnc's CLS and SUM


def rolled(scores: Map, how: str, convention: str | None = None) -> Map:
    """A map alone, or the product over layers: of the family's matrices as they are (as published), or with rows summing to 1.

    Maps of other papers are rolled out as those papers do, and with rows summing to 1. A `convention` overrides the former.
    """
    if how == "alone":
        return scores
    if how == "rolled out":
        return scores.rollout(convention or ("globenc" if scores.method in FAMILY else None))
    return scores.rollout(None if scores.info["convention"] == "input" else "toolkit")


def reference_of(setup: Setup, trace: Trace) -> Any:
    """The scores that the maps are compared with: an attribution to the predicted class, such as gradient x input."""
    return attribution_of(trace, parse_method(setup.options["reference"]))


def known_reference(setup: Setup) -> None:
    """Refuse an unknown reference before the long work."""
    name = setup.options["reference"]
    if str(name).split(":")[0] not in attributions():
        raise InputError(f"reference= is an attribution method, not {name!r}. {nearest(str(name), attributions())}")
    parse_method(name)


def known_map_reference(setup: Setup) -> None:
    name = setup.options["reference"]
    if str(name).split(":")[0] not in maps():
        raise InputError(f"reference= is a map method here, not {name!r}. {nearest(str(name), maps())}")
    parse_method(name)


# --- Table 1: the whole model ------------------------------------------------------------------------------------------


def finish_table1(setup: Setup, records: list[Record]) -> list[Table]:
    rows: list[tuple[Any, ...]] = []
    for (method,), some in by(records, "method").items():
        cells = [[r.value for r in some if r.metric == how] for how in ROLLED]
        rows.append((method, *(mean_with_interval(cell, seed=setup.seed) for cell in cells)))
    title = f"Spearman with `{setup.options['reference']}`, last layer"
    return [Table("table1", title, ("method", *ROLLED), tuple(rows), _NOTE)]


_NOTE = "Mean over examples and 95 % interval. *rolled out*: the matrices as they are for this family, as published."


def figure_table1(setup: Setup, tables: list[Table], figure: Any) -> None:
    axes, table = figure.subplots(), tables[0]
    places = np.arange(len(table.rows))
    for i, how in enumerate(ROLLED):
        cells = table.column(how)
        axes.barh(places + 0.27 * (1 - i), [cell.mean for cell in cells], height=0.25, label=how)
    axes.set_yticks(places, table.column("method"))
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.5)
    axes.set_xlabel(f"Spearman with {setup.options['reference']}")
    axes.legend()


@experiment(
    name="globenc-table1",
    packages=("scipy",),
    paper=GLOBENC,
    shows="Table 1",
    data="sentiment",
    model="sentiment",
    methods=FAMILY,
    finish=finish_table1,
    figure=figure_table1,
    task=("classification", "masked-lm"),
    takes="map",
    options={"reference": "grad_x_input_l2"},
    prepare=known_reference,
)
def table1(setup: Setup, example: Example) -> list[Record]:
    """Does a map, rolled out or alone, rank the input tokens as the gradient of the prediction does?"""
    trace = setup.model.trace(example)
    reference = reference_of(setup, trace)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        for how in ROLLED:
            whole = rolled(scores, how, setup.requests[method].rollout)
            last = layer_agreement(whole, reference, query=trace.query)[-1]
            records.append(Record(str(example.id), method, how, last, {"n": len(trace)}))
    return records


# --- per layer ----------------------------------------------------------------------------------------------------------


def per_layer(name: str, title: str, records: Sequence[Record], fields: Sequence[str], *, seed: int, note: str = "") -> Table:
    """One row for each group of records that agree in `fields`, one column for each layer."""
    layers = sorted({int(record.info["layer"]) for record in records})
    rows: list[tuple[Any, ...]] = []
    for key, some in by(records, *fields).items():
        of_layer = by(some, "layer")
        rows.append((*key, *(_mean(of_layer.get((layer,), []), seed) for layer in layers)))
    return Table(name, title, (*fields, *(f"layer {layer}" for layer in layers)), tuple(rows), note)


def _mean(records: Sequence[Record], seed: int) -> Any:
    """Mean and interval over examples. An example with several values counts as one: they are not drawn apart."""
    if not records:
        return None
    return mean_with_interval([r.value for r in records], groups=[r.example for r in records], seed=seed)


def lines(table: Table, axes: Any, *, labels: int = 1, **style: Any) -> None:
    """A row of a table is a line over layers; its first `labels` cells are its name."""
    rows: Any = table.rows
    for row in rows:
        means = [np.nan if cell is None else cell.mean for cell in row[-_depth(table) :]]
        axes.plot(range(1, len(means) + 1), means, marker=".", label=", ".join(str(cell) for cell in row[:labels]), **style)
    axes.set_xticks(range(1, _depth(table) + 1))
    axes.set_xlabel("layer")


def reach_of(intervals: Sequence[Interval]) -> Any:
    """[2 point]: how far an interval goes down and up; 0 where it is not known."""
    return np.nan_to_num([[i.mean - i.low for i in intervals], [i.high - i.mean for i in intervals]])


def _depth(table: Table) -> int:
    return sum(name.startswith("layer ") for name in table.columns)


def finish_layers(setup: Setup, records: list[Record]) -> list[Table]:
    title = f"Spearman with `{setup.options['reference']}` ({setup.options['over']})"
    return [per_layer("layers", title, records, ("method", "metric"), seed=setup.seed, note=_NOTE)]


def figure_layers(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, how in zip(figure.subplots(1, 2, sharey=True), ROLLED[:2], strict=True):
        kept = tuple(row for row in whole.rows if row[1] == how)
        lines(Table(whole.name, whole.title, whole.columns, kept), axes)
        axes.set_title(how)
    axes.legend(fontsize=6)


def known_over(setup: Setup) -> None:
    known_reference(setup)
    if setup.options["over"] not in READ:
        raise InputError(f"over= is row or sum, not {setup.options['over']!r}.")


@experiment(
    name="globenc-layers",
    packages=("scipy",),
    paper=GLOBENC,
    shows="Figures of correlation by layer",
    data="sentiment",
    model="sentiment",
    methods=FAMILY,
    finish=finish_layers,
    figure=figure_layers,
    task=("classification", "masked-lm"),
    takes="map",
    options={"reference": "grad_x_input_l2", "over": "row"},
    prepare=known_over,
)
def layers(setup: Setup, example: Example) -> list[Record]:
    """After how many layers does a map, rolled out or alone, rank the input tokens as the gradient does?"""
    trace = setup.model.trace(example)
    reference = reference_of(setup, trace)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        for how in ROLLED:
            whole = rolled(scores, how, setup.requests[method].rollout)
            values = layer_agreement(whole, reference, query=trace.query, over=setup.options["over"])
            records += [Record(str(example.id), method, how, value, {"layer": i}) for i, value in enumerate(values, 1)]
    return records


# --- HTA: within one layer ----------------------------------------------------------------------------------------------

HOW = ("pearson", "spearman")  # the paper's text, the released code


def finish_hta(setup: Setup, records: list[Record]) -> list[Table]:
    title = f"Row by row agreement with `{setup.options['reference']}`"
    undefined = sum(int(r.info["undefined"]) for r in records)
    note = f"Mean over a text's rows, then over texts. {undefined} rows (over all methods and layers) are constant and have none."
    return [per_layer("hta", title, records, ("method", "metric"), seed=setup.seed, note=note)]


def figure_hta(setup: Setup, tables: list[Table], figure: Any) -> None:
    whole = tables[0]
    for axes, how in zip(figure.subplots(1, 2, sharey=True), HOW, strict=True):
        lines(Table(whole.name, whole.title, whole.columns, tuple(row for row in whole.rows if row[1] == how)), axes)
        axes.set_title(f"{how} with {setup.options['reference']}")
    axes.legend(fontsize=6)


@experiment(
    name="globenc-hta",
    packages=("scipy",),
    paper=GLOBENC,
    shows="Figure of the correlation with HTA by layer",
    data="sentiment",
    model="sentiment",
    methods=FAMILY,
    finish=finish_hta,
    figure=figure_hta,
    takes="map",
    options={"reference": "hta_layer"},
    prepare=known_map_reference,
)
def hta(setup: Setup, example: Example) -> list[Record]:
    """Within one layer, does a map spread a position's row as the layer's own Jacobian (HTA) does?"""
    trace = setup.model.trace(example)
    reference = map_of(trace, setup.options["reference"])
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        for how in HOW:
            for i, row in enumerate(row_agreement(scores, reference, how=how), 1):
                value, undefined = mean_of(row)
                records.append(Record(str(example.id), method, how, value, {"layer": i, "undefined": undefined}))
    return records


def mean_of(values: Any) -> tuple[float, int]:
    """The mean of those that have a value, and how many have none."""
    missing = np.isnan(values)
    return (float(np.nan) if missing.all() else float(values[~missing].mean())), int(missing.sum())


# --- the norms' weights -------------------------------------------------------------------------------------------------


def finish_outliers(setup: Setup, records: list[Record]) -> list[Table]:
    rows: list[tuple[Any, ...]] = []
    for (layer,), some in by(records, "layer").items():
        found = {record.metric: record.value for record in some}
        rows.append((int(layer), *(found[name] if name in CORRELATED else int(found[name]) for name in OUTLIERS)))
    note = f"Outliers: more than {setup.options['sigma']} standard deviations from the mean of a norm's weights."
    return [Table("outliers", "Outlier weights of the two norms of a layer", ("layer", *OUTLIERS), tuple(rows), note)]


CORRELATED = ("pearson", "pearson at outliers")
OUTLIERS = ("first norm", "second norm", "both", *CORRELATED)


def figure_outliers(setup: Setup, tables: list[Table], figure: Any) -> None:
    counts, correlations = figure.subplots(1, 2)
    for name in OUTLIERS:
        axes = correlations if name in CORRELATED else counts
        axes.plot(tables[0].column("layer"), tables[0].column(name), marker=".", label=name)
    counts.set_ylabel("outlier weights")
    correlations.set_ylabel("Pearson of the two norms' weights")
    for axes in (counts, correlations):
        axes.set_xlabel("layer")
        axes.legend()


def known_sigma(setup: Setup) -> None:
    sigma = setup.options["sigma"]
    if not isinstance(sigma, int | float) or not sigma > 0:
        raise InputError(f"sigma= is a number of standard deviations above 0, not {sigma!r}.")


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
    options={"sigma": 3.0},
    prepare=known_sigma,
)
def ln_outliers(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """Does a layer's second norm undo what the outlier weights of its first norm enlarge? (The model alone is asked.)"""
    if "weights" in setup.done:
        return
    records = []
    for one in norm_outliers(setup.model, sigma=setup.options["sigma"]):
        values = (len(one.first), len(one.second), len(one.shared), one.pearson, one.pearson_at_outliers)
        records += [Record("-", "-", n, float(v), {"layer": one.layer + 1}) for n, v in zip(OUTLIERS, values, strict=True)]
    yield "weights", records
