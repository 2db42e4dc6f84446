"""Bars: one for each token, in the order of the text, or the largest scores first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...types import Result
from ..colors import LIGHT, hue_of
from ..tokens import shown
from .layout import (
    AXES,
    GAP,
    MOST_HIGH,
    SIZE,
    SMALL,
    Options,
    axes_at,
    broken,
    checked_top,
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
from .picture import Picture
from .wording import array_of, is_share, meaning_of, target_of, title_of


def draw_bars(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """A bar for each token, or for the `top` largest scores, from most for to most against."""
    result, scores, top = results[0], array_of(results[0]), checked_top(options.top)
    largest = sorted(range(len(scores)), key=lambda place: -abs(scores[place]))[:top]
    places = sorted(largest, key=lambda place: (-scores[place], place))
    how_many = () if top is None or top >= len(scores) else (f"the largest {top}",)
    title = options.title_or(title_of(result, *how_many))
    texts = [cut(shown(result.tokens[place]), SIZE, 0.35 * options.width) for place in places]
    if options.ax is None:
        pitch = max(0.02, min(0.17, (MOST_HIGH - 1) / len(texts)))
        left, lines = widest(texts, SIZE) + 2 * GAP, broken(title, SIZE, options.room)
        above, high = GAP + title_height(lines), pitch * (len(texts) + 0.4)
        page = Picture(figsize=(options.width, above + high + 0.36))
        write_title(page, lines)
        axes = axes_at(page, left, above, options.width - left - 3 * GAP, high)
    else:
        axes = options.ax
        pitch = size_of(axes)[1] / (len(texts) + 0.4)
        write_head(axes, title)
    signed, percent = bool((scores < 0).any()), is_share(result)
    _draw(axes, [float(scores[place]) for place in places], signed, percent, pitch >= SMALL * 1.15 / 72)
    size, step = thinned(pitch)
    axes.set_yticks(range(0, len(texts), step), texts[::step], fontsize=size, parse_math=False)
    unit = meaning_of([result], signed)
    if signed:
        unit = f"← against     {unit}     for {target_of([result])} →".replace("for  →", "for →")
    axes.set_xlabel(unit, fontsize=AXES, labelpad=1, parse_math=False)
    axes.tick_params(axis="x", labelsize=AXES, length=2, width=0.5, pad=1.5, color=LIGHT["edge"])
    axes.tick_params(axis="y", length=0, pad=2)
    axes.locator_params(axis="x", nbins=4)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(linewidth=0.5, edgecolor=LIGHT["edge"])
    if percent:
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}\u2009%")
    return axes.figure


def _draw(axes: Any, scores: Sequence[float], signed: bool, percent: bool, valued: bool) -> None:
    """The bars, hatched where they are against, with their numbers at their ends, and room beyond for these."""
    hues = [hue_of(score, signed=signed) for score in scores]
    made = axes.barh(range(len(scores)), scores, height=0.72, color=[LIGHT[hue] for hue in hues], linewidth=0)
    for bar, hue in zip(made, hues, strict=True):
        if hue == "against":
            bar.set(hatch="//////", edgecolor=LIGHT["against-tint"], linewidth=0)
    axes.axvline(0, color=LIGHT["edge"], linewidth=0.6)
    axes.set_ylim(len(scores) - 0.3, -0.7)
    low, high = min(0.0, *scores), max(0.0, *scores)
    beyond = 0.22 * ((high - low) or 1.0)
    axes.set_xlim(low - (beyond if low < 0 else 0), high + (beyond if high > 0 or low == 0 else 0))
    for place, (score, hue) in enumerate(zip(scores, hues, strict=True)):
        if valued:
            text, side = number(score, percent=percent, sign=signed), "right" if score < 0 else "left"
            put(
                axes,
                score,
                place,
                f" {text} ",
                ha=side,
                va="center_baseline",
                fontsize=SMALL,
                color=LIGHT[f"{hue}-ink"],
            )
