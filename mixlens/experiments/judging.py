"""The everyday experiment: which method finds, on this model and these texts, the tokens that the prediction rests on?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from .experiment import Setup, asked, experiment, removable, scores_of
from .figures import bars
from .tables import Cell, Table, by

FAITHFULNESS = ("aopc", "lodds", "comprehensiveness", "sufficiency", "blank_out_faithfulness")
CUES = ("cue_dot", "cue_average_precision", "probes_needed")
RATIONALES = ("rationale_auprc", "rationale_f1")
GROUPS: dict[str, tuple[str, ...]] = {"faithfulness": FAITHFULNESS, "cues": CUES, "rationales": RATIONALES}
GIVEN = {"trace", "scores", "rerun", "cues", "rationale", "classes", "class-specific"}
PACKAGES = {
    **dict.fromkeys(("blank_out_faithfulness", "kendall_confidence"), "scipy"),
    **dict.fromkeys(("cue_average_precision", "rationale_auprc"), "scikit-learn"),
}
RANDOM = "random"
SURE = 30  # texts from which on a ranking is more than a hint
BLANKED = "blank_out_faithfulness"


def possible() -> dict[str, Metric]:
    """The metrics that need one model, one example and one attribution, and judge: one way is better."""
    return {
        name: one for name, one in known_metrics().items() if {"scores"} <= set(one.needs) <= GIVEN and one.better != "neither"
    }


def metrics_of(written: Iterable[str]) -> list[str]:
    """Names of metrics and of groups, as metrics."""
    made: list[str] = []
    for name in written:
        if name not in GROUPS and name not in possible():
            raise InputError(f"unknown metric {name!r}. {nearest(str(name), [*GROUPS, *possible()])}")
        made += [one for one in GROUPS.get(name, (name,)) if one not in made]
    if not made:
        raise InputError(f"no metric was asked for. {nearest('', [*GROUPS, *possible()])}")
    return made


def packages_of(metrics: Iterable[str]) -> list[str]:
    """What the metrics of these names need to be installed."""
    return sorted({PACKAGES[name] for name in metrics_of(metrics) if name in PACKAGES})


def missing_token(model: Model, metric: str) -> str | None:
    """The token a metric replaces others by, where the model has none."""
    if metric == "lodds" and model.hf_model.config.pad_token_id is None:
        return "pad"
    return "unk" if metric == BLANKED and getattr(model.tokenizer, "unk_token_id", None) is None else None


def _prepare(setup: Setup) -> None:
    for name in metrics_of(setup.options["metrics"]):
        needs = possible()[name].needs
        for need, field in (("cues", "cues"), ("rationale", "rationale")):
            without = [str(e.id) for e in setup.examples if not (e.cues if field == "cues" else e.info.get(field))]
            if need in needs and without:
                raise InputError(f"{name!r} needs {field}, and {len(without)} examples have none ({without[0]} ...).")
        if "class-specific" in needs:
            wrong = [method for method in setup.methods if not asked(method).class_specific]
            if wrong or setup.model.task != "classification":
                what = f"{wrong[0]!r} gives every class the same scores" if wrong else f"{setup.model.name!r} has no classes"
                raise InputError(f"{name!r} compares classes, and {what}. Leave it out.")
        if token := missing_token(setup.model, name):
            raise InputError(f"{name!r} replaces tokens by the {token} token, and {setup.model.name!r} has none. Leave it out.")
    removable(setup)


def _finish(setup: Setup, records: list[Record]) -> list[Table]:
    names = metrics_of(setup.options["metrics"])
    grouped = by(records, "method", "metric")
    values = {key: [r.value for r in some] for key, some in grouped.items()}
    cells = {key: mean_with_interval(some, seed=setup.seed) for key, some in values.items()}
    places = {name: _places({method: cells[method, name].mean for method in setup.methods}, name) for name in names}
    mean_place = {method: sum(places[name][method] for name in names) / len(names) for method in setup.methods}
    order = sorted(setup.methods, key=lambda method: (mean_place[method], setup.methods.index(method)))
    beaten = RANDOM in setup.methods
    rows: list[tuple[Cell, ...]] = [
        (
            rank,
            method,
            mean_place[method],
            *(cells[method, name] for name in names),
            *([_beats(setup, values, method, names)] if beaten else []),
        )
        for rank, method in zip(_ranks([mean_place[method] for method in order]), order, strict=True)
    ]
    columns = ("rank", "method", "mean place", *names, *(["better than random on"] if beaten else []))
    ways = {way: ", ".join(name for name in names if possible()[name].better == way) for way in ("higher", "lower")}
    told = "; ".join(f"{way} is better: {which}" for way, which in ways.items() if which)
    note = f"{told[0].upper()}{told[1:]}. Ranked by the mean place over these."
    if beaten:
        note += " Better than random: the 95 % interval of the difference, example by example, is on the right side of 0."
    if len(setup.examples) < SURE:
        note += (
            f" Caution: {len(setup.examples)} texts are few. On other texts the ranks may be others: look at the intervals, and "
            f"judge {SURE} texts or more."
        )
    return [Table("ranking", "Which method to trust here", columns, tuple(rows), note)]


def _ranks(places: Sequence[float]) -> list[int]:
    """1 for the first; equal mean places share the rank of the first of them: 1, 2, 2, 4."""
    return [1 + sum(other < own and not math.isclose(other, own, rel_tol=1e-9) for other in places) for own in places]


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
    above = {method: sum(other > own for other in signed.values()) for method, own in signed.items()}
    same = {method: sum(other == own for other in signed.values()) for method, own in signed.items()}
    return {method: above[method] + (same[method] + 1) / 2 for method in means}


def _beats(setup: Setup, values: Mapping[tuple[Any, ...], Sequence[float]], method: str, names: Sequence[str]) -> str:
    if method == RANDOM:
        return "-"
    won = 0
    for name in names:
        pairs = zip(values[method, name], values[RANDOM, name], strict=True)
        gap: Interval = mean_with_interval([_sign(name) * (own - other) for own, other in pairs], seed=setup.seed)
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
    given: dict[str, Any] = {"trace": trace}
    if example.cues:
        given["cues"] = marks_at(cue_tokens(example, trace), len(trace))
    if example.info.get("rationale"):
        given["rationale"] = marks_at(span_tokens(example.info["rationale"], trace), len(trace))
    names = metrics_of(setup.options["metrics"])
    if BLANKED in names:  # the same for every method: n forward passes once, not once for each
        reference = attribute(trace, "blank_out", target=target, replacement="unk")
    made = []
    for method in setup.methods:
        given["scores"], seconds = scores_of(trace, method, target=target)
        for name in names:
            if name == BLANKED:
                value = spearman(given["scores"].scores, reference.scores)
                made.append(Record(str(example.id), method, name, value, {"seconds": seconds}))
                continue
            used = possible()[name]
            columns = {**given, "classes": _others(trace, method)} if "classes" in used.needs else given
            options = {"target": target} if "target" in used.options else {}
            value = as_number(name, used.function(*(columns[need] for need in used.needs if need in columns), **options))
            made.append(Record(str(example.id), method, name, value, {"seconds": seconds}))
    return made


def _others(trace: Trace, method: str) -> list[Any]:
    """The attributions for the classes that are not predicted."""
    assert trace.logits is not None
    predicted = int(trace.logits.argmax())
    return [scores_of(trace, method, target=label)[0] for label in range(len(trace.logits)) if label != predicted]
