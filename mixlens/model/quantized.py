"""Quantised weights: their configuration, their description, and a trial of each kind of layer before a model runs.

What a layer's library cannot compute on this machine is refused by name.

bitsandbytes has a form of its own for 4-bit layers on processors with AVX512-BF16: when a layer is first called it packs the
weights anew. That form needs inputs that are a multiple of 64 and outputs that are a multiple of 32, it computes in bfloat16
whatever the model's dtype is, and every gradient through it is zero. Models that mixlens loads do without it, so that they
give the same numbers on every processor; a model that came loaded is only read, and is refused where its layers fail.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
    """The configuration of a quantisation ("4bit", "8bit" or transformers' own), and the number type it computes in: `dtype`,
    where one is named."""
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError("this checkpoint is quantised already, and is loaded as it is. Leave quantization= out.")
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    if isinstance(quantization, str):
        return _configured_by_word(quantization, dtype)
    return _configured_by_user(quantization, dtype)


def _configured_by_user(quantization: Any, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    return quantization, dtype or getattr(quantization, "bnb_4bit_compute_dtype", None) or "auto"


def _configured_by_word(word: str, dtype: torch.dtype | str | None) -> tuple[Any, torch.dtype | str | None]:
    import transformers

    if dtype == torch.float64:
        raise ModelError(f"quantization={word!r} computes in float32, bfloat16 or float16, not in float64.")
    if word == "8bit":  # LLM.int8() computes in float16, whatever the model does
        return transformers.BitsAndBytesConfig(load_in_8bit=True), dtype or torch.float16
    dtype = dtype or torch.float32
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    ), dtype


def description(config: Any) -> str:
    """A quantisation in a few words: its method, and the settings that change numbers."""
    settings = dict(config) if isinstance(config, Mapping) else config.to_dict()
    kind, names = _kind_and_names(settings)
    values = [_setting(name, settings[name]) for name in names if settings.get(name) is not None]
    method = settings.get("quant_method", "unknown")
    return f"{getattr(method, 'value', method)} {kind}({', '.join(values)})"


def _setting(name: str, value: Any) -> str:
    return f"{name.removeprefix('bnb_4bit_')}={_in_short(value)}"


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


# --- the trial --------------------------------------------------------------------------------------------------------


def refuse_unrunnable(model: nn.Module, name: str, dtype: torch.dtype, *, ours: bool) -> None:
    """Try one quantised linear layer of each kind and size; refuse the model where a layer fails, or loses digits or gradients.

    `ours`: mixlens loaded the model itself, so that bitsandbytes' own form may be turned off. Layers are tried as copies: a
    library may change a layer's state and then fail.
    """
    layers = [(path, module) for path, module in model.named_modules() if _is_packed_linear(module)]
    if ours:
        _turn_off_own_form(module for _, module in layers)
    first_of_kind: dict[object, Trial] = {}
    for path, module in layers:
        first_of_kind.setdefault(_kind_of(module), Trial(module, path, name, dtype))
    for trial in first_of_kind.values():
        trial.refuse()


def _is_packed_linear(module: nn.Module) -> bool:
    return not module._modules and isinstance(getattr(module, "in_features", None), int) and is_packed(module)


def _turn_off_own_form(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        if getattr(module, OWN_FORM, False):
            setattr(module, OWN_FORM, False)


def _kind_of(module: nn.Module) -> tuple[object, ...]:
    """What layers that stand and fall together have in common: class, widths, whether there is a bias, and device."""
    widths = (module.in_features, getattr(module, "out_features", None))
    return type(module), *widths, getattr(module, "bias", None) is None, place_of(module)


@dataclass(frozen=True)
class Trial:
    """One quantised layer, called on a copy of it."""

    module: nn.Module
    path: str
    model: str
    dtype: torch.dtype

    def refuse(self) -> None:
        """Refuse the model where the layer fails, rounds more than the model does, or sends no gradient."""
        twin, inputs = _copied(self.module), int(self.module.in_features)  # type: ignore[arg-type]
        x = torch.linspace(-1, 1, inputs, device=self.place).to(torch.bfloat16).to(self.dtype).expand(2, inputs)
        self._refuse_precision(*self._answers(twin, x))
        if _loses_gradients(twin, x):
            raise ModelError(
                f"{self.model!r} has a quantised layer through which {self.library} sends no gradient on this machine's "
                f"{self.place.type}: gradients behind {self.layer} would all be zero. {_advice(self.module)}"
            )

    def _answers(self, twin: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the layer puts out for x, which has no digit beyond bfloat16; and, in float32, for a vector so close to x that
        bfloat16 and float16 do not tell them apart."""
        try:
            with torch.no_grad():
                return twin(x), twin(x * (1 + 2.0**-12)) if self.dtype == torch.float32 else None
        except torch.OutOfMemoryError:
            raise
        except FAILURES as error:
            raise ModelError(self._failure(error)) from error

    def _failure(self, error: Exception) -> str:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        return (
            f"{self.model!r} has a quantised layer that {self.library} cannot compute on this machine's {self.place.type}: "
            f"{self.layer} fails with {reason!r}. {_advice(self.module)}"
        )

    def _refuse_precision(self, answer: Tensor, close: Tensor | None) -> None:
        """Refuse bitsandbytes' own form where it computes in a lower precision. Of other layers the proof is the judge."""
        if close is not None and torch.equal(answer, close) and getattr(self.module, OWN_FORM, False):
            raise ModelError(
                f"{self.model!r} is a model in float32, but {self.library} computes {self.layer} in a lower precision than the "
                f"model's on this machine's {self.place.type}. {_advice(self.module)}"
            )

    @property
    def place(self) -> torch.device:
        return place_of(self.module)

    @property
    def layer(self) -> str:
        widths = f"{self.module.in_features} inputs and {getattr(self.module, 'out_features', '?')} outputs"
        return f"{packed_kinds(self.module)[0]} {self.path!r} of {widths}"

    @property
    def library(self) -> str:
        """The package of the layer's class, or of its weights where these are a subclass of tensor inside an ordinary layer."""
        kinds = (type(self.module), *map(type, self.module._parameters.values()))
        packages = (kind.__module__.partition(".")[0] for kind in kinds)
        return next((package for package in packages if package not in ("torch", "builtins")), "torch")


def _copied(module: nn.Module) -> nn.Module:
    """A copy to try; the module itself where its kind of weights refuses to be copied."""
    try:
        return own_copy(module).eval()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError):
        return module


def _loses_gradients(module: nn.Module, x: Tensor) -> bool:
    """Does torch go on without a gradient where it should send one through this module? (An error is refused when it comes.)"""
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


def _advice(module: nn.Module) -> str:
    if getattr(module, OWN_FORM, False):
        return (
            "The form that bitsandbytes has for 4 bits on this processor is at fault: load the model by its name with "
            f"quantization='4bit', or set {OWN_FORM} = False on its 4-bit layers before their first call."
        )
    return "Load the model without quantization, or on a GPU (device='cuda')."
