"""Layers put together, blocks that calls share, norms held still and linear modules, on tensors written by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mixlens import fast
from mixlens.fast import zeroing
from mixlens.layer import norms, weights
from mixlens.layer.norms import Chain, FrozenNorm
from mixlens.model.offload import HOOK
from mixlens.scoring import batches
from mixlens.types import LayerTrace, cut

CPU = torch.device("cpu")


def numbered(*shape: int) -> Any:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def layer_of(n: int, batch: int | None = None, **changes: Any) -> LayerTrace:
    lead = () if batch is None else (batch,)
    states = {
        name: numbered(*lead, n, 3) + i for i, name in enumerate(("input", "attention_output", "mlp_output", "output"))
    }
    heads = {name: numbered(*lead, 2, n, 2) + i for i, name in enumerate(("query", "key", "value"))}
    return LayerTrace(**{"parts": SimpleNamespace(output=nn.Linear(2, 2)), **states, **heads, **changes})


# --- together -------------------------------------------------------------------------------------------------------------


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, off in (("off", True), ("on", False), ("", False), ("OFF", False)):
        monkeypatch.setenv("MIXLENS_FAST", value)
        assert fast.is_off() is off
    monkeypatch.setenv("MIXLENS_FAST", "off")
    assert fast.shared_blocks(None) is None  # type: ignore[arg-type]
    monkeypatch.delenv("MIXLENS_FAST")
    assert fast.is_off() is False


def test_the_block_of_one_layer_and_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.fast import block as fast_block
    from mixlens.layer import block as plain_block

    monkeypatch.setattr(fast_block, "Block", lambda *given, **options: ("fast", given[1:], options))
    monkeypatch.setattr(plain_block, "Block", lambda *given, **options: ("plain", given[1:], options))
    layer = layer_of(2)
    monkeypatch.delenv("MIXLENS_FAST", raising=False)
    assert fast.block_of(layer, 3, scratch={}) == ("fast", (3,), {"scratch": {}})
    monkeypatch.setenv("MIXLENS_FAST", "off")
    assert fast.block_of(layer, 3) == ("plain", (3,), {})
    assert fast.block_of([layer], 3) == ("fast", (3,), {"scratch": None})


def test_how_many_layers_at_once() -> None:
    def layer(n: int, width: int, batch: int = 1, device: str = "cuda", query: Any = True) -> Any:
        heads = SimpleNamespace(shape=(batch, 4, n, 8))
        first = SimpleNamespace(numel=lambda: batch * n)
        states = SimpleNamespace(device=torch.device(device), shape=(batch, n, width), __getitem__=None)

        class States(SimpleNamespace):
            def __getitem__(self, index: Any) -> Any:
                assert index == (..., 0)
                return first

        states = States(**{key: value for key, value in vars(states).items() if key != "__getitem__"})
        return SimpleNamespace(input=states, query=heads if query else None, weights=None if query else heads)

    room = 2 << 26
    assert batches.together_at_once(layer(10, 64, device="cpu"), 12) == 1
    assert batches.together_at_once(layer(1024, 64), 99) == room // (4 * 1024 * 1024)
    assert batches.together_at_once(layer(64, 4096), 99) == min(99, room // (4 * 64 * 4096))
    assert batches.together_at_once(layer(512, 64, batch=8, query=False), 99) == room // (4 * 8 * 512 * 512)
    assert batches.together_at_once(layer(10, 64), 12) == 12
    assert batches.together_at_once(layer(8192, 64, batch=4), 12) == 1


def test_rows_of_a_batch() -> None:
    whole = layer_of(4, 3, mask=numbered(1, 1, 4, 4))
    for rows in ([0, 1], [1, 2], [2, 0], [1]):
        made = cut(whole, rows, 3)
        assert torch.equal(made.input, whole.input[rows][:, :3])
        assert torch.equal(made.value, whole.value[rows][:, :, :3])
        assert torch.equal(made.mask, whole.mask[..., :3, :3])  # type: ignore[index, arg-type]


def test_traces_put_together() -> None:
    short, long = layer_of(2), layer_of(3, mask=torch.tensor([[True, False, True]] * 3))
    made = batches.stacked([short, long])
    assert made.input.shape == (2, 3, 3)
    assert made.input[0].tolist() == [*short.input.tolist(), short.input[-1].tolist()]
    assert torch.equal(made.value[1], long.value)
    assert made.mask.tolist() == [[[[True, True, False]] * 3], [[[True, False, True]] * 3]]  # type: ignore[union-attr]
    added = layer_of(2, mask=torch.zeros(1, 2, 2))
    lowest = torch.finfo(torch.float32).min
    padded = batches.stacked([added, layer_of(3, mask=torch.zeros(1, 3, 3))]).mask
    assert padded[0].tolist() == [[[0.0, 0.0, lowest]] * 3]  # type: ignore[index]
    weighted = [layer_of(n, weights=torch.full((2, n, n), 0.5)) for n in (2, 3)]
    both = batches.stacked(weighted)
    assert both.mask is None
    assert both.weights[0, 0].tolist() == [[0.5, 0.5, 0.0]] * 3  # type: ignore[index]


# --- norms held still -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [4, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_is_found_by_asking_it(kind: str, width: int, dtype: torch.dtype) -> None:
    module: Any = (
        nn.LayerNorm(width, eps=1e-3, dtype=dtype) if kind == "layer" else nn.RMSNorm(width, eps=1e-3, dtype=dtype)
    )
    gamma = torch.linspace(-0.5, 2.0, width, dtype=dtype)
    with torch.no_grad():
        module.weight.copy_(gamma)
        if kind == "layer":
            module.bias.copy_(gamma * 3 - 1)
    norm = FrozenNorm.of(module, width, torch.float64)
    assert norm.centred is (kind == "layer")
    torch.testing.assert_close(norm.gamma, gamma.double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        norm.beta, (gamma * 3 - 1 if kind == "layer" else 0 * gamma).double(), rtol=1e-6, atol=1e-6
    )
    assert norm.eps == pytest.approx(1e-3, rel=1e-3)
    u = torch.randn(2, 3, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = module.double()(u)
    torch.testing.assert_close(norm(u), expected, rtol=1e-5, atol=1e-5)
    normed, reciprocal = norm.with_reciprocal(u)
    torch.testing.assert_close(normed, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reciprocal, 1 / norm.scale(u), rtol=1e-9, atol=0)
    torch.testing.assert_close(norm.numerator(u) / norm.scale(u) + norm.beta, expected, rtol=1e-5, atol=1e-5)


def test_scales_of_a_norm() -> None:
    u = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    one = torch.ones(3, dtype=torch.float64)
    centred, plain = FrozenNorm(2 * one, one, True, 0.5), FrozenNorm(2 * one, one, False, 0.5)
    assert centred.scale(u).tolist() == [[pytest.approx(math.sqrt(14 / 3 + 0.5))]]
    assert centred.scale(u, eps=False).tolist() == [[pytest.approx(math.sqrt(14 / 3))]]
    assert centred.scale(u, eps=False, unbiased=True).tolist() == [[pytest.approx(math.sqrt(7))]]
    assert plain.scale(u).tolist() == [[pytest.approx(math.sqrt(41 / 3 + 0.5))]]
    assert centred.numerator(u).tolist() == [[-4.0, -2.0, 6.0]]
    assert plain.numerator(u).tolist() == [[2.0, 4.0, 12.0]]
    assert centred.without_gamma.numerator(u).tolist() == [[-2.0, -1.0, 3.0]]
    assert centred.without_gamma.beta is centred.beta
    assert norms.numerators((centred, plain), u).tolist() == [[-8.0, -4.0, 12.0]]


def test_a_chain_of_norms() -> None:
    one = torch.ones(3, dtype=torch.float64)
    branch, stream = FrozenNorm(2 * one, 0 * one, False, 0.0), FrozenNorm(5 * one, 0 * one, False, 0.0)
    left, right = torch.tensor([2.0, 4.0]), torch.tensor([8.0, 16.0])
    z = torch.ones(1, 3, dtype=torch.float64)
    both = Chain((branch,), (stream,), left, right)
    assert both.part(z).tolist() == [[10.0] * 3]
    assert both.residual(z).tolist() == [[5.0] * 3]
    assert both.part_reciprocal.tolist() == [16.0, 64.0]  # type: ignore[union-attr]
    assert Chain((branch,), (), left, None).part_reciprocal is left
    assert Chain((), (stream,), None, right).part_reciprocal is right
    assert Chain((), (), None, None).part_reciprocal is None


# --- linear modules -------------------------------------------------------------------------------------------------------


class Packed(nn.Module):
    """A linear map that hides its weights."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.inner = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_weights_that_are_read_and_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = nn.Linear(3, 2)
    assert weights.is_plain(linear)
    assert not weights.is_plain(Packed(linear))
    assert not weights.is_plain(nn.LayerNorm(3))
    read = weights.linear_weight(linear, 3, torch.float64)
    assert (read.dtype, read.shape) == (torch.float64, (3, 2))
    assert torch.equal(read, linear.weight.t().double())
    for rows in (1 << 26, 3, 1):
        monkeypatch.setattr(weights, "ASKED_ROWS", rows)
        torch.testing.assert_close(weights.linear_weight(Packed(linear), 3, torch.float64), read, rtol=1e-5, atol=1e-6)
    assert weights.linear_bias(linear, 3, torch.zeros(1)) is linear.bias
    torch.testing.assert_close(weights.linear_bias(Packed(linear), 3, torch.zeros(1)), linear.bias)
    assert weights.linear_bias(nn.Linear(3, 2, bias=False), 3, torch.zeros(1)).tolist() == [0.0, 0.0]
    from transformers.pytorch_utils import Conv1D

    conv = Conv1D(2, 3)
    assert weights.is_plain(conv)
    assert torch.equal(weights.linear_weight(conv, 3, torch.float32), conv.weight)
    assert weights.input_dtype(linear.double(), None) == torch.float64
    assert weights.input_dtype(linear, torch.zeros(1)) == torch.float32
    assert weights.input_dtype(nn.ReLU(), None) == torch.float32


def test_modules_that_somebody_changed() -> None:
    linear = nn.Linear(3, 2)
    hook = linear.register_forward_hook(lambda *given: None)
    assert weights.is_hooked(linear)
    assert not weights.is_plain(linear)
    hook.remove()
    before = linear.register_forward_pre_hook(lambda *given: None)
    assert weights.is_hooked(linear)
    before.remove()

    def watching(*given: Any) -> None: ...

    setattr(watching, weights.WATCHING, True)
    linear.register_forward_hook(watching)
    assert not weights.is_hooked(linear)
    assert weights.is_known(linear)
    assert not weights.is_known(Packed(linear))
    linear.forward = lambda x: x  # type: ignore[method-assign, assignment]
    assert not weights.is_known(linear)
    setattr(linear, HOOK, True)
    assert weights.is_known(linear)


def test_modules_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    half = nn.Linear(3, 2).half()
    wide = weights.widened(half, torch.zeros(1).half())
    assert {one.dtype for one in wide.parameters()} == {torch.float32}
    assert half.weight.dtype == torch.float16
    linear = nn.Linear(3, 2)
    packed: Any = Packed(linear)
    packed.in_features = 3
    monkeypatch.setattr(weights, "is_packed", lambda module: True)
    made: Any = weights.widened(packed, torch.zeros(1))
    torch.testing.assert_close(made.weight, linear.weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(made.bias, linear.bias)
    assert not any(one.requires_grad for one in made.parameters())
    del packed.in_features
    assert isinstance(weights.widened(packed, torch.zeros(1)), Packed)


# --- the first product of a feed-forward --------------------------------------------------------------------------------------


def test_what_a_first_product_gives() -> None:
    heads, bases, constants = numbered(2, 3, 4), numbered(3, 4), torch.tensor([1.0, 2.0, 3.0, 4.0])
    product: Any = SimpleNamespace(
        of_heads=(heads, heads + 1), bases=(bases, bases + 1), constants=(constants, -constants)
    )
    s = torch.tensor([[2.0], [4.0], [8.0]])
    whole = zeroing._of_first_product(product, s, halves=1)
    assert all(one is other for one, other in zip(whole["sources"], product.of_heads, strict=True))
    assert [one.tolist() for one in whole["reads"]] == [
        (bases / s + constants).tolist(),
        ((bases + 1) / s - constants).tolist(),
    ]
    assert all(one is other for one, other in zip(whole["constants"], product.constants, strict=True))
    parted = zeroing._of_first_product(product, s, halves=2)  # one product of both: the gate's half comes first
    assert [one.tolist() for one in parted["constants"]] == [[3.0, 4.0], [1.0, 2.0]]
    assert torch.equal(parted["sources"][0], heads[..., 2:])
    assert torch.equal(parted["reads"][1], (bases / s + constants)[..., :2])


def test_blocks_for_the_fused_loop() -> None:
    def told(**changes: Any) -> bool:
        facts = {"norm_on_mlp": None, "mlp_down": nn.Linear(2, 2), "several": False, "x": torch.zeros(3, 2), **changes}
        part = SimpleNamespace(norm_on_mlp=facts["norm_on_mlp"], mlp_down=facts["mlp_down"])
        return zeroing._is_for_loop(SimpleNamespace(wide_modules=part, x=facts["x"], several=facts["several"]))  # type: ignore[arg-type]

    assert told() is True
    assert told(x=torch.zeros(1, 3, 2)) is False
    assert told(several=True) is False
    assert told(norm_on_mlp=nn.Identity()) is False
    assert told(mlp_down=Packed(nn.Linear(2, 2))) is False


def test_the_norm_before_a_feed_forward() -> None:
    def part(**changes: Any) -> Any:
        given = {"norm_after_attention": None, "norm_before_mlp": "n", "parallel": False, "norm_on_attention": None}
        return SimpleNamespace(**{**given, "mlp_up": "up", "mlp_gate": None, **changes})

    assert zeroing._place_of_norm(part()) == "norm_before_mlp"
    assert zeroing._place_of_norm(part(norm_after_attention="n", norm_before_mlp=None)) == "norm_after_attention"
    for changes in (
        {"norm_after_attention": "n"},
        {"norm_before_mlp": None},
        {"parallel": True},
        {"norm_on_attention": "n"},
    ):
        assert zeroing._place_of_norm(part(**changes)) is None
    assert zeroing._first_modules(part()) == ["up"]
    assert zeroing._first_modules(part(mlp_gate="up")) == ["up"]
    assert zeroing._first_modules(part(mlp_gate="gate")) == ["up", "gate"]
    made = zeroing.FirstProduct("n", "u", True, (), (numbered(4, 2),), (torch.ones(2),), (numbered(3, 4, 2),))  # type: ignore[arg-type]
    assert made.sources[0].shape == (4, 4, 2)
    assert torch.equal(made.sources[0][:, :3], numbered(3, 4, 2).transpose(0, 1))
    assert made.sources[0][:, 3].tolist() == [[1.0, 1.0]] * 4
    row = made.at(slice(1, 2))
    assert torch.equal(row.bases[0], numbered(4, 2)[1:2])
    assert torch.equal(row.sources[0], made.sources[0])


@pytest.mark.parametrize(("batch", "shape"), [(None, (2, 3, 5)), (2, (2, 1, 3, 5))])
def test_what_each_layer_has_is_put_beside_its_examples(batch: int | None, shape: tuple[int, ...]) -> None:
    """[layer 3 5] gets an axis of one for the examples of a batch."""
    from mixlens.fast.block import Block

    made = Block.__new__(Block)
    made.layers = [layer_of(4, batch), layer_of(4, batch)]
    made.layer, made.several, made.one_of_batch = made.layers[0], True, False
    assert made.leading == (0 if batch is None else 1)
    assert made.beside(numbered(2, 3, 5), 2).shape == shape


def test_folded_weights_are_kept_only_where_weights_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.fast import block as fast_block

    asked: list[Any] = []

    def kept(*given: Any) -> Any:
        asked.append(given[:2])
        return given[2]()

    monkeypatch.setattr(fast_block, "name_of", lambda chain: chain.name)
    block: Any = SimpleNamespace(projection=3, countable=False, kept=kept, beside=lambda weights, axes: (weights, axes))
    chain: Any = SimpleNamespace(name="n", part=lambda weights: 2 * weights)
    assert (fast_block.Block.folded(block, chain), asked) == (6, [])
    block.countable = True
    assert (fast_block.Block.folded(block, chain), asked) == ((6, 3), [("folded", "n")])
    chain.name = ""
    assert (fast_block.Block.folded(block, chain), len(asked)) == (3, 1)
