"""What is asked for in words, and the result: `alti:variant=released` -> MethodRequest -> Map or Attribution.

The module imports torch only when a function is called, because the command line imports it at once.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError

if TYPE_CHECKING:
    from ..types import Attribution, Map, Trace

RANDOM = "random"
METHOD_NAME = re.compile(r"[\w][\w \-]{0,59}")  # of a method from outside: "," and ":" have a meaning of their own


# --- a method as written ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodRequest:
    """A method as written: `name`, or `name:option=value:variant=released`; a map also with `:rollout=` and a
    convention."""

    name: str
    variant: str | None = None
    rollout: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> Any:
        """The method of this name, a map or an attribution."""
        from .registry import any_method

        return any_method(self.name)

    @property
    def is_map(self) -> bool:
        from .registry import Method, seek

        return isinstance(seek(self.name), Method)

    @property
    def class_specific(self) -> bool:
        """Whether the method explains a class or a word, so that a target changes its scores."""
        return not self.is_map and bool(self.method.needs_target)

    @property
    def signed(self) -> bool:
        """Whether scores below zero have a meaning: for and against a target, or more and less."""
        return bool(self.method.is_signed(self.variant, self.options))

    @property
    def has_layers(self) -> bool:
        """Whether the method scores the input of a single layer too."""
        return self.is_map or bool(self.method.layers)

    @property
    def call_key(self) -> str:
        """Map methods with the same key are answered by one call of `mix`: they have the same variant and options."""
        return json.dumps([self.variant, self.options], sort_keys=True, default=str)

    def options_for(self, trace: Trace) -> dict[str, Any]:
        """The options for one text. Random scores take their seed from the text, unless a seed is named: the same
        noise in every text would not average out."""
        if self.name == RANDOM and "seed" not in self.options:
            return {**self.options, "seed": zlib.crc32(" ".join(trace.tokens).encode())}
        return dict(self.options)


Written = str | MethodRequest  # a method: as text, or parsed already


def parse_method(written: Written) -> MethodRequest:
    """The method that is meant. An unknown name, option, variant or rollout convention is refused."""
    from .conventions import known_convention
    from .registry import refuse_all_heads

    if isinstance(written, MethodRequest):
        return written
    name, *pairs = written.split(":")
    request = MethodRequest(name)
    method, is_map = request.method, request.is_map
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"{written!r}: an option is written key=value, such as {name}:variant=paper.")
        options[key] = json_or_text(value)
    variant = options.pop("variant", None)
    rollout = options.pop("rollout", None) if is_map else None
    if rollout is not None:
        known_convention(rollout)
    method.arguments(variant, options)
    if not is_map:
        method.refuse_values(options)
    refuse_all_heads(name, options)
    return MethodRequest(name, variant, rollout, options)


def json_or_text(value: str) -> Any:
    """The value that a text means as JSON, or the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def parse_methods(names: Iterable[str]) -> dict[str, MethodRequest]:
    """Every method as written, with its request."""
    return {name: parse_method(name) for name in names}


# --- the results of requests ------------------------------------------------------------------------------------------


def grouped(requests: Mapping[str, MethodRequest]) -> list[list[str]]:
    """The map methods that one call of `mix` can answer: those with the same variant and options. Random scores are
    left out, because their seed differs from text to text."""
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
    """The maps of several methods as written. Methods with the same variant and options share the proof of every
    layer."""
    from .maps import mix

    requests = methods if isinstance(methods, Mapping) else parse_methods(methods)
    maps: dict[str, Map] = {}
    for group in grouped(requests):
        shared, names = requests[group[0]], [requests[written].name for written in group]
        by_name = mix(trace, names, variant=shared.variant, **shared.options)
        maps |= {written: by_name[name] for written, name in zip(group, names, strict=True)}
    return {
        written: maps[written] if written in maps else map_of(trace, request) for written, request in requests.items()
    }


def rolled(scores: Map, written: Written, query: int | str) -> Attribution:
    """One row of the rolled-out map, by the convention that is named, else by the convention of its paper."""
    from .aggregate import rolled_row

    return rolled_row(scores, query, convention=parse_method(written).rollout)


def scores_of(
    trace: Trace, written: Written, *, target: Any = "predicted", foil: Any = None, query: int | str | None = None
) -> tuple[Attribution, float]:
    """The attribution by any method, and its seconds. Of a map: the row of `query`, rolled out by its paper's
    convention."""
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
    from ..base.budget import setting

    with setting(timing=True):
        maps = maps_of(trace, {written: request for written, request in requests.items() if request.is_map})
    results: dict[str, tuple[Attribution, float]] = {}
    for written, request in requests.items():
        started, spent = time.perf_counter(), 0.0
        if request.is_map:
            seconds = maps[written].info["seconds"]
            spent = float(seconds["proof"] + seconds["map"])
            scores = rolled(maps.pop(written), request, trace.query if query is None else query)
        else:
            scores = attribution_of(trace, request, target=target, foil=foil, score=score, query=query)
        results[written] = scores, spent + time.perf_counter() - started
    return results


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
