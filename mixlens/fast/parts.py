"""The same parts by fused loops and small Gram matrices: |P z_ij|^2 = a_ij^T G_j a_ij with G_j = <P f^h_j, P f^g_j>."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import layer as plain_layer
from ..base.budget import tiles
from . import loops

if TYPE_CHECKING:
    from .block import Block


class Parts(plain_layer.Parts):
    """`layer.Parts` without a loop over sources."""

    block: Block

    def lengths_of_parts(self) -> Tensor:
        """|P z_ij| / p_i, without the residual, [... query key]; computed once for all stages with the same norms."""
        scales = (self.chain.branch_reciprocal, self.chain.stream_reciprocal)
        name = tuple(id(one) for one in (*self.chain.branch, *self.chain.stream, *scales))
        known = self.block.part_lengths
        if name not in known:
            lengths = loops.lengths(self.block.attention, self.block.gram(self.chain), self.reciprocals[0])
            known[name] = self.chain, lengths  # the chain is held too, so that these ids stay its own
        return known[name][1]

    def lengths(self) -> Tensor:
        lengths = self.lengths_of_parts().clone()
        lengths.diagonal(dim1=-2, dim2=-1).copy_(self.ends[0])  # the residual is there alone
        return lengths

    def others(self) -> Tensor:
        return self.ends[1]

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """|w_ii| and |sum_{j != i} w_ij|, [... pos]."""
        block, chain = self.block, self.chain
        x = block.x if self.residual else None
        return loops.ends(block.own_part, block.all_parts, x, self.norms, len(chain.branch), *self.reciprocals)

    def nearer(self, y: Tensor, shift: float = 0.0) -> Tensor:
        block, (part, stream) = self.block, self.reciprocals
        scores = self.nearer_of_others(y, shift)
        x = block.x if self.residual else None
        own = loops.own_nearer(block.own_part, x, self.norms, len(self.chain.branch), part, stream, y, shift=shift)
        scores.diagonal(dim1=-2, dim2=-1).copy_(own)  # the residual is there alone
        return scores

    def nearer_of_others(self, y: Tensor, shift: float) -> Tensor:
        """`nearer` without the residual; a few examples (or layers) at a time."""
        block, chain, reciprocal = self.block, self.chain, self.reciprocals[0]
        if y.dim() < 3 or torch.is_grad_enabled():
            return loops.nearer(block.attention, block.by_head(chain), reciprocal, y, shift=shift)
        scores = [
            loops.nearer(block.attention[some], block.by_head(chain, some), reciprocal[some], y[some], shift=shift)
            for some in self.examples_at_once(y)
        ]
        return torch.cat(scores) if len(scores) > 1 else scores[0]

    def examples_at_once(self, y: Tensor) -> Iterator[slice]:
        """The examples (or layers) whose vectors are held at once. A GPU is busy with a quarter of its tile."""
        each = self.block.values[0, ..., 0].numel() * y.shape[-1]
        if y.device.type == "cpu":
            return tiles(len(y), each, y.device, times=8)
        return tiles(len(y), 4 * each, y.device)

    @property
    def norms(self) -> list[tuple[Tensor, bool]]:
        """All norms, the branch's first, as the loops take them: gamma as it broadcasts, and whether the mean is
        subtracted."""
        return [(norm.gamma_beside(self.block.x), norm.centred) for norm in (*self.chain.branch, *self.chain.stream)]

    reciprocals = cached_property(plain_layer.Parts.reciprocals.fget)  # type: ignore[attr-defined]
