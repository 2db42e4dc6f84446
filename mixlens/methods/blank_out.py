"""Blank-out: take a token away and see what happens to the prediction. The reference of several papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, nearest
from ..questions import Question
from ._attribution import attribution
from ._baselines import known_id

PAPER = "Li et al. 2016, Understanding Neural Networks through Representation Erasure"
WAYS = ("mask", "unk", "delete", "zero")


@attribution(paper=PAPER, variants=("paper", "released"), cost="n", score="probability")
def blank_out(
    question: Question, *, variant: str = "paper", replacement: str | int = "mask", absolute: bool = False
) -> tuple[Tensor, dict[str, Any]]:
    """target(x) - target(x without token j): positive where the token spoke for the target, unless `absolute`.

    A token is replaced by [MASK] ("mask"), [UNK] ("unk"), any token (its id), a zero word embedding ("zero"), or "delete"d.
    Explains the probability by default; with a foil, the probability among the two. `released` (ALTI's code): absolute,
    and the blanked text's logit goes through a sigmoid where the whole text's went through the softmax.
    """
    if (
        isinstance(replacement, bool)
        or not isinstance(replacement, int | str)
        or (replacement not in WAYS and not isinstance(replacement, int))
    ):
        raise InputError(f"unknown replacement {replacement!r}. {nearest(str(replacement), WAYS)}")
    whole = question.target.of(question.model.outputs([question.trace]))[0]
    if variant == "released":
        logit = _blanked(question, replacement, "logit")
        return (whole - logit.sigmoid()).abs(), {"whole": float(whole)}
    change = whole - _blanked(question, replacement, question.target.score)
    return change.abs() if absolute else change, {"whole": float(whole)}


def _blanked(question: Question, replacement: str | int, score: str) -> Tensor:
    """The target's number with each token blanked in turn, [pos]."""
    trace = question.trace
    n = len(trace)
    explained = Question(trace, replace(question.target, score=score), None, question.query)
    if replacement == "zero":
        with torch.no_grad():
            word = question.run.word.detach()
            return torch.stack([_zeroed(explained, word, j) for j in range(n)])
    rows = []
    token = None if replacement == "delete" else _token(question, replacement)
    for j in range(n):
        keep = [i for i in range(n) if i != j or token is not None]
        if not keep or (replacement == "delete" and j in question.target.positions):
            keep = list(range(n))  # the position that predicts cannot be taken out: its score is 0
        rows.append(
            {
                "input_ids": [token if i == j and token is not None else trace.input_ids[i] for i in keep],
                "attention_mask": [trace.attention_mask[i] for i in keep],
                "token_type_ids": None if trace.token_type_ids is None else [trace.token_type_ids[i] for i in keep],
            }
        )
    if replacement != "delete" or not question.target.positions:
        return explained.values(rows)
    return torch.cat([_shifted(explained, j).values([row]) for j, row in enumerate(rows)])


def _shifted(question: Question, gone: int) -> Question:
    """The same question where token `gone` is missing: positions behind it move one to the left."""
    target = question.target
    positions = tuple(p - (gone < p) for p in target.positions)
    ids = positions if target.task == "question-answering" else target.ids
    return Question(question.trace, replace(target, positions=positions, ids=ids), None, question.query)


def _zeroed(question: Question, word: Tensor, j: int) -> Tensor:
    blanked = word.clone()
    blanked[:, j] = 0
    return question.target.of(question.model.run_attached(question.inputs, place="word", value=blanked).output)[0].detach()


def _token(question: Question, replacement: str | int) -> int:
    if isinstance(replacement, int):
        return known_id(question, replacement)
    tokenizer = question.model.tokenizer
    token = None if tokenizer is None else {"mask": tokenizer.mask_token_id, "unk": tokenizer.unk_token_id}[replacement]
    if token is None:
        raise InputError(f"{question.model.name!r} has no {replacement} token. Use replacement='delete', 'zero' or an id.")
    return int(token)
