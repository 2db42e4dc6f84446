"""How sure a mean is. Every metric that is averaged over examples is reported with one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from .arguments import Array, Numbers, one_of, scipy_stats

HOW = ("bootstrap", "studentised", "bca", "t", "normal")
ROUNDING = 1e-9  # of the largest value: a smaller spread is rounding
CONSTANT = 0.001  # of the resamples: where more are constant, a studentised interval has no meaning
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
        reach = "" if np.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.mean:.3f}{reach} (n = {self.n}{left})"


def mean_with_interval(
    values: Numbers,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    how: str = "bootstrap",
    groups: Sequence[Any] | NDArray[Any] | None = None,
    resamples: int = 2000,
) -> Interval:
    """The mean and its interval at a confidence. `how`:

    - "bootstrap": percentiles of resampled means, from a seed. Too narrow under about 50 examples.
    - "studentised": resampled means in their own standard errors (bootstrap-t). Covers as stated from about 10 examples
      on, also where values are skewed; "bca" where resamples are constant, as they are with values that are mostly 0.
    - "bca": percentiles corrected for bias and skewness (Efron 1987).
    - "t": Student's t with the sample's standard deviation.
    - "normal": z sd / sqrt(n) with the population's standard deviation, as ALTI's tables have it.

    `groups` says which values belong together (the tokens of a sentence): groups are drawn, not values, and `n` counts
    them. NaN is an example without a value: counted in `undefined`, left out of the rest.
    """
    array = _finite(values)
    tails = _tails(confidence, how, resamples)
    defined = ~np.isnan(array)
    if groups is not None and len(groups) != len(array):
        raise InputError(f"groups has {len(groups)} entries for {len(array)} values. Give one for each value.")
    sums = array[defined]
    counts = np.ones_like(sums)
    if groups is not None:  # sum and count of each group
        _, number = np.unique(np.asarray(groups)[defined], return_inverse=True)
        sums, counts = np.bincount(number, weights=sums).astype(np.float64), np.bincount(number).astype(np.float64)
    n, undefined = len(sums), int((~defined).sum())
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0, np.nan, confidence, undefined)
    low, high = (np.nan, np.nan) if n == 1 else _ends(sums, counts, how, tails, seed, resamples)
    mean, std = sums.sum() / counts.sum(), array[defined].std()
    return Interval(float(mean), float(low), float(high), n, float(std), confidence, undefined)


def _ends(
    sums: Array, counts: Array, how: str, tails: tuple[float, float], seed: int, resamples: int
) -> tuple[float, float]:
    """The ends of the interval of a mean, from the sums and counts of n groups (each value its own, where none are
    given)."""
    n, mean, normal = len(sums), sums.sum() / counts.sum(), NormalDist()
    residuals = (sums - mean * counts) / (counts.sum() / n)  # what each group adds to the error of the mean, times n
    error = standard_errors(residuals)
    if how == "normal":
        reach = normal.inv_cdf(tails[1]) * residuals.std() / n**0.5
        return mean - reach, mean + reach
    if how == "t":
        reach = scipy_stats().t.ppf(tails[1], n - 1) * error
        return mean - reach, mean + reach
    if how == "studentised":  # mean - q s, with the quantiles q of t* = (mean* - mean) / s* over resamples
        t = np.concatenate([_t_of(residuals[rows]) for rows in _draws(n, resamples, seed)])
        if (~np.isfinite(t)).mean() <= CONSTANT:
            low, high = np.quantile(t[np.isfinite(t)], tails)
            return mean - high * error, mean - low * error
    means = np.concatenate([sums[rows].sum(-1) / counts[rows].sum(-1) for rows in _draws(n, resamples, seed)])
    if how == "bootstrap":
        low, high = np.quantile(means, tails)
        return low, high
    if np.ptp(means) == 0:
        return mean, mean
    # percentiles at levels corrected for bias z0 and acceleration a = sum u^3 / (6 (sum u^2)^1.5)
    below = (means < mean).mean() + (means == mean).mean() / 2
    z0 = normal.inv_cdf(float(np.clip(below, 1 / resamples, 1 - 1 / resamples)))
    u = residuals / max(float(np.abs(residuals).max()), 1e-300)
    a = float((u**3).sum() / (6 * (u**2).sum() ** 1.5)) if u.any() else 0.0
    quantiles = [z0 + normal.inv_cdf(tail) for tail in tails]
    low, high = np.quantile(means, [normal.cdf(z0 + z / (1 - a * z)) for z in quantiles])
    return low, high


def _t_of(resampled: Array) -> Array:
    """[resample]: the mean in standard errors, from residuals [resample group]; NaN where a resample is constant but
    for rounding."""
    constant = np.ptp(resampled, axis=-1) <= ROUNDING * np.abs(resampled).max(initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(constant, np.nan, resampled.mean(-1) / standard_errors(resampled))


def standard_errors(rows: Array) -> Array:
    """The standard error of the mean over the last axis."""
    errors: Array = rows.std(-1, ddof=1) / rows.shape[-1] ** 0.5
    return errors


def difference_with_interval(
    first: Numbers, second: Numbers, *, confidence: float = 0.95, seed: int = 0, resamples: int = 2000
) -> Interval:
    """The mean of the first values less that of the second, of different examples: each side is resampled apart, and
    the difference is counted in its own standard errors. Percentiles where resamples of both sides are constant."""
    tails = _tails(confidence, "studentised", resamples)
    sides = [_finite(first), _finite(second)]
    n, mean = sum(map(len, sides)), float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) < 2:
        return Interval(mean, np.nan, np.nan, n, np.nan, confidence)
    drawn = [side[np.concatenate(list(_draws(len(side), resamples, seed + place)))] for place, side in enumerate(sides)]
    means = drawn[0].mean(-1) - drawn[1].mean(-1)
    errors = np.hypot(*map(standard_errors, drawn))
    t = np.divide(means - mean, errors, out=np.full(resamples, np.nan), where=errors > ROUNDING * np.abs(means).max())
    if np.isnan(t).mean() > CONSTANT:
        low, high = np.quantile(means, tails)
    else:
        least, most = np.quantile(t[~np.isnan(t)], tails)
        error = np.hypot(*map(standard_errors, sides))
        low, high = mean - most * error, mean - least * error
    return Interval(mean, float(low), float(high), n, np.nan, confidence)


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
    tails = _tails(confidence, "bootstrap", resamples)
    whole = float(statistic(np.arange(n)))
    if n < 2:
        return Interval(whole, np.nan, np.nan, n, np.nan, confidence)
    statistics = np.array([statistic(row) for rows in _draws(n, resamples, seed) for row in rows])
    defined = statistics[~np.isnan(statistics)]
    low, high = np.quantile(defined, tails) if defined.size else (np.nan, np.nan)
    return Interval(whole, float(low), float(high), n, float(np.nanstd(statistics)), confidence)


def by_column(values: NDArray[Any] | Sequence[Sequence[float]], **options: Any) -> tuple[Interval, ...]:
    """One interval for each column of [example column]: a curve's points, or layers."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise InputError(f"values must be [example column], one row for each example; the shape is {rows.shape}.")
    return tuple(mean_with_interval(column, **options) for column in rows.T)


def _finite(values: Numbers) -> Array:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not array.size:
        raise InputError("there is nothing to average: no values were given.")
    if np.isinf(array).any():
        raise InputError(
            f"value {int(np.isinf(array).argmax())} is infinite, and so would the mean be. Values must be finite."
        )
    return array


def _tails(confidence: float, how: str, resamples: int) -> tuple[float, float]:
    """The two levels of an interval, 0.025 and 0.975 for 95 %."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence is between 0 and 1, such as 0.95, not {confidence!r}.")
    one_of("interval", how, HOW)
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, not {resamples!r}.")
    return (1 - confidence) / 2, (1 + confidence) / 2


def _draws(n: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of resampled examples, [some example], a few at a time so that memory stays small."""
    generator = np.random.default_rng(seed)
    step = max(1, CELLS // n)
    for start in range(0, resamples, step):
        yield generator.integers(0, n, size=(min(step, resamples - start), n))
