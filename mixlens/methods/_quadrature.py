"""Gauss-Legendre nodes and weights, by which Integrated Gradients sums its gradients, without a matrix of that size."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
ONE_RULE = 10_000  # nodes of one rule; above that the line is cut into equal panels with a rule each


def gauss_legendre(count: int) -> tuple[Array, Array]:
    """`count` nodes between 0 and 1, in rising order, and their weights, which add up to 1.

    Up to 10,000 nodes this is the Gauss-Legendre rule of that many nodes. More nodes are spread over equal panels, each
    with a Gauss-Legendre rule of at most 10,000 nodes, so that a million of them take a second and little memory."""
    panels = math.ceil(count / ONE_RULE)
    sizes = [count // panels + (panel < count % panels) for panel in range(panels)]
    rules = {size: _one_rule(size) for size in set(sizes)}
    edges = np.arange(panels) / panels
    nodes = [edge + rules[size][0] / panels for edge, size in zip(edges, sizes, strict=True)]
    weights = [rules[size][1] / panels for size in sizes]
    return np.concatenate(nodes), np.concatenate(weights)


@lru_cache(maxsize=8)
def _one_rule(count: int) -> tuple[Array, Array]:
    """Newton's method on the Legendre polynomial P of degree `count`, for all roots in [0, 1) at once.

    The initial values are Tricomi's, with an error of order count^-4, so few iterations are needed. P and its
    derivative come from the three-term recurrence: memory grows with `count`, time with its square (a third of a second
    for 10,000)."""
    half = (count + 1) // 2
    angle = (4 * np.arange(1, half + 1) - 1) * (math.pi / (4 * count + 2))
    x = (1 - (count - 1) / (8 * count**3)) * np.cos(angle)  # the roots that are not below 0, in falling order
    x[half - 1] = 0.0 if count % 2 else x[half - 1]  # the middle root of an odd polynomial, exactly
    for _ in range(10):
        value, slope = _legendre(count, x)
        step = value / slope
        x = x - step
        if float(np.abs(step).max()) < 1e-15:
            break
    weights = 2 / ((1 - x) * (1 + x) * _legendre(count, x)[1] ** 2)
    x[half - 1] = 0.0 if count % 2 else x[half - 1]
    falling = slice(None, half - count % 2)  # the roots above 0, without the middle one
    nodes = np.concatenate([-x[falling], x[::-1]])
    weights = np.concatenate([weights[falling], weights[::-1]])
    weights /= weights.sum()
    nodes = (nodes + 1) / 2
    nodes.flags.writeable = weights.flags.writeable = False  # the cache hands the same arrays out again
    return nodes, weights


def _legendre(count: int, x: Array) -> tuple[Array, Array]:
    """P of degree `count` and its derivative, at points between -1 and 1."""
    before, value = np.ones_like(x), x.copy()
    for degree in range(1, count):
        before, value = value, x * value + (degree / (degree + 1)) * (x * value - before)
    return value, count * (before - x * value) / ((1 - x) * (1 + x))


def integral_up_to(nodes: Array, weights: Array, slopes: Array) -> Array:
    """The integral from 0 to each node of the polynomial through `slopes`, its values at Gauss-Legendre nodes."""
    count = len(nodes)
    legendre = np.polynomial.legendre.legvander(2 * nodes - 1, count)  # [node degree]
    share = (weights * slopes) @ legendre[:, :count]  # the coefficient of degree k, over 2 k + 1
    below = np.concatenate([np.full((count, 1), -1.0), legendre[:, : count - 1]], axis=1)
    return (legendre[:, 1:] - below) @ share / 2
