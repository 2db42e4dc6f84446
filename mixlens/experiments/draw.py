"""Figures of tables: bars with intervals, lines over layers. A Table in, axes drawn; no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import Interval
from .tables import Table

COLORS = ("#1b5e9e", "#c8501e", "#2e8b57", "#8250a0", "#8a6d1f", "#c2417c", "#3c8c9c", "#6e6e6e")
DASHES = ("-", "--", ":", "-.")


def bars(axes: Any, table: Table, value: str, *, label: str = "method", title: str = "") -> None:
    """One bar for each row, the first on top, with its interval."""
    names, cells = table.column(label), table.column(value)
    means = [cell.mean if isinstance(cell, Interval) else cell for cell in cells]
    places = range(len(names))
    axes.barh(places, means, color=COLORS[0], alpha=0.85)
    for place, cell in zip(places, cells, strict=True):
        if isinstance(cell, Interval) and not math.isnan(cell.low):
            axes.plot([cell.low, cell.high], [place, place], color="black", linewidth=1)
    axes.set_yticks(list(places), [str(name) for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel(title or value)


def lines(axes: Any, curves: Mapping[str, Sequence[tuple[float, Interval]]], *, x: str, y: str) -> None:
    """One line for each name, its interval as a band. The names are told once, below the figure."""
    for number, (name, points) in enumerate(curves.items()):
        color, dash = COLORS[number % len(COLORS)], DASHES[number // len(COLORS) % len(DASHES)]
        at = [place for place, _ in points]
        axes.plot(at, [one.mean for _, one in points], dash, color=color, label=name, linewidth=1.4)
        if not any(math.isnan(one.low) for _, one in points):
            axes.fill_between(at, [one.low for _, one in points], [one.high for _, one in points], color=color, alpha=0.12)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    places = sorted({place for points in curves.values() for place, _ in points})
    if len(places) <= 13:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    if not axes.figure.legends:  # one for all axes, below them
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7, frameon=False)


def curves_of(table: Table, value: str, *, name: str = "method", x: str = "layer") -> dict[str, list[tuple[float, Interval]]]:
    """The rows of a long table as one curve for each name."""
    made: dict[str, list[tuple[float, Interval]]] = {}
    for who, place, cell in zip(table.column(name), table.column(x), table.column(value), strict=True):
        if isinstance(cell, Interval):
            made.setdefault(str(who), []).append((float(place), cell))
    return made
