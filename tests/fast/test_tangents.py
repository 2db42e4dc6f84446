"""Directions pushed through a model: linear maps without products by zero give the tangents of torch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from conftest import DISTINCT, ids, loaded, needs_fast
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import mixlens
from mixlens.fast import tangents

MADE = torch.Generator().manual_seed(3)
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=MADE, dtype=torch.float64)


class Multiplications(TorchDispatchMode):
    """Counts rows that were multiplied by a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in PRODUCTS:
            self.rows["all"] += len(args[-2])
        return function(*args, **(kwargs or {}))


def pushed(function: Any, x: torch.Tensor, direction: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The value and the tangent of function(x, *others)."""
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, direction), *others))
        return value.clone(), tangent.clone()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_a_linear_map_has_the_value_and_tangent_of_torch(same: bool, bias: bool) -> None:
    x = drawn(1, 4, 6).repeat(3, 1, 1) if same else drawn(3, 4, 6)
    given = (x, drawn(3, 4, 6), drawn(5, 6), drawn(5) if bias else None)
    expected = pushed(functional.linear, *given)
    with tangents.LinearTangents():
        made = pushed(functional.linear, *given)
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)


def test_a_weight_that_has_a_tangent_of_its_own_is_torch_s_business() -> None:
    x, weight, directions = drawn(3, 4, 6), drawn(5, 6), (drawn(3, 4, 6), drawn(5, 6))

    def both(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, forward_ad.make_dual(weight, directions[1]))

    with tangents.LinearTangents():
        _, tangent = pushed(both, x, directions[0])
    torch.testing.assert_close(tangent, directions[0] @ weight.t() + x @ directions[1].t(), rtol=1e-12, atol=1e-12)


def test_outside_of_a_pass_with_directions_nothing_changes() -> None:
    x, weight = drawn(3, 4, 6), drawn(5, 6)
    with tangents.LinearTangents():
        torch.testing.assert_close(functional.linear(x, weight), x @ weight.t(), rtol=1e-12, atol=1e-12)


def test_equal_copies_are_multiplied_once_and_nothing_by_zero() -> None:
    x, direction, weight = drawn(1, 4, 6).repeat(10, 1, 1), drawn(10, 4, 6), drawn(5, 6)
    with tangents.LinearTangents(), Multiplications() as counted:
        pushed(functional.linear, x, direction, weight, None)
    assert counted.rows["all"] == 4 + 10 * 4  # x once, every direction


@needs_fast
@pytest.mark.parametrize("case", DISTINCT)
def test_hta_is_the_same_with_and_without(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Families that differ, by random directions (the exact form pushes others through the same passes)."""
    trace = loaded(case).trace(input_ids=ids(5))
    sooner = mixlens.mix(trace, "hta", probes=3)
    monkeypatch.setenv("MIXLENS_FAST", "off")
    plain = mixlens.mix(trace, "hta", probes=3)
    # Gemma and OLMo compute a norm in float32: their numbers agree as far as that.
    torch.testing.assert_close(sooner.info["raw"], plain.info["raw"], rtol=1e-5, atol=1e-7)
