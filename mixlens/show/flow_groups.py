"""The columns of a flow picture: words of a short text; else its sentences, special tokens, and the position that is read.

A text of more than COLUMNS words is grouped by sentences. A sentence of more than LONGEST words is cut into stretches of equal
length; where sentences are fewer than FEW, one of more than RUN words is, because one column for all of it would tell nothing.
Where there are still more than COLUMNS groups, neighbours are joined. Every token is in exactly one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil

from ..base.words import Word, sentences_of
from .tokens import MASKS, shown

COLUMNS = 40  # groups of words that a picture can hold
LONGEST = 60  # words of a sentence that is one column
FEW, RUN = 5, 10  # sentences that are too few to be columns; words of the stretches that they are cut into


@dataclass(frozen=True)
class Group:
    """Some words that stand as one column. `kind`: word, sentence, part (of a sentence, or several), mark, answer."""

    kind: str
    name: str  # short: what stands under the column
    title: str  # in a sentence: “ball”, sentence 8, the start mark
    words: tuple[int, ...]


def groups_of(words: Sequence[Word], query: int, *, causal: bool, most: int = COLUMNS) -> list[Group]:
    """The columns, in the order of the text. `query`: the number of the word that the answer is read at; `most`: so many groups
    of words at most."""
    alone = [place for place, word in enumerate(words) if word.special or place == query]
    singles = [_single(words, place, query, causal) for place in alone]
    return sorted([*singles, *_several(words, query, most)], key=lambda group: group.words[0])


def _several(words: Sequence[Word], query: int, most: int) -> list[Group]:
    """The columns of all other words: one for each, or sentences of a text that has too many."""
    texts = [place for place, word in enumerate(words) if not word.special and place != query]
    if len(texts) <= most:
        return [Group("word", shown(words[place].text), f"“{shown(words[place].text)}”", (place,)) for place in texts]
    return _stretches([[place for place in sentence if place != query] for sentence in sentences_of(words)], most)


def _single(words: Sequence[Word], place: int, query: int, causal: bool) -> Group:
    """A special token, or the position that is read."""
    word = words[place]
    name = _mark(words, place, causal) if word.special else shown(word.text)
    title = f"the {name}" if word.special else f"“{name}”"
    return Group("answer" if place == query else "mark", name.removesuffix(" mark"), title, (place,))


def _mark(words: Sequence[Word], place: int, causal: bool) -> str:
    """What a special token is called."""
    if words[place].text in MASKS:
        return "mask"
    if place == 0:
        return "begin mark" if causal else "start mark"
    return "end mark" if all(word.special for word in words[place:]) else "middle mark"


def _stretches(sentences: Sequence[Sequence[int]], most: int) -> list[Group]:
    """Sentences as columns; long ones cut, neighbours joined where there are too many."""
    whole = [sentence for sentence in sentences if sentence]
    longest, run = (RUN, RUN) if len(whole) < FEW else (LONGEST, LONGEST // 2)
    pieces = [piece for sentence in whole for piece in _cut(sentence, longest, run)]
    if len(pieces) == len(whole) <= most:
        return [
            Group("sentence", str(number), f"sentence {number}", tuple(piece)) for number, piece in enumerate(pieces, 1)
        ]
    return _joined(pieces, most)


def _joined(pieces: Sequence[Sequence[int]], most: int) -> list[Group]:
    """Stretches as columns; neighbours joined where there are too many."""
    joined = [pieces[start:stop] for start, stop in pairwise(_ends(len(pieces), min(most, len(pieces))))]
    return [
        Group("part", str(number), f"part {number}", tuple(chain.from_iterable(part)))
        for number, part in enumerate(joined, 1)
    ]


def _cut(sentence: Sequence[int], longest: int, run: int) -> list[Sequence[int]]:
    """A sentence in stretches of equal length, none longer than `run` words; one of up to `longest` words whole."""
    if len(sentence) <= longest:
        return [sentence]
    ends = _ends(len(sentence), ceil(len(sentence) / run))
    return [sentence[start:stop] for start, stop in pairwise(ends)]


def _ends(size: int, count: int) -> list[int]:
    """Where `count` stretches of equal length begin and end."""
    return [round(number * size / count) for number in range(count + 1)]


def unit_of(groups: Sequence[Group]) -> str:
    """What most columns are: "word", "sentence" or "part"."""
    return next((group.kind for group in groups if group.kind in ("word", "sentence", "part")), "word")
