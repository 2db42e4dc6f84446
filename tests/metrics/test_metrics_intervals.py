"""Intervals and the registry: what a mean is worth, and what metrics there are."""

from __future__ import annotations

import math
import subprocess
import sys
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixlens import metrics
from mixlens.base import optional
from mixlens.base.errors import InputError
from mixlens.metrics import comparisons, intervals, registry

mean_with_interval, summary = metrics.mean_with_interval, metrics.summary
NAN = math.nan
VALUES = np.array([0.3, 2.0, -1.0, 5.5, 0.25, 0.75, 9.0, 1.5, 0.1, 3.0])
numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(numbers, st.sampled_from(["bootstrap", "normal"]))
def test_the_mean_lies_inside_and_more_confidence_is_wider(values: list[float], how: str) -> None:
    narrow, wide = (mean_with_interval(values, confidence=c, how=how, resamples=400) for c in (0.8, 0.99))
    room = 1e-9 * (1 + max(map(abs, values)))
    assert wide.low - room <= narrow.low <= narrow.high <= wide.high + room
    assert wide.low - room <= np.mean(values) <= wide.high + room
    assert narrow.mean == pytest.approx(np.mean(values), abs=room)
    assert narrow.std == pytest.approx(np.std(values), abs=room)


@settings(max_examples=30, deadline=None)
@given(numbers, st.floats(-100, 100), st.floats(0.01, 100))
def test_an_interval_moves_and_grows_with_its_values(values: list[float], shift: float, scale: float) -> None:
    made, moved = (mean_with_interval(v, resamples=200) for v in (values, [scale * v + shift for v in values]))
    room = 1e-9 * (1 + scale * max(map(abs, values)) + abs(shift))
    for end in ("mean", "low", "high"):
        assert getattr(moved, end) == pytest.approx(scale * getattr(made, end) + shift, abs=room)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(1).normal(size=50)
    assert mean_with_interval(values, seed=3) == mean_with_interval(torch.tensor(values), seed=3)
    assert mean_with_interval(values, seed=3) != mean_with_interval(values, seed=4)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    """300 samples of 40: a 90 % interval that holds the true mean in 84 to 95 of 100."""
    generator = np.random.default_rng(0)
    for how in ("bootstrap", "normal"):
        held = 0
        for _ in range(300):
            made = mean_with_interval(generator.exponential(size=40), confidence=0.9, how=how, resamples=400)
            held += made.low <= 1 <= made.high
        assert 0.84 <= held / 300 <= 0.95


@pytest.mark.parametrize(("draw", "truth"), [("exponential", 1.0), ("lognormal", math.exp(0.5)), ("normal", 0.0)])
def test_a_studentised_interval_covers_at_small_n(draw: str, truth: float) -> None:
    """400 samples of 12: 95 % intervals hold the truth in at least 88 %, where percentiles fall below that for skewed
    values. 400 samples leave a standard error of 1.6 %."""
    held = {"studentised": 0, "bootstrap": 0}
    for how in held:
        generator = np.random.default_rng(1)
        for _ in range(400):
            made = mean_with_interval(getattr(generator, draw)(size=12), how=how, resamples=400)
            held[how] += made.low <= truth <= made.high
    assert held["studentised"] / 400 >= 0.88
    assert held["studentised"] > held["bootstrap"]


def test_bca_is_that_of_scipy() -> None:
    """The same formula on other resamples: ends agree within the noise of 5,000 resamples (2 % of the width, three
    times)."""
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).exponential(size=25)
    theirs = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=5000, rng=np.random.default_rng(1)
    ).confidence_interval
    made = mean_with_interval(values, how="bca", resamples=5000)
    room = 0.06 * (made.high - made.low)
    assert (made.low, made.high) == pytest.approx((theirs.low, theirs.high), abs=room)


def test_values_that_are_mostly_zero_fall_back_to_bca() -> None:
    """A resample without any of the few ones has no spread, so t has no meaning there."""
    values = [0.0] * 18 + [1.0, 2.0]
    assert mean_with_interval(values, how="studentised") == mean_with_interval(values, how="bca")
    rounding = mean_with_interval([1.0] * 6 + [1 - 1e-15] * 6 + [0.9], how="studentised")
    assert rounding.low >= 0.9
    constant = mean_with_interval([2.0] * 5, how="studentised")
    assert (constant.low, constant.high) == (2.0, 2.0)


def test_tokens_of_one_text_are_not_independent() -> None:
    """Ten texts of 20 equal tokens know as much as ten tokens, not as 200."""
    texts = np.random.default_rng(0).normal(size=10)
    tokens, groups = np.repeat(texts, 20), np.repeat(np.arange(10), 20)
    for how in ("bootstrap", "normal"):
        together, alone, blind = (
            mean_with_interval(v, groups=g, how=how) for v, g in ((tokens, groups), (texts, None), (tokens, None))
        )
        assert together.n == 10
        assert together.high - together.low == pytest.approx(alone.high - alone.low)
        assert blind.high - blind.low < 0.5 * (together.high - together.low)


def test_a_mean_over_texts_of_different_lengths_is_over_tokens() -> None:
    made = mean_with_interval([1.0, 0.0, 0.0, 0.0], groups=["a", "b", "b", "b"])
    assert made.mean == 0.25
    assert (made.low, made.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([], {}, "nothing to average"),
        ([1.0, float("inf")], {}, "value 1 is infinite"),
        ([1.0, 2.0], {"confidence": 95}, "between 0 and 1"),
        ([1.0, 2.0], {"how": "bootstrp"}, "Did you mean 'bootstrap'"),
        ([1.0, 2.0], {"groups": [1]}, "1 entries for 2 values"),
        ([1.0, 2.0], {"resamples": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_averaged_is_refused(values: list[float], options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        mean_with_interval(values, **options)


def test_every_metric_says_what_it_needs_and_which_way_is_better() -> None:
    assert {"spearman", "cue_dot", "aopc", "online_code", "precision_at_k", "anisotropy", "own_share"} <= set(
        metrics.known()
    )
    for one in metrics.known().values():
        assert one.summary.strip(), one.id
        assert one.better in registry.BETTER
        assert set(one.needs) <= set(registry.NEEDS)
        assert one.paper[-1] != "."
        assert "variant" not in one.options
        if len(one.variants) > 1:
            assert "`released`" in (one.function.__doc__ or "") or one.variants[0] == "released", one.id


def test_a_summary_is_the_mean_of_the_metric() -> None:
    generator = np.random.default_rng(0)
    first, second = ([generator.normal(size=n) for n in (4, 7, 9)] for _ in range(2))
    spearman = metrics.known()["spearman"].function
    made = summary("spearman", first, second, variant="released")
    assert made.mean == pytest.approx(
        np.mean([spearman(a, b, variant="released") for a, b in zip(first, second, strict=True)])
    )
    assert made.n == 3
    answers = summary("precision_at_k", [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [(0, 1), (0, 1)], k=2)
    assert answers.mean == 0.75


@pytest.mark.parametrize(
    ("asked", "columns", "options", "said"),
    [
        ("spearmann", ([[1]], [[1]]), {}, "Did you mean 'spearman'"),
        ("spearman", ([[1]], [[1], [2]]), {}, "given: 1, 2"),
        ("spearman", ([[1, 2]], [[1, 2]]), {"variant": "relased"}, "Did you mean 'released'"),
        ("cue_dot", ([[1, 2]], [[1, 0]]), {"sign": 1}, "has no option 'sign'"),
        ("special_token_ranks", ([],), {}, "nothing to average"),
    ],
)
def test_a_summary_refuses_by_name(asked: str, columns: tuple, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        summary(asked, *columns, **options)


def test_without_scipy_and_scikit_learn_metrics_say_what_to_install() -> None:
    code = """
import sys
for name in ("scipy", "scipy.stats", "sklearn", "sklearn.metrics"):
    sys.modules[name] = None
from mixlens.base.errors import InputError
from mixlens import metrics
for name, given in (("spearman", ([1, 2], [2, 1])), ("cue_average_precision", ([1, 2], [1, 0]))):
    try:
        metrics.known()[name].function(*given)
    except InputError as error:
        print(error)
print(metrics.known()["cue_dot"].function([1, 3], [0, 1]), metrics.known()["pearson"].function([1, 2], [1, 3]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[:2] == [
        f"this metric needs {name}: {optional.installing('judge')}." for name in ("scipy", "scikit-learn")
    ]
    assert [float(number) for number in out[2].split()] == pytest.approx([0.75, 1])


def test_a_difference_of_two_sets_of_examples() -> None:
    """Against Welch's interval, which the studentised one nears for normal values; 200 and 100 of them: within a tenth
    of its width, three standard errors of a quantile of 2000 resamples."""
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    first, second = generator.normal(1, 2, size=200), generator.normal(size=100)
    made = intervals.difference_with_interval(first, second, seed=1)
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert made.mean == pytest.approx(first.mean() - second.mean())
    assert (made.low, made.high) == pytest.approx((welch.low, welch.high), abs=0.1 * (welch.high - welch.low))
    assert (made.n, made.undefined) == (300, 0)
    assert made == intervals.difference_with_interval(first, second, seed=1)
    turned = intervals.difference_with_interval(second, first, seed=1)
    assert turned.mean == pytest.approx(-made.mean)
    shifted = intervals.difference_with_interval(first + 1, first)  # the sides are drawn apart: no pairs that cancel
    assert shifted.high - shifted.low > 0.5


def test_a_difference_of_few_or_of_equal_values() -> None:
    constant = intervals.difference_with_interval([1.0] * 6, [2.0] * 5)
    assert (constant.mean, constant.low, constant.high) == (-1.0, -1.0, -1.0)
    one = intervals.difference_with_interval([1.0], [2.0, 3.0])
    assert one.mean == -1.5
    assert np.isnan([one.low, one.high]).all()


def test_a_difference_is_covered_where_one_side_is_small() -> None:
    """30 and 8 normal values, 300 times: 95 % less four standard errors (1.3 %) at the least."""
    generator, inside = np.random.default_rng(2), 0
    for seed in range(300):
        made = intervals.difference_with_interval(
            generator.normal(size=30), generator.normal(size=8), seed=seed, resamples=500
        )
        inside += made.low <= 0 <= made.high
    assert inside / 300 > 0.9


def draws(n: int, resamples: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, n, size=(resamples, n))


def test_bca_written_out() -> None:
    means = VALUES[draws(10, 300, 4)].mean(1)
    normal, mean = NormalDist(), VALUES.mean()
    z0 = normal.inv_cdf((means < mean).mean() + (means == mean).mean() / 2)
    centred = VALUES - mean
    a = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    levels = [normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in (normal.inv_cdf(0.05), normal.inv_cdf(0.95))]
    made = mean_with_interval(VALUES, how="bca", confidence=0.9, seed=4, resamples=300)
    assert (made.low, made.high) == pytest.approx(tuple(np.quantile(means, levels)), rel=1e-12)
    assert mean_with_interval([3.0] * 4, how="bca") == metrics.Interval(3.0, 3.0, 3.0, 4, 0.0)


@pytest.mark.parametrize("how", ["bootstrap", "studentised", "t", "normal"])
def test_intervals_of_groups_written_out(how: str) -> None:
    """A group's residual is what it adds to the error of the mean, times the number of groups."""
    scipy_stats = pytest.importorskip("scipy.stats")
    groups = [0, 0, 1, 2, 2, 2, 3, 4, 5, 5]
    sums, counts = np.bincount(groups, weights=VALUES), np.bincount(groups).astype(float)
    mean, n = VALUES.mean(), 6
    residuals = (sums - mean * counts) / counts.mean()
    error = residuals.std(ddof=1) / math.sqrt(n)
    rows = draws(n, 200, 7)
    if how == "bootstrap":
        ends = np.quantile(sums[rows].sum(1) / counts[rows].sum(1), [0.1, 0.9])
    elif how == "studentised":
        t = np.array([row.mean() / (row.std(ddof=1) / math.sqrt(n)) if np.ptp(row) else NAN for row in residuals[rows]])
        assert np.isnan(t).mean() <= 0.001
        ends = mean - np.quantile(t[~np.isnan(t)], [0.9, 0.1]) * error
    else:
        reach = (
            scipy_stats.t.ppf(0.9, n - 1) * error
            if how == "t"
            else NormalDist().inv_cdf(0.9) * residuals.std() / math.sqrt(n)
        )
        ends = [mean - reach, mean + reach]
    made = mean_with_interval(VALUES, how=how, groups=groups, confidence=0.8, seed=7, resamples=200)
    assert (made.low, made.high) == pytest.approx(tuple(ends), rel=1e-9)
    assert (made.mean, made.n, made.confidence, made.undefined) == (pytest.approx(mean), 6, 0.8, 0)
    assert made.std == pytest.approx(VALUES.std())


def test_where_few_resamples_are_constant_they_are_left_out() -> None:
    """Of 5,000 resamples of six values a few are constant: not more than a thousandth."""
    values = [1.0, 2.0, 3.0, 4.0, 7.0, 11.0]
    t = np.array(values)[draws(6, 5000, 3)] - np.mean(values)
    constant = np.ptp(t, axis=1) == 0
    assert 0 < constant.mean() <= 0.001
    kept = t[~constant]
    told = kept.mean(1) / (kept.std(1, ddof=1) / math.sqrt(6))
    error = np.std(values, ddof=1) / math.sqrt(6)
    made = mean_with_interval(values, how="studentised", seed=3, resamples=5000)
    assert (made.low, made.high) == pytest.approx(
        tuple(np.mean(values) - np.quantile(told, [0.975, 0.025]) * error), rel=1e-9
    )


def test_resamples_are_the_same_however_many_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (
        mean_with_interval(VALUES, resamples=25),
        intervals.statistic_with_interval(lambda i: float(VALUES[i].max()), 10, resamples=25),
    )
    both = [
        comparisons.simultaneous(
            {"a": VALUES, "b": VALUES[::-1], "c": 0 * VALUES}, [("a", "b"), ("a", "c")], resamples=25
        )
    ]
    for cells in (1, 100, 30):
        monkeypatch.setattr(intervals, "CELLS", cells)
        monkeypatch.setattr(comparisons, "CELLS", 2 * cells)
        assert mean_with_interval(VALUES, resamples=25) == whole[0]
        assert intervals.statistic_with_interval(lambda i: float(VALUES[i].max()), 10, resamples=25) == whole[1]
        both.append(
            comparisons.simultaneous(
                {"a": VALUES, "b": VALUES[::-1], "c": 0 * VALUES}, [("a", "b"), ("a", "c")], resamples=25
            )
        )
    assert all(one == both[0] for one in both)


def test_a_statistic_that_is_no_mean() -> None:
    def largest(rows: Any) -> float:
        return NAN if 0 in rows else float(VALUES[rows].max())

    found = np.array([largest(row) for row in draws(10, 400, 2)])
    made = intervals.statistic_with_interval(largest, 10, confidence=0.9, seed=2, resamples=400)
    low, high = np.quantile(found[~np.isnan(found)], [0.05, 0.95])
    assert (made.low, made.high, made.std) == pytest.approx((low, high, np.nanstd(found)))
    assert math.isnan(made.mean)
    assert (made.n, made.confidence, made.undefined) == (10, 0.9, 0)
    one = intervals.statistic_with_interval(lambda rows: 4.0, 1)
    assert (one.mean, one.n, math.isnan(one.low), math.isnan(one.std)) == (4.0, 1, True, True)
    assert intervals.statistic_with_interval(lambda rows: float(len(rows)), 2) == metrics.Interval(
        2.0, 2.0, 2.0, 2, 0.0
    )


def test_intervals_as_text_and_what_is_counted() -> None:
    assert str(metrics.Interval(1.0, 0.5, 1.5, 3, 0.1)) == "1.000 [0.500, 1.500] (n = 3)"
    assert str(metrics.Interval(1.0, math.nan, math.nan, 1, 0.1, undefined=2)) == "1.000 (n = 1, 2 undefined)"
    made = mean_with_interval([math.nan, 2.0, math.nan])
    assert (made.mean, made.n, made.undefined, made.std, math.isnan(made.low)) == (2.0, 1, 2, 0.0, True)
    none = mean_with_interval([math.nan, math.nan], confidence=0.5)
    assert (none.n, none.undefined, none.confidence) == (0, 2, 0.5)
    assert math.isnan(none.mean)
    assert math.isnan(none.std)
    assert mean_with_interval([1.0, math.nan, 3.0], groups=["a", "b", "a"]).n == 1
    assert [column.mean for column in intervals.by_column([[1.0, 5.0], [3.0, 7.0]])] == [2.0, 6.0]
