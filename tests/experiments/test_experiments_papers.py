"""Each paper's experiments on tiny cases: the numbers are those of the metrics, written out; extremes are what they must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mixlens
from mixlens import data
from mixlens.errors import InputError
from mixlens.experiments import Table, core, known, run
from mixlens.metrics import Interval
from mixlens.metrics.agreement import kendall, spearman, special_token_ranks
from mixlens.metrics.faithfulness import aopc, lodds
from mixlens.metrics.geometry import anisotropy
from mixlens.types import Example, Record


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


def values(outcome: Any, method: str, metric: str, **info: Any) -> list[float]:
    return [
        r.value
        for r in outcome.records
        if (r.method, r.metric) == (method, metric) and all(r.info[key] == value for key, value in info.items())
    ]


def cell(table: Table, method: str, column: str) -> Any:
    return table.rows[table.column("method").index(method)][table.columns.index(column)]


# --- ALTI -------------------------------------------------------------------------------------------------------------


def test_alti_table2_is_the_rank_correlation_with_the_reference(model: Any, texts: list[Example]) -> None:
    made = run("alti-table2", model=model, data=texts, methods=["alti", "grad_l2"], progress=False)
    traces = [model.trace(example) for example in texts]
    expected = [
        spearman(mixlens.mix(t, "alti").rollout().readout(t.query).scores, mixlens.attribute(t, "grad_l2").scores) for t in traces
    ]
    assert values(made, "alti", "spearman") == expected
    assert values(made, "grad_l2", "spearman") == pytest.approx([1.0] * 3)
    assert cell(made.tables[0], "alti", "spearman").mean == pytest.approx(np.mean(expected))
    assert cell(made.tables[0], "alti", "std") == pytest.approx(np.std(expected))
    blank = run("alti-table2", model=model, data=texts[:1], methods=["alti"], reference="blank_out", progress=False)
    assert "blank_out" in blank.tables[0].title
    bare = run("alti-table2", model=model, data=texts[:1], methods=["alti"], keep_special=False, progress=False)
    kept = [i for i, special in enumerate(traces[0].special) if not special]
    alti = mixlens.mix(traces[0], "alti").rollout().readout(traces[0].query).scores
    assert values(bare, "alti", "spearman") == [spearman(alti[kept], mixlens.attribute(traces[0], "grad_l2").scores[kept])]


def test_alti_anisotropy_has_every_layer(model: Any, texts: list[Example]) -> None:
    made = run("alti-anisotropy", model=model, data=texts, progress=False)
    expected = np.mean([anisotropy(model.trace(example)) for example in texts], axis=0)
    found = [c.mean for name, _, c in made.tables[0].rows if name == "representations"]
    assert found == pytest.approx(expected.tolist())
    layers = [layer for name, layer, _ in made.tables[0].rows if name == "transformed vectors"]
    assert layers == list(range(1, model.n_layers + 1))


def test_alti_special_tokens_are_ranked(model: Any, texts: list[Example]) -> None:
    made = run("alti-special-tokens", model=model, data=texts, methods=["alti"], progress=False)
    traces = [model.trace(example) for example in texts]
    ranks = [special_token_ranks(mixlens.mix(t, "alti").rollout().readout(t.query)) for t in traces]
    assert cell(made.tables[0], "alti", "[CLS]").mean == pytest.approx(np.mean([one["[CLS]"] for one in ranks]))
    assert set(made.tables[0].columns[1:]) == {token for one in ranks for token in one}


def other_seed(model: Any, scale: float = 0.02) -> Any:
    """The same model with a little noise on its weights."""
    hf = transformers.AutoModelForSequenceClassification.from_config(model.hf_model.config)
    hf.load_state_dict(model.hf_model.state_dict())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in hf.parameters():
            weights.add_(torch.randn(weights.shape, generator=generator) * scale)
    return mixlens.load(hf.eval(), tokenizer=model.tokenizer)


def test_alti_consistency_of_a_model_with_itself_is_one_and_less_with_another(model: Any, texts: list[Example]) -> None:
    models = [model, mixlens.load("sentiment"), other_seed(model)]
    made = run("alti-consistency", model=models, data=texts, methods=["alti"], progress=False)
    assert values(made, "alti", "spearman", pair="0-1") == pytest.approx([1.0] * 3)
    assert max(values(made, "alti", "spearman", pair="0-2")) < 1
    assert len(made.tables[1].rows) == 3
    different = [r for r in made.records if not r.info["alike"]]
    assert cell(made.tables[0], "alti", "predicted differently") == len(different)


def test_alti_consistency_counts_only_what_both_predict_alike(model: Any, texts: list[Example]) -> None:
    used = known()["alti-consistency"]
    setup = core.Setup(used, (model, model), tuple(texts), ("alti",), {})
    records = [
        Record("1", "alti", "spearman", 0.5, {"pair": "0-1", "alike": True}),
        Record("2", "alti", "spearman", -1.0, {"pair": "0-1", "alike": False}),
    ]
    assert used.finish(setup, records)[0].rows[0][1].mean == 0.5
    with pytest.raises(InputError, match="nothing to compare"):
        used.finish(setup, records[1:])


def test_models_with_other_tokens_are_not_compared(model: Any, gap_model: Any, texts: list[Example]) -> None:
    config = transformers.BertConfig(
        vocab_size=len(gap_model.tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    stranger = mixlens.load(transformers.BertForSequenceClassification(config).eval(), tokenizer=gap_model.tokenizer)
    with pytest.raises(InputError, match="as different tokens"):
        run("alti-consistency", model=[model, stranger], data=texts, methods=["alti"], progress=False)


# --- AttCAT -----------------------------------------------------------------------------------------------------------


def test_attcat_faithfulness_is_aopc_and_lodds(model: Any, texts: list[Example]) -> None:
    made = run("attcat-faithfulness", model=model, data=texts, methods=["attcat"], progress=False)
    for number, example in enumerate(texts):
        trace = model.trace(example)
        scores = mixlens.attribute(trace, "attcat")
        assert values(made, "attcat", "aopc")[number] == aopc(trace, scores).value
        assert values(made, "attcat", "lodds")[number] == lodds(trace, scores).value
    assert [row[1] for row in made.tables[1].rows] == list(range(0, 101, 10))
    assert made.tables[1].rows[0][2].mean == 0  # nothing removed
    released = run("attcat-faithfulness", model=model, data=texts, methods=["attcat"], variant="released", progress=False)
    label = data.label_ids([texts[0].info["label"]], model)[texts[0].info["label"]]
    trace = model.trace(texts[0])
    expected = aopc(trace, mixlens.attribute(trace, "attcat", target=label), variant="released", label=label)
    assert values(released, "attcat", "aopc")[0] == pytest.approx(expected.value, nan_ok=True)
    assert len(released.tables[1].rows) in (0, 9)


def test_attcat_confidence_is_between_the_classes(model: Any, texts: list[Example]) -> None:
    made = run("attcat-confidence", model=model, data=texts, methods=["attcat"], progress=False)
    trace = model.trace(texts[0])
    sides = [mixlens.attribute(trace, "attcat", target=label) for label in (0, 1)]
    assert values(made, "attcat", "kendall")[0] == kendall(*sides)
    assert made.tables[0].columns == ("method", "kendall", "released")


@pytest.fixture(scope="module")
def qa_model(model: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(model.tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    return mixlens.load(transformers.BertForQuestionAnswering(config).eval(), tokenizer=model.tokenizer)


def test_attcat_qa_counts_answer_tokens(qa_model: Any) -> None:
    text = "the plot is bad and the film is very good"
    start = text.index("very good")
    one = Example("how is the film", text, id="1", info={"answers": ((start, start + len("very good")),)})
    made = run("attcat-qa", model=qa_model, data=[one], methods=["random", "attcat", "alti"], k=3, progress=False)
    trace = qa_model.trace(one)
    gold = data.span_tokens(one.info["answers"], trace, pair=True)
    for method in ("attcat", "alti"):
        scores = mixlens.attribute(trace, method).scores
        top = scores.argsort(descending=True, stable=True)[:3].tolist()
        assert values(made, method, "precision_at_k") == [len(set(top) & set(gold)) / len(gold)]
    every = run("attcat-qa", model=qa_model, data=[one], methods=["attcat"], k=1000, progress=False)
    assert values(every, "attcat", "precision_at_k") == [1.0]
    assert cell(every.tables[0], "attcat", "count").mean == len(gold)
    with pytest.raises(InputError, match="1 have no 'answers'"):
        run("attcat-qa", model=qa_model, data=[replace(one, info={})], methods=["attcat"], progress=False)
    with pytest.raises(InputError, match="k is a number of tokens"):
        run("attcat-qa", model=qa_model, data=[one], methods=["attcat"], k=0, progress=False)


# --- every experiment -------------------------------------------------------------------------------------------------

OURS = [
    *("alti-table2", "alti-anisotropy", "alti-special-tokens"),
    *("attcat-faithfulness", "attcat-confidence"),
]


@pytest.mark.parametrize("name", OURS)
def test_tables_and_figures_come_from_records_alone(
    name: str, model: Any, gap_model: Any, texts: list[Example], gaps: list[Example]
) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    used = known()[name]
    at_gap = used.model == "agreement"
    methods = [
        method for method in used.methods if core.asked(method).name not in ("integrated_gradients", "deeplift", "transatt")
    ]
    asked: dict[str, Any] = {"model": gap_model if at_gap else model, "data": (gaps if at_gap else texts)[:2]}
    made = run(name, methods=methods[:3], progress=False, **asked)
    before = [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records]
    again = used.finish(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records] == before
    assert core.drawn(made)["svg"] == core.drawn(made)["svg"]
    assert any(isinstance(one, Interval) for row in made.tables[0].rows for one in row)
