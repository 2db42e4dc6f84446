"""Each method against one plain forward pass and against the straightforward code, in one run.

    python -m benchmarks                       # CPU: BERT-base shape, n = 128 and 512; about a quarter of an hour on two cores
    python -m benchmarks --device cuda         # also a large model; a few minutes
    python -m benchmarks --only rows,memory    # some parts alone; the others' results stay
    python -m benchmarks.peers                 # other packages, in environments of their own
    python -m benchmarks.page                  # docs/measured/performance.md from the results

Results are compared first: a quick answer that is another answer is not measured, and the run ends with status 1.
Writes benchmarks/results/DEVICE.json after every row.
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from .rows import checks, corpus, growth, large, memory, rows
from .rows.measure import Results

PARTS = ("rows", "memory", "corpus", "checks", "growth", "large")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas between them: {', '.join(PARTS)}")
    parser.add_argument("--sizes", default="128,512", help="numbers of tokens for the rows, with commas between them")
    parser.add_argument("--budget", type=float, default=None, help="seconds for each row's rounds (CPU 6, GPU 1)")
    parser.add_argument(
        "--longest", type=float, default=None, help="longest point of the growth curves, seconds (CPU 6, GPU 2)"
    )
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--shared", type=Path, default=corpus.SHARED, help="where the corpus and its model are")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args(given)
    unknown = set(asked.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"no part {sorted(unknown)[0]!r}. Known: {', '.join(PARTS)}.")
    return asked


def run(part: str, asked: argparse.Namespace, results: Results, *, command: str, budget: float) -> list[str]:
    """One part; what was refused."""
    on_gpu = asked.device == "cuda"
    told: dict[str, Any] = {"device": asked.device, "command": command}
    if part == "rows":
        return rows.measure(results, **told, sizes=[int(size) for size in asked.sizes.split(",")], budget=budget)
    if part == "memory":
        return memory.measure(results, **told, n=512)
    if part == "corpus":
        return corpus.measure(results, **told, budget=3 * budget, shared=asked.shared)
    if part == "checks":
        checks.measure(results, **told)
    elif part == "growth":
        growth.measure(results, **told, longest=asked.longest or (2 if on_gpu else 6), budget=budget / 8)
    elif on_gpu:
        large.measure(results, **told, budget=budget)
    else:
        print("large: skipped, it needs a GPU (--device cuda)", flush=True)
    return []


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    budget = asked.budget or (1.0 if asked.device == "cuda" else 6.0)
    results = Results(asked.out / f"{asked.device}.json")
    changed = {
        name: getattr(asked, name) for name in ("budget", "longest", "threads") if getattr(asked, name) is not None
    }
    words = ["python -m benchmarks", *(["--device cuda"] if asked.device == "cuda" else [])]
    command = " ".join(
        [*words, *(f"--{name} {value}" for name, value in changed.items())]
    )  # parts run alone are the same parts
    refused: list[str] = []
    for part in asked.only.split(","):
        started = time.perf_counter()
        try:
            refused += run(part, asked, results, command=command, budget=budget)
        except Exception as error:  # the other parts are still to come; the status says that one is missing
            refused.append(f"{part}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        print(f"-- {part}: {time.perf_counter() - started:.0f} s", flush=True)
    for told in refused:
        print(f"NOT MEASURED: {told}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
