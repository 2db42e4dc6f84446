"""Attention weights as the model computes them, from its queries, keys, mask, scale and cap; and its values by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..base.rounding import working_dtype
from ..types import LayerTrace

if TYPE_CHECKING:
    from .parts import LayerParts


def attention_of(layer: LayerTrace) -> Tensor:
    """Attention of a traced layer, [... head query key]."""
    if layer.weights is not None:
        return layer.weights.to(working_dtype(layer.weights.dtype))
    assert layer.query is not None
    assert layer.key is not None
    return attention_weights(layer.query, layer.key, layer.mask, scaling=layer.scaling, softcap=layer.softcap)


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
    rooms: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """softmax(scaling q k^T), capped where the model caps, under its mask. A row that may look nowhere is zero.

    `rooms`: memory for the logits and for the weights.
    """
    dtype = working_dtype(query.dtype)
    room, weights = rooms or (None, None)
    query, key = query.to(dtype), repeat_heads(key.to(dtype), query.shape[-3])
    # With a graph in the order of the papers' code, whose rules of relevance depend on it; else over the smaller
    # tensor.
    logits = query @ key.mT * scaling if query.requires_grad else torch.matmul(query * scaling, key.mT, out=room)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is None or mask.dtype != torch.bool:
        return torch.softmax(logits if mask is None else logits + mask, -1, out=weights)
    somewhere = mask.any(-1, keepdim=True)  # a row that may look nowhere would be 0 / 0, and so would its gradient
    if weights is None:  # with a graph, so nothing in place
        return logits.masked_fill(~mask & somewhere, float("-inf")).softmax(-1) * somewhere
    return torch.softmax(logits.masked_fill_(~mask & somewhere, float("-inf")), -1, out=weights).mul_(somewhere)


def repeat_heads(grouped: Tensor, heads: int) -> Tensor:
    """[... key_head pos e] -> [... head pos e]: grouped-query attention shares each key head among several heads."""
    times = heads // grouped.shape[-3]
    return grouped if times == 1 else grouped.repeat_interleave(times, dim=-3)


def looks_ahead(layer: LayerTrace) -> bool:
    """May any position of this layer look at a later one, by its mask or its weights?"""
    if layer.weights is not None:
        return bool((layer.weights > 0).triu(1).any())
    if layer.mask is None:
        return True
    allowed = layer.mask if layer.mask.dtype == torch.bool else layer.mask > -1e30  # [... query key]
    return bool(allowed.triu(1).any())


def values_in(part: LayerParts, output: Tensor, value: Tensor) -> Tensor:
    """The values [key_head pos e] inside what the `value` module put out [pos, width], by the entry's layout.

    "heads": query, key and value of one head stand side by side, then those of the next head. "qkv": the queries of all
    heads stand first, then the keys, then the values. Else the module makes the values alone. Infinity, which equals no
    value, where the width does not fit the layout.
    """
    (heads, n, e), width = value.shape, output.shape[-1]
    if part.value_layout == "heads" and width == 3 * heads * e:
        return output.view(n, heads, 3 * e)[..., -e:].transpose(0, 1)
    fits = width > heads * e if part.value_layout == "qkv" else width == heads * e
    if part.value_layout == "heads" or not fits:
        return torch.full_like(value, float("inf"))
    return output[..., -heads * e :].view(n, heads, e).transpose(0, 1)
