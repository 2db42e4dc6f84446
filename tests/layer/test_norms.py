"""Frozen norms of hard cases: entries of gamma that are zero, large shifts, odd widths, other number types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from mixlens.layer import norms


class Norm(nn.Module):
    """A norm of no known class."""

    def __init__(self, gamma: Tensor, beta: Tensor, eps: float, *, centred: bool):
        super().__init__()
        self.scales, self.shifts = nn.Parameter(gamma), nn.Parameter(beta)
        self.eps, self.centred = eps, centred

    def forward(self, u: Tensor) -> Tensor:
        u = u - u.mean(-1, keepdim=True) if self.centred else u
        return u / (u.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.scales + self.shifts


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("width", [2, 3, 8, 9])
@pytest.mark.parametrize("zeros", ["none", "first", "last", "all but one"])
def test_gamma_beta_and_eps_are_found_with_shifts_and_zeros(zeros: str, width: int, centred: bool) -> None:
    """Even and odd widths: entries that no probe of one sign reaches are found by the second one."""
    generator = torch.Generator().manual_seed(width)
    gamma = torch.rand(width, generator=generator, dtype=torch.float64) + 0.5
    beta = 10 * torch.randn(width, generator=generator, dtype=torch.float64)
    places = {"none": [], "first": [0], "last": [-1], "all but one": list(range(1, width))}[zeros]
    gamma[places] = 0
    gamma[
        width // 2 if not places else 0 if zeros == "all but one" else width // 2 if width > 2 else 1 + places[0]
    ] *= -2
    for eps in (1e-6, 0.3):
        module = Norm(gamma, beta, eps, centred=centred)
        found = norms.FrozenNorm.of(module, width, torch.float64)
        assert found.centred == centred
        # Answers of 1e8 times a probe's length lose some digits to a shift of 10: 1e-7 of gamma, and more of eps.
        torch.testing.assert_close(found.beta, beta, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found.gamma, gamma, rtol=1e-7, atol=1e-7)
        assert found.eps == pytest.approx(eps, rel=1e-4)
        u = torch.randn(4, width, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(found(u), module(u).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [nn.LayerNorm, LlamaRMSNorm, Gemma2RMSNorm])
def test_norms_in_other_number_types_are_asked_in_float64(kind: Any, dtype: torch.dtype) -> None:
    """gamma is what the number type holds, to the last bit, though beta is large; Gemma's is 1 + weight."""
    torch.manual_seed(0)
    module, centred = kind(8).to(dtype), kind is nn.LayerNorm
    with torch.no_grad():
        module.weight.copy_(torch.randn(8))
        if centred:
            module.bias.copy_(100 * torch.randn(8))
    found = norms.FrozenNorm.of(module, 8, torch.float32)
    gamma = module.weight.detach().float() + (kind is Gemma2RMSNorm)
    beta = module.bias.detach().float() if centred else torch.zeros(8)
    torch.testing.assert_close(found.gamma, gamma, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.beta, beta, rtol=0, atol=0)
    assert found.centred == centred
    assert module.weight.dtype == dtype
    assert found.gamma.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_whose_code_knows_no_float64_is_asked_in_float32(dtype: torch.dtype) -> None:
    """Such code, fused for a GPU most often, takes numbers of its weights' own type alone."""

    class Fused(Norm):
        def forward(self, u: Tensor) -> Tensor:
            if u.dtype != self.scales.dtype or u.dtype == torch.float64:
                raise RuntimeError(f"no loop for {u.dtype} with {self.scales.dtype}")
            return super().forward(u)

    torch.manual_seed(0)
    gamma, beta = torch.randn(8).to(dtype), torch.randn(8).to(dtype)
    found = norms.FrozenNorm.of(Fused(gamma, beta, 1e-3, centred=True), 8, torch.float32)
    torch.testing.assert_close(
        found.gamma, gamma.float(), rtol=1e-5, atol=1e-5
    )  # float32: answers less a beta of their size
    torch.testing.assert_close(found.beta, beta.float(), rtol=0, atol=0)
    assert found.eps == pytest.approx(1e-3, rel=1e-3)
