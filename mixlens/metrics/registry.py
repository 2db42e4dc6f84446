"""The metrics there are: what each needs, which way is better, which variants it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError
from ..base.registry import Function, Registered, Registry, parameters_of
from .intervals import Interval, mean_with_interval

BETTER = ("higher", "lower", "neither")
NEEDS = {
    "scores": "an attribution of the example",
    "map": "a map of the example",
    "trace": "a trace of the example",
    "reference": "a reference attribution of the same tokens",
    "cues": "which tokens are cues, 0 or 1 for each",
    "rationale": "which tokens people marked, 0 or 1 for each",
    "span": "the first and last token of the answer",
    "labels": "a label for every example",
    "hidden": "hidden states of several examples",
    "class-specific": "a method whose scores differ between classes",
    "classes": "attributions for each of the classes",
    "models": "attributions of the same examples by two models",
    "rerun": "the model, to run it on changed inputs",
    "norms": "a model with two norms in every layer",
}


@dataclass(frozen=True)
class Metric(Registered):
    """A registered metric. Its keyword arguments are its options; what comes before them is what it `needs`."""

    needs: tuple[str, ...]
    better: str  # "higher", "lower", or "neither": it describes, it does not judge
    kind: str = ""  # metrics of one kind measure the same thing, and count once in a ranking

    @property
    def options(self) -> dict[str, Any]:
        parameters = parameters_of(self.function).values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "variant"}


METRICS = Registry[Metric]("metric", folders=("mixlens.metrics",), group="mixlens.metrics")


def metric(
    *,
    paper: str,
    needs: Sequence[str],
    better: str,
    variants: Sequence[str] = ("paper",),
    cost: str = "0",
    kind: str = "",
) -> Callable[[Function], Function]:
    """Register a metric under its function's name. `cost` is in forward passes for one example; `kind` is by default
    the name."""
    assert better in BETTER
    assert set(needs) <= set(NEEDS)

    def entry(name: str, function: Function) -> Metric:
        return Metric(name, function, paper, tuple(variants), cost, tuple(needs), better, kind or name)

    return METRICS.register(entry)


def known() -> dict[str, Metric]:
    """Every metric by name: those of this folder, and those of entry points of the group `mixlens.metrics`."""
    return METRICS.known()


def summary(
    name: str,
    *columns: Sequence[Any],
    variant: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    how: str = "bootstrap",
    **options: Any,
) -> Interval:
    """A metric of one example over many: mean and interval. One column for each thing it takes, all of one length."""
    entry = METRICS.find(name)
    arguments = entry.arguments(variant, options)
    if not columns or len({len(column) for column in columns}) != 1:
        lengths = ", ".join(str(len(column)) for column in columns) or "nothing"
        raise InputError(
            f"{name!r} is averaged over columns of one length, one entry for each example; given: {lengths}."
        )
    values = [as_number(name, entry.function(*row, **arguments)) for row in zip(*columns, strict=True)]
    return mean_with_interval(values, confidence=confidence, seed=seed, how=how)


def as_number(name: str, result: Any) -> float:
    """A metric's result as one number: itself, or its `.value`."""
    value = getattr(result, "value", result)
    if not isinstance(value, int | float):
        raise InputError(
            f"{name!r} gives no single number for an example; call its function and summarise what you need."
        )
    return float(value)
