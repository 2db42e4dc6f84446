"""Methods that take gradients take them whatever the caller has switched: no_grad, inference_mode, autocast,
compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conftest import QUICK, hf_model, ids

import mixlens
from mixlens.base import errors
from mixlens.scoring import attributions

GRADIENTS = [name for name, method in attributions.known().items() if method.needs_target]
OPTIONS: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 4},
    "blank_out": {"replacement": "zero"},
    **QUICK,
}
HEAD = "AutoModelForSequenceClassification"
pytestmark = pytest.mark.filterwarnings(
    "ignore::mixlens.scoring.completeness.IncompleteWarning"
)  # few steps keep it quick


def scores(trace: Any, name: str) -> torch.Tensor:
    return attributions.attribute(trace, name, **OPTIONS.get(name, {})).scores


def float32(case: str) -> Any:
    return copy.deepcopy(hf_model(case, head=HEAD)).float()


def test_the_methods_tried_are_all_that_explain_a_prediction() -> None:
    wanted = {
        "grad_l2",
        "grad_x_input",
        "attcat",
        "cat",
        "integrated_gradients",
        "deeplift",
        "attention_grad",
        "transatt",
    }
    assert wanted <= set(GRADIENTS)


@pytest.mark.parametrize("case", ["bert", "llama"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_what_the_caller_switched_changes_nothing(name: str, case: str) -> None:
    """Equal bits: the same operations run, on the same numbers."""
    model = mixlens.load(float32(case))
    trace = model.trace(input_ids=ids(6))
    wanted = scores(trace, name)
    for block in (
        torch.no_grad(),
        torch.set_grad_enabled(False),
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
    ):
        with block:
            assert torch.equal(scores(trace, name), wanted)
    assert torch.is_grad_enabled()  # set_grad_enabled(False) as a block gives back what was there
    with torch.inference_mode():
        assert torch.equal(scores(model.trace(input_ids=ids(6)), name), wanted)
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled()
        seen_inside = model.trace(input_ids=ids(6))
    assert torch.equal(scores(seen_inside, name), wanted)


def test_the_precision_that_is_told_is_the_one_that_was_used() -> None:
    trace = mixlens.load(float32("bert")).trace(input_ids=ids(6))
    with torch.autocast("cpu", torch.bfloat16):
        read = attributions.attribute(trace, "grad_x_input")
        assert torch.is_autocast_enabled("cpu")
    assert read.info["dtype"] == "float32"
    assert torch.equal(read.scores, attributions.attribute(trace, "grad_x_input").scores)


def test_weights_without_gradients_are_refused_in_one_line() -> None:
    with torch.inference_mode():
        model = mixlens.load(copy.deepcopy(hf_model("bert", head=HEAD)))
    trace = model.trace(input_ids=ids(5))
    assert float(scores(trace, "raw_attention").sum()) == pytest.approx(1)
    for name in ("grad_l2", "attcat", "deeplift", "integrated_gradients"):
        with pytest.raises(errors.ModelError, match=r"made (in|under) torch\.inference_mode.*Load the model outside"):
            scores(trace, name)


def test_a_model_compiled_in_place_gives_the_numbers_of_the_model() -> None:
    """DeepLift and LRP have rules for the functions that the modules call; compiled code does not call them."""
    hf = float32("llama")
    trace = mixlens.load(hf).trace(input_ids=ids(6))
    names = ("deeplift", "attcat", "grad_x_input", "transatt", "integrated_gradients")
    wanted = {name: scores(trace, name) for name in names}
    hf.compile(backend="aot_eager")
    hf.model.layers[0].compile(backend="aot_eager")
    for name in names:
        assert torch.equal(scores(trace, name), wanted[name])


def test_nothing_is_switched_where_nothing_was() -> None:

    model = mixlens.load(float32("bert"))
    with torch.no_grad(), attributions.differentiable([model]):
        assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
