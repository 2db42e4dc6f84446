"""The words of a row that a run wrote, found in its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..aggregate import bare
from ..model.words import group_words

Words = tuple[list[str], np.ndarray]


def words_in(row: Mapping[str, Any]) -> Words:
    """The words of a row's text, and of each token the number of its word (-1: the tokenizer added it). Where characters are
    not known, the words are the tokens without their marks. A word is written as its tokens are: in lower case, where the
    tokenizer makes it so."""
    has_offsets = row.get("text") is not None and row.get("starts") is not None and bool(row.get("segments"))
    return _words_of_text(row) if has_offsets else _words_of_tokens(row)


def is_of_text(row: Mapping[str, Any]) -> list[bool]:
    """Of each token whether it is of the text, not added by the tokenizer."""
    return [segment >= 0 for segment in row["segments"]] if row.get("segments") else [True] * len(row["tokens"])


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
