"""Sanity checks: what is changed is changed, what is not stays, and the model is whole afterwards."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import mixlens
from mixlens.errors import InputError
from mixlens.experiments import run
from mixlens.experiments.sanity import jittered, redrawn


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


def test_redrawn_weights_have_the_old_means_and_spreads(model: Any) -> None:
    before = {name: weights.clone() for name, weights in model.hf_model.named_parameters()}
    other = redrawn(model, seed=0)
    for name, weights in other.hf_model.named_parameters():
        spread = float(before[name].detach().std())
        assert not weights.equal(before[name]) or spread == 0, name
        if weights.numel() > 5000:  # the standard error of a spread is under 1 % of it
            assert float(weights.detach().std()) == pytest.approx(spread, rel=0.05), name
    assert all(weights.equal(before[name]) for name, weights in model.hf_model.named_parameters())
    again = redrawn(model, seed=0)
    assert all(a.equal(b) for a, b in zip(other.hf_model.parameters(), again.hf_model.parameters(), strict=True))


def test_noise_moves_every_word_by_its_radius_and_goes_away(model: Any) -> None:
    table, tokens = model.hf_model.get_input_embeddings(), torch.tensor([[5, 9, 5]])
    with torch.no_grad():
        plain = table(tokens)
        with jittered(model, radius=0.1, seed=0):
            moved = table(tokens)
        after = table(tokens)
    assert after.equal(plain)
    lengths = (moved - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert lengths[0].tolist() == pytest.approx([0.1] * 3, rel=1e-4)
    assert moved[0, 0].equal(moved[0, 2])  # one token, one direction


def test_the_hook_comes_off_when_something_fails(model: Any) -> None:
    with pytest.raises(RuntimeError), jittered(model, radius=0.1, seed=0):
        raise RuntimeError
    assert not model.hf_model.get_input_embeddings()._forward_hooks


def test_checks_find_a_method_that_ignores_the_model(model: Any) -> None:
    """Random scores depend on the text alone: nothing changes them."""
    made = run("judge-sanity", model=model, n=4, methods=["random", "grad_x_input", "alti"], progress=False)
    (table,) = made.tables
    assert table.columns == ("method", "weights", "noise")  # labels need a second model, another target a third class
    assert "target is left out: " in table.note
    assert "but for the target" not in table.note
    assert [table.row("random")[name].mean for name in table.columns[1:]] == pytest.approx([1, 1])
    assert table.row("grad_x_input")["weights"].mean < 0.8
    assert table.row("grad_x_input")["noise"].mean > 0.8


def test_another_class_is_asked_where_there_are_three() -> None:
    """Of two classes, and against a foil, the scores of the other are the same with the other sign, which checks nothing."""
    small = mixlens.load("sentiment")
    config = copy.deepcopy(small.hf_model.config)
    config.num_labels = 3
    torch.manual_seed(0)
    three = mixlens.load(type(small.hf_model)(config).eval(), tokenizer=small.tokenizer)
    texts = ["The plot was not dull.", "A wonderful film."]
    made = run("judge-sanity", model=three, data=texts, methods=["grad_x_input", "alti"], checks=["target"], progress=False)
    (table,) = made.tables
    assert table.columns == ("method", "target")
    assert table.row("alti")["target"].mean == pytest.approx(1)  # a map knows of no target
    assert -1 < table.row("grad_x_input")["target"].mean < 1
    assert "target is left out" not in table.note
    with pytest.raises(InputError, match="target needs a third class"):
        run("judge-sanity", model="sentiment", n=1, checks=["target"], progress=False)


def test_a_second_model_is_the_one_trained_on_shuffled_labels(model: Any) -> None:
    made = run("judge-sanity", model=[model, redrawn(model, seed=1)], n=2, methods=["alti"], checks=["labels"], progress=False)
    assert made.tables[0].columns == ("method", "labels")
    assert made.tables[0].row("alti")["labels"].mean < 1


def test_unknown_checks_are_refused(model: Any) -> None:
    with pytest.raises(InputError, match="checks are some of weights, labels, target, noise, not"):
        run("judge-sanity", model=model, n=1, checks=["weight"], progress=False)
    with pytest.raises(InputError, match="radius is a share"):
        run("judge-sanity", model=model, n=1, radius=2, progress=False)
