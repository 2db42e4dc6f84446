"""Terminal pictures: token heat strips, layer by layer, one layer's map, heads, several methods under one sentence.

They are laid out when the terminal's width and colours are known. Without colours they are numbers and bars.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..base.errors import InputError, printable
from ..base.words import words_in
from ..scoring.head_maps import grouped
from ..types import Attribution, HeadMaps, Map, Result
from .colors import shares, style_of
from .encoding import readable
from .heading import (
    are_shares,
    explained_by_each,
    explained_lines,
    heading_line,
    largest_of,
    notes,
    notes_of_each,
    number_of,
    removed_by_each,
    share_text,
    unit_lines,
    words_of,
)
from .layout import clipped, columns_of, fitting, in_blocks, item_lines, text_line, turned
from .tokens import pieces, shown
from .views import MANY, View, bars, count_of, largest_first, left_out, separated, strip, wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

MOST = 64  # tokens of a map that a terminal can hold
LARGEST = 20  # scores that are shown of a larger map
CELL = 6  # columns of one number of a map
BAR, WORD = 10, 14  # columns of the bar of a head at 100 %, and of a word beside it
BEST = 2  # tokens with the largest scores that are named behind a strip
OF_ROWS = ("layer", "special_removed")  # facts that each row of a comparison says by itself
Scores = Sequence[Sequence[float]]  # [query key]


def _head(info: Mapping[str, Any], first: str, note_lines: Sequence[str], about: Sequence[str]) -> list[RenderableType]:
    """The lines above a picture and an empty one: the first, notes, the prediction, and what the picture is about."""
    words = words_of(info.get("prediction") or [])
    predicts = View(lambda width, colours: item_lines(words, "   ", width, first="predicts  "))
    notes_in_bold = (wrapped(line, "bold") for line in note_lines)
    return [wrapped(first, "dim"), *notes_in_bold, *([predicts] if words else []), *map(wrapped, about), wrapped("")]


def attribution_view(result: Attribution, *, top: int | None = None) -> RenderableType:
    """The sentence on its colours, and a bar for each token."""
    from rich.console import Group

    info, tokens, scores = result.info, result.tokens, [float(score) for score in result.scores]
    about = [*explained_lines(info), *unit_lines(info, scores)]
    head = _head(info, heading_line(info, result.method), notes(result.method, info), about)
    sentence = View(lambda width, colours: [strip(tokens, scores, colours, words=info.get("unit") == "word")])
    return Group(*head, sentence, wrapped(""), bars(tokens, scores, top=top, number=number_of(info, scores, 4)))


# --- one layer of a map -----------------------------------------------------------------------------------------------


def map_view(result: Map, *, layer: int = -1) -> RenderableType:
    """One layer as a matrix, columns that do not fit below; of a long text the largest scores alone."""
    from rich.console import Group

    depth, n, _ = result.scores.shape
    if not -depth <= layer < depth:
        raise InputError(f"layer {layer} is out of range: the map has {depth} layers, 0 to {depth - 1}.")
    line = heading_line({**result.info, "layer": layer % depth}, result.method)
    in_percent, scores = are_shares(result.info), result.scores[layer].tolist()
    draw, what = _matrix, "rows: position, columns: what it took"
    if n > MOST:
        draw, what = _largest, f"{n} tokens, too many for a map in a terminal; the largest scores between two of them"
    picture = View(lambda width, colours: draw(result.tokens, scores, in_percent, width, colours))
    first = wrapped(f"{line} · {what}{', in percent' if in_percent else ''}", "dim")
    return Group(first, *(wrapped(note, "bold") for note in notes(result.method, result.info)), wrapped(""), picture)


def _matrix(tokens: Sequence[str], scores: Scores, in_percent: bool, width: int, colours: int) -> Iterator[Text]:
    """Rows are positions, columns are what they took. Shares are written in percent, whose sign stands above."""
    texts = list(map(shown, tokens))
    label = min(max(map(columns_of, texts)), (width - 1) // 3)
    gap = " " * any(
        score < 0 for row in scores for score in row
    )  # a minus takes the place of the space before a number

    def number(score: float) -> str:
        if in_percent:
            return f"{share_text(score).removesuffix(' %'):>{CELL - 1}} "
        return f"{score:5.2f} " if abs(score) < 10 else f"{score:{CELL}.2g}"

    cells = [[(fitting(clipped(text, CELL - 1), CELL, middle=True), "") for text in texts]]
    cells += [
        [
            (fitting(number(score), CELL), style_of(share, colours))
            for score, share in zip(row, shares(row), strict=True)
        ]
        for row in scores
    ]
    labels = [" " * label + gap, *(fitting(text, label, right=True) + gap for text in texts)]
    blocks = in_blocks([CELL] * len(texts), max(CELL, width - label - len(gap)), gap=0)
    return separated(
        (text_line((name, ""), *row[start:stop]) for name, row in zip(labels, cells, strict=True))
        for start, stop in blocks
    )


def _largest(tokens: Sequence[str], scores: Scores, in_percent: bool, width: int, colours: int) -> Iterator[Text]:
    """The largest scores between two tokens. A token's own score says nothing of mixing, so it is left out."""
    pairs = [(score, i, j) for i, row in enumerate(scores) for j, score in enumerate(row) if i != j]
    room = max(4, (width - 26) // 2)
    for score, query, key in sorted(pairs, key=lambda pair: -abs(pair[0]))[:LARGEST]:
        written = f"{share_text(score):>6}" if in_percent else f"{score:.4g}"
        source = turned(clipped(shown(tokens[key]), room))
        yield text_line((f" {written:<10}{query:>4} {fitting(shown(tokens[query]), room)} ← {key:>4} {source}", ""))


# --- heads ------------------------------------------------------------------------------------------------------------


def heads_view(result: HeadMaps, *, layer: int = -1) -> RenderableType:
    """One line for each head of a layer, counted from 1: what it does most, with its share, and the two words it brings
    together most."""
    from rich.console import Group

    one = result.layer(layer)
    roles, pairs = one.roles(), largest_pairs(one)
    what = "its attention" if one.method == "attention" else "its rows"
    meaning = (
        f"what each head does most, in percent of {what}; then the two words it brings together most (← took from)"
    )

    def lay(width: int, colours: int) -> Iterator[Text]:
        number, name = len(str(len(roles))), max(len(role.name) for role in roles)
        for role, pair in zip(roles, pairs, strict=True):
            start = f" head {role.head + 1:>{number}}  {role.name:<{name}}  {share_text(role.share):>5}  "
            bar, rest, room = "█" * round(role.share * BAR), "", width - len(start) - BAR - 2
            if pair and room > 8:
                query, key = (turned(clipped(shown(text), WORD)) for text in pair[:2])
                rest = f"{'':{BAR - len(bar)}}  " + clipped(f"{query} ← {key} {share_text(pair[2])}", room)
            yield text_line((start, ""), (bar, style_of(1.0, colours, ink_only=True)), (rest, "dim"))

    head = [wrapped(heading_line(one.info, one.method), "dim")]
    head += [wrapped(note, "bold") for note in notes(one.method, one.info)]
    return Group(*head, wrapped(meaning), wrapped(""), View(lay))


def largest_pairs(result: HeadMaps) -> list[tuple[str, str, float] | None]:
    """Of each head of one layer the two different words with the largest share of a row: who took, from whom, how much
    of its row; None where there are no two."""
    words = words_in(result)
    rows = grouped(
        result.scores[0].double().abs(), tuple((word.text, word.tokens) for word in words), len(result.tokens)
    )
    scaled = rows / rows.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    special = torch.tensor([word.special for word in words], device=rows.device)
    itself = torch.eye(len(words), dtype=torch.bool, device=rows.device)
    pairs: list[tuple[str, str, float] | None] = []
    for head in scaled.masked_fill(itself | special[:, None] | special[None, :], 0.0).cpu():
        query, key = divmod(int(head.argmax()), len(words))
        share = float(head[query, key])
        pairs.append((words[query].text, words[key].text, share) if share > 0 else None)
    return pairs


# --- several rows -----------------------------------------------------------------------------------------------------


def compare_view(
    results: Sequence[Attribution],
    *,
    names: Sequence[str] | None = None,
    layers: bool = False,
    top: int | None = None,
) -> RenderableType:
    """Several methods under one sentence, or with `layers` one method layer by layer: a strip each; without colours one
    table of numbers, of a long text those of the tokens with the largest shares alone, unless `top` is 0."""
    from rich.console import Group

    if not results:
        raise InputError("there is nothing to compare: no attributions were given.")
    if any(result.tokens != results[0].tokens for result in results):
        raise InputError("these attributions are not of the same tokens, so they cannot stand under one sentence.")
    info, method = results[0].info, results[0].method
    labels = [result.method for result in results] if names is None else list(names)
    shared = {key: value for key, value in info.items() if key not in OF_ROWS}
    line = heading_line(shared, method) if layers else printable(f"model {info.get('model', '?')}")
    about = [*explained_by_each(results, labels), *removed_by_each(results, labels)]
    count = count_of(top, len(results[0].tokens), 2 * MANY)
    rows = list(zip(map(printable, labels), results, strict=True))

    def lay(width: int, colours: int) -> Iterator[Text]:  # 16 colours show no shades
        label = min(max(columns_of(name) for name, _ in rows), width // 3)
        named = [(f" {fitting(name, label)}  ", result) for name, result in rows]
        if colours > 16:
            return _strips(named, width)
        return _numbers(
            named, [f"{name} = {largest_of(one.info, one.scores.tolist())}" for name, one in rows], width, count
        )

    return Group(*_head(info, line, notes_of_each(results, labels), about), View(lay))


def _strips(rows: Sequence[tuple[str, Attribution]], width: int) -> Iterator[Text]:
    """A strip for each row, its name at the left, and the largest scores behind the last line or below it."""
    from rich.console import Console

    for name, result in rows:
        scores, room = result.scores.tolist(), width - columns_of(name)
        write = number_of(result.info, scores, 3)
        places = largest_first(scores)[:BEST]
        best = clipped(", ".join(f"{turned(shown(result.tokens[at]))} {write(scores[at])}" for at in places), room)
        whole = strip(result.tokens, scores, 256, words=result.info.get("unit") == "word")
        lines = list(whole.wrap(Console(), room))
        if columns_of(lines[-1].plain) + 2 + columns_of(best) > room:
            lines.append(text_line((best, "dim")))
        else:
            lines[-1].append("  " + best, style="dim")
        for number, line in enumerate(lines):
            yield text_line((" " * columns_of(name) if number else name, "")).append_text(line)


def _numbers(rows: Sequence[tuple[str, Attribution]], largest: Sequence[str], width: int, count: int) -> Iterator[Text]:
    """Percent of the row's largest score, a column for each token; columns that do not fit go below."""
    room = width - columns_of(rows[0][0])
    tokens, words = rows[0][1].tokens, any(result.info.get("unit") == "word" for _, result in rows)
    scaled = [shares(result.scores.tolist()) for _, result in rows]
    most = [max(map(abs, column)) for column in zip(*scaled, strict=True)]
    texts = [clipped(text, max(4, room)) for text, _ in pieces(tokens, words=words)]
    columns = [[texts[at], *(f"{100 * row[at]:.0f}" for row in scaled)] for at in sorted(largest_first(most)[:count])]
    widths = [max(map(columns_of, column)) for column in columns]
    names = [" " * columns_of(rows[0][0]), *(name for name, _ in rows)]

    def block(start: int, stop: int) -> Iterator[Text]:
        for name, cells in zip(names, zip(*columns[start:stop], strict=True), strict=True):
            fitted = (fitting(cell, wide, right=True) for cell, wide in zip(cells, widths[start:stop], strict=True))
            yield text_line((name + " ".join(fitted), ""))

    yield from separated(block(start, stop) for start, stop in in_blocks(widths, room, gap=1))
    yield from left_out(len(tokens) - count)
    yield text_line()
    caption = [
        "percent of",
        "each",
        "row's",
        "largest",
        "score:",
        *(f"{item}," for item in largest[:-1]),
        *largest[-1:],
    ]
    yield from item_lines(caption, " ", width, style="dim")


# --- writing them -----------------------------------------------------------------------------------------------------


def view(result: Result | HeadMaps, **options: Any) -> RenderableType:
    if isinstance(result, HeadMaps):
        return heads_view(result, **options)
    return attribution_view(result, **options) if isinstance(result, Attribution) else map_view(result, **options)


def rendered(picture: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """The picture as a string."""
    from rich.console import Console

    out = io.StringIO()
    system: dict[str, Any] = {"color_system": None, "no_color": True}
    if color:
        system = {"color_system": "truecolor", "force_terminal": True, "no_color": False}
    Console(file=out, width=width, highlight=False, force_jupyter=False, **system).print(picture)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def console(*, color: bool = True) -> Console:
    """A console on the output of this program, for characters that its encoding may not have."""
    from rich.console import Console

    out: Any = readable(sys.stdout)
    return Console(file=out, highlight=False, no_color=None if color else True)  # None: as NO_COLOR says


def show(result: Result | HeadMaps, *, color: bool = True, **options: Any) -> None:
    """Prints the picture of a result."""
    console(color=color).print(view(result, **options))
