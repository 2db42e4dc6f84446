"""What a scorer's tensors become: gaps that are judged, scores and extras that are gathered, facts for `.info`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import MixlensError
from .layer import Block
from .layer.identities import Unproven, refusal
from .methods._mixing import Extras, Method, Scores
from .model.model import Model
from .model.offload import linearity_hint
from .rounding import finite
from .types import Map

Extra = dict[str, dict[str, Any]]  # of all layers, by method and name


class NotFinite(MixlensError):  # noqa: N818 - on a GPU first a reason to compute in a wider range
    """A score is infinite or no number."""


def refuse_gap(model: Model, identity: str, gap: float, allowed: float, layer: int, sums: Sequence[float]) -> None:
    if math.isinf(gap) and not all(map(math.isfinite, sums)):
        raise NotFinite(f"a score of layer {layer} is not finite ({identity}). No map is given.")
    hint = linearity_hint([model.parts[min(layer, len(model.parts) - 1)].layer])
    raise Unproven(refusal(identity, gap, allowed, layer) + hint)


def refuse_not_finite(name: str, maps: Sequence[Map]) -> None:
    for result in maps:
        layers = torch.isfinite(result.scores).flatten(1).all(-1)
        if not bool(layers.all()):
            wrong = int((~layers).nonzero()[0])
            raise NotFinite(f"method {name!r} gave a score that is not finite in layer {wrong}. No map is given.")


def read_numbers(gaps: Tensor, totals: Tensor, extras: Extra) -> list[float]:
    """Gaps and totals as numbers, and extras brought to the CPU: those of the same number type in one copy."""
    places = [(entry, key) for entry in extras.values() for key, value in entry.items() if isinstance(value, Tensor)]
    places = [(entry, key) for entry, key in places if entry[key].device.type != "cpu" and entry[key].dtype == gaps.dtype]
    flat = torch.cat([gaps, totals, *(entry[key].flatten() for entry, key in places)]).cpu()
    position = len(gaps) + len(totals)
    for entry, key in places:
        shape = entry[key].shape
        entry[key] = flat[position : position + shape.numel()].view(shape).clone()
        position += shape.numel()
    for entry in extras.values():
        entry |= {key: value.cpu() for key, value in entry.items() if isinstance(value, Tensor)}
    return flat[: len(gaps) + len(totals)].tolist()


def identities_of(several: Block | None, blocks: Sequence[Block]) -> dict[str, tuple[Tensor, float]]:
    """The identities of the layers that were scored; of a layer on a CPU they are judged at once."""
    if several is None and len(blocks) == 1:
        block = blocks[0]
        identities = {name: (value[None], allowed) for name, (value, allowed) in block.identities.items()}
        if block.x.device.type == "cpu":
            for name, (value, allowed) in identities.items():
                if not float(value) <= allowed:
                    raise Unproven(block.refusal(name, finite(float(value)), allowed, block.index))
        return identities
    each = [block.identities for block in blocks]
    identities = {} if several is None else several.identities
    for name in dict.fromkeys(name for one in each for name in one):
        values = torch.stack([one[name][0] for one in each])
        values = torch.maximum(values, identities[name][0]) if name in identities else values
        identities[name] = (values, each[0][name][1])
    return identities


def shares(scores: Tensor) -> Tensor:
    """Rows over the sum of their magnitudes."""
    return scores / scores.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def separate(scores: Scores, scratch: Mapping[Any, Tensor], block: Block | None = None) -> tuple[Tensor, Extras]:
    """What a method returned, in memory of its own: neither the call's scratch memory nor a tensor of its block."""
    tensor, extras = scores if isinstance(scores, tuple) else (scores, {})
    others = [value for value in vars(block).values() if isinstance(value, Tensor)] if block is not None else []
    shared = {room.untyped_storage().data_ptr() for room in (*scratch.values(), *others)}

    def copied(value: Tensor) -> Tensor:
        return value.clone() if value.untyped_storage().data_ptr() in shared else value

    return copied(tensor), {key: copied(value) if isinstance(value, Tensor) else value for key, value in extras.items()}


def gathered(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Tensors of several layers as one, on one device: layers stay where they ran, their scores meet."""
    return torch.cat([one.to(device) for one in tensors]) if len(tensors) > 1 else tensors[0].to(device)


def all_layers(layers: Sequence[Tensor | str]) -> Any:
    """An extra over all layers, [batch layer ...]. A word that never changes is said once."""
    if isinstance(layers[0], str):
        return layers[0] if len(set(layers)) == 1 else list(layers)
    tensors = [layer for layer in layers if isinstance(layer, Tensor)]
    return gathered(tensors, tensors[0].device).transpose(0, 1)


def of_row(extra: Any, row: int, n: int | None) -> Any:
    """One trace's part of an extra, cut to its n positions where it has them."""
    if not isinstance(extra, Tensor):
        return extra
    return extra[row, :, :n] if extra.dim() > 2 else extra[row]


def method_facts(entry: Method, options: Mapping[str, Any], gaps: Mapping[str, float]) -> dict[str, Any]:
    """What `.info` says of the method, and the gaps that prove its scores."""
    rebuilt = {key: value for key, value in gaps.items() if key in ("parts", "stream", "layer")}
    return {
        "method": entry.id,
        "paper": entry.paper,
        "variant": options.get("variant", entry.variants[0]),
        "options": {key: value for key, value in options.items() if key != "variant"},
        "distribution": entry.distribution,
        "signed": entry.signed,
        "convention": entry.rollout,
        "rollout": None,
        "gap": max(rebuilt.values()),  # the layers rebuilt from their parts, against what the model wrote
        "gaps": dict(gaps),
    }
