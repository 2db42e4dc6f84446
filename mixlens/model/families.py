"""Where each kind of model keeps the parts that mix context. Data only; `parts.py` reads it.

One entry describes one layer as every Transformer builds it, in this order (a part that is absent is None):

    a = attention(norm_before_attention(x))        the values are seen at `value`, the projection is `output`
    u = x + norm_on_attention(a)                   the residual stream after attention
    m = norm_after_attention(u)
    f = mlp(norm_before_mlp(m))                    (norm_before_mlp(x) when `parallel`)
    y = norm_after_mlp(m + norm_on_mlp(f))         the next layer's input

All paths start at the layer, except `layers` and `embedding_norm`, which start at the base model; `*` stands for "each
of". An entry is not believed: every model is checked against it when it is loaded (`proof.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..base.errors import ModelError, suggested
from ..base.registry import installed


@dataclass(frozen=True)
class Family:
    model_types: tuple[str, ...]  # config.model_type of the models this entry is for
    layers: str
    value: str  # the module that makes the values (alone, or fused with queries and keys)
    output: str  # W_O
    mlp_up: str
    mlp_act: str
    mlp_down: str
    mlp_gate: str | None = None  # act(gate) * up; the same path as mlp_up: one product, gate half first
    value_layout: str = "v"  # what `value` puts out: "v" | "qkv" (three blocks) | "heads" (q, k, v per head)
    norm_before_attention: str | None = None
    norm_on_attention: str | None = None
    norm_after_attention: str | None = None
    norm_before_mlp: str | None = None
    norm_on_mlp: str | None = None
    norm_after_mlp: str | None = None
    parallel: bool = False  # the feed-forward reads the layer's input, beside attention
    attention: str | None = None  # for code that never asks the attention registry: the module that returns weights
    inner_layers: str | None = None  # the config field that says how many layers run for each of num_hidden_layers
    embedding_norm: str | None = None  # the norm between the sum of all embeddings and the first layer
    when: Mapping[str, Any] = field(default_factory=dict)  # values of config fields that select this entry

    @property
    def name(self) -> str:
        return self.model_types[0]


BERT = Family(
    model_types=("bert",),
    layers="encoder.layer",
    value="attention.self.value",
    output="attention.output.dense",
    norm_after_attention="attention.output.LayerNorm",
    mlp_up="intermediate.dense",
    mlp_act="intermediate.intermediate_act_fn",
    mlp_down="output.dense",
    norm_after_mlp="output.LayerNorm",
    embedding_norm="embeddings.LayerNorm",
)
GPT2 = Family(
    model_types=("gpt2",),
    layers="h",
    value="attn.c_attn",
    value_layout="qkv",
    output="attn.c_proj",
    norm_before_attention="ln_1",
    norm_before_mlp="ln_2",
    mlp_up="mlp.c_fc",
    mlp_act="mlp.act",
    mlp_down="mlp.c_proj",
)
GPT_NEOX = Family(
    model_types=("gpt_neox",),
    when={"use_parallel_residual": True},
    layers="layers",
    value="attention.query_key_value",
    value_layout="heads",
    output="attention.dense",
    norm_before_attention="input_layernorm",
    norm_before_mlp="post_attention_layernorm",
    mlp_up="mlp.dense_h_to_4h",
    mlp_act="mlp.act",
    mlp_down="mlp.dense_4h_to_h",
    parallel=True,
)
OPT = Family(
    model_types=("opt",),
    when={"do_layer_norm_before": True},
    layers="decoder.layers",
    value="self_attn.v_proj",
    output="self_attn.out_proj",
    norm_before_attention="self_attn_layer_norm",
    norm_before_mlp="final_layer_norm",
    mlp_up="fc1",
    mlp_act="activation_fn",
    mlp_down="fc2",
)
LLAMA = Family(
    model_types=("llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "smollm3", "olmo", "ernie4_5"),
    layers="layers",
    value="self_attn.v_proj",
    output="self_attn.o_proj",
    norm_before_attention="input_layernorm",
    norm_before_mlp="post_attention_layernorm",
    mlp_up="mlp.up_proj",
    mlp_gate="mlp.gate_proj",
    mlp_act="mlp.act_fn",
    mlp_down="mlp.down_proj",
)
GLM = replace(
    LLAMA,
    model_types=("glm",),
    mlp_up="mlp.gate_up_proj",
    mlp_gate="mlp.gate_up_proj",
    mlp_act="mlp.activation_fn",
)

FAMILIES: tuple[Family, ...] = (
    BERT,
    replace(BERT, model_types=("roberta", "camembert", "xlm-roberta", "data2vec-text")),
    replace(BERT, model_types=("electra",)),
    replace(BERT, model_types=("ernie",)),
    replace(
        BERT,
        model_types=("roberta-prelayernorm",),
        norm_before_attention="attention.LayerNorm",
        norm_after_attention=None,
        norm_before_mlp="intermediate.LayerNorm",
        norm_after_mlp=None,
    ),
    replace(  # BERT's norms around the attention and the gated feed-forward of LLaMA
        LLAMA,
        model_types=("nomic_bert",),
        norm_before_attention=None,
        norm_before_mlp=None,
        norm_after_attention="post_attention_layernorm",
        norm_after_mlp="post_mlp_layernorm",
        embedding_norm="embeddings.LayerNorm",
    ),
    Family(
        model_types=("distilbert",),
        layers="transformer.layer",
        value="attention.v_lin",
        output="attention.out_lin",
        norm_after_attention="sa_layer_norm",
        mlp_up="ffn.lin1",
        mlp_act="ffn.activation",
        mlp_down="ffn.lin2",
        norm_after_mlp="output_layer_norm",
        embedding_norm="embeddings.LayerNorm",
    ),
    Family(  # one layer's weights, used again and again: a layer is a call, not a module
        model_types=("albert",),
        layers="encoder.albert_layer_groups.*.albert_layers",
        value="attention.value",
        output="attention.dense",
        norm_after_attention="attention.LayerNorm",
        mlp_up="ffn",
        mlp_act="activation",
        mlp_down="ffn_output",
        norm_after_mlp="full_layer_layer_norm",
        inner_layers="inner_group_num",
        embedding_norm="embeddings.LayerNorm",
    ),
    Family(
        model_types=("modernbert",),
        layers="layers",
        value="attn.Wqkv",
        value_layout="qkv",
        output="attn.Wo",
        norm_before_attention="attn_norm",
        norm_before_mlp="mlp_norm",
        mlp_up="mlp.Wi",
        mlp_gate="mlp.Wi",
        mlp_act="mlp.act",
        mlp_down="mlp.Wo",
        embedding_norm="embeddings.norm",
    ),
    GPT2,
    replace(  # attention code of its own: its weights are taken from the module itself
        GPT2,
        model_types=("gpt_neo",),
        attention="attn.attention",
        value="attn.attention.v_proj",
        value_layout="v",
        output="attn.attention.out_proj",
    ),
    replace(  # attention code of its own, and one norm that attention and the feed-forward both read
        GPT2,
        model_types=("gptj",),
        attention="attn",
        value="attn.v_proj",
        value_layout="v",
        output="attn.out_proj",
        norm_before_mlp="ln_1",
        mlp_up="mlp.fc_in",
        mlp_down="mlp.fc_out",
        parallel=True,
    ),
    replace(GPT2, model_types=("gpt_bigcode",), when={"multi_query": True}),
    replace(GPT2, model_types=("gpt_bigcode",), when={"multi_query": False}, value_layout="heads"),
    GPT_NEOX,
    replace(GPT_NEOX, when={"use_parallel_residual": False}, parallel=False),
    OPT,
    replace(  # OPT-350m norms after each branch
        OPT,
        when={"do_layer_norm_before": False},
        norm_before_attention=None,
        norm_before_mlp=None,
        norm_after_attention="self_attn_layer_norm",
        norm_after_mlp="final_layer_norm",
    ),
    replace(OPT, model_types=("biogpt",), when={}, layers="layers"),
    LLAMA,
    replace(
        LLAMA,
        model_types=("gemma2", "gemma3_text"),
        norm_on_attention="post_attention_layernorm",
        norm_before_mlp="pre_feedforward_layernorm",
        norm_on_mlp="post_feedforward_layernorm",
    ),
    replace(
        LLAMA,
        model_types=("phi3",),
        value="self_attn.qkv_proj",
        value_layout="qkv",
        mlp_up="mlp.gate_up_proj",
        mlp_gate="mlp.gate_up_proj",
        mlp_act="mlp.activation_fn",
    ),
    replace(
        LLAMA,
        model_types=("olmo2", "olmo3"),
        norm_before_attention=None,
        norm_before_mlp=None,
        norm_on_attention="post_attention_layernorm",
        norm_on_mlp="post_feedforward_layernorm",
    ),
    replace(LLAMA, model_types=("nemotron", "arcee"), mlp_gate=None),
    replace(LLAMA, model_types=("stablelm",), when={"use_parallel_residual": False}),
    replace(
        LLAMA,
        model_types=("stablelm",),
        when={"use_parallel_residual": True},
        norm_before_mlp="input_layernorm",
        parallel=True,
    ),
    replace(LLAMA, model_types=("cohere", "cohere2"), norm_before_mlp="input_layernorm", parallel=True),
    replace(
        LLAMA,
        model_types=("phi",),
        output="self_attn.dense",
        norm_before_mlp="input_layernorm",
        mlp_up="mlp.fc1",
        mlp_gate=None,
        mlp_act="mlp.activation_fn",
        mlp_down="mlp.fc2",
        parallel=True,
    ),
    replace(
        LLAMA,
        model_types=("starcoder2",),
        mlp_up="mlp.c_fc",
        mlp_gate=None,
        mlp_act="mlp.act",
        mlp_down="mlp.c_proj",
    ),
    GLM,
    replace(GLM, model_types=("glm4",), norm_on_attention="post_self_attn_layernorm", norm_on_mlp="post_mlp_layernorm"),
)


@cache
def known() -> tuple[Family, ...]:
    """The entries above and those of installed packages (entry-point group `mixlens.families`)."""
    entries = list(FAMILIES)
    for entry in installed("mixlens.families"):
        entries += [entry] if isinstance(entry, Family) else list(entry)
    return tuple(entries)


def find(config: Any) -> Family:
    """The entry for this configuration, or a refusal that says what it holds and what to do."""
    for family in known():
        if _describes(family, config):
            return family
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"model type {config.model_type!r} has an encoder and a decoder that reads it; mixlens takes one stack of "
            f"layers "
            "apart. Load an encoder or a decoder: `mixlens families` lists the types that are known."
        )
    raise ModelError(
        f"no family for model type {config.model_type!r}{_circumstances(config)} "
        "Add one entry to the family table (docs/extend/add-a-family.md) or pass family=Family(...)."
    )


def _describes(family: Family, config: Any) -> bool:
    """Is this entry for the type of this configuration, and for the values of its fields?"""
    return config.model_type in family.model_types and all(
        getattr(config, key, None) == value for key, value in family.when.items()
    )


def _circumstances(config: Any) -> str:
    """What the table has instead: entries for other values of a field, or types of a near name, or how to list them
    all."""
    if fields := _fields_of_type(config.model_type):
        return f" with {', '.join(f'{key}={getattr(config, key, None)!r}' for key in fields)}."
    types = families()
    suggestion = suggested(config.model_type, types)
    return f".{suggestion and ' '}{suggestion} `mixlens families` lists the {len(types)} types that are known."


def _fields_of_type(model_type: str) -> list[str]:
    """The fields of a configuration that the entries for this type ask for, in order."""
    return sorted({key for family in known() if model_type in family.model_types for key in family.when})


def families() -> list[str]:
    """The model types mixlens knows, in the order of the table."""
    return list(dict.fromkeys(model_type for family in known() for model_type in family.model_types))
