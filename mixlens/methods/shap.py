"""SHAP: Shapley values of the game v(S) = target where the units S alone are kept, by the library `shap`.

partition   Owen values: Shapley values in which only neighbouring groups of a tree over the text join as one
exact       s_j = sum_S |S|! (n - |S| - 1)! / n! (v(S + j) - v(S)),  S without j

Both are efficient: sum_j s_j = v(all) - v(none).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.optional import optional
from ..base.steps import tell_preparing
from ..scoring.completeness import completeness
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._coalitions import Game, game_of
from ._points import refuse_count

PAPER = "Lundberg and Lee 2017, A Unified Approach to Interpreting Model Predictions"
ALGORITHMS = ("partition", "exact")
MOST_PLAYERS = 16  # of exact values, which take 2^n texts
TOGETHER = 64  # texts that shap asks for at a time
GONE = 0  # in place of a unit's number, which is 1 or more


@attribution(paper=PAPER, cost="evaluations", peer=True, check=(refuse_count, "evaluations"))
def shap(
    question: Question,
    *,
    algorithm: str = "partition",
    unit: str = "token",
    evaluations: int = 500,
    replacement: str | int | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Shapley values of the units (the library shap): what each adds to the target, averaged over what else is kept.

    "partition" (shap.PartitionExplainer): over shap's tree of the text, with about `evaluations` texts at most; where
    they are used up, the units of a group share its value. "exact" (shap.ExactExplainer): all subsets of up to 16
    units. A unit is a "token", a "word" or a "sentence"; one that is left out is replaced by the mask token, where the
    model has one, else deleted (`replacement`: "mask", "pad", "unk", "delete" or a token's id). The scores add up to
    target(text) - target(nothing kept)."""
    refuse_count(evaluations=evaluations)
    if algorithm not in ALGORITHMS:
        raise InputError(f"unknown algorithm {algorithm!r}. {nearest(algorithm, ALGORITHMS)}")
    tell_preparing("shap")  # importing it takes seconds, and numba compiles it when it first runs
    library = _library()
    tell_preparing("shap")  # whoever listens may stop it here
    game = game_of(question, unit, replacement, evaluations if algorithm == "partition" else 0)
    if algorithm == "exact" and len(game.units) > MOST_PLAYERS:
        raise InputError(
            f"exact values of {len(game.units)} units take 2^{len(game.units)} texts; at most {MOST_PLAYERS} units are "
            "taken. Use algorithm='partition', or unit='word' or 'sentence'."
        )
    state = np.random.get_state()  # shap draws from numpy's own random state, which is the user's
    try:
        scores = game.scores(_values(library, game, algorithm, evaluations))
    finally:
        np.random.set_state(state)
    expected = game.value(True) - game.value(False)
    return scores, {
        "replacement": game.replacement,
        "nothing_kept": game.value(False),
        "passes": game.passes,
        "completeness": completeness(scores, expected),
    }


def _library() -> Any:
    """shap, which sets matplotlib up in a way that matplotlib warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optional("shap", "shap", "peers", what="the method shap", verb="needs")


def _values(library: Any, game: Game, algorithm: str, evaluations: int) -> NDArray[np.float64]:
    """[unit], by shap's explainer; of one unit alone all there is."""
    if len(game.units) == 1:
        return np.array([game.value(True) - game.value(False)])
    text = _Units(game)
    masker = library.maskers.Text(text, mask_token=GONE, output_type="token_ids")
    if algorithm == "exact":
        masker.clustering = None  # Shapley values, not those of a tree
        explainer, most = library.ExactExplainer, 2 ** len(game.units)
    else:
        explainer, most = library.PartitionExplainer, max(evaluations, 3)
    made = explainer(text.values, masker)([text.text], max_evals=most, batch_size=TOGETHER, silent=True)
    values: NDArray[np.float64] = np.asarray(made.values[0], dtype=np.float64)
    return values


class _Units:
    """A tokenizer for shap, whose tokens are the units of a game: the numbers 1 to n."""

    def __init__(self, game: Game):
        self.game = game
        self.text, self.offsets = _written(game)

    def __call__(self, text: str, return_offsets_mapping: bool = True) -> dict[str, Any]:
        """The units of the text; of any other text nothing, which tells shap that no token is added to a text."""
        whole = text == self.text
        numbers = list(range(1, len(self.offsets) + 1)) if whole else []
        return {"input_ids": numbers, "offset_mapping": self.offsets if whole else []}

    def values(self, rows: Any) -> NDArray[np.float64]:
        """[row]: the target's number where the units of a row that are not GONE are kept."""
        return self.game.values(np.stack([np.asarray(row) != GONE for row in rows]))


def _written(game: Game) -> tuple[str, list[tuple[int, int]]]:
    """The units as one text, a space between words, and where each of them is: shap builds its tree of that."""
    trace, text, offsets = game.question.trace, "", []
    starts = range(len(trace)) if trace.words is None else {positions[0] for _, positions in trace.words}
    for positions in game.units:
        text += " " if text and positions[0] in starts else ""
        # without what tokenizers write for "inside of a word" and for a space
        letters = [trace.tokens[i].removeprefix("##").replace("Ġ", "").replace("▁", "").strip() for i in positions]
        piece = "".join(letters) or "?"
        offsets.append((len(text), len(text) + len(piece)))
        text += piece
    return text, offsets
