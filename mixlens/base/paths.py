"""Questions about a path. Where `Path` raises because a place cannot be looked at, the refusal here is one line."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import InputError, MixlensError, kind_of

SHOWN = 40  # characters of a name that is too long
Named = str | os.PathLike[str]


def path_of(value: Any) -> Path:
    """The path that a value names; what names none is refused."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"a file is named by a text or a Path, not by {kind_of(value)}.")
    return Path(value)


def is_file(place: Named) -> bool:
    with looking(place):
        return Path(place).is_file()


def is_folder(place: Named) -> bool:
    with looking(place):
        return Path(place).is_dir()


def is_there(place: Named) -> bool:
    with looking(place):
        return Path(place).exists()


@contextlib.contextmanager
def looking(place: Named) -> Iterator[None]:
    """Turn an error of the system, while a path is looked at or read, into a refusal of one line."""
    try:
        yield
    except OSError as error:
        if isinstance(error, MixlensError):
            raise
        name, reason = str(place), error.strerror or type(error).__name__
        told = f"{name!r} may not be looked at or read ({reason}). Set its permissions right, or give another path."
        if error.errno == errno.ENAMETOOLONG:
            told = (
                f"{f'{name[:SHOWN]}...'!r} is too long for the name of a file or a folder ({len(name):,} characters). "
            )
            told += "A text is no name: write it into a file, and name that file."
        raise InputError(told) from None
