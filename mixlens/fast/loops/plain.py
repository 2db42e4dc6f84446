"""The loops in tensor operations: the reference the fused forms are held against, and what runs where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...base.budget import tiles
from ...base.rounding import apart  # noqa: F401 - one of the loops

Norms = Sequence[tuple[Tensor, bool]]  # gamma, [d] or to lie beside [layer ... d], and whether the mean is taken away


def by_source(attention: Tensor) -> Tensor:
    """[... head query key] -> [... key query head]: for one source, each target's weights on it, head by head."""
    return attention.movedim(-3, -1).transpose(-3, -2).contiguous()


def nearer(attention: Tensor, vectors: Tensor, reciprocal: Tensor, y: Tensor, shift: float) -> Tensor:
    """Coordinate by coordinate, a few sources at a time: no difference of two large sums, no tensor of pairs by
    features."""
    weights = by_source(attention) * reciprocal[..., None, :, None]  # [... key query head]
    sources = vectors.transpose(-3, -2)  # [... key head d]
    length, goal = y.abs().unsqueeze(-3), (y + shift).unsqueeze(-3)
    found = []
    for some in tiles(weights.shape[-3], y.numel(), y.device):
        missing = (weights[..., some, :, :] @ sources[..., some, :, :]).sub_(goal).abs_()
        found.append(torch.sub(length, missing, out=missing).sum(-1))
    return torch.cat(found, -2).transpose(-1, -2)


def lengths(attention: Tensor, gram: Tensor, reciprocal: Tensor) -> Tensor:
    weights = by_source(attention)
    squared = ((weights @ gram) * weights).sum(-1).transpose(-1, -2)
    return squared.clamp(min=0).sqrt() * reciprocal[..., None]


def gram(vectors: Tensor) -> Tensor:
    by_source = vectors.transpose(-3, -2)
    return by_source @ by_source.mT


def inner(values: Tensor, metric: Tensor) -> Tensor:
    by_source = values.transpose(-3, -2)  # [... key head e]
    through = (by_source.unsqueeze(-2).unsqueeze(-2) @ metric.unsqueeze(-5)).squeeze(-2)  # [... key head head e]
    return (through * by_source.unsqueeze(-3)).sum(-1)


def ends(
    own: Tensor, every: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor
) -> tuple[Tensor, Tensor]:
    others = through(every - own, norms) * part[..., None]
    return with_residual(own, x, norms, of_branch, part, stream).norm(dim=-1), others.norm(dim=-1)


def own_nearer(
    own: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor, y: Tensor, shift: float
) -> Tensor:
    return (y.abs() - (y + shift - with_residual(own, x, norms, of_branch, part, stream)).abs()).sum(-1)


def with_residual(own: Tensor, x: Tensor | None, norms: Norms, of_branch: int, part: Tensor, stream: Tensor) -> Tensor:
    whole = through(own, norms) * part[..., None]
    return whole if x is None else whole + through(x, norms[of_branch:]) * stream[..., None]


def through(z: Tensor, norms: Norms) -> Tensor:
    """Frozen norms one after the other, without their scales."""
    for gamma, centred in norms:
        z = (z - z.mean(-1, keepdim=True) if centred else z) * gamma
    return z


def normed(u: Tensor, gamma: Tensor, beta: Tensor, eps: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    z = u - u.mean(-1, keepdim=True) if centred else u
    aside = (len(eps), *[1] * (u.dim() - 1))
    reciprocal = 1 / (z.square().mean(-1, keepdim=True) + eps.view(aside)).sqrt()
    across = (len(eps), *[1] * (u.dim() - 2), u.shape[-1])
    return z * reciprocal * gamma.view(across) + beta.view(across), reciprocal


def running(layers: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(layers)
    out[0] = layers[0]
    for index in range(1, len(layers)):
        torch.matmul(layers[index], out[index - 1], out=out[index])
    low, high = torch.aminmax(out.flatten(-2), dim=-1)
    return out, torch.maximum(-low, high)
