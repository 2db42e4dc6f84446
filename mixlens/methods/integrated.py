"""Integrated Gradients (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..attributing import Question, attribution
from ..baselines import baseline_run
from ..errors import InputError, nearest
from .gradients import once_embedded, shared

PAPER = "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks"


def nodes(steps: int, rule: str) -> tuple[Tensor, Tensor]:
    """Where on the line from 0 to 1 gradients are taken, and their weights."""
    if rule == "gauss_legendre":
        points, weights = np.polynomial.legendre.leggauss(steps)
        return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)
    if rule == "riemann_right":
        return torch.arange(1, steps + 1, dtype=torch.float64) / steps, torch.full((steps,), 1 / steps, dtype=torch.float64)
    raise InputError(f"unknown rule {rule!r}. {nearest(str(rule), ['gauss_legendre', 'riemann_right'])}")


@attribution(paper=PAPER, variants=("paper", "released"), cost="steps x 3", layers=True)
def integrated_gradients(
    question: Question,
    *,
    variant: str = "paper",
    embedding: str = "word",
    baseline: str | int | None = None,
    steps: int = 50,
    rule: str = "gauss_legendre",
    chunk: int = 16,
) -> tuple[Tensor, dict[str, Any]]:
    """(x_j - b_j) . integral over t of d target / d x_j at b + t (x - b): shares that add up to target(x) - target(b).

    `info["completeness_gap"]` says how far they are from adding up; Gauss-Legendre nodes leave almost nothing.
    `released` (ALTI's code): of the probability, embedded twice (see `grad_l2`), absolute, divided by the sum.
    """
    if variant == "released":
        question = Question(question.trace, replace(question.target, score="probability"), question.layer, question.query)
        embedding = "word"
    for name, count in (("steps", steps), ("chunk", chunk)):
        if count < 1:
            raise InputError(f"{name} must be at least 1, not {count}.")
    question.place(question.run, embedding)  # refuses an unknown name
    place: str | int = embedding if question.layer is None else question.layer
    place = 0 if place == "after" or (place == "sum" and question.model.embedding_norm is None) else place
    below, used = baseline_run(question, baseline)
    take = once_embedded if variant == "released" else lambda asked, run: asked.place(run, embedding).detach()
    x, b = (take(question, run) for run in (question.run, below))
    if question.layer == len(question.trace.layers):
        raise InputError("integrated gradients need a layer behind them: layer must be less than the number of layers.")
    total = torch.zeros_like(x[0])
    chunk = question.model.batch_limit or chunk
    points, weights = (tensor.to(x) for tensor in nodes(steps, rule))
    for at, weight in zip(points.split(chunk), weights.split(chunk), strict=True):
        inputs = {
            key: value.expand(len(at), -1) if isinstance(value, Tensor) else value for key, value in question.inputs.items()
        }
        between = (b + at[:, None, None] * (x - b)).requires_grad_()
        run = question.model.run_attached(inputs, place=place, value=between)
        (gradient,) = torch.autograd.grad(question.target.of(run.output).sum(), [between])
        total += (gradient * weight[:, None, None]).sum(0)
    shares = (total * (x - b)[0]).sum(-1)
    ends = [question.model.run_attached(question.inputs, place=place, value=end).output for end in (x, b)]
    difference = (question.target.of(ends[0]) - question.target.of(ends[1]))[0].detach()
    return shared(shares.abs()) if variant == "released" else shares, {
        "baseline": used,
        "difference": float(difference),
        "completeness_gap": abs(float(shares.sum() - difference)),
    }
