"""The same numbers, sooner. Nothing in this folder is needed for a right answer: `MIXLENS_FAST=off` runs everything without it.

`block_of` gives a layer's decomposition, `shared_blocks` those of an earlier call on the same trace; `linear_tangents` is for
passes that carry directions; `trained_at_once` says how many small maps are trained as one. Beside this file others import
`together` (which layers and traces are scored as one), `side_by_side` (which trains those maps), `loops` (`used`, `running`) and
`cuda_graphs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..types import LayerTrace
from .switch import is_off

if TYPE_CHECKING:
    import torch

    from ..layer import Block
    from ..types import Trace
    from .block import Scratch
    from .shared import SharedBlocks

__all__ = ["block_of", "is_off", "linear_tangents", "shared_blocks", "trained_at_once"]


def block_of(layers: LayerTrace | Sequence[LayerTrace], index: int = 0, *, scratch: Scratch | None = None) -> Block:
    """One layer of a trace, decomposed; or several at once. `scratch`: memory that the blocks of one call share."""
    if is_off() and isinstance(layers, LayerTrace):
        from ..layer.block import Block

        return Block(layers, index)
    from .block import Block as FastBlock

    return FastBlock(layers, index, scratch=scratch)


def shared_blocks(trace: Trace) -> SharedBlocks | None:
    """The blocks that calls on this trace share; None where nothing is shared."""
    if is_off():
        return None
    from .shared import shared_blocks as shared

    return shared(trace)


def linear_tangents() -> AbstractContextManager[object]:
    """For a forward pass with directions (`torch.autograd.forward_ad`): linear maps without products by zero."""
    if is_off():
        return nullcontext()
    from .tangents import LinearTangents

    return LinearTangents()


def trained_at_once(device: torch.device, size: int) -> int:
    """How many small maps, of `size` bytes each, are trained as one: on a GPU, which one of them does not keep busy, as many as
    half of its free memory holds."""
    if device.type == "cpu" or is_off():
        return 1
    import torch

    free: int = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 32
    return max(1, free // 2 // max(1, size))
