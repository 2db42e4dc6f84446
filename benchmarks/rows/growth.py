"""Cost against the number of tokens, 16 to 2,048: two layers of BERT-base, a line for each method."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import mixlens

from . import straightforward
from .measure import Results, available_memory, median_seconds, rounded
from .models import Pair, bert
from .rows import NORMS

SIZES = [16, 32, 64, 128, 256, 512, 1024, 2048]
LAYERS = 2


def works(pair: Pair, n: int) -> dict[str, tuple[str, Callable[[], Any], float]]:
    """Title, work, and how fast it grows at most when n doubles."""
    ids, given = pair.input(n)
    model, eager = pair.model, pair.eager

    def mixed(name: Any, **options: Any) -> Callable[[], Any]:
        return lambda: mixlens.mix(model.trace(input_ids=ids), name, **options)

    return {
        "forward": ("plain forward pass", lambda: pair.stock(given), 4),
        "trace": ("traced forward pass", lambda: model.trace(input_ids=ids), 4),
        "norm_maps": ("norm maps (4)", mixed(NORMS), 4),
        "alti": ("ALTI", mixed("alti"), 4),
        "effective_attention": ("effective attention", mixed("effective_attention"), 4),
        "value_zeroing_row": ("Value Zeroing, one row", mixed("value_zeroing", query=n // 2), 4),
        "value_zeroing": ("Value Zeroing, all rows", mixed("value_zeroing"), 4.5),
        "hta_layer": ("HTA, one layer", mixed("hta_layer"), 3),
        "slow_norm_maps": ("straightforward norm maps (4)", lambda: straightforward.norm_maps(eager, given), 4.5),
        "slow_alti": ("straightforward ALTI", lambda: straightforward.alti(eager, given), 4.5),
        "slow_effective_attention": (
            "straightforward effective attention",
            lambda: straightforward.effective_attention(eager, given),
            5,
        ),
        "slow_value_zeroing": ("straightforward Value Zeroing", lambda: straightforward.value_zeroing(eager, given), 5),
        "slow_hta_layer": ("straightforward HTA, one layer", lambda: straightforward.hta_layer(eager, given), 8),
    }


def room_for(name: str, n: int, device: str, width: int) -> bool:
    """Whether the straightforward code's tensors fit: four of pairs by features; for HTA, all pairs of features."""
    needed = (
        16 * width * n * n
        if name in ("slow_norm_maps", "slow_alti")
        else 4 * (n * width) ** 2
        if name == "slow_hta_layer"
        else 0
    )
    free = available_memory() if device == "cpu" else float(torch.cuda.mem_get_info()[0])
    return 2.5 * needed < free


@torch.no_grad()
def measure(
    results: Results, *, device: str, command: str, longest: float, budget: float, sizes: list[int] | None = None
) -> None:
    """A line ends where its next point would take longer than `longest` seconds, or not fit."""
    pair = bert(device, num_hidden_layers=LAYERS, max_position_embeddings=2048)
    results.begin("growth", command=command, device=device, layers=LAYERS, longest_seconds=longest)
    last: dict[str, float] = {}
    for n in sizes or SIZES:
        started = time.perf_counter()
        for name, (title, work, grows) in works(pair, n).items():
            if last.get(name, 0.0) * grows > longest or not room_for(name, n, device, pair.stock.config.hidden_size):
                last[name] = float("inf")
                continue
            last[name] = median_seconds(work, device=device, budget=budget, most=5)
            results.put(
                "growth", {"id": name, "title": title, "n": n, "seconds_per_layer": rounded(last[name] / LAYERS)}
            )
        told = {name: f"{1000 * took / LAYERS:.3g}" for name, took in last.items() if took < float("inf")}
        print(f"n = {n:4d}  ms a layer: {told} ({time.perf_counter() - started:.0f} s)", flush=True)
