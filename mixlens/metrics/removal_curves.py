"""More ways to take tokens away: put the top ones back into an empty text, count how many go until the decision
changes, and AOPC on a scale that models share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.errors import InputError
from ..scoring.removal import Replacement, Unit
from ..scoring.targets import Target, TargetName
from ..types import Trace
from .arguments import Array, Scores
from .faithfulness import KEEPING, REMOVING, TENTHS, Course, course_of, rounded
from .registry import metric

PETSIUK = "Petsiuk et al. 2018, RISE: Randomized Input Sampling for Explanation of Black-box Models"
SERRANO = "Serrano and Smith 2019, Is Attention Interpretable?"
EDIN = (
    "Edin et al. 2025, Normalized AOPC: Fixing Misleading Faithfulness Metrics for Feature Attribution Explainability"
)
EXHAUSTIVE = 10  # units up to which all orders are searched
ROUNDING = 1e-6  # of probabilities in single precision: orders that differ by less are the same


@metric(paper=PETSIUK, needs=("trace", "scores", "rerun"), better="higher", cost="12", kind=KEEPING)
def insertion(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = TENTHS,
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
) -> float:
    """p(the top k % tokens alone), mean over k = 0, 10, ..., 100: the area under the insertion curve.

    AOPC takes the top tokens away first; insertion begins with an empty text and puts them back first.
    """
    course = course_of(trace, scores, target=target, foil=foil, label=label, ranking=ranking, unit=unit)
    counts = rounded(percents, len(course.order))
    return float(np.exp(course.logs([course.order[count:] for count in counts], replacement)[1:]).mean())


@dataclass(frozen=True)
class Lead(Target):
    """By how much the target's logit leads the next one: positive where the model decides for the target."""

    def of(self, output: Any) -> Tensor:
        """[batch]: against the foil, or against the highest of all others; of several logits the least."""
        leads = []
        for logits, target in zip(self.logits_of(output), self.ids, strict=True):
            others = logits.clone()
            others[:, target] = -torch.inf
            leads.append(logits[:, target] - (others.amax(-1) if self.foil is None else logits[:, self.foil]))
        return torch.stack(leads).amin(0)


@metric(paper=SERRANO, needs=("trace", "scores", "rerun"), better="lower", cost="n", kind=REMOVING)
def decision_flip(
    trace: Trace,
    scores: Scores,
    *,
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
) -> float:
    """Which share of the tokens must go, the highest score first, until the model decides otherwise: 1 where it never does.

    With a foil: until the foil is more probable. NaN where the model does not decide for the target in the first place.
    """
    course = course_of(trace, scores, target=target, foil=foil, label=label, ranking=ranking, unit=unit)
    course = replace(course, target=Lead(**vars(course.target)))
    leads = course.logs([course.order[:count] for count in range(1, len(course.order) + 1)], replacement)
    if leads[0] <= 0:
        return np.nan
    return float(np.append(np.flatnonzero(leads <= 0), len(course.order))[0] / len(course.order))


# --- AOPC between its bounds ------------------------------------------------------------------------------------------


@metric(
    paper=EDIN,
    needs=("trace", "scores", "rerun"),
    better="higher",
    cost="2^n up to 10 tokens, else beam n²",
    kind=REMOVING,
)
def naopc(
    trace: Trace,
    scores: Scores,
    *,
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
    beam: int = 5,
    bounds: tuple[float, float] | None = None,
) -> float:
    """(AOPC - lowest) / (highest - lowest): 0 for the worst order in which this text's tokens can go, 1 for the best.

    AOPC is the mean fall of the probability after 1, 2, ..., n tokens. What it can reach depends on the model and the
    text, so AOPC of two models cannot be compared, and this can. Of up to 10 tokens the bounds are those of all orders;
    of more they are found by beam search, and this order widens them where it passes them (`bounds`: those of this
    text, where they are at hand). NaN where every order is the same."""
    course = course_of(trace, scores, target=target, foil=foil, label=label, ranking=ranking, unit=unit)
    fall = mean_fall(course, replacement)
    lowest, highest = bounds or aopc_bounds(course, replacement=replacement, beam=beam)
    lowest, highest = min(lowest, fall), max(highest, fall)
    return (fall - lowest) / (highest - lowest) if highest - lowest > ROUNDING else np.nan


def mean_fall(course: Course, replacement: Replacement) -> float:
    """The mean fall of the probability after 1, 2, ..., n units in the order of a course."""
    steps = [course.order[:count] for count in range(1, len(course.order) + 1)]
    return float(_falls(course, steps, replacement).mean())


def _falls(course: Course, removals: Iterable[Iterable[Unit]], replacement: Replacement) -> Array:
    """[removal]: p(whole) - p(without these units)."""
    probabilities = np.exp(course.logs([tuple(gone) for gone in removals], replacement))
    falls: Array = probabilities[0] - probabilities[1:]
    return falls


def aopc_bounds(
    course: Course, *, replacement: Replacement = "delete", beam: int = 5, orders: Iterable[Course] = ()
) -> tuple[float, float]:
    """The lowest and the highest mean fall over all orders of a text's units. Of more than 10 units: as far as beams of
    this width find them, and over `orders` of these units that are known beside."""
    if beam < 1:
        raise InputError(f"beam is a number of orders, at least 1, not {beam!r}.")
    if len(course.order) <= EXHAUSTIVE:
        return _exact_bounds(course, replacement)
    falls = [mean_fall(one, replacement) for one in orders]
    lowest, highest = -_best(course, replacement, beam, -1), _best(course, replacement, beam, 1)
    return min([lowest, *falls]), max([highest, *falls])


def _exact_bounds(course: Course, replacement: Replacement) -> tuple[float, float]:
    """From the falls of all sets of units: the best way to a set is the best way to one of one unit less, and its own
    fall."""
    n = len(course.order)
    sets = [frozenset(gone) for size in range(1, n + 1) for gone in combinations(course.order, size)]
    sums: dict[frozenset[Unit], tuple[float, float]] = {frozenset(): (0.0, 0.0)}
    for gone, fall in zip(sets, _falls(course, sets, replacement).tolist(), strict=True):
        lowest, highest = zip(*(sums[gone - {unit}] for unit in gone), strict=True)
        sums[gone] = (fall + min(lowest), fall + max(highest))
    low, high = sums[frozenset(course.order)]
    return low / n, high / n


def _best(course: Course, replacement: Replacement, beam: int, sign: int) -> float:
    """The highest mean of sign x fall. A fall depends on which units are gone and not on their order: a state is a set,
    and the highest sum of falls with which it is reached."""
    states: dict[frozenset[Unit], float] = {frozenset(): 0.0}
    for _ in course.order:
        sums: dict[frozenset[Unit], float] = {}
        for gone, total in states.items():
            for more in (gone | {unit} for unit in course.order if unit not in gone):
                sums[more] = max(total, sums.get(more, -np.inf))
        falls = _falls(course, sums, replacement).tolist()
        reached = {gone: total + sign * fall for (gone, total), fall in zip(sums.items(), falls, strict=True)}
        states = dict(sorted(reached.items(), key=lambda state: -state[1])[:beam])
    return max(states.values()) / len(course.order)
