"""A user's own code in a model is found wherever it acts; code of the packages that models are made of is not taken for
it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from conftest import CONFIGURATIONS, hf_model, ids, loaded
from torch import Tensor, nn

import mixlens
from mixlens.model import user_code


def seen(module: nn.Module, *given: Any, **more: Any) -> None:
    """A hook that changes nothing."""


class Seen:
    def __call__(self, *given: Any, **more: Any) -> None:
        return None

    def hook(self, *given: Any, **more: Any) -> None:
        return None


class Own(nn.Linear):
    pass


@functools.wraps(nn.Linear.forward)
def borrowed(self: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(x, self.weight, self.bias)


def part(model: nn.Module) -> nn.Linear:
    return model.get_submodule("encoder.layer.1.intermediate.dense")  # type: ignore[return-value]


@contextmanager
def removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name) if before is None else setattr(owner, name, before)


@contextmanager
def own_module(model: nn.Module) -> Iterator[None]:
    place, before = model.get_submodule("encoder.layer.1.intermediate"), part(model)
    place.dense = Own(before.in_features, before.out_features)
    try:
        yield
    finally:
        place.dense = before


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attention(*given: Any, **more: Any) -> Any:
        return sdpa_attention_forward(*given, **more)

    before = model.config._attn_implementation
    transformers.AttentionInterface.register("of a user", attention)
    transformers.AttentionMaskInterface.register("of a user", sdpa_mask)
    model.set_attn_implementation("of a user")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


EVERYWHERE = torch.nn.modules.module
OWN: dict[str, Callable[[Any], Any]] = {
    "hook": lambda model: removed(part(model).register_forward_hook(seen)),
    "hook before": lambda model: removed(part(model).register_forward_pre_hook(seen)),
    "hook on gradients": lambda model: removed(part(model).register_full_backward_hook(seen)),
    "hook before gradients": lambda model: removed(part(model).register_full_backward_pre_hook(seen)),
    "hook on the whole": lambda model: removed(model.register_forward_hook(seen)),
    "hook everywhere": lambda model: removed(EVERYWHERE.register_module_forward_hook(seen)),
    "hook before everywhere": lambda model: removed(EVERYWHERE.register_module_forward_pre_hook(seen)),
    "hook on all gradients": lambda model: removed(EVERYWHERE.register_module_full_backward_hook(seen)),
    "object": lambda model: removed(part(model).register_forward_hook(Seen())),
    "method": lambda model: removed(part(model).register_forward_hook(Seen().hook)),
    "partial": lambda model: removed(part(model).register_forward_hook(functools.partial(seen))),
    "forward": lambda model: replaced(part(model), "forward", lambda x: x),
    "forward of a class": lambda model: replaced(type(model.embeddings), "forward", borrowed),
    "module": own_module,
    "attention": own_attention,
}


@pytest.fixture(scope="module")
def lens() -> mixlens.Model:
    return mixlens.load(copy.deepcopy(hf_model("bert")))


@pytest.mark.parametrize("name", OWN)
def test_code_of_a_user_is_found_and_ends_batches(lens: mixlens.Model, name: str) -> None:
    assert lens.batch_limit is None
    with OWN[name](lens.hf_model):
        assert user_code.acts_in(lens)
        assert lens.batch_limit == 1
    assert not user_code.acts_in(lens)


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_stock_models_have_none_before_a_pass_and_after_it(case: str) -> None:
    model = loaded(case)
    assert not user_code.acts_in(model)
    model.trace(input_ids=ids(5))
    assert not user_code.acts_in(model)


def test_hooks_of_transformers_and_torch_are_none(lens: mixlens.Model) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    stock = lens.hf_model
    stock(torch.tensor([ids(5)]), output_hidden_states=True, output_attentions=True)
    stock.enable_input_require_grads()
    assert not user_code.acts_in(lens)
    with FlopCounterMode(display=False):
        stock(torch.tensor([ids(5)]))
        assert not user_code.acts_in(lens)
    stock.disable_input_require_grads()
    parts = [
        part(stock).register_forward_hook(functools.partial(nn.functional.linear))
    ]  # torch's, whatever it would do
    assert not user_code.acts_in(lens)
    parts[0].remove()


def test_adapters_are_none() -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(
        copy.deepcopy(hf_model("llama")), peft.LoraConfig(target_modules=["q_proj", "up_proj"])
    )
    assert not user_code.acts_in(mixlens.load(adapted))


def test_a_function_that_says_it_is_ours_is_known_by_its_globals(lens: mixlens.Model) -> None:
    found: list[bool] = []

    def look(module: nn.Module, args: Any, output: Any) -> None:
        found.append(user_code.is_stock(lens.hf_model))

    look.__module__ = "mixlens.test"  # by its globals it is a user's all the same
    handle = part(lens.hf_model).register_forward_hook(look)
    lens.trace(input_ids=ids(5))
    handle.remove()
    assert found
    assert not any(found)
