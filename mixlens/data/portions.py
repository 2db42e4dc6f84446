"""Balanced data and its equal halves, Train and Test (Value Zeroing, section 4.1): the same examples on every machine."""

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
    """The examples with `balanced` tasks balanced: all of them, or one of the two halves, in their order."""
    kept = list(examples)
    for task in balanced:
        kept = balanced_task(kept, task)
    return iter(kept if half is None else halved(kept)[HALVES.index(half)])


def balanced_task(examples: Sequence[Example], task: str) -> list[Example]:
    """The examples, with as many singular as plural ones of a task. Those to keep are drawn without replacement."""
    groups = [places for (name, _), places in _places(examples).items() if name == task]
    fewest = min(map(len, groups), default=0)
    dropped = {place for places in groups for place in _shuffled(places, task)[fewest:]}
    return [example for place, example in enumerate(examples) if place not in dropped]


def halved(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Train and Test: half of the examples of each task and number, drawn by a fixed seed, in their order.

    Where a task has an odd number of examples of a kind, Train gets one more, and of the next task Test does.
    """
    groups = _places(examples)
    tasks = list(dict.fromkeys(task for task, _ in groups))
    sizes = {key: (len(places) + 1 - tasks.index(key[0]) % 2) // 2 for key, places in groups.items()}
    train = {place for key, places in groups.items() for place in _shuffled(places, "half")[: sizes[key]]}
    first = [example for place, example in enumerate(examples) if place in train]
    return first, [example for place, example in enumerate(examples) if place not in train]


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
