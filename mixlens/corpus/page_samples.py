"""What the page of a run holds of its rows: counts in bins, and some rows to look at. Neither grows with the rows."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from .plan import COLUMNS, RATIO
from .row_words import is_of_text
from .tally import RowFacts

LONG = 1_024  # tokens of an example that are shown
TEXT = 4_000  # and characters
FIELD = 200  # characters of a carried value
WHY = ("evenly spaced", "methods disagree", "least certain", "wrong")


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass
class Bins:
    """How many values fall between two edges. The last edge is in the last bin; values beyond count in the outer bins."""

    edges: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.counts):
            self.counts = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def add(self, value: float) -> None:
        place = int(np.searchsorted(self.edges, value, side="right")) - 1
        self.counts[min(max(place, 0), len(self.counts) - 1)] += 1

    def trimmed(self) -> Bins:
        """The bins without the empty ones at both ends."""
        filled = np.nonzero(self.counts)[0]
        if not len(filled):
            return self
        first, last = int(filled[0]), int(filled[-1])
        return Bins(self.edges[first : last + 2], self.counts[first : last + 1])


class Spaced:
    """A sample of a stream, evenly spaced however long it is: when the sample is full, every other item is dropped."""

    def __init__(self, most: int):
        self.most, self.step, self.seen = max(2, most + most % 2), 1, 0
        self.items: list[Any] = []

    def offer(self, make: Callable[[], Any]) -> None:
        """One more item; `make` is called only where it is held."""
        is_next = self.seen % self.step == 0
        if is_next and len(self.items) == self.most:
            self.items, self.step = self.items[::2], 2 * self.step
        if self.seen % self.step == 0:
            self.items.append(make())
        self.seen += 1


class Lowest:
    """The `most` items with the lowest values; of equal values those of the first rows."""

    def __init__(self, most: int):
        self.most, self.seen = most, 0
        self.heap: list[tuple[float, int, int, Any]] = []

    def offer(self, value: float, row: int, make: Callable[[], Any]) -> None:
        """One more item; `make` is called only where it is held."""
        if not self.most or not math.isfinite(value):
            return
        self.seen += 1  # a part of the key, so that no two keys are equal
        key = (-value, -row, -self.seen)
        if len(self.heap) < self.most:
            heapq.heappush(self.heap, (*key, make()))
        elif key > self.heap[0][:3]:
            heapq.heapreplace(self.heap, (*key, make()))

    def lowest_first(self) -> list[Any]:
        return [item for *_, item in sorted(self.heap, key=lambda entry: entry[:3], reverse=True)]


def spread(items: Sequence[Any]) -> list[Any]:
    """The items in the order first, middle, quarters, eighths: any number of them from the front is spread over all."""
    bits = max(1, (len(items) - 1).bit_length())
    order = sorted(range(len(items)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [items[i] for i in order]


# --- examples ---------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Candidate:
    """A row that may become an example, with what was computed of it. `column`: the carried column of labels."""

    row: Mapping[str, Any]
    file: str
    seen: RowFacts
    label: str | None
    correct: bool | None
    column: str | None

    def agreement(self) -> float | None:
        """The mean Spearman correlation over the pairs of methods that have one."""
        values = list(filter(math.isfinite, self.seen.agreement.values()))
        return sum(values) / len(values) if values else None

    def values(self) -> dict[str, float | None]:
        """Of each reason to show a row a value that is low where the reason is strong; None where it does not apply."""
        probability = self.row.get("probability")
        wrong = None if probability is None or self.correct is not False else -probability
        return {"methods disagree": self.agreement(), "least certain": probability, "wrong": wrong}

    def sample(self) -> Sampled:
        """The row as the page shows it: long texts and values are cut."""
        row, tokens, seen = self.row, self.row["tokens"], self.seen
        return Sampled(
            row=int(row["row"]),
            id=cut(str(row["id"]), FIELD),
            text=cut(row.get("text") or " ".join(tokens), TEXT),
            pair=None if row.get("pair") is None else cut(row["pair"], TEXT),
            tokens=tuple(tokens[:LONG]),
            special=tuple(not of_text for of_text in is_of_text(row)[:LONG]),
            left_out=max(0, len(tokens) - LONG),
            query=int(row["query"]),
            prediction=seen.predicted,
            probability=row.get("probability"),
            target=row.get("target"),
            label=self._shown_label(),
            correct=self.correct,
            gap=row.get("gap"),
            seconds=float(row["seconds"]),
            agreement=self.agreement(),
            carried=self._carried(),
            methods=tuple(seen.scores),
            scores=np.array([values[:LONG] for values in seen.scores.values()]).reshape(len(seen.scores), -1),
            file=self.file,
        )

    def _shown_label(self) -> str | None:
        """The label; where it is no class of the model, the value of its column."""
        value = None if self.column is None else self.row.get(self.column)
        return self.label if self.label is not None or value is None else cut(str(value), FIELD)

    def _carried(self) -> tuple[tuple[str, str], ...]:
        """(column, value) of the carried columns that have a value."""
        carried = [name for name, value in self.row.items() if value is not None and not self._is_computed(name)]
        return tuple((name, cut(str(self.row[name]), FIELD)) for name in carried)

    def _is_computed(self, column: str) -> bool:
        return column in COLUMNS or column in self.seen.scores or column.startswith(RATIO)


class Examples:
    """About `count` rows to look at: half of them evenly spaced, the others for one of the reasons in WHY."""

    def __init__(self, count: int):
        self.count = count
        self.spaced = Spaced(count // 2)
        self.chosen = {why: Lowest(count // 6) for why in WHY[1:]}

    def offer(self, candidate: Candidate) -> None:
        """One more row; it is held only where it is chosen."""
        if not self.count:
            return
        self.spaced.offer(candidate.sample)
        for why, value in candidate.values().items():
            if value is not None:
                self.chosen[why].offer(value, int(candidate.row["row"]), candidate.sample)

    def rows(self) -> list[Sampled]:
        """Each row once, with all reasons it was chosen for. The kinds take turns: a cut at any place leaves some of each."""
        rows: dict[int, Sampled] = {}
        for why, sample in self._in_turns():
            row = rows.setdefault(sample.row, sample)
            rows[row.row] = replace(row, why=(*row.why, why))
        return list(rows.values())

    def _in_turns(self) -> Iterator[tuple[str, Sampled]]:
        """(reason, row): the first row of each reason, then the second of each."""
        kinds = [spread(self.spaced.items), *(self.chosen[why].lowest_first() for why in WHY[1:])]
        for turn in zip_longest(*kinds):
            yield from (pair for pair in zip(WHY, turn, strict=True) if pair[1] is not None)


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
