"""`attribute`: Trace -> Attribution. Which input tokens one prediction rests on. Methods are registered by `@attribution`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .aggregate import rolled_row, without_special
from .budget import is_out_of_memory
from .completeness import warn_where_open
from .continuing import continued
from .differentiable import differentiable
from .errors import InputError, MixlensError, ModelError, nearest
from .maps import known as known_maps
from .maps import mix, provenance, through_quantized
from .model.model import Model
from .model.predict import named
from .model.rerun import Attached
from .notices import notices_in
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

    def __init__(self, trace: Trace, target: Target | None, layer: int | None, query: int, *, asked: int | str | None = None):
        self.trace, self.model, self.layer, self.query = trace, trace.model, layer, query
        self.asked = asked  # the position that was named, if one was
        self._target = target
        self.batch = Batch([self])  # until it is asked together with others

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
        return self.batch.row(self)

    @property
    def value(self) -> Tensor:
        """The number to be explained, of `run`."""
        with torch.enable_grad():
            return self.target.of(self.run.output)[0]

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
        """d target / d tensor for tensors of `run`, each without its batch axis."""
        return self.batch.gradients(self, tensors)

    def values(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """The target's number for other inputs, [row]: each is {input_ids, attention_mask, token_type_ids} without padding."""
        stand_ins: Any = [SimpleNamespace(**row) for row in rows]
        step = self.model.batch_limit or max(1, min(64, TOGETHER // max(1, len(self.trace))))
        return torch.cat([self.target.of(self.model.outputs(stand_ins[i : i + step])) for i in range(0, len(rows), step)])


class Batch:
    """Questions that share one forward and one backward pass.

    Rows of a padded batch do not see each other, so the gradient of the sum of their targets holds the gradient of each.
    A question sees its own row alone, without padding, and need not know of the others.
    """

    def __init__(self, questions: Sequence[Question]):
        self._questions = [weakref.ref(question) for question in questions]  # no circle, so that the graph goes with them
        self._wholes: dict[int, tuple[Tensor, Tensor, tuple[slice, ...]]] = {}  # a row's tensor by its id, the batch's, where
        self._gradients: dict[int, Tensor] = {}

    @property
    def questions(self) -> list[Question]:
        return [question for there in self._questions if (question := there()) is not None]

    @cached_property
    def run(self) -> Attached:
        model = self.questions[0].model
        return model.run_attached(model.inputs([question.trace for question in self.questions]))

    def row(self, question: Question) -> Attached:
        """What the pass was for one question."""
        row, n, run = self.questions.index(question), len(question.trace), self.run
        hidden, weights = (slice(row, row + 1), slice(n)), (slice(row, row + 1), slice(None), slice(n), slice(n))

        def cut(whole: Tensor, where: tuple[slice, ...]) -> Tensor:
            part = whole if len(self._questions) == 1 else whole[where]
            self._wholes[id(part)] = (part, whole, where)
            return part

        kept = {name: getattr(run.output, name, None) for name in ("logits", "start_logits", "end_logits")}
        where = hidden[:1] if question.model.task == "classification" else hidden
        with torch.enable_grad():
            return Attached(
                output=SimpleNamespace(**{name: logits[where] for name, logits in kept.items() if logits is not None}),
                word=cut(run.word, hidden),
                summed=cut(run.summed, hidden),
                inputs=tuple(cut(one, hidden) for one in run.inputs),
                outputs=tuple(cut(one, hidden) for one in run.outputs),
                attention=tuple(cut(one, weights) for one in run.attention),
            )

    def gradients(self, question: Question, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Of the question's target. What one question asks for is made for all of them at once."""
        if not all(id(tensor) in self._wholes for tensor in tensors):  # something in between
            alone = torch.autograd.grad(question.value, tensors, retain_graph=True, allow_unused=True)
            return tuple(torch.zeros_like(t)[0] if g is None else g[0] for g, t in zip(alone, tensors, strict=True))
        asked = [self._wholes[id(tensor)] for tensor in tensors]
        new = {id(whole): whole for _, whole, _ in asked if id(whole) not in self._gradients}
        if new:
            total = torch.stack([one.value for one in self.questions]).sum()
            found = torch.autograd.grad(total, [*new.values()], retain_graph=True, allow_unused=True)
            for whole, gradient in zip(new.values(), found, strict=True):
                self._gradients[id(whole)] = torch.zeros_like(whole) if gradient is None else gradient
        return tuple(self._gradients[id(whole)][where][0] for _, whole, where in asked)


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
    asked: dict[str, Any] = {"target": target, "foil": foil, "score": score, "label": label, "query": query, "layer": layer}
    many = [traces] if isinstance(traces, Trace) else list(traces)
    made = attribute_each(many, name, [asked] * len(many), variant=variant, **options)
    found: list[Attribution] = []
    for one in made:
        if isinstance(one, MixlensError):
            raise one
        found.append(one)
    for one in found:
        warn_where_open(one)
    return found[0] if isinstance(traces, Trace) else found


def attribute_each(
    traces: Sequence[Trace],
    name: str,
    asked: Sequence[Mapping[str, Any]],
    *,
    variant: str | None = None,
    tokens: int | None = None,
    **options: Any,
) -> list[Attribution | MixlensError]:
    """`attribute` of many traces, asked each in its own way: an Attribution or the reason why there is none, for each.

    Traces of similar length share their forward and backward passes, about `tokens` tokens at a time (see `Model.trace`).
    """
    made: list[Any] = [None] * len(traces)
    questions: dict[int, Question] = {}
    given: Mapping[str, Any] = {}
    for i, (trace, own) in enumerate(zip(traces, asked, strict=True)):
        try:
            if isinstance(name, str) and name in known_maps():
                made[i] = _from_map(trace, name, variant=variant, **_of_a_map(own), **options)
            else:
                questions[i] = _question(trace, name, **own)
                given = known()[name].arguments(variant, options)
        except MixlensError as error:
            made[i] = error
            questions.pop(i, None)
    with differentiable([question.model for question in questions.values()]):
        for some in _together(questions, tokens):
            for i, found in zip(some, _answers(name, [questions[i] for i in some], given), strict=True):
                made[i] = found
    return made


TOGETHER = 8192  # tokens of changed texts in one pass
GRAPH = 4  # a pass with its graph takes some four times the memory of a traced one, so a quarter of the tokens go into it


def _together(questions: Mapping[int, Question], tokens: int | None) -> Iterator[list[int]]:
    """Which share a batch: those of one model, of similar length."""
    for model in {id(question.model): question.model for question in questions.values()}.values():
        own = [i for i, question in questions.items() if question.model is model]
        room = tokens or (2048 if model.device.type == "cpu" else 8192)
        for batch in model.batches([questions[i].trace for i in own], None, max(1, room // GRAPH)):
            yield [own[i] for i in batch]


def _answers(name: str, questions: Sequence[Question], given: Mapping[str, Any]) -> list[Attribution | MixlensError]:
    """One for each. A batch that does not fit is halved."""
    batch = Batch(questions)
    for question in questions:
        question.batch = batch
        question.__dict__.pop("run", None)
    found: list[Attribution | MixlensError] = []
    try:
        for question in questions:
            try:
                found.append(_answer(name, question, given))
            except MixlensError as error:
                found.append(error)
        return found
    except (MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError
        if not isinstance(error, MemoryError) and not is_out_of_memory(error):
            weights = questions[0].model.hf_model.parameters()
            if not any(one.is_inference() for one in weights):
                raise
            raise ModelError(
                f"the weights of {questions[0].model.name!r} were made under torch.inference_mode, so {name!r} cannot take "
                "gradients through them. Load the model outside of it."
            ) from None
    if len(questions) == 1:
        return [InputError(f"memory runs out with {len(questions[0].trace)} tokens")]
    half = len(questions) // 2
    del batch
    if questions[0].model.device.type == "cuda":
        torch.cuda.empty_cache()
    return _answers(name, questions[:half], given) + _answers(name, questions[half:], given)


def _question(
    trace: Trace,
    name: str,
    *,
    target: Wanted = "predicted",
    foil: str | int | None = None,
    score: str | None = None,
    label: str | int | None = None,
    query: int | str | None = None,
    layer: int | None = None,
) -> Question:
    """What is asked about one trace, or refused."""
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool)):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    if name not in known():
        raise InputError(f"unknown method {name!r}. {nearest(str(name), [*known(), *known_maps()])}")
    used, depth = known()[name], len(trace.layers)
    if layer is not None and not used.layers:
        raise InputError(f"{name!r} is not defined at single layers. Leave layer= out.")
    if layer is not None and not -depth - 1 <= layer <= depth:
        raise InputError(f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output).")
    resolved = None
    if used.needs_target:
        resolved = resolve(trace, target, foil=foil, score=score or used.score, label=label, query=query)
    elif foil is not None or label is not None or target != "predicted":
        raise InputError(f"{name!r} explains a position, not a class or token: it takes query=, not target=, foil= or label=.")
    place = resolved.positions[0] if resolved and resolved.positions else _row(trace, query)
    return Question(trace, resolved, None if layer is None else layer % (depth + 1), place, asked=query)


def _answer(name: str, question: Question, given: Mapping[str, Any]) -> Attribution:
    used, trace, resolved = known()[name], question.trace, question._target
    with through_quantized(trace.model, name):
        made = used.function(question, **given)
    scores, extra = made if isinstance(made, tuple) else (made, {})
    scores = scores.detach().cpu()
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if tuple(scores.shape) != (len(trace),):
        raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)}; it must be {(len(trace),)}.")
    if not bool(torch.isfinite(scores).all()):
        raise MixlensError(f"method {name!r} gave a score that is not finite. No attribution is given.")
    info = {
        **provenance(trace),
        "method": name,
        "paper": used.paper,
        "variant": given.get("variant", used.variants[0]),
        "options": {key: value for key, value in given.items() if key != "variant"},
        "target": None if resolved is None else resolved.name,
        "score": None if resolved is None else resolved.score,
        "query": question.query,
        "query_token": trace.tokens[question.query],
        "at_layer": question.layer,
        "prediction": trace.prediction(),
        **notices_in(trace, question.asked),
        **extra,
    }
    return Attribution(scores, trace.tokens, name, info, trace.special, trace.words)


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
    text, words = continued(model, text, whole)
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
                words=None if words is None else words(place),
                info={
                    **read.info,
                    "generated": whole.tokens[place],
                    "prediction": named(model, logits[place - 1], k=5),
                    "text": text(place),
                    "pair": trace.pair,
                },
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


def _of_a_map(asked: Mapping[str, Any]) -> dict[str, Any]:
    layer = asked.get("layer")
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool)):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")
    return {"query": asked.get("query"), "layer": layer}


def _from_map(
    trace: Trace, name: str, *, query: Any, layer: int | None, variant: str | None, rollout: str | None = None, **options: Any
) -> Attribution:
    made = mix(trace, name, variant=variant, **options)
    read = rolled_row(made, _row(trace, query), layer=-1 if layer is None else layer, convention=rollout)
    info = {**read.info, "prediction": trace.prediction(), **notices_in(trace, query)}
    return Attribution(read.scores, read.tokens, name, info, read.special, read.words)
