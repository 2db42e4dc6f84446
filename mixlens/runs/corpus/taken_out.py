"""Does a row's answer hold without the words that a method puts first? Its top words are deleted, and random words beside them.

Every method's `WORDS` highest words are taken out together, with all their tokens; so are `DRAWS` random sets of as many words
(all sets where there are fewer). Marks, tokens that the tokenizer added and the position that is read stay. A row of no more than
`WORDS` words is not checked: every set of it is the same one.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...model.model import Model
from ...model.predict import NAMED, gives_number
from ...scoring.questions import MOST_ROWS, TOGETHER
from ...scoring.targets import Target, resolve
from ...types import Attribution, Trace
from .parquet import Row
from .plan import COMPLETENESS, RANDOM_TURNED, RANDOM_WITHOUT, TURNED, WITHOUT
from .row_words import words_of

WORDS = 3  # taken out together
DRAWS = 10  # random sets a row
Gone = frozenset[int]  # positions that are taken out


@dataclass(frozen=True)
class Left:
    """What is left of an answer: its probability, and whether another class or word is more probable now."""

    probability: float
    turned: bool


def refuse_trust(model: Model, target: Any, foil: Any) -> None:
    """Refuse a check that has no answer to turn, or another than the one that is explained."""
    if model.task not in NAMED:
        raise InputError(
            f"trust= takes words out and looks whether the prediction turns, and {model.name!r} ({model.task}) predicts no "
            f"one class or word for a text. Allowed: {', '.join(NAMED)}. Leave trust= out."
        )
    if gives_number(model):
        raise InputError(f"{model.name!r} gives one number and no class, so no prediction can turn. Leave trust= out.")
    if (target, foil) != ("predicted", None):
        raise InputError(
            "trust= checks the words for the predicted class or word. Leave target= and foil= out, or trust=."
        )


def trust_columns(trace: Trace, row: Row, scores: Mapping[str, Attribution]) -> Row:
    """The columns of the check of one row; empty where its words cannot be compared with others."""
    columns = {COMPLETENESS + name: _completeness(read) for name, read in scores.items() if name in row}
    if row["prediction"] is None:
        return columns
    target = _target(trace)
    units = _units(row, target.positions)
    return columns | _left_columns(trace, target, units, row, scores) if len(units) > WORDS else columns


def _completeness(read: Attribution) -> float | None:
    """By how much a method's scores miss the sum that they have to have, as a share of it; None where it names no sum."""
    found = read.info.get("completeness") or {}
    return found.get("relative_gap")


def _left_columns(
    trace: Trace, target: Target, units: Sequence[Sequence[int]], row: Row, scores: Mapping[str, Attribution]
) -> Row:
    firsts = {name: _positions(units, first_of(np.asarray(row[name], dtype=np.float64), units)) for name in scores}
    draws = [_positions(units, numbers) for numbers in drawn_sets(len(units), _seed(row))]
    left = _left_without(trace, target, {*firsts.values(), *draws})
    columns: Row = {WITHOUT + name: left[gone].probability for name, gone in firsts.items()}
    columns |= {TURNED + name: left[gone].turned for name, gone in firsts.items()}
    by_draw = [left[gone] for gone in draws]
    return columns | {
        RANDOM_WITHOUT: [one.probability for one in by_draw],
        RANDOM_TURNED: [one.turned for one in by_draw],
    }


# --- which words --------------------------------------------------------------------------------------------------------


def _target(trace: Trace) -> Target:
    """The predicted class or word, as a probability."""
    query = None if trace.model.task == "classification" else trace.predicts[0]
    return resolve(trace, "predicted", score="probability", query=query)


def _units(row: Mapping[str, Any], stay: Collection[int]) -> list[list[int]]:
    """The positions of each word that may be taken out: with a letter or a digit, and without a position that is read."""
    words = [word for word in words_of(row) if not word.is_mark]
    return [list(word.tokens) for word in words if not set(word.tokens) & set(stay)]


def first_of(scores: np.ndarray, units: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of the words with the highest scores; of equal ones those that come first."""
    by_word = np.array([scores[list(at)].sum() for at in units])
    return np.argsort(-by_word, kind="stable")[:WORDS].tolist()


def drawn_sets(count: int, seed: int) -> list[tuple[int, ...]]:
    """Random sets of words by their numbers, no two of a row alike; all sets where there are no more than `DRAWS`."""
    if comb(count, WORDS) <= DRAWS:
        return list(combinations(range(count), WORDS))
    generator = np.random.default_rng(seed)
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < DRAWS:
        sets[tuple(sorted(generator.choice(count, WORDS, replace=False).tolist()))] = None
    return list(sets)


def _seed(row: Mapping[str, Any]) -> int:
    """Of the text alone, so that a row has the same draws wherever it stands."""
    return zlib.crc32(" ".join(row["tokens"]).encode())


def _positions(units: Sequence[Sequence[int]], numbers: Sequence[int]) -> Gone:
    return frozenset(position for number in numbers for position in units[number])


# --- what is left -------------------------------------------------------------------------------------------------------


def _left_without(trace: Trace, target: Target, sets: Collection[Gone]) -> dict[Gone, Left]:
    """The answer without each set of positions, run in batches."""
    ordered = sorted(sets, key=sorted)
    step = trace.model.batch_limit or max(1, min(MOST_ROWS, TOGETHER // max(1, len(trace))))
    batches = [ordered[start : start + step] for start in range(0, len(ordered), step)]
    left: dict[Gone, Left] = {}
    for batch in batches:
        left |= zip(batch, _answers(trace, target, batch, compare=not left), strict=True)
    return left


def _answers(trace: Trace, target: Target, batch: Sequence[Gone], *, compare: bool) -> list[Left]:
    logits = trace.model.outputs([_without(trace, gone) for gone in batch], compare=compare).logits
    rows = [
        logits[number] if not target.positions else logits[number, _moved(target, gone)]
        for number, gone in enumerate(batch)
    ]
    wanted = target.ids[0]
    shares = [row.double().softmax(-1) if row.device.type != "mps" else row.softmax(-1) for row in rows]
    return [Left(float(share[wanted]), int(share.argmax()) != wanted) for share in shares]


def _without(trace: Trace, gone: Gone) -> Any:
    """The inputs of the model without the tokens at these positions."""
    inputs = {name: getattr(trace, name) for name in ("input_ids", "attention_mask", "token_type_ids")}
    return SimpleNamespace(**{name: values and _rest(values, gone) for name, values in inputs.items()})


def _rest(values: Sequence[int], gone: Gone) -> list[int]:
    return [value for position, value in enumerate(values) if position not in gone]


def _moved(target: Target, gone: Gone) -> int:
    """The position that is read, where tokens before it are missing."""
    place = target.positions[0]
    return place - sum(position < place for position in gone)
