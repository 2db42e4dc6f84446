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

from ..types import Words

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
    special = result.special or (False,) * len(result.tokens)
    groups: Words = result.words or _tokens_as_words(result.tokens)
    sources = [result.info.get(name) or "" for name in ("text", "pair")]
    words: list[Word] = []
    source, end = 0, 0
    for text, tokens in groups:
        if all(special[token] for token in tokens):
            words.append(Word(text, "", tokens, -1, True))
            continue
        source, start = _place(sources, text, source, end)
        first = not words or words[-1].source != source
        before = _before(sources[source], 0 if first else end, start)
        end = end if start is None else start + len(text)
        words.append(Word(text, before, tokens, source, False))
    return words


def _tokens_as_words(tokens: Sequence[str]) -> Words:
    return tuple((token, (place,)) for place, token in enumerate(tokens))


def _before(source: str, end: int, start: int | None) -> str:
    """What stands in a text before a word, behind the `end` of the word before; a space where the word is not found."""
    return " " if start is None else source[end:start]


def _place(sources: Sequence[str], text: str, source: int, end: int) -> tuple[int, int | None]:
    """Where a word stands behind the last one: the number of its text, and its first character; None where it is in neither."""
    start = sources[source].find(text, end)
    if start < 0 and source == 0:
        later = sources[1].find(text)
        return (1, later) if later >= 0 else (0, None)
    return source, start if start >= 0 else None


def sentences_of(words: Sequence[Word]) -> list[list[int]]:
    """Numbers of the words of each sentence, in order; special tokens are in none."""
    small = _is_small(words)
    numbers, sentence = [], 0
    places = [place for place, word in enumerate(words) if not word.special]
    for last, place in zip([None, *places], places, strict=False):
        if last is not None and _begins(words, last, place, small):
            sentence += 1
        numbers.append((sentence, place))
    return [[place for _, place in group] for _, group in groupby(numbers, key=lambda pair: pair[0])]


def _is_small(words: Sequence[Word]) -> bool:
    """Whether the whole text is written in small letters."""
    return not any(char.isupper() for word in words for char in word.text if not word.special)


def _begins(words: Sequence[Word], last: int, place: int, small: bool) -> bool:
    """Whether a sentence begins at this word."""
    word = words[place]
    if word.source != words[last].source or word.before.count("\n") > 1:
        return True
    if not word.before or word.text[:1] in ENDS | CLOSES:
        return False
    end = _before_closing(words, last)
    return _opened(words[end].text)[-1:] in ENDS and not _goes_on(words, end, word, small)


def _opened(text: str) -> str:
    """A text without the quotes and brackets that close at its end."""
    return text.rstrip("".join(CLOSES))


def _before_closing(words: Sequence[Word], end: int) -> int:
    """The last word up to `end` that is more than closing quotes and brackets."""
    while end > 0 and not _opened(words[end].text) and not words[end].special:
        end -= 1
    return end


def _goes_on(words: Sequence[Word], end: int, word: Word, small: bool) -> bool:
    """Whether the mark at `end` does not end its sentence, because of what stands before it or behind it."""
    if not small and word.text[:1].islower():
        return True
    before = words[end - 1].text if end else ""
    return _opened(words[end].text) == "." and _is_abbreviation(before)


def _is_abbreviation(text: str) -> bool:
    """One of ABBREVIATIONS, or an initial."""
    return text.lower() in ABBREVIATIONS or (len(text) == 1 and text.isupper())
