"""A map of one layer as a paper figure with words as rows and columns: rows took, columns gave.

Pieces of a word are summed where they gave and averaged where they took, as `Map.by_word` does; words that have no room side by
side are grouped in the same way, by sentences. Special tokens are narrow hatched columns outside the scale, the answer's row is
framed, brackets group the two texts of a pair, or the pieces of a word where `pieces` are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...base.errors import InputError
from ...base.text import THIN
from ...base.words import Word, words_in
from ...types import Map
from ..colors import LIGHT
from ..flow_numbers import membership
from ..page_entry import is_answer, query_of
from ..tokens import MASKS, shown
from .brackets import Bracket, across, along, source_brackets
from .layout import (
    AXES,
    GAP,
    SMALL,
    WIDTHS,
    axes_at,
    broken,
    cut,
    cut_between_words,
    put,
    text_width,
    title_height,
    widest,
    write_title,
)
from .legend import Colours, colours_of, legend_below, meaning_lines
from .notes import Note, note_height, wrapped, write_notes
from .numbers import write_numbers
from .options import Options
from .picture import Picture
from .word_units import Units, pieces_as_units, words_as_units
from .wording import array_of, is_share, meaning_of, target_of

LEAST, MOST = 0.112, 0.24  # inches of a cell
TIGHT = 0.085  # inches of a cell beside which a name can be read
MOST_NUMBER = 0.34  # inches of a cell with a number in it
APART = 0.1  # inches of a column of a special token
LONGEST = 0.8  # inches of a word beside or above its cells
LONGEST_TEXT = 1.7  # inches of the beginning of a sentence beside its cells
CUT = 0.99  # of all cells: where a few are far larger, the scale ends here
BESIDE = 0.21  # inches of "took" before the names, and of the gap behind them
AROUND = 0.6  # inches of what stands beside the names and the cells
BRACKET = 0.19  # inches of a bracket with its name
PIECES = 0.07  # inches of a bracket without a name
LEGEND = 0.36  # inches of the colour bar, its numbers and its unit, on one line
LINE = 0.12  # inches of one more line of the unit
HATCH = "//////"


def draw_word_matrix(scores: Map, layer: int, title: str, options: Options) -> Picture:
    """One layer of a map on a new page."""
    words = words_in(scores)
    place = query_of([scores])
    most = _most(words, options.width)
    units = pieces_as_units(scores, words, place) if options.pieces else words_as_units(scores, words, place, most)
    _refuse_one_group(units, len(words), options.width)
    below = "the input" if scores.info.get("rollout") or layer % len(scores.scores) == 0 else "the layer below"
    drawing = Drawing(scores, units, array_of(scores)[layer], below, title, options)
    if options.pieces and drawing.cell < TIGHT:
        raise InputError(
            f"{len(units.units)} pieces have no room side by side. Give a larger width=, or leave pieces out."
        )
    return drawing.draw()


def _refuse_one_group(units: Units, words: int, width: float) -> None:
    """Refuse a matrix that would be one cell: a text of one short sentence whose words have no room."""
    if units.noun in ("sentences", "parts") and sum(not unit.mark for unit in units.units) < 2:
        raise InputError(f"{words} words have no room side by side in {width:g} inches. Give a larger width=.")


def _most(words: Sequence[Word], width: float) -> int:
    """How many columns have room: all words, or fewer groups of them, because the text of a group stands beside its row."""
    names = [cut(shown(word.text), SMALL, LONGEST) for word in words]
    most = int((width - widest(names, SMALL) - AROUND) / LEAST)
    if len(words) <= most or _fit(words, names, width):
        return len(words)
    return max(4, int((width - _longest_text(width) - AROUND) / LEAST) - 2)


def _fit(words: Sequence[Word], names: Sequence[str], width: float) -> bool:
    """Whether all words have room, with nothing to spare: special tokens are narrow, and a pair has brackets."""
    marks = sum(word.special and word.text not in MASKS for word in words)
    brackets = BRACKET if source_brackets(words) else 0.0
    room = width - 2 * GAP - BESIDE - 1.04 * widest(names, SMALL) - brackets - APART * marks
    return LEAST * (len(words) - marks) <= room


def _longest_text(width: float) -> float:
    """Inches of the beginning of a sentence beside its row."""
    return min(LONGEST_TEXT, 0.4 * width)


@dataclass(frozen=True)
class Drawing:
    """A figure of one matrix. All lengths are inches, from the upper left corner of the page."""

    scores: Map
    rows: Units
    layer: NDArray[np.float64]
    below: str  # where the columns are: the input, or the layer below
    title: str
    options: Options

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """[row column]: summed over what gave, averaged over what took."""
        belongs = membership([unit.tokens for unit in self.rows.units], len(self.scores.tokens))
        return (belongs / belongs.sum(0)).T @ self.layer @ belongs

    @cached_property
    def marks(self) -> NDArray[np.bool_]:
        return np.array([unit.mark for unit in self.rows.units])

    @property
    def grouped(self) -> bool:
        return self.rows.noun in ("sentences", "parts")

    # - places

    @cached_property
    def labels(self) -> list[str]:
        if not self.grouped:
            return [cut(unit.label, self.size, LONGEST) for unit in self.rows.units]
        longest = _longest_text(self.options.width)
        return [cut_between_words(unit.label, self.size, longest) for unit in self.rows.units]

    @cached_property
    def heads(self) -> list[str]:
        return [cut(unit.name, self.size, LONGEST) for unit in self.rows.units]

    @property
    def size(self) -> float:
        """The font size of names."""
        return SMALL

    @cached_property
    def left(self) -> float:
        return GAP + BESIDE + 1.04 * widest(self.labels, self.size)

    @cached_property
    def right(self) -> float:
        """The room for brackets beside the rows."""
        return GAP + (BRACKET if self.rows.brackets else 0.0) + (PIECES if self.rows.pieces else 0.0)

    @cached_property
    def cell(self) -> float:
        room = self.options.width - self.left - self.right
        if self.options.numbers:
            return min(max(MOST_NUMBER, self._most), room / len(self.marks))
        return min(self._most, (room - APART * int(self.marks.sum())) / max(1, int((~self.marks).sum())))

    @property
    def _most(self) -> float:
        """The widest cell: a page that is wider than a column has wider cells, so that it is filled."""
        return MOST * max(1.0, self.options.width / WIDTHS["single"]) ** 2

    @property
    def row(self) -> float:
        """The height of a row: that of a square cell, but no higher than on a narrow page."""
        return min(self.cell, MOST_NUMBER if self.options.numbers else MOST)

    @property
    def apart(self) -> float:
        """The width of a special token's column: with numbers as wide as any."""
        return self.cell if self.options.numbers else APART

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Where columns begin and end, from the first."""
        return np.concatenate([[0.0], np.cumsum(np.where(self.marks, self.apart, self.cell))])

    def down(self, row: float) -> float:
        """The upper edge of a row."""
        return self.top + row * self.row

    @cached_property
    def lines(self) -> list[str]:
        return broken(self.title, 8.0, self.options.width - 2 * GAP)

    @cached_property
    def top(self) -> float:
        """The upper edge of the cells."""
        brackets = (BRACKET if self.rows.brackets else 0.0) + (PIECES if self.rows.pieces else 0.0)
        return GAP + title_height(self.lines) + 0.15 + brackets + 1.04 * widest(self.heads, self.size) + 0.06

    @property
    def bottom(self) -> float:
        return self.down(len(self.rows.units))

    # - the scale

    @cached_property
    def colours(self) -> Colours:
        kept = self.values[:, ~self.marks]
        style: dict[str, Any] = {"percent": is_share(self.scores), "target": target_of([self.scores])}
        style["text"] = bool(self.options.numbers)
        return colours_of([kept], self.options.vmax or self._end(), **style)

    def _end(self) -> float | None:
        """The largest cell off the diagonal and off the marks; where a few are far larger, what almost all stay under."""
        others = ~np.eye(len(self.values), dtype=bool) & ~self.marks
        sizes = np.abs(self.values[others])
        if not sizes.size:
            return None
        most, usual = float(sizes.max()), float(np.quantile(sizes, CUT))
        return (usual if 0 < usual < most / 2 else most) or None

    @property
    def unit(self) -> str:
        if is_share(self.scores) and not self.colours.signed:
            return f"percent of the row; every row adds up to 100{THIN}%"
        return meaning_of([self.scores], self.colours.signed)

    @cached_property
    def notes(self) -> list[Note]:
        notes = [Note(self._framed, LIGHT["surface"], 0.2, frame=True)]
        if self.marks.any():
            notes.append(Note("special tokens, outside the scale", LIGHT["sunk"], 0.2, hatch=self._mark_hatch))
        if self.rows.pieces:
            notes.append(Note("brackets: pieces of one word"))
        return [*notes, *self._averaged]

    @property
    def _framed(self) -> str:
        """What the framed row is."""
        row, place = self.rows.units[self.rows.answer], query_of([self.scores])
        name = cut(f"the row of {row.title}", SMALL, self.options.width - 2 * GAP - 0.3)
        if not is_answer(self.scores, place):
            return name
        return "the answer’s row" if row.tokens == (place,) else f"{name}, where the answer is read"

    @property
    def _averaged(self) -> list[Note]:
        if self.grouped:
            return [Note(f"rows and columns are {self.rows.noun}: columns are sums over words, rows their averages")]
        return []

    # - drawing

    @property
    def _legend(self) -> float:
        """The height of the colour bar with its numbers and its unit."""
        return LEGEND + LINE * (len(self._unit_lines) - 1)

    @cached_property
    def _unit_lines(self) -> list[str]:
        return meaning_lines(self.unit, self.options.width - 2 * GAP)

    def draw(self) -> Picture:
        bar = self._legend if self.options.colorbar else 0.0
        rows = wrapped(self.notes, self.options.width - 2 * GAP)
        page = Picture(figsize=(self.options.width, self.bottom + 0.08 + bar + note_height(rows) + GAP))
        write_title(page, self.lines)
        axes = axes_at(page, 0, 0, self.options.width, self.bottom + 0.02)
        axes.set(xlim=(0, self.options.width), ylim=(self.bottom + 0.02, 0))
        axes.axis("off")
        self._draw_cells(axes)
        self._write_names(axes)
        self._write_axes(axes)
        self._draw_brackets(axes)
        if self.options.colorbar:
            room, unit = self.options.width - 2 * GAP, "\n".join(self._unit_lines)
            legend_below(page, GAP, self.bottom + 0.08, room, self.colours, unit)
        write_notes(page, rows, GAP, self.bottom + 0.08 + bar)
        return page

    def _draw_cells(self, axes: Axes) -> None:
        style: dict[str, Any] = {
            "cmap": self.colours.cmap,
            "norm": self.colours.norm,
            "edgecolor": "white",
            "linewidth": 0.4,
        }
        rows = self.top + self.row * np.arange(len(self.rows.units) + 1)
        axes.pcolormesh(self.left + self.edges, rows, self.values, **style)
        for place in np.flatnonzero(self.marks):
            box = (self.left + self.edges[place], self.top), self.apart, self.bottom - self.top
            style = {"edgecolor": LIGHT["edge"], "hatch": self._mark_hatch or None, "linewidth": 0}
            axes.add_patch(Rectangle(*box, facecolor=LIGHT["sunk"], **style))
        if self.options.numbers:
            self._write_numbers(axes)
        elif self.colours.signed:
            self._hatch(axes)
        corner, whole = (self.left, self.down(self.rows.answer)), float(self.edges[-1])
        axes.add_patch(Rectangle(corner, whole, self.row, fill=False, edgecolor=LIGHT["ink"], linewidth=0.8, zorder=5))

    @property
    def _mark_hatch(self) -> str:
        """The hatch of special tokens; numbers could not be read on it."""
        return "" if self.options.numbers else HATCH

    def _write_numbers(self, axes: Axes) -> None:
        columns = self.left + (self.edges[:-1] + self.edges[1:]) / 2
        rows = [self.down(row + 0.5) for row in range(len(self.values))]
        write_numbers(axes, self.values, self.colours, self.cell, self.row, middles=(columns.tolist(), rows))

    def _hatch(self, axes: Axes) -> None:
        """Cells against are hatched, so that the sign is there without colour."""
        for row, column in np.argwhere((self.values <= -0.05 * self.colours.end) & ~self.marks):
            wide = float(np.diff(self.edges)[column])
            corner = (self.left + float(self.edges[column]), self.down(row))
            axes.add_patch(
                Rectangle(corner, wide, self.row, fill=False, hatch="/////", edgecolor=LIGHT["surface"], linewidth=0)
            )

    def _write_names(self, axes: Axes) -> None:
        middles = (self.edges[:-1] + self.edges[1:]) / 2
        for place, middle in enumerate(middles.tolist()):
            style = {"color": LIGHT["soft"], "style": "italic"} if self.marks[place] else {}
            row = {"ha": "right", "va": "center_baseline", "fontsize": self.size, **style}
            put(axes, self.left - 0.05, self.down(place + 0.5), self.labels[place], **row)
            head = {"ha": "center", "va": "bottom", "rotation": 90, "fontsize": self.size, **style}
            put(axes, self.left + middle, self.top - 0.05, self.heads[place], **head)

    def _write_axes(self, axes: Axes) -> None:
        """What rows and columns are: who gave, and who took."""
        room, short = self.options.width - self.left - GAP, f"gave: {self.rows.noun}"
        whole = f"{short} of {self.below}"
        gave = whole if text_width(whole, AXES) <= room else cut(short, AXES, room)
        y = GAP + title_height(self.lines) + 0.1
        put(axes, self.left, y, gave, fontsize=AXES, va="baseline", color=LIGHT["soft"])
        middle = (self.top + self.bottom) / 2
        put(axes, GAP, middle, "took", fontsize=AXES, rotation=90, va="center", ha="left", color=LIGHT["soft"])

    def _draw_brackets(self, axes: Axes) -> None:
        above = self.top - 0.06 - 1.04 * widest(self.heads, self.size) - 0.02
        beside = self.left + float(self.edges[-1]) + 0.05
        for bracket in self.rows.pieces:
            start, stop = self._span(bracket)
            across(axes, self.left + start, self.left + stop, above - 0.01, "", upward=False)
            along(axes, *self._rows_of(bracket), beside + 0.02, "")
        step = PIECES if self.rows.pieces else 0.0
        for bracket in self.rows.brackets:
            start, stop = self._span(bracket)
            across(axes, self.left + start, self.left + stop, above - step - 0.01, bracket.name, upward=False)
            along(axes, *self._rows_of(bracket), beside + 0.02 + step, bracket.name)

    def _rows_of(self, bracket: Bracket) -> tuple[float, float]:
        return self.down(bracket.start) + 0.015, self.down(bracket.stop) - 0.015

    def _span(self, bracket: Bracket) -> tuple[float, float]:
        return float(self.edges[bracket.start]) + 0.015, float(self.edges[bracket.stop]) - 0.015
