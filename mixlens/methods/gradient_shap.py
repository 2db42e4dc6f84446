"""GradientSHAP: Shapley values of a linear model, by gradients at random points between baselines and the input.

s_j = mean_k (x_k - b_k)_j . d target / d x_j (b_k + a_k (x_k - b_k)),   a_k ~ U(0, 1),  x_k = x + N(0, sigma^2),  b_k a baseline
sum_j s_j = target(x) - mean_b target(b) on average over draws, without noise
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._baselines import BASELINES, baseline_run, tokens_of
from ._points import as_scores, chunk_of, place_of, refuse_draws, refuse_last_layer, run_at, value_at, wide_dtype
from .smooth_grad import noisy

PAPER = "Lundberg and Lee 2017, A Unified Approach to Interpreting Model Predictions"
EVERY = "every"


def names_of(question: Question, baseline: str | int | None) -> list[str | int | None]:
    """The baselines that are drawn from: the one that is named, or every one that the model has."""
    if baseline != EVERY:
        return [baseline]
    tokens = tokens_of(question)
    return [name for name in BASELINES if name not in tokens or tokens[name] is not None]


@attribution(
    paper=PAPER, cost="count x 3", layers=True, peer=True, check=(refuse_draws, "noise", "seed", "count", "chunk")
)
def gradient_shap(
    question: Question,
    *,
    embedding: str = "word",
    baseline: str | int | None = None,
    count: int = 50,
    noise: float = 0.0,
    seed: int = 0,
    chunk: int = 16,
) -> tuple[Tensor, dict[str, Any]]:
    """(x - b) . d target / d x at `count` random points between a baseline b and the input x, averaged.

    `baseline` as for integrated_gradients, of which this is the estimate by random points; "every": one of all
    baselines that the model has, drawn for each point. `noise` as for smooth_grad. The scores add up to target(x) -
    target(b) on average alone: `info["standard_error"]` says how far off their sum may be."""
    refuse_draws(noise, seed, count=count, chunk=chunk)
    refuse_last_layer(question, "gradients of SHAP")
    place, generator = place_of(question, embedding), np.random.default_rng(seed)
    x = question.place(question.run, embedding).detach()
    runs = [baseline_run(question, name) for name in names_of(question, baseline)]
    baselines = torch.cat([question.place(run, embedding).detach() for run, _ in runs])
    # Drawn before all noise, so that the points are the same however many of them one pass holds.
    chosen = torch.from_numpy(generator.integers(len(baselines), size=count)).to(x.device)
    ways = torch.from_numpy(generator.random(count)).to(x.device, wide_dtype(x))
    found: list[Tensor] = []
    chunk = chunk_of(question, chunk)
    for noised, which, way in zip(
        noisy(x, noise, count, chunk, generator), chosen.split(chunk), ways.split(chunk), strict=True
    ):
        b = baselines[which].to(way)
        change = noised.to(way) - b
        between = (b + way[:, None, None] * change).to(x.dtype).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(run_at(question, place, between)[1].sum(), [between])
        found.append((gradient.to(way) * change).sum(-1))
    shares = torch.cat(found)
    below = [value_at(question, place, b[None]) for b in baselines]
    return as_scores(shares.mean(0), x), {
        "baseline": " ".join(name for _, name in runs),
        "difference": value_at(question, place, x) - sum(below) / len(below),
        "standard_error": float(shares.sum(-1).std() / count**0.5) if count > 1 else None,
    }
