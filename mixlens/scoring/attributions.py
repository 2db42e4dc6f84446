"""`attribute`: Trace -> Attribution. Which input tokens one prediction rests on; and `explain`, which starts at a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..base.budget import is_out_of_memory
from ..base.errors import InputError, MixlensError, ModelError, is_integer, unknown_method
from ..base.rounding import working_dtype
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..model.model import Model
from ..types import Attribution, Map, Trace
from .aggregate import find, rolled_row, without_special
from .completeness import warn_where_open
from .differentiable import differentiable
from .maps import listed, mix, through_quantized
from .notices import notices_in
from .provenance import provenance
from .questions import Batch, Question, share_passes
from .registry import ATTRIBUTIONS, AttributionMethod, Scored, attribution, known_maps, refuse_all_heads
from .registry import known_attributions as known
from .sequences import followed, own_prediction, usual_score
from .targets import Target, TargetName, resolve

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
GRAPH = (
    4  # a pass with its graph takes about four times the memory of a traced one, so a quarter of the tokens go into it
)
OF_A_TARGET = ("target", "foil", "score", "label")  # options that a map method does not take
Answer = Attribution | MixlensError


@wrong_kinds_in_one_line
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

    `target` is "predicted" (default), "gold" with `label`, a class, a token, a (target, foil) pair or a span; `score` is
    "logit" (default), "probability" or "log_probability". `layer=l` asks for the hidden states that enter layer l instead
    of the input embeddings. The name of a map method gives its rolled-out row at `query`.
    """
    aim = {"target": target, "foil": foil, "score": score, "label": label, "query": query, "layer": layer}
    many = listed(traces, "attribute")
    results = list(map(_or_raise, attribute_each(many, name, [aim] * len(many), variant=variant, **options)))
    for result in results:
        warn_where_open(result)
    return results[0] if isinstance(traces, Trace) else results


def _or_raise(answer: Answer) -> Attribution:
    if isinstance(answer, MixlensError):
        raise answer
    return answer


def attribute_each(
    traces: Sequence[Trace],
    name: str,
    aims: Sequence[Mapping[str, Any]],
    *,
    variant: str | None = None,
    tokens: int | None = None,
    **options: Any,
) -> list[Answer]:
    """`attribute` of many traces, each with its own target, query, ... (`aims`): an Attribution or the reason why there is
    none, for each.

    Traces of similar length share their forward and backward passes, about `tokens` tokens at a time (see `Model.trace`).
    """
    pairs = list(zip(traces, aims, strict=True))
    if isinstance(name, str) and name in known_maps():
        return [_read(trace, name, aim, variant, options) for trace, aim in pairs]
    calls: dict[int, tuple[Question, Call]] = {}
    answers: dict[int, Answer] = {}
    for i, (trace, aim) in enumerate(pairs):
        try:
            calls[i] = (
                _question(trace, name, Aim(**aim)),
                Call(known()[name], known()[name].arguments(variant, options)),
            )
        except MixlensError as error:
            answers[i] = error
    answers |= _answered(calls, tokens)
    return list(map(answers.__getitem__, range(len(traces))))


def _answered(calls: dict[int, tuple[Question, Call]], tokens: int | None) -> dict[int, Answer]:
    """The answers by the numbers of the questions. A question is dropped when its batch is done, and so is the batch's graph."""
    answers: dict[int, Answer] = {}
    with differentiable([question.model for question, _ in calls.values()]):
        for batch in _batches({i: question for i, (question, _) in calls.items()}, tokens):
            call = calls[batch[0]][1]
            answers |= zip(batch, _answers(call, [calls.pop(i)[0] for i in batch]), strict=True)
    return answers


# --- what is asked ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aim:
    """What is to be explained about one trace, as the user writes it."""

    target: TargetName = "predicted"
    foil: str | int | None = None
    score: str | None = None
    label: str | int | None = None
    query: int | str | None = None
    layer: int | None = None

    def of_a_target(self) -> bool:
        """Does it name a class or a token?"""
        return self.foil is not None or self.label is not None or self.target != "predicted"


@dataclass(frozen=True)
class Call:
    """A method and the arguments it is called with."""

    method: AttributionMethod
    arguments: Mapping[str, Any]


def _question(trace: Trace, name: str, aim: Aim) -> Question:
    """What is asked about one trace, or refused."""
    _refuse_other_than_number(name, aim.layer)
    if name not in known():
        raise unknown_method(name, [*known(), *known_maps()])
    method, depth = known()[name], len(trace.layers)
    _refuse_layer(method, aim.layer, depth)
    trace = followed(trace, aim.target) if method.needs_target and aim.query is None else trace
    target = _target(trace, method, aim)
    layer = None if aim.layer is None else aim.layer % (depth + 1)
    return Question(trace, target, layer, _place(trace, target, aim.query), user_query=aim.query, mix=mix)


def _place(trace: Trace, target: Target | None, query: int | str | None) -> int:
    """The position that is explained: the target's, else the user's query."""
    return target.positions[0] if target and target.positions else _position(trace, query)


def _refuse_other_than_number(name: Any, layer: Any) -> None:
    if not isinstance(name, str):
        raise InputError(f"a method is a name, not {name!r:.80}.")
    if layer is not None and not is_integer(layer):
        raise InputError(f"a layer is a number, not {layer!r:.80}.")


def _refuse_layer(method: AttributionMethod, layer: int | None, depth: int) -> None:
    if layer is None:
        return
    if not method.layers:
        raise InputError(f"{method.id!r} is not defined at single layers. Leave layer= out.")
    if not -depth - 1 <= layer <= depth:
        raise InputError(
            f"layer {layer} is out of range: hidden states are numbered 0 (input) to {depth} (final output)."
        )


def _target(trace: Trace, method: AttributionMethod, aim: Aim) -> Target | None:
    if method.needs_target:
        score = aim.score or usual_score(trace.model, aim.target, method.score)
        return resolve(trace, aim.target, foil=aim.foil, score=score, label=aim.label, query=aim.query)
    if aim.of_a_target():
        raise InputError(
            f"{method.id!r} explains a position, not a class or token: it takes query=, not target=, foil= or label=."
        )
    return None


def _position(trace: Trace, query: int | str | None) -> int:
    return trace.query if query is None else find(trace.tokens, query)


# --- how it is answered -------------------------------------------------------------------------------------------------


def _batches(questions: Mapping[int, Question], tokens: int | None) -> Iterator[list[int]]:
    """Which questions share a batch: those of one model, of similar length."""
    by_model: dict[int, dict[int, Question]] = {}
    for i, question in questions.items():
        by_model.setdefault(id(question.model), {})[i] = question
    return chain.from_iterable([_batches_of_model(of_model, tokens) for of_model in by_model.values()])


def _batches_of_model(questions: Mapping[int, Question], tokens: int | None) -> Iterator[list[int]]:
    """The numbers of the questions of one model that share a batch."""
    numbers, traces = list(questions), [question.trace for question in questions.values()]
    model = traces[0].model
    room = tokens or (2048 if model.device.type == "cpu" else 8192)
    return ([numbers[i] for i in batch] for batch in model.batches(traces, None, max(1, room // GRAPH)))


def _answers(call: Call, questions: Sequence[Question]) -> list[Answer]:
    """One for each. A batch that does not fit into memory is halved."""
    share_passes(questions)
    try:
        return [_answer_or_error(call, question) for question in questions]
    except (MemoryError, RuntimeError) as error:  # torch's error of this kind is a RuntimeError
        if not is_out_of_memory(error):
            _refuse_inference_weights(questions[0].model, call.method.id)
            raise
    return _answers_in_halves(call, questions)


def _answers_in_halves(call: Call, questions: Sequence[Question]) -> list[Answer]:
    """`_answers` of a batch that did not fit into memory; its graph is freed first."""
    if len(questions) == 1:
        return [InputError(f"memory runs out with {len(questions[0].trace)} tokens")]
    for question in questions:
        share_passes([question])  # which frees the graph of the batch
    if questions[0].model.device.type == "cuda":
        torch.cuda.empty_cache()
    half = len(questions) // 2
    return _answers(call, questions[:half]) + _answers(call, questions[half:])


def _answer_or_error(call: Call, question: Question) -> Answer:
    try:
        return _answer(call, question)
    except MixlensError as error:
        return error


def _refuse_inference_weights(model: Model, name: str) -> None:
    if any(weights.is_inference() for weights in model.hf_model.parameters()):
        raise ModelError(
            f"the weights of {model.name!r} were made under torch.inference_mode, so {name!r} cannot take gradients through "
            "them. Load the model outside of it."
        ) from None


def _answer(call: Call, question: Question) -> Attribution:
    trace, name = question.trace, call.method.id
    with through_quantized(trace.model, name):
        result = call.method.function(question, **call.arguments)
    scores, extra = result if isinstance(result, tuple) else (result, {})
    scores = scores.detach().cpu()
    scores = scores.to(working_dtype(scores.dtype))
    _refuse_scores(name, scores, len(trace))
    return Attribution(scores, trace.tokens, name, {**_info(call, question), **extra}, trace.special, trace.words)


def _refuse_scores(name: str, scores: Tensor, n: int) -> None:
    if tuple(scores.shape) != (n,):
        raise MixlensError(f"method {name!r} returned shape {tuple(scores.shape)}; it must be {(n,)}.")
    if not bool(torch.isfinite(scores).all()):
        raise MixlensError(f"method {name!r} gave a score that is not finite. No attribution is given.")


def _info(call: Call, question: Question) -> dict[str, Any]:
    """What the scores rest on."""
    trace, target, method = question.trace, question.resolved, call.method
    return {
        **provenance(trace),
        "method": method.id,
        "paper": method.paper,
        "variant": call.arguments.get("variant", method.variants[0]),
        "options": {key: value for key, value in call.arguments.items() if key != "variant"},
        "signed": method.is_signed(call.arguments.get("variant"), call.arguments),
        "target": None if target is None else target.name,
        "score": None if target is None else target.score,
        "query": question.query,
        "query_token": trace.tokens[question.query],
        "at_layer": question.layer,
        "prediction": own_prediction(trace),
        **notices_in(trace, question.user_query),
    }


# --- rows of maps -------------------------------------------------------------------------------------------------------


def _read(trace: Trace, name: str, aim: Mapping[str, Any], variant: str | None, options: Mapping[str, Any]) -> Answer:
    """The trace's map by a map method, rolled out and read at the query; or why there is none."""
    query, layer = aim.get("query"), aim.get("layer")
    settings = {key: value for key, value in options.items() if key != "rollout"}
    try:
        _refuse_other_than_number(name, layer)
        scores = mix(trace, name, variant=variant, **settings)
        return row_of_map(trace, scores, query=query, layer=layer, rollout=options.get("rollout"))
    except MixlensError as error:
        return error


def row_of_map(
    trace: Trace, scores: Map, *, query: int | str | None = None, layer: int | None = None, rollout: str | None = None
) -> Attribution:
    """The row of a trace's map at `query`, rolled out to `layer` (by default the last), as `attribute` gives it.

    For callers that have the map at hand: `attribute(trace, scores.method, ...)` would make it once more.
    """
    refuse_all_heads(scores.method, scores.info.get("options") or {})
    row = rolled_row(scores, _position(trace, query), layer=-1 if layer is None else layer, convention=rollout)
    info = {**row.info, "prediction": trace.prediction(), **notices_in(trace, query)}
    return Attribution(row.scores, row.tokens, scores.method, info, row.special, row.words)


# --- from a text --------------------------------------------------------------------------------------------------------


def explain(model: Model, text: Any, name: str, *, keep_special: bool, **options: Any) -> Attribution:
    """`Model.explain`: trace, then `attribute`. In the place of a text it takes a Trace of the model, which is not run again."""
    refuse_other_model(model, text)
    trace = text if isinstance(text, Trace) else model.trace(text)
    return cut(_attribute(trace, name, options), keep_special)


def refuse_other_model(model: Model, text: Any) -> None:
    """Refuse a trace of another model."""
    if isinstance(text, Trace) and text.model is not model:
        raise InputError(
            f"this trace is of {text.model.name!r}, not of {model.name!r}. Trace the text with the model explained."
        )


def _attribute(trace: Trace, name: str, options: Mapping[str, Any]) -> Attribution:
    """`attribute`; a map method explains a position whatever the target, so the target is left out."""
    of_a_map = name in known_maps()
    known_options = {key: value for key, value in options.items() if not (of_a_map and key in OF_A_TARGET)}
    result: Attribution = attribute(trace, name, **known_options)
    return result


def cut(result: Attribution, keep_special: bool) -> Attribution:
    """The attribution, without its special tokens where they are not kept."""
    return result if keep_special else without_special(result)
