"""Cue alignment (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, section 5): do scores find the
cues?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..types import Map, Trace
from .arguments import Array, Marks, Scores, marks, marks_at, one_of, sklearn_metrics, vector
from .registry import metric

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
CUES = "cues"  # a kind of metric
SIGNS = ("absolute", "positive")


def shares(scores: Scores, *, signs: str = "absolute") -> Array:
    """Scores made non-negative and summing to 1, [pos]: how much a token counted, for or against ("absolute"), or what
    spoke for the target alone ("positive"). NaN where nothing is left."""
    values = vector(scores)
    values = np.abs(values) if one_of("signs", signs, SIGNS) == "absolute" else np.clip(values, 0, None)
    total = values.sum()
    return values / total if total > 0 else np.full_like(values, np.nan)


@metric(paper=PAPER, needs=("scores", "cues"), better="higher", kind=CUES)
def cue_dot(scores: Scores, cues: Any, *, signs: str = "absolute") -> float:
    """S . xi: the share of the scores that lies on cues. NaN where all scores are 0."""
    values = shares(scores, signs=signs)
    return float(values[marks(cues, len(values), "cues")].sum())


@metric(paper=PAPER, needs=("scores", "cues"), better="higher", kind=CUES)
def cue_average_precision(scores: Scores, cues: Any, *, signs: str = "absolute") -> float:
    """Average precision of the scores as a search for cues, as scikit-learn counts it: sum_k (R_k - R_{k-1}) P_k.

    NaN where there is no cue or all scores are 0.
    """
    values = shares(scores, signs=signs)
    marked = marks(cues, len(values), "cues")
    if not marked.any() or np.isnan(values).any():
        return np.nan
    return float(sklearn_metrics().average_precision_score(marked, values))


@metric(paper=PAPER, needs=("scores", "cues"), better="lower", kind=CUES)
def probes_needed(scores: Scores, cues: Any, *, until: str = "first", signs: str = "absolute") -> float:
    """How many tokens that are no cue one must look at, the highest score first, until the "first" cue, or "all", are found.

    0 is best. Tied tokens come in any order: the expected number. Of g tied tokens, c of them cues, g - c are no cue,
    and (g - c) / (c + 1) of these come before the first cue, c times as many before the last. NaN where there is no cue
    or all scores are 0."""
    one_of("until", until, ("first", "all"))
    values = shares(scores, signs=signs)
    marked = marks(cues, len(values), "cues")
    if not marked.any() or np.isnan(values).any():
        return np.nan
    level = values[marked].max() if until == "first" else values[marked].min()
    tied = values == level
    g, c = int(tied.sum()), int((tied & marked).sum())
    above = int(((values > level) & ~marked).sum())
    return above + (1 if until == "first" else c) * (g - c) / (c + 1)


def layer_alignment(
    scores: Map, cues: Any, *, query: int | str, measure: str = "cue_dot", **options: Any
) -> tuple[float, ...]:
    """[layer]: an alignment of the row of `query` (the [MASK]) with the cues, in every layer of a map."""
    measures = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
    align: Callable[..., float] = measures[one_of("measure", measure, measures)]
    return tuple(align(scores.readout(query, layer=layer), cues, **options) for layer in range(len(scores.scores)))


def first_pieces(trace: Trace, cues: Any) -> Marks:
    """[pos]: of every word with a cue, the first token alone, as in Value Zeroing's script; ours counts all of its
    tokens."""
    if trace.words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    marked = marks(cues, len(trace), "cues")
    return marks_at([positions[0] for _, positions in trace.words if marked[list(positions)].any()], len(trace))
