"""One layer of a map in a terminal: a matrix of numbers, or the largest scores between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from .colors import shares, style_of
from .heading import share_text
from .layout import clipped, columns_of, fitting, in_blocks, text_line, turned
from .tokens import shown
from .views import Piece, View, separated

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

CELL = 6  # columns of one number of a map
Scores = Sequence[Sequence[float]]  # [query key]
Write = Callable[[float], str]


def matrix(tokens: Sequence[str], scores: Scores, *, in_percent: bool = False) -> RenderableType:
    """Rows are positions, columns are what they took; columns that do not fit go below. Shares are written in percent."""
    write = _percentage if in_percent else _number
    return View(lambda width, colours: _matrix(list(map(shown, tokens)), scores, write, width, colours))


def _matrix(texts: Sequence[str], scores: Scores, write: Write, width: int, colours: int) -> Iterator[Text]:
    label = min(max(map(columns_of, texts), default=0), max(4, (width - 1) // 3))
    gap = " " * _has_minus(scores)  # a minus takes the place of the space before a number
    heads = [(fitting(clipped(text, CELL - 1), CELL, middle=True), "") for text in texts]
    labels = [" " * label + gap, *(fitting(text, label, right=True) + gap for text in texts)]
    table = list(zip(labels, [heads, *(_cells(row, write, colours) for row in scores)], strict=True))
    blocks = in_blocks([CELL] * len(texts), max(CELL, width - label - len(gap)), gap=0)
    return separated(_block(table, slice(*block)) for block in blocks)


def _has_minus(scores: Scores) -> bool:
    return any(score < 0 for row in scores for score in row)


def _cells(row: Sequence[float], write: Write, colours: int) -> list[Piece]:
    """The numbers of a row, each on a background as strong as its share."""
    return [
        (fitting(write(score), CELL), style_of(share, colours)) for score, share in zip(row, shares(row), strict=True)
    ]


def _number(score: float) -> str:
    return f"{score:5.2f} " if abs(score) < 10 else f"{score:{CELL}.2g}"


def _percentage(score: float) -> str:
    """A share in percent; the sign stands above the map."""
    return f"{share_text(score).removesuffix(' %'):>{CELL - 1}} "


def _block(table: Sequence[tuple[str, Sequence[Piece]]], columns: slice) -> Iterator[Text]:
    """Some columns of a table of labels and cells."""
    for label, cells in table:
        yield text_line((label, ""), *cells[columns])


# --- the largest scores -----------------------------------------------------------------------------------------------


def largest_scores(
    tokens: Sequence[str], scores: Scores, *, count: int = 20, in_percent: bool = False
) -> RenderableType:
    """The largest scores between two tokens. Shares are written in percent."""
    pairs = sorted(_pairs(scores), key=lambda pair: -abs(pair[0]))[:count]
    write: Write = (lambda score: f"{share_text(score):>6}") if in_percent else "{:.4g}".format
    return View(lambda width, colours: [_pair_line(tokens, pair, write, max(4, (width - 26) // 2)) for pair in pairs])


def _pairs(scores: Scores) -> list[tuple[float, int, int]]:
    """Each score with its query and key. A token's own score says nothing of mixing, so it is left out."""
    return [(score, i, j) for i, row in enumerate(scores) for j, score in enumerate(row) if i != j]


def _pair_line(tokens: Sequence[str], pair: tuple[float, int, int], write: Write, room: int) -> Text:
    """A score, the position that took, and the token it took from."""
    score, query, key = pair
    source = turned(clipped(shown(tokens[key]), room))
    return text_line((f" {write(score):<10}{query:>4} {fitting(shown(tokens[query]), room)} ← {key:>4} {source}", ""))
