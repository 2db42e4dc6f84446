"""What maps say about mixing (Brunner et al. 2020, On Identifiability in Transformers, section 5): own token, distance,
part of speech, [SEP]; and the mixing ratio (Kobayashi et al. 2021)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..scoring.aggregate import find
from ..types import Map
from .arguments import Array, array
from .intervals import Interval, mean_with_interval
from .registry import metric

BRUNNER = "Brunner et al. 2020, On Identifiability in Transformers"
KOBAYASHI = "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked LMs"
DISTANCES = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))  # first and last distance of a group


@metric(paper=KOBAYASHI, needs=("map",), better="neither")
def mixing_ratio(scores: Map) -> Array:
    """[layer query]: r_i = |sum_{j != i} w_ij| / (that + |w_ii|), vectors summed first: how much came from other tokens.

    Norm-based methods hand it out with their map.
    """
    if "mixing_ratio" not in scores.info:
        raise InputError(
            f"a map of {scores.method!r} has no mixing ratio: it needs vectors. Use one of norm, norm_residual, "
            "norm_residual_ln, globenc, attention_residual; own_share works with any map."
        )
    return array(scores.info["mixing_ratio"], "mixing ratio", 2)


@metric(paper=BRUNNER, needs=("map",), better="neither")
def own_share(scores: Map) -> Array:
    """[layer query]: the share of a position's own token in its row. NaN where a row sums to 0."""
    values = array(scores, "scores", 3)
    return _ratio(np.diagonal(values, axis1=-2, axis2=-1), values.sum(-1))


@metric(paper=BRUNNER, needs=("map",), better="neither")
def not_own_top(scores: Map) -> Array:
    """[layer query]: 1 where some other token contributes more than the position's own, else 0. Its mean over positions is
    the share of tokens that are not their own main contributor. A tie with the own token counts for it."""
    values = array(scores, "scores", 3)
    return (values.max(-1) > np.diagonal(values, axis1=-2, axis2=-1)).astype(np.float64)


@metric(paper=BRUNNER, needs=("map",), better="neither")
def share_by_distance(
    scores: Map, *, groups: Sequence[tuple[int, int | None]] = DISTANCES, per_token: bool = False
) -> Array:
    """[layer query group]: what a position takes from the tokens at a distance |i - j| of 1, 2, 3, 4-5, 6-10, 11 and more,
    as a share of what it takes from all others. `per_token`: divided by how many there are. NaN where there are
    none."""
    values = array(scores, "scores", 3)
    shares = _ratio(values, np.where(np.eye(values.shape[-1], dtype=bool), 0, values).sum(-1, keepdims=True))
    return _by_distance(scores, shares, groups, mean=per_token)


@metric(paper=BRUNNER, needs=("map",), better="neither")
def mean_by_distance(scores: Map, *, groups: Sequence[tuple[int, int | None]] = DISTANCES) -> Array:
    """[layer query group]: the mean share in a position's row of the tokens at a distance |i - j| of 1, 2, 3, 4-5, 6-10, 11 and
    more (Appendix C.2, before it is averaged over tokens). NaN where there are none."""
    values = array(scores, "scores", 3)
    return _by_distance(scores, _ratio(values, values.sum(-1, keepdims=True)), groups, mean=True)


def _by_distance(scores: Map, shares: Array, groups: Sequence[tuple[int, int | None]], *, mean: bool) -> Array:
    """[layer query group]: the sum or mean of [layer query key] over the keys that far from the query which it may
    see."""
    n = len(scores.tokens)
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    allowed = np.tri(n, dtype=bool) if scores.info.get("causal") else np.ones((n, n), dtype=bool)
    columns = []
    for first, last in groups:
        if first < 1 or (last is not None and last < first):
            raise InputError(
                f"a group of distances is (first, last) with 1 <= first <= last, or last None; not {(first, last)}."
            )
        within = allowed & (distance >= first) & (distance <= (n if last is None else last))
        count = within.sum(-1)
        taken = np.where(within, shares, 0).sum(-1) / (np.maximum(count, 1) if mean else 1)
        columns.append(np.where(count > 0, taken, np.nan))
    return np.stack(columns, -1)


@metric(paper=BRUNNER, needs=("map",), better="neither")
def share_around(scores: Map, *, query: int | str = 0, centre: int | str | None = None, reach: int = 5) -> Array:
    """[layer 2 reach + 1]: what `query` ([CLS]) takes from the tokens around `centre` (None: the first [SEP]), from `reach`
    before to `reach` behind, as shares of its row. NaN where the text has ended."""
    values = array(scores, "scores", 3)
    row = values[:, find(scores.tokens, query)]
    if centre is None:
        behind = [i for i, special in enumerate(scores.special) if special and i > 0]
        if not behind:
            raise InputError("the text has no special token behind its first. Say the centre: an index, or a token.")
        middle = behind[0]
    else:
        middle = find(scores.tokens, centre)
    places = np.arange(middle - reach, middle + reach + 1)
    inside = (places >= 0) & (places < values.shape[-1])
    taken = _ratio(row[:, places.clip(0, values.shape[-1] - 1)], row.sum(-1, keepdims=True))
    return np.where(inside, taken, np.nan)


def by_tag(
    values: Sequence[Array], tags: Sequence[Sequence[Hashable | None]], *, confidence: float = 0.95, seed: int = 0
) -> dict[Any, tuple[Interval, ...]]:
    """For each tag, a mean and interval for every layer of some [layer query] (`own_share`, `not_own_top`,
    `mixing_ratio`).

    `tags` has one entry for every token of every example: its part of speech (`inputs.tags_at`), "special" or not;
    None leaves a token out. Texts are resampled, not tokens.
    """
    if len(values) != len(tags) or not values:
        raise InputError(
            f"there are values for {len(values)} examples and tags for {len(tags)}. Give both for each, at least one."
        )
    for number, (value, row) in enumerate(zip(values, tags, strict=True)):
        if np.ndim(value) != 2 or np.shape(value)[1] != len(row):
            raise InputError(
                f"example {number}: values of shape {np.shape(value)} need one tag for each query, and have {len(row)}."
            )
    columns = np.concatenate([np.asarray(value, dtype=np.float64) for value in values], -1)  # [layer token]
    names = [tag for row in tags for tag in row]
    text = np.repeat(np.arange(len(values)), [len(row) for row in tags])
    found = {}
    for tag in dict.fromkeys(names):
        is_tag = np.array([name == tag for name in names])
        options: dict[str, Any] = {"groups": text[is_tag], "confidence": confidence, "seed": seed}
        if tag is not None:
            found[tag] = tuple(mean_with_interval(layer[is_tag], **options) for layer in columns)
    return found


def quantile_with_interval(
    values: Array,
    groups: Sequence[Any],
    *,
    share: float = 0.5,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 500,
) -> Interval:
    """A quantile (0.5: the median) of values, with a bootstrap interval: groups (the texts of tokens) are resampled.

    A resample gives every group a count. Its quantile is the smallest value at which the summed counts reach the share.
    """
    names, number = np.unique(np.asarray(groups), return_inverse=True)
    n, exact, std = len(names), float(np.quantile(values, share)), float(np.std(values))
    if n < 2:
        return Interval(exact, np.nan, np.nan, n, std, confidence)
    order = np.argsort(values, kind="stable")
    ordered, text = np.asarray(values)[order], number[order]
    generator, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        counts = generator.multinomial(n, np.full(n, 1 / n))[text].cumsum()
        place = int(np.searchsorted(counts, max(1, share * counts[-1])))
        found.append(ordered[min(place, len(counts) - 1)])  # the last where all counts are 0
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(exact, float(low), float(high), n, std, confidence)


def by_layer(values: Sequence[Array], *, confidence: float = 0.95, seed: int = 0) -> tuple[Interval, ...]:
    """[layer]: mean and interval over all positions of all texts of some [layer query]. Texts are resampled, not
    tokens."""
    return by_tag(values, [[True] * np.shape(value)[-1] for value in values], confidence=confidence, seed=seed)[True]


def _ratio(part: Array, whole: Array) -> Array:
    """NaN where the whole is 0."""
    nothing = whole == 0
    return np.where(nothing, np.nan, part / np.where(nothing, 1, whole))
