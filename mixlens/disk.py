"""A file is there whole or not at all; and a folder that a long run writes to, where nothing of another run is overwritten."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from .errors import InputError

TEMPORARY = ".tmp-"
LOCK = ".lock"


def optional(module: str, package: str, extra: str, *, what: str = "experiments") -> Any:
    """A package of an extra, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{what} need {package}: pip install 'mixlens[{extra}]'.") from None


def write(place: Path, content: bytes | Iterable[bytes] | Callable[[Path], object]) -> None:
    """Every file of mixlens: written beside its place, flushed to the disk, then moved there whole. What failed leaves nothing
    that takes room. `content` may also be what writes to the path it is given, for libraries that open files themselves."""
    # A name of its own, so that two who write to one place do not meet; short, since a name beside it may be as long as allowed.
    beside = place.with_name(f"{TEMPORARY}{secrets.token_hex(6)}-{place.name[:40]}")
    try:
        with beside.open("xb") as file:
            file.writelines([content] if isinstance(content, bytes) else () if callable(content) else content)
        if callable(content):
            usual = beside.stat().st_mode  # safetensors makes a file that its owner alone can read
            content(beside)
            beside.chmod(usual)
        with beside.open("rb+") as file:
            sync(file.fileno())
        move(beside, place)
    except (Exception, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def sync(file: int) -> None:
    """What was written is on the disk, not only on its way there."""
    os.fsync(file)


def move(beside: Path, place: Path) -> None:
    """To its place; the folder remembers it also when the power fails."""
    os.replace(beside, place)
    sync_folder(place.parent)


def sync_folder(place: Path) -> None:
    """What the folder holds (names, not contents) is on the disk. There are disks and folders where nobody may ask for that."""
    if os.name == "posix":
        try:
            folder = os.open(place, os.O_RDONLY)
        except PermissionError:
            return
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(folder)


class RunFolder:
    """A folder whose `manifest.json` says which run it belongs to. One process at a time writes to it."""

    schema = 1

    def __init__(self, place: Path):
        self.place = place

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a folder that is not empty and not of this very run."""
        if self.place.exists() and not self.place.is_dir():
            raise InputError(f"{str(self.place)!r} is a file; the results need a folder of their own.")
        if not (self.place / "manifest.json").is_file():
            there = (
                [p.name for p in self.place.iterdir() if not p.name.startswith((TEMPORARY, LOCK))] if self.place.is_dir() else []
            )
            if there:
                raise InputError(
                    f"{str(self.place)!r} is not empty ({', '.join(sorted(there)[:3])}) and holds no run. Give another folder: "
                    "nothing is overwritten."
                )
            return
        manifest = self.manifest
        if manifest.get("schema") != self.schema:
            raise InputError(f"{str(self.place)!r} has schema {manifest.get('schema')!r}; this mixlens writes {self.schema}.")
        before, now = manifest["identity"], json.loads(json.dumps(identity))
        different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if different:
            told = "; ".join(f"{key}: {_brief(before.get(key))} there, {_brief(now.get(key))} here" for key in different)
            raise InputError(f"{str(self.place)!r} belongs to another run ({told}). Give another folder: nothing is overwritten.")

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            made = json.loads((self.place / "manifest.json").read_text(encoding="utf-8"))
            return cast(dict[str, Any], made) if isinstance(made["identity"], dict) else {}
        except KeyError:
            return {}
        except (ValueError, TypeError):
            raise InputError(f"{str(self.place / 'manifest.json')!r} is not a manifest of mixlens.") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One run at a time writes here. A killed run lets go by itself."""
        self.place.mkdir(parents=True, exist_ok=True)
        sync_folder(self.place.parent)
        with (self.place / LOCK).open("w") as file:
            try:
                import fcntl
            except ImportError:  # not on Windows
                yield
                return
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another run is writing to {str(self.place)!r}. Wait for it, or give another folder.") from None
            yield

    def clear(self, *folders: Path) -> None:
        """Half-written files of a run that was killed."""
        for folder in (self.place, *folders):
            for path in folder.glob(f"{TEMPORARY}*"):
                path.unlink()


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
