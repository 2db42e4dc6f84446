"""An attribution explains the prediction of its trace: a model that no longer does what the trace recorded is
refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import QUICK, hf_model, ids
from torch import Tensor, nn

import mixlens
from mixlens.base import errors

NAMES = (
    *("grad_l2", "grad_x_input", "attcat", "cat", "deeplift", "integrated_gradients", "smooth_grad", "gradient_shap"),
    *("transatt", "partial_lrp", "blank_out", "context_cite", "shap", "lime", "attention_x_grad"),
)


def weights(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.data.mul_(1.5)


def head(model: Any) -> None:
    (model.qa_outputs if hasattr(model, "qa_outputs") else model.classifier).weight.data.mul_(2)


def hook(model: nn.Module) -> None:
    model.get_submodule("bert.encoder.layer.1.output.dense").register_forward_hook(
        lambda module, args, output: 1.5 * output
    )


def hook_beside_gradients(model: nn.Module) -> None:
    def act(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return 1.5 * output if torch.is_grad_enabled() else output

    model.get_submodule("bert.encoder.layer.1.output.dense").register_forward_hook(act)


def noise(model: nn.Module) -> None:
    model.get_submodule("bert.encoder.layer.1.output.dense").register_forward_hook(
        lambda module, args, output: torch.nn.functional.dropout(output, 0.5, training=True)
    )


OPTIONS = {**QUICK, "blank_out": {"replacement": "delete"}}


def made(dtype: torch.dtype = torch.float32, task: str = "SequenceClassification") -> tuple[Any, Any]:
    model = copy.deepcopy(hf_model("bert", head=f"AutoModelFor{task}")).to(dtype)
    return model, mixlens.load(model)


CHANGES: list[Callable[[Any], None]] = [weights, head, hook]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_was_changed_after_the_trace_is_refused(name: str, change: Callable[[Any], None]) -> None:
    model, lens = made()
    trace = lens.trace(input_ids=ids(7))
    mixlens.attribute(trace, name, **OPTIONS.get(name, {}))
    change(model)
    with pytest.raises(errors.ModelError, match="when the text was traced"):
        mixlens.attribute(trace, name, **OPTIONS.get(name, {}))
    mixlens.attribute(lens.trace(input_ids=ids(7)), name, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("change", [hook_beside_gradients, noise])
@pytest.mark.parametrize("name", ["grad_l2", "attcat", "deeplift", "transatt"])
def test_a_pass_with_gradients_that_is_another_is_refused(name: str, change: Callable[[Any], None]) -> None:
    model, lens = made()
    change(model)
    trace = lens.trace(input_ids=ids(7))
    with pytest.raises(errors.ModelError, match=r"when the text was traced|rows of a batch"):
        mixlens.attribute(trace, name)


def test_each_text_of_a_batch_is_compared() -> None:
    model, lens = made()
    old = lens.trace(input_ids=ids(7))
    weights(model)
    for traces in ([old, lens.trace(input_ids=ids(5))], [lens.trace(input_ids=ids(5)), old]):
        with pytest.raises(errors.ModelError, match="when the text was traced"):
            mixlens.attribute(traces, "grad_l2")


def test_hta_and_attention_are_of_one_model() -> None:
    model, lens = made()
    trace = lens.trace(input_ids=ids(5))
    for layer in model.bert.encoder.layer:
        layer.attention.self.query.weight.data.mul_(3)
    with pytest.raises(errors.ModelError, match="what layer 0 writes is not what it was when the text was traced"):
        mixlens.mix(trace, ["attention", "hta"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_change(dtype: torch.dtype) -> None:
    _, lens = made(dtype)
    for name in ("grad_l2", "attcat", "blank_out"):
        mixlens.attribute([lens.trace(input_ids=ids(n)) for n in (3, 12)], name, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("task", ["QuestionAnswering", "TokenClassification"])
def test_logits_of_every_task_are_compared(task: str) -> None:
    model, lens = made(task=task)
    trace = lens.trace(input_ids=ids(5))
    head(model)
    with pytest.raises(errors.ModelError, match="what the model puts out is not what it was"):
        mixlens.attribute(trace, "grad_l2")
