"""DeepLift through norms as torch's functions take them: with and without eps, weights and axes, where eps counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_deeplift import multipliers
from torch import Tensor

GAMMA = torch.linspace(-1.2, 1.7, 4, dtype=torch.float64)
EACH = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(
    3, 4
)  # a norm's outputs sum to 0: each gets a weight of its own
NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "layer norm, eps": lambda x: F.layer_norm(x, (4,), eps=1e-3),
    "layer norm, all": lambda x: F.layer_norm(x, (4,), GAMMA, GAMMA, 1e-3),
    "layer norm of two axes": lambda x: F.layer_norm(x, (3, 4)),
    "rms norm": lambda x: F.rms_norm(x, (4,)),
    "rms norm, eps": lambda x: F.rms_norm(x, (4,), eps=1e-3),
    "rms norm, all": lambda x: F.rms_norm(x, (4,), GAMMA, 1e-3),
    "rms norm of two axes": lambda x: F.rms_norm(x, (3, 4), eps=1e-4),
    # These are called as they are given; torch.nn.functional names every argument.
    "torch's layer norm": lambda x: torch.layer_norm(x, (4,)),
    "torch's layer norm, all": lambda x: torch.layer_norm(x, (4,), GAMMA, GAMMA, 1e-3),
    "torch's rms norm": lambda x: torch.rms_norm(x, (4,)),
    "torch's rms norm, all": lambda x: torch.rms_norm(x, (4,), GAMMA, 1e-3),
}


@pytest.mark.parametrize("size", [1.0, 3e-3])
@pytest.mark.parametrize("name", list(NORMS))
def test_a_norm_hands_on_the_whole_change(name: str, size: float) -> None:
    """Also of numbers so small that eps decides what the norm divides by."""
    x, b = size * torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sent, change, unruled = multipliers(lambda both: NORMS[name](both) * EACH, x, b)
    assert unruled == set()
    assert abs(float(change)) > 0.1
    assert float((sent * (x - b)).sum()) == pytest.approx(float(change), abs=1e-12)
