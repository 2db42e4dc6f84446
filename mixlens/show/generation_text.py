"""The terminal picture of a Generation: written words as rows, words of the prompt as columns, or its sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..answers.generation import Generation
from ..answers.generation.wording import (
    QUESTION,
    cut_note,
    group_shares,
    group_title,
    has_template,
    own_shares,
    prompt_shares,
    prompt_words,
)
from ..base.errors import InputError, printable
from ..base.text import for_terminal, percent
from ..scoring.provenance import public_name
from .colors import hex_of, style_of
from .layout import columns_of, fitting, in_blocks, item_lines, text_line
from .text import console
from .views import View, separated, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WORD = 12  # columns of a written word, at most
VIOLET = (144, 128, 212)  # a share without sign
BY = ("word", "sentence")
ENOUGH = 10  # columns of the table's numbers at least, however narrow the terminal


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, what stands in it, and the styles of its cells."""

    name: str
    cells: Sequence[str]
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        return max(map(columns_of, (self.name, *self.cells)))

    def cell(self, text: str) -> str:
        return fitting(text, self.width, right=self.name not in ("written", "most")) + " "


def show(generation: Generation, *, color: bool = True, by: str | None = None, effects: bool = True) -> None:
    """Prints the picture of a Generation; without `effects`, also where they are known, as if nothing had been left
    out."""
    console(color=color).print(generation_view(generation if effects else replace(generation, effects=None), by=by))


def generation_view(generation: Generation, *, by: str | None = None) -> RenderableType:
    """The answer, the two texts, the table, what its numbers are and what made them."""
    from rich.console import Group
    from rich.text import Text

    if by not in (None, *BY):
        raise InputError(f"by= is {' or '.join(BY)}, not {by!r}.")
    text, info = generation.text, generation.info
    texts = {"prompt": text.prompt or "", "pair": text.pair, "written": text.written_shown}
    quoted = [_quoted(name, one) for name, one in texts.items() if one is not None]
    cells = f"percent of the written word; a row adds up to 100 % with its own words and special tokens ({_apart(generation)})"  # noqa: E501
    if generation.effects is not None and by != "word":
        cells += "; change: the written word's probability without that part of the prompt, in points"
    if generation.signed:
        cells += "; - speaks against it"
    note = cut_note(generation)
    made = f"model {public_name(info.get('model', '?'))} · method {generation.method}"
    made += " · the written text was given" if generation.given else ""
    made += f" · gap {info['gap']:.0e}" if "gap" in info else ""
    return Group(
        wrapped(QUESTION, "bold"),
        wrapped(printable(for_terminal(generation.sentence))),
        Text(),
        *quoted,
        Text(),
        View(lambda width, colours: _table(generation, by, width, colours)),
        Text(),
        *map(wrapped, [f"{cells}.", *([f"note: {note}"] if note else []), printable(made)]),
    )


def _quoted(name: str, text: str) -> RenderableType:
    words = printable(" ".join(text.split())).split(" ")
    return View(lambda width, colours: item_lines(words, " ", width, first=f"{name:<9}"))


def _apart(generation: Generation) -> str:
    """What holds the special tokens of the prompt: a chat's template, else the mark at the beginning."""
    return "template" if has_template(generation) else "begin"


# --- the table --------------------------------------------------------------------------------------------------------


def _table(generation: Generation, by: str | None, width: int, colours: int) -> list[Text]:
    """The rows, by word where all words fit beside each other, else by sentence (or turn); beside them what special
    tokens and own words hold, and the word of the prompt that gave most."""
    words = [fitting(printable(row.shown), min(WORD, columns_of(row.shown))) for row in generation.rows]
    sure = [for_terminal(percent(share)) for share in generation.row_probabilities]
    first = [Column("written", words), Column("sure", sure)]
    own, prompt = own_shares(generation).tolist(), prompt_shares(generation).tolist()
    special = [max(0.0, 1 - one - other) for one, other in zip(own, prompt, strict=True)]
    ends = [
        Column(_apart(generation), list(map(_share, special))),
        Column("own", list(map(_share, own))),
        Column("most", [_most(generation, row) for row in range(len(own))]),
    ]
    numbers = prompt_words(generation)
    names = [printable(generation.columns[number].text) for number in numbers]
    columns = _tinted(names, generation.matrix[:, numbers].T.tolist(), generation.signed, colours)
    room = max(ENOUGH, width - _wide(first))
    if by == "sentence" or (by is None and _wide(columns) + _wide(ends) > room):
        columns = _group_columns(generation, colours)
    columns += ends
    blocks = []
    for start, stop in in_blocks([column.width for column in columns], room, gap=1):
        shown = [*first, *columns[start:stop]]
        lines = [text_line(*((column.cell(column.name), "dim") for column in shown))]
        for row in range(len(words)):
            styles = [column.styles[row] if column.styles else "" for column in shown]
            cells = [column.cell(column.cells[row]) for column in shown]
            pieces = [((cell[:-1], style), (" ", "")) for cell, style in zip(cells, styles, strict=True)]
            lines.append(text_line(*(part for both in pieces for part in both)))
        blocks.append(lines)
    return list(separated(blocks))


def _wide(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns)


def _group_columns(generation: Generation, colours: int) -> list[Column]:
    """A column for each sentence or turn of the prompt; and one for what leaving it out does, where that is known."""
    groups, effects = generation.text.groups, generation.effects
    titles = [group_title(group, number, groups) for number, group in enumerate(groups)]
    names = [title.replace("sentence ", "s").replace(" turn ", " ") for title in titles]
    columns = _tinted(names, group_shares(generation).T.tolist(), False, colours)
    if effects is None:
        return columns
    lost = [Column("change", list(map(_points, values))) for values in effects.groups.T.tolist()]
    return [column for pair in zip(columns, lost, strict=True) for column in pair]


def _tinted(names: Sequence[str], columns: Sequence[Sequence[float]], signed: bool, colours: int) -> list[Column]:
    """Columns of shares, tinted by one scale for all: violet for a share, blue and orange for a score with a sign."""
    most = max((abs(value) for values in columns for value in values), default=0.0) or 1.0

    def style(value: float) -> str:
        tint = value / most
        if signed or tint < 0:
            return style_of(tint, colours)
        if colours == 0 or not tint:
            return ""
        if colours <= 16:
            return "black on magenta" if tint >= 0.5 else "magenta" if tint >= 0.1 else ""
        red, green, blue = (round(255 + (channel - 255) * tint) for channel in VIOLET)
        return f"#000000 on {hex_of((red, green, blue))}"

    return [
        Column(name, list(map(_share, values)), list(map(style, values)))
        for name, values in zip(names, columns, strict=True)
    ]


def _share(value: float) -> str:
    """A whole percentage with its sign where it speaks against; a dot under half a percent."""
    size = round(100 * abs(value))
    return "·" if size == 0 else f"{'-' if value < 0 else ''}{size}"


def _points(change: float) -> str:
    """Points of probability; a dot under half a point, a question mark where it could not be measured."""
    size = 0 if math.isnan(change) else round(100 * abs(change))
    return "?" if math.isnan(change) else "·" if size == 0 else f"{'+' if change > 0 else '-'}{size}"


def _most(generation: Generation, row: int) -> str:
    shares = generation.matrix[row].abs().tolist()
    best = max(prompt_words(generation), key=shares.__getitem__, default=None)
    if best is None:
        return ""
    return f"{printable(generation.columns[best].text)} {for_terminal(percent(shares[best]))}"
