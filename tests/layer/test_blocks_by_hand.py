"""One small layer, decomposed pair by pair with plain loops: both kinds of block give the same vectors, alone and
together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixlens import fast, types
from mixlens.fast import block as quick
from mixlens.layer import block as plain
from mixlens.layer import identities
from mixlens.model import kept as model_kept
from mixlens.model import parts as model_parts

N, HEADS, E, D = 3, 2, 2, 4
NORMS = ("norm_on_attention", "norm_after_attention", "norm_before_mlp", "norm_on_mlp", "norm_after_mlp")


def parts_of(
    seed: int, *, norms: tuple[str, ...] = NORMS, parallel: bool = False, kept: model_kept.Kept | None = None
) -> model_parts.LayerParts:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        linear = {"value": (D, D), "output": (D, D), "mlp_up": (D, 6), "mlp_down": (6, D)}
        modules: dict[str, Any] = {name: nn.Linear(*sizes).double() for name, sizes in linear.items()}
        for name in NORMS:
            modules[name] = nn.LayerNorm(D).double() if name in norms else None
            if name in norms:
                nn.init.normal_(modules[name].weight)
                nn.init.normal_(modules[name].bias)
    for module in modules.values():
        if module is not None:
            module.requires_grad_(False)
    others: dict[str, Any] = {
        "layer": nn.Module(),
        "mlp_act": torch.tanh,
        "mlp_gate": None,
        "norm_before_attention": None,
    }
    others |= {"value_layout": "v", "parallel": parallel, "attention": None}
    return model_parts.LayerParts(**modules, **others, kept=kept or model_kept.Kept())


def called(module: nn.Module | None, u: Tensor) -> Tensor:
    return u if module is None else module(u)


def traced(parts: model_parts.LayerParts, seed: int, *, causal: bool = True) -> types.LayerTrace:
    """A layer that the parts compute: query, key and x are drawn."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    query, key = (torch.randn(HEADS, N, E, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(1, N, N, dtype=torch.bool).tril() if causal else None
    logits = query @ key.mT * 0.5
    attention = (logits if mask is None else logits.masked_fill(~mask, -torch.inf)).softmax(-1)
    value = parts.value(x).view(N, HEADS, E).transpose(0, 1)
    wrote = parts.output((attention @ value).transpose(0, 1).flatten(1))
    middle = called(parts.norm_after_attention, x + called(parts.norm_on_attention, wrote))
    mlp = parts.mlp(called(parts.norm_before_mlp, x if parts.parallel else middle))
    output = called(parts.norm_after_mlp, middle + called(parts.norm_on_mlp, mlp))
    kept_middle = middle if parts.norm_after_attention is not None else None
    return types.LayerTrace(parts, x, value, wrote, mlp, output, query, key, mask, 0.5, None, None, kept_middle)


def batched(layer: types.LayerTrace) -> types.LayerTrace:
    names = ("input", "value", "attention_output", "mlp_output", "output", "query", "key", "mask", "middle")
    given = {name: getattr(layer, name) for name in names if getattr(layer, name) is not None}
    return replace(layer, **{name: tensor[None] for name, tensor in given.items()})


def pair(layer: types.LayerTrace, i: int, j: int, heads: tuple[int, ...] = (0, 1)) -> Tensor:
    """z_ij, head by head."""
    weight: Any = layer.parts.output.weight
    z = torch.zeros(D, dtype=torch.float64)
    for h in heads:
        z = z + layer.attention[h, i, j] * (weight[:, h * E : (h + 1) * E] @ layer.value[h, j])
    return z


def frozen(norm: nn.LayerNorm | None, z: Tensor, at: Tensor) -> Tensor:
    """A norm without its bias, with the statistics of `at`."""
    if norm is None:
        return z
    return norm.weight * (z - z.mean()) / (at.var(unbiased=False) + norm.eps).sqrt()


def part(layer: types.LayerTrace, stage: str, i: int, j: int) -> Tensor:
    """w_ij at a stage, written out."""
    parts: Any = layer.parts
    x, z = layer.input[i], pair(layer, i, j)
    if stage == "attention":
        return z
    z = frozen(parts.norm_on_attention, z, layer.attention_output[i])
    w = z + x if i == j else z
    if stage == "residual":
        return w
    stream = x + called(parts.norm_on_attention, layer.attention_output)[i]
    w = frozen(parts.norm_after_attention, w, stream)
    if stage == "norm":
        return w
    middle = called(parts.norm_after_attention, stream)
    return frozen(parts.norm_after_mlp, w, middle + called(parts.norm_on_mlp, layer.mlp_output[i]))


def of_all(layer: types.LayerTrace, function: Any) -> Tensor:
    rows = [torch.stack([torch.as_tensor(function(i, j)) for j in range(N)]) for i in range(N)]
    return torch.stack(rows)


KINDS = [plain.Block, quick.Block]
CASES: dict[str, tuple[str, ...]] = {
    "all norms": NORMS,
    "none": (),
    "after": ("norm_after_attention", "norm_after_mlp"),
    "on": ("norm_on_attention", "norm_before_mlp", "norm_on_mlp"),
}


@pytest.fixture(params=list(CASES))
def layer(request: pytest.FixtureRequest) -> types.LayerTrace:
    return traced(parts_of(3, norms=CASES[request.param]), 5)


@pytest.mark.parametrize("stage", plain.STAGES)
@torch.no_grad()
def test_parts_of_a_stage(stage: str, layer: types.LayerTrace) -> None:
    expected = of_all(layer, lambda i, j: part(layer, stage, i, j))  # [query key d]
    y = torch.linspace(-2, 2, N * D, dtype=torch.float64).view(N, D)
    nearer = (y.abs()[:, None] - (y[:, None] + 0.25 - expected).abs()).sum(-1)
    alone, two = plain.Block(layer), batched(layer)
    for source, vectors in alone.parts(stage).each():
        torch.testing.assert_close(vectors, expected[:, source])
    for block in (alone, quick.Block(layer), quick.Block(two), quick.Block([two, two], 0), quick.Block([layer, layer])):
        parts, leading = block.parts(stage), block.x.dim() - 2
        like = y.expand(*block.x.shape[:leading], N, D)
        for made, wanted in (
            (parts.lengths(), expected.norm(dim=-1)),
            (parts.nearer(like, 0.25), nearer),
            (parts.others(), torch.stack([(part_sum(layer, stage, i)).norm() for i in range(N)])),
            (parts.head_lengths(1), of_head(layer, stage)),
        ):
            torch.testing.assert_close(made, wanted.expand_as(made))


def part_sum(layer: types.LayerTrace, stage: str, i: int) -> Tensor:
    return torch.stack([part(layer, stage, i, j) for j in range(N) if j != i]).sum(0)


def of_head(layer: types.LayerTrace, stage: str) -> Tensor:
    """|w_ij| of the second head alone, without the residual."""

    def one(i: int, j: int) -> Tensor:
        z = pair(layer, i, j, (1,))
        parts: Any = layer.parts
        if stage != "attention":
            z = frozen(parts.norm_on_attention, z, layer.attention_output[i])
        stream = layer.input[i] + called(parts.norm_on_attention, layer.attention_output)[i]
        if stage in ("norm", "layer"):
            z = frozen(parts.norm_after_attention, z, stream)
        if stage == "layer":
            middle = called(parts.norm_after_attention, stream)
            z = frozen(parts.norm_after_mlp, z, middle + called(parts.norm_on_mlp, layer.mlp_output[i]))
        return z.norm()

    return of_all(layer, one)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_where_a_position_may_look(kind: Any) -> None:
    layer = traced(parts_of(8, norms=()), 2)
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    added = torch.zeros(1, N, N, dtype=torch.float64).masked_fill(~causal, torch.finfo(torch.float64).min)
    slightly = added.clone()
    slightly[0, 0, 1] = torch.finfo(torch.float64).min / 4  # a large penalty is no wall
    weights = layer.attention.clone()
    weights[:, 2, 0] = 0
    only = causal.clone()
    only[2, 0] = False
    per_head = torch.stack([causal, only])
    for mask, expected in ((layer.mask, causal), (added, causal), (per_head, causal), (causal, causal)):
        assert torch.equal(kind(replace(layer, mask=mask)).reach, expected)
    soft = causal.clone()
    soft[0, 1] = True
    assert torch.equal(kind(replace(layer, mask=slightly)).reach, soft)
    assert torch.equal(kind(replace(layer, mask=None)).reach, torch.ones(N, N, dtype=torch.bool))
    assert torch.equal(kind(replace(layer, weights=weights)).reach, only)
    assert torch.equal(kind(batched(replace(layer, mask=None))).reach, torch.ones(1, N, N, dtype=torch.bool))


def test_a_layer_is_proven_or_refused() -> None:
    with torch.no_grad():
        layer = traced(parts_of(2), 2)
        assert plain.proven_block(layer, 4).index == 4
        with pytest.raises(identities.Unproven, match=r"^layer 4: the model's own output"):
            plain.proven_block(replace(layer, attention_output=layer.attention_output + 1), 4)
    assert isinstance(fast.block_of(layer, 0), plain.Block)
