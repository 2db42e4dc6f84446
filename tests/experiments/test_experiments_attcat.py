"""AttCAT's experiments: the numbers are those of the metrics, written out."""

# ruff: noqa: F811
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from outcomes import cell, setup_of, table, values
from scipy import stats
from tiny_models import model, qa_model, texts  # noqa: F401

import mixlens
from mixlens import data, metrics, types
from mixlens.base import errors
from mixlens.papers.attcat import layers, more
from mixlens.runs.experiments import known, run
from mixlens.scoring import asking


def made(name: str, model: Any, some: list[Any], *methods: str, **options: Any) -> Any:
    return run(name, model=model, data=some, methods=list(methods) or None, progress=False, **options)


# --- Tables 1 and 2 ---------------------------------------------------------------------------------------------------


def test_faithfulness_is_aopc_and_lodds(model: Any, texts: list[Any]) -> None:
    outcome = made("attcat-faithfulness", model, texts, "attcat")
    for number, example in enumerate(texts):
        trace = model.trace(example)
        scores = mixlens.attribute(trace, "attcat")
        for metric, measure in (("aopc", metrics.faithfulness.aopc), ("lodds", metrics.faithfulness.lodds)):
            assert values(outcome, "attcat", metric)[number] == measure(trace, scores).value
    curves = table(outcome, "curves").rows
    assert [row[1] for row in curves] == list(range(0, 101, 10))
    assert curves[0][2].mean == 0  # nothing removed
    beside = table(outcome, "paper-faithfulness-aopc").rows
    assert (beside[0][0], *beside[0][2:]) == ("attcat", "0.371", "0.139", "0.164", "0.457", "0.473", "0.528")
    assert {row[1] for row in beside[1:]} == {"not run"}


def test_released_takes_methods_and_metrics_as_released(model: Any) -> None:
    long = [one for one in data.load("sentiment", n=40) if len(model.encode(one).input_ids) >= 10][:1]
    outcome = made("attcat-faithfulness", model, long, "attcat", "alti", variant="released")
    name, trace = long[0].info["label"], model.trace(long[0])
    label = data.label_ids([name], model)[name]
    scores = mixlens.attribute(trace, "attcat", target=label, variant="released")
    expected = metrics.faithfulness.aopc(trace, scores, variant="released", label=label).value
    assert values(outcome, "attcat", "aopc")[0] == pytest.approx(expected)
    assert len(table(outcome, "curves").rows) == 2 * 9


def test_confidence_is_between_the_classes(model: Any, texts: list[Any]) -> None:
    outcome = made("attcat-confidence", model, texts, "attcat")
    sides = [mixlens.attribute(model.trace(texts[0]), "attcat", target=label) for label in (0, 1)]
    orders = [np.argsort(-side.to_numpy()) for side in sides]
    assert values(outcome, "attcat", "kendall")[0] == pytest.approx(stats.kendalltau(*orders).statistic)
    assert values(outcome, "attcat", "of scores")[0] == metrics.agreement.kendall(*sides)


def test_kendall_as_equation_15_compares_token_indices() -> None:
    """Orders 0 2 1 and 0 1 2 of the indices: one of three pairs is swapped; the scores of the two tell something
    else."""
    scores, other, third = [3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]
    mean = (1 / 3 + stats.kendalltau([0, 2, 1], [2, 1, 0]).statistic) / 2
    for others, variant, tau in (
        ([other], "paper", 1 / 3),
        ([scores], "paper", 1),
        ([other, third], "paper", mean),
        ([other, third], "released", 1 / 3),
        ([[-x for x in scores]], "scores", -1),
    ):
        assert metrics.agreement.kendall_confidence(scores, others, variant=variant) == pytest.approx(tau)


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def question() -> Any:
    text = "the plot is bad and the film is very good"
    start = text.index("very good")
    return types.Example("how is the film", text, id="1", info={"answers": ((start, start + len("very good")),)})


@pytest.fixture(scope="module")
def asked(qa_model: Any, question: Any) -> tuple[Any, set[int], tuple[int, int]]:
    """The trace of the question, the tokens of the answer, and the predicted span."""
    trace = qa_model.trace(question)
    start, end = (int(i) for i in trace.logits.argmax(0))
    return trace, set(data.span_tokens(question.info["answers"], trace, pair=True)), (start, end)


def found(scores: Any, gold: set[int]) -> list[int]:
    """How many tokens of the answer are among the three highest scores."""
    return [len(gold & set(scores.argsort(descending=True, stable=True)[:3].tolist()))]


def test_every_method_is_read_at_the_start_and_the_end_of_the_span(asked: Any) -> None:
    trace, _, (start, end) = asked
    names = ["alti", "raw_attention", "attcat", "transatt"]
    scores = more.span_scores(trace, asking.parse_methods(names))
    assert list(scores) == names
    rolled, last = mixlens.mix(trace, "alti").rollout().scores[-1], mixlens.mix(trace, "attention").scores[-1]
    for method, maps in (("alti", rolled), ("raw_attention", last)):
        # One row is multiplied through the layers here, all rows there: other sums, in float32.
        torch.testing.assert_close(scores[method][0].scores, (maps[start] + maps[end]) / 2, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores["attcat"][0].scores, mixlens.attribute(trace, "attcat").scores)


def test_answer_tokens_are_counted(qa_model: Any, question: Any, asked: Any) -> None:
    trace, gold, _ = asked
    outcome = made("attcat-qa", qa_model, [question], "random", "attcat", "alti", k=3)
    for method, (scores, _) in more.span_scores(trace, asking.parse_methods(["attcat", "alti"])).items():
        (count,) = found(scores.scores, gold)
        assert values(outcome, method, "precision_at_k") == [count / len(gold)]
        assert values(outcome, method, "count") == [count]
    every = made("attcat-qa", qa_model, [question], "attcat", k=1000)
    assert cell(every.tables[0], "attcat", "count").mean == len(gold)
    assert cell(every.tables[0], "attcat", "share").mean == 1.0
    assert f"no method can have more than {len(gold):.2f} here" in every.tables[0].note


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"info": {}}, "1 have no 'answers'"),
        ({"k": 0}, "k is a number of tokens"),
        ({"read": "cls"}, "unknown read 'cls'"),
    ],
)
def test_questions_that_cannot_be_asked(changed: dict[str, Any], told: str, qa_model: Any, question: Any) -> None:
    some = [replace(question, info={})] if "info" in changed else [question]
    with pytest.raises(errors.InputError, match=told):
        made("attcat-qa", qa_model, some, "attcat", **{k: v for k, v in changed.items() if k != "info"})


def test_questions_as_released(qa_model: Any, question: Any, asked: Any) -> None:
    """The notebook of SQuAD v2 adds the magnitudes of both ends."""
    trace, gold, (start, end) = asked
    forms = {"raw_attention": "released_squad", "attention_rollout": "released_squad", "attcat": "released"}
    outcome = made("attcat-qa", qa_model, [question], *forms, k=3, read="released")
    for method, variant in forms.items():
        scores = mixlens.attribute(trace, method, variant=variant).scores
        assert values(outcome, method, "count") == found(scores, gold)
    methods = ["raw_attention", "cat:variant=paper", "attcat", "alti"]
    second = made("attcat-qa", qa_model, [question], *methods, k=3, read="released_v2")
    for written, name, variant in (("cat:variant=paper", "cat", "paper"), ("attcat", "attcat", "released")):
        aims = ((start, None), (None, end))
        ends = [mixlens.attribute(trace, name, variant=variant, target=aim).scores for aim in aims]
        assert values(second, written, "count") == found(ends[0].abs() + ends[1].abs(), gold)
    assert [record.method for record in second.records if record.metric == "count"] == methods


def test_the_table_of_figure_3_has_the_answered_questions_apart() -> None:
    facts = [("0", 1.0, True), ("1", 0.5, True), ("2", 0.0, False)]
    records = [
        types.Record(
            example, "attcat", "precision_at_k", value, {"count": 2 * value, "answer": 2, "answered": answered}
        )
        for example, value, answered in facts
    ]
    ((_, *cells),) = known()["attcat-qa"].finish(setup_of("attcat-qa", methods=("attcat",)), records)[0].rows
    assert [(cell.mean, cell.n) for cell in cells] == [(1.0, 3), (0.5, 3), (0.75, 2)]


# --- Figure 4 ---------------------------------------------------------------------------------------------------------


def words_of(trace: Any) -> list[int]:
    return [i for i, special in enumerate(trace.special) if not special]


def test_layers_are_those_of_attcat(model: Any, texts: list[Any]) -> None:
    outcome = made("attcat-layers", model, texts)
    trace = model.trace(texts[0])
    added = mixlens.attribute(trace, "attcat", variant="released")
    rows = added.info["per_layer"][:, words_of(trace)].double()
    for layer, row in enumerate(rows / rows.abs().max(), 1):
        size, spread = float(row.abs().mean()), float(row.std(correction=0))
        for metric, value in (("size", size), ("spread", spread), ("relative spread", spread / size)):
            assert values(outcome, layers.SUM, metric, layer=layer)[0] == pytest.approx(value)
    assert values(outcome, layers.SUM, "aopc", layer=0)[0] == pytest.approx(
        metrics.faithfulness.aopc(trace, added).value
    )
    heat = table(outcome, "heatmap")
    assert heat.columns == ("token", *(f"L{i}" for i in range(model.n_layers)), "Rollout", "Sum")
    assert heat.column("token") == [trace.tokens[i] for i in words_of(trace)]


def test_the_heat_map_is_normalised_as_in_its_notebook(model: Any, texts: list[Any]) -> None:
    """Layers, their product and their sum are divided by the norm of all of them, of all tokens. Four digits are
    kept."""
    outcome = made("attcat-layers", model, texts[:2], sentence="the film is not good")

    def rows(trace: Any) -> Any:
        per_layer = mixlens.attribute(trace, "attcat", variant="released").info["per_layer"].double()
        every = torch.cat([per_layer, per_layer.prod(0)[None], per_layer.sum(0)[None]])
        return every / (every**2).sum() ** 0.5

    heat = table(outcome, "heatmap")
    assert heat.column("token") == ["the", "film", "is", "not", "good"]
    drawn = rows(model.trace("the film is not good"))
    np.testing.assert_allclose([row[1:] for row in heat.rows], drawn.T[1:-1], atol=0.00006)
    trace = model.trace(texts[0])
    *_, product, total = rows(trace)[:, words_of(trace)].abs().mean(1).tolist()
    assert values(outcome, layers.SUM, "size", layer=0)[0] == pytest.approx(total)
    assert values(outcome, layers.ROLLOUT, "size", layer=0)[0] == pytest.approx(product, rel=1e-5)
    assert [r.example for r in outcome.records if "picture" in r.info] == [outcome.records[0].example]
    paper = table(made("attcat-layers", model, texts[:1], variant="paper"), "heatmap")
    assert max(abs(row[-1]) for row in paper.rows) == 1


def test_the_scores_that_the_paper_prints_stand_beside_the_sentence_of_the_figure() -> None:
    (declared,) = known()["attcat-layers"].published
    options = {"sentence": layers.SENTENCE}
    for given, beside in ((options, True), ({}, False), ({**options, "variant": "paper"}, False)):
        assert declared.is_about(setup_of("attcat-layers", options=given)) is beside
    assert set(declared.numbers) <= set(layers.SENTENCE.split())


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_rolled_out_attcat_is_the_product_of_its_layers(variant: str, model: Any, texts: list[Any]) -> None:
    """The plain product as released; else every layer is divided by its largest score."""
    trace = model.trace(texts[0])
    product = torch.ones(len(trace), dtype=torch.float64)
    for layer in mixlens.attribute(trace, "attcat", variant=variant).info["per_layer"].double():
        product = product * layer / (layer.abs().max() if variant == "paper" else 1)
    rolled = mixlens.attribute(trace, "attcat", variant=variant, aggregation="rollout").scores
    torch.testing.assert_close(rolled.double(), product, rtol=1e-5, atol=1e-30)
    with pytest.raises(errors.InputError, match="unknown aggregation 'mean'"):
        mixlens.attribute(trace, "attcat", aggregation="mean")
