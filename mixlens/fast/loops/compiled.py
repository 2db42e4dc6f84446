"""Compiled files of the user's own: each knows its checksum by its name, and one that is damaged is made again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...base.files import sync, sync_folder

STALE = 3600.0  # seconds; no compiler takes so long


@contextlib.contextmanager
def built(name: str, build: Callable[[Path], None]) -> Iterator[Path]:
    """The file called `name`, made by `build(path)` where it is not there whole. Where no folder can be kept, the file
    is there within this block alone: a library that is open stays open without it."""
    folder = private_folder()
    if folder is not None:
        yield _kept(folder, name, build)
        return
    with tempfile.TemporaryDirectory(prefix="mixlens-") as work:
        fresh = Path(work) / f"{name}.so"
        build(fresh)
        yield fresh


def _kept(folder: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The whole file of this name in the folder. Where it is not there it is built and flushed to the disk, then
    renamed: whole or not at all, also when two processes meet."""
    for place in sorted(folder.glob(f"{name}-*.so")):
        if place.name == _named(name, place):
            return place
        place.unlink(missing_ok=True)  # cut off by a power failure or a full disk: to open it would end the process
    for left in folder.glob("building-*"):  # of processes that were killed while they compiled
        if time.time() - left.stat().st_mtime > STALE:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="building-") as work:
        fresh = Path(work) / f"{name}.so"
        build(fresh)
        with fresh.open("rb+") as file:
            sync(file.fileno())
        place = folder / _named(name, fresh)
        fresh.replace(place)
    sync_folder(folder)
    return place


def _named(name: str, place: Path) -> str:
    try:
        return f"{name}-{hashlib.sha256(place.read_bytes()).hexdigest()[:24]}.so"
    except OSError:
        return ""


def private_folder() -> Path | None:
    """A folder of the user's own that nobody else may write to: in the user's cache, else beside other temporary
    files."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    user = os.getuid() if hasattr(os, "getuid") else 0
    for place in (home / "mixlens", Path(tempfile.gettempdir()) / f"mixlens-{user}"):
        with contextlib.suppress(OSError):
            # A path that is not absolute: nobody knows where this user's home is.
            if place.is_absolute() and _is_private(place, user):
                return place
    return None


def _is_private(place: Path, user: int) -> bool:
    """Make the folder where it is not there. Does it belong to this user alone, and may this user write to it?"""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = place.lstat() if place.parent == Path(tempfile.gettempdir()) else place.stat()
    own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == user and not facts.st_mode & 0o022
    return own and os.access(place, os.W_OK | os.X_OK)
