"""The traced pass: a batch in, one `Trace` per example out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.errors import ModelError
from ..types import LayersOf, LayerTrace, Trace
from .attention import looks_ahead
from .encode import Encoded, unmasked_inputs
from .passes import Hook, plain_numbers
from .record import Recorder, record_hooks
from .rows import Around, Rows
from .seam import prove_foreign, run

if TYPE_CHECKING:
    from .model import Model

LOGITS = ("logits", "start_logits", "end_logits")
Each = Callable[[int, LayerTrace], None]


def by_batches(
    model: Model, *columns: Any, batch_size: int | None, compute: Callable[[Sequence[Encoded]], Sequence[Any]]
) -> Any:
    """`compute(batch)` gives one result per example; they come back in the order of the examples, or alone if there was
    one.
    `columns`: the arguments of `Model.encode_all`."""
    encoded, many = model.encode_all(*columns)
    results: dict[int, Any] = {}
    for batch in model.batches(encoded, batch_size):
        results |= zip(batch, compute([encoded[i] for i in batch]), strict=True)
    return list(map(results.__getitem__, range(len(encoded)))) if many else results[0]


def run_traced(
    model: Model, encoded: Sequence[Encoded], *, watch: bool = False, each: Each | None = None, compare: bool = True
) -> tuple[list[Trace], list[dict[str, Any]]]:
    """The traces of one batch, and the records that they were made of. `watch` also records what the proof compares.
    `compare`:
    the first and the last row of a batch must be what they are alone; a replayed pass was compared when it was run.

    `each` gets every layer's number and record as soon as it is there; then it is dropped, and the traces have no
    layers.
    """
    started = time.perf_counter()
    inputs = unmasked_inputs(model, encoded)
    recorder = Recorder(tuple(inputs["input_ids"].shape), each=each, chained=True)
    with model.lock, plain_numbers(), torch.no_grad():
        replayed = None
        if inputs["input_ids"].is_cuda and each is None and not watch:
            replayed = model.graphs.passed(model.hf_model, inputs, lambda tensors: _recorded(model, tensors, recorder))
        rows = Rows(model, len(encoded) if compare and replayed is None else 0)
        output, recorder.records = replayed or _recorded(model, inputs, recorder, watch=watch, around=rows.noting)
        rows.compare(output, lambda row, around: run(model, unmasked_inputs(model, [encoded[row]]), around(tuple)))
    layers, count = recorder.layers(), len(recorder.records)
    if count != model.n_layers:
        raise ModelError(
            f"{count} layers were seen at {model.family.layers!r}, the configuration says {model.n_layers}. "
            f"The family entry {model.family.name!r} names the wrong layers."
        )
    causal = {} if each is None else {"causal": recorder.causal}
    traces = _slices(model, encoded, layers, output, started, recorder.shape, dtype=model.dtype, **causal)
    return traces, recorder.records


def run_replayed(
    model: Model, encoded: Sequence[Encoded], key: object, compute: Callable[[Sequence[LayerTrace]], Any]
) -> tuple[list[Trace], Any] | None:
    """A pass and `compute(its layers)`, on a GPU, replayed as one: the traces without layers, and what was computed.

    None where it is to be done in the ordinary way: the first times, and where it cannot be captured. `key`: all that
    `compute` depends on besides the model and the layers.
    """
    started = time.perf_counter()
    inputs = unmasked_inputs(model, encoded)
    shape, causal = tuple(inputs["input_ids"].shape), False

    def record_and_compute(tensors: dict[str, Any]) -> tuple[Any, Any, bool]:
        nonlocal causal
        recorder = Recorder(
            shape, chained=not torch.cuda.is_current_stream_capturing()
        )  # numbers cannot be compared meanwhile
        output, _ = _recorded(model, tensors, recorder)
        layers = recorder.layers()
        if not torch.cuda.is_current_stream_capturing():  # it is always run once before it is captured
            by_mask = {id(layer.mask): layer for layer in layers}  # layers share their masks, so each mask is read once
            causal = shape[1] > 1 and not any(map(looks_ahead, by_mask.values()))
        return output, compute(layers), causal

    with model.lock, plain_numbers(), torch.no_grad():
        replayed = model.graphs.passed(model.hf_model, inputs, record_and_compute, what=key, parts=model.parts)
    if replayed is None:
        return None
    output, computed, causal = replayed
    return _slices(model, encoded, [], output, started, shape, causal=causal), computed


def _recorded(
    model: Model, inputs: Mapping[str, Any], recorder: Recorder, *, watch: bool = False, around: Around | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One pass that `recorder` follows: the logits, and the records."""
    recorder.records.clear()
    recorder.written = None
    prove_foreign(model, inputs)

    def entries() -> list[Hook]:
        return record_hooks(model.parts, recorder, model.configs, watch=watch)

    output = run(model, inputs, entries if around is None else around(entries), recorder=recorder)
    return {name: getattr(output, name, None) for name in LOGITS}, recorder.records[:]


def _slices(
    model: Model,
    encoded: Sequence[Encoded],
    layers: Sequence[LayerTrace],
    output: Mapping[str, Any],
    started: float,
    shape: Sequence[int],
    **facts: Any,
) -> list[Trace]:
    """The traces of a batch, one for each example, padding cut off."""
    info = {"forward_seconds": time.perf_counter() - started, "batch": shape[0], "padded_to": shape[1], **facts}
    traces = []
    for row, one in enumerate(encoded):
        logits, predicts = _logits_of(model, one, row, output)
        traces.append(
            Trace(
                model=model,
                tokens=one.tokens,
                input_ids=one.input_ids,
                attention_mask=one.attention_mask,
                token_type_ids=one.token_type_ids,
                layers=LayersOf(layers, row, len(one.input_ids)),
                special=one.special,
                words=one.words,
                text=one.text,
                pair=one.pair,
                logits=logits,
                predicts=predicts,
                info=info,
            )
        )
    return traces


def _logits_of(
    model: Model, one: Encoded, row: int, output: Mapping[str, Any]
) -> tuple[Tensor | None, tuple[int, ...]]:
    """The logits that a prediction needs, and their positions: not a vocabulary for every token."""
    n = len(one.input_ids)
    if model.task == "question-answering":
        return torch.stack([output["start_logits"][row, :n], output["end_logits"][row, :n]], -1), tuple(range(n))
    if output["logits"] is None:
        return None, ()
    if model.task == "classification":
        return output["logits"][row], ()
    if model.task == "token-classification":
        return output["logits"][row, :n], tuple(range(n))
    if model.task == "causal-lm":  # behind the last token
        places = [n - 1]
    else:
        places = [place for place, token in enumerate(one.input_ids) if token == model.mask_id]
    return output["logits"][row, places], tuple(places)
