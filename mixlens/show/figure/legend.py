"""What explains a figure: the colours of scores and their bar, numbers in cells, notes with swatches, brackets of
columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...base.errors import InputError
from ...base.words import Word
from ..colors import LIGHT, hue_of, scaled
from .layout import AXES, BETWEEN, GAP, SMALL, axes_at, cut, filled, put, text_width, widest

STEPS = 255  # colours from 0 to the largest score
NUMBERS = 20  # letters of a target's name beside a colour bar
LINE = 0.135  # inches from one line of notes to the next
APART = 0.14  # inches between two notes of one line
WIDER = 1.05  # a screen's letters are a little wider than those that are measured
SOURCES = ("first text", "second text")
ARM = 0.035  # inches of a bracket's arm


class Colours(NamedTuple):
    """Violet from 0 up; as soon as one score is negative (`signed`) orange against and blue for, with white at 0.
    `text`: the lighter end of each hue, behind text; `percent`: scores are shares; `target`: what scores speak for;
    `beyond`: some scores are larger than the end."""

    cmap: ListedColormap
    norm: Normalize
    signed: bool
    text: bool
    percent: bool
    target: str
    beyond: bool

    @property
    def end(self) -> float:
        """The score that has the full hue."""
        return float(self.norm.vmax or 1)

    @property
    def ticks(self) -> list[str]:
        """The numbers beside the colour bar; where scores have signs, the sides by name below those of the two ends."""
        high = number(self.end, percent=self.percent) + (" and more" if self.beyond else "")
        if not self.signed:
            return [number(0, percent=self.percent), high]
        target = self.target if len(self.target) <= NUMBERS else self.target[: NUMBERS - 1] + "…"
        return [f"−{high}\nagainst", "0", f"{high}\n{f'for {target}'.strip()}"]

    def shade(self, score: float) -> str:
        """The colour of a score."""
        return self.step(max(-1.0, min(1.0, score / self.end)))

    def step(self, share: float) -> str:
        """The colour of a share of the end, -1 to 1."""
        return scaled(share, hue_of(share, signed=self.signed) + ("-tint" if self.text else ""))


def number(value: float, *, percent: bool = False, sign: bool = False) -> str:
    """A score with two digits that count, or a share in percent."""
    text = f"{float(f'{abs(value) * (100 if percent else 1):.2g}'):g}"
    mark = "−" if value < 0 else "+" if sign and value > 0 else ""
    return f"{mark}{text}\u2009%" if percent else f"{mark}{text}"


def colours_of(
    values: Sequence[NDArray[np.float64]],
    vmax: float | None,
    *,
    text: bool = False,
    percent: bool = False,
    target: str = "",
    signed: bool = False,
) -> Colours:
    """The colours of all values, up to `vmax` or the largest magnitude; `signed` also where none is below 0."""
    signed = signed or any(bool((array < 0).any()) for array in values)
    largest = max((float(np.abs(array).max()) for array in values if array.size), default=0.0)
    end, least = vmax or largest or 1.0, -1 if signed else 0
    beyond = largest > end * (1 + 1e-9)
    norm = Normalize(least * end, end)
    plain = Colours(ListedColormap(["#ffffff"]), norm, signed, text, percent, target, beyond)
    table = [plain.step(step / STEPS) for step in range(least * STEPS, STEPS + 1)]
    return plain._replace(cmap=ListedColormap(table, name="signed" if signed else "share"))


# --- the colour bar ---------------------------------------------------------------------------------------------------


def upright_width(colours: Colours) -> float:
    """The width of an upright colour bar with its labels, in inches."""
    return BETWEEN + 0.08 + _tick_width(colours) + 0.2 + GAP


def _tick_width(colours: Colours) -> float:
    return widest([line for text in colours.ticks for line in text.split("\n")], AXES)


def legend_below(page: Figure, left: float, top: float, room: float, colours: Colours, meaning: str) -> None:
    """A lying colour bar; its ends and its meaning stay inside the room in inches."""
    out = _tick_width(colours) / 2
    wide = min(1.4, max(0.3, room - 2 * out))
    over = max(out, (widest(meaning.split("\n"), AXES) - wide) / 2)
    left = min(left + over, left + room - wide - over) if room > wide + 2 * over else left + over
    legend(axes_at(page, left, top, wide, 0.07), colours, meaning, upright=False)


def legend(axes: Axes, colours: Colours, label: str, *, upright: bool) -> None:
    """The colour bar: from the least to the largest score, 0 marked, and what it means."""
    low, high = float(colours.norm.vmin or 0), colours.end
    places, steps = [low, 0.0, high] if colours.signed else [low, high], np.linspace(low, high, 128)
    style: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    style |= {"cmap": colours.cmap, "norm": colours.norm}
    if upright:
        axes.imshow(steps[:, None], extent=(0.0, 1.0, low, high), **style)
        axes.set_yticks(places, colours.ticks)
        axes.set_xticks([])
        axes.yaxis.tick_right()
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(label, fontsize=AXES, labelpad=1)
    else:
        axes.imshow(steps[None, :], extent=(low, high, 0.0, 1.0), **style)
        axes.set_xticks(places, colours.ticks)
        axes.set_yticks([])
        axes.set_xlabel(label, fontsize=AXES, labelpad=1)
    axes.tick_params(labelsize=AXES, length=1.5, width=0.4, pad=1.5, color=LIGHT["edge"])
    axes.set_gid("colours")
    thin_spines(axes)


def thin_spines(axes: Axes) -> None:
    """Thin lines around axes."""
    for spine in axes.spines.values():
        spine.set(linewidth=0.4, edgecolor=LIGHT["edge"])


# --- cells ------------------------------------------------------------------------------------------------------------


def hatch(axes: Axes, corner: tuple[float, float], wide: float, high: float) -> None:
    """A cell against is hatched, so that the sign is there without colour."""
    axes.add_patch(Rectangle(corner, wide, high, fill=False, hatch="/////", edgecolor=LIGHT["surface"], linewidth=0))


def write_numbers(
    axes: Axes,
    values: NDArray[np.float64],
    colours: Colours,
    wide: float,
    high: float,
    *,
    middles: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """The scores in cells of so many inches: whole percents of shares, a dot where one is under a half; of others two
    digits, without the zero before the point. `middles` of columns and of rows: else their numbers. Small cells are
    refused."""
    texts = []
    for value in map(float, values.flat):
        text = f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
        text = re.sub(r"^(-?)0\.", r"\1.", text)
        if colours.percent:
            text = f"{100 * value:.0f}" if abs(value) >= 0.005 else "·"
        texts.append(text.replace("-", "−"))
    size = min(AXES, high * 72 / 1.1)
    size *= min(1.0, 0.96 * wide / widest(texts, size))
    if size < SMALL:
        raise InputError(
            f"cells of {wide:.2f} inches are too small for numbers. Give a larger width=, or leave numbers out."
        )
    columns, rows = middles or (range(values.shape[1]), range(values.shape[0]))
    for (i, j), text in zip(np.ndindex(*values.shape), texts, strict=True):
        put(axes, columns[j], rows[i], text, ha="center", va="center", fontsize=size, color=LIGHT["ink"])


# --- notes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """A sentence, with a swatch of this colour and width in inches before it where there is one. A line that continues
    a sentence is indented by as many inches as its swatch takes."""

    text: str
    colour: str = ""
    swatch: float = 0.0
    hatch: str = ""
    frame: bool = False
    indent: float = 0.0

    @property
    def before(self) -> float:
        """The inches before the text."""
        return self.swatch + 0.05 if self.swatch else self.indent

    @property
    def wide(self) -> float:
        return self.before + WIDER * text_width(self.text, SMALL)


def noted(notes: Sequence[Note], room: float) -> list[list[Note]]:
    """The notes in lines; one that has no room in a line of its own is broken between words."""
    rows: list[list[Note]] = []
    for note in notes:
        first, *more = filled(note.text, SMALL, (room - note.before) / WIDER)
        if rows and not more and sum(one.wide + APART for one in rows[-1]) + note.wide <= room:
            rows[-1].append(note)
        else:
            rows += [[replace(note, text=first)], *([Note(line, indent=note.before)] for line in more)]
    return rows


def note_height(rows: Sequence[Sequence[Note]]) -> float:
    return LINE * len(rows) + GAP


def write_notes(page: Figure, rows: Sequence[Sequence[Note]], left: float, top: float) -> None:
    """The lines on axes of their own, by inches from the left and from the top of the page."""
    axes = axes_at(page, left, top, float(page.get_size_inches()[0]) - left, note_height(rows), inches=True)
    axes.set_gid("notes")
    for number_of_row, row in enumerate(rows):
        x, y = 0.0, GAP / 2 + (number_of_row + 0.5) * LINE
        for note in row:
            if note.swatch:
                edge = LIGHT["ink"] if note.frame else LIGHT["edge"] if note.hatch else "none"
                box = Rectangle(
                    (x, y - 0.04),
                    note.swatch,
                    0.08,
                    facecolor=note.colour,
                    edgecolor=edge,
                    linewidth=0.8 if note.frame else 0.0,
                    hatch=note.hatch or None,
                )
                axes.add_patch(box)
            put(axes, x + note.before, y, note.text, fontsize=SMALL, va="center_baseline")
            x += note.wide + APART


# --- brackets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bracket:
    """The columns from `start` up to, not including, `stop`, and what they are: of one text of a pair, or of one
    word."""

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


def across(axes: Axes, start: float, stop: float, at: float, name: str, *, upward: bool) -> None:
    """A lying bracket at a height of axes in inches (downwards); its arms point up or down, its name is on the other
    side."""
    arm = -ARM if upward else ARM
    axes.add_line(Line2D([start, start, stop, stop], [at + arm, at, at, at + arm], color=LIGHT["edge"], linewidth=0.6))
    if name:
        put(
            axes,
            (start + stop) / 2,
            at - arm / 2,
            cut(name, SMALL, max(stop - start, 0.2)),
            fontsize=SMALL,
            ha="center",
            va="top" if upward else "bottom",
            color=LIGHT["soft"],
        )


def along(axes: Axes, start: float, stop: float, at: float, name: str) -> None:
    """An upright bracket whose arms point to the left, its name at the right, written downwards."""
    axes.add_line(Line2D([at - ARM, at, at, at - ARM], [start, start, stop, stop], color=LIGHT["edge"], linewidth=0.6))
    if name:
        put(
            axes,
            at + 0.03,
            (start + stop) / 2,
            cut(name, SMALL, max(stop - start, 0.2)),
            fontsize=SMALL,
            ha="left",
            va="center",
            rotation=270,
            color=LIGHT["soft"],
        )
