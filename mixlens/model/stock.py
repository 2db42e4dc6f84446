"""The call of the stock model itself, and errors of other packages in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError, MixlensError

if TYPE_CHECKING:
    from .model import Model


def call(model: Model, inputs: Mapping[str, Any]) -> Any:
    """The stock model's answer. What its own code refuses is said in one line."""
    try:
        return model.hf_model(**inputs)
    except MixlensError:
        raise
    except ValueError as error:
        raise InputError(f"{model.name!r} itself refuses this input: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The message of an error on one line of at most 160 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
