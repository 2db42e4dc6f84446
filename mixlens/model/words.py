"""Subwords to words, by the characters each token covers: works for any tokenizer that knows its offsets."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from ..types import Words

# A word is a run of letters, digits and marks (with inner apostrophes and hyphens); scripts written without spaces
# count character by character; any other visible character stands alone.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
JOINING = ("'", "’", "-")  # marks that join two words to one
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:[{''.join(JOINING)}][^\W{UNSPACED}]+)*|[^\w\s]")


def group_words(
    texts: Sequence[str | None],
    offsets: Sequence[tuple[int, int]],
    sequences: Sequence[int | None],
    tokens: Sequence[str],
) -> Words:
    """Neighbouring tokens that share a word of the text, in order. A token that spans several words joins them.

    `sequences[i]` says which text token i comes from; None for tokens the tokenizer added, which stand alone.
    It is loops over numbers that call no function of ours for a token, as a corpus runs it for every text.
    """
    sources = [*(text or "" for text in texts), ""]  # the last one is the text of tokens that come from none
    places = [-1 if sequence is None else sequence for sequence in sequences]
    # The characters of each token without the space before them: byte-level tokenizers count it as part of the word.
    spans = [
        (stop - len(sources[place][start:stop].lstrip()), stop)
        for (start, stop), place in zip(offsets, places, strict=True)
    ]
    starts = [[match.start() for match in WORD.finditer(text)] for text in sources]
    groups: list[list[int]] = []
    place_before, word_before = -1, -1
    for position, (place, (start, stop)) in enumerate(zip(places, spans, strict=True)):
        first = max(0, bisect_right(starts[place], start) - 1)
        if start == stop:  # a token without characters touches no word
            groups.append([position])
            place_before = -1
            continue
        if place == place_before and first <= word_before:  # it begins in a word that the token before it touches
            groups[-1].append(position)
        else:
            groups.append([position])
        place_before, word_before = place, max(0, bisect_right(starts[place], stop - 1) - 1)
    words = []
    for group in groups:
        end = max(spans[position][1] for position in group)
        words.append((sources[places[group[0]]][spans[group[0]][0] : end] or tokens[group[0]], tuple(group)))
    return tuple(words)
