"""What the model and the methods say of one row, and the columns that it is written as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...base.errors import MixlensError
from ...model.encode import Encoded
from ...types import Attribution, Map, Prediction, Trace
from .parquet import Row
from .plan import CUT
from .row_words import word_columns
from .rows import InputRow, written

Read = Attribution | MixlensError  # the scores of one method on one row, or the reason why there are none


@dataclass(frozen=True)
class Answer:
    """What the model and the methods say of one row. `seconds`: its share of the seconds of its batch."""

    trace: Trace
    maps: dict[str, Map]
    scores: dict[str, Read]
    prediction: Prediction
    seconds: float


def answers_of(questions: Sequence[Any], answer: Callable[[list[int]], Sequence[Read]]) -> list[Read]:
    """The answer to each question, all of them at once. A question that is a reason not to ask is its own answer."""
    asked = [i for i, question in enumerate(questions) if not isinstance(question, MixlensError)]
    answers = dict(zip(asked, answer(asked), strict=True))
    return [answers.get(i, question) for i, question in enumerate(questions)]


def or_raise(answer: Any) -> Any:
    if isinstance(answer, MixlensError):
        raise answer
    return answer


# --- columns of a row -------------------------------------------------------------------------------------------------


def input_columns(row: InputRow, code: Encoded) -> Row:
    """What was read: where each token begins and ends in its text and which text that is (-1: none), and the words."""
    text = row.text if row.messages is None else code.text  # of a conversation, what the chat template wrote
    columns: Row = {"row": row.row, "id": row.id, "text": text, "pair": row.pair, "input_ids": list(code.input_ids)}
    columns |= {} if row.whole is None else {CUT: row.whole}
    columns["tokens"] = list(map(written, code.tokens))
    if code.offsets is not None and code.sequences is not None:
        columns |= {name: [span[side] for span in code.offsets] for side, name in enumerate(("starts", "ends"))}
        columns["segments"] = [-1 if sequence is None else sequence for sequence in code.sequences]
    return columns | word_columns(columns)


def answer_columns(answer: Answer) -> Row:
    """What the model predicts, and the largest gap of the maps. Methods that explain a target fill it in later."""
    prediction, probability = answer.prediction[0] if answer.prediction else (None, None)
    gap = max((float(scores.info["gap"]) for scores in answer.maps.values()), default=None)
    return {"prediction": written(prediction), "probability": probability, "target": None, "gap": gap}


def map_numbers(maps: Mapping[str, Map], number_type: torch.dtype) -> dict[str, Any]:
    return {name: scores.scores.to("cpu", number_type).numpy() for name, scores in maps.items()}
