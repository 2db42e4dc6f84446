"""Released code that differs from its paper, written out step by step on the stock model: nothing of mixlens is in
it."""

from __future__ import annotations

import pytest
import torch
from conftest import hf_model, ids

import mixlens

CLASSIFIER = "AutoModelForSequenceClassification"


def released_attgrads(model: torch.nn.Module, given: list[int], wanted: int, query: int) -> tuple[list[float], float]:
    """AttGrads as AttCAT's repository computes it, loop by loop: the row of a token, and the smallest value before
    the cut."""
    run = model(torch.tensor([given]), output_attentions=True)
    last = run.attentions[-1]
    (gradient,) = torch.autograd.grad(run.logits[0, wanted], last)
    heads, n = last.shape[1], len(given)
    weight = [sum(float(gradient[0, h, i, j]) for i in range(n) for j in range(n)) / n**2 for h in range(heads)]
    mean = [
        [sum(weight[h] * float(last[0, h, i, j].detach()) for h in range(heads)) / heads for j in range(n)]
        for i in range(n)
    ]
    cut = [[max(value, 0.0) for value in row] for row in mean]
    low, high = min(map(min, cut)), max(map(max, cut))
    scaled = [[(value - low) / (high - low) for value in row] for row in cut]
    return [0.0, *scaled[query][1:]], min(map(min, mean))


@pytest.mark.parametrize("query", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_released_attgrads_cuts_negative_values_before_it_scales(seed: int, query: int) -> None:
    stock = hf_model("bert", head=CLASSIFIER, attention="eager")
    trace = mixlens.load(stock).trace(input_ids=ids(8, seed=seed))
    negative = 0
    for wanted in (0, 1):
        expected, lowest = released_attgrads(stock, ids(8, seed=seed), wanted, query)
        made = mixlens.attribute(trace, "attention_x_grad", target=wanted, query=query, variant="released")
        if max(expected) > 0:
            torch.testing.assert_close(made.scores, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
        negative += lowest < 0 < max(expected)
    assert negative, "no value is cut here: choose another input"
