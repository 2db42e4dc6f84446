"""CUDA graphs: a GPU waits for Python at a short text's many small operations, so what comes again is replayed as one.

What is replayed are the same operations on tensors of the same kind: the same bits. A graph is used as long as all it
was made from is what it was (weights may change in place: they are read anew), and every map is proven as ever.
`MIXLENS_GRAPHS=off` in the environment switches them off.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

FIRST = 2  # so often it is computed as ever before it is captured, which takes as long as computing it some ten times
AGAIN = 3  # so often it is captured anew because something changed; then no more
TOKENS = 2048  # in a batch; with more, a GPU is busy anyway
SHAPES = 1000  # that are counted: a corpus has many, and few of them come again
LISTS = (list, dict, set)  # what may change and stay the same object
BYTES = 1 << 30  # of what goes in and comes out of all graphs of a model; beyond that nothing new is captured

Compute = Callable[[list[Tensor]], Any]


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
        """Whether what it reads is still there: of a whole model, which takes a while to go through, the memory
        alone."""
        if isinstance(self.state, Standing):
            return [weight.data_ptr() for weight in self.state.weights] == self.state.places
        return self.state == state()

    def replay(self) -> Any:
        """What it writes, in memory of its own, for what stands in its inputs now."""
        self.graph.replay()
        return copied(self.outputs)

    def again(self, work: Work) -> Any:
        """What it gives for these tensors; None where it is not to be used any more."""
        if not self.readable(work.state):
            return None
        copy_all(self.inputs, work.tensors)
        outputs = self.replay()
        changed = isinstance(self.state, Standing) and self.state != work.state()  # looked at while the GPU works
        return None if changed else outputs


@dataclass(frozen=True)
class Work:
    """What may be captured: tensors, the function of them, the state of all else that it reads, and what is to be
    held."""

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
        named = list(map(tensors_of, layers))
        distinct = {id(tensor): tensor for tensors in named for tensor in tensors.values()}
        numbers = {address: number for number, address in enumerate(distinct)}
        slots = tuple(tuple((name, numbers[id(one)]) for name, one in tensors.items()) for tensors in named)
        settings = tuple((layer.scaling, layer.softcap) for layer in layers)
        parts = [layer.parts for layer in layers]

        def of_tensors(inputs: list[Tensor]) -> Any:
            changes: list[dict[str, Any]] = [{name: inputs[number] for name, number in slot} for slot in slots]
            return compute([replace(layer, **change) for layer, change in zip(layers, changes, strict=True)])

        def states() -> object | None:
            found = tuple(map(_weights, parts))
            return None if None in found else found

        tensors = list(distinct.values())
        return self._replayed(Work((what, slots, settings), tensors, of_tensors, states, partial(_memories, parts)))

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
                outputs = captured.again(work)
                return self._captured_anew(key, work, captured) if outputs is None else outputs
            if key not in self.kept and self.seen[key] >= FIRST and self.bytes <= BYTES:
                return self._captured_anew(key, work)
            if len(self.seen) > SHAPES:
                self.seen.clear()
            self.seen[key] += 1
            return None

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
        state = work.state()
        held = state.remember() if isinstance(state, Standing) else state
        return Captured(graph, inputs, outputs, held, work.keeps(), size, times)


def is_spread(model: nn.Module) -> bool:
    """accelerate moves weights and inputs of this model about: nothing to be captured."""
    return hasattr(model, "hf_device_map")


def surroundings() -> object | None:
    """What numbers depend on besides tensors and modules; None where nothing may be replayed."""
    # Does somebody follow each operation, or run them on a stream of their own?
    watched = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    if watched or torch.cuda.current_stream() != torch.cuda.default_stream():
        return None
    if torch.is_autocast_enabled("cuda") or os.environ.get("MIXLENS_GRAPHS") == "off" or is_off():
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


def _capture(graph: Any, pool: Any, current: Any, compute: Callable[[], Any]) -> Any:
    """Run `compute` once on another stream, then capture it: what it writes."""
    aside = torch.cuda.Stream()
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        compute()  # loops are compiled and weights put together now, not while it is captured
    current.wait_stream(aside)
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        return compute()


class Standing:
    """A model as it stands: its modules, all they hold, their configurations, what their classes do, where their
    weights lie.

    Equal where all of that is the very same, the numbers in the weights aside. One with hooks is never the same: they
    may do anything.
    """

    def __init__(self, model: nn.Module, counts: Sequence[object] = ()):
        self.counts = counts  # of the weights that something was made of: there the numbers must be the same ones, too
        modules = modules_of(model)
        everywhere = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
        self.hooked = bool(everywhere) or any(one._forward_hooks or one._forward_pre_hooks for one in modules)
        weights: list[Any] = [weight for one in modules if one._parameters for weight in one._parameters.values()]
        weights += [buffer for one in modules if one._buffers for buffer in one._buffers.values()]
        configs = {id(one.config): one.config for one in modules if "config" in one.__dict__}
        members = chain.from_iterable(one.__dict__.values() for one in (*modules, *configs.values()))
        kinds: dict[Any, None] = dict.fromkeys(map(type, modules))
        self.held = [*modules, *members, *weights, *(kind.forward for kind in kinds)]
        self.weights = [weight for weight in weights if weight is not None]
        self.places = [weight.data_ptr() for weight in self.weights]
        self._lists: list[tuple[Any, Any]] = []

    def remember(self) -> Standing:
        """Note what is in the lists that modules hold: one may change and stay the same list. Torch's own are left
        out."""
        modules = [module for module in self.held if isinstance(module, nn.Module)]
        own = {id(value) for module in modules for name, value in module.__dict__.items() if name in _OWN}
        lists = [value for value in self.held if value.__class__ in LISTS and id(value) not in own]
        self._lists = [(value, value.copy()) for value in lists]
        return self

    def __eq__(self, other: object) -> bool:
        """`self` is the one that was remembered."""
        if not isinstance(other, Standing) or self.hooked or other.hooked:
            return False
        same_places = self.counts == other.counts and self.places == other.places
        holds_same = same_places and len(self.held) == len(other.held) and all(map(is_, self.held, other.held))
        return holds_same and all(now == before for now, before in self._lists)

    __hash__ = None  # type: ignore[assignment]


_OWN = frozenset(name for name in nn.Module().__dict__ if name.startswith("_"))


def _standing(model: nn.Module, parts: Sequence[LayerParts]) -> Standing | None:
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
    """Every tensor in dicts, lists and tuples, once, by its id."""
    if isinstance(value, Tensor):
        tensors.setdefault(id(value), value)
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for member in members:
        _flat(member, tensors)
    return tensors


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
