"""Token identifiability (Brunner et al. 2020, On Identifiability in Transformers, section 4): which input token is a
hidden state still?

A map g takes hidden states to the space of the input tokens; a token is identified where the nearest input vector of its
own text is its own. g is nothing at all ("naive"), a matrix ("linear") or one hidden layer of 1,000 GELUs ("mlp").
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..attributions import Question
from ..errors import InputError
from ..types import Trace
from .arguments import Array, one_of
from .intervals import Interval, mean_with_interval
from .mixing_stats import BRUNNER
from .registry import metric

DISTANCES = ("cosine", "l2")
KINDS = ("naive", "linear", "mlp")
EQUAL = 1e-12  # distances in float64 that differ by less are equal: a product rounds equal vectors by some 1e-16 apart
Texts = Sequence[Tensor]  # one [pos d] for each text
Tested = tuple[Sequence[int], Sequence[Array]]  # texts, and for each of them which tokens were identified, [pos]


RATES = (0.003, 0.001, 0.0003, 0.0001, 0.00003, 0.00001, 0.000003)  # those that the paper tried (B.1)


@dataclass(frozen=True)
class Training:
    """How g is trained; the defaults are the paper's (B.1): no limit of epochs, because the validation texts stop it.

    With several `rates` g is trained by each of them, and the one with the lowest loss on the validation texts is used.
    """

    rate: float = 1e-4
    batch: int = 256
    patience: int = 20
    epochs: int | None = None  # None: until `patience` epochs have brought nothing
    hidden: int = 1000
    rates: tuple[float, ...] = ()


PAPERS_TRAINING = Training()


@dataclass(frozen=True)
class Identified:
    """The share of tokens that are identified, over the texts that are tested."""

    rate: Interval  # texts are resampled, not tokens
    by_fold: tuple[float, ...]
    by_text: tuple[tuple[int, int, int], ...] = ()  # number of the text, tokens identified, tokens tested, over all folds
    epochs: tuple[int, ...] = ()  # of each fold's training

    @property
    def value(self) -> float:
        return self.rate.mean


def input_vectors(trace: Trace, *, embedding: str = "sum") -> Tensor:
    """[pos d]: the input tokens' "word" embeddings, the "sum" with positions and segments, or what enters layer 0 ("after")."""
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

    Positions whose neighbour lies outside of the text are left out. An equal vector elsewhere counts as the token's own.
    """
    n = len(hidden)
    if hidden.dim() != 2 or len(inputs) != n or hidden.shape[1] != inputs.shape[1]:
        raise InputError(f"hidden states {tuple(hidden.shape)} and inputs {tuple(inputs.shape)} must be [pos d] of one text.")
    places = [i for i in range(n) if 0 <= i + offset < n]
    if not places:
        return np.zeros(0)
    far = distances(hidden[places], inputs, distance=distance)
    own = far[range(len(places)), [i + offset for i in places]]
    return (own <= far.min(-1).values * (1 + EQUAL) + EQUAL).double().cpu().numpy()


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

    `inputs` are the input vectors, or hidden states of an earlier layer (hidden to hidden). `offset` asks for a neighbour
    instead of the token itself. g is trained on 70 % of the texts by the distance itself, stopped on 15 %, tested on the
    rest, `folds` times over other splits; the "naive" g needs no training and is tested on all texts.
    """
    _checked(hidden, inputs, kind)
    if kind == "naive":
        hits = [identified(h, x, distance=distance, offset=offset) for h, x in zip(hidden, inputs, strict=True)]
        return _rate([(range(len(hidden)), hits)], confidence, seed)
    trained = _trained_folds(
        hidden, inputs, folds=folds, seed=seed, kind=kind, distance=distance, offset=offset, training=training
    )
    return _rated(trained, "test", hidden, inputs, confidence=confidence, seed=seed)


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
        raise InputError("the naive g is not trained, so no layer is its own. Use token_identifiability, or kind='linear'.")
    options: dict[str, Any] = {"kind": kind, "distance": distance, "training": training, "folds": folds, "seed": seed}
    rows = []
    for place in range(len(layers)) if trained is None else trained:
        of_layer = _trained_folds(layers[place], inputs, offset=0, **options)
        rows.append(tuple(_rated(of_layer, "test", other, inputs, confidence=confidence, seed=seed) for other in layers))
    return tuple(rows)


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
    _checked(hidden, inputs, kind)
    options: dict[str, Any] = {"kind": kind, "distance": distance, "training": training, "folds": folds, "share": share}
    trained = _trained_folds(hidden, inputs, offset=0, seed=seed, **options)
    rates = [_rated(trained, part, hidden, inputs, confidence=confidence, seed=seed) for part in ("train", "test")]
    return rates[0], rates[1]


def _checked(hidden: Texts, inputs: Texts, kind: str) -> None:
    one_of("kind", kind, KINDS)
    if len(hidden) != len(inputs) or not hidden:
        raise InputError(f"there are hidden states of {len(hidden)} texts and inputs of {len(inputs)}. Give both for each text.")
    if kind != "naive" and len(hidden) < 7:
        raise InputError(
            f"{len(hidden)} texts cannot be split into 70 % to train, 15 % to stop and 15 % to test. Give at least 7."
        )


# --- rates ----------------------------------------------------------------------------------------------------------------


def _rate(folds: Sequence[Tested], confidence: float, seed: int, epochs: Sequence[int] = ()) -> Identified:
    hits = [row for _, rows in folds for row in rows]
    texts = np.repeat([text for tested, _ in folds for text in tested], [len(row) for row in hits])
    by_fold = tuple(float(np.concatenate(rows).mean()) for _, rows in folds if sum(map(len, rows)))
    interval = mean_with_interval(np.concatenate(hits), groups=texts, confidence=confidence, seed=seed)
    return Identified(interval, by_fold, _by_text(texts, np.concatenate(hits)), tuple(epochs))


def _by_text(texts: NDArray[Any], hits: Array) -> tuple[tuple[int, int, int], ...]:
    """(number of the text, tokens identified, tokens tested) of each text that was tested."""
    return tuple((int(text), int(hits[texts == text].sum()), int((texts == text).sum())) for text in np.unique(texts))


def _rated(trained: Sequence[Fold], part: str, hidden: Texts, inputs: Texts, *, confidence: float, seed: int) -> Identified:
    """What each fold's g identifies in its "train" or "test" texts of some layer."""
    tested = [(fold.texts(part), fold.hits(fold.texts(part), hidden, inputs)) for fold in trained]
    return _rate(tested, confidence, seed, [fold.fit.epochs for fold in trained])


# --- training -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A trained g, the epochs of its training, its loss on the validation texts and its learning rate."""

    g: Callable[[Tensor], Tensor]
    epochs: int
    loss: float
    rate: float


@dataclass(frozen=True)
class Fold:
    """A g with the numbers of the texts that it was trained on and of those that test it."""

    train: Sequence[int]
    test: Sequence[int]
    fit: Fit
    distance: str
    offset: int

    def texts(self, part: str) -> Sequence[int]:
        return self.train if part == "train" else self.test

    def hits(self, texts: Sequence[int], hidden: Texts, inputs: Texts) -> list[Array]:
        """Which tokens of each text are identified through g, [pos]."""
        options: dict[str, Any] = {"distance": self.distance, "offset": self.offset}
        return [identified(self.fit.g(_wide(hidden[i])), inputs[i], **options) for i in texts]


def _trained_folds(hidden: Texts, inputs: Texts, *, folds: int, seed: int, **options: Any) -> list[Fold]:
    return [_trained_fold(hidden, inputs, seed=seed + fold, **options) for fold in range(folds)]


def _trained_fold(
    hidden: Texts,
    inputs: Texts,
    *,
    kind: str,
    distance: str,
    offset: int,
    training: Training,
    seed: int,
    share: float = 1.0,
) -> Fold:
    """g trained on one split of the texts by sentences: 70 % to train (a `share` of them), 15 % to stop, 15 % to test."""
    order = np.random.default_rng(seed).permutation(len(hidden)).tolist()
    first, second = round(0.7 * len(order)), round(0.85 * len(order))
    train = order[: max(1, round(share * first))]
    sides = [_pairs(hidden, inputs, part, offset) for part in (train, order[first:second])]
    fit = best_fit(sides[0], sides[1], kind=kind, distance=distance, training=training, seed=seed)
    return Fold(train, order[second:], fit, distance, offset)


def _pairs(hidden: Texts, inputs: Texts, texts: Sequence[int], offset: int) -> tuple[Tensor, Tensor]:
    """Hidden states [token d] of some texts, and the input vectors [token d] that they are to be mapped to."""
    start = max(0, -offset)
    ends = [max(start, len(hidden[i]) - max(0, offset)) for i in texts]
    states = [hidden[i][start:end] for i, end in zip(texts, ends, strict=True)]
    targets = [inputs[i][start + offset : end + offset] for i, end in zip(texts, ends, strict=True)]
    return _wide(torch.cat(states)), _wide(torch.cat(targets))


def _wide(vectors: Tensor) -> Tensor:
    """In at least float32."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()


Side = tuple[Tensor, Tensor]  # hidden states and the vectors that they are to be mapped to, [token d] each


def best_fit(train: Side, stop: Side, *, kind: str, distance: str, training: Training, seed: int) -> Fit:
    """The g of the learning rate that serves the validation texts best; every rate begins from the same weights."""
    fits = []
    for rate in training.rates or (training.rate,):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fits.append(fit(train, stop, kind=kind, distance=distance, training=replace(training, rate=rate)))
    return min(fits, key=lambda one: one.loss)


def fitted(train: Side, stop: Side, *, kind: str, distance: str, training: Training) -> Callable[[Tensor], Tensor]:
    """g, trained by Adam to bring hidden states near their input vectors, as it was where the other texts liked it best."""
    return fit(train, stop, kind=kind, distance=distance, training=training).g


def fit(train: Side, stop: Side, *, kind: str, distance: str, training: Training) -> Fit:
    """g trained by one learning rate. The weights are those of the epoch with the lowest loss on the validation texts."""
    (x, y), g = train, _initial(kind, train, training.hidden)
    optimizer = torch.optim.Adam(g.parameters(), lr=training.rate)
    best, state, n_worse, epochs = float("inf"), g.state_dict(), 0, 0
    with torch.enable_grad():
        while n_worse < training.patience and epochs != training.epochs:
            epochs += 1
            for rows in torch.randperm(len(x)).split(training.batch):
                optimizer.zero_grad()
                _loss(g(x[rows]), y[rows], distance).backward()
                optimizer.step()
            loss = float(_loss(g(stop[0]), stop[1], distance).detach())
            n_worse += 1
            if loss < best:
                best, state, n_worse = loss, copy.deepcopy(g.state_dict()), 0
    g.load_state_dict(state)
    return Fit(g.requires_grad_(False), epochs, best, training.rate)


def _initial(kind: str, train: Side, hidden: int) -> Any:
    """A matrix without bias, or one hidden layer of GELUs. Weights by Glorot's uniform rule, biases 0."""
    width, out = train[0].shape[-1], train[1].shape[-1]
    g: Any = nn.Linear(width, out, bias=False)
    if kind == "mlp":
        g = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out))
    for weights in g.parameters():
        nn.init.xavier_uniform_(weights) if weights.dim() > 1 else nn.init.zeros_(weights)
    return g.to(train[0])


def _loss(vectors: Tensor, targets: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return (1 - F.cosine_similarity(vectors, targets, dim=-1)).mean()
    return torch.linalg.vector_norm(vectors - targets, dim=-1).mean()
