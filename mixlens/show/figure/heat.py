"""Sheets of heat maps: panels beside and below each other with one colour scale, labelled at the left and at the bottom."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...errors import InputError, printable
from ...types import Result
from ..colors import hex_of, ink, shade
from ..tokens import shown
from .layout import (
    BETWEEN,
    GAP,
    LINE,
    MOST_HIGH,
    SIZE,
    SMALL,
    axes_at,
    broken,
    cut,
    put,
    size_of,
    text_width,
    thinned,
    title_height,
    widest,
    write_head,
    write_title,
)
from .legend import Colours, colours_of, legend, legend_below, upright_width
from .options import Options
from .picture import Picture
from .wording import meaning_of

KEYS = "taken from (key)"
QUERIES = "position (query)"
LONGEST = 0.85  # inches of a label below a column
LEAST_SIZE = 3.5  # points of a number in a cell


@dataclass(frozen=True)
class Panel:
    """One heat map: numbers [row column] and what stands above them."""

    values: NDArray[np.float64]
    head: str = ""


@dataclass(frozen=True)
class Sheet:
    """Panels with the same rows and columns. `scale` says whether values were divided by the largest ("own") or not ("all")."""

    panels: Sequence[Panel]
    columns: Sequence[str]  # labels
    rows: Sequence[str]  # labels
    row_name: str
    square: bool  # rows and columns are the same tokens
    colours: Colours
    meaning: str


def draw_heat(
    panels: Sequence[Panel],
    scale: str,
    options: Options,
    title: str,
    *,
    results: Sequence[Result],
    rows: Sequence[str] | None = None,
    row_name: str = QUERIES,
) -> Any:
    """The panels on a new page, or the one panel on the user's axes. Without `rows` the rows are the tokens."""
    columns = [shown(token) for token in results[0].tokens]
    colours = colours_of([panel.values for panel in panels], options.vmax)
    meaning = meaning_of(results, colours.signed, scale)
    sheet = Sheet(panels, columns, columns if rows is None else rows, row_name, rows is None, colours, meaning)
    return _on_page(sheet, options, title) if options.ax is None else _on_axes(sheet, options.ax, options, title)


def _on_axes(sheet: Sheet, axes: Axes, options: Options, title: str) -> Any:
    box = axes.get_window_extent()
    wide, high = (
        float(size) / axes.figure.dpi for size in (box.width / len(sheet.columns), box.height / len(sheet.rows))
    )  # of a cell
    _draw_panel(axes, sheet, sheet.panels[0], wide, high, options.numbers)
    _label_columns(axes, sheet.columns, wide, sheet.square)
    _label_rows(axes, sheet.rows, high, sheet.row_name)
    write_head(axes, "\n".join(broken(title, SIZE, size_of(axes)[0])))
    if options.colorbar:
        legend(axes.inset_axes((1.03, 0.0, 0.04, 1.0)), sheet.colours, sheet.meaning, upright=True)
    return axes.figure


def _on_page(sheet: Sheet, options: Options, title: str) -> Picture:
    lines = broken(title, SIZE, options.width - 2 * GAP)
    above = GAP + title_height(lines)
    places, upright = _arranged(sheet, options)
    below = 0.38 if options.colorbar and not upright else 0.0
    page = Picture(figsize=(options.width, above + places.head + places.whole + places.foot + below + GAP))
    write_title(page, lines)
    for number in range(len(sheet.panels)):
        _place_panel(page, sheet, places, number, above, options.numbers)
    if options.colorbar:
        _place_legend(page, sheet, places, above, options.width, upright)
    return page


def _arranged(sheet: Sheet, options: Options) -> tuple[Places, bool]:
    """The places of a sheet, and whether its colour bar stands upright beside it: that takes square panels that are high
    enough. Otherwise the bar lies below."""
    beside = Places(sheet, options.width, upright_width(sheet.colours) if options.colorbar else GAP)
    if sheet.square and beside.whole >= text_width(sheet.meaning, SMALL + 1):
        return beside, True
    return Places(sheet, options.width, GAP), False


class Places:
    """Where everything of a sheet goes, in inches; `right` is what stays free at the right."""

    def __init__(self, sheet: Sheet, width: float, right: float):
        square, count = sheet.square, len(sheet.panels)
        self.label = min(0.3 * width, widest(sheet.rows, SIZE))
        self.left = GAP + self.label + 0.06 + (0.17 if sheet.row_name else 0.0)
        room = width - self.left - right
        self.beside = _beside(count, room, square)
        down = math.ceil(count / self.beside)
        most = 0.42 if square else 0.6  # few tokens do not make large cells
        self.pitch = min((room - BETWEEN * (self.beside - 1)) / self.beside / len(sheet.columns), most)
        self.row = self.pitch if square else max(0.12, min(0.17, (MOST_HIGH - 1.5) / len(sheet.rows) / down))
        self.wide, self.high = self.pitch * len(sheet.columns), self.row * len(sheet.rows)
        self.heads = [broken(printable(panel.head), SIZE - 1, self.wide) for panel in sheet.panels]
        self.head = max(map(len, self.heads)) * (SIZE - 1) * LINE / 72 + (0.03 if any(self.heads) else 0.0)
        self.step = self.head + self.high + GAP
        self.whole = (down - 1) * self.step + self.high
        self.foot = _foot(sheet.columns, self.pitch) + (0.14 if square else 0.0)


def _beside(count: int, room: float, square: bool) -> int:
    """How many panels stand beside each other: as many as fit, spread evenly over the rows of panels."""
    most = min(count, max(1, int((room + BETWEEN) / (0.95 if square else 1.9))))
    return math.ceil(count / math.ceil(count / most))


def _place_panel(page: Picture, sheet: Sheet, places: Places, number: int, above: float, numbers: bool) -> None:
    row, column = divmod(number, places.beside)
    left, top = places.left + column * (places.wide + BETWEEN), above + places.head + row * places.step
    axes = axes_at(page, left, top, places.wide, places.high)
    _draw_panel(axes, sheet, sheet.panels[number], places.pitch, places.row, numbers)
    if places.heads[number]:
        write_head(axes, "\n".join(places.heads[number]), size=SIZE - 1, pad=2.5)
    if number + places.beside >= len(sheet.panels):
        _label_columns(axes, sheet.columns, places.pitch, sheet.square)
    if column == 0:
        _label_rows(axes, [cut(text, SIZE, places.label) for text in sheet.rows], places.row, sheet.row_name)


def _place_legend(page: Picture, sheet: Sheet, places: Places, above: float, width: float, upright: bool) -> None:
    if upright:
        right = places.left + places.beside * (places.wide + BETWEEN) - 0.02
        axes = axes_at(page, right, above + places.head, 0.08, min(1.5, places.whole))
        legend(axes, sheet.colours, sheet.meaning, upright=True)
    else:
        top = above + places.head + places.whole + places.foot + 0.04
        legend_below(page, places.left, top, width - places.left - GAP, sheet.colours, sheet.meaning)


# --- one panel --------------------------------------------------------------------------------------------------------


def _draw_panel(axes: Axes, sheet: Sheet, panel: Panel, wide: float, high: float, numbers: bool) -> None:
    """The cells of one heat map, `wide` and `high` in inches; with `numbers` the scores in them."""
    axes.imshow(panel.values, cmap=sheet.colours.cmap, norm=sheet.colours.norm, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
    if not sheet.square:
        for row in range(1, len(panel.values)):
            axes.axhline(row - 0.5, color="white", linewidth=0.8)
    if numbers:
        _write_numbers(axes, panel.values, sheet.colours, wide, high)


def _write_numbers(axes: Axes, values: NDArray[np.float64], colours: Colours, wide: float, high: float) -> None:
    texts = [[_number(float(value)) for value in row] for row in values]
    size = min(6.0, high * 72 / 1.1)
    size *= min(1.0, 0.92 * wide / max(widest(row, size) for row in texts))
    if size < LEAST_SIZE:
        raise InputError(f"cells of {wide:.2f} inches are too small for numbers. Give a larger width=, or leave numbers out.")
    for i, line in enumerate(texts):
        for j, text in enumerate(line):
            share = float(np.clip(values[i, j] / colours.end, -1, 1))
            put(axes, j, i, text, ha="center", va="center", fontsize=size, color=hex_of(ink(shade(share))))


def _number(value: float) -> str:
    """A score without the zero before its point."""
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


# --- labels -----------------------------------------------------------------------------------------------------------


def _lies(texts: Sequence[str], pitch: float) -> bool:
    """Whether the labels of columns fit without being turned."""
    return widest(texts, SIZE) <= 0.9 * pitch


def _foot(texts: Sequence[str], pitch: float) -> float:
    """The height of the labels of columns, in inches."""
    if _lies(texts, pitch):
        return 0.16
    size, step = thinned(pitch)
    return min(LONGEST, widest(texts[::step], size)) + 0.04


def _label_columns(axes: Axes, texts: Sequence[str], pitch: float, square: bool) -> None:
    flat = _lies(texts, pitch)
    size, step = (SIZE, 1) if flat else thinned(pitch)
    labels = [cut(text, size, LONGEST) for text in texts[::step]]
    turned: dict[str, Any] = {} if flat else {"rotation": 90}
    axes.set_xticks(range(0, len(texts), step), labels, fontsize=size, parse_math=False, **turned)
    axes.tick_params(axis="x", length=1.5 if step > 1 else 0, width=0.4, pad=2)
    if square and text_width(KEYS, SMALL + 1) <= pitch * len(texts):
        axes.set_xlabel(KEYS, fontsize=SMALL + 1, labelpad=1)


def _label_rows(axes: Axes, texts: Sequence[str], pitch: float, name: str) -> None:
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    axes.tick_params(axis="y", length=1.5 if step > 1 else 0, width=0.4, pad=2)
    if name and text_width(name, SMALL + 1) <= pitch * len(texts):
        axes.set_ylabel(name, fontsize=SMALL + 1, labelpad=2.5)
