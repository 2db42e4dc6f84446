"""Where a model's weights are put, and how they are packed: what `load` takes, checked, and as `from_pretrained` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from ..errors import ModelError, nearest
from .quantized import configured

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
QUANTIZATIONS = ("4bit", "8bit")


@dataclass(frozen=True)
class Placing:
    """Where weights are to be, and how packed."""

    device: Any = None
    device_map: Any = None
    max_memory: Any = None
    offload_folder: Any = None
    quantization: Any = None

    def refuse(self) -> None:
        """Refuse what contradicts itself, unknown words, and what needs a package that is not installed."""
        self._refuse_pairs()
        self._refuse_words()
        self._refuse_packages()

    def _refuse_pairs(self) -> None:
        if self.device_map is None and (self.max_memory is not None or self.offload_folder is not None):
            raise ModelError("max_memory and offload_folder go with a device_map, for example device_map='auto'.")
        if self.device is not None and self.device_map is not None:
            raise ModelError(
                f"device={str(self.device)!r} is one device, device_map={self.device_map!r:.80} spreads the model. Leave one out."
            )

    def _refuse_words(self) -> None:
        if isinstance(self.device_map, str) and self.device_map not in DEVICE_MAPS:
            raise ModelError(f"unknown device_map {self.device_map!r}. {nearest(self.device_map, DEVICE_MAPS)}")
        if self.device_map is not None and not isinstance(self.device_map, str | Mapping):
            raise ModelError(f"device_map is a word or a mapping of module to device, not {type(self.device_map).__name__}.")
        if isinstance(self.quantization, str) and self.quantization not in QUANTIZATIONS:
            raise ModelError(
                f"unknown quantization {self.quantization!r}. {nearest(self.quantization, QUANTIZATIONS)} Or give a "
                "configuration of transformers, for example BitsAndBytesConfig(...)."
            )

    def _refuse_packages(self) -> None:
        if self.device_map is not None and find_spec("accelerate") is None:
            raise ModelError("device_map needs accelerate: pip install 'mixlens[large]'.")
        if isinstance(self.quantization, str) and (find_spec("accelerate") is None or find_spec("bitsandbytes") is None):
            raise ModelError(f"quantization={self.quantization!r} needs bitsandbytes: pip install 'mixlens[quantized]'.")

    def options(self, config: Any, dtype: torch.dtype | str | None) -> dict[str, Any]:
        """The options of `from_pretrained`: number type, places, packing."""
        packed = self.quantization is not None or getattr(config, "quantization_config", None) is not None
        options: dict[str, Any] = {}
        if self.quantization is not None:
            options["quantization_config"], dtype = configured(self.quantization, config, dtype)
        options["dtype"] = dtype or ("auto" if packed else torch.float32)
        if self.device_map is not None:
            options |= self._spread()
        elif packed:  # such a model is packed on its device: it cannot be moved later
            options["device_map"] = {"": self.device or best_device()}
        return options

    def _spread(self) -> dict[str, Any]:
        device_map = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
        limits = {"max_memory": self.max_memory, "offload_folder": self.offload_folder}
        return {"device_map": device_map} | {name: value for name, value in limits.items() if value is not None}


def best_device() -> str:
    """The device of a model that no other one is named for."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def number_type(dtype: str | torch.dtype | None) -> torch.dtype | str | None:
    """The number type that a word names; "auto" and None stay."""
    allowed = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype is None or dtype == "auto" or dtype in allowed.values():
        return dtype
    if isinstance(dtype, str) and dtype in allowed:
        return allowed[dtype]
    raise ModelError(f"unknown dtype {dtype!r}. Known: {', '.join(allowed)}, auto.")
