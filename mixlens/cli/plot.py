"""`plot`: a paper figure of one text."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InputError, nearest, printable
from ..base.paths import is_there
from ..scoring import command_words
from . import completion, group
from .keeping import tell_notices
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
    from ..types import Trace

HEADS, FLOW = "heads", "flow"
PLOT_EXAMPLES = """Examples:

mixlens plot 'The keys to the cabinet [MASK] rusty.' -o strip.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attcat --target were --foil was --kind bars -o bars.pdf

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind matrix --layer 3 -o map.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind flow --width double -o flow.pdf

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind layers --rollout --width double -o layers.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attention --kind heads --layer 2 -o heads.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attention,globenc,alti -o methods.png"""


@loads_a_model
def plot(
    output: Annotated[Path, typer.Option("--out", "--output", "-o", help="The figure's file: .svg, .pdf or .png.")],
    text: Text = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="See `mixlens methods`; options as name:option=value. Several, with commas between them, become rows.",
            autocompletion=completion.methods,
        ),
    ] = "alti",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="strip or bars (tokens); matrix (one layer, word by word), layers (layers by tokens), grid (all "
            "layers) or flow "
            "(through all layers into one position) of a map; heads (of one layer) of a method that has them; rows or "
            "strip of "
            "several methods.",
        ),
    ] = None,
    model: ModelName = "agreement",
    variant: Variant = None,
    query: Query = None,
    target: Target = None,
    foil: Foil = None,
    score: Score = None,
    layer: Annotated[
        int | None, typer.Option("--layer", "-l", help="For matrix, heads; counted from 1, -1 is the last.")
    ] = None,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Maps from the input to each layer, instead of each layer alone.")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", help="For bars: the largest scores only. For flow: follow so many of the strongest words.", min=1
        ),
    ] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write the scores into the cells of a map.")] = False,
    width: Annotated[str | None, typer.Option("--width", help="single (84 mm), double (174 mm), or inches.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Instead of method and layer; '' for none.")] = None,
    font: Annotated[
        str | None, typer.Option("--font", help="An installed font, for letters that the usual one lacks.")
    ] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    pieces: Annotated[
        bool,
        typer.Option(
            "--pieces", help="For matrix: a row and a column for each piece of a word, with a bracket for the word."
        ),
    ] = False,
    no_special: NoSpecial = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> None:
    """A paper figure: real text, colours that most eyes tell apart, the width of a column."""
    from ..scoring.by_word import tokens_meant
    from ..show import figure
    from .scores import attributions_of, by_word, maps_of, shown

    of_map = kind in (*figure.KINDS["Map"], *figure.KINDS["HeadMaps"])
    requests = command_words.methods_of(method, variant)
    if kind == HEADS:
        if len(requests) > 1:
            raise InputError("a figure of kind 'heads' is of one method. Give one --method.")
        requests = {name: command_words.head_of(request, "all") for name, request in requests.items()}
    only_maps = all(request.is_map for request in requests.values())
    figure.check_path(output)
    if is_there(output) and not force:
        raise InputError(f"{str(output)!r} is there already. Give another name, or --force to write over it.")
    known = sorted({*chain.from_iterable(figure.KINDS.values()), *figure.KINDS_OF_SEVERAL["Attribution"]})
    if kind not in (None, *known):
        raise InputError(f"unknown kind {kind!r}. {nearest(kind, known)}")
    first = next(iter(requests))
    refused = {  # what cannot be drawn together, with its reason; the first that is true is told
        f"kind {kind!r} is drawn of a map, and {first!r} gives scores of tokens: use strip, bars or rows.": (
            of_map and not only_maps
        ),
        "--rollout and --layer are for maps: --kind matrix, layers or grid. Tokens are always rolled out.": (
            (rollout or layer is not None) and not of_map
        ),
        "a figure of kind 'flow' goes through all layers and multiplies them itself: leave out --rollout and "
        "--layer.": (kind == FLOW and (rollout or layer is not None)),
        "--rollout multiplies whole layers, not heads. Leave it out, or use --kind grid.": kind == HEADS and rollout,
        "--pieces is for --kind matrix of one --method; the other figures have tokens, and words with --words.": (
            pieces and (kind != "matrix" or len(requests) > 1)
        ),
        "--words joins the pieces that --pieces shows. Give one of the two.": pieces and words,
        "a figure of kind 'flow' is of one method. Give one --method.": kind == FLOW and len(requests) > 1,
    }
    for reason, is_so in refused.items():
        if is_so:
            raise InputError(reason)
    command_words.refuse_target(requests, {"foil": foil, "score": score})
    if no_special and of_map:
        raise InputError("--no-special leaves tokens out of a row, not of a map. Use --kind strip, bars or rows.")
    source = input_of(text, file, pair)
    lens = loading.load(model)
    with group.working("computing and drawing"), group.short_warnings("font"):
        trace = lens.trace(source)
        word: tuple[int, ...] = ()  # the tokens of the word that --query names, in a figure by words
        by_words = kind == FLOW or (kind == "matrix" and not pieces)
        if by_words and query is not None and query in [name for name, _ in trace.words or ()]:
            word = tokens_meant(trace, query)
        place = word[0] if word else command_words.place_meant(trace, query, target if only_maps else None, method)
        position = trace.query if place is None else place
        results: dict[str, Any]
        if of_map:
            maps = dict(zip(requests, maps_of(trace, requests.values()), strict=True))
            if rollout:
                maps = {name: scores.rollout(requests[name].rollout) for name, scores in maps.items()}
            results = {name: by_word(scores, words and kind != FLOW) for name, scores in maps.items()}
            prediction = trace.prediction() if position == trace.query and len(word) < 2 else []
            for name, result in results.items():
                in_words = result.info.get("unit") == "word" and trace.words
                answer = {"query": _word_of(trace, position) if in_words else position, "prediction": prediction}
                results[name] = replace(result, info={**result.info, **answer})
        else:
            named = any(request.class_specific for request in requests.values())
            question = command_words.targets_of(lens, target, foil, score) if named else {}
            every = attributions_of(trace, requests, query=place, target=question)
            results = {name: shown(one, words=words, keep_special=not no_special) for name, one in every.items()}
        row: Any = None  # that a picture of layers or of a flow is about: of a token, or of the word it belongs to
        if kind == FLOW:
            row = query if word else position
        elif kind == "layers":
            row = _word_of(trace, position) if words else position
        figure.plot(
            results if len(results) > 1 else next(iter(results.values())),
            kind=kind,
            layer=None if layer is None else layer_index(lens, layer),
            query=row,
            pieces=pieces or None,
            rollout=next(iter(requests.values())).rollout if kind == FLOW else None,
            top=top,
            numbers=numbers or None,
            width=_width(width),
            title=title,
            font=font,
            save=output,
        )
    tell_notices(lens, [trace], 0 if of_map and kind != FLOW else place)
    print(f"wrote {printable(str(output))}")


def _word_of(trace: Trace, position: int) -> int:
    """The number of the word that a token belongs to."""
    return next(number for number, (_, tokens) in enumerate(trace.words or ()) if position in tokens)


def _width(written: str | None) -> str | float | None:
    """A number of inches, or the name of a width."""
    try:
        return None if written is None else float(written)
    except ValueError:
        return written
