"""What a model reads while it is fine-tuned, what it should say, and whether it says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mixlens.base.errors import InputError
from mixlens.data import Dataset, for_model
from mixlens.scoring.targets import token_id
from mixlens.types import Example

from .finetune_recipes import Recipe

Row = dict[str, Any]  # what the model reads, and under "labels" (or start_positions, end_positions) what it should say


# --- rows: what the model reads, what it should say -------------------------------------------------------------------


def classification_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """The label's number is its place in the dataset's list."""
    rows = []
    for example in examples:
        if "label" not in example.info:
            raise InputError(f"example {example.id} has no label. Train on a split whose labels are public.")
        coded = model.tokenizer(example.text, example.pair, truncation=True, max_length=recipe.length)
        rows.append({**coded, "labels": dataset.order[example.info["label"]]})
    return rows


def prompt_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """Labels are (place of the gap, target, foil). Left out: words that are not one token each, texts that are too
    long."""
    rows = []
    for example in examples:
        if example.foil is None:
            raise InputError(f"example {example.id} has no foil. Prompt tuning is target against foil.")
        given = for_model(example, model)
        try:
            words = [token_id(model, str(word)) for word in (given.target, given.foil)]
        except InputError:
            continue
        coded = model.tokenizer(given.text)
        if len(coded["input_ids"]) <= recipe.length:
            rows.append({**coded, "labels": [coded["input_ids"].index(model.tokenizer.mask_token_id), *words]})
    return rows


def qa_rows(examples: Sequence[Example], model: Any, recipe: Recipe, dataset: Dataset) -> list[Row]:
    """Windows over the paragraph. The first answer counts; a window without it asks for the first token, as BERT
    does."""
    rows = []
    for example in examples:
        answers = example.info["answers"]
        coded = model.tokenizer(
            example.text,
            example.pair,
            truncation="only_second",
            max_length=recipe.length,
            stride=recipe.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for window in range(len(coded["input_ids"])):
            row = {name: coded[name][window] for name in model.tokenizer.model_input_names if name in coded}
            span = span_in(coded["offset_mapping"][window], coded.sequence_ids(window), answers[0] if answers else None)
            rows.append({**row, "start_positions": span[0], "end_positions": span[1]})
    return rows


def span_in(offsets: Sequence[Any], sequences: Sequence[int | None], answer: tuple[int, int] | None) -> tuple[int, int]:
    """First and last token of the answer in a window; (0, 0) where it is not in it whole."""
    if answer is None:
        return 0, 0
    inside = [i for i, side in enumerate(sequences) if side == 1]
    if not inside or offsets[inside[0]][0] > answer[0] or offsets[inside[-1]][1] < answer[1]:
        return 0, 0
    covering = [i for i in inside if offsets[i][0] < answer[1] and offsets[i][1] > answer[0]]
    return (covering[0], covering[-1]) if covering else (0, 0)


ROWS: dict[str, Callable[[Sequence[Example], Any, Recipe, Dataset], list[Row]]] = {
    "classification": classification_rows,
    "prompt": prompt_rows,
    "qa": qa_rows,
}


# --- losses and right answers -----------------------------------------------------------------------------------------


def at_gap(logits: Tensor, labels: Tensor) -> Tensor:
    """[batch 2]: the logits of target and foil at the gap, of [batch pos vocabulary] and labels (gap, target, foil)."""
    rows = torch.arange(len(labels), device=logits.device)
    return logits[rows, labels[:, 0]].gather(-1, labels[:, 1:])


def prompt_loss(output: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Cross-entropy of target against foil alone: no other word of the vocabulary counts."""
    pair = at_gap(output.logits, labels)
    return cross_entropy(pair, torch.zeros(len(pair), dtype=torch.long, device=pair.device))


def right(kind: str, output: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """[batch]: whether the answer is right. Question answering: whether both ends are."""
    if kind == "classification":
        return output.logits.argmax(-1) == batch["labels"]
    if kind == "prompt":
        pair = at_gap(output.logits, batch["labels"])
        return pair[:, 0] > pair[:, 1]
    return (output.start_logits.argmax(-1) == batch["start_positions"]) & (
        output.end_logits.argmax(-1) == batch["end_positions"]
    )


def accuracy(
    kind: str, hf_model: Any, rows: Sequence[Row], collate: Callable[[list[Row]], Any], *, batch: int
) -> float:
    """The share of rows with a right answer."""
    found = []
    hf_model.eval()
    for start in range(0, len(rows), batch):
        given = {
            name: tensor.to(hf_model.device) for name, tensor in collate(list(rows[start : start + batch])).items()
        }
        inputs = {
            name: tensor for name, tensor in given.items() if name not in ("labels", "start_positions", "end_positions")
        }
        with torch.no_grad():
            found.append(right(kind, hf_model(**inputs), given))
    return float(torch.cat(found).float().mean())
