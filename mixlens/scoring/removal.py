"""Texts with parts taken away, and the target's number on what is left: x without U, for units U (tokens, words, sentences).

A unit is deleted, or each of its tokens is replaced by padding, by the mask token, by the unknown token, by any token (its id),
or by what a masked language model puts there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..model.model import Model
from ..types import Trace
from .questions import HEADS, MOST_ROWS, TOGETHER
from .targets import Target

WAYS = ("delete", "pad", "mask", "unk", "infill")
UNITS = ("token", "word", "sentence")
ENDS = (".", "!", "?")  # tokens that end a sentence
Unit = tuple[int, ...]  # positions of the tokens of one unit
Row = dict[str, Any]  # the inputs of the model for one text, without padding


@dataclass(frozen=True)
class Infill:
    """Removed tokens are replaced by the most probable other tokens of a masked language model with the same vocabulary."""

    model: Model


Replacement = str | int | Infill


# --- units --------------------------------------------------------------------------------------------------------------


def units_of(trace: Trace, unit: str, stay: Collection[int]) -> list[Unit]:
    """The units of a text in their order, without the positions that stay; a unit of which nothing is left is no unit."""
    _refuse_other("unit", unit, UNITS)
    groups = {"token": _tokens, "word": _words, "sentence": _sentences}[unit](trace)
    movable = [tuple(i for i in group if i not in stay) for group in groups]
    return [group for group in movable if group]


def staying(trace: Trace, target: Target) -> set[int]:
    """The positions that are never taken away: special tokens, and those where the prediction is read."""
    return {i for i, special in enumerate(trace.special) if special} | set(target.positions)


def removable_units(trace: Trace, target: Target, unit: str = "token") -> list[Unit]:
    """The units that may be taken away. Where no position stays, the last unit does: a text is never empty."""
    stay = staying(trace, target)
    units = units_of(trace, unit, stay)
    units = units if stay else units[:-1]
    if not units:
        raise InputError("there is no token to take away: all are special, or predict, or there is one alone.")
    return units


def _tokens(trace: Trace) -> list[Unit]:
    return [(i,) for i in range(len(trace))]


def _words(trace: Trace) -> list[Unit]:
    if trace.words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    return [positions for _, positions in trace.words]


def _sentences(trace: Trace) -> list[Unit]:
    """Runs of tokens up to a full stop, an exclamation mark or a question mark, the mark included."""
    ends = [i + 1 for i, token in enumerate(trace.tokens) if token in ENDS or trace.special[i]]
    starts = [0, *ends]
    return [tuple(range(start, end)) for start, end in zip(starts, [*ends, len(trace)], strict=True) if start < end]


def by_unit(scores: NDArray[Any], units: Sequence[Unit]) -> NDArray[np.float64]:
    """[unit]: the sum of the scores of each unit's tokens."""
    return np.array([scores[list(unit)].sum() for unit in units], dtype=np.float64)


# --- texts with parts taken away ----------------------------------------------------------------------------------------


def outcomes(
    trace: Trace, gone: Sequence[Sequence[int]], target: Target, *, replacement: Replacement = "delete"
) -> NDArray[np.float64]:
    """[change]: the target's number with the tokens at these positions deleted or replaced, run in batches."""
    return np.array(
        [answer.value for answer in answers(trace, gone, target, replacement=replacement)], dtype=np.float64
    )


@dataclass(frozen=True)
class Answer:
    """What the model says of a changed text: the target's number, and what it predicts in the target's place."""

    value: float
    predicted: tuple[int, ...]  # a class, a token, or the start and the end of a span
    target: Target  # where it is in the changed text
    input_ids: tuple[int, ...]

    @property
    def is_target(self) -> bool:
        """Does the model still predict the target?"""
        return self.predicted == self.target.ids


def answers(
    trace: Trace, gone: Sequence[Sequence[int]], target: Target, *, replacement: Replacement = "delete"
) -> list[Answer]:
    """The answer to each text with the tokens at these positions deleted or replaced, run in batches."""
    rows = _rows(trace, gone, replacement)
    targets = [_moved(target, set(positions)) if replacement == "delete" else target for positions in gone]
    step = trace.model.batch_limit or max(1, min(MOST_ROWS, TOGETHER // max(1, len(trace))))
    found: list[Answer] = []
    for start in range(0, len(rows), step):
        found += _answers(trace.model, rows[start : start + step], targets[start : start + step], compare=start == 0)
        tell(len(found), len(rows), "texts")
    return found


def every_outcome(
    trace: Trace,
    gone: Sequence[Sequence[int]],
    targets: Sequence[Sequence[Target]],
    *,
    replacement: Replacement = "delete",
) -> list[list[float]]:
    """[change][target]: the numbers of several targets with the tokens at these positions deleted or replaced. The targets of
    a change name positions of the changed text, and are read in one pass."""
    from tqdm.auto import tqdm

    rows = _rows(trace, gone, replacement)
    step = trace.model.batch_limit or max(1, min(MOST_ROWS, TOGETHER // max(1, len(trace))))
    values: list[list[float]] = []
    for start in tqdm(range(0, len(rows), step), desc="leaving out", delay=2, leave=False, disable=None):
        batch: Any = [SimpleNamespace(**row) for row in rows[start : start + step]]
        output = trace.model.outputs(batch, compare=start == 0)
        for number, row in enumerate(rows[start : start + step]):
            part = _part(output, [number], len(row["input_ids"]))
            values.append([float(target.of(part)[0]) for target in targets[start + number]])
        tell(len(values), len(rows), "texts")
    return values


def _answers(model: Model, rows: Sequence[Row], targets: Sequence[Target], *, compare: bool) -> list[Answer]:
    """Of each row, in one pass. Rows that read the same position are read together."""
    texts: Any = [SimpleNamespace(**row) for row in rows]
    output = model.outputs(texts, compare=compare)
    groups: dict[tuple[Target, int], list[int]] = defaultdict(list)
    for number, (row, target) in enumerate(zip(rows, targets, strict=True)):
        groups[target, len(row["input_ids"])].append(number)
    found: dict[int, Answer] = {}
    for (target, length), numbers in groups.items():
        part = _part(output, numbers, length)
        values = target.of(part).double().cpu().tolist()
        predicted = zip(*(logits.argmax(-1).tolist() for logits in target.logits_of(part)), strict=True)
        for number, value, ids in zip(numbers, values, predicted, strict=True):
            found[number] = Answer(value, ids, target, tuple(rows[number]["input_ids"]))
    return list(map(found.__getitem__, range(len(rows))))


def _part(output: Any, numbers: Sequence[int], length: int) -> SimpleNamespace:
    """The outputs of some rows of a batch. Logits of spans are over positions: those of padding are cut off."""
    heads = {name: getattr(output, name, None) for name in HEADS}
    parts = {name: logits[list(numbers)] for name, logits in heads.items() if logits is not None}
    return SimpleNamespace(**{name: part if name == "logits" else part[:, :length] for name, part in parts.items()})


def _rows(trace: Trace, gone: Sequence[Sequence[int]], replacement: Replacement) -> list[Row]:
    """The inputs of the model for each changed text."""
    if replacement == "delete":
        return [_without(trace, set(positions)) for positions in gone]
    if replacement == "infill" or isinstance(replacement, Infill):
        return _infilled(trace, gone, _filler(trace, replacement))
    token = _token(trace, replacement)
    return [_replaced(trace, dict.fromkeys(positions, token)) for positions in gone]


def _without(trace: Trace, positions: set[int]) -> Row:
    """The inputs of the model without the tokens at these positions."""
    rest = [i for i in range(len(trace)) if i not in positions]
    return {name: None if values is None else [values[i] for i in rest] for name, values in _inputs(trace).items()}


def _replaced(trace: Trace, tokens: dict[int, int]) -> Row:
    """The inputs of the model with other tokens at some positions."""
    return {**_inputs(trace), "input_ids": [tokens.get(i, id_) for i, id_ in enumerate(trace.input_ids)]}


def _inputs(trace: Trace) -> Row:
    types = None if trace.token_type_ids is None else list(trace.token_type_ids)
    return {"input_ids": list(trace.input_ids), "attention_mask": list(trace.attention_mask), "token_type_ids": types}


def _moved(target: Target, away: set[int]) -> Target:
    """The same target where tokens are missing: positions behind them move to the left.

    A position that is away itself (the last word of a causal model's text) is read at the token before it.
    """
    positions = tuple(max(0, p - sum(i < p for i in away) - (p in away)) for p in target.positions)
    return replace(target, positions=positions, ids=positions if target.task == "question-answering" else target.ids)


def _token(trace: Trace, replacement: str | int) -> int:
    """The id that tokens are replaced by."""
    if isinstance(replacement, int):
        return _known_token(trace, replacement)
    _refuse_other("replacement", replacement, WAYS)
    token = filler_token(trace.model, replacement)
    if token is None:
        raise InputError(
            f"{trace.model.name!r} has no {replacement} token. Use replacement='delete' or the id of a token."
        )
    return token


def _known_token(trace: Trace, number: int) -> int:
    """An id of the vocabulary; another number is refused."""
    size = trace.model.hf_model.config.get_text_config().vocab_size
    if not 0 <= number < size:
        raise InputError(f"replacement {number} is no token of {trace.model.name!r}: ids are 0 to {size - 1}.")
    return number


def filler_token(model: Model, replacement: str) -> int | None:
    """The id of the pad, mask or unk token of a model; None where it has none."""
    source = model.hf_model.config if replacement == "pad" else model.tokenizer
    token = getattr(source, f"{replacement}_token_id", None)
    return None if token is None else int(token)


def _refuse_other(kind: str, value: Any, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise InputError(f"unknown {kind} {value!r}. {nearest(str(value), allowed)}")


# --- infilling ----------------------------------------------------------------------------------------------------------


def can_fill(model: Model) -> bool:
    """Whether a model can put tokens into gaps: a masked language model that has a mask token."""
    return model.task == "masked-lm" and filler_token(model, "mask") is not None


def _filler(trace: Trace, replacement: Replacement) -> Model:
    """The masked language model that fills gaps: the one that is named, or the traced model itself."""
    model = replacement.model if isinstance(replacement, Infill) else trace.model
    if not can_fill(model):
        raise InputError(
            f"replacement='infill' needs a masked language model, and {model.name!r} is none. Give Infill(model), with a masked "
            "language model that has the same vocabulary."
        )
    if model is not trace.model and model.tokenizer.get_vocab() != trace.model.tokenizer.get_vocab():
        raise InputError(f"{model.name!r} cannot fill gaps for {trace.model.name!r}: their vocabularies differ.")
    return model


def _infilled(trace: Trace, gone: Sequence[Sequence[int]], filler: Model) -> list[Row]:
    """The inputs of the model with the most probable other token at each position that is gone, all gaps filled at once."""
    masks = [dict.fromkeys(positions, _mask(filler)) for positions in gone]
    masked = [_replaced(trace, gaps) for gaps in masks]
    rows: list[Row] = []
    step = filler.batch_limit or MOST_ROWS
    for start in range(0, len(masked), step):
        batch: Any = [SimpleNamespace(**row) for row in masked[start : start + step]]
        logits = filler.outputs(batch, compare=start == 0).logits
        rows += [_replaced(trace, _likely(trace, filler, row, gone[start + i])) for i, row in enumerate(logits)]
    return rows


def _mask(filler: Model) -> int:
    token = filler_token(filler, "mask")
    assert token is not None
    return token


def _likely(trace: Trace, filler: Model, logits: Tensor, positions: Sequence[int]) -> dict[int, int]:
    """Position -> the most probable token that is neither the original one nor special."""
    logits = logits[: len(trace)].clone()
    logits[:, list(filler.tokenizer.all_special_ids)] = -torch.inf
    for i in positions:
        logits[i, trace.input_ids[i]] = -torch.inf
    return {i: int(logits[i].argmax()) for i in positions}


# --- random subsets -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subsets:
    """Random subsets of a text's units, and the model's log-odds of the target where these units alone are kept."""

    units: tuple[Unit, ...]
    kept: NDArray[np.bool_]  # [subset unit]
    log_odds: NDArray[np.float64]  # [subset]: log p / (1 - p)


def random_subsets(
    trace: Trace,
    target: Target,
    *,
    unit: str,
    count: int,
    seed: Sequence[int],
    share: float = 0.5,
    replacement: Replacement = "delete",
) -> Subsets:
    """Each unit is kept with probability `share`, in `count` subsets drawn by `seed` (ContextCite, Cohen-Wang et al. 2024)."""
    units = removable_units(trace, target, unit)
    kept = np.random.default_rng(list(seed)).random((count, len(units))) < share
    return measured_subsets(trace, target, units, kept, replacement=replacement)


def measured_subsets(
    trace: Trace, target: Target, units: Sequence[Unit], kept: NDArray[np.bool_], *, replacement: Replacement = "delete"
) -> Subsets:
    """What the model says where of these units those alone are kept that `kept` [subset unit] says."""
    gone = [list(positions_of(units, row)) for row in ~kept]
    logs = outcomes(trace, gone, replace(target, score="log_probability"), replacement=replacement)
    return Subsets(tuple(units), kept, log_odds(logs))


def positions_of(units: Sequence[Unit], chosen: Sequence[Any] | NDArray[Any]) -> Iterator[int]:
    """The positions of the units that are chosen, 0 or 1 for each."""
    for unit, taken in zip(units, chosen, strict=True):
        yield from unit if taken else ()


def log_odds(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """log p / (1 - p) from log p; p is taken as at most 1 - 1e-7, the last number below 1 that float32 tells apart."""
    capped = np.minimum(logs, np.log1p(-1e-7))
    odds: NDArray[np.float64] = capped - np.log(-np.expm1(capped))
    return odds
