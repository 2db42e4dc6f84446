"""Words of a text as they stand in it, and its sentences: by marks that end a sentence, and by nothing that is learned.

A sentence ends after . ! ? or …, with the quotes and brackets that close behind it, and where the second text of a
pair or a new paragraph begins. A full stop ends none inside a number or an address (no space behind it), after an
initial or one of ABBREVIATIONS, and before a small letter, unless the whole text is written in small letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ENDS = frozenset(".!?…。！？")
CLOSES = frozenset("\"'”’»)]")
ABBREVIATIONS = frozenset(["mr", "mrs", "ms", "dr", "st", "vs", "prof", "jr", "sr", "fig", "eq", "al", "inc"])


@dataclass(frozen=True)
class Word:
    """A word of a text, what stands between it and the word before, and its tokens. `source`: the text it is of, 0, 1
    (the pair) or -1 (the tokenizer added it); `begin`, `end`: its characters in that text, -1 where it is not found
    there."""

    text: str
    before: str
    tokens: tuple[int, ...]
    source: int
    special: bool
    begin: int = field(default=-1, compare=False)
    end: int = field(default=-1, compare=False)

    @property
    def mark(self) -> bool:
        """Punctuation alone."""
        return is_mark(self.text)


def is_mark(text: str) -> bool:
    """Whether a text is punctuation alone, or signs of ASCII such as + and $."""
    kinds = [(char, unicodedata.category(char)[0]) for char in text]
    return bool(text) and all(kind == "P" or (kind == "S" and char.isascii()) for char, kind in kinds)


def words_of(
    sources: Sequence[str | None], words: Sequence[tuple[str, tuple[int, ...]]], special: Sequence[bool]
) -> list[Word]:
    """Words as (text, tokens), in order, each found in its source: a text and its pair."""
    texts = [source or "" for source in (*sources, "", "")][:2]
    found: list[Word] = []
    source, end = 0, 0
    for text, tokens in words:
        is_special = all(special[token] for token in tokens)
        begin = texts[source].find(text, end)
        if begin < 0 and source == 0 and (later := texts[1].find(text)) >= 0 and not is_special:
            source, begin, end = 1, later, 0
        if is_special and (begin < 0 or texts[source][end:begin].strip()):  # written in the text, it would come next
            found.append(Word(text, "", tokens, -1, True))
        elif begin < 0:
            found.append(Word(text, " ", tokens, source, is_special))
        else:
            found.append(Word(text, texts[source][end:begin], tokens, source, is_special, begin, begin + len(text)))
            end = begin + len(text)
    return found


def words_in(result: Any) -> list[Word]:
    """The words of a Trace, a Map, HeadMaps or an Attribution in order; its tokens, where words are not known."""
    told = getattr(result, "info", {})
    sources = [getattr(result, name, None) or told.get(name) for name in ("text", "pair")]
    words = result.words or [(token, (place,)) for place, token in enumerate(result.tokens)]
    return words_of(sources, words, result.special or (False,) * len(result.tokens))


def sentences_of(words: Sequence[Word]) -> list[list[int]]:
    """Numbers of the words of each sentence, in order; special tokens are in none."""
    places = [place for place, word in enumerate(words) if not word.special]
    is_small = not any(char.isupper() for place in places for char in words[place].text)
    closing = "".join(CLOSES)
    sentences: list[list[int]] = []
    for last, place in zip([None, *places], places, strict=False):
        word = words[place]
        if last is None or word.source != words[last].source or word.before.count("\n") > 1:
            sentences.append([place])
            continue
        end = last  # the last word that is more than closing quotes and brackets
        while end > 0 and not words[end].text.rstrip(closing) and not words[end].special:
            end -= 1
        mark = words[end].text.rstrip(closing)
        ends = mark[-1:] in ENDS and word.before and word.text[:1] not in ENDS | CLOSES
        goes_on = not is_small and word.text[:1].islower()
        if ends and mark == ".":  # after an initial or an abbreviation, a full stop ends no sentence
            before = words[end - 1].text if end else ""
            goes_on |= before.lower() in ABBREVIATIONS or (len(before) == 1 and before.isupper())
        if ends and not goes_on:
            sentences.append([])
        sentences[-1].append(place)
    return sentences
