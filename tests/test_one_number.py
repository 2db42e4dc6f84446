"""A model with one output gives a number and no class: it is told as a number, and nothing is asked that needs a
probability."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from conftest import randomise

import mixlens
from mixlens.base import errors
from mixlens.metrics import faithfulness
from mixlens.model import predict
from mixlens.runs.corpus import taken_out
from mixlens.runs.judge import judge

TEXT = "The keys were rusty."


@pytest.fixture(scope="module")
def lens() -> Any:
    tokenizer = mixlens.load("agreement").tokenizer
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=1,
    )
    model = transformers.BertForSequenceClassification(config)
    randomise(model)
    return mixlens.load(model.to(torch.float64).eval(), tokenizer=tokenizer)


def test_the_number_is_told_and_no_class(lens: Any, capsys: pytest.CaptureFixture[str]) -> None:
    trace = lens.trace(TEXT)
    assert trace.prediction() == []
    assert predict.predictions([trace, trace]) == [[], []]
    told = f"this model gives one number and no class: {float(trace.logits[0]):.4g} for this text."
    for method in ("alti", "attcat"):
        read = lens.explain(TEXT, method=method)
        assert read.info["prediction"] == []
        assert read.info["notices"] == [told]
        read.show()
        shown = capsys.readouterr().out
        assert f"note: {told}" in " ".join(shown.split())
        assert "100" not in shown


def test_a_probability_is_refused(lens: Any) -> None:
    with pytest.raises(
        errors.InputError, match=r"gives one number and no class, so it has no probability\..*score='logit'\.$"
    ):
        lens.explain(TEXT, method="attcat", score="probability")
    with pytest.raises(errors.InputError, match=r"gives one number and no class, so it has no probability\."):
        faithfulness.aopc(lens.trace(TEXT), lens.explain(TEXT, method="attcat").scores)


def test_methods_are_not_judged_by_a_probability_that_never_moves(lens: Any) -> None:
    with pytest.raises(
        errors.InputError, match="gives one number and no class, so there is no probability that could fall"
    ):
        judge.judge(lens, [mixlens.Example(TEXT)], methods=["attcat"], n=1)


def test_a_run_cannot_check_whether_a_number_turns(lens: Any) -> None:
    with pytest.raises(errors.InputError, match=r"gives one number and no class.*Leave trust= out\.$"):
        taken_out.refuse_trust(lens, "predicted", None)
