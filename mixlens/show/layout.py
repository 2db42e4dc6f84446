"""Text in columns and lines that fit a terminal: by the columns a character takes, not by their number."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

LEFT_TO_RIGHT = "\u200e"  # after a right-to-left token, so that a terminal does not move the numbers that follow


def text_line(*parts: tuple[str, str]) -> Text:
    """Text that is laid out already: never wrapped, never read as markup."""
    from rich.text import Text

    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


def columns_of(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def clipped(text: str, width: int) -> str:
    """At most this many columns; what is cut off is an ellipsis."""
    from rich.cells import set_cell_size

    return text if columns_of(text) <= width else set_cell_size(text, width - 1) + "…"[: max(0, width)]


def fitting(text: str, width: int, *, right: bool = False, middle: bool = False) -> str:
    """Exactly this many columns."""
    text = clipped(text, width)
    room = width - columns_of(text)
    left = room if right else room // 2 if middle else 0
    return " " * left + turned(text) + " " * (room - left)


def turned(text: str) -> str:
    """A text with a left-to-right mark behind it where one of its characters is written from right to left."""
    is_turned = any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text)
    return text + LEFT_TO_RIGHT if is_turned else text


def item_lines(items: Sequence[str], gap: str, width: int, *, first: str = "", style: str = "") -> Iterator[Text]:
    """Items in lines, broken between them only; the line begins with `first`. An item that is wider than a line is
    folded."""
    from rich.text import Text

    line, between = first, ""
    for item in items:
        longer = line + between + item
        if between and columns_of(longer) > width:
            yield Text(line, style)
            longer = item
        line, between = longer, gap
    yield Text(line, style)


def in_blocks(wide: Sequence[int], room: int, *, gap: int) -> Iterator[tuple[int, int]]:
    """Columns in groups that fit beside each other, at least one a group."""
    start, end = 0, 0
    for place, size in enumerate(wide):
        if place > start and end + gap + size > room:
            yield start, place
            start = place
        end = size if place == start else end + gap + size
    if wide:
        yield start, len(wide)
