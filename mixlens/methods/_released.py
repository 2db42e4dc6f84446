"""How released code runs a model where the papers say nothing of it: without segment ids, with special tokens hidden."""

from __future__ import annotations

from typing import Any

import torch

from ..scoring.questions import Question


def released_inputs(question: Question, *, mask_special: bool) -> dict[str, Any]:
    """A question's inputs without segment ids, which released code never passes. `mask_special`: [CLS] and [SEP] are hidden
    from attention, as AttCAT's notebooks hide them while they explain."""
    inputs = {key: value for key, value in question.inputs.items() if key != "token_type_ids"}
    return with_special_hidden(question, inputs) if mask_special else inputs


def inputs_of(question: Question, variant: str, *, mask_special: bool | None) -> dict[str, Any]:
    """What the model is run on. `mask_special` None: special tokens are hidden where `variant` is "released", AttCAT's own."""
    hidden = variant == "released" if mask_special is None else mask_special
    if variant != "paper":
        return released_inputs(question, mask_special=hidden)
    return with_special_hidden(question, question.inputs) if hidden else question.inputs


def with_special_hidden(question: Question, inputs: dict[str, Any]) -> dict[str, Any]:
    """The same inputs with an attention mask of 0 at special tokens."""
    shown = torch.tensor([[not special for special in question.trace.special]], device=question.model.device)
    return {**inputs, "attention_mask": inputs["attention_mask"] * shown}
