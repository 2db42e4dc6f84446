"""What is asked for in words, and the result: `alti:variant=released` -> MethodRequest -> Map or Attribution.

A command also names a text, a target and a position in words; these are read here too. The module imports torch only when
a function is called, because the command line imports it at once.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError, nearest

if TYPE_CHECKING:
    from .model.model import Model
    from .types import Attribution, Map, Trace

STDIN = "-"
RANDOM = "random"


# --- a method as written ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodRequest:
    """A method as written: `name`, or `name:option=value:variant=released`; a map also with `:rollout=` and a convention."""

    name: str
    variant: str | None = None
    rollout: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        return self.name in _maps()

    @property
    def class_specific(self) -> bool:
        """Whether the method explains a class or a word, so that a target changes its scores."""
        return not self.is_map and _attributions()[self.name].needs_target

    @property
    def has_layers(self) -> bool:
        """Whether the method scores the input of a single layer too."""
        return self.is_map or _attributions()[self.name].layers

    @property
    def call_key(self) -> str:
        """Map methods with the same key are answered by one call of `mix`: they have the same variant and options."""
        return json.dumps([self.variant, self.options], sort_keys=True, default=str)

    def options_for(self, trace: Trace) -> dict[str, Any]:
        """The options for one text. Random scores take their seed from the text, unless a seed is named: the same noise in
        every text would not average out."""
        if self.name == RANDOM and "seed" not in self.options:
            return {**self.options, "seed": zlib.crc32(" ".join(trace.tokens).encode())}
        return dict(self.options)


Written = str | MethodRequest  # a method: as text, or parsed already


def _maps() -> Mapping[str, Any]:
    from .maps import known

    return known()


def _attributions() -> Mapping[str, Any]:
    from .attributions import known

    return known()


def parse_method(written: Written) -> MethodRequest:
    """The method that is meant. An unknown name, option, variant or rollout convention is refused."""
    if isinstance(written, MethodRequest):
        return written
    name, *pairs = written.split(":")
    method = _method(name)
    options = dict(_option(pair, written, name) for pair in pairs)
    variant = options.pop("variant", None)
    rollout = _convention(options.pop("rollout", None)) if name in _maps() else None
    method.arguments(variant, options)
    return MethodRequest(name, variant, rollout, options)


def _method(name: str) -> Any:
    """The method of this name; an unknown name is refused."""
    methods = {**_attributions(), **_maps()}
    if name not in methods:
        raise InputError(f"unknown method {name!r}. {nearest(name, [*_maps(), *_attributions()])}")
    return methods[name]


def _option(pair: str, written: str, name: str) -> tuple[str, Any]:
    key, sign, value = pair.partition("=")
    if not sign:
        raise InputError(f"{written!r}: an option is written key=value, such as {name}:variant=paper.")
    return key, json_or_text(value)


def json_or_text(value: str) -> Any:
    """The value that a text means as JSON, or the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _convention(name: Any) -> str | None:
    from .conventions import CONVENTIONS

    if name is not None and name not in CONVENTIONS:
        raise InputError(f"unknown rollout convention {name!r}. {nearest(str(name), CONVENTIONS)}")
    return name


def parse_methods(names: Iterable[str]) -> dict[str, MethodRequest]:
    """Every method as written, with its request."""
    return {name: parse_method(name) for name in names}


# --- the results of requests --------------------------------------------------------------------------------------------


def grouped(requests: Mapping[str, MethodRequest]) -> list[list[str]]:
    """The map methods that one call of `mix` can answer: those with the same variant and options. Random scores are left out,
    because their seed differs from text to text."""
    groups: dict[str, list[str]] = {}
    for written, request in requests.items():
        if request.is_map and request.name != RANDOM:
            groups.setdefault(request.call_key, []).append(written)
    return list(groups.values())


def map_of(trace: Trace, written: Written) -> Map:
    """The map of every layer, not rolled out."""
    from .maps import mix

    request = parse_method(written)
    return mix(trace, request.name, variant=request.variant, **request.options_for(trace))


def maps_of(trace: Trace, methods: Mapping[str, MethodRequest] | Iterable[str]) -> dict[str, Map]:
    """The maps of several methods as written. Methods with the same variant and options share the proof of every layer."""
    requests = methods if isinstance(methods, Mapping) else parse_methods(methods)
    maps: dict[str, Map] = {}
    for group in grouped(requests):
        maps |= _maps_of_group(trace, {written: requests[written] for written in group})
    return {written: maps[written] if written in maps else map_of(trace, request) for written, request in requests.items()}


def _maps_of_group(trace: Trace, requests: Mapping[str, MethodRequest]) -> dict[str, Map]:
    """The maps of methods with the same variant and options, by one call."""
    from .maps import mix

    shared = next(iter(requests.values()))
    by_name = mix(trace, [request.name for request in requests.values()], variant=shared.variant, **shared.options)
    return {written: by_name[request.name] for written, request in requests.items()}


def rolled(scores: Map, written: Written, query: int | str) -> Attribution:
    """One row of the rolled-out map, by the convention that is named, else by the convention of its paper."""
    from .aggregate import rolled_row

    return rolled_row(scores, query, convention=parse_method(written).rollout)


def scores_of(
    trace: Trace, written: Written, *, target: Any = "predicted", foil: Any = None, query: int | str | None = None
) -> tuple[Attribution, float]:
    """The attribution by any method, and its seconds. Of a map: the row of `query`, rolled out by its paper's convention."""
    request = parse_method(written)
    return every_score(trace, {request.name: request}, target=target, foil=foil, query=query)[request.name]


def every_score(
    trace: Trace,
    requests: Mapping[str, MethodRequest],
    *,
    target: Any = "predicted",
    foil: Any = None,
    score: str | None = None,
    query: int | str | None = None,
) -> dict[str, tuple[Attribution, float]]:
    """`scores_of` for several methods of one trace; the maps share the proof of every layer.

    The seconds of a map are those of its own scores and of the proof, which it would need alone too.
    """
    from .maps import timed

    with timed():
        maps = maps_of(trace, {written: request for written, request in requests.items() if request.is_map})
    place = trace.query if query is None else query
    results: dict[str, tuple[Attribution, float]] = {}
    for written, request in requests.items():
        started = time.perf_counter()
        if request.is_map:
            scores, spent = rolled(maps[written], request, place), seconds_of(maps.pop(written))
        else:
            scores, spent = attribution_of(trace, request, target=target, foil=foil, score=score, query=query), 0.0
        results[written] = scores, spent + time.perf_counter() - started
    return results


def seconds_of(scores: Map) -> float:
    """The time a map took, with the proof of its layers and without the forward pass."""
    spent = scores.info["seconds"]
    return float(spent["proof"] + spent["map"])


def attribution_of(
    trace: Trace,
    request: MethodRequest,
    *,
    target: Any = "predicted",
    foil: Any = None,
    score: str | None = None,
    query: int | str | None = None,
    layer: int | None = None,
) -> Attribution:
    """What `attribute` gives for a request; a method that no target changes is not told of one."""
    from .attributions import attribute

    options: dict[str, Any] = {"query": query, "variant": request.variant, **request.options}
    options |= {"target": target, "foil": foil, "score": score} if request.class_specific else {}
    options |= {} if layer is None else {"layer": layer}
    return attribute(trace, request.name, **options)


def layers_of(
    trace: Trace, written: Written, *, target: Any = "predicted", foil: Any = None, query: int | None = None
) -> tuple[list[Attribution], Attribution]:
    """A method layer by layer, and over all layers. Of a map: the row of `query`; of an attribution: the scores of the hidden
    states that enter the layer. An attribution that is not defined at single layers has an empty list of them."""
    request = parse_method(written)
    if request.is_map:
        return map_layers(map_of(trace, request), request, trace.query if query is None else query)
    question: dict[str, Any] = {"target": target, "foil": foil, "query": query}
    overall = attribution_of(trace, request, **question)
    depth = len(trace.layers) if request.has_layers else 0
    return [attribution_of(trace, request, **question, layer=layer) for layer in range(depth)], overall


def map_layers(scores: Map, request: MethodRequest, query: int) -> tuple[list[Attribution], Attribution]:
    """The row of `query` in every layer of a map, and in the map rolled out."""
    return [scores.readout(query, layer=layer) for layer in range(len(scores.scores))], rolled(scores, request, query)


def every_layer(
    trace: Trace, requests: Mapping[str, MethodRequest], *, target: Any = "predicted", foil: Any = None
) -> dict[str, tuple[list[Attribution], Attribution]]:
    """`layers_of` for several methods of one trace; the maps share the proof of every layer."""
    maps = maps_of(trace, {written: request for written, request in requests.items() if request.is_map})
    return {
        written: map_layers(maps.pop(written), request, trace.query)
        if request.is_map
        else layers_of(trace, request, target=target, foil=foil)
        for written, request in requests.items()
    }


# --- the words of a command ---------------------------------------------------------------------------------------------


def text_of(text: str | None, file: Path | None) -> str:
    """The text itself, `-` for standard input, or the content of --file. Line breaks at the end are no part of it."""
    if (text is None) == (file is None):
        raise InputError("give one text: in quotes, - to read it from standard input, or --file FILE.")
    if file is not None:
        return _content(file)
    return _standard_input() if text == STDIN else str(text)


def _standard_input() -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"standard input is not text in {sys.stdin.encoding}.") from None


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise InputError(f"--file: {str(file)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"--file: {str(file)!r} is not text in UTF-8.") from None


def method_of(written: str, variant: str | None = None) -> MethodRequest:
    """`name`, or `name:option=value`; --variant is the same as `:variant=`. An unknown method is refused."""
    request = parse_method(written.strip())
    if variant is None:
        return request
    if request.variant is not None and request.variant != variant:
        raise InputError(f"--variant {variant} and {written!r} name two variants. Leave one out.")
    parse_method(f"{request.name}:variant={variant}")  # refused where the method has no such variant
    return replace(request, variant=variant)


def methods_of(written: str, variant: str | None = None) -> dict[str, MethodRequest]:
    """Names with commas between them, each as it was written, and its request."""
    names = list(filter(None, map(str.strip, written.split(","))))
    if not names:
        raise InputError("no method was asked for. Give names with commas between them.")
    return {name: method_of(name, variant) for name in names}


def class_methods() -> list[str]:
    """The methods that explain a class or a word."""
    return [name for name, method in _attributions().items() if method.needs_target]


def refuse_target(methods: Mapping[str, MethodRequest], options: Mapping[str, str | None]) -> None:
    """--target, --foil and --score need a method that explains a class or a word; without one they are refused."""
    is_named = any(value is not None for value in options.values())
    if is_named and not any(request.class_specific for request in methods.values()):
        raise InputError(_no_class(list(methods), [f"--{name}" for name in options]))


def _no_class(methods: Sequence[str], options: Sequence[str]) -> str:
    """Why methods that explain a position take no target."""
    who, verb = ", ".join(map(repr, methods)), "explains" if len(methods) == 1 else "explain"
    return (
        f"{who} {verb} a position, whatever the class or word: leave {', '.join(options[:-1])} and {options[-1]} out, "
        f"or take a method that explains a class or word: {', '.join(class_methods())}."
    )


def target_of(lens: Model, written: str | None) -> Any:
    """A class, a word, an id, or `start,end` of a span. Digits that are a token of a language model are that token."""
    if written is None:
        return "predicted"
    if written == "gold":
        raise InputError("--target gold takes each row's own label, in `mixlens run`. Here, name the class or the word.")
    if written.isdigit():
        return _token_or_id(lens, written)
    return (_span(written) if lens.task == "question-answering" else None) or written


def _span(written: str) -> tuple[int, int] | None:
    """The two numbers of a span, `start,end`; None where it is written otherwise."""
    start, _, end = written.partition(",")
    return (int(start), int(end)) if start.strip().isdigit() and end.strip().isdigit() else None


def _token_or_id(lens: Model, digits: str) -> int:
    """The token of a language model that has these digits as its name, else the number."""
    from .model.vocabulary import token_id

    if lens.task not in ("masked-lm", "causal-lm") or lens.tokenizer is None:
        return int(digits)
    try:
        return token_id(lens, digits)
    except InputError:  # no token has this name, so the digits are an id
        return int(digits)


def targets_of(lens: Model, target: str | None, foil: str | None, score: str | None) -> dict[str, Any]:
    """The options that a method for a class or a word gets."""
    return {"target": target_of(lens, target), "foil": None if foil is None else target_of(lens, foil), "score": score}


def place_of(trace: Trace, query: str | None) -> int | None:
    """The position of a token of the text, or of an index."""
    from .aggregate import find

    if query is None:
        return None
    try:
        return find(trace.tokens, query)
    except InputError:
        if query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


def place_meant(trace: Trace, query: str | None, target: str | None, method: str) -> int | None:
    """The position that a method for positions explains: --query, or a --target that is a token or an index."""
    return place_of(trace, query) if query is not None or target is None else _place_of_target(trace, target, method)


def _place_of_target(trace: Trace, target: str, method: str) -> int | None:
    """The position of a target that is a token or an index; refused where it is a class or a word."""
    try:
        return place_of(trace, target)
    except InputError as error:
        if "occurs" in str(error) or "out of range" in str(error):
            raise
        raise InputError(
            f"{method!r} explains a position, and no token of the text is {target!r}. For a class or a word take a method "
            f"that explains one (--method): {', '.join(class_methods())}."
        ) from None
