"""A page from results: one HTML file with its style, its script and its numbers inside. Needs no network and no server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from ..errors import InputError
from ..types import Attribution, Map, Result
from .page_entry import Entry, entry, numbered, shortened
from .page_template import REPORT, filled_page, folder_name, subtitle_of

IDENTITY = ("model", "revision", "text", "pair", "dtype", "unit")  # facts that results about one text share


def page(results: Sequence[Result], *, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string, at most `room` characters for each text."""
    every = entries(results, room=room - page_room())
    models = _distinct(folder_name(one["model"]) for one in every)
    names = _distinct(method["name"] for one in every for method in one["methods"])
    return filled_page({"entries": every}, REPORT, title=title or "How a text was mixed", subtitle=subtitle_of(models, names))


@cache
def page_room() -> int:
    """The characters of the page itself: its style and its script, and a little for names."""
    return len(filled_page({"entries": []}, REPORT, title="", subtitle="").encode()) + 1_000


def _distinct(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def entries(results: Sequence[Result], *, room: int) -> list[Entry]:
    """One entry for each text (of one model, cut into the same tokens), with every result about it."""
    every = [entry(group, room=room) for group in _by_text(results)]
    for one, label in zip(every, _labels(every), strict=True):
        one["label"] = label
    return every


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
