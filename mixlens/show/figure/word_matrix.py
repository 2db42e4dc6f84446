"""A map of one layer as a paper figure with words as rows and columns: rows took, columns gave.

Pieces of a word are summed where they gave and averaged where they took, as `Map.by_word` does; words that have no room
side by side are grouped in the same way, by sentences. Special tokens are narrow hatched columns outside the scale, the
answer's row is framed, brackets group the two texts of a pair, or the pieces of a word where `pieces` are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...base.errors import InputError, printable
from ...base.text import THIN
from ...base.words import Word, words_in
from ...types import Map
from ..colors import LIGHT
from ..flow_groups import Group, groups_of, unit_of
from ..flow_numbers import membership
from ..page_entry import is_answer, query_of
from ..tokens import MASKS, shown
from .layout import (
    AXES,
    GAP,
    SMALL,
    WIDTHS,
    Options,
    axes_at,
    broken,
    cut,
    cut_between_words,
    filled,
    put,
    text_width,
    title_height,
    widest,
    write_title,
)
from .legend import (
    Bracket,
    Colours,
    Note,
    across,
    along,
    colours_of,
    hatch,
    legend_below,
    note_height,
    noted,
    source_brackets,
    write_notes,
    write_numbers,
)
from .picture import Picture
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
HIGHER = 1.04  # names on a screen are a little longer than those that are measured
HATCH = "//////"


# --- rows and columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Units:
    """All rows and columns, what they are, which of them the answer is read at, and the brackets beside them."""

    units: Sequence[Group]
    noun: str  # words, sentences, parts, tokens
    answer: int
    brackets: Sequence[Bracket]
    pieces: Sequence[Bracket]


def words_as_units(scores: Map, words: Sequence[Word], place: int, most: int) -> Units:
    """Words as rows and columns; groups of them where there are more than `most`."""
    number = next(number for number, word in enumerate(words) if place in word.tokens)
    groups = groups_of(words, number, causal=bool(scores.info.get("causal")), most=most)
    answer = next(at for at, group in enumerate(groups) if number in group.words)
    return Units(groups, f"{unit_of(groups)}s", answer, source_brackets([one.members[0] for one in groups]), ())


def pieces_as_units(scores: Map, words: Sequence[Word], place: int) -> Units:
    """Every token as a row and a column; brackets over words of several pieces."""
    special, units = scores.special or (False,) * len(scores.tokens), []
    owner = {token: word for word in words for token in word.tokens}
    for at, token in enumerate(scores.tokens):
        name, piece = shown(token), replace(owner[at], text=token, tokens=(at,), special=special[at])
        units.append(Group("word", name, f"“{name}”", (at,), (piece,)))
    brackets = source_brackets([owner[at] for at in range(len(units))])
    pieces = [Bracket(word.tokens[0], word.tokens[-1] + 1) for word in words if len(word.tokens) > 1]
    return Units(units, "tokens", place, brackets, pieces)


def _units(scores: Map, width: float, pieces: bool) -> Units:
    """The rows and columns: pieces, words where all have room, with nothing to spare (special tokens are narrow, a pair
    has brackets), else fewer groups of them, because the text of a group stands beside its row."""
    words, place = words_in(scores), query_of([scores])
    if pieces:
        return pieces_as_units(scores, words, place)
    names = widest([cut(shown(word.text), SMALL, LONGEST) for word in words], SMALL)
    marks = sum(word.special and word.text not in MASKS for word in words)
    room = width - 2 * GAP - BESIDE - HIGHER * names - (BRACKET if source_brackets(words) else 0.0) - APART * marks
    most = int((width - names - AROUND) / LEAST)
    if len(words) <= most or LEAST * (len(words) - marks) <= room:
        return words_as_units(scores, words, place, len(words))
    units = words_as_units(scores, words, place, max(4, int((width - _longest_text(width) - AROUND) / LEAST) - 2))
    if units.noun != "words" and sum(not unit.mark for unit in units.units) < 2:
        raise InputError(f"{len(words)} words have no room side by side in {width:g} inches. Give a larger width=.")
    return units


def _longest_text(width: float) -> float:
    """Inches of the beginning of a sentence beside its row."""
    return min(LONGEST_TEXT, 0.4 * width)


# --- the figure -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What is drawn, and where: `x`, `y` are the edges of columns and rows, in inches from the upper left corner of the
    page."""

    rows: Units
    values: NDArray[np.float64]  # [row column]: summed over what gave, averaged over what took
    marks: NDArray[np.bool_]
    colours: Colours
    x: NDArray[Any]
    y: NDArray[Any]
    labels: Sequence[str]  # beside the rows
    heads: Sequence[str]  # above the columns
    names: float  # the height of these
    numbers: bool

    def middles(self, edges: NDArray[Any]) -> list[float]:
        return ((edges[:-1] + edges[1:]) / 2).tolist()


def draw_word_matrix(scores: Map, layer: int, title: str, options: Options) -> Picture:
    """One layer of a map on a new page."""
    width, numbers = options.width, bool(options.numbers)
    units = _units(scores, width, bool(options.pieces))
    grouped = units.noun in ("sentences", "parts")
    belongs = membership([unit.tokens for unit in units.units], len(scores.tokens))
    values = (belongs / belongs.sum(0)).T @ array_of(scores)[layer] @ belongs
    marks = np.array([unit.mark for unit in units.units])
    heads = labels = [cut(printable(unit.name), SMALL, LONGEST) for unit in units.units]
    if grouped:  # a sentence with its first words
        texts = [
            f"{printable(one.name)}  {one.text}" if one.kind in ("sentence", "part") else printable(one.name)
            for one in units.units
        ]
        labels = [cut_between_words(text, SMALL, _longest_text(width)) for text in texts]
    left, names = GAP + BESIDE + HIGHER * widest(labels, SMALL), HIGHER * widest(heads, SMALL)
    brackets = (BRACKET if units.brackets else 0.0) + (PIECES if units.pieces else 0.0)
    room = width - left - GAP - brackets
    most = MOST * max(1.0, width / WIDTHS["single"]) ** 2  # a page that is wider than a column is filled
    if numbers:
        cell = apart = min(max(MOST_NUMBER, most), room / len(marks))
    else:
        cell, apart = min(most, (room - APART * int(marks.sum())) / max(1, int((~marks).sum()))), APART
    if options.pieces and cell < TIGHT:
        raise InputError(f"{len(marks)} pieces have no room side by side. Give a larger width=, or leave pieces out.")
    row = min(cell, MOST_NUMBER if numbers else MOST)
    lines = broken(title, 8.0, options.room)
    head = GAP + title_height(lines)
    y = head + 0.15 + brackets + names + 0.06 + row * np.arange(len(marks) + 1)
    x = left + np.concatenate([[0.0], np.cumsum(np.where(marks, apart, cell))])
    colours = colours_of(
        [values[:, ~marks]],
        options.vmax or _end(values, marks),
        percent=is_share(scores),
        target=target_of([scores]),
        text=numbers,
    )
    table = Table(units, values, marks, colours, x, y, labels, heads, names, numbers)
    unit = meaning_of([scores], colours.signed)
    if is_share(scores) and not colours.signed:
        unit = f"percent of the row; every row adds up to 100{THIN}%"
    unit_lines, bottom = filled(unit, AXES, options.room), float(y[-1])
    bar = LEGEND + LINE * (len(unit_lines) - 1) if options.colorbar else 0.0
    notes = noted(_notes(scores, table, options.room), options.room)
    page = Picture(figsize=(width, bottom + 0.08 + bar + note_height(notes) + GAP))
    write_title(page, lines)
    axes = axes_at(page, 0, 0, width, bottom + 0.02, inches=True)
    _draw_cells(axes, table, cell, row)
    _write_names(axes, table)
    below = "the input" if scores.info.get("rollout") or layer % len(scores.scores) == 0 else "the layer below"
    gave = f"gave: {units.noun} of {below}"
    if text_width(gave, AXES) > width - left - GAP:
        gave = cut(f"gave: {units.noun}", AXES, width - left - GAP)
    soft: dict[str, Any] = {"fontsize": AXES, "color": LIGHT["soft"]}
    put(axes, left, head + 0.1, gave, va="baseline", **soft)
    put(axes, GAP, float(y[0] + bottom) / 2, "took", rotation=90, va="center", ha="left", **soft)
    _draw_brackets(axes, table)
    if options.colorbar:
        legend_below(page, GAP, bottom + 0.08, options.room, colours, "\n".join(unit_lines))
    write_notes(page, notes, GAP, bottom + 0.08 + bar)
    return page


def _end(values: NDArray[np.float64], marks: NDArray[np.bool_]) -> float | None:
    """The largest cell off the diagonal and off the marks; where a few are far larger, what almost all stay under."""
    sizes = np.abs(values[~np.eye(len(values), dtype=bool) & ~marks])
    if not sizes.size:
        return None
    most, usual = float(sizes.max()), float(np.quantile(sizes, CUT))
    return (usual if 0 < usual < most / 2 else most) or None


def _notes(scores: Map, table: Table, room: float) -> list[Note]:
    """What is framed, hatched, bracketed and averaged."""
    rows, place = table.rows, query_of([scores])
    row = rows.units[rows.answer]
    framed = cut(f"the row of {printable(row.title)}", SMALL, room - 0.3)
    if is_answer(scores, place):
        framed = "the answer’s row" if row.tokens == [place] else f"{framed}, where the answer is read"
    notes = [Note(framed, LIGHT["surface"], 0.2, frame=True)]
    if table.marks.any():
        hatched = "" if table.numbers else HATCH  # numbers could not be read on it
        notes.append(Note("special tokens, outside the scale", LIGHT["sunk"], 0.2, hatch=hatched))
    if rows.pieces:
        notes.append(Note("brackets: pieces of one word"))
    if rows.noun in ("sentences", "parts"):
        notes.append(Note(f"rows and columns are {rows.noun}: columns are sums over words, rows their averages"))
    return notes


def _draw_cells(axes: Axes, table: Table, cell: float, row: float) -> None:
    """The cells with their numbers, or hatched where they are against; special tokens apart; the answer's row in a
    frame."""
    x, y, colours = table.x, table.y, table.colours
    axes.pcolormesh(x, y, table.values, cmap=colours.cmap, norm=colours.norm, edgecolor="white", linewidth=0.4)
    for place in np.flatnonzero(table.marks):
        style: dict[str, Any] = {"edgecolor": LIGHT["edge"], "hatch": None if table.numbers else HATCH, "linewidth": 0}
        box = (x[place], y[0]), x[place + 1] - x[place], y[-1] - y[0]
        axes.add_patch(Rectangle(*box, facecolor=LIGHT["sunk"], **style))
    if table.numbers:
        write_numbers(axes, table.values, colours, cell, row, middles=(table.middles(x), table.middles(y)))
    elif colours.signed:
        for i, j in np.argwhere((table.values <= -0.05 * colours.end) & ~table.marks):
            hatch(axes, (float(x[j]), float(y[i])), float(x[j + 1] - x[j]), row)
    axes.add_patch(
        Rectangle(
            (x[0], y[table.rows.answer]), x[-1] - x[0], row, fill=False, edgecolor=LIGHT["ink"], linewidth=0.8, zorder=5
        )
    )


def _write_names(axes: Axes, table: Table) -> None:
    """The names beside the rows and above the columns."""
    x, y = table.x, table.y
    for place, (across_at, down_at) in enumerate(zip(table.middles(x), table.middles(y), strict=True)):
        style: dict[str, Any] = {"fontsize": SMALL}
        if table.marks[place]:
            style |= {"color": LIGHT["soft"], "style": "italic"}
        put(axes, x[0] - 0.05, down_at, table.labels[place], ha="right", va="center_baseline", **style)
        put(axes, across_at, y[0] - 0.05, table.heads[place], ha="center", va="bottom", rotation=90, **style)


def _draw_brackets(axes: Axes, table: Table) -> None:
    """The pieces of words, and outside them the two texts of a pair."""
    x, y = table.x, table.y
    above, beside = float(y[0]) - 0.09 - table.names, float(x[-1]) + 0.07
    step = PIECES if table.rows.pieces else 0.0
    for brackets, more in ((table.rows.pieces, 0.0), (table.rows.brackets, step)):
        for one in brackets:
            start, stop = float(x[one.start]) + 0.015, float(x[one.stop]) - 0.015
            across(axes, start, stop, above - more, one.name, upward=False)
            along(axes, float(y[one.start]) + 0.015, float(y[one.stop]) - 0.015, beside + more, one.name)
