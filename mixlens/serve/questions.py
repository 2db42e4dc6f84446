"""From a request to a job: the model it names, the text, the methods and the target, each refused if it cannot be
done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    model, question = desk.models[name], request.question
    with _refusing(desk.limits):
        _refuse_unreadable(request, desk.limits)
        methods = None  # those of the task
        if question == "maps" or "methods" in request.model_fields_set:
            methods_within(request.methods, desk.limits.methods)
            methods = checked([clipped(method) for method in request.methods])
        text = _text(request)
        text, cut = desk.cut(name, text) if request.truncate else (text, None)
        tokens = _length(desk, name, text)
        missing = desk.notes(name, text)
        notes = [*([cut] if cut else []), *missing]
        if question == "maps":
            for option in ("filler", "generate"):
                if option in request.model_fields_set:
                    raise InputError(f"{option} goes with a question: send question too (why, flow, methods, written).")
            target = "predicted" if request.target is None else target_of(model, request.target)
            foil = None if request.foil is None else target_of(model, request.foil)
            maps = {"text": text, "methods": methods, "query": request.query, "target": target, "foil": foil}
            return desk.submit(name, maps, notes)
        refuse_question(model, question, methods)
        if question in ("why", "methods") and request.query is None and missing:
            mask = model.tokenizer.mask_token
            message = f"this model fills in {mask}, and the text has none. Put {mask} where a word is missing."
            raise Refusal(422, message, kind="no_mask", field="text", mask=mask)
        asked = {**_asked(model, request, methods), "text": text, "cut": cut, "tokens": tokens}
        return desk.submit(name, asked, notes, question)


def counted(desk: Desk, request: Counted) -> Count:
    """How many tokens a text has. An empty text has none; one that is no text is refused."""
    name = _model_name(desk, request)
    most, text = desk.tokens_at_most(desk.models[name]), _text(request)
    if not request.text.strip():
        return Count(tokens=0, most=most, notes=[])
    with _refusing(desk.limits):
        _refuse_unreadable(request, desk.limits)
        return Count(tokens=desk.count(name, text), most=most, notes=desk.notes(name, text))


def example_question(model: Model, text: str, tokens: int) -> dict[str, Any]:
    """An example, asked without any choice."""
    return {**_asked(model, Wanted.model_validate({"text": text}), None), "text": text, "cut": None, "tokens": tokens}


@contextmanager
def _refusing(limits: Limits) -> Iterator[None]:
    """An error of a request that cannot be done as the answer to it."""
    try:
        yield
    except LongError as error:
        raise Refusal(413, str(error), allowed=limits.characters) from None
    except MixlensError as error:
        raise Refusal(429 if isinstance(error, FullError) else 422, str(error)) from None


def _model_name(desk: Desk, request: Wanted | Counted) -> str:
    """The model that a request names, or the first."""
    name = next(iter(desk.models)) if request.model is None else request.model
    if name not in desk.models:
        message = f"no model {clipped(name)!r} is served. {nearest(name[:80], desk.models)}"
        raise Refusal(404, message, allowed=list(desk.models))
    return name


def _text(request: Wanted | Counted) -> Any:
    return request.text if request.pair is None else (request.text, request.pair)


def _refuse_unreadable(request: Wanted | Counted, limits: Limits) -> None:
    """Refuse texts that are too long, empty, or no text."""
    readable(request.text, "text", most=limits.characters)
    if request.pair is not None:
        readable(request.pair, "pair", most=limits.characters)


def _asked(model: Model, request: Wanted, methods: list[str] | None) -> dict[str, Any]:
    """What is asked of a text, beside the text. A class that is not known is refused at once."""
    filler_for(model, request.filler)
    goal = {}
    for role in ("target", "foil"):
        name = getattr(request, role)
        goal[role] = None if name is None else target_of(model, name)
        if name is not None and model.task.endswith("classification"):
            try:
                goal[role] = output_id(model, goal[role], role)
            except InputError as error:
                raise Refusal(422, str(error), kind="unknown_class", field=role) from None
    return {
        "methods": methods,
        **goal,
        "query": request.query,
        "filler": request.filler,
        "generate": request.generate,
    }


def _length(desk: Desk, name: str, text: Any) -> int:
    """The tokens of a text; one that is too long is refused with both numbers."""
    try:
        return desk.read(name, text)
    except InputError as error:
        count, most = desk.count(name, text), desk.tokens_at_most(desk.models[name])
        if count <= most:
            raise
        raise Refusal(422, str(error), kind="too_long", field="text", tokens=count, most=most) from None


def target_of(model: Model, name: str | int) -> Any:
    """A class, a word or an id; of a question-answering model `start,end`."""
    places = str(name).split(",")
    if model.task == "question-answering" and len(places) == 2 and all(place.strip().isdigit() for place in places):
        return int(places[0]), int(places[1])
    return int(name) if isinstance(name, str) and name.isdigit() else name
