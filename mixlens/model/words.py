"""Subwords to words, by the characters each token covers: works for any tokenizer that knows its offsets."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from ..types import Words

# A word is a run of letters, digits and marks (with inner apostrophes and hyphens); scripts written without spaces
# count character by character; any other visible character stands alone.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’\-][^\W{UNSPACED}]+)*|[^\w\s]")


def group_words(
    texts: Sequence[str | None],
    offsets: Sequence[tuple[int, int]],
    sequences: Sequence[int | None],
    tokens: Sequence[str],
) -> Words:
    """Neighbouring tokens that share a word of the text, in order. A token that spans several words joins them.

    `sequences[i]` says which text token i comes from; None for tokens the tokenizer added, which stand alone.
    """
    starts = [[match.start() for match in WORD.finditer(text or "")] for text in texts]
    groups: list[tuple[str, list[int]]] = []
    last: tuple[int, int] | None = None  # text and number of the last word the previous token touched
    begin = end = 0  # the characters of the last group; one loop without objects, as a corpus runs it for every token
    for position, ((start, stop), sequence) in enumerate(zip(offsets, sequences, strict=True)):
        text = texts[sequence] if sequence is not None else None
        while text is not None and start < stop and text[start].isspace():
            start += 1  # byte-level tokenizers count the space before a word as part of it
        if text is None or sequence is None or start == stop:
            groups.append((tokens[position], [position]))
            last = None
            continue
        head, tail = (max(0, bisect_right(starts[sequence], place) - 1) for place in (start, stop - 1))
        if last is not None and last[0] == sequence and last[1] >= head:
            end = max(end, stop)
            groups[-1] = (text[begin:end], [*groups[-1][1], position])
        else:
            begin, end = start, stop
            groups.append((text[begin:end], [position]))
        last = (sequence, tail)
    return tuple((word, tuple(positions)) for word, positions in groups)
