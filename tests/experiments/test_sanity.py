"""Sanity checks: what is changed is changed, what is not stays, and the model is whole afterwards."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
from mixlens import metrics
from mixlens.base import errors
from mixlens.metrics import agreement
from mixlens.runs import experiments
from mixlens.runs.judge import sanity


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("agreement")


def test_redrawn_weights_have_the_old_means_and_spreads(model: Any) -> None:
    before = {name: weights.clone() for name, weights in model.hf_model.named_parameters()}
    other = sanity.redrawn(model, seed=0)
    for name, weights in other.hf_model.named_parameters():
        spread = float(before[name].detach().std())
        assert not weights.equal(before[name]) or spread == 0, name
        if weights.numel() > 5000:  # the standard error of a spread is under 1 % of it
            assert float(weights.detach().std()) == pytest.approx(spread, rel=0.05), name
    assert all(weights.equal(before[name]) for name, weights in model.hf_model.named_parameters())
    again = sanity.redrawn(model, seed=0)
    assert all(a.equal(b) for a, b in zip(other.hf_model.parameters(), again.hf_model.parameters(), strict=True))


def test_noise_moves_every_word_by_its_radius_and_goes_away(model: Any) -> None:
    table, tokens = model.hf_model.get_input_embeddings(), torch.tensor([[5, 9, 5]])
    with torch.no_grad():
        plain = table(tokens)
        with sanity.jittered(model, radius=0.1, seed=0):
            moved = table(tokens)
        after = table(tokens)
    assert after.equal(plain)
    lengths = (moved - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert lengths[0].tolist() == pytest.approx([0.1] * 3, rel=1e-4)
    assert moved[0, 0].equal(moved[0, 2])  # one token, one direction


def test_the_hook_comes_off_when_something_fails(model: Any) -> None:
    with pytest.raises(RuntimeError), sanity.jittered(model, radius=0.1, seed=0):
        raise RuntimeError
    assert not model.hf_model.get_input_embeddings()._forward_hooks


def test_checks_find_a_method_that_ignores_the_model(model: Any) -> None:
    """Random scores depend on the text alone: nothing changes them."""
    made = experiments.run("judge-sanity", model=model, n=4, methods=["random", "grad_x_input", "alti"], progress=False)
    (table,) = made.tables
    assert table.columns == (
        "method",
        "weights",
        "sd over redraws",
        "noise",
    )  # labels need a second model, a target a third class
    assert "target is left out: " in table.note
    assert "but for the target" not in table.note
    assert [table.row("random")[name].mean for name in ("weights", "noise")] == pytest.approx([1, 1])
    assert table.row("random")["sd over redraws"] == pytest.approx(0, abs=1e-12)
    assert table.row("grad_x_input")["weights"].mean < 0.8
    assert table.row("grad_x_input")["noise"].mean > 0.8


def test_weights_are_redrawn_several_times(model: Any) -> None:
    """Of each text the mean over redraws; their spread is that of the means over texts."""
    asked: dict[str, Any] = {"model": model, "n": 3, "methods": ["alti"], "checks": ["weights"], "progress": False}
    many, one = experiments.run("judge-sanity", **asked, redraws=4), experiments.run("judge-sanity", **asked, redraws=1)
    values = np.array([record.info["redraws"] for record in many.records])
    assert values.shape == (3, 4)
    assert len({*values[0].tolist()}) > 1  # no two models are the same
    assert not np.isnan(values).any()
    assert [record.value for record in many.records] == pytest.approx(values.mean(1).tolist())
    assert many.tables[0].row("alti")["sd over redraws"] == pytest.approx(values.mean(0).std(ddof=1))
    assert "the mean over 4 redraws" in many.tables[0].note
    assert one.tables[0].row("alti")["sd over redraws"] is None
    assert [record.value for record in one.records] == values[:, 0].tolist()  # the first of them


def test_positions_that_stay_say_nothing_of_the_weights(model: Any) -> None:
    """ContextCite gives 0 to special tokens and to the gap, whatever the model: over all positions its scores look
    alike."""
    made = experiments.run(
        "judge-sanity", model=model, n=4, methods=["context_cite"], checks=["weights"], redraws=1, progress=False
    )
    other = sanity.redrawn(model, sanity.redraw_seeds(0, 1)[0])
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
        assert record.value == pytest.approx(agreement.spearman(before[moving], after[moving]), nan_ok=True)
        assert record.value != pytest.approx(agreement.spearman(before, after), nan_ok=True)


def test_another_class_is_asked_where_there_are_three() -> None:
    """Of two classes, and against a foil, the scores of the other are the same with the other sign, which checks
    nothing."""
    small = mixlens.load("sentiment")
    config = copy.deepcopy(small.hf_model.config)
    config.num_labels = 3
    torch.manual_seed(0)
    three = mixlens.load(type(small.hf_model)(config).eval(), tokenizer=small.tokenizer)
    texts = ["The plot was not dull.", "A wonderful film."]
    made = experiments.run(
        "judge-sanity", model=three, data=texts, methods=["grad_x_input", "alti"], checks=["target"], progress=False
    )
    (table,) = made.tables
    assert table.columns == ("method", "target")
    assert table.row("alti")["target"].mean == pytest.approx(1)  # a map knows of no target
    assert -1 < table.row("grad_x_input")["target"].mean < 1
    assert "target is left out" not in table.note


def test_a_second_model_is_the_one_trained_on_shuffled_labels(model: Any) -> None:
    made = experiments.run(
        "judge-sanity",
        model=[model, sanity.redrawn(model, seed=1)],
        n=2,
        methods=["alti"],
        checks=["labels"],
        progress=False,
    )
    assert made.tables[0].columns == ("method", "labels")
    assert made.tables[0].row("alti")["labels"].mean < 1


def test_the_same_prediction_or_none_is_needed(model: Any) -> None:
    """A text whose prediction the noise changes has no value, and is counted as undefined."""
    texts = ["the keys to the cabinet [MASK] old .", "the dog [MASK] here ."]
    asked: dict[str, Any] = {"data": texts, "methods": ["alti"], "checks": ["noise"], "progress": False}
    made = experiments.run("judge-sanity", model=model, radius=0.9, **asked)
    for record, text in zip(made.records, texts, strict=True):
        before = model.trace(text).prediction(1)[0][0]
        with sanity.jittered(model, radius=0.9, seed=0):
            after = model.trace(text).prediction(1)[0][0]
        assert math.isnan(record.value) is (before != after)


def test_the_table_of_checks() -> None:
    """A mean of each check over texts; of redraws also the spread of their means over texts."""
    redraws = [[0.0, 1.0], [0.5, 3.5], [0.25, 0.0]]  # their means over texts: 0.25 and 1.5
    records = [mixlens.Record(str(i), "a", "weights", float(i), {"redraws": redraws[i % 3]}) for i in range(6)]
    records += [mixlens.Record(str(i), "a", "noise", float(i + 1)) for i in range(6)]
    records += [mixlens.Record(str(i), "b", "noise", 1.0) for i in range(3)]
    used = experiments.known()["judge-sanity"]
    options = {"checks": ["weights", "target", "noise"], "redraws": 2}
    (table,) = used.finish(experiments.Setup(used, (), (), ("b", "a"), options), records)
    first, second, ones = (
        metrics.mean_with_interval(row, how="studentised") for row in (np.arange(6.0), np.arange(6.0) + 1, [1.0] * 3)
    )
    assert table.columns == ("method", "weights", "sd over redraws", "noise")
    assert table.rows == (("b", None, None, ones), ("a", first, pytest.approx(1.25 / math.sqrt(2)), second))
    assert "of their magnitudes. weights: lower is better; noise: higher is better. A method" in table.note
    assert "weights: of each text the mean over 2 redraws, whose interval is over texts alone; sd over" in table.note
    undefined = [mixlens.Record("0", "a", "weights", 0.5, {"redraws": row}) for row in ([math.nan, 1.0], [0.0, 3.0])]
    assert sanity.spread_of_redraws(undefined) == pytest.approx(2 / math.sqrt(2))  # of 0 and 2
    assert len({*sanity.redraw_seeds(0, 5), *sanity.redraw_seeds(1, 5)}) == 10


def test_likeness_of_scores() -> None:
    """Signed for another target, else of magnitudes; fewer than two tokens have none."""
    pytest.importorskip("scipy.stats")
    rows = ([1.0, 2.0, -3.0, 9.0], [-1.0, -2.0, 3.0, 0.0])
    one, other = (mixlens.Attribution(torch.tensor(row), ("a", "b", "c", "d"), "m") for row in rows)
    assert sanity.likeness("target", one, other, [0, 1, 2]) == pytest.approx(-1.0)
    assert sanity.likeness("weights", one, other, [0, 1, 2]) == pytest.approx(1.0)
    assert sanity.likeness("weights", one, other, [2, 3]) == pytest.approx(-1.0)
    assert all(math.isnan(sanity.likeness("weights", one, other, places)) for places in ([2], []))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"checks": ["weight"]}, r"checks are some of weights, labels, target, noise, not \['weight'\]"),
        ({"checks": []}, "checks are some of weights"),
        ({"checks": ["target"]}, "target needs a third class"),
        ({"radius": 1.0}, "radius is a share of a word vector's length, above 0 and below 1, not 1.0"),
        ({"radius": 0.0}, "radius is a share"),
        ({"redraws": 0}, "redraws is a number of models"),
        ({"redraws": 2.5}, "redraws is a number of models"),
    ],
)
def test_unknown_checks_are_refused(asked: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(errors.InputError, match=told):
        experiments.run("judge-sanity", model=model, n=1, progress=False, **asked)
