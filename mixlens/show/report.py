"""`report`: results, a model and texts, or a run to one HTML file. `gather`: several methods on one text, and the prediction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..answers import Why, why
from ..answers.choice import CHOICES, methods_for
from ..answers.generation import Generation
from ..base.errors import InputError, methods_within
from ..base.paths import path_of
from ..base.steps import Step as MethodStep
from ..base.steps import listening
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..model.model import Model
from ..model.predict import named
from ..runs.corpus import Run
from ..runs.corpus.page import page_of
from ..scoring.aggregate import find
from ..scoring.asking import MethodRequest, parse_method
from ..scoring.attributions import attribute
from ..scoring.maps import mix
from ..scoring.notices import notices_of
from ..scoring.targets import TargetName, logits_at
from ..types import Attribution, Example, LayersOf, Map, Prediction, Result, Texts, Trace
from .flow_page import flow_page, flow_results
from .generation_page import generation_page
from .page_file import MEGABYTES, may_write, room_of, write
from .results_page import Told, page, page_of_texts

METHODS = ("alti", "globenc", "value_zeroing")
PRESET_METHODS: dict[str, tuple[str, ...]] = {  # what a page computes beside the answer, unless methods are named
    "why": (),
    "flow": ("alti",),
    "methods": (
        "integrated_gradients",
        "attcat",
        "grad_x_input",
        "alti",
        "globenc",
        "value_zeroing",
        "attention_rollout",
    ),
}
LONG_TEXT = 128  # tokens; above it an answer is not compared with methods that run the model once for each word
ONCE_A_WORD = frozenset({"blank_out"})
WHOLE_TEXT = ("classification", "question-answering")  # tasks whose answer is read from the whole text
FIRST = "running the model"  # the first step of `gather`
Note = Callable[[str, float], None]  # what is being done, and how far it is from 0 to 1


class WatchedLayers(LayersOf):
    """Layers that call `watcher` with the index of each layer that is read: a map reads one layer after the other."""

    def __init__(self, whole: LayersOf, watcher: Callable[[int], None]):
        super().__init__(whole.batch, whole.row, whole.n)
        self.watcher = watcher

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self.watcher(index)
        return super().__getitem__(index)


@wrong_kinds_in_one_line
def gather(
    model: Model,
    text: str | Example | tuple[str, str] | Trace,
    methods: str | Sequence[str] = METHODS,
    *,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    query: int | str | None = None,
    note: Note | None = None,
) -> list[Result]:
    """A Map for every map method and an Attribution for every other, of one text; each knows what the model predicts.

    A method is a name of `mixlens.methods()`, with options as in `alti:variant=released`. `target` and `foil` are what
    attributions explain; `query` is the position that is read, by default where the model predicts.
    """
    requests = [parse_method(name) for name in checked(methods)]
    _refuse_target(requests, target, foil)
    note = note or _silent
    note(FIRST, 0.0)
    trace = text if isinstance(text, Trace) else model.trace(text)
    gathering = _gathering(model, trace, query, {"target": target, "foil": foil})
    results = dict(_numbered(gathering, requests, note))
    note("done", 1.0)
    return [results[number] for number in range(len(requests))]


def steps_of(methods: str | Sequence[str] = METHODS) -> list[str]:
    """The steps that `gather` notes as they begin, in order."""
    requests = [parse_method(name) for name in checked(methods)]
    return [FIRST, *(_named([requests[i] for i in group]) for group in _groups(requests))]


def _named(requests: Sequence[MethodRequest]) -> str:
    return ", ".join(request.name for request in requests)


def _refuse_target(requests: Sequence[MethodRequest], target: TargetName, foil: str | int | None) -> None:
    if (target, foil) != ("predicted", None) and not any(request.class_specific for request in requests):
        raise InputError(
            "a target goes with a method that explains a prediction, such as attcat; maps explain a position: give query=."
        )


def _silent(doing: str, share: float) -> None:
    pass


@dataclass(frozen=True)
class Step:
    """One of the `count` steps of the work, for whoever wants to know how far it is."""

    note: Note
    name: str
    number: int
    count: int

    def say(self) -> None:
        self.note(self.name, self.number / self.count)

    def say_within(self, within: MethodStep) -> None:
        self.note(f"{self.name}, {within.text}", (self.number + within.share) / self.count)

    def say_layer(self, layer: int, depth: int) -> None:
        self.note(f"{self.name}, layer {layer + 1} of {depth}", (self.number + layer / depth) / self.count)


@dataclass(frozen=True)
class Gathering:
    """One trace, and what is asked about it. `facts` go with every map; of them the prediction goes with attributions too."""

    trace: Trace
    query: int | None  # None: where the model predicts
    goal: Mapping[str, Any]  # target and foil of methods that explain a class or a word
    facts: Mapping[str, Any]

    def results(self, requests: Sequence[MethodRequest], step: Step) -> Iterator[Result]:
        """The maps of requests that share a call, or the attribution of one request."""
        step.say()
        if requests[0].is_map:
            yield from self._maps(requests, step)
        else:
            with listening(step.say_within):
                found = list(map(self._attribution, requests))
            yield from found

    def _maps(self, requests: Sequence[MethodRequest], step: Step) -> Iterator[Map]:
        """The maps of requests with the same variant and options; each layer is decomposed and proven once for all of them."""
        names = [request.name for request in requests]
        maps = mix(_watched(self.trace, step), names, variant=requests[0].variant, **requests[0].options)
        return (self._map(maps[request.name], request) for request in requests)

    def _map(self, scores: Map, request: MethodRequest) -> Map:
        convention = {} if request.rollout is None else {"convention": request.rollout}
        return replace(scores, info={**scores.info, **self.facts, **convention})

    def _attribution(self, request: MethodRequest) -> Attribution:
        goal = self.goal if request.class_specific else {}
        options: dict[str, Any] = {"variant": request.variant, "query": self.query, **goal, **request.options}
        read: Attribution = attribute(self.trace, request.name, **options)
        return replace(read, info={**read.info, "prediction": self.facts["prediction"]})


def _gathering(model: Model, trace: Trace, query: int | str | None, goal: Mapping[str, Any]) -> Gathering:
    place = _place_read(trace, query)
    asked = None if query is None else place
    facts = {"prediction": _prediction(trace, asked), "query": place, "query_token": trace.tokens[place]}
    return Gathering(trace, asked, goal, {**facts, **_notices(model, trace, query)})


def _numbered(gathering: Gathering, requests: Sequence[MethodRequest], note: Note) -> Iterator[tuple[int, Result]]:
    """(number of a request, its result), one group of requests after the other."""
    groups = _groups(requests)
    for number, group in enumerate(groups):
        members = [requests[i] for i in group]
        step = Step(note, _named(members), number, len(groups))
        yield from zip(group, gathering.results(members, step), strict=True)


def _groups(requests: Sequence[MethodRequest]) -> list[list[int]]:
    """The numbers of requests that are answered at once: maps with the same variant and options, and each attribution."""
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        key = request.call_key if request.is_map else f"{number}"
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _watched(trace: Trace, step: Step) -> Trace:
    """The trace, whose step says which layer is read."""
    if not isinstance(trace.layers, LayersOf):
        return trace
    depth = len(trace.layers)
    return replace(trace, layers=WatchedLayers(trace.layers, lambda index: step.say_layer(index % depth, depth)))


def _notices(model: Model, trace: Trace, query: int | str | None) -> dict[str, Any]:
    notices = notices_of(model, trace, query=query)
    return {"notices": notices} if notices else {}


def checked(methods: str | Sequence[str]) -> list[str]:
    """Method names, one at least, each once, all of them known."""
    written = [methods] if isinstance(methods, str) else methods
    names = list(filter(None, dict.fromkeys(name.strip() for name in written)))
    methods_within(names)
    for name in names:
        parse_method(name)
    return names


def _place_read(trace: Trace, query: int | str | None) -> int:
    """The position the page begins with: with several masks and no query the first, as the prediction is."""
    if query is not None:
        return _place_of(trace, query)
    has_mask = trace.model.task == "masked-lm" and bool(trace.predicts)
    return trace.predicts[0] if has_mask else trace.query


def _place_of(trace: Trace, query: int | str) -> int:
    """The position of a token or an index; digits that are no token of the text are an index."""
    try:
        return find(trace.tokens, query)
    except InputError:
        if isinstance(query, str) and query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


def _prediction(trace: Trace, place: int | None) -> Prediction:
    if place is None or trace.logits is None or trace.model.task not in ("masked-lm", "causal-lm"):
        return trace.prediction()
    return named(trace.model, logits_at(trace, (place,)), k=5)


@wrong_kinds_in_one_line
def report(
    what: Model | Run | str | os.PathLike[str] | Result | Sequence[Result],
    path: str | os.PathLike[str],
    *,
    texts: Texts | None = None,
    methods: str | Sequence[str] | None = None,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    query: int | str | None = None,
    label: str | None = None,
    examples: int | None = None,
    title: str | None = None,
    preset: str | None = None,
    megabytes: float = MEGABYTES,
    force: bool = False,
) -> Path:
    """Write one HTML file that shows results: a Map, an Attribution, a list of them, a Generation, a model with `texts` and
    `methods`, or a whole run (a `Run`, or its folder), finished or not.

    The file opens from disk and needs no network. It takes at most `megabytes` for each text, or for a run: where not every
    number fits, maps are held less finely or left out, and the page says how. A file that is no report is not overwritten,
    unless `force`. A model's page opens on the answer to why; `preset` says what it is for: "why" (the answer alone, no maps),
    "flow" (what flows where) or "methods" (all methods beside each other). Of a run, `label` is the carried column to compare
    predictions with, `examples` about how many rows it shows.
    """
    place = path_of(path)
    may_write(place, force=force)
    room = room_of(megabytes)
    refuse_preset(preset)
    if not isinstance(what, Model):
        _refuse_question(texts, methods, foil, query, None if target == "predicted" else target)
    folder = _folder(what)
    if isinstance(what, Generation):
        html = generation_page(what.with_effects() if what.whole is not None else what, title=title)
    elif folder is not None:
        html = page_of(folder, label=label, examples=examples, title=title, room=room)
    else:
        _refuse_run_options(label, examples)
        choices = {"methods": methods, "target": target, "foil": foil, "query": query}
        html = _page(what, texts, choices, preset=preset, title=title, room=room)
    write(html, place)
    return place


def _refuse_question(*options: Any) -> None:
    if _has_any(options):
        raise InputError("texts=, methods=, target=, foil= and query= go with a model. Results are shown as they are.")


def _refuse_run_options(*options: Any) -> None:
    if _has_any(options):
        raise InputError("label= and examples= go with a run.")


def _has_any(options: Iterable[Any]) -> bool:
    return any(option is not None for option in options)


def _folder(what: Any) -> Path | None:
    """The folder of a run, if one is meant."""
    if isinstance(what, Run):
        return what.out
    is_folder = isinstance(what, str) and os.path.isdir(what)
    return Path(what) if is_folder or isinstance(what, os.PathLike) else None


def refuse_preset(preset: str | None) -> None:
    if preset is not None and preset not in PRESET_METHODS:
        raise InputError(f"preset is one of {', '.join(PRESET_METHODS)}, not {preset!r}.")


def _page(what: Any, texts: Texts | None, choices: Mapping[str, Any], **page_options: Any) -> str:
    """The page of a model on texts, or of results that were given."""
    if isinstance(what, Model) and page_options["preset"] == "flow" and len(_texts(texts)) == 1:
        return _flow(what, _texts(texts)[0], choices, page_options["room"])
    if isinstance(what, Model):
        return page_of_texts(_told(what, texts, choices, page_options["preset"]), **page_options)
    return page([what] if isinstance(what, Map | Attribution) else _several(what), **page_options)


def _flow(model: Model, text: Any, choices: Mapping[str, Any], room: int) -> str:
    """The page of what flows where, of one text: the first map of the methods, by default ALTI, and the heads."""
    _refuse_target([], choices["target"], choices["foil"])
    written = checked(choices["methods"] or PRESET_METHODS["flow"])[0]
    request = parse_method(written)
    if not request.is_map or request.variant or request.options:
        raise InputError(f"a page of what flows where is made of a map, such as alti, not of {written!r}.")
    scores, heads = flow_results(model, text, method=request.name, query=choices["query"])
    return flow_page(scores, heads=heads, rollout=request.rollout, megabytes=room / 1_000_000)


def _told(model: Model, texts: Texts | None, choices: Mapping[str, Any], preset: str | None) -> list[Told]:
    """What the page tells of each text: its answer, and the results of the methods."""
    usual = METHODS if preset is None else PRESET_METHODS[preset]
    methods = usual if choices["methods"] is None else checked(choices["methods"])
    return [_told_of(model, text, {**choices, "methods": methods}) for text in _texts(texts)]


def _texts(texts: Texts | None) -> list[Any]:
    """One text or several as a list."""
    if texts is None:
        raise InputError("a report of a model needs texts=: one text, or a list of them.")
    listed = [texts] if isinstance(texts, str | tuple) or not isinstance(texts, Iterable) else list(texts)
    if not listed:
        raise InputError("texts= is empty: give one text or more.")
    return listed


def _told_of(model: Model, text: Any, choices: Mapping[str, Any]) -> Told:
    """One text. A report shows maps where there is no answer, and says why there is none; without methods that is a refusal."""
    trace = model.trace(text)
    results = gather(model, trace, **choices) if choices["methods"] else []
    try:
        return Told(results, why=_answer(model, trace, choices))
    except InputError as error:
        if not results:
            raise
        return Told(results, unanswered=str(error))


def _answer(model: Model, trace: Trace, choices: Mapping[str, Any]) -> Why:
    """Why the model says what it says; a position is asked about where words are predicted or tagged."""
    place = None if model.task in WHOLE_TEXT else choices["query"]
    return why(
        model, trace, target=choices["target"], foil=choices["foil"], query=place, methods=compared(model, len(trace))
    )


def compared(model: Model, tokens: int) -> list[str] | None:
    """The methods that an answer is compared with: of a long text without those that run the model once for each word."""
    if tokens <= LONG_TEXT or model.task not in CHOICES:
        return None
    return [name for name in methods_for(model) if parse_method(name).name not in ONCE_A_WORD]


def _several(what: Any) -> list[Result]:
    """The results in a list, or in the mapping that `mix` gives for several methods."""
    results = list(what.values()) if isinstance(what, dict) else what
    if isinstance(results, list | tuple):
        return list(results)
    hint = f" ({what!r:.60} is no folder)" if isinstance(what, str) else ""
    raise InputError(
        f"a report shows a Map, an Attribution, a list of them, a model, or the folder of a run; not {type(what).__name__}{hint}."
    )
