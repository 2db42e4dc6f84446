"""The norm-based family: how long each source's vector is, at each stage of the layer.

Kobayashi et al. 2020 (N), 2021 (N_RES, N_RESLN), Modarressi et al. 2022 (N_ENC, W_RES). Lengths come from one small
Gram matrix per source: |P z_ij|^2 = a_ij^T G_j a_ij with G_j = <P f^h_j, P f^h'_j>, exactly, without the vectors. By
head: |P a^h_ij f^h_j| = a^h_ij |P f^h_j|. The value's bias is in f^h_j; b_O, the norms' biases and the residual are no
head's."""

from __future__ import annotations

import torch
from torch import Tensor

from ..layer import Block
from ..scoring.registry import ALL, mixing
from .attention import checked_head

KOBAYASHI_2020 = "Kobayashi et al. 2020, Attention is Not Only a Weight"
KOBAYASHI_2021 = "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked LMs"
GLOBENC = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
RATIO = ("mixing_ratio",)


def part_norms(block: Block, stage: str, head: int | str | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """|w_ij| [... query key], and the mixing ratio r_i = |sum_{j != i} w_ij| / (that + |w_ii|) [... query].

    With `head` the lengths of that head's parts, |a^h_ij f^h_j| at the stage, and no ratio: the residual is no head's.
    """
    parts = block.parts(stage)
    heads = block.attention.shape[-3]
    if head == ALL:
        return torch.stack([parts.head_lengths(number) for number in range(heads)], -3), {}
    if head is not None:
        return parts.head_lengths(checked_head(head, heads)), {}
    lengths, others = parts.lengths(), parts.others()
    return lengths, {"mixing_ratio": others / (others + lengths.diagonal(dim1=-2, dim2=-1))}


@mixing(paper=KOBAYASHI_2020, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm(block: Block, *, head: int | str | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """N = |sum_h a^h_ij f^h_j|: the length of what attention took from j; of one `head` |a^h_ij f^h_j| (or of "all")."""
    return part_norms(block, "attention", head)


@mixing(paper=GLOBENC, rollout="globenc", stacks=True)
def norm_fixed_residual(block: Block) -> Tensor:
    """N_FIXEDRES = 0.5 N, rows summing to 1, + 0.5 I."""
    lengths, _ = part_norms(block, "attention")
    half = 0.5 * lengths / lengths.sum(-1, keepdim=True)
    return half + 0.5 * torch.eye(half.shape[-1], dtype=half.dtype, device=half.device)


@mixing(paper=KOBAYASHI_2021, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm_residual(block: Block, *, head: int | str | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """N_RES: N with the residual x_i added to the vector of i itself."""
    return part_norms(block, "residual", head)


@mixing(paper=KOBAYASHI_2021, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def norm_residual_ln(block: Block, *, head: int | str | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """N_RESLN: then the norm after attention, its statistics held still; its bias belongs to no token."""
    return part_norms(block, "norm", head)


@mixing(paper=GLOBENC, rollout="globenc", distribution=False, stacks=True, extras=RATIO)
def globenc(block: Block, *, head: int | str | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """N_ENC: then the norm after the feed-forward too, which enters only through that norm's statistics."""
    return part_norms(block, "layer", head)


@mixing(paper=GLOBENC, rollout="globenc", variants=("released", "paper"), stacks=True, extras=RATIO)
def attention_residual(block: Block, *, variant: str = "released") -> tuple[Tensor, dict[str, Tensor]]:
    """W_RES (eq. 15): attention to others shared out of r_i, the rest 1 - r_i to the token itself; r of `globenc`.

    The paper divides by 1 - W_ii, the released code (and we) by the rest of the row: the same when rows sum to 1.
    """
    weights = block.attention.mean(-3)
    _, ratios = part_norms(block, "layer")
    r = ratios["mixing_ratio"][..., None]
    itself = torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device)
    others = weights.masked_fill(itself, 0)
    rest = others.sum(-1, keepdim=True) if variant == "released" else 1 - weights.diagonal(dim1=-2, dim2=-1)[..., None]
    shared = torch.where(rest > 0, others / rest.clamp(min=torch.finfo(weights.dtype).tiny), torch.zeros_like(others))
    return torch.where(itself, 1 - r, r * shared), ratios
