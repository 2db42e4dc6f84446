"""How sure a mean is. Every metric that is averaged over examples is reported with one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from .arguments import one_of, scipy_stats

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
    values: Sequence[float] | NDArray[Any],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    how: str = "bootstrap",
    groups: Sequence[Any] | NDArray[Any] | None = None,
    resamples: int = 2000,
) -> Interval:
    """The mean and its interval at a confidence. `how`:

    - "bootstrap": percentiles of resampled means, from a seed. Too narrow under about 50 examples.
    - "studentised": resampled means in their own standard errors (bootstrap-t). Covers as stated from about 10 examples on, also
      where values are skewed; "bca" where resamples are constant, as they are with values that are mostly 0.
    - "bca": percentiles corrected for bias and skewness (Efron 1987).
    - "t": Student's t with the sample's standard deviation.
    - "normal": z sd / sqrt(n) with the population's standard deviation, as ALTI's tables have it.

    `groups` says which values belong together (the tokens of a sentence): groups are drawn, not values, and `n` counts
    them. NaN is an example without a value: counted in `undefined`, left out of the rest.
    """
    array = _finite(values)
    _checked(confidence, how, resamples)
    defined = ~np.isnan(array)
    if groups is not None and len(groups) != len(array):
        raise InputError(f"groups has {len(groups)} entries for {len(array)} values. Give one for each value.")
    sums, counts = _by_group(array[defined], None if groups is None else np.asarray(groups)[defined])
    n, undefined = len(sums), int((~defined).sum())
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0, np.nan, confidence, undefined)
    mean, std = float(sums.sum() / counts.sum()), float(array[defined].std())
    low, high = (np.nan, np.nan) if n == 1 else _ENDS[how](_Sample(sums, counts, mean, confidence, seed, resamples))
    return Interval(mean, float(low), float(high), n, std, confidence, undefined)


def _finite(values: Sequence[float] | NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not array.size:
        raise InputError("there is nothing to average: no values were given.")
    if np.isinf(array).any():
        raise InputError(
            f"value {int(np.isinf(array).argmax())} is infinite, and so would the mean be. Values must be finite."
        )
    return array


# --- the ways to an interval --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sample:
    """Sums and counts of n groups (values, where each is its own group), their mean, and what an interval is asked for."""

    sums: NDArray[Any]
    counts: NDArray[Any]
    mean: float
    confidence: float
    seed: int
    resamples: int

    @property
    def n(self) -> int:
        return len(self.sums)

    @property
    def tails(self) -> tuple[float, float]:
        return (1 - self.confidence) / 2, (1 + self.confidence) / 2

    @property
    def residuals(self) -> NDArray[Any]:
        """[group]: what each adds to the error of the mean, times n."""
        spread: NDArray[Any] = (self.sums - self.mean * self.counts) / (self.counts.sum() / self.n)
        return spread

    @property
    def means(self) -> NDArray[Any]:
        """[resample]"""
        draws = _draws(self.n, self.resamples, self.seed)
        return np.concatenate([self.sums[rows].sum(-1) / self.counts[rows].sum(-1) for rows in draws])


def _bootstrap_ends(sample: _Sample) -> tuple[float, float]:
    return _percentiles(sample.means, sample.confidence)


def _normal_ends(sample: _Sample) -> tuple[float, float]:
    reach = NormalDist().inv_cdf(sample.tails[1]) * float(sample.residuals.std()) / sample.n**0.5
    return sample.mean - reach, sample.mean + reach


def _t_ends(sample: _Sample) -> tuple[float, float]:
    reach = float(scipy_stats().t.ppf(sample.tails[1], sample.n - 1)) * _standard_error(sample.residuals)
    return sample.mean - reach, sample.mean + reach


def _standard_error(residuals: NDArray[Any]) -> float:
    return float(residuals.std(ddof=1)) / len(residuals) ** 0.5


def _studentised_ends(sample: _Sample) -> tuple[float, float]:
    """mean - q s, with the quantiles q of t* = (mean* - mean) / s* over resamples, and s the standard error."""
    t = np.concatenate([_t_of(sample.residuals[rows]) for rows in _draws(sample.n, sample.resamples, sample.seed)])
    if (~np.isfinite(t)).mean() > CONSTANT:
        return _bca_ends(sample)
    high, low = np.quantile(t[np.isfinite(t)], sample.tails)
    error = _standard_error(sample.residuals)
    return sample.mean - low * error, sample.mean - high * error


def _t_of(resampled: NDArray[Any]) -> NDArray[Any]:
    """[resample]: the mean in standard errors, from residuals [resample group]; NaN where a resample is constant but for
    rounding."""
    constant = np.ptp(resampled, axis=-1) <= ROUNDING * np.abs(resampled).max(initial=0.0)
    error = resampled.std(-1, ddof=1) / resampled.shape[-1] ** 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        t: NDArray[Any] = np.where(constant, np.nan, resampled.mean(-1) / error)
    return t


def _bca_ends(sample: _Sample) -> tuple[float, float]:
    """Percentiles of resampled means at levels corrected for bias (z0) and acceleration (a)."""
    means, normal = sample.means, NormalDist()
    if np.ptp(means) == 0:
        return sample.mean, sample.mean
    below = (means < sample.mean).mean() + (means == sample.mean).mean() / 2
    z0 = normal.inv_cdf(float(np.clip(below, 1 / len(means), 1 - 1 / len(means))))
    a = _acceleration(sample.residuals)
    quantiles = [z0 + normal.inv_cdf(tail) for tail in sample.tails]
    levels = [normal.cdf(z0 + z / (1 - a * z)) for z in quantiles]
    low, high = np.quantile(means, levels)
    return float(low), float(high)


def _acceleration(residuals: NDArray[Any]) -> float:
    """sum u^3 / (6 (sum u^2)^1.5) of what each group adds to the mean (its influence)."""
    scaled = residuals / max(float(np.abs(residuals).max()), 1e-300)
    return float((scaled**3).sum() / (6 * (scaled**2).sum() ** 1.5)) if scaled.any() else 0.0


_ENDS: dict[str, Callable[[_Sample], tuple[float, float]]] = {
    "bootstrap": _bootstrap_ends,
    "studentised": _studentised_ends,
    "bca": _bca_ends,
    "t": _t_ends,
    "normal": _normal_ends,
}


def difference_with_interval(
    first: Sequence[float] | NDArray[Any],
    second: Sequence[float] | NDArray[Any],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> Interval:
    """The mean of the first values less that of the second, of different examples: each side is resampled apart, and the
    difference is counted in its own standard errors. Percentiles where resamples of both sides are constant."""
    _checked(confidence, "studentised", resamples)
    sides = [_finite(first), _finite(second)]
    n, mean = sum(map(len, sides)), float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) < 2:
        return Interval(mean, np.nan, np.nan, n, np.nan, confidence)
    drawn = [side[_all_draws(len(side), resamples, seed + place)] for place, side in enumerate(sides)]
    means = drawn[0].mean(-1) - drawn[1].mean(-1)
    errors = np.hypot(*map(_errors, drawn))
    t = np.divide(means - mean, errors, out=np.full(resamples, np.nan), where=errors > ROUNDING * np.abs(means).max())
    if np.isnan(t).mean() > CONSTANT:
        return Interval(mean, *_percentiles(means, confidence), n, np.nan, confidence)
    high, low = _percentiles(t[~np.isnan(t)], confidence)[::-1]
    error = float(np.hypot(*map(_errors, sides)))
    return Interval(mean, mean - high * error, mean - low * error, n, np.nan, confidence)


def _all_draws(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """[resample example]: indices of resampled examples."""
    return np.concatenate(list(_draws(n, resamples, seed)))


def _errors(rows: NDArray[Any]) -> Any:
    """The standard error of the mean over the last axis."""
    return rows.std(-1, ddof=1) / rows.shape[-1] ** 0.5


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
