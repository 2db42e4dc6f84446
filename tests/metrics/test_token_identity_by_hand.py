"""The training of token identifiability by its parts: losses, pairs, splits, epochs and rates written out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.errors import InputError
from mixlens.metrics import raw_and_effective, token_identity
from mixlens.metrics.token_identity import Fit, Fold, Training


def test_the_loss_is_the_mean_distance_over_tokens() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    targets = torch.tensor([[0.0, 4.0], [0.0, 1.0], [0.0, 5.0]])
    far = [3.0, 1.0, math.hypot(1.0, 5.0)]
    assert float(token_identity._loss(vectors, targets, "l2")) == pytest.approx(sum(far) / 3)
    assert float(token_identity._loss(vectors, targets, "cosine")) == pytest.approx((0.2 + 0.0 + 1.0) / 3)


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
        token_identity._wide(torch.ones(1, dtype=dtype)).dtype for dtype in (torch.float16, torch.float32, torch.float64)
    ] == [
        *(torch.float32, torch.float32, torch.float64),
    ]


def test_a_fold_trains_stops_and_tests_on_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def best_fit(train: Any, stop: Any, **options: Any) -> str:
        asked.append(([side[0][:, 0].tolist() for side in (train, stop)], options))
        return "fit"

    monkeypatch.setattr(token_identity, "best_fit", best_fit)
    hidden = [torch.full((1, 2), float(text)) for text in range(20)]
    given: dict[str, Any] = {"kind": "mlp", "distance": "l2", "training": Training()}
    order = np.random.default_rng(5).permutation(20).tolist()
    whole = token_identity._trained_fold(hidden, hidden, offset=0, seed=5, **given)
    half = token_identity._trained_fold(hidden, hidden, offset=0, seed=5, share=0.5, **given)
    least = token_identity._trained_fold(hidden, hidden, offset=0, seed=5, share=0.01, **given)
    assert (whole.train, whole.test, whole.fit, whole.distance, whole.offset) == (order[:14], order[17:], "fit", "l2", 0)
    assert (half.train, half.test, least.train) == (order[:7], order[17:], order[:1])
    assert [sides[0] for sides, _ in asked] == [order[:14], order[:7], order[:1]]
    assert [sides[1] for sides, _ in asked] == [order[14:17]] * 3
    assert [options for _, options in asked] == [{**given, "seed": 5}] * 3
    folds = token_identity._trained_folds(hidden, hidden, folds=2, seed=5, offset=0, **given)
    assert [fold.train for fold in folds] == [order[:14], np.random.default_rng(6).permutation(20).tolist()[:14]]
    assert folds[0].texts("train") == order[:14]
    assert folds[0].texts("test") == order[17:]


def test_the_rate_of_the_lowest_loss_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {0.1: 3.0, 0.2: 1.0, 0.3: 2.0, 1e-4: 7.0}
    drawn: list[float] = []

    def fit(train: Any, stop: Any, *, kind: str, distance: str, training: Training) -> Fit:
        drawn.append(float(torch.rand(1)))
        assert (train, stop, kind, distance) == ("train", "stop", "mlp", "l2")
        return Fit(lambda x: x, 1, losses[training.rate], training.rate)

    monkeypatch.setattr(token_identity, "fit", fit)
    options: dict[str, Any] = {"kind": "mlp", "distance": "l2", "seed": 3}
    before = torch.random.get_rng_state()
    best = token_identity.best_fit("train", "stop", training=Training(rates=(0.1, 0.2, 0.3)), **options)  # type: ignore[arg-type]
    assert (best.rate, best.loss) == (0.2, 1.0)
    assert len(set(drawn)) == 1  # every rate begins from the same weights
    assert torch.equal(torch.random.get_rng_state(), before)
    assert token_identity.best_fit("train", "stop", training=Training(), **options).rate == 1e-4  # type: ignore[arg-type]
    torch.manual_seed(3)
    assert drawn[-1] == float(torch.rand(1))
    torch.random.set_rng_state(before)


def test_training_stops_where_the_validation_texts_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of the validation texts are given: the best epoch is the second, and two worse ones end it."""
    x = torch.eye(2, dtype=torch.float64)
    real = token_identity._loss
    given = iter([5.0, 4.0, 4.0, 4.5, 3.0])
    weights: list[Any] = []

    def loss(vectors: Any, targets: Any, distance: str) -> Any:
        if targets is stop[1]:
            weights.append(vectors.detach().clone())
            return torch.tensor(next(given))
        return real(vectors, targets, distance)

    stop = (torch.eye(2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64))
    monkeypatch.setattr(token_identity, "_loss", loss)
    torch.manual_seed(0)
    made = token_identity.fit((x, 2 * x), stop, kind="linear", distance="l2", training=Training(rate=0.1, batch=1, patience=2))
    assert (made.epochs, made.loss, made.rate) == (4, 4.0, 0.1)
    assert torch.equal(made.g(stop[0]), weights[1])
    assert not torch.equal(weights[1], weights[3])
    assert not any(one.requires_grad for one in made.g.parameters())  # type: ignore[attr-defined]
    given = iter([5.0, 4.0, 3.0])
    made = token_identity.fit((x, 2 * x), stop, kind="linear", distance="l2", training=Training(epochs=3, patience=9))
    assert (made.epochs, made.loss) == (3, 3.0)


def test_maps_begin_as_the_paper_says() -> None:
    train = (torch.ones(1, 3, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    torch.manual_seed(0)
    linear, mlp = (token_identity._initial(kind, train, 5) for kind in ("linear", "mlp"))
    assert [tuple(one.shape) for one in linear.parameters()] == [(2, 3)]
    assert [tuple(one.shape) for one in mlp.parameters()] == [(5, 3), (5,), (2, 5), (2,)]
    assert {one.dtype for g in (linear, mlp) for one in g.parameters()} == {torch.float64}
    assert all(not one.any() for one in mlp.parameters() if one.dim() == 1)
    assert all(float(one.detach().abs().max()) <= math.sqrt(6 / sum(one.shape)) for one in mlp.parameters() if one.dim() == 2)
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
    monkeypatch.setattr(token_identity, "_trained_folds", lambda *given, **options: asked.append((given, options)) or "folds")
    monkeypatch.setattr(token_identity, "_rated", lambda *given, **options: rated.append((given, options)) or given[1])
    texts: Any = [torch.ones(1, 1)] * 7
    training = Training(rate=0.5)
    common: dict[str, Any] = {"kind": "mlp", "distance": "cosine", "folds": 3, "training": training, "seed": 4}
    one: Any = token_identity.token_identifiability(texts, texts, offset=2, confidence=0.8, **common)
    rates: Any = token_identity.train_and_test_rates(texts, texts, share=0.5, confidence=0.8, **common)
    across: Any = token_identity.identifiability_across_layers([texts, texts], texts, trained=[1], confidence=0.8, **common)
    every: Any = token_identity.identifiability_across_layers([texts, texts], texts, **common)
    assert (one, rates, across) == ("test", ("train", "test"), (("test", "test"),))
    assert len(every) == 2
    assert [options for _, options in asked[:3]] == [
        *({**common, "offset": 2}, {**common, "offset": 0, "share": 0.5}, {**common, "offset": 0}),
    ]
    assert rated[:3] == [(("folds", part, texts, texts), {"confidence": 0.8, "seed": 4}) for part in ("test", "train", "test")]
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
    assert [side.tolist() for side in layer.sides] == [[[0.5, 0.2, 0.8], [1.0, 0.6, 0.4]], [[0.5, 0.2, 0.8], [0.4, 0.6, 1.0]]]
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
