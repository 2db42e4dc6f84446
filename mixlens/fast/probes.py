"""Whether what is kept of a module's weights may be used: are its changes counted, and does it answer its probe as it
did?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..base.rounding import SAME_ANSWER, working_dtype
from ..model.kept import Used, answer_of
from . import loops


def changes_of(used: Used, like: Tensor) -> list[Tensor]:
    """How far answers of modules to their probes are from those of then, over what the order of sums may do.

    One number for all answers of one kind, which a GPU compares at once. On a CPU answers that are the same to the last
    bit are left out.
    """
    kinds: dict[object, list[tuple[Tensor, Tensor]]] = {}
    for module, memory in used.items():
        now, then = answer_of(module, memory.probe), memory.answer
        if now.device.type != "cpu" or not torch.equal(now, then):
            kinds.setdefault((then.shape, then.dtype, then.device), []).append((now, then))
    changes = []
    for pairs in kinds.values():
        now, then = (torch.cat(answers) if len(answers) > 1 else answers[0] for answers in zip(*pairs, strict=True))
        dtype = working_dtype(then.dtype)
        change = loops.apart(now.to(dtype), None, then.to(dtype)) / SAME_ANSWER[then.dtype]
        changes.append(change.to(like))
    return changes
