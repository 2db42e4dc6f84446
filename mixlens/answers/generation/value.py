"""`Generation`: what each written word rests on. A sequence of one Attribution for each written token, and the table of
all."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

import torch
from torch import Tensor

from ...base.files import write_result
from ...types import Attribution, Trace
from . import files
from .leaving_out import Effects, effects_of
from .text import Word, WrittenText
from .wording import answer


@dataclass(frozen=True, eq=False)
class Generation(Sequence[Attribution]):
    """A prompt, what was written after it, and what each written word rests on.

    As a sequence it has one Attribution for each written token. `matrix` has written words as rows and all words before
    them as columns; a row's magnitudes sum to 1, with its own words and the begin mark.
    """

    steps: tuple[Attribution, ...] = field(repr=False)
    text: WrittenText
    scores: Tensor = field(repr=False)  # [written token, token]; 0 behind the position that predicts
    probabilities: tuple[float, ...] = field(repr=False)  # of each written token, after all tokens before it
    is_map: bool = field(repr=False)
    given: bool = False  # the user wrote it, and not the model
    effects: Effects | None = field(default=None, repr=False)
    whole: Trace | None = field(default=None, repr=False)  # the traced pass; None where it was read from a file

    # --- a sequence of attributions -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Attribution: ...
    @overload
    def __getitem__(self, index: slice) -> list[Attribution]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return list(self.steps[index]) if isinstance(index, slice) else self.steps[index]

    # --- the table ----------------------------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """The method of every row."""
        return self.steps[0].method

    @property
    def info(self) -> Any:
        """What the rows rest on, as the first of them says it."""
        return self.steps[0].info

    @property
    def rows(self) -> tuple[Word, ...]:
        """The written words, in order."""
        return self.text.rows

    @property
    def columns(self) -> tuple[Word, ...]:
        """All words: of the prompt, then those that were written."""
        return self.text.words

    @property
    def cut(self) -> bool:
        """Whether the model was stopped inside its last word: its likeliest next token goes on with it."""
        return self.text.cut

    @cached_property
    def word_scores(self) -> Tensor:
        """[row column]: the scores by word. A written word of several tokens has the sum of their scores, as its target
        is the sum of theirs; of a map the mean of their rows."""
        table = torch.stack([self.scores[:, list(word.tokens)].sum(-1) for word in self.columns], -1)
        rows = [table[[place - self.text.begin for place in row.tokens]] for row in self.rows]
        return torch.stack([row.mean(0) if self.is_map else row.sum(0) for row in rows])

    @cached_property
    def matrix(self) -> Tensor:
        """[row column]: each score over the sum of the row's magnitudes. Signed where the method is."""
        total = self.word_scores.abs().sum(-1, keepdim=True)
        return self.word_scores / total.masked_fill(total == 0, 1)

    @property
    def signed(self) -> bool:
        """Whether a score may speak against the written word."""
        return bool(self.info.get("signed", (self.scores < 0).any()))

    @cached_property
    def row_probabilities(self) -> tuple[float, ...]:
        """The probability of each written word: of its tokens, one after the other."""
        tokens = torch.tensor(self.probabilities, dtype=torch.float64)
        return tuple(float(tokens[[place - self.text.begin for place in row.tokens]].prod()) for row in self.rows)

    # --- verbs: functions of this folder and of `show`, imported when called ------------------------------------------

    def with_effects(self, *, replacement: str | int = "delete") -> Generation:
        """The same with `.effects`: what leaving out each word and each sentence (or turn) of the prompt does to the
        probability of every written word. One pass of the model for each, in batches."""
        return self if self.effects is not None else replace(self, effects=effects_of(self, replacement=replacement))

    @cached_property
    def sentence(self) -> str:
        """The answer in one or two sentences."""
        return answer(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; the table, the words, the answer and where they come from."""
        return files.to_dict(self)

    def to_json(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """`to_dict` as text, also written to a file where one is named, as `save` does."""
        content = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_result(content + "\n", path, suffix=".json", force=force)
        return content

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """One line for each written word and each word before it; also written to a file where one is named, as `save`
        does."""
        content = files.table(self)
        if path is not None:
            write_result(content, path, suffix=".csv", force=force)
        return content

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write one .json file, whole or not at all; `Generation.load` reads it. A file that is no result of mixlens is
        kept, unless
        `force`."""
        self.to_json(path, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Generation:
        """The Generation that `.save` or `.to_json` wrote. It has no model, so no new effects."""
        return files.load(path)

    def show(self, **options: Any) -> None:
        """Print to the terminal."""
        from ...show.generation_text import show

        show(self, **options)

    def plot(self, **options: Any) -> Any:
        """A paper figure (matplotlib): `.plot().save("x.svg")`."""
        from ...show.figure.drawing import plot

        return plot(self, **options)

    def report(self, path: str | os.PathLike[str], *, leave_out: bool = True, force: bool = False) -> Any:
        """One HTML file: the answer, the texts, the table, and, unless `leave_out` is False, what leaving out each word
        and sentence of the prompt does (see `with_effects`)."""
        from ...show.generation_page import write_generation

        shown = self.with_effects() if leave_out and self.whole is not None else self
        return write_generation(shown, path, force=force)

    def _repr_html_(self) -> str:
        from ...show.generation_page import notebook_html

        return notebook_html(self)
