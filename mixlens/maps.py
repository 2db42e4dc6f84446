"""`mix`: Trace -> Map. Every layer's decomposition serves all methods of a call, and is proven against the model on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import fast
from .budget import setting
from .errors import InputError
from .fast.cuda_graphs import TOKENS
from .fast.together import neighbours, of_rows, stack, together_at_once
from .methods._mixing import METHODS, Extras, Method, Scores, known, method, mixing
from .model.encode import Encoded
from .model.model import Model
from .provenance import provenance, versions
from .scoring import Call, Scorer, fresh
from .types import LayersOf, LayerTrace, Map, Trace

WHOLE = 1 << 28  # bytes of a trace that is not worth releasing layer by layer
TOGETHER = 8192  # tokens, with padding, that are scored as one batch


def methods() -> list[str]:
    """Every method there is: maps (for `mix`), then attributions to a prediction (for `attribute`)."""
    from .methods._attribution import known as attributions

    return [*known(), *attributions()]


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
    for trace in every:
        refuse_other(trace)
    maps: dict[int, dict[str, Map]] = {}
    for batch in [[i] for i in range(len(every))] if call.query is not None else batches(every):
        together = [every[i] for i in batch]
        maps |= zip(batch, fresh(lambda: scored(together, call), together[0].model), strict=True)  # noqa: B023 - called at once
    results = [maps[i] if not isinstance(name, str) else maps[i][name] for i in range(len(every))]
    return results if many else results[0]


def refuse_other(trace: Any) -> None:
    """Refuse what is no trace, and a trace whose model has another number type now."""
    if not isinstance(trace, Trace):
        raise InputError("mix takes a Trace or a list of traces, as model.trace gives them.")
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
    needy = [one for one, (entry, _) in call.chosen.items() if entry.whole]
    if needy:
        raise InputError(f"{needy[0]!r} needs all layers at once: use mixlens.mix(model.trace(...), {needy[0]!r}).")
    if call.query is not None and len(encoded) > 1:
        return [streamed(model, [one], name, variant=variant, chunk=chunk, precision=precision, **options)[0] for one in encoded]
    results = fresh(lambda: scored_pass(model, encoded, call), model)
    return [one if not isinstance(name, str) else one[name] for one in results]


def scored_pass(model: Model, encoded: Sequence[Encoded], call: Call) -> list[dict[str, Map]]:
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
    if model.device.type != "cuda":
        return False
    tokens = len(encoded) * max(len(one.input_ids) for one in encoded)
    size = 8 * model.n_layers * tokens * model.hf_model.config.hidden_size * model.dtype.itemsize  # eight tensors a layer
    return tokens <= TOKENS and size <= WHOLE


def scored(traces: Sequence[Trace], call: Call) -> list[dict[str, Map]]:
    """All methods on all traces of a batch, layer by layer: one layer's decomposition serves every method."""
    first, depth = traces[0], len(traces[0].layers)
    scorer = Scorer(call, len(traces), first.tokens, first.model)
    if len(traces) == 1 and first.model.device.type == "cpu":
        scorer.blocks = fast.shared_blocks(first)
    whole = first.layers.batch if isinstance(first.layers, LayersOf) else first.layers
    blocks = scorer.blocks
    try:
        for indices in neighbours(whole, together_at_once(whole[0], depth)):
            scorer.score([layer_of(traces, index) for index in indices], indices.start)
    finally:
        if blocks is not None:
            blocks.end_call()
    return scorer.maps(traces)


def layer_of(traces: Sequence[Trace], index: int) -> LayerTrace:
    """One layer of a batch of traces: cut from the batch that they were traced in, or put together."""
    layers = traces[0].layers
    if len(traces) > 1:
        batch = origin(traces[0])
        if batch is None:
            return stack([trace.layers[index] for trace in traces])
        rows = [trace.layers.row for trace in traces]  # type: ignore[attr-defined]
        return of_rows(batch[index], rows, max(map(len, traces)))
    uncut = isinstance(layers, LayersOf) and layers.batch[0].input.shape[:2] == (1, layers.n)
    if uncut and traces[0].model.device.type != "cpu":
        return layers.batch[index]  # type: ignore[attr-defined]  # nothing to cut out
    return layers[index]


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
