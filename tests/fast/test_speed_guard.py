"""Speed, guarded without a clock: products are counted, tensors are watched, forward passes are counted.

The numbers of tokens and widths are chosen so that a tensor of pairs by features (n n d) is far larger than anything a
layer needs: attention (H n n), vectors by head (n H d), the feed-forward (n H m).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import pytest
import torch
import transformers
from conftest import ids, loaded, needs_fast, randomise
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import mixlens
from mixlens.base import budget
from mixlens.fast import loops as kernels
from mixlens.fast.loops import cpu, plain
from mixlens.scoring import registry

N, D, H, M, LAYERS = 128, 256, 4, 256, 2
E = D // H
PAIRS_BY_FEATURES = N * N * D
NORMS = ["norm", "norm_residual", "norm_residual_ln", "globenc"]
FIVE = ["attention", "norm", "norm_residual_ln", "globenc", "alti"]
QUICK = [*NORMS, "alti", "value_zeroing", "effective_attention", "attention"]
IDS = ids(N)


@cache
def model_of(kind: str, dtype: torch.dtype = torch.float32) -> mixlens.Model:
    options: dict[str, Any] = {
        "bert": {"hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": H, "intermediate_size": M},
        "gpt2": {"n_embd": D, "n_layer": LAYERS, "n_head": H, "n_inner": M},
    }[kind]
    config = transformers.AutoConfig.for_model(kind, vocab_size=97, **options)
    stock = transformers.AutoModel.from_config(config).eval()
    randomise(stock)
    for name, weights in stock.named_parameters():  # width 256: weights of 0.25 would be a shout
        if weights.dim() > 1 and "embed" not in name and "wte" not in name and "wpe" not in name:
            weights.detach().mul_(0.25)
    return mixlens.load(stock.to(dtype))


@pytest.fixture(params=["fused", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The C loops, and what MIXLENS_KERNELS=plain gives."""
    if request.param == "plain":
        monkeypatch.setattr(kernels, "_module", lambda device_type: plain)
    elif kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    return str(request.param)


@pytest.fixture
def unbuilt() -> Iterator[None]:
    """Nothing remembered of which loops are used, before and after."""

    def forget() -> None:
        kernels._module.cache_clear()
        cpu.library.cache_clear()

    forget()
    yield
    forget()


# --- what is counted --------------------------------------------------------------------------------------------------


def flops(work: Callable[[], Any]) -> int:
    """Operations in matrix products. Loops in C are not seen: with them this is a lower bound."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


class Watcher(TorchDispatchMode):
    """The largest memory any tensor had, and the most that was held at a time, in elements. What was there before is
    free."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.held = self.peak = 0
        self.alive: dict[int, list[int]] = {}  # where: [tensors that share it, elements]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {_place(t) for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self._see(tensor, before)
        return out

    def _see(self, tensor: Tensor, before: set[int]) -> None:
        place, elements = _place(tensor), tensor.untyped_storage().nbytes() // tensor.element_size()
        if place in before and place not in self.alive:
            return  # a view of a weight, or of a trace
        if place not in self.alive:
            self.alive[place] = [0, elements]
            self.held += elements
        self.alive[place][0] += 1
        weakref.finalize(tensor, self._forget, place)
        self.largest, self.peak = max(self.largest, elements), max(self.peak, self.held)

    def _forget(self, place: int) -> None:
        entry = self.alive.get(place)
        if entry is not None:
            entry[0] -= 1
            if not entry[0]:
                self.held -= self.alive.pop(place)[1]


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def watched(work: Callable[[], Any]) -> Watcher:
    with torch.no_grad(), Watcher() as watcher:
        made = work()
    del made
    return watcher


@contextmanager
def forward_passes(model: mixlens.Model) -> Iterator[list[int]]:
    seen: list[int] = []
    handle = model.hf_model.register_forward_hook(lambda *_: seen.append(1))
    try:
        yield seen
    finally:
        handle.remove()


# --- how large --------------------------------------------------------------------------------------------------------


def test_the_watcher_sees_a_tensor_of_pairs_by_features() -> None:
    """The guard's own guard: the straightforward code is caught."""
    trace = model_of("bert").trace(input_ids=IDS)
    layer = trace.layers[0]

    def straightforward() -> Tensor:
        return torch.einsum("hij,hje->ijhe", layer.attention, layer.value).flatten(2)

    seen = watched(straightforward)
    assert seen.largest >= PAIRS_BY_FEATURES
    assert seen.peak >= PAIRS_BY_FEATURES


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("name", [*QUICK, "NORMS", "FIVE"])
def test_nothing_of_pairs_by_features_is_held(kind: str, name: str, loops: str) -> None:
    asked: Any = {"NORMS": NORMS, "FIVE": FIVE}.get(name, name)
    trace = model_of(kind).trace(input_ids=IDS)
    needed = max(H * N * N, N * H * max(D, M), D * M, 3 * D * D)
    tile = 8 * budget.AUTOMATIC["cpu"]  # the most any loop asks for
    assert max(needed, tile) < 0.6 * PAIRS_BY_FEATURES, "the guard could not tell"
    seen = watched(lambda: mixlens.mix(trace, asked))
    assert seen.largest <= max(needed, tile), "by itself"
    # A source at a time: then nothing is larger than attention, all vectors by head or a weight.
    seen = watched(lambda: mixlens.mix(trace, asked, chunk=1))
    assert seen.largest <= needed
    maps = (len(asked) if isinstance(asked, list) else 1) * LAYERS * N * N
    assert seen.peak <= 12 * needed + 2 * maps, f"{seen.peak / needed:.1f} times the largest"
    assert seen.peak < PAIRS_BY_FEATURES


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_streaming_holds_one_layer(kind: str, loops: str) -> None:
    """`Model.mix` forgets a layer when it is scored: twice the layers hold no more than their maps."""
    config = {"bert": "num_hidden_layers", "gpt2": "n_layer"}[kind]
    short = model_of(kind)
    deep_config = short.hf_model.config.__class__(**{**short.hf_model.config.to_dict(), config: 4 * LAYERS})
    deep_stock = transformers.AutoModel.from_config(deep_config).eval()
    randomise(deep_stock)
    for weights in deep_stock.parameters():
        weights.detach().mul_(0.25)
    deep = mixlens.load(deep_stock)
    for model in (short, deep):  # what is made of the weights alone is kept; it is not counted
        model.mix(input_ids=IDS, name="globenc", chunk=1)
    peaks = [watched(lambda m=m: m.mix(input_ids=IDS, name="globenc", chunk=1)).peak for m in (short, deep)]
    maps = 3 * LAYERS * (N * N + 3 * N)
    assert peaks[1] - peaks[0] <= 2 * maps + N * D, "the layers are kept"
    traced = watched(lambda: mixlens.mix(deep.trace(input_ids=IDS), "globenc", chunk=1)).peak
    assert traced > peaks[1], "a trace keeps them, and is seen to"


# --- how much work ----------------------------------------------------------------------------------------------------


def attention_and_proof() -> int:
    """Attention computed again, its parts summed and projected, each token's own part; a probe of two rows through
    W_O."""
    return 2 * N * N * D + 2 * N * N * D + 2 * 2 * N * D * D + 2 * 2 * D * D


def gram_form(chains: int) -> int:
    """Vectors by head through a chain of norms, a small Gram matrix for each source, a quadratic form for each pair."""
    return chains * (2 * N * D * D + 2 * N * H * H * D + 2 * N * N * H * H)


def zeroing(pairs: float) -> float:
    """The second product of the feed-forward for each pair; the first and the parts by heads; what is done once a
    layer: among it the layer run again as it is, with other rounding errors, and without one source."""
    once = 2 * D * D * M + 2 * N * D * M * 2 + 2 * N * D * D + 2 * N * H * D + 3 * 2 * 2 * N * D * M
    return pairs * (2 * M * D + 2 * H * (D + M)) + once


BOUNDS: dict[str, Callable[[str], float]] = {  # operations of one layer, by kind of model
    "attention": lambda kind: attention_and_proof(),
    "norm": lambda kind: attention_and_proof() + gram_form(1),
    "norm_residual": lambda kind: attention_and_proof() + gram_form(1),
    "norm_residual_ln": lambda kind: attention_and_proof() + gram_form(1),
    "globenc": lambda kind: attention_and_proof() + gram_form(1),
    "NORMS": lambda kind: (
        attention_and_proof() + gram_form(3 if kind == "bert" else 1)
    ),  # a pre-norm model has one chain
    "alti": lambda kind: attention_and_proof() + 2 * N * D * D + 2 * N * N * H * D,
    "FIVE": lambda kind: (
        attention_and_proof() + gram_form(3 if kind == "bert" else 1) + 2 * N * D * D + 2 * N * N * H * D
    ),
    "effective_attention": lambda kind: attention_and_proof() + 4 * N * N * D + 4 * N * D * E + 2 * D * D * E,
}


# A position that may not look everywhere is projected within what it may see, by decompositions, not by products.
BOUNDED = [
    (name, kind) for name in BOUNDS for kind in ("bert", "gpt2") if (name, kind) != ("effective_attention", "gpt2")
]


@needs_fast
@pytest.mark.parametrize(("name", "kind"), BOUNDED)
def test_products_stay_within_the_closed_form(kind: str, name: str, loops: str) -> None:
    asked: Any = {"NORMS": NORMS, "FIVE": FIVE}.get(name, name)
    trace = model_of(kind).trace(input_ids=IDS)
    mixlens.mix(trace, asked)  # what is made of the weights alone is kept; it is not counted
    for chunk in (None, 1):
        counted = flops(lambda chunk=chunk: mixlens.mix(trace, asked, chunk=chunk))
        assert counted <= 1.02 * LAYERS * BOUNDS[name](kind)


@needs_fast
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_method_costs_about_a_forward_pass(kind: str, loops: str) -> None:
    """As multiples of one forward pass; far below what vectors of pairs would cost, and what running layers again
    would."""
    model = model_of(kind)
    forward = flops(lambda: model.hf_model(torch.tensor([IDS])))
    assert flops(lambda: model.trace(input_ids=IDS)) == forward, "tracing computes nothing"
    trace = model.trace(input_ids=IDS)
    mixlens.mix(trace, FIVE)  # what is made of the weights alone is kept; it is not counted
    for asked, most in ((NORMS, 1.1), ("alti", 1.01), (FIVE, 1.6), ("attention", 0.5)):
        assert flops(lambda asked=asked: mixlens.mix(trace, asked)) <= most * forward, asked
    one_row = flops(lambda: mixlens.mix(trace, "value_zeroing", query=N // 2))
    assert one_row <= 2.2 * forward


@needs_fast
def test_value_zeroing_runs_only_what_is_behind_the_activation(loops: str) -> None:
    trace = model_of("bert").trace(input_ids=IDS)
    most = LAYERS * (attention_and_proof() + zeroing(N * N))
    counted = flops(lambda: mixlens.mix(trace, "value_zeroing"))
    assert counted <= 1.02 * most
    again = N * flops(lambda: model_of("bert").hf_model(torch.tensor([IDS])))  # the layer again for each token
    assert counted < again / 5


@needs_fast
def test_value_zeroing_of_a_causal_model_is_half_the_work(loops: str) -> None:
    trace = model_of("gpt2").trace(input_ids=IDS)
    most = LAYERS * (attention_and_proof() + zeroing(N * (N + 1) / 2))
    assert flops(lambda: mixlens.mix(trace, "value_zeroing", chunk=1)) <= 1.02 * most
    tiles = LAYERS * (attention_and_proof() + zeroing(N * (N + 8) / 2))
    eight = flops(lambda: mixlens.mix(trace, "value_zeroing", chunk=8 * N * D))
    assert eight <= 1.02 * tiles, "tiles of several sources waste little"


def test_rollouts_add_one_product_a_layer() -> None:
    made = mixlens.mix(model_of("bert").trace(input_ids=IDS), FIVE)
    for one in made.values():
        assert flops(one.rollout) <= 2 * LAYERS * N**3


@needs_fast
def test_five_methods_run_the_model_once(loops: str) -> None:
    model = model_of("bert")
    with forward_passes(model) as seen:
        made = mixlens.mix(model.trace(input_ids=IDS), FIVE)
        assert len(seen) == 1
        for one in made.values():
            one.rollout()
        mixlens.mix(model.trace(input_ids=IDS), "value_zeroing")
        assert len(seen) == 2
        model.mix(input_ids=IDS, name=FIVE)
        assert len(seen) == 3
    traces = [model.trace(input_ids=IDS) for _ in range(len(FIVE) + 1)]  # calls on one trace would share its blocks
    together = flops(lambda: mixlens.mix(traces[-1], FIVE))
    apart = sum(
        flops(lambda name=name, trace=trace: mixlens.mix(trace, name))
        for name, trace in zip(FIVE, traces, strict=False)
    )
    assert together < 0.6 * apart, "one decomposition serves all"


# --- the same numbers -------------------------------------------------------------------------------------------------


@st.composite
def layers(draw: Any) -> dict[str, Any]:
    """Any shape: one token, odd widths, one head, batch axes; attention with zeros in it; both number types."""
    axes = draw(st.lists(st.integers(1, 3), max_size=2))
    n, d, heads = draw(st.integers(1, 70)), draw(st.integers(1, 70)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=seeded, dtype=torch.float64).to(dtype)

    queries = draw(st.sampled_from([n, 1, max(1, n // 2)]))
    attention = normal(*axes, heads, queries, n).softmax(-1)
    looks = draw(st.sampled_from(["everywhere", "back", "nowhere", "here and there"]))
    if looks == "back":
        attention = attention.tril()
    elif looks == "nowhere":
        attention = torch.zeros_like(attention)
    elif looks == "here and there":
        attention = attention * (normal(*axes, 1, queries, n) > 0)
    return {
        "attention": attention,
        "vectors": normal(*axes, heads, n, d),
        "reciprocal": normal(*axes, queries).abs() + 0.1,
        "y": normal(*axes, queries, d),
        "shift": draw(st.sampled_from([0.0, -1e-6, -0.5])),
    }


def close(made: Tensor, exact: Tensor, size: Tensor | float = 1.0) -> None:
    assert made.dtype in (torch.float32, torch.float64)
    assert made.shape == exact.shape
    within = (1e-5 if made.dtype == torch.float32 else 1e-12) * size
    assert bool(((made.double() - exact).abs() <= within).all())


def wide(layer: dict[str, Any]) -> dict[str, Any]:
    return {key: value.double() if isinstance(value, Tensor) else value for key, value in layer.items()}


@pytest.fixture(scope="module")
def fused() -> Any:
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler, and MIXLENS_KERNELS not set to plain")
    return cpu


@settings(max_examples=150, deadline=None)
@given(layer=layers())
def test_fused_loops_are_the_plain_ones(fused: Any, layer: dict[str, Any]) -> None:
    exact = wide(layer)
    length = exact["y"].abs().sum(-1, keepdim=True) + exact["y"].shape[-1]
    close(fused.nearer(**layer), plain.nearer(**exact), length)
    gram, wide_gram = plain.gram(layer["vectors"]), plain.gram(exact["vectors"])
    made = fused.lengths(layer["attention"], gram, layer["reciprocal"])
    expected = plain.lengths(exact["attention"], wide_gram, exact["reciprocal"])
    # A length near zero is the root of a difference: compare squares, on the scale of the largest Gram entry.
    close(made**2, expected**2, 10 * (wide_gram.abs().max() * exact["reciprocal"].max() ** 2 + 1e-300))
    # The Gram matrices without the vectors: any metric W_h W_g^T, which is not that of g and h.
    heads, width = layer["vectors"].shape[-3], min(12, layer["vectors"].shape[-1])
    weights = torch.randn(heads, width, 9, generator=torch.Generator().manual_seed(heads), dtype=torch.float64)
    metric = torch.einsum("hed,gfd->hgef", weights, weights)
    values = layer["vectors"][..., :width]
    expected = plain.inner(values.double(), metric)
    scale = metric.abs().max() * values.double().abs().max() ** 2 * width**2
    close(fused.inner(values, metric.to(values.dtype)), expected, scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_loops_hide_no_nan(fused: Any, dtype: torch.dtype) -> None:
    attention = torch.full((2, 5, 5), 0.2, dtype=dtype)
    attention[0, 3, 1] = float("nan")
    vectors, reciprocal, y = (
        torch.ones(2, 5, 40, dtype=dtype),
        torch.ones(5, dtype=dtype),
        torch.ones(5, 40, dtype=dtype),
    )
    for made in (
        fused.nearer(attention, vectors, reciprocal, y, 0.0),
        fused.lengths(attention, plain.gram(vectors), reciprocal),
    ):
        assert made.isnan().nonzero().tolist() == [[3, 1]]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("case", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("chunk", [1, 100])
def test_maps_do_not_depend_on_the_tiles(case: str, name: str, chunk: int, loops: str) -> None:
    trace = loaded(case).trace(input_ids=ids(11))
    whole, pieces = mixlens.mix(trace, name).scores, mixlens.mix(trace, name, chunk=chunk).scores
    torch.testing.assert_close(pieces, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("case", ["bert", "gpt2", "llama"])
def test_two_runs_are_bit_equal(case: str, name: str, loops: str) -> None:
    model = loaded(case, dtype=torch.float32)
    once, again = (mixlens.mix(model.trace(input_ids=ids(17)), name).scores for _ in range(2))
    assert torch.equal(once, again)


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "modernbert"])
def test_a_streamed_map_is_the_traced_one(case: str, loops: str) -> None:
    model = loaded(case)
    one, several = ids(13), [ids(n, seed=n) for n in (13, 5, 1, 9)]
    traced, streamed = mixlens.mix(model.trace(input_ids=one), QUICK), model.mix(input_ids=one, name=QUICK)
    for name in QUICK:
        torch.testing.assert_close(streamed[name].scores, traced[name].scores, rtol=1e-12, atol=1e-12)
        assert streamed[name].tokens == traced[name].tokens
        assert {key for key in streamed[name].info if key != "notes"} == {
            key for key in traced[name].info if key != "notes"
        }
    for alone, of_many in zip(several, model.mix(input_ids=several, name="alti"), strict=True):
        expected = mixlens.mix(model.trace(input_ids=alone), "alti").scores
        torch.testing.assert_close(of_many.scores, expected, rtol=1e-9, atol=1e-12)


# --- when something is missing ----------------------------------------------------------------------------------------


def test_a_wrong_fused_loop_is_refused(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = loaded("bert", dtype=torch.float32).trace(input_ids=ids(9))
    expected = mixlens.mix(trace, "alti").scores
    if kernels._module("cpu") is plain:
        pytest.skip("needs a C compiler")
    kernels._module.cache_clear()
    right = cpu.nearer
    monkeypatch.setattr(cpu, "nearer", lambda *given: right(*given) * (1 + 1e-3))
    with pytest.warns(UserWarning, match="fused cpu loops are wrong here.*nearer, float32"):
        assert kernels._module("cpu") is plain
    assert kernels.used(torch.device("cpu")) == "plain"
    made = mixlens.mix(trace, "alti")
    assert made.info["loops"] == "plain"
    torch.testing.assert_close(made.scores, expected, rtol=1e-4, atol=1e-6)


def test_without_a_compiler_the_plain_loops_are_used(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert cpu.library() is None
    assert kernels.used(torch.device("cpu")) == "plain"
    trace = loaded("bert").trace(input_ids=ids(9))
    assert mixlens.mix(trace, "alti").info["loops"] == "plain"


@needs_fast
def test_a_compiler_that_is_named_and_not_there_is_said(unbuilt: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.warns(UserWarning, match="CC names 'no-such-compiler', which is not there.*the plain ones are used"):
        assert kernels.used(torch.device("cpu")) == "plain"


@needs_fast
def test_a_compiler_that_fails_is_said(unbuilt: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cpu.c: no such luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.warns(UserWarning, match=r"cannot be built \(cpu.c: no such luck\); the plain ones are used"):
        assert kernels.used(torch.device("cpu")) == "plain"


@pytest.mark.parametrize(("name", "value"), [("MIXLENS_KERNELS", "plain"), ("MIXLENS_FAST", "off")])
def test_the_environment_switches_them_off(
    name: str, value: str, unbuilt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert kernels._module("cpu") is kernels._module("mps") is plain
    assert kernels.used(torch.device("cpu")) == "plain"


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes."),
]


def failing(name: str, error: Exception, *, times: int, at: int) -> Any:
    """The method, out of memory at its call number `at`."""
    calls = iter(range(10**6))
    used = registry.METHODS[name]

    @wraps(used.function)
    def function(block: Any, **options: Any) -> Any:
        if at <= next(calls) < at + times:
            raise error
        return used.function(block, **options)

    return replace(used, function=function)


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu"])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("way", ["mix", "streamed"])
def test_out_of_memory_is_tried_again_in_pieces(
    way: str, at: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded("bert")

    def work() -> dict[str, mixlens.Map]:
        names = ["globenc", "alti"]
        made: dict[str, mixlens.Map] = (
            mixlens.mix(model.trace(input_ids=ids(12)), names)
            if way == "mix"
            else model.mix(input_ids=ids(12), name=names)
        )
        return made

    expected = work()
    assert "notes" not in expected["alti"].info
    monkeypatch.setitem(registry.METHODS, "alti", failing("alti", error, times=1, at=at))
    with pytest.warns(UserWarning, match=rf"memory ran out in layer {at}: scored again in pieces"):
        made = work()
    for name in expected:
        torch.testing.assert_close(made[name].scores, expected[name].scores, rtol=1e-9, atol=1e-12)
        assert made[name].scores.shape == expected[name].scores.shape
        assert any(f"memory ran out in layer {at}" in note for note in made[name].info["notes"])
        assert made[name].info["gap"] == pytest.approx(expected[name].info["gap"], abs=1e-13)  # float64


def test_out_of_memory_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = loaded("bert").trace(input_ids=ids(12))
    monkeypatch.setitem(registry.METHODS, "alti", failing("alti", ERRORS[0], times=2, at=0))
    with pytest.warns(UserWarning, match="memory ran out"), pytest.raises(torch.OutOfMemoryError):
        mixlens.mix(trace, "alti")


def test_other_errors_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = loaded("bert").trace(input_ids=ids(12))
    monkeypatch.setitem(registry.METHODS, "alti", failing("alti", RuntimeError("shapes differ"), times=1, at=0))
    with pytest.raises(RuntimeError, match="shapes differ"):
        mixlens.mix(trace, "alti")
