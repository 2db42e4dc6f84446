"""The words of a row that a run wrote, found in its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...model.words import group_words
from ...scoring.aggregate import bare

Words = tuple[list[str], np.ndarray]
APOSTROPHES = frozenset("'’")
ENDING = 2  # letters of 's, 're, 'll; more letters behind an apostrophe are a word in quotation marks


@dataclass(frozen=True)
class WrittenWord:
    """A word as the text has it, with the characters between the word before and this one. `segment`: 0, or 1 in the pair."""

    text: str
    before: str
    segment: int
    tokens: tuple[int, ...]


def words_in(row: Mapping[str, Any]) -> Words:
    """The words of a row's text, and of each token the number of its word (-1: the tokenizer added it). Where characters are
    not known, the words are the tokens without their marks. A word is written as its tokens are: in lower case, where the
    tokenizer makes it so."""
    return _words_of_text(row) if _has_offsets(row) else _words_of_tokens(row)


def _has_offsets(row: Mapping[str, Any]) -> bool:
    return row.get("text") is not None and row.get("starts") is not None and bool(row.get("segments"))


def is_of_text(row: Mapping[str, Any]) -> list[bool]:
    """Of each token whether it is of the text, not added by the tokenizer."""
    return [segment >= 0 for segment in row["segments"]] if row.get("segments") else [True] * len(row["tokens"])


def written_words(row: Mapping[str, Any]) -> list[WrittenWord]:
    """The words of a row in their own letters, in the order of `words_in`."""
    if not _has_offsets(row):
        places = np.flatnonzero(is_of_text(row)).tolist()
        return [
            WrittenWord(bare(row["tokens"][place]), " " * (number > 0), 0, (place,))
            for number, place in enumerate(places)
        ]
    ends = {0: 0, 1: 0}  # of the word before, in each text
    return [_written_word(row, word, tuple(at), ends) for word, at in _groups(row)]


def apostrophes(row: Mapping[str, Any], words: Sequence[str]) -> list[int]:
    """The numbers of those words that are the apostrophe of an ending written apart ("it 's"): lists have both as one word."""
    if not APOSTROPHES.intersection(words):
        return []
    written = written_words(row)
    return [number for number, (mark, ending) in enumerate(pairwise(written)) if _belongs(mark, ending)]


def _belongs(mark: WrittenWord, ending: WrittenWord) -> bool:
    is_ending = ending.text.isalpha() and len(ending.text) <= ENDING
    return mark.text in APOSTROPHES and is_ending and not ending.before and mark.segment == ending.segment


def _written_word(row: Mapping[str, Any], word: str, at: tuple[int, ...], ends: dict[int, int]) -> WrittenWord:
    segment = row["segments"][at[0]]
    end = max(row["ends"][i] for i in at)
    before = str(row["pair"] if segment else row["text"])[ends[segment] : end - len(word)]
    ends[segment] = end
    return WrittenWord(word, before, segment, at)


def _words_of_tokens(row: Mapping[str, Any]) -> Words:
    tokens, of_text = row["tokens"], is_of_text(row)
    places = np.full(len(tokens), -1)
    places[np.array(of_text, dtype=bool)] = np.arange(sum(of_text))
    return [bare(token) for token, is_word in zip(tokens, of_text, strict=True) if is_word], places


def _words_of_text(row: Mapping[str, Any]) -> Words:
    tokens, words = row["tokens"], _groups(row)
    places = np.full(len(tokens), -1)
    for number, (_, at) in enumerate(words):
        places[list(at)] = number
    return [_written(word, [tokens[i] for i in at]) for word, at in words], places


def _groups(row: Mapping[str, Any]) -> list[tuple[str, Sequence[int]]]:
    """(word, its tokens) of every word of the text and of its pair."""
    sequences = [segment if segment >= 0 else None for segment in row["segments"]]
    offsets = list(zip(row["starts"], row["ends"], strict=True))
    groups = group_words((row["text"], row.get("pair")), offsets, sequences, row["tokens"])
    return [(word, at) for word, at in groups if row["segments"][at[0]] >= 0]


def _written(word: str, tokens: Sequence[str]) -> str:
    """The word, in lower case if its tokens are the word in lower case."""
    joined = "".join(map(bare, tokens))
    return joined if joined == word.lower() else word
