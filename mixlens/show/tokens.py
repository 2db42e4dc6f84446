"""Tokens as a reader wants them: without a tokenizer's marks, with nothing hidden in them, and which of them belong together."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from ..errors import printable

CONTINUES = "##"
STARTS = ("Ġ", "▁")
ADDED = re.compile(r"\[[A-Z]+\d*\]|<[^<>]+>")  # [CLS], <s>: no part of the text, never glued to it


def shown(token: str) -> str:
    """A token as a reader wants it, on one line: control and zero-width characters are made visible."""
    for mark in STARTS:
        if token.startswith(mark):
            token = token[len(mark) :] or "␣"
    text = printable(token.replace("Ċ", "⏎").removesuffix("</w>")) or "␣"
    return f"◌{text}" if unicodedata.category(text[0]).startswith("M") else text  # a mark needs something to sit on


def glued(tokens: Sequence[str]) -> list[bool]:
    """Does a token go on with the word before it? By "##", or by the missing mark of those tokenizers that mark new words."""
    marked = any(token.startswith(STARTS) for token in tokens)
    continues = [False]
    for before, token in pairwise(tokens):
        added = ADDED.fullmatch(token) or ADDED.fullmatch(before)
        continues.append(not added and (token.startswith(CONTINUES) or (marked and not token.startswith((*STARTS, "Ċ")))))
    return continues[: len(tokens)]


def pieces(tokens: Sequence[str], *, words: bool = False) -> list[tuple[str, bool]]:
    """Each token as it stands in a sentence, and whether it is glued to the one before. Whole words never are."""
    if words:
        return [(shown(token), False) for token in tokens]
    return [
        (shown(token.removeprefix(CONTINUES)) if goes_on and token != CONTINUES else shown(token), goes_on)
        for token, goes_on in zip(tokens, glued(tokens), strict=True)
    ]
