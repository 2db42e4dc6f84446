"""Bounds of the core: tiles, gaps, number types, and the sizes at which another way to the same numbers is taken."""

from __future__ import annotations

import copy
import math
import threading
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import hf_model, ids, loaded, needs_fast

import mixlens
from mixlens import fast
from mixlens.base import budget, errors, rounding
from mixlens.base import optional as base_optional
from mixlens.fast import block as fast_block
from mixlens.fast import cuda_graphs
from mixlens.layer import proof as layer_proof

CPU = torch.device("cpu")

# --- tiles and settings -----------------------------------------------------------------------------------------------


def test_a_tile_has_the_size_of_the_device_unless_the_call_says_otherwise() -> None:
    assert budget.tile_elements(CPU) == 1 << 18
    assert budget.tile_elements(CPU, 3) == 3 << 18
    assert budget.tile_elements(torch.device("cuda"), 2) == 2 << 26
    with budget.setting(chunk=5):
        assert budget.tile_elements(CPU, 3) == 5
        with budget.setting(wide=True):
            assert budget.settings() == budget.Settings(chunk=5, wide=True)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(budget.settings()))
        thread.start()
        thread.join()
        assert seen == [budget.Settings()]  # a thread has settings of its own
    assert budget.settings() == budget.Settings()


def test_which_errors_say_that_memory_ran_out() -> None:
    for error in (
        MemoryError(),
        torch.OutOfMemoryError(),
        RuntimeError("can't allocate memory: 9"),
        RuntimeError("CUDA out of memory"),
    ):
        assert budget.is_out_of_memory(error)
    assert not budget.is_out_of_memory(RuntimeError("shapes differ"))


# --- rounding ---------------------------------------------------------------------------------------------------------


def test_a_gap_of_what_is_no_number_is_infinite_and_that_of_the_same_is_nothing() -> None:
    seen = torch.randn(2, 3, 5, dtype=torch.float64)
    for wrong in (math.nan, math.inf):
        assert rounding.gap(torch.full_like(seen, wrong), seen) == math.inf
    assert rounding.gap(seen, seen) == 0
    assert rounding.gap(torch.zeros(2, 2), torch.zeros(2, 2)) == 0
    assert rounding.largest_gap(2 * seen, seen) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"has shape \(2, 2\), the model's own \(2, 3\)"):
        rounding.apart(torch.zeros(2, 2), None, torch.zeros(2, 3))


def test_products_have_the_digits_of_tf32_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = rounding.digits_of_products
    here, there = SimpleNamespace(is_cuda=False), SimpleNamespace(is_cuda=True)
    for allowed in (False, True):
        flags = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=allowed))
        monkeypatch.setattr(torch.backends, "cuda", flags)
        assert digits(here, torch.float32) == torch.float32  # type: ignore[arg-type]
        assert digits(there, torch.float64) == torch.float64  # type: ignore[arg-type]
        assert digits(there, torch.float32) == (torch.float16 if allowed else torch.float32)  # type: ignore[arg-type]
    assert [
        rounding.working_dtype(dtype) for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    ] == [*(torch.float64, torch.float32, torch.float32, torch.float32)]


# --- proofs -----------------------------------------------------------------------------------------------------------


def test_a_proof_fails_where_one_gap_is_too_large_or_no_number() -> None:
    allowed = dict.fromkeys(("parts", "stream", "layer", "head"), 1e-10)
    for name in allowed:
        for wrong in (2e-10, math.nan, math.inf):
            proof = layer_proof.Proof({**dict.fromkeys(allowed, 1e-10), name: wrong}, allowed, {}, 9)
            assert proof.failed == [name]
    fine = layer_proof.Proof({"parts": 1e-11, "stream": 3e-11, "layer": 2e-11, "head": 9e-11}, allowed, {}, 9)
    assert fine.failed == []
    assert fine.gap == 3e-11


def test_a_model_with_one_weight_on_meta_is_refused() -> None:
    stock = copy.deepcopy(hf_model("bert"))
    dense = stock.encoder.layer[2].output.dense
    dense.weight = torch.nn.Parameter(dense.weight.to("meta"))
    with pytest.raises(errors.ModelError, match="on the device 'meta'"):
        mixlens.load(stock)


# --- several layers, several methods ----------------------------------------------------------------------------------


@needs_fast
def test_only_short_batches_on_a_gpu_are_kept_whole() -> None:
    def model(device: str, width: int = 32) -> Any:
        config = SimpleNamespace(hidden_size=width)
        return SimpleNamespace(
            device=torch.device(device), n_layers=2, dtype=torch.float32, hf_model=SimpleNamespace(config=config)
        )

    def texts(count: int, tokens: int) -> Any:
        return [SimpleNamespace(input_ids=[0] * (tokens - number)) for number in range(count)]

    assert fast.fits_whole(model("cuda"), texts(1, 4))
    assert fast.fits_whole(model("cuda"), texts(1, cuda_graphs.TOKENS))
    assert not fast.fits_whole(model("cuda"), texts(1, cuda_graphs.TOKENS + 1))
    assert not fast.fits_whole(model("cuda"), texts(2, cuda_graphs.TOKENS // 2 + 1))  # by the longest of the batch
    width = fast.WHOLE // (8 * 2 * 4 * 4)  # eight tensors a layer of two layers, four tokens of four bytes
    assert fast.fits_whole(model("cuda", width), texts(1, 4))
    assert not fast.fits_whole(model("cuda", width + 1), texts(1, 4))


@needs_fast
def test_products_of_weights_are_kept_up_to_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it they are not made; the scores are the same."""
    trace = loaded("bert").trace(input_ids=ids(6))
    layer = trace.layers[0]
    heads, width = 4, 8
    with torch.no_grad():
        monkeypatch.setattr(fast_block, "METRIC_WIDTH", heads * width)
        narrow = fast_block.Block(layer)
        square = narrow.metric(narrow.chain("norm"))
        assert square is not None
        assert square.shape == (heads, heads, width, width)
        folded = narrow.folded(narrow.chain("norm"))
        torch.testing.assert_close(square, torch.einsum("hed,gfd->hgef", folded, folded))
        monkeypatch.setattr(fast_block, "METRIC_WIDTH", heads * width - 1)
        wide = fast_block.Block(layer)
        assert wide.metric(wide.chain("norm")) is None
        for stage in ("parts", "norm"):
            if stage == "norm":
                torch.testing.assert_close(
                    narrow.parts(stage).lengths(), wide.parts(stage).lengths(), rtol=1e-10, atol=1e-12
                )


class Linear(torch.nn.Module):
    """A linear map of no known class: its weights are found by asking it."""

    def __init__(self, inner: torch.nn.Linear):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@needs_fast
@pytest.mark.parametrize(("room", "kept"), [(3 * 1024, 3), (2 * 1024, 2), (2 * 1024 - 1, 1), (1023, 0)])
def test_answers_of_modules_are_kept_as_long_as_there_is_room(
    room: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three layers has weights of 32 x 32 numbers; those without room are asked again, to the same scores."""
    stock = copy.deepcopy(hf_model("bert"))
    for layer in stock.encoder.layer:
        layer.attention.output.dense = Linear(layer.attention.output.dense)
    monkeypatch.setattr(fast_block, "ASKED_KEPT", room)
    model = mixlens.load(stock)
    found = mixlens.mix(model.trace(input_ids=ids(5)), "norm")
    assert model.kept.numbers("asked") == kept * 1024
    expected = mixlens.mix(loaded("bert").trace(input_ids=ids(5)), "norm")
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-9, atol=1e-12)


@needs_fast
def test_memory_that_ran_out_lets_go_of_shared_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decomposed for other calls is free before the layer is scored again in pieces."""
    from mixlens.scoring import registry

    model = mixlens.load(hf_model("bert"))
    trace = model.trace(input_ids=ids(6))
    mixlens.mix(trace, "norm")
    shared = fast.shared_blocks(trace)
    assert shared is not None
    assert shared.blocks
    shared.busy = False
    used, seen = registry.METHODS["alti"], list[int]()

    @wraps(used.function)
    def function(block: Any, **options: Any) -> Any:
        seen.append(len(shared.blocks))
        if len(seen) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return used.function(block, **options)

    monkeypatch.setitem(registry.METHODS, "alti", replace(used, function=function))
    with pytest.warns(UserWarning, match="memory ran out in layer 0"):
        mixlens.mix(trace, "alti")
    assert seen[0] > 0
    assert not any(seen[1:])


# --- packages ---------------------------------------------------------------------------------------------------------


def test_a_package_is_asked_for_before_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    assert base_optional.optional("json.decoder", "json", "x") is sys.modules["json.decoder"]
    monkeypatch.setitem(sys.modules, "json", None)
    with pytest.raises(errors.InputError, match=r"^experiments need json: pip install .*\[x\]'\.$"):
        base_optional.optional("json.decoder", "json", "x")


def test_an_extra_is_installed_from_the_clone_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my clone" / "mixlens"
    package.mkdir(parents=True)
    assert base_optional.installing("data", package=package) == "pip install 'mixlens[data]'"
    (package.parent / "pyproject.toml").write_text("")
    assert base_optional.installing("data", package=package) == f"pip install -e '{package.parent}[data]'"
    monkeypatch.chdir(package.parent)
    assert base_optional.installing("data", package=package) == "pip install -e '.[data]'"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    Path("pyproject.toml").write_text("")
    assert base_optional.installing("data", package=package) == f"pip install -e '{package.parent}[data]'"


# --- what `mix` is asked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["grad_x_input", "alti"])
def test_what_attribute_cannot_take_is_refused(method: str) -> None:
    model = loaded("bert", head="AutoModelForSequenceClassification")
    trace, traces = model.trace(input_ids=ids(4)), model.trace(input_ids=[ids(4), ids(5)])
    for name in (7, None, b"alti", ["alti"], ("alti",)):
        with pytest.raises(errors.InputError, match="a method is a name, not"):
            mixlens.attribute(trace, name)  # type: ignore[call-overload]
    for layer in ("1", True, 1.0):
        with pytest.raises(errors.InputError, match="a layer is a number, not"):
            mixlens.attribute(trace, method, layer=layer)  # type: ignore[call-overload]
        with pytest.raises(errors.InputError, match="a layer is a number, not"):
            mixlens.attribute(traces, method, layer=layer)  # type: ignore[call-overload]
    with pytest.raises(errors.InputError, match=r"unknown method 'grad_x_inputt'\. Did you mean 'grad_x_input'"):
        mixlens.attribute(trace, "grad_x_inputt")


@pytest.mark.parametrize("layer", [0, 2])
def test_a_score_that_is_not_finite_is_refused_by_its_layer(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.scoring import registry

    assert "alti" in mixlens.methods()  # the registry is filled when it is first asked
    used, calls = registry.METHODS["alti"], iter(range(99))

    @wraps(used.function)
    def function(block: Any, **options: Any) -> Any:
        scores, extras = used.function(block, **options)
        if next(calls) == layer:
            scores = scores.index_fill(-1, torch.tensor([2]), math.nan)
        return scores, extras

    monkeypatch.setitem(registry.METHODS, "alti", replace(used, function=function))
    with pytest.raises(mixlens.MixlensError, match=f"method 'alti' gave a score that is not finite in layer {layer}"):
        mixlens.mix(loaded("bert").trace(input_ids=ids(4)), "alti")


# --- modules as they are asked ----------------------------------------------------------------------------------------


def test_a_module_in_float32_is_a_copy_without_gradients() -> None:
    from mixlens.layer import weights

    module = torch.nn.Linear(4, 3).to(torch.bfloat16)
    found = weights.widened(module, torch.zeros(1, 4, dtype=torch.bfloat16))
    assert found is not module
    assert module.weight.dtype == torch.bfloat16
    torch.testing.assert_close(found.weight, module.weight.float(), rtol=0, atol=0)  # type: ignore[arg-type]


@needs_fast
def test_a_length_whose_square_is_rounded_below_zero_is_zero() -> None:
    from mixlens.fast.loops import plain

    attention = torch.ones(1, 2, 2, dtype=torch.float64)
    gram = torch.tensor([-1e-20, 4.0], dtype=torch.float64).view(2, 1, 1)
    found = plain.lengths(attention, gram, torch.full((2,), 0.5, dtype=torch.float64))
    assert found.tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_fingerprints_have_sixteen_digits_and_tell_what_is_told_apart() -> None:
    from mixlens import types
    from mixlens.scoring import provenance

    found = [provenance.model_fingerprint(loaded(case)) for case in ("bert", "roberta")]
    base = types.Example("a")
    others = [
        types.Example("b"),
        types.Example("a", pair="b"),
        types.Example("a", target="b"),
        types.Example("a", foil="b"),
        types.Example("a", id="b"),
    ]
    found += [
        provenance.data_fingerprint(examples) for examples in ([], [base], [base, base], *([other] for other in others))
    ]
    assert len(set(found)) == len(found)
    assert {len(one) for one in found} == {16}
    assert provenance.data_fingerprint([base]) == provenance.data_fingerprint([types.Example("a")])
    names = {"/a/b": "b", "./b": "b", "~/x/b": "b", "../b/": "b", "org/name": "org/name", "name": "name", "/": "/"}
    assert {name: provenance.public_name(name) for name in names} == names
