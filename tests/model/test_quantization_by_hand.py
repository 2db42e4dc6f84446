"""Quantised weights: configurations, descriptions and trials of layers, on layers that need no package for them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixlens
from mixlens.model import quantized

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


class Layer(nn.Module):
    """Weights in eight bits, unpacked on every call."""

    def __init__(self, inputs: int = 4, outputs: int = 3, *, own: bool | None = None):
        super().__init__()
        self.in_features, self.out_features, self.bias = inputs, outputs, None
        self.register_buffer("packed", torch.arange(outputs * inputs, dtype=torch.int8).view(outputs, inputs))
        if own is not None:
            setattr(self, quantized.OWN_FORM, own)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.packed.to(x).t()  # type: ignore[operator]


class Coarse(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16().to(x.dtype))


class Failing(Layer):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("no   such\nkernel")


class Full(Layer):
    def forward(self, x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("full")


class Deaf(Layer):
    """Sends no gradient, and torch says so."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            warnings.warn(
                "own::op: an autograd kernel was not registered to the Autograd key(s)", UserWarning, stacklevel=1
            )
        return super().forward(x.detach() + 0 * x)


def tried(layer: nn.Module, dtype: torch.dtype = torch.float32, *, ours: bool = False) -> None:
    quantized.refuse_unrunnable(nn.Sequential(nn.Linear(4, 3), layer), "m", dtype, ours=ours)


LIBRARY = __name__.partition(".")[0]
GPU = "Load the model without quantization, or on a GPU (device='cuda')."
FORM = (
    "The form that bitsandbytes has for 4 bits on this processor is at fault: load the model by its name with "
    "quantization='4bit', or set support_avx512bf16_for_cpu = False on its 4-bit layers before their first call."
)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (
            Failing(),
            f"'m' has a quantised layer that {LIBRARY} cannot compute on this machine's cpu: Failing '1' of 4 inputs and 3 "
            f"outputs fails with 'no such kernel'. {GPU}",
        ),
        (
            Coarse(own=True),
            f"'m' is a model in float32, but {LIBRARY} computes Coarse '1' of 4 inputs and 3 outputs in a lower precision than "
            f"the model's on this machine's cpu. {FORM}",
        ),
        (
            Deaf(),
            f"'m' has a quantised layer through which {LIBRARY} sends no gradient on this machine's cpu: gradients behind Deaf "
            f"'1' of 4 inputs and 3 outputs would all be zero. {GPU}",
        ),
    ],
    ids=["failing", "coarse", "deaf"],
)
def test_layers_that_are_refused(layer: nn.Module, says: str) -> None:
    with pytest.raises(mixlens.MixlensError) as refused:
        tried(layer)
    assert str(refused.value) == says


def test_layers_that_run() -> None:
    """Of a coarse layer that is not of bitsandbytes' own form the proof is the judge."""
    for layer in (Layer(), Layer(own=True), Coarse(), Coarse(own=False)):
        tried(layer)
    tried(Coarse(own=True), torch.bfloat16)
    own = Coarse(own=True)
    tried(own, ours=True)
    assert getattr(own, quantized.OWN_FORM) is False
    with pytest.raises(torch.OutOfMemoryError):
        tried(Full())
