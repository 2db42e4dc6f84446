"""The columns of a flow picture: words of a short text; else its sentences, special tokens, and the position that is
read.

A text of more than COLUMNS words is grouped by sentences. A sentence of more than LONGEST words is cut into stretches
of equal length; where sentences are fewer than FEW, one of more than RUN words is, because one column for all of it
would tell nothing. Where there are still more than COLUMNS groups, neighbours are joined. Every token is in exactly one
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from typing import Any

from ..base.words import Word, sentences_of
from .page_template import visible
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
    members: tuple[Word, ...]

    @property
    def tokens(self) -> list[int]:
        return [token for word in self.members for token in word.tokens]

    @property
    def text(self) -> str:
        """The words as they stand in the text, on one line."""
        return visible(" ".join("".join(f"{word.before}{word.text}" for word in self.members).split()))

    @property
    def mark(self) -> bool:
        """Special tokens that no word can stand for: the start mark is one where the answer is read at it, too."""
        return all(word.special and word.text not in MASKS for word in self.members)


def groups_of(words: Sequence[Word], query: int, *, causal: bool, most: int = COLUMNS) -> list[Group]:
    """The columns, in the order of the text. `query`: the number of the word that the answer is read at; `most`: so
    many groups of words at most."""
    groups: list[Group] = []

    def group(kind: str, name: str, title: str, *places: int) -> None:
        groups.append(Group(kind, name, title, places, tuple(words[place] for place in places)))

    for place, word in enumerate(words):
        if word.special or place == query:
            name = shown(word.text)
            if word.special:
                end = "end mark" if all(later.special for later in words[place:]) else "middle mark"
                first = "begin mark" if causal else "start mark"
                name = "mask" if word.text in MASKS else first if place == 0 else end
            title = f"the {name}" if word.special else f"“{name}”"
            group("answer" if place == query else "mark", name.removesuffix(" mark"), title, place)
    texts = [place for place, word in enumerate(words) if not word.special and place != query]
    if len(texts) > most:
        sentences = [[place for place in sentence if place != query] for sentence in sentences_of(words)]
        kind, stretches = _stretches([sentence for sentence in sentences if sentence], most)
        for number, places in enumerate(stretches, 1):
            group(kind, str(number), f"{kind} {number}", *places)
    else:
        for place in texts:
            group("word", shown(words[place].text), f"“{shown(words[place].text)}”", place)
    return sorted(groups, key=lambda group: group.words[0])


def _stretches(sentences: Sequence[Sequence[int]], most: int) -> tuple[str, list[Sequence[int]]]:
    """What the columns are, and their words: sentences; long ones cut into stretches of equal length, neighbours joined
    where there are too many."""
    longest, run = (RUN, RUN) if len(sentences) < FEW else (LONGEST, LONGEST // 2)
    pieces: list[Sequence[int]] = []
    for sentence in sentences:
        pieces += _parts(sentence, ceil(len(sentence) / run) if len(sentence) > longest else 1)
    if len(pieces) == len(sentences) <= most:
        return "sentence", pieces
    return "part", [list(chain.from_iterable(part)) for part in _parts(pieces, min(most, len(pieces)))]


def _parts(items: Sequence[Any], count: int) -> list[Any]:
    """So many stretches of equal length."""
    ends = [round(number * len(items) / count) for number in range(count + 1)]
    return [items[start:stop] for start, stop in pairwise(ends)]


def unit_of(groups: Sequence[Group]) -> str:
    """What most columns are: "word", "sentence" or "part"."""
    return next((group.kind for group in groups if group.kind in ("word", "sentence", "part")), "word")
