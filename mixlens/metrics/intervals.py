"""How sure a mean is. Every metric that is averaged over examples is reported with one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .arguments import one_of

HOW = ("bootstrap", "normal")
CELLS = 1_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval. `low` and `high` are NaN where fewer than two examples leave no way to know.

    `undefined` counts the examples that had no value (NaN): they are in no other number here.
    """

    mean: float
    low: float
    high: float
    n: int  # examples with a value
    std: float  # over the population, not the sample
    confidence: float = 0.95
    undefined: int = 0

    @property
    def value(self) -> float:
        return self.mean

    def __str__(self) -> str:
        left = f", {self.undefined} undefined" if self.undefined else ""
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] (n = {self.n}{left})"


def mean_with_interval(
    values: Sequence[float] | NDArray[Any],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    how: str = "bootstrap",
    groups: Sequence[Any] | NDArray[Any] | None = None,
    resamples: int = 2000,
) -> Interval:
    """The mean and its interval: percentile bootstrap from a seed, or "normal": z sd / sqrt(n), as ALTI's tables have it.

    `groups` says which values belong together (the tokens of a sentence): groups are drawn, not values, and `n` counts
    them. NaN is an example without a value: counted in `undefined`, left out of the rest.
    """
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not array.size:
        raise InputError("there is nothing to average: no values were given.")
    if np.isinf(array).any():
        raise InputError(f"value {int(np.isinf(array).argmax())} is infinite, and so would the mean be. Values must be finite.")
    _checked(confidence, how, resamples)
    defined = ~np.isnan(array)
    undefined = int((~defined).sum())
    if groups is not None and len(groups) != len(array):
        raise InputError(f"groups has {len(groups)} entries for {len(array)} values. Give one for each value.")
    sums, counts = _by_group(array[defined], None if groups is None else np.asarray(groups)[defined])
    n = len(sums)
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0, np.nan, confidence, undefined)
    mean, std = float(sums.sum() / counts.sum()), float(array[defined].std())
    if n == 1:
        return Interval(mean, np.nan, np.nan, 1, std, confidence, undefined)
    if how == "normal":
        spread = (sums - mean * counts).std() / (counts.sum() / n)  # of groups; of the values themselves without
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * float(spread) / n**0.5
        return Interval(mean, mean - reach, mean + reach, n, std, confidence, undefined)
    means = np.concatenate([sums[indices].sum(-1) / counts[indices].sum(-1) for indices in _draws(n, resamples, seed)])
    low, high = _percentiles(means, confidence)
    return Interval(mean, low, high, n, std, confidence, undefined)


def statistic_with_interval(
    statistic: Callable[[NDArray[np.int64]], float],
    n: int,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 1000,
) -> Interval:
    """As `mean_with_interval` for a number that is not a mean: `statistic(indices)` of the examples drawn.

    `mean` is the statistic of all n examples; `std` is that of the resampled statistics, its standard error.
    """
    _checked(confidence, "bootstrap", resamples)
    whole = float(statistic(np.arange(n)))
    if n < 2:
        return Interval(whole, np.nan, np.nan, n, np.nan, confidence)
    statistics = np.array([statistic(row) for rows in _draws(n, resamples, seed) for row in rows])
    low, high = _percentiles(statistics[~np.isnan(statistics)], confidence)
    return Interval(whole, low, high, n, float(np.nanstd(statistics)), confidence)


def by_column(values: NDArray[Any] | Sequence[Sequence[float]], **options: Any) -> tuple[Interval, ...]:
    """One interval for each column of [example column]: a curve's points, or layers."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise InputError(f"values must be [example column], one row for each example; the shape is {rows.shape}.")
    return tuple(mean_with_interval(column, **options) for column in rows.T)


def _checked(confidence: float, how: str, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence is between 0 and 1, such as 0.95, not {confidence!r}.")
    one_of("interval", how, HOW)
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, not {resamples!r}.")


def _by_group(values: NDArray[Any], groups: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sum and count of each group, [group]; every value is its own group where none are given."""
    if groups is None:
        return values, np.ones_like(values)
    _, number = np.unique(groups, return_inverse=True)
    return np.bincount(number, weights=values), np.bincount(number).astype(np.float64)


def _draws(n: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of resampled examples, [some example], a few at a time so that memory stays small."""
    generator = np.random.default_rng(seed)
    step = max(1, CELLS // n)
    for start in range(0, resamples, step):
        yield generator.integers(0, n, size=(min(step, resamples - start), n))


def _percentiles(statistics: NDArray[Any], confidence: float) -> tuple[float, float]:
    if not statistics.size:
        return np.nan, np.nan
    low, high = np.quantile(statistics, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
