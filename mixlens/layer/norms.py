"""Norms with their statistics held still, and the chains of norms that a part passes on its way to a stage of the
layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..base.rounding import HALF
from ..model.offload import own_copy, place_of

PROBE_LENGTH = 2.0**27  # a power of two, so that the answer is exact; eps is nothing beside its square


@dataclass(frozen=True)
class FrozenNorm:
    """A normalisation with its statistics held still: g(z) = gamma * C z / s_i, a linear map divided by the target's
    scale.

    C subtracts the mean (layer norm) or nothing (RMS norm). Nothing is read off the module: gamma, beta, C and eps
    are found by calling it on vectors whose answer tells them, so any norm of this form works, whatever its class.
    """

    gamma: Tensor  # [d]
    beta: Tensor  # [d]: belongs to no token
    centred: bool
    eps: Any  # a number

    @staticmethod
    @torch.no_grad()
    def of(module: nn.Module, width: int, dtype: torch.dtype) -> FrozenNorm:
        """The module as a frozen norm, in this number type."""
        weights = next(module.parameters(), None)
        if weights is None or weights.dtype == torch.float64:
            return _asked(module, width, dtype, dtype if weights is None else weights.dtype)
        try:  # asked in float64, where a large beta does not cost gamma its digits
            return _asked(own_copy(module).double(), width, dtype, torch.float64)
        except RuntimeError:  # its code insists on a number type
            half = weights.dtype in HALF
        return _asked(
            own_copy(module).float() if half else module, width, dtype, torch.float32 if half else weights.dtype
        )

    @property
    def without_gamma(self) -> FrozenNorm:
        return replace(self, gamma=torch.ones_like(self.gamma))

    def gamma_beside(self, z: Tensor) -> Tensor:
        """gamma as it broadcasts against z [... d]."""
        return self.gamma

    def eps_beside(self, z: Tensor) -> Any:
        """eps as it broadcasts against z [... d]."""
        return self.eps

    def numerator(self, z: Tensor) -> Tensor:
        """gamma * C z."""
        return (z - z.mean(-1, keepdim=True) if self.centred else z) * self.gamma_beside(z)

    def scale(self, u: Tensor, *, eps: bool = True, unbiased: bool = False) -> Tensor:
        """s_i, the target's scalar, [... pos 1]. Released code of ALTI leaves eps out, or divides by d - 1."""
        centred = u - u.mean(-1, keepdim=True) if self.centred else u
        variance = centred.norm(dim=-1, keepdim=True).pow(2) / (u.shape[-1] - int(unbiased))
        return (variance + self.eps_beside(u)).sqrt() if eps else variance.sqrt()

    def with_reciprocal(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """g(u) + beta, [... pos d], and the reciprocal of the scale, 1 / s_i, [... pos 1]."""
        if self.centred:
            normed, _, reciprocal = torch.native_layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
            return normed, reciprocal
        reciprocal = 1 / self.scale(u)
        return self.numerator(u) * reciprocal + self.beta, reciprocal

    def __call__(self, u: Tensor) -> Tensor:
        if self.centred:
            return nn.functional.layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
        return self.numerator(u) / self.scale(u) + self.beta


def _asked(module: nn.Module, width: int, dtype: torch.dtype, input_dtype: torch.dtype) -> FrozenNorm:
    """gamma, beta, C and eps from the module's answers to vectors of alternating sign: long, shifted, and ever
    shorter."""
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


def numerators(norms: Sequence[FrozenNorm], z: Tensor) -> Tensor:
    """The numerators of all norms, one after the other."""
    for norm in norms:
        z = norm.numerator(z)
    return z
