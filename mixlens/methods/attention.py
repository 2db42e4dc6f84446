"""Attention itself, the baseline of all five papers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..layer import Block
from ._mixing import mixing

ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"


@mixing(paper=ABNAR, rollout="abnar", stacks=True)
def attention(block: Block) -> Tensor:
    """W: attention weights, averaged over heads."""
    return block.attention.mean(-3)


@mixing(paper=ABNAR, rollout="globenc", stacks=True)
def attention_fixed_residual(block: Block) -> Tensor:
    """W_FIXEDRES = 0.5 W + 0.5 I: half of every token is its residual."""
    weights = attention(block)
    assert isinstance(weights, Tensor)
    return 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
