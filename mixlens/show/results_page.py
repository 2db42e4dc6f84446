"""A page from results: one HTML file with its style, its script and its numbers inside. Needs no network and no
server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..answers import Why
from ..base.errors import InputError
from ..types import Attribution, Map, Result
from .page_entry import Entry, entry, numbered, shortened
from .page_template import REPORT, filled_page, folder_name, subtitle_of
from .why_page import about_line, shown_why

PRESETS = {"why": "Why this answer", "flow": "What flows where", "methods": "Compare methods", "all": "Report"}
IDENTITY = ("model", "revision", "text", "pair", "dtype", "unit")  # facts that results about one text share


@dataclass(frozen=True)
class Told:
    """What a page tells of one text: results, the answer to why, or the reason that there is none."""

    results: Sequence[Result] = ()
    why: Why | None = None
    unanswered: str | None = None


def page(
    results: Sequence[Result], *, title: str | None = None, room: int = 2_000_000, preset: str | None = None
) -> str:
    """The whole page of results as one string, at most `room` characters for each text (of one model, cut into the same
    tokens)."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        if not isinstance(result, Map | Attribution):
            raise InputError(f"a report shows Map and Attribution results, not {type(result).__name__}.")
        if not result.tokens:
            raise InputError(f"a result of {result.method!r} has no tokens; there is nothing to show.")
        text = (*(str(result.info.get(name)) for name in IDENTITY), result.tokens)
        groups.setdefault(text, []).append(result)
    if not groups:
        raise InputError("there is no result to report. Give a Map, an Attribution or a list of them.")
    return page_of_texts(list(map(Told, groups.values())), title=title, room=room, preset=preset)


def page_of_texts(
    told: Sequence[Told], *, title: str | None = None, room: int = 2_000_000, preset: str | None = None
) -> str:
    """The whole page as one string. It opens on the answer of its first text; `preset` is what the explorer shows
    first."""
    every = _labelled([_entry(one, room=room - page_room()) for one in told])
    first = every[0]
    question = title or first["question"]
    text = shortened(first["text"], 60) if len(every) == 1 else f"{len(every)} texts"
    return filled_page(
        {"entries": every, "title": title, "preset": preset},
        REPORT,
        title=question,
        subtitle=first["subtitle"],
        crumb=PRESETS[preset or "all"],
        name=f"{question} {text} · mixlens",
        answer=(first.get("why") or {}).get("sentence", ""),
    )


def _entry(told: Told, *, room: int) -> Entry:
    """One text of the page."""
    more: Entry = {} if told.unanswered is None else {"unanswered": told.unanswered}
    if told.why is not None:
        why = shown_why(told.why)
        more = {"why": why, "question": why["title"], "subtitle": about_line(told.why)}
    if not told.results:
        why = more["why"]
        return {"label": shortened(why["text"], 79), "model": why["model"], "text": why["text"], "methods": [], **more}
    made = entry(told.results, room=room, more=more)
    methods = list(dict.fromkeys(one["short"] for one in made["methods"]))
    return {"subtitle": subtitle_of([folder_name(made["model"])], methods), **made}


@cache
def page_room() -> int:
    """The characters of the page itself: its style and its script, and a little for names."""
    return len(filled_page({"entries": []}, REPORT, title="", subtitle="").encode()) + 1_000


def _labelled(entries: Sequence[Entry]) -> list[Entry]:
    """The entries as a list calls them. Texts that begin alike are listed with their ends; where these are alike too,
    with a number; all with their model where there are several."""
    begins = [one["label"] for one in entries]
    names = numbered(
        [
            shortened(one["text"], 40, end=39) if begins.count(begin) > 1 else begin
            for one, begin in zip(entries, begins, strict=True)
        ]
    )
    if len({one["model"] for one in entries}) > 1:
        names = [f"{folder_name(one['model'])}: {name}" for one, name in zip(entries, names, strict=True)]
    return [{**one, "label": name} for one, name in zip(entries, names, strict=True)]
