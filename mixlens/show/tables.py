"""Tables in the terminal: rows of cells in columns, the first row names them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "  # between columns
INDENT = "    "  # before what goes on with a row
SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")  # within a cell
BETWEEN = re.compile(r" {2,}")  # cells
FAR = 24  # columns
WITHIN = "\ue000"  # stands for such a space while a line is wrapped between cells
Rows = Sequence[Sequence[str]]


def aligned(rows: Rows) -> list[str]:
    """Rows of cells in columns, as wide as they are. The last column is not filled up."""
    *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        GAP.join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def listed(rows: Rows, width: int) -> list[str]:
    """Rows of cells in columns. Where they are wider than the terminal, each row becomes its first cell that is not
    empty and, below and to the right, all others, wrapped between words: nothing is cut off."""
    lines = aligned(rows)
    if max(map(len, lines)) <= width:
        return [line.rstrip() for line in lines]
    lines = []
    for first, *others in (list(filter(None, row)) for row in rows):
        for text, indent in ((first, ""), (GAP.join(others), INDENT)):
            lines += textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def fitted(text: str, width: int) -> str:
    """A text whose lines fit the terminal. A longer line is wrapped between its cells, else between words, and goes on
    to the right of its beginning; a word alone, as a path, is not broken."""
    return "\n".join(line for whole in text.split("\n") for line in _wrapped_line(whole, width))


def _wrapped_line(line: str, width: int) -> list[str]:
    """One line, broken between cells, and where a cell is too long for a line between its words. What follows stands
    under the second cell; four columns to the right of the first where there is no other, or one far off."""
    if len(line) <= width:
        return [line]
    begin = len(line) - len(line.lstrip(" "))
    gap = BETWEEN.search(line, begin)
    second = gap.end() if gap is not None and gap.end() <= FAR else begin + len(INDENT)
    indent = " " * min(second, width // 2)
    wrapper = textwrap.TextWrapper(width, line[:begin], indent, break_long_words=False, break_on_hyphens=False)
    held = wrapper.wrap(SINGLE_SPACE.sub(WITHIN, line).strip(" "))
    lines = [part.replace(WITHIN, " ") for part in held]
    return lines if max(map(len, lines)) <= width else wrapper.wrap(line.strip(" "))


def folded(rows: Rows) -> Table:
    """Rows of cells in columns, for a console. Where they are wider than it, cells are wrapped within their columns."""
    from rich.table import Table

    table = Table(*rows[0], box=None, padding=(0, len(GAP), 0, 0))
    for row in rows[1:]:
        table.add_row(*row)
    return table
