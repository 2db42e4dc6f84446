"""One tiny random model per family, in float64, with random non-zero biases and norms. Nothing is downloaded."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, settings
from transformers.utils import logging as transformers_logging

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # shap compiles for longer than a few words take without
transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()
torch.set_num_threads(int(os.environ.get("MIXLENS_TEST_THREADS", "1")))
# How long an example takes, or to draw one, is the machine's affair.
settings.register_profile("mixlens", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mixlens")

VOCABULARY = 97
QUICK: dict[
    str, dict[str, Any]
] = {  # few draws and steps; the points of conductance are those it begins with, in every number type
    "smooth_grad": {"count": 4},
    "gradient_shap": {"count": 4},
    "layer_conductance": {"tolerance": 1.0, "most_steps": 33},
    "sequential_integrated_gradients": {"steps": 2},
    "discretized_integrated_gradients": {"steps": 3, "neighbours": 8},
    "shap": {"evaluations": 20},
    "lime": {"count": 20},
}
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
ROTARY = {**GROUPED, "head_dim": 8, "attention_bias": True}
LOCAL_AND_GLOBAL = ["sliding_attention", "full_attention", "sliding_attention"]
HALF_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {  # case: (model type, configuration)
    "bert": ("bert", SMALL),
    "roberta": ("roberta", {**SMALL, "pad_token_id": 1}),
    "camembert": ("camembert", {**SMALL, "pad_token_id": 1}),
    "xlm-roberta": ("xlm-roberta", {**SMALL, "pad_token_id": 1}),
    "data2vec-text": ("data2vec-text", {**SMALL, "pad_token_id": 1}),
    "roberta-prelayernorm": ("roberta-prelayernorm", {**SMALL, "pad_token_id": 1}),
    "ernie": ("ernie", {**SMALL, "use_task_id": True}),
    "nomic_bert": ("nomic_bert", {**SMALL, "head_dim": 8}),
    "electra": ("electra", {**SMALL, "embedding_size": 24}),
    "distilbert": (
        "distilbert",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 40,
        },
    ),
    "albert": ("albert", {**SMALL, "embedding_size": 24, "num_hidden_groups": 1}),
    "modernbert": (
        "modernbert",
        {**SMALL, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "local_attention": 6},
    ),
    "gpt2": ("gpt2", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}),
    "gpt_neo": (
        "gpt_neo",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_layers": 3,
            "num_heads": 4,
            "attention_types": [[["global", "local", "global"], 1]],
            "window_size": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 40,
        },
    ),
    "gptj": (
        "gptj",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 40,
            "n_inner": 48,
            "rotary_dim": 4,
        },
    ),
    "gpt_bigcode": (
        "gpt_bigcode",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40, "n_inner": 48},
    ),
    "gpt_bigcode-heads": (
        "gpt_bigcode",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40, "multi_query": False},
    ),
    "biogpt": ("biogpt", {**SMALL, "pad_token_id": 1}),
    "gpt_neox": ("gpt_neox", {**SMALL, "use_parallel_residual": True}),
    "gpt_neox-sequential": ("gpt_neox", {**SMALL, "use_parallel_residual": False}),
    "opt": ("opt", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "opt-post-norm": ("opt", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "llama": ("llama", ROTARY),
    "mistral": ("mistral", {**GROUPED, "sliding_window": 4}),
    "qwen2": ("qwen2", GROUPED),
    "qwen3": ("qwen3", ROTARY),
    "gemma": ("gemma", ROTARY),
    "gemma2": ("gemma2", {**ROTARY, "sliding_window": 4, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0}),
    "gemma3_text": ("gemma3_text", {**ROTARY, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    "phi3": ("phi3", {**GROUPED, "sliding_window": 4}),
    "olmo2": ("olmo2", GROUPED),
    "olmo3": ("olmo3", {**GROUPED, "attention_bias": True, "sliding_window": 4, "layer_types": LOCAL_AND_GLOBAL}),
    "olmo": ("olmo", {**GROUPED, "attention_bias": True, "clip_qkv": 2.0}),
    "smollm3": ("smollm3", {**GROUPED, "attention_bias": True, "mlp_bias": True, "no_rope_layers": [1, 0, 1]}),
    "ernie4_5": ("ernie4_5", {**GROUPED, "head_dim": 8, "use_bias": True}),
    "ministral": ("ministral", {**GROUPED, "head_dim": 8, "sliding_window": 4, "layer_types": LOCAL_AND_GLOBAL}),
    "nemotron": ("nemotron", {**GROUPED, "attention_bias": True, "mlp_bias": True, "rope_parameters": HALF_ROTARY}),
    "arcee": ("arcee", {**GROUPED, "attention_bias": True, "mlp_bias": True}),
    "stablelm": ("stablelm", {**GROUPED, "use_qkv_bias": True, "rope_parameters": HALF_ROTARY}),
    "stablelm-parallel": (
        "stablelm",
        {**GROUPED, "use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True},
    ),
    "cohere": ("cohere", {**GROUPED, "attention_bias": True, "use_qk_norm": True, "logit_scale": 0.5}),
    "cohere2": ("cohere2", {**GROUPED, "attention_bias": True, "sliding_window": 4, "layer_types": LOCAL_AND_GLOBAL}),
    "phi": ("phi", {**GROUPED, "qk_layernorm": True, "rope_parameters": HALF_ROTARY}),
    "starcoder2": ("starcoder2", {**GROUPED, "sliding_window": 4}),
    "glm": ("glm", {**ROTARY, "rope_parameters": HALF_ROTARY}),
    "glm4": ("glm4", {**ROTARY, "rope_parameters": HALF_ROTARY}),
}
BIDIRECTIONAL = list(CONFIGURATIONS)[: list(CONFIGURATIONS).index("modernbert") + 1]
CAUSAL = [case for case in CONFIGURATIONS if case not in BIDIRECTIONAL]
# A twin has the shape of another case: the same parts at the same places of a layer (test_families proves it). Every
# test runs
# on every case, but the slowest ones (papers written out in every precision, Jacobians pair by pair, every attribution
# alone and
# in a batch) run on DISTINCT alone.
TWINS = {
    **dict.fromkeys(["camembert", "xlm-roberta", "data2vec-text"], "roberta"),
    "ernie": "bert",
    "gpt_bigcode-heads": "gpt_neox-sequential",
    **dict.fromkeys(["biogpt", "nemotron", "arcee", "starcoder2"], "opt"),
    **dict.fromkeys(["smollm3", "olmo", "ernie4_5", "stablelm"], "llama"),
    "ministral": "mistral",
    "olmo3": "olmo2",
    **dict.fromkeys(["cohere", "cohere2"], "stablelm-parallel"),
}
DISTINCT = [case for case in CONFIGURATIONS if case not in TWINS]
# What the code of transformers does in these cases, and no family entry says.
OWN_ATTENTION = ["gpt_neo", "gptj"]  # it never asks the attention registry, so there is no sdpa and no query to read
ROUNDED_STREAM = [
    "gemma2",
    "gemma3_text",
    "olmo2",
    "olmo3",
    "glm4",
]  # a norm on the residual stream computes in float32
ROUNDED_NORMS = [  # norms compute in float32, whatever the dtype of the model
    *("llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "phi3", "smollm3", "olmo", "ernie4_5", "arcee"),
    *("cohere", "cohere2", "glm", *ROUNDED_STREAM),
]
ROUNDED = ["modernbert", *OWN_ATTENTION, *ROUNDED_NORMS]  # norms, softmax or rotations compute in float32
SHARED = Path(os.environ.get("MIXLENS_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Weights, biases and norms all random and none of them zero: zero biases hide bugs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            spread = 0.3 if weights.dim() == 1 else 0.25
            weights.copy_(torch.randn(weights.shape, generator=generator, dtype=weights.dtype) * spread)
            if (
                weights.dim() == 1
                and "norm" in name.lower() + ("norm" if ".ln_" in name else "")
                and name.endswith("weight")
            ):
                weights.add_(1.0)


@cache
def hf_model(
    case: str, *, head: str = "AutoModel", dtype: torch.dtype = torch.float64, attention: str | None = None
) -> Any:
    model_type, options = CONFIGURATIONS[case]
    config = transformers.AutoConfig.for_model(model_type, **options)
    if attention is not None:
        config._attn_implementation = attention
    model = getattr(transformers, head).from_config(config)
    randomise(model)
    return model.to(dtype).eval()


def head_of(case: str) -> str:
    """The head that most attributions are tested with: a classifier, or a language model where transformers has
    none."""
    config = transformers.CONFIG_MAPPING[CONFIGURATIONS[case][0]]
    classifier = config in transformers.AutoModelForSequenceClassification._model_mapping
    return "AutoModelForSequenceClassification" if classifier else "AutoModelForCausalLM"


@cache
def loaded(case: str, **options: Any) -> Any:
    import mixlens

    return mixlens.load(hf_model(case, **options))


def ids(n: int, seed: int = 0) -> list[int]:
    """Random ids, none of them a padding id."""
    return torch.randint(5, VOCABULARY, (n,), generator=torch.Generator().manual_seed(100 + seed)).tolist()


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What mixlens logs from warnings on. pytest's own `caplog` is off: before and after every test it looks at the
    thousands of loggers of torch and transformers."""
    records: list[logging.LogRecord] = []
    logger, handler = logging.getLogger("mixlens"), logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.fixture
def model_for() -> Callable[..., Any]:
    return loaded


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _with_remedy((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return _with_remedy((yield))


# torch, transformers and ten thousand tests are millions of objects, and a whole collection looks at all of them: with
# Python's
# own thresholds that is a sixth of the time. What is imported is no garbage, and most of what tests leave is collected
# young.
RARELY = (10_000, 20, 100)  # a whole collection after 2,000 young ones


def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.set_threshold(*RARELY)
    gc.enable()


def _with_remedy(report: Any) -> Any:
    """A test that is skipped for want of a package says how to get it."""
    told = report.longrepr
    if report.outcome == "skipped" and isinstance(told, tuple) and "could not import '" in told[2]:
        report.longrepr = (*told[:2], f"{told[2]} (`make test` installs it, with the extra `dev`)")
    return report


needs_fast = pytest.mark.skipif(
    os.environ.get("MIXLENS_FAST") == "off", reason="needs `mixlens/fast`: run it without MIXLENS_FAST=off"
)
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs the folder `shared` (models, golden values) beside the project"
)
