"""Value Zeroing, evaluation 3 (section 7, Table 3), and the accuracy of its target models (section 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import InputError
from ...metrics import mean_with_interval
from ...metrics.agreement import spearman
from ...metrics.alignment import SIGNS, shares
from ...metrics.arguments import Array, one_of
from ...runs.experiments.claims import Claim, Measured, Published, Verdict, above, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.figures import bars
from ...runs.experiments.tables import Table, by
from ...scoring.attributions import attribute
from ...scoring.targets import resolve
from ...types import Attribution, Example, Record
from .main import (
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    DIFFERS_ROLLOUT,
    GRADIENT_OPTIONS,
    LANGUAGE,
    METHODS,
    OURS,
    ROLLOUT_OPTIONS,
    layer_table,
    measured,
    named_table,
    names_in,
    overall_table,
    refuse_unknown_words,
    rows_of,
    value_zeroing,
)

TABLE_3 = {  # in the order of METHODS
    "BERT, pre-trained": "-0.01 -0.10 0.19 0.03 -0.08 -0.01 0.17 0.11 0.07 0.20 0.26",
    "BERT, fine-tuned": "0.00 -0.07 0.14 -0.05 -0.17 -0.09 0.19 0.16 0.21 0.29 0.31",
}


# --- blank-out --------------------------------------------------------------------------------------------------------


def _over_all(record: Record) -> bool:
    return record.info["layer"] == 0


def _finish_faithfulness(setup: Setup, records: list[Record]) -> list[Table]:
    title = "Spearman's rank correlation with blank-out scores, over all layers"
    tables = [overall_table(setup, records, ("spearman",), title)]
    if not setup.options["layers"]:
        return tables
    return [*tables, layer_table(setup, records, "spearman", "The same in single layers (not in the paper)")]


def _prepare_faithfulness(setup: Setup) -> None:
    refuse_unknown_words(setup)
    one_of("signs", setup.options["signs"], (*SIGNS, "signed"))


@value_zeroing(
    name="vz-faithfulness",
    packages=("scipy",),
    shows="Table 3: correlation with blank-out scores",
    methods=METHODS,
    task=(*LANGUAGE, "classification"),
    options={
        **GRADIENT_OPTIONS,
        **ROLLOUT_OPTIONS,
        "signs": "absolute",
        "replacement": "unk",
        "absolute": False,
        "layers": False,
    },
    prepare=_prepare_faithfulness,
    finish=_finish_faithfulness,
    figure=lambda setup, tables, figure: bars(
        figure.subplots(),
        named_table(tables, "overall"),
        "spearman",
        title="Spearman's rank correlation with blank-out",
    ),
    differs=(*DIFFERS_DATA, *DIFFERS_GRADIENTS[1:], *DIFFERS_ROLLOUT),
    published=tuple(
        Published("Table 3", setting, "spearman", dict(zip(METHODS, numbers.split(), strict=True)), table="overall")
        for setting, numbers in TABLE_3.items()
    ),
    claims=(
        Claim(
            "section 7, Table 3",
            "Value Zeroing correlates with blank-out scores more than every other method, gradients included.",
            "0.26 (pre-trained), 0.31 (fine-tuned); next: DL 0.20, 0.29",
            above(OURS, METHODS[:-1], "spearman", where=_over_all),
        ),
        Claim(
            "section 7, Table 3",
            "Value Zeroing correlates with blank-out scores at all: more than random scores do.",
            "0.26, 0.31; Rand -0.01, 0.00",
            above(OURS, ("random",), "spearman", where=_over_all),
        ),
        Claim(
            "section 7, Table 3",
            "Attention, rolled out, correlates with blank-out scores less than random scores do.",
            "-0.10, -0.07; Rand -0.01, 0.00",
            above("random", ("attention",), "spearman", where=_over_all),
            given=ROLLOUT_OPTIONS,  # the same numbers with identity=always
        ),
    ),
)
def faithfulness(setup: Setup, example: Example) -> list[Record]:
    """Do the scores rank the tokens as blanking each of them out does?"""
    trace = setup.model.trace(example)
    # p(target) - p(target without token i), among target and foil where there is a foil (section 7)
    target = "predicted" if example.target is None else example.target
    how = {name: setup.options[name] for name in ("replacement", "absolute")}
    reference, signs = attribute(trace, "blank_out", target=target, foil=example.foil, **how), setup.options["signs"]

    def correlation(scores: Attribution) -> float:
        """Spearman's rho of the scores, made positive and summing to 1 (section 4.3); NaN where all scores are 0."""
        signed = signs == "signed"
        values: Array = np.asarray(scores.scores, dtype=np.float64) if signed else shares(scores, signs=signs)
        return np.nan if np.isnan(values).any() else spearman(values, reference.scores)

    every = rows_of(setup, trace, example, layers=bool(setup.options["layers"]))
    return [one for method, rows in every.items() for one in measured(example, method, rows, {"spearman": correlation})]


# --- accuracy ---------------------------------------------------------------------------------------------------------

CONDITIONS = ("pre-trained", "fine-tuned")


def _prepare_accuracy(setup: Setup) -> None:
    names = names_in(setup.options["conditions"])
    if len(setup.models) > len(names):
        raise InputError(
            f"{len(setup.models)} models have {len(names)} names ({', '.join(names)}): give conditions=NAME,NAME."
        )


def _finish_accuracy(setup: Setup, records: list[Record]) -> list[Table]:
    tasks = [task for (task,) in by(records, "task") if task]
    groups = by(records, "method", "task")
    rows: list[tuple[Any, ...]] = []
    for condition, model in zip(names_in(setup.options["conditions"]), setup.models, strict=False):
        own = {task: [record.value for record in group] for (of, task), group in groups.items() if of == condition}
        every = [[value for values in own.values() for value in values], *(own[task] for task in tasks)]
        cells = (mean_with_interval(values, seed=setup.seed) for values in every)
        rows.append((condition, model.name.rpartition("/")[2], *cells))
    title = "Accuracy: how often the target's logit is above the foil's"
    return [Table("accuracy", title, ("condition", "model", "accuracy", *tasks), tuple(rows))]


def _tuning_helps(run: Measured) -> Verdict:
    if len(run.setup.models) < 2:
        return incomparable("needs both models")
    before, after = names_in(run.setup.options["conditions"])[:2]
    return run.order({name: run[name, "right"] for name in (after, before)}, [(after, before)])


@value_zeroing(
    name="vz-accuracy",
    shows="section 4.2: accuracy of the pre-trained and the fine-tuned model",
    task=LANGUAGE,
    needs=("target", "foil"),
    options={"conditions": ",".join(CONDITIONS)},
    prepare=_prepare_accuracy,
    finish=_finish_accuracy,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "accuracy", label="condition"),
    differs=DIFFERS_DATA,
    published=(Published("section 4.2", "BERT", "accuracy", dict(zip(CONDITIONS, ("0.96", "0.99"), strict=True))),),
    claims=(
        Claim(
            "section 4.2",
            "Prompt tuning raises accuracy.",
            "0.96 pre-trained, 0.99 fine-tuned",
            _tuning_helps,
        ),
    ),
)
def accuracy(setup: Setup, example: Example) -> list[Record]:
    """How often does the model prefer the target to the foil? One model, or the pre-trained and then the fine-tuned
    one."""
    records = []
    for condition, model in zip(names_in(setup.options["conditions"]), setup.models, strict=False):
        trace = model.trace(example)
        margin = resolve(trace, example.target, foil=example.foil).of(model.outputs([trace]))
        info = {"task": example.info.get("task", "")}
        records.append(Record(str(example.id), condition, "right", float(margin[0] > 0), info))
    return records
