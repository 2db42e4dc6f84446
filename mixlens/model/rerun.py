"""The model run again with something changed: one function per question, each a list of hooks for `runner.run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.doors import door
from ..base.errors import InputError
from ..base.rounding import gap
from ..types import Trace
from .attention import attention_of, repeat_heads
from .encode import Encoded
from .offload import place_of
from .parts import by_layer
from .passes import Hook, first, hidden_argument, with_hidden
from .record import Recorder, record_hooks
from .rows import Around, Rows, compare_put_out, compare_written
from .seam import Done, run

if TYPE_CHECKING:
    from .model import Model


@dataclass(frozen=True)
class Attached:
    """One forward pass with its graph, for gradients. All tensors have a batch axis."""

    output: Any  # what the stock model returned
    word: Tensor  # word embeddings, [batch pos d]
    summed: (
        Tensor  # what the embedding norm reads: word, position and segment added; without one, the first layer's input
    )
    inputs: tuple[Tensor, ...]  # of each layer
    outputs: tuple[Tensor, ...]
    attention: tuple[Tensor, ...]  # [batch head query key]


@dataclass(frozen=True)
class LayerGraph:
    """One layer of a forward pass, with its graph. Batch axis of one: [1 pos d] and [1 head pos e]."""

    input: Tensor  # x, where the graph begins
    read: Tensor  # what attention read: x, or the norm before attention of x
    query: Tensor | None  # after position rotation; None where the model's own code keeps them
    key: Tensor | None
    value: Tensor
    output: Tensor


def on_layers(model: Model, when: str, hook: Callable[..., Any]) -> list[Hook]:
    """One hook on every layer, "before" or "after" it; layers that are one module get it once."""
    return [(parts.layer, when, hook) for parts in by_layer(model.parts).values()]


# --- one layer again --------------------------------------------------------------------------------------------------


@door
def refuse_layer(model: Model, layer: int) -> None:
    """Refuse the number of a layer that the model does not have."""
    if not 0 <= layer < model.n_layers:
        raise InputError(
            f"layer {layer} does not exist; {model.name!r} has {model.n_layers} layers, 0 to {model.n_layers - 1}."
        )


def rerun(model: Model, trace: Trace, layer: int, place: str, replacement: Tensor) -> Tensor:
    """The output [pos, d] of layer `layer` when its module `place` ("layer", "output") reads `replacement`."""
    refuse_layer(model, layer)
    calls = 0
    outputs: list[Tensor] = []

    def count(module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal calls
        calls += 1

    def swap(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if calls != layer + 1:
            return None
        hidden = hidden_argument(args, kwargs)  # [1 pos d], or [pos d]
        if replacement.numel() != hidden.numel():
            shapes = f"x has the shape {list(replacement.shape)}, and the layer reads {list(hidden.shape[1:])}."
            raise InputError(shapes)
        return with_hidden(args, kwargs, replacement.to(device=model.device, dtype=model.dtype).reshape(hidden.shape))

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        if calls == layer + 1:
            outputs.append(first(output)[0])
            raise Done

    def entries() -> list[Hook]:
        swaps: list[Hook] = [(getattr(parts, place), "before", swap) for parts in by_layer(model.parts).values()]
        return on_layers(model, "before", count) + swaps + on_layers(model, "after", stop)

    run(model, model.inputs([trace]), entries)
    return outputs[0]


@door
def run_with_attention(model: Model, trace: Trace, layer: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Layer `layer` run again with `change(A)` in place of its attention weights A [head query key]: what it puts out.

    sum_j change(A)_ij v_j is made here and handed to the model's own W_O, so that it works for every family.
    """
    refuse_layer(model, layer)
    traced = trace.layers[layer]
    weights = change(attention_of(traced))
    context = weights @ repeat_heads(traced.value.to(weights.dtype), weights.shape[-3])  # [head query e]
    return rerun(model, trace, layer, "output", context.transpose(-3, -2).flatten(-2))


# --- all layers, with their graphs ------------------------------------------------------------------------------------


def beginning(x: Tensor) -> Tensor:
    """x without its past, where a graph begins. It is no leaf: torch's counters of operations do not let a module read
    one."""
    return x.detach().requires_grad_().view_as(x)


@door
def local_graphs(model: Model, trace: Trace) -> list[LayerGraph]:
    """One forward pass that keeps each layer's graph from its input to its queries, keys, values and output.

    Every layer reads a copy of its input that has no past: a gradient stays inside its layer.
    """
    recorder = Recorder((1, len(trace)), attached=True)
    read: list[Tensor] = []

    def cut(module: nn.Module, args: Any, kwargs: Any) -> Any:
        parts = by_layer(model.parts)[id(module)]
        x = beginning(hidden_argument(args, kwargs).to(place_of(parts.output)))
        recorder.begin(parts, x)
        read.append(x)
        return with_hidden(args, kwargs, x)

    def normed(module: nn.Module, args: Any, output: Tensor) -> None:
        read[-1] = output

    def entries() -> list[Hook]:
        norms = [parts.norm_before_attention for parts in model.parts]
        return [
            *on_layers(model, "before", cut),
            *record_hooks(model.parts, recorder, model.configs, begin=False),
            *((norm, "after", normed) for norm in norms if norm is not None),
        ]

    run(model, model.inputs([trace]), entries, recorder=recorder, gradients=True)
    return [
        LayerGraph(record["input"], h, *(record.get(name) for name in ("query", "key", "value", "output")))  # type: ignore[arg-type]
        for record, h in zip(recorder.records, read, strict=True)
    ]


def run_attached(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    place: str | int = "word",
    value: Tensor | None = None,
    change: Callable[[int, Tensor], Tensor] | None = None,
    compare: bool = True,
) -> Attached:
    """The stock model with its graph kept. `value` replaces what stands at `place`: the word embeddings ("word"), what
    the embedding norm reads ("sum"), or the input of layer number `place`. `change` replaces attention weights. With
    `compare` the first and the last row of a batch must be what they are alone."""
    rows = Rows(model, len(inputs["input_ids"]) if compare else 0)
    run = _run_attached(model, inputs, place, value, change, rows.noting)

    def alone(row: int, around: Around) -> Any:
        mask = inputs.get("attention_mask", inputs["input_ids"])[row]
        n = len(mask) if "attention_mask" not in inputs else int(mask.nonzero().max()) + 1  # without the padding behind
        own = {key: one[row : row + 1, :n] if isinstance(one, Tensor) else one for key, one in inputs.items()}
        replaced = None if value is None else value.detach()[row : row + 1, :n]
        return _run_attached(model, own, place, replaced, change, around).output

    rows.compare(run.output, alone)
    return run


def compare_rows(model: Model, run: Attached, alone: Sequence[Attached]) -> None:
    """Refuse a batch whose rows are not what earlier passes of each row alone gave: what the last layer wrote, and the
    outputs. The rounding errors of all layers add up, as independent ones do."""
    rows, layers = Rows(model, len(alone)), len(model.parts)
    for row, one in enumerate(alone):
        whole, own = run.outputs[-1].detach()[row : row + 1], one.outputs[-1].detach()
        rows.refuse(gap(own, whole), own, f"what the last layer writes of {rows.name(row)}", layers=layers)
        rows.compare_heads(run.output, one.output, row, layers=layers)


def _run_attached(
    model: Model,
    inputs: Mapping[str, Any],
    place: str | int,
    value: Tensor | None,
    change: Callable[[int, Tensor], Tensor] | None,
    around: Around,
) -> Attached:
    recorder = Recorder(tuple(inputs["input_ids"].shape), attached=True, change=change)
    embeddings: dict[str, Tensor] = {}
    replaced = {} if value is None else {place: value}

    def enter_word(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if "word" in embeddings:
            return None
        word = replaced.get("word", output.detach())
        embeddings["word"] = word if word.requires_grad else word.requires_grad_()
        return embeddings["word"]

    def enter_norm(module: nn.Module, args: Any, kwargs: Any) -> Any:
        embeddings["sum"] = replaced.get("sum", args[0])
        return (embeddings["sum"], *args[1:]), kwargs

    def enter_layer(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = replaced.get(len(recorder.records), hidden_argument(args, kwargs))
        recorder.begin(by_layer(model.parts)[id(module)], x)
        return with_hidden(args, kwargs, x)

    def entries() -> list[Hook]:
        norm = model.embedding_norm
        return [
            (model.hf_model.get_input_embeddings(), "after", enter_word),
            *([] if norm is None else [(norm, "before", enter_norm)]),
            *on_layers(model, "before", enter_layer),
            *record_hooks(model.parts, recorder, model.configs, begin=False),
        ]

    output = run(model, inputs, around(entries), recorder=recorder, gradients=True)
    records = recorder.records
    return Attached(
        output=output,
        word=embeddings["word"],
        summed=embeddings.get("sum", records[0]["input"]),
        inputs=tuple(record["input"] for record in records),
        outputs=tuple(record["output"] for record in records),
        attention=tuple(record["weights"] for record in records),
    )


# --- from the embeddings on -------------------------------------------------------------------------------------------


@door
def run_from(
    model: Model,
    trace: Trace,
    change: Callable[[Tensor], Tensor],
    each: Callable[[int, Tensor], None],
    *,
    after: bool,
    copies: int = 1,
    compare: bool = True,
) -> None:
    """Run the model on `copies` of this input with `change(x)` in place of the embeddings x [copy pos d], and hand
    every layer's number and output [copy pos d] to `each`, as it comes. Differentiable, in either direction.

    x is what the embedding norm reads; without one, or if `after`, what the first layer reads. `change` gives all
    copies the same values, with a tangent of its own each: every layer must write the same of all copies. With
    `compare` the first and the last copy must be what they are alone.
    """
    rows = Rows(model, copies if compare else 0)

    def each_compared(layer: int, output: Tensor) -> None:
        values = output.detach()  # without its tangents
        rows.refuse_unequal(values, layer)
        compare_written(trace, layer, values[0])
        each(layer, output)

    _run_from(model, [trace] * copies, change, each_compared, after, rows.noting)

    def alone(row: int, around: Around) -> None:
        def change_one(x: Tensor) -> Tensor:
            return change(x.repeat(copies, 1, 1))[row : row + 1]

        _run_from(model, [trace], change_one, lambda layer, output: None, after, around)

    rows.compare(None, alone)


def _run_from(
    model: Model,
    traces: Sequence[Trace],
    change: Callable[[Tensor], Tensor],
    each: Callable[[int, Tensor], None],
    after: bool,
    around: Around,
) -> None:
    recorder = Recorder((len(traces), len(traces[0])), attached=True)
    entered = False

    def swap(module: nn.Module, args: Any, kwargs: Any) -> Any:
        nonlocal entered
        if entered:
            return None
        entered = True
        return with_hidden(args, kwargs, change(hidden_argument(args, kwargs)))

    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        recorder.begin(by_layer(model.parts)[id(module)], hidden_argument(args, kwargs))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        each(len(recorder.records) - 1, first(output))
        recorder.records[-1] = {}  # nothing is held but what `each` holds
        if len(recorder.records) == model.n_layers:
            raise Done

    def entries() -> list[Hook]:
        norm = model.embedding_norm
        swaps: list[Hook] = on_layers(model, "before", swap) if norm is None or after else [(norm, "before", swap)]
        return swaps + on_layers(model, "before", begin) + on_layers(model, "after", leave)

    run(model, model.inputs(traces), around(entries), recorder=recorder, gradients=torch.is_grad_enabled())


@door
def embedded(
    model: Model, encoded: Encoded | Trace, *, factor: float, instead: Tensor | None = None
) -> tuple[Tensor | None, Tensor]:
    """What the embedding norm reads, and what the first layer reads, were every embedding `factor` times as long.

    Without a norm the first is the second; it is None where the norm is not called before the first layer. `instead`
    takes the place of what the norm reads.
    """
    norm = model.embedding_norm
    reads: list[Tensor] = []

    def catch(module: nn.Module, args: Any, kwargs: Any) -> Any:
        reads.append(hidden_argument(args, kwargs))
        return None if instead is None else ((instead, *args[1:]), kwargs)

    def stop(module: nn.Module, args: Any, kwargs: Any) -> None:
        reads.append(hidden_argument(args, kwargs))
        raise Done

    def scale(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output * factor

    def entries() -> list[Hook]:
        tables = [module for module in model.hf_model.base_model.modules() if isinstance(module, nn.Embedding)]
        scales: list[Hook] = [(table, "after", scale) for table in tables]
        return scales + ([] if norm is None else [(norm, "before", catch)]) + [(model.parts[0].layer, "before", stop)]

    run(model, model.inputs([encoded]), entries)
    return reads[0] if norm is None or len(reads) > 1 else None, reads[-1]


# --- the head ---------------------------------------------------------------------------------------------------------


@door
def outputs(model: Model, encoded: Sequence[Encoded | Trace], *, compare: bool = True) -> Any:
    """What the stock model returns for a batch, without recording anything. With `compare` its first and its last row
    must be what they are alone. A text that was traced must be answered as it was then."""
    rows = Rows(model, len(encoded) if compare else 0)
    output = run(model, model.inputs(encoded), rows.noting())
    rows.compare(output, lambda row, around: run(model, model.inputs([encoded[row]]), around(tuple)))
    for row, one in enumerate(encoded):
        if isinstance(one, Trace):
            compare_put_out(one, output, row)
    return output


@door
def changed_logits(model: Model, encoded: Encoded, places: Sequence[int]) -> Tensor:
    """The head's logits for one input whose last layer puts out other vectors (twice as long, plus 1) at these
    places."""
    calls = 0

    def change(module: nn.Module, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < model.n_layers:
            return None
        h = first(output).clone()
        h[:, list(places)] = h[:, list(places)].roll(1, -1) * 2 + 1
        return (h, *output[1:]) if isinstance(output, tuple) else h

    return run(model, model.inputs([encoded]), lambda: on_layers(model, "after", change)).logits
