"""ContextCite: a sparse linear model of what the prediction does where parts of the text are left out.

f(S) = log p / (1 - p) of the target where the tokens S alone are kept;  f(S) ~ b + sum_{j in S} w_j   (LASSO);  s_j = w_j   [pos]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError
from ..base.optional import optional
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ..scoring.removal import Subsets, random_subsets

PAPER = "Cohen-Wang et al. 2024, ContextCite: Attributing Model Generation to Context"
TOLERANCE = 1e-10  # of LASSO's dual gap: the weights are a function of the data, and not of where the search stops
LEARNED = 0  # subsets of this stream; the metric `lds` judges by stream 1


@attribution(paper=PAPER, cost="64", score="log_probability")
def context_cite(
    question: Question,
    *,
    unit: str = "token",
    count: int = 64,
    penalty: float = 0.01,
    replacement: str | int = "delete",
    seed: int = 0,
) -> tuple[Tensor, dict[str, Any]]:
    """The weights of a sparse linear model (LASSO) that predicts the log-odds of the target from which tokens are kept.

    `count` random subsets keep half of the units ("token", "word", "sentence"); the others are deleted, or replaced by
    "pad", "mask", "unk" or a token's id. `penalty` is that of LASSO on inputs of mean 0 and variance 1. The tokens of a
    unit share its weight. Special tokens and the position that predicts are never left out: their score is 0. Needs
    scikit-learn."""
    if count < 2:
        raise InputError(f"count is a number of subsets, at least 2, not {count!r}.")
    if not 0 <= penalty < np.inf:
        raise InputError(f"penalty is that of LASSO, 0 or more, not {penalty!r}.")
    if seed < 0:
        raise InputError(f"seed is a number, 0 or more, not {seed!r}.")
    drawn: dict[str, Any] = {"unit": unit, "count": count, "seed": (seed, LEARNED), "replacement": replacement}
    question.answer()
    subsets = random_subsets(question.trace, question.target, **drawn)
    weights, fit = sparse_weights(subsets, penalty)
    scores = torch.zeros(len(question.trace), dtype=torch.float64)
    for positions, weight in zip(subsets.units, weights, strict=True):
        scores[list(positions)] = weight / len(positions)
    return scores.to(question.model.dtype), {"fit": fit}


def sparse_weights(subsets: Subsets, penalty: float) -> tuple[NDArray[np.float64], float]:
    """[unit]: the change of the log-odds where a unit is kept, by LASSO; and the share of the variance that this
    explains."""
    linear = optional("sklearn.linear_model", "scikit-learn", "judge", what="context_cite", verb="needs")
    kept = subsets.kept.astype(np.float64)
    if np.ptp(subsets.log_odds) == 0:  # nothing to explain
        return np.zeros(kept.shape[1]), 0.0
    spread = np.where(kept.std(0) > 0, kept.std(0), 1)  # a unit that is always kept, or never, has the weight 0
    standard = (kept - kept.mean(0)) / spread
    # LASSO goes round the units in their order; without a seed it draws from numpy's own state, which is the user's
    model = linear.Lasso(alpha=penalty, tol=TOLERANCE, max_iter=100_000, random_state=0).fit(standard, subsets.log_odds)
    weights: NDArray[np.float64] = model.coef_ / spread
    return weights, float(model.score(standard, subsets.log_odds))
