"""What a linear module does, found by reading its weights where it is plain, and by asking it where it is not (LoRA,
4-bit)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..base.rounding import working_dtype
from ..model.offload import at_hand, is_packed, own_copy, place_of
from ..model.passes import WATCHING
from ..model.user_code import is_known

ASKED_ROWS = 1 << 26  # numbers in one question to a module that is asked for its weights
ASKED_LENGTH = 64.0  # of the unit vectors: beside it a bias is small, which half precision rounds with the rest


def is_hooked(module: nn.Module) -> bool:
    """Does somebody else's hook act on this module, or on every module? Hooks of torch itself count operations
    alone."""
    watched = nn.modules.module
    everywhere = (*watched._global_forward_hooks.values(), *watched._global_forward_pre_hooks.values())
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    changing = (hook for hook in everywhere if not str(getattr(hook, "__module__", "")).startswith("torch."))
    return any(changing) or any(not getattr(hook, WATCHING, False) for hook in hooks)


def is_plain(module: nn.Module) -> bool:
    """A linear module that nobody changed: its weights may be read, once they are `at_hand`."""
    kind = type(module)
    linear = kind is nn.Linear or (
        kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"
    )  # GPT-2's
    if not linear or is_hooked(module) or not is_known(module):
        return False
    weight = module._parameters.get("weight")  # of a class of its own it would be quantised
    return type(weight) is nn.Parameter and weight.is_floating_point()


def linear_bias(module: nn.Module, width: int, like: Tensor) -> Tensor:
    """b, [out]: the answer of a linear module to the zero vector."""
    if is_plain(module) and isinstance(module.bias, Tensor) and not module.bias.is_meta:
        return module.bias
    return module(torch.zeros(1, width, dtype=like.dtype, device=like.device))[0]


def linear_weight(module: nn.Module, width: int, dtype: torch.dtype, like: Tensor | None = None) -> Tensor:
    """W, [in, out], of any linear module. `like`: a tensor of the number type that the module reads."""
    if not is_plain(module):
        return asked_weight(module, width, like).to(dtype)
    with at_hand(module):
        weight = torch.as_tensor(module.weight)
        return (weight.t() if type(module) is nn.Linear else weight).to(dtype)


@torch.no_grad()
def asked_weight(module: nn.Module, width: int, like: Tensor | None = None) -> Tensor:
    """W, [in, out], in at least float32: the module's answer to each unit vector, less its answer to the zero vector.

    Its numbers may be packed in a way of their own, so they are not looked at.
    """
    dtype, device = input_dtype(module, like), place_of(module)
    blocks = []
    for rows in torch.arange(width, device=device).split(max(1, ASKED_ROWS // width)):
        units = torch.zeros(len(rows) + 1, width, dtype=dtype, device=device)
        units[torch.arange(len(rows), device=device), rows] = ASKED_LENGTH
        answer = module(units)
        answer = answer.to(working_dtype(answer.dtype))
        blocks.append((answer[:-1] - answer[-1]) / ASKED_LENGTH)
    return torch.cat(blocks) if len(blocks) > 1 else blocks[0]


def input_dtype(module: nn.Module, like: Tensor | None) -> torch.dtype:
    """The number type that a module reads: that of `like`, else that of its first floating-point weights."""
    if like is not None:
        return like.dtype
    return next((t.dtype for t in module.parameters() if t.is_floating_point()), torch.float32)


def widened(module: nn.Module, like: Tensor) -> nn.Module:
    """The same module in float32: a copy, or of a quantised one the linear map that it stands for."""
    if not is_packed(module) or not hasattr(module, "in_features"):
        return own_copy(module).float()
    weight = asked_weight(module, int(module.in_features), like).float()  # type: ignore[arg-type]
    linear = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    linear.weight = nn.Parameter(weight.t(), requires_grad=False)
    linear.bias = nn.Parameter(linear_bias(module, len(weight), like).float(), requires_grad=False)
    return linear
