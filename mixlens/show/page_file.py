"""A page as one HTML file: where it may be written, how large it may be, and writing it whole."""

from __future__ import annotations

from pathlib import Path

from ..base.errors import InputError, ResultError
from ..base.files import write as write_file
from ..base.paths import is_folder, is_there, looking
from .page_template import MARK

MEGABYTES = 2.0  # for each text, or for a run


def may_write(place: Path, *, force: bool) -> None:
    """Refuse before anything is computed: a file that is not empty and no report is not overwritten, unless `force`."""
    if place.suffix.lower() not in (".html", ".htm"):
        raise ResultError(f"a report is an .html file, not {place.name!r}.")
    if not is_folder(place.parent):
        raise ResultError(f"no folder {str(place.parent)!r} to write the report in.")
    if is_folder(place):
        raise ResultError(f"{str(place)!r} is a folder. Give the name of a file.")
    if is_there(place) and not force:
        with looking(place), place.open("rb") as file:
            begin = file.read(2000)
        if begin and MARK.encode() not in begin:
            raise ResultError(
                f"{str(place)!r} exists and is not a mixlens report. Choose another name, or say --force (force=True)."
            )


def room_of(megabytes: float) -> int:
    """The bytes that a text (or a run) may take."""
    if not 0.2 <= megabytes <= 1000:
        raise InputError(f"megabytes is the most a text (or a run) may take, 0.2 to 1000, not {megabytes}.")
    return int(megabytes * 1_000_000)


def write(text: str, place: Path) -> None:
    """The file is there whole, or not at all."""
    try:
        write_file(place, text.encode("utf-8"))
    except OSError as error:
        raise ResultError(f"the report could not be written to {str(place)!r}: {error.strerror}.") from error
