"""Attributions of heads with positions (masked and next words, spans) against the stock model, run by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conftest import hf_model, ids

import mixlens
from mixlens import attribute


def with_head(case: str, head: str, **options: Any) -> Any:
    return mixlens.load(hf_model(case, head=head, **options))


@pytest.mark.parametrize("query", [0, 2, 5])
@pytest.mark.parametrize("case", ["bert", "llama"])
def test_positions_move_to_the_left_where_a_token_before_them_is_deleted(case: str, query: int) -> None:
    """The token at the position that predicts cannot be deleted: its score is 0."""
    model = with_head(case, "AutoModelForMaskedLM" if case == "bert" else "AutoModelForCausalLM")
    tokens, word = ids(6), 11

    def probability(read: list[int], place: int) -> float:
        with torch.no_grad():
            return float(model.hf_model(torch.tensor([read])).logits[0, place].softmax(-1)[word])

    found = attribute(model.trace(input_ids=tokens), "blank_out", replacement="delete", query=query, target=word)
    for j in range(6):
        without = [*tokens[:j], *tokens[j + 1 :]]
        lost = 0.0 if j == query else probability(tokens, query) - probability(without, query - (j < query))
        assert float(found.scores[j]) == pytest.approx(lost, abs=1e-10)  # float64, norms of llama in float32


def test_a_span_moves_with_the_tokens_before_it() -> None:
    """The first and the last token of the span cannot be deleted: their score is 0."""
    model = with_head("bert", "AutoModelForQuestionAnswering")
    tokens, span = ids(7), (2, 4)

    def probability(read: list[int], begin: int, end: int) -> float:
        with torch.no_grad():
            out = model.hf_model(torch.tensor([read]))
        return float(out.start_logits[0].softmax(-1)[begin] * out.end_logits[0].softmax(-1)[end])

    found = attribute(model.trace(input_ids=tokens), "blank_out", replacement="delete", target=span)
    for j in range(7):
        without = [*tokens[:j], *tokens[j + 1 :]]
        moved = [place - (j < place) for place in span]
        lost = 0.0 if j in span else probability(tokens, *span) - probability(without, *moved)
        assert float(found.scores[j]) == pytest.approx(lost, abs=1e-10)


@pytest.mark.parametrize("n", [1, 2])
def test_a_text_of_one_token_cannot_be_deleted(n: int) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    tokens = ids(n)

    def probability(read: list[int]) -> float:
        with torch.no_grad():
            return float(model.hf_model(torch.tensor([read])).logits[0].softmax(-1)[1])

    found = attribute(model.trace(input_ids=tokens), "blank_out", replacement="delete", target=1)
    expected = [0.0] if n == 1 else [probability(tokens) - probability([other]) for other in tokens[::-1]]
    assert found.scores.tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("score", ["logit", "probability", "log_probability"])
@pytest.mark.parametrize("foil", [None, 12])
def test_each_score_is_the_number_of_the_stock_model(score: str, foil: int | None) -> None:
    """The change of a masked word's logit, probability or log probability where another id stands at each place."""
    model = with_head("bert", "AutoModelForMaskedLM")
    tokens, word = ids(5), 11

    def number(read: list[int]) -> float:
        with torch.no_grad():
            logits = model.hf_model(torch.tensor([read])).logits[0, 3]
        if score == "logit":
            return float(logits[word] - (0 if foil is None else logits[foil]))
        choices = logits if foil is None else logits[[word, foil]]
        share = choices.softmax(-1)[word if foil is None else 0]
        return float(share.log() if score == "log_probability" else share)

    trace = model.trace(input_ids=tokens)
    found = attribute(trace, "blank_out", replacement=8, query=3, target=word, foil=foil, score=score)
    expected = [number(tokens) - number([*tokens[:j], 8, *tokens[j + 1 :]]) for j in range(5)]
    assert found.scores.tolist() == pytest.approx(expected, abs=1e-10)


def weights_and_gradients(tokens: list[int], target: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Attention of each layer and its gradient, [head query key], as transformers' own eager attention has them."""
    stock = hf_model("bert", head="AutoModelForSequenceClassification", attention="eager")
    out = stock(torch.tensor([tokens]), output_attentions=True)
    gradients = torch.autograd.grad(out.logits[0, target], out.attentions)
    return [one[0].detach() for one in out.attentions], [one[0] for one in gradients]


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("query", [0, 3])
def test_attention_times_gradient_of_the_stock_model(target: int, query: int) -> None:
    tokens = ids(6)
    weights, gradients = weights_and_gradients(tokens, target)
    trace = with_head("bert", "AutoModelForSequenceClassification").trace(input_ids=tokens)
    found = attribute(trace, "attention_x_grad", target=target, query=query)
    expected = sum((a * g).mean(0).sum(0) for a, g in zip(weights, gradients, strict=True))
    torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-12)  # float64, another order of sums
    last = attribute(trace, "attention_grad", target=target)
    torch.testing.assert_close(last.scores, gradients[-1].mean(0).sum(0), rtol=1e-9, atol=1e-12)


def test_a_model_of_which_some_weights_were_made_in_inference_mode_is_refused() -> None:
    stock = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification"))
    layer = stock.bert.encoder.layer[1].output.dense
    with torch.inference_mode():
        layer.weight = torch.nn.Parameter(layer.weight.clone(), requires_grad=False)
    assert layer.weight.is_inference()
    assert not stock.classifier.weight.is_inference()
    trace = mixlens.load(stock).trace(input_ids=ids(5))
    for method in ("grad_x_input", "attcat", "deeplift"):
        with pytest.raises(mixlens.MixlensError, match=r"made in torch\.inference_mode, so they have no gradients"):
            attribute(trace, method)


def test_on_a_cpu_no_function_of_cuda_is_called_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_head("bert", "AutoModelForSequenceClassification")
    traces = [model.trace(input_ids=ids(5, seed)) for seed in range(3)]
    expected = attribute(traces, "grad_x_input")
    run = mixlens.Model.run_attached

    def small(self: Any, inputs: Any, **options: Any) -> Any:
        if len(inputs["input_ids"]) > 1:
            raise MemoryError
        return run(self, inputs, **options)

    monkeypatch.setattr(mixlens.Model, "run_attached", small)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: pytest.fail("a function of CUDA was called"))
    for one, other in zip(attribute(traces, "grad_x_input"), expected, strict=True):
        torch.testing.assert_close(one.scores, other.scores, rtol=1e-10, atol=1e-12)


def test_one_end_of_a_span_is_a_question_of_its_own() -> None:
    """The start alone, or the end alone: the logit, or the probability over the positions."""
    model = with_head("bert", "AutoModelForQuestionAnswering")
    tokens = ids(6)
    with torch.no_grad():
        out = model.hf_model(torch.tensor([tokens]))
        gone = model.hf_model(torch.tensor([[*tokens[:5], 7]]))
    for target, name in (((2, None), "start_logits"), ((None, 4), "end_logits")):
        place = next(one for one in target if one is not None)
        for score, number in (("logit", lambda row: row), ("probability", lambda row: row.softmax(-1))):
            options: dict[str, Any] = {"target": target, "score": score, "replacement": 7}
            found = attribute(model.trace(input_ids=tokens), "blank_out", **options)
            change = number(getattr(out, name)[0])[place] - number(getattr(gone, name)[0])[place]
            assert float(found.scores[5]) == pytest.approx(float(change), abs=1e-10)
