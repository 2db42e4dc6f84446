"""Value Zeroing (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..aggregate import rows_to_one
from ..decompose import Block, source_tiles
from ..errors import InputError, nearest
from ..mixing import mixing

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"


def cosine(moved: Tensor, still: Tensor) -> Tensor:
    """1 - cos as half the squared distance of the directions: no difference of two numbers near 1."""
    smallest = torch.finfo(moved.dtype).tiny  # a representation that is all zero has no direction
    directions = [vector / vector.norm(dim=-1, keepdim=True).clamp(min=smallest) for vector in (moved, still)]
    return (directions[0] - directions[1]).pow(2).sum(-1) / 2


def euclidean(moved: Tensor, still: Tensor) -> Tensor:
    return (moved - still).norm(dim=-1)


def spearman(moved: Tensor, still: Tensor) -> Tensor:
    """1 - Spearman's rho over the features: the cosine distance of their ranks, ties sharing the mean of theirs."""
    return cosine(centred_ranks(moved), centred_ranks(still))


def centred_ranks(vectors: Tensor) -> Tensor:
    vectors = vectors.contiguous()
    ordered = vectors.sort(-1).values
    ranks = torch.searchsorted(ordered, vectors) + torch.searchsorted(ordered, vectors, right=True)
    return (ranks - vectors.shape[-1]).to(vectors.dtype) / 2


def one_minus_cosine(moved: Tensor, still: Tensor) -> Tensor:
    """As released: in float32 its floor is near 1e-7, and real scores go below it."""
    return (1 - torch.nn.functional.cosine_similarity(moved, still, dim=-1)).clamp(min=0)


DISTANCES = {"cosine": cosine, "euclidean": euclidean, "spearman": spearman}


def standardizer(still: Tensor, real: Tensor) -> Callable[[Tensor], Tensor]:
    """Each feature of [... tile pos d] in standard deviations from its mean over the sentence; a constant one is only centred.

    Mean and deviation are those of the representations left alone, [... pos d], over the tokens that count (`real` [... pos]).
    """
    share = (real.to(still.dtype) / real.sum(-1, keepdim=True))[..., None]
    mean = (share * still).sum(-2, keepdim=True)
    spread = (share * (still - mean).pow(2)).sum(-2, keepdim=True).sqrt()
    spread = torch.where(spread > 8 * torch.finfo(still.dtype).eps * mean.abs(), spread, 1.0)
    return lambda vectors: (vectors - mean.unsqueeze(-3)) / spread.unsqueeze(-3)


@mixing(paper=PAPER, rollout="value_zeroing", variants=("paper", "released"), cost="n / 2")
def value_zeroing(
    block: Block, *, distance: str = "cosine", standardize: bool = False, variant: str = "paper"
) -> tuple[Tensor, dict[str, Tensor]]:
    """Value Zeroing (eq. 4-5): how far layer output i turns when value j is set to zero for all heads; rows sum to 1.

    The value's bias goes too, i = j is included, the residual stays. Zeroing value j changes what attention wrote at i
    by exactly -z_ij, so only what comes after attention is run again. `distance`: "cosine", "euclidean" or "spearman";
    `standardize`: of representations whose features are in standard deviations over the sentence, so that a few large
    ones do not decide. `released`: 1 - cos, which float32 cannot hold; for causal layers rounded to five decimals, as the
    authors' later toolkit does.
    """
    if distance not in DISTANCES:
        raise InputError(f"value_zeroing has no distance {distance!r}. {nearest(str(distance), DISTANCES)}")
    if variant == "released" and (distance != "cosine" or standardize):
        raise InputError("the released code knows the cosine distance alone. Other distances have variant='paper'.")
    measure = DISTANCES[distance] if variant == "paper" else one_minus_cosine
    still = block.after_attention(block.attention_output)
    seen_as = standardizer(still, block.reach.any(-2)) if standardize else lambda vectors: vectors
    still = seen_as(still.unsqueeze(-3))
    distances = []
    for sources, tile in source_tiles(block, block.head_vectors, elements=1 << 19):
        moved = block.without(sources, tile)
        distances.append(measure(seen_as(moved), still.expand_as(moved)))
    scores = torch.cat(distances, -2).transpose(-1, -2)
    if variant == "released" and not bool(block.attention.triu(1).any()):
        scores = scores.round(decimals=5)
    untouched = (block.attention == 0).all(-3)  # who took nothing is not moved, to the last bit
    return rows_to_one(scores.masked_fill(untouched, 0))
