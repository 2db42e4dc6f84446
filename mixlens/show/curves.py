"""Curves with their intervals, drawn on axes that are given: no figure of its own, no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import Interval
from .colors import DASHES, LINES, MARKS


def lines(axes: Any, curves: Mapping[str, Sequence[tuple[float, Interval]]], *, x: str, y: str) -> None:
    """One line for each name, its interval as a band. The names are told once, below the figure."""
    for number, (name, points) in enumerate(curves.items()):
        color, dash = LINES[number % len(LINES)], DASHES[number // len(LINES) % len(DASHES)]
        mark = MARKS[number % len(MARKS)]
        at = [place for place, _ in points]
        axes.plot(at, [one.mean for _, one in points], dash, color=color, label=name, linewidth=1.2, marker=mark, markersize=3)
        if not any(math.isnan(one.low) for _, one in points):
            axes.fill_between(
                at, [one.low for _, one in points], [one.high for _, one in points], color=color, alpha=0.12, linewidth=0
            )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    places = sorted({place for points in curves.values() for place, _ in points})
    if len(places) <= 13:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    if not axes.figure.legends:  # one for all axes, below them
        room = axes.figure.get_figwidth()  # inches; a name takes about 0.055 a letter and 0.4 for its line
        fitting = (
            len(curves)
            if sum(0.4 + 0.055 * len(name) for name in curves) < room
            else int(room / (0.4 + 0.055 * max(map(len, curves))))
        )
        told = {"ncols": max(1, min(4, fitting)), "fontsize": 7, "frameon": False, "columnspacing": 1.2, "handlelength": 1.8}
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", **told)
