"""Hidden Token Attribution: closed forms and streams against autograd on the stock model, pair by pair."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from conftest import CONFIGURATIONS, DISTINCT, OWN_ATTENTION, hf_model, ids, loaded, randomise
from torch import Tensor, nn

import mixlens
from mixlens.methods import _jacobian
from mixlens.methods import hta as hta_file
from mixlens.model import families, parts


def wide(case: str) -> Any:
    """The stock model, its norms computing in the dtype they are given."""
    model = copy.deepcopy(hf_model(case, attention="eager"))
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _honest(module)
    return model


def _honest(norm: Any) -> Callable[[Tensor], Tensor]:
    gamma = norm.weight + 1 if "Gemma" in type(norm).__name__ else norm.weight
    eps = getattr(norm, "variance_epsilon", None) or norm.eps
    return lambda x: gamma * x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


@contextmanager
def honest() -> Iterator[None]:
    """Attention code of transformers asks for a float32 softmax or rotation; here it gets what it puts in."""
    softmax, as_float, to = nn.functional.softmax, Tensor.float, Tensor.to

    def to_more(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        narrower = self.dtype == torch.float64 and torch.float32 in (*args, *kwargs.values())
        return self if narrower else to(self, *args, **kwargs)

    nn.functional.softmax = lambda x, dim=None, dtype=None, **more: softmax(x, dim=dim)  # type: ignore[assignment]
    Tensor.float = lambda self: self  # type: ignore[assignment, method-assign]
    Tensor.to = to_more  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        nn.functional.softmax, Tensor.float, Tensor.to = softmax, as_float, to  # type: ignore[method-assign]


def layer_calls(
    model: Any, given: list[int], watch: Callable[[int, Tensor, Tensor], None], mask: list[int] | None = None
) -> None:
    """Run the stock model; each layer reads a leaf, and `watch(layer, leaf, output)` sees both with their graph."""
    leaves: list[Tensor] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
        leaves.append(x)
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    def after(module: nn.Module, args: Any, output: Any) -> None:
        watch(len(leaves) - 1, leaves[-1], output[0] if isinstance(output, tuple) else output)

    layers = {id(one.layer): one.layer for one in loaded_parts(model)}.values()
    handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    handles += [layer.register_forward_hook(after) for layer in layers]
    try:
        with torch.enable_grad(), honest():
            model(torch.tensor([given]), attention_mask=torch.tensor([mask or [1] * len(given)]))
    finally:
        for handle in handles:
            handle.remove()


def loaded_parts(model: Any) -> Any:
    return parts.layer_parts(model.base_model, families.find(model.config))


def jacobian(y: Tensor, x: Tensor) -> Tensor:
    """[i, output feature, j, input feature], one backward pass for every feature of every token."""
    _, n, d = y.shape
    rows = [torch.autograd.grad(y[0, i, c], x, retain_graph=True)[0][0] for i in range(n) for c in range(d)]
    return torch.stack(rows).view(n, d, n, -1)


def layer_hta(model: Any, given: list[int], mask: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """|J_ij|_F and |J_ij diag(x_j)|_F of every layer, from the Jacobian of every pair."""
    plain, scaled = [], []

    def watch(layer: int, x: Tensor, y: Tensor) -> None:
        j = jacobian(y, x)
        plain.append(
            torch.stack([torch.stack([j[i, :, k].norm() for k in range(len(given))]) for i in range(len(given))])
        )
        times = j * x[0].detach()
        scaled.append(
            torch.stack([torch.stack([times[i, :, k].norm() for k in range(len(given))]) for i in range(len(given))])
        )

    layer_calls(model, given, watch, mask)
    return torch.stack(plain).detach(), torch.stack(scaled).detach()


@pytest.mark.parametrize("case", DISTINCT)
def test_layer_local_hta_is_the_norm_of_each_pairs_jacobian(case: str) -> None:
    """Norms and attention code of transformers that round to float32 inside are freed of it, on both sides alike."""
    given, model = ids(5), wide(case)
    plain, scaled = layer_hta(model, given)
    with honest():
        trace = mixlens.load(model).trace(input_ids=given)
        for name, expected in (("hta_layer", plain), ("hta_layer_x_input", scaled)):
            made = mixlens.mix(trace, name)
            torch.testing.assert_close(made.scores, expected, rtol=1e-8, atol=1e-13)
            assert made.info["form"] == ("autograd" if case in OWN_ATTENTION else "closed form")
            assert float(made.info["gradient_gap"].max()) < 1e-12


@pytest.mark.parametrize("case", ["llama", "gemma2", "gemma3_text", "olmo2", "modernbert"])
def test_models_that_round_inside_agree_to_their_rounding(case: str) -> None:
    given, model = ids(5), hf_model(case, attention="eager")
    plain, scaled = layer_hta(model, given)
    trace = mixlens.load(model).trace(input_ids=given)
    torch.testing.assert_close(mixlens.mix(trace, "hta_layer").scores, plain, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(mixlens.mix(trace, "hta_layer_x_input").scores, scaled, rtol=1e-5, atol=1e-9)


def test_heads_need_not_add_up_to_the_models_width() -> None:
    """Head width 12, four heads on two keys, model width 32."""
    options = {**CONFIGURATIONS["llama"][1], "head_dim": 12, "_attn_implementation": "eager"}
    config = transformers.AutoConfig.for_model("llama", **options)
    model = transformers.AutoModel.from_config(config)
    randomise(model)
    model = model.double().eval()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _honest(module)
    with honest():
        plain, scaled = layer_hta(model, ids(5))
        trace = mixlens.load(model).trace(input_ids=ids(5))
        torch.testing.assert_close(mixlens.mix(trace, "hta_layer").scores, plain, rtol=1e-8, atol=1e-13)
        torch.testing.assert_close(mixlens.mix(trace, "hta_layer_x_input").scores, scaled, rtol=1e-8, atol=1e-13)


def test_a_hidden_token_brings_nothing_to_others() -> None:
    given, mask = ids(6), [1, 1, 0, 1, 1, 1]
    plain, _ = layer_hta(hf_model("bert", attention="eager"), given, mask)
    made = mixlens.mix(loaded("bert").trace(input_ids=given, attention_mask=mask), "hta_layer").scores
    torch.testing.assert_close(made, plain, rtol=1e-9, atol=1e-13)
    assert float(made[:, [0, 1, 3, 4, 5], 2].max()) == 0


@pytest.mark.parametrize("case", ["bert", "llama", "gpt_neo"])
def test_small_pieces_give_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts and wide models go through in pieces: one, two or three at a time change nothing."""
    trace = loaded(case).trace(input_ids=ids(5))
    names = ("hta", "hta_layer", "hta_layer_x_input")
    whole = {name: mixlens.mix(trace, name).scores for name in names}
    spectral = mixlens.mix(trace, "hta", norm="spectral").scores
    for step in (2, 3):

        def few(n: int, each: int, room: int = 0, step: int = step) -> Iterator[slice]:
            size = step if n < 10 else 30
            return (slice(start, min(start + size, n)) for start in range(0, n, size))

        monkeypatch.setattr(_jacobian, "slices", few)
        monkeypatch.setattr(hta_file, "slices", few)
        for name in names:
            torch.testing.assert_close(mixlens.mix(trace, name).scores, whole[name], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(mixlens.mix(trace, "hta", norm="spectral").scores, spectral, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("case", ["bert", "llama"])
def test_half_precision_gives_a_map(case: str) -> None:
    half = mixlens.load(hf_model(case), dtype="bfloat16").trace(input_ids=ids(5))
    exact = loaded(case).trace(input_ids=ids(5))
    for name in ("hta", "hta_layer"):
        made, expected = mixlens.mix(half, name).scores, mixlens.mix(exact, name).scores
        assert made.dtype == torch.float32
        assert float((made - expected).abs().max()) < 0.2 * float(expected.max())


def test_wrong_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closed form is only as good as its parts: a gradient put together from them must be the model's."""

    def off(block: Any, tokens: slice) -> tuple[Tensor, Tensor]:
        after, beside = _jacobian.behind_attention(block, tokens)
        return after * 1.01, beside

    monkeypatch.setattr(hta_file, "behind_attention", off)
    with pytest.raises(mixlens.MixlensError, match="not the model's"):
        mixlens.mix(loaded("bert").trace(input_ids=ids(4)), "hta_layer")


def test_a_jacobian_that_all_tokens_share_is_held_once() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, 5, dtype=torch.float64, generator=generator).requires_grad_()
    weight = torch.randn(8, 5, dtype=torch.float64, generator=generator)
    shared = (x @ weight.T).view(1, 3, 2, 4).transpose(1, 2)
    torch.testing.assert_close(_jacobian.token_jacobian(shared, x), weight[None])
    scale = torch.tensor([1.0, 1.0, 1.0 + 1e-9], dtype=torch.float64)  # ever so slightly its own
    own = (x @ weight.T * scale[:, None]).view(1, 3, 2, 4).transpose(1, 2)
    torch.testing.assert_close(_jacobian.token_jacobian(own, x), weight * scale[:, None, None], rtol=1e-14, atol=0)


# --- from the input ---------------------------------------------------------------------------------------------------


def input_jacobians(case: str, given: list[int], *, after: bool) -> list[Tensor]:
    """The Jacobian of every layer's output in the input embedding, [i, feature, j, feature], on the stock model."""
    model = hf_model(case, attention="eager")
    family = mixlens.load(model).family
    leaves: list[Tensor] = []
    outputs: list[Tensor] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if leaves:
            return None
        leaves.append((args[0] if args else kwargs["hidden_states"]).detach().requires_grad_())
        return ((leaves[0], *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": leaves[0]})

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    layers = list({id(one.layer): one.layer for one in loaded_parts(model)}.values())
    place = (
        layers[0] if after or family.embedding_norm is None else model.base_model.get_submodule(family.embedding_norm)
    )
    handles = [place.register_forward_pre_hook(enter, with_kwargs=True)]
    handles += [layer.register_forward_hook(keep) for layer in layers]
    try:
        with torch.enable_grad(), honest():
            model(torch.tensor([given]))
        return [jacobian(y, leaves[0]).detach() for y in outputs]
    finally:
        for handle in handles:
            handle.remove()


def pair_norm(j: Tensor, norm: str) -> float:
    """Of one pair's Jacobian [output feature, input feature]."""
    if norm == "sum":
        return float(j.sum(0).norm())
    return float(torch.linalg.svdvals(j)[0]) if norm == "spectral" else float(j.pow(2).sum().sqrt())


FROM_INPUT = ["bert", "electra", "albert", "modernbert", "gpt2", "gpt_neo", "opt-post-norm", "gemma2"]


@pytest.mark.parametrize(
    ("case", "after"), [*((case, False) for case in FROM_INPUT), ("bert", True), ("electra", True), ("gpt2", True)]
)
def test_hta_is_the_norm_of_each_pairs_jacobian_from_the_input(case: str, after: bool) -> None:
    given = ids(4)
    jacobians = input_jacobians(case, given, after=after)
    trace = loaded(case).trace(input_ids=given)
    close = 1e-9 if case in ("bert", "electra", "albert", "gpt2", "opt-post-norm") else 1e-4  # the others round inside
    for norm in ("frobenius", "spectral", "sum"):
        made = mixlens.mix(trace, "hta", norm=norm, input="after" if after else "before")
        for layer, j in enumerate(jacobians):
            raw = torch.tensor([[pair_norm(j[i, :, k], norm) for k in range(4)] for i in range(4)], dtype=torch.float64)
            torch.testing.assert_close(made.info["raw"][layer], raw, rtol=close, atol=1e-9)
            torch.testing.assert_close(made.scores[layer], raw / raw.sum(-1, keepdim=True), rtol=close, atol=1e-9)


def test_probes_estimate_without_bias_and_know_their_error() -> None:
    trace = loaded("bert").trace(input_ids=ids(5))
    exact = mixlens.mix(trace, "hta").info["raw"]
    made = mixlens.mix(trace, "hta", probes=800)
    estimate, error = made.info["raw"], made.info["standard_error"]
    assert float((error / exact).max()) < 0.05
    off = (estimate - exact) / error
    assert float(off.abs().max()) < 4.5
    assert 0.6 < float(off.pow(2).mean().sqrt()) < 1.5
    torch.testing.assert_close(made.scores, estimate / estimate.sum(-1, keepdim=True))
    fewer = mixlens.mix(trace, "hta", probes=200).info["standard_error"]
    assert 1.7 < float((fewer / error).median()) < 2.3  # a quarter of the probes, twice the error
    assert torch.equal(
        mixlens.mix(trace, "hta", probes=9, seed=4).scores, mixlens.mix(trace, "hta", probes=9, seed=4).scores
    )
    assert not torch.equal(
        mixlens.mix(trace, "hta", probes=9, seed=4).scores, mixlens.mix(trace, "hta", probes=9).scores
    )


def test_a_probe_is_one_random_sign_per_feature() -> None:
    """The estimate written out: mean of |J_ij r|^2 over the signs that the seed gives, and the error of that mean."""
    trace, probes, n = loaded("gpt2").trace(input_ids=ids(3)), 6, 3
    jacobians = input_jacobians("gpt2", ids(3), after=False)
    made = mixlens.mix(trace, "hta", probes=probes, seed=5)
    signs = torch.randint(0, 2, (probes * n, 32), generator=torch.Generator().manual_seed(5)) * 2.0 - 1
    for layer, j in enumerate(jacobians):
        for i in range(n):
            for k in range(i + 1):
                lengths = torch.stack([(j[i, :, k] @ signs[p * n + k].double()).pow(2).sum() for p in range(probes)])
                estimate = lengths.mean().sqrt()
                torch.testing.assert_close(made.info["raw"][layer, i, k], estimate, rtol=1e-9, atol=0)
                error = lengths.std() / probes**0.5 / (2 * estimate)
                torch.testing.assert_close(made.info["standard_error"][layer, i, k], error, rtol=1e-8, atol=1e-14)


def test_a_row_from_the_input_is_the_row_of_the_map() -> None:
    """No layers are multiplied; a convention that would multiply them is refused."""
    from mixlens.scoring import aggregate

    made = mixlens.mix(loaded("bert").trace(input_ids=ids(4)), "hta")
    for row in (aggregate.rolled_row(made, 1), aggregate.rolled_rows([made, made], [1, 2])[0]):
        assert torch.equal(row.scores, made.scores[-1, 1])
        assert row.info["rollout"]["convention"] == "input"
    assert torch.equal(aggregate.rolled_row(made, 1, layer=0).scores, made.scores[0, 1])
    for options in ({"convention": "alti"}, {"residual": True}, {"normalize": False}):
        with pytest.raises(mixlens.MixlensError, match="from the input to every layer already"):
            aggregate.rolled_row(made, 1, **options)


def test_from_the_input_already() -> None:
    """Rolled out it stays as it is; multiplied or poured through a graph it would mean nothing."""
    made = mixlens.mix(loaded("bert").trace(input_ids=ids(4)), "hta")
    rolled = made.rollout()
    assert torch.equal(rolled.scores, made.scores)
    assert rolled.info["rollout"]["convention"] == "input"
    for refused in (lambda: made.rollout("alti"), lambda: made.rollout(normalize=True), made.flow, rolled.rollout):
        with pytest.raises(mixlens.MixlensError, match="already"):
            refused()
