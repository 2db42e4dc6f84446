"""Curves with their intervals, drawn on the axes of a figure: no figure of its own, no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import Interval
from .colors import DASHES, LIGHT, LINES, MARKS

Points = Sequence[tuple[float, Interval]]
MOST_TICKS = 13  # places on an axis that are all labelled


def lines(axes: Any, curves: Mapping[str, Points], *, x: str, y: str) -> None:
    """One line for each name, its interval as a band. The names stand once, below the figure. Curves of one place are
    bars."""
    places = sorted({place for points in curves.values() for place, _ in points})
    if len(places) == 1 and len(curves) > 1:
        _draw_one_place(axes, {name: points[0][1] for name, points in curves.items()}, f"{x} {places[0]:g}", y)
        return
    for number, (name, points) in enumerate(curves.items()):  # colours repeat with another dash
        color, dash = LINES[number % len(LINES)], DASHES[number // len(LINES) % len(DASHES)]
        at, every = [place for place, _ in points], [interval for _, interval in points]
        axes.plot(
            at,
            [one.mean for one in every],
            dash,
            color=color,
            label=name,
            marker=MARKS[number % len(MARKS)],
            markersize=3.4,
            linewidth=1.2,
        )
        if not any(math.isnan(one.low) for one in every):
            ends = [one.low for one in every], [one.high for one in every]
            axes.fill_between(at, *ends, color=color, alpha=0.12, linewidth=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    if (
        not axes.figure.legends
    ):  # one for all axes, below them: a name takes about 0.055 inches a letter and 0.4 for its line
        widths, room = [0.4 + 0.055 * len(name) for name in curves], axes.figure.get_figwidth()
        columns = len(curves) if sum(widths) < room else int(room / max(widths))
        style = {"fontsize": 7.0, "frameon": False, "columnspacing": 1.2, "handlelength": 1.8}
        found = axes.get_legend_handles_labels()
        axes.figure.legend(*found, loc="outside lower center", ncols=max(1, min(4, columns)), **style)


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
