"""Counts of values between edges."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


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
