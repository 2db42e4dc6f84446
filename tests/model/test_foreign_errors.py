"""A hook or a patched module that fails where mixlens runs it is named in one line; errors of others stay what they
are."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import hf_model, ids

import mixlens
from mixlens.base import errors
from mixlens.model import user_code

LENGTH = 9


def at_a_position(module: Any, args: Any, output: Any) -> Any:
    """A hook for texts of one length."""
    output = output.clone()
    output[0, LENGTH - 1] *= 1.0
    return output


def in_half_precision(module: Any, args: Any, output: Any) -> Any:
    return (output.flatten(0, -2) @ torch.eye(output.shape[-1], dtype=torch.bfloat16)).view_as(output)


def in_place(module: Any, args: Any, output: Any) -> None:
    output[0].mul_(1.0)


@pytest.mark.parametrize(
    ("hook", "dtype", "ask"),
    [
        (at_a_position, torch.float32, lambda trace: mixlens.mix(trace, "value_zeroing")),
        (at_a_position, torch.float32, lambda trace: mixlens.mix(trace, "hta_layer")),
        (in_half_precision, torch.bfloat16, lambda trace: mixlens.mix(trace, "value_zeroing")),
        (in_half_precision, torch.bfloat16, lambda trace: mixlens.mix(trace, "hta_layer")),
        (in_place, torch.float32, lambda trace: mixlens.attribute(trace, "partial_lrp")),
        (in_place, torch.float32, lambda trace: mixlens.attribute(trace, "transatt")),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_a_failing_hook_is_named_or_right(
    hook: Callable[..., Any], dtype: torch.dtype, ask: Callable[[Any], Any]
) -> None:
    """The numbers of the model, or one line; never an error of torch."""
    stock = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification")).to(dtype)
    trace_of = mixlens.load(stock).trace
    stock.base_model.encoder.layer[1].output.dense.register_forward_hook(hook)
    with contextlib.suppress(mixlens.MixlensError):
        assert ask(trace_of(input_ids=ids(LENGTH))).scores.isfinite().all()


def test_the_line_names_the_hook_and_what_it_raised() -> None:
    stock = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification")).float()
    lens = mixlens.load(stock)

    def broken(module: Any, args: Any, output: Any) -> Any:
        raise IndexError("place 8 is out of range\nand more")

    stock.base_model.encoder.layer[1].output.dense.register_forward_hook(broken)
    with pytest.raises(
        errors.ModelError, match=r"broken, test_foreign_errors.py:\d+\): IndexError: place 8 is out of range\. "
    ):
        lens.trace(input_ids=ids(5))


def test_a_model_that_was_moved_to_the_meta_device_is_refused() -> None:
    lens = mixlens.load(copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification")).float())
    lens.hf_model.to("meta")
    with pytest.raises(errors.ModelError, match="on the meta device, which holds no numbers"):
        lens.trace(input_ids=ids(5))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), errors.ModelError("own")]
)
def test_errors_of_memory_and_our_own_stay(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, user_code.named_errors():
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/e/site-packages/torch/nn/linear.py", None),
        ("/e/site-packages/transformers/models/bert.py", None),
        ("<frozen importlib._bootstrap>", None),
        (threading.__file__, None),
        (mixlens.__file__, None),
        ("/e/site-packages/others/hooks.py", "fail, hooks.py:1"),
        ("/home/me/hooks.py", "fail, hooks.py:1"),
    ],
)
def test_whose_code_it_is(file: str, named: str | None) -> None:
    space: dict[str, Any] = {}
    exec(compile("def fail(module, args): raise RuntimeError('x')", file, "exec"), space)
    with pytest.raises(RuntimeError) as raised:
        space["fail"](None, None)
    assert user_code.place_of_user_code(raised.value) is None  # no module was run: whoever called it knows
    module = torch.nn.Identity()
    module.register_forward_pre_hook(space["fail"])
    with pytest.raises(RuntimeError) as raised:
        module(torch.ones(1))
    assert user_code.place_of_user_code(raised.value) == named


def test_a_hook_that_refuses_a_value_is_not_the_model_that_refuses_the_text() -> None:
    stock = copy.deepcopy(hf_model("bert", head="AutoModelForSequenceClassification"))
    lens = mixlens.load(stock)

    def strict(module: Any, args: Any, output: Any) -> Any:
        raise ValueError("no such feature")

    def strict_in_torch(module: Any, args: Any, output: Any) -> Any:
        return torch.nn.functional.dropout(output, p=2.0)

    for hook, says in ((strict, "ValueError: no such feature"), (strict_in_torch, "ValueError: dropout probability")):
        handle = stock.base_model.encoder.layer[1].output.dense.register_forward_hook(hook)
        with pytest.raises(errors.ModelError, match=rf"failed \({hook.__name__}, test_foreign_errors.py:\d+\): {says}"):
            lens.trace(input_ids=ids(5))
        handle.remove()


def test_what_the_stock_model_refuses_below_a_users_forward_is_its_own_refusal() -> None:
    stock = copy.deepcopy(hf_model("bert"))
    for layer in stock.encoder.layer:
        layer.chunk_size_feed_forward = 3  # transformers refuses a length that it does not divide
    own = stock.forward

    def timed(**given: Any) -> Any:
        return own(**given)

    stock.forward = timed
    with pytest.raises(mixlens.MixlensError, match="itself refuses this input"):
        mixlens.load(stock, check=False).trace(input_ids=ids(11))
