"""Value Zeroing, evaluation 3 (section 7, Table 3), and the accuracy of its target models (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.errors import InputError
from ...metrics import mean_with_interval
from ...metrics.agreement import spearman
from ...metrics.alignment import SIGNS, shares
from ...metrics.arguments import Array, one_of
from ...model.model import Model
from ...runs.experiments.claims import Claim, Published, Verdict, above, incomparable, order
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.figures import bars
from ...runs.experiments.tables import Cell, Table, by
from ...scoring.attributions import attribute
from ...scoring.targets import resolve
from ...types import Attribution, Example, Record, Trace
from .main import (
    DATA,
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    DIFFERS_ROLLOUT,
    GRADIENT_OPTIONS,
    LANGUAGE,
    METHODS,
    MODEL,
    PAPER,
    ROLLOUT_OPTIONS,
    layer_table,
    measured,
    named_table,
    names_in,
    overall_table,
    refuse_unknown_words,
    rows_of,
)

OURS = "value_zeroing"
OTHERS = METHODS[:-1]
SIGNED = "signed"
TABLE_3 = {
    "BERT, pre-trained": ("-0.01", "-0.10", "0.19", "0.03", "-0.08", "-0.01", "0.17", "0.11", "0.07", "0.20", "0.26"),
    "BERT, fine-tuned": ("0.00", "-0.07", "0.14", "-0.05", "-0.17", "-0.09", "0.19", "0.16", "0.21", "0.29", "0.31"),
}


# --- blank-out ----------------------------------------------------------------------------------------------------------


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
    one_of("signs", setup.options["signs"], (*SIGNS, SIGNED))


@experiment(
    name="vz-faithfulness",
    packages=("scipy",),
    paper=PAPER,
    shows="Table 3: correlation with blank-out scores",
    data=DATA,
    model=MODEL,
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
        Published("Table 3", setting, "spearman", dict(zip(METHODS, numbers, strict=True)), table="overall")
        for setting, numbers in TABLE_3.items()
    ),
    claims=(
        Claim(
            "section 7, Table 3",
            "Value Zeroing correlates with blank-out scores more than every other method, gradients included.",
            "0.26 (pre-trained), 0.31 (fine-tuned); next: DL 0.20, 0.29",
            above(OURS, OTHERS, "spearman", where=_over_all),
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
    reference = _blank_out(setup, trace, example)
    measures = {"spearman": lambda scores: _correlation(scores, reference, setup.options["signs"])}
    records: list[Record] = []
    for method, rows in rows_of(setup, trace, example, layers=bool(setup.options["layers"])).items():
        records += measured(example, method, rows, measures)
    return records


def _blank_out(setup: Setup, trace: Trace, example: Example) -> Attribution:
    """p(target) - p(target without token i), among target and foil where there is a foil (section 7)."""
    target = "predicted" if example.target is None else example.target
    how = {name: setup.options[name] for name in ("replacement", "absolute")}
    result: Attribution = attribute(trace, "blank_out", target=target, foil=example.foil, **how)
    return result


def _correlation(scores: Attribution, reference: Attribution, signs: str) -> float:
    """Spearman's rho of the scores, made positive and summing to 1 (section 4.3); NaN where all scores are 0."""
    values: Array = np.asarray(scores.scores, dtype=np.float64) if signs == SIGNED else shares(scores, signs=signs)
    return np.nan if np.isnan(values).any() else spearman(values, reference.scores)


# --- accuracy -----------------------------------------------------------------------------------------------------------

CONDITIONS = ("pre-trained", "fine-tuned")


def _prepare_accuracy(setup: Setup) -> None:
    names = names_in(setup.options["conditions"])
    if len(setup.models) > len(names):
        raise InputError(
            f"{len(setup.models)} models have {len(names)} names ({', '.join(names)}): give conditions=NAME,NAME."
        )


def _finish_accuracy(setup: Setup, records: list[Record]) -> list[Table]:
    tasks = [task for (task,) in by(records, "task") if task]
    rows = tuple(
        (condition, model.name.rpartition("/")[2], *_accuracies(setup, records, condition, tasks))
        for condition, model in zip(names_in(setup.options["conditions"]), setup.models, strict=False)
    )
    title = "Accuracy: how often the target's logit is above the foil's"
    return [Table("accuracy", title, ("condition", "model", "accuracy", *tasks), rows)]


def _accuracies(setup: Setup, records: Sequence[Record], condition: str, tasks: Sequence[str]) -> list[Cell]:
    groups = {
        task: [record.value for record in group]
        for (task,), group in by(own_records(records, condition), "task").items()
    }
    whole = [value for group in groups.values() for value in group]
    return [mean_with_interval(values, seed=setup.seed) for values in (whole, *(groups[task] for task in tasks))]


def own_records(records: Sequence[Record], condition: str) -> list[Record]:
    return [record for record in records if record.method == condition]


def _tuning_helps(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    values = {
        condition: {record.example: record.value for record in group}
        for (condition,), group in by(records, "method").items()
    }
    if len(setup.models) < 2:
        return incomparable("needs both models")
    before, after = names_in(setup.options["conditions"])[:2]
    return order(values, [(after, before)], seed=setup.seed)


@experiment(
    name="vz-accuracy",
    paper=PAPER,
    shows="section 4.2: accuracy of the pre-trained and the fine-tuned model",
    data=DATA,
    model=MODEL,
    methods=(),
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
    """How often does the model prefer the target to the foil? One model, or the pre-trained and then the fine-tuned one."""
    pairs = zip(names_in(setup.options["conditions"]), setup.models, strict=False)
    info = {"task": example.info.get("task", "")}
    return [Record(str(example.id), condition, "right", _is_right(model, example), info) for condition, model in pairs]


def _is_right(model: Model, example: Example) -> float:
    trace = model.trace(example)
    margin = resolve(trace, example.target, foil=example.foil).of(model.outputs([trace]))
    return float(margin[0] > 0)
