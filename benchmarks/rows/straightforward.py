"""The straightforward code a researcher would write for a BERT: every pair's vector held, every intervention run again.

It is right, and it is what the ratios in docs/measured/performance.md are against. One layer is held at a time, so that
n = 512 fits.
Post-norm encoders of the BERT family only; the model must be loaded with `attn_implementation="eager"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

NORMS = {"norm": "z", "norm_residual": "w", "norm_residual_ln": "t", "globenc": "t2"}


def outputs(model: Any, ids: Tensor) -> Any:
    """One eager forward pass with attentions and hidden states."""
    return model(ids, output_attentions=True, output_hidden_states=True)


def transformed_vectors(model: Any, ids: Tensor) -> Iterator[dict[str, Tensor]]:
    """Per layer: z, w (with residual), t and t2 (frozen norms applied), all [query key d], and the block's output y."""
    out = outputs(model, ids)
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
        yield {"z": z, "w": w, "t": t, "y": middle, "t2": _frozen(layer.output.LayerNorm, t, after)}


def _frozen(norm: Any, vectors: Tensor, u: Tensor) -> Tensor:
    sigma = (u.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return norm.weight * (vectors - vectors.mean(-1, keepdim=True)) / sigma[:, None]


def norm_maps(model: Any, ids: Tensor) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = {name: [] for name in NORMS}
    for layer in transformed_vectors(model, ids):
        for name, key in NORMS.items():
            found[name].append(layer[key].norm(dim=-1))
    return {name: torch.stack(maps) for name, maps in found.items()}


def alti(model: Any, ids: Tensor) -> Tensor:
    maps = []
    for layer in transformed_vectors(model, ids):
        y, t = layer["y"], layer["t"]
        near = (y.abs().sum(-1)[:, None] - (y[:, None] - t).abs().sum(-1)).clamp(min=0)
        maps.append(near / near.sum(-1, keepdim=True))
    return torch.stack(maps)


def attention(model: Any, ids: Tensor) -> Tensor:
    return torch.stack([layer[0].mean(0) for layer in outputs(model, ids).attentions])


def rollout(maps: Tensor, *, residual: bool = False, normalize: bool = True) -> Tensor:
    """R_l = M_l ... M_1 for every l."""
    if residual:
        maps = maps + torch.eye(maps.shape[-1], device=maps.device)
    if normalize:
        maps = maps / maps.sum(-1, keepdim=True)
    found = [maps[0]]
    for layer in maps[1:]:
        found.append(layer @ found[-1])
    return torch.stack(found)


def _run(layer: Any, hidden: Tensor) -> Tensor:
    out = layer(hidden)
    return out[0] if isinstance(out, tuple) else out


def value_zeroing(model: Any, ids: Tensor) -> Tensor:
    """A hook on the value projection, and the whole layer again for every token. Cosines in float64: float32 has a
    floor."""
    hidden = outputs(model, ids).hidden_states
    n = ids.shape[1]
    maps = []
    for index, layer in enumerate(model.encoder.layer):
        still = _run(layer, hidden[index])[0].double()
        scores = torch.zeros(n, n, device=ids.device, dtype=torch.float64)
        for j in range(n):

            def zero(module: nn.Module, args: Any, output: Tensor, j: int = j) -> Tensor:
                output = output.clone()
                output[:, j] = 0
                return output

            handle = layer.attention.self.value.register_forward_hook(zero)
            moved = _run(layer, hidden[index])[0].double()
            handle.remove()
            scores[:, j] = 1 - torch.nn.functional.cosine_similarity(moved, still, dim=-1)
        maps.append((scores / scores.sum(-1, keepdim=True)).float())
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


def hta_layer(model: Any, ids: Tensor, *, together: int = 512) -> Tensor:
    """The whole Jacobian of every layer by batched autograd, `together` rows of it at a time; then its blocks'
    norms."""
    with torch.no_grad():
        hidden = outputs(model, ids).hidden_states
    maps = []
    for index, layer in enumerate(model.encoder.layer):
        x = hidden[index].detach().requires_grad_()
        with torch.enable_grad():
            y = _run(layer, x)
        n, d = y.shape[1:]
        rows = []
        for one_hot in torch.eye(n * d, device=y.device, dtype=y.dtype).split(together):
            (some,) = torch.autograd.grad(y, x, one_hot.view(-1, 1, n, d), retain_graph=True, is_grads_batched=True)
            rows.append(some[:, 0].square().sum(-1))
        maps.append(torch.cat(rows).view(n, d, n).sum(1).sqrt())
    return torch.stack(maps)
