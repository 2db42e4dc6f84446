"""Intervals and the registry: what a mean is worth, and what metrics there are."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixlens.base.errors import InputError
from mixlens.base.optional import installing
from mixlens.metrics import known, mean_with_interval, summary
from mixlens.metrics.intervals import by_column, difference_with_interval, statistic_with_interval
from mixlens.metrics.registry import BETTER, NEEDS

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
    """400 samples of 12: 95 % intervals hold the truth in at least 88 %, where percentiles fall below that for skewed values.
    400 samples leave a standard error of 1.6 %."""
    held = {"studentised": 0, "bootstrap": 0}
    for how in held:
        generator = np.random.default_rng(1)
        for _ in range(400):
            made = mean_with_interval(getattr(generator, draw)(size=12), how=how, resamples=400)
            held[how] += made.low <= truth <= made.high
    assert held["studentised"] / 400 >= 0.88
    assert held["studentised"] > held["bootstrap"]


def test_a_studentised_interval_written_out() -> None:
    """mean - q s, with the quantiles q of (mean* - mean) / s* over the same resamples."""
    values = np.random.default_rng(0).exponential(size=15)
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(15)
    draws = values[np.random.default_rng(3).integers(0, 15, size=(2000, 15))]
    t = [(row.mean() - mean) / (row.std(ddof=1) / math.sqrt(15)) for row in draws]
    high, low = np.quantile(t, [0.025, 0.975])
    made = mean_with_interval(values, how="studentised", seed=3)
    assert (made.low, made.high) == pytest.approx((mean - low * error, mean - high * error))


def test_bca_is_that_of_scipy() -> None:
    """The same formula on other resamples: ends agree within the noise of 5,000 resamples (2 % of the width, three times)."""
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


def test_a_t_interval_uses_students_quantile() -> None:
    values = np.random.default_rng(0).normal(size=8)
    made = mean_with_interval(values, how="t")
    assert made.high - made.mean == pytest.approx(2.364624 * values.std(ddof=1) / math.sqrt(8), rel=1e-6)  # t(0.975, 7)


def test_one_value_is_written_without_an_interval() -> None:
    assert str(mean_with_interval([4.0])) == "4.000 (n = 1)"


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


def test_ninety_nine_percent_as_in_the_papers_tables() -> None:
    """2.576 sd / sqrt(n), with the population's sd."""
    values = np.random.default_rng(0).normal(size=500)
    made = mean_with_interval(values, confidence=0.99, how="normal")
    assert made.high - made.mean == pytest.approx(2.5758 * values.std() / math.sqrt(500), rel=1e-4)


def test_examples_without_a_value_are_counted_and_not_dropped_in_silence() -> None:
    made = mean_with_interval([1.0, float("nan"), 3.0])
    assert (made.mean, made.n, made.undefined) == (2.0, 2, 1)
    assert "1 undefined" in str(made)
    nothing = mean_with_interval([float("nan")] * 3)
    assert (nothing.n, nothing.undefined) == (0, 3)
    assert math.isnan(nothing.mean)
    one = mean_with_interval([4.0])
    assert one.mean == 4.0
    assert math.isnan(one.low)
    assert math.isnan(one.high)


def test_a_statistic_that_is_a_mean_has_the_means_interval() -> None:
    values = np.random.default_rng(0).normal(size=60)
    made = statistic_with_interval(lambda i: values[i].mean(), 60, resamples=500, seed=2)
    mean = mean_with_interval(values, resamples=500, seed=2)
    assert (made.mean, made.low, made.high) == pytest.approx((mean.mean, mean.low, mean.high))


def test_columns_are_averaged_one_by_one() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4))
    made = by_column(rows)
    assert [one.mean for one in made] == pytest.approx(rows.mean(0).tolist())


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
    assert {"spearman", "cue_dot", "aopc", "online_code", "precision_at_k", "anisotropy", "own_share"} <= set(known())
    for one in known().values():
        assert one.summary.strip(), one.id
        assert one.better in BETTER
        assert set(one.needs) <= set(NEEDS)
        assert one.paper[-1] != "."
        assert "variant" not in one.options
        if len(one.variants) > 1:
            assert "`released`" in (one.function.__doc__ or "") or one.variants[0] == "released", one.id


def test_a_summary_is_the_mean_of_the_metric() -> None:
    generator = np.random.default_rng(0)
    first, second = ([generator.normal(size=n) for n in (4, 7, 9)] for _ in range(2))
    spearman = known()["spearman"].function
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
from mixlens.metrics import known
for name, given in (("spearman", ([1, 2], [2, 1])), ("cue_average_precision", ([1, 2], [1, 0]))):
    try:
        known()[name].function(*given)
    except InputError as error:
        print(error)
print(known()["cue_dot"].function([1, 3], [0, 1]), known()["pearson"].function([1, 2], [1, 3]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[:2] == [f"this metric needs {name}: {installing('judge')}." for name in ("scipy", "scikit-learn")]
    assert [float(number) for number in out[2].split()] == pytest.approx([0.75, 1])


def test_a_difference_of_two_sets_of_examples() -> None:
    """Against Welch's interval, which the studentised one nears for normal values; 200 and 100 of them: within a tenth of its
    width, three standard errors of a quantile of 2000 resamples."""
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    first, second = generator.normal(1, 2, size=200), generator.normal(size=100)
    made = difference_with_interval(first, second, seed=1)
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert made.mean == pytest.approx(first.mean() - second.mean())
    assert (made.low, made.high) == pytest.approx((welch.low, welch.high), abs=0.1 * (welch.high - welch.low))
    assert (made.n, made.undefined) == (300, 0)
    assert made == difference_with_interval(first, second, seed=1)
    turned = difference_with_interval(second, first, seed=1)
    assert turned.mean == pytest.approx(-made.mean)
    shifted = difference_with_interval(first + 1, first)  # the sides are drawn apart: no pairs that cancel
    assert shifted.high - shifted.low > 0.5


def test_a_difference_of_few_or_of_equal_values() -> None:
    constant = difference_with_interval([1.0] * 6, [2.0] * 5)
    assert (constant.mean, constant.low, constant.high) == (-1.0, -1.0, -1.0)
    one = difference_with_interval([1.0], [2.0, 3.0])
    assert one.mean == -1.5
    assert np.isnan([one.low, one.high]).all()


def test_a_difference_is_covered_where_one_side_is_small() -> None:
    """30 and 8 normal values, 300 times: 95 % less four standard errors (1.3 %) at the least."""
    generator, inside = np.random.default_rng(2), 0
    for seed in range(300):
        made = difference_with_interval(generator.normal(size=30), generator.normal(size=8), seed=seed, resamples=500)
        inside += made.low <= 0 <= made.high
    assert inside / 300 > 0.9
