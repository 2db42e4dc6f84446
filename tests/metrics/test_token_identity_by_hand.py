"""The training of token identifiability by its parts: losses, pairs, splits, epochs and rates written out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.metrics import raw_and_effective, token_identity, token_training
from mixlens.metrics.token_identity import Fold, Search
from mixlens.metrics.token_training import Fit, Split, Training


def test_the_loss_is_the_mean_distance_over_tokens() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    targets = torch.tensor([[0.0, 4.0], [0.0, 1.0], [0.0, 5.0]])
    far = [3.0, 1.0, math.hypot(1.0, 5.0)]
    assert float(token_training._loss(vectors, targets, "l2")) == pytest.approx(sum(far) / 3)
    assert float(token_training._loss(vectors, targets, "cosine")) == pytest.approx((0.2 + 0.0 + 1.0) / 3)


def test_states_are_paired_with_their_neighbours() -> None:
    hidden = [torch.arange(4.0)[:, None], torch.arange(10.0, 12.0)[:, None], torch.arange(20.0, 21.0)[:, None]]
    inputs = [100 + one for one in hidden]

    def pairs(offset: int) -> list[list[float]]:
        return [side[:, 0].tolist() for side in token_identity._pairs(hidden, inputs, (1, 0), offset)]

    assert pairs(0) == [[10, 11, 0, 1, 2, 3], [110, 111, 100, 101, 102, 103]]
    assert pairs(1) == [[10, 0, 1, 2], [111, 101, 102, 103]]
    assert pairs(-1) == [[11, 1, 2, 3], [110, 100, 101, 102]]
    assert pairs(2) == [[0, 1], [102, 103]]
    assert [one.numel() for one in token_identity._pairs(hidden, inputs, (2,), 1)] == [0, 0]
    assert [
        token_training.wide(torch.ones(1, dtype=dtype)).dtype for dtype in (torch.float16, torch.float32, torch.float64)
    ] == [
        *(torch.float32, torch.float32, torch.float64),
    ]


def test_a_fold_trains_stops_and_tests_on_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def best_fits(splits: Any, **options: Any) -> list[str]:
        asked.append((list(splits), options))
        return [f"fit of {one.seed}" for one in splits]

    def texts_of(split: Split) -> list[list[float]]:
        return [side[0][:, 0].tolist() for side in (split.train, split.stop)]

    monkeypatch.setattr(token_identity, "best_fits", best_fits)
    hidden = [torch.full((1, 2), float(text)) for text in range(20)]
    given: dict[str, Any] = {"kind": "mlp", "distance": "l2", "training": Training()}
    order, other = (np.random.default_rng(seed).permutation(20).tolist() for seed in (5, 6))
    searches = [Search(hidden, hidden, share=share) for share in (1.0, 0.5, 0.01)]
    whole, half, least = token_identity._trained_folds(searches, folds=2, seed=5, **given)
    assert (whole[0].train, whole[0].test) == (order[:14], order[17:])
    assert (whole[0].fit, whole[0].distance, whole[0].offset) == ("fit of 5", "l2", 0)
    assert (whole[1].train, whole[1].test, whole[1].fit) == (other[:14], other[17:], "fit of 6")
    assert (half[0].train, half[0].test, least[0].train, least[1].train) == (
        order[:7],
        order[17:],
        order[:1],
        other[:1],
    )
    assert whole[0].texts("train") == order[:14]
    assert whole[0].texts("test") == order[17:]
    splits = [split for some, _ in asked for split in some]
    assert [len(some) for some, _ in asked] == [1] * 6  # a CPU trains one after the other
    assert texts_of(splits[0]) == [order[:14], order[14:17]]
    assert texts_of(splits[1]) == [other[:14], other[14:17]]
    assert texts_of(splits[2]) == [order[:7], order[14:17]]
    assert [options for _, options in asked] == [given] * 6


def test_a_gpu_trains_as_many_as_its_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`trained_at_once` stands in for the GPU: searches and folds are cut where its number says, and come back in their order."""
    portions: list[list[int]] = []
    sizes: list[int] = []
    monkeypatch.setattr(token_identity.fast, "trained_at_once", lambda device, size: sizes.append(size) or 4)

    def best_fits(splits: Any, **options: Any) -> list[tuple[int, int]]:
        portions.append([one.seed for one in splits])
        return [(len(one.train[0]), one.seed) for one in splits]

    monkeypatch.setattr(token_identity, "best_fits", best_fits)
    hidden = [torch.zeros(2, 3, dtype=torch.float16)] * 20
    searches = [Search(hidden, hidden), Search(hidden, hidden, share=0.5), Search(hidden, hidden, offset=1)]
    given: dict[str, Any] = {"kind": "mlp", "distance": "l2", "training": Training()}
    made = token_identity._trained_folds(searches, folds=3, seed=5, **given)
    assert portions == [[5, 6, 7, 5], [6, 7, 5, 6], [7]]
    assert [[fold.fit for fold in of_one] for of_one in made] == [
        [(28, 5), (28, 6), (28, 7)],
        [(14, 5), (14, 6), (14, 7)],
        [(14, 5), (14, 6), (14, 7)],  # one token of each text has a neighbour
    ]
    assert sizes == [3 * 2 * 20 * 2 * 3 * 4] * 3  # in float32, at least


def test_the_rate_of_the_lowest_loss_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {0.1: 3.0, 0.2: 1.0, 0.3: 2.0, 1e-4: 7.0}
    drawn: list[float] = []

    def fit(train: Any, stop: Any, *, kind: str, distance: str, training: Training) -> Fit:
        drawn.append(float(torch.rand(1)))
        assert (train, stop, kind, distance) == ("train", "stop", "mlp", "l2")
        return Fit(lambda x: x, 1, losses[training.rate], training.rate)

    monkeypatch.setattr(token_training, "fit", fit)
    options: dict[str, Any] = {"kind": "mlp", "distance": "l2", "seed": 3}
    before = torch.random.get_rng_state()
    best = token_training.best_fit("train", "stop", training=Training(rates=(0.1, 0.2, 0.3)), **options)  # type: ignore[arg-type]
    assert (best.rate, best.loss) == (0.2, 1.0)
    assert len(set(drawn)) == 1  # every rate begins from the same weights
    assert torch.equal(torch.random.get_rng_state(), before)
    assert token_training.best_fit("train", "stop", training=Training(), **options).rate == 1e-4  # type: ignore[arg-type]
    torch.manual_seed(3)
    assert drawn[-1] == float(torch.rand(1))
    torch.random.set_rng_state(before)


def test_training_stops_where_the_validation_texts_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of the validation texts are given: the best epoch is the second, and two worse ones end it."""
    x = torch.eye(2, dtype=torch.float64)
    real = token_training._loss
    given = iter([5.0, 4.0, 4.0, 4.5, 3.0])
    weights: list[Any] = []

    def loss(vectors: Any, targets: Any, distance: str) -> Any:
        if targets is stop[1]:
            weights.append(vectors.detach().clone())
            return torch.tensor(next(given))
        return real(vectors, targets, distance)

    stop = (torch.eye(2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64))
    monkeypatch.setattr(token_training, "_loss", loss)
    torch.manual_seed(0)
    made = token_training.fit(
        (x, 2 * x), stop, kind="linear", distance="l2", training=Training(rate=0.1, batch=1, patience=2)
    )
    assert (made.epochs, made.loss, made.rate) == (4, 4.0, 0.1)
    assert torch.equal(made.g(stop[0]), weights[1])
    assert not torch.equal(weights[1], weights[3])
    assert not any(one.requires_grad for one in made.g.parameters())  # type: ignore[attr-defined]
    given = iter([5.0, 4.0, 3.0])
    made = token_training.fit((x, 2 * x), stop, kind="linear", distance="l2", training=Training(epochs=3, patience=9))
    assert (made.epochs, made.loss) == (3, 3.0)


def test_maps_begin_as_the_paper_says() -> None:
    train = (torch.ones(1, 3, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    torch.manual_seed(0)
    linear, mlp = (token_training._initial(kind, train, 5) for kind in ("linear", "mlp"))
    assert [tuple(one.shape) for one in linear.parameters()] == [(2, 3)]
    assert [tuple(one.shape) for one in mlp.parameters()] == [(5, 3), (5,), (2, 5), (2,)]
    assert {one.dtype for g in (linear, mlp) for one in g.parameters()} == {torch.float64}
    assert all(not one.any() for one in mlp.parameters() if one.dim() == 1)
    assert all(
        float(one.detach().abs().max()) <= math.sqrt(6 / sum(one.shape)) for one in mlp.parameters() if one.dim() == 2
    )
    assert isinstance(mlp[1], torch.nn.GELU)


def test_rates_are_over_texts_and_folds() -> None:
    double = Fit(lambda x: 2 * x, 7, 0.5, 0.1)
    inputs = [torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 2.0], [2.0, 0.0]])]
    hidden = [torch.eye(2), torch.eye(2)]
    folds = [Fold([0], [1], double, "l2", 0), Fold([1], [0], double, "l2", 0), Fold([], [0], double, "l2", 1)]
    assert [one.tolist() for one in folds[0].hits([0, 1], hidden, inputs)] == [[1.0, 1.0], [0.0, 0.0]]
    assert [one.tolist() for one in folds[2].hits([0, 1], hidden, inputs)] == [[0.0], [1.0]]
    tested = token_identity._rated(folds, "test", hidden, inputs, confidence=0.9, seed=1)
    assert (tested.by_fold, tested.by_text, tested.epochs) == ((0.0, 1.0, 0.0), ((0, 2, 3), (1, 0, 2)), (7, 7, 7))
    assert (tested.rate.confidence, tested.rate.n, tested.value) == (0.9, 2, pytest.approx(0.4))
    trained = token_identity._rated(folds[:2], "train", hidden, inputs, confidence=0.9, seed=1)
    assert trained.by_fold == (1.0, 0.0)


def test_options_of_training_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    rated: list[Any] = []

    def folds_of(searches: Any, **options: Any) -> list[str]:
        asked.append((list(searches), options))
        return [f"folds {place}" for place in range(len(searches))]

    monkeypatch.setattr(token_identity, "_trained_folds", folds_of)
    monkeypatch.setattr(token_identity, "_rated", lambda *given, **options: rated.append((given, options)) or given[1])
    texts: Any = [torch.ones(1, 1)] * 7
    others: Any = [torch.zeros(1, 1)] * 7
    training = Training(rate=0.5)
    common: dict[str, Any] = {"kind": "mlp", "distance": "cosine", "folds": 3, "training": training, "seed": 4}
    one: Any = token_identity.token_identifiability(texts, others, offset=2, confidence=0.8, **common)
    rates: Any = token_identity.train_and_test_rates(texts, others, share=0.5, confidence=0.8, **common)
    across: Any = token_identity.identifiability_across_layers(
        [others, texts], others, trained=[1], confidence=0.8, **common
    )
    every: Any = token_identity.identifiability_across_layers([texts, texts], texts, **common)
    both: Any = token_identity.identified_rates(
        [Search(texts, others), Search(others, texts)], parts=("test", "train"), **common
    )
    assert (one, rates, across) == ("test", ("train", "test"), (("test", "test"),))
    assert both == [("test", "train")] * 2
    assert len(every) == 2
    assert [options for _, options in asked] == [common] * 5
    assert [searches for searches, _ in asked[:3]] == [
        [Search(texts, others, 2)],
        [Search(texts, others, share=0.5)],
        [Search(texts, others)],
    ]
    assert rated[:3] == [
        (("folds 0", part, texts, others), {"confidence": 0.8, "seed": 4}) for part in ("test", "train", "test")
    ]
    assert rated[3][0] == ("folds 0", "test", others, others)
    assert [given[0] for given, _ in rated[-4:]] == ["folds 0", "folds 0", "folds 1", "folds 1"]
    assert [options["confidence"] for _, options in rated[-4:]] == [0.95] * 4
    with pytest.raises(InputError, match=r"6 texts cannot be split into 70 % to train"):
        token_identity.token_identifiability(texts[:6], texts[:6])
    with pytest.raises(InputError, match=r"there are hidden states of 0 texts and inputs of 0\."):
        token_identity.token_identifiability([], [], kind="naive")


def test_raw_and_effective_attention_are_compared_by_head_and_together() -> None:
    raw = np.array([[[0.5, 9.0], [0.2, 0.8]], [[1.0, 9.0], [0.6, 0.4]]])
    effective = np.array([[[0.5, -7.0], [0.2, 0.8]], [[0.4, -7.0], [0.6, 1.0]]])
    allowed = np.array([[True, False], [True, True]])
    layer: Any = raw_and_effective.HeadAttention(raw, effective, allowed, np.zeros(2))
    assert [side.tolist() for side in layer.sides] == [
        [[0.5, 0.2, 0.8], [1.0, 0.6, 0.4]],
        [[0.5, 0.2, 0.8], [0.4, 0.6, 1.0]],
    ]
    made = raw_and_effective.correlated([layer, layer])
    second = float(np.corrcoef([1.0, 0.6, 0.4], [0.4, 0.6, 1.0])[0, 1])
    pooled = float(np.corrcoef([0.5, 0.2, 0.8, 1.0, 0.6, 0.4], [0.5, 0.2, 0.8, 0.4, 0.6, 1.0])[0, 1])
    assert made.n == 2
    assert made.per_head == pytest.approx(np.array([[1.0, second]] * 2))
    assert made.value == made.pooled == pytest.approx(pooled)
    weights = np.arange(12.0).reshape(2, 2, 3)
    assert raw_and_effective.given_to(weights, [0, 1], [0, 2]).tolist() == [5.0, 17.0]
    assert raw_and_effective.given_to(weights, [1], []).tolist() == [0.0, 0.0]
    assert np.isnan(raw_and_effective.given_to(weights, [], [0])).tolist() == [True, True]
    assert raw_and_effective.places_of(["a", "b", "a"], "a") == [0, 2]
    kinds: Any = SimpleNamespace(tokens=("[CLS]", "a", "##b", ".", ",", "!?", "Ġ!"), special=(True, *[False] * 6))
    assert raw_and_effective.token_types(kinds) == (
        *("[CLS]", "word", "word", "period or comma", "period or comma", "punctuation", "punctuation"),
    )


def test_distances_that_rounding_alone_tells_apart_are_equal() -> None:
    """Relative to large distances, absolute for small ones."""
    hidden = torch.zeros(2, 2, dtype=torch.float64)

    def found(own: float, other: float) -> float:
        inputs = torch.tensor([[own, 0.0], [0.0, other]], dtype=torch.float64)
        return float(token_identity.identified(hidden, inputs, distance="l2")[0])

    assert found(1e6 * (1 + 5e-13), 1e6) == 1
    assert found(1e6 * (1 + 5e-12), 1e6) == 0
    assert found(5e-13, 0.0) == 1
    assert found(5e-12, 0.0) == 0
