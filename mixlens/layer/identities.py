"""The identities that prove a decomposed layer: what is rebuilt from its parts, against what the model wrote.

A map is handed out only if every identity of every layer holds, in the call that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..base.errors import ModelError
from ..base.rounding import (
    EIGHT_BITS,
    EPS,
    HALF,
    LAYER_ROUNDINGS,
    LAYER_TOLERANCE,
    ROUNDINGS,
    TOLERANCE,
    apart,
    digits_of_products,
    finite,
    largest_feature,
    working_dtype,
)
from ..model.offload import holds_eight_bits, linearity_hint
from ..types import LayerTrace

if TYPE_CHECKING:
    from ..model.parts import LayerParts

Identity = tuple[Tensor, float]  # the gap, a number or [layer], and how large it may be
NUDGE = 1e-10  # a change that float64 notices and float32 does not
NORMS_OF = {  # the norms that an identity goes through; of others, the norm of its name
    "layer": ("norm_on_attention", "norm_after_attention", "norm_before_mlp", "norm_on_mlp", "norm_after_mlp"),
    "stream": ("norm_on_mlp", "norm_after_mlp"),
}


class Identities:
    """What a block compares with the model. `compared` holds what a method compared by itself."""

    layer: LayerTrace
    index: int
    modules: LayerParts
    compared: dict[str, Identity]
    norms: Any  # dict[str, FrozenNorm]
    x: Any
    output: Any
    attention: Any
    values: Any
    attention_output: Any
    stream: Any
    middle: Any
    stream_after_mlp: Any
    all_parts: Any
    bias: Any
    normed: Any  # dict[str, tuple[Tensor, Tensor]]
    mlp_output: Any
    projection: Any

    def apart(self, rebuilt: Tensor, added: Tensor | None, seen: Tensor) -> Tensor:
        """The gap between rebuilt + added and seen [... pos d], relative to each token. See `rounding.apart`."""
        return apart(rebuilt, added, seen)

    def whole_gap(self, rebuilt: Tensor, added: Tensor | None, seen: Tensor) -> Tensor:
        """`apart`; in half precision, where it allows much, of single features too."""
        value = self.apart(rebuilt, added, seen)
        if self.layer.input.dtype not in HALF:
            return value
        features = largest_feature(rebuilt if added is None else rebuilt + added, seen, self.x)
        return torch.maximum(value, features.reshape(value.numel(), -1).amax(-1).reshape(value.shape))

    @property
    def rebuilt(self) -> dict[str, tuple[Tensor, Tensor | None, Tensor]]:
        """For each identity: what the parts give, what is added to it, and what the model wrote."""
        after = self.normed.get("norm_after_mlp")
        identities: dict[str, tuple[Tensor, Tensor | None, Tensor]] = {
            "parts": (self.all_parts, self.bias, self.attention_output),
            "stream": (self.stream_after_mlp if after is None else after[0], None, self.output),
        }
        if "norm_on_attention" in self.norms:
            identities["norm_on_attention"] = (self.normed["norm_on_attention"][0], None, self.stream - self.x)
        if "norm_after_attention" in self.norms:
            identities["norm_after_attention"] = (self.normed["norm_after_attention"][0], None, self.middle)
        return identities

    @property
    def identities(self) -> dict[str, Identity]:
        """How far the rebuilt layer is from what the model wrote (biases, frozen norms and residuals included), and how
        far it may be. What a method compared by itself is included, so ask when all methods are done."""
        rebuilt = self.rebuilt
        if self.layer.input.dtype in HALF:
            whole, seen = self.all_parts + self.bias, self.attention_output
            rebuilt = {**rebuilt, "parts": (seen + (whole - seen) / self.rounding[..., None], None, seen)}
        return {
            name: (self.whole_gap(*tensors), self.tolerance(name)) for name, tensors in rebuilt.items()
        } | self.compared

    @property
    def rounding(self) -> Tensor:
        """What half precision's rounding of each term a^h_ij v^h_j does to their sum over j, in eps, [... pos]; at
        least 1.

        sqrt(sum_hj (a^h_ij |v^h_j|)^2) over the length of the sum: large where the terms of a token cancel.
        """
        each = (self.attention.square() @ self.values.square().sum(-1, keepdim=True))[..., 0].sum(-2).sqrt()
        whole = (self.attention @ self.values).square().sum((-3, -1)).sqrt()
        return (each / whole.clamp(min=torch.finfo(each.dtype).tiny)).clamp(min=1)

    def compare(self, identity: str, rebuilt: Tensor, seen: Tensor, *, allowed: float | None = None) -> None:
        """Note how far `rebuilt` is from `seen` [... pos d]: no map is given if it is more than allowed."""
        dtype = working_dtype(seen.dtype)
        value = self.whole_gap(rebuilt.to(dtype), None, seen.to(dtype))
        self.compared[identity] = (value, self.tolerance(identity) if allowed is None else allowed)

    @property
    def gaps(self) -> dict[str, float]:
        return {name: finite(float(value.max())) for name, (value, _) in self.identities.items()}

    def tolerance(self, identity: str) -> float:
        """What rounding may do. A norm that computes in float32 inside a float64 model is judged as float32."""
        norms = [getattr(self.modules, place, None) for place in NORMS_OF.get(identity, (identity,))]
        coarse = any(norm is not None and self.rounds_inside(norm, self.x) for norm in norms)
        dtype = torch.float32 if coarse else self.layer.input.dtype
        dtype = digits_of_products(self.x, dtype)
        allowed, roundings = (LAYER_TOLERANCE, LAYER_ROUNDINGS) if identity == "layer" else (TOLERANCE, ROUNDINGS)
        if dtype in HALF and holds_eight_bits(self.modules.output):
            return max(allowed[dtype], EIGHT_BITS * roundings)
        return allowed[dtype]

    def rounds_inside(self, module: nn.Module, u: Tensor) -> bool:
        """Does a module of a float64 model compute in float32? Then it does not notice a change of 1e-10 in every other
        feature.

        (A norm does not notice a change of all features by one factor, whatever it computes in.)
        """
        if self.layer.input.dtype != torch.float64:
            return False
        nudge = torch.ones(u.shape[-1], dtype=u.dtype, device=u.device)
        nudge[::2] += NUDGE
        return bool((module(u * nudge) == module(u)).double().mean() > 0.5)

    @property
    def eps(self) -> float:
        """The rounding error of what is behind attention, run again: that of float32 where a norm of a float64 model is
        so."""
        return EPS[torch.float32] if self.tolerance("layer") != LAYER_TOLERANCE[torch.float64] else EPS[torch.float64]

    def prove(self) -> dict[str, float]:
        """The gaps of this layer; refuses where one is more than rounding."""
        gaps = {name: (finite(float(value.max())), allowed) for name, (value, allowed) in self.identities.items()}
        for identity, (value, allowed) in gaps.items():
            if not value <= allowed:
                raise Unproven(self.refusal(identity, value, allowed, self.index))
        return {name: value for name, (value, _) in gaps.items()}

    def refusal(self, identity: str, value: float, allowed: float, index: int) -> str:
        """The line that says why there is no map."""
        return refusal(identity, value, allowed, index) + linearity_hint([self.layer.parts.layer])


class Unproven(ModelError):  # noqa: N818 - most often no error: a value kept of the weights is not what they are now
    """An identity does not hold. It is a reason to compute everything anew, and the second time to refuse."""


def refusal(identity: str, value: float, allowed: float, layer: int) -> str:
    """The line that says which identity failed in which layer."""
    if identity == "weights":
        return (
            f"layer {layer}: its modules give other answers than a moment ago (weights: {value:.1e} times what "
            f"rounding does). "
            "No map is given. Something changes the model's weights while it is read: another thread, or a random "
            "module."
        )
    return (
        f"layer {layer}: the model's own output does not match its parts ({identity}: relative gap {value:.1e}, "
        f"allowed {allowed:.0e}). No map is given. If the model was changed after the trace was made, trace the text "
        f"again; "
        "else run `mixlens check` on this model."
    )
