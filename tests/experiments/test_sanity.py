"""Sanity checks: what is changed is changed, what is not stays, and the model is whole afterwards."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics.agreement import spearman
from mixlens.runs.experiments import run
from mixlens.runs.judge.sanity import jittered, redraw_seeds, redrawn


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
    assert table.columns == (
        "method",
        "weights",
        "sd over redraws",
        "noise",
    )  # labels need a second model, another target a third class
    assert "target is left out: " in table.note
    assert "but for the target" not in table.note
    assert [table.row("random")[name].mean for name in ("weights", "noise")] == pytest.approx([1, 1])
    assert table.row("random")["sd over redraws"] == pytest.approx(0, abs=1e-12)
    assert table.row("grad_x_input")["weights"].mean < 0.8
    assert table.row("grad_x_input")["noise"].mean > 0.8


def test_weights_are_redrawn_several_times(model: Any) -> None:
    """Of each text the mean over redraws; their spread is that of the means over texts."""
    asked: dict[str, Any] = {"model": model, "n": 3, "methods": ["alti"], "checks": ["weights"], "progress": False}
    many, one = run("judge-sanity", **asked, redraws=4), run("judge-sanity", **asked, redraws=1)
    values = np.array([record.info["redraws"] for record in many.records])
    assert values.shape == (3, 4)
    assert len({*values[0].tolist()}) > 1  # no two models are the same
    assert not np.isnan(values).any()
    assert [record.value for record in many.records] == pytest.approx(values.mean(1).tolist())
    assert many.tables[0].row("alti")["sd over redraws"] == pytest.approx(values.mean(0).std(ddof=1))
    assert "the mean over 4 redraws" in many.tables[0].note
    assert one.tables[0].row("alti")["sd over redraws"] is None
    assert [record.value for record in one.records] == values[:, 0].tolist()  # the first of them
    for wrong in (0, 2.5):
        with pytest.raises(InputError, match="redraws is a number of models"):
            run("judge-sanity", **asked, redraws=wrong)


def test_positions_that_stay_say_nothing_of_the_weights(model: Any) -> None:
    """ContextCite gives 0 to special tokens and to the gap, whatever the model: over all positions its scores look alike."""
    made = run(
        "judge-sanity", model=model, n=4, methods=["context_cite"], checks=["weights"], redraws=1, progress=False
    )
    other = redrawn(model, redraw_seeds(0, 1)[0])
    for record, example in zip(made.records, made.setup.examples, strict=True):
        traces = [one.trace(example) for one in (model, other)]
        asked = {"target": example.target, "foil": example.foil, "score": "logit"}
        before, after = (
            mixlens.attribute(trace, "context_cite", **asked).scores.abs().double().numpy() for trace in traces
        )
        stay = [i for i in range(len(traces[0])) if traces[0].special[i] or i == traces[0].query]
        assert not before[stay].any()
        assert not after[stay].any()
        moving = [i for i in range(len(traces[0])) if i not in stay]
        assert record.value == pytest.approx(spearman(before[moving], after[moving]), nan_ok=True)
        assert record.value != pytest.approx(spearman(before, after), nan_ok=True)


def test_another_class_is_asked_where_there_are_three() -> None:
    """Of two classes, and against a foil, the scores of the other are the same with the other sign, which checks nothing."""
    small = mixlens.load("sentiment")
    config = copy.deepcopy(small.hf_model.config)
    config.num_labels = 3
    torch.manual_seed(0)
    three = mixlens.load(type(small.hf_model)(config).eval(), tokenizer=small.tokenizer)
    texts = ["The plot was not dull.", "A wonderful film."]
    made = run(
        "judge-sanity", model=three, data=texts, methods=["grad_x_input", "alti"], checks=["target"], progress=False
    )
    (table,) = made.tables
    assert table.columns == ("method", "target")
    assert table.row("alti")["target"].mean == pytest.approx(1)  # a map knows of no target
    assert -1 < table.row("grad_x_input")["target"].mean < 1
    assert "target is left out" not in table.note
    with pytest.raises(InputError, match="target needs a third class"):
        run("judge-sanity", model="sentiment", n=1, checks=["target"], progress=False)


def test_a_second_model_is_the_one_trained_on_shuffled_labels(model: Any) -> None:
    made = run(
        "judge-sanity", model=[model, redrawn(model, seed=1)], n=2, methods=["alti"], checks=["labels"], progress=False
    )
    assert made.tables[0].columns == ("method", "labels")
    assert made.tables[0].row("alti")["labels"].mean < 1


def test_unknown_checks_are_refused(model: Any) -> None:
    with pytest.raises(InputError, match="checks are some of weights, labels, target, noise, not"):
        run("judge-sanity", model=model, n=1, checks=["weight"], progress=False)
    with pytest.raises(InputError, match="radius is a share"):
        run("judge-sanity", model=model, n=1, radius=2, progress=False)
