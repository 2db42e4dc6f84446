"""ContextCite: the subsets through the stock model, and LASSO written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens.methods import context_cite
from mixlens.scoring import removal

pytest.importorskip("sklearn", reason="needs scikit-learn")
GAP = "The keys to the cabinet [MASK] rusty."
PAIR: dict[str, Any] = {"target": "were", "foil": "was"}


def lasso(x: Any, y: Any, penalty: float) -> Any:
    """Coordinate descent on |y - x w|^2 / (2 n) + penalty |w|_1, with x and y of mean 0."""
    n, d = x.shape
    weights = np.zeros(d)
    for _ in range(5000):
        for j in range(d):
            rest = y - x @ weights + x[:, j] * weights[j]
            rho = x[:, j] @ rest / n
            weights[j] = np.sign(rho) * max(abs(rho) - penalty, 0) / (x[:, j] @ x[:, j] / n)
    return weights


def test_context_cite_written_out() -> None:
    """Which words are kept is drawn by the seed; the log-odds are the difference of two logits of the stock model."""
    trace = mixlens.load("agreement", dtype="float64").trace(GAP)
    movable = [i for i in range(len(trace)) if not trace.special[i] and i != trace.query]
    kept = np.random.default_rng([0, 0]).random((64, len(movable))) < 0.5
    were, was = trace.model.tokenizer.convert_tokens_to_ids(["were", "was"])
    odds = []
    for row in kept:
        gone = {place for place, taken in zip(movable, row, strict=True) if not taken}
        left = [i for i in range(len(trace)) if i not in gone]
        with torch.no_grad():
            logits = trace.model.hf_model(torch.tensor([[trace.input_ids[i] for i in left]])).logits[
                0, left.index(trace.query)
            ]
        odds.append(float(logits[were] - logits[was]))
    x = (kept - kept.mean(0)) / kept.std(0)
    weights = lasso(x, np.array(odds) - np.mean(odds), 0.01) / kept.std(0)
    made = mixlens.attribute(trace, "context_cite", **PAIR)
    assert made.scores[movable].tolist() == pytest.approx(
        weights.tolist(), abs=1e-5
    )  # LASSO stops at a dual gap of 1e-10
    assert made.scores[[0, trace.query, len(trace) - 1]].abs().max() == 0
    assert 0 < made.info["fit"] < 1


def test_a_linear_model_is_found_and_what_does_nothing_has_no_weight() -> None:
    generator = np.random.default_rng(0)
    kept = generator.random((200, 6)) < 0.5
    truth = np.array([3.0, 0.0, -2.0, 0.0, 0.0, 1.0])
    weights, fit = context_cite.sparse_weights(removal.Subsets(((0,),) * 6, kept, kept @ truth + 5), 0.01)
    assert weights == pytest.approx(truth, abs=0.05)  # the penalty shortens each weight by 0.01 / 0.5^2
    assert (weights[truth == 0] == 0).all()
    assert fit > 0.999
    weights, fit = context_cite.sparse_weights(removal.Subsets(((0,),) * 6, kept, np.full(200, 2.0)), 0.01)
    assert (weights.tolist(), fit) == ([0.0] * 6, 0.0)  # nothing depends on what is kept


def test_tokens_of_a_word_share_its_weight() -> None:
    trace = mixlens.load("sentiment", dtype="float64").trace("The unfilmable plot was not dull.")
    made = mixlens.attribute(trace, "context_cite", unit="word")
    word = next(list(positions) for _, positions in trace.words if len(positions) > 1)
    assert len(set(made.scores[word].tolist())) == 1
    assert float(made.scores[word].sum()) != 0
    first, same, other = (mixlens.attribute(trace, "context_cite", seed=seed).scores for seed in (0, 0, 1))
    assert first.equal(same)
    assert not first.equal(other)
