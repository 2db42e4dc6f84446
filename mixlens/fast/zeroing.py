"""Value Zeroing, sooner: the feed-forward without each source, from what changes.

Without source j the stream at i is u_i - z_ij. One norm stands between the stream and the feed-forward's first product, so that
product is linear in z_ij but for one scalar, the new standard deviation. It is put together from one product per source and head
instead of one per pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    from ..model.parts import LayerParts
    from .block import Block

# From so many tokens on scores are so small that one half-precision product of the changes is nearer to float64 than float32
# of whole vectors is; with fewer, three products are as exact as float32 and cost little.
WHOLE_FROM = 256


@dataclass(frozen=True)
class FirstProduct:
    """W g(u) + b for u = stream - z, with g a norm: (W gamma C u_i - W gamma C z) / s(u) + W beta + b, for up and gate."""

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
    """The feed-forward's first product as a linear map of what attention wrote; None where more than a norm is in between."""
    part = block.wide_modules
    place = _place_of_norm(part)
    if place is None:
        return None
    module, modules = getattr(part, place), _first_modules(part)
    if any(is_hooked(one) or not is_known(one) for one in (module, *modules)):
        return None  # what a hook or a user's own code does now and then is not in the weights
    dtype = block.dtype if part is not block.modules else block.layer.input.dtype
    norm = known_norm(block.store, module, block.x, dtype, block.used)
    if not _sure(block, module, norm, dtype):
        return None
    return _product(
        (norm, _unscaled(block, module, norm, dtype)), modules, block, on_stream=place == "norm_after_attention"
    )


def _place_of_norm(part: LayerParts) -> str | None:
    """The place of the one norm between attention and the feed-forward; None where there is more in between, or less."""
    places = [place for place in ("norm_after_attention", "norm_before_mlp") if getattr(part, place) is not None]
    alone = len(places) == 1 and not part.parallel and part.norm_on_attention is None
    return places[0] if alone else None


def _first_modules(part: LayerParts) -> list[nn.Module]:
    """The modules of the feed-forward's first product: up, and the gate where it is a module of its own."""
    gate = None if part.mlp_gate is part.mlp_up else part.mlp_gate
    return [part.mlp_up] if gate is None else [part.mlp_up, gate]


def _unscaled(block: Block, module: nn.Module, norm: FrozenNorm, dtype: torch.dtype) -> FrozenNorm:
    """The norm without gamma; kept, so that it is one object as long as the module is the same."""
    key = ("norm", "without gamma", block.dtype, block.x.device)
    make: Callable[[], FrozenNorm] = lambda: norm.without_gamma  # noqa: E731
    return block.store.recall([module], key, make, width=block.x.shape[-1], dtype=dtype, used=block.used)


def _sure(block: Block, module: nn.Module, norm: FrozenNorm, dtype: torch.dtype) -> bool:
    """`acts_as`; on a GPU, which is not to be waited for, an earlier answer counts."""
    if not block.x.is_cuda:
        return acts_as(block, module, norm)
    width = block.x.shape[-1]
    return block.store.recall(
        [module], ("is norm",), lambda: acts_as(block, module, norm), width=width, dtype=dtype, used=block.used
    )


def acts_as(block: Block, module: nn.Module, norm: FrozenNorm) -> bool:
    """Does the module act as this norm on the stream, and on the stream with its features in another order?

    A tanh, a clamp, an L1 norm or a norm in groups does not. The layer is then run again as it is (`after_attention`).
    """
    stream = torch.cat([block.stream, block.stream.roll(1, -1)], -2)
    rounding = block.rounds_inside(module, stream)
    return gap(norm(stream), module(stream)) <= (TOLERANCE[torch.float32] if rounding else TOLERANCE[block.dtype])


def _product(
    norms: tuple[FrozenNorm, FrozenNorm], modules: Sequence[nn.Module], block: Block, *, on_stream: bool
) -> FirstProduct:
    norm, stream, matrices, constants = norms[0], block.stream, [], []
    for module in modules:
        weight = block.linear_weight(module, stream.shape[-1], stream)
        scaled = norm.gamma[:, None] * weight
        matrices.append(scaled - scaled.mean(0) if norm.centred else scaled)
        constants.append(norm.beta @ weight + linear_bias(module, stream.shape[-1], stream))
    of_heads = tuple(block.values @ (block.projection @ matrix) for matrix in matrices)
    bases = tuple(stream @ matrix for matrix in matrices)
    return FirstProduct(*norms, on_stream, tuple(matrices), bases, tuple(constants), of_heads)


def without(block: Block, sources: slice, tile: Tensor, *, few: bool = False) -> Tensor:
    """The layer's output [... tile pos d] had attention not taken the parts of these sources [... tile pos d].

    The first product has to be put together first, which is not worth it for a `few` pairs.
    """
    product, part = None if few else block.first_product, block.wide_modules
    if product is None:
        return block.after_attention(block.attention_output.unsqueeze(-3) - tile)
    u = block.stream.unsqueeze(-3) - tile
    normed, reciprocal = product.norm.with_reciprocal(u)
    written = part.mlp_down(part.mlp_hidden(*_reads(block, product, sources, reciprocal)))
    if part.norm_on_mlp is not None:
        written = part.norm_on_mlp(written)
    output = written.add_(normed if product.on_stream else u)
    return output if part.norm_after_mlp is None else part.norm_after_mlp(output)


def _reads(block: Block, product: FirstProduct, sources: slice, reciprocal: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the feed-forward's activation reads without these sources, [... tile pos m]: of up, and of the gate or None.

    (base - weights @ vectors) / scale + constant, in two passes: the constant is one more head whose weight is one.
    """
    weights = block.by_source[..., sources, :, :] * -reciprocal
    weights = torch.cat([weights, torch.ones_like(reciprocal)], -1)
    reads = []
    for number, (vectors, base) in enumerate(zip(product.sources, product.bases, strict=True)):
        room = block.room(f"read{number}", (*weights.shape[:-1], base.shape[-1]))
        read = torch.matmul(weights, vectors[..., sources, :, :], out=room)
        reads.append(read.addcmul_(base.unsqueeze(-3), reciprocal))
    return reads[0], reads[1] if len(reads) > 1 else None


def moved_without_each(
    block: Block, measure: Measure, view: View, still: Tensor, *, few: bool = False, cosine: bool = False
) -> Tensor:
    """`layer.Block.moved_without_each`. `few`: of one target. `cosine`: the measure is the cosine distance of whole vectors."""
    if not block.is_stock:
        return PlainBlock.moved_without_each(block, measure, view, still)
    distances = cosine_from_changes(block) if cosine and not few else None
    return distances_by_tiles(block, measure, view, still, few=few) if distances is None else distances


def distances_by_tiles(block: Block, measure: Measure, view: View, still: Tensor, *, few: bool) -> Tensor:
    """Distances [... query key] between the layer's output and its output without each source, a tile of sources at a time."""
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
    (s / s' - 1) (h_i - const) - W gamma C z_ij / s'. The change of its activations goes through the second product, and the
    distance follows from the change of the output: no small difference of large numbers anywhere.
    """
    loop = loops.fused("turned", block.x)
    product = None if loop is None else block.first_product
    if loop is None or product is None or not _is_for_loop(block):
        return None
    part = block.wide_modules
    activation = loop.activation_number(part.mlp_act)
    if activation is None:
        return None
    return loop.turned(
        attention=block.attention,
        activation=activation,
        down=linear_weight(part.mlp_down, product.constants[0].shape[-1] // _halves(part), block.dtype),
        output=block.after_attention(block.attention_output),
        split=settings().wide or len(block.x) < WHOLE_FROM,
        elements=tile_elements(block.x.device),
        **_changes(block, product),
        **_after(block),
    )


def _is_for_loop(block: Block) -> bool:
    """Is this a block of one layer and one text, whose feed-forward ends in a plain product that is added as it is?"""
    part = block.wide_modules
    return block.x.dim() == 2 and not block.several and part.norm_on_mlp is None and is_plain(part.mlp_down)


def _halves(part: Any) -> int:
    """Two where one product makes both the gate and what it gates."""
    return 2 if part.mlp_gate is part.mlp_up else 1


def _changes(block: Block, product: FirstProduct) -> dict[str, Any]:
    """What the fused loop reads of the stream and of the first product."""
    norm = product.norm
    u, s = block.stream, norm.scale(block.stream)  # [query d], [query 1]
    if norm.centred:
        u = u - u.mean(-1, keepdim=True)
    lengths = Parts(block, Chain((product.unscaled,), (), None, None), residual=False).lengths_of_parts()
    inner = (u @ block.projection.flatten(0, 1).mT).unflatten(-1, block.projection.shape[:2]).transpose(
        0, 1
    ) @ block.values.mT
    added = (lengths.pow(2) - 2 * (block.attention * inner).sum(0)) / u.shape[-1]  # s'^2 - s^2, [query key]
    new = (s.pow(2) + added).sqrt()
    reciprocal = 1 / new
    return {
        "vectors": block.by_head(block.chain("norm")) if product.on_stream else block.head_vectors.transpose(-3, -2),
        **_of_first_product(product, s, halves=_halves(block.wide_modules)),
        "ratio": -added / (new * (s + new)),
        "reciprocal": reciprocal,
        "size": torch.exp2(torch.log2((lengths * reciprocal).clamp(2.0**-40, 2.0**40)).round()),  # a power of two
        "centred_middle": block.middle - norm.beta if product.on_stream else None,
    }


def _of_first_product(product: FirstProduct, s: Tensor, *, halves: int) -> dict[str, list[Tensor]]:
    """What the first product gives for each source, for the stream as it was, and as a constant: of up, then of the gate."""
    sources, constants = list(product.of_heads), list(product.constants)  # [head key m], [m]
    reads = [base / s + constant for base, constant in zip(product.bases, product.constants, strict=True)]
    if halves == 2:  # one product, gate half first
        sources, reads, constants = ([*reversed(t[0].chunk(2, -1))] for t in (sources, reads, constants))
    return {"sources": sources, "reads": reads, "constants": constants}


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
