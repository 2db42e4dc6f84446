"""CUDA graphs: a GPU waits for Python at a short text's many small operations, so what comes again is replayed as one.

What is replayed are the same operations on tensors of the same kind: the same bits. A graph is used as long as all it was
made from is what it was (weights may change in place: they are read anew), and every map is proven as ever.
`MIXLENS_GRAPHS=off` in the environment switches them off.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layer.weights import is_plain
from ..model.kept import module_state
from ..types import PAIRS, POSITIONS, LayerTrace
from .switch import is_off

if TYPE_CHECKING:
    from ..model.parts import LayerParts

FIRST = 2  # so often it is computed as ever before it is captured: capturing takes as long as computing it some ten times
AGAIN = 3  # so often it is captured anew because something changed; then no more
TOKENS = 2048  # in a batch; with more, a GPU is busy anyway
SHAPES = 1000  # that are counted: a corpus has many, and few of them come again
BYTES = 1 << 30  # of what goes in and comes out of all graphs of a model; beyond that nothing new is captured

Compute = Callable[[list[Tensor]], Any]


@dataclass(frozen=True)
class Captured:
    graph: Any
    given: list[Tensor]  # where the graph reads
    made: Any  # where it writes: tensors in dicts, lists and tuples, among other things
    state: object  # of what it rests on
    keeps: object  # what it reads besides: not freed before it
    bytes: int
    times: int

    def readable(self, state: Callable[[], object | None]) -> bool:
        """Whether what it reads is still there: of a whole model, which takes a while to go through, the memory alone."""
        if isinstance(self.state, Standing):
            return [weight.data_ptr() for weight in self.state.weights] == self.state.places
        return self.state == state()


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

        def of_tensors(given: list[Tensor]) -> Any:
            changes: list[dict[str, Any]] = [{name: given[number] for name, number in slot} for slot in slots]
            return compute([replace(layer, **own) for layer, own in zip(layers, changes, strict=True)])

        def state() -> object | None:
            states = tuple(_weights(layer.parts) for layer in layers)
            return None if None in states else states

        modules, kept = [module for layer in layers for module in _read(layer.parts)], layers[0].parts.kept
        return self._replayed((what, slots, settings), tensors, of_tensors, state, lambda: kept.memories_of(modules))

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
        names = [name for name, value in inputs.items() if isinstance(value, Tensor)]
        if inputs[names[0]].numel() > TOKENS or is_spread(model) or torch.is_grad_enabled():
            return None
        others = {name: value for name, value in inputs.items() if name not in names}

        def of_tensors(given: list[Tensor]) -> Any:
            return run({**dict(zip(names, given, strict=True)), **others})

        def state() -> Standing | None:
            counts = [_weights(part) for part in parts]
            found = Standing(model, counts)
            return None if found.hooked or None in counts else found

        key = ("pass", what, tuple(names), tuple(others.items()))
        modules = [module for part in parts for module in _read(part)]

        def keeps() -> object:
            return [part.kept.memories_of(modules) for part in parts[:1]]

        return self._replayed(
            key,
            [inputs[name] for name in names],
            of_tensors,
            state,
            keeps,
        )

    def _replayed(
        self,
        what: object,
        tensors: Sequence[Tensor],
        compute: Compute,
        state: Callable[[], object | None],
        keeps: Callable[[], object],
    ) -> Any:
        key = (what, tuple((t.shape, t.stride(), t.dtype) for t in tensors), surroundings())
        if key[-1] is None:
            return None
        with self.lock:
            found = self.kept.get(key)
            if found is None and (key in self.kept or self.seen[key] < FIRST or self.bytes > BYTES):
                if len(self.seen) > SHAPES:
                    self.seen.clear()
                self.seen[key] += 1
                return None
            if found is not None and found.readable(state):
                copy_all(found.given, tensors)
                found.graph.replay()
                made = copied(found.made)
                if not isinstance(found.state, Standing) or found.state == state():  # looked at while the GPU works
                    return made
            times = 0 if found is None else found.times + 1  # captured, or once more because something changed
            self.bytes -= 0 if found is None else found.bytes
            fresh = self._captured(tensors, compute, state, keeps, times) if times <= AGAIN else None
            self.kept[key] = fresh
            if fresh is None:
                return None
            fresh.graph.replay()
            return copied(fresh.made)

    def _captured(
        self,
        tensors: Sequence[Tensor],
        compute: Compute,
        state: Callable[[], object | None],
        keeps: Callable[[], object],
        times: int,
    ) -> Captured | None:
        free, whole = torch.cuda.mem_get_info()
        if state() is None or free < whole / 4:  # where room is short it is left to others
            return None
        given = [torch.empty_like(t).copy_(t) for t in tensors]
        current = torch.cuda.current_stream()
        graph, self.pool = torch.cuda.CUDAGraph(), self.pool or torch.cuda.graph_pool_handle()
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                compute(given)  # loops are compiled and weights put together now, not while it is captured
            current.wait_stream(aside)
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                made = compute(given)
        except Exception:  # something in it cannot be replayed: never a reason to stop
            torch.cuda.set_stream(current)  # torch leaves the capturing one in place when a capture fails
            torch.cuda.synchronize()
            return None
        size = sum(t.nbytes for t in given) + sum(t.nbytes for t in _flat(made, {}).values())
        self.bytes += size
        now = state()
        return Captured(graph, given, made, now.remember() if isinstance(now, Standing) else now, keeps(), size, times)


def is_spread(model: nn.Module) -> bool:
    """accelerate moves weights and inputs of this model about: nothing to be captured."""
    return hasattr(model, "hf_device_map")


def surroundings() -> object | None:
    """What numbers depend on besides tensors and modules; None where nothing may be replayed."""
    watched = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    other_stream = torch.cuda.current_stream() != torch.cuda.default_stream()
    if watched or other_stream or torch.is_autocast_enabled("cuda") or os.environ.get("MIXLENS_GRAPHS") == "off" or is_off():
        return None
    cuda = torch.backends.cuda
    kernels = (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled())
    exact = (cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled())
    return (*kernels, *exact, torch.is_inference_mode_enabled(), os.environ.get("MIXLENS_KERNELS"))


class Standing:
    """A model as it stands: its modules, all they hold, their configurations, what their classes do, where their weights lie.

    Equal where all of that is the very same, the numbers in the weights aside. One with hooks is never the same: they may do
    anything.
    """

    def __init__(self, model: nn.Module, counts: Sequence[object] = ()):
        self.counts = counts  # of the weights that something was made of: there the numbers must be the same ones, too
        modules = [model]
        for module in modules:  # it grows as it is gone through
            modules += filter(None, module._modules.values())
        self.hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        self.hooked |= bool(nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks)
        configs = {id(module.config): module.config for module in modules if "config" in module.__dict__}
        weights: list[Any] = [weight for module in modules if module._parameters for weight in module._parameters.values()]
        weights += [buffer for module in modules if module._buffers for buffer in module._buffers.values()]
        kinds: list[Any] = list(dict.fromkeys(map(type, modules)))
        self.held = [
            *modules,
            *chain.from_iterable(one.__dict__.values() for one in (*modules, *configs.values())),
            *weights,
            *(kind.forward for kind in kinds),
        ]
        self.weights = [weight for weight in weights if weight is not None]
        self.places = [weight.data_ptr() for weight in self.weights]
        self._lists: list[tuple[Any, Any]] | None = None

    def remember(self) -> Standing:
        """Note what is in the lists that modules hold: one may change and stay the same list."""
        own = {id(value) for module in self.held if isinstance(module, nn.Module) for value in _torch_s_own(module)}
        kinds = (list, dict, set)
        self._lists = [(value, value.copy()) for value in self.held if value.__class__ in kinds and id(value) not in own]
        return self

    def __eq__(self, other: object) -> bool:
        """`self` is the one that was remembered."""
        if not isinstance(other, Standing) or self.hooked or other.hooked or len(self.held) != len(other.held):
            return False
        return (
            all(map(is_, self.held, other.held))
            and self.counts == other.counts
            and self.places == other.places
            and all(now == before for now, before in self._lists or ())
        )

    __hash__ = None  # type: ignore[assignment]


def _torch_s_own(module: nn.Module) -> list[Any]:
    return [value for name, value in module.__dict__.items() if name.startswith("_") and name in _OWN]


_OWN = frozenset(nn.Module().__dict__)


def _tensors(layers: Sequence[LayerTrace]) -> tuple[list[Tensor], tuple[tuple[tuple[str, int], ...], ...]]:
    """All tensors of some layers, each once, and which of them each layer has under which name."""
    numbers: dict[int, int] = {}
    tensors: list[Tensor] = []
    slots = []
    for layer in layers:
        slot = []
        for name in POSITIONS + PAIRS:
            tensor = getattr(layer, name)
            if tensor is not None:
                number = numbers.setdefault(id(tensor), len(tensors))
                if number == len(tensors):
                    tensors.append(tensor)
                slot.append((name, number))
        slots.append(tuple(slot))
    return tensors, tuple(slots)


def _read(parts: LayerParts) -> list[nn.Module]:
    """Modules whose weights scoring reads."""
    found = (parts.output, parts.norm_on_attention, parts.norm_after_attention, parts.norm_after_mlp)
    return [module for module in found if module is not None]


def _weights(parts: LayerParts) -> object | None:
    """Where those weights are, and how often they were changed; None where nobody can tell."""
    states = tuple(module_state(module) for module in _read(parts))
    return None if None in states or not is_plain(parts.output) else states


def _flat(made: Any, found: dict[int, Tensor]) -> dict[int, Tensor]:
    """Every tensor in it, once, by its id."""
    if isinstance(made, Tensor):
        found.setdefault(id(made), made)
    members: Iterable[Any] = made.values() if isinstance(made, dict) else made if isinstance(made, list | tuple) else ()
    for member in members:
        _flat(member, found)
    return found


def copy_all(to: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """In few operations: as one for each number type."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for a, b in zip(to, given, strict=True):
        pair = kinds.setdefault(a.dtype, ([], []))
        pair[0].append(a)
        pair[1].append(b)
    for some in kinds.values():
        torch._foreach_copy_(*some)


def copied(made: Any) -> Any:
    """The same in memory of its own: a graph writes over its own when it is next replayed."""
    flat = _flat(made, {})
    fresh = [torch.empty_like(t) for t in flat.values()]
    copy_all(fresh, list(flat.values()))
    copies = dict(zip(flat, fresh, strict=True))

    def again(member: Any) -> Any:
        if isinstance(member, Tensor):
            return copies[id(member)]
        if isinstance(member, dict):
            return {key: again(value) for key, value in member.items()}
        return type(member)(map(again, member)) if isinstance(member, list | tuple) else member

    return again(made)
