"""What holds besides speed: two runs are bit-equal, fused loops are as the plain ones, a GPU as a CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn.functional import normalize

import mixlens

from .measure import Results, apart, plain_loops, rounded
from .models import bert
from .rows import NORMS

shares = partial(normalize, p=1.0, dim=-1)  # rows over the sum of their magnitudes

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
