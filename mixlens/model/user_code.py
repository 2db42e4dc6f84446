"""Whose code acts in a model: stock code of known packages, or a user's own hook, patched `forward`, module or
attention function?

Stock code does the same to every row of a batch. A user's own may not, and may act on gradients alone or now and then.
Where it acts, texts and changed copies of a text are run one at a time (`Model.batch_limit`), so that every number is
that of its text. It may also fail where mixlens runs it: the refusal names its function and its line.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..base.errors import MixlensError, ModelError
from .offload import HOOK
from .parts import modules_of
from .wrappers import refuse_meta_default

if TYPE_CHECKING:
    from .model import Model

KNOWN_PACKAGES = {"torch", "transformers", "peft", "bitsandbytes", "torchao", "optimum", "hqq"}
HOOKING_PACKAGES = {*KNOWN_PACKAGES, "accelerate", "mixlens"}  # their hooks record, place or prepare
TRUSTED = {"transformers", "torch"}  # packages whose attention functions do the same for every text
BLAMELESS = {"torch", "transformers", "mixlens", "accelerate", "peft", "bitsandbytes"}  # whose errors are not a user's
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OPERATIONS = (torch.nn.functional, torch, torch.Tensor)  # where code of models finds operations by name
OURS = Path(__file__).parents[1]
LIBRARY = Path(sysconfig.get_path("stdlib"))


def packages_of(function: Any) -> set[str]:
    """The packages that a function names as its own. `functools.wraps` copies the name of a module, not the globals."""
    while isinstance(function, partial):
        function = function.func
    called = function if hasattr(function, "__globals__") else type(function).__call__
    names = [getattr(function, "__module__", None), getattr(called, "__globals__", {}).get("__name__")]
    return {str(name).partition(".")[0] for name in names if name}


def is_known(module: nn.Module) -> bool:
    """Is the module's code that of a package whose norms and linear maps are what they say? A user's own may do
    anything: a
    `forward` of its own too. A patch of accelerate runs the class's own."""
    patched = "forward" in module.__dict__ and HOOK not in module.__dict__
    return type(module).__module__.partition(".")[0] in KNOWN_PACKAGES and not patched


def acts_in(model: Model) -> bool:
    """Whether code that is not of a known package acts in a pass of the model, or in the gradients of one."""
    return not is_stock(model.hf_model) or bool(foreign_functions(model))


def is_stock(module: nn.Module) -> bool:
    """Is the code of a module and all its parts, and that of hooks on them, of known packages? A class whose `forward`
    was replaced has a function of others. One loop that calls nothing of ours for a module: it is asked in every
    pass."""
    everywhere = [getattr(nn.modules.module, f"_global{name}", {}).values() for name in HOOKS]
    functions, kinds = list(chain.from_iterable(everywhere)), set()
    for part in modules_of(module):
        held = part.__dict__
        if "forward" in held and HOOK not in held:
            return False
        kinds.add(type(part))
        for name in HOOKS:
            if held[name]:
                functions += held[name].values()
    functions += [kind.forward for kind in kinds]
    known = {kind.__module__.partition(".")[0] for kind in kinds} <= KNOWN_PACKAGES
    return known and all(packages_of(function) <= HOOKING_PACKAGES for function in functions)


# --- attention functions ----------------------------------------------------------------------------------------------


def implementation(model: Model) -> tuple[list[tuple[str, Any, Any]], list[Any], list[object]]:
    """What computes attention in the stock model now: (name, attention function, mask function) of each implementation
    that its configurations name; the attention function in each file that its modules come from (None for a file
    without one), with the functions that all these call; and which of its modules, or whether its configurations, look
    back alone."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as MASKS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as ATTENTION

    causal: list[object] = []
    files: dict[str, None] = {}
    for parts in model.parts:
        for part in modules_of(parts.layer):
            files[type(part).__module__] = None
            if "is_causal" in part.__dict__:
                causal.append(part.__dict__["is_causal"])
    names: dict[str, None] = {}
    for config in model.configs:
        causal += [getattr(config, "is_decoder", None), getattr(config, "is_causal", None)]
        names[config._attn_implementation] = None
    registered = [(name, ATTENTION.get(name), MASKS.get(name)) for name in names]
    functions: list[Any] = [getattr(sys.modules.get(file), "eager_attention_forward", None) for file in files]
    seen = [*functions, *(attention for _, attention, _ in registered)]
    helpers = list(chain.from_iterable(map(called_by, seen)))
    written = [helper for helper in helpers if hasattr(helper, "__code__") and packages_of(helper) == {"transformers"}]
    inner = chain.from_iterable(map(called_by, written))
    return registered, [*functions, *helpers, *inner], causal


def called_by(function: Any) -> list[Any]:
    """The functions that a function calls: those of its own file, and torch's operations of the names that it uses."""
    found: list[Any] = []
    for name in function.__code__.co_names if hasattr(function, "__code__") else ():
        if isinstance(function.__globals__.get(name), FunctionType):
            found.append(function.__globals__[name])
        for place in OPERATIONS:
            if hasattr(place, name):
                found.append(getattr(place, name))
    return found


def foreign_functions(model: Model) -> list[Any]:
    """The functions of the stock model's attention and of its masks that are not transformers' own. What such a
    function does may depend on anything, so it is compared on every text. Asked anew where a function is another one
    than when last asked."""
    functions = implementation(model)
    if model.asked_attention is None or model.asked_attention[0] != functions:
        registered, written, _ = functions
        every = [*written, *chain.from_iterable(pair for _, *pair in registered)]
        foreign = [function for function in every if function is not None and not packages_of(function) <= TRUSTED]
        model.asked_attention = functions, foreign
    return model.asked_attention[1]


# --- its errors -------------------------------------------------------------------------------------------------------


@contextmanager
def named_errors() -> Iterator[None]:
    """Refuse in one line what a user's code in the model raises. Errors of memory, and of other code, stay as they
    are."""
    try:
        yield
    except (MixlensError, MemoryError):
        raise
    except Exception as error:
        place = None if "OutOfMemory" in type(error).__name__ else place_of_user_code(error)
        if place is None:
            raise
        line = str(error).strip().partition("\n")[0][:200]
        raise ModelError(
            f"a hook or module that is not the stock model's failed ({place}): {type(error).__name__}: "
            f"{line.removesuffix('.')}. mixlens also runs modules on other texts, on single positions and in float32. "
            f"Let it "
            "take these, or remove it."
        ) from error


def place_of_user_code(error: BaseException) -> str | None:
    """The function and the line, within a call of a torch module, that is last in the traceback and belongs neither to
    a known package nor to the standard library. None where there is no such line."""
    steps = traceback.extract_tb(error.__traceback__)
    calls = [place for place, step in enumerate(steps) if step.filename == nn.modules.module.__file__]
    within = steps[calls[0] :] if calls else []
    foreign = [step for step in within if _is_foreign(step.filename)]
    return f"{foreign[-1].name}, {Path(foreign[-1].filename).name}:{foreign[-1].lineno}" if foreign else None


def is_of_user(error: BaseException) -> bool:
    """Was an error raised below a user's own code, and not by a stock model that this code called?"""
    files = [step.filename for step in traceback.extract_tb(error.__traceback__)]
    whose = [_is_foreign(file) for file in files if _is_foreign(file) or _installed(file) == "transformers"]
    return place_of_user_code(error) is not None and whose[-1]


def _is_foreign(filename: str) -> bool:
    """Does a file belong neither to a known package nor to the standard library?"""
    place = Path(filename)
    if filename.startswith("<frozen") or OURS in place.parents:
        return False
    package = _installed(filename)
    return LIBRARY not in place.parents if package is None else package not in BLAMELESS


def _installed(filename: str) -> str | None:
    """The installed package that a file belongs to."""
    parts = Path(filename).parts
    packages = [part for above, part in pairwise(parts) if above in ("site-packages", "dist-packages")]
    return packages[-1] if packages else None


def refuse_changed(model: Model) -> None:
    """Refuse what was changed after a model was loaded, and leaves no numbers or no names."""
    refuse_meta_default()
    hooked = (hasattr(module, HOOK) for module in model.hf_model.modules())  # by accelerate, which brings the numbers
    if all(weights.is_meta for weights in model.hf_model.parameters()) and not any(hooked):
        raise ModelError(
            f"the weights of {model.name!r} are on the meta device, which holds no numbers: they were moved there "
            f"after loading. "
            "Load the model again."
        )
    if model.task.endswith("classification") and not getattr(model.hf_model.config, "id2label", None):
        raise ModelError(
            f"the configuration of {model.name!r} names no classes (id2label). Set them: "
            'model.hf_model.config.id2label = {0: "...", 1: "..."}.'
        )
