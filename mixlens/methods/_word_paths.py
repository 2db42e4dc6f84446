"""Paths of word embeddings from a text to its baseline that go by other words (Sanyal and Ren 2021).

From a word to its baseline b: the next anchor a is one of the words nearest to the last anchor u, at first the word
itself. The next point is the anchor, made monotone from the last point p:

    c(a, p)_d = a_d where a_d lies between p_d and b_d, else p_d - (p_d - b_d) / steps

As in the paper's code an anchor is chosen as it looks from the last anchor, not from the last point: greedy takes the
least |a - c(a, u)|, maxcount the most d with a_d between u_d and b_d. No word is an anchor twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..model.model import Model

STRATEGIES = ("greedy", "maxcount")
ROWS = 8192  # rows of the table that are compared at once
NUMBERS = 1 << 22  # of candidates that are held at once
HELD = 1 << 27  # numbers of a table that is held for a whole search; a larger one is read at every step
SEARCH = 0.5  # of the work is the search of the anchors, roughly; the rest are gradients at the points of the path
NONE = -1  # the id of an anchor where no word is left: the baseline itself


def refuse_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise InputError(f"unknown strategy {strategy!r}. {nearest(str(strategy), STRATEGIES)}")


def between(a: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Whether each number of a lies between the two others, in whichever order they are."""
    return (torch.minimum(low, high) <= a) & (a <= torch.maximum(low, high))


def monotone(a: Tensor, point: Tensor, b: Tensor, steps: int) -> Tensor:
    """The anchor a, with a step of the straight line from `point` to b in each dimension in which a does not lie
    between."""
    return torch.where(between(a, point, b), a, point - (point - b) / steps)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The word embeddings of a model, as its own table puts them out."""

    model: Model
    held: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def table(self) -> Any:
        """The module that gives a word its embedding."""
        return self.model.hf_model.get_input_embeddings()

    def refuse_none(self) -> None:
        """Refuse a model whose words have no table."""
        if not isinstance(getattr(self.table, "num_embeddings", None), int):
            raise InputError(
                f"{self.model.name!r} has no table of word embeddings, and the path of "
                "discretized_integrated_gradients goes by words of it. Use integrated_gradients."
            )

    def vectors(self, ids: Tensor) -> Tensor:
        """[... d], in a number type that distances can be compared in."""
        with torch.no_grad():
            rows: Tensor = self.table(ids)
        return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()

    def nearest(self, points: Tensor, own: Tensor, count: int) -> Tensor:
        """The ids of the words nearest to each of the points [point d], the nearest first: [point count]. `own`: the
        word of each point [point], which is the last that is taken for its own neighbour."""
        # squared distances less the point's own square, which is the same for every word
        parts = [squares - 2 * points.to(rows) @ rows.T for rows, squares in self._parts(points)]
        distances = torch.cat(parts, -1).scatter(-1, own[:, None], torch.inf)
        return distances.topk(min(count, distances.shape[-1]), dim=-1, largest=False).indices

    def _parts(self, points: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """The rows of the table with their squares, ROWS at a time; read once where they may be held."""
        if self.held:
            return self.held
        size = self.table.num_embeddings
        rows = map(self.vectors, torch.arange(size, device=points.device).split(ROWS))
        parts = ((some, some.square().sum(-1)) for some in rows)
        if size * points.shape[-1] > HELD:
            return parts
        self.held.extend(parts)
        return self.held


@dataclass(frozen=True)
class WordPaths:
    """How paths are made. `blank`: the id of the baseline's word, which is no anchor while another is left, or None."""

    vocabulary: Vocabulary
    strategy: str
    steps: int
    neighbours: int
    blank: int | None

    def points(self, x: Tensor, b: Tensor, ids: Tensor) -> Tensor:
        """[t word d]: from the baseline to the words, x and b [word d] with the words' ids [word]. All have steps + 2
        points."""
        points, seen, anchor = [x], ids[:, None], x
        some = max(1, NUMBERS // (self.neighbours * x.shape[-1]))  # words at a time, so that their candidates fit
        for step in range(self.steps):
            parts = zip(anchor.split(some), b.split(some), seen.split(some), strict=True)
            chosen = torch.cat([self._chosen(*part) for part in parts])
            seen = torch.cat([seen, chosen[:, None]], -1)
            anchor = torch.where(chosen[:, None] == NONE, b, self.vocabulary.vectors(chosen.clamp(min=0)).to(b))
            points.append(monotone(anchor, points[-1], b, self.steps))
            tell(step + 1, self.steps, "anchors", until=SEARCH)
        return torch.stack([b, *reversed(points)])

    def _chosen(self, anchor: Tensor, b: Tensor, seen: Tensor) -> Tensor:
        """The best of the nearest words that is neither the baseline nor on the path already, of equals the nearest;
        NONE where none is left."""
        candidates = self.vocabulary.nearest(anchor, seen[:, -1].clamp(min=0), self.neighbours)
        taken = (candidates[..., None] == seen[:, None]).any(-1) | (seen[:, -1:] == NONE)
        taken |= candidates == (NONE if self.blank is None else self.blank)
        a, u, end = self.vocabulary.vectors(candidates).to(anchor), anchor[:, None], b[:, None]
        inside = between(a, u, end)
        if self.strategy == "maxcount":
            cost = -inside.sum(-1).to(a)
        else:  # of the dimensions that `monotone` moves
            cost = (a - (u - (u - end) / self.steps)).masked_fill_(inside, 0).square_().sum(-1)
        order = cost.masked_fill(taken, torch.inf).sort(dim=-1, stable=True).indices[:, :1]
        return torch.where(taken.all(-1), NONE, candidates.gather(-1, order)[:, 0])


def halved(points: Tensor) -> Tensor:
    """The same path with a point in the middle of each step."""
    middles = (points[:-1] + points[1:]) / 2
    pairs = torch.stack([points[:-1], middles], 1).flatten(0, 1)
    return torch.cat([pairs, points[-1:]])
