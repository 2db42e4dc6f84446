"""Blank-out: the change of the prediction when a token is taken away. The reference of several papers.

s_j = target(x) - target(x without token j)                                     Li et al. 2016, erasure; [pos]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import part_of, tell
from ..scoring.questions import Question
from ..scoring.registry import attribution
from ..scoring.removal import filler_token, moved
from ..types import Trace
from ._baselines import known_id

PAPER = "Li et al. 2016, Understanding Neural Networks through Representation Erasure"
WAYS = ("mask", "unk", "delete", "zero")


def refuse_unknown(replacement: Any) -> None:
    number = isinstance(replacement, int) and not isinstance(replacement, bool)
    if not number and not (isinstance(replacement, str) and replacement in WAYS):
        raise InputError(f"unknown replacement {replacement!r}. {nearest(str(replacement), WAYS)}")


@attribution(
    paper=PAPER,
    variants=("paper", "released"),
    cost="n",
    score="probability",
    check=(refuse_unknown, "replacement"),
    unless=("released", "absolute"),
)
def blank_out(
    question: Question, *, variant: str = "paper", replacement: str | int = "mask", absolute: bool = False
) -> tuple[Tensor, dict[str, Any]]:
    """target(x) - target(x without token j): positive where the token raised the target, unless `absolute`.

    A token is replaced by [MASK] ("mask"), [UNK] ("unk"), any token (its id), a zero word embedding ("zero"), or
    "delete"d. Explains the probability by default; with a foil, the probability among the two. `released` (ALTI's
    code): absolute, and the blanked text's logit goes through a sigmoid where the whole text's went through the
    softmax."""
    refuse_unknown(replacement)
    whole = question.target.of(question.answer())[0]
    if variant == "released":
        return (whole - blanked(question, replacement, "logit").sigmoid()).abs(), {"whole": float(whole)}
    change = whole - blanked(question, replacement, question.target.score)
    return change.abs() if absolute else change, {"whole": float(whole)}


def blanked(question: Question, replacement: str | int, score: str) -> Tensor:
    """The target's number with each token blanked in turn, [pos]."""
    scored = question.about(replace(question.target, score=score))
    if replacement == "zero":
        return zeroed(scored, question.run.word.detach())
    if replacement == "delete":
        return deleted(scored)
    ids = question.trace.input_ids
    if isinstance(replacement, int):
        token = known_id(question, replacement)
    else:
        found = filler_token(question.model, replacement)
        if found is None:
            raise InputError(
                f"{question.model.name!r} has no {replacement} token. Use replacement='delete', 'zero' or an id."
            )
        token = found
    return scored.values([row_of(question.trace, [*ids[:j], token, *ids[j + 1 :]]) for j in range(len(ids))])


def row_of(trace: Trace, ids: Sequence[int], gone: int | None = None) -> dict[str, Any]:
    """What the model is run on: the trace's inputs with other ids, and without position `gone`."""
    places = [i for i in range(len(trace)) if i != gone]
    types = trace.token_type_ids
    return {
        "input_ids": [ids[i] for i in places],
        "attention_mask": [trace.attention_mask[i] for i in places],
        "token_type_ids": None if types is None else [types[i] for i in places],
    }


def deleted(question: Question) -> Tensor:
    """The target's number without each token, [pos]. A position that predicts cannot be deleted: its score is 0."""
    trace, target = question.trace, question.target
    stays = [len(trace) == 1 or j in target.positions for j in range(len(trace))]
    rows = [row_of(trace, trace.input_ids, None if stays[j] else j) for j in range(len(trace))]
    if not target.positions:
        return question.values(rows)
    found: list[Tensor] = []
    for j, row in enumerate(rows):  # positions behind a token that is gone move one to the left
        one = question if stays[j] else question.about(moved(target, {j}))
        with part_of(j, len(rows), "texts"):
            found.append(one.values([row]))
    return torch.cat(found)


@torch.no_grad()
def zeroed(question: Question, word: Tensor) -> Tensor:
    """The target's number with each token's word embedding set to 0 in turn, [pos]."""
    found: list[Tensor] = []
    for j in range(len(question.trace)):
        changed = word.clone()
        changed[:, j] = 0
        run = question.model.run_attached(question.inputs, place="word", value=changed)
        found.append(question.target.of(run.output)[0].detach())
        tell(j + 1, len(question.trace), "texts")
    return torch.stack(found)
