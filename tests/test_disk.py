"""One function writes every file: whole or not at all, whoever asks for it."""

from __future__ import annotations

import ast
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import mixlens
from mixlens.base import errors
from mixlens.base import files as disk
from recipes.sources import parsed

ROOT = Path(mixlens.__file__).parent


def result() -> mixlens.Attribution:
    return mixlens.Attribution(torch.tensor([0.1, 0.9]), ("a", "b"), "alti", {"model": "m", "text": "a b"})


def figure(place: Path) -> None:
    pytest.importorskip("matplotlib")
    result().plot(save=place)


WRITERS: dict[str, tuple[str, Callable[[Path], Any], type[mixlens.MixlensError]]] = {
    "result": ("x.safetensors", lambda place: result().save(place), errors.ResultError),
    "report": ("x.html", lambda place: mixlens.report(result(), place), errors.ResultError),
    "figure": ("x.svg", figure, errors.InputError),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("step", ["sync", "move"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    name, make, error = WRITERS[kind]
    make(tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, step, full)
    with pytest.raises(error, match="No space left"):
        make(tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_file_is_flushed_before_it_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name, make, _ = WRITERS[kind]
    steps: list[str] = []
    for step in ("sync", "move", "sync_folder"):
        own = getattr(disk, step)
        monkeypatch.setattr(disk, step, lambda *given, own=own, step=step: (steps.append(step), own(*given))[1])
    make(tmp_path / name)
    assert steps == ["sync", "move", "sync_folder"]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) & stat.S_IRUSR
    (tmp_path / "plain").write_text("")  # as readable for others as any file
    assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_writer_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def half(beside: Path) -> None:
        beside.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        disk.write(tmp_path / "x", half)
    assert list(tmp_path.iterdir()) == []


def test_two_who_write_to_one_place_do_not_meet(tmp_path: Path) -> None:
    contents = [bytes([65 + i]) * 100_000 for i in range(8)]
    threads = [
        threading.Thread(target=disk.write, args=(tmp_path / "x", content)) for content in contents for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "x").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    for name in ("x" * 255, "š" * 127, "😀" * 63):
        disk.write(tmp_path / name, b"1")
        assert (tmp_path / name).read_bytes() == b"1"


def test_nothing_else_in_the_package_writes_files() -> None:
    """Apart from the compiled kernels, the lock and the list of errors, which is made good from the shards."""
    allowed = {
        ("base/files.py", "open"),
        ("runs/corpus/shards.py", "open"),
        ("runs/corpus/shards.py", "replace"),
        ("base/files.py", "replace"),
    }
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("fast/loops/"):
            continue
        for node in ast.walk(parsed(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            verb = node.func.attr
            mode = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            opens = verb == "open" and any(set(one) & set("wxa+") and set(one) <= set("rwxab+t") for one in mode)
            moves = verb == "replace" and isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if opens or moves or verb in ("write_text", "write_bytes", "mkstemp"):
                assert (name, verb) in allowed, f"{name}, line {node.lineno}: {verb}"
