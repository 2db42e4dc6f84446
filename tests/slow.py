"""The papers written out: token pair by token pair, vector by vector, readable beside the equations. Only for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mixlens.types import LayerTrace, Trace


def part_vectors(layer: LayerTrace) -> Tensor:
    """z[i, j] = sum_h a^h_ij W_O^h v^h_j, [query, key, d], asking W_O for one head of one source at a time."""
    attention, value, output = layer.attention, layer.value, layer.parts.output
    heads, n, _ = attention.shape
    groups, _, e = value.shape
    nothing = output(torch.zeros(1, heads * e, dtype=value.dtype))[0]
    z = torch.zeros(n, n, nothing.shape[0], dtype=value.dtype)
    for j in range(n):
        for h in range(heads):
            one_head = torch.zeros(1, heads * e, dtype=value.dtype)
            one_head[0, h * e : (h + 1) * e] = value[h // (heads // groups), j]
            f = output(one_head)[0] - nothing
            for i in range(n):
                z[i, j] += attention[h, i, j] * f
    return z


def frozen(norm: nn.Module | None, z: Tensor, u: Tensor) -> Tensor:
    """gamma * C z / s(u): the norm applied to z with the statistics of u. Weights and eps are read, beta is left out."""
    if norm is None:
        return z
    weight: Any = norm.weight
    gamma = weight + 1 if "Gemma" in type(norm).__name__ else weight
    eps: Any = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)
    if isinstance(norm, nn.LayerNorm):
        z, u = z - z.mean(), u - u.mean()
    return gamma * z / (u.pow(2).mean() + eps).sqrt()


def vectors(layer: LayerTrace, stage: str) -> Tensor:
    """w[i, j] at a stage of the layer: what each source brought, residual and frozen norms included as the stage says."""
    parts, x, a = layer.parts, layer.input, layer.attention_output
    w = part_vectors(layer)
    n = len(x)
    if stage == "attention":
        return w
    branch = parts.norm_on_attention(a) if parts.norm_on_attention is not None else a
    u = x + branch
    middle = parts.norm_after_attention(u) if parts.norm_after_attention is not None else u
    written = parts.norm_on_mlp(layer.mlp_output) if parts.norm_on_mlp is not None else layer.mlp_output
    for i in range(n):
        for j in range(n):
            w[i, j] = frozen(parts.norm_on_attention, w[i, j], a[i])
            if i == j:
                w[i, j] = w[i, j] + x[i]
            if stage in ("norm", "layer"):
                w[i, j] = frozen(parts.norm_after_attention, w[i, j], u[i])
            if stage == "layer":
                w[i, j] = frozen(parts.norm_after_mlp, w[i, j], (middle + written)[i])
    return w


def norms(trace: Trace, stage: str) -> Tensor:
    return torch.stack([vectors(layer, stage).norm(dim=-1) for layer in trace.layers])


def mixing_ratio(trace: Trace, stage: str) -> Tensor:
    """r_i = |sum_{j != i} w_ij| / (that + |w_ii|)"""
    rows = []
    for layer in trace.layers:
        w = vectors(layer, stage)
        n = len(w)
        others = [sum((w[i, j] for j in range(n) if j != i), torch.zeros_like(w[0, 0])).norm() for i in range(n)]
        rows.append(torch.stack([others[i] / (others[i] + w[i, i].norm()) for i in range(n)]))
    return torch.stack(rows)


def alti(trace: Trace) -> Tensor:
    """C_ij = max(0, |y_i|_1 - |y_i - T_ij|_1), rows sum to 1; y is what the model's own norm puts out."""
    maps = []
    for layer in trace.layers:
        parts, t = layer.parts, vectors(layer, "norm")
        branch = (
            parts.norm_on_attention(layer.attention_output) if parts.norm_on_attention is not None else layer.attention_output
        )
        y = layer.input + branch
        y = parts.norm_after_attention(y) if parts.norm_after_attention is not None else y
        n = len(y)
        c = torch.zeros(n, n, dtype=y.dtype)
        for i in range(n):
            for j in range(n):
                c[i, j] = max(0.0, float(y[i].abs().sum() - (y[i] - t[i, j]).abs().sum()))
        maps.append(c / c.sum(-1, keepdim=True))
    return torch.stack(maps)


def cosine(moved: Tensor, still: Tensor) -> Tensor:
    return 1 - torch.nn.functional.cosine_similarity(moved, still, dim=0)


def value_zeroing(trace: Trace, distance: Callable[[Tensor, Tensor], Any] = cosine, *, standardize: bool = False) -> Tensor:
    """The intervention itself: a hook sets value j to zero in one layer of the stock model, and the model runs again.

    Standardised: of every feature the mean over the tokens is taken off, and what is left divided by the deviation.
    """
    model = trace.model
    stock, n = model.hf_model, len(trace)
    given = torch.tensor([trace.input_ids])
    layers = list({id(parts.layer): parts for parts in model.parts}.values())

    def run(layer: int | None, zeroed: int) -> list[Tensor]:
        outputs: list[Tensor] = []
        calls = {"value": -1}

        def zero(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            calls["value"] += 1
            if calls["value"] != layer:
                return None
            output = output.clone()
            heads, _, e = trace.layers[layer].value.shape
            parts = trace.layers[layer].parts
            if parts.value_layout == "heads":
                output.view(1, n, heads, 3 * e)[0, zeroed, :, -e:] = 0
            else:
                output[0, zeroed, -heads * e :] = 0
            return output

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            outputs.append((output[0] if isinstance(output, tuple) else output)[0])

        handles = [p.value.register_forward_hook(zero) for p in layers] + [p.layer.register_forward_hook(keep) for p in layers]
        try:
            stock(given, use_cache=False) if "use_cache" in model._accepts else stock(given)
        finally:
            for handle in handles:
                handle.remove()
        return outputs

    still = run(None, 0)
    scores = torch.zeros(len(still), n, n, dtype=torch.float64)
    for layer in range(len(still)):
        for j in range(n):
            moved, left = run(layer, j)[layer], still[layer]
            if standardize:
                mean, deviation = left.mean(0), left.std(0, correction=0)
                moved, left = (moved - mean) / deviation, (left - mean) / deviation
            for i in range(n):
                scores[layer, i, j] = distance(moved[i], left[i])
    return scores / scores.sum(-1, keepdim=True)
