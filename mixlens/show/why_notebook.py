"""An answer of `why` in a notebook: the sections of its page in a shadow root; without scripts the sentence, text and trust."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..base.text import percent
from .colors import LIGHT, hue_of, scaled
from .notebook import OUTPUT_SCRIPTS, output, output_script
from .page_template import WHY_SCRIPTS, WHY_STYLES
from .why_page import shown_why
from .why_text import marked_words, method_line, shown_words, without_line

if TYPE_CHECKING:
    from ..answers import Why

FRAME = '<div style="font:15px/1.55 system-ui,sans-serif;max-width:64em">{}</div>'
READING = "font:20px/1.8 'Iowan Old Style',Palatino,Georgia,serif;margin:.6em 0"
LEGEND = "Blue and a solid line: for; orange and a dashed line: against."
ICONS = {"ok": "✓", "caution": "▲", "fail": "⬣", "info": "·"}


STYLES = ("tokens.css", "base.css", *WHY_STYLES, "notebook.css")
SCRIPTS = (*OUTPUT_SCRIPTS, *WHY_SCRIPTS, "notebook_why.js")


def html(why: Why) -> str:
    """One output of a notebook."""
    script, mark = output_script(STYLES, SCRIPTS, "startAnswer")
    return output({"why": shown_why(why.to_dict())}, without_script(why), script, mark)


def without_script(why: Why) -> str:
    """What is left where scripts do not run."""
    parts = [
        f'<div style="font-size:20px;font-weight:600">{escape(why.question)}</div>',
        f'<div style="font-size:17px">{escape(why.sentence)}</div>',
        f'<div style="opacity:.75">{escape(without_line(why))}</div>',
        *(f"<div>{ICONS[note.state]} {escape(note.text)}</div>" for note in why.notes),
        f'<div style="{READING}">{_text(why)}</div>',
        f'<div style="font-weight:600">{ICONS[why.trust.verdict]} {escape(why.trust.sentence)}</div>',
        *(
            f"<div>{ICONS[check.state]} {escape(check.title)} {escape(check.detail)}</div>"
            for check in why.trust.checks
        ),
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
    hue = hue_of(word.share, signed=why.method.signed)
    line = "dashed" if hue == "against" else "solid"
    back = scaled(word.share / largest, f"{hue}-tint")
    style = (
        f"background:{back};color:{LIGHT['ink']};border-bottom:2px {line} {LIGHT[hue]};padding:0 3px;border-radius:4px"
    )
    share = percent(word.share, sign=why.method.signed)
    return f'{escape(word.before)}<span style="{style}" title="{share}">{escape(word.text)}</span>'
