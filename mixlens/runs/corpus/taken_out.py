"""Does a row's answer hold without the words that a method puts first? Its top words are deleted, and random words
beside them.

Every method's `WORDS` highest words are taken out together, with all their tokens; so are `DRAWS` random sets of as
many words (all sets where there are fewer). Marks, tokens that the tokenizer added and the position that is read stay.
A row of no more than `WORDS` words is not checked: every set of it is the same one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...model.model import Model
from ...model.predict import NAMED, gives_number
from ...scoring.removal import answers_without, random_sets
from ...scoring.targets import resolve
from ...types import Attribution, Trace
from .parquet import Row
from .plan import COMPLETENESS, RANDOM_TURNED, RANDOM_WITHOUT, TURNED, WITHOUT
from .row_words import words_of

WORDS = 3  # taken out together
DRAWS = 10  # random sets a row


def refuse_trust(model: Model, target: Any, foil: Any) -> None:
    """Refuse a check that has no answer to turn, or another than the one that is explained."""
    if model.task not in NAMED:
        raise InputError(
            f"trust= takes words out and looks whether the prediction turns, and {model.name!r} ({model.task}) "
            "predicts no "
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
    columns = {
        COMPLETENESS + name: (read.info.get("completeness") or {}).get("relative_gap")
        for name, read in scores.items()
        if name in row
    }
    if row["prediction"] is None:
        return columns
    query = None if trace.model.task == "classification" else trace.predicts[0]
    target = resolve(trace, "predicted", score="probability", query=query)
    words = [list(word.tokens) for word in words_of(row) if any(map(str.isalnum, word.text))]
    words = [at for at in words if not set(at) & set(target.positions)]
    if len(words) <= WORDS:
        return columns
    firsts = {name: frozenset(first_of(np.asarray(row[name], dtype=np.float64), words)) for name in scores}
    draws, _ = random_sets(range(len(words)), WORDS, DRAWS, np.random.default_rng(_seed(row)), all_up_to=DRAWS)
    left = answers_without(trace, target, words, [*firsts.values(), *draws])
    columns |= {WITHOUT + name: left[gone].value for name, gone in firsts.items()}
    columns |= {TURNED + name: not left[gone].is_target for name, gone in firsts.items()}
    columns[RANDOM_WITHOUT] = [left[gone].value for gone in draws]
    columns[RANDOM_TURNED] = [not left[gone].is_target for gone in draws]
    return columns


def first_of(scores: np.ndarray, units: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of the words with the highest scores; of equal ones those that come first."""
    by_word = np.array([scores[list(at)].sum() for at in units])
    return np.argsort(-by_word, kind="stable")[:WORDS].tolist()


def _seed(row: Mapping[str, Any]) -> int:
    """Of the text alone, so that a row has the same draws wherever it stands."""
    return zlib.crc32(" ".join(row["tokens"]).encode())
