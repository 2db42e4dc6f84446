"""What metrics take: scores, marks and their refusals. A value comes in, a float64 array of numpy goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..base.errors import InputError, nearest
from ..base.optional import optional
from ..types import Attribution, Map

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
Numbers = Sequence[float] | NDArray[Any]
VARIANTS = ("paper", "released")
Scores = Attribution | Tensor | np.ndarray | Sequence[float]


def array(values: Any, name: str, dims: int) -> Array:
    """Anything with numbers in it, as float64 with `dims` axes and nothing that is not finite."""
    source = values.scores if isinstance(values, Attribution | Map) else values
    try:
        numbers = np.asarray(source.detach().cpu().double() if isinstance(source, Tensor) else source, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, not {type(values).__name__} {str(values)[:60]!r}.") from None
    if numbers.ndim != dims or not numbers.size:
        raise InputError(f"{name} must have {dims} axis or axes and not be empty; its shape is {numbers.shape}.")
    if not np.isfinite(numbers).all():
        place = tuple(int(i[0]) for i in np.nonzero(~np.isfinite(numbers)))
        raise InputError(
            f"{name} is not finite at {place}. Give finite scores; a method that failed has no rank to compare."
        )
    return numbers


def vector(scores: Scores, name: str = "scores") -> Array:
    """[pos]"""
    return array(scores, name, 1)


def pair(scores: Scores, reference: Scores) -> tuple[Array, Array]:
    """Two attributions of the same tokens, [pos] each."""
    a, b = vector(scores), vector(reference, "reference")
    if len(a) != len(b):
        raise InputError(
            f"scores are for {len(a)} tokens, the reference for {len(b)}. Both must be of the same tokens."
        )
    if isinstance(scores, Attribution) and isinstance(reference, Attribution) and scores.tokens != reference.tokens:
        i = next(i for i, (s, r) in enumerate(zip(scores.tokens, reference.tokens, strict=True)) if s != r)
        raise InputError(
            f"scores and reference are of different tokens: {scores.tokens[i]!r} and {reference.tokens[i]!r} at "
            f"position {i}."
        )
    return a, b


def marks(marked: Any, n: int, name: str) -> Marks:
    """0 or 1 for each of n tokens, as bool [pos]. Positions are not marks: `marks_at` makes them so."""
    flags = np.asarray(marked.cpu() if isinstance(marked, Tensor) else marked)
    if flags.shape != (n,):
        raise InputError(
            f"{name} must be 0 or 1 for each of the {n} tokens; its shape is {flags.shape}. See marks_at for positions."
        )
    if not np.isin(flags, (0, 1)).all():
        wrong = flags[~np.isin(flags, (0, 1))][0]
        raise InputError(f"{name} must be 0 or 1 for each token, and has {wrong!r}. See marks_at for positions.")
    return flags.astype(bool)


def marks_at(positions: Sequence[int], n: int) -> Marks:
    """True at these positions of n tokens, [pos]."""
    flags = np.zeros(n, dtype=bool)
    for position in positions:
        if not 0 <= position < n:
            raise InputError(f"position {position} is out of range: there are {n} tokens, 0 to {n - 1}.")
        flags[position] = True
    return flags


def tags_at(places: Mapping[str, Sequence[int]], n: int) -> tuple[str | None, ...]:
    """[pos]: each token's tag from the positions of every tag; None where there is none, the first where there are
    two."""
    tags: list[str | None] = [None] * n
    for tag, positions in places.items():
        for i in np.flatnonzero(marks_at(positions, n)):
            tags[i] = tags[i] or tag
    return tuple(tags)


def one_of(name: str, value: Any, allowed: Collection[str]) -> Any:
    """The value, or a refusal that names those there are."""
    if value not in allowed:
        raise InputError(f"unknown {name} {value!r}. {nearest(str(value), allowed)}")
    return value


def scipy_stats() -> Any:
    return optional("scipy.stats", "scipy", "judge", what="this metric", verb="needs")


def sklearn_metrics() -> Any:
    return optional("sklearn.metrics", "scikit-learn", "judge", what="this metric", verb="needs")


PACKAGES = {"scipy": scipy_stats, "scikit-learn": sklearn_metrics}


def refuse_missing(packages: Iterable[str]) -> None:
    """Say what is not installed before anything is computed that would need it."""
    for package in packages:
        PACKAGES[package]()
