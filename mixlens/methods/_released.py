"""How released code runs a model where the papers say nothing of it: without segment ids, with special tokens
hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..scoring.questions import Question


def inputs_of(question: Question, variant: str, *, mask_special: bool | None) -> dict[str, Any]:
    """What the model is run on: released code never passes segment ids.

    `mask_special`: [CLS] and [SEP] are hidden from attention, as AttCAT's notebooks hide them while they explain; None:
    where `variant` is "released", AttCAT's own."""
    inputs = question.inputs
    if variant != "paper":
        inputs = {key: value for key, value in inputs.items() if key != "token_type_ids"}
    if variant == "released" if mask_special is None else mask_special:
        shown = torch.tensor([[not special for special in question.trace.special]], device=question.model.device)
        inputs = {**inputs, "attention_mask": inputs["attention_mask"] * shown}
    return inputs


def rollout_of(layers: Sequence[Tensor], *, normalize: bool) -> Tensor:
    """The product of (M + I), last layer on the left (eq. 14); with `normalize` each is divided by its row sums."""
    rolled = torch.eye(len(layers[0]), dtype=layers[0].dtype, device=layers[0].device)
    for layer in layers:
        mixed = layer.to(rolled.device)
        mixed = mixed + torch.eye(len(mixed), dtype=mixed.dtype, device=mixed.device)
        rolled = (mixed / mixed.sum(-1, keepdim=True) if normalize else mixed) @ rolled
    return rolled
