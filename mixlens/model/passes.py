"""One call of the stock model and what surrounds it: locks, modes and hooks. All of it is undone when the call ends,
whatever happens.

The attention registry is switched on a model's configuration, and hooks sit on its modules. Both belong to the stock
model, which several `Model`s and several threads may share. So passes over models that share a configuration wait for
each other, and a hook acts only on the pass that registered it: other threads may call the same modules, and a pass may
start inside another one.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import InputError, MixlensError, ModelError
from .offload import HOOK, settle
from .parts import modules_of
from .user_code import is_of_user, named_errors

if TYPE_CHECKING:
    from .model import Model
    from .record import Recorder

WATCHING = "mixlens_watching"  # an attribute of our own hooks: they only watch
Hook = tuple[nn.Module, str, Callable[..., Any]]  # a module, "before" or "after", and what is called then

# --- locks ------------------------------------------------------------------------------------------------------------

# By the id of a configuration, as long as it lives. Module-level, because several `Model`s may share one configuration.
_LOCKS: dict[int, threading.RLock] = {}
_LOCKS_LOCK = threading.Lock()


class Locks:
    """The locks of several configurations, taken in one order, as one reentrant lock."""

    def __init__(self, configs: Sequence[Any]):
        self.locks = [_lock_of(config) for config in sorted(configs, key=id)]

    def __enter__(self) -> Locks:
        for lock in self.locks:
            lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lock in reversed(self.locks):
            lock.release()


def _lock_of(config: Any) -> threading.RLock:
    with _LOCKS_LOCK:
        if id(config) not in _LOCKS:
            _LOCKS[id(config)] = threading.RLock()
            weakref.finalize(config, _LOCKS.pop, id(config), None)
        return _LOCKS[id(config)]


# --- the pass under way -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pass:
    """The pass that is under way in this thread; by default none."""

    recorder: Recorder | None = None  # gets what attention reads
    capped: bool = True  # does the model's own attention cap its logits?
    hook_sets: tuple[object, ...] = ()  # the sets of hooks that act on what is called
    running: bool = False


NO_PASS = Pass()
PASS: ContextVar[Pass] = ContextVar("mixlens_pass", default=NO_PASS)


@contextmanager
def within_pass(**changes: Any) -> Iterator[None]:
    """The pass under way with some fields changed, for the length of the block."""
    token = PASS.set(replace(PASS.get(), **changes))
    try:
        yield
    finally:
        PASS.reset(token)


def unwatched(**changes: Any) -> AbstractContextManager[None]:
    """What is called within the block is not seen by the hooks of a pass that is under way: a pass that starts inside
    another one (from a user's hook, `running`) is a pass of its own. `changes`: as for `within_pass`."""
    return within_pass(hook_sets=() if PASS.get().running else PASS.get().hook_sets, **changes)


# --- hooks ------------------------------------------------------------------------------------------------------------


@contextmanager
def hooks(entries: Sequence[Hook]) -> Iterator[None]:
    """Register hooks that act on what this block calls, in this thread, and take them off whatever happens."""
    hook_set, handles = object(), []
    with within_pass(hook_sets=(*PASS.get().hook_sets, hook_set)):
        try:
            for module, when, hook in entries:
                acting = _acting_in(hook_set, hook)
                before = module.register_forward_pre_hook
                after = module.register_forward_hook
                handles.append(before(acting, with_kwargs=True) if when == "before" else after(acting))
            yield
        finally:
            for handle in handles:
                handle.remove()


def _acting_in(hook_set: object, hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, silent where its set does not act."""

    def acting(*args: Any) -> Any:
        return hook(*args) if hook_set in PASS.get().hook_sets else None

    setattr(acting, WATCHING, True)
    return acting


def first(output: Any) -> Tensor:
    """The tensor that a module puts out, also where it is the first of several."""
    return output[0] if isinstance(output, tuple) else output


def hidden_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states [... pos d] among a layer's arguments."""
    return args[0] if args else kwargs["hidden_states"]


def with_hidden(args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> tuple[Any, dict[str, Any]]:
    """A layer's arguments with x in place of the hidden states."""
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})


# --- modes ------------------------------------------------------------------------------------------------------------


@contextmanager
def evaluating(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode for the length of the block (without gradients by default), then each module's own mode again.

    Autocast and inference mode are off inside, and compiled modules run as they are written: a trace is of the model's
    own numbers, and its hooks are called. Weights that accelerate brought in go back, also where the block was broken
    off.
    """
    if gradients and any(weights.is_inference() for weights in model.parameters()):
        raise ModelError(
            "the weights were made in torch.inference_mode, so they have no gradients. Load the model outside it."
        )
    modules = modules_of(model)
    training = [module for module in modules if module.training]
    compiled = [module for module in modules if module._compiled_call_impl is not None]
    as_written = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    try:
        for module in training:
            module.training = False
        with as_written, plain_numbers(), torch.set_grad_enabled(gradients):
            yield
    finally:
        for module in training:
            module.training = True
        if HOOK in model.__dict__:
            settle(model)


@contextmanager
def plain_numbers() -> Iterator[None]:
    """Neither autocast nor inference mode within the block."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        yield


# --- the call ---------------------------------------------------------------------------------------------------------


def accepted_names(hf_model: Any) -> set[str]:
    """The names of what a model is called with. A `forward` of a user's own that takes any name hands them on: there
    these are also the names that the nearest class of transformers which has a `forward` takes."""
    own = inspect.signature(hf_model.forward).parameters
    names = set(own)
    if any(one.kind is one.VAR_KEYWORD for one in own.values()):
        kinds = (vars(kind) for kind in type(hf_model).__mro__ if kind.__module__.startswith("transformers."))
        stock = next((kind["forward"] for kind in kinds if "forward" in kind), None)
        names |= set() if stock is None else set(inspect.signature(stock).parameters)
    return names


def call(model: Model, inputs: Mapping[str, Any]) -> Any:
    """The stock model's answer. What its own code refuses, and what a user's code in it raises, is said in one line."""
    config = model.hf_model.config
    named = {} if getattr(config, "return_dict", True) else {"return_dict": True}  # outputs by name
    with named_errors():
        try:
            return model.hf_model(**inputs, **named)
        except ValueError as error:
            if isinstance(error, MixlensError) or is_of_user(error):
                raise
            raise InputError(f"{model.name!r} itself refuses this input: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The message of an error on one line of at most 160 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
