"""Blocks that calls on the same trace share: what one call decomposed, the next one reads.

Every call still proves what it hands out: the identities are compared again, and a probe goes through every module that a
shared value was made of. A model keeps the blocks of its last traces, within a budget of bytes; a trace that goes takes its
blocks along.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from torch import nn

from ..model.kept import Kept
from ..types import LayersOf, LayerTrace, Trace
from .block import Block, Scratch

AT_ONCE = 64_000_000  # bytes: so small blocks are kept from the first call on. Fresh memory for larger ones costs time
BUDGET = 400_000_000  # bytes that the shared blocks of one model may take: larger ones are not kept
# What a later call does not read, or what is large: the temporaries of Value Zeroing.
DROPPED = ("head_vectors", "by_source", "first_product", "wide_modules", "values_by_source", "rounding")


class SharedBlocks:
    """The blocks of one trace, by the number of their layer."""

    def __init__(self, size: int):
        self.size, self.calls = size, 0
        self.busy = False  # a call reads these blocks: another thread's call decomposes by itself
        self.blocks: dict[int, Block] = {}

    def block(self, layer: LayerTrace, index: int, scratch: Scratch) -> Block:
        """A layer's block of an earlier call, with nothing compared yet; else a new one, which is kept if it is worth it."""
        block = self.blocks.get(index)
        if block is None:
            keeps = self.size <= AT_ONCE or self.calls > 1
            block = Block(layer, index, scratch=scratch, keeps_attention=keeps)
            for module in _modules(layer) if keeps else ():
                block.watch(module)
            if keeps:
                self.blocks[index] = block
        else:
            block.scratch, block.compared = scratch, {}
        return block

    def end_call(self) -> None:
        """Let go of what the next call does not need; it may begin."""
        for block in self.blocks.values():
            for name in DROPPED:
                block.__dict__.pop(name, None)
            block.scratch = {}
        self.busy = False


def _modules(layer: LayerTrace) -> list[nn.Module]:
    """The modules that shared values are made of."""
    parts = layer.parts
    places = (parts.output, parts.norm_on_attention, parts.norm_after_attention, parts.norm_on_mlp, parts.norm_after_mlp)
    return [module for module in places if module is not None]


def shared_blocks(trace: Trace) -> SharedBlocks | None:
    """The blocks of this trace that calls share; None where they would not fit the budget."""
    layers, kept = trace.layers, trace.model.kept
    size = len(layers) * _bytes(layers[0])
    if size > BUDGET or not isinstance(layers, LayersOf):
        return None
    with kept.lock:
        store = _store(kept)
        entry = store.get(id(layers))
        if entry is None or entry[0]() is not layers:
            entry = store[id(layers)] = (weakref.ref(layers, partial(_drop, store, id(layers))), SharedBlocks(size))
        store[id(layers)] = store.pop(id(layers))  # the last one used goes last
        while sum(blocks.size for _, blocks in store.values()) > BUDGET:
            store.pop(next(iter(store)))
        blocks = entry[1]
        if blocks.busy:
            return None
        blocks.busy, blocks.calls = True, blocks.calls + 1
    return blocks


def _drop(store: dict[int, Any], key: int, _: object) -> None:
    store.pop(key, None)


def _store(kept: Kept) -> dict[int, tuple[Any, SharedBlocks]]:
    """By the id of a trace's layers: a weak reference to them, and their blocks."""
    if kept.blocks is None:
        kept.blocks = {}
    return kept.blocks


def _bytes(layer: LayerTrace) -> int:
    """What the block of one layer holds, at most: attention, three maps of lengths, and six tensors of positions by features."""
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    n, d = layer.input.shape[-2:]
    return ((heads + 3) * n * n + 6 * n * d) * max(4, layer.input.element_size())
