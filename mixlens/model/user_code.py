"""Does somebody's own code act in a model: a hook, a patched `forward`, a module or an attention function of the user's?

Stock code does the same to every row of a batch. A user's own may not, and may act on gradients alone or now and then. Where it
acts, texts and changed copies of a text are run one at a time (`Model.batch_limit`), so that every number is that of its text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from .offload import HOOK
from .own_attention import foreign_functions, is_foreign
from .own_code import code_print
from .packages import package, packages_of
from .passes import modules_of

if TYPE_CHECKING:
    from .model import Model

KNOWN_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "torchao", "optimum", "hqq")
HOOKING_PACKAGES = (*KNOWN_PACKAGES, "accelerate", "mixlens")  # their hooks record, place or prepare
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_known(module: nn.Module) -> bool:
    """Is the module's code that of a package whose norms and linear maps are what they say? A user's own may do anything."""
    return package(type(module).__module__) in KNOWN_PACKAGES and not _is_patched(module)


def acts_in(model: Model) -> bool:
    """Whether code that is not of a known package acts in a pass of the model, or in the gradients of one."""
    return not is_stock(model.hf_model) or is_foreign(model)


def own_code(model: Model) -> list[str]:
    """The names of a user's own hooks, `forward`s and attention functions, each with its place and a print of its code."""
    placed = [f"{path}: {name}" for path, module in model.hf_model.named_modules() for name in _own_names(module)]
    return [*_told("a hook on every module", _hooks_of_all()), *placed, *_told("attention", foreign_functions(model))]


def _own_names(module: nn.Module) -> list[str]:
    """Those of the hooks on a module, and of its `forward`."""
    return [*_told("forward", [_forward_of(module)], type(module)), *_told("hook", _hooks_on(module))]


def _told(kind: str, functions: Iterable[Any], owner: type | None = None) -> list[str]:
    """The names of the functions that are not of known packages, and a print of what each does."""
    own = [function for function in functions if not _is_hooking_package(function)]
    return [f"{kind}: {_name(function)} (code {code_print(function, owner)})" for function in own]


def _forward_of(module: nn.Module) -> Any:
    """What a call of a module runs; a patch of accelerate runs the class's own."""
    return module.__dict__["forward"] if _is_patched(module) else type(module).forward


def _is_patched(module: nn.Module) -> bool:
    return "forward" in module.__dict__ and HOOK not in module.__dict__


def _name(function: Any) -> str:
    """Of a function, or of the class of an object that is called like one."""
    named = function.func if isinstance(function, partial) else function
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def is_stock(module: nn.Module) -> bool:
    """Is the code of a module and all its parts, and that of hooks on them, of known packages?"""
    return all(map(_is_hooking_package, _hooks_of_all())) and all(map(_is_stock, modules_of(module)))


def _is_stock(module: nn.Module) -> bool:
    """A class whose `forward` was replaced has a function of others."""
    return is_known(module) and all(map(_is_hooking_package, (type(module).forward, *_hooks_on(module))))


def _hooks_on(module: nn.Module) -> list[Any]:
    return [hook for name in HOOKS for hook in module.__dict__[name].values()]


def _hooks_of_all() -> list[Any]:
    """Hooks on every module of torch."""
    return [hook for name in HOOKS for hook in getattr(nn.modules.module, f"_global{name}", {}).values()]


def _is_hooking_package(function: Any) -> bool:
    """Is the function written in one of these packages?"""
    return packages_of(function) <= set(HOOKING_PACKAGES)
