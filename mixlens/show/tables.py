"""Tables in the terminal: rows of cells in columns, the first row names them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "  # between columns
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
