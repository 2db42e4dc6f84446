"""What a scorer's tensors become: gaps that are judged, scores and extras that are gathered, facts for `.info`."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MixlensError
from ..base.rounding import finite
from ..layer import Block
from ..layer.identities import Unproven, refusal
from ..methods._mixing import Extras, Method, Scores
from ..model.model import Model
from ..model.offload import linearity_hint
from ..types import HeadMaps, Map

Extra = dict[str, dict[str, Any]]  # of all layers, by method and name
Identities = dict[str, tuple[Tensor, float]]  # by name: the gap, and how large it may be
REBUILT = (
    "parts",
    "stream",
    "layer",
)  # identities that compare a layer rebuilt from its parts with what the model wrote
NOTED_ERROR = 1e-2  # of a row: rounding that is worth a note


class NotFinite(MixlensError):  # noqa: N818 - on a GPU first a reason to compute in a wider range
    """A score is infinite or no number."""


def refuse_gap(model: Model, identity: str, gap: float, allowed: float, layer: int, sums: Sequence[float]) -> None:
    if math.isinf(gap) and not all(map(math.isfinite, sums)):
        raise NotFinite(f"a score of layer {layer} is not finite ({identity}). No map is given.")
    hint = linearity_hint([model.parts[min(layer, len(model.parts) - 1)].layer])
    raise Unproven(refusal(identity, gap, allowed, layer) + hint)


def refuse_not_finite(name: str, maps: Iterable[Map | HeadMaps]) -> None:
    """Refuse a method's maps where a score is infinite or no number, with the layer."""
    for result in maps:
        layers = torch.isfinite(result.scores).flatten(1).all(-1)
        if not bool(layers.all()):
            wrong = int((~layers).nonzero()[0])
            raise NotFinite(f"method {name!r} gave a score that is not finite in layer {wrong}. No map is given.")


def read_numbers(gaps: Tensor, totals: Tensor, extras: Extra) -> list[float]:
    """Gaps and totals as numbers, and extras brought to the CPU: those of the same number type in one copy."""
    places = [
        (entry, key) for entry in extras.values() for key, value in entry.items() if _shares_copy(value, gaps.dtype)
    ]
    flat = torch.cat([gaps, totals, *(entry[key].flatten() for entry, key in places)]).cpu()
    position = len(gaps) + len(totals)
    for entry, key in places:
        shape = entry[key].shape
        entry[key] = flat[position : position + shape.numel()].view(shape).clone()
        position += shape.numel()
    _to_cpu(extras)
    return flat[: len(gaps) + len(totals)].tolist()


def _shares_copy(value: Any, dtype: torch.dtype) -> bool:
    """Is this a tensor of a GPU that goes to the CPU with others of this number type?"""
    return isinstance(value, Tensor) and value.device.type != "cpu" and value.dtype == dtype


def _to_cpu(extras: Extra) -> None:
    for entry in extras.values():
        entry |= {key: value.cpu() for key, value in entry.items() if isinstance(value, Tensor)}


def identities_of(several: Block | None, blocks: Sequence[Block]) -> Identities:
    """The identities of the layers that were scored; of a layer on a CPU they are judged at once."""
    if several is None and len(blocks) == 1:
        return _identities_of_one(blocks[0])
    identities = {} if several is None else several.identities
    return identities | _largest([block.identities for block in blocks], identities)


def _identities_of_one(block: Block) -> Identities:
    """The identities of one layer, with an axis of layers."""
    identities = block.identities
    if block.x.device.type == "cpu":
        _refuse_gaps(block, identities)
    return {name: (value[None], allowed) for name, (value, allowed) in identities.items()}


def _refuse_gaps(block: Block, identities: Identities) -> None:
    for name, (value, allowed) in identities.items():
        if not float(value) <= allowed:
            raise Unproven(block.refusal(name, finite(float(value)), allowed, block.index))


def _largest(each: Sequence[Identities], others: Identities) -> Identities:
    """The gaps of single layers, [layer]; the larger one where the layers had the same identity as one block."""
    largest: Identities = {}
    for name in dict.fromkeys(chain.from_iterable(each)):
        values = torch.stack([one[name][0] for one in each])
        largest[name] = (torch.maximum(values, others[name][0]) if name in others else values, each[0][name][1])
    return largest


def shares(scores: Tensor) -> Tensor:
    """Rows over the sum of their magnitudes."""
    return scores / scores.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


def separate(scores: Scores, scratch: Mapping[Any, Tensor], block: Block | None = None) -> tuple[Tensor, Extras]:
    """What a method returned, in memory of its own: neither the call's scratch memory nor a tensor of its block."""
    tensor, extras = scores if isinstance(scores, tuple) else (scores, {})
    shared = _addresses(scratch) if block is None else _addresses(scratch) | _addresses(vars(block))
    return _apart(tensor, shared), {key: _apart(value, shared) for key, value in extras.items()}


def _addresses(values: Mapping[Any, Any]) -> set[int]:
    """The addresses of the tensors among these values."""
    return {value.untyped_storage().data_ptr() for value in values.values() if isinstance(value, Tensor)}


def _apart(value: Any, shared: Container[int]) -> Any:
    """A tensor whose memory is shared as a copy; any other value as it is."""
    return value.clone() if isinstance(value, Tensor) and value.untyped_storage().data_ptr() in shared else value


def unsqueezed(value: Any, axes: Iterable[int]) -> Any:
    """A tensor with new axes of length 1 at these places, one after the other; any other value as it is."""
    if isinstance(value, Tensor):
        for axis in axes:
            value = value.unsqueeze(axis)
    return value


def gathered(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Tensors of several layers as one, on one device: layers stay where they ran, their scores meet."""
    return torch.cat([one.to(device) for one in tensors]) if len(tensors) > 1 else tensors[0].to(device)


def all_layers(layers: Sequence[Tensor | str]) -> Any:
    """An extra over all layers, [batch layer ...]. A word that never changes is said once."""
    if isinstance(layers[0], str):
        return layers[0] if len(set(layers)) == 1 else list(layers)
    tensors = [layer for layer in layers if isinstance(layer, Tensor)]
    return gathered(tensors, tensors[0].device).transpose(0, 1)


@dataclass
class Results:
    """What was computed of the layers so far, in their order."""

    scores: dict[str, list[Tensor]]
    extras: dict[str, list[Extras]]
    gaps: dict[str, list[tuple[int, Tensor, float]]] = field(default_factory=dict)  # first layer, [layer], allowed

    def take(self, start: int, identities: Identities, scored: Sequence[tuple[str, Tensor, Extras]]) -> None:
        for identity, (value, allowed) in identities.items():
            self.gaps.setdefault(identity, []).append((start, value, allowed))
        for name, scores, extra in scored:
            self.scores[name].append(scores)
            self.extras[name].append(extra)

    def gather(self, device: torch.device) -> Gathered:
        """The layers together, on one device. Nothing here waits for a GPU."""
        scores = {name: gathered(tensors, device) for name, tensors in self.scores.items()}
        totals = torch.stack([one.sum() for one in scores.values()]) if scores else torch.empty(0)
        return Gathered(
            device, scores, totals, {name: _extras_of_layers(layers) for name, layers in self.extras.items()}
        )

    @property
    def tolerance(self) -> dict[str, float]:
        """How large the gap may be in these layers: more than the number type's own rounding where modules round to 8 bits."""
        allowed = [limit for name in ("parts", "stream") for _, _, limit in self.gaps.get(name, [])]
        return {"tolerance": max(allowed)} if allowed else {}

    @property
    def limits(self) -> list[tuple[str, int, float]]:
        """Of each gap: the identity, the number of its layer, and how large it may be."""
        entries = [(name, *entry) for name, layers in self.gaps.items() for entry in layers]
        return [(name, start + i, allowed) for name, start, value, allowed in entries for i in range(len(value))]


def _extras_of_layers(layers: Sequence[Extras]) -> dict[str, Any]:
    return {key: all_layers([layer[key] for layer in layers]) for key in layers[0]}


@dataclass(frozen=True)
class Gathered:
    """The scores of a batch in all layers, and what methods hand out beside them."""

    device: torch.device
    scores: dict[str, Tensor]  # [layer batch query key], by method
    totals: Tensor  # the sum of each method's scores
    extras: Extra

    def of_trace(self, entry: Method, row: int, n: int) -> tuple[Tensor, Extras]:
        """One method's scores [layer query key] of one trace of n tokens (or [layer head query key]), and its extras."""
        extras = {
            key: of_row(value, row, None if key in entry.per_head else n)
            for key, value in self.extras[entry.id].items()
        }
        return self.scores[entry.id][:, row, ..., :n, :n].contiguous(), extras


def read_gaps(results: Results, gathered: Gathered, model: Model) -> tuple[dict[str, float], list[float]]:
    """The largest gap of each identity, and each method's sum of scores; extras are brought to the CPU. A GPU is waited
    for here, once, and a wrong layer is refused."""
    values = [value.to(gathered.totals) for layers in results.gaps.values() for _, value, _ in layers]
    gaps = torch.cat(values) if values else gathered.totals.new_zeros(0)
    numbers = read_numbers(gaps, gathered.totals, gathered.extras)
    sums = numbers[len(gaps) :]
    return _worst(results.limits, numbers[: len(gaps)], sums, model), sums


def _worst(
    limits: Sequence[tuple[str, int, float]], gaps: Sequence[float], sums: Sequence[float], model: Model
) -> dict[str, float]:
    """The largest gap of each identity; the first that is over its limit is refused."""
    worst: dict[str, float] = {}
    for (identity, layer, allowed), gap in zip(limits, map(finite, gaps), strict=True):
        worst[identity] = max(gap, worst.get(identity, 0.0))
        if not gap <= allowed:
            refuse_gap(model, identity, gap, allowed, layer, sums)
    worst.pop("weights", None)  # not a gap of the model: whether kept values are those of its weights
    return worst or {"parts": 0.0}


def of_row(extra: Any, row: int, n: int | None) -> Any:
    """One trace's part of an extra, cut to its n positions where it has them."""
    if not isinstance(extra, Tensor):
        return extra
    return extra[row, :, :n] if extra.dim() > 2 else extra[row]


def method_facts(entry: Method, options: Mapping[str, Any], gaps: Mapping[str, float]) -> dict[str, Any]:
    """What `.info` says of the method, and the gaps that prove its scores."""
    return {
        "method": entry.id,
        "paper": entry.paper,
        "variant": options.get("variant", entry.variants[0]),
        "options": {key: value for key, value in options.items() if key != "variant"},
        "distribution": entry.distribution,
        "signed": entry.signed,
        "convention": entry.rollout,
        "rollout": None,
        "gap": max(gaps[key] for key in REBUILT if key in gaps),
        "gaps": dict(gaps),
    }


def rounding_notes(extra: Mapping[str, Any]) -> list[str]:
    """A note where scores may be off by rounding, because the number type cannot hold them."""
    error = extra.get("rounding_error")
    if error is None or not float(error.max()) > NOTED_ERROR:
        return []
    return [
        f"rounding may move a score by {float(error.max()):.0e} of its row: float32 does not hold these distances. "
        "Load the model with dtype='float64'."
    ]
