"""Insertion, decision flips, normalised AOPC, subsets, words, fillers: each against the stock model, text by text."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
import torch
from conftest import hf_model, ids

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics import agreement, faithfulness, plausibility, removal_curves
from mixlens.metrics import subsets as drawn_subsets
from mixlens.scoring import removal, targets

TEXT = "The plot was not dull, and the music was good."
GAP = "The keys to the cabinet [MASK] rusty."
PAIR: dict[str, Any] = {"target": "were", "foil": "was"}


@pytest.fixture(scope="module")
def gap() -> Any:
    return mixlens.load("agreement", dtype="float64").trace(GAP)


@pytest.fixture(scope="module")
def review() -> Any:
    return mixlens.load("sentiment", dtype="float64").trace(TEXT)


def noise(trace: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=len(trace))


def classes(trace: Any, gone: set[int]) -> Any:
    """The stock model's logits of a text without some tokens."""
    kept = torch.tensor([[id_ for i, id_ in enumerate(trace.input_ids) if i not in gone]])
    with torch.no_grad():
        return trace.model.hf_model(kept).logits[0]


def at_the_gap(trace: Any, gone: set[int], words: tuple[str, ...]) -> Any:
    """The stock model's logits of some words at the gap, of a text without some tokens."""
    kept = [i for i in range(len(trace)) if i not in gone]
    with torch.no_grad():
        logits = trace.model.hf_model(torch.tensor([[trace.input_ids[i] for i in kept]])).logits[
            0, kept.index(trace.query)
        ]
    return logits[trace.model.tokenizer.convert_tokens_to_ids(list(words))]


def in_order(trace: Any, scores: Any, stay: set[int]) -> list[int]:
    return sorted((i for i in range(len(trace)) if i not in stay), key=lambda i: -scores[i])


def test_insertion_written_out(review: Any) -> None:
    scores, label = noise(review), int(review.logits.argmax())
    order = in_order(review, scores, {0, len(review) - 1})
    kept = [order[: round(percent * len(order) / 100)] for percent in range(0, 101, 10)]
    expected = [float(classes(review, set(order) - set(top)).softmax(-1)[label]) for top in kept]
    assert removal_curves.insertion(review, scores) == pytest.approx(np.mean(expected), abs=1e-12)


def test_the_decision_flips_where_another_class_has_the_highest_logit(review: Any) -> None:
    label, found = int(review.logits.argmax()), set()
    for seed in range(6):
        scores = noise(review, seed)
        order = in_order(review, scores, {0, len(review) - 1})
        flips = [k for k in range(1, len(order) + 1) if int(classes(review, set(order[:k])).argmax()) != label]
        assert removal_curves.decision_flip(review, scores) == (flips[0] / len(order) if flips else 1.0)
        found.add(removal_curves.decision_flip(review, scores))
    assert len(found) > 1
    assert np.isnan(removal_curves.decision_flip(review, scores, target=1 - label))  # the model does not decide so


def test_with_a_foil_the_decision_is_between_the_two(gap: Any) -> None:
    scores = noise(gap, 1)
    order = in_order(gap, scores, {0, len(gap) - 1, gap.query})
    leads = [float(torch.diff(at_the_gap(gap, set(order[:k]), ("was", "were")))) for k in range(1, len(order) + 1)]
    flips = [k for k, lead in enumerate(leads, 1) if lead <= 0]
    assert removal_curves.decision_flip(gap, scores, **PAIR) == (flips[0] / len(order) if flips else 1.0)


def test_the_probability_is_among_target_and_foil(gap: Any) -> None:
    scores = noise(gap)
    order = in_order(gap, scores, {0, len(gap) - 1, gap.query})
    whole = float(at_the_gap(gap, set(), ("were", "was")).softmax(-1)[0])
    first = float(at_the_gap(gap, {order[0]}, ("were", "was")).softmax(-1)[0])
    made = faithfulness.comprehensiveness(gap, scores, percents=(1,), **PAIR)
    assert made.points == pytest.approx((0.0, whole - first), abs=1e-12)


def test_normalised_aopc_lies_between_the_best_and_the_worst_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tokens: all 120 orders by hand. Few tokens have exact bounds; so has a beam that holds every set."""
    trace = mixlens.load("sentiment", dtype="float64").trace("not a dull film .")
    label, n = int(trace.logits.argmax()), len(trace)
    movable = list(range(1, n - 1))
    whole = classes(trace, set()).softmax(-1)[label]
    falls = {
        frozenset(gone): float(whole - classes(trace, set(gone)).softmax(-1)[label])
        for k in range(1, n - 1)
        for gone in combinations(movable, k)
    }
    every = [np.mean([falls[frozenset(order[:k])] for k in range(1, n - 1)]) for order in permutations(movable)]
    course = faithfulness.course_of(trace, np.zeros(n))
    assert removal_curves.aopc_bounds(course, beam=1) == pytest.approx(
        (min(every), max(every)), abs=1e-12
    )  # no beam is asked
    best = max(permutations(movable), key=lambda order: np.mean([falls[frozenset(order[:k])] for k in range(1, n - 1)]))
    scores = np.zeros(n)
    scores[list(best)] = range(len(best), 0, -1)
    assert removal_curves.naopc(trace, scores) == pytest.approx(1.0, abs=1e-9)
    assert removal_curves.naopc(trace, -scores) == pytest.approx(
        (np.mean([falls[frozenset(best[-k:])] for k in range(1, n - 1)]) - min(every)) / (max(every) - min(every)),
        abs=1e-9,
    )
    monkeypatch.setattr(removal_curves, "EXHAUSTIVE", 4)
    assert removal_curves.aopc_bounds(course, beam=1000) == pytest.approx((min(every), max(every)), abs=1e-12)
    narrow = removal_curves.aopc_bounds(course, beam=1)
    assert min(every) - 1e-12 <= narrow[0] <= narrow[1] <= max(every) + 1e-12
    with pytest.raises(InputError, match="at least 1, not 0"):
        removal_curves.naopc(trace, scores, beam=0)


def test_an_order_that_passes_the_bounds_widens_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beam may miss the best order. What is known beside it widens the bounds, and no value leaves 0 to 1."""
    trace = mixlens.load("sentiment", dtype="float64").trace("The plot was not dull, and the music was good .")
    monkeypatch.setattr(removal_curves, "_best", lambda course, replacement, beam, sign: sign * 0.5)
    monkeypatch.setattr(removal_curves, "EXHAUSTIVE", 0)
    drawn = [noise(trace, seed) for seed in range(6)]
    orders = [faithfulness.course_of(trace, scores) for scores in drawn]
    falls = [removal_curves.mean_fall(one, "delete") for one in orders]
    assert min(falls) < 0.5 < max(falls)
    bounds = removal_curves.aopc_bounds(orders[0], orders=orders)
    assert bounds == pytest.approx((min(falls), max(falls)), abs=1e-12)
    values = [removal_curves.naopc(trace, scores, bounds=bounds) for scores in drawn]
    assert (min(values), max(values)) == pytest.approx((0.0, 1.0), abs=1e-12)
    assert values == pytest.approx([(fall - min(falls)) / (max(falls) - min(falls)) for fall in falls], abs=1e-9)
    assert {removal_curves.naopc(trace, scores) for scores in drawn} <= {
        0.0,
        1.0,
    }  # each alone passes the one bound that there is


def test_lds_written_out(gap: Any) -> None:
    """Each subset by itself through the stock model; log-odds of the target among the two are the difference of the
    logits."""
    scores, subsets = noise(gap), drawn_subsets.held_out_subsets(gap, count=20, **PAIR)
    sums, odds = [], []
    for kept in subsets.kept:
        left = [unit for unit, taken in zip(subsets.units, kept, strict=True) if taken]
        gone = {i for unit in subsets.units if unit not in left for i in unit}
        sums.append(sum(scores[i] for unit in left for i in unit))
        were, was = at_the_gap(gap, gone, ("were", "was"))
        odds.append(float(were - was))
    assert subsets.log_odds == pytest.approx(odds, abs=1e-6)
    assert drawn_subsets.lds(gap, scores, count=20, **PAIR) == pytest.approx(agreement.spearman(sums, odds), abs=1e-9)
    assert drawn_subsets.lds(gap, scores, subsets=subsets) == drawn_subsets.lds(gap, scores, count=20, **PAIR)


def test_true_weights_have_the_best_lds(gap: Any) -> None:
    """Scores that are the weights of a linear function of what is kept predict that function: 1."""
    scores = noise(gap)
    subsets = drawn_subsets.held_out_subsets(gap, count=40, **PAIR)
    linear = subsets.kept @ removal.by_unit(scores, subsets.units)
    made = removal.Subsets(subsets.units, subsets.kept, linear)
    assert drawn_subsets.lds(gap, scores, subsets=made) == pytest.approx(1.0)
    assert drawn_subsets.lds(gap, -scores, subsets=made) == pytest.approx(-1.0)
    with pytest.raises(InputError, match="at least 2, not 1"):
        drawn_subsets.lds(gap, scores, count=1)


def test_subsets_keep_half_of_the_words_and_no_two_are_the_same(gap: Any) -> None:
    subsets = drawn_subsets.held_out_subsets(gap, count=30, **PAIR)
    assert subsets.kept.sum(1).tolist() == [-(-len(subsets.units) // 2)] * 30
    assert len({tuple(row) for row in subsets.kept.tolist()}) == len(subsets.kept)
    again = drawn_subsets.held_out_subsets(gap, count=30, **PAIR)
    assert subsets.kept.tolist() == again.kept.tolist()


@pytest.mark.parametrize(
    ("units", "count", "drawn"), [(1, 64, 1), (2, 64, 2), (7, 64, 35), (7, 35, 35), (8, 64, 64), (20, 64, 64)]
)
def test_a_short_text_has_as_many_halves_as_there_are(units: int, count: int, drawn: int) -> None:
    kept = drawn_subsets.halves(units, count, (0, 1))
    assert kept.shape == (drawn, units)
    assert set(kept.sum(1).tolist()) == {(units + 1) // 2}
    assert len({tuple(row) for row in kept.tolist()}) == drawn
    if drawn == count < 65 and units > 7:
        assert kept.tolist() != drawn_subsets.halves(units, count, (1, 1)).tolist()


def test_a_constant_beside_all_scores_changes_no_lds() -> None:
    """Each subset keeps as many words as any other, so that a constant is the same in all sums: noise about 0 and
    random scores above 0 are alike, and both are near 0."""
    model = mixlens.load("sentiment", dtype="float64")
    texts = [
        "The plot was not dull , and the music was good .",
        "A wonderful film with a dreadful cast and a slow story .",
    ]
    of_noise: list[float] = []
    for trace in map(model.trace, texts):
        subsets = drawn_subsets.held_out_subsets(trace)
        one_a_word = np.zeros(len(trace))
        for unit in subsets.units:
            one_a_word[list(unit)] = 1 / len(unit)
        for seed in range(40):
            scores = np.random.default_rng(seed).random(len(trace)) - 0.5
            value = drawn_subsets.lds(trace, scores, subsets=subsets)
            for constant in (0.5, -3.0, 100.0):
                assert drawn_subsets.lds(trace, scores + constant * one_a_word, subsets=subsets) == pytest.approx(
                    value, abs=1e-9
                )
            of_noise.append(value)
    assert abs(np.mean(of_noise)) < 3 * np.std(of_noise) / len(of_noise) ** 0.5


def test_log_odds_stay_finite_where_a_probability_is_one() -> None:
    made = removal.log_odds(np.log(np.array([0.5, 0.9, 1.0])))
    assert made[:2] == pytest.approx([0.0, np.log(9)])
    assert 10 < made[2] < 20


# --- signs, words, fillers


def test_by_magnitude_the_largest_absolute_score_goes_first(review: Any) -> None:
    scores = noise(review)
    for measure in (faithfulness.aopc, faithfulness.comprehensiveness):
        assert measure(review, scores, ranking="magnitude") == measure(review, np.abs(scores))
    assert removal_curves.insertion(review, scores, ranking="magnitude") == removal_curves.insertion(
        review, np.abs(scores)
    )
    marks = [0, 1, 0, 1] + [0] * (len(review) - 4)
    for judge in (plausibility.rationale_auprc, plausibility.rationale_f1):
        assert judge(scores, marks, ranking="magnitude") == judge(np.abs(scores), marks)
    blanked = mixlens.attribute(review, "blank_out", replacement="unk").scores
    assert faithfulness.blank_out_faithfulness(review, scores, ranking="magnitude") == agreement.spearman(
        np.abs(scores), blanked.abs()
    )
    with pytest.raises(InputError, match="unknown ranking 'absolute'"):
        plausibility.ranked(scores, "absolute")


def test_blank_out_without_special_tokens_is_over_what_can_be_taken_away(gap: Any) -> None:
    """Neither special tokens nor the gap itself."""
    scores = noise(gap)
    blanked = mixlens.attribute(gap, "blank_out", replacement="unk", **PAIR).scores
    places = [i for i in range(len(gap)) if not gap.special[i] and i != gap.query]
    expected = agreement.spearman(scores[places], blanked[places])
    assert faithfulness.blank_out_faithfulness(gap, scores, keep_special=False, **PAIR) == expected
    assert faithfulness.blank_out_faithfulness(gap, scores, keep_special=False, blanked=blanked) == expected


def split_words() -> Any:
    """A text of which one word is several tokens."""
    trace = mixlens.load("sentiment", dtype="float64").trace("The unfilmable plot was not dull.")
    assert any(len(positions) > 1 for _, positions in trace.words)
    return trace


def test_words_go_as_a_whole() -> None:
    trace = split_words()
    scores = noise(trace)
    course = faithfulness.course_of(trace, scores, unit="word")
    words = [positions for _, positions in trace.words if not trace.special[positions[0]]]
    assert sorted(course.order) == sorted(words)
    totals = [sum(scores[i] for i in unit) for unit in course.order]
    assert totals == sorted(totals, reverse=True)
    label = int(trace.logits.argmax())
    whole, without = (float(classes(trace, gone).softmax(-1)[label]) for gone in (set(), set(course.order[0])))
    made = faithfulness.comprehensiveness(trace, scores, percents=(1,), unit="word")
    assert made.points[1] == pytest.approx(whole - without, abs=1e-12)


def test_words_are_blanked_as_a_whole() -> None:
    """Every token of a word is replaced at once, and the change of the stock model's probability stands beside the sum
    of the scores of the word."""
    trace = split_words()
    scores, label, unk = noise(trace), int(trace.logits.argmax()), trace.model.tokenizer.unk_token_id

    def probability(gone: Any) -> float:
        given = [unk if i in gone else id_ for i, id_ in enumerate(trace.input_ids)]
        with torch.no_grad():
            return float(trace.model.hf_model(torch.tensor([given])).logits[0].softmax(-1)[label])

    for keep in (False, True):
        words = [positions for _, positions in trace.words if keep or not trace.special[positions[0]]]
        changes = [probability(()) - probability(word) for word in words]
        sums = [sum(scores[i] for i in word) for word in words]
        made = faithfulness.blank_out_faithfulness(trace, scores, unit="word", keep_special=keep)
        assert made == pytest.approx(agreement.spearman(sums, changes), abs=1e-12)
        assert made != faithfulness.blank_out_faithfulness(trace, scores, keep_special=keep)
        at_hand = faithfulness.blanked_units(trace, unit="word", keep_special=keep)
        assert (
            faithfulness.blank_out_faithfulness(trace, scores, unit="word", keep_special=keep, blanked=at_hand) == made
        )
        by_size = faithfulness.blanked_units(trace, unit="word", keep_special=keep, absolute=True)
        assert by_size.tolist() == np.abs(at_hand).tolist()
        assert removal.by_unit(at_hand, words) == pytest.approx(changes, abs=1e-12)  # float64, another batch
    of_tokens = mixlens.attribute(trace, "blank_out", replacement="unk").scores
    assert faithfulness.blanked_units(trace).tolist() == of_tokens.double().tolist()


def test_sentences_are_units_too() -> None:
    trace = mixlens.load("sentiment").trace("The plot was dull. But the music was good! And so")
    units = removal.removable_units(trace, targets.resolve(trace), "sentence")
    assert [trace.tokens[unit[-1]] for unit in units[:2]] == [".", "!"]
    assert [i for unit in units for i in unit] == [i for i in range(len(trace)) if not trace.special[i]]
    with pytest.raises(InputError, match="unknown unit 'phrase'"):
        removal.units_of(trace, "phrase", ())


def test_gaps_are_filled_with_the_most_probable_other_token(gap: Any) -> None:
    """A word is masked, and the model's own best other guess stands in its place; at some places its best guess is the
    word."""
    model, repeated = gap.model, 0
    target = targets.resolve(gap, "were", foil="was", score="log_probability")
    for place in [i for i in range(len(gap)) if not gap.special[i] and i != gap.query]:
        masked, filled = list(gap.input_ids), list(gap.input_ids)
        masked[place] = model.tokenizer.mask_token_id
        with torch.no_grad():
            logits = model.hf_model(torch.tensor([masked])).logits[0, place]
        forbidden = {*model.tokenizer.all_special_ids, gap.input_ids[place]}
        filled[place] = max((i for i in range(len(logits)) if i not in forbidden), key=lambda i: float(logits[i]))
        repeated += int(logits.argmax()) == gap.input_ids[place]
        with torch.no_grad():
            expected = float(target.of(model.hf_model(torch.tensor([filled]))))
        for filler in ("infill", removal.Infill(model)):
            assert removal.outcomes(gap, [[place]], target, replacement=filler) == pytest.approx(expected, abs=1e-12)
    assert repeated


def test_a_classifier_cannot_fill_gaps(review: Any, gap: Any) -> None:
    with pytest.raises(InputError, match="needs a masked language model, and 'sentiment' is none"):
        faithfulness.aopc(review, noise(review), replacement="infill")
    with pytest.raises(InputError, match="their vocabularies differ"):
        faithfulness.aopc(review, noise(review), replacement=removal.Infill(gap.model))


def test_spans_are_read_without_the_padding_of_their_batch() -> None:
    """Texts of several lengths share a pass; a probability over positions counts those of the text alone."""
    model = mixlens.load(hf_model("bert", head="AutoModelForQuestionAnswering"))
    trace = model.trace(input_ids=ids(9))
    target = targets.resolve(trace, (1, 2), score="log_probability")
    gone = [[], [5], [5, 6], [4, 6, 7]]
    together = removal.outcomes(trace, gone, target)
    alone = [float(removal.outcomes(trace, [one], target)[0]) for one in gone]
    assert together == pytest.approx(alone, abs=1e-12)
