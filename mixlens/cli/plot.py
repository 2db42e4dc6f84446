"""`plot`: a paper figure of one text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    from ..model.model import Model
    from ..scoring.asking import MethodRequest
    from ..types import Attribution, Map, Trace

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
            help="strip or bars (tokens); matrix (one layer, word by word), layers (layers by tokens), grid (all layers) or flow "
            "(through all layers into one position) of a map; heads (of one layer) of a method that has them; rows or strip of "
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
    from ..show import figure

    requests = _with_heads(command_words.methods_of(method, variant), kind)
    _refuse_output(output, force)
    _refuse_kind(kind)
    _refuse_options(kind, requests, (rollout, layer is not None))
    _refuse_units(kind, requests, words=words, pieces=pieces)
    command_words.refuse_target(requests, {"foil": foil, "score": score})
    _refuse_no_special(kind, no_special)
    source = input_of(text, file, pair)
    lens = loading.load(model)
    with group.working("computing and drawing"), group.short_warnings("font"):
        trace = lens.trace(source)
        word = _word_meant(trace, query) if kind == FLOW or (kind == "matrix" and not pieces) else ()
        place = (word or (command_words.place_meant(trace, query, target if _only_maps(requests) else None, method),))[
            0
        ]
        results: dict[str, Any]
        if _is_of_map(kind):
            results = _maps(trace, requests, rollout=rollout, words=words and kind != FLOW)
            results = _with_answer(results, trace, place, asked=len(word) > 1)
        else:
            question = _question(lens, requests, target, foil, score)
            results = _attributions(trace, requests, place, question, words=words, keep_special=not no_special)
        figure.plot(
            _one_or_several(results),
            kind=kind,
            layer=None if layer is None else layer_index(lens, layer),
            query=query if kind == FLOW and word else _row(trace, place, kind, words),
            pieces=pieces or None,
            rollout=_convention(requests, kind),
            top=top,
            numbers=numbers or None,
            width=_width(width),
            title=title,
            font=font,
            save=output,
        )
    tell_notices(lens, [trace], 0 if _is_of_map(kind) and kind != FLOW else place)
    print(f"wrote {printable(str(output))}")


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refuse_output(output: Path, force: bool) -> None:
    from ..show import figure

    figure.check_path(output)
    if is_there(output) and not force:
        raise InputError(f"{str(output)!r} is there already. Give another name, or --force to write over it.")


def _refuse_kind(kind: str | None) -> None:
    from ..show import figure

    known = sorted({*chain.from_iterable(figure.KINDS.values()), *figure.KINDS_OF_SEVERAL["Attribution"]})
    if kind not in (None, *known):
        raise InputError(f"unknown kind {kind!r}. {nearest(kind, known)}")


def _refuse_options(kind: str | None, requests: Mapping[str, MethodRequest], map_options: Sequence[bool]) -> None:
    """Refuse a picture of a map for a method that has none, and options of maps for a picture of tokens."""
    if _is_of_map(kind) and not _only_maps(requests):
        name = next(iter(requests))
        raise InputError(
            f"kind {kind!r} is drawn of a map, and {name!r} gives scores of tokens: use strip, bars or rows."
        )
    if any(map_options) and not _is_of_map(kind):
        raise InputError(
            "--rollout and --layer are for maps: --kind matrix, layers or grid. Tokens are always rolled out."
        )
    if kind == FLOW and any(map_options):
        raise InputError(
            "a figure of kind 'flow' goes through all layers and multiplies them itself: leave out --rollout and --layer."
        )
    if kind == HEADS and map_options[0]:
        raise InputError("--rollout multiplies whole layers, not heads. Leave it out, or use --kind grid.")


def _refuse_units(kind: str | None, requests: Mapping[str, MethodRequest], *, words: bool, pieces: bool) -> None:
    """Refuse --pieces where there are none, and figures of one method that are asked of several."""
    if pieces and (kind != "matrix" or len(requests) > 1):
        raise InputError(
            "--pieces is for --kind matrix of one --method; the other figures have tokens, and words with --words."
        )
    if pieces and words:
        raise InputError("--words joins the pieces that --pieces shows. Give one of the two.")
    if kind == FLOW and len(requests) > 1:
        raise InputError("a figure of kind 'flow' is of one method. Give one --method.")


def _with_heads(requests: dict[str, MethodRequest], kind: str | None) -> dict[str, MethodRequest]:
    """The requests; for a figure of heads the one request with all of its heads."""
    if kind != HEADS:
        return requests
    if len(requests) > 1:
        raise InputError("a figure of kind 'heads' is of one method. Give one --method.")
    return {name: command_words.head_of(request, "all") for name, request in requests.items()}


def _refuse_no_special(kind: str | None, no_special: bool) -> None:
    if no_special and _is_of_map(kind):
        raise InputError("--no-special leaves tokens out of a row, not of a map. Use --kind strip, bars or rows.")


def _is_of_map(kind: str | None) -> bool:
    from ..show import figure

    return kind in (*figure.KINDS["Map"], *figure.KINDS["HeadMaps"])


def _only_maps(requests: Mapping[str, MethodRequest]) -> bool:
    return all(request.is_map for request in requests.values())


# --- what is drawn ----------------------------------------------------------------------------------------------------


def _question(
    lens: Model, requests: Mapping[str, MethodRequest], target: str | None, foil: str | None, score: str | None
) -> dict[str, Any]:
    """The target of methods that explain a class or a word; nothing where none of them does."""
    class_specific = any(request.class_specific for request in requests.values())
    return command_words.targets_of(lens, target, foil, score) if class_specific else {}


def _attributions(
    trace: Trace,
    requests: Mapping[str, MethodRequest],
    place: int | None,
    question: Mapping[str, Any],
    *,
    words: bool,
    keep_special: bool,
) -> dict[str, Attribution]:
    """The attribution of each request, as the options show it."""
    from .scores import attributions_of, shown

    every = attributions_of(trace, requests, query=place, target=question)
    return {name: shown(result, words=words, keep_special=keep_special) for name, result in every.items()}


def _maps(trace: Trace, requests: Mapping[str, MethodRequest], *, rollout: bool, words: bool) -> dict[str, Map]:
    """The map of each request; with `rollout` from the input to each layer, with `words` of words."""
    from .scores import by_word, maps_of

    maps = dict(zip(requests, maps_of(trace, requests.values()), strict=True))
    rolled = {name: scores.rollout(requests[name].rollout) for name, scores in maps.items()} if rollout else maps
    return {name: by_word(scores, words) for name, scores in rolled.items()}


def _word_meant(trace: Trace, query: str | None) -> tuple[int, ...]:
    """The tokens of the word that --query names in a figure by words; nothing where it names a token or an index."""
    from ..scoring.by_word import tokens_meant

    return tokens_meant(trace, query) if query in [word for word, _ in trace.words or ()] and query is not None else ()


def _with_answer(results: Mapping[str, Any], trace: Trace, place: int | None, *, asked: bool) -> dict[str, Any]:
    """Maps that tell where the answer is read, and what it is there. `asked`: the place is a word of several pieces."""
    position = trace.query if place is None else place
    prediction = trace.prediction() if position == trace.query and not asked else []
    answer = {"query": position, "prediction": prediction}
    by_word = {"query": _word_of(trace, position), "prediction": prediction} if trace.words else answer
    facts = {name: by_word if result.info.get("unit") == "word" else answer for name, result in results.items()}
    return {name: replace(result, info={**result.info, **facts[name]}) for name, result in results.items()}


def _convention(requests: Mapping[str, MethodRequest], kind: str | None) -> str | None:
    """The rollout that a flow multiplies layers by, where the method is written with one."""
    return next(iter(requests.values())).rollout if kind == FLOW else None


def _one_or_several(results: Mapping[str, Any]) -> Any:
    """The result itself, where it is the only one."""
    return results if len(results) > 1 else next(iter(results.values()))


def _row(trace: Trace, place: int | None, kind: str | None, words: bool) -> int | None:
    """The row that a picture of layers or of a flow is about: of a token, or of the word it belongs to."""
    if kind not in ("layers", FLOW):
        return None
    position = trace.query if place is None else place
    return _word_of(trace, position) if words and kind != FLOW else position


def _word_of(trace: Trace, position: int) -> int:
    """The number of the word that a token belongs to."""
    return next(number for number, (_, tokens) in enumerate(trace.words or ()) if position in tokens)


def _width(written: str | None) -> str | float | None:
    """A number of inches, or the name of a width."""
    try:
        return None if written is None else float(written)
    except ValueError:
        return written
