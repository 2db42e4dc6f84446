"""One text on a page: its tokens, its prediction, where its numbers come from, and the maps and scores of every
method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..answers.names import name_of
from ..base.errors import InputError, printable
from ..scoring.conventions import CONVENTIONS, FROM_INPUT
from ..scoring.notices import completeness, noticed, off_sum
from ..scoring.registry import seek
from ..types import Attribution, Map, Prediction, Result
from .heading import heading_line, removed, sum_line
from .packing import EXACT, encode, fit
from .page_template import folder_name, plain, safe_json, visible, visible_or_none
from .tokens import MASKS, shown

BLOCK_ROOM = 200  # characters of what is said about each block of numbers
Entry = dict[str, Any]
Info = Mapping[str, Any]


def entry(results: Sequence[Result], *, room: int, more: Mapping[str, Any] | None = None) -> Entry:
    """What the page knows of one text. The maps share the room, in one precision. A page is made to be passed on: a
    model that lies in a folder is named by that folder alone. `more` are facts from elsewhere, such as the answer to
    why."""
    results = [
        replace(one, info={**one.info, "model": folder_name(str(one.info["model"]))}) if "model" in one.info else one
        for one in results
    ]
    first, info = results[0], results[0].info
    text = visible(info.get("text") or " ".join(map(shown, first.tokens)))
    label = shortened(text, 79)
    if info.get("generated") is not None:
        label = f"writes {shown(info['generated'])} after {shortened(text, 20, end=40)}"
    prediction: Prediction = next(filter(None, (result.info.get("prediction") for result in results)), [])
    target = next(
        (one.info["target"] for one in results if isinstance(one, Attribution) and "target" in one.info), None
    )
    names = labels(results)
    pairs = list(zip(results, names, strict=True))
    own = [visible(f"{name}: {said}") for one, name in pairs for said in off_sum(one.method, one.info)]
    facts: Entry = {
        "label": label,
        "model": str(info.get("model", "?")),
        "text": text,
        "pair": visible_or_none(info.get("pair")),
        "tokens": list(map(shown, first.tokens)),
        "special": list(map(bool, first.special)) or [False] * len(first.tokens),
        "words": None if first.words is None else [[shown(word), list(places)] for word, places in first.words],
        "causal": bool(info.get("causal")),
        "query": query_of(results),
        "question": "What flows where in this text?"
        if target is None
        else f"What counts for {visible(shown(str(target)))}?",
        "notices": [*dict.fromkeys(visible(said) for result in results for said in noticed(result.info)), *own],
        "scoreNotices": own,
        "prediction": [[printable(word), float(probability)] for word, probability in prediction],
        "predicts": _predicts(results)
        if prediction
        else "No class or word is predicted here."
        if "prediction" in info
        else "No prediction is kept in this result.",
        "about": _about(info, len(first.tokens)),
        "methods": [_method(result, name) for result, name in pairs],
        **(more or {}),
    }
    sheets = [(at, name, rows) for at, result in enumerate(results) for name, rows in _sheets(result).items()]
    size = len(safe_json(plain(facts)).encode()) + BLOCK_ROOM * (len(sheets) + 2)
    precision, blocks = fit([rows for _, _, rows in sheets], max(0, room - size))
    for (at, name, _), block in zip(sheets, blocks, strict=True):
        facts["methods"][at]["sheets"][name] = block
    holds = (precision if blocks else EXACT).description()  # without maps, scores are exact
    return {**facts, "holds": holds, "precision": {"kind": precision.kind, "keep": precision.keep}}


def _predicts(results: Sequence[Result]) -> str:
    """What is predicted: outputs of the whole text, or a word at a position (of a causal model, after it)."""
    task = results[0].info.get("task")
    place = next((result.info for result in results if result.info.get("query_token") is not None), None)
    if task == "classification" or place is None:
        return "Most probable outputs"
    preposition = "after" if task == "causal-lm" else "at"
    return f"Most probable {preposition} {shown(place['query_token'])} (position {place['query']})"


def _sheets(result: Result) -> dict[str, np.ndarray]:
    """The maps to keep, each [layer x query, key]: the layers by themselves, and rolled out from the input, as far as
    there are such maps. A row that sums to 0 cannot be rolled out."""
    if isinstance(result, Attribution):
        return {}
    try:
        maps = {"rollout": result if result.info.get("rollout") else result.rollout()}
    except InputError:
        maps = {}
    if not maps or (result.info.get("rollout") is None and result.info.get("convention") != FROM_INPUT):
        maps = {"layer": result, **maps}
    return {name: numpy_of(sheet).reshape(-1, len(sheet.tokens)) for name, sheet in maps.items()}


def numpy_of(result: Result) -> np.ndarray:
    """The scores as a numpy array; half precision becomes float32."""
    scores = result.scores.detach().cpu()
    return scores.numpy() if scores.dtype.itemsize >= 4 else scores.float().numpy()


def query_of(results: Sequence[Result]) -> int:
    """The token the page begins with: the one that is explained, a mask, or where the model predicts."""
    tokens = results[0].tokens
    usual = len(tokens) - 1 if results[0].info.get("causal") else 0
    usual = next((place for place, token in enumerate(tokens) if token in MASKS), usual)
    positions = (result.info.get("query") for result in results)
    position = next((position for position in positions if isinstance(position, int)), usual)
    return position if position in range(len(tokens)) else 0


def is_answer(result: Result, place: int) -> bool:
    """Whether the answer is read at this position: where the result says so or where models predict, unless nothing is
    predicted there."""
    return place == query_of([result]) and result.info.get("prediction", True) != []


# --- names ------------------------------------------------------------------------------------------------------------


def shortened(text: str, begin: int, *, end: int = 0) -> str:
    """A text of at most begin + end characters: its beginning, and its end."""
    return text if len(text) <= begin + end + 1 else f"{text[:begin]}…{text[len(text) - end :] if end else ''}"


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each result; where one method is there twice, with what tells them apart."""
    methods = [result.method for result in results]

    def longer(result: Result) -> str:
        info = result.info
        options = {key: value for key, value in (info.get("options") or {}).items() if value is not None}
        rolled = _rolled(info["rollout"]) if isinstance(result, Map) and info.get("rollout") else ""
        target = "" if info.get("target") is None else str(info["target"])
        parts = filter(None, [str(info.get("variant") or ""), options_line(options), rolled, target])
        return f"{result.method} ({', '.join(parts)})"

    return numbered([one.method if methods.count(one.method) == 1 else longer(one) for one in results])


def numbered(names: Sequence[str]) -> list[str]:
    """Names, with a number behind those that are there more than once."""
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


# --- methods ----------------------------------------------------------------------------------------------------------


def _method(result: Result, label: str) -> dict[str, Any]:
    """What the page knows of one result, without the sheets of its map."""
    names, info = name_of(result.method), result.info
    title = f"{names.everyday} · {names.name}{label.removeprefix(result.method)}"
    facts: dict[str, Any] = {
        "name": result.method,
        "label": label,
        "everyday": names.everyday,
        "short": names.name,
        "title": label if names.everyday == result.method else title,
        "signed": is_signed(result),
        "kind": "map" if isinstance(result, Map) else "attribution",
        "line": heading_line(info, result.method),
        "about": _about_method(info),
        "sheets": {},
    }
    if isinstance(result, Attribution):
        return {**facts, "explains": _explains(info), "scores": encode(numpy_of(result)[None], EXACT)}
    convention = CONVENTIONS.get(str(info.get("convention", "alti")), CONVENTIONS["alti"])
    return {
        **facts,
        "depth": result.scores.shape[0],
        "convention": {"residual": convention.residual, "normalize": convention.normalize},
        "noFlow": "This map is from the input to every layer already; its single layers are not kept.",
    }


def is_signed(result: Result) -> bool:
    """Whether scores below zero have a meaning: as the result says; as its method does where an older version saved it;
    of another's method by its scores."""
    signed = result.info.get("signed")
    if signed is None and (method := seek(result.method)) is not None:
        signed = method.is_signed(result.info.get("variant"), result.info.get("options") or {})
    return bool((result.scores < 0).any() if signed is None else signed)


def _explains(info: Info) -> str:
    """What an attribution is about."""
    if info.get("query") is None:
        return "What each token counts"
    place = f"{shown(str(info.get('query_token')))} (position {info['query']})"
    if info.get("generated") is not None:
        return f"What counts for {shown(info['generated'])}, written after {place}"
    if info.get("target") is None:
        return f"What {place} is made of"
    return f"What counts for the {str(info.get('score')).replace('_', ' ')} of {shown(str(info['target']))} at {place}"


# --- where the numbers come from --------------------------------------------------------------------------------------


def known_rows(rows: Iterable[tuple[str, str | None]]) -> list[list[str]]:
    """The rows that have a value."""
    return [[name, value] for name, value in rows if value is not None]


def values_line(info: Info, *names: str) -> str:
    """The values that these names have."""
    return ", ".join(str(info[name]) for name in names if info.get(name))


def versions_line(versions: Info) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def options_line(options: Info) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def check_line(gap: float | None) -> str | None:
    return None if gap is None else f"{gap:.1e}: the largest gap of all identities, on a random input"


def _about(info: Info, n: int) -> list[list[str]]:
    """The model, and what it ran on."""
    return known_rows(
        [
            ("Model", str(info.get("model", "not known"))),
            ("Revision", str(info.get("revision") or "not known")),
            ("Family and task", values_line(info, "family", "task") or "not known"),
            ("Number type", str(info.get("dtype", "not known"))),
            ("Tokens", f"{n}, looks back only" if info.get("causal") else f"{n}"),
            ("Versions", versions_line(info.get("versions") or {}) or "not known"),
            ("Model check", check_line(info.get("check"))),
            ("Unit", str(info["unit"]) if info.get("unit") else None),
            ("Special tokens", (removed(info) or str(info["special_tokens"])) if info.get("special_tokens") else None),
        ]
    )


def _about_method(info: Info) -> list[list[str]]:
    """What belongs to one method alone: variant, options, paper, and how well the layers or the scores add up."""
    gap, sums, tolerance, convention = completeness(info), None, info.get("tolerance"), info.get("convention")
    rebuilt = None
    if info.get("gap") is not None:
        allowed = "" if tolerance is None else f" (allowed: {tolerance:.0e})"
        rebuilt = f"{info['gap']:.1e}{allowed}: the layers rebuilt from their parts, against the model"
    elif gap is not None:
        told = info["completeness"]
        what = f"the scores add up to {told['sum']:.6g}, what they explain is {told['expected']:.6g}"
        sums = f"{sum_line(info, gap)}: {what}"
    elif tolerance is not None:
        rebuilt = f"not measured by this method (a map's may be at most {tolerance:.0e})"
    way = None
    if convention and not info.get("rollout"):
        way = (
            f"{convention}: {CONVENTIONS[convention].source if convention in CONVENTIONS else 'from the input already'}"
        )
    target = info.get("target")
    rows = [
        ("Variant", str(info.get("variant", "not known"))),
        ("Options", options_line(info.get("options") or {}) or "none"),
        ("Paper", str(info["paper"]) if info.get("paper") else None),
        ("Reconstruction gap", rebuilt),
        ("Completeness", sums),
        ("Rolled out", _rolled(info["rollout"]) if info.get("rollout") else None),
        ("Rollout", way),
        ("Target", None if target is None else f"{target} ({str(info.get('score')).replace('_', ' ')})"),
        ("At layer", None if info.get("at_layer") is None else f"{info['at_layer']} (0 is the input)"),
    ]
    if info.get("precision"):
        rows.append(("Products in", f"{info['precision']}, error {info.get('precision_error', 0):.1e}"))
    return known_rows(rows) + [["Note", str(note)] for note in info.get("notes") or []]


def _rolled(rollout: Info) -> str:
    """How the layers of a map were put together."""
    if rollout.get("flow"):
        return "flow" if rollout.get("sum") else f"flow {rollout.get('convention')}"
    return "sum of layers" if rollout.get("sum") else f"rollout {rollout.get('convention')}"
