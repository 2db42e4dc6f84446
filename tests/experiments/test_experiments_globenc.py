"""GlobEnc's experiments: each number against one computed apart, tables from records by hand, refusals, stop and go on."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mixlens
import mixlens.runs.experiments.prepare
import mixlens.runs.experiments.running
from mixlens.base.errors import InputError
from mixlens.papers.globenc import layers as globenc_layers
from mixlens.papers.globenc import local as globenc_local
from mixlens.papers.globenc import main as paper
from mixlens.runs.experiments import known, run
from mixlens.runs.experiments.claims import DIFFERENT, INCOMPARABLE, SAME, UNDECIDED
from mixlens.runs.experiments.plan import PLANS
from mixlens.scoring.asking import maps_of
from mixlens.types import Example, Map, Record

pytest.importorskip("scipy")
NAMES = ("globenc-table1", "globenc-layers", "globenc-hta", "globenc-ln-outliers", "globenc-own-token")
FEW = ("attention", "globenc")


def setup_of(name: str, **options: Any) -> Any:
    from mixlens.runs.experiments import Setup

    used = known()[name]
    return Setup(used, (), (), used.methods, {**used.options, **options})


def words(name: str, records: list[Record]) -> list[str]:
    """The verdict on each claim of an experiment, from records."""
    declared = known()[name]
    setup = SimpleNamespace(seed=0, options=dict(declared.options))
    return [claim.check(setup, records, []).word for claim in declared.claims]


def noisy(method: str, metric: str, mean: float, **info: Any) -> list[Record]:
    """Records of 60 examples about a mean."""
    draws = np.random.default_rng(zlib.crc32(f"{method} {metric} {mean} {info}".encode())).normal(mean, 0.05, 60)
    return [Record(str(i), method, metric, float(value), info) for i, value in enumerate(draws)]


def ranks_agree(a: Any, b: Any) -> float:
    """Spearman, slowly: Pearson of the ranks, where no two scores are the same."""
    places = [[sorted(side).index(x) for x in side] for side in (a.tolist(), b.tolist())]
    assert all(len(set(side)) == len(side) for side in places)
    return float(np.corrcoef(*places)[0, 1])


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_table1_is_the_row_of_the_first_token_against_the_gradient(model: Any) -> None:
    (example,) = mixlens.runs.experiments.prepare.examples_of("sentiment", n=1, seed=3)
    made = run("globenc-table1", model=model, data=[example], methods=FEW, progress=False)
    trace = model.trace(example)
    wanted = mixlens.attribute(trace, "grad_x_input_l2", target=example.info["label"]).scores
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


def wrongly_labelled() -> Example:
    """A text with the label of the class that the model does not predict."""
    (example,) = mixlens.runs.experiments.prepare.examples_of("sentiment", n=1, seed=3)
    model = mixlens.load("sentiment")
    predicted = model.trace(example).prediction(1)[0][0].lower()
    other = next(name for name in model.hf_model.config.id2label.values() if name.lower() != predicted)
    return Example(example.text, id="1", info={"label": other.lower()})


def test_the_true_class_is_explained_or_the_predicted_one(model: Any) -> None:
    example = wrongly_labelled()
    trace = model.trace(example)
    ranked = {}
    for target, name in (("true", example.info["label"]), ("predicted", "predicted")):
        made = run("globenc-table1", model=model, data=[example], methods=("norm",), target=target, progress=False)
        reference = mixlens.attribute(trace, "grad_x_input_l2", target=name).scores
        ranked[target] = made.records[0].value
        assert ranked[target] == pytest.approx(ranks_agree(mixlens.mix(trace, "norm").scores[-1][0], reference))
    assert ranked["true"] != ranked["predicted"]


def test_classes_without_names_are_taken_in_the_stated_order(model: Any) -> None:
    nameless = SimpleNamespace(
        task="classification",
        name="m",
        hf_model=SimpleNamespace(config=SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"})),
    )
    example = Example("x", id="1", info={"label": "positive"})

    def target(where: Any, classes: str, labels: dict[str, int] | None = None) -> Any:
        options = {"target": "true", "classes": classes}
        return paper.target_of(SimpleNamespace(model=where, options=options, labels=labels), example)  # type: ignore[arg-type]

    assert target(nameless, "negative,positive") == 1
    assert target(nameless, "positive, negative") == 0
    assert target(nameless, "", {"positive": 1, "negative": 0}) == 1
    with pytest.raises(InputError, match="does not say what they mean"):
        target(nameless, "")
    named = target(model, "")
    assert target(model, "positive,negative") == named  # the names of the model count, not the stated order


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
    many = [Record("a", "m", "x", v, {"layer": 1}) for v in (0.0, 0.0, 0.0)] + [
        Record("b", "m", "x", 4.0, {"layer": 1})
    ]
    (interval,) = paper.per_layer("t", "T", many, ("method",), seed=0).rows[0][1:]
    assert (interval.mean, interval.n) == (1.0, 2)  # four positions, two texts


def test_hta_agrees_with_itself_and_counts_constant_rows(model: Any) -> None:
    made = run("globenc-hta", model=model, data="sentiment", n=1, methods=("hta_layer_x_input", "norm"), progress=False)
    own = [r.value for r in made.records if r.method == "hta_layer_x_input"]
    assert own == pytest.approx([1.0] * len(own))
    assert all(abs(r.value) < 1 for r in made.records if r.method == "norm")
    assert paper.mean_of(np.array([1.0, np.nan, 3.0])) == (2.0, 1)
    value, missing = paper.mean_of(np.array([np.nan]))
    assert (math.isnan(value), missing) == (True, 1)


def test_hta_is_compared_over_the_whole_map_and_row_by_row(model: Any) -> None:
    (example,) = mixlens.runs.experiments.prepare.examples_of("sentiment", n=1, seed=3)
    made = run("globenc-hta", model=model, data=[example], methods=("norm_residual_ln",), progress=False)
    trace = model.trace(example)
    layer = 2
    ours, theirs = (
        mixlens.mix(trace, name).scores[layer - 1].double().numpy()
        for name in ("norm_residual_ln", "hta_layer_x_input")
    )
    entries = [(ours[i, j], theirs[i, j]) for i in range(len(trace)) for j in range(len(trace))]
    whole = np.corrcoef(*zip(*entries, strict=True))[0, 1]
    rows = np.mean([np.corrcoef(ours[i], theirs[i])[0, 1] for i in range(len(trace))])
    found = {r.metric: r.value for r in made.records if r.info["layer"] == layer}
    assert found[globenc_local.WHOLE] == pytest.approx(whole)
    assert found[globenc_local.ROWS] == pytest.approx(rows)
    assert abs(whole - rows) > 1e-3


def test_the_commands_for_w_are_its_product_without_an_identity(model: Any) -> None:
    """Eq. 12 alone for W: `attention` by itself has half an identity in each layer (eq. 13), as W_FIXEDRES has."""
    (example,) = mixlens.runs.experiments.prepare.examples_of("sentiment", n=1, seed=3)
    maps = {name: mixlens.mix(model.trace(example), name) for name in paper.FAMILY[:2]}
    product = torch.eye(maps["attention"].scores.shape[-1], dtype=torch.float64)
    for layer in maps["attention"].scores.double():
        product = layer @ product
    # Rollouts multiply in float32.
    torch.testing.assert_close(maps["attention"].rollout("globenc").scores[-1].double(), product, rtol=1e-4, atol=1e-6)
    fixed = maps["attention_fixed_residual"].rollout().scores
    torch.testing.assert_close(maps["attention"].rollout().scores, fixed, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        paper.rolled(maps["attention"], "rolled out").scores, maps["attention"].rollout("globenc").scores
    )


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
    table, weights = made.tables[:2]
    parts = model.parts[1]
    first, second = (m.weight.detach().double() for m in (parts.norm_after_attention, parts.norm_after_mlp))
    far = [(w - w.mean()).abs() > 2 * w.std(unbiased=False) for w in (first, second)]
    row = table.rows[1]
    assert row[:4] == (2, int(far[0].sum()), int(far[1].sum()), int((far[0] & far[1]).sum()))
    assert row[4] == pytest.approx(float(np.corrcoef(first, second)[0, 1]))
    made = run("globenc-ln-outliers", model=model, data=[Example("x")], sigma=2.0, layer=2, progress=False)
    shown = made.tables[1].rows
    assert [feature for feature, *_ in shown] == sorted(torch.nonzero(far[0] | far[1]).flatten().tolist())
    assert all(a == pytest.approx(float(first[i])) and b == pytest.approx(float(second[i])) for i, a, b in shown)
    assert f"layer {model.n_layers - 1}" in weights.title  # by default the last but one of so few


@pytest.mark.parametrize("name", NAMES)
def test_the_same_records_give_the_same_tables(name: str, model: Any) -> None:
    methods = None if name == "globenc-ln-outliers" else FEW
    made = run(name, model=model, data="sentiment", n=2, methods=methods, progress=False)
    before = list(made.records)
    again = made.setup.experiment.finish(made.setup, made.records)
    assert [table.csv for table in again] == [table.csv for table in made.tables[: len(again)]]
    assert before
    assert [repr(record) for record in made.records] == [
        repr(record) for record in before
    ]  # a NaN equals itself as text


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
    assert mixlens.runs.experiments.running.drawn(made)["svg"].startswith(b"<?xml")


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
        ("globenc-table1", {"data": [Example("good", id="1")]}, "explains the true class, and 1 examples have none"),
        ("globenc-layers", {"confidence": 99}, "between 0 and 1"),
        ("globenc-hta", {"confidence": 0}, "between 0 and 1"),
        ("globenc-table1", {"sigma": 3}, "no option"),
    ],
)
def test_refusals(name: str, given: dict[str, Any], told: str, model: Any) -> None:
    with pytest.raises(InputError, match=told):
        run(name, model=model, **{"data": "sentiment", "n": 1, "progress": False, **given})


# --- claims -------------------------------------------------------------------------------------------------------------

AS_PRINTED = dict(zip(paper.FAMILY, (-0.11, -0.24, 0.19, 0.44, 0.48, 0.73, -0.21, 0.77), strict=True))


def test_claims_of_table1_hold_for_its_own_numbers_and_fail_for_their_reverse() -> None:
    own = [r for method, mean in AS_PRINTED.items() for r in noisy(method, "rolled out", mean)]
    assert words("globenc-table1", own) == [SAME] * 6
    reverse = [r for method, mean in AS_PRINTED.items() for r in noisy(method, "rolled out", -mean)]
    assert words("globenc-table1", reverse) == [DIFFERENT] * 6
    ours = {**AS_PRINTED, "norm": 0.55, "norm_fixed_residual": 0.46}
    records = [r for method, mean in ours.items() for r in noisy(method, "rolled out", mean)]
    assert words("globenc-table1", records) == [SAME, SAME, SAME, DIFFERENT, SAME, SAME]


def layer_records(curves: dict[str, tuple[float, ...]], alone: float) -> list[Record]:
    records = []
    for method, means in curves.items():
        for layer, mean in enumerate(means, 1):
            records += noisy(method, "rolled out", mean, layer=layer) + noisy(method, "alone", alone, layer=layer)
    return records


def test_claims_of_layers_can_go_both_ways() -> None:
    flat = dict.fromkeys(paper.FAMILY, (-0.6, -0.5, -0.4, -0.4))
    curves = {**flat, "attention_residual": (-0.6, -0.5, -0.2, 0.1), "norm": (-0.5, 0.3, 0.4, 0.45)}
    curves |= {"norm_residual": (-0.48, 0.6, 0.7, 0.73), "globenc": (-0.3, 0.74, 0.77, 0.8)}
    assert words("globenc-layers", layer_records(curves, alone=0.0)) == [SAME] * 7
    swapped = {name: tuple(-mean for mean in means) for name, means in curves.items()}
    assert words("globenc-layers", layer_records(swapped, alone=0.5)) == [DIFFERENT] * 7
    assert words("globenc-layers", []) == [INCOMPARABLE] * 7
    late = {**curves, "norm_residual": (-0.48, 0.1, 0.6, 0.73)}  # rises more in its second half
    assert words("globenc-layers", layer_records(late, alone=0.0))[3:5] == [SAME, DIFFERENT]
    dip = {**curves, "attention_residual": (-0.6, -0.5, -0.7, 0.3)}  # rises most, but not in every layer
    assert words("globenc-layers", layer_records(dip, alone=0.0))[3:5] == [DIFFERENT, SAME]


def test_rollout_helps_more_in_deeper_layers_or_not() -> None:
    """The gain of the second half of the layers against that of the first, for each of the three maps."""

    def word(gains: dict[str, tuple[float, ...]]) -> str:
        rolled = {name: tuple(0.3 + gain for gain in of_map) for name, of_map in gains.items()}
        return words("globenc-layers", layer_records(rolled, alone=0.3))[-1]

    deeper = dict.fromkeys(globenc_layers.AGGREGATED, (0.0, 0.1, 0.3, 0.2))
    assert word(deeper) == SAME
    assert word({**deeper, "norm": (0.0, 0.4, 0.1, 0.1)}) == DIFFERENT  # the last layer alone gains more than the first
    assert word(dict.fromkeys(globenc_layers.AGGREGATED, (0.2,))) == INCOMPARABLE  # one layer has no deeper ones


def test_almost_every_layer_is_three_quarters() -> None:
    rivals = dict.fromkeys(paper.FAMILY, (0.0,) * 4)
    for globenc, word in (((1.0, 1, 1, -1), SAME), ((1.0, 1, -1, -1), DIFFERENT), ((1.0, 1, 0.0001, 1), SAME)):
        assert words("globenc-layers", layer_records({**rivals, "globenc": globenc}, alone=0.0))[0] == word
    half = layer_records({**rivals, "globenc": (1.0, 1, 0.0, 0.0001)}, alone=0.0)
    assert words("globenc-layers", half)[0] == UNDECIDED


def test_table2_has_three_layers_and_the_highest() -> None:
    curves = {"norm": (0.1, 0.2, 0.9, 0.4)}
    tables = globenc_layers.finish_layers(setup_of("globenc-layers"), layer_records(curves, alone=0.0))
    rows = {(metric, place): cell.mean for metric, method, place, cell in tables[1].rows if method == "norm"}
    expected = {"first layer": 0.1, "middle layer": 0.2, "last layer": 0.4, "highest of all layers": 0.9}
    assert {place: rows["rolled out", place] for place in expected} == pytest.approx(expected, abs=0.05)
    assert len(globenc_layers.TABLE2.numbers) == 24
    assert tables[0].rows[0][2].confidence == 0.99


def test_claims_of_hta_and_of_the_own_token_can_go_both_ways() -> None:
    for means, word in (((0.8, 0.6, 0.9), SAME), ((0.5, 0.9, 0.4), DIFFERENT)):
        records = [
            r
            for name, mean in zip(globenc_local.LOCAL, means, strict=True)
            for r in noisy(name, globenc_local.WHOLE, mean, layer=1)
        ]
        assert words("globenc-hta", records) == [word] * 2
    for first, last, word in ((0.8, 0.1, SAME), (0.2, 0.4, DIFFERENT)):
        records = [
            r for i, mean in ((1, first), (2, last)) for r in noisy("globenc", globenc_layers.OWN, mean, layer=i)
        ]
        assert words("globenc-own-token", records) == [word] * 2


def test_the_first_few_layers_are_the_first_quarter() -> None:
    """Of 12 layers 1 to 3, each of them; of fewer than 8 the first alone."""

    def word(shares: tuple[float, ...]) -> str:
        records = [r for i, mean in enumerate(shares, 1) for r in noisy("globenc", globenc_layers.OWN, mean, layer=i)]
        return words("globenc-own-token", records)[0]

    assert word((0.9, 0.8, 0.7, *[0.2] * 9)) == SAME
    assert word((0.9, 0.8, 0.3, *[0.2] * 9)) == DIFFERENT
    assert word((0.9, *[0.2] * 4)) == SAME
    assert word((0.9, *[0.2] * 5)) == DIFFERENT  # of 6 layers the first two, as elsewhere
    assert word(()) == INCOMPARABLE


def test_claim_of_the_norms_counts_layers_with_three_outliers_or_more() -> None:
    def outliers(*values: float, features: int = 4) -> list[Record]:
        numbers = [
            {"first norm": features, "second norm": 2, "both": 2, "pearson": 0.1, "pearson at outliers": v}
            for v in values
        ]
        return [Record("-", "-", name, n, {"layer": i}) for i, one in enumerate(numbers, 1) for name, n in one.items()]

    assert words("globenc-ln-outliers", outliers(-0.9, -0.8, -0.9, 0.1)) == [SAME]
    assert words("globenc-ln-outliers", outliers(-0.9, 0.8, 0.9, -0.1)) == [DIFFERENT]
    assert words("globenc-ln-outliers", outliers(-0.9, -0.1, -0.2, -0.7)) == [DIFFERENT]  # negative, but not large
    assert words("globenc-ln-outliers", outliers(1.0, 1.0, features=2)) == [
        INCOMPARABLE
    ]  # two points are always on a line
    assert words("globenc-ln-outliers", []) == [INCOMPARABLE]


def test_the_own_token_is_the_diagonal_of_the_rollout(model: Any) -> None:
    (example,) = mixlens.runs.experiments.prepare.examples_of("sentiment", n=1, seed=3)
    made = run("globenc-own-token", model=model, data=[example], progress=False)
    trace = model.trace(example)
    product = torch.eye(len(trace), dtype=torch.float64)
    for record, layer in zip(made.records, mixlens.mix(trace, "globenc").scores.double(), strict=True):
        product = layer @ product
        assert record.value == pytest.approx(
            float(product[0, 0] / product[0].sum()), rel=1e-5
        )  # the product is in float32 there


def test_the_plan_has_every_table_and_figure_and_its_steps_exist() -> None:
    plan = PLANS.find("globenc")
    wheres = " ".join(item.where for item in plan.items)
    for where in ("Table 1", "Table 2", "Table A.1", "Table A.2", *(f"Figure {i}" for i in range(1, 6))):
        assert where in wheres
    assert all(f"Figure A.{i}" in wheres for i in range(1, 7))
    steps = {step.name: step for step in plan.steps}
    assert {name for item in plan.items for name in item.steps} == set(steps)
    for step in plan.steps:
        assert set(step.models) <= {role.name for role in plan.roles}
        assert set(step.options) <= set(known()[step.experiment].options)
    assert steps["table1-bert-mnli"].split == "validation_mismatched"
    assert any("validation_mismatched" in one for one in known()["globenc-table1"].differs)
    of_every_map = {item.where: item.command for item in plan.items if "one picture for each method" in item.what}
    assert list(of_every_map) == ["Figure A.2", "Figure A.3"]
    for command in of_every_map.values():
        assert command.endswith(f"(then {', '.join(paper.FAMILY[1:])} for --method)")
        assert command.split("--method ")[1].split()[0] == "attention:rollout=globenc"
    assert sum(len(one.numbers) for one in paper.PUBLISHED) == 72
