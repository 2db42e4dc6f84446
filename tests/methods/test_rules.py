"""Books of rules: every way to write a function has one name there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_deeplift import multipliers
from torch import Tensor

from mixlens.methods._backward_rules import name_of

NAMES: list[tuple[Any, str, bool]] = [  # function, the book's name, in place
    (torch.add, "add", False),
    (Tensor.add_, "add", True),
    (Tensor.__add__, "add", False),
    (Tensor.__radd__, "add", False),
    (Tensor.__iadd__, "add", True),
    (Tensor.__isub__, "sub", True),
    (Tensor.__imul__, "mul", True),
    (Tensor.__itruediv__, "div", True),
    (Tensor.__ipow__, "pow", True),
    (Tensor.__matmul__, "matmul", False),
    (Tensor.__rmatmul__, "matmul", False),
    (Tensor.__neg__, "neg", False),
    (torch.negative, "neg", False),
    (Tensor.__getitem__, "getitem", False),
    (torch.special.expit, "sigmoid", False),
    (Tensor.relu_, "relu", True),
]


@pytest.mark.parametrize(("function", "name", "in_place"), NAMES)
def test_a_function_has_one_name(function: Any, name: str, in_place: bool) -> None:
    assert name_of(function) == (name, in_place)


def added(x: Tensor) -> Tensor:
    y = x * 1
    y += x * x
    y -= 2 * x.exp()
    y *= x
    y /= x * x + 1
    return y


def powered(x: Tensor) -> Tensor:
    y = x * 1
    y **= 2
    return y


@pytest.mark.parametrize("function", [added, powered])
def test_what_is_written_in_place_hands_on_the_whole_change(function: Callable[[Tensor], Tensor]) -> None:
    x, b = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sent, change, unruled = multipliers(function, x, b)
    assert unruled == set()
    assert float((sent * (x - b)).sum()) == pytest.approx(float(change), abs=1e-11)
