"""What is scored as one: several traces as a batch, several layers as one block. Without `fast` each is scored
alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.budget import tile_elements
from ..model.offload import is_away, is_packed
from ..types import POSITIONS, LayersOf, LayerTrace, Trace, cut, tensors_of

TOGETHER = 8192  # tokens, with padding, that are scored as one batch


def batches(traces: Sequence[Trace], *, alone: bool) -> Iterator[list[int]]:
    """Indices of traces that are scored as one: of one traced batch, or of one model and similar length; or each
    `alone`."""
    batch: list[int] = []
    for i in sorted(range(len(traces)), key=lambda i: (id(traces[i].model), id(origin(traces[i])), len(traces[i]), i)):
        if batch:
            first = traces[batch[0]]
            alike = first.model is traces[i].model and origin(first) is origin(traces[i])
            if alone or not alike or (len(batch) + 1) * len(traces[i]) > TOGETHER:
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch


def origin(trace: Trace) -> Any:
    """The traced batch a trace was cut from; traces of their own have none."""
    layers = trace.layers
    return layers.batch if isinstance(layers, LayersOf) and layers.batch[0].input.shape[0] > 1 else None


# --- layers -----------------------------------------------------------------------------------------------------------


def neighbours(layers: Sequence[LayerTrace], most: int) -> Iterator[range]:
    """Layers to score as one block, `most` at a time: of one GPU, and their weights on it as they are. Others one by
    one."""

    def place(layer: LayerTrace) -> torch.device | None:
        output, device = layer.parts.output, layer.output.device
        return None if device.type == "cpu" or is_away(output) or is_packed(output) else device

    start = 0
    for end in range(1, len(layers) + 1):
        here = None if most == 1 or end == len(layers) else place(layers[start])
        if end == len(layers) or end - start == most or here is None or here != place(layers[end]):
            yield range(start, end)
            start = end


def together_at_once(layer: LayerTrace, depth: int) -> int:
    """How many layers to score at once. A GPU is kept waiting by the number of operations, a CPU by the size of its
    cache."""
    if layer.input.device.type == "cpu":
        return 1
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    tokens, (n, width) = layer.input[..., 0].numel(), layer.input.shape[-2:]
    return max(1, min(depth, tile_elements(layer.input.device, 2) // (heads * tokens * max(n, width))))


def layer_of(traces: Sequence[Trace], index: int) -> LayerTrace:
    """One layer of a batch of traces: cut from the batch that they were traced in, or put together."""
    layers, batch = traces[0].layers, origin(traces[0])
    if len(traces) == 1:
        if isinstance(layers, LayersOf):
            whole: LayerTrace = layers.batch[index]
            if whole.input.shape[:2] == (1, layers.n) and whole.input.device.type != "cpu":
                return whole  # nothing to cut out
        return layers[index]
    if batch is None:
        return stacked([trace.layers[index] for trace in traces])
    numbers, n = [trace.layers.row for trace in traces], max(map(len, traces))  # type: ignore[attr-defined]
    neighbours = numbers == list(range(numbers[0], numbers[-1] + 1))
    rows: Any = slice(numbers[0], numbers[-1] + 1) if neighbours else numbers  # a slice copies nothing
    return cut(batch[index], rows, n)


def stacked(layers: Sequence[LayerTrace]) -> LayerTrace:
    """One layer of several traces as a batch. A padded query is a copy of the last real one; no one looks at a padded
    key."""
    n = max(layer.input.shape[-2] for layer in layers)

    def rows(tensor: Tensor) -> Tensor:
        last = tensor[..., -1:, :]
        return torch.cat([tensor, last.expand(*tensor.shape[:-2], n - tensor.shape[-2], -1)], -2)

    def pairs(layer: LayerTrace) -> Tensor:
        """Attention weights or, where a layer has none, its mask, [1 or head, query, key]: padded keys are hidden."""
        here = layer.input.shape[-2]
        if layer.weights is not None:
            return pad(rows(layer.weights), (0, n - here))
        mask = layer.mask
        if mask is None:
            mask = torch.ones(here, here, dtype=torch.bool, device=layer.input.device)
        hidden = 0.0 if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
        return pad(rows(mask if mask.dim() == 3 else mask[None]), (0, n - here), value=hidden)

    names = [name for name in tensors_of(layers[0]) if name in POSITIONS]
    whole: dict[str, Any] = {name: torch.stack([rows(getattr(layer, name)) for layer in layers]) for name in names}
    whole["mask" if layers[0].weights is None else "weights"] = torch.stack(list(map(pairs, layers)))
    return replace(layers[0], **whole)
