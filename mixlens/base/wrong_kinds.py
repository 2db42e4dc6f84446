"""A public function that was given the wrong kind of thing says so in one line, and not by an error from deep inside."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .errors import InputError, MixlensError, kind_of

FAILURES = (TypeError, AttributeError, ValueError, LookupError, RuntimeError)  # what a wrong kind leads to
P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """One kind of value: whether a value is of it, what one and several are called, and what gives one."""

    fits: Callable[[Any], bool]
    one: str
    several: str
    made: str = ""


class WrongKindError(InputError):
    """The refusal of an argument of the wrong kind. A function that handed its own argument on says so of its own."""


def wrong_kinds_in_one_line(function: Callable[P, R]) -> Callable[P, R]:
    """The function; where it fails and an argument is not what its annotation says, that is said in one line. What the function
    itself refuses it refuses in its own words, and a parameter whose annotation names anything but KINDS is its own affair.
    A trace of another model than the one that is asked is refused beforehand: its ids would be read as this model's."""
    parameters = inspect.signature(function).parameters
    kinds = {name: found for name, one in parameters.items() if (found := _kinds(str(one.annotation)))}
    traced = [name for name, one in parameters.items() if "Trace" in str(one.annotation)]

    @functools.wraps(function)
    def explained(*args: P.args, **kwargs: P.kwargs) -> R:
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        _refuse_other_model(given.get("self", given.get("model")), [given[name] for name in traced if name in given])
        try:
            return function(*args, **kwargs)
        except FAILURES as error:
            _refuse_wrong_kinds(given, kinds, error)
            raise

    return explained


def _refuse_wrong_kinds(given: Mapping[str, Any], kinds: Mapping[str, Sequence[Kind]], error: Exception) -> None:
    """Refuse the argument of a wrong kind that explains an error, if there is one."""
    if (isinstance(error, MixlensError) and not isinstance(error, WrongKindError)) or _is_of_the_machine(error):
        return
    for name in kinds.keys() & given.keys():
        if not any(kind.fits(given[name]) for kind in kinds[name]):
            raise _refusal(name, given[name], kinds[name]) from error


def _is_of_the_machine(error: Exception) -> bool:
    """Such as a lack of memory, which torch raises as a RuntimeError of its own class."""
    return isinstance(error, RuntimeError) and type(error) is not RuntimeError


def _refusal(name: str, value: Any, kinds: Sequence[Kind]) -> WrongKindError:
    made = [f" {kind.made} gives {kind.one}." for kind in kinds if kind.made]
    return WrongKindError(
        f"{name}= takes {_words([kind.one for kind in kinds])}, not {kind_of(value)}.{''.join(made[:1])}"
    )


def _words(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _refuse_other_model(model: Any, values: Iterable[Any]) -> None:
    """Refuse traces of another model than this, alone or in a list; where there is no model, none is another's."""
    for value in values if is_model(model) else ():
        for trace in value if isinstance(value, list | tuple) else (value,):
            if is_trace(trace) and trace.model.hf_model is not model.hf_model:
                raise InputError(
                    f"this trace is of {trace.model.name!r}, not of {model.name!r}. Trace the text with the model asked."
                )


# --- annotations ------------------------------------------------------------------------------------------------------


def _kinds(annotation: str) -> list[Kind]:
    """The kinds that an annotation names; none where it names another."""
    found = [_kind(name.strip()) for name in _split(annotation)]
    return [] if None in found else [kind for kind in found if kind is not None]


def _split(annotation: str) -> list[str]:
    """An annotation at the bars that are in no brackets."""
    parts, depth = [""], 0
    for char in annotation:
        depth += (char == "[") - (char == "]")
        if char == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _kind(name: str) -> Kind | None:
    outer, _, inner = name.removesuffix("]").partition("[")
    return _sequence(_kinds(inner)) if outer == "Sequence" else KINDS.get(outer)


def _sequence(kinds: Sequence[Kind]) -> Kind | None:
    """Several values of these kinds, in an order: a list, a tuple, an array."""
    if not kinds:
        return None

    def fits(value: Any) -> bool:
        return _is_ordered(value) and all(any(kind.fits(one) for kind in kinds) for one in value)

    several = f"a list of {_words([kind.several for kind in kinds])}"
    return Kind(fits, several, several, next((kind.made for kind in kinds if kind.made), ""))


def _is_ordered(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping) or getattr(value, "shape", None) == ():
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _is_whole(value: Any) -> bool:
    """A whole number of Python, numpy or torch; True and False are none."""
    with suppress(TypeError):
        return not isinstance(value, bool) and operator.index(value) is not None
    return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")  # numpy's, under two names


def _is_a(noun: str) -> Callable[[Any], bool]:
    """Whether a value is of a class of this name: so the check imports no model."""
    return lambda value: any(one.__name__ == noun for one in type(value).__mro__)


is_model, is_trace = _is_a("Model"), _is_a("Trace")


def _is_input(value: Any) -> bool:
    """Whether a model can be called with it: an Encoded, or whatever has the same fields."""
    return hasattr(value, "input_ids") and hasattr(value, "attention_mask")


KINDS = {
    "Any": Kind(lambda value: True, "anything", "anything"),
    "None": Kind(lambda value: value is None, "None", "None"),
    "str": Kind(lambda value: isinstance(value, str), "a text", "texts"),
    "int": Kind(_is_whole, "a whole number", "whole numbers"),
    "float": Kind(_is_number, "a number", "numbers"),
    "bool": Kind(_is_truth, "True or False", "True or False"),
    "os.PathLike": Kind(lambda value: isinstance(value, os.PathLike), "a Path", "Paths"),
    "Callable": Kind(callable, "a function", "functions"),
    "Iterable": Kind(lambda value: isinstance(value, Iterable), "a list", "lists"),
    "Mapping": Kind(lambda value: isinstance(value, Mapping), "a mapping", "mappings"),
    "Tensor": Kind(_is_a("Tensor"), "a tensor", "tensors"),
    "torch.device": Kind(_is_a("device"), "a torch.device", "devices"),
    "torch.dtype": Kind(_is_a("dtype"), "a torch.dtype", "types"),
    "Chat": Kind(_is_a("Chat"), "a Chat", "chats"),
    "Family": Kind(_is_a("Family"), "a Family", "families"),
    "Model": Kind(is_model, "a Model", "models", "mixlens.load(name)"),
    "Encoded": Kind(_is_input, "an encoded text", "encoded texts", "model.encode(text)"),
    "Trace": Kind(is_trace, "a Trace", "traces", "model.trace(text)"),
    "Map": Kind(_is_a("Map"), "a Map", "maps", "mixlens.mix(trace, name)"),
    "Attribution": Kind(_is_a("Attribution"), "an Attribution", "attributions", "mixlens.attribute(trace, name)"),
}
