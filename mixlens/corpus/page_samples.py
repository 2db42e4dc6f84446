"""What the page of a run holds of its rows: counts in bins, and some rows to look at. Neither grows with the rows."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .plan import OWN, RATIO
from .summary import Seen, own_of

LONG = 1_024  # tokens of an example that are shown
TEXT = 4_000  # and characters
FIELD = 200  # characters of a carried value


@dataclass
class Bins:
    """How many values fall between two edges; the last edge is inside, what is beyond the edges counts in the last bins."""

    edges: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.counts):
            self.counts = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def add(self, value: float) -> None:
        place = int(np.searchsorted(self.edges, value, side="right")) - 1
        self.counts[min(max(place, 0), len(self.counts) - 1)] += 1

    def trimmed(self) -> Bins:
        """Without empty bins at both ends."""
        there = np.nonzero(self.counts)[0]
        if not len(there):
            return self
        first, last = int(there[0]), int(there[-1])
        return Bins(self.edges[first : last + 2], self.counts[first : last + 1])


@dataclass(frozen=True)
class Sampled:
    """One row that can be looked at. `scores`: [method token]; `why` it was chosen."""

    row: int
    id: str
    text: str
    pair: str | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    left_out: int  # tokens beyond those that are shown
    query: int
    prediction: str
    probability: float | None
    target: str | None
    label: str | None
    correct: bool | None
    gap: float | None
    seconds: float
    agreement: float | None  # mean Spearman correlation over the pairs of methods
    carried: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    file: str  # the shard it is in
    why: tuple[str, ...] = ()


class Spaced:
    """A sample of a stream, evenly spaced however long it is: when the sample is full, every other item is dropped."""

    def __init__(self, most: int):
        self.most, self.step, self.seen = max(2, most + most % 2), 1, 0
        self.kept: list[Any] = []

    def offer(self, make: Callable[[], Any]) -> None:
        """One more item; `make` is called only where it is held."""
        if self.seen % self.step == 0:
            if len(self.kept) == self.most:
                self.kept, self.step = self.kept[::2], 2 * self.step
            if self.seen % self.step == 0:
                self.kept.append(make())
        self.seen += 1


class Lowest:
    """The `most` with the lowest value; of equal ones the first rows."""

    def __init__(self, most: int):
        self.most, self.seen = most, 0
        self.heap: list[tuple[float, int, int, Any]] = []

    def offer(self, value: float, row: int, make: Callable[[], Any]) -> None:
        """One more item; `make` is called only where it is held."""
        if not self.most or not math.isfinite(value):
            return
        self.seen += 1  # no two are equal, whatever rows are called
        key = (-value, -row, -self.seen)
        if len(self.heap) < self.most:
            heapq.heappush(self.heap, (*key, make()))
        elif key > self.heap[0][:3]:
            heapq.heapreplace(self.heap, (*key, make()))

    def found(self) -> list[Any]:
        return [one[-1] for one in sorted(self.heap, key=lambda one: one[:3], reverse=True)]


def spread(items: Sequence[Any]) -> list[Any]:
    """First, middle, quarters ...: however many are taken from the front, they are spread over all."""
    bits = max(1, (len(items) - 1).bit_length())
    order = sorted(range(len(items)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [items[i] for i in order]


def sampled(
    row: Mapping[str, Any],
    file: str,
    seen: Seen,
    label: str | None,
    correct: bool | None,
    agreement: float | None,
    column: str | None,
) -> Sampled:
    """A row as the page shows it: long texts and values are cut."""
    tokens, methods = row["tokens"], tuple(seen.scores)
    of_text = own_of(row)
    columns = {*OWN, *methods, *(name for name in row if name.startswith(RATIO))}
    carried = tuple((name, cut(str(value), FIELD)) for name, value in row.items() if name not in columns and value is not None)
    scores = np.array([values[:LONG] for values in seen.scores.values()]).reshape(len(methods), -1)
    return Sampled(
        row=int(row["row"]),
        id=cut(str(row["id"]), FIELD),
        text=cut(row.get("text") or " ".join(tokens), TEXT),
        pair=None if row.get("pair") is None else cut(row["pair"], TEXT),
        tokens=tuple(tokens[:LONG]),
        special=tuple(not mine for mine in of_text[:LONG]),
        left_out=max(0, len(tokens) - LONG),
        query=int(row["query"]),
        prediction=seen.predicted,
        probability=row.get("probability"),
        target=row.get("target"),
        label=label if label is not None or column is None or row.get(column) is None else cut(str(row[column]), FIELD),
        correct=correct,
        gap=row.get("gap"),
        seconds=float(row["seconds"]),
        agreement=agreement,
        carried=carried,
        methods=methods,
        scores=scores,
        file=file,
    )


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
