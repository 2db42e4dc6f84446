"""AttCAT's evaluations (Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..asking import every_score
from ..data import label_ids, span_tokens
from ..errors import InputError
from ..metrics import mean_with_interval
from ..metrics.agreement import kendall_confidence
from ..metrics.faithfulness import Degradation, aopc, lodds
from ..metrics.plausibility import precision_at_k
from ..types import Example, Record
from .experiment import Setup, experiment
from .figures import bars, lines
from .prepare import removable
from .tables import Table, by

PAPER = "Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens"
BASELINES = ("raw_attention", "attention_rollout", "attention_grad", "attention_x_grad", "partial_lrp", "transatt", "cat")
METHODS = ("random", *BASELINES, "attcat")
CHANGES: dict[str, Callable[..., Degradation]] = {"aopc": aopc, "lodds": lodds}


def _finish_faithfulness(setup: Setup, records: list[Record]) -> list[Table]:
    grouped = by(records, "method", "metric")

    def mean(method: str, metric: str) -> Any:
        return mean_with_interval([r.value for r in grouped[method, metric]], seed=setup.seed)

    def point(method: str, metric: str, i: int) -> Any:
        values = [r.info["points"][i] for r in grouped[method, metric] if r.info["points"]]
        return mean_with_interval(values, seed=setup.seed) if values else None

    def step(i: int) -> int:
        """Percent: 0, 10, ... 100; the authors' code has nine steps, the first of them 1 / 9."""
        return 100 * i // (steps - 1) if setup.options["variant"] == "paper" else 100 * (i + 1) // steps

    over = tuple((method, *(mean(method, metric) for metric in CHANGES)) for method in setup.methods)
    steps = max((len(r.info["points"]) for r in records), default=0)
    curves = tuple(
        (method, step(i), *(point(method, metric, i) for metric in CHANGES)) for method in setup.methods for i in range(steps)
    )
    note = "AOPC: higher is better. LOdds: lower is better."
    return [
        Table("faithfulness", "Top tokens removed (AOPC) or made padding (LOdds)", ("method", *CHANGES), over, note),
        Table("curves", "After each step", ("method", "percent removed", *CHANGES), curves),
    ]


def _draw_faithfulness(setup: Setup, tables: list[Table], figure: Any) -> None:
    for axes, metric in zip(figure.subplots(1, 2), CHANGES, strict=True):
        curves: dict[str, list[Any]] = {}
        for row in tables[1].rows:
            cell = row[tables[1].columns.index(metric)]
            if cell is not None:
                curves.setdefault(str(row[0]), []).append((row[1], cell))
        lines(axes, curves, x=tables[1].columns[1], y=metric)


def _prepare_faithfulness(setup: Setup) -> None:
    if setup.options["variant"] not in ("paper", "released"):
        raise InputError(f"unknown variant {setup.options['variant']!r}. Known: paper, released.")
    if setup.options["variant"] == "released":
        _labelled(setup)
    if setup.model.hf_model.config.pad_token_id is None:
        raise InputError(f"{setup.model.name!r} has no pad token, and LOdds replaces tokens by it.")
    removable(setup)


def _labelled(setup: Setup) -> None:
    without = [str(example.id) for example in setup.examples if "label" not in example.info]
    if without:
        raise InputError(f"variant='released' explains the gold label, and {len(without)} examples have none ({without[0]} ...).")
    label_ids({example.info["label"] for example in setup.examples}, setup.model)


@experiment(
    name="attcat-faithfulness",
    paper=PAPER,
    shows="the tables of AOPC and LOdds",
    data="sentiment",
    model="sentiment",
    methods=METHODS,
    task=("classification",),
    options={"variant": "paper"},
    prepare=_prepare_faithfulness,
    finish=_finish_faithfulness,
    figure=_draw_faithfulness,
)
def faithfulness(setup: Setup, example: Example) -> list[Record]:
    """How far does the prediction fall when the tokens with the highest scores go?"""
    trace = setup.model.trace(example)
    variant = setup.options["variant"]
    gold = label_ids([example.info["label"]], setup.model)[example.info["label"]] if variant == "released" else None
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests, target="predicted" if gold is None else gold).items():
        for name, measure in CHANGES.items():
            fall = measure(trace, scores, variant=variant, label=gold)
            info = {"points": list(fall.points), "whole": fall.whole, "seconds": seconds}
            records.append(Record(str(example.id), method, name, fall.value, info))
    return records


# --- confidence -------------------------------------------------------------------------------------------------------


def _finish_confidence(setup: Setup, records: list[Record]) -> list[Table]:
    rows = []
    for (method,), some in by(records, "method").items():
        found = {
            m: mean_with_interval([r.value for r in some if r.metric == m], seed=setup.seed) for m in ("kendall", "released")
        }
        rows.append((method, found["kendall"], found["released"]))
    note = "Lower is better: a method that knows of classes scores the tokens of another class otherwise. released: of sorted "
    note += "positions, as in the authors' code, which compares nothing that has a meaning."
    columns = ("method", "kendall", "released")
    return [Table("confidence", "Kendall's tau between the predicted class and the others", columns, tuple(rows), note)]


@experiment(
    name="attcat-confidence",
    packages=("scipy",),
    paper=PAPER,
    shows="the table of confidence (Kendall)",
    data="sentiment",
    model="sentiment",
    methods=("grad_x_input", "attention_grad", "attention_x_grad", "partial_lrp", "transatt", "cat", "attcat"),
    task=("classification",),
    takes="class-specific",
    finish=_finish_confidence,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "kendall"),
)
def confidence(setup: Setup, example: Example) -> list[Record]:
    """Does a method score the tokens otherwise when another class is to be explained?"""
    trace = setup.model.trace(example)
    assert trace.logits is not None
    predicted = int(trace.logits.argmax())
    of_classes = [every_score(trace, setup.requests, target=label) for label in range(len(trace.logits))]
    records = []
    for method in setup.methods:
        scores = [of_class[method][0] for of_class in of_classes]
        others = [one for label, one in enumerate(scores) if label != predicted]
        for name, variant in (("kendall", "paper"), ("released", "released")):
            value = kendall_confidence(scores[predicted], others, variant=variant)
            records.append(Record(str(example.id), method, name, value))
    return records


# --- questions --------------------------------------------------------------------------------------------------------


def _finish_qa(setup: Setup, records: list[Record]) -> list[Table]:
    rows = []
    for (method,), some in by(records, "method").items():
        right = [r.value for r in some if r.info["answered"]]
        rows.append(
            (
                method,
                mean_with_interval([r.value for r in some], seed=setup.seed),
                mean_with_interval([r.info["count"] for r in some], seed=setup.seed),
                mean_with_interval(right, seed=setup.seed) if right else None,
            )
        )
    k = setup.options["k"]
    title = f"Precision@{k}: answer tokens among the {k} highest scores"
    note = "share: of the answer's tokens. count: how many, as in the paper's table. right: the share where the model's own "
    note += f"answer overlaps the gold one ({sum(r.info['answered'] for r in records) // max(1, len(setup.methods))} examples)."
    return [Table("precision", title, ("method", "share", "count", "right"), tuple(rows), note)]


def _prepare_qa(setup: Setup) -> None:
    if not isinstance(setup.options["k"], int) or setup.options["k"] < 1:
        raise InputError(f"k is a number of tokens, at least 1, not {setup.options['k']!r}.")


@experiment(
    name="attcat-qa",
    paper=PAPER,
    shows="the table of Precision@K on SQuAD",
    data="squad1",
    model="a question-answering model, such as deepset/bert-base-cased-squad2",
    methods=METHODS,
    task=("question-answering",),
    needs=("pair", "answers"),
    options={"k": 20},
    prepare=_prepare_qa,
    finish=_finish_qa,
    figure=lambda setup, tables, figure: bars(figure.subplots(), tables[0], "share"),
)
def answers(setup: Setup, example: Example) -> list[Record]:
    """Are the tokens of the gold answer among those with the highest scores? The predicted span is explained."""
    trace = setup.model.trace(example)
    gold = span_tokens(example.info["answers"][:1], trace, pair=True)
    if not gold or trace.logits is None:
        raise InputError(f"no token of {setup.model.name!r} covers the answer of example {example.id}.")
    span = (gold[0], gold[-1])
    start, end = (int(i) for i in trace.logits.argmax(0))
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests).items():
        precision = precision_at_k(scores, span, k=setup.options["k"])
        info: Mapping[str, Any] = {
            "count": precision.count,
            "answer": precision.answer,
            "answered": start <= span[1] and span[0] <= end,
            "seconds": seconds,
        }
        records.append(Record(str(example.id), method, "precision_at_k", precision.value, info))
    return records
