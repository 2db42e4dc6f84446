"""One forward pass becomes one `LayerTrace` per layer call: hooks on the modules, and a recorder that they write to.

Room for more: a layer whose keys are not its queries (cross-attention) would begin a record with a key stream beside its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from ..types import LayerTrace
from .attention import looks_ahead
from .parts import LayerParts, by_layer
from .passes import Hook, first, hidden_argument

FIELDS = frozenset(one.name for one in fields(LayerTrace))
Note = tuple[
    nn.Module, str, str, Callable[..., Any]
]  # a module, "before" or "after", the name of what is noted, the hook


class Recorder:
    """Collects one record per layer call, in the order of the calls (a shared layer is called several times)."""

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        attached: bool = False,
        chained: bool = False,
        change: Callable[[int, Tensor], Tensor] | None = None,
        each: Callable[[int, LayerTrace], None] | None = None,
        sizes: list[float] | None = None,
    ):
        self.shape = shape  # batch, positions
        self.sizes = sizes  # gets an upper bound of the largest logit of every layer
        self.each = each  # gets every layer when it is done; then its record is dropped
        self.causal = shape[1] > 1
        self.masks: dict[int, Any] = {}  # masks that do not look ahead; held, so that an id means one mask
        self.paused = False
        self.attached = attached  # keep the graph, for gradients
        self.chained = chained  # every layer must read what the one before it wrote
        self.written: Tensor | None = None  # by the last layer that ran
        self.change = change  # other attention weights for a layer: (layer, weights [batch head query key]) -> weights
        self.records: list[dict[str, Any]] = []

    def tensor(self, tensor: Tensor) -> Tensor:
        """The tensor as it is recorded: without its graph, unless graphs are recorded."""
        return tensor if self.attached or not tensor.requires_grad else tensor.detach()

    def begin(self, parts: LayerParts, x: Tensor) -> None:
        """A layer reads x, [batch pos d]."""
        if self.chained:
            _refuse_between(self.written, x, len(self.records))
        self.records.append({"parts": parts, "input": self.tensor(x)})

    def put(self, name: str, tensor: Tensor) -> None:
        """Note a tensor [batch pos .] of the layer that runs."""
        if not self.paused:
            record = self.records[-1]
            record[name] = self._with_batch(self.tensor(tensor), record.get(name))
            self.written = record[name] if name == "output" else self.written

    def _with_batch(self, tensor: Tensor, before: Tensor | None) -> Tensor:
        """The tensor as [batch pos .], behind the chunk of positions that was noted `before`."""
        if before is not None:  # a feed-forward computed in chunks of positions
            return torch.cat([before, tensor.reshape(self.shape[0], -1, tensor.shape[-1])], 1)
        if tensor.dim() == 2 and tensor.shape[0] == self.shape[0] * self.shape[1]:  # OPT flattens positions
            return tensor.reshape(*self.shape, -1)
        return tensor

    def put_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, softcap: float | None
    ) -> None:
        """Note what attention of the layer that runs reads: [batch head pos e]."""
        if self.sizes is not None:
            self.sizes.append(_size_of_logits(query, key, scaling, softcap))
        if self.records:
            tensors = {"query": self.tensor(query), "key": self.tensor(key), "value": self.tensor(value)}
            self.records[-1].update(tensors, mask=mask, scaling=scaling, softcap=softcap)

    def put_weights(self, weights: Tensor) -> Tensor:
        """The attention weights [batch head query key] of the layer that runs, changed by `change`; noted where graphs are."""
        if self.change is not None:
            weights = self.change(len(self.records) - 1, weights)
        if self.attached:
            self.records[-1]["weights"] = weights
        return weights

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """A layer is done, and its record is whole: hand it to `each`."""
        if self.each is None:
            return
        number = len(self.records) - 1
        layer = self.layer(number)
        self._look_ahead(layer)
        self.records[-1] = {}
        self.paused = True  # scoring calls the layer's modules again: these calls are not of the model's own pass
        try:
            self.each(number, layer)
        finally:
            self.paused = False

    def _look_ahead(self, layer: LayerTrace) -> None:
        """Note whether this layer looks ahead. Layers share their masks, so each mask is read once."""
        if self.causal and (layer.weights is not None or id(layer.mask) not in self.masks):
            self.causal = not looks_ahead(layer)
            self.masks[id(layer.mask)] = layer.mask

    def layers(self) -> list[LayerTrace]:
        """All layers of the pass; none where `each` got them."""
        return [self.layer(number) for number in range(len(self.records))] if self.each is None else []

    def layer(self, number: int) -> LayerTrace:
        """The record of one layer call as a LayerTrace."""
        record = self.records[number]
        if "value" not in record:
            raise ModelError(
                f"layer {number} never asked the attention registry of transformers, so its queries, keys and values "
                "were not seen. Its family entry must name the module that returns attention weights (`attention`)."
            )
        # accelerate moves a layer's input when the layer has begun, which is after the input was recorded.
        record["input"] = record["input"].to(record["output"].device)
        return LayerTrace(**{name: value for name, value in record.items() if name in FIELDS})


def _refuse_between(written: Tensor | None, x: Tensor, layer: int) -> None:
    """Refuse a layer that does not read what the layer before it wrote: maps of layers are multiplied as if it did."""
    if written is None or x is written or (x.data_ptr() == written.data_ptr() and x.shape == written.shape):
        return
    there = written.to(x.device, x.dtype)  # nothing is computed on the way, so the bits are the same
    if x.shape != there.shape or not torch.allclose(x, there, rtol=0, atol=0, equal_nan=True):
        raise ModelError(
            f"layer {layer + 1} does not read what layer {layer} wrote: something changes the stream between them, such as "
            "a hook before a layer. What flows through both layers would be wrong. Remove it, or hook the output of a layer."
        )


def _size_of_logits(query: Tensor, key: Tensor, scaling: float, softcap: float | None) -> float:
    """An upper bound of the largest logit of a layer."""
    size = float(query.float().norm(dim=-1).max() * key.float().norm(dim=-1).max()) * scaling
    return size if softcap is None else min(size, 2 * softcap)


def record_hooks(
    parts: Sequence[LayerParts], recorder: Recorder, configs: Sequence[Any], *, watch: bool = False, begin: bool = True
) -> list[Hook]:
    """The hooks by which `recorder` follows a pass. `watch` also notes what the proof compares.

    Without `begin` the caller begins every layer's record by a hook of its own. A hook notes something of the layer that runs, so
    a module that several layers share needs each hook once.
    """
    distinct: dict[tuple[int, str, str], Hook] = {}
    for one in parts:
        for module, when, name, hook in _notes(one, recorder, configs, watch=watch, begin=begin):
            distinct.setdefault((id(module), when, name), (module, when, hook))
    return [*distinct.values(), *_leave_hooks(parts, recorder)]


def _notes(parts: LayerParts, recorder: Recorder, configs: Sequence[Any], *, watch: bool, begin: bool) -> list[Note]:
    """What is noted of one layer."""
    return [
        *(_begin_notes(parts, recorder) if begin else ()),
        *_output_notes(parts, recorder),
        *(_proof_notes(parts, recorder) if watch else ()),
        *(_weight_notes(parts, recorder, configs) if parts.attention is not None else ()),
    ]


def _leave_hooks(parts: Sequence[LayerParts], recorder: Recorder) -> list[Hook]:
    """The hooks that hand out each layer when it is done, where somebody gets it."""
    return [] if recorder.each is None else [(one.layer, "after", recorder.leave) for one in by_layer(parts).values()]


def _begin_notes(parts: LayerParts, recorder: Recorder) -> list[Note]:
    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        recorder.begin(parts, hidden_argument(args, kwargs))

    return [(parts.layer, "before", "begin", begin)]


def _output_notes(parts: LayerParts, recorder: Recorder) -> list[Note]:
    modules: dict[str, nn.Module | None] = {
        "attention_output": parts.output,
        "mlp_output": parts.mlp_down,
        "output": parts.layer,
        "middle": parts.norm_after_attention,
    }
    return [_output_note(module, name, recorder) for name, module in modules.items() if module is not None]


def _proof_notes(parts: LayerParts, recorder: Recorder) -> list[Note]:
    return [
        _input_note(parts.value, "attention_input", recorder),
        _output_note(parts.value, "value_seen", recorder),
        _input_note(parts.mlp_up, "mlp_input", recorder),
    ]


def _output_note(module: nn.Module, name: str, recorder: Recorder) -> Note:
    return module, "after", name, lambda module, args, output: recorder.put(name, first(output))


def _input_note(module: nn.Module, name: str, recorder: Recorder) -> Note:
    return module, "before", name, lambda module, args, kwargs: recorder.put(name, args[0])


def _weight_notes(parts: LayerParts, recorder: Recorder, configs: Sequence[Any]) -> list[Note]:
    """For attention code of a family's own: its weights [batch head query key], and its values by head."""

    def note(module: nn.Module, args: Any, output: Any) -> None:
        weights = _weights_in(output, module, configs)
        value = recorder.records[-1].pop("value_output")
        shape = (*value.shape[:2], weights.shape[1], -1)
        recorder.records[-1] |= {"weights": recorder.tensor(weights), "value": value.view(shape).transpose(1, 2)}

    assert parts.attention is not None
    return [_output_note(parts.value, "value_output", recorder), (parts.attention, "after", "weights", note)]


def _weights_in(output: Any, module: nn.Module, configs: Sequence[Any]) -> Tensor:
    """The attention weights, which a module of a family's own puts out second; refused where it does not."""
    weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
    if not isinstance(weights, Tensor):
        raise ModelError(_no_weights(module, configs))
    return weights


def _no_weights(module: nn.Module, configs: Sequence[Any]) -> str:
    eager = all(config._attn_implementation == "eager" for config in configs)
    return f"{type(module).__name__} returned no attention weights, " + (
        "although it runs with attn_implementation='eager': its code keeps them, so mixlens cannot read it."
        if eager
        else "because it runs with another attention. Load it with attn_implementation='eager'."
    )
