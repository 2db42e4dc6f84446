"""`report`: results, a model and texts, or a run to one HTML file. `gather`: several methods on one text, and the
prediction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..answers import why
from ..answers.case import CHOICES, methods_for
from ..answers.generation import Generation
from ..base.doors import door
from ..base.errors import InputError, methods_within
from ..base.paths import path_of
from ..base.steps import listening
from ..model.model import Model
from ..model.predict import named
from ..runs.corpus import Run, maps, overview
from ..runs.corpus.page_facts import EXAMPLES
from ..runs.corpus.shards import shard_files
from ..scoring.aggregate import find
from ..scoring.asking import MethodRequest, parse_method
from ..scoring.attributions import attribute
from ..scoring.maps import mix
from ..scoring.notices import notices_of
from ..scoring.targets import TargetName, logits_at
from ..types import Attribution, Example, LayersOf, Map, Result, Texts, Trace
from . import run_page
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


@door
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
    note = note or (lambda doing, share: None)
    note(FIRST, 0.0)
    trace = text if isinstance(text, Trace) else model.trace(text)
    place = _place_read(trace, query)
    prediction = trace.prediction()
    if query is not None and trace.logits is not None and trace.model.task in ("masked-lm", "causal-lm"):
        prediction = named(trace.model, logits_at(trace, (place,)), k=5)
    facts = {"prediction": prediction, "query": place, "query_token": trace.tokens[place]}
    if notices := notices_of(model, trace, query=query):
        facts["notices"] = notices
    asked = {"query": None if query is None else place}
    goal = {"target": target, "foil": foil}
    results: dict[int, Result] = {}
    groups = _groups(requests)
    for number, group in enumerate(groups):
        doing = ", ".join(requests[at].name for at in group)
        say = partial(_say, note, doing, number, len(groups))
        say()
        first = requests[group[0]]
        if first.is_map:  # each layer is decomposed and proven once for all of them
            watched = _watched(trace, say)
            maps = mix(watched, [requests[at].name for at in group], variant=first.variant, **first.options)
            for at in group:
                scores, way = maps[requests[at].name], requests[at].rollout
                convention = {} if way is None else {"convention": way}
                results[at] = replace(scores, info={**scores.info, **facts, **convention})
        else:
            options = {**asked, **(goal if first.class_specific else {}), **first.options}
            with listening(lambda within, say=say: say(within.share, within.text)):  # type: ignore[misc]
                read: Attribution = attribute(trace, first.name, variant=first.variant, **options)
            results[group[0]] = replace(read, info={**read.info, "prediction": prediction})
    note("done", 1.0)
    return [results[number] for number in range(len(requests))]


def _say(note: Note, doing: str, number: int, count: int, share: float = 0.0, within: str = "") -> None:
    """One of `count` steps of the work, and how far it is within itself."""
    note(f"{doing}, {within}" if within else doing, (number + share) / count)


def _watched(trace: Trace, say: Callable[[float, str], None]) -> Trace:
    """The trace, which says of each layer that it is read."""
    depth = len(trace.layers)
    if not isinstance(trace.layers, LayersOf):
        return trace
    read = lambda layer: say(layer % depth / depth, f"layer {layer % depth + 1} of {depth}")  # noqa: E731
    return replace(trace, layers=WatchedLayers(trace.layers, read))


def _groups(requests: Sequence[MethodRequest]) -> list[list[int]]:
    """The numbers of requests that are answered at once: maps with the same variant and options, and each
    attribution."""
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(request.call_key if request.is_map else f"{number}", []).append(number)
    return list(groups.values())


def steps_of(methods: str | Sequence[str] = METHODS) -> list[str]:
    """The steps that `gather` notes as they begin, in order."""
    requests = [parse_method(name) for name in checked(methods)]
    return [FIRST, *(", ".join(requests[at].name for at in group) for group in _groups(requests))]


def _refuse_target(requests: Sequence[MethodRequest], target: TargetName, foil: str | int | None) -> None:
    if (target, foil) != ("predicted", None) and not any(request.class_specific for request in requests):
        raise InputError(
            "a target goes with a method that explains a prediction, such as attcat; "
            "maps explain a position: give query=."
        )


def checked(methods: str | Sequence[str]) -> list[str]:
    """Method names, one at least, each once, all of them known."""
    written = [methods] if isinstance(methods, str) else methods
    names = list(filter(None, dict.fromkeys(name.strip() for name in written)))
    methods_within(names)
    for name in names:
        parse_method(name)
    return names


def _place_read(trace: Trace, query: int | str | None) -> int:
    """The position the page begins with: with several masks and no query the first, as the prediction is. Digits that
    are no token of the text are an index."""
    if query is None:
        return trace.predicts[0] if trace.model.task == "masked-lm" and trace.predicts else trace.query
    try:
        return find(trace.tokens, query)
    except InputError:
        if isinstance(query, str) and query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


@door
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
    """Write one HTML file that shows results: a Map, an Attribution, a list of them, a Generation, a model with `texts`
    and `methods`, or a whole run (a `Run`, or its folder), finished or not.

    The file opens from disk and needs no network. It takes at most `megabytes` for each text, or for a run: where not
    every number fits, maps are held less finely or left out, and the page says how. A file that is no report is not
    overwritten, unless `force`. A model's page opens on the answer to why; `preset` says what it is for: "why" (the
    answer alone, no maps), "flow" (what flows where) or "methods" (all methods beside each other). Of a run, `label` is
    the carried column to compare predictions with, `examples` about how many rows it shows.
    """
    place, room = path_of(path), room_of(megabytes)
    may_write(place, force=force)
    refuse_preset(preset)
    asks = any(one is not None for one in (texts, methods, foil, query)) or target != "predicted"
    if not isinstance(what, Model) and asks:
        raise InputError("texts=, methods=, target=, foil= and query= go with a model. Results are shown as they are.")
    folder = what.out if isinstance(what, Run) else None
    if isinstance(what, os.PathLike) or (isinstance(what, str) and os.path.isdir(what)):
        folder = Path(what)
    if isinstance(what, Generation):
        html = generation_page(what.with_effects() if what.whole is not None else what, title=title)
    elif folder is not None:
        facts = overview(folder, label=label, examples=EXAMPLES if examples is None else examples)
        kept = partial(maps, folder) if shard_files(folder, "maps") else None
        html = run_page.page(facts, maps=kept, title=title, room=room)
    elif label is not None or examples is not None:
        raise InputError("label= and examples= go with a run.")
    elif isinstance(what, Model):
        choices = {"methods": methods, "target": target, "foil": foil, "query": query}
        html = _page_of_model(what, _texts(texts), choices, preset=preset, title=title, room=room)
    else:
        html = page(_several(what), preset=preset, title=title, room=room)
    write(html, place)
    return place


def refuse_preset(preset: str | None) -> None:
    if preset is not None and preset not in PRESET_METHODS:
        raise InputError(f"preset is one of {', '.join(PRESET_METHODS)}, not {preset!r}.")


def _texts(texts: Texts | None) -> list[Any]:
    """One text or several as a list."""
    if texts is None:
        raise InputError("a report of a model needs texts=: one text, or a list of them.")
    listed = [texts] if isinstance(texts, str | tuple) or not isinstance(texts, Iterable) else list(texts)
    if not listed:
        raise InputError("texts= is empty: give one text or more.")
    return listed


def _several(what: Any) -> list[Result]:
    """The results in a list, or in the mapping that `mix` gives for several methods."""
    if isinstance(what, Map | Attribution):
        return [what]
    results = list(what.values()) if isinstance(what, dict) else what
    if isinstance(results, list | tuple):
        return list(results)
    hint = f" ({what!r:.60} is no folder)" if isinstance(what, str) else ""
    raise InputError(
        "a report shows a Map, an Attribution, a list of them, a model, or the folder of a run; "
        f"not {type(what).__name__}{hint}."
    )


def _page_of_model(
    model: Model, texts: Sequence[Any], choices: Mapping[str, Any], *, preset: str | None, title: str | None, room: int
) -> str:
    """The page of a model on texts: of what flows where, of one text, the first map of the methods and the heads; else
    the answer and the results of the methods. Maps are shown where there is no answer, with why there is none."""
    usual = METHODS if preset is None else PRESET_METHODS[preset]
    methods = usual if choices["methods"] is None else checked(choices["methods"])
    if preset == "flow" and len(texts) == 1:
        _refuse_target([], choices["target"], choices["foil"])
        request = parse_method(methods[0])
        if not request.is_map or request.variant or request.options:
            raise InputError(f"a page of what flows where is made of a map, such as alti, not of {methods[0]!r}.")
        scores, heads = flow_results(model, texts[0], method=request.name, query=choices["query"])
        return flow_page(scores, heads=heads, rollout=request.rollout, megabytes=room / 1_000_000)
    told = []
    for text in texts:
        trace = model.trace(text)
        results = gather(model, trace, **{**choices, "methods": methods}) if methods else []
        # a position is asked about where words are predicted or tagged
        question = {**choices, "query": None if model.task in WHOLE_TEXT else choices["query"]}
        try:
            told.append(Told(results, why=why(model, trace, **{**question, "methods": compared(model, len(trace))})))
        except InputError as error:
            if not results:
                raise
            told.append(Told(results, unanswered=str(error)))
    return page_of_texts(told, preset=preset, title=title, room=room)


def compared(model: Model, tokens: int) -> list[str] | None:
    """The methods that an answer is compared with: of a long text without those that run the model once for each
    word."""
    if tokens <= LONG_TEXT or model.task not in CHOICES:
        return None
    return [name for name in methods_for(model) if parse_method(name).name not in ONCE_A_WORD]
