"""Texts with parts taken away, and the target's number on what is left: x without U, for units U (tokens, words,
sentences).

A unit is deleted, or each of its tokens is replaced by padding, by the mask token, by the unknown token, by any token
(its id), or by what a masked language model puts there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.steps import tell
from ..base.words import sentences_of, words_in
from ..model.model import Model
from ..types import Trace
from .questions import HEADS, MOST_ROWS, TOGETHER
from .targets import Target

WAYS = ("delete", "pad", "mask", "unk", "infill")
UNITS = ("token", "word", "sentence")
Unit = tuple[int, ...]  # positions of the tokens of one unit
Row = dict[str, Any]  # the inputs of the model for one text, without padding


@dataclass(frozen=True)
class Infill:
    """Removed tokens are replaced by the most probable other tokens of a masked language model with the same
    vocabulary."""

    model: Model


Replacement = str | int | Infill


# --- units ------------------------------------------------------------------------------------------------------------


def units_of(trace: Trace, unit: str, stay: Collection[int]) -> list[Unit]:
    """The units of a text in their order, without the positions that stay; a unit of which nothing is left is no
    unit."""
    _refuse_other("unit", unit, UNITS)
    if unit == "token":
        groups: list[Unit] = [(i,) for i in range(len(trace))]
    elif unit == "sentence":
        words = words_in(trace)
        groups = [tuple(i for number in numbers for i in words[number].tokens) for numbers in sentences_of(words)]
    elif trace.words is None:
        raise InputError("the words are not known: the input was ids, or the tokenizer gives no character offsets.")
    else:
        groups = [positions for _, positions in trace.words]
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


def by_unit(scores: NDArray[Any], units: Sequence[Unit]) -> NDArray[np.float64]:
    """[unit]: the sum of the scores of each unit's tokens."""
    return np.array([scores[list(unit)].sum() for unit in units], dtype=np.float64)


# --- texts with parts taken away --------------------------------------------------------------------------------------


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


def asked(
    trace: Trace,
    gone: Sequence[Collection[int]],
    targets: Sequence[Sequence[Target]],
    *,
    replacement: Replacement = "delete",
    bar: str | None = None,
) -> list[list[Answer]]:
    """[change][target]: what the model says with the tokens at these positions deleted or replaced, run in batches.

    The targets of a change name positions of the changed text. Texts that read the same position are read together,
    in float64. `bar` names the work, where a terminal shows its progress."""
    from tqdm.auto import tqdm

    rows = _rows(trace, [sorted(positions) for positions in gone], replacement)
    step = trace.model.batch_limit or max(1, min(MOST_ROWS, TOGETHER // max(1, len(trace))))
    found: list[list[Answer]] = []
    for start in tqdm(range(0, len(rows), step), desc=bar, delay=2, leave=False, disable=None if bar else True):
        batch = rows[start : start + step]
        texts: Any = [SimpleNamespace(**row) for row in batch]
        output = trace.model.outputs(texts, compare=start == 0)
        groups: dict[tuple[Target, int], list[int]] = defaultdict(list)
        for number, row in enumerate(batch):
            for target in targets[start + number]:
                groups[target, len(row["input_ids"])].append(number)
        answers: dict[tuple[Target, int], Answer] = {}
        for (target, length), numbers in groups.items():
            part, read = _part(output, numbers, length, target)
            predicted = zip(*(logits.argmax(-1).tolist() for logits in read.logits_of(part)), strict=True)
            for number, value, ids in zip(numbers, read.of(part).tolist(), predicted, strict=True):
                answers[target, number] = Answer(value, ids, target, tuple(batch[number]["input_ids"]))
        found += [[answers[target, number] for target in targets[start + number]] for number in range(len(batch))]
        tell(len(found), len(rows), "texts")
    return found


def _part(output: Any, numbers: Sequence[int], length: int, target: Target) -> tuple[SimpleNamespace, Target]:
    """The logits of some texts of a batch where a target is read, in float64, and the target as it reads them. Logits
    of spans are over positions: those of padding are cut off."""
    heads = {name: logits[list(numbers)] for name in HEADS if (logits := getattr(output, name, None)) is not None}
    if target.positions and "logits" in heads:
        heads["logits"] = heads["logits"][:, list(target.positions)]
        target = replace(target, positions=tuple(range(len(target.positions))))
    cut = {name: part if name == "logits" else part[:, :length] for name, part in heads.items()}
    return SimpleNamespace(**{name: part.cpu().double() for name, part in cut.items()}), target


def answers(
    trace: Trace, gone: Sequence[Collection[int]], target: Target, *, replacement: Replacement = "delete"
) -> list[Answer]:
    """The answer to each text with the tokens at these positions deleted or replaced; the target moves with its
    tokens."""
    targets = [[moved(target, positions) if replacement == "delete" else target] for positions in gone]
    return [answer for (answer,) in asked(trace, gone, targets, replacement=replacement)]


def outcomes(
    trace: Trace, gone: Sequence[Collection[int]], target: Target, *, replacement: Replacement = "delete"
) -> NDArray[np.float64]:
    """[change]: the target's number with the tokens at these positions deleted or replaced."""
    return np.array([one.value for one in answers(trace, gone, target, replacement=replacement)], dtype=np.float64)


def answers_without(
    trace: Trace,
    target: Target,
    words: Sequence[Sequence[int]],
    sets: Iterable[Collection[int]],
    *,
    replacement: Replacement = "delete",
) -> dict[frozenset[int], Answer]:
    """The answer without each set of words, by their numbers. `words`: the positions of each. A set is asked once;
    sets of one size stand together, as they are of similar length, and share their passes."""
    every = sorted(set(map(frozenset, sets)), key=lambda one: (len(one), sorted(one)))
    gone = [[position for word in one for position in words[word]] for one in every]
    return dict(zip(every, answers(trace, gone, target, replacement=replacement), strict=True))


def random_sets(
    free: Sequence[int],
    size: int,
    draws: int,
    generator: np.random.Generator,
    *,
    apart: Collection[int] | None = None,
    all_up_to: int = 0,
) -> tuple[list[frozenset[int]], bool]:
    """Sets of `size` words, other than `apart`: all where they are no more than `all_up_to`, else as many different
    ones as there are draws; and whether these are all."""
    own = None if apart is None else frozenset(apart)
    if comb(len(free), size) - (own is not None) <= all_up_to:
        return [one for one in map(frozenset, combinations(free, size)) if one != own], True
    drawn: dict[frozenset[int], None] = {}
    while len(drawn) < draws:
        one = frozenset(map(int, generator.choice(list(free), size, replace=False)))
        drawn |= {one: None} if one != own else {}
    return list(drawn), False


def moved(target: Target, away: Collection[int]) -> Target:
    """The same target where tokens are missing: positions behind them move to the left.

    A position that is away itself (the last word of a causal model's text) is read at the token before it.
    """
    positions = tuple(max(0, p - sum(i < p for i in away) - (p in away)) for p in target.positions)
    return replace(target, positions=positions, ids=positions if target.task == "question-answering" else target.ids)


def _rows(trace: Trace, gone: Sequence[Sequence[int]], replacement: Replacement) -> list[Row]:
    """The inputs of the model for each changed text."""
    if replacement == "delete":
        whole = _inputs(trace).items()
        kept = [[i for i in range(len(trace)) if i not in set(positions)] for positions in gone]
        return [{name: None if row is None else [row[i] for i in places] for name, row in whole} for places in kept]
    if replacement == "infill" or isinstance(replacement, Infill):
        return _infilled(trace, gone, replacement)
    if isinstance(replacement, int):
        token, size = replacement, trace.model.hf_model.config.get_text_config().vocab_size
        if not 0 <= token < size:
            raise InputError(f"replacement {token} is no token of {trace.model.name!r}: ids are 0 to {size - 1}.")
    else:
        _refuse_other("replacement", replacement, WAYS)
        filler = filler_token(trace.model, replacement)
        if filler is None:
            raise InputError(
                f"{trace.model.name!r} has no {replacement} token. Use replacement='delete' or the id of a token."
            )
        token = filler
    return [_replaced(trace, dict.fromkeys(positions, token)) for positions in gone]


def _replaced(trace: Trace, tokens: dict[int, int]) -> Row:
    """The inputs of the model with other tokens at some positions."""
    return {**_inputs(trace), "input_ids": [tokens.get(i, id_) for i, id_ in enumerate(trace.input_ids)]}


def _inputs(trace: Trace) -> Row:
    types = None if trace.token_type_ids is None else list(trace.token_type_ids)
    return {"input_ids": list(trace.input_ids), "attention_mask": list(trace.attention_mask), "token_type_ids": types}


def filler_token(model: Model, replacement: str) -> int | None:
    """The id of the pad, mask or unk token of a model; None where it has none."""
    source = model.hf_model.config if replacement == "pad" else model.tokenizer
    token = getattr(source, f"{replacement}_token_id", None)
    return None if token is None else int(token)


def _refuse_other(kind: str, value: Any, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise InputError(f"unknown {kind} {value!r}. {nearest(str(value), allowed)}")


# --- infilling --------------------------------------------------------------------------------------------------------


def can_fill(model: Model) -> bool:
    """Whether a model can put tokens into gaps: a masked language model that has a mask token."""
    return model.task == "masked-lm" and filler_token(model, "mask") is not None


def _infilled(trace: Trace, gone: Sequence[Sequence[int]], replacement: Replacement) -> list[Row]:
    """The inputs of the model with the most probable other token at each position that is gone, all gaps filled at
    once, by the masked language model that is named or by the traced one itself."""
    filler = replacement.model if isinstance(replacement, Infill) else trace.model
    mask = filler_token(filler, "mask")
    if mask is None or not can_fill(filler):
        raise InputError(
            f"replacement='infill' needs a masked language model, and {filler.name!r} is none. Give Infill(model), "
            "with a "
            "masked language model that has the same vocabulary."
        )
    if filler is not trace.model and filler.tokenizer.get_vocab() != trace.model.tokenizer.get_vocab():
        raise InputError(f"{filler.name!r} cannot fill gaps for {trace.model.name!r}: their vocabularies differ.")
    masked = [_replaced(trace, dict.fromkeys(positions, mask)) for positions in gone]
    rows: list[Row] = []
    step = filler.batch_limit or MOST_ROWS
    for start in range(0, len(masked), step):
        batch: Any = [SimpleNamespace(**row) for row in masked[start : start + step]]
        logits = filler.outputs(batch, compare=start == 0).logits
        rows += [_replaced(trace, _likely(trace, filler, row, gone[start + i])) for i, row in enumerate(logits)]
    return rows


def _likely(trace: Trace, filler: Model, logits: Tensor, positions: Sequence[int]) -> dict[int, int]:
    """Position -> the most probable token that is neither the original one nor special."""
    logits = logits[: len(trace)].clone()
    logits[:, list(filler.tokenizer.all_special_ids)] = -torch.inf
    for i in positions:
        logits[i, trace.input_ids[i]] = -torch.inf
    return {i: int(logits[i].argmax()) for i in positions}


# --- random subsets ---------------------------------------------------------------------------------------------------


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
    """Each unit is kept with probability `share`, in `count` subsets drawn by `seed` (ContextCite, Cohen-Wang et al.
    2024)."""
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
