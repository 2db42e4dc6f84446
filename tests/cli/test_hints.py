"""What the commands tell beside a result: what may have been meant, and what a reader must know of a file."""

from __future__ import annotations

import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import mixlens
from mixlens import cli
from mixlens.base import errors
from mixlens.cli import waiting


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(line: str, *words: str) -> Any:
    ran = CliRunner().invoke(cli.app, [*shlex.split(line), *words])
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran


@pytest.mark.parametrize("command", ["why", "explain", "compare"])
def test_the_name_of_a_file_is_told_from_its_content(command: str) -> None:
    Path("reviews.txt").write_text("A dull film.")
    hint = (
        "mixlens: 'reviews.txt' is a file, and its name is explained as a text. For what it holds: --file reviews.txt\n"
    )
    assert hint in told(command, "reviews.txt", "-m", "sentiment").stderr
    assert "is a file" not in told(command, "--file", "reviews.txt", "-m", "sentiment").stderr


def test_a_report_of_a_file_of_rows_names_the_command() -> None:
    Path("corpus.jsonl").write_text("{}")
    assert "It is a file: mixlens run corpus.jsonl --out FOLDER explains its rows" in told("report corpus.jsonl").stderr


def test_a_file_is_written_with_its_notes() -> None:
    pytest.importorskip("matplotlib")
    for command, file in (("plot", "x.svg"), ("report", "x.html")):
        noted = told(command, "A dull, lifeless film.", "-o", file).stderr
        assert "mixlens: the text has no [MASK], so this masked language model predicts nothing here" in noted
        assert "mixlens: the vocabulary of 'agreement' does not know" in noted
    assert "the text has no [MASK]" not in told("plot 'A dull film.' --kind matrix -o y.svg").stderr
    assert "mixlens: " not in told("plot 'A dull film.' -m sentiment -o z.svg").stderr


@pytest.mark.parametrize("end", [".json", ".safetensors"])
def test_a_saved_result_has_no_path_of_this_machine(end: str, here: Path) -> None:
    made = mixlens.Attribution(
        torch.tensor([0.5]), ("a",), "alti", {"model": str(here / "models" / "mine"), "text": "a"}
    )
    made.save(f"x{end}")
    assert str(here).encode() not in Path(f"x{end}").read_bytes()
    assert mixlens.load_result(f"x{end}").info["model"] == "mine"
    assert mixlens.load_result(f"x{end}").info["text"] == "a"
    assert made.to_dict()["info"]["model"] == "mine"


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1")])
def test_a_plain_terminal_has_no_spinner(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    for variable in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    assert waiting.has_terminal()
    monkeypatch.setenv(name, value)
    assert not waiting.has_terminal()


def test_the_only_row_that_fails_says_why() -> None:
    Path("x.jsonl").write_text(json.dumps({"text": "  "}) + "\n")
    ran = CliRunner().invoke(cli.app, "run x.jsonl -m sentiment -o out")
    assert str(ran.exception) == "no row could be explained: field 'text' is empty."


def test_no_row_is_refused() -> None:
    with pytest.raises(errors.InputError, match=r"^data holds no row\."):
        mixlens.run([], out="out")
    assert not Path("out").exists()


def test_what_is_of_another_kind_is_refused_in_words() -> None:
    model = mixlens.load("sentiment")
    result = model.explain("A dull film.")
    calls = {
        "attribute takes a Trace or a list of traces": lambda: mixlens.attribute("text", "deeplift"),  # type: ignore[arg-type]
        "attribute takes a Trace or a list": lambda: mixlens.attribute(5, "deeplift"),  # type: ignore[arg-type]
        "a file is named by a text or a Path, not by Model": lambda: mixlens.report("x.html", model),  # type: ignore[arg-type]
        "a file is named by a text or a Path, not by int '5'": lambda: result.save(5),  # type: ignore[arg-type]
        "a file is named by a text or a Path, not": lambda: mixlens.load_result(5),  # type: ignore[arg-type]
        "a text is a string, not bytes": lambda: model.why(b"x"),  # type: ignore[arg-type]
    }
    for words, call in calls.items():
        with pytest.raises(mixlens.MixlensError, match=words):
            call()


@pytest.mark.parametrize("score", [float("inf"), float("nan"), -float("inf")])
def test_a_score_that_is_no_number_is_shown(score: float, capsys: pytest.CaptureFixture[str]) -> None:
    made = mixlens.Attribution(torch.tensor([0.5, score]), ("a", "b"), "alti", {"model": "m"})
    made.show()
    replace(made, info={"model": "m", "target": "x", "score": "logit"}).show(color=False)
    assert str(score) in capsys.readouterr().out
