"""On a GPU: the same numbers as on the CPU, by the Triton loops and by the plain ones. Skipped where there is none."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from conftest import CONFIGURATIONS, hf_model, ids

import mixlens
from mixlens import kernels
from mixlens.mixing import known, shares

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MAPS = [name for name, method in known().items() if not method.whole and name != "random"]


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_a_gpu_gives_the_cpu_s_numbers(case: str) -> None:
    """float32 on the GPU against float64 on the CPU: 1e-5 of a row for Value Zeroing, 5e-6 for ALTI, 2e-6 for the others."""
    stock = hf_model(case)
    exact, quick = mixlens.load(stock, device="cpu"), mixlens.load(stock, device="cuda", dtype="float32")
    inputs = [ids(21), ids(9, seed=1)]
    expected, made = (mixlens.mix(lens.trace(input_ids=inputs), MAPS) for lens in (exact, quick))
    allowed = {"value_zeroing": 1e-5, "alti": 5e-6, "effective_attention": 2e-5, "effective_norm": 2e-5}
    for a, b in zip(expected, made, strict=True):
        for name in MAPS:
            assert b[name].scores.device.type == "cuda"
            signed = known()[name].signed  # rows that may sum to nothing are compared as they are
            x, y = (m[name].scores.cpu().double() for m in (a, b))
            apart = float((x - y if signed else shares(x) - shares(y)).abs().max())
            assert apart <= allowed.get(name, 2e-6), f"{name}: {apart:.1e}"


def test_the_fused_loops_are_used_and_the_plain_ones_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.used(torch.device("cuda")) == "triton"
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    trace = lens.trace(input_ids=ids(33))
    fused = mixlens.mix(trace, MAPS)
    monkeypatch.setattr(kernels, "_module", lambda device_type: kernels.plain)
    for name, made in mixlens.mix(trace, MAPS).items():
        x, y = made.scores, fused[name].scores
        apart = float((x - y if known()[name].signed else shares(x) - shares(y)).abs().max())
        assert apart <= 1e-5, f"{name}: {apart:.1e}"


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_less_precision_says_what_it_costs(precision: str) -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    trace = lens.trace(input_ids=ids(33))
    for name in ("globenc", "alti", "value_zeroing"):
        exact, made = mixlens.mix(trace, name), mixlens.mix(trace, name, precision=precision)
        first = float((shares(made.scores[0]) - shares(exact.scores[0])).abs().max())
        assert made.info["precision"] == precision
        assert made.info["precision_error"] >= first * 0.5
        assert made.info["precision_error"] < 2e-2


def test_twice_the_same_bits() -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    for name in ("globenc", "alti", "value_zeroing"):
        a, b = (mixlens.mix(lens.trace(input_ids=ids(30)), name).scores for _ in range(2))
        assert torch.equal(a, b), name


def test_out_of_memory_leads_to_smaller_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = mixlens.load(hf_model("bert"), device="cuda", dtype="float32")
    trace = lens.trace(input_ids=ids(30))
    expected = mixlens.mix(trace, ["alti", "value_zeroing"])
    module = sys.modules["mixlens.mixing"]
    score, calls = module.Scorer._score, []

    def once(self: object, *args: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            torch.empty(1 << 50, device="cuda")
        score(self, *args)

    monkeypatch.setattr(module.Scorer, "_score", once)
    with pytest.warns(UserWarning, match="memory ran out"):
        made = mixlens.mix(trace, ["alti", "value_zeroing"])
    for name, one in made.items():
        assert "memory ran out" in one.info["notes"][0]
        torch.testing.assert_close(one.scores, expected[name].scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("case", list(CONFIGURATIONS))
def test_layers_on_two_devices_give_the_numbers_of_one(case: str) -> None:
    """The first layers run on the CPU, the others on the GPU; all in float64."""
    accelerate = pytest.importorskip("accelerate")
    stock, model = hf_model(case), copy.deepcopy(hf_model(case))
    names = {id(module): name for name, module in model.named_modules()}
    layers = list(dict.fromkeys(names[id(parts.layer)] for parts in mixlens.load(model, check=False).parts))
    inside = tuple(layer + "." for layer in layers)
    places = {name: "cpu" for name, m in model.named_modules() if name and m._parameters and not name.startswith(inside)}
    places |= {layer: "cpu" if number == 0 else 0 for number, layer in enumerate(layers)}
    spread = mixlens.load(accelerate.dispatch_model(model, places, main_device="cpu"))
    assert spread.devices == (["cpu", "cuda:0"] if len(layers) > 1 else ["cpu"])
    inputs = [ids(11), ids(7, seed=1)]
    traces = [lens.trace(input_ids=inputs) for lens in (mixlens.load(stock, device="cpu"), spread)]
    torch.testing.assert_close(traces[1][0].hidden_states, traces[0][0].hidden_states, rtol=1e-9, atol=1e-9)
    for a, b in zip(*(mixlens.mix(each, [*MAPS, "hta_layer"]) for each in traces), strict=True):
        for name, made in b.items():
            assert made.scores.device.type == "cpu"
            torch.testing.assert_close(made.scores, a[name].scores, rtol=1e-7, atol=1e-7)


def test_layers_brought_in_to_a_gpu_give_the_numbers_of_a_gpu() -> None:
    accelerate = pytest.importorskip("accelerate")
    for case in ("bert", "llama"):
        stock = hf_model(case, dtype=torch.float32)
        model = accelerate.cpu_offload(copy.deepcopy(stock), execution_device=torch.device("cuda:0"))
        quick, spread = mixlens.load(stock, device="cuda"), mixlens.load(model)
        assert spread.device == torch.device("cuda:0")
        expected, made = (mixlens.mix(lens.trace(input_ids=ids(12)), MAPS) for lens in (quick, spread))
        for name in MAPS:
            assert made[name].scores.device.type == "cuda"
            torch.testing.assert_close(made[name].scores, expected[name].scores, rtol=1e-3, atol=1e-5)
