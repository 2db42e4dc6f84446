"""What is made of one model's weights and kept between calls: frozen norms, folded projections, weights read off a
module.

A `Model` has one store, `model.kept`, and every layer of it leads there (`LayerParts.kept`): two models never share a
kept value, and what is kept goes when the model goes. A kept value may be used only while the module that it was made
of gives the same answers. Two things show that:

- The addresses and version counters of the module's tensors. Reading them costs nothing, and a change of them is final.
- One random probe. Fused optimizers, writes through `.data` or a numpy alias, and another LoRA adapter change a module
without
  moving its counters. So every call that uses a kept value sends the probe through the module once more and compares
  the answer with the answer given when the values were made. If they differ, everything is made anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .offload import place_of

_T = TypeVar("_T")
Key = tuple[object, ...]  # the kind of the value, then whatever else tells it from others
OF_NORMS = ("folded", "metric", "norms")  # kinds of values that depend on frozen norms: they go when a norm changes
SEED = 0x6D69786C


@dataclass(eq=False)
class Memory:
    """What is kept of one module, and the probe that shows whether the module is still the same."""

    state: object
    probe: Tensor
    answer: Tensor
    values: dict[Key, tuple[object, Any]] = field(default_factory=dict)  # key: (state of all modules, value)


Used = dict[nn.Module, Memory]  # the modules whose kept values a call has read


def module_state(module: nn.Module) -> tuple[tuple[int, int], ...] | None:
    """The address and version counter of each of a module's tensors; None where torch does not count."""
    held: Iterable[Tensor | None] = (*module._parameters.values(), *module._buffers.values())  # no walk over modules
    if module._modules:
        held = (*module.parameters(), *module.buffers())
    try:
        return tuple((t.data_ptr(), t._version) for t in held if t is not None)
    except RuntimeError:  # tensors made in inference mode
        return None


def answer_of(module: nn.Module, probe: Tensor) -> Tensor:
    """What a module puts out for a probe, without a graph."""
    with torch.no_grad():
        output = module(probe)
    return output[0] if isinstance(output, tuple) else output


class Kept:
    """The store of one model: a memory for each of its modules, a lock, and a place for its captured CUDA graphs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.graphs: Any = None  # filled by `mixlens.fast`, which alone knows what it is
        self.blocks: Any = None  # likewise: the blocks that calls on one trace share
        self._memories: WeakKeyDictionary[nn.Module, Memory] = WeakKeyDictionary()
        self._generator = torch.Generator(device="cpu").manual_seed(SEED)

    def recall(
        self,
        modules: Sequence[nn.Module],
        key: Key,
        make: Callable[[], _T],
        *,
        width: int,
        dtype: torch.dtype,
        used: Used,
    ) -> _T:
        """The value kept under `key` for these modules, made by `make` where there is none. It is kept with the first
        module.

        `width` and `dtype`: of the vectors that the modules read. `used` gets every module and its memory. Nothing is
        kept of a module whose changes torch does not count.
        """
        states = tuple(map(module_state, modules))
        if None in states:
            return make()
        memories = [self._memory(module, state, width, dtype) for module, state in zip(modules, states, strict=True)]
        for module, memory in zip(modules, memories, strict=True):
            used.setdefault(module, memory)  # of a module that changed since, the first memory shows it
        values = memories[0].values
        with self.lock:
            entry = values.get(key)
        if entry is not None and entry[0] == states:
            return entry[1]
        value = make()
        with self.lock:
            values[key] = (states, value)
        return value

    def _memory(self, module: nn.Module, state: object, width: int, dtype: torch.dtype) -> Memory:
        """The memory of a module, a new one where its tensors changed."""
        with self.lock:
            memory = self._memories.get(module)
        if memory is not None and memory.state == state and memory.probe.dtype == dtype:
            return memory
        probe = self.probe(width, dtype, place_of(module))
        fresh = Memory(state, probe, answer_of(module, probe).clone())
        was_norm = memory is not None and any(key[0] == "norm" for key in memory.values)
        with self.lock:
            for other in self._memories.values() if was_norm else ():
                for key in [key for key in other.values if key[0] in OF_NORMS]:
                    del other.values[key]
            self._memories[module] = fresh
        return fresh

    def probe(self, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Two random rows, [1 2 width]: one of ordinary size, and one so small that a norm's eps shows."""
        with self.lock:
            rows = torch.randn(1, 2, width, dtype=torch.float64, generator=self._generator, device="cpu")
        rows[:, 1] *= 1e-3
        return rows.to(device=device, dtype=dtype)

    def numbers(self, kind: str) -> int:
        """How many numbers the kept tensors of one kind have."""
        with self.lock:
            entries = [entry for memory in self._memories.values() for entry in memory.values.items()]
        return sum(value.numel() for key, (_, value) in entries if key[0] == kind and isinstance(value, Tensor))

    def memories_of(self, modules: Iterable[nn.Module]) -> list[Memory | None]:
        """The memories of these modules: who holds them can go on reading what they hold when it is forgotten here."""
        with self.lock:
            return [self._memories.get(module) for module in modules]

    def forget(self, module: nn.Module | None = None) -> None:
        """Forget what is kept of one module and its parts, or of all modules. Captured graphs stay: they check by
        themselves."""
        with self.lock:
            self.blocks = None
            for part in list(self._memories) if module is None else module.modules():
                self._memories.pop(part, None)

    def clear_graphs(self) -> None:
        """Drop the captured graphs."""
        if self.graphs is not None:
            self.graphs.clear()
