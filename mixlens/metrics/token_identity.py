"""Token identifiability (Brunner et al. 2020, On Identifiability in Transformers, section 4): which input token is a
hidden state still?

A map g takes hidden states to the space of the input tokens; a token is identified where the nearest input vector of its
own text is its own. g is nothing at all ("naive"), a matrix ("linear") or one hidden layer of 1,000 GELUs ("mlp").
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
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


@dataclass(frozen=True)
class Training:
    """How g is trained; the defaults are the paper's."""

    rate: float = 1e-4
    batch: int = 256
    patience: int = 20
    epochs: int = 500
    hidden: int = 1000


PAPERS_TRAINING = Training()


@dataclass(frozen=True)
class Identified:
    """The share of tokens that are identified, over the texts that no g was trained on."""

    rate: Interval  # texts are resampled, not tokens
    by_fold: tuple[float, ...]

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
    options: dict[str, Any] = {"kind": kind, "distance": distance, "offset": offset, "training": training}
    tested = [_tested(hidden, [hidden], inputs, seed=seed + fold, **options)[0] for fold in range(folds)]
    return _rate(tested, confidence, seed)


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
) -> tuple[tuple[Identified, ...], ...]:
    """[trained tested]: the share of tokens identified in one layer by a g that was trained on another."""
    for hidden in layers:
        _checked(hidden, inputs, kind)
    if kind == "naive":
        raise InputError("the naive g is not trained, so no layer is its own. Use token_identifiability, or kind='linear'.")
    options: dict[str, Any] = {"kind": kind, "distance": distance, "offset": 0, "training": training}
    rows = []
    for hidden in layers:
        folded = [_tested(hidden, layers, inputs, seed=seed + fold, **options) for fold in range(folds)]
        rows.append(tuple(_rate(tested, confidence, seed) for tested in zip(*folded, strict=True)))
    return tuple(rows)


def _checked(hidden: Texts, inputs: Texts, kind: str) -> None:
    one_of("kind", kind, KINDS)
    if len(hidden) != len(inputs) or not hidden:
        raise InputError(f"there are hidden states of {len(hidden)} texts and inputs of {len(inputs)}. Give both for each text.")
    if kind != "naive" and len(hidden) < 7:
        raise InputError(
            f"{len(hidden)} texts cannot be split into 70 % to train, 15 % to stop and 15 % to test. Give at least 7."
        )


def _rate(folds: Sequence[Tested], confidence: float, seed: int) -> Identified:
    hits = [row for _, rows in folds for row in rows]
    texts = np.repeat([text for tested, _ in folds for text in tested], [len(row) for row in hits])
    by_fold = tuple(float(np.concatenate(rows).mean()) for _, rows in folds if sum(map(len, rows)))
    return Identified(mean_with_interval(np.concatenate(hits), groups=texts, confidence=confidence, seed=seed), by_fold)


def _tested(
    hidden: Texts, layers: Sequence[Texts], inputs: Texts, *, kind: str, distance: str, offset: int, training: Training, seed: int
) -> list[Tested]:
    """g trained on one split of the texts, and what it identifies in the rest of them, in each of the layers."""
    order = np.random.default_rng(seed).permutation(len(hidden)).tolist()
    first, second = round(0.7 * len(order)), round(0.85 * len(order))
    sides = [_pairs(hidden, inputs, part, offset) for part in (order[:first], order[first:second])]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        g = fitted(*sides, kind=kind, distance=distance, training=training)
    test = order[second:]
    return [
        (test, [identified(g(_wide(other[i])), inputs[i], distance=distance, offset=offset) for i in test]) for other in layers
    ]


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


def fitted(
    train: tuple[Tensor, Tensor], stop: tuple[Tensor, Tensor], *, kind: str, distance: str, training: Training
) -> Callable[[Tensor], Tensor]:
    """g, trained by Adam to bring hidden states near their input vectors, as it was where the other texts liked it best."""
    (x, y), width = train, train[1].shape[-1]
    g: Any = nn.Linear(x.shape[-1], width, bias=False)
    if kind == "mlp":
        g = nn.Sequential(nn.Linear(x.shape[-1], training.hidden), nn.GELU(), nn.Linear(training.hidden, width))
    for weights in g.parameters():
        nn.init.xavier_uniform_(weights) if weights.dim() > 1 else nn.init.zeros_(weights)
    g = g.to(x)
    optimizer = torch.optim.Adam(g.parameters(), lr=training.rate)
    best, state, n_worse = float("inf"), g.state_dict(), 0
    with torch.enable_grad():
        for _ in range(training.epochs):
            for rows in torch.randperm(len(x)).split(training.batch):
                optimizer.zero_grad()
                _loss(g(x[rows]), y[rows], distance).backward()
                optimizer.step()
            loss = float(_loss(g(stop[0]), stop[1], distance).detach())
            if loss < best:
                best, state, n_worse = loss, copy.deepcopy(g.state_dict()), 0
            elif (n_worse := n_worse + 1) >= training.patience:
                break
    g.load_state_dict(state)
    return g.requires_grad_(False)


def _loss(vectors: Tensor, targets: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return (1 - F.cosine_similarity(vectors, targets, dim=-1)).mean()
    return torch.linalg.vector_norm(vectors - targets, dim=-1).mean()
