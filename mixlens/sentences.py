"""Words of a text as they stand in it, and its sentences: by marks that end a sentence, and by nothing that is learned.

A sentence ends after . ! ? or …, with the quotes and brackets that close behind it, and where the second text of a pair or a new
paragraph begins. A full stop ends none inside a number or an address (no space behind it), after an initial or one of
ABBREVIATIONS, and before a small letter, unless the whole text is written in small letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .types import Words

ENDS = frozenset(".!?…。！？")
CLOSES = frozenset("\"'”’»)]")
ABBREVIATIONS = frozenset(["mr", "mrs", "ms", "dr", "st", "vs", "prof", "jr", "sr", "fig", "eq", "al", "inc"])


@dataclass(frozen=True)
class Word:
    """A word, what stands between it and the word before, its tokens, and which text it is of: 0, 1 (the pair), or -1."""

    text: str
    before: str
    tokens: tuple[int, ...]
    source: int
    special: bool

    @property
    def is_mark(self) -> bool:
        """Is it punctuation alone?"""
        return not any(char.isalnum() for char in self.text)


def words_in(result: Any) -> list[Word]:
    """The words of a result (a Map, HeadMaps or an Attribution) in order; its tokens, where words are not known."""
    n = len(result.tokens)
    special = result.special or (False,) * n
    groups: Words = result.words or tuple((token, (place,)) for place, token in enumerate(result.tokens))
    sources = [result.info.get(name) or "" for name in ("text", "pair")]
    words: list[Word] = []
    source, end = 0, 0
    for text, tokens in groups:
        if all(special[token] for token in tokens):
            words.append(Word(text, "", tokens, -1, True))
            continue
        source, start = _place(sources, text, source, end)
        before = " " if start is None else sources[source][end if words and words[-1].source == source else 0 : start]
        end = end if start is None else start + len(text)
        words.append(Word(text, before, tokens, source, False))
    return words


def _place(sources: Sequence[str], text: str, source: int, end: int) -> tuple[int, int | None]:
    """Where a word stands behind the last one: the number of its text, and its first character; None where it is in neither."""
    start = sources[source].find(text, end)
    if start < 0 and source == 0:
        later = sources[1].find(text)
        return (1, later) if later >= 0 else (0, None)
    return source, start if start >= 0 else None


def sentences_of(words: Sequence[Word]) -> list[list[int]]:
    """Numbers of the words of each sentence, in order; special tokens are in none."""
    small = not any(char.isupper() for word in words for char in word.text if not word.special)
    numbers, sentence = [], 0
    places = [place for place, word in enumerate(words) if not word.special]
    for last, place in zip([None, *places], places, strict=False):
        if last is not None and _begins(words, last, place, small):
            sentence += 1
        numbers.append((sentence, place))
    return [[place for _, place in group] for _, group in groupby(numbers, key=lambda pair: pair[0])]


def _begins(words: Sequence[Word], last: int, place: int, small: bool) -> bool:
    """Whether a sentence begins at this word."""
    word = words[place]
    if word.source != words[last].source or word.before.count("\n") > 1:
        return True
    if not word.before or word.text[:1] in ENDS | CLOSES:
        return False
    end = last
    while end > 0 and words[end].text[-1:] in CLOSES and not words[end].special:
        end -= 1
    return words[end].text[-1:] in ENDS and not _goes_on(words, end, word, small)


def _goes_on(words: Sequence[Word], end: int, word: Word, small: bool) -> bool:
    """Whether the mark at `end` does not end its sentence, because of what stands before it or behind it."""
    if not small and word.text[:1].islower():
        return True
    before = words[end - 1].text if end else ""
    return words[end].text == "." and (before.lower() in ABBREVIATIONS or (len(before) == 1 and before.isupper()))
