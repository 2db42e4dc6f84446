"""What an attribution method is asked: one trace, the number to be explained, and the passes and gradients it takes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..model.rerun import Attached
from ..model.rows import compare_put_out, compare_written
from ..types import Map, Trace
from .targets import Target

TOGETHER = 8192  # tokens of changed texts in one pass
MOST_ROWS = 64  # changed texts in one pass
HEADS = ("logits", "start_logits", "end_logits")  # what the heads of transformers call their logits
MapMaker = Callable[[Trace, str], Map]


class Question:
    """One trace and the number to be explained about it, with the gradients a method asks for."""

    def __init__(
        self,
        trace: Trace,
        target: Target | None,
        layer: int | None,
        query: int,
        *,
        user_query: int | str | None = None,
        mix: MapMaker | None = None,
    ):
        self.trace, self.model, self.layer, self.query = trace, trace.model, layer, query
        self.user_query = user_query  # the position as the user named it; None where the user named none
        self.resolved = target  # None for a method that explains a position, whatever the model puts out there
        self._mix = mix
        self.batch = Batch([self])  # until `share_passes` puts it into one with others
        self._is_answered = False  # did the model answer the text itself as its trace has it?
        self._sizes: set[int] = set()  # of batches of changed copies of the text that were compared with one copy alone

    @property
    def target(self) -> Target:
        assert self.resolved is not None
        return self.resolved

    @cached_property
    def inputs(self) -> dict[str, Any]:
        return self.model.inputs([self.trace])

    @cached_property
    def run(self) -> Attached:
        """The forward pass with its graph."""
        return self.batch.row(self)

    @property
    def value(self) -> Tensor:
        """The number to be explained, of `run`."""
        with torch.enable_grad():
            return self.target.of(self.run.output)[0]

    def map(self, name: str) -> Map:
        """The trace's map by a map method."""
        assert self._mix is not None
        return self._mix(self.trace, name)

    @property
    def places(self) -> tuple[int, ...]:
        """The positions that the prediction is read at: the start and the end of a span, else the one position
        `query`."""
        positions = () if self.resolved is None else self.resolved.positions
        return positions or (self.query,)

    def row(self, scores: Tensor) -> Tensor:
        """[query key] -> [key]: the row of the position that predicts; of a span the mean of its start and its end."""
        return scores[list(self.places)].mean(0)

    def place(self, run: Attached, embedding: str = "sum") -> Tensor:
        """[batch pos d], where gradients are taken: hidden states that enter layer `layer` (the last number: the final
        output), or the embedding: "word", "sum" (word, position and segment added), "after" (what enters the first
        layer)."""
        if self.layer is not None:
            return (*run.inputs, run.outputs[-1])[self.layer]
        places = {"word": run.word, "sum": run.summed, "after": run.inputs[0]}
        if embedding not in places:
            raise InputError(f"unknown embedding {embedding!r}. {nearest(embedding, places)}")
        return places[embedding]

    def gradient(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """d target / d tensor for tensors of `run`, each without its batch axis."""
        return self.batch.gradients(self, tensors)

    def compares(self, count: int) -> bool:
        """Is this the first batch of so many changed copies of the text? Then it is to be compared with one copy
        alone."""
        new = count not in self._sizes
        self._sizes.add(count)
        return new

    def answer(self) -> Any:
        """What the stock model puts out for the text itself: what it did when the text was traced, or it is refused."""
        output = self.model.outputs([self.trace])
        self._is_answered = True
        return output

    def about(self, target: Target) -> Question:
        """The same text with another number to be explained."""
        question = Question(self.trace, target, None, self.query)
        question._is_answered = self._is_answered
        return question

    def values(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """The target's number for other inputs, [row]: each is {input_ids, attention_mask, token_type_ids} without
        padding."""
        if not self._is_answered:
            self.answer()
        texts: Any = [SimpleNamespace(**row) for row in rows]
        step = self.model.batch_limit or max(1, min(MOST_ROWS, TOGETHER // max(1, len(self.trace))))
        found: list[Tensor] = []
        for start in range(0, len(rows), step):
            found.append(self.target.of(self.model.outputs(texts[start : start + step], compare=start == 0)))
            tell(min(start + step, len(rows)), len(rows), "texts")
        return torch.cat(found)


class Batch:
    """Questions that share one forward and one backward pass.

    Rows of a padded batch do not depend on each other, so the gradient of the sum of their targets holds the gradient
    of each. A question gets its row alone, without padding, and does not know of the others.
    """

    def __init__(self, questions: Sequence[Question]):
        self._questions = [
            weakref.ref(question) for question in questions
        ]  # no reference cycle: the graph is freed with them
        self._origins: dict[
            int, tuple[Tensor, Tensor, tuple[slice, ...]]
        ] = {}  # by id: a row's tensor, the batch's, its slice
        self._gradients: dict[int, Tensor] = {}  # by id of the batch's tensor

    @property
    def questions(self) -> list[Question]:
        return [question for reference in self._questions if (question := reference()) is not None]

    @cached_property
    def run(self) -> Attached:
        model, traces = self.questions[0].model, [question.trace for question in self.questions]
        run = model.run_attached(model.inputs(traces))
        for row, trace in enumerate(traces):
            compare_written(trace, -1, run.outputs[-1][row, : len(trace)])
            compare_put_out(trace, run.output, row)
        return run

    def row(self, question: Question) -> Attached:
        """One question's row of every tensor of the pass."""
        row, n, run = self.questions.index(question), len(question.trace), self.run
        hidden, weights = (slice(row, row + 1), slice(n)), (slice(row, row + 1), slice(None), slice(n), slice(n))
        heads = {name: getattr(run.output, name, None) for name in HEADS}
        where = hidden[:1] if question.model.task == "classification" else hidden
        with torch.enable_grad():
            return Attached(
                output=SimpleNamespace(**{name: logits[where] for name, logits in heads.items() if logits is not None}),
                word=self._cut(run.word, hidden),
                summed=self._cut(run.summed, hidden),
                inputs=tuple(self._cut(layer, hidden) for layer in run.inputs),
                outputs=tuple(self._cut(layer, hidden) for layer in run.outputs),
                attention=tuple(self._cut(layer, weights) for layer in run.attention),
            )

    def _cut(self, whole: Tensor, where: tuple[slice, ...]) -> Tensor:
        """A row's part of a tensor; `gradients` later finds the whole tensor by the part's id."""
        part = whole if len(self._questions) == 1 else whole[where]
        self._origins[id(part)] = (part, whole, where)
        return part

    def gradients(self, question: Question, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """d target / d tensor of one question. One backward pass gives those of all questions of the batch."""
        if not all(id(tensor) in self._origins for tensor in tensors):  # not tensors of `row` but functions of them
            return tuple(gradient[0] for gradient in _gradients(question.value, tensors))
        origins = [self._origins[id(tensor)] for tensor in tensors]
        wholes = {id(whole): whole for _, whole, _ in origins if id(whole) not in self._gradients}
        if wholes:
            total = torch.stack([question.value for question in self.questions]).sum()
            self._gradients |= zip(wholes, _gradients(total, [*wholes.values()]), strict=True)
        return tuple(self._gradients[id(whole)][where][0] for _, whole, where in origins)


def share_passes(questions: Sequence[Question]) -> None:
    """Put the questions into one batch. A pass that one of them has taken before is dropped."""
    batch = Batch(questions)
    for question in questions:
        question.batch = batch
        question.__dict__.pop("run", None)


def _gradients(value: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """d value / d tensor, zero where the value does not depend on the tensor."""
    gradients = torch.autograd.grad(value, tensors, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(tensor) if g is None else g for g, tensor in zip(gradients, tensors, strict=True)]
