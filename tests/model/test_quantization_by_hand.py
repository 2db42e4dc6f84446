"""Quantised weights: configurations, descriptions and trials of layers, on stand-ins that need no package for them."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
import torch
from torch import Tensor, nn

from mixlens.base.errors import ModelError
from mixlens.model import quantized

PLAIN = SimpleNamespace()


# --- configuration and description ----------------------------------------------------------------------------------------


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' configuration as the settings it was made with."""
    monkeypatch.setattr("transformers.BitsAndBytesConfig", lambda **settings: settings)


def four(dtype: torch.dtype) -> dict[str, Any]:
    return {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}


@pytest.mark.usefixtures("bits")
def test_configurations_by_a_word() -> None:
    assert quantized.configured("4bit", PLAIN, None) == (four(torch.float32), torch.float32)
    assert quantized.configured("4bit", PLAIN, torch.bfloat16) == (four(torch.bfloat16), torch.bfloat16)
    assert quantized.configured("8bit", PLAIN, None) == ({"load_in_8bit": True}, torch.float16)
    assert quantized.configured("8bit", PLAIN, torch.float32) == ({"load_in_8bit": True}, torch.float32)
    for word in ("4bit", "8bit"):
        with pytest.raises(ModelError) as refused:
            quantized.configured(word, PLAIN, torch.float64)
        assert str(refused.value) == f"quantization='{word}' computes in float32, bfloat16 or float16, not in float64."


@pytest.mark.usefixtures("bits")
def test_the_checkpoints_own_number_type() -> None:
    half = SimpleNamespace(dtype=torch.float16)
    assert quantized.configured("4bit", half, "auto") == (four(torch.float16), torch.float16)
    assert quantized.configured("4bit", half, None) == (four(torch.float32), torch.float32)
    assert quantized.configured("4bit", SimpleNamespace(dtype=None), "auto") == (four(torch.float32), torch.float32)
    assert quantized.configured("8bit", PLAIN, "auto") == ({"load_in_8bit": True}, torch.float32)
    with pytest.raises(ModelError, match="not in float64"):
        quantized.configured("4bit", SimpleNamespace(dtype=torch.float64), "auto")


def test_configurations_of_the_user() -> None:
    own = SimpleNamespace(bnb_4bit_compute_dtype=torch.bfloat16)
    assert quantized.configured(own, PLAIN, None) == (own, torch.bfloat16)
    assert quantized.configured(own, PLAIN, torch.float32) == (own, torch.float32)
    assert quantized.configured(own, SimpleNamespace(dtype=torch.float16), "auto") == (own, torch.float16)
    assert quantized.configured(PLAIN, PLAIN, None) == (PLAIN, "auto")
    assert quantized.configured(PLAIN, SimpleNamespace(quantization_config=None), None) == (PLAIN, "auto")
    with pytest.raises(ModelError) as refused:
        quantized.configured("4bit", SimpleNamespace(quantization_config={}), None)
    assert (
        str(refused.value) == "this checkpoint is quantised already, and is loaded as it is. Leave quantization= out."
    )


def test_quantisations_in_a_few_words() -> None:
    method = SimpleNamespace(value="bitsandbytes")
    settings = {"quant_method": method, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bits": 9}
    assert quantized.description(settings) == "bitsandbytes 4bit (quant_type=nf4)"
    more = {**settings, "bnb_4bit_compute_dtype": None, "bnb_4bit_use_double_quant": False, "load_in_8bit": False}
    assert quantized.description(more) == "bitsandbytes 4bit (quant_type=nf4, use_double_quant=False)"
    eight = {
        "quant_method": "bitsandbytes",
        "load_in_8bit": True,
        "llm_int8_threshold": 6.0,
        "bnb_4bit_quant_type": "nf4",
    }
    assert quantized.description(SimpleNamespace(to_dict=lambda: eight)) == "bitsandbytes 8bit (llm_int8_threshold=6.0)"
    other = {"quant_method": "gptq", "bits": 4, "group_size": 128, "weights": None, "format": "pack", "sym": True}
    assert quantized.description(other) == "gptq (bits=4, group_size=128, format=pack)"
    assert (
        quantized.description({"activations": "int8", "quant_type": "x"}) == "unknown (activations=int8, quant_type=x)"
    )


def test_a_tree_of_settings_is_its_name_and_a_checksum() -> None:
    def checked(tree: Any) -> str:
        return f"{crc32(json.dumps(tree, sort_keys=True, default=str).encode()):08x}"

    tree = {"default": {"_type": "Int8", "_data": {"b": 1, "a": torch.int8}}}
    assert quantized._in_short(tree) == f"Int8 {checked(tree)}"
    assert (
        quantized._in_short({"default": {"_type": "Int8", "_data": {"a": torch.int8, "b": 1}}})
        == f"Int8 {checked(tree)}"
    )
    assert quantized._in_short({"_type": "Int4"}) == f"Int4 {checked({'_type': 'Int4'})}"
    assert quantized._in_short({"group": 3}) == f"settings {checked({'group': 3})}"
    assert quantized._in_short({"default": "int8"}) == f"int8 {checked({'default': 'int8'})}"
    assert quantized._in_short(4) == "4"


# --- the trial ------------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    """Weights in eight bits, unpacked on every call."""

    calls = 0

    def __init__(self, inputs: int = 4, outputs: int = 3, *, bias: bool = False, own: bool | None = None):
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.register_buffer("packed", torch.arange(outputs * inputs, dtype=torch.int8).view(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        if own is not None:
            setattr(self, quantized.OWN_FORM, own)

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return x @ self.packed.to(x).t()  # type: ignore[operator]


class Coarse(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16().to(x.dtype))


class Failing(Layer):
    error: BaseException = RuntimeError("no   such\nkernel " + "x" * 200)

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class Deaf(Layer):
    """Sends no gradient, and torch says so."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            warnings.warn(
                "own::op: an autograd kernel was not registered to the Autograd key(s)", UserWarning, stacklevel=1
            )
        return super().forward(x.detach() + 0 * x)


def trial(module: nn.Module, dtype: torch.dtype = torch.float32) -> quantized.Trial:
    return quantized.Trial(module, "a.b", "m", dtype)


GPU = "Load the model without quantization, or on a GPU (device='cuda')."
OWN = (
    "The form that bitsandbytes has for 4 bits on this processor is at fault: load the model by its name with "
    "quantization='4bit', or set support_avx512bf16_for_cpu = False on its 4-bit layers before their first call."
)
LIBRARY = __name__.partition(".")[0]


def refused_with(one: quantized.Trial) -> str:
    with pytest.raises(ModelError) as refused:
        one.refuse()
    return str(refused.value)


def test_layers_of_one_kind_are_tried_once() -> None:
    Layer.calls = 0
    model = nn.Sequential(Layer(), Layer(), Layer(own=True), nn.Linear(4, 3), nn.Sequential(Layer(5)))
    quantized.refuse_unrunnable(model, "m", torch.float16, ours=False)
    assert Layer.calls == 2 * 2  # of two widths: the answer, and the gradient
    assert getattr(model[2], quantized.OWN_FORM) is True
    quantized.refuse_unrunnable(model, "m", torch.float32, ours=True)
    assert Layer.calls == 4 + 2 * 3  # and, in float32, the answer to a vector close by
    assert getattr(model[2], quantized.OWN_FORM) is False
    assert not hasattr(model[0], quantized.OWN_FORM)
    different = [Layer(), Layer(5), Layer(4, 2), Layer(bias=True), Coarse()]
    assert len({quantized._kind_of(one) for one in different}) == 5
    assert quantized._kind_of(Layer()) == (Layer, 4, 3, True, torch.device("cpu"))
    assert [quantized._is_packed_linear(one) for one in (Layer(), nn.Linear(2, 2), nn.Sequential(Layer()))] == [
        True,
        False,
        False,
    ]
    no_width = Layer()
    no_width.in_features = None  # type: ignore[assignment]
    assert not quantized._is_packed_linear(no_width)


def test_a_layer_that_fails_is_refused_by_name() -> None:
    reason = ("no such kernel " + "x" * 200)[:160]
    said = refused_with(trial(Failing()))
    assert said == (
        f"'m' has a quantised layer that {LIBRARY} cannot compute on this machine's cpu: Failing 'a.b' of 4 inputs and 3 outputs "
        f"fails with {reason!r}. {GPU}"
    )
    for error in (KeyError(), ImportError("x"), AssertionError()):
        failing = Failing(own=True)
        failing.error = error
        said = refused_with(trial(failing))
        assert f"fails with {str(error) or type(error).__name__!r}. " in said
        assert said.endswith(OWN)
    out = Failing()
    out.error = torch.OutOfMemoryError("full")
    with pytest.raises(torch.OutOfMemoryError):
        trial(out).refuse()
    with pytest.raises(torch.OutOfMemoryError):
        quantized._loses_gradients(out, torch.ones(1, 4))


def test_what_a_layer_is_tried_on() -> None:
    seen: list[Tensor] = []

    class Seen(Layer):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    one = Seen(3)
    trial(one).refuse()
    assert [tuple(x.shape) for x in seen] == [(2, 3)] * 3
    assert seen[0].tolist() == [[-1.0, 0.0, 1.0]] * 2
    assert torch.equal(seen[1], seen[0] * (1 + 2.0**-12))
    assert torch.equal(seen[2], seen[0])
    seen.clear()
    trial(one, torch.bfloat16).refuse()
    assert [x.dtype for x in seen] == [torch.bfloat16] * 2


def test_a_layer_that_computes_coarsely_is_refused_where_its_own_form_does_so() -> None:
    trial(Coarse()).refuse()  # the proof is the judge of it
    trial(Coarse(own=False)).refuse()
    trial(Coarse(own=True), torch.bfloat16).refuse()
    trial(Layer(own=True)).refuse()
    assert refused_with(trial(Coarse(own=True))) == (
        f"'m' is a model in float32, but {LIBRARY} computes Coarse 'a.b' of 4 inputs and 3 outputs in a lower precision than the "
        f"model's on this machine's cpu. {OWN}"
    )


def test_a_layer_that_sends_no_gradient_is_refused() -> None:
    assert refused_with(trial(Deaf())) == (
        f"'m' has a quantised layer through which {LIBRARY} sends no gradient on this machine's cpu: gradients behind Deaf 'a.b' "
        f"of 4 inputs and 3 outputs would all be zero. {GPU}"
    )
    x = torch.ones(1, 4)
    assert not quantized._loses_gradients(Layer(), x)
    assert not quantized._loses_gradients(Failing(), x)  # its error is refused when it comes
    with torch.no_grad():
        assert quantized._loses_gradients(Deaf(), x)
    assert not x.requires_grad


def test_the_library_of_a_layer() -> None:
    plain = nn.Linear(2, 2)
    assert trial(plain).library == "torch"
    kind = type("Coded", (nn.Parameter,), {"__module__": "torchao.dtypes"})
    plain._parameters["weight"] = kind(torch.ones(2, 2))
    assert trial(plain).library == "torchao"
    unknown = Layer()
    del unknown.out_features
    assert trial(unknown).layer == "Layer 'a.b' of 4 inputs and ? outputs"


def test_a_copy_is_tried_or_the_layer_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Layer().train()
    twin = quantized._copied(one)
    assert (twin is one, twin.training, one.training) == (False, False, True)
    for error in (RuntimeError, TypeError, NotImplementedError):
        monkeypatch.setattr(quantized, "own_copy", lambda module, error=error: (_ for _ in ()).throw(error))
        assert quantized._copied(one) is one
    monkeypatch.setattr(quantized, "own_copy", lambda module: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        quantized._copied(one)
