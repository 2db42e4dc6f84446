"""The flow of a map as a paper figure: bands from the words (below) through the layers into the position that is read (above).

The numbers are those of the flow page (`flow_numbers`): the width of a band is the share of the answer that passes, every level
adds up to 100 %, and what came from the columns that are followed is violet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from ...base.errors import InputError, printable
from ...base.text import THIN, at_most, listed, percent
from ...scoring.by_word import tokens_meant
from ..colors import LIGHT, mixed
from ..flow_numbers import DRAWN
from ..flow_page import Picture as Numbers
from ..flow_page import picture_of
from ..page_entry import is_answer
from ..tokens import MASKS
from .brackets import Bracket, across, source_brackets
from .layout import (
    AXES,
    GAP,
    SMALL,
    axes_at,
    broken,
    cut,
    cut_between_words,
    put,
    text_width,
    title_height,
    write_title,
)
from .notes import Note, note_height, wrapped, write_notes
from .options import Options
from .picture import Picture
from .wording import title_of

LEAST = 0.112  # inches of a column: its name stands upright
MOST = 60  # columns of words
LEVEL, MANY_LEVELS, MANY = 0.42, 0.3, 8  # inches from one layer to the next; of a model that has many
BAR = 0.045  # inches: the height of a level's bars
LONGEST, LONGEST_TEXT = (
    1.0,
    1.7,
)  # inches of a word, or of the beginning of a sentence, below its column with its percent
WIDEST = 0.55  # of the room: how wide 100 % are at most
BOLDER = 1.12  # bold letters are so much wider
ROOM = 0.05  # inches between the bars of a level
ABOVE = 0.3  # inches: what the answer is, and where it is read
SEEN = 0.0004  # of the answer: a smaller part of a band has no hue of its own
DIGITS = 9  # of inches
REST = mixed("edge", "surface", 0.34)


def draw_flow(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """The flow through all layers of one map into the position of `query`; the `top` strongest columns are followed."""
    most = int((options.width - _left(len(results[0].scores)) - GAP) / LEAST) - 3  # the position itself and the marks
    query = None if options.query is None else tokens_meant(results[0], options.query)
    numbers = picture_of(results[0], query=query, rollout=options.rollout, most=max(4, min(MOST, most)))
    return Drawing(numbers, _followed(numbers, options.top), options).draw()


def _short(title: str) -> str:
    """A name in the legend, no longer than below its column; a quote that was opened is closed."""
    short = cut(title, SMALL, LONGEST)
    return f"{short}”" if short != title and title.endswith("”") else short


def _left(layers: int) -> float:
    """The room for the names of the levels."""
    return GAP + text_width(f"layer {layers}", AXES) + 0.08


def _followed(numbers: Numbers, top: Any) -> list[int]:
    """The columns of the text with the largest shares, largest first; without `top` the largest alone."""
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")
    places = [place for place, group in enumerate(numbers.groups) if group.kind == numbers.unit]
    return sorted(places, key=lambda place: -numbers.flow.shares[0, place])[: top or 1]


@dataclass(frozen=True)
class Band:
    """A band with its place: its lower and its upper left corner, and how wide all of it and the followed part are, in inches."""

    layer: int
    start: float
    end: float
    wide: float
    own: float


@dataclass(frozen=True)
class Drawing:
    """A figure of a flow: its numbers, the columns that are followed, and the user's choices. All lengths are inches."""

    numbers: Numbers
    followed: Sequence[int]
    options: Options

    # - places

    @property
    def layers(self) -> int:
        return len(self.numbers.flow.rolled)

    @cached_property
    def left(self) -> float:
        return _left(self.layers)

    @property
    def room(self) -> float:
        return self.options.width - self.left - GAP

    @cached_property
    def scale(self) -> float:
        """How wide 100 % are: as wide as every bar finds room beside its neighbours."""
        for scale in np.linspace(WIDEST, 0.1, 46) * self.room:
            if self._needed(float(scale)).sum() <= self.room:
                return float(scale)
        return 0.1 * self.room

    def _needed(self, scale: float) -> NDArray[np.float64]:
        """The least width of each column: its name, and its widest bar below the answer."""
        return np.maximum(LEAST, self.numbers.flow.shares[:-1].max(0) * scale + ROOM)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Where columns begin and end: what is left of the room is shared evenly."""
        needed = self._needed(self.scale)
        widths = needed + max(0.0, self.room - needed.sum()) / len(needed)
        return self.left + np.concatenate([[0.0], np.cumsum(widths)])

    @property
    def middles(self) -> NDArray[np.float64]:
        return (self.edges[:-1] + self.edges[1:]) / 2

    def middle(self, level: int, column: int) -> float:
        """The middle of a column's bar; the answer's stands in the middle of the figure."""
        return self.left + self.room / 2 if level == self.layers else float(self.middles[column])

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the title."""
        usual = title_of(self.numbers.scores, f"into {self._read}")
        return broken(self.options.title_or(usual), 8.0, self.options.width - 2 * GAP)

    @property
    def top(self) -> float:
        """The level of the answer."""
        return GAP + title_height(self.lines) + ABOVE

    def level(self, number: int) -> float:
        """The height of a level: 0 is the input."""
        return self.top + (self.layers - number) * (LEVEL if self.layers < MANY else MANY_LEVELS)

    # - bands

    @cached_property
    def bands(self) -> list[Band]:
        """The bands; those that end at one place lie side by side, in the order of where they come from."""
        drawn = self.numbers.flow.bands
        own = drawn.parts[:, list(self.followed)].sum(1)
        starts = self._stacked(drawn.layer, drawn.below, drawn.layer + 1, drawn.above)
        ends = self._stacked(drawn.layer + 1, drawn.above, drawn.layer, drawn.below)
        rows = zip(drawn.layer.tolist(), starts, ends, drawn.share.tolist(), own.tolist(), strict=True)
        return [
            Band(layer, start, end, share * self.scale, part * self.scale) for layer, start, end, share, part in rows
        ]

    def _stacked(self, levels: Any, columns: Any, far_levels: Any, far_columns: Any) -> list[float]:
        """The left edge of each band at one of its ends."""
        shares, placed = self.numbers.flow.bands.share, [0.0] * len(levels)
        for level, column in sorted(set(zip(levels.tolist(), columns.tolist(), strict=True))):
            here = np.flatnonzero((levels == level) & (columns == column))
            order = sorted(here.tolist(), key=lambda one: self.middle(int(far_levels[one]), int(far_columns[one])))
            at = self.middle(level, column) - float(shares[here].sum()) * self.scale / 2
            for one in order:
                placed[one] = at
                at += float(shares[one]) * self.scale
        return placed

    # - words

    @property
    def _read(self) -> str:
        return self.numbers.title

    @cached_property
    def labels(self) -> list[str]:
        """What stands below each column: its name (of a group its number and its first words) and its share."""
        return [self._label(place) for place in range(len(self.numbers.groups))]

    def _label(self, place: int) -> str:
        group, value = self.numbers.groups[place], percent(float(self.numbers.flow.shares[0, place]))
        taken = text_width(f"  {value}", self.size)
        if group.kind not in ("sentence", "part"):
            return f"{cut(printable(group.name), self.size, LONGEST - taken)}  {value}"
        begins = cut_between_words(self.numbers.text_of(group), self.size, LONGEST_TEXT - taken)
        return f"{group.name}  {begins}  {value}"

    def _label_height(self, place: int) -> float:
        """The height of a name, which stands upright."""
        return text_width(self.labels[place], self.size) * (BOLDER if place in self.followed else 1.04)

    @property
    def size(self) -> float:
        return AXES if float(np.diff(self.edges).min()) >= AXES * 1.15 / 72 else SMALL

    @cached_property
    def brackets(self) -> list[Bracket]:
        return source_brackets([self.numbers.words[group.words[0]] for group in self.numbers.groups])

    @property
    def _answers(self) -> bool:
        return len(self.numbers.read) == 1 and is_answer(self.numbers.scores, self.numbers.query)

    @cached_property
    def notes(self) -> list[Note]:
        """The legend: hues, a sample of a width, and what is left out."""
        shares, groups = self.numbers.flow.shares[0], self.numbers.groups
        names = listed([_short(printable(groups[place].title)) for place in self.followed])
        together = percent(float(sum(shares[place] for place in self.followed)))
        whole = "the answer" if self._answers else "the flow"
        least = f"{100 * DRAWN:.2f}{THIN}%"
        return [
            Note(f"from {names}: {together} of {whole}", LIGHT["share"], 0.25),
            Note("everything else", REST, 0.25),
            Note(f"this wide: 10{THIN}% of {whole}", LIGHT["soft"], 0.1 * self.scale),
            Note("a bar is violet where more than half of it is"),
            Note(f"bands under {least} are not drawn: {at_most(self.numbers.flow.undrawn)} of a level"),
            *self._grouped,
        ]

    @property
    def _grouped(self) -> list[Note]:
        unit, groups = self.numbers.unit, self.numbers.groups
        if unit == "word":
            return []
        words = sum(len(group.words) for group in groups if group.kind == unit)
        return [Note(f"columns are {unit}s: {words} words have no room side by side; a column is the sum of its words")]

    # - drawing

    def draw(self) -> Picture:
        below = (
            self.level(0)
            + 0.08
            + max(map(self._label_height, range(len(self.labels))))
            + (0.24 if self.brackets else 0.06)
        )
        rows = wrapped(self.notes, self.options.width - 2 * GAP)
        page = Picture(figsize=(self.options.width, below + note_height(rows) + GAP))
        write_title(page, self.lines)
        axes = axes_at(page, 0, 0, self.options.width, below)
        axes.set(xlim=(0, self.options.width), ylim=(below, 0))
        axes.axis("off")
        self._draw_bands(axes)
        self._draw_levels(axes)
        self._write_answer(axes)
        self._write_labels(axes, below)
        write_notes(page, rows, GAP, below)
        return page

    def _draw_bands(self, axes: Axes) -> None:
        """All bands in grey, the widest last, then the followed parts of them. Bands that are equally wide but for rounding keep
        their order: a picture is the same on every processor."""
        for band in sorted(self.bands, key=lambda one: round(one.wide, DIGITS)):
            self._draw_band(axes, band, band.wide, REST)
        for band in sorted(self.bands, key=lambda one: round(one.own, DIGITS)):
            if band.own > SEEN * self.scale:
                self._draw_band(axes, band, min(band.wide, band.own), LIGHT["share"])

    def _draw_band(self, axes: Axes, band: Band, wide: float, colour: str) -> None:
        low, up = self.level(band.layer) - BAR / 2, self.level(band.layer + 1) + BAR / 2
        half = (low + up) / 2
        a, b = band.start, band.end
        rise = [(a, low), (a, half), (b, half), (b, up)]
        fall = [(b + wide, up), (b + wide, half), (a + wide, half), (a + wide, low), (a, low)]
        steps = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3, Outline.CLOSEPOLY]
        axes.add_patch(PathPatch(Outline([*rise, *fall], steps), facecolor=colour, linewidth=0))

    def _draw_levels(self, axes: Axes) -> None:
        for level in range(self.layers + 1):
            name = f"layer {level}" if level else "input"
            put(axes, GAP, self.level(level), name, fontsize=AXES, va="center_baseline", color=LIGHT["soft"])
            columns = range(len(self.numbers.groups)) if level < self.layers else [self.numbers.column]
            for column in columns:
                self._draw_bar(axes, level, column)

    def _draw_bar(self, axes: Axes, level: int, column: int) -> None:
        """What a column holds of the answer after a layer; violet where most of that came from the followed columns."""
        share = float(self.numbers.flow.shares[level, column])
        own = float(self.numbers.flow.origins[level, column, list(self.followed)].sum())
        wide = max(0.01, share * self.scale)
        corner = (self.middle(level, column) - wide / 2, self.level(level) - BAR / 2)
        colour = LIGHT["share" if own > 0.5 * share else "soft"]
        axes.add_patch(Rectangle(corner, wide, BAR, facecolor=colour, linewidth=0))

    def _write_answer(self, axes: Axes) -> None:
        """What is predicted, and where it is read."""
        x, prediction = self.left + self.room / 2, self.numbers.prediction if self._answers else []
        name = f"the answer: {printable(prediction[0][0])}" if prediction else printable(self._read)
        put(axes, x, self.top - 0.19, cut(name, 8.0, self.room), fontsize=8.0, ha="center", va="baseline")
        if prediction:
            read = cut(f"read at {printable(self._read)}", AXES, self.room)
            put(axes, x, self.top - 0.07, read, fontsize=AXES, ha="center", va="baseline", color=LIGHT["soft"])

    def _write_labels(self, axes: Axes, below: float) -> None:
        for place, text in enumerate(self.labels):
            style = self._label_style(place)
            x, y = float(self.middles[place]), self.level(0) + 0.06
            put(axes, x, y, text, rotation=270, ha="center", va="top", fontsize=self.size, **style)
        for bracket in self.brackets:
            start, stop = float(self.edges[bracket.start]) + 0.03, float(self.edges[bracket.stop]) - 0.03
            across(axes, start, stop, below - 0.2, bracket.name, upward=True)

    def _label_style(self, place: int) -> dict[str, Any]:
        if place in self.followed:
            return {"color": LIGHT["share-ink"], "fontweight": "bold"}
        first = self.numbers.words[self.numbers.groups[place].words[0]]
        return {"color": LIGHT["soft"], "style": "italic"} if first.special and first.text not in MASKS else {}
