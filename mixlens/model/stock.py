"""The call of the stock model itself, and errors of other packages in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, MixlensError
from .foreign import is_of_user, named_errors

if TYPE_CHECKING:
    from .model import Model


def accepted_names(hf_model: Any) -> set[str]:
    """The names of what a model is called with. A `forward` of a user's own that takes any name hands them on: there these are
    also the names that its class of transformers takes."""
    own = inspect.signature(hf_model.forward)
    return set(own.parameters) | (_stock_names(type(hf_model)) if _takes_any(own) else set())


def _takes_any(signature: inspect.Signature) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())


def _stock_names(kind: Any) -> set[str]:
    """What the `forward` of the nearest class of transformers that has one takes; nothing where there is none."""
    stock = [
        vars(one)["forward"]
        for one in kind.__mro__
        if one.__module__.startswith("transformers.") and "forward" in vars(one)
    ]
    return {name for forward in stock[:1] for name in inspect.signature(forward).parameters}


def call(model: Model, inputs: Mapping[str, Any]) -> Any:
    """The stock model's answer. What its own code refuses, and what a user's code in it raises, is said in one line."""
    with named_errors():
        return _answer(model, inputs)


def _answer(model: Model, inputs: Mapping[str, Any]) -> Any:
    try:
        return model.hf_model(**inputs, **_named_outputs(model.hf_model.config))
    except MixlensError:
        raise
    except ValueError as error:
        if is_of_user(error):
            raise
        raise InputError(f"{model.name!r} itself refuses this input: {one_line(error)}") from error


def _named_outputs(config: Any) -> dict[str, bool]:
    """Outputs are asked for by name where the configuration says that they come without."""
    return {} if getattr(config, "return_dict", True) else {"return_dict": True}


def one_line(error: Exception) -> str:
    """The message of an error on one line of at most 160 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
