"""`explain`, `map` and `compare` with a model, maps and attributions that only keep what they were asked."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_commands_by_hand import Recorder, invoked, refused

from mixlens.base.errors import InputError, MixlensError
from mixlens.cli import explain as explaining
from mixlens.cli import options, scores
from mixlens.cli.app import main


@dataclass(frozen=True)
class Shown:
    """An attribution or a map that keeps how it was shown."""

    name: str
    log: list[Any] = field(default_factory=list)
    method: str = "alti"
    tokens: tuple[str, ...] = ("a", "b")
    scores: Any = field(default_factory=lambda: torch.tensor([0.5, 0.25]))
    info: dict[str, Any] = field(default_factory=dict)

    def by_word(self) -> Shown:
        return replace(self, name=f"words of {self.name}")

    def show(self, **named: Any) -> None:
        self.log.append(("show", self.name, named))

    def save(self, file: Path, *, force: bool) -> None:
        assert not force
        self.log.append(("save", self.name, file))

    def to_latex(self) -> str:
        return f"latex of {self.name}\n"

    def rollout(self, rule: Any) -> Shown:
        return replace(self, name=f"{self.name} rolled by {rule}")

    def readout(self, place: Any, *, layer: int) -> Shown:
        return replace(self, name=f"{self.name} at {place} of layer {layer}")


@pytest.fixture
def lens(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model of three layers whose text is "a b"; `log` has all that was asked and shown, in order."""
    log: list[Any] = []
    trace = SimpleNamespace(
        tokens=("a", "b"), input_ids=(1, 2), query=1, words=None, layers=[0, 1, 2], prediction=lambda: "predicted"
    )
    model = SimpleNamespace(name="m", n_layers=3, task="classification", tokenizer=None, mask_id=None, log=log)

    def traced(source: Any) -> Any:
        log.append(("trace", source))
        return trace

    def attribute(trace: Any, name: str, **named: Any) -> Shown:
        log.append(("attribute", name, named))
        return Shown(f"{name} scores", log, name, info={"seconds": {"map": 0.25, "batch": 9.0}})

    def row_of_map(trace: Any, made: Shown, **named: Any) -> Shown:
        log.append(("row", made.name, named))
        return Shown(f"row of {made.name}", log, info={"seconds": {"map": 0.5}})

    def mix(trace: Any, names: list[str], **named: Any) -> dict[str, Shown]:
        log.append(("mix", names, named))
        return {name: Shown(f"{name} map", log) for name in names}

    def load(self: Any, name: str) -> Any:
        log.append(("load", name, self))
        return model

    model.trace = traced
    monkeypatch.setattr(scores, "attribute", attribute)
    monkeypatch.setattr(scores, "row_of_map", row_of_map)
    monkeypatch.setattr(scores, "mix", mix)
    monkeypatch.setattr(scores, "without_special", lambda read: replace(read, name=f"{read.name} without special"))
    monkeypatch.setattr(options.LoadOptions, "load", load)
    monkeypatch.setattr(
        options.LoadOptions, "timed_load", lambda self, name: (load(self, name), {"weights": 0.5, "model check": 0.25})
    )
    return model


USUAL = options.LoadOptions()


def test_explain_by_a_map(lens: Any) -> None:
    invoked("explain", "some text")
    assert lens.log == [
        ("load", "agreement", USUAL),
        ("trace", "some text"),
        ("mix", ["alti"], {"variant": None}),
        ("row", "alti map", {"query": None, "rollout": None}),
        ("show", "row of alti map", {"color": True, "top": None}),
    ]
    lens.log.clear()
    words = [
        "-m",
        "x",
        "--method",
        "globenc:rollout=alti",
        "--query",
        "b",
        "--words",
        "--no-special",
        "--no-color",
        "--top",
        "0",
    ]
    invoked("explain", "some text", *words, "--pair", "p", "--save", "f.json", "--dtype", "float64")
    row = "words of row of globenc map without special"
    assert lens.log == [
        ("load", "x", options.LoadOptions(dtype="float64")),
        ("trace", ("some text", "p")),
        ("mix", ["globenc"], {"variant": None}),
        ("row", "globenc map", {"query": 1, "rollout": "alti"}),
        ("save", row, Path("f.json")),
        ("show", row, {"color": False, "top": 0}),
    ]
    lens.log.clear()
    invoked("explain", "some text", "--target", "a")  # of a map, a position
    assert lens.log[3] == ("row", "alti map", {"query": 0, "rollout": None})
    told = refused("explain", "some text", "--foil", "b")
    assert told.startswith(
        "'alti' explains a position, whatever the class or word: leave --foil and --score out, or take"
    )


def test_explain_by_an_attribution(lens: Any) -> None:
    invoked(
        "explain",
        "some text",
        "--method",
        "attcat",
        "--target",
        "1",
        "--foil",
        "0",
        "--score",
        "probability",
        "--query",
        "0",
    )
    question = {"query": 0, "target": 1, "foil": 0, "score": "probability", "variant": None}
    assert lens.log[2:] == [("attribute", "attcat", question), ("show", "attcat scores", {"color": True, "top": None})]
    lens.log.clear()
    invoked("explain", "some text", "--method", "attcat")
    assert lens.log[2] == (
        "attribute",
        "attcat",
        {"query": None, "target": "predicted", "foil": None, "score": None, "variant": None},
    )


def test_explain_in_other_formats(lens: Any) -> None:
    assert invoked("explain", "some text", "--latex").stdout == "latex of row of alti map\n"
    told = json.loads(invoked("explain", "some text", "--json").stdout)
    assert told == {"method": "alti", "tokens": ["a", "b"], "scores": [0.5, 0.25], "info": {"seconds": {"map": 0.5}}}
    lens.log.clear()
    result = invoked("explain", "some text", "--map", "2", "--words", "--no-color")
    assert result.stdout == "\n"
    assert lens.log[-2:] == [
        ("show", "words of row of alti map", {"color": False, "top": None}),
        ("show", "words of alti map", {"layer": 1, "color": False}),
    ]
    assert [step[0] for step in lens.log].count("mix") == 1


def test_times_of_explain(lens: Any) -> None:
    lines = invoked("explain", "some text", "--timing").stdout.splitlines()
    found = {
        name.strip(): float(number)
        for name, number in (re.match(r"(.*\S)\s+([\d.]+) ms", line).groups() for line in lines)
    }  # type: ignore[union-attr]
    assert list(found) == ["load and check", "import", "weights", "model check", "alti", "total"]
    assert (found["weights"], found["model check"], found["alti"]) == (500.0, 250.0, 500.0)
    assert 0 <= found["import"] <= found["load and check"] <= found["total"] < 60_000
    result = invoked("explain", "some text", "--timing", "--json")
    assert len(result.stdout.splitlines()) == 1
    assert "load and check" in result.stderr


def test_layers_of_a_map_and_of_gradients(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        "mixlens.show.text.compare_view",
        lambda results, **named: drawn.append(([one.name for one in results], named)) or "view",
    )
    printed: list[Any] = []
    monkeypatch.setattr(
        "mixlens.show.text.console",
        lambda color=True: SimpleNamespace(print=lambda what: printed.append((color, what))),
    )
    invoked("explain", "some text", "--layers", "--no-color", "--top", "3", "--words")
    rows = [f"words of alti map rolled by None at 1 of layer {number}" for number in range(3)]
    assert drawn == [(rows, {"names": ["layer 1", "layer 2", "layer 3"], "layers": True, "top": 3})]
    assert printed == [(False, "view")]
    invoked("explain", "some text", "--layers", "--query", "a", "--no-special")
    assert drawn[1][0] == [f"alti map rolled by None at 0 of layer {number} without special" for number in range(3)]
    lens.log.clear()
    invoked("explain", "some text", "--layers", "--method", "grad_x_input")
    layers = [step[2]["layer"] for step in lens.log if step[0] == "attribute" and "layer" in step[2]]
    assert (layers, drawn[2][1]["names"]) == ([0, 1, 2, 3], ["input", "after 1", "after 2", "after 3"])
    assert refused("explain", "some text", "--layers", "--method", "blank_out") == (
        "'blank_out' is not defined at single layers. Leave --layers out."
    )


def test_the_first_layer_tells_the_prediction(lens: Any) -> None:
    request: Any = SimpleNamespace(is_map=True, rollout="r", call_key="k", name="alti", variant=None, options={})
    explanation = scores.Explanation(lens.trace("x"), request, {"query": None}, keep_special=True)
    assert {name: read.info for name, read in explanation.layers.items()} == {
        **{"layer 1": {"prediction": "predicted"}, "layer 2": {}, "layer 3": {}}
    }
    assert explanation.layers["layer 2"].name == "alti map rolled by r at 1 of layer 1"  # type: ignore[attr-defined]


def test_maps_with_the_same_options_are_made_together(lens: Any) -> None:
    def request(name: str, key: str, **more: Any) -> Any:
        return SimpleNamespace(name=name, call_key=key, variant=more.get("variant"), options=more.get("options", {}))

    asked = [
        request("a", "1", variant="paper"),
        request("b", "2", options={"x": 3}),
        request("c", "1", variant="paper"),
    ]
    found = scores.maps_of("trace", iter(asked))  # type: ignore[arg-type]
    assert [one.name for one in found] == ["a map", "b map", "c map"]  # type: ignore[attr-defined]
    assert lens.log == [("mix", ["a", "c"], {"variant": "paper"}), ("mix", ["b"], {"variant": None, "x": 3})]
    given: Any = SimpleNamespace(variant="v", rollout=None, options={"o": 1})
    assert scores.arguments_of(given) == {"variant": "v", "o": 1}
    given.rollout = "r"
    assert scores.arguments_of(given) == {"variant": "v", "rollout": "r", "o": 1}


def test_compare(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        "mixlens.show.text.compare_view",
        lambda results, **named: drawn.append(([one.name for one in results], named)) or "view",
    )
    monkeypatch.setattr(
        "mixlens.show.text.console", lambda color=True: SimpleNamespace(print=lambda what: drawn.append((color, what)))
    )
    invoked("compare", "some text")
    names = ["attention", "globenc", "alti", "value_zeroing"]
    assert lens.log[:3] == [("load", "agreement", USUAL), ("trace", "some text"), ("mix", names, {"variant": None})]
    assert drawn == [([f"row of {name} map" for name in names], {"names": names, "top": None}), (True, "view")]
    lens.log.clear()
    words = ["--methods", "alti,attcat", "--query", "b", "--target", "1", "--foil", "0", "--score", "logit", "--words"]
    invoked("compare", "some text", *words, "--no-special", "--no-color", "--top", "2", "--pair", "p", "-m", "x")
    question = {"query": 1, "variant": None, "target": 1, "foil": 0, "score": "logit"}
    assert lens.log == [
        ("load", "x", USUAL),
        ("trace", ("some text", "p")),
        ("mix", ["alti"], {"variant": None}),
        ("row", "alti map", {"query": 1, "rollout": None}),
        ("attribute", "attcat", question),
    ]
    found = ["words of row of alti map without special", "words of attcat scores without special"]
    assert drawn[2:] == [(found, {"names": ["alti", "attcat"], "top": 2}), (False, "view")]
    lines = invoked("compare", "some text", "--methods", "alti,attcat", "--json").stdout.splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["alti", "attcat"]
    monkeypatch.setattr("mixlens.show.latex.latex", lambda results: f"{len(results)} in LaTeX\n")
    assert invoked("compare", "some text", "--methods", "alti,attcat", "--latex").stdout == "2 in LaTeX\n"
    assert refused("compare", "some text", "--methods", "alti", "--target", "x").startswith(
        "'alti' explains a position"
    )
    assert refused("compare", "some text", "--latex", "--json").startswith("--latex and --json are two ways to print")


def test_map(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    notices = Recorder([])
    monkeypatch.setattr("mixlens.scoring.notices.notices_of", notices)
    invoked("map", "some text")
    assert lens.log == [
        ("load", "agreement", USUAL),
        ("trace", "some text"),
        ("mix", ["alti"], {"variant": None}),
        ("show", "alti map", {"layer": -1, "color": True}),
    ]
    assert notices.calls[0][1] == {"query": 0}
    lens.log.clear()
    words = [
        "--layer",
        "2",
        "--rollout",
        "--method",
        "globenc:rollout=alti",
        "--words",
        "--no-color",
        "--save",
        "f.json",
        "--pair",
        "p",
    ]
    invoked("map", "some text", *words, "-m", "x", "--variant", "paper")
    assert lens.log == [
        ("load", "x", USUAL),
        ("trace", ("some text", "p")),
        ("mix", ["globenc"], {"variant": "paper"}),
        ("save", "words of globenc map rolled by alti", Path("f.json")),
        ("show", "words of globenc map rolled by alti", {"layer": 1, "color": False}),
    ]
    lens.log.clear()
    invoked("map", "some text", "--query", "b", "--words", "--layer", "1")
    assert lens.log[-1] == ("show", "words of alti map at 1 of layer 0", {"color": True})
    lens.log.clear()
    told = json.loads(invoked("map", "some text", "--json", "--query", "a").stdout)
    assert (told["method"], [step[0] for step in lens.log]) == ("alti", ["load", "trace", "mix"])
    lens.log.clear()
    assert "'attcat'" in refused("map", "some text", "--method", "attcat")  # it gives scores of tokens, no map
    assert lens.log == []
    assert (
        refused("map", "some text", "--layer", "4")
        == "layer 4 does not exist: 'm' has layers 1 to 3, or -1 for the last."
    )
    assert refused("map", "some text", "--method", "globenc:rollout=alti").endswith("give --rollout, or leave it out.")


def test_one_head_of_a_map(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixlens.scoring.notices.notices_of", lambda *given, **named: [])
    asked: list[Any] = []
    monkeypatch.setattr(
        explaining.command_words, "refuse_head", lambda trace, request: asked.append((trace.tokens, request.options))
    )
    invoked("map", "some text", "--method", "attention", "--head", "2")
    ((tokens, given),) = asked
    assert (tokens, given) == (("a", "b"), {"head": 1})
    assert lens.log[2] == ("mix", ["attention"], {"variant": None, **given})
    invoked("map", "some text", "--method", "attention")
    assert len(asked) == 1


def test_a_map_with_notices(lens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request: Any = SimpleNamespace(is_map=True, rollout="r", call_key="k", name="alti", variant=None, options={})
    for told in ([], ["careful"]):
        monkeypatch.setattr("mixlens.scoring.notices.notices_of", lambda model, trace, query, told=told: told)
        found = explaining._map_of(lens, "trace", request, rollout=False)  # type: ignore[arg-type]
        assert (found.info, found.name) == ({"notices": told} if told else {}, "alti map")
    assert explaining._map_of(lens, "trace", request, rollout=True).name == "alti map rolled by r"  # type: ignore[arg-type]


# --- the end of a command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError("two\nlines \x1b"), 2, "mixlens: two lines \\u001b\n"),
        (MixlensError("one"), 2, "mixlens: one\n"),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, told: str
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(sys.modules["mixlens.cli.app"], "app", fails)
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out, err) == (code, "", told)


def test_a_command_that_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    monkeypatch.setattr(sys.modules["mixlens.cli.app"], "app", lambda: called.append(True))
    main()
    assert called == [True]
