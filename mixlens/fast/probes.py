"""Whether what is kept of a module's weights may be used: are its changes counted, and does it answer its probe as it did?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..layer.weights import is_plain
from ..model.kept import Memory, answer_of, module_state
from ..model.offload import is_away
from ..rounding import SAME_ANSWER, working_dtype
from . import loops


def is_countable(module: nn.Module) -> bool:
    """Is this a plain module, here, whose changes torch counts? Only of such ones is anything kept."""
    return is_plain(module) and not is_away(module) and module_state(module) is not None


def change_of(module: nn.Module, memory: Memory, like: Tensor) -> Tensor | None:
    """How far a module's answer to its probe is from its answer of then, over what the order of sums may do; None: not at all."""
    now, then = answer_of(module, memory.probe), memory.answer
    if now.device.type == "cpu" and torch.equal(now, then):
        return None
    dtype = working_dtype(then.dtype)
    return loops.apart(now.to(dtype), None, then.to(dtype)).to(like) / SAME_ANSWER[then.dtype]
