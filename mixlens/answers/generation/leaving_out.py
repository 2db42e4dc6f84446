"""What leaving out a part of the prompt does to the probability of every written word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...base.errors import InputError
from ...scoring.removal import asked
from ...scoring.targets import Target

if TYPE_CHECKING:
    from ...types import Trace
    from .value import Generation

NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Effects:
    """The change of a written word's probability where a part of the prompt is left out: below 0, it was needed.

    A group (a sentence, a turn) is left out as a whole; its effect is not the sum of those of its words. Not a number where
    nothing of the prompt would be left.
    """

    replacement: str | int
    words: Tensor = field(repr=False)  # [row column], 0 for columns that are never left out
    groups: Tensor = field(repr=False)  # [row group]


def effects_of(generation: Generation, *, replacement: str | int = "delete") -> Effects:
    """The effects of every word and every group of the prompt, by passes in batches."""
    text, trace = generation.text, _traced(generation)
    words = [number for number, word in enumerate(text.words) if word.counts]
    parts = [text.words[number].tokens for number in words]
    parts += [tuple(place for number in group.words for place in text.words[number].tokens) for group in text.groups]
    table = _changes(generation, trace, parts, replacement)
    by_word = torch.zeros(len(text.rows), len(text.words), dtype=torch.float64)
    by_word[:, words] = table[:, : len(words)]
    return Effects(replacement, by_word, table[:, len(words) :])


def _traced(generation: Generation) -> Trace:
    if generation.whole is None:
        raise InputError(
            "this generation was read from a file, so there is no model to run again. Explain the prompt again."
        )
    return generation.whole


def _changes(generation: Generation, trace: Trace, parts: Sequence[tuple[int, ...]], replacement: str | int) -> Tensor:
    """[row part]: the probability of each written word without a part, less its probability with all."""
    begin = generation.text.begin
    gone: list[tuple[int, ...]] = [(), *parts]
    away = [len(part) if replacement == "delete" else 0 for part in gone]
    possible = [number for number, count in enumerate(away) if count < begin]
    told = asked(
        trace,
        [gone[number] for number in possible],
        [_targets(trace, begin, away[number]) for number in possible],
        replacement=replacement,
        bar="leaving out",
    )
    values = [[answer.value for answer in row] for row in told]
    table = torch.full((len(generation.text.rows), len(gone)), NAN, dtype=torch.float64)
    for number, logs in zip(possible, values, strict=True):
        table[:, number] = torch.tensor(_by_word(generation, logs), dtype=torch.float64)
    return table[:, 1:] - table[:, :1]


def _targets(trace: Trace, begin: int, away: int) -> list[Target]:
    """The written tokens, in a text that has `away` tokens fewer before them: each is read at the position before it."""
    places = range(begin, len(trace))
    return [Target("causal-lm", (p - away - 1,), (trace.input_ids[p],), None, "log_probability", "") for p in places]


def _by_word(generation: Generation, logs: Sequence[float]) -> list[Any]:
    """The probability of each written word, from the logarithms of its tokens."""
    begin, numbers = generation.text.begin, torch.tensor(logs, dtype=torch.float64)
    return [float(numbers[[place - begin for place in row.tokens]].sum().exp()) for row in generation.text.rows]
