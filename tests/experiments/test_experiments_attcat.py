"""AttCAT's experiments: the numbers are those of the metrics, written out; claims give the word that made-up records call for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from outcomes import cell, values
from scipy import stats

import mixlens
from mixlens import data
from mixlens.base.errors import InputError
from mixlens.metrics.agreement import kendall, kendall_confidence
from mixlens.metrics.faithfulness import aopc, lodds
from mixlens.papers.attcat.layers import ROLLOUT, SENTENCE, SUM
from mixlens.papers.attcat.main import BASELINES, CLASSES, METHODS, TABLE1_AOPC
from mixlens.papers.attcat.more import released_scores, span_scores
from mixlens.runs.experiments import Setup, known, run
from mixlens.runs.experiments.plan import PLANS
from mixlens.scoring.asking import parse_methods
from mixlens.types import Example, Record


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def texts() -> list[Example]:
    return list(data.load("sentiment", n=3))


def words_of(
    name: str, means: dict[tuple[str, str], float], n: int = 40, options: dict[str, Any] | None = None, **info: Any
) -> list[str]:
    """The verdict on each claim of an experiment, from made-up records: values about a mean for each (method, metric)."""
    noise = np.random.default_rng(0).normal(0, 0.01, (len(means), n))
    records = [
        Record(str(i), method, metric, mean + noise[row, i], info)
        for row, ((method, metric), mean) in enumerate(means.items())
        for i in range(n)
    ]
    asked = {**known()[name].options, **(options or {})}
    one: Any = SimpleNamespace()
    setup = Setup(known()[name], (one,), (), tuple(dict.fromkeys(m for m, _ in means)), asked)
    return [claim.check(setup, records, []).word for claim in known()[name].claims if claim.is_about(setup)]


# --- Table 1 ------------------------------------------------------------------------------------------------------------


def test_faithfulness_is_aopc_and_lodds(model: Any, texts: list[Example]) -> None:
    made = run("attcat-faithfulness", model=model, data=texts, methods=["attcat"], progress=False)
    for number, example in enumerate(texts):
        trace = model.trace(example)
        scores = mixlens.attribute(trace, "attcat")
        assert values(made, "attcat", "aopc")[number] == aopc(trace, scores).value
        assert values(made, "attcat", "lodds")[number] == lodds(trace, scores).value
    assert [row[1] for row in made.tables[1].rows] == list(range(0, 101, 10))
    assert made.tables[1].rows[0][2].mean == 0  # nothing removed


def test_released_takes_methods_and_metrics_as_released(model: Any) -> None:
    long = [one for one in data.load("sentiment", n=40) if len(model.encode(one).input_ids) >= 10][:1]
    made = run(
        "attcat-faithfulness", model=model, data=long, methods=["attcat", "alti"], variant="released", progress=False
    )
    label = data.label_ids([long[0].info["label"]], model)[long[0].info["label"]]
    trace = model.trace(long[0])
    scores = mixlens.attribute(trace, "attcat", target=label, variant="released")
    assert values(made, "attcat", "aopc")[0] == pytest.approx(
        aopc(trace, scores, variant="released", label=label).value
    )
    assert len(made.tables[1].rows) == 2 * 9


def test_the_paper_stands_beside_ours(model: Any, texts: list[Example]) -> None:
    made = run("attcat-faithfulness", model=model, data=texts, methods=["attcat"], progress=False)
    table = next(table for table in made.tables if table.name == "paper-faithfulness-aopc")
    assert table.rows[0][0] == "attcat"
    assert table.rows[0][2:] == ("0.371", "0.139", "0.164", "0.457", "0.473", "0.528")
    assert {row[1] for row in table.rows[1:]} == {"not run"}


def test_claims_of_table_1_follow_the_records() -> None:
    metrics = {(method, metric): 0.0 for method in METHODS for metric in ("aopc", "lodds")}
    as_in_the_paper = {
        **metrics,
        **{(m, "aopc"): 1.0 for m in METHODS if m not in ("raw_attention", "attention_rollout", "random")},
        **{(m, "lodds"): -1.0 for m in METHODS if m not in ("raw_attention", "attention_rollout", "random")},
        ("attcat", "aopc"): 2.0,
        ("attcat", "lodds"): -2.0,
    }
    assert set(words_of("attcat-faithfulness", as_in_the_paper)) == {"same"}
    assert set(words_of("attcat-faithfulness", {key: -value for key, value in as_in_the_paper.items()})) == {
        "different"
    }
    *others, aopc_drop, lodds_drop = words_of("attcat-faithfulness", metrics)
    assert set(others) == {"not told apart"}
    assert (aopc_drop, lodds_drop) == ("not told apart", "different")  # 0.048 of LOdds is more than the noise
    # Grads is no token score in the released code: there it decides nothing.
    best = {**as_in_the_paper, ("attention_grad", "aopc"): 9.0, ("attention_grad", "lodds"): -9.0}
    released = words_of("attcat-faithfulness", best, options={"variant": "released"})
    assert (words_of("attcat-faithfulness", best)[:2], released[:2]) == (["different"] * 2, ["same"] * 2)
    worst = {**as_in_the_paper, ("attention_grad", "aopc"): -9.0, ("attention_grad", "lodds"): 9.0}
    released = words_of("attcat-faithfulness", worst, options={"variant": "released"})
    assert (words_of("attcat-faithfulness", worst)[2:4], released[2:4]) == (["different"] * 2, ["same"] * 2)


@pytest.mark.parametrize(("drop", "word"), [(0.02, "same"), (0.0, "different"), (-0.02, "different")])
def test_a_marked_drop_is_as_large_as_the_smallest_of_the_paper(drop: float, word: str) -> None:
    metrics = {(method, metric): 0.0 for method in METHODS for metric in ("aopc", "lodds")}
    changed = metrics | {("attcat", "aopc"): drop, ("attcat", "lodds"): -10 * drop}
    assert words_of("attcat-faithfulness", changed, n=400)[-2:] == [word, word]
    assert list(TABLE1_AOPC) == [*BASELINES, "attcat"]


# --- Table 2 ------------------------------------------------------------------------------------------------------------


def test_confidence_is_between_the_classes(model: Any, texts: list[Example]) -> None:
    made = run("attcat-confidence", model=model, data=texts, methods=["attcat"], progress=False)
    trace = model.trace(texts[0])
    sides = [mixlens.attribute(trace, "attcat", target=label) for label in (0, 1)]
    orders = [np.argsort(-side.to_numpy()) for side in sides]
    assert values(made, "attcat", "kendall")[0] == pytest.approx(stats.kendalltau(*orders).statistic)
    assert values(made, "attcat", "of scores")[0] == kendall(*sides)
    assert made.tables[0].columns == ("method", "kendall", "of scores")


def test_kendall_as_equation_15_compares_token_indices() -> None:
    """Orders 0 2 1 and 0 1 2 of the indices: one of three pairs is swapped; the scores of the two tell something else."""
    scores, other, third = [3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]
    assert kendall_confidence(scores, [other]) == pytest.approx(1 / 3)
    assert kendall_confidence(scores, [scores]) == pytest.approx(1)
    mean = (1 / 3 + stats.kendalltau([0, 2, 1], [2, 1, 0]).statistic) / 2
    assert kendall_confidence(scores, [other, third]) == pytest.approx(mean)
    assert kendall_confidence(scores, [other, third], variant="released") == pytest.approx(1 / 3)
    assert kendall_confidence(scores, [[-x for x in scores]], variant="scores") == pytest.approx(-1)


def test_claims_of_table_2_follow_the_records() -> None:
    paper = {(method, "kendall"): 0.3 for method in CLASSES} | {
        ("attcat", "kendall"): 0.0,
        ("partial_lrp", "kendall"): 0.9,
    }
    assert words_of("attcat-confidence", paper) == ["same", "same", "same"]
    assert words_of("attcat-confidence", {key: -value for key, value in paper.items()}) == [
        "different",
        "same",
        "different",
    ]
    assert words_of("attcat-confidence", paper | {("attcat", "kendall"): -0.5}) == [
        "same",
        "different",
        "same",
    ]  # sign, size


# --- Figure 3 -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def qa_model(model: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(model.tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    torch.manual_seed(0)
    return mixlens.load(transformers.BertForQuestionAnswering(config).eval(), tokenizer=model.tokenizer)


@pytest.fixture(scope="module")
def question() -> Example:
    text = "the plot is bad and the film is very good"
    start = text.index("very good")
    return Example("how is the film", text, id="1", info={"answers": ((start, start + len("very good")),)})


def test_every_method_is_read_at_the_start_and_the_end_of_the_span(qa_model: Any, question: Example) -> None:
    trace = qa_model.trace(question)
    start, end = (int(i) for i in trace.logits.argmax(0))
    scores = span_scores(trace, parse_methods(["alti", "raw_attention", "attcat", "transatt"]))
    assert list(scores) == ["alti", "raw_attention", "attcat", "transatt"]
    rolled = mixlens.mix(trace, "alti").rollout().scores[-1]
    last = mixlens.mix(trace, "attention").scores[-1]
    # One row is multiplied through the layers here, all rows there: other sums, in float32.
    torch.testing.assert_close(scores["alti"][0].scores, (rolled[start] + rolled[end]) / 2, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores["raw_attention"][0].scores, (last[start] + last[end]) / 2, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores["attcat"][0].scores, mixlens.attribute(trace, "attcat").scores)


def test_answer_tokens_are_counted(qa_model: Any, question: Example) -> None:
    made = run("attcat-qa", model=qa_model, data=[question], methods=["random", "attcat", "alti"], k=3, progress=False)
    trace = qa_model.trace(question)
    gold = data.span_tokens(question.info["answers"], trace, pair=True)
    for method, (scores, _) in span_scores(trace, parse_methods(["attcat", "alti"])).items():
        top = scores.scores.argsort(descending=True, stable=True)[:3].tolist()
        assert values(made, method, "precision_at_k") == [len(set(top) & set(gold)) / len(gold)]
        assert values(made, method, "count") == [len(set(top) & set(gold))]
    every = run("attcat-qa", model=qa_model, data=[question], methods=["attcat"], k=1000, progress=False)
    assert values(every, "attcat", "precision_at_k") == [1.0]
    assert cell(every.tables[0], "attcat", "count").mean == len(gold)
    assert f"no method can have more than {len(gold):.2f} here" in every.tables[0].note
    assert cell(every.tables[0], "attcat", "share").mean == 1.0
    assert " of 1 examples)" in every.tables[0].note
    with pytest.raises(InputError, match="1 have no 'answers'"):
        run("attcat-qa", model=qa_model, data=[replace(question, info={})], methods=["attcat"], progress=False)
    with pytest.raises(InputError, match="k is a number of tokens"):
        run("attcat-qa", model=qa_model, data=[question], methods=["attcat"], k=0, progress=False)
    with pytest.raises(InputError, match="unknown read 'cls'"):
        run("attcat-qa", model=qa_model, data=[question], methods=["attcat"], read="cls", progress=False)


def test_questions_as_released(qa_model: Any, question: Example) -> None:
    methods = ["raw_attention", "attention_rollout", "attcat"]
    made = run("attcat-qa", model=qa_model, data=[question], methods=methods, k=3, read="released", progress=False)
    trace = qa_model.trace(question)
    gold = data.span_tokens(question.info["answers"], trace, pair=True)
    for method, variant in (
        ("raw_attention", "released_squad"),
        ("attention_rollout", "released_squad"),
        ("attcat", "released"),
    ):
        top = (
            mixlens.attribute(trace, method, variant=variant).scores.argsort(descending=True, stable=True)[:3].tolist()
        )
        assert values(made, method, "count") == [len(set(top) & set(gold))]


def test_the_notebook_of_squad_v2_adds_the_magnitudes_of_both_ends(qa_model: Any, question: Example) -> None:
    methods = ["raw_attention", "cat:variant=paper", "attcat", "alti"]
    made = run("attcat-qa", model=qa_model, data=[question], methods=methods, k=3, read="released_v2", progress=False)
    trace = qa_model.trace(question)
    gold = set(data.span_tokens(question.info["answers"], trace, pair=True))
    start, end = (int(i) for i in trace.logits.argmax(0))

    def among_the_highest(scores: Any) -> list[int]:
        return [len(gold & set(scores.argsort(descending=True, stable=True)[:3].tolist()))]

    for written, name, variant in (("cat:variant=paper", "cat", "paper"), ("attcat", "attcat", "released")):
        ends = [
            mixlens.attribute(trace, name, variant=variant, target=end).scores for end in ((start, None), (None, end))
        ]
        assert values(made, written, "count") == among_the_highest(ends[0].abs() + ends[1].abs())
    whole = mixlens.attribute(trace, "raw_attention", variant="released_squad")
    assert values(made, "raw_attention", "count") == among_the_highest(whole.scores)
    assert [record.method for record in made.records if record.metric == "count"] == methods
    sizes, sums = (
        released_scores(trace, parse_methods(["attcat"]), magnitudes=one)["attcat"][0] for one in (True, False)
    )
    assert sizes.scores.min() >= 0 > sums.scores.min()


def test_the_claim_of_figure_3_follows_the_records() -> None:
    counts = {(method, "count"): 1.0 for method in METHODS} | {("attcat", "count"): 3.0}
    assert words_of("attcat-qa", counts, answered=True) == ["same"]
    assert words_of("attcat-qa", {key: -value for key, value in counts.items()}, answered=True) == ["different"]
    assert words_of("attcat-qa", counts | {("random", "count"): 9.0}, answered=True) == [
        "same"
    ]  # random is not in the paper
    assert words_of("attcat-qa", counts, answered=False) == ["not comparable"]
    assert words_of("attcat-qa", counts, answered=True, n=29) == ["not comparable"]


def test_the_table_of_figure_3_has_the_answered_questions_apart() -> None:
    values = [("0", 1.0, True), ("1", 0.5, True), ("2", 0.0, False)]
    records = [
        Record(example, "attcat", "precision_at_k", value, {"count": 2 * value, "answer": 2, "answered": answered})
        for example, value, answered in values
    ]
    setup = Setup(known()["attcat-qa"], (), (), ("attcat",), dict(known()["attcat-qa"].options))
    ((method, count, share, right),) = known()["attcat-qa"].finish(setup, records)[0].rows
    assert method == "attcat"
    assert [cell.mean for cell in (count, share, right)] == pytest.approx([1.0, 0.5, 0.75])
    assert [cell.n for cell in (count, share, right)] == [3, 3, 2]


def test_the_claim_of_figure_3_is_judged_on_answered_questions_alone() -> None:
    """AttCAT is ahead on 30 answered questions, far behind on 50 others: the claim holds, and says how many they are."""
    rng = np.random.default_rng(0)
    records = [
        Record(str(i), method, "count", (ahead if i < 30 else -10 * ahead) + rng.normal(0, 0.01), {"answered": i < 30})
        for method, ahead in [*((name, 0.0) for name in METHODS if name != "attcat"), ("attcat", 1.0)]
        for i in range(80)
    ]
    setup = Setup(known()["attcat-qa"], (), (), METHODS, dict(known()["attcat-qa"].options))
    (verdict,) = [claim.check(setup, records, []) for claim in known()["attcat-qa"].claims]
    assert verdict.word == "same"
    assert verdict.ours.startswith("on the 30 of 80 questions that the model answers: ")


def test_the_notebooks_of_squad_are_told_apart() -> None:
    assert any("read=released_v2" in line and "adds the magnitudes" in line for line in known()["attcat-qa"].differs)
    options = {
        step.data: step.options.get("read") for step in PLANS.find("attcat").steps if step.name.endswith("-released")
    }
    assert (options["squad1"], options["squad2"]) == ("released", "released_v2")


# --- Figure 4 -----------------------------------------------------------------------------------------------------------


def test_layers_are_those_of_attcat(model: Any, texts: list[Example]) -> None:
    made = run("attcat-layers", model=model, data=texts, progress=False)
    trace = model.trace(texts[0])
    added = mixlens.attribute(trace, "attcat", variant="released")
    words = [i for i, special in enumerate(trace.special) if not special]
    rows = added.info["per_layer"][:, words].double()
    rows = rows / rows.abs().max()
    for layer in range(1, model.n_layers + 1):
        assert values(made, SUM, "size", layer=layer)[0] == pytest.approx(float(rows[layer - 1].abs().mean()))
        spread, size = float(rows[layer - 1].std(correction=0)), float(rows[layer - 1].abs().mean())
        assert values(made, SUM, "spread", layer=layer)[0] == pytest.approx(spread)
        assert values(made, SUM, "relative spread", layer=layer)[0] == pytest.approx(spread / size)
    assert values(made, SUM, "aopc", layer=0)[0] == pytest.approx(aopc(trace, added).value)
    heat = made.tables[2]
    assert heat.columns == ("token", *(f"L{i}" for i in range(model.n_layers)), "Rollout", "Sum")
    assert [row[0] for row in heat.rows] == [trace.tokens[i] for i in words]


def test_the_heat_map_is_normalised_as_in_its_notebook(model: Any, texts: list[Example]) -> None:
    """Layers, their product and their sum are divided by the norm of all of them, of all tokens. Four digits are kept."""
    made = run("attcat-layers", model=model, data=texts[:2], sentence="the film is not good", progress=False)
    trace = model.trace("the film is not good")
    added = mixlens.attribute(trace, "attcat", variant="released")
    layers = added.info["per_layer"].double()
    every = torch.cat([layers, layers.prod(0)[None], layers.sum(0)[None]])
    every = every / (every**2).sum() ** 0.5
    heat = made.tables[2]
    assert [row[0] for row in heat.rows] == ["the", "film", "is", "not", "good"] == list(trace.tokens[1:-1])
    np.testing.assert_allclose([row[1:] for row in heat.rows], every.T[1:-1], atol=0.00006)
    first = mixlens.attribute(model.trace(texts[0]), "attcat", variant="released").info["per_layer"].double()
    whole = (sum(float((one**2).sum()) for one in (first, first.sum(0), first.prod(0)))) ** 0.5
    words = [i for i, special in enumerate(model.trace(texts[0]).special) if not special]
    assert values(made, SUM, "size", layer=0)[0] == pytest.approx(float(first.sum(0)[words].abs().mean()) / whole)
    assert values(made, ROLLOUT, "size", layer=0)[0] == pytest.approx(
        float(first.prod(0)[words].abs().mean()) / whole, rel=1e-5
    )
    assert [r.example for r in made.records if "picture" in r.info] == [made.records[0].example]
    paper = run("attcat-layers", model=model, data=texts[:1], variant="paper", progress=False)
    assert max(abs(row[-1]) for row in paper.tables[2].rows) == 1
    assert paper.tables[2].column("token") == [model.trace(texts[0]).tokens[i] for i in words]


def test_the_scores_that_the_paper_prints_stand_beside_the_sentence_of_the_figure() -> None:
    (declared,) = known()["attcat-layers"].published
    (step,) = [step for step in PLANS.find("attcat").steps if step.name == "figure4"]
    for options, beside in ((step.options, True), ({}, False), ({**step.options, "variant": "paper"}, False)):
        setup = Setup(known()["attcat-layers"], (), (), (), {**known()["attcat-layers"].options, **options})
        assert declared.is_about(setup) is beside
    assert set(declared.numbers) <= set(SENTENCE.split())


def test_rolled_out_attcat_is_the_product_of_its_layers(model: Any, texts: list[Example]) -> None:
    """The plain product as released; else every layer is divided by its largest score. Twelve small scores are not lost."""
    trace = model.trace(texts[0])
    for variant in ("paper", "released"):
        product = torch.ones(len(trace), dtype=torch.float64)
        for layer in mixlens.attribute(trace, "attcat", variant=variant).info["per_layer"].double():
            product = product * layer / (layer.abs().max() if variant == "paper" else 1)
        rolled = mixlens.attribute(trace, "attcat", variant=variant, aggregation="rollout").scores
        torch.testing.assert_close(rolled.double(), product, rtol=1e-5, atol=1e-30)
    with pytest.raises(InputError, match="unknown aggregation 'mean'"):
        mixlens.attribute(trace, "attcat", aggregation="mean")


def test_claims_of_figure_4_follow_the_records() -> None:
    paper = {(SUM, "size"): 1.0, (ROLLOUT, "size"): 0.0, (SUM, "aopc"): 1.0, (ROLLOUT, "aopc"): 0.0}
    paper |= {(SUM, "lodds"): -1.0, (ROLLOUT, "lodds"): 0.0}
    assert words_of("attcat-layers", paper, layer=0)[2:] == ["not comparable", "same", "same"]
    assert words_of("attcat-layers", {key: -value for key, value in paper.items()}, layer=0)[3:] == ["different"] * 2


@pytest.mark.parametrize(("number", "metric"), [(0, "relative spread"), (1, "size")])
def test_scores_that_become_uniform_and_small_fall_with_every_layer(number: int, metric: str) -> None:
    """The trend over all layers counts: five layers that rise before one that falls are not what the paper says."""

    def word(curve: tuple[float, ...]) -> str:
        of_layers = [
            Record(str(i), SUM, metric, value + i / 100, {"layer": layer})
            for i in range(9)
            for layer, value in enumerate(curve, 1)
        ]
        claim, setup = known()["attcat-layers"].claims[number], Setup(known()["attcat-layers"], (), (), (), {})
        return claim.check(setup, of_layers, []).word

    assert word((1.0, 0.5, 0.3, 0.2, 0.1, 0.05)) == "same"
    assert word((0.05, 0.1, 0.2, 0.3, 0.5, 1.0)) == "different"
    assert word((0.1, 0.2, 0.3, 0.4, 0.5, 0.05)) == "different"
    assert word(()) == "not comparable"


# --- the plan -----------------------------------------------------------------------------------------------------------


def test_figure_3_has_three_models_on_both_versions_of_squad() -> None:
    plan = PLANS.find("attcat")
    (item,) = [item for item in plan.items if item.where == "Figure 3"]
    steps = [step for step in plan.steps if step.name in item.steps and not step.options]
    found = [(plan.role(step.models[0]).what.partition(",")[0], step.data) for step in steps]
    models = ("BERT-base", "DistilBERT", "RoBERTa")
    assert sorted(found) == sorted((model, version) for model in models for version in ("squad1", "squad2"))


def test_hub_models_are_those_of_the_notebooks() -> None:
    roles = {role.name: role.hub for role in PLANS.find("attcat").roles}
    for name, hub in (("amazon", "amazon_polarity"), ("yelp", "yelp_polarity"), ("imdb", "imdb")):
        assert roles[name] == f"fabriceyhc/bert-base-uncased-{hub}"


def test_figure_5b_leaves_out_the_first_token_which_would_hide_the_words() -> None:
    (item,) = [item for item in PLANS.find("attcat").items if item.where == "Figure 5b"]
    assert item.command.endswith("--no-special")


def test_what_the_notebooks_do_otherwise_is_said() -> None:
    said = {name: " ".join(known()[name].differs) for name in ("attcat-faithfulness", "attcat-qa", "attcat-layers")}
    for words in ("that of QQP, which ranks", "remove these two", "2,000 texts of Amazon, Yelp and IMDB"):
        assert words in said["attcat-faithfulness"]
    for words in ("the validation sets", "384 tokens", "AttCAT, RawAtt and Rollout alone", "at most k tokens"):
        assert words in said["attcat-qa"]
    assert "divided by the norm of all of them" in said["attcat-layers"]


def test_help_says_which_tokens_compete_for_the_twenty_places() -> None:
    assert any("[CLS], [SEP] and the question's too" in line for line in known()["attcat-qa"].differs)
