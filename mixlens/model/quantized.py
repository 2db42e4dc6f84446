"""Quantised weights: how they are asked for and described; and each kind of layer is tried before a model is used.

What a layer's library cannot compute on this machine is refused by name.

bitsandbytes has a form of its own for 4-bit layers on processors with AVX512-BF16: when a layer is first called it packs the
weights anew. That form needs inputs that are a multiple of 64 and outputs that are a multiple of 32, it computes in bfloat16
whatever the model's dtype is, and every gradient through it is zero. Models that mixlens loads do without it, so that they
give the same numbers on every processor; a model that came loaded is only read, and is refused where its layers fail.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from ..errors import ModelError
from .offload import is_packed, own_copy, packed_kinds, place_of

# What libraries raise where a layer does not fit the machine; running out of memory is another matter.
FAILURES = (AssertionError, AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError)
OWN_FORM = "support_avx512bf16_for_cpu"  # what bitsandbytes calls its form for such processors, on every 4-bit layer


# --- asked for and described ------------------------------------------------------------------------------------------


def configured(quantization: Any, config: Any, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    """The configuration of a quantisation ("4bit", "8bit" or transformers' own), and the number type it computes in: `dtype`,
    where one is named."""
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError("this checkpoint is quantised already, and is loaded as it is. Leave quantization= out.")
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    if isinstance(quantization, str):
        return _configured_by_word(quantization, dtype)
    return quantization, dtype or getattr(quantization, "bnb_4bit_compute_dtype", None) or "auto"


def _configured_by_word(word: str, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    import transformers

    if dtype == torch.float64:
        raise ModelError(f"quantization={word!r} computes in float32, bfloat16 or float16, not in float64.")
    if word == "8bit":  # LLM.int8() computes in float16, whatever the model does
        return transformers.BitsAndBytesConfig(load_in_8bit=True), dtype or torch.float16
    dtype = dtype or torch.float32
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype), dtype


def description(config: Any) -> str:
    """A quantisation in a few words: its method, and the settings that change numbers."""
    settings = dict(config) if isinstance(config, Mapping) else config.to_dict()
    kind, names = _kind_and_names(settings)
    present = [name for name in names if settings.get(name) is not None]
    values = [f"{name.removeprefix('bnb_4bit_')}={_in_short(settings[name])}" for name in present]
    method = settings.get("quant_method", "unknown")
    return f"{getattr(method, 'value', method)} {kind}({', '.join(values)})"


def _kind_and_names(settings: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The number of bits, where bitsandbytes packs the weights; and the names of the settings that change numbers."""
    if settings.get("load_in_8bit"):
        return "8bit ", ("llm_int8_threshold",)
    if settings.get("load_in_4bit"):
        return "4bit ", ("bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant")
    return "", ("bits", "group_size", "weights", "activations", "quant_type", "format")


def _in_short(value: Any) -> str:
    """A setting as text; a tree of settings (torchao) as its name and a checksum that tells it from others."""
    if not isinstance(value, Mapping):
        return str(value)
    inner = value.get("default", value)
    name = inner.get("_type", "settings") if isinstance(inner, Mapping) else inner
    return f"{name} {crc32(json.dumps(value, sort_keys=True, default=str).encode()):08x}"


# --- tried ------------------------------------------------------------------------------------------------------------


def refuse_unrunnable(model: nn.Module, name: str, dtype: torch.dtype, *, ours: bool) -> None:
    """Try one quantised linear layer of each kind and size; refuse the model where a layer fails, or loses digits or gradients.

    `ours`: mixlens loaded the model itself, so that bitsandbytes' own form may be turned off. Layers are tried as copies: a
    library may change a layer's state and then fail.
    """
    seen = set()
    for path, module in model.named_modules():
        width = getattr(module, "in_features", None)
        if module._modules or not isinstance(width, int) or not is_packed(module):
            continue
        if ours and getattr(module, OWN_FORM, False):
            setattr(module, OWN_FORM, False)
        key = (
            type(module),
            width,
            getattr(module, "out_features", None),
            getattr(module, "bias", None) is None,
            place_of(module),
        )
        if key not in seen:
            seen.add(key)
            _try(module, path, name, dtype)


def _try(module: nn.Module, path: str, name: str, dtype: torch.dtype) -> None:
    inputs, place = int(module.in_features), place_of(module)  # type: ignore[arg-type]
    layer = f"{packed_kinds(module)[0]} {path!r} of {inputs} inputs and {getattr(module, 'out_features', '?')} outputs"
    given = torch.linspace(-1, 1, inputs, device=place).to(torch.bfloat16).to(dtype).expand(2, inputs)  # no digit beyond bfloat16
    copied = _copied(module)
    try:
        with torch.no_grad():
            answer = copied(given)
            close = copied(given * (1 + 2.0**-12)) if dtype == torch.float32 else None  # the same in bfloat16 or float16
    except torch.OutOfMemoryError:
        raise
    except FAILURES as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ModelError(
            f"{name!r} has a quantised layer that {_library(module)} cannot compute on this machine's {place.type}: {layer} "
            f"fails with {reason!r}. {_advice(module)}"
        ) from error
    if close is not None and torch.equal(answer, close) and getattr(module, OWN_FORM, False):  # others are the proof's to judge
        raise ModelError(
            f"{name!r} is a model in float32, but {_library(module)} computes {layer} in a lower precision than the model's on "
            f"this machine's {place.type}. {_advice(module)}"
        )
    if _loses_gradients(copied, given):
        raise ModelError(
            f"{name!r} has a quantised layer through which {_library(module)} sends no gradient on this machine's {place.type}: "
            f"gradients behind {layer} would all be zero. {_advice(module)}"
        )


def _copied(module: nn.Module) -> nn.Module:
    """A copy to try; the module itself where its kind of weights refuses to be copied."""
    try:
        return own_copy(module).eval()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError):
        return module


def _loses_gradients(module: nn.Module, given: Tensor) -> bool:
    """Does torch go on without a gradient where it should send one through this module? (An error is refused when it comes.)"""
    x = given.clone().requires_grad_()
    with torch.enable_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            torch.autograd.grad(module(x).float().square().sum(), [x], allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except FAILURES:
            return False
    return any("autograd kernel was not registered" in str(one.message) for one in told)


def _library(module: nn.Module) -> str:
    """The package of the layer's class, or of its weights where these are a kind of their own inside an ordinary layer."""
    kinds = [type(module), *(type(t) for t in module._parameters.values() if t is not None)]
    own = (kind.__module__.partition(".")[0] for kind in kinds)
    return next((package for package in own if package != "torch"), "torch")


def _advice(module: nn.Module) -> str:
    told = "Load the model without quantization, or on a GPU (device='cuda')."
    if getattr(module, OWN_FORM, False):
        told = (
            "The form that bitsandbytes has for 4 bits on this processor is at fault: load the model by its name with "
            f"quantization='4bit', or set {OWN_FORM} = False on its 4-bit layers before their first call."
        )
    return told


__all__ = ["refuse_unrunnable"]
