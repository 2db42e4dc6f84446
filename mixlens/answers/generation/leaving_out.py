"""What leaving out a part of the prompt does to the probability of every written word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...base.errors import InputError
from ...scoring.removal import asked
from ...scoring.targets import Target

if TYPE_CHECKING:
    from .value import Generation


@dataclass(frozen=True, eq=False)
class Effects:
    """The change of a written word's probability where a part of the prompt is left out: below 0, it was needed.

    A group (a sentence, a turn) is left out as a whole; its effect is not the sum of those of its words. Not a number
    where nothing of the prompt would be left.
    """

    replacement: str | int
    words: Tensor = field(repr=False)  # [row column], 0 for columns that are never left out
    groups: Tensor = field(repr=False)  # [row group]


def effects_of(generation: Generation, *, replacement: str | int = "delete") -> Effects:
    """The effects of every word and every group of the prompt, by passes in batches. A written token is read at the
    position before it; where words are deleted, both have moved."""
    text, trace = generation.text, generation.whole
    if trace is None:
        raise InputError(
            "this generation was read from a file, so there is no model to run again. Explain the prompt again."
        )
    words = [number for number, word in enumerate(text.words) if word.counts]
    parts = [(), *(text.words[number].tokens for number in words)]
    parts += [tuple(place for number in group.words for place in text.words[number].tokens) for group in text.groups]
    away = [len(part) if replacement == "delete" else 0 for part in parts]
    possible = [number for number, count in enumerate(away) if count < text.begin]
    ids, written = trace.input_ids, range(text.begin, len(trace))
    targets = [
        [
            Target("causal-lm", (place - away[number] - 1,), (ids[place],), None, "log_probability", "")
            for place in written
        ]
        for number in possible
    ]
    gone = [parts[number] for number in possible]
    told = asked(trace, gone, targets, replacement=replacement, bar="leaving out")
    table = torch.full((len(text.rows), len(parts)), torch.nan, dtype=torch.float64)  # [row part]
    for number, answers in zip(possible, told, strict=True):
        logs = torch.tensor([answer.value for answer in answers], dtype=torch.float64)
        for row, word in enumerate(text.rows):
            table[row, number] = logs[[place - text.begin for place in word.tokens]].sum().exp()
    changes = table[:, 1:] - table[:, :1]
    by_word = torch.zeros(len(text.rows), len(text.words), dtype=torch.float64)
    by_word[:, words] = changes[:, : len(words)]
    return Effects(replacement, by_word, changes[:, len(words) :])
