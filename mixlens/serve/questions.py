"""From a request to a job: the model it names, the text, the methods and the target, each refused if it cannot be done."""

from __future__ import annotations

from typing import Any

from ..errors import LongError, MixlensError, methods_within, nearest, readable
from ..model.model import Model
from ..report import checked
from .guard import Refusal, clipped
from .jobs import Desk, FullError, Job, Limits
from .schemas import Wanted


def submitted(desk: Desk, request: Wanted) -> Job:
    """The job of a request, in the queue. A request that cannot be done is refused at once."""
    if desk.full():
        raise Refusal(429, f"the queue is full: {desk.limits.queue} texts are waiting. Try again in a few seconds.")
    name = _model_name(desk, request)
    try:
        return _submit(desk, name, request)
    except MixlensError as error:
        raise _refusal_of(error, desk.limits) from None


def _model_name(desk: Desk, request: Wanted) -> str:
    """The model that a request names, or the first."""
    name = next(iter(desk.models)) if request.model is None else request.model
    if name not in desk.models:
        message = f"no model {clipped(name)!r} is served. {nearest(name[:80], desk.models)}"
        raise Refusal(404, message, allowed=list(desk.models))
    return name


def _submit(desk: Desk, name: str, request: Wanted) -> Job:
    _refuse_unreadable(request, desk.limits)
    methods_within(request.methods, desk.limits.methods)
    methods = checked([clipped(method) for method in request.methods])
    text = request.text if request.pair is None else (request.text, request.pair)
    desk.read(name, text)
    question = {"text": text, "methods": methods, "query": request.query, **_targets(desk.models[name], request)}
    return desk.submit(name, question, desk.notes(name, text))


def _refuse_unreadable(request: Wanted, limits: Limits) -> None:
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
