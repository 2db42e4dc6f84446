"""The obvious code a researcher would write for a BERT: every pair's vector held, every intervention run again.

It is right, and it is what the ratios in docs/performance.md are against. Post-norm encoders of the BERT family only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def outputs(model: Any, ids: Tensor) -> Any:
    """One eager forward pass with attentions and hidden states."""
    return model(ids, output_attentions=True, output_hidden_states=True)


def transformed_vectors(model: Any, ids: Tensor) -> list[dict[str, Tensor]]:
    """Per layer: f, z [query key d] with residual, frozen norms applied to the n x n x d tensor."""
    out = outputs(model, ids)
    layers = []
    for index, layer in enumerate(model.encoder.layer):
        x, attention = out.hidden_states[index][0], out.attentions[index][0]
        heads, n, _ = attention.shape
        value = layer.attention.self.value(x).view(n, heads, -1)
        weight = layer.attention.output.dense.weight.view(-1, heads, value.shape[-1])
        f = torch.einsum("jhe,dhe->jhd", value, weight)
        z = torch.einsum("hij,jhd->ijd", attention, f)
        w = z.clone()
        w[range(n), range(n)] += x
        attended = torch.einsum("hij,jhe->ihe", attention, value).reshape(n, -1)
        u = layer.attention.output.dense(attended) + x
        first = layer.attention.output.LayerNorm
        t = _frozen(first, w, u)
        middle = first(u)
        after = layer.output.dense(layer.intermediate(middle)) + middle
        layers.append({"z": z, "w": w, "t": t, "y": middle, "t2": _frozen(layer.output.LayerNorm, t, after)})
    return layers


def _frozen(norm: Any, vectors: Tensor, u: Tensor) -> Tensor:
    sigma = (u.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return norm.weight * (vectors - vectors.mean(-1, keepdim=True)) / sigma[:, None]


def norm_maps(model: Any, ids: Tensor) -> dict[str, Tensor]:
    layers = transformed_vectors(model, ids)
    names = {"norm": "z", "norm_residual": "w", "norm_residual_ln": "t", "globenc": "t2"}
    return {name: torch.stack([layer[key].norm(dim=-1) for layer in layers]) for name, key in names.items()}


def alti(model: Any, ids: Tensor) -> Tensor:
    maps = []
    for layer in transformed_vectors(model, ids):
        y, t = layer["y"], layer["t"]
        near = (y.abs().sum(-1)[:, None] - (y[:, None] - t).abs().sum(-1)).clamp(min=0)
        maps.append(near / near.sum(-1, keepdim=True))
    return torch.stack(maps)


def value_zeroing(model: Any, ids: Tensor, layers: int | None = None) -> Tensor:
    """A hook on the value projection, and the whole layer again for every token."""
    hidden = outputs(model, ids).hidden_states
    n = ids.shape[1]
    maps = []
    for index, layer in enumerate(list(model.encoder.layer)[:layers]):
        still = layer(hidden[index])[0] if isinstance(layer(hidden[index]), tuple) else layer(hidden[index])
        scores = torch.zeros(n, n, device=ids.device, dtype=still.dtype)
        for j in range(n):

            def zero(module: nn.Module, args: Any, output: Tensor, j: int = j) -> Tensor:
                output = output.clone()
                output[:, j] = 0
                return output

            handle = layer.attention.self.value.register_forward_hook(zero)
            moved = layer(hidden[index])
            handle.remove()
            moved = moved[0] if isinstance(moved, tuple) else moved
            scores[:, j] = 1 - torch.nn.functional.cosine_similarity(moved[0], still[0], dim=-1)
        maps.append(scores / scores.sum(-1, keepdim=True))
    return torch.stack(maps)


def effective_attention(model: Any, ids: Tensor) -> Tensor:
    """A full singular value decomposition of every head's T = V W_O."""
    out = outputs(model, ids)
    maps = []
    for index, layer in enumerate(model.encoder.layer):
        x, attention = out.hidden_states[index][0], out.attentions[index][0]
        heads, n, _ = attention.shape
        value = layer.attention.self.value(x).view(n, heads, -1)
        weight = layer.attention.output.dense.weight.view(-1, heads, value.shape[-1])
        kept = []
        for h in range(heads):
            t = value[:, h] @ weight[:, h].T
            u, s, _ = torch.linalg.svd(t, full_matrices=True)
            rank = int((s > s.max() * max(t.shape) * torch.finfo(t.dtype).eps).sum())
            null = u[:, rank:]
            kept.append(attention[h] - attention[h] @ null @ null.T)
        maps.append(torch.stack(kept).mean(0))
    return torch.stack(maps)
