"""MDL probing by online coding (Voita and Titov 2020, Information-Theoretic Probing with Minimum Description
Length)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..base.errors import InputError
from .arguments import VARIANTS, Array, array, one_of
from .intervals import Interval, statistic_with_interval
from .registry import metric

PAPER = "Voita and Titov 2020, Information-Theoretic Probing with Minimum Description Length"
VOITA = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25.0, 50.0, 100.0)  # percent
MOHEBBI = VOITA[3:]  # as the Value Zeroing authors ran it
FEWEST = 20  # a probe is trained on no fewer examples


@dataclass(frozen=True)
class OnlineCode:
    """Labels sent one portion after the other, each coded by a probe trained on those before."""

    bits: float  # the online code's length
    uniform_bits: float  # n log2 K: what the labels take without a model
    compression: Interval  # uniform_bits / bits; the interval is that of other examples of the same kind
    portions: tuple[float, ...]  # bits of each portion, the first coded uniformly
    cuts: tuple[int, ...]  # where each portion ends
    each: tuple[float, ...] = ()  # bits of each label, in the order in which the examples were given

    @property
    def value(self) -> float:
        return self.compression.mean


@metric(paper=PAPER, needs=("hidden", "labels"), better="higher", variants=("paper", "released"))
def online_code(
    features: Any,
    labels: Sequence[Any],
    *,
    percents: Sequence[float] = VOITA,
    epochs: int = 100,
    patience: int = 10,
    seed: int = 0,
    confidence: float = 0.95,
    variant: str = "paper",
) -> OnlineCode:
    """Online code length (eq. 3) of the labels given features [example d], and the compression against a uniform code.

    L = t_1 log2 K - sum_i log2 p_i(y of portion i + 1), p_i a probe trained on the first i portions: that of Mohebbi et
    al. (one hidden layer of 128), all of its epochs weighted by how well they code. The uniform code is one of them, so
    that labels which have nothing to do with the features compress to 1.0. Under 20 examples no probe is trained: the
    next portion is coded uniformly. `released` (Value Zeroing's code, to compare with its numbers alone): nats for
    bits, a second softmax, a learning rate that is 0 after one epoch, the best epoch chosen on the portion that is
    coded, a few examples dropped; there random labels compress to 1.44, and none to over 3.19."""
    one_of("variant", variant, VARIANTS)
    x = torch.from_numpy(array(features, "features", 2)).float()
    n = len(x)
    if len(labels) != n:
        raise InputError(
            f"there are features of {n} examples and {len(labels)} labels. Give one label for each example."
        )
    names, numbers = np.unique(np.asarray(labels), return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"all labels are {str(names[0])!r}: there is nothing to code. Give labels of two or more kinds."
        )
    order = np.random.default_rng(seed).permutation(n)  # a code that is sent in portions must not be sorted
    x, y = x[order], torch.from_numpy(numbers)[order]
    portions = blocks(n, percents, variant=variant)
    uniform = np.full(n, np.log2(len(names)))
    spent = np.where(np.arange(n) < portions[0][0], uniform, 0)
    with torch.random.fork_rng(devices=[]):
        for number, (train, start, end) in enumerate(portions):
            torch.manual_seed(seed + number)
            if variant == "released":
                spent[start:end] = _released_code(x[:train], y[:train], x[start:end], y[start:end], len(names))
            elif train >= FEWEST:
                some = x[:train], y[:train], x[start:end], y[start:end]
                spent[start:end] = _code(*some, len(names), epochs, patience)
            else:
                spent[start:end] = uniform[start:end]
    compression = statistic_with_interval(
        lambda i: uniform[i].sum() / spent[i].sum(), n, confidence=confidence, seed=seed
    )
    cuts = (portions[0][0], *(end for _, _, end in portions))
    sums = tuple(float(part.sum()) for part in np.split(spent, cuts)[:-1])
    each = tuple(map(float, spent[np.argsort(order)]))
    return OnlineCode(float(spent.sum()), float(uniform.sum()), compression, sums, cuts, each)


def blocks(n: int, percents: Sequence[float], *, variant: str = "paper") -> list[tuple[int, int, int]]:
    """(train on the first so many, code from, to) for each portion after the first. `released` rounds each portion's
    size down by itself, so that a few examples are never coded."""
    rising = list(percents) == sorted(set(percents))
    if len(percents) < 2 or not rising or percents[0] <= 0 or percents[-1] != 100:
        raise InputError(f"percents rise from above 0 to 100, such as {VOITA}; given: {tuple(percents)}.")
    cuts = [round(n * percent / 100) for percent in percents]
    if variant != "released":
        return [(a, a, b) for a, b in pairwise(sorted({max(1, cut) for cut in cuts}))]
    sizes = [int(np.floor(n * (b - a) / 100)) for a, b in pairwise(percents)]
    if min(cuts[0], *sizes) < 1:
        raise InputError(f"{n} examples are too few: variant='released' needs one or more in every portion. Give more.")
    return [(cut, cut, cut + size) for cut, size in zip(cuts, sizes, strict=False)]


def compression(losses: Sequence[float], *, n: int, classes: int, first: int, variant: str = "paper") -> float:
    """Compression from the losses of each portion, in nats: uniform bits over (first portion uniformly + losses in
    bits). `released` adds nats to bits."""
    nats = array(losses, "losses", 1).sum()
    return float(n * np.log2(classes) / (first * np.log2(classes) + nats / (np.log(2) if variant == "paper" else 1)))


def _probe(width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(0.2), nn.Linear(width, 128), nn.ReLU(), nn.LayerNorm(128), nn.Dropout(0.3), nn.Linear(128, classes)
    )


def _code(x: Tensor, y: Tensor, x_next: Tensor, y_next: Tensor, classes: int, epochs: int, patience: int) -> Array:
    """Bits for each label of a portion, [example], by a probe trained on what came before.

    p(y_1 ... y_t) = sum_e w_e prod_s p_e(y_s): all epochs e code together, each as heavy as it did well so far, first
    on the held-out examples and then on the labels already sent. The probe begins as the uniform code, so that is one
    of them."""
    probe = _probe(x.shape[1], classes)
    for weights in probe[-1].parameters():
        nn.init.zeros_(weights)
    n_held = len(x) // 5
    optimizer = torch.optim.Adam(probe.parameters(), lr=1e-3)
    weight, logs = [_logs(probe, x[:n_held], y[:n_held]).sum()], [_logs(probe, x_next, y_next)]
    while len(weight) <= epochs and len(weight) - int(torch.stack(weight).argmax()) <= patience:
        probe.train()
        for rows in torch.randperm(len(x) - n_held).split(128):
            optimizer.zero_grad()
            F.cross_entropy(probe(x[n_held:][rows]), y[n_held:][rows]).backward()
            optimizer.step()
        weight.append(_logs(probe, x[:n_held], y[:n_held]).sum())
        logs.append(_logs(probe, x_next, y_next))
    total = torch.stack(logs).cumsum(-1)  # [epoch example]
    together = (torch.stack(weight).log_softmax(0)[:, None] + total).logsumexp(0)
    return array(-torch.diff(together, prepend=torch.zeros(1)), "bits", 1) / np.log(2)


def _logs(probe: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """log p(y | x) of each example, in float64."""
    probe.eval()
    with torch.no_grad():
        return -F.cross_entropy(probe(x).double(), y, reduction="none")


def _released_code(x: Tensor, y: Tensor, x_next: Tensor, y_next: Tensor, classes: int) -> Array:
    """Nats taken for bits, as in Value Zeroing's probing/onlinecoding.py, its numbers of epochs and patience
    included."""
    probe = _probe(x.shape[1], classes)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=1e-3, eps=1e-6, weight_decay=0.0)
    steps = -(-len(x) // 128)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    losses, last, n_worse = [], 1000.0, 0
    for _ in range(15):
        probe.train()
        for rows in torch.arange(len(x)).split(128):
            optimizer.zero_grad()
            F.cross_entropy(probe(x[rows]).softmax(-1), y[rows]).backward()
            optimizer.step()
            schedule.step()
        probe.eval()
        with torch.no_grad():
            losses.append(array(F.cross_entropy(probe(x_next).softmax(-1), y_next, reduction="none"), "loss", 1))
        mean = float(np.mean([part.mean() for part in np.split(losses[-1], range(128, len(y_next), 128))]))
        n_worse = n_worse + 1 if mean >= last else 0
        last = mean
        if n_worse >= 5:
            break
    return min(losses, key=lambda loss: float(loss.sum()))
