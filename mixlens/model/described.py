"""A model's modules in words that are the same on every device, in every process and on every machine. Weights are left out.

Two models of the same weights and the same configuration may compute different numbers: an activation, a norm's epsilon or the
adapter that is on was changed, or a hook was registered. A run is continued only by a model with the same words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torch import nn

from .user_code import own_code

if TYPE_CHECKING:
    from .model import Model

ADAPTERS = ("_disable_adapters", "_active_adapter")  # attributes of PEFT's modules: which adapters act
# An address in memory, and the place of a tensor.
VOLATILE = re.compile(r"\bat 0x[0-9a-fA-F]+|device=[^,)\s]+")


def module_facts(model: Model) -> list[str]:
    """A line for each module, then one for each piece of a user's own code."""
    return [*(f"{path}: {_told(module)}" for path, module in model.hf_model.named_modules()), *own_code(model)]


def _told(module: nn.Module) -> str:
    """The class of a module, what it prints of itself, its fractions, and which adapters act."""
    return f"{type(module).__qualname__}({_printed(module)}) {_numbers(module)}"


def _printed(module: nn.Module) -> str:
    """What a module prints of itself; nothing of a list of weights, which prints where they lie."""
    return "" if isinstance(module, nn.ParameterList | nn.ParameterDict) else VOLATILE.sub("", module.extra_repr())


def _numbers(module: nn.Module) -> str:
    """The fractions among a module's attributes (an epsilon, a scale), and which adapters act. Whole numbers may count calls."""
    told = {name: value for name, value in vars(module).items() if name in ADAPTERS or _is_fraction(value)}
    return ", ".join(f"{name}={told[name]!r}" for name in sorted(told))


def _is_fraction(value: Any) -> bool:
    """Is this a fraction, or a mapping that holds one for each adapter?"""
    held = list(value.values()) if isinstance(value, dict) else [value]
    return {type(one) for one in held} == {float}
