"""The inner loops, each in a plain form and in a fused one for CPU (C) and GPU (Triton). Same numbers up to rounding.

A fused form is used by itself where it can be built and has been seen to agree with the plain one on this machine;
`MIXLENS_KERNELS=plain` in the environment switches all of them off. Axes: `...` is any number of leading axes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import plain

Loop = Callable[..., Any]


def nearer(attention: Tensor, vectors: Tensor, inverse: Tensor, y: Tensor, *, shift: float = 0.0) -> Tensor:
    """sum_d |y_q| - |y_q + shift - T_qk| for T_qk = inverse_q sum_h attention_hqk vectors_hk, [... query key].

    attention [... head query key], vectors [... head key d], inverse [... query], y [... query d].
    """
    return _form("nearer", attention)(attention, vectors, inverse, y, shift)


def lengths(attention: Tensor, gram: Tensor, inverse: Tensor) -> Tensor:
    """inverse_q sqrt(sum_hg attention_hqk gram_khg attention_gqk), [... query key]: lengths of sums by their Gram matrices.

    attention [... head query key], gram [... key head head], inverse [... query].
    """
    return _form("lengths", attention)(attention, gram, inverse)


def gram(vectors: Tensor) -> Tensor:
    """Inner products of the heads' vectors of each source: [... head key d] -> [... key head head]."""
    return _form("gram", vectors)(vectors)


def fused(name: str, like: Tensor) -> Any:
    """The module with a fused form of a loop that has no plain one of its own, or None."""
    module = _module(like.device.type)
    return module if like.dtype == torch.float32 and not torch.is_grad_enabled() and hasattr(module, name) else None


def used(device: torch.device) -> str:
    """Which form runs on this device: "c", "triton" or "plain"."""
    return "plain" if _module(device.type) is plain else "c" if device.type == "cpu" else "triton"


def _form(name: str, like: Tensor) -> Loop:
    fused = _module(like.device.type)
    known = like.dtype in getattr(fused, "TYPES", {}).get(name, (torch.float32, torch.float64))
    if not known or torch.is_grad_enabled():
        fused = plain
    return getattr(fused, name, None) or getattr(plain, name)


@cache
def _module(device_type: str) -> Any:
    """The fused forms for a kind of device, if they can be built and are right; else the plain ones."""
    if os.environ.get("MIXLENS_KERNELS", "") == "plain":
        return plain
    try:
        fused = _build(device_type)
    except Exception as error:  # no compiler, no Triton, an unknown processor: never a reason to stop
        warnings.warn(f"the fused {device_type} loops cannot be built ({error}); the plain ones are used.", stacklevel=4)
        return plain
    if fused is not None and (wrong := disagreements(fused, device_type)):
        warnings.warn(f"the fused {device_type} loops are wrong here ({wrong}); the plain ones are used.", stacklevel=4)
        return plain
    return fused or plain


def _build(device_type: str) -> Any:
    if device_type == "cpu":
        from . import cpu

        return cpu if cpu.library() is not None else None
    if device_type == "cuda":
        from . import gpu

        return gpu if gpu.available() else None
    return None


@torch.no_grad()
def disagreements(fused: Any, device_type: str) -> list[str]:
    """Names of fused loops that do not give what the plain ones give in float64, on a small random case."""
    found = []
    seeded = torch.Generator().manual_seed(0)
    for dtype, close in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        batch, heads, n, d = 2, 3, 37, 75

        def draw(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.rand(*shape, generator=seeded, dtype=torch.float64).to(dtype).to(device_type) - 0.3

        attention, vectors = draw(batch, heads, n, n).relu(), draw(batch, heads, n, d)
        inverse, y = draw(batch, n) + 1, draw(batch, n, d)
        gram = vectors.transpose(-3, -2) @ vectors.transpose(-3, -2).mT
        given = {"nearer": (attention, vectors, inverse, y, -1e-2), "lengths": (attention, gram, inverse), "gram": (vectors,)}
        for name, arguments in given.items():
            if getattr(fused, name, None) is None or dtype not in getattr(fused, "TYPES", {}).get(name, (dtype,)):
                continue
            exact = getattr(plain, name)(*(a.double() if isinstance(a, Tensor) else a for a in arguments))
            apart = (getattr(fused, name)(*arguments) - exact).abs().max() / exact.abs().max()
            if not float(apart) <= close:
                found.append(f"{name}, {str(dtype).removeprefix('torch.')}: {float(apart):.0e} apart")
    return found
