"""Discretised Integrated Gradients: the path from the baseline to the text goes by the embeddings of other words.

s_j = sum_t (p_{t+1} - p_t)_j . d target / d x_j (p_t),     p_0 = b, ..., p_{steps + 1} = x, each token on a path of its own
sum_j s_j = target(x) - target(b) where the steps are small; every dimension goes from b to x without turning back
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._baselines import blank_token
from ._points import Ends, chunk_of, ends_of, gradients_at, refuse_count, shares_and_facts, value_at, wide_dtype
from ._word_paths import SEARCH, Vocabulary, WordPaths, halved, refuse_strategy

PAPER = "Sanyal and Ren 2021, Discretized Integrated Gradients"
RULES = ("riemann_left", "riemann_right", "trapezoid")
MOST_HALVINGS = 10


def refuse_path(strategy: str, rule: str, factor: int, **counts: int) -> None:
    """Refuse options of a path that cannot be, before the model is run."""
    refuse_strategy(strategy)
    refuse_count(**counts)
    if rule not in RULES:
        raise InputError(f"unknown rule {rule!r}. {nearest(str(rule), RULES)}")
    if not 0 <= factor <= MOST_HALVINGS:
        raise InputError(f"factor is how often every step is halved, 0 to {MOST_HALVINGS}, not {factor}.")


PATH = (refuse_path, "strategy", "rule", "factor", "steps", "neighbours", "chunk")


def path_of(question: Question, ends: Ends, paths: WordPaths, factor: int) -> Tensor:
    """[t pos d]: the text's embeddings from the baseline to the text. Special tokens stay as they are."""
    free = [j for j, special in enumerate(question.trace.special) if not special]
    x, b = (end[0].to(wide_dtype(end)) for end in (ends.x, ends.b))
    path = x.expand(paths.steps + 2, -1, -1).clone()
    if free:
        path[:, free] = paths.points(x[free], b[free], question.inputs["input_ids"][0, free])
    for _ in range(factor):
        path = halved(path)
    return path.to(ends.x.dtype)


def summed(question: Question, ends: Ends, path: Tensor, rule: str, chunk: int) -> tuple[Tensor, int]:
    """[pos]: the gradients along a path times its steps; and at how many points one was taken.

    A point counts with the step behind it, the step before it, or half of both.
    """
    wide = path.to(wide_dtype(path))
    steps, nothing = wide[1:] - wide[:-1], torch.zeros_like(wide[:1])
    behind, before = torch.cat([steps, nothing]), torch.cat([nothing, steps])
    widths = {"riemann_left": behind, "riemann_right": before, "trapezoid": (behind + before) / 2}[rule]
    used = widths.flatten(1).any(-1)
    taken, size = int(used.sum()), chunk_of(question, chunk)
    total, done = torch.zeros_like(widths[0, :, 0]), 0
    gradients = gradients_at(question, ends.place, iter(path[used].split(size)))
    for gradient, width in zip(gradients, widths[used].split(size), strict=True):
        total += (gradient * width).sum((0, -1))
        done += len(width)
        tell(done, taken, "points", since=SEARCH)
    return total, taken


@attribution(paper=PAPER, cost="search + steps x 2^factor x 3", peer=True, check=PATH)
def discretized_integrated_gradients(
    question: Question,
    *,
    strategy: str = "greedy",
    steps: int = 30,
    neighbours: int = 500,
    factor: int = 0,
    rule: str = "riemann_left",
    baseline: str | int | None = None,
    chunk: int = 16,
) -> tuple[Tensor, dict[str, Any]]:
    """Integrated Gradients of the word embeddings, on a path that goes from the baseline by other words to each word of the text.

    From a word the path takes `steps` anchors, each of the `neighbours` nearest words of the last one, and ends at the
    baseline (as for integrated_gradients). An anchor is moved so that no dimension turns back: where it does not lie
    between the last point and the baseline, by 1 / steps of the straight line. `greedy` takes the word that has to be
    moved least, `maxcount` the one with most dimensions that need not move. Gradients are summed as in the paper, each
    times the step behind it (the left Riemann sum, from the baseline on): with 30 large and unequal steps the scores
    often miss their sum, and a warning says by how much. rule=trapezoid takes the mean of the gradients at both ends;
    `factor` halves every step so often, as the paper's f. The authors' code then divides the scores by their length.
    Each anchor is searched among all words, which takes most of the time where the vocabulary is large. Special tokens
    stay as they are: their score is 0."""
    refuse_path(strategy, rule, factor, steps=steps, neighbours=neighbours, chunk=chunk)
    vocabulary = Vocabulary(question.model)
    vocabulary.refuse_none()
    ends = ends_of(question, "word", baseline)
    paths = WordPaths(vocabulary, strategy, steps, neighbours, blank_token(question, baseline)[0])
    sums, taken = summed(question, ends, path_of(question, ends, paths, factor), rule, chunk)
    difference = value_at(question, ends.place, ends.x) - value_at(question, ends.place, ends.b)
    return shares_and_facts(sums, ends, taken, difference)
