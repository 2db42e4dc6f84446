"""`explain`, `map` and `compare`: what the prediction of one text rests on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

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
    conversation_of,
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
    from ..base.budget import setting
    from ..show.text import compare_view, console
    from .scores import Explanation, by_word, traced

    request = command_words.method_of(method, variant)  # a misspelt name is refused before the model is loaded
    command_words.refuse_target({method: request}, {"foil": foil, "score": score})
    writing = Writing(generate, continuation, leave_out, each, out, force)
    writing.refuse(save)
    writing.refuse_place(query, target)
    if truncate and (writing.asked or chat or messages is not None):
        raise InputError(
            "--truncate cuts one text that is explained: leave it out, or --generate, --continuation, --chat and "
            "--messages."
        )
    writing.refuse_effects(save, {"--each": each, "--json": json_, "--latex": latex})
    if not (json_ or latex):
        writing.refuse_idle({"--words": words, "--top": top is not None})
    refuse_foreign(save, force=force)
    _refuse_two_formats(latex, json_)
    if (layers or map_ is not None) and (writing.asked or json_ or latex):
        raise InputError(
            "--layers and --map are pictures in the terminal: leave --generate, --continuation, --json and --latex out."
        )
    if map_ is not None and not request.is_map:
        raise InputError(
            f"{method!r} gives scores of tokens, no map. Leave --map out, or see `mixlens methods` for maps."
        )
    source = conversation_of(text, file, chat, messages, pair) or input_of(text, file, pair)
    imported = time.perf_counter() - started
    lens, seconds = loading.timed_load(model)
    shown_layer = None if map_ is None else layer_index(lens, map_)
    seconds = {"load and check": time.perf_counter() - started, "import": imported, **seconds}
    with group.working(), setting(timing=True):
        results: Any
        if writing.asked:
            results = writing.generated(lens, source, request, (target, foil, score), keep_special=not no_special)
        else:
            trace = traced(lens, source, truncate=truncate)
            if request.class_specific:
                goal = command_words.targets_of(lens, target, foil, score)
                question = {"query": command_words.place_of(trace, query), **goal}
            else:  # --target is a position, as --query
                question = {"query": command_words.place_meant(trace, query, target, method)}
            explanation = Explanation(trace, request, question, keep_special=not no_special)
            results = [explanation.attribution]
    ended = time.perf_counter()
    joined = [by_word(result, words) for result in results]
    if writing.asked:
        writing.keep(results, save)
    elif save is not None:
        joined[0].save(save, force=force)
        tell_written(save)
    if writing.asked and not (each or json_ or latex):
        results.show(by="sentence" if leave_out else None, effects=leave_out, color=not no_color)
    elif layers:
        rows = [by_word(result, words) for result in explanation.layers.values()]
        console(color=not no_color).print(compare_view(rows, names=list(explanation.layers), layers=True, top=top))
    else:
        for result in joined:
            if json_:
                print_json(result)
            elif latex:
                print(result.to_latex(), end="")
            else:
                result.show(color=not no_color, top=top)
    if map_ is not None:
        print()
        by_word(explanation.map, words).show(layer=shown_layer, color=not no_color)
    if timing:
        own = {
            results[0].method if part == "map" else part: value
            for part, value in results[0].info.get("seconds", {}).items()
        }
        for part, value in {**seconds, **own, "total": ended - started}.items():
            if part != "batch":
                name = f"  {part}" if part in INDENTED else part
                print(f"{name:<16} {1000 * value:10.1f} ms", file=sys.stderr if json_ else sys.stdout)


def _refuse_two_formats(latex: bool, json_: bool) -> None:
    if latex and json_:
        raise InputError("--latex and --json are two ways to print the result. Leave one out.")


def print_json(result: Any) -> None:
    """Print a result as one line of JSON; what a terminal obeys or does not show is escaped."""
    from torch import Tensor

    from ..show.encoding import can_show

    info = {key: value.tolist() if isinstance(value, Tensor) else value for key, value in result.info.items()}
    content = {"method": result.method, "tokens": list(result.tokens), "scores": result.scores.tolist(), "info": info}
    readable = can_show(sys.stdout, json.dumps(content, ensure_ascii=False), replaced=False)
    text = json.dumps(content, ensure_ascii=not readable)
    print("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text))


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
    from ..scoring.notices import notices_of
    from .scores import by_word, maps_of

    known_map(method.partition(":")[0])
    request = command_words.head_of(command_words.method_of(method, variant), head)
    if request.rollout is not None and not rollout:
        raise InputError(f"{method!r} names a rollout convention: give --rollout, or leave it out.")
    if request.options.get("head") == "all" and (rollout or query is not None):
        raise InputError(
            "--head all is a table of one layer's heads: leave --rollout and --query out, or choose one head."
        )
    refuse_foreign(save, force=force)
    source = input_of(text, file, pair)
    lens = loading.load(model)
    layer = layer_index(lens, layer)
    trace = lens.trace(source)
    place = command_words.row_of(trace, query)
    if head is not None:
        command_words.refuse_head(trace, request)
    scores: Any = maps_of(trace, [request])[0]
    notices = notices_of(lens, trace, query=0)  # a map shows every position, so a missing mask is no surprise
    scores = replace(scores, info={**scores.info, "notices": notices}) if notices else scores
    scores = scores.rollout(request.rollout) if rollout else scores
    whole = by_word(scores, words)
    if save is not None:
        whole.save(save, force=force)
        tell_written(save)
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
    from ..show.latex import latex as to_latex
    from ..show.text import compare_view, console
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
    results: Mapping[str, Any] = {
        name: shown(result, words=words, keep_special=not no_special) for name, result in every.items()
    }
    if json_:
        for result in results.values():
            print_json(result)
    elif latex:
        print(to_latex(list(results.values())), end="")
    else:
        console(color=not no_color).print(compare_view(list(results.values()), names=list(results), top=top))
