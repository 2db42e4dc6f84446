"""An answer put together from made-up scores and made-up outcomes: every field, and what each step hands on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.answers import answering, choice, outcome, trust
from mixlens.answers.rules import Fall
from mixlens.answers.value import Agreement, Answer, Curve, Filler, Gaps, Method, Random, Reading, Single, Word
from mixlens.answers.words import Piece
from mixlens.base.errors import InputError, checked_seed
from mixlens.types import Example, Trace

PIECES = (
    Piece("[CLS]", "", "text", True, (0,)),
    Piece("good", "", "text", False, (1, 2), 0, 4),
    Piece("film", " ", "text", False, (3,), 5, 9),
    Piece("bad", " ", "text", False, (4,), 10, 13),
    Piece("!", "", "text", False, (5,), 13, 14),
)


class MadeTrace(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.input_ids)


def made_trace(task: str = "classification", **more: Any) -> Any:
    config = SimpleNamespace(id2label={0: "neg", 1: "pos"})
    model = SimpleNamespace(task=task, name="m", mask_id=None, hf_model=SimpleNamespace(config=config), proof=None)
    given = {
        "model": model,
        "text": "good film bad!",
        "pair": None,
        "special": (True, *[False] * 5),
        "input_ids": (9, 1, 2, 3, 4, 5),
    }
    return MadeTrace(**{**given, **more})


def scored(
    name: str = "deeplift", scores: tuple[float, ...] = (1.0, 4.0, 1.0, -2.0, 0.5), **info: Any
) -> answering.Scored:
    request: Any = SimpleNamespace(
        name=name, is_map=name == "alti", class_specific=name != "alti", options={}, variant=None
    )
    return answering.Scored(request, scores, SimpleNamespace(info=info))  # type: ignore[arg-type]


def asked_like(**more: Any) -> Any:
    given = {
        "name": "pos",
        "foil_name": None,
        "word": None,
        "predicted": True,
        "probability": 0.9,
        "predictions": (("pos", 0.9),),
    }
    given |= {
        "measured": SimpleNamespace(foil=None, positions=(), ids=(1, 1)),
        "own": frozenset(),
        "query": None,
        "foil": None,
    }
    return SimpleNamespace(**{**given, "target": 1, "suggested": False, **more})


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_draws_and_seeds_have_bounds() -> None:
    assert [answering._checked_draws(draws) for draws in (1, 1000)] == [1, 1000]
    assert [checked_seed(seed) for seed in (0, 7)] == [0, 7]
    for draws in (0, 1001, True, 2.0):
        with pytest.raises(InputError) as told:
            answering._checked_draws(draws)  # type: ignore[arg-type]
        assert str(told.value) == f"draws is a number of random sets, 1 to 1000, not {draws!r}."
    for seed in (-1, True, "0"):
        with pytest.raises(InputError) as told:
            checked_seed(seed)  # type: ignore[arg-type]
        assert str(told.value) == f"seed is a number, 0 or more, not {seed!r}."


def test_texts_and_pairs() -> None:
    assert answering._example("a", None) == Example("a")
    assert answering._example(("a", "b"), None) == Example("a", "b")
    assert answering._example("a", "b") == Example("a", "b")
    assert answering._example(("a", "b", "c"), None) == ("a", "b", "c")
    whole = Example("x")
    assert answering._example(whole, None) is whole
    with pytest.raises(InputError, match=r"^give the pair once: \(text, pair\), or text and pair=\.$"):
        answering._example(("a", "b"), "c")


def test_a_text_is_traced_and_cut_where_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = SimpleNamespace(trace=lambda example: ("trace", example), name="m")
    assert answering._traced(model, "a", None, False) == (("trace", Example("a")), None)
    monkeypatch.setattr(
        answering, "truncated", lambda example, model: SimpleNamespace(info={"truncated": 9}, of=example)
    )
    (_, shorter), cut = answering._traced(model, "a", "b", True)  # type: ignore[misc]
    assert (shorter.of, cut) == (Example("a", "b"), 9)
    trace = object.__new__(Trace)
    object.__setattr__(trace, "model", model)
    assert answering._traced(model, trace, None, False) == (trace, None)
    with pytest.raises(
        InputError, match=r"^this trace is of 'm', not of 'other'\. Trace the text with the model asked\.$"
    ):
        answering._traced(SimpleNamespace(name="other"), trace, None, False)  # type: ignore[arg-type]


def test_methods_the_leading_one_first() -> None:
    model: Any = SimpleNamespace(task="classification", mask_id=3)
    usual = list(choice.CHOICES["classification"].methods)
    assert list(answering._requests(model, answering.Settings())) == usual
    assert list(answering._requests(model, answering.Settings(method="alti"))) == [
        "alti",
        *(name for name in usual if name != "alti"),
    ]
    given = answering.Settings(method="attcat:variant=released", methods=("alti", "attcat", "alti"))
    assert list(answering._requests(model, given)) == ["attcat:variant=released", "alti"]
    assert [request.name for request in answering._requests(model, given).values()] == ["attcat", "alti"]
    assert list(answering._requests(model, answering.Settings(methods=("cat", "alti", "cat")))) == ["cat", "alti"]


# --- scores -----------------------------------------------------------------------------------------------------------


def test_readings_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(trace: Any, asked: Any, pieces: Any, request: Any) -> Any:
        if request.name in failing:
            raise InputError(f"{request.name} cannot")
        return scored(request.name)

    monkeypatch.setattr(answering, "_scored", answer)
    told: list[str] = []
    requests: Any = {name: SimpleNamespace(name=name) for name in ("alti", "deeplift", "globenc", "attcat")}

    def readings(settings: Any, some: Any = requests) -> Any:
        found, lead, left_out = answering._readings(None, None, [], some, settings, told.append)  # type: ignore[arg-type]
        return [one.request.name for one in found], lead.request.name, left_out

    monkeypatch.setattr(answering, "is_signed", lambda request: request.name in ("deeplift", "attcat"))
    failing: set[str] = set()
    assert readings(answering.Settings()) == (["alti", "deeplift", "attcat", "globenc"], "alti", [])
    assert told == ["ALTI, method 1 of 4", "DeepLift, method 2 of 4", "GlobEnc, method 3 of 4", "AttCAT, method 4 of 4"]
    failing = {"alti", "globenc"}
    assert readings(answering.Settings()) == (
        ["deeplift", "attcat"],
        "deeplift",
        [("ALTI", "alti cannot"), ("GlobEnc", "globenc cannot")],
    )
    with pytest.raises(InputError, match=r"^alti cannot$"):
        readings(answering.Settings(method="alti"))
    with pytest.raises(InputError, match=r"^alti cannot$"):
        readings(answering.Settings(), {"alti": requests["alti"]})
    failing = set(requests)
    with pytest.raises(InputError, match=r"^no method could answer: ALTI: alti cannot$"):
        readings(answering.Settings())


def test_what_a_method_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    result = SimpleNamespace(scores=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), info={})
    monkeypatch.setattr(answering, "scores_of", lambda *given, **named: asked.append(("map", named)) or [result])
    monkeypatch.setattr(
        answering, "attribute_each", lambda *given, **named: asked.append((given[1:], named)) or [result]
    )
    attcat: Any = SimpleNamespace(
        name="attcat", is_map=False, class_specific=True, variant="v", options_for=lambda trace: {"o": 1}
    )
    alti: Any = SimpleNamespace(name="alti", is_map=True, class_specific=False)
    place: Any = SimpleNamespace(
        name="blank", is_map=False, class_specific=False, variant=None, options_for=lambda trace: {}
    )
    one = answering._scored(made_trace(), asked_like(query=3, foil=0), PIECES, attcat)
    assert one.scores == (1.0, 5.0, 4.0, 5.0, 6.0)
    answering._scored(made_trace(), asked_like(), PIECES, alti)
    read_at = asked_like(measured=SimpleNamespace(positions=(4, 5)))
    answering._scored(made_trace(), read_at, PIECES, place)
    answering._scored(made_trace("question-answering"), read_at, PIECES, attcat)
    answering._scored(made_trace("question-answering"), read_at, PIECES, alti)
    assert asked == [
        (("attcat", [{"target": 1, "foil": 0, "query": 3}]), {"variant": "v", "o": 1}),
        ("map", {"target": 1, "foil": None, "query": None}),
        (("blank", [{"query": 4}]), {"variant": None}),
        (("attcat", [{"target": 1, "foil": None, "query": None}]), {"variant": "v", "o": 1}),
        ("map", {"target": 1, "foil": None, "query": 4}),
    ]
    monkeypatch.setattr(answering, "attribute_each", lambda *given, **named: [InputError("no")])
    with pytest.raises(InputError, match=r"^no$"):
        answering._scored(made_trace(), asked_like(), PIECES, attcat)


def test_shares_leave_special_tokens_out() -> None:
    assert answering.shares_of((1.0, 4.0, 1.0, -2.0, 1.0), PIECES) == (0.0, 0.5, 0.125, -0.25, 0.125)
    assert answering.shares_of((1.0, 0.0, 0.0, 0.0, 0.0), PIECES) == (0.0,) * 5
    words = answering._words(PIECES, scored(scores=(1.0, 4.0, 1.0, -2.0, 1.0)))
    assert words[3] == Word("bad", " ", "text", False, False, -2.0, -0.25, (4,))
    assert [word.mark for word in words] == [False, False, False, False, True]
    marks = (Piece("[", "", "text", True, (0,)),)
    assert answering._words(marks, scored(scores=(1.0,)))[0].mark is False
    assert answering._special_share(words, PIECES, scored(scores=(-1.0, 1.0, 1.0, -1.0, 0.0))) == 0.25
    assert answering._special_share(words, PIECES, scored(scores=(0.0,) * 5)) == 0.0
    assert answering._own_share(words, asked_like(own=frozenset({2, 4}))) == 0.75


@pytest.mark.parametrize(
    ("task", "filler", "staying"),
    [
        ("classification", "delete", {0, 3}),
        ("question-answering", "mask", {0, 3, 5}),
        ("token-classification", "delete", {0, 3, 5}),
        ("token-classification", "mask", {0, 3}),
        ("masked-lm", "delete", {0, 3, 5}),
        ("masked-lm", "unk", {0, 3}),
        ("causal-lm", "delete", {0, 3}),
    ],
)
def test_what_is_never_taken_out(task: str, filler: str, staying: set[int]) -> None:
    trace = made_trace(task)
    trace.model.mask_id = 3
    assert answering._staying(trace, asked_like(own=frozenset({5})), PIECES, filler) == staying
    bare = made_trace("causal-lm", special=(False,) * 6)
    assert answering._staying(bare, asked_like(own=frozenset({1})), PIECES[:4], filler) == {4}


def test_a_reading_counts_the_words_it_shares() -> None:
    other = scored("attcat", (9.0, 1.0, 2.0, 4.0, 1.0), completeness={"relative_gap": 0.5})
    found = answering._reading(other, PIECES, [1, 2, 3], [1, 3], leads=False)
    assert found == Reading(
        *(
            "attcat",
            "AttCAT",
            "Attention × gradient",
            True,
            (9.0, 1.0, 2.0, 4.0, 1.0),
            (0.0, 0.125, 0.25, 0.5, 0.125),
            1,
        ),
        answering.completeness(other.result.info),
    )
    assert answering._reading(other, PIECES, [1, 2, 3], [1, 2, 3], leads=True).same_first == 3
    assert answering._reading(other, PIECES, [1, 2, 3], [1], leads=True).same_first == 1


def test_why_the_leading_method_leads() -> None:
    model: Any = SimpleNamespace(task="classification")
    lead = scored(paper="A paper")
    assert answering._method(lead, answering.Settings(), model) == Method(
        "deeplift", "DeepLift", "Difference from a blank text", "A paper", choice.LED, True
    )
    for settings in (answering.Settings(method="x"), answering.Settings(methods=("x",))):
        assert answering._method(scored(), settings, model).reason == "you chose it"
    assert answering._method(scored(), answering.Settings(), model).paper == ""


# --- the answer -------------------------------------------------------------------------------------------------------


def removal_of(trace: Any, **more: Any) -> Any:
    values = {(): 0.9, (1,): 0.25, (2,): 0.8, (3,): 0.95, (2, 3): 0.85, (1, 2): 0.2, (1, 2, 3): 0.5, (1, 3): 0.3}
    known = {
        frozenset(words): SimpleNamespace(
            value=number, is_target=number >= 0.5, predicted=(int(number >= 0.5), 4), input_ids=(7, 8, 9, 10, 11)
        )
        for words, number in values.items()
    }
    made = trust.Removal(trace, SimpleNamespace(foil=None, ids=(1, 2)), PIECES, "delete", known)  # type: ignore[arg-type]
    for name, value in more.items():
        setattr(made, name, value)
    return made


PLAN = trust.Plan((1,), (1, 2, 3), (1, 2, 3), (frozenset({2}), frozenset({3})), True, ((2, 1, 3),))


def test_how_the_answer_falls() -> None:
    removal = removal_of(made_trace())
    fall = outcome.fall_of(removal, PLAN, asked_like())
    assert fall == Fall(0.9, 0.25, pytest.approx(0.875), 1, True, 2, 0, True, 0.25, (0.25,))  # type: ignore[arg-type]
    none = outcome.fall_of(removal, replace(PLAN, named=(), sets=()), asked_like(predicted=False))
    assert none == Fall(0.9, 0.9, 0.9, 0, False, 0, 0, False, None)


def test_everything_that_taking_words_out_says() -> None:
    removal, words = removal_of(made_trace()), answering._words(PIECES, scored())
    fall = outcome.fall_of(removal, PLAN, asked_like())
    found = outcome.trust_of(
        removal, PLAN, fall, asked_like(), "delete", Agreement(2, 3, 1), Gaps(0.02, None), words, PIECES
    )
    assert (found.verdict, found.k, found.measures, found.whole, found.without) == (
        "caution",
        1,
        "probability of pos",
        0.9,
        0.25,
    )
    assert (
        found.sentence
        == "Partly, for this word: without it the model says something else. See the lines that are marked."
    )
    assert (found.filler, found.without_prediction, found.turned) == (
        Filler("delete", "words are deleted"),
        "neg",
        True,
    )
    assert found.random == Random(pytest.approx(0.875), 0.8, 0.95, 2, True, 0, (0.8, 0.95))  # type: ignore[arg-type]
    assert (found.alone, found.empty, found.single, found.but) == (0.85, 0.5, Single(1, 0.25, True), "")
    assert found.curve == Curve((0.9, 0.25, 0.2, 0.5), ((0.9, 0.8, 0.2, 0.5),))
    assert [check.id for check in found.checks] == ["removal", "agreement", "completeness", "single"]
    fine = outcome.trust_of(
        removal, PLAN, fall, asked_like(), "delete", Agreement(2, 3, 1), Gaps(None, None), words, PIECES
    )
    assert fine.verdict == "ok"
    empty = replace(PLAN, named=(), sets=())
    nothing = outcome.fall_of(removal, empty, asked_like())
    none = outcome.trust_of(
        removal, empty, nothing, asked_like(), "delete", Agreement(1, 1, 0), Gaps(None, None), words, PIECES
    )
    assert (none.verdict, none.single, none.but, none.checks) == ("fail", None, "", ())
    assert none.sentence == "No: no word speaks for the answer, so there is nothing to take out."
    assert (found.without_each, none.without_each) == ((0.25,), ())
    weak = replace(fall, without=0.895)
    assert outcome.trust_of(
        removal, PLAN, weak, asked_like(), "mask", Agreement(2, 3, 1), Gaps(None, None), words, PIECES
    ).but == (", but taking random words out changes more")


@pytest.mark.parametrize(("foil", "told"), [("neg", ""), ("other", " (the model then says “neg”)")])
def test_what_the_model_says_then_is_told_where_it_is_neither_answer_nor_foil(foil: str, told: str) -> None:
    removal, words = removal_of(made_trace()), answering._words(PIECES, scored())
    asked = asked_like(foil_name=foil)
    weak = replace(outcome.fall_of(removal, PLAN, asked), without=0.895)
    found = outcome.trust_of(removal, PLAN, weak, asked, "mask", Agreement(2, 3, 1), Gaps(None, None), words, PIECES)
    assert found.but == f", but taking random words out changes more{told}"


def test_a_named_word_that_raises_the_answer_alone_is_named_and_its_number_kept() -> None:
    removal, words = removal_of(made_trace()), answering._words(PIECES, scored())
    removal.known[frozenset({3})].value = 0.96
    plan = replace(PLAN, named=(1, 3))
    fall = outcome.fall_of(removal, plan, asked_like())
    found = outcome.trust_of(
        removal, plan, fall, asked_like(), "delete", Agreement(2, 3, 2), Gaps(None, None), words, PIECES
    )
    assert (found.verdict, found.without_each) == ("caution", (0.25, 0.96))
    assert found.but == ", though taking “bad” out alone makes it more likely"
    assert found.sentence.endswith("; taking “bad” out alone raises it.")
    removal.known[frozenset({3})].value = 0.94
    fall = outcome.fall_of(removal, plan, asked_like())
    found = outcome.trust_of(
        removal, plan, fall, asked_like(), "delete", Agreement(2, 3, 2), Gaps(None, None), words, PIECES
    )
    assert (found.verdict, found.but) == ("ok", "")


def test_what_the_model_says_without_the_named_words() -> None:
    assert outcome.prediction_without(removal_of(made_trace()), PLAN, PIECES) == "neg"
    trace = made_trace("question-answering")
    told: list[Any] = []
    trace.model.tokenizer = SimpleNamespace(
        decode=lambda ids, skip_special_tokens: told.append((ids, skip_special_tokens)) or " a span "
    )
    assert outcome.prediction_without(removal_of(trace), PLAN, PIECES) == "a span"
    assert told == [([7, 8, 9, 10, 11], True)]
    trace.model.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: " ")
    assert outcome.prediction_without(removal_of(trace), PLAN, PIECES) == "no answer"
    assert outcome.prediction_without(removal_of(trace), replace(PLAN, named=(2,)), PIECES) == "good"


def test_every_part_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    planned: list[Any] = []

    class Removal(trust.Removal):
        def run(self, sets: Any) -> None:
            planned.append(list(sets))
            self.known |= removal_of(None).known

    def plan_of(scores: Any, named: Any, free: Any, **more: Any) -> trust.Plan:
        planned.append((tuple(named), tuple(free), more))
        return replace(PLAN, named=tuple(named))

    monkeypatch.setattr(trust, "Removal", Removal)
    monkeypatch.setattr(trust, "plan_of", plan_of)
    monkeypatch.setattr(
        answering, "notes_of_text", lambda trace, asked, cut, reasons: [("text", cut, [word.text for word in reasons])]
    )
    monkeypatch.setattr(answering, "notes_of_scores", lambda words, reasons, *rest: [("scores", reasons, *rest)])
    monkeypatch.setattr(
        answering, "notes_of_trust", lambda trusted, fall, *rest: [("trust", trusted.k, fall.k, fall.size > 0, rest[1])]
    )
    monkeypatch.setattr(answering, "provenance_of", lambda *given: {"given": given[1:]})
    lead, other = scored(paper="P", completeness={"relative_gap": 0.5}), scored("alti", (0.0, 0.0, 3.0, 0.0, 0.0))
    trace, settings, left_out = made_trace(pair="p"), answering.Settings(draws=7, seed=3), [("A", "no")]
    trace.model.proof = SimpleNamespace(gap=0.125)
    asked = asked_like(foil_name="neg", suggested=True)
    found = answering._put_together(
        trace, asked, PIECES, "word", [lead, other], lead, left_out, "delete", settings, 9, told.append
    )
    assert told == ["words taken out"]
    assert planned[0] == ((1,), (1, 2, 3), {"tokens": 6, "draws": 7, "seed": 3})
    assert (found.model, found.task, found.classes, found.text, found.pair) == (
        "m",
        "classification",
        ("neg", "pos"),
        "good film bad!",
        "p",
    )
    assert (found.question, found.unit) == ("Why did the model say pos rather than neg?", "word")
    assert found.sentence.startswith("pos rather than neg (90.0\u202f%), because of “good”")
    assert found.sentence.endswith("; against it: “bad”")
    assert found.answer == Answer("pos", "neg", 0.9, "sure", (1,), (3,), True)
    assert (found.predictions, found.special_share) == ((("pos", 0.9),), pytest.approx(1 / 8.5))
    assert [word.score for word in found.words] == [1.0, 4.0, 1.0, -2.0, 0.5]
    assert (found.method.id, found.method.paper, [one.id for one in found.methods]) == (
        "deeplift",
        "P",
        ["deeplift", "alti"],
    )
    assert (found.agreement, found.gaps) == (Agreement(1, 2, 1), Gaps(answering.completeness(lead.result.info), 0.125))
    assert found.notes == (
        ("text", 9, ["good"]),
        ("scores", [1], found.special_share, True, 0),
        ("trust", 1, 1, True, left_out),
    )
    assert (found.limits, found.provenance) == (dict(choice.LIMITS), {"given": (settings, [lead, other], asked)})
    assert found.trust.whole == 0.9
    unsigned = scored("alti", (1.0, 4.0, 1.0, -2.0, 0.5))
    trace.text, trace.model.proof = None, None
    plain = answering._put_together(
        trace, asked, PIECES, "word", [unsigned], unsigned, [], "delete", settings, None, told.append
    )
    assert (plain.text, plain.answer.against, plain.gaps.reconstruction) == ("", (), None)
    trace.model.task, trace.text = "question-answering", "x"
    own = asked_like(own=frozenset({4}))
    trace.model.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "span")
    spanned = answering._put_together(
        trace, own, PIECES, "word", [lead], lead, [], "delete", settings, None, told.append
    )
    assert spanned.notes[1][-1] == pytest.approx(2 / 7.5)  # type: ignore[index]


def test_why_hands_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def step(name: str, answer: Any) -> Any:
        return lambda *given, **named: calls.append((name, given, named)) or answer

    monkeypatch.setattr(choice, "refuse_unanswerable", step("choice", None))
    monkeypatch.setattr(choice, "filler_for", step("filler", "filled"))
    for name, answer in (("_requests", "requests"), ("_traced", ("trace", 5)), ("pieces_of", ("pieces", "unit"))):
        monkeypatch.setattr(answering, name, step(name, answer))
    for name, result in (("asked_of", "asked"), ("_readings", ("readings", "lead", "left")), ("_put_together", "why")):
        monkeypatch.setattr(answering, name, step(name, result))
    model: Any = "model"
    assert answering.why(model, "text") == "why"  # type: ignore[comparison-overlap]
    usual = answering.Settings()
    assert calls == [
        ("choice", ("model",), {}),
        ("_requests", ("model", usual), {}),
        ("filler", ("model", None), {}),
        ("_traced", ("model", "text", None, False), {}),
        ("pieces_of", ("trace",), {}),
        ("asked_of", ("trace", "pieces"), {"target": None, "foil": None, "query": None}),
        ("_readings", ("trace", "asked", "pieces", "requests", usual, answering._silent), {}),
        (
            "_put_together",
            ("trace", "asked", "pieces", "unit", "readings", "lead", "left", "filled", usual, 5, answering._silent),
            {},
        ),
    ]
    assert usual == answering.Settings(None, None, None, 20, 0)
    calls.clear()
    given: dict[str, Any] = {
        "target": "t",
        "foil": "f",
        "query": "q",
        "pair": "p",
        "method": "m",
        "methods": ["a"],
        "filler": "mask",
    }
    answering.why(model, "text", **given, draws=3, seed=4, truncate=True, progress=print)
    named = answering.Settings("m", ("a",), "mask", 3, 4)
    assert calls[1:4] == [
        *(
            ("_requests", ("model", named), {}),
            ("filler", ("model", "mask"), {}),
            ("_traced", ("model", "text", "p", True), {}),
        ),
    ]
    assert calls[5] == ("asked_of", ("trace", "pieces"), {"target": "t", "foil": "f", "query": "q"})
    assert calls[6][1][-1] is print
    assert answering._silent("step") is None  # type: ignore[func-returns-value]
