"""Heat maps: methods by tokens, one layer, layers by tokens, all layers, heads; as panels beside and below each other
with one colour scale, labelled at the left and at the bottom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...base.errors import InputError, printable
from ...scoring.aggregate import find
from ...types import Result
from ..colors import LIGHT
from ..page_entry import query_of
from ..tokens import MASKS, shown
from .layout import (
    AXES,
    BETWEEN,
    GAP,
    LINE,
    MOST_HIGH,
    SIZE,
    Options,
    axes_at,
    broken,
    cut,
    size_of,
    text_width,
    thinned,
    title_height,
    widest,
    write_head,
    write_title,
)
from .legend import Colours, colours_of, hatch, legend, legend_below, thin_spines, upright_width, write_numbers
from .picture import Picture
from .word_matrix import draw_word_matrix
from .wording import array_of, is_share, meaning_of, researcher_name, score_name, target_of, title_of

KEYS = "taken from (key)"
QUERIES = "position (query)"
LONGEST = 0.85  # inches of a label below a column
BELOW = 0.5  # inches of a colour bar below the panels
HATCHED = 0.05  # of the largest score: cells against that are at least as strong are hatched
MOST_HATCHED = 4_000  # cells of a panel
Panel = tuple[NDArray[np.float64], str]  # numbers [row column], and what stands above them


# --- what is drawn ----------------------------------------------------------------------------------------------------


def draw_rows(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """Methods as rows, tokens as columns: methods with scores below 0 first, a line between them and the others.
    Results of one method stay in their order: they are layers, or targets, whose scores happen to have no minus."""
    scale, split, order = options.scale or "own", None, list(range(len(results)))
    signed = [bool((result.scores < 0).any()) for result in results]
    one_method = len({result.method for result in results}) == 1
    if any(signed) and not all(signed) and not one_method:
        order, split = sorted(order, key=lambda number: not signed[number]), sum(signed)
    results, names = [results[number] for number in order], [names[number] for number in order]
    first = results[0]
    if one_method:  # its rows name the layers
        info = {key: value for key, value in first.info.items() if key not in ("layer", "at_layer")}
        title = title_of(replace(first, info=info))
    else:
        explained = {score_name(one.info): None for one in results if one.info.get("target") is not None}
        places = {f"at {shown(one.info['query_token'])}": None for one in results if "query_token" in one.info}
        title = printable(" · ".join([*explained, *list(places)[:1]]))
    values = _by_row(np.stack([array_of(result) for result in results]), scale)
    labels = [printable(researcher_name(name)) for name in names]
    return _draw([(values, "")], scale, options, options.title_or(title), results, labels, "", split)


def draw_matrices(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """One layer of each map: what each position (row) took from each token (column). One alone on a page of its own has
    words as rows and columns, where words are known."""
    layer = _checked_layer(options.layer, results)
    places = [f"layer {layer % len(result.scores) + 1}" for result in results]
    if len(results) == 1:
        title = options.title_or(title_of(results[0], places[0]))
        if results[0].words is not None and options.ax is None:
            return draw_word_matrix(results[0], layer, title, options)
        return _draw([(array_of(results[0])[layer], "")], "all", options, title, results)
    scale = options.scale or _usual_scale(results)
    panels = []
    for result, name, place in zip(results, names, places, strict=True):
        values = array_of(result)[layer]
        largest = np.abs(values).max() or 1.0
        panels.append((values if scale == "all" else values / largest, _head(result, name, place)))
    return _draw(panels, scale, options, options.title_or(""), results)


def draw_layers(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """Rows layers, columns tokens: what one position is made of after each layer."""
    first, several = results[0], len(results) > 1
    masks = [at for at, token in enumerate(first.tokens) if token in MASKS]
    if options.query is None and len(masks) > 1:
        raise InputError(f"there are {len(masks)} mask tokens, at {masks}. Say which one: query=INDEX.")
    usual = query_of([replace(first, info={**first.info, "query": None})])
    place = usual if options.query is None else find(first.tokens, options.query)
    if len({len(result.scores) for result in results}) > 1:
        raise InputError("these maps have different numbers of layers, so they cannot share one axis.")
    scale = options.scale or _usual_scale(results)
    panels = [
        (_by_row(array_of(result)[:, place], scale), _head(result, name) if several else "")
        for result, name in zip(results, names, strict=True)
    ]
    at = f"at {shown(first.tokens[place])}"
    title = options.title_or(at if several else title_of(first, at))
    rows = [str(number + 1) for number in range(len(first.scores))]
    return _draw(panels, scale, options, title, results, rows, "layer")


def draw_grid(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """A map for every layer."""
    panels = [(values, f"layer {number + 1}") for number, values in enumerate(array_of(results[0]))]
    title = options.title_or(title_of(results[0], f"layers 1 to {len(panels)}"))
    return _draw(panels, "all", options, title, results)


def draw_heads(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """A map for every head of one layer, on one scale, each named by what it does most."""
    one = results[0].layer(_checked_layer(options.layer, results))
    heads = [f"{role.head + 1} · {role.name} · {100 * role.share:.0f} %" for role in one.roles()]
    panels = list(zip(array_of(one)[0], heads, strict=True))
    title = options.title_or(title_of(one, f"heads of layer {one.info['layer'] + 1}"))
    return _draw(panels, "all", options, title, results)


def _head(result: Result, name: str, *more: str) -> str:
    """What stands above one of several maps."""
    return f"{researcher_name(name)} · {title_of(result, *more, method=False)}".removesuffix(" · ")


def _checked_layer(layer: Any, results: Sequence[Result]) -> int:
    """The layer, by default the last; one that a map does not have is refused: the message names those of the first
    map."""
    layer = -1 if layer is None else layer
    first, least = len(results[0].scores), min(len(result.scores) for result in results)
    if isinstance(layer, bool) or not isinstance(layer, int) or not -least <= layer < least:
        raise InputError(f"layer {layer!r} is out of range: the map has {first} layers, 0 to {first - 1}.")
    return layer


def _usual_scale(results: Sequence[Result]) -> str:
    """Shares can be compared; scores of other units, or that grow from layer to layer, cannot."""
    return "all" if meaning_of(results, False) == "share" else "own"


def _by_row(values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Rows as they are, or each row divided by its largest magnitude."""
    largest = np.abs(values).max(-1, keepdims=True)
    return values if scale == "all" else values / np.where(largest > 0, largest, 1.0)


# --- a sheet of panels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """Panels with the same rows and columns, and where everything goes, in inches."""

    panels: Sequence[Panel]
    columns: Sequence[str]  # labels
    rows: Sequence[str]  # labels
    row_name: str
    square: bool  # rows and columns are the same tokens
    colours: Colours
    meaning: str
    second: Colours | None  # of the rows from `split` on: scores without a sign, below those that have one
    split: int
    width: float
    above: float = 0.0  # the height of the title
    right: float = GAP  # what stays free at the right

    @cached_property
    def label(self) -> float:
        """The width of the labels of rows."""
        return min(0.3 * self.width, widest(self.rows, SIZE))

    @cached_property
    def left(self) -> float:
        """The left edge of the first panel."""
        return GAP + self.label + 0.06 + (0.17 if self.row_name else 0.0)

    @cached_property
    def beside(self) -> int:
        """How many panels stand beside each other: as many as fit, spread evenly over the rows of panels."""
        count, least = len(self.panels), 0.95 if self.square else 1.9
        most = min(count, max(1, int((self.width - self.left - self.right + BETWEEN) / least)))
        return math.ceil(count / math.ceil(count / most))

    @cached_property
    def down(self) -> int:
        """How many rows of panels there are."""
        return math.ceil(len(self.panels) / self.beside)

    @cached_property
    def pitch(self) -> float:
        """The width of a cell; few tokens do not make large cells."""
        room = (self.width - self.left - self.right - BETWEEN * (self.beside - 1)) / self.beside
        return min(room / len(self.columns), 0.42 if self.square else 0.6)

    @cached_property
    def row(self) -> float:
        """The height of a cell."""
        return self.pitch if self.square else max(0.14, min(0.18, (MOST_HIGH - 1.5) / len(self.rows) / self.down))

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of a panel."""
        return self.pitch * len(self.columns), self.row * len(self.rows)

    @cached_property
    def heads(self) -> list[list[str]]:
        """The lines above each panel."""
        return [broken(printable(head), AXES, self.size[0]) for _, head in self.panels]

    @cached_property
    def head(self) -> float:
        """The height of the lines above a panel."""
        return max(map(len, self.heads)) * AXES * LINE / 72 + (0.03 if any(self.heads) else 0.0)

    @property
    def whole(self) -> float:
        """The height of all panels, without the lines above the first and the labels below the last."""
        return (self.down - 1) * (self.head + self.size[1] + GAP) + self.size[1]

    @property
    def lies(self) -> bool:
        """Whether the labels of columns fit without being turned."""
        return _lies(self.columns, self.pitch)

    @cached_property
    def foot(self) -> float:
        """The height of the labels of columns, and of what they are."""
        size, step = thinned(self.pitch)
        labels = 0.16 if self.lies else min(LONGEST, widest(self.columns[::step], size)) + 0.04
        return labels + (0.16 if self.square else 0.0)


def _lies(texts: Sequence[str], pitch: float) -> bool:
    return widest(texts, SIZE) <= 0.9 * pitch


def _draw(
    panels: Sequence[Panel],
    scale: str,
    options: Options,
    title: str,
    results: Sequence[Result],
    rows: Sequence[str] | None = None,
    row_name: str = QUERIES,
    split: int | None = None,
) -> Any:
    """The panels on a new page, or the one panel on the user's axes. `scale`: whether values were divided by the
    largest ("own"). Without `rows` the rows are the tokens. From row `split` on, scores have no sign: they have colours
    of their own."""
    columns, square = [shown(token) for token in results[0].tokens], rows is None
    values = [array for array, _ in panels]
    end = None
    if square:  # what tokens keep is often far larger than what they give, and would leave all else white
        end = max(float(np.abs(array - np.diag(np.diag(array))).max()) for array in values) or None
    signed = [result for result in results if bool((result.scores < 0).any())] or results
    percent = scale == "own" or all(map(is_share, results))
    style: dict[str, Any] = {"text": bool(options.numbers), "percent": percent, "target": target_of(signed)}
    colours = colours_of(values, options.vmax or end, **style)
    second = None if split is None else colours_of([array[split:] for array in values], options.vmax, **style)
    meaning = meaning_of(results, colours.signed, scale, "map" if square else "row")
    names, lines = columns if rows is None else rows, broken(title, SIZE, options.room)
    facts = (panels, columns, names, row_name, square, colours, meaning, second, split or 0, options.width)
    if options.ax is not None:
        return _on_axes(Sheet(*facts), options.ax, options, title)
    above = GAP + title_height(lines)
    sheet = Sheet(*facts, above, upright_width(colours) if options.colorbar else GAP)
    upright = square and sheet.whole >= text_width(meaning, AXES)  # beside square panels that are high enough
    sheet = sheet if upright else replace(sheet, right=GAP)
    below = BELOW if options.colorbar and not upright else 0.0
    high = above + sheet.head + sheet.whole + sheet.foot
    page = Picture(figsize=(options.width, high + below + GAP))
    write_title(page, lines)
    (wide, tall), top = sheet.size, above + sheet.head
    for number, panel in enumerate(panels):
        row, column = divmod(number, sheet.beside)
        left = sheet.left + column * (wide + BETWEEN)
        axes = axes_at(page, left, top + row * (sheet.head + tall + GAP), wide, tall)
        _draw_panel(axes, sheet, panel[0], sheet.pitch, sheet.row, options.numbers)
        if sheet.heads[number]:
            write_head(axes, "\n".join(sheet.heads[number]), size=AXES, pad=2.5)
        if number + sheet.beside >= len(panels):
            _label_columns(axes, sheet, sheet.pitch)
        if column == 0:
            _label_rows(axes, [cut(text, SIZE, sheet.label) for text in names], sheet.row, row_name)
    if options.colorbar and upright:
        right = sheet.left + sheet.beside * (wide + BETWEEN) - 0.02
        legend(axes_at(page, right, top, 0.08, min(1.5, sheet.whole)), colours, meaning, upright=True)
    elif options.colorbar:
        room = (options.width - sheet.left - GAP) / (1 if second is None else 2)
        legend_below(page, sheet.left, high + 0.04, room, colours, meaning)
        if second is not None:
            legend_below(page, sheet.left + room, high + 0.04, room, second, f"no sign, {meaning}")
    return page


def _on_axes(sheet: Sheet, axes: Axes, options: Options, title: str) -> Any:
    """The first panel on the user's axes."""
    wide, high = size_of(axes)
    pitch, row = wide / len(sheet.columns), high / len(sheet.rows)  # of a cell
    _draw_panel(axes, sheet, sheet.panels[0][0], pitch, row, options.numbers)
    _label_columns(axes, sheet, pitch)
    _label_rows(axes, sheet.rows, row, sheet.row_name)
    write_head(axes, "\n".join(broken(title, SIZE, wide)))
    if options.colorbar:
        legend(axes.inset_axes((1.03, 0.0, 0.04, 1.0)), sheet.colours, sheet.meaning, upright=True)
    return axes.figure


# --- one panel --------------------------------------------------------------------------------------------------------


def _draw_panel(
    axes: Axes, sheet: Sheet, values: NDArray[np.float64], wide: float, high: float, numbers: bool | None
) -> None:
    """The cells of one heat map, `wide` and `high` in inches; with `numbers` the scores in them, else those against
    hatched. White lines between rows that are no tokens, and a dark one above those without signs."""
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
    axes.imshow(values, cmap=sheet.colours.cmap, norm=sheet.colours.norm, **style)
    if sheet.second is not None:
        below = np.ma.masked_array(values, np.arange(len(values))[:, None] < sheet.split + 0 * values)
        axes.imshow(below, cmap=sheet.second.cmap, norm=sheet.second.norm, **style)
    axes.set(xticks=[], yticks=[])
    thin_spines(axes)
    for row in range(1, 0 if sheet.square else len(values)):
        divides = row == sheet.split
        axes.axhline(row - 0.5, color=LIGHT["ink" if divides else "surface"], linewidth=1.0 if divides else 0.8)
    if numbers:
        write_numbers(axes, values, sheet.colours, wide, high)
    elif sheet.colours.signed and values.size <= MOST_HATCHED:
        for row, column in np.argwhere(values <= -HATCHED * sheet.colours.end):
            hatch(axes, (column - 0.5, row - 0.5), 1, 1)


def _label_columns(axes: Axes, sheet: Sheet, pitch: float) -> None:
    """The labels below columns that are `pitch` inches apart, turned where they do not fit."""
    texts, (size, step) = sheet.columns, thinned(pitch)
    turned: dict[str, Any] = {"rotation": 90}
    if _lies(texts, pitch):
        size, step, turned = SIZE, 1, {}
    labels = [cut(text, size, LONGEST) for text in texts[::step]]
    axes.set_xticks(range(0, len(texts), step), labels, fontsize=size, parse_math=False, **turned)
    axes.tick_params(axis="x", length=1.5 if step > 1 else 0, width=0.4, pad=2)  # ticks where some share one label
    if sheet.square and text_width(KEYS, AXES) <= pitch * len(texts):
        axes.set_xlabel(KEYS, fontsize=AXES, labelpad=1)


def _label_rows(axes: Axes, texts: Sequence[str], pitch: float, name: str) -> None:
    """The labels of rows that are `pitch` inches apart, and what the rows are."""
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    axes.tick_params(axis="y", length=1.5 if step > 1 else 0, width=0.4, pad=2)
    if name and text_width(name, AXES) <= pitch * len(texts):
        axes.set_ylabel(name, fontsize=AXES, labelpad=2.5)
