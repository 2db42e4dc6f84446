"""Attention itself, the baseline of all five papers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..layer import Block
from ._mixing import mixing

ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"


def of_head(maps: Tensor, head: int | None) -> Tensor:
    """The map of one head, or the mean over heads, of [... head query key]."""
    if head is None:
        return maps.mean(-3)
    if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < maps.shape[-3]:
        raise InputError(f"head {head!r} does not exist: a layer has heads 0 to {maps.shape[-3] - 1}. None is their mean.")
    return maps[..., head, :, :]


@mixing(paper=ABNAR, rollout="abnar", stacks=True)
def attention(block: Block, *, head: int | None = None) -> Tensor:
    """W: attention weights, averaged over heads, or those of one `head`."""
    return of_head(block.attention, head)


@mixing(paper=ABNAR, rollout="globenc", stacks=True)
def attention_fixed_residual(block: Block) -> Tensor:
    """W_FIXEDRES = 0.5 W + 0.5 I: half of every token is its residual."""
    weights = attention(block)
    assert isinstance(weights, Tensor)
    return 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
