"""The everyday experiment: which method finds, on this model and these texts, the tokens that the prediction rests on?

What is explained is what is measured: log p of the target against its foil where there is one (the other class of a
classifier with two), else log p of the target. `explains="logit"` explains the logit of the target; what is measured
stays."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from ...scoring.removal import UNITS, Infill, removable_units, staying
from ...scoring.targets import Target, logits_at, resolve
from ...types import Attribution, Example, Record, Trace
from ..experiments.experiment import Setup, experiment
from ..experiments.prepare import removable
from .ask import BLANKED, OTHER_SIGNS, MetricRequest, classes_of, missing_token, packages_of, parse_metric, requests_of
from .board import IS_BLANK_OUT
from .say import figure_of, tables_of

EXPLAINS = ("measured", "logit")
BY_DEFAULT = "default"
LEARN_FROM_SUBSETS = ("context_cite", "lime", "shap")  # made of the model's outputs on texts without many units at once
ORDER, SEARCH = (
    ("unit", "ranking", "label"),
    ("replacement", "beam"),
)  # options of naopc: of its order, and of its bounds
COMPARED = ("unit", "replacement", "absolute", "target", "foil", "query", "keep_special")  # options of blanked_units
SAME = 1e-4  # shares of scores that differ by less, relative to the largest, are rounding


# --- refused before the long work -------------------------------------------------------------------------------------


def _prepare(setup: Setup) -> None:
    options, model = setup.options, setup.model
    if gives_number(model):
        raise InputError(
            f"{model.name!r} gives one number and no class, so there is no probability that could fall: its methods "
            "cannot be judged. explain shows what its number rests on, for example by attcat."
        )
    one_of("explains", options["explains"], EXPLAINS)
    one_of("ranking", options["ranking"], (BY_DEFAULT, *RANKINGS))
    one_of("unit", options["unit"], UNITS)
    if not isinstance(options["draws"], int) or options["draws"] < 1:
        raise InputError(f"draws is a number of random rankings, at least 1, not {options['draws']!r}.")
    for request in requests_of(options["metrics"]):
        _refuse_metric(setup, request)
    removable(setup)


def _refuse_metric(setup: Setup, request: MetricRequest) -> None:
    """Refuse a metric whose marks, classes or token are missing."""
    model, written, needs = setup.model, request.written, request.metric.needs
    for need in {"cues", "rationale"} & set(needs):
        without = [str(e.id) for e in setup.examples if not (e.cues if need == "cues" else e.info.get(need))]
        if without:
            some = (
                "the text has none"
                if len(setup.examples) == 1
                else f"{len(without)} examples have none ({without[0]} ...)"
            )
            raise InputError(f"{written!r} needs {need}, and {some}. Leave it out, or take data that has {need}.")
    if "class-specific" in needs:
        wrong = [method for method, asked in setup.requests.items() if not asked.class_specific]
        if wrong or model.task != "classification":
            what = f"{wrong[0]!r} gives every class the same scores" if wrong else f"{model.name!r} has no classes"
            raise InputError(f"{written!r} compares classes, and {what}. Leave it out.")
    token = missing_token(model, request, infill=len(setup.models) > 1)
    if token == "infilled":
        raise InputError(
            f"{written!r} needs a masked language model with this vocabulary: infill=NAME. Or leave it out."
        )
    if token:
        raise InputError(
            f"{written!r} replaces tokens by the {token} token, and {model.name!r} has none. Leave it out."
        )


# --- what is explained, and whether it is right -----------------------------------------------------------------------


def explained(example: Example, trace: Trace, explains: str) -> dict[str, Any]:
    """target, foil and score of the attributions: log-odds against the foil where there is one (the logit of the target
    less the foil's), else the log-probability, which metrics measure too; "logit": the target's logit alone, which they
    do not."""
    asked = (
        example if trace.model.task != "question-answering" else Example(example.text)
    )  # of these the predicted span
    target: Any = "predicted" if asked.target is None else asked.target
    if explains == "logit":
        return {"target": target, "foil": None, "score": "logit"}
    foil: Any = None if asked.target is None else asked.foil
    if foil is None and trace.model.task == "classification" and trace.model.hf_model.config.num_labels == 2:
        foil = 1 - resolve(trace, target).ids[0]  # the other class of two
    return {"target": target, "foil": foil, "score": "log_probability" if foil is None else "logit"}


def is_right(example: Example, trace: Trace, classes: Mapping[str, int]) -> bool | None:
    """Whether the model predicts what is known to be right: the label, or the target (above the foil); None: nothing is
    known."""
    if trace.model.task == "classification":
        known = classes.get(str(example.info.get("label")))
        return None if known is None else known == resolve(trace).ids[0]
    if trace.model.task not in ("masked-lm", "causal-lm") or example.target is None:
        return None
    if example.foil is None:
        return resolve(trace).ids == resolve(trace, example.target).ids
    pair = resolve(trace, example.target, foil=example.foil)
    logits = logits_at(trace, pair.positions)
    return bool(logits[pair.ids[0]] > logits[pair.foil])


# --- one example ------------------------------------------------------------------------------------------------------


class Case:
    """One example under judgement: its trace, what is explained, and what all methods share."""

    def __init__(self, setup: Setup, example: Example):
        self.setup, self.example, self.trace = setup, example, setup.model.trace(example)
        self.explained = explained(example, self.trace, setup.options["explains"])
        measured = explained(example, self.trace, "measured")  # as metrics take them, whatever is explained
        self.question = {name: measured[name] for name in ("target", "foil")}
        self.scores: Mapping[str, Attribution] = {}  # of every method
        self.shared: dict[str, dict[str, Any]] = {}  # by metric: what is computed once for all methods
        self.values: dict[tuple[str, str], float] = {}  # by method and metric

    @cached_property
    def right(self) -> bool | None:
        return is_right(self.example, self.trace, classes_of(self.setup.examples, self.setup.model))

    @cached_property
    def columns(self) -> dict[str, Any]:
        """What metrics need beside the scores: the trace, and the marks [pos] of cues and rationales where there are
        any."""
        columns: dict[str, Any] = {"trace": self.trace}
        if self.example.cues:
            columns["cues"] = marks_at(cue_tokens(self.example, self.trace), len(self.trace))
        if self.example.info.get("rationale"):
            columns["rationale"] = marks_at(span_tokens(self.example.info["rationale"], self.trace), len(self.trace))
        return columns

    @cached_property
    def blank_out(self) -> Attribution:
        """What blanking each token does to what is explained, by the token that a path of gradients begins with."""
        model = self.trace.model
        mask = None if model.tokenizer is None else model.tokenizer.mask_token_id
        first = mask if mask is not None else model.hf_model.config.pad_token_id
        return attribute(self.trace, "blank_out", **self.explained, replacement="zero" if first is None else int(first))

    def is_blank_out(self, scores: Attribution) -> bool:
        """Whether scores are those of blank_out, but for their scale, on the tokens that may be taken away.

        An integral is as near to its value as its tolerance says, so that more than rounding may lie between the two.
        """
        stay = staying(self.trace, resolve(self.trace, **self.question))
        places = [i for i in range(len(self.trace)) if i not in stay]
        one, other = (_shares(vector(side)[places]) for side in (scores, self.blank_out))
        return bool(np.abs(one - other).max() < CLOSED)

    def options(self, request: MetricRequest) -> dict[str, Any]:
        """The options of a metric: those that are written, the question, the ranking and the unit of this run."""
        run, models = self.setup.options, self.setup.models
        wanted = {**self.question, "unit": run["unit"], "keep_special": False}
        if run["ranking"] != BY_DEFAULT:  # as the metrics of faithfulness, and as those of cues call it
            wanted |= {
                "ranking": run["ranking"],
                "signs": {"signed": "positive", "magnitude": "absolute"}[run["ranking"]],
            }
        if request.name == "lds" and run["unit"] == "token":  # its own default, words
            del wanted["unit"]
        known = {name: value for name, value in wanted.items() if name in request.metric.options}
        options = {**known, **request.options}
        if options.get("replacement") == "infill" and len(models) > 1:  # the second model fills gaps
            options["replacement"] = Infill(models[1])
        return options

    def draws(self, request: MetricRequest) -> list[NDArray[Any]]:
        """[draw][pos]: uniform random scores, one number for each unit of a metric. Their seed is made of the text, so
        that texts have different noise."""
        unit = {**request.metric.options, **self.options(request)}.get("unit", "token")
        generator = np.random.default_rng([self.setup.seed, zlib.crc32(" ".join(self.trace.tokens).encode())])
        target = resolve(self.trace, **self.question)
        return [random_scores(self.trace, target, unit, generator) for _ in range(self.setup.options["draws"])]

    def value(self, request: MetricRequest, scores: Any, method: MethodRequest | None) -> float:
        """One metric of one method's scores."""
        columns = {**self.columns, "scores": scores}
        if "classes" in request.metric.needs and method is not None:
            assert self.trace.logits is not None
            others = [label for label in range(len(self.trace.logits)) if label != int(self.trace.logits.argmax())]
            columns["classes"] = [scores_of(self.trace, method, target=label)[0] for label in others]
        given = [columns[need] for need in request.metric.needs if need in columns]
        if request.written not in self.shared:
            self.shared[request.written] = self.of_text(request)
        options = {**self.options(request), **self.shared[request.written]}
        return as_number(request.name, request.metric.function(*given, **options))

    def of_text(self, request: MetricRequest) -> dict[str, Any]:
        """What a metric computes of the text and the model alone: once for all methods."""
        options = self.options(request)

        def some(names: Iterable[str]) -> dict[str, Any]:
            return {name: options[name] for name in names if name in options}

        if request.name == BLANKED:
            return {"blanked": blanked_units(self.trace, **some(COMPARED))}
        if request.name == "lds":
            return {"subsets": held_out_subsets(self.trace, **options)}
        if request.name == "naopc":  # the bounds of a text are those of all methods and of the random draws
            every: list[Any] = [np.zeros(len(self.trace)), *self.scores.values(), *self.draws(request)]
            course, *orders = (course_of(self.trace, scores, **self.question, **some(ORDER)) for scores in every)
            return {"bounds": aopc_bounds(course, **some(SEARCH), orders=orders)}
        return {}


def random_scores(trace: Trace, target: Target, unit: str, generator: np.random.Generator) -> NDArray[Any]:
    """[pos]: one uniform number for each unit that may be taken away, in equal parts on its tokens, so that the sums of
    short and long units are drawn alike; one for each position that stays."""
    scores = generator.random(len(trace))
    for positions in removable_units(trace, target, unit):
        scores[list(positions)] = scores[positions[0]] / len(positions)
    return scores


# --- all methods on one example ---------------------------------------------------------------------------------------


def _shares(values: Any) -> Any:
    """[pos]: scores divided by the largest absolute one."""
    return values / max(float(np.abs(values).max()), 1e-300)


def twins_of(scores: Mapping[str, Attribution]) -> dict[str, str]:
    """Method -> the first method whose scores are the same but for their scale and for rounding; itself, where there is
    none."""
    shares = {method: _shares(vector(attribution)) for method, attribution in scores.items()}
    return {
        method: next(other for other in shares if np.abs(shares[other] - shares[method]).max() < SAME)
        for method in shares
    }


def is_circular(method: MethodRequest, request: MetricRequest) -> bool:
    """Blank-out is not judged by how well it agrees with blank-out, nor a method that learns from subsets of the text
    by how well it predicts what the model does with subsets, whichever they are."""
    return (method.name, request.name) == ("blank_out", BLANKED) or (
        request.name == "lds" and method.name in LEARN_FROM_SUBSETS
    )


@experiment(
    name="judge",
    paper="mixlens",
    shows="a ranking of methods",
    data="agreement",
    model="agreement",
    methods=(RANDOM, "attention", "globenc", "alti", "value_zeroing", "grad_x_input", "attcat"),
    task=("classification", "masked-lm", "causal-lm", "question-answering"),
    options={"metrics": ["faithfulness"], "explains": "measured", "ranking": BY_DEFAULT, "unit": "token", "draws": 5},
    packages=lambda options: packages_of(options["metrics"]),
    prepare=_prepare,
    finish=tables_of,
    figure=figure_of,
)
def judged(setup: Setup, example: Example) -> list[Record]:
    """Which method finds the tokens that the model's predictions rest on?"""
    case, metrics = Case(setup, example), requests_of(setup.options["metrics"])
    written = [request.written for request in metrics]
    others = [OTHER_SIGNS[name] for name in written if name in OTHER_SIGNS and OTHER_SIGNS[name] not in written]
    signs = [parse_metric(name) for name in others] if setup.options["ranking"] == BY_DEFAULT else []
    asked = {
        name: request for name, request in setup.requests.items() if name != RANDOM
    }  # random is drawn several times
    timed = every_score(case.trace, asked, **case.explained)
    scores = case.scores = {method: attribution for method, (attribution, _) in timed.items()}
    records = []
    for request in metrics:  # the mean over several draws of random scores: what every method is compared with
        if "class-specific" not in request.metric.needs:
            values = np.array([case.value(request, drawn, None) for drawn in case.draws(request)])
            spread = float(values.std(ddof=min(1, len(values) - 1)))
            facts: dict[str, Any] = {"seconds": 0.0, "spread": spread, "right": case.right}
            records.append(Record(str(example.id), RANDOM, request.written, float(values.mean()), facts))
    for method, twin in twins_of(scores).items():
        of = asked[method]
        facts = {"seconds": timed[method][1], "same_as": twin, "right": case.right}
        if BLANKED in [one.name for one in metrics] and of.class_specific and of.name != "blank_out":
            facts |= {IS_BLANK_OUT: True} if case.is_blank_out(scores[method]) else {}
        for request in [*metrics, *(signs if of.class_specific else [])]:
            if not is_circular(of, request):  # a method has the values of its twin
                key = (method if "classes" in request.metric.needs else twin, request.written)
                if key not in case.values:
                    case.values[key] = case.value(request, scores[twin], of)
                records.append(Record(str(example.id), method, request.written, case.values[key], facts))
    return records
