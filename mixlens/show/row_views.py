"""Several rows of scores under one sentence in a terminal: a strip each; without colours one table of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import printable
from .colors import shares
from .heading import largest_of, number_of
from .layout import clipped, columns_of, fitting, in_blocks, item_lines, text_line, turned
from .tokens import pieces, shown
from .views import MANY, View, count_of, largest_first, left_out, separated, strip_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


class Row(NamedTuple):
    """One row of scores: its name, the scores of the tokens, and what is known about them."""

    name: str
    scores: Sequence[float]
    info: Mapping[str, Any]

    @property
    def of_words(self) -> bool:
        return self.info.get("unit") == "word"


def rows(
    names: Sequence[str],
    tokens: Sequence[str],
    scores: Sequence[Sequence[float]],
    *,
    infos: Sequence[Mapping[str, Any]],
    best: int = 2,
    top: int | None = None,
) -> RenderableType:
    """Several rows of scores under one sentence: a strip each; without colours one table of numbers.

    The numbers of a long text are of the tokens with the largest shares alone, unless `top` is 0.
    """
    every = list(map(Row, map(printable, names), scores, infos))
    count = count_of(top, len(tokens), 2 * MANY)
    return View(
        lambda width, colours: (
            _strips(every, tokens, width, best) if colours > 16 else _numbers(every, tokens, width, count)
        )  # 16 colours show no shades
    )


def _label_width(rows: Sequence[Row], width: int) -> int:
    """The columns of the names of rows: at most a third of the terminal."""
    return min(max((columns_of(row.name) for row in rows), default=0), max(1, width // 3))


def _label(name: str, width: int) -> tuple[str, str]:
    """The name of a row before its line."""
    return " " + fitting(name, width) + "  ", ""


# --- strips -----------------------------------------------------------------------------------------------------------


def _strips(rows: Sequence[Row], tokens: Sequence[str], width: int, best: int) -> Iterator[Text]:
    """A strip for each row, its name at the left."""
    label = _label_width(rows, width)
    for row in rows:
        lines = _strip(row, tokens, max(1, width - label - 3), best)
        for name, line in zip(chain([row.name], repeat("")), lines, strict=False):
            yield text_line(_label(name, label)).append_text(line)


def _strip(row: Row, tokens: Sequence[str], room: int, best: int) -> list[Text]:
    """The lines of a strip, and the largest scores behind the last line or below it."""
    lines = strip_lines(tokens, row.scores, width=room, colours=256, words=row.of_words)
    scores = _largest_scores(row, tokens, best, room)
    if columns_of(lines[-1].plain) + 2 + columns_of(scores) > room:
        return [*lines, text_line((scores, "dim"))]
    lines[-1].append("  " + scores, style="dim")
    return lines


def _largest_scores(row: Row, tokens: Sequence[str], best: int, room: int) -> str:
    """The tokens with the largest scores of a row, and these scores."""
    write, places = number_of(row.info, row.scores, 3), largest_first(row.scores)[:best]
    return clipped(", ".join(f"{turned(shown(tokens[place]))} {write(row.scores[place])}" for place in places), room)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _numbers(rows: Sequence[Row], tokens: Sequence[str], width: int, count: int) -> Iterator[Text]:
    """Percent of the row's largest score, a column for each token; columns that do not fit go below."""
    label = _label_width(rows, width)
    room = width - label - 3
    names, columns = ["", *(row.name for row in rows)], _columns(rows, tokens, room, count)
    widths = [max(map(columns_of, column)) for column in columns]
    blocks = in_blocks(widths, room, gap=1)
    yield from separated(_block(names, columns[start:stop], widths[start:stop], label) for start, stop in blocks)
    yield from left_out(len(tokens) - count, width)
    yield text_line()
    yield from item_lines(_caption(rows), " ", width, style="dim")


def _columns(rows: Sequence[Row], tokens: Sequence[str], room: int, count: int) -> list[list[str]]:
    """A column for each token that is shown: the token, and the percentages of all rows."""
    whole_words = any(row.of_words for row in rows)
    texts = [clipped(text, max(4, room)) for text, _ in pieces(tokens, words=whole_words)]
    scaled = [shares(row.scores) for row in rows]
    return [[texts[place], *_percentages(scaled, place)] for place in _places(scaled, count)]


def _percentages(rows: Sequence[Sequence[float]], place: int) -> list[str]:
    """The shares of one token in all rows, in percent."""
    return [f"{100 * row[place]:.0f}" for row in rows]


def _places(rows: Sequence[Sequence[float]], count: int) -> list[int]:
    """The positions with the largest share in any row, in the order of the text."""
    largest = [max(map(abs, column)) for column in zip(*rows, strict=True)]
    return sorted(largest_first(largest)[:count])


def _block(names: Sequence[str], columns: Sequence[Sequence[str]], widths: Sequence[int], label: int) -> Iterator[Text]:
    """Columns beside each other: a line for the tokens, and one for each row."""
    for name, cells in zip(names, zip(*columns, strict=True), strict=True):
        fitted = [fitting(cell, width, right=True) for cell, width in zip(cells, widths, strict=True)]
        yield text_line(_label(name, label), (" ".join(fitted), ""))


def _caption(rows: Sequence[Row]) -> list[str]:
    """What 100 percent is in every row, in parts that stay together."""
    largest = [f"{row.name} = {largest_of(row.info, row.scores)}" for row in rows]
    return ["percent of", "each", "row's", "largest", "score:", *(f"{item}," for item in largest[:-1]), *largest[-1:]]
