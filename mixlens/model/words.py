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
    Each step is one loop over numbers and calls no function of ours for a token, as a corpus runs it for every text.
    """
    sources = [*(text or "" for text in texts), ""]  # the last one is the text of tokens that come from none
    places = [-1 if sequence is None else sequence for sequence in sequences]
    spans = _visible_spans(sources, places, offsets)
    groups = _groups(_continuing(sources, places, spans))
    return tuple((_surface(sources, places, spans, group) or tokens[group[0]], tuple(group)) for group in groups)


def _surface(
    sources: Sequence[str], places: Sequence[int], spans: Sequence[tuple[int, int]], group: Sequence[int]
) -> str:
    """The characters of a group of tokens."""
    return sources[places[group[0]]][spans[group[0]][0] : max(spans[position][1] for position in group)]


def _visible_spans(
    sources: Sequence[str], places: Sequence[int], offsets: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The characters of each token without the space before them: byte-level tokenizers count it as part of the word."""
    return [
        (stop - len(sources[place][start:stop].lstrip()), stop)
        for (start, stop), place in zip(offsets, places, strict=True)
    ]


def _continuing(sources: Sequence[str], places: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Does each token begin in a word that the token before it touches? A token without characters touches none."""
    starts = [[match.start() for match in WORD.finditer(text)] for text in sources]
    continuing, place_before, word_before = [], -1, -1
    for place, (start, stop) in zip(places, spans, strict=True):
        if start == stop:
            continuing.append(False)
            place_before = -1
            continue
        continuing.append(place == place_before and max(0, bisect_right(starts[place], start) - 1) <= word_before)
        place_before, word_before = place, max(0, bisect_right(starts[place], stop - 1) - 1)
    return continuing


def _groups(continuing: Sequence[bool]) -> list[list[int]]:
    """The positions of tokens, those that continue a word together with the one before."""
    groups: list[list[int]] = []
    for position, continues in enumerate(continuing):
        if continues:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups
