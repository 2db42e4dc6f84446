"""The runner: every pass over the stock model goes through `run`. What a pass is to find out is a list of hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from .foreign import named_errors, refuse_changed
from .own_attention import our_attention
from .parts import layer_parts
from .passes import Hook, apart_from_others, evaluating, hooks, modules_of, plain_numbers, recorded, unwatched
from .record import Recorder
from .seam import configurations
from .stock import call
from .wrappers import refuse_meta_default

if TYPE_CHECKING:
    from .model import Model


class Done(BaseException):
    """A hook raises it where a pass need not go on. No `except Exception` of a model's own code stops it."""


def run(
    model: Model,
    inputs: Mapping[str, Any],
    entries: Callable[[], Sequence[Hook]] = tuple,
    *,
    recorder: Recorder | None = None,
    gradients: bool = False,
) -> Any:
    """The stock model's output; None where a hook ended the pass (`Done`).

    `entries` gives the hooks: it is called when the modules that the model has now are known. `recorder` gets what attention
    reads.
    """
    with suppress(Done), model.lock, apart_from_others(), evaluating(model.hf_model, gradients=gradients):
        refuse_changed(model)
        _refresh_parts(model)
        with our_attention(model), hooks(entries()), recorded(recorder), named_errors():
            return call(model, inputs)
    return None


def _refresh_parts(model: Model) -> None:
    """A module may have been replaced since the model was loaded: the modules that it has now are read."""
    parts = layer_parts(model.hf_model.base_model, model.family, model.kept)
    if parts != model.parts:
        model.parts, model.configs = parts, configurations(model.hf_model)
        model.kept.clear_graphs()


@contextmanager
def computing(model: Model) -> Iterator[None]:
    """For calls of single modules: in evaluation mode, as they were traced (a LoRA module in training mode may drop part of its
    input), and in their own numbers."""
    refuse_meta_default()
    if any(module.training for module in modules_of(model.hf_model)):
        with model.lock, unwatched(), evaluating(model.hf_model), named_errors():
            yield
    else:
        with unwatched(), plain_numbers(), named_errors():
            yield
