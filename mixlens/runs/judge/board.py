"""From the values of many metrics to one score for each method, and which methods are told apart by it.

    s[method, text] = mean over kinds of ( mean over the metrics of a kind of ( ±(v[method, text] - r[text]) / spread )
    )

v is a metric's value, r the mean of several draws of random scores on the same text, and spread the standard deviation
of one draw (root mean square over texts); the sign makes higher better. So a score says by how many standard deviations
of a random ranking a method is better than random, it does not depend on which other methods are judged but for texts
that are left out (those without a value for one of the methods), and metrics that measure the same thing count once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics import Interval, mean_with_interval
from ...metrics.comparisons import Difference, simultaneous
from ...scoring.asking import RANDOM
from ...types import Record
from ..experiments.experiment import Setup
from ..experiments.tables import by
from .ask import BLANKED, MetricRequest, requests_of

Array = NDArray[np.float64]
FEWEST = 5  # texts from which on methods are compared at all
ROUNDING = 1e-6  # a spread below is rounding of probabilities in single precision
VARIED = 0.2  # share of texts on which random draws must differ for their spread to be a scale
DIFFERENT = 8  # texts on which two methods must differ before a test of their difference means anything
IS_BLANK_OUT = "is_blank_out"  # the fact of a record whose scores are those of blank_out, which BLANKED must not judge
QUESTIONS = {"ranking": "faithfulness", "plausibility": "plausibility", "others": "the other metrics"}
TABLES = {  # kind of metric -> the table that it belongs to
    **dict.fromkeys(("removing", "keeping", "one by one", "subsets"), "ranking"),
    **dict.fromkeys(("cues", "rationales"), "plausibility"),
}


def mean_of(values: Array, seed: int) -> Interval:
    return mean_with_interval(values, seed=seed, how="studentised")


@dataclass(frozen=True)
class Values:
    """The values [text] of one metric, of each method that it can judge; random scores are one of these."""

    request: MetricRequest
    of: Mapping[str, Array]
    spread: Array | None = None  # [text]: the standard deviation of one random draw

    @property
    def methods(self) -> list[str]:
        """Without random scores."""
        return [method for method in self.of if method != RANDOM]

    @cached_property
    def defined(self) -> NDArray[np.bool_]:
        """[text]: whether every method has a value. A method that has none on any text does not count."""
        rows = [row for row in self.of.values() if not np.isnan(row).all()]
        return np.asarray(~np.isnan(np.stack(rows or [*self.of.values()])).any(axis=0))

    def interval(self, method: str, seed: int) -> Interval | None:
        """The mean over the texts that all methods share; None where the metric cannot judge the method."""
        return mean_of(np.where(self.defined, self.of[method], np.nan), seed) if method in self.of else None

    @cached_property
    def scale(self) -> float:
        """The spread of one random draw; without several draws, or where these are alike on nearly all texts, that of
        random scores over texts; without random scores that of all values; 1 where nothing varies."""
        drawn, sizes = np.zeros(0) if self.spread is None else self.spread[~np.isnan(self.spread)], []
        if len(drawn) and (drawn > ROUNDING).mean() >= VARIED:
            sizes.append(float(np.sqrt((drawn**2).mean())))
        for names in ([RANDOM] if RANDOM in self.of else [], [*self.methods, RANDOM]):
            rows = [self.of[name][~np.isnan(self.of[name])] for name in names if name in self.of]
            sizes.append(float(np.concatenate(rows).std()) if sum(map(len, rows)) else 0.0)
        return next((size for size in sizes if size > ROUNDING), 1.0)

    def standard(self, method: str) -> Array:
        """[text]: how much better than random, in standard deviations of a random draw. NaN on texts that are not
        shared."""
        centre = self.of[RANDOM] if RANDOM in self.of else np.nanmean(np.stack([*self.of.values()]))
        scores: Array = self.request.sign * (self.of[method] - centre) / self.scale
        return np.where(self.defined, scores, np.nan)


@dataclass(frozen=True)
class Scoreboard:
    """The metrics of one question (faithfulness, plausibility) and the methods that they judge."""

    metrics: tuple[Values, ...]
    methods: tuple[str, ...]
    seed: int = 0

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values.request.kind for values in self.metrics))

    @property
    def has_random(self) -> bool:
        """Whether random scores were measured by every metric."""
        return all(RANDOM in values.of for values in self.metrics)

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Array]]:
        """method -> kind -> [text]. A kind that cannot judge a method is not there."""
        rows: dict[str, dict[str, list[Array]]] = {method: {} for method in self.methods}
        for kind in self.kinds:
            for values in self.metrics:
                for method in self.methods:
                    if values.request.kind == kind and method in values.of:
                        rows[method].setdefault(kind, []).append(values.standard(method))
        return {method: {kind: mean_of_defined(some) for kind, some in kinds.items()} for method, kinds in rows.items()}

    def lacks(self, method: str) -> list[str]:
        """The kinds that cannot judge a method, over which its score is no mean."""
        return [kind for kind in self.kinds if kind not in self.by_kind[method]]

    def scores(self, method: str, kinds: Iterable[str] | None = None) -> Array:
        """[text]: the mean over kinds, by default over all that judge the method."""
        rows = self.by_kind[method]
        return mean_of_defined([rows[kind] for kind in (rows if kinds is None else kinds)])

    @cached_property
    def means(self) -> dict[str, Interval]:
        """The score of each method with its interval."""
        return {method: mean_of(self.scores(method), self.seed) for method in self.methods}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The methods, the highest score first; those without a score come last."""
        return tuple(sorted(self.methods, key=lambda method: -np.nan_to_num(self.means[method].mean, nan=-np.inf)))

    @cached_property
    def differences(self) -> dict[tuple[str, str], Difference]:
        """Of every two methods, the first of which has the higher score: the paired difference, over the kinds that
        judge both, with intervals that hold for all pairs at once. Pairs that differ on too few texts to be tested are
        not there."""
        apart = {}
        for one, other in combinations(self.order, 2):
            shared = [kind for kind in self.by_kind[one] if kind in self.by_kind[other]]
            apart[one, other] = self.scores(one, shared) - self.scores(other, shared)
        return against_zero(apart, seed=self.seed)

    def told_apart(self, first: str, second: str) -> bool:
        difference = self.differences.get((first, second)) or self.differences.get((second, first))
        return difference is not None and difference.sign != 0

    @cached_property
    def groups(self) -> dict[str, int]:
        """1 for the method with the highest score and those that are not told apart from it; of the others, 2 for the
        highest and those that are not told apart from it; and so on."""
        groups: dict[str, int] = {}
        rest = list(self.order)
        while rest:
            number = 1 + max(groups.values(), default=0)
            groups |= dict.fromkeys([method for method in rest if not self.told_apart(rest[0], method)], number)
            rest = [method for method in rest if method not in groups]
        return groups

    @property
    def leaders(self) -> list[str]:
        """The method with the highest score, and those that are not told apart from it."""
        return [method for method in self.order if self.groups[method] == 1]

    def apart(self, sign: int) -> list[str]:
        """The methods that the one with the highest score is above (1), or that are above it over the kinds that both
        have (-1)."""
        leader, *others = self.order
        compared = {method: self.differences.get((leader, method)) for method in others}
        return [method for method, one in compared.items() if one is not None and one.sign == sign]

    @property
    def like_random(self) -> list[str]:
        """The methods that are not told apart from random scores: where these are ranked too, by the differences that
        make the groups."""
        ranked = [method for method in self.order if method != RANDOM and self.has_random]
        if RANDOM in self.order:
            return [method for method in ranked if not self.told_apart(method, RANDOM)]
        compared = against_zero({method: self.scores(method) for method in ranked}, seed=self.seed)
        return [method for method in ranked if method not in compared or compared[method].sign == 0]

    @cached_property
    def wins(self) -> dict[str, int]:
        """On how many metrics each method is better than random scores, by intervals that hold for all methods and
        metrics."""
        wins, confidence = dict.fromkeys(self.methods, 0), 1 - 0.05 / len(self.metrics)
        for values in self.metrics:
            rows = {method: values.standard(method) for method in values.methods if RANDOM in values.of}
            for method, one in against_zero(rows, seed=self.seed, confidence=confidence).items():
                wins[method] += one.sign > 0
        return wins


def against_zero(differences: Mapping[Any, Array], **options: Any) -> dict[Any, Difference]:
    """Series of paired differences [text] against 0, with intervals that hold for all at once. Not there are series of
    too few texts, or with too few that differ: resamples without any would have no spread."""
    tested = {}
    for name, row in differences.items():
        defined = row[~np.isnan(row)]
        if len(defined) >= FEWEST and int((np.abs(defined) > 1e-9).sum()) >= min(len(defined), DIFFERENT):
            tested[name] = row
    zero = np.zeros(max(map(len, differences.values()), default=0))
    compared = simultaneous({**tested, None: zero}, [(name, None) for name in tested], **options)
    return {name: difference for (name, _), difference in compared.items()}


def mean_of_defined(rows: Sequence[Array]) -> Array:
    """[text]: the mean over rows, of those that have a value."""
    table = np.stack(rows)
    count = (~np.isnan(table)).sum(0)
    mean: Array = np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)
    return mean


# --- from records -----------------------------------------------------------------------------------------------------


def twins_in(setup: Setup, records: Sequence[Record]) -> dict[str, list[str]]:
    """The first of each group of methods that have the same scores on every text -> the methods of the group."""
    groups: dict[str, list[str]] = {}
    for method in setup.methods:
        firsts = {str(record.info.get("same_as", method)) for record in records if record.method == method}
        groups.setdefault(firsts.pop() if len(firsts) == 1 else method, []).append(method)
    return groups


def values_of(request: MetricRequest, methods: Iterable[str], records: Sequence[Record]) -> Values:
    """The values of one metric, of the methods that it can judge: not of what it would compare with itself on every
    text."""
    measured = by([record for record in records if record.metric == request.written], "method")
    of = {}
    for method in dict.fromkeys([*methods, RANDOM]):
        group = measured.get((method,), [])
        if group and not (request.name == BLANKED and all(record.info.get(IS_BLANK_OUT) for record in group)):
            of[method] = np.array([record.value for record in group])
    drawn = measured.get((RANDOM,))
    return Values(request, of, np.array([one.info.get("spread", 0.0) for one in drawn]) if drawn else None)


def boards_of(setup: Setup, records: Sequence[Record]) -> dict[str, Scoreboard]:
    """One scoreboard for each question that the metrics of a run answer: "ranking" (faithfulness), "plausibility",
    "others"."""
    methods, boards = list(twins_in(setup, records)), {}
    every = [values_of(request, methods, records) for request in requests_of(setup.options["metrics"])]
    for name in QUESTIONS:
        metrics = tuple(values for values in every if values.of and TABLES.get(values.request.kind, "others") == name)
        shown = tuple(method for method in methods if any(method in values.of for values in metrics))
        if metrics:
            boards[name] = Scoreboard(metrics, shown, setup.seed)
    return boards
