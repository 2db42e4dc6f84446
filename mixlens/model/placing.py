"""Where a model's weights are put, and how they are packed: what `load` takes, checked, and as `from_pretrained` takes it."""

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
        self._refuse_limits()
        self._refuse_two_devices()
        self._refuse_device_map()
        self._refuse_quantization()
        self._refuse_packages()

    def _refuse_limits(self) -> None:
        if self.device_map is None and self.limits:
            raise ModelError("max_memory and offload_folder go with a device_map, for example device_map='auto'.")

    def _refuse_two_devices(self) -> None:
        if self.device is not None and self.device_map is not None:
            raise ModelError(
                f"device={str(self.device)!r} is one device, device_map={self.device_map!r:.80} spreads the model. Leave one out."
            )

    def _refuse_device_map(self) -> None:
        if isinstance(self.device_map, str) and self.device_map not in DEVICE_MAPS:
            raise ModelError(f"unknown device_map {self.device_map!r}. {nearest(self.device_map, DEVICE_MAPS)}")
        if not isinstance(self.device_map, str | Mapping | None):
            raise ModelError(
                f"device_map is a word or a mapping of module to device, not {type(self.device_map).__name__}."
            )

    def _refuse_quantization(self) -> None:
        if isinstance(self.quantization, str) and self.quantization not in QUANTIZATIONS:
            raise ModelError(
                f"unknown quantization {self.quantization!r}. {nearest(self.quantization, QUANTIZATIONS)} Or give a "
                "configuration of transformers, for example BitsAndBytesConfig(...)."
            )

    def _refuse_packages(self) -> None:
        if self.device_map is not None and not _are_installed("accelerate"):
            raise ModelError(f"device_map needs accelerate: {installing('large')}.")
        if isinstance(self.quantization, str) and not _are_installed("accelerate", "bitsandbytes"):
            raise ModelError(f"quantization={self.quantization!r} needs bitsandbytes: {installing('quantized')}.")

    def options(self, config: Any, dtype: torch.dtype | str | None) -> dict[str, Any]:
        """The options of `from_pretrained`: number type, places, packing."""
        packing: dict[str, Any] = {}
        if self.quantization is not None:
            packing["quantization_config"], dtype = configured(self.quantization, config, dtype)
        packed = bool(packing) or getattr(config, "quantization_config", None) is not None
        return packing | {"dtype": dtype or ("auto" if packed else torch.float32)} | self._places(packed)

    def _places(self, packed: bool) -> dict[str, Any]:
        """The option that says where weights go. A packed model is packed on its device: it cannot be moved later."""
        if self.device_map is not None:
            return self._spread()
        return {"device_map": {"": self.device or best_device()}} if packed else {}

    def _spread(self) -> dict[str, Any]:
        device_map = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
        return {"device_map": device_map} | self.limits


def _are_installed(*packages: str) -> bool:
    return all(find_spec(package) is not None for package in packages)


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
