"""What a notebook shows: a small page of its own in a shadow root, no network. Without scripts a plain table remains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from ..errors import InputError
from ..types import Attribution, Map, Result
from .colors import ink, shade, shares
from .packing import EXACT, fit
from .results_page import asset, numpy_of, palette, plain, query_of, script_of
from .text import predicted, shown, told

FRAME = '<div style="font:14px/1.9 system-ui,sans-serif;max-width:100%;overflow-x:auto">{}</div>'
ROOM = 1_000_000  # characters of numbers in one output, so that a notebook stays light
PLAIN_CELLS = 4_000  # cells of tables that are written out for readers without scripts


def _style(share: float) -> str:
    back = shade(share)
    return f"background:rgb{back};color:rgb{ink(back)}".replace(" ", "")


def _strip(tokens: Sequence[str], scores: Sequence[float]) -> str:
    return " ".join(
        f'<span style="{_style(share)};padding:2px 4px;border-radius:3px" title="{score:.6g}">{escape(shown(token))}</span>'
        for token, score, share in zip(tokens, scores, shares(scores), strict=True)
    )


def _note(text: str) -> str:
    return f'<div style="opacity:.7;font-size:12px">{escape(text)}</div>'


def _matrix(result: Map, layer: int) -> str:
    rows = result.scores[layer].tolist()
    head = "".join(f'<th style="font-weight:400;padding:0 3px">{escape(shown(token))}</th>' for token in result.tokens)
    body = "".join(
        f'<tr><th style="font-weight:400;text-align:right;padding-right:6px">{escape(shown(token))}</th>'
        + "".join(
            f'<td style="{_style(share)};text-align:center;padding:0 3px" title="{score:.6g}">{score:.2f}</td>'
            for score, share in zip(row, shares(row), strict=True)
        )
        + "</tr>"
        for token, row in zip(result.tokens, rows, strict=True)
    )
    return f'<table style="border-collapse:collapse;font-size:12px"><tr><td></td>{head}</tr>{body}</table>'


def without_script(result: Result) -> str:
    """What is left where scripts do not run (a notebook that is not trusted): tables, as many as are light enough."""
    notes = _note(told(result.info, result.method))
    if isinstance(result, Attribution):
        if result.info.get("prediction"):
            notes += _note(predicted(result.info["prediction"]))
        return FRAME.format(notes + _strip(result.tokens, [float(score) for score in result.scores]))
    depth, n, _ = result.scores.shape
    if n * n > PLAIN_CELLS:
        line = f"{depth} layers of {n} x {n} tokens: {' '.join(shown(token) for token in result.tokens[:60])}"
        return FRAME.format(notes + _note(line + (" …" if n > 60 else "")))
    first = 0 if depth * n * n <= PLAIN_CELLS else depth - 1
    layers = "".join(
        f"<details{' open' if layer == depth - 1 else ''}><summary>layer {layer + 1}</summary>{_matrix(result, layer)}</details>"
        for layer in range(first, depth)
    )
    return FRAME.format(notes + layers)


@cache
def _script() -> tuple[str, str]:
    """The script of every output, and the mark of the outputs it starts: those of this very version."""
    files = ("core.js", "views.js", "notebook.js")
    style = json.dumps(asset("views.css", "notebook.css"))
    mark = hashlib.sha256((asset(*files) + style).encode()).hexdigest()[:12]
    return script_of(*files, start=f'startOutputs("{mark}", {style});'), mark


def html(result: Result) -> str:
    """One output of a notebook. It has no ids and no globals: any number of them stand side by side."""
    is_map = isinstance(result, Map)
    try:
        precision, blocks = fit([numpy_of(result).reshape(-1, max(1, len(result.tokens)))], ROOM)
    except InputError as error:  # a cell that ends in this result must not fail: it says what is wrong with it
        return FRAME.format(_note(told(result.info, result.method)) + _note(str(error)))
    data: dict[str, Any] = {
        "isMap": is_map,
        "depth": result.scores.shape[0] if is_map else 1,
        "tokens": [shown(token) for token in result.tokens],
        "special": list(result.special),
        "query": query_of([result]),
        "line": told(result.info, result.method),
        "predicts": predicted(result.info["prediction"]) if result.info.get("prediction") else None,
        "holds": None if precision == EXACT else precision.told(signed=blocks[0]["signed"]),
        "palette": palette(),
        "block": blocks[0],
    }
    script, mark = _script()
    return (
        f'<div data-mixlens="{mark}" data-result="{escape(json.dumps(plain(data)))}">{without_script(result)}</div>'
        f'<script type="text/javascript">{script}</script>'
    )
