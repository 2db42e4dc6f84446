"""Heat strips: the tokens of a text on a background as strong as their score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ...base.errors import printable
from ...types import Attribution, Result
from ..colors import LIGHT
from ..tokens import pieces
from .layout import (
    AXES,
    GAP,
    SIZE,
    SMALL,
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
from .options import Options
from .picture import Picture
from .wording import array_of, is_share, meaning_of, researcher_name, target_of, title_of

HIGH, PITCH = 1.6, 1.9  # the height of a box, and from line to line, as multiples of the font size
VALUED = 2.95  # from line to line where values stand below the boxes
FONT_SIZES = (SIZE, AXES, SMALL)  # points, the usual one first
LEGEND = 0.52  # inches of a colour bar below a strip
MARKED = 0.03  # of the sum of all magnitudes: from here on a token has a line below it, and its value
MOST_VALUED = 60  # tokens of a strip with values


class Box(NamedTuple):
    """One token: its line, its left edge and width in inches, and its text."""

    line: int
    left: float
    wide: float
    text: str


class Strip(NamedTuple):
    """One strip: its result, its colours, and the lines of the head above it."""

    result: Attribution
    colours: Colours
    head: Sequence[str]


def draw_strips(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """One strip below the other, each with its own colours; or one strip on the user's axes."""
    attributions = [result for result in results if isinstance(result, Attribution)]
    room = options.width - 2 * GAP
    heads = _heads(attributions, names, room)
    strips = [Strip(result, _colours(result, options), head) for result, head in zip(attributions, heads, strict=True)]
    return _on_page(strips, room, options) if options.ax is None else _on_axes(options.ax, strips[0], options)


def _colours(result: Attribution, options: Options) -> Colours:
    shares = is_share(result)
    return colours_of([array_of(result)], options.vmax, text=True, percent=shares, target=target_of([result]))


def _heads(results: Sequence[Attribution], names: Sequence[str], room: float) -> list[list[str]]:
    """The lines above each of several strips; one strip alone has a title instead."""
    return (
        [[]] if len(results) == 1 else [broken(_head(*pair), SIZE, room) for pair in zip(results, names, strict=True)]
    )


def _head(result: Attribution, name: str) -> str:
    """What stands above one of several strips."""
    return printable(f"{researcher_name(name)} · {title_of(result, method=name != result.method)}")


def _on_axes(axes: Axes, strip: Strip, options: Options) -> Any:
    """One strip on the user's axes, in a font that fits them."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    room, high = size_of(axes)
    size, needed = _font_size(strip.result.tokens, room, high)
    _draw_strip(axes, strip, room, size, valued=False)
    if needed < high:
        axes.set_ylim(high, 0)  # boxes keep their shape
    write_head(axes, "\n".join(broken(options.title_or(title_of(strip.result)), SIZE, room)))
    return figure


def _on_page(strips: Sequence[Strip], room: float, options: Options) -> Picture:
    """All strips on a new page, one below the other."""
    valued = len(strips[0].result.tokens) <= MOST_VALUED
    high = max(_height(strip, room, valued=valued) for strip in strips)
    lines = broken(options.title_or(_title(strips)), SIZE, room)
    heights = [title_height(strip.head) + high + _legend_height(options) for strip in strips]
    page = Picture(figsize=(options.width, GAP + title_height(lines) + sum(heights) + GAP * len(strips)))
    write_title(page, lines)
    tops = accumulate((height + GAP for height in heights), initial=GAP + title_height(lines))
    for strip, top, height in zip(strips, tops, heights, strict=False):
        _place_strip(page, strip, room, top, high)
        if options.colorbar:
            meaning = meaning_of([strip.result], strip.colours.signed)
            legend_below(page, GAP, top + height - LEGEND + 0.09, room, strip.colours, meaning)
    return page


def _height(strip: Strip, room: float, *, valued: bool) -> float:
    """The height of a strip in inches."""
    lines = _boxes(strip.result.tokens, room, SIZE, _value_widths(strip) if valued else ())[-1].line + 1
    return (lines * (VALUED if valued else PITCH) - 0.3) * SIZE / 72


def _value_widths(strip: Strip) -> list[float]:
    """The width of the value below each token; 0 where it has none."""
    scores = array_of(strip.result)
    least = MARKED * float(abs(scores).sum())
    return [
        text_width(_value(strip.colours, float(score)), SMALL) if abs(score) >= least > 0 else 0.0 for score in scores
    ]


def _value(colours: Colours, score: float) -> str:
    return number(score, percent=colours.percent, sign=colours.signed)


def _title(strips: Sequence[Strip]) -> str:
    """The title of one strip; several have heads instead."""
    return "" if len(strips) > 1 else title_of(strips[0].result)


def _legend_height(options: Options) -> float:
    return LEGEND if options.colorbar else 0.0


def _place_strip(page: Picture, strip: Strip, room: float, top: float, high: float) -> None:
    """A strip and its head on axes of their own, `top` inches from the top of the page."""
    axes = axes_at(page, GAP, top + title_height(strip.head), room, high)
    _draw_strip(axes, strip, room, FONT_SIZES[0], valued=len(strip.result.tokens) <= MOST_VALUED)
    if strip.head:
        write_head(axes, "\n".join(strip.head), pad=3)


# --- one strip --------------------------------------------------------------------------------------------------------


def _font_size(tokens: Sequence[str], room: float, high: float = math.inf) -> tuple[float, float]:
    """Font size in points and height of the strip in inches; the font is smaller where the user's axes have less room."""
    for size in FONT_SIZES:
        lines = _boxes(tokens, room, size)[-1].line + 1
        needed = (lines * PITCH - 0.3) * size / 72
        if needed <= high:
            break
    return size, needed


def _draw_strip(axes: Axes, strip: Strip, room: float, size: float, *, valued: bool) -> None:
    """Tokens on a background as strong as their score; the strong ones with a line and, `valued`, their number below. The axes
    are in inches."""
    boxes = _boxes(strip.result.tokens, room, size, _value_widths(strip) if valued else ())
    high, pitch = HIGH * size / 72, (VALUED if valued else PITCH) * size / 72
    scores = array_of(strip.result)
    least = MARKED * float(abs(scores).sum())
    for place, (score, box) in enumerate(zip(map(float, scores), boxes, strict=True)):
        top = box.line * pitch
        _draw_box(axes, place, box, top, high, strip.colours.shade(score))
        middle, base = box.left + box.wide / 2, top + 0.73 * high
        put(axes, middle, base, box.text, ha="center", va="baseline", fontsize=size, color=LIGHT["ink"])
        if abs(score) >= least > 0:
            _mark(axes, strip.colours, score, box, top + high, valued=valued)
    axes.set_xlim(0, room)
    axes.set_ylim((boxes[-1].line + 1) * pitch - 0.3 * size / 72, 0)
    axes.set_axis_off()


def _mark(axes: Axes, colours: Colours, score: float, box: Box, bottom: float, *, valued: bool) -> None:
    """A line below a box, solid for and dashed against, and the score."""
    hue = colours.hue(score)
    dash: Any = (0, (2.2, 1.4)) if hue == "against" else "-"
    style = {"color": LIGHT[hue], "linewidth": 1.2, "linestyle": dash, "solid_capstyle": "butt", "clip_on": False}
    axes.plot([box.left, box.left + box.wide], [bottom, bottom], **style)
    if valued:
        middle, ink = box.left + box.wide / 2, LIGHT[f"{hue}-ink"]
        put(axes, middle, bottom + 0.03, _value(colours, score), ha="center", va="top", fontsize=SMALL, color=ink)


def _draw_box(axes: Axes, place: int, box: Box, top: float, high: float, colour: str) -> None:
    patch = Rectangle((box.left, top), box.wide, high, facecolor=colour, edgecolor="none", linewidth=0, clip_on=False)
    patch.set_gid(f"token-{place}")
    axes.add_patch(patch)


# --- where each token stands ------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A token to be placed: its width in inches, its text, whether it continues the word before it, and the width of itself
    and of all tokens after it that continue its word."""

    wide: float
    text: str
    goes_on: bool
    word: float

    def needed(self, room: float) -> float:
        """The width that must fit on a line: a word stays on one line if it can."""
        return self.word if not self.goes_on and self.word <= room else self.wide


def _boxes(tokens: Sequence[str], room: float, size: float, least: Sequence[float] = ()) -> list[Box]:
    """Where each token stands, in lines no wider than the room. `least`: how wide each must be for what stands below it."""
    lines = _Lines(room, 0.3 * size / 72)
    for token in _measured(tokens, room, size, least):
        lines.add(token)
    return lines.boxes


class _Lines:
    """Boxes that stand beside each other, up to a room in inches, with a space between words."""

    def __init__(self, room: float, space: float):
        self.room, self.space = room, space
        self.line, self.end = 0, 0.0
        self.boxes: list[Box] = []

    def add(self, token: Token) -> None:
        """Places a token behind the last one, or on a new line."""
        gap = self._gap(token)
        if self.end and self.end + gap + token.needed(self.room) > self.room + 1e-9:
            self.line, self.end, gap = self.line + 1, 0.0, 0.0
        self.boxes.append(Box(self.line, self.end + gap, token.wide, token.text))
        self.end += gap + token.wide

    def _gap(self, token: Token) -> float:
        """The space before a token: none within a word and at the beginning of a line."""
        return 0.0 if token.goes_on or not self.end else self.space


def _measured(tokens: Sequence[str], room: float, size: float, least: Sequence[float]) -> list[Token]:
    """The tokens with their widths at a font size in points; a text that is wider than the room is cut."""
    pad = 0.35 * size / 72
    texts = [(cut(text, size, room - 2 * pad), goes_on) for text, goes_on in pieces(tokens)]
    floors = least or [0.0] * len(texts)
    widths = [max(text_width(text, size) + 2 * pad, floor) for (text, _), floor in zip(texts, floors, strict=True)]
    words = _word_widths(widths, [goes_on for _, goes_on in texts])
    return [Token(wide, *text, word) for wide, text, word in zip(widths, texts, words, strict=True)]


def _word_widths(widths: Sequence[float], continues: Sequence[bool]) -> list[float]:
    """For each token: the width of the token and of all tokens after it that continue its word."""
    return [sum(widths[i : _word_end(continues, i)]) for i in range(len(widths))]


def _word_end(continues: Sequence[bool], place: int) -> int:
    """The place behind the last token of a word."""
    return next((later for later in range(place + 1, len(continues)) if not continues[later]), len(continues))
