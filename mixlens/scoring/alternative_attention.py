"""Can attention be read off a head's output? (Brunner et al. 2020, On Identifiability in Transformers, section 3.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.doors import door
from ..base.errors import InputError, MixlensError
from ..base.optional import optional
from ..layer import Block, proven_block
from ..methods.identifiability import column_space, effective, transformed
from ..types import Trace


@dataclass(frozen=True)
class Identifiability:
    """One head of one layer: T is the n x d matrix of its value vectors (bias included) through its part of W_O."""

    layer: int
    head: int
    n: int  # tokens that anyone may look at
    d_v: int  # the head's width
    rank: int  # of T
    null_dimension: int  # n - rank: of the left null space of T
    identifiable: bool  # no position has other weights that sum to 1 and give the same output


@dataclass(frozen=True, eq=False)
class Alternative:
    """Other attention weights with which the model puts out the same."""

    layer: int
    head: int
    attention: Tensor  # [query key]: not negative, rows sum to 1, zero where the mask forbids
    distance: Tensor  # [query]: total variation from the model's own weights, 0 to 1
    output_difference: float  # largest change of the layer's output when the model runs with these weights


@door
def identifiability(trace: Trace, *, head: int | None = None) -> list[Identifiability]:
    """Rank, null dimension and identifiability of every head of every layer (or of one head of every layer).

    A head is called identifiable if for every position the left null space of [T, 1], restricted to the tokens this
    position may look at, is empty: then no other weights that sum to 1 give the same output, negative ones included. If
    it is not empty, weights can move along it, and stay in the probability simplex for small steps, since softmax is
    positive everywhere: `alternative_attention` takes the largest steps it finds.
    """
    results = []
    with torch.no_grad():
        for index, layer in enumerate(trace.layers):
            block = proven_block(layer, index)
            _, ranks = effective(block, bias=True)
            constraints, width = _with_ones(block), block.projection.shape[-1]
            alone = torch.ones(len(constraints), dtype=torch.bool, device=constraints.device)  # [head]
            for allowed in torch.unique(block.reach, dim=0):  # as many independent rows of [T, 1] as tokens to look at?
                alone &= column_space(constraints, allowed, width)[1] == allowed.sum()
            for h in _heads(block, head):
                rank, null = int(ranks["rank"][h]), int(ranks["null_dimension"][h])
                results.append(
                    Identifiability(index, h, rank + null, block.values.shape[-1], rank, null, bool(alone[h]))
                )
    return results


def _heads(block: Block, head: Any) -> list[int]:
    heads = block.attention.shape[-3]
    if head is None:
        return list(range(heads))
    if not isinstance(head, int) or isinstance(head, bool) or not 0 <= head < heads:
        raise InputError(
            f"head {head!r} cannot be asked: rank and null space belong to one head, 0 to {heads - 1} (None: each of "
            "them). "
            "There is no mean of them."
        )
    return [head]


def _with_ones(block: Block) -> Tensor:
    """[T, 1], [head key k + 1], the ones as long as T's longest row: the rank is then no matter of T's unit."""
    vectors = transformed(block)
    length = vectors.norm(dim=-1).amax(-1).clamp(min=torch.finfo(vectors.dtype).tiny)
    return torch.cat([vectors, length[:, None, None].expand(*vectors.shape[:-1], 1)], -1)


@door
def alternative_attention(trace: Trace, *, layer: int, head: int, seed: int = 0) -> Alternative:
    """Other weights for one head, as far from the model's own as can be found, and the proof that the output is the
    same.

    For each position: among all a' >= 0 with a'^T [T, 1] = a^T [T, 1] (zero where the mask forbids), corners found by
    linear programs: least overlap with a, directions drawn from `seed`, then uphill from the best in total variation,
    until it grows no more. Largest total variation is not a linear program: this is the farthest found, not the
    farthest there is. Then the model itself runs with these weights in this layer and head.
    """
    trace.model.refuse_layer(layer)
    with torch.no_grad():
        block = proven_block(trace.layers[layer], layer)
        _heads(block, head)
        constraints = _with_ones(block)[head].double().cpu()
        own = block.attention[head].double().cpu()
        reach = block.reach.cpu()
        others = torch.zeros_like(own)
        generator = torch.Generator().manual_seed(seed)
        for i, allowed in enumerate(reach):
            others[i, allowed] = _farthest(own[i, allowed], constraints[allowed], block.projection.shape[-1], generator)
        weights = others.to(block.attention)

        def change(attention: Tensor) -> Tensor:
            attention = attention.clone()
            attention[head] = weights
            return attention

        moved = trace.model.run_with_attention(trace, layer, change)
    difference = float((moved.double() - trace.layers[layer].output.double()).abs().max())
    return Alternative(layer, head, others, (others - own).abs().sum(-1) / 2, difference)


def _farthest(own: Tensor, constraints: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """The corner of {a' >= 0, a'^T C = a^T C} farthest from a = `own` in total variation, of those that are tried."""
    allowed = torch.ones(len(own), dtype=torch.bool)
    basis, rank = column_space(constraints[None], allowed, width)
    basis = basis[0, :, : int(rank[0])]
    best, far = own, 0.0
    if basis.shape[1] == len(own) or len(own) == 1:
        return best
    tried: list[Tensor] = [own, *torch.randn(4, len(own), dtype=torch.float64, generator=generator)]
    while tried:
        corner = _corner(tried.pop(0), basis, own)
        distance = float((corner - own).abs().sum() / 2)
        if distance > far + 1e-12:
            best, far = corner, distance
            tried.append(torch.where(corner > own, -1.0, 1.0).double())  # a step uphill: distance is convex
    return best


def _corner(cost: Tensor, basis: Tensor, own: Tensor) -> Tensor:
    """The cheapest corner. A linear program is exact to 1e-7 only: its support is taken, and its weights solved for
    again.

    Where the support is not clear (weights near 1e-7), a step towards the corner, as long as no weight turns negative.
    """
    optimize = optional(
        "scipy.optimize", "scipy", "analysis", what="alternative attention", verb="needs", error=MixlensError
    )
    answer = optimize.linprog(
        cost.numpy(), A_eq=basis.T.numpy(), b_eq=(basis.T @ own).numpy(), bounds=(0, None), method="highs"
    )
    if answer.x is None:
        return own
    corner = torch.from_numpy(answer.x)
    support = corner > 1e-7
    exact = torch.zeros_like(own)
    exact[support] = torch.linalg.lstsq(basis[support].T, (basis.T @ own)[:, None], driver="gelsd").solution[:, 0]
    if bool((exact >= 0).all()) and float((basis.T @ (exact - own)).abs().max()) < 1e-12:
        return exact
    step = corner - own
    step = step - basis @ (basis.T @ step)
    room = (own / -step)[step < 0]
    return (own + step * min(1.0, float(room.min()) if len(room) else 1.0)).clamp(min=0)
