"""What is scored as one: several traces as a batch, several layers as one block. Without `fast` each is scored alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..base.budget import tile_elements
from ..model.offload import is_away, is_packed
from ..types import POSITIONS, LayerTrace, tensors_of


def neighbours(layers: Sequence[LayerTrace], most: int) -> Iterator[range]:
    """Layers to score at once, `most` at a time: of one device, and their weights on it as they are. Others one by one."""
    places = [None] * len(layers) if most == 1 else list(map(_place, layers))
    start = 0
    for end, following in enumerate([*places[1:], None], 1):
        if end - start == most or places[start] is None or places[start] != following:
            yield range(start, end)
            start = end


def _place(layer: LayerTrace) -> torch.device | None:
    """The device on which a layer may be scored together with others; None where it is scored alone."""
    output, device = layer.parts.output, layer.output.device
    return None if device.type == "cpu" or is_away(output) or is_packed(output) else device


def together_at_once(layer: LayerTrace, depth: int) -> int:
    """How many layers to score at once. A GPU is kept waiting by the number of operations, a CPU by the size of its cache."""
    if layer.input.device.type == "cpu":
        return 1
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    tokens, (n, width) = layer.input[..., 0].numel(), layer.input.shape[-2:]
    return max(1, min(depth, tile_elements(layer.input.device, 2) // (heads * tokens * max(n, width))))


# --- several examples of one traced batch -----------------------------------------------------------------------------


def of_rows(layer: LayerTrace, rows: list[int], n: int) -> LayerTrace:
    """Some examples of a traced batch, to the longest of them."""
    several = _neighbouring(rows)
    tensors = {name: whole[several] if whole.shape[0] > 1 else whole for name, whole in tensors_of(layer).items()}
    cut = {name: one[..., :n, :] if name in POSITIONS else one[..., :n, :n] for name, one in tensors.items()}
    return replace(layer, **cut)


def _neighbouring(rows: list[int]) -> Any:
    """Numbers of rows; a slice where they are neighbours, which copies nothing."""
    every = range(rows[0], rows[-1] + 1)
    return slice(every.start, every.stop) if rows == list(every) else rows


# --- several traces put together --------------------------------------------------------------------------------------


def stack(layers: Sequence[LayerTrace]) -> LayerTrace:
    """One layer of several traces as a batch. A padded query is a copy of the last real one; no one looks at a padded key."""
    n = max(layer.input.shape[-2] for layer in layers)
    names = [name for name in tensors_of(layers[0]) if name in POSITIONS]
    whole: dict[str, Any] = {name: torch.stack([_rows(getattr(layer, name), n) for layer in layers]) for name in names}
    return replace(layers[0], **whole, **_stacked_pairs(layers, n))


def _stacked_pairs(layers: Sequence[LayerTrace], n: int) -> dict[str, Any]:
    """The attention weights of several traces as one tensor; where layers have none, their masks."""
    if layers[0].weights is not None:
        return {"weights": torch.stack([_padded_weights(layer, n) for layer in layers])}
    return {"mask": torch.stack([_padded_mask(layer, n) for layer in layers])}


def _rows(tensor: Tensor, n: int) -> Tensor:
    """[... pos .] with its last position repeated up to n."""
    missing = n - tensor.shape[-2]
    return torch.cat([tensor, tensor[..., -1:, :].expand(*tensor.shape[:-2], missing, -1)], -2) if missing else tensor


def _columns(tensor: Tensor, n: int, fill: float | bool) -> Tensor:
    """[... query key] with n keys, the new ones filled."""
    return torch.nn.functional.pad(tensor, (0, n - tensor.shape[-1]), value=fill)


def _padded_weights(layer: LayerTrace, n: int) -> Tensor:
    """Attention weights [head query key], none on keys that are padded."""
    return _columns(_rows(layer.weights, n), n, 0.0)  # type: ignore[arg-type]


def _padded_mask(layer: LayerTrace, n: int) -> Tensor:
    """A mask [1 or head, query, key] that hides the keys that are padded."""
    mask = _mask_of(layer)
    return _columns(_rows(mask, n), n, False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min)


def _mask_of(layer: LayerTrace) -> Tensor:
    """The mask of a layer, [1 or head, query, key]; one that hides nothing where the layer has none."""
    here = layer.input.shape[-2]
    if layer.mask is None:
        return torch.ones(1, here, here, dtype=torch.bool, device=layer.input.device)
    return layer.mask if layer.mask.dim() == 3 else layer.mask[None]
