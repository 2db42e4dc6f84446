"""GlobEnc's experiments: each number against one computed apart, tables from records by hand, refusals, stop and go on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
import mixlens.experiments.core
from mixlens.asking import maps_of
from mixlens.errors import InputError
from mixlens.experiments import Table, known, run
from mixlens.experiments import globenc as paper
from mixlens.metrics import Interval
from mixlens.types import Example, Map, Record

pytest.importorskip("scipy")
NAMES = ("globenc-table1", "globenc-layers", "globenc-hta", "globenc-ln-outliers")
FEW = ("attention", "globenc")


def setup_of(name: str, **options: Any) -> Any:
    from mixlens.experiments import Setup

    used = known()[name]
    return Setup(used, (), (), used.methods, {**used.options, **options})


def ranks_agree(a: Any, b: Any) -> float:
    """Spearman, slowly: Pearson of the ranks, where no two scores are the same."""
    places = [[sorted(side).index(x) for x in side] for side in (a.tolist(), b.tolist())]
    assert all(len(set(side)) == len(side) for side in places)
    return float(np.corrcoef(*places)[0, 1])


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_table1_is_the_row_of_the_first_token_against_the_gradient(model: Any) -> None:
    (example,) = mixlens.experiments.core.examples_of("sentiment", n=1, seed=3)
    made = run("globenc-table1", model=model, data=[example], methods=FEW, progress=False)
    trace = model.trace(example)
    wanted = mixlens.attribute(trace, "grad_x_input_l2", target="predicted").scores
    for method in FEW:
        maps = mixlens.mix(trace, method).scores.double()
        product, shares = maps[0], maps[0] / maps[0].sum(-1, keepdim=True)
        for layer in maps[1:]:
            product, shares = layer @ product, (layer / layer.sum(-1, keepdim=True)) @ shares
        by_hand = (maps[-1][0], product[0], shares[0])
        found = [r.value for r in made.records if r.method == method]
        for value, row in zip(found, by_hand, strict=True):
            assert math.isclose(value, ranks_agree(row, wanted), abs_tol=1e-9)
    assert [r.metric for r in made.records[:3]] == list(paper.ROLLED)


def test_table1_means() -> None:
    values = {("attention", "alone"): (0.2, 0.4), ("attention", "rolled out"): (1.0, math.nan)}
    records = [Record(str(i), m, how, v, {}) for (m, how), vs in values.items() for i, v in enumerate(vs)]
    records += [Record(str(i), "attention", paper.ROLLED[2], -0.5, {}) for i in range(2)]
    (table,) = paper.finish_table1(setup_of("globenc-table1"), records)
    method, alone, rolled, rows_to_one = table.rows[0]
    assert (method, alone.mean, alone.n) == ("attention", pytest.approx(0.3), 2)
    assert (rolled.mean, rolled.undefined) == (1.0, 1)
    assert rows_to_one.mean == -0.5


def test_layers_end_where_table1_is(model: Any) -> None:
    asked: dict[str, Any] = {"model": model, "data": "sentiment", "n": 2, "methods": FEW, "progress": False}
    whole, layers = run("globenc-table1", **asked), run("globenc-layers", **asked)
    last = {(r.example, r.method, r.metric): r.value for r in layers.records if r.info["layer"] == model.n_layers}
    assert last == {(r.example, r.method, r.metric): r.value for r in whole.records}
    summed = run("globenc-layers", over="sum", **asked)
    assert [r.value for r in summed.records] != [r.value for r in layers.records]


def test_per_layer_groups_examples_and_keeps_the_layers_order() -> None:
    records = [
        Record("a", "m", "x", 1.0, {"layer": 2}),
        Record("a", "m", "x", 3.0, {"layer": 1}),
        Record("b", "m", "x", 5.0, {"layer": 1}),
    ]
    table = paper.per_layer("t", "T", records, ("method",), seed=0)
    assert table.columns == ("method", "layer 1", "layer 2")
    assert [cell.mean for cell in table.rows[0][1:]] == [4.0, 1.0]
    missing = paper.per_layer("t", "T", [*records, Record("a", "o", "x", 1.0, {"layer": 1})], ("method",), seed=0)
    assert missing.rows[1][2] is None
    many = [Record("a", "m", "x", v, {"layer": 1}) for v in (0.0, 0.0, 0.0)] + [Record("b", "m", "x", 4.0, {"layer": 1})]
    (interval,) = paper.per_layer("t", "T", many, ("method",), seed=0).rows[0][1:]
    assert (interval.mean, interval.n) == (1.0, 2)  # four positions, two texts


def test_hta_agrees_with_itself_and_counts_constant_rows(model: Any) -> None:
    made = run("globenc-hta", model=model, data="sentiment", n=1, methods=("hta_layer", "norm"), progress=False)
    own = [r.value for r in made.records if r.method == "hta_layer"]
    assert own == pytest.approx([1.0] * len(own))
    assert all(abs(r.value) < 1 for r in made.records if r.method == "norm")
    assert paper.mean_of(np.array([1.0, np.nan, 3.0])) == (2.0, 1)
    value, missing = paper.mean_of(np.array([np.nan]))
    assert (math.isnan(value), missing) == (True, 1)


def test_rolled_knows_whose_convention_it_is() -> None:
    scores = torch.tensor([[[2.0, 0.0], [1.0, 1.0]], [[1.0, 3.0], [0.0, 2.0]]])

    def made(method: str, convention: str) -> Map:
        return Map(scores, ("a", "b"), method, {"convention": convention, "distribution": False})

    torch.testing.assert_close(paper.rolled(made("globenc", "alti"), "rolled out").scores[1], scores[1] @ scores[0])
    shares = scores / scores.sum(-1, keepdim=True)
    for how in paper.ROLLED[1:]:
        torch.testing.assert_close(paper.rolled(made("hta_layer", "alti"), how).scores[1], shares[1] @ shares[0])
    assert paper.rolled(made("globenc", "globenc"), "alone").scores is scores


def test_outliers_ask_the_model_alone(model: Any) -> None:
    made = run("globenc-ln-outliers", model=model, data=[Example("x")], sigma=2.0, progress=False)
    (table,) = made.tables
    parts = model.parts[1]
    first, second = (m.weight.detach().double() for m in (parts.norm_after_attention, parts.norm_after_mlp))
    far = [(w - w.mean()).abs() > 2 * w.std(unbiased=False) for w in (first, second)]
    row = table.rows[1]
    assert row[:4] == (2, int(far[0].sum()), int(far[1].sum()), int((far[0] & far[1]).sum()))
    assert row[4] == pytest.approx(float(np.corrcoef(first, second)[0, 1]))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_records_give_the_same_tables(name: str, model: Any) -> None:
    methods = None if name == "globenc-ln-outliers" else FEW
    made = run(name, model=model, data="sentiment", n=2, methods=methods, progress=False)
    before = list(made.records)
    again = made.setup.experiment.finish(made.setup, made.records)
    assert [table.csv for table in again] == [table.csv for table in made.tables]
    assert before
    assert [repr(record) for record in made.records] == [repr(record) for record in before]  # a NaN equals itself as text


def test_stopped_and_continued_is_the_same(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    asked: dict[str, Any] = {"model": model, "data": "sentiment", "n": 3, "methods": FEW, "progress": False}
    run("globenc-table1", out=tmp_path / "whole", **asked)
    seen = []

    def stopping(trace: Any, requests: Any) -> dict[str, Map]:
        seen.append(trace)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return maps_of(trace, requests)

    monkeypatch.setattr(paper, "maps_of", stopping)
    with pytest.raises(KeyboardInterrupt):
        run("globenc-table1", out=tmp_path / "stopped", **asked)
    monkeypatch.undo()
    run("globenc-table1", out=tmp_path / "stopped", **asked)
    for file in ("summary.csv", "summary.md", "figure.svg"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_drawn(name: str, model: Any) -> None:
    pytest.importorskip("matplotlib")
    methods = None if name == "globenc-ln-outliers" else FEW
    made = run(name, model=model, data="sentiment", n=1, methods=methods, progress=False)
    assert mixlens.experiments.core.drawn(made)["svg"].startswith(b"<?xml")


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("globenc-table1", {"reference": "grad_x_imput"}, "grad_x_input"),
        ("globenc-table1", {"reference": "alti"}, "is an attribution method"),
        ("globenc-table1", {"methods": ("grad_l2",)}, "takes maps alone"),
        ("globenc-layers", {"over": "mean"}, "row or sum"),
        ("globenc-hta", {"reference": "grad_l2"}, "is a map method"),
        ("globenc-ln-outliers", {"sigma": 0}, "above 0"),
        ("globenc-table1", {"sigma": 3}, "no option"),
    ],
)
def test_refusals(name: str, given: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(InputError, match=told):
        run(name, model=model, data="sentiment", n=1, progress=False, **given)


# --- the recipe of the results pages ------------------------------------------------------------------------------------


def test_verdicts_of_the_results_pages() -> None:
    from recipes import results_mixing as recipe

    assert recipe._rises([-0.4, 0.1, 0.5, 0.49])
    assert not recipe._rises([-0.4, 0.5, 0.3])
    assert not recipe._rises([0.1, 0.5])
    assert recipe._falls_away([0.1, 0.9, 0.5], 1)
    assert not recipe._falls_away([0.1, 0.9, 0.5], 2)
    cells = tuple(Interval(value, 0.0, 1.0, 3, 0.25) for value in (0.5, 0.75))
    table = Table("t", "T", ("method", "metric", "layer 1", "layer 2"), (("a", "x", *cells), ("b", "x", *cells[::-1])))
    assert recipe.means(recipe.row_of(table, "b", "x")) == [0.75, 0.5]
    assert recipe.told(cells[0]) == "0.50 ± 0.25"
    assert set(recipe.RUNS) >= {f"globenc-{name}" for name in ("table1", "layers", "hta")}
    assert {one.experiment for one in recipe.RUNS.values()} <= set(known())
