"""The page of a run: one HTML file that shows its whole folder, finished or not."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ...show import run_page
from ...show.page_file import MEGABYTES, may_write, room_of, write
from .page_facts import EXAMPLES, overview
from .shards import shard_files
from .stored_maps import maps


def page_of(
    out: str | os.PathLike[str],
    *,
    label: str | None = None,
    examples: int | None = None,
    title: str | None = None,
    room: int,
) -> str:
    """The HTML of a run's folder, in at most `room` bytes; with its maps, where it kept them."""
    facts = overview(out, label=label, examples=EXAMPLES if examples is None else examples)
    has_maps = bool(shard_files(out, "maps"))
    return run_page.page(facts, maps=partial(maps, out) if has_maps else None, title=title, room=room)


def write_page(
    out: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    examples: int | None = None,
    title: str | None = None,
    megabytes: float = MEGABYTES,
    force: bool = False,
) -> Path:
    """Write the page of a run's folder; see `mixlens.report` for the options."""
    place = Path(path)
    may_write(place, force=force)
    write(page_of(out, label=label, examples=examples, title=title, room=room_of(megabytes)), place)
    return place
