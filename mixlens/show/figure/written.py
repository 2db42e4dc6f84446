"""A paper figure of a Generation: written words as rows, words or sentences of the prompt as columns under brackets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation, Transform
from numpy.typing import NDArray

from ...answers.generation import Generation
from ...answers.generation.wording import cut_note, group_shares, group_title, own_shares
from ...base.errors import InputError, nearest, printable
from ...base.text import percent
from ..colors import LIGHT, hue_of, scaled
from .layout import GAP, axes_at, cut, put, text_width, widest, write_title
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


@dataclass(frozen=True)
class Band:
    """Columns under one bracket, or a run of special tokens (`values` is None)."""

    name: str
    columns: tuple[str, ...]
    values: NDArray[np.float64] | None  # [row column]


def written_figure(
    generation: Generation, kind: str | None, *, width: float, title: str | None, vmax: float | None
) -> Picture:
    """The table of a Generation on a page of its own."""
    _refuse_kind(generation, kind)
    kind = kind or ("words" if _fits(generation, width) else "sentences")
    if kind != "sentences" and not _fits(generation, width):
        raise InputError(
            "the words of this prompt are too many for the width. Give a larger width=, or kind='sentences'."
        )
    return Sheet(generation, kind, width, title, vmax).draw()


def _refuse_kind(generation: Generation, kind: str | None) -> None:
    if kind not in (None, *KINDS):
        raise InputError(f"a Generation cannot be drawn as {kind!r}. {nearest(str(kind), KINDS)}")
    if kind == "left_out" and generation.effects is None:
        raise InputError("what leaving out does was not measured: draw generation.with_effects().")


def _fits(generation: Generation, width: float) -> bool:
    count = sum(word.counts for word in generation.columns)
    return count * LEAST + len(generation.text.groups) * BETWEEN <= width - _label_width(generation) - BAR - 3 * GAP


def _label_width(generation: Generation) -> float:
    words = [cut(printable(row.shown), TEXT, LONGEST) for row in generation.rows]
    return widest([*words, "written"], TEXT) + text_width("100 %", AXIS) + 0.16


def bands_of(generation: Generation, kind: str) -> list[Band]:
    """The columns from left to right."""
    bands: list[Band] = []
    seen: set[int] = set()
    for word in generation.columns[: generation.text.first]:
        if word.special and (not bands or bands[-1].values is not None):
            bands.append(Band("", (), None))
        elif word.group is not None and word.group not in seen:
            seen.add(word.group)
            bands.append(_band(generation, kind, word.group))
    return bands


def _band(generation: Generation, kind: str, number: int) -> Band:
    """The columns of one group: its words, or the group as one column."""
    groups = generation.text.groups
    name = group_title(groups[number], number, groups)
    if kind == "sentences":
        return Band(name, ("",), group_shares(generation).numpy()[:, [number]])
    words = list(groups[number].words)
    return Band(name, tuple(printable(generation.columns[k].text) for k in words), _table(generation, kind)[:, words])


def _table(generation: Generation, kind: str) -> NDArray[np.float64]:
    """The numbers of the words, [row column]: what leaving them out changes, or their scores."""
    return (generation.effects.words if kind == "left_out" and generation.effects else generation.matrix).numpy()


def _names_height(bands: Sequence[Band]) -> float:
    """The room of the names above the columns, which are written upwards."""
    names = [name for band in bands if band.values is not None for name in band.columns]
    return max(min(LONGEST, widest(names, AXIS)), 0.0) if any(names) else 0.0


def _hatch(value: float, hue: str, strength: float) -> str | None:
    """Crosses where there is no value, lines where a strong one is against."""
    if np.isnan(value):
        return "xxxx"
    return "////" if hue == "against" and strength > 0.2 else None


@dataclass(frozen=True)
class Sheet:
    """A figure that is drawn: what is on it, and how wide it is."""

    generation: Generation
    kind: str
    width: float
    title: str | None
    vmax: float | None

    @property
    def signed(self) -> bool:
        return self.kind == "left_out" or (self.kind == "words" and self.generation.signed)

    def draw(self) -> Picture:
        bands = bands_of(self.generation, self.kind)
        above = HEAD + _names_height(bands) + 0.06
        high = len(self.generation.rows) * ROW
        head = 0.2 if self.title else 0.0
        page = Picture(
            figsize=(
                self.width,
                GAP + head + above + high + LEGEND + (len(self._unit_lines(1.0)) - 1) * AXIS * 1.25 / 72 + GAP,
            )
        )
        axes = axes_at(page, 0, GAP + head, self.width, above + high)
        axes.set_xlim(0, self.width)
        axes.set_ylim(above + high, 0)
        axes.axis("off")
        if self.title:
            write_title(page, [self.title])
        self._rows(axes, above)
        most = self._most(bands)
        right = self._bands(axes, bands, above, most)
        if self.kind != "left_out":
            self._own(axes, right + BETWEEN, above)
        self._legend(page, GAP + head + above + high + 0.08, most)
        return page

    # - rows and columns

    def _rows(self, axes: Axes, above: float) -> None:
        """The written words and how sure the model was of each."""
        left = _label_width(self.generation)
        sure = left - text_width("100 %", AXIS) - 0.08
        put(axes, sure, above - 0.05, "written", fontsize=AXIS, ha="right", va="bottom", color=LIGHT["soft"])
        put(axes, left - 0.04, above - 0.05, "sure", fontsize=AXIS, ha="right", va="bottom", color=LIGHT["soft"])
        for number, row in enumerate(self.generation.rows):
            y = above + (number + 0.5) * ROW
            put(
                axes, sure, y, cut(printable(row.shown), TEXT, LONGEST), fontsize=TEXT, ha="right", va="center_baseline"
            )
            share = percent(self.generation.row_probabilities[number])
            put(axes, left - 0.04, y, share, fontsize=AXIS, ha="right", va="center_baseline", color=LIGHT["soft"])

    def _pitch(self, bands: Sequence[Band]) -> float:
        """The width of a column of a word or a sentence."""
        fixed = _label_width(self.generation) + (0 if self.kind == "left_out" else BAR + BETWEEN) + 3 * GAP
        room = self.width - fixed - len(bands) * BETWEEN - sum(band.values is None for band in bands) * APART
        count = sum(len(band.columns) for band in bands if band.values is not None)
        return min(GROUP if self.kind == "sentences" else MOST, room / max(1, count))

    def _bands(self, axes: Axes, bands: Sequence[Band], above: float, most: float) -> float:
        x, pitch = _label_width(self.generation) + GAP, self._pitch(bands)
        for band in bands:
            if band.values is None:
                self._apart(axes, x, above)
                x += APART + BETWEEN
                continue
            self._cells(axes, band, x, above, pitch, most)
            _bracket(axes, x, len(band.columns) * pitch, band.name)
            x += len(band.columns) * pitch + BETWEEN
        return x

    def _apart(self, axes: Axes, x: float, above: float) -> None:
        """Special tokens: hatched, outside the scale."""
        for number in range(len(self.generation.rows)):
            box = Rectangle(
                (x, above + number * ROW), APART, ROW - 0.01, facecolor=LIGHT["sunk"], hatch="//////", linewidth=0
            )
            box.set_edgecolor(LIGHT["edge"])
            axes.add_patch(box)

    def _cells(self, axes: Axes, band: Band, x: float, above: float, pitch: float, most: float) -> None:
        assert band.values is not None
        for j, name in enumerate(band.columns):
            here = x + j * pitch
            shown = cut(name, AXIS, LONGEST)
            put(axes, here + pitch / 2, above - 0.05, shown, fontsize=AXIS, rotation=90, ha="center", va="bottom")
            for i, value in enumerate(band.values[:, j]):
                self._cell(axes, float(value), (here, above + i * ROW, pitch), most)

    def _cell(self, axes: Axes, value: float, place: tuple[float, float, float], most: float) -> None:
        """A cell with its hue; against is hatched, and a sentence has its number."""
        x, y, pitch = place
        hue = hue_of(-value if self.kind == "left_out" else value, signed=self.signed)
        end = f"{hue}-tint" if self.kind == "sentences" else hue
        strength = 0.0 if np.isnan(value) else min(1.0, abs(value) / most)
        hatch = _hatch(value, hue, strength)
        box = Rectangle(
            (x, y), pitch, ROW, facecolor=scaled(strength, end), edgecolor="white", linewidth=0.5, hatch=hatch
        )
        axes.add_patch(box)
        if self.kind == "sentences":
            put(axes, x + pitch / 2, y + ROW / 2, percent(value), fontsize=AXIS, ha="center", va="center_baseline")

    def _own(self, axes: Axes, x: float, above: float) -> None:
        """What each row holds of its own words, as a bar."""
        put(axes, x, above - 0.05, "its own words", fontsize=AXIS, va="bottom")
        wide = BAR - text_width("100 %", AXIS) - 0.12
        for number, share in enumerate(own_shares(self.generation).tolist()):
            y = above + number * ROW
            axes.add_patch(Rectangle((x, y + 0.04), wide, ROW - 0.08, facecolor=LIGHT["sunk"], linewidth=0))
            axes.add_patch(Rectangle((x, y + 0.04), wide * share, ROW - 0.08, facecolor=LIGHT["edge"], linewidth=0))
            text = {"fontsize": AXIS, "va": "center_baseline", "color": LIGHT["soft"]}
            put(axes, x + wide + 0.05, y + ROW / 2, percent(share), **text)

    # - the scale

    def _most(self, bands: Sequence[Band]) -> float:
        """The end of the scale: the largest cell but for a few, or what the user says."""
        sizes = np.concatenate(
            [np.abs(band.values).ravel() for band in bands if band.values is not None] or [np.zeros(1)]
        )
        found = float(np.nanquantile(sizes, CUT)) if np.isfinite(sizes).any() else 0.0
        return self.vmax or found or 1.0

    def _legend(self, page: Picture, top: float, most: float) -> None:
        """The colour bar, with the sides in words and the unit below."""
        axes = axes_at(page, _label_width(self.generation) + GAP, top, 1.4, 0.08)
        steps = np.linspace(-1 if self.signed else 0, 1, 64)
        for number, step in enumerate(steps):
            hue = hue_of(float(step), signed=self.signed)
            end = f"{hue}-tint" if self.kind == "sentences" else hue
            axes.add_patch(Rectangle((number, 0), 1.05, 1, facecolor=scaled(float(step), end), linewidth=0))
        axes.set_xlim(0, len(steps))
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.set_xticks([0, 32, 64] if self.signed else [0, 64], self._ticks(most), fontsize=AXIS)
        axes.tick_params(length=1.5, width=0.4, pad=1.5)
        axes.set_gid("colours")
        for spine in axes.spines.values():
            spine.set_linewidth(0.4)
        self._write_unit(page, top + 0.24, most)

    def _write_unit(self, page: Picture, top: float, most: float) -> None:
        """What the colours mean, below the bar, in as many lines as it needs."""
        axes = axes_at(page, GAP, top, self.width - 2 * GAP, 0.01)
        axes.axis("off")
        for number, line in enumerate(self._unit_lines(most)):
            put(axes, 0, 0, line, fontsize=AXIS, va="top", transform=_down(page, axes, number * AXIS * 1.25))

    def _unit_lines(self, most: float) -> list[str]:
        lines = [""]
        for word in self._unit(most).split(" "):
            longer = f"{lines[-1]} {word}".strip()
            fits = 1.06 * text_width(longer, AXIS) <= self.width - 2 * GAP  # a screen's letters are a little wider
            lines = [*lines[:-1], longer] if fits else [*lines, word]
        return lines

    def _ticks(self, most: float) -> list[str]:
        if self.kind == "left_out":
            size = f"{100 * most:.2g}"
            return [f"+{size}", "0", f"−{size}"]
        return [percent(-most), "0", percent(most)] if self.signed else ["0", percent(most)]

    def _unit(self, most: float) -> str:
        note = cut_note(self.generation)
        return self._scale(most) if note is None else f"{self._scale(most)}. {note}"

    def _scale(self, most: float) -> str:
        if self.kind == "left_out":
            return "points of probability when a word is left out: + it stood in the way (hatched), − it was needed"
        sides = "; for the written word, against it (hatched)" if self.signed else ""
        full = "" if self.vmax else f"; {percent(most)} and more have the full colour"
        return f"share of the written word by {self.generation.method}{full}{sides}; hatched columns: special tokens"


def _down(page: Picture, axes: Axes, points: float) -> Transform:
    """The coordinates of axes, so many points further down."""
    return axes.transAxes + ScaledTranslation(0, -points / 72, page.dpi_scale_trans)


def _bracket(axes: Axes, x: float, wide: float, name: str) -> None:
    """A bracket over the columns of a sentence or a turn."""
    axes.add_line(Line2D([x, x, x + wide, x + wide], [0.21, 0.17, 0.17, 0.21], color=LIGHT["edge"], linewidth=0.6))
    room = max(wide, 0.1)
    short = name.replace("sentence ", "s")
    text = name if text_width(name, AXIS) <= room else cut(short, AXIS, room)
    put(axes, x + wide / 2, 0.14, text, fontsize=AXIS, ha="center", va="bottom")
