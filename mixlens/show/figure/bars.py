"""Bars: one for each token, in the order of the text, or the largest scores first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...errors import InputError
from ...types import Result
from ..colors import AGAINST, TOWARDS, hex_of
from ..tokens import shown
from .layout import (
    GAP,
    MOST_HIGH,
    SIZE,
    SMALL,
    axes_at,
    broken,
    cut,
    size_of,
    thinned,
    title_height,
    widest,
    write_head,
    write_title,
)
from .options import Options
from .picture import Picture
from .wording import array_of, meaning_of, title_of


def draw_bars(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """A bar for each token, or for the `top` largest scores."""
    result, scores = results[0], array_of(results[0])
    places = _places(scores, options.top)
    title = options.title_or(title_of(result, *_how_many(options.top, len(scores))))
    texts = [cut(shown(result.tokens[place]), SIZE, 0.35 * options.width) for place in places]
    axes, pitch = _axes_and_pitch(texts, title, options)
    _draw(axes, [float(scores[place]) for place in places])
    _label(axes, texts, pitch, meaning_of([result], bool((scores < 0).any())))
    return axes.figure


def _places(scores: NDArray[np.float64], top: int | None) -> list[int]:
    """The positions that have a bar, from above."""
    places = list(range(len(scores)))
    if top is None:
        return places
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")
    return sorted(places, key=lambda place: -abs(scores[place]))[:top]


def _how_many(top: int | None, count: int) -> tuple[str, ...]:
    """The part of the title that says how many bars there are, where some are left out."""
    return () if top is None or top >= count else (f"the largest {top}",)


def _axes_and_pitch(texts: Sequence[str], title: str, options: Options) -> tuple[Axes, float]:
    """Axes on a new page, or those of the user; and the inches from one bar to the next."""
    if options.ax is None:
        pitch = max(0.02, min(0.15, (MOST_HIGH - 1) / len(texts)))
        return _new_axes(texts, title, options.width, pitch), pitch
    write_head(options.ax, title)
    return options.ax, size_of(options.ax)[1] / (len(texts) + 0.4)


def _new_axes(texts: Sequence[str], title: str, width: float, pitch: float) -> Axes:
    """Axes on a new page, with room for the labels at the left and the title above."""
    left = widest(texts, SIZE) + 2 * GAP
    lines = broken(title, SIZE, width - 2 * GAP)
    above, high = GAP + title_height(lines), pitch * (len(texts) + 0.4)
    page = Picture(figsize=(width, above + high + 0.33))
    write_title(page, lines)
    return axes_at(page, left, above, width - left - 3 * GAP, high)


def _draw(axes: Axes, scores: Sequence[float]) -> None:
    colours = [hex_of(TOWARDS if score >= 0 else AGAINST) for score in scores]
    axes.barh(range(len(scores)), scores, height=0.78, color=colours)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_ylim(len(scores) - 0.3, -0.7)


def _label(axes: Axes, texts: Sequence[str], pitch: float, meaning: str) -> None:
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    axes.set_xlabel(meaning, fontsize=SIZE, labelpad=1)
    axes.tick_params(axis="x", labelsize=SMALL + 1, length=2, width=0.5, pad=1.5)
    axes.tick_params(axis="y", length=0, pad=2)
    axes.locator_params(axis="x", nbins=4)
    axes.spines[["top", "right", "left"]].set_visible(False)
