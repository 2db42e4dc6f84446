"""Several methods on the layers of one batch, as they come: the scores, what proves them, and the maps at the end."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import fast
from .aggregate import find
from .budget import PRECISIONS, is_out_of_memory, products_in, setting, settings, tile_elements
from .errors import InputError, MixlensError, ModelError, nearest
from .fast.cuda_graphs import is_spread
from .fast.loops import used as loop_form
from .fast.together import of_one, together_at_once
from .layer import Block
from .layer.identities import Unproven
from .methods._mixing import Extras, Method, method
from .model.model import Model
from .provenance import provenance
from .rounding import finite
from .scored_tensors import (
    Extra,
    NotFinite,
    all_layers,
    gathered,
    identities_of,
    method_facts,
    of_row,
    read_numbers,
    refuse_gap,
    refuse_not_finite,
    separate,
    shares,
)
from .types import LayerTrace, Map, Trace

NOTED_ERROR = 1e-2  # of a row: rounding that is worth a note
Scored = tuple[int, dict[str, tuple[Tensor, float]], list[tuple[str, Tensor, Extras]]]  # first layer, identities, scores
_T = TypeVar("_T")


def fresh(compute: Callable[[], _T], model: Model) -> _T:
    """`compute()`; if an identity fails, once more with nothing kept of the weights, and if that fails, a refusal.

    This is the one place that deals with stale values: weights may change without torch's counters. On a GPU, scores that are
    not finite are computed once more with the range of float32.
    """
    with model.computing():
        try:
            return compute()
        except Unproven:
            model.kept.forget()
            model.graphs.clear()
            try:
                return compute()
            except Unproven as error:
                raise ModelError(str(error)) from None
        except NotFinite:
            if model.device.type == "cpu":
                raise
        with setting(wide=True):
            return compute()


class Call:
    """The arguments of `mix`, checked."""

    def __init__(
        self, name: str | Sequence[str], variant: str | None, chunk: int | None, precision: str, options: Mapping[str, Any]
    ):
        if not isinstance(name, str | Sequence) or isinstance(name, bytes):
            raise InputError(f"a method is a name, or a list of names, not {name!r:.80}.")
        names = [method(one).id for one in ([name] if isinstance(name, str) else list(name))]
        if not names:
            raise InputError("no method was asked for.")
        if not isinstance(precision, str) or precision not in PRECISIONS:
            raise InputError(f"unknown precision {precision!r}. {nearest(str(precision), PRECISIONS)}")
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise InputError(f"chunk is a number of elements, at least 1, not {chunk!r}.")
        self.chosen = {one: (method(one), method(one).arguments(variant, options)) for one in names}
        self.chunk, self.precision, self.query = chunk, precision, options.get("query")

    def arguments(self, name: str, tokens: Sequence[str]) -> dict[str, Any]:
        """A method's options; a query as the position it means."""
        options = self.chosen[name][1]
        return options if options.get("query") is None else {**options, "query": find(tokens, options["query"])}


@dataclass
class Results:
    """What was computed of the layers so far, in their order."""

    scores: dict[str, list[Tensor]]
    extras: dict[str, list[Extras]]
    gaps: dict[str, list[tuple[int, Tensor, float]]] = field(default_factory=dict)  # first layer, [layer], allowed

    def take(self, start: int, identities: dict[str, tuple[Tensor, float]], scored: Sequence[tuple[str, Tensor, Extras]]) -> None:
        for identity, (value, allowed) in identities.items():
            self.gaps.setdefault(identity, []).append((start, value, allowed))
        for name, scores, extra in scored:
            self.scores[name].append(scores)
            self.extras[name].append(extra)

    def cut(self, start: int) -> None:
        """Drop the identities of the layers from `start` on: they are computed again."""
        self.gaps = {name: [one for one in entries if one[0] < start] for name, entries in self.gaps.items()}


class Scorer:
    """Takes the layers of one batch as they come, and gives the maps at the end."""

    def __init__(self, call: Call, size: int, tokens: Sequence[str], model: Model):
        self.call, self.size, self.model = call, size, model
        # Methods that score several layers at once do not wait for a GPU in between: they can be replayed.
        stacks = call.precision == "float32" and all(entry.stacks for entry, _ in call.chosen.values())
        self.replayable = stacks and model.device.type == "cuda" and not settings().timing and not is_spread(model.hf_model)
        self.options = {name: call.arguments(name, tokens) for name in call.chosen}
        self.by_layer = {name: entry for name, (entry, _) in call.chosen.items() if not entry.whole}
        self.results = Results({name: [] for name in self.by_layer}, {name: [] for name in self.by_layer})
        self.seconds: dict[str, float] = {"proof": 0.0, **dict.fromkeys(self.by_layer, 0.0)}
        self.errors: dict[str, float] = {}  # what a lower precision costs, by method
        self.notes: list[str] = []
        self.scratch: dict[Any, Tensor] = {}
        self.blocks: Any = None  # where the blocks of one trace are shared with the next call (`fast.shared_blocks`)

    # --- layer by layer

    @torch.no_grad()
    def score(self, layers: Sequence[LayerTrace], start: int) -> None:
        """Score some layers, the first of them number `start`. Out of memory: once more in smaller pieces, with a note."""
        done = {name: len(tensors) for name, tensors in self.results.scores.items()}
        try:
            self.results.take(*self.scored(layers, start, self.call.chunk))
        except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            for name, count in done.items():
                del self.results.scores[name][count:], self.results.extras[name][count:]
            self.results.cut(start)
            smaller = self.with_less_memory(layers[0].input.device, start)
            for index, layer in enumerate(layers):
                self.results.take(*self.scored([layer], start + index, smaller))

    def with_less_memory(self, device: torch.device, start: int) -> int:
        """The one policy when memory runs out: free what is shared, and go on in pieces of a sixteenth."""
        smaller = max(1, (self.call.chunk or tile_elements(device)) // 16)
        note = f"memory ran out in layer {start}: scored again in pieces of {smaller:,} elements"
        warnings.warn(note + ".", stacklevel=6)
        self.notes.append(note)
        self.scratch.clear()
        if self.blocks is not None:
            self.blocks.blocks.clear()
        self.blocks = self.model.kept.blocks = None
        if device.type == "cuda":
            self.model.graphs.clear()
            torch.cuda.empty_cache()
        return smaller

    @property
    def key(self) -> object:
        """All that scores depend on besides layers: a part of the cache key of a captured graph."""
        options = tuple((name, repr(values)) for name, values in self.options.items())
        return self.call.chunk, self.size, settings().wide, options

    def scored(self, layers: Sequence[LayerTrace], start: int, chunk: int | None) -> Scored:
        """The scores of some layers, replayed from a captured graph where there is one."""
        layers, results = self.cut_batch(layers), None
        if self.replayable:
            key = (self.key, start, chunk)
            results = self.model.graphs.scored(key, layers, lambda copies: self.computed(copies, start, chunk))
        return results or self.computed(layers, start, chunk)

    def cut_batch(self, layers: Sequence[LayerTrace]) -> Sequence[LayerTrace]:
        return [of_one(layers[0])] if len(layers) == 1 and self.size == 1 else layers

    def all_layers(self, layers: Sequence[LayerTrace]) -> list[Scored]:
        """All layers of a pass, as many at once as suits the device."""
        few = together_at_once(layers[0], len(layers))
        groups = [(start, layers[start : start + few]) for start in range(0, len(layers), few)]
        return [self.computed(self.cut_batch(group), start, self.call.chunk) for start, group in groups]

    def computed(self, layers: Sequence[LayerTrace], start: int, chunk: int | None) -> Scored:
        """Every method's scores [layer batch query key] of some layers, with what it hands out beside them, and the identities
        that prove them."""
        several = fast.block_of(layers, start) if len(layers) > 1 else None
        blocks = [] if several is not None else [self.block(layers[0], start)]
        with self.timed("proof", layers):
            _ = (several or blocks[0]).rebuilt  # in full precision, before a method asks for less
        scored: list[tuple[str, Tensor, Extras]] = []
        for name, entry in self.by_layer.items():
            stacked = several is not None and entry.stacks
            with setting(chunk=chunk), self.timed(name, layers):
                if several is not None and not stacked:
                    blocks = blocks or [self.alone(layer, start + i) for i, layer in enumerate(layers)]
                results = [self.method_scores(name, block) for block in ([several] if several and stacked else blocks)]
            scored += [(name, *self.with_axes(name, *result, layers[0], stacked=stacked)) for result in results]
        with setting(chunk=chunk), self.timed("proof", layers):
            identities = identities_of(several, blocks)
        return start, identities, scored

    def block(self, layer: LayerTrace, index: int) -> Block:
        """The decomposition of one layer, shared with an earlier call on the same trace where it is kept."""
        if self.blocks is not None:
            return self.blocks.block(layer, index, self.scratch)
        return fast.block_of(layer, index, scratch=self.scratch)

    def alone(self, layer: LayerTrace, index: int) -> Block:
        return fast.block_of(of_one(layer) if self.size == 1 else layer, index)

    def with_axes(self, name: str, scores: Tensor, extras: Extras, layer: LayerTrace, *, stacked: bool) -> tuple[Tensor, Extras]:
        """Scores and extras with the axes [layer batch ...], whatever axes the method saw."""
        for missing, axis in ((not stacked, 0), (self.size == 1, 1)):
            if missing:
                scores = scores.unsqueeze(axis)
                extras = {key: value.unsqueeze(axis) if isinstance(value, Tensor) else value for key, value in extras.items()}
        n = layer.input.shape[-2]
        if tuple(scores.shape[1:]) != (self.size, n, n):
            raise MixlensError(
                f"method {name!r} returned shape {tuple(scores.shape[1:])} for a layer; it must be {(self.size, n, n)}."
            )
        return scores, extras

    def method_scores(self, name: str, block: Block) -> tuple[Tensor, Extras]:
        """A method's scores, in the precision of the call; what that costs is measured on the first layer."""
        entry, options = self.by_layer[name], self.options[name]
        if self.call.precision == "float32" or block.x.device.type == "cpu":
            return separate(entry.function(block, **options), self.scratch, block)
        with products_in(self.call.precision):
            scores, extras = separate(entry.function(block, **options), self.scratch)
        if name not in self.errors:
            layers = getattr(block, "layers", (block.layer,))
            exact = entry.function(fast.block_of(layers if getattr(block, "several", False) else block.layer), **options)
            change = (shares(scores) - shares(separate(exact, self.scratch)[0])).abs().amax((-1, -2))
            self.errors[name] = float(change.max())
        return scores, extras

    @contextmanager
    def timed(self, name: str, layers: Sequence[LayerTrace]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if layers[0].input.device.type == "cuda" and settings().timing:
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    # --- the maps

    @torch.no_grad()
    def maps(self, traces: Sequence[Trace]) -> list[dict[str, Map]]:
        """The maps of each trace, by method; refused where an identity does not hold or a score is not finite."""
        # All that a GPU can do is asked of it, and all that is known without it is gathered, before it is waited for.
        device = traces[0].model.device
        every = {name: gathered(tensors, device) for name, tensors in self.results.scores.items()}  # [layer batch ..]
        totals = torch.stack([scores.sum() for scores in every.values()]) if every else torch.empty(0)
        extras = {
            name: {key: all_layers([layer[key] for layer in layers]) for key in layers[0]}
            for name, layers in self.results.extras.items()
        }
        facts = [provenance(traces[0])]
        facts += [provenance(trace, facts[0]) for trace in traces[1:]]
        gaps, sums = self.read_gaps(traces, totals, extras)
        results: list[dict[str, Map]] = []
        for row, (trace, about) in enumerate(zip(traces, facts, strict=True)):
            n = len(trace)
            results.append({})
            for name, (entry, _) in self.call.chosen.items():
                if entry.whole:
                    scores, extra = self.whole(name, entry, trace)
                else:
                    scores = every[name][:, row, :n, :n].contiguous()
                    extra = {key: of_row(value, row, None if key in entry.per_head else n) for key, value in extras[name].items()}
                info = {**about, **method_facts(entry, self.options[name], gaps), **self.measured(name, trace, device)}
                info |= {**self.tolerance, **self.remarks(extra), **extra}
                results[-1][name] = Map(scores, trace.tokens, name, info=info, special=trace.special, words=trace.words)
        finite_sums = {name for name, total in zip(every, sums, strict=True) if math.isfinite(total)}
        for name in [name for name in self.call.chosen if name not in finite_sums]:
            refuse_not_finite(name, [result[name] for result in results])
        return results

    def whole(self, name: str, entry: Method, trace: Trace) -> tuple[Tensor, Extras]:
        """The scores of a method that reads a whole trace, [layer query key]."""
        started, n = time.perf_counter(), len(trace)
        with setting(chunk=self.call.chunk), through_quantized(trace.model, name):
            scores, extra = separate(entry.function(trace, **self.options[name]), {})
        if tuple(scores.shape[1:]) != (n, n):
            raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)}; it must be [layer, {n}, {n}].")
        self.seconds[name] = time.perf_counter() - started
        return scores, extra

    def measured(self, name: str, trace: Trace, device: torch.device) -> dict[str, Any]:
        """Where the time of this batch went, in seconds, and what a lower precision costs."""
        facts: dict[str, Any] = {"loops": loop_form(device)}
        if device.type == "cpu" or settings().timing:
            forward = trace.info["forward_seconds"]
            seconds = {"forward": forward, "proof": self.seconds["proof"], "map": self.seconds[name], "batch": self.size}
            facts["seconds"] = seconds
        if name in self.errors:
            facts |= {"precision": self.call.precision, "precision_error": self.errors[name]}
        return facts

    @property
    def tolerance(self) -> dict[str, float]:
        """How large the gap may be in these layers: more than the number type's own rounding where modules round to 8 bits."""
        allowed = [limit for name in ("parts", "stream") for _, _, limit in self.results.gaps.get(name, [])]
        return {"tolerance": max(allowed)} if allowed else {}

    def remarks(self, extra: Mapping[str, Any]) -> dict[str, list[str]]:
        """Notes about the numbers: memory that ran out, scores that the number type cannot hold."""
        notes, error = list(self.notes), extra.get("rounding_error")
        if error is not None and float(error.max()) > NOTED_ERROR:
            notes.append(
                f"rounding may move a score by {float(error.max()):.0e} of its row: float32 does not hold these distances. "
                "Load the model with dtype='float64'."
            )
        return {"notes": notes} if notes else {}

    def read_gaps(self, traces: Sequence[Trace], totals: Tensor, extras: Extra) -> tuple[dict[str, float], list[float]]:
        """The largest gap of each identity, and each method's sum of scores; extras are brought to the CPU. A GPU is waited
        for here, once, and a wrong layer is refused."""
        entries = [(name, *entry) for name, found in self.results.gaps.items() for entry in found]
        values = [value.to(totals) for _, _, value, _ in entries]
        gaps = torch.cat(values) if values else totals.new_zeros(0)
        numbers = read_numbers(gaps, totals, extras)
        each, sums = iter(numbers[: len(gaps)]), numbers[len(gaps) :]
        worst: dict[str, float] = {}
        for identity, start, value, allowed in entries:
            for layer in range(start, start + len(value)):
                gap = finite(next(each))
                worst[identity] = max(gap, worst.get(identity, 0.0))
                if not gap <= allowed:
                    refuse_gap(traces[0].model, identity, gap, allowed, layer, sums)
        worst.pop("weights", None)  # not a gap of the model: whether kept values are those of its weights
        return worst or {"parts": 0.0}, sums


@contextmanager
def through_quantized(model: Model, name: str) -> Iterator[None]:
    """Quantised modules have gradients of their own, or none: what torch cannot send through them is refused by name."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if model.quantization is None or is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:160]
        raise ModelError(
            f"{name!r} cannot be had of {model.name!r}, whose weights are quantised ({model.quantization}): {reason}. "
            "Load it without quantization, or use a map."
        ) from error
