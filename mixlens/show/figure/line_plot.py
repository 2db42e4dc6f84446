"""Curves: faithfulness curves, metrics by layer, with intervals as bands."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from ...errors import InputError
from ...metrics import Interval
from ..curves import lines
from .layout import inches_of, literal, write_head
from .picture import Picture, check_axes, check_path, finished, settings

Points = list[tuple[float, Interval]]


def curves(
    made: Mapping[str, Sequence[Any]],
    *,
    at: Sequence[float] | None = None,
    x: str = "layer",
    y: str = "",
    ax: Axes | None = None,
    width: str | float | None = None,
    title: str | None = None,
    font: str | Sequence[str] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """One curve for each name, intervals as bands: faithfulness curves, metrics by layer.

    Each is a sequence of numbers or `Interval`s, at `at` (by default 1, 2, 3, ...), or of (place, number) pairs.
    """
    points = {str(name): _points(str(name), values, at) for name, values in made.items()}
    if not points:
        raise InputError("there is nothing to draw: no curves were given.")
    check_axes(ax)
    if save is not None:
        check_path(save)
    with settings(font, new_figure=ax is None):
        axes = _new_axes(width, len(points)) if ax is None else ax
        if title:
            write_head(axes, title)
        lines(axes, {literal(name): line for name, line in points.items()}, x=literal(x), y=literal(y))
        if ax is None:
            axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # the layout is fixed, so every save gives the same bytes
            axes.figure.set_layout_engine("none")  # type: ignore[union-attr]
    return finished(axes.figure, ax, save)


def _new_axes(width: str | float | None, count: int) -> Axes:
    """Axes of a new figure, with room below for the names of `count` curves."""
    wide = inches_of(width, wide=False)
    page = Picture(figsize=(wide, 0.62 * wide + 0.16 * math.ceil(count / 3)), layout="constrained")
    axes = page.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _points(name: str, values: Sequence[Any], at: Sequence[float] | None) -> Points:
    """A curve as places and intervals. A plain number has no interval: its ends are NaN."""
    if at is not None and len(at) != len(values):
        raise InputError(f"curve {name!r} has {len(values)} points and at= has {len(at)} places. Give one for each.")
    if not len(values):
        raise InputError(f"curve {name!r} has no points.")
    places = range(1, len(values) + 1) if at is None else at
    pairs = [value if isinstance(value, tuple) else (place, value) for place, value in zip(places, values, strict=True)]
    return [(float(place), _interval(value)) for place, value in pairs]


def _interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(float(value), math.nan, math.nan, 1, math.nan)
