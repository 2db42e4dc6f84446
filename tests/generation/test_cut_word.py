"""A last word that the model had not finished when it was stopped: told from a whole one, and marked wherever it is
shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import SHARED, needs_shared
from made import talker
from typer.testing import CliRunner

import mixlens
from mixlens import cli
from mixlens.answers.generation import explaining, wording
from mixlens.model import words
from mixlens.runs import corpus
from mixlens.scoring import continuing
from mixlens.show import generation_page, generation_text
from mixlens.show import text as shown_text

PROMPTS = ("the cat likes the red ball", "where is the dog", "a park is open. the cat")
MOST = 7  # tokens


def written(prompt: str, count: int) -> mixlens.Generation:
    generation: mixlens.Generation = talker().explain(prompt, method="attention", generate=count)
    return generation


def first_that_is(cut: bool) -> tuple[str, int]:
    """The first prompt and number of tokens after which the last word is cut, or whole."""
    every = ((prompt, count) for prompt in PROMPTS for count in range(1, MOST))
    return next((prompt, count) for prompt, count in every if written(prompt, count).cut is cut)


@pytest.fixture(scope="module")
def generation() -> mixlens.Generation:
    return written(*first_that_is(True))


def test_a_word_is_cut_where_one_more_token_goes_on_with_it() -> None:
    """The oracle writes one token more and looks whether it joined the last word of the shorter text."""
    seen = set()
    for prompt in PROMPTS:
        texts = [written(prompt, count) for count in range(1, MOST + 1)]
        for shorter, longer in pairwise(texts):
            last = len(shorter.text.tokens) - 1
            joined = any({last, last + 1} <= set(row.tokens) for row in longer.rows)
            added = longer.text.written[
                len(shorter.text.written) :
            ]  # spaces stand with the word before them, and end it
            ended = len(longer) == len(shorter) or longer.rows[-1].special or not added.strip()
            assert shorter.cut is (joined and not ended)
            assert [row.cut for row in shorter.rows] == [False] * (len(shorter.rows) - 1) + [shorter.cut]
            seen.add(shorter.cut)
    assert seen == {True, False}


def test_a_text_that_the_model_ends_is_whole(monkeypatch: pytest.MonkeyPatch, generation: mixlens.Generation) -> None:
    model, prompt = talker(), generation.text.prompt
    last = generation.whole.input_ids[-1]  # type: ignore[union-attr]
    upcoming = model.generate(model.encode(prompt), len(generation) + 1)[-1]
    for token in (last, upcoming):
        monkeypatch.setattr(model.hf_model.generation_config, "eos_token_id", [token])
        again = model.explain(prompt, method="attention", generate=len(generation))
        assert not again.cut


def test_a_given_text_is_never_cut(generation: mixlens.Generation) -> None:
    given = talker().explain(generation.text.prompt, method="attention", continuation=generation.text.written.strip())
    assert not given.cut
    assert wording.cut_note(given) is None


class Bytes:
    """A tokenizer whose tokens are bytes."""

    all_special_ids: tuple[int, ...] = ()

    def decode(self, ids: list[int], **_: Any) -> str:
        return bytes(ids).decode("utf-8", "replace")


def stopped_in(whole: str, count: int, *, longest: int = 99, end: int | None = None) -> bool:
    """Whether a model that writes this text, one byte after the other, is stopped inside a word after `count` bytes."""
    every = whole.encode()

    def rows(encoded: Any) -> torch.Tensor:
        return torch.eye(256)[list(every[1 : len(encoded.input_ids) + 1])]

    model: Any = SimpleNamespace(
        tokenizer=Bytes(),
        max_tokens=longest,
        special_ids=(),
        hf_model=SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=end)),
        encode_ids=lambda ids: SimpleNamespace(input_ids=tuple(ids)),
        outputs=lambda texts: SimpleNamespace(logits=rows(texts[0])[None]),
    )
    prompt: Any = SimpleNamespace(input_ids=(every[0],), pair=None)
    written: Any = SimpleNamespace(input_ids=tuple(every[:count]))
    return explaining.Written(model, prompt, written, False, rows(written)).cut


@pytest.mark.parametrize("text", ["a It's ", "a red-hot ", "a It' s", "a It'. ", "a It.s ", "a It’s ", "a né ", "a n—"])
def test_a_mark_that_joins_words_is_asked_what_comes_after_it(text: str) -> None:
    """The oracle is the rule of words applied to the whole text."""
    for count in range(3, len(text) - 1):
        stop = len(text[:count].encode())
        spans = [match.span() for match in words.WORD.finditer(text)]
        inside = any(start < count < end for start, end in spans)
        assert stopped_in(text, stop) is inside, text[:count]


def test_what_the_model_cannot_read_or_ends_joins_nothing() -> None:
    assert stopped_in("a It's", 4)
    assert stopped_in("a It's", 4, longest=5)
    assert not stopped_in("a It's", 4, longest=4)
    assert not stopped_in("a It's", 4, end=ord("s"))


@needs_shared
def test_a_story_model_is_stopped_before_an_apostrophe() -> None:
    model = mixlens.load(SHARED / "models" / "stories260K", dtype="float32")
    texts = [model.explain("Lily said, \"I don't", method="attention", generate=count) for count in (13, 15)]
    assert [(text.rows[-1].text, text.cut) for text in texts] == [("It", True), ("It's", False)]


def test_half_a_character_is_no_whole_word() -> None:
    def goes_on(text: bytes, token: int) -> bool:
        prompt, whole = SimpleNamespace(input_ids=(1,), pair=None), SimpleNamespace(input_ids=tuple(text))
        return continuing.Continuation(SimpleNamespace(tokenizer=Bytes()), prompt, whole).goes_on_with(token)  # type: ignore[arg-type]

    assert goes_on("né".encode()[:-1], "né".encode()[-1])
    assert goes_on(b"a ca", ord("t"))
    assert not goes_on(b"a cat", ord(" "))
    assert not goes_on(b"a cat", ord("."))
    assert not goes_on(b"a cat ", ord("s"))


def test_the_mark_stands_wherever_the_word_does(generation: mixlens.Generation, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    word, note = generation.rows[-1].text, wording.cut_note(generation)
    assert note is not None
    assert "is not whole" in note
    content = generation.to_dict()
    assert content["cut"] is content["rows"][-1]["cut"] is content["words"][-1]["cut"] is True
    terminal = shown_text.rendered(generation_text.generation_view(generation), width=200)
    assert f"note: {note}" in terminal
    assert terminal.count(f"{word}…") >= 2  # in the text and in the table
    page = generation_page.content_of(generation)
    assert page["cut"] == note
    assert page["words"][-1]["text"] == page["spans"][-1]["text"].split()[-1] == f"{word}…"
    assert f"{word}…" in generation_page.notebook_html(generation)
    assert note in generation_page.notebook_html(generation)
    mixlens.plot(generation).save(tmp_path / "f.svg")
    figure = (tmp_path / "f.svg").read_text()
    assert f"{word}…" in figure
    assert "is not whole" in figure


def test_a_whole_word_has_no_mark(tmp_path: Path) -> None:
    whole = written(*first_that_is(False))
    assert wording.cut_note(whole) is None
    assert generation_page.content_of(whole)["cut"] is None
    assert "…" not in shown_text.rendered(generation_text.generation_view(whole), width=300)
    assert "not whole" not in generation_page.notebook_html(whole)


def test_files_keep_the_mark(generation: mixlens.Generation, tmp_path: Path) -> None:
    generation.save(tmp_path / "a.json")
    assert mixlens.Generation.load(tmp_path / "a.json").to_dict() == generation.to_dict()
    before = generation.to_dict()
    for one in (before, *before["words"]):  # a file of a version that did not know it
        del one["cut"]
    assert not mixlens.answers.generation.files.from_dict(before).cut


def test_a_corpus_keeps_the_mark(generation: mixlens.Generation, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [generation.text.prompt, *PROMPTS]
    mixlens.run(
        rows, model=talker(), methods="attention", out=tmp_path / "run", generate=len(generation), progress=False
    )
    read = [again.cut for _, again in corpus.generations(tmp_path / "run")]
    assert read == [written(str(prompt), len(generation)).cut for prompt in rows]
    assert read[0]


def test_the_command_says_it(generation: mixlens.Generation, tmp_path: Path) -> None:
    talker().hf_model.save_pretrained(tmp_path / "model")
    talker().tokenizer.save_pretrained(tmp_path / "model")
    asked = ["explain", str(generation.text.prompt), "-m", str(tmp_path / "model"), "--dtype", "float64"]
    done = CliRunner().invoke(
        cli.app, [*asked, "--method", "attention", "--generate", str(len(generation)), "--no-color"]
    )
    assert done.exit_code == 0
    assert wording.cut_note(generation) in " ".join(done.output.split())
