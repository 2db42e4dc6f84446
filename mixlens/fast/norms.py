"""Frozen norms that are kept with their modules, the norms of several layers as one, and the names of chains of
norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..layer.norms import Chain, FrozenNorm
from ..model.kept import Kept, Used
from . import loops


class StackedNorm(FrozenNorm):
    """The norms of several layers as one: gamma and beta [layer d], eps [layer]."""

    def gamma_beside(self, z: Tensor) -> Tensor:
        return beside(self.gamma, z)

    def eps_beside(self, z: Tensor) -> Any:
        return beside(self.eps[:, None], z)

    def with_reciprocal(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return loops.normed(u, self.gamma, self.beta, self.eps, self.centred)

    def __call__(self, u: Tensor) -> Tensor:
        return self.numerator(u) / self.scale(u) + beside(self.beta, u)


def beside(parameter: Tensor, z: Tensor) -> Tensor:
    """[layer d] with axes of one, so that it broadcasts against z [layer ... d]."""
    return parameter.view(parameter.shape[0], *[1] * (z.dim() - 2), parameter.shape[-1])


def known_norm(kept: Kept, module: nn.Module, like: Tensor, dtype: torch.dtype, used: Used) -> FrozenNorm:
    """The frozen norm of a module, asked once as long as the module is the same. `dtype`: the number type that it
    reads."""

    def make() -> FrozenNorm:
        norm = FrozenNorm.of(module, like.shape[-1], like.dtype)
        return replace(norm, gamma=norm.gamma.to(like.device), beta=norm.beta.to(like.device))

    return kept.recall([module], ("norm", like.dtype, like.device), make, width=like.shape[-1], dtype=dtype, used=used)


def stacked_norm(
    kept: Kept, modules: Sequence[nn.Module], norms: Sequence[FrozenNorm], dtype: torch.dtype, used: Used
) -> FrozenNorm:
    """The norms of several layers as one."""

    def make() -> tuple[Sequence[FrozenNorm], FrozenNorm]:  # the norms are kept too, so that an id means one norm
        gamma, beta = (torch.stack([getattr(norm, name) for norm in norms]) for name in ("gamma", "beta"))
        eps = torch.tensor([norm.eps for norm in norms]).to(gamma, non_blocking=True)
        return norms, StackedNorm(gamma, beta, norms[0].centred, eps)

    key = ("norms", tuple(id(norm) for norm in norms))
    return kept.recall(modules, key, make, width=norms[0].gamma.shape[-1], dtype=dtype, used=used)[1]


def name_of(chain: Chain) -> tuple[int, ...]:
    """Chains with one name do the same to a part."""
    return tuple(id(norm) for norm in (*chain.branch, *chain.stream))
