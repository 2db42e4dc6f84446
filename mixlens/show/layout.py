"""Text in columns and lines that fit a terminal: by the columns a character takes, not by their number."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate
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
    if columns_of(text) <= width:
        return text
    return text[: _beginning(text, width - 1)] + "…"[: max(0, width)]


def _beginning(text: str, width: int) -> int:
    """How many characters of the beginning of a text take at most this many columns."""
    ends = range(1, len(text) + 1)
    return next((end - 1 for end in ends if columns_of(text[:end]) > width), len(text))


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


def chopped(text: str, width: int) -> list[str]:
    """A text that is wider than the terminal, in parts that are not."""
    parts = [""]
    for char in text:
        if parts[-1] and columns_of(parts[-1] + char) > width:
            parts.append("")
        parts[-1] += char
    return parts


def item_lines(items: Sequence[str], gap: str, width: int, *, first: str = "", style: str = "") -> Iterator[Text]:
    """Items in lines, broken between them only; the line begins with `first`."""
    return (text_line((line, style)) for line in _lines_of(items, gap, width, first))


def _lines_of(items: Sequence[str], gap: str, width: int, first: str) -> Iterator[str]:
    """Items in lines. An item that is wider than a line is chopped."""
    line, between = first, ""
    for item in items:
        longer = line + between + item
        if between and columns_of(longer) > width:
            yield line
            longer = item
        *full, line = chopped(longer, max(1, width))
        yield from full
        between = gap
    yield line


def in_blocks(wide: Sequence[int], room: int, *, gap: int) -> Iterator[tuple[int, int]]:
    """Columns in groups that fit beside each other, at least one a group."""
    start = 0
    while start < len(wide):
        stop = start + _beside(wide[start:], room, gap)
        yield start, stop
        start = stop


def _beside(wide: Sequence[int], room: int, gap: int) -> int:
    """How many of these columns fit beside each other; at least one."""
    ends = accumulate(wide, lambda end, size: end + gap + size)
    return max(1, sum(end <= room for end in ends))
