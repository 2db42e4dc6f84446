"""A paper figure of a Generation: written words as rows, words or sentences of the prompt as columns under brackets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ...answers.generation import Generation
from ...answers.generation.wording import cut_note, group_shares, group_title, own_shares
from ...base.errors import InputError, nearest, printable
from ...base.text import percent
from ..colors import LIGHT
from .layout import GAP, SMALL, axes_at, cut, filled, put, text_width, widest, write_title
from .legend import Colours, across, colours_of, legend_below
from .picture import Picture

KINDS = ("words", "sentences", "left_out")
TEXT, AXIS = 7.0, 6.5  # points
ROW, MOST, LEAST = 0.15, 0.3, 0.105  # inches: height of a row; width of a column of a word
GROUP = 0.42  # inches: width of a column of a sentence
APART, BETWEEN = 0.07, 0.06  # inches: a column of special tokens, and the room between groups
BAR = 0.8  # inches: the bar of own words with its number
HEAD = 0.26  # inches: brackets and their names
LONGEST = 0.75  # inches of a word above its column
LEGEND = 0.46  # inches: the colour bar, its numbers and one line
CUT = 0.99  # of all cells: the scale covers so many
WIDER = 1.06  # a screen's letters are a little wider than those that are measured
SOFT = LIGHT["soft"]


@dataclass(frozen=True)
class Band:
    """Columns under one bracket, or a run of special tokens (`values` is None)."""

    name: str
    columns: Sequence[str]
    values: NDArray[np.float64] | None  # [row column]


def written_figure(
    generation: Generation, kind: str | None, *, width: float, title: str | None, vmax: float | None
) -> Picture:
    """The table of a Generation on a page of its own."""
    if kind not in (None, *KINDS):
        raise InputError(f"a Generation cannot be drawn as {kind!r}. {nearest(str(kind), KINDS)}")
    if kind == "left_out" and generation.effects is None:
        raise InputError("what leaving out does was not measured: draw generation.with_effects().")
    words = [cut(printable(row.shown), TEXT, LONGEST) for row in generation.rows]
    left = widest([*words, "written"], TEXT) + text_width("100 %", AXIS) + 0.16
    least = sum(word.counts for word in generation.columns) * LEAST + len(generation.text.groups) * BETWEEN
    fits = least <= width - left - BAR - 3 * GAP
    kind = kind or ("words" if fits else "sentences")
    if kind != "sentences" and not fits:
        raise InputError(
            "the words of this prompt are too many for the width. Give a larger width=, or kind='sentences'."
        )
    bands = bands_of(generation, kind)
    values = [band.values.ravel() for band in bands if band.values is not None]
    cells = np.nan_to_num(np.concatenate(values or [np.zeros(1)]))
    usual = float(np.quantile(np.abs(cells), CUT))  # a few may be beyond the end
    signed = kind == "left_out" or (kind == "words" and generation.signed)
    hues = colours_of(
        [cells], vmax or usual or None, text=kind == "sentences", percent=kind != "left_out", signed=signed
    )
    lines = filled(_meaning(generation, kind, signed), AXIS, (width - 2 * GAP) / WIDER)
    names = [name for band in bands for name in band.columns]
    above = HEAD + (min(LONGEST, widest(names, AXIS)) if any(names) else 0.0) + 0.06  # names are written upwards
    top, high = GAP + (0.2 if title else 0.0), above + len(generation.rows) * ROW
    below = LEGEND + (0.12 if signed else 0.0) + (len(lines) - 1) * AXIS * 1.25 / 72
    page = Picture(figsize=(width, top + high + below + GAP))
    axes = axes_at(page, 0, top, width, high, inches=True)
    if title:
        write_title(page, [title])
    _write_rows(axes, generation, words, left, above)
    fixed = left + (0 if kind == "left_out" else BAR + BETWEEN) + 3 * GAP + len(bands) * BETWEEN
    room = width - fixed - sum(band.values is None for band in bands) * APART
    pitch = min(GROUP if kind == "sentences" else MOST, room / max(1, len(names)))
    x = left + GAP
    for band in bands:
        x = _draw_band(axes, band, x, above, len(generation.rows), pitch, hues) + BETWEEN
    if kind != "left_out":
        _draw_own(axes, generation, x + BETWEEN, above)
    legend_below(page, GAP, top + high + 0.08, width - 2 * GAP, hues, "\n".join(lines))
    return page


def bands_of(generation: Generation, kind: str) -> list[Band]:
    """The columns from left to right: the words of each group, or the group as one column; special tokens apart. Of
    words that are left out, the points of probability that are lost without them."""
    table = generation.matrix
    if kind == "left_out" and generation.effects is not None:
        table = -100 * generation.effects.words
    groups, bands, seen = generation.text.groups, list[Band](), set[int]()
    for word in generation.columns[: generation.text.first]:
        number = word.group
        if word.special and (not bands or bands[-1].values is not None):
            bands.append(Band("", (), None))
        elif number is not None and number not in seen:
            seen.add(number)
            name, words = group_title(groups[number], number, groups), list(groups[number].words)
            if kind == "sentences":
                bands.append(Band(name, ("",), group_shares(generation).numpy()[:, [number]]))
            else:
                columns = [printable(generation.columns[k].text) for k in words]
                bands.append(Band(name, columns, table.numpy()[:, words]))
    return bands


def _write_rows(axes: Axes, generation: Generation, words: Sequence[str], left: float, above: float) -> None:
    """The written words and how sure the model was of each."""
    sure = left - text_width("100 %", AXIS) - 0.08
    head: dict[str, Any] = {"fontsize": AXIS, "ha": "right", "va": "bottom", "color": SOFT}
    put(axes, sure, above - 0.05, "written", **head)
    put(axes, left - 0.04, above - 0.05, "sure", **head)
    for number, (word, share) in enumerate(zip(words, generation.row_probabilities, strict=True)):
        y, style = above + (number + 0.5) * ROW, {"ha": "right", "va": "center_baseline"}
        put(axes, sure, y, word, fontsize=TEXT, **style)
        put(axes, left - 0.04, y, percent(share), fontsize=AXIS, color=SOFT, **style)


def _draw_band(axes: Axes, band: Band, x: float, above: float, rows: int, pitch: float, hues: Colours) -> float:
    """The columns of a band and its bracket; special tokens hatched, outside the scale. Gives its right edge. A strong
    cell against is hatched, one without a value crossed, and a sentence has its number."""
    if band.values is None:
        for number in range(rows):
            axes.add_patch(
                Rectangle(
                    (x, above + number * ROW),
                    APART,
                    ROW - 0.01,
                    linewidth=0,
                    facecolor=LIGHT["sunk"],
                    edgecolor=LIGHT["edge"],
                    hatch="//////",
                )
            )
        return x + APART
    for j, name in enumerate(band.columns):
        here, style = x + j * pitch, {"rotation": 90, "ha": "center", "va": "bottom"}
        put(axes, here + pitch / 2, above - 0.05, cut(name, AXIS, LONGEST), fontsize=AXIS, **style)
        for i, value in enumerate(map(float, band.values[:, j])):
            y = above + i * ROW
            against = hues.signed and value < -0.2 * hues.end
            colour = hues.shade(0.0 if np.isnan(value) else value)
            cell = Rectangle((here, y), pitch, ROW, facecolor=colour, edgecolor="white", linewidth=0.5)
            if against or np.isnan(value):
                cell.set_hatch("////" if against else "xxxx")
            axes.add_patch(cell)
            if hues.text:  # sentences
                put(
                    axes,
                    here + pitch / 2,
                    y + ROW / 2,
                    percent(value),
                    fontsize=AXIS,
                    ha="center",
                    va="center_baseline",
                )
    wide = len(band.columns) * pitch
    short = band.name.replace("sentence ", "s")
    name = band.name if text_width(band.name, SMALL) <= wide else short
    across(axes, x, x + wide, 0.17, name, upward=False)
    return x + wide


def _draw_own(axes: Axes, generation: Generation, x: float, above: float) -> None:
    """What each row holds of its own words, as a bar."""
    put(axes, x, above - 0.05, "its own words", fontsize=AXIS, va="bottom")
    wide = BAR - text_width("100 %", AXIS) - 0.12
    for number, share in enumerate(own_shares(generation).tolist()):
        y = above + number * ROW
        for part, colour in ((1.0, LIGHT["sunk"]), (share, LIGHT["edge"])):
            axes.add_patch(Rectangle((x, y + 0.04), wide * part, ROW - 0.08, facecolor=colour, linewidth=0))
        put(axes, x + wide + 0.05, y + ROW / 2, percent(share), fontsize=AXIS, va="center_baseline", color=SOFT)


def _meaning(generation: Generation, kind: str, signed: bool) -> str:
    """What the colours mean, and what was cut off."""
    unit = "points of probability lost when a word is left out; against (hatched): it stood in the way"
    if kind != "left_out":
        sides = "; for the written word, against it (hatched)" if signed else ""
        unit = f"share of the written word by {generation.method}{sides}; hatched columns: special tokens"
    note = cut_note(generation)
    return unit if note is None else f"{unit}. {note}"
