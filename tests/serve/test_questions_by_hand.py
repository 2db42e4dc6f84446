"""From a request to an answer, on stand-ins for the model and the desk: every choice is handed on, every step is told in turn."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")
from mixlens.base.errors import InputError, LongError
from mixlens.serve import describe, questions, work
from mixlens.serve.guard import Refusal
from mixlens.serve.jobs import FullError
from mixlens.serve.schemas import Counted, Wanted


def wanted(**given: Any) -> Wanted:
    return Wanted.model_validate({"text": "a text", **given})


def counting(**given: Any) -> Counted:
    return Counted.model_validate(given)


def refused(call: Any, *given: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(Refusal) as refusal:
        call(*given)
    return refusal.value.status, refusal.value.body


class Desk:
    """A desk with two models that takes every job and keeps what it was given."""

    def __init__(self, *, notes: list[str] | None = None, is_full: bool = False, length: int = 7):
        model = SimpleNamespace(task="classification", name="m", tokenizer=SimpleNamespace(mask_token="[MASK]"))
        self.models: Any = {"m": model, "other": model}
        self.limits = SimpleNamespace(queue=3, methods=2, characters=100)
        self.jobs: list[Any] = []
        self.is_full, self.length, self._notes = is_full, length, notes or []

    def full(self) -> bool:
        return self.is_full

    def submit(self, *given: Any) -> str:
        self.jobs.append(given)
        return "job"

    def cut(self, name: str, text: Any) -> tuple[Any, str]:
        return f"{text} cut by {name}", "it was cut"

    def read(self, name: str, text: Any) -> int:
        if self.length > 10:
            raise InputError("too long")
        return self.length

    def count(self, name: str, text: Any) -> int:
        return self.length

    def tokens_at_most(self, model: Any) -> int:
        return 10

    def notes(self, name: str, text: Any) -> list[str]:
        return self._notes


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are known by their number, and every filler is."""
    monkeypatch.setattr(questions, "output_id", lambda model, name, role: (role, name))
    monkeypatch.setattr(questions, "filler_for", lambda model, filler: None)


# --- a request becomes a job ------------------------------------------------------------------------------------------------


def test_maps_are_asked_with_their_methods_and_targets() -> None:
    desk: Any = Desk(notes=["a note"])
    given: dict[str, Any] = {
        "methods": ["alti"],
        "query": 2,
        "target": "1",
        "foil": "bad",
        "truncate": True,
        "model": "other",
    }
    assert questions.submitted(desk, wanted(**given)) == "job"
    asked = {"text": "a text cut by other", "methods": ["alti"], "query": 2, "target": 1, "foil": "bad"}
    assert desk.jobs == [("other", asked, ["it was cut", "a note"])]
    questions.submitted(desk, wanted(methods=["alti"], pair="second"))
    usual = {"text": ("a text", "second"), "methods": ["alti"], "query": None, "target": "predicted", "foil": None}
    assert desk.jobs[1] == ("m", usual, ["a note"])


def test_a_question_is_asked_with_all_choices() -> None:
    desk: Any = Desk(notes=["a note"])
    given: dict[str, Any] = {
        "question": "flow",
        "methods": ["alti"],
        "query": 2,
        "target": "3",
        "foil": 1,
        "filler": "mask",
    }
    questions.submitted(desk, wanted(**given, generate=5))
    asked: dict[str, Any] = {
        "methods": ["alti"],
        "target": ("target", 3),
        "foil": ("foil", 1),
        "query": 2,
        "filler": "mask",
    }
    asked |= {"generate": 5, "text": "a text", "cut": None, "tokens": 7}
    assert desk.jobs == [("m", asked, ["a note"], "flow")]
    questions.submitted(desk, wanted(question="why", query=0, truncate=True))
    assert desk.jobs[1][1]["methods"] is None  # those of the task
    assert desk.jobs[1][1]["cut"] == "it was cut"
    assert desk.jobs[1][2:] == (["it was cut", "a note"], "why")
    model = desk.models["m"]
    assert questions.example_question(model, "x", 9) == {
        **{"methods": None, "target": None, "foil": None, "query": None, "filler": None, "generate": 20},
        **{"text": "x", "cut": None, "tokens": 9},
    }


def test_what_a_desk_refuses() -> None:
    full: Any = Desk(is_full=True)
    assert refused(questions.submitted, full, wanted()) == (
        429,
        {"error": "the queue is full: 3 texts are waiting. Try again in a few seconds."},
    )
    desk: Any = Desk()
    status, body = refused(questions.submitted, desk, wanted(model="othr"))
    assert (status, body["allowed"]) == (404, ["m", "other"])
    assert body["error"] == "no model 'othr' is served. Did you mean 'other'? Known: m, other."
    assert refused(questions.submitted, desk, wanted(methods=["alti"], filler="mask")) == (
        422,
        {"error": "filler goes with a question: send question too (why, flow, methods, written)."},
    )
    assert refused(questions.submitted, desk, wanted(methods=["alti", "norm", "attention"]))[0] == 422
    long: Any = Desk(length=11)
    assert refused(questions.submitted, long, wanted(methods=["alti"])) == (
        422,
        {"error": "too long", "kind": "too_long", "field": "text", "tokens": 11, "most": 10},
    )
    assert refused(questions.submitted, desk, wanted(text="x" * 101))[0] == 413
    assert not desk.jobs


@pytest.mark.parametrize(
    ("question", "query", "fails"),
    [("why", None, True), ("methods", None, True), ("flow", None, False), ("why", 0, False)],
)
def test_a_missing_mask_is_refused_where_the_answer_needs_one(question: str, query: Any, fails: bool) -> None:
    desk: Any = Desk(notes=["no mask"])
    request = wanted(question=question, query=query)
    if not fails:
        questions._refuse_no_mask(desk, "m", "a text", request)
        return
    assert refused(questions._refuse_no_mask, desk, "m", "a text", request) == (
        422,
        {
            "error": "this model fills in [MASK], and the text has none. Put [MASK] where a word is missing.",
            **{"kind": "no_mask", "field": "text", "mask": "[MASK]"},
        },
    )
    questions._refuse_no_mask(Desk(), "m", "a text", request)  # type: ignore[arg-type]


def test_tokens_are_counted_of_a_text_alone_or_of_a_pair() -> None:
    desk: Any = Desk(notes=["a note"])
    assert questions.counted(desk, counting(text=" \n")).model_dump() == {"tokens": 0, "most": 10, "notes": []}
    assert questions.counted(desk, counting(text="x", pair="y")).model_dump() == {
        "tokens": 7,
        "most": 10,
        "notes": ["a note"],
    }
    assert refused(questions.counted, desk, counting(text="x", pair="y" * 101))[0] == 413
    errors = [LongError("l"), FullError("f"), InputError("i")]
    made = [questions._refusal_of(error, desk.limits) for error in errors]
    assert [(one.status, one.body) for one in made] == [
        *((413, {"error": "l", "allowed": 100}), (429, {"error": "f"}), (422, {"error": "i"})),
    ]


def test_targets_are_names_numbers_or_spans() -> None:
    model: Any = SimpleNamespace(task="question-answering")
    assert [questions.target_of(model, name) for name in ("3, 5", "3,5,6", "3,x", "7", 8, "word")] == [
        *((3, 5), "3,5,6", "3,x", 7, 8, "word"),
    ]
    model.task = "masked-lm"
    assert questions.target_of(model, "3,5") == "3,5"
    assert questions._known_target(model, wanted(target="was"), "target") == "was"
    assert questions._known_target(model, wanted(target="was"), "foil") is None


def test_an_unknown_class_is_refused_with_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*given: Any) -> Any:
        raise InputError("no such class")

    monkeypatch.setattr(questions, "output_id", unknown)
    model: Any = SimpleNamespace(task="token-classification")
    assert refused(questions._known_target, model, wanted(foil="x"), "foil") == (
        422,
        {"error": "no such class", "kind": "unknown_class", "field": "foil"},
    )


# --- a job becomes an answer ------------------------------------------------------------------------------------------------


class Track:
    """Keeps every step that it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def plan(self, steps: Any) -> None:
        self.told.append(("plan", list(steps)))

    def next(self, text: str | None = None) -> None:
        self.told.append("next" if text is None else text)

    def know(self, predictions: Any) -> None:
        self.told.append(("know", predictions))


@dataclass
class Traced:
    model: Any
    predicts: bool = False

    def __len__(self) -> int:
        return 5

    def prediction(self) -> list[tuple[str, float]]:
        return [("good", 0.75)]


PIECES = [(False, False), (False, False), (False, True), (True, False)]  # special, mark
READ = "Read the text: 5 tokens, 2 words and 1 mark"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    pieces = [SimpleNamespace(special=special, mark=mark) for special, mark in PIECES]
    monkeypatch.setattr(work, "pieces_of", lambda trace: (pieces, None))
    one = SimpleNamespace(task="classification", name="m")
    one.trace = lambda text: Traced(one)
    return one


def asked(question: str, **given: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "question": question,
        "text": "t",
        "methods": None,
        "tokens": 5,
        "cut": None,
        "generate": 4,
    }
    return {**usual, "target": None, "foil": None, "query": None, "filler": None, **given}


@dataclass(frozen=True)
class Answer:
    notes: tuple[Any, ...] = ("first",)

    def to_dict(self) -> dict[str, Any]:
        return {"notes": self.notes}


def test_why_is_asked_with_the_choices_and_told_step_by_step(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def why(model: Any, trace: Any, *, progress: Any, **options: Any) -> Answer:
        given.append(options)
        for name in ("one", "two", "check"):
            progress(name)
        return Answer()

    monkeypatch.setattr(work, "why", why)
    monkeypatch.setattr(work, "compared", lambda model, tokens: ["alti"] if tokens == 5 else [])
    monkeypatch.setattr(work, "shown_why", lambda told: ("shown", told))
    monkeypatch.setattr(work, "why_page", lambda answer: f"page of {len(answer.notes)} notes")
    track = Track()
    choices: dict[str, Any] = {"target": 1, "foil": 0, "query": 2, "filler": "mask"}
    made = work.answered(model, "why", asked("why", methods=["alti", "norm"], cut="it was cut", **choices), track)
    assert given == [{"methods": ["alti", "norm"], **choices}]
    assert made.file == "page of 2 notes"
    note = made.content["why"][1]["notes"][1]
    assert (made.content["kind"], note) == ("why", work.Note("cut", "caution", "it was cut"))
    plan, *rest = track.told
    assert plan[1] == work.steps_of("why", ["alti", "norm"], 5)
    assert rest == [
        "next",
        "next",
        READ,
        ("know", [("good", 0.75)]),
        "next",
        "next",
    ]  # the first method began with the text
    made = work.answered(model, "why", asked("why"), Track())
    assert given[1]["methods"] == ["alti"]
    assert made.file == "page of 1 notes"


def test_methods_are_compared_for_the_same_goal(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[Any] = []
    pages: list[Any] = []
    monkeypatch.setattr(work, "_answer", lambda model, asked, track: ("trace", Answer(), ["alti", "norm"]))
    monkeypatch.setattr(work, "gather", lambda *given, **options: gathered.append((given, options)) or "results")
    monkeypatch.setattr(work, "Told", lambda results, why: (results, why))
    monkeypatch.setattr(work, "page_of_texts", lambda *given, **options: pages.append((given, options)) or "page")
    monkeypatch.setattr(work, "shown_why", lambda told: told)
    track = Track()
    made = work.answered(model, "methods", asked("methods", query=3, foil=0), track)
    assert (made.content, made.file, track.told) == (
        {"kind": "methods", "why": {"notes": ("first",)}},
        "page",
        ["next"],
    )
    work.answered(model, "methods", asked("methods", target=0), track)
    goals = [{"query": 3, "target": "predicted", "foil": 0}, {"query": None, "target": 0, "foil": None}]
    assert gathered == [((model, "trace", ["alti", "norm"]), goal) for goal in goals]
    assert pages[0] == (([("results", Answer())],), {"room": 2_000_000, "preset": "methods"})


def test_a_flow_and_written_words(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        work, "flow_results", lambda *one, **options: given.append((one[0], options)) or ("scores", "heads")
    )
    monkeypatch.setattr(work, "picture_of", lambda scores, heads: (scores, heads))
    monkeypatch.setattr(work, "flow_data", lambda picture, room: (picture, room))
    monkeypatch.setattr(work, "flow_page", lambda scores, heads: f"page of {scores} and {heads}")
    track = Track()
    made = work.answered(model, "flow", asked("flow", methods=["globenc"], query=3), track)
    assert made.content == {"kind": "flow", "flow": (("scores", "heads"), 2_000_000)}
    assert made.file == "page of scores and heads"
    plan = ("plan", work.steps_of("flow", (), 5))
    assert track.told == [plan, "next", "next", READ, ("know", [("good", 0.75)]), "next"]
    work.answered(model, "flow", asked("flow"), Track())
    assert [options for _, options in given] == [{"method": "globenc", "query": 3}, {"method": "alti", "query": None}]
    written: list[Any] = []
    effects = SimpleNamespace(with_effects=lambda: "effects")
    monkeypatch.setattr(work, "write", lambda model, text, generate: written.append((text, generate)) or "text")
    monkeypatch.setattr(work, "explain_written", lambda text, method: written.append((text, method)) or effects)
    monkeypatch.setattr(work, "content_of", lambda generation: f"content of {generation}")
    monkeypatch.setattr(work, "generation_page", lambda generation: f"page of {generation}")
    track = Track()
    made = work.answered(model, "written", asked("written", methods=["norm"]), track)
    work.answered(model, "written", asked("written"), Track())
    assert (made.content, made.file) == ({"kind": "written", "generation": "content of effects"}, "page of effects")
    assert written == [("t", 4), ("text", "norm"), ("t", 4), ("text", "alti")]
    plan = ("plan", work.steps_of("written", (), 5))
    assert track.told == [plan, "next", "next", READ, ("know", [("good", 0.75)]), "next", "next"]


@pytest.mark.parametrize(
    ("task", "predicts", "known"), [("masked-lm", False, 0), ("masked-lm", True, 1), ("causal-lm", False, 1)]
)
def test_a_prediction_is_known_where_one_is_read(task: str, predicts: bool, known: int) -> None:
    track = Track()
    work._predicted(Traced(SimpleNamespace(task=task), predicts), track)  # type: ignore[arg-type]
    assert len(track.told) == known


def test_questions_that_a_model_cannot_answer() -> None:
    def said(task: str, question: str, methods: Any = None) -> str:
        model: Any = SimpleNamespace(task=task, name="m")
        with pytest.raises(InputError) as refusal:
            work.refuse_question(model, question, methods)
        return str(refusal.value)

    assert said("masked-lm", "written").startswith("'m' writes no text, so there are no written words.")
    assert said("base", "flow").startswith("'m' was loaded without a head, so it says nothing.")
    assert said("causal-lm", "written", ["alti", "norm"]).startswith(
        "this question is answered by one method, not by 2."
    )
    for method in ("grad_x_input", "alti:variant=released"):
        assert said("causal-lm", "flow", [method]).startswith(
            "what flows where is shown by a map, such as alti, not by"
        )
    able: Any = SimpleNamespace(task="causal-lm", name="m")
    for question, methods in (
        ("written", ["grad_x_input"]),
        ("flow", ["alti"]),
        ("flow", None),
        ("why", ["alti", "norm"]),
    ):
        work.refuse_question(able, question, methods)


def test_a_model_is_described_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "methods_for", lambda model: ["alti:variant=released", "norm"])
    monkeypatch.setattr(describe, "known_fillers", lambda model: ["mask"])
    labels = {place: f"class {place}" for place in range(101)}
    model: Any = SimpleNamespace(
        **{"name": "m", "task": "classification", "n_layers": 3, "family": SimpleNamespace(name="bert")},
        **{
            "hf_model": SimpleNamespace(config=SimpleNamespace(id2label=labels)),
            "tokenizer": SimpleNamespace(mask_token="[X]"),
        },
    )
    desk: Any = SimpleNamespace(tokens_at_most=lambda model: 9, times=SimpleNamespace(of=lambda name: {"why": 2.0}))
    told = describe.about_model(desk, model)
    assert told.pop("questions") == describe.questions_for(model)
    assert told == {
        **{"name": "m", "task": "classification", "family": "bert", "layers": 3, "max_tokens": 9, "mask": "[X]"},
        **{"labels": [f"class {place}" for place in range(100)], "methods": ["alti", "norm"], "seconds": {"why": 2.0}},
        **{"example": "The plot was dull but the acting was brilliant.", "fillers": {"mask": describe.FILLERS["mask"]}},
    }
    asked = {one["name"]: one for one in describe.questions_for(model)}
    assert list(asked) == ["why", "flow", "methods"]
    assert asked["methods"]["help"] == "Two methods under the same sentence."
    model.task = "masked-lm"
    told = describe.about_model(desk, model)
    assert (told["labels"], told["example"]) == ([], "The keys to the cabinet [X] rusty.")
    model.task = "causal-lm"
    assert [one["name"] for one in describe.questions_for(model)] == ["why", "flow", "methods", "written"]
    assert all(sorted(one) == ["help", "name", "title"] for one in describe.questions_for(model))
    model.task = "base"
    told = describe.about_model(desk, model)
    assert (told["questions"], told["methods"], told["example"]) == ([], [], "")
