"""Paired comparisons: intervals that hold for all pairs at once."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from mixlens.base.errors import InputError
from mixlens.metrics import comparisons

NAN = math.nan
VALUES = np.array([0.3, 2.0, -1.0, 5.5, 0.25, 0.75, 9.0, 1.5, 0.1, 3.0])


def test_more_pairs_give_wider_intervals_and_larger_p() -> None:
    generator = np.random.default_rng(1)
    values = {name: generator.normal(0.3 * (name == "a"), 1, 30) for name in "abcdef"}
    alone = comparisons.simultaneous(values, [("a", "b")])["a", "b"]
    among = comparisons.simultaneous(values, [(x, y) for x in "abc" for y in "def"] + [("a", "b")])["a", "b"]
    assert among.high - among.low > alone.high - alone.low
    assert among.p >= alone.p


def test_all_intervals_together_hold_as_often_as_they_say() -> None:
    """Ten methods without any difference: a false win somewhere in at most about 5 % of runs. 200 runs: three standard
    errors of a share of 5 % are 4.6 %."""
    wrong = 0
    for seed in range(200):
        values = dict(enumerate(np.random.default_rng(seed).exponential(size=(10, 25))))
        pairs = [(i, 0) for i in range(1, 10)]
        wrong += any(one.sign for one in comparisons.simultaneous(values, pairs, seed=seed, resamples=300).values())
    assert wrong / 200 < 0.05 + 0.046


def test_examples_without_a_value_are_left_out_for_all_methods() -> None:
    values = {"a": [1.0, math.nan, 3.0, 5.0], "b": [0.0, 1.0, 2.0, math.nan]}
    assert [list(row) for row in comparisons.complete(values).values()] == [[1.0, 3.0], [0.0, 2.0]]
    assert comparisons.simultaneous(values, [("a", "b")])["a", "b"].n == 2


def test_a_pair_that_is_not_told_apart_needs_more_examples_than_there_are() -> None:
    """Among all pairs, by the half-width that the intervals have: where the interval holds 0, more are needed than
    there are."""
    noise = np.random.default_rng(2).normal(size=(6, 40))
    values = {str(i): row + i / 6 for i, row in enumerate(noise)}
    made = comparisons.simultaneous(values, list(combinations(values, 2)))
    kept = {pair: one for pair, one in made.items() if not one.sign}
    assert any(one.needed is not None and one.needed <= one.n for one in kept.values())  # for the pair alone
    for (a, b), one in kept.items():
        assert one.needed_for_all is not None
        assert one.needed_for_all > one.n
        spread = float((values[a] - values[b]).std(ddof=1))
        reach = (one.high - one.mean) * math.sqrt(one.n) + NormalDist().inv_cdf(0.8) * spread
        assert one.needed_for_all == math.ceil((reach / one.mean) ** 2)
    few = comparisons.simultaneous({"a": [1.0, 0, 0, 0, 0, 0, 0, 0], "b": [0.0] * 8}, [("a", "b")])["a", "b"]
    assert (few.high, few.needed_for_all) == (math.inf, None)


def test_values_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"the lengths are \[1, 2\]"):
        comparisons.simultaneous({"a": [1.0], "b": [0.0, 1.0]}, [("a", "b")])


def test_three_examples_leave_the_interval_open() -> None:
    """One resample of nine holds the same example three times: its spread is 0, and no multiple of it reaches the
    mean."""
    one = comparisons.simultaneous({"a": [1.0, 2.0, 4.0], "b": [0.0, 0.0, 0.0]}, [("a", "b")])["a", "b"]
    assert (one.low, one.high, one.sign) == (-math.inf, math.inf, 0)


def test_a_pair_that_differs_on_one_example_does_not_hide_the_others() -> None:
    generator = np.random.default_rng(0)
    base = generator.normal(0, 1, 40)
    values = {
        "a": base,
        "nearly a": np.where(np.arange(40) == 3, base + 1, base),
        "better": base + generator.normal(1, 0.3, 40),
    }
    both = comparisons.simultaneous(values, [("nearly a", "a"), ("better", "a")])
    assert both["nearly a", "a"].sign == 0
    assert both["better", "a"].sign == 1


def draws(n: int, resamples: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, n, size=(resamples, n))


def test_a_difference_written_out() -> None:
    """p counts the resamples whose largest t is at least as large, this sample among them."""
    values = {"a": VALUES, "b": np.zeros(10), "c": VALUES * 0.5 + 1}
    pairs = [("a", "b"), ("c", "a")]
    rows = np.stack([VALUES, 1 - 0.5 * VALUES])
    picked = draws(10, 200, 5)
    centred = rows - rows.mean(1, keepdims=True)
    drawn = centred[:, picked]
    t = np.abs(drawn.mean(-1)) / (drawn.std(-1, ddof=1) / math.sqrt(10))
    largest = t.max(0)
    made = comparisons.simultaneous(values, pairs, confidence=0.8, seed=5, resamples=200)
    reach = np.quantile(largest, 0.8, method="higher")
    for pair, row in zip(pairs, rows, strict=True):
        error = row.std(ddof=1) / math.sqrt(10)
        p = (1 + (largest >= abs(row.mean()) / error).sum()) / 201
        expected = (row.mean(), row.mean() - reach * error, row.mean() + reach * error, 10, p)
        one = made[pair]
        assert (one.mean, one.low, one.high, one.n, one.p) == pytest.approx(expected, rel=1e-9)
        assert one.needed == comparisons.needed(row)
    assert comparisons.simultaneous(values, []) == {}


def test_signs_texts_and_pairs_that_vary_too_little() -> None:
    assert [
        comparisons.Difference(0.0, low, high, 5, 0.1, 2).sign
        for low, high in ((0.1, 2.0), (-2.0, -0.1), (0.0, 1.0), (-1.0, 0.0))
    ] == [*(1, -1, 0, 0)]
    assert str(comparisons.Difference(0.5, -0.25, 1.25, 5, 0.1, 2)) == "+0.500 [-0.250, +1.250]"
    four = np.array([1.0] * 4 + [0.0] * 8)
    five = np.array([1.0] * 5 + [0.0] * 8)
    assert comparisons.simultaneous({"a": four, "b": 0 * four}, [("a", "b")])["a", "b"].high == math.inf
    assert comparisons.simultaneous({"a": five, "b": 0 * five}, [("a", "b")])["a", "b"].high < math.inf
    constant = comparisons.simultaneous({"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5, 2.5]}, [("a", "b")], resamples=10)[
        "a", "b"
    ]
    assert (constant.low, constant.high, constant.mean) == (0.5, 0.5, 0.5)
    nothing = comparisons.simultaneous({"a": [NAN], "b": [1.0]}, [("a", "b")])["a", "b"]
    assert (nothing.n, math.isnan(nothing.mean), math.isnan(nothing.p), nothing.needed) == (0, True, True, None)


def test_how_many_examples_are_needed() -> None:
    row = np.array([1.0, 3.0, 2.0, 7.0])
    quantile = NormalDist().inv_cdf
    size = ((quantile(0.95) + quantile(0.6)) * row.std(ddof=1) / row.mean()) ** 2
    assert comparisons.needed(row, confidence=0.9, power=0.6) == math.ceil(size)
    assert comparisons.needed([5.0, 5.0]) == 2
    assert comparisons.needed([1.0, -1.0]) is None
    assert comparisons.needed([]) is None
    assert comparisons.needed([2.0, 4.0]) == math.ceil(((quantile(0.975) + quantile(0.8)) * math.sqrt(2) / 3) ** 2)


def test_the_p_of_pairs_that_do_not_vary() -> None:
    """Equal values have p = 1, and a difference that is always the same the least p that so many resamples can give."""
    values = {"a": VALUES, "same": VALUES, "one more": VALUES + 1, "other": VALUES**2}
    pairs = [("a", "same"), ("one more", "a"), ("other", "a")]
    made = comparisons.simultaneous(values, pairs, seed=1, resamples=99)
    assert [made[pair].p for pair in pairs[:2]] == [1.0, 0.01]
    assert 0.01 < made[pairs[2]].p < 1.0
    balanced = comparisons.simultaneous(
        {"a": [1.0, -1.0, 2.0, -2.0, 3.0, -3.0], "b": [0.0] * 6}, [("a", "b")], resamples=50
    )["a", "b"]
    assert (balanced.mean, balanced.p) == (0.0, 1.0)


def test_a_difference_does_not_depend_on_the_unit() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 8))
    expected = comparisons.simultaneous(dict(enumerate(rows)), [(0, 1), (1, 2)], resamples=50)
    for unit in (1e-20, 1e15):
        made = comparisons.simultaneous(dict(enumerate(rows * unit)), [(0, 1), (1, 2)], resamples=50)
        assert [one.p for one in made.values()] == [one.p for one in expected.values()]
        assert [one.low / unit for one in made.values()] == pytest.approx([one.low for one in expected.values()])
