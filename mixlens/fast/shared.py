"""Blocks that calls on the same trace share: what one call decomposed, the next one reads.

Every call still proves what it hands out: the identities are compared again, and a probe goes through every module that a
shared value was made of. A model keeps the blocks of its last traces, within a budget of bytes; a trace that goes takes its
blocks along.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..model.kept import Kept, module_state
from ..model.offload import is_away
from ..types import LayersOf, LayerTrace, Trace
from .block import Block, Scratch

AT_ONCE = 64_000_000  # bytes: so small blocks are kept from the first call on. Fresh memory for larger ones costs time
BUDGET = 400_000_000  # bytes that the shared blocks of one model may take: larger ones are not kept
# What is large, or made of weights in another number type: the weights themselves, the temporaries of Value Zeroing.
DROPPED = ("projection", "head_vectors", "by_source", "first_product", "wide_modules", "values_by_source", "rounding")


class SharedBlocks:
    """The blocks of one trace, by the number of their layer."""

    def __init__(self, size: int):
        self.size, self.calls = size, 0
        self.busy = False  # a call reads these blocks: another thread's call decomposes by itself
        self.blocks: dict[int, Block] = {}
        self.versions: dict[int, list[tuple[Tensor, int]]] = {}  # of attention and values, when they were computed

    def block(self, layer: LayerTrace, index: int, scratch: Scratch) -> Block:
        """A layer's block of an earlier call, with nothing compared yet; else a new one, which is kept if it is worth it."""
        self._forget_changed(index)
        block = self.blocks.get(index)
        if block is None:
            keeps = (self.size <= AT_ONCE or self.calls > 1) and _is_countable(layer)
            block = Block(layer, index, scratch=scratch, keeps_attention=keeps)
            if keeps:
                self.keep(block)
        else:
            block.scratch, block.compared = scratch, {}
        return block

    def keep(self, block: Block) -> None:
        """Keep a block for the next call: watch the modules that it is made of, and note whether its attention is changed. What
        lies in the memory of the trace is copied: a user may write there, and torch does not count all that is written."""
        for module in _modules(block.layer):
            block.watch(module)
        seen = block.attention, block.values
        vars(block).update(attention=_apart(seen[0], block.layer.weights), values=_apart(seen[1], block.layer.value))
        self.blocks[block.index] = block
        self.versions[block.index] = [(one, one._version) for one in (*seen, block.attention, block.values)]

    def end_call(self) -> None:
        """Let go of what the next call does not need; it may begin."""
        for index, block in list(self.blocks.items()):
            self._forget_changed(index)
            for name in DROPPED:
                block.__dict__.pop(name, None)
            block.scratch = {}
        self.busy = False

    def _forget_changed(self, index: int) -> None:
        """Let go of a block that a method wrote into; or a user, who holds the trace that it is made of."""
        if any(one._version != version for one, version in self.versions.get(index, ())):
            del self.blocks[index], self.versions[index]


def _apart(made: Tensor, traced: Tensor | None) -> Tensor:
    """The tensor in memory of its own."""
    shared = traced is not None and made.untyped_storage().data_ptr() == traced.untyped_storage().data_ptr()
    return made.clone() if shared else made


def _modules(layer: LayerTrace) -> list[nn.Module]:
    """The modules that shared values are made of."""
    parts = layer.parts
    places = (
        parts.output,
        parts.norm_on_attention,
        parts.norm_after_attention,
        parts.norm_on_mlp,
        parts.norm_after_mlp,
    )
    return [module for module in places if module is not None]


def _is_countable(layer: LayerTrace) -> bool:
    """Are the weights here, and does torch count their changes? Of others nothing is kept."""
    return not is_away(layer.parts.output) and all(module_state(module) is not None for module in _modules(layer))


def shared_blocks(trace: Trace) -> SharedBlocks | None:
    """The blocks of this trace that calls share; None where they would not fit the budget, or another call reads them."""
    layers, kept = trace.layers, trace.model.kept
    size = len(layers) * _bytes(layers[0])
    if size > BUDGET or not isinstance(layers, LayersOf):
        return None
    with kept.lock:
        store = _store(kept)
        blocks = _blocks_of(layers, store, size)
        _shrink(store)
        if blocks.busy:
            return None
        blocks.busy, blocks.calls = True, blocks.calls + 1
    return blocks


def _blocks_of(layers: LayersOf, store: Store, size: int) -> SharedBlocks:
    """The blocks of these layers, new ones where there are none. The last ones used go last in the store."""
    reference, blocks = store.pop(id(layers), (None, None))
    if reference is None or blocks is None or reference() is not layers:
        reference, blocks = weakref.ref(layers, partial(_drop, store, id(layers))), SharedBlocks(size)
    store[id(layers)] = reference, blocks
    return blocks


def _shrink(store: Store) -> None:
    """Drop the blocks of the traces that were used longest ago, until the rest is within the budget."""
    while sum(blocks.size for _, blocks in list(store.values())) > BUDGET:  # a trace that goes changes the store
        store.pop(next(iter(store), -1), None)


def _drop(store: dict[int, Any], key: int, _: object) -> None:
    store.pop(key, None)


def _store(kept: Kept) -> Store:
    """By the id of a trace's layers: a weak reference to them, and their blocks."""
    if kept.blocks is None:
        kept.blocks = {}
    return kept.blocks


Store = dict[int, tuple[Any, SharedBlocks]]


def _bytes(layer: LayerTrace) -> int:
    """About what the block of one layer holds: attention, three maps of lengths, and tensors of positions by features."""
    heads = (layer.query if layer.query is not None else layer.weights).shape[-3]  # type: ignore[union-attr]
    n, d = layer.input.shape[-2:]
    return ((heads + 3) * n * n + (12 if layer.input.element_size() < 4 else 6) * n * d) * max(
        4, layer.input.element_size()
    )
