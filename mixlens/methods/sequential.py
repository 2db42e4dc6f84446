"""Sequential Integrated Gradients: one line for each token, on which that token alone changes.

s_j = (x_j - b_j) . integral_0^1 d target / d x_j (x with b_j + t (x_j - b_j) at j) dt
    = target(x) - target(x with b_j at j)                            by the fundamental theorem of calculus, for every token
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..base.steps import listening, tell
from ..scoring.completeness import CLOSED, completeness
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._points import Ends, as_scores, ends_of
from .integrated import LINE, PANEL, Line, refuse_options

PAPER = "Enguehard 2023, Sequential Integrated Gradients"


def lines_of(question: Question, ends: Ends, rule: str, chunk: int) -> dict[int, Line]:
    """The line of each token that is not special, by its position: from the text with the token's baseline to the
    text."""
    lines: dict[int, Line] = {}
    for j in (j for j, special in enumerate(question.trace.special) if not special):
        without = ends.x.clone()
        without[:, j] = ends.b[:, j]
        lines[j] = Line(question, ends.place, (ends.x, without), rule, chunk)
    return lines


@attribution(paper=PAPER, cost="n x steps x 3", peer=True, check=LINE)
def sequential_integrated_gradients(
    question: Question,
    *,
    embedding: str = "word",
    baseline: str | int | None = None,
    steps: int | None = None,
    rule: str = "gauss_legendre",
    chunk: int = 16,
    tolerance: float = CLOSED,
    most_steps: int = 2000,
) -> tuple[Tensor, dict[str, Any]]:
    """(x_j - b_j) . integral of d target / d x_j while token j alone goes from its baseline to its embedding.

    The baseline and the steps are as for integrated_gradients, for each token; `tolerance` is a share of the largest
    score. A score is target(x) - target(x with b_j), so with enough steps the scores are those of blank_out with the
    same replacement, at many times its cost; the paper then divides them by their length. Special tokens stay as they
    are: their score is 0."""
    refuse_options(rule, steps, chunk, tolerance, most_steps)
    ends = ends_of(question, embedding, baseline)
    lines = lines_of(question, ends, rule, chunk)
    changes = {j: line.value(1.0) - line.value(0.0) for j, line in lines.items()}
    within = tolerance * max(map(abs, changes.values()), default=0.0)
    scores = torch.zeros(len(question.trace), dtype=torch.float64)
    for done, (j, line) in enumerate(lines.items(), 1):
        with listening(lambda _: None):  # the points of one line alone are no news
            if steps is None:
                change = abs(changes[j])
                shares = line.whole(within / change if change else 1.0, most_steps, PANEL)
            else:
                shares = line.piece(0.0, 1.0, steps).shares
            scores[j] = float(shares.sum())
        tell(done, len(lines), "tokens")
    shares = as_scores(scores, ends.x)
    taken = sum(line.steps for line in lines.values())
    return shares, {
        "baseline": ends.baseline,
        "steps": taken,
        "completeness": completeness(shares, sum(changes.values())),
    }
