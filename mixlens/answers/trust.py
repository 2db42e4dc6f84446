"""Faithfulness of one text: words taken out, kept alone, and random words taken out in their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np

from ..scoring.removal import Answer as Answered
from ..scoring.removal import answers
from ..scoring.targets import Target
from ..types import Trace
from . import choice
from .value import Curve, Random, Single
from .words import Piece, positions_of

Words = frozenset[int]  # indices of words that are taken out


@dataclass
class Removal:
    """A text without sets of its words. Each set is run once; sets of one call share their passes."""

    trace: Trace
    target: Target  # its probability
    pieces: Sequence[Piece]
    filler: str
    known: dict[Words, Answered] = field(default_factory=dict)

    def run(self, sets: Iterable[Words]) -> None:
        """Ask the model about every set that is not known yet, those of one size together: they are of similar length."""
        new = sorted({one for one in sets if one not in self.known}, key=lambda one: (len(one), sorted(one)))
        gone = [positions_of(self.pieces, one) for one in new]
        if new:
            self.known |= zip(new, answers(self.trace, gone, self.target, replacement=self.filler), strict=True)

    def value(self, words: Iterable[int]) -> float:
        return self.known[frozenset(words)].value

    def turned(self, words: Iterable[int]) -> bool:
        """Does the model, which says this of the whole text, say something else now, of all that it can say? Where it does not
        say the target, it can turn from it to the foil alone."""
        whole, now = self.known[frozenset()], self.known[frozenset(words)]
        if whole.is_target:
            return not now.is_target
        return self.target.foil is not None and whole.value >= 0.5 > now.value


@dataclass(frozen=True)
class Plan:
    """The sets of words that are taken out of a text."""

    named: tuple[int, ...]  # the words that the answer names, the highest score first
    free: tuple[int, ...]  # words that may be taken out
    order: tuple[int, ...]  # free words by their score, the highest first, as far as the curve goes
    sets: tuple[Words, ...]  # random sets of as many words as are named
    all_sets: bool
    orders: tuple[tuple[int, ...], ...]  # random orders

    def every(self) -> Iterable[Words]:
        """All sets that have to be run."""
        yield from (
            frozenset(),
            frozenset(self.named),
            frozenset(self.free) - frozenset(self.named),
            frozenset(self.free),
        )
        yield from (frozenset({word}) for word in self.named)
        yield from self.sets
        for order in (self.order, *self.orders):
            yield from prefixes(order)


def prefixes(order: Sequence[int]) -> list[Words]:
    """No word, the first, the first two, ..."""
    return [frozenset(order[:count]) for count in range(len(order) + 1)]


def plan_of(
    scores: Sequence[float], named: Sequence[int], free: Sequence[int], *, tokens: int, draws: int, seed: int
) -> Plan:
    """Which sets are taken out, drawn by `seed`."""
    steps = min(len(free), choice.MOST_STEPS if tokens <= choice.LONG else choice.FEW_STEPS)
    by_score = sorted(free, key=lambda word: -scores[word])[:steps]
    generator = np.random.default_rng(seed)
    sets, all_sets = random_sets(free, named, draws, generator)
    count = min(draws, max(2, choice.CURVE_TOKENS // max(1, steps * tokens)))
    orders = [tuple(map(int, generator.permutation(list(free))[:steps])) for _ in range(count)]
    return Plan(tuple(named), tuple(free), tuple(by_score), tuple(sets), all_sets, tuple(orders))


def random_sets(
    free: Sequence[int], named: Sequence[int], draws: int, generator: np.random.Generator
) -> tuple[list[Words], bool]:
    """Sets of as many words as are named, other than the named one: all where they are few, else as many different ones as
    there are draws."""
    size, own = len(named), frozenset(named)
    if comb(len(free), size) - 1 <= max(choice.ALL_SETS, draws):
        return [one for one in map(frozenset, combinations(free, size)) if one != own], True
    drawn: dict[Words, None] = {}
    while len(drawn) < draws:
        one = frozenset(map(int, generator.choice(list(free), size, replace=False)))
        drawn |= {one: None} if one != own else {}
    return list(drawn), False


# --- what came out ------------------------------------------------------------------------------------------------------


def random_of(removal: Removal, plan: Plan) -> Random:
    """The answer without random words; that of the whole text where there is no other set. A draw turns the answer or not, and
    draws are counted."""
    values = [removal.value(one) for one in plan.sets]
    turned = sum(removal.turned(one) for one in plan.sets)
    shown = values or [removal.value(())]
    return Random(float(np.mean(shown)), min(shown), max(shown), len(values), plan.all_sets, turned, tuple(values))


def each_of(removal: Removal, plan: Plan) -> tuple[float, ...]:
    """The answer without each named word alone, in their order."""
    return tuple(removal.value([word]) for word in plan.named)


def single_of(removal: Removal, plan: Plan) -> Single | None:
    """The answer without the one named word whose removal does most; None where no word is named."""
    if not plan.named:
        return None
    word = min(plan.named, key=lambda word: removal.value([word]))
    return Single(word, removal.value([word]), removal.turned([word]))


def curve_of(removal: Removal, plan: Plan) -> Curve:
    """The answer as words go."""
    first, *random = [tuple(map(removal.value, prefixes(order))) for order in (plan.order, *plan.orders)]
    return Curve(first, tuple(random))
