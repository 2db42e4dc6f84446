"""Where things stand on a figure: how wide a text is, how a title breaks, axes by inches, labels that do not touch."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from ...base.errors import InputError, nearest, printable

WIDTHS = {"single": 84 / 25.4, "double": 174 / 25.4}  # inches: one column of a paper, and both
SIZE, AXES, SMALL = 8.0, 7.0, 6.5  # points: the usual text, axes and colour bars, and the smallest text of a figure
GAP = 0.06  # inches between things, and around the figure
BETWEEN = 0.1  # inches between heat maps beside each other
LINE = 1.25  # the height of a line of text, as a multiple of its font size
MOST_HIGH = 9.0  # inches, a page


@dataclass(frozen=True)
class Options:
    """What the user chose for a figure. The last ones are read by some kinds alone."""

    ax: Axes | None  # draw here instead of on a new figure
    width: float  # inches
    title: str | None  # None: the title that the results give
    vmax: float | None  # the score that has the full hue
    colorbar: bool
    layer: int | None = None  # None: the last
    query: int | str | None = None  # None: where a prediction is read
    numbers: bool | None = None  # write scores into cells
    top: int | None = None  # draw so many of the largest scores; None: all
    scale: str | None = None  # "own" or "all"; None: as it fits the unit of the scores
    pieces: bool | None = None  # a matrix has a row for each piece of a word; None: for each word
    rollout: str | None = None  # the convention by which a flow multiplies layers; None: the method's own

    @property
    def room(self) -> float:
        """The width between the margins."""
        return self.width - 2 * GAP

    def title_or(self, usual: str) -> str:
        return usual if self.title is None else self.title


def inches_of(width: str | float | None, *, wide: bool) -> float:
    """The width of a figure in inches: by its name, as a number, or the usual one."""
    if width is None:
        return WIDTHS["double" if wide else "single"]
    if isinstance(width, str):
        if width not in WIDTHS:
            raise InputError(f"unknown width {width!r}: single, double, or inches. {nearest(width, WIDTHS)}")
        return WIDTHS[width]
    if isinstance(width, bool) or not isinstance(width, int | float) or not 1.5 <= width <= 30:
        raise InputError(f"a width is single, double, or 1.5 to 30 inches, not {width!r}.")
    return float(width)


def checked_top(top: Any) -> int | None:
    """How many are drawn or followed; what is no such number is refused."""
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")
    return top


# --- text -------------------------------------------------------------------------------------------------------------


def text_width(text: str, size: float) -> float:
    """The width of a text in inches, at a font size in points."""
    font = FontProperties(family=matplotlib.rcParams["font.family"], size=size)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def widest(texts: Sequence[str], size: float) -> float:
    """The width of the widest text, in inches."""
    return max(text_width(text, size) for text in texts)


def cut(text: str, size: float, room: float) -> str:
    """The longest beginning of a text that fits the room in inches; an ellipsis stands for the rest."""
    if text_width(text, size) <= room:
        return text
    longer = bisect_left(range(2, len(text) + 1), True, key=lambda end: text_width(text[:end] + "…", size) > room)
    return text[: longer + 1] + "…"


def cut_between_words(text: str, size: float, room: float) -> str:
    """The longest beginning of a text that fits the room and ends with a word; within the first word, if it must."""
    short = cut(text, size, room)
    whole, space, _ = short.rstrip("…").rpartition(" ")
    return short if short == text or not whole.strip() or not space else f"{whole.rstrip(' ,;:')}…"


def filled(text: str, size: float, room: float, *, parts: str = " ") -> list[str]:
    """The lines of a text that fit the room in inches, broken between its parts."""
    lines: list[str] = []
    for part in text.split(parts):
        longer = parts.join([*lines[-1:], part])
        if lines and text_width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(cut(part, size, room))
    return lines if text else []


def literal(text: str) -> str:
    """A text whose dollar signs are escaped, for places where matplotlib always reads mathematics."""
    return printable(text).replace("$", r"\$")


def put(axes: Axes, x: float, y: float, text: str, **options: Any) -> Text:
    """Write a text on axes; dollar signs are no mathematics."""
    return axes.text(x, y, text, parse_math=False, usetex=False, **options)


# --- titles -----------------------------------------------------------------------------------------------------------


def broken(title: str, size: float, room: float) -> list[str]:
    """The title in lines that fit the room in inches, broken between its parts."""
    return filled(title, size, room, parts=" · ")


def title_height(lines: Sequence[str]) -> float:
    """The height of a title in inches."""
    return len(lines) * SIZE * LINE / 72 + (GAP if lines else 0)


def write_title(page: Figure, lines: Sequence[str]) -> None:
    """Write the title of a whole figure at its upper left."""
    if lines:
        wide, high = page.get_size_inches()
        text = page.suptitle("\n".join(lines), x=GAP / wide, y=1 - GAP / high, ha="left", va="top", fontsize=SIZE)
        text.set_parse_math(False)
        text.set_linespacing(LINE)


def write_head(axes: Axes, text: str, *, size: float = SIZE, **options: Any) -> None:
    """Write a title above axes, at their left."""
    axes.set_title(text, loc="left", fontsize=size, parse_math=False, **options)


# --- axes and their labels --------------------------------------------------------------------------------------------


def axes_at(page: Figure, left: float, top: float, wide: float, high: float, *, inches: bool = False) -> Axes:
    """New axes, by inches from the left and from the top of the page; `inches`: its units, downwards, with nothing
    around it."""
    width, height = page.get_size_inches()
    axes = page.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))
    if inches:
        axes.set(xlim=(0, wide), ylim=(high, 0))
        axes.axis("off")
    return axes


def size_of(axes: Axes) -> tuple[float, float]:
    """Width and height of the user's axes, in inches."""
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    return float(box.width) / dpi, float(box.height) / dpi


def thinned(pitch: float) -> tuple[float, int]:
    """The font size of labels that are `pitch` inches apart, and how many rows share one label so that labels do not
    touch."""
    size = next((size for size in (SIZE, AXES, SMALL) if size * 1.15 / 72 <= pitch), SMALL)
    return size, max(1, math.ceil(SMALL * 1.15 / 72 / pitch))
