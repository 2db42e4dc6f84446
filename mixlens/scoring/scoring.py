"""Several methods on the layers of one batch, as they come: the scores, what proves them, and the maps at the end."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import fast
from ..base.budget import PRECISIONS, is_out_of_memory, products_in, setting, settings, tile_elements
from ..base.errors import InputError, MixlensError, ModelError, is_integer, nearest
from ..fast.cuda_graphs import is_spread
from ..fast.loops import used as loop_form
from ..fast.together import together_at_once
from ..layer import Block
from ..layer.identities import Unproven
from ..methods._mixing import ALL, Extras, Method, method
from ..model.model import Model
from ..types import HeadMaps, LayerTrace, Map, Trace, without_batch
from .aggregate import find
from .provenance import provenance
from .scored_tensors import (
    Gathered,
    Identities,
    NotFinite,
    Results,
    identities_of,
    method_facts,
    read_gaps,
    refuse_not_finite,
    rounding_notes,
    separate,
    shares,
    unsqueezed,
)

Scored = tuple[int, Identities, list[tuple[str, Tensor, Extras]]]  # first layer, identities, scores
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
            return _with_nothing_kept(compute, model)
        except NotFinite:
            if model.device.type == "cpu":
                raise
        with setting(wide=True):
            return compute()


def _with_nothing_kept(compute: Callable[[], _T], model: Model) -> _T:
    """`compute()` with nothing kept of the weights; if an identity fails now, the model is refused."""
    model.kept.forget()
    model.graphs.clear()
    try:
        return compute()
    except Unproven as error:
        raise ModelError(str(error)) from None


class Call:
    """The arguments of `mix`, checked."""

    def __init__(
        self,
        name: str | Sequence[str],
        variant: str | None,
        chunk: int | None,
        precision: str,
        options: Mapping[str, Any],
    ):
        names = [method(one).id for one in _names(name)]
        if not names:
            raise InputError("no method was asked for.")
        _refuse_precision(precision)
        _refuse_chunk(chunk)
        self.chosen = {one: (method(one), method(one).arguments(variant, options)) for one in names}
        self.chunk, self.precision, self.query = chunk, precision, options.get("query")

    def arguments(self, name: str, tokens: Sequence[str]) -> dict[str, Any]:
        """A method's options; a query as the position it means."""
        options = self.chosen[name][1]
        return options if options.get("query") is None else {**options, "query": find(tokens, options["query"])}


def _names(name: Any) -> list[Any]:
    """The names of one method or of several."""
    if isinstance(name, str):
        return [name]
    if not isinstance(name, Sequence) or isinstance(name, bytes):
        raise InputError(f"a method is a name, or a list of names, not {name!r:.80}.")
    return list(name)


def _refuse_precision(precision: Any) -> None:
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}. {nearest(str(precision), PRECISIONS)}")


def _refuse_chunk(chunk: Any) -> None:
    if chunk is not None and not (is_integer(chunk) and chunk >= 1):
        raise InputError(f"chunk is a number of elements, at least 1, not {chunk!r}.")


class Blocks:
    """The decompositions of some layers: all as one block where there are several, and each where a method asks for that."""

    def __init__(self, layers: Sequence[LayerTrace], several: Block | None, each: Callable[[], list[Block]]):
        self.layers, self.several, self._each = layers, several, each
        self.singles: list[Block] = each() if several is None else []

    def of(self, entry: Method) -> list[Block]:
        """The blocks that a method is called with."""
        if self.several is not None and entry.stacks:
            return [self.several]
        self.singles = self.singles or self._each()
        return self.singles


class Scorer:
    """Takes the layers of one batch as they come, and gives the maps at the end."""

    def __init__(self, call: Call, size: int, tokens: Sequence[str], model: Model):
        self.call, self.size, self.model = call, size, model
        self.options = {name: call.arguments(name, tokens) for name in call.chosen}
        self.by_layer = {name: entry for name, (entry, _) in call.chosen.items() if not entry.whole}
        self.results = Results({name: [] for name in self.by_layer}, {name: [] for name in self.by_layer})
        self.seconds: dict[str, float] = {"proof": 0.0, **dict.fromkeys(self.by_layer, 0.0)}
        self.errors: dict[str, float] = {}  # what a lower precision costs, by method
        self.notes: list[str] = []
        self.scratch: dict[Any, Tensor] = {}
        self.blocks: Any = None  # where the blocks of one trace are shared with the next call (`fast.shared_blocks`)

    @cached_property
    def replayable(self) -> bool:
        """May scores be replayed? Methods that score several layers at once do not wait for a GPU in between."""
        stacks = self.call.precision == "float32" and all(entry.stacks for entry, _ in self.call.chosen.values())
        return (
            stacks and self.model.device.type == "cuda" and not settings().timing and not is_spread(self.model.hf_model)
        )

    def of_heads(self, name: str) -> bool:
        """Does a method score every head by itself, [... head query key]?"""
        return self.options[name].get("head") == ALL

    # --- layer by layer

    @torch.no_grad()
    def score(self, layers: Sequence[LayerTrace], start: int) -> None:
        """Score some layers, the first of them number `start`. Out of memory: once more in smaller pieces, with a note."""
        try:
            self.results.take(*self.scored(layers, start, self.call.chunk))
        except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            smaller = self.with_less_memory(layers[0].input.device, start)
            for index, layer in enumerate(layers):
                self.results.take(*self.scored([layer], start + index, smaller))

    def with_less_memory(self, device: torch.device, start: int) -> int:
        """The one policy when memory runs out: free what is shared, and go on in pieces of a sixteenth."""
        smaller = max(1, (self.call.chunk or tile_elements(device)) // 16)
        note = f"memory ran out in layer {start}: scored again in pieces of {smaller:,} elements"
        warnings.warn(note + ".", stacklevel=6)
        self.notes.append(note)
        self._free_memory(device)
        return smaller

    def _free_memory(self, device: torch.device) -> None:
        """Drop what is shared between layers and calls."""
        self.scratch.clear()
        if self.blocks is not None:
            self.blocks.blocks.clear()
        self.blocks = self.model.kept.blocks = None
        if device.type == "cuda":
            self.model.graphs.clear()
            torch.cuda.empty_cache()

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
        return [without_batch(layers[0])] if len(layers) == 1 and self.size == 1 else layers

    def all_layers(self, layers: Sequence[LayerTrace]) -> list[Scored]:
        """All layers of a pass, as many at once as suits the device."""
        few = together_at_once(layers[0], len(layers))
        groups = [(start, layers[start : start + few]) for start in range(0, len(layers), few)]
        return [self.computed(self.cut_batch(group), start, self.call.chunk) for start, group in groups]

    def computed(self, layers: Sequence[LayerTrace], start: int, chunk: int | None) -> Scored:
        """Every method's scores [layer batch query key] of some layers, with what it hands out beside them, and the identities
        that prove them."""
        blocks = self.blocks_of(layers, start)
        with self.timed("proof", layers):
            _ = (blocks.several or blocks.singles[0]).rebuilt  # in full precision, before a method asks for less
        scored = [one for name in self.by_layer for one in self.scored_by(name, blocks, chunk)]
        with setting(chunk=chunk), self.timed("proof", layers):
            identities = identities_of(blocks.several, blocks.singles)
        return start, identities, scored

    def blocks_of(self, layers: Sequence[LayerTrace], start: int) -> Blocks:
        """The decompositions of one layer, or of several."""
        if len(layers) == 1:
            return Blocks(layers, None, lambda: [self.block(layers[0], start)])
        several = fast.block_of(layers, start)
        return Blocks(layers, several, lambda: [self.alone(layer, start + i) for i, layer in enumerate(layers)])

    def scored_by(self, name: str, blocks: Blocks, chunk: int | None) -> list[tuple[str, Tensor, Extras]]:
        """One method's scores of some layers, with what it hands out beside them."""
        with setting(chunk=chunk), self.timed(name, blocks.layers):
            chosen = blocks.of(self.by_layer[name])
            results = [self.method_scores(name, block) for block in chosen]
        n, stacked = blocks.layers[0].input.shape[-2], chosen[0] is blocks.several
        return [(name, *self.with_axes(name, *result, n, stacked=stacked)) for result in results]

    def block(self, layer: LayerTrace, index: int) -> Block:
        """The decomposition of one layer, shared with an earlier call on the same trace where it is kept."""
        if self.blocks is not None:
            return self.blocks.block(layer, index, self.scratch)
        return fast.block_of(layer, index, scratch=self.scratch)

    def alone(self, layer: LayerTrace, index: int) -> Block:
        return fast.block_of(without_batch(layer) if self.size == 1 else layer, index)

    def with_axes(self, name: str, scores: Tensor, extras: Extras, n: int, *, stacked: bool) -> tuple[Tensor, Extras]:
        """Scores and extras with the axes [layer batch ...], whatever axes the method saw."""
        axes = [axis for axis, is_there in enumerate((stacked, self.size > 1)) if not is_there]
        scores = unsqueezed(scores, axes)
        fitting = (self.size, *scores.shape[2 : -2 if self.of_heads(name) else 2], n, n)
        if tuple(scores.shape[1:]) != fitting or scores.dim() > 5:
            raise MixlensError(
                f"method {name!r} returned shape {tuple(scores.shape[1:])} for a layer; it must be {fitting}."
            )
        return scores, {key: unsqueezed(value, axes) for key, value in extras.items()}

    def method_scores(self, name: str, block: Block) -> tuple[Tensor, Extras]:
        """A method's scores, in the precision of the call; what that costs is measured on the first layer."""
        entry, options = self.by_layer[name], self.options[name]
        if self.call.precision == "float32" or block.x.device.type == "cpu":
            return separate(entry.function(block, **options), self.scratch, block)
        with products_in(self.call.precision):
            scores, extras = separate(entry.function(block, **options), self.scratch)
        if name not in self.errors:
            self.errors[name] = self._precision_error(name, block, scores)
        return scores, extras

    def _precision_error(self, name: str, block: Block, scores: Tensor) -> float:
        """By how much of a row a lower precision moves a score: the layer is scored once more in float32."""
        layers = getattr(block, "layers", (block.layer,))
        again = fast.block_of(layers if getattr(block, "several", False) else block.layer)
        exact, _ = separate(self.by_layer[name].function(again, **self.options[name]), self.scratch)
        return float((shares(scores) - shares(exact)).abs().amax((-1, -2)).max())

    @contextmanager
    def timed(self, name: str, layers: Sequence[LayerTrace]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if layers[0].input.device.type == "cuda" and settings().timing:
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    # --- the maps

    @torch.no_grad()
    def maps(self, traces: Sequence[Trace]) -> list[dict[str, Any]]:
        """The maps of each trace, by method; refused where an identity does not hold or a score is not finite."""
        # All that a GPU can do is asked of it, and all that is known without it is gathered, before it is waited for.
        gathered = self.results.gather(self.model.device)
        first = provenance(traces[0])
        facts = [first, *(provenance(trace, first) for trace in traces[1:])]
        gaps, sums = read_gaps(self.results, gathered, self.model)
        maps = [self.maps_of(trace, row, facts[row], gathered, gaps) for row, trace in enumerate(traces)]
        self._refuse_not_finite(maps, dict(zip(gathered.scores, sums, strict=True)))
        return maps

    def _refuse_not_finite(self, maps: Sequence[Mapping[str, Map | HeadMaps]], sums: Mapping[str, float]) -> None:
        """Refuse a score that is not finite; maps whose scores have a finite sum need not be looked at."""
        for name in self.call.chosen:
            if not math.isfinite(sums.get(name, math.nan)):
                refuse_not_finite(name, (one[name] for one in maps))

    def maps_of(
        self, trace: Trace, row: int, facts: Mapping[str, Any], gathered: Gathered, gaps: Mapping[str, float]
    ) -> dict[str, Map | HeadMaps]:
        """The maps of one trace, number `row` of the batch, by method."""
        maps: dict[str, Map | HeadMaps] = {}
        for name, (entry, _) in self.call.chosen.items():
            scores, extra = self.whole(name, entry, trace) if entry.whole else gathered.of_trace(entry, row, len(trace))
            info = {
                **facts,
                **method_facts(entry, self.options[name], gaps),
                **self.measured(name, trace, gathered.device),
            }
            info |= {**self.results.tolerance, **self.remarks(extra), **extra}
            kind = HeadMaps if self.of_heads(name) else Map
            maps[name] = kind(scores, trace.tokens, name, info=info, special=trace.special, words=trace.words)
        return maps

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
            seconds = {
                "forward": forward,
                "proof": self.seconds["proof"],
                "map": self.seconds[name],
                "batch": self.size,
            }
            facts["seconds"] = seconds
        if name in self.errors:
            facts |= {"precision": self.call.precision, "precision_error": self.errors[name]}
        return facts

    def remarks(self, extra: Mapping[str, Any]) -> dict[str, list[str]]:
        """Notes about the numbers: memory that ran out, scores that the number type cannot hold."""
        notes = [*self.notes, *rounding_notes(extra)]
        return {"notes": notes} if notes else {}


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
