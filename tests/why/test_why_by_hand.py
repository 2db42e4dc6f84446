"""The steps of an answer on made-up texts: what is asked, which sets are taken out, notes, values as files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.answers import asked as asking
from mixlens.answers import choice, facts, notes, rules, sentences, trust, value
from mixlens.answers import words as why_words
from mixlens.answers.rules import Fall
from mixlens.answers.value import (
    Agreement,
    Answer,
    Check,
    Curve,
    Filler,
    Gaps,
    Method,
    Note,
    Random,
    Reading,
    Single,
    Trust,
    Why,
    Word,
)
from mixlens.answers.words import Piece
from mixlens.base.errors import InputError, ResultError


class MadeTrace(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.tokens)


def made(task: str, tokens: list[str], logits: Any, **more: Any) -> Any:
    """A trace whose model has classes a, b, c (or outputs by number) and no tokenizer."""
    config = SimpleNamespace(id2label={0: "a", 1: "b", 2: "c"}, num_labels=3, vocab_size=8)
    tokenizer = SimpleNamespace(
        mask_token="[MASK]", unk_token="[UNK]", unk_token_id=9, all_special_tokens=["[CLS]", "[MASK]"]
    )
    model = SimpleNamespace(
        task=task, name="made", hf_model=SimpleNamespace(config=config), mask_id=None, tokenizer=None
    )
    model.logits = lambda trace: more.get("all_logits")
    trace = MadeTrace(
        model=model, tokens=tuple(tokens), logits=torch.tensor(logits), predicts=(1,), query=1, text=None, pair=None
    )
    trace.special, trace.input_ids, trace.words = (False,) * len(tokens), tuple(range(len(tokens))), None
    for name, given in more.items():
        setattr(trace, name, given)
    trace.filled = tokenizer
    return trace


def piece(
    text: str, *tokens: int, before: str = " ", segment: str = "text", special: bool = False, at: int = 0
) -> Piece:
    return Piece(text, before, segment, special, tokens, at, at if special else at + len(text))


def logits_of(*shares: float) -> list[float]:
    return [math.log(share) for share in shares]


# --- what is asked ----------------------------------------------------------------------------------------------------------


def test_a_class_is_asked_about_as_it_is_predicted() -> None:
    trace = made("classification", ["x", "y"], logits_of(0.2, 0.5, 0.3))
    found = asking.asked_of(trace, [], target=None, foil=None, query=None)
    assert (found.target, found.foil, found.query, found.name, found.foil_name) == (1, None, None, "b", None)
    assert (found.suggested, found.word, found.predicted, found.own) == (False, None, True, frozenset())
    assert found.probability == pytest.approx(0.5)
    assert found.predictions == (("b", pytest.approx(0.5)), ("c", pytest.approx(0.3)), ("a", pytest.approx(0.2)))
    assert (found.measured.ids, found.measured.foil, found.measured.score) == ((1,), None, "probability")
    other = asking.asked_of(trace, [], target="A", foil="c", query=None)
    assert (other.target, other.foil, other.name, other.foil_name, other.suggested) == (0, 2, "a", "c", False)
    assert (other.predicted, other.probability) == (False, pytest.approx(0.2))
    assert (other.measured.ids, other.measured.foil) == ((0,), 2)
    with pytest.raises(
        InputError, match=r"^query= names a word for a tagger or a language model; a classifier is asked about"
    ):
        asking.asked_of(trace, [], target=None, foil=None, query=0)


@pytest.mark.parametrize(
    ("shares", "foil"),
    [
        ((0.94, 0.051, 0.004, 0.005), 1),
        ((0.96, 0.03, 0.005, 0.005), None),
        ((0.49, 0.04, *[0.47 / 12] * 12), 1),
        ((0.51, 0.04, *[0.45 / 12] * 12), None),
    ],
)
def test_the_foil_of_a_language_model_is_a_second_word_that_counts(shares: tuple[float, ...], foil: int | None) -> None:
    trace = made("causal-lm", ["x", "y"], [logits_of(*shares)])
    trace.model.hf_model.config.vocab_size = len(shares)
    found = asking.asked_of(trace, [piece("x", 0)], target="predicted", foil=None, query=None)
    assert (found.target, found.foil, found.foil_name, found.suggested) == (
        0,
        foil,
        None if foil is None else "1",
        foil is not None,
    )
    assert (found.query, found.own, found.name, found.word) == (1, frozenset({1}), "0", None)
    assert len(found.predictions) == min(5, len(shares))
    named = asking.asked_of(trace, [], target=2, foil=None, query=None)
    assert (named.foil, named.suggested, named.predicted) == (None, False, False)
    given = asking.asked_of(trace, [], target=0, foil=2, query=None)
    assert (given.foil, given.suggested) == (2, False)


def test_the_foil_begins_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of powers of two have shares that are exact."""
    monkeypatch.setattr(asking, "FOIL", 0.25)
    shares = torch.tensor([0.5, 0.25, 0.125, 0.125])
    monkeypatch.setattr(torch.Tensor, "softmax", lambda self, axis: shares)
    model: Any = SimpleNamespace(task="masked-lm")
    assert asking._foil(model, shares, 0, None, None) == 1
    monkeypatch.setattr(asking, "FOIL", 0.26)
    assert asking._foil(model, shares, 0, None, None) is None  # the best one has half
    model.task = "classification"
    assert asking._foil(model, shares, 0, None, None) is None


def test_a_tagger_is_read_at_the_word_that_is_named() -> None:
    rows = torch.tensor([logits_of(0.6, 0.2, 0.2), logits_of(0.1, 0.1, 0.8), logits_of(0.2, 0.7, 0.1)])
    pieces = [piece("New", 0), piece("York", 1, 2), piece("!", 2), piece("[SEP]", 2, special=True)]
    trace = made(
        "token-classification", ["New", "Yo", "rk"], [logits_of(0.6, 0.2, 0.2)], predicts=(0,), all_logits=rows
    )
    found = asking.asked_of(trace, pieces, target=None, foil=None, query="york")
    assert (found.query, found.word, found.name, found.own) == (1, "York", "c", frozenset({1}))
    assert asking.asked_of(trace, pieces, target=None, foil=None, query="-1").query == 2
    with pytest.raises(InputError) as told:
        asking.asked_of(trace, pieces, target=None, foil=None, query=None)
    assert str(told.value) == "a tagger says something of every word. Name one: query=WORD. It tags: New a, York c."
    many = [piece(f"w{number}", 0) for number in range(13)]
    with pytest.raises(InputError, match=r"It tags: w0 a, .*w11 a, \.\.\.\.$"):
        asking.asked_of(trace, many, target=None, foil=None, query=None)
    with pytest.raises(InputError, match=r"w10 a, w11 a\.$"):
        asking.asked_of(trace, many[:12], target=None, foil=None, query=None)


def test_places_of_words() -> None:
    trace = made("causal-lm", ["x", "y", "z"], [[0.0] * 8])
    pieces = [piece("The", 0), piece("the", 1), piece("cat", 2)]
    assert asking.place_of(trace, pieces, "CAT") == 2
    assert (
        asking.place_of(trace, pieces, "y"),
        asking.place_of(trace, pieces, "1"),
        asking.place_of(trace, pieces, 0),
    ) == (
        1,
        1,
        0,
    )
    with pytest.raises(InputError) as told:
        asking.place_of(trace, pieces, "THE")
    assert str(told.value) == "the word 'THE' occurs 2 times, at [0, 1]. Say which one by its index."


def test_a_masked_model_needs_a_mask_or_a_word() -> None:
    trace = made("masked-lm", ["x", "y"], [[0.0] * 8])
    trace.model.mask_id, trace.model.tokenizer = 5, None
    trace.model.tokenizer = trace.filled
    with pytest.raises(InputError) as told:
        asking.asked_of(trace, [], target=None, foil=None, query=None)
    assert str(told.value).startswith(
        "the text has no [MASK], so 'made' predicts nothing here. Put [MASK] where a word is to be"
    )


def span_trace(pair: str | None = "big cat sat") -> tuple[Any, list[Piece]]:
    """[CLS] who [SEP] big cat sat [SEP]; starts at "cat" and ends at "sat" are most probable."""
    start = logits_of(0.1, 0.02, 0.02, 0.2, 0.5, 0.14, 0.02)
    end = logits_of(0.2, 0.02, 0.02, 0.1, 0.2, 0.4, 0.06)
    tokens = ["[CLS]", "who", "[SEP]", "big", "cat", "sat", "[SEP]"]
    trace = made(
        "question-answering",
        tokens,
        list(zip(start, end, strict=True)),
        pair=pair,
        text="who",
        predicts=tuple(range(7)),
    )
    trace.special = (True, False, True, False, False, False, True)
    pieces = [
        piece("[CLS]", 0, before="", special=True),
        piece("who", 1, before=""),
        piece("[SEP]", 2, before="", special=True),
    ]
    context = [piece("big", 3, before="", segment="pair", at=0), piece("cat", 4, segment="pair", at=4)]
    return trace, [
        *pieces,
        *context,
        piece("sat", 5, segment="pair", at=8),
        piece("[SEP]", 6, segment="pair", special=True, at=11),
    ]


def test_the_best_spans_of_the_context() -> None:
    trace, pieces = span_trace()
    found = asking.asked_of(trace, pieces, target=None, foil=None, query=None)
    assert (found.target, found.name, found.predicted, found.own) == ((4, 5), "cat sat", True, frozenset({4, 5}))
    assert (found.foil, found.query, found.foil_name, found.suggested, found.word) == (None, None, None, False, None)
    assert found.probability == pytest.approx(0.5 * 0.4)
    # start x end: cat sat .20, cat cat .10, big sat .08, sat sat .056, big cat .04; no answer .1 x .2 = .02.
    assert found.predictions == (
        *(("cat sat", pytest.approx(0.2)), ("cat", pytest.approx(0.1)), ("big cat sat", pytest.approx(0.08))),
        *(("sat", pytest.approx(0.056)), ("big cat", pytest.approx(0.04))),
    )
    assert (found.measured.ids, found.measured.score) == ((4, 5), "probability")


def test_a_span_that_is_named() -> None:
    trace, pieces = span_trace(pair="Big cat sat")
    for target, span in (("BIG cat", (3, 4)), ("at sa", (4, 5)), ("sat", (5, 5)), ((3, 5), (3, 5))):
        found = asking.asked_of(trace, pieces, target=target, foil=None, query=None)
        assert (found.target, found.predicted) == (span, span == (4, 5))
        assert found.own == frozenset(range(span[0], span[1] + 1))
    for target in ("who", " ", "cat  sat"):
        with pytest.raises(InputError) as told:
            asking.asked_of(trace, pieces, target=target, foil=None, query=None)
        assert str(told.value).startswith(
            f"the context has no {target!r}. A target is a part of the context, or start,end as"
        )
    with pytest.raises(InputError, match=r"^an answer of several words has no foil\. Leave foil= out\.$"):
        asking.asked_of(trace, pieces, target=None, foil=1, query=None)
    alone, _ = span_trace(pair=None)
    assert asking.asked_of(alone, pieces, target="who", foil=None, query=None).target == (1, 1)
    assert {name for name, _ in asking.asked_of(alone, pieces, target=None, foil=None, query=None).predictions} == {
        "who",
        "no answer",
    }


def test_the_text_of_a_span() -> None:
    trace, pieces = span_trace()
    assert asking.span_text(trace, pieces, 5, 4) == "no answer"
    assert asking.span_text(trace, pieces, 0, 0) == "no answer"
    assert asking.span_text(trace, pieces, 2, 3) == "[SEP]big"
    assert asking.span_text(trace, pieces, 4, 4) == "cat"


def test_no_answer_is_among_the_spans() -> None:
    """A context of one word: that word, and the first token for no answer; spans of other tokens are none."""
    logits = torch.zeros(3, 2)
    logits[0] = 2.0
    trace = made("question-answering", ["[CLS]", "who", "cat"], logits.tolist(), text="who", pair="cat")
    trace.special = (True, False, False)
    pieces = [piece("[CLS]", 0, special=True), piece("who", 1), piece("cat", 2, segment="pair")]
    found = asking.asked_of(trace, pieces, target=None, foil=None, query=None)
    assert (found.target, [name for name, _ in found.predictions]) == ((0, 0), ["no answer", "cat"])
    assert all(share > 0 for _, share in found.predictions)


def test_spans_are_no_longer_than_thirty_tokens() -> None:
    """The best start and the best end are 30 tokens apart: too far; those 29 apart are near enough."""
    count = 33
    logits = torch.zeros(count, 2)
    logits[1, 0], logits[31, 1] = 9.0, 9.0
    logits[30, 1] = 5.0
    trace = made("question-answering", ["w"] * count, logits.tolist(), text="t")
    pieces = [piece("w", place) for place in range(count)]
    assert asking.asked_of(trace, pieces, target=None, foil=None, query=None).target == (1, 30)


# --- rules ------------------------------------------------------------------------------------------------------------------


def test_the_limits_hold_on_both_sides() -> None:
    exact = Fall(0.75, 0.5, 0.75)  # 25 points
    assert rules.removal_state(exact) == "ok"
    assert rules.removal_state(Fall(0.75, 0.5, 0.625)) == "caution"
    assert rules.removal_state(Fall(0.75, 0.5, 0.53125)) == "fail"
    assert rules.removal_state(Fall(0.5, 0.25, 0.5)) == "caution"  # under 60 % it is even
    assert rules.removal_state(Fall(0.5, 0.25, 0.5, predicted=False)) == "ok"
    assert rules.advantage(Fall(0.25, 0.125, 0.5)) == pytest.approx(0.25)
    assert rules.advantage(Fall(0.5, 0.25, 0.375)) == 0.125
    assert rules.is_even(Fall(0.6, 0, 0)) is False
    assert rules.is_even(Fall(0.59, 0, 0)) is True
    assert rules.random_sets_turn(Fall(1, 0, 0, count=5, random_turned=2)) is True
    assert rules.random_sets_turn(Fall(1, 0, 0, count=5, random_turned=1)) is False
    assert rules.random_sets_turn(Fall(1, 0, 0, count=0, random_turned=0)) is False
    assert rules.random_sets_turn(Fall(1, 0, 0, count=1, random_turned=1)) is True
    assert [rules.completeness_state(gap) for gap in (0.01, 0.011, 0.05, 0.051)] == ["ok", "caution", "caution", "fail"]
    assert [rules.agreement_state(*pair) for pair in ((1, 1), (2, 2), (1, 2), (2, 4), (3, 4), (1, 4))] == [
        *("info", "ok", "fail", "caution", "ok", "fail")
    ]
    assert [rules.certainty(one) for one in (0.6, 0.59)] == ["sure", "leans"]
    assert [rules.verdict("ok", None, state) for state in ("ok", "info", "caution", "fail")] == [
        "ok",
        "ok",
        "caution",
        "caution",
    ]
    assert rules.verdict("ok", "fail", "ok") == "fail"
    assert rules.verdict("caution", "ok", "ok") == "caution"


def test_limits_that_are_met_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that binary numbers can be: what meets a limit has reached it."""
    monkeypatch.setattr(rules, "LIMITS", {"removal_ok": 0.25, "removal_caution": 0.125})
    monkeypatch.setattr(rules, "NO_EFFECT", 0.125)
    assert [rules._state_of_fall(Fall(0.75, without, 0.75)) for without in (0.5, 0.625, 0.6875)] == [
        "ok",
        "caution",
        "fail",
    ]
    assert rules._state_of_fall(Fall(0.75, 0.75, 0.75)) == "fail"
    assert rules.named_against([2.0, 0.5], [0, 1]) == []
    assert rules.named_against([-1.0, 2.0, -3.0], [0, 1]) == [0]
    assert rules.named_against([-1.0, 0.25], [0, 1]) == [0]
    assert rules.named_against([-3.0, 3.5], [0, 1]) == [0]
    assert rules.named_against([0.0, 0.0], [0, 1]) == []
    assert rules.named_against([0.5, 0.75], [0, 1]) == []
    assert rules.first_words([1.0, 0.5], [0], 1) == {0}
    assert rules.first_words([0.02] * 2, [0, 1], 2) == set()


def test_words_that_are_weak_are_not_named() -> None:
    assert rules.named_for([9.0, 3.0, 2.9, 2.8], [0, 1, 2, 3]) == [0, 1]
    assert rules.named_for([9.0, 2.9, 2.8, 2.7], [0, 1, 2, 3]) == [0]


def test_act_together_needs_two_words_and_one_that_counts_alone() -> None:
    both = Fall(0.9, 0.9, 0.9, k=2, single=0.1)
    assert rules.act_together(both)
    assert not rules.act_together(replace(both, k=1))
    assert not rules.act_together(replace(both, single=None))
    assert not rules.act_together(replace(both, single=0.8))  # no more than caution
    assert not rules.act_together(replace(both, without=0.1))
    assert [rules.removal_state(both), rules.removal_state(replace(both, single=0.8))] == ["caution", "fail"]


def test_which_words_are_named() -> None:
    scores = [3.0, 1.0, 0.9, -2.0, 3.0, 2.0, 1.5, 0.0]
    assert rules.named_for(scores, range(8)) == [0, 4, 5]
    assert rules.named_for(scores, [0, 1, 2, 3]) == [0, 1]
    assert rules.named_for(scores, [0]) == [0]
    assert rules.named_for(scores, [3, 7]) == []
    assert rules.named_against(scores, range(8)) == [3]
    assert rules.named_against([3.0, -1.0], [0, 1]) == [1]
    assert rules.named_against([3.0, -0.9], [0, 1]) == []
    assert rules.named_against([3.0, 0.0], [0, 1]) == []
    assert rules.named_against(scores, []) == []
    assert [rules.most_named(count) for count in (0, 1, 3, 4, 5, 6, 100)] == [1, 1, 1, 2, 2, 3, 3]
    shares = [0.5, 0.03, 0.029, 0.4, -0.5]
    assert rules.first_words(shares, range(5), 5) == {0, 1, 3}
    assert rules.first_words(shares, range(5), 1) == {0}
    assert rules.first_words([0.01] * 100, range(100), 2) == {0, 1}  # the mean of a long text
    assert rules.first_words([0.009, 0.011] * 50, range(100), 2) == {1, 3}
    assert rules.first_words([], [], 2) == set()


# --- sets that are taken out ------------------------------------------------------------------------------------------------


def test_a_plan_has_the_words_by_their_scores() -> None:
    plan = trust.plan_of([0.5, 2.0, 1.0, 0.5], [1], [0, 1, 2, 3], tokens=64, draws=3, seed=5)
    assert (plan.named, plan.free, plan.order, plan.all_sets) == ((1,), (0, 1, 2, 3), (1, 2, 0, 3), True)
    assert plan.sets == (frozenset({0}), frozenset({2}), frozenset({3}))
    generator = np.random.default_rng(5)
    assert plan.orders == tuple(tuple(generator.permutation([0, 1, 2, 3]).tolist()) for _ in range(3))
    runs = list(plan.every())
    assert runs[:5] == [frozenset(), frozenset({1}), frozenset({0, 2, 3}), frozenset({0, 1, 2, 3}), frozenset({1})]
    assert runs[5:8] == list(plan.sets)
    assert runs[8:13] == [frozenset(), frozenset({1}), frozenset({1, 2}), frozenset({0, 1, 2}), frozenset({0, 1, 2, 3})]
    assert len(runs) == 8 + 4 * 5


@pytest.mark.parametrize(("tokens", "steps", "orders"), [(64, 12, 2), (65, 6, 3), (9, 12, 12), (1000, 6, 2)])
def test_a_curve_is_shorter_and_has_fewer_orders_in_a_long_text(tokens: int, steps: int, orders: int) -> None:
    plan = trust.plan_of([1.0] * 20, [0], list(range(20)), tokens=tokens, draws=20, seed=0)
    assert (len(plan.order), len(plan.orders), {len(order) for order in plan.orders}) == (steps, orders, {steps})


def test_sets_up_to_two_hundred_are_all_taken() -> None:
    generator = np.random.default_rng(0)
    for count, all_sets in ((201, True), (202, False)):
        sets, every = trust.random_sets(range(count), [3], 20, generator)
        assert (every, len(sets)) == (all_sets, 200 if all_sets else 20)
        assert frozenset({3}) not in sets
        assert len(set(sets)) == len(sets)
    sets, every = trust.random_sets(range(300), [3], 299, generator)
    assert (every, len(sets)) == (True, 299)
    sets, every = trust.random_sets(range(40), [0, 1, 2], 25, generator)
    assert (every, len(sets), {len(one) for one in sets}) == (False, 25, {3})


def made_removal(values: dict[tuple[int, ...], tuple[float, bool]], foil: int | None = None) -> Any:
    known = {
        frozenset(words): SimpleNamespace(value=number, is_target=says) for words, (number, says) in values.items()
    }
    return trust.Removal(None, SimpleNamespace(foil=foil), [], "delete", known)  # type: ignore[arg-type]


def test_what_came_out_of_the_sets() -> None:
    values = {(): (0.9, True), (0,): (0.5, True), (1,): (0.25, False), (2,): (0.75, True), (0, 1): (0.1, False)}
    removal = made_removal(values)
    plan = trust.Plan((0, 1), (0, 1, 2), (0, 1), (frozenset({1}), frozenset({2})), False, ((0,), (1, 0)))
    assert trust.random_of(removal, plan) == Random(0.5, 0.25, 0.75, 2, False, 1, (0.25, 0.75))
    assert trust.single_of(removal, plan) == Single(1, 0.25, True)
    assert trust.curve_of(removal, plan) == Curve((0.9, 0.5, 0.1), ((0.9, 0.5), (0.9, 0.25, 0.1)))
    none = replace(plan, named=(), sets=(), all_sets=True)
    assert trust.random_of(removal, none) == Random(0.9, 0.9, 0.9, 0, True, 0, ())
    assert trust.single_of(removal, none) is None
    assert (removal.turned([0]), removal.turned([1])) == (False, True)
    against = made_removal(values, foil=3)  # the more probable of two
    assert (against.turned([0]), against.turned([1]), against.turned([2])) == (False, True, False)
    unsaid = made_removal({**values, (): (0.4, False)})
    assert (unsaid.turned([1]), unsaid.turned([2])) == (False, False)


def test_each_set_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one size together; a set that is known is not asked again."""
    calls: list[Any] = []

    def answers(trace: Any, gone: Any, target: Any, *, replacement: str) -> list[Any]:
        calls.append((gone, replacement))
        return [SimpleNamespace(value=float(len(one)), is_target=True) for one in gone]

    monkeypatch.setattr(trust, "answers", answers)
    removal = trust.Removal(None, None, [piece("a", 1), piece("b", 2, 3), piece("c", 4)], "mask")  # type: ignore[arg-type]
    removal.run([frozenset({2, 1}), frozenset({1}), frozenset({0}), frozenset({1}), frozenset()])
    assert calls == [([[], [1], [2, 3], [2, 3, 4]], "mask")]
    assert (removal.value([1, 2]), removal.value([0])) == (3.0, 1.0)
    removal.run([frozenset({1})])
    assert len(calls) == 1
    removal.run([frozenset({1}), frozenset({2})])
    assert calls[1:] == [([[4]], "mask")]


# --- words --------------------------------------------------------------------------------------------------------------------


def test_marks_and_what_may_be_taken_out() -> None:
    assert [piece(text, 0).mark for text in ("!", "...", "$", "€", "a!", "", "“")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    pieces = [piece("[CLS]", 0, special=True), piece("a", 1), piece("!", 2), piece("b", 3, 4)]
    assert why_words.removable(pieces, ()) == [1, 3]
    assert why_words.removable(pieces, {4}) == [1]
    assert why_words.removable(pieces, [1, 3]) == [2]
    assert why_words.positions_of(pieces, [3, 1]) == [1, 3, 4]


def test_pieces_of_a_text_and_its_pair() -> None:
    words = (("[CLS]", (0,)), ("New", (1,)), ("York", (2, 3)), ("[SEP]", (4,)), ("Big", (5,)))
    trace = made("classification", ["[CLS]", "New", "Yo", "rk", "[SEP]", "Big"], [0.0], text="New  York", pair=" Big")
    trace.words, trace.special = words, (True, False, False, False, True, False)
    offsets = ((0, 0), (0, 3), (4, 7), (7, 9), (0, 0), (0, 4))
    encoded = SimpleNamespace(offsets=offsets, sequences=(None, 0, 0, 0, None, 1), input_ids=trace.input_ids)
    trace.model.encode = lambda text: encoded if text == ("New  York", " Big") else None
    assert why_words.pieces_of(trace) == (
        [
            *(Piece("[CLS]", "", "text", True, (0,)), Piece("New", "", "text", False, (1,), 0, 3)),
            *(Piece("York", "  ", "text", False, (2, 3), 5, 9), Piece("[SEP]", "", "text", True, (4,))),
            Piece("Big", " ", "pair", False, (5,), 1, 4),
        ],
        "word",
    )
    encoded.input_ids = (7,)
    tokens, unit = why_words.pieces_of(trace)
    assert (unit, tokens[0], tokens[1]) == (
        "token",
        Piece("[CLS]", "", "text", True, (0,)),
        Piece("New", " ", "text", False, (1,)),
    )
    trace.text = None
    assert why_words.pieces_of(trace)[1] == "token"


# --- notes --------------------------------------------------------------------------------------------------------------------


def word(
    text: str,
    share: float = 0.1,
    *,
    mark: bool = False,
    special: bool = False,
    tokens: tuple[int, ...] = (0,),
    segment: str = "text",
) -> Word:
    return Word(text, " ", segment, special, mark, share, share, tokens)


def test_notes_of_scores() -> None:
    words = [
        word("[CLS]", 0.9, special=True, mark=True),
        word("good", 0.2),
        word("!", -0.5, mark=True),
        word(",", 0.4, mark=True),
    ]
    found = list(notes.notes_of_scores(words, [1], 0.51, False, 0.52))
    assert found == [
        Note("special", "caution", "Special tokens hold 51\u202f% of all scores; the shares are of the rest."),
        Note(
            "marks", "caution", "The mark “!” scores more than any word named (\u221250\u202f%); marks are not named."
        ),
        Note(
            "own_words",
            "caution",
            "The answer’s own words hold 52\u202f% of the evidence; they stay when words are taken out.",
        ),
        Note(
            "no_sign",
            "caution",
            "This method has no sign: it says how much a word counted, not whether for or against.",
        ),
    ]
    assert list(notes.notes_of_scores(words, [2], 0.5, True, 0.5)) == []
    strong = [word("bad", -0.6), word("good", 0.1), word("!", 0.5, mark=True)]
    assert list(notes.notes_of_scores(strong, [0, 1], 0.0, True, 0.0)) == []
    (note,) = notes.notes_of_scores(strong, [1], 0.0, True, 0.0)
    assert note.text == "The mark “!” scores more than any word named (+50\u202f%); marks are not named."
    assert list(notes.notes_of_scores(words, [], 0.0, True, 0.0)) == []
    assert list(notes.notes_of_scores([word("good", 0.5), word("!", 0.5, mark=True)], [0], 0.0, True, 0.0)) == []


def text_trace(**more: Any) -> Any:
    trace = made("classification", ["[CLS]", "qu", "x", "yz", "cat"], [0.0])
    trace.model.tokenizer = trace.filled
    trace.words, trace.input_ids, trace.text = None, (1, 2, 3, 4, 5), "some text"
    for name, given in more.items():
        setattr(trace, name, given)
    return trace


def test_a_span_of_several_tokens_is_noted() -> None:
    trace = text_trace()
    trace.model.task = "question-answering"
    several, one = (SimpleNamespace(query=None, own=frozenset(range(3, end))) for end in (6, 4))
    assert list(notes.notes_of_text(trace, several, None, [])) == [
        Note(
            "span",
            "caution",
            "The answer is a span: its words are explained together, by where it starts and where it ends, not one by one.",
        )
    ]
    assert list(notes.notes_of_text(trace, one, None, [])) == []


def test_notes_of_a_text() -> None:
    asked = SimpleNamespace(query=None)
    assert list(notes.notes_of_text(text_trace(), asked, None, [])) == []
    assert list(notes.notes_of_text(text_trace(), asked, 1234, [])) == [
        Note(
            "cut", "caution", "The text was cut: it has 1,234 tokens and the model reads 5. What follows was not read."
        )
    ]
    typed = text_trace(text="a [MASK] and [CLS]")
    assert [note.text for note in notes.notes_of_text(typed, asked, None, [])] == [
        "The text has “[CLS]” and “[MASK]” in it: the model reads special tokens there, not words."
    ]
    typed.model.task, typed.model.mask_id = "masked-lm", 3
    assert [note.text for note in notes.notes_of_text(typed, asked, None, [])] == [
        "The text has “[CLS]” in it: the model reads a special token there, not words."
    ]
    assert list(notes.notes_of_text(text_trace(text=None, pair=None), asked, None, [])) == []
    for text, pair in ((None, "[CLS]"), ("plain", "[CLS]"), ("[CLS]", "plain")):
        assert [note.id for note in notes.notes_of_text(text_trace(text=text, pair=pair), asked, None, [])] == [
            "typed_special"
        ]
    other = text_trace(text="a [MASK]")
    other.model.mask_id = 3
    assert [note.id for note in notes.notes_of_text(other, asked, None, [])] == [
        "typed_special"
    ]  # a classifier fills no mask
    masked = text_trace()
    masked.model.task, masked.model.mask_id = "masked-lm", 77
    assert list(notes.notes_of_text(masked, asked, None, [])) == []
    assert list(notes.notes_of_text(masked, SimpleNamespace(query=2), None, [])) == [
        Note("no_mask", "caution", "There is no [MASK] in the text: the model sees the word that it predicts here.")
    ]


def test_notes_of_a_vocabulary() -> None:
    asked = SimpleNamespace(query=None)
    known = [("cat", (4,))]
    letters = text_trace(
        words=(("qux", (1, 2, 3)), *known, *[("dogs", (4,))] * 2), tokens=("[CLS]", "q", "u", "x", "cat")
    )
    assert list(notes.notes_of_text(letters, asked, None, [word("cat", tokens=(4,))])) == []  # one of four
    assert list(notes.notes_of_text(letters, asked, None, [word("qux", tokens=(1, 2, 3))])) == [
        Note(
            "shredded", "caution", "The vocabulary of this model does not know qux: it reads letters there, not a word."
        )
    ]
    letters.words = tuple(("qux", (1, 2, 3)) for _ in range(3)) + tuple(
        ("dogs", (4,)) for _ in range(7)
    )  # three of ten
    assert [note.state for note in notes.notes_of_text(letters, asked, None, [])] == ["fail"]
    letters.words = (("qux", (1, 2, 3)), *known, ("dogs", (4,)))
    (note,) = notes.notes_of_text(letters, asked, None, [])
    assert (note.id, note.state) == ("shredded", "fail")
    assert note.text.startswith(
        "The vocabulary of this model does not know 1 of the 3 words of three letters or more: they"
    )


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, "“w0”"),
        (2, "“w0” and “w1”"),
        (5, "“w0”, “w1”, “w2”, “w3” and “w4”"),
        (7, "“w0”, “w1”, “w2”, “w3”, “w4” and 2 more"),
    ],
)
def test_unknown_words_are_listed_up_to_five(count: int, names: str) -> None:
    words = tuple((f"w{number % count}", (number,)) for number in range(2 * count))
    trace = text_trace(
        words=(*words, ("[UNK]", (0,)), ("ok", (0, 2 * count))), input_ids=(*[9] * 2 * count, 1), tokens=("w",) * 15
    )
    (note,) = notes.notes_of_text(trace, SimpleNamespace(query=None), None, [])
    assert note == Note("unknown", "caution", f"The model cannot read {names}: it sees [UNK] there.")


def made_trust(**more: Any) -> Trust:
    random, curve = Random(0.5, 0.25, 0.75, 2, False, 1, (0.25, 0.75)), Curve((0.9, 0.1), ((0.9, 0.8), (0.9, 0.7)))
    given = {
        "single": Single(1, 0.25, True),
        "curve": curve,
        "checks": (Check("removal", "ok", "t", "d"),),
        "random": random,
    }
    given |= {
        "verdict": "ok",
        "sentence": "s",
        "k": 2,
        "filler": Filler("delete", "deleted"),
        "measures": "probability of a",
    }
    given |= {
        "whole": 0.9,
        "without": 0.8,
        "without_prediction": "b",
        "turned": False,
        "alone": 0.7,
        "empty": 0.4,
        "but": ", but",
        "without_each": (0.25, 0.5),
    }
    return Trust(**{**given, **more})


def test_notes_of_trust() -> None:
    words = [word("not"), word("bad")]
    together = Fall(0.9, 0.9, 0.9, k=2, single=0.25)
    agreement = Agreement(1, 3, 2)
    assert list(
        notes.notes_of_trust(made_trust(), together, agreement, [("a", "too long."), ("b", "no mask")], words)
    ) == [
        Note(
            "together",
            "caution",
            "The words act together: without these two words the probability of a is 80.0\u202f%, "
            "without “bad” alone it is 25.0\u202f%.",
        ),
        Note("disagree", "caution", "The methods disagree: no other of the 3 puts these two words first."),
        Note("left_out", "caution", "Not asked: a (too long) and b (no mask)."),
    ]
    raised = Fall(0.5, 0.1, 0.5, k=2, single=0.25, each=(0.625, 0.25))
    (note,) = notes.notes_of_trust(made_trust(), raised, Agreement(2, 3, 1), [], words, [1, 0])
    assert note == Note(
        "raises",
        "caution",
        "Probability of a: 50.0\u202f%, but without “bad” alone 62.5\u202f%. That contradicts its score.",
    )
    both = replace(raised, k=3, each=(0.625, 0.25, 0.75))
    (note,) = notes.notes_of_trust(made_trust(), both, Agreement(2, 3, 1), [], [*words, word("to")], [1, 0, 2])
    assert note.text.endswith(
        "but without “bad” alone 62.5\u202f% and without “to” alone 75.0\u202f%. That contradicts their scores."
    )
    stays = Fall(0.9, 0.895, 0.9, k=1)
    (note,) = notes.notes_of_trust(made_trust(k=1), stays, Agreement(2, 3, 1), [], words)
    assert note == Note(
        "no_effect",
        "fail",
        "Without this word the probability of a stays (\u22120.5 points): the model does not need it.",
    )
    (note,) = notes.notes_of_trust(made_trust(k=1), replace(stays, predicted=False), Agreement(2, 3, 1), [], words)
    assert "the probability of a stays" in note.text
    assert list(notes.notes_of_trust(made_trust(k=0), stays, Agreement(1, 3, 0), [], words)) == []
    assert list(notes.notes_of_trust(made_trust(), Fall(0.75, 0.5, 0.75), Agreement(2, 3, 1), [], words)) == []
    (note,) = notes.notes_of_trust(made_trust(), Fall(0.9, 0.905, 0.9), Agreement(2, 3, 1), [], words)
    assert note.id == "no_effect"
    assert list(notes.notes_of_trust(made_trust(), Fall(0.5, 0.75, 0.5), Agreement(2, 3, 1), [], words)) == []


# --- the value and its files ----------------------------------------------------------------------------------------------------


def made_why() -> Why:
    words = (word("gut", 0.75), replace(word("ä,", -0.25, mark=True, special=True, segment="pair"), before=""))
    reading = Reading("deeplift", "DeepLift", "Difference", True, (1.5, -0.5), (0.75, -0.25), 1, 0.001)
    return Why(
        **{
            "model": "m",
            "task": "classification",
            "classes": ("a", "b"),
            "text": "gut ä,",
            "pair": None,
            "question": "Why?",
        },
        **{
            "sentence": "a",
            "answer": Answer("a", None, 0.9, "sure", (0,), (1,)),
            "predictions": (("a", 0.9), ("b", 0.1)),
        },
        **{
            "unit": "word",
            "words": words,
            "special_share": 0.25,
            "method": Method("deeplift", "DeepLift", "e", "p", "r", True),
        },
        **{"methods": (reading, replace(reading, id="alti", scores=(0.5, 0.5), gap=None)), "trust": made_trust()},
        **{"agreement": Agreement(1, 2, 1), "notes": (Note("cut", "caution", "t"),), "gaps": Gaps(0.001, None)},
        **{"limits": {"removal_ok": 0.2}, "provenance": {"seed": 0, "tokens": [1, 2]}},
    )


def test_plain_types_and_back(tmp_path: Path) -> None:
    why = made_why()
    plain = why.to_dict()
    assert list(plain)[:2] == ["kind", "model"]
    assert (plain["kind"], plain["answer"]["for"], plain["answer"]["against"], plain["trust"]["random"]["all"]) == (
        "why",
        [0],
        [1],
        False,
    )
    assert "for_" not in plain["answer"]
    assert plain["words"][1] == {
        **{
            "text": "ä,",
            "before": "",
            "segment": "pair",
            "special": True,
            "mark": True,
            "score": -0.25,
            "share": -0.25,
        },
        "tokens": [0],
    }
    assert (plain["predictions"], plain["limits"], plain["classes"]) == (
        [["a", 0.9], ["b", 0.1]],
        {"removal_ok": 0.2},
        ["a", "b"],
    )
    assert value.from_dict(json.loads(json.dumps(plain))) == why
    without = replace(why, classes=None, trust=made_trust(single=None))
    assert value.from_dict(json.loads(without.to_json())) == without
    old = json.loads(why.to_json())
    del old["trust"]["but"], old["trust"]["without_each"], old["answer"]["predicted"]
    again = value.from_dict(old)
    assert (again.trust.but, again.trust.without_each, again.answer.predicted) == ("", (), True)
    file = tmp_path / "why.json"
    text = why.to_json(file)
    assert "ä" in text
    assert file.read_bytes() == text.encode() + b"\n"
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(why, special_share=math.nan).to_json()


def test_a_table_of_words(tmp_path: Path) -> None:
    file = tmp_path / "why.csv"
    text = made_why().to_csv(file)
    assert text == (
        'word,segment,special,mark,score,share,deeplift,alti\ngut,text,0,0,0.75,0.75,1.5,0.5\n"ä,",pair,1,1,-0.25,-0.25,-0.5,0.5\n'
    )
    assert file.read_bytes() == text.encode()
    assert made_why().to_csv() == text
    with pytest.raises(ResultError, match=r"^'.*none/why.csv' could not be written: No such file or directory\.$"):
        made_why().to_csv(tmp_path / "none" / "why.csv")


def test_what_is_no_answer_is_refused() -> None:
    plain = made_why().to_dict()
    with pytest.raises(ResultError, match=r"^this is 'map', not 'why'\.$"):
        value.from_dict({**plain, "kind": "map"})
    with pytest.raises(ResultError, match=r"^this is no answer of `mixlens why` \(or is damaged\): KeyError 'kind'\.$"):
        value.from_dict({})
    for part, damage in (("trust", {}), ("predictions", [["a"]]), ("words", [{}]), ("classes", 3), ("answer", 5)):
        with pytest.raises(ResultError, match=r"^this is no answer of `mixlens why` \(or is damaged\): "):
            value.from_dict({**plain, part: damage})


# --- fillers, facts, sentences ------------------------------------------------------------------------------------------


def test_the_command_that_gives_an_answer_again(tmp_path: Path) -> None:
    trace = SimpleNamespace(text="it's", pair=None, model=SimpleNamespace(name="hub/id"))
    settings = SimpleNamespace(method=None, methods=None, filler=None, draws=20, seed=0)
    asked = SimpleNamespace(word=None, predicted=True, name="a", suggested=True, foil_name="b")
    assert facts.command(trace, settings, asked) == """mixlens why 'it'"'"'s' -m hub/id"""
    trace.pair, trace.model.name = "second", str(tmp_path)
    settings = SimpleNamespace(method="alti", methods=["alti", "cat"], filler="mask", draws=21, seed=1)
    asked = SimpleNamespace(word="w", predicted=False, name="a", suggested=False, foil_name="b")
    assert facts.command(trace, settings, asked) == (
        f"mixlens why 'it'\"'\"'s' -m FOLDER/{tmp_path.name} --pair second --query w --method alti --target a --foil b "
        "--methods alti,cat --filler mask --draws 21 --seed 1"
    )
    assert facts.model_name(SimpleNamespace(name="./x/y")) == "y"


def test_classes_in_the_order_of_their_numbers() -> None:
    config = SimpleNamespace(id2label={1: "b", 0: "a"})
    model = SimpleNamespace(task="token-classification", hf_model=SimpleNamespace(config=config))
    assert facts.classes_of(model) == ("a", "b")
    model.task = "causal-lm"
    assert facts.classes_of(model) is None


def test_methods_and_fillers_of_a_model_without_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "filler_token", lambda model, filler: 7 if filler == "unk" else None)
    model = SimpleNamespace(task="token-classification", mask_id=None, name="made")
    assert choice.methods_for(model) == (
        "deeplift",
        "attcat",
        "blank_out:replacement=delete",
        "integrated_gradients",
        "alti",
    )
    assert (
        choice.methods_for(SimpleNamespace(task="classification", mask_id=0))
        == choice.CHOICES["classification"].methods
    )
    assert (choice.filler_for(model, None), choice.filler_for(model, "unk"), choice.known_fillers(model)) == (
        "unk",
        "unk",
        ["delete", "unk"],
    )
    with pytest.raises(InputError) as told:
        choice.filler_for(model, "pad")
    assert str(told.value) == "'made' has no pad token to put in the place of a word. Take filler='delete'."


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"text": ["a", "b"]}, "one text, not for a list of 2"),
        ({"text": "a", "method": ["deeplift"]}, "one method, not list"),
        ({"text": "a", "methods": "deeplift"}, "a list of names, not 'deeplift'"),
        ({"text": "a", "methods": "alti, deeplift"}, r"methods=\['alti', 'deeplift'\]\.$"),
    ],
)
def test_arguments_of_another_kind_are_refused(asked: Any, told: str) -> None:
    from mixlens.answers import answering

    with pytest.raises(InputError, match=told):
        answering.why(None, **asked)  # type: ignore[arg-type]


def test_a_model_of_one_number_has_no_class_to_explain() -> None:
    config = SimpleNamespace(num_labels=1)
    model: Any = SimpleNamespace(task="classification", name="made", hf_model=SimpleNamespace(config=config))
    with pytest.raises(InputError, match=r"^'made' gives one number and no class.*score='logit'\.$"):
        choice.refuse_unanswerable(model)
    config.num_labels = 2
    choice.refuse_unanswerable(model)


def test_facts_are_plain_types() -> None:
    found = facts._jsonable({1: (2, ["a", Path("x")], None), "b": {"c": 0.5, "d": True}})
    assert found == {"1": [2, ["a", "x"], None], "b": {"c": 0.5, "d": True}}
    assert (facts._jsonable(()), facts._jsonable(torch.float32)) == ([], "torch.float32")


def test_which_of_several_words() -> None:
    words = [
        word("[CLS]", special=True),
        word("the"),
        word("!", mark=True),
        word("the"),
        word("!", mark=True),
        word("the", segment="pair"),
    ]
    assert sentences.called(words, [1, 3, 5, 4, 2]) == [
        *(
            "“the” (1st word)",
            "“the” (2nd word)",
            "“the” (1st word of the second text)",
            "“!” (2nd of 2)",
            "“!” (1st of 2)",
        )
    ]
    asked = [*words, word("!", mark=True, segment="pair")]
    assert sentences.called(asked, [4, 6]) == ["“!” (2nd of 2)", "“!” (of the second text)"]
    asked = [word("!", mark=True), *asked[-1:] * 2]
    assert sentences.called(asked, [0]) == ["“!” (of the first text)"]
    assert sentences.called([word("?", mark=True)] * 3, [0]) == ["“?” (1st of 3)"]
    assert sentences.called([word("a"), word("b")], [1]) == ["“b”"]
    assert sentences.called([word("a", special=True), word("a")], [1]) == ["“a”"]


def fall_of(**more: Any) -> Fall:
    return Fall(**{"whole": 0.9, "without": 0.3, "random": 0.8, "k": 2, "turned": True, **more})


@pytest.mark.parametrize(
    ("fall", "told"),
    [
        (fall_of(), ""),
        (fall_of(count=0), ", with nothing to compare with"),
        (fall_of(without=0.95), ", but taking these words out makes it more likely"),
        (fall_of(without=0.91), ", but taking these words out makes it more likely"),
        (fall_of(without=0.905, random=0.9), ", but taking these words out changes little"),
        (fall_of(without=0.87, random=0.86, k=1), ", but taking random words out changes more"),
        (fall_of(without=0.87, random=0.89, k=1), ", but taking this word out changes little"),
        (fall_of(without=0.8, random=0.82), ", but taking these words out changes no more than random words do"),
        (fall_of(without=0.9, random=0.9, single=0.1), ", which act together"),
        (fall_of(without=0.9, random=0.9, count=0), ", but taking these words out changes little"),
    ],
)
def test_what_a_headline_adds(fall: Fall, told: str) -> None:
    assert sentences.but(fall) == told


def test_a_removal_that_is_measured_against_a_foil_names_both_and_what_the_model_then_says() -> None:
    pair = ("play", "e")
    found = ", but taking these words out makes play likelier against e"
    assert sentences.but(fall_of(without=0.95), pair) == found
    assert sentences.but(fall_of(without=0.95), pair, "to") == f"{found} (the model then says “to”)"
    assert "then says" not in sentences.but(fall_of(without=0.2), pair, "to")


def asked_like(**more: Any) -> Any:
    given = {
        "name": "a",
        "foil_name": None,
        "word": None,
        "predicted": True,
        "probability": 0.9,
        "predictions": (("b", 0.8),),
    }
    return SimpleNamespace(**{**given, **more})


@pytest.mark.parametrize(
    ("verdict", "fall", "asked", "told"),
    [
        ("fail", fall_of(k=0), {}, "No: no word speaks for the answer, so there is nothing to take out."),
        ("ok", fall_of(), {}, "Yes, for these two words: without them the model says something else."),
        (
            "caution",
            fall_of(),
            {},
            "Partly, for these two words: without them the model says something else. See the lines that are marked.",
        ),
        (
            "ok",
            fall_of(turned=False),
            {},
            "Yes, for these two words: without them the answer changes by −60 points, without two random words by −10 points.",
        ),
        (
            "caution",
            fall_of(count=0),
            {},
            "Partly, for these two words: without them the answer changes by −60 points; there is nothing to compare with.",
        ),
        (
            "caution",
            fall_of(random_turned=8),
            {},
            "Partly, for these two words: without them the model says something else, but also without 8 of 20 random sets.",
        ),
        (
            "caution",
            fall_of(whole=0.59, random=0.59),
            {},
            "Partly, for these two words: without them the model says something else, but the answer was near even before "
            "(59.0\u202f%).",
        ),
        (
            "fail",
            fall_of(without=0.85, random=0.85, k=1),
            {},
            "No: without it the answer changes by −5 points, without one random word by −5 points.",
        ),
        (
            "fail",
            fall_of(without=0.85, random=0.85),
            {"predicted": False, "foil_name": "c"},
            "No: the model does not say a; without them the share of a against c changes by −5 points, "
            "without two random words by −5 points.",
        ),
        (
            "caution",
            fall_of(without=0.9, random=0.9, single=0.1, k=3),
            {},
            "Partly: the words act together. Without them all the answer changes by 0 points; "
            "without “w” alone it is 10.0\u202f%.",
        ),
        (
            "caution",
            fall_of(without=0.9, random=0.9, single=0.1),
            {},
            "Partly: the words act together. Without them the answer changes by 0 points; without “w” alone it is 10.0\u202f%.",
        ),
    ],
)
def test_the_verdict_in_one_sentence(verdict: str, fall: Fall, asked: dict[str, Any], told: str) -> None:
    assert sentences.verdict_sentence(verdict, fall, asked_like(**asked), "w") == told


def test_every_check_has_its_line() -> None:
    words = [word("good"), word("film")]
    random = Random(0.8, 0.7, 0.9, 1200, True, 1, ())
    found = sentences.checks(fall_of(), random, Single(1, 0.25, True), Agreement(2, 3, 2), Gaps(0.02, 1.5e-7), words)
    assert found == (
        Check(
            "removal",
            "ok",
            "Without these two words: 90.0\u202f% becomes 30.0\u202f%.",
            "Two random words: 80.0\u202f% on average (all 1,200 other sets; in 1 the model says something else).",
        ),
        Check(
            "agreement",
            "ok",
            "Two of three methods put the same two words first.",
            "The leading method is one of them.",
        ),
        Check(
            "completeness", "caution", "A little is missing.", "The scores add up to the model’s output: gap 2\u202f%."
        ),
        Check(
            "single",
            "info",
            "One word decides: “film”.",
            "Without “film” alone it is 25.0\u202f%; with it 90.0\u202f%.",
        ),
        Check("reconstruction", "info", "The model was taken apart and put together again.", "Largest gap 1.5e-07."),
    )
    few = sentences.checks(
        fall_of(k=1, count=0),
        replace(random, count=0),
        Single(0, 0.25, False),
        Agreement(1, 2, 1),
        Gaps(None, None),
        words,
    )
    assert [(check.id, check.state, check.title, check.detail) for check in few] == [
        (
            "removal",
            "caution",
            "Without this word: 90.0\u202f% becomes 30.0\u202f%.",
            "There is nothing to compare with.",
        ),
        (
            "agreement",
            "fail",
            "One of two methods put the same word first.",
            "Every other method puts other words first.",
        ),
        (
            "single",
            "info",
            "No single word decides.",
            "Without “good” alone it is still 25.0\u202f%; with it 90.0\u202f%.",
        ),
    ]
    assert sentences.checks(fall_of(k=0), random, None, Agreement(2, 3, 0), Gaps(None, None), words) == ()
    assert [
        check.id for check in sentences.checks(fall_of(), random, None, Agreement(1, 1, 1), Gaps(None, None), words)
    ] == ["removal"]
    assert sentences.turning(2000) == "; in 2,000 the model says something else"
    assert [
        sentences.draws(replace(random, count=count, all_=every))
        for count, every in ((1, True), (1, False), (2, False))
    ] == [*("the one other set", "one draw", "2 draws")]


def test_titles_and_headlines() -> None:
    words = [word("good"), word("bad")]
    assert sentences.question(asked_like(foil_name="c"), "classification") == "Why did the model say a rather than c?"
    assert sentences.question(asked_like(word="w"), "token-classification") == "Why did the model tag “w” as a?"
    assert sentences.question(asked_like(), "question-answering") == "Why did the model answer “a”?"
    unsaid = asked_like(predicted=False, foil_name="c", word="w")
    assert sentences.question(unsaid, "token-classification") == "What speaks for tagging “w” as a rather than c?"
    assert sentences.question(unsaid, "question-answering") == "What speaks for the answer “a”?"
    assert sentences.question(unsaid, "classification") == "What speaks for a rather than c?"
    assert (
        sentences.headline(asked_like(), words, [0], [1], "!")
        == "a (90.0\u202f%), because of “good”!; against it: “bad”"
    )
    assert (
        sentences.headline(asked_like(probability=0.5, word="w"), words, [], [], "!")
        == "leans to w: a (50.0\u202f%); no word speaks for it"
    )
    assert (
        sentences.headline(unsaid, words, [0, 1], [], "")
        == "90.0\u202f% for w: a rather than c; the model says b (80.0\u202f%); for a: “good”, “bad”"
    )
    nothing = asked_like(predicted=False, predictions=(("no answer", 0.8),))
    assert sentences.headline(nothing, words, [0], [], "").startswith(
        "90.0\u202f% for a; the model gives no answer (80.0\u202f%); for a: "
    )
    assert (sentences.measures(asked_like()), sentences.measures(unsaid)) == (
        "probability of a",
        "share of a against c",
    )
