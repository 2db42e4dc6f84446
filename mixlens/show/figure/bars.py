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


def draw_bars(result: Result, options: Options, top: int | None) -> Any:
    """A bar for each token, or for the `top` largest scores."""
    scores = array_of(result)
    places = _places(scores, top)
    more = () if top is None or top >= len(scores) else (f"the largest {top}",)
    title = options.title_or(title_of(result, *more))
    texts = [cut(shown(result.tokens[place]), SIZE, 0.35 * options.width) for place in places]
    if options.ax is None:
        pitch = max(0.02, min(0.15, (MOST_HIGH - 1) / len(places)))
        axes = _new_axes(texts, title, options.width, pitch)
    else:
        axes = options.ax
        write_head(axes, title)
        pitch = size_of(axes)[1] / (len(places) + 0.4)
    _draw(axes, [float(scores[place]) for place in places])
    _label(axes, texts, pitch, meaning_of([result], bool((scores < 0).any())))
    return axes.figure


def _places(scores: NDArray[np.float64], top: int | None) -> list[int]:
    """The positions that have a bar, from above."""
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, not {top!r}.")
    places = list(range(len(scores)))
    return places if top is None else sorted(places, key=lambda place: -abs(scores[place]))[:top]


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
