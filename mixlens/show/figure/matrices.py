"""Which heat maps are drawn: methods by tokens, one layer, layers by tokens, all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...aggregate import find
from ...errors import InputError, printable
from ...types import Result
from ..tokens import shown
from .heat import Panel, draw_heat
from .options import Options
from .wording import array_of, meaning_of, title_of


def draw_rows(results: Sequence[Result], names: Sequence[str], options: Options, scale: str) -> Any:
    """Methods as rows, tokens as columns."""
    values = _by_row(np.stack([array_of(result) for result in results]), scale)
    title = options.title_or(_title_of_rows(results))
    labels = [printable(name) for name in names]
    return draw_heat([Panel(values)], scale, options, title, results=results, rows=labels, row_name="")


def _title_of_rows(results: Sequence[Result]) -> str:
    """The title of the first result where all are of one method, but for its layer (the rows name it); else its position."""
    first = results[0]
    if len({result.method for result in results}) == 1:
        info = {key: value for key, value in first.info.items() if key not in ("layer", "at_layer")}
        return title_of(replace(first, info=info))
    return f"at {shown(first.info['query_token'])}" if "query_token" in first.info else ""


def draw_matrices(results: Sequence[Result], names: Sequence[str], options: Options, layer: int, scale: str | None) -> Any:
    """One layer of each map: what each position (row) took from each token (column)."""
    for result in results:
        _refuse_layer(layer, result, len(results[0].scores))
    places = [f"layer {layer % len(result.scores) + 1}" for result in results]
    several = len(results) > 1
    panels = [
        Panel(array_of(result)[layer], f"{name} · {title_of(result, place, method=False)}" if several else "")
        for result, name, place in zip(results, names, places, strict=True)
    ]
    title = options.title_or("" if several else title_of(results[0], places[0]))
    return draw_heat(*_scaled(panels, results, scale), options, title, results=results)


def _refuse_layer(layer: Any, result: Result, depth: int) -> None:
    """Refuse a layer that a map does not have; the message names the `depth` of the first map."""
    there = len(result.scores)
    if isinstance(layer, bool) or not isinstance(layer, int) or not -there <= layer < there:
        raise InputError(f"layer {layer!r} is out of range: the map has {depth} layers, 0 to {depth - 1}.")


def draw_layers(
    results: Sequence[Result], names: Sequence[str], options: Options, query: int | str | None, scale: str | None
) -> Any:
    """Rows layers, columns tokens: what one position is made of after each layer."""
    first, several = results[0], len(results) > 1
    place = _usual_query(first) if query is None else find(first.tokens, query)
    if len({len(result.scores) for result in results}) > 1:
        raise InputError("these maps have different numbers of layers, so they cannot share one axis.")
    scale = _usual_scale(results) if scale is None else scale
    panels = [
        Panel(_by_row(array_of(result)[:, place], scale), _head(result, name) if several else "")
        for result, name in zip(results, names, strict=True)
    ]
    position = f"at {shown(first.tokens[place])}"
    title = options.title_or(position if several else title_of(first, position))
    rows = [str(number + 1) for number in range(len(first.scores))]
    return draw_heat(panels, scale, options, title, results=results, rows=rows, row_name="layer")


def _head(result: Result, name: str) -> str:
    return f"{name} · {title_of(result, method=False)}".removesuffix(" · ")


def draw_grid(result: Result, options: Options) -> Any:
    """A map for every layer."""
    panels = [Panel(values, f"layer {number + 1}") for number, values in enumerate(array_of(result))]
    title = options.title_or(title_of(result, f"layers 1 to {len(panels)}"))
    return draw_heat(panels, "all", options, title, results=[result])


# --- the usual position and scale -------------------------------------------------------------------------------------


def _usual_query(result: Result) -> int:
    """Where a prediction is read: the one mask token, the last token of a causal model, else the first."""
    masks = [i for i, token in enumerate(result.tokens) if token in ("[MASK]", "<mask>")]
    if len(masks) > 1:
        raise InputError(f"there are {len(masks)} mask tokens, at {masks}. Say which one: query=INDEX.")
    return masks[0] if masks else len(result.tokens) - 1 if result.info.get("causal") else 0


def _usual_scale(results: Sequence[Result]) -> str:
    """Shares can be compared; scores of other units, or that grow from layer to layer, cannot."""
    return "all" if meaning_of(results, False) == "share" else "own"


def _by_row(values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Rows as they are, or each row divided by its largest magnitude."""
    largest = np.abs(values).max(-1, keepdims=True)
    return values if scale == "all" else values / np.where(largest > 0, largest, 1.0)


def _scaled(panels: list[Panel], results: Sequence[Result], scale: str | None) -> tuple[list[Panel], str]:
    """Several matrices on one scale, or each divided by its largest magnitude."""
    scale = "all" if len(panels) == 1 else _usual_scale(results) if scale is None else scale
    if scale == "all":
        return panels, scale
    return [Panel(panel.values / (np.abs(panel.values).max() or 1.0), panel.head) for panel in panels], scale
