"""Number types, and what rounding may do: the gap between a rebuilt tensor and what the model wrote, and how large it
may be."""

from __future__ import annotations

import math

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
EPS = {dtype: torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32, *HALF)}
# The largest gap of a token (see `apart`) that is still rounding. In half precision every stored number is rounded:
# an identity
# of one step is off by 0.3 to 0.7 eps, a whole layer that is run again by up to 2 eps.
ROUNDINGS, LAYER_ROUNDINGS = 4, 8  # how many eps are allowed in half precision
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, **{dtype: ROUNDINGS * EPS[dtype] for dtype in HALF}}
LAYER_TOLERANCE = {**TOLERANCE, **{dtype: LAYER_ROUNDINGS * EPS[dtype] for dtype in HALF}}
FEATURES = 8  # a feature may be off by so many times what a whole token may, as the largest of thousands is
EIGHT_BITS = (
    7e-3  # the eps of modules that round what they read to 8 bits, by the largest of a few hundred normal numbers
)
# A module that did not change gives the same answer to its probe, but for the order of sums.
SAME_ANSWER = {torch.float64: 1e-14, torch.float32: 2e-6, **{dtype: EPS[dtype] / 4 for dtype in HALF}}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The number type to compute in: half precision is accumulated in float32."""
    return torch.float32 if dtype in HALF else dtype


def digits_of_products(like: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The number type whose digits products of this type have here: TF32, where torch may use it, has those of
    float16."""
    coarse = dtype == torch.float32 and like.is_cuda and torch.backends.cuda.matmul.allow_tf32
    return torch.float16 if coarse else dtype


def apart(rebuilt: Tensor, added: Tensor | None, seen: Tensor, layers: int | None = None) -> Tensor:
    """How far rebuilt + added is from seen [... pos d], relative to each token: a number, or [layer]. NaN where one
    is NaN.

    For each token the root mean square, over features k, of |difference_k| / max(|seen_k|, size), where the token's
    size is (mean_k sqrt|seen_k|)^2. The largest of all tokens counts. So neither a token nor a feature with huge
    entries hides an error elsewhere. added [d] or [layer ... d]; the first axis is `layers` where they are named.
    """
    if rebuilt.shape != seen.shape:
        raise ValueError(f"the rebuilt tensor has shape {tuple(rebuilt.shape)}, the model's own {tuple(seen.shape)}.")
    size = seen.abs()
    typical = size.sqrt().mean(-1, keepdim=True).square()  # a few huge entries hardly move it
    scale = torch.maximum(size, typical.clamp(min=torch.finfo(seen.dtype).tiny))
    difference = (rebuilt if added is None else rebuilt + added) - seen
    rows = difference.div_(scale).square_().mean(-1).sqrt()
    return rows.reshape(layers, -1).amax(-1) if layers else rows.amax()


def largest_feature(rebuilt: Tensor, seen: Tensor, beside: Tensor) -> Tensor:
    """[... pos]: the largest |difference_k| / max(|seen_k|, |beside_k|, size) of a token's features k, over FEATURES.

    Half precision allows a token so much that one feature of a thousand may be wrong altogether. `beside` is what the
    sum was made of, such as the residual stream: a feature whose large terms cancel is rounded by the size of these.
    """
    size = torch.maximum(seen.abs(), beside.abs())
    typical = seen.abs().sqrt().mean(-1, keepdim=True).square().clamp(min=torch.finfo(seen.dtype).tiny)
    return ((rebuilt - seen).abs() / torch.maximum(size, typical)).amax(-1) / FEATURES


def gap(rebuilt: Tensor, seen: Tensor) -> float:
    """How far `rebuilt` is from `seen` [... pos d], relative to each token. NaN or infinity anywhere gives infinity."""
    dtype = working_dtype(seen.dtype)
    return finite(float(apart(rebuilt.to(dtype), None, seen.to(dtype))))


def largest_gap(rebuilt: Tensor, seen: Tensor) -> float:
    """The largest difference, relative to the largest entry of all."""
    return finite(float((rebuilt - seen).abs().max() / seen.abs().max().clamp(min=torch.finfo(seen.dtype).tiny)))


def finite(gap: float) -> float:
    """A gap that is no number is infinite."""
    return float("inf") if math.isnan(gap) else gap
