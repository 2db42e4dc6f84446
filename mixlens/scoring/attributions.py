"""`attribute`: Trace -> Attribution. Which input tokens one prediction rests on; and `explain`, which starts at a
text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..base.budget import is_out_of_memory
from ..base.doors import door
from ..base.errors import InputError, MixlensError, ModelError, is_integer, unknown_method
from ..base.rounding import working_dtype
from ..model.model import Model
from ..types import Attribution, Map, Trace
from .aggregate import find, rolled_row, without_special
from .completeness import warn_where_open
from .maps import listed, mix, through_quantized
from .notices import notices_in
from .provenance import provenance
from .questions import Batch, Question, share_passes
from .registry import ATTRIBUTIONS, AttributionMethod, Method, Scored, attribution, methods, refuse_all_heads, seek
from .registry import known_attributions as known
from .sequences import OWN, followed, usual_score
from .targets import TargetName, resolve

__all__ = [
    "ATTRIBUTIONS",
    "AttributionMethod",
    "Batch",
    "Question",
    "Scored",
    "attribute",
    "attribute_each",
    "attribution",
    "cut",
    "explain",
    "known",
    "refuse_other_model",
    "row_of_map",
]
GRAPH = 4  # a pass with its graph takes about four times the memory of a traced one: a quarter of the tokens go into it
OF_A_TARGET = ("target", "foil", "score", "label")  # options that a map method does not take
Answer = Attribution | MixlensError


@door
def attribute(
    traces: Trace | Sequence[Trace],
    name: str,
    *,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    score: str | None = None,
    label: str | int | None = None,
    query: int | str | None = None,
    layer: int | None = None,
    variant: str | None = None,
    **options: Any,
) -> Any:
    """Which input tokens the target rests on: an Attribution with signed scores. A list of traces gives a list.

    `target` is "predicted" (default), "gold" with `label`, a class, a token, a (target, foil) pair or a span; `score`
    is "logit" (default), "probability" or "log_probability". `layer=l` asks for the hidden states that enter layer l
    instead of the input embeddings. The name of a map method gives its rolled-out row at `query`.
    """
    aim = {"target": target, "foil": foil, "score": score, "label": label, "query": query, "layer": layer}
    many = listed(traces, "attribute")
    results = attribute_each(many, name, [aim] * len(many), variant=variant, **options)
    for result in results:
        if isinstance(result, MixlensError):
            raise result
        warn_where_open(result)
    return results[0] if isinstance(traces, Trace) else results


def attribute_each(
    traces: Sequence[Trace],
    name: str,
    aims: Sequence[Mapping[str, Any]],
    *,
    variant: str | None = None,
    tokens: int | None = None,
    **options: Any,
) -> list[Answer]:
    """`attribute` of many traces, each with its own target, query, ... (`aims`): an Attribution or the reason why
    there is none, for each.

    Traces of similar length share their forward and backward passes, about `tokens` tokens at a time (see
    `Model.trace`).
    """
    answers: dict[int, Answer] = {}
    questions: dict[int, Question] = {}
    asked: AttributionMethod | None = None
    arguments: Mapping[str, Any] = {}
    for i, (trace, aim) in enumerate(zip(traces, aims, strict=True)):
        try:
            method = seek(name)
            if method is None:
                raise unknown_method(name, methods())
            if aim.get("layer") is not None and not is_integer(aim["layer"]):
                raise InputError(f"a layer is a number, not {aim['layer']!r:.80}.")
            if isinstance(method, Method):
                rollout, rest = options.get("rollout"), {key: options[key] for key in options if key != "rollout"}
                scores = mix(trace, name, variant=variant, **rest)
                answers[i] = row_of_map(trace, scores, query=aim.get("query"), layer=aim.get("layer"), rollout=rollout)
            else:
                questions[i] = question_of(trace, method, Aim(**aim))
                asked, arguments = method, method.arguments(variant, options)
        except MixlensError as error:
            questions.pop(i, None)
            answers[i] = error
    with differentiable([question.model for question in questions.values()]):
        for batch in _batches(questions, tokens):  # a question is dropped when its batch is done, and so is its graph
            assert asked is not None
            answers |= zip(batch, _answers(asked, arguments, [questions.pop(i) for i in batch]), strict=True)
    return [answers[i] for i in range(len(traces))]


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aim:
    """What is to be explained about one trace, as the user writes it."""

    target: TargetName = "predicted"
    foil: str | int | None = None
    score: str | None = None
    label: str | int | None = None
    query: int | str | None = None
    layer: int | None = None


def question_of(trace: Trace, method: AttributionMethod, aim: Aim) -> Question:
    """What is asked about one trace, or refused."""
    depth, layer = len(trace.layers), aim.layer
    if layer is not None and not method.layers:
        raise InputError(f"{method.id!r} is not defined at single layers. Leave layer= out.")
    if layer is not None and not -depth - 1 <= layer <= depth:
        raise InputError(
            f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output)."
        )
    target = None
    if method.needs_target:
        trace = followed(trace, aim.target) if aim.query is None else trace
        score = aim.score or usual_score(trace.model, aim.target, method.score)
        target = resolve(trace, aim.target, foil=aim.foil, score=score, label=aim.label, query=aim.query)
    elif aim.foil is not None or aim.label is not None or aim.target != "predicted":
        raise InputError(
            f"{method.id!r} explains a position, not a class or token: it takes query=, not target=, foil= or label=."
        )
    if target and target.positions:
        place = target.positions[0]
    else:
        place = trace.query if aim.query is None else find(trace.tokens, aim.query)
    return Question(trace, target, None if layer is None else layer % (depth + 1), place, user_query=aim.query, mix=mix)


# --- how it is answered -----------------------------------------------------------------------------------------------


@contextmanager
def differentiable(models: Sequence[Model]) -> Iterator[None]:
    """Torch's default settings for gradients, whatever the caller has set: they are recorded, also under `no_grad` and
    `inference_mode`, in the model's precision, not that of `autocast`. A compiled module runs as it was written."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in {"cpu", *(model.device.type for model in models)}:
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _batches(questions: Mapping[int, Question], tokens: int | None) -> list[list[int]]:
    """Which questions share a batch: those of one model, of similar length."""
    by_model: dict[int, list[int]] = {}
    for i, question in questions.items():
        by_model.setdefault(id(question.model), []).append(i)
    batches = []
    for numbers in by_model.values():
        model = questions[numbers[0]].model
        room = (tokens or (2048 if model.device.type == "cpu" else 8192)) // GRAPH
        found = model.batches([questions[i].trace for i in numbers], None, max(1, room))
        batches += [[numbers[place] for place in batch] for batch in found]
    return batches


def _answers(method: AttributionMethod, arguments: Mapping[str, Any], questions: Sequence[Question]) -> list[Answer]:
    """One for each. A batch that does not fit into memory is halved, and its graph freed first."""
    share_passes(questions)
    answers: list[Answer] = []
    try:
        for question in questions:
            try:
                answers.append(_answer(method, arguments, question))
            except MixlensError as error:
                answers.append(error)
        return answers
    except (MemoryError, RuntimeError) as error:  # torch's error of this kind is a RuntimeError
        if not is_out_of_memory(error):
            model = questions[0].model
            if any(weights.is_inference() for weights in model.hf_model.parameters()):
                raise ModelError(
                    f"the weights of {model.name!r} were made under torch.inference_mode, so {method.id!r} cannot take "
                    "gradients through them. Load the model outside of it."
                ) from None
            raise
    if len(questions) == 1:
        return [InputError(f"memory runs out with {len(questions[0].trace)} tokens")]
    for question in questions:
        share_passes([question])
    if questions[0].model.device.type == "cuda":
        torch.cuda.empty_cache()
    half = len(questions) // 2
    return _answers(method, arguments, questions[:half]) + _answers(method, arguments, questions[half:])


def _answer(method: AttributionMethod, arguments: Mapping[str, Any], question: Question) -> Attribution:
    """The scores of one question, checked, and what they rest on."""
    trace, target, name = question.trace, question.resolved, method.id
    own = trace.info.get(OWN)  # of the text itself, also where tokens of a target stand behind it
    with through_quantized(trace.model, name):
        returned = method.function(question, **arguments)
    scores, extra = returned if isinstance(returned, tuple) else (returned, {})
    scores = scores.detach().cpu()
    scores = scores.to(working_dtype(scores.dtype))
    if tuple(scores.shape) != (len(trace),):
        raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)}; it must be {(len(trace),)}.")
    if not bool(torch.isfinite(scores).all()):
        raise MixlensError(f"method {name!r} gave a score that is not finite. No attribution is given.")
    info = {
        **provenance(trace),
        "method": name,
        "paper": method.paper,
        "variant": arguments.get("variant", method.variants[0]),
        "options": {key: value for key, value in arguments.items() if key != "variant"},
        "signed": method.is_signed(arguments.get("variant"), arguments),
        "target": None if target is None else target.name,
        "score": None if target is None else target.score,
        "query": question.query,
        "query_token": trace.tokens[question.query],
        "at_layer": question.layer,
        "prediction": trace.prediction() if own is None else own,
        **notices_in(trace, question.user_query),
    }
    return Attribution(scores, trace.tokens, name, {**info, **extra}, trace.special, trace.words)


def row_of_map(
    trace: Trace, scores: Map, *, query: int | str | None = None, layer: int | None = None, rollout: str | None = None
) -> Attribution:
    """The row of a trace's map at `query`, rolled out to `layer` (by default the last), as `attribute` gives it.

    For callers that have the map at hand: `attribute(trace, scores.method, ...)` would make it once more.
    """
    refuse_all_heads(scores.method, scores.info.get("options") or {})
    place = trace.query if query is None else query
    row = rolled_row(scores, place, layer=-1 if layer is None else layer, convention=rollout)
    info = {**row.info, "prediction": trace.prediction(), **notices_in(trace, query)}
    return Attribution(row.scores, row.tokens, scores.method, info, row.special, row.words)


# --- from a text ------------------------------------------------------------------------------------------------------


def explain(model: Model, text: Any, name: str, *, keep_special: bool, **options: Any) -> Attribution:
    """`Model.explain`: trace, then `attribute`. In the place of a text it takes a Trace of the model, which is not
    run again. A map method explains a position whatever the target, so the target is left out."""
    refuse_other_model(model, text)
    trace = text if isinstance(text, Trace) else model.trace(text)
    if isinstance(name, str) and isinstance(seek(name), Method):
        options = {key: value for key, value in options.items() if key not in OF_A_TARGET}
    return cut(attribute(trace, name, **options), keep_special)


def refuse_other_model(model: Model, text: Any) -> None:
    """Refuse a trace of another model."""
    if isinstance(text, Trace) and text.model is not model:
        raise InputError(
            f"this trace is of {text.model.name!r}, not of {model.name!r}. Trace the text with the model explained."
        )


def cut(result: Attribution, keep_special: bool) -> Attribution:
    """The attribution, without its special tokens where they are not kept."""
    return result if keep_special else without_special(result)
