"""How a g of token identifiability is trained (Brunner et al. 2020, On Identifiability in Transformers, B.1)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
Side = tuple[Tensor, Tensor]  # hidden states and the vectors that they are to be mapped to, [token d] each


@dataclass(frozen=True)
class Fit:
    """A trained g, the epochs of its training, its loss on the validation texts and its learning rate."""

    g: Callable[[Tensor], Tensor]
    epochs: int
    loss: float
    rate: float


@dataclass(frozen=True)
class Split:
    """The texts that one g learns from, those that stop it, and the seed of its first weights and of the order of its
    rows."""

    train: Side
    stop: Side
    seed: int


def best_fits(splits: Sequence[Split], *, kind: str, distance: str, training: Training) -> list[Fit]:
    """A g for each split. Several are trained side by side, with the same weights and random numbers as alone."""
    if len(splits) == 1:
        (one,) = splits
        return [best_fit(one.train, one.stop, kind=kind, distance=distance, training=training, seed=one.seed)]
    from ..fast import side_by_side

    by_rate = []
    for rate in training.rates or (training.rate,):
        learners = []
        for one in splits:
            with _random_numbers(one.seed):
                g = _initial(kind, one.train, training.hidden)
                state = torch.Generator().set_state(torch.get_rng_state())
                learners.append(side_by_side.Learner(g, one.train, one.stop, state))
        side_by_side.train(
            learners,
            row_loss=partial(_row_losses, distance=distance),
            epochs=training.epochs,
            rate=rate,
            batch=training.batch,
            patience=training.patience,
        )
        by_rate.append([Fit(one.map.requires_grad_(False), one.epochs, one.loss, rate) for one in learners])
    return [min(fits, key=lambda one: one.loss) for fits in zip(*by_rate, strict=True)]


def best_fit(train: Side, stop: Side, *, kind: str, distance: str, training: Training, seed: int) -> Fit:
    """The g of the learning rate that serves the validation texts best; every rate begins from the same weights."""
    fits = []
    for rate in training.rates or (training.rate,):
        with _random_numbers(seed):
            fits.append(fit(train, stop, kind=kind, distance=distance, training=replace(training, rate=rate)))
    return min(fits, key=lambda one: one.loss)


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """torch's random numbers of a seed, within the block."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def fit(train: Side, stop: Side, *, kind: str, distance: str, training: Training) -> Fit:
    """g trained by Adam with one learning rate to bring hidden states near their input vectors. The weights are those
    of the epoch with the lowest loss on the validation texts."""
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
    return _row_losses(vectors, targets, distance).mean()


def _row_losses(vectors: Tensor, targets: Tensor, distance: str) -> Tensor:
    """How far each vector is from where it should be: [... row d], twice -> [... row]."""
    if distance == "cosine":
        return 1 - F.cosine_similarity(vectors, targets, dim=-1)
    return torch.linalg.vector_norm(vectors - targets, dim=-1)


def wide(vectors: Tensor) -> Tensor:
    """In at least float32."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()
