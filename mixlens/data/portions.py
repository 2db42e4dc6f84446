"""Balanced data and its equal halves, Train and Test (Value Zeroing, section 4.1): the same examples on every
machine."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from ..base.errors import InputError, nearest
from ..types import Example

HALVES = ("train", "test")
SEED = 12  # that of Value Zeroing's data/blimp_postprocessing.py; the drawn examples are others than theirs


def refuse_unknown_half(half: str | None) -> None:
    """Refuse a split that is neither of the two halves."""
    if half not in (None, *HALVES):
        raise InputError(f"there is no split {half!r}. {nearest(str(half), HALVES)} Without a split both are read.")


def portion(examples: Iterable[Example], half: str | None, *, balanced: Sequence[str]) -> Iterator[Example]:
    """All the examples, or one of two halves, in their order. Of a `balanced` task as many singular as plural ones are
    kept; those to keep are drawn without replacement.

    Half of the examples of each task and number are Train, drawn by a fixed seed. Where a task has an odd number of
    examples of a kind, Train gets one more, and of the next task Test does.
    """
    kept = list(examples)
    for task in balanced:
        groups = [places for (name, _), places in _places(kept).items() if name == task]
        fewest = min(map(len, groups), default=0)
        dropped = {place for places in groups for place in _shuffled(places, task)[fewest:]}
        kept = [example for place, example in enumerate(kept) if place not in dropped]
    if half is None:
        return iter(kept)
    kinds = _places(kept)
    tasks = list(dict.fromkeys(task for task, _ in kinds))
    sizes = {key: (len(places) + 1 - tasks.index(key[0]) % 2) // 2 for key, places in kinds.items()}
    train = {place for key, places in kinds.items() for place in _shuffled(places, "half")[: sizes[key]]}
    return (example for place, example in enumerate(kept) if (place in train) == (half == HALVES[0]))


def _places(examples: Sequence[Example]) -> dict[tuple[str, str], list[int]]:
    """(task, number) -> the places of its examples."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault((str(example.info.get("task")), str(example.info.get("number"))), []).append(place)
    return groups


def _shuffled(places: Sequence[int], purpose: str) -> list[int]:
    draw = random.Random(
        f"{SEED} {purpose}"
    ).random  # the one method that Python promises to keep the same in every version
    return [place for _, place in sorted((draw(), place) for place in places)]
