"""Terminal pictures: token heat strips, one layer's map, several methods under one sentence."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..types import Attribution, Map, Prediction, Result
from .colors import ink, shade, shares

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

CONTINUES = ("##",)
STARTS = ("Ġ", "▁")


def shown(token: str) -> str:
    """A token as a reader wants it, on one line: control and zero-width characters are made visible."""
    for mark in STARTS:
        if token.startswith(mark):
            token = token[len(mark) :] or "␣"
    token = token.replace("Ċ", "⏎").removesuffix("</w>")
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in token) or "␣"


def strip(tokens: Sequence[str], scores: Sequence[float]) -> RenderableType:
    """Tokens on a background as strong as their score. Pieces that continue a word stay attached to it."""
    from rich.text import Text

    line = Text()
    for number, (token, share) in enumerate(zip(tokens, shares(scores), strict=True)):
        if number and not token.startswith(CONTINUES):
            line.append(" ")
        back = shade(share)
        line.append(shown(token).removeprefix("##") if number else shown(token), style=f"{_hex(ink(back))} on {_hex(back)}")
    return line


def bars(tokens: Sequence[str], scores: Sequence[float], *, top: int | None = None) -> RenderableType:
    """One row per token: score and bar, in the order of the text, or the largest `top` of them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    places = list(range(len(tokens)))
    if top is not None and top < len(places):
        places = sorted(places, key=lambda i: -abs(scores[i]))[:top]
    scaled = shares(scores)
    for i in places:
        length = round(abs(scaled[i]) * 24)
        bar = ("█" if scores[i] >= 0 else "▒") * length
        table.add_row(
            Text(str(i), style="dim"), Text(shown(tokens[i])), Text(f"{scores[i]:.4g}"), Text(bar, style=_hue(scores[i]))
        )
    return table


def told(info: Mapping[str, Any], method: str) -> str:
    """One line: which model, method and variant, how it was rolled out, how well it adds up."""
    parts = [f"model {info.get('model', '?')}", f"method {method}"]
    if info.get("variant") not in (None, "paper"):
        parts.append(f"variant {info['variant']}")
    if info.get("rollout"):
        parts.append(f"{'flow' if info['rollout'].get('flow') else 'rollout'} {info['rollout']['convention']}")
    if "layer" in info:
        parts.append(f"after layer {info['layer'] + 1}")
    if "gap" in info:
        parts.append(f"gap {info['gap']:.0e}")
    return " · ".join(parts)


def predicted(prediction: Prediction) -> str:
    return "predicts  " + "   ".join(f"{shown(word)} {probability:.1%}" for word, probability in prediction)


def explained(info: Mapping[str, Any]) -> str:
    """What the scores are about: a generated token, a class or word, or a position."""
    place = f"{shown(info['query_token'])} (position {info['query']})"
    if info.get("generated") is not None:
        return f"explains  {shown(info['generated'])}, written after {place}"
    if info.get("target") is not None:
        return f"explains  {info['score'].replace('_', ' ')} of {info['target']} at {place}"
    return f"explains  {place}"


def attribution_view(result: Attribution, *, top: int | None = None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    scores = [float(score) for score in result.scores]
    lines: list[RenderableType] = [Text(told(result.info, result.method), style="dim")]
    if result.info.get("prediction"):
        lines.append(Text(predicted(result.info["prediction"])))
    if "query_token" in result.info:
        lines.append(Text(explained(result.info)))
    return Group(*lines, Text(), strip(result.tokens, scores), Text(), bars(result.tokens, scores, top=top))


def map_view(result: Map, *, layer: int = -1) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    depth, _n, _ = result.scores.shape
    table = Table(box=None, padding=(0, 0), show_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    for token in result.tokens:
        table.add_column(Text(f"{shown(token)[:5]:^6}"), justify="center", no_wrap=True)
    rows = result.scores[layer].tolist()
    for token, row in zip(result.tokens, rows, strict=True):
        cells = []
        for score, share in zip(row, shares(row), strict=True):
            back = shade(share)
            cells.append(
                Text(f" {score:4.2f} " if abs(score) < 10 else f"{score:6.3g}", style=f"{_hex(ink(back))} on {_hex(back)}")
            )
        table.add_row(Text(shown(token) + " "), *cells)
    head = Text(
        told({**result.info, "layer": layer % depth}, result.method) + " · rows: position, columns: what it took", style="dim"
    )
    return Group(head, Text(), table)


def compare_view(results: Sequence[Attribution]) -> RenderableType:
    """Several methods under one sentence, one strip each."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    first = results[0]
    lines: list[RenderableType] = [Text(f"model {first.info.get('model', '?')}", style="dim")]
    if first.info.get("prediction"):
        lines.append(Text(predicted(first.info["prediction"])))
    lines.append(Text(explained(first.info)))
    table = Table(box=None, padding=(0, 1), show_header=False)
    for result in results:
        scores = [float(score) for score in result.scores]
        best = ", ".join(f"{shown(token)} {score:.3g}" for token, score in result.top(2))
        table.add_row(Text(result.method), strip(result.tokens, scores), Text(best, style="dim"))
    return Group(*lines, Text(), table)


def view(result: Result, **options: Any) -> RenderableType:
    return attribution_view(result, **options) if isinstance(result, Attribution) else map_view(result, **options)


def rendered(picture: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """The picture as a string."""
    from rich.console import Console

    out = io.StringIO()
    system = {"color_system": "truecolor", "force_terminal": True} if color else {"no_color": True}
    Console(file=out, width=width, highlight=False, **system).print(picture)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def console(*, color: bool = True) -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, no_color=not color)


def show(result: Result, *, color: bool = True, **options: Any) -> None:
    console(color=color).print(view(result, **options))


def _hex(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _hue(score: float) -> str:
    return _hex(shade(1.0 if score >= 0 else -1.0))
