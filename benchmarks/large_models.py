"""Large models: the same maps wherever the layers are, and what quantisation does to them.

    python -m benchmarks.large_models                       # a random Llama, spread in every way this machine has
    python -m benchmarks.large_models --size 7b             # a random Llama-2-7B in shape: 40 GB on the GPU, as much beside it
    python -m benchmarks.large_models --models FOLDER ...   # trained models in 4 and 8 bits against float32

Needs torch, transformers, numpy, safetensors and accelerate; with bitsandbytes also 4 and 8 bits. One line for each
result, a JSON list in --out; ends with status 1 where maps of the model spread out are not those of the model in one
place.
"""  # noqa: E501

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.nn.functional import normalize

import mixlens
from mixlens.scoring.maps import known

shares = partial(normalize, p=1.0, dim=-1)  # rows over the sum of their magnitudes

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 500,
    },
    "small": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "vocab_size": 8000,
    },
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
}
MAPS = [name for name, method in known().items() if not method.whole and name not in ("random", "null_attention")]
SOME = ["attention", "norm", "globenc", "alti", "value_zeroing"]
ATTRIBUTIONS = ("grad_x_input", "attcat", "attention_x_grad", "deeplift", "transatt", "partial_lrp")
WIDTHS = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 97,
}
TINY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bert", "AutoModelForMaskedLM", WIDTHS),
    ("gpt2", "AutoModelForCausalLM", {"n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 97, "n_positions": 40}),
    ("llama", "AutoModelForCausalLM", {**WIDTHS, "num_key_value_heads": 2}),
)
ALLOWED = {torch.float64: 1e-7, torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of the largest score, or of a row's sum
DIVIDING = ("transatt", "partial_lrp")  # by numbers near zero: rounding grows by much
TEXTS = (
    "It is not exactly bad, but the jokes were written by someone who has never laughed.",
    "Once upon a time, there was a little girl who liked to play outside in the park with her dog.",
    "The keys to the cabinet near the old window were lost, and nobody could open it again.",
    "A quiet film that trusts its viewers and rewards them for it in the end.",
)


def random_llama(size: str, dtype: torch.dtype, device: str) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES[size], max_position_embeddings=2048, pad_token_id=0)
    with torch.device(device):
        model: Any = transformers.LlamaForCausalLM(config).to(dtype)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name:
                weights.copy_(torch.rand_like(weights) + 0.5)
    return model.eval().requires_grad_(False)


def device_map(model: Any, there: Any, elsewhere: Any) -> dict[str, Any]:
    """The first half of the layers in one place, the others elsewhere; everything else in the first."""
    names = {id(module): name for name, module in model.named_modules()}
    layers = [names[id(parts.layer)] for parts in mixlens.load(model, check=False).parts]
    inside = tuple(layer + "." for layer in layers)
    found = {
        name: there
        for name, m in model.named_modules()
        if name and (m._parameters or m._buffers) and not name.startswith(inside)
    }
    return found | {name: there if number < len(layers) // 2 else elsewhere for number, name in enumerate(layers)}


def ways(model: Any, device: str, folder: Path, *, run_on_cpu: bool) -> Iterator[tuple[str, Any]]:
    """The model spread out, in every way that this machine has."""
    from accelerate import dispatch_model

    if device != "cpu":
        yield (
            "half on the GPU, half brought in from main memory",
            dispatch_model(copy.deepcopy(model), device_map(model, 0, "cpu")),
        )
        if run_on_cpu:
            yield "half run on the GPU, half on the CPU", two_devices(model)
    first = 0 if device != "cpu" else "cpu"
    yield (
        "half brought in from disk",
        dispatch_model(
            copy.deepcopy(model), device_map(model, first, "disk"), main_device=first, offload_dir=str(folder)
        ),
    )


def two_devices(model: Any) -> Any:
    from accelerate import dispatch_model

    return dispatch_model(copy.deepcopy(model), device_map(model, "cpu", 0), main_device="cpu")


def families(tokens: int = 9) -> list[dict[str, Any]]:
    """Tiny models of three kinds in float64, half of their layers run on the GPU and half on the CPU: every method."""
    results = []
    for kind, head, config in TINY:
        torch.manual_seed(0)
        model = (
            getattr(transformers, head).from_config(transformers.AutoConfig.for_model(kind, **config)).double().eval()
        )
        ids = torch.randint(5, 90, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
        spread = mixlens.load(two_devices(model))
        traces = [lens.trace(input_ids=ids) for lens in (mixlens.load(model), spread)]
        asked = {"query": 3} if kind == "bert" else {}
        gaps = {}
        for name in methods():
            options = asked | ({"replacement": "zero"} if name == "blank_out" else {})
            score = mixlens.mix if name in known() else mixlens.attribute
            expected, made = (score(trace, name, **({} if name in known() else options)) for trace in traces)
            gaps[name] = apart(made, expected, name)
        # A Llama rotates and norms in float32 whatever its own dtype, and devices round differently.
        dtype = torch.float32 if kind == "llama" else torch.float64
        torch.testing.assert_close(
            traces[1].hidden_states, traces[0].hidden_states, rtol=ALLOWED[dtype] / 10, atol=ALLOWED[dtype] / 100
        )
        worst = max(gaps, key=lambda name: gaps[name])
        told = {
            "way": f"tiny {kind}, half run on the GPU, half on the CPU",
            "placement": spread.placement,
            "methods": len(gaps),
        }
        results.append(
            told | {"worst": worst, "apart": gaps[worst], "ok": fine(gaps, dtype) and len(spread.devices) == 2}
        )
    return results


def fine(gaps: dict[str, float], dtype: torch.dtype) -> bool:
    return all(gap <= ALLOWED[dtype] * (100 if name in DIVIDING else 1) for name, gap in gaps.items())


def methods() -> list[str]:
    return [name for name in mixlens.methods() if name not in ("random", "null_attention")]


def megabytes(device: str) -> float | None:
    return round(torch.cuda.memory_allocated() / 1e6, 1) if device != "cpu" else None


def apart(made: Any, expected: Any, name: str) -> float:
    x, y = (each.scores.double().cpu() for each in (made, expected))
    if name in known() and not known()[name].signed:
        return float((shares(x) - shares(y)).abs().max())
    return float((x - y).abs().max() / y.abs().max().clamp(min=1e-12))


def scored(lens: mixlens.Model, ids: list[int], *, attributions: bool) -> tuple[dict[str, Any], dict[str, float]]:
    if lens.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    trace = lens.trace(input_ids=ids)
    found = mixlens.mix(trace, MAPS)
    if attributions:
        found |= {name: mixlens.attribute(trace, name) for name in ATTRIBUTIONS}
    told = {"seconds": time.perf_counter() - started}
    if lens.device.type == "cuda":
        told["peak_MB"] = torch.cuda.max_memory_allocated() / 1e6
    return found, told


def places(size: str, device: str, tokens: int) -> list[dict[str, Any]]:
    """Maps and attributions of the model spread out against those of the model in one place."""
    large = size == "7b"
    dtype = torch.bfloat16 if large else torch.float32
    model = random_llama(size, dtype, device)
    ids = torch.randint(1, model.config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    expected, whole = scored(mixlens.load(model), ids, attributions=not large)
    results = [{"way": "in one place", "allocated_MB": megabytes(device), **whole}]
    model = model.cpu()  # from here on the GPU holds what each way puts there
    if device != "cpu":
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        for way, spread in ways(model, device, Path(folder), run_on_cpu=not large):
            lens = mixlens.load(spread)
            held = megabytes(device)
            made, told = scored(lens, ids, attributions=not large)
            gaps = {name: apart(made[name], expected[name], name) for name in expected}
            worst = max(gaps, key=lambda name: gaps[name])
            results.append(
                {
                    "way": way,
                    "placement": lens.placement,
                    "allocated_MB": held,
                    **told,
                    "proof": lens.proof.gap if lens.proof is not None else None,
                    "worst": worst,
                    "apart": gaps[worst],
                    "ok": fine(gaps, dtype),
                }
            )
            del lens, spread, made
            if device != "cpu":
                torch.cuda.empty_cache()
        if not large:
            results.append(named(model, ids, expected, device, Path(folder)))
    return results


def named(model: Any, ids: list[int], expected: dict[str, Any], device: str, folder: Path) -> dict[str, Any]:
    """By name, with device_map="auto" and not enough room for all of it."""
    model.save_pretrained(folder / "model")
    room = sum(weights.numel() * weights.element_size() for weights in model.parameters()) // 2
    limits: dict[Any, Any] = {0: room, "cpu": "100GB"} if device != "cpu" else {"cpu": room}
    lens = mixlens.load(folder / "model", device_map="auto", max_memory=limits)
    made = mixlens.mix(lens.trace(input_ids=ids), MAPS)
    gaps = {name: apart(made[name], expected[name], name) for name in MAPS}
    worst = max(gaps, key=lambda name: gaps[name])
    told = {
        "way": 'device_map="auto" with half the room',
        "placement": lens.placement,
        "worst": worst,
        "apart": gaps[worst],
    }
    return told | {"ok": fine(gaps, torch.float32) and lens.dispatched}


def weights_megabytes(model: Any) -> float:
    """Parameters and buffers, and the scales that bitsandbytes keeps beside its weights."""
    tensors = [*model.parameters(), *model.buffers()]
    beside = [getattr(getattr(t, "quant_state", None), "absmax", None) for t in tensors] + [
        getattr(t, "SCB", None) for t in tensors
    ]
    return sum(t.numel() * t.element_size() for t in [*tensors, *beside] if isinstance(t, torch.Tensor)) / 1e6


def layers_megabytes(lens: mixlens.Model) -> float:
    """Of the layers alone: embeddings are not packed."""
    return sum(weights_megabytes(layer) for layer in {id(p.layer): p.layer for p in lens.parts}.values())


def packed(name: str, inputs: list[Any], device: str) -> list[dict[str, Any]]:
    """A model in 4 and 8 bits against itself in float32: gaps of the proof, and how far rolled-out maps move."""
    results = []
    exact = mixlens.load(name, device=device)
    expected = [mixlens.mix(trace, SOME) for trace in exact.trace(**_given(inputs))]
    for quantization, dtype in (
        (None, "float32"),
        ("4bit", "float32"),
        ("4bit", "bfloat16"),
        ("8bit", "float16"),
        ("8bit", "float32"),
    ):
        told: dict[str, Any] = {"model": Path(name).name, "quantization": quantization or "none", "dtype": dtype}
        try:
            lens = mixlens.load(name, device=device, dtype=dtype, quantization=quantization)
            made = [mixlens.mix(trace, SOME) for trace in lens.trace(**_given(inputs))]
        except mixlens.MixlensError as refusal:
            results.append(told | {"refused": str(refusal).replace(name, Path(name).name)})
            continue
        told |= {
            "layers_MB": round(layers_megabytes(lens), 2),
            "whole_MB": round(weights_megabytes(lens.hf_model), 2),
            "gap": max(each[method].info["gap"] for each in made for method in SOME),
            "allowed": made[0]["alti"].info["tolerance"],
        }
        for method in SOME:
            rows = [
                shares(one[method].rollout().scores[-1].double().cpu())
                - shares(other[method].rollout().scores[-1].double().cpu())
                for one, other in zip(made, expected, strict=True)
            ]
            told[method] = max(float(each.abs().sum(-1).mean()) / 2 for each in rows)  # total variation, mean over rows
        results.append(told)
    return results


def _given(inputs: list[Any]) -> dict[str, Any]:
    return {"text": list(inputs)} if isinstance(inputs[0], str) else {"input_ids": inputs}


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument(
        "--models", nargs="*", default=None, help="folders of models to pack; then nothing else is done"
    )
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args(given)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for noisy in ("accelerate.big_modeling", "bitsandbytes"):
        getLogger(noisy).setLevel(ERROR)
    results: list[dict[str, Any]] = []
    if asked.models:
        for name in asked.models:
            results += packed(name, list(TEXTS), asked.device)
    else:
        results += families() if asked.device != "cpu" else []
        results += places(asked.size, asked.device, asked.tokens)
        if find_spec("bitsandbytes") is not None and asked.size != "7b":
            with tempfile.TemporaryDirectory() as folder:
                random_llama(asked.size, torch.float32, "cpu").save_pretrained(folder)
                inputs = torch.randint(
                    1, SIZES[asked.size]["vocab_size"], (2, asked.tokens), generator=torch.Generator().manual_seed(1)
                )
                results += packed(folder, inputs.tolist(), asked.device)
    for result in results:
        print(json.dumps(result))
    if asked.out is not None:
        asked.out.write_text(
            json.dumps({"device": _device(asked.device), "versions": _versions(), "results": results}, indent=1) + "\n"
        )
    failed = [result for result in results if result.get("ok") is False]
    print("FAILED" if failed else "ok")
    return 1 if failed else 0


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device != "cpu" else "cpu"


def _versions() -> dict[str, str]:
    from mixlens.scoring.provenance import versions

    return dict(versions())


if __name__ == "__main__":
    sys.exit(main())
