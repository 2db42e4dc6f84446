"""Each method against one plain forward pass and against the obvious code, medians of one run.

    python -m benchmarks                      # CPU, BERT-base shape, n = 128 and 512
    python -m benchmarks --device cuda
    python -m benchmarks --sizes 16,32,64 --slow-up-to 64

Results are compared first: a quick answer that is another answer is not measured. Writes benchmarks/results/DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import mixlens
from benchmarks import straightforward

NORMS = ["norm", "norm_residual", "norm_residual_ln", "globenc"]


def seconds(work: Callable[[], Any], *, device: str, repeats: int) -> float:
    """Median wall-clock seconds, after one warm-up."""
    taken = []
    for number in range(repeats + 1):
        started = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if number:
            taken.append(time.perf_counter() - started)
    return sorted(taken)[len(taken) // 2]


def ours(model: mixlens.Model, ids: list[int]) -> dict[str, Callable[[], Any]]:
    """What is measured: the traced forward pass included, rollout too."""

    def rolled(names: Any) -> Any:
        made = mixlens.mix(model.trace(input_ids=ids), names)
        return {name: (one, one.rollout()) for name, one in made.items()} if isinstance(made, dict) else (made, made.rollout())

    return {
        "trace": lambda: model.trace(input_ids=ids),
        "norm maps + rollout": lambda: rolled(NORMS),
        "ALTI + rollout": lambda: rolled("alti"),
        "effective attention": lambda: mixlens.mix(model.trace(input_ids=ids), "effective_attention"),
        "Value Zeroing": lambda: mixlens.mix(model.trace(input_ids=ids), "value_zeroing"),
    }


def obvious(hf_model: Any, given: torch.Tensor) -> dict[str, Callable[[], Any]]:
    return {
        "norm maps + rollout": lambda: straightforward.norm_maps(hf_model, given),
        "ALTI + rollout": lambda: straightforward.alti(hf_model, given),
        "effective attention": lambda: straightforward.effective_attention(hf_model, given),
        "Value Zeroing": lambda: straightforward.value_zeroing(hf_model, given),
    }


def disagreement(model: mixlens.Model, eager: Any, ids: list[int]) -> dict[str, float]:
    """Largest difference of row-normalised scores between ours and the obvious code, on a short input."""
    given = torch.tensor([ids], device=model.device)
    trace = model.trace(input_ids=ids)

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a.cpu() / a.cpu().sum(-1, keepdim=True) - b.cpu() / b.cpu().sum(-1, keepdim=True)).abs().max())

    theirs = straightforward.norm_maps(eager, given)
    found = {name: apart(mixlens.mix(trace, name).scores, theirs[name]) for name in NORMS}
    found["alti"] = apart(mixlens.mix(trace, "alti").scores, straightforward.alti(eager, given))
    found["effective_attention"] = apart(
        mixlens.mix(trace, "effective_attention").scores, straightforward.effective_attention(eager, given)
    )
    found["value_zeroing"] = apart(mixlens.mix(trace, "value_zeroing").scores, straightforward.value_zeroing(eager, given))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", default="128,512", help="numbers of tokens, with commas between them")
    parser.add_argument(
        "--slow-up-to", type=int, default=128, help="largest n for the obvious code and for all rows of Value Zeroing"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    config = transformers.BertConfig()
    stock = transformers.BertModel(config).eval().to(arguments.device)
    eager = transformers.BertModel(transformers.BertConfig(attn_implementation="eager")).eval().to(arguments.device)
    eager.load_state_dict(stock.state_dict())
    model = mixlens.load(stock)
    everything: dict[str, Any] = {"rows": []}
    with torch.no_grad():
        short = torch.randint(1000, 20000, (24,), generator=torch.Generator().manual_seed(1)).tolist()
        everything["disagreement"] = disagreement(model, eager, short)
        print("agreement with the obvious code:", {k: f"{v:.0e}" for k, v in everything["disagreement"].items()}, flush=True)
        for n in (int(size) for size in arguments.sizes.split(",")):
            ids = torch.randint(1000, 20000, (n,), generator=torch.Generator().manual_seed(2)).tolist()
            given = torch.tensor([ids], device=arguments.device)
            timed = {"device": arguments.device, "repeats": arguments.repeats}
            forward = seconds(lambda given=given: stock(given), **timed)
            slow = obvious(eager, given) if n <= arguments.slow_up_to else {}
            for name, work in ours(model, ids).items():
                heavy = name == "Value Zeroing"
                if heavy and n > arguments.slow_up_to:
                    continue
                once = {**timed, "repeats": 1} if heavy else timed
                row = {"n": n, "method": name, "forward_seconds": forward, "ratio": seconds(work, **once) / forward}
                if name in slow:
                    row["obvious_ratio"] = seconds(slow[name], **{**timed, "repeats": 1}) / forward
                everything["rows"].append(row)
                told = f", obvious code {row['obvious_ratio']:.1f} x" if "obvious_ratio" in row else ""
                print(f"n = {n:4d}  {name:22s} {row['ratio']:6.2f} x one forward pass{told}", flush=True)
    everything["machine"] = {
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peak_memory_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{arguments.device}.json").write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
