"""Sheets of heat maps: panels beside and below each other with one colour scale, labelled at the left and at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...types import Result
from ..colors import LIGHT
from ..tokens import shown
from .layout import (
    AXES,
    BETWEEN,
    GAP,
    SIZE,
    axes_at,
    broken,
    cut,
    size_of,
    text_width,
    thinned,
    title_height,
    write_head,
    write_title,
)
from .legend import Colours, colours_of, legend, legend_below, thin_spines
from .numbers import write_numbers
from .options import Options
from .picture import Picture
from .sheets import LONGEST, Panel, Places, Sheet, arranged, lies
from .wording import is_share, meaning_of, target_of

TURNED: dict[str, Any] = {"rotation": 90}  # labels of columns that are too wide to lie
KEYS = "taken from (key)"
QUERIES = "position (query)"
BELOW = 0.5  # inches of a colour bar below the panels
HATCHED = 0.05  # of the largest score: cells against that are at least as strong are hatched
MOST_HATCHED = 4_000  # cells of a panel


def draw_heat(
    panels: Sequence[Panel],
    scale: str,
    options: Options,
    title: str,
    *,
    results: Sequence[Result],
    rows: Sequence[str] | None = None,
    row_name: str = QUERIES,
    split: int | None = None,
) -> Any:
    """The panels on a new page, or the one panel on the user's axes. Without `rows` the rows are the tokens. From row `split` on,
    scores have no sign: they have colours of their own."""
    columns = [shown(token) for token in results[0].tokens]
    percent = scale == "own" or all(map(is_share, results))
    values = [panel.values for panel in panels]
    style: dict[str, Any] = {"text": bool(options.numbers), "percent": percent, "target": target_of(_signed(results))}
    colours = colours_of(values, options.vmax or _end(values, square=rows is None), **style)
    second = None if split is None else colours_of([panel.values[split:] for panel in panels], options.vmax, **style)
    meaning = meaning_of(results, colours.signed, scale, "map" if rows is None else "row")
    names = columns if rows is None else rows
    sheet = Sheet(panels, columns, names, row_name, rows is None, colours, meaning, second, split or 0)
    return _on_page(sheet, options, title) if options.ax is None else _on_axes(sheet, options.ax, options, title)


def _end(values: Sequence[NDArray[np.float64]], *, square: bool) -> float | None:
    """The end of the colours of maps: the largest score that a token gave another. What tokens keep is often far larger, and
    would leave all else white. None where no token gave another anything, or rows are no tokens."""
    if not square:
        return None
    return max(float(np.abs(array - np.diag(np.diag(array))).max()) for array in values) or None


def _signed(results: Sequence[Result]) -> list[Result]:
    """The results with scores below 0; all where none has."""
    return [result for result in results if bool((result.scores < 0).any())] or list(results)


def _on_axes(sheet: Sheet, axes: Axes, options: Options, title: str) -> Any:
    """The first panel on the user's axes."""
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    wide, high = float(box.width / len(sheet.columns)) / dpi, float(box.height / len(sheet.rows)) / dpi  # of a cell
    _draw_panel(axes, sheet, sheet.panels[0], wide, high, options.numbers)
    _label_columns(axes, sheet.columns, wide, sheet.square)
    _label_rows(axes, sheet.rows, high, sheet.row_name)
    write_head(axes, "\n".join(broken(title, SIZE, size_of(axes)[0])))
    if options.colorbar:
        legend(axes.inset_axes((1.03, 0.0, 0.04, 1.0)), sheet.colours, sheet.meaning, upright=True)
    return axes.figure


def _on_page(sheet: Sheet, options: Options, title: str) -> Picture:
    """All panels on a new page."""
    lines = broken(title, SIZE, options.width - 2 * GAP)
    places, upright = arranged(sheet, options, GAP + title_height(lines))
    below = BELOW if options.colorbar and not upright else 0.0
    page = Picture(figsize=(options.width, places.above + places.head + places.whole + places.foot + below + GAP))
    write_title(page, lines)
    for number in range(len(sheet.panels)):
        _place_panel(page, places, number, options.numbers)
    if options.colorbar:
        _place_legend(page, places, upright)
    return page


def _place_panel(page: Picture, places: Places, number: int, numbers: bool | None) -> None:
    """One panel on axes of its own, with the labels of the panels at the left and at the bottom."""
    sheet = places.sheet
    axes = axes_at(page, *places.corner(number), places.wide, places.high)
    _draw_panel(axes, sheet, sheet.panels[number], places.pitch, places.row, numbers)
    if places.heads[number]:
        write_head(axes, "\n".join(places.heads[number]), size=AXES, pad=2.5)
    if number + places.beside >= len(sheet.panels):
        _label_columns(axes, sheet.columns, places.pitch, sheet.square)
    if number % places.beside == 0:
        _label_rows(axes, [cut(text, SIZE, places.label) for text in sheet.rows], places.row, sheet.row_name)


def _place_legend(page: Picture, places: Places, upright: bool) -> None:
    """The colour bar, upright beside the panels or lying below them."""
    place = _place_legend_right if upright else _place_legend_below
    place(page, places)


def _place_legend_right(page: Picture, places: Places) -> None:
    right = places.left + places.beside * (places.wide + BETWEEN) - 0.02
    axes = axes_at(page, right, places.above + places.head, 0.08, min(1.5, places.whole))
    legend(axes, places.sheet.colours, places.sheet.meaning, upright=True)


def _place_legend_below(page: Picture, places: Places) -> None:
    top, sheet = places.above + places.head + places.whole + places.foot + 0.04, places.sheet
    room = places.width - places.left - GAP
    if sheet.second is None:
        legend_below(page, places.left, top, room, sheet.colours, sheet.meaning)
        return
    legend_below(page, places.left, top, room / 2, sheet.colours, sheet.meaning)
    legend_below(page, places.left + room / 2, top, room / 2, sheet.second, f"no sign, {sheet.meaning}")


# --- one panel --------------------------------------------------------------------------------------------------------


def _draw_panel(axes: Axes, sheet: Sheet, panel: Panel, wide: float, high: float, numbers: bool | None) -> None:
    """The cells of one heat map, `wide` and `high` in inches; with `numbers` the scores in them."""
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
    axes.imshow(panel.values, cmap=sheet.colours.cmap, norm=sheet.colours.norm, **style)
    if sheet.second is not None:
        below = np.ma.masked_array(panel.values, np.arange(len(panel.values))[:, None] < sheet.split + 0 * panel.values)
        axes.imshow(below, cmap=sheet.second.cmap, norm=sheet.second.norm, **style)
    axes.set_xticks([])
    axes.set_yticks([])
    thin_spines(axes)
    if not sheet.square:
        _draw_lines(axes, len(panel.values), sheet.split)
    if numbers:
        write_numbers(axes, panel.values, sheet.colours, wide, high)
    elif sheet.colours.signed and panel.values.size <= MOST_HATCHED:
        _hatch(axes, panel.values, sheet.colours)


def _hatch(axes: Axes, values: NDArray[np.float64], colours: Colours) -> None:
    """Cells against are hatched, so that the sign is there without colour."""
    for row, column in np.argwhere(values <= -HATCHED * colours.end):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="/////", edgecolor=LIGHT["surface"], linewidth=0))


def _draw_lines(axes: Axes, rows: int, split: int) -> None:
    """White lines between the rows; a dark one above those without signs."""
    for row in range(1, rows):
        divides = row == split
        axes.axhline(row - 0.5, color=LIGHT["ink" if divides else "surface"], linewidth=1.0 if divides else 0.8)


# --- labels -----------------------------------------------------------------------------------------------------------


def _label_columns(axes: Axes, texts: Sequence[str], pitch: float, square: bool) -> None:
    """The labels below columns that are `pitch` inches apart, turned where they do not fit."""
    size, step, turned = (SIZE, 1, {}) if lies(texts, pitch) else (*thinned(pitch), TURNED)
    labels = [cut(text, size, LONGEST) for text in texts[::step]]
    axes.set_xticks(range(0, len(texts), step), labels, fontsize=size, parse_math=False, **turned)
    _style_ticks(axes, "x", step)
    if square and _fits(KEYS, pitch * len(texts)):
        axes.set_xlabel(KEYS, fontsize=AXES, labelpad=1)


def _label_rows(axes: Axes, texts: Sequence[str], pitch: float, name: str) -> None:
    """The labels of rows that are `pitch` inches apart, and what the rows are."""
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    _style_ticks(axes, "y", step)
    if name and _fits(name, pitch * len(texts)):
        axes.set_ylabel(name, fontsize=AXES, labelpad=2.5)


def _style_ticks(axes: Axes, axis: Literal["x", "y"], step: int) -> None:
    """Ticks are drawn only where several rows share one label."""
    axes.tick_params(axis=axis, length=1.5 if step > 1 else 0, width=0.4, pad=2)


def _fits(name: str, room: float) -> bool:
    """Whether the name of an axis is no longer than the axis, in inches."""
    return text_width(name, AXES) <= room
