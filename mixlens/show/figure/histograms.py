"""Histogram rows: one row of columns for each name, all on one scale, a number at the right of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from ...base.errors import InputError
from ..colors import LIGHT
from .layout import AXES, GAP, SIZE, SMALL, axes_at, cut, inches_of, put, widest
from .picture import Picture, check_save, finished, settings
from .wording import researcher_name

ROW = 0.34  # inches from one row to the next
ABOVE, BELOW = 0.2, 0.36  # inches above the first row and below the last


def histogram_rows(
    counts: Mapping[str, Sequence[float]],
    *,
    edges: Sequence[float],
    values: Mapping[str, str] | None = None,
    value_name: str = "",
    x: str = "",
    grey: str | None = None,
    width: str | float | None = None,
    font: str | Sequence[str] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Picture:
    """Columns of `counts` between `edges`, a row for each name in the order given. `values`: what stands at the right
    of a row, called `value_name`; `grey`: the row to compare with. The counts of the two outer columns are written on
    them."""
    if not counts:
        raise InputError("there is nothing to draw: no rows were given.")
    for name, row in counts.items():
        if len(row) != len(edges) - 1:
            columns = f"{len(edges)} edges have {len(edges) - 1} columns between them"
            raise InputError(f"row {name!r} has {len(row)} counts, and {columns}.")
    check_save(save)
    with settings(font, new_figure=True):
        page = _drawn(counts, edges, values or {}, value_name, x, grey, inches_of(width, wide=False))
    made: Picture = finished(page, None, save)
    return made


def _drawn(
    counts: Mapping[str, Sequence[float]],
    edges: Sequence[float],
    values: Mapping[str, str],
    value_name: str,
    x: str,
    grey: str | None,
    width: float,
) -> Picture:
    """The rows below each other; heights share one scale, with room for a number above the highest."""
    names = [cut(researcher_name(name), SIZE, 0.36 * width) for name in counts]
    left = GAP + widest(names, SIZE) + 0.08
    right = widest([*values.values(), value_name, ""], SIZE) + 0.1 if values else GAP
    room = width - left - right
    page = Picture(figsize=(width, ABOVE + ROW * len(names) + BELOW))
    most = max(max(row) for row in counts.values()) or 1.0
    starts, widths = np.asarray(edges[:-1], dtype=float), np.diff(np.asarray(edges, dtype=float))
    for number, (name, row) in enumerate(counts.items()):
        axes = axes_at(page, left, ABOVE + number * ROW, room, ROW)
        colour = LIGHT["edge"] if name == grey else LIGHT["ink"]
        axes.bar(starts, row, widths * 0.94, align="edge", color=colour, linewidth=0)
        axes.set(xlim=(float(edges[0]), float(edges[-1])), ylim=(0, most * 1.5), xticks=[], yticks=[])
        axes.spines[["top", "left", "right"]].set_visible(False)
        for place in (0, len(row) - 1):
            if row[place]:
                middle, count = float(starts[place] + widths[place] / 2), row[place]
                text = f"{count:,.0f}" if count >= 10 or float(count).is_integer() else f"{count:.1f}"
                put(axes, middle, count + 0.06 * most, text, ha="center", va="bottom", fontsize=SMALL)
        beside = {"transform": axes.transAxes, "fontsize": SIZE}
        put(axes, -0.08 / room, 0.08, names[number], ha="right", **beside)
        if name in values:
            put(axes, 1 + 0.08 / room, 0.08, values[name], weight="bold", **beside)
    low, high = axes.get_xlim()
    ticks = np.linspace(low, high, 5 if room > 2 else 3)
    texts = [f"{100 * tick:g}\u2009%" for tick in ticks] if (low, high) == (0, 1) else [f"{tick:g}" for tick in ticks]
    axes.set_xticks(ticks, texts, fontsize=AXES)
    axes.tick_params(axis="x", length=2, width=0.5, pad=1.5)
    axes.set_xlabel(x, fontsize=AXES, labelpad=1, parse_math=False)
    if value_name:
        first = page.axes[0]
        put(first, 1 + 0.08 / room, 1.05, value_name, transform=first.transAxes, fontsize=AXES, color=LIGHT["soft"])
    return page
