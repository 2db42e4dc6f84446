"""The verdict in both directions, on made-up numbers; which words are named; what the sentences then say."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mixlens
from mixlens.answers import choice, rules, sentences, trust
from mixlens.answers.value import Agreement, Gaps, Random, Single, Word
from mixlens.answers.words import Piece
from mixlens.base.errors import InputError
from mixlens.base.text import ordinal
from mixlens.show import why_text


@pytest.mark.parametrize(
    ("whole", "without", "random", "state"),
    [
        (0.99, 0.01, 0.95, "ok"),
        (0.99, 0.74, 0.95, "ok"),  # 21 points more than random words
        (0.99, 0.80, 0.95, "caution"),
        (0.99, 0.91, 0.95, "fail"),
        (0.99, 0.50, 0.40, "fail"),  # random words change more
        (0.04, 0.01, 0.04, "caution"),  # three quarters of a small probability are lost
        (0.04, 0.039, 0.04, "fail"),
        (0.004, 0.001, 0.004, "fail"),  # less than a point is no effect, whatever part of the answer it is
        (0.0, 0.0, 0.0, "fail"),
        (0.44, 0.56, 0.99, "fail"),  # a rise is no fall, however much random words raise it
        (0.90, 0.88, 0.99, "fail"),  # random words that raise the answer do not help the named ones
        (0.519, 0.10, 0.50, "caution"),  # a coin toss is turned by little
    ],
)
def test_named_words_are_compared_with_random_ones(whole: float, without: float, random: float, state: str) -> None:
    assert rules.removal_state(rules.Fall(whole, without, random)) == state


def test_a_target_that_the_model_does_not_say_counts_as_it_is_measured() -> None:
    assert rules.removal_state(rules.Fall(0.04, 0.01, 0.04, predicted=False)) == "fail"  # three points
    assert rules.removal_state(rules.Fall(0.30, 0.05, 0.29, predicted=False)) == "ok"
    assert rules.advantage(rules.Fall(0.04, 0.01, 0.04, predicted=False)) == pytest.approx(0.03)
    assert rules.advantage(rules.Fall(0.04, 0.01, 0.04)) == pytest.approx(0.03 * 0.5 / 0.04)


@pytest.mark.parametrize(
    ("count", "random_turned", "state"), [(20, 7, "ok"), (20, 8, "caution"), (0, 0, "caution"), (3, 1, "ok")]
)
def test_random_sets_that_turn_the_answer_and_a_text_without_other_sets_ask_for_caution(
    count: int, random_turned: int, state: str
) -> None:
    fall = rules.Fall(0.99, 0.05, 0.60, turned=True, count=count, random_turned=random_turned)
    assert rules.removal_state(fall) == state


def test_words_that_act_together_ask_for_caution() -> None:
    """Without "not" and "bad" the answer stays, without one of them it turns."""
    both = rules.Fall(0.999, 0.996, 0.50, k=2, single=0.029)
    assert rules.removal_state(both) == "caution"
    assert rules.act_together(both)
    assert not rules.act_together(rules.Fall(0.999, 0.996, 0.50, k=2, single=0.98))
    assert not rules.act_together(
        rules.Fall(0.999, 0.01, 0.9, k=2, single=0.029)
    )  # the words turn it: nothing to explain
    assert not rules.act_together(rules.Fall(0.999, 0.996, 0.01, k=2, single=0.029))  # random words do more
    assert rules.removal_state(rules.Fall(0.999, 0.996, 0.50, k=1, single=0.029)) == "fail"


def test_a_named_word_whose_own_removal_raises_the_answer_contradicts_its_score() -> None:
    """Without “to” alone 81 %, without “the” alone 76 %, without “rusty” alone 5 %, without all 10 %; with all 72 %."""
    fall = rules.Fall(0.72, 0.10, 0.70, k=3, turned=True, single=0.05, each=(0.81, 0.78, 0.05))
    assert rules.raising(fall) == [0, 1]
    assert rules.removal_state(fall) == "caution"
    assert rules.removal_state(replace(fall, each=(0.769, 0.72, 0.05))) == "ok"  # five points or less
    assert rules.raising(replace(fall, k=1, each=(0.81,))) == []  # one word alone fails by itself
    assert rules.removal_state(replace(fall, without=0.71)) == "caution"
    together = rules.Fall(0.72, 0.72, 0.71, k=2, single=0.02, each=(0.02, 0.9))
    assert (rules.act_together(together), rules.raising(together)) == (True, [])
    assert sentences.but(together, None, "", ["“to”"]) == ", which act together"
    assert (
        sentences.but(fall, None, "", ["“to”", "“the”"])
        == ", though taking “to” or “the” out alone makes it more likely"
    )
    pair = ("were", "look")
    assert sentences.but(fall, pair, "", ["“to”"]) == ", though taking “to” out alone makes were likelier against look"
    assert sentences.verdict_sentence("caution", fall, asked(), "rusty", ["“to”", "“the”"]) == (
        "Partly, for these three words: without them the model says something else; taking “to” or “the” out alone raises it."
    )


def test_against_a_foil_the_headline_has_both_numbers_and_every_share_says_of_what() -> None:
    words = [Word("rusty", " ", "text", False, False, 1.0, 0.2, (0,))]

    def told(question: Any, measured: float) -> str:
        return sentences.headline(question, words, [0], [], "", measured).replace("\u202f", " ")

    assert (
        told(asked(foil="neutral"), 0.95)
        == "negative rather than neutral (90.0 %; 95.0 % of the two), because of “rusty”"
    )
    assert (
        told(asked(foil="neutral"), 0.9) == "negative rather than neutral (90.0 %), because of “rusty”"
    )  # two classes
    assert told(asked(), 0.95) == "negative (90.0 %), because of “rusty”"
    unsaid = told(asked(predicted=False, foil="neutral"), 0.95)
    assert unsaid.startswith(
        "10.0 % for negative rather than neutral (95.0 % of the two); the model says positive (80.0 %); for"
    )
    fall = rules.Fall(0.72, 0.10, 0.70, k=1, single=0.05)
    found = sentences.checks(
        fall, random(0.7), Single(0, 0.05, True), Agreement(1, 1, 1), Gaps(None, None), words, "neutral"
    )
    texts = [f"{check.title} {check.detail}".replace("\u202f", " ") for check in found]
    assert texts[0].startswith(
        "Without this word: 72.0 % of the two becomes 10.0 %. One random word: 70.0 % on average (20 draws;"
    )
    assert texts[1] == "One word decides: “rusty”. Without “rusty” alone it is 5.0 % of the two; with it 72.0 %."


def test_a_share_near_zero_makes_no_first_word() -> None:
    free = list(range(4))
    assert rules.first_words([0.9, 0.029, 0.03, 0.0], free, 3) == {0, 2}
    assert rules.first_words([0.0, 0.0, 0.0, 0.0], free, 1) == set()
    assert rules.first_words([0.012, *[0.988 / 99] * 99], range(100), 1) == {0}  # in a long text every share is small


def test_the_limits_are_those_of_the_table() -> None:
    at = choice.LIMITS
    assert rules.removal_state(rules.Fall(1.0, 0.5, 0.5 + at["removal_ok"] + 1e-9)) == "ok"
    assert rules.removal_state(rules.Fall(1.0, 0.5, 0.5 + at["removal_ok"] - 0.001)) == "caution"
    assert rules.removal_state(rules.Fall(1.0, 0.5, 0.5 + at["removal_caution"] - 0.001)) == "fail"
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
    assert rules.named_against([-5, -9, -4, -3, -2, 0, 0, 0], free) == [1, 0, 2]  # the strongest first, three at most
    assert rules.named_against([9, -3, -2.9, -4, 0, 0, 0, 0], free) == [
        3,
        1,
    ]  # a third of the strongest, for or against
    assert rules.named_against([-5, -4, -3, 0], [0, 1, 2, 3]) == [0, 1]  # half of a text of four words


def random(mean: float, *, all_: bool = False, turned: int = 0) -> Random:
    return Random(mean, mean, mean, 20, all_, turned, (mean,) * 20)


def asked(*, predicted: bool = True, foil: str | None = None) -> Any:
    """What a sentence needs to know of the question."""
    best = (("negative", 0.9),) if predicted else (("positive", 0.8), ("negative", 0.1))
    facts = {
        "name": "negative",
        "foil_name": foil,
        "word": None,
        "predicted": predicted,
        "probability": 0.9 if predicted else 0.1,
    }
    return SimpleNamespace(**facts, predictions=best)


def said(verdict: str, **facts: Any) -> str:
    fall = rules.Fall(**{"whole": 0.999, "without": 0.001, "random": 0.945, "k": 3, "turned": True, **facts})
    return sentences.verdict_sentence(verdict, fall, asked(predicted=fall.predicted), "bad").replace("\u202f", " ")


def test_the_verdict_is_said_in_words() -> None:
    assert said("ok") == "Yes, for these three words: without them the model says something else."
    assert said("ok", k=1, turned=False, without=0.7, random=0.99) == (
        "Yes, for this word: without it the answer changes by −30 points, without one random word by −0.9 points."
    )
    assert said("fail", turned=False, without=0.98) == (
        "No: without them the answer changes by −1.9 points, without three random words by −5.4 points."
    )
    assert said("caution").endswith("See the lines that are marked.")
    assert said("fail", k=0).startswith("No: no word speaks for the answer")


def test_caution_says_its_reason() -> None:
    assert said("caution", random_turned=9) == (
        "Partly, for these three words: without them the model says something else, but also without 9 of 20 random sets."
    )
    assert said("caution", k=1, whole=0.519, random=0.5) == (
        "Partly, for this word: without it the model says something else, but the answer was near even before (51.9 %)."
    )
    assert said("caution", k=2, without=0.996, random=0.5, turned=False, single=0.029) == (
        "Partly: the words act together. Without them the answer changes by −0.3 points; without “bad” alone it is 2.9 %."
    )
    assert said("caution", k=1, count=0, random=0.999).endswith(
        "changes by −100 points; there is nothing to compare with."
    )
    assert said("fail", k=1, whole=0.04, without=0.01, random=0.04, turned=False, predicted=False) == (
        "No: the model does not say negative; without it the probability of negative changes by −3 points, "
        "without one random word by 0 points."
    )


def test_a_failed_removal_contradicts_the_headline() -> None:
    def but(*numbers: float, **facts: Any) -> str:
        return sentences.but(rules.Fall(*numbers, **{"k": 2, **facts}))

    assert but(0.99, 0.01, 0.9) == ""
    assert but(0.99, 0.98, 0.985) == ", but taking these words out changes little"
    assert but(0.99, 0.98, 0.985, k=1) == ", but taking this word out changes little"
    assert but(0.99, 0.98, 0.90) == ", but taking random words out changes more"
    assert but(0.99, 0.40, 0.41) == ", but taking these words out changes no more than random words do"
    assert but(0.44, 0.56, 0.5, k=1) == ", but taking this word out makes it more likely"
    assert but(0.99, 0.40, 0.99, count=0, k=1) == ", with nothing to compare with"
    assert but(0.999, 0.996, 0.50, single=0.029) == ", which act together"


def test_the_headline_quotes_words_and_says_which_one_of_several() -> None:
    text = ["the", "keys", "to", "the", "and"]
    words = [Word(one, " ", "text", False, False, 1.0, 0.2, (place,)) for place, one in enumerate(text)]

    def told(question: Any, against: list[int]) -> str:
        return sentences.headline(question, words, [3, 4], against, "").replace("\u202f", " ")

    assert told(asked(), []) == "negative (90.0 %), because of “the” (4th word), “and”"
    assert told(asked(predicted=False, foil="neutral"), [1]) == (
        "10.0 % for negative rather than neutral; the model says positive (80.0 %); for negative: “the” (4th word), “and”; "
        "against it: “keys”"
    )


def test_a_title_asks_why_only_of_what_the_model_says() -> None:
    unsaid, said = asked(predicted=False), asked()
    assert sentences.question(said, "question-answering") == "Why did the model answer “negative”?"
    assert sentences.question(unsaid, "question-answering") == "What speaks for the answer “negative”?"
    unsaid.word = said.word = "keys"
    assert sentences.question(said, "token-classification") == "Why did the model tag “keys” as negative?"
    assert sentences.question(unsaid, "token-classification") == "What speaks for tagging “keys” as negative?"
    assert (
        sentences.question(asked(predicted=False, foil="neutral"), "masked-lm")
        == "What speaks for negative rather than neutral?"
    )


def test_numbers_of_sets_agree_with_their_verbs() -> None:
    one = Random(0.5, 0.5, 0.5, 1, True, 1, (0.5,))
    assert (sentences.draws(one), sentences.draws(random(0.5, all_=True))) == ("the one other set", "all 20 other sets")
    assert [sentences.turning(count) for count in (0, 1, 9)] == [
        "; in none does the model say something else",
        "; in 1 the model says something else",
        "; in 9 the model says something else",
    ]
    unsaid = [sentences.turning(count, predicted=False, foil="was") for count in (0, 9)]
    assert unsaid == ["; in none is was likelier", "; in 9 was is likelier"]
    assert sentences.turning(0, predicted=False) == ""  # what the model does not say it cannot turn from
    assert [ordinal(place) for place in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "21st",
        "112th",
    ]


def test_checks_carry_their_states() -> None:
    words = [Word("wastes", "", "text", False, False, 1.0, 1.0, (1,))]
    found = sentences.checks(
        rules.Fall(0.999, 0.001, 0.945, k=3),
        random(0.945, turned=1),
        Single(0, 0.998, False),
        Agreement(5, 5, 3),
        Gaps(1e-5, 4.6e-7),
        words,
    )
    told = {check.id: (check.state, check.title.replace("\u202f", " ")) for check in found}
    assert told == {
        "removal": ("ok", "Without these three words: 99.9 % becomes 0.1 %."),
        "agreement": ("ok", "Five of five methods put the same three words first."),
        "completeness": ("ok", "Nothing is missing."),
        "single": ("info", "No single word decides."),
        "reconstruction": ("info", "The model was taken apart and put together again."),
    }
    open_sum = sentences.checks(
        rules.Fall(0.9, 0.9, 0.5), random(0.5), Single(0, 0.2, True), Agreement(1, 4, 1), Gaps(0.98, None), words
    )
    assert [(check.id, check.state) for check in open_sum] == [
        ("removal", "fail"),
        ("agreement", "fail"),
        ("completeness", "fail"),
        ("single", "info"),
    ]
    assert open_sum[-1].title == "One word decides: “wastes”."


# --- random sets --------------------------------------------------------------------------------------------------------


def test_few_sets_are_all_taken_and_many_are_drawn_without_repeats() -> None:
    every, all_ = trust.random_sets(range(9), (0, 1, 2), 20, np.random.default_rng(0))
    assert all_
    assert len(every) == len(set(every)) == 83  # of 84, without the named one
    drawn, all_ = trust.random_sets(range(30), (0, 1, 2), 20, np.random.default_rng(0))
    assert not all_
    assert len(drawn) == len(set(drawn)) == 20
    assert all(len(one) == 3 and one <= set(range(30)) for one in drawn)
    again, _ = trust.random_sets(range(30), (0, 1, 2), 20, np.random.default_rng(0))
    other, _ = trust.random_sets(range(30), (0, 1, 2), 20, np.random.default_rng(1))
    assert drawn == again != other
    own = frozenset(drawn[0])
    assert own not in trust.random_sets(range(30), tuple(own), 20, np.random.default_rng(0))[0]
    assert trust.random_sets([4], (4,), 20, np.random.default_rng(0)) == ([], True)  # nothing to compare with


def test_a_plan_ends_where_the_text_does() -> None:
    plan = trust.plan_of([3.0, 1.0, 2.0], [0], [0, 1, 2], tokens=5, draws=4, seed=0)
    assert plan.order == (0, 2, 1)
    assert {frozenset(order) for order in plan.orders} == {frozenset({0, 1, 2})}
    long = trust.plan_of(list(range(300)), [299], range(300), tokens=310, draws=20, seed=0)
    assert len(long.order) == choice.FEW_STEPS
    assert len(long.orders) == 2  # the fewest, as a long text takes long


def test_marks_are_words_only_where_there_is_nothing_else() -> None:
    from mixlens.answers.words import removable

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


@pytest.mark.parametrize(
    ("whole", "without", "turned", "predicted", "decides"),
    [
        (0.9, 0.6, True, True, True),
        (0.9, 0.6, False, True, False),
        (0.436, 0.001, False, False, True),  # the model never said it: there is nothing to turn from
        (0.436, 0.3, False, False, False),
        (0.03, 0.001, False, False, False),  # too little to decide anything
    ],
)
def test_one_word_decides_also_of_a_target_that_is_not_said(
    whole: float, without: float, turned: bool, predicted: bool, decides: bool
) -> None:
    assert rules.decides(whole, without, turned=turned, predicted=predicted) is decides
    words = [Word("I", "", "text", False, False, 1.0, 1.0, (1,))]
    fall, single = rules.Fall(whole, 0.2, 0.2, predicted=predicted), Single(0, without, turned)
    (told,) = [
        one
        for one in sentences.checks(fall, random(0.2), single, Agreement(1, 1, 1), Gaps(None, None), words)
        if one.id == "single"
    ]
    assert told.title == ("One word decides: “I”." if decides else "No single word decides.")


def test_the_terminal_says_what_the_check_says() -> None:
    answer = mixlens.load("sentiment").why("I don't think this is good.", target="negative")
    rows = [title for _, title, _ in why_text.trust_rows(answer)]
    assert "one word decides" in rows
