"""Compiled files of the user's own, made by a builder that writes a few bytes: names, folders, what is left of others."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mixlens.fast.loops import compiled

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX owners of files")


class Builder:
    """Writes these bytes, and notes where."""

    def __init__(self, content: bytes = b"code"):
        self.content, self.places = content, list[Path]()

    def __call__(self, place: Path) -> None:
        self.places.append(place)
        place.write_bytes(self.content)


def name_of(content: bytes, name: str = "x") -> str:
    return f"{name}-{hashlib.sha256(content).hexdigest()[:24]}.so"


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a folder of temporary files of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def test_a_file_is_built_once_and_found_by_its_checksum(around: Path) -> None:
    build = Builder()
    for _ in range(2):
        with compiled.built("x", build) as place:
            assert place == around / "cache" / "mixlens" / name_of(b"code")
            assert place.read_bytes() == b"code"
    assert [(one.name, one.parent.parent, one.parent.name[:9]) for one in build.places] == [
        ("x.so", place.parent, "building-")
    ]
    assert [one.name for one in place.parent.iterdir()] == [place.name]  # the folder that it was built in is gone
    other = Builder(b"other")
    with compiled.built("y", other) as second:
        assert second.name == name_of(b"other", "y")
    assert place.exists()


def test_a_damaged_file_goes_and_is_built_again(around: Path) -> None:
    folder = compiled.private_folder()
    assert folder is not None
    for name in ("x-000.so", name_of(b"code")):
        (folder / name).write_bytes(b"cut off")
    (folder / "xy-000.so").write_bytes(b"of another")
    build = Builder()
    with compiled.built("x", build) as place:
        assert place.read_bytes() == b"code"
    assert len(build.places) == 1
    assert sorted(one.name for one in folder.iterdir()) == sorted(["xy-000.so", name_of(b"code")])
    (folder / "x-zzz.so").write_bytes(b"cut off")
    with compiled.built("x", build) as again:
        assert again == place
    assert len(build.places) == 1  # the whole one is found, wherever a damaged one stands


def test_where_no_folder_can_be_kept_the_file_goes_after_the_block(
    around: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "private_folder", lambda: None)
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(around / "tmp"))
    build = Builder()
    with compiled.built("x", build) as place:
        assert (place.name, place.read_bytes(), place.parent.name[:8]) == ("x.so", b"code", "mixlens-")
    assert not place.parent.exists()
    assert build.places == [place]


def test_folders_in_turn(around: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    assert compiled.private_folder() == around / "cache" / "mixlens"
    assert (around / "cache" / "mixlens").stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compiled.private_folder() == around / "home" / ".cache" / "mixlens"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert compiled.private_folder() == around / "home" / ".cache" / "mixlens"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.chdir(around)
    assert compiled.private_folder() == around / "tmp" / f"mixlens-{user}"
    assert not (around / "not").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(around / "file"))
    (around / "file").write_text("no folder")
    assert compiled.private_folder() == around / "tmp" / f"mixlens-{user}"
    (around / "tmp" / f"mixlens-{user}").chmod(0o770)
    assert compiled.private_folder() is None
