"""What is made of a model's weights and kept between calls: frozen norms, folded projections, weights read off a module.

A kept value may be used only while the module that it was made of gives the same answers. Two things tell:

- The addresses and version counters of the module's tensors. Reading them costs nothing, and a change of them is final.
- One random probe. Fused optimizers, writes through `.data` or a numpy alias, and another LoRA adapter change a module without
  moving its counters. So every call that uses a kept value sends the probe through the module once more and compares the answer
  with the answer given when the values were made (`Block.gaps`). If they differ, everything is made anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..model.offload import place_of

_T = TypeVar("_T")
Key = tuple[object, ...]  # the kind of the value, then whatever else tells it from others
_LOCK = threading.RLock()
OF_NORMS = ("folded", "metric", "norms")  # kinds of values that depend on frozen norms: they go when a norm changes


@dataclass(eq=False)
class Memory:
    """What is kept of one module, and the probe that tells whether the module is still the same."""

    state: object
    probe: Tensor
    answer: Tensor
    values: dict[Key, tuple[object, Any]] = field(default_factory=dict)  # key: (state of all modules, value)


Used = dict[nn.Module, Memory]  # the modules that a call used kept values of
_MEMORIES: WeakKeyDictionary[nn.Module, Memory] = WeakKeyDictionary()


def module_state(module: nn.Module) -> tuple[tuple[int, int], ...] | None:
    """Where a module's numbers are and how often they were changed; None where torch does not count."""
    try:
        if module._modules:
            return tuple((t.data_ptr(), t._version) for t in (*module.parameters(), *module.buffers()))
        own = (*module._parameters.values(), *module._buffers.values())  # the same, without a walk over modules
        return tuple((t.data_ptr(), t._version) for t in own if t is not None)
    except RuntimeError:  # tensors made in inference mode
        return None


def recall(modules: Sequence[nn.Module], key: Key, made: Callable[[], _T], *, width: int, dtype: torch.dtype, used: Used) -> _T:
    """The value kept under `key` for these modules, made now where there is none. It is kept with the first module.

    `width` and `dtype`: of the vectors that the modules read. `used` gets every module and its memory. Nothing is kept of a
    module whose changes torch does not count.
    """
    states = tuple(module_state(module) for module in modules)
    if None in states:
        return made()
    for module, state in zip(modules, states, strict=True):
        used[module] = _memory(module, state, width, dtype)
    memory = used[modules[0]]
    with _LOCK:
        known = memory.values.get(key)
    if known is not None and known[0] == states:
        return known[1]
    value = made()
    with _LOCK:
        memory.values[key] = (states, value)
    return value


def _memory(module: nn.Module, state: object, width: int, dtype: torch.dtype) -> Memory:
    """The memory of a module, a new one where its tensors changed."""
    with _LOCK:
        known = _MEMORIES.get(module)
    if known is not None and known.state == state and known.probe.dtype == dtype:
        return known
    probe = probe_of(width, dtype, place_of(module))
    fresh = Memory(state, probe, answer_of(module, probe).clone())
    with _LOCK:
        if known is not None and any(key[0] == "norm" for key in known.values):
            _forget_kinds(OF_NORMS)
        _MEMORIES[module] = fresh
    return fresh


def probe_of(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Two random rows, [1 2 width]: one of ordinary size, and one so small that a norm's eps shows."""
    drawn = torch.randn(1, 2, width, dtype=torch.float64, generator=_GENERATOR, device="cpu")
    drawn[:, 1] *= 1e-3
    return drawn.to(device=device, dtype=dtype)


_GENERATOR = torch.Generator(device="cpu").manual_seed(0x6D69786C)


def answer_of(module: nn.Module, probe: Tensor) -> Tensor:
    with torch.no_grad():
        made = module(probe)
    return made[0] if isinstance(made, tuple) else made


def numbers_kept(kind: str) -> int:
    """How many numbers the kept tensors of one kind have."""
    with _LOCK:
        found = [value for memory in _MEMORIES.values() for key, (_, value) in memory.values.items() if key[0] == kind]
    return sum(value.numel() for value in found if isinstance(value, Tensor))


def memories_of(modules: Iterable[nn.Module]) -> list[Memory | None]:
    """The memories of some modules: who holds them can go on reading what they hold when it is forgotten here."""
    with _LOCK:
        return [_MEMORIES.get(module) for module in modules]


def forget(model: nn.Module) -> None:
    """Forget what is kept of this model's modules."""
    with _LOCK:
        for module in model.modules():
            _MEMORIES.pop(module, None)


def _forget_kinds(kinds: Sequence[str]) -> None:
    for memory in _MEMORIES.values():
        for key in [key for key in memory.values if key[0] in kinds]:
            del memory.values[key]
