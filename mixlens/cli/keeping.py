"""Files that a command writes beside what it prints: a file that is no result of mixlens is not written over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError

Force = Annotated[bool, typer.Option("--force", help="Write over a file that is no result or page of mixlens, too.")]
BEGIN = 4000  # bytes that tell what a file is
HEADS = (  # the first line of each kind of table; that of an answer goes on with the names of its methods
    re.compile(rb"position,token,special,score\r?\n"),
    re.compile(rb"layer,(head,)?query,key,query_token,key_token,score\r?\n"),
    re.compile(rb"word,segment,special,mark,score,share(,[a-z][a-z0-9_]*)*\r?\n"),
    re.compile(rb"row,written,probability,column,word,segment,group,score,share,effect\r?\n"),
)
JSON = re.compile(rb'\s*\{\s*"kind": "(attribution|map|headmaps|generation|why)"')


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
        return not begin or any(head.match(begin) for head in HEADS)
    return not begin or b'"mixlens"' in begin or JSON.match(begin) is not None
