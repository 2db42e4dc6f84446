"""A file is there whole or not at all; and a folder that a long run writes to, where nothing of another run is
overwritten."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from .errors import InputError, MixlensError, ResultError
from .paths import is_file, is_folder, is_there, looking

TEMPORARY = ".tmp-"
OWN_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{12}-")  # how `write` begins the name of a file that is not whole yet
LOCK = ".lock"
# A link is not followed, and a pipe is not waited for. Windows does not know all of these.
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
WAITS = (0.01, 0.05, 0.2, 0.5)  # seconds between tries to replace a file, on Windows
SHORT = 80  # characters of a value in a message
GONE = ("modules",)  # facts that only folders of earlier versions have
IDENTITY = 2  # the version of the facts that tell one run from another; a folder with another version is not continued


def write(place: Path, content: bytes | Iterable[bytes] | Callable[[Path], object]) -> None:
    """Write a file beside its place, flush it to the disk, then rename it to its place. A write that fails leaves no
    file.

    `content` may be a function that writes to the path it gets, for libraries that open files themselves.
    """
    # The random name keeps two writers of one place apart. It is short, as `place` may have the longest name there
    # can be.
    beside = place.with_name(f"{TEMPORARY}{secrets.token_hex(6)}-{place.name[:40]}")
    try:
        with beside.open("xb") as file:
            if not callable(content):
                file.writelines([content] if isinstance(content, bytes) else content)
        if callable(content):
            mode = beside.stat().st_mode
            content(beside)
            beside.chmod(mode)  # safetensors makes a file that its owner alone can read
        with beside.open("rb+") as file:
            sync(file.fileno())
        move(beside, place)
    except (Exception, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def sync(file: int) -> None:
    """Wait until the disk holds what was written to an open file."""
    os.fsync(file)


def move(beside: Path, place: Path) -> None:
    """Rename a file to its place, and make the new name outlast a power cut."""
    # Windows refuses while another program, a virus scanner say, reads the file: there it is tried again.
    for seconds in WAITS if os.name == "nt" else ():
        with contextlib.suppress(PermissionError):
            os.replace(beside, place)
            break
        time.sleep(seconds)
    else:
        os.replace(beside, place)
    sync_folder(place.parent)


def take_lock(lock: int) -> None:
    """An exclusive lock on an open file, until it is closed or the process ends; OSError where another process has
    it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_folder(place: Path) -> None:
    """Wait until the disk holds the names in a folder. Folders and disks that do not allow this are left alone."""
    if os.name != "posix":
        return
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
    """Turn an error of the operating system, while a run works in its folder, into a refusal of one line. It says
    whether the fault lies outside the folder, on the path to it, or in it."""
    try:
        yield
    except OSError as error:
        if isinstance(error, MixlensError):
            raise
        reason = error.strerror or str(error) or type(error).__name__
        told = f"cannot write to {str(place)!r}: {reason}. "
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            told += "Something on the way there is no folder, or was moved or deleted. "
            told += "Files that are still there are safe: set the folder right, then give the same command."
        else:
            told += "What is done is safe: make room or set the folder right, then give the same command."
        for name in (error.filename, error.filename2):
            path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else place
            if not (path.is_relative_to(place) or place.is_relative_to(path)):
                told = f"the run stopped: {reason} ({str(path)!r}). The same command goes on."
                break
        raise ResultError(told) from error


class RunFolder:
    """A folder whose `manifest.json` says which run it belongs to. One process at a time writes to it."""

    schema = 1

    def __init__(self, place: Path):
        self.place = place
        self._lock: int | None = None  # the open lock file, while it is held

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a folder that is neither empty nor of this very run: one without a manifest, of another schema, of
        another version of identities, or of another run."""
        if self.place.is_symlink() and not self.place.exists():
            raise InputError(
                f"{str(self.place)!r} is a link that leads nowhere; the results need a folder of their own."
            )
        if is_there(self.place) and not self.place.is_dir():
            raise InputError(f"{str(self.place)!r} is a file; the results need a folder of their own.")
        if not is_file(self.place / "manifest.json"):
            names = sorted(os.listdir(self.place)) if self.place.is_dir() else []
            others = [name for name in names if name != LOCK and not OWN_TEMPORARY.match(name)]
            if others:
                raise InputError(
                    f"{str(self.place)!r} is not empty ({', '.join(others[:3])}) and holds no run. Give another "
                    f"folder: "
                    "nothing is overwritten."
                )
            return
        manifest = self.manifest
        if manifest.get("schema") != self.schema:
            raise InputError(
                f"{str(self.place)!r} has schema {manifest.get('schema')!r}; this mixlens writes {self.schema}."
            )
        if manifest.get("identity_schema", 1) != IDENTITY:
            versions = manifest.get("versions")
            version = versions.get("mixlens", "?") if isinstance(versions, dict) else "?"
            raise InputError(
                f"{str(self.place)!r} was begun by another version of mixlens ({version}), which knew a model by fewer "
                "of its numbers. It can be read (summarize, report), and not be continued. Give another folder: "
                "nothing is overwritten."
            )
        differences = "; ".join(self.differences(identity))
        if differences and not self.may_be_taken():
            raise InputError(
                f"{str(self.place)!r} belongs to another run ({differences}). Give another folder: nothing is "
                "overwritten."
            )

    def as_begun(self, identity: dict[str, Any]) -> dict[str, Any]:
        """The identity with the facts that the version which began the run here asked for beside it."""
        before = self.manifest.get("identity", {}) if (self.place / "manifest.json").is_file() else {}
        return {**identity, **{name: before[name] for name in GONE if name in before}}

    def differences(self, identity: Mapping[str, Any]) -> Iterator[str]:
        """One phrase for each fact in which the run of this folder is another one; none where the folder has no run."""
        if (self.place / "manifest.json").is_file():
            yield from _differences(self.manifest["identity"], json.loads(json.dumps(identity)))

    def may_be_taken(self) -> bool:
        """Whether another run may take the folder, because nothing in it would be lost."""
        return False

    @property
    def manifest(self) -> dict[str, Any]:
        """What `manifest.json` holds; an empty dict where it names no identity."""
        place = self.place / "manifest.json"
        try:
            with looking(place):
                content = json.loads(place.read_text(encoding="utf-8"))
            return cast(dict[str, Any], content) if isinstance(content["identity"], dict) else {}
        except KeyError:
            return {}
        except MixlensError:
            raise
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{str(place)!r} is not a manifest of mixlens.") from None

    @contextlib.contextmanager
    def held(self, identity: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Lock the folder, so that one run at a time writes here. The system releases the lock of a process that is
        killed.

        With `identity` the folder is checked once it is locked: between an earlier check and the lock another run may
        have begun and ended here.
        """
        self.place.mkdir(parents=True, exist_ok=True)
        sync_folder(self.place.parent)
        lock = self._opened_lock()
        try:
            try:
                take_lock(lock)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                    raise
                raise InputError(
                    f"another run is writing to {str(self.place)!r}. Wait for it, or give another folder."
                ) from None
            self._lock = lock
            self.still_held()
            if identity is not None:
                self.check(identity)
            yield
        finally:
            self._lock = None
            os.close(lock)

    def _opened_lock(self) -> int:
        """Open the lock file without a change to it. A link is not followed: its target does not belong to the run."""
        place = self.place / LOCK
        refusal = InputError(
            f"{str(place)!r} is a link or no file. It was not made by a run: take it away, or give another folder."
        )
        if place.is_symlink():
            raise refusal
        try:
            lock = os.open(place, LOCK_FLAGS, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise refusal from None
            raise
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            os.close(lock)
            raise refusal
        return lock

    def still_held(self) -> None:
        """Refuse to write where somebody else has moved, deleted or replaced the folder in the meantime."""
        if self._lock is None:
            return
        same = False
        with contextlib.suppress(FileNotFoundError):
            same = os.path.samestat(os.lstat(self.place / LOCK), os.fstat(self._lock))
        if not same:
            raise ResultError(
                f"{str(self.place)!r} was moved, deleted or made anew while the run wrote to it. Nothing more is "
                "written there: put it back or leave it, then give the same command."
            )

    def refuse_links(self, *folders: Path) -> None:
        """Refuse a link or a file where the run keeps a subfolder: what a link leads to does not belong to the run."""
        for place in folders:
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise InputError(
                    f"{str(place)!r} is a link or a file where a run keeps a folder of its own. Take it away, or "
                    "give another folder: nothing is touched."
                )

    def clear(self, *folders: Path) -> None:
        """Delete the half-written files of a run that was killed. Files of other names, and folders, stay."""
        for folder in (self.place, *folders):
            for path in folder.glob(f"{TEMPORARY}*"):
                if OWN_TEMPORARY.match(path.name) and (path.is_symlink() or path.is_file()):
                    path.unlink()


# --- files of others --------------------------------------------------------------------------------------------------

BEGIN = 4000  # bytes that tell what a file is
# the first line of each kind of table (that of an answer goes on with the names of its methods), and of JSON
BEGINNINGS = (
    re.compile(rb"position,token,special,score\r?\n"),
    re.compile(rb"layer,(head,)?query,key,query_token,key_token,score\r?\n"),
    re.compile(rb"word,segment,special,mark,score,share(,[a-z][a-z0-9_]*)*\r?\n"),
    re.compile(rb"row,written,probability,column,word,segment,group,score,share,effect\r?\n"),
    re.compile(rb'\s*\{\s*"kind": "(attribution|map|headmaps|generation|why)"'),
)


def refuse_foreign(place: Path | None, *, force: bool) -> None:
    """Refuse a file that somebody else wrote, before anything is computed. Ours are an empty one, and one that begins
    as a result does."""
    if place is None or force or not is_file(place):
        return
    with looking(place), place.open("rb") as file:
        begin = file.read(BEGIN)
    is_stored = place.suffix.lower() != ".csv" and b'"mixlens"' in begin
    if begin and not is_stored and not any(one.match(begin) for one in BEGINNINGS):
        raise InputError(
            f"{str(place)!r} is there already and is no result of mixlens. Give another name, or write over it: "
            "--force (force=True)."
        )


def write_result(text: str, path: str | os.PathLike[str], *, suffix: str | None = None, force: bool) -> None:
    """Write a result, whole or not at all, to a file that ends in `suffix`."""
    place = Path(path)
    if suffix is not None and place.suffix.lower() != suffix:
        raise ResultError(f"this is saved as {suffix}, not {place.name!r}.")
    if suffix is not None and not is_folder(place.parent):
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    refuse_foreign(place, force=force)
    try:
        write(place, text.encode("utf-8"))
    except OSError as error:
        raise ResultError(f"the result could not be written to {str(place)!r}: {error.strerror or error}.") from error


# --- what a manifest says ---------------------------------------------------------------------------------------------


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """One phrase for each fact that differs between two identities; facts inside of facts have phrases of their own."""
    for key in {**before, **now}:
        there, here = before.get(key), now.get(key)
        if isinstance(there, dict) and isinstance(here, dict):
            yield from _differences(there, here)
        elif there != here:
            is_checksum = key == "chat" and None not in (there, here)  # it tells a reader nothing
            yield "the chat template changed" if is_checksum else f"{key}: {_difference(there, here)}"


def _difference(there: Any, here: Any) -> str:
    """Two values side by side; of two lists, one of them long, what each has alone."""
    lists = isinstance(there, list) and isinstance(here, list)
    if not lists or all(len(json.dumps(value)) <= SHORT for value in (there, here)):
        return f"{_brief(there)} there, {_brief(here)} here"
    alone, new = [one for one in there if one not in here], [one for one in here if one not in there]
    if alone or new:
        return f"also {_brief(alone)} there, also {_brief(new)} here"
    return "the same in another order, or another number of times"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHORT else text[: SHORT - 3] + "..."
