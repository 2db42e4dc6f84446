"""Paired comparisons of several methods on the same examples: intervals that hold for all pairs at once.

The statistic of a pair is t = mean(d) / (sd(d) / sqrt(n)) of its differences d [example]. The examples are resampled; each
resample gives the largest |t* - centred| over all pairs (max-t; Westfall and Young 1993, Romano and Wolf 2005). Its quantile is
the half-width of every interval in standard errors, so that all intervals together hold with the stated confidence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError

VARIED = (
    5  # examples that must differ from the median for a pair to be compared: e^-5 of the resamples have none of them
)
CELLS = 2_000_000  # numbers that are resampled at a time
Pair = tuple[Hashable, Hashable]


@dataclass(frozen=True)
class Difference:
    """The mean paired difference of two methods over n examples, its simultaneous interval and its adjusted p-value."""

    mean: float
    low: float
    high: float
    n: int
    p: float
    needed: int | None  # so many examples would tell this pair alone apart with 80 % power; None where no number would
    needed_for_all: int | None = None  # the same among all pairs at once, by the half-width of these intervals

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0; 0 where the two are not told apart."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def simultaneous(
    values: Mapping[Any, Sequence[float] | NDArray[Any]],
    pairs: Sequence[tuple[Any, Any]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[tuple[Any, Any], Difference]:
    """The difference a - b of each pair, with intervals that hold for all pairs at once.

    `values` are those of each method on the same examples, in the same order. Examples without a value (NaN) for one of the
    methods that are compared are left out for all of them.
    """
    if not pairs:
        return {}
    differences = _differences(values, pairs)
    if differences.shape[1] < 2:
        return {pair: _unknown(row) for pair, row in zip(pairs, differences, strict=True)}
    means, errors = differences.mean(1), _exact_zeros(_standard_errors(differences), differences)
    largest = _largest(differences[_varied(differences)], resamples, seed)
    reach = float(np.quantile(largest, confidence, method="higher"))  # infinite where a few examples leave it open
    return {
        pair: _difference(row, mean, error, reach if varied else math.inf, largest)
        for pair, row, mean, error, varied in zip(pairs, differences, means, errors, _varied(differences), strict=True)
    }


def _exact_zeros(errors: NDArray[Any], differences: NDArray[Any]) -> NDArray[Any]:
    """[pair]: 0 where the differences are equal but for rounding."""
    rounded: NDArray[Any] = np.where(errors <= 1e-12 * np.abs(differences).max(1, initial=0.0), 0.0, errors)
    return rounded


def _varied(differences: NDArray[Any]) -> NDArray[np.bool_]:
    """[pair]: whether enough examples differ from the others for a resampled spread to mean something.

    A pair that differs on one example alone has no spread in a third of the resamples. Its t is infinite there, and would leave
    no pair told apart. Of few examples half must differ.
    """
    apart = differences != np.median(differences, axis=1, keepdims=True)
    varied: NDArray[np.bool_] = apart.sum(1) >= min(VARIED, (differences.shape[1] + 1) // 2)
    return varied


def needed(differences: Sequence[float] | NDArray[Any], *, confidence: float = 0.95, power: float = 0.8) -> int | None:
    """How many examples would tell the mean difference from 0: ((z_confidence + z_power) sd / mean)^2, at least 2.

    None where the mean is 0 (no number of examples would) or where fewer than two examples tell nothing.
    """
    return _size(differences, NormalDist().inv_cdf((1 + confidence) / 2), power)


def _size(differences: Sequence[float] | NDArray[Any], reach: float, power: float = 0.8) -> int | None:
    """How many examples tell the mean from 0 by an interval of `reach` standard errors to each side; None where it has no end."""
    array = np.asarray(differences, dtype=np.float64)
    if len(array) < 2 or math.isclose(float(array.mean()), 0.0, abs_tol=1e-12) or math.isinf(reach):
        return None
    width = (reach + NormalDist().inv_cdf(power)) * float(array.std(ddof=1)) / float(array.mean())
    return max(2, math.ceil(width**2))


def complete(values: Mapping[Any, Sequence[float] | NDArray[Any]]) -> dict[Any, NDArray[Any]]:
    """The values of the examples that have one for every method: the same examples for all."""
    arrays = {name: np.asarray(numbers, dtype=np.float64) for name, numbers in values.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1:
        raise InputError(f"paired values need the same examples for every method; the lengths are {sorted(lengths)}.")
    defined = ~np.isnan(np.stack(list(arrays.values()))).any(0)
    return {name: array[defined] for name, array in arrays.items()}


def _differences(values: Mapping[Any, Any], pairs: Sequence[tuple[Any, Any]]) -> NDArray[Any]:
    """[pair example] of the examples that every compared method has a value for."""
    compared = dict.fromkeys(name for pair in pairs for name in pair)
    defined = complete({name: values[name] for name in compared})
    return np.stack([defined[first] - defined[second] for first, second in pairs])


def _unknown(row: NDArray[Any]) -> Difference:
    mean = float(row.mean()) if len(row) else math.nan
    return Difference(mean, math.nan, math.nan, len(row), math.nan, None)


def _standard_errors(differences: NDArray[Any]) -> NDArray[Any]:
    """[... pair]: the standard error of each mean over the last axis."""
    errors: NDArray[Any] = differences.std(-1, ddof=1) / math.sqrt(differences.shape[-1])
    return errors


def _largest(differences: NDArray[Any], resamples: int, seed: int) -> NDArray[Any]:
    """[resample]: the largest |t| of the resampled means about the means of all examples, over all pairs."""
    if not len(differences):
        return np.full(resamples, math.inf)
    generator = np.random.default_rng(seed)
    count, n = differences.shape
    step = max(1, CELLS // (count * n))
    centred = differences - differences.mean(1, keepdims=True)
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    return np.concatenate([_t_of(centred[:, generator.integers(0, n, size=(size, n))]).max(0) for size in sizes])


def _t_of(resampled: NDArray[Any]) -> NDArray[Any]:
    """[pair resample] from [pair resample example]: |mean| in standard errors; 0 where nothing varies and the mean is 0."""
    means, errors = np.abs(resampled.mean(-1)), _standard_errors(resampled)
    scale = np.abs(resampled).max(initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t: NDArray[Any] = np.where(means <= 1e-12 * scale, 0.0, means / np.where(errors <= 1e-12 * scale, 0.0, errors))
    return t


def _difference(row: NDArray[Any], mean: float, error: float, reach: float, largest: NDArray[Any]) -> Difference:
    """A pair whose differences are all equal has an interval of one point."""
    spread = 0.0 if error == 0 else reach * error
    t = math.inf if error == 0 else abs(mean) / error
    p = 1.0 if mean == 0 else float((1 + (largest >= t).sum()) / (1 + len(largest)))
    low, high = float(mean - spread), float(mean + spread)
    return Difference(float(mean), low, high, len(row), p, needed(row), _size(row, reach))
