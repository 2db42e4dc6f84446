"""Terminal pictures: token heat strips, layer by layer, one layer's map, several methods under one sentence.

They are laid out when the terminal's width and colours are known. Without colours they are numbers and bars.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, printable
from ..types import Attribution, HeadMaps, Map, Result
from .encoding import readable
from .head_views import heads_view
from .heading import (
    are_shares,
    explained_by_each,
    explained_lines,
    heading_line,
    notes,
    notes_of_each,
    number_of,
    removed_by_each,
    unit_lines,
    words_of,
)
from .layout import item_lines
from .map_views import largest_scores, matrix
from .row_views import rows
from .views import View, bars, strip, wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MOST = 64  # tokens of a map that a terminal can hold
OF_ROWS = ("layer", "special_removed")  # facts that each row of a comparison says by itself


# --- the lines above a picture ----------------------------------------------------------------------------------------


def _head(info: Mapping[str, Any], first: str, note_lines: Sequence[str], about: Sequence[str]) -> list[RenderableType]:
    """The lines above a picture and an empty one: the first, notes, the prediction, and what the picture is about."""
    from rich.text import Text

    lines = [wrapped(first, "dim"), *_bold(note_lines)]
    return [*lines, *_prediction(info), *map(wrapped, about), Text()]


def _bold(lines: Sequence[str]) -> list[RenderableType]:
    return [wrapped(line, "bold") for line in lines]


def _prediction(info: Mapping[str, Any]) -> list[RenderableType]:
    """The predicted words; nothing where there are none."""
    words = words_of(info.get("prediction") or [])
    return [View(lambda width, colours: item_lines(words, "   ", width, first="predicts  "))] if words else []


# --- the pictures -----------------------------------------------------------------------------------------------------


def attribution_view(result: Attribution, *, top: int | None = None) -> RenderableType:
    """The sentence on its colours, and a bar for each token."""
    from rich.console import Group
    from rich.text import Text

    info, scores = result.info, [float(score) for score in result.scores]
    about = [*explained_lines(info), *unit_lines(info, scores)]
    head = _head(info, heading_line(info, result.method), notes(result.method, info), about)
    sentence = strip(result.tokens, scores, words=info.get("unit") == "word")
    return Group(*head, sentence, Text(), bars(result.tokens, scores, top=top, number=number_of(info, scores, 4)))


def map_view(result: Map, *, layer: int = -1) -> RenderableType:
    """One layer as a matrix, columns that do not fit below; of a long text the largest scores alone."""
    from rich.console import Group
    from rich.text import Text

    depth, n, _ = result.scores.shape
    _refuse_layer(layer, depth)
    line = heading_line({**result.info, "layer": layer % depth}, result.method)
    draw, what = (largest_scores, TOO_MANY.format(n)) if n > MOST else (matrix, "rows: position, columns: what it took")
    in_percent = are_shares(result.info)
    what = f"{what}, in percent" if in_percent else what
    picture = draw(result.tokens, result.scores[layer].tolist(), in_percent=in_percent)
    return Group(Text(f"{line} · {what}", style="dim"), *_bold(notes(result.method, result.info)), Text(), picture)


TOO_MANY = "{} tokens, too many for a map in a terminal; the largest scores between two of them"


def _refuse_layer(layer: int, depth: int) -> None:
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")


def compare_view(
    results: Sequence[Attribution],
    *,
    names: Sequence[str] | None = None,
    layers: bool = False,
    top: int | None = None,
) -> RenderableType:
    """Several methods under one sentence, or with `layers` one method layer by layer."""
    from rich.console import Group

    _refuse_comparison(results)
    labels = [result.method for result in results] if names is None else list(names)
    scores, infos = [result.scores.tolist() for result in results], [result.info for result in results]
    picture = rows(labels, results[0].tokens, scores, infos=infos, top=top)
    return Group(*_comparison_head(results, labels, layers), picture)


def _refuse_comparison(results: Sequence[Attribution]) -> None:
    if not results:
        raise InputError("there is nothing to compare: no attributions were given.")
    if any(result.tokens != results[0].tokens for result in results):
        raise InputError("these attributions are not of the same tokens, so they cannot stand under one sentence.")


def _comparison_head(results: Sequence[Attribution], labels: Sequence[str], layers: bool) -> list[RenderableType]:
    """The lines above a comparison. One method layer by layer is named here, several methods by their rows."""
    info, method = results[0].info, results[0].method
    shared = {key: value for key, value in info.items() if key not in OF_ROWS}
    line = heading_line(shared, method) if layers else printable(f"model {info.get('model', '?')}")
    about = [*explained_by_each(results, labels), *removed_by_each(results, labels)]
    return _head(info, line, notes_of_each(results, labels), about)


def view(result: Result | HeadMaps, **options: Any) -> RenderableType:
    if isinstance(result, HeadMaps):
        return heads_view(result, **options)
    return attribution_view(result, **options) if isinstance(result, Attribution) else map_view(result, **options)


# --- writing them -----------------------------------------------------------------------------------------------------

COLOURED: dict[str, Any] = {"color_system": "truecolor", "force_terminal": True, "no_color": False}
COLOURLESS: dict[str, Any] = {"color_system": None, "no_color": True}


def rendered(picture: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """The picture as a string."""
    from rich.console import Console

    out = io.StringIO()
    system = COLOURED if color else COLOURLESS
    Console(file=out, width=width, highlight=False, force_jupyter=False, **system).print(picture)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def console(*, color: bool = True) -> Console:
    """A console on the output of this program, for characters that its encoding may not have."""
    from rich.console import Console

    out: Any = readable(sys.stdout)
    return Console(file=out, highlight=False, no_color=None if color else True)  # None: as NO_COLOR says


def show(result: Result | HeadMaps, *, color: bool = True, **options: Any) -> None:
    """Prints the picture of a result."""
    console(color=color).print(view(result, **options))
