"""Which heat maps are drawn: methods by tokens, one layer, layers by tokens, all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InputError, printable
from ...scoring.aggregate import find
from ...types import Result
from ..tokens import MASKS, shown
from .heat import Panel, draw_heat
from .options import Options
from .word_matrix import draw_word_matrix
from .wording import array_of, meaning_of, researcher_name, score_name, title_of


def draw_rows(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """Methods as rows, tokens as columns."""
    scale = options.scale or "own"
    order, split = _signed_first(results)
    results, names = [results[number] for number in order], [names[number] for number in order]
    values = _by_row(np.stack([array_of(result) for result in results]), scale)
    title = options.title_or(_title_of_rows(results))
    labels = [printable(researcher_name(name)) for name in names]
    return draw_heat([Panel(values)], scale, options, title, results=results, rows=labels, row_name="", split=split)


def _signed_first(results: Sequence[Result]) -> tuple[list[int], int | None]:
    """The numbers of the results, those with scores below 0 first, and how many these are where there are others. Results of one
    method stay in their order: they are layers, or targets, whose scores happen to have no minus."""
    signed = [bool((result.scores < 0).any()) for result in results]
    if all(signed) or not any(signed) or len({result.method for result in results}) == 1:
        return list(range(len(results))), None
    return sorted(range(len(results)), key=lambda number: not signed[number]), sum(signed)


def _title_of_rows(results: Sequence[Result]) -> str:
    """The title of the first result where all are of one method; else what they explain, and the position they are read at."""
    if len({result.method for result in results}) == 1:
        return title_of(_without_layer(results[0]))
    explained = {score_name(result.info): None for result in results if result.info.get("target") is not None}
    places = {f"at {shown(result.info['query_token'])}": None for result in results if "query_token" in result.info}
    return printable(" · ".join([*explained, *list(places)[:1]]))


def _without_layer(result: Result) -> Result:
    """The result without its layer, which the rows name."""
    return replace(result, info={key: value for key, value in result.info.items() if key not in ("layer", "at_layer")})


def draw_matrices(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """One layer of each map: what each position (row) took from each token (column)."""
    layer = -1 if options.layer is None else options.layer
    _refuse_layer(layer, results)
    places = [f"layer {layer % len(result.scores) + 1}" for result in results]
    if len(results) == 1:
        title = _one_title(results[0], places[0], options)
        if _is_of_words(results[0], options):
            return draw_word_matrix(results[0], layer, title, options)
        return draw_heat([Panel(array_of(results[0])[layer])], "all", options, title, results=results)
    heads = map(_head, results, names, places)
    panels = [Panel(array_of(result)[layer], head) for result, head in zip(results, heads, strict=True)]
    return draw_heat(*_scaled(panels, results, options.scale), options, options.title_or(""), results=results)


def _is_of_words(result: Any, options: Options) -> bool:
    """Whether a matrix is drawn by words: they are known, and it has a page of its own."""
    return result.words is not None and options.ax is None


def _one_title(result: Result, place: str, options: Options) -> str:
    """The title of a figure of one map: its method and what of it is drawn."""
    return options.title_or(title_of(result, place))


def _head(result: Result, name: str, *more: str) -> str:
    """What stands above one of several maps."""
    return f"{researcher_name(name)} · {title_of(result, *more, method=False)}".removesuffix(" · ")


def _refuse_layer(layer: Any, results: Sequence[Result]) -> None:
    """Refuse a layer that a map does not have; the message names the layers of the first map."""
    first, least = len(results[0].scores), min(len(result.scores) for result in results)
    if isinstance(layer, bool) or not isinstance(layer, int) or not -least <= layer < least:
        raise InputError(f"layer {layer!r} is out of range: the map has {first} layers, 0 to {first - 1}.")


def draw_layers(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """Rows layers, columns tokens: what one position is made of after each layer."""
    first = results[0]
    place = _query_of(first, options)
    _refuse_depths(results)
    scale = options.scale or _usual_scale(results)
    values = [_by_row(array_of(result)[:, place], scale) for result in results]
    heads = map(_head, results, names) if len(results) > 1 else [""]
    rows = [str(number + 1) for number in range(len(first.scores))]
    title = _title_of_layers(results, f"at {shown(first.tokens[place])}", options)
    return draw_heat(
        list(map(Panel, values, heads)), scale, options, title, results=results, rows=rows, row_name="layer"
    )


def _title_of_layers(results: Sequence[Result], position: str, options: Options) -> str:
    """The position; of one map with its method."""
    return options.title_or(position) if len(results) > 1 else _one_title(results[0], position, options)


def _refuse_depths(results: Sequence[Result]) -> None:
    if len({len(result.scores) for result in results}) > 1:
        raise InputError("these maps have different numbers of layers, so they cannot share one axis.")


def draw_grid(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """A map for every layer."""
    panels = [Panel(values, f"layer {number + 1}") for number, values in enumerate(array_of(results[0]))]
    title = _one_title(results[0], f"layers 1 to {len(panels)}", options)
    return draw_heat(panels, "all", options, title, results=results)


def draw_heads(results: Sequence[Any], names: Sequence[str], options: Options) -> Any:
    """A map for every head of one layer, on one scale, each named by what it does most."""
    layer = -1 if options.layer is None else options.layer
    _refuse_layer(layer, results)
    one = results[0].layer(layer)
    heads = [f"{role.head + 1} · {role.name} · {100 * role.share:.0f} %" for role in one.roles()]
    panels = [Panel(values, head) for values, head in zip(array_of(one)[0], heads, strict=True)]
    title = _one_title(one, f"heads of layer {one.info['layer'] + 1}", options)
    return draw_heat(panels, "all", options, title, results=results)


# --- the usual position and scale -------------------------------------------------------------------------------------


def _query_of(result: Result, options: Options) -> int:
    """The position that the user chose, or the usual one."""
    return _usual_query(result) if options.query is None else find(result.tokens, options.query)


def _usual_query(result: Result) -> int:
    """Where a prediction is read: the one mask token, the last token of a causal model, else the first."""
    masks = [place for place, token in enumerate(result.tokens) if token in MASKS]
    if len(masks) > 1:
        raise InputError(f"there are {len(masks)} mask tokens, at {masks}. Say which one: query=INDEX.")
    return masks[0] if masks else _last_or_first(result)


def _last_or_first(result: Result) -> int:
    """The last token of a causal model, the first of any other."""
    return len(result.tokens) - 1 if result.info.get("causal") else 0


def _usual_scale(results: Sequence[Result]) -> str:
    """Shares can be compared; scores of other units, or that grow from layer to layer, cannot."""
    return "all" if meaning_of(results, False) == "share" else "own"


def _by_row(values: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """Rows as they are, or each row divided by its largest magnitude."""
    largest = np.abs(values).max(-1, keepdims=True)
    return values if scale == "all" else values / np.where(largest > 0, largest, 1.0)


def _scaled(panels: Sequence[Panel], results: Sequence[Result], scale: str | None) -> tuple[Sequence[Panel], str]:
    """Several matrices on one scale, or each divided by its largest magnitude; and which of the two."""
    scale = scale or _usual_scale(results)
    return panels if scale == "all" else list(map(_by_largest, panels)), scale


def _by_largest(panel: Panel) -> Panel:
    """A matrix divided by its largest magnitude."""
    return Panel(panel.values / (np.abs(panel.values).max() or 1.0), panel.head)
