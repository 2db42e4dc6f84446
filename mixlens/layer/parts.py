"""w_ij: what source j brought to target i at a stage of the layer. Every norm method and ALTI read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .norms import Chain

if TYPE_CHECKING:
    from .block import Block


class Parts:
    """w_ij = P z_ij / p_i, plus R x_i / r_i where i = j and the stage has the residual in it.

    P are all norms of the chain and p_i the product of their scales at i; R and r_i those on the stream alone. The
    parts are never held for all pairs: ask for what is needed.
    """

    def __init__(self, block: Block, chain: Chain, *, residual: bool):
        self.block, self.chain, self.residual = block, chain, residual

    def scaled(self, scale: Tensor) -> Parts:
        """The same parts with another scale [... pos 1] in place of that of the stream's norms."""
        return type(self)(self.block, replace(self.chain, stream_reciprocal=1 / scale[..., 0]), residual=self.residual)

    def each(self) -> Iterator[tuple[int, Tensor]]:
        """One source after the other: (j, w_.j [... query d])."""
        part, stream = self.reciprocals
        own = self.chain.residual(self.block.x) * stream[..., None]  # [... pos d]
        for source in range(self.block.attention.shape[-1]):
            vectors = self.chain.part(self.block.part(source)) * part[..., None]
            target = source - self.block.first_target  # where this source is itself a target
            if self.residual and 0 <= target < own.shape[-2]:
                vectors[..., target, :] += own[..., target, :]
            yield source, vectors

    def lengths(self) -> Tensor:
        """|w_ij|, [... query key]."""
        return torch.stack([vectors.norm(dim=-1) for _, vectors in self.each()], -1)

    def nearer(self, y: Tensor, shift: float = 0.0) -> Tensor:
        """sum_d |y_i| - |y_i + shift - w_ij|, coordinate by coordinate, [... query key]; y [... query d]."""
        return torch.stack([(y.abs() - (y + shift - vectors).abs()).sum(-1) for _, vectors in self.each()], -1)

    def head_lengths(self, head: int) -> Tensor:
        """|P a^h_ij f^h_j| / p_i of one head, [... query key]: a^h_ij |P f^h_j| / p_i, for a weight only scales its
        vector.

        The residual, b_O and the norms' biases belong to no head and are in none of them.
        """
        block = self.block
        vectors = self.chain.part(
            block.values[..., head, :, :] @ block.projection[..., head, :, :]
        )  # P f^h_j, [... key d]
        return block.attention[..., head, :, :] * vectors.norm(dim=-1).unsqueeze(-2) * self.reciprocals[0].unsqueeze(-1)

    def others(self) -> Tensor:
        """|sum_{j != i} w_ij|, [... query]."""
        whole = self.chain.part(self.block.all_parts - self.block.own_part)
        return (whole * self.reciprocals[0][..., None]).norm(dim=-1)

    @property
    def reciprocals(self) -> tuple[Tensor, Tensor]:
        """What the chain multiplies a part by, 1 / p_i, and the residual, 1 / r_i, [... pos]."""
        branch, stream = self.chain.branch_reciprocal, self.chain.stream_reciprocal
        stream = torch.ones_like(self.block.x[..., 0]) if stream is None else stream
        return stream if branch is None else branch * stream, stream
