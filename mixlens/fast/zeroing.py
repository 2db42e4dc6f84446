"""Value Zeroing, sooner: the feed-forward without each source, from what changes.

Without source j the stream at i is u_i - z_ij. One norm stands between the stream and the feed-forward's first product,
so that product is linear in z_ij but for one scalar, the new standard deviation. It is put together from one product
per source and head instead of one per pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.budget import settings, tile_elements, tiles
from ..base.rounding import TOLERANCE, gap
from ..layer.block import Block as PlainBlock
from ..layer.block import Measure, View
from ..layer.norms import Chain, FrozenNorm
from ..layer.weights import is_hooked, is_known, is_plain, linear_bias, linear_weight
from . import loops
from .norms import known_norm
from .parts import Parts

if TYPE_CHECKING:
    from .block import Block

# From so many tokens on scores are so small that one half-precision product of the changes is nearer to float64 than
# float32
# of whole vectors is; with fewer, three products are as exact as float32 and cost little.
WHOLE_FROM = 256


@dataclass(frozen=True)
class FirstProduct:
    """W g(u) + b for u = stream - z, with g a norm: (W gamma C u_i - W gamma C z) / s(u) + W beta + b, for up and
    gate."""

    norm: FrozenNorm
    unscaled: FrozenNorm  # the norm without gamma
    on_stream: bool  # the norm stands on the stream itself, not before the feed-forward alone
    matrices: tuple[Tensor, ...]  # [d m]: gamma C W
    bases: tuple[Tensor, ...]  # [... pos m]: of the stream as it was
    constants: tuple[Tensor, ...]  # [m]
    of_heads: tuple[Tensor, ...]  # [... head key m]: W gamma C f^h_j

    @cached_property
    def sources(self) -> tuple[Tensor, ...]:
        """[... key head + 1 m]: those of each source, and the constant as one more head."""
        sources = []
        for heads, constant in zip(self.of_heads, self.constants, strict=True):
            one = constant.expand(*heads.shape[:-3], 1, *heads.shape[-2:])
            sources.append(torch.cat([heads, one], -3).transpose(-3, -2).contiguous())
        return tuple(sources)

    def at(self, rows: slice) -> FirstProduct:
        """The same for these targets alone."""
        product = replace(self, bases=tuple(base[..., rows, :] for base in self.bases))
        product.__dict__["sources"] = self.sources
        return product


def first_product(block: Block) -> FirstProduct | None:
    """The feed-forward's first product as a linear map of what attention wrote; None where more than a norm is in
    between."""
    part = block.wide_modules
    places = [place for place in ("norm_after_attention", "norm_before_mlp") if getattr(part, place) is not None]
    if len(places) != 1 or part.parallel or part.norm_on_attention is not None:
        return None
    module, gate = getattr(part, places[0]), None if part.mlp_gate is part.mlp_up else part.mlp_gate
    modules = [part.mlp_up] if gate is None else [part.mlp_up, gate]
    if any(is_hooked(one) or not is_known(one) for one in (module, *modules)):
        return None  # what a hook or a user's own code does now and then is not in the weights
    dtype = block.dtype if part is not block.modules else block.layer.input.dtype
    norm, stream = known_norm(block.store, module, block.x, dtype, block.used), block.stream

    def kept(key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        return block.store.recall([module], key, make, width=stream.shape[-1], dtype=dtype, used=block.used)

    # On a GPU, which is not to be waited for, an earlier answer counts.
    acts: Callable[[], bool] = partial(acts_as, block, module, norm)
    if not (kept(("is norm",), acts) if block.x.is_cuda else acts()):
        return None
    # Kept, so that it is one object as long as the module is the same.
    unscaled = kept(("norm", "without gamma", block.dtype, block.x.device), lambda: norm.without_gamma)
    matrices, constants = [], []
    for one in modules:
        weight = block.linear_weight(one, stream.shape[-1], stream)
        scaled = norm.gamma[:, None] * weight
        matrices.append(scaled - scaled.mean(0) if norm.centred else scaled)
        constants.append(norm.beta @ weight + linear_bias(one, stream.shape[-1], stream))
    of_heads = tuple(block.values @ (block.projection @ matrix) for matrix in matrices)
    bases = tuple(stream @ matrix for matrix in matrices)
    on_stream = places[0] == "norm_after_attention"
    return FirstProduct(norm, unscaled, on_stream, tuple(matrices), bases, tuple(constants), of_heads)


def acts_as(block: Block, module: nn.Module, norm: FrozenNorm) -> bool:
    """Does the module act as this norm on the stream, and on the stream with its features in another order?

    A tanh, a clamp, an L1 norm or a norm in groups does not. The layer is then run again as it is (`after_attention`).
    """
    stream = torch.cat([block.stream, block.stream.roll(1, -1)], -2)
    rounding = block.rounds_inside(module, stream)
    return gap(norm(stream), module(stream)) <= (TOLERANCE[torch.float32] if rounding else TOLERANCE[block.dtype])


def without(block: Block, sources: slice, tile: Tensor, *, few: bool = False) -> Tensor:
    """The layer's output [... tile pos d] had attention not taken the parts of these sources [... tile pos d].

    The first product has to be put together first, which is not worth it for a `few` pairs.
    """
    product, part = None if few else block.first_product, block.wide_modules
    if product is None:
        return block.after_attention(block.attention_output.unsqueeze(-3) - tile)
    u = block.stream.unsqueeze(-3) - tile
    normed, reciprocal = product.norm.with_reciprocal(u)
    # What the activation reads, of up and of the gate: (base - weights @ vectors) / scale + constant, in two passes.
    # The constant
    # is one more head whose weight is one.
    weights = torch.cat([block.by_source[..., sources, :, :] * -reciprocal, torch.ones_like(reciprocal)], -1)
    reads = []
    for number, (vectors, base) in enumerate(zip(product.sources, product.bases, strict=True)):
        room = block.room(f"read{number}", (*weights.shape[:-1], base.shape[-1]))
        read = torch.matmul(weights, vectors[..., sources, :, :], out=room)
        reads.append(read.addcmul_(base.unsqueeze(-3), reciprocal))
    written = part.mlp_down(part.mlp_hidden(reads[0], reads[1] if len(reads) > 1 else None))
    if part.norm_on_mlp is not None:
        written = part.norm_on_mlp(written)
    output = written.add_(normed if product.on_stream else u)
    return output if part.norm_after_mlp is None else part.norm_after_mlp(output)


def moved_without_each(
    block: Block, measure: Measure, view: View, still: Tensor, *, few: bool = False, cosine: bool = False
) -> Tensor:
    """`layer.Block.moved_without_each`. `few`: of one target. `cosine`: the measure is the cosine distance of whole
    vectors."""
    if not block.is_stock:
        return PlainBlock.moved_without_each(block, measure, view, still)
    distances = cosine_from_changes(block) if cosine and not few else None
    return distances_by_tiles(block, measure, view, still, few=few) if distances is None else distances


def distances_by_tiles(block: Block, measure: Measure, view: View, still: Tensor, *, few: bool) -> Tensor:
    """Distances [... query key] between the layer's output and its output without each source, a tile of sources at a
    time."""
    distances = torch.zeros_like(block.attention[..., 0, :, :])
    for sources in tiles(distances.shape[-1], block.x.numel(), block.x.device, times=8):
        rows = readers(block, sources)
        if rows.start == rows.stop:
            continue  # nobody reads these sources: no distance changes, and no module is called on no position
        part = block if rows == slice(0, distances.shape[-2]) else block.at(rows)
        tile = part.by_source[..., sources, :, :] @ block.head_vectors[..., sources, :, :]
        moved = view(without(part, sources, tile, few=few))
        distances[..., rows, sources] = measure(moved, still[..., rows, :]).transpose(-1, -2)
    return distances


def readers(block: Block, sources: slice) -> slice:
    """The targets, first to last, that take anything from these sources: a causal model's later ones."""
    taken = (block.attention[..., sources] != 0).flatten(0, -3).any(0).any(-1).nonzero()
    return slice(int(taken[0]), int(taken[-1]) + 1) if len(taken) else slice(0, 0)


def cosine_from_changes(block: Block) -> Tensor | None:
    """Cosine distances [query key] by the fused loop, where there is one for this device and this kind of layer.

    Only what changes is computed. With z_ij taken away, the variance before the feed-forward becomes
    s'^2 = s^2 + (a_ij^T G_j a_ij - 2 <C u_i, C z_ij>) / d, and what the feed-forward reads moves by
    (s / s' - 1) (h_i - const) - W gamma C z_ij / s'. The change of its activations goes through the second product, and
    the distance follows from the change of the output: no small difference of large numbers anywhere.
    """
    loop = loops.fused("turned", block.x)
    product = None if loop is None else block.first_product
    part = block.wide_modules
    # A block of one layer and one text, whose feed-forward ends in a plain product that is added as it is.
    if block.x.dim() != 2 or block.several or part.norm_on_mlp is not None or not is_plain(part.mlp_down):
        return None
    activation = None if loop is None or product is None else loop.activation_number(part.mlp_act)
    if loop is None or product is None or activation is None:
        return None
    halves = 2 if part.mlp_gate is part.mlp_up else 1  # one product makes both the gate and what it gates
    return loop.turned(
        attention=block.attention,
        activation=activation,
        down=linear_weight(part.mlp_down, product.constants[0].shape[-1] // halves, block.dtype),
        output=block.after_attention(block.attention_output),
        split=settings().wide or len(block.x) < WHOLE_FROM,
        elements=tile_elements(block.x.device),
        **_changes(block, product, halves),
        **_after(block),
    )


def _changes(block: Block, product: FirstProduct, halves: int) -> dict[str, Any]:
    """What the fused loop reads of the stream and of the first product: for each source, for the stream as it was, and
    as a constant; of up, then of the gate."""
    norm, projection = product.norm, block.projection
    u, s = block.stream, norm.scale(block.stream)  # [query d], [query 1]
    if norm.centred:
        u = u - u.mean(-1, keepdim=True)
    lengths = Parts(block, Chain((product.unscaled,), (), None, None), residual=False).lengths_of_parts()
    by_head = (u @ projection.flatten(0, 1).mT).unflatten(-1, projection.shape[:2]).transpose(0, 1)
    inner = by_head @ block.values.mT
    added = (lengths.pow(2) - 2 * (block.attention * inner).sum(0)) / u.shape[-1]  # s'^2 - s^2, [query key]
    new = (s.pow(2) + added).sqrt()
    reciprocal = 1 / new
    sources, constants = list(product.of_heads), list(product.constants)  # [head key m], [m]
    reads = [base / s + constant for base, constant in zip(product.bases, product.constants, strict=True)]
    if halves == 2:  # one product, gate half first
        sources, reads, constants = ([*reversed(t[0].chunk(2, -1))] for t in (sources, reads, constants))
    return {
        "vectors": block.by_head(block.chain("norm")) if product.on_stream else block.head_vectors.transpose(-3, -2),
        "sources": sources,
        "reads": reads,
        "constants": constants,
        "ratio": -added / (new * (s + new)),
        "reciprocal": reciprocal,
        "size": torch.exp2(torch.log2((lengths * reciprocal).clamp(2.0**-40, 2.0**40)).round()),  # a power of two
        "centred_middle": block.middle - norm.beta if product.on_stream else None,
    }


def _after(block: Block) -> dict[str, Any]:
    """What the fused loop reads of the norm behind the feed-forward."""
    behind = block.norms.get("norm_after_mlp")
    if behind is None:
        return {**dict.fromkeys(("centred_after", "after_scale", "gamma", "beta")), "centred": False}
    read = block.stream_after_mlp
    return {
        "centred_after": read - read.mean(-1, keepdim=True) if behind.centred else read,
        "after_scale": behind.scale(read),
        "gamma": behind.gamma,
        "beta": behind.beta,
        "centred": behind.centred,
    }
