"""Cue alignment (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, section 5): do scores find the cues?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InputError
from ..types import Map, Trace
from .arguments import Array, Marks, Scores, marks, marks_at, one_of, sklearn_metrics, vector
from .registry import metric

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
SIGNS = ("absolute", "positive")


def shares(scores: Scores, *, signs: str = "absolute") -> Array:
    """Scores made non-negative and summing to 1, [pos]: how much a token counted, for or against ("absolute"), or what
    spoke for the target alone ("positive"). NaN where nothing is left."""
    made = vector(scores)
    made = np.abs(made) if one_of("signs", signs, SIGNS) == "absolute" else np.clip(made, 0, None)
    total = made.sum()
    return made / total if total > 0 else np.full_like(made, np.nan)


@metric(paper=PAPER, needs=("scores", "cues"), better="higher")
def cue_dot(scores: Scores, cues: Any, *, signs: str = "absolute") -> float:
    """S . xi: the share of the scores that lies on cues. NaN where all scores are 0."""
    made = shares(scores, signs=signs)
    return float(made[marks(cues, len(made), "cues")].sum())


@metric(paper=PAPER, needs=("scores", "cues"), better="higher")
def cue_average_precision(scores: Scores, cues: Any, *, signs: str = "absolute") -> float:
    """Average precision of the scores as a search for cues, as scikit-learn counts it: sum_k (R_k - R_{k-1}) P_k.

    NaN where there is no cue or all scores are 0.
    """
    made = shares(scores, signs=signs)
    wanted = marks(cues, len(made), "cues")
    if not wanted.any() or np.isnan(made).any():
        return np.nan
    return float(sklearn_metrics().average_precision_score(wanted, made))


@metric(paper=PAPER, needs=("scores", "cues"), better="lower")
def probes_needed(scores: Scores, cues: Any, *, until: str = "first", signs: str = "absolute") -> float:
    """How many tokens that are no cue one must look at, the highest score first, until the "first" cue, or "all", are found.

    0 is best. Tied tokens come in any order: the expected number. Of g tied tokens, c of them cues, g - c are no cue, and
    (g - c) / (c + 1) of these come before the first cue, c times as many before the last. NaN where there is no cue or all
    scores are 0.
    """
    one_of("until", until, ("first", "all"))
    made = shares(scores, signs=signs)
    wanted = marks(cues, len(made), "cues")
    if not wanted.any() or np.isnan(made).any():
        return np.nan
    level = made[wanted].max() if until == "first" else made[wanted].min()
    tied = made == level
    g, c = int(tied.sum()), int((tied & wanted).sum())
    above = int(((made > level) & ~wanted).sum())
    return above + (1 if until == "first" else c) * (g - c) / (c + 1)


def layer_alignment(scores: Map, cues: Any, *, query: int | str, measure: str = "cue_dot", **options: Any) -> tuple[float, ...]:
    """[layer]: an alignment of the row of `query` (the [MASK]) with the cues, in every layer of a map."""
    measures = {"cue_dot": cue_dot, "cue_average_precision": cue_average_precision, "probes_needed": probes_needed}
    align: Callable[..., float] = measures[one_of("measure", measure, measures)]
    return tuple(align(scores.readout(query, layer=layer), cues, **options) for layer in range(len(scores.scores)))


def first_pieces(trace: Trace, cues: Any) -> Marks:
    """[pos]: of every word with a cue, the first token alone, as in Value Zeroing's script; ours counts all of its tokens."""
    if trace.words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    wanted = marks(cues, len(trace), "cues")
    return marks_at([places[0] for _, places in trace.words if wanted[list(places)].any()], len(trace))
