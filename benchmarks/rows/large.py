"""A large model on a GPU: four layers of Llama-3-8B in shape, random bfloat16 weights, 4,096 tokens, streamed by
layer."""

from __future__ import annotations

from typing import Any

import torch
import transformers

import mixlens

from .measure import Results, beside, rounded
from .rows import NORMS

LAYERS = 4
TOKENS = 4096
SHAPE: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}


@torch.no_grad()
def measure(
    results: Results,
    *,
    device: str,
    command: str,
    budget: float,
    tokens: int = TOKENS,
    shape: dict[str, Any] | None = None,
) -> None:
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SHAPE, **(shape or {})}, num_hidden_layers=LAYERS)
    with torch.device(device):
        stock: Any = transformers.LlamaModel(config)
    stock = stock.to(torch.bfloat16).eval().requires_grad_(False)
    model = mixlens.load(stock)
    ids = torch.randint(1000, config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    given = torch.tensor([ids], device=device)

    def forward() -> Any:
        return stock(given, use_cache=False)

    told = f"Llama-3-8B, {LAYERS} layers, bfloat16, random weights"
    results.begin("large", command=command, device=device, shape=told, layers=LAYERS, n=tokens)
    for name, title, names in (("norm_maps", "norm maps (4)", NORMS), ("alti", "ALTI", ["alti"])):

        def work(names: list[str] = names) -> Any:
            return model.mix(input_ids=ids, name=names)

        forward()
        made = work()
        row: dict[str, Any] = {
            "id": name,
            "title": title,
            "n": tokens,
            "gap": rounded(max(one.info["gap"] for one in made.values()), 2),
        }
        del made
        row |= beside(forward, work, device=device, budget=budget, most=5, least=2).told()
        row["ms_per_layer"] = rounded(1000 * row["seconds"] / LAYERS)
        row["forward_ms_per_layer"] = rounded(1000 * row["forward_seconds"] / LAYERS)
        if device == "cuda":
            for key, what in (("forward_peak_mb", forward), ("peak_mb", work)):
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                what()
                torch.cuda.synchronize()
                row[key] = rounded(torch.cuda.max_memory_allocated() / 2**20)
        results.put("large", row)
        print(
            f"n = {tokens:4d}  {told}, {title}: {row['ms_per_layer']:.0f} ms a layer, {row['ratio']:.1f} x a forward "
            f"pass" + (f", {row['peak_mb'] / 1024:.1f} GiB at most" if "peak_mb" in row else ""),
            flush=True,
        )
