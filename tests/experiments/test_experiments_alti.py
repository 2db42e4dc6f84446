"""ALTI's experiments: each number against one computed apart."""

# ruff: noqa: F811
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from matplotlib.figure import Figure
from outcomes import cell, setup_of, table, values
from tiny_models import gap_model, gaps, model, texts  # noqa: F401

import mixlens
from mixlens import metrics, types
from mixlens.base import errors
from mixlens.papers.alti import main as alti
from mixlens.papers.alti import shapes
from mixlens.runs.experiments import Table, known, prepare, run

pytest.importorskip("scipy")


def read(trace: Any, method: str = "alti") -> Any:
    return mixlens.mix(trace, method).rollout().readout(trace.query).scores


# --- Table 2 ----------------------------------------------------------------------------------------------------------


def test_table2_is_the_rank_correlation_with_the_reference(model: Any, texts: list[Any]) -> None:
    made = run("alti-table2", model=model, data=texts, methods=["alti", "grad_l2"], progress=False)
    traces = [model.trace(example) for example in texts]
    gradients = [mixlens.attribute(trace, "grad_l2").scores for trace in traces]
    pairs = list(zip(traces, gradients, strict=True))
    expected = [metrics.agreement.spearman(read(trace), gradient) for trace, gradient in pairs]
    assert values(made, "alti", "spearman") == expected
    assert values(made, "grad_l2", "spearman") == pytest.approx([1.0] * 3)
    assert cell(made.tables[0], "alti", "spearman").mean == pytest.approx(np.mean(expected))
    assert cell(made.tables[0], "alti", "std") == pytest.approx(np.std(expected))
    asked: dict[str, Any] = {"model": model, "data": texts[:1], "methods": ["alti"], "progress": False}
    assert "blank_out" in run("alti-table2", reference="blank_out", **asked).tables[0].title
    kept = [i for i, special in enumerate(traces[0].special) if not special]
    bare = metrics.agreement.spearman(read(traces[0])[kept], gradients[0][kept])
    assert values(run("alti-table2", keep_special=False, **asked), "alti", "spearman") == [bare]


def changes_of_probability(model: Any, example: Any) -> Any:
    """|p(verb) - p(verb, token j masked)| in the softmax over all words, token by token, by the stock model."""
    mask, ids = model.tokenizer.mask_token_id, list(model.encode(example).input_ids)
    place, verb = ids.index(mask), model.tokenizer.convert_tokens_to_ids(example.target)
    rows = [ids, *([*ids[:j], mask, *ids[j + 1 :]] for j in range(len(ids)))]
    with torch.no_grad():
        logits = [model.hf_model(input_ids=torch.tensor([row])).logits[0, place] for row in rows]
    whole, *others = (float(one.softmax(-1)[verb]) for one in logits)
    return np.array([abs(whole - one) for one in others])


def test_agreement_half_of_table2_is_the_change_of_the_verbs_probability(gap_model: Any, gaps: list[Any]) -> None:
    swapped = [replace(one, target=one.foil, foil=one.target) for one in gaps]  # a verb that is not predicted
    made = run("alti-table2-sva", model=gap_model, data=swapped, methods=["alti"], progress=False)
    (example, *_) = prepare.fitting(swapped, known()["alti-table2-sva"], [gap_model], None)
    changes = changes_of_probability(gap_model, example)
    # One row is multiplied through the layers here, all rows there, in float32: ranks are the same, sums are not.
    expected = metrics.agreement.spearman(read(gap_model.trace(example)), changes)
    assert values(made, "alti", "spearman")[0] == pytest.approx(expected, abs=1e-6)
    shares = changes / changes.sum()
    for metric, share in (
        (alti.LAST, shares[-1]),
        (alti.IGNORED, np.mean(shares < 0.1 / len(shares))),
        (alti.EVEN, 1 / len(shares)),
    ):
        assert values(made, alti.BLANK_OUT, metric)[0] == pytest.approx(share, rel=1e-3)
    with pytest.raises(errors.InputError, match="'target'"):
        run("alti-table2-sva", model=gap_model, data=[types.Example("the keys [MASK] rusty .")], progress=False)


@pytest.mark.parametrize("name", [alti.NORM.partition(":")[0]])
def test_norm_rollout_is_the_product_of_rows_to_one(name: str, model: Any, texts: list[Any]) -> None:
    maps = mixlens.mix(model.trace(texts[0]), name)
    product = torch.eye(maps.scores.shape[-1], dtype=torch.float64)
    for layer in maps.scores.double():
        product = (layer / layer.sum(-1, keepdim=True)) @ product
    # The rollout multiplies in float32.
    torch.testing.assert_close(maps.rollout("alti").scores[-1].double(), product, rtol=1e-4, atol=1e-6)


# --- Figures 3, 6, 8 to 10 --------------------------------------------------------------------------------------------


def test_special_tokens_are_ranked_and_the_authors_numbers_stand_beside_theirs(model: Any, texts: list[Any]) -> None:
    made = run("alti-special-tokens", model=model, data=texts, progress=False)
    for method, scores in (
        ("alti", [mixlens.mix(model.trace(t), "alti").rollout().readout("[CLS]") for t in texts]),
        (alti.RELEASED, [mixlens.attribute(model.trace(t), "grad_l2", variant="released") for t in texts]),
    ):
        ranks = [metrics.agreement.special_token_ranks(one) for one in scores]
        assert cell(made.tables[0], method, "[CLS]").mean == pytest.approx(np.mean([one["[CLS]"] for one in ranks]))
        every = [rank for one in ranks for rank in one.values()]
        assert cell(made.tables[0], method, alti.ALL).mean == pytest.approx(np.mean(every))
        assert set(made.tables[0].columns[2:]) == {token for one in ranks for token in one}
    (beside,) = [one for one in made.tables if one.name.startswith("paper-ranks")]
    printed = dict(zip(beside.column("method"), (row[2] for row in beside.rows), strict=True))
    assert (printed[alti.RELEASED], printed[alti.GRADIENT]) == ("0.525", "")


def test_every_bar_of_figure_6_stands_beside_the_name_of_its_method() -> None:
    """Panels share the labels of their rows; a method without the token has no bar."""
    rows = (("alti", 0.2, 0.9, None), ("grad_l2", 0.6, 0.1, 0.5), ("attention_rollout", 0.4, 0.5, 0.7))
    page, draw = Figure(), known()["alti-special-tokens"].figure
    assert draw is not None
    draw(setup_of("alti-table2"), [Table("ranks", "", ("method", "all of these", "[CLS]", ","), rows)], page)
    page.draw_without_rendering()
    labels = [text.get_text() for text in page.axes[0].get_yticklabels()]
    for column, axes in enumerate(page.axes, 1):
        drawn = {labels[round(bar.get_y() + bar.get_height() / 2)]: bar.get_width() for bar in axes.patches}
        for row in rows:
            assert np.isnan(drawn[row[0]]) if row[column] is None else drawn[row[0]] == row[column]


def test_anisotropy_has_every_layer(model: Any, texts: list[Any]) -> None:
    measures = {
        shapes.BLOCK: metrics.geometry.block_anisotropy,
        shapes.LAYER: metrics.geometry.anisotropy,
        shapes.TRANSFORMED: metrics.geometry.transformed_anisotropy,
    }
    made = {
        name: run("alti-anisotropy", model=model, data=texts, outputs=name, progress=False)
        for name in ("block", "both")
    }
    for outputs, outcome in made.items():
        for name, measure in measures.items():
            expected = np.mean([measure(model.trace(example)) for example in texts], axis=0)
            curve = [(layer, one.mean) for vectors, layer, one in outcome.tables[0].rows if vectors == name]
            first = 0 if name == shapes.LAYER else 1
            shown = list(enumerate(expected, first)) if outputs == "both" or name != shapes.LAYER else []
            np.testing.assert_allclose(curve, shown or np.zeros((0,)), rtol=1e-6)
    with pytest.raises(errors.InputError, match="unknown outputs"):
        run("alti-anisotropy", model=model, data=texts, outputs="stream", progress=False)


def test_relevance_matrices_row_by_row(model: Any, texts: list[Any]) -> None:
    made = run("alti-relevance-matrices", model=model, data=texts[:1], methods=[shapes.ATTENTION], progress=False)
    trace = model.trace(texts[0])
    identity = torch.eye(len(trace), dtype=torch.float64)
    relevance = identity
    for number, layer in enumerate(trace.layers, 1):
        relevance = (0.5 * layer.attention.mean(0).double() + 0.5 * identity) @ relevance  # eq. 8
        apart = np.mean([float((row - relevance.mean(0)).abs().sum()) / 2 for row in relevance])
        special = np.mean([sum(float(row[j]) for j in range(len(trace)) if trace.special[j]) for row in relevance])
        for metric, expected in ((shapes.DISTANCE, apart), (shapes.SPECIAL, special)):
            found = values(made, shapes.ATTENTION, metric, layer=number)
            assert found == [pytest.approx(expected, abs=1e-5)]  # attention is in float32


# --- Figure 7 ---------------------------------------------------------------------------------------------------------


def test_consistency_of_a_model_with_itself_is_one_and_less_with_another(model: Any, texts: list[Any]) -> None:
    config = model.hf_model.config
    other = transformers.AutoModelForSequenceClassification.from_config(config)
    generator = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(one.shape, generator=generator) * 0.02 for name, one in other.named_parameters()}
    state = {name: one + noise.get(name, 0) for name, one in model.hf_model.state_dict().items()}
    other.load_state_dict(state)
    models = [model, mixlens.load("sentiment"), mixlens.load(other.eval(), tokenizer=model.tokenizer)]
    made = run("alti-consistency", model=models, data=texts, methods=["alti"], progress=False)
    assert values(made, "alti", "spearman", pair="0-1") == pytest.approx([1.0] * 3)
    assert max(values(made, "alti", "spearman", pair="0-2")) < 1
    assert len(table(made, "pairs").rows) == 3
    different = [r for r in made.records if not r.info["alike"]]
    assert cell(made.tables[0], "alti", "predicted differently") == len(different)


def test_consistency_counts_only_what_both_predict_alike(model: Any) -> None:
    finish, setup = known()["alti-consistency"].finish, setup_of("alti-consistency", models=(model, model))
    records = [
        types.Record(str(i), "alti", "spearman", value, {"pair": "0-1", "alike": alike})
        for i, (value, alike) in enumerate(((0.5, True), (-1.0, False)))
    ]
    assert finish(setup, records)[0].rows[0][1].mean == 0.5
    with pytest.raises(errors.InputError, match="nothing to compare"):
        finish(setup, records[1:])


def test_models_with_other_tokens_are_not_compared(model: Any, gap_model: Any, texts: list[Any]) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(gap_model.tokenizer), **sizes)
    stranger = mixlens.load(transformers.BertForSequenceClassification(config).eval(), tokenizer=gap_model.tokenizer)
    with pytest.raises(errors.InputError, match="as different tokens"):
        run("alti-consistency", model=[model, stranger], data=texts, methods=["alti"], progress=False)
