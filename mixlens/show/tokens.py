"""Tokens as a reader wants them: without a tokenizer's marks, with nothing hidden in them, and which of them belong together."""

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
    """A token as a reader wants it, on one line: control and zero-width characters are made visible."""
    text = printable(_unmarked(token).replace("Ċ", "⏎").removesuffix("</w>")) or "␣"
    is_mark = unicodedata.category(text[0]).startswith("M")  # an accent that stands alone needs something to sit on
    return f"◌{text}" if is_mark else text


def _unmarked(token: str) -> str:
    """A token without the marks of the beginning of a word; a visible space where nothing else is left."""
    for mark in STARTS:
        token = token.removeprefix(mark) or "␣"
    return token


def glued(tokens: Sequence[str]) -> list[bool]:
    """Does a token go on with the word before it? By "##", or by the missing mark of those tokenizers that mark new words."""
    marked = any(token.startswith(STARTS) for token in tokens)
    continues = [_goes_on(before, token, marked=marked) for before, token in pairwise(tokens)]
    return [False, *continues][: len(tokens)]


def _goes_on(before: str, token: str, *, marked: bool) -> bool:
    """Whether a token continues the word of the token `before`. `marked`: the tokenizer marks the beginnings of words."""
    if ADDED.fullmatch(token) or ADDED.fullmatch(before):
        return False
    return token.startswith(CONTINUES) or (marked and not token.startswith((*STARTS, "Ċ")))


def pieces(tokens: Sequence[str], *, words: bool = False) -> list[tuple[str, bool]]:
    """Each token as it stands in a sentence, and whether it is glued to the one before. Whole words never are."""
    if words:
        return [(shown(token), False) for token in tokens]
    return [(_piece(token, goes_on), goes_on) for token, goes_on in zip(tokens, glued(tokens), strict=True)]


def _piece(token: str, goes_on: bool) -> str:
    """A token without the mark of a continuation, unless it is nothing but that mark."""
    return shown(token.removeprefix(CONTINUES)) if goes_on and token != CONTINUES else shown(token)
