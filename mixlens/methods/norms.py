"""The norm-based family: how long each source's vector is, at each stage of the layer.

Kobayashi et al. 2020 (N), 2021 (N_RES, N_RESLN), Modarressi et al. 2022 (N_ENC, W_RES). Lengths come from one small
Gram matrix per source: |P z_ij|^2 = a_ij^T G_j a_ij with G_j = <P f^h_j, P f^h'_j>, exactly, without the vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..layer.block import Block
from ..maps import mixing

KOBAYASHI_2020 = "Kobayashi et al. 2020, Attention is Not Only a Weight"
KOBAYASHI_2021 = "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked LMs"
GLOBENC = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
RATIO = ("mixing_ratio",)


def part_norms(block: Block, stage: str, *, residual: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """|w_ij| [... query key], and the mixing ratio r_i = |sum_{j != i} w_ij| / (that + |w_ii|) [... query]."""
    chain = block.chain(stage)
    norms = block.part_lengths(chain).clone()
    own, others = block.ends(chain, residual=residual)  # the diagonal alone has the residual in it
    norms.diagonal(dim1=-2, dim2=-1).copy_(own)
    return norms, {"mixing_ratio": others / (others + own)}


@mixing(paper=KOBAYASHI_2020, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    """N = |sum_h a^h_ij f^h_j|: the length of what attention took from j."""
    return part_norms(block, "attention", residual=False)


@mixing(paper=GLOBENC, rollout="globenc", stacks=True)
def norm_fixed_residual(block: Block) -> Tensor:
    """N_FIXEDRES = 0.5 N, rows summing to 1, + 0.5 I."""
    lengths, _ = part_norms(block, "attention", residual=False)
    half = 0.5 * lengths / lengths.sum(-1, keepdim=True)
    return half + 0.5 * torch.eye(half.shape[-1], dtype=half.dtype, device=half.device)


@mixing(paper=KOBAYASHI_2021, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm_residual(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    """N_RES: N with the residual x_i added to the vector of i itself."""
    return part_norms(block, "residual", residual=True)


@mixing(paper=KOBAYASHI_2021, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm_residual_ln(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    """N_RESLN: then the norm after attention, its statistics held still; its bias belongs to no token."""
    return part_norms(block, "norm", residual=True)


@mixing(paper=GLOBENC, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def globenc(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    """N_ENC: then the norm after the feed-forward too, which enters only through that norm's statistics."""
    return part_norms(block, "layer", residual=True)


@mixing(paper=GLOBENC, rollout="globenc", variants=("released", "paper"), stacks=True, extras=RATIO)
def attention_residual(block: Block, *, variant: str = "released") -> tuple[Tensor, dict[str, Tensor]]:
    """W_RES (eq. 15): attention to others shared out of r_i, the rest 1 - r_i to the token itself; r of `globenc`.

    The paper divides by 1 - W_ii, the released code (and we) by the rest of the row: the same when rows sum to 1.
    """
    weights = block.attention.mean(-3)
    _, ratios = part_norms(block, "layer", residual=True)
    r = ratios["mixing_ratio"][..., None]
    itself = torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device)
    others = weights.masked_fill(itself, 0)
    rest = others.sum(-1, keepdim=True) if variant == "released" else 1 - weights.diagonal(dim1=-2, dim2=-1)[..., None]
    shared = torch.where(rest > 0, others / rest.clamp(min=torch.finfo(weights.dtype).tiny), torch.zeros_like(others))
    return torch.where(itself, 1 - r, r * shared), ratios
