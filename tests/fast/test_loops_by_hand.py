"""Which form of a loop is used and how it is built, with compilers and modules made of names; the plain forms, pair by pair."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mixlens.fast import loops
from mixlens.fast.loops import cpu, plain


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.3


# --- the plain forms ------------------------------------------------------------------------------------------------------


def test_the_plain_loops_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, queries, keys, d = 2, 3, 4, 5
    attention, vectors = drawn(heads, queries, keys), drawn(heads, keys, d, seed=1)
    reciprocal, y = drawn(queries, seed=2) + 1, drawn(queries, d, seed=3)
    near, long = torch.zeros(queries, keys, dtype=torch.float64), torch.zeros(queries, keys, dtype=torch.float64)
    for q in range(queries):
        for k in range(keys):
            part = reciprocal[q] * sum(attention[h, q, k] * vectors[h, k] for h in range(heads))
            near[q, k] = (y[q].abs() - (y[q] + 0.25 - part).abs()).sum()
            long[q, k] = part.norm()
    torch.testing.assert_close(plain.nearer(attention, vectors, reciprocal, y, 0.25), near)
    torch.testing.assert_close(plain.lengths(attention, plain.gram(vectors), reciprocal), long)
    assert plain.gram(vectors)[3, 0, 1] == pytest.approx(float(vectors[0, 3] @ vectors[1, 3]))
    metric = drawn(heads, heads, d, d, seed=4)
    assert plain.inner(vectors, metric)[2, 1, 0] == pytest.approx(float(vectors[1, 2] @ metric[1, 0] @ vectors[0, 2]))
    assert plain.by_source(attention)[1, 2].tolist() == attention[:, 2, 1].tolist()


def test_plain_norms_and_products() -> None:
    u, gamma, beta = drawn(2, 3, 4), drawn(2, 4, seed=1), drawn(2, 4, seed=2)
    eps = torch.tensor([0.5, 0.25], dtype=torch.float64)
    for centred in (True, False):
        made, reciprocal = plain.normed(u, gamma, beta, eps, centred)
        for layer in range(2):
            z = u[layer] - u[layer].mean(-1, keepdim=True) if centred else u[layer]
            scale = (z.pow(2).mean(-1, keepdim=True) + eps[layer]).sqrt()
            torch.testing.assert_close(made[layer], z / scale * gamma[layer] + beta[layer])
            torch.testing.assert_close(reciprocal[layer], 1 / scale)
    layers = torch.stack([-2 * torch.eye(2), torch.tensor([[0.0, 1.0], [3.0, 0.0]]), torch.eye(2)])
    products, sizes = plain.running(layers)
    assert torch.equal(products, torch.stack([layers[0], layers[1] @ layers[0], layers[1] @ layers[0]]))
    assert sizes.tolist() == [2.0, 6.0, 6.0]
    several = loops.running(layers[:, None])
    assert (several[0].shape, several[1].tolist()) == ((3, 1, 2, 2), [[2.0], [6.0], [6.0]])


def test_plain_ends() -> None:
    own, every, x, y = (drawn(3, 4, seed=i) for i in range(4))
    part, stream = drawn(3, seed=5) + 1, drawn(3, seed=6) + 1
    norms = [(drawn(4, seed=7), True), (drawn(4, seed=8), False)]
    first = (own - own.mean(-1, keepdim=True)) * norms[0][0] * norms[1][0] * part[:, None]
    rest = every - own
    others = (rest - rest.mean(-1, keepdim=True)) * norms[0][0] * norms[1][0] * part[:, None]
    whole = first + x * norms[1][0] * stream[:, None]
    for residual, expected in ((x, whole), (None, first)):
        lengths, of_others = plain.ends(own, every, residual, norms, 1, part, stream)
        torch.testing.assert_close(lengths, expected.norm(dim=-1))
        torch.testing.assert_close(of_others, others.norm(dim=-1))
        near = plain.own_nearer(own, residual, norms, 1, part, stream, y, 0.5)
        torch.testing.assert_close(near, (y.abs() - (y + 0.5 - expected).abs()).sum(-1))


# --- which form is used ---------------------------------------------------------------------------------------------------


@contextmanager
def module_of(module: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "_module", lambda kind: module)
        yield


def test_the_form_of_a_loop() -> None:
    fused = SimpleNamespace(gram="fused", inner="of double", TYPES={"inner": (torch.float64,)})
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    with module_of(fused):
        with torch.no_grad():
            assert (loops._form("gram", single), loops._form("gram", double)) == ("fused", "fused")
            assert (loops._form("inner", single), loops._form("inner", double)) == (plain.inner, "of double")
            assert loops._form("gram", single.half()) is plain.gram
            assert loops._form("lengths", single) is plain.lengths
            assert loops.fused("gram", single) is fused
            assert loops.fused("gram", double) is None
            assert loops.fused("lengths", single) is None
        assert loops._form("gram", single) is plain.gram  # gradients are recorded
        assert loops.fused("gram", single) is None
        assert (loops.used(torch.device("cpu")), loops.used(torch.device("cuda"))) == ("c", "triton")
    with module_of(plain), torch.no_grad():
        assert loops.fused("gram", single) is None
        assert loops.used(torch.device("cpu")) == "plain"


def test_forms_that_are_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    find = loops._module.__wrapped__
    monkeypatch.delenv("MIXLENS_KERNELS", raising=False)
    monkeypatch.delenv("MIXLENS_FAST", raising=False)
    right = SimpleNamespace(gram=plain.gram)
    wrong = SimpleNamespace(
        gram=lambda vectors: plain.gram(vectors) * 1.1, normed=lambda *given: tuple(x * 2 for x in plain.normed(*given))
    )
    monkeypatch.setattr(loops, "BUILDERS", {"cpu": lambda: right})
    assert find("cpu") is right
    assert find("mps") is plain
    monkeypatch.setattr(loops, "BUILDERS", {"cpu": lambda: None})
    assert find("cpu") is plain
    monkeypatch.setattr(loops, "BUILDERS", {"cpu": lambda: wrong})
    told = loops.disagreements(wrong, "cpu")
    assert [one.partition(":")[0] for one in told] == [
        *("gram, float32", "normed, float32", "normed, not centred, float32"),
        *("gram, float64", "normed, float64", "normed, not centred, float64"),
    ]
    assert told[0] == "gram, float32: 1e-01 apart"
    with pytest.warns(UserWarning, match=r"^the fused cpu loops are wrong here \(\['gram, float32: 1e-01 apart'"):
        assert find("cpu") is plain

    def broken() -> Any:
        raise OSError("no compiler")

    monkeypatch.setattr(loops, "BUILDERS", {"cpu": broken})
    with pytest.warns(
        UserWarning, match=r"^the fused cpu loops cannot be built \(no compiler\); the plain ones are used\.$"
    ):
        assert find("cpu") is plain
    monkeypatch.setattr(loops, "BUILDERS", {"cpu": lambda: right})
    monkeypatch.setenv("MIXLENS_KERNELS", "plain")
    assert find("cpu") is plain
    monkeypatch.setenv("MIXLENS_KERNELS", "")
    monkeypatch.setenv("MIXLENS_FAST", "off")
    assert find("cpu") is plain


# --- how it is built ------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_compiled_loops_on_several_layers(dtype: torch.dtype) -> None:
    """Each layer has a norm of its own: [layer 1 d] beside [layer pos d]."""
    if cpu.library() is None:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    own, every, x, y = (drawn(2, 3, 4, seed=i).to(dtype) for i in range(4))
    part, stream = (drawn(2, 3, seed=i).to(dtype) + 1 for i in (5, 6))
    norms = [(drawn(2, 1, 4, seed=7).to(dtype), True), (drawn(2, 1, 4, seed=8).to(dtype), False)]
    close: Any = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-12}
    for residual in (x, None):
        made = cpu.ends(own, every, residual, norms, 1, part, stream)
        for one, other in zip(made, plain.ends(own, every, residual, norms, 1, part, stream), strict=True):
            torch.testing.assert_close(one, other, **close)
        near = cpu.own_nearer(own, residual, norms, 1, part, stream, y, 0.5)
        torch.testing.assert_close(near, plain.own_nearer(own, residual, norms, 1, part, stream, y, 0.5), **close)
    bare = cpu.ends(own, every, None, [], 0, part, stream)
    torch.testing.assert_close(bare[0], (own * part[..., None]).norm(dim=-1), **close)
    metric = drawn(2, 3, 3, 4, 4, seed=9).to(dtype)
    values = drawn(2, 3, 5, 4, seed=10).to(dtype)
    symmetric = metric + metric.transpose(1, 2).mT
    torch.testing.assert_close(cpu.inner(values, symmetric), plain.inner(values, symmetric), **close)
    for n in (64, 65):
        layers = drawn(3, n, n, seed=11).to(dtype) / n
        for one, other in zip(cpu.running(layers), plain.running(layers), strict=True):
            torch.testing.assert_close(one, other, **close)
    added = drawn(4, seed=12).to(dtype)
    for given in (added, None):
        torch.testing.assert_close(cpu.apart(own, given, every), plain.apart(own, given, every), **close)
    torch.testing.assert_close(cpu.apart(own, None, every, 2), plain.apart(own, None, every, 2), **close)
