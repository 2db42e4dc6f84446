"""Effective attention (Brunner et al. 2020, On Identifiability in Transformers): what of attention the output can
tell."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base.budget import tiles
from ..layer import Block
from ..scoring.registry import mixing
from .attention import of_head

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"


def kept(singular: Tensor, rows: Tensor | int, width: int) -> Tensor:
    """Which singular values count: more than eps * max(n, d) of their own head's largest."""
    larger = torch.as_tensor(rows, device=singular.device).clamp(min=width)
    return singular > torch.finfo(singular.dtype).eps * larger[..., None] * singular[..., :1]


def transformed(block: Block, *, bias: bool = True) -> Tensor:
    """T^h = V^h W_O^h up to a change of basis, [... head key k]: V^h has the same left null space where W_O^h has full
    rank.

    Only where some W_O^h has not (it is checked) are the products themselves made.
    """
    values = block.values if bias else block.values - block.value_bias
    _, e, d = block.projection.shape
    exact = block.projection.double()
    _, sure = _inverse_factor(exact @ exact.mT, exact.norm(dim=(-2, -1)), e, d, block.dtype)
    if bool(sure.all()) or bool(kept(torch.linalg.svdvals(block.projection), e, d).all()):
        return values
    return torch.einsum("...hke,hed->...hkd", values, block.projection)


def column_space(vectors: Tensor, allowed: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What the columns of T span over the allowed keys [... key]: an orthonormal basis [... head key k], zeros beyond
    the rank; and the rank [... head]."""
    masked = vectors * allowed[..., None, :, None]
    counts = allowed.sum(-1)[..., None]
    if masked.dtype == torch.float32 and masked.shape[-2] > masked.shape[-1]:
        # T L^-T with L L^T = T^T T, in float64: orthonormal, and much cheaper than singular values, where every head
        # has certainly full rank: 1 / |L^-1| is at most the smallest singular value, |T| at least the largest.
        exact = masked.double()
        inverse, sure = _inverse_factor(exact.mT @ exact, exact.norm(dim=(-2, -1)), counts, width, masked.dtype)
        if bool(sure.all()):
            found = (exact @ inverse.mT).to(masked.dtype)
            return found, torch.full(found.shape[:-2], found.shape[-1], device=found.device)
    basis, singular, _ = torch.linalg.svd(masked, full_matrices=False)
    counted = kept(singular, counts, width)
    return basis * counted[..., None, :] * allowed[..., None, :, None], counted.sum(-1)


def _inverse_factor(
    gram: Tensor, size: Tensor, rows: Tensor | int, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """L^-1 for L L^T = gram, and whether the rank is certainly full by the rule of `kept`, for numbers of this type."""
    factor, failed = torch.linalg.cholesky_ex(gram)
    itself = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    inverse = torch.linalg.solve_triangular(factor, itself, upper=False)
    smallest = torch.finfo(dtype).eps * torch.as_tensor(rows, device=gram.device).clamp(min=width) * size
    return inverse, (failed == 0) & (1 / inverse.norm(dim=(-2, -1)) > 2 * smallest)


def within_past(vectors: Tensor, attention: Tensor, width: int) -> Tensor:
    """Each row of a causal layer projected within its own past, [... head query key].

    Past e tokens, row i needs T_i (T_i^T T_i)^-1 T_i^T for T_i the first i + 1 rows: the Gram matrices are running
    sums, and each needs one small factorisation. Up to e tokens, rows are independent and nothing is taken away. Rows
    whose rank is not certainly full (seldom) are done by singular values."""
    n, e = vectors.shape[-2:]
    exact, projected = vectors.double(), attention.clone()
    doubtful = torch.ones(n, dtype=torch.bool, device=vectors.device)
    running = exact.pow(2).sum(-1).cumsum(-1).sqrt()  # |T_i|, [... head pos]
    first = min(n, e)
    start = exact[..., :first, :]
    inverse, _ = _inverse_factor(start @ start.mT, running[..., first - 1], first, width, vectors.dtype)
    size = torch.finfo(vectors.dtype).eps * max(first, width) * running[..., :first]
    sure = 1 / inverse.pow(2).sum(-1).cumsum(-1).sqrt() > 2 * size  # a leading block of L^-1 is the inverse of L's
    doubtful[:first] = ~sure.flatten(0, -2).all(0)
    outputs = attention.double() @ exact  # [... head pos e]
    heads = outputs[..., 0, 0].numel()
    past = start.mT @ start
    for some in tiles(n - first, heads * e * e, vectors.device, times=4) if n > first else ():
        rows = slice(first + some.start, first + some.stop)
        each = exact[..., rows, :]
        grams = past.unsqueeze(-3) + (each.unsqueeze(-1) * each.unsqueeze(-2)).cumsum(-3)  # [... head pos e e]
        past = grams[..., -1, :, :]
        counts = torch.arange(rows.start + 1, rows.stop + 1, device=vectors.device)
        inverse, sure = _inverse_factor(grams, running[..., rows], counts, width, vectors.dtype)
        solved = inverse.mT @ (inverse @ outputs[..., rows, :, None])
        made = (solved.squeeze(-1) @ exact.mT).tril(rows.start)
        projected[..., rows, :] = made.to(attention.dtype)
        doubtful[rows] = ~sure.flatten(0, -2).all(0)
    for i in doubtful.nonzero().flatten().tolist():
        allowed = torch.arange(n, device=vectors.device) <= i
        own, _ = column_space(vectors, allowed, width)
        projected[..., i : i + 1, :] = attention[..., i : i + 1, :] @ own @ own.mT
    return projected


def effective(block: Block, *, bias: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """A-perp = A minus its projection on the left null space of T (eq. 8-9), [... head query key]; rank and null
    dimension.

    A position that may not look everywhere (causal masks, windows) is projected within what it may see: no other
    weights were ever possible. Rank and null dimension are those of all tokens that anyone may see."""
    vectors, attention, width = transformed(block, bias=bias), block.attention, block.projection.shape[-1]
    seen = block.reach.any(-2)
    basis, rank = column_space(vectors, seen, width)
    n = attention.shape[-1]
    if bool((block.reach == seen[..., None, :]).all()):
        projected = attention @ basis @ basis.mT
    elif vectors.dtype == torch.float32 and bool((block.reach == torch.ones_like(block.reach).tril()).all()):
        projected = within_past(vectors, attention, width)
    else:
        rows = []
        for i in range(n):
            own, _ = column_space(vectors, block.reach[..., i, :], width)
            rows.append(attention[..., i : i + 1, :] @ own @ own.mT)
        projected = torch.cat(rows, -2)
    return projected, {"rank": rank, "null_dimension": seen.sum(-1, keepdim=True) - rank}


@mixing(
    paper=PAPER,
    rollout="abnar",
    variants=("released", "paper"),
    distribution=False,
    signed=True,
    per_head=("rank", "null_dimension"),
)
def effective_attention(
    block: Block, *, head: int | str | None = None, variant: str = "released"
) -> tuple[Tensor, dict[str, Tensor]]:
    """A-perp (eq. 9): attention without what the head's output cannot tell; may be negative, rows need not sum to 1.

    T with the value's bias, as in the only public code: only then is the head's true output unchanged. `paper` leaves
    the bias out, as eq. 2 writes T. One `head`, "all" of them, or the mean over heads."""
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
def null_attention(
    block: Block, *, head: int | str | None = None, variant: str = "released"
) -> tuple[Tensor, dict[str, Tensor]]:
    """A-parallel (eq. 8): what of attention lies in the left null space of T, so that the head's output does not know it.

    Zero, without rounding errors, in a head whose null space is empty.
    """
    projected, told = effective(block, bias=variant == "released")
    there = (told["null_dimension"] > 0)[..., None, None]
    return of_head((block.attention - projected) * there, head), told
