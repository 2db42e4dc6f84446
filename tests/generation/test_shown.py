"""The terminal's table, the notebook's, the figure, and the command: the same numbers, in the room there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from made import talker
from typer.testing import CliRunner

import mixlens
from mixlens import cli
from mixlens.show import generation_page, generation_text
from mixlens.show import text as shown_text

pytest.importorskip("matplotlib")
PROMPT = "the cat likes the red ball. the dog is a cat! where is the park"
WRITTEN = "open the ball. playing dogs likes red"


@pytest.fixture(scope="module")
def generation() -> Any:
    return talker().explain(PROMPT, continuation=WRITTEN).with_effects()


# --- terminal ---


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("color", [True, False])
def test_the_table_fits_every_width(generation: Any, width: int, color: bool) -> None:
    text = shown_text.rendered(generation_text.generation_view(generation), width=width, color=color)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert all(len(line) <= width for line in plain.splitlines())
    assert "What did each written word rest on?" in " ".join(plain.split())
    assert "\\u202f" not in plain
    assert (text != plain) is color


def test_sentences_where_words_do_not_fit(generation: Any) -> None:
    by_sentence = shown_text.rendered(generation_text.generation_view(generation), width=100).splitlines()
    head = next(line for line in by_sentence if line.startswith("written ") and "sure" in line)
    assert head.split()[:5] == ["written", "sure", "s1", "change", "s2"]
    by_word = shown_text.rendered(generation_text.generation_view(generation, by="word"), width=200).splitlines()
    head = next(line for line in by_word if line.startswith("written ") and "sure" in line).split()
    assert head[2:-3] == [word.text for word in generation.columns if word.counts]
    with pytest.raises(mixlens.MixlensError, match="by= is word or sentence"):
        generation.show(by="letter")


def test_cells_are_the_shares(generation: Any) -> None:
    lines = shown_text.rendered(generation_text.generation_view(generation, by="word"), width=200).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("written ") and "sure" in line)
    numbers = [number for number, word in enumerate(generation.columns) if word.counts]
    for row in range(len(generation.rows)):
        cells = lines[start + 1 + row].replace("<0.1 %", "x").replace(" %", "").split()
        shares = [round(100 * float(generation.matrix[row, number])) for number in numbers]
        assert cells[2 : 2 + len(numbers)] == [str(share) if share else "·" for share in shares]


# --- notebook and figure ---


def test_a_notebook_shows_the_answer_and_every_cell(generation: Any) -> None:
    shown = generation_page.notebook_html(generation)
    assert "<script" not in shown
    assert shown.count("<tr>") == len(generation.rows) + 1
    assert generation._repr_html_() == shown
    hostile = talker().explain(PROMPT, continuation=WRITTEN).to_dict()
    hostile["words"][-1]["text"] = "<img src=x onerror=alert(1)>"
    assert "<img" not in mixlens.answers.generation.files.from_dict(hostile)._repr_html_()


@pytest.mark.parametrize(
    ("kind", "width"), [(None, None), ("words", 6.8), ("sentences", "single"), ("left_out", "double")]
)
def test_the_figure_has_every_cell(generation: Any, kind: str | None, width: Any, tmp_path: Path) -> None:
    picture = mixlens.plot(generation, kind=kind, width=width, title="a title")
    cells = [patch for patch in picture.axes[0].patches if patch.get_linewidth() == 0.5]
    count = 3 if kind == "sentences" else sum(word.counts for word in generation.columns)
    assert len(cells) == len(generation.rows) * count
    picture.save(tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert "a title" in text
    assert all(row.text in text for row in generation.rows)
    box = picture.get_tightbbox()
    wide, high = picture.get_size_inches()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= wide + 0.01
    assert box.y1 <= high + 0.01


def test_figures_that_cannot_be_are_refused(generation: Any) -> None:
    for options, message in (
        ({"kind": "strip"}, "cannot be drawn as 'strip'"),
        ({"layer": 1}, "takes no layer="),
        ({"kind": "words", "width": 1.5}, "too many for the width"),
    ):
        with pytest.raises(mixlens.MixlensError, match=message):
            generation.plot(**options)
    with pytest.raises(mixlens.MixlensError, match="with_effects"):
        talker().explain("the cat", continuation="is red").plot(kind="left_out")


def test_report_of_a_generation_is_its_page(generation: Any, tmp_path: Path) -> None:
    mixlens.report(generation, tmp_path / "a.html")
    generation.report(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()


# --- the command ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    talker().hf_model.save_pretrained(tmp_path / "model")
    talker().tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def command(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["explain", *arguments, "--dtype", "float64"])


def test_the_command_shows_saves_and_writes_a_page(folder: Path, tmp_path: Path) -> None:
    page, file = tmp_path / "page.html", tmp_path / "g.json"
    done = command(PROMPT, "-m", str(folder), "--continuation", WRITTEN, "--save", str(file), "-o", str(page))
    assert done.exit_code == 0, done.output
    assert "What did each written word rest on?" in done.output
    assert "<title>What did each written word rest on?" in page.read_text()
    assert mixlens.Generation.load(file).text.written.strip() == WRITTEN
    assert str(folder.parent) not in page.read_text()  # no path of this machine
    lines = command(PROMPT, "-m", str(folder), "--continuation", "is red", "--json").output.splitlines()
    assert [json.loads(line)["info"]["generated"] for line in lines] == ["▁is", "▁red"]
    each = command(PROMPT, "-m", str(folder), "--continuation", "is red", "--each", "--words").output
    assert each.count("method alti") == 2


def test_the_command_reads_conversations(folder: Path, tmp_path: Path) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "where is the cat?"}]))
    from_file = command("-m", str(folder), "--messages", str(messages), "--continuation", "the park")
    one = command("where is the cat?", "-m", str(folder), "--chat", "--continuation", "the park")
    assert from_file.exit_code == 0, from_file.output
    assert from_file.output == one.output
    assert "user 1" in one.output or "where" in one.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the cat", "--each"], "--each is for a written text"),
        (["the cat", "--leave-out"], "--leave-out is for a written text"),
        (["the cat", "-o", "x.html"], "--out is for a written text"),
        (["the cat", "--generate", "2", "--target", "zzz"], "explain each written token: leave --target out"),
        (["the cat", "--continuation", "is", "--query", "2", "--target", "0"], "token: leave --target and --query out"),
        (["the cat", "--generate", "2", "--save", "x.safetensors"], "is a .json or .csv file"),
        (["the cat", "--generate", "2", "-o", "x.txt"], "an .html file"),
        (["the cat", "--messages", "nowhere.json"], "leave the text, --file and --chat out"),
        (["--messages", "nowhere.json"], "cannot be read"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert isinstance(done.exception, mixlens.MixlensError)
    assert message in str(done.exception)
