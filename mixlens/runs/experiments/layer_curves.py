"""Whether two curves over layers rise together: Spearman's rank correlation, and how often chance gives as much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ...metrics.agreement import linear, ranks
from ...metrics.arguments import Array
from .claims import NOTHING_RUN, TOO_FEW, Examples, Verdict, by_signs, incomparable, order

EXACT = 8  # up to so many layers every order is tried
DRAWN = 20_000  # orders that are drawn for more layers
LEVEL = 0.05
DRAWS = 1000  # resamples of the texts of two runs


def first_quarter(depth: int) -> int:
    """The last layer of the first quarter: 3 of 12."""
    return max(1, round(depth / 4))


@dataclass(frozen=True)
class Agreement:
    """Spearman's rho of two curves over layers, and p: the share of orders of the layers with |rho| as large or
    larger."""

    rho: float
    p: float
    layers: int

    @property
    def sign(self) -> int:
        """1 or -1 where chance gives so much in under 5 % of all orders; else 0."""
        return 0 if not self.p < LEVEL else int(np.sign(self.rho))


def agreement(one: Array, other: Array, *, seed: int = 0) -> Agreement:
    """The agreement of two curves, [layer] each."""
    a, b = ranks(np.asarray(one)), ranks(np.asarray(other))
    rho = float(linear(a, b))
    orders = _orders(len(a), seed)
    chance = np.abs(linear(a[orders], b[None]))
    return Agreement(rho, float(np.mean(chance >= abs(rho) - 1e-9)) if not np.isnan(rho) else np.nan, len(a))


def _orders(n: int, seed: int) -> Array:
    """[order layer]: all orders of n layers, or many of them drawn at random, the order as it is among them."""
    if n <= EXACT:
        return np.array(list(permutations(range(n))))
    generator = np.random.default_rng(seed)
    drawn = generator.permuted(np.tile(np.arange(n), (DRAWN, 1)), axis=1)
    return np.concatenate([np.arange(n)[None], drawn])


def rank_curves(one: Array, other: Array) -> Array:
    """Spearman's rho along the last axis, for many curves at once."""
    result: Array = linear(ranks(one), ranks(other))
    return result


def trend(curve: Sequence[Examples]) -> dict[str, float]:
    """Spearman's rho of layer and value, of each text that has a value in every layer; a constant curve has none: 0."""
    texts = [text for text in (curve[0] if curve else ()) if all(text in layer for layer in curve)]
    if not texts:
        return {}
    values = np.array([[layer[text] for layer in curve] for text in texts])
    rho = np.nan_to_num(rank_curves(values, np.broadcast_to(np.arange(len(curve)), values.shape)))
    return dict(zip(texts, map(float, rho), strict=True))


def verdict_on_trend(curves: Mapping[str, Sequence[Examples]], *, falls: bool = False, seed: int = 0) -> Verdict:
    """The verdict on "each of these rises with depth" (falls, with `falls`), from the values of each layer by text."""
    names = {f"rank correlation of layer and {name}": trend(curve) for name, curve in curves.items()}
    texts = {text for one in names.values() for text in one}
    if not texts:
        return incomparable("no text has a value in every layer")
    verdict = order({**names, "0": dict.fromkeys(texts, 0.0)}, [(name, "0") for name in names], seed=seed, lower=falls)
    return Verdict(verdict.word, *(text.replace(" - 0", "") for text in (verdict.ours, verdict.reason)))


def verdict_on_draws(
    values: Mapping[str, float], draws: Mapping[str, Array], pairs: Sequence[tuple[str, str]]
) -> Verdict:
    """The verdict on "the first of each pair is above the second", for a statistic of the whole sample such as rho.

    `draws` has the statistic of each resample of the examples, the same resamples for every name. The intervals hold
    for all pairs at once (max-t).
    """
    absent = [name for name in dict.fromkeys(name for pair in pairs for name in pair) if name not in values]
    if absent:
        return incomparable(f"not run: {', '.join(absent)}")
    means = {f"{a} - {b}": values[a] - values[b] for a, b in pairs}
    return _by_draws(means, np.stack([draws[a] - draws[b] for a, b in pairs]), 2)


def verdict_between_runs(first: Mapping[str, Examples], second: Mapping[str, Examples], *, seed: int = 0) -> Verdict:
    """The verdict on "each mean of the first run is above that of the second". Their texts differ: each is resampled
    apart."""
    if not first:
        return incomparable(NOTHING_RUN)
    generator, means, drawn = np.random.default_rng(seed), [], []
    tables = []
    for run in (first, second):  # [example name]: the values of the examples that have all of them
        values = [run[name] for name in first]
        shared = [example for example in values[0] if all(np.isfinite(one.get(example, np.nan)) for one in values)]
        tables.append(np.array([[one[example] for one in values] for example in shared]))
    if min(map(len, tables)) < 2:
        return incomparable(TOO_FEW)
    for table in tables:
        means.append(table.mean(0))
        rows = (generator.integers(len(table), size=len(table)) for _ in range(DRAWS))
        drawn.append(np.stack([table[row].mean(0) for row in rows]))
    apart = dict(zip(first, (means[0] - means[1]).tolist(), strict=True))
    return _by_draws(apart, (drawn[0] - drawn[1]).T, 3)


def _by_draws(means: Mapping[str, float], draws: Array, digits: int) -> Verdict:
    """The word by the rule for order, from resamples [pair draw]. The half-width of all intervals in standard errors is
    a quantile of the largest |t| over the pairs."""
    errors = np.nanstd(draws, axis=-1, keepdims=True)
    centred = np.abs(draws - np.nanmean(draws, axis=-1, keepdims=True))
    t = np.divide(centred, errors, out=np.zeros_like(centred), where=errors > 0)
    reach = float(np.quantile(np.nan_to_num(t).max(0), 0.95)) * errors[:, 0]
    ends = {name: (mean, mean - half, mean + half) for (name, mean), half in zip(means.items(), reach, strict=True)}
    told = (
        f"{name} {mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]" for name, (mean, low, high) in ends.items()
    )
    signs = {name: np.sign(mean) if low > 0 or high < 0 else 0.0 for name, (mean, low, high) in ends.items()}
    return by_signs(signs, "; ".join(told), lambda level: f"not apart: {', '.join(level)}")


def verdict_on_agreement(curves: Mapping[str, Agreement], *, negative: bool = False) -> Verdict:
    """The verdict on "each of these rises with the other curve" (falls, with `negative`), by chance alone in under 5
    %."""
    if not curves:
        return incomparable("none of these was run")
    ours = "; ".join(f"{name} rho {one.rho:+.2f} (p {one.p:.3f})" for name, one in curves.items())
    signs = {name: float(one.sign * (-1 if negative else 1)) for name, one in curves.items()}
    layers = next(iter(curves.values())).layers
    told = f"with {layers} layers {_least_told(layers)} can be told from chance"
    return by_signs(signs, ours, lambda level: f"{told}: {', '.join(level)}")


def _least_told(layers: int) -> str:
    """The smallest |rho| of so many layers that chance gives in under 5 % of all orders, in words."""
    numbers = np.arange(float(layers))
    chance = np.sort(np.abs(linear(_orders(layers, 0).astype(float), numbers[None])))[::-1]
    told = [rho for rho in np.unique(chance.round(9)) if np.mean(chance >= rho - 1e-9) < LEVEL]
    return f"only |rho| of {told[0]:.2f} or more" if told else "no rho"
