"""`plot`: a Map, an Attribution or several of one kind -> a Picture. What does not fit is refused before anything is
drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...answers.generation import Generation
from ...base.doors import door
from ...base.errors import InputError, nearest
from ...types import Attribution, HeadMaps, Map, Result
from .bars import draw_bars
from .flow import draw_flow
from .heat import draw_grid, draw_heads, draw_layers, draw_matrices, draw_rows
from .layout import Options, inches_of
from .picture import check_axes, check_save, finished, settings
from .strips import draw_strips
from .wording import array_of, names_of
from .written import written_figure

KINDS = {"Attribution": ("strip", "bars"), "Map": ("matrix", "layers", "grid", "flow"), "HeadMaps": ("heads",)}
KINDS_OF_SEVERAL = {"Attribution": ("rows", "strip"), "Map": ("matrix", "layers")}
DRAW: dict[
    str, tuple[Callable[..., Any], tuple[str, ...]]
] = {  # what draws each kind, and the options that only it reads
    "strip": (draw_strips, ()),
    "bars": (draw_bars, ("top",)),
    "rows": (draw_rows, ("numbers", "scale")),
    "matrix": (draw_matrices, ("layer", "numbers", "scale", "pieces")),
    "layers": (draw_layers, ("query", "numbers", "scale")),
    "grid": (draw_grid, ("numbers",)),
    "heads": (draw_heads, ("layer", "numbers")),
    "flow": (draw_flow, ("query", "top", "rollout")),
}
NOT_TAKEN = (("scale", "matrix", False), ("pieces", "matrix", True))  # and whether there are several results
SCALES = ("own", "all")


@door
def plot(
    results: Result | HeadMaps | Sequence[Result] | Mapping[str, Result],
    *,
    kind: str | None = None,
    layer: int | None = None,
    query: int | str | None = None,
    ax: Axes | None = None,
    width: str | float | None = None,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    numbers: bool | None = None,
    top: int | None = None,
    scale: str | None = None,
    pieces: bool | None = None,
    rollout: str | None = None,
    vmax: float | None = None,
    colorbar: bool = True,
    font: str | Sequence[str] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Any:
    """A paper figure of one result, or of several with methods as rows (a list, or a dict by name). Gives a Picture.

    Attribution: "strip" (default), "bars" (`top=10`: the largest). Map: "matrix" of one `layer` (default, the last),
    "layers" (rows layers, columns tokens, for one `query`), "grid" of all layers, "flow" through all layers into one
    `query` (follows the `top` strongest words; `rollout` names another convention). HeadMaps: "heads" of one `layer`
    (the last), each named by what it does most. Several attributions: "rows", "strip"; several maps: "matrix",
    "layers". A Generation is drawn as "words", "sentences" (of the prompt) or "left_out" (what leaving out each word
    does). One matrix has words as rows and columns, sentences where words have no room; `pieces=True` draws the pieces
    of words. `width` is "single" (84 mm), "double" (174 mm) or inches; `scale` is "own" (each row, or each matrix, by
    its own largest score) or "all"; `numbers=True` writes scores into cells; `vmax` sets the end of the colours. With
    `ax` it is drawn there and the Axes are given back; `save` writes it to a file, too.
    """
    choices: dict[str, Any] = {"layer": layer, "query": query, "numbers": numbers, "top": top, "scale": scale}
    choices |= {"pieces": pieces, "rollout": rollout}
    if isinstance(results, Generation):
        for option, value in {**choices, "ax": ax, "labels": labels}.items():
            if value is not None:
                raise InputError(f"a figure of a Generation takes no {option}=.")
        _refuse_scale(None, vmax)
        check_save(save)
        with settings(font, new_figure=True):
            written = written_figure(results, kind, width=inches_of(width, wide=True), title=title, vmax=vmax)
        return finished(written, None, save)
    several = not isinstance(results, Attribution | Map | HeadMaps)
    every: list[Any] = _several(results) if several else [results]
    kind = _kind(kind, type(every[0]).__name__, several)
    for option, value in choices.items():  # one matrix alone has nothing to share a scale with
        if value is not None and (option not in DRAW[kind][1] or (option, kind, several) in NOT_TAKEN):
            count = "" if several else " of one result"
            raise InputError(f"a figure of kind {kind!r}{count} takes no {option}=.")
    _refuse_results(every, labels)
    _refuse_scale(scale, vmax)
    check_axes(ax)
    if ax is not None and (kind in ("grid", "heads", "flow") or (several and kind != "rows")):
        raise InputError(f"a figure of kind {kind!r} has many axes, so it takes no ax=.")
    check_save(save)
    options = Options(ax, inches_of(width, wide=several or kind in ("grid", "heads")), title, vmax, colorbar, **choices)
    keys = list(results) if isinstance(results, Mapping) else []
    names = [str(name) for name in labels or keys or names_of(every)]
    with settings(font, new_figure=ax is None):
        figure = DRAW[kind][0](every, names, options)
    return finished(figure, ax, save)


def _kind(kind: str | None, noun: str, several: bool) -> str:
    """The kind of figure, or the usual one; a kind that these results cannot have is refused."""
    known = (KINDS_OF_SEVERAL if several else KINDS)[noun]
    if kind in (None, *known):
        return kind or known[0]
    what = f"several {noun}s" if several else f"{'an' if noun == 'Attribution' else 'a'} {noun}"
    raise InputError(f"{what} cannot be drawn as {kind!r}. {nearest(str(kind), known)}")


def _several(results: Any) -> list[Result]:
    """Several results of one kind and of the same tokens."""
    every = list(results.values()) if isinstance(results, Mapping) else results
    if not isinstance(every, Sequence) or not all(isinstance(result, Attribution | Map) for result in every):
        what = type(results).__name__
        raise InputError(f"a figure is made of an Attribution, a Map or several of one kind, not of {what}.")
    if not every:
        raise InputError("there is nothing to draw: no results were given.")
    if len(set(map(type, every))) > 1:
        raise InputError(
            "attributions and maps cannot stand in one figure. Read the maps out first: map.readout(query)."
        )
    if any(result.tokens != every[0].tokens for result in every):
        raise InputError("these results are not of the same tokens, so they cannot share one axis.")
    return list(every)


def _refuse_results(results: Sequence[Result], labels: Sequence[str] | None) -> None:
    """Refuse results that cannot be drawn, and labels that are too few or too many. Scores are [token], [layer token
    token] or [layer head token token]."""
    for result in results:
        n, shape = len(result.tokens), tuple(result.scores.shape)
        if not n:
            raise InputError("there are no tokens to draw.")
        axes = {"Attribution": 0, "Map": 1, "HeadMaps": 2}[type(result).__name__]
        if 0 in shape or shape != ((*shape[:axes], n, n) if axes else (n,)):
            raise InputError(f"scores of shape {shape} do not fit {n} tokens.")
        if not np.isfinite(array_of(result)).all():
            raise InputError(f"{result.method!r} has scores that are not finite: there is nothing true to draw.")
    if labels is not None and len(labels) != len(results):
        raise InputError(f"{len(labels)} labels for {len(results)} results. Give one for each.")


def _refuse_scale(scale: str | None, vmax: float | None) -> None:
    if scale not in (None, *SCALES):
        raise InputError(f"unknown scale {scale!r}. {nearest(str(scale), SCALES)}")
    if vmax is not None and not 0 < vmax < math.inf:
        raise InputError(f"vmax must be a number above 0, not {vmax!r}.")
