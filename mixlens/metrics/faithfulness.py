"""Faithfulness: change the input where the scores say it matters, run the model again, see what the prediction does.

The model is run on batches of changed inputs and is never changed itself. Special tokens, and the position that
predicts, always stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..attributions import Question, attribute
from ..errors import InputError
from ..targets import Target, TargetName, resolve
from ..types import Trace
from .agreement import ATTCAT, correlation
from .arguments import VARIANTS, Array, Scores, one_of, vector
from .intervals import Interval, by_column
from .plausibility import ERASER
from .registry import metric

TENTHS = tuple(range(0, 101, 10))  # percent
BINS = (1, 5, 10, 20, 50)
WAYS = ("delete", "pad", "mask", "unk")
MOHEBBI = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"


@dataclass(frozen=True)
class Degradation:
    """What became of a target's probability: `left[i]` after `removed[i]` tokens were taken away, and the metric itself."""

    value: float  # the mean of `points`; NaN where the metric leaves the example out
    whole: float  # the probability for the text as it is
    removed: tuple[int, ...] = ()
    left: tuple[float, ...] = ()
    points: tuple[float, ...] = ()  # the curve


def curve(degradations: Sequence[Degradation], **options: Any) -> tuple[Interval, ...]:
    """Mean and interval of every point of a curve, over examples that were degraded in the same steps."""
    curves = [degradation.points for degradation in degradations if degradation.points]
    if len({len(points) for points in curves}) != 1:
        raise InputError(f"the curves have {sorted({len(points) for points in curves})} points; they must have the same number.")
    return by_column(curves, **options)


@metric(paper=ATTCAT, needs=("trace", "scores", "rerun"), better="higher", variants=VARIANTS, cost="12")
def aopc(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = TENTHS,
    replacement: str | int = "delete",
    target: TargetName = "predicted",
    label: str | int | None = None,
    variant: str = "paper",
) -> Degradation:
    """AOPC (AttCAT, eq. 13): p(x) - p(x without its top k % tokens), mean over k = 0, 10, ..., 100, of the predicted label.

    k % of the tokens that may go, rounded; tied tokens go in their order in the text. `released`: nine steps, k % of all
    tokens with the special ones, the gold `label`, absolute differences, no value under 10 tokens.
    """
    logs, counts = _attcat(trace, scores, percents, replacement, target, label, variant)
    drops = _drops(logs)
    return _degradation(logs, counts, [abs(drop) for drop in drops] if variant == "released" else drops)


@metric(paper=ATTCAT, needs=("trace", "scores", "rerun"), better="lower", variants=VARIANTS, cost="12")
def lodds(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = TENTHS,
    replacement: str | int = "pad",
    target: TargetName = "predicted",
    label: str | int | None = None,
    variant: str = "paper",
) -> Degradation:
    """LOdds (AttCAT, eq. 14): log p(x with its top k % tokens made padding) - log p(x), mean over k = 0, 10, ..., 100.

    As `aopc` otherwise. `released`: nine steps, k % of all tokens with the special ones, the gold `label`, no value under
    10 tokens.
    """
    logs, counts = _attcat(trace, scores, percents, replacement, target, label, variant)
    return _degradation(logs, counts, [float(left - logs[0]) for left in logs[1:]])


@metric(paper=ERASER, needs=("trace", "scores", "rerun"), better="higher", variants=VARIANTS, cost="7")
def comprehensiveness(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = BINS,
    replacement: str | int = "delete",
    target: TargetName = "predicted",
    label: str | int | None = None,
    variant: str = "paper",
) -> Degradation:
    """Comprehensiveness (ERASER, section 4.2): p(x) - p(x without its top k % tokens), mean over k = 0, 1, 5, 10, 20, 50.

    Rounded up to whole tokens. `released` leaves k = 0 out of the mean.
    """
    return _eraser(trace, scores, percents, replacement, target, label, variant, keep=False)


@metric(paper=ERASER, needs=("trace", "scores", "rerun"), better="lower", variants=VARIANTS, cost="7")
def sufficiency(
    trace: Trace,
    scores: Scores,
    *,
    percents: Sequence[int] = BINS,
    replacement: str | int = "delete",
    target: TargetName = "predicted",
    label: str | int | None = None,
    variant: str = "paper",
) -> Degradation:
    """Sufficiency (ERASER, section 4.2): p(x) - p(its top k % tokens alone), mean over k = 0, 1, 5, 10, 20, 50.

    Rounded up to whole tokens. `released` leaves k = 0 out of the mean.
    """
    return _eraser(trace, scores, percents, replacement, target, label, variant, keep=True)


@metric(paper=MOHEBBI, needs=("trace", "scores", "rerun"), better="higher", cost="n")
def blank_out_faithfulness(
    trace: Trace,
    scores: Scores,
    *,
    how: str = "spearman",
    replacement: str | int = "unk",
    absolute: bool = False,
    target: TargetName = "predicted",
    foil: str | int | None = None,
    query: int | str | None = None,
    keep_special: bool = True,
) -> float:
    """Rank correlation of the scores with what blanking each token does to the target's probability (method `blank_out`).

    Value Zeroing replaces by "unk" and keeps the sign; ALTI by "mask", `absolute`. "delete", "zero" or an id work too. `how`
    is the correlation; without special tokens the rest alone is compared.
    """
    values = _scores(trace, scores)
    blanked = attribute(trace, "blank_out", target=target, foil=foil, query=query, replacement=replacement, absolute=absolute)
    positions = [i for i, special in enumerate(trace.special) if keep_special or not special]
    if not positions:
        raise InputError("every token is special; without them nothing is left to compare.")
    return correlation(how)(values[positions], blanked.scores[positions])


# --- taking tokens away -----------------------------------------------------------------------------------------------


def outcomes(trace: Trace, gone: Sequence[Sequence[int]], target: Target, *, replacement: str | int = "delete") -> Array:
    """[change]: the target's number with the tokens at these positions deleted or replaced, run in batches."""
    token = None if replacement == "delete" else _token(trace, replacement)
    rows: dict[Target, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for number, positions in enumerate(gone):
        if token is None:
            rows[_moved(target, set(positions))].append((number, _without(trace, set(positions))))
        else:
            rows[target].append((number, _replaced(trace, set(positions), token)))
    values = torch.zeros(len(gone), dtype=torch.float64)
    for moved, numbered in rows.items():
        question = Question(trace, moved, None, moved.positions[0] if moved.positions else 0)
        values[[number for number, _ in numbered]] = question.values([row for _, row in numbered]).double().cpu()
    return values.numpy()


def _without(trace: Trace, positions: set[int]) -> dict[str, Any]:
    """The inputs of the model without the tokens at these positions."""
    rest = [i for i in range(len(trace)) if i not in positions]
    return {name: None if values is None else [values[i] for i in rest] for name, values in _inputs(trace).items()}


def _replaced(trace: Trace, positions: set[int], token: int) -> dict[str, Any]:
    """The inputs of the model with another token at these positions."""
    ids = [token if i in positions else id_ for i, id_ in enumerate(trace.input_ids)]
    return {**_inputs(trace), "input_ids": ids}


def _inputs(trace: Trace) -> dict[str, Any]:
    types = None if trace.token_type_ids is None else list(trace.token_type_ids)
    return {"input_ids": list(trace.input_ids), "attention_mask": list(trace.attention_mask), "token_type_ids": types}


def _moved(target: Target, away: set[int]) -> Target:
    """The same target where tokens are missing: positions behind them move to the left."""
    positions = tuple(p - sum(i < p for i in away) for p in target.positions)
    return replace(target, positions=positions, ids=positions if target.task == "question-answering" else target.ids)


def _token(trace: Trace, replacement: str | int) -> int:
    model = trace.model
    if isinstance(replacement, int):
        return replacement
    if one_of("replacement", replacement, WAYS) == "pad":
        token = model.hf_model.config.pad_token_id
    else:
        token = None if model.tokenizer is None else getattr(model.tokenizer, f"{replacement}_token_id")
    if token is None:
        raise InputError(f"{model.name!r} has no {replacement} token. Use replacement='delete' or the id of a token.")
    return int(token)


def _scores(trace: Trace, scores: Scores) -> Array:
    values = vector(scores)
    if len(values) != len(trace):
        raise InputError(f"scores are for {len(values)} tokens, the trace has {len(trace)}. Special tokens must have scores too.")
    return values


def _order(trace: Trace, scores: Scores, target: Target) -> list[int]:
    """The positions that may go, the highest score first. At least one token always stays."""
    stay = {i for i, special in enumerate(trace.special) if special} | set(target.positions)
    order = [i for i in np.argsort(-_scores(trace, scores), kind="stable").tolist() if i not in stay]
    order = order if stay else order[:-1]
    if not order:
        raise InputError("there is no token to take away: all are special, or predict, or there is one alone.")
    return order


def _attcat(
    trace: Trace,
    scores: Scores,
    percents: Sequence[int],
    replacement: str | int,
    target: TargetName,
    label: str | int | None,
    variant: str,
) -> tuple[Array, list[int]]:
    """log p of the text as it is, then without more and more of its top tokens [1 + step]; how many, [step]."""
    if one_of("variant", variant, VARIANTS) == "released":
        trace = replace(trace, token_type_ids=None)  # the notebooks pass no segments
        if label is None:
            raise InputError("variant='released' explains the gold label: give label=.")
        resolved = resolve(trace, "gold", score="log_probability", label=label)
        order, counts = _as_released(trace, scores)
    else:
        resolved = resolve(trace, target, score="log_probability", label=label)
        order = _order(trace, scores, resolved)
        counts = [round(percent * len(order) / 100) for percent in _percents(percents)]
    return outcomes(trace, [[], *(order[:count] for count in counts)], resolved, replacement=replacement), counts


def _as_released(trace: Trace, scores: Scores) -> tuple[list[int], list[int]]:
    """AttCAT's notebooks: order and counts. The last token of the order is never looked at; short texts are left out."""
    n = len(trace)
    ranking = np.argsort(-_scores(trace, scores))[:-1].tolist()
    counts = [int(count) for count in np.round(np.linspace(0, 1, 10) * n)[1:]]
    return [i for i in ranking if not trace.special[i]], counts if n >= 10 else []


def _eraser(
    trace: Trace,
    scores: Scores,
    percents: Sequence[int],
    replacement: str | int,
    target: TargetName,
    label: str | int | None,
    variant: str,
    *,
    keep: bool,
) -> Degradation:
    resolved = resolve(trace, target, score="log_probability", label=label)
    order = _order(trace, scores, resolved)
    bins = _percents(percents) if one_of("variant", variant, VARIANTS) == "released" else (0, *_percents(percents))
    counts = [-(-percent * len(order) // 100) for percent in bins]
    removals = [order[count:] if keep else order[:count] for count in counts]
    logs = outcomes(trace, [[], *removals], resolved, replacement=replacement)
    return _degradation(logs, [len(removal) for removal in removals], _drops(logs))


def _percents(percents: Sequence[int]) -> tuple[int, ...]:
    if not len(percents) or any(not isinstance(p, int) or not 0 <= p <= 100 for p in percents):
        raise InputError(f"percents are whole numbers from 0 to 100, at least one of them, not {percents!r}.")
    return tuple(percents)


def _drops(logs: Array) -> list[float]:
    """p(whole) - p(changed), from their logarithms."""
    return [float(drop) for drop in np.exp(logs[0]) - np.exp(logs[1:])]


def _degradation(logs: Array, counts: Sequence[int], points: Sequence[float]) -> Degradation:
    left = tuple(float(p) for p in np.exp(logs[1:]))
    return Degradation(float(np.mean(points)) if points else np.nan, float(np.exp(logs[0])), tuple(counts), left, tuple(points))
