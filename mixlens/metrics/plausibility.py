"""Plausibility: do scores point at what people marked? (DeYoung et al. 2020, ERASER, section 4.1; AttCAT for
answers.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import InputError
from .agreement import ATTCAT
from .arguments import Array, Marks, Scores, marks, marks_at, one_of, sklearn_metrics, vector
from .registry import metric

ERASER = "DeYoung et al. 2020, ERASER: A Benchmark to Evaluate Rationalized NLP Models"
RATIONALES = "rationales"  # a kind of metric
RANKINGS = ("signed", "magnitude")


def ranked(scores: Scores, ranking: str) -> Array:
    """The numbers by which tokens are ranked: the scores ("signed": what speaks for the target comes first), or their
    absolute values ("magnitude": what speaks for or against it comes first)."""
    values = vector(scores)
    return np.abs(values) if one_of("ranking", ranking, RANKINGS) == "magnitude" else values


@dataclass(frozen=True)
class Match:
    """How well a set of tokens matches the marked ones."""

    precision: float
    recall: float
    value: float  # F1, or intersection over union


@dataclass(frozen=True)
class PrecisionAtK:
    """Answer tokens among the K highest."""

    count: int
    answer: int  # tokens of the answer: the count that would be perfect
    k: int
    value: float  # share of the answer that was found
    precision: float  # share of the top K that is answer


def top_marks(scores: Scores, k: int) -> Marks:
    """[pos]: the k highest scores; of tied ones, those that come first."""
    values = vector(scores)
    if not 0 <= k <= len(values):
        raise InputError(f"k is a number of tokens, 0 to {len(values)} here, not {k!r}.")
    return marks_at(np.argsort(-values, kind="stable")[:k].tolist(), len(values))


@metric(paper=ERASER, needs=("scores", "rationale"), better="higher", kind=RATIONALES)
def rationale_auprc(scores: Scores, rationale: Any, *, ranking: str = "signed") -> float:
    """Area under the precision-recall curve, trapezoids as in ERASER's code. NaN where nothing was marked."""
    values = ranked(scores, ranking)
    marked = marks(rationale, len(values), "rationale")
    if not marked.any():
        return np.nan
    sklearn = sklearn_metrics()
    precision, recall, _ = sklearn.precision_recall_curve(marked, values)
    return float(sklearn.auc(recall, precision))


@metric(paper=ERASER, needs=("scores", "rationale"), better="higher", kind=RATIONALES)
def rationale_f1(scores: Scores, rationale: Any, *, k: int | None = None, ranking: str = "signed") -> Match:
    """Token F1 of the k highest scores (None: as many as were marked) with the rationale. NaN where nothing was marked.

    ERASER takes k from the mean length of a dataset's rationales.
    """
    chosen, marked = _chosen(scores, rationale, k, ranking)
    both = int((chosen & marked).sum())
    return _match(both, int(chosen.sum()), int(marked.sum()))


@metric(paper=ERASER, needs=("scores", "rationale"), better="higher", kind=RATIONALES)
def rationale_iou(scores: Scores, rationale: Any, *, k: int | None = None, ranking: str = "signed") -> float:
    """Tokens in both over tokens in either, for the k highest scores (None: as many as were marked). NaN where none were."""
    chosen, marked = _chosen(scores, rationale, k, ranking)
    return float((chosen & marked).sum() / (chosen | marked).sum()) if marked.any() else np.nan


@metric(paper=ERASER, needs=("scores", "rationale"), better="higher", kind=RATIONALES)
def rationale_iou_f1(
    scores: Scores, rationale: Any, *, k: int | None = None, threshold: float = 0.5, ranking: str = "signed"
) -> Match:
    """ERASER's IoU F1: runs of chosen tokens count as found where they overlap a marked run by `threshold` or more."""
    chosen, marked = (runs(side) for side in _chosen(scores, rationale, k, ranking))
    hits = 0
    for start, end in chosen:
        both = [max(0, min(end, other[1]) - max(start, other[0])) for other in marked]
        wholes = [end - start + other[1] - other[0] for other in marked]
        hits += any(b / (whole - b) >= threshold for b, whole in zip(both, wholes, strict=True))
    return _match(hits, len(chosen), len(marked))


def runs(chosen: Marks) -> list[tuple[int, int]]:
    """Neighbouring chosen tokens as (start, end), end left out."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


@metric(paper=ATTCAT, needs=("scores", "span"), better="higher")
def precision_at_k(scores: Scores, span: tuple[int, int], *, k: int = 20) -> PrecisionAtK:
    """How many tokens of an answer (first and last position, both included) are among the K highest scores.

    Its `.value` is the share of the answer; the paper's Figure 3 gives the mean `.count`. Ties: the token that comes
    first."""
    values = vector(scores)
    start, end = span
    if not 0 <= start <= end < len(values):
        raise InputError(
            f"span {tuple(span)} is no answer: first and last position, 0 to {len(values) - 1}, both included."
        )
    if k < 1:
        raise InputError(f"k is a number of tokens, at least 1, not {k!r}.")
    taken = min(k, len(values))
    count = int(top_marks(values, taken)[start : end + 1].sum())
    return PrecisionAtK(count, end - start + 1, k, count / (end - start + 1), count / taken)


def _chosen(scores: Scores, rationale: Any, k: int | None, ranking: str) -> tuple[Marks, Marks]:
    """The k highest scores, and what was marked."""
    values = ranked(scores, ranking)
    marked = marks(rationale, len(values), "rationale")
    return top_marks(values, int(marked.sum()) if k is None else k), marked


def _match(hits: int, chosen: int, marked: int) -> Match:
    """Hits among what was chosen, and among what was marked; NaN where nothing was marked."""
    if not marked:
        return Match(np.nan, np.nan, np.nan)
    precision, recall = hits / max(chosen, 1), hits / marked
    total = precision + recall
    return Match(precision, recall, 2 * precision * recall / total if total else 0.0)
