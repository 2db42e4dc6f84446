"""What holds besides speed: two runs are bit-equal, fused loops are as the plain ones, a GPU as a CPU; what precision= costs."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

import mixlens
from mixlens.scoring.scoring import shares

from .measure import Results, apart, median_seconds, plain_loops, rounded
from .models import bert
from .rows import NORMS

NAMES = [*NORMS, "alti", "value_zeroing", "effective_attention"]
N = 96


@torch.no_grad()
def measure(results: Results, *, device: str, command: str) -> None:
    pair = bert(device, num_hidden_layers=4)
    ids, _ = pair.input(N)
    results.begin("checks", command=command, device=device, n=N, layers=4)
    exact_model = mixlens.load(pair.stock, dtype="float64", device="cpu")
    exact = mixlens.mix(exact_model.trace(input_ids=ids), NAMES)
    other = mixlens.load(pair.stock, device="cpu") if device == "cuda" else None
    on_cpu = mixlens.mix(other.trace(input_ids=ids), NAMES) if other is not None else {}
    once, again = (mixlens.mix(pair.model.trace(input_ids=ids), NAMES) for _ in range(2))
    with plain_loops():
        plain = mixlens.mix(pair.model.trace(input_ids=ids), NAMES)
    for name in NAMES:
        row: dict[str, Any] = {
            "id": name,
            "bit_equal": torch.equal(once[name].scores, again[name].scores),
            "float64_apart": rounded(apart(once[name].scores, exact[name].scores), 2),
            "plain_apart": rounded(apart(once[name].scores, plain[name].scores), 2),
        }
        if on_cpu:
            row["cpu_apart"] = rounded(apart(once[name].scores, on_cpu[name].scores), 2)
        results.put("checks", row)
        print(f"{name:22s} {row}", flush=True)
    if device == "cuda":
        precision(results, command=command)


@torch.no_grad()
def precision(results: Results, *, command: str, n: int = 512) -> None:
    """What precision= gains and costs: the error that `.info` says, and those against float64, of one layer."""
    pair, layer = bert("cuda"), bert("cuda", num_hidden_layers=1)
    ids, _ = pair.input(n)
    trace, one = pair.model.trace(input_ids=ids), layer.model.trace(input_ids=ids)
    exactly = mixlens.load(copy.deepcopy(layer.stock).double()).trace(input_ids=ids)
    names = {"norm_maps": NORMS, "alti": ["alti"], "value_zeroing": ["value_zeroing"]}
    results.begin("precision", command=command, device="cuda", n=n, layers=len(pair.model.parts))
    for key, asked in names.items():
        exact = mixlens.mix(exactly, asked)
        for wanted in ("plain", "float32", "tf32", "bfloat16"):
            with plain_loops() if wanted == "plain" else nullcontext():
                mixed = partial(mixlens.mix, precision="float32" if wanted == "plain" else wanted)
                made = mixed(one, asked)
                took = median_seconds(lambda mixed=mixed, asked=asked: mixed(trace, asked), device="cuda", budget=2)
            pairs = [(shares(made[m].scores.double()), shares(exact[m].scores)) for m in asked]
            row = {
                "id": key,
                "precision": wanted,
                "map_ms_per_layer": rounded(1000 * took / len(pair.model.parts)),
                "apart_from_float64": rounded(max(float((a - b).abs().max()) for a, b in pairs), 2),
                "relative": rounded(max(float(((a - b).abs() / b)[b > 1e-9].max()) for a, b in pairs), 2),
                "said": rounded(max(made[m].info.get("precision_error", 0.0) for m in asked), 2),
            }
            results.put("precision", row)
            print(row, flush=True)
