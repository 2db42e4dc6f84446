"""What the quick block does on its own: norms of several layers as one, answers that are kept, probes, products in rooms."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixlens.fast import block as quick
from mixlens.fast import norms as stacked
from mixlens.fast import parts
from mixlens.layer.norms import Chain, FrozenNorm
from mixlens.model.kept import Kept

CPU = torch.device("cpu")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norm_of(seed: int, eps: float = 0.1, *, centred: bool = True) -> Any:
    norm: Any = (nn.LayerNorm(4, eps) if centred else nn.RMSNorm(4, eps)).double().requires_grad_(False)
    norm.weight.copy_(drawn(4, seed=seed))
    if centred:
        norm.bias.copy_(drawn(4, seed=seed + 1))
    return norm


@pytest.mark.parametrize("centred", [True, False])
@torch.no_grad()
def test_norms_of_several_layers_as_one(centred: bool) -> None:
    store, used, modules = Kept(), dict[Any, Any](), [norm_of(1, centred=centred), norm_of(5, 0.3, centred=centred)]
    u = drawn(2, 3, 4)
    each = [stacked.known_norm(store, module, u, torch.float64, used) for module in modules]
    assert stacked.known_norm(store, modules[0], u, torch.float64, used) is each[0]
    assert list(used) == modules
    for module, norm in zip(modules, each, strict=True):
        torch.testing.assert_close(norm.gamma, module.weight)
        torch.testing.assert_close(norm(u), module(u))
    both = stacked.stacked_norm(store, modules, each, torch.float64, used)
    assert stacked.stacked_norm(store, modules, each, torch.float64, used) is both
    assert stacked.stacked_norm(store, modules, list(reversed(each)), torch.float64, used) is not both
    assert both.centred is centred
    expected = torch.stack([module(one) for module, one in zip(modules, u, strict=True)])
    torch.testing.assert_close(both(u), expected)
    made, reciprocal = both.with_reciprocal(u)
    torch.testing.assert_close(made, expected)
    torch.testing.assert_close(
        reciprocal, torch.stack([norm.with_reciprocal(one)[1] for norm, one in zip(each, u, strict=True)])
    )
    assert both.gamma_beside(u).shape == (2, 1, 4)
    assert both.eps_beside(u[:, None]).flatten().tolist() == pytest.approx([0.1, 0.3])
    assert both.eps_beside(u[:, None]).shape == (2, 1, 1, 1)
    a, b = each
    chains = [
        Chain((a,), (b,), None, None),
        Chain((a, b), (), None, None),
        Chain((b,), (a,), None, None),
        Chain((), (), None, None),
    ]
    assert [stacked.name_of(chain) for chain in chains] == [(id(a), id(b)), (id(a), id(b)), (id(b), id(a)), ()]


def test_examples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def tiles(*given: Any, **times: Any) -> list[slice]:
        asked.append((given, times))
        return []

    monkeypatch.setattr(parts, "tiles", tiles)
    mine = parts.Parts(SimpleNamespace(values=torch.zeros(5, 2, 3, 7)), None, residual=True)  # type: ignore[arg-type]
    mine.examples_at_once(torch.zeros(5, 3, 4))
    on_gpu = type("Tensor", (), {"device": torch.device("cuda"), "shape": (5, 3, 4), "__len__": lambda self: 5})()
    mine.examples_at_once(on_gpu)
    assert asked == [((5, 6 * 4, CPU), {"times": 8}), ((5, 4 * 6 * 4, torch.device("cuda")), {})]


def test_one_product_a_head() -> None:
    values, weights, room = drawn(2, 3, 5, 4), drawn(3, 4, 6, seed=1), torch.empty(2, 3, 5, 6, dtype=torch.float64)
    expected = torch.einsum("bhke,hed->bhkd", values, weights)
    torch.testing.assert_close(quick.by_heads(values, weights), expected)
    made = quick.by_heads(values, weights, room)
    torch.testing.assert_close(made, expected)
    assert made.data_ptr() == room.data_ptr()


def bare(**given: Any) -> Any:
    block = quick.Block.__new__(quick.Block)
    usual = {
        "scratch": {},
        "dtype": torch.float64,
        "x": torch.zeros(3, 4, dtype=torch.float64),
        "several": False,
        "compared": {},
    }
    block.__dict__ |= {**usual, "used": {}, "store": Kept(), **given}
    return block


@torch.no_grad()
def test_products_in_memory_of_the_call() -> None:
    block, a, b = bare(), drawn(2, 3, 4), drawn(2, 4, 5, seed=1)
    made = block.product(a, b)
    torch.testing.assert_close(made, a @ b)
    assert made.data_ptr() == block.scratch["product", torch.float64].data_ptr()
    torch.testing.assert_close(block.product(drawn(2, 2, 3, 4, seed=2), b), drawn(2, 2, 3, 4, seed=2) @ b)
    torch.testing.assert_close(block.product(drawn(3, 4, seed=2), b), drawn(3, 4, seed=2) @ b)
    far = bare(
        x=SimpleNamespace(device=torch.device("cuda"), new_empty=lambda *shape: ("new", shape)), dtype=torch.float32
    )
    a, b = a.float(), b.float()
    assert torch.equal(far.product(a, b), a @ b)
    assert far.room("x", (2, 3)) == ("new", (2, 3))
    assert far.scratch == {}


def test_answers_of_modules_that_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain weights are read, and so are those that are away; others are asked for, and kept where they are few enough."""
    asked, read, like = list[Any](), list[Any](), torch.zeros(1, dtype=torch.float64)

    def linear_weight(*given: Any) -> Tensor:
        read.append(given)
        return torch.zeros(1)

    def asked_weight(*given: Any) -> Tensor:
        asked.append(given)
        return torch.ones(2, 2)

    monkeypatch.setattr(quick, "linear_weight", linear_weight)
    monkeypatch.setattr(quick, "asked_weight", asked_weight)
    plain, own = nn.Linear(2, 2).double(), type("Own", (nn.Linear,), {})(2, 2).double()
    monkeypatch.setattr(quick, "is_plain", lambda module: module is plain)
    block = bare()
    block.linear_weight(plain, 2, like)
    assert read == [(plain, 2, torch.float64, like)]
    for _ in range(2):
        made = block.linear_weight(own, 2, like)
        assert (made.dtype, made.tolist()) == (torch.float64, [[1.0, 1.0], [1.0, 1.0]])
    assert asked == [(own, 2, like)]
    assert list(block.used) == [own]
    monkeypatch.setattr(quick, "ASKED_KEPT", 8)
    block.linear_weight(own, 2, like)  # four numbers are kept, and four more fit
    assert len(read) == 1
    monkeypatch.setattr(quick, "ASKED_KEPT", 7)
    block.linear_weight(own, 2, like)
    assert len(read) == 2
    monkeypatch.setattr(quick, "ASKED_KEPT", 8)
    monkeypatch.setattr(quick, "is_away", lambda module: True)
    block.linear_weight(own, 2, like)
    assert len(read) == 3


def test_where_no_metric_is_made() -> None:
    values = torch.zeros(2, 3, 4)
    assert bare(values=values, countable=False).metric(None) is None
    assert bare(values=torch.zeros(2, 3, 1025), countable=True).metric(None) is None
    kept = bare(values=torch.zeros(2, 3, 1024), countable=True)
    kept.kept = lambda kind, name, make: (kind, (kind, name))
    assert kept.metric(Chain((), (), None, None)) == ("metric", ())
    assert quick.METRIC_WIDTH == 2048


@torch.no_grad()
def test_changes_of_what_is_kept_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = SimpleNamespace(input=torch.zeros(3, 4, dtype=torch.float64))
    changes: list[Tensor] = []
    monkeypatch.setattr(quick, "changes_of", lambda used, like: changes)
    block = bare(layers=(layer, layer), layer=layer)
    block.compare_kept()
    assert (block.compared["weights"][0].tolist(), block.compared["weights"][1]) == (0.0, 1.0)
    changes += [torch.tensor(0.5, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)]
    block.compare_kept()
    assert block.compared["weights"][0].tolist() == 3.0
    block.several = True
    block.compare_kept()
    assert block.compared["weights"][0].tolist() == [3.0, 3.0]


@torch.no_grad()
def test_modules_that_are_watched() -> None:
    output, other = nn.Linear(6, 4).double(), nn.Linear(4, 4).double()
    layer = SimpleNamespace(input=torch.zeros(3, 4, dtype=torch.float64))
    block = bare(modules=SimpleNamespace(output=output), layer=layer, values=torch.zeros(2, 3, 3))
    for module in (output, other):
        block.watch(module)
    assert {id(module): memory.probe.shape[-1] for module, memory in block.used.items()} == {
        id(output): 6,
        id(other): 4,
    }
    assert all(("watched",) in memory.values for memory in block.used.values())


@torch.no_grad()
def test_what_is_compared_is_judged_by_its_tolerance() -> None:
    block = bare(several=False, layer=SimpleNamespace(input=torch.zeros(1)))
    block.tolerance = lambda identity: {"layer": 0.5}[identity]
    seen = torch.ones(2, 4, dtype=torch.float16)
    block.compare("layer", seen * 1.5, seen)
    block.compare("own", seen, seen, allowed=0.25)
    assert [(float(value), allowed) for value, allowed in block.compared.values()] == [(0.5, 0.5), (0.0, 0.25)]
    assert block.compared["layer"][0].dtype == torch.float32


def test_one_feature_of_many_counts_in_half_precision() -> None:
    """A whole token is off by 1 / 32; its worst feature by 1, an eighth of which counts, beside what the sum was made of."""
    seen = torch.ones(2, 1024)
    wrong = seen.clone()
    wrong[1, 3] = 2
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        block = bare(x=torch.zeros(2, 1024), layer=SimpleNamespace(input=torch.zeros(1, dtype=dtype)))
        found[dtype] = float(block.whole_gap(wrong, None, seen))
    assert found == {torch.float32: pytest.approx(1 / 32), torch.bfloat16: 0.125}
    large = torch.zeros(2, 1024)
    large[1, 3] = 16
    block = bare(x=large, layer=SimpleNamespace(input=torch.zeros(1, dtype=torch.bfloat16)))
    assert float(block.whole_gap(wrong - 0.5, torch.full((1024,), 0.5), seen)) == pytest.approx(1 / 32)
    several = bare(x=torch.zeros(2, 1, 1024), several=True, layers=(1, 2), layer=block.layer)
    assert several.whole_gap(wrong[:, None], None, seen[:, None]).tolist() == [0.0, 0.125]


def test_frozen_norms_beside_tensors() -> None:
    norm = FrozenNorm(torch.tensor([1.0, 2.0]), torch.zeros(2), True, 0.1)
    assert torch.equal(norm.gamma_beside(torch.zeros(3, 2)), norm.gamma)
    assert replace(norm, centred=False).centred is False
    parameter = torch.arange(6.0).view(2, 3)
    assert torch.equal(stacked.beside(parameter, torch.zeros(2, 5, 4, 3)), parameter[:, None, None])
    assert torch.equal(stacked.beside(parameter, torch.zeros(2, 3)), parameter)
