"""From a request to a job: the model it names, the text, the methods and the target, each refused if it cannot be done."""

from __future__ import annotations

from typing import Any

from ..errors import LongError, MixlensError, methods_within, nearest, readable
from ..model.model import Model
from ..report import checked
from .guard import Refusal, clipped
from .jobs import Desk, FullError, Job, Limits
from .schemas import Wanted


def submitted(desk: Desk, wanted: Wanted) -> Job:
    """The job of a request, in the queue. A request that cannot be done is refused at once."""
    if desk.full():
        raise Refusal(429, f"the queue is full: {desk.limits.queue} texts are waiting. Try again in a few seconds.")
    name = _model_name(desk, wanted)
    try:
        return _submit(desk, name, wanted)
    except MixlensError as error:
        raise _refusal_of(error, desk.limits) from None


def _model_name(desk: Desk, wanted: Wanted) -> str:
    """The model that a request names, or the first."""
    name = next(iter(desk.models)) if wanted.model is None else wanted.model
    if name not in desk.models:
        message = f"no model {clipped(name)!r} is served. {nearest(name[:80], desk.models)}"
        raise Refusal(404, message, allowed=list(desk.models))
    return name


def _submit(desk: Desk, name: str, wanted: Wanted) -> Job:
    _refuse_unreadable(wanted, desk.limits)
    methods_within(wanted.methods, desk.limits.methods)
    methods = checked([clipped(method) for method in wanted.methods])
    text = wanted.text if wanted.pair is None else (wanted.text, wanted.pair)
    desk.read(name, text)
    question = {"text": text, "methods": methods, "query": wanted.query, **_targets(desk.models[name], wanted)}
    return desk.submit(name, question, desk.notes(name, text))


def _refuse_unreadable(wanted: Wanted, limits: Limits) -> None:
    """Refuse texts that are too long, empty, or no text."""
    readable(wanted.text, "text", most=limits.characters)
    if wanted.pair is not None:
        readable(wanted.pair, "pair", most=limits.characters)


def _targets(model: Model, wanted: Wanted) -> dict[str, Any]:
    """What is to be explained, and against what."""
    target = "predicted" if wanted.target is None else target_of(model, wanted.target)
    return {"target": target, "foil": None if wanted.foil is None else target_of(model, wanted.foil)}


def target_of(model: Model, written: str | int) -> Any:
    """A class, a word or an id; of a question-answering model `start,end`."""
    if model.task == "question-answering" and (span := _span_of(str(written))) is not None:
        return span
    return int(written) if isinstance(written, str) and written.isdigit() else written


def _span_of(written: str) -> tuple[int, int] | None:
    """Two positions with a comma between them."""
    parts = written.split(",")
    is_span = len(parts) == 2 and all(part.strip().isdigit() for part in parts)
    return (int(parts[0]), int(parts[1])) if is_span else None


def _refusal_of(error: MixlensError, limits: Limits) -> Refusal:
    """The answer to a request that cannot be done."""
    if isinstance(error, LongError):
        return Refusal(413, str(error), allowed=limits.characters)
    return Refusal(429 if isinstance(error, FullError) else 422, str(error))
