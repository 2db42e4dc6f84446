"""Parts of a terminal picture: heat strips, bars and wrapped lines. They are laid out when the terminal is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.errors import InputError
from .colors import shares, style_of
from .layout import columns_of, fitting, text_line, turned
from .tokens import pieces, shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

Piece = tuple[str, str]  # a text and its style
NARROWEST = 40  # columns: on a narrower terminal, pictures are as wide as this
BAR, LEAST_BAR = 24, 6  # columns of the longest bar: at most, and where labels are cut for it
MANY = 30  # tokens from which on bars are of the largest scores alone
FEW = 15  # scores that are shown of a long text


@dataclass(frozen=True)
class View:
    """A picture for rich. `lay(width, colours)` gives its lines once the terminal is known: 0, 16 or 256 colours (or
    more)."""

    lay: Callable[[int, int], Iterable[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        colours = 256 if console.color_system in ("truecolor", "256") else 16
        if console.no_color or console.color_system is None:
            colours = 0
        yield from self.lay(max(NARROWEST, options.max_width), colours)


def wrapped(text: str, style: str = "") -> RenderableType:
    """A line, broken between words where the terminal is narrow."""
    from rich.text import Text

    return Text(text, style)


def separated(blocks: Iterable[Iterable[Text]]) -> Iterator[Text]:
    """The lines of all blocks, with an empty line between two blocks."""
    for number, block in enumerate(blocks):
        if number:
            yield text_line()
        yield from block


def strip(tokens: Sequence[str], scores: Sequence[float], colours: int, *, words: bool) -> Text:
    """Tokens (or whole `words`) on a background as strong as their score. Pieces that continue a word stay attached to
    it."""
    from rich.text import Text

    line = Text()
    for (text, goes_on), share in zip(pieces(tokens, words=words), shares(scores), strict=True):
        if line and not goes_on:
            line.append(" ")
        line.append(turned(text), style_of(share, colours))
    return line


# --- bars -------------------------------------------------------------------------------------------------------------


def bars(
    tokens: Sequence[str], scores: Sequence[float], *, top: int | None, number: Callable[[float], str]
) -> RenderableType:
    """One row per token: score (as `number` writes it) and bar, in the order of the text; or the largest `top` of them,
    largest first. Of a long text the largest alone, unless `top` is 0."""
    count, scaled = count_of(top, len(tokens), MANY), shares(scores)
    places = largest_first(scores)[:count] if count < len(tokens) else range(len(tokens))
    labels, numbers = (
        {place: shown(tokens[place]) for place in places},
        {place: number(scores[place]) for place in places},
    )

    def lay(width: int, colours: int) -> Iterator[Text]:
        index = len(str(max(places, default=0)))
        wide = max(map(len, numbers.values()), default=0)
        longest = max(map(columns_of, labels.values()), default=0)
        room = width - (index + wide + 7)
        bar = min(BAR, max(LEAST_BAR, room - longest))
        for place in places:
            share, written = scaled[place], numbers[place]
            size = abs(share) if math.isfinite(share) else 0.0  # a score that is no number has no bar
            blocks = ("█" if share >= 0 else "▒") * round(size * bar)
            aligned = written.rjust(wide) if written.endswith("%") else written.ljust(wide) if blocks else written
            label = fitting(labels[place], max(1, min(longest, room - bar)))
            number_of_row = f"{label}  {aligned}{'  ' if blocks else ''}"
            hue = style_of(1.0 if share >= 0 else -1.0, colours, ink_only=True)
            yield text_line((f" {place:>{index}}  ", "dim"), (number_of_row, ""), (blocks, hue))
        if top is None:
            yield from left_out(len(tokens) - count)

    return View(lay)


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


def left_out(count: int) -> Iterator[Text]:
    """A line that says how many are not shown; no line where all are."""
    from rich.text import Text

    if count:
        yield Text(f" {count:,} more: --top 0 shows all (in Python top=0)", "dim")
