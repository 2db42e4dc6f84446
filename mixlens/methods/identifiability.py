"""Effective attention (Brunner et al. 2020, On Identifiability in Transformers): what of attention the output can tell."""

from __future__ import annotations

import torch
from torch import Tensor

from ..decompose import Block
from ..errors import InputError
from ..mixing import mixing

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"


def kept(singular: Tensor, rows: Tensor | int, width: int) -> Tensor:
    """Which singular values count: more than eps * max(n, d) of their own head's largest."""
    larger = torch.as_tensor(rows, device=singular.device).clamp(min=width)
    return singular > torch.finfo(singular.dtype).eps * larger[..., None] * singular[..., :1]


def transformed(block: Block, *, bias: bool = True) -> Tensor:
    """T^h = V^h W_O^h up to a change of basis, [... head key k]: V^h has the same left null space where W_O^h has full rank.

    Only where some W_O^h has not (it is checked) are the products themselves made.
    """
    values = block.values if bias else block.values - block.value_bias
    _, e, d = block.projection.shape
    if bool(kept(torch.linalg.svdvals(block.projection), e, d).all()):
        return values
    return torch.einsum("...hke,hed->...hkd", values, block.projection)


def column_space(vectors: Tensor, allowed: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What the columns of T span over the allowed keys [... key]: an orthonormal basis [... head key k], zeros beyond the rank;
    and the rank [... head]."""
    basis, singular, _ = torch.linalg.svd(vectors * allowed[..., None, :, None], full_matrices=False)
    counted = kept(singular, allowed.sum(-1)[..., None], width)
    return basis * counted[..., None, :] * allowed[..., None, :, None], counted.sum(-1)


def effective(block: Block, *, bias: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """A-perp = A minus its projection on the left null space of T (eq. 8-9), [... head query key]; rank and null dimension.

    A position that may not look everywhere (causal masks, windows) is projected within what it may see: no other weights
    were ever possible. Rank and null dimension are those of all tokens that anyone may see.
    """
    vectors, attention, width = transformed(block, bias=bias), block.attention, block.projection.shape[-1]
    seen = block.reach.any(-2)
    basis, rank = column_space(vectors, seen, width)
    if bool((block.reach == seen[..., None, :]).all()):
        projected = attention @ basis @ basis.transpose(-1, -2)
    else:
        rows = []
        for i in range(attention.shape[-1]):
            own, _ = column_space(vectors, block.reach[..., i, :], width)
            rows.append(attention[..., i : i + 1, :] @ own @ own.transpose(-1, -2))
        projected = torch.cat(rows, -2)
    return projected, {"rank": rank, "null_dimension": seen.sum(-1, keepdim=True) - rank}


def of_head(maps: Tensor, head: int | None) -> Tensor:
    """One head's map, or the mean over heads."""
    if head is None:
        return maps.mean(-3)
    if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < maps.shape[-3]:
        raise InputError(f"head {head!r} does not exist: a layer has heads 0 to {maps.shape[-3] - 1}. None is their mean.")
    return maps[..., head, :, :]


@mixing(
    paper=PAPER,
    rollout="abnar",
    variants=("released", "paper"),
    distribution=False,
    signed=True,
    per_head=("rank", "null_dimension"),
)
def effective_attention(block: Block, *, head: int | None = None, variant: str = "released") -> tuple[Tensor, dict[str, Tensor]]:
    """A-perp (eq. 9): attention without what the head's output cannot tell; may be negative, rows need not sum to 1.

    T with the value's bias, as in the only public code: only then is the head's true output unchanged. `paper` leaves the
    bias out, as eq. 2 writes T. One `head`, or the mean over heads.
    """
    projected, told = effective(block, bias=variant == "released")
    return of_head(projected, head), told


@mixing(
    paper=PAPER,
    rollout="globenc",
    variants=("released", "paper"),
    distribution=False,
    signed=True,
    per_head=("rank", "null_dimension"),
)
def null_attention(block: Block, *, head: int | None = None, variant: str = "released") -> tuple[Tensor, dict[str, Tensor]]:
    """A-parallel (eq. 8): what of attention lies in the left null space of T, so that the head's output does not know it."""
    projected, told = effective(block, bias=variant == "released")
    return of_head(block.attention - projected, head), told
