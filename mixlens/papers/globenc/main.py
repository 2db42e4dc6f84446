"""GlobEnc's Tables 1, A.1 and A.2 (Modarressi et al. 2022): which map of the whole model says what the gradient says.

What its other experiments share is here too: how maps are read, the class that is explained, tables by layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...base.errors import InputError, nearest
from ...data.labels import label_ids, names_classes
from ...metrics.agreement import GLOBENC, layer_agreement
from ...metrics.intervals import Interval
from ...runs.experiments.claims import Claim, Published, above, pairs_above
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.tables import Table, wide_rows
from ...scoring.asking import attribution_of, maps_of, parse_method
from ...scoring.attributions import known as attributions
from ...types import Example, Map, Record, Trace

globenc = partial(experiment, paper=GLOBENC, data="sentiment", model="sentiment")
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
SYMBOLS = ("W", "W_FIXEDRES", "W_RES", "N", "N_FIXEDRES", "N_RES", "N_RESLN", "N_ENC")  # what the paper calls them
NAMES = f"In the paper: {', '.join(f'{name} {symbol}' for name, symbol in zip(FAMILY, SYMBOLS, strict=True))}."
ROLLED = ("alone", "rolled out", "rolled out, rows to 1")  # how a map is read
SALIENCY = (
    "Eq. 17 is taken at the sum of the embeddings, before their norm. The paper writes e^0; "
    "`reference=grad_x_input_l2:embedding=after` takes what the first layer reads."
)


def rolled(scores: Map, how: str, convention: str | None = None) -> Map:
    """A map alone, or the product over layers: of the family's matrices as they are (as published), or with rows
    summing to 1.

    Maps of other papers are rolled out as those papers do, and with rows summing to 1. A `convention` overrides the
    former.
    """
    if how == "alone":
        return scores
    if how == "rolled out":
        return scores.rollout(convention or ("globenc" if scores.method in FAMILY else None))
    return scores.rollout(None if scores.info["convention"] == "input" else "toolkit")


# --- what is explained ------------------------------------------------------------------------------------------------


def reference_of(setup: Setup, trace: Trace, example: Example) -> Any:
    """The scores that the maps are compared with: an attribution to the true or the predicted class, such as gradient x
    input."""
    return attribution_of(trace, parse_method(setup.options["reference"]), target=target_of(setup, example))


def target_of(setup: Setup, example: Example) -> Any:
    """The class (or the word of a gap) that is explained: the true one as in the paper, or the predicted one."""
    if setup.options["target"] == "predicted":
        return "predicted"
    true = _truth(setup, example)
    return label_ids([true], setup.model, given=classes_of(setup))[true] if _classifies(setup) else true


def _classifies(setup: Setup) -> bool:
    return setup.model.task == "classification"


def _truth(setup: Setup, example: Example) -> Any:
    """The label of a text, or the word of its gap; None where it has none."""
    return example.info.get("label") if _classifies(setup) else example.target


def classes_of(setup: Setup) -> Mapping[str, int] | None:
    """The class of each label: as `labels` says; by the option `classes` where the model does not name its classes."""
    if setup.labels is not None or not setup.options["classes"] or names_classes(setup.model):
        return setup.labels
    return {label.strip(): number for number, label in enumerate(setup.options["classes"].split(","))}


def known_reference(setup: Setup) -> None:
    """Refuse an unknown reference, and data without true classes, before the long work."""
    name, target, classes = (setup.options[option] for option in ("reference", "target", "classes"))
    if str(name).split(":")[0] not in attributions():
        raise InputError(f"reference= is an attribution method, not {name!r}. {nearest(str(name), attributions())}")
    parse_method(name)
    if target not in ("true", "predicted"):
        raise InputError(f"target= is true or predicted, not {target!r}.")
    if not isinstance(classes, str):
        raise InputError(f"classes= is written negative,positive (labels in the classes' order), not {classes!r}.")
    if target == "predicted":
        return
    truth = {str(example.id): _truth(setup, example) for example in setup.examples}
    without = [name for name, true in truth.items() if true is None]
    if without:
        raise InputError(
            f"{setup.experiment.name!r} explains the true class, and {len(without)} examples have none ({without[0]} "
            "...). Take labelled data, or explain the predicted class: target=predicted."
        )
    if _classifies(setup):
        label_ids(map(str, truth.values()), setup.model, given=classes_of(setup))


def known_confidence(setup: Setup) -> None:
    confidence = setup.options["confidence"]
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise InputError(f"confidence= is a number between 0 and 1, such as 0.99, not {confidence!r}.")


# --- tables by layer --------------------------------------------------------------------------------------------------


def per_layer(
    name: str,
    title: str,
    records: Sequence[Record],
    fields: Sequence[str],
    *,
    seed: int,
    note: str = "",
    confidence: float = 0.95,
) -> Table:
    """One row for each group of records that agree in `fields`, one column for each layer. An example with several
    values counts as one: they are not drawn apart."""
    layers = sorted({int(record.info["layer"]) for record in records})
    rows = wide_rows(records, layers, fields, "layer", seed=seed, together=True, confidence=confidence)
    return Table(name, title, (*fields, *(f"layer {layer}" for layer in layers)), rows, note)


def rows_of(table: Table, metric: str) -> Table:
    """The rows of one metric."""
    return replace(table, rows=tuple(row for row in table.rows if row[1] == metric))


def lines(table: Table, axes: Any, *, labels: int = 1, band: bool = False, **style: Any) -> None:
    """A row of a table is a line over layers; its first `labels` cells are its name. With `band` its intervals are
    shaded."""
    places = range(1, sum(name.startswith("layer ") for name in table.columns) + 1)
    for row in table.rows:
        ends = [(np.nan,) * 3 if cell is None else (cell.mean, cell.low, cell.high) for cell in row[-len(places) :]]  # type: ignore[union-attr]
        means, lows, highs = zip(*ends, strict=True)
        (line,) = axes.plot(places, means, marker=".", label=", ".join(map(str, row[:labels])), **style)
        if band:
            axes.fill_between(places, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xticks(places)
    axes.set_xlabel("layer")


def both_ways(setup: Setup, table: Table, ways: Sequence[str], label: str, figure: Any) -> None:
    """The curves of two metrics side by side."""
    both = figure.subplots(1, 2, sharey=True)
    for axes, how in zip(both, ways, strict=True):
        lines(rows_of(table, how), axes, band=True)
        axes.set_title(how)
    both[0].set_ylabel(f"{label} {setup.options['reference']}")
    both[1].legend(fontsize=6)


def reach_of(intervals: Sequence[Interval]) -> Any:
    """[2 point]: how far an interval goes down and up; 0 where it is not known."""
    return np.nan_to_num([[i.mean - i.low for i in intervals], [i.high - i.mean for i in intervals]])


def mean_of(values: Any) -> tuple[float, int]:
    """The mean of those that have a value, and how many have none."""
    missing = np.isnan(values)
    return (float(np.nan) if missing.all() else float(values[~missing].mean())), int(missing.sum())


# --- Table 1: the whole model -----------------------------------------------------------------------------------------

NOTE = (
    "Mean over examples and 95 % interval. *rolled out*: the matrices as they are for this family, as published. "
    + NAMES
)


def finish_table1(setup: Setup, records: list[Record]) -> list[Table]:
    title = f"Spearman with `{setup.options['reference']}`, last layer"
    return [Table("table1", title, ("method", *ROLLED), wide_rows(records, ROLLED, seed=setup.seed), NOTE)]


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


PRINTED = {  # means and deviations of Tables 1, A.1 and A.2, in the order of FAMILY
    ("Table 1", "BERT-base"): {
        "SST2": ("-0.11 -0.24 0.19 0.44 0.48 0.73 -0.21 0.77", "0.26 0.26 0.26 0.20 0.20 0.13 0.26 0.12"),
        "MNLI": ("-0.06 -0.05 0.27 0.47 0.55 0.75 -0.06 0.78", "0.22 0.26 0.25 0.16 0.16 0.10 0.26 0.09"),
        "HateXplain": ("0.12 0.13 0.53 0.43 0.48 0.66 0.08 0.72", "0.26 0.28 0.24 0.22 0.22 0.17 0.28 0.17"),
    },
    ("Table A.1", "BERT-large"): {
        "SST2": ("-0.38 -0.25 -0.10 0.44 0.49 0.77 -0.07 0.83", "0.16 0.19 0.21 0.24 0.24 0.11 0.23 0.08"),
        "MNLI": ("-0.61 -0.48 0.33 0.13 0.26 0.66 -0.35 0.77", "0.14 0.19 0.23 0.27 0.25 0.12 0.24 0.09"),
        "HateXplain": ("-0.41 -0.21 0.09 0.48 0.49 0.73 0.06 0.76", "0.25 0.30 0.30 0.25 0.30 0.16 0.32 0.17"),
    },
    ("Table A.2", "ELECTRA-base"): {
        "SST2": ("-0.37 -0.37 -0.10 0.18 0.23 0.54 -0.24 0.64", "0.19 0.19 0.22 0.21 0.22 0.17 0.23 0.15"),
        "MNLI": ("-0.31 -0.24 0.08 0.12 0.32 0.54 -0.16 0.68", "0.22 0.23 0.25 0.21 0.23 0.14 0.24 0.12"),
        "HateXplain": ("0.02 0.01 0.20 0.21 0.28 0.44 -0.07 0.47", "0.29 0.29 0.27 0.26 0.26 0.21 0.28 0.22"),
    },
}
PUBLISHED = tuple(
    Published(
        where,
        f"{model}, {dataset}",
        ROLLED[1],
        {name: f"{mean} ± {std}" for name, mean, std in zip(FAMILY, means.split(), deviations.split(), strict=True)},
        std=True,
    )
    for (where, model), columns in PRINTED.items()
    for dataset, (means, deviations) in columns.items()
)
NORM_PAIRS = (
    ("norm", "attention"),
    ("norm_fixed_residual", "attention_fixed_residual"),
    ("norm_residual", "attention_residual"),
)
CLAIMS = (
    Claim(
        "Table 1, section 4.5",
        "GlobEnc (N_ENC) correlates with saliency more than each of the seven other maps.",
        "BERT-base: 0.77 (SST2), 0.78 (MNLI), 0.72 (HateXplain); the next one is N_RES with 0.73, 0.75, 0.66",
        above("globenc", FAMILY[:-1], ROLLED[1]),
    ),
    Claim(
        "Table 1, section 4.5.1",
        "Each norm-based map correlates more than its weight-based counterpart (N and W, with no, fixed and exact "
        "residual).",
        "SST2: 0.44, 0.48, 0.73 against -0.11, -0.24, 0.19; HateXplain: 0.43, 0.48, 0.66 against 0.12, 0.13, 0.53",
        pairs_above(NORM_PAIRS, ROLLED[1]),
    ),
    Claim(
        "Table 1, section 4.5.2",
        "Exact context-mixing ratios do much better than a fixed one of 0.5 (here: by any margin): W_RES above "
        "W_FIXEDRES.",
        "0.19 against -0.24 (SST2), 0.27 against -0.05 (MNLI), 0.53 against 0.13 (HateXplain)",
        above("attention_residual", ("attention_fixed_residual",), ROLLED[1]),
    ),
    Claim(
        "Table 1, section 4.5.2",
        "A fixed residual is better than none: N_FIXEDRES above N, on every dataset.",
        "0.48 against 0.44 (SST2), 0.55 against 0.47 (MNLI), 0.48 against 0.43 (HateXplain)",
        above("norm_fixed_residual", ("norm",), ROLLED[1]),
    ),
    Claim(
        "Table 1, section 4.5.2",
        "N_RES is the highest of the maps without layer norms.",
        "0.73 (SST2), 0.75 (MNLI), 0.66 (HateXplain); the next one has 0.48, 0.55, 0.53",
        above("norm_residual", FAMILY[:5], ROLLED[1]),
    ),
    Claim(
        "Table 1, section 4.5.3",
        "The first layer norm alone makes it worse: N_RESLN drops below N_RES.",
        "-0.21 against 0.73 (SST2), -0.06 against 0.75 (MNLI), 0.08 against 0.66 (HateXplain)",
        above("norm_residual_ln", ("norm_residual",), ROLLED[1], lower=True),
    ),
)


@globenc(
    name="globenc-table1",
    packages=("scipy",),
    shows="Tables 1, A.1 and A.2",
    methods=FAMILY,
    finish=finish_table1,
    figure=figure_table1,
    task=("classification", "masked-lm"),
    takes="map",
    options={"reference": "grad_x_input_l2", "target": "true", "classes": ""},
    prepare=known_reference,
    differs=(
        SALIENCY,
        "A text that is longer than the model reads is left out or refused, not cut. The paper does not say what it "
        "does; its released code cuts texts at 64 to 128 tokens.",
        "HateXplain posts whose three annotators give three labels are left out. The paper does not say what it does; "
        "its released code takes one of the three.",
        "`mixlens reproduce globenc` reads MNLI from validation_mismatched, the split of the authors' stored "
        "saliencies. The paper says the validation set.",
        "Norms have the model's epsilon beside the variance, under the root; appendix A.1 writes it inside the square.",
    ),
    published=PUBLISHED,
    claims=CLAIMS,
)
def table1(setup: Setup, example: Example) -> list[Record]:
    """Does a map, rolled out or alone, rank the input tokens as the gradient of the true class does?"""
    trace = setup.model.trace(example)
    reference = reference_of(setup, trace, example)
    records = []
    for method, scores in maps_of(trace, setup.requests).items():
        for how in ROLLED:
            whole = rolled(scores, how, setup.requests[method].rollout)
            last = layer_agreement(whole, reference, query=trace.query)[-1]
            records.append(Record(str(example.id), method, how, last, {"n": len(trace)}))
    return records
