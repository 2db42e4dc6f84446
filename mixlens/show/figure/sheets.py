"""Sheets of heat maps: what is on them, and where everything goes, in inches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...base.errors import printable
from .layout import AXES, BETWEEN, GAP, LINE, MOST_HIGH, SIZE, broken, text_width, thinned, widest
from .legend import Colours, upright_width
from .options import Options

LONGEST = 0.85  # inches of a label below a column


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
    second: Colours | None = None  # of the rows from `split` on: scores without a sign, below those that have one
    split: int = 0


@dataclass(frozen=True)
class Places:
    """Where everything of a sheet goes, in inches; `above` is the height of the title, `right` what stays free at the right."""

    sheet: Sheet
    width: float
    above: float
    right: float

    @cached_property
    def label(self) -> float:
        """The width of the labels of rows."""
        return min(0.3 * self.width, widest(self.sheet.rows, SIZE))

    @cached_property
    def left(self) -> float:
        """The left edge of the first panel."""
        return GAP + self.label + 0.06 + (0.17 if self.sheet.row_name else 0.0)

    @cached_property
    def room(self) -> float:
        """The width that is left for panels."""
        return self.width - self.left - self.right

    @cached_property
    def beside(self) -> int:
        """How many panels stand beside each other: as many as fit, spread evenly over the rows of panels."""
        count, least = len(self.sheet.panels), 0.95 if self.sheet.square else 1.9
        most = min(count, max(1, int((self.room + BETWEEN) / least)))
        return math.ceil(count / math.ceil(count / most))

    @cached_property
    def down(self) -> int:
        """How many rows of panels there are."""
        return math.ceil(len(self.sheet.panels) / self.beside)

    @cached_property
    def pitch(self) -> float:
        """The width of a cell; few tokens do not make large cells."""
        most = 0.42 if self.sheet.square else 0.6
        return min((self.room - BETWEEN * (self.beside - 1)) / self.beside / len(self.sheet.columns), most)

    @cached_property
    def row(self) -> float:
        """The height of a cell."""
        if self.sheet.square:
            return self.pitch
        return max(0.14, min(0.18, (MOST_HIGH - 1.5) / len(self.sheet.rows) / self.down))

    @property
    def wide(self) -> float:
        """The width of a panel."""
        return self.pitch * len(self.sheet.columns)

    @property
    def high(self) -> float:
        """The height of a panel."""
        return self.row * len(self.sheet.rows)

    @cached_property
    def heads(self) -> list[list[str]]:
        """The lines above each panel."""
        return [broken(printable(panel.head), AXES, self.wide) for panel in self.sheet.panels]

    @cached_property
    def head(self) -> float:
        """The height of the lines above a panel."""
        return max(map(len, self.heads)) * (AXES) * LINE / 72 + (0.03 if any(self.heads) else 0.0)

    @property
    def step(self) -> float:
        """From the top of one row of panels to the next."""
        return self.head + self.high + GAP

    @property
    def whole(self) -> float:
        """The height of all panels, without the lines above the first and the labels below the last."""
        return (self.down - 1) * self.step + self.high

    @cached_property
    def foot(self) -> float:
        """The height of the labels of columns, and of what they are."""
        return _label_height(self.sheet.columns, self.pitch) + (0.16 if self.sheet.square else 0.0)

    def corner(self, number: int) -> tuple[float, float]:
        """The left and the upper edge of a panel."""
        row, column = divmod(number, self.beside)
        return self.left + column * (self.wide + BETWEEN), self.above + self.head + row * self.step


def arranged(sheet: Sheet, options: Options, above: float) -> tuple[Places, bool]:
    """The places of a sheet, and whether its colour bar stands upright beside it: that takes square panels that are high
    enough. Otherwise the bar lies below."""
    beside = Places(sheet, options.width, above, upright_width(sheet.colours) if options.colorbar else GAP)
    if sheet.square and beside.whole >= text_width(sheet.meaning, AXES):
        return beside, True
    return Places(sheet, options.width, above, GAP), False


def lies(texts: Sequence[str], pitch: float) -> bool:
    """Whether the labels of columns fit without being turned."""
    return widest(texts, SIZE) <= 0.9 * pitch


def _label_height(texts: Sequence[str], pitch: float) -> float:
    """The height of the labels of columns."""
    if lies(texts, pitch):
        return 0.16
    size, step = thinned(pitch)
    return min(LONGEST, widest(texts[::step], size)) + 0.04
