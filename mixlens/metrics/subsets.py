"""The linear datamodelling score: do the scores of what is kept predict what the model does with it? (ContextCite,
section 3.)"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..scoring.removal import Replacement, Subsets, by_unit, measured_subsets, removable_units
from ..scoring.targets import TargetName, resolve
from ..types import Trace
from .agreement import spearman
from .arguments import Scores
from .faithfulness import scores_of
from .registry import metric

PAPER = "Cohen-Wang et al. 2024, ContextCite: Attributing Model Generation to Context"
HELD_OUT = 1  # subsets of this stream; the method `context_cite` learns from stream 0


@metric(paper=PAPER, needs=("trace", "scores", "rerun"), better="higher", cost="64", kind="subsets")
def lds(
    trace: Trace,
    scores: Scores,
    *,
    count: int = 64,
    unit: str = "word",
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    seed: int = 0,
    subsets: Subsets | None = None,
) -> float:
    """Spearman's rank correlation, over random halves of the words, between the sum of the scores of the words that are kept
    and the model's log-odds of the target, log p / (1 - p), on these words alone.

    Every subset keeps half of the words, rounded up, so that a constant added to the scores of all words changes
    nothing; no two of the `count` subsets are the same, and a short text has as many as there are. ContextCite's own
    score keeps each word with probability 1/2. NaN where all sums or all log-odds are equal. `subsets`: those of
    `held_out_subsets`, where they are at hand."""
    values = scores_of(trace, scores)
    if subsets is None:
        drawn: dict[str, Any] = {"count": count, "unit": unit, "replacement": replacement, "seed": seed}
        subsets = held_out_subsets(trace, target=target, foil=foil, **drawn)
    return spearman(subsets.kept @ by_unit(values, subsets.units), subsets.log_odds)


def held_out_subsets(
    trace: Trace,
    *,
    count: int = 64,
    unit: str = "word",
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    seed: int = 0,
) -> Subsets:
    """The random halves of `lds`, drawn apart from the subsets that the method `context_cite` learns from."""
    if count < 2:
        raise InputError(f"count is a number of subsets, at least 2, not {count!r}.")
    resolved = resolve(trace, target, foil=foil, score="log_probability")
    units = removable_units(trace, resolved, unit)
    kept = halves(len(units), count, (seed, HELD_OUT))
    return measured_subsets(trace, resolved, units, kept, replacement=replacement)


def halves(units: int, count: int, seed: Sequence[int]) -> NDArray[np.bool_]:
    """[subset unit]: `count` different subsets of half of the units, rounded up; all of them where there are no
    more."""
    size = (units + 1) // 2
    if comb(units, size) <= count:
        chosen = list(combinations(range(units), size))
    else:
        generator = np.random.default_rng(list(seed))
        drawn: dict[tuple[int, ...], None] = {}  # in the order in which they are drawn
        while len(drawn) < count:
            drawn[tuple(sorted(generator.permutation(units)[:size].tolist()))] = None
        chosen = list(drawn)
    kept = np.zeros((len(chosen), units), dtype=np.bool_)
    for row, places in zip(kept, chosen, strict=True):
        row[list(places)] = True
    return kept
