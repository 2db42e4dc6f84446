"""Value Zeroing (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.rounding import EPS
from ..layer import Block
from ..layer.block import Measure, View
from ..scoring.aggregate import rows_to_one
from ..scoring.registry import mixing

# Of a distance, against the modules themselves: by precision. A layer that computes in float64 throughout has its own.
ALLOWED = {"float64": 1e-6, "float32": 1e-2, "tf32": 1e-1}
PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"


def cosine(moved: Tensor, still: Tensor) -> Tensor:
    """1 - cos as half the squared distance of the directions: no difference of two numbers near 1."""
    smallest = torch.finfo(moved.dtype).tiny  # a representation that is all zero has no direction
    directions = [vector / vector.norm(dim=-1, keepdim=True).clamp(min=smallest) for vector in (moved, still)]
    return directions[0].sub_(directions[1]).norm(dim=-1).pow(2) / 2


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


def standardizer(still: Tensor, real: Tensor) -> View:
    """Each feature of [... tile pos d] in standard deviations from its mean over the sentence; a constant one is only
    centred.

    Mean and deviation are those of the representations left alone, [... pos d], over the tokens that count (`real` [...
    pos])."""
    share = (real.to(still.dtype) / real.sum(-1, keepdim=True))[..., None]
    mean = (share * still).sum(-2, keepdim=True)
    spread = (share * (still - mean).pow(2)).sum(-2, keepdim=True).sqrt()
    spread = torch.where(spread > 8 * torch.finfo(still.dtype).eps * mean.abs(), spread, 1.0)
    return lambda vectors: (vectors - mean.unsqueeze(-3)) / spread.unsqueeze(-3)


@dataclass(frozen=True)
class Still:
    """The layer's output with nothing taken away, as the distance sees it, and what rounding does to it."""

    seen: Tensor  # [... 1 pos d]
    noise: Tensor  # [... pos]: the distance of an output with other rounding errors from this one

    def error(self, distances: Tensor, distance: str) -> Tensor:
        """What rounding may do to distances [... query key].

        A euclidean distance moves by as much as its vectors do. The others are half the square of a length l; if its
        vectors move by e, and e^2 / 2 is the noise, then the distance moves by l e + e^2 / 2."""
        noise = self.noise[..., None]
        return noise.expand_as(distances) if distance == "euclidean" else 2 * (distances * noise).sqrt() + noise


def left_alone(block: Block, measure: Measure, seen_as: View) -> Still:
    """Runs what is behind attention again, shows that this is what the model did, and then with other rounding errors.

    The first and the last of three rows are the same: a hook that acts on some rows of a batch alone is seen."""
    eps, wrote = block.eps, block.attention_output
    signs = torch.ones(wrote.shape[-1], dtype=wrote.dtype, device=wrote.device)
    signs[::2] = -1
    # Sums and products behind attention are rounded several times, the stream and the output once each.
    rows = block.after_attention(torch.stack([wrote, wrote + 2 * eps * block.stream * signs, wrote], -3))
    rebuilt, other, again = rows[..., 0, :, :], rows[..., 1, :, :] * (1 + eps / 2 * signs.roll(1)), rows[..., 2, :, :]
    found = []
    for row in (rebuilt, again):  # the larger gap counts
        block.compare("layer", row, block.output)
        found.append(block.compared["layer"])
    block.compared["layer"] = (torch.stack([value for value, _ in found]).amax(0), found[0][1])
    still = seen_as(rebuilt.unsqueeze(-3))
    noise = measure(seen_as(other.unsqueeze(-3)), still)[..., 0, :]
    return Still(still, noise.clamp(min=finest(measure, rebuilt.shape[-1], torch.finfo(noise.dtype).eps)))


def finest(measure: Measure, width: int, eps: float) -> float:
    """The smallest step of a distance: two features that change ranks, or the last digits of a cosine near 1."""
    if measure is spearman:
        return 12 / (width * (width**2 - 1))
    return 4 * eps if measure is one_minus_cosine else 0.0


def rounding_of_attention(block: Block) -> Tensor:
    """What rounding of the logits does to attention weights, relative to each, [... query]: eps times a bound of the
    logits."""
    layer = block.layer
    if layer.query is None or layer.key is None or block.x.shape[-2] != layer.query.shape[-2]:
        return torch.zeros_like(block.x[..., 0])
    longest = (
        block.seen("key").norm(dim=-1).amax(-1).repeat_interleave(layer.query.shape[-3] // layer.key.shape[-3], -1)
    )
    sizes = (block.seen("query").norm(dim=-1) * longest[..., None]).amax(-2) * layer.scaling  # [... query]
    return torch.finfo(block.dtype).eps * (sizes if layer.softcap is None else sizes.clamp(max=layer.softcap))


def compare_largest(
    block: Block, distances: Tensor, measure: Measure, seen_as: View, still: Still, *, distance: str, allowed: float
) -> None:
    """Takes one source away from every target by running the model's own modules, and compares with the distances.

    `distances` is [... query key]. It is the source that moves the target most. The quick forms put the feed-forward
    together from kept products; this shows that they give what the modules give now. Differences that rounding explains
    do not count."""
    source = distances.argmax(-1)  # [... query]
    weights = block.attention.take_along_dim(source[..., None, :, None], -1)[..., 0].transpose(
        -1, -2
    )  # [... query head]
    vectors = block.head_vectors.take_along_dim(source[..., None, None], -3)  # [... query head d]
    part = (weights.unsqueeze(-2) @ vectors).squeeze(-2)
    moved = block.after_attention(block.attention_output - part)
    exact = measure(seen_as(moved.unsqueeze(-3)), still.seen)[..., 0, :]  # [... query]
    quick = distances.take_along_dim(source[..., None], -1)[..., 0]
    scale = exact + 8 * still.error(exact[..., None], distance)[..., 0] / allowed
    differences = (quick - exact).abs() / scale.clamp(min=torch.finfo(scale.dtype).tiny)
    value = differences.masked_fill((weights == 0).all(-1), 0).amax()  # who took nothing is not moved
    block.compared["value_zeroing"] = (value, allowed)


@mixing(paper=PAPER, rollout="value_zeroing", variants=("paper", "released"), cost="n / 4")
def value_zeroing(
    block: Block,
    *,
    distance: str = "cosine",
    standardize: bool = False,
    query: int | None = None,
    variant: str = "paper",
) -> tuple[Tensor, dict[str, Tensor]]:
    """Value Zeroing (eq. 4, 10): how far layer output i turns when value j is set to zero for all heads; rows sum to 1.

    The value's bias goes too, i = j is included, the residual stays. Zeroing value j changes what attention wrote at i
    by exactly -z_ij, so only what comes after attention is run again. `distance`: "cosine", "euclidean" or "spearman";
    `standardize`: of representations whose features are in standard deviations over the sentence, so that a few large
    ones do not decide. `query`: this position's row alone, n times as quick; the other rows are left at zero.
    `released`: 1 - cos, which float32 cannot hold; for causal layers rounded to five decimals, as the authors' later
    toolkit does. `.info["rounding_error"]`: an estimate, for each layer and query, of what rounding in computing these
    scores does to the row; what half precision did to the model's own activations is not in it."""
    if distance not in DISTANCES:
        raise InputError(f"value_zeroing has no distance {distance!r}. {nearest(str(distance), DISTANCES)}")
    if variant == "released" and (distance != "cosine" or standardize):
        raise InputError("the released code knows the cosine distance alone. Other distances have variant='paper'.")
    n = block.attention.shape[-1]
    if query is not None and not 0 <= query < n:
        raise InputError(f"query {query} is out of range: there are {n} tokens, 0 to {n - 1}.")
    if query is not None and not block.is_stock:  # what a user's code does at a position depends on the others
        whole: Any = value_zeroing(block, distance=distance, standardize=standardize, variant=variant)
        others = torch.arange(n, device=block.x.device) != query
        return whole[0].masked_fill(others[:, None], 0), {
            key: row.masked_fill(others, 0) for key, row in whole[1].items()
        }
    measure = DISTANCES[distance] if variant == "paper" else one_minus_cosine
    targets = block if query is None else block.at(slice(query, query + 1))
    seen_as: View = torch.positive  # representations as the distance sees them: as they are
    if standardize:
        seen_as = standardizer(block.after_attention(block.attention_output), block.reach.any(-2))
    still = left_alone(targets, measure, seen_as)
    whole_vectors = measure is cosine and not standardize
    scores = targets.moved_without_each(measure, seen_as, still.seen, few=query is not None, cosine=whole_vectors)
    if query is None:  # of one row, every source was run through the modules themselves
        coarse = block.x.is_cuda and torch.backends.cuda.matmul.allow_tf32
        kind = "float64" if block.eps == EPS[torch.float64] else "tf32" if coarse else "float32"
        compare_largest(block, scores, measure, seen_as, still, distance=distance, allowed=ALLOWED[kind])
    error = still.error(scores, distance) + 2 * scores * rounding_of_attention(targets)[..., None]
    if variant == "released" and not bool(block.attention.triu(1).any()):
        scores = scores.round(decimals=5)
    shares, extras = with_rounding(scores, error, targets.attention, first=query or 0)
    if query is None:
        return shares, extras
    place = torch.tensor([query], device=shares.device)  # one row in the place of its query, the other rows zero
    rows = {
        key: torch.zeros_like(block.x[..., 0], dtype=row.dtype).index_copy_(-1, place, row)
        for key, row in extras.items()
    }
    return torch.zeros_like(block.attention[..., 0, :, :]).index_copy_(-2, place, shares), rows


def with_rounding(scores: Tensor, error: Tensor, attention: Tensor, *, first: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Rows [... query key] that sum to 1, and what rounding may do to each. The first row is the token at `first`."""
    untouched = (attention == 0).all(-3)  # who took nothing is not moved, to the last bit
    scores = scores.masked_fill(untouched, 0)
    rounding = (error.masked_fill(untouched, 0).amax(-1) / scores.sum(-1)).nan_to_num(0, 1).clamp(max=1)
    shares, empty = rows_to_one(scores, offset=first)
    return shares, {"rounding_error": rounding} | empty
