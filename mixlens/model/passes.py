"""What surrounds one call of the stock model: locks, modes and hooks. All of it is undone when the call ends, whatever happens.

The attention registry is switched on a model's configuration, and hooks sit on its modules. Both belong to the stock model, which
several `Model`s and several threads may share. So passes over models that share a configuration wait for each other, and a hook
acts only on the pass that registered it: other threads may call the same modules, and a pass may start inside another one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ..errors import ModelError
from .offload import HOOK, settle

WATCHING = "mixlens_watching"  # an attribute of our own hooks: they only watch
Wanted = tuple[nn.Module, str, Callable[..., Any]]  # a module, "before" or "after", and the hook
_LOCKS: dict[int, threading.RLock] = {}  # by the id of a configuration, as long as it lives
_LOCKS_LOCK = threading.Lock()
_HOOKED: ContextVar[tuple[object, ...]] = ContextVar("mixlens_hooked", default=())  # the sets of hooks that act now
_RUNNING: ContextVar[bool] = ContextVar("mixlens_running", default=False)  # a pass is under way in this thread


class Locks:
    """The locks of several configurations, taken in one order, as one reentrant lock."""

    def __init__(self, configs: Sequence[Any]):
        self.locks = [_lock_of(config) for config in sorted(configs, key=id)]

    def __enter__(self) -> Locks:
        for lock in self.locks:
            lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for lock in reversed(self.locks):
            lock.release()


def _lock_of(config: Any) -> threading.RLock:
    with _LOCKS_LOCK:
        if id(config) not in _LOCKS:
            _LOCKS[id(config)] = threading.RLock()
            weakref.finalize(config, _LOCKS.pop, id(config), None)
        return _LOCKS[id(config)]


@contextmanager
def hooks(wanted: Sequence[Wanted]) -> Iterator[None]:
    """Register hooks that act on what this block calls, in this thread, and take them off whatever happens."""
    own, handles = object(), []
    token = _HOOKED.set((*_HOOKED.get(), own))

    def of_this_block(hook: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any) -> Any:
            return hook(*args) if own in _HOOKED.get() else None

        setattr(acting, WATCHING, True)
        return acting

    try:
        for module, when, hook in wanted:
            if when == "before":
                handles.append(module.register_forward_pre_hook(of_this_block(hook), with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(of_this_block(hook)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        _HOOKED.reset(token)


@contextmanager
def apart_from_others() -> Iterator[None]:
    """A pass that starts inside another one (from a user's hook) is not seen by the other one's hooks."""
    with unwatched():
        running = _RUNNING.set(True)
        try:
            yield
        finally:
            _RUNNING.reset(running)


@contextmanager
def unwatched() -> Iterator[None]:
    """What is called within the block is not seen by the hooks of a pass that is under way."""
    hooked = _HOOKED.set(() if _RUNNING.get() else _HOOKED.get())
    try:
        yield
    finally:
        _HOOKED.reset(hooked)


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Every module, some perhaps twice; much quicker than `modules()`, which builds every name."""
    found = [module]
    for one in found:  # it grows as it is gone through
        if one._modules:
            found += [child for child in one._modules.values() if child is not None]
    return found


@contextmanager
def evaluating(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode for the length of the block (no gradients unless asked for), then each module's own mode again.

    Autocast and inference mode are off inside, and compiled modules run as they are written: a trace is of the model's own
    numbers, and its hooks are called.
    """
    every = modules_of(model)
    training = [module for module in every if module.training]
    if gradients and any(weights.is_inference() for weights in model.parameters()):
        raise ModelError("the weights were made in torch.inference_mode, so they have no gradients. Load the model outside it.")
    for module in training:
        module.training = False
    try:
        with ExitStack() as stack:
            if any(module._compiled_call_impl is not None for module in every):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(plain_numbers())
            stack.enter_context(torch.set_grad_enabled(gradients))
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
