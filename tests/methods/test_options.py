"""What every method takes where a caller names no option: a changed default changes every result of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mixlens.scoring import maps, registry

LINE = {
    "rule": "gauss_legendre",
    "chunk": 16,
    "tolerance": 0.01,
    "most_steps": 2000,
    "embedding": "word",
    "baseline": None,
}
OF_PATH = {
    "strategy": "greedy",
    "steps": 30,
    "neighbours": 500,
    "factor": 0,
    "rule": "riemann_left",
    "baseline": None,
    "chunk": 16,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "alti": {"variant": "paper"},
    "attcat": {"variant": "paper", "mask_special": True, "aggregation": "sum"},
    "attention": {"head": None},
    "attention_residual": {"variant": "released"},
    "attention_rollout": {"variant": "paper", "mask_special": None},
    "attention_x_grad": {"variant": "paper", "relu": False, "mask_special": None},
    "blank_out": {"variant": "paper", "replacement": "mask", "absolute": False},
    "cat": {"variant": "paper", "mask_special": True},
    "context_cite": {"unit": "token", "count": 64, "penalty": 0.01, "replacement": "delete", "seed": 0},
    "deeplift": {"embedding": "word", "baseline": None},
    "discretized_integrated_gradients": OF_PATH,
    "effective_attention": {"head": None, "variant": "released"},
    "globenc": {"head": None},
    "grad_l2": {"variant": "paper", "embedding": "sum"},
    "grad_x_input": {"variant": "paper", "embedding": None, "absolute": False},
    "grad_x_input_l2": {"embedding": "sum"},
    "gradient_shap": {"embedding": "word", "baseline": None, "count": 50, "noise": 0.0, "seed": 0, "chunk": 16},
    "hta": {"norm": "frobenius", "input": "before", "probes": None, "seed": 0},
    "integrated_gradients": {"variant": "paper", "steps": None, "absolute": False, **LINE},
    "layer_conductance": {name: value for name, value in LINE.items() if name != "rule"},
    "lime": {"unit": "token", "count": 1000, "replacement": "delete", "kernel_width": 25.0, "seed": 0},
    "norm": {"head": None},
    "norm_residual": {"head": None},
    "norm_residual_ln": {"head": None},
    "null_attention": {"head": None, "variant": "released"},
    "partial_lrp": {"variant": "paper", "mask_special": None},
    "random": {"seed": 0},
    "raw_attention": {"variant": "paper", "mask_special": None},
    "sequential_integrated_gradients": {"steps": None, **LINE},
    "shap": {"algorithm": "partition", "unit": "token", "evaluations": 500, "replacement": None},
    "smooth_grad": {"embedding": "word", "count": 50, "noise": 0.15, "seed": 0, "times_input": False, "chunk": 16},
    "transatt": {"variant": "paper", "normalize": True, "mask_special": None},
    "value_zeroing": {"distance": "cosine", "standardize": False, "query": None, "variant": "paper"},
}


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_of_a_method(name: str) -> None:
    parameters = inspect.signature({**registry.known_attributions(), **maps.known()}[name].function).parameters
    given = {key: one.default for key, one in parameters.items() if one.default is not inspect.Parameter.empty}
    assert given == DEFAULTS[name]
    assert [type(given[key]) for key in sorted(given)] == [type(DEFAULTS[name][key]) for key in sorted(given)]
