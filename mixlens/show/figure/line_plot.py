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
    points: dict[str, list[tuple[float, Interval]]] = {}
    for name, values in ((str(name), values) for name, values in series.items()):
        if at is not None and len(at) != len(values):
            raise InputError(
                f"curve {name!r} has {len(values)} points and at= has {len(at)} places. Give one for each."
            )
        if not len(values):
            raise InputError(f"curve {name!r} has no points.")
        places = range(1, len(values) + 1) if at is None else at
        pairs = [one if isinstance(one, tuple) else (place, one) for place, one in zip(places, values, strict=True)]
        points[name] = [(float(place), _interval(value)) for place, value in pairs]
    if not points:
        raise InputError("there is nothing to draw: no curves were given.")
    check_axes(ax)
    check_save(save)
    with settings(font, new_figure=ax is None):
        axes: Any = ax
        if ax is None:  # with room below for the names of the curves
            wide = inches_of(width, wide=False)
            page = Picture(figsize=(wide, 0.62 * wide + 0.16 * math.ceil(len(points) / 3)), layout="constrained")
            axes = page.add_subplot()
            axes.spines[["top", "right"]].set_visible(False)
        if title:
            write_head(axes, title)
        lines(axes, {literal(researcher_name(name)): one for name, one in points.items()}, x=literal(x), y=literal(y))
        if ax is None:  # laid out once, so that every save gives the same bytes
            axes.figure.draw_without_rendering()
            axes.figure.set_layout_engine("none")
    return finished(axes.figure, ax, save)


def _interval(value: Any) -> Interval:
    """A plain number has no interval: its ends are NaN."""
    return value if isinstance(value, Interval) else Interval(float(value), math.nan, math.nan, 1, math.nan)
