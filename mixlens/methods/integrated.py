"""Integrated Gradients (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks).

s_j = (x_j - b_j) . integral_0^1 d target / d x_j (b + t (x - b)) dt,        sum_j s_j = target(x) - target(b)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..scoring.completeness import CLOSED
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._points import MOST, chunk_of, ends_of, refuse_counts, refuse_last_layer, run_at, shares_and_facts, wide_dtype
from ._quadrature import gauss_legendre, integral_up_to
from .gradients import once_embedded, shared

PAPER = "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks"
RULES = ("gauss_legendre", "riemann_right")
STEPS = 50  # nodes on the whole line, which steps=None begins with
PANEL = 12  # nodes of one piece of the line, where 50 on the whole of it do not suffice
MOST_STEPS = MOST


def nodes(steps: int, rule: str) -> tuple[Tensor, Tensor]:
    """Where on the line from 0 to 1 gradients are taken, and their weights."""
    if rule == "gauss_legendre":
        points, weights = gauss_legendre(steps)
        return torch.from_numpy(points.copy()), torch.from_numpy(weights.copy())
    if rule == "riemann_right":
        return torch.arange(1, steps + 1, dtype=torch.float64) / steps, torch.full(
            (steps,), 1 / steps, dtype=torch.float64
        )
    raise InputError(f"unknown rule {rule!r}. {nearest(str(rule), RULES)}")


@dataclass(frozen=True)
class Piece:
    """The integral over one piece of the line: what it adds to every token, and how far its sum is from the target's
    change."""

    begin: float
    end: float
    shares: Tensor  # [pos]
    gap: float


class Line:
    """The straight line from the baseline b to the input x, and the target's number and gradient on it."""

    def __init__(self, question: Question, place: str | int, ends: tuple[Tensor, Tensor], rule: str, chunk: int):
        self.question, self.place, self.rule = question, place, rule
        self.steps = 0  # nodes at which gradients were taken
        self.planned = 0  # nodes that are taken or are to be
        self.x, self.b = ends
        self.change = (self.x - self.b).to(wide_dtype(self.x))
        self.chunk = chunk_of(question, chunk)
        self.values: dict[float, float] = {}  # the target's number, by point

    def at(self, points: Tensor) -> Tensor:
        """b + t (x - b) for every t, [t pos d]."""
        between = self.b.to(self.change.dtype) + points.to(self.change)[:, None, None] * self.change
        return between.to(self.x.dtype)

    def value(self, point: float) -> float:
        """The target's number at one point."""
        if point not in self.values:
            end = {0.0: self.b, 1.0: self.x}.get(point)
            between = self.at(torch.tensor([point], dtype=torch.float64)) if end is None else end
            self.values[point] = float(run_at(self.question, self.place, between)[1][0].detach())
        return self.values[point]

    def gradients(self, points: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """d target / d x, [t pos d], and the target, [t], at points of the line, one chunk of them after the other."""
        for chunk in points.split(self.chunk):
            between = self.at(chunk).requires_grad_()
            value = run_at(self.question, self.place, between)[1]
            (gradient,) = torch.autograd.grad(value.sum(), [between])
            yield gradient.to(self.change), value.detach().cpu().double()

    def piece(self, begin: float, end: float, steps: int) -> Piece:
        """The integral from one point to another: sum_t w_t g_t . (x - b)."""
        points, weights = nodes(steps, self.rule)
        total, slopes, values = torch.zeros_like(self.change[0]), [], []
        passes = self.gradients(begin + (end - begin) * points)
        self.planned = max(self.planned, self.steps + steps)
        for number, ((gradient, value), weight) in enumerate(zip(passes, weights.split(self.chunk), strict=True), 1):
            tell(self.steps + min(number * self.chunk, steps), self.planned, "points")
            slopes.append((gradient * self.change).sum((-1, -2)).cpu().double())
            values.append(value)
            total += (gradient * (weight.to(self.change) * (end - begin))[:, None, None]).sum(0)
        self.steps += steps
        shares = (total * self.change[0]).sum(-1)
        gap = abs(float(shares.sum()) - (self.value(end) - self.value(begin)))
        if self.rule == "gauss_legendre" and steps <= STEPS:
            integral = integral_up_to(points.numpy(), weights.numpy(), torch.cat(slopes).numpy()) * (end - begin)
            # at a node the target's number is known too: at the end of the line two errors may cancel
            off = np.abs(integral - (torch.cat(values).numpy() - self.value(begin)))
            gap = max(gap, float(off.max()))
        return Piece(begin, end, shares, gap)

    def whole(self, tolerance: float, most: int, first: int = STEPS) -> Tensor:
        """[pos], over the whole line, with as many steps as it takes, the `first` of them on the whole line.

        Where the nodes on the whole line do not suffice, it is halved. Of its pieces the one whose sum is furthest from
        the target's change on it is halved again, until all pieces together are within `tolerance` of the whole change.
        A piece whose gap is within the rounding of the target is not halved."""
        pieces = [self.piece(0.0, 1.0, min(first, most))]
        change = abs(self.value(1.0) - self.value(0.0))
        steps = max(2, min(PANEL, most))
        while sum(piece.gap for piece in pieces) > tolerance * change:
            rough = max(pieces, key=lambda piece: piece.gap)
            eps = torch.finfo(self.x.dtype).eps  # the number type may allow no smaller gap, or no smaller piece
            rounding = 4 * eps * max(abs(value) for value in self.values.values())
            fine = rough.gap <= rounding or rough.end - rough.begin < eps * rough.begin
            if fine or self.steps + 2 * steps > most:
                break
            middle = (rough.begin + rough.end) / 2
            pieces.remove(rough)
            self.planned = self.steps + 2 * steps
            pieces += [self.piece(rough.begin, middle, steps), self.piece(middle, rough.end, steps)]
        return torch.stack([piece.shares for piece in sorted(pieces, key=lambda piece: piece.begin)]).sum(0)


def refuse_options(rule: str, steps: int | None, chunk: int, tolerance: float, most_steps: int) -> None:
    """Refuse options of a line that cannot be, before the model is run."""
    refuse_counts(tolerance, steps=1 if steps is None else steps, chunk=chunk, most_steps=most_steps)
    nodes(1, rule)  # refuses an unknown name


LINE = (refuse_options, "rule", "steps", "chunk", "tolerance", "most_steps")


@attribution(
    paper=PAPER,
    variants=("paper", "released"),
    cost="steps x 3",
    layers=True,
    check=LINE,
    unless=("released", "absolute"),
)
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
    absolute: bool = False,
) -> tuple[Tensor, dict[str, Any]]:
    """(x_j - b_j) . integral over t of d target / d x_j at b + t (x - b): shares that add up to target(x) - target(b).

    By default 50 Gauss-Legendre nodes, and more where the shares do not add up to within 1 % (`tolerance`) everywhere
    on the line: pieces of it that do not are halved, up to `most_steps` nodes in all. From a baseline of zeros through
    an RMS norm, as in Llama, the target changes abruptly near the baseline, and about 200 are needed. `steps=` takes
    exactly that many on the whole line. `info["steps"]` says how many were taken, `info["completeness"]` how nearly the
    shares add up. `absolute` gives |share_j|; ALTI's appendix B is
    absolute=true:steps=100:rule=riemann_right:baseline=mask. `released` (ALTI's code): of the probability, embedded
    twice (see `grad_l2`), absolute, divided by the sum; 50 steps."""
    released = variant == "released"
    if released:
        question = Question(
            question.trace, replace(question.target, score="probability"), question.layer, question.query
        )
        embedding, steps = "word", STEPS if steps is None else steps
    refuse_options(rule, steps, chunk, tolerance, most_steps)
    ends = ends_of(question, embedding, baseline, partial(once_embedded, question) if released else None)
    refuse_last_layer(question, "integrated gradients")
    line = Line(question, ends.place, (ends.x, ends.b), rule, chunk)
    exact = line.whole(tolerance, most_steps) if steps is None else line.piece(0.0, 1.0, steps).shares
    shares, facts = shares_and_facts(exact, ends, line.steps, line.value(1.0) - line.value(0.0))
    return shared(shares.abs()) if released else shares.abs() if absolute else shares, facts
