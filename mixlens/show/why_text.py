"""An answer in the terminal, set by rich: the sentence, notes, the text, bars, trust."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..answers.telling import named_first, quotes, ranked, shown_words
from ..base.errors import printable
from ..base.parts import Sentence, said
from ..base.text import THIN, percent
from .colors import style_of
from .layout import columns_of, turned

if TYPE_CHECKING:
    from ..answers.value import Why

MOST_BARS = 12
LONGEST_BAR = 20
LEAST_SHARE = 0.03  # of the evidence: words under it carry no mark
MOST_MARKED = 20  # words of a long text that carry a mark
LONG = 60  # words of a long text
TIED = "\ue000"  # stands for the space before %, at which no line is broken
MARKS = {"ok": "ok", "caution": "!", "fail": "x", "info": " "}
STYLES = {"ok": "green", "caution": "yellow", "fail": "bold red", "info": ""}


class view:  # noqa: N801 - made and printed at once
    """The answer as a picture for rich, laid out when the terminal is known: 0, 16 or 256 colours (or more)."""

    def __init__(self, why: Why):
        self.why = why

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        plain = console.no_color or console.color_system is None
        colours = 0 if plain else 256 if console.color_system in ("truecolor", "256") else 16
        for line in console.render_lines(_whole(self.why, console, options.max_width, colours), options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            last = len(line) - 1
            for number, (text, style, _) in enumerate(line):
                yield Segment((text.rstrip() if number == last else text).replace(TIED, " "), style)
            yield Segment.line()


def set_text(sentence: Sentence | str, style: str = "") -> Text:
    return Text(printable(str(sentence).replace(THIN, " ")).replace(" %", f"{TIED}%"), style)


def _whole(why: Why, console: Console, width: int, colours: int) -> Group:
    """In the order of a page: the answer, what to know, the evidence, whether to trust it."""
    told = why.told
    styles = STYLES if colours else dict.fromkeys(STYLES, "")
    bold, dim = ("bold", "dim") if colours else ("", "")
    notes, trust = Table.grid(padding=(0, 1)), Table.grid(padding=(0, 2))
    for note in why.notes:
        notes.add_row(Text(MARKS[note.state], styles[note.state]), set_text(note.text, styles[note.state]))
    for check in why.trust.checks:
        if check.id != "reconstruction":
            trust.add_row(Text(MARKS[check.state], styles[check.state]), set_text(said(check.title, " ", check.detail)))
    return Group(
        set_text(told.sentence, bold),
        set_text(told.without),
        set_text(told.method, dim),
        *([notes] if why.notes else []),
        "",
        *_strip(why, console, width, colours),
        "",
        *_bars(why, width, colours),
        "",
        set_text(said("Trust: ", why.trust.sentence), styles[why.trust.verdict]),
        trust,
    )


def marked_words(why: Why) -> set[int]:
    """The words that carry a mark: those that are named, those with a share of the evidence, of a long text the
    strongest."""
    shown = shown_words(why)
    least = LEAST_SHARE if len(shown) <= LONG else 0.0
    return set(named_first(why, [place for place in shown if abs(why.words[place].share) >= least])[:MOST_MARKED])


def _strip(why: Why, console: Console, width: int, colours: int) -> Iterator[Text]:
    """The text with its own spaces; under each line a line of + and -, where scores have a sign."""
    marked = marked_words(why)
    largest = max((abs(why.words[place].share) for place in marked), default=1.0) or 1.0
    texts: dict[str, Text] = {}
    for place in shown_words(why):
        word = why.words[place]
        text = texts.setdefault(word.segment, Text())
        before = (
            ""
            if not text
            else " ".join(printable(word.before.replace("\n", " ")).split(" "))
            if word.before.strip()
            else " "
        )
        text.append(before if word.before else "")
        share = word.share if place in marked else 0.0
        style = Style.parse(style_of(share / largest, colours) if place in marked else "")
        text.append(turned(printable(word.text)), style + Style(meta={"share": share}))
    for text in texts.values():
        for line in text.wrap(console, max(1, width)):
            yield line
            below = ""
            for span in line.spans:
                share = span.style.meta.get("share", 0.0) if isinstance(span.style, Style) else 0.0
                below = below.ljust(columns_of(line.plain[: span.start]))
                sign = "+" if share > 0 else "-" if share < 0 else " "
                below += sign * columns_of(line.plain[span.start : span.end])
            if below.strip() and why.method.signed:
                yield Text(below.rstrip())


def _bars(why: Why, width: int, colours: int) -> Iterator[RenderableType]:
    """At most twelve words from most for to most against, those that are named among them; and what is not drawn."""
    places, rest = ranked(why, MOST_BARS, LEAST_SHARE)
    largest = max((abs(why.words[place].share) for place in places), default=0.0) or 1.0
    names = [
        f"{why.words[place].text}{quote.which}" for place, quote in zip(places, quotes(why.words, places), strict=True)
    ]
    longest = max(map(columns_of, names), default=0)
    room = width - 15  # beside margins and numbers
    bar = min(LONGEST_BAR, room - longest) if room - longest >= 6 else 6 if room >= 12 else 0
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, room - bar))
    rows.add_column(no_wrap=True, justify="right", min_width=7)
    rows.add_column(no_wrap=True)
    for place, name in zip(places, names, strict=True):
        share = why.words[place].share
        blocks = ("█" if share >= 0 else "▒") * round(abs(share) / largest * bar)
        ink = style_of(1.0 if share >= 0 else -1.0, colours, ink_only=True)
        rows.add_row(turned(printable(name)), set_text(percent(share, sign=why.method.signed)), Text(blocks, ink))
    yield Padding(rows, (0, 0, 0, 2))
    unit = "share of evidence" if why.method.signed else "share of evidence, without a sign"
    yield Padding(
        set_text(said(rest, " " if rest else "", f"Unit: {unit}, {why.method.name}."), "dim" if colours else ""),
        (0, 0, 0, 2),
    )
