"""Models in wrappers: `load` takes the model out of PEFT and torch.compile wrappers, and refuses data-parallel ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from ..base.rounding import TOLERANCE

PROBE = 4  # tokens that a wrapper and the model inside it are compared on
PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")


def unwrapped(model: nn.Module) -> nn.Module:
    """The Hugging Face model inside a wrapper that computes the same; other wrappers are refused by name."""
    if _is_compiled(model):
        return unwrapped(model._orig_mod)  # type: ignore[arg-type]
    if type(model).__name__ in PARALLEL:
        raise ModelError(
            f"load does not take a {type(model).__name__}. Give the model inside it: load(model.module, ...)."
        )
    if not _is_peft(model):
        return model
    _refuse_prompts(model)
    _refuse_invoked(model)
    return unwrapped(_inside(model))


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


def _refuse_invoked(model: nn.Module) -> None:
    """Refuse adapters that the wrapper itself switches on, from certain tokens of a text on: in the model inside they are off."""
    invoked = [name for name, config in _adapters(model).items() if getattr(config, "alora_invocation_tokens", None)]
    if invoked:
        raise ModelError(
            f"adapter {invoked[0]!r} of this {type(model).__name__} is an activated LoRA (aLoRA), which acts behind its "
            "invocation tokens alone, and mixlens does not model these. For the model without it: load(model.get_base_model())."
        )


def _is_peft(model: nn.Module) -> bool:
    named = any(kind.__module__.split(".")[0] == "peft" for kind in type(model).__mro__)
    return named and (_is_mixed(model) or callable(getattr(model, "get_base_model", None)))


def _is_mixed(model: nn.Module) -> bool:
    return type(model).__name__ == "PeftMixedModel"


def _inside(model: Any) -> nn.Module:
    """The model of transformers in a wrapper of PEFT, with its adapters; a mixed wrapper has no function that gives it."""
    return model.base_model.model if _is_mixed(model) else model.get_base_model()


def refuse_unlike(model: Any) -> None:
    """Refuse a wrapper of PEFT that computes something else than the model inside it, which is what mixlens reads."""
    wrapper = model._orig_mod if _is_compiled(model) else model
    if _is_peft(wrapper) and not _computes_the_same(wrapper, unwrapped(wrapper)):
        raise _unlike(wrapper)


def _unlike(wrapper: nn.Module) -> ModelError:
    kinds = ", ".join(f"{name!r}: {_kind(config)}" for name, config in _adapters(wrapper).items())
    return ModelError(
        f"this {type(wrapper).__name__} (adapters {kinds}) computes something else than the model inside it, which "
        "mixlens reads. Give a merged model, load(model.merge_and_unload()), or the model inside, load(model.get_base_model())."
    )


def _kind(config: Any) -> str:
    return str(getattr(config, "peft_type", "unknown")).removeprefix("PeftType.")


def _computes_the_same(wrapper: nn.Module, inside: Any) -> bool:
    """Whether both put out the same for a few tokens, but for rounding."""
    from .offload import place_of
    from .passes import evaluating

    ids = (torch.arange(PROBE, device=place_of(inside)) % inside.config.vocab_size)[None]
    with evaluating(wrapper):
        return _are_alike(_output(wrapper, ids), _output(inside, ids))


def _output(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits, or the last hidden states."""
    return model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


def _are_alike(one: Tensor, other: Tensor) -> bool:
    allowed = TOLERANCE.get(other.dtype, TOLERANCE[torch.float32])
    return torch.allclose(one, other, rtol=allowed, atol=allowed * float(other.abs().max()), equal_nan=True)


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
    if torch.get_default_device().type == "meta":
        raise ModelError(
            "torch's default device is 'meta', where tensors have no values. Use torch.set_default_device('cpu')."
        )
