"""Text in columns and lines that fit a terminal: by the columns a character takes, not by their number."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

LEFT_TO_RIGHT = "\u200e"  # after a right-to-left token, so that a terminal does not move the numbers that follow


def laid(*parts: tuple[str, str]) -> Text:
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
    beginning = ""
    for char in text:
        if columns_of(beginning + char) > width - 1:
            break
        beginning += char
    return beginning + "…"[: max(0, width)]


def fitting(text: str, width: int, *, right: bool = False, middle: bool = False) -> str:
    """Exactly this many columns."""
    text = clipped(text, width)
    room = width - columns_of(text)
    left = room if right else room // 2 if middle else 0
    return " " * left + turned(text) + " " * (room - left)


def turned(text: str) -> str:
    return text + LEFT_TO_RIGHT if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text) else text


def chopped(text: str, width: int) -> list[str]:
    """A text that is wider than the terminal, in parts that are not."""
    parts = [""]
    for char in text:
        if parts[-1] and columns_of(parts[-1] + char) > width:
            parts.append("")
        parts[-1] += char
    return parts


def kept_together(items: Sequence[str], gap: str, width: int, *, first: str = "", style: str = "") -> Iterator[Text]:
    """Items in lines, broken between them only; the line begins with `first`."""
    line, between = first, ""
    for item in items:
        longer = line + between + item
        if between and columns_of(longer) > width:
            yield laid((line, style))
            longer = item
        *full, line = chopped(longer, max(1, width))
        yield from (laid((part, style)) for part in full)
        between = gap
    yield laid((line, style))


def in_blocks(wide: Sequence[int], room: int, *, gap: int) -> Iterator[tuple[int, int]]:
    """Columns in groups that fit beside each other, at least one a group."""
    start, end = 0, 0
    for number, size in enumerate(wide):
        if number > start and end + gap + size > room:
            yield start, number
            start, end = number, 0
        end += size + (gap if number > start else 0)
    if start < len(wide):
        yield start, len(wide)
