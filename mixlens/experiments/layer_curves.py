"""Whether two curves over layers rise together: Spearman's rank correlation, and how often chance gives as much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ..metrics.agreement import linear, ranks
from ..metrics.arguments import Array
from .claims import DIFFERENT, SAME, UNDECIDED, Verdict, incomparable

EXACT = 8  # up to so many layers every order is tried
DRAWN = 20_000  # orders that are drawn for more layers
LEVEL = 0.05


@dataclass(frozen=True)
class Agreement:
    """Spearman's rho of two curves over layers, and p: the share of orders of the layers with |rho| as large or larger."""

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


def verdict_on_draws(
    values: Mapping[str, float], draws: Mapping[str, Array], pairs: Sequence[tuple[str, str]], *, confidence: float = 0.95
) -> Verdict:
    """The verdict on "the first of each pair is above the second", for a statistic of the whole sample such as rho.

    `draws` has the statistic of each resample of the examples, the same resamples for every name. The intervals hold for all
    pairs at once (max-t).
    """
    absent = [name for name in dict.fromkeys(name for pair in pairs for name in pair) if name not in values]
    if absent:
        return incomparable(f"not run: {', '.join(absent)}")
    apart = np.stack([draws[a] - draws[b] for a, b in pairs])
    means = np.array([values[a] - values[b] for a, b in pairs])
    reach = _reach(apart, confidence) * np.nanstd(apart, -1)
    return _worded([f"{a} - {b}" for a, b in pairs], means, reach)


def _reach(draws: Array, confidence: float) -> float:
    """The half-width of all intervals in standard errors: a quantile of the largest |t| over [pair draw]."""
    errors = np.nanstd(draws, axis=-1, keepdims=True)
    centred = np.abs(draws - np.nanmean(draws, axis=-1, keepdims=True))
    t = np.divide(centred, errors, out=np.zeros_like(centred), where=errors > 0)
    return float(np.quantile(np.nan_to_num(t).max(0), confidence))


def _worded(names: Sequence[str], means: Array, reach: Array) -> Verdict:
    """The word by the rule for order: every interval above 0, one below 0, or neither."""
    shown = zip(names, means, means - reach, means + reach, strict=True)
    ours = "; ".join(f"{name} {mean:+.2f} [{low:+.2f}, {high:+.2f}]" for name, mean, low, high in shown)
    signs = np.where(np.abs(means) > reach, np.sign(means), 0)
    return _by_signs(dict(zip(names, signs, strict=True)), ours, "not apart")


def _by_signs(signs: Mapping[str, float], ours: str, undecided: str) -> Verdict:
    """Different where one sign is negative, same where all are positive; else not told apart, for the reason given."""
    against = [name for name, sign in signs.items() if sign < 0]
    if against:
        return Verdict(DIFFERENT, ours, f"the other way round: {', '.join(against)}")
    open_ = [name for name, sign in signs.items() if sign == 0]
    return Verdict(UNDECIDED, ours, f"{undecided}: {', '.join(open_)}") if open_ else Verdict(SAME, ours)


def verdict_on_agreement(curves: Mapping[str, Agreement], *, negative: bool = False) -> Verdict:
    """The verdict on "each of these rises with the other curve" (falls, with `negative`), by chance alone in under 5 %."""
    if not curves:
        return incomparable("none of these was run")
    ours = "; ".join(f"{name} rho {one.rho:+.2f} (p {one.p:.3f})" for name, one in curves.items())
    signs = {name: one.sign * (-1 if negative else 1) for name, one in curves.items()}
    layers = next(iter(curves.values())).layers
    return _by_signs(signs, ours, f"chance orders {layers} layers as well in 5 % or more of all orders")
