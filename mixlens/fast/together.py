"""What is scored as one: several traces as a batch, several layers as one block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from ..budget import tile_elements
from ..model.offload import is_away, is_packed
from ..types import PAIRS, POSITIONS, LayerTrace
from .switch import is_off


def neighbours(layers: Sequence[LayerTrace], most: int) -> Iterator[range]:
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


def together_at_once(layer: LayerTrace, depth: int) -> int:
    """How many layers to score at once. A GPU is kept waiting by the number of operations, a CPU by the size of its cache."""
    if layer.input.device.type == "cpu" or is_off():
        return 1
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    tokens, (n, width) = layer.input[..., 0].numel(), layer.input.shape[-2:]
    return max(1, min(depth, tile_elements(layer.input.device, 2) // (heads * tokens * max(n, width))))


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
