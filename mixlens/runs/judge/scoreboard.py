"""From the values of many metrics to one score for each method, and which methods are told apart by it.

    s[method, text] = mean over kinds of ( mean over the metrics of a kind of ( ±(v[method, text] - r[text]) / spread ) )

v is a metric's value, r the mean of several draws of random scores on the same text, and spread the standard deviation of one
draw (root mean square over texts); the sign makes higher better. So a score says by how many standard deviations of a random
ranking a method is better than random, it does not depend on which other methods are judged but for texts that are left out
(those without a value for one of the methods), and metrics that measure the same thing count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics import Interval, mean_with_interval
from ...metrics.comparisons import Difference, simultaneous
from ...scoring.asking import RANDOM
from .judged_metrics import MetricRequest

Array = NDArray[np.float64]
FEWEST = 5  # texts from which on methods are compared at all
ROUNDING = 1e-6  # a spread below is rounding of probabilities in single precision
VARIED = 0.2  # share of texts on which random draws must differ for their spread to be a scale
DIFFERENT = 8  # texts on which two methods must differ before a test of their difference means anything


@dataclass(frozen=True)
class Values:
    """The values of one metric: of each method that it can judge, [text], and of random scores, [text]."""

    request: MetricRequest
    of_methods: Mapping[str, Array]
    random: Array | None = None
    spread: Array | None = None  # [text]: the standard deviation of one random draw

    @cached_property
    def defined(self) -> NDArray[np.bool_]:
        """[text]: whether every method has a value. A method that has none on any text does not count."""
        rows = [row for row in self.rows if not np.isnan(row).all()]
        return np.asarray(~np.isnan(np.stack(rows or self.rows)).any(axis=0))

    @property
    def rows(self) -> list[Array]:
        """The values of every method, and of random scores where there are any, [text] each."""
        return [*self.of_methods.values(), *filter(lambda row: row is not None, [self.random])]  # type: ignore[list-item]

    def judges(self, method: str) -> bool:
        """Whether the metric has values for a method."""
        return method in self.of_methods or (method == RANDOM and self.random is not None)

    def interval(self, method: str, seed: int) -> Interval | None:
        """The mean over the texts that all methods share; None where the metric cannot judge the method."""
        if not self.judges(method):
            return None
        values = self.of_methods.get(method, self.random)
        shared: Array = np.where(self.defined, values, np.nan)  # type: ignore[arg-type]
        return mean_with_interval(shared, seed=seed, how="studentised")

    @cached_property
    def scale(self) -> float:
        """The spread of one random draw; without several draws, or where these are alike on nearly all texts, that of random
        scores over texts; without random scores that of all values; 1 where nothing varies."""
        spreads = [_root_mean_square(self.spread), _spread([self.random]), _spread(self.rows)]
        return next((size for size in spreads if size > ROUNDING), 1.0)

    def standard(self, method: str) -> Array:
        """[text]: how much better than random, in standard deviations of a random draw. NaN on texts that are not shared."""
        centre = np.nanmean(np.stack(self.rows)) if self.random is None else self.random
        values = self.of_methods.get(method, self.random)
        assert values is not None
        scores: Array = self.request.sign * (values - centre) / self.scale
        return np.where(self.defined, scores, np.nan)


@dataclass(frozen=True)
class Scoreboard:
    """The metrics of one question (faithfulness, plausibility) and the methods that they judge."""

    metrics: tuple[Values, ...]
    methods: tuple[str, ...]
    seed: int = 0

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values.request.metric.kind for values in self.metrics))

    def names(self, *, kind: str | None = None, better: str | None = None) -> list[str]:
        """The metrics of a kind, or those of which one way is better."""
        wanted = {"kind": kind, "better": better}
        return [v.request.written for v in self.metrics if all(_fits(v, *pair) for pair in wanted.items())]

    @property
    def has_random(self) -> bool:
        """Whether random scores were measured by every metric."""
        return all(values.random is not None for values in self.metrics)

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Array]]:
        """method -> kind -> [text]. A kind that cannot judge a method is not there."""
        return {
            method: {kind: of for kind in self.kinds if len(of := self._of_kind(method, kind))}
            for method in self.methods
        }

    def _of_kind(self, method: str, kind: str) -> Array:
        rows = [v.standard(method) for v in self.metrics if v.request.metric.kind == kind and v.judges(method)]
        return _mean(rows) if rows else np.array([])

    def lacks(self, method: str) -> list[str]:
        """The kinds that cannot judge a method, over which its score is no mean."""
        return [kind for kind in self.kinds if kind not in self.by_kind[method]]

    def scores(self, method: str, kinds: Sequence[str] | None = None) -> Array:
        """[text]: the mean over kinds, by default over all that judge the method."""
        rows = self.by_kind[method]
        return _mean([rows[kind] for kind in (rows if kinds is None else kinds)])

    @cached_property
    def means(self) -> dict[str, Interval]:
        """The score of each method with its interval."""
        return {m: mean_with_interval(self.scores(m), seed=self.seed, how="studentised") for m in self.methods}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The methods, the highest score first; those without a score come last."""
        return tuple(sorted(self.methods, key=lambda method: -np.nan_to_num(self.means[method].mean, nan=-np.inf)))

    @cached_property
    def differences(self) -> dict[tuple[str, str], Difference]:
        """Of every two methods, the first of which has the higher score: the paired difference, over the kinds that judge both,
        with intervals that hold for all pairs at once. Pairs that differ on too few texts to be tested are not there."""
        return against_zero({pair: self._difference(*pair) for pair in combinations(self.order, 2)}, seed=self.seed)

    def _difference(self, first: str, second: str) -> Array:
        shared = [kind for kind in self.by_kind[first] if kind in self.by_kind[second]]
        return self.scores(first, shared) - self.scores(second, shared)

    def told_apart(self, first: str, second: str) -> bool:
        difference = self.differences.get((first, second)) or self.differences.get((second, first))
        return difference is not None and difference.sign != 0

    @cached_property
    def groups(self) -> dict[str, int]:
        """1 for the method with the highest score and those that are not told apart from it; of the others, 2 for the highest
        and those that are not told apart from it; and so on."""
        groups: dict[str, int] = {}
        rest = list(self.order)
        while rest:
            first, number = rest[0], 1 + max(groups.values(), default=0)
            groups |= dict.fromkeys([method for method in rest if not self.told_apart(first, method)], number)
            rest = [method for method in rest if method not in groups]
        return groups

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The method with the highest score, and those that are not told apart from it."""
        return tuple(method for method in self.order if self.groups[method] == 1)

    @property
    def below(self) -> list[str]:
        """The methods that the one with the highest score is above, without random scores."""
        return [method for method in self._apart(1) if method != RANDOM]

    @property
    def above(self) -> list[str]:
        """The methods that are above the one with the highest score, over the kinds that both have."""
        return self._apart(-1)

    def _apart(self, sign: int) -> list[str]:
        """The methods that are told apart from the one with the highest score, on one side of it."""
        leader, *others = self.order
        return [
            method for method in others if (d := self.differences.get((leader, method))) is not None and d.sign == sign
        ]

    @property
    def like_random(self) -> list[str]:
        """The methods that are not told apart from random scores: where these are ranked too, by the differences that make the
        groups."""
        ranked = [method for method in self.order if method != RANDOM and self.has_random]
        if RANDOM in self.order:
            return [method for method in ranked if not self.told_apart(method, RANDOM)]
        compared = against_zero({method: self.scores(method) for method in ranked}, seed=self.seed)
        return [method for method in ranked if method not in compared or compared[method].sign == 0]

    def wins(self, method: str) -> int:
        """On how many metrics a method is better than random scores, by intervals that hold for all methods and metrics."""
        return sum(method in better for better in self._better.values())

    @cached_property
    def _better(self) -> dict[str, set[str]]:
        """metric -> the methods that are better than random on it."""
        confidence = 1 - 0.05 / len(self.metrics)
        return {v.request.written: better_than_random(v, seed=self.seed, confidence=confidence) for v in self.metrics}


def _fits(values: Values, fact: str, wanted: str | None) -> bool:
    """Whether a metric has the kind or the direction that is wanted."""
    return wanted is None or getattr(values.request.metric, fact) == wanted


def better_than_random(values: Values, *, seed: int, confidence: float) -> set[str]:
    """The methods whose difference from random scores, text by text, lies on the right side of 0."""
    if values.random is None:
        return set()
    differences = {method: values.standard(method) for method in values.of_methods}
    compared = against_zero(differences, seed=seed, confidence=confidence)
    return {method for method, difference in compared.items() if difference.sign > 0}


def against_zero(differences: Mapping[Any, Array], **options: Any) -> dict[Any, Difference]:
    """Series of paired differences [text] against 0, with intervals that hold for all at once. Series that cannot be tested are
    not there."""
    tested = {name: row for name, row in differences.items() if can_be_tested(row)}
    zero = np.zeros(max(map(len, differences.values()), default=0))
    compared = simultaneous({**tested, None: zero}, [(name, None) for name in tested], **options)
    return {name: difference for (name, _), difference in compared.items()}


def _spread(rows: Sequence[Array | None]) -> float:
    """The standard deviation of all values; 0 where there are none."""
    values = np.concatenate([np.zeros(0) if row is None else row[~np.isnan(row)] for row in rows])
    return float(values.std()) if len(values) else 0.0


def _root_mean_square(values: Array | None) -> float:
    """Over texts; 0 where nearly all of the values are 0, of which no scale can be made."""
    defined = np.zeros(1) if values is None else values[~np.isnan(values)]
    varied = (defined > ROUNDING).mean() >= VARIED if len(defined) else False
    return float(np.sqrt((defined**2).mean())) if varied else 0.0


def can_be_tested(differences: Array) -> bool:
    """Enough texts, and enough of them with a difference: resamples without any would have no spread."""
    defined = differences[~np.isnan(differences)]
    return len(defined) >= FEWEST and int((np.abs(defined) > 1e-9).sum()) >= min(len(defined), DIFFERENT)


def _mean(rows: Sequence[Array]) -> Array:
    """[text]: the mean over rows, of those that have a value."""
    table = np.stack(rows)
    count = (~np.isnan(table)).sum(0)
    mean: Array = np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)
    return mean
