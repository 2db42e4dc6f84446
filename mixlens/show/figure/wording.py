"""What a figure says about its results: names of rows, titles, the meaning of the colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import printable
from ...types import Attribution, Result
from ..tokens import shown

TELLS_APART = (("at_layer", "layer"), ("layer", "layer"), ("variant", ""), ("target", ""))  # key of info, word before its value


def array_of(result: Result) -> NDArray[np.float64]:
    """The scores of a result as a numpy array of float64."""
    return result.scores.detach().double().cpu().numpy()


def names_of(results: Sequence[Result]) -> list[str]:
    """The methods of the results; where methods repeat, the methods with what tells the results apart."""
    methods = [result.method for result in results]
    if len(set(methods)) == len(methods):
        return methods
    for key, word in TELLS_APART:
        values = [result.info.get(key) for result in results]
        if None not in values and len({(m, str(v)) for m, v in zip(methods, values, strict=True)}) == len(results):
            numbers = [int(v) + (key == "layer") if word else v for v in values]  # type: ignore[arg-type]
            one = len(set(methods)) == 1
            return [f"{word} {v}".strip() if one else f"{m} {word} {v}" for m, v in zip(methods, numbers, strict=True)]
    return [f"{method} {number + 1}" for number, method in enumerate(methods)]


def title_of(result: Result, *more: str, method: bool = True) -> str:
    """The title of a result: method, variant, rollout, layer, target or position, and `more`."""
    parts = [result.method] if method else []
    return printable(" · ".join([*parts, *_computed(result), *_explained(result), *more]))


def _computed(result: Result) -> Iterator[str]:
    """How the result was computed, where that is not the usual way."""
    info = result.info
    if info.get("variant") not in (None, "paper"):
        yield str(info["variant"])
    if info.get("rollout"):
        yield f"{'flow' if info['rollout'].get('flow') else 'rollout'} {info['rollout']['convention']}"
    if isinstance(result, Attribution) and info.get("layer") is not None:
        yield f"layer {info['layer'] + 1}"
    if info.get("at_layer") is not None:
        yield f"input of layer {info['at_layer'] + 1}"


def _explained(result: Result) -> Iterator[str]:
    """What the result explains: a target, or a position."""
    info = result.info
    if info.get("target") is not None:
        yield f"{str(info.get('score', 'score')).replace('_', ' ')} of {info['target']}"
    elif isinstance(result, Attribution) and "query_token" in info:
        yield f"at {shown(info['query_token'])}"


def meaning_of(results: Sequence[Result], signed: bool, scale: str = "all") -> str:
    """What the colours mean."""
    if signed:
        return "against (−), towards (+)" + (", of the largest" if scale == "own" else "")
    if scale == "own":
        return "score, of the largest"
    sums = [array_of(result).sum(-1) for result in results]
    return "share" if all(np.allclose(total, 1, atol=1e-3) for total in sums) else "score"
