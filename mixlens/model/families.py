"""Where each kind of model keeps the parts that mix context. Data only; `model.py` reads it.

One entry describes one layer as every Transformer builds it, in this order (a part that is absent is None):

    a = attention(norm_before_attention(x))        the values are seen at `value`, the projection is `output`
    u = x + norm_on_attention(a)                   the residual stream after attention
    m = norm_after_attention(u)
    f = mlp(norm_before_mlp(m))                    (norm_before_mlp(x) when `parallel`)
    y = norm_after_mlp(m + norm_on_mlp(f))         the next layer's input

All paths start at the layer, except `layers` and `embedding_norm`, which start at the base model; `*` stands for "each of".
An entry is not believed: every model is checked against it when it is loaded (`proof.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..errors import ModelError, nearest
from ..registry import installed


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
    model_types=("llama", "mistral", "qwen2", "qwen3", "gemma"),
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

FAMILIES: tuple[Family, ...] = (
    BERT,
    replace(BERT, model_types=("roberta", "camembert", "xlm-roberta")),
    replace(BERT, model_types=("electra",)),
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
        model_types=("olmo2",),
        norm_before_attention=None,
        norm_before_mlp=None,
        norm_on_attention="post_attention_layernorm",
        norm_on_mlp="post_feedforward_layernorm",
    ),
)


@cache
def known() -> tuple[Family, ...]:
    """The entries above and those of installed packages (entry-point group `mixlens.families`)."""
    found = list(FAMILIES)
    for entry in installed("mixlens.families"):
        found += [entry] if isinstance(entry, Family) else list(entry)
    return tuple(found)


def find(config: Any) -> Family:
    """The entry for this configuration, or a refusal that says what was seen."""
    for family in known():
        if config.model_type in family.model_types and all(
            getattr(config, key, None) == value for key, value in family.when.items()
        ):
            return family
    types = {model_type for family in known() for model_type in family.model_types}
    raise ModelError(
        f"no family for model type {config.model_type!r}. {nearest(str(config.model_type), types)} "
        "Add one entry to the family table (docs/add-a-family.md) or pass family=Family(...)."
    )


def families() -> list[str]:
    """The model types mixlens knows, in the order of the table."""
    return list(dict.fromkeys(model_type for family in known() for model_type in family.model_types))
