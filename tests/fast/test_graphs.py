"""When a captured pass may be replayed: only as long as the model is what it was. (Replaying itself: test_gpu.py.)"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from conftest import hf_model
from torch import nn

from mixlens.fast import cuda_graphs
from mixlens.model import loading


def standing(model: Any) -> cuda_graphs.Standing:
    return cuda_graphs.Standing(model).remember()


def one(model: Any) -> Any:
    """Some layer of it."""
    return model.base_model.encoder.layer[1]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda m: one(m).output.register_forward_hook(lambda *_: None),
    "a hook before": lambda m: one(m).register_forward_pre_hook(lambda *_: None),
    "a number": lambda m: setattr(one(m).output.LayerNorm, "eps", 0.5),
    "a new module": lambda m: setattr(one(m).intermediate, "intermediate_act_fn", nn.ReLU()),
    "one more module": lambda m: one(m).add_module("extra", nn.Identity()),
    "a method": lambda m: setattr(one(m), "forward", MethodType(type(one(m)).forward, one(m))),
    "a weight's data": lambda m: setattr(one(m).output.dense.weight, "data", one(m).output.dense.weight.data.clone()),
    "a new weight": lambda m: setattr(one(m).output.dense, "weight", nn.Parameter(one(m).output.dense.weight.data)),
    "another dtype": lambda m: m.float(),
    "a configuration": lambda m: setattr(m.config, "hidden_act", "relu"),
    "a list": lambda m: m.notes.append(1),
    "training": lambda m: m.train(),
}


@pytest.fixture
def model() -> Any:
    made = copy.deepcopy(hf_model("bert"))
    made.notes = []
    return made


def test_a_model_left_alone_is_the_same(model: Any) -> None:
    before = standing(model)
    assert before == cuda_graphs.Standing(model)
    with torch.no_grad():
        one(model).output.dense.weight.mul_(1.5)  # read anew when it is replayed
        model(input_ids=torch.tensor([[1, 2, 3]]))
    assert before == cuda_graphs.Standing(model)


@pytest.mark.parametrize("change", list(CHANGES))
def test_every_change_is_seen(model: Any, change: str) -> None:
    before = standing(model)
    CHANGES[change](model)
    assert before != cuda_graphs.Standing(model)


def test_a_class_that_does_something_else_is_seen(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = standing(model)
    monkeypatch.setattr(type(one(model)), "forward", lambda self, x: x)
    assert before != cuda_graphs.Standing(model)


def test_a_hook_on_all_modules_is_seen(model: Any) -> None:
    before = standing(model)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert before != cuda_graphs.Standing(model)
    finally:
        handle.remove()
    assert before == cuda_graphs.Standing(model)


def test_weights_that_something_was_made_of_are_counted(model: Any) -> None:
    """A metric of W_O is made once: then a change in place counts, too."""
    parts = loading.load(model).parts

    def counted() -> cuda_graphs.Standing:
        return cuda_graphs.Standing(model, [cuda_graphs._weights(part) for part in parts]).remember()

    before = counted()
    assert before == counted()
    with torch.no_grad():
        one(model).attention.output.dense.weight.mul_(1.5)
    assert before != counted()


def test_copies_are_whole_and_their_own() -> None:
    """Nested, each tensor once, strides and all else as it was."""
    a, b = torch.rand(3, 4).T, torch.arange(5)
    made = {"x": [a, (b, "word", None)], "again": a, "number": 0.5, "none": None}
    copy_of = cuda_graphs.copied(made)
    assert copy_of["again"] is copy_of["x"][0]
    assert copy_of["x"][0].stride() == a.stride()
    a.zero_(), b.zero_()
    assert float(copy_of["again"].abs().sum()) > 0
    assert copy_of["x"][1][0].tolist() == [0, 1, 2, 3, 4]
    assert copy_of["x"][1][1:] == ("word", None)
    assert (copy_of["number"], copy_of["none"]) == (0.5, None)
