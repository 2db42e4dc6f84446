"""Quantised weights: their configuration, their description, and a trial of each kind of layer before a model runs.

What a layer's library cannot compute on this machine is refused by name.

bitsandbytes has a form of its own for 4-bit layers on processors with AVX512-BF16: when a layer is first called it
packs the weights anew. That form needs inputs that are a multiple of 64 and outputs that are a multiple of 32, it
computes in bfloat16 whatever the model's dtype is, and every gradient through it is zero. Models that mixlens loads do
without it, so that they give the same numbers on every processor; a model that came loaded is only read, and is refused
where its layers fail.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from .offload import is_packed, own_copy, packed_kinds, place_of

# What libraries raise where a layer does not fit the machine; running out of memory is another matter.
FAILURES = (AssertionError, AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError)
OWN_FORM = "support_avx512bf16_for_cpu"  # what bitsandbytes calls its form for such processors, on every 4-bit layer


# --- configuration and description ------------------------------------------------------------------------------------


def configured(quantization: Any, config: Any, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    """The configuration of a quantisation ("4bit", "8bit" or transformers' own), and the number type it computes in:
    `dtype`, where one is named."""
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError("this checkpoint is quantised already, and is loaded as it is. Leave quantization= out.")
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    if not isinstance(quantization, str):
        return quantization, dtype or getattr(quantization, "bnb_4bit_compute_dtype", None) or "auto"
    from transformers import BitsAndBytesConfig

    if dtype == torch.float64:
        raise ModelError(f"quantization={quantization!r} computes in float32, bfloat16 or float16, not in float64.")
    if quantization == "8bit":  # LLM.int8() computes in float16, whatever the model does
        return BitsAndBytesConfig(load_in_8bit=True), dtype or torch.float16
    dtype = dtype or torch.float32
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype), dtype


def description(config: Any) -> str:
    """A quantisation in a few words: its method, and the settings that change numbers."""
    settings = dict(config) if isinstance(config, Mapping) else config.to_dict()
    kind = ""
    names: tuple[str, ...] = ("bits", "group_size", "weights", "activations", "quant_type", "format")
    if settings.get("load_in_8bit"):
        kind, names = "8bit ", ("llm_int8_threshold",)
    elif settings.get("load_in_4bit"):
        kind, names = "4bit ", ("bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant")
    values = [
        f"{name.removeprefix('bnb_4bit_')}={_in_short(settings[name])}"
        for name in names
        if settings.get(name) is not None
    ]
    method = settings.get("quant_method", "unknown")
    return f"{getattr(method, 'value', method)} {kind}({', '.join(values)})"


def _in_short(value: Any) -> str:
    """A setting as text; a tree of settings (torchao) as its name and a checksum that tells it from others."""
    if not isinstance(value, Mapping):
        return str(value)
    inner = value.get("default", value)
    name = inner.get("_type", "settings") if isinstance(inner, Mapping) else inner
    return f"{name} {crc32(json.dumps(value, sort_keys=True, default=str).encode()):08x}"


# --- the trial --------------------------------------------------------------------------------------------------------


def refuse_unrunnable(model: nn.Module, name: str, dtype: torch.dtype, *, ours: bool) -> None:
    """Try one quantised linear layer of each kind and size; refuse the model where a layer fails, or loses digits or
    gradients.

    `ours`: mixlens loaded the model itself, so that bitsandbytes' own form may be turned off. Layers are tried as
    copies: a library may change a layer's state and then fail.
    """
    kinds: dict[tuple[Any, ...], tuple[str, nn.Module]] = {}
    for path, module in model.named_modules():
        if module._modules or not isinstance(getattr(module, "in_features", None), int) or not is_packed(module):
            continue
        if ours and getattr(module, OWN_FORM, False):
            setattr(module, OWN_FORM, False)
        # What layers that stand and fall together have in common: class, widths, whether there is a bias, and device.
        widths = (module.in_features, getattr(module, "out_features", None))
        kind = (type(module), *widths, getattr(module, "bias", None) is None, place_of(module))
        kinds.setdefault(kind, (path, module))
    for path, module in kinds.values():
        _try(module, path, name, dtype)


def _try(module: Any, path: str, name: str, dtype: torch.dtype) -> None:
    """Call a copy of one quantised layer. Refuse the model where the layer fails, rounds more than the model does, or
    sends no gradient.

    Bitsandbytes' own form is refused where it computes in a lower precision. Of other layers the proof is the judge.
    """
    place, inputs = place_of(module), int(module.in_features)
    own_form = getattr(module, OWN_FORM, False)
    layer = f"{packed_kinds(module)[0]} {path!r} of {inputs} inputs and {getattr(module, 'out_features', '?')} outputs"
    # The package of the layer's class, or of its weights where these are a subclass of tensor inside an ordinary layer.
    packages = [kind.__module__.partition(".")[0] for kind in (type(module), *map(type, module._parameters.values()))]
    library = next((package for package in packages if package not in ("torch", "builtins")), "torch")
    advice = "Load the model without quantization, or on a GPU (device='cuda')."
    if own_form:
        advice = (
            "The form that bitsandbytes has for 4 bits on this processor is at fault: load the model by its name with "
            f"quantization='4bit', or set {OWN_FORM} = False on its 4-bit layers before their first call."
        )
    # x has no digit beyond bfloat16; in float32 a vector is so close to it that bfloat16 and float16 do not tell them
    # apart.
    x = torch.linspace(-1, 1, inputs, device=place).to(torch.bfloat16).to(dtype).expand(2, inputs)
    twin, close = _copied(module), x * (1 + 2.0**-12)
    try:
        with torch.no_grad():
            answer = twin(x)
            coarse = dtype == torch.float32 and torch.equal(answer, twin(close))
    except torch.OutOfMemoryError:
        raise
    except FAILURES as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ModelError(
            f"{name!r} has a quantised layer that {library} cannot compute on this machine's {place.type}: "
            f"{layer} fails with {reason!r}. {advice}"
        ) from error
    if coarse and own_form:
        raise ModelError(
            f"{name!r} is a model in float32, but {library} computes {layer} in a lower precision than the "
            f"model's on this machine's {place.type}. {advice}"
        )
    if _loses_gradients(twin, x):
        raise ModelError(
            f"{name!r} has a quantised layer through which {library} sends no gradient on this machine's "
            f"{place.type}: gradients behind {layer} would all be zero. {advice}"
        )


def _copied(module: nn.Module) -> nn.Module:
    """A copy to try; the module itself where its kind of weights refuses to be copied."""
    try:
        return own_copy(module).eval()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError):
        return module


def _loses_gradients(module: nn.Module, x: Tensor) -> bool:
    """Does torch go on without a gradient where it should send one through this module? (An error is refused when it
    comes.)"""
    x = x.clone().requires_grad_()
    with torch.enable_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.autograd.grad(module(x).float().square().sum(), [x], allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except FAILURES:
            return False
    return any("autograd kernel was not registered" in str(one.message) for one in caught)
