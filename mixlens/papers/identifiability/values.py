"""What the evaluations of On Identifiability in Transformers (Brunner et al. 2020) share: layers, values of texts,
rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...metrics.comparisons import simultaneous
from ...metrics.intervals import Interval, mean_with_interval
from ...metrics.mixing_stats import BRUNNER
from ...runs.experiments.claims import (
    DIFFERENT,
    SAME,
    TOO_FEW,
    UNDECIDED,
    Examples,
    Measured,
    Rule,
    Values,
    Verdict,
    bounded,
    incomparable,
)
from ...runs.experiments.experiment import Setup, experiment
from ...types import Record

DEPTHS = ("first layer", "middle layer", "last layer")
IN_FIGURE, IN_FIGURES = "in the figure", "in the figures"  # where the paper prints no number
HTA = "hta"
CLS, SEP = "[CLS]", "[SEP]"
Rows = list[tuple[Any, ...]]  # of a table
evaluation = partial(experiment, paper=BRUNNER, data="agreement", model="agreement")


# --- layers -----------------------------------------------------------------------------------------------------------


def depth_of(records: Iterable[Record]) -> int:
    """The number of the last layer that the records have."""
    return max((int(record.info["layer"]) for record in records if "layer" in record.info), default=0)


def three_layers(depth: int) -> tuple[int, int, int]:
    """The first, the middle and the last layer: 1, 6 and 12 of 12."""
    return 1, max(1, depth // 2), depth


def of_twelve(layer: int, depth: int, *, least: int = 1) -> int:
    """The layer of a model of this depth at the place of one of the paper's 12."""
    return max(least, round(layer * depth / 12))


def thirds(depth: int) -> tuple[range, range, range]:
    """The early, middle and late third of the layers: 1-4, 5-8 and 9-12 of 12."""
    first, second = round(depth / 3), round(2 * depth / 3)
    return range(1, first + 1), range(first + 1, second + 1), range(second + 1, depth + 1)


# --- values of texts --------------------------------------------------------------------------------------------------


def select(records: Iterable[Record], metric: str, method: str | None = None, **info: Any) -> list[Record]:
    """The records of a metric (and of a method) whose info has these values."""
    found = [r for r in records if r.metric == metric and method in (None, r.method)]
    return [r for r in found if all(r.info.get(key) == value for key, value in info.items())]


def method_named(setup: Setup, name: str) -> str | None:
    """The first method of the run with this name, whatever its options; None where it was not run."""
    return next((written for written, request in setup.requests.items() if request.name == name), None)


@dataclass(frozen=True)
class Hta:
    """What HTA gives in a run: `hta(metric, layer)` are the values of its texts."""

    run: Measured
    method: str

    @property
    def depth(self) -> int:
        return depth_of(self.run.records)

    @property
    def seed(self) -> int:
        return self.run.setup.seed

    @property
    def layers(self) -> range:
        return range(1, self.depth + 1)

    @property
    def figure_layers(self) -> list[int]:
        """The layers that the paper's figures have, each once."""
        return list(dict.fromkeys(three_layers(self.depth)))

    def records(self, metric: str, **info: Any) -> list[Record]:
        return select(self.run.records, metric, self.method, **info)

    def __call__(self, metric: str, layers: int | Container[int], **info: Any) -> Values:
        some = self.run.where(lambda r: all(r.info.get(key) == value for key, value in info.items()))
        return some[self.method, metric, layers]


def by_hta(told: Callable[[Hta], Mapping[str, Examples] | Verdict], absent: str = "") -> Rule:
    """A rule from what HTA gives: its verdict, or contrasts that must be above 0. `absent`: why none can be compared,
    where one has no text."""

    def rule(run: Measured) -> Verdict:
        method = method_named(run.setup, HTA)
        if method is None:
            return incomparable("hta was not run")
        found = told(Hta(run, method))
        if isinstance(found, Verdict):
            return found
        return run.positive(found) if not absent or all(found.values()) else incomparable(absent)

    return rule


# --- rules ------------------------------------------------------------------------------------------------------------


def means(values: Mapping[str, Examples], seed: int) -> dict[str, Interval]:
    """The mean over texts of each."""
    return {name: mean_with_interval(list(one.values()), seed=seed) for name, one in values.items()}


def below(bound: float, values: Examples) -> Values:
    """How far each lies below a bound."""
    return Values({text: bound - value for text, value in values.items()})


def almost_equal(differences: Mapping[str, Examples], *, margin: float = 0.05, seed: int = 0) -> Verdict:
    """The verdict on "these differences are at most `margin`", from the mean over texts of each."""
    if not all(len(one) > 1 for one in differences.values()):
        return incomparable(TOO_FEW)
    return bounded(means(differences, seed), low=-margin, high=margin)


def unequal(differences: Mapping[str, Examples], *, margin: float = 0.01, seed: int = 0) -> Verdict:
    """The verdict on "some of these differences are not 0". It is the other way round if all of them lie within the
    margin."""
    if not differences:
        return incomparable("no trained g was run")
    first, *others = differences.values()
    texts = [text for text in first if all(text in one for one in others)]
    if len(texts) < 2:
        return incomparable(TOO_FEW)
    values: dict[str, Any] = {name: [one[text] for text in texts] for name, one in differences.items()}
    found = simultaneous({**values, "0": [0.0] * len(texts)}, [(name, "0") for name in differences], seed=seed)
    ours = "; ".join(f"{name} {one}" for (name, _), one in found.items())
    if any(one.sign for one in found.values()):
        return Verdict(SAME, ours)
    if all(-margin < one.low and one.high < margin for one in found.values()):
        return Verdict(DIFFERENT, ours, f"all within {margin:g}")
    return Verdict(UNDECIDED, ours, "no interval leaves 0 out")


def boxes(axes: Any, quantiles: Mapping[Any, Sequence[float]]) -> None:
    """A box for each name from the quantiles at 5, 25, 50, 75 and 95 %."""
    names = ("whislo", "q1", "med", "q3", "whishi")
    axes.bxp(
        [{**dict(zip(names, some, strict=True)), "label": label} for label, some in quantiles.items()], showfliers=False
    )
