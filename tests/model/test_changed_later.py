"""What a user changes after loading, or sets in torch, and arguments of other types: it works, or one line says what to
do."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import hf_model, ids, loaded
from torch.nn.utils import prune
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import mixlens

CLASSIFIER = "AutoModelForSequenceClassification"
ADDED = "A wonderful!! plot."


@pytest.fixture
def sentiment() -> mixlens.Model:
    return mixlens.load("sentiment", check=False)


@pytest.fixture
def meta() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(mixlens.MixlensError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# --- the tokenizer and the configuration ------------------------------------------------------------------------------


def test_a_token_that_the_model_has_no_embedding_for_is_refused(sentiment: mixlens.Model) -> None:
    sentiment.tokenizer.add_tokens(["wonderful!!"])
    said = refusal(lambda: sentiment.trace(ADDED))
    assert "the tokenizer gives 'wonderful!!' the id 278, and 'sentiment' has embeddings for 0 to 277" in said
    assert "resize_token_embeddings" in said
    sentiment.hf_model.resize_token_embeddings(len(sentiment.tokenizer))
    assert "wonderful!!" in sentiment.trace(ADDED).tokens


def test_in_a_run_such_a_text_is_one_bad_row(sentiment: mixlens.Model, tmp_path: Path) -> None:
    sentiment.tokenizer.add_tokens(["wonderful!!"])
    done = mixlens.run(
        ["A plot.", ADDED, "A film."], out=tmp_path / "run", model=sentiment, methods=["attention"], progress=False
    )
    assert (done.rows, done.errors) == (2, 1)
    (bad,) = map(json.loads, (tmp_path / "run/errors.jsonl").read_text().splitlines())
    assert "resize_token_embeddings" in json.dumps(bad)


@pytest.mark.parametrize("head", ["AutoModelForCausalLM", CLASSIFIER])
def test_a_padding_id_below_zero_is_none(head: str) -> None:
    model = copy.deepcopy(hf_model("llama", head=head))
    model.config.pad_token_id = -1
    for n, trace in zip((4, 9), mixlens.load(model).trace(input_ids=[ids(4), ids(9)]), strict=True):
        assert_close(trace.logits, loaded("llama", head=head).trace(input_ids=ids(n)).logits)


def test_outputs_without_names_are_asked_for_by_name(sentiment: mixlens.Model) -> None:
    expected = mixlens.attribute(sentiment.trace("A plot."), "grad_l2").scores
    sentiment.hf_model.config.return_dict = False
    assert_close(mixlens.attribute(sentiment.trace("A plot."), "grad_l2").scores, expected)


def test_a_classifier_without_names_of_classes_is_refused(sentiment: mixlens.Model) -> None:
    sentiment.hf_model.config.id2label = None
    assert "names no classes (id2label)" in refusal(lambda: sentiment.trace("A plot.").prediction())


# --- settings of torch ------------------------------------------------------------------------------------------------


def test_pruned_modules_are_widened() -> None:
    model = copy.deepcopy(hf_model("llama")).to(torch.bfloat16)
    for layer in model.layers:
        prune.l1_unstructured(layer.mlp.up_proj, "weight", 0.5)
    pruned = mixlens.mix(mixlens.load(model).trace(input_ids=ids(9)), "hta_layer").scores
    for layer in model.layers:
        prune.remove(layer.mlp.up_proj, "weight")
    assert_close(pruned, mixlens.mix(mixlens.load(model).trace(input_ids=ids(9)), "hta_layer").scores)


@pytest.mark.parametrize(
    "setting", [lambda: torch.autograd.set_detect_anomaly(True), lambda: FlopCounterMode(display=False)]
)
@pytest.mark.parametrize("case", ["bert", "llama", "gptj"])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_hta_where_torch_watches(setting: Callable[[], Any], case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(5))
    expected = mixlens.mix(trace, "hta_layer").scores
    with setting():
        assert_close(mixlens.mix(trace, "hta_layer").scores, expected)


@pytest.mark.parametrize(
    ("verb", "method"),
    [
        *((mixlens.mix, name) for name in ("alti", "value_zeroing", "hta")),
        *((mixlens.attribute, name) for name in ("transatt", "grad_l2", "lime")),
    ],
)
def test_methods_with_a_default_device_of_meta(verb: Any, method: str, request: pytest.FixtureRequest) -> None:
    trace = loaded("bert", head=CLASSIFIER).trace(input_ids=ids(5))
    request.getfixturevalue("meta")
    assert "torch's default device is 'meta'" in refusal(lambda: verb(trace, method))


# --- arguments and copies ---------------------------------------------------------------------------------------------


def test_arguments_of_other_types() -> None:
    assert (
        refusal(lambda: mixlens.attribute(None, "grad_l2"))
        == "attribute takes a Trace or a list of traces, not NoneType."
    )
    said = "attribute takes a Trace or a list of traces, as model.trace gives them; for a text: model.explain."
    assert refusal(lambda: mixlens.attribute([None], "grad_l2")) == said
    for wrong in ("2", 0, 1.5, True):
        said = f"batch_size must be a whole number and at least 1, not {wrong!r}."
        assert refusal(lambda: loaded("bert").trace(input_ids=[ids(3), ids(4)], batch_size=wrong)) == said  # noqa: B023


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_models_and_traces_are_not_copied(copied: Callable[[Any], Any]) -> None:
    model = loaded("bert")
    for one in (model, model.trace(input_ids=ids(5))):
        assert "cannot be copied, or sent to another process" in refusal(lambda: copied(one))  # noqa: B023
    shallow = copy.copy(model)
    assert (shallow.hf_model, shallow.lock) == (model.hf_model, model.lock)
