"""The random scores that every method of `judge` is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...scoring.removal import removable_units
from ...scoring.targets import Target
from ...types import Trace


def random_scores(trace: Trace, target: Target, unit: str, generator: np.random.Generator) -> NDArray[Any]:
    """[pos]: one uniform number for each unit that may be taken away, in equal parts on its tokens, so that the sums of short and
    long units are drawn alike; one for each position that stays."""
    scores = generator.random(len(trace))
    for positions in removable_units(trace, target, unit):
        scores[list(positions)] = scores[positions[0]] / len(positions)
    return scores
