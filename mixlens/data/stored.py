"""Examples as rows of JSON, and back: what a recipe writes beside a model, every dataset reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..types import Example
from .layouts import Layout, text_of

FIELDS = ("text", "info")  # the fields by which such a row is known


def row_of(example: Example) -> dict[str, Any]:
    """The example as a row. `info` is there even where it is empty: it marks the row as one of these."""
    known = {
        "id": example.id,
        "pair": example.pair,
        "target": example.target,
        "foil": example.foil,
        "cues": example.cues,
    }
    return {"text": example.text, **{name: value for name, value in known.items() if value}, "info": dict(example.info)}


def example_of(row: Mapping[str, Any]) -> Example:
    """The example that `row_of` wrote. Lists of JSON become tuples again."""
    parts = {name: row.get(name) for name in ("pair", "target", "foil")}
    info = {name: _tuples(value) for name, value in dict(row["info"]).items()}
    return Example(text_of(row, "text"), **parts, cues=_tuples(row.get("cues") or ()), info=info)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def jsonl(examples: Iterable[Example]) -> str:
    """The examples as lines of JSON, which `load(NAME, path=FILE)` reads."""
    return "".join(json.dumps(row_of(example), ensure_ascii=False) + "\n" for example in examples)


STORED = Layout(FIELDS, example_of)
