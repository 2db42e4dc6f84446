"""Shapes of representations and weights: anisotropy (ALTI, section 3), outlier weights of norms (GlobEnc, section
4.5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..layer import Block, FrozenNorm, proven_block
from ..model.model import Model
from ..types import Trace
from .agreement import ALTI, GLOBENC, linear
from .arguments import Array, array
from .registry import metric

FIRST = ("norm_before_attention", "norm_on_attention", "norm_after_attention")
SECOND = ("norm_before_mlp", "norm_on_mlp", "norm_after_mlp")


@dataclass(frozen=True)
class NormOutliers:
    """The weights of a layer's two norms that lie at least `sigma` standard deviations from their mean."""

    layer: int
    first: tuple[int, ...]  # features that are outliers in the first norm
    second: tuple[int, ...]
    shared: tuple[int, ...]
    pearson: float  # of the two norms' weights, over all features
    pearson_at_outliers: float  # over the features that are outliers in either


def mean_cosine(vectors: Tensor) -> Tensor:
    """Mean cosine similarity of all pairs of different vectors, [... vector d] -> [...]; NaN for fewer than two.

    (|sum_i u_i|^2 - n) / (n (n - 1)) with u_i of length 1: the same as pair by pair, without the pairs. A vector of
    zeros has no direction: its cosine with any other is 0.
    """
    unit = nn.functional.normalize(vectors.double(), dim=-1, eps=torch.finfo(torch.float64).tiny)
    n = unit.shape[-2]
    itself = unit.pow(2).sum((-1, -2))
    return (unit.sum(-2).pow(2).sum(-1) - itself) / (n * (n - 1)) if n > 1 else torch.full(unit.shape[:-2], torch.nan)


@metric(paper=ALTI, needs=("trace",), better="neither")
def anisotropy(trace: Trace) -> Array:
    """[layer + 1]: mean cosine similarity of the representations of two tokens of a text: the input, then every layer's
    output. The released code draws one pair of tokens for each text; this is the mean over all."""
    return (
        array(mean_cosine(trace.hidden_states), "anisotropy", 1)
        if len(trace) > 1
        else np.full(len(trace.layers) + 1, np.nan)
    )


@metric(paper=ALTI, needs=("trace",), better="neither")
def block_anisotropy(trace: Trace) -> Array:
    """[layer]: mean cosine similarity of the attention block's outputs y_i of two tokens of a text (ALTI, eq. 1, Figure 3).

    y_i is what the norm behind attention puts out; where a layer has no norm there, what the residual stream holds.
    """
    with torch.no_grad():
        outputs = [proven_block(layer, index).middle for index, layer in enumerate(trace.layers)]
        return np.array([float(mean_cosine(output)) for output in outputs])


@metric(paper=ALTI, needs=("trace",), better="neither")
def transformed_anisotropy(trace: Trace) -> Array:
    """[layer]: mean cosine similarity of two transformed vectors T_ij, T_ik of one position i, over all i and j != k.

    T as in `norm_residual_ln`. In a causal model a position has vectors of the tokens it may look at alone.
    """
    means = []
    with torch.no_grad():
        for index, layer in enumerate(trace.layers):
            block = proven_block(layer, index)
            rows = [mean_cosine(vectors[reach]) for vectors, reach in zip(transformed(block), block.reach, strict=True)]
            means.append(float(torch.stack(rows).nanmean()))
    return np.array(means)


def transformed(block: Block) -> Any:
    """For one position after the other: T_ij of every token j, [key d] (ALTI, eq. 6)."""
    chain = block.chain("norm")
    vectors, inputs = chain.part(block.head_vectors), chain.residual(block.x)
    part, stream = block.parts("norm").reciprocals
    for i in range(len(block.x)):
        parts = torch.einsum("hk,khd->kd", block.attention[:, i], vectors) * part[i]
        parts[i] += inputs[i] * stream[i]
        yield parts


@metric(paper=GLOBENC, needs=("norms",), better="neither")
def norm_outliers(model: Model, *, sigma: float = 3.0) -> tuple[NormOutliers, ...]:
    """For each layer: the outlier weights (at least `sigma` standard deviations off) of its first and second norm, and
    how the two norms' weights correlate: negative where the second undoes what the first enlarged. See `norm_weights`.
    """
    found = []
    for layer, (first, second) in norm_weights(model).items():
        one, other = outliers(first, sigma=sigma), outliers(second, sigma=sigma)
        either, shared = sorted({*one, *other}), tuple(sorted({*one} & {*other}))
        at_either = float(linear(first[either], second[either])) if either else np.nan
        found.append(NormOutliers(layer, one, other, shared, float(linear(first, second)), at_either))
    return tuple(found)


def norm_weights(model: Model) -> dict[int, tuple[Array, Array]]:
    """layer -> the weights of its two norms, [d] each: the norm at attention, then the norm at the feed-forward.

    A layer that lacks one is left out, and so is a layer in which attention and the feed-forward read the same norm.
    """
    weights = {}
    for index, parts in enumerate(model.parts):
        norms = []  # the first of these places of the layer that holds a norm
        for places in (FIRST, SECOND):
            modules: list[nn.Module | None] = [getattr(parts, place) for place in places]
            norms += [one for one in modules if one is not None and not isinstance(one, nn.Identity)][:1]
        if len(norms) == 2 and norms[0] is not norms[1]:
            weights[index] = _weights(model, norms[0]), _weights(model, norms[1])
    if not weights:
        raise InputError(
            f"no layer of {model.name!r} has two norms to compare, one at attention and one at the feed-forward."
        )
    return weights


def outliers(weights: Array, *, sigma: float = 3.0) -> tuple[int, ...]:
    """The features whose weight lies at least `sigma` standard deviations from the mean of all; none where all are
    equal."""
    values = array(weights, "weights", 1)
    distance = np.abs(values - values.mean())
    return tuple(int(i) for i in np.flatnonzero((distance >= sigma * values.std()) & (distance > 0)))


def _weights(model: Model, norm: nn.Module) -> Array:
    """gamma, [d]: what the norm multiplies by, found by asking it."""
    with torch.no_grad():
        return array(FrozenNorm.of(norm, model.hf_model.config.hidden_size, torch.float64).gamma, "weights", 1)
