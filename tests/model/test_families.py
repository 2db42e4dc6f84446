"""Every family, on a tiny random model in float64: the entry is what the model does, and a wrong entry is refused."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from conftest import (
    BIDIRECTIONAL,
    CAUSAL,
    CONFIGURATIONS,
    DISTINCT,
    OWN_ATTENTION,
    ROUNDED_STREAM,
    TWINS,
    hf_model,
    ids,
    loaded,
)

import mixlens
from mixlens.layer import proof as layer_proof
from mixlens.model import families

CASES = list(CONFIGURATIONS)
WITHOUT_SDPA = (*OWN_ATTENTION, "gemma2")  # transformers has no such attention for them
# Norms that compute in float32 whatever the model's dtype: their frozen form is exact, they themselves are not.
ROUNDING_NORMS = dict.fromkeys(ROUNDED_STREAM, 1e-6)


def shape(family: families.Family) -> tuple[object, ...]:
    """What an entry says beside names and paths: which parts are there, and which of them are one module."""
    paths = {name: value for name, value in asdict(family).items() if isinstance(value, str) and name != "value_layout"}
    same = {(one, other) for one in paths for other in paths if one < other and paths[one] == paths[other]}
    return frozenset(paths) - {"embedding_norm"}, frozenset(same), family.value_layout, family.parallel


def test_a_twin_has_the_shape_of_its_case() -> None:
    for twin, case in TWINS.items():
        assert case in DISTINCT
        assert shape(families.find(hf_model(twin).config)) == shape(families.find(hf_model(case).config)), twin


def test_every_family_has_a_case() -> None:
    assert {model_type for model_type, _ in CONFIGURATIONS.values()} == set(mixlens.families())
    assert {id(families.find(hf_model(case).config)) for case in CASES} == {id(family) for family in families.FAMILIES}


@pytest.mark.parametrize("case", CASES)
def test_identities_hold_to_1e_10(case: str) -> None:
    model = loaded(case)
    proof = layer_proof.measure(model, ids(13))
    for name, value in proof.gaps.items():
        rounding = name in ("norm_on_attention", "norm_after_attention", "norm_after_mlp")
        assert value < (ROUNDING_NORMS.get(case, 1e-10) if rounding else 1e-10), (name, value)
    expected = {"parts", "stream", "values", "norm_before_attention", "norm_before_mlp", "mlp", "layer", "embeddings"}
    assert expected <= set(proof.gaps)


@pytest.mark.parametrize(
    ("attention", "case"),
    [
        (attention, case)
        for attention in ("eager", "sdpa")
        for case in CASES
        if attention == "eager" or case not in WITHOUT_SDPA
    ],
)
def test_a_trace_is_what_the_stock_model_computes(attention: str, case: str) -> None:
    """Attention and hidden states against the model's own outputs: nothing of ours is in that run.

    Many eager functions of transformers compute their softmax in float32 even in a float64 model; sdpa does not.
    """
    given = torch.tensor([ids(11, seed=1)])
    stock_model = hf_model(case, attention=attention)
    exact = attention == "sdpa" or case in (*BIDIRECTIONAL[:-1], "gpt2", "gpt_neo")
    with torch.no_grad():
        stock = stock_model(given, output_hidden_states=True, output_attentions=attention == "eager")
    trace = mixlens.load(stock_model).trace(input_ids=given[0])
    for index, one in enumerate(trace.layers):
        torch.testing.assert_close(one.input, stock.hidden_states[index][0], rtol=0, atol=1e-10 if exact else 1e-4)
        if attention == "eager":
            torch.testing.assert_close(one.attention, stock.attentions[index][0], rtol=0, atol=1e-10 if exact else 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_layer_run_again_gives_the_next_layers_input(case: str) -> None:
    model = loaded(case)
    trace = model.trace(input_ids=ids(7))
    for index in range(len(trace.layers) - 1):
        again = model.rerun(trace, index, trace.layers[index].input)
        torch.testing.assert_close(again, trace.layers[index + 1].input, rtol=1e-10, atol=1e-10)
    moved = model.rerun(trace, 1, trace.layers[1].input * 1.1)
    assert (moved - trace.layers[1].output).abs().max() > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_causality_is_seen_in_the_trace(case: str) -> None:
    trace = loaded(case).trace(input_ids=ids(9))
    ahead = max(float(one.attention.triu(1).max()) for one in trace.layers)
    assert (ahead == 0) == (case in CAUSAL)
    assert trace.query == (8 if case in CAUSAL else 0)
    assert (case in BIDIRECTIONAL) != (case in CAUSAL)


@pytest.mark.parametrize("case", CASES)
def test_float32_bfloat16_and_float16_pass_their_own_check(case: str) -> None:
    for dtype, allowed in ((torch.float32, 1e-4), (torch.bfloat16, 1e-1), (torch.float16, 2e-2)):
        model = mixlens.load(hf_model(case, dtype=dtype) if dtype == torch.float32 else hf_model(case), dtype=dtype)
        assert model.dtype == dtype
        alti = mixlens.mix(model.trace(input_ids=ids(30)), ["alti", "value_zeroing"])["alti"]
        assert alti.scores.dtype == torch.float32
        assert 0 <= alti.info["gap"] < min(allowed, alti.info["tolerance"] / 2)  # no family comes near the limit


def swapped(case: str, **changes: object) -> families.Family:
    return replace(families.find(hf_model(case).config), **changes)  # type: ignore[arg-type]


BROKEN: list[tuple[str, dict[str, object]]] = [
    ("bert", {"layers": "encoder.layers"}),
    ("albert", {"layers": "encoder.albert_layer_groups"}),
    ("bert", {"value": "attention.self.key"}),
    ("bert", {"value": "attention.self.nothing"}),
    ("bert", {"output": "output.dense"}),
    ("bert", {"output": "attention.self.query"}),
    ("bert", {"mlp_up": "attention.self.query"}),
    ("bert", {"mlp_act": "intermediate.dense"}),
    ("bert", {"mlp_down": "attention.output.dense"}),
    ("bert", {"mlp_gate": "intermediate.dense"}),
    ("llama", {"mlp_gate": None}),
    ("llama", {"mlp_gate": "mlp.up_proj", "mlp_up": "mlp.gate_proj"}),
    ("gpt2", {"value_layout": "v"}),
    ("gpt2", {"value_layout": "heads"}),
    ("gpt_neox", {"value_layout": "qkv"}),
    ("llama", {"norm_before_attention": None}),
    ("llama", {"norm_before_attention": "post_attention_layernorm"}),
    ("bert", {"norm_before_attention": "output.LayerNorm"}),
    ("gemma2", {"norm_on_attention": None}),
    ("llama", {"norm_on_attention": "input_layernorm"}),
    ("bert", {"norm_after_attention": None}),
    ("bert", {"norm_after_attention": "output.LayerNorm"}),
    ("llama", {"norm_after_attention": "input_layernorm"}),
    ("llama", {"norm_before_mlp": None}),
    ("llama", {"norm_before_mlp": "input_layernorm"}),
    ("gemma2", {"norm_on_mlp": None}),
    ("bert", {"norm_after_mlp": None}),
    ("gpt2", {"norm_after_mlp": "ln_2"}),
    ("gpt_neox", {"parallel": False}),
    ("gpt_neox-sequential", {"parallel": True}),
    ("gpt_neo", {"attention": None}),
    ("bert", {"attention": "attention.self"}),
    ("bert", {"embedding_norm": None}),
    ("modernbert", {"embedding_norm": "final_norm"}),
    ("gpt2", {"embedding_norm": "ln_f"}),
    ("bert", {"embedding_norm": "encoder.layer.0.output.LayerNorm"}),
    ("bert", {"embedding_norm": "embeddings.dropout"}),
    ("electra", {"embedding_norm": "embeddings_project"}),
    ("llama", {"embedding_norm": "rotary_emb"}),
    ("albert", {"inner_layers": "num_hidden_layers"}),
]


@pytest.mark.parametrize(("case", "changes"), BROKEN)
def test_a_broken_entry_is_refused(case: str, changes: dict[str, object]) -> None:
    with pytest.raises(mixlens.MixlensError) as refusal:
        mixlens.load(hf_model(case), family=swapped(case, **changes))
    assert "\n" not in str(refusal.value)


def test_every_field_of_the_entry_is_broken_in_a_test() -> None:
    tested = {field for _, changes in BROKEN for field in changes} | {"model_types", "when"}
    assert tested == set(families.Family.__dataclass_fields__)


def test_an_entry_for_other_configurations_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tuple(
        replace(f, when={"use_parallel_residual": "never"}) if "gpt_neox" in f.model_types else f
        for f in families.FAMILIES
    )
    monkeypatch.setattr(sys.modules["mixlens.model.families"], "known", lambda: table)
    with pytest.raises(
        mixlens.MixlensError, match=r"no family for model type 'gpt_neox' with use_parallel_residual=True\. Add"
    ):
        mixlens.load(hf_model("gpt_neox"))


@pytest.mark.parametrize(
    ("model_type", "suggestion"),
    [
        ("t5", ""),
        ("mamba", ""),
        ("deberta-v2", ""),
        ("qwen3_moe", "Did you mean 'qwen3'? "),
        ("gemma4", "Did you mean 'gemma' or 'gemma2'? "),
        ("starcoder", "Did you mean 'starcoder2'? "),
    ],
)
def test_an_unknown_type_is_offered_near_names_alone(model_type: str, suggestion: str) -> None:
    """All names would fill a page: with none near, the refusal says how many there are and how to list them."""
    with pytest.raises(mixlens.MixlensError) as refusal:
        families.find(SimpleNamespace(model_type=model_type))
    known = f"`mixlens families` lists the {len(mixlens.families())} types that are known. "
    remedy = "Add one entry to the family table (docs/extend/add-a-family.md) or pass family=Family(...)."
    assert str(refusal.value) == f"no family for model type {model_type!r}. {suggestion}{known}{remedy}"
