"""Small maps trained side by side: each training is the one that it is alone."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixlens import fast
from mixlens.fast import side_by_side
from mixlens.metrics import token_identity, token_training

ROUNDING = 1e-9  # of weights near 1 in float64, after some hundred steps that each round otherwise


def split(rows: int, stop: int, seed: int, width: int = 6, out: int = 5) -> token_training.Split:
    """States that are the targets through a matrix, and noise."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x, matrix, other = draw(rows, width), draw(width, out), draw(stop, width)
    return token_training.Split((x, x @ matrix + 0.3 * draw(rows, out)), (other, other @ matrix), seed)


def weights(one: Any) -> list[Tensor]:
    return [weight.detach() for weight in one.g.parameters()]


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("distance", token_identity.DISTANCES)
@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(0, 99)), min_size=2, max_size=5),
    batch=st.integers(3, 50),
    patience=st.integers(1, 4),
    epochs=st.sampled_from([None, 1, 7]),
)
def test_each_training_is_that_of_the_map_alone(
    kind: str, distance: str, sizes: list[tuple[int, int, int]], batch: int, patience: int, epochs: int | None
) -> None:
    """Other numbers of rows, other seeds, ends at other epochs, last steps with fewer rows: weights, epochs, loss are
    equal."""
    training = token_training.Training(
        rate=0.03, batch=batch, patience=patience, epochs=40 if epochs is None else epochs, hidden=7
    )
    splits = [split(*size) for size in sizes]
    asked: dict[str, Any] = {"kind": kind, "distance": distance, "training": training}
    for one, side in zip(splits, token_training.best_fits(splits, **asked), strict=True):
        alone = token_training.best_fit(one.train, one.stop, seed=one.seed, **asked)
        assert (side.epochs, side.rate) == (alone.epochs, alone.rate)
        assert side.loss == pytest.approx(alone.loss, rel=ROUNDING, abs=ROUNDING)
        for ours, theirs in zip(weights(side), weights(alone), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=ROUNDING, atol=ROUNDING)
        torch.testing.assert_close(side.g(one.stop[0]), alone.g(one.stop[0]), rtol=ROUNDING, atol=ROUNDING)


def test_of_several_rates_each_map_takes_its_best() -> None:
    splits = [split(30, 9, seed) for seed in (1, 2, 3)]
    training = token_training.Training(batch=8, epochs=6, rates=(1e-5, 0.05, 1e-3))
    asked: dict[str, Any] = {"kind": "linear", "distance": "l2", "training": training}
    assert [one.rate for one in token_training.best_fits(splits, **asked)] == [0.05] * 3


def test_random_numbers_of_the_caller_are_left_alone() -> None:
    before = torch.get_rng_state()
    token_training.best_fits(
        [split(9, 3, 1), split(9, 3, 2)],
        kind="mlp",
        distance="l2",
        training=token_training.Training(epochs=2, hidden=3),
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_one_map_alone_is_trained_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "train", lambda *_, **__: pytest.fail("one map was stacked"))
    (one,) = token_training.best_fits(
        [split(9, 3, 1)], kind="linear", distance="l2", training=token_training.Training(epochs=2)
    )
    assert one.epochs == 2


def test_a_map_that_nothing_stops_ends_with_its_last_weights() -> None:
    """Validation texts without a token: no epoch is the best, alone and side by side."""
    empty = (torch.zeros(0, 4, dtype=torch.float64), torch.zeros(0, 4, dtype=torch.float64))
    x = torch.eye(4, dtype=torch.float64)
    splits = [
        token_training.Split((x, 2 * x), empty, 0),
        token_training.Split((x, 3 * x), (x, 3 * x), 1),
    ]
    asked: dict[str, Any] = {
        "kind": "linear",
        "distance": "l2",
        "training": token_training.Training(rate=0.1, patience=3, epochs=9),
    }
    side = token_training.best_fits(splits, **asked)[0]
    alone = token_training.best_fit(splits[0].train, splits[0].stop, seed=0, **asked)
    assert side.epochs == alone.epochs == 3
    assert math.isinf(side.loss)
    assert math.isinf(alone.loss)
    torch.testing.assert_close(weights(side)[0], weights(alone)[0], rtol=ROUNDING, atol=ROUNDING)


def test_a_cpu_trains_one_after_the_other_and_a_gpu_what_half_its_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    assert fast.trained_at_once(torch.device("cpu"), 1) == 1
    assert [fast.trained_at_once(gpu, size) for size in (0, 1, 100, 499, 501)] == [500, 500, 5, 1, 1]
    monkeypatch.setenv("MIXLENS_FAST", "off")
    assert fast.trained_at_once(gpu, 1) == 1
