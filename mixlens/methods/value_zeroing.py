"""Value Zeroing (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregate import rows_to_one
from ..decompose import Block, source_tiles
from ..mixing import mixing

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"


def cosine(moved: Tensor, still: Tensor) -> Tensor:
    """1 - cos as half the squared distance of the directions: no difference of two numbers near 1."""
    difference = moved / moved.norm(dim=-1, keepdim=True) - still / still.norm(dim=-1, keepdim=True)
    return difference.pow(2).sum(-1) / 2


def one_minus_cosine(moved: Tensor, still: Tensor) -> Tensor:
    """As released: in float32 its floor is near 1e-7, and real scores go below it."""
    return (1 - torch.nn.functional.cosine_similarity(moved, still, dim=-1)).clamp(min=0)


@mixing(paper=PAPER, rollout="value_zeroing", variants=("paper", "released"), cost="n / 2")
def value_zeroing(block: Block, *, variant: str = "paper") -> tuple[Tensor, dict[str, Tensor]]:
    """Value Zeroing (eq. 4-5): how far layer output i turns when value j is set to zero for all heads; rows sum to 1.

    The value's bias goes too, i = j is included, the residual stays. Zeroing value j changes what attention wrote at i
    by exactly -z_ij, so only what comes after attention is run again. `released`: 1 - cos, which float32 cannot hold;
    for causal layers rounded to five decimals, as the authors' later toolkit does.
    """
    distance = cosine if variant == "paper" else one_minus_cosine
    still = block.after_attention(block.attention_output)
    distances = []
    for _, tile in source_tiles(block, block.head_vectors, elements=1 << 19):
        moved = block.after_attention(block.attention_output.unsqueeze(-3) - tile)
        distances.append(distance(moved, still.unsqueeze(-3).expand_as(moved)))
    scores = torch.cat(distances, -2).transpose(-1, -2)
    if variant == "released" and not bool(block.attention.triu(1).any()):
        scores = scores.round(decimals=5)
    untouched = (block.attention == 0).all(-3)  # who took nothing is not moved, to the last bit
    return rows_to_one(scores.masked_fill(untouched, 0))
