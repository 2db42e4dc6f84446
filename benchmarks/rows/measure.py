"""How things are measured: beside a plain forward pass, again and again, so that the machine's noise hits both
alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Work = Callable[[], Any]
PATIENCE = 5.0  # seconds: what takes longer is run once


@dataclass(frozen=True)
class Ratio:
    """A work against the forward passes right before and right after it: the median of the rounds, and their ends."""

    median: float
    low: float
    high: float
    seconds: float  # of the work, median
    forward_seconds: float
    rounds: int

    def told(self, prefix: str = "") -> dict[str, Any]:
        return {
            f"{prefix}ratio": rounded(self.median),
            f"{prefix}spread": [rounded(self.low), rounded(self.high)],
            f"{prefix}seconds": rounded(self.seconds),
            f"{prefix}forward_seconds": rounded(self.forward_seconds),
            f"{prefix}rounds": self.rounds,
        }


def rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def seconds(work: Work, device: str) -> tuple[float, Any]:
    """How long it took, waited for; and what came out."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    made = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, made


def beside(
    forward: Work, work: Work, *, device: str, budget: float, most: int = 25, least: int = 3, patience: float = PATIENCE
) -> Ratio:
    """Forward, work, forward, work, ... for about `budget` seconds. Both have been run before, so nothing is cold.

    A work longer than `patience` seconds is run once. A forward pass right after a long work finds its memory cold and
    says nothing of forward passes: then it is run once for nothing, and the median of the next five counts (of long
    ones, itself).
    """
    ratios: list[float] = []
    taken: list[float] = []

    def passed(after: float) -> float:
        if after < 0.5:
            return seconds(forward, device)[0]
        cold, _ = seconds(forward, device)
        return cold if cold > 1 else statistics.median(seconds(forward, device)[0] for _ in range(5))

    forwards = [passed(after=1.0)]
    spent = 0.0
    while len(ratios) < most and (len(ratios) < least or spent < budget):
        own, _ = seconds(work, device)
        forwards.append(passed(after=own))
        ratios.append(own / ((forwards[-1] + forwards[-2]) / 2))
        taken.append(own)
        spent += own + forwards[-1]
        if own > patience:
            break
    return Ratio(
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(taken),
        statistics.median(forwards),
        len(ratios),
    )


def median_seconds(work: Work, *, device: str, budget: float, most: int = 9) -> float:
    """Median of as many runs as fit the budget, after one that is not counted; one long run counts itself."""
    first, _ = seconds(work, device)
    if first > PATIENCE:
        return first
    taken: list[float] = []
    while len(taken) < most and (not taken or sum(taken) < budget):
        taken.append(seconds(work, device)[0])
    return statistics.median(taken)


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference of any row-normalised score."""
    a, b = (t.double().cpu() / t.double().cpu().abs().sum(-1, keepdim=True) for t in (a, b))
    return float((a - b).abs().max())


@contextmanager
def plain_loops() -> Iterator[None]:
    """As with MIXLENS_KERNELS=plain in the environment."""
    from mixlens.fast import loops as kernels

    before = os.environ.get("MIXLENS_KERNELS")
    os.environ["MIXLENS_KERNELS"] = "plain"
    kernels._module.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("MIXLENS_KERNELS")
        if before is not None:
            os.environ["MIXLENS_KERNELS"] = before
        kernels._module.cache_clear()


def machine(device: str) -> dict[str, Any]:
    """What it ran on, in words."""
    import transformers

    import mixlens
    from mixlens.fast import loops as kernels

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "loops": kernels.used(torch.device(device)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "mixlens": mixlens.__version__,
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def available_memory() -> float:
    """Bytes that may be used without swapping; infinity where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")


class Results:
    """One JSON file, written after every row: a run that is cut off keeps what it has. Other parts' rows stay as they
    are."""

    def __init__(self, path: Path):
        self.path = path
        self.held: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def begin(
        self, part: str, *, command: str, device: str, keep: Callable[[dict[str, Any]], bool] | None = None, **told: Any
    ) -> None:
        """Start a part afresh, but for the rows to keep."""
        kept = [row for row in self.held.get(part, {}).get("rows", []) if keep is not None and keep(row)]
        self.held[part] = {"command": command, "machine": machine(device), **told, "rows": kept}
        self.write()

    def put(self, part: str, row: dict[str, Any]) -> None:
        self.held[part]["rows"].append(row)
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.held, indent=1, ensure_ascii=False) + "\n")
        fresh.replace(self.path)
