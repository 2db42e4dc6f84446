"""Ties, edges and refusals of metrics, each against its definition written out on small random numbers."""

from __future__ import annotations

import copy
import math
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch
from conftest import hf_model
from hypothesis import given
from hypothesis import strategies as st

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics.agreement import kendall, pearson, spearman
from mixlens.metrics.alignment import cue_average_precision, cue_dot, probes_needed
from mixlens.metrics.arguments import array, marks, marks_at, pair, tags_at
from mixlens.metrics.geometry import norm_outliers, outliers
from mixlens.metrics.intervals import by_column, mean_with_interval, statistic_with_interval
from mixlens.metrics.mixing_stats import (
    by_layer,
    by_tag,
    mixing_ratio,
    not_own_top,
    own_share,
    share_around,
    share_by_distance,
)
from mixlens.metrics.plausibility import precision_at_k, rationale_f1, rationale_iou, rationale_iou_f1, runs, top_marks
from mixlens.metrics.raw_and_effective import by_length, received_by_type, token_types
from mixlens.metrics.token_identity import identified, nearest_token
from mixlens.types import Attribution, Map

pytest.importorskip("scipy")
pytest.importorskip("sklearn")

FEW = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=6)

# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 40, 500])
def test_of_tied_scores_the_first_are_taken(n: int) -> None:
    """Long rows too: numpy's own sort leaves ties in no order."""
    values = np.random.default_rng(0).integers(0, 3, n).astype(float)
    order = sorted(range(n), key=lambda i: (-values[i], i))
    for k in (0, 1, n // 2, n):
        assert np.flatnonzero(top_marks(values, k)).tolist() == sorted(order[:k])
    for k in (-1, n + 1):
        with pytest.raises(InputError, match=f"0 to {n} here"):
            top_marks(values, k)


@given(FEW, st.data())
def test_probes_are_the_mean_over_every_order_of_ties(scores: list[float], data: Any) -> None:
    cues = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    if not any(cues) or not any(scores):
        assert math.isnan(probes_needed(scores, cues))
        return
    for until, found in (("first", min), ("all", max)):
        counts = []
        for order in permutations(range(len(scores))):
            if any(scores[a] < scores[b] for a, b in pairwise(order)):
                continue
            last = found(place for place, i in enumerate(order) if cues[i])
            counts.append(sum(not cues[i] for i in order[:last]))
        assert probes_needed(scores, cues, until=until) == pytest.approx(np.mean(counts))


@given(FEW, FEW)
def test_correlations_are_defined_where_both_sides_vary(first: list[float], second: list[float]) -> None:
    n = min(len(first), len(second))
    a, b = first[:n], second[:n]
    constant = len(set(a)) == 1 or len(set(b)) == 1
    for measure in (spearman, pearson, kendall):
        value = measure(a, b)
        assert math.isnan(value) == constant
        assert constant or -1 - 1e-12 <= value <= 1 + 1e-12
        assert constant or measure(b, a) == pytest.approx(value)
    if not constant:
        pairs = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i in range(n) for j in range(i)]
        tau = sum(x * y for x, y in pairs) / math.sqrt(sum(x != 0 for x, _ in pairs) * sum(y != 0 for _, y in pairs))
        assert kendall(a, b) == pytest.approx(tau)
        assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_the_share_on_cues() -> None:
    assert cue_dot([1.0, -1.0, 2.0], [0, 1, 0]) == pytest.approx(0.25)
    assert math.isnan(cue_dot([0.0, 0.0], [0, 1]))
    assert math.isnan(cue_average_precision([0.0, 0.0], [0, 1]))
    assert math.isnan(cue_average_precision([0.5, 0.5], [0, 0]))
    assert cue_average_precision([3.0, 2.0, 1.0], [0, 1, 1]) == pytest.approx((1 / 2 + 2 / 3) / 2)


# --- rationales -------------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_runs_are_neighbours_that_are_chosen(chosen: list[bool]) -> None:
    found = runs(np.array(chosen))
    assert [i for a, b in found for i in range(a, b)] == [i for i, one in enumerate(chosen) if one]
    assert all(a < b for a, b in found)
    assert all(end < start for (_, end), (start, _) in pairwise(found))


@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=8, max_size=8), st.integers(0, 8))
def test_rationales_are_compared_token_by_token(scores: list[int], marked: list[bool], k: int) -> None:
    chosen = {i for i in range(8) if sum(other > scores[i] for other in scores) < k}
    there = {i for i, one in enumerate(marked) if one}
    f1, iou, runs_f1 = (measure(scores, marked, k=k) for measure in (rationale_f1, rationale_iou, rationale_iou_f1))
    if not there:
        assert math.isnan(f1.value)
        assert math.isnan(iou)
        assert math.isnan(runs_f1.value)
        return
    precision, recall = len(chosen & there) / max(len(chosen), 1), len(chosen & there) / len(there)
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert (f1.precision, f1.recall, f1.value) == pytest.approx((precision, recall, expected))
    assert iou == pytest.approx(len(chosen & there) / len(chosen | there))
    ours, theirs = (
        [set(range(*run)) for run in runs(np.array([i in some for i in range(8)]))] for some in (chosen, there)
    )
    hits = sum(any(2 * len(run & other) >= len(run | other) for other in theirs) for run in ours)
    assert (runs_f1.precision, runs_f1.recall) == pytest.approx((hits / max(len(ours), 1), hits / len(theirs)))


def test_precision_at_k_counts_the_answer_among_the_highest() -> None:
    scores = [5.0, 1.0, 4.0, 3.0, 2.0]
    found = precision_at_k(scores, (2, 3), k=2)
    assert (found.count, found.answer, found.k, found.value, found.precision) == (1, 2, 2, 0.5, 0.5)
    more = precision_at_k(scores, (0, 0), k=20)
    assert (more.count, more.value, more.precision) == (1, 1.0, 0.2)
    for span in ((-1, 0), (2, 1), (3, 5)):
        with pytest.raises(InputError, match="is no answer"):
            precision_at_k(scores, span)
    with pytest.raises(InputError, match="at least 1"):
        precision_at_k(scores, (0, 0), k=0)
    assert precision_at_k(scores, (4, 4), k=1).count == 0


# --- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_needs_two_examples() -> None:
    def mean(rows: np.ndarray) -> float:
        return float(np.asarray([1.0, 3.0])[rows].mean())

    two = statistic_with_interval(mean, 2, resamples=200)
    assert (two.mean, two.low, two.high, two.n) == (2.0, 1.0, 3.0, 2)
    assert two.std == pytest.approx(math.sqrt(0.5), rel=0.2)  # of 200 draws
    one = statistic_with_interval(lambda rows: 5.0, 1)
    assert one.mean == 5.0
    assert math.isnan(one.low)
    assert math.isnan(one.std)


@pytest.mark.parametrize("how", ["normal", "bootstrap"])
def test_the_mean_of_an_interval_is_of_defined_values(how: str) -> None:
    values = [1.0, 2.0, math.nan, 6.0]
    found = mean_with_interval(values, how=how)
    assert (found.mean, found.n, found.undefined) == (3.0, 3, 1)
    assert found.std == pytest.approx(np.std([1.0, 2.0, 6.0]))
    assert found.low < 3.0 < found.high
    if how == "normal":
        reach = 1.959963984540054 * np.std([1.0, 2.0, 6.0]) / math.sqrt(3)
        assert (found.low, found.high) == pytest.approx((3 - reach, 3 + reach))
    columns = by_column([[1.0, 5.0], [3.0, 7.0]], how=how)
    assert [column.mean for column in columns] == [2.0, 6.0]
    grouped = mean_with_interval([1.0, 2.0, 6.0], groups=["a", "a", "b"], how=how)
    assert (grouped.mean, grouped.n) == (3.0, 2)


@pytest.mark.parametrize(
    ("values", "options", "reason"),
    [
        ([], {}, "no values were given"),
        ([1.0, math.inf], {}, "value 1 is infinite"),
        ([1.0, 2.0], {"confidence": 1.0}, "between 0 and 1"),
        ([1.0, 2.0], {"confidence": 0.0}, "between 0 and 1"),
        ([1.0, 2.0], {"resamples": 0}, "at least 1"),
        ([1.0, 2.0], {"how": "bayes"}, "unknown interval 'bayes'"),
        ([1.0, 2.0], {"groups": ["a"]}, "1 entries for 2 values"),
    ],
    ids=str,
)
def test_what_has_no_interval_is_refused(values: list[float], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        mean_with_interval(values, **options)


# --- outliers ---------------------------------------------------------------------------------------------------------


def test_features_that_are_outliers_of_both_norms_are_named_in_order() -> None:
    """Features 1, 8 and 16: not the order in which Python's sets hold them."""
    stock = copy.deepcopy(hf_model("bert"))
    layer = stock.encoder.layer[1]
    with torch.no_grad():
        for norm, places in (
            (layer.attention.output.LayerNorm, [16, 8, 1, 30]),
            (layer.output.LayerNorm, [1, 8, 16, 3]),
        ):
            norm.weight.fill_(1.0)
            norm.weight[places] = 9.0
    found = norm_outliers(mixlens.load(stock), sigma=2.0)[1]
    assert (found.layer, found.first, found.second, found.shared) == (1, (1, 8, 16, 30), (1, 3, 8, 16), (1, 8, 16))
    first, second = layer.attention.output.LayerNorm.weight.tolist(), layer.output.LayerNorm.weight.tolist()
    assert found.pearson == pytest.approx(np.corrcoef(first, second)[0, 1])
    either = [1, 3, 8, 16, 30]
    expected = np.corrcoef([first[i] for i in either], [second[i] for i in either])[0, 1]
    assert found.pearson_at_outliers == pytest.approx(expected)


def test_outliers_are_more_than_sigma_deviations_off() -> None:
    values = np.arange(10.0)
    spread = np.abs(values - values.mean()) / values.std()
    for sigma in (0.5, 1.0, 1.5):
        assert outliers(values, sigma=sigma) == tuple(np.flatnonzero(spread > sigma).tolist())
    assert outliers(np.array([0.0, 0.0, 0.0, 4.0]), sigma=math.sqrt(3) - 1e-9) == (
        3,
    )  # 3 from the mean, by sqrt(3) each


# --- arguments --------------------------------------------------------------------------------------------------------


def test_numbers_of_any_kind_become_an_array() -> None:
    for values in (
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([1, 2]).half(),
    ):
        found = array(values, "scores", 1)
        assert found.dtype == np.float64
        assert found.tolist() == [1.0, 2.0]
    wrong: list[tuple[Any, int, str]] = [
        ("ab", 1, "scores must be numbers, not str 'ab'"),
        ([1, "x"], 1, "scores must be numbers"),
        ([[1.0]], 1, r"must have 1 axis or axes and not be empty; its shape is \(1, 1\)"),
        ([], 1, "not be empty"),
        ([1.0, math.nan, math.inf], 1, r"not finite at \(1,\)"),
        ([[1.0, 2.0], [3.0, math.inf]], 2, r"not finite at \(1, 1\)"),
    ]
    for values, dims, reason in wrong:
        with pytest.raises(InputError, match=reason):
            array(values, "scores", dims)


def test_two_sides_are_of_the_same_tokens() -> None:
    def read(*tokens: str) -> Attribution:
        return Attribution(torch.ones(len(tokens)), tokens, "alti", {})

    a, b = pair(read("a", "b"), [1.0, 2.0])
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="for 2 tokens, the reference for 3"):
        pair([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="'b' and 'c' at position 1"):
        pair(read("a", "b", "x"), read("a", "c", "y"))


def test_marks_are_zero_or_one_for_each_token() -> None:
    assert marks([0, 1, True], 3, "cues").tolist() == [False, True, True]
    assert marks(torch.tensor([0, 1]), 2, "cues").tolist() == [False, True]
    assert marks_at([2, 0], 3).tolist() == [True, False, True]
    assert tags_at({"noun": [0, 2], "verb": [2, 3]}, 5) == ("noun", None, "noun", "verb", None)
    for wrong in ([0, 2], [0.5, 1]):
        with pytest.raises(InputError, match="must be 0 or 1 for each token"):
            marks(wrong, 2, "cues")
    with pytest.raises(InputError, match="for each of the 3 tokens"):
        marks([0, 1], 3, "cues")
    for place in (-1, 3):
        with pytest.raises(InputError, match=f"position {place} is out of range: there are 3 tokens, 0 to 2"):
            marks_at([0, place], 3)


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", ["cosine", "l2"])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3, 9])
def test_a_token_is_identified_where_none_is_nearer(distance: str, offset: int) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    inputs[4] = inputs[2]  # an equal vector counts as the token's own
    hidden = inputs + 0.7 * torch.randn(6, 4, generator=generator, dtype=torch.float64)

    def far(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).norm()) if distance == "l2" else 1 - float(a @ b / a.norm() / b.norm())

    table = [[far(one, other) for other in inputs] for one in hidden]
    expected = [float(table[i][i + offset] <= min(table[i]) + 1e-12) for i in range(6) if 0 <= i + offset < 6]
    assert identified(hidden, inputs, distance=distance, offset=offset).tolist() == expected
    assert nearest_token(hidden, inputs, distance=distance).tolist() == [int(np.argmin(row)) for row in table]


@pytest.mark.parametrize("shapes", [((3, 4), (2, 4)), ((3, 4), (3, 5)), ((3, 4, 1), (3, 4))])
def test_hidden_states_and_inputs_are_of_one_text(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match=r"must be \[pos d\] of one text"):
        identified(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


# --- maps -------------------------------------------------------------------------------------------------------------


def map_of(n: int = 6, *, causal: bool = False, special: tuple[int, ...] = (0, 4), empty: int | None = None) -> Map:
    """Random rows; row `empty` of the first layer is zero."""
    scores = torch.rand(2, n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    scores = scores.tril() if causal else scores
    if empty is not None:
        scores[0, empty] = 0
    tokens = tuple(["[CLS]", "a", ".", "##b", "[SEP]", "c", "!?", "d"][:n])
    return Map(scores, tokens, "alti", {"causal": causal}, tuple(i in special for i in range(n)))


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_shares_by_distance_position_by_position(causal: bool, per_token: bool) -> None:
    scores = map_of(7, causal=causal, empty=3)
    groups = ((1, 1), (2, 3), (4, None))
    found = share_by_distance(scores, groups=groups, per_token=per_token)
    assert found.shape == (2, 7, 3)
    for layer in range(2):
        for i in range(7):
            row = scores.scores[layer, i].tolist()
            others = sum(value for j, value in enumerate(row) if j != i)
            for place, (first, last) in enumerate(groups):
                within = [j for j in range(7) if first <= abs(i - j) <= (last or 7) and (not causal or j <= i)]
                if not within or not others:
                    assert math.isnan(found[layer, i, place])
                    continue
                share = sum(row[j] for j in within) / others / (len(within) if per_token else 1)
                assert found[layer, i, place] == pytest.approx(share)
    for wrong in ((0, 1), (3, 2)):
        with pytest.raises(InputError, match="a group of distances is"):
            share_by_distance(scores, groups=[(1, 1), wrong])


def test_shares_around_a_token() -> None:
    scores = map_of(7)
    for centre, middle in ((None, 4), (2, 2), ("a", 1)):
        found = share_around(scores, query=3, centre=centre, reach=2)
        for layer in range(2):
            row = scores.scores[layer, 3]
            expected = [float(row[j] / row.sum()) if 0 <= j < 7 else math.nan for j in range(middle - 2, middle + 3)]
            assert found[layer].tolist() == pytest.approx(expected, nan_ok=True)
    with pytest.raises(InputError, match="no special token behind its first"):
        share_around(map_of(4, special=(0,)))


def test_a_positions_own_token() -> None:
    scores = map_of(5, empty=2)
    scores.scores[1, 3] = torch.tensor([0.1, 0.5, 0.2, 0.5, 0.1])  # a tie counts for the own token
    own, other = own_share(scores), not_own_top(scores)
    for layer in range(2):
        for i in range(5):
            row = scores.scores[layer, i]
            assert (
                math.isnan(own[layer, i])
                if not row.any()
                else own[layer, i] == pytest.approx(float(row[i] / row.sum()))
            )
            assert other[layer, i] == float(any(row[j] > row[i] for j in range(5)))
    with pytest.raises(InputError, match="a map of 'alti' has no mixing ratio"):
        mixing_ratio(scores)


def test_tokens_receive_by_their_type() -> None:
    scores = map_of(8)
    types = ("[CLS]", "word", "period or comma", "word", "[SEP]", "word", "punctuation", "word")
    assert token_types(scores) == types
    found = received_by_type(scores)
    assert list(found) == ["[CLS]", "word", "period or comma", "[SEP]", "punctuation"]
    for name, values in found.items():
        places = [i for i, one in enumerate(types) if one == name]
        assert values.tolist() == pytest.approx(scores.scores[:, :, places].sum(-1).mean(-1).tolist())
    assert sum(values for values in found.values()).tolist() == pytest.approx(scores.scores.sum(-1).mean(-1).tolist())
    with pytest.raises(InputError, match="there are 2 types for 8 tokens"):
        received_by_type(scores, types=["a", "b"])


def test_values_by_length_and_by_tag() -> None:
    found = by_length([1.0, 2.0, 4.0, 8.0], [5, 10, 19, 20], edges=(5, 10, 20, 30, 40))
    assert {key: interval.mean for key, interval in found.items()} == {(5, 10): 1.0, (10, 20): 3.0, (20, 30): 8.0}
    for edges in ((5,), (5, 5), (9, 5)):
        with pytest.raises(InputError, match="edges are two or more rising lengths"):
            by_length([1.0], [5], edges=edges)
    with pytest.raises(InputError, match="2 values and 1 lengths"):
        by_length([1.0, 2.0], [5], edges=(0, 9))
    values = [np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[7.0], [8.0]])]
    tagged = by_tag(values, [["noun", None, "verb"], ["noun"]])
    assert {tag: [one.mean for one in layers] for tag, layers in tagged.items()} == {
        "noun": [4.0, 6.0],
        "verb": [3.0, 6.0],
    }
    assert [one.n for one in tagged["noun"]] == [2, 2]
    assert [one.mean for one in by_layer(values)] == pytest.approx([13 / 4, 23 / 4])
    for wrong_values, tags in ((values, [["noun", None, "verb"]]), ([], []), (values, [["noun", "verb"], ["noun"]])):
        with pytest.raises(InputError, match=r"there are values for|need one tag for each query"):
            by_tag(wrong_values, tags)
