"""Models in wrappers, in unusual modes and settings: the right answer, or one clear line that names what is in the
way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import peft
import pytest
import torch
import transformers
from conftest import SMALL, hf_model, ids, randomise
from torch import nn

import mixlens
from mixlens.model import families

MAPS = ["alti", "globenc", "value_zeroing"]


def stock(case: str, head: str = "AutoModel", dtype: torch.dtype = torch.float64) -> Any:
    return copy.deepcopy(hf_model(case, head=head)).to(dtype)


def expected(case: str, names: list[str] = MAPS, **options: Any) -> dict[str, torch.Tensor]:
    lens = mixlens.load(stock(case, **options))
    return {name: made.scores for name, made in mixlens.mix(lens.trace(input_ids=ids(7)), names).items()}


def assert_maps(lens: Any, wanted: dict[str, torch.Tensor], close: float = 1e-9) -> None:
    made = mixlens.mix(lens.trace(input_ids=ids(7)), list(wanted))
    for name, scores in wanted.items():
        torch.testing.assert_close(made[name].scores, scores, rtol=close, atol=close, msg=name)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(mixlens.MixlensError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# --- wrappers ---------------------------------------------------------------------------------------------------------


def test_a_peft_model_is_unwrapped() -> None:
    wrapped = peft.get_peft_model(
        stock("llama", "AutoModelForCausalLM"), peft.LoraConfig(target_modules=["q_proj", "o_proj"])
    )
    lens = mixlens.load(wrapped)
    assert lens.task == "causal-lm"
    assert_maps(lens, expected("llama", head="AutoModelForCausalLM"))  # a new adapter changes nothing
    merged = mixlens.load(wrapped.merge_and_unload())
    assert_maps(merged, expected("llama", head="AutoModelForCausalLM"))


def test_prompt_tuning_is_refused_by_name() -> None:
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    wrapped = peft.get_peft_model(stock("llama", "AutoModelForCausalLM", torch.float32), config)
    assert "prompt or prefix tuning" in refusal(lambda: mixlens.load(wrapped))


def trained(wrapped: Any) -> Any:
    """With adapters that change something."""
    generator = torch.Generator().manual_seed(1)
    for weights in wrapped.parameters():
        if weights.requires_grad:
            weights.data += 0.4 * torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
    return wrapped.eval()


ADAPTED = {"target_modules": ["q_proj", "v_proj", "o_proj", "up_proj"], "task_type": "CAUSAL_LM"}


def test_an_activated_adapter_is_refused_by_name() -> None:
    config = peft.LoraConfig(r=4, alora_invocation_tokens=ids(9)[4:6], **ADAPTED)
    wrapped = trained(peft.get_peft_model(stock("llama", "AutoModelForCausalLM"), config))
    assert "adapter 'default' of this PeftModelForCausalLM is an activated LoRA (aLoRA)" in refusal(
        lambda: mixlens.load(wrapped)
    )
    assert mixlens.load(wrapped.get_base_model()).trace(input_ids=ids(9)).logits.isfinite().all()


def test_a_mixed_wrapper_is_unwrapped() -> None:
    wrapped = peft.get_peft_model(stock("llama", "AutoModelForCausalLM"), peft.LoraConfig(r=4, **ADAPTED), mixed=True)
    wrapped.add_adapter("other", peft.LoHaConfig(r=4, **ADAPTED))
    wrapped.set_adapter(["default", "other"])
    trained(wrapped)
    lens = mixlens.load(wrapped)
    with torch.no_grad():
        own = wrapped(input_ids=torch.tensor([ids(9)])).logits[0, -1]
    torch.testing.assert_close(lens.trace(input_ids=ids(9)).logits[-1], own)


def test_a_wrapper_that_computes_something_else_is_refused() -> None:
    wrapped = trained(peft.get_peft_model(stock("llama", "AutoModelForCausalLM"), peft.LoraConfig(r=4, **ADAPTED)))
    mixlens.load(wrapped)

    def doubled(module: Any, args: Any, output: Any) -> Any:
        output.logits = 2 * output.logits
        return output

    wrapped.register_forward_hook(doubled)
    said = "this PeftModelForCausalLM (adapters 'default': LORA) computes something else"
    assert said in refusal(lambda: mixlens.load(wrapped))
    assert said in refusal(lambda: mixlens.load(torch.compile(wrapped, backend="eager")))


def test_a_compiled_wrapper_is_unwrapped() -> None:
    model = stock("llama", "AutoModelForCausalLM")
    lens = mixlens.load(torch.compile(model, backend="eager"))
    assert lens.hf_model is model
    assert lens.task == "causal-lm"
    assert_maps(lens, expected("llama", head="AutoModelForCausalLM"))


@pytest.mark.parametrize("method", ["attcat", "deeplift", "grad_x_input", "partial_lrp", "alti", "value_zeroing"])
def test_a_model_compiled_in_place_is_read_as_it_is_written(method: str) -> None:
    model = stock("bert", "AutoModelForSequenceClassification")
    scores = mixlens.attribute(mixlens.load(copy.deepcopy(model)).trace(input_ids=ids(6)), method).scores
    model.compile(backend="eager")
    model.bert.encoder.layer[0].compile(backend="eager")
    made = mixlens.attribute(mixlens.load(model).trace(input_ids=ids(6)), method).scores
    torch.testing.assert_close(made, scores, rtol=1e-9, atol=1e-12)


def test_data_parallel_is_refused_with_what_to_give() -> None:
    assert "model.module" in refusal(lambda: mixlens.load(nn.DataParallel(stock("bert"))))


def test_a_default_device_of_meta_is_refused() -> None:
    model = stock("bert")
    torch.set_default_device("meta")
    try:
        said = refusal(lambda: mixlens.load(model))
    finally:
        torch.set_default_device(None)
    assert "default device" in said


# --- modes ------------------------------------------------------------------------------------------------------------

SURROUNDINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("surroundings", list(SURROUNDINGS))
def test_maps_in_any_mode_are_those_of_none(surroundings: str) -> None:
    names = [*MAPS, "hta_layer", "hta"]
    wanted, lens = expected("bert", names, dtype=torch.float32), mixlens.load(stock("bert", dtype=torch.float32))
    with SURROUNDINGS[surroundings]():
        assert_maps(lens, wanted, close=1e-4)
        trace = lens.trace(input_ids=ids(7))
        assert lens.mix(input_ids=ids(7), name="alti").info["dtype"] == "float32"
    torch.testing.assert_close(mixlens.mix(trace, "hta_layer").scores, wanted["hta_layer"], rtol=1e-4, atol=1e-5)


def test_loading_in_inference_mode() -> None:
    wanted = expected("bert")
    model = stock("bert")
    with torch.inference_mode():
        lens = mixlens.load(model)
        assert_maps(lens, wanted)
    assert_maps(lens, wanted)


def test_weights_made_in_inference_mode() -> None:
    wanted = expected("bert")
    with torch.inference_mode():
        model = stock("bert")
    lens = mixlens.load(model)
    assert_maps(lens, wanted)
    assert "inference_mode" in refusal(lambda: mixlens.mix(lens.trace(input_ids=ids(5)), "hta_layer"))
    assert "inference_mode" in refusal(lambda: mixlens.attribute(lens.trace(input_ids=ids(5)), "hta_layer"))


# --- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["gemma2", "gemma3_text", "olmo2"])
def test_float64_with_norms_in_float32_is_accepted_in_every_way(case: str) -> None:
    lens = mixlens.load(stock(case))
    traced = mixlens.mix(lens.trace(input_ids=ids(7)), MAPS)
    streamed = lens.mix(input_ids=ids(7), name=MAPS)
    for name, made in traced.items():
        torch.testing.assert_close(streamed[name].scores, made.scores, rtol=1e-6, atol=1e-8)


def test_albert_with_inner_layers() -> None:
    """Two layers in each group: a pass calls twice as many layers as `num_hidden_layers` says."""
    config = transformers.AlbertConfig(**SMALL, embedding_size=24, num_hidden_groups=1, inner_group_num=2)
    model = transformers.AlbertModel(config)
    randomise(model)
    lens = mixlens.load(model.double().eval())
    assert lens.n_layers == 6
    trace = lens.trace(input_ids=ids(7))
    made = mixlens.mix(trace, "value_zeroing").scores
    assert len(made) == len(trace.layers) == 6
    for layer in (0, 1, 5):
        whole = lens.run_with_attention(trace, layer, lambda weights: weights)
        moved = lens.run_with_attention(trace, layer, lambda weights: weights * (torch.arange(7) != 2))
        column = 1 - torch.cosine_similarity(moved, whole, dim=-1)
        first = lens.run_with_attention(trace, layer, lambda weights: weights * (torch.arange(7) != 0))
        other = 1 - torch.cosine_similarity(first, whole, dim=-1)
        torch.testing.assert_close(made[layer, :, 2] / made[layer, :, 0], column / other, rtol=1e-6, atol=1e-9)


def test_chunks_of_the_feed_forward_that_do_not_fit() -> None:
    model = stock("bert")
    model.config.chunk_size_feed_forward = 3
    for layer in model.encoder.layer:
        layer.chunk_size_feed_forward = 3
    lens = mixlens.load(model)  # nine tokens
    assert_maps_of = mixlens.mix(lens.trace(input_ids=ids(6)), "alti")
    assert assert_maps_of.scores.shape == (3, 6, 6)
    assert "refuses this input" in refusal(lambda: lens.trace(input_ids=ids(11)))


def test_fused_values_with_an_attention_module_are_refused_by_name() -> None:
    entry = next(family for family in families.FAMILIES if "gpt2" in family.model_types)
    wrong = families.Family(**{**vars(entry), "attention": "attn"})
    assert "value_layout" in refusal(lambda: mixlens.load(stock("gpt2"), family=wrong))


def test_attention_weights_that_are_kept_inside_are_told_as_they_are() -> None:
    """A module that returns no weights although it runs with eager attention: loading it so again would not help."""
    entry = next(family for family in families.FAMILIES if "bert" in family.model_types)
    wrong = families.Family(**{**vars(entry), "attention": "attention.output"})
    model = copy.deepcopy(hf_model("bert", attention="eager"))
    said = refusal(lambda: mixlens.load(model, family=wrong))
    assert "Load it with attn_implementation" not in said
    assert "keeps them" in said


def test_a_configuration_without_a_padding_token() -> None:
    model = stock("gpt2", "AutoModelForCausalLM")
    if hasattr(model.config, "pad_token_id"):
        del model.config.pad_token_id
    assert_maps(mixlens.load(model), expected("gpt2", head="AutoModelForCausalLM"))


def test_no_internal_class_reaches_a_user() -> None:
    model = stock("bert", dtype=torch.float32)
    lens = mixlens.load(model)
    trace = lens.trace(input_ids=ids(7))
    model.encoder.layer[1].attention.output.dense.weight.data.mul_(2)
    for call in (lambda: mixlens.mix(trace, "alti"), lambda: mixlens.mix([trace, trace], MAPS)):
        with pytest.raises(mixlens.MixlensError) as error:
            call()
        assert type(error.value).__module__ == "mixlens.base.errors"


def test_weights_a_hundred_times_as_large() -> None:
    """Where float32 does not hold a layer's gradient, that method is refused; the others are not told a wrong
    reason."""
    model = stock("bert", dtype=torch.float32)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1 and "embeddings" not in name:
                weights.mul_(100)
    lens = mixlens.load(model)
    trace = lens.trace(input_ids=ids(7))
    mixlens.mix(trace, ["alti", "value_zeroing"])
    try:
        mixlens.mix(trace, ["alti", "hta_layer"])
    except mixlens.MixlensError as error:
        said = str(error)
    else:
        return
    assert "hta_layer" in said
    assert "float64" in said
