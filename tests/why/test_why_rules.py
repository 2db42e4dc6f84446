"""Which words are named, what the numbers of trust come to, and what is then said: on made-up numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import why_example

import mixlens
from mixlens import answers
from mixlens.answers import rules
from mixlens.base import text as wording

TURNED = {"whole": 0.999, "without": 0.001, "random": 0.945, "k": 3, "turned": True}


def measured(whole: float, without: float, random: float, **facts: Any) -> rules.Measured:
    return rules.Measured(whole, without, random, **facts)


@pytest.mark.parametrize(
    ("numbers", "facts", "state"),
    [
        ((0.99, 0.01, 0.95), {}, "ok"),
        ((0.99, 0.74, 0.95), {}, "ok"),  # 21 points more than random words
        ((0.99, 0.80, 0.95), {}, "caution"),
        ((0.99, 0.91, 0.95), {}, "fail"),
        ((0.99, 0.50, 0.40), {}, "fail"),  # random words change more
        ((0.04, 0.01, 0.04), {}, "caution"),  # three quarters of a small probability are lost
        ((0.04, 0.039, 0.04), {}, "fail"),
        ((0.004, 0.001, 0.004), {}, "fail"),  # less than a point is no effect, whatever part of the answer it is
        ((0.0, 0.0, 0.0), {}, "fail"),
        ((0.44, 0.56, 0.99), {}, "fail"),  # a rise is no fall, however much random words raise it
        ((0.90, 0.88, 0.99), {}, "fail"),  # random words that raise the answer do not help the named ones
        ((0.519, 0.10, 0.50), {}, "caution"),  # a coin toss is turned by little
        ((0.04, 0.01, 0.04), {"predicted": False}, "fail"),  # what is not said counts as it is measured: three points
        ((0.30, 0.05, 0.29), {"predicted": False}, "ok"),
        ((0.99, 0.05, 0.60), {"turned": True, "random_turned": 7}, "ok"),
        ((0.99, 0.05, 0.60), {"turned": True, "random_turned": 8}, "caution"),
        ((0.99, 0.05, 0.60), {"turned": True, "count": 0}, "caution"),  # nothing to compare with
        ((0.99, 0.05, 0.60), {"turned": True, "count": 3, "random_turned": 1}, "ok"),
        ((0.999, 0.996, 0.50), {"k": 2, "single": 0.029}, "caution"),  # "not bad": without one of the two it turns
        ((0.999, 0.996, 0.50), {"k": 1, "single": 0.029}, "fail"),
        ((0.999, 0.996, 0.01), {"k": 2, "single": 0.029}, "fail"),  # random words do more
        ((0.72, 0.10, 0.70), {"k": 3, "turned": True, "single": 0.05, "each": (0.81, 0.78, 0.05)}, "caution"),
        ((0.72, 0.10, 0.70), {"k": 3, "turned": True, "single": 0.05, "each": (0.769, 0.72, 0.05)}, "ok"),
        ((0.99, 0.01, 0.95), {"k": 0}, "fail"),
    ],
)
def test_named_words_are_compared_with_random_ones(
    numbers: tuple[float, float, float], facts: dict[str, Any], state: str
) -> None:
    assert rules.state_of("removal", measured(*numbers, **facts)) == state


def test_words_act_together_or_contradict_their_scores_never_both() -> None:
    both = measured(0.999, 0.996, 0.50, k=2, single=0.029)
    assert both.together
    assert not replace(both, single=0.98).together
    assert not replace(both, without=0.01).together  # the words turn it: nothing to explain
    three = measured(0.72, 0.10, 0.70, k=3, turned=True, single=0.05, each=(0.81, 0.78, 0.05))
    assert three.raising == [0, 1]
    assert replace(three, k=1, each=(0.81,)).raising == []  # one word alone fails by itself
    assert measured(0.72, 0.72, 0.71, k=2, single=0.02, each=(0.02, 0.9)).raising == []
    assert measured(0.04, 0.01, 0.04).advantage == pytest.approx(0.03 * 0.5 / 0.04)
    assert measured(0.04, 0.01, 0.04, predicted=False).advantage == pytest.approx(0.03)


def test_the_limits_are_those_of_the_table() -> None:
    at = rules.LIMITS
    for fall, state in (
        (at["removal_ok"] + 1e-9, "ok"),
        (at["removal_ok"] - 0.001, "caution"),
        (at["removal_caution"] - 0.001, "fail"),
    ):
        assert rules.state_of("removal", measured(1.0, 0.5, 0.5 + fall)) == state
    good = measured(1.0, 0.1, 1.0)
    sums = {0.01: "ok", 0.011: "caution", 0.05: "caution", 0.051: "fail"}
    assert {gap: rules.state_of("completeness", replace(good, gap=gap)) for gap in sums} == sums
    votes = {(5, 5): "ok", (3, 5): "ok", (2, 5): "caution", (1, 5): "fail", (2, 4): "caution", (1, 1): "info"}
    assert {vote: rules.state_of("agreement", replace(good, same=vote[0], of=vote[1])) for vote in votes} == votes


@pytest.mark.parametrize(
    ("without", "gap", "same", "verdict"),
    [
        *((0.1, 0.0, 5, "ok"), (0.1, 0.0, 1, "caution"), (0.99, 0.0, 5, "fail"), (0.1, 0.2, 5, "fail")),
        (0.1, None, 5, "ok"),
        (0.9, 0.0, 5, "caution"),
    ],
)
def test_methods_that_disagree_ask_for_caution_and_no_vote_saves_a_failed_removal(
    without: float, gap: float | None, same: int, verdict: str
) -> None:
    assert rules.state_of("verdict", measured(1.0, without, 1.0, gap=gap, same=same, of=5)) == verdict


@pytest.mark.parametrize(
    ("scores", "free", "sign", "named"),
    [
        ([9, 8, 7, 6, 5, 0, 0, 0], range(8), 1, [0, 1, 2]),
        ([9, 2, 4, 0, 0, 0, 0, 0], range(8), 1, [0, 2]),  # 2 is under a third of 9
        ([-1, -2, 0, 0, 0, 0, 0, 0], range(8), 1, []),
        ([5, 4, 3, 0], range(4), 1, [0, 1]),  # half of a text of four words
        ([5.0], range(1), 1, [0]),
        ([9, -3, 1], range(3), -1, [1]),
        ([9, -2.9, 1], range(3), -1, []),  # a third of the strongest, for or against
        ([1, 2], range(2), -1, []),
        ([], range(0), -1, []),
        ([-5, -9, -4, -3, -2, 0, 0, 0], range(8), -1, [1, 0, 2]),
        ([9, -3, -2.9, -4, 0, 0, 0, 0], range(8), -1, [3, 1]),
    ],
)
def test_at_most_three_words_are_named_and_none_that_is_weak(
    scores: list[float], free: range, sign: int, named: list[int]
) -> None:
    assert rules.named(scores, free, sign) == named


def test_a_share_near_zero_makes_no_first_word() -> None:
    assert rules.first_words([0.9, 0.029, 0.03, 0.0], range(4), 3) == {0, 2}
    assert rules.first_words([0.0] * 4, range(4), 1) == set()
    assert rules.first_words([0.012, *[0.988 / 99] * 99], range(100), 1) == {0}  # in a long text every share is small


@pytest.mark.parametrize(
    ("whole", "single", "turned", "predicted", "decides"),
    [
        (0.9, 0.6, True, True, True),
        (0.9, 0.6, False, True, False),
        (0.436, 0.001, False, False, True),  # the model never said it: there is nothing to turn from
        (0.436, 0.3, False, False, False),
        (0.03, 0.001, False, False, False),  # too little to decide anything
    ],
)
def test_one_word_decides_also_of_a_target_that_is_not_said(
    whole: float, single: float, turned: bool, predicted: bool, decides: bool
) -> None:
    one = measured(whole, 0.2, 0.2, predicted=predicted, single=single)
    assert rules.decides(one, turned=turned) is decides


# --- what is said -----------------------------------------------------------------------------------------------------


def made(
    whole: float = 0.999,
    without: float = 0.001,
    random: float = 0.945,
    *,
    k: int = 3,
    turned: bool = False,
    count: int = 20,
    random_turned: int = 0,
    single: tuple[float, bool] | None = None,
    each: tuple[float, ...] = (),
    answer: Any = (),
    **changed: Any,
) -> mixlens.Why:
    """A made-up answer: of “superb”, “acting” and “but” for it the first k."""
    sets = {"mean": random, "low": random, "high": random, "count": count, "all": False, "turned": random_turned}
    trust = why_example.trust(k=k, whole=whole, without=without, turned=turned, without_each=list(each), checks=[])
    trust["random"] = {**sets, "values": [random] * count}
    trust["single"] = None if single is None else {"word": 6, "without": single[0], "turned": single[1]}
    given = {**why_example.example()["answer"], "for": [6, 7, 5][:k], "against": [], **dict(answer)}
    agreed = {"agreement": {"same": 2, "of": 2, "k": k}, "gaps": {"completeness": None, "reconstruction": None}}
    return answers.from_dict(why_example.example(answer=given, trust=trust, **{**agreed, **changed}))


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


UNSAID = {"predicted": False, "probability": 0.05, "target": "negative"}


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"turned": True}, "Yes, for these three words: without them the model says something else."),
        (
            {"k": 1, "without": 0.7, "random": 0.99},
            "Yes, for this word: without it the answer changes by −30 points, without one random word by −0.9 points.",
        ),
        (
            {"without": 0.98},
            "No: without them the answer changes by −1.9 points, without three random words by −5.4 points.",
        ),
        (
            {"turned": True, "agreement": {"same": 1, "of": 3, "k": 3}},
            "Partly, for these three words: without them the model says something else. See the lines that are marked.",
        ),
        ({"k": 0}, "No: no word speaks for the answer, so there is nothing to take out."),
        (
            {"turned": True, "random_turned": 9},
            "Partly, for these three words: without them the model says something else, but also without 9 of 20 "
            "random "
            "sets.",
        ),
        (
            {"k": 1, "whole": 0.519, "random": 0.5, "turned": True},
            "Partly, for this word: without it the model says something else, but the answer was near even before "
            "(51.9 %).",
        ),
        (
            {"k": 2, "without": 0.996, "random": 0.5, "single": (0.029, True)},
            "Partly: the words act together. Without them the answer changes by −0.3 points; without “superb” alone "
            "it is "
            "2.9 %.",
        ),
        (
            {"k": 1, "count": 0, "random": 0.999, "turned": True},
            "Partly, for this word: without it the answer changes by −100 points; there is nothing to compare with.",
        ),
        (
            {"k": 1, "whole": 0.04, "without": 0.01, "random": 0.04, "answer": UNSAID},
            "No: the model does not say negative; without it the probability of negative changes by −3 points, "
            "without one "
            "random word by 0 points.",
        ),
        (
            {"whole": 0.72, "without": 0.1, "random": 0.7, "turned": True, "each": (0.81, 0.78, 0.05)},
            "Partly, for these three words: without them the model says something else; taking “superb” or “acting” "
            "out "
            "alone raises it.",
        ),
    ],
)
def test_the_verdict_is_said_in_words(facts: dict[str, Any], verdict: str) -> None:
    assert plain(made(**facts).trust.sentence) == verdict


@pytest.mark.parametrize(
    ("facts", "but"),
    [
        ({"whole": 0.99, "without": 0.01, "random": 0.9}, ""),
        ({"whole": 0.99, "without": 0.98, "random": 0.985}, ", but taking these words out changes little"),
        ({"whole": 0.99, "without": 0.98, "random": 0.985, "k": 1}, ", but taking this word out changes little"),
        ({"whole": 0.99, "without": 0.98, "random": 0.90}, ", but taking random words out changes more"),
        (
            {"whole": 0.99, "without": 0.4, "random": 0.41},
            ", but taking these words out changes no more than random words do",
        ),
        ({"whole": 0.44, "without": 0.56, "random": 0.5, "k": 1}, ", but taking this word out makes it more likely"),
        ({"whole": 0.99, "without": 0.4, "random": 0.99, "count": 0, "k": 1}, ", with nothing to compare with"),
        ({"k": 2, "without": 0.996, "random": 0.5, "single": (0.029, True)}, ", which act together"),
        (
            {"whole": 0.72, "without": 0.1, "random": 0.7, "each": (0.81, 0.78, 0.05)},
            ", though taking “superb” or “acting” out alone makes it more likely",
        ),
        (
            {"whole": 0.72, "without": 0.1, "random": 0.7, "each": (0.81, 0.7, 0.05), "answer": {"foil": "negative"}},
            ", though taking “superb” out alone makes positive likelier against negative",
        ),
    ],
)
def test_a_failed_removal_contradicts_the_headline(facts: dict[str, Any], but: str) -> None:
    why = made(**facts)
    assert plain(why.trust.but) == but
    assert but in why.sentence


def test_the_headline_quotes_words_says_which_one_of_several_and_has_both_numbers_against_a_foil() -> None:
    words = [{**one, "text": {1: "acting"}.get(k, one["text"])} for k, one in enumerate(why_example.example()["words"])]
    assert plain(made(words=words, k=2).sentence) == "positive (95.0 %), because of “superb”, “acting” (6th word)"
    against = {"foil": "negative", "against": [2]}
    assert plain(made(whole=0.98, k=1, answer=against).sentence) == (
        "positive rather than negative (95.0 %; 98.0 % of the two), because of “superb”; against it: “thin”"
    )
    same = made(whole=0.95, k=1, answer={"foil": "negative"})  # two classes: one number
    assert plain(same.sentence) == "positive rather than negative (95.0 %), because of “superb”"
    unsaid = made(whole=0.3, without=0.01, random=0.29, k=1, answer={**UNSAID, "foil": "neutral"})
    assert plain(unsaid.sentence) == (
        "5.0 % for negative rather than neutral (30.0 % of the two); the model says positive (95.0 %); for negative: "
        "“superb”"
    )


@pytest.mark.parametrize(
    ("task", "answer", "question"),
    [
        ("question-answering", {}, "Why did the model answer “positive”?"),
        ("question-answering", {"predicted": False}, "What speaks for the answer “positive”?"),
        ("token-classification", {"word": "keys"}, "Why did the model tag “keys” as positive?"),
        ("token-classification", {"word": "keys", "predicted": False}, "What speaks for tagging “keys” as positive?"),
        ("masked-lm", {"predicted": False, "foil": "neutral"}, "What speaks for positive rather than neutral?"),
    ],
)
def test_a_title_asks_why_only_of_what_the_model_says(task: str, answer: dict[str, Any], question: str) -> None:
    assert made(task=task, answer=answer).question == question


def test_checks_carry_their_states_and_numbers_of_sets_agree_with_their_verbs() -> None:
    why = made(random_turned=1, single=(0.998, False), turned=True)
    assert [(one.id, one.state, f"{plain(one.title)} {plain(one.detail)}") for one in why.trust.checks] == [
        ("removal", "ok", "Without these three words: 99.9 % becomes 0.1 %. The model now says negative."),
        (
            "random",
            "info",
            "Without three random words: 94.5 % on average. 20 draws; in 1 the model says something else.",
        ),
        ("alone", "info", "With these three words alone: 99.0 %. Every other word taken out."),
        ("agreement", "ok", "Two of two methods put the same three words first. The leading method is one of them."),
        ("single", "info", "No single word decides. Without “superb” alone it is still 99.8 %; with it 99.9 %."),
    ]
    two = {one.id: f"{plain(one.title)} {plain(one.detail)}" for one in unsaid_of_two(2).trust.checks}
    assert two["removal"].startswith("Without this word: 30.0 % of the two becomes 1.0 %.")
    assert two["random"].endswith("20 draws; in 2 neutral is likelier.")
    assert two["single"] == "One word decides: “superb”. Without “superb” alone it is 1.0 % of the two; with it 30.0 %."
    none = {one.id: plain(one.detail) for one in unsaid_of_two(0).trust.checks}
    assert none["random"] == "20 draws; in none is neutral likelier."


def unsaid_of_two(turned: int) -> mixlens.Why:
    answer = {**UNSAID, "foil": "neutral"}
    return made(0.3, 0.01, 0.29, k=1, random_turned=turned, single=(0.01, False), answer=answer)


def test_the_lines_of_a_foil_say_what_is_measured_and_what_the_model_says_then() -> None:
    why = made(answer={"foil": "neutral"}, k=1)
    line = plain(why.told.without)
    assert line.startswith("without this word: of the two classes positive and neutral, positive has 0.1 % (")
    assert line.endswith("; the model then says negative; words are deleted")
    assert ": of the two words positive" in plain(made(answer={"foil": "neutral"}, classes=None).told.without)
    assert plain(made().told.without) == (
        "without these three words: 0.1 % positive (three random words: 94.5 % on average, 20 draws); words are deleted"
    )


def test_ordinals() -> None:
    places = (1, 2, 3, 4, 11, 12, 21, 112)
    assert [wording.ordinal(place) for place in places] == ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th"]


@pytest.mark.parametrize(("text", "free"), [("good ! 🙂", {"good", "🙂"}), ("!", {"!"})])
def test_marks_are_words_only_where_there_is_nothing_else(text: str, free: set[str]) -> None:
    why = mixlens.load("sentiment").why(text, methods=["grad_x_input"], draws=200)
    assert len(why.trust.curve.first) == len(free) + 1  # as many steps as there are words to take out
    assert {why.words[place].text for place in why.answer.for_} <= free
