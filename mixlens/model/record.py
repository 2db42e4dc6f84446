"""One forward pass becomes one `LayerTrace` per layer call: hooks on the modules, and a recorder that they write to.

Room for more: a layer whose keys are not its queries (cross-attention) would begin a record with a key stream beside
its input.
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
        written, layer = self.written, len(self.records)
        if self.chained and written is not None and x is not written:
            same = x.data_ptr() == written.data_ptr() and x.shape == written.shape
            there = written.to(x.device, x.dtype)  # nothing is computed on the way, so the bits are the same
            if not same and (x.shape != there.shape or not torch.allclose(x, there, rtol=0, atol=0, equal_nan=True)):
                raise ModelError(  # maps of layers are multiplied as if it did
                    f"layer {layer + 1} does not read what layer {layer} wrote: something changes the stream between "
                    f"them, "
                    "such as a hook before a layer. What flows through both layers would be wrong. Remove it, or hook "
                    "the "
                    "output of a layer."
                )
        self.records.append({"parts": parts, "input": self.tensor(x)})

    def put(self, name: str, tensor: Tensor) -> None:
        """Note a tensor [batch pos .] of the layer that runs, behind a chunk of positions that was noted before."""
        if self.paused:
            return
        record, tensor, width = self.records[-1], self.tensor(tensor), tensor.shape[-1]
        if name in record:  # a feed-forward computed in chunks of positions
            tensor = torch.cat([record[name], tensor.reshape(self.shape[0], -1, width)], 1)
        elif tensor.dim() == 2 and tensor.shape[0] == self.shape[0] * self.shape[1]:  # OPT flattens positions
            tensor = tensor.reshape(*self.shape, -1)
        record[name] = tensor
        if name == "output":
            self.written = tensor

    def put_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, softcap: float | None
    ) -> None:
        """Note what attention of the layer that runs reads: [batch head pos e]."""
        if self.sizes is not None:
            size = float(query.float().norm(dim=-1).max() * key.float().norm(dim=-1).max()) * scaling
            self.sizes.append(size if softcap is None else min(size, 2 * softcap))
        if self.records:
            tensors = {"query": self.tensor(query), "key": self.tensor(key), "value": self.tensor(value)}
            self.records[-1].update(tensors, mask=mask, scaling=scaling, softcap=softcap)

    def put_weights(self, weights: Tensor) -> Tensor:
        """The attention weights [batch head query key] of the layer that runs, changed by `change`; noted where graphs
        are."""
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
        if self.causal and (layer.weights is not None or id(layer.mask) not in self.masks):  # layers share their masks
            self.causal = not looks_ahead(layer)
            self.masks[id(layer.mask)] = layer.mask
        self.records[-1] = {}
        self.paused = True  # scoring calls the layer's modules again: these calls are not of the model's own pass
        try:
            self.each(number, layer)
        finally:
            self.paused = False

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


def record_hooks(
    parts: Sequence[LayerParts], recorder: Recorder, configs: Sequence[Any], *, watch: bool = False, begin: bool = True
) -> list[Hook]:
    """The hooks by which `recorder` follows a pass. `watch` also notes what the proof compares.

    Without `begin` the caller begins every layer's record by a hook of its own. A hook notes something of the layer
    that runs, so a module that several layers share needs each hook once.
    """
    distinct: dict[tuple[int, str, str], Hook] = {}

    def note(module: nn.Module | None, when: str, name: str, hook: Callable[..., Any]) -> None:
        if module is not None:
            distinct.setdefault((id(module), when, name), (module, when, hook))

    def note_output(module: nn.Module | None, name: str) -> None:
        note(module, "after", name, lambda module, args, output: recorder.put(name, first(output)))

    def note_input(module: nn.Module, name: str) -> None:
        note(module, "before", name, lambda module, args, kwargs: recorder.put(name, args[0]))

    def put_weights(module: nn.Module, args: Any, output: Any) -> None:
        """Of attention code of a family's own: its weights [batch head query key], and its values by head."""
        weights = _weights_in(output, module, configs)
        value = recorder.records[-1].pop("value_output")
        shape = (*value.shape[:2], weights.shape[1], -1)
        recorder.records[-1] |= {"weights": recorder.tensor(weights), "value": value.view(shape).transpose(1, 2)}

    for one in parts:
        if begin:
            note(
                one.layer,
                "before",
                "begin",
                lambda module, args, kwargs, one=one: recorder.begin(one, hidden_argument(args, kwargs)),
            )
        note_output(one.output, "attention_output")
        note_output(one.mlp_down, "mlp_output")
        note_output(one.layer, "output")
        note_output(one.norm_after_attention, "middle")
        if watch:
            note_input(one.value, "attention_input")
            note_output(one.value, "value_seen")
            note_input(one.mlp_up, "mlp_input")
        if one.attention is not None:
            note_output(one.value, "value_output")
            note(one.attention, "after", "weights", put_weights)
    for layer in by_layer(parts).values() if recorder.each is not None else ():
        note(layer.layer, "after", "leave", recorder.leave)
    return list(distinct.values())


def _weights_in(output: Any, module: nn.Module, configs: Sequence[Any]) -> Tensor:
    """The attention weights, which a module of a family's own puts out second; refused where it does not."""
    if isinstance(output, tuple) and len(output) > 1 and isinstance(output[1], Tensor):
        return output[1]
    eager = all(config._attn_implementation == "eager" for config in configs)
    raise ModelError(
        f"{type(module).__name__} returned no attention weights, "
        + (
            "although it runs with attn_implementation='eager': its code keeps them, so mixlens cannot read it."
            if eager
            else "because it runs with another attention. Load it with attn_implementation='eager'."
        )
    )
