"""The papers written out: token pair by token pair, vector by vector, readable beside the equations. Only for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import mixlens
from mixlens import types


def same_weights(wide: nn.Module, narrow: nn.Module) -> None:
    """Models are shared by all tests: float32 is compared with float64 only as long as no test has changed one of
    them."""
    for (name, one), other in zip(wide.named_parameters(), narrow.parameters(), strict=True):
        assert torch.equal(one.to(other.dtype), other), f"a test has changed {name} of a shared model"


def part_vectors(layer: types.LayerTrace) -> Tensor:
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
            z[:, j] += attention[h, :, j, None] * f
    return z


def frozen(norm: nn.Module | None, z: Tensor, u: Tensor) -> Tensor:
    """gamma * C z / s(u): the norm applied to z with the statistics of u. Weights and eps are read, beta is left
    out."""
    if norm is None:
        return z
    weight: Any = norm.weight
    gamma = weight + 1 if "Gemma" in type(norm).__name__ else weight
    eps: Any = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)
    if isinstance(norm, nn.LayerNorm):
        z, u = z - z.mean(), u - u.mean()
    return gamma * z / (u.pow(2).mean() + eps).sqrt()


def vectors(layer: types.LayerTrace, stage: str) -> Tensor:
    """w[i, j] at a stage of the layer: what each source brought, residual and frozen norms included as the stage
    says."""
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


def norms(trace: mixlens.Trace, stage: str) -> Tensor:
    return torch.stack([vectors(layer, stage).norm(dim=-1) for layer in trace.layers])


def mixing_ratio(trace: mixlens.Trace, stage: str) -> Tensor:
    """r_i = |sum_{j != i} w_ij| / (that + |w_ii|)"""
    rows = []
    for layer in trace.layers:
        w = vectors(layer, stage)
        n = len(w)
        others = [sum((w[i, j] for j in range(n) if j != i), torch.zeros_like(w[0, 0])).norm() for i in range(n)]
        rows.append(torch.stack([others[i] / (others[i] + w[i, i].norm()) for i in range(n)]))
    return torch.stack(rows)


def alti(trace: mixlens.Trace, variant: str = "paper") -> Tensor:
    """C_ij = max(0, |y_i|_1 - |y_i - T_ij|_1), rows sum to 1; y is what the model's own norm puts out.

    `released`: sigma of the norm after attention without eps, and 1e-6 added to each coordinate of a difference;
    `released_2022`: sigma also with d - 1.
    """
    maps = []
    for layer in trace.layers:
        parts, after = layer.parts, layer.parts.norm_after_attention
        branch = (
            parts.norm_on_attention(layer.attention_output)
            if parts.norm_on_attention is not None
            else layer.attention_output
        )
        u = layer.input + branch
        y = after(u) if after is not None else u
        t, offset = vectors(layer, "norm"), 0.0
        if variant != "paper":
            offset = 1e-6
            if after is not None:
                weight, bias = after.weight, getattr(after, "bias", None)
                centred = u - u.mean(-1, keepdim=True) if isinstance(after, nn.LayerNorm) else u
                count = u.shape[-1] - (1 if variant == "released_2022" else 0)
                sigma = (centred.pow(2).sum(-1, keepdim=True) / count).sqrt()
                y = weight * centred / sigma + (0 if bias is None else bias)
                t = vectors(layer, "residual")
                t = t - t.mean(-1, keepdim=True) if isinstance(after, nn.LayerNorm) else t
                t = weight * t / sigma[:, None]
        n = len(y)
        c = torch.zeros(n, n, dtype=y.dtype)
        for i in range(n):
            for j in range(n):
                c[i, j] = max(0.0, float(y[i].abs().sum() - (y[i] - t[i, j] - offset).abs().sum()))
        maps.append(c / c.sum(-1, keepdim=True))
    return torch.stack(maps)


def cosine(moved: Tensor, still: Tensor) -> Tensor:
    return 1 - torch.nn.functional.cosine_similarity(moved, still, dim=0)


def value_zeroing(
    trace: mixlens.Trace,
    distance: Callable[[Tensor, Tensor], Any] = cosine,
    *,
    standardize: bool = False,
    shares: bool = True,
) -> Tensor:
    """The intervention itself: a hook sets value j to zero in one layer of the stock model, and the model runs again.

    With `shares` rows are divided by their sum; without, the distances are given as they are.

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

        handles = [p.value.register_forward_hook(zero) for p in layers] + [
            p.layer.register_forward_hook(keep) for p in layers
        ]
        try:
            stock(given, use_cache=False) if "use_cache" in model.accepts else stock(given)
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
    return scores / scores.sum(-1, keepdim=True) if shares else scores


def t_of(layer: Any, head: int, *, bias: bool) -> np.ndarray:
    """T, [key, d]: one value at a time through its head of W_O, asking the modules. Without bias: the zero vector's
    taken off."""
    values, parts = layer.value, layer.parts
    groups, n, e = values.shape
    heads = layer.attention.shape[0]
    nothing = parts.output(torch.zeros(1, heads * e, dtype=torch.float64))[0]
    zero = torch.zeros(e, dtype=torch.float64)
    if not bias:
        out, group = (
            parts.value(torch.zeros(1, layer.input.shape[-1], dtype=torch.float64))[0],
            head // (heads // groups),
        )
        start = {"v": 0, "qkv": len(out) - groups * e}.get(parts.value_layout)
        zero = (
            out.view(groups, 3 * e)[group, -e:] if start is None else out[start + group * e : start + (group + 1) * e]
        )
    rows = []
    for j in range(n):
        one_head = torch.zeros(1, heads * e, dtype=torch.float64)
        one_head[0, head * e : (head + 1) * e] = values[head // (heads // groups), j] - zero
        rows.append(parts.output(one_head)[0] - nothing)
    return torch.stack(rows).detach().numpy()


def without_null_space(a: np.ndarray, t: np.ndarray) -> np.ndarray:
    """a minus its projection on the left null space of t, from a basis of that space."""
    u, s, _ = np.linalg.svd(t, full_matrices=True)
    rank = int((s > np.finfo(float).eps * max(t.shape) * s[0]).sum())
    null = u[:, rank:]
    return a - null @ (null.T @ a)


def effective(trace: mixlens.Trace, variant: str) -> Tensor:
    """Attention without its part in the left null space of T, row by row and head by head; the mean over heads."""
    maps = []
    for layer in trace.layers:
        attention = layer.attention.numpy()
        made = np.zeros_like(attention)
        for head, weights in enumerate(attention):
            t = t_of(layer, head, bias=variant == "released")
            for i, row in enumerate(weights):
                seen = row > 0
                made[head, i, seen] = without_null_space(row[seen], t[seen])
        maps.append(torch.from_numpy(made.mean(0)))
    return torch.stack(maps)


def random(trace: mixlens.Trace, seed: int = 0) -> Tensor:
    """The counter and splitmix64's finaliser in whole numbers of Python, cut to 64 bits after each step."""
    all_bits, n = 2**64 - 1, len(trace)
    made = torch.zeros(len(trace.layers), n, n, dtype=torch.float64)
    for index, layer in enumerate(trace.layers):
        for i in range(n):
            for j in range(n):
                z = ((i << 24) + j + (index << 48) + 0x9E3779B9 * (seed + 1)) & all_bits
                z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & all_bits
                z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & all_bits
                z ^= z >> 31
                made[index, i, j] = (z >> 11) / 2**53 if bool((layer.attention[:, i, j] > 0).any()) else 0
    return made / made.sum(-1, keepdim=True)


def attention_residual(trace: mixlens.Trace, variant: str) -> Tensor:
    """W_RES: r_i shared out among the others as attention does, 1 - r_i to the token itself; r is GlobEnc's mixing
    ratio."""
    r, maps = mixing_ratio(trace, "layer"), []
    for index, layer in enumerate(trace.layers):
        weights = layer.attention.mean(0)
        made = torch.zeros_like(weights)
        for i, row in enumerate(weights):
            others = row.clone()
            others[i] = 0
            rest = float(others.sum()) if variant == "released" else 1 - float(row[i])
            if rest > 1e-15:  # a first token of a causal model has no others
                made[i] = r[index, i] * others / rest
            made[i, i] = 1 - r[index, i]
        maps.append(made)
    return torch.stack(maps)


STAGES = {"norm": "attention", "norm_residual": "residual", "norm_residual_ln": "norm", "globenc": "layer"}


def scores_of(trace: mixlens.Trace, name: str, variant: str = "paper") -> Tensor:
    """The map of a method that scores layer by layer, [layer query key], from a trace in float64."""
    attention = torch.stack([layer.attention.mean(0) for layer in trace.layers])
    eye = torch.eye(len(trace), dtype=attention.dtype)
    if name in STAGES:
        return norms(trace, STAGES[name])
    if name == "value_zeroing" and variant == "released":
        made = value_zeroing(trace, shares=False)
        made = made.round(decimals=5) if not bool(attention.triu(1).any()) else made
        return made / made.sum(-1, keepdim=True)
    if name == "norm_fixed_residual":
        lengths = norms(trace, "attention")
        return 0.5 * lengths / lengths.sum(-1, keepdim=True) + 0.5 * eye
    return {
        "attention": lambda: attention,
        "attention_fixed_residual": lambda: 0.5 * attention + 0.5 * eye,
        "attention_residual": lambda: attention_residual(trace, variant),
        "alti": lambda: alti(trace, variant),
        "value_zeroing": lambda: value_zeroing(trace),
        "effective_attention": lambda: effective(trace, variant),
        "null_attention": lambda: attention - effective(trace, variant),
        "random": lambda: random(trace),
    }[name]()
