"""Baselines: the input without its content, with which Integrated Gradients and DeepLift compare a text."""

from __future__ import annotations

import torch

from ..base.errors import InputError, nearest
from ..model.rerun import Attached
from ..scoring.questions import Question

BASELINES = ("mask", "pad", "zero")


def baseline_run(question: Question, baseline: str | int | None) -> tuple[Attached, str]:
    """The model run on the baseline, and the baseline's name: every token that is not special replaced by the mask
    token ("mask"), by padding ("pad"), by any token (its id), or its word embedding by zeros ("zero"). None: the first
    of these the model has."""
    token, name = blank_token(question, baseline)
    word, ids = question.run.word.detach(), question.inputs["input_ids"]
    with torch.no_grad():
        table = question.model.hf_model.get_input_embeddings()
        blank = torch.zeros_like(word) if token is None else table(torch.full_like(ids, token))
    special = torch.tensor([question.trace.special], device=ids.device)[..., None]
    # Only the embeddings change: positions, masks and the readout token stay those of the text.
    value = torch.where(special, word, blank)
    return question.model.run_attached(question.inputs, place="word", value=value), name


def blank_token(question: Question, baseline: str | int | None) -> tuple[int | None, str]:
    """The id that a token is replaced by (None: its embedding is set to 0), and the baseline's name."""
    if isinstance(baseline, int) and not isinstance(baseline, bool):
        return known_id(question, baseline), str(baseline)
    if baseline is not None and not (isinstance(baseline, str) and baseline in BASELINES):
        raise InputError(f"unknown baseline {baseline!r}. {nearest(str(baseline), BASELINES)}")
    tokens = tokens_of(question)
    if baseline in tokens and tokens[baseline] is None:
        raise InputError(f"{question.model.name!r} has no {baseline} token. Use baseline='zero'.")
    name = baseline or next((name for name, token in tokens.items() if token is not None), "zero")
    return tokens.get(name), name


def tokens_of(question: Question) -> dict[str, int | None]:
    """The ids of the mask token and of padding, by the baselines' names; None where the model has no such token."""
    tokenizer = question.model.tokenizer
    mask = None if tokenizer is None else tokenizer.mask_token_id
    return {"mask": mask, "pad": question.model.hf_model.config.pad_token_id}


def known_id(question: Question, token: int) -> int:
    """The id itself; an id that is not in the vocabulary is refused."""
    size = question.model.hf_model.config.vocab_size
    if not 0 <= token < size:
        raise InputError(f"id {token} is not in the vocabulary of {question.model.name!r} (0 to {size - 1}).")
    return token
