"""The terminal picture of a Generation: written words as rows, words of the prompt as columns, or its sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..answers.generation import Generation
from ..answers.generation.wording import QUESTION, cut_note, group_shares, group_title, own_shares, prompt_shares
from ..base.errors import InputError, printable
from ..base.text import for_terminal, percent
from ..scoring.provenance import public_name
from .colors import hex_of, style_of
from .layout import columns_of, fitting, in_blocks, item_lines, text_line
from .text import console
from .views import Piece, View, separated, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

CELL = 6  # columns of a number
WORD = 12  # columns of a written word, at most
VIOLET = (144, 128, 212)  # a share without sign
BY = ("word", "sentence")
ENOUGH = 10  # columns of the table's numbers at least, however narrow the terminal


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, what stands in it, and whether its cells are tinted."""

    name: str
    cells: tuple[str, ...]
    tints: tuple[float, ...] | None = None  # from -1 to 1; None: never tinted

    @property
    def width(self) -> int:
        return max(map(columns_of, (self.name, *self.cells)))


def show(generation: Generation, *, color: bool = True, by: str | None = None, effects: bool = True) -> None:
    """Prints the picture of a Generation; without `effects`, also where they are known, as if nothing had been left out."""
    console(color=color).print(generation_view(generation if effects else replace(generation, effects=None), by=by))


def generation_view(generation: Generation, *, by: str | None = None) -> RenderableType:
    """The answer, the two texts, the table and what its numbers are."""
    from rich.console import Group
    from rich.text import Text

    if by not in (None, *BY):
        raise InputError(f"by= is {' or '.join(BY)}, not {by!r}.")
    said = [wrapped(_line(QUESTION), "bold"), wrapped(_line(generation.sentence))]
    pair = [] if generation.text.pair is None else [_quoted("pair", generation.text.pair)]
    texts = [_quoted("prompt", generation.text.prompt or ""), *pair, _quoted("written", generation.text.written_shown)]
    table = View(lambda width, colours: _table(generation, by, width, colours))
    return Group(*said, Text(), *texts, Text(), table, Text(), *map(wrapped, _legend(generation, by)))


def _line(text: str) -> str:
    return printable(for_terminal(text))


def _quoted(name: str, text: str) -> RenderableType:
    words = printable(" ".join(text.split())).split(" ")
    return View(lambda width, colours: item_lines(words, " ", width, first=f"{name:<9}"))


def _legend(generation: Generation, by: str | None) -> list[str]:
    """What the numbers are, and what made them."""
    apart = f"special tokens ({_apart(generation)})"
    cells = f"percent of the written word; a row adds up to 100 % with its own words and {apart}"
    if generation.effects is not None and by != "word":
        cells += "; change: the written word's probability without that part of the prompt, in points"
    if generation.signed:
        cells += "; - speaks against it"
    name = public_name(generation.info.get("model", "?"))
    notes = [f"note: {note}"] if (note := cut_note(generation)) else []
    return [f"{cells}.", *notes, printable(f"model {name} · method {generation.method}{_dots(generation)}")]


def _dots(generation: Generation) -> str:
    given = " · the written text was given" if generation.given else ""
    return given + (f" · gap {generation.info['gap']:.0e}" if "gap" in generation.info else "")


# --- the table ----------------------------------------------------------------------------------------------------------


def _table(generation: Generation, by: str | None, width: int, colours: int) -> list[Text]:
    """The rows, by word where all words fit beside each other, else by sentence (or turn)."""
    first = _labels(generation)
    room = max(ENOUGH, width - sum(column.width + 1 for column in first))
    words = _word_columns(generation)
    chosen = by or ("word" if _wide(words) + _wide(_ends(generation)) <= room else "sentence")
    columns = [*(words if chosen == "word" else _group_columns(generation)), *_ends(generation)]
    blocks = in_blocks([column.width for column in columns], room, gap=1)
    lines = (_block(first, columns[slice(*block)], colours) for block in blocks)
    return list(separated(lines))


def _wide(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns)


def _block(first: Sequence[Column], columns: Sequence[Column], colours: int) -> list[Text]:
    """Some columns with the labels of the rows before them."""
    heads = [(_aligned(column, column.name) + " ", "dim") for column in (*first, *columns)]
    rows = range(len(first[0].cells))
    return [text_line(*heads), *(text_line(*_cells((*first, *columns), row, colours)) for row in rows)]


def _cells(columns: Sequence[Column], row: int, colours: int) -> list[Piece]:
    pieces: list[Piece] = []
    for column in columns:
        style = "" if column.tints is None else _style(column.tints[row], colours)
        pieces += [(_aligned(column, column.cells[row]), style), (" ", "")]
    return pieces


def _aligned(column: Column, text: str) -> str:
    return fitting(text, column.width, right=column.name not in ("written", "most"))


def _style(tint: float, colours: int) -> str:
    """Violet for a share, blue and orange for a score with a sign (below 0, or above 1: `_signed` adds 2)."""
    if abs(tint) >= 2 or tint < 0:
        return style_of(tint - 2 if tint >= 2 else tint, colours)
    if colours == 0 or not tint:
        return ""
    if colours <= 16:
        return "black on magenta" if tint >= 0.5 else "magenta" if tint >= 0.1 else ""
    back = tuple(round(255 + (channel - 255) * tint) for channel in VIOLET)
    return f"#000000 on {hex_of(back)}"  # type: ignore[arg-type]


def _labels(generation: Generation) -> list[Column]:
    words = tuple(fitting(printable(row.shown), min(WORD, columns_of(row.shown))) for row in generation.rows)
    sure = tuple(_percent(share) for share in generation.row_probabilities)
    return [Column("written", words), Column("sure", sure)]


def _percent(share: float) -> str:
    return for_terminal(percent(share))


def _word_columns(generation: Generation) -> list[Column]:
    """A column for each word of the prompt."""
    numbers = [number for number, word in enumerate(generation.columns) if word.counts]
    names = [printable(generation.columns[number].text) for number in numbers]
    return _tinted(names, generation.matrix[:, numbers].T.tolist(), generation.signed)


def _group_columns(generation: Generation) -> list[Column]:
    """A column for each sentence or turn of the prompt; and one for what leaving it out does, where that is known."""
    groups = generation.text.groups
    names = [_short(group_title(group, number, groups)) for number, group in enumerate(groups)]
    columns = _tinted(names, group_shares(generation).T.tolist(), False)
    if generation.effects is None:
        return columns
    changes = generation.effects.groups.T.tolist()
    lost = [Column("change", tuple(map(_points, values))) for values in changes]
    return [column for pair in zip(columns, lost, strict=True) for column in pair]


def _short(title: str) -> str:
    return title.replace("sentence ", "s").replace(" turn ", " ")


def _tinted(names: Sequence[str], columns: Sequence[Sequence[float]], signed: bool) -> list[Column]:
    """Columns of shares, tinted by one scale for all."""
    most = max((abs(value) for values in columns for value in values), default=0.0) or 1.0
    shift = 2.0 if signed else 0.0
    return [
        Column(
            name,
            tuple(map(_share, values)),
            tuple(shift + value / most if value >= 0 else value / most for value in values),
        )
        for name, values in zip(names, columns, strict=True)
    ]


def _share(value: float) -> str:
    """A whole percentage with its sign where it speaks against; a dot under half a percent."""
    size = round(100 * abs(value))
    return "·" if size == 0 else f"{'-' if value < 0 else ''}{size}"


def _points(change: float) -> str:
    """Points of probability; a dot under half a point, a question mark where it could not be measured."""
    if math.isnan(change):
        return "?"
    size = round(100 * abs(change))
    return "·" if size == 0 else f"{'+' if change > 0 else '-'}{size}"


def _ends(generation: Generation) -> list[Column]:
    """What special tokens and own words hold, and the word of the prompt that gave most."""
    own, prompt = own_shares(generation).tolist(), prompt_shares(generation).tolist()
    special = [max(0.0, 1 - one - other) for one, other in zip(own, prompt, strict=True)]
    columns = [Column(_apart(generation), tuple(map(_share, special))), Column("own", tuple(map(_share, own)))]
    return [*columns, Column("most", tuple(_most(generation, row) for row in range(len(own))))]


def _apart(generation: Generation) -> str:
    """What holds the special tokens of the prompt: a chat's template, else the mark at the beginning."""
    return "template" if any(word.segment == "template" for word in generation.columns) else "begin"


def _most(generation: Generation, row: int) -> str:
    numbers = [number for number, word in enumerate(generation.columns) if word.counts]
    best: Any = max(numbers, key=lambda number: abs(float(generation.matrix[row, number])), default=None)
    if best is None:
        return ""
    return f"{printable(generation.columns[best].text)} {_percent(abs(float(generation.matrix[row, best])))}"
