"""A text's units as players of a game: v(S) is the target's number where the units S alone are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.steps import part_of
from ..scoring.questions import Question
from ..scoring.removal import Unit, filler_token, outcomes, positions_of, removable_units


@dataclass(frozen=True, eq=False)
class Game:
    """The units that may be taken away, what stands in their place, and the values that were asked for so far."""

    question: Question
    units: tuple[Unit, ...]
    replacement: str | int
    planned: int = 0  # texts that are asked for in all, as far as that is known
    seen: dict[bytes, float] = field(default_factory=dict)  # by the units that are kept; libraries ask for some twice

    @property
    def passes(self) -> int:
        """Different texts that the model read."""
        return len(self.seen)

    def values(self, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        """[row]: v of each row of [row unit]."""
        new = {row.tobytes(): row for row in kept if row.tobytes() not in self.seen}
        if new and not self.seen:
            self.question.answer()
        if new:
            gone = [list(positions_of(self.units, ~row)) for row in new.values()]
            with part_of(len(self.seen), max(self.planned, len(self.seen) + len(new)), "texts"):
                numbers = outcomes(self.question.trace, gone, self.question.target, replacement=self.replacement)
            self.seen.update(zip(new, numbers.tolist(), strict=True))
        return np.array([self.seen[row.tobytes()] for row in kept])

    def value(self, kept: bool) -> float:
        """v of all units, or of none of them."""
        return float(self.values(np.full((1, len(self.units)), kept))[0])

    def scores(self, values: Sequence[float] | NDArray[np.float64]) -> Tensor:
        """[pos]: the tokens of a unit share its value. What is never taken away has 0."""
        scores = torch.zeros(len(self.question.trace), dtype=torch.float64)
        for positions, value in zip(self.units, values, strict=True):
            scores[list(positions)] = float(value) / len(positions)
        return scores.to(self.question.model.dtype)


def game_of(question: Question, unit: str, replacement: str | int | None, planned: int = 0) -> Game:
    """The game of a text. `replacement` None: the mask token, where the model has one, else units are deleted.
    `planned`: about so many texts are asked for."""
    way = replacement
    if way is None:
        way = "delete" if filler_token(question.model, "mask") is None else "mask"
    return Game(question, tuple(removable_units(question.trace, question.target, unit)), way, planned)
