"""Files that a command writes beside what it prints: a file that is no result of mixlens is not written over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError

Force = Annotated[bool, typer.Option("--force", help="Write over a file that is no result or page of mixlens, too.")]
BEGIN = 4000  # bytes that tell what a file is
HEADS = (b"position,token,", b"layer,query,key,", b"layer,head,query,key,", b"word,segment,special,", b"row,written,probability,")


def refuse_foreign(place: Path | None, *, force: bool) -> None:
    """Refuse a file that somebody else wrote, before anything is computed."""
    if place is not None and not force and place.is_file() and not _is_ours(place):
        raise InputError(
            f"{str(place)!r} is there already and is no result of mixlens. Give another name, or --force to write over it."
        )


def _is_ours(place: Path) -> bool:
    """An empty file, or one that begins as a result does."""
    with place.open("rb") as file:
        begin = file.read(BEGIN)
    if place.suffix.lower() == ".csv":
        return not begin or begin.startswith(HEADS)
    return not begin or b'"mixlens"' in begin or (begin.lstrip().startswith(b"{") and b'"kind"' in begin)
