"""`attribute`: Trace -> Attribution. Which input tokens one prediction rests on. Methods are registered by `@attribution`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .aggregate import rolled_row, without_special
from .errors import InputError, MixlensError, nearest
from .mixing import known as known_maps
from .mixing import mix, provenance, through_quantized
from .model import Attached, Model, named
from .registry import Registered, refuse_second
from .targets import Target, Wanted, resolve
from .types import Attribution, Trace

Scored = Tensor | tuple[Tensor, dict[str, Any]]


@dataclass(frozen=True)
class AttributionMethod(Registered):
    """A registered attribution method. `function(question, **options)` scores every token: [pos]."""

    score: str  # what of the target is explained unless the user says otherwise: logit or probability
    needs_target: bool
    layers: bool  # takes layer=


ATTRIBUTIONS: dict[str, AttributionMethod] = {}


def attribution(
    *,
    paper: str,
    variants: Sequence[str] = ("paper",),
    cost: str = "3",
    score: str = "logit",
    needs_target: bool = True,
    layers: bool = False,
) -> Callable[[Callable[..., Scored]], Callable[..., Scored]]:
    """Register an attribution method under its function's name. It gets a Question and returns [pos], signed."""

    def register(function: Callable[..., Scored]) -> Callable[..., Scored]:
        name = getattr(function, "__name__", "")
        refuse_second(name, function, ATTRIBUTIONS.values())
        ATTRIBUTIONS[name] = AttributionMethod(name, function, paper, tuple(variants), cost, score, needs_target, layers)
        return function

    return register


def known() -> dict[str, AttributionMethod]:
    known_maps()  # every file in methods/ and every entry point registers what it holds
    return ATTRIBUTIONS


class Question:
    """One trace and the number to be explained about it, with the gradients a method asks for."""

    def __init__(self, trace: Trace, target: Target | None, layer: int | None, query: int):
        self.trace, self.model, self.layer, self.query = trace, trace.model, layer, query
        self._target = target

    @property
    def target(self) -> Target:
        assert self._target is not None
        return self._target

    @cached_property
    def inputs(self) -> dict[str, Any]:
        return self.model.inputs([self.trace])

    @cached_property
    def run(self) -> Attached:
        """The forward pass with its graph."""
        return self.model.run_attached(self.inputs)

    def place(self, run: Attached, embedding: str = "sum") -> Tensor:
        """[batch pos d], where gradients are taken: hidden states that enter layer `layer` (the last number: the final
        output), or the embedding: "word", "sum" (word, position and segment added), "after" (what enters the first layer)."""
        if self.layer is not None:
            return (*run.inputs, run.outputs[-1])[self.layer]
        places = {"word": run.word, "sum": run.summed, "after": run.inputs[0]}
        if embedding not in places:
            raise InputError(f"unknown embedding {embedding!r}. {nearest(embedding, places)}")
        return places[embedding]

    def gradient(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """d target / d tensor, each without its batch axis."""
        value = self.target.of(self.run.output)[0]
        found = torch.autograd.grad(value, tensors, retain_graph=True, allow_unused=True)
        return tuple(torch.zeros_like(t)[0] if g is None else g[0] for g, t in zip(found, tensors, strict=True))

    def values(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """The target's number for other inputs, [row]: each is {input_ids, attention_mask, token_type_ids} without padding."""
        from types import SimpleNamespace

        stand_ins: Any = [SimpleNamespace(**row) for row in rows]
        step = self.model.batch_limit or 64
        return torch.cat([self.target.of(self.model.outputs(stand_ins[i : i + step])) for i in range(0, len(rows), step)])


def attribute(
    traces: Trace | Sequence[Trace],
    name: str,
    *,
    target: Wanted = "predicted",
    foil: str | int | None = None,
    score: str | None = None,
    label: str | int | None = None,
    query: int | str | None = None,
    layer: int | None = None,
    variant: str | None = None,
    **options: Any,
) -> Any:
    """Which input tokens the target rests on: an Attribution with signed scores. A list of traces gives a list.

    `target` is "predicted" (default), "gold" with `label`, a class, a token, a (target, foil) pair or a span; `score` is
    "logit" (default), "probability" or "log_probability". `layer=l` asks for the hidden states that enter layer l instead
    of the input embeddings. The name of a map method gives its rolled-out row at `query`.
    """
    if not isinstance(traces, Trace):
        asked: dict[str, Any] = {"target": target, "foil": foil, "score": score, "label": label, "query": query, "layer": layer}
        return [attribute(trace, name, variant=variant, **asked, **options) for trace in traces]
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool)):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    if name in known_maps():
        return _from_map(traces, name, query=query, layer=layer, variant=variant, **options)
    if name not in known():
        raise InputError(f"unknown method {name!r}. {nearest(str(name), [*known(), *known_maps()])}")
    used = known()[name]
    given = used.arguments(variant, options)
    depth = len(traces.layers)
    if layer is not None and not used.layers:
        raise InputError(f"{name!r} is not defined at single layers. Leave layer= out.")
    if layer is not None and not -depth - 1 <= layer <= depth:
        raise InputError(f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output).")
    resolved = None
    if used.needs_target:
        resolved = resolve(traces, target, foil=foil, score=score or used.score, label=label, query=query)
    elif foil is not None or label is not None or target != "predicted":
        raise InputError(f"{name!r} explains a position, not a class or token: it takes query=, not target=, foil= or label=.")
    place = resolved.positions[0] if resolved and resolved.positions else _row(traces, query)
    asked_layer = None if layer is None else layer % (depth + 1)
    with through_quantized(traces.model, name):
        made = used.function(Question(traces, resolved, asked_layer, place), **given)
    scores, extra = made if isinstance(made, tuple) else (made, {})
    scores = scores.detach().cpu()
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if tuple(scores.shape) != (len(traces),):
        raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)}; it must be {(len(traces),)}.")
    if not bool(torch.isfinite(scores).all()):
        raise MixlensError(f"method {name!r} gave a score that is not finite. No attribution is given.")
    info = {
        **provenance(traces),
        "method": name,
        "paper": used.paper,
        "variant": given.get("variant", used.variants[0]),
        "options": {key: value for key, value in given.items() if key != "variant"},
        "target": None if resolved is None else resolved.name,
        "score": None if resolved is None else resolved.score,
        "query": place,
        "query_token": traces.tokens[place],
        "at_layer": asked_layer,
        "prediction": traces.prediction(),
        **extra,
    }
    return Attribution(scores, traces.tokens, name, info, traces.special, traces.words)


def explain(model: Model, text: Any, name: str, *, keep_special: bool, generate: int | None, **asked: Any) -> Any:
    """`Model.explain`: trace, then `attribute`; with `generate`, once for every token the model writes."""
    trace = model.trace(text)
    if generate is None:
        return _cut(_asked(trace, name, **asked), keep_special)
    whole = model.trace(input_ids=[*trace.input_ids, *model.generate(trace, generate)])
    if asked.get("target", "predicted") != "predicted" or asked.get("query") is not None:
        raise InputError("generate= explains each token the model writes; leave target= and query= out.")
    results = []
    logits = model.logits(whole)
    for place in range(len(trace), len(whole)):
        given = {**asked, "query": place - 1, "target": whole.input_ids[place]}
        read = _asked(whole, name, **given)
        # A causal model has not seen what comes later, so only the tokens before count.
        results.append(
            replace(
                read,
                scores=read.scores[:place],
                tokens=read.tokens[:place],
                special=read.special[:place],
                words=None,
                info={**read.info, "generated": whole.tokens[place], "prediction": named(model, logits[place - 1], k=5)},
            )
        )
    return [_cut(read, keep_special) for read in results]


def _asked(trace: Trace, name: str, **asked: Any) -> Attribution:
    """`attribute`; a map method explains a position whatever the target, so it is not told of one."""
    if name in known_maps():
        asked = {key: value for key, value in asked.items() if key not in ("target", "foil", "score", "label")}
    result: Attribution = attribute(trace, name, **asked)
    return result


def _cut(read: Attribution, keep_special: bool) -> Attribution:
    return read if keep_special else without_special(read)


def _row(trace: Trace, query: int | str | None) -> int:
    from .aggregate import find

    return trace.query if query is None else find(trace.tokens, query)


def _from_map(trace: Trace, name: str, *, query: Any, layer: int | None, variant: str | None, **options: Any) -> Attribution:
    made = mix(trace, name, variant=variant, **options)
    read = rolled_row(made, _row(trace, query), layer=-1 if layer is None else layer)
    return Attribution(read.scores, read.tokens, name, {**read.info, "prediction": trace.prediction()}, read.special, read.words)
