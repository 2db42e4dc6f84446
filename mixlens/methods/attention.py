"""Attention itself, the baseline of all five papers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base.errors import InputError
from ..layer import Block
from ..scoring.registry import ALL, mixing

ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"


def of_head(maps: Tensor, head: int | str | None) -> Tensor:
    """Of [... head query key] the map of one head, the mean over heads, or with "all" every head."""
    if head is None:
        return maps.mean(-3)
    if head == ALL:
        return maps
    return maps[..., checked_head(head, maps.shape[-3]), :, :]


def checked_head(head: int | str, heads: int) -> int:
    """The number of a head that a layer has; any other is refused."""
    if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < heads:
        raise InputError(
            f"head {head!r} does not exist: a layer has heads 0 to {heads - 1}, or {ALL!r} for each of them."
        )
    return head


@mixing(paper=ABNAR, rollout="abnar", stacks=True)
def attention(block: Block, *, head: int | str | None = None) -> Tensor:
    """W: attention weights, averaged over heads, or those of one `head`, or of "all"."""
    return of_head(block.attention, head)


@mixing(paper=ABNAR, rollout="globenc", stacks=True)
def attention_fixed_residual(block: Block) -> Tensor:
    """W_FIXEDRES = 0.5 W + 0.5 I: half of every token is its residual."""
    weights = attention(block)
    assert isinstance(weights, Tensor)
    return 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
