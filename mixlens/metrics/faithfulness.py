"""Faithfulness: change the input where the scores say it matters, run the model again, see what the prediction does.

The model is run on batches of changed inputs and is never changed itself. Special tokens, and the position that
predicts, always stay. Four options are common to the metrics:

    ranking      "signed": the highest score goes first; "magnitude": the largest |score| goes first
    unit         what goes at a time: "token", "word" (score: the sum over its tokens), "sentence"
    replacement  "delete", or what stands in the place of a token (`mixlens.scoring.removal`)
    foil         the probability is that of the target among the two
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..scoring.attributions import attribute
from ..scoring.removal import Replacement, Unit, by_unit, outcomes, removable_units, staying, units_of
from ..scoring.targets import Target, TargetName, resolve
from ..types import Trace
from .agreement import ATTCAT, correlation
from .arguments import VARIANTS, Array, Scores, one_of, vector
from .intervals import Interval, by_column
from .plausibility import ERASER, ranked
from .registry import metric

__all__ = ["aopc", "blank_out_faithfulness", "comprehensiveness", "curve", "lodds", "outcomes", "sufficiency"]
TENTHS = tuple(range(0, 101, 10))  # percent
BINS = (1, 5, 10, 20, 50)
REMOVING, KEEPING, ONE_BY_ONE = "removing", "keeping", "one by one"  # kinds of metrics
MOHEBBI = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"


@dataclass(frozen=True)
class Degradation:
    """What became of a target's probability: `left[i]` after `removed[i]` tokens were taken away, and the metric
    itself."""

    value: float  # the mean of `points`; NaN where the metric leaves the example out
    whole: float  # the probability for the text as it is
    removed: tuple[int, ...] = ()
    left: tuple[float, ...] = ()
    points: tuple[float, ...] = ()  # the curve


def curve(degradations: Sequence[Degradation], **options: Any) -> tuple[Interval, ...]:
    """Mean and interval of every point of a curve, over examples that were degraded in the same steps."""
    curves = [degradation.points for degradation in degradations if degradation.points]
    if len({len(points) for points in curves}) != 1:
        raise InputError(
            f"the curves have {sorted({len(points) for points in curves})} points; they must have the same number."
        )
    return by_column(curves, **options)


@metric(paper=ATTCAT, needs=("trace", "scores", "rerun"), better="higher", variants=VARIANTS, cost="12", kind=REMOVING)
def aopc(
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
    variant: str = "paper",
) -> Degradation:
    """AOPC (AttCAT, eq. 13): p(x) - p(x without its top k % tokens), mean over k = 0, 10, ..., 100, of the predicted label.

    k % of the tokens that may go, rounded; tied tokens go in their order in the text. `released`: nine steps, k % of
    all tokens with the special ones, the gold `label`, absolute differences, no value under 10 tokens."""
    question = {"target": target, "foil": foil, "label": label, "ranking": ranking, "unit": unit}
    logs, counts = _attcat(trace, scores, variant, percents, replacement, question)
    drops = _drops(logs)
    return _degradation(logs, counts, np.abs(drops) if variant == "released" else drops)


@metric(paper=ATTCAT, needs=("trace", "scores", "rerun"), better="lower", variants=VARIANTS, cost="12", kind=REMOVING)
def lodds(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = TENTHS,
    replacement: Replacement = "pad",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
    variant: str = "paper",
) -> Degradation:
    """LOdds (AttCAT, eq. 14): log p(x with its top k % tokens made padding) - log p(x), mean over k = 0, 10, ..., 100.

    As `aopc` otherwise. `released`: nine steps, k % of all tokens with the special ones, the gold `label`, no value
    under 10 tokens."""
    question = {"target": target, "foil": foil, "label": label, "ranking": ranking, "unit": unit}
    logs, counts = _attcat(trace, scores, variant, percents, replacement, question)
    return _degradation(logs, counts, logs[1:] - logs[0])


@metric(paper=ERASER, needs=("trace", "scores", "rerun"), better="higher", variants=VARIANTS, cost="7", kind=REMOVING)
def comprehensiveness(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = BINS,
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
    variant: str = "paper",
) -> Degradation:
    """Comprehensiveness (ERASER, section 4.2): p(x) - p(x without its top k % tokens), mean over k = 0, 1, 5, 10, 20, 50.

    Rounded up to whole tokens. `released` leaves k = 0 out of the mean.
    """
    course = course_of(trace, scores, target=target, foil=foil, label=label, ranking=ranking, unit=unit)
    return _eraser(course, percents, replacement, variant, keep=False)


@metric(paper=ERASER, needs=("trace", "scores", "rerun"), better="lower", variants=VARIANTS, cost="7", kind=KEEPING)
def sufficiency(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = BINS,
    replacement: Replacement = "delete",
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
    variant: str = "paper",
) -> Degradation:
    """Sufficiency (ERASER, section 4.2): p(x) - p(its top k % tokens alone), mean over k = 0, 1, 5, 10, 20, 50.

    Rounded up to whole tokens. `released` leaves k = 0 out of the mean.
    """
    course = course_of(trace, scores, target=target, foil=foil, label=label, ranking=ranking, unit=unit)
    return _eraser(course, percents, replacement, variant, keep=True)


@metric(paper=MOHEBBI, needs=("trace", "scores", "rerun"), better="higher", cost="n", kind=ONE_BY_ONE)
def blank_out_faithfulness(
    trace: Trace,
    scores: Scores,
    *,
    how: str = "spearman",
    replacement: str | int = "unk",
    absolute: bool = False,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    query: int | str | None = None,
    keep_special: bool = True,
    ranking: str = "signed",
    unit: str = "token",
    blanked: Scores | None = None,
) -> float:
    """Rank correlation of the scores with what blanking each token does to the target's probability (method `blank_out`).

    Value Zeroing replaces by "unk" and keeps the sign; ALTI by "mask", `absolute`. "delete", "zero" or an id work too.
    `how` is the correlation; `ranking="magnitude"` compares absolute values on both sides. With `unit` all tokens of a
    word or of a sentence are blanked at once, and compared with the sum of their scores. Without special tokens
    (`keep_special=False`) the units that can be taken away are compared, without the position that predicts. `blanked`:
    those of `blanked_units`, where they are at hand."""
    values = scores_of(trace, scores)
    if blanked is None:
        question: dict[str, Any] = {"target": target, "foil": foil, "query": query}
        options: dict[str, Any] = {"unit": unit, "replacement": replacement, "absolute": absolute}
        blanked = blanked_units(trace, keep_special=keep_special, **options, **question)
    units = _compared(trace, unit, keep_special, target=target, query=query)
    return correlation(how)(*(ranked(by_unit(side, units), ranking) for side in (values, vector(blanked))))


def blanked_units(
    trace: Trace,
    *,
    unit: str = "token",
    replacement: Any = "unk",
    absolute: bool = False,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    query: int | str | None = None,
    keep_special: bool = True,
) -> Array:
    """[pos]: p(x) - p(x with a unit blanked) at the first token of each unit, 0 at its others. Of tokens: method
    `blank_out`."""
    question: dict[str, Any] = {"target": target, "foil": foil, "query": query}
    if unit == "token":
        return vector(attribute(trace, "blank_out", replacement=replacement, absolute=absolute, **question))
    units = _compared(trace, unit, keep_special, target=target, query=query)
    resolved = resolve(trace, **question, score="probability")
    whole, *left = outcomes(trace, [(), *units], resolved, replacement=replacement).tolist()
    effects = np.zeros(len(trace))
    effects[[positions[0] for positions in units]] = whole - np.array(left)
    return np.abs(effects) if absolute else effects


def _compared(trace: Trace, unit: str, keep_special: bool, **question: Any) -> list[Unit]:
    """The units that are compared: all, or without positions that are special or where the prediction is read."""
    units = units_of(trace, unit, () if keep_special else staying(trace, resolve(trace, **question)))
    if not units:
        raise InputError("every token is special; without them nothing is left to compare.")
    return units


# --- taking tokens away ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """A text, the target whose log-probability is measured, and the units that may go, the highest score first."""

    trace: Trace
    target: Target
    order: tuple[Unit, ...]

    def logs(self, removals: Sequence[Sequence[Unit]], replacement: Replacement) -> Array:
        """[1 + removal]: log p of the text as it is, then without the units of each removal."""
        gone = [[i for unit in units for i in unit] for units in ((), *removals)]
        return outcomes(self.trace, gone, self.target, replacement=replacement)


def course_of(
    trace: Trace,
    scores: Scores,
    *,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    label: str | int | None = None,
    ranking: str = "signed",
    unit: str = "token",
) -> Course:
    """The units in the order of their scores, tied ones in their order in the text. At least one token always stays."""
    resolved = resolve(trace, target, foil=foil, score="log_probability", label=label)
    units = removable_units(trace, resolved, unit)
    totals = ranked(by_unit(scores_of(trace, scores), units), ranking)
    return Course(trace, resolved, tuple(units[i] for i in np.argsort(-totals, kind="stable")))


def scores_of(trace: Trace, scores: Scores) -> Array:
    """[pos]: one score for each token of the trace, special ones included."""
    values = vector(scores)
    if len(values) != len(trace):
        raise InputError(
            f"scores are for {len(values)} tokens, the trace has {len(trace)}. Special tokens must have scores too."
        )
    return values


def _attcat(
    trace: Trace,
    scores: Scores,
    variant: str,
    percents: Sequence[int],
    replacement: Replacement,
    question: dict[str, Any],
) -> tuple[Array, Sequence[int]]:
    """log p of the text as it is, then without more and more of its top units [1 + step]; how many, [step].

    `released` is as the notebooks of single texts have it: nine steps of all n tokens, none for a text under ten; those
    of pairs remove [CLS] and [SEP] too, and that of QQP ranks by magnitude."""
    if one_of("variant", variant, VARIANTS) == "paper":
        course = course_of(trace, scores, **question)
        counts = rounded(percents, len(course.order))
    else:
        if question["label"] is None:
            raise InputError("variant='released' explains the gold label: give label=.")
        trace, n = replace(trace, token_type_ids=None), len(trace)  # the notebooks pass no segments
        resolved = resolve(trace, "gold", score="log_probability", label=question["label"])
        order = np.argsort(-scores_of(trace, scores))[:-1].tolist()  # the last token of the order is never looked at
        course = Course(trace, resolved, tuple((i,) for i in order if not trace.special[i]))
        counts = np.round(np.linspace(0, 1, 10) * n)[1:].astype(int).tolist() if n >= 10 else []
    return course.logs([course.order[:count] for count in counts], replacement), counts


def rounded(percents: Sequence[int], n: int) -> list[int]:
    """These percents of n units, rounded to whole ones."""
    return [round(percent * n / 100) for percent in _percents(percents)]


def _percents(percents: Sequence[int]) -> tuple[int, ...]:
    if not len(percents) or any(not isinstance(p, int) or not 0 <= p <= 100 for p in percents):
        raise InputError(f"percents are whole numbers from 0 to 100, at least one of them, not {percents!r}.")
    return tuple(percents)


def _eraser(
    course: Course, percents: Sequence[int], replacement: Replacement, variant: str, *, keep: bool
) -> Degradation:
    bins = _percents(percents) if one_of("variant", variant, VARIANTS) == "released" else (0, *_percents(percents))
    counts = [-(-percent * len(course.order) // 100) for percent in bins]
    removals = [course.order[count:] if keep else course.order[:count] for count in counts]
    logs = course.logs(removals, replacement)
    return _degradation(logs, [len(removal) for removal in removals], _drops(logs))


def _drops(logs: Array) -> Array:
    """p(whole) - p(changed), from their logarithms."""
    drops: Array = np.exp(logs[0]) - np.exp(logs[1:])
    return drops


def _degradation(logs: Array, counts: Sequence[int], points: Array) -> Degradation:
    whole, *left = np.exp(logs).tolist()
    value = float(points.mean()) if len(points) else np.nan
    return Degradation(value, whole, tuple(counts), tuple(left), tuple(points.tolist()))
