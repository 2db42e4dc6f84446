"""Terminal pictures: token heat strips, layer by layer, one layer's map, several methods under one sentence.

They are laid out when the terminal's width and colours are known. Without colours they are numbers and bars.
"""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..errors import InputError, printable
from ..types import Attribution, Map, Prediction, Result
from .colors import hex_of as _hex
from .colors import ink, shade, shares

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

CONTINUES = "##"
STARTS = ("Ġ", "▁")
ADDED = re.compile(r"\[[A-Z]+\d*\]|<[^<>]+>")  # [CLS], <s>: no part of the text, never glued to it
LEFT_TO_RIGHT = "\u200e"  # after a right-to-left token, so that a terminal does not move the numbers that follow
BAR = 24
CELL = 6  # columns of one number of a map
MOST = 64  # tokens of a map that a terminal can hold


def shown(token: str) -> str:
    """A token as a reader wants it, on one line: control and zero-width characters are made visible."""
    for mark in STARTS:
        if token.startswith(mark):
            token = token[len(mark) :] or "␣"
    text = printable(token.replace("Ċ", "⏎").removesuffix("</w>")) or "␣"
    return f"◌{text}" if unicodedata.category(text[0]).startswith("M") else text  # a mark needs something to sit on


def glued(tokens: Sequence[str]) -> list[bool]:
    """Does a token go on with the word before it? By "##", or by the missing mark of those tokenizers that mark new words."""
    marked = any(token.startswith(STARTS) for token in tokens)
    found = [False]
    for before, token in pairwise(tokens):
        added = ADDED.fullmatch(token) or ADDED.fullmatch(before)
        found.append(not added and (token.startswith(CONTINUES) or (marked and not token.startswith((*STARTS, "Ċ")))))
    return found[: len(tokens)]


def pieces(tokens: Sequence[str]) -> list[tuple[str, bool]]:
    """Each token as it stands in a sentence, and whether it is glued to the one before."""
    return [
        (shown(token.removeprefix(CONTINUES)) if goes_on and token != CONTINUES else shown(token), goes_on)
        for token, goes_on in zip(tokens, glued(tokens), strict=True)
    ]


# --- laying out -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A picture for rich. `lay(width, coloured)` gives its lines once the terminal is known."""

    lay: Callable[[int, bool], Iterable[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        coloured = not console.no_color and console.color_system in ("truecolor", "256")  # 16 colours show no shades
        yield from self.lay(options.max_width, coloured)


def _line(*parts: tuple[str, str]) -> Text:
    """Text that is laid out already: never wrapped, never read as markup."""
    from rich.text import Text

    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _clip(text: str, width: int) -> str:
    """At most this many columns; what is cut off is an ellipsis."""
    if _cells(text) <= width:
        return text
    kept = ""
    for char in text:
        if _cells(kept + char) > width - 1:
            break
        kept += char
    return kept + "…"[: max(0, width)]


def _fit(text: str, width: int, *, right: bool = False, middle: bool = False) -> str:
    """Exactly this many columns."""
    text = _clip(text, width)
    room = width - _cells(text)
    left = room if right else room // 2 if middle else 0
    return " " * left + _turned(text) + " " * (room - left)


def _turned(text: str) -> str:
    return text + LEFT_TO_RIGHT if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text) else text


def _chopped(text: str, width: int) -> list[str]:
    """A text that is wider than the terminal, in parts that are not."""
    parts = [""]
    for char in text:
        if parts[-1] and _cells(parts[-1] + char) > width:
            parts.append("")
        parts[-1] += char
    return parts


def _kept_together(items: Sequence[str], gap: str, width: int, *, first: str = "", style: str = "") -> Iterator[Text]:
    """Items in lines, broken between them only; the line begins with `first`."""
    line, between = first, ""
    for item in items:
        longer = line + between + item
        if between and _cells(longer) > width:
            yield _line((line, style))
            longer = item
        *full, line = _chopped(longer, max(1, width))
        yield from (_line((part, style)) for part in full)
        between = gap
    yield _line((line, style))


def _strip(tokens: Sequence[str], scores: Sequence[float], width: int) -> list[Text]:
    """Tokens on a background as strong as their score, wrapped between words."""
    words: list[list[tuple[str, str]]] = []
    for (text, goes_on), share in zip(pieces(tokens), shares(scores), strict=True):
        back = shade(share)
        words += [] if goes_on and words else [[]]
        words[-1] += [(part, f"{_hex(ink(back))} on {_hex(back)}") for part in _chopped(text, max(1, width))]
    lines: list[list[tuple[str, str]]] = [[]]
    used = 0
    for word in words:
        size = sum(_cells(text) for text, _ in word)
        if used and used + 1 + size > width:
            lines.append([])
            used = 0
        if used:
            lines[-1].append((" ", ""))
            used += 1
        for text, style in word:
            if used and used + _cells(text) > width:
                lines.append([])
                used = 0
            lines[-1].append((_turned(text), style))
            used += _cells(text)
    return [_line(*line) for line in lines]


def strip(tokens: Sequence[str], scores: Sequence[float]) -> RenderableType:
    """Tokens on a background as strong as their score. Pieces that continue a word stay attached to it."""
    return View(lambda width, coloured: _strip(tokens, scores, width))


def bars(tokens: Sequence[str], scores: Sequence[float], *, top: int | None = None) -> RenderableType:
    """One row per token: score and bar, in the order of the text, or the largest `top` of them."""
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, not {top!r}.")
    return View(lambda width, coloured: _bars(tokens, scores, width, top))


def _bars(tokens: Sequence[str], scores: Sequence[float], width: int, top: int | None) -> Iterator[Text]:
    places = list(range(len(tokens)))
    if top is not None and top < len(places):
        places = sorted(places, key=lambda i: -abs(scores[i]))[:top]
    numbers = {i: f"{scores[i]:.4g}" for i in places}
    index = len(str(max(places, default=0)))
    wide = max((len(number) for number in numbers.values()), default=0)
    longest = max((_cells(shown(tokens[i])) for i in places), default=0)
    room = width - (1 + index + 2 + 2 + wide + 2)  # left for token and bar
    bar = min(BAR, room - longest) if room - longest >= 6 else 6 if room >= 14 else 0  # a shorter bar says nothing
    label = max(1, min(longest, room - bar))
    scaled = shares(scores)
    for i in places:
        blocks = ("█" if scores[i] >= 0 else "▒") * round(abs(scaled[i]) * bar)
        number = f"{numbers[i]:<{wide}}  " if bar else numbers[i]
        yield _line(
            (f" {i:>{index}}  ", "dim"), (_fit(shown(tokens[i]), label) + "  ", ""), (number, ""), (blocks, _hue(scores[i]))
        )


def rows(names: Sequence[str], tokens: Sequence[str], scores: Sequence[Sequence[float]], *, best: int = 2) -> RenderableType:
    """Several rows of scores under one sentence: a strip each; without colours one table of numbers."""
    labels = [printable(name) for name in names]
    return View(
        lambda width, coloured: (
            _strips(labels, tokens, scores, width, best) if coloured else _numbers(labels, tokens, scores, width)
        )
    )


def _strips(
    names: Sequence[str], tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int, best: int
) -> Iterator[Text]:
    label = min(max(map(_cells, names), default=0), max(1, width // 3))
    room = max(1, width - label - 3)
    for name, row in zip(names, scores, strict=True):
        lines = _strip(tokens, row, room)
        first = sorted(range(len(row)), key=lambda i: -abs(row[i]))[:best]
        told = _clip(", ".join(f"{_turned(shown(tokens[i]))} {row[i]:.3g}" for i in first), room)
        beside = _cells(lines[-1].plain) + 2 + _cells(told) <= room
        for number, line in enumerate(lines):
            start = _line((" " + _fit(name if not number else "", label) + "  ", ""))
            start.append_text(line)
            if beside and number == len(lines) - 1:
                start.append("  " + told, style="dim")
            yield start
        if not beside:
            yield _line((" " * (label + 3), ""), (told, "dim"))


def _numbers(names: Sequence[str], tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int) -> Iterator[Text]:
    """Percent of the row's largest score, a column for each token; columns that do not fit go below."""
    label = min(max(map(_cells, names), default=0), max(1, width // 3))
    texts = [_clip(text, max(4, width - label - 3)) for text, _ in pieces(tokens)]
    percents = [[f"{100 * share:.0f}" for share in shares(row)] for row in scores]
    wide = [max(_cells(texts[i]), *(len(row[i]) for row in percents)) for i in range(len(tokens))]
    for number, (start, stop) in enumerate(_blocks(wide, width - label - 3, gap=1)):
        if number:
            yield _line()
        for name, cells in [("", texts), *zip(names, percents, strict=True)]:
            fitted = " ".join(_fit(cells[i], wide[i], right=True) for i in range(start, stop))
            yield _line((" " + _fit(name, label) + "  ", ""), (fitted, ""))
    largest = [f"{name} = {max(map(abs, row), default=0.0):.3g}" for name, row in zip(names, scores, strict=True)]
    yield _line()
    caption = ["percent of", "each", "row's", "largest", "score:", *(f"{item}," for item in largest[:-1]), *largest[-1:]]
    yield from _kept_together(caption, " ", width, style="dim")


def _blocks(wide: Sequence[int], room: int, *, gap: int) -> Iterator[tuple[int, int]]:
    """Columns in groups that fit beside each other, at least one a group."""
    start, used = 0, 0
    for number, size in enumerate(wide):
        if number > start and used + gap + size > room:
            yield start, number
            start, used = number, 0
        used += size + (gap if number > start else 0)
    if start < len(wide):
        yield start, len(wide)


# --- what is told -----------------------------------------------------------------------------------------------------


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
    return printable(" · ".join(parts))


def predicted(prediction: Prediction) -> str:
    return "predicts  " + "   ".join(_words(prediction))


def _words(prediction: Prediction) -> list[str]:
    return [f"{shown(word)} {probability:.1%}" for word, probability in prediction]


def explained(info: Mapping[str, Any]) -> str:
    """What the scores are about: a generated token, a class or word, or a position."""
    place = f"{shown(info['query_token'])} (position {info['query']})"
    if info.get("generated") is not None:
        return f"explains  {shown(info['generated'])}, written after {place}"
    if info.get("target") is not None:
        return f"explains  {info['score'].replace('_', ' ')} of {printable(str(info['target']))} at {place}"
    return f"explains  {place}"


def _head(info: Mapping[str, Any], first: str) -> list[RenderableType]:
    from rich.text import Text

    lines: list[RenderableType] = [Text(first, style="dim")]
    if info.get("prediction"):
        lines.append(View(lambda width, coloured: _kept_together(_words(info["prediction"]), "   ", width, first="predicts  ")))
    if "query_token" in info:
        lines.append(Text(explained(info)))
    return [*lines, Text()]


# --- the pictures -----------------------------------------------------------------------------------------------------


def attribution_view(result: Attribution, *, top: int | None = None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    scores = [float(score) for score in result.scores]
    head = _head(result.info, told(result.info, result.method))
    return Group(*head, strip(result.tokens, scores), Text(), bars(result.tokens, scores, top=top))


def map_view(result: Map, *, layer: int = -1) -> RenderableType:
    """One layer as a matrix, columns that do not fit below; of a long text the largest scores alone."""
    from rich.console import Group
    from rich.text import Text

    depth, n, _ = result.scores.shape
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    about = told({**result.info, "layer": layer % depth}, result.method)
    scores = result.scores[layer].tolist()
    if n > MOST:
        head = Text(f"{about} · {n} tokens, too many for a map in a terminal; the largest scores", style="dim")
        return Group(head, Text(), View(lambda width, coloured: _largest(result.tokens, scores, width)))
    head = Text(f"{about} · rows: position, columns: what it took", style="dim")
    return Group(head, Text(), View(lambda width, coloured: _matrix(result.tokens, scores, width)))


def _matrix(tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int) -> Iterator[Text]:
    texts = [shown(token) for token in tokens]
    label = min(max(map(_cells, texts), default=0), max(4, (width - 1) // 3))
    gap = " " * any(score < 0 for row in scores for score in row)  # a minus takes the place of the space before a number
    for number, (start, stop) in enumerate(_blocks([CELL] * len(tokens), max(CELL, width - label - len(gap)), gap=0)):
        if number:
            yield _line()
        yield _line(
            (" " * label + gap, ""), *((_fit(_clip(texts[j], CELL - 1), CELL, middle=True), "") for j in range(start, stop))
        )
        for text, row in zip(texts, scores, strict=True):
            cells = []
            for score, share in list(zip(row, shares(row), strict=True))[start:stop]:
                back = shade(share)
                number_ = f"{score:5.2f} " if abs(score) < 10 else f"{score:{CELL}.2g}"
                cells.append((_fit(number_, CELL), f"{_hex(ink(back))} on {_hex(back)}"))
            yield _line((_fit(text, label, right=True) + gap, ""), *cells)


def _largest(tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int, count: int = 20) -> Iterator[Text]:
    pairs = sorted(((score, i, j) for i, row in enumerate(scores) for j, score in enumerate(row)), key=lambda pair: -abs(pair[0]))
    room = max(4, (width - 26) // 2)
    for score, i, j in pairs[:count]:
        yield _line(
            (f" {score:<10.4g}{i:>4} {_fit(shown(tokens[i]), room)} ← {j:>4} {_turned(_clip(shown(tokens[j]), room))}", "")
        )


def compare_view(results: Sequence[Attribution], *, names: Sequence[str] | None = None) -> RenderableType:
    """Several methods (or layers) under one sentence."""
    from rich.console import Group

    if not results:
        raise InputError("there is nothing to compare: no attributions were given.")
    first = results[0]
    if any(result.tokens != first.tokens for result in results):
        raise InputError("these attributions are not of the same tokens, so they cannot stand under one sentence.")
    labels = [result.method for result in results] if names is None else list(names)
    same = len({result.method for result in results}) == 1
    about = {key: value for key, value in first.info.items() if key != "layer"}
    line = told(about, first.method) if same and names is not None else printable(f"model {first.info.get('model', '?')}")
    return Group(*_head(first.info, line), rows(labels, first.tokens, [result.scores.tolist() for result in results]))


def view(result: Result, **options: Any) -> RenderableType:
    return attribution_view(result, **options) if isinstance(result, Attribution) else map_view(result, **options)


def rendered(picture: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """The picture as a string."""
    from rich.console import Console

    out = io.StringIO()
    system: dict[str, Any] = {"color_system": "truecolor", "force_terminal": True, "no_color": False}
    system = system if color else {"color_system": None, "no_color": True}
    Console(file=out, width=width, highlight=False, force_jupyter=False, **system).print(picture)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def console(*, color: bool = True) -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, no_color=None if color else True)  # None: as NO_COLOR says


def show(result: Result, *, color: bool = True, **options: Any) -> None:
    console(color=color).print(view(result, **options))


def _hue(score: float) -> str:
    return _hex(shade(1.0 if score >= 0 else -1.0))
