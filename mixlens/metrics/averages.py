"""The mean of several results, with an interval for every token, word or group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from ..base.doors import door
from ..base.errors import InputError, checked_seed, nearest
from ..scoring.arithmetic import SHARED
from ..types import Attribution
from .intervals import mean_with_interval

BY = ("token", "word")
Grouping = str | Callable[[str], str | None]


@door
def mean(
    results: Iterable[Attribution], *, by: Grouping = "token", confidence: float = 0.95, seed: int = 0
) -> Attribution:
    """The mean of attributions, with `.info["low"]` and `["high"]`, the ends of an interval for each score, and
    `["n"]`.

    `by`: "token": all are of the same tokens (several methods, seeds or models on one text). "word": of any texts; the
    scores of a word, in lower case, are added up in its text, and averaged over the texts that have it. A function of a
    word gives the name of a group instead, or None to leave the word out. Special tokens are left out by word and by
    group. Intervals are studentised bootstrap intervals over results, and NaN where there is one. Scores of different
    texts may have different sizes: normalize first, `mixlens.mean([a.normalize("share") for a in results], by="word")`.
    """
    checked_seed(seed)
    several = list(results) if isinstance(results, Iterable) else [results]
    if not several:
        raise InputError("there is nothing to average: no attributions were given.")
    for one in several:
        if not isinstance(one, Attribution):
            raise InputError(f"mean takes a list of attributions, not of {type(one).__name__}.")
    first, same = several[0], by == "token"
    if same:
        for number, one in enumerate(several):
            if one.tokens != first.tokens:
                raise InputError(
                    f"number {number} is of other tokens than the first. Give by='word' for the mean over texts."
                )
        tokens, values = first.tokens, torch.stack([one.scores.double() for one in several]).T.tolist()
    else:
        tokens, values = _groups(several, by)
    intervals = [mean_with_interval(one, confidence=confidence, seed=seed, how="studentised") for one in values]
    info: dict[str, Any] = {
        key: first.info[key]
        for key in SHARED
        if key in first.info and all(one.info.get(key) == first.info[key] for one in several)
    }
    if "score" not in info:
        info.pop("target", None)
    info |= {"signed": True, "unit": "group" if callable(by) else by}
    info["mean"] = {"results": len(several), "confidence": confidence, "interval": "studentised"}
    for name in ("low", "high"):
        info[name] = torch.tensor([getattr(one, name) for one in intervals], dtype=torch.float64)
    info["n"] = torch.tensor([one.n for one in intervals])
    return Attribution(
        torch.tensor([one.mean for one in intervals], dtype=torch.float64),
        tokens,
        "mean of " + ", ".join(dict.fromkeys(one.method for one in several)),
        info,
        first.special if same else (False,) * len(tokens),
        first.words if same else tuple((token, (i,)) for i, token in enumerate(tokens)),
    )


def _groups(several: list[Attribution], by: Any) -> tuple[tuple[str, ...], list[list[float]]]:
    """The groups, the largest mean first, and for each the sums of the texts that have it."""
    if not callable(by) and by != "word":
        raise InputError(f"by is 'token', 'word' or a function of a word, not {by!r:.40}. {nearest(str(by), BY)}")
    name_of = by if callable(by) else str.lower
    found: dict[str, list[float]] = {}
    for one in several:
        words = one if one.words is None else one.by_word()
        sums: dict[str, float] = {}
        for i, (token, score) in enumerate(zip(words.tokens, words.scores.tolist(), strict=True)):
            name = None if words.special and words.special[i] else name_of(token)
            if name is not None:
                sums[name] = sums.get(name, 0.0) + score
        for name, value in sums.items():
            found.setdefault(name, []).append(value)
    if not found:
        raise InputError(
            "no word is left to average: all are special, or the function gives None for every one of them."
        )
    order = sorted(found, key=lambda name: (-abs(float(np.mean(found[name]))), name))
    return tuple(order), [found[name] for name in order]
