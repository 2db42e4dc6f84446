"""Jacobians of small functions: token by token, through norms and feed-forwards, from directions; and doubtful rows of T."""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixlens.base.errors import InputError, ModelError
from mixlens.methods import _jacobian, identifiability

# The package gives a function this name.
hta: Any = importlib.import_module("mixlens.methods.hta")
WIDE = torch.float64
SLICES = _jacobian.slices
PLACES = ("norm_before_mlp", "norm_on_mlp", "norm_after_mlp", "norm_after_attention", "norm_on_attention")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=WIDE)


def full(function: Any, *at: Tensor) -> Any:
    return torch.autograd.functional.jacobian(function, at if len(at) > 1 else at[0])


# --- tokens that go their own way -----------------------------------------------------------------------------------------


def test_slices_within_a_room() -> None:
    def made(*given: int, **room: int) -> list[tuple[int, int]]:
        return [(one.start, one.stop) for one in _jacobian.slices(*given, **room)]

    assert made(7, 3, room=9) == [(0, 3), (3, 6), (6, 7)]
    assert made(6, 3, room=9) == [(0, 3), (3, 6)]
    assert made(3, 10, room=9) == [(0, 1), (1, 2), (2, 3)]
    assert made(3, 0, room=9) == [(0, 3)]
    assert made(0, 1) == []
    assert made(3, 1 << 22) == [(0, 2), (2, 3)]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("heads", "e", "n"), [(2, 3, 4), (1, 2, 5), (3, 2, 2)])
def test_one_backward_pass_asks_all_tokens(
    heads: int, e: int, n: int, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """y_j = W x_j, or tanh of it, which has a Jacobian of its own at every token."""
    weight, x = drawn(heads * e, 3, seed=1), drawn(1, n, 3).requires_grad_()

    def function(x: Tensor) -> Tensor:
        y = x @ weight.t()
        return (y if same else y.tanh()).view(1, n, heads, e).transpose(1, 2)

    for room in (1 << 23, 1):
        monkeypatch.setattr(
            _jacobian,
            "slices",
            lambda n, each, room=room: [slice(i, i + 1) for i in range(n)] if room == 1 else [slice(0, n)],
        )
        found = _jacobian.token_jacobian(function(x), x)
        if same:
            assert found.shape == (1, heads * e, 3)
            torch.testing.assert_close(found[0], weight)
        else:
            slopes = 1 - (x[0] @ weight.t()).tanh() ** 2
            torch.testing.assert_close(found, (slopes[..., None] * weight).detach())


def test_tokens_that_differ_little_are_asked_each() -> None:
    x, eps = torch.ones(1, 2, 1, dtype=WIDE).requires_grad_(), torch.finfo(WIDE).eps
    for off, shape in ((32 * eps, 1), (200 * eps, 2)):
        y = (x * torch.tensor([[[1.0], [1.0 + off]]], dtype=WIDE))[:, None]
        assert len(_jacobian.token_jacobian(y, x)) == shape


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_rows_and_columns_through_a_norm(kind: Any) -> None:
    norm = kind(4).double().requires_grad_(False)
    nn.init.uniform_(norm.weight, 0.5, 2)
    at, rows = drawn(3, 4), drawn(3, 2, 4, seed=1)
    jacobians = torch.stack([full(norm, one) for one in at])
    torch.testing.assert_close(_jacobian.pull(norm, at, rows), rows @ jacobians)
    torch.testing.assert_close(_jacobian.push(norm, at, rows.mT), jacobians @ rows.mT)
    torch.testing.assert_close(_jacobian.pull(norm, at, rows[:1]), rows[:1] @ jacobians)  # the same rows for all tokens
    torch.testing.assert_close(_jacobian.push(norm, at, rows[:1].mT), jacobians @ rows[:1].mT)
    assert _jacobian.pull(None, at, rows) is rows
    assert _jacobian.push(None, at, rows) is rows
    with torch.no_grad():
        assert not _jacobian.pull(norm, at, rows).requires_grad


class Fed(SimpleNamespace):
    """The parts of a layer that its feed-forward is made of."""

    def mlp_hidden(self, up: Tensor, gate: Tensor | None) -> Tensor:
        if self.mlp_gate is self.mlp_up:
            gate, up = up.chunk(2, dim=-1)
        return torch.tanh(up) if gate is None else torch.tanh(gate) * up

    def mlp(self, h: Tensor) -> Tensor:
        gate = self.mlp_gate(h) if self.mlp_gate is not None and self.mlp_gate is not self.mlp_up else None
        return self.mlp_down(self.mlp_hidden(self.mlp_up(h), gate))


def fed(gate: str, **norms: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        up, down, own = (
            nn.Linear(4, 10 if gate == "both" else 5).double(),
            nn.Linear(5, 4).double(),
            nn.Linear(4, 5).double(),
        )
    for module in (up, down, own):
        module.requires_grad_(False)
    chosen = {"none": None, "both": up, "own": own}[gate]
    return Fed(mlp_up=up, mlp_down=down, mlp_gate=chosen, parallel=False, **{**dict.fromkeys(PLACES), **norms})


@pytest.mark.parametrize("gate", ["none", "own", "both"])
def test_the_jacobian_of_a_feed_forward(gate: str) -> None:
    part, h = fed(gate), drawn(3, 4)
    made = _jacobian.feed_forward(part, h)
    torch.testing.assert_close(made, torch.stack([full(part.mlp, one) for one in h]))


def normed(seed: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(4).double().requires_grad_(False)
    norm.weight.copy_(drawn(4, seed=seed))
    norm.bias.copy_(drawn(4, seed=seed + 1))
    return norm


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("some", [(), PLACES])
def test_all_that_is_behind_attention(parallel: bool, some: tuple[str, ...]) -> None:
    part = fed("own", **{name: normed(10 * number) for number, name in enumerate(some)})
    part.parallel = parallel

    def norm(name: str, u: Tensor) -> Tensor:
        module = getattr(part, name)
        return u if module is None else module(u)

    def middle(a: Tensor, x: Tensor) -> Tensor:
        return norm("norm_after_attention", x + norm("norm_on_attention", a))

    def layer(a: Tensor, x: Tensor) -> Tensor:
        m = middle(a, x)
        return norm("norm_after_mlp", m + norm("norm_on_mlp", part.mlp(norm("norm_before_mlp", x if parallel else m))))

    x, a = drawn(3, 4), drawn(3, 4, seed=1)
    stream = x + norm("norm_on_attention", a)
    block: Any = SimpleNamespace(wide_modules=part, x=x, attention_output=a, stream=stream, middle=middle(a, x))
    to_a, to_x = _jacobian.behind_attention(block, slice(1, 3))
    for number, i in enumerate((1, 2)):
        by_a, by_x = full(layer, a[i], x[i])
        torch.testing.assert_close(to_a[number], by_a)
        torch.testing.assert_close(to_x[number], by_x)


# --- directions pushed forward --------------------------------------------------------------------------------------------

DEPTH, N, D = 2, 3, 2


class Pushed:
    """A model of two layers that mix tokens: layer l multiplies all numbers of a text by a matrix, then takes tanh."""

    def __init__(self) -> None:
        self.device, self.hf_model, self.calls = torch.device("cpu"), nn.Module(), list[tuple[bool, int]]()
        self.x = drawn(N, D, seed=5)
        self.weights = [drawn(N * D, N * D, seed=number) / 2 for number in (6, 7)]

    def layers(self, x: Tensor) -> list[Tensor]:
        out = []
        for weight in self.weights:
            x = (x.flatten(-2) @ weight).tanh().unflatten(-1, (N, D))
            out.append(x)
        return out

    def run_from(
        self, trace: Any, enter: Any, leave: Any, *, after: bool, copies: int = 1, compare: bool = True
    ) -> None:
        assert compare or copies in {before for _, before in self.calls}  # of each size the first is compared
        self.calls.append((after, copies))
        for number, output in enumerate(self.layers(enter(self.x.expand(copies, N, D).clone() * (2 if after else 1)))):
            leave(number, output)


class Text:
    def __init__(self) -> None:
        self.model, self.layers = Pushed(), [SimpleNamespace(input=torch.zeros(N, D, dtype=WIDE))] * DEPTH

    def __len__(self) -> int:
        return N


def jacobians(model: Pushed, factor: int = 1) -> Tensor:
    """[layer query key out in]"""
    each = [full(lambda x, layer=layer: model.layers(x)[layer], model.x * factor) for layer in range(DEPTH)]
    return torch.stack(each).permute(0, 1, 3, 2, 4)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("where", ["before", "after"])
def test_norms_from_the_input(few: bool, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Text()
    if few:
        monkeypatch.setattr(hta.Directions, "batches", lambda self, total: [slice(i, i + 1) for i in range(total)])
    expected = jacobians(text.model, 2 if where == "after" else 1)
    norms = {"frobenius": expected.norm(dim=(-1, -2)), "sum": expected.sum(-2).norm(dim=-1)}
    norms["spectral"] = torch.linalg.matrix_norm(expected, ord=2)
    for norm, raw in norms.items():
        scores, told = hta.hta(text, norm=norm, input=where)
        torch.testing.assert_close(told["raw"], raw)
        torch.testing.assert_close(scores, raw / raw.sum(-1, keepdim=True))
        assert told["raw"].dtype == WIDE
    assert {after for after, _ in text.model.calls} == {where == "after"}


def test_estimates_from_random_signs() -> None:
    text = Text()
    scores, told = hta.hta(text, probes=4, seed=3)
    signs = torch.randint(0, 2, (4 * N, D), generator=torch.Generator().manual_seed(3)) * 2 - 1
    moved = torch.einsum("lqkoi,pki->lpqko", jacobians(text.model), signs.view(4, N, D).double()).pow(2).sum(-1)
    raw = moved.mean(1).sqrt()
    torch.testing.assert_close(told["raw"], raw)
    torch.testing.assert_close(told["standard_error"], moved.std(1) / 2 / (2 * raw))
    torch.testing.assert_close(scores, raw / raw.sum(-1, keepdim=True))
    text.model.weights[0].zero_()
    assert hta.hta(text, probes=2)[1]["standard_error"].tolist() == torch.zeros(DEPTH, N, N).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l2"}, "hta has no norm 'l2'. "),
        ({"input": "middle"}, "hta has no input 'middle'. "),
        ({"probes": 1}, "probes must be 2 or more, and estimate the Frobenius norm; got probes=1, norm='frobenius'."),
        (
            {"probes": True},
            "probes must be 2 or more, and estimate the Frobenius norm; got probes=True, norm='frobenius'.",
        ),
        (
            {"probes": 2, "norm": "sum"},
            "probes must be 2 or more, and estimate the Frobenius norm; got probes=2, norm='sum'.",
        ),
    ],
)
def test_options_of_hta_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        hta.hta(Text(), **options)
    assert str(refused.value).startswith(message)


def test_how_many_copies_at_once() -> None:
    text: Any = Text()
    text.layers = text.layers[:1]  # a model may have one layer alone
    directions = hta.Directions(text, after=True)
    assert (directions.n, directions.width, directions.after) == (N, D, True)
    fitting = (1 << 22) // (N * 4 * D)
    assert directions.batches(fitting + 1) == [slice(0, fitting), slice(fitting, fitting + 1)]
    text.model.device = torch.device("cuda")
    assert directions.batches(fitting + 1) == [slice(0, fitting + 1)]


def test_steps_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(hta, "tell", lambda *given: said.append(given))
    assert list(hta.watched(["a", "b"])) == ["a", "b"]
    assert said == [(1, 2, "passes"), (2, 2, "passes")]


# --- one layer ------------------------------------------------------------------------------------------------------------


def test_norms_row_by_row() -> None:
    model = Pushed()
    x = model.x[None].clone().requires_grad_()
    graph: Any = SimpleNamespace(input=x, output=model.layers(x)[0])
    each = jacobians(model)[0]
    torch.testing.assert_close(hta.row_by_row(graph, times_input=False), each.norm(dim=(-1, -2)))
    times = (each * model.x[None, :, None]).norm(dim=(-1, -2))
    torch.testing.assert_close(hta.row_by_row(graph, times_input=True), times)


def test_layers_without_queries_go_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = {0: 0.0, 2: 5e-5}

    def closed_form(graph: str, block: Any, *, times_input: bool) -> tuple[Tensor, float]:
        assert (graph, times_input) == (f"g{block[1]}", True)
        return torch.full((2, 2), float(block[1])), gaps[block[1]]

    monkeypatch.setattr(hta, "closed_form", closed_form)
    monkeypatch.setattr(hta, "row_by_row", lambda graph, times_input: torch.full((2, 2), 7.0 if times_input else 0.0))
    monkeypatch.setattr(hta.fast, "block_of", lambda layer, index: (layer, index))
    layers = [SimpleNamespace(query=query, input=torch.zeros(1)) for query in (1, None, 1)]
    model = SimpleNamespace(device=torch.device("cpu"), local_graphs=lambda trace: ["g0", "g1", "g2"])
    trace: Any = SimpleNamespace(layers=layers, model=model)
    made, told = hta.layer_norms(trace, "hta_layer", times_input=True)
    assert made[:, 0, 0].tolist() == [0.0, 7.0, 2.0]
    assert told["form"] == "closed form, autograd, closed form"
    assert told["gradient_gap"].tolist() == [0.0, 0.0, 5e-5]
    wider = " If the weights are very large, load with dtype='float64'."
    for gap, dtype, end in ((1.1e-4, torch.float32, wider), (math.nan, WIDE, ""), (1.1e-4, WIDE, "")):
        gaps[2], layers[2].input = gap, torch.zeros(1, dtype=dtype)
        with pytest.raises(ModelError) as refused:
            hta.layer_norms(trace, "hta_layer", times_input=True)
        assert str(refused.value) == (
            f"layer 2: a gradient put together from the parts is not the model's (relative gap {gap:.1e}), so 'hta_layer' gives "
            f"no map. Other methods do not rest on it: ask for them without 'hta_layer'.{end}"
        )
    trace.layers = layers[:1]
    model.local_graphs = lambda trace: ["g0"]
    assert hta.layer_norms(trace, "hta_layer", times_input=True)[1]["form"] == "closed form"


# --- doubtful rows --------------------------------------------------------------------------------------------------------


def doubtful_rows(vectors: Tensor, width: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that `within_past` leaves to singular values."""
    asked: list[int] = []
    spaces = identifiability.column_space

    def column_space(vectors: Tensor, allowed: Tensor, width: int) -> tuple[Tensor, Tensor]:
        asked.append(int(allowed.sum()) - 1)
        return spaces(vectors, allowed, width)

    monkeypatch.setattr(identifiability, "column_space", column_space)
    n = vectors.shape[-2]
    identifiability.within_past(vectors, torch.ones(*vectors.shape[:-2], n, n, dtype=vectors.dtype).tril(), width)
    monkeypatch.setattr(identifiability, "column_space", spaces)
    return asked


@pytest.mark.parametrize("size", [1.0, 1024.0, 2.0**-20])
@pytest.mark.parametrize("width", [3, 64])
def test_rows_whose_rank_is_in_doubt(size: float, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows (1, 0, 0), (0, s, 0), (0, 0, 1), (0, 0, 1) times a size: the smallest singular value s is sure where it is above twice
    eps max(rows, width) |T|, whatever the size. The lengths of T are 1, 1, sqrt(2) and sqrt(3)."""
    eps = torch.finfo(torch.float32).eps
    for share, doubtful in ((1.5, [1, 2, 3]), (2.7, [2, 3]), (3.6, [3] if width == 3 else []), (40.0, [])):
        s = share * eps * max(width, 3)
        vectors = torch.tensor([[1.0, 0.0, 0.0], [0.0, s, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]) * size
        assert doubtful_rows(vectors[None], width, monkeypatch) == doubtful
        both = torch.stack([vectors, torch.eye(4, 3) * size])  # one doubtful head is enough
        assert doubtful_rows(both, width, monkeypatch) == doubtful


def test_a_sure_row_behind_a_doubtful_one_stays() -> None:
    """Rows e0, e0, e1, e2, e1: the first three are dependent, and all of them together have full rank again."""
    vectors = torch.eye(3)[[0, 0, 1, 2, 1]]
    attention = torch.arange(1.0, 26.0).view(5, 5).tril()
    rows = [attention[i, : i + 1] @ vectors[: i + 1] @ torch.linalg.pinv(vectors[: i + 1]) for i in range(5)]
    expected = torch.stack([torch.cat([row, torch.zeros(4 - i)]) for i, row in enumerate(rows)])
    torch.testing.assert_close(
        identifiability.within_past(vectors[None], attention[None], 3)[0], expected, rtol=1e-4, atol=1e-4
    )
