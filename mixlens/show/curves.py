"""Curves with their intervals, drawn on the axes of a figure: no figure of its own, no global state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..metrics import Interval
from .colors import DASHES, LIGHT, LINES, MARKS

Points = Sequence[tuple[float, Interval]]
MOST_TICKS = 13  # places on an axis that are all labelled


def lines(axes: Any, curves: Mapping[str, Points], *, x: str, y: str) -> None:
    """One line for each name, its interval as a band. The names stand once, below the figure. Curves of one place are bars."""
    places = {place for points in curves.values() for place, _ in points}
    if len(places) == 1 and len(curves) > 1:
        _draw_one_place(axes, {name: points[0][1] for name, points in curves.items()}, f"{x} {places.pop():g}", y)
        return
    for number, (name, points) in enumerate(curves.items()):
        _draw(axes, number, name, points)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _mark_places(axes, curves.values())
    if not axes.figure.legends:  # one for all axes, below them
        _name(axes, list(curves))


def _draw_one_place(axes: Any, cells: Mapping[str, Interval], place: str, unit: str) -> None:
    """A bar for each name with its interval, the largest on top: a curve of one point says nothing."""
    names = sorted(cells, key=lambda name: -cells[name].mean)
    axes.barh(range(len(names)), [cells[name].mean for name in names], color=LIGHT["edge"], height=0.72)
    for row, cell in enumerate(cells[name] for name in names):
        if not math.isnan(cell.low):
            axes.plot([cell.low, cell.high], [row, row], color=LIGHT["ink"], linewidth=1, marker="None")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit)
    axes.set_title(place, loc="left")


def _draw(axes: Any, number: int, name: str, points: Points) -> None:
    """Curve number `number`: colours repeat with another dash."""
    color, dash = LINES[number % len(LINES)], DASHES[number // len(LINES) % len(DASHES)]
    mark = MARKS[number % len(MARKS)]
    at = [place for place, _ in points]
    means, lows, highs = (_ends(points, end) for end in ("mean", "low", "high"))
    axes.plot(at, means, dash, color=color, label=name, linewidth=1.2, marker=mark, markersize=3.4)
    if not any(map(math.isnan, lows)):
        axes.fill_between(at, lows, highs, color=color, alpha=0.12, linewidth=0)


def _ends(points: Points, end: str) -> list[float]:
    """The mean, or the low or high end, of every interval."""
    return [getattr(interval, end) for _, interval in points]


def _mark_places(axes: Any, curves: Iterable[Points]) -> None:
    """A tick at every place of a curve, unless there are too many to be labelled."""
    places = sorted({place for points in curves for place, _ in points})
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _name(axes: Any, names: Sequence[str]) -> None:
    """The legend below the figure."""
    columns = _legend_columns(names, axes.figure.get_figwidth())
    style = {
        "ncols": max(1, min(4, columns)),
        "fontsize": 7.0,
        "frameon": False,
        "columnspacing": 1.2,
        "handlelength": 1.8,
    }
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", **style)


def _legend_columns(names: Sequence[str], room: float) -> int:
    """How many columns of names fit the room in inches: a name takes about 0.055 a letter and 0.4 for its line."""
    widths = [0.4 + 0.055 * len(name) for name in names]
    return len(names) if sum(widths) < room else int(room / max(widths))
