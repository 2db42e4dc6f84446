"""The user's model is only read: weights, modes, hooks, attention implementation and gradients stay as they came."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DISTINCT, QUICK, hf_model, ids
from torch import nn

import mixlens
from mixlens.model import parts
from mixlens.scoring import maps, registry


def hooks_of(model: nn.Module) -> dict[str, Any]:
    """Counts of every hook on every module. transformers keeps capture hooks of its own: they were there before."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {path: [len(getattr(module, name)) for name in names] for path, module in model.named_modules()}


def state_of(model: Any) -> dict[str, Any]:
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "hooks": hooks_of(model),
        "attention": model.config._attn_implementation,
        "dtype": model.dtype,
        "gradients": [weights.requires_grad for weights in model.parameters()],
        "grad": [weights.grad for weights in model.parameters()],
        "enabled": torch.is_grad_enabled(),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in before["weights"].items():
        assert torch.equal(value, after["weights"][name]), name
    assert {k: v for k, v in before.items() if k != "weights"} == {k: v for k, v in after.items() if k != "weights"}


@pytest.mark.parametrize("case", DISTINCT)
def test_loading_tracing_and_mixing_leave_no_trace(case: str) -> None:
    model = copy.deepcopy(hf_model(case))
    model.train()
    next(iter(model.modules())).eval()  # a mixture of modes, as a user may have it
    next(model.parameters()).requires_grad_(False)
    before = state_of(model)
    lens = mixlens.load(model)
    assert lens.hf_model is model
    mixlens.mix(lens.trace(input_ids=[ids(3), ids(5)]), list(maps.known()))
    assert_same(before, state_of(model))


def test_a_dropout_model_in_train_mode_is_traced_without_dropout() -> None:
    model = copy.deepcopy(hf_model("bert")).train()
    lens = mixlens.load(model)
    first, second = (lens.trace(input_ids=ids(6)).hidden_states for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("case", ["bert", "gpt_neo"])
def test_hooks_come_off_after_an_error(case: str) -> None:
    model = copy.deepcopy(hf_model(case))
    lens = mixlens.load(model)
    before = state_of(model)

    def fail(module: nn.Module, args: Any) -> None:
        raise KeyboardInterrupt

    last = list(lens.parts)[-1].mlp_down
    handle = last.register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        lens.trace(input_ids=ids(4))
    handle.remove()
    assert_same(before, state_of(model))
    assert lens.trace(input_ids=ids(4)).layers


def test_a_change_of_dtype_is_made_on_a_copy() -> None:
    model = copy.deepcopy(hf_model("bert"))
    lens = mixlens.load(model, dtype="float32")
    assert (model.dtype, lens.dtype) == (torch.float64, torch.float32)
    assert lens.hf_model is not model
    assert mixlens.load(model).dtype == torch.float64


def test_the_users_own_hooks_keep_working_during_a_trace() -> None:
    model = copy.deepcopy(hf_model("bert"))
    lens = mixlens.load(model)
    seen: list[int] = []
    model.register_forward_hook(lambda *_: seen.append(1))
    lens.trace(input_ids=ids(4))
    assert seen == [1]


def test_a_module_without_one_of_its_parts_is_walked_through() -> None:
    """torch keeps the name of a part that is None."""
    inner, outer = nn.Linear(2, 2), nn.Module()
    outer.register_module("gate", None)
    outer.inner = inner
    assert parts.modules_of(outer) == [outer, inner]


def random_states() -> tuple[Any, ...]:
    _, keys, place, *gauss = np.random.get_state()
    return random.getstate(), keys.tolist(), place, gauss, torch.get_rng_state().tolist()  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", sorted(registry.known_attributions()))
def test_random_states_of_a_user_stay_as_they_were(method: str) -> None:
    trace = mixlens.load("sentiment", check=False).trace("A dull plot.")
    mixlens.attribute(trace, method, **QUICK.get(method, {}))  # to import a package may draw numbers
    before = random_states()
    mixlens.attribute(trace, method, **QUICK.get(method, {}))
    assert random_states() == before
