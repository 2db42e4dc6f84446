"""Quantised models: weight-only ones are proven as any other, those that round activations are refused where it shows.

The stand-ins below need no package; the tests with bitsandbytes are skipped without it.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import CONFIGURATIONS, DISTINCT, QUICK, hf_model, ids, randomise
from torch import Tensor, nn
from torch.nn.functional import normalize

import mixlens
from mixlens.layer import weights
from mixlens.model import quantized
from mixlens.scoring import attributions as scoring_attributions
from mixlens.scoring import maps as scoring_maps
from mixlens.scoring import provenance

shares = partial(normalize, p=1.0, dim=-1)  # rows over the sum of their magnitudes

MAPS = [name for name in scoring_maps.known() if name != "random"]
HEADS = {"bert": "AutoModelForMaskedLM", "llama": "AutoModelForCausalLM"}
REFUSED = ("hta", "partial_lrp", "transatt")


class Packed(nn.Module):
    """A linear map in eight bits and a scale for each output: there is no `.weight` to read."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("packed", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = None if bias is None else nn.Parameter(bias.clone())

    def unpacked(self) -> Tensor:
        return self.packed * self.scale  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.unpacked().to(x.dtype), self.bias)


class Rounding(Packed):
    """Activations in eight bits, too: not linear."""

    def forward(self, x: Tensor) -> Tensor:
        step = x.detach().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        return super().forward((x / step).round() * step)


def replaced(model: Any, made: Any) -> Any:
    """The model with `made(weight, bias)` in place of every linear map of its layers."""
    model = copy.deepcopy(model)
    for layer in {id(parts.layer): parts.layer for parts in mixlens.load(model, check=False).parts}.values():
        for name, module in list(layer.named_modules()):
            if type(module).__name__ in ("Linear", "Conv1D"):
                weight = weights.linear_weight(
                    module, module.weight.shape[type(module) is nn.Linear], module.weight.dtype
                ).t()
                parent, _, child = name.rpartition(".")
                bias = None if module.bias is None else module.bias.detach()
                setattr(layer.get_submodule(parent), child, made(weight.detach(), bias))
    return model


def unpacked(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """The same numbers as an ordinary module."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        made.weight.copy_(Packed(weight, bias).unpacked())
        if bias is not None:
            made.bias.copy_(bias)
    return made


@pytest.mark.parametrize("case", DISTINCT)
def test_every_family_in_eight_bits_is_the_model_of_those_numbers(case: str) -> None:
    one, other = (mixlens.load(replaced(hf_model(case), made)) for made in (unpacked, Packed))
    assert other.quantization == "Packed"
    assert one.quantization is None
    names = [name for name in MAPS if name not in ("hta", "null_attention", "hta_layer_x_input")]
    given = [ids(7), ids(10, seed=1)]
    for expected, made in zip(*(mixlens.mix(lens.trace(input_ids=given), names) for lens in (one, other)), strict=True):
        for name in names:
            # Value Zeroing runs a user's own linear class as it is, and RMS norms compute in float32 in a float64
            # model.
            close = {"rtol": 1e-5, "atol": 1e-6} if name == "value_zeroing" else {"rtol": 1e-8, "atol": 1e-9}
            torch.testing.assert_close(made[name].scores, expected[name].scores, **close, msg=name)
            assert made[name].info["gap"] < 1e-10
            assert made[name].info["quantization"] == "Packed"


@pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")  # few steps
@pytest.mark.parametrize("case", list(HEADS))
def test_every_attribution_goes_through_or_is_refused(case: str) -> None:
    stock = hf_model(case, head=HEADS[case])
    traces = [mixlens.load(replaced(stock, made)).trace(input_ids=ids(6)) for made in (unpacked, Packed)]
    for name in scoring_attributions.known():
        asked: dict[str, Any] = {"query": 3} if case == "bert" else {}
        asked |= QUICK.get(name, {})
        if name == "blank_out":
            asked["replacement"] = "zero"
        if name in REFUSED:
            with pytest.raises(mixlens.MixlensError, match=r"Packed \(quantised\) cannot be asked so"):
                mixlens.attribute(traces[1], name, **asked)
        else:
            expected, made = (mixlens.attribute(trace, name, **asked).scores for trace in traces)
            torch.testing.assert_close(made, expected, rtol=1e-8, atol=1e-9, msg=name)
    with pytest.raises(mixlens.MixlensError, match=r"Packed \(quantised\) cannot be asked so"):
        mixlens.mix(traces[1], "hta")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_small_changes(dtype: torch.dtype) -> None:
    """Value Zeroing runs layers again in float32, where a packed module would round its answer to half precision."""
    for case in ("bert", "llama"):
        one, other = (mixlens.load(replaced(hf_model(case), made).to(dtype)) for made in (unpacked, Packed))
        expected, made = (mixlens.mix(lens.trace(input_ids=ids(9)), ["alti", "value_zeroing"]) for lens in (one, other))
        for name, close in (("alti", 2e-2), ("value_zeroing", 6e-2)):
            assert float((made[name].scores - expected[name].scores).abs().max()) < close


@torch.no_grad()
def test_a_module_that_computes_in_half_precision_is_run_again_in_float32() -> None:
    class Half(Packed):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to(torch.bfloat16)).to(x.dtype)

    torch.manual_seed(0)
    module = Half(torch.randn(5, 7), torch.randn(5)).to(torch.bfloat16)
    x = torch.randn(4, 7)
    exact = x @ module.unpacked().float().t() + module.bias.float()
    wide = weights.widened(module, x.to(torch.bfloat16))
    torch.testing.assert_close(wide(x), exact, rtol=2e-2, atol=2e-2)
    assert torch.equal(module(1.0001 * x), module(x))  # a small change drowns
    torch.testing.assert_close(wide(1.0001 * x) - wide(x), 0.0001 * (exact - module.bias.float()), rtol=5e-2, atol=5e-6)


@pytest.mark.parametrize("case", ["bert", "llama", "gpt2"])
def test_rounded_activations_are_refused_where_the_proof_sees_them(case: str) -> None:
    model = replaced(hf_model(case), Rounding)
    for dtype in (torch.float64, torch.float32):
        with pytest.raises(mixlens.MixlensError, match=r"quantised \(Rounding\): modules that round what they read"):
            mixlens.load(model.to(dtype))
        with pytest.raises(mixlens.MixlensError, match=r"does not match its parts.*quantised \(Rounding\)"):
            mixlens.mix(mixlens.load(model, check=False).trace(input_ids=ids(8)), "alti")
    coarse = mixlens.load(model.to(torch.bfloat16))  # rounds as much by itself: the gap is there to be seen
    assert coarse.proof is not None
    assert 1e-3 < coarse.proof.gaps["parts"] < 1e-1


def test_a_large_matrix_is_asked_for_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixlens.layer.weights.ASKED_ROWS", 20)
    module = Packed(torch.randn(5, 7), torch.randn(5) * 100)
    torch.testing.assert_close(weights.asked_weight(module, 7), module.unpacked().t(), rtol=1e-4, atol=1e-5)


def test_a_loaded_quantised_model_is_taken_as_it_is() -> None:
    model = replaced(hf_model("bert"), Packed)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lens = mixlens.load(model)
    mixlens.mix(lens.trace(input_ids=ids(6)), [name for name in MAPS if name != "hta"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for asked in ({"device": "cpu"}, {"dtype": "float32"}):
        with pytest.raises(mixlens.MixlensError, match="this model is quantised"):
            mixlens.load(model, **asked)


class Coded(Tensor):
    """Weights of a kind of their own inside an ordinary nn.Linear (as torchao has them): what is stored is twice the
    weight."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = args
            return func(x, weight.as_subclass(Tensor) / 2, bias)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_weights_of_a_kind_of_their_own_are_not_read() -> None:
    def coded(weight: Tensor, bias: Tensor | None) -> nn.Linear:
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
        made.weight = nn.Parameter((2 * weight).as_subclass(Coded), requires_grad=False)
        if bias is not None:
            made.bias = nn.Parameter(bias)
        return made

    one, other = mixlens.load(hf_model("bert")), mixlens.load(replaced(hf_model("bert"), coded))
    assert type(other.parts[0].output) is nn.Linear
    assert other.quantization == "Linear of Coded"
    expected, made = (mixlens.mix(lens.trace(input_ids=ids(7)), ["alti", "value_zeroing"]) for lens in (one, other))
    for name, each in made.items():
        torch.testing.assert_close(each.scores, expected[name].scores, rtol=1e-9, atol=1e-9)


# --- layers that their library cannot compute here --------------------------------------------------------------------


class Fussy(Packed):
    """Packs its weights in blocks of 64 inputs when it is first called, and breaks half-way where they do not fit."""

    def forward(self, x: Tensor) -> Tensor:
        self.scale.zero_()  # type: ignore[operator]
        assert self.in_features % 64 == 0, "K must be divisible by the block size"
        return super().forward(x)


def test_a_layer_that_its_library_cannot_compute_is_refused_by_name_and_left_alone() -> None:
    model = replaced(hf_model("bert"), Fussy)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for check in (True, False):
        with pytest.raises(mixlens.MixlensError) as told:
            mixlens.load(model, check=check)
        for part in (
            f"that {Fussy.__module__} cannot compute on this machine's cpu",
            "Fussy '",
            "of 32 inputs and 32 outputs",
        ):
            assert part in str(told.value)
        assert "K must be divisible by the block size" in str(told.value)
        assert "Load the model without quantization" in str(told.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_layer_that_loses_digits_of_the_models_dtype_is_refused_by_name() -> None:
    class Coarse(Packed):
        support_avx512bf16_for_cpu = True  # as bitsandbytes marks a layer that has a form of its own for this processor

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x.to(torch.bfloat16), self.unpacked().to(torch.bfloat16)).to(x.dtype)

    model = replaced(hf_model("llama"), Coarse).float()
    with pytest.raises(
        mixlens.MixlensError, match=r"computes Coarse 'layers\.0\S+' of .* in a lower precision than the model's"
    ):
        mixlens.load(model)
    assert mixlens.load(model.to(torch.bfloat16)).proof is not None
    assert all(
        module.support_avx512bf16_for_cpu for module in model.modules() if isinstance(module, Coarse)
    )  # only read


def test_a_layer_that_sends_no_gradient_is_refused_by_name() -> None:
    library = torch.library.Library("mixlens_tests", "FRAGMENT")  # an operation that torch knows no gradient of
    library.define("linear(Tensor x, Tensor weight) -> Tensor")
    library.impl("linear", lambda x, weight: x @ weight.t(), "CPU")

    class Deaf(Packed):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.mixlens_tests.linear(x, self.unpacked().to(x.dtype))

    with pytest.raises(
        mixlens.MixlensError, match=r"sends no gradient on this machine's cpu: gradients behind Deaf 'layers\.0"
    ):
        mixlens.load(replaced(hf_model("llama"), Deaf))


# --- settings ------------------------------------------------------------------------------------------

PLAIN = SimpleNamespace()
HALF = SimpleNamespace(dtype=torch.float16)
OWN = SimpleNamespace(bnb_4bit_compute_dtype=torch.bfloat16)


def four(dtype: torch.dtype) -> dict[str, Any]:
    return {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}


EIGHT = {"load_in_8bit": True}


@pytest.mark.parametrize(
    ("asked", "config", "dtype", "expected"),
    [
        ("4bit", PLAIN, None, (four(torch.float32), torch.float32)),
        ("4bit", PLAIN, torch.bfloat16, (four(torch.bfloat16), torch.bfloat16)),
        ("4bit", HALF, "auto", (four(torch.float16), torch.float16)),
        ("4bit", HALF, None, (four(torch.float32), torch.float32)),
        ("8bit", PLAIN, None, (EIGHT, torch.float16)),
        ("8bit", PLAIN, "auto", (EIGHT, torch.float32)),
        (OWN, PLAIN, None, (OWN, torch.bfloat16)),
        (OWN, HALF, "auto", (OWN, torch.float16)),
        (PLAIN, PLAIN, None, (PLAIN, "auto")),
    ],
)
def test_configurations(asked: Any, config: Any, dtype: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.BitsAndBytesConfig", lambda **settings: settings)
    assert quantized.configured(asked, config, dtype) == expected


@pytest.mark.parametrize(
    ("config", "dtype", "says"),
    [
        (PLAIN, torch.float64, "quantization='4bit' computes in float32, bfloat16 or float16, not in float64."),
        (
            SimpleNamespace(quantization_config={}),
            None,
            "this checkpoint is quantised already, and is loaded as it is. Leave quantization= out.",
        ),
    ],
)
def test_configurations_that_are_refused(config: Any, dtype: Any, says: str) -> None:
    with pytest.raises(mixlens.MixlensError) as refused:
        quantized.configured("4bit", config, dtype)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bits": 9},
            "bitsandbytes 4bit (quant_type=nf4)",
        ),
        (
            {"quant_method": SimpleNamespace(value="bitsandbytes"), "load_in_8bit": True, "llm_int8_threshold": 6.0},
            "bitsandbytes 8bit (llm_int8_threshold=6.0)",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "weights": None, "format": "pack"},
            "gptq (bits=4, group_size=128, format=pack)",
        ),
        ({"quant_type": {"default": {"_type": "Int4"}}}, "unknown (quant_type=Int4 b93e8f05)"),
    ],
)
def test_quantisations_in_a_few_words(settings: dict[str, Any], told: str) -> None:
    assert quantized.description(settings) == told


# --- bitsandbytes -----------------------------------------------------------------------------------------------------


def saved(folder: Path, case: str) -> Path:
    copy.deepcopy(hf_model(case, head=HEADS[case])).float().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("case", list(HEADS))
@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-5), ("bfloat16", 1e-1), ("float16", 2e-2)])
def test_four_bits_are_proven_in_the_precision_they_compute_in(
    case: str, dtype: str, close: float, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    lens = mixlens.load(saved(tmp_path / "model", case), quantization="4bit", dtype=dtype)
    assert type(lens.parts[0].output).__name__ == "Linear4bit"
    assert str(lens.dtype) == f"torch.{dtype}"
    assert lens.quantization is not None
    assert lens.quantization.startswith("bitsandbytes 4bit (quant_type=nf4")
    assert lens.proof is not None
    assert lens.proof.gap < close
    plain = copy.deepcopy(hf_model(case, head=HEADS[case])).float()  # the same numbers, as ordinary modules
    for name, module in lens.hf_model.named_modules():
        if type(module).__name__ == "Linear4bit":
            weight = weights.asked_weight(module, module.in_features, torch.zeros(1, dtype=lens.dtype))
            plain.get_submodule(name).weight.data = (
                weight.t() if type(plain.get_submodule(name)) is nn.Linear else weight
            )
    names = [name for name in MAPS if name not in ("hta", "null_attention")]
    expected, made = (mixlens.mix(one.trace(input_ids=ids(9)), names) for one in (mixlens.load(plain), lens))
    for name in names:
        apart = float((shares(made[name].scores) - shares(expected[name].scores)).abs().max())
        assert apart < close, f"{name}: {apart:.1e}"


def test_eight_bits_round_activations_and_the_proof_tells(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    folder = saved(tmp_path / "model", "llama")
    with pytest.raises(mixlens.MixlensError, match=r"quantised \(Linear8bitLt\)"):
        mixlens.load(folder, quantization="8bit", dtype="float32")
    lens = mixlens.load(folder, quantization="8bit")  # float16, in which LLM.int8() computes
    assert lens.dtype == torch.float16
    made = mixlens.mix(lens.trace(input_ids=ids(9)), "alti")
    assert 1e-3 < made.info["gap"] <= made.info["tolerance"] == pytest.approx(4 * 7e-3)  # four roundings to eight bits
    assert made.info["quantization"] == "bitsandbytes 8bit (llm_int8_threshold=6.0)"
    with pytest.raises(mixlens.MixlensError, match="cannot be asked so"):
        mixlens.attribute(lens.trace(input_ids=ids(9)), "partial_lrp")


def test_what_torch_cannot_send_through_a_quantised_module_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    lens = mixlens.load(saved(tmp_path / "model", "llama"), quantization="8bit")
    with pytest.raises(mixlens.MixlensError, match=r"'deeplift' cannot be had of .* quantised"):
        mixlens.attribute(lens.trace(input_ids=ids(6)), "deeplift")
    assert mixlens.attribute(lens.trace(input_ids=ids(6)), "grad_l2").scores.shape == (6,)


def test_a_quantised_checkpoint_loads_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    lens = mixlens.load(saved(tmp_path / "model", "llama"), quantization="4bit", dtype="bfloat16")
    lens.hf_model.save_pretrained(tmp_path / "packed")
    again = mixlens.load(tmp_path / "packed")
    assert again.quantization == lens.quantization
    assert again.dtype == torch.bfloat16
    first, second = (mixlens.mix(one.trace(input_ids=ids(7)), "alti").scores for one in (lens, again))
    torch.testing.assert_close(first, second, rtol=0, atol=2e-2)  # the same packed numbers, computed in bfloat16 (4e-3)
    with pytest.raises(mixlens.MixlensError, match="quantised already"):
        mixlens.load(tmp_path / "packed", quantization="4bit")


def test_a_packed_model_that_came_loaded_is_used_or_refused_with_what_to_set(tmp_path: Path) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    asked = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    folder = saved(tmp_path / "model", "llama")
    given = AutoModelForCausalLM.from_pretrained(folder, quantization_config=asked, dtype=torch.float32).eval()
    if bitsandbytes.functional.has_avx512bf16():  # then 32 inputs do not fit
        with pytest.raises(mixlens.MixlensError, match="set support_avx512bf16_for_cpu = False on its 4-bit layers"):
            mixlens.load(given)
        for module in given.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
    expected = mixlens.load(folder, quantization="4bit", dtype="float32")
    first, second = (mixlens.mix(one.trace(input_ids=ids(7)), "alti").scores for one in (mixlens.load(given), expected))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)  # the same packed numbers, computed in float32


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_in_four_bits_are_those_of_the_same_numbers(bias: bool, tmp_path: Path) -> None:
    """Also where bitsandbytes has a form for the processor that has no gradients; sizes that it would take (64,
    128)."""
    pytest.importorskip("bitsandbytes")
    import transformers

    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 128, "head_dim": 16, "attention_bias": bias}
    config = transformers.AutoConfig.for_model("llama", **{**CONFIGURATIONS["llama"][1], **sizes})
    plain = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    randomise(plain)
    plain.save_pretrained(tmp_path / "model")
    lens = mixlens.load(tmp_path / "model", quantization="4bit", dtype="float32")
    for name, module in lens.hf_model.named_modules():
        if type(module).__name__ == "Linear4bit":
            plain.get_submodule(name).weight.data = weights.asked_weight(module, module.in_features).t()
    for name in ("grad_x_input", "attcat", "deeplift"):
        made, expected = (
            mixlens.attribute(one.trace(input_ids=ids(6)), name).scores for one in (lens, mixlens.load(plain))
        )
        torch.testing.assert_close(
            made, expected, rtol=1e-3, atol=1e-4, msg=name
        )  # float32, with weights that were asked for


def test_a_configuration_of_transformers_is_taken(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    folder = saved(tmp_path / "model", "llama")
    asked = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.bfloat16)
    lens = mixlens.load(folder, quantization=asked)
    assert lens.dtype == torch.bfloat16
    assert "fp4" in str(lens.quantization)
    with pytest.raises(mixlens.MixlensError, match="lower precision than the model's"):
        mixlens.load(folder, quantization=asked, dtype="float32")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(HEADS))
def test_other_packages_are_proven_or_refused_as_they_come(case: str, tmp_path: Path) -> None:
    """torchao keeps tensors of its own in nn.Linear, quanto has modules of its own."""
    from transformers import QuantoConfig, TorchAoConfig

    torchao = pytest.importorskip("torchao.quantization", reason="needs torchao: pip install torchao")
    pytest.importorskip("optimum.quanto", reason="needs quanto: pip install optimum-quanto")
    folder = saved(tmp_path / "model", case)
    for weight_only in (
        TorchAoConfig(torchao.Int8WeightOnlyConfig()),
        QuantoConfig(weights="int8"),
        QuantoConfig(weights="int4"),
    ):
        lens = mixlens.load(folder, quantization=weight_only, dtype="float32")
        assert lens.proof is not None
        assert lens.proof.gap < 1e-5
        trace = lens.trace(input_ids=ids(7))
        assert mixlens.mix(trace, ["alti", "value_zeroing"])["alti"].info["quantization"] == lens.quantization
        assert len(str(lens.quantization)) < 60
        assert len(provenance.model_fingerprint(lens)) == 16
    with pytest.raises(mixlens.MixlensError, match=r"quantised \(Linear of Int8Tensor\)"):
        mixlens.load(
            folder, quantization=TorchAoConfig(torchao.Int8DynamicActivationInt8WeightConfig()), dtype="float32"
        )


def test_a_corpus_run_in_four_bits_is_another_run(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("pyarrow")
    from test_run import go

    rows, asked = ["The keys to the cabinet [MASK] rusty."], {"model": "agreement", "methods": ["alti"]}
    go(rows, tmp_path / "run", quantization="4bit", **asked)
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert told["identity"]["quantization"] == told["quantization"]
    assert told["quantization"].startswith("bitsandbytes 4bit")
    assert go(rows, tmp_path / "run", quantization="4bit", **asked).done == 0
    with pytest.raises(mixlens.MixlensError, match="quantization"):
        go(rows, tmp_path / "run", **asked)
