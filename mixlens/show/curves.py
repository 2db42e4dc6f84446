"""Curves with their intervals, drawn on the axes of a figure: no figure of its own, no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import Interval
from .colors import DASHES, LINES, MARKS

Points = Sequence[tuple[float, Interval]]


def lines(axes: Any, curves: Mapping[str, Points], *, x: str, y: str) -> None:
    """One line for each name, its interval as a band. The names stand once, below the figure."""
    for number, (name, points) in enumerate(curves.items()):
        _draw(axes, number, name, points)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    places = sorted({place for points in curves.values() for place, _ in points})
    if len(places) <= 13:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    if not axes.figure.legends:  # one for all axes, below them
        _name(axes, list(curves))


def _draw(axes: Any, number: int, name: str, points: Points) -> None:
    """Curve number `number`: colours repeat with another dash."""
    color, dash = LINES[number % len(LINES)], DASHES[number // len(LINES) % len(DASHES)]
    mark = MARKS[number % len(MARKS)]
    at = [place for place, _ in points]
    means, lows, highs = ([getattr(interval, end) for _, interval in points] for end in ("mean", "low", "high"))
    axes.plot(at, means, dash, color=color, label=name, linewidth=1.2, marker=mark, markersize=3)
    if not any(map(math.isnan, lows)):
        axes.fill_between(at, lows, highs, color=color, alpha=0.12, linewidth=0)


def _name(axes: Any, names: Sequence[str]) -> None:
    """The legend below the figure, in as many columns as fit: a name takes about 0.055 inches a letter and 0.4 for its line."""
    room = axes.figure.get_figwidth()
    one_row = sum(0.4 + 0.055 * len(name) for name in names) < room
    columns = len(names) if one_row else int(room / (0.4 + 0.055 * max(map(len, names))))
    style = {"ncols": max(1, min(4, columns)), "fontsize": 7, "frameon": False, "columnspacing": 1.2, "handlelength": 1.8}
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", **style)
