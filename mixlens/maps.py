"""The methods there are, and `mix`: Trace -> Map. A method is a function registered by `@mixing`."""

from __future__ import annotations

import importlib
import math
import pkgutil
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import torch
from torch import Tensor

from .aggregate import find
from .errors import InputError, MixlensError, ModelError, nearest
from .fast.cuda_graphs import TOKENS, is_spread
from .fast.kept import forget
from .fast.loops import used as used_form
from .fast.loops.plain import PRECISIONS, WIDE, chunk_of, products_in, tile_elements
from .layer.block import TOLERANCE, Block, Scratch, finite, refusal
from .model.model import Encoded, Model, is_causal
from .model.offload import is_away, is_packed, linearity_hint
from .registry import Registered, refuse_second
from .types import PAIRS, POSITIONS, LayersOf, LayerTrace, Map, Trace

WHOLE = 1 << 28  # bytes of a trace that is not worth releasing layer by layer
NOTED_ERROR = 1e-2  # of a row: rounding that is worth a note
TOGETHER = 8192  # tokens, with padding, that are scored as one batch
Extras = dict[str, Tensor | str]
Extra = dict[str, dict[str, Any]]  # of all layers, by method and name
_T = TypeVar("_T")
Scores = Tensor | tuple[Tensor, dict[str, Tensor]] | tuple[Tensor, Extras]


@dataclass(frozen=True)
class Method(Registered):
    """A registered map method. `function(block, **options)` scores one layer: [... query key].

    What a method hands out beside its scores ends up in `.info`: [... query] unless named in `per_head`, or a word.
    """

    rollout: str  # the convention its paper rolls it out by
    distribution: bool  # rows sum to 1
    signed: bool = False  # scores may be negative
    whole: bool = False  # `function(trace, **options)` scores all layers of one trace: [layer query key]
    per_head: tuple[str, ...] = ()  # names of extras that are [... head]
    stacks: bool = False  # takes several layers at once, [layer ... query key]: quicker on a GPU
    extras: tuple[str, ...] = ()  # names of what it always hands out beside its scores, such as "mixing_ratio"


METHODS: dict[str, Method] = {}


def mixing(
    *,
    paper: str,
    rollout: str,
    variants: Sequence[str] = ("paper",),
    distribution: bool = True,
    cost: str = "< 1",
    signed: bool = False,
    whole: bool = False,
    per_head: Sequence[str] = (),
    stacks: bool = False,
    extras: Sequence[str] = (),
) -> Callable[[Callable[..., Scores]], Callable[..., Scores]]:
    """Register a map method under its function's name. It gets one layer as a Block, and returns [... query key].

    With `whole` it gets a Trace and returns [layer query key]: for what is not a matter of one layer alone. With `stacks` its
    Block may hold several layers, [layer ... query key].
    """

    def register(function: Callable[..., Scores]) -> Callable[..., Scores]:
        name = getattr(function, "__name__", "")
        refuse_second(name, function, METHODS.values())
        METHODS[name] = Method(
            name,
            function,
            paper,
            tuple(variants),
            cost,
            rollout,
            distribution,
            signed,
            whole,
            tuple(per_head),
            stacks,
            tuple(extras),
        )
        return function

    return register


@cache
def known() -> dict[str, Method]:
    """Every file in `methods/`, and every entry point of the group `mixlens.methods`."""
    folder = importlib.import_module("mixlens.methods")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    for point in entry_points(group="mixlens.methods"):
        point.load()
    return METHODS


def methods() -> list[str]:
    """Every method there is: maps (for `mix`), then attributions to a prediction (for `attribute`)."""
    from .attributions import known as attributions

    return [*known(), *attributions()]


def method(name: str) -> Method:
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if name not in known():
        from .attributions import ATTRIBUTIONS

        if name in ATTRIBUTIONS:
            raise InputError(
                f"{name!r} explains a prediction, it makes no map: use mixlens.attribute(trace, {name!r}, target=...), or on the "
                f"command line mixlens explain --method {name}."
            )
        raise InputError(f"unknown method {name!r}. {nearest(str(name), known())}")
    return known()[name]


def mix(
    traces: Trace | Sequence[Trace],
    name: str | Sequence[str],
    *,
    variant: str | None = None,
    chunk: int | None = None,
    precision: str = "float32",
    **options: Any,
) -> Any:
    """Score every layer of a trace: a Map. A list of traces gives a list; a list of methods a dict of maps.

    The layers' decomposition is proven against the model on the way; its gap is in `.info`, and so is where the time went.
    `chunk`: the most elements a temporary may have (by default what suits the device; smaller by itself when memory runs
    out). `precision`: large products on a GPU in "tf32" or "bfloat16"; `.info["precision_error"]` is what that costs.
    """
    many = not isinstance(traces, Trace)
    call = Call(name, variant, chunk, precision, options)
    if many and not isinstance(traces, Sequence):
        raise InputError(f"mix takes a Trace or a list of traces, not {type(traces).__name__}.")
    every: list[Trace] = list(traces) if many else [traces]  # type: ignore[list-item, arg-type]
    if any(not isinstance(trace, Trace) for trace in every):
        raise InputError("mix takes a Trace or a list of traces, as model.trace gives them.")
    for trace in every:
        if trace.info.get("dtype", trace.model.dtype) != trace.model.dtype:
            raise InputError(
                f"the model was in {trace.info['dtype']} when this trace was made and is in {trace.model.dtype} now. "
                "Trace the text again."
            )
    maps: dict[int, dict[str, Map]] = {}
    for batch in [[i] for i in range(len(every))] if call.query is not None else _batches(every):
        maps |= zip(batch, _mix_batch([every[i] for i in batch], call), strict=True)
    results = [maps[i] if not isinstance(name, str) else maps[i][name] for i in range(len(every))]
    return results if many else results[0]


def streamed(
    model: Model,
    encoded: Sequence[Encoded],
    name: str | Sequence[str],
    *,
    variant: str | None = None,
    chunk: int | None = None,
    precision: str = "float32",
    **options: Any,
) -> list[Any]:
    """The maps of one batch, each layer scored when it has run and then released (short ones on a GPU: see `fits_whole`)."""
    call = Call(name, variant, chunk, precision, options)
    needy = [one for one, (used, _) in call.chosen.items() if used.whole]
    if needy:
        raise InputError(f"{needy[0]!r} needs all layers at once: use mixlens.mix(model.trace(...), {needy[0]!r}).")
    if call.query is not None and len(encoded) > 1:
        return [streamed(model, [one], name, variant=variant, chunk=chunk, precision=precision, **options)[0] for one in encoded]

    def scored() -> list[dict[str, Map]]:
        scorer = Scorer(call, len(encoded), encoded[0].tokens, model)
        if not fits_whole(model, encoded):
            traces, _ = model._run(encoded, each=lambda index, layer: scorer.score([layer], index))
            return scorer.maps(traces)
        replayed = model._run_whole(encoded, scorer.what, scorer.all_layers) if scorer.replayable else None
        if replayed is None:
            return _scored(model._run(encoded)[0], call)
        traces, made = replayed
        for some in made:
            scorer.take(*some)
        return scorer.maps(traces)

    made = fresh(scored, model)
    return [one if not isinstance(name, str) else one[name] for one in made]


def fits_whole(model: Model, encoded: Sequence[Encoded]) -> bool:
    """Whether a traced batch is on a GPU, which waits for Python at every layer, and so small that it may be kept whole."""
    if model.device.type != "cuda":
        return False
    tokens = len(encoded) * max(len(one.input_ids) for one in encoded)
    held = 8 * model.n_layers * tokens * model.hf_model.config.hidden_size * model.dtype.itemsize  # eight tensors a layer
    return tokens <= TOKENS and held <= WHOLE


class Unproven(MixlensError):  # noqa: N818 - most often no error: what was kept of weights is not what they are now
    """An identity does not hold. It is a reason to make everything anew, and the second time to refuse."""


class NotFinite(MixlensError):  # noqa: N818 - on a GPU first a reason to compute in a wider range
    pass


def fresh(scored: Callable[[], _T], model: Model) -> _T:
    """What `scored` gives; once more with everything made anew, where weights were changed behind torch's back, or with the
    range of float32, where half precision's was not enough. What fails twice is refused."""
    with model.computing():
        try:
            return scored()
        except Unproven:
            forget(model.hf_model)
            model.graphs.clear()
            try:
                return scored()
            except Unproven as error:
                raise ModelError(str(error)) from None
        except NotFinite:
            if model.device.type == "cpu":
                raise
        token = WIDE.set(True)
        try:
            return scored()
        finally:
            WIDE.reset(token)


class Call:
    """What was asked of `mix`, checked."""

    def __init__(
        self, name: str | Sequence[str], variant: str | None, chunk: int | None, precision: str, options: Mapping[str, Any]
    ):
        if not isinstance(name, str | Sequence) or isinstance(name, bytes):
            raise InputError(f"a method is a name, or a list of names, not {name!r:.80}.")
        names = [name] if isinstance(name, str) else list(name)
        names = [method(one).id for one in names]
        self.chosen = {one: (method(one), method(one).arguments(variant, options)) for one in names}
        if not names:
            raise InputError("no method was asked for.")
        if not isinstance(precision, str) or precision not in PRECISIONS:
            raise InputError(f"unknown precision {precision!r}. {nearest(str(precision), PRECISIONS)}")
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise InputError(f"chunk is a number of elements, at least 1, not {chunk!r}.")
        self.chunk, self.precision, self.query = chunk, precision, options.get("query")

    def arguments(self, name: str, tokens: Sequence[str]) -> dict[str, Any]:
        """A method's options; a query as the position it means."""
        options = self.chosen[name][1]
        return options if options.get("query") is None else {**options, "query": find(tokens, options["query"])}


def _batches(traces: Sequence[Trace]) -> Iterator[list[int]]:
    """Indices of traces that are scored as one: of one traced batch, or of one model and similar length."""
    batch: list[int] = []
    for i in sorted(range(len(traces)), key=lambda i: (id(traces[i].model), id(_origin(traces[i])), len(traces[i]), i)):
        trace = traces[i]
        if batch:
            other = traces[batch[0]]
            apart = other.model is not trace.model or _origin(other) is not _origin(trace)
            if apart or (len(batch) + 1) * len(trace) > TOGETHER:
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch


def _origin(trace: Trace) -> Any:
    """The traced batch a trace was cut from; traces of their own have none."""
    layers = trace.layers
    return layers.batch if isinstance(layers, LayersOf) and layers.batch[0].input.shape[0] > 1 else None


def _mix_batch(traces: Sequence[Trace], call: Call) -> list[dict[str, Map]]:
    return fresh(lambda: _scored(traces, call), traces[0].model)


def _scored(traces: Sequence[Trace], call: Call) -> list[dict[str, Map]]:
    """All methods on all traces of a batch, layer by layer: one layer's decomposition serves every method."""
    scorer, first = Scorer(call, len(traces), traces[0].tokens, traces[0].model), traces[0]
    depth = len(first.layers)
    if len(traces) == 1:
        layers: Any = first.layers
        if first.model.device.type != "cpu" and isinstance(layers, LayersOf) and layers.batch[0].input.shape[:2] == (1, layers.n):
            layers = layers.batch  # nothing to cut out
    elif _origin(first) is not None:
        rows, n = [trace.layers.row for trace in traces], max(map(len, traces))  # type: ignore[attr-defined]
        layers = _Lazy(depth, lambda index: of_rows(_origin(first)[index], rows, n))
    else:
        layers = _Lazy(depth, lambda index: stack([trace.layers[index] for trace in traces]))
    seen = first.layers.batch if isinstance(first.layers, LayersOf) else first.layers
    for some in _neighbours(seen, together_at_once(layers[0], depth)):
        scorer.score([layers[index] for index in some], some.start)
    return scorer.maps(traces)


def _neighbours(layers: Sequence[LayerTrace], most: int) -> Iterator[range]:
    """Layers to score at once, `most` at a time: of one device, and their weights on it as they are. Others one by one."""

    if most == 1:
        yield from (range(number, number + 1) for number in range(len(layers)))
        return
    modules = [layer.parts.output for layer in layers]
    places = [None if is_away(one) or is_packed(one) else layer.output.device for one, layer in zip(modules, layers, strict=True)]
    start = 0
    for end in range(1, len(layers) + 1):
        alone = places[start] is None or places[start].type == "cpu"  # type: ignore[union-attr]
        if end == len(layers) or end - start == most or alone or places[end] != places[start]:
            yield range(start, end)
            start = end


class _Lazy(Sequence[LayerTrace]):
    def __init__(self, length: int, made: Callable[[int], LayerTrace]):
        self.length, self.made = length, made

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.made(index)


def together_at_once(layer: LayerTrace, depth: int) -> int:
    """How many layers to score at once. A GPU is kept waiting by the number of operations, a CPU by the size of its cache."""
    if layer.input.device.type == "cpu":
        return 1
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    tokens, (n, width) = layer.input[..., 0].numel(), layer.input.shape[-2:]
    return max(1, min(depth, tile_elements(layer.input.device, 2) // (heads * tokens * max(n, width))))


class Scorer:
    """Takes the layers of one batch as they come, and gives the maps at the end."""

    def __init__(self, call: Call, size: int, tokens: Sequence[str], model: Model):
        self.call, self.size = call, size
        # Methods that score several layers at once do not wait for a GPU in between: they can be replayed.
        stacks = call.precision == "float32" and all(used.stacks for used, _ in call.chosen.values())
        self.replayable = stacks and model.device.type == "cuda" and not TIMING.get() and not is_spread(model.hf_model)
        self.graphs = model.graphs
        self.options = {name: call.arguments(name, tokens) for name in call.chosen}
        self.by_layer = {name: used for name, (used, _) in call.chosen.items() if not used.whole}
        self.scores: dict[str, list[Tensor]] = {name: [] for name in self.by_layer}
        self.extras: dict[str, list[Extras]] = {name: [] for name in self.by_layer}
        self.gaps: dict[str, list[tuple[int, Tensor, float]]] = {}  # of each identity: first layer, [layer], allowed
        self.seconds: dict[str, float] = {"proof": 0.0, **dict.fromkeys(self.by_layer, 0.0)}
        self.errors: dict[str, float] = {}
        self.notes: list[str] = []
        self.scratch: Scratch = {}

    @torch.no_grad()
    def score(self, layers: Sequence[LayerTrace], start: int) -> None:
        """Score some layers, the first of them number `start`. Out of memory: once more in smaller pieces, with a note."""
        kept = {name: len(found) for name, found in self.scores.items()}
        proven = {identity: len(found) for identity, found in self.gaps.items()}
        chunk = self.call.chunk
        try:
            self._score(layers, start, chunk)
        except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            device = layers[0].input.device
            smaller = max(1, (chunk or tile_elements(device)) // 16)
            note = f"memory ran out in layer {start}: scored again in pieces of {smaller:,} elements"
            warnings.warn(note + ".", stacklevel=5)
            self.notes.append(note)
            self.scratch.clear()
            for name, count in kept.items():
                del self.scores[name][count:], self.extras[name][count:]
            for identity, found in self.gaps.items():
                del found[proven.get(identity, 0) :]
            if device.type == "cuda":
                self.graphs.clear()
                torch.cuda.empty_cache()
            for index, layer in enumerate(layers):
                self._score([layer], start + index, smaller)

    @property
    def what(self) -> object:
        """All that scores depend on besides layers."""
        return self.call.chunk, self.size, WIDE.get(), tuple((name, repr(given)) for name, given in self.options.items())

    def _score(self, layers: Sequence[LayerTrace], start: int, chunk: int | None) -> None:
        layers, made = self._ready(layers), None
        if self.replayable:
            made = self.graphs.scored((self.what, start, chunk), layers, lambda own: self._computed(own, start, chunk))
        self.take(*(made or self._computed(layers, start, chunk)))

    def _ready(self, layers: Sequence[LayerTrace]) -> Sequence[LayerTrace]:
        return [of_one(layers[0])] if len(layers) == 1 and self.size == 1 else layers

    def all_layers(self, layers: Sequence[LayerTrace]) -> list[Any]:
        """All layers of a pass, as many at once as suits the device; to be `take`n."""
        few = together_at_once(layers[0], len(layers))
        groups = [(start, layers[start : start + few]) for start in range(0, len(layers), few)]
        return [self._computed(self._ready(some), start, self.call.chunk) for start, some in groups]

    def take(self, start: int, gaps: dict[str, tuple[Tensor, float]], found: Sequence[tuple[str, Tensor, Extras]]) -> None:
        for identity, (value, allowed) in gaps.items():
            self.gaps.setdefault(identity, []).append((start, value, allowed))
        for name, scores, extra in found:
            self.scores[name].append(scores)
            self.extras[name].append(extra)

    def _computed(
        self, layers: Sequence[LayerTrace], start: int, chunk: int | None
    ) -> tuple[int, dict[str, tuple[Tensor, float]], list[tuple[str, Tensor, Extras]]]:
        """Every method's scores [layer batch query key] of some layers, with what it hands out beside them, and the identities
        that show what they rest on: each gap [layer], and how large it may be."""
        alone, found, n = self.size == 1, [], layers[0].input.shape[-2]
        several = Block(layers, start) if len(layers) > 1 else None
        blocks = [Block(layer, start + i, scratch=self.scratch) for i, layer in enumerate(layers)] if several is None else []
        with self._timed("proof", layers):
            _ = (several or blocks[0]).rebuilt  # in full precision, before a method asks for less
        for name, used in self.by_layer.items():
            with chunk_of(chunk), self._timed(name, layers):
                if several is not None and used.stacks:
                    made = [self._made(name, several)]
                else:
                    blocks = blocks or [Block(of_one(layer) if alone else layer, start + i) for i, layer in enumerate(layers)]
                    made = [self._made(name, block) for block in blocks]
            for scores, extra in made:  # whatever axes the method saw
                if several is None or not used.stacks:
                    scores, extra = scores[None], {k: v[None] if isinstance(v, Tensor) else v for k, v in extra.items()}
                if alone:
                    scores, extra = scores[:, None], {k: v[:, None] if isinstance(v, Tensor) else v for k, v in extra.items()}
                if tuple(scores.shape[1:]) != (self.size, n, n):
                    raise MixlensError(
                        f"method {name!r} returned shape {tuple(scores.shape[1:])} for a layer; it must be {(self.size, n, n)}."
                    )
                found.append((name, scores, extra))
        with chunk_of(chunk), self._timed("proof", layers):
            gaps = self._identities(several, blocks)
        return start, gaps, found

    def _identities(self, several: Block | None, blocks: Sequence[Block]) -> dict[str, tuple[Tensor, float]]:
        """The identities of the layers that were scored; of a layer on a CPU they are judged at once."""
        if several is None and len(blocks) == 1:
            found = {name: (value[None], allowed) for name, (value, allowed) in blocks[0].identities.items()}
            if blocks[0].x.device.type == "cpu":
                for name, (value, allowed) in found.items():
                    if not float(value) <= allowed:
                        raise Unproven(blocks[0].refusal(name, finite(float(value)), allowed, blocks[0].index))
            return found
        each = [block.identities for block in blocks]
        found = {} if several is None else several.identities
        for name in dict.fromkeys(name for one in each for name in one):
            values = torch.stack([one[name][0] for one in each])
            found[name] = (torch.maximum(values, found[name][0]) if name in found else values, each[0][name][1])
        return found

    def _made(self, name: str, block: Block) -> tuple[Tensor, Extras]:
        """A method's scores, in the precision asked for; what that cost is measured on the first layer."""
        used, options = self.by_layer[name], self.options[name]
        if self.call.precision == "float32" or block.x.device.type == "cpu":
            return _given(used.function(block, **options), self.scratch)
        with products_in(self.call.precision):
            made = _given(used.function(block, **options), self.scratch)
        if name not in self.errors:
            exact = _given(used.function(Block(block.layers if block.several else block.layer), **options), self.scratch)[0]
            apart = (shares(made[0]) - shares(exact)).abs().amax((-1, -2))
            self.errors[name] = float(apart.max())
        return made

    @contextmanager
    def _timed(self, name: str, layers: Sequence[LayerTrace]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if layers[0].input.device.type == "cuda" and TIMING.get():
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - started

    @torch.no_grad()
    def maps(self, traces: Sequence[Trace]) -> list[dict[str, Map]]:
        # All that a GPU can do is asked of it, and all that is known without it is gathered, before it is waited for.
        device = traces[0].model.device
        every = {name: gathered(found, device) for name, found in self.scores.items()}  # [layer batch ..]
        totals = torch.stack([scores.sum() for scores in every.values()]) if every else torch.empty(0)
        extras = {
            name: {key: _all_layers([layer[key] for layer in found]) for key in found[0]} for name, found in self.extras.items()
        }
        about = [provenance(traces[0])]
        about += [provenance(trace, about[0]) for trace in traces[1:]]
        gaps, sums = self._read_gaps(traces, totals, extras)
        results: list[dict[str, Map]] = []
        for row, (trace, known) in enumerate(zip(traces, about, strict=True)):
            n = len(trace)
            results.append({})
            for name, (used, _) in self.call.chosen.items():
                if used.whole:
                    started = time.perf_counter()
                    with chunk_of(self.call.chunk), through_quantized(trace.model, name):
                        made, extra = _given(used.function(trace, **self.options[name]), {})
                    if tuple(made.shape[1:]) != (n, n):
                        raise MixlensError(f"method {name!r} returned shape {tuple(made.shape)}; it must be [layer, {n}, {n}].")
                    self.seconds[name] = time.perf_counter() - started
                else:
                    made = every[name][:, row, :n, :n].contiguous()
                    extra = {key: _of_row(value, row, None if key in used.per_head else n) for key, value in extras[name].items()}
                results[-1][name] = Map(
                    scores=made,
                    tokens=trace.tokens,
                    method=name,
                    info={
                        **known,
                        **_told(used, self.options[name], gaps),
                        **self._told(name, trace, device),
                        **self._allowed,
                        **self._notes(extra),
                        **extra,
                    },
                    special=trace.special,
                    words=trace.words,
                )
        fine = {name for name, total in zip(every, sums, strict=True) if math.isfinite(total)}
        for name in [name for name in self.call.chosen if name not in fine]:
            for result in results:
                finite = torch.isfinite(result[name].scores).flatten(1).all(-1)
                if not bool(finite.all()):
                    wrong = int((~finite).nonzero()[0])
                    raise NotFinite(f"method {name!r} gave a score that is not finite in layer {wrong}. No map is given.")
        return results

    def _told(self, name: str, trace: Trace, device: torch.device) -> dict[str, Any]:
        """Where the time of this batch went, in seconds, and what is to be said about the numbers."""
        told: dict[str, Any] = {"loops": used_form(device)}
        if device.type == "cpu" or TIMING.get():
            told["seconds"] = {
                "forward": trace.info["forward_seconds"],
                "proof": self.seconds["proof"],
                "map": self.seconds[name],
                "batch": self.size,
            }
        if name in self.errors:
            told |= {"precision": self.call.precision, "precision_error": self.errors[name]}
        return told

    @property
    def _allowed(self) -> dict[str, float]:
        """How large the gap may be in these layers: more than the number type's own rounding where modules round to 8 bits."""
        found = [allowed for name in ("parts", "stream") for _, _, allowed in self.gaps.get(name, [])]
        return {"tolerance": max(found)} if found else {}

    def _notes(self, extra: Mapping[str, Any]) -> dict[str, list[str]]:
        """What is to be said about the numbers: memory that ran out, scores that the number type cannot hold."""
        notes, error = list(self.notes), extra.get("rounding_error")
        if error is not None and float(error.max()) > NOTED_ERROR:
            notes.append(
                f"rounding may move a score by {float(error.max()):.0e} of its row: float32 does not hold these distances. "
                "Load the model with dtype='float64'."
            )
        return {"notes": notes} if notes else {}

    def _read_gaps(self, traces: Sequence[Trace], totals: Tensor, extras: Extra) -> tuple[dict[str, float], list[float]]:
        """The largest gap of each identity, and each method's sum of scores; extras are brought to the CPU. A GPU is waited
        for here, once, and a wrong layer is refused."""
        every = [value.to(totals) for found in self.gaps.values() for _, value, _ in found]
        gaps = torch.cat(every) if every else totals.new_zeros(0)
        places = [(told, key) for told in extras.values() for key, value in told.items() if isinstance(value, Tensor)]
        places = [(told, key) for told, key in places if told[key].device.type != "cpu" and told[key].dtype == gaps.dtype]
        flat = torch.cat([gaps, totals, *(told[key].flatten() for told, key in places)]).cpu()
        at = len(gaps) + len(totals)
        for told, key in places:
            shape = told[key].shape
            told[key] = flat[at : at + shape.numel()].view(shape).clone()
            at += shape.numel()
        for told in extras.values():
            told |= {key: value.cpu() for key, value in told.items() if isinstance(value, Tensor)}
        numbers = flat[: len(gaps) + len(totals)].tolist()
        each = iter(numbers)
        worst: dict[str, float] = {}
        for identity, found in self.gaps.items():
            for start, value, allowed in found:
                for layer in range(start, start + len(value)):
                    here = finite(next(each))
                    worst[identity] = max(here, worst.get(identity, 0.0))
                    if not here <= allowed and math.isinf(here) and not all(map(math.isfinite, numbers[len(gaps) :])):
                        raise NotFinite(f"a score of layer {layer} is not finite ({identity}). No map is given.")
                    if not here <= allowed:
                        hint = linearity_hint([traces[0].model.parts[min(layer, len(traces[0].model.parts) - 1)].layer])
                        raise Unproven(refusal(identity, here, allowed, layer) + hint)
        worst.pop("weights", None)  # not a gap of the model: whether kept values are those of its weights
        return worst or {"parts": 0.0}, numbers[len(gaps) :]


TIMING: ContextVar[bool] = ContextVar("mixlens_timing", default=False)


@contextmanager
def timed() -> Iterator[None]:
    """Within this block a GPU is waited for, so that `.info["seconds"]` says where the time went."""
    before = TIMING.set(True)
    try:
        yield
    finally:
        TIMING.reset(before)


@contextmanager
def through_quantized(model: Model, name: str) -> Iterator[None]:
    """Quantised modules have gradients of their own, or none: what torch cannot send through them is refused by name."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if model.quantization is None or _out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:160]
        raise ModelError(
            f"{name!r} cannot be had of {model.name!r}, whose weights are quantised ({model.quantization}): {reason}. "
            "Load it without quantization, or use a map."
        ) from error


def _out_of_memory(error: Exception) -> bool:
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in said or "out of memory" in said


def shares(scores: Tensor) -> Tensor:
    """Rows over the sum of their magnitudes."""
    return scores / scores.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def _given(scores: Scores, scratch: Scratch) -> tuple[Tensor, Extras]:
    """What a method returned, in memory of its own."""
    made, extra = scores if isinstance(scores, tuple) else (scores, {})
    shared = {room.untyped_storage().data_ptr() for room in scratch.values()}

    def own(tensor: Tensor) -> Tensor:
        return tensor.clone() if tensor.untyped_storage().data_ptr() in shared else tensor

    return own(made), {key: own(value) if isinstance(value, Tensor) else value for key, value in extra.items()}


def gathered(found: Sequence[Tensor], device: torch.device) -> Tensor:
    """Tensors of several layers as one, on one device: layers stay where they ran, their scores meet."""
    return torch.cat([one.to(device) for one in found]) if len(found) > 1 else found[0].to(device)


def _all_layers(layers: Sequence[Tensor | str]) -> Any:
    """An extra over all layers, [batch layer ...]. A word that never changes is said once."""
    if isinstance(layers[0], str):
        return layers[0] if len(set(layers)) == 1 else list(layers)
    found = [layer for layer in layers if isinstance(layer, Tensor)]
    return gathered(found, found[0].device).transpose(0, 1)


def _of_row(extra: Any, row: int, n: int | None) -> Any:
    """One trace's part of an extra, cut to its n positions where it has them."""
    if not isinstance(extra, Tensor):
        return extra
    return extra[row, :, :n] if extra.dim() > 2 else extra[row]


def of_one(layer: LayerTrace) -> LayerTrace:
    """A batch of one example without its batch axis."""
    if layer.input.dim() == 2:
        return layer
    found = {name: getattr(layer, name) for name in POSITIONS + PAIRS}
    return replace(layer, **{name: tensor[0] for name, tensor in found.items() if tensor is not None})


def of_rows(layer: LayerTrace, rows: list[int], n: int) -> LayerTrace:
    """Some examples of a traced batch, to the longest of them."""
    changes: dict[str, Any] = {}
    first, last = rows[0], rows[-1]
    some: Any = slice(first, last + 1) if rows == list(range(first, last + 1)) else rows
    for name in POSITIONS + PAIRS:
        whole = getattr(layer, name)
        if whole is not None:
            own = whole[some] if whole.shape[0] > 1 else whole
            changes[name] = own[..., :n, :] if name in POSITIONS else own[..., :n, :n]
    return replace(layer, **changes)


def _told(used: Method, options: Mapping[str, Any], gaps: Mapping[str, float]) -> dict[str, Any]:
    rebuilt = {key: value for key, value in gaps.items() if key in ("parts", "stream", "layer")}
    return {
        "method": used.id,
        "paper": used.paper,
        "variant": options.get("variant", used.variants[0]),
        "options": {key: value for key, value in options.items() if key != "variant"},
        "distribution": used.distribution,
        "signed": used.signed,
        "convention": used.rollout,
        "rollout": None,
        "gap": max(rebuilt.values()),  # the layers rebuilt from their parts, against what the model wrote
        "gaps": dict(gaps),
    }


@cache
def versions() -> dict[str, str]:
    import transformers

    from . import __version__

    return {
        "mixlens": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def provenance(trace: Trace, other: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a result rests on. `other`: that of a trace of the same batch, whose model need not be asked again."""
    model = trace.model
    return {
        "model": model.name,
        "revision": model.revision,
        "family": model.family.name,
        "task": model.task,
        "dtype": str(model.dtype).removeprefix("torch.") if other is None else other["dtype"],
        "quantization": model.quantization if other is None else other["quantization"],
        "versions": dict(versions()),
        "text": trace.text,
        "pair": trace.pair,
        "input_ids": list(trace.input_ids),
        "causal": is_causal(trace),
        "check": None if model.proof is None else model.proof.gap,
        "tolerance": TOLERANCE[model.dtype] if other is None else other["tolerance"],
    }


def stack(layers: Sequence[LayerTrace]) -> LayerTrace:
    """One layer of several traces as a batch. A padded query is a copy of the last real one; no one looks at a padded key."""
    n = max(layer.input.shape[-2] for layer in layers)

    def rows(tensor: Tensor, dim: int) -> Tensor:
        missing = n - tensor.shape[dim]
        if not missing:
            return tensor
        last = tensor.narrow(dim, tensor.shape[dim] - 1, 1)
        return torch.cat([tensor, last.expand(*(missing if i == dim % tensor.dim() else -1 for i in range(tensor.dim())))], dim)

    def columns(tensor: Tensor, fill: float | bool) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, n - tensor.shape[-1]), value=fill)

    def mask(layer: LayerTrace) -> Tensor:
        here = layer.input.shape[-2]
        own = layer.mask if layer.mask is not None else torch.ones(1, here, here, dtype=torch.bool, device=layer.input.device)
        own = own if own.dim() == 3 else own[None]
        return columns(rows(own, -2), False if own.dtype == torch.bool else torch.finfo(own.dtype).min)

    whole: dict[str, Any] = {f.name: getattr(layers[0], f.name) for f in fields(LayerTrace)}
    for name in POSITIONS:
        if whole[name] is not None:
            whole[name] = torch.stack([rows(getattr(layer, name), -2) for layer in layers])
    if whole["weights"] is not None:
        whole["weights"] = torch.stack([columns(rows(layer.weights, -2), 0.0) for layer in layers])  # type: ignore[arg-type]
    else:
        whole["mask"] = torch.stack([mask(layer) for layer in layers])
    return LayerTrace(**whole)
