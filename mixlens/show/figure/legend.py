"""The colours of scores, and the colour bar that explains them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..colors import LIGHT, scaled
from .layout import AXES, BETWEEN, GAP, axes_at, text_width, widest

STEPS = 255  # colours from 0 to the largest score
NUMBERS = 20  # letters of a target's name beside a colour bar


class Colours(NamedTuple):
    """Violet from 0 up; as soon as one score is negative (`signed`) orange against and blue for, with white at 0. `text`: the
    lighter end of each hue, behind text; `percent`: scores are shares; `target`: what scores speak for."""

    cmap: ListedColormap
    norm: Normalize
    signed: bool
    text: bool = False
    percent: bool = False
    target: str = ""
    beyond: bool = False  # whether some scores are larger than the end

    @property
    def end(self) -> float:
        """The score that has the full hue."""
        return float(self.norm.vmax or 1)

    @property
    def ticks(self) -> list[str]:
        """The numbers beside the colour bar; where scores have signs, both sides by name."""
        high = number(self.end, percent=self.percent)
        more = " and more" if self.beyond else ""
        return (
            [f"−{high}{more}", "0", f"{high}{more}"]
            if self.signed
            else [number(0, percent=self.percent), f"{high}{more}"]
        )

    @property
    def sides(self) -> tuple[str, str] | None:
        """What the two ends are called."""
        named = self.target if len(self.target) <= NUMBERS else self.target[: NUMBERS - 1] + "…"
        return ("against", f"for {named}".strip()) if self.signed else None

    def shade(self, score: float) -> str:
        """The colour of a score."""
        return self.step(max(-1.0, min(1.0, score / self.end)))

    def step(self, share: float) -> str:
        """The colour of a share of the end, -1 to 1."""
        return scaled(share, self.hue(share) + ("-tint" if self.text else ""))

    def hue(self, share: float) -> str:
        """ "for", "against", or "share" where scores have no sign."""
        return ("against" if share < 0 else "for") if self.signed else "share"


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
) -> Colours:
    """The colours of all values together, up to `vmax` or to the largest magnitude."""
    signed = any(map(_has_minus, values))
    end = vmax or _largest(values) or 1.0
    least = -1 if signed else 0
    beyond = _largest(values) > end * (1 + 1e-9)
    plain = Colours(ListedColormap(["#ffffff"]), Normalize(least * end, end), signed, text, percent, target, beyond)
    table = [plain.step(step / STEPS) for step in range(least * STEPS, STEPS + 1)]
    return plain._replace(cmap=ListedColormap(table, name="signed" if signed else "share"))


def _has_minus(array: NDArray[np.float64]) -> bool:
    return bool((array < 0).any())


def _largest(values: Sequence[NDArray[np.float64]]) -> float:
    """The largest magnitude of all values."""
    return max((float(np.abs(array).max()) for array in values), default=0.0)


def upright_width(colours: Colours) -> float:
    """The width of an upright colour bar with its labels, in inches."""
    return BETWEEN + 0.08 + _tick_width(colours) + 0.2 + GAP


def _tick_width(colours: Colours) -> float:
    """The width of the widest line beside a colour bar."""
    return widest([line for text in _tick_texts(colours) for line in text.split("\n")], AXES)


def legend_below(page: Figure, left: float, top: float, room: float, colours: Colours, meaning: str) -> None:
    """A lying colour bar; its ends and its meaning stay inside the room in inches."""
    out = _tick_width(colours) / 2
    wide = min(1.4, max(0.3, room - 2 * out))
    over = max(out, (widest(meaning.split("\n"), AXES) - wide) / 2)
    left = min(left + over, left + room - wide - over) if room > wide + 2 * over else left + over
    legend(axes_at(page, left, top, wide, 0.07), colours, meaning, upright=False)


def meaning_lines(meaning: str, room: float) -> list[str]:
    """What a lying colour bar means, in lines that fit the room in inches."""
    lines = [""]
    for word in meaning.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        fits = not lines[-1] or text_width(longer, AXES) <= room
        lines = [*lines[:-1], longer] if fits else [*lines, word]
    return lines


def legend(axes: Axes, colours: Colours, label: str, *, upright: bool) -> None:
    """The colour bar: from the least to the largest score, 0 marked, and what it means."""
    draw = _draw_upright if upright else _draw_lying
    low, high = float(colours.norm.vmin or 0), colours.end
    draw(axes, colours, np.linspace(low, high, 128))
    places = [low, 0.0, high] if colours.signed else [low, high]
    (_label_right if upright else _label_below)(axes, places, _tick_texts(colours), label)
    axes.tick_params(labelsize=AXES, length=1.5, width=0.4, pad=1.5, color=LIGHT["edge"])
    axes.set_gid("colours")
    thin_spines(axes)


def _tick_texts(colours: Colours) -> list[str]:
    """The numbers beside a colour bar; below those of the two ends the names of the sides."""
    if colours.sides is None:
        return colours.ticks
    low, zero, high = colours.ticks
    return [f"{low}\n{colours.sides[0]}", zero, f"{high}\n{colours.sides[1]}"]


def thin_spines(axes: Axes) -> None:
    """Thin lines around axes."""
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
        spine.set_edgecolor(LIGHT["edge"])


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
    axes.set_ylabel(label, fontsize=AXES, labelpad=1)


def _label_below(axes: Axes, places: Sequence[float], texts: Sequence[str], label: str) -> None:
    axes.set_xticks(places, texts)
    axes.set_yticks([])
    axes.set_xlabel(label, fontsize=AXES, labelpad=1)
