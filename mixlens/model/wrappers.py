"""Models in wrappers: `load` takes the model out of PEFT and torch.compile wrappers, and refuses data-parallel ones."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import ModelError

PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def unwrapped(model: nn.Module) -> nn.Module:
    """The Hugging Face model inside a wrapper that computes the same; other wrappers are refused by name."""
    if _is_compiled(model):
        return unwrapped(model._orig_mod)  # type: ignore[arg-type]
    if type(model).__name__ in PARALLEL:
        raise ModelError(f"load does not take a {type(model).__name__}. Give the model inside it: load(model.module, ...).")
    if not _is_peft(model):
        return model
    _refuse_prompts(model)
    return unwrapped(model.get_base_model())  # type: ignore[operator]


def _is_compiled(model: nn.Module) -> bool:
    return type(model).__name__ == "OptimizedModule" and isinstance(getattr(model, "_orig_mod", None), nn.Module)


def _refuse_prompts(model: nn.Module) -> None:
    """Refuse adapters that add vectors to the input."""
    prompts = [name for name, config in _adapters(model).items() if getattr(config, "is_prompt_learning", False)]
    if prompts:
        raise ModelError(
            f"this {type(model).__name__} puts learned vectors before the text (adapter {prompts[0]!r}: prompt or prefix "
            "tuning), and mixlens does not model these. LoRA and other adapters inside the layers are taken as they are."
        )


def _is_peft(model: nn.Module) -> bool:
    named = any(kind.__module__.split(".")[0] == "peft" for kind in type(model).__mro__)
    return named and callable(getattr(model, "get_base_model", None))


def _adapters(model: Any) -> dict[str, Any]:
    adapters = getattr(model, "peft_config", None)
    return dict(adapters) if isinstance(adapters, dict) else {}


def refuse_meta(model: nn.Module) -> None:
    """A model on `meta` has no numbers, unless accelerate brings them in for each call."""
    from .offload import is_dispatched

    if any(weights.device.type == "meta" for weights in model.parameters()) and not is_dispatched(model):
        raise ModelError(
            "this model is on the device 'meta': its weights have no values. Load them, for example with from_pretrained, "
            "or move the model with to_empty and load_state_dict."
        )


def refuse_meta_default() -> None:
    """With torch's default device set to `meta`, every new tensor is empty."""
    import torch

    if torch.get_default_device().type == "meta":
        raise ModelError("torch's default device is 'meta', where tensors have no values. Use torch.set_default_device('cpu').")
