"""Models in wrappers: `load` takes the model out of PEFT and torch.compile wrappers, and refuses data-parallel ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..base.errors import ModelError
from ..base.rounding import TOLERANCE
from .offload import is_dispatched, place_of

PROBE = 4  # tokens that a wrapper and the model inside it are compared on
MIXED = "PeftMixedModel"
PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def unwrapped(model: Any) -> Any:
    """The Hugging Face model inside a wrapper that computes the same; other wrappers are refused by name."""
    kind = type(model).__name__
    if _is_compiled(model):
        return unwrapped(model._orig_mod)
    if kind in PARALLEL:
        raise ModelError(f"load does not take a {kind}. Give the model inside it: load(model.module, ...).")
    if not _is_peft(model):
        return model
    for name, config in _adapters(model).items():
        if getattr(config, "is_prompt_learning", False):
            raise ModelError(
                f"this {kind} puts learned vectors before the text (adapter {name!r}: prompt or prefix "
                "tuning), and mixlens does not model these. LoRA and other adapters inside the layers are taken as "
                "they are."
            )
    for name, config in _adapters(model).items():
        if getattr(
            config, "alora_invocation_tokens", None
        ):  # switched on by the wrapper: in the model inside it is off
            raise ModelError(
                f"adapter {name!r} of this {kind} is an activated LoRA (aLoRA), which acts behind its "
                "invocation tokens alone, and mixlens does not model these. For the model without it: "
                "load(model.get_base_model())."
            )
    # A mixed wrapper has no function that gives the model inside.
    return unwrapped(model.base_model.model if kind == MIXED else model.get_base_model())


def _is_compiled(model: Any) -> bool:
    return type(model).__name__ == "OptimizedModule" and isinstance(getattr(model, "_orig_mod", None), nn.Module)


def _is_peft(model: Any) -> bool:
    named = any(kind.__module__.split(".")[0] == "peft" for kind in type(model).__mro__)
    return named and (type(model).__name__ == MIXED or callable(getattr(model, "get_base_model", None)))


def _adapters(model: Any) -> dict[str, Any]:
    adapters = getattr(model, "peft_config", None)
    return dict(adapters) if isinstance(adapters, dict) else {}


def refuse_unlike(model: Any) -> None:
    """Refuse a wrapper of PEFT that puts out something else for a few tokens, but for rounding, than the model inside
    it, which is what mixlens reads."""
    from .passes import evaluating

    wrapper = model._orig_mod if _is_compiled(model) else model
    if not _is_peft(wrapper):
        return
    inside = unwrapped(wrapper)
    ids = (torch.arange(PROBE, device=place_of(inside)) % inside.config.vocab_size)[None]
    with evaluating(wrapper):
        one, other = (part(input_ids=ids, attention_mask=torch.ones_like(ids))[0] for part in (wrapper, inside))
    allowed = TOLERANCE.get(other.dtype, TOLERANCE[torch.float32])
    if not torch.allclose(one, other, rtol=allowed, atol=allowed * float(other.abs().max()), equal_nan=True):
        types = {name: getattr(config, "peft_type", "unknown") for name, config in _adapters(wrapper).items()}
        kinds = ", ".join(f"{name!r}: {str(kind).removeprefix('PeftType.')}" for name, kind in types.items())
        raise ModelError(
            f"this {type(wrapper).__name__} (adapters {kinds}) computes something else than the model inside it, which "
            "mixlens reads. Give a merged model, load(model.merge_and_unload()), or the model inside, "
            "load(model.get_base_model())."
        )


def refuse_meta(model: nn.Module) -> None:
    """A model on `meta` has no numbers, unless accelerate brings them in for each call."""
    if any(weights.device.type == "meta" for weights in model.parameters()) and not is_dispatched(model):
        raise ModelError(
            "this model is on the device 'meta': its weights have no values. Load them, for example with "
            "from_pretrained, "
            "or move the model with to_empty and load_state_dict."
        )


def refuse_meta_default() -> None:
    """With torch's default device set to `meta`, every new tensor is empty."""
    if torch.get_default_device().type == "meta":
        raise ModelError(
            "torch's default device is 'meta', where tensors have no values. Use torch.set_default_device('cpu')."
        )
