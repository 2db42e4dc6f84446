"""Directions pushed through a model, sooner: what forward-mode differentiation multiplies without need is left out.

Of a linear map y = x W + b with a direction t at x, torch computes three products: x W, t W, and x times the tangent of
W, which is zero. Here the third is left out, and x W is computed once where all copies of a text hold the same x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def with_direction(x: Tensor, others: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
    """x [... d] and the direction at it; None where x has none, or where a weight or bias has one too."""
    if any(isinstance(one, Tensor) and forward_ad.unpack_dual(one).tangent is not None for one in others):
        return None
    value, direction = forward_ad.unpack_dual(x)
    return None if direction is None else (value, direction)


def alike(x: Tensor) -> bool:
    """Whether all copies in x [copy pos d] are the same numbers."""
    return x.dim() == 3 and len(x) > 1 and bool((x == x[:1]).all())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """torch's `linear` of a dual x."""
    pair = with_direction(x, (weight, bias))
    if pair is None:
        return None
    value, direction = pair
    once = functional.linear(value[:1] if alike(value) else value, weight, bias)
    moved = functional.linear(direction, weight)
    return forward_ad.make_dual(once.repeat(len(value), 1, 1) if len(once) != len(value) else once, moved)


def addmm(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor | None:
    """torch's `addmm` of a dual x [row d]: the linear map of GPT-2."""
    pair = with_direction(x, (weight, bias))
    return None if pair is None else forward_ad.make_dual(torch.addmm(bias, pair[0], weight), pair[1] @ weight)


FORMS: dict[Any, Callable[..., Tensor | None]] = {functional.linear: linear, torch.addmm: addmm}


class LinearTangents(TorchFunctionMode):
    """While it is active, linear maps of plain tensors take the forms above; everything else is torch's."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        form = FORMS.get(function)
        if form is not None and not kwargs and all(kind in (Tensor, torch.nn.Parameter) for kind in types):
            found = form(*args)
            if found is not None:
                return found
        return function(*args, **(kwargs or {}))
