"""How many predictions turned without words: of each method's first words, and of random words, every draw counted on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from .bins import Bins
from .plan import COMPLETENESS, RANDOM_TURNED, RANDOM_WITHOUT, TURNED, WITHOUT

LEFT = np.linspace(0, 1, 21)  # edges of the probability that is left
NORMAL = 1.959964  # of 95 %
OPEN = 0.01  # a gap of completeness above which scores do not add up
HELD = 0.90  # a prediction above which, without any method's first words, nothing turned it


def left_bins() -> Bins:
    return Bins(LEFT)


@dataclass
class Turned:
    """The rows of one way to take words out: how many turned, and the probability that was left. A row with several draws adds
    a part of 1 for each draw."""

    rows: int = 0
    turned: float = 0.0
    draws: int = 0
    left: Bins = field(default_factory=left_bins)  # of draws

    def add(self, turned: Sequence[bool], left: Sequence[float]) -> None:
        self.rows += 1
        self.draws += len(turned)
        self.turned += sum(turned) / len(turned)
        for probability in left:
            self.left.add(probability)

    @property
    def share(self) -> float | None:
        return self.turned / self.rows if self.rows else None

    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval over rows. Draws of one row depend on each other, so that only rows count as a sample: for
        random words it is wider than it need be."""
        return wilson(self.turned, self.rows) if self.rows else None


def wilson(successes: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, square = successes / count, NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class Gaps:
    """By how much the scores of a method miss their sum, over rows."""

    rows: int = 0
    open: int = 0  # rows above `OPEN`
    largest: float = 0.0

    def add(self, gap: float) -> None:
        self.rows, self.open, self.largest = self.rows + 1, self.open + (gap > OPEN), max(self.largest, gap)


@dataclass(frozen=True)
class RowCheck:
    """The check of one row: what was left, by method, and of each draw; gaps of completeness by method."""

    left: dict[str, float]
    turned: dict[str, bool]
    random_left: list[float]
    random_turned: list[bool]
    gaps: dict[str, float]

    @property
    def gap(self) -> float | None:
        """The largest gap of completeness."""
        return max(self.gaps.values(), default=None)

    @property
    def nothing_turned(self) -> bool:
        """Whether words were taken out, and no method's first words brought the prediction below `HELD`."""
        return bool(self.left) and min(self.left.values()) >= HELD


def check_of(row: Mapping[str, Any], methods: Sequence[str]) -> RowCheck | None:
    """The check in the columns of a row; None where the run made none."""
    if RANDOM_WITHOUT not in row:
        return None
    return RowCheck(
        left=_given(row, WITHOUT, methods),
        turned=_given(row, TURNED, methods),
        random_left=row[RANDOM_WITHOUT] or [],
        random_turned=row[RANDOM_TURNED] or [],
        gaps=_given(row, COMPLETENESS, methods),
    )


def _given(row: Mapping[str, Any], prefix: str, methods: Sequence[str]) -> dict[str, Any]:
    """The values of the methods that have one."""
    return {method: row[prefix + method] for method in methods if row.get(prefix + method) is not None}


class TurnedCounts:
    """The checks of all rows."""

    def __init__(self, methods: Sequence[str]):
        self.methods = {method: Turned() for method in methods}
        self.random, self.gaps = Turned(), {method: Gaps() for method in methods}
        self.open_rows = 0  # rows where the scores of some method do not add up
        self.unchecked = 0  # rows with too few words
        self.rows = 0  # rows with the columns of a check

    def add(self, check: RowCheck) -> None:
        self.rows += 1
        self.open_rows += check.gap is not None and check.gap > OPEN
        for method, gap in check.gaps.items():
            self.gaps[method].add(gap)
        if check.left:
            self._add_left(check)
        else:
            self.unchecked += 1

    def _add_left(self, check: RowCheck) -> None:
        for method, left in check.left.items():
            self.methods[method].add([check.turned[method]], [left])
        self.random.add(check.random_turned, check.random_left)

    def best_first(self) -> list[str]:
        """The methods that were checked, those first without whose words most predictions turn."""
        checked = [method for method, turned in self.methods.items() if turned.rows]
        return sorted(checked, key=lambda method: -self.methods[method].turned / self.methods[method].rows)
