"""Bars: one for each token, in the order of the text, or the largest scores first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...base.errors import InputError
from ...types import Result
from ..colors import LIGHT, hue_of
from ..tokens import shown
from .layout import (
    AXES,
    GAP,
    MOST_HIGH,
    SIZE,
    SMALL,
    axes_at,
    broken,
    cut,
    put,
    size_of,
    thinned,
    title_height,
    widest,
    write_head,
    write_title,
)
from .legend import number
from .options import Options
from .picture import Picture
from .wording import array_of, is_share, meaning_of, target_of, title_of


def draw_bars(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """A bar for each token, or for the `top` largest scores."""
    result, scores = results[0], array_of(results[0])
    places = _places(scores, options.top)
    title = options.title_or(title_of(result, *_how_many(options.top, len(scores))))
    texts = [cut(shown(result.tokens[place]), SIZE, 0.35 * options.width) for place in places]
    axes, pitch = _axes_and_pitch(texts, title, options)
    signed = bool((scores < 0).any())
    _draw(axes, [float(scores[place]) for place in places], pitch, signed=signed, percent=is_share(result))
    _label(axes, texts, pitch, _unit(result, signed=signed))
    if is_share(result):
        axes.xaxis.set_major_formatter(_percent)
    return axes.figure


def _percent(share: float, _: float) -> str:
    return f"{100 * share:g}\u2009%"


def _unit(result: Result, *, signed: bool) -> str:
    """The unit of the bars, with the names of both sides."""
    meaning = meaning_of([result], signed)
    return f"← against     {meaning}     for {target_of([result])} →".replace("for  →", "for →") if signed else meaning


def _places(scores: NDArray[np.float64], top: int | None) -> list[int]:
    """The positions that have a bar, from above: from most for to most against."""
    _refuse_top(top)
    largest = sorted(range(len(scores)), key=lambda place: -abs(scores[place]))[:top]
    return sorted(largest, key=lambda place: (-scores[place], place))


def _refuse_top(top: Any) -> None:
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")


def _how_many(top: int | None, count: int) -> tuple[str, ...]:
    """The part of the title that says how many bars there are, where some are left out."""
    return () if top is None or top >= count else (f"the largest {top}",)


def _axes_and_pitch(texts: Sequence[str], title: str, options: Options) -> tuple[Axes, float]:
    """Axes on a new page, or those of the user; and the inches from one bar to the next."""
    if options.ax is None:
        pitch = max(0.02, min(0.17, (MOST_HIGH - 1) / len(texts)))
        return _new_axes(texts, title, options.width, pitch), pitch
    write_head(options.ax, title)
    return options.ax, size_of(options.ax)[1] / (len(texts) + 0.4)


def _new_axes(texts: Sequence[str], title: str, width: float, pitch: float) -> Axes:
    """Axes on a new page, with room for the labels at the left and the title above."""
    left = widest(texts, SIZE) + 2 * GAP
    lines = broken(title, SIZE, width - 2 * GAP)
    above, high = GAP + title_height(lines), pitch * (len(texts) + 0.4)
    page = Picture(figsize=(width, above + high + 0.36))
    write_title(page, lines)
    return axes_at(page, left, above, width - left - 3 * GAP, high)


def _draw(axes: Axes, scores: Sequence[float], pitch: float, *, signed: bool, percent: bool) -> None:
    """The bars, hatched where they are against, with their numbers at their ends."""
    hues = [hue_of(score, signed=signed) for score in scores]
    made = axes.barh(range(len(scores)), scores, height=0.72, color=[LIGHT[hue] for hue in hues], linewidth=0)
    for bar, hue in zip(made, hues, strict=True):
        if hue == "against":
            bar.set(hatch="//////", edgecolor=LIGHT["against-tint"], linewidth=0)
    axes.axvline(0, color=LIGHT["edge"], linewidth=0.6)
    axes.set_ylim(len(scores) - 0.3, -0.7)
    _make_room(axes, scores)
    if pitch >= SMALL * 1.15 / 72:
        _write_values(axes, scores, hues, signed=signed, percent=percent)


def _make_room(axes: Axes, scores: Sequence[float]) -> None:
    """Room beyond the bars for their numbers."""
    low, high = min(0.0, *scores), max(0.0, *scores)
    beyond = 0.22 * ((high - low) or 1.0)
    axes.set_xlim(low - (beyond if low < 0 else 0), high + (beyond if high > 0 or low == 0 else 0))


def _write_values(axes: Axes, scores: Sequence[float], hues: Sequence[str], *, signed: bool, percent: bool) -> None:
    for place, (score, hue) in enumerate(zip(scores, hues, strict=True)):
        text = number(score, percent=percent, sign=signed)
        side = "right" if score < 0 else "left"
        put(axes, score, place, f" {text} ", ha=side, va="center_baseline", fontsize=SMALL, color=LIGHT[f"{hue}-ink"])


def _label(axes: Axes, texts: Sequence[str], pitch: float, meaning: str) -> None:
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    axes.set_xlabel(meaning, fontsize=AXES, labelpad=1, parse_math=False)
    axes.tick_params(axis="x", labelsize=AXES, length=2, width=0.5, pad=1.5, color=LIGHT["edge"])
    axes.tick_params(axis="y", length=0, pad=2)
    axes.locator_params(axis="x", nbins=4)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(linewidth=0.5, edgecolor=LIGHT["edge"])
