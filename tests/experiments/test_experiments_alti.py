"""ALTI's experiments: each number against one computed apart, verdicts in both directions, the plan names every item."""

from __future__ import annotations

import sys
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from outcomes import cell, values

import mixlens
from mixlens import data
from mixlens.base.errors import InputError
from mixlens.cli import main
from mixlens.metrics.agreement import spearman, special_token_ranks
from mixlens.metrics.geometry import anisotropy, block_anisotropy, transformed_anisotropy
from mixlens.papers.alti import consistency as alti_consistency
from mixlens.papers.alti import main as alti
from mixlens.papers.alti import shapes as alti_shapes
from mixlens.runs.experiments import Setup, known, run, running
from mixlens.runs.experiments.claims import DIFFERENT, INCOMPARABLE, SAME, UNDECIDED, Measured
from mixlens.runs.experiments.plan import PLANS
from mixlens.runs.experiments.prepare import fitting
from mixlens.types import Example, Record

pytest.importorskip("scipy")
NAMES = ("alti-table2", "alti-table2-sva", "alti-special-tokens", "alti-anisotropy", "alti-relevance-matrices")


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def texts() -> list[Example]:
    return list(data.load("sentiment", n=3))


@pytest.fixture(scope="module")
def gaps() -> list[Example]:
    return list(data.load("agreement", n=3))


def words(name: str, records: list[Record], **options: Any) -> list[str]:
    """The verdict on each claim of an experiment, from records."""
    declared = known()[name]
    setup = SimpleNamespace(seed=0, options={**declared.options, **options})
    return [claim.check(setup, records, []).word for claim in declared.claims]


def noisy(method: str, metric: str, mean: float, *, spread: float = 0.05, n: int = 60, **info: Any) -> list[Record]:
    """Records of n examples about a mean."""
    seed = zlib.crc32(f"{method} {metric} {mean} {info}".encode())
    draws = np.random.default_rng(seed).normal(mean, spread, n)
    return [Record(str(i), method, metric, float(value), info) for i, value in enumerate(draws)]


# --- Table 2 ----------------------------------------------------------------------------------------------------------


def test_table2_is_the_rank_correlation_with_the_reference(model: Any, texts: list[Example]) -> None:
    made = run("alti-table2", model=model, data=texts, methods=["alti", "grad_l2"], progress=False)
    traces = [model.trace(example) for example in texts]
    expected = [
        spearman(mixlens.mix(t, "alti").rollout().readout(t.query).scores, mixlens.attribute(t, "grad_l2").scores)
        for t in traces
    ]
    assert values(made, "alti", "spearman") == expected
    assert values(made, "grad_l2", "spearman") == pytest.approx([1.0] * 3)
    assert cell(made.tables[0], "alti", "spearman").mean == pytest.approx(np.mean(expected))
    assert cell(made.tables[0], "alti", "std") == pytest.approx(np.std(expected))
    blank = run("alti-table2", model=model, data=texts[:1], methods=["alti"], reference="blank_out", progress=False)
    assert "blank_out" in blank.tables[0].title
    bare = run("alti-table2", model=model, data=texts[:1], methods=["alti"], keep_special=False, progress=False)
    kept = [i for i, special in enumerate(traces[0].special) if not special]
    scores = mixlens.mix(traces[0], "alti").rollout().readout(traces[0].query).scores
    assert values(bare, "alti", "spearman") == [
        spearman(scores[kept], mixlens.attribute(traces[0], "grad_l2").scores[kept])
    ]


def changes_of_probability(model: Any, example: Example) -> list[float]:
    """|p(verb) - p(verb, token j masked)| in the softmax over all words, token by token, by the stock model."""
    encoded = model.encode(example)
    ids, place = list(encoded.input_ids), list(encoded.input_ids).index(model.tokenizer.mask_token_id)
    verb = model.tokenizer.convert_tokens_to_ids(example.target)

    def probability(changed: list[int]) -> float:
        with torch.no_grad():
            logits = model.hf_model(input_ids=torch.tensor([changed])).logits
        return float(logits[0, place].softmax(-1)[verb])

    whole = probability(ids)
    return [abs(whole - probability([*ids[:j], model.tokenizer.mask_token_id, *ids[j + 1 :]])) for j in range(len(ids))]


def test_agreement_half_of_table2_is_the_change_of_the_verbs_probability(gap_model: Any, gaps: list[Example]) -> None:
    swapped = [
        replace(example, target=example.foil, foil=example.target) for example in gaps
    ]  # a verb that is not predicted
    made = run("alti-table2-sva", model=gap_model, data=swapped, methods=["alti"], progress=False)
    (example, *_) = fitting(swapped, known()["alti-table2-sva"], [gap_model], None)
    changes = np.array(changes_of_probability(gap_model, example))
    trace = gap_model.trace(example)
    scores = mixlens.mix(trace, "alti").rollout().readout("[MASK]").scores
    # One row is multiplied through the layers here, all rows there, in float32: ranks are the same, sums are not.
    assert values(made, "alti", "spearman")[0] == pytest.approx(spearman(scores, changes), abs=1e-6)
    shares = changes / changes.sum()
    assert values(made, alti.BLANK_OUT, alti.LAST)[0] == pytest.approx(shares[-1], rel=1e-3)
    assert values(made, alti.BLANK_OUT, alti.IGNORED)[0] == pytest.approx(np.mean(shares < 0.1 / len(shares)))
    assert values(made, alti.BLANK_OUT, alti.EVEN)[0] == pytest.approx(1 / len(trace))
    assert [table.name for table in made.tables][:2] == ["correlations", "reference"]


def test_agreement_half_needs_a_verb(gap_model: Any) -> None:
    with pytest.raises(InputError, match="'target'"):
        run("alti-table2-sva", model=gap_model, data=[Example("the keys [MASK] rusty .", id="1")], progress=False)


def test_claims_of_table2_can_go_both_ways() -> None:
    wide, narrow = {"spread": 0.3}, {"spread": 0.1}
    low = noisy(alti.ATTENTION, "spearman", 0.0, **wide) + noisy(alti.NORM, "spearman", 0.3, **wide)
    assert words("alti-table2", low + noisy(alti.ALTI, "spearman", 0.6, **narrow)) == [SAME, SAME]
    steady = noisy(alti.ATTENTION, "spearman", 0.0, **narrow) + noisy(alti.NORM, "spearman", 0.9, **narrow)
    assert words("alti-table2", steady + noisy(alti.ALTI, "spearman", 0.6, **wide)) == [DIFFERENT, DIFFERENT]
    assert words("alti-table2", low) == [INCOMPARABLE] * 2


def run_of(layers: int, level: float) -> Any:
    """A run of a model of so many layers, in which every method has this correlation."""
    records = [record for method in alti.METHODS for record in noisy(method, "spearman", level)]
    return Measured(SimpleNamespace(model=SimpleNamespace(n_layers=layers), seed=0), records, [])


def test_claims_about_two_runs_of_table2_can_go_both_ways() -> None:
    high, low = run_of(6, 0.5), run_of(12, 0.2)
    assert alti.rollout_needs_few_layers([high, low]).word == SAME
    assert alti.rollout_needs_few_layers([run_of(6, 0.2), run_of(12, 0.5)]).word == DIFFERENT
    assert alti.rollout_needs_few_layers([high, run_of(6, 0.2)]).word == INCOMPARABLE  # the paper's reason is the depth
    assert [alti.lower_in_the_second(runs).word for runs in ([high, low], [low, high])] == [SAME, DIFFERENT]


def test_claims_of_the_agreement_half_can_go_both_ways() -> None:
    rollouts = noisy(alti.ATTENTION, "spearman", 0.0) + noisy(alti.NORM, "spearman", 0.3)
    even = noisy(alti.BLANK_OUT, alti.EVEN, 0.05, spread=0.001)
    same = noisy(alti.BLANK_OUT, alti.LAST, 0.3) + noisy(alti.BLANK_OUT, alti.IGNORED, 0.8)
    other = noisy(alti.BLANK_OUT, alti.LAST, 0.01, spread=0.001) + noisy(alti.BLANK_OUT, alti.IGNORED, 0.2)
    assert words("alti-table2-sva", rollouts + noisy(alti.ALTI, "spearman", 0.5) + even + same) == [SAME] * 3
    assert words("alti-table2-sva", rollouts + noisy(alti.ALTI, "spearman", 0.1) + even + other) == [DIFFERENT] * 3


# --- Figure 6 ---------------------------------------------------------------------------------------------------------


def test_special_tokens_are_ranked(model: Any, texts: list[Example]) -> None:
    made = run("alti-special-tokens", model=model, data=texts, methods=["alti"], progress=False)
    traces = [model.trace(example) for example in texts]
    ranks = [special_token_ranks(mixlens.mix(t, "alti").rollout().readout(t.query)) for t in traces]
    assert cell(made.tables[0], "alti", "[CLS]").mean == pytest.approx(np.mean([one["[CLS]"] for one in ranks]))
    assert set(made.tables[0].columns[2:]) == {token for one in ranks for token in one}
    every = [rank for one in ranks for rank in one.values()]
    assert cell(made.tables[0], "alti", alti.ALL).mean == pytest.approx(np.mean(every))


def special_records(gradient: float, released: float) -> list[Record]:
    means = {alti.ATTENTION: 0.9, alti.NORM: 0.8, alti.GRADIENT: gradient, alti.RELEASED: released, alti.ALTI: 0.3}
    tokens = ("[CLS]", "[SEP]", ",", ".")
    return [
        record
        for method, mean in means.items()
        for token in tokens
        for record in noisy(method, "rank", mean, token=token)
    ]


def test_claims_of_figure6_hold_for_rollouts_and_gradients_or_not_at_all() -> None:
    """Each form of grad_l2 is judged by itself: one may hold where the other does not."""
    assert words("alti-special-tokens", special_records(0.5, 0.5)) == [SAME, SAME]
    assert words("alti-special-tokens", special_records(0.1, 0.5)) == [
        DIFFERENT,
        SAME,
    ]  # the rollouts alone do not make it true
    assert words("alti-special-tokens", special_records(0.5, 0.1)) == [SAME, DIFFERENT]
    roberta = [
        Record(
            r.example, r.method, r.metric, r.value, {"token": {"[CLS]": "<s>"}.get(r.info["token"], r.info["token"])}
        )
        for r in special_records(0.5, 0.5)
    ]
    assert words("alti-special-tokens", roberta) == [SAME, SAME]


def test_figure6_has_both_forms_of_grad_l2_and_the_authors_numbers_beside_theirs(
    model: Any, texts: list[Example]
) -> None:
    made = run("alti-special-tokens", model=model, data=texts[:2], progress=False)
    released = [mixlens.attribute(model.trace(t), "grad_l2", variant="released") for t in texts[:2]]
    every = [rank for scores in released for rank in special_token_ranks(scores).values()]
    assert cell(made.tables[0], alti.RELEASED, alti.ALL).mean == pytest.approx(np.mean(every))
    (beside,) = [table for table in made.tables if table.name.startswith("paper-ranks")]
    printed = dict(zip(beside.column("method"), (row[2] for row in beside.rows), strict=True))
    assert (printed[alti.RELEASED], printed[alti.GRADIENT]) == ("0.525", "")


@pytest.mark.parametrize("name", ["alti-table2", "alti-special-tokens", "alti-consistency"])
def test_where_grad_l2_is_taken_is_said_wherever_it_is_compared_with(name: str) -> None:
    declared = known()[name]
    assert alti.GRADIENT in (*declared.methods, declared.options.get("reference"))
    assert {alti.LOGIT, alti.PLACE} <= set(declared.differs)


@pytest.mark.parametrize("name", ["alti-table2", "alti-table2-sva", "alti-special-tokens", "alti-relevance-matrices"])
def test_how_norm_rollout_joins_layers_is_said_and_done(name: str, model: Any, texts: list[Example]) -> None:
    assert alti.NORM_ROLLOUT in known()[name].differs
    assert alti.NORM in known()[name].methods
    maps = mixlens.mix(model.trace(texts[0]), alti.NORM.partition(":")[0])
    product = torch.eye(maps.scores.shape[-1], dtype=torch.float64)
    for layer in maps.scores.double():
        product = (layer / layer.sum(-1, keepdim=True)) @ product
    # The rollout multiplies in float32.
    torch.testing.assert_close(maps.rollout("alti").scores[-1].double(), product, rtol=1e-4, atol=1e-6)


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "names"), [("block", (alti_shapes.BLOCK,)), ("both", (alti_shapes.BLOCK, alti_shapes.LAYER))]
)
def test_anisotropy_has_every_layer(outputs: str, names: tuple[str, ...], model: Any, texts: list[Example]) -> None:
    made = run("alti-anisotropy", model=model, data=texts, outputs=outputs, progress=False)
    measures = {
        alti_shapes.BLOCK: block_anisotropy,
        alti_shapes.LAYER: anisotropy,
        alti_shapes.TRANSFORMED: transformed_anisotropy,
    }
    curves = {name: [c.mean for vectors, _, c in made.tables[0].rows if vectors == name] for name in measures}
    for name, measure in measures.items():
        expected = np.mean([measure(model.trace(example)) for example in texts], axis=0).tolist()
        assert curves[name] == (pytest.approx(expected) if name in (*names, alti_shapes.TRANSFORMED) else [])
    layers = [layer for name, layer, _ in made.tables[0].rows if name == alti_shapes.TRANSFORMED]
    assert layers == list(range(1, model.n_layers + 1))
    with pytest.raises(InputError, match="unknown outputs"):
        run("alti-anisotropy", model=model, data=texts, outputs="stream", progress=False)


def shape_records(block: float, first: float, last: float) -> list[Record]:
    records = [r for layer in (1, 2) for r in noisy(alti_shapes.BLOCK, "cosine", block, layer=layer, spread=0.02)]
    for layer, mean in ((1, first), (2, last)):
        records += noisy(alti_shapes.TRANSFORMED, "cosine", mean, layer=layer, spread=0.02)
    return records


def test_claims_of_figure3_can_go_both_ways() -> None:
    assert words("alti-anisotropy", shape_records(0.8, 0.04, 0.3)) == [SAME] * 4
    assert words("alti-anisotropy", shape_records(0.1, 0.5, 0.2)) == [DIFFERENT] * 4
    assert words("alti-anisotropy", shape_records(0.3, 0.04, 0.2)) == [SAME, DIFFERENT, SAME, SAME]
    assert words("alti-anisotropy", []) == [INCOMPARABLE] * 4


# --- Figures 8 to 10 --------------------------------------------------------------------------------------------------


def test_relevance_matrices_row_by_row(model: Any, texts: list[Example]) -> None:
    made = run("alti-relevance-matrices", model=model, data=texts[:1], methods=[alti_shapes.ATTENTION], progress=False)
    trace = model.trace(texts[0])
    attention = [layer.attention.mean(0).double() for layer in trace.layers]
    relevance = torch.eye(len(trace), dtype=torch.float64)
    for number, weights in enumerate(attention, 1):
        relevance = (0.5 * weights + 0.5 * torch.eye(len(trace), dtype=torch.float64)) @ relevance  # eq. 8
        mean = relevance.mean(0)
        apart = np.mean([float((row - mean).abs().sum()) / 2 for row in relevance])
        special = np.mean([sum(float(row[j]) for j in range(len(trace)) if trace.special[j]) for row in relevance])
        # Attention is in float32.
        assert values(made, alti_shapes.ATTENTION, alti_shapes.DISTANCE, layer=number) == [
            pytest.approx(apart, abs=1e-5)
        ]
        assert values(made, alti_shapes.ATTENTION, alti_shapes.SPECIAL, layer=number) == [
            pytest.approx(special, abs=1e-5)
        ]


def matrix_records(first: float, last: float, other: float, special: float) -> list[Record]:
    records = noisy(alti_shapes.ATTENTION, alti_shapes.DISTANCE, first, layer=1)
    records += noisy(alti_shapes.ATTENTION, alti_shapes.DISTANCE, last, layer=2)
    records += noisy(alti.ALTI, alti_shapes.DISTANCE, other, layer=2)
    records += noisy(alti_shapes.ATTENTION, alti_shapes.SPECIAL, special, layer=2)
    return records + noisy(alti.ALTI, alti_shapes.SPECIAL, 0.3, layer=2)


def test_claims_of_figure8_can_go_both_ways() -> None:
    assert words("alti-relevance-matrices", matrix_records(0.9, 0.1, 0.5, 0.8)) == [SAME] * 3
    assert words("alti-relevance-matrices", matrix_records(0.2, 0.9, 0.5, 0.1)) == [DIFFERENT] * 3
    assert words("alti-relevance-matrices", []) == [INCOMPARABLE] * 3


def matrix_run(layers: int, first: float, last: float) -> Any:
    """A run of a model of so many layers, with the distance of rows in its first layer and in its last."""
    records = noisy(alti_shapes.ATTENTION, alti_shapes.DISTANCE, first, layer=1)
    records += noisy(alti_shapes.ATTENTION, alti_shapes.DISTANCE, last, layer=layers)
    records += noisy(alti.ALTI, alti_shapes.DISTANCE, 0.5, layer=layers)
    return Measured(SimpleNamespace(model=SimpleNamespace(n_layers=layers), seed=0), records, [])


def test_rows_converge_in_bigger_models_or_not() -> None:
    """The last layer of each model counts, and the model with fewer layers comes first."""
    check = alti_shapes.rows_converge_in_bigger_models
    assert check([matrix_run(6, 0.1, 0.6), matrix_run(12, 0.9, 0.2)]).word == SAME
    assert check([matrix_run(6, 0.9, 0.2), matrix_run(12, 0.1, 0.6)]).word == DIFFERENT
    same_depth = check([matrix_run(6, 0.1, 0.6), matrix_run(6, 0.9, 0.2)])
    assert (same_depth.word, same_depth.reason) == (INCOMPARABLE, "the first model has 6 layers, the second 6")


# --- Figure 7 ---------------------------------------------------------------------------------------------------------


def other_seed(model: Any, scale: float = 0.02) -> Any:
    """The same model with a little noise on its weights."""
    hf = transformers.AutoModelForSequenceClassification.from_config(model.hf_model.config)
    hf.load_state_dict(model.hf_model.state_dict())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in hf.parameters():
            weights.add_(torch.randn(weights.shape, generator=generator) * scale)
    return mixlens.load(hf.eval(), tokenizer=model.tokenizer)


def test_consistency_of_a_model_with_itself_is_one_and_less_with_another(model: Any, texts: list[Example]) -> None:
    models = [model, mixlens.load("sentiment"), other_seed(model)]
    made = run("alti-consistency", model=models, data=texts, methods=["alti"], progress=False)
    assert values(made, "alti", "spearman", pair="0-1") == pytest.approx([1.0] * 3)
    assert max(values(made, "alti", "spearman", pair="0-2")) < 1
    assert len(made.tables[1].rows) == 3
    different = [r for r in made.records if not r.info["alike"]]
    assert cell(made.tables[0], "alti", "predicted differently") == len(different)


def test_consistency_counts_only_what_both_predict_alike(model: Any, texts: list[Example]) -> None:
    used = known()["alti-consistency"]
    setup = Setup(used, (model, model), tuple(texts), ("alti",), {})
    records = [
        Record("1", "alti", "spearman", 0.5, {"pair": "0-1", "alike": True}),
        Record("2", "alti", "spearman", -1.0, {"pair": "0-1", "alike": False}),
    ]
    assert used.finish(setup, records)[0].rows[0][1].mean == 0.5
    with pytest.raises(InputError, match="nothing to compare"):
        used.finish(setup, records[1:])


def test_models_with_other_tokens_are_not_compared(model: Any, gap_model: Any, texts: list[Example]) -> None:
    config = transformers.BertConfig(
        vocab_size=len(gap_model.tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    stranger = mixlens.load(transformers.BertForSequenceClassification(config).eval(), tokenizer=gap_model.tokenizer)
    with pytest.raises(InputError, match="as different tokens"):
        run("alti-consistency", model=[model, stranger], data=texts, methods=["alti"], progress=False)


def consistency_records(means: dict[str, float]) -> list[Record]:
    alike = [r for method, mean in means.items() for r in noisy(method, "spearman", mean, alike=True)]
    unlike = [
        Record(f"x{i}", m, "spearman", -5 * mean, {"alike": False}) for m, mean in means.items() for i in range(90)
    ]
    return alike + unlike


def test_claims_of_figure7_can_go_both_ways() -> None:
    order = alti_consistency.METHODS
    falling = dict(zip(order, (0.9, 0.7, 0.5, 0.3), strict=True))
    assert words("alti-consistency", consistency_records(falling)) == [SAME, SAME]
    rising = dict(zip(order, (0.3, 0.5, 0.7, 0.9), strict=True))
    assert words("alti-consistency", consistency_records(rising)) == [DIFFERENT, DIFFERENT]
    level = dict(zip(order, (0.700001, 0.7, 0.2, 0.3), strict=True))
    assert words("alti-consistency", consistency_records(level)) == [UNDECIDED, SAME]


def test_figure7_runs_from_the_command_line_with_two_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = "alti,integrated_gradients:absolute=true:steps=3:rule=riemann_right:baseline=mask"
    models = ["--model", "sentiment", "--model", "sentiment"]
    monkeypatch.setattr(
        sys, "argv", ["mixlens", "experiment", "alti-consistency", *models, "--n", "2", "--methods", few]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "Agreement of models on examples that both predict alike" in capsys.readouterr().out


# --- every experiment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_figures_come_from_records_alone(
    name: str, model: Any, gap_model: Any, texts: list[Example], gaps: list[Example]
) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    used = known()[name]
    at_gap = used.model == "agreement"
    asked: dict[str, Any] = {"model": gap_model if at_gap else model, "data": (gaps if at_gap else texts)[:2]}
    made = run(name, progress=False, **asked)
    before = [repr(record) for record in made.records]
    again = used.finish(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables[: len(again)]]
    assert [repr(record) for record in made.records] == before
    pytest.importorskip("matplotlib")
    assert running.drawn(made)["svg"] == running.drawn(made)["svg"]


def test_the_plan_has_every_table_and_figure_and_its_steps_exist() -> None:
    plan = PLANS.find("alti")
    wheres = " ".join(item.where for item in plan.items)
    for number in range(1, 11):
        assert f"Figure {number}" in wheres
    for number in range(1, 10):
        assert f"Table {number}" in wheres
    steps = {step.name: step for step in plan.steps}
    roles = {role.name for role in plan.roles}
    assert {name for item in plan.items for name in item.steps} == set(steps)
    for step in plan.steps:
        assert set(step.models) <= roles
        assert set(step.options) <= set(known()[step.experiment].options)
        assert step.n == 500
    (compared,) = [item for item in plan.items if "DistilBERT alone" in item.what]
    assert set(compared.steps) == {
        step for one in plan.comparisons if one.where == "Table 2, section 5" for step in one.steps
    }
    of_roberta = [item for item in plan.items if "RoBERTa" in item.what and "[MASK]" in item.command]
    assert [item.where for item in of_roberta] == ["Table 8", "Table 9"]
    assert all("`<mask>`" in item.what for item in of_roberta)


def test_every_bar_of_figure_6_stands_beside_the_name_of_its_method() -> None:
    """Panels share the labels of their rows; a method without the token has no bar."""
    from matplotlib.figure import Figure

    from mixlens.runs.experiments.tables import Table

    rows = (("alti", 0.2, 0.9, None), ("grad_l2", 0.6, 0.1, 0.5), ("attention_rollout", 0.4, 0.5, 0.7))
    table = Table("ranks", "", ("method", "all of these", "[CLS]", ","), rows)
    page = Figure()
    known()["alti-special-tokens"].figure(None, [table], page)  # type: ignore[arg-type,misc]
    page.draw_without_rendering()
    labels = [text.get_text() for text in page.axes[0].get_yticklabels()]
    for column, axes in enumerate(page.axes, 1):
        drawn = {labels[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width() for bar in axes.patches}
        for row in rows:
            assert np.isnan(drawn[row[0]]) if row[column] is None else drawn[row[0]] == row[column]
