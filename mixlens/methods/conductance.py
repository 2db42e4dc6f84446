"""Conductance of a layer: Integrated Gradients that flow through each position's hidden state.

s_j = sum_d integral_0^1 d target / d h_jd (t) . d h_jd / dt dt,    h(t): what enters the layer where embeddings are b + t (x - b)
sum_j s_j = target(x) - target(b), at every layer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..base.steps import tell
from ..scoring.completeness import CLOSED, completeness
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ._points import Ends, as_scores, chunk_of, ends_of, refuse_counts, refuse_last_layer, run_at, wide_dtype

PAPER = "Dhamdhere et al. 2019, How Important Is a Neuron?"
STEPS = 32  # pieces of the line to begin with
PARTS = 8  # pieces that a rough one is cut into


@dataclass(frozen=True, eq=False)
class Flow:
    """What one piece of the line adds to every position, and how far the sum is from the target's change on the
    piece."""

    begin: float
    end: float
    shares: Tensor  # [pos]
    gap: float


class HiddenLine:
    """The line from the baseline's embeddings to the text's, as the layer `layer` sees it."""

    def __init__(self, question: Question, ends: Ends, layer: int, chunk: int):
        self.question, self.place, self.layer, self.chunk = question, ends.place, layer, chunk
        self.x, self.b = (end.to(wide_dtype(end)) for end in (ends.x, ends.b))
        self.dtype = ends.x.dtype
        self.steps = 0  # points at which gradients were taken
        self.planned = STEPS + 1  # points that are taken or are to be
        self.values: dict[float, float] = {}  # the target's number, by point

    def states(self, points: Sequence[float]) -> Iterator[tuple[Tensor, Tensor, float]]:
        """At each point what enters the layer, [pos d], the target's gradient there, and the target's number."""
        for start in range(0, len(points), self.chunk):
            some = points[start : start + self.chunk]
            t = torch.tensor(some, dtype=self.x.dtype, device=self.x.device)[:, None, None]
            between = (self.b + t * (self.x - self.b)).to(self.dtype).requires_grad_()
            run, values = run_at(self.question, self.place, between)
            hidden = run.inputs[self.layer]
            (gradient,) = torch.autograd.grad(values.sum(), [hidden])
            numbers, self.steps = values.detach().tolist(), self.steps + len(some)
            self.values |= zip(some, numbers, strict=True)
            tell(self.steps, max(self.planned, self.steps), "points")
            wide = wide_dtype(hidden)
            yield from zip(hidden.detach().to(wide), gradient.to(wide), numbers, strict=True)

    def pieces(self, begin: float, end: float, count: int) -> Iterator[Flow]:
        """A part of the line in `count` pieces. The gradient on a piece is the mean of those at its ends."""
        points = [begin + (end - begin) * i / count for i in range(count + 1)]
        for (low, first), (high, last) in pairwise(zip(points, self.states(points), strict=True)):
            shares = ((first[1] + last[1]) / 2 * (last[0] - first[0])).sum(-1)
            yield Flow(low, high, shares, abs(float(shares.sum()) - (last[2] - first[2])))

    def whole(self, tolerance: float, most: int) -> Tensor:
        """[pos]. The pieces that are off by more than their part of the tolerance are cut up, while `most` points allow
        it."""
        flows = list(self.pieces(0.0, 1.0, STEPS))
        allowed = tolerance * abs(self.values[1.0] - self.values[0.0])
        while sum(flow.gap for flow in flows) > allowed:
            rounding = 4 * torch.finfo(self.dtype).eps * max(map(abs, self.values.values()))
            rough = [flow for flow in flows if flow.gap > max(rounding, allowed / (2 * len(flows)))]
            self.planned = self.steps + len(rough) * (PARTS + 1)
            if not rough or self.planned > most:
                break
            finer = [piece for flow in rough for piece in self.pieces(flow.begin, flow.end, PARTS)]
            flows = [flow for flow in flows if flow not in rough] + finer
        return torch.stack([flow.shares for flow in flows]).sum(0)


@attribution(
    paper=PAPER, cost="steps x 3", layers=True, peer=True, check=(refuse_counts, "tolerance", "chunk", "most_steps")
)
def layer_conductance(
    question: Question,
    *,
    embedding: str = "word",
    baseline: str | int | None = None,
    chunk: int = 16,
    tolerance: float = CLOSED,
    most_steps: int = 2000,
) -> tuple[Tensor, dict[str, Any]]:
    """How much of Integrated Gradients flows through each position of what enters a layer: `layer=`, by default the middle one.

    The scores add up to target(x) - target(baseline) at every layer; at layer 0 they are integrated_gradients of what
    enters the first layer. Points are added until the sum is right to within `tolerance`. A score is of a position,
    which in a deep layer is a mixture of tokens."""
    refuse_counts(tolerance, chunk=chunk, most_steps=most_steps)
    refuse_last_layer(question, "gradients of conductance")
    layer = len(question.trace.layers) // 2 if question.layer is None else question.layer
    whole = Question(question.trace, question.target, None, question.query)  # the line is that of the embeddings
    ends = ends_of(whole, embedding, baseline)
    line = HiddenLine(whole, ends, layer, chunk_of(whole, chunk))
    shares = as_scores(line.whole(tolerance, most_steps), ends.x)
    difference = line.values[1.0] - line.values[0.0]
    return shares, {
        "baseline": ends.baseline,
        "at_layer": layer,
        "steps": line.steps,
        "completeness": completeness(shares, difference),
    }
