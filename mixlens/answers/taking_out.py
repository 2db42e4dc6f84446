"""Take these words out and ask again: the model's answer without sets of words; and which sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, combinations
from math import comb

import numpy as np

from ..scoring.removal import Answer, Replacement, answers
from ..scoring.targets import Target
from ..types import Trace

Words = frozenset[int]  # numbers of words that are taken out


def asked_without(
    trace: Trace,
    target: Target,
    words: Sequence[Sequence[int]],
    sets: Iterable[Collection[int]],
    *,
    filler: Replacement = "delete",
) -> dict[Words, Answer]:
    """The model's answer without each set of words. `words`: the positions of each. A set is asked once; sets of one size stand
    together, as they are of similar length, and share their passes."""
    every = sorted(set(map(frozenset, sets)), key=lambda one: (len(one), sorted(one)))
    gone = [sorted(chain.from_iterable(words[word] for word in one)) for one in every]
    return dict(zip(every, answers(trace, gone, target, replacement=filler), strict=True))


def random_sets(
    free: Sequence[int], size: int, draws: int, generator: np.random.Generator, *, apart: Words, all_up_to: int
) -> tuple[list[Words], bool]:
    """Sets of `size` words, other than `apart`: all where they are no more than `all_up_to`, else as many different ones as there
    are draws; and whether these are all."""
    if comb(len(free), size) - 1 <= all_up_to:
        return [one for one in map(frozenset, combinations(free, size)) if one != apart], True
    drawn: dict[Words, None] = {}
    while len(drawn) < draws:
        one = frozenset(map(int, generator.choice(list(free), size, replace=False)))
        drawn |= {one: None} if one != apart else {}
    return list(drawn), False
