"""A hook between two layers, a borrowed attention, a changed direction: refused."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import transformers
from conftest import hf_model, ids
from torch import Tensor, nn

import mixlens

SECOND = {"bert": "encoder.layer.1.output.dense", "gpt2": "h.1.mlp.c_proj", "llama": "layers.1.mlp.down_proj"}


def test_an_attention_that_borrows_the_name_of_a_module_is_compared_on_every_text() -> None:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    @functools.wraps(sdpa_attention_forward)
    def borrowed(module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        if value.shape[-2] > 12:
            value = value.clone()
            value[..., 0, :] = 0
        return sdpa_attention_forward(module, query, key, value, *rest, **options)

    assert borrowed.__module__.startswith("transformers.")
    transformers.AttentionInterface.register("borrowed", borrowed)
    transformers.AttentionMaskInterface.register("borrowed", sdpa_mask)
    model = copy.deepcopy(hf_model("llama")).float()
    model.set_attn_implementation("borrowed")
    lens = mixlens.load(model)
    lens.trace(input_ids=ids(9))
    with pytest.raises(mixlens.MixlensError, match="borrowed"):
        lens.trace(input_ids=ids(20))


def test_a_direction_changed_in_the_configuration_is_seen() -> None:
    model = copy.deepcopy(hf_model("bert")).float()
    lens = mixlens.load(model)
    lens.trace(input_ids=ids(9))
    model.config.is_decoder = True
    try:
        trace = lens.trace(input_ids=ids(9))
    except mixlens.MixlensError:
        return
    with torch.no_grad():
        stock = model(torch.tensor([ids(9)]), output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(trace.hidden_states[-1], stock, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_change_between_two_layers_is_seen(case: str, streamed: bool) -> None:
    """Maps of layers are multiplied as if each layer read what the last one wrote."""
    model = copy.deepcopy(hf_model(case)).float()
    lens = mixlens.load(model)

    def made() -> Any:
        return (
            lens.mix(input_ids=ids(9), name="alti") if streamed else mixlens.mix(lens.trace(input_ids=ids(9)), "alti")
        )

    expected = made().scores
    layer = model.get_submodule(SECOND[case].partition(".1.")[0])[1]

    def flipped(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if args:
            return (args[0].flip(1), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": kwargs["hidden_states"].flip(1)}

    hook = layer.register_forward_pre_hook(flipped, with_kwargs=True)
    with pytest.raises(mixlens.MixlensError, match="layer 2 does not read what layer 1 wrote"):
        made()
    hook.remove()
    torch.testing.assert_close(made().scores, expected)
    layer.register_forward_hook(
        lambda module, args, output: first_scaled(output)
    )  # a change of what a layer writes is its own
    made()


def first_scaled(output: Any) -> Any:
    return (output[0] * 1.0, *output[1:]) if isinstance(output, tuple) else output * 1.0


def test_the_weights_of_a_patched_module_or_under_a_global_hook_are_not_read() -> None:
    """A forward of the module's own, or a hook on every module of torch, may do anything: the module is asked."""
    from mixlens.layer import weights

    module = nn.Linear(4, 4)
    assert weights.is_plain(module)
    own = module.forward
    module.forward = lambda x: own(x) * 3  # type: ignore[method-assign]
    assert not weights.is_plain(module)
    torch.testing.assert_close(weights.linear_weight(module, 4, torch.float32), 3 * module.weight.detach().t())
    other = nn.Linear(4, 4)
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = register(lambda module, *given: None)
        try:
            assert weights.is_hooked(other)
            assert not weights.is_plain(other)
        finally:
            handle.remove()
    assert weights.is_plain(other)
