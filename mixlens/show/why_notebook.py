"""An answer of `why` in a notebook: the question, the sentence, the text, trust. No script, no network."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..wording import percent
from .colors import ink, shade
from .why_text import marked_words, method_line, shown_words, without_line

if TYPE_CHECKING:
    from ..why import Why

FRAME = '<div style="font:15px/1.55 system-ui,sans-serif;max-width:64em">{}</div>'
READING = "font:20px/1.8 'Iowan Old Style',Palatino,Georgia,serif;margin:.6em 0"
LEGEND = "Blue and a solid line: for; orange and a dashed line: against."
ICONS = {"ok": "✓", "caution": "▲", "fail": "⬣", "info": "·"}


def html(why: Why) -> str:
    """The answer as one piece of HTML."""
    parts = [
        f'<div style="font-size:20px;font-weight:600">{escape(why.question)}</div>',
        f'<div style="font-size:17px">{escape(why.sentence)}</div>',
        f'<div style="opacity:.75">{escape(without_line(why))}</div>',
        *(f"<div>{ICONS[note.state]} {escape(note.text)}</div>" for note in why.notes),
        f'<div style="{READING}">{_text(why)}</div>',
        f'<div style="font-weight:600">{ICONS[why.trust.verdict]} {escape(why.trust.sentence)}</div>',
        *(f"<div>{ICONS[check.state]} {escape(check.title)} {escape(check.detail)}</div>" for check in why.trust.checks),
        f'<div style="opacity:.75;font-size:13px">{escape(method_line(why))}. {LEGEND}</div>',
    ]
    return FRAME.format("".join(parts))


def _text(why: Why) -> str:
    """The text itself; words with a share of the evidence on their colour, sign by the line under them."""
    marked = marked_words(why)
    largest = max((abs(why.words[place].share) for place in marked), default=1.0) or 1.0
    return "".join(_word(why, place, largest if place in marked else None) for place in shown_words(why))


def _word(why: Why, place: int, largest: float | None) -> str:
    word = why.words[place]
    if largest is None:
        return escape(word.before + word.text)
    back = shade(word.share / largest)
    line = "solid" if word.share > 0 else "dashed"
    style = f"background:rgb{back};color:rgb{ink(back)};border-bottom:2px {line};padding:0 2px".replace(" (", "(")
    share = percent(word.share, sign=why.method.signed)
    return f'{escape(word.before)}<span style="{style}" title="{share}">{escape(word.text)}</span>'
