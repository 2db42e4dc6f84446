"""The target's number and its gradient where other vectors stand in the place of a text's embeddings or hidden
states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..model.rerun import Attached
from ..scoring.completeness import CLOSED, completeness
from ..scoring.questions import Question
from ._baselines import baseline_run

TOKENS = 4096  # the most that one pass on a CPU holds, whatever `chunk` says; sixteen times as many elsewhere
MOST = 1_000_000  # draws or steps


def place_of(question: Question, embedding: str) -> str | int:
    """Where `run_attached` puts the points: a layer's input, or an embedding."""
    question.place(question.run, embedding)  # refuses an unknown name
    place: str | int = embedding if question.layer is None else question.layer
    return 0 if place == "after" or (place == "sum" and question.model.embedding_norm is None) else place


@dataclass(frozen=True, eq=False)
class Ends:
    """Where a path begins and ends: the baseline b and the text x, [1 pos d] each, at a place; and the baseline's
    name."""

    place: str | int
    x: Tensor
    b: Tensor
    baseline: str


def ends_of(
    question: Question, embedding: str, baseline: str | int | None, read: Callable[[Attached], Tensor] | None = None
) -> Ends:
    """The ends of the paths of a question. `read`: what is read of a run; by default what stands at its place."""
    place = place_of(question, embedding)
    below, name = baseline_run(question, baseline)
    x, b = ((question.place(run, embedding) if read is None else read(run)).detach() for run in (question.run, below))
    return Ends(place, x, b, name)


def chunk_of(question: Question, chunk: int) -> int:
    """How many points one pass holds."""
    room = TOKENS if question.model.device.type == "cpu" else 16 * TOKENS
    return question.model.batch_limit or max(1, min(chunk, room // len(question.trace)))


def wide_dtype(like: Tensor) -> torch.dtype:
    """The number type that gradients are summed in."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def as_scores(sums: Tensor, like: Tensor) -> Tensor:
    """What was summed widely, in the number type of the model, at least float32."""
    return sums.to(like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32)


def shares_and_facts(sums: Tensor, ends: Ends, steps: int, difference: float) -> tuple[Tensor, dict[str, Any]]:
    """The scores of a path, and what is told of them: how nearly they add up to the target's change from end to end."""
    shares = as_scores(sums, ends.x)
    return shares, {
        "baseline": ends.baseline,
        "steps": steps,
        "difference": difference,
        "completeness_gap": abs(float(shares.sum()) - difference),
        "completeness": completeness(shares, difference),
    }


def run_at(question: Question, place: str | int, points: Tensor) -> tuple[Attached, Tensor]:
    """The model run on several points [t pos d], and the target's number for each, [t]."""
    count = len(points)
    inputs = {
        key: value.expand(count, -1) if isinstance(value, Tensor) else value for key, value in question.inputs.items()
    }
    value = (
        points if points.requires_grad else points.detach()
    )  # the pass marks what it gets; the caller's tensor stays as it is
    run = question.model.run_attached(inputs, place=place, value=value, compare=question.compares(count))
    return run, question.target.of(run.output)


def value_at(question: Question, place: str | int, point: Tensor) -> float:
    """The target's number at one point [1 pos d]."""
    return float(run_at(question, place, point)[1][0].detach())


def gradients_at(question: Question, place: str | int, chunks: Iterator[Tensor]) -> Iterator[Tensor]:
    """d target / d point, [t pos d], for one chunk of points after the other."""
    for points in chunks:
        between = points.detach().requires_grad_()
        value = run_at(question, place, between)[1]
        (gradient,) = torch.autograd.grad(value.sum(), [between])
        yield gradient.to(wide_dtype(gradient))


def refuse_last_layer(question: Question, gradients: str) -> None:
    if question.layer == len(question.trace.layers):
        raise InputError(f"{gradients} need a layer behind them: layer must be less than the number of layers.")


def refuse_count(**counts: int) -> None:
    for name, count in counts.items():
        if not 1 <= count <= MOST:
            raise InputError(f"{name} must be at least 1 and at most {MOST:,}, not {count}.")


def refuse_counts(tolerance: float, **counts: int) -> None:
    """The numbers of a method that adds points until its scores add up."""
    refuse_count(**counts)
    if not tolerance > 0:
        raise InputError(f"tolerance must be above 0, such as {CLOSED}, not {tolerance}.")


def refuse_draws(noise: float, seed: int, **counts: int) -> None:
    """The numbers of a method that draws at random."""
    refuse_count(**counts)
    if not 0 <= noise < float("inf"):
        raise InputError(f"noise is a share of the range of the embeddings, 0 or more, such as 0.15, not {noise}.")
    if seed < 0:
        raise InputError(f"seed is a number, 0 or more, not {seed}.")
