"""What the freeze asks of mixlens: models whose weights are the same on every processor, and every method on each of
them.

Only the public face is used (`mixlens.load`, `mix`, `attribute`, ... and the commands), so inner files may move freely.
"""

from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.overrides import TorchFunctionMode

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from conftest import CONFIGURATIONS, VOCABULARY  # noqa: E402
from conftest import head_of as tested_head  # noqa: E402

import mixlens  # noqa: E402

# One of each kind of layer. The others have the same methods behind other parts, which the tests of methods run on all
# of them.
CASES = (
    *("bert", "distilbert", "albert", "modernbert", "gpt2", "gpt_neo", "gpt_neox", "opt-post-norm"),
    *("llama", "gemma3_text", "phi3", "stablelm-parallel"),
)
LENGTHS = (7, 4)  # tokens of the two texts; the first is also asked alone
CAUSAL_HEAD = (
    "gpt_neo",
    "gpt_neox",
    "gpt_neox-sequential",
)  # explained through a language model's head; the rest through classes

# --- models -----------------------------------------------------------------------------------------------------------


def mixed(numbers: np.ndarray) -> np.ndarray:
    """splitmix64 of each number: integers alone, so every processor and every release of numpy gives the same."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(name: str, n: int) -> np.ndarray:
    """n numbers in (-1, 1), none of them zero: odd integers over 2^21, exact in float32 and float64."""
    start = np.uint64(zlib.crc32(name.encode())) << np.uint64(24)
    integers = mixed(start + np.arange(1, n + 1, dtype=np.uint64)) >> np.uint64(43)  # 0 to 2^21 - 1
    return ((2 * integers.astype(np.int64) + 1) - 2**21) / 2.0**21


def randomise(model: torch.nn.Module, jitter: float = 0.0) -> None:
    """Weights, biases and norms from integers. With `jitter` each is moved by up to that share of itself."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            is_norm = weights.dim() == 1 and name.endswith("weight")
            values = uniform(name, weights.numel()) * (0.5 if weights.dim() == 1 else 0.4375) + is_norm
            values *= 1 + jitter * uniform(f"jitter of {name}", weights.numel())
            weights.copy_(torch.from_numpy(values).view(weights.shape))


class StayDouble(TorchFunctionMode):
    """Within it a float64 tensor is not made float32: a norm that rounds so would round otherwise on every
    processor."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        to_float = function is torch.Tensor.float or (function is torch.Tensor.to and args[1:2] == (torch.float32,))
        if to_float and args[0].dtype == torch.float64:
            return args[0]
        return function(*args, **(kwargs or {}))


def stay_double(model: torch.nn.Module) -> None:
    """RMS norms and rotary embeddings of transformers compute in float32 whatever the model's type is. Here they do
    not."""
    for module in model.modules():
        kind = type(module)
        if "RMSNorm" in kind.__name__:
            module.__class__ = type(kind.__name__, (kind,), {"forward": _in_double(kind.forward)})
        elif "RotaryEmbedding" in kind.__name__:
            module.__class__ = type(kind.__name__, (kind,), {"forward": _on_a_grid(kind.forward)})


def _in_double(forward: Any) -> Any:
    def double(*args: Any, **kwargs: Any) -> Any:
        with StayDouble():
            return forward(*args, **kwargs)

    return double


def _on_a_grid(forward: Any) -> Any:
    """Sines and cosines of float32 frequencies, rounded to multiples of 2^-10."""

    def rounded(*args: Any, **kwargs: Any) -> Any:
        return tuple((turned * 1024).round() / 1024 for turned in forward(*args, **kwargs))

    return rounded


def hf_model(case: str, head: str, dtype: torch.dtype, jitter: float = 0.0) -> Any:
    model_type, options = CONFIGURATIONS[case]
    config = transformers.AutoConfig.for_model(model_type, **options)
    model = getattr(transformers, head).from_config(config).to(dtype).eval()
    randomise(model, jitter)
    if dtype == torch.float64:
        stay_double(model)
    return model


def head_of(case: str) -> str:
    return "AutoModelForCausalLM" if case in CAUSAL_HEAD else tested_head(case)


def loaded(case: str, head: str = "AutoModel", dtype: torch.dtype = torch.float64, jitter: float = 0.0) -> Any:
    return mixlens.load(hf_model(case, head, dtype, jitter))


def input_ids() -> list[list[int]]:
    """Two texts as ids from 5 on, so that none is a padding id."""
    integers = (mixed(np.arange(1, 100, dtype=np.uint64)) >> np.uint64(11)) % np.uint64(VOCABULARY - 5)
    numbers = [5 + int(one) for one in integers]
    return [numbers[10 * i : 10 * i + n] for i, n in enumerate(LENGTHS)]


# --- questions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A method as it is asked: `name` of the method, its variant, its options, and what is made of its map."""

    name: str
    variant: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    then: str = ""  # "rollout", "rollout abnar", "flow", "sum"
    streams: bool = True

    @property
    def label(self) -> str:
        settings = {"variant": self.variant, **self.options} if self.variant else self.options
        written = ",".join(f"{key}={value}" for key, value in settings.items())
        return " ".join(part for part in (self.name + (f":{written}" if written else ""), self.then) if part)


# Methods without stored numbers. The search of context_cite ends at a tolerance: the last digits are those of the
# machine.
# The methods people compare with are held against what is written out in tests/methods/test_peers_gradients.py,
# test_discretized.py and test_shap_lime.py; the numbers of shap and lime are those of their libraries' versions.
UNSTORED = dict.fromkeys(
    (
        *("context_cite", "shap", "lime", "gradient_shap", "smooth_grad", "layer_conductance"),
        *("sequential_integrated_gradients", "discretized_integrated_gradients"),
    ),
    ("paper",),
)
VARIANTS = {  # of every method: the variants; `mixlens methods` must list the same
    **dict.fromkeys(
        ("attention", "attention_fixed_residual", "hta_layer", "hta_layer_x_input", "hta", "norm"), ("paper",)
    ),
    **dict.fromkeys(("norm_fixed_residual", "norm_residual", "norm_residual_ln", "globenc", "random"), ("paper",)),
    **dict.fromkeys(("effective_attention", "null_attention", "attention_residual"), ("released", "paper")),
    **dict.fromkeys(("attention_grad", "deeplift", "grad_x_input_l2"), ("paper",)),
    **dict.fromkeys(("value_zeroing", "cat", "attcat"), ("paper", "released")),
    **dict.fromkeys(("raw_attention", "attention_rollout"), ("paper", "released", "released_squad")),
    **dict.fromkeys(("attention_x_grad", "blank_out", "grad_l2", "grad_x_input"), ("paper", "released")),
    "integrated_gradients": ("paper", "released"),
    "alti": ("paper", "released", "released_2022"),
    **dict.fromkeys(("partial_lrp", "transatt"), ("paper", "released", "released_chefer")),
}
MAPS = (
    *("alti", "attention", "attention_fixed_residual", "hta_layer", "hta_layer_x_input", "hta", "effective_attention"),
    *(
        "null_attention",
        "norm",
        "norm_fixed_residual",
        "norm_residual",
        "norm_residual_ln",
        "globenc",
        "attention_residual",
    ),
    *("random", "value_zeroing"),
)
WHOLE = ("hta_layer", "hta_layer_x_input", "hta")  # need all layers at once, so they are not streamed
REDUCED = {  # few steps are quick and tell one code from another; a model without tokenizer has no mask token
    "integrated_gradients": {"steps": 3},
    "blank_out": {"replacement": 9},
    "context_cite": {"count": 8},
}
MAP_OPTIONS = (
    *(Question("value_zeroing", "paper", {"distance": one}) for one in ("euclidean", "spearman")),
    Question("value_zeroing", "paper", {"standardize": True}),
    Question("value_zeroing", "paper", {"query": 2}),
    *(
        Question("hta", None, options, streams=False)
        for options in ({"norm": "spectral"}, {"norm": "sum"}, {"input": "after"})
    ),
    Question("effective_attention", None, {"head": 1}),
    Question("null_attention", None, {"head": 2}),
    Question("random", None, {"seed": 3}),
    *(Question("globenc", then=f"rollout {one}", streams=False) for one in ("abnar", "globenc", "toolkit", "chefer")),
    *(
        Question(name, then="rollout", streams=False)
        for name in ("attention", "alti", "value_zeroing", "norm_residual")
    ),
    Question("attention", then="sum", streams=False),
)
# A padded batch is the same equations over other shapes. Attributions and Jacobians cost a backward pass each, so they
# are asked
# in a batch, and Jacobians with options alone, on one configuration of each kind: norms after, norms before, rotary,
# gated with
# norms on both sides.
FULLY_BATCHED = ("bert", "gpt2", "llama", "gemma3_text")
FLOW = Question("attention", then="flow", streams=False)
ATTRIBUTION_OPTIONS = (
    Question("alti"),
    Question("globenc", None, {"rollout": "toolkit"}),
    *(Question(name, None, {"layer": 1}) for name in ("cat", "attcat", "grad_l2", "deeplift")),
    Question("grad_l2", None, {"embedding": "word"}),
    Question("grad_x_input", None, {"embedding": "after", "absolute": True}),
    Question("grad_x_input", None, {"score": "probability"}),
    Question("grad_x_input", None, {"foil": 1, "target": 0}),
    Question("blank_out", None, {"replacement": "delete"}),
    Question("blank_out", None, {"replacement": 9, "absolute": True}),
    Question("integrated_gradients", None, {"steps": 4, "rule": "riemann_right"}),
    Question("integrated_gradients", None, {"steps": 3, "embedding": "sum", "baseline": 9}),
    Question("deeplift", None, {"embedding": "sum", "baseline": 9}),
    Question("transatt", None, {"normalize": False}),
)


def map_questions(case: str) -> Iterator[Question]:
    for name in MAPS:
        yield from (Question(name, variant, streams=name not in WHOLE) for variant in VARIANTS[name])
    yield from (one for one in MAP_OPTIONS if one.name != "hta" or case in FULLY_BATCHED)
    if case in ("bert", "gpt2"):
        yield FLOW


def batched_maps(case: str) -> Iterator[Question]:
    """The questions that are asked in a batch too. What is made of a map afterwards does not know of the batch."""
    for question in map_questions(case):
        if not question.then and (case in FULLY_BATCHED or question.name not in WHOLE):
            yield question


def attribution_questions() -> Iterator[Question]:
    for name, variants in VARIANTS.items():
        if name not in MAPS:
            yield from (Question(name, variant, REDUCED.get(name, {})) for variant in variants)
    yield from ATTRIBUTION_OPTIONS


def aggregated(scores: Any, then: str) -> Any:
    verb, *convention = then.split()
    return getattr(scores, verb)(*convention)


def map_of(traces: Any, question: Question) -> Any:
    """A Map, a list of them for a list of traces, or the class of the error where it is refused."""
    return _refusal(lambda: _map_of(traces, question))


def _map_of(traces: Any, question: Question) -> Any:
    maps = mixlens.mix(traces, question.name, variant=question.variant, **question.options)
    if not question.then:
        return maps
    return (
        [aggregated(one, question.then) for one in maps] if isinstance(maps, list) else aggregated(maps, question.then)
    )


def streamed(model: Any, ids: Any, question: Question) -> Any:
    return _refusal(lambda: model.mix(None, question.name, input_ids=ids, variant=question.variant, **question.options))


def attribution_of(traces: Any, question: Question) -> Any:
    return _refusal(lambda: mixlens.attribute(traces, question.name, variant=question.variant, **question.options))


def _refusal(ask: Any) -> Any:
    """The answer, or the class of the error by name: messages may be reworded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few steps are meant here
        try:
            return ask()
        except mixlens.MixlensError as error:
            return type(error).__name__


# --- fingerprints -----------------------------------------------------------------------------------------------------


@cache
def directions(n: int) -> torch.Tensor:
    """Two fixed vectors, [2 n]: cos(k + 1) and cos(0.37 (k + 1)^2). No map but the right one keeps both products."""
    k = torch.arange(1, n + 1, dtype=torch.float64)
    return torch.stack([k.cos(), (0.37 * k * k).cos()])


def fingerprint(scores: torch.Tensor) -> list[float]:
    """The largest absolute entry of every layer, then two products of the scores, each layer divided by that entry."""
    layers = scores.detach().double().reshape(scores.shape[0] if scores.dim() == 3 else 1, -1)
    largest = layers.abs().amax(1)
    shares = (layers / largest.where(largest > 0, 1.0)[:, None]).flatten()
    return [*largest.tolist(), *(directions(len(shares)) @ shares).tolist()]


def apart(here: Sequence[float], there: Sequence[float]) -> float:
    """How far two fingerprints lie apart: relative for largest entries, absolute for products of shares."""
    if len(here) != len(there):
        return float("inf")
    *tops, first, second = ((a, b) for a, b in zip(here, there, strict=True))
    gaps = [abs(a - b) / (abs(b) or 1.0) for a, b in tops] + [abs(a - b) for a, b in (first, second)]
    return float(np.max(gaps))  # not a number stays not a number


def difference(here: torch.Tensor, there: torch.Tensor) -> float:
    """The largest difference of two score tensors as a share of the largest entry of its layer."""
    if here.shape != there.shape:
        return float("inf")
    if here.dim() < 3:
        here, there = here[None], there[None]
    largest = there.abs().flatten(1).amax(1)
    return float(((here - there).abs().flatten(1).amax(1) / largest.where(largest > 0, 1.0)).max())
