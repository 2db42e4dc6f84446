"""`report` and `gather` part by part, with every function that computes replaced by one that says what it was given."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.model.model import Model
from mixlens.runs.corpus import Run
from mixlens.scoring.asking import parse_method
from mixlens.show.report import Gathering, Step, WatchedLayers, checked, compared, gather, report
from mixlens.show.results_page import Told
from mixlens.types import Attribution, Chat, Example, LayersOf, Map

reporting = importlib.import_module("mixlens.show.report")  # the function of this name hides the module


def said(call: Any) -> str:
    with pytest.raises(InputError) as refusal:
        call()
    return str(refusal.value)


class Trace:
    """A text of three tokens."""

    tokens = ("a", "7", "b")
    input_ids, words, logits = (1, 2, 3), None, None
    layers: Any = ()

    def __init__(self, task: str = "masked-lm", predicts: tuple[int, ...] = (), query: int = 2):
        self.model = SimpleNamespace(
            task=task, mask_id=9, name="m", tokenizer=SimpleNamespace(unk_token="[U]", mask_token="[M]")
        )
        self.predicts, self.query = predicts, query

    def __len__(self) -> int:
        return len(self.tokens)

    def prediction(self) -> Any:
        return [("yes", 0.5)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def mix(trace: Any, names: Any, **options: Any) -> Any:
        seen.append(("mix", names, options))
        return {
            name: Map(torch.ones(1, 3, 3), trace.tokens, name, {"of": name, "convention": "usual"}) for name in names
        }

    def attribute(trace: Any, name: str, **options: Any) -> Attribution:
        seen.append(("attribute", name, options))
        return Attribution(torch.ones(3), trace.tokens, name, {"of": name})

    monkeypatch.setattr(reporting, "mix", mix)
    monkeypatch.setattr(reporting, "attribute", attribute)
    monkeypatch.setattr(reporting, "Trace", Trace)
    return seen


def test_results_of_every_method_in_the_order_that_is_asked(calls: list[Any]) -> None:
    noted: list[Any] = []
    methods = ["alti", "attcat", "globenc:rollout=abnar", "alti:variant=released", "raw_attention"]
    trace: Any = Trace(predicts=(1, 2))
    found = gather(trace.model, trace, methods, target="x", foil=3, note=lambda *one: noted.append(one))
    assert [result.method for result in found] == ["alti", "attcat", "globenc", "alti", "raw_attention"]
    goal = {"target": "x", "foil": 3}
    assert calls == [
        ("mix", ["alti", "globenc"], {"variant": None}),
        ("attribute", "attcat", {"variant": None, "query": None, **goal}),
        ("mix", ["alti"], {"variant": "released"}),
        ("attribute", "raw_attention", {"variant": None, "query": None}),
    ]
    assert noted[0] == ("running the model", 0.0)
    assert noted[-1] == ("done", 1.0)
    assert noted[1:3] == [("alti, globenc", 0.0), ("attcat", 0.25)]
    facts = {"prediction": [("yes", 0.5)], "query": 1, "query_token": "7", "notices": found[0].info["notices"]}
    assert found[0].info == {"of": "alti", "convention": "usual", **facts}
    assert found[2].info == {"of": "globenc", **facts, "convention": "abnar"}
    assert found[1].info == {"of": "attcat", "prediction": [("yes", 0.5)]}


def test_a_text_is_traced_and_a_position_is_read(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    trace: Any = Trace()
    trace.logits = torch.zeros(1, 3, 4)
    model: Any = SimpleNamespace(trace=lambda text: calls.append(text) or trace)
    monkeypatch.setattr(reporting, "logits_at", lambda trace, places: ("logits", places))
    monkeypatch.setattr(reporting, "named", lambda model, logits, k: [(str(logits), k)])
    monkeypatch.setattr(reporting, "notices_of", lambda model, trace, query: [])
    (one,) = gather(model, "text", "attcat", query="7")
    assert calls == [
        "text",
        ("attribute", "attcat", {"variant": None, "query": 1, "target": "predicted", "foil": None}),
    ]
    assert one.info["prediction"] == [("('logits', (1,))", 5)]
    (one,) = gather(model, "text", "alti", query="-1")
    assert (one.info["query"], one.info["query_token"], "notices" in one.info) == (2, "b", False)
    assert "none" in said(lambda: gather(model, "text", "alti", query="none"))
    for task in ("classification", "token-classification"):
        trace.model.task = task
        assert gather(model, "text", "alti", query=0)[0].info["prediction"] == [("yes", 0.5)]
    trace.model.task, trace.logits = "causal-lm", None
    assert gather(model, "text", "alti", query=0)[0].info["prediction"] == [("yes", 0.5)]


@pytest.mark.parametrize(
    ("task", "predicts", "place"),
    [("masked-lm", (1, 2), 1), ("masked-lm", (), 2), ("causal-lm", (1,), 2), ("classification", (0,), 2)],
)
def test_where_a_page_begins(task: str, predicts: tuple[int, ...], place: int) -> None:
    assert reporting._place_read(Trace(task, predicts), None) == place  # type: ignore[arg-type]


def test_targets_go_with_methods_that_explain_one() -> None:
    message = (
        "a target goes with a method that explains a prediction, such as attcat; maps explain a position: give query=."
    )
    for goal in ({"target": "x"}, {"foil": "y"}, {"target": 0}):
        assert said(lambda goal=goal: gather(None, None, ["alti"], **goal)) == message  # type: ignore[arg-type]
    reporting._refuse_target([parse_method("alti"), parse_method("attcat")], "x", None)
    reporting._refuse_target([parse_method("alti")], "predicted", None)


def test_methods_are_named_once() -> None:
    assert checked([" alti ", "attcat", "alti", ""]) == ["alti", "attcat"]
    assert checked("alti") == ["alti"]
    assert said(lambda: checked([])) == "no method was asked for. Give names, as `mixlens methods` lists them."
    assert said(lambda: checked(["alti", "altii"])).startswith("unknown method 'altii'")


def test_steps_say_how_far_they_are() -> None:
    noted: list[Any] = []
    step = Step(lambda *one: noted.append(one), "alti", 1, 4)
    step.say()
    step.say_layer(0, 2)
    step.say_layer(1, 2)
    assert noted == [("alti", 0.25), ("alti, layer 1 of 2", 0.25), ("alti, layer 2 of 2", 0.375)]
    assert reporting._silent("x", 0.5) is None


def test_requests_that_share_a_call() -> None:
    names = ["alti", "attcat", "globenc", "attcat:variant=released", "alti:variant=released", "value_zeroing"]
    assert reporting._groups([parse_method(name) for name in names]) == [[0, 2, 5], [1], [3], [4]]


def test_layers_that_are_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Batch:
        layers = ("x", "y")

    monkeypatch.setattr(LayersOf, "__getitem__", lambda self, index: f"layer {index}")
    monkeypatch.setattr(LayersOf, "__len__", lambda self: 2)
    told: list[int] = []
    watched = WatchedLayers(LayersOf(Batch(), 3, 5), told.append)  # type: ignore[arg-type]
    assert (watched.row, watched.n, watched[1], watched[-1], watched[0:1]) == (
        3,
        5,
        "layer 1",
        "layer -1",
        "layer slice(0, 1, None)",
    )
    assert told == [1, -1]
    noted: list[Any] = []
    step = Step(lambda *one: noted.append(one), "alti", 0, 1)
    trace: Any = SimpleNamespace(layers=())
    assert reporting._watched(trace, step) is trace
    monkeypatch.setattr(reporting, "replace", lambda trace, layers: SimpleNamespace(layers=layers))
    trace.layers = LayersOf(Batch(), 0, 3)  # type: ignore[arg-type]
    reporting._watched(trace, step).layers[-1]
    assert noted == [("alti, layer 2 of 2", 0.5)]


def test_facts_go_with_maps(calls: list[Any]) -> None:
    gathering = Gathering(Trace(), 1, {"target": "x"}, {"prediction": "p", "query": 4})  # type: ignore[arg-type]
    step = Step(lambda *one: None, "n", 0, 1)
    (one,) = gathering.results([parse_method("alti:rollout=chefer")], step)
    assert one.info == {"of": "alti", "convention": "chefer", "prediction": "p", "query": 4}
    (other,) = gathering.results([parse_method("attcat")], step)
    assert other.info == {"of": "attcat", "prediction": "p"}
    assert calls[1] == ("attribute", "attcat", {"variant": None, "query": 1, "target": "x"})


# --- files ------------------------------------------------------------------------------------------------------------


class AModel(Model):
    """A model that computes nothing."""

    def __init__(self, task: str = "classification") -> None:
        self.task, self.name, self.made = task, "m", []

    def trace(self, text: Any, **_: Any) -> Any:
        made = Trace(self.task)
        made.text = text  # type: ignore[attr-defined]
        return made


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def spy(name: str, answer: Any) -> None:
        def call(*given: Any, **more: Any) -> Any:
            seen.append((name, *(one for one in given if not isinstance(one, Trace | Model)), more))
            return answer

        monkeypatch.setattr(reporting, name, call)

    for name in ("page", "page_of", "page_of_texts", "flow_page", "generation_page"):
        spy(name, f"<{name}>")
    spy("gather", ["result"])
    spy("why", "answer")
    spy("flow_results", ("scores", "heads"))
    spy("compared", ["c"])
    return seen


ONE = Attribution(torch.ones(2), ("a", "b"), "attcat", {})


def test_results_are_written_to_a_page(pages: list[Any], tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    assert report(ONE, place) == place
    assert place.read_text() == "<page>"
    more = {"preset": None, "title": None, "room": 2_000_000}
    place.unlink()
    report([ONE, ONE], place, title="T", preset="why", megabytes=0.5)
    place.unlink()
    report({"a": ONE, "b": ONE}, str(place))  # type: ignore[arg-type]
    assert pages == [
        ("page", [ONE], more),
        ("page", [ONE, ONE], {"preset": "why", "title": "T", "room": 500_000}),
        ("page", [ONE, ONE], more),
    ]


def test_runs_are_written_to_a_page(pages: list[Any], tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    run = Run.__new__(Run)
    object.__setattr__(run, "out", tmp_path / "run")
    for what in (run, str(tmp_path), tmp_path):
        place.unlink(missing_ok=True)
        report(what, place, label="l", examples=3, title="T")
    more = {"label": "l", "examples": 3, "title": "T", "room": 2_000_000}
    assert pages == [("page_of", tmp_path / "run", more), ("page_of", tmp_path, more), ("page_of", tmp_path, more)]
    assert place.read_text() == "<page_of>"


def test_what_a_page_is_not_made_of(pages: list[Any], tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    go_with_model = "texts=, methods=, target=, foil= and query= go with a model. Results are shown as they are."
    for option in ({"texts": "t"}, {"methods": "alti"}, {"target": 0}, {"foil": "x"}, {"query": 0}):
        assert said(lambda option=option: report(ONE, place, **option)) == go_with_model
    for option in ({"label": "l"}, {"examples": 0}):
        assert said(lambda option=option: report(ONE, place, **option)) == "label= and examples= go with a run."
    assert said(lambda: report(ONE, place, preset="x")) == "preset is one of why, flow, methods, not 'x'."
    assert (
        said(lambda: report(ONE, place, megabytes=0.1))
        == "megabytes is the most a text (or a run) may take, 0.2 to 1000, not 0.1."
    )
    kinds = "a report shows a Map, an Attribution, a list of them, a model, or the folder of a run; not"
    assert said(lambda: report(3, place)) == f"{kinds} int."  # type: ignore[arg-type]
    assert said(lambda: report("no/folder", place)) == f"{kinds} str ('no/folder' is no folder)."
    assert said(lambda: report(AModel(), place)) == "a report of a model needs texts=: one text, or a list of them."
    assert not place.exists()


def test_a_model_on_texts(pages: list[Any], tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    report(AModel(), place, texts=["t", ("a", "b")], target="x", foil="y", query=2)
    assert place.read_text() == "<page_of_texts>"
    goal = {"target": "x", "foil": "y", "query": 2}
    gathered = ("gather", {"methods": ("alti", "globenc", "value_zeroing"), **goal})
    answered = ("why", {"target": "x", "foil": "y", "query": None, "methods": ["c"]})
    told = Told(["result"], why="answer")  # type: ignore[list-item,arg-type]
    made = ("page_of_texts", [told, told], {"preset": None, "title": None, "room": 2_000_000})
    assert pages == [*[gathered, ("compared", 3, {}), answered] * 2, made]


@pytest.mark.parametrize(
    ("preset", "task", "given", "methods"),
    [
        (
            "methods",
            "masked-lm",
            None,
            ("integrated_gradients", "attcat", "grad_x_input", "alti", "globenc", "value_zeroing", "attention_rollout"),
        ),
        ("methods", "question-answering", ["alti", "alti"], ["alti"]),
        ("why", "token-classification", "attcat", ["attcat"]),
        (None, "causal-lm", None, ("alti", "globenc", "value_zeroing")),
    ],
)
def test_methods_of_a_page(pages: list[Any], tmp_path: Path, preset: Any, task: str, given: Any, methods: Any) -> None:
    report(AModel(task), tmp_path / "r.html", texts="t", methods=given, preset=preset, query=1)
    assert pages[0] == ("gather", {"methods": methods, "target": "predicted", "foil": None, "query": 1})
    query = None if task == "question-answering" else 1
    assert pages[2] == ("why", {"target": "predicted", "foil": None, "query": query, "methods": ["c"]})
    assert pages[3][2]["preset"] == preset


def test_a_page_of_the_answer_alone(pages: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(AModel(), tmp_path / "r.html", texts="t", preset="why")
    assert [one[0] for one in pages] == ["compared", "why", "page_of_texts"]
    assert pages[2][1] == [Told([], why="answer")]  # type: ignore[arg-type]

    def why(*_: Any, **__: Any) -> Any:
        raise InputError("no answer.")

    monkeypatch.setattr(reporting, "why", why)
    assert said(lambda: report(AModel(), tmp_path / "s.html", texts="t", preset="why")) == "no answer."
    report(AModel(), tmp_path / "s.html", texts="t")
    assert pages[-1][1] == [Told(["result"], unanswered="no answer.")]  # type: ignore[list-item]


def test_a_page_of_what_flows_where(pages: list[Any], tmp_path: Path) -> None:
    report(AModel(), tmp_path / "r.html", texts="t", preset="flow", query=2, megabytes=0.5)
    report(AModel(), tmp_path / "s.html", texts=["t"], preset="flow", methods=["globenc:rollout=toolkit", "alti"])
    assert pages == [
        ("flow_results", "t", {"method": "alti", "query": 2}),
        ("flow_page", "scores", {"heads": "heads", "rollout": None, "megabytes": 0.5}),
        ("flow_results", "t", {"method": "globenc", "query": None}),
        ("flow_page", "scores", {"heads": "heads", "rollout": "toolkit", "megabytes": 2.0}),
    ]
    pages.clear()
    report(AModel(), tmp_path / "u.html", texts=["t", "u"], preset="flow")
    assert pages[0] == ("gather", {"methods": ("alti",), "target": "predicted", "foil": None, "query": None})
    for method in ("attcat", "alti:variant=released", "attention:head=1"):
        message = f"a page of what flows where is made of a map, such as alti, not of {method!r}."
        assert (
            said(lambda method=method: report(AModel(), tmp_path / "v.html", texts="t", preset="flow", methods=method))
            == message
        )
    target = (
        "a target goes with a method that explains a prediction, such as attcat; maps explain a position: give query=."
    )
    assert said(lambda: report(AModel(), tmp_path / "v.html", texts="t", preset="flow", target="x")) == target


def test_texts_as_a_list() -> None:
    for one in ("t", Example("t"), ("a", "b"), Chat.__new__(Chat)):
        assert reporting._texts(one)[0] is one
    assert reporting._texts(["t", "u"]) == ["t", "u"]
    assert reporting._texts(iter(["t"])) == ["t"]


def test_a_written_text(pages: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Written:
        def __init__(self, whole: Any) -> None:
            self.whole = whole

        def with_effects(self) -> str:
            return "with effects"

    monkeypatch.setattr(reporting, "Generation", Written)
    plain = Written(None)
    report(Written("trace"), tmp_path / "r.html")  # type: ignore[arg-type]
    report(plain, tmp_path / "s.html")  # type: ignore[arg-type]
    assert pages == [("generation_page", "with effects", {"title": None}), ("generation_page", plain, {"title": None})]
    assert (tmp_path / "s.html").read_text() == "<generation_page>"


def test_files_that_are_no_report_are_kept(pages: list[Any], tmp_path: Path) -> None:
    place = tmp_path / "r.html"
    place.write_text("mine")
    with pytest.raises(Exception, match="exists and is not a mixlens report"):
        report(ONE, place)
    report(ONE, place, force=True)
    assert place.read_text() == "<page>"


@pytest.mark.parametrize(
    ("tokens", "task", "found"),
    [
        (128, "classification", None),
        (129, "classification", ["deeplift", "attcat", "integrated_gradients", "alti"]),
        (129, "causal-lm", ["deeplift", "transatt", "alti", "globenc"]),
        (129, "base", None),
    ],
)
def test_methods_that_an_answer_is_compared_with(tokens: int, task: str, found: list[str] | None) -> None:
    assert compared(SimpleNamespace(task=task, mask_id=None, name="m"), tokens) == found  # type: ignore[arg-type]
