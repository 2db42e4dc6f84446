"""CUDA graphs: a GPU waits for Python at a short text's many small operations, so what comes again is replayed as one.

What is replayed are the same operations on tensors of the same kind: the same bits. A graph is used as long as all it was
made from is what it was (weights may change in place: they are read anew), and every map is proven as ever.
`MIXLENS_GRAPHS=off` in the environment switches them off.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layer.weights import is_plain
from ..model.kept import module_state
from ..model.parts import modules_of
from ..types import LayerTrace, tensors_of
from .switch import is_off

if TYPE_CHECKING:
    from ..model.parts import LayerParts

FIRST = (
    2  # so often it is computed as ever before it is captured: capturing takes as long as computing it some ten times
)
AGAIN = 3  # so often it is captured anew because something changed; then no more
TOKENS = 2048  # in a batch; with more, a GPU is busy anyway
SHAPES = 1000  # that are counted: a corpus has many, and few of them come again
LISTS = (list, dict, set)  # what may change and stay the same object
BYTES = 1 << 30  # of what goes in and comes out of all graphs of a model; beyond that nothing new is captured

Compute = Callable[[list[Tensor]], Any]
Slot = tuple[tuple[str, int], ...]  # of a layer: the names of its tensors, and the number of each


@dataclass(frozen=True)
class Captured:
    """A captured graph and where its tensors lie."""

    graph: Any
    inputs: list[Tensor]  # where the graph reads
    outputs: Any  # where it writes: tensors in dicts, lists and tuples, among other things
    state: object  # of what it rests on
    keeps: object  # what it reads besides: not freed before it
    bytes: int
    times: int

    def readable(self, state: Callable[[], object | None]) -> bool:
        """Whether what it reads is still there: of a whole model, which takes a while to go through, the memory alone."""
        if isinstance(self.state, Standing):
            return [weight.data_ptr() for weight in self.state.weights] == self.state.places
        return self.state == state()

    def replay(self) -> Any:
        """What it writes, in memory of its own, for what stands in its inputs now."""
        self.graph.replay()
        return copied(self.outputs)


@dataclass(frozen=True)
class Work:
    """What may be captured: tensors, the function of them, the state of all else that it reads, and what is to be held."""

    what: object  # all else that it depends on
    tensors: Sequence[Tensor]
    compute: Compute
    state: Callable[[], object | None]  # None: nobody can tell
    keeps: Callable[[], object]


class Graphs:
    """The captured graphs of one model."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.seen: Counter[Any] = Counter()
        self.kept: dict[Any, Captured | None] = {}  # None: it cannot be captured
        self.bytes = 0
        self.pool: Any = None  # memory that all graphs take their temporaries from: they run one after the other

    def clear(self) -> None:
        with self.lock:
            self.seen.clear()
            self.kept.clear()
            self.bytes, self.pool = 0, None

    def scored(self, what: object, layers: Sequence[LayerTrace], compute: Callable[[Sequence[LayerTrace]], Any]) -> Any:
        """`compute(layers)`, replayed; None where it is to be computed as ever. `what`: all else that it depends on."""
        if layers[0].input.shape[:-1].numel() > TOKENS:
            return None
        tensors, slots = _tensors(layers)
        settings = tuple((layer.scaling, layer.softcap) for layer in layers)
        modules, kept = [module for layer in layers for module in _read(layer.parts)], layers[0].parts.kept

        def of_tensors(inputs: list[Tensor]) -> Any:
            return compute([_with_tensors(layer, slot, inputs) for layer, slot in zip(layers, slots, strict=True)])

        state, keeps = partial(_states, [layer.parts for layer in layers]), partial(kept.memories_of, modules)
        return self._replayed(Work((what, slots, settings), tensors, of_tensors, state, keeps))

    def passed(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        run: Callable[[dict[str, Any]], Any],
        *,
        what: object = None,
        parts: Sequence[LayerParts] = (),
    ) -> Any:
        """`run(inputs)`, a forward pass of the model, replayed; None where it is to be computed as ever.

        `what`: all else that it depends on. `parts`: of layers that are scored in it.
        """
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        if next(iter(tensors.values())).numel() > TOKENS or is_spread(model) or torch.is_grad_enabled():
            return None
        others = {name: value for name, value in inputs.items() if name not in tensors}

        def of_tensors(copies: list[Tensor]) -> Any:
            return run({**dict(zip(tensors, copies, strict=True)), **others})

        key = ("pass", what, tuple(tensors), tuple(others.items()))
        state, keeps = partial(_standing, model, parts), partial(_memories, parts)
        return self._replayed(Work(key, list(tensors.values()), of_tensors, state, keeps))

    def _replayed(self, work: Work) -> Any:
        """What the work gives, replayed; None where it is to be computed as ever."""
        around = surroundings()
        if around is None:
            return None
        key = (work.what, tuple((t.shape, t.stride(), t.dtype) for t in work.tensors), around)
        with self.lock:
            captured = self.kept.get(key)
            if captured is not None:
                outputs = _replayed_again(captured, work)
                return self._captured_anew(key, work, captured) if outputs is None else outputs
            return self._captured_anew(key, work) if self._is_due(key) else None

    def _is_due(self, key: object) -> bool:
        """Has this work come so often that it is captured now? Where not, it is counted."""
        if key not in self.kept and self.seen[key] >= FIRST and self.bytes <= BYTES:
            return True
        if len(self.seen) > SHAPES:
            self.seen.clear()
        self.seen[key] += 1
        return False

    def _captured_anew(self, key: object, work: Work, before: Captured | None = None) -> Any:
        """The work captured, or captured once more because something changed, and replayed; None where it cannot be."""
        times = 0 if before is None else before.times + 1
        self.bytes -= 0 if before is None else before.bytes
        fresh = self._captured(work, times) if times <= AGAIN else None
        self.kept[key] = fresh
        return None if fresh is None else fresh.replay()

    def _captured(self, work: Work, times: int) -> Captured | None:
        """The work as a graph; None where it cannot be captured, or where room is short, which is left to others."""
        free, whole = torch.cuda.mem_get_info()
        if work.state() is None or free < whole / 4:
            return None
        inputs = [torch.empty_like(t).copy_(t) for t in work.tensors]
        graph, self.pool = torch.cuda.CUDAGraph(), self.pool or torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream()
        try:
            outputs = _capture(graph, self.pool, current, partial(work.compute, inputs))
        except Exception:  # something in it cannot be replayed: never a reason to stop
            torch.cuda.set_stream(current)  # torch leaves the capturing one in place when a capture fails
            torch.cuda.synchronize()
            return None
        size = sum(t.nbytes for t in chain(inputs, _flat(outputs, {}).values()))
        self.bytes += size
        return Captured(graph, inputs, outputs, _remembered(work.state()), work.keeps(), size, times)


def is_spread(model: nn.Module) -> bool:
    """accelerate moves weights and inputs of this model about: nothing to be captured."""
    return hasattr(model, "hf_device_map")


def surroundings() -> object | None:
    """What numbers depend on besides tensors and modules; None where nothing may be replayed."""
    if _is_watched() or torch.is_autocast_enabled("cuda") or os.environ.get("MIXLENS_GRAPHS") == "off" or is_off():
        return None
    cuda = torch.backends.cuda
    kernels = (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )
    exact = (cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled())
    return (*kernels, *exact, torch.is_inference_mode_enabled(), os.environ.get("MIXLENS_KERNELS"))


def _is_watched() -> bool:
    """Does somebody follow each operation, or run them on a stream of their own?"""
    watched = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    return bool(watched) or torch.cuda.current_stream() != torch.cuda.default_stream()


def _replayed_again(captured: Captured, work: Work) -> Any:
    """What a captured graph gives for these tensors; None where it is not to be used any more."""
    if not captured.readable(work.state):
        return None
    copy_all(captured.inputs, work.tensors)
    outputs = captured.replay()
    changed = isinstance(captured.state, Standing) and captured.state != work.state()  # looked at while the GPU works
    return None if changed else outputs


def _capture(graph: Any, pool: Any, current: Any, compute: Callable[[], Any]) -> Any:
    """Run `compute` once on another stream, then capture it: what it writes."""
    aside = torch.cuda.Stream()
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        compute()  # loops are compiled and weights put together now, not while it is captured
    current.wait_stream(aside)
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        return compute()


def _remembered(state: object) -> object:
    return state.remember() if isinstance(state, Standing) else state


class Standing:
    """A model as it stands: its modules, all they hold, their configurations, what their classes do, where their weights lie.

    Equal where all of that is the very same, the numbers in the weights aside. One with hooks is never the same: they may do
    anything.
    """

    def __init__(self, model: nn.Module, counts: Sequence[object] = ()):
        self.counts = counts  # of the weights that something was made of: there the numbers must be the same ones, too
        modules = modules_of(model)
        self.hooked = _have_hooks(modules)
        weights, kinds = _tensors_of(modules), _kinds(modules)
        self.held = [*modules, *_members(modules), *weights, *(kind.forward for kind in kinds)]
        self.weights = [weight for weight in weights if weight is not None]
        self.places = [weight.data_ptr() for weight in self.weights]
        self._lists: list[tuple[Any, Any]] | None = None

    def remember(self) -> Standing:
        """Note what is in the lists that modules hold: one may change and stay the same list."""
        modules = (module for module in self.held if isinstance(module, nn.Module))
        own = set(map(id, chain.from_iterable(map(_torch_s_own, modules))))
        self._lists = [
            (value, value.copy()) for value in self.held if value.__class__ in LISTS and id(value) not in own
        ]
        return self

    def __eq__(self, other: object) -> bool:
        """`self` is the one that was remembered."""
        if not isinstance(other, Standing) or self.hooked or other.hooked:
            return False
        same_places = self.counts == other.counts and self.places == other.places
        return same_places and self._holds_same(other) and self._lists_are_same()

    def _holds_same(self, other: Standing) -> bool:
        return len(self.held) == len(other.held) and all(map(is_, self.held, other.held))

    def _lists_are_same(self) -> bool:
        return all(now == before for now, before in self._lists or ())

    __hash__ = None  # type: ignore[assignment]


def _have_hooks(modules: Iterable[nn.Module]) -> bool:
    """Has one of the modules a hook, or every module of torch?"""
    everywhere = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    return bool(everywhere) or any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def _tensors_of(modules: Sequence[nn.Module]) -> list[Any]:
    """The parameters and buffers of all modules; None for one that a module could have."""
    parameters: list[Any] = [
        weight for module in modules if module._parameters for weight in module._parameters.values()
    ]
    return parameters + [buffer for module in modules if module._buffers for buffer in module._buffers.values()]


def _kinds(modules: Sequence[nn.Module]) -> list[Any]:
    """The classes of the modules, each once."""
    return list(dict.fromkeys(map(type, modules)))


def _members(modules: Sequence[nn.Module]) -> Iterable[Any]:
    """All that the modules and their configurations hold."""
    configs = {id(module.config): module.config for module in modules if "config" in module.__dict__}
    return chain.from_iterable(one.__dict__.values() for one in (*modules, *configs.values()))


def _torch_s_own(module: nn.Module) -> list[Any]:
    return [value for name, value in module.__dict__.items() if name.startswith("_") and name in _OWN]


_OWN = frozenset(nn.Module().__dict__)


def _tensors(layers: Sequence[LayerTrace]) -> tuple[list[Tensor], tuple[Slot, ...]]:
    """All tensors of some layers, each once, and which of them each layer has under which name."""
    named = list(map(tensors_of, layers))
    distinct = {id(tensor): tensor for tensors in named for tensor in tensors.values()}
    numbers = {address: number for number, address in enumerate(distinct)}
    return list(distinct.values()), tuple(_slot(tensors, numbers) for tensors in named)


def _slot(tensors: Mapping[str, Tensor], numbers: Mapping[int, int]) -> Slot:
    return tuple((name, numbers[id(tensor)]) for name, tensor in tensors.items())


def _with_tensors(layer: LayerTrace, slot: Slot, tensors: Sequence[Tensor]) -> LayerTrace:
    """A layer that reads these tensors."""
    changes: dict[str, Any] = {name: tensors[number] for name, number in slot}
    return replace(layer, **changes)


def _states(parts: Iterable[LayerParts]) -> object | None:
    """Of all weights that scoring reads: where they are, and how often they were changed; None where nobody can tell."""
    states = tuple(map(_weights, parts))
    return None if None in states else states


def _standing(model: nn.Module, parts: Iterable[LayerParts]) -> Standing | None:
    """The model as it stands, and the weights that scoring reads; None where nobody can tell."""
    counts = list(map(_weights, parts))
    standing = Standing(model, counts)
    return None if standing.hooked or None in counts else standing


def _memories(parts: Sequence[LayerParts]) -> object:
    """What is kept of the modules that scoring reads, in all layers."""
    return parts[0].kept.memories_of([module for part in parts for module in _read(part)]) if parts else None


def _read(parts: LayerParts) -> list[nn.Module]:
    """Modules whose weights scoring reads."""
    modules = (parts.output, parts.norm_on_attention, parts.norm_after_attention, parts.norm_after_mlp)
    return [module for module in modules if module is not None]


def _weights(parts: LayerParts) -> object | None:
    """Where those weights are, and how often they were changed; None where nobody can tell."""
    states = tuple(module_state(module) for module in _read(parts))
    return None if None in states or not is_plain(parts.output) else states


def _flat(value: Any, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
    """Every tensor in it, once, by its id."""
    if isinstance(value, Tensor):
        tensors.setdefault(id(value), value)
    for member in _members_of(value):
        _flat(member, tensors)
    return tensors


def _members_of(value: Any) -> Iterable[Any]:
    """The values of a dict, the items of a list or a tuple, nothing of anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def copy_all(to: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """In few operations: as one for each number type."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for a, b in zip(to, tensors, strict=True):
        pair = kinds.setdefault(a.dtype, ([], []))
        pair[0].append(a)
        pair[1].append(b)
    for pair in kinds.values():
        torch._foreach_copy_(*pair)


def copied(value: Any) -> Any:
    """The same in memory of its own: a graph writes over its own when it is next replayed."""
    flat = _flat(value, {})
    fresh = [torch.empty_like(t) for t in flat.values()]
    copy_all(fresh, list(flat.values()))
    return _with_copies(value, dict(zip(flat, fresh, strict=True)))


def _with_copies(value: Any, copies: Mapping[int, Tensor]) -> Any:
    """Dicts, lists and tuples with copies in the place of their tensors."""
    if isinstance(value, Tensor):
        return copies[id(value)]
    if isinstance(value, dict):
        return {key: _with_copies(member, copies) for key, member in value.items()}
    return type(value)(_with_copies(member, copies) for member in value) if isinstance(value, list | tuple) else value
