"""The modules of a stock model that its family's entry names, layer by layer.

A layer here reads one stream and attends to that stream. Cross-attention, a branch that is scaled by a constant, and
experts would each be one more field of `Family` and of `LayerParts`; a model of two stacks would have one list of parts
for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from ..base.errors import ModelError
from .families import Family
from .kept import Kept
from .offload import place_of

NOT_PATHS = ("layer", "value_layout", "parallel", "kept")  # fields of LayerParts that no path of the entry leads to


@dataclass(frozen=True)
class LayerParts:
    """The modules of one layer that the family's entry names. Absent ones are None."""

    layer: nn.Module
    value: nn.Module
    output: nn.Module
    mlp_up: nn.Module
    mlp_act: Callable[[Tensor], Tensor]
    mlp_down: nn.Module
    mlp_gate: nn.Module | None
    value_layout: str
    norm_before_attention: nn.Module | None
    norm_on_attention: nn.Module | None
    norm_after_attention: nn.Module | None
    norm_before_mlp: nn.Module | None
    norm_on_mlp: nn.Module | None
    norm_after_mlp: nn.Module | None
    parallel: bool
    attention: nn.Module | None
    kept: Kept = field(
        default_factory=Kept, compare=False, repr=False
    )  # what is made of the weights of the whole model

    def mlp_hidden(self, up: Tensor, gate: Tensor | None) -> Tensor:
        """What the second product reads, [... pos d_mlp]: act(up), or act(gate) * up where there is a gate."""
        if self.mlp_gate is self.mlp_up:
            gate, up = up.chunk(2, dim=-1)
        return self.mlp_act(up) if gate is None else self.mlp_act(gate) * up

    def mlp(self, h: Tensor) -> Tensor:
        """The feed-forward, module by module: [... pos d] -> [... pos d]."""
        gate = self.mlp_gate(h) if self.mlp_gate is not None and self.mlp_gate is not self.mlp_up else None
        return self.mlp_down(self.mlp_hidden(self.mlp_up(h), gate))


PATHS = tuple(
    one.name for one in fields(LayerParts) if one.name not in NOT_PATHS
)  # fields that are paths of the entry too


def at(root: Any, path: str) -> Any:
    """The attribute at a dotted path; `*` goes through every member of a list."""
    for name in path.split("."):
        if name == "*":
            rest = path.partition("*.")[2]
            return [layer for member in root for layer in at(member, rest)]
        root = getattr(root, name)
    return root


def layer_parts(base: nn.Module, family: Family, kept: Kept | None = None) -> list[LayerParts]:
    """Resolve the entry against the model, or refuse with the path that is not there. `kept`: the store of the
    model."""
    if family.attention is not None and family.value_layout != "v":
        raise ModelError(
            f"family {family.name!r} names an attention module and value_layout={family.value_layout!r}. A family "
            f"whose "
            "attention weights are taken from a module needs value_layout='v': a module that makes the values alone."
        )
    facts: dict[str, Any] = {"value_layout": family.value_layout, "parallel": family.parallel, "kept": kept or Kept()}
    facts |= dict.fromkeys(PATHS)  # absent ones are None
    named = [name for name in PATHS if getattr(family, name) is not None]
    layers = _part(family, base, "layers")
    return [LayerParts(**facts | {name: _part(family, layer, name) for name in named}, layer=layer) for layer in layers]


def _part(family: Family, root: Any, name: str) -> Any:
    """The part that the entry's field `name` leads to from `root`."""
    path = getattr(family, name)
    try:
        return at(root, path)
    except (AttributeError, TypeError):
        raise ModelError(
            f"family {family.name!r} says {name}={path!r}, but {type(root).__name__} has no such part. "
            f"It has: {', '.join(child for child, _ in root.named_children())}."
        ) from None


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Every module, some perhaps twice; much quicker than `modules()`, which builds every name."""
    modules = [module]
    for one in modules:  # the list grows while it is walked
        if one is not None and one._modules:
            modules += one._modules.values()  # type: ignore[arg-type]
    return [one for one in modules if one is not None]


def refuse_split(name: str, parts: Sequence[LayerParts]) -> None:
    """Each layer is scored on one device, so a layer that is spread over several is refused."""
    for number, layer in enumerate(parts):
        places = {str(place_of(part)) for part in (layer.value, layer.output, layer.mlp_up, layer.mlp_down)}
        if len(places) > 1:
            raise ModelError(
                f"layer {number} of {name!r} is spread over {' and '.join(sorted(places))}. Each layer must be on one "
                f"device: "
                "name whole layers in the device_map."
            )


def by_layer(parts: Sequence[LayerParts]) -> dict[int, LayerParts]:
    """The parts by the id of their layer, each layer once: layers that share their weights are one module."""
    return {id(one.layer): one for one in parts}
