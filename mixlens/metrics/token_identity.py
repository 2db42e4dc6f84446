"""Token identifiability (Brunner et al. 2020, On Identifiability in Transformers, section 4): which input token is a
hidden state still?

A map g takes hidden states to the space of the input tokens; a token is identified where the nearest input vector of
its own text is its own. g is nothing at all ("naive"), a matrix ("linear") or one hidden layer of 1,000 GELUs ("mlp").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .. import fast
from ..base.errors import InputError
from ..scoring.attributions import Question
from ..types import Trace
from .arguments import Array, one_of
from .intervals import Interval, mean_with_interval
from .mixing_stats import BRUNNER
from .registry import metric
from .token_training import PAPERS_TRAINING, Fit, Split, Training, best_fits, wide

DISTANCES = ("cosine", "l2")
KINDS = ("naive", "linear", "mlp")
EQUAL = 1e-12  # distances in float64 that differ by less are equal: a product rounds equal vectors by some 1e-16 apart
Texts = Sequence[Tensor]  # one [pos d] for each text


@dataclass(frozen=True)
class Identified:
    """The share of tokens that are identified, over the texts that are tested."""

    rate: Interval  # texts are resampled, not tokens
    by_fold: tuple[float, ...]
    by_text: tuple[
        tuple[int, int, int], ...
    ] = ()  # number of the text, tokens identified, tokens tested, over all folds
    epochs: tuple[int, ...] = ()  # of each fold's training

    @property
    def value(self) -> float:
        return self.rate.mean


def input_vectors(trace: Trace, *, embedding: str = "sum") -> Tensor:
    """[pos d]: the input tokens' "word" embeddings, the "sum" with positions and segments, or what enters layer 0
    ("after")."""
    if embedding == "after":
        return trace.layers[0].input.to(trace.model.device)
    question = Question(trace, None, None, 0)
    return question.place(question.run, embedding)[0].detach()


def distances(vectors: Tensor, candidates: Tensor, *, distance: str = "cosine") -> Tensor:
    """[query candidate], of [query d] and [candidate d]."""
    if one_of("distance", distance, DISTANCES) == "l2":
        return torch.cdist(vectors.double(), candidates.double(), compute_mode="donot_use_mm_for_euclid_dist")
    unit = [F.normalize(side.double(), dim=-1) for side in (vectors, candidates)]
    return 1 - unit[0] @ unit[1].T


def nearest_token(hidden: Tensor, inputs: Tensor, *, distance: str = "cosine") -> Tensor:
    """[pos]: for each hidden state of a text, the position of the nearest input vector of that text."""
    return distances(hidden, inputs, distance=distance).argmin(-1)


def identified(hidden: Tensor, inputs: Tensor, *, distance: str = "cosine", offset: int = 0) -> Array:
    """[pos]: 1 where no input vector is nearer than that of the token itself (or of its neighbour at `offset`), else 0.

    Positions whose neighbour lies outside of the text are left out. An equal vector elsewhere counts as the token's
    own."""
    n = len(hidden)
    if hidden.dim() != 2 or len(inputs) != n or hidden.shape[1] != inputs.shape[1]:
        raise InputError(
            f"hidden states {tuple(hidden.shape)} and inputs {tuple(inputs.shape)} must be [pos d] of one text."
        )
    places = [i for i in range(n) if 0 <= i + offset < n]
    if not places:
        return np.zeros(0)
    far = distances(hidden[places], inputs, distance=distance)
    own = far[range(len(places)), [i + offset for i in places]]
    return (own <= far.min(-1).values * (1 + EQUAL) + EQUAL).double().cpu().numpy()


@dataclass(frozen=True)
class Search:
    """Hidden states, and the vectors among which the nearest is looked for: one [pos d] for each text on both sides.

    `offset` asks for a neighbour instead of the token itself; `share` is the part of the training texts that is used.
    """

    hidden: Texts
    inputs: Texts
    offset: int = 0
    share: float = 1.0


def identified_rates(
    searches: Sequence[Search],
    *,
    kind: str,
    distance: str,
    folds: int,
    training: Training,
    seed: int,
    parts: Sequence[str] = ("test",),
    confidence: float = 0.95,
) -> list[tuple[Identified, ...]]:
    """Of each search the rates of these parts of the texts, "train" or "test", through its own g.

    On a GPU all g are trained side by side. The "naive" g needs no training, and its rate is that of all texts.
    """
    for one in searches:
        _checked(one.hidden, one.inputs, kind)
    if kind == "naive":
        whole = [Fold((), range(len(one.hidden)), None) for one in searches]
        return [
            (_rate([fold], "test", one, distance, confidence, seed),) * len(parts)
            for fold, one in zip(whole, searches, strict=True)
        ]
    trained = _trained_folds(searches, folds=folds, seed=seed, kind=kind, distance=distance, training=training)
    return [
        tuple(_rate(of_one, part, one, distance, confidence, seed) for part in parts)
        for one, of_one in zip(searches, trained, strict=True)
    ]


def side_by_side(texts: Texts) -> bool:
    """Whether the g of several searches are trained as one, so that it pays to ask for them together."""
    return fast.trained_at_once(texts[0].device, 1) > 1


@metric(paper=BRUNNER, needs=("hidden",), better="neither")
def token_identifiability(
    hidden: Texts,
    inputs: Texts,
    *,
    kind: str = "linear",
    distance: str = "cosine",
    offset: int = 0,
    folds: int = 10,
    training: Training = PAPERS_TRAINING,
    seed: int = 0,
    confidence: float = 0.95,
) -> Identified:
    """The share of tokens that can be told from their hidden states, one [pos d] for each text on both sides.

    `inputs` are the input vectors, or hidden states of an earlier layer (hidden to hidden). `offset` asks for a
    neighbour instead of the token itself. g is trained on 70 % of the texts by the distance itself, stopped on 15 %,
    tested on the rest, `folds` times over other splits; the "naive" g needs no training and is tested on all texts."""
    ((found,),) = identified_rates(
        [Search(hidden, inputs, offset)],
        kind=kind,
        distance=distance,
        folds=folds,
        training=training,
        seed=seed,
        confidence=confidence,
    )
    return found


@metric(paper=BRUNNER, needs=("hidden",), better="neither")
def identifiability_across_layers(
    layers: Sequence[Texts],
    inputs: Texts,
    *,
    kind: str = "linear",
    distance: str = "cosine",
    folds: int = 10,
    training: Training = PAPERS_TRAINING,
    seed: int = 0,
    confidence: float = 0.95,
    trained: Sequence[int] | None = None,
) -> tuple[tuple[Identified, ...], ...]:
    """[trained tested]: the share of tokens identified in one layer by a g that was trained on another.

    `trained` are the places in `layers` of those on which a g is trained; all of them by default.
    """
    for hidden in layers:
        _checked(hidden, inputs, kind)
    if kind == "naive":
        raise InputError(
            "the naive g is not trained, so no layer is its own. Use token_identifiability, or kind='linear'."
        )
    places = range(len(layers)) if trained is None else trained
    searches = [Search(hidden, inputs) for hidden in layers]
    of_layers = _trained_folds(
        [searches[place] for place in places], folds=folds, seed=seed, kind=kind, distance=distance, training=training
    )
    return tuple(
        tuple(_rate(of_layer, "test", one, distance, confidence, seed) for one in searches) for of_layer in of_layers
    )


@metric(paper=BRUNNER, needs=("hidden",), better="neither")
def train_and_test_rates(
    hidden: Texts,
    inputs: Texts,
    *,
    kind: str = "linear",
    distance: str = "l2",
    share: float = 1.0,
    folds: int = 1,
    training: Training = PAPERS_TRAINING,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[Identified, Identified]:
    """The shares of tokens identified in the texts that g was trained on, and in those that it was not (B.2).

    `share` is the part of the training texts that is used; the validation and test texts stay the same.
    """
    ((train, test),) = identified_rates(
        [Search(hidden, inputs, share=share)],
        parts=("train", "test"),
        kind=kind,
        distance=distance,
        folds=folds,
        training=training,
        seed=seed,
        confidence=confidence,
    )
    return train, test


def _checked(hidden: Texts, inputs: Texts, kind: str) -> None:
    one_of("kind", kind, KINDS)
    if len(hidden) != len(inputs) or not hidden:
        raise InputError(
            f"there are hidden states of {len(hidden)} texts and inputs of {len(inputs)}. Give both for each text."
        )
    if kind != "naive" and len(hidden) < 7:
        raise InputError(
            f"{len(hidden)} texts cannot be split into 70 % to train, 15 % to stop and 15 % to test. Give at least 7."
        )


@dataclass(frozen=True)
class Fold:
    """A g with the numbers of the texts that it was trained on and of those that test it; None is nothing at all."""

    train: Sequence[int]
    test: Sequence[int]
    fit: Fit | None


def _rate(folds: Sequence[Fold], part: str, search: Search, distance: str, confidence: float, seed: int) -> Identified:
    """What each fold's g identifies in its "train" or "test" texts of a search."""
    rows: list[Array] = []  # of each text of each fold, which tokens are identified through g
    texts: list[int] = []
    by_fold = []
    for fold in folds:
        of_fold = fold.train if part == "train" else fold.test
        for i in of_fold:
            hidden = search.hidden[i] if fold.fit is None else fold.fit.g(wide(search.hidden[i]))
            rows.append(identified(hidden, search.inputs[i], distance=distance, offset=search.offset))
        texts += of_fold
        if sum(map(len, rows[len(rows) - len(of_fold) :])):
            by_fold.append(float(np.concatenate(rows[len(rows) - len(of_fold) :]).mean()))
    hits, of_text = np.concatenate(rows), np.repeat(texts, [len(row) for row in rows])
    rate = mean_with_interval(hits, groups=of_text, confidence=confidence, seed=seed)
    by_text = tuple(
        (int(text), int(hits[of_text == text].sum()), int((of_text == text).sum())) for text in np.unique(of_text)
    )
    return Identified(rate, tuple(by_fold), by_text, tuple(fold.fit.epochs for fold in folds if fold.fit is not None))


def _trained_folds(
    searches: Sequence[Search], *, folds: int, seed: int, kind: str, distance: str, training: Training
) -> list[list[Fold]]:
    """Of each search a g for each of `folds` splits of the texts: as many at a time as the memory of a GPU holds."""
    asked = list(product(searches, range(seed, seed + folds)))
    at_once = 1 if not searches else min(fast.trained_at_once(one.hidden[0].device, _memory(one)) for one in searches)
    made: list[Fold] = []
    for start in range(0, len(asked), at_once):
        some = [_split(search, number) for search, number in asked[start : start + at_once]]
        fits = best_fits([split for _, split, _ in some], kind=kind, distance=distance, training=training)
        made += [Fold(train, test, fit) for (train, _, test), fit in zip(some, fits, strict=True)]
    return [made[start : start + folds] for start in range(0, len(made), folds)]


def _memory(search: Search) -> int:
    """About what one training takes, in bytes: its texts twice, and what a pass over those that stop it holds."""
    return 3 * sum(one.numel() * max(4, one.element_size()) for one in (*search.hidden, *search.inputs))


def _split(search: Search, seed: int) -> tuple[list[int], Split, list[int]]:
    """One split of the texts: the numbers of those to train (a share of 70 %), the tokens to train and to stop (15 %),
    and the numbers of the texts to test (15 %). Tokens are hidden states and the input vectors that they are to be
    mapped to."""
    order = np.random.default_rng(seed).permutation(len(search.hidden)).tolist()
    first, second = round(0.7 * len(order)), round(0.85 * len(order))
    train = order[: max(1, round(search.share * first))]
    sides = []
    for texts in (train, order[first:second]):
        states, targets = [], []
        for i in texts:
            n, offset = len(search.hidden[i]), search.offset
            start, end = max(0, -offset), max(0, -offset, n - max(0, offset))
            states.append(search.hidden[i][start:end])
            targets.append(search.inputs[i][start + offset : end + offset])
        sides.append((wide(torch.cat(states)), wide(torch.cat(targets))))
    return train, Split(sides[0], sides[1], seed), order[second:]
