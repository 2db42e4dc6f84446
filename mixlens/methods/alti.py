"""ALTI (Ferrando, Gallego, Costa-jussà 2022, Measuring the Mixing of Contextual Information in the Transformer)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..aggregate import rows_to_one
from ..fast import loops as kernels
from ..layer.block import Block
from ..maps import mixing

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"


@mixing(paper=PAPER, rollout="alti", variants=("paper", "released", "released_2022"), cost="1-2", stacks=True)
def alti(block: Block, *, variant: str = "paper") -> tuple[Tensor, dict[str, Tensor]]:
    """ALTI (eq. 8-9): how much nearer, in L1, each token's transformed vector T_ij brings the block's output y_i.

    T_ij are the parts with residual and norm (as in `norm_residual_ln`); C_ij = max(0, |y_i|_1 - |y_i - T_ij|_1), rows
    sum to 1. Summed coordinate by coordinate, a few sources at a time. `released`: sigma without eps, 1e-6 added to
    every coordinate; `released_2022`: also d - 1 in sigma, as for the published tables. A row of zeros is its own token.
    """
    chain = block.chain("norm")
    y, shift, (part, stream) = block.middle, 0.0, block.inverses(chain)
    if variant != "paper":
        shift = -1e-6
        if (after := block.norms.get("norm_after_attention")) is not None:
            sigma = after.scale(block.stream, eps=False, unbiased=variant == "released_2022")
            y = after.numerator(block.stream) / sigma + after.beta
            part, stream = block.inverses(replace(chain, stream_inverse=1 / sigma[..., 0]))
    scores = block.nearer(chain, part, y, shift)
    norms = chain.beside(y)
    itself = kernels.own_nearer(block.own_part, block.x, norms, len(chain.branch), part, stream, y, shift=shift)
    scores.diagonal(dim1=-2, dim2=-1).copy_(itself)  # the residual is there alone
    return rows_to_one(scores.clamp(min=0))
