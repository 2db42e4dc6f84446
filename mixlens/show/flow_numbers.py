"""What flowed through the layers into one position, in shares that add up to 1 at every level, grouped without loss.

C_l are the layers [query key] as the method's rollout takes them, rows summing to 1; R_l = C_l ... C_1 is the rollout
(R_0 = I). The answer is read at position q of the last layer. Downwards, r_L = e_q and r_(l-1) = r_l C_l: r_l(i) is the
share of the answer that passes position i after layer l. The band from j (below) to i (above) carries r_l(i) C_l(i, j)
of the answer, and r_l(i) C_l(i, j) R_(l-1)(j, s) of that came from the input token s. Groups add these up: nothing is
lost, nothing counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..scoring.conventions import as_convened
from ..scoring.head_maps import HeadMaps
from ..types import Map

Array = NDArray[np.float64]
DRAWN = 0.0012  # of the answer: a band that carries less is not drawn
OFF = 1e-3  # by which a row may miss 1 and still be a share (float16 rounds no worse)


@dataclass(frozen=True)
class Bands:
    """The bands that are drawn, one after the other: the layer they lead through, from which column to which, and their
    share; `parts` [band source] is how much of it came from each column of the input."""

    layer: NDArray[np.int64]
    above: NDArray[np.int64]
    below: NDArray[np.int64]
    share: Array
    parts: Array


@dataclass(frozen=True)
class Flow:
    """All numbers of a flow picture. Level 0 is the input, level l what is there after layer l."""

    shares: Array  # [level column] of the answer
    origins: Array  # [level column source] of the answer
    bands: Bands
    undrawn: float  # the most that a level loses by bands that are not drawn
    rolled: Array  # [layer column column]: what every column took from the input, rows sum to 1
    alone: Array  # [layer column column]: what it took in this layer alone
    rolled_words: Array  # [layer column word]
    alone_words: Array
    words: Array  # [word]: the share of the answer that came from each word
    input_bands: Array  # [column word]: through the first layer, from each word


def layers_of(scores: Map, rollout: str | None = None) -> tuple[Array, dict[str, Any]]:
    """C_l [layer query key], rows summing to 1; refused where the map has no such layers."""
    layers, facts = as_convened(scores, rollout, residual=None, normalize=None)
    matrices = layers.detach().double().cpu().numpy()
    if (matrices < 0).any():
        raise InputError(
            f"{scores.method!r} has scores below 0, so it has no shares that could flow. Use alti, for example."
        )
    sums = matrices.sum(-1, keepdims=True)
    if not np.isfinite(sums).all() or np.abs(sums - 1).max() > OFF:
        raise InputError(
            f"{scores.method!r} is rolled out by {facts['convention']!r}, whose rows do not add up to 1: "
            "no shares could flow. "
            f"Use alti, or {scores.method}:rollout=toolkit, which makes rows add up to 1."
        )
    return matrices / sums, facts


def membership(groups: Sequence[Sequence[int]], n: int) -> Array:
    """[token group]: 1 where a token belongs to a group."""
    belongs = np.zeros((n, len(groups)))
    for number, tokens in enumerate(groups):
        belongs[list(tokens), number] = 1
    return belongs


def flow_of(
    layers: Array, query: int | Sequence[int], columns: Sequence[Sequence[int]], words: Sequence[Sequence[int]]
) -> Flow:
    """The numbers of a flow picture; `columns` and `words` are the tokens of each. Of several positions, the
    average."""
    depth, n, _ = layers.shape
    by_column, by_word = membership(columns, n), membership(words, n)
    mean = (by_column / by_column.sum(0)).T  # [column token]
    rolled = [np.eye(n)]
    for layer in layers:
        rolled.append(layer @ rolled[-1])
    passing = [np.eye(n)[np.atleast_1d(query)].mean(0)]
    for layer in layers[::-1]:
        passing.insert(0, passing[0] @ layer)
    shares = np.stack([one @ by_column for one in passing])
    carried = [passing[number + 1][:, None] * layers[number] for number in range(depth)]  # [layer][token token]
    found, undrawn = _bands(carried, rolled, by_column)
    return Flow(
        shares=shares,
        origins=np.stack(
            [(by_column * one[:, None]).T @ (made @ by_column) for one, made in zip(passing, rolled, strict=True)]
        ),
        bands=found,
        undrawn=undrawn,
        rolled=np.stack([mean @ made @ by_column for made in rolled[1:]]),
        alone=np.stack([mean @ layer @ by_column for layer in layers]),
        rolled_words=np.stack([mean @ made @ by_word for made in rolled[1:]]),
        alone_words=np.stack([mean @ layer @ by_word for layer in layers]),
        words=passing[0] @ by_word,
        input_bands=by_column.T @ carried[0] @ by_word,
    )


def _bands(carried: Sequence[Array], rolled: Sequence[Array], by_column: Array) -> tuple[Bands, float]:
    """The bands that are drawn, and the most that a level loses by the others."""
    layer, above, below, share, parts, undrawn = [], [], [], [], [], 0.0
    for number, one in enumerate(carried):
        into = by_column.T @ one  # [column token]
        bands = into @ by_column
        up, down = np.nonzero(bands >= DRAWN)
        undrawn = max(undrawn, float(bands[bands < DRAWN].sum()))
        layer.append(np.full(len(up), number))
        above.append(up)
        below.append(down)
        share.append(bands[up, down])
        parts.append((into[up] * by_column[:, down].T) @ (rolled[number] @ by_column))
    joined = [np.concatenate(each) for each in (layer, above, below, share, parts)]
    return Bands(*joined), undrawn


def heads_by_group(heads: HeadMaps, columns: Sequence[Sequence[int]]) -> Array:
    """[layer head column column]: summed over keys, averaged over queries."""
    belongs = membership(columns, len(heads.tokens))
    mean = (belongs / belongs.sum(0)).T
    return np.stack([mean @ layer.double().cpu().numpy() @ belongs for layer in heads.scores])
