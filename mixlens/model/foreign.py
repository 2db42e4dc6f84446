"""Errors of a user's own code in a model. A hook, a patched `forward` or a module may fail where mixlens runs it. The refusal
names its function and its line."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from ..base.errors import MixlensError, ModelError
from .wrappers import refuse_meta_default

if TYPE_CHECKING:
    from .model import Model

KNOWN = (
    "torch",
    "transformers",
    "mixlens",
    "accelerate",
    "peft",
    "bitsandbytes",
)  # packages whose errors are not a user's
OURS = Path(__file__).parents[1]
LIBRARY = Path(sysconfig.get_path("stdlib"))


@contextmanager
def named_errors() -> Iterator[None]:
    """Refuse in one line what a user's code in the model raises. Errors of memory, and of other code, stay as they are."""
    try:
        yield
    except (MixlensError, MemoryError):
        raise
    except Exception as error:
        if "OutOfMemory" in type(error).__name__:
            raise
        if place := user_code(error):
            raise ModelError(
                f"a hook or module that is not the stock model's failed ({place}): {type(error).__name__}: {_first_line(error)} "
                "mixlens also runs modules on other texts, on single positions and in float32. Let it take these, or remove it."
            ) from error
        raise


def refuse_changed(model: Model) -> None:
    """Refuse what was changed after a model was loaded, and leaves no numbers or no names."""
    refuse_meta_default()
    refuse_meta(model)
    _refuse_nameless(model)


def _refuse_nameless(model: Model) -> None:
    if model.task.endswith("classification") and not getattr(model.hf_model.config, "id2label", None):
        raise ModelError(
            f"the configuration of {model.name!r} names no classes (id2label). Set them: "
            'model.hf_model.config.id2label = {0: "...", 1: "..."}.'
        )


def refuse_meta(model: Model) -> None:
    """Refuse a model whose weights were moved to the meta device. Those of an offloaded model may all be there."""
    if not all(weights.is_meta for weights in model.hf_model.parameters()):
        return
    if not any(
        hasattr(module, "_hf_hook") for module in model.hf_model.modules()
    ):  # accelerate's, which brings the numbers
        raise ModelError(
            f"the weights of {model.name!r} are on the meta device, which holds no numbers: they were moved there after loading. "
            "Load the model again."
        )


def user_code(error: BaseException) -> str | None:
    """The function and the line, within a call of a torch module, that is last in the traceback and belongs neither to a known
    package nor to the standard library. None where there is no such line."""
    steps = traceback.extract_tb(error.__traceback__)
    within = next(
        (place for place, step in enumerate(steps) if step.filename == nn.modules.module.__file__), len(steps)
    )
    foreign = [step for step in steps[within:] if _is_foreign(step.filename)]
    return f"{foreign[-1].name}, {Path(foreign[-1].filename).name}:{foreign[-1].lineno}" if foreign else None


def is_of_user(error: BaseException) -> bool:
    """Was an error raised below a user's own code, and not by a stock model that this code called?"""
    files = [step.filename for step in traceback.extract_tb(error.__traceback__)]
    whose = [_is_foreign(file) for file in files if _is_foreign(file) or _package_of(file) == "transformers"]
    return user_code(error) is not None and whose[-1]


def _is_foreign(filename: str) -> bool:
    place = Path(filename)
    if filename.startswith("<frozen") or OURS in place.parents:
        return False
    package = _package_of(filename)
    return LIBRARY not in place.parents if package is None else package not in KNOWN


def _package_of(filename: str) -> str | None:
    """The installed package that a file belongs to."""
    parts = Path(filename).parts
    packages = [part for above, part in pairwise(parts) if above in ("site-packages", "dist-packages")]
    return packages[-1] if packages else None


def _first_line(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0][:200]
    return line if line.endswith(".") else f"{line}."
