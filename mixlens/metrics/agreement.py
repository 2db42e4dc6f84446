"""Agreement of attributions: with a reference, between classes, between models, between maps; ranks of single
tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, repeat
from operator import eq
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..scoring.aggregate import bare
from ..scoring.attributions import attribute
from ..types import Attribution, Map, Trace
from .arguments import VARIANTS, Array, Marks, Scores, array, one_of, pair, scipy_stats, vector
from .intervals import Interval, mean_with_interval
from .registry import metric

ABNAR = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"
ALTI = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"
ATTCAT = "Qiang et al. 2022, AttCAT: Explaining Transformers via Attentive Class Activation Tokens"
GLOBENC = "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution"
PUNCTUATION = (".", ",")


def ranks(values: Array, *, ties: str = "average") -> Array:
    """1 for the smallest, along the last axis. Ties share their "average" rank, or ranks have no gaps ("dense")."""
    order: Array = scipy_stats().rankdata(values, method=ties, axis=-1)
    return order


def linear(a: Array, b: Array) -> Array:
    """Pearson's r along the last axis; NaN where one side is constant or has fewer than two entries."""
    constant = (a == a[..., :1]).all(-1) | (b == b[..., :1]).all(-1)
    a, b = (_unit(side) for side in (a, b))
    return np.where(constant, np.nan, np.clip((a * b).sum(-1), -1, 1))


def _unit(side: Array) -> Array:
    """Centred, of length 1. Its largest entry is brought near 1 before each step: means and squares of tiny or huge
    scores leave the number type. The first scale is a power of two, so that it rounds nothing."""
    largest = np.linalg.norm(side, ord=np.inf, axis=-1, keepdims=True)
    side = np.ldexp(side, -np.frexp(largest)[1])
    centred = side - side.mean(-1, keepdims=True)
    for power in (np.inf, 2):
        size = np.linalg.norm(centred, ord=power, axis=-1, keepdims=True)
        centred = centred / np.where(size > 0, size, 1)
    return centred


@metric(paper=ABNAR, needs=("scores", "reference"), better="higher", variants=VARIANTS)
def spearman(scores: Scores, reference: Scores, *, variant: str = "paper") -> float:
    """Spearman's rank correlation with a reference attribution, tied tokens sharing their average rank.

    NaN where one side is constant or there is one token only. `released` (ALTI's code): dense ranks in the formula
    1 - 6 sum d^2 / (n (n^2 - 1)), which holds without ties alone.
    """
    a, b = pair(scores, reference)
    if one_of("variant", variant, VARIANTS) == "paper":
        return float(linear(ranks(a), ranks(b)))
    n = len(a)
    gaps = ranks(a, ties="dense") - ranks(b, ties="dense")
    return float(1 - 6 * (gaps**2).sum() / (n * (n**2 - 1))) if n > 1 else np.nan


@metric(paper=GLOBENC, needs=("scores", "reference"), better="higher")
def pearson(scores: Scores, reference: Scores) -> float:
    """Pearson's correlation with a reference attribution; NaN where one side is constant or there is one token only."""
    return float(linear(*pair(scores, reference)))


@metric(paper="Kendall 1945, The Treatment of Ties in Ranking Problems", needs=("scores", "reference"), better="higher")
def kendall(scores: Scores, reference: Scores) -> float:
    """Kendall's tau-b with a reference attribution; NaN where one side is constant or there is one token only."""
    a, b = pair(scores, reference)
    if len(set(a.tolist())) == 1 or len(set(b.tolist())) == 1:
        return np.nan
    return float(scipy_stats().kendalltau(a, b).statistic)


CONFIDENCE = ("paper", "scores", "released")
CORRELATIONS: dict[str, Callable[..., float]] = {"spearman": spearman, "pearson": pearson, "kendall": kendall}


def correlation(name: str) -> Callable[..., float]:
    return CORRELATIONS[one_of("correlation", name, CORRELATIONS)]


@metric(paper=ATTCAT, needs=("scores", "classes", "class-specific"), better="lower", variants=CONFIDENCE)
def kendall_confidence(scores: Scores, others: Sequence[Scores], *, variant: str = "paper") -> float:
    """Kendall's tau between a class and the other classes, mean over those: a confident method tells them apart (eq. 15).

    `paper`: of the token indices in order of decreasing score, as eq. 15 defines it (ties are left to numpy's sort).
    The indices are names, so that their tau is near 0 for any two different orders. `scores`: of the scores themselves,
    -1 to 1; 1 for a method that does not know of classes. `released`: as `paper`, with the first of the other classes
    alone, as the notebook of MNLI has it. See `class_attributions`."""
    if not len(others):
        raise InputError(
            "kendall_confidence compares a class with others, and none were given. The model needs two classes."
        )
    if one_of("variant", variant, CONFIDENCE) == "scores":
        return float(np.mean([kendall(scores, other) for other in others]))
    compared = others if variant == "paper" else others[:1]
    orders = [[np.argsort(-side) for side in pair(scores, other)] for other in compared]
    return float(np.mean([scipy_stats().kendalltau(*order).statistic for order in orders]))


def class_attributions(trace: Trace, name: str, **options: Any) -> tuple[Attribution, list[Attribution]]:
    """The attribution for the predicted class, and those for each of the others: what `kendall_confidence` takes."""
    if trace.model.task != "classification" or trace.logits is None:
        raise InputError(
            f"{trace.model.name!r} does not classify texts (its task is {trace.model.task!r}): it has no classes."
        )
    predicted = int(trace.logits.argmax())
    attributions = [attribute(trace, name, target=label, **options) for label in range(len(trace.logits))]
    return attributions[predicted], [other for label, other in enumerate(attributions) if label != predicted]


@metric(paper=GLOBENC, needs=("map", "reference"), better="higher")
def layer_agreement(
    scores: Map, reference: Scores, *, query: int | str = 0, over: str = "row", how: str = "spearman"
) -> tuple[float, ...]:
    """[layer]: each layer of a map (rolled out or not) against a reference attribution.

    `over="row"` takes the row of `query` (GlobEnc's CLS), `over="sum"` what each token gave to all positions (its SUM).
    """
    measure = correlation(how)
    if one_of("over", over, ("row", "sum")) == "sum":
        return tuple(measure(layer.sum(0), reference) for layer in array(scores, "scores", 3))
    return tuple(measure(scores.readout(query, layer=layer), reference) for layer in range(len(scores.scores)))


@metric(paper=GLOBENC, needs=("map", "reference"), better="higher")
def row_agreement(scores: Map, reference: Map, *, how: str = "pearson") -> Array:
    """[layer query]: every row of a map against the same row of another, such as HTA's.

    The rows of causal models end at their own token: what no one may look at is no agreement. NaN where a row is
    constant."""
    a, b, seen = _alike(scores, reference)
    measure = correlation(how)
    return np.array([[measure(x[i, row], y[i, row]) for i, row in enumerate(seen)] for x, y in zip(a, b, strict=True)])


@metric(paper=GLOBENC, needs=("map", "reference"), better="higher")
def map_agreement(scores: Map, reference: Map, *, how: str = "pearson") -> Array:
    """[layer]: all entries of a layer's map against those of another map, such as HTA's, as one list of numbers.

    Unlike `row_agreement` it sees how large one row is beside the others. In causal models the entries that no token
    may look at are left out. NaN where a map is constant."""
    a, b, seen = _alike(scores, reference)
    measure = correlation(how)
    return np.array([measure(x[seen], y[seen]) for x, y in zip(a, b, strict=True)])


def _alike(scores: Map, reference: Map) -> tuple[Array, Array, Marks]:
    """Two maps of the same model and tokens, [layer query key] each; and where a query may look, [query key]."""
    a, b = array(scores, "scores", 3), array(reference, "reference", 3)
    if a.shape != b.shape or scores.tokens != reference.tokens:
        raise InputError(f"the maps are of shapes {a.shape} and {b.shape}; both must be of the same model and tokens.")
    n = a.shape[-1]
    return a, b, np.tri(n, dtype=bool) if scores.info.get("causal") else np.ones((n, n), dtype=bool)


# --- between models ---------------------------------------------------------------------------------------------------


@metric(paper=ALTI, needs=("models",), better="higher", variants=VARIANTS)
def model_agreement(
    first: Sequence[Scores],
    second: Sequence[Scores],
    *,
    predictions: tuple[Sequence[Any], Sequence[Any]] | None = None,
    how: str = "spearman",
    confidence: float = 0.95,
    seed: int = 0,
    variant: str = "paper",
) -> Interval:
    """Mean correlation of two models' attributions of the same examples, of those alone that both predict alike.

    The models must share a tokenizer. `predictions` are the two models' predicted classes; without them every example
    counts. `released`: dense ranks, as in `spearman`.
    """
    lengths = [len(first), len(second), *map(len, predictions or ())]
    if len(set(lengths)) != 1:
        raise InputError(f"model agreement needs the same examples from both models; the lengths are {lengths}.")
    measure = correlation(how)
    options = {"variant": variant} if how == "spearman" else {}
    alike = repeat(True, len(first)) if predictions is None else map(eq, *predictions)
    values = [measure(a, b, **options) for a, b, same in zip(first, second, alike, strict=True) if same]
    if not values:
        raise InputError("the two models predict no example alike, so there is nothing to compare.")
    return mean_with_interval(values, confidence=confidence, seed=seed)


def seed_agreement(
    models: Mapping[str, Sequence[Scores]], *, predictions: Mapping[str, Sequence[Any]] | None = None, **options: Any
) -> dict[tuple[str, str], Interval]:
    """`model_agreement` of every two of several models (seeds of one, say), by their names."""
    found = {}
    for a, b in combinations(models, 2):
        predicted = None if predictions is None else (predictions[a], predictions[b])
        found[a, b] = model_agreement(models[a], models[b], predictions=predicted, **options)
    return found


# --- ranks of single tokens -------------------------------------------------------------------------------------------


def normalized_ranks(scores: Scores, *, variant: str = "paper") -> Array:
    """[pos]: (rank - 1) / (n - 1), from 0 for the lowest score to 1 for the highest; NaN for one token alone.

    Tied tokens share their average rank. `released` (ALTI's code): rank / n, with ranks that have no gaps.
    """
    values = vector(scores)
    n = len(values)
    if one_of("variant", variant, VARIANTS) == "released":
        return ranks(values, ties="dense") / n
    return (ranks(values) - 1) / (n - 1) if n > 1 else np.full(1, np.nan)


@metric(paper=ALTI, needs=("scores",), better="neither", variants=VARIANTS)
def special_token_ranks(
    scores: Attribution, *, punctuation: Sequence[str] = PUNCTUATION, variant: str = "paper"
) -> dict[str, float]:
    """Normalised relevance rank (0 for the least relevant token, 1 for the most) of each special token and punctuation mark.

    A token that occurs more than once has the mean of its ranks. `released`: its first place alone; see
    `normalized_ranks`."""
    special = scores.special or (False,) * len(scores.tokens)
    ranks_of: dict[str, list[float]] = {}
    for token, is_special, rank in zip(scores.tokens, special, normalized_ranks(scores, variant=variant), strict=True):
        name = token if is_special else bare(token)
        if is_special or name in punctuation:
            ranks_of.setdefault(name, []).append(float(rank))
    return {name: float(np.mean(values)) if variant == "paper" else values[0] for name, values in ranks_of.items()}
