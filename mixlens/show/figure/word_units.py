"""The rows and columns of a matrix by words: words, groups of them where they have no room, or the pieces of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import printable
from ...base.words import Word
from ...types import Map
from ..flow_groups import Group, groups_of, unit_of
from ..flow_page import text_of
from ..tokens import MASKS, shown
from .brackets import Bracket, piece_brackets, source_brackets


@dataclass(frozen=True)
class Unit:
    """A row and a column: its name, its tokens, and whether it is a special token outside the scale."""

    name: str
    title: str  # in a sentence: “ball”, the start mark
    label: str  # beside its row: of a sentence with its first words
    tokens: tuple[int, ...]
    mark: bool


@dataclass(frozen=True)
class Units:
    """All rows and columns, what they are, which of them the answer is read at, and the brackets beside them."""

    units: Sequence[Unit]
    noun: str  # words, sentences, parts, tokens
    answer: int
    brackets: Sequence[Bracket]
    pieces: Sequence[Bracket]


def words_as_units(scores: Map, words: Sequence[Word], place: int, most: int) -> Units:
    """Words as rows and columns; groups of them where there are more than `most`."""
    number = next(number for number, word in enumerate(words) if place in word.tokens)
    groups = groups_of(words, number, causal=bool(scores.info.get("causal")), most=most)
    units = [_unit(words, group) for group in groups]
    answer = next(at for at, group in enumerate(groups) if number in group.words)
    brackets = source_brackets([words[group.words[0]] for group in groups])
    return Units(units, f"{unit_of(groups)}s", answer, brackets, ())


def _unit(words: Sequence[Word], group: Group) -> Unit:
    tokens = tuple(token for number in group.words for token in words[number].tokens)
    name = printable(group.name)
    label = (
        f"{name}  {text_of([words[number] for number in group.words])}" if group.kind in ("sentence", "part") else name
    )
    special = all(words[number].special and words[number].text not in MASKS for number in group.words)
    return Unit(name, printable(group.title), label, tokens, special)


def pieces_as_units(scores: Map, words: Sequence[Word], place: int) -> Units:
    """Every token as a row and a column."""
    special = scores.special or (False,) * len(scores.tokens)
    marks = [special[at] and token not in MASKS for at, token in enumerate(scores.tokens)]
    units = [
        Unit(shown(token), f"“{shown(token)}”", shown(token), (at,), marks[at])
        for at, token in enumerate(scores.tokens)
    ]
    owner = {token: word for word in words for token in word.tokens}
    every = [owner[at] for at in range(len(units))]
    return Units(units, "tokens", place, source_brackets(every), piece_brackets(words))
