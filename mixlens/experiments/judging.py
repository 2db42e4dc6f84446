"""The everyday experiment: which method finds, on this model and these texts, the tokens that the prediction rests on?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..asking import RANDOM, MethodRequest, every_score, scores_of
from ..attributions import attribute
from ..data import cue_tokens, span_tokens
from ..errors import InputError, nearest
from ..metrics import Interval, Metric, mean_with_interval
from ..metrics import known as known_metrics
from ..metrics.agreement import spearman
from ..metrics.arguments import marks_at
from ..metrics.registry import as_number
from ..model.model import Model
from ..types import Example, Record, Trace
from .experiment import Setup, experiment
from .figures import bars
from .prepare import removable
from .tables import Cell, Table, by

FAITHFULNESS = ("aopc", "lodds", "comprehensiveness", "sufficiency", "blank_out_faithfulness")
CUES = ("cue_dot", "cue_average_precision", "probes_needed")
RATIONALES = ("rationale_auprc", "rationale_f1")
GROUPS: dict[str, tuple[str, ...]] = {"faithfulness": FAITHFULNESS, "cues": CUES, "rationales": RATIONALES}
NEEDS = {"trace", "scores", "rerun", "cues", "rationale", "classes", "class-specific"}
PACKAGES = {
    **dict.fromkeys(("blank_out_faithfulness", "kendall_confidence"), "scipy"),
    **dict.fromkeys(("cue_average_precision", "rationale_auprc"), "scikit-learn"),
}
SURE = 30  # texts from which on a ranking is more than a hint
BLANKED = "blank_out_faithfulness"


def possible() -> dict[str, Metric]:
    """The metrics that need one model, one example and one attribution, and judge: one way is better."""
    return {
        name: one for name, one in known_metrics().items() if {"scores"} <= set(one.needs) <= NEEDS and one.better != "neither"
    }


def metrics_of(written: Iterable[str]) -> list[str]:
    """Names of metrics and of groups, as metrics."""
    metrics: list[str] = []
    for name in written:
        if name not in GROUPS and name not in possible():
            raise InputError(f"unknown metric {name!r}. {nearest(str(name), [*GROUPS, *possible()])}")
        metrics += [one for one in GROUPS.get(name, (name,)) if one not in metrics]
    if not metrics:
        raise InputError(f"no metric was asked for. {nearest('', [*GROUPS, *possible()])}")
    return metrics


def packages_of(metrics: Iterable[str]) -> list[str]:
    """The packages that the metrics of these names need."""
    return sorted({PACKAGES[name] for name in metrics_of(metrics) if name in PACKAGES})


def missing_token(model: Model, metric: str) -> str | None:
    """The token a metric replaces others by, where the model has none."""
    if metric == "lodds" and model.hf_model.config.pad_token_id is None:
        return "pad"
    return "unk" if metric == BLANKED and getattr(model.tokenizer, "unk_token_id", None) is None else None


def _prepare(setup: Setup) -> None:
    for name in metrics_of(setup.options["metrics"]):
        _refuse_examples(setup, name)
        if "class-specific" in possible()[name].needs:
            _refuse_without_classes(setup, name)
        if token := missing_token(setup.model, name):
            raise InputError(f"{name!r} replaces tokens by the {token} token, and {setup.model.name!r} has none. Leave it out.")
    removable(setup)


def _refuse_examples(setup: Setup, metric: str) -> None:
    """Every example has the cues or the rationale that a metric needs."""
    for need in ("cues", "rationale"):
        if need not in possible()[metric].needs:
            continue
        without = [str(e.id) for e in setup.examples if not (e.cues if need == "cues" else e.info.get(need))]
        if without:
            raise InputError(f"{metric!r} needs {need}, and {len(without)} examples have none ({without[0]} ...).")


def _refuse_without_classes(setup: Setup, metric: str) -> None:
    """A metric that compares classes needs a classifier, and methods that explain a class."""
    wrong = [method for method, request in setup.requests.items() if not request.class_specific]
    if wrong or setup.model.task != "classification":
        what = f"{wrong[0]!r} gives every class the same scores" if wrong else f"{setup.model.name!r} has no classes"
        raise InputError(f"{metric!r} compares classes, and {what}. Leave it out.")


# --- the ranking ----------------------------------------------------------------------------------------------------------


def _finish(setup: Setup, records: list[Record]) -> list[Table]:
    names = metrics_of(setup.options["metrics"])
    values = {key: [r.value for r in group] for key, group in by(records, "method", "metric").items()}
    cells = {key: mean_with_interval(numbers, seed=setup.seed) for key, numbers in values.items()}
    places = {name: _places({method: cells[method, name].mean for method in setup.methods}, name) for name in names}
    mean_place = {method: sum(places[name][method] for name in names) / len(names) for method in setup.methods}
    order = sorted(setup.methods, key=lambda method: (mean_place[method], setup.methods.index(method)))
    with_random = RANDOM in setup.methods
    rows: list[tuple[Cell, ...]] = [
        (
            rank,
            method,
            mean_place[method],
            *(cells[method, name] for name in names),
            *([_beats(setup, values, method, names)] if with_random else []),
        )
        for rank, method in zip(_ranks([mean_place[method] for method in order]), order, strict=True)
    ]
    columns = ("rank", "method", "mean place", *names, *(["better than random on"] if with_random else []))
    return [Table("ranking", "Which method to trust here", columns, tuple(rows), _note(setup, names))]


def _note(setup: Setup, names: Sequence[str]) -> str:
    """Which way is better, what the places mean, and a caution where texts are few."""
    ways = {way: ", ".join(name for name in names if possible()[name].better == way) for way in ("higher", "lower")}
    directions = "; ".join(f"{way} is better: {which}" for way, which in ways.items() if which)
    note = f"{directions[0].upper()}{directions[1:]}. Ranked by the mean place over these."
    if RANDOM in setup.methods:
        note += " Better than random: the 95 % interval of the difference, example by example, is on the right side of 0."
    if len(setup.examples) < SURE:
        note += (
            f" Caution: {len(setup.examples)} texts are few. On other texts the ranks may be others: look at the intervals, and "
            f"judge {SURE} texts or more."
        )
    return note


def _ranks(places: Sequence[float]) -> list[int]:
    """1 for the first; equal mean places share the rank of the first of them: 1, 2, 2, 4."""
    return [1 + sum(other < place and not math.isclose(other, place, rel_tol=1e-9) for other in places) for place in places]


def _figure(setup: Setup, tables: list[Table], figure: Any) -> None:
    """The first metric as bars, the best on top: in the order of what is drawn, not of the mean place over all metrics."""
    name = metrics_of(setup.options["metrics"])[0]
    table = tables[0]
    place = table.columns.index(name)

    def key(row: tuple[Cell, ...]) -> float:
        cell = row[place]
        mean = cell.mean if isinstance(cell, Interval) else math.nan
        return math.inf if math.isnan(mean) else -_sign(name) * mean

    way = "higher" if possible()[name].better == "higher" else "lower"
    ordered = Table(table.name, table.title, table.columns, tuple(sorted(table.rows, key=key)), table.note)
    bars(figure.subplots(), ordered, name, title=f"{name}, mean and 95 % interval ({way} is better)")


def _sign(name: str) -> int:
    return 1 if possible()[name].better == "higher" else -1


def _places(means: Mapping[str, float], name: str) -> dict[str, float]:
    """1 for the best; equal ones share the mean of their places; one without a value is last."""
    signed = {method: -math.inf if math.isnan(mean) else _sign(name) * mean for method, mean in means.items()}
    above = {method: sum(other > mean for other in signed.values()) for method, mean in signed.items()}
    same = {method: sum(other == mean for other in signed.values()) for method, mean in signed.items()}
    return {method: above[method] + (same[method] + 1) / 2 for method in means}


def _beats(setup: Setup, values: Mapping[tuple[Any, ...], Sequence[float]], method: str, names: Sequence[str]) -> str:
    if method == RANDOM:
        return "-"
    won = 0
    for name in names:
        pairs = zip(values[method, name], values[RANDOM, name], strict=True)
        gap: Interval = mean_with_interval([_sign(name) * (value - other) for value, other in pairs], seed=setup.seed)
        won += gap.low > 0
    return f"{won} of {len(names)}"


@experiment(
    name="judge",
    paper="mixlens",
    shows="a ranking of methods",
    data="agreement",
    model="agreement",
    methods=(RANDOM, "attention", "globenc", "alti", "value_zeroing", "grad_x_input", "attcat"),
    task=("classification", "masked-lm", "causal-lm", "question-answering"),
    options={"metrics": ["faithfulness"]},
    packages=lambda options: packages_of(options["metrics"]),
    prepare=_prepare,
    finish=_finish,
    figure=_figure,
)
def judged(setup: Setup, example: Example) -> list[Record]:
    """Which method finds the tokens that the model's predictions rest on?"""
    trace = setup.model.trace(example)
    target: Any = "predicted" if example.target is None or trace.model.task == "question-answering" else example.target
    names = metrics_of(setup.options["metrics"])
    columns = _columns(example, trace)
    # Blank-out is the same for every method: n forward passes once, not once for each.
    reference = attribute(trace, "blank_out", target=target, replacement="unk") if BLANKED in names else None
    records = []
    for method, (scores, seconds) in every_score(trace, setup.requests, target=target).items():
        for name in names:
            if name == BLANKED and reference is not None:
                value = spearman(scores.scores, reference.scores)
            else:
                value = _value(name, {**columns, "scores": scores}, setup.requests[method], target)
            records.append(Record(str(example.id), method, name, value, {"seconds": seconds}))
    return records


def _columns(example: Example, trace: Trace) -> dict[str, Any]:
    """What metrics need beside the scores: the trace, and the marks [pos] of cues and rationales where the example has them."""
    columns: dict[str, Any] = {"trace": trace}
    if example.cues:
        columns["cues"] = marks_at(cue_tokens(example, trace), len(trace))
    if example.info.get("rationale"):
        columns["rationale"] = marks_at(span_tokens(example.info["rationale"], trace), len(trace))
    return columns


def _value(name: str, columns: Mapping[str, Any], request: MethodRequest, target: Any) -> float:
    """One metric of one method's scores."""
    metric = possible()[name]
    if "classes" in metric.needs:
        columns = {**columns, "classes": _other_classes(columns["trace"], request)}
    options = {"target": target} if "target" in metric.options else {}
    return as_number(name, metric.function(*(columns[need] for need in metric.needs if need in columns), **options))


def _other_classes(trace: Trace, request: MethodRequest) -> list[Any]:
    """The attributions for the classes that are not predicted."""
    assert trace.logits is not None
    predicted = int(trace.logits.argmax())
    return [scores_of(trace, request, target=label)[0] for label in range(len(trace.logits)) if label != predicted]
