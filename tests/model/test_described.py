"""A model's modules in words: what changes numbers changes them, and where and how the model is held does not."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import hf_model, ids
from torch import nn

import mixlens
from mixlens.model.described import module_facts
from mixlens.model.own_code import code_print


def seen(module: Any, *given: Any) -> None:
    """A hook that changes nothing."""


class Seen:
    def __call__(self, *given: Any) -> None:
        return None


class Told(nn.Module):
    """A module that prints where it lies."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def extra_repr(self) -> str:
        return f"<function f at 0x{id(self):x}>, device=cuda:{id(self) % 1000}, size=3"

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def part(model: Any) -> Any:
    return model.encoder.layer[1].intermediate


@pytest.fixture
def lens() -> mixlens.Model:
    return mixlens.load(copy.deepcopy(hf_model("bert")), check=False)


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "hook": (
        lambda model: part(model).dense.register_forward_hook(seen),
        "encoder.layer.1.intermediate.dense: hook: seen",
    ),
    "object": (lambda model: part(model).register_forward_pre_hook(Seen()), "encoder.layer.1.intermediate: hook: Seen"),
    "partial": (
        lambda model: part(model).register_full_backward_hook(functools.partial(seen)),
        "intermediate: hook: seen",
    ),
    "forward": (lambda model: setattr(part(model), "forward", seen), "encoder.layer.1.intermediate: forward: seen"),
    "module": (
        lambda model: setattr(part(model), "dense", Told(part(model).dense)),
        "intermediate.dense: forward: Told.forward",
    ),
    "activation": (lambda model: setattr(part(model), "intermediate_act_fn", nn.Tanh()), "intermediate_act_fn: Tanh()"),
    "epsilon": (lambda model: setattr(model.encoder.layer[0].output.LayerNorm, "eps", 1.0), "eps=1.0"),
    "scale": (lambda model: setattr(model.encoder.layer[0].attention.self, "scaling", 0.125), "scaling=0.125"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_numbers_is_in_the_words(lens: mixlens.Model, change: str) -> None:
    before, (changed, says) = module_facts(lens), CHANGES[change]
    changed(lens.hf_model)
    new = [line for line in module_facts(lens) if line not in before]
    assert any(says in line for line in new), new


def test_a_hook_on_every_module_is_in_the_words(lens: mixlens.Model) -> None:
    before = module_facts(lens)
    handle = nn.modules.module.register_module_forward_hook(seen)
    new = [line for line in module_facts(lens) if line not in before]
    handle.remove()
    assert new == [f"a hook on every module: seen (code {code_print(seen)})"]
    assert module_facts(lens) == before


def test_passes_modes_and_copies_change_nothing(lens: mixlens.Model) -> None:
    before = module_facts(lens)
    mixlens.mix(lens.trace(input_ids=ids(9)), ["alti", "hta_layer"])
    lens.hf_model(torch.tensor([ids(30)]), output_hidden_states=True)
    lens.hf_model.train()
    assert module_facts(lens) == before
    assert module_facts(mixlens.load(copy.deepcopy(lens.hf_model).float(), check=False)) == before
    part(lens.hf_model).dense = Told(part(lens.hf_model).dense)
    told = module_facts(lens)
    assert "encoder.layer.1.intermediate.dense: Told(<function f >, , size=3) " in told
    assert told == module_facts(mixlens.load(copy.deepcopy(lens.hf_model), check=False))


def test_which_adapter_acts_is_in_the_words_and_where_it_lies_is_not() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "embed_tokens"])
    wrapped = peft.get_peft_model(copy.deepcopy(hf_model("llama")), config)
    wrapped.add_adapter("other", config)
    lens = mixlens.load(wrapped, check=False)
    before = module_facts(lens)
    assert not any("Parameter containing" in line for line in before)
    wrapped.set_adapter("other")
    other = module_facts(lens)
    wrapped.base_model.disable_adapter_layers()
    disabled = module_facts(lens)
    wrapped.base_model.enable_adapter_layers()
    assert module_facts(lens) == other
    wrapped.base_model.model.layers[0].self_attn.q_proj.scaling["other"] = 9.0
    assert len({tuple(one) for one in (before, other, disabled, module_facts(lens))}) == 4


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_a_pass_of_a_packed_model_changes_nothing(bits: str) -> None:
    pytest.importorskip("bitsandbytes")
    lens = mixlens.load("agreement", quantization=bits, check=False)
    before = module_facts(lens)
    lens.hf_model(torch.tensor([ids(9)]))
    assert module_facts(lens) == before
