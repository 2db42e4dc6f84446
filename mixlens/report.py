"""`report`: results, a model and texts, or a run to one HTML file. `gather`: several methods on one text, and the prediction."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .aggregate import find
from .asking import parse_method
from .attributions import attribute
from .corpus import Run
from .corpus.page import page_of
from .errors import InputError, methods_within
from .maps import mix
from .model.model import Model
from .model.predict import named
from .notices import notices_of
from .show.page_file import MEGABYTES, may_write, room_of, write
from .show.results_page import page
from .targets import TargetName, logits_at
from .types import Attribution, Example, LayersOf, Map, Prediction, Result, Texts, Trace

METHODS = ("alti", "globenc", "value_zeroing")
Note = Callable[[str, float], None]  # what is being done, and how far it is from 0 to 1


class _Watched(LayersOf):
    """Layers that tell when they are asked for: a map asks for one after the other."""

    def __init__(self, whole: LayersOf, seen: Callable[[int], None]):
        super().__init__(whole.batch, whole.row, whole.n)
        self.seen = seen

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self.seen(index)
        return super().__getitem__(index)


def gather(
    model: Model,
    text: str | Example | tuple[str, str],
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
    wanted = [parse_method(one) for one in checked(methods)]
    if (target != "predicted" or foil is not None) and not any(one.class_specific for one in wanted):
        raise InputError(
            "a target goes with a method that explains a prediction, such as attcat; maps explain a position: give query=."
        )
    say: Note = note or (lambda doing, share: None)
    say("running the model", 0.0)
    trace: Trace = model.trace(text)
    place = _read_at(trace, query)
    prediction = _prediction(trace, None if query is None else place)
    noticed = notices_of(model, trace, query=query)
    results: list[Result] = []
    for number, one in enumerate(wanted):
        begun = number / len(wanted)
        say(one.name, begun)
        if one.is_map:
            watched = trace
            if isinstance(trace.layers, LayersOf):
                depth = len(trace.layers)

                def seen(index: int, name: str = one.name, begun: float = begun, depth: int = depth) -> None:
                    say(f"{name}, layer {index % depth + 1} of {depth}", begun + index % depth / depth / len(wanted))

                watched = replace(trace, layers=_Watched(trace.layers, seen))
            made: Map = mix(watched, one.name, variant=one.variant, **one.options)
            told = {"prediction": prediction, "query": place, "query_token": trace.tokens[place]}
            told |= {"notices": noticed} if noticed else {}
            if one.rollout is not None:
                told["convention"] = one.rollout
            results.append(replace(made, info={**made.info, **told}))
        else:
            asked_of: dict[str, Any] = {"target": target, "foil": foil} if one.class_specific else {}
            read: Attribution = attribute(
                trace, one.name, query=None if query is None else place, variant=one.variant, **asked_of, **one.options
            )
            results.append(replace(read, info={**read.info, "prediction": prediction}))
    say("done", 1.0)
    return results


def checked(methods: str | Sequence[str]) -> list[str]:
    """Method names, one at least, each once, all of them known."""
    names = [name.strip() for name in ([methods] if isinstance(methods, str) else methods)]
    names = [name for name in dict.fromkeys(names) if name]
    methods_within(names)
    for name in names:
        parse_method(name)
    return names


def _read_at(trace: Trace, query: int | str | None) -> int:
    """The position the page begins with: with several masks and no query the first, as the prediction is."""
    if query is not None:
        try:
            return find(trace.tokens, query)
        except InputError:
            if isinstance(query, str) and query.lstrip("-").isdigit():
                return find(trace.tokens, int(query))
            raise
    return trace.predicts[0] if trace.model.task == "masked-lm" and trace.predicts else trace.query


def _prediction(trace: Trace, place: int | None) -> Prediction:
    if place is None or trace.logits is None or trace.model.task not in ("masked-lm", "causal-lm"):
        return trace.prediction()
    return named(trace.model, logits_at(trace, (place,)), k=5)


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
    megabytes: float = MEGABYTES,
    force: bool = False,
) -> Path:
    """Write one HTML file that shows results: a Map, an Attribution, a list of them, a model with `texts` and `methods`, or a
    whole run (a `Run`, or its folder), finished or not.

    The file opens from disk and needs no network. It takes at most `megabytes` for each text, or for a run: where not every
    number fits, maps are held less finely or left out, and the page says how. A file that is no report is not overwritten,
    unless `force`. Of a run, `label` is the carried column to compare predictions with, `examples` about how many rows it shows.
    """
    place = Path(path)
    may_write(place, force=force)
    room = room_of(megabytes)
    asked_of_a_model = texts is not None or methods is not None or foil is not None or query is not None or target != "predicted"
    if not isinstance(what, Model) and asked_of_a_model:
        raise InputError("texts=, methods=, target=, foil= and query= go with a model. Results are shown as they are.")
    folder = _folder(what)
    if folder is None and (label is not None or examples is not None):
        raise InputError("label= and examples= go with a run.")
    if folder is not None:
        made = page_of(folder, label=label, examples=examples, title=title, room=room)
    elif isinstance(what, Model):
        if texts is None:
            raise InputError("a report of a model needs texts=: one text, or a list of them.")
        every: Any = [texts] if isinstance(texts, str | Example | tuple) else list(texts)
        given: dict[str, Any] = {"target": target, "foil": foil, "query": query}
        chosen = METHODS if methods is None else methods
        results = [result for text in every for result in gather(what, text, chosen, **given)]
        made = page(results, title=title, room=room)
    else:
        results = [what] if isinstance(what, Map | Attribution) else _results(what)
        made = page(results, title=title, room=room)
    write(made, place)
    return place


def _folder(what: Any) -> Path | None:
    """The folder of a run, if one is meant."""
    if isinstance(what, Run):
        return what.out
    if isinstance(what, os.PathLike):
        return Path(what)
    return Path(what) if isinstance(what, str) and os.path.isdir(what) else None


def _results(what: Any) -> list[Result]:
    if isinstance(what, dict):
        what = list(what.values())  # as `mix` gives several methods
    if not isinstance(what, list | tuple):
        raise InputError(
            "a report shows a Map, an Attribution, a list of them, a model, or the folder of a run; "
            f"not {type(what).__name__}{f' ({what!r:.60} is no folder)' if isinstance(what, str) else ''}."
        )
    return list(what)
