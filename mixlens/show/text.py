"""Terminal pictures: token heat strips, layer by layer, one layer's map, several methods under one sentence.

They are laid out when the terminal's width and colours are known. Without colours they are numbers and bars.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError, printable
from ..types import Attribution, Map, Result
from .colors import shares, style_of
from .encoding import readable
from .heading import (
    explained,
    explained_by_each,
    largest_of,
    notes,
    notes_of_each,
    number_of,
    predicted,
    removed_by_each,
    told,
    unit_of,
    words_of,
)
from .layout import chopped, clipped, columns_of, fitting, in_blocks, kept_together, laid, turned
from .tokens import glued, pieces, shown

__all__ = ["attribution_view", "compare_view", "console", "explained", "glued", "map_view", "pieces", "predicted", "rendered"]
__all__ += ["show", "shown", "strip", "told", "view"]

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

Piece = tuple[str, str]  # a text and its style
BAR = 24
CELL = 6  # columns of one number of a map
MOST = 64  # tokens of a map that a terminal can hold
MANY = 30  # tokens from which on bars are of the largest scores alone
FEW = 15  # so many of them


# --- laying out -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A picture for rich. `lay(width, colours)` gives its lines once the terminal is known: 0, 16 or 256 colours (or more)."""

    lay: Callable[[int, int], Iterable[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        shades = console.color_system in ("truecolor", "256")  # 16 colours show no shades
        colours = 0 if console.no_color or console.color_system is None else 256 if shades else 16
        yield from self.lay(options.max_width, colours)


def _strip(tokens: Sequence[str], scores: Sequence[float], width: int, colours: int, words: bool) -> list[Text]:
    """Tokens on a background as strong as their score, wrapped between words."""
    whole: list[list[Piece]] = []
    for (text, goes_on), share in zip(pieces(tokens, words=words), shares(scores), strict=True):
        whole += [] if goes_on and whole else [[]]
        whole[-1] += [(part, style_of(share, colours)) for part in chopped(text, max(1, width))]
    return [laid(*line) for line in _wrapped_words(whole, width)]


def _wrapped_words(words: Iterable[Sequence[Piece]], width: int) -> list[list[Piece]]:
    """Words in lines, with a space between them; a word that is wider than a line is broken between its pieces."""
    lines: list[list[Piece]] = [[]]
    end = 0
    for word in words:
        size = sum(columns_of(text) for text, _ in word)
        if end and end + 1 + size > width:
            lines.append([])
            end = 0
        if end:
            lines[-1].append((" ", ""))
            end += 1
        for text, style in word:
            if end and end + columns_of(text) > width:
                lines.append([])
                end = 0
            lines[-1].append((turned(text), style))
            end += columns_of(text)
    return lines


def strip(tokens: Sequence[str], scores: Sequence[float], *, words: bool = False) -> RenderableType:
    """Tokens (or whole `words`) on a background as strong as their score. Pieces that continue a word stay attached to it."""
    return View(lambda width, colours: _strip(tokens, scores, width, colours, words))


def bars(
    tokens: Sequence[str],
    scores: Sequence[float],
    *,
    top: int | None = None,
    number: Callable[[float], str] | None = None,
) -> RenderableType:
    """One row per token: score and bar, in the order of the text; or the largest `top` of them, largest first.

    Of a long text the largest alone, unless `top` is 0. `number` writes a score.
    """
    most = _most(top, len(tokens), MANY)
    written = number or (lambda score: f"{score:.4g}")
    return View(lambda width, colours: _bars(tokens, scores, width, colours, most, written, told=top is None))


def _most(top: int | None, there: int, many: int) -> int:
    """How many are shown: `top`, all for 0, and where nothing is said all of them unless they are many."""
    if top is not None and top < 0:
        raise InputError(f"top is how many are shown, or 0 for all, not {top!r}.")
    most = (FEW if there > many else there) if top is None else top or there
    return min(most, there)


def _bars(
    tokens: Sequence[str],
    scores: Sequence[float],
    width: int,
    colours: int,
    top: int,
    written: Callable[[float], str],
    *,
    told: bool,
) -> Iterator[Text]:
    places = list(range(len(tokens)))
    if top < len(places):
        places = sorted(places, key=lambda i: -abs(scores[i]))[:top]
    numbers = {i: written(scores[i]) for i in places}
    index = len(str(max(places, default=0)))
    wide = max(map(len, numbers.values()), default=0)
    label, bar = _bar_room([tokens[i] for i in places], width - (1 + index + 2 + 2 + wide + 2))
    scaled = shares(scores)
    for i in places:
        blocks = ("█" if scores[i] >= 0 else "▒") * round(abs(scaled[i]) * bar)
        number = f"{numbers[i]:<{wide}}  " if blocks else numbers[i]
        yield laid(
            (f" {i:>{index}}  ", "dim"),
            (fitting(shown(tokens[i]), label) + "  ", ""),
            (number, ""),
            (blocks, style_of(1.0 if scores[i] >= 0 else -1.0, colours, ink_only=True)),
        )
    if told and top < len(tokens):
        yield from _left_out(len(tokens) - top, width)


def _bar_room(tokens: Iterable[str], room: int) -> tuple[int, int]:
    """The columns of the label and of the longest bar. A bar of fewer than 6 columns says nothing."""
    longest = max((columns_of(shown(token)) for token in tokens), default=0)
    bar = min(BAR, room - longest) if room - longest >= 6 else 6 if room >= 14 else 0
    return max(1, min(longest, room - bar)), bar


def _left_out(count: int, width: int) -> Iterator[Text]:
    yield from kept_together(f"{count:,} more: --top 0 shows all (in Python top=0)".split(), " ", width, first=" ", style="dim")


def rows(
    names: Sequence[str],
    tokens: Sequence[str],
    scores: Sequence[Sequence[float]],
    *,
    infos: Sequence[Mapping[str, Any]] | None = None,
    best: int = 2,
    top: int | None = None,
) -> RenderableType:
    """Several rows of scores under one sentence: a strip each; without colours one table of numbers.

    The numbers of a long text are of the tokens with the largest shares alone, unless `top` is 0.
    """
    labels = [printable(name) for name in names]
    about = list(infos) if infos is not None else [{} for _ in labels]
    most = _most(top, len(tokens), 2 * MANY)
    return View(
        lambda width, colours: (
            _strips(labels, tokens, scores, about, width, best)
            if colours > 16
            else _numbers(labels, tokens, scores, about, width, most)
        )
    )


Infos = Sequence[Mapping[str, Any]]


def _strips(
    names: Sequence[str], tokens: Sequence[str], scores: Sequence[Sequence[float]], infos: Infos, width: int, best: int
) -> Iterator[Text]:
    label = _label_width(names, width)
    room = max(1, width - label - 3)
    for name, row, info in zip(names, scores, infos, strict=True):
        lines = _strip(tokens, row, room, 256, info.get("unit") == "word")
        written = number_of(info, row, 3)
        first = sorted(range(len(row)), key=lambda i: -abs(row[i]))[:best]
        told = clipped(", ".join(f"{turned(shown(tokens[i]))} {written(row[i])}" for i in first), room)
        beside = columns_of(lines[-1].plain) + 2 + columns_of(told) <= room
        for number, line in enumerate(lines):
            start = laid((" " + fitting(name if not number else "", label) + "  ", ""))
            start.append_text(line)
            if beside and number == len(lines) - 1:
                start.append("  " + told, style="dim")
            yield start
        if not beside:
            yield laid((" " * (label + 3), ""), (told, "dim"))


def _numbers(
    names: Sequence[str], tokens: Sequence[str], scores: Sequence[Sequence[float]], infos: Infos, width: int, top: int
) -> Iterator[Text]:
    """Percent of the row's largest score, a column for each token; columns that do not fit go below."""
    label = _label_width(names, width)
    whole = any(info.get("unit") == "word" for info in infos)
    texts = [clipped(text, max(4, width - label - 3)) for text, _ in pieces(tokens, words=whole)]
    scaled = [shares(row) for row in scores]
    places = sorted(sorted(range(len(tokens)), key=lambda i: -max(abs(row[i]) for row in scaled))[:top])
    percents = [[f"{100 * share:.0f}" for share in row] for row in scaled]
    wide = [max(columns_of(texts[i]), *(len(row[i]) for row in percents)) for i in places]
    for number, (start, stop) in enumerate(in_blocks(wide, width - label - 3, gap=1)):
        if number:
            yield laid()
        for name, cells in [("", texts), *zip(names, percents, strict=True)]:
            fitted = " ".join(fitting(cells[places[i]], wide[i], right=True) for i in range(start, stop))
            yield laid((" " + fitting(name, label) + "  ", ""), (fitted, ""))
    if top < len(tokens):
        yield from _left_out(len(tokens) - top, width)
    yield laid()
    yield from kept_together(_caption(names, scores, infos), " ", width, style="dim")


def _label_width(names: Sequence[str], width: int) -> int:
    """The columns of the names of rows: at most a third of the terminal."""
    return min(max(map(columns_of, names), default=0), max(1, width // 3))


def _caption(names: Sequence[str], scores: Sequence[Sequence[float]], infos: Infos) -> list[str]:
    """What 100 percent is in every row, in parts that stay together."""
    largest = [f"{name} = {largest_of(info, row)}" for name, row, info in zip(names, scores, infos, strict=True)]
    return ["percent of", "each", "row's", "largest", "score:", *(f"{item}," for item in largest[:-1]), *largest[-1:]]


# --- what is told -----------------------------------------------------------------------------------------------------


def _head(info: Mapping[str, Any], first: str, noted: Sequence[str], about: Sequence[str]) -> list[RenderableType]:
    from rich.text import Text

    lines: list[RenderableType] = [_wrapped(first, "dim"), *(_wrapped(one, "bold") for one in noted)]
    if info.get("prediction"):
        words = words_of(info["prediction"])
        lines.append(View(lambda width, colours: kept_together(words, "   ", width, first="predicts  ")))
    return [*lines, *map(_wrapped, about), Text()]


def _wrapped(text: str, style: str = "") -> RenderableType:
    """A line, broken between words where the terminal is narrow."""
    return View(lambda width, colours: kept_together(text.split(" "), " ", width, style=style))


# --- the pictures -----------------------------------------------------------------------------------------------------


def attribution_view(result: Attribution, *, top: int | None = None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    scores = [float(score) for score in result.scores]
    about = [explained(result.info)] if "query_token" in result.info else []
    unit = unit_of(result.info, scores)
    number = number_of(result.info, scores, 4)
    head = _head(result.info, told(result.info, result.method), notes(result.info), [*about, *([unit] if unit else [])])
    sentence = strip(result.tokens, scores, words=result.info.get("unit") == "word")
    return Group(*head, sentence, Text(), bars(result.tokens, scores, top=top, number=number))


def map_view(result: Map, *, layer: int = -1) -> RenderableType:
    """One layer as a matrix, columns that do not fit below; of a long text the largest scores alone."""
    from rich.console import Group
    from rich.text import Text

    depth, n, _ = result.scores.shape
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    about = told({**result.info, "layer": layer % depth}, result.method)
    noted = [_wrapped(one, "bold") for one in notes(result.info)]
    scores = result.scores[layer].tolist()
    if n > MOST:
        head = Text(
            f"{about} · {n} tokens, too many for a map in a terminal; the largest scores between two of them", style="dim"
        )
        return Group(head, *noted, Text(), View(lambda width, colours: _largest(result.tokens, scores, width)))
    head = Text(f"{about} · rows: position, columns: what it took", style="dim")
    return Group(head, *noted, Text(), View(lambda width, colours: _matrix(result.tokens, scores, width, colours)))


def _matrix(tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int, colours: int) -> Iterator[Text]:
    texts = [shown(token) for token in tokens]
    label = min(max(map(columns_of, texts), default=0), max(4, (width - 1) // 3))
    gap = " " * any(score < 0 for row in scores for score in row)  # a minus takes the place of the space before a number
    for number, (start, stop) in enumerate(in_blocks([CELL] * len(tokens), max(CELL, width - label - len(gap)), gap=0)):
        if number:
            yield laid()
        yield laid(
            (" " * label + gap, ""), *((fitting(clipped(texts[j], CELL - 1), CELL, middle=True), "") for j in range(start, stop))
        )
        for text, row in zip(texts, scores, strict=True):
            cells = []
            for score, share in list(zip(row, shares(row), strict=True))[start:stop]:
                number_ = f"{score:5.2f} " if abs(score) < 10 else f"{score:{CELL}.2g}"
                cells.append((fitting(number_, CELL), style_of(share, colours)))
            yield laid((fitting(text, label, right=True) + gap, ""), *cells)


def _largest(tokens: Sequence[str], scores: Sequence[Sequence[float]], width: int, count: int = 20) -> Iterator[Text]:
    """The largest scores between two tokens. A token's own score says nothing of mixing, so it is left out."""
    pairs = [(score, i, j) for i, row in enumerate(scores) for j, score in enumerate(row) if i != j]
    pairs.sort(key=lambda pair: -abs(pair[0]))
    room = max(4, (width - 26) // 2)
    for score, i, j in pairs[:count]:
        yield laid(
            (f" {score:<10.4g}{i:>4} {fitting(shown(tokens[i]), room)} ← {j:>4} {turned(clipped(shown(tokens[j]), room))}", "")
        )


def compare_view(
    results: Sequence[Attribution],
    *,
    names: Sequence[str] | None = None,
    layers: bool = False,
    top: int | None = None,
) -> RenderableType:
    """Several methods under one sentence, or with `layers` one method layer by layer."""
    from rich.console import Group

    if not results:
        raise InputError("there is nothing to compare: no attributions were given.")
    first = results[0]
    if any(result.tokens != first.tokens for result in results):
        raise InputError("these attributions are not of the same tokens, so they cannot stand under one sentence.")
    labels = [result.method for result in results] if names is None else list(names)
    about = {key: value for key, value in first.info.items() if key not in ("layer", "special_removed")}
    line = told(about, first.method) if layers else printable(f"model {first.info.get('model', '?')}")
    gone = removed_by_each(results, labels)
    head = _head(first.info, line, notes_of_each(results, labels), [*explained_by_each(results, labels), *gone])
    scores = [result.scores.tolist() for result in results]
    return Group(*head, rows(labels, first.tokens, scores, infos=[result.info for result in results], top=top))


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

    out: Any = readable(sys.stdout)
    return Console(file=out, highlight=False, no_color=None if color else True)  # None: as NO_COLOR says


def show(result: Result, *, color: bool = True, **options: Any) -> None:
    console(color=color).print(view(result, **options))
