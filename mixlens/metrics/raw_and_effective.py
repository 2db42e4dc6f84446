"""Raw against effective attention (Brunner et al. 2020, On Identifiability in Transformers, sections 3.4 and 3.5)."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..aggregate import bare
from ..errors import InputError
from ..layer import proven_block
from ..methods.identifiability import effective
from ..types import Map, Trace
from .agreement import linear
from .arguments import VARIANTS, Array, array, one_of
from .intervals import Interval, mean_with_interval
from .mixing_stats import BRUNNER
from .registry import metric


@dataclass(frozen=True)
class RawEffective:
    """Pearson's correlation of raw and effective attention of one text."""

    n: int  # tokens
    per_head: Array  # [layer head]
    pooled: float  # over the weights of all heads and layers together

    @property
    def value(self) -> float:
        return self.pooled


@metric(paper=BRUNNER, needs=("trace",), better="neither", variants=("released", "paper"))
def raw_against_effective(trace: Trace, *, variant: str = "released") -> RawEffective:
    """How much of attention is what its output can tell: Pearson of raw and effective attention, by head and pooled.

    Weights that the mask forbids are no weights. `paper` leaves the value's bias out, as in `effective_attention`. NaN for
    a head whose weights are all the same.
    """
    one_of("variant", variant, VARIANTS)
    rows: list[list[float]] = []
    raw, projections = [], []
    with torch.no_grad():
        for index, layer in enumerate(trace.layers):
            block = proven_block(layer, index)
            projected, _ = effective(block, bias=variant == "released")
            sides = [array(side[:, block.reach], "attention", 2) for side in (block.attention, projected)]
            rows.append(linear(*sides).tolist())
            raw.append(sides[0].reshape(-1))
            projections.append(sides[1].reshape(-1))
    return RawEffective(len(trace), np.array(rows), float(linear(np.concatenate(raw), np.concatenate(projections))))


def by_length(
    values: Sequence[float], lengths: Sequence[int], *, edges: Sequence[int], confidence: float = 0.95, seed: int = 0
) -> dict[tuple[int, int], Interval]:
    """A mean and interval for every class of lengths [edge, next edge) that holds an example."""
    if len(values) != len(lengths):
        raise InputError(f"there are {len(values)} values and {len(lengths)} lengths. Give one length for each value.")
    if len(edges) < 2 or list(edges) != sorted(set(edges)):
        raise InputError(f"edges are two or more rising lengths, such as (0, 64, 128), not {edges!r}.")
    intervals = {}
    for low, high in pairwise(edges):
        inside = [value for value, length in zip(values, lengths, strict=True) if low <= length < high]
        if inside:
            intervals[(low, high)] = mean_with_interval(inside, confidence=confidence, seed=seed)
    return intervals


def token_types(scores: Map | Trace) -> tuple[str, ...]:
    """[pos]: a special token's own name, "punctuation", or "word"."""

    def of(token: str, special: bool) -> str:
        if special:
            return token
        return "punctuation" if all(c in string.punctuation for c in bare(token)) else "word"

    return tuple(of(token, special) for token, special in zip(scores.tokens, scores.special, strict=True))


@metric(paper=BRUNNER, needs=("map",), better="neither")
def received_by_type(scores: Map, *, types: Sequence[str] | None = None) -> Mapping[str, Array]:
    """For each type of token, [layer]: what positions give to all tokens of that type, mean over positions.

    For a map of `attention` or `effective_attention` (whose scores may be negative, and stay so). The types are those of
    `token_types` unless given.
    """
    values = array(scores, "scores", 3)
    names = token_types(scores) if types is None else tuple(types)
    if len(names) != values.shape[-1]:
        raise InputError(f"there are {len(names)} types for {values.shape[-1]} tokens. Give one for each token.")
    keys: dict[str, Any] = {name: np.array([other == name for other in names]) for name in dict.fromkeys(names)}
    return {name: values[..., key].sum(-1).mean(-1) for name, key in keys.items()}
