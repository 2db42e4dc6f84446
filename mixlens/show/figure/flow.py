"""The flow of a map as a paper figure: bands from the words (below) through the layers into the position that is read
(above).

The numbers are those of the flow page (`flow_numbers`): the width of a band is the share of the answer that passes,
every level adds up to 100 %, and what came from the columns that are followed is violet.
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

from ...base.errors import printable
from ...base.text import THIN, at_most, listed, percent
from ...scoring.by_word import tokens_meant
from ..colors import LIGHT, mixed
from ..flow_numbers import DRAWN
from ..flow_page import Picture as Numbers
from ..flow_page import picture_of
from ..page_entry import is_answer
from .layout import (
    AXES,
    GAP,
    SMALL,
    Options,
    axes_at,
    broken,
    checked_top,
    cut,
    cut_between_words,
    put,
    text_width,
    title_height,
    write_title,
)
from .legend import Note, across, note_height, noted, source_brackets, write_notes
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
BOLDER, HIGHER = 1.12, 1.04  # bold letters are so much wider than those that are measured, others a little
ROOM = 0.05  # inches between the bars of a level
ABOVE = 0.3  # inches: what the answer is, and where it is read
SEEN = 0.0004  # of the answer: a smaller part of a band has no hue of its own
DIGITS = 9  # of inches
REST = mixed("edge", "surface", 0.34)
STEPS = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3, Outline.CLOSEPOLY]


def draw_flow(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """The flow through all layers of one map into the position of `query`; the `top` strongest columns are followed,
    without `top` the strongest alone."""
    scores = results[0]
    left = GAP + text_width(f"layer {len(scores.scores)}", AXES) + 0.08  # the names of the levels
    most = int((options.width - left - GAP) / LEAST) - 3  # the position itself and the marks
    query = None if options.query is None else tokens_meant(scores, options.query)
    numbers = picture_of(scores, query=query, rollout=options.rollout, most=max(4, min(MOST, most)))
    top = checked_top(options.top) or 1
    places = [place for place, group in enumerate(numbers.groups) if group.kind == numbers.unit]
    followed = sorted(places, key=lambda place: -numbers.flow.shares[0, place])[:top]
    title = options.title_or(title_of(scores, f"into {numbers.title}"))
    lines = broken(title, 8.0, options.room)
    read = len(numbers.read) == 1 and is_answer(scores, numbers.query)
    room = options.width - left - GAP
    plan = Plan(numbers, followed, left, room, GAP + title_height(lines) + ABOVE)
    labels = _labels(plan)
    heights = [text_width(text, plan.size) * (BOLDER if at in followed else HIGHER) for at, text in enumerate(labels)]
    brackets = source_brackets([group.members[0] for group in numbers.groups])
    below = plan.level(0) + 0.08 + max(heights) + (0.24 if brackets else 0.06)
    notes = noted(_notes(plan, "the answer" if read else "the flow"), options.room)
    page = Picture(figsize=(options.width, below + note_height(notes) + GAP))
    write_title(page, lines)
    axes = axes_at(page, 0, 0, options.width, below, inches=True)
    _draw_bands(axes, plan)
    _draw_levels(axes, plan)
    middle, prediction = left + room / 2, numbers.prediction if read else []
    place = printable(numbers.title)
    name = f"the answer: {printable(prediction[0][0])}" if prediction else place
    put(axes, middle, plan.top - 0.19, cut(name, 8.0, room), fontsize=8.0, ha="center", va="baseline")
    if prediction:
        put(
            axes,
            middle,
            plan.top - 0.07,
            cut(f"read at {place}", AXES, room),
            fontsize=AXES,
            ha="center",
            va="baseline",
            color=LIGHT["soft"],
        )
    _write_labels(axes, plan, labels)
    for one in brackets:
        start, stop = float(plan.edges[one.start]) + 0.03, float(plan.edges[one.stop]) - 0.03
        across(axes, start, stop, below - 0.2, one.name, upward=True)
    write_notes(page, notes, GAP, below)
    return page


@dataclass(frozen=True)
class Plan:
    """Where everything of a flow goes, in inches; `top` is the level of the answer."""

    numbers: Numbers
    followed: Sequence[int]  # columns, the strongest first
    left: float
    room: float
    top: float

    @property
    def layers(self) -> int:
        return len(self.numbers.flow.rolled)

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

    def middle(self, level: int, column: int) -> float:
        """The middle of a column's bar; the answer's stands in the middle of the figure."""
        return self.left + self.room / 2 if level == self.layers else float(self.edges[column : column + 2].mean())

    def level(self, number: int) -> float:
        """The height of a level: 0 is the input."""
        return self.top + (self.layers - number) * (LEVEL if self.layers < MANY else MANY_LEVELS)

    @cached_property
    def size(self) -> float:
        """The font size of names."""
        return AXES if float(np.diff(self.edges).min()) >= AXES * 1.15 / 72 else SMALL


def _draw_bands(axes: Axes, plan: Plan) -> None:
    """All bands in grey, the widest last, then the followed parts of them. Bands that are equally wide but for rounding
    keep their order: a picture is the same on every processor."""
    drawn = plan.numbers.flow.bands
    own = drawn.parts[:, list(plan.followed)].sum(1) * plan.scale
    wide = drawn.share * plan.scale
    starts = _stacked(plan, drawn.layer, drawn.below, drawn.layer + 1, drawn.above)
    ends = _stacked(plan, drawn.layer + 1, drawn.above, drawn.layer, drawn.below)
    for widths, hue, least in ((wide, REST, -1.0), (own, LIGHT["share"], SEEN * plan.scale)):
        for one in np.argsort(np.round(widths, DIGITS), kind="stable"):
            if widths[one] <= least:
                continue
            low, up = plan.level(drawn.layer[one]) - BAR / 2, plan.level(drawn.layer[one] + 1) + BAR / 2
            half, a, b, across_ = (low + up) / 2, starts[one], ends[one], float(min(wide[one], widths[one]))
            rise = [(a, low), (a, half), (b, half), (b, up)]
            fall = [(b + across_, up), (b + across_, half), (a + across_, half), (a + across_, low), (a, low)]
            axes.add_patch(PathPatch(Outline([*rise, *fall], STEPS), facecolor=hue, linewidth=0))


def _stacked(plan: Plan, levels: Any, columns: Any, far_levels: Any, far_columns: Any) -> list[float]:
    """The left edge of each band at one of its ends; those that end at one place lie side by side, in the order of
    where they come from."""
    shares, placed = plan.numbers.flow.bands.share, [0.0] * len(levels)
    for level, column in sorted(set(zip(levels.tolist(), columns.tolist(), strict=True))):
        here = np.flatnonzero((levels == level) & (columns == column))
        at = plan.middle(level, column) - float(shares[here].sum()) * plan.scale / 2
        for one in sorted(here.tolist(), key=lambda one: plan.middle(int(far_levels[one]), int(far_columns[one]))):
            placed[one] = at
            at += float(shares[one]) * plan.scale
    return placed


def _draw_levels(axes: Axes, plan: Plan) -> None:
    """What each column holds of the answer after a layer, as a bar; violet where most of it came from the followed
    columns."""
    flow = plan.numbers.flow
    for level in range(plan.layers + 1):
        name, height = f"layer {level}" if level else "input", plan.level(level)
        put(axes, GAP, height, name, fontsize=AXES, va="center_baseline", color=LIGHT["soft"])
        for column in range(len(plan.numbers.groups)) if level < plan.layers else [plan.numbers.column]:
            share = float(flow.shares[level, column])
            own = float(flow.origins[level, column, list(plan.followed)].sum())
            wide = max(0.01, share * plan.scale)
            corner = (plan.middle(level, column) - wide / 2, height - BAR / 2)
            colour = LIGHT["share" if own > 0.5 * share else "soft"]
            axes.add_patch(Rectangle(corner, wide, BAR, facecolor=colour, linewidth=0))


def _labels(plan: Plan) -> list[str]:
    """What stands below each column: its name (of a group its number and its first words) and its share."""
    labels = []
    for group, share in zip(plan.numbers.groups, plan.numbers.flow.shares[0].tolist(), strict=True):
        value = percent(share)
        taken = text_width(f"  {value}", plan.size)
        name = cut(printable(group.name), plan.size, LONGEST - taken)
        if group.kind in ("sentence", "part"):
            begins = cut_between_words(group.text, plan.size, LONGEST_TEXT - taken)
            name = f"{group.name}  {begins}"
        labels.append(f"{name}  {value}")
    return labels


def _write_labels(axes: Axes, plan: Plan, labels: Sequence[str]) -> None:
    for place, text in enumerate(labels):
        style: dict[str, Any] = {"rotation": 270, "ha": "center", "va": "top", "fontsize": plan.size}
        if place in plan.followed:
            style |= {"color": LIGHT["share-ink"], "fontweight": "bold"}
        elif plan.numbers.groups[place].mark:
            style |= {"color": LIGHT["soft"], "style": "italic"}
        put(axes, plan.middle(0, place), plan.level(0) + 0.06, text, **style)


def _notes(plan: Plan, whole: str) -> list[Note]:
    """The legend: hues, a sample of a width, and what is left out. A quote that was opened is closed where a name is
    cut."""
    flow, groups, unit = plan.numbers.flow, plan.numbers.groups, plan.numbers.unit
    names = []
    for title in (printable(groups[place].title) for place in plan.followed):
        short = cut(title, SMALL, LONGEST)
        names.append(f"{short}”" if short != title and title.endswith("”") else short)
    together = percent(float(sum(flow.shares[0, place] for place in plan.followed)))
    notes = [
        Note(f"from {listed(names)}: {together} of {whole}", LIGHT["share"], 0.25),
        Note("everything else", REST, 0.25),
        Note(f"this wide: 10{THIN}% of {whole}", LIGHT["soft"], 0.1 * plan.scale),
        Note("a bar is violet where more than half of it is"),
        Note(f"bands under {100 * DRAWN:.2f}{THIN}% are not drawn: {at_most(flow.undrawn)} of a level"),
    ]
    if unit != "word":
        words = sum(len(group.words) for group in groups if group.kind == unit)
        sums = "have no room side by side; a column is the sum of its words"
        notes.append(Note(f"columns are {unit}s: {words} words {sums}"))
    return notes
