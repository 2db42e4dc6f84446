"""Norms with their statistics held still, and the chains of norms that a part passes on its way to a stage of the layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..model.offload import own_copy, place_of
from ..rounding import HALF

PROBE_LENGTH = 2.0**27  # a power of two, so that the answer is exact; eps is nothing beside its square


@dataclass(frozen=True)
class FrozenNorm:
    """A normalisation with its statistics held still: g(z) = gamma * C z / s_i, a linear map divided by the target's scale.

    C subtracts the mean (layer norm) or nothing (RMS norm). Nothing is read off the module: gamma, beta, C and eps
    are found by calling it on vectors whose answer tells them, so any norm of this form works, whatever its class.
    """

    gamma: Tensor  # [d], or [layer d] for the norms of several layers
    beta: Tensor  # belongs to no token
    centred: bool
    eps: Any  # a number, or [layer]

    @staticmethod
    @torch.no_grad()
    def of(module: nn.Module, width: int, dtype: torch.dtype) -> FrozenNorm:
        """The module as a frozen norm, in this number type."""
        weights = next(module.parameters(), None)
        if weights is not None and weights.dtype != torch.float64:
            try:  # asked in float64, where a large beta does not cost gamma its digits
                return _asked(own_copy(module).double(), width, dtype, torch.float64)
            except RuntimeError:  # its code insists on a number type
                if weights.dtype in HALF:
                    return _asked(own_copy(module).float(), width, dtype, torch.float32)
        return _asked(module, width, dtype, dtype if weights is None else weights.dtype)

    @property
    def without_gamma(self) -> FrozenNorm:
        return replace(self, gamma=torch.ones_like(self.gamma))

    def numerator(self, z: Tensor) -> Tensor:
        """gamma * C z."""
        return (z - z.mean(-1, keepdim=True) if self.centred else z) * beside(self.gamma, z)

    def scale(self, u: Tensor, *, eps: bool = True, unbiased: bool = False) -> Tensor:
        """s_i, the target's scalar, [... pos 1]. Released code of ALTI leaves eps out, or divides by d - 1."""
        centred = u - u.mean(-1, keepdim=True) if self.centred else u
        variance = centred.norm(dim=-1, keepdim=True).pow(2) / (u.shape[-1] - int(unbiased))
        if not eps:
            return variance.sqrt()
        return (variance + (beside(self.eps[:, None], u) if isinstance(self.eps, Tensor) else self.eps)).sqrt()

    def with_reciprocal(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """g(u) + beta, [... pos d], and the reciprocal of the scale, 1 / s_i, [... pos 1]."""
        if self.centred and self.gamma.dim() == 1:
            normed, _, reciprocal = torch.native_layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
            return normed, reciprocal
        reciprocal = 1 / self.scale(u)
        return self.numerator(u) * reciprocal + beside(self.beta, u), reciprocal

    def __call__(self, u: Tensor) -> Tensor:
        if self.centred and self.gamma.dim() == 1:
            return nn.functional.layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
        return self.numerator(u) / self.scale(u) + beside(self.beta, u)


def _asked(module: nn.Module, width: int, dtype: torch.dtype, input_dtype: torch.dtype) -> FrozenNorm:
    """gamma, beta, C and eps from the module's answers to vectors of alternating sign: long, shifted, and ever shorter."""
    device = place_of(module)
    signs = torch.ones(2, width, dtype=input_dtype, device=device)
    signs[:, 1::2] = -1
    if width % 2:  # mean zero needs an even number of entries: leave the last out, then the first
        signs[0, -1] = 0
        signs[1] = -signs[0].roll(1)
    size = float(signs[0].pow(2).mean().sqrt())
    short = 2.0 ** -torch.arange(0, 24, dtype=input_dtype, device=device)
    long = signs * PROBE_LENGTH
    probes = torch.cat([torch.zeros_like(signs[:1]), long, long[:1] + PROBE_LENGTH, signs[:1] * short[:, None]])
    answers = module(probes[None])[0]
    beta = answers[0]
    first, second, shifted = answers[1] - beta, answers[2] - beta, answers[3] - beta
    gamma = torch.where(signs[0] != 0, first * signs[0], second * signs[1]) * size
    largest = gamma.abs().argmax().clamp(max=width - 1 - width % 2)
    ratios = ((answers[4:, largest] - beta[largest]) / first[largest]).double()
    pick = int((ratios - 0.7).abs().argmin())
    eps = (float(short[pick]) * size) ** 2 * (1 / float(ratios[pick]) ** 2 - 1)
    centred = bool(torch.allclose(shifted, first, rtol=1e-3, atol=1e-6 * float(first.abs().max())))
    return FrozenNorm(gamma.to(dtype), beta.to(dtype), centred, max(eps, 0.0))


def beside(parameter: Tensor, z: Tensor) -> Tensor:
    """[d] as it is; [layer d] with axes of one, so that it broadcasts against z [layer ... d]."""
    if parameter.dim() == 1:
        return parameter
    return parameter.view(parameter.shape[0], *[1] * (z.dim() - 2), parameter.shape[-1])


@dataclass(frozen=True, eq=False)
class Chain:
    """The frozen norms that attention's parts pass on the way to a stage of the layer.

    A part passes the branch's norms and the stream's; the residual only the stream's.
    """

    branch: tuple[FrozenNorm, ...]
    stream: tuple[FrozenNorm, ...]
    branch_reciprocal: Tensor | None  # of the product of the branch norms' scales, [... query]; None: one
    stream_reciprocal: Tensor | None

    def part(self, z: Tensor) -> Tensor:
        """The numerators of all norms on a part, without their scales."""
        return numerators((*self.branch, *self.stream), z)

    def residual(self, x: Tensor) -> Tensor:
        """The numerators of the stream's norms on the residual, without their scales."""
        return numerators(self.stream, x)

    @property
    def part_reciprocal(self) -> Tensor | None:
        """What a part is multiplied by, [... query]; None: one."""
        if self.branch_reciprocal is None or self.stream_reciprocal is None:
            return self.stream_reciprocal if self.branch_reciprocal is None else self.branch_reciprocal
        return self.branch_reciprocal * self.stream_reciprocal


def numerators(norms: Sequence[FrozenNorm], z: Tensor) -> Tensor:
    """The numerators of all norms, one after the other."""
    for norm in norms:
        z = norm.numerator(z)
    return z
