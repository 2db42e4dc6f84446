"""A path that cannot be looked at, and an output that cannot be written, are one line and exit code 2."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_cli import refuse

import mixlens

REVIEW = "A long and winding film. " * 12
FULL = Path("/dev/full")

LONG = [
    ("judge sentiment", REVIEW),
    ("run --out q", REVIEW),
    ("check", REVIEW),
    ("explain 'A film.' -m", REVIEW),
    ("explain 'A film.' --save", f"{REVIEW}.json"),
    ("map 'A film.' --save", f"{REVIEW}.json"),
    ("plot 'A film.' -o", f"{REVIEW}.svg"),
    ("why 'A film.' -o", f"{REVIEW}.html"),
    ("why 'A film.' --csv", f"{REVIEW}.csv"),
    ("report 'A film.' -o", f"{REVIEW}.html"),
    ("report --from", REVIEW),
    ("summarize", REVIEW),
    ("reproduce alti --out", REVIEW),
    ("experiment vz-faithfulness --data", REVIEW),
]


@pytest.mark.parametrize("arguments", LONG, ids=lambda arguments: arguments[0])
def test_a_text_is_no_name_of_a_file(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = refuse(capsys, monkeypatch, *arguments)
    assert told.startswith("mixlens: 'A long and winding film. ")
    assert "is too long for the name of a file or a folder" in told
    assert told.endswith("A text is no name: write it into a file, and name that file.")
    assert not any(tmp_path.iterdir())


LOCKED = [
    "judge sentiment locked/x.jsonl",
    "run locked/x.jsonl --out q",
    "check locked/model",
    "explain 'A film.' --save locked/x.json",
    "plot 'A film.' -o locked/x.svg",
    "why 'A film.' -o locked/x.html",
    "why 'A film.' --csv locked/x.csv",
    "report 'A film.' -o locked/x.html",
    "report --from locked/x.json",
    "summarize locked/run",
]


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that nobody may enter. The system lets an administrator in, so its answer is put in its place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "locked").mkdir()
    ask = Path.stat

    def refused(place: Path, **options: Any) -> os.stat_result:
        if place.absolute().parent == tmp_path / "locked" or "locked/run" in str(place):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return ask(place, **options)

    monkeypatch.setattr(Path, "stat", refused)
    return tmp_path / "locked"


@pytest.mark.parametrize("line", LOCKED)
def test_a_folder_that_may_not_be_entered_is_told(
    line: str, locked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refuse(capsys, monkeypatch, line)
    assert "may not be looked at or read (Permission denied). Set its permissions right, or give another path." in told
    assert "locked/" in told


@pytest.mark.parametrize("name", ["manifest.json", "shard"])
def test_a_run_that_may_not_be_read_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    mixlens.run(["A dull film."], model="sentiment", out=out)
    closed = out / name if name == "manifest.json" else next((out / "shards").iterdir())
    opened = Path.open

    def refused(place: Path, *rest: Any, **options: Any) -> Any:
        if place == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return opened(place, *rest, **options)

    monkeypatch.setattr(Path, "open", refused)
    for call in (lambda: mixlens.summarize(out), lambda: mixlens.report(out, tmp_path / "x.html")):
        with pytest.raises(mixlens.MixlensError, match=r"may not be looked at or read \(Permission denied\)"):
            call()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full, a disk that is always full")
@pytest.mark.parametrize("arguments", [("methods",), ("--help",), ("families",)], ids=str)
def test_an_output_that_cannot_be_written_is_one_line(arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "mixlens", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 2
    assert ran.stderr == (
        "mixlens: the output cannot be written: No space left on device. Make room, or send it to another place.\n"
    )
