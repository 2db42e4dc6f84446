"""What a row says of its input: its tokens and its words, found once, when the row is made, and kept in columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from ...base.words import Word
from ...model.encode import Encoded
from ...model.words import group_words
from ...scoring.aggregate import bare
from .plan import BEFORE, CUT, WORD_OF, WORDS
from .rows import InputRow, written

APOSTROPHES = frozenset("'’")
ENDING = 2  # letters of 's, 're, 'll; more letters behind an apostrophe are a word in quotation marks


def input_columns(row: InputRow, code: Encoded) -> dict[str, Any]:
    """What was read: where each token begins and ends in its text and which text that is (-1: none), and the words."""
    text = row.text if row.messages is None else code.text  # of a conversation, what the chat template wrote
    columns: dict[str, Any] = {
        "row": row.row,
        "id": row.id,
        "text": text,
        "pair": row.pair,
        "input_ids": list(code.input_ids),
    }
    columns |= {} if row.whole is None else {CUT: row.whole}
    columns["tokens"] = list(map(written, code.tokens))
    if code.offsets is not None and code.sequences is not None:
        columns |= {name: [span[side] for span in code.offsets] for side, name in enumerate(("starts", "ends"))}
        columns["segments"] = [-1 if sequence is None else sequence for sequence in code.sequences]
    return columns | word_columns(columns)


def word_columns(row: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The words as the text and its pair have them, what stands before each, and the number of the word of each token
    (-1: the tokenizer added it). Where characters are not known, words are the tokens without their marks."""
    tokens, segments = row["tokens"], row.get("segments") or [0] * len(row["tokens"])
    groups: list[tuple[str, Any]] = []
    before: list[str] = []
    if row.get("text") is None or row.get("starts") is None or not row.get("segments"):
        groups = [(bare(token), (place,)) for place, token in enumerate(tokens) if segments[place] >= 0]
        before = ["", *[" "] * (len(groups) - 1)] if groups else []
    else:
        texts, ended = (row["text"], row.get("pair")), [0, 0]
        sequences = [None if segment < 0 else segment for segment in segments]
        for word, at in group_words(texts, list(zip(row["starts"], row["ends"], strict=True)), sequences, tokens):
            segment, end = segments[at[0]], max(row["ends"][place] for place in at)
            if segment >= 0:
                groups.append((word, at))
                before.append(str(texts[segment])[ended[segment] : end - len(word)])
                ended[segment] = end
    numbers = [-1] * len(tokens)
    for number, (_, at) in enumerate(groups):
        for place in at:
            numbers[place] = number
    return {WORDS: [word for word, _ in groups], BEFORE: before, WORD_OF: numbers}


def words_of(row: Mapping[str, Any]) -> list[Word]:
    """The words of a row, in order."""
    tokens: list[list[int]] = [[] for _ in row[WORDS]]
    for place, number in enumerate(row[WORD_OF]):
        if number >= 0:
            tokens[number].append(place)
    segments = row.get("segments") or [0] * len(row[WORD_OF])
    return [
        Word(text, before, tuple(at), segments[at[0]], False)
        for text, before, at in zip(row[WORDS], row[BEFORE], tokens, strict=True)
    ]


def listed_words(row: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """The words of a row as lists have them, and of each word which of these it is: in lower case where its tokens are,
    and an apostrophe with the ending behind it ("it 's") as one."""
    joined = [""] * len(row[WORDS])
    for token, number in zip(row["tokens"], row[WORD_OF], strict=True):
        if number >= 0:
            joined[number] += bare(token)
    begins = np.ones(len(joined), dtype=bool)
    if APOSTROPHES.intersection(row[WORDS]):
        words = words_of(row)
        for number, (mark, ending) in enumerate(pairwise(words), 1):
            is_ending = ending.text.isalpha() and len(ending.text) <= ENDING and not ending.before
            begins[number] = not (mark.text in APOSTROPHES and is_ending and mark.source == ending.source)
    places = begins.cumsum() - 1
    names = [""] * int(begins.sum())
    for word, tokens, place in zip(row[WORDS], joined, places, strict=True):
        names[place] += tokens if tokens == word.lower() else word
    return names, places
