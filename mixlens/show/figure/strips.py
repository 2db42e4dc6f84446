"""Heat strips: the tokens of a text on a background as strong as their score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ...base.errors import printable
from ...types import Attribution, Result
from ..colors import LIGHT, hue_of
from ..tokens import pieces
from .layout import (
    AXES,
    GAP,
    SIZE,
    SMALL,
    Options,
    axes_at,
    broken,
    cut,
    put,
    size_of,
    text_width,
    title_height,
    write_head,
    write_title,
)
from .legend import Colours, colours_of, legend_below, number
from .picture import Picture
from .wording import array_of, is_share, meaning_of, researcher_name, target_of, title_of

HIGH, PITCH = 1.6, 1.9  # the height of a box, and from line to line, as multiples of the font size
VALUED = 2.95  # from line to line where values stand below the boxes
SPACE, PAD = (
    0.3,
    0.35,
)  # between words and below the last line, and beside a token's text, as multiples of the font size
LEGEND = 0.52  # inches of a colour bar below a strip
MARKED = 0.03  # of the sum of all magnitudes: from here on a token has a line below it, and its value
MOST_VALUED = 60  # tokens of a strip with values


class Token(NamedTuple):
    """One token: its line, its left edge and width in inches, its text, its score, and its value where it is strong."""

    line: int
    left: float
    wide: float
    text: str
    score: float
    value: str


def draw_strips(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """One strip below the other, each with its own colours and a head; or one strip on the user's axes, in a font that
    fits."""
    every = [result for result in results if isinstance(result, Attribution)]
    colours = [
        colours_of([array_of(one)], options.vmax, text=True, percent=is_share(one), target=target_of([one]))
        for one in every
    ]
    usual = title_of(every[0]) if len(every) == 1 else ""
    if options.ax is not None:
        room, high = size_of(options.ax)
        for size in (SIZE, AXES, SMALL):
            tokens = _placed(every[0], colours[0], room, size, valued=False)
            if _height(tokens, size, valued=False) <= high:
                break
        _draw(options.ax, tokens, colours[0], room, size, valued=False)
        if _height(tokens, size, valued=False) < high:
            options.ax.set_ylim(high, 0)  # boxes keep their shape
        write_head(options.ax, "\n".join(broken(options.title_or(usual), SIZE, room)))
        return options.ax.get_figure(root=True)
    room, valued = options.room, len(every[0].tokens) <= MOST_VALUED
    heads: list[list[str]] = [[]]
    if len(every) > 1:
        titles = [title_of(one, method=name != one.method) for one, name in zip(every, names, strict=True)]
        pairs = zip(names, titles, strict=True)
        heads = [broken(printable(f"{researcher_name(name)} · {title}"), SIZE, room) for name, title in pairs]
    strips = [_placed(one, hues, room, SIZE, valued=valued) for one, hues in zip(every, colours, strict=True)]
    high = max(_height(tokens, SIZE, valued=valued) for tokens in strips)
    lines = broken(options.title_or(usual), SIZE, room)
    heights = [title_height(head) + high + (LEGEND if options.colorbar else 0.0) for head in heads]
    top = GAP + title_height(lines)
    page = Picture(figsize=(options.width, top + sum(heights) + GAP * len(strips)))
    write_title(page, lines)
    for result, hues, head, tokens, height in zip(every, colours, heads, strips, heights, strict=True):
        axes = axes_at(page, GAP, top + title_height(head), room, high)
        _draw(axes, tokens, hues, room, SIZE, valued=valued)
        if head:
            write_head(axes, "\n".join(head), pad=3)
        if options.colorbar:
            legend_below(page, GAP, top + height - LEGEND + 0.09, room, hues, meaning_of([result], hues.signed))
        top += height + GAP
    return page


def _height(tokens: Sequence[Token], size: float, *, valued: bool) -> float:
    """The height of a strip in inches."""
    return ((tokens[-1].line + 1) * (VALUED if valued else PITCH) - SPACE) * size / 72


def _placed(result: Attribution, colours: Colours, room: float, size: float, *, valued: bool) -> list[Token]:
    """Where each token stands, in lines no wider than the room; a word stays on one line if it can. A text that is
    wider than the room is cut; a token is as wide as the value below it."""
    scores, pad = list(map(float, array_of(result))), PAD * size / 72
    least = MARKED * sum(map(abs, scores))
    texts = [(cut(text, size, room - 2 * pad), goes_on) for text, goes_on in pieces(result.tokens)]
    values = [
        number(score, percent=colours.percent, sign=colours.signed) if abs(score) >= least > 0 else ""
        for score in scores
    ]
    below = [text_width(value, SMALL) if valued and value else 0.0 for value in values]
    widths = [max(text_width(text, size) + 2 * pad, floor) for (text, _), floor in zip(texts, below, strict=True)]
    starts = [place for place, (_, goes_on) in enumerate(texts) if not goes_on] + [len(texts)]
    words = {start: sum(widths[start:stop]) for start, stop in zip([0, *starts], [*starts, len(texts)], strict=True)}
    tokens, line, end = [], 0, 0.0
    for place, (text, goes_on) in enumerate(texts):
        gap = 0.0 if goes_on or not end else SPACE * size / 72
        needed = words[place] if not goes_on and words[place] <= room else widths[place]
        if end and end + gap + needed > room + 1e-9:
            line, end, gap = line + 1, 0.0, 0.0
        tokens.append(Token(line, end + gap, widths[place], text, scores[place], values[place]))
        end += gap + widths[place]
    return tokens


def _draw(axes: Axes, tokens: Sequence[Token], colours: Colours, room: float, size: float, *, valued: bool) -> None:
    """Tokens on a background as strong as their score; the strong ones with a line (dashed against) and, `valued`,
    their number below. The axes are in inches."""
    high, pitch = HIGH * size / 72, (VALUED if valued else PITCH) * size / 72
    for place, token in enumerate(tokens):
        top, hue = token.line * pitch, hue_of(token.score, signed=colours.signed)
        style: dict[str, Any] = {"edgecolor": "none", "linewidth": 0, "clip_on": False, "gid": f"token-{place}"}
        corner, colour = (token.left, top), colours.shade(token.score)
        axes.add_patch(Rectangle(corner, token.wide, high, facecolor=colour, **style))
        middle, bottom = token.left + token.wide / 2, top + high
        base = top + 0.73 * high
        put(axes, middle, base, token.text, ha="center", va="baseline", fontsize=size, color=LIGHT["ink"])
        if token.value:
            dash: Any = (0, (2.2, 1.4)) if hue == "against" else "-"
            axes.plot(
                [token.left, token.left + token.wide],
                [bottom, bottom],
                clip_on=False,
                color=LIGHT[hue],
                linewidth=1.2,
                linestyle=dash,
                solid_capstyle="butt",
            )
            if valued:
                put(
                    axes,
                    middle,
                    bottom + 0.03,
                    token.value,
                    ha="center",
                    va="top",
                    fontsize=SMALL,
                    color=LIGHT[f"{hue}-ink"],
                )
    axes.set_xlim(0, room)
    axes.set_ylim(_height(tokens, size, valued=valued), 0)
    axes.set_axis_off()
