"""Where a model's weights are put, and how they are packed: what `load` takes, checked, and as `from_pretrained` takes
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from ..base.errors import ModelError, nearest
from ..base.optional import installing
from .quantized import configured

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
QUANTIZATIONS = ("4bit", "8bit")
NUMBER_TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Placing:
    """Where weights are to be, and how packed."""

    device: Any = None
    device_map: Any = None
    max_memory: Any = None
    offload_folder: Any = None
    quantization: Any = None

    @property
    def limits(self) -> dict[str, Any]:
        """What a device map has to keep to, by the names of `from_pretrained`."""
        limits = {"max_memory": self.max_memory, "offload_folder": self.offload_folder}
        return {name: value for name, value in limits.items() if value is not None}

    def refuse(self) -> None:
        """Refuse what contradicts itself, unknown words, and what needs a package that is not installed."""
        if self.device_map is None and self.limits:
            raise ModelError("max_memory and offload_folder go with a device_map, for example device_map='auto'.")
        if self.device is not None and self.device_map is not None:
            raise ModelError(
                f"device={str(self.device)!r} is one device, device_map={self.device_map!r:.80} spreads the model. "
                f"Leave one out."
            )
        if isinstance(self.device_map, str) and self.device_map not in DEVICE_MAPS:
            raise ModelError(f"unknown device_map {self.device_map!r}. {nearest(self.device_map, DEVICE_MAPS)}")
        if not isinstance(self.device_map, str | Mapping | None):
            raise ModelError(
                f"device_map is a word or a mapping of module to device, not {type(self.device_map).__name__}."
            )
        by_word = isinstance(self.quantization, str)
        if by_word and self.quantization not in QUANTIZATIONS:
            raise ModelError(
                f"unknown quantization {self.quantization!r}. {nearest(self.quantization, QUANTIZATIONS)} Or give a "
                "configuration of transformers, for example BitsAndBytesConfig(...)."
            )
        if self.device_map is not None and find_spec("accelerate") is None:
            raise ModelError(f"device_map needs accelerate: {installing('large')}.")
        if by_word and (find_spec("accelerate") is None or find_spec("bitsandbytes") is None):
            raise ModelError(f"quantization={self.quantization!r} needs bitsandbytes: {installing('quantized')}.")

    def options(self, config: Any, dtype: torch.dtype | str | None) -> dict[str, Any]:
        """The options of `from_pretrained`: number type, places, packing. A packed model is packed on its device: it
        cannot be moved later."""
        options: dict[str, Any] = {}
        if self.quantization is not None:
            options["quantization_config"], dtype = configured(self.quantization, config, dtype)
        packed = bool(options) or getattr(config, "quantization_config", None) is not None
        options["dtype"] = dtype or ("auto" if packed else torch.float32)
        if self.device_map is not None:
            device_map = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
            return options | {"device_map": device_map} | self.limits
        return options | ({"device_map": {"": self.device or best_device()}} if packed else {})


def best_device() -> str:
    """The device of a model that no other one is named for."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def number_type(dtype: str | torch.dtype | None) -> torch.dtype | str | None:
    """The number type that a word names; "auto" and None stay."""
    if dtype in (None, "auto", *NUMBER_TYPES.values()):
        return dtype
    if isinstance(dtype, str) and dtype in NUMBER_TYPES:
        return NUMBER_TYPES[dtype]
    raise ModelError(f"unknown dtype {dtype!r}. Known: {', '.join(NUMBER_TYPES)}, auto.")
