"""The scores that commands show: one trace, each map made once, every layer proven once for all maps with the same
options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, TokenLimitError
from ..data.fit import naming_option, truncated
from ..scoring.aggregate import without_special
from ..scoring.attributions import attribute, row_of_map
from ..scoring.attributions import known as attributions
from ..scoring.maps import mix
from ..types import Attribution, Chat, Example, Map, Result, Trace

if TYPE_CHECKING:
    from ..model.model import Model
    from ..scoring.asking import MethodRequest


def traced(lens: Model, source: Any, *, truncate: bool) -> Trace:
    """The trace of a text or a pair, cut to what the model reads where `truncate` says so; else one that is too long is
    refused with the option."""
    if not truncate:
        try:
            trace: Trace = lens.trace(source)
        except TokenLimitError as error:
            raise error if isinstance(source, Chat) else naming_option(error) from None
        return trace
    shorter = truncated(Example(*source) if isinstance(source, tuple) else Example(source), lens)
    trace = lens.trace(shorter)
    return replace(trace, info={**trace.info, **shorter.info})


def maps_of(trace: Trace, requests: Iterable[MethodRequest]) -> list[Map]:
    """The map of each request. Requests with the same variant and options go to one call of `mix`, which decomposes and
    proves each layer once for all of them."""
    requests = list(requests)
    groups: dict[str, list[MethodRequest]] = {}
    for request in requests:
        groups.setdefault(request.call_key, []).append(request)
    maps = {
        key: mix(trace, [request.name for request in group], variant=group[0].variant, **group[0].options)
        for key, group in groups.items()
    }
    return [maps[request.call_key][request.name] for request in requests]


def arguments_of(request: MethodRequest) -> dict[str, Any]:
    """The keyword arguments of `attribute` that a method as written stands for."""
    rollout = {} if request.rollout is None else {"rollout": request.rollout}
    return {"variant": request.variant, **rollout, **request.options}


def attributions_of(
    trace: Trace, requests: Mapping[str, MethodRequest], *, query: int | None, target: Mapping[str, Any]
) -> dict[str, Attribution]:
    """The attribution of each request, by the method as written; `target` is for methods that explain a class or a
    word."""
    named = {name: request for name, request in requests.items() if request.is_map}
    maps = dict(zip(named, maps_of(trace, named.values()), strict=True))
    return {
        name: row_of_map(trace, maps[name], query=query, rollout=request.rollout)
        if name in maps
        else attribute(
            trace, request.name, query=query, **arguments_of(request), **(target if request.class_specific else {})
        )
        for name, request in requests.items()
    }


@dataclass(frozen=True)
class Explanation:
    """One method on one trace: its attribution, its attribution by layer, and its map. Each is computed when first
    read."""

    trace: Trace
    request: MethodRequest
    question: Mapping[str, Any]  # query, and of a class-specific method target, foil and score
    keep_special: bool

    @cached_property
    def map(self) -> Map:
        return maps_of(self.trace, [self.request])[0]

    @cached_property
    def attribution(self) -> Attribution:
        if self.request.is_map:
            return self._shown(
                row_of_map(self.trace, self.map, query=self.question["query"], rollout=self.request.rollout)
            )
        return self._shown(attribute(self.trace, self.request.name, **self.question, **arguments_of(self.request)))

    @cached_property
    def layers(self) -> dict[str, Attribution]:
        """What the prediction rests on, after every layer (a map) or at the input of every layer (gradients)."""
        trace, name, query = self.trace, self.request.name, self.question["query"]
        if self.request.is_map:
            rolled = self.map.rollout(self.request.rollout)
            place = trace.query if query is None else query
            layers = {f"layer {one + 1}": rolled.readout(place, layer=one) for one in range(len(trace.layers))}
            first = layers["layer 1"]
            layers["layer 1"] = replace(first, info={**first.info, "prediction": trace.prediction()})
        elif attributions()[name].layers:
            names = ["input", *(f"after {number + 1}" for number in range(len(trace.layers)))]
            question = {**self.question, **arguments_of(self.request)}
            layers = {told: attribute(trace, name, layer=number, **question) for number, told in enumerate(names)}
        else:
            raise InputError(f"{name!r} is not defined at single layers. Leave --layers out.")
        return {told: self._shown(read) for told, read in layers.items()}

    def _shown(self, read: Attribution) -> Attribution:
        return read if self.keep_special else without_special(read)


def shown(result: Attribution, *, words: bool, keep_special: bool) -> Attribution:
    """An attribution without its special tokens, and with subwords joined to words, where the options say so."""
    read: Attribution = by_word(result if keep_special else without_special(result), words)
    return read


def by_word(result: Any, words: bool) -> Any:
    """The result, with subwords joined to words where `words` says so."""
    joined: Result = result.by_word() if words else result
    return joined
