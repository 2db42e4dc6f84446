"""Tables in the terminal: rows of cells in columns, the first row names them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "  # between columns
SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")  # within a cell
BETWEEN = re.compile(r" {2,}")  # cells
FAR = 24  # columns
WITHIN = "\ue000"  # stands for such a space while a line is wrapped between cells
Rows = Sequence[Sequence[str]]


def widths_of(rows: Rows) -> list[int]:
    """The width of every column, in characters."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(rows: Rows) -> list[str]:
    """Rows of cells in columns, as wide as they are. The last column is not filled up."""
    *widths, _ = widths_of(rows)
    return [_aligned_row(row, widths) for row in rows]


def _aligned_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """All cells but the last in columns of these widths."""
    return GAP.join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])


def listed(rows: Rows, width: int) -> list[str]:
    """Rows of cells in columns. Where they are wider than the terminal, each row becomes its first cell and, below and to
    the right, all others, wrapped between words: nothing is cut off."""
    widths = widths_of(rows)
    if sum(widths) + len(GAP) * (len(widths) - 1) <= width:
        return [line.rstrip() for line in aligned(rows)]
    return list(chain.from_iterable(_stacked(row, width) for row in rows))


def _stacked(row: Sequence[str], width: int) -> list[str]:
    """The first cell that is not empty, and the others below it."""
    first, *others = filter(None, row)
    indent = "    " if width > 20 else ""
    return _wrapped(first, width, "") + _wrapped(GAP.join(others), width, indent)


def fitted(text: str, width: int) -> str:
    """A text whose lines fit the terminal. A longer line is wrapped between its cells, else between words, and goes on to the
    right of its beginning; a word alone, as a path, is not broken."""
    lines = chain.from_iterable(_wrapped_line(line, width) for line in text.split("\n"))
    return "\n".join(lines)


def _wrapped_line(line: str, width: int) -> list[str]:
    """One line in lines that are broken between cells, and where a cell is too long for a line between its words."""
    if len(line) <= width:
        return [line]
    indent = " " * min(_second_cell(line), width // 2)
    lines = [part.replace(WITHIN, " ") for part in _hung(SINGLE_SPACE.sub(WITHIN, line), width, indent)]
    return lines if max(map(len, lines)) <= width else _hung(line, width, indent)


def _second_cell(line: str) -> int:
    """Where the second cell of a line begins; four columns to the right of the first where it has no other, or one far off."""
    begin = len(line) - len(line.lstrip())
    gap = BETWEEN.search(line, begin)
    return gap.end() if gap is not None and gap.end() <= FAR else begin + 4


def _hung(line: str, width: int, indent: str) -> list[str]:
    """A line wrapped, with its own beginning, and `indent` before the lines that follow."""
    own = line[: len(line) - len(line.lstrip(" "))]
    wrapper = textwrap.TextWrapper(width, own, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(line.strip(" "))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def folded(rows: Rows) -> Table:
    """Rows of cells in columns, for a console. Where they are wider than it, cells are wrapped within their columns."""
    from rich.table import Table

    names, *rest = rows
    table = Table(box=None, padding=(0, len(GAP), 0, 0))
    for name in names:
        table.add_column(name)
    for row in rest:
        table.add_row(*row)
    return table
