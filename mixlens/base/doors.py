"""A public function that was given the wrong kind of thing says so in one line, and not by an error from deep
inside."""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from .errors import InputError, MixlensError, kind_of

FAILURES = (TypeError, AttributeError, ValueError, LookupError, RuntimeError)  # what a wrong kind leads to
# Kinds that are told by the name of their class, so that the check imports neither torch nor a model.
CLASSES = ("str", "bool", "Tensor", "device", "dtype", "Chat", "Family", "Model", "Trace", "Map", "Attribution")
MADE = {
    "Model": "mixlens.load(name)",
    "Encoded": "model.encode(text)",
    "Trace": "model.trace(text)",
    "Map": "mixlens.mix(trace, name)",
    "Attribution": "mixlens.attribute(trace, name)",
}
KIND = re.compile(
    r"(?:[^\[\]|]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])+"
)  # of an annotation: up to a bar that is in no brackets
P = ParamSpec("P")
R = TypeVar("R")


class KindError(InputError):
    """The refusal of an argument of the wrong kind. A function that handed its own argument on says so of its own."""


def door(function: Callable[P, R]) -> Callable[P, R]:
    """The function; where it fails and an argument is not what its annotation says, that is said in one line. What
    the function itself refuses it refuses in its own words, and a parameter whose annotation names other kinds is its
    own affair. A trace of another model than the one that is asked is refused beforehand: its ids would be read as
    this model's."""

    @functools.wraps(function)
    def explained(*args: P.args, **kwargs: P.kwargs) -> R:
        model: Any = next((one for one in (*args[:1], kwargs.get("model")) if type(one).__name__ == "Model"), None)
        for value in () if model is None else (*args, *kwargs.values()):
            several: Any = value if isinstance(value, list | tuple) else (value,)
            for trace in several:
                if type(trace).__name__ == "Trace" and trace.model.hf_model is not model.hf_model:
                    raise InputError(
                        f"this trace is of {trace.model.name!r}, not of {model.name!r}. Trace the text with the "
                        "model asked."
                    )
        try:
            return function(*args, **kwargs)
        except FAILURES as error:
            of_machine = isinstance(error, RuntimeError) and type(error) is not RuntimeError  # such as a lack of memory
            if of_machine or (isinstance(error, MixlensError) and not isinstance(error, KindError)):
                raise
            signature, given = inspect.signature(function), {}
            with suppress(TypeError):
                given = signature.bind(*args, **kwargs).arguments
            for name, value in given.items():
                annotation = str(signature.parameters[name].annotation)
                if fits(value, annotation) is False:
                    made = next((f" {how} gives one." for kind, how in MADE.items() if kind in annotation), "")
                    raise KindError(f"{name}= takes {annotation}, not {kind_of(value)}.{made}") from error
            raise

    return explained


def fits(value: Any, annotation: str) -> bool | None:
    """Is a value of one of the kinds that an annotation names, at its bars that are in no brackets? None where it
    names others."""
    found = [is_kind(value, kind.strip()) for kind in KIND.findall(annotation)]
    return None if None in found else any(found)


def is_kind(value: Any, kind: str) -> bool | None:
    """Is a value of this kind? A number may be numpy's or torch's; True and False are none."""
    outer, _, inner = kind.removesuffix("]").partition("[")
    match outer.rpartition(".")[2]:
        case "Any":
            return True
        case "None":
            return value is None
        case "int":
            with suppress(TypeError):
                return not isinstance(value, bool) and operator.index(value) is not None
            return False
        case "float":
            return isinstance(value, numbers.Real) and not isinstance(value, bool)
        case "Callable":
            return callable(value)
        case "Iterable":
            return isinstance(value, Iterable)
        case "Mapping":
            return isinstance(value, Mapping)
        case "Encoded":  # or whatever has the same fields
            return hasattr(value, "input_ids") and hasattr(value, "attention_mask")
        case "Sequence":  # several in an order: a list, a tuple, an array
            is_one = isinstance(value, str | bytes | Mapping) or getattr(value, "shape", None) == ()
            several = not is_one and hasattr(value, "__len__") and hasattr(value, "__getitem__")
            each = [fits(one, inner) for one in (value if several else ())]
            return None if fits(None, inner) is None else several and all(each)
        case "PathLike":
            return hasattr(value, "__fspath__")
        case name if name in CLASSES:
            return any(one.__name__ in (name, f"{name}_") for one in type(value).__mro__)
    return None
