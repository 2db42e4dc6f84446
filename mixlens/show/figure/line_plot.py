"""Curves: faithfulness curves, metrics by layer, with intervals as bands."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from ...base.errors import InputError
from ...metrics import Interval
from ..curves import lines
from .layout import inches_of, literal, write_head
from .picture import Picture, check_axes, check_save, finished, settings
from .wording import researcher_name

Points = list[tuple[float, Interval]]


def curves(
    series: Mapping[str, Sequence[Any]],
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
    points = {str(name): _points(str(name), values, at) for name, values in series.items()}
    if not points:
        raise InputError("there is nothing to draw: no curves were given.")
    check_axes(ax)
    check_save(save)
    with settings(font, new_figure=ax is None):
        axes = _new_axes(width, len(points)) if ax is None else ax
        _draw(axes, points, title, x, y)
        if ax is None:
            _fix_layout(axes.figure)
    return finished(axes.figure, ax, save)


def _draw(axes: Axes, points: Mapping[str, Points], title: str | None, x: str, y: str) -> None:
    """The curves on axes, with their title and the names of the axes."""
    if title:
        write_head(axes, title)
    lines(axes, {literal(researcher_name(name)): line for name, line in points.items()}, x=literal(x), y=literal(y))


def _fix_layout(figure: Any) -> None:
    """Lays a figure out once, so that every save gives the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _new_axes(width: str | float | None, count: int) -> Axes:
    """Axes of a new figure, with room below for the names of `count` curves."""
    wide = inches_of(width, wide=False)
    page = Picture(figsize=(wide, 0.62 * wide + 0.16 * math.ceil(count / 3)), layout="constrained")
    axes = page.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _points(name: str, values: Sequence[Any], at: Sequence[float] | None) -> Points:
    """A curve as places and intervals."""
    _refuse_values(name, values, at)
    places = range(1, len(values) + 1) if at is None else at
    pairs = [value if isinstance(value, tuple) else (place, value) for place, value in zip(places, values, strict=True)]
    return [(float(place), _interval(value)) for place, value in pairs]


def _refuse_values(name: str, values: Sequence[Any], at: Sequence[float] | None) -> None:
    if at is not None and len(at) != len(values):
        raise InputError(f"curve {name!r} has {len(values)} points and at= has {len(at)} places. Give one for each.")
    if not len(values):
        raise InputError(f"curve {name!r} has no points.")


def _interval(value: Any) -> Interval:
    """A plain number has no interval: its ends are NaN."""
    return value if isinstance(value, Interval) else Interval(float(value), math.nan, math.nan, 1, math.nan)
