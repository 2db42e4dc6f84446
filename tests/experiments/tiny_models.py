"""Models and texts of the tests of experiments: fixtures, imported by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import mixlens
from mixlens import data


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def texts() -> list[Any]:
    return list(data.load("sentiment", n=3))


@pytest.fixture(scope="module")
def gaps() -> list[Any]:
    return list(data.load("agreement", n=3))


@pytest.fixture(scope="module")
def qa_model(model: Any) -> Any:
    """A tiny model that answers questions, at random."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(model.tokenizer), **sizes)
    return mixlens.load(transformers.BertForQuestionAnswering(config).eval(), tokenizer=model.tokenizer)
