"""`plot`: a paper figure of one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import asking
from ..errors import InputError, nearest, printable
from .options import (
    File,
    Foil,
    LoadOptions,
    ModelName,
    NoSpecial,
    Pair,
    Query,
    Score,
    Target,
    Text,
    Variant,
    Words,
    input_of,
    layer_index,
    loads_a_model,
)

if TYPE_CHECKING:
    from ..asking import MethodRequest
    from ..types import Map, Trace

PLOT_EXAMPLES = """Examples:

mixlens plot 'The keys to the cabinet [MASK] rusty.' -o strip.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attcat --target were --foil was --kind bars -o bars.pdf

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind matrix --layer 3 -o map.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind layers --rollout --width double -o layers.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attention,globenc,alti -o methods.png"""


@loads_a_model
def plot(
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure's file: .svg, .pdf or .png.")],
    text: Text = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="See `mixlens methods`; options as name:option=value. Several, with commas between them, become rows.",
        ),
    ] = "alti",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="strip or bars (tokens); matrix (one layer), layers (layers by tokens) or grid (all layers) of a map; "
            "rows or strip of several methods.",
        ),
    ] = None,
    model: ModelName = "agreement",
    variant: Variant = None,
    query: Query = None,
    target: Target = None,
    foil: Foil = None,
    score: Score = None,
    layer: Annotated[int | None, typer.Option("--layer", "-l", help="For matrix; counted from 1, -1 is the last.")] = None,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Maps from the input to each layer, instead of each layer alone.")
    ] = False,
    top: Annotated[int | None, typer.Option("--top", help="For bars: the largest scores only.", min=1)] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write the scores into the cells of a map.")] = False,
    width: Annotated[str | None, typer.Option("--width", help="single (3.3 inches), double (6.8), or inches.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Instead of method and layer; '' for none.")] = None,
    font: Annotated[str | None, typer.Option("--font", help="An installed font, for letters that the usual one lacks.")] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    no_special: NoSpecial = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """A paper figure: real text, colours that most eyes tell apart, the width of a column."""
    from ..show import figure
    from .scores import attributions_of, by_word, shown

    requests = asking.methods_of(method, variant)
    figure.check_path(output)
    if output.exists() and not force:
        raise InputError(f"{str(output)!r} is there already. Give another name, or --force to write over it.")
    of_map = kind in figure.KINDS["Map"]
    _refuse_kind(kind, [*figure.KINDS["Map"], *figure.KINDS["Attribution"], *figure.KINDS_OF_SEVERAL["Attribution"]])
    only_maps = all(request.is_map for request in requests.values())
    if of_map and not only_maps:
        name = next(iter(requests))
        raise InputError(f"kind {kind!r} is drawn of a map, and {name!r} gives scores of tokens: use strip, bars or rows.")
    if not of_map and (rollout or layer is not None):
        raise InputError("--rollout and --layer are for maps: --kind matrix, layers or grid. Tokens are always rolled out.")
    asking.refuse_target(requests, {"foil": foil, "score": score})
    if of_map and no_special:
        raise InputError("--no-special leaves tokens out of a row, not of a map. Use --kind strip, bars or rows.")
    source = input_of(text, file, pair)
    lens = loading.load(model)
    trace = lens.trace(source)
    place = asking.place_meant(trace, query, target if only_maps else None, method)
    results: dict[str, Any]
    if of_map:
        results = _maps(trace, requests, rollout=rollout)
        row = _row(trace, place, words) if kind == "layers" else None
        results = {name: by_word(scores, words) for name, scores in results.items()}
    else:
        row, class_specific = None, any(request.class_specific for request in requests.values())
        question = asking.targets_of(lens, target, foil, score) if class_specific else {}
        every = attributions_of(trace, requests, query=place, target=question)
        results = {name: shown(result, words=words, keep_special=not no_special) for name, result in every.items()}
    figure.plot(
        results if len(results) > 1 else next(iter(results.values())),
        kind=kind,
        layer=None if layer is None else layer_index(lens, layer),
        query=row,
        top=top,
        numbers=numbers or None,
        width=_width(width),
        title=title,
        font=font,
        save=output,
    )
    print(f"wrote {printable(str(output))}")


def _refuse_kind(kind: str | None, kinds: Iterable[str]) -> None:
    known = sorted(set(kinds))
    if kind is not None and kind not in known:
        raise InputError(f"unknown kind {kind!r}. {nearest(kind, known)}")


def _maps(trace: Trace, requests: Mapping[str, MethodRequest], *, rollout: bool) -> dict[str, Map]:
    """The map of each request; with `rollout` from the input to each layer."""
    from .scores import maps_of

    maps = dict(zip(requests, maps_of(trace, requests.values()), strict=True))
    return {name: scores.rollout(requests[name].rollout) for name, scores in maps.items()} if rollout else maps


def _row(trace: Trace, place: int | None, words: bool) -> int:
    """The row of a map that shows a position: of the token, or of the word it belongs to."""
    position = trace.query if place is None else place
    if not words:
        return position
    return next(number for number, (_, tokens) in enumerate(trace.words or ()) if position in tokens)


def _width(written: str | None) -> str | float | None:
    """A number of inches, or the name of a width."""
    try:
        return None if written is None else float(written)
    except ValueError:
        return written
