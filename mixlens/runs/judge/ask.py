"""What `judge` is asked: metrics as written (`aopc:replacement=mask`), methods, and labels that say what is right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InputError, nearest
from ...data import label_ids
from ...metrics import Metric
from ...metrics import known as known_metrics
from ...metrics.foreign import Scorer
from ...model.model import Model
from ...scoring.asking import json_or_text
from ...scoring.attributions import known as attributions
from ...scoring.maps import known as maps
from ...scoring.removal import WAYS, can_fill, filler_token
from ...types import Example, Trace

# --- metrics ----------------------------------------------------------------------------------------------------------

FAITHFULNESS = (
    *("aopc", "lodds", "comprehensiveness", "decision_flip", "sufficiency", "insertion"),
    *("blank_out_faithfulness", "lds"),
)
CUES = ("cue_dot", "cue_average_precision", "probes_needed")
RATIONALES = ("rationale_auprc", "rationale_f1")
GROUPS: dict[str, tuple[str, ...]] = {
    "faithfulness": FAITHFULNESS,
    "cues": CUES,
    "rationales": RATIONALES,
    "fillers": tuple(f"aopc:replacement={way}" for way in WAYS),
}
NEEDS = {"trace", "scores", "rerun", "cues", "rationale", "classes", "class-specific"}
PACKAGES = {
    **dict.fromkeys(("blank_out_faithfulness", "kendall_confidence", "lds"), "scipy"),
    **dict.fromkeys(("cue_average_precision", "rationale_auprc"), "scikit-learn"),
}
# Equation 15 of AttCAT correlates token indices, which says little of a method: judge takes the scores themselves.
DEFAULTS: dict[str, dict[str, Any]] = {"kendall_confidence": {"variant": "scores"}}
BLANKED = "blank_out_faithfulness"
# The other reading of a metric's signs, measured beside it where a method's scores have signs.
OTHER_SIGNS = {
    "aopc": "aopc:ranking=magnitude",
    "cue_average_precision": "cue_average_precision:signs=positive",
    "rationale_auprc": "rationale_auprc:ranking=magnitude",
}


@dataclass(frozen=True)
class MetricRequest:
    """A metric as written: `name`, or `name:option=value`."""

    written: str
    metric: Metric
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.metric.id

    @property
    def kind(self) -> str:
        return self.metric.kind

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return 1 if self.metric.better == "higher" else -1


def possible() -> dict[str, Metric]:
    """The metrics that need one model, one example and one attribution, and judge: one way is better."""
    every = known_metrics().items()
    return {name: one for name, one in every if {"scores"} <= {*one.needs} <= NEEDS and one.better != "neither"}


def parse_metric(written: str) -> MetricRequest:
    """The metric that is meant. An unknown name or option is refused."""
    name, *pairs = written.split(":")
    known, options = possible(), {}
    if name not in known:
        raise InputError(f"unknown metric {name!r}. {nearest(name, [*GROUPS, *known])}")
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"{written!r}: an option is written key=value, such as aopc:replacement=mask.")
        options[key] = json_or_text(value)
    known[name].arguments(None, options)
    return MetricRequest(written, known[name], {**DEFAULTS.get(name, {}), **options})


def requests_of(written: Iterable[str]) -> list[MetricRequest]:
    """Names of metrics and of groups, parsed, each once."""
    names = dict.fromkeys(one for name in written for one in GROUPS.get(name, (name,)))
    if not names:
        raise InputError(f"no metric was asked for. {nearest('', [*GROUPS, *possible()])}")
    return [parse_metric(name) for name in names]


def packages_of(metrics: Iterable[str]) -> list[str]:
    """The packages that the metrics of these names need."""
    return sorted({PACKAGES[one.name] for one in requests_of(metrics) if one.name in PACKAGES})


def missing_token(model: Model, request: MetricRequest, *, infill: bool = False) -> str | None:
    """The token a metric replaces others by, where the model has none. `infill`: another model fills gaps."""
    way = request.options.get("replacement", request.metric.options.get("replacement"))
    if way == "infill":
        return None if infill or can_fill(model) else "infilled"
    return way if way in ("pad", "mask", "unk") and filler_token(model, way) is None else None


# --- methods ----------------------------------------------------------------------------------------------------------

NO_EXPLANATION = ("null_attention",)  # what the model's output cannot know of


def peers() -> list[str]:
    """Methods of other tools, to compare with: some need a library, some hundreds of passes."""
    return [name for name, method in attributions().items() if method.peer]


def every_method() -> tuple[list[str], list[str]]:
    """All methods that explain, and those left out since their cost grows with the width of the model: minutes for one
    text. Peers are a group of their own."""
    costs = {name: one.cost for name, one in [*attributions().items(), *maps().items()]}
    names = [name for name in [*maps(), *attributions()] if name not in (*NO_EXPLANATION, *peers())]
    slow = [name for name in names if re.search(r"\bd\b", costs[name])]
    return [name for name in names if name not in slow], slow


def names_in(written: str | Iterable[Any]) -> list[Any]:
    """The parts of a list with commas; a list as it is."""
    return [name.strip() for name in written.split(",") if name.strip()] if isinstance(written, str) else list(written)


def asked_methods(methods: Any) -> tuple[list[str], dict[str, Any]]:
    """The names of the methods, and those among them that are given from outside: functions, or lists of scores."""
    names: list[str] = []
    given: dict[str, Any] = {}
    asked = [methods] if callable(methods) or isinstance(methods, Mapping) else names_in(methods)
    groups = [one for one in asked if isinstance(one, str) and one in ("all", "peers")]
    for one in asked:
        if isinstance(one, str):
            names += peers() if one == "peers" else every_method()[0] if one == "all" else [one]
        elif isinstance(one, Mapping):
            given |= one
            names += one
        elif callable(one):
            names.append(getattr(one, "__name__", type(one).__name__).strip("<>"))
            given[names[-1]] = one
        else:
            raise InputError(
                f"a method is a name, a function of a trace, or a dict of a name and scores, not {one!r:.60}."
            )
    return list(dict.fromkeys(names)) if groups else names, given


def scorers_of(given: Mapping[str, Any], examples: Sequence[Example]) -> dict[str, Scorer]:
    """A function of a trace for each method from outside."""
    return {name: one if callable(one) else _looked_up(name, one, examples) for name, one in given.items()}


def _looked_up(name: str, scores: Any, examples: Sequence[Example]) -> Scorer:
    """The scores of each text, found by the text."""
    if not isinstance(scores, list | tuple) or len(scores) != len(examples):
        count = len(scores) if hasattr(scores, "__len__") else "no list"
        raise InputError(
            f"{name!r} has the scores of {count}, and there are {len(examples)} texts. Give a list with those of each."
        )
    by_text: dict[tuple[str, str | None], Any] = {}
    for example, one in zip(examples, scores, strict=True):
        if (example.text, example.pair) in by_text:
            raise InputError(
                f"{name!r}: the text {example.text!r:.60} is there twice, so its scores are not told apart."
            )
        by_text[example.text, example.pair] = one

    def given_scores(trace: Trace) -> Any:
        """Scores that were made elsewhere."""
        return by_text[str(trace.text), trace.pair]

    return given_scores


# --- labels -----------------------------------------------------------------------------------------------------------


def labels_of(examples: Iterable[Example]) -> list[str]:
    """The labels of the texts, each once."""
    labels = dict.fromkeys(example.info.get("label") for example in examples)
    return [str(label) for label in labels if label is not None]


def classes_of(examples: Iterable[Example], model: Model) -> dict[str, int]:
    """The class of each label that names one. Where none does, and each is the id of a class, that class."""
    if model.task != "classification":
        return {}
    labels, classes = labels_of(examples), dict[str, int]()
    for label in labels:
        with suppress(InputError):  # the names of the classes are not those of the labels
            classes |= label_ids([label], model)
    are_ids = set(labels) <= {str(number) for number in model.hf_model.config.id2label}
    return classes or ({label: int(label) for label in labels} if are_ids else {})
