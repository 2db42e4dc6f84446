"""One text on a page: its tokens, its prediction, where its numbers come from, and the maps and scores of every method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..answers.names import UNSIGNED, name_of
from ..base.errors import InputError, printable
from ..scoring.conventions import CONVENTIONS, FROM_INPUT
from ..scoring.notices import noticed, off_sum
from ..types import Attribution, Map, Prediction, Result
from .heading import heading_line
from .packing import EXACT, Block, Precision, encode, fit
from .page_rows import about_entry, about_method, options_line, rolled
from .page_template import folder_name, plain, safe_json, visible, visible_or_none
from .tokens import MASKS, shown

BLOCK_ROOM = 200  # characters of what is said about each block of numbers
Entry = dict[str, Any]


def entry(results: Sequence[Result], *, room: int, more: Mapping[str, Any] | None = None) -> Entry:
    """What the page knows of one text. The maps share the room, in one precision. A page is made to be passed on: a model that
    lies in a folder is named by that folder alone. `more` are facts from elsewhere, such as the answer to why."""
    results = [_of_folder(result) for result in results]
    facts = {**_facts(results), **(more or {})}
    return {**facts, **_add_sheets(facts, results, room)}


def _of_folder(result: Result) -> Result:
    """The result with its model named by the last part of its folder."""
    name = result.info.get("model")
    return replace(result, info={**result.info, "model": folder_name(name)}) if isinstance(name, str) else result


def _facts(results: Sequence[Result]) -> Entry:
    """Everything of an entry but the numbers of its maps."""
    first, info = results[0], results[0].info
    text = visible(info.get("text") or " ".join(map(shown, first.tokens)))
    prediction = _prediction_of(results)
    return {
        "label": _label(info, text),
        "model": str(info.get("model", "?")),
        "text": text,
        "pair": visible_or_none(info.get("pair")),
        "tokens": list(map(shown, first.tokens)),
        "special": list(map(bool, first.special)) or [False] * len(first.tokens),
        "words": words_of(first),
        "causal": bool(info.get("causal")),
        "query": query_of(results),
        "question": question_of(results),
        "notices": notices_of(results),
        "scoreNotices": score_notices(results),
        "prediction": [[printable(word), float(probability)] for word, probability in prediction],
        "predicts": predicts(results, prediction),
        "about": about_entry(info, len(first.tokens)),
        "methods": list(map(method_of, results, labels(results))),
    }


# --- maps -------------------------------------------------------------------------------------------------------------


class Sheet(NamedTuple):
    """The rows of one map of one method, [layer x query, key]."""

    method: int
    name: str
    rows: np.ndarray


def _add_sheets(facts: Entry, results: Sequence[Result], room: int) -> Entry:
    """Puts the maps into the methods of an entry, as exactly as the room allows. Gives what the page says of their precision."""
    sheets = list(_sheets(results))
    size = len(safe_json(plain(facts)).encode()) + BLOCK_ROOM * (len(sheets) + 2)
    precision, blocks = fit([sheet.rows for sheet in sheets], max(0, room - size))
    for sheet, block in zip(sheets, blocks, strict=True):
        facts["methods"][sheet.method]["sheets"][sheet.name] = block
    return {"holds": _holds(precision, blocks), "precision": {"kind": precision.kind, "keep": precision.keep}}


def _sheets(results: Sequence[Result]) -> Iterator[Sheet]:
    """The sheets of all results."""
    for number, result in enumerate(results):
        for name, rows in sheets_of(result).items():
            yield Sheet(number, name, rows)


def _holds(precision: Precision, blocks: Sequence[Block]) -> str:
    """The sentence about the precision of an entry; without maps its scores are exact."""
    signed = any(block["signed"] for block in blocks)
    return precision.description(signed=signed) if blocks else EXACT.description()


def sheets_of(result: Result) -> dict[str, np.ndarray]:
    """The maps to keep, each [layer x query, key]: the layers by themselves, and rolled out from the input."""
    if isinstance(result, Attribution):
        return {}
    return {name: numpy_of(sheet).reshape(-1, len(sheet.tokens)) for name, sheet in _maps_of(result).items()}


def _maps_of(result: Map) -> dict[str, Map]:
    """The layers by themselves, and rolled out from the input, as far as there are such maps."""
    rollout = _rollout_of(result)
    if rollout is None:
        return {"layer": result}
    return {"layer": result, "rollout": rollout} if _has_layers(result) else {"rollout": rollout}


def _has_layers(result: Map) -> bool:
    """Whether the layers of a map are single layers, not everything from the input to a layer."""
    return result.info.get("rollout") is None and result.info.get("convention") != FROM_INPUT


def _rollout_of(result: Map) -> Map | None:
    """The map from the input to every layer; None where a row sums to 0, which cannot be rolled out."""
    try:
        return result if result.info.get("rollout") else result.rollout()
    except InputError:
        return None


def numpy_of(result: Result) -> np.ndarray:
    """The scores as a numpy array; half precision becomes float32."""
    scores = result.scores.detach().cpu()
    return scores.numpy() if scores.dtype.itemsize >= 4 else scores.float().numpy()


# --- names ------------------------------------------------------------------------------------------------------------


def _label(info: Mapping[str, Any], text: str) -> str:
    """How a list calls this text: its beginning; of a text that a model went on with, what it wrote and the end."""
    if info.get("generated") is None:
        return shortened(text, 79)
    return f"writes {shown(info['generated'])} after {shortened(text, 20, end=40)}"


def shortened(text: str, begin: int, *, end: int = 0) -> str:
    """A text of at most begin + end characters: its beginning, and its end."""
    return text if len(text) <= begin + end + 1 else f"{text[:begin]}…{text[len(text) - end :] if end else ''}"


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each result; where one method is there twice, with what tells them apart."""
    methods = [result.method for result in results]
    return numbered(
        [result.method if methods.count(result.method) == 1 else _longer_name(result) for result in results]
    )


def numbered(names: Sequence[str]) -> list[str]:
    """Names, with a number behind those that are there more than once."""
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _longer_name(result: Result) -> str:
    """The method with its variant, options, rollout and target."""
    info = result.info
    target = "" if info.get("target") is None else str(info["target"])
    parts = [str(info.get("variant") or ""), options_line(_set_options(info)), _rollout_name(result), target]
    return f"{result.method} ({', '.join(filter(None, parts))})"


def _set_options(info: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method that have a value."""
    return {key: value for key, value in (info.get("options") or {}).items() if value is not None}


def _rollout_name(result: Result) -> str:
    """How a map was rolled out; nothing for an attribution or a map of single layers."""
    return rolled(result.info["rollout"]) if isinstance(result, Map) and result.info.get("rollout") else ""


# --- methods ----------------------------------------------------------------------------------------------------------


def method_of(result: Result, label: str) -> dict[str, Any]:
    """What the page knows of one result, without the sheets of its map."""
    is_map = isinstance(result, Map)
    names = name_of(result.method)
    facts: dict[str, Any] = {
        "name": result.method,
        "label": label,
        "everyday": names.everyday,
        "short": names.name,
        "title": label
        if names.everyday == result.method
        else f"{names.everyday} · {_title_name(names.name, label, result.method)}",
        "signed": is_signed(result),
        "kind": "map" if is_map else "attribution",
        "line": heading_line(result.info, result.method),
        "about": about_method(result.info),
        "sheets": {},
    }
    return {**facts, **(_map_facts(result) if is_map else _attribution_facts(result))}


def _title_name(name: str, label: str, method: str) -> str:
    """The researcher's name; with what tells it from others of the same method."""
    return name if label == method else f"{name}{label.removeprefix(method)}"


def is_signed(result: Result) -> bool:
    """Whether scores say for or against. Attributions to a target do, unless they are sizes; others where a score is under 0."""
    to_target = isinstance(result, Attribution) and result.info.get("target") is not None
    return (to_target and result.method not in UNSIGNED) or bool((result.scores < 0).any())


def _map_facts(result: Result) -> dict[str, Any]:
    """What the page needs to roll out the layers of a map."""
    convention = CONVENTIONS.get(str(result.info.get("convention", "alti")), CONVENTIONS["alti"])
    return {
        "depth": result.scores.shape[0],
        "convention": {"residual": convention.residual, "normalize": convention.normalize},
        "noFlow": "This map is from the input to every layer already; its single layers are not kept.",
    }


def _attribution_facts(result: Result) -> dict[str, Any]:
    """What an attribution is about, and its scores."""
    return {"explains": explains(result.info), "scores": encode(numpy_of(result)[None], EXACT)}


def explains(info: Mapping[str, Any]) -> str:
    """What an attribution is about."""
    if info.get("query") is None:
        return "What each token counts"
    place = f"{shown(str(info.get('query_token')))} (position {info['query']})"
    if info.get("generated") is not None:
        return f"What counts for {shown(info['generated'])}, written after {place}"
    if info.get("target") is not None:
        return (
            f"What counts for the {str(info.get('score')).replace('_', ' ')} of {shown(str(info['target']))} at {place}"
        )
    return f"What {place} is made of"


# --- the text ---------------------------------------------------------------------------------------------------------


def notices_of(results: Sequence[Result]) -> list[str]:
    """What must be known before the numbers; of one method alone with its name."""
    about_text = dict.fromkeys(visible(notice) for result in results for notice in noticed(result.info))
    return [*about_text, *score_notices(results)]


def score_notices(results: Sequence[Result]) -> list[str]:
    """What must be known of the scores of one method."""
    pairs = zip(results, labels(results), strict=True)
    return [visible(f"{name}: {notice}") for result, name in pairs for notice in off_sum(result.method, result.info)]


def question_of(results: Sequence[Result]) -> str:
    """What the results answer, as the title of a page that has no answer to why."""
    targets = (result.info.get("target") for result in results if isinstance(result, Attribution))
    target = next((target for target in targets if target is not None), None)
    return "What flows where in this text?" if target is None else f"What counts for {visible(shown(str(target)))}?"


def words_of(result: Result) -> list[Any] | None:
    """Each word and its positions, where they are known."""
    return None if result.words is None else [[shown(word), list(places)] for word, places in result.words]


def query_of(results: Sequence[Result]) -> int:
    """The token the page begins with: the one that is explained, a mask, or where the model predicts."""
    positions = (result.info.get("query") for result in results)
    usual = _usual_query(results[0])
    position = next((position for position in positions if isinstance(position, int)), usual)
    return position if position in range(len(results[0].tokens)) else 0


def is_answer(result: Result, place: int) -> bool:
    """Whether the answer is read at this position: where the result says so or where models predict, unless nothing is predicted
    there."""
    return place == query_of([result]) and result.info.get("prediction", True) != []


def _usual_query(result: Result) -> int:
    """The first mask; else the last token of a causal model, and the first of any other."""
    end = len(result.tokens) - 1 if result.info.get("causal") else 0
    return next((place for place, token in enumerate(result.tokens) if token in MASKS), end)


def _prediction_of(results: Sequence[Result]) -> Prediction:
    """The first prediction of all results."""
    predictions = (result.info.get("prediction") for result in results)
    return next(filter(None, predictions), [])


def predicts(results: Sequence[Result], prediction: Prediction) -> str:
    """A line about the prediction: where it is read, or why there is none."""
    info = results[0].info
    if prediction:
        return f"Most probable {_predicted_place(results, info.get('task'))}"
    return "No class or word is predicted here." if "prediction" in info else "No prediction is kept in this result."


def _place_of(results: Sequence[Result]) -> Mapping[str, Any] | None:
    """The facts of the first result that names its position."""
    return next((result.info for result in results if result.info.get("query_token") is not None), None)


def _predicted_place(results: Sequence[Result], task: str | None) -> str:
    """What is predicted: outputs of the whole text, or a word at a position (of a causal model, after it)."""
    place = _place_of(results)
    if task == "classification" or place is None:
        return "outputs"
    preposition = "after" if task == "causal-lm" else "at"
    return f"{preposition} {shown(place['query_token'])} (position {place['query']})"
