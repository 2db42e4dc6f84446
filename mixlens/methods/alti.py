"""ALTI (Ferrando, Gallego, Costa-jussà 2022, Measuring the Mixing of Contextual Information in the Transformer)."""

from __future__ import annotations

from torch import Tensor

from ..layer import Block, Parts
from ..scoring.aggregate import rows_to_one
from ..scoring.registry import mixing

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"


@mixing(paper=PAPER, rollout="alti", variants=("paper", "released", "released_2022"), cost="1-2", stacks=True)
def alti(block: Block, *, variant: str = "paper") -> tuple[Tensor, dict[str, Tensor]]:
    """ALTI (eq. 9-10): how much nearer, in L1, each token's transformed vector T_ij brings the block's output y_i.

    T_ij are the parts with residual and norm (as in `norm_residual_ln`); C_ij = max(0, |y_i|_1 - |y_i - T_ij|_1), rows
    sum to 1. Summed coordinate by coordinate, a few sources at a time. `released`: sigma without eps, 1e-6 added to
    every coordinate; `released_2022`: also d - 1 in sigma, as for the published tables. A row of zeros is its own token.
    """
    if variant != "paper":
        return released(block, unbiased=variant == "released_2022")
    return rows_to_one(block.parts("norm").nearer(block.middle).clamp(min=0))


def released(block: Block, *, unbiased: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The authors' code: its own sigma in the norm after attention, and 1e-6 added to every coordinate of T_ij."""
    y, parts = released_norm(block, unbiased=unbiased)
    return rows_to_one(parts.nearer(y, shift=-1e-6).clamp(min=0))


def released_norm(block: Block, *, unbiased: bool) -> tuple[Tensor, Parts]:
    """y_i and T_ij with sigma without eps, over d - 1 features where it is unbiased."""
    norm = block.norms.get("norm_after_attention")
    if norm is None:
        return block.middle, block.parts("norm")
    sigma = norm.scale(block.stream, eps=False, unbiased=unbiased)
    return norm.numerator(block.stream) / sigma + norm.beta, block.parts("norm").scaled(sigma)
