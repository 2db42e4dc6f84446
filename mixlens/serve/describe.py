"""What the server says about itself: its models, its methods, its API as a plain page, and what was wrong with a
request."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ..answers.case import CHOICES, FILLERS, known_fillers, methods_for
from ..answers.generation.wording import QUESTION
from ..answers.names import name_of
from ..base.text import counted
from ..model.model import Model
from ..scoring.asking import parse_method
from ..scoring.attributions import known as attributions
from ..scoring.maps import known as maps
from ..show.why_page import TASKS
from .guard import clipped
from .jobs import Desk

EXAMPLES = {
    "masked-lm": "The keys to the cabinet {mask} rusty.",
    "causal-lm": "Once upon a time there was a",
    "classification": "The plot was dull but the acting was brilliant.",
}
DOCS_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color-scheme:light dark}"
    "pre{overflow:auto;padding:.6em;border:1px solid gray;border-radius:6px}h2{margin-top:1.6em}"
)


def about_model(desk: Desk, model: Model) -> dict[str, Any]:
    """A model as /api/models lists it."""
    labels = model.hf_model.config.id2label if model.task.endswith("classification") else {}
    mask = getattr(model.tokenizer, "mask_token", None)
    return {
        "name": model.name,
        "task": model.task,
        "family": model.family.name,
        "layers": model.n_layers,
        "max_tokens": desk.tokens_at_most(model),
        "mask": mask,
        "labels": [str(name) for name in list(labels.values())[:100]],
        "example": EXAMPLES.get(model.task, "").format(mask=mask),
        "questions": questions_for(model),
        "methods": [parse_method(name).name for name in methods_for(model)] if model.task in CHOICES else [],
        "fillers": {name: FILLERS[name] for name in known_fillers(model)},
        "seconds": {
            question: {"seconds": round(seconds, 3), "tokens": tokens}
            for (name, question), (seconds, tokens) in list(desk.times.items())
            if name == model.name
        },
    }


def questions_for(model: Model) -> list[dict[str, str]]:
    """The questions that this model can be asked, in the order of the page."""
    if model.task not in CHOICES:
        return []
    asked = {"why": (TASKS[model.task][1], "Words for and against it, and whether to trust them.")}
    asked["flow"] = ("What flows where?", "How the words travel through the layers to the answer.")
    asked["methods"] = (
        "Compare methods",
        f"{counted(len(methods_for(model)), 'method').capitalize()} under the same sentence.",
    )
    if model.task == "causal-lm":
        asked["written"] = (QUESTION, "The model writes on; each word with what it came from.")
    return [{"name": name, "title": title, "help": line} for name, (title, line) in asked.items()]


def about_methods() -> list[dict[str, Any]]:
    """Every method as /api/methods lists it."""
    methods = [
        *((method, "map") for method in maps().values()),
        *((method, "attribution") for method in attributions().values()),
    ]
    return [_about_method(method, kind) for method, kind in methods]


def _about_method(method: Any, kind: str) -> dict[str, Any]:
    return {
        "name": method.id,
        "kind": kind,
        "paper": method.paper,
        "cost": method.cost,
        "variants": list(method.variants),
        "options": {key: str(value) for key, value in method.options.items()},
        "summary": method.summary,
        "everyday": name_of(method.id).everyday,
        "title": name_of(method.id).name,
        "signed": parse_method(method.id).signed,
    }


def refusal_line(errors: Sequence[Mapping[str, Any]]) -> str:
    """What was wrong with a request, in one line: at most the first five errors."""
    return " ".join(map(_refusal, errors[:5])) + " Send JSON as /docs describes it."


def _refusal(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path")) or "the body"
    value = "" if error["type"] in ("missing", "json_invalid") else f" Got {clipped(repr(error.get('input')))}."
    return f"{clipped(place)}: {error['msg']}.{value}"


# --- the API as a page ------------------------------------------------------------------------------------------------


def docs_policy() -> str:
    """The Content-Security-Policy of the page: its own style, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(DOCS_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; frame-ancestors 'none'"


def docs_page(api: Mapping[str, Any]) -> str:
    """The OpenAPI description as a plain page: no script, nothing from elsewhere."""
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
    head += f"<title>mixlens: the JSON API</title><style>{DOCS_STYLE}</style></head><body><main><h1>The JSON API</h1>"
    head += f'<p>{escape(api["info"]["description"])} The same as <a href="openapi.json">OpenAPI JSON</a>. '
    head += 'Every error is JSON: {"error": "what came, what is allowed, what to do"}. <a href="./">The page</a>.</p>'
    operations = [(path, verb, operation) for path, verbs in api["paths"].items() for verb, operation in verbs.items()]
    schemas = api["components"]["schemas"]
    parts = [part for path, verb, operation in operations for part in _operation(path, verb, operation, schemas)]
    return head + "".join(parts) + "</main></body></html>"


def _operation(path: str, verb: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """One operation of the API: what it does, its parameters, its body, the codes of its answers."""
    yield f"<h2><code>{verb.upper()} {escape(path)}</code></h2><p>{escape(operation.get('summary', ''))}. "
    yield f"{escape(operation.get('description', ''))}</p>"
    yield _listed([(p["name"], p.get("required"), p.get("description", "")) for p in operation.get("parameters", [])])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = schemas.get(body.get("$ref", "").rpartition("/")[2])
    if schema:
        yield from _body(schema)
    yield "<p>Answers: " + escape(", ".join(operation.get("responses", {}))) + "</p>"


def _body(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = schema.get("required", [])
    yield "<p>Body, as JSON:</p>"
    yield _listed(
        [(name, name in needed, field.get("description", "")) for name, field in schema["properties"].items()]
    )
    yield f"<pre>{escape(json.dumps(schema.get('example'), ensure_ascii=False))}</pre>"


def _listed(rows: Sequence[tuple[str, Any, str]]) -> str:
    """A list of names, each with whether it is optional and what it means."""
    items = [
        f"<li><code>{escape(name)}</code>{'' if needed else ' (optional)'}: {escape(text)}</li>"
        for name, needed, text in rows
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""
