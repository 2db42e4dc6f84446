"""LIME: a ridge regression on texts near the one that is explained, by the library `lime`.

min_w sum_k pi_k (f(S_k) - b - sum_{j in S_k} w_j)^2 + |w|^2,    s_j = w_j
pi_k = exp(-(100 d_k)^2 / 25^2)^(1/2),  d_k: cosine distance of S_k to the whole text;  S_k keeps a random number of random units
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError
from ..base.optional import optional
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._coalitions import game_of
from ._points import refuse_count

PAPER = "Ribeiro et al. 2016, Why Should I Trust You? Explaining the Predictions of Any Classifier"
GONE = "-"


@attribution(paper=PAPER, cost="count", score="probability", peer=True, check=(refuse_count, "count"))
def lime(
    question: Question,
    *,
    unit: str = "token",
    count: int = 1000,
    replacement: str | int | None = "delete",
    kernel_width: float = 25.0,
    seed: int = 0,
) -> tuple[Tensor, dict[str, Any]]:
    """The weights of a ridge regression (the library lime) that predicts the target from which units are kept, near the text.

    `count` texts keep a random number of units ("token", "word", "sentence"); the others are deleted, or replaced by
    "pad", "mask", "unk" or a token's id. A text counts by its cosine distance to the whole one, through a kernel of
    width `kernel_width`. No unit is left out of the regression. Explains the probability by default, as the paper does.
    Special tokens and the position that predicts have the score 0."""
    refuse_count(count=count)
    if count < 2:
        raise InputError(f"count is a number of texts, at least 2, not {count}.")
    if not 0 < kernel_width < np.inf:
        raise InputError(f"kernel_width is a number above 0, such as 25, not {kernel_width}.")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is a number from 0 to 4294967295, not {seed}.")
    explainers = optional("lime.lime_text", "lime", "peers", what="the method lime", verb="needs")
    game = game_of(question, unit, replacement, count)
    options = {"kernel_width": kernel_width, "feature_selection": "none", "random_state": seed}
    explainer = explainers.LimeTextExplainer(bow=False, mask_string=GONE, split_expression=str.split, **options)
    names = [str(number) for number in range(len(game.units))]

    # lime changes texts: it gets one whose words are the numbers of our units, the model the units that are left
    def values(texts: Sequence[str]) -> NDArray[np.float64]:
        return game.values(np.array([[word != GONE for word in text.split()] for text in texts]))[:, None]

    made = explainer.explain_instance(" ".join(names), values, labels=(0,), num_features=len(names), num_samples=count)
    weights = dict(made.local_exp[0])
    facts = {"replacement": game.replacement, "fit": float(made.score), "intercept": float(made.intercept[0])}
    return game.scores([weights[number] for number in range(len(names))]), {**facts, "passes": game.passes}
