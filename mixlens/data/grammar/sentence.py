"""A sentence with its answer and the words that decide it: how one is drawn, and an endless stream of them."""

import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from .lexicon import NEGATIVE, PLURAL, POSITIVE, SINGULAR

Span = tuple[int, int]
Pair = tuple[str, str]
_T = TypeVar("_T")

MASK = "[MASK]"


@dataclass(frozen=True)
class Sentence:
    """One text, its answer, and where in the text the answer is decided."""

    text: str
    task: str  # what is asked: "subject_verb", "determiner_noun", "anaphor"; "plain", "negation", ...
    construction: str  # how the sentence is built: "prepositional phrase", "object relative clause", ...
    target: str  # the right word for [MASK], or the right label
    foil: str  # the same word in the other number, or the other label
    cues: tuple[Span, ...]  # the words that decide the answer
    attractors: tuple[Span, ...]  # the words that speak for another answer
    pairs: tuple[Pair, ...]  # the pairs of words, as lemmas, that may be held out

    @property
    def held_out(self) -> bool:
        """Whether training has never seen some of these words together."""
        return any(is_held_out(pair) for pair in self.pairs)

    @property
    def cue_words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.cues)

    @property
    def attractor_words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.attractors)


def is_held_out(pair: Pair) -> bool:
    """True for one pair in five, in either order. A checksum: Python's `hash` differs from run to run."""
    return zlib.crc32(" ".join(sorted(pair)).encode()) % 5 == 0


@dataclass(frozen=True)
class Word:
    text: str
    lemma: str = ""
    speaks_for: str | None = None  # the answer it suggests: a number or a label
    said_of: tuple[str, ...] = ()  # lemmas of the nouns it describes; each makes a pair with it
    is_noun: bool = False  # any two of these in a sentence make a pair
    is_cue: bool = False


@dataclass(frozen=True)
class Draft:
    """A sentence in words, before its spans are counted."""

    words: list[Word]
    answer: str  # a number or a label; words that speak for another are attractors
    target: str
    foil: str


class Draw:
    """The random choices of one sentence.

    Built on `random()` alone: the one method that Python promises to keep the same in every version.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._choices: list[object] = []

    def chance(self, probability: float) -> bool:
        return self._source.random() < probability

    def pick(self, options: Sequence[_T]) -> _T:
        return options[int(self._source.random() * len(options))]

    def fresh(self, options: Sequence[_T]) -> _T:
        """An option that this sentence does not hold yet."""
        while (option := self.pick(options)) in self._choices:
            pass
        self._choices.append(option)
        return option

    def number(self) -> str:
        return self.pick((SINGULAR, PLURAL))

    def label(self) -> str:
        return self.pick((POSITIVE, NEGATIVE))

    def sometimes(self, probability: float, options: Sequence[str]) -> list[Word]:
        return plain(self.pick(options)) if self.chance(probability) else []


Construction = Callable[[Draw], Draft]
Grammar = dict[str, dict[str, Construction]]  # task, construction


def stream(seed: str, grammar: Grammar, *, held_out: bool) -> Iterator[Sentence]:
    source = random.Random(seed)
    constructions = [(task, name) for task, names in grammar.items() for name in names]
    while True:
        task, name = Draw(source).pick(constructions)
        # Redrawn inside one construction: long ones have more pairs and would grow rare in training.
        while (sentence := _sentence(task, name, grammar[task][name](Draw(source)))).held_out != held_out:
            pass
        yield sentence


def _sentence(task: str, construction: str, draft: Draft) -> Sentence:
    text = ""
    cues: list[Span] = []
    attractors: list[Span] = []
    for word in draft.words:
        text += word.text if not text or word.text == "," else f" {word.text}"
        span = (len(text) - len(word.text), len(text))
        if word.is_cue:
            cues.append(span)
        elif word.speaks_for not in (None, draft.answer):
            attractors.append(span)
    nouns = [word.lemma for word in draft.words if word.is_noun]
    described = [(noun, word.lemma) for word in draft.words for noun in word.said_of]
    return Sentence(
        text=f"{text[0].upper()}{text[1:]}.",
        task=task,
        construction=construction,
        target=draft.target,
        foil=draft.foil,
        cues=tuple(cues),
        attractors=tuple(attractors),
        pairs=(*combinations(nouns, 2), *described),
    )


def plain(text: str) -> list[Word]:
    """Words without a part in the answer."""
    return [Word(word) for word in re.findall(r"[^\s,]+|,", text)]
