"""Scores as numbers in the cells of a heat map."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ...base.errors import InputError
from ..colors import LIGHT
from .layout import AXES, SMALL, put, widest
from .legend import Colours


def write_numbers(
    axes: Axes,
    values: NDArray[np.float64],
    colours: Colours,
    wide: float,
    high: float,
    *,
    middles: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """The scores in cells of so many inches: whole percents of shares. `middles` of columns and of rows: else their numbers."""
    write = _whole_percent if colours.percent else _number
    texts = [write(float(value)) for value in values.flat]
    size = _number_size(texts, wide, high)
    columns, rows = middles or (range(values.shape[1]), range(values.shape[0]))
    for (i, j), text in zip(np.ndindex(*values.shape), texts, strict=True):
        put(axes, columns[j], rows[i], text, ha="center", va="center", fontsize=size, color=LIGHT["ink"])


def _number_size(texts: Sequence[str], wide: float, high: float) -> float:
    """The font size of numbers in cells; cells that are too small for numbers are refused."""
    size = min(AXES, high * 72 / 1.1)
    size *= min(1.0, 0.96 * wide / widest(texts, size))
    if size < SMALL:
        raise InputError(
            f"cells of {wide:.2f} inches are too small for numbers. Give a larger width=, or leave numbers out."
        )
    return size


def _whole_percent(value: float) -> str:
    """A share in percent; a dot where it is under a half."""
    return f"{100 * value:.0f}".replace("-", "−") if abs(value) >= 0.005 else "·"


def _number(value: float) -> str:
    """A score without the zero before its point."""
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:.2g}"
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")
