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

from ..switch import is_off
from . import plain

Loop = Callable[..., Any]


def nearer(attention: Tensor, vectors: Tensor, reciprocal: Tensor, y: Tensor, *, shift: float = 0.0) -> Tensor:
    """sum_d |y_q| - |y_q + shift - T_qk| for T_qk = reciprocal_q sum_h attention_hqk vectors_hk, [... query key].

    attention [... head query key], vectors [... head key d], reciprocal [... query], y [... query d].
    """
    return _form("nearer", attention)(attention, vectors, reciprocal, y, shift)


def lengths(attention: Tensor, gram: Tensor, reciprocal: Tensor) -> Tensor:
    """reciprocal_q sqrt(sum_hg attention_hqk gram_khg attention_gqk), [... query key]: lengths of sums by their Gram
    matrices.

    attention [... head query key], gram [... key head head], reciprocal [... query].
    """
    return _form("lengths", attention)(attention, gram, reciprocal)


def gram(vectors: Tensor) -> Tensor:
    """Inner products of the heads' vectors of each source: [... head key d] -> [... key head head]."""
    return _form("gram", vectors)(vectors)


def inner(values: Tensor, metric: Tensor) -> Tensor:
    """<v_kh, metric_hg v_kg>, [... key head head]: `gram` of vectors that are linear in v, without the vectors.

    values [... head key e], metric [head head e e] (or [layer ... head head e e]), symmetric: metric_hg is metric_gh^T.
    """
    return _form("inner", values)(values, metric)


def ends(
    own: Tensor, every: Tensor, x: Tensor | None, norms: plain.Norms, of_branch: int, part: Tensor, stream: Tensor
) -> tuple[Tensor, Tensor]:
    """Lengths [... pos] of part P own + stream R x, and of part P (every - own), for frozen norms P and R.

    own, every, x [... pos d] (x None: no residual); P is all `norms`, R those behind the first `of_branch`; part,
    stream [... pos]: what the norms divide by, as reciprocals.
    """
    return _form("ends", own)(own, every, x, norms, of_branch, part, stream)


def own_nearer(
    own: Tensor,
    x: Tensor | None,
    norms: plain.Norms,
    of_branch: int,
    part: Tensor,
    stream: Tensor,
    y: Tensor,
    *,
    shift: float = 0.0,
) -> Tensor:
    """sum_d |y| - |y + shift - T| for T = part P own + stream R x, [... pos]: `nearer` of a target itself. See
    `ends`."""
    return _form("own_nearer", own)(own, x, norms, of_branch, part, stream, y, shift)


def apart(rebuilt: Tensor, added: Tensor | None, seen: Tensor, layers: int | None = None) -> Tensor:
    """How far rebuilt + added is from seen [... pos d], relative to each token: a number, or [layer]. NaN where one is
    NaN.

    For each token the root mean square, over features k, of |difference_k| / max(|seen_k|, size), where the token's
    size is (mean_k sqrt|seen_k|)^2. The largest of all tokens counts. So neither a token nor a feature with huge
    entries hides an error elsewhere. added [d] or [layer ... d]; the first axis is `layers` where they are named.
    """
    return _form("apart", rebuilt)(rebuilt, added, seen, layers)


def normed(u: Tensor, gamma: Tensor, beta: Tensor, eps: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """A norm on u [layer ... d] and what it multiplies by, [layer ... 1]; gamma, beta [layer d], eps [layer]."""
    return _form("normed", u)(u, gamma, beta, eps, centred)


def running(layers: Tensor) -> tuple[Tensor, Tensor]:
    """M_1, M_2 M_1, M_3 M_2 M_1, ... of layers [layer ... n n], and the largest magnitude in each, [layer ...]."""
    if layers.dim() == 4 and layers.shape[1] == 1:
        products, sizes = running(layers[:, 0])
        return products[:, None], sizes[:, None]
    return _form("running", layers)(layers)


def fused(name: str, like: Tensor) -> Any:
    """The module with a fused form of a loop, for what is done in another way without it; or None."""
    module = _module(like.device.type)
    usable = hasattr(module, name) and like.dtype == torch.float32 and not torch.is_grad_enabled()
    return module if usable and module is not plain else None


def used(device: torch.device) -> str:
    """Which form runs on this device: "c", "triton" or "plain"."""
    if _module(device.type) is plain:
        return "plain"
    return "c" if device.type == "cpu" else "triton"


def _form(name: str, like: Tensor) -> Loop:
    module = _module(like.device.type)
    if torch.is_grad_enabled() or not _has_loop(module, name, like.dtype):
        module = plain
    return getattr(module, name)


def _has_loop(module: Any, name: str, dtype: torch.dtype) -> bool:
    """Is there a loop of this name, written for this number type?"""
    types = getattr(module, "TYPES", {}).get(name, (torch.float32, torch.float64))
    return dtype in types and getattr(module, name, None) is not None


@cache
def _module(device_type: str) -> Any:
    """The fused forms for a kind of device, if they can be built and are right; else the plain ones."""
    if os.environ.get("MIXLENS_KERNELS", "") == "plain" or is_off():
        return plain
    try:
        module = BUILDERS[device_type]() if device_type in BUILDERS else None  # None: there is no compiler for it
    except Exception as error:  # no compiler, no Triton, an unknown processor: never a reason to stop
        warnings.warn(
            f"the fused {device_type} loops cannot be built ({error}); the plain ones are used.", stacklevel=4
        )
        return plain
    wrong = [] if module is None else disagreements(module, device_type)
    if wrong:
        warnings.warn(f"the fused {device_type} loops are wrong here ({wrong}); the plain ones are used.", stacklevel=4)
    return plain if module is None or wrong else module


def _build_cpu() -> Any:
    from . import cpu

    return cpu if cpu.library() is not None else None


def _build_gpu() -> Any:
    from . import gpu

    return gpu if gpu.available() else None


BUILDERS = {"cpu": _build_cpu, "cuda": _build_gpu}


@torch.no_grad()
def disagreements(fused: Any, device_type: str) -> list[str]:
    """Names of fused loops that do not give what the plain ones give in float64, on a small random case."""
    seeded = torch.Generator().manual_seed(0)
    wrong: list[str] = []
    for dtype, close in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        for case, arguments in _cases(seeded, dtype, device_type).items():
            name = case.split()[0].rstrip(",")
            if not _has_loop(fused, name, dtype):
                continue
            results, exact = getattr(fused, name)(*arguments), getattr(plain, name)(*map(_double, arguments))
            pairs = zip(results, exact, strict=True) if isinstance(results, tuple) else [(results, exact)]
            distance = max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
            if not distance <= close:
                wrong.append(f"{case}, {str(dtype).removeprefix('torch.')}: {distance:.0e} apart")
    return wrong


def _cases(seeded: torch.Generator, dtype: torch.dtype, device_type: str) -> dict[str, tuple[Any, ...]]:
    """The arguments of every loop, random numbers, by its name and what is special about the case."""

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=seeded, dtype=torch.float64).to(dtype).to(device_type) - 0.3

    batch, heads, n, d = 2, 3, 37, 75
    attention, vectors = draw(batch, heads, n, n).relu(), draw(batch, heads, n, d)
    reciprocal, y = draw(batch, n) + 1, draw(batch, n, d)
    gram = vectors.transpose(-3, -2) @ vectors.transpose(-3, -2).mT
    weights = draw(heads * d, heads * d)
    metric = (weights @ weights.mT).view(heads, d, heads, d).transpose(1, 2)
    cases: dict[str, tuple[Any, ...]] = {
        "nearer": (attention, vectors, reciprocal, y, -1e-2),
        "lengths": (attention, gram, reciprocal),
        "gram": (vectors,),
        "inner": (vectors, metric),
        "inner of layers": (vectors, torch.stack([metric, 2 * metric])),
        "apart": (y, draw(d), draw(batch, n, d)),
        "apart of layers": (y, draw(batch, 1, d), draw(batch, n, d), batch),
        "apart of plain": (y, None, draw(batch, n, d), batch),
        "normed": (y, draw(batch, d), draw(batch, d), reciprocal[:, 0], True),
        "normed, not centred": (y, draw(batch, d), draw(batch, d), reciprocal[:, 0], False),
        "running": (draw(4, n, n) / n,),
        "running of several": (draw(4, 2, n, n) / n,),
    }
    norms = [(draw(d) + 1, True), (draw(d) + 1, False), (draw(d) + 1, True)]
    for kind, residual in (("with", draw(batch, n, d)), ("without", None)):
        ends = (residual, norms, 1, draw(batch, n) + 1, reciprocal)
        cases[f"ends {kind}"] = (y, draw(batch, n, d), *ends)
        cases[f"own_nearer {kind}"] = (y, *ends, draw(batch, n, d), -1e-2)
    return cases


def _double(argument: Any) -> Any:
    """Tensors, also those of norms, in float64; anything else as it is."""
    if isinstance(argument, list):
        return [(gamma.double(), centred) for gamma, centred in argument]
    return argument.double() if isinstance(argument, Tensor) else argument
