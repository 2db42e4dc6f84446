"""Raw against effective attention (Brunner et al. 2020, On Identifiability in Transformers, sections 3.4 and 3.5)."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.errors import InputError
from ..layer import proven_block
from ..methods.identifiability import effective
from ..scoring.aggregate import bare
from ..types import Map, Trace
from .agreement import linear
from .arguments import VARIANTS, Array, array, one_of
from .intervals import Interval, mean_with_interval
from .mixing_stats import BRUNNER
from .registry import metric

PERIOD_OR_COMMA = "period or comma"


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

    Weights that the mask forbids are no weights. `paper` leaves the value's bias out, as in `effective_attention`. NaN
    for a head whose weights are all the same."""
    return correlated(list(attention_of_heads(trace, variant=variant)))


@dataclass(frozen=True)
class HeadAttention:
    """Raw and effective attention of every head of one layer, [head query key] each."""

    raw: Array
    effective: Array
    allowed: NDArray[np.bool_]  # [query key]: where the mask lets a query look
    null_dimension: Array  # [head]

    @property
    def sides(self) -> tuple[Array, Array]:
        """The weights that the mask allows, [head weight]: raw, effective."""
        return self.raw[:, self.allowed], self.effective[:, self.allowed]


def attention_of_heads(trace: Trace, *, variant: str = "released") -> Iterator[HeadAttention]:
    """Raw and effective attention, one layer after the other. `variant` is that of `effective_attention`."""
    one_of("variant", variant, VARIANTS)
    for index, layer in enumerate(trace.layers):
        with torch.no_grad():
            block = proven_block(layer, index)
            projected, facts = effective(block, bias=variant == "released")
        raw, kept = (array(side, "attention", 3) for side in (block.attention, projected))
        yield HeadAttention(raw, kept, block.reach.cpu().numpy(), array(facts["null_dimension"], "null dimension", 1))


def correlated(layers: Sequence[HeadAttention]) -> RawEffective:
    """Pearson's correlation of raw and effective attention of one text, by head and over all weights together."""
    per_head = np.array([linear(*layer.sides).tolist() for layer in layers])
    sides = [np.concatenate([layer.sides[side].reshape(-1) for layer in layers]) for side in (0, 1)]
    return RawEffective(layers[0].raw.shape[-1], per_head, float(linear(*sides)))


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
    """[pos]: a special token's own name, "period or comma", "punctuation" (any other), or "word"."""
    types = []
    for token, special in zip(scores.tokens, scores.special, strict=True):
        name = bare(token)
        mark = PERIOD_OR_COMMA if name in (".", ",") else "punctuation"
        types.append(token if special else mark if all(c in string.punctuation for c in name) else "word")
    return tuple(types)


@metric(paper=BRUNNER, needs=("map",), better="neither")
def received_by_type(scores: Map, *, types: Sequence[str] | None = None) -> Mapping[str, Array]:
    """For each type of token, [layer]: what positions give to all tokens of that type, mean over positions.

    For a map of `attention` or `effective_attention` (whose scores may be negative, and stay so). The types are those
    of `token_types` unless given."""
    values = array(scores, "scores", 3)
    names = token_types(scores) if types is None else tuple(types)
    if len(names) != values.shape[-1]:
        raise InputError(f"there are {len(names)} types for {values.shape[-1]} tokens. Give one for each token.")
    keys: dict[str, Any] = {name: np.array([other == name for other in names]) for name in dict.fromkeys(names)}
    return {name: values[..., key].sum(-1).mean(-1) for name, key in keys.items()}


def given_to(weights: Array, queries: Sequence[int], keys: Sequence[int]) -> Array:
    """[head]: what some queries give to all of some keys together, mean over these queries, of [head query key].

    NaN where there is no such query; 0 where there is no such key.
    """
    if not len(queries):
        return np.full(len(weights), np.nan)
    return weights[:, list(queries)][..., list(keys)].sum(-1).mean(-1)


def places_of(types: Sequence[str], name: str) -> list[int]:
    """The positions of a type."""
    return [i for i, other in enumerate(types) if other == name]
