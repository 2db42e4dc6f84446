"""Paired comparisons of several methods on the same examples: intervals that hold for all pairs at once.

The statistic of a pair is t = mean(d) / (sd(d) / sqrt(n)) of its differences d [example]. The examples are resampled;
each resample gives the largest |t* - centred| over all pairs (max-t; Westfall and Young 1993, Romano and Wolf 2005).
Its quantile is the half-width of every interval in standard errors, so that all intervals together hold with the stated
confidence."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ..base.errors import InputError
from .arguments import Array, Numbers
from .intervals import standard_errors

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
    values: Mapping[Any, Numbers],
    pairs: Sequence[tuple[Any, Any]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[tuple[Any, Any], Difference]:
    """The difference a - b of each pair, with intervals that hold for all pairs at once.

    `values` are those of each method on the same examples, in the same order. Examples without a value (NaN) for one of
    the methods that are compared are left out for all of them."""
    if not pairs:
        return {}
    defined = complete({name: values[name] for pair in pairs for name in pair})
    rows = np.stack([defined[first] - defined[second] for first, second in pairs])  # [pair example]
    n = rows.shape[1]
    if n < 2:
        means = [float(row[0]) if n else math.nan for row in rows]
        return {
            pair: Difference(mean, math.nan, math.nan, n, math.nan, None)
            for pair, mean in zip(pairs, means, strict=True)
        }
    # A pair that differs on one example alone has no spread in a third of the resamples. Its t is infinite there, and
    # would leave no pair told apart. Of few examples half must differ.
    apart = (rows != np.median(rows, axis=1, keepdims=True)).sum(1) >= min(VARIED, (n + 1) // 2)
    largest = _largest(rows[apart], resamples, seed)
    reach = float(np.quantile(largest, confidence, method="higher"))  # infinite where a few examples leave it open
    errors = standard_errors(rows)
    errors = np.where(errors <= 1e-12 * np.abs(rows).max(1), 0.0, errors)  # equal but for rounding: one point
    found = {}
    for pair, row, error, varied in zip(pairs, rows, errors, apart, strict=True):
        mean, width = float(row.mean()), reach if varied else math.inf
        spread = width * error if error else 0.0
        t = abs(mean) / error if error else math.inf
        p = 1.0 if mean == 0 else float((1 + (largest >= t).sum()) / (1 + len(largest)))
        sizes = needed(row), _size(row, width)
        found[pair] = Difference(mean, float(mean - spread), float(mean + spread), n, p, *sizes)
    return found


def _largest(rows: Array, resamples: int, seed: int) -> Array:
    """[resample]: the largest |t| of the resampled means about the means of all examples, over all pairs."""
    if not len(rows):
        return np.full(resamples, math.inf)
    generator, n = np.random.default_rng(seed), rows.shape[1]
    step = max(1, CELLS // rows.size)
    centred = rows - rows.mean(1, keepdims=True)
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    return np.concatenate([_t_of(centred[:, generator.integers(0, n, size=(size, n))]).max(0) for size in sizes])


def _t_of(resampled: Array) -> Array:
    """[pair resample] from [pair resample example]: |mean| in standard errors; 0 where nothing varies and the mean is
    0."""
    means, errors = np.abs(resampled.mean(-1)), standard_errors(resampled)
    scale = np.abs(resampled).max(initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(means <= 1e-12 * scale, 0.0, means / np.where(errors <= 1e-12 * scale, 0.0, errors))


def needed(differences: Numbers, *, confidence: float = 0.95, power: float = 0.8) -> int | None:
    """How many examples would tell the mean difference from 0: ((z_confidence + z_power) sd / mean)^2, at least 2.

    None where the mean is 0 (no number of examples would) or where fewer than two examples tell nothing.
    """
    return _size(differences, NormalDist().inv_cdf((1 + confidence) / 2), power)


def _size(differences: Numbers, reach: float, power: float = 0.8) -> int | None:
    """How many examples tell the mean from 0 by an interval of `reach` standard errors to each side; None where it has
    no end."""
    array = np.asarray(differences, dtype=np.float64)
    if len(array) < 2 or math.isclose(float(array.mean()), 0.0, abs_tol=1e-12) or math.isinf(reach):
        return None
    width = (reach + NormalDist().inv_cdf(power)) * float(array.std(ddof=1)) / float(array.mean())
    return max(2, math.ceil(width**2))


def complete(values: Mapping[Any, Numbers]) -> dict[Any, Array]:
    """The values of the examples that have one for every method: the same examples for all."""
    arrays = {name: np.asarray(numbers, dtype=np.float64) for name, numbers in values.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1:
        raise InputError(f"paired values need the same examples for every method; the lengths are {sorted(lengths)}.")
    defined = ~np.isnan(np.stack(list(arrays.values()))).any(0)
    return {name: array[defined] for name, array in arrays.items()}
