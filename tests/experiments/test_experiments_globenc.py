"""GlobEnc's experiments: each number against one computed apart, refusals."""

# ruff: noqa: F811
from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from outcomes import made_up, setup_of, values
from tiny_models import model  # noqa: F401

import mixlens
from mixlens import data, types
from mixlens.base import errors
from mixlens.papers.globenc import local
from mixlens.papers.globenc import main as paper
from mixlens.runs.experiments import known, run

pytest.importorskip("scipy")
FEW = ("attention", "globenc")


@pytest.fixture(scope="module")
def example() -> Any:
    return next(iter(data.load("sentiment", n=1, seed=3)))


def ranks_agree(a: Any, b: Any) -> float:
    """Spearman, slowly: Pearson of the ranks, where no two scores are the same."""
    places = [[sorted(side).index(x) for x in side] for side in (a.tolist(), b.tolist())]
    assert all(len(set(side)) == len(side) for side in places)
    return float(np.corrcoef(*places)[0, 1])


def test_table1_is_the_row_of_the_first_token_against_the_gradient(model: Any, example: Any) -> None:
    made = run("globenc-table1", model=model, data=[example], methods=FEW, progress=False)
    trace = model.trace(example)
    wanted = mixlens.attribute(trace, "grad_x_input_l2", target=example.info["label"]).scores
    for method in FEW:
        maps = mixlens.mix(trace, method).scores.double()
        product, shares = maps[0], maps[0] / maps[0].sum(-1, keepdim=True)
        for layer in maps[1:]:
            product, shares = layer @ product, (layer / layer.sum(-1, keepdim=True)) @ shares
        for how, row in zip(paper.ROLLED, (maps[-1][0], product[0], shares[0]), strict=True):
            assert math.isclose(values(made, method, how)[0], ranks_agree(row, wanted), abs_tol=1e-9)


def test_the_true_class_is_explained_or_the_predicted_one(model: Any, example: Any) -> None:
    predicted = model.trace(example).prediction(1)[0][0].lower()
    other = next(name for name in model.hf_model.config.id2label.values() if name.lower() != predicted)
    wrong = types.Example(example.text, id="1", info={"label": other.lower()})
    trace, ranked = model.trace(wrong), {}
    for target, name in (("true", other.lower()), ("predicted", "predicted")):
        made = run("globenc-table1", model=model, data=[wrong], methods=("norm",), target=target, progress=False)
        reference = mixlens.attribute(trace, "grad_x_input_l2", target=name).scores
        ranked[target] = made.records[0].value
        assert ranked[target] == pytest.approx(ranks_agree(mixlens.mix(trace, "norm").scores[-1][0], reference))
    assert ranked["true"] != ranked["predicted"]


def test_classes_without_names_are_taken_in_the_stated_order(model: Any) -> None:
    config = SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"})
    nameless = SimpleNamespace(task="classification", name="m", hf_model=SimpleNamespace(config=config))
    positive = types.Example("x", id="1", info={"label": "positive"})

    def target(where: Any, classes: str, labels: dict[str, int] | None = None) -> Any:
        options = {"target": "true", "classes": classes}
        return paper.target_of(setup_of("globenc-table1", model=where, options=options, labels=labels), positive)

    assert target(nameless, "negative,positive") == 1
    assert target(nameless, "positive, negative") == 0
    assert target(nameless, "", {"positive": 1, "negative": 0}) == 1
    with pytest.raises(errors.InputError, match="does not say what they mean"):
        target(nameless, "")
    assert target(model, "positive,negative") == target(model, "")  # names of the model count, not the stated order


def test_layers_end_where_table1_is(model: Any) -> None:
    asked: dict[str, Any] = {"model": model, "data": "sentiment", "n": 2, "methods": FEW, "progress": False}
    whole, layers = run("globenc-table1", **asked), run("globenc-layers", **asked)
    last = {(r.example, r.method, r.metric): r.value for r in layers.records if r.info["layer"] == model.n_layers}
    assert last == {(r.example, r.method, r.metric): r.value for r in whole.records}
    summed = run("globenc-layers", over="sum", **asked)
    assert [r.value for r in summed.records] != [r.value for r in layers.records]


def test_tables_by_layer_keep_the_layers_order_and_draw_texts_not_positions() -> None:
    facts = (("a", 2, 1.0), ("a", 1, 3.0), ("b", 1, 5.0), ("a", 3, 0.0), ("a", 3, 0.0), ("a", 3, 0.0), ("b", 3, 4.0))
    records = [types.Record(example, "m", "x", value, {"layer": layer}) for example, layer, value in facts]
    other = types.Record("a", "o", "x", 1.0, {"layer": 1})
    found = paper.per_layer("t", "T", [*records, other], ("method",), seed=0)
    assert found.columns == ("method", "layer 1", "layer 2", "layer 3")
    assert [(cell.mean, cell.n) for cell in found.rows[0][1:]] == [
        (4.0, 2),
        (1.0, 1),
        (1.0, 2),
    ]  # four positions, two texts
    assert found.rows[1][2:] == (None, None)


def test_table2_has_three_layers_and_the_highest() -> None:
    curve = dict(enumerate((0.1, 0.2, 0.9, 0.4), 1))
    levels = {("norm", "rolled out", i): mean for i, mean in curve.items()} | {("norm", "alone", i): 0.0 for i in curve}
    layers, table2 = known()["globenc-layers"].finish(setup_of("globenc-layers"), made_up(levels))
    rows = {place: cell.mean for metric, _, place, cell in table2.rows if metric == "rolled out"}
    expected = {"first layer": 0.1, "middle layer": 0.2, "last layer": 0.4, "highest of all layers": 0.9}
    assert rows == pytest.approx(expected, abs=0.05)
    assert layers.rows[0][2].confidence == 0.99


def test_hta_is_compared_over_the_whole_map_and_row_by_row(model: Any, example: Any) -> None:
    methods, layer, trace = ("norm_residual_ln", "hta_layer_x_input"), 2, model.trace(example)
    made = run("globenc-hta", model=model, data=[example], methods=methods, progress=False)
    ours, theirs = (mixlens.mix(trace, name).scores[layer - 1].double().numpy() for name in methods)
    whole = np.corrcoef(ours.ravel(), theirs.ravel())[0, 1]
    rows = np.mean([np.corrcoef(one, other)[0, 1] for one, other in zip(ours, theirs, strict=True)])
    assert values(made, methods[0], local.WHOLE, layer=layer) == [pytest.approx(whole)]
    assert values(made, methods[0], local.ROWS, layer=layer) == [pytest.approx(rows)]
    own = [r.value for r in made.records if r.method == methods[1]]
    assert own == pytest.approx([1.0] * len(own))
    assert paper.mean_of(np.array([1.0, np.nan, 3.0])) == (2.0, 1)


def test_rollouts_are_products_without_an_identity(model: Any, example: Any) -> None:
    """Eq. 12 alone for W: `attention` by itself has half an identity in each layer (eq. 13), as W_FIXEDRES has."""
    trace, close = model.trace(example), {"rtol": 1e-4, "atol": 1e-6}  # rollouts multiply in float32
    plain, fixed = (mixlens.mix(trace, name) for name in paper.FAMILY[:2])
    product = torch.eye(len(trace), dtype=torch.float64)
    for layer in plain.scores.double():
        product = layer @ product
    torch.testing.assert_close(paper.rolled(plain, "rolled out").scores[-1].double(), product, **close)
    torch.testing.assert_close(plain.rollout().scores, fixed.rollout().scores, **close)
    hta = mixlens.mix(trace, "hta_layer")  # of another paper: rows to 1, both ways
    shares = hta.scores / hta.scores.sum(-1, keepdim=True)
    for how in paper.ROLLED[1:]:
        torch.testing.assert_close(paper.rolled(hta, how).scores[1], shares[1] @ shares[0], **close)
    assert paper.rolled(hta, "alone") is hta
    made = run("globenc-own-token", model=model, data=[example], progress=False)
    product = torch.eye(len(trace), dtype=torch.float64)
    for record, layer in zip(made.records, mixlens.mix(trace, "globenc").scores.double(), strict=True):
        product = layer @ product
        assert record.value == pytest.approx(float(product[0, 0] / product[0].sum()), rel=1e-5)


def test_outliers_ask_the_model_alone(model: Any) -> None:
    asked: dict[str, Any] = {"model": model, "data": [types.Example("x")], "sigma": 2.0, "progress": False}
    table, weights = run("globenc-ln-outliers", **asked).tables[:2]
    parts = model.parts[1]
    first, second = (m.weight.detach().double() for m in (parts.norm_after_attention, parts.norm_after_mlp))
    far = [(w - w.mean()).abs() > 2 * w.std(unbiased=False) for w in (first, second)]
    assert table.rows[1][:4] == (2, int(far[0].sum()), int(far[1].sum()), int((far[0] & far[1]).sum()))
    assert table.rows[1][4] == pytest.approx(float(np.corrcoef(first, second)[0, 1]))
    shown = run("globenc-ln-outliers", layer=2, **asked).tables[1].rows
    assert [feature for feature, *_ in shown] == sorted(torch.nonzero(far[0] | far[1]).flatten().tolist())
    assert all(a == pytest.approx(float(first[i])) and b == pytest.approx(float(second[i])) for i, a, b in shown)
    assert f"layer {model.n_layers - 1}" in weights.title  # by default the last but one of so few


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("globenc-table1", {"reference": "grad_x_imput"}, "grad_x_input"),
        ("globenc-table1", {"reference": "alti"}, "is an attribution method"),
        ("globenc-table1", {"methods": ("grad_l2",)}, "takes maps alone"),
        ("globenc-layers", {"over": "mean"}, "row or sum"),
        ("globenc-hta", {"reference": "grad_l2"}, "is a map method"),
        ("globenc-ln-outliers", {"sigma": 0}, "above 0"),
        ("globenc-ln-outliers", {"layer": 99}, "1 to"),
        ("globenc-table1", {"target": "gold"}, "true or predicted"),
        ("globenc-table1", {"classes": ["a"]}, "is written"),
        ("globenc-table1", {"data": [types.Example("good")]}, "explains the true class, and 1 examples have none"),
        ("globenc-layers", {"confidence": 99}, "between 0 and 1"),
        ("globenc-hta", {"confidence": 0}, "between 0 and 1"),
        ("globenc-table1", {"sigma": 3}, "no option"),
    ],
)
def test_refusals(name: str, given: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(errors.InputError, match=told):
        run(name, model=model, **{"data": "sentiment", "n": 1, "progress": False, **given})
