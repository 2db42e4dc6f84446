"""`explain`, `map` and `compare`: one text, pictures in the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InputError
from ..base.files import refuse_foreign
from ..scoring import command_words
from . import completion, group
from .generation import (
    Each,
    GenerateCount,
    GivenText,
    IsChat,
    LeaveOut,
    MessageFile,
    PageFile,
    Writing,
    generated,
    messages_of,
)
from .keeping import Force, tell_written
from .options import (
    AttributionTarget,
    File,
    Foil,
    Json,
    Latex,
    LoadOptions,
    Method,
    ModelName,
    NoColor,
    NoSpecial,
    Pair,
    Query,
    Save,
    Score,
    Target,
    Text,
    Top,
    Truncate,
    Variant,
    Words,
    input_of,
    layer_index,
    loads_a_model,
)

if TYPE_CHECKING:
    from ..model.model import Model
    from ..scoring.asking import MethodRequest
    from ..types import Attribution, Result, Trace
    from .scores import Explanation

EXPLAIN_EXAMPLE = (
    "Example:  mixlens explain 'The keys to the cabinet [MASK] rusty.' --method attcat --target were --foil was"
)
MAP_EXAMPLE = "Example:  mixlens map 'The keys to the cabinet [MASK] rusty.' --layer 3 --method value_zeroing"
COMPARE_EXAMPLE = (
    "Example:  mixlens compare 'The keys to the cabinet [MASK] rusty.' --methods attention,globenc,alti,value_zeroing"
)
INDENTED = ("import", "weights", "model check")  # parts of "load and check"


@loads_a_model
def explain(
    text: Text = None,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    query: Query = None,
    target: Target = None,
    foil: Foil = None,
    score: Score = None,
    generate: GenerateCount = None,
    continuation: GivenText = None,
    chat: IsChat = False,
    messages: MessageFile = None,
    leave_out: LeaveOut = False,
    each: Each = False,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    truncate: Truncate = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    save: Save = None,
    out: PageFile = None,
    force: Force = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
    no_color: NoColor = False,
    top: Top = None,
    layers: Annotated[bool, typer.Option("--layers", help="One strip for every layer.")] = False,
    map_: Annotated[
        int | None,
        typer.Option("--map", help="Also this layer's map; counted from 1, -1 is the last.", metavar="LAYER"),
    ] = None,
    latex: Latex = False,
    timing: Annotated[bool, typer.Option("--timing", help="Also say where the time went.")] = False,
) -> None:
    """Which input tokens the prediction rests on, by any method of `mixlens methods`."""
    started = time.perf_counter()
    from ..scoring.maps import timed
    from .scores import by_word, traced

    request = command_words.method_of(method, variant)  # a misspelt name is refused before the model is loaded
    command_words.refuse_target({method: request}, {"foil": foil, "score": score})
    writing = Writing(generate, continuation, leave_out, each, out, force)
    writing.refuse(save)
    writing.refuse_place(query, target)
    _refuse_cut(truncate, [writing.asked, chat, messages is not None])
    writing.refuse_effects(save, {"--each": each, "--json": json_, "--latex": latex})
    if not (json_ or latex):
        writing.refuse_idle({"--words": words, "--top": top is not None})
    refuse_foreign(save, force=force)
    _refuse_two_formats(latex, json_)
    _refuse_pictures([layers, map_ is not None], [writing.asked, json_, latex])
    _refuse_map(method, request, map_)
    source = messages_of(text, file, chat, messages, pair) or input_of(text, file, pair)
    imported = time.perf_counter() - started
    lens, seconds = loading.timed_load(model)
    shown_layer = None if map_ is None else layer_index(lens, map_)
    seconds = {"load and check": time.perf_counter() - started, "import": imported, **seconds}
    with group.working(), timed():
        results: Any
        if writing.asked:
            results = generated(lens, source, request, writing, (target, foil, score), keep_special=not no_special)
        else:
            trace = traced(lens, source, truncate=truncate)
            explanation = _explanation(
                lens, trace, request, method, (query, target, foil, score), keep_special=not no_special
            )
            results = [explanation.attribution]
    ended = time.perf_counter()
    joined = _joined(results, words)
    if writing.asked:
        writing.keep(results, save)
    else:
        _save(joined[0], save, force)
    if writing.asked and not (each or json_ or latex):
        results.show(by="sentence" if leave_out else None, effects=leave_out, color=not no_color)
    elif layers:
        _show_layers(explanation, words=words, color=not no_color, top=top)
    else:
        _show_results(joined, json_=json_, latex=latex, color=not no_color, top=top)
    if map_ is not None:
        print()
        by_word(explanation.map, words).show(layer=shown_layer, color=not no_color)
    if timing:
        _print_times({**seconds, **_times_of(results[0]), "total": ended - started}, json_)


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refuse_two_formats(latex: bool, json_: bool) -> None:
    if latex and json_:
        raise InputError("--latex and --json are two ways to print the result. Leave one out.")


def _refuse_cut(truncate: bool, others: Iterable[bool]) -> None:
    if truncate and any(others):
        raise InputError(
            "--truncate cuts one text that is explained: leave it out, or --generate, --continuation, --chat and --messages."
        )


def _refuse_pictures(pictures: Iterable[bool], others: Iterable[bool]) -> None:
    if any(pictures) and any(others):
        raise InputError(
            "--layers and --map are pictures in the terminal: leave --generate, --continuation, --json and --latex out."
        )


def _refuse_map(method: str, request: MethodRequest, layer: int | None) -> None:
    if layer is not None and not request.is_map:
        raise InputError(
            f"{method!r} gives scores of tokens, no map. Leave --map out, or see `mixlens methods` for maps."
        )


def _refuse_convention(method: str, request: MethodRequest, rollout: bool) -> None:
    if request.rollout is not None and not rollout:
        raise InputError(f"{method!r} names a rollout convention: give --rollout, or leave it out.")


def _refuse_all_heads(request: MethodRequest, rollout: bool, query: str | None) -> None:
    """Refuse what one map has and the maps of all heads have not."""
    if request.options.get("head") == "all" and (rollout or query is not None):
        raise InputError(
            "--head all is a table of one layer's heads: leave --rollout and --query out, or choose one head."
        )


# --- results ----------------------------------------------------------------------------------------------------------


def _explanation(
    lens: Model,
    trace: Trace,
    request: MethodRequest,
    method: str,
    options: tuple[str | None, str | None, str | None, str | None],
    *,
    keep_special: bool,
) -> Explanation:
    """One method on the text. The options are --query, --target, --foil and --score; for methods that explain a position
    --target is a position, as --query."""
    from .scores import Explanation

    query, target, foil, score = options
    if request.class_specific:
        question = {
            "query": command_words.place_of(trace, query),
            **command_words.targets_of(lens, target, foil, score),
        }
    else:
        question = {"query": command_words.place_meant(trace, query, target, method)}
    return Explanation(trace, request, question, keep_special=keep_special)


def _map_of(lens: Model, trace: Trace, request: MethodRequest, *, rollout: bool) -> Any:
    """The map of a request with its notices; with `rollout` from the input to each layer."""
    from ..scoring.notices import notices_of
    from .scores import maps_of

    scores = maps_of(trace, [request])[0]
    notices = notices_of(lens, trace, query=0)  # a map shows every position, so a missing mask is no surprise
    scores = replace(scores, info={**scores.info, "notices": notices}) if notices else scores
    return scores.rollout(request.rollout) if rollout else scores


# --- output -----------------------------------------------------------------------------------------------------------


def _joined(results: Iterable[Attribution], words: bool) -> list[Attribution]:
    from .scores import by_word

    return [by_word(result, words) for result in results]


def _save(result: Result, file: Path | None, force: bool) -> None:
    if file is not None:
        result.save(file, force=force)
        tell_written(file)


def _show_layers(explanation: Explanation, *, words: bool, color: bool, top: int | None) -> None:
    from ..show.text import compare_view, console

    results = _joined(explanation.layers.values(), words)
    console(color=color).print(compare_view(results, names=list(explanation.layers), layers=True, top=top))


def _show_results(results: Iterable[Attribution], *, json_: bool, latex: bool, color: bool, top: int | None) -> None:
    for result in results:
        if json_:
            print_json(result)
        elif latex:
            print(result.to_latex(), end="")
        else:
            result.show(color=color, top=top)


def _times_of(result: Attribution) -> dict[str, float]:
    """The seconds of a result, its map under the name of its method."""
    seconds = result.info.get("seconds", {})
    return {result.method if part == "map" else part: value for part, value in seconds.items() if part != "batch"}


def _print_times(seconds: Mapping[str, float], json_: bool) -> None:
    """One line for each part; beside JSON they go to standard error."""
    for part, value in seconds.items():
        name = f"  {part}" if part in INDENTED else part
        print(f"{name:<16} {1000 * value:10.1f} ms", file=sys.stderr if json_ else sys.stdout)


def print_json(result: Result) -> None:
    """Print a result as one line of JSON that every terminal can show."""
    from torch import Tensor

    from ..show.encoding import can_show

    info = {key: value.tolist() if isinstance(value, Tensor) else value for key, value in result.info.items()}
    content = {"method": result.method, "tokens": list(result.tokens), "scores": result.scores.tolist(), "info": info}
    readable = can_show(sys.stdout, json.dumps(content, ensure_ascii=False), replaced=False)
    print("".join(map(_shown_character, json.dumps(content, ensure_ascii=not readable))))


def _shown_character(char: str) -> str:
    """The character in JSON; escaped, if a terminal obeys it or does not show it."""
    return char if char.isprintable() else json.dumps(char)[1:-1]


# --- the other commands -----------------------------------------------------------------------------------------------


@loads_a_model
def map_(
    text: Text = None,
    layer: Annotated[int, typer.Option("--layer", "-l", help="Counted from 1; -1 is the last.")] = -1,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="From the input to this layer, instead of this layer alone.")
    ] = False,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    query: Annotated[
        str | None, typer.Option("--query", "--target", help="Show this position's row alone: a token or an index.")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", "--heads", help="One head, counted from 1, or all: what each does most. See `mixlens methods`."
        ),
    ] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    json_: Json = False,
    save: Save = None,
    force: Force = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
    no_color: NoColor = False,
) -> None:
    """One layer's map: what each position (row) took from each token (column)."""
    from ..scoring.maps import method as known_map
    from .scores import by_word

    known_map(method.partition(":")[0])
    request = command_words.head_of(command_words.method_of(method, variant), head)
    _refuse_convention(method, request, rollout)
    _refuse_all_heads(request, rollout, query)
    refuse_foreign(save, force=force)
    source = input_of(text, file, pair)
    lens = loading.load(model)
    layer = layer_index(lens, layer)
    trace = lens.trace(source)
    place = command_words.row_of(trace, query)
    if head is not None:
        command_words.refuse_head(trace, request)
    scores = _map_of(lens, trace, request, rollout=rollout)
    whole = by_word(scores, words)
    _save(whole, save, force)
    if json_:
        print_json(whole)
    elif place is not None:
        by_word(scores.readout(place, layer=layer), words).show(color=not no_color)
    else:
        whole.show(layer=layer, color=not no_color)


@loads_a_model
def compare(
    text: Text = None,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "--method",
            help="Names with commas between them; options as name:option=value.",
            autocompletion=completion.methods,
        ),
    ] = "attention,globenc,alti,value_zeroing",
    model: ModelName = "agreement",
    query: Query = None,
    target: AttributionTarget = None,
    foil: Foil = None,
    score: Score = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
    no_color: NoColor = False,
    top: Top = None,
    latex: Latex = False,
) -> None:
    """Several methods under one sentence, from one forward pass."""
    from .scores import attributions_of, shown

    requests = command_words.methods_of(methods)
    command_words.refuse_target(requests, {"target": target, "foil": foil, "score": score})
    _refuse_two_formats(latex, json_)
    source = input_of(text, file, pair)
    lens = loading.load(model)
    with group.working(f"computing {len(requests)} methods"):
        trace = lens.trace(source)
        place = command_words.place_of(trace, query)
        question = command_words.targets_of(lens, target, foil, score)
        every = attributions_of(trace, requests, query=place, target=question)
    results = {name: shown(result, words=words, keep_special=not no_special) for name, result in every.items()}
    _show_compared(results, json_=json_, latex=latex, color=not no_color, top=top)


def _show_compared(
    results: Mapping[str, Attribution], *, json_: bool, latex: bool, color: bool, top: int | None
) -> None:
    """All results under one sentence, or as one table of LaTeX; as JSON one line each."""
    from ..show.latex import latex as to_latex
    from ..show.text import compare_view, console

    if json_:
        for result in results.values():
            print_json(result)
    elif latex:
        print(to_latex(list(results.values())), end="")
    else:
        console(color=color).print(compare_view(list(results.values()), names=list(results), top=top))
