"""The mean of several results, with an interval for every token, word or group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..base.errors import InputError, checked_seed, nearest
from ..base.wrong_kinds import wrong_kinds_in_one_line
from ..scoring.arithmetic import SHARED
from ..types import Attribution
from .intervals import Interval, mean_with_interval

BY = ("token", "word")
Grouping = str | Callable[[str], str | None]


@wrong_kinds_in_one_line
def mean(
    results: Iterable[Attribution], *, by: Grouping = "token", confidence: float = 0.95, seed: int = 0
) -> Attribution:
    """The mean of attributions, with `.info["low"]` and `["high"]`, the ends of an interval for each score, and `["n"]`.

    `by`: "token": all are of the same tokens (several methods, seeds or models on one text). "word": of any texts; the scores of
    a word, in lower case, are added up in its text, and averaged over the texts that have it. A function of a word gives the name
    of a group instead, or None to leave the word out. Special tokens are left out by word and by group. Intervals are studentised
    bootstrap intervals over results, and NaN where there is one. Scores of different texts may have different sizes: normalize
    first, `mixlens.mean([a.normalize("share") for a in results], by="word")`.
    """
    checked_seed(seed)
    several = _several(results)
    tokens, values = _values(several, by)
    intervals = [mean_with_interval(one, confidence=confidence, seed=seed, how="studentised") for one in values]
    first = several[0]
    same = by == "token"
    return Attribution(
        torch.tensor([one.mean for one in intervals], dtype=torch.float64),
        tuple(tokens),
        _method(several),
        _info(several, intervals, "group" if callable(by) else by, confidence),
        first.special if same else (False,) * len(tokens),
        first.words if same else tuple((token, (i,)) for i, token in enumerate(tokens)),
    )


def _several(results: Any) -> list[Attribution]:
    several = list(results) if isinstance(results, Iterable) else [results]
    if not several:
        raise InputError("there is nothing to average: no attributions were given.")
    for one in several:
        _refuse_other(one)
    return several


def _refuse_other(one: Any) -> None:
    if not isinstance(one, Attribution):
        raise InputError(f"mean takes a list of attributions, not of {type(one).__name__}.")


def _values(several: Sequence[Attribution], by: Grouping) -> tuple[Sequence[str], list[list[float]]]:
    """What the means are of, and for each its values."""
    return _by_token(several) if by == "token" else _by_group(several, _grouping(by))


def _grouping(by: Any) -> Callable[[str], str | None]:
    if callable(by):
        return by
    if by != "word":
        raise InputError(f"by is 'token', 'word' or a function of a word, not {by!r:.40}. {nearest(str(by), BY)}")
    return str.lower


def _by_token(several: Sequence[Attribution]) -> tuple[Sequence[str], list[list[float]]]:
    tokens = several[0].tokens
    for number, one in enumerate(several):
        if one.tokens != tokens:
            raise InputError(
                f"number {number} is of other tokens than the first. Give by='word' for the mean over texts."
            )
    return tokens, torch.stack([one.scores.double() for one in several]).T.tolist()


def _by_group(
    several: Sequence[Attribution], name_of: Callable[[str], str | None]
) -> tuple[list[str], list[list[float]]]:
    """The groups, the largest mean first, and for each the sums of the texts that have it."""
    found: dict[str, list[float]] = {}
    for one in several:
        for name, value in _sums(one, name_of).items():
            found.setdefault(name, []).append(value)
    if not found:
        raise InputError(
            "no word is left to average: all are special, or the function gives None for every one of them."
        )
    order = sorted(found, key=lambda name: (-abs(float(np.mean(found[name]))), name))
    return order, [found[name] for name in order]


def _sums(result: Attribution, name_of: Callable[[str], str | None]) -> dict[str, float]:
    """The sum of the scores of each group in one text."""
    words = result if result.words is None else result.by_word()
    sums: dict[str, float] = {}
    for i, (token, score) in enumerate(zip(words.tokens, words.scores.tolist(), strict=True)):
        name = None if words.special and words.special[i] else name_of(token)
        if name is not None:
            sums[name] = sums.get(name, 0.0) + score
    return sums


def _method(several: Sequence[Attribution]) -> str:
    """The mean of one method, or of several."""
    return "mean of " + ", ".join(dict.fromkeys(one.method for one in several))


def _same_facts(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts that hold of every result."""
    first = infos[0]
    return {key: first[key] for key in SHARED if key in first and all(info.get(key) == first[key] for info in infos)}


def _info(
    several: Sequence[Attribution], intervals: Sequence[Interval], unit: str, confidence: float
) -> dict[str, Any]:
    same = _same_facts([one.info for one in several])
    if "score" not in same:
        same.pop("target", None)
    facts = {
        name: torch.tensor([getattr(one, name) for one in intervals], dtype=torch.float64) for name in ("low", "high")
    }
    counts = torch.tensor([one.n for one in intervals])
    mean_of = {"results": len(several), "confidence": confidence, "interval": "studentised"}
    return {**same, "signed": True, "unit": unit, "mean": mean_of, **facts, "n": counts}
