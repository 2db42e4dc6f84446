"""SHAP and LIME by their libraries: against Shapley values by enumeration, Owen values by orders, and a ridge
regression."""

from __future__ import annotations

import itertools
import math
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ids, loaded

import mixlens
from mixlens.base.errors import InputError
from mixlens.methods import _coalitions
from mixlens.scoring import attributions

TEXT = "A dull film with a wonderful cast."


@pytest.fixture(scope="module")
def trace() -> Any:
    return mixlens.load("sentiment", dtype="float64").trace(TEXT)


def game(trace: Any, *, delete: bool, probability: bool = False) -> Any:
    """v(kept): the predicted class's logit of the stock model, with the other tokens masked or deleted."""
    stock, mask, target = trace.model.hf_model, trace.model.tokenizer.mask_token_id, int(trace.logits.argmax())
    movable = [i for i in range(len(trace)) if not trace.special[i]]

    def value(kept: Any) -> float:
        gone = {place for place, stays in zip(movable, kept, strict=True) if not stays}
        given = [mask if i in gone else id_ for i, id_ in enumerate(trace.input_ids) if not (delete and i in gone)]
        with torch.no_grad():
            logits = stock(torch.tensor([given])).logits[0]
        return float(logits.softmax(-1)[target] if probability else logits[target])

    return value, movable


def shapley(value: Any, n: int) -> list[float]:
    """By the definition: over all subsets that a player joins."""
    values = {kept: value(kept) for kept in itertools.product((False, True), repeat=n)}
    totals = []
    for j in range(n):
        total = 0.0
        for kept, before in values.items():
            if not kept[j]:
                size = sum(kept)
                after = values[tuple(k or i == j for i, k in enumerate(kept))]
                total += math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n) * (after - before)
        totals.append(total)
    return totals


def owen(value: Any, tree: Any, n: int) -> np.ndarray:
    """The mean over all orders in which players join, in which the players of a branch of the tree come one after
    another."""

    def orders(node: int) -> list[list[int]]:
        if node < n:
            return [[node]]
        left, right = (orders(int(child)) for child in tree[node - n][:2])
        return [a + b for one, other in ((left, right), (right, left)) for a in one for b in other]

    every = orders(2 * n - 2)
    totals = np.zeros(n)
    for order in every:
        kept = [False] * n
        before = value(tuple(kept))
        for player in order:
            kept[player] = True
            after = value(tuple(kept))
            totals[player] += (after - before) / len(every)
            before = after
    return totals


# --- SHAP -------------------------------------------------------------------------------------------------------------


def test_exact_shap_is_the_shapley_value_by_enumeration(trace: Any) -> None:
    pytest.importorskip("shap")
    value, movable = game(trace, delete=False)
    read = attributions.attribute(trace, "shap", algorithm="exact", replacement="mask")
    assert read.scores[movable].tolist() == pytest.approx(shapley(value, len(movable)), abs=1e-9)
    assert read.scores[[0, len(trace) - 1]].abs().sum() == 0
    assert read.info["completeness"]["relative_gap"] < 1e-9


@pytest.mark.parametrize("replacement", ["mask", "delete"])
def test_partition_shap_is_the_owen_value_of_shaps_tree(
    trace: Any, replacement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("shap")
    trees: list[Any] = []
    own = library.maskers.Text.clustering

    def seen(self: Any, text: str) -> Any:
        trees.append(own(self, text))
        return trees[-1]

    monkeypatch.setattr(library.maskers.Text, "clustering", seen)
    value, movable = game(trace, delete=replacement == "delete")
    read = attributions.attribute(trace, "shap", replacement=replacement)
    expected = owen(cache(value), trees[-1], len(movable))
    assert read.scores[movable].tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert read.info["nothing_kept"] == pytest.approx(value([False] * len(movable)), abs=1e-12)


def test_few_evaluations_keep_the_sum(trace: Any) -> None:
    """Where they are used up, the units of a group share its value: efficient all the same."""
    pytest.importorskip("shap")
    full, few = attributions.attribute(trace, "shap"), attributions.attribute(trace, "shap", evaluations=10)
    assert few.info["passes"] < full.info["passes"]
    assert not torch.allclose(few.scores, full.scores)
    for read in (full, few):
        assert float(read.scores.sum()) == pytest.approx(read.info["completeness"]["expected"], abs=1e-9)


def test_a_player_that_does_nothing_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A game in which two tokens count: the others are null players, and what two bring together they share."""
    pytest.importorskip("shap")
    model = loaded("bert", head="AutoModelForSequenceClassification")
    trace = model.trace(input_ids=ids(5))
    monkeypatch.setattr(_coalitions, "outcomes", _of_first_two)
    read = attributions.attribute(trace, "shap", replacement="delete", target=0)
    assert read.scores.tolist() == pytest.approx([1.5, 2.5, 0, 0, 0], abs=1e-12)


def _of_first_two(trace: Any, gone: Any, target: Any, *, replacement: Any) -> np.ndarray:
    """1 for the first token, 2 for the second, and 1 more where both are kept, which they share."""
    kept = [[i not in places for i in range(2)] for places in gone]
    return np.array([1.0 * a + 2.0 * b + 1.0 * (a and b) for a, b in kept])


def test_words_are_players_and_their_tokens_share(trace: Any) -> None:
    pytest.importorskip("shap")
    text = mixlens.load("sentiment", dtype="float64").trace("An unwatchable mess.")
    read = attributions.attribute(text, "shap", unit="word")
    for word, places in text.words:
        assert len({float(read.scores[i]) for i in places}) == 1, word
    assert any(len(places) > 1 for _, places in text.words)


def test_many_units_are_refused_where_all_subsets_are_asked_for() -> None:
    pytest.importorskip("shap")
    trace = mixlens.load("sentiment").trace("A dull film. " * 6)
    with pytest.raises(InputError, match=r"take 2\^\d+ texts; at most 16 units"):
        attributions.attribute(trace, "shap", algorithm="exact")


# --- LIME -------------------------------------------------------------------------------------------------------------


def ridge(kept: np.ndarray, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """min sum_k pi_k (y_k - b - w . x_k)^2 + |w|^2, by its normal equations; b is not shortened."""
    x = np.concatenate([kept, np.ones((len(kept), 1))], axis=1)
    penalty = np.diag([1.0] * kept.shape[1] + [0.0])
    solution = np.linalg.solve(x.T @ (weights[:, None] * x) + penalty, x.T @ (weights * values))
    return solution[:-1], float(solution[-1])


def test_lime_is_a_weighted_ridge_regression(trace: Any) -> None:
    """Subsets drawn as the library says, texts through the stock model, the regression by its normal equations."""
    pytest.importorskip("lime")
    value, movable = game(trace, delete=True, probability=True)
    n, state = len(movable), np.random.RandomState(5)
    sizes = state.randint(1, n + 1, 59)
    kept = np.ones((60, n))
    for row, size in enumerate(sizes, 1):
        kept[row, state.choice(range(n), size, replace=False)] = 0
    lengths = np.linalg.norm(kept, axis=1)
    cosine = np.divide(kept.sum(1), lengths * math.sqrt(n), out=np.zeros(60), where=lengths > 0)
    weights = np.sqrt(np.exp(-((100 * (1 - cosine)) ** 2) / 25**2))
    once = cache(value)
    values = np.array([once(tuple(map(bool, row))) for row in kept])
    expected, intercept = ridge(kept, values, weights)
    read = attributions.attribute(trace, "lime", count=60, seed=5)
    assert read.scores[movable].tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert read.info["intercept"] == pytest.approx(intercept, abs=1e-9)
    assert read.info["score"] == "probability"
    assert read.scores[[0, len(trace) - 1]].abs().sum() == 0


def test_lime_is_drawn_by_its_seed(trace: Any) -> None:
    pytest.importorskip("lime")
    np.random.seed(1)
    first = attributions.attribute(trace, "lime", count=40)
    np.random.seed(2)
    assert torch.equal(first.scores, attributions.attribute(trace, "lime", count=40).scores)
    assert not torch.equal(first.scores, attributions.attribute(trace, "lime", count=40, seed=1).scores)


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shap", "lime"])
def test_a_missing_library_is_one_line(name: str, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"the method {name} needs {name}: pip install .*\[peers\]'"):
        attributions.attribute(trace, name)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("shap", {"algorithm": "kernel"}, "unknown algorithm 'kernel'"),
        ("shap", {"evaluations": 0}, "evaluations must be at least 1"),
        ("shap", {"unit": "page"}, "unknown unit 'page'"),
        ("shap", {"replacement": "nothing"}, "unknown replacement 'nothing'"),
        ("lime", {"count": 1}, "count is a number of texts, at least 2"),
        ("lime", {"kernel_width": 0.0}, "kernel_width is a number above 0"),
        ("lime", {"seed": -1}, "seed is a number from 0"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], why: str, trace: Any) -> None:
    pytest.importorskip(name)
    with pytest.raises(InputError, match=why):
        attributions.attribute(trace, name, **options)


@pytest.mark.parametrize("name", ["shap", "lime"])
def test_targets_are_those_of_every_other_method(name: str) -> None:
    """The number that is explained is the target's: a word less its foil, of a masked language model."""
    pytest.importorskip(name)
    trace = mixlens.load("agreement").trace("The keys to the cabinet [MASK] rusty.")
    read = attributions.attribute(trace, name, target="were", foil="was", score="logit")
    other = attributions.attribute(trace, name, target="was", foil="were", score="logit")
    assert read.info["target"] == "were - was"
    torch.testing.assert_close(
        read.scores, -other.scores, rtol=1e-4, atol=1e-5
    )  # float32, the same passes with the sign changed
    assert float(read.scores[trace.query]) == 0
    assert read.top(1)[0][0] == "keys"
