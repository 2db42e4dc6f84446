"""The input without its content: what Integrated Gradients and DeepLift compare a text with."""

from __future__ import annotations

import torch
from torch import Tensor

from .attributing import Question
from .errors import InputError, nearest
from .model import Attached

BASELINES = ("mask", "pad", "zero")


def baseline_run(question: Question, baseline: str | int | None) -> tuple[Attached, str]:
    """The model run on the baseline, and which one it was: every token that is not special replaced by the mask token
    ("mask"), by padding ("pad"), by any token (its id), or its word embedding by zeros ("zero"). None: the first of these
    the model has."""
    ids, used = baseline_ids(question, baseline)
    word = question.run.word.detach()
    with torch.no_grad():
        blank = torch.zeros_like(word) if ids is None else question.model.hf_model.get_input_embeddings()(ids)
    # Only the embeddings change: positions, masks and the readout token stay those of the text.
    word = torch.where(_kept(question)[..., None], word, blank)
    return question.model.run_attached(question.inputs, place="word", value=word), used


def baseline_ids(question: Question, baseline: str | int | None) -> tuple[Tensor | None, str]:
    ids = question.inputs["input_ids"]
    if isinstance(baseline, int):
        return torch.where(_kept(question), ids, torch.full_like(ids, baseline)), str(baseline)
    if baseline is not None and baseline not in BASELINES:
        raise InputError(f"unknown baseline {baseline!r}. {nearest(str(baseline), BASELINES)}")
    tokenizer = question.model.tokenizer
    available = {
        "mask": None if tokenizer is None else tokenizer.mask_token_id,
        "pad": question.model.hf_model.config.pad_token_id,
    }
    if baseline in available and available[baseline] is None:
        raise InputError(f"{question.model.name!r} has no {baseline} token. Use baseline='zero'.")
    used = baseline or next((name for name, token in available.items() if token is not None), "zero")
    if used == "zero":
        return None, used
    return torch.where(_kept(question), ids, torch.full_like(ids, available[used])), used


def _kept(question: Question) -> Tensor:
    return torch.tensor([question.trace.special], device=question.model.device)
