"""What a notebook shows: a small page of its own in a shadow root, no network. Without scripts a plain table
remains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from ..base.errors import InputError
from ..types import Attribution, HeadMaps, Map, Result
from .colors import LIGHT, hue_of, scaled, shares
from .heading import heading_line, words_of
from .packing import EXACT, fit
from .page_entry import is_signed, numpy_of, query_of
from .page_template import BASE_SCRIPTS, asset, plain, script_of
from .tokens import shown

FRAME = '<div style="font:14px/1.9 system-ui,sans-serif;max-width:100%;overflow-x:auto">{}</div>'
NOTE = '<div style="opacity:.7;font-size:12px">{}</div>'
ROOM = 1_000_000  # characters of numbers in one output, so that a notebook stays light
MOST_NAMED = 60  # tokens of a long text that are named
PLAIN_CELLS = 4_000  # cells of tables that are written out for readers without scripts
OUTPUT_STYLES = ("tokens.css", "base.css", "views.css", "notebook.css")
OUTPUT_SCRIPTS = (*BASE_SCRIPTS, "notebook.js")


def without_script(result: Result) -> str:
    """What is left where scripts do not run (a notebook that is not trusted): the tokens of an attribution on their
    colours, or tables of the layers of a map, as many as are light enough."""
    signed, tokens = is_signed(result), [escape(shown(token)) for token in result.tokens]

    def style(share: float) -> str:
        return f"background:{scaled(share, f'{hue_of(share, signed=signed)}-tint')};color:{LIGHT['ink']}"

    def table(layer: int) -> str:
        """Rows are positions, columns are the tokens they took from. The last layer is open."""
        head = "".join(f'<th style="font-weight:400;padding:0 3px">{token}</th>' for token in tokens)
        body = ""
        for token, row in zip(tokens, result.scores[layer].tolist(), strict=True):
            cells = "".join(
                f'<td style="{style(share)};text-align:center;padding:0 3px" title="{score:.6g}">{score:.2f}</td>'
                for score, share in zip(row, shares(row), strict=True)
            )
            body += f'<tr><th style="font-weight:400;text-align:right;padding-right:6px">{token}</th>{cells}</tr>'
        rows = f'<table style="border-collapse:collapse;font-size:12px"><tr><td></td>{head}</tr>{body}</table>'
        opened = " open" if layer == len(result.scores) - 1 else ""
        return f"<details{opened}><summary>layer {layer + 1}</summary>{rows}</details>"

    shown_parts = [NOTE.format(escape(heading_line(result.info, result.method)))]
    if isinstance(result, Attribution):
        predicts, scores = _prediction(result), [float(score) for score in result.scores]
        shown_parts += [] if predicts is None else [NOTE.format(escape(predicts))]
        shown_parts.append(
            " ".join(
                f'<span style="{style(share)};padding:2px 4px" title="{score:.6g}">{token}</span>'
                for token, score, share in zip(tokens, scores, shares(scores), strict=True)
            )
        )
        return FRAME.format("".join(shown_parts))
    depth, n, _ = result.scores.shape
    if n * n > PLAIN_CELLS:
        named = " ".join(tokens[:MOST_NAMED]) + (" …" if n > MOST_NAMED else "")
        return FRAME.format("".join([*shown_parts, NOTE.format(f"{depth} layers of {n} x {n} tokens: {named}")]))
    first = 0 if depth * n * n <= PLAIN_CELLS else depth - 1
    return FRAME.format("".join([*shown_parts, *map(table, range(first, depth))]))


def _prediction(result: Result) -> str | None:
    """The line of the prediction, where a result has one."""
    prediction = result.info.get("prediction")
    return "predicts  " + "   ".join(words_of(prediction)) if prediction else None


@cache
def output_script(styles: tuple[str, ...], scripts: tuple[str, ...], start: str) -> tuple[str, str]:
    """The script of every output of a kind, and the mark of the outputs it starts: those of this very version. `start`
    is the function that fills an output."""
    style = json.dumps(asset(*styles))
    mark = hashlib.sha256((asset(*scripts) + style).encode()).hexdigest()[:12]
    return script_of(*scripts, start=f'startOutputs("{mark}", {style}, {start});'), mark


def output(data: Mapping[str, Any], fallback: str, script: str, mark: str) -> str:
    """One output: its data, what is left without scripts, and the script. It has no ids and no globals: any number of
    them stand side by side."""
    held = escape(json.dumps(plain(data)))
    script = f'<script type="text/javascript">{script}</script>'
    return f'<div data-mixlens="{mark}" data-result="{held}">{fallback}</div>{script}'


def html(result: Result | HeadMaps) -> str:
    """One output of a notebook."""
    line = heading_line(result.info, result.method)
    if isinstance(result, HeadMaps):
        return FRAME.format(NOTE.format(escape(line)) + _heads_table(result))
    try:
        precision, blocks = fit([numpy_of(result).reshape(-1, max(1, len(result.tokens)))], ROOM)
    except InputError as error:  # a cell that ends in this result must not fail: it says what is wrong with it
        return FRAME.format(NOTE.format(escape(line)) + NOTE.format(escape(str(error))))
    data = {
        "isMap": isinstance(result, Map),
        "depth": result.scores.shape[0] if isinstance(result, Map) else 1,
        "tokens": list(map(shown, result.tokens)),
        "special": list(result.special),
        "query": query_of([result]),
        "line": line,
        "predicts": _prediction(result),
        "holds": None if precision == EXACT else precision.description(),
        "signed": is_signed(result),
        "block": blocks[0],
    }
    scripts = (*OUTPUT_SCRIPTS, "core.js", "views.js", "notebook_result.js")
    return output(data, without_script(result), *output_script(OUTPUT_STYLES, scripts, "startResult"))


def _heads_table(result: HeadMaps) -> str:
    """What each head of each layer does most, as a table of layers by heads."""
    rows: dict[int, str] = {}
    for role in result.roles():
        cell = f'<td style="padding:0 8px">{escape(role.name)}, {role.share:.0%}</td>'
        rows[role.layer] = rows.get(role.layer, "") + cell
    heads = "".join(f"<th>head {number + 1}</th>" for number in range(result.scores.shape[1]))
    body = "".join(f"<tr><th>layer {layer + 1}</th>{cells}</tr>" for layer, cells in rows.items())
    return f'<table style="font-size:12px"><tr><td></td>{heads}</tr>{body}</table>'
