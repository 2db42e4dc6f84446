"""Figures of tables: bars with intervals, lines over layers. A Table in, axes drawn; no global state."""

from __future__ import annotations

import math
from typing import Any

from ...metrics import Interval
from ...show.colors import LIGHT
from ...show.curves import lines
from .tables import Table

__all__ = ["bars", "curves_of", "lines"]


def bars(axes: Any, table: Table, value: str, *, label: str = "method", title: str = "", ordered: bool = False) -> None:
    """One bar for each row with its interval, the largest on top; or in the order of the table, which is `ordered`
    already."""
    rows = list(zip(map(str, table.column(label)), table.column(value), strict=True))
    rows = rows if ordered else sorted(rows, key=lambda row: _descending(_mean(row[1])))
    means = [_mean(cell) for _, cell in rows]
    places = range(len(rows))
    axes.barh(
        places, means, color=[LIGHT["line" if name.startswith("random") else "edge"] for name, _ in rows], height=0.72
    )
    for place, (_, cell) in zip(places, rows, strict=True):
        if isinstance(cell, Interval) and not math.isnan(cell.low):
            axes.plot([cell.low, cell.high], [place, place], color=LIGHT["ink"], linewidth=1, marker="None")
    axes.set_yticks(list(places), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.axvline(0, color=LIGHT["edge"], linewidth=0.6, marker="None")
    axes.set_xlabel(title or value)


def _mean(cell: Any) -> float:
    """The number of a cell; NaN, which draws no bar, where the cell is empty."""
    return math.nan if cell is None else cell.mean if isinstance(cell, Interval) else cell


def _descending(mean: float) -> float:
    """What sorts the largest first; rows without a number come last."""
    return math.inf if math.isnan(mean) else -mean


def curves_of(
    table: Table, value: str, *, name: str = "method", x: str = "layer"
) -> dict[str, list[tuple[float, Interval]]]:
    """The rows of a long table as one curve for each name."""
    made: dict[str, list[tuple[float, Interval]]] = {}
    for who, place, cell in zip(table.column(name), table.column(x), table.column(value), strict=True):
        if isinstance(cell, Interval):
            made.setdefault(str(who), []).append((float(place), cell))
    return made
