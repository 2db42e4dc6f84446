"""What a notebook shows: a small page of its own in a shadow root, no network. Without scripts a plain table remains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from ..base.errors import InputError
from ..types import Attribution, HeadMaps, Map, Result
from .colors import LIGHT, hue_of, scaled, shares
from .heading import heading_line, predicted
from .packing import EXACT, Block, Precision, fit
from .page_entry import is_signed, numpy_of, query_of
from .page_template import BASE_SCRIPTS, asset, plain, script_of
from .tokens import shown

FRAME = '<div style="font:14px/1.9 system-ui,sans-serif;max-width:100%;overflow-x:auto">{}</div>'
ROOM = 1_000_000  # characters of numbers in one output, so that a notebook stays light
MOST_NAMED = 60  # tokens of a long text that are named
PLAIN_CELLS = 4_000  # cells of tables that are written out for readers without scripts


def _style(share: float, signed: bool) -> str:
    hue = hue_of(share, signed=signed)
    return f"background:{scaled(share, f'{hue}-tint')};color:{LIGHT['ink']}"


def _strip(result: Attribution) -> str:
    scores, signed = [float(score) for score in result.scores], is_signed(result)
    return " ".join(
        f'<span style="{_style(share, signed)};padding:2px 4px" title="{score:.6g}">{escape(shown(token))}</span>'
        for token, score, share in zip(result.tokens, scores, shares(scores), strict=True)
    )


def _note(text: str) -> str:
    return f'<div style="opacity:.7;font-size:12px">{escape(text)}</div>'


def _matrix(result: Map, layer: int) -> str:
    """One layer as a table: rows are positions, columns are the tokens they took from."""
    head = "".join(f'<th style="font-weight:400;padding:0 3px">{escape(shown(token))}</th>' for token in result.tokens)
    signed = is_signed(result)
    body = "".join(
        _row(token, row, signed) for token, row in zip(result.tokens, result.scores[layer].tolist(), strict=True)
    )
    return f'<table style="border-collapse:collapse;font-size:12px"><tr><td></td>{head}</tr>{body}</table>'


def _row(token: str, scores: Sequence[float], signed: bool) -> str:
    """One row of a table: the token of the position, and its scores."""
    label = f'<th style="font-weight:400;text-align:right;padding-right:6px">{escape(shown(token))}</th>'
    cells = "".join(_cell(score, share, signed) for score, share in zip(scores, shares(scores), strict=True))
    return f"<tr>{label}{cells}</tr>"


def _cell(score: float, share: float, signed: bool) -> str:
    return f'<td style="{_style(share, signed)};text-align:center;padding:0 3px" title="{score:.6g}">{score:.2f}</td>'


def without_script(result: Result) -> str:
    """What is left where scripts do not run (a notebook that is not trusted): tables, as many as are light enough."""
    body = _sentence(result) if isinstance(result, Attribution) else _layers(result)
    return FRAME.format(_note(heading_line(result.info, result.method)) + body)


def _sentence(result: Attribution) -> str:
    """The tokens of an attribution on their colours, below the prediction."""
    prediction = _prediction(result)
    note = "" if prediction is None else _note(prediction)
    return note + _strip(result)


def _prediction(result: Result) -> str | None:
    """The line of the prediction, where a result has one."""
    return predicted(result.info["prediction"]) if result.info.get("prediction") else None


def _layers(result: Map) -> str:
    """A table for every layer, or for the last one; of a long text a line alone."""
    depth, n, _ = result.scores.shape
    if n * n > PLAIN_CELLS:
        return _note(_size_line(result))
    first = 0 if depth * n * n <= PLAIN_CELLS else depth - 1
    return "".join(_folding_layer(result, layer) for layer in range(first, depth))


def _size_line(result: Map) -> str:
    """How large a map is, and its first tokens."""
    depth, n, _ = result.scores.shape
    tokens = " ".join(map(shown, result.tokens[:MOST_NAMED]))
    return f"{depth} layers of {n} x {n} tokens: {tokens}{' …' if n > MOST_NAMED else ''}"


def _folding_layer(result: Map, layer: int) -> str:
    """A layer that can be folded; the last one is open."""
    opened = " open" if layer == len(result.scores) - 1 else ""
    return f"<details{opened}><summary>layer {layer + 1}</summary>{_matrix(result, layer)}</details>"


OUTPUT_STYLES = ("tokens.css", "base.css", "views.css", "notebook.css")
OUTPUT_SCRIPTS = (*BASE_SCRIPTS, "notebook.js")


@cache
def output_script(styles: tuple[str, ...], scripts: tuple[str, ...], start: str) -> tuple[str, str]:
    """The script of every output of a kind, and the mark of the outputs it starts: those of this very version. `start` is the
    function that fills an output."""
    style = json.dumps(asset(*styles))
    mark = hashlib.sha256((asset(*scripts) + style).encode()).hexdigest()[:12]
    return script_of(*scripts, start=f'startOutputs("{mark}", {style}, {start});'), mark


def output(data: Mapping[str, Any], fallback: str, script: str, mark: str) -> str:
    """One output: its data, what is left without scripts, and the script. It has no ids and no globals: any number of them
    stand side by side."""
    held = escape(json.dumps(plain(data)))
    return f'<div data-mixlens="{mark}" data-result="{held}">{fallback}</div><script type="text/javascript">{script}</script>'


def html(result: Result | HeadMaps) -> str:
    """One output of a notebook."""
    if isinstance(result, HeadMaps):
        return _heads(result)
    try:
        precision, blocks = fit([numpy_of(result).reshape(-1, max(1, len(result.tokens)))], ROOM)
    except InputError as error:  # a cell that ends in this result must not fail: it says what is wrong with it
        return FRAME.format(_note(heading_line(result.info, result.method)) + _note(str(error)))
    script, mark = output_script(
        OUTPUT_STYLES, (*OUTPUT_SCRIPTS, "core.js", "views.js", "notebook_result.js"), "startResult"
    )
    return output(_data(result, precision, blocks[0]), without_script(result), script, mark)


def _heads(result: HeadMaps) -> str:
    """What each head of each layer does most, as a table of layers by heads."""
    rows: dict[int, str] = {}
    for role in result.roles():
        rows[role.layer] = (
            rows.get(role.layer, "") + f'<td style="padding:0 8px">{escape(role.name)}, {role.share:.0%}</td>'
        )
    heads = "".join(f"<th>head {number + 1}</th>" for number in range(result.scores.shape[1]))
    body = "".join(f"<tr><th>layer {layer + 1}</th>{cells}</tr>" for layer, cells in rows.items())
    table = f'<table style="font-size:12px"><tr><td></td>{heads}</tr>{body}</table>'
    return FRAME.format(_note(heading_line(result.info, result.method)) + table)


def _data(result: Result, precision: Precision, block: Block) -> dict[str, Any]:
    """What the script of an output reads."""
    is_map = isinstance(result, Map)
    return {
        "isMap": is_map,
        "depth": result.scores.shape[0] if is_map else 1,
        "tokens": list(map(shown, result.tokens)),
        "special": list(result.special),
        "query": query_of([result]),
        "line": heading_line(result.info, result.method),
        "predicts": _prediction(result),
        "holds": None if precision == EXACT else precision.description(signed=block["signed"]),
        "signed": is_signed(result),
        "block": block,
    }
