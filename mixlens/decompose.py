"""Attention and the residual stream as one exact vector per source token, without holding them all.

Notation (one layer): attention a^h_ij, value v^h_j, f^h_j = W_O^h v^h_j (value bias inside, b_O outside),
z_ij = sum_h a^h_ij f^h_j. No tensor of size n x n x d is ever held.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .errors import ModelError
from .types import LayerTrace

if TYPE_CHECKING:
    from .model import LayerParts

HALF = (torch.float16, torch.bfloat16)
# Largest relative gap between a layer and its rebuilt self that is still rounding.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype


def gap(rebuilt: Tensor, seen: Tensor) -> float:
    """Largest difference, relative to the largest entry seen. NaN or infinity anywhere gives infinity."""
    difference = (rebuilt.to(working_dtype(seen.dtype)) - seen).abs().max()
    ratio = float(difference / seen.abs().max().clamp(min=torch.finfo(torch.float32).tiny))
    return float("inf") if math.isnan(ratio) else ratio


def attention_of(layer: LayerTrace) -> Tensor:
    """Attention of a traced layer, [... head query key]."""
    if layer.weights is not None:
        return layer.weights.to(working_dtype(layer.weights.dtype))
    assert layer.query is not None
    assert layer.key is not None
    return attention_weights(layer.query, layer.key, layer.mask, scaling=layer.scaling, softcap=layer.softcap)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, *, scaling: float, softcap: float | None = None) -> Tensor:
    """softmax(scaling q k^T), capped where the model caps, under its mask. A row that may look nowhere is zero."""
    dtype = working_dtype(query.dtype)
    logits = query.to(dtype) @ repeat_heads(key.to(dtype), query.shape[-3]).transpose(-1, -2) * scaling
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is None:
        return logits.softmax(-1)
    if mask.dtype != torch.bool:
        return (logits + mask).softmax(-1)
    somewhere = mask.any(-1, keepdim=True)  # elsewhere the softmax of nothing: 0 / 0, and so would be its gradient
    return logits.masked_fill(~mask & somewhere, float("-inf")).softmax(-1) * somewhere


def repeat_heads(grouped: Tensor, heads: int) -> Tensor:
    """[... key_head pos e] -> [... head pos e]: grouped-query attention shares each key head among several heads."""
    times = heads // grouped.shape[-3]
    return grouped if times == 1 else grouped.repeat_interleave(times, dim=-3)


def values_in(part: LayerParts, output: Tensor, value: Tensor) -> Tensor:
    """The values [key_head pos e] inside what the `value` module put out [pos, width], by the entry's layout."""
    heads, n, e = value.shape
    if part.value_layout == "heads":
        found = output.view(n, heads, 3 * e)[..., -e:] if output.shape[-1] == 3 * heads * e else None
    elif part.value_layout == "qkv":
        found = output[..., -heads * e :].view(n, heads, e) if output.shape[-1] > heads * e else None
    else:
        found = output.view(n, heads, e) if output.shape[-1] == heads * e else None
    if found is None:
        return torch.full_like(value, float("inf"))
    return found.transpose(0, 1)


def linear_weight(module: nn.Module, width: int, dtype: torch.dtype) -> Tensor:
    """[in, out] of any linear module. Plain ones are read; whatever else it is (LoRA, 4-bit), it is asked."""
    kind = type(module).__name__
    if type(module) is nn.Linear and not module._forward_hooks:
        return module.weight.t().to(dtype)
    if kind == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils":
        return torch.as_tensor(module.weight).to(dtype)
    like = next(module.parameters())
    probe = torch.eye(width, dtype=like.dtype if like.is_floating_point() else dtype, device=like.device)
    return (module(probe) - module(torch.zeros_like(probe))).to(dtype)


@dataclass(frozen=True)
class FrozenNorm:
    """A normalisation with its statistics held still: g(z) = gamma * C z / s_i, a linear map over a target's scalar.

    C subtracts the mean (layer norm) or nothing (RMS norm). Nothing is read off the module: gamma, beta, C and eps
    are found by calling it on vectors whose answer tells them, so any norm of this form works, whatever its class.
    """

    gamma: Tensor  # [d]
    beta: Tensor  # [d]; belongs to no token
    centred: bool
    eps: float

    @staticmethod
    def of(module: nn.Module, width: int, dtype: torch.dtype) -> FrozenNorm:
        like = next(module.parameters(), None)
        if like is not None and like.dtype in HALF:
            module = copy.deepcopy(module).float()  # the same norm, asked in a precision that can answer
            like = next(module.parameters())
        given = like.dtype if like is not None else dtype
        device = like.device if like is not None else torch.device("cpu")
        signs = torch.ones(2, width, dtype=given, device=device)
        signs[:, 1::2] = -1
        if width % 2:  # mean zero needs an even number of entries: leave the last out, then the first
            signs[0, -1] = 0
            signs[1] = -signs[0].roll(1)
        size = float(signs[0].pow(2).mean().sqrt())
        large = 2.0**27  # a power of two, so that the answer is exact; eps is nothing beside its square
        small = 2.0 ** -torch.arange(0, 24, dtype=given, device=device)
        probes = torch.cat([torch.zeros_like(signs[:1]), signs * large, signs[:1] * large + large, signs[:1] * small[:, None]])
        answers = module(probes[None])[0]
        beta = answers[0]
        first, second, shifted = answers[1] - beta, answers[2] - beta, answers[3] - beta
        gamma = torch.where(signs[0] != 0, first * signs[0], second * signs[1]) * size
        at = gamma.abs().argmax().clamp(max=width - 1 - width % 2)
        ratios = ((answers[4:, at] - beta[at]) / first[at]).double()
        pick = int((ratios - 0.7).abs().argmin())
        eps = (float(small[pick]) * size) ** 2 * (1 / float(ratios[pick]) ** 2 - 1)
        centred = bool(torch.allclose(shifted, first, rtol=1e-3, atol=1e-6 * float(first.abs().max())))
        return FrozenNorm(gamma.to(dtype), beta.to(dtype), centred, max(eps, 0.0))

    def to_device(self, device: torch.device) -> FrozenNorm:
        return FrozenNorm(self.gamma.to(device), self.beta.to(device), self.centred, self.eps)

    def numerator(self, z: Tensor) -> Tensor:
        """gamma * C z"""
        return (z - z.mean(-1, keepdim=True) if self.centred else z) * self.gamma

    def scale(self, u: Tensor, *, eps: bool = True, unbiased: bool = False) -> Tensor:
        """s_i, the target's scalar, [... pos 1]. Released code of ALTI leaves eps out, or divides by d - 1."""
        centred = u - u.mean(-1, keepdim=True) if self.centred else u
        n = u.shape[-1] - int(unbiased)
        return (centred.pow(2).sum(-1, keepdim=True) / n + (self.eps if eps else 0.0)).sqrt()

    def __call__(self, u: Tensor) -> Tensor:
        return self.numerator(u) / self.scale(u) + self.beta


@dataclass(frozen=True)
class Chain:
    """The frozen norms that attention's parts pass on the way to a stage of the layer.

    A part passes the branch's norms and the stream's; the residual only the stream's.
    """

    branch: tuple[FrozenNorm, ...]
    stream: tuple[FrozenNorm, ...]
    branch_scale: Tensor | float  # [... query 1]
    stream_scale: Tensor | float

    def part(self, z: Tensor) -> Tensor:
        for norm in (*self.branch, *self.stream):
            z = norm.numerator(z)
        return z

    def residual(self, x: Tensor) -> Tensor:
        for norm in self.stream:
            x = norm.numerator(x)
        return x

    @property
    def part_scale(self) -> Tensor | float:
        return self.branch_scale * self.stream_scale


@dataclass(frozen=True)
class FirstProduct:
    """W g(u) + b for u = stream - z, with g a norm: (W gamma C u_i - W gamma C z) / s(u) + W beta + b, for up and gate."""

    norm: FrozenNorm
    on_stream: bool  # the norm stands on the stream itself, not before the feed-forward alone
    matrices: tuple[Tensor, ...]  # [d m]: gamma C W
    bases: tuple[Tensor, ...]  # [... pos m]: of the stream as it was
    constants: tuple[Tensor, ...]  # [m]

    @staticmethod
    def of(norm: FrozenNorm, modules: list[nn.Module], stream: Tensor, *, on_stream: bool) -> FirstProduct:
        matrices, constants = [], []
        for module in modules:
            weight = linear_weight(module, stream.shape[-1], stream.dtype)
            scaled = norm.gamma[:, None] * weight
            matrices.append(scaled - scaled.mean(0) if norm.centred else scaled)
            constants.append(norm.beta @ weight + module(torch.zeros_like(stream.flatten(0, -2)[:1]))[0])
        return FirstProduct(norm, on_stream, tuple(matrices), tuple(stream @ m for m in matrices), tuple(constants))


class Block:
    """One layer of a trace, decomposed. Everything is computed once, when first asked for."""

    def __init__(self, layer: LayerTrace, index: int = 0):
        self.layer, self.index = layer, index
        self.modules = layer.parts
        self.dtype = working_dtype(layer.input.dtype)
        self.x = layer.input.to(self.dtype)
        self.attention_output = layer.attention_output.to(self.dtype)
        self.output = layer.output.to(self.dtype)

    @cached_property
    def attention(self) -> Tensor:
        """[... head query key]"""
        return attention_of(self.layer)

    @cached_property
    def values(self) -> Tensor:
        """[... head key e]"""
        return repeat_heads(self.layer.value.to(self.dtype), self.attention.shape[-3])

    @cached_property
    def value_bias(self) -> Tensor:
        """b_V by head, [head 1 e]: the value of the zero vector."""
        nothing = torch.zeros(1, self.x.shape[-1], dtype=self.layer.input.dtype, device=self.x.device)
        like = self.layer.value.flatten(0, -4)[0] if self.layer.value.dim() > 3 else self.layer.value
        bias = values_in(self.modules, self.modules.value(nothing), like[:, :1])
        return repeat_heads(bias.to(self.dtype), self.attention.shape[-3])

    @cached_property
    def reach(self) -> Tensor:
        """[... query key]: where a position may look, by the model's mask (by its weights, where it hands out nothing else)."""
        layer = self.layer
        if layer.weights is not None:
            return (layer.weights > 0).any(-3)
        if layer.mask is None:
            n = self.x.shape[-2]
            return torch.ones(*self.x.shape[:-2], n, n, dtype=torch.bool, device=self.x.device)
        allowed = layer.mask if layer.mask.dtype == torch.bool else layer.mask > torch.finfo(layer.mask.dtype).min / 2
        return allowed.any(-3) if allowed.dim() == self.x.dim() + 1 else allowed

    @cached_property
    def projection(self) -> Tensor:
        """W_O by head, [head e d]"""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        return linear_weight(self.modules.output, heads * e, self.dtype).view(heads, e, -1)

    @cached_property
    def bias(self) -> Tensor:
        """b_O, [d]: belongs to no token."""
        heads, e, _ = self.projection.shape
        nothing = torch.zeros(1, heads * e, dtype=self.layer.input.dtype, device=self.x.device)
        return self.modules.output(nothing)[0].to(self.dtype)

    @cached_property
    def head_vectors(self) -> Tensor:
        """f^h_j = W_O^h v^h_j, [... key head d]"""
        return torch.einsum("...hke,hed->...khd", self.values, self.projection)

    @cached_property
    def by_source(self) -> Tensor:
        """Attention as [... key query head]: for one source, each target's weights on it, head by head."""
        return self.attention.movedim(-3, -1).transpose(-3, -2).contiguous()

    @cached_property
    def own_part(self) -> Tensor:
        """z_ii, [... query d]"""
        own = self.attention.diagonal(dim1=-2, dim2=-1)  # [... head pos]
        return torch.einsum("...hk,...khd->...kd", own, self.head_vectors)

    @cached_property
    def all_parts(self) -> Tensor:
        """sum_j z_ij, [... query d], rebuilt from attention and values (not read off the trace)."""
        context = self.attention @ self.values  # [... head query e]
        return torch.einsum("...hqe,hed->...qd", context, self.projection)

    def norm(self, place: str) -> FrozenNorm | None:
        module = getattr(self.modules, place)
        return None if module is None else FrozenNorm.of(module, self.x.shape[-1], self.dtype).to_device(self.x.device)

    @cached_property
    def norms(self) -> dict[str, FrozenNorm]:
        places = ("norm_on_attention", "norm_after_attention", "norm_after_mlp")
        return {place: norm for place in places if (norm := self.norm(place)) is not None}

    @cached_property
    def stream(self) -> Tensor:
        """u = x + attention's branch, [... pos d]: what the norm after attention reads."""
        return self.x + self.called("norm_on_attention", self.attention_output)

    @cached_property
    def middle(self) -> Tensor:
        """The attention block's true output, [... pos d]."""
        return self.called("norm_after_attention", self.stream)

    @cached_property
    def stream_after_mlp(self) -> Tensor:
        """What the norm after the feed-forward reads, [... pos d]."""
        return self.middle + self.called("norm_on_mlp", self.layer.mlp_output.to(self.dtype))

    @cached_property
    def wide_modules(self) -> LayerParts:
        """The layer's modules in at least float32: a half-precision layer run again would drown small changes."""
        if self.layer.input.dtype not in HALF:
            return self.modules
        copies = {f.name: getattr(self.modules, f.name) for f in fields(self.modules)}
        seen: dict[int, nn.Module] = {}
        for name, module in copies.items():
            if isinstance(module, nn.Module) and name != "layer":
                copies[name] = seen.setdefault(id(module), copy.deepcopy(module).float())
        return replace(self.modules, **copies)

    def after_attention(self, a: Tensor) -> Tensor:
        """The layer's output if attention had written `a`: everything behind it, run again.

        `a` is [... pos d], or [... tile pos d] for several alternatives at once.
        """
        part = self.wide_modules
        tiled = a.dim() > self.x.dim()
        x = self.x.unsqueeze(-3) if tiled else self.x

        def norm(place: str, u: Tensor) -> Tensor:
            module = getattr(part, place)
            return u if module is None else module(u)

        middle = norm("norm_after_attention", x + norm("norm_on_attention", a))
        if part.parallel:
            written = self.layer.mlp_output.to(self.dtype)
            written = written.unsqueeze(-3) if tiled else written
        else:
            written = part.mlp(norm("norm_before_mlp", middle))
        return norm("norm_after_mlp", middle + norm("norm_on_mlp", written))

    @cached_property
    def first_product(self) -> FirstProduct | None:
        """The feed-forward's first product as a linear map of what attention wrote, where one norm alone is in between."""
        part = self.wide_modules
        places = [p for p in ("norm_after_attention", "norm_before_mlp") if getattr(part, p) is not None]
        if part.parallel or part.norm_on_attention is not None or len(places) != 1:
            return None
        norm = FrozenNorm.of(getattr(part, places[0]), self.x.shape[-1], self.dtype).to_device(self.x.device)
        modules = [part.mlp_up] if part.mlp_gate in (None, part.mlp_up) else [part.mlp_up, part.mlp_gate]
        return FirstProduct.of(
            norm, [m for m in modules if m is not None], self.stream, on_stream=places[0] == "norm_after_attention"
        )

    def without(self, sources: slice, tile: Tensor) -> Tensor:
        """The layer's output [... tile pos d] had attention not taken the parts of these sources [... tile pos d].

        The first product of the feed-forward is linear but for one scalar, the new standard deviation, so it is put together
        from one product per source and head instead of one per pair.
        """
        product, part = self.first_product, self.wide_modules
        if product is None:
            return self.after_attention(self.attention_output.unsqueeze(-3) - tile)
        u = self.stream.unsqueeze(-3) - tile
        scale = product.norm.scale(u)
        weights, vectors = (t[..., sources, :, :] for t in (self.by_source, self.head_vectors))
        read = [
            (base.unsqueeze(-3) - weights @ (vectors @ matrix)) / scale + constant
            for matrix, base, constant in zip(product.matrices, product.bases, product.constants, strict=True)
        ]
        written = part.mlp_down(part.mlp_hidden(read[0], read[1] if len(read) > 1 else None))
        if part.norm_on_mlp is not None:
            written = part.norm_on_mlp(written)
        middle = product.norm.numerator(u) / scale + product.norm.beta if product.on_stream else u
        moved = middle + written
        return moved if part.norm_after_mlp is None else part.norm_after_mlp(moved)

    def called(self, place: str, u: Tensor) -> Tensor:
        """The model's own norm at this place, or nothing where there is none."""
        module = getattr(self.modules, place)
        return u if module is None else module(u.to(self.layer.input.dtype)).to(self.dtype)

    def chain(self, stage: str) -> Chain:
        """To the stage "attention" (nothing), "residual" (added to the stream), "norm" (normed), "layer" (normed again).

        A place without a norm leaves the vectors as they are: a pre-norm model has none on the stream.
        """
        depth = ("attention", "residual", "norm", "layer").index(stage)
        branch = [("norm_on_attention", self.attention_output)] if depth >= 1 else []
        stream = [("norm_after_attention", self.stream)] if depth >= 2 else []
        if depth == 3:
            stream.append(("norm_after_mlp", self.stream_after_mlp))
        taken = [[(self.norms[p], u) for p, u in part if p in self.norms] for part in (branch, stream)]
        scales: list[Tensor | float] = []
        for part in taken:
            scale: Tensor | float = 1.0
            for norm, u in part:
                scale = scale * norm.scale(u)
            scales.append(scale)
        (b, s) = (tuple(norm for norm, _ in part) for part in taken)
        return Chain(b, s, *scales)

    @cached_property
    def gaps(self) -> dict[str, float]:
        """How far the rebuilt layer is from what the model wrote. Parts, biases, norms and residuals included."""
        gaps = {
            "parts": gap(self.all_parts + self.bias, self.attention_output),
            "stream": gap(self.called("norm_after_mlp", self.stream_after_mlp), self.output),
        }
        seen = {
            "norm_on_attention": self.attention_output,
            "norm_after_attention": self.stream,
            "norm_after_mlp": self.stream_after_mlp,
        }
        for place, norm in self.norms.items():
            gaps[place] = gap(norm(seen[place]), self.called(place, seen[place]))
        return gaps

    def tolerance(self, identity: str) -> float:
        """What rounding may do. A norm that computes in float32 inside a float64 model is judged as float32."""
        dtype = self.layer.input.dtype
        if dtype == torch.float64 and identity in self.norms:
            nudged = self.called(identity, self.x * (1 + 1e-13))  # too little for float32 to notice
            if bool((nudged == self.called(identity, self.x)).double().mean() > 0.5):
                return TOLERANCE[torch.float32]
        return TOLERANCE[dtype]

    def prove(self) -> dict[str, float]:
        """The gaps of this layer; refuses where one is more than rounding."""
        for identity, value in self.gaps.items():
            if not value <= self.tolerance(identity):
                raise ModelError(
                    f"layer {self.index}: the model's own output does not match its parts ({identity}: relative gap {value:.1e}, "
                    f"allowed {self.tolerance(identity):.0e}). No map is given. Run `mixlens check` on this model."
                )
        return self.gaps


def source_tiles(
    block: Block, vectors: Tensor, *, scale: Tensor | float = 1.0, elements: int = 1 << 18
) -> Iterator[tuple[slice, Tensor]]:
    """sum_h a^h_ij vectors^h_j / scale_i, a few sources at a time: (sources, [... key query d]). Nothing larger is held.

    `vectors` is [... key head d], `scale` [... query 1]. On a CPU a tile stays about the size of its cache.
    """
    weights = block.by_source
    if isinstance(scale, Tensor):
        weights = weights / scale.unsqueeze(-3)
    n, pairs = weights.shape[-3], weights.shape[:-3].numel() * weights.shape[-2] * vectors.shape[-1]
    step = max(1, (elements if weights.device.type == "cpu" else 1 << 26) // pairs)
    for start in range(0, n, step):
        sources = slice(start, min(start + step, n))
        yield sources, weights[..., sources, :, :] @ vectors[..., sources, :, :]
