"""From a request to a job: the model it names, the text, the methods and the target, each refused if it cannot be done."""

from __future__ import annotations

from typing import Any

from ..answers.case import filler_for
from ..base.errors import InputError, LongError, MixlensError, methods_within, nearest, readable
from ..model.model import Model
from ..scoring.targets import output_id
from ..show.report import checked
from .guard import Refusal, clipped
from .jobs import Desk, FullError, Job, Limits
from .schemas import Count, Counted, Wanted
from .work import refuse_question


def submitted(desk: Desk, request: Wanted) -> Job:
    """The job of a request, in the queue. A request that cannot be done is refused at once."""
    if desk.full():
        raise Refusal(429, f"the queue is full: {desk.limits.queue} texts are waiting. Try again in a few seconds.")
    name = _model_name(desk, request)
    try:
        return _submit(desk, name, request)
    except MixlensError as error:
        raise _refusal_of(error, desk.limits) from None


def _model_name(desk: Desk, request: Wanted | Counted) -> str:
    """The model that a request names, or the first."""
    name = next(iter(desk.models)) if request.model is None else request.model
    if name not in desk.models:
        message = f"no model {clipped(name)!r} is served. {nearest(name[:80], desk.models)}"
        raise Refusal(404, message, allowed=list(desk.models))
    return name


def _submit(desk: Desk, name: str, request: Wanted) -> Job:
    _refuse_unreadable(request, desk.limits)
    methods = _methods(desk, request)
    text, cut = _text(desk, name, request)
    tokens = _length(desk, name, text)
    notes = [*([cut] if cut else []), *desk.notes(name, text)]
    if request.question == "maps":
        _refuse_answer_options(request)
        question = {"text": text, "methods": methods, "query": request.query, **_targets(desk.models[name], request)}
        return desk.submit(name, question, notes)
    refuse_question(desk.models[name], request.question, methods)
    _refuse_no_mask(desk, name, text, request)
    asked = _asked(desk.models[name], request, methods)
    return desk.submit(name, {**asked, "text": text, "cut": cut, "tokens": tokens}, notes, request.question)


def _asked(model: Model, request: Wanted, methods: list[str] | None) -> dict[str, Any]:
    """What is asked of a text, beside the text. Methods are None where those of the task are meant."""
    filler_for(model, request.filler)
    target, foil = (_known_target(model, request, role) for role in ("target", "foil"))
    return {
        "methods": methods,
        "target": target,
        "foil": foil,
        "query": request.query,
        "filler": request.filler,
        "generate": request.generate,
    }


def example_question(model: Model, text: str, tokens: int) -> dict[str, Any]:
    """An example, asked without any choice."""
    return {**_asked(model, Wanted.model_validate({"text": text}), None), "text": text, "cut": None, "tokens": tokens}


def _refuse_answer_options(request: Wanted) -> None:
    for name in ("filler", "generate"):
        if name in request.model_fields_set:
            raise InputError(f"{name} goes with a question: send question too (why, flow, methods, written).")


def _methods(desk: Desk, request: Wanted) -> list[str] | None:
    """The methods that are named; None where a question is left to those of the task."""
    if request.question != "maps" and "methods" not in request.model_fields_set:
        return None
    methods_within(request.methods, desk.limits.methods)
    return checked([clipped(method) for method in request.methods])


def _text(desk: Desk, name: str, request: Wanted) -> tuple[Any, str | None]:
    """The text, with its pair; one that is too long is cut if that is wanted, and a line says so."""
    text = request.text if request.pair is None else (request.text, request.pair)
    return desk.cut(name, text) if request.truncate else (text, None)


def _length(desk: Desk, name: str, text: Any) -> int:
    """The tokens of a text; one that is too long is refused with both numbers."""
    try:
        return desk.read(name, text)
    except InputError as error:
        count, most = desk.count(name, text), desk.tokens_at_most(desk.models[name])
        if count <= most:
            raise
        raise Refusal(422, str(error), kind="too_long", field="text", tokens=count, most=most) from None


def _refuse_no_mask(desk: Desk, name: str, text: Any, request: Wanted) -> None:
    """Refuse to say why of a text in which nothing is predicted."""
    if request.question in ("why", "methods") and request.query is None and desk.notes(name, text):
        mask = desk.models[name].tokenizer.mask_token
        message = f"this model fills in {mask}, and the text has none. Put {mask} where a word is missing."
        raise Refusal(422, message, kind="no_mask", field="text", mask=mask)


def _known_target(model: Model, request: Wanted, role: str) -> Any:
    """A class or word that is named; None for the predicted one. A class that is not known is refused at once."""
    name = getattr(request, role)
    if name is None:
        return None
    wanted = target_of(model, name)
    try:
        return wanted if not model.task.endswith("classification") else output_id(model, wanted, role)
    except InputError as error:
        raise Refusal(422, str(error), kind="unknown_class", field=role) from None


def counted(desk: Desk, request: Counted) -> Count:
    """How many tokens a text has. An empty text has none; one that is no text is refused."""
    name = _model_name(desk, request)
    try:
        if not request.text.strip():
            return Count(tokens=0, most=desk.tokens_at_most(desk.models[name]), notes=[])
        _refuse_unreadable(request, desk.limits)
        text = request.text if request.pair is None else (request.text, request.pair)
        return Count(
            tokens=desk.count(name, text), most=desk.tokens_at_most(desk.models[name]), notes=desk.notes(name, text)
        )
    except MixlensError as error:
        raise _refusal_of(error, desk.limits) from None


def _refuse_unreadable(request: Wanted | Counted, limits: Limits) -> None:
    """Refuse texts that are too long, empty, or no text."""
    readable(request.text, "text", most=limits.characters)
    if request.pair is not None:
        readable(request.pair, "pair", most=limits.characters)


def _targets(model: Model, request: Wanted) -> dict[str, Any]:
    """What is to be explained, and against what."""
    target = "predicted" if request.target is None else target_of(model, request.target)
    return {"target": target, "foil": None if request.foil is None else target_of(model, request.foil)}


def target_of(model: Model, name: str | int) -> Any:
    """A class, a word or an id; of a question-answering model `start,end`."""
    if model.task == "question-answering" and (span := _span_of(str(name))) is not None:
        return span
    return int(name) if isinstance(name, str) and name.isdigit() else name


def _span_of(name: str) -> tuple[int, int] | None:
    """Two positions with a comma between them."""
    parts = name.split(",")
    is_span = len(parts) == 2 and all(part.strip().isdigit() for part in parts)
    return (int(parts[0]), int(parts[1])) if is_span else None


def _refusal_of(error: MixlensError, limits: Limits) -> Refusal:
    """The answer to a request that cannot be done."""
    if isinstance(error, LongError):
        return Refusal(413, str(error), allowed=limits.characters)
    return Refusal(429 if isinstance(error, FullError) else 422, str(error))
