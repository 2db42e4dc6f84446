"""Figures of tables: bars with intervals, lines over layers. A Table in, axes drawn; no global state."""

from __future__ import annotations

import math
from typing import Any

from ..metrics import Interval
from ..show.colors import LINES
from ..show.curves import lines
from .tables import Table

__all__ = ["bars", "curves_of", "lines"]


def bars(axes: Any, table: Table, value: str, *, label: str = "method", title: str = "") -> None:
    """One bar for each row, the first on top, with its interval."""
    names, cells = table.column(label), table.column(value)
    means = [cell.mean if isinstance(cell, Interval) else cell for cell in cells]
    places = range(len(names))
    axes.barh(places, means, color=LINES[0], alpha=0.85)
    for place, cell in zip(places, cells, strict=True):
        if isinstance(cell, Interval) and not math.isnan(cell.low):
            axes.plot([cell.low, cell.high], [place, place], color="black", linewidth=1)
    axes.set_yticks(list(places), [str(name) for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel(title or value)


def curves_of(table: Table, value: str, *, name: str = "method", x: str = "layer") -> dict[str, list[tuple[float, Interval]]]:
    """The rows of a long table as one curve for each name."""
    made: dict[str, list[tuple[float, Interval]]] = {}
    for who, place, cell in zip(table.column(name), table.column(x), table.column(value), strict=True):
        if isinstance(cell, Interval):
            made.setdefault(str(who), []).append((float(place), cell))
    return made
