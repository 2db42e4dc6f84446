"""Paired comparisons: intervals that hold for all pairs at once."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest

from mixlens.base.errors import InputError
from mixlens.metrics.comparisons import complete, needed, simultaneous


def test_the_mean_and_the_interval_of_one_pair_are_the_studentised_bootstrap() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(0.4, 1, 40), generator.normal(0, 1, 40)
    one = simultaneous({"a": a, "b": b}, [("a", "b")], seed=3, resamples=500)["a", "b"]
    d = a - b
    drawn = np.random.default_rng(3).integers(0, 40, size=(500, 40))
    t = [abs(d[row].mean() - d.mean()) / (d[row].std(ddof=1) / math.sqrt(40)) for row in drawn]
    reach = np.quantile(t, 0.95, method="higher") * d.std(ddof=1) / math.sqrt(40)
    assert one.mean == pytest.approx(d.mean(), rel=1e-12)
    assert (one.low, one.high) == pytest.approx((d.mean() - reach, d.mean() + reach), rel=1e-9)  # sums in another order
    assert one.n == 40


def test_more_pairs_give_wider_intervals_and_larger_p() -> None:
    generator = np.random.default_rng(1)
    values = {name: generator.normal(0.3 * (name == "a"), 1, 30) for name in "abcdef"}
    alone = simultaneous(values, [("a", "b")])["a", "b"]
    among = simultaneous(values, [(x, y) for x in "abc" for y in "def"] + [("a", "b")])["a", "b"]
    assert among.high - among.low > alone.high - alone.low
    assert among.p >= alone.p


def test_all_intervals_together_hold_as_often_as_they_say() -> None:
    """Ten methods without any difference: a false win somewhere in at most about 5 % of runs. 200 runs: three standard errors
    of a share of 5 % are 4.6 %."""
    wrong = 0
    for seed in range(200):
        values = dict(enumerate(np.random.default_rng(seed).exponential(size=(10, 25))))
        pairs = [(i, 0) for i in range(1, 10)]
        wrong += any(one.sign for one in simultaneous(values, pairs, seed=seed, resamples=300).values())
    assert wrong / 200 < 0.05 + 0.046


def test_equal_values_are_never_told_apart_and_a_constant_difference_is() -> None:
    values = {"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 4.0], "c": [0.0, 1.0, 3.0]}
    both = simultaneous(values, [("a", "b"), ("a", "c")])
    assert (both["a", "b"].sign, both["a", "b"].p, both["a", "b"].needed) == (0, 1.0, None)
    assert both["a", "c"].sign == 1


def test_examples_without_a_value_are_left_out_for_all_methods() -> None:
    values = {"a": [1.0, math.nan, 3.0, 5.0], "b": [0.0, 1.0, 2.0, math.nan]}
    assert [list(row) for row in complete(values).values()] == [[1.0, 3.0], [0.0, 2.0]]
    assert simultaneous(values, [("a", "b")])["a", "b"].n == 2


def test_one_example_gives_no_interval() -> None:
    one = simultaneous({"a": [1.0], "b": [0.0]}, [("a", "b")])["a", "b"]
    assert one.mean == 1.0
    assert math.isnan(one.low)
    assert one.sign == 0


def test_needed_is_the_sample_size_of_a_paired_test() -> None:
    d = np.array([1.0, 3.0])  # mean 2, sd sqrt(2): ((1.960 + 0.842) / sqrt(2))^2 = 3.9
    assert needed(d) == 4
    assert needed([0.0, 0.0]) is None
    assert needed([1.0]) is None


def test_a_pair_that_is_not_told_apart_needs_more_examples_than_there_are() -> None:
    """Among all pairs, by the half-width that the intervals have: where the interval holds 0, more are needed than there are."""
    noise = np.random.default_rng(2).normal(size=(6, 40))
    values = {str(i): row + i / 6 for i, row in enumerate(noise)}
    made = simultaneous(values, list(combinations(values, 2)))
    kept = {pair: one for pair, one in made.items() if not one.sign}
    assert any(one.needed is not None and one.needed <= one.n for one in kept.values())  # for the pair alone
    for (a, b), one in kept.items():
        assert one.needed_for_all is not None
        assert one.needed_for_all > one.n
        spread = float((values[a] - values[b]).std(ddof=1))
        reach = (one.high - one.mean) * math.sqrt(one.n) + NormalDist().inv_cdf(0.8) * spread
        assert one.needed_for_all == math.ceil((reach / one.mean) ** 2)
    few = simultaneous({"a": [1.0, 0, 0, 0, 0, 0, 0, 0], "b": [0.0] * 8}, [("a", "b")])["a", "b"]
    assert (few.high, few.needed_for_all) == (math.inf, None)


def test_values_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"the lengths are \[1, 2\]"):
        simultaneous({"a": [1.0], "b": [0.0, 1.0]}, [("a", "b")])


def test_three_examples_leave_the_interval_open() -> None:
    """One resample of nine holds the same example three times: its spread is 0, and no multiple of it reaches the mean."""
    one = simultaneous({"a": [1.0, 2.0, 4.0], "b": [0.0, 0.0, 0.0]}, [("a", "b")])["a", "b"]
    assert (one.low, one.high, one.sign) == (-math.inf, math.inf, 0)


def test_a_pair_that_differs_on_one_example_does_not_hide_the_others() -> None:
    generator = np.random.default_rng(0)
    base = generator.normal(0, 1, 40)
    values = {
        "a": base,
        "nearly a": np.where(np.arange(40) == 3, base + 1, base),
        "better": base + generator.normal(1, 0.3, 40),
    }
    both = simultaneous(values, [("nearly a", "a"), ("better", "a")])
    assert both["nearly a", "a"].sign == 0
    assert both["better", "a"].sign == 1
