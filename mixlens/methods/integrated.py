"""Integrated Gradients (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..completeness import CLOSED, completeness
from ..errors import InputError, nearest
from ..questions import Question
from ._attribution import attribution
from ._baselines import baseline_run
from ._quadrature import gauss_legendre, integral_up_to
from .gradients import once_embedded, shared

PAPER = "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks"
RULES = ("gauss_legendre", "riemann_right")
STEPS = 50  # that steps=None begins with
PANEL = 12  # nodes of one piece of the line, where 50 on the whole of it do not suffice
MOST_STEPS = 1_000_000
TOKENS = 4096  # that one pass on a CPU holds at most, whatever `chunk` says; sixteen times as many elsewhere


def nodes(steps: int, rule: str) -> tuple[Tensor, Tensor]:
    """Where on the line from 0 to 1 gradients are taken, and their weights."""
    if rule == "gauss_legendre":
        points, weights = gauss_legendre(steps)
        return torch.from_numpy(points.copy()), torch.from_numpy(weights.copy())
    if rule == "riemann_right":
        return torch.arange(1, steps + 1, dtype=torch.float64) / steps, torch.full((steps,), 1 / steps, dtype=torch.float64)
    raise InputError(f"unknown rule {rule!r}. {nearest(str(rule), RULES)}")


@dataclass(frozen=True)
class Piece:
    """The integral over one piece of the line: what it adds to every token, and how far it is from the target's change there."""

    begin: float
    end: float
    shares: Tensor  # [pos]
    gap: float


class Line:
    """The straight line from the baseline b to the input x, and the target's number and gradient on it."""

    def __init__(self, question: Question, place: str | int, ends: tuple[Tensor, Tensor], rule: str, chunk: int):
        self.question, self.place, self.rule, self.used = question, place, rule, 0
        self.x, self.b = ends
        wide = torch.float32 if self.x.device.type == "mps" else torch.float64  # to add many gradients up in
        self.change = (self.x - self.b).to(wide)
        room = TOKENS if self.x.device.type == "cpu" else 16 * TOKENS
        self.chunk = question.model.batch_limit or max(1, min(chunk, room // len(question.trace)))
        self.values: dict[float, float] = {}

    def at(self, points: Tensor) -> Tensor:
        """b + t (x - b) for every t, [t pos d]."""
        between = self.b.to(self.change.dtype) + points.to(self.change)[:, None, None] * self.change
        return between.to(self.x.dtype)

    def passed(self, between: Tensor) -> Tensor:
        """The target's number for each, [t]."""
        question, some = self.question, len(between)
        inputs = {key: value.expand(some, -1) if isinstance(value, Tensor) else value for key, value in question.inputs.items()}
        return question.target.of(question.model.run_attached(inputs, place=self.place, value=between).output)

    def value(self, point: float) -> float:
        """The target's number at one point."""
        if point not in self.values:
            end = {0.0: self.b, 1.0: self.x}.get(point)
            between = self.at(torch.tensor([point], dtype=torch.float64)) if end is None else end
            self.values[point] = float(self.passed(between)[0].detach())
        return self.values[point]

    def piece(self, begin: float, end: float, steps: int) -> Piece:
        """The integral from one point to another."""
        points, weights = nodes(steps, self.rule)
        total, slopes, values = torch.zeros_like(self.change[0]), [], []
        for at, weight in zip(points.split(self.chunk), weights.split(self.chunk), strict=True):
            between = self.at(begin + (end - begin) * at).requires_grad_()
            value = self.passed(between)
            (gradient,) = torch.autograd.grad(value.sum(), [between])
            gradient = gradient.to(self.change)
            slopes.append((gradient * self.change).sum((-1, -2)).cpu().double())
            values.append(value.detach().cpu().double())
            total += (gradient * (weight.to(self.change) * (end - begin))[:, None, None]).sum(0)
        self.used += steps
        shares = (total * self.change[0]).sum(-1)
        gap = float(shares.sum()) - (self.value(end) - self.value(begin))
        if self.rule == "gauss_legendre" and steps <= STEPS:
            # Two errors may cancel at the end of the line. At the nodes, where the target's number is known as well, they show.
            found = integral_up_to(points.numpy(), weights.numpy(), torch.cat(slopes).numpy()) * (end - begin)
            gap = max(abs(gap), float(np.abs(found - (torch.cat(values).numpy() - self.value(begin))).max()))
        return Piece(begin, end, shares, abs(gap))

    def whole(self, tolerance: float, most: int) -> Tensor:
        """[pos], over the whole line, with as many steps as it takes.

        Where the nodes on the whole line do not suffice it is halved, and those of its pieces are halved again whose sums are
        furthest from the target's change on them, until all pieces together are within `tolerance` of the whole change. A
        piece that is as near as the target's own rounding is left alone.
        """
        pieces = [self.piece(0.0, 1.0, min(STEPS, most))]
        change = abs(self.value(1.0) - self.value(0.0))
        eps = torch.finfo(self.x.dtype).eps
        while sum(piece.gap for piece in pieces) > tolerance * change:
            rounding = 4 * eps * max(abs(value) for value in self.values.values())
            rough = max(pieces, key=lambda piece: piece.gap)
            steps = max(2, min(PANEL, most))
            if rough.gap <= rounding or self.used + 2 * steps > most or rough.end - rough.begin < eps * rough.begin:
                break
            middle = (rough.begin + rough.end) / 2
            pieces.remove(rough)
            pieces += [self.piece(rough.begin, middle, steps), self.piece(middle, rough.end, steps)]
        return torch.stack([piece.shares for piece in sorted(pieces, key=lambda piece: piece.begin)]).sum(0)


@attribution(paper=PAPER, variants=("paper", "released"), cost="steps x 3", layers=True)
def integrated_gradients(
    question: Question,
    *,
    variant: str = "paper",
    embedding: str = "word",
    baseline: str | int | None = None,
    steps: int | None = None,
    rule: str = "gauss_legendre",
    chunk: int = 16,
    tolerance: float = CLOSED,
    most_steps: int = 2000,
) -> tuple[Tensor, dict[str, Any]]:
    """(x_j - b_j) . integral over t of d target / d x_j at b + t (x - b): shares that add up to target(x) - target(b).

    By default 50 Gauss-Legendre nodes, and more where the shares do not add up to within 1 % (`tolerance`) everywhere on the
    line: pieces of it that do not are halved, up to `most_steps` nodes in all. From a baseline of zeros through an RMS norm,
    as in Llama, the target changes abruptly near the baseline, and some 200 are needed. `steps=` takes exactly that many on
    the whole line. `info["steps"]` says how many were taken, `info["completeness"]` how nearly the shares add up.
    `released` (ALTI's code): of the probability, embedded twice (see `grad_l2`), absolute, divided by the sum; 50 steps.
    """
    if variant == "released":
        question = Question(question.trace, replace(question.target, score="probability"), question.layer, question.query)
        embedding, steps = "word", STEPS if steps is None else steps
    for name, count in (("steps", 1 if steps is None else steps), ("chunk", chunk), ("most_steps", most_steps)):
        if not 1 <= count <= MOST_STEPS:
            raise InputError(f"{name} must be at least 1 and at most {MOST_STEPS:,}, not {count}.")
    if not tolerance > 0:
        raise InputError(f"tolerance must be above 0, such as {CLOSED}, not {tolerance}.")
    nodes(1, rule)  # refuses an unknown name
    question.place(question.run, embedding)  # so does this
    place: str | int = embedding if question.layer is None else question.layer
    place = 0 if place == "after" or (place == "sum" and question.model.embedding_norm is None) else place
    below, used = baseline_run(question, baseline)
    take: Callable[..., Tensor] = (
        once_embedded if variant == "released" else lambda asked, run: asked.place(run, embedding).detach()
    )
    x, b = (take(question, run) for run in (question.run, below))
    if question.layer == len(question.trace.layers):
        raise InputError("integrated gradients need a layer behind them: layer must be less than the number of layers.")
    line = Line(question, place, (x, b), rule, chunk)
    exact = line.whole(tolerance, most_steps) if steps is None else line.piece(0.0, 1.0, steps).shares
    shares = exact.to(x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32)
    difference = line.value(1.0) - line.value(0.0)
    return shared(shares.abs()) if variant == "released" else shares, {
        "baseline": used,
        "steps": line.used,
        "difference": difference,
        "completeness_gap": abs(float(shares.sum()) - difference),
        "completeness": completeness(shares, difference),
    }
