"""The metrics of `judge`: their groups, a metric as written (`aopc:replacement=mask`), and what each needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InputError, nearest
from ...metrics import Metric
from ...metrics import known as known_metrics
from ...model.model import Model
from ...scoring.asking import json_or_text
from ...scoring.removal import WAYS, can_fill, filler_token

FAITHFULNESS = (
    *("aopc", "lodds", "comprehensiveness", "decision_flip", "sufficiency", "insertion"),
    *("blank_out_faithfulness", "lds"),
)
CUES = ("cue_dot", "cue_average_precision", "probes_needed")
RATIONALES = ("rationale_auprc", "rationale_f1")
FILLERS = tuple(f"aopc:replacement={way}" for way in WAYS)
GROUPS: dict[str, tuple[str, ...]] = {
    "faithfulness": FAITHFULNESS,
    "cues": CUES,
    "rationales": RATIONALES,
    "fillers": FILLERS,
}
NEEDS = {"trace", "scores", "rerun", "cues", "rationale", "classes", "class-specific"}
PACKAGES = {
    **dict.fromkeys(("blank_out_faithfulness", "kendall_confidence", "lds"), "scipy"),
    **dict.fromkeys(("cue_average_precision", "rationale_auprc"), "scikit-learn"),
}
# Equation 15 of AttCAT correlates token indices, which says little of a method: judge takes the scores themselves.
DEFAULTS: dict[str, dict[str, Any]] = {"kendall_confidence": {"variant": "scores"}}
BLANKED = "blank_out_faithfulness"
IS_BLANK_OUT = "is_blank_out"  # the fact of a record whose scores are those of blank_out, which BLANKED must not judge
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
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> Metric:
        return possible()[self.name]

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return 1 if self.metric.better == "higher" else -1

    def replacement(self) -> Any:
        """What stands in the place of a token that is taken away; None where the metric takes none away."""
        return self.options.get("replacement", self.metric.options.get("replacement"))


def possible() -> dict[str, Metric]:
    """The metrics that need one model, one example and one attribution, and judge: one way is better."""
    return {
        name: one
        for name, one in known_metrics().items()
        if {"scores"} <= set(one.needs) <= NEEDS and one.better != "neither"
    }


def parse_metric(written: str) -> MetricRequest:
    """The metric that is meant. An unknown name or option is refused."""
    name, *pairs = written.split(":")
    if name not in possible():
        raise InputError(f"unknown metric {name!r}. {nearest(str(name), [*GROUPS, *possible()])}")
    options = dict(_option(pair, written) for pair in pairs)
    possible()[name].arguments(None, options)
    return MetricRequest(written, name, {**DEFAULTS.get(name, {}), **options})


def _option(pair: str, written: str) -> tuple[str, Any]:
    key, sign, value = pair.partition("=")
    if not sign:
        raise InputError(f"{written!r}: an option is written key=value, such as aopc:replacement=mask.")
    return key, json_or_text(value)


def metrics_of(written: Iterable[str]) -> list[str]:
    """Names of metrics and of groups, as metrics."""
    metrics = list(dict.fromkeys(one for name in written for one in GROUPS.get(name, (name,))))
    for name in metrics:
        parse_metric(name)
    if not metrics:
        raise InputError(f"no metric was asked for. {nearest('', [*GROUPS, *possible()])}")
    return metrics


def requests_of(written: Iterable[str]) -> list[MetricRequest]:
    """Names of metrics and of groups, parsed."""
    return [parse_metric(name) for name in metrics_of(written)]


def packages_of(metrics: Iterable[str]) -> list[str]:
    """The packages that the metrics of these names need."""
    return sorted({PACKAGES[one.name] for one in requests_of(metrics) if one.name in PACKAGES})


def missing_token(model: Model, metric: str, *, infill: bool = False) -> str | None:
    """The token a metric replaces others by, where the model has none. `infill`: another model fills gaps."""
    way = parse_metric(metric).replacement()
    if way == "infill":
        return None if infill or can_fill(model) else "infilled"
    return way if way in ("pad", "mask", "unk") and filler_token(model, way) is None else None
