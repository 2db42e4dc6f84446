"""Texts that are too long are cut as the tokenizer cuts them, and counted."""

from __future__ import annotations

from typing import Any

import pytest

import mixlens
from mixlens import data
from mixlens.errors import InputError
from mixlens.experiments import run
from mixlens.types import Example

LONG = " ".join(["a good film and a bad plot ."] * 40)


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


def test_a_text_is_cut_to_what_the_model_reads(model: Any) -> None:
    whole = Example(LONG, id="1", cues=((0, 1), (len(LONG) - 1, len(LONG))), info={"label": "positive"})
    cut = data.truncated(whole, model)
    ids = model.tokenizer(LONG, truncation=True, max_length=model.max_tokens)["input_ids"]
    assert model.tokenizer(cut.text)["input_ids"] == ids
    assert cut.info["truncated"] == len(model.tokenizer(LONG)["input_ids"])
    assert cut.cues == ((0, 1),)
    assert data.truncated(Example("a good film"), model) == Example("a good film")


def test_a_pair_is_cut_at_its_longer_side(model: Any) -> None:
    cut = data.truncated(Example("a good film", LONG), model, limit=20)
    assert cut.text == "a good film"
    assert len(model.tokenizer(cut.text, cut.pair)["input_ids"]) == 20


def test_an_experiment_counts_what_is_cut(model: Any) -> None:
    examples = [Example(LONG, id="1", info={"label": "positive"}), Example("a good film", id="2", info={"label": "positive"})]
    with pytest.raises(InputError, match="are longer than the"):
        run("attcat-faithfulness", model=model, data=examples, methods=["cat"], progress=False)
    made = run("attcat-faithfulness", model=model, data=examples, methods=["cat"], truncate=True, progress=False)
    assert made.setup.truncated == 1
    assert len(made.setup.examples) == 2
