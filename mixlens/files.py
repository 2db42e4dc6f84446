"""A file is there whole or not at all; and a folder that a long run writes to, where nothing of another run is overwritten."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from .errors import InputError, MixlensError, ResultError

TEMPORARY = ".tmp-"
OWN_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{12}-")  # how `write` begins the name of a file that is not whole yet
LOCK = ".lock"
SHORT = 80  # characters of a value in a message
IDENTITY = 2  # which facts tell one run from another; a folder that was begun with others is not continued


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


@contextlib.contextmanager
def in_folder(place: Path) -> Iterator[None]:
    """What the system refuses while a run works in its folder is said in one line."""
    try:
        yield
    except OSError as error:
        if isinstance(error, MixlensError):
            raise
        reason = error.strerror or str(error) or type(error).__name__
        named = [Path(os.fsdecode(one)) for one in (error.filename, error.filename2) if isinstance(one, str | bytes)]
        elsewhere = [one for one in named if place != one and place not in one.parents and one not in place.parents]
        if elsewhere:
            raise ResultError(f"the run stopped: {reason} ({str(elsewhere[0])!r}). The same command goes on.") from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            raise ResultError(
                f"cannot write to {str(place)!r}: {reason}. Something on the way there is no folder, or was moved or deleted. "
                "Files that are still there are safe: set the folder right, then give the same command."
            ) from error
        raise ResultError(
            f"cannot write to {str(place)!r}: {reason}. What is done is safe: make room or set the folder right, "
            "then give the same command."
        ) from error


class RunFolder:
    """A folder whose `manifest.json` says which run it belongs to. One process at a time writes to it."""

    schema = 1

    def __init__(self, place: Path):
        self.place = place
        self._lock: int | None = None  # the open lock file, while it is held

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a folder that is not empty and not of this very run."""
        if self.place.is_symlink() and not self.place.exists():
            raise InputError(f"{str(self.place)!r} is a link that leads nowhere; the results need a folder of their own.")
        if self.place.exists() and not self.place.is_dir():
            raise InputError(f"{str(self.place)!r} is a file; the results need a folder of their own.")
        if not (self.place / "manifest.json").is_file():
            there = [p.name for p in self.place.iterdir()] if self.place.is_dir() else []
            there = [name for name in there if name != LOCK and not OWN_TEMPORARY.match(name)]
            if there:
                raise InputError(
                    f"{str(self.place)!r} is not empty ({', '.join(sorted(there)[:3])}) and holds no run. Give another folder: "
                    "nothing is overwritten."
                )
            return
        manifest = self.manifest
        if manifest.get("schema") != self.schema:
            raise InputError(f"{str(self.place)!r} has schema {manifest.get('schema')!r}; this mixlens writes {self.schema}.")
        if manifest.get("identity_schema", 1) != IDENTITY:
            versions = manifest.get("versions")
            version = versions.get("mixlens", "?") if isinstance(versions, dict) else "?"
            raise InputError(
                f"{str(self.place)!r} was begun by another version of mixlens ({version}), which knew a model by fewer of its "
                "numbers. It can be read (summarize, report), and not be continued. Give another folder: nothing is overwritten."
            )
        before, now = manifest["identity"], json.loads(json.dumps(identity))
        told = "; ".join(_differences(before, now))
        if told:
            raise InputError(f"{str(self.place)!r} belongs to another run ({told}). Give another folder: nothing is overwritten.")

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            made = json.loads((self.place / "manifest.json").read_text(encoding="utf-8"))
            return cast(dict[str, Any], made) if isinstance(made["identity"], dict) else {}
        except KeyError:
            return {}
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{str(self.place / 'manifest.json')!r} is not a manifest of mixlens.") from None

    @contextlib.contextmanager
    def held(self, identity: Mapping[str, Any] | None = None) -> Iterator[None]:
        """One run at a time writes here. A killed run lets go by itself. With `identity` the folder is checked again once it
        is held: between the first check and the lock another run may have begun and ended here."""
        self.place.mkdir(parents=True, exist_ok=True)
        sync_folder(self.place.parent)
        lock = self._opened_lock()
        try:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # not on Windows
                pass
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                    raise
                raise InputError(f"another run is writing to {str(self.place)!r}. Wait for it, or give another folder.") from None
            self._lock = lock
            self.still_held()
            if identity is not None:
                self.check(identity)
            yield
        finally:
            self._lock = None
            os.close(lock)

    def _opened_lock(self) -> int:
        """The lock file, opened without a change to it. A link is not followed: what it leads to is not ours."""
        place = self.place / LOCK
        refused = InputError(
            f"{str(place)!r} is a link or no file. It was not made by a run: take it away, or give another folder."
        )
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        if place.is_symlink():
            raise refused
        try:
            lock = os.open(place, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise refused from None
            raise
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            os.close(lock)
            raise refused
        return lock

    def still_held(self) -> None:
        """Refuse to write on where the folder was moved, deleted or made anew by somebody else in the meantime."""
        if self._lock is None:
            return
        try:
            there = os.lstat(self.place / LOCK)
            same = os.path.samestat(there, os.fstat(self._lock))
        except FileNotFoundError:
            same = False
        if not same:
            raise ResultError(
                f"{str(self.place)!r} was moved, deleted or made anew while the run wrote to it. Nothing more is written there: "
                "put it back or leave it, then give the same command."
            )

    def refuse_links(self, *folders: Path) -> None:
        """Folders inside of this one are a run's own. A link to another place is refused: nothing there is ours."""
        for place in folders:
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise InputError(
                    f"{str(place)!r} is a link or a file where a run keeps a folder of its own. Take it away, or give another "
                    "folder: nothing is touched."
                )

    def clear(self, *folders: Path) -> None:
        """Half-written files of a run that was killed. Whatever else has a name like theirs stays."""
        for folder in (self.place, *folders):
            for path in folder.glob(f"{TEMPORARY}*"):
                if OWN_TEMPORARY.match(path.name) and (path.is_symlink() or path.is_file()):
                    path.unlink()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two identities, each by its own name, and nothing else."""
    for key in {**before, **now}:
        one, other = before.get(key), now.get(key)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(one, other)
        elif isinstance(one, list) and isinstance(other, list) and max(len(json.dumps(some)) for some in (one, other)) > SHORT:
            alone, new = ([item for item in some if item not in rest] for some, rest in ((one, other), (other, one)))
            if alone or new:
                yield f"{key}: also {_brief(alone)} there, also {_brief(new)} here"
            else:
                yield f"{key}: the same in another order, or another number of times"
        else:
            yield f"{key}: {_brief(one)} there, {_brief(other)} here"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHORT else text[: SHORT - 3] + "..."
