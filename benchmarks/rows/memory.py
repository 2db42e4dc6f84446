"""Peak memory over a plain forward pass with attentions kept, n = 512. On a CPU each in a fresh process.

python -m benchmarks.memory cpu alti 512        # one measurement, as a line of JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mixlens

from . import straightforward
from .measure import Results, available_memory, rounded
from .models import Pair, bert
from .rows import NORMS

WORKS = {
    "plain": "plain forward pass, attentions kept",
    "trace": "the traced forward pass alone",
    "norm_maps": "norm maps (4)",
    "alti": "ALTI",
    "norm_maps_streamed": "norm maps (4), Model.mix",
    "alti_streamed": "ALTI, Model.mix",
    "straightforward": "straightforward code, ALTI",
}


def work(pair: Pair, what: str, n: int) -> Callable[[], Any]:
    ids, given = pair.input(n)
    model = pair.model
    return {
        "plain": lambda: pair.eager(given, output_attentions=True),
        "trace": lambda: model.trace(input_ids=ids),
        "norm_maps": lambda: mixlens.mix(model.trace(input_ids=ids), NORMS),
        "alti": lambda: mixlens.mix(model.trace(input_ids=ids), "alti"),
        "norm_maps_streamed": lambda: model.mix(input_ids=ids, name=NORMS),
        "alti_streamed": lambda: model.mix(input_ids=ids, name="alti"),
        "straightforward": lambda: straightforward.alti(pair.eager, given),
    }[what]


def status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))


@torch.no_grad()
def peak(what: str, n: int, device: str, pair: Pair | None = None) -> float:
    """Megabytes over what was held before. A short input has been run first, so that what is set up once does not
    count."""
    pair = pair or bert(device)
    work(pair, what, 16)()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = float(torch.cuda.memory_allocated())
        made = work(pair, what, n)()
        torch.cuda.synchronize()
        del made
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = status("VmRSS")
    made = work(pair, what, n)()
    found = status("VmHWM") - before
    del made
    return found


def measure(results: Results, *, device: str, n: int, command: str) -> list[str]:
    results.begin("memory", command=command, device=device, n=n)
    if device == "cpu" and not Path("/proc/self/clear_refs").exists():
        print("memory: not measured, this system does not say how much a process held at most", flush=True)
        return []
    plain, refused = None, []
    pair = bert(device) if device == "cuda" else None
    for what, title in WORKS.items():
        if what == "straightforward" and device == "cpu" and available_memory() < 20 * 4 * 768 * n * n:
            continue
        try:
            found = peak(what, n, device, pair) if pair is not None else in_a_process(what, n, device)
        except Exception as error:
            refused.append(f"memory, {title}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        plain = found if what == "plain" else plain
        assert plain is not None
        row = {"id": what, "title": title, "n": n, "peak_mb": rounded(found), "extra_mb": rounded(found - plain)}
        results.put("memory", row)
        print(
            f"n = {n:4d}  {title:42s} {found:7.0f} MB at most, {found - plain:+.0f} MB over the plain pass", flush=True
        )
    return refused


def in_a_process(what: str, n: int, device: str) -> float:
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", device, what, str(n)], check=False, capture_output=True, text=True
    )
    if told.returncode:
        raise RuntimeError((told.stderr.strip() or "no message").splitlines()[-1])
    return float(json.loads(told.stdout.splitlines()[-1])["peak_mb"])


if __name__ == "__main__":
    print(json.dumps({"peak_mb": peak(sys.argv[2], int(sys.argv[3]), sys.argv[1])}))
