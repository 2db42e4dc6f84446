"""The same block, sooner: each value is computed once, values made of weights are kept on the model, several layers are
one.

Three things differ from `layer.Block`, and no number does. A value is computed when it is first asked for, once. What
is made of weights alone (frozen norms, norms folded into W_O, its Gram matrices) is kept by the model from one call to
the next, and every call that uses it sends a probe through the module (`model/kept.py`). And a block may hold several
layers: then the first axis of everything is layers, which keeps a GPU busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .. import layer as plain_layer
from ..base.budget import tiles
from ..base.rounding import working_dtype
from ..layer.block import OF_TARGETS, PLACES, Measure, View
from ..layer.identities import Identity
from ..layer.norms import Chain, FrozenNorm
from ..layer.weights import asked_weight, input_dtype, is_plain, linear_bias, linear_weight
from ..model.attention import attention_of, attention_weights, repeat_heads
from ..model.kept import Used, module_state
from ..model.offload import is_away
from ..types import LayerTrace
from . import loops
from .norms import known_norm, name_of, stacked_norm
from .parts import Parts
from .probes import changes_of
from .zeroing import FirstProduct, first_product, moved_without_each

ASKED_KEPT = 1 << 28  # numbers of the answers that are kept: a gigabyte
METRIC_WIDTH = 2048  # beyond this a layer's metric is slow to make and large to keep
Scratch = dict[tuple[str, torch.dtype], Tensor]
_T = TypeVar("_T")
# What `Block.at` shares with the whole block: everything that is not of targets.
OF_SOURCES = {
    *("layers", "layer", "index", "several", "one_of_batch", "modules", "dtype", "scratch", "targets", "store", "used"),
    *(
        "keeps_attention",
        "values",
        "projection",
        "bias",
        "norms",
        "head_vectors",
        "wide_modules",
        "value_bias",
        "compared",
    ),
}


class Block(plain_layer.Block):
    """One layer of a trace, decomposed; or several at once, then the first axis of everything is layers."""

    def __init__(
        self,
        layer: LayerTrace | Sequence[LayerTrace],
        index: int = 0,
        *,
        scratch: Scratch | None = None,
        keeps_attention: bool = False,
    ):
        self.keeps_attention = keeps_attention  # in memory of its own, because a later call reads it
        self.scratch = {} if scratch is None else scratch  # memory that the blocks of one call share
        self.used: Used = {}  # modules of which something kept is used: their probes are compared
        self.compared: dict[str, Identity] = {}
        self.several = not isinstance(layer, LayerTrace)
        self.layers: tuple[LayerTrace, ...] = (layer,) if isinstance(layer, LayerTrace) else tuple(layer)
        self.layer, self.index, self.targets = self.layers[0], index, None
        # Layers of a batch of one example: their batch axis becomes the axis of layers, and nothing is cut out or put
        # together.
        self.one_of_batch = self.several and self.layer.input.shape[:-2] == (1,)
        self.modules, self.store = self.layer.parts, self.layer.parts.kept
        self.dtype = working_dtype(self.layer.input.dtype)
        self.x, self.attention_output, self.output = (
            self.seen(name) for name in ("input", "attention_output", "output")
        )

    # --- what the trace holds

    def seen(self, name: str) -> Tensor:
        """What the trace holds under this name, in the working number type."""
        return self.together([getattr(layer, name) for layer in self.layers]).to(self.dtype)

    def together(self, tensors: Sequence[Tensor]) -> Tensor:
        """One tensor of each layer as one: of a single layer as it is, else with the first axis of layers."""
        if not self.several:
            return tensors[0]
        return torch.cat(list(tensors)) if self.one_of_batch else torch.stack(list(tensors))

    def beside(self, each: Tensor, axes: int) -> Tensor:
        """[layer ...] of `axes` axes a layer, with axes of one, so that it broadcasts against [layer ... ]."""
        return each.view(len(self.layers), *[1] * self.leading, *each.shape[-axes:]) if self.several else each

    @property
    def leading(self) -> int:
        """Axes in front of positions, layers not counted."""
        return 0 if self.one_of_batch else self.layer.input.dim() - 2

    @cached_property
    def attention(self) -> Tensor:
        """[... head query key]"""
        layer = self.layer
        if layer.weights is not None:
            return self.seen("weights")
        if self.several and len(set(map(_setting, self.layers))) > 1:  # windows in some layers, none in others
            return self.together(list(map(attention_of, self.layers)))
        query, key = self.seen("query"), self.seen("key")
        shape, rooms = (*query.shape[:-1], key.shape[-2]), None
        if not torch.is_grad_enabled():  # memory for the logits and for the weights
            own = self.x.new_empty(*shape) if self.keeps_attention else self.room("attention", shape)
            rooms = self.room("logits", shape), own
        return attention_weights(query, key, layer.mask, scaling=layer.scaling, softcap=layer.softcap, rooms=rooms)

    @cached_property
    def values(self) -> Tensor:
        """[... head key e]"""
        heads = (self.layer.query if self.layer.query is not None else self.attention).shape[-3]
        return repeat_heads(self.seen("value"), heads)

    @cached_property
    def mlp_output(self) -> Tensor:
        """What the feed-forward wrote, [... pos d]."""
        return self.seen("mlp_output")

    value_bias = cached_property(plain_layer.Block.value_bias.fget)  # type: ignore[attr-defined]
    reach = cached_property(plain_layer.Block.reach.fget)  # type: ignore[attr-defined]
    wide_modules = cached_property(plain_layer.Block.wide_modules.fget)  # type: ignore[attr-defined]
    own_part = cached_property(plain_layer.Block.own_part.fget)  # type: ignore[attr-defined]
    rebuilt = cached_property(plain_layer.Block.rebuilt.fget)  # type: ignore[attr-defined]
    rounding = cached_property(plain_layer.Block.rounding.fget)  # type: ignore[attr-defined]

    # --- what is made of weights

    def linear_weight(self, module: nn.Module, width: int, like: Tensor) -> Tensor:
        """`layer.linear_weight`; the answers of a module that is asked are kept where they are few enough."""
        if is_plain(module) or is_away(module) or self.store.numbers("asked") + width * width > ASKED_KEPT:
            return linear_weight(module, width, self.dtype, like)
        dtype = input_dtype(module, like)
        make: Callable[[], Tensor] = lambda: asked_weight(module, width, like)  # noqa: E731
        kept = self.store.recall([module], ("asked", dtype, width), make, width=width, dtype=dtype, used=self.used)
        return kept.to(self.dtype)

    @cached_property
    def projection(self) -> Tensor:
        """W_O by head, [head e d]"""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        modules, like = [layer.parts.output for layer in self.layers], self.layer.input
        if not self.several:
            return self.linear_weight(modules[0], heads * e, like).view(heads, e, -1)

        def make() -> Tensor:
            return torch.stack([self.linear_weight(one, heads * e, like).view(heads, e, -1) for one in modules])

        return self.beside(self.kept("projections", (), make) if self.countable else make(), 3)

    @cached_property
    def bias(self) -> Tensor:
        """b_O, [d]: belongs to no token."""
        each = [linear_bias(layer.parts.output, self.head_width, layer.input)[None] for layer in self.layers]
        return self.beside(torch.stack(each), 2).to(self.dtype) if self.several else each[0][0].to(self.dtype)

    @cached_property
    def norms(self) -> dict[str, FrozenNorm]:
        """The norms that parts pass, frozen."""
        norms, dtype = {}, self.layer.input.dtype
        for place in filter(self.has, PLACES):
            modules = [getattr(layer.parts, place) for layer in self.layers]
            each = [known_norm(self.store, module, self.x, dtype, self.used) for module in modules]
            norms[place] = stacked_norm(self.store, modules, each, dtype, self.used) if self.several else each[0]
        return norms

    def folded(self, chain: Chain) -> Tensor:
        """W_O by head with a chain's norms put in, [... head e d]: the same for every input, so it is kept."""
        name = name_of(chain)
        if not name:
            return self.projection
        if not self.countable:
            return chain.part(self.projection)
        return self.beside(self.kept("folded", name, lambda: (chain, chain.part(self.projection)))[1], 3)

    def metric(self, chain: Chain) -> Tensor | None:
        """W_h W_g^T of the folded weights, [head head e e]; kept. None where making it costs more than it saves."""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        if not self.countable or heads * e > METRIC_WIDTH:
            return None

        def make() -> tuple[Chain, Tensor]:  # the chain is kept too, so that its name stays its own
            weights = chain.part(self.projection).flatten(-3, -2)  # [... head e, d]
            square = (weights @ weights.mT).unflatten(-1, (heads, e)).unflatten(-3, (heads, e))
            return chain, square.transpose(-3, -2).contiguous()

        return self.beside(self.kept("metric", name_of(chain), make)[1], 4)

    @cached_property
    def countable(self) -> bool:
        """Are the output projections plain modules, here, whose changes torch counts? Only of such ones is anything
        kept."""
        modules = [layer.parts.output for layer in self.layers]
        return all(is_plain(one) and not is_away(one) and module_state(one) is not None for one in modules)

    def kept(self, kind: str, name: tuple[int, ...], make: Callable[[], _T]) -> _T:
        """What is made of the output projections and a chain with this name, once as long as they stay what they
        are."""
        modules = [layer.parts.output for layer in self.layers]
        key = (kind, self.several, self.dtype, name)
        return self.store.recall(
            modules, key, make, width=self.head_width, dtype=self.layer.input.dtype, used=self.used
        )

    # --- parts

    def parts(self, stage: str) -> Parts:
        return Parts(self, self.chain(stage), residual=stage != "attention")

    def by_head(self, chain: Chain, examples: slice | None = None) -> Tensor:
        """f^h_j after a chain's norms (without their scales), [... head key d]; to be used up at once, see `product`.

        The norms are put into the weights: they are linear there, and a weight is smaller than all tokens' vectors.
        """
        values, weights = self.values, self.folded(chain)
        if examples is not None:
            values, weights = values[examples], weights[examples] if self.several else weights
        return self.product(values, weights)

    @cached_property
    def head_vectors(self) -> Tensor:
        """f^h_j = W_O^h v^h_j, [... key head d]"""
        one_batch = self.values.dim() == 4 and not self.several
        each = by_heads(self.values, self.projection) if one_batch else self.values @ self.projection
        return each.transpose(-3, -2)

    @cached_property
    def by_source(self) -> Tensor:
        """Attention as [... key query head]: for one source, each target's weights on it, head by head."""
        return loops.plain.by_source(self.attention)

    @cached_property
    def all_parts(self) -> Tensor:
        """sum_j z_ij, [... query d], rebuilt from attention and values (not read off the trace)."""
        return self.projected(self.attention @ self.values)

    def gram(self, chain: Chain) -> Tensor:
        """<P f^h_j, P f^g_j>, [... key head head], from the values alone or a few sources at a time: nobody holds all
        vectors."""
        metric = self.metric(chain) if loops.fused("inner", self.values) is not None else None
        if metric is not None:
            return loops.inner(self.values_by_source, metric)
        folded, each = self.folded(chain), self.values[..., 0, 0].numel()
        grams = [
            loops.gram(self.product(self.values[..., sources, :], folded))
            for sources in tiles(self.values.shape[-2], each * folded.shape[-1], self.x.device, times=8)
        ]
        return torch.cat(grams, -3) if len(grams) > 1 else grams[0]

    @cached_property
    def values_by_source(self) -> Tensor:
        """[... head key e], in the memory order in which the fused loops read them: on a CPU source by source."""
        if self.x.device.type != "cpu":
            return self.values.contiguous()
        return self.values.transpose(-3, -2).contiguous().transpose(-3, -2)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b in memory that the next product takes again: to be used up before."""
        if self.x.device.type != "cpu":
            return a @ b
        shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        room = self.room("product", shape)
        return by_heads(a, b, room) if (a.dim(), b.dim()) == (4, 3) else torch.matmul(a, b, out=room)

    def room(self, name: str, shape: Sequence[int]) -> Tensor:
        """Memory for a temporary, the same for every block of one call: on a CPU fresh memory costs more than the work
        in it."""
        size, key = math.prod(shape), (name, self.dtype)
        if self.x.device.type != "cpu":
            return self.x.new_empty(*shape)
        if key not in self.scratch or self.scratch[key].numel() < size:
            self.scratch[key] = self.x.new_empty(size)
        return self.scratch[key][:size].view(*shape)

    # --- the stream

    @cached_property
    def stream(self) -> Tensor:
        """u = x + attention's branch, [... pos d]: what the norm after attention reads."""
        return self.x + self.called("norm_on_attention", self.attention_output)

    @cached_property
    def middle(self) -> Tensor:
        """The attention block's true output, [... pos d]."""
        return self.stream if self.layer.middle is None else self.seen("middle")

    @cached_property
    def stream_after_mlp(self) -> Tensor:
        """What the norm after the feed-forward reads, [... pos d]."""
        return self.middle + self.called("norm_on_mlp", self.mlp_output)

    def called(self, place: str, u: Tensor) -> Tensor:
        if not self.several or not self.has(place):
            return super().called(place, u)
        each = zip(self.layers, u.to(self.layer.input.dtype), strict=True)
        return torch.stack([getattr(layer.parts, place)(one) for layer, one in each]).to(self.dtype)

    @cached_property
    def normed(self) -> dict[str, tuple[Tensor, Tensor]]:
        """What each frozen norm makes of what it reads, [... pos d], and the reciprocal of its scale, [... pos 1]."""
        return {place: norm.with_reciprocal(self.read(place)) for place, norm in self.norms.items()}

    def chain(self, stage: str) -> Chain:
        chains: dict[str, Chain] = vars(self).setdefault("chains", {})
        if stage not in chains:
            chains[stage] = super().chain(stage)
        return chains[stage]

    @cached_property
    def part_lengths(self) -> dict[tuple[int, ...], tuple[Chain, Tensor]]:
        """Lengths of all parts without the residual, by the name of their chain (see `Parts.lengths`)."""
        return {}

    # --- identities

    def apart(self, rebuilt: Tensor, added: Tensor | None, seen: Tensor) -> Tensor:
        return loops.apart(rebuilt, added, seen, len(self.layers) if self.several else None)

    @property
    def identities(self) -> dict[str, Identity]:
        """Those of the plain block, and whether what is kept of weights is still what they are."""
        rebuilt = super().identities
        if "weights" not in self.compared and self.used:
            # A probe goes through every module that something kept was made of, and answers as it did then.
            changes, nothing = changes_of(self.used, self.x), self.x.new_zeros(())
            value = torch.stack([nothing, *changes]).amax() if changes else nothing
            self.compared["weights"] = (value.expand(len(self.layers)) if self.several else value, 1.0)
        return rebuilt | self.compared

    def compare(self, identity: str, rebuilt: Tensor, seen: Tensor, *, allowed: float | None = None) -> None:
        dtype = working_dtype(seen.dtype)
        value = self.whole_gap(rebuilt.to(dtype), None, seen.to(dtype))
        self.compared[identity] = (value, self.tolerance(identity) if allowed is None else allowed)

    def watch(self, module: nn.Module) -> None:
        """Compare this module's answer to its probe at the end of every call, whether something kept is made of it or
        not."""
        width = self.head_width if module is self.modules.output else self.x.shape[-1]
        self.store.recall(
            [module], ("watched",), lambda: None, width=width, dtype=self.layer.input.dtype, used=self.used
        )

    # --- Value Zeroing

    @cached_property
    def first_product(self) -> FirstProduct | None:
        """The feed-forward's first product as a linear map of what attention wrote, where one norm alone is in
        between."""
        return first_product(self)

    def moved_without_each(self, measure: Measure, view: View, still: Tensor, **options: Any) -> Tensor:
        return moved_without_each(self, measure, view, still, **options)

    def at(self, rows: slice) -> Block:
        """The same layer with these targets alone; every source stays."""
        block = Block.__new__(Block)
        block.__dict__ |= {key: value for key, value in self.__dict__.items() if key in OF_SOURCES}
        for name in ("x", "stream", "attention", *OF_TARGETS[1:]):  # the second axis from the right is targets
            block.__dict__[name] = getattr(self, name)[..., rows, :]
        # What is computed once, for these targets alone, where it was computed for all.
        if "by_source" in self.__dict__:
            block.__dict__["by_source"] = self.by_source[..., rows, :]
        if "first_product" in self.__dict__:
            block.__dict__["first_product"] = None if self.first_product is None else self.first_product.at(rows)
        return block


def by_heads(values: Tensor, weights: Tensor, room: Tensor | None = None) -> Tensor:
    """values [batch head key e] @ weights [head e d], one product a head: `matmul` would copy the weights for each
    example."""
    batch, heads, keys, e = values.shape
    flat = values.transpose(0, 1).reshape(heads, batch * keys, e)
    product = torch.matmul(flat, weights, out=None if room is None else room.view(heads, batch * keys, -1))
    return product.view(heads, batch, keys, -1).transpose(0, 1)


def _setting(layer: LayerTrace) -> tuple[object, ...]:
    """Layers with one setting can have their attention computed as one."""
    return layer.scaling, layer.softcap, None if layer.mask is None else (layer.mask.data_ptr(), layer.mask.shape)
