"""Sentences as parts: made once, set by terminal, page, notebook and file alike. A plain text is a str."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .text import sentence_case


@dataclass(frozen=True)
class Quote:
    """A word of the reader's text: which one, where it stands there more than once, and its number among the words."""

    text: str
    which: str = ""
    word: int | None = None

    def __str__(self) -> str:
        return f"“{self.text}”{self.which}"


@dataclass(frozen=True)
class Strong:
    """A name of what the model says: a class, a word."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Number:
    """A number as it is printed."""

    text: str

    def __str__(self) -> str:
        return self.text


Part = str | Quote | Strong | Number
KINDS = {"quote": Quote, "strong": Strong, "number": Number}


class Sentence(str):
    """A sentence as plain text, which knows its parts."""

    parts: tuple[Part, ...]

    def __new__(cls, parts: Iterable[Part] = ()) -> Sentence:
        parts = tuple(parts)
        sentence = super().__new__(cls, "".join(map(str, parts)))
        sentence.parts = parts
        return sentence

    def __reduce__(self) -> tuple[type[Sentence], tuple[tuple[Part, ...]]]:
        return Sentence, (self.parts,)

    def capital(self) -> Sentence:
        """With its first letter large, where it begins with a text of ours."""
        first = self.parts[0] if self.parts else None
        return Sentence((sentence_case(first), *self.parts[1:])) if isinstance(first, str) else self

    def plain(self) -> list[Any]:
        """JSON: a text, {"number": ...}, {"strong": ...}, or {"quote": ..., "which": ..., "word": ...}."""
        return [
            one
            if isinstance(one, str)
            else {"quote": one.text, "which": one.which, "word": one.word}
            if isinstance(one, Quote)
            else {type(one).__name__.lower(): one.text}
            for one in self.parts
        ]


def said(*parts: Part | None) -> Sentence:
    """A sentence of parts and sentences; what is empty is left out, texts beside each other are one."""
    made: list[Part] = []
    for part in parts:
        for one in part.parts if isinstance(part, Sentence) else (part,):
            if isinstance(one, str) and made and isinstance(made[-1], str):
                made[-1] += one
            elif one:
                made.append(one)
    return Sentence(made)


def joined(items: Sequence[Part], between: str = ", ", last: str | None = None) -> Sentence:
    """Items with a text between them, and another before the last one: "a, b and c"."""
    last = between if last is None else last
    gaps = ["", *[between] * (len(items) - 2), last] if len(items) > 1 else [""]
    return said(*(part for gap, item in zip(gaps, items, strict=False) for part in (gap, item)))


def read(parts: Iterable[Any]) -> Sentence:
    """The sentence that `plain` wrote."""
    return said(*(one if isinstance(one, str) else _read(**one) for one in parts))


def _read(**part: Any) -> Part:
    kind = next(name for name in KINDS if name in part)
    return KINDS[kind](part.pop(kind), **part)
