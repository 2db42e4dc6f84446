"""`mixlens report --generate`: the page that `explain --generate -o` writes, by the same options; and what it
refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made import talker
from typer.testing import CliRunner

import mixlens
from mixlens import cli

PROMPT = "the cat likes the red ball. the dog is a cat!"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "model"
    talker().hf_model.save_pretrained(place)
    talker().tokenizer.save_pretrained(place)
    return place


def command(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, [*arguments, "--dtype", "float64"])


def page(name: str, folder: Path, *arguments: str) -> str:
    """The page that a command writes."""
    place = folder.parent / f"{name}.html"
    done = command(name, *arguments, "-m", str(folder), "-o", str(place))
    assert done.exit_code == 0, done.output
    return place.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        [PROMPT, "--generate", "3"],
        [PROMPT, "--continuation", "open the ball"],
        [PROMPT, "--generate", "2", "--chat"],
        ["the cat", "--pair", "the dog", "--generate", "2"],
    ],
)
def test_it_is_the_page_of_explain(folder: Path, arguments: list[str]) -> None:
    assert page("report", folder, *arguments) == page("explain", folder, *arguments)


def test_a_saved_text_is_shown_as_its_own_page(folder: Path, tmp_path: Path) -> None:
    saved, out = tmp_path / "written.JSON", tmp_path / "saved.html"
    done = command("explain", PROMPT, "--generate", "2", "-m", str(folder), "--save", str(saved))
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(cli.app, ["report", "--from", str(saved), "-o", str(out), "--title", "Once"])
    assert shown.exit_code == 0, shown.output
    made = mixlens.report(mixlens.Generation.load(saved), tmp_path / "made.html", title="Once")
    assert out.read_text() == made.read_text()
    beside = CliRunner().invoke(
        cli.app, ["report", "--from", str(saved), "--from", str(saved), "-o", str(tmp_path / "two.html")]
    )
    assert "shows that text alone" in str(beside.exception)
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"kind": "generation"}')
    refused = CliRunner().invoke(cli.app, ["report", "--from", str(damaged), "-o", str(tmp_path / "two.html")])
    assert "is not a mixlens generation" in str(refused.exception)
    damaged.write_text('["generation"]')
    refused = CliRunner().invoke(cli.app, ["report", "--from", str(damaged), "-o", str(tmp_path / "two.html")])
    assert "damaged.json" in str(refused.exception)
    assert not (tmp_path / "two.html").exists()


def test_the_method_and_the_foil_are_those_of_explain(folder: Path) -> None:
    asked = [PROMPT, "--generate", "2", "--foil", "cat"]
    reported = page("report", folder, *asked, "--methods", "grad_x_input")
    assert reported == page("explain", folder, *asked, "--method", "grad_x_input")
    assert reported != page("report", folder, *asked[:-2], "--methods", "grad_x_input")


def test_a_conversation_of_a_file_and_one_message_are_the_same_page(folder: Path, tmp_path: Path) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": PROMPT}]))
    from_file = page("report", folder, "--messages", str(messages), "--generate", "2")
    assert from_file == page("report", folder, PROMPT, "--chat", "--generate", "2")
    assert "template" in from_file


def test_a_title_is_the_heading(folder: Path, tmp_path: Path) -> None:
    titled = page("report", folder, PROMPT, "--generate", "2", "--title", "A heading of mine")
    assert "<h1>A heading of mine" in titled.replace('<h1 id="top">', "<h1>")
    generation = talker().explain(PROMPT, generate=2)
    mixlens.report(generation, tmp_path / "a.html", title="A heading of mine")
    assert "A heading of mine" in (tmp_path / "a.html").read_text()


def test_conversations_without_a_written_text_are_shown_as_any_text(folder: Path) -> None:
    shown = page("report", folder, PROMPT, "--chat", "--methods", "attention")
    assert "<|user|>" in shown or "\\u003c|user|\\u003e" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the cat", "--generate", "2", "--preset", "flow"], "has no --preset: leave the one or the other out"),
        (["the cat", "--generate", "2", "--target", "a", "--query", "1"], "has no --target and no --query"),
        (["the cat", "--continuation", "is", "--megabytes", "3"], "has no --megabytes"),
        (["the cat", "the dog", "--generate", "2"], "goes with one text, not with 2"),
        (["the cat", "--generate", "2", "--methods", "alti,attention"], "made by one method, not by 2"),
        (["the cat", "--generate", "2", "--foil", "dog"], "leave --foil out"),
        (["the cat", "--generate", "2", "--label", "x"], "are for the folder of a run"),
        (["the cat", "--generate", "2", "--from", "x.json"], "--from shows saved results as they are"),
        ([".", "--generate", "2"], "a run is shown as it is"),
        (["--generate", "2"], "give at least one text"),
        (["--generate", "2", "--chat"], "give at least one text"),
        (["the cat", "--messages", "m.json"], "leave texts and --chat out"),
        (["the cat", "--chat", "--pair", "the dog"], "--pair is a second text"),
        (["the cat", "--generate", "2", "-o", "x.txt"], "an .html file"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("report", *arguments, "-m", "nowhere/at-all")
    assert isinstance(done.exception, mixlens.MixlensError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_pair_beside_a_conversation_is_refused_by_explain_too() -> None:
    done = command("explain", "the cat", "--chat", "--pair", "the dog", "-m", "nowhere/at-all")
    assert "--pair is a second text" in str(done.exception)


def test_a_model_that_writes_nothing_is_refused_in_one_line(tmp_path: Path) -> None:
    done = command("report", "The keys [MASK] rusty.", "--generate", "2", "-o", str(tmp_path / "a.html"))
    assert "needs a causal language model" in str(done.exception)
    assert not (tmp_path / "a.html").exists()
