"""Attention and the residual stream as one exact vector per source token, without holding them all.

Notation (one layer): attention a^h_ij, value v^h_j, f^h_j = W_O^h v^h_j (value bias inside, b_O outside),
z_ij = sum_h a^h_ij f^h_j. No tensor of size n x n x d is ever held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from ..budget import settings, tiles
from ..errors import ModelError
from ..fast import loops as kernels
from ..fast.kept import Used, answer_of, forget, module_state, numbers_kept, recall
from ..model.attention import attention_of, attention_weights, repeat_heads, values_in
from ..model.offload import HOOK, at_hand, holds_eight_bits, is_away, is_packed, linearity_hint, own_copy, place_of
from ..model.passes import WATCHING
from ..rounding import (
    EIGHT_BITS,
    EPS,
    HALF,
    LAYER_ROUNDINGS,
    LAYER_TOLERANCE,
    ROUNDINGS,
    SAME_ANSWER,
    TOLERANCE,
    finite,
    gap,
    working_dtype,
)
from ..types import LayerTrace

if TYPE_CHECKING:
    from ..model.parts import LayerParts

ASKED_ROWS = 1 << 26  # numbers in one question to a module that is asked for its weights
ASKED_KEPT = 1 << 28  # numbers of the answers that are kept: a gigabyte
KNOWN_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "torchao", "optimum", "hqq")
METRIC_WIDTH = 2048  # beyond this a layer's metric is slow to make and large to keep


def by_heads(values: Tensor, weights: Tensor, room: Tensor | None = None) -> Tensor:
    """values [batch head key e] @ weights [head e d], one product a head: `matmul` would copy the weights for each example."""
    batch, heads, keys, e = values.shape
    flat = values.transpose(0, 1).reshape(heads, batch * keys, e)
    made = torch.matmul(flat, weights, out=None if room is None else room.view(heads, batch * keys, -1))
    return made.view(heads, batch, keys, -1).transpose(0, 1)


def is_hooked(module: nn.Module) -> bool:
    """Does somebody else's hook act on this module?"""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not getattr(hook, WATCHING, False) for hook in hooks)


def is_known(module: nn.Module) -> bool:
    """Is the module's code that of a package whose norms and linear maps are what they say? A user's own may do anything."""
    patched = "forward" in module.__dict__ and HOOK not in module.__dict__
    return type(module).__module__.split(".")[0] in KNOWN_PACKAGES and not patched


def is_plain(module: nn.Module) -> bool:
    """A linear module that nobody changed: its weights may be read, once they are `at_hand`."""
    conv = type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils"
    if not (type(module) is nn.Linear or conv) or is_hooked(module):
        return False
    weight = module._parameters.get("weight")  # of a class of its own it would be quantised
    return type(weight) is nn.Parameter and weight.is_floating_point()


def linear_bias(module: nn.Module, width: int, like: Tensor) -> Tensor:
    """[out]: what a linear module makes of nothing."""
    if is_plain(module) and isinstance(module.bias, Tensor) and module.bias.device.type != "meta":
        return module.bias
    return module(torch.zeros(1, width, dtype=like.dtype, device=like.device))[0]


def linear_weight(
    module: nn.Module, width: int, dtype: torch.dtype, like: Tensor | None = None, used: Used | None = None
) -> Tensor:
    """[in, out] of any linear module. Plain ones are read; whatever else it is (LoRA, 4-bit), it is asked.

    `like`: a tensor of the kind it is used to. `used` gets the module if an answer of an earlier call is used.
    """
    if not is_plain(module):
        return asked_weight(module, width, like, used).to(dtype)
    with at_hand(module):
        weight = torch.as_tensor(module.weight)
        return (weight.t() if type(module) is nn.Linear else weight).to(dtype)


@torch.no_grad()
def asked_weight(module: nn.Module, width: int, like: Tensor | None = None, used: Used | None = None) -> Tensor:
    """[in, out], in at least float32: what a linear module makes of each unit vector, less what it makes of nothing.

    Its numbers may be packed in a way of their own, so they are not looked at. Answers are kept where they are few enough.
    """
    given = like.dtype if like is not None else next((t.dtype for t in module.parameters() if t.is_floating_point()), None)
    given = given or torch.float32

    def made() -> Tensor:
        length = 64.0  # beside it a bias is small, which half precision rounds with the rest
        device = place_of(module)
        found = []
        for rows in torch.arange(width, device=device).split(max(1, ASKED_ROWS // width)):
            probe = torch.zeros(len(rows) + 1, width, dtype=given, device=device)
            probe[torch.arange(len(rows), device=device), rows] = length
            answer = module(probe)
            answer = answer.to(working_dtype(answer.dtype))
            found.append((answer[:-1] - answer[-1]) / length)
        return torch.cat(found) if len(found) > 1 else found[0]

    if used is None or is_away(module) or numbers_kept("asked") + width * width > ASKED_KEPT:
        return made()
    return recall([module], ("asked", given, width), made, width=width, dtype=given, used=used)


def widened(module: nn.Module, like: Tensor) -> nn.Module:
    """The same module in float32: a copy, or of a quantised one the linear map that it stands for."""
    if not is_packed(module) or not hasattr(module, "in_features"):
        return own_copy(module).float()
    weight = asked_weight(module, int(module.in_features), like).float()  # type: ignore[arg-type]
    made = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    made.weight = nn.Parameter(weight.t(), requires_grad=False)
    made.bias = nn.Parameter(linear_bias(module, len(weight), like).float(), requires_grad=False)
    return made


@dataclass(frozen=True)
class FrozenNorm:
    """A normalisation with its statistics held still: g(z) = gamma * C z / s_i, a linear map over a target's scalar.

    C subtracts the mean (layer norm) or nothing (RMS norm). Nothing is read off the module: gamma, beta, C and eps
    are found by calling it on vectors whose answer tells them, so any norm of this form works, whatever its class.
    """

    gamma: Tensor  # [d], or [layer d] for the norms of several layers
    beta: Tensor  # belongs to no token
    centred: bool
    eps: float | Tensor

    @staticmethod
    @torch.no_grad()
    def of(module: nn.Module, width: int, dtype: torch.dtype) -> FrozenNorm:
        like = next(module.parameters(), None)
        given = like.dtype if like is not None else dtype
        if like is not None and like.dtype != torch.float64:
            try:  # asked in float64, where a large beta does not cost gamma its digits
                return FrozenNorm._asked(own_copy(module).double(), width, dtype, torch.float64)
            except RuntimeError:  # its code insists on a number type
                if like.dtype in HALF:
                    return FrozenNorm._asked(own_copy(module).float(), width, dtype, torch.float32)
        return FrozenNorm._asked(module, width, dtype, given)

    @staticmethod
    def _asked(module: nn.Module, width: int, dtype: torch.dtype, given: torch.dtype) -> FrozenNorm:
        device = place_of(module)
        signs = torch.ones(2, width, dtype=given, device=device)
        signs[:, 1::2] = -1
        if width % 2:  # mean zero needs an even number of entries: leave the last out, then the first
            signs[0, -1] = 0
            signs[1] = -signs[0].roll(1)
        size = float(signs[0].pow(2).mean().sqrt())
        large = 2.0**27  # a power of two, so that the answer is exact; eps is nothing beside its square
        small = 2.0 ** -torch.arange(0, 24, dtype=given, device=device)
        probes = torch.cat([torch.zeros_like(signs[:1]), signs * large, signs[:1] * large + large, signs[:1] * small[:, None]])
        answers = module(probes[None])[0]
        beta = answers[0]
        first, second, shifted = answers[1] - beta, answers[2] - beta, answers[3] - beta
        gamma = torch.where(signs[0] != 0, first * signs[0], second * signs[1]) * size
        at = gamma.abs().argmax().clamp(max=width - 1 - width % 2)
        ratios = ((answers[4:, at] - beta[at]) / first[at]).double()
        pick = int((ratios - 0.7).abs().argmin())
        eps = (float(small[pick]) * size) ** 2 * (1 / float(ratios[pick]) ** 2 - 1)
        centred = bool(torch.allclose(shifted, first, rtol=1e-3, atol=1e-6 * float(first.abs().max())))
        return FrozenNorm(gamma.to(dtype), beta.to(dtype), centred, max(eps, 0.0))

    @staticmethod
    def known(module: nn.Module, like: Tensor, given: torch.dtype, used: Used) -> FrozenNorm:
        """`of`, asked once as long as the module is the same. `given`: the number type that the module reads."""

        def made() -> FrozenNorm:
            norm = FrozenNorm.of(module, like.shape[-1], like.dtype)
            return FrozenNorm(norm.gamma.to(like.device), norm.beta.to(like.device), norm.centred, norm.eps)

        return recall([module], ("norm", like.dtype, like.device), made, width=like.shape[-1], dtype=given, used=used)

    @staticmethod
    def several(modules: Sequence[nn.Module], norms: Sequence[FrozenNorm], given: torch.dtype, used: Used) -> FrozenNorm:
        """The norms of several layers as one, [layer d]."""

        def made() -> tuple[Sequence[FrozenNorm], FrozenNorm]:  # the norms are kept too, so that an id means one norm
            return norms, FrozenNorm._stacked(norms)

        key = ("norms", tuple(id(norm) for norm in norms))
        return recall(modules, key, made, width=norms[0].gamma.shape[-1], dtype=given, used=used)[1]

    @staticmethod
    def _stacked(norms: Sequence[FrozenNorm]) -> FrozenNorm:
        gamma, beta = (torch.stack([getattr(norm, name) for norm in norms]) for name in ("gamma", "beta"))
        return FrozenNorm(gamma, beta, norms[0].centred, torch.tensor([norm.eps for norm in norms]).to(gamma, non_blocking=True))

    @cached_property
    def without_gamma(self) -> FrozenNorm:
        return replace(self, gamma=torch.ones_like(self.gamma))

    def numerator(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """gamma * C z, in `out` where it is given (which may be z itself)."""
        if self.centred:
            centred = torch.sub(z, z.mean(-1, keepdim=True), out=out)
            return centred.mul_(_beside(self.gamma, z)) if out is not None else centred * _beside(self.gamma, z)
        return torch.mul(z, _beside(self.gamma, z), out=out)

    def scale(self, u: Tensor, *, eps: bool = True, unbiased: bool = False) -> Tensor:
        """s_i, the target's scalar, [... pos 1]. Released code of ALTI leaves eps out, or divides by d - 1."""
        centred = u - u.mean(-1, keepdim=True) if self.centred else u
        squared = centred.norm(dim=-1, keepdim=True).pow(2) / (u.shape[-1] - int(unbiased))
        if not eps:
            return squared.sqrt()
        return (squared + (self.eps if isinstance(self.eps, float) else _beside(self.eps[:, None], u))).sqrt()

    def with_inverse(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """What the norm gives, and 1 / s_i [... pos 1]; in one pass where torch has one."""
        if isinstance(self.eps, Tensor):
            return kernels.normed(u, self.gamma, self.beta, self.eps, self.centred)
        if self.centred:
            normed, _, inverse = torch.native_layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
            return normed, inverse
        inverse = 1 / self.scale(u)
        return self.numerator(u) * inverse + _beside(self.beta, u), inverse

    def __call__(self, u: Tensor) -> Tensor:
        if isinstance(self.eps, float) and self.centred:
            return nn.functional.layer_norm(u, u.shape[-1:], self.gamma, self.beta, self.eps)
        return self.numerator(u) / self.scale(u) + _beside(self.beta, u)


def _beside(parameter: Tensor, z: Tensor) -> Tensor:
    """[d], or [layer d] with axes of one put in until it lies beside z [layer ... d]."""
    if parameter.dim() == 1:
        return parameter
    return parameter.view(parameter.shape[0], *[1] * (z.dim() - 2), parameter.shape[-1])


@dataclass(frozen=True, eq=False)
class Chain:
    """The frozen norms that attention's parts pass on the way to a stage of the layer.

    A part passes the branch's norms and the stream's; the residual only the stream's.
    """

    branch: tuple[FrozenNorm, ...]
    stream: tuple[FrozenNorm, ...]
    branch_inverse: Tensor | None  # what the norms divide by, turned over, [... query]; None: nothing
    stream_inverse: Tensor | None

    def part(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return _through((*self.branch, *self.stream), z, out)

    def residual(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        return _through(self.stream, x, out)

    def beside(self, z: Tensor) -> list[tuple[Tensor, bool]]:
        """All norms, the branch's first, as the loops take them: gamma to lie beside z, and whether the mean is taken away."""
        return [(_beside(norm.gamma, z), norm.centred) for norm in (*self.branch, *self.stream)]

    @property
    def part_inverse(self) -> Tensor | None:
        if self.branch_inverse is None or self.stream_inverse is None:
            return self.stream_inverse if self.branch_inverse is None else self.branch_inverse
        return self.branch_inverse * self.stream_inverse

    @property
    def name(self) -> tuple[int, ...]:
        """Chains with one name do the same to a part."""
        return tuple(id(norm) for norm in (*self.branch, *self.stream))


def _through(norms: Sequence[FrozenNorm], z: Tensor, out: Tensor | None) -> Tensor:
    """The numerators of all norms, one after the other. Into `out` where it is given: then it is never z itself."""
    for norm in norms:
        z = norm.numerator(z, out)
    return z if out is None or z is out else out.copy_(z)


@dataclass(frozen=True)
class FirstProduct:
    """W g(u) + b for u = stream - z, with g a norm: (W gamma C u_i - W gamma C z) / s(u) + W beta + b, for up and gate."""

    norm: FrozenNorm
    on_stream: bool  # the norm stands on the stream itself, not before the feed-forward alone
    matrices: tuple[Tensor, ...]  # [d m]: gamma C W
    bases: tuple[Tensor, ...]  # [... pos m]: of the stream as it was
    constants: tuple[Tensor, ...]  # [m]
    of_heads: tuple[Tensor, ...]  # [... head key m]: W gamma C f^h_j

    @cached_property
    def sources(self) -> tuple[Tensor, ...]:
        """[... key head + 1 m]: those of each source, and the constant as one more head."""
        found = []
        for heads, constant in zip(self.of_heads, self.constants, strict=True):
            one = constant.expand(*heads.shape[:-3], 1, *heads.shape[-2:])
            found.append(torch.cat([heads, one], -3).transpose(-3, -2).contiguous())
        return tuple(found)

    def at(self, rows: slice) -> FirstProduct:
        """The same for these targets alone."""
        some = replace(self, bases=tuple(base[..., rows, :] for base in self.bases))
        some.__dict__["sources"] = self.sources
        return some

    @staticmethod
    def of(norm: FrozenNorm, modules: list[nn.Module], block: Block, *, on_stream: bool) -> FirstProduct:
        stream = block.stream
        matrices, constants, of_heads = [], [], []
        for module in modules:
            weight = linear_weight(module, stream.shape[-1], stream.dtype, stream, block.used)
            scaled = norm.gamma[:, None] * weight
            matrices.append(scaled - scaled.mean(0) if norm.centred else scaled)
            constants.append(norm.beta @ weight + linear_bias(module, stream.shape[-1], stream))
            of_heads.append(block.values @ (block.projection @ matrices[-1]))
        bases = tuple(stream @ matrix for matrix in matrices)
        return FirstProduct(norm, on_stream, tuple(matrices), bases, tuple(constants), tuple(of_heads))


Scratch = dict[tuple[str, torch.dtype], Tensor]
_T = TypeVar("_T")


class Block:
    """One layer of a trace, decomposed; or several at once, then the first axis of everything is layers.

    Everything is computed once, when first asked for.
    """

    def __init__(self, layer: LayerTrace | Sequence[LayerTrace], index: int = 0, *, scratch: Scratch | None = None):
        self.scratch = {} if scratch is None else scratch  # memory that the blocks of one call share
        self.used: Used = {}  # modules of which something kept is used: their probes are compared
        self.compared: dict[str, tuple[Tensor, float]] = {}  # what a method compared by itself: gap, allowed
        self.layers = (layer,) if isinstance(layer, LayerTrace) else tuple(layer)
        self.layer, self.index = self.layers[0], index
        self.several = not isinstance(layer, LayerTrace)
        # Layers of a batch of one example: their batch axis becomes the axis of layers, and nothing is cut out or put together.
        self.one_of_batch = self.several and self.layer.input.dim() == 3 and self.layer.input.shape[0] == 1
        self.modules = self.layer.parts
        self.dtype = working_dtype(self.layer.input.dtype)
        self.x, self.attention_output, self.output = (self.seen(name) for name in ("input", "attention_output", "output"))

    def seen(self, name: str) -> Tensor:
        """What the trace holds under this name, in the working number type."""
        found = [getattr(layer, name) for layer in self.layers]
        if not self.several:
            return found[0].to(self.dtype)
        return (torch.cat(found) if self.one_of_batch else torch.stack(found)).to(self.dtype)

    def own(self, each: Sequence[Tensor], axes: int) -> Tensor:
        """A tensor of `axes` axes for each layer, to lie beside what has leading axes."""
        if not self.several:
            return each[0]
        return torch.stack(list(each)).view(len(each), *[1] * self.leading, *each[0].shape[-axes:])

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
        if self.several and len({_setting(one) for one in self.layers}) > 1:  # windows in some layers, none in others
            each = [attention_of(one) for one in self.layers]
            return torch.cat(each) if self.one_of_batch else torch.stack(each)
        query, key = self.seen("query"), self.seen("key")
        shape = (*query.shape[:-1], key.shape[-2])
        rooms = None if torch.is_grad_enabled() else (self.room("logits", shape), self.room("attention", shape))
        return attention_weights(query, key, layer.mask, scaling=layer.scaling, softcap=layer.softcap, rooms=rooms)

    @cached_property
    def values(self) -> Tensor:
        """[... head key e]"""
        heads = (self.layer.query if self.layer.query is not None else self.attention).shape[-3]
        return repeat_heads(self.seen("value"), heads)

    @cached_property
    def value_bias(self) -> Tensor:
        """b_V by head, [head 1 e]: the value of the zero vector."""
        nothing = torch.zeros(1, self.x.shape[-1], dtype=self.layer.input.dtype, device=self.x.device)
        like = self.layer.value.flatten(0, -4)[0] if self.layer.value.dim() > 3 else self.layer.value
        bias = values_in(self.modules, self.modules.value(nothing), like[:, :1])
        return repeat_heads(bias.to(self.dtype), self.attention.shape[-3])

    @cached_property
    def reach(self) -> Tensor:
        """[... query key]: where a position may look, by the model's mask (by its weights, where it hands out nothing else)."""
        layer = self.layer
        if layer.weights is not None:
            return (layer.weights > 0).any(-3)
        if layer.mask is None:
            n = self.x.shape[-2]
            return torch.ones(*self.x.shape[:-2], n, n, dtype=torch.bool, device=self.x.device)
        allowed = layer.mask if layer.mask.dtype == torch.bool else layer.mask > torch.finfo(layer.mask.dtype).min / 2
        return allowed.any(-3) if allowed.dim() == self.x.dim() + 1 else allowed

    @cached_property
    def projection(self) -> Tensor:
        """W_O by head, [head e d]"""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        modules, given = [layer.parts.output for layer in self.layers], self.layer.input

        def made() -> Tensor:
            each = [linear_weight(module, heads * e, self.dtype, given, self.used).view(heads, e, -1) for module in modules]
            return torch.stack(each) if self.several else each[0]

        if not self.several:
            return made()
        found = self._kept("projections", (), made) if self._countable else made()
        return found.view(len(modules), *[1] * self.leading, *found.shape[-3:])

    @cached_property
    def bias(self) -> Tensor:
        """b_O, [d]: belongs to no token."""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        each = [linear_bias(layer.parts.output, heads * e, layer.input)[None] for layer in self.layers]
        return self.own(each, 2).to(self.dtype) if self.several else each[0][0].to(self.dtype)

    def by_head(self, chain: Chain, examples: slice | None = None) -> Tensor:
        """f^h_j after a chain's norms (without their scales), [... head key d]; to be used up at once, see `product`.

        The norms are put into the weights: they are linear there, and a weight is smaller than all tokens' vectors.
        """
        values, weights = self.values, self.folded(chain)
        if examples is not None:
            values, weights = values[examples], weights[examples] if self.several else weights
        return self.product(values, weights)

    def nearer(self, chain: Chain, inverse: Tensor, y: Tensor, shift: float) -> Tensor:
        """`kernels.nearer` of all parts at the end of a chain, [... query key]; a few examples (or layers) at a time."""
        if y.dim() < 3 or torch.is_grad_enabled():
            return kernels.nearer(self.attention, self.by_head(chain), inverse, y, shift=shift)
        on_cpu = y.device.type == "cpu"
        each = self.values[0, ..., 0].numel() * y.shape[-1] * (1 if on_cpu else 4)  # a GPU is busy with a quarter of its tile
        found = []
        for some in tiles(len(y), each, y.device, times=8 if on_cpu else 1):
            vectors = self.by_head(chain, some)
            found.append(kernels.nearer(self.attention[some], vectors, inverse[some], y[some], shift=shift))
        return torch.cat(found) if len(found) > 1 else found[0]

    def folded(self, chain: Chain) -> Tensor:
        """W_O by head with a chain's norms put in, [... head e d]: the same for every input, so it is kept."""
        if not chain.name:
            return self.projection
        if not self._countable:
            return chain.part(self.projection, self.room("folded", self.projection.shape))
        found = self._kept("folded", chain.name, lambda: (chain, chain.part(self.projection)))[1]
        return found.view(len(self.layers), *[1] * self.leading, *found.shape[-3:]) if self.several else found

    def metric(self, chain: Chain) -> Tensor | None:
        """W_h W_g^T of the folded weights, [head head e e]; kept. None where making it costs more than it saves."""
        heads, e = self.values.shape[-3], self.values.shape[-1]
        if not self._countable or heads * e > METRIC_WIDTH:
            return None

        def made() -> tuple[Chain, Tensor]:  # the chain is kept too, so that its name stays its own
            weights = chain.part(self.projection).flatten(-3, -2)  # [... head e, d]
            square = (weights @ weights.mT).unflatten(-1, (heads, e)).unflatten(-3, (heads, e))
            return chain, square.transpose(-3, -2).contiguous()

        found = self._kept("metric", chain.name, made)[1]
        return found.view(len(self.layers), *[1] * self.leading, *found.shape[-4:]) if self.several else found

    @cached_property
    def _countable(self) -> bool:
        """Are the output projections plain modules, here, whose changes torch counts? Only of such ones is anything kept."""
        modules = [layer.parts.output for layer in self.layers]
        return all(is_plain(module) and not is_away(module) and module_state(module) is not None for module in modules)

    def _kept(self, kind: str, name: tuple[int, ...], made: Callable[[], _T]) -> _T:
        """What is made of the output projections and a chain with this name, made once as long as they stay what they are."""
        modules, width = [layer.parts.output for layer in self.layers], self.values.shape[-3] * self.values.shape[-1]
        key = (kind, self.several, self.dtype, name)
        return recall(modules, key, made, width=width, dtype=self.layer.input.dtype, used=self.used)

    @cached_property
    def head_vectors(self) -> Tensor:
        """f^h_j = W_O^h v^h_j, [... key head d]"""
        each = (
            by_heads(self.values, self.projection)
            if self.values.dim() == 4 and not self.several
            else self.values @ self.projection
        )
        return each.transpose(-3, -2)

    def part_lengths(self, chain: Chain) -> Tensor:
        """|P z_ij| for the chain's P, over its scales, [... query key]: from one small Gram matrix per source."""
        if chain.name not in self._part_lengths:
            self._part_lengths[chain.name] = kernels.lengths(self.attention, self.gram(chain), self.inverses(chain)[0])
        return self._part_lengths[chain.name]

    def ends(self, chain: Chain, *, residual: bool) -> tuple[Tensor, Tensor]:
        """At the end of a chain: |z_ii| (with the residual in it where it is wanted) and |sum_{j != i} z_ij|, [... pos]."""
        part, stream = self.inverses(chain)
        x = self.x if residual else None
        return kernels.ends(self.own_part, self.all_parts, x, chain.beside(self.x), len(chain.branch), part, stream)

    def inverses(self, chain: Chain) -> tuple[Tensor, Tensor]:
        """What a chain multiplies a part by, and the residual, [... pos]."""
        if chain not in self._inverses:
            part, stream = (self._ones if one is None else one for one in (chain.part_inverse, chain.stream_inverse))
            self._inverses[chain] = part, stream
        return self._inverses[chain]

    @cached_property
    def _ones(self) -> Tensor:
        return torch.ones_like(self.x[..., 0])

    @cached_property
    def _inverses(self) -> dict[Chain, tuple[Tensor, Tensor]]:
        return {}

    def gram(self, chain: Chain) -> Tensor:
        """<P f^h_j, P f^g_j>, [... key head head], from the values alone or a few sources at a time: nobody holds all vectors."""
        if kernels.fused("inner", self.values) is not None and (metric := self.metric(chain)) is not None:
            return kernels.inner(self._values_as_read, metric)
        folded, found = self.folded(chain), []
        each = self.values[..., 0, 0].numel() * folded.shape[-1]
        for sources in tiles(self.values.shape[-2], each, self.x.device, times=8):
            found.append(kernels.gram(self.product(self.values[..., sources, :], folded)))
        return torch.cat(found, -3) if len(found) > 1 else found[0]

    @cached_property
    def _values_as_read(self) -> Tensor:
        """[... head key e], as the fused loops read them: on a CPU source by source."""
        if self.x.device.type != "cpu":
            return self.values.contiguous()
        return self.values.transpose(-3, -2).contiguous().transpose(-3, -2)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b in memory that the next product takes again: to be used up before."""
        if self.x.device.type != "cpu":
            return (a.bfloat16() @ b.bfloat16()).to(self.dtype) if settings().precision == "bfloat16" else a @ b
        shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        if a.dim() == 4 and b.dim() == 3:
            return by_heads(a, b, self.room("product", shape))
        return torch.matmul(a, b, out=self.room("product", shape))

    def room(self, name: str, shape: Sequence[int]) -> Tensor:
        """Memory for a temporary, the same for every block of one call: on a CPU fresh memory costs more than the work in it."""
        size, key = math.prod(shape), (name, self.dtype)
        if self.x.device.type != "cpu":
            return self.x.new_empty(*shape)
        if key not in self.scratch or self.scratch[key].numel() < size:
            self.scratch[key] = self.x.new_empty(size)
        return self.scratch[key][:size].view(*shape)

    @cached_property
    def _part_lengths(self) -> dict[tuple[int, ...], Tensor]:
        return {}

    @cached_property
    def by_source(self) -> Tensor:
        """Attention as [... key query head]: for one source, each target's weights on it, head by head."""
        return kernels.plain.by_source(self.attention)

    @cached_property
    def own_part(self) -> Tensor:
        """z_ii, [... query d]"""
        own = self.attention.diagonal(dim1=-2, dim2=-1)  # [... head pos]
        return self.projected(own[..., None] * self.values)

    @cached_property
    def all_parts(self) -> Tensor:
        """sum_j z_ij, [... query d], rebuilt from attention and values (not read off the trace)."""
        return self.projected(self.attention @ self.values)

    def projected(self, context: Tensor) -> Tensor:
        """W_O on [... head pos e]: [... pos d]"""
        return context.transpose(-3, -2).flatten(-2) @ self.projection.flatten(-3, -2)

    @cached_property
    def norms(self) -> dict[str, FrozenNorm]:
        """The norms that parts pass, frozen."""
        found = {}
        for place in ("norm_on_attention", "norm_after_attention", "norm_after_mlp"):
            if getattr(self.modules, place) is not None:
                modules, given = [getattr(layer.parts, place) for layer in self.layers], self.layer.input.dtype
                each = [FrozenNorm.known(module, self.x, given, self.used) for module in modules]
                found[place] = FrozenNorm.several(modules, each, given, self.used) if self.several else each[0]
        return found

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

    def at(self, rows: slice) -> Block:
        """The same layer with these targets alone; every source stays."""
        some = Block.__new__(Block)
        some.__dict__ |= {key: value for key, value in self.__dict__.items() if key in _OF_SOURCES}
        for name in ("x", "attention_output", "output", "stream", "middle", "mlp_output"):
            some.__dict__[name] = getattr(self, name)[..., rows, :]
        for name in ("attention", "by_source"):  # the second axis from the right is targets, in both
            if name == "attention" or name in self.__dict__:
                some.__dict__[name] = getattr(self, name)[..., rows, :]
        if "first_product" in self.__dict__:
            product = self.first_product
            some.__dict__["first_product"] = None if product is None else product.at(rows)
        return some

    @cached_property
    def mlp_output(self) -> Tensor:
        """What the feed-forward wrote, [... pos d]."""
        return self.seen("mlp_output")

    @cached_property
    def wide_modules(self) -> LayerParts:
        """The layer's modules in at least float32: a half-precision layer run again would drown small changes."""
        if self.layer.input.dtype not in HALF:
            return self.modules
        copies = {f.name: getattr(self.modules, f.name) for f in fields(self.modules)}
        seen: dict[int, nn.Module] = {}
        for name, module in copies.items():
            if isinstance(module, nn.Module) and name != "layer":
                copies[name] = seen.setdefault(id(module), widened(module, self.layer.input))
        return replace(self.modules, **copies)

    def after_attention(self, a: Tensor) -> Tensor:
        """The layer's output if attention had written `a`: everything behind it, run again.

        `a` is [... pos d], or [... tile pos d] for several alternatives at once.
        """
        part = self.wide_modules
        tiled = a.dim() > self.x.dim()
        x = self.x.unsqueeze(-3) if tiled else self.x

        def norm(place: str, u: Tensor) -> Tensor:
            module = getattr(part, place)
            return u if module is None else module(u)

        middle = norm("norm_after_attention", x + norm("norm_on_attention", a))
        if part.parallel:
            written = self.mlp_output
            written = written.unsqueeze(-3) if tiled else written
        else:
            written = part.mlp(norm("norm_before_mlp", middle))
        return norm("norm_after_mlp", middle + norm("norm_on_mlp", written))

    @cached_property
    def first_product(self) -> FirstProduct | None:
        """The feed-forward's first product as a linear map of what attention wrote, where one norm alone is in between."""
        part = self.wide_modules
        places = [p for p in ("norm_after_attention", "norm_before_mlp") if getattr(part, p) is not None]
        if part.parallel or part.norm_on_attention is not None or len(places) != 1:
            return None
        module = getattr(part, places[0])
        given = self.dtype if part is not self.modules else self.layer.input.dtype
        norm = FrozenNorm.known(module, self.x, given, self.used)
        modules = [part.mlp_up] if part.mlp_gate in (None, part.mlp_up) else [part.mlp_up, part.mlp_gate]
        if any(is_hooked(one) or not is_known(one) for one in (module, *modules) if one is not None):
            return None  # what a hook or a user's own code does now and then is not in the weights
        if self.x.is_cuda:  # where it is not to be waited for, an earlier answer counts
            width = self.x.shape[-1]
            sure = recall([module], ("is norm",), lambda: self._is_norm(module, norm), width=width, dtype=given, used=self.used)
        else:
            sure = self._is_norm(module, norm)
        if not sure:
            return None
        return FirstProduct.of(norm, [m for m in modules if m is not None], self, on_stream=places[0] == "norm_after_attention")

    def _is_norm(self, module: nn.Module, norm: FrozenNorm) -> bool:
        """Does the module act as this norm on the stream, and on the stream with its features in another order?

        A tanh, a clamp, an L1 norm or a norm in groups does not. The layer is then run again as it is (`after_attention`). A GPU
        is waited for once: there the answer is kept with the norm; `compare_largest` proves each use.
        """
        stream = torch.cat([self.stream, self.stream.roll(1, -1)], -2)
        rounding = self._rounds_inside(module, stream)
        return gap(norm(stream), module(stream)) <= (TOLERANCE[torch.float32] if rounding else TOLERANCE[self.dtype])

    def _rounds_inside(self, module: nn.Module, u: Tensor) -> bool:
        """Does a module of a float64 model compute in float32? Then it does not notice a change of 1e-10 in every other feature.

        (A norm does not notice a change of all features by one factor, whatever it computes in.)
        """
        if self.layer.input.dtype != torch.float64:
            return False
        nudge = torch.ones(u.shape[-1], dtype=u.dtype, device=u.device)
        nudge[::2] += 1e-10
        return bool((module(u * nudge) == module(u)).double().mean() > 0.5)

    def without(self, sources: slice, tile: Tensor, *, few: bool = False) -> Tensor:
        """The layer's output [... tile pos d] had attention not taken the parts of these sources [... tile pos d].

        The first product of the feed-forward is linear but for one scalar, the new standard deviation, so it is put together
        from one product per source and head instead of one per pair. That has to be made first: not for a `few` pairs.
        """
        product, part = None if few else self.first_product, self.wide_modules
        if product is None:
            return self.after_attention(self.attention_output.unsqueeze(-3) - tile)
        u = self.stream.unsqueeze(-3) - tile
        normed, inverse = product.norm.with_inverse(u)
        # (base - weights @ vectors) / scale + constant, in two passes: the constant is one more head whose weight is one
        weights = self.by_source[..., sources, :, :] * -inverse
        weights = torch.cat([weights, torch.ones_like(inverse)], -1)
        read = []
        for number, (vectors, base) in enumerate(zip(product.sources, product.bases, strict=True)):
            shape = (*weights.shape[:-1], base.shape[-1])
            made = torch.matmul(weights, vectors[..., sources, :, :], out=self.room(f"read{number}", shape))
            read.append(made.addcmul_(base.unsqueeze(-3), inverse))
        written = part.mlp_down(part.mlp_hidden(read[0], read[1] if len(read) > 1 else None))
        if part.norm_on_mlp is not None:
            written = part.norm_on_mlp(written)
        moved = written.add_(normed if product.on_stream else u)
        return moved if part.norm_after_mlp is None else part.norm_after_mlp(moved)

    def called(self, place: str, u: Tensor) -> Tensor:
        """The model's own norm at this place, or nothing where there is none."""
        if getattr(self.modules, place) is None:
            return u
        given = u.to(self.layer.input.dtype)
        if not self.several:
            return getattr(self.modules, place)(given).to(self.dtype)
        return torch.stack([getattr(layer.parts, place)(one) for layer, one in zip(self.layers, given, strict=True)]).to(
            self.dtype
        )

    def chain(self, stage: str) -> Chain:
        """To the stage "attention" (nothing), "residual" (added to the stream), "norm" (normed), "layer" (normed again).

        A place without a norm leaves the vectors as they are: a pre-norm model has none on the stream.
        """
        if stage in self._chains:
            return self._chains[stage]
        depth = ("attention", "residual", "norm", "layer").index(stage)
        branch = ["norm_on_attention"] if depth >= 1 else []
        stream = ["norm_after_attention", "norm_after_mlp"][: max(0, depth - 1)]
        norms: list[tuple[FrozenNorm, ...]] = []
        inverses: list[Tensor | None] = []
        for places in (branch, stream):
            there = [place for place in places if place in self.norms]
            norms.append(tuple(self.norms[place] for place in there))
            each = [self.normed[place][1][..., 0] for place in there]
            inverses.append(reduce(torch.mul, each) if each else None)
        self._chains[stage] = Chain(norms[0], norms[1], inverses[0], inverses[1])
        return self._chains[stage]

    @cached_property
    def _chains(self) -> dict[str, Chain]:
        return {}

    @cached_property
    def normed(self) -> dict[str, tuple[Tensor, Tensor]]:
        """What each frozen norm makes of what it reads, [... pos d], and the reciprocal of its scale, [... pos 1]."""
        return {place: norm.with_inverse(self.read(place)) for place, norm in self.norms.items()}

    def read(self, place: str) -> Tensor:
        """What the norm at this place reads."""
        read = {"norm_on_attention": "attention_output", "norm_after_attention": "stream", "norm_after_mlp": "stream_after_mlp"}
        return getattr(self, read[place])

    @cached_property
    def rebuilt(self) -> dict[str, tuple[Tensor, Tensor | None, Tensor]]:
        """What the model's parts make, what is added to it, and what the model wrote, for each identity."""
        after = "norm_after_mlp" in self.norms
        stream = self.normed["norm_after_mlp"][0] if after else self.stream_after_mlp
        found: dict[str, tuple[Tensor, Tensor | None, Tensor]] = {
            "parts": (self.all_parts, self.bias, self.attention_output),
            "stream": (stream, None, self.output),
        }
        if "norm_on_attention" in self.norms:
            found["norm_on_attention"] = (self.normed["norm_on_attention"][0], None, self.stream - self.x)
        if "norm_after_attention" in self.norms:
            found["norm_after_attention"] = (self.normed["norm_after_attention"][0], None, self.middle)
        return found

    @property
    def identities(self) -> dict[str, tuple[Tensor, float]]:
        """How far the rebuilt layer is from what the model wrote (biases, frozen norms and residuals included), and how far it
        may be. So too for what is kept of weights and for what a method compared by itself, so ask when all methods are done.

        A gap is a number, or [layer] for several layers; it stays on its device, so that a GPU is not made to wait.
        """
        layers, rebuilt = len(self.layers) if self.several else None, self.rebuilt
        if self.layer.input.dtype in HALF:
            whole, seen = self.all_parts + self.bias, self.attention_output
            rebuilt = {**rebuilt, "parts": (seen + (whole - seen) / self.rounding[..., None], None, seen)}
        found = {name: (kernels.apart(*tensors, layers), self.tolerance(name)) for name, tensors in rebuilt.items()}
        if "weights" not in self.compared and self.used:
            self.compare_kept()
        return found | self.compared

    @cached_property
    def rounding(self) -> Tensor:
        """What half precision's rounding of each term a^h_ij v^h_j does to their sum over j, in eps, [... pos]; at least 1.

        sqrt(sum_hj (a^h_ij |v^h_j|)^2) over the length of the sum: large where the terms of a token cancel.
        """
        each = (self.attention.square() @ self.values.square().sum(-1, keepdim=True))[..., 0].sum(-2).sqrt()
        whole = (self.attention @ self.values).square().sum((-3, -1)).sqrt()
        return (each / whole.clamp(min=torch.finfo(each.dtype).tiny)).clamp(min=1)

    def compare(self, identity: str, made: Tensor, seen: Tensor, *, allowed: float | None = None) -> None:
        """Note how far `made` is from `seen` [... pos d]: no map is given if it is more than allowed."""
        dtype = working_dtype(seen.dtype)
        value = kernels.apart(made.to(dtype), None, seen.to(dtype))
        self.compared[identity] = (value, self.tolerance(identity) if allowed is None else allowed)

    def compare_kept(self) -> None:
        """Send its probe through every module that something kept was made of, and compare the answers with those of then."""
        worst = [self.x.new_zeros(())]
        for module, memory in self.used.items():
            now, dtype = answer_of(module, memory.probe), memory.answer.dtype
            if now.device.type == "cpu" and torch.equal(now, memory.answer):
                continue
            apart = kernels.apart(now.to(working_dtype(dtype)), None, memory.answer.to(working_dtype(dtype)))
            worst.append(apart.to(self.x) / SAME_ANSWER[dtype])
        value = torch.stack(worst).amax() if len(worst) > 1 else worst[0]
        self.compared["weights"] = (value.expand(len(self.layers)) if self.several else value, 1.0)

    @property
    def gaps(self) -> dict[str, float]:
        return {name: finite(float(value.max())) for name, (value, _) in self.identities.items()}

    def tolerance(self, identity: str) -> float:
        """What rounding may do. A norm that computes in float32 inside a float64 model is judged as float32."""
        of_layer = ("norm_on_attention", "norm_after_attention", "norm_before_mlp", "norm_on_mlp", "norm_after_mlp")
        places = {"layer": of_layer, "stream": ("norm_on_mlp", "norm_after_mlp")}.get(identity, (identity,))
        dtype, modules = self.layer.input.dtype, [getattr(self.modules, place, None) for place in places]
        if any(module is not None and self._rounds_inside(module, self.x) for module in modules):
            dtype = torch.float32
        if dtype == torch.float32 and self.x.is_cuda and torch.backends.cuda.matmul.allow_tf32:
            dtype = torch.float16  # TF32 has float16's digits
        allowed = (LAYER_TOLERANCE if identity == "layer" else TOLERANCE)[dtype]
        if dtype in HALF and holds_eight_bits(self.modules.output):
            allowed = max(allowed, EIGHT_BITS * (LAYER_ROUNDINGS if identity == "layer" else ROUNDINGS))
        return allowed

    @property
    def eps(self) -> float:
        """The rounding error of what is behind attention, run again: that of float32 where a norm of a float64 model is so."""
        return EPS[torch.float32] if self.tolerance("layer") != LAYER_TOLERANCE[torch.float64] else EPS[torch.float64]

    def prove(self) -> dict[str, float]:
        """The gaps of this layer; refuses where one is more than rounding."""
        found = {name: (finite(float(value.max())), allowed) for name, (value, allowed) in self.identities.items()}
        for identity, (value, allowed) in found.items():
            if not value <= allowed:
                raise ModelError(self.refusal(identity, value, allowed, self.index))
        return {name: value for name, (value, _) in found.items()}

    def refusal(self, identity: str, value: float, allowed: float, index: int) -> str:
        """The line that says why there is no map."""
        return refusal(identity, value, allowed, index) + linearity_hint([layer.parts.layer for layer in self.layers])


def proven_block(layer: LayerTrace, index: int) -> Block:
    """One layer, decomposed and shown to be what the model wrote; refused where it is not."""
    try:
        block = Block(layer, index)
        block.prove()
    except ModelError:  # perhaps only what was kept of its weights is of another time
        forget(layer.parts.layer)
        block = Block(layer, index)
        block.prove()
    return block


def refusal(identity: str, value: float, allowed: float, layer: int) -> str:
    """The line that says which identity failed in which layer."""
    if identity == "weights":
        return (
            f"layer {layer}: its modules give other answers than a moment ago (weights: {value:.1e} times what rounding does). "
            "No map is given. Something changes the model's weights while it is read: another thread, or a random module."
        )
    return (
        f"layer {layer}: the model's own output does not match its parts ({identity}: relative gap {value:.1e}, "
        f"allowed {allowed:.0e}). No map is given. If the model was changed after the trace was made, trace the text again; "
        "else run `mixlens check` on this model."
    )


def _setting(layer: LayerTrace) -> tuple[object, ...]:
    """Layers with one setting can have their attention computed as one."""
    return layer.scaling, layer.softcap, None if layer.mask is None else (layer.mask.data_ptr(), layer.mask.shape)


# What `Block.at` keeps as it is: everything that is not of targets.
_OF_SOURCES = {
    *("layers", "layer", "index", "several", "one_of_batch", "modules", "dtype", "scratch"),
    *("values", "projection", "bias", "norms", "head_vectors", "wide_modules", "value_bias", "used", "compared"),
}


def source_tiles(block: Block, vectors: Tensor, *, times: int = 1) -> Iterator[tuple[slice, Tensor]]:
    """sum_h a^h_ij vectors^h_j, a few sources at a time: (sources, [... key query d]). Nothing larger is held.

    `vectors` is [... key head d]. On a CPU a tile stays about the size of its cache (`times` as much).
    """
    weights = block.by_source
    each = weights.shape[:-3].numel() * weights.shape[-2] * vectors.shape[-1]
    for sources in tiles(weights.shape[-3], each, weights.device, times=times):
        yield sources, weights[..., sources, :, :] @ vectors[..., sources, :, :]
