"""The compiled loops: kept whole or made again, in a folder that nobody else writes to, by the compiler that was
named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_fast

from mixlens.fast.loops import compiled

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None or os.name != "posix", reason="needs a C compiler: install one (cc)"),
    needs_fast,
]
FORM = "import torch, mixlens.fast.loops as k; print(k.used(torch.device('cpu')))"


def form(**environment: str) -> Any:
    """Which form a fresh process uses, and what it says."""
    around = {key: value for key, value in os.environ.items() if key not in ("CC", "XDG_CACHE_HOME", "MIXLENS_KERNELS")}
    around |= {"OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, "-c", FORM], env=around, capture_output=True, text=True, check=False)


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))


def test_a_library_that_is_cut_off_is_made_again(tmp_path: Path) -> None:
    """Opened as it is, it would end the process by a signal."""
    assert form(XDG_CACHE_HOME=str(tmp_path)).stdout == "c\n"
    (made,) = libraries(tmp_path)
    whole = made.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1] + b"x"):
        made.write_bytes(content)
        ran = form(XDG_CACHE_HOME=str(tmp_path))
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "c\n", "")
        (again,) = libraries(tmp_path)
        assert again.name == compiled._named(again.name.rpartition("-")[0], again)
        made = again


def test_it_is_flushed_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        compiled, "sync", lambda _: steps.append(f"sync, {len(list((tmp_path / 'mixlens').glob('*.so')))} there")
    )
    monkeypatch.setattr(compiled, "sync_folder", lambda _: steps.append("folder"))

    def build(place: Path) -> None:
        place.write_bytes(b"code")

    with compiled.built("x", build) as place:
        assert place.read_bytes() == b"code"
    assert steps == ["sync, 0 there", "folder"]


def test_where_the_cache_cannot_be_used_nothing_piles_up(tmp_path: Path) -> None:
    """A cache that others may write to is not used; a folder of one's own among temporary files is, and one alone is
    made."""
    (tmp_path / "cache/mixlens").mkdir(parents=True)
    (tmp_path / "cache/mixlens").chmod(0o777)
    (tmp_path / "tmp").mkdir()
    for _ in range(2):
        ran = form(XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "tmp"))
        assert (ran.stdout, ran.stderr) == ("c\n", "")
    assert [one.name for one in (tmp_path / "tmp").iterdir()] == [f"mixlens-{os.getuid()}"]
    assert len(libraries(tmp_path)) == 1
    assert (tmp_path / f"tmp/mixlens-{os.getuid()}").stat().st_mode & 0o077 == 0
    (tmp_path / f"tmp/mixlens-{os.getuid()}").chmod(0o777)  # as if another user had made it first
    assert form(XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "tmp")).stdout == "c\n"
    assert [one.name for one in (tmp_path / "tmp").iterdir()] == [f"mixlens-{os.getuid()}"]
    assert len(libraries(tmp_path)) == 1


def test_a_link_among_temporary_files_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "victim").mkdir(mode=0o700)
    (tmp_path / f"tmp/mixlens-{os.getuid()}").symlink_to(tmp_path / "victim")
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    assert compiled.private_folder() is None


def test_what_a_killed_compiler_left_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, age in (("building-old", 2 * compiled.STALE), ("building-new", 0.0)):
        place = tmp_path / "mixlens" / name
        place.mkdir(parents=True, mode=0o700)
        os.utime(place, (place.stat().st_mtime - age,) * 2)
    (tmp_path / "mixlens").chmod(0o700)
    with compiled.built("x", lambda place: Path(place).write_bytes(b"code") and None):
        pass
    assert sorted(one.name for one in (tmp_path / "mixlens").iterdir() if one.is_dir()) == ["building-new"]


def test_the_compiler_may_be_named_with_arguments(tmp_path: Path) -> None:
    assert form(XDG_CACHE_HOME=str(tmp_path), CC=f"{shutil.which('cc')} -g0").stdout == "c\n"
    assert libraries(tmp_path)


@pytest.mark.parametrize("named", ["false", "cc --no-such-argument", "'unclosed"])
def test_a_named_compiler_that_cannot_be_used_is_said(tmp_path: Path, named: str) -> None:
    ran = form(XDG_CACHE_HOME=str(tmp_path), CC=named)
    assert ran.stdout == "plain\n"
    assert "the plain ones are used" in ran.stderr
