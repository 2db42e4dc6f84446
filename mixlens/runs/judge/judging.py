"""The everyday experiment: which method finds, on this model and these texts, the tokens that the prediction rests on?

What is explained is what is measured: log p of the target against its foil where there is one (the other class of a classifier
with two), else log p of the target. `explains="logit"` explains the logit of the target; what is measured stays.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...data import cue_tokens, span_tokens
from ...metrics.arguments import marks_at, one_of, vector
from ...metrics.faithfulness import blanked_units, course_of
from ...metrics.plausibility import RANKINGS
from ...metrics.registry import as_number
from ...metrics.removal_curves import aopc_bounds
from ...metrics.subsets import held_out_subsets
from ...model.predict import gives_number
from ...scoring.asking import RANDOM, MethodRequest, every_score, scores_of
from ...scoring.attributions import attribute
from ...scoring.completeness import CLOSED
from ...scoring.removal import UNITS, Infill, staying
from ...scoring.targets import resolve
from ...types import Attribution, Example, Record, Trace
from ..experiments.experiment import Setup, experiment
from ..experiments.prepare import removable
from ..experiments.verdict import figure_of, tables_of
from .judged_labels import data_classes, is_right
from .judged_metrics import (
    BLANKED,
    CUES,
    FAITHFULNESS,
    GROUPS,
    IS_BLANK_OUT,
    OTHER_SIGNS,
    RATIONALES,
    MetricRequest,
    metrics_of,
    missing_token,
    packages_of,
    parse_metric,
    possible,
    requests_of,
)
from .judged_random import random_scores

__all__ = [
    "CUES",
    "FAITHFULNESS",
    "GROUPS",
    "RATIONALES",
    "judged",
    "metrics_of",
    "missing_token",
    "packages_of",
    "possible",
]
EXPLAINS = ("measured", "logit")
BY_DEFAULT = "default"
LEARN_FROM_SUBSETS = ("context_cite", "lime", "shap")  # made of the model's outputs on texts without many units at once
ORDER, SEARCH = (
    ("unit", "ranking", "label"),
    ("replacement", "beam"),
)  # options of naopc: of its order, and of its bounds
COMPARED = ("unit", "replacement", "absolute", "target", "foil", "query", "keep_special")  # options of blanked_units
SAME = 1e-4  # shares of scores that differ by less, relative to the largest, are rounding


# --- refused before the long work ---------------------------------------------------------------------------------------


def _prepare(setup: Setup) -> None:
    _refuse_number(setup)
    one_of("explains", setup.options["explains"], EXPLAINS)
    one_of("ranking", setup.options["ranking"], (BY_DEFAULT, *RANKINGS))
    one_of("unit", setup.options["unit"], UNITS)
    if not isinstance(setup.options["draws"], int) or setup.options["draws"] < 1:
        raise InputError(f"draws is a number of random rankings, at least 1, not {setup.options['draws']!r}.")
    for request in requests_of(setup.options["metrics"]):
        _refuse_metric(setup, request)
    removable(setup)


def _refuse_number(setup: Setup) -> None:
    if gives_number(setup.model):
        raise InputError(
            f"{setup.model.name!r} gives one number and no class, so there is no probability that could fall: its methods cannot "
            "be judged. explain shows what its number rests on, for example by attcat."
        )


def _refuse_metric(setup: Setup, request: MetricRequest) -> None:
    _refuse_examples(setup, request)
    if "class-specific" in request.metric.needs:
        _refuse_without_classes(setup, request)
    token = missing_token(setup.model, request.written, infill=len(setup.models) > 1)
    if token == "infilled":
        raise InputError(
            f"{request.written!r} needs a masked language model with this vocabulary: infill=NAME. Or leave it out."
        )
    if token:
        raise InputError(
            f"{request.written!r} replaces tokens by the {token} token, and {setup.model.name!r} has none. Leave it out."
        )


def _refuse_examples(setup: Setup, request: MetricRequest) -> None:
    """Every example has the cues or the rationale that a metric needs."""
    for need in {"cues", "rationale"} & set(request.metric.needs):
        without = [str(e.id) for e in setup.examples if not (e.cues if need == "cues" else e.info.get(need))]
        if without:
            some = (
                "the text has none"
                if len(setup.examples) == 1
                else f"{len(without)} examples have none ({without[0]} ...)"
            )
            raise InputError(
                f"{request.written!r} needs {need}, and {some}. Leave it out, or take data that has {need}."
            )


def _refuse_without_classes(setup: Setup, request: MetricRequest) -> None:
    """A metric that compares classes needs a classifier, and methods that explain a class."""
    wrong = [method for method, asked in setup.requests.items() if not asked.class_specific]
    if wrong or setup.model.task != "classification":
        what = f"{wrong[0]!r} gives every class the same scores" if wrong else f"{setup.model.name!r} has no classes"
        raise InputError(f"{request.written!r} compares classes, and {what}. Leave it out.")


# --- what is explained --------------------------------------------------------------------------------------------------


def explained(example: Example, trace: Trace, explains: str) -> dict[str, Any]:
    """target, foil and score of the attributions: log-odds against the foil where there is one (the logit of the target less the
    foil's), else the log-probability, which metrics measure too; "logit": the target's logit alone, which they do not."""
    asked = (
        example if trace.model.task != "question-answering" else Example(example.text)
    )  # of these the predicted span
    target: Any = "predicted" if asked.target is None else asked.target
    if explains == "logit":
        return {"target": target, "foil": None, "score": "logit"}
    foil = _other_class(trace, target) if asked.target is None or asked.foil is None else asked.foil
    return {"target": target, "foil": foil, "score": "log_probability" if foil is None else "logit"}


def _other_class(trace: Trace, target: Any) -> int | None:
    """The other class of a classifier with two."""
    if trace.model.task != "classification" or trace.model.hf_model.config.num_labels != 2:
        return None
    return 1 - resolve(trace, target).ids[0]


# --- one example --------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One example under judgement: its trace, what is explained, and what all methods share."""

    setup: Setup
    example: Example
    scores: Mapping[str, Attribution] = field(default_factory=dict)  # of every method
    shared: dict[str, dict[str, Any]] = field(default_factory=dict)  # by metric: what is computed once for all methods
    values: dict[tuple[str, str], float] = field(default_factory=dict)  # by method and metric

    @cached_property
    def trace(self) -> Trace:
        return self.setup.model.trace(self.example)

    @cached_property
    def explained(self) -> dict[str, Any]:
        return explained(self.example, self.trace, self.setup.options["explains"])

    @cached_property
    def right(self) -> bool | None:
        return is_right(self.example, self.trace, data_classes(self.setup))

    @cached_property
    def blank_out(self) -> Attribution:
        """What blanking each token does to what is explained, by the token that a path of gradients begins with."""
        model = self.trace.model
        mask = None if model.tokenizer is None else model.tokenizer.mask_token_id
        first = mask if mask is not None else model.hf_model.config.pad_token_id
        return attribute(self.trace, "blank_out", **self.explained, replacement="zero" if first is None else int(first))

    @cached_property
    def question(self) -> dict[str, Any]:
        """target and foil, as metrics take them, whatever is explained."""
        measured = explained(self.example, self.trace, "measured")
        return {name: measured[name] for name in ("target", "foil")}

    @cached_property
    def columns(self) -> dict[str, Any]:
        """What metrics need beside the scores: the trace, and the marks [pos] of cues and rationales where there are any."""
        columns: dict[str, Any] = {"trace": self.trace}
        if self.example.cues:
            columns["cues"] = marks_at(cue_tokens(self.example, self.trace), len(self.trace))
        if self.example.info.get("rationale"):
            columns["rationale"] = marks_at(span_tokens(self.example.info["rationale"], self.trace), len(self.trace))
        return columns

    def options(self, request: MetricRequest) -> dict[str, Any]:
        """The options of a metric: those that are written, the question, the ranking and the unit of this run."""
        run = self.setup.options
        wanted = {**self.question, "unit": run["unit"], **_signs(run["ranking"]), "keep_special": False}
        if request.name == "lds" and run["unit"] == "token":  # its own default, words
            del wanted["unit"]
        known = {name: value for name, value in wanted.items() if name in request.metric.options}
        written = {**known, **request.options}
        return written if written.get("replacement") != "infill" else {**written, "replacement": self._infill()}

    def _infill(self) -> Any:
        """The second model of the run fills gaps; without one, the judged model itself."""
        return Infill(self.setup.models[1]) if len(self.setup.models) > 1 else "infill"

    def draws(self, request: MetricRequest) -> list[Any]:
        """[draw][pos]: uniform random scores, one number for each unit of a metric."""
        unit = {**request.metric.options, **self.options(request)}.get("unit", "token")
        generator = np.random.default_rng([self.setup.seed, zlib.crc32(" ".join(self.trace.tokens).encode())])
        target = resolve(self.trace, **self.question)
        return [random_scores(self.trace, target, unit, generator) for _ in range(self.setup.options["draws"])]

    def value(self, request: MetricRequest, scores: Any, method: MethodRequest | None) -> float:
        """One metric of one method's scores."""
        columns = {**self.columns, "scores": scores}
        if "classes" in request.metric.needs and method is not None:
            columns["classes"] = _other_classes(self.trace, method)
        given = [columns[need] for need in request.metric.needs if need in columns]
        return as_number(request.name, request.metric.function(*given, **self.options(request), **self.once(request)))

    def once(self, request: MetricRequest) -> dict[str, Any]:
        """What a metric computes of the text and the model alone: once for all methods."""
        if request.written not in self.shared:
            self.shared[request.written] = _SHARED[request.name](self, request) if request.name in _SHARED else {}
        return self.shared[request.written]


def _signs(ranking: str) -> dict[str, str]:
    """`ranking` as the metrics of faithfulness and of cues call it."""
    signs = {"signed": "positive", "magnitude": "absolute"}
    return {} if ranking == BY_DEFAULT else {"ranking": ranking, "signs": signs[ranking]}


def _other_classes(trace: Trace, request: MethodRequest) -> list[Any]:
    """The attributions for the classes that are not predicted."""
    assert trace.logits is not None
    predicted = int(trace.logits.argmax())
    return [scores_of(trace, request, target=label)[0] for label in range(len(trace.logits)) if label != predicted]


def _some(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _blanked(case: Case, request: MetricRequest) -> dict[str, Any]:
    return {"blanked": blanked_units(case.trace, **_some(case.options(request), COMPARED))}


def _subsets(case: Case, request: MetricRequest) -> dict[str, Any]:
    return {"subsets": held_out_subsets(case.trace, **case.options(request))}


def _bounds(case: Case, request: MetricRequest) -> dict[str, Any]:
    """The bounds of a text, which no order that is measured on it passes: those of all methods and of the random draws."""
    options = case.options(request)
    asked, search = _some(options, ORDER), _some(options, SEARCH)
    every = [np.zeros(len(case.trace)), *case.scores.values(), *case.draws(request)]
    course, *orders = (course_of(case.trace, scores, **case.question, **asked) for scores in every)
    return {"bounds": aopc_bounds(course, **search, orders=orders)}


_SHARED = {BLANKED: _blanked, "lds": _subsets, "naopc": _bounds}


# --- all methods on one example -----------------------------------------------------------------------------------------


def _measured_methods(setup: Setup) -> dict[str, MethodRequest]:
    """The methods whose scores are computed: all but plain `random`, which is drawn several times."""
    return {written: request for written, request in setup.requests.items() if written != RANDOM}


def other_signs(setup: Setup) -> list[MetricRequest]:
    """The other reading of the signs of each metric, where the run leaves the signs to the metrics."""
    names = metrics_of(setup.options["metrics"])
    written = [OTHER_SIGNS[name] for name in names if name in OTHER_SIGNS and OTHER_SIGNS[name] not in names]
    return [parse_metric(name) for name in written] if setup.options["ranking"] == BY_DEFAULT else []


def _random_values(case: Case, request: MetricRequest) -> list[float]:
    """[draw]: the metric of uniform random scores. Their seed is made of the text, so that texts have different noise."""
    return [case.value(request, scores, None) for scores in case.draws(request)]


def _random_records(case: Case) -> Iterator[Record]:
    """The mean over several draws of random scores, and their spread: what every method is compared with."""
    for request in requests_of(case.setup.options["metrics"]):
        if "class-specific" not in request.metric.needs:
            values = np.array(_random_values(case, request))
            facts = {"seconds": 0.0, "spread": float(values.std(ddof=min(1, len(values) - 1))), "right": case.right}
            yield Record(str(case.example.id), RANDOM, request.written, float(values.mean()), facts)


def twins_of(scores: Mapping[str, Attribution]) -> dict[str, str]:
    """Method -> the first method whose scores are the same but for their scale and for rounding; itself, where there is none."""
    shares = {method: _shares(attribution) for method, attribution in scores.items()}
    return {method: next(other for other in shares if _alike(shares[other], shares[method])) for method in shares}


def _shares(scores: Any) -> Any:
    """[pos]: scores divided by the largest absolute one."""
    values = vector(scores)
    return values / max(float(np.abs(values).max()), 1e-300)


def _alike(one: Any, other: Any) -> bool:
    return bool(np.abs(one - other).max() < SAME)


def is_blank_out(case: Case, scores: Attribution) -> bool:
    """Whether scores are those of blank_out, but for their scale, on the tokens that may be taken away.

    An integral is as near to its value as its tolerance says, so that more than rounding may lie between the two.
    """
    stay = staying(case.trace, resolve(case.trace, **case.question))
    places = [i for i in range(len(case.trace)) if i not in stay]
    one, other = (_shares(vector(side)[places]) for side in (scores, case.blank_out))
    return bool(np.abs(one - other).max() < CLOSED)


def _circular_facts(case: Case, method: str, scores: Attribution) -> dict[str, Any]:
    """{"is_blank_out": True} for a method under another name that blank_out_faithfulness would compare with itself."""
    asked = any(request.name == BLANKED for request in requests_of(case.setup.options["metrics"]))
    request = case.setup.requests[method]
    blanks = asked and request.class_specific and request.name != "blank_out" and is_blank_out(case, scores)
    return {IS_BLANK_OUT: True} if blanks else {}


def is_circular(method: MethodRequest, request: MetricRequest) -> bool:
    """Blank-out is not judged by how well it agrees with blank-out, nor a method that learns from subsets of the text by how well
    it predicts what the model does with subsets, whichever they are."""
    return (method.name, request.name) == ("blank_out", BLANKED) or (
        request.name == "lds" and method.name in LEARN_FROM_SUBSETS
    )


def _records_of(case: Case, method: str, twin: str, scores: Attribution, facts: Mapping[str, Any]) -> Iterator[Record]:
    """The records of one method, without the metrics that cannot judge it. A method has the values of its twin."""
    asked, example = case.setup.requests[method], str(case.example.id)
    others = other_signs(case.setup) if asked.class_specific else []
    for request in [*requests_of(case.setup.options["metrics"]), *others]:
        if not is_circular(asked, request):
            key = (method if "classes" in request.metric.needs else twin, request.written)
            if key not in case.values:
                case.values[key] = case.value(request, scores, asked)
            yield Record(example, method, request.written, case.values[key], facts)


@experiment(
    name="judge",
    paper="mixlens",
    shows="a ranking of methods",
    data="agreement",
    model="agreement",
    methods=(RANDOM, "attention", "globenc", "alti", "value_zeroing", "grad_x_input", "attcat"),
    task=("classification", "masked-lm", "causal-lm", "question-answering"),
    options={
        "metrics": ["faithfulness"],
        "explains": "measured",
        "ranking": BY_DEFAULT,
        "unit": "token",
        "draws": 5,
    },
    packages=lambda options: packages_of(options["metrics"]),
    prepare=_prepare,
    finish=tables_of,
    figure=figure_of,
)
def judged(setup: Setup, example: Example) -> list[Record]:
    """Which method finds the tokens that the model's predictions rest on?"""
    case = Case(setup, example)
    timed = every_score(case.trace, _measured_methods(setup), **case.explained)
    scores = case.scores = {method: attribution for method, (attribution, _) in timed.items()}
    records = list(_random_records(case))
    for method, twin in twins_of(scores).items():
        facts = {"seconds": timed[method][1], "same_as": twin, "right": case.right}
        facts |= _circular_facts(case, method, scores[method])
        records += _records_of(case, method, twin, scores[twin], facts)
    return records
