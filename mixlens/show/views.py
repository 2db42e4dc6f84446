"""Parts of a terminal picture: heat strips, bars and wrapped lines. They are laid out when the terminal is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..base.errors import InputError
from .colors import shares, style_of
from .layout import chopped, columns_of, fitting, item_lines, text_line, turned
from .tokens import pieces, shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

Piece = tuple[str, str]  # a text and its style
BAR = 24  # columns of the longest bar
LEAST_BAR = 6  # a shorter bar says nothing
MANY = 30  # tokens from which on bars are of the largest scores alone
FEW = 15  # scores that are shown of a long text


@dataclass(frozen=True)
class View:
    """A picture for rich. `lay(width, colours)` gives its lines once the terminal is known: 0, 16 or 256 colours (or more)."""

    lay: Callable[[int, int], Iterable[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self.lay(options.max_width, _colours_of(console))


def _colours_of(console: Console) -> int:
    """How many colours a console has; 16 colours show no shades."""
    if console.no_color or console.color_system is None:
        return 0
    return 256 if console.color_system in ("truecolor", "256") else 16


def wrapped(text: str, style: str = "") -> RenderableType:
    """A line, broken between words where the terminal is narrow."""
    return View(lambda width, colours: item_lines(text.split(" "), " ", width, style=style))


def separated(blocks: Iterable[Iterable[Text]]) -> Iterator[Text]:
    """The lines of all blocks, with an empty line between two blocks."""
    for number, block in enumerate(blocks):
        if number:
            yield text_line()
        yield from block


# --- strips -----------------------------------------------------------------------------------------------------------


def strip(tokens: Sequence[str], scores: Sequence[float], *, words: bool = False) -> RenderableType:
    """Tokens (or whole `words`) on a background as strong as their score. Pieces that continue a word stay attached to it."""
    return View(lambda width, colours: strip_lines(tokens, scores, width=width, colours=colours, words=words))


def strip_lines(tokens: Sequence[str], scores: Sequence[float], *, width: int, colours: int, words: bool) -> list[Text]:
    """Tokens on a background as strong as their score, wrapped between words."""
    lines = _Lines(width)
    for word in _coloured_words(tokens, scores, width, colours, words):
        lines.add_word(word)
    return [text_line(*line) for line in lines.lines]


def _coloured_words(
    tokens: Sequence[str], scores: Sequence[float], width: int, colours: int, whole_words: bool
) -> list[list[Piece]]:
    """Each word as the pieces it is made of, with their styles; no piece is wider than the terminal."""
    words: list[list[Piece]] = []
    for (text, goes_on), share in zip(pieces(tokens, words=whole_words), shares(scores), strict=True):
        if not goes_on:
            words.append([])
        words[-1] += [(part, style_of(share, colours)) for part in chopped(text, max(1, width))]
    return words


class _Lines:
    """Lines that are filled with words up to a width; a word that is wider than a line is broken between its pieces."""

    def __init__(self, width: int):
        self.width, self.end = width, 0
        self.lines: list[list[Piece]] = [[]]

    def add_word(self, word: Sequence[Piece]) -> None:
        """Puts a word behind the last one, with a space between them, or on a new line."""
        self._make_room(1 + sum(columns_of(text) for text, _ in word))
        if self.end:
            self._add(" ", "")
        for text, style in word:
            self._make_room(columns_of(text))
            self._add(text, style)

    def _make_room(self, size: int) -> None:
        """Begins a new line where so many columns do not fit on this one."""
        if self.end and self.end + size > self.width:
            self.lines.append([])
            self.end = 0

    def _add(self, text: str, style: str) -> None:
        self.lines[-1].append((turned(text), style))
        self.end += columns_of(text)


# --- bars -------------------------------------------------------------------------------------------------------------


class Bar(NamedTuple):
    """One row of bars: a position, its token, its score as it is written, and its score as a share of the largest."""

    place: int
    label: str
    number: str
    share: float


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
    count, write, scaled = count_of(top, len(tokens), MANY), number or _four_digits, shares(scores)
    places = largest_first(scores)[:count] if count < len(tokens) else range(len(tokens))
    rows = [Bar(place, shown(tokens[place]), write(scores[place]), scaled[place]) for place in places]
    missing = len(tokens) - count if top is None else 0
    return View(lambda width, colours: [*_bar_lines(rows, width, colours), *left_out(missing, width)])


def count_of(top: int | None, total: int, many: int) -> int:
    """How many are shown: `top`, all for 0, and where `top` is None all of them unless they are many."""
    if top is None:
        return FEW if total > many else total
    if top < 0:
        raise InputError(f"top is how many are shown, or 0 for all, not {top!r}.")
    return min(top or total, total)


def largest_first(scores: Sequence[float]) -> list[int]:
    """The positions of the scores, that of the largest magnitude first."""
    return sorted(range(len(scores)), key=lambda place: -abs(scores[place]))


def _four_digits(score: float) -> str:
    return f"{score:.4g}"


def _bar_lines(rows: Sequence[Bar], width: int, colours: int) -> Iterator[Text]:
    """The rows in columns: position, token, score, bar."""
    index = len(str(max((row.place for row in rows), default=0)))
    number = max((len(row.number) for row in rows), default=0)
    label, bar = _bar_room(rows, width - (1 + index + 2 + 2 + number + 2))
    for row in rows:
        start = (f" {row.place:>{index}}  ", "dim"), (fitting(row.label, label) + "  ", "")
        yield text_line(*start, *_number_and_bar(row, number, bar, colours))


def _number_and_bar(row: Bar, number: int, bar: int, colours: int) -> tuple[Piece, Piece]:
    """A score and its bar; no spaces follow a score that has no bar."""
    size = abs(row.share) if math.isfinite(row.share) else 0.0  # a score that is no number has no bar
    blocks = ("█" if row.share >= 0 else "▒") * round(size * bar)
    style = style_of(1.0 if row.share >= 0 else -1.0, colours, ink_only=True)
    aligned = (
        f"{row.number:>{number}}" if row.number.endswith("%") else f"{row.number:<{number}}" if blocks else row.number
    )
    return (f"{aligned}  " if blocks else aligned, ""), (blocks, style)


def _bar_room(rows: Sequence[Bar], room: int) -> tuple[int, int]:
    """The columns of the label and of the longest bar."""
    longest = max((columns_of(row.label) for row in rows), default=0)
    bar = _bar_width(room, longest)
    return max(1, min(longest, room - bar)), bar


def _bar_width(room: int, label: int) -> int:
    """The columns of the longest bar: labels are cut before a bar becomes too short, and a narrow terminal has no bars."""
    if room - label >= LEAST_BAR:
        return min(BAR, room - label)
    return LEAST_BAR if room >= 14 else 0


def left_out(count: int, width: int) -> Iterator[Text]:
    """A line that says how many are not shown; no line where all are."""
    words = f"{count:,} more: --top 0 shows all (in Python top=0)".split()
    return item_lines(words, " ", width, first=" ", style="dim") if count else iter(())
