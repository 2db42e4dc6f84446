"""A page from results: one HTML file with its style, its script and its numbers inside. Needs no network and no server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..base.errors import InputError
from ..types import Attribution, Map, Result
from .page_entry import Entry, entry, numbered, shortened
from .page_template import REPORT, filled_page, folder_name, subtitle_of
from .why_page import HasDict, about_line, shown_why

PRESETS = {"why": "Why this answer", "flow": "What flows where", "methods": "Compare methods", "all": "Report"}
IDENTITY = ("model", "revision", "text", "pair", "dtype", "unit")  # facts that results about one text share


@dataclass(frozen=True)
class Told:
    """What a page tells of one text: results, the answer to why, or the reason that there is none."""

    results: Sequence[Result] = ()
    why: HasDict | None = None
    unanswered: str | None = None


def page(
    results: Sequence[Result], *, title: str | None = None, room: int = 2_000_000, preset: str | None = None
) -> str:
    """The whole page of results as one string, at most `room` characters for each text."""
    return page_of_texts([Told(group) for group in _by_text(results)], title=title, room=room, preset=preset)


def page_of_texts(
    told: Sequence[Told], *, title: str | None = None, room: int = 2_000_000, preset: str | None = None
) -> str:
    """The whole page as one string. It opens on the answer of its first text; `preset` is what the explorer shows first."""
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
    why = None if told.why is None else shown_why(told.why.to_dict())
    more: Entry = {} if told.unanswered is None else {"unanswered": told.unanswered}
    if why is not None:
        more = {"why": why, "question": why["question"], "subtitle": about_line(why)}
    if not told.results:
        return {
            "label": shortened(more["why"]["text"], 79),
            "model": more["why"]["model"],
            "text": more["why"]["text"],
            "methods": [],
            **more,
        }
    made = entry(told.results, room=room, more=more)
    return {
        "subtitle": subtitle_of([folder_name(made["model"])], _distinct(one["short"] for one in made["methods"])),
        **made,
    }


@cache
def page_room() -> int:
    """The characters of the page itself: its style and its script, and a little for names."""
    return len(filled_page({"entries": []}, REPORT, title="", subtitle="").encode()) + 1_000


def _distinct(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def entries(results: Sequence[Result], *, room: int) -> list[Entry]:
    """One entry for each text (of one model, cut into the same tokens), with every result about it."""
    return _labelled([_entry(Told(group), room=room) for group in _by_text(results)])


def _labelled(every: list[Entry]) -> list[Entry]:
    """The entries with names that tell them apart."""
    return [{**one, "label": label} for one, label in zip(every, _labels(every), strict=True)]


def _by_text(results: Sequence[Result]) -> list[list[Result]]:
    """The results in groups, one for each text."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        _refuse_result(result)
        groups.setdefault(_identity(result), []).append(result)
    if not groups:
        raise InputError("there is no result to report. Give a Map, an Attribution or a list of them.")
    return list(groups.values())


def _refuse_result(result: Any) -> None:
    if not isinstance(result, Map | Attribution):
        raise InputError(f"a report shows Map and Attribution results, not {type(result).__name__}.")
    if not result.tokens:
        raise InputError(f"a result of {result.method!r} has no tokens; there is nothing to show.")


def _identity(result: Result) -> tuple[Any, ...]:
    """What is the same for all results about one text."""
    return (*(str(result.info.get(name)) for name in IDENTITY), result.tokens)


# --- labels -----------------------------------------------------------------------------------------------------------


def _labels(entries: Sequence[Entry]) -> list[str]:
    """How a list calls each text; with the model where there are several."""
    labels = _different_labels(entries)
    if len({one["model"] for one in entries}) == 1:
        return labels
    return [f"{folder_name(one['model'])}: {label}" for one, label in zip(entries, labels, strict=True)]


def _different_labels(entries: Sequence[Entry]) -> list[str]:
    """Texts that begin alike are listed with their ends; where these are alike too, with a number."""
    names = [one["label"] for one in entries]
    return numbered([_with_end(one) if names.count(one["label"]) > 1 else one["label"] for one in entries])


def _with_end(facts: Entry) -> str:
    """The beginning and the end of a text."""
    return shortened(facts["text"], 40, end=39)
