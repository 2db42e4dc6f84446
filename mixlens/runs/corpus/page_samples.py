"""What the page of a run holds of its rows: counts in bins, and some rows to look at. Neither grows with the rows."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from .plan import is_computed
from .row_words import WrittenWord, is_of_text, written_words
from .tally import RowFacts
from .turned_counts import OPEN, RowCheck

LONG = 1_024  # tokens of an example that are shown
TEXT = 4_000  # and characters
FIELD = 200  # characters of a carried value
WHY = ("evenly spaced", "methods disagree", "least certain", "wrong", "nothing turned it", "does not add up")
SURE = 0.95  # a wrong prediction above this is sure of it
APART = 0.10  # a mean correlation of the methods below this is a disagreement


# --- streams ----------------------------------------------------------------------------------------------------------


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
    bits = len(items).bit_length()
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
    agreement: float | None  # mean Spearman correlation over the pairs of methods, over words
    carried: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    file: str  # the shard it is in
    why: tuple[str, ...] = ()
    words: tuple[WrittenWord, ...] = ()
    check: RowCheck | None = None
    tags: tuple[str, ...] = ()  # the lists of `OUTLIERS` that it belongs to


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
        values = list(filter(math.isfinite, self.seen.word_agreement.values()))
        return sum(values) / len(values) if values else None

    def tags(self) -> tuple[str, ...]:
        """The lists of rows worth a look that the row belongs to."""
        check, probability, agreement = self.seen.check, self.row.get("probability"), self.agreement()
        belongs = {
            "wrong": self.correct is False and probability is not None and probability > SURE,
            "held": check is not None and check.nothing_turned,
            "apart": agreement is not None and agreement < APART,
            "open": self._open_gap() is not None,
        }
        return tuple(tag for tag, belonging in belongs.items() if belonging)

    def values(self) -> dict[str, float | None]:
        """Of each reason to show a row a value that is low where the reason is strong; None where it does not apply."""
        probability = self.row.get("probability")
        wrong = None if probability is None or self.correct is not False else -probability
        check = self.seen.check
        held = -min(check.left.values()) if check is not None and check.nothing_turned else None
        gap = self._open_gap()
        chosen = {"methods disagree": self.agreement(), "least certain": probability, "wrong": wrong}
        return {**chosen, "nothing turned it": held, "does not add up": None if gap is None else -gap}

    def _open_gap(self) -> float | None:
        """How much the scores do not add up; None where they do, or where that was not measured."""
        gap = None if self.seen.check is None else self.seen.check.gap
        return gap if gap is not None and gap > OPEN else None

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
            words=tuple(word for word in written_words(row) if max(word.tokens) < LONG),
            check=seen.check,
            tags=self.tags(),
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
        return is_computed(column) or column in self.seen.scores


class Examples:
    """About `count` rows to look at: half of them evenly spaced, the others for one of the reasons in WHY. Up to `count` rows
    are all held. `tagged`: of each list of rows worth a look how many rows belong to it, held or not."""

    def __init__(self, count: int):
        self.count = count
        self.every: list[Sampled] | None = []  # all rows, as long as there is room for them
        self.spaced = Spaced(count // 2)
        self.chosen = {why: Lowest(count // 6) for why in WHY[1:]}
        self.tagged: Counter[str] = Counter()

    def offer(self, candidate: Candidate) -> None:
        """One more row; it is held only where it is chosen."""
        self.tagged.update(candidate.tags())
        if not self.count:
            return
        self._hold(candidate)
        self.spaced.offer(candidate.sample)
        for why, value in candidate.values().items():
            if value is not None:
                self.chosen[why].offer(value, int(candidate.row["row"]), candidate.sample)

    def _hold(self, candidate: Candidate) -> None:
        """Hold the row with all before it, or let all go where there are too many."""
        if self.every is not None and len(self.every) < self.count:
            self.every.append(candidate.sample())
        else:
            self.every = None

    def rows(self) -> list[Sampled]:
        """Each row once, with all reasons it was chosen for. The kinds take turns: a cut at any place leaves some of each. Where
        all rows are held, those that were not chosen come last."""
        chosen = self._chosen_rows()
        known = {sample.row for sample in chosen}
        return [*chosen, *(sample for sample in self.every or () if sample.row not in known)]

    def _chosen_rows(self) -> list[Sampled]:
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
