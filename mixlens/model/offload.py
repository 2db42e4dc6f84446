"""Where a module runs, and where its weights are while nobody calls it.

accelerate spreads a model over devices by hooks on its modules: a module's weights may lie on another device than its
neighbour's, or be offloaded (to main memory or disk: outside of a call they are on `meta`, which holds no numbers).
Calling a module always works. Code that reads weights does it inside `with at_hand(module): ...`. Modules without such
a hook cost nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError

HOOK = "_hf_hook"  # where accelerate keeps its hook
PACKED = (torch.int8, torch.uint8, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8_")))
ORDINARY = (nn.Parameter, type(None))  # the types of a module's own parameters, where they are not packed


def aligning(module: nn.Module) -> list[Any]:
    """accelerate's hooks on this module that move weights and inputs; for most modules none."""
    hook = module.__dict__.get(HOOK)
    if hook is None:
        return []
    return [one for one in getattr(hook, "hooks", (hook,)) if getattr(one, "execution_device", None) is not None]


def is_dispatched(model: nn.Module) -> bool:
    """Was this model spread over places by accelerate?"""
    return any(aligning(module) for module in model.modules())


def is_away(module: nn.Module) -> bool:
    """Are this module's own weights offloaded: brought in for a call, and taken away after it?"""
    return any(getattr(hook, "offload", False) for hook in aligning(module))


def place_of(module: nn.Module) -> torch.device:
    """The device this module runs on: by accelerate's hook, else where its weights are (without any: the CPU)."""
    for hook in aligning(module):
        return torch.device(hook.execution_device)
    device = next((t.device for t in chain(module.parameters(), module.buffers())), torch.device("cpu"))
    if device.type != "meta":
        return device
    return next(
        (place_of(part) for part in module.modules() if aligning(part)), device
    )  # where its first hooked part runs


@contextmanager
def at_hand(module: nn.Module) -> Iterator[nn.Module]:
    """The weights of a module and its parts, also the offloaded ones, on the device that the module runs on. Not to be
    nested."""
    hooked = module._modules or HOOK in module.__dict__  # a module without parts and without a hook is there
    with ExitStack() as stack:
        for part in filter(is_away, module.modules()) if hooked else ():
            stack.enter_context(_own_at_hand(part))
        yield module


@contextmanager
def _own_at_hand(module: nn.Module) -> Iterator[None]:
    """`at_hand` for the module's own parameters, without those of its parts."""
    if not is_away(module):
        yield
        return
    hook = module.__dict__[HOOK]
    try:
        hook.pre_forward(module)
        yield
    finally:
        hook.post_forward(module, None)


def weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter's name and numbers, shared ones once. Offloaded ones are brought in, a module at a time."""
    names = {name for name, _ in model.named_parameters()}
    if HOOK in model.__dict__:  # tied weights are one and the same; where one of them is offloaded, they are no longer
        names -= set(getattr(model, "all_tied_weights_keys", None) or ())
    for path, module in model.named_modules():
        own = {f"{path}.{name}" if path else name: name for name, one in module._parameters.items() if one is not None}
        if names & own.keys():
            with _own_at_hand(module):
                for name in filter(names.__contains__, own):
                    yield from _numbers(name, getattr(module, own[name]).detach())


def _numbers(name: str, weights: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Weights as ordinary tensors; a subclass of tensor (torchao) as the ordinary tensors that it consists of."""
    if type(weights) is not Tensor and hasattr(weights, "__tensor_flatten__"):
        for inner in weights.__tensor_flatten__()[0]:
            yield from _numbers(f"{name}.{inner}", getattr(weights, inner).detach())
    else:
        yield name, weights.as_subclass(Tensor)


def own_copy(module: nn.Module) -> nn.Module:
    """A copy with all of its weights present and without accelerate's hooks: nothing moves them any more."""
    parts = list(module.modules())
    hooked = [part.__dict__ for part in parts if HOOK in part.__dict__]
    # Hooks lead to the weights of the whole model, and their `forward` to the call that it replaced: neither is to be
    # copied.
    memo: dict[int, Any] = {id(held[name]): None for held in hooked for name in (HOOK, "forward") if name in held}
    with at_hand(module):
        # Tensors that a module computes from its weights (pruned ones) torch does not copy.
        held = [value for part in parts for value in vars(part).values() if isinstance(value, Tensor)]
        memo |= {id(one): one.detach().clone() for one in held if not one.is_leaf}
        twin = copy.deepcopy(module, memo)
    for part in twin.modules():
        if HOOK in part.__dict__:
            del part.__dict__[HOOK]
            part.__dict__["forward"] = part.__dict__.pop("_old_forward")
    return twin


def is_packed(module: nn.Module) -> bool:
    """Does it hold quantised weights: numbers of eight bits or fewer, or a subclass of tensor (torchao)?"""
    own = chain(module._parameters.values(), module._buffers.values())  # of a module without parts, without a walk
    tensors = chain(module.parameters(), module.buffers()) if module._modules else own
    return any(t is not None and (t.dtype in PACKED or type(t) not in (nn.Parameter, Tensor)) for t in tensors)


def holds_eight_bits(module: nn.Module) -> bool:
    """Does it hold weights of eight bits? Such modules may round what they read to eight bits, too (LLM.int8())."""
    return any(t.dtype == torch.int8 for t in chain(module.parameters(), module.buffers()))


def packed_kinds(model: nn.Module) -> list[str]:
    """The classes of the modules that hold quantised weights, by name."""
    kinds = set()
    for part in model.modules():
        if not part._modules and is_packed(part):
            subclasses = [type(one).__name__ for one in part._parameters.values() if type(one) not in ORDINARY]
            plain = type(part) is nn.Linear and subclasses  # with the class of its packed weights
            kinds.add(f"Linear of {subclasses[0]}" if plain else type(part).__name__)
    return sorted(kinds)


def refuse_packed(model: nn.Module, method: str, why: str, instead: str) -> None:
    """Refuse a quantised model for a method that needs what quantised modules cannot give."""
    if kinds := packed_kinds(model):
        raise ModelError(f"{method} {why}, and {', '.join(kinds)} (quantised) cannot be asked so. {instead}")


def linearity_hint(modules: Iterable[nn.Module]) -> str:
    """The sentence for a proof that failed where modules are quantised; empty where none is."""
    kinds = sorted({kind for module in modules for kind in packed_kinds(module)})
    if not kinds:
        return ""
    return (
        f" Its weights are quantised ({', '.join(kinds)}): modules that round what they read, too (LLM.int8(), fp8), "
        f"or that "
        "compute in a lower precision than the model's, are not linear to this precision. Use quantization='4bit', or "
        "a dtype "
        "that rounds as much."
    )


def settle(model: nn.Module) -> None:
    """After a pass that was broken off: weights that a hook had brought in, and could not take away, go back."""
    for module in filter(is_away, model.modules()):
        held = module._parameters.values()
        if any(weights is not None and weights.device.type != "meta" for weights in held):
            module.__dict__[HOOK].post_forward(module, None)
