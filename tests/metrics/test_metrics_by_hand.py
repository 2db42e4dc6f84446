"""Metrics on numbers written by hand: whole results, whole messages, both sides of limits, and intervals written out."""

from __future__ import annotations

import math
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.metrics import (
    agreement,
    alignment,
    comparisons,
    faithfulness,
    geometry,
    intervals,
    mixing_stats,
    plausibility,
    probing,
    raw_and_effective,
    removal_curves,
    token_identity,
)
from mixlens.metrics.arguments import marks_at
from mixlens.metrics.comparisons import Difference, needed, simultaneous
from mixlens.metrics.faithfulness import Course, Degradation
from mixlens.metrics.intervals import Interval, mean_with_interval, statistic_with_interval
from mixlens.metrics.plausibility import Match, PrecisionAtK
from mixlens.types import Attribution, Map

NAN = math.nan
VALUES = np.array([0.3, 2.0, -1.0, 5.5, 0.25, 0.75, 9.0, 1.5, 0.1, 3.0])


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*given, **options)
    return str(error.value)


def draws(n: int, resamples: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, n, size=(resamples, n))


# --- intervals ------------------------------------------------------------------------------------------------------------


def test_bca_written_out() -> None:
    means = VALUES[draws(10, 300, 4)].mean(1)
    normal, mean = NormalDist(), VALUES.mean()
    z0 = normal.inv_cdf((means < mean).mean() + (means == mean).mean() / 2)
    centred = VALUES - mean
    a = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    levels = [normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in (normal.inv_cdf(0.05), normal.inv_cdf(0.95))]
    made = mean_with_interval(VALUES, how="bca", confidence=0.9, seed=4, resamples=300)
    assert (made.low, made.high) == pytest.approx(tuple(np.quantile(means, levels)), rel=1e-12)
    assert mean_with_interval([3.0] * 4, how="bca") == Interval(3.0, 3.0, 3.0, 4, 0.0)


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
        statistic_with_interval(lambda i: float(VALUES[i].max()), 10, resamples=25),
    )
    both = [simultaneous({"a": VALUES, "b": VALUES[::-1], "c": 0 * VALUES}, [("a", "b"), ("a", "c")], resamples=25)]
    for cells in (1, 100, 30):
        monkeypatch.setattr(intervals, "CELLS", cells)
        monkeypatch.setattr(comparisons, "CELLS", 2 * cells)
        assert mean_with_interval(VALUES, resamples=25) == whole[0]
        assert statistic_with_interval(lambda i: float(VALUES[i].max()), 10, resamples=25) == whole[1]
        both.append(
            simultaneous({"a": VALUES, "b": VALUES[::-1], "c": 0 * VALUES}, [("a", "b"), ("a", "c")], resamples=25)
        )
    assert all(one == both[0] for one in both)


def test_a_statistic_that_is_no_mean() -> None:
    def largest(rows: Any) -> float:
        return NAN if 0 in rows else float(VALUES[rows].max())

    found = np.array([largest(row) for row in draws(10, 400, 2)])
    made = statistic_with_interval(largest, 10, confidence=0.9, seed=2, resamples=400)
    low, high = np.quantile(found[~np.isnan(found)], [0.05, 0.95])
    assert (made.low, made.high, made.std) == pytest.approx((low, high, np.nanstd(found)))
    assert math.isnan(made.mean)
    assert (made.n, made.confidence, made.undefined) == (10, 0.9, 0)
    one = statistic_with_interval(lambda rows: 4.0, 1)
    assert (one.mean, one.n, math.isnan(one.low), math.isnan(one.std)) == (4.0, 1, True, True)
    assert statistic_with_interval(lambda rows: float(len(rows)), 2) == Interval(2.0, 2.0, 2.0, 2, 0.0)


def test_intervals_as_text_and_what_is_counted() -> None:
    assert str(Interval(1.0, 0.5, 1.5, 3, 0.1)) == "1.000 [0.500, 1.500] (n = 3)"
    assert str(Interval(1.0, NAN, NAN, 1, 0.1, undefined=2)) == "1.000 (n = 1, 2 undefined)"
    made = mean_with_interval([NAN, 2.0, NAN])
    assert (made.mean, made.n, made.undefined, made.std) == (2.0, 1, 2, 0.0)
    none = mean_with_interval([NAN, NAN], confidence=0.5)
    assert (none.n, none.undefined, none.confidence, math.isnan(none.mean), math.isnan(none.std)) == (
        0,
        2,
        0.5,
        True,
        True,
    )
    assert mean_with_interval([1.0, NAN, 3.0], groups=["a", "b", "a"]).n == 1
    assert refused(mean_with_interval, [1.0, math.inf, -math.inf]) == (
        "value 1 is infinite, and so would the mean be. Values must be finite."
    )
    assert (
        refused(mean_with_interval, [1.0], groups=[]) == "groups has 0 entries for 1 values. Give one for each value."
    )
    for wrong in (0, 1, 1.5):
        assert (
            refused(mean_with_interval, [1.0], confidence=wrong)
            == f"confidence is between 0 and 1, such as 0.95, not {wrong}."
        )
    assert refused(mean_with_interval, [1.0], resamples=0) == "resamples must be at least 1, not 0."
    assert mean_with_interval([1.0, 3.0], resamples=1).n == 2


# --- comparisons ----------------------------------------------------------------------------------------------------------


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
    made = simultaneous(values, pairs, confidence=0.8, seed=5, resamples=200)
    reach = np.quantile(largest, 0.8, method="higher")
    for pair, row in zip(pairs, rows, strict=True):
        error = row.std(ddof=1) / math.sqrt(10)
        p = (1 + (largest >= abs(row.mean()) / error).sum()) / 201
        expected = (row.mean(), row.mean() - reach * error, row.mean() + reach * error, 10, p)
        one = made[pair]
        assert (one.mean, one.low, one.high, one.n, one.p) == pytest.approx(expected, rel=1e-9)
        assert one.needed == needed(row)
    assert simultaneous(values, []) == {}


def test_signs_texts_and_pairs_that_vary_too_little() -> None:
    assert [
        Difference(0.0, low, high, 5, 0.1, 2).sign for low, high in ((0.1, 2.0), (-2.0, -0.1), (0.0, 1.0), (-1.0, 0.0))
    ] == [*(1, -1, 0, 0)]
    assert str(Difference(0.5, -0.25, 1.25, 5, 0.1, 2)) == "+0.500 [-0.250, +1.250]"
    four = np.array([1.0] * 4 + [0.0] * 8)
    five = np.array([1.0] * 5 + [0.0] * 8)
    assert simultaneous({"a": four, "b": 0 * four}, [("a", "b")])["a", "b"].high == math.inf
    assert simultaneous({"a": five, "b": 0 * five}, [("a", "b")])["a", "b"].high < math.inf
    constant = simultaneous({"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5, 2.5]}, [("a", "b")], resamples=10)["a", "b"]
    assert (constant.low, constant.high, constant.mean) == (0.5, 0.5, 0.5)
    nothing = simultaneous({"a": [NAN], "b": [1.0]}, [("a", "b")])["a", "b"]
    assert (nothing.n, math.isnan(nothing.mean), math.isnan(nothing.p), nothing.needed) == (0, True, True, None)


def test_how_many_examples_are_needed() -> None:
    row = np.array([1.0, 3.0, 2.0, 7.0])
    quantile = NormalDist().inv_cdf
    size = ((quantile(0.95) + quantile(0.6)) * row.std(ddof=1) / row.mean()) ** 2
    assert needed(row, confidence=0.9, power=0.6) == math.ceil(size)
    assert needed([5.0, 5.0]) == 2
    assert needed([1.0, -1.0]) is None
    assert needed([]) is None
    assert needed([2.0, 4.0]) == math.ceil(((quantile(0.975) + quantile(0.8)) * math.sqrt(2) / 3) ** 2)


# --- agreement, alignment, plausibility -------------------------------------------------------------------------------------


def test_correlations_by_hand() -> None:
    pytest.importorskip("scipy.stats")
    assert agreement.spearman([1, 1, 2, 3], [1, 2, 3, 4], variant="released") == 1 - 6 * (0 + 1 + 1 + 1) / (4 * 15)
    assert math.isnan(agreement.spearman([1], [2], variant="released"))
    assert agreement.spearman([1, 2], [4, 3], variant="released") == 1 - 6 * 2 / 6
    tiny = np.array([1.0, 2.0, 4.0]) * 1e-200
    assert agreement.pearson(tiny, [1.0, 2.0, 4.0]) == pytest.approx(1.0)
    assert agreement.normalized_ranks([3.0, 1.0, 3.0]).tolist() == [0.75, 0.0, 0.75]
    assert agreement.normalized_ranks([3.0, 1.0, 3.0], variant="released").tolist() == [2 / 3, 1 / 3, 2 / 3]
    alone = agreement.normalized_ranks([3.0])
    assert (alone.shape, math.isnan(alone[0])) == ((1,), True)
    assert agreement.normalized_ranks([3.0, 5.0]).tolist() == [0.0, 1.0]
    assert agreement.kendall_confidence([1, 2, 3], [[1, 2, 3], [3, 2, 1]], variant="scores") == 0.0
    assert agreement.kendall_confidence([1, 2, 3], [[1, 2, 3], [3, 2, 1]], variant="released") == 1.0
    assert agreement.kendall_confidence([1, 2, 3], [[1, 2, 3], [3, 2, 1]]) == 0.0


def test_ranks_of_special_tokens() -> None:
    pytest.importorskip("scipy.stats")
    made = Attribution(
        torch.tensor([4.0, 1.0, 2.0, 3.0, 0.0]),
        ("[CLS]", "a", "##.", ",", "[CLS]"),
        "m",
        {},
        (True, False, False, False, True),
    )
    assert agreement.special_token_ranks(made) == {"[CLS]": 0.5, ".": 0.5, ",": 0.75}
    assert agreement.special_token_ranks(made, variant="released") == {"[CLS]": 1.0, ".": 0.6, ",": 0.8}
    assert agreement.special_token_ranks(made, punctuation=["a"]) == {"[CLS]": 0.5, "a": 0.25}
    bare = Attribution(torch.tensor([1.0, 2.0]), (".", "b"), "m")
    assert agreement.special_token_ranks(bare) == {".": 0.0}


def test_agreement_of_models_and_maps() -> None:
    pytest.importorskip("scipy.stats")
    first, second = [[1, 2, 3], [1, 2, 3], [3, 1, 2]], [[1, 2, 3], [3, 2, 1], [3, 1, 2]]
    assert agreement.model_agreement(first, second).mean == pytest.approx(1 / 3)
    some = agreement.model_agreement(first, second, predictions=(["a", "b", "c"], ["a", "x", "c"]), confidence=0.9)
    assert (some.mean, some.n, some.confidence) == (pytest.approx(1.0), 2, 0.9)
    assert agreement.model_agreement(first, second, how="pearson").mean == pytest.approx(1 / 3)
    assert refused(agreement.model_agreement, first, second[:2]) == (
        "model agreement needs the same examples from both models; the lengths are [3, 2]."
    )
    assert refused(agreement.model_agreement, first, second, predictions=(["a"], ["a"])).endswith("[3, 3, 1, 1].")
    assert refused(agreement.model_agreement, first[:1], second[:1], predictions=(["a"], ["b"])) == (
        "the two models predict no example alike, so there is nothing to compare."
    )
    every = agreement.seed_agreement(
        {"x": first, "y": second, "z": first}, predictions={"x": "abc", "y": "axc", "z": "abc"}
    )
    assert {pair: (round(one.mean, 12), one.n) for pair, one in every.items()} == {
        ("x", "y"): (1.0, 2),
        ("x", "z"): (1.0, 3),
        ("y", "z"): (1.0, 2),
    }
    assert agreement.seed_agreement({"x": first, "y": second})["x", "y"].n == 3
    layers = torch.tensor([[[1.0, 2.0, 4.0], [3.0, 1.0, 2.0], [5.0, 5.0, 1.0]]], dtype=torch.float64)
    other = torch.tensor([[[1.0, 2.0, 4.0], [1.0, 2.0, 7.0], [5.0, 5.0, 1.0]]], dtype=torch.float64)
    a, b = (Map(side, ("a", "b", "c"), "m", {}) for side in (layers, other))
    rows = agreement.row_agreement(a, b)
    assert rows[0].tolist() == pytest.approx([1.0, float(np.corrcoef([3, 1, 2], [1, 2, 7])[0, 1]), 1.0])
    causal = Map(layers, ("a", "b", "c"), "m", {"causal": True})
    assert agreement.row_agreement(causal, b)[0].tolist() == pytest.approx([NAN, -1.0, 1.0], nan_ok=True)
    whole = np.corrcoef(layers.numpy().ravel(), other.numpy().ravel())[0, 1]
    assert agreement.map_agreement(a, b).tolist() == pytest.approx([whole])
    lower = np.tri(3, dtype=bool)
    assert agreement.map_agreement(causal, b).tolist() == pytest.approx(
        [np.corrcoef(layers[0].numpy()[lower], other[0].numpy()[lower])[0, 1]]
    )
    assert agreement.layer_agreement(a, [1, 2, 4]) == (pytest.approx(1.0),)
    assert agreement.layer_agreement(a, [1, 2, 3], query=1) == (pytest.approx(-0.5),)
    assert agreement.layer_agreement(a, [9.0, 8.0, 7.0], over="sum", how="pearson") == (
        pytest.approx(np.corrcoef([9, 8, 7], [9, 8, 7])[0, 1]),
    )
    told = refused(agreement.row_agreement, a, Map(layers[:, :2, :2], ("a", "b"), "m", {}))
    assert told == "the maps are of shapes (1, 3, 3) and (1, 2, 2); both must be of the same model and tokens."


def test_cues_by_hand() -> None:
    assert alignment.shares([1.0, -3.0]).tolist() == [0.25, 0.75]
    assert alignment.shares([1.0, -3.0], signs="positive").tolist() == [1.0, 0.0]
    assert np.isnan(alignment.shares([0.0, -3.0], signs="positive")).all()
    assert alignment.cue_dot([1.0, -3.0], [0, 1]) == 0.75
    scores, cues = [5.0, 4.0, 4.0, 4.0, 1.0], [0, 1, 1, 0, 1]
    assert alignment.probes_needed(scores, cues) == 1 + 1 / 3
    assert alignment.probes_needed(scores, cues, until="all") == 2.0
    assert alignment.probes_needed(scores, [1, 0, 0, 0, 0]) == 0.0
    assert math.isnan(alignment.probes_needed(scores, [0] * 5))
    assert math.isnan(alignment.probes_needed([0.0] * 5, cues))


def test_rationales_by_hand() -> None:
    assert plausibility.rationale_f1([3, 2, 1, 0], [1, 0, 1, 0]) == Match(0.5, 0.5, 0.5)
    assert plausibility.rationale_f1([3, 2, 1, 0], [1, 0, 1, 0], k=3) == Match(2 / 3, 1.0, 0.8)
    assert plausibility.rationale_f1([3, 2, 1, 0], [1, 0, 1, 0], k=0) == Match(0.0, 0.0, 0.0)
    assert plausibility.rationale_f1([-3, 2, 1, 0], [1, 0, 0, 0], ranking="magnitude") == Match(1.0, 1.0, 1.0)
    assert plausibility.rationale_iou([3, 2, 1, 0], [1, 0, 1, 0]) == 1 / 3
    scores, marked = [9, 8, 0, 7, 6, 5], [1, 1, 0, 0, 1, 1]  # runs (0, 2) and (3, 6) against (0, 2) and (4, 6)
    assert plausibility.rationale_iou_f1(scores, marked, k=5) == Match(1.0, 1.0, 1.0)
    assert plausibility.rationale_iou_f1(scores, marked, k=5, threshold=2 / 3) == Match(1.0, 1.0, 1.0)
    assert plausibility.rationale_iou_f1(scores, marked, k=5, threshold=0.7) == Match(0.5, 0.5, 0.5)
    assert plausibility.rationale_iou_f1([9, 8, 1, 0], [0, 0, 0, 1], k=2) == Match(0.0, 0.0, 0.0)  # far apart
    assert plausibility.rationale_iou_f1([9, 1, 8, 0], [1, 0, 0, 0], k=2) == Match(0.5, 1.0, pytest.approx(2 / 3))
    assert plausibility.runs(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert plausibility.top_marks([1, 2, 2, 0], 2).tolist() == [False, True, True, False]
    assert plausibility.top_marks([1, 2], 2).tolist() == [True, True]
    assert refused(plausibility.top_marks, [1, 2], 3) == "k is a number of tokens, 0 to 2 here, not 3."
    assert plausibility.precision_at_k([5, 1, 4, 3], (1, 2), k=2) == PrecisionAtK(1, 2, 2, 0.5, 0.5)
    assert plausibility.precision_at_k([5, 1, 4, 3], (0, 3)) == PrecisionAtK(4, 4, 20, 1.0, 1.0)
    assert plausibility.precision_at_k([5, 1, 4, 3], (3, 3), k=1) == PrecisionAtK(0, 1, 1, 0.0, 0.0)
    for wrong in ((2, 1), (0, 4), (-1, 2)):
        assert refused(plausibility.precision_at_k, [5, 1, 4, 3], wrong) == (
            f"span {wrong} is no answer: first and last position, 0 to 3, both included."
        )
    assert refused(plausibility.precision_at_k, [5, 1], (0, 1), k=0) == "k is a number of tokens, at least 1, not 0."


# --- curves ---------------------------------------------------------------------------------------------------------------


def test_curves_of_examples_that_have_one() -> None:
    some = [Degradation(0.0, 1.0, points=(1.0, 2.0)), Degradation(NAN, 1.0), Degradation(0.0, 1.0, points=(3.0, 6.0))]
    assert [(one.mean, one.n) for one in faithfulness.curve(some)] == [(2.0, 2), (4.0, 2)]
    assert refused(faithfulness.curve, [some[0], Degradation(0.0, 1.0, points=(1.0,))]) == (
        "the curves have [1, 2] points; they must have the same number."
    )


def course_of(probability: Any, units: int = 4) -> Course:
    """A course whose probability is a function of the units that are gone."""

    class Made(Course):
        def logs(self, removals: Any, replacement: Any) -> Any:
            assert replacement == "pad"
            return np.log([probability(frozenset(one)) for one in ((), *removals)])

    order = tuple((i,) for i in range(units))
    return Made(SimpleNamespace(), SimpleNamespace(), order)  # type: ignore[arg-type]


def test_bounds_of_aopc_over_all_orders() -> None:
    weights = {(0,): 0.1, (1,): 0.3, (2,): 0.05, (3,): 0.4}

    def probability(gone: frozenset[Any]) -> float:
        return 0.9 - sum(weights[unit] for unit in gone)

    ordered = sorted(weights.values())
    lowest = np.cumsum(ordered).mean()
    highest = np.cumsum(ordered[::-1]).mean()
    for beam in (1, 5):
        assert removal_curves.aopc_bounds(course_of(probability), replacement="pad", beam=beam) == pytest.approx(
            (lowest, highest)
        )
    assert refused(removal_curves.aopc_bounds, course_of(probability), beam=0) == (
        "beam is a number of orders, at least 1, not 0."
    )


def test_percents_of_units() -> None:
    assert faithfulness.rounded((0, 10, 50, 100), 7) == [0, 1, 4, 7]
    for wrong in ((), (101,), (-1,), (0.5,)):
        assert refused(faithfulness.rounded, wrong, 7) == (
            f"percents are whole numbers from 0 to 100, at least one of them, not {wrong!r}."
        )


# --- probing and identity -------------------------------------------------------------------------------------------------


def test_compression_from_losses() -> None:
    uniform = 10 * math.log2(3)
    first = 2 * math.log2(3)
    assert probing.compression([1.0, 2.0], n=10, classes=3, first=2) == pytest.approx(
        uniform / (first + 3 / math.log(2))
    )
    assert probing.compression([1.0, 2.0], n=10, classes=3, first=2, variant="released") == pytest.approx(
        uniform / (first + 3)
    )


def test_portions() -> None:
    assert probing.blocks(10, (20, 50, 100)) == [(2, 2, 5), (5, 5, 10)]
    assert probing.blocks(10, (1, 50, 100)) == [(1, 1, 5), (5, 5, 10)]
    assert probing.blocks(7, (30, 60, 100), variant="released") == [(2, 2, 4), (4, 4, 6)]
    assert refused(probing.blocks, 3, (1, 50, 100), variant="released") == (
        "3 examples are too few: variant='released' needs one or more in every portion. Give more."
    )
    for wrong in ((100,), (0, 100), (50, 20, 100), (50, 50, 100), (50, 99)):
        assert (
            refused(probing.blocks, 10, wrong)
            == f"percents rise from above 0 to 100, such as {probing.VOITA}; given: {wrong}."
        )


def test_tokens_identified_by_hand() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    hidden = torch.tensor([[3.0, 0.1], [1.0, 1.5], [0.1, 4.0]])
    assert token_identity.identified(hidden, inputs).tolist() == [
        1.0,
        1.0,
        0.0,
    ]  # the first and the third point the same way
    assert token_identity.identified(hidden, inputs, distance="l2").tolist() == [0.0, 1.0, 0.0]
    assert token_identity.identified(hidden, inputs, offset=1).tolist() == [0.0, 0.0]
    assert token_identity.identified(hidden, inputs, offset=-1).tolist() == [0.0, 1.0]
    assert token_identity.identified(hidden, inputs, offset=3).tolist() == []
    assert token_identity.nearest_token(hidden, inputs, distance="l2").tolist() == [2, 1, 1]
    assert token_identity.distances(hidden[:1], inputs, distance="l2").tolist()[0] == pytest.approx(
        [math.hypot(2, 0.1), math.hypot(3, 0.9), math.hypot(1, 0.1)], rel=1e-6
    )
    naive = token_identity.token_identifiability([hidden, hidden], [inputs, hidden], kind="naive", confidence=0.9)
    assert (naive.by_text, naive.by_fold, naive.epochs) == (((0, 2, 3), (1, 3, 3)), (5 / 6,), ())
    assert (naive.rate.n, naive.rate.confidence, naive.value) == (2, 0.9, pytest.approx(5 / 6))


# --- maps -----------------------------------------------------------------------------------------------------------------


def test_shares_around_a_token() -> None:
    scores = torch.tensor([[[1.0, 2.0, 3.0, 4.0]] * 4, [[0.0, 0.0, 0.0, 0.0]] * 4], dtype=torch.float64)
    made = Map(scores, ("a", "[SEP]", "b", "[SEP]"), "m", {}, (True, True, False, True))
    told = mixing_stats.share_around(made, reach=2)
    np.testing.assert_allclose(told[0], [NAN, 0.1, 0.2, 0.3, 0.4])
    assert np.isnan(told[1]).all()
    np.testing.assert_allclose(mixing_stats.share_around(made, centre=3, reach=1)[0], [0.3, 0.4, NAN])
    assert refused(
        mixing_stats.share_around, Map(scores, ("a", "b", "c", "d"), "m", {}, (True, False, False, False))
    ) == ("the text has no special token behind its first. Say the centre: an index, or a token.")


def test_quantiles_of_groups_written_out() -> None:
    values, groups = np.array([3.0, 1.0, 2.0, 10.0, 5.0]), ["a", "a", "b", "c", "c"]
    generator = np.random.default_rng(3)
    found = []
    for _ in range(50):
        counts = dict(zip("abc", generator.multinomial(3, [1 / 3] * 3), strict=True))
        drawn = sorted(value for value, group in zip(values, groups, strict=True) for _ in range(counts[group]))
        found.append(next(value for i, value in enumerate(drawn, 1) if i >= 0.4 * len(drawn)))
    made = mixing_stats.quantile_with_interval(values, groups, share=0.4, confidence=0.8, seed=3, resamples=50)
    assert (made.low, made.high) == pytest.approx(tuple(np.quantile(found, [0.1, 0.9])))
    assert (made.mean, made.n, made.std, made.confidence) == (
        pytest.approx(np.quantile(values, 0.4)),
        3,
        pytest.approx(values.std()),
        0.8,
    )
    alone = mixing_stats.quantile_with_interval(values, ["a"] * 5)
    assert (alone.mean, alone.n, math.isnan(alone.low), alone.confidence) == (3.0, 1, True, 0.95)


def test_values_by_tag_and_by_layer() -> None:
    values = [np.array([[1.0, 2.0], [5.0, 6.0]]), np.array([[3.0], [7.0]])]
    by_tag = mixing_stats.by_tag(values, [["x", None], ["x"]], confidence=0.9)
    assert {tag: [(one.mean, one.n, one.confidence) for one in row] for tag, row in by_tag.items()} == {
        "x": [(2.0, 2, 0.9), (6.0, 2, 0.9)]
    }
    assert [(one.mean, one.n) for one in mixing_stats.by_layer(values)] == [(2.0, 2), (6.0, 2)]
    assert refused(mixing_stats.by_tag, values, [["x", "y"]]) == (
        "there are values for 2 examples and tags for 1. Give both for each, at least one."
    )
    assert refused(mixing_stats.by_tag, values, [["x", "y"], ["x", "y"]]) == (
        "example 1: values of shape (2, 1) need one tag for each query, and have 2."
    )
    assert refused(mixing_stats.by_tag, [], []).startswith("there are values for 0 examples")


def test_lengths_and_types() -> None:
    told = raw_and_effective.by_length([1.0, 2.0, 3.0, 4.0], [1, 2, 3, 9], edges=(1, 3, 5, 9), confidence=0.9)
    assert {edge: (one.mean, one.n, one.confidence) for edge, one in told.items()} == {
        (1, 3): (1.5, 2, 0.9),
        (3, 5): (3.0, 1, 0.9),
    }
    assert refused(raw_and_effective.by_length, [1.0], [1], edges=(1,)) == (
        "edges are two or more rising lengths, such as (0, 64, 128), not (1,)."
    )
    assert refused(raw_and_effective.by_length, [1.0], [], edges=(0, 1)) == (
        "there are 1 values and 0 lengths. Give one length for each value."
    )
    scores = torch.tensor([[[1.0, 2.0, 4.0, 8.0]] * 3 + [[3.0, 2.0, 4.0, 8.0]]], dtype=torch.float64)
    made = Map(scores, ("[CLS]", ",", "?!", "w"), "m", {}, (True, False, False, False))
    assert raw_and_effective.token_types(made) == ("[CLS]", "period or comma", "punctuation", "word")
    types = raw_and_effective.received_by_type(made, types=["x", "y", "x", "y"])
    assert {name: row.tolist() for name, row in types.items()} == {"x": [5.5], "y": [10.0]}
    assert refused(raw_and_effective.received_by_type, made, types=["x"]) == (
        "there are 1 types for 4 tokens. Give one for each token."
    )
    weights = np.arange(18.0).reshape(2, 3, 3)
    assert raw_and_effective.given_to(weights, [0, 2], [1, 2]).tolist() == [9.0, 27.0]
    assert raw_and_effective.given_to(weights, [0], []).tolist() == [0.0, 0.0]
    assert np.isnan(raw_and_effective.given_to(weights, [], [1])).tolist() == [True, True]
    assert raw_and_effective.places_of(["a", "b", "a"], "a") == [0, 2]


def test_outliers_and_cosines() -> None:
    assert geometry.outliers(np.array([0.0] * 9 + [10.0])) == (9,)  # exactly three standard deviations off
    assert geometry.outliers(np.array([0.0] * 8 + [1.0])) == ()
    assert geometry.outliers(np.array([0.0] * 8 + [1.0]), sigma=2.0) == (8,)
    assert geometry.outliers(np.ones(5)) == ()
    vectors = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert float(geometry.mean_cosine(vectors)) == pytest.approx(2 * math.sqrt(0.5) / 6)
    assert geometry.mean_cosine(torch.ones(4, 1, 3)).isnan().tolist() == [True] * 4


def test_marks_of_first_pieces() -> None:
    class Traced(SimpleNamespace):
        def __len__(self) -> int:
            return 4

    trace: Any = Traced(words=(("ab", (0, 1)), ("c", (2,)), ("d", (3,))))
    assert alignment.first_pieces(trace, [0, 1, 0, 1]).tolist() == [True, False, False, True]
    assert marks_at([0, 2], 3).tolist() == [True, False, True]
    assert refused(marks_at, [3], 3) == "position 3 is out of range: there are 3 tokens, 0 to 2."
    assert refused(alignment.first_pieces, Traced(words=None), [0] * 4).startswith("the words are not known")


def test_t_does_not_depend_on_the_unit() -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 5, 8))
    expected = comparisons._t_of(numbers)
    assert expected.min() > 0
    for unit in (1e-20, 1e15):
        np.testing.assert_allclose(comparisons._t_of(numbers * unit), expected, rtol=1e-10)
    level = np.array([[[2.0, 2.0], [0.0, 0.0], [1.0, -1.0]]])
    assert comparisons._t_of(level).tolist() == [[math.inf, 0.0, 0.0]]


def test_an_epoch_of_a_probe_is_one_step_for_each_batch() -> None:
    """Two batches of plain gradient descent, each with its own gradient alone."""
    torch.manual_seed(0)
    x, y = torch.randn(200, 3), torch.randint(0, 2, (200,))
    probe = torch.nn.Linear(3, 2)
    weights = [one.detach().clone().requires_grad_() for one in probe.parameters()]
    torch.manual_seed(1)
    probing._epoch(probe, torch.optim.SGD(probe.parameters(), lr=0.5), x, y)
    torch.manual_seed(1)
    for rows in torch.randperm(200).split(128):
        loss = torch.nn.functional.cross_entropy(x[rows] @ weights[0].T + weights[1], y[rows])
        weights = [
            (one - 0.5 * gradient).detach().requires_grad_()
            for one, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True)
        ]
    for one, expected in zip(probe.parameters(), weights, strict=True):
        torch.testing.assert_close(one.detach(), expected.detach(), rtol=1e-5, atol=1e-6)


def test_the_p_of_pairs_that_do_not_vary() -> None:
    """Equal values have p = 1, and a difference that is always the same the least p that so many resamples can give."""
    values = {"a": VALUES, "same": VALUES, "one more": VALUES + 1, "other": VALUES**2}
    pairs = [("a", "same"), ("one more", "a"), ("other", "a")]
    made = simultaneous(values, pairs, seed=1, resamples=99)
    assert [made[pair].p for pair in pairs[:2]] == [1.0, 0.01]
    assert 0.01 < made[pairs[2]].p < 1.0
    balanced = simultaneous({"a": [1.0, -1.0, 2.0, -2.0, 3.0, -3.0], "b": [0.0] * 6}, [("a", "b")], resamples=50)[
        "a", "b"
    ]
    assert (balanced.mean, balanced.p) == (0.0, 1.0)
    tie = comparisons._difference(np.array([1.0, 3.0]), 2.0, 1.0, 1.5, np.array([2.0, 1.0, 3.0]))
    assert (tie.low, tie.high, tie.p) == (0.5, 3.5, 0.75)  # a resample that is just as large counts
