"""`mix`: Trace -> Map. Every layer's decomposition serves all methods of a call, and is proven against the model on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import fast
from ..base.budget import setting
from ..base.errors import InputError
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..fast.cuda_graphs import TOKENS
from ..fast.together import neighbours, of_rows, stack, together_at_once
from ..methods._mixing import METHODS, Extras, Method, Scores, known, method, mixing
from ..model.encode import Encoded
from ..model.model import Model
from ..types import HeadMaps, LayersOf, LayerTrace, Map, Trace
from .provenance import provenance, versions
from .scoring import Call, Scorer, fresh

WHOLE = 1 << 28  # bytes of a trace that is not worth releasing layer by layer
TOGETHER = 8192  # tokens, with padding, that are scored as one batch


def methods() -> list[str]:
    """Every method there is: maps (for `mix`), then attributions to a prediction (for `attribute`)."""
    from ..methods._attribution import known as attributions

    return [*known(), *attributions()]


@wrong_kinds_in_one_line
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

    With `head=3` a method that has heads scores that head alone, with `head="all"` each: HeadMaps [layer head query key].

    The layers' decomposition is proven against the model on the way; its gap is in `.info`, and so is where the time went.
    `chunk`: the most elements a temporary may have (by default what suits the device; smaller by itself when memory runs
    out). `precision`: large products on a GPU in "tf32" or "bfloat16"; `.info["precision_error"]` is what that costs.
    """
    call = Call(name, variant, chunk, precision, options)
    every = listed(traces, "mix")
    for trace in every:
        refuse_other(trace)
    maps: dict[int, dict[str, Map | HeadMaps]] = {}
    for batch in _scored_together(every, call):
        together = [every[i] for i in batch]
        maps |= zip(batch, fresh(lambda: scored(together, call), together[0].model), strict=True)  # noqa: B023 - called at once
    results = [_as_asked(maps[i], name) for i in range(len(every))]
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


def _scored_together(traces: Sequence[Trace], call: Call) -> Iterable[list[int]]:
    """Indices of the traces of each batch. A query is of one trace; without `fast` each trace is scored alone."""
    alone = call.query is not None or fast.is_off()
    return ([i] for i in range(len(traces))) if alone else batches(traces)


def _as_asked(maps: Mapping[str, Map | HeadMaps], name: str | Sequence[str]) -> Any:
    """The map of one method, or those of several by name."""
    return maps[name] if isinstance(name, str) else maps


def refuse_other(trace: Trace) -> None:
    """Refuse a trace whose model has another number type now."""
    if trace.info.get("dtype", trace.model.dtype) != trace.model.dtype:
        raise InputError(
            f"the model was in {trace.info['dtype']} when this trace was made and is in {trace.model.dtype} now. "
            "Trace the text again."
        )


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
    _refuse_whole(call)
    alone = call.query is not None and len(encoded) > 1
    batches = [[one] for one in encoded] if alone else [encoded]
    return [_as_asked(maps, name) for batch in batches for maps in _streamed(model, batch, call)]


def _streamed(model: Model, encoded: Sequence[Encoded], call: Call) -> list[dict[str, Map | HeadMaps]]:
    return fresh(lambda: scored_pass(model, encoded, call), model)


def _refuse_whole(call: Call) -> None:
    """Refuse a method that reads all layers of a trace, where layers are released one by one."""
    for name, (entry, _) in call.chosen.items():
        if entry.whole:
            raise InputError(f"{name!r} needs all layers at once: use mixlens.mix(model.trace(...), {name!r}).")


def scored_pass(model: Model, encoded: Sequence[Encoded], call: Call) -> list[dict[str, Map | HeadMaps]]:
    """One pass whose layers are scored as they come; on a GPU, whole where it is short, and replayed where it came before."""
    scorer = Scorer(call, len(encoded), encoded[0].tokens, model)
    if not fits_whole(model, encoded):
        traces, _ = model.run_traced(encoded, each=lambda index, layer: scorer.score([layer], index))
        return scorer.maps(traces)
    replayed = model.run_replayed(encoded, scorer.key, scorer.all_layers) if scorer.replayable else None
    if replayed is None:
        return scored(model.run_traced(encoded)[0], call)
    traces, results = replayed
    for result in results:
        scorer.results.take(*result)
    return scorer.maps(traces)


def fits_whole(model: Model, encoded: Sequence[Encoded]) -> bool:
    """Whether a traced batch is on a GPU, which waits for Python at every layer, and so small that it may be kept whole."""
    if model.device.type != "cuda" or fast.is_off():
        return False
    tokens = len(encoded) * max(len(one.input_ids) for one in encoded)
    size = (
        8 * model.n_layers * tokens * model.hf_model.config.hidden_size * model.dtype.itemsize
    )  # eight tensors a layer
    return tokens <= TOKENS and size <= WHOLE


def scored(traces: Sequence[Trace], call: Call) -> list[dict[str, Map | HeadMaps]]:
    """All methods on all traces of a batch, layer by layer: one layer's decomposition serves every method."""
    first = traces[0]
    scorer = Scorer(call, len(traces), first.tokens, first.model)
    alone = len(traces) == 1 and first.model.device.type == "cpu"
    scorer.blocks = blocks = fast.shared_blocks(first) if alone else None
    try:
        for indices in _layers_at_once(first, call):
            scorer.score([layer_of(traces, index) for index in indices], indices.start)
    finally:
        if blocks is not None:
            blocks.end_call()
    return scorer.maps(traces)


def _layers_at_once(trace: Trace, call: Call) -> Iterator[range]:
    """Numbers of the layers that are scored as one; one after the other where every method asks for that, or without `fast`."""
    layers = trace.layers.batch if isinstance(trace.layers, LayersOf) else trace.layers
    alone = fast.is_off() or not any(entry.stacks or entry.whole for entry, _ in call.chosen.values())
    return neighbours(layers, 1 if alone else together_at_once(layers[0], len(layers)))


def layer_of(traces: Sequence[Trace], index: int) -> LayerTrace:
    """One layer of a batch of traces: cut from the batch that they were traced in, or put together."""
    if len(traces) > 1:
        return _layer_of_several(traces, index)
    layers = traces[0].layers
    if isinstance(layers, LayersOf) and _is_uncut(layers) and layers.batch[index].input.device.type != "cpu":
        return layers.batch[index]  # nothing to cut out
    return layers[index]


def _is_uncut(layers: LayersOf) -> bool:
    """Is the traced batch this one example, without padding?"""
    return layers.batch[0].input.shape[:2] == (1, layers.n)


def _layer_of_several(traces: Sequence[Trace], index: int) -> LayerTrace:
    batch = origin(traces[0])
    if batch is None:
        return stack([trace.layers[index] for trace in traces])
    rows = [trace.layers.row for trace in traces]  # type: ignore[attr-defined]
    return of_rows(batch[index], rows, max(map(len, traces)))


def batches(traces: Sequence[Trace]) -> Iterator[list[int]]:
    """Indices of traces that are scored as one: of one traced batch, or of one model and similar length."""
    batch: list[int] = []
    for i in sorted(range(len(traces)), key=lambda i: (id(traces[i].model), id(origin(traces[i])), len(traces[i]), i)):
        if batch and not belongs(traces[i], traces[batch[0]], len(batch)):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def belongs(trace: Trace, other: Trace, size: int) -> bool:
    """May a trace be scored with a batch of this size that begins with `other`?"""
    alike = other.model is trace.model and origin(other) is origin(trace)
    return alike and (size + 1) * len(trace) <= TOGETHER


def origin(trace: Trace) -> Any:
    """The traced batch a trace was cut from; traces of their own have none."""
    layers = trace.layers
    return layers.batch if isinstance(layers, LayersOf) and layers.batch[0].input.shape[0] > 1 else None


@contextmanager
def timed() -> Iterator[None]:
    """Within this block a GPU is waited for, so that `.info["seconds"]` says where the time went."""
    with setting(timing=True):
        yield


__all__ = [
    "METHODS",
    "Extras",
    "Map",
    "Method",
    "Scores",
    "fits_whole",
    "known",
    "method",
    "methods",
    "mix",
    "mixing",
    "provenance",
    "streamed",
    "timed",
    "versions",
]
