"""An answer of `why` in a notebook: the sections of its page in a shadow root; without scripts the sentence, text and
trust."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..answers.telling import shown_words
from ..base.parts import Sentence, said
from ..base.text import percent
from .colors import LIGHT, hue_of, scaled
from .notebook import OUTPUT_SCRIPTS, output, output_script
from .page_template import WHY_SCRIPTS, WHY_STYLES
from .why_page import shown_why
from .why_text import marked_words

if TYPE_CHECKING:
    from ..answers.value import Why

READING = "font:20px/1.8 'Iowan Old Style',Palatino,Georgia,serif;margin:.6em 0"
LEGEND = "Blue and a solid line: for; orange and a dashed line: against."
ICONS = {"ok": "✓", "caution": "▲", "fail": "⬣", "info": "·"}
STYLES = ("tokens.css", "base.css", *WHY_STYLES, "notebook.css")
SCRIPTS = (*OUTPUT_SCRIPTS, *WHY_SCRIPTS, "notebook_why.js")


def html(why: Why) -> str:
    """One output of a notebook."""
    script, mark = output_script(STYLES, SCRIPTS, "startAnswer")
    return output({"why": shown_why(why)}, without_script(why), script, mark)


def without_script(why: Why) -> str:
    """What is left where scripts do not run: the sentences; the text, its words on their colour, sign by the line
    under them."""
    told, marked = why.told, marked_words(why)
    largest = max((abs(why.words[place].share) for place in marked), default=1.0) or 1.0
    text = ""
    for place in shown_words(why):
        word = why.words[place]
        text += escape(word.before)
        if place not in marked:
            text += escape(word.text)
            continue
        hue = hue_of(word.share, signed=why.method.signed)
        line = f"border-bottom:2px {'dashed' if hue == 'against' else 'solid'} {LIGHT[hue]};padding:0 3px;border-radius:4px"  # noqa: E501
        style = f"background:{scaled(word.share / largest, f'{hue}-tint')};color:{LIGHT['ink']};{line}"
        share = percent(word.share, sign=why.method.signed)
        text += f'<span style="{style}" title="{share}">{escape(word.text)}</span>'
    lines: list[tuple[str, Sentence]] = [
        ("font-size:20px;font-weight:600", told.question),
        ("font-size:17px", told.sentence),
        ("opacity:.75", told.without),
        *(("", said(f"{ICONS[note.state]} ", note.text)) for note in why.notes),
        ("font-weight:600", said(f"{ICONS[why.trust.verdict]} ", why.trust.sentence)),
        *(("", said(f"{ICONS[check.state]} ", check.title, " ", check.detail)) for check in why.trust.checks),
        ("opacity:.75;font-size:13px", said(told.method, f". {LEGEND}")),
    ]
    blocks = [f'<div style="{style}">{escape(sentence)}</div>' for style, sentence in lines]
    blocks.insert(3 + len(why.notes), f'<div style="{READING}">{text}</div>')
    return f'<div style="font:15px/1.55 system-ui,sans-serif;max-width:64em">{"".join(blocks)}</div>'
