"""The baseline that knows nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from ..layer import Block
from ..scoring.aggregate import rows_to_one
from ..scoring.registry import mixing


@mixing(paper="baseline", rollout="value_zeroing", cost="0")
def random(block: Block, *, seed: int = 0) -> Tensor:
    """Rand: uniform scores wherever attention may look, rows summing to 1; a function of seed, layer and the two positions.

    A counter-based generator (splitmix64's mixing of a counter), so that neither padding nor the batch changes a score.
    """
    n = block.x.shape[-2]
    place = torch.arange(n, device=block.x.device)
    counter = (place[:, None] << 24) + place + (block.index << 48) + 0x9E3779B9 * (seed + 1)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        counter = (counter ^ ((counter >> shift) & ((1 << (64 - shift)) - 1))) * factor
    uniform = ((counter >> 11) & ((1 << 53) - 1)).double() / 2**53
    reach = (block.attention > 0).any(-3)
    return rows_to_one(uniform.to(block.dtype) * reach)[0]
