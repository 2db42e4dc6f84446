"""What the questions of the page compute: why, what flows where, methods compared, written words; each also as a whole
file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..answers import Why, why
from ..answers.case import methods_for
from ..answers.generation.explaining import explain_written, write
from ..answers.names import name_of
from ..answers.value import Note
from ..base.errors import InputError
from ..base.parts import said
from ..base.words import words_in
from ..model.model import Model
from ..scoring.asking import parse_method
from ..show.flow_page import counted_number, flow_data, flow_page, flow_results, picture_of
from ..show.generation_page import content_of, generation_page
from ..show.page_file import MEGABYTES, room_of
from ..show.report import compared, gather
from ..show.results_page import Told, page_of_texts
from ..show.why_page import shown_why, why_page
from ..types import Trace

QUESTIONS = ("maps", "why", "flow", "methods", "written")
WRITES = 20  # tokens that a model writes, unless asked for another number
MOST_WRITTEN = 64
FLOW_METHOD = WRITTEN_METHOD = "alti"


@dataclass(frozen=True)
class Answered:
    """An answer as the page reads it, and as one file that opens from disk."""

    content: Mapping[str, Any]
    file: str


class Track(Protocol):
    """Who follows a job."""

    def plan(self, steps: Sequence[str]) -> None: ...

    def next(self, text: str | None = None) -> None: ...

    def know(self, predictions: Sequence[tuple[str, float]]) -> None: ...


def answered(model: Model, question: str, asked: Mapping[str, Any], track: Track) -> Answered:
    """The answer to a question about one text. `track` is told every step before it begins."""
    return {"why": _why, "flow": _flow, "methods": _methods, "written": _written}[question](model, asked, track)


def steps_of(question: str, names: Sequence[str], tokens: int) -> list[str]:
    """The steps of a question in words, before any is done."""
    first = [f"Read the text: {tokens} tokens", "Run the model"]
    methods = [name_of(parse_method(name).name).everyday for name in names]
    last = {
        "why": [*methods, "Take the top words out, then random words"],
        "methods": [*methods, "Take the top words out, then random words", "Every method, layer by layer"],
        "flow": ["Follow the words through the layers", "Draw the bands"],
        "written": ["Write the text", "What each written word rests on", "Leave words of the prompt out"],
    }
    return first + last[question]


def _traced(model: Model, asked: Mapping[str, Any], track: Track) -> Trace:
    """The text, run once. What the model says is known from here on."""
    track.next()
    track.next()
    trace = model.trace(asked["text"])
    pieces = words_in(trace)
    words, marks = ([one for one in pieces if not one.special and one.mark is is_mark] for is_mark in (False, True))
    found = " and ".join([counted_number(len(words), "word"), *([counted_number(len(marks), "mark")] if marks else [])])
    track.next(f"Read the text: {len(trace)} tokens, {found}")
    return trace


def _predicted(trace: Trace, track: Track) -> None:
    if trace.model.task in ("classification", "causal-lm") or trace.predicts:
        track.know(trace.prediction())


# --- why, and methods compared ----------------------------------------------------------------------------------------


def _answer(model: Model, asked: Mapping[str, Any], track: Track) -> tuple[Trace, Why, list[str]]:
    names = methods_of(model, asked["methods"], asked["tokens"])
    track.plan(steps_of(asked["question"], names, asked["tokens"]))
    trace = _traced(model, asked, track)
    _predicted(trace, track)
    begun = iter([True])  # the first method, when the model had run

    def step(_: str) -> None:
        if not next(begun, False):
            track.next()

    choices = {name: asked[name] for name in ("target", "foil", "query", "filler")}
    methods = compared(model, len(trace)) if asked["methods"] is None else asked["methods"]
    answer = why(model, trace, methods=methods, progress=step, **choices)
    if asked["cut"]:
        answer = replace(answer, notes=(*answer.notes, Note("cut", "caution", said(asked["cut"]))))
    return trace, answer, names


def _why(model: Model, asked: Mapping[str, Any], track: Track) -> Answered:
    _, answer, _ = _answer(model, asked, track)
    return Answered({"kind": "why", "why": answer.to_dict(), "page": shown_why(answer)}, why_page(answer))


def _methods(model: Model, asked: Mapping[str, Any], track: Track) -> Answered:
    """The answer with its methods first; the file has the maps of every method too."""
    trace, answer, names = _answer(model, asked, track)
    track.next()
    goal = {"target": "predicted" if asked["target"] is None else asked["target"], "foil": asked["foil"]}
    results = gather(model, trace, names, query=asked["query"], **goal)
    told = Told(results, why=answer)
    return Answered(
        {"kind": "methods", "why": answer.to_dict(), "page": shown_why(answer)},
        page_of_texts([told], room=room_of(MEGABYTES), preset="methods"),
    )


def methods_of(model: Model, chosen: Sequence[str] | None, tokens: int) -> list[str]:
    """The methods that an answer is made of: those that are chosen, else those of the task."""
    return list(chosen or compared(model, tokens) or methods_for(model))


# --- what flows where, written words ----------------------------------------------------------------------------------


def _flow(model: Model, asked: Mapping[str, Any], track: Track) -> Answered:
    track.plan(steps_of("flow", (), asked["tokens"]))
    trace = _traced(model, asked, track)
    _predicted(trace, track)
    method = (asked["methods"] or [FLOW_METHOD])[0]
    scores, heads = flow_results(model, trace, method=method, query=asked["query"])
    track.next()
    content = flow_data(picture_of(scores, heads=heads), room_of(MEGABYTES))
    return Answered({"kind": "flow", "flow": content}, flow_page(scores, heads=heads))


def _written(model: Model, asked: Mapping[str, Any], track: Track) -> Answered:
    track.plan(steps_of("written", (), asked["tokens"]))
    trace = _traced(model, asked, track)
    _predicted(trace, track)
    text = write(model, asked["text"], generate=asked["generate"])
    track.next()
    generation = explain_written(text, (asked["methods"] or [WRITTEN_METHOD])[0])
    track.next()
    generation = generation.with_effects()
    return Answered({"kind": "written", "generation": content_of(generation)}, generation_page(generation))


def refuse_question(model: Model, question: str, methods: Sequence[str] | None) -> None:
    """Refuse a question that this model cannot answer, or methods that it is not answered with."""
    if question == "written" and model.task != "causal-lm":
        raise InputError(
            f"{model.name!r} writes no text, so there are no written words. Ask another question: why, flow, methods."
        )
    if model.task == "base":
        raise InputError(
            f"{model.name!r} was loaded without a head, so it says nothing. Load it with --task, or ask for maps."
        )
    if methods is None or question not in ("flow", "written"):
        return
    if len(methods) != 1:
        raise InputError(f"this question is answered by one method, not by {len(methods)}. Choose one.")
    request = parse_method(methods[0])
    if question == "flow" and (not request.is_map or request.variant or request.options):
        raise InputError(f"what flows where is shown by a map, such as alti, not by {methods[0]!r}. Choose a map.")
