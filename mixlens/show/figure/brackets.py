"""Brackets beside a picture: which columns belong together, because they are of one text of a pair or pieces of one word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...base.words import Word
from ..colors import LIGHT
from .layout import SMALL, cut, put

SOURCES = ("first text", "second text")
ARM = 0.035  # inches


@dataclass(frozen=True)
class Bracket:
    """The columns from `start` up to, not including, `stop`, and what they are."""

    start: int
    stop: int
    name: str = ""


def source_brackets(words: Sequence[Word]) -> list[Bracket]:
    """The two texts of a pair; nothing where there is one text. `words` are the first words of the columns."""
    places = [(place, word.source) for place, word in enumerate(words) if not word.special]
    if len({source for _, source in places}) < 2:
        return []
    runs = [[place for place, _ in run] for _, run in groupby(places, key=lambda one: one[1])]
    return [Bracket(run[0], run[-1] + 1, SOURCES[words[run[0]].source]) for run in runs]


def piece_brackets(words: Sequence[Word]) -> list[Bracket]:
    """Words of several pieces, where every piece is a column of its own."""
    return [Bracket(word.tokens[0], word.tokens[-1] + 1) for word in words if len(word.tokens) > 1]


def across(axes: Axes, start: float, stop: float, at: float, name: str, *, upward: bool) -> None:
    """A lying bracket at a height of axes in inches (downwards); its arms point up or down, its name is on the other side."""
    arm = -ARM if upward else ARM
    _line(axes, [start, start, stop, stop], [at + arm, at, at, at + arm])
    if name:
        style = {"fontsize": SMALL, "ha": "center", "va": "top" if upward else "bottom", "color": LIGHT["soft"]}
        put(axes, (start + stop) / 2, at - arm / 2, cut(name, SMALL, max(stop - start, 0.2)), **style)


def along(axes: Axes, start: float, stop: float, at: float, name: str) -> None:
    """An upright bracket whose arms point to the left, its name at the right, written downwards."""
    _line(axes, [at - ARM, at, at, at - ARM], [start, start, stop, stop])
    if name:
        style = {"fontsize": SMALL, "ha": "left", "va": "center", "rotation": 270, "color": LIGHT["soft"]}
        put(axes, at + 0.03, (start + stop) / 2, cut(name, SMALL, max(stop - start, 0.2)), **style)


def _line(axes: Axes, x: list[float], y: list[float]) -> None:
    axes.add_line(Line2D(x, y, color=LIGHT["edge"], linewidth=0.6))
