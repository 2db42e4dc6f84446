"""What a notebook shows: plain HTML, no script, no network, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..types import Attribution, Map, Result
from .colors import ink, shade, shares
from .text import predicted, shown, told

FRAME = '<div style="font:14px/1.9 system-ui,sans-serif;max-width:100%;overflow-x:auto">{}</div>'


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


def html(result: Result) -> str:
    notes = _note(told(result.info, result.method))
    if isinstance(result, Attribution):
        if result.info.get("prediction"):
            notes += _note(predicted(result.info["prediction"]))
        return FRAME.format(notes + _strip(result.tokens, [float(score) for score in result.scores]))
    depth = result.scores.shape[0]
    layers = "".join(
        f"<details{' open' if layer == depth - 1 else ''}><summary>layer {layer + 1}</summary>{_matrix(result, layer)}</details>"
        for layer in range(depth)
    )
    return FRAME.format(notes + layers)
