"""The verdict in both directions, on made-up numbers; which words are named; what the sentences then say."""

from __future__ import annotations

import numpy as np
import pytest

from mixlens.errors import InputError
from mixlens.why import choice, rules, sentences, trust
from mixlens.why.value import Agreement, Gaps, Random, Single, Word
from mixlens.why.words import Piece


@pytest.mark.parametrize(
    ("whole", "without", "random", "state"),
    [
        (0.99, 0.01, 0.95, "ok"),
        (0.99, 0.74, 0.95, "ok"),  # 21 points more than random words
        (0.99, 0.80, 0.95, "caution"),
        (0.99, 0.91, 0.95, "fail"),
        (0.99, 0.50, 0.40, "fail"),  # random words change more
        (0.04, 0.01, 0.04, "ok"),  # three quarters of a small probability are lost
        (0.04, 0.039, 0.04, "fail"),
        (0.0, 0.0, 0.0, "fail"),
    ],
)
def test_named_words_are_compared_with_random_ones(whole: float, without: float, random: float, state: str) -> None:
    assert rules.removal_state(whole, without, random) == state


def test_the_limits_are_those_of_the_table() -> None:
    at = choice.LIMITS
    assert rules.removal_state(1.0, 0.5, 0.5 + at["removal_ok"] + 1e-9) == "ok"
    assert rules.removal_state(1.0, 0.5, 0.5 + at["removal_ok"] - 0.001) == "caution"
    assert rules.removal_state(1.0, 0.5, 0.5 + at["removal_caution"] - 0.001) == "fail"
    assert [rules.completeness_state(gap) for gap in (0.01, 0.011, 0.05, 0.051)] == ["ok", "caution", "caution", "fail"]
    assert [rules.agreement_state(same, 5) for same in (5, 3, 2, 1)] == ["ok", "ok", "caution", "fail"]
    assert rules.agreement_state(2, 4) == "caution"  # half is not more than half
    assert rules.agreement_state(1, 1) == "info"  # one method alone agrees with nobody


def test_methods_that_disagree_ask_for_caution_and_no_vote_saves_a_failed_removal() -> None:
    assert rules.verdict("ok", "ok", "ok") == "ok"
    assert rules.verdict("ok", "ok", "fail") == "caution"
    assert rules.verdict("fail", "ok", "ok") == "fail"
    assert rules.verdict("ok", "fail", "ok") == "fail"
    assert rules.verdict("ok", None, "info") == "ok"
    assert rules.verdict("caution", "ok", "ok") == "caution"


def test_at_most_three_words_are_named_and_none_that_is_weak() -> None:
    free = list(range(8))
    assert rules.named_for([9, 8, 7, 6, 5, 0, 0, 0], free) == [0, 1, 2]
    assert rules.named_for([9, 2, 4, 0, 0, 0, 0, 0], free) == [0, 2]  # 2 is under a third of 9
    assert rules.named_for([-1, -2, 0, 0, 0, 0, 0, 0], free) == []
    assert rules.named_for([5, 4, 3, 0], [0, 1, 2, 3]) == [0, 1]  # half of a text of four words
    assert rules.named_for([5.0], [0]) == [0]
    assert rules.named_against([9, -3, 1], [0, 1, 2]) == [1]
    assert rules.named_against([9, -2.9, 1], [0, 1, 2]) == []
    assert rules.named_against([1, 2], [0, 1]) == []
    assert rules.named_against([], []) == []


def random(mean: float, *, all_: bool = False, turned: int = 0) -> Random:
    return Random(mean, mean, mean, 20, all_, turned, (mean,) * 20)


def said(removal: str, verdict: str, *, k: int = 3, without: float = 0.001, turned: bool = True, mean: float = 0.945) -> str:
    return sentences.verdict_sentence(verdict, removal, k, 0.999, without, turned, random(mean))


def test_the_verdict_is_said_in_words() -> None:
    assert said("ok", "ok") == "Yes, for these three words: the answer turns without them."
    assert said("ok", "ok", k=1, turned=False, without=0.7, mean=0.99) == (
        "Yes, for this word: without it the answer changes by −30 points, without one random word by −0.9 points."
    )
    assert said("fail", "fail", turned=False, without=0.98) == (
        "No: without them the answer changes by −1.9 points, without three random words by −5.4 points."
    )
    assert said("ok", "caution").endswith("See the lines that are marked.")
    assert said("fail", "fail", k=0).startswith("No: no word speaks for the answer")


def test_a_failed_removal_contradicts_the_headline() -> None:
    assert sentences.but("ok", 0.99, 0.01, 0.9) == ""
    assert sentences.but("fail", 0.99, 0.98, 0.985) == ", but taking these words out changes little"
    assert sentences.but("fail", 0.99, 0.98, 0.90) == ", but taking random words out changes more"


def test_checks_carry_their_states() -> None:
    words = [Word("wastes", "", "text", False, False, 1.0, 1.0, (1,))]
    found = sentences.checks(
        3, 0.999, 0.001, random(0.945, turned=1), Single(0, 0.998, False), Agreement(5, 5, 3), Gaps(1e-5, 4.6e-7), words
    )
    told = {check.id: (check.state, check.title.replace("\u202f", " ")) for check in found}
    assert told == {
        "removal": ("ok", "Without these three words: 99.9 % becomes 0.1 %."),
        "agreement": ("ok", "Five of five methods put the same three words first."),
        "completeness": ("ok", "Nothing is missing."),
        "single": ("info", "No single word decides."),
        "reconstruction": ("info", "The model was taken apart and put together again."),
    }
    open_sum = sentences.checks(1, 0.9, 0.9, random(0.5), Single(0, 0.2, True), Agreement(1, 4, 1), Gaps(0.98, None), words)
    assert [(check.id, check.state) for check in open_sum] == [
        ("removal", "fail"),
        ("agreement", "fail"),
        ("completeness", "fail"),
        ("single", "info"),
    ]
    assert open_sum[-1].title == "One word decides: “wastes”."


# --- random sets --------------------------------------------------------------------------------------------------------


def test_few_sets_are_all_taken_and_many_are_drawn_without_repeats() -> None:
    every, all_ = trust.random_sets(range(9), 3, 20, np.random.default_rng(0))
    assert all_
    assert len(every) == len(set(every)) == 84
    drawn, all_ = trust.random_sets(range(30), 3, 20, np.random.default_rng(0))
    assert not all_
    assert len(drawn) == len(set(drawn)) == 20
    assert all(len(one) == 3 and one <= set(range(30)) for one in drawn)
    again, _ = trust.random_sets(range(30), 3, 20, np.random.default_rng(0))
    other, _ = trust.random_sets(range(30), 3, 20, np.random.default_rng(1))
    assert drawn == again != other


def test_a_plan_ends_where_the_text_does() -> None:
    plan = trust.plan_of([3.0, 1.0, 2.0], [0], [0, 1, 2], tokens=5, draws=4, seed=0)
    assert plan.order == (0, 2, 1)
    assert {frozenset(order) for order in plan.orders} == {frozenset({0, 1, 2})}
    long = trust.plan_of(list(range(300)), [299], range(300), tokens=310, draws=20, seed=0)
    assert len(long.order) == choice.FEW_STEPS
    assert len(long.orders) == 2  # the fewest, as a long text takes long


def test_marks_are_words_only_where_there_is_nothing_else() -> None:
    from mixlens.why.words import removable

    def piece(text: str, place: int, *, special: bool = False) -> Piece:
        return Piece(text, "", "text", special, (place,))

    pieces = [piece("[CLS]", 0, special=True), piece("good", 1), piece("!", 2), piece("🙂", 3)]
    assert removable(pieces, {0}) == [1, 3]
    assert removable(pieces[:1] + pieces[2:3], {0}) == [1]
    assert removable(pieces, {0, 1, 3}) == [2]


def test_an_unknown_filler_names_the_known_ones() -> None:
    import mixlens

    with pytest.raises(InputError, match=r"unknown filler 'deleet'\. Did you mean 'delete'\?"):
        choice.filler_for(mixlens.load("sentiment"), "deleet")
