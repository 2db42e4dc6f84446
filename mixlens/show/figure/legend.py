"""The colours of scores, and the colour bar that explains them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..colors import shade
from .layout import BETWEEN, GAP, SMALL, axes_at, text_width, widest


class Colours(NamedTuple):
    """One hue from 0 up; two hues with white at 0 as soon as one score is negative (`signed`)."""

    cmap: ListedColormap
    norm: Normalize
    signed: bool

    @property
    def end(self) -> float:
        """The score that has the full hue."""
        return float(self.norm.vmax or 1)

    @property
    def ticks(self) -> list[str]:
        """The numbers beside the colour bar."""
        high = f"{float(f'{self.end:.2g}'):g}"
        return [f"−{high}", "0", high] if self.signed else ["0", high]


def colours_of(values: Sequence[NDArray[np.float64]], vmax: float | None) -> Colours:
    """The colours of all values together, up to `vmax` or to the largest magnitude."""
    signed = any(map(_has_minus, values))
    end = vmax or _largest(values) or 1.0
    least = -1 if signed else 0
    table = np.array([shade(step / 255) for step in range(least * 255, 256)]) / 255
    return Colours(ListedColormap(table), Normalize(least * end, end), signed)


def _has_minus(array: NDArray[np.float64]) -> bool:
    return bool((array < 0).any())


def _largest(values: Sequence[NDArray[np.float64]]) -> float:
    """The largest magnitude of all values."""
    return max((float(np.abs(array).max()) for array in values), default=0.0)


def upright_width(colours: Colours) -> float:
    """The width of an upright colour bar with its labels, in inches."""
    return BETWEEN + 0.08 + widest(colours.ticks, SMALL + 1) + 0.2 + GAP


def legend_below(page: Figure, left: float, top: float, room: float, colours: Colours, meaning: str) -> None:
    """A lying colour bar; its ends and its meaning stay inside the room in inches."""
    out = widest(colours.ticks, SMALL + 1) / 2
    wide = min(1.4, max(0.3, room - 2 * out))
    over = max(out if colours.signed else 0.02, (text_width(meaning, SMALL + 1) - wide) / 2)
    left = min(left + over, left + room - wide - over) if room > wide + 2 * over else left + over
    legend(axes_at(page, left, top, wide, 0.07), colours, meaning, upright=False)


def legend(axes: Axes, colours: Colours, label: str, *, upright: bool) -> None:
    """The colour bar: from the least to the largest score, 0 marked, and what it means."""
    draw = _draw_upright if upright else _draw_lying
    low, high = float(colours.norm.vmin or 0), colours.end
    draw(axes, colours, np.linspace(low, high, 128))
    places = [low, 0.0, high] if colours.signed else [low, high]
    (_label_right if upright else _label_below)(axes, places, colours.ticks, label)
    axes.tick_params(labelsize=SMALL + 1, length=1.5, width=0.4, pad=1.5)
    axes.set_gid("colours")
    thin_spines(axes)


def thin_spines(axes: Axes) -> None:
    """Thin lines around axes."""
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)


def _draw_upright(axes: Axes, colours: Colours, steps: NDArray[np.float64]) -> None:
    _draw(axes, colours, steps[:, None], (0.0, 1.0, float(steps[0]), float(steps[-1])))


def _draw_lying(axes: Axes, colours: Colours, steps: NDArray[np.float64]) -> None:
    _draw(axes, colours, steps[None, :], (float(steps[0]), float(steps[-1]), 0.0, 1.0))


def _draw(axes: Axes, colours: Colours, image: NDArray[np.float64], extent: tuple[float, float, float, float]) -> None:
    """The colours of a bar, from the least score to the largest."""
    style: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    axes.imshow(image, cmap=colours.cmap, norm=colours.norm, extent=extent, **style)


def _label_right(axes: Axes, places: Sequence[float], texts: Sequence[str], label: str) -> None:
    axes.set_yticks(places, texts)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set_ylabel(label, fontsize=SMALL + 1, labelpad=1)


def _label_below(axes: Axes, places: Sequence[float], texts: Sequence[str], label: str) -> None:
    axes.set_xticks(places, texts)
    axes.set_yticks([])
    axes.set_xlabel(label, fontsize=SMALL + 1, labelpad=1)
