"""Tokens as a reader wants them: without a tokenizer's marks, with nothing hidden in them, and which of them belong
together."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from ..base.errors import printable

CONTINUES = "##"
STARTS = ("Ġ", "▁")
MASKS = ("[MASK]", "<mask>")
ADDED = re.compile(r"\[[A-Z]+\d*\]|<[^<>]+>")  # [CLS], <s>: no part of the text, never glued to it


def shown(token: str) -> str:
    """A token as a reader wants it, on one line: without the marks of the beginning of a word (a visible space where
    nothing else is left), control and zero-width characters made visible."""
    for mark in STARTS:
        token = token.removeprefix(mark) or "␣"
    text = printable(token.replace("Ċ", "⏎").removesuffix("</w>")) or "␣"
    is_mark = unicodedata.category(text[0]).startswith("M")  # an accent that stands alone needs something to sit on
    return f"◌{text}" if is_mark else text


def glued(tokens: Sequence[str]) -> list[bool]:
    """Does a token go on with the word before it? By "##", or by the missing mark of those tokenizers that mark new
    words."""
    marked = any(token.startswith(STARTS) for token in tokens)
    found = [False] * min(1, len(tokens))
    for before, token in pairwise(tokens):
        goes_on = token.startswith(CONTINUES) or (marked and not token.startswith((*STARTS, "Ċ")))
        found.append(goes_on and not ADDED.fullmatch(token) and not ADDED.fullmatch(before))
    return found


def pieces(tokens: Sequence[str], *, words: bool = False) -> list[tuple[str, bool]]:
    """Each token as it stands in a sentence, and whether it is glued to the one before. Whole words never are; the mark
    of a continuation stays where a token is nothing else."""
    if words:
        return [(shown(token), False) for token in tokens]
    return [
        (shown(token.removeprefix(CONTINUES)) if goes_on and token != CONTINUES else shown(token), goes_on)
        for token, goes_on in zip(tokens, glued(tokens), strict=True)
    ]
