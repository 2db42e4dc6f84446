"""Heat strips: the tokens of a text on a background as strong as their score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ...errors import printable
from ...types import Attribution, Result
from ..colors import hex_of, ink, shade
from ..tokens import pieces
from .layout import GAP, SIZE, SMALL, axes_at, broken, cut, put, size_of, text_width, title_height, write_head, write_title
from .legend import Colours, colours_of, legend_below
from .options import Options
from .picture import Picture
from .wording import array_of, meaning_of, title_of

HIGH, PITCH = 1.6, 1.9  # the height of a box, and from line to line, as multiples of the font size
LEGEND = 0.42  # inches of a colour bar below a strip


class Box(NamedTuple):
    """One token: its line, its left edge and width in inches, and its text."""

    line: int
    left: float
    wide: float
    text: str


def draw_strips(results: Sequence[Result], names: Sequence[str], options: Options) -> Any:
    """One strip below the other, each with its own colours; or one strip on the user's axes."""
    attributions = [result for result in results if isinstance(result, Attribution)]
    colours = [colours_of([array_of(result)], options.vmax) for result in attributions]
    if options.ax is not None:
        return _on_axes(options.ax, attributions[0], colours[0], options)
    return _on_page(attributions, names, colours, options)


def _on_axes(axes: Axes, result: Attribution, colours: Colours, options: Options) -> Any:
    figure = axes.get_figure(root=True)
    assert figure is not None
    room, high = size_of(axes)
    size, needed = _font_size(result.tokens, room, high)
    _draw_strip(axes, result, colours, room, size)
    if needed < high:
        axes.set_ylim(high, 0)  # boxes keep their shape
    write_head(axes, "\n".join(broken(options.title_or(title_of(result)), SIZE, room)))
    return figure


def _on_page(results: Sequence[Attribution], names: Sequence[str], colours: Sequence[Colours], options: Options) -> Picture:
    room, several = options.width - 2 * GAP, len(results) > 1
    size, strip_height = _font_size(results[0].tokens, room, None)
    lines = broken(options.title_or("" if several else title_of(results[0])), SIZE, room)
    heads = [broken(_head(result, name) if several else "", SIZE, room) for name, result in zip(names, results, strict=True)]
    below = LEGEND if options.colorbar else 0.0
    heights = [title_height(head) + strip_height + below for head in heads]
    page = Picture(figsize=(options.width, GAP + title_height(lines) + sum(heights) + GAP * len(results)))
    write_title(page, lines)
    top = GAP + title_height(lines)
    for result, head, high, own in zip(results, heads, heights, colours, strict=True):
        axes = axes_at(page, GAP, top + title_height(head), room, strip_height)
        _draw_strip(axes, result, own, room, size)
        if head:
            write_head(axes, "\n".join(head), pad=3)
        if options.colorbar:
            legend_below(page, GAP, top + high - below + 0.09, room, own, meaning_of([result], own.signed))
        top += high + GAP
    return page


def _head(result: Attribution, name: str) -> str:
    """What stands above one of several strips."""
    return printable(f"{name} · {title_of(result, method=name != result.method)}")


# --- one strip --------------------------------------------------------------------------------------------------------


def _font_size(tokens: Sequence[str], room: float, high: float | None) -> tuple[float, float]:
    """Font size in points and height of the strip in inches; the font is smaller where the user's axes have less room."""
    for size in (8.0, SIZE, 6.0, SMALL):
        lines = _boxes(tokens, room, size)[-1].line + 1
        needed = (lines * PITCH - 0.3) * size / 72
        if high is None or needed <= high:
            break
    return size, needed


def _draw_strip(axes: Axes, result: Attribution, colours: Colours, room: float, size: float) -> None:
    """Tokens on a background as strong as their score. The axes are in inches."""
    boxes = _boxes(result.tokens, room, size)
    high, pitch = HIGH * size / 72, PITCH * size / 72
    for number, (score, box) in enumerate(zip(array_of(result), boxes, strict=True)):
        back = shade(max(-1.0, min(1.0, float(score) / colours.end)))
        top = box.line * pitch
        _draw_box(axes, number, box, top, high, hex_of(back))
        middle, base = box.left + box.wide / 2, top + 0.73 * high
        put(axes, middle, base, box.text, ha="center", va="baseline", fontsize=size, color=hex_of(ink(back)))
    axes.set_xlim(0, room)
    axes.set_ylim((boxes[-1].line + 1) * pitch - (pitch - high), 0)
    axes.set_axis_off()


def _draw_box(axes: Axes, number: int, box: Box, top: float, high: float, colour: str) -> None:
    patch = Rectangle((box.left, top), box.wide, high, facecolor=colour, edgecolor="#b0b0b0", linewidth=0.3, clip_on=False)
    patch.set_gid(f"token-{number}")
    axes.add_patch(patch)


def _boxes(tokens: Sequence[str], room: float, size: float) -> list[Box]:
    """Where each token stands, in lines no wider than the room. A word stays on one line if it can."""
    texts = _measured(tokens, room, size)
    words = _word_widths(texts)
    space = 0.3 * size / 72
    boxes: list[Box] = []
    line, end = 0, 0.0
    for (wide, text, goes_on), word in zip(texts, words, strict=True):
        gap = 0.0 if goes_on or not end else space
        needed = word if not goes_on and word <= room else wide
        if end and end + gap + needed > room + 1e-9:
            line, end, gap = line + 1, 0.0, 0.0
        boxes.append(Box(line, end + gap, wide, text))
        end += gap + wide
    return boxes


def _measured(tokens: Sequence[str], room: float, size: float) -> list[tuple[float, str, bool]]:
    """Each token's width in inches, its text, and whether it continues the word before it."""
    pad = 0.35 * size / 72
    texts = [(cut(text, size, room - 2 * pad), goes_on) for text, goes_on in pieces(tokens)]
    return [(text_width(text, size) + 2 * pad, text, goes_on) for text, goes_on in texts]


def _word_widths(texts: Sequence[tuple[float, str, bool]]) -> list[float]:
    """For each token: the width of the token and of all tokens after it that continue its word."""
    widths: list[float] = []
    for number, (wide, _, _) in enumerate(texts):
        word = wide
        for later, _, follows in texts[number + 1 :]:
            if not follows:
                break
            word += later
        widths.append(word)
    return widths
