"""Many traces at once: one forward and one backward pass for a batch, and every row's numbers are those it has
alone."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import QUICK, ids
from test_attributions import with_head
from test_run import bad, go, table

import mixlens
from mixlens.base import errors
from mixlens.scoring import attributions
from mixlens.scoring import attributions as attributing

ONE_PASS = ["grad_l2", "grad_x_input", "grad_x_input_l2", "attention_grad", "attention_x_grad", "cat", "attcat"]
LENGTHS = (9, 4, 7, 7, 2)
HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every pass with a graph."""
    rows: list[int] = []
    own = mixlens.Model.run_attached

    def counted(self: Any, inputs: Any, **options: Any) -> Any:
        rows.append(len(inputs["input_ids"]))
        return own(self, inputs, **options)

    monkeypatch.setattr(mixlens.Model, "run_attached", counted)
    return rows


def traces_of(model: Any) -> list[Any]:
    return [model.trace(input_ids=ids(n, seed=n + i)) for i, n in enumerate(LENGTHS)]


@pytest.mark.parametrize("score", ["logit", "probability", "log_probability"])
@pytest.mark.parametrize("head", HEADS)
def test_a_padded_batch_gives_the_numbers_of_each_row_alone(head: str, score: str, passes: list[int]) -> None:
    """Whatever is explained: a class, a token at its place, a span over all positions (padding is none of them)."""
    model = with_head("bert", f"AutoModelFor{head}")
    traces = traces_of(model)
    asked = [
        {"score": score, **({"query": i % 2} if head in ("TokenClassification", "MaskedLM") else {})} for i in range(5)
    ]
    for name in ONE_PASS:
        passes.clear()
        together = attributions.attribute_each(traces, name, asked)
        assert passes == [5]  # one for all of them
        for trace, own, read in zip(traces, asked, together, strict=True):
            alone = attributions.attribute(trace, name, **own)
            assert isinstance(read, mixlens.Attribution)
            torch.testing.assert_close(read.scores, alone.scores, rtol=1e-10, atol=1e-12)
            assert read.tokens == alone.tokens
            assert {key: read.info[key] for key in ("target", "query")} == {
                key: alone.info[key] for key in ("target", "query")
            }


@pytest.mark.filterwarnings("ignore::mixlens.scoring.completeness.IncompleteWarning")  # few steps keep it quick
@pytest.mark.parametrize(
    "name", [name for name, method in attributions.known().items() if method.layers or len(method.variants) > 1]
)
def test_layers_and_variants_in_a_batch(name: str) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    traces, used = traces_of(model)[:3], attributions.known()[name]
    own = {"integrated_gradients": {"steps": 3}, "blank_out": {"replacement": "zero"}, **QUICK}.get(name, {})
    for options in [{"layer": 1}] * used.layers + [{"variant": variant} for variant in used.variants]:
        for read, trace in zip(attributions.attribute(traces, name, **options, **own), traces, strict=True):
            alone = attributions.attribute(trace, name, **options, **own)
            torch.testing.assert_close(read.scores, alone.scores, rtol=1e-9, atol=1e-10)


def test_each_row_has_its_own_target_and_its_own_failure(passes: list[int]) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    traces = traces_of(model)
    made = attributions.attribute_each(
        traces, "grad_x_input", [{"target": wanted} for wanted in (0, 1, "no such class", 1, 7)]
    )
    assert passes == [3]  # those that cannot be asked take no part
    assert [isinstance(one, errors.InputError) for one in made] == [False, False, True, False, True]
    assert "no class 'no such class'" in str(made[2])
    for i, wanted in ((0, 0), (1, 1), (3, 1)):
        alone = attributions.attribute(traces[i], "grad_x_input", target=wanted).scores
        torch.testing.assert_close(made[i].scores, alone, rtol=1e-10, atol=1e-12)
    with pytest.raises(errors.InputError, match="no such class"):
        attributions.attribute(traces, "grad_x_input", target="no such class")
    with pytest.raises(errors.InputError, match="nothing"):
        attributions.attribute(traces, "grad_x_input", nothing=1)


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch, passes: list[int]) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    traces = traces_of(model)
    expected = attributions.attribute(traces, "attcat")
    passes.clear()
    own = mixlens.Model.run_attached

    def small(self: Any, inputs: Any, **options: Any) -> Any:
        made = own(self, inputs, **options)
        if len(inputs["input_ids"]) > 2 or inputs["input_ids"].shape[1] > 8:
            raise torch.OutOfMemoryError("out of memory")
        return made

    monkeypatch.setattr(mixlens.Model, "run_attached", small)
    made = attributions.attribute_each(traces, "attcat", [{}] * 5)
    assert passes == [5, 2, 3, 1, 2, 1, 1]  # the longest is the last, and does not fit alone
    assert isinstance(made[0], errors.InputError)
    assert "memory runs out with 9 tokens" in str(made[0])
    for read, other in zip(made[1:], expected[1:], strict=True):
        torch.testing.assert_close(read.scores, other.scores, rtol=1e-10, atol=1e-12)


def test_the_graph_goes_with_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No circle of references keeps it until Python next looks for some."""
    seen = []
    own = mixlens.Model.run_attached

    def kept(self: Any, inputs: Any, **options: Any) -> Any:
        made = own(self, inputs, **options)
        seen.append(weakref.ref(made.outputs[0]))
        return made

    monkeypatch.setattr(mixlens.Model, "run_attached", kept)
    model = with_head("bert", "AutoModelForSequenceClassification")
    traces = traces_of(model)
    gc.collect()
    gc.disable()
    try:
        attributions.attribute(traces, "attcat")
        attributions.attribute(traces[0], "attcat")
        assert [there() for there in seen] == [None, None]
    finally:
        gc.enable()


def test_batches_hold_a_quarter_of_the_tokens_of_a_traced_one(passes: list[int]) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    attributions.attribute_each([model.trace(input_ids=ids(8))] * 6, "grad_l2", [{}] * 6, tokens=64)
    assert passes == [2, 2, 2]
    passes.clear()
    attributions.attribute_each(
        [model.trace(input_ids=ids(8))] * 3, "grad_l2", [{}] * 3, tokens=1
    )  # less than one token of a graph
    assert passes == [1, 1, 1]
    assert attributing.GRAPH == 4


def test_a_corpus_run_shares_gradients_and_names_the_row_that_fails(tmp_path: Path, passes: list[int]) -> None:
    pytest.importorskip("pyarrow")
    model = mixlens.load("sentiment")
    texts = ["a good film", "a very bad and dull film", "a film", "an awful plot", "a fine cast and a good story"]
    labels = ["positive", "negative", "no such class", None, 0]
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    passes.clear()
    made = go(
        tmp_path / "x.jsonl", tmp_path / "run", model=model, methods=["alti", "attcat", "grad_x_input"], target="gold"
    )
    assert passes == [3, 3]  # once for each method
    assert (made.rows, made.errors) == (3, 2)
    assert [(one["row"], one["reason"][:24]) for one in bad(tmp_path / "run")] == [
        (3, "'sentiment' has no class"),
        (4, "the row has no target an"),
    ]
    for row, label in zip(table(tmp_path / "run"), ["positive", "negative", 0], strict=True):
        for name in ("attcat", "grad_x_input"):
            alone = attributions.attribute(model.trace(row["text"]), name, target=label).scores
            torch.testing.assert_close(torch.tensor(row[name]), alone, atol=2e-5, rtol=1e-4)


def test_a_batch_that_is_halved_frees_the_graph_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_head("bert")
    batches: list[Any] = []

    def narrow(question: Any) -> torch.Tensor:
        """Fails as long as a batch holds more than one row, after its pass."""
        assert question.run is not None
        assert not [batch for batch in batches if batch() is not None and batch() is not question.batch]
        if len(question.batch.questions) > 1:
            batches.append(weakref.ref(question.batch))
            raise MemoryError
        return torch.zeros(len(question.trace))

    method = dataclasses.replace(attributions.known()["grad_l2"], function=narrow)
    monkeypatch.setitem(attributing.ATTRIBUTIONS, "grad_l2", method)
    results = attributions.attribute_each(traces_of(model), "grad_l2", [{}] * len(LENGTHS))
    assert all(isinstance(one, mixlens.Attribution) for one in results)
    assert len(batches) == len(LENGTHS) - 1


def test_the_graph_of_a_batch_is_freed_before_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_head("bert")
    batches: list[Any] = []

    def watched(question: Any) -> torch.Tensor:
        batches.append(weakref.ref(question.batch))
        assert question.run is not None
        assert {id(batch()) for batch in batches if batch() is not None} == {id(question.batch)}
        return torch.zeros(len(question.trace))

    monkeypatch.setitem(
        attributing.ATTRIBUTIONS, "grad_l2", dataclasses.replace(attributions.known()["grad_l2"], function=watched)
    )
    results = attributions.attribute_each(traces_of(model), "grad_l2", [{}] * len(LENGTHS), tokens=4)
    assert all(isinstance(one, mixlens.Attribution) for one in results)
    assert len(batches) == len(LENGTHS)
