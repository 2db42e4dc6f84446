"""`mix`: Trace -> Map. Every layer's decomposition serves all methods of a call, and is proven against the model on
the way."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import fast
from ..base.budget import is_out_of_memory, setting, settings, tile_elements
from ..base.errors import InputError, MixlensError, ModelError, is_integer
from ..base.rounding import finite
from ..fast.cuda_graphs import is_spread
from ..fast.loops import used as loop_form
from ..layer import Block
from ..layer.identities import Unproven, refusal
from ..model.encode import Encoded
from ..model.model import Model
from ..model.offload import linearity_hint
from ..types import HeadMaps, LayersOf, LayerTrace, Map, Trace, without_batch
from .aggregate import find
from .batches import batches, layer_of, neighbours, together_at_once
from .provenance import provenance, versions
from .registry import ALL, Extras, Method, method, methods, mixing
from .registry import known_maps as known

__all__ = ["known", "method", "methods", "mix", "mixing", "streamed", "timed", "versions"]
Maps = dict[str, Map | HeadMaps]  # of one trace, by method
Identities = dict[str, tuple[Tensor, float]]  # by name: the gap of each layer, and how large it may be
Scored = tuple[int, Identities, list[tuple[str, Tensor, Extras]]]  # number of the first layer, what proves it, scores
REBUILT = (
    "parts",
    "stream",
    "layer",
)  # identities that compare a layer rebuilt from its parts with what the model wrote
NOTED_ERROR = 1e-2  # of a row: rounding that is worth a note
_T = TypeVar("_T")


class NotFinite(MixlensError):  # noqa: N818 - on a GPU first a reason to compute in a wider range
    """A score is infinite or no number."""


# --- the call ---------------------------------------------------------------------------------------------------------


def mix(
    traces: Trace | Sequence[Trace],
    name: str | Sequence[str],
    *,
    variant: str | None = None,
    chunk: int | None = None,
    **options: Any,
) -> Any:
    """Score every layer of a trace: a Map. A list of traces gives a list; a list of methods a dict of maps.

    With `head=3` a method that has heads scores that head alone, with `head="all"` each: HeadMaps [layer head query
    key].

    The layers' decomposition is proven against the model on the way; its gap is in `.info`, and so is where the time
    went. `chunk`: the most elements a temporary may have (by default what suits the device; smaller by itself when
    memory runs out).
    """
    call = Call(name, variant, chunk, options)
    every = listed(traces, "mix")
    for trace in every:
        if trace.info.get("dtype", trace.model.dtype) != trace.model.dtype:
            raise InputError(
                f"the model was in {trace.info['dtype']} when this trace was made and is in {trace.model.dtype} now. "
                "Trace the text again."
            )
    maps: dict[int, Maps] = {}
    for batch in batches(every, alone=call.query is not None or fast.is_off()):
        together = [every[i] for i in batch]
        maps |= zip(batch, fresh(partial(scored, together, call), together[0].model), strict=True)
    results = [maps[i][name] if isinstance(name, str) else maps[i] for i in range(len(every))]
    return results[0] if isinstance(traces, Trace) else results


def listed(traces: Any, asked: str) -> list[Trace]:
    """One trace or several as a list, for the function `asked`; what is no trace is refused."""
    if not isinstance(traces, Trace | Iterable):
        raise InputError(f"{asked} takes a Trace or a list of traces, not {type(traces).__name__}.")
    every = [traces] if isinstance(traces, Trace) else list(traces)
    if not all(isinstance(trace, Trace) for trace in every):
        raise InputError(
            f"{asked} takes a Trace or a list of traces, as model.trace gives them; for a text: model.explain."
        )
    return every


def streamed(
    model: Model,
    encoded: Sequence[Encoded],
    name: str | Sequence[str],
    *,
    variant: str | None = None,
    chunk: int | None = None,
    **options: Any,
) -> list[Any]:
    """The maps of one batch, each layer scored when it has run and then released (short ones on a GPU are kept
    whole)."""
    call = Call(name, variant, chunk, options)
    for entry in call.methods.values():
        if entry.whole:
            raise InputError(f"{entry.id!r} needs all layers at once: use mixlens.mix(model.trace(...), {entry.id!r}).")
    groups = [[one] for one in encoded] if call.query is not None else [encoded]
    maps = [one for group in groups for one in fresh(partial(scored_pass, model, group, call), model)]
    return [one[name] if isinstance(name, str) else one for one in maps]


class Call:
    """The arguments of `mix`, checked: the methods, and the options of each."""

    def __init__(self, name: Any, variant: str | None, chunk: int | None, options: Mapping[str, Any]):
        if not isinstance(name, str | Sequence) or isinstance(name, bytes):
            raise InputError(f"a method is a name, or a list of names, not {name!r:.80}.")
        self.methods = {one: method(one) for one in ([name] if isinstance(name, str) else name)}
        if not self.methods:
            raise InputError("no method was asked for.")
        if chunk is not None and not (is_integer(chunk) and chunk >= 1):
            raise InputError(f"chunk is a number of elements, at least 1, not {chunk!r}.")
        self.options = {one: entry.arguments(variant, options) for one, entry in self.methods.items()}
        self.chunk, self.query = chunk, options.get("query")


def fresh(compute: Callable[[], _T], model: Model) -> _T:
    """`compute()`; if an identity fails, once more with nothing kept of the weights, and if that fails, a refusal.

    This is the one place that deals with stale values: weights may change without torch's counters. On a GPU, scores
    that are not finite are computed once more with the range of float32.
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


# --- a batch, layer by layer ------------------------------------------------------------------------------------------


def scored(traces: Sequence[Trace], call: Call) -> list[Maps]:
    """All methods on all traces of a batch, layer by layer: one layer's decomposition serves every method."""
    first = traces[0]
    scorer = Scorer(call, len(traces), first.tokens, first.model)
    layers = first.layers.batch if isinstance(first.layers, LayersOf) else first.layers
    blocks = fast.shared_blocks(first) if len(traces) == 1 and first.model.device.type == "cpu" else None
    scorer.blocks = blocks
    try:
        alone = fast.is_off() or not any(entry.stacks or entry.whole for entry in call.methods.values())
        for some in neighbours(layers, 1 if alone else together_at_once(layers[0], len(layers))):
            scorer.score([layer_of(traces, index) for index in some], some.start)
    finally:
        if blocks is not None:
            blocks.end_call()
    return scorer.maps(traces)


def scored_pass(model: Model, encoded: Sequence[Encoded], call: Call) -> list[Maps]:
    """One pass whose layers are scored as they come; on a GPU, whole where it is short, and replayed where it came
    before."""
    scorer = Scorer(call, len(encoded), encoded[0].tokens, model)
    if model.device.type != "cuda" or not fast.fits_whole(model, encoded):
        traces, _ = model.run_traced(encoded, each=lambda index, layer: scorer.score([layer], index))
        return scorer.maps(traces)
    replayed = model.run_replayed(encoded, scorer.key(), scorer.all_scored) if scorer.replays else None
    if replayed is None:
        return scored(model.run_traced(encoded)[0], call)
    traces, results = replayed
    for result in results:
        scorer.take(*result)
    return scorer.maps(traces)


class Scorer:
    """Takes the layers of one batch as they come, and gives the maps at the end."""

    def __init__(self, call: Call, size: int, tokens: Sequence[str], model: Model):
        self.call, self.size, self.model = call, size, model
        # A query is a position or a token of this text.
        place = {} if call.query is None else {"query": find(tokens, call.query)}
        self.options = {name: {**options, **place} for name, options in call.options.items()}
        self.by_layer = [entry for entry in call.methods.values() if not entry.whole]
        self.replays = (  # whether scores may be replayed: several layers at once do not wait for a GPU in between
            model.device.type == "cuda"
            and all(entry.stacks for entry in call.methods.values())
            and not settings().timing
            and not is_spread(model.hf_model)
        )
        self.scores: dict[str, list[Tensor]] = {entry.id: [] for entry in self.by_layer}
        self.extras: dict[str, list[Extras]] = {entry.id: [] for entry in self.by_layer}
        self.gaps: list[tuple[str, int, Tensor, float]] = []  # identity, first layer, [layer], how large it may be
        self.seconds = dict.fromkeys(("proof", *call.methods), 0.0)
        self.notes: list[str] = []
        self.scratch: dict[Any, Tensor] = {}  # memory that the blocks of this call share
        self.blocks: Any = None  # where the blocks of one trace are shared with the next call (`fast.shared_blocks`)

    @torch.no_grad()
    def score(self, layers: Sequence[LayerTrace], start: int) -> None:
        """Score some layers, the first of them number `start`. Out of memory: once more in pieces of a sixteenth,
        with a note."""
        chunk, replayed, device = self.call.chunk, None, layers[0].input.device
        try:
            if self.replays:
                compute = partial(self.scored, start=start, chunk=chunk)
                replayed = self.model.graphs.scored((self.key(), start, chunk), layers, compute)
            self.take(*(replayed or self.scored(layers, start, chunk)))
        except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            smaller = max(1, (chunk or tile_elements(device)) // 16)
            self.notes.append(f"memory ran out in layer {start}: scored again in pieces of {smaller:,} elements")
            warnings.warn(self.notes[-1] + ".", stacklevel=6)
            self.scratch.clear()
            if self.blocks is not None:
                self.blocks.blocks.clear()
            self.blocks = self.model.kept.blocks = None
            if device.type == "cuda":
                self.model.graphs.clear()
                torch.cuda.empty_cache()
            for index, layer in enumerate(layers, start):
                self.take(*self.scored([layer], index, smaller))

    def scored(self, layers: Sequence[LayerTrace], start: int, chunk: int | None) -> Scored:
        """Every method's scores of some layers, what it hands out beside them, and the identities that prove them."""
        several = fast.block_of(layers, start) if len(layers) > 1 else None  # all layers as one block
        singles: list[Block] = []
        if several is None:  # what an earlier call on the same trace decomposed is read again
            layer = without_batch(layers[0]) if self.size == 1 else layers[0]
            if self.blocks is not None:
                singles = [self.blocks.block(layer, start, self.scratch)]
            else:
                singles = [fast.block_of(layer, start, scratch=self.scratch)]
        results = []
        with setting(chunk=chunk):
            for entry in self.by_layer:
                began = time.perf_counter()
                stacked = several is not None and entry.stacks
                if not stacked and not singles:
                    each = [without_batch(layer) if self.size == 1 else layer for layer in layers]
                    singles = [fast.block_of(layer, index) for index, layer in enumerate(each, start)]
                for block in [several] if several is not None and stacked else singles:
                    returned = entry.function(block, **self.options[entry.id])
                    results.append((entry.id, *self.own(entry.id, returned, block, stacked=stacked)))
                self.spent(entry.id, began)
            began = time.perf_counter()
            identities = self.identities(several, singles)
            self.spent("proof", began)
        return start, identities, results

    def own(self, name: str, returned: Any, block: Block, *, stacked: bool) -> tuple[Tensor, Extras]:
        """What a method returned, with the axes [layer batch ...] whatever axes it saw, in memory of its own: neither
        the call's scratch memory nor a tensor of its block."""
        scores, extras = returned if isinstance(returned, tuple) else (returned, {})
        held = [one for one in (*self.scratch.values(), *vars(block).values()) if isinstance(one, Tensor)]
        shared = {one.untyped_storage().data_ptr() for one in held}

        def own(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            value = value.clone() if value.untyped_storage().data_ptr() in shared else value
            value = value if stacked else value.unsqueeze(0)
            return value if self.size > 1 else value.unsqueeze(1)

        scores, n = own(scores), block.layer.input.shape[-2]
        heads = -2 if self.options[name].get("head") == ALL else 2
        fitting = (self.size, *scores.shape[2:heads], n, n)
        if tuple(scores.shape[1:]) != fitting or scores.dim() > 5:
            raise MixlensError(
                f"method {name!r} returned shape {tuple(scores.shape[1:])} for a layer; it must be {fitting}."
            )
        return scores, {key: own(value) for key, value in extras.items()}

    def identities(self, several: Block | None, singles: Sequence[Block]) -> Identities:
        """The gaps [layer] of the layers that were scored, the larger one where a layer has it as a block and as one
        of several. A layer on a CPU is judged at once."""
        found = {} if several is None else dict(several.identities)
        each = [block.identities for block in singles]
        for name in dict.fromkeys(chain.from_iterable(each)):
            values, allowed = torch.stack([one[name][0] for one in each]), each[0][name][1]
            found[name] = (torch.maximum(values, found[name][0]) if name in found else values, allowed)
        if several is None and singles[0].x.device.type == "cpu":
            for name, (value, allowed) in found.items():
                if not float(value) <= allowed:
                    raise Unproven(singles[0].refusal(name, finite(float(value)), allowed, singles[0].index))
        return found

    def spent(self, name: str, began: float) -> None:
        if self.model.device.type == "cuda" and settings().timing:
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - began

    def take(self, start: int, identities: Identities, results: Sequence[tuple[str, Tensor, Extras]]) -> None:
        self.gaps += [(identity, start, gap, allowed) for identity, (gap, allowed) in identities.items()]
        for name, scores, extras in results:
            self.scores[name].append(scores)
            self.extras[name].append(extras)

    def key(self) -> object:
        """All that scores depend on besides layers: a part of the cache key of a captured graph."""
        return (
            self.call.chunk,
            self.size,
            settings().wide,
            tuple((name, repr(one)) for name, one in self.options.items()),
        )

    def all_scored(self, layers: Sequence[LayerTrace]) -> list[Scored]:
        """All layers of a pass, as many at once as suits the device."""
        few = together_at_once(layers[0], len(layers))
        return [self.scored(layers[i : i + few], i, self.call.chunk) for i in range(0, len(layers), few)]

    # --- the proof, and the maps

    @torch.no_grad()
    def maps(self, traces: Sequence[Trace]) -> list[Maps]:
        """The maps of each trace, by method; refused where an identity does not hold or a score is not finite."""
        # All that a GPU can do is asked of it, and all that is known without it is gathered, before it is waited for.
        device = self.model.device
        scores = {name: torch.cat([one.to(device) for one in each]) for name, each in self.scores.items()}
        extras = {
            name: {key: joined([one[key] for one in each]) for key in each[0]} for name, each in self.extras.items()
        }
        numbers = torch.cat(
            [gap.to(device) for _, _, gap, _ in self.gaps] + [one.sum()[None] for one in scores.values()]
        )
        facts = provenance(traces[0])
        facts_of_each = [facts, *(provenance(trace, facts) for trace in traces[1:])]
        read = iter(numbers.tolist())  # here a GPU is waited for, once
        gaps = [
            (name, start + i, next(read), allowed) for name, start, gap, allowed in self.gaps for i in range(len(gap))
        ]
        sums = dict(zip(scores, read, strict=True))
        worst = self.judged(gaps, sums)
        for handed in extras.values():
            handed |= {key: one.cpu() for key, one in handed.items() if isinstance(one, Tensor)}
        maps: list[Maps] = []
        for row, (trace, facts) in enumerate(zip(traces, facts_of_each, strict=True)):
            n = len(trace)
            of_trace: Maps = {}
            for name, entry in self.call.methods.items():
                if entry.whole:
                    of_method, extra = self.whole(entry, trace)
                else:
                    of_method = scores[name][:, row, ..., :n, :n].contiguous()
                    extra = {key: one[row] if isinstance(one, Tensor) else one for key, one in extras[name].items()}
                    for (
                        key,
                        one,
                    ) in extra.items():  # [layer ... query] without padding; [layer] and [layer head] have none
                        if isinstance(one, Tensor) and one.dim() > 1 and key not in entry.per_head:
                            extra[key] = one[..., :n]
                info = {**facts, **self.facts_of(entry, worst, trace, extra), **extra}
                kind = HeadMaps if self.options[name].get("head") == ALL else Map
                of_trace[name] = kind(
                    of_method, trace.tokens, name, info=info, special=trace.special, words=trace.words
                )
            maps.append(of_trace)
        for name in self.call.methods:
            if math.isfinite(sums.get(name, math.nan)):
                continue  # scores of a finite sum need not be looked at
            for by_name in maps:
                layers = by_name[name].scores.isfinite().flatten(1).all(-1)
                if not bool(layers.all()):
                    wrong = int((~layers).nonzero()[0])
                    raise NotFinite(
                        f"method {name!r} gave a score that is not finite in layer {wrong}. No map is given."
                    )
        return maps

    def judged(self, gaps: Sequence[tuple[str, int, float, float]], sums: Mapping[str, float]) -> dict[str, float]:
        """The largest gap of each identity, over all layers; the first that is over its limit is refused."""
        worst: dict[str, float] = {}
        for identity, layer, value, allowed in gaps:
            gap = finite(value)
            worst[identity] = max(gap, worst.get(identity, 0.0))
            if not gap <= allowed:
                if math.isinf(gap) and not all(map(math.isfinite, sums.values())):
                    raise NotFinite(f"a score of layer {layer} is not finite ({identity}). No map is given.")
                hint = linearity_hint([self.model.parts[min(layer, len(self.model.parts) - 1)].layer])
                raise Unproven(refusal(identity, gap, allowed, layer) + hint)
        worst.pop("weights", None)  # not a gap of the model: whether kept values are those of its weights
        return worst

    def whole(self, entry: Method, trace: Trace) -> tuple[Tensor, Extras]:
        """The scores of a method that reads a whole trace, [layer query key]."""
        began, n = time.perf_counter(), len(trace)
        with setting(chunk=self.call.chunk), through_quantized(trace.model, entry.id):
            returned = entry.function(trace, **self.options[entry.id])
        scores, extras = returned if isinstance(returned, tuple) else (returned, {})
        if tuple(scores.shape[1:]) != (n, n):
            raise MixlensError(
                f"method {entry.id!r} returned shape {tuple(scores.shape)}; it must be [layer, {n}, {n}]."
            )
        self.seconds[entry.id] = time.perf_counter() - began
        return scores, extras

    def facts_of(
        self, entry: Method, gaps: Mapping[str, float], trace: Trace, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What `.info` says of the method, of the gaps that prove its scores, of time and memory, and of rounding."""
        device, options, notes = self.model.device, self.options[entry.id], [*self.notes]
        facts = {
            "method": entry.id,
            "paper": entry.paper,
            "variant": options.get("variant", entry.variants[0]),
            "options": {key: value for key, value in options.items() if key != "variant"},
            "distribution": entry.distribution,
            "signed": entry.is_signed(options.get("variant"), options),
            "convention": entry.rollout,
            "rollout": None,
            "gap": max(gaps[key] for key in REBUILT if key in gaps),
            "gaps": dict(gaps),
            # More than the number type's own rounding where modules round to 8 bits.
            "tolerance": max(allowed for name, _, _, allowed in self.gaps if name in ("parts", "stream")),
            "loops": loop_form(device),
        }
        if device.type == "cpu" or settings().timing:
            seconds = {"proof": self.seconds["proof"], "map": self.seconds[entry.id], "batch": self.size}
            facts["seconds"] = {"forward": trace.info["forward_seconds"], **seconds}
        if "rounding_error" in extra and (error := float(extra["rounding_error"].max())) > NOTED_ERROR:
            notes.append(
                f"rounding may move a score by {error:.0e} of its row: float32 does not hold these distances. "
                "Load the model with dtype='float64'."
            )
        return facts | ({"notes": notes} if notes else {})


def joined(layers: Sequence[Any]) -> Any:
    """An extra over all layers, [batch layer ...]. A word that never changes is said once."""
    if isinstance(layers[0], str):
        return layers[0] if len(set(layers)) == 1 else list(layers)
    return torch.cat([one.to(layers[0].device) for one in layers]).transpose(0, 1)


def shares(scores: Tensor) -> Tensor:
    """Rows over the sum of their magnitudes."""
    return scores / scores.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


@contextmanager
def through_quantized(model: Model, name: str) -> Iterator[None]:
    """Quantised modules have gradients of their own, or none: what torch cannot send through them is refused by
    name."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if model.quantization is None or is_out_of_memory(error):
            raise
        raise ModelError(
            f"{name!r} cannot be had of {model.name!r}, whose weights are quantised ({model.quantization}): "
            f"{' '.join(str(error).split())[:160]}. Load it without quantization, or use a map."
        ) from error


# Within `with timed():` a GPU is waited for, so that `.info["seconds"]` says where the time went.
timed = partial(setting, timing=True)
