"""A command does not write over a file that is no result of mixlens."""

from __future__ import annotations

from pathlib import Path

import pytest

import mixlens
from mixlens.base import errors, files
from mixlens.cli import generation

TOLD = "{!r} is there already and is no result of mixlens. Give another name, or write over it: --force (force=True)."
LONG = "Shorten or split it"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", b'[{"role": "user", "content": "hi"}]'),
        ("x.json", b'{"role": "user"}'),
        ("x.json", b'["kind"]'),
        ("x.json", b'{"apiVersion": "v1", "kind": "Deployment"}'),
        ("x.json", b'{"kind": "Deployment", "spec": {}}'),
        ("x.csv", b"position,token,special,score,my notes\n"),
        ("x.csv", b"word,segment,special,mark,score,share,Gold label\n"),
        ("x.csv", b"mine\n"),
        ("x.csv", b"word,count\n"),
        ("x.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}"),
    ],
)
def test_a_file_of_somebody_else_stays(name: str, content: bytes, tmp_path: Path) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    with pytest.raises(errors.InputError) as told:
        files.refuse_foreign(place, force=False)
    assert str(told.value) == TOLD.format(str(place))
    files.refuse_foreign(place, force=True)
    files.refuse_foreign(None, force=False)
    place.write_bytes(b"")
    files.refuse_foreign(place, force=False)  # an empty file holds nothing
    place.unlink()
    files.refuse_foreign(place, force=False)


@pytest.mark.parametrize("suffix", [".json", ".csv", ".safetensors"])
def test_results_may_be_written_again(suffix: str, tmp_path: Path) -> None:
    trace = mixlens.load("agreement").trace("The keys [MASK] rusty.")
    made = mixlens.mix(trace, "alti")
    for number, result in enumerate([made, made.readout(0), mixlens.mix(trace, "attention", head="all")]):
        place = tmp_path / f"{number}{suffix}"
        result.save(place)
        files.refuse_foreign(place, force=False)


def test_the_table_and_the_json_of_an_answer_may_be_written_again(tmp_path: Path) -> None:
    answer = mixlens.load("sentiment").why("A dull film.", methods=["grad_x_input"], draws=1)
    answer.to_csv(tmp_path / "x.csv")
    (tmp_path / "x.json").write_text(answer.to_json())
    files.refuse_foreign(tmp_path / "x.csv", force=False)
    files.refuse_foreign(tmp_path / "x.json", force=False)


def test_python_keeps_a_file_of_somebody_else_too(tmp_path: Path) -> None:
    answer = mixlens.load("sentiment").why("A dull film.", methods=["grad_x_input"], draws=1)
    for name, write in (
        ("x.csv", answer.to_csv),
        ("x.json", answer.to_json),
        ("x.txt", answer.to_csv),
        ("y.txt", answer.to_json),
    ):
        place = tmp_path / name
        place.write_text("mine")
        with pytest.raises(errors.InputError) as told:
            write(place)
        assert str(told.value) == TOLD.format(str(place))
        assert place.read_text() == "mine"
        write(place, force=True)
        assert place.read_text().startswith(("word,segment", '{"kind": "why"'))
        write(place)  # its own file is written again


def test_options_that_a_written_text_does_not_know_are_refused() -> None:
    written, not_written = (generation.Writing(count, None, False, False, None) for count in (3, None))
    with pytest.raises(
        errors.InputError, match=r"^a written text is shown word by word: leave --words and --top out\.$"
    ):
        written.refuse_idle({"--words": True, "--other": False, "--top": True})
    written.refuse_idle({"--words": False})
    not_written.refuse_idle({"--words": True})
    generation.Writing(3, None, False, True, None).refuse_idle({"--words": True})  # --each has a strip for each token


def test_a_long_text_is_refused_with_the_option_that_cuts_it() -> None:
    model = mixlens.load("sentiment")
    with pytest.raises(errors.TokenLimitError, match=rf"{LONG}, or let it be cut: --truncate \(truncate=True\)\.$"):
        model.why("good " * 200)
    with pytest.raises(errors.TokenLimitError, match=rf"{LONG}\.$"):
        model.trace("good " * 200)


def test_a_result_may_begin_with_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'\n  {"kind": "map"}')
    files.refuse_foreign(tmp_path / "x.json", force=False)
