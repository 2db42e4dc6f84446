"""Attention and the residual stream of one layer as one exact vector per source token, without holding them all.

Notation (one layer): attention a^h_ij, value v^h_j, f^h_j = W_O^h v^h_j (value bias inside, b_O outside),
z_ij = sum_h a^h_ij f^h_j. No tensor of size n x n x d is ever held. `fast.Block` gives the same numbers sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from ..base.rounding import HALF, working_dtype
from ..model.attention import attention_of, repeat_heads, values_in
from ..model.parts import LayerParts
from ..model.user_code import is_stock
from ..types import LayerTrace
from .identities import Identities, Identity
from .norms import Chain, FrozenNorm
from .parts import Parts
from .weights import linear_bias, linear_weight, widened

Measure = Callable[[Tensor, Tensor], Tensor]  # a distance of two representations [... d]
View = Callable[[Tensor], Tensor]  # representations as a distance looks at them
STAGES = ("attention", "residual", "norm", "layer")
PLACES = {  # the norms that a part passes, and what each reads
    "norm_on_attention": "attention_output",
    "norm_after_attention": "stream",
    "norm_after_mlp": "stream_after_mlp",
}
OF_TARGETS = ("input", "attention_output", "output", "middle", "mlp_output")


class Block(Identities):
    """One layer of a trace, decomposed. With `targets`, the layer at these positions alone; every source stays."""

    def __init__(self, layer: LayerTrace, index: int = 0, *, targets: slice | None = None):
        self.layer, self.index, self.targets = layer, index, targets
        self.modules, self.dtype = layer.parts, working_dtype(layer.input.dtype)
        self.compared: dict[str, Identity] = {}
        self.x, self.attention_output, self.output = (
            self.seen(name) for name in ("input", "attention_output", "output")
        )
        self.mlp_output = self.seen("mlp_output")
        self.attention = self.of_targets(attention_of(layer))
        self.values = repeat_heads(layer.value.to(self.dtype), self.attention.shape[-3])
        self.projection = self.output_weight()
        self.bias = linear_bias(self.modules.output, self.head_width, layer.input).to(self.dtype)
        self.all_parts = self.projected(self.attention @ self.values)
        self.stream = self.x + self.called("norm_on_attention", self.attention_output)
        self.middle = self.stream if layer.middle is None else self.seen("middle")
        self.stream_after_mlp = self.middle + self.called("norm_on_mlp", self.mlp_output)
        self.norms = {place: self.frozen(getattr(self.modules, place)) for place in PLACES if self.has(place)}
        self.normed = {place: norm.with_reciprocal(self.read(place)) for place, norm in self.norms.items()}

    # --- what the trace holds

    def seen(self, name: str) -> Tensor:
        """What the trace holds under this name, in the working number type."""
        tensor = getattr(self.layer, name).to(self.dtype)
        return self.of_targets(tensor) if name in OF_TARGETS else tensor

    def of_targets(self, tensor: Tensor) -> Tensor:
        """[... pos d] or [... head query key] at the targets alone."""
        return tensor if self.targets is None else tensor[..., self.targets, :]

    @property
    def first_target(self) -> int:
        """The position of the first target."""
        return 0 if self.targets is None else self.targets.start

    def has(self, place: str) -> bool:
        """Does the family have a norm at this place?"""
        return getattr(self.modules, place) is not None

    @property
    def head_width(self) -> int:
        """How many features W_O reads: heads x e."""
        return self.values.shape[-3] * self.values.shape[-1]

    @property
    def reach(self) -> Tensor:
        """[... query key]: where a position may look, by the model's mask (by its weights, where it hands out nothing
        else)."""
        layer = self.layer
        if layer.weights is not None:
            return self.of_targets((layer.weights > 0).any(-3))
        if layer.mask is None:
            n = layer.input.shape[-2]
            return torch.ones(*self.x.shape[:-1], n, dtype=torch.bool, device=self.x.device)
        allowed = layer.mask if layer.mask.dtype == torch.bool else layer.mask > torch.finfo(layer.mask.dtype).min / 2
        return self.of_targets(allowed.any(-3) if allowed.dim() == self.x.dim() + 1 else allowed)

    @property
    def value_bias(self) -> Tensor:
        """b_V by head, [head 1 e]: the value of the zero vector."""
        nothing = torch.zeros(1, self.x.shape[-1], dtype=self.layer.input.dtype, device=self.x.device)
        like = self.layer.value.flatten(0, -4)[0] if self.layer.value.dim() > 3 else self.layer.value
        bias = values_in(self.modules, self.modules.value(nothing), like[:, :1])
        return repeat_heads(bias.to(self.dtype), self.attention.shape[-3])

    # --- parts

    def output_weight(self) -> Tensor:
        """W_O by head, [head e d]."""
        weight = linear_weight(self.modules.output, self.head_width, self.dtype, self.layer.input)
        return weight.view(self.values.shape[-3], self.values.shape[-1], -1)

    def projected(self, context: Tensor) -> Tensor:
        """W_O on [... head pos e]: [... pos d]."""
        return context.transpose(-3, -2).flatten(-2) @ self.projection.flatten(-3, -2)

    @property
    def head_vectors(self) -> Tensor:
        """f^h_j = W_O^h v^h_j, [... key head d]."""
        return (self.values @ self.projection).transpose(-3, -2)

    def part(self, source: int) -> Tensor:
        """z_.j = sum_h a^h_.j f^h_j of one source, [... query d]."""
        vectors = (self.values[..., source : source + 1, :] @ self.projection).squeeze(-2)  # [... head d]
        return self.attention[..., source].transpose(-1, -2) @ vectors

    def written_by(self, head: int) -> Tensor:
        """sum_j a^h_ij f^h_j: what one head wrote, [... query d]. All heads and b_O together are what attention
        wrote."""
        return self.attention[..., head, :, :] @ self.values[..., head, :, :] @ self.projection[..., head, :, :]

    @property
    def own_part(self) -> Tensor:
        """z_ii, [... query d]."""
        own = self.attention.diagonal(self.first_target, -2, -1)  # [... head pos]
        return self.projected(own[..., None] * self.of_targets(self.values))

    def parts(self, stage: str) -> Parts:
        """w_ij at a stage: "attention" (z_ij itself), "residual" (with x_i in w_ii), "norm" (normed), "layer" (normed
        again)."""
        return Parts(self, self.chain(stage), residual=stage != "attention")

    def chain(self, stage: str) -> Chain:
        """The norms on the way to a stage. A place without a norm leaves the vectors as they are."""
        depth = STAGES.index(stage)
        branch = ["norm_on_attention"] if depth >= 1 else []
        stream = ["norm_after_attention", "norm_after_mlp"][: max(0, depth - 1)]
        norms, reciprocals = zip(*(self.passed(places) for places in (branch, stream)), strict=True)
        return Chain(norms[0], norms[1], reciprocals[0], reciprocals[1])

    def passed(self, places: list[str]) -> tuple[tuple[FrozenNorm, ...], Tensor | None]:
        """The norms at these places, and the reciprocal of the product of their scales, [... pos]; None: one."""
        there = [place for place in places if place in self.norms]
        each = [self.normed[place][1][..., 0] for place in there]
        return tuple(self.norms[place] for place in there), reduce(torch.mul, each) if each else None

    # --- norms

    def frozen(self, module: nn.Module) -> FrozenNorm:
        """A norm of this layer with its statistics held still."""
        norm = FrozenNorm.of(module, self.x.shape[-1], self.dtype)
        return replace(norm, gamma=norm.gamma.to(self.x.device), beta=norm.beta.to(self.x.device))

    def called(self, place: str, u: Tensor) -> Tensor:
        """The model's own norm at this place on u [... pos d], or u where there is none. A hook finds the axes of a
        batch."""
        module, batch = getattr(self.modules, place), u if u.dim() > 2 else u.unsqueeze(0)
        return u if module is None else module(batch.to(self.layer.input.dtype)).to(self.dtype).view_as(u)

    def read(self, place: str) -> Tensor:
        """What the norm at this place reads, [... pos d]."""
        return getattr(self, PLACES[place])

    # --- what is behind attention

    @property
    def wide_modules(self) -> LayerParts:
        """The layer's modules in at least float32: a half-precision layer run again would drown small changes."""
        if self.layer.input.dtype not in HALF:
            return self.modules
        copies: dict[str, Any] = {f.name: getattr(self.modules, f.name) for f in fields(self.modules)}
        shared: dict[int, nn.Module] = {}
        for name, module in copies.items():
            if isinstance(module, nn.Module) and name != "layer":
                copies[name] = shared.setdefault(id(module), widened(module, self.layer.input))
        return replace(self.modules, **copies)

    def after_attention(self, a: Tensor, modules: LayerParts | None = None) -> Tensor:
        """The layer's output if attention had written `a`: everything behind it, run again (by `modules`, if they are
        at hand).

        `a` is [... pos d], or [... tile pos d] for several alternatives at once.
        """
        part, tiled = modules or self.wide_modules, a.dim() > self.x.dim()
        if self.is_stock:
            return self._behind_attention(a, part)
        if tiled:
            return torch.stack([self.after_attention(one, part) for one in a.unbind(-3)], -3)
        return self._behind_attention(a, part) if a.dim() > 2 else self._behind_attention(a.unsqueeze(0), part)[0]

    @property
    def is_stock(self) -> bool:
        """Is all code of the layer that of known packages? A user's own is run as the model runs it: on every position
        of one text, [1 pos d]. It may treat positions, and the rows of a batch, differently."""
        return is_stock(self.modules.layer)

    def _behind_attention(self, a: Tensor, part: LayerParts) -> Tensor:
        tiled = a.dim() > self.x.dim()

        def norm(place: str, u: Tensor) -> Tensor:
            module = getattr(part, place)
            return u if module is None else module(u)

        def beside(u: Tensor) -> Tensor:
            return u.unsqueeze(-3) if tiled else u

        middle = norm("norm_after_attention", beside(self.x) + norm("norm_on_attention", a))
        written = beside(self.mlp_output) if part.parallel else part.mlp(norm("norm_before_mlp", middle))
        return norm("norm_after_mlp", middle + norm("norm_on_mlp", written))

    def moved_without_each(
        self, measure: Measure, view: View, still: Tensor, *, few: bool = False, cosine: bool = False
    ) -> Tensor:
        """How far each output is from itself without each source's part, [... query key].

        `measure` compares two representations as `view` shows them; `still` [... 1 pos d] is the output left alone,
        viewed.
        `few` and `cosine` say what may be computed sooner: they change nothing here.
        """
        modules, distances = self.wide_modules, []
        for source in range(self.attention.shape[-1]):
            moved = self.after_attention(self.attention_output - self.part(source), modules)
            distances.append(measure(view(moved.unsqueeze(-3)), still)[..., 0, :])
        return torch.stack(distances, -1)

    def at(self, rows: slice) -> Block:
        """The same layer with these targets alone; every source stays."""
        return type(self)(self.layer, self.index, targets=rows)


def proven_block(layer: LayerTrace, index: int) -> Block:
    """One layer, decomposed and shown to be what the model wrote; refused where it is not."""
    block = Block(layer, index)
    block.prove()
    return block
