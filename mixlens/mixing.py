"""The methods there are, and `mix`: Trace -> Map. A method is a function registered by `@mixing`."""

from __future__ import annotations

import importlib
import pkgutil
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor

from .decompose import TOLERANCE, Block
from .errors import InputError, MixlensError, nearest
from .model import is_causal
from .registry import Registered, refuse_second
from .types import LayerTrace, Map, Trace

Extras = dict[str, Tensor | str]
Scores = Tensor | tuple[Tensor, dict[str, Tensor]] | tuple[Tensor, Extras]


@dataclass(frozen=True)
class Method(Registered):
    """A registered map method. `function(block, **options)` scores one layer: [... query key].

    What a method hands out beside its scores ends up in `.info`: [... query] unless named in `per_head`, or a word.
    """

    rollout: str  # the convention its paper rolls it out by
    distribution: bool  # rows sum to 1
    signed: bool = False  # scores may be negative
    whole: bool = False  # `function(trace, **options)` scores all layers of one trace: [layer query key]
    per_head: tuple[str, ...] = ()  # names of extras that are [... head]


METHODS: dict[str, Method] = {}


def mixing(
    *,
    paper: str,
    rollout: str,
    variants: Sequence[str] = ("paper",),
    distribution: bool = True,
    cost: str = "< 1",
    signed: bool = False,
    whole: bool = False,
    per_head: Sequence[str] = (),
) -> Callable[[Callable[..., Scores]], Callable[..., Scores]]:
    """Register a map method under its function's name. It gets one layer as a Block, and returns [... query key].

    With `whole` it gets a Trace and returns [layer query key]: for what is not a matter of one layer alone.
    """

    def register(function: Callable[..., Scores]) -> Callable[..., Scores]:
        name = getattr(function, "__name__", "")
        refuse_second(name, function, METHODS.values())
        METHODS[name] = Method(
            name, function, paper, tuple(variants), cost, rollout, distribution, signed, whole, tuple(per_head)
        )
        return function

    return register


@cache
def known() -> dict[str, Method]:
    """Every file in `methods/`, and every entry point of the group `mixlens.methods`."""
    folder = importlib.import_module("mixlens.methods")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    for point in entry_points(group="mixlens.methods"):
        point.load()
    return METHODS


def methods() -> list[str]:
    """Every method there is: maps (for `mix`), then attributions to a prediction (for `attribute`)."""
    from .attributing import known as attributions

    return [*known(), *attributions()]


def method(name: str) -> Method:
    if name not in known():
        from .attributing import ATTRIBUTIONS

        if name in ATTRIBUTIONS:
            raise InputError(
                f"{name!r} explains a prediction, it makes no map: use mixlens.attribute(trace, {name!r}, target=...)."
            )
        raise InputError(f"unknown method {name!r}. {nearest(str(name), known())}")
    return known()[name]


def mix(traces: Trace | Sequence[Trace], name: str | Sequence[str], *, variant: str | None = None, **options: Any) -> Any:
    """Score every layer of a trace: a Map. A list of traces gives a list; a list of methods a dict of maps.

    The layers' decomposition is proven against the model on the way; its gap is in `.info`.
    """
    many = not isinstance(traces, Trace)
    names = [name] if isinstance(name, str) else list(name)
    chosen = {one: (method(one), method(one).arguments(variant, options)) for one in names}
    if not names:
        raise InputError("no method was asked for.")
    every: list[Trace] = list(traces) if many else [traces]  # type: ignore[list-item, arg-type]
    if any(not isinstance(trace, Trace) for trace in every):
        raise InputError("mix takes a Trace or a list of traces, as model.trace gives them.")
    maps: dict[int, dict[str, Map]] = {}
    for batch in _batches(every):
        maps |= zip(batch, _mix_batch([every[i] for i in batch], chosen), strict=True)
    results = [maps[i] if not isinstance(name, str) else maps[i][name] for i in range(len(every))]
    return results if many else results[0]


def _batches(traces: Sequence[Trace]) -> Iterator[list[int]]:
    """Indices of traces of one model and similar length, about 2,048 tokens at a time."""
    batch: list[int] = []
    for i in sorted(range(len(traces)), key=lambda i: (id(traces[i].model), len(traces[i]), i)):
        if batch and ((len(batch) + 1) * len(traces[i]) > 2048 or traces[batch[0]].model is not traces[i].model):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _mix_batch(traces: Sequence[Trace], chosen: Mapping[str, tuple[Method, dict[str, Any]]]) -> list[dict[str, Map]]:
    """All methods on all traces of a batch, layer by layer: one layer's decomposition serves every method."""
    scores: dict[str, list[Tensor]] = {name: [] for name in chosen}
    extras: dict[str, list[Extras]] = {name: [] for name in chosen}
    by_layer = {name: call for name, call in chosen.items() if not call[0].whole}
    gaps: dict[str, float] = {}
    alone = len(traces) == 1
    with torch.no_grad():
        for index in range(len(traces[0].layers)):
            layer = traces[0].layers[index] if alone else stack([trace.layers[index] for trace in traces])
            block = Block(layer, index)
            for identity, value in block.prove().items():
                gaps[identity] = max(gaps.get(identity, 0.0), value)
            for name, (used, options) in by_layer.items():
                made, extra = _given(used.function(block, **options))
                if alone:
                    made, extra = made[None], {k: v[None] if isinstance(v, Tensor) else v for k, v in extra.items()}
                scores[name].append(_checked(name, index, made, (len(traces), layer.input.shape[-2])))
                extras[name].append(extra)
    results: list[dict[str, Map]] = []
    for row, trace in enumerate(traces):
        n = len(trace)
        results.append({})
        for name, (used, options) in chosen.items():
            if used.whole:
                with torch.no_grad():
                    made, extra = _given(used.function(trace, **options))
                made = torch.stack([_checked(name, index, layer[None], (1, n))[0] for index, layer in enumerate(made)])
            else:
                made = torch.stack([layer[row, :n, :n] for layer in scores[name]])
                extra = {
                    key: _all_layers([layer[key] for layer in extras[name]], row, None if key in used.per_head else n)
                    for key in extras[name][0]
                }
            results[-1][name] = Map(
                scores=made,
                tokens=trace.tokens,
                method=name,
                info={**provenance(trace), **_told(used, options, gaps), **extra},
                special=trace.special,
                words=trace.words,
            )
    return results


def _given(scores: Scores) -> tuple[Tensor, Extras]:
    """What a method returned, on the CPU."""
    made, extra = scores if isinstance(scores, tuple) else (scores, {})
    return made.cpu(), {key: value.cpu() if isinstance(value, Tensor) else value for key, value in extra.items()}


def _all_layers(layers: Sequence[Tensor | str], row: int, n: int | None) -> Any:
    """An extra of one trace over all layers, cut to its n positions where it has them. A word that never changes is said once."""
    if isinstance(layers[0], str):
        return layers[0] if len(set(layers)) == 1 else list(layers)
    rows = [layer[row] for layer in layers if isinstance(layer, Tensor)]
    return torch.stack([one[:n] if one.dim() else one for one in rows])


def _checked(name: str, index: int, scores: Tensor, shape: tuple[int, int]) -> Tensor:
    batch, n = shape
    if tuple(scores.shape) != (batch, n, n):
        raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)} for a layer; it must be {(batch, n, n)}.")
    if not bool(torch.isfinite(scores).all()):
        raise MixlensError(f"method {name!r} gave a score that is not finite in layer {index}. No map is given.")
    return scores


def _told(used: Method, options: Mapping[str, Any], gaps: Mapping[str, float]) -> dict[str, Any]:
    rebuilt = {key: value for key, value in gaps.items() if key in ("parts", "stream")}
    return {
        "method": used.id,
        "paper": used.paper,
        "variant": options.get("variant", used.variants[0]),
        "options": {key: value for key, value in options.items() if key != "variant"},
        "distribution": used.distribution,
        "convention": used.rollout,
        "rollout": None,
        "gap": max(rebuilt.values()),  # the layers rebuilt from their parts, against what the model wrote
        "gaps": dict(gaps),
    }


@cache
def versions() -> dict[str, str]:
    import transformers

    from . import __version__

    return {
        "mixlens": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def provenance(trace: Trace) -> dict[str, Any]:
    model = trace.model
    return {
        "model": model.name,
        "revision": model.revision,
        "family": model.family.name,
        "task": model.task,
        "dtype": str(model.dtype).removeprefix("torch."),
        "versions": dict(versions()),
        "text": trace.text,
        "pair": trace.pair,
        "input_ids": list(trace.input_ids),
        "causal": is_causal(trace),
        "check": None if model.proof is None else model.proof.gap,
        "tolerance": TOLERANCE[model.dtype],
    }


def stack(layers: Sequence[LayerTrace]) -> LayerTrace:
    """One layer of several traces as a batch. A padded query is a copy of the last real one; no one looks at a padded key."""
    n = max(layer.input.shape[-2] for layer in layers)

    def rows(tensor: Tensor, dim: int) -> Tensor:
        missing = n - tensor.shape[dim]
        if not missing:
            return tensor
        last = tensor.narrow(dim, tensor.shape[dim] - 1, 1)
        return torch.cat([tensor, last.expand(*(missing if i == dim % tensor.dim() else -1 for i in range(tensor.dim())))], dim)

    def columns(tensor: Tensor, fill: float | bool) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, n - tensor.shape[-1]), value=fill)

    def mask(layer: LayerTrace) -> Tensor:
        here = layer.input.shape[-2]
        own = layer.mask if layer.mask is not None else torch.ones(1, here, here, dtype=torch.bool, device=layer.input.device)
        own = own if own.dim() == 3 else own[None]
        return columns(rows(own, -2), False if own.dtype == torch.bool else torch.finfo(own.dtype).min)

    whole: dict[str, Any] = {f.name: getattr(layers[0], f.name) for f in fields(LayerTrace)}
    for name in ("input", "attention_output", "mlp_output", "output", "query", "key", "value"):
        if whole[name] is not None:
            whole[name] = torch.stack([rows(getattr(layer, name), -2) for layer in layers])
    if whole["weights"] is not None:
        whole["weights"] = torch.stack([columns(rows(layer.weights, -2), 0.0) for layer in layers])  # type: ignore[arg-type]
    else:
        whole["mask"] = torch.stack([mask(layer) for layer in layers])
    return LayerTrace(**whole)
