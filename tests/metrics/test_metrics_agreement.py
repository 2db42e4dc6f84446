"""Agreement, cue alignment, plausibility: against the formulas written out, and against cases done by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ids, loaded
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics import agreement, alignment, arguments, plausibility

stats = pytest.importorskip("scipy.stats")
pytest.importorskip("sklearn")
few = st.lists(st.integers(-3, 3), min_size=2, max_size=9)  # few values: many ties
two = st.integers(2, 9).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(-3, 3), min_size=n, max_size=n) for _ in range(2)))
)
quick = settings(max_examples=80, deadline=None)


def average_ranks(values: list[float]) -> list[float]:
    """1 + how many are smaller + half of the others that are equal."""
    return [1 + sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]


def pearson_written_out(a: list[float], b: list[float]) -> float:
    n = len(a)
    ma, mb = sum(a) / n, sum(b) / n
    top = sum((x - ma) * (y - mb) for x, y in zip(a, b, strict=True))
    return top / math.sqrt(sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b))


def tau_b_written_out(a: list[float], b: list[float]) -> float:
    pairs = list(itertools.combinations(range(len(a)), 2))
    signs = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in pairs]
    return sum(x * y for x, y in signs) / math.sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))


@quick
@given(two)
def test_correlations_are_the_formulas(sides: tuple[list[int], list[int]]) -> None:
    a, b = sides
    assume(len(set(a)) > 1)
    assume(len(set(b)) > 1)
    assert agreement.pearson(a, b) == pytest.approx(pearson_written_out(a, b), abs=1e-12)
    assert agreement.spearman(a, b) == pytest.approx(pearson_written_out(average_ranks(a), average_ranks(b)), abs=1e-12)
    assert agreement.kendall(a, b) == pytest.approx(tau_b_written_out(a, b), abs=1e-12)
    assert agreement.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


@quick
@given(two, st.sampled_from(["spearman", "kendall"]))
def test_rank_correlations_know_order_alone(sides: tuple[list[int], list[int]], name: str) -> None:
    a, b = sides
    measure = agreement.correlation(name)
    plain = measure(a, b)
    if math.isnan(plain):
        assert len(set(a)) == 1 or len(set(b)) == 1
        return
    assert -1 <= plain <= 1
    assert measure([math.exp(v) for v in a], b) == pytest.approx(plain, abs=1e-12)
    assert measure([-v for v in a], b) == pytest.approx(-plain, abs=1e-12)
    assert measure(b, a) == pytest.approx(plain, abs=1e-12)
    assert measure(a, a) == pytest.approx(1)


@quick
@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=6), st.floats(1e-150, 1e150))
def test_pearson_does_not_mind_the_size_of_scores(values: list[float], scale: float) -> None:
    other = np.arange(len(values), dtype=float) ** 2
    small = np.array(values) / 1e200
    plain = agreement.pearson(small, other)
    rounded = np.abs(small * scale).max() < 1e-290  # near the smallest number, a product loses its digits
    if not math.isnan(plain) and not rounded and len(set((small * scale).tolist())) == len(set(small.tolist())):
        assert agreement.pearson(small * scale, other) == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1.0, 1e308])
def test_pearson_of_the_smallest_and_the_largest_numbers(size: float) -> None:
    assert agreement.pearson([0.0, size], [0.0, 1.0]) == pytest.approx(1)
    assert agreement.pearson([size, 0.0, size], [0.0, 1.0, 0.0]) == pytest.approx(-1)


def test_dense_ranks_of_the_released_code_by_hand() -> None:
    """Ranks 3 1 1 2 and 2 2 1 3: d^2 = 1 + 1 + 0 + 1, so 1 - 18 / 60."""
    assert agreement.spearman([9, 1, 1, 4], [5, 5, 0, 7], variant="released") == pytest.approx(0.7)
    no_ties = ([3.0, 1.0, 2.0, 9.0], [1.0, 2.0, 5.0, 7.0])
    assert agreement.spearman(*no_ties, variant="released") == pytest.approx(agreement.spearman(*no_ties))


@pytest.mark.parametrize("measure", [agreement.spearman, agreement.pearson, agreement.kendall])
def test_no_order_no_correlation(measure: Any) -> None:
    """0.1 three times has a mean that is not 0.1: what is constant is told by comparing, not by subtracting."""
    assert math.isnan(measure([0.1, 0.1, 0.1], [1, 2, 3]))
    assert math.isnan(measure([1, 2, 3], [0.1, 0.1, 0.1]))
    assert math.isnan(measure([1], [2]))


def attribution(scores: list[float], tokens: str, special: str = "") -> mixlens.Attribution:
    named = tuple(tokens.split())
    return mixlens.Attribution(
        torch.tensor(scores), named, "made", {}, tuple(token in special.split() for token in named)
    )


@pytest.mark.parametrize(
    ("scores", "reference", "said"),
    [
        ([1, 2, 3], [1, 2], "3 tokens, the reference for 2"),
        ([1, math.nan], [1, 2], r"not finite at \(1,\)"),
        ([[1, 2]], [1, 2], r"shape is \(1, 2\)"),
        ([], [], "not be empty"),
        ("ab", [1, 2], "must be numbers, not str 'ab'"),
        (attribution([1, 2], "a b"), attribution([1, 2], "a c"), "different tokens: 'b' and 'c' at position 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(scores: Any, reference: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        agreement.spearman(scores, reference)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="Known: paper, released"):
        agreement.spearman([1, 2], [1, 2], variant="new")
    with pytest.raises(InputError, match="Known: kendall, pearson, spearman"):
        agreement.correlation("cosine")


def test_a_method_that_knows_no_classes_is_not_confident() -> None:
    trace = mixlens.load("sentiment").trace("The plot was not dull.")
    own, others = agreement.class_attributions(trace, "grad_x_input")
    assert agreement.kendall_confidence(own, others) < 1
    assert own.info["target"] == trace.prediction(1)[0][0]
    labels = [name for name, _ in trace.prediction(9)]
    assert sorted(other.info["target"] for other in others) == sorted(set(labels) - {own.info["target"]})
    row = mixlens.mix(trace, "alti").rollout().readout(0)
    assert agreement.kendall_confidence(row, [row]) == pytest.approx(1)
    with pytest.raises(InputError, match="none were given"):
        agreement.kendall_confidence(row, [])
    with pytest.raises(InputError, match="has no classes"):
        agreement.class_attributions(mixlens.load("agreement").trace("The keys [MASK] rusty."), "grad_l2")


def test_confidence_is_the_mean_over_the_other_classes() -> None:
    own, others = [3, 1, 2], [[3, 2, 1], [1, 3, 2]]
    expected = np.mean([stats.kendalltau(own, other).statistic for other in others])
    assert agreement.kendall_confidence(own, others, variant="scores") == pytest.approx(expected)
    orders = [[0, 2, 1], [0, 1, 2], [1, 2, 0]]  # positions, the highest score first
    paper = [stats.kendalltau(orders[0], other).statistic for other in orders[1:]]
    assert agreement.kendall_confidence(own, others) == pytest.approx(np.mean(paper))
    assert agreement.kendall_confidence(own, others, variant="released") == pytest.approx(paper[0])


def test_layers_and_rows_of_maps() -> None:
    trace = loaded("bert").trace(input_ids=ids(7))
    rolled, other = mixlens.mix(trace, "alti").rollout(), mixlens.mix(trace, "norm")
    reference = torch.randn(7, generator=torch.Generator().manual_seed(0))
    row = agreement.layer_agreement(rolled, reference, query=2)
    summed = agreement.layer_agreement(rolled, reference, over="sum", how="pearson")
    rows = agreement.row_agreement(rolled, other)
    for layer in range(3):
        assert row[layer] == pytest.approx(stats.spearmanr(rolled.scores[layer, 2], reference).statistic)
        assert summed[layer] == pytest.approx(stats.pearsonr(rolled.scores[layer].sum(0), reference).statistic)
        for i in range(7):
            assert rows[layer, i] == pytest.approx(
                stats.pearsonr(rolled.scores[layer, i], other.scores[layer, i]).statistic
            )


def test_rows_of_a_causal_map_end_at_their_own_token() -> None:
    trace = loaded("gpt2").trace(input_ids=ids(6))
    a, b = (mixlens.mix(trace, name) for name in ("alti", "norm"))
    rows = agreement.row_agreement(a, b)
    assert np.isnan(rows[:, 0]).all()
    assert rows[1, 4] == pytest.approx(stats.pearsonr(a.scores[1, 4, :5], b.scores[1, 4, :5]).statistic)
    with pytest.raises(InputError, match="same model and tokens"):
        agreement.row_agreement(a, mixlens.mix(loaded("gpt2").trace(input_ids=ids(5)), "alti"))


@pytest.mark.parametrize(("case", "causal"), [("bert", False), ("gpt2", True)])
def test_maps_are_compared_entry_by_entry(case: str, causal: bool) -> None:
    trace = loaded(case).trace(input_ids=ids(6))
    a, b = (mixlens.mix(trace, name) for name in ("norm", "norm_residual_ln"))
    for how, slow in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        whole = agreement.map_agreement(a, b, how=how)
        for layer in range(3):
            seen = [(i, j) for i in range(6) for j in range(6) if j <= i or not causal]
            sides = [[float(one.scores[layer, i, j]) for i, j in seen] for one in (a, b)]
            assert whole[layer] == pytest.approx(slow(*sides).statistic)
    with pytest.raises(InputError, match="same model and tokens"):
        agreement.map_agreement(a, mixlens.mix(loaded(case).trace(input_ids=ids(5)), "alti"))


def test_two_models_are_compared_where_they_predict_alike() -> None:
    generator = np.random.default_rng(0)
    first, second = ([generator.normal(size=6) for _ in range(5)] for _ in range(2))
    said = ([0, 1, 1, 0, 1], [0, 0, 1, 0, 1])
    made = agreement.model_agreement(first, second, predictions=said)
    expected = [agreement.spearman(first[i], second[i]) for i in (0, 2, 3, 4)]
    assert (made.n, made.mean) == (4, pytest.approx(np.mean(expected)))
    seeds = agreement.seed_agreement(
        {"a": first, "b": second, "c": first}, predictions={"a": said[0], "b": said[1], "c": said[0]}
    )
    assert set(seeds) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert seeds["a", "c"].mean == pytest.approx(1)
    assert seeds["a", "b"] == made
    with pytest.raises(InputError, match=r"lengths are \[5, 4\]"):
        agreement.model_agreement(first, second[:4])
    with pytest.raises(InputError, match="no example alike"):
        agreement.model_agreement(first, second, predictions=([0] * 5, [1] * 5))


def test_ranks_of_special_tokens_by_hand() -> None:
    scores = attribution([0.5, 0.1, 0.3, 0.1, 0.2], "[CLS] a . ##, [SEP]", "[CLS] [SEP]")
    made = agreement.special_token_ranks(scores)
    assert made == pytest.approx({"[CLS]": 1.0, ".": 0.75, ",": 0.125, "[SEP]": 0.5})  # (rank - 1) / 4
    twice = attribution([0.5, 0.1, 0.3, 0.4], "[CLS] , a ,", "[CLS]")
    assert agreement.special_token_ranks(twice)[","] == pytest.approx((0 + 2 / 3) / 2)
    assert agreement.special_token_ranks(twice, variant="released")[","] == pytest.approx(0.25)
    assert np.isnan(agreement.normalized_ranks([0.5])).all()
    released = agreement.special_token_ranks(scores, variant="released")
    assert released == pytest.approx({"[CLS]": 0.8, ".": 0.6, ",": 0.2, "[SEP]": 0.4})


# --- cues -------------------------------------------------------------------------------------------------------------

searched = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n),
    )
)


def probes_by_every_order(scores: list[int], cues: list[int], until: str) -> float:
    """Every order that the scores allow, counted: tokens that are no cue before the first cue, or before the last."""
    counts = []
    for order in itertools.permutations(range(len(scores))):
        if any(scores[a] < scores[b] for a, b in itertools.pairwise(order)):
            continue
        places = [place for place, i in enumerate(order) if cues[i]]
        end = places[0] if until == "first" else places[-1]
        counts.append(sum(not cues[i] for i in order[:end]))
    return sum(counts) / len(counts)


@settings(max_examples=60, deadline=None)
@given(searched)
def test_cue_alignment_written_out(case: tuple[list[int], list[int]]) -> None:
    scores, cues = case
    results = [
        alignment.cue_average_precision(scores, cues),
        alignment.probes_needed(scores, cues),
        alignment.probes_needed(scores, cues, until="all"),
    ]
    if not any(cues) or not any(scores):
        assert all(math.isnan(result) for result in results)
        return
    steps, found = [], 0.0
    for level in sorted(set(scores), reverse=True):
        above = [c for s, c in zip(scores, cues, strict=True) if s >= level]
        recall = sum(above) / sum(cues)
        steps.append((recall - found) * sum(above) / len(above))
        found = recall
    assert results[0] == pytest.approx(sum(steps))
    assert results[1] == pytest.approx(probes_by_every_order(scores, cues, "first"))
    assert results[2] == pytest.approx(probes_by_every_order(scores, cues, "all"))
    dot = alignment.cue_dot(scores, cues)
    assert dot == pytest.approx(sum(s for s, c in zip(scores, cues, strict=True) if c) / sum(scores))
    assert dot + alignment.cue_dot(scores, [1 - c for c in cues]) == pytest.approx(1)


def test_scores_against_the_target_count_or_do_not() -> None:
    scores, cues = [-3.0, 1.0, 4.0], [1, 1, 0]
    assert alignment.cue_dot(scores, cues) == pytest.approx(0.5)
    assert alignment.cue_dot(scores, cues, signs="positive") == pytest.approx(0.2)
    assert math.isnan(alignment.cue_dot([0.0, 0.0], [1, 0]))
    with pytest.raises(InputError, match="Known: absolute, positive"):
        alignment.cue_dot(scores, cues, signs="both")


def test_a_cue_of_several_pieces_counts_with_all_of_them_or_the_first() -> None:
    trace = mixlens.load("agreement").trace("The keys [MASK] rusty.")
    trace = replace(
        trace, words=(("[CLS]", (0,)), ("The keys", (1, 2)), *((str(i), (i,)) for i in range(3, len(trace))))
    )
    cues = arguments.marks_at([1, 2, 4], len(trace))
    assert np.flatnonzero(alignment.first_pieces(trace, cues)).tolist() == [1, 4]
    with pytest.raises(InputError, match="words are not known"):
        alignment.first_pieces(replace(trace, words=None), cues)


def test_alignment_in_every_layer() -> None:
    trace = mixlens.load("agreement").trace("The keys to the cabinet [MASK] rusty.")
    rolled = mixlens.mix(trace, "alti").rollout()
    cues = arguments.marks_at([trace.tokens.index("keys")], len(trace))
    made = alignment.layer_alignment(rolled, cues, query="[MASK]", measure="probes_needed", until="all")
    expected = [alignment.probes_needed(row, cues) for row in rolled.scores[:, trace.query]]
    assert list(made) == expected
    with pytest.raises(InputError, match="Did you mean 'cue_dot'"):
        alignment.layer_alignment(rolled, cues, query="[MASK]", measure="dot")


# --- rationales and answers -------------------------------------------------------------------------------------------


def test_rationales_by_hand() -> None:
    scores, rationale = [0.9, 0.1, 0.8, 0.7, 0.0], [1, 0, 0, 1, 1]
    token = plausibility.rationale_f1(scores, rationale, k=2)  # chosen: 0 and 2
    assert (token.precision, token.recall, token.value) == pytest.approx((1 / 2, 1 / 3, 0.4))
    assert plausibility.rationale_iou(scores, rationale, k=2) == pytest.approx(1 / 4)
    spans = plausibility.rationale_iou_f1(scores, rationale, k=3)  # chosen: 0, and 2 with 3; marked: 0, and 3 with 4
    assert (spans.precision, spans.recall) == pytest.approx((1 / 2, 1 / 2))
    assert plausibility.rationale_iou_f1(scores, rationale, k=3, threshold=1 / 3).value == pytest.approx(1)
    # (0, 1), (1/3, 1), (1/3, 1/2), (2/3, 2/3), (2/3, 1/2), (1, 3/5): trapezoids
    expected = 1 / 3 + (1 / 3) * (1 / 2 + 2 / 3) / 2 + (1 / 3) * (1 / 2 + 3 / 5) / 2
    assert plausibility.rationale_auprc(scores, rationale) == pytest.approx(expected)


def test_answers_among_the_highest() -> None:
    scores = [0.1, 0.9, 0.5, 0.4, 0.8]
    made = plausibility.precision_at_k(scores, (1, 3), k=3)  # the highest: 1, 4, 2
    assert (made.count, made.answer, made.value, made.precision) == (2, 3, pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert plausibility.precision_at_k(scores, (1, 3), k=50).value == 1
    for span, k, said in (((3, 1), 2, "no answer"), ((0, 5), 2, "0 to 4"), ((0, 1), 0, "at least 1")):
        with pytest.raises(InputError, match=said):
            plausibility.precision_at_k(scores, span, k=k)
    with pytest.raises(InputError, match="0 to 5 here, not 6"):
        plausibility.rationale_f1(scores, [1, 0, 0, 0, 0], k=6)


@pytest.mark.parametrize("n", [3, 40, 500])
def test_of_tied_scores_the_first_are_taken(n: int) -> None:
    """Long rows too: numpy's own sort leaves ties in no order."""
    values = np.random.default_rng(0).integers(0, 3, n).astype(float)
    order = sorted(range(n), key=lambda i: (-values[i], i))
    for k in (0, 1, n // 2, n):
        assert np.flatnonzero(plausibility.top_marks(values, k)).tolist() == sorted(order[:k])
    for k in (-1, n + 1):
        with pytest.raises(InputError, match=f"0 to {n} here"):
            plausibility.top_marks(values, k)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_runs_are_neighbours_that_are_chosen(chosen: list[bool]) -> None:
    found = plausibility.runs(np.array(chosen))
    assert [i for a, b in found for i in range(a, b)] == [i for i, one in enumerate(chosen) if one]
    assert all(a < b for a, b in found)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(found))


@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=8, max_size=8), st.integers(0, 8))
def test_rationales_are_compared_token_by_token(scores: list[int], marked: list[bool], k: int) -> None:
    chosen = {i for i in range(8) if sum(other > scores[i] for other in scores) < k}
    there = {i for i, one in enumerate(marked) if one}
    f1, iou, runs_f1 = (
        measure(scores, marked, k=k)
        for measure in (plausibility.rationale_f1, plausibility.rationale_iou, plausibility.rationale_iou_f1)
    )
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
        [set(range(*run)) for run in plausibility.runs(np.array([i in some for i in range(8)]))]
        for some in (chosen, there)
    )
    hits = sum(any(2 * len(run & other) >= len(run | other) for other in theirs) for run in ours)
    assert (runs_f1.precision, runs_f1.recall) == pytest.approx((hits / max(len(ours), 1), hits / len(theirs)))


def test_numbers_of_any_kind_become_an_array() -> None:
    for values in (
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([1, 2]).half(),
    ):
        found = arguments.array(values, "scores", 1)
        assert found.dtype == np.float64
        assert found.tolist() == [1.0, 2.0]
    wrong: list[tuple[Any, int, str]] = [
        ([1, "x"], 1, "scores must be numbers"),
        ([[1.0]], 1, r"must have 1 axis or axes and not be empty; its shape is \(1, 1\)"),
        ([[1.0, 2.0], [3.0, math.inf]], 2, r"not finite at \(1, 1\)"),
    ]
    for values, dims, reason in wrong:
        with pytest.raises(InputError, match=reason):
            arguments.array(values, "scores", dims)


def test_marks_are_zero_or_one_for_each_token() -> None:
    assert arguments.marks([0, 1, True], 3, "cues").tolist() == [False, True, True]
    assert arguments.marks(torch.tensor([0, 1]), 2, "cues").tolist() == [False, True]
    assert arguments.marks_at([2, 0], 3).tolist() == [True, False, True]
    assert arguments.tags_at({"noun": [0, 2], "verb": [2, 3]}, 5) == ("noun", None, "noun", "verb", None)
    for wrong in ([0, 2], [0.5, 1]):
        with pytest.raises(InputError, match="must be 0 or 1 for each token"):
            arguments.marks(wrong, 2, "cues")
    with pytest.raises(InputError, match="for each of the 3 tokens"):
        arguments.marks([0, 1], 3, "cues")
    for place in (-1, 3):
        with pytest.raises(InputError, match=f"position {place} is out of range: there are 3 tokens, 0 to 2"):
            arguments.marks_at([0, place], 3)
