"""Several small maps trained side by side: each training is what it is alone, in fewer and larger steps.

One map of a few hundred features keeps a GPU busy for a small part of a step; most of the time goes into starting
kernels. Here the weights of all maps are stacked, [map ...], and one step is one step of each map: on its own rows in
its own order, until its own end. Maps that have ended leave the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor, nn

FIRST, SECOND, EPS = 0.9, 0.999, 1e-8  # of Adam, as torch has them
RowLoss = Callable[[Tensor, Tensor], Tensor]  # [... row d] and what it should be -> [... row]
Side = tuple[Tensor, Tensor]  # [row d] and what it should be


@dataclass
class Learner:
    """A map with its first weights, the rows that it learns from, those that stop it, and where its random numbers
    stand."""

    map: nn.Module
    train: Side
    stop: Side
    draws: torch.Generator
    start: int = 0  # the place of its first row among those of all maps
    epochs: int = 0
    worse: int = 0  # epochs since the best one
    loss: float = float("inf")  # of the rows that stop it, in the best epoch

    def goes_on(self, patience: int, epochs: int | None) -> bool:
        return self.worse < patience and self.epochs != epochs

    def is_better(self, loss: float) -> bool:
        """One more epoch: whether it served the rows that stop the map best so far."""
        self.epochs += 1
        better = loss < self.loss
        self.worse = 0 if better else self.worse + 1
        self.loss = loss if better else self.loss
        return better


class Stack:
    """The weights of maps of one shape, [map ...], and the moments that Adam keeps of them."""

    def __init__(self, maps: Sequence[nn.Module]):
        self.shape = maps[0]
        self.weights = [
            torch.stack(each).detach().requires_grad_() for each in zip(*(m.parameters() for m in maps), strict=True)
        ]
        self.first = list(map(torch.zeros_like, self.weights))
        self.second = list(map(torch.zeros_like, self.weights))
        self.best = list(map(torch.zeros_like, self.weights))
        self.steps = torch.zeros(len(maps), device=self.weights[0].device, dtype=self.weights[0].dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """[map row d] -> [map row d], each through its own map."""
        weights = iter(self.weights)
        for layer in (one for one in self.shape.modules() if not list(one.children())):
            if not isinstance(layer, nn.Linear):
                x = layer(x)
            elif layer.bias is None:
                x = x @ next(weights).mT
            else:
                matrix = next(weights)
                x = torch.baddbmm(next(weights)[:, None], x, matrix.mT)
        return x

    def adam(self, gradients: Sequence[Tensor], moving: Tensor, rate: float) -> None:
        """One step of Adam for each map that is `moving`, [map] of ones and zeros; the others stay as they are."""
        self.steps += moving
        steps = self.steps.clamp(min=1)
        pace, spread = moving * rate / (1 - FIRST**steps), 1 - SECOND**steps
        for weight, first, second, slope in zip(self.weights, self.first, self.second, gradients, strict=True):
            moves = _beside(moving, weight)
            first += moves * (1 - FIRST) * (slope - first)
            second += moves * (1 - SECOND) * (slope * slope - second)
            weight.data -= _beside(pace, weight) * first / ((second / _beside(spread, weight)).sqrt() + EPS)

    def keep_best(self, better: Tensor) -> None:
        """The weights of these maps, [map], are their best so far."""
        for best, weight in zip(self.best, self.weights, strict=True):
            best[better] = weight.detach()[better]

    def without(self, left: Tensor) -> None:
        """These maps alone, [map] of bool."""
        self.weights = [one.detach()[left].requires_grad_() for one in self.weights]
        self.first, self.second, self.best = (
            [one[left] for one in each] for each in (self.first, self.second, self.best)
        )
        self.steps = self.steps[left]

    def write(self, place: int, one: Learner) -> None:
        """The best weights of one map, into the module that it began as; the last ones where no epoch was the best."""
        kept = self.weights if one.loss == float("inf") else self.best
        for parameter, weight in zip(one.map.parameters(), kept, strict=True):
            parameter.data.copy_(weight.detach()[place])


def train(
    learners: list[Learner], *, row_loss: RowLoss, rate: float, batch: int, patience: int, epochs: int | None
) -> None:
    """Trains the map of each learner in place. It ends with the weights of its best epoch: after `patience` epochs that
    served the rows of `stop` no better, or after `epochs`."""
    stack = Stack([one.map for one in learners])
    x, y = map(torch.cat, zip(*(one.train for one in learners), strict=True))
    start = 0
    for one in learners:
        one.start, start = start, start + len(one.train[0])
    stops = _Padded(learners, row_loss)
    with torch.enable_grad():
        while learners:
            for rows, weight in _epoch(learners, batch, x):
                loss = (row_loss(stack(x[rows]), y[rows]) * weight).sum()
                stack.adam(torch.autograd.grad(loss, stack.weights), (weight[:, 0] > 0).to(x), rate)
            better = [one.is_better(loss) for one, loss in zip(learners, stops.losses(stack), strict=True)]
            stack.keep_best(torch.tensor(better, device=x.device))
            goes_on = [one.goes_on(patience, epochs) for one in learners]
            if not all(goes_on):  # those that have ended get their weights, and leave the stack
                for place, one in enumerate(learners):
                    if not goes_on[place]:
                        stack.write(place, one)
                left = torch.tensor(goes_on, device=x.device)
                stack.without(left)
                stops.without(left)
                learners = list(compress(learners, goes_on))


def _epoch(learners: Sequence[Learner], batch: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The steps of one epoch: rows [map batch] and their weights [map batch], which sum to 1 over a map's rows of the
    step.

    The last step of a map may have fewer rows; a map with fewer steps than others has weights 0 in the last ones.
    """
    counts = [len(one.train[0]) for one in learners]
    steps = max(-(-count // batch) for count in counts)
    rows = torch.zeros(len(learners), steps * batch, dtype=torch.long)
    for place, (one, count) in enumerate(zip(learners, counts, strict=True)):
        rows[place] = one.start
        rows[place, :count] += torch.randperm(count, generator=one.draws)
    rows = rows.to(like.device).view(len(learners), steps, batch)
    numbers = torch.arange(steps * batch, device=like.device).view(1, steps, batch)
    real = (numbers < torch.tensor(counts, device=like.device)[:, None, None]).to(like)
    weights = real / real.sum(-1, keepdim=True).clamp(min=1)
    for step in range(steps):
        yield rows[:, step], weights[:, step]


class _Padded:
    """The rows that stop each map, padded to one length: [map row d]."""

    def __init__(self, learners: Sequence[Learner], row_loss: RowLoss):
        x, y = zip(*(one.stop for one in learners), strict=True)
        self.x, self.y = (nn.utils.rnn.pad_sequence(list(side), batch_first=True) for side in (x, y))
        counts = torch.tensor(list(map(len, x)), device=self.x.device)
        real = (torch.arange(self.x.shape[1], device=self.x.device) < counts[:, None]).to(self.x)
        self.weights = real / counts[:, None]  # of no row at all: nan, as the mean of nothing is
        self.row_loss = row_loss

    @torch.no_grad()
    def losses(self, stack: Stack) -> list[float]:
        """The mean loss of each map."""
        found: list[float] = (self.row_loss(stack(self.x), self.y) * self.weights).sum(-1).tolist()
        return found

    def without(self, left: Tensor) -> None:
        self.x, self.y, self.weights = self.x[left], self.y[left], self.weights[left]


def _beside(values: Tensor, weight: Tensor) -> Tensor:
    """[map] as [map 1 ...], to be multiplied with weights."""
    return values.view(-1, *[1] * (weight.dim() - 1))
