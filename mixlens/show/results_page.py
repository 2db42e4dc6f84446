"""A page from results: one HTML file with its style, its script and its numbers inside. Needs no network and no server."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..conventions import CONVENTIONS, FROM_INPUT
from ..errors import InputError, printable
from ..notices import completeness, noticed, off_sum
from ..types import Attribution, Map, Prediction, Result
from .colors import AGAINST, TOWARDS
from .heading import bound, removed, told
from .packing import EXACT, encode, fit
from .tokens import shown

ASSETS = Path(__file__).parent / "page"
PAGE_ROOM = 60_000  # characters for the page itself: its style and its script
BLOCK_ROOM = 200  # and for what is said about each block of numbers
MARK = '<meta name="generator" content="mixlens report">'
Entry = dict[str, Any]


@cache
def asset(*names: str) -> str:
    """Files of the page, one after the other. "use strict" is said once, by whoever wraps them."""
    text = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)
    return text.replace('"use strict";\n', "")


def script_of(*names: str, start: str) -> str:
    """One script with nothing of it visible outside."""
    return f'(() => {{\n"use strict";\n{asset(*names)}\n{start}\n}})();\n'


def palette() -> dict[str, Any]:
    return {"towards": TOWARDS, "against": AGAINST}


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    return json.loads(json.dumps(value, default=str))


def safe_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is no character


def visible(text: str) -> str:
    """A text with what cannot be seen, or turns the direction of writing, spelled out. Line breaks and joiners stay."""
    return "".join(c if c.isprintable() or c in "\n\t\u200c\u200d\u3000\u00a0" else f"\\u{ord(c):04x}" for c in text)


# --- one text ---------------------------------------------------------------------------------------------------------


def entries(results: Sequence[Result], *, room: int) -> list[Entry]:
    """One entry for each text (of one model, cut into the same tokens), with every result about it."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        if not isinstance(result, Map | Attribution):
            raise InputError(f"a report shows Map and Attribution results, not {type(result).__name__}.")
        if not result.tokens:
            raise InputError(f"a result of {result.method!r} has no tokens; there is nothing to show.")
        identity = [result.info.get(name) for name in ("model", "revision", "text", "pair", "dtype", "unit")]
        groups.setdefault((*map(str, identity), result.tokens), []).append(result)
    if not groups:
        raise InputError("there is no result to report. Give a Map, an Attribution or a list of them.")
    every = [entry(group, room=room) for group in groups.values()]
    _told_apart(every)
    if len({one["model"] for one in every}) > 1:
        for one in every:
            one["label"] = f"{folder_name(one['model'])}: {one['label']}"
    return every


def _told_apart(entries: Sequence[Entry]) -> None:
    """Texts that begin alike are listed with their ends; where these are alike too, with a number."""
    for ends in (True, False):
        names = [one["label"] for one in entries]
        for number, one in enumerate(entries):
            if names.count(names[number]) > 1 and ends:
                one["label"] = _shortened(one["text"], 40, end=39)
            elif names.count(names[number]) > 1:
                one["label"] = f"{names[number]} #{names[:number].count(names[number]) + 1}"


def _shortened(text: str, begin: int, *, end: int = 0) -> str:
    """A text of at most begin + end characters: its beginning, and its end."""
    return text if len(text) <= begin + end + 1 else f"{text[:begin]}…{text[len(text) - end :] if end else ''}"


def folder_name(model: str) -> str:
    """The last part of a local folder; a hub id as it is."""
    return model.rstrip("/").rpartition("/")[2] if model.startswith((".", "/", "~")) else model


def _of_folder(result: Result) -> Result:
    name = result.info.get("model")
    return replace(result, info={**result.info, "model": folder_name(name)}) if isinstance(name, str) else result


def entry(results: Sequence[Result], *, room: int) -> Entry:
    """What the page knows of one text. The maps share the room, in one precision. A page is made to be passed on: a model that
    lies in a folder is named by that folder alone."""
    results = [_of_folder(result) for result in results]
    first = results[0]
    methods = [method_of(result, label) for result, label in zip(results, labels(results), strict=True)]
    for result, method in zip(results, methods, strict=True):
        if isinstance(result, Attribution):
            method["scores"] = encode(numpy_of(result)[None], EXACT)
    text = visible(first.info.get("text") or " ".join(shown(token) for token in first.tokens))
    prediction: Prediction = next((result.info["prediction"] for result in results if result.info.get("prediction")), [])
    facts: Entry = {
        "label": _label(first.info, text),
        "model": str(first.info.get("model", "?")),
        "text": text,
        "pair": None if first.info.get("pair") is None else visible(first.info["pair"]),
        "tokens": [shown(token) for token in first.tokens],
        "special": [bool(result) for result in first.special] or [False] * len(first.tokens),
        "words": words_of(first),
        "causal": bool(first.info.get("causal")),
        "query": query_of(results),
        "notices": notices_of(results),
        "prediction": [[printable(word), float(probability)] for word, probability in prediction],
        "predicts": predicts(results, prediction),
        "about": about_entry(first.info, len(first.tokens)),
        "methods": methods,
    }
    sheets = [(number, name, sheet) for number, result in enumerate(results) for name, sheet in sheets_of(result).items()]
    size = len(safe_json(plain(facts)).encode()) + BLOCK_ROOM * (len(sheets) + 2)
    precision, blocks = fit([sheet for _, _, sheet in sheets], max(0, room - size))
    for (number, name, _), block in zip(sheets, blocks, strict=True):
        methods[number]["sheets"][name] = block
    signed = any(block["signed"] for block in blocks)
    holds = precision.told(signed=signed) if blocks else EXACT.told()
    return {**facts, "holds": holds, "precision": {"kind": precision.kind, "keep": precision.keep}}


def _label(info: Mapping[str, Any], text: str) -> str:
    """How a list calls this text: its beginning; of a text that a model went on with, what it wrote and the end."""
    if info.get("generated") is None:
        return _shortened(text, 79)
    return f"writes {shown(info['generated'])} after {_shortened(text, 20, end=40)}"


def sheets_of(result: Result) -> dict[str, np.ndarray]:
    """The maps to keep, each [layer x query, key]: the layers by themselves, and rolled out from the input."""
    if isinstance(result, Attribution):
        return {}
    maps = {}
    if result.info.get("rollout") is None and result.info.get("convention") != FROM_INPUT:
        maps["layer"] = result
    try:
        maps["rollout"] = result if result.info.get("rollout") else result.rollout()
    except InputError:  # a row that sums to 0 cannot be rolled out; its layers can be shown
        maps["layer"] = result
    return {name: numpy_of(scores).reshape(-1, len(scores.tokens)) for name, scores in maps.items()}


def numpy_of(result: Result) -> np.ndarray:
    """The scores as a numpy array; half precision becomes float32."""
    scores = result.scores.detach().cpu()
    return scores.numpy() if scores.dtype.itemsize >= 4 else scores.float().numpy()


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each result; where one method is there twice, with what tells them apart."""
    methods = [result.method for result in results]
    names = [result.method if methods.count(result.method) == 1 else _longer_name(result) for result in results]
    return [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _longer_name(result: Result) -> str:
    """The method with its variant, options, rollout and target."""
    info = result.info
    parts = [str(info.get("variant") or "")]
    parts += [f"{key}={value}" for key, value in (info.get("options") or {}).items() if value is not None]
    parts += [_rolled(info["rollout"])] if isinstance(result, Map) and info.get("rollout") else []
    parts += [str(info["target"])] if info.get("target") is not None else []
    return f"{result.method} ({', '.join(part for part in parts if part)})"


def _rolled(rollout: Mapping[str, Any]) -> str:
    kind = "flow" if rollout.get("flow") else "sum of layers" if rollout.get("sum") else "rollout"
    return kind if rollout.get("sum") else f"{kind} {rollout.get('convention')}"


def method_of(result: Result, label: str) -> dict[str, Any]:
    info = result.info
    facts: dict[str, Any] = {
        "name": result.method,
        "label": label,
        "kind": "map" if isinstance(result, Map) else "attribution",
        "line": told(info, result.method),
        "about": about_method(info),
        "sheets": {},
    }
    if isinstance(result, Map):
        convention = CONVENTIONS.get(str(info.get("convention", "alti")), CONVENTIONS["alti"])
        facts |= {
            "depth": result.scores.shape[0],
            "convention": {"residual": convention.residual, "normalize": convention.normalize},
            "noFlow": "This map is from the input to every layer already; its single layers are not kept.",
        }
        return facts
    return {**facts, "explains": explains(info)}


def explains(info: Mapping[str, Any]) -> str:
    """What an attribution is about."""
    if info.get("query") is None:
        return "What each token counts"
    place = f"{shown(str(info.get('query_token')))} (position {info['query']})"
    if info.get("generated") is not None:
        return f"What counts for {shown(info['generated'])}, written after {place}"
    if info.get("target") is not None:
        return f"What counts for the {str(info.get('score')).replace('_', ' ')} of {shown(str(info['target']))} at {place}"
    return f"What {place} is made of"


def notices_of(results: Sequence[Result]) -> list[str]:
    """What must be known before the numbers; of one method alone with its name."""
    about_text = dict.fromkeys(visible(one) for result in results for one in noticed(result.info))
    of_methods = [
        visible(f"{name}: {one}") for result, name in zip(results, labels(results), strict=True) for one in off_sum(result.info)
    ]
    return [*about_text, *of_methods]


def words_of(result: Result) -> list[Any] | None:
    """Each word and its positions, where they are known."""
    return None if result.words is None else [[shown(word), list(places)] for word, places in result.words]


def query_of(results: Sequence[Result]) -> int:
    """The token the page begins with."""
    tokens, info = results[0].tokens, results[0].info
    positions = [result.info["query"] for result in results if isinstance(result.info.get("query"), int)]
    masks = [i for i, token in enumerate(tokens) if token in ("[MASK]", "<mask>")]
    position = (positions or masks or [len(tokens) - 1 if info.get("causal") else 0])[0]
    return position if 0 <= position < len(tokens) else 0


def predicts(results: Sequence[Result], prediction: Prediction) -> str:
    """A line about the prediction: where it is read, or why there is none."""
    info = results[0].info
    if not prediction:
        return "No prediction is kept in this result." if "prediction" not in info else "No class or word is predicted here."
    places = [one.info for one in results if one.info.get("query_token") is not None]
    if info.get("task") == "classification" or not places:
        return "Most probable outputs"
    word = shown(places[0]["query_token"])
    after = "after" if info.get("task") == "causal-lm" else "at"
    return f"Most probable {after} {word} (position {places[0]['query']})"


def about_entry(info: Mapping[str, Any], n: int) -> list[list[str]]:
    """What is the same for every method: the model, and what it ran on."""
    rows = [
        ["Model", str(info.get("model", "not known"))],
        ["Revision", str(info.get("revision") or "not known")],
        ["Family and task", ", ".join(str(info[key]) for key in ("family", "task") if info.get(key)) or "not known"],
        ["Number type", str(info.get("dtype", "not known"))],
        ["Tokens", f"{n}" + (", looks back only" if info.get("causal") else "")],
        ["Versions", ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items()) or "not known"],
    ]
    if info.get("check") is not None:
        rows.append(["Model check", f"{info['check']:.1e}: the largest gap of all identities, on a random input"])
    if info.get("unit"):
        rows.append(["Unit", str(info["unit"])])
    if info.get("special_tokens"):
        rows.append(["Special tokens", removed(info) or str(info["special_tokens"])])
    return rows


def about_method(info: Mapping[str, Any]) -> list[list[str]]:
    """What is this method's own: variant, options, paper, and how well the layers add up."""
    options = ", ".join(f"{key}={value}" for key, value in (info.get("options") or {}).items())
    rows = [["Variant", str(info.get("variant", "not known"))], ["Options", options or "none"]]
    if info.get("paper"):
        rows.append(["Paper", str(info["paper"])])
    rows += [*_proof_rows(info), *_rollout_rows(info)]
    if info.get("target") is not None:
        rows.append(["Target", f"{info['target']} ({str(info.get('score')).replace('_', ' ')})"])
    if info.get("at_layer") is not None:
        rows.append(["At layer", f"{info['at_layer']} (0 is the input)"])
    if info.get("precision"):
        rows.append(["Products in", f"{info['precision']}, error {info.get('precision_error', 0):.1e}"])
    return [*rows, *(["Note", str(note)] for note in info.get("notes") or [])]


def _proof_rows(info: Mapping[str, Any]) -> Iterator[list[str]]:
    """How well the numbers add up: the gap of a map, or the completeness of an attribution."""
    if info.get("gap") is not None:
        allowed = f" (allowed: {info['tolerance']:.0e})" if info.get("tolerance") is not None else ""
        yield ["Reconstruction gap", f"{info['gap']:.1e}{allowed}: the layers rebuilt from their parts, against the model"]
    elif (off := completeness(info)) is not None:
        totals = info["completeness"]
        sums = f"the scores add up to {totals['sum']:.6g}, what they explain is {totals['expected']:.6g}"
        yield ["Completeness", f"adds up to within {bound(off)}: {sums}"]
    elif info.get("tolerance") is not None:
        yield ["Reconstruction gap", f"not measured by this method (a map's may be at most {info['tolerance']:.0e})"]


def _rollout_rows(info: Mapping[str, Any]) -> Iterator[list[str]]:
    """How the map was rolled out, or how it is to be."""
    if info.get("rollout"):
        yield ["Rolled out", _rolled(info["rollout"])]
    elif info.get("convention"):
        source = CONVENTIONS[info["convention"]].source if info["convention"] in CONVENTIONS else "from the input already"
        yield ["Rollout", f"{info['convention']}: {source}"]


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of page: its files, and what starts it."""

    styles: tuple[str, ...]
    scripts: tuple[str, ...]
    start: str
    rules: str = ""  # more of its Content-Security-Policy


READ = 'JSON.parse(document.getElementById("data").textContent)'
SHOWN = ("core.js", "views.js", "controls.js", "page.js")
START = f'const page = startPage({READ}, document.getElementById("main"));'
FORM = 'startForm(document.getElementById("main"), page).catch((error) => document.body.append(error.message));'
REPORT = Kind(("views.css", "page.css"), SHOWN, START)
SERVED = Kind(("views.css", "page.css"), (*SHOWN, "serve.js"), f"{START}\n{FORM}", "; connect-src 'self'")


def page(results: Sequence[Result], *, title: str | None = None, room: int = 2_000_000) -> str:
    """The whole page as one string, at most `room` characters for each text."""
    every = entries(results, room=room - PAGE_ROOM)
    models = list(dict.fromkeys(folder_name(one["model"]) for one in every))
    names = list(dict.fromkeys(method["name"] for one in every for method in one["methods"]))
    return filled_page({"entries": every}, REPORT, title=title or "How a text was mixed", subtitle=subtitle_of(models, names))


def subtitle_of(models: Sequence[str], methods: Sequence[str]) -> str:
    return f"{', '.join(models)} · {', '.join(methods)} · made {datetime.date.today().isoformat()} with mixlens"


def filled_page(data: Mapping[str, Any], kind: Kind, *, title: str, subtitle: str) -> str:
    """The template with everything inside. Only our own style and script may run in it, by their hashes."""
    style, script = style_and_script(kind)
    fields = {
        "policy": policy(kind),
        "title": escape(shown_line(title)),
        "subtitle": escape(shown_line(subtitle)),
        "style": style,
        "data": safe_json(plain({"format": 1, "palette": palette(), **data})),
        "script": script,
    }
    template = asset("page.html")
    pieces = []
    while "{" in template:
        before, _, rest = template.partition("{")
        name, _, template = rest.partition("}")
        pieces += [before, fields[name]]
    return "".join([*pieces, template])


def shown_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


@cache
def style_and_script(kind: Kind) -> tuple[str, str]:
    return asset(*kind.styles), script_of(*kind.scripts, start=kind.start)


def policy(kind: Kind) -> str:
    """The Content-Security-Policy: nothing from anywhere, but this style and this script."""

    def hashed(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    style, script = style_and_script(kind)
    rules = f"default-src 'none'; style-src {hashed(style)}; script-src {hashed(script)}; img-src data:"
    return f"{rules}; base-uri 'none'; form-action 'none'{kind.rules}"
