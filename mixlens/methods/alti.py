"""ALTI (Ferrando, Gallego, Costa-jussà 2022, Measuring the Mixing of Contextual Information in the Transformer)."""

from __future__ import annotations

from torch import Tensor

from ..layer import Block
from ..scoring.aggregate import rows_to_one
from ..scoring.registry import mixing

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"


@mixing(paper=PAPER, rollout="alti", variants=("paper", "released", "released_2022"), cost="1-2", stacks=True)
def alti(block: Block, *, variant: str = "paper") -> tuple[Tensor, dict[str, Tensor]]:
    """ALTI (eq. 9-10): how much nearer, in L1, each token's transformed vector T_ij brings the block's output y_i.

    T_ij are the parts with residual and norm (as in `norm_residual_ln`); C_ij = max(0, |y_i|_1 - |y_i - T_ij|_1), rows
    sum to 1. Summed coordinate by coordinate, a few sources at a time. `released`: sigma without eps, 1e-6 added to
    every coordinate; `released_2022`: also d - 1 in sigma, as for the published tables. A row of zeros is its own
    token."""
    y, parts = block.middle, block.parts("norm")
    if variant == "paper":
        return rows_to_one(parts.nearer(y).clamp(min=0))
    norm = block.norms.get("norm_after_attention")
    if norm is not None:
        sigma = norm.scale(block.stream, eps=False, unbiased=variant == "released_2022")
        y, parts = norm.numerator(block.stream) / sigma + norm.beta, parts.scaled(sigma)
    return rows_to_one(parts.nearer(y, shift=-1e-6).clamp(min=0))
