"""Other packages on the same models, each where it installs. A peer that fails is reported with its message.

    python -m benchmarks.peers                           # captum here; inseq in an environment of its own (about 2 GB)
    python -m benchmarks.peers --only captum
    python -m benchmarks.peers --environment FOLDER      # inseq is installed there already

Writes benchmarks/results/peers.json. Never part of `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

import mixlens

from ..rows.measure import Results, apart, beside, rounded, seconds

HERE = Path(__file__).parent
ENVIRONMENT = HERE / ".venv"  # ignored by git
PINNED = [
    "torch==2.13.0",
    "inseq==0.7.1",
    "transformers==4.53.3",
]  # the newest transformers its value_zeroing was seen to run with
WIDTH: dict[str, Any] = {"vocab_size": 1000, "max_position_embeddings": 256}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {
        **WIDTH,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "initializer_range": 0.05,
    },
    "gpt2": {"vocab_size": 1000, "n_positions": 256, "initializer_range": 0.05},
}
TOKENS = 64


def one_line(error: Any, most: int = 240) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


# --- captum -----------------------------------------------------------------------------------------------------------


def classifier(n: int) -> tuple[mixlens.Model, list[int]]:
    """MiniLM in shape, two classes, random weights, and ids for it."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, initializer_range=0.05
    )
    stock = transformers.BertForSequenceClassification(config).eval().requires_grad_(False)
    ids = torch.randint(1000, 20000, (n,), generator=torch.Generator().manual_seed(0)).tolist()
    return mixlens.load(stock), ids


def with_captum(results: Results, *, budget: float, steps: int = 50) -> None:
    try:
        from captum.attr import DeepLift, IntegratedGradients
    except ImportError as error:
        for name in ("integrated_gradients", "deeplift"):
            results.put("peers", {"id": name, "peer": "captum", "failed": one_line(error)})
        return
    model, ids = classifier(TOKENS)
    stock, given = model.hf_model, torch.tensor([ids])
    trace = model.trace(input_ids=ids)
    table = stock.get_input_embeddings()
    x, below = table(given), torch.zeros_like(table(given))
    versions = {name: version(name) for name in ("captum", "torch", "transformers")}

    class OfEmbeddings(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = stock

        def forward(self, embedded: torch.Tensor) -> torch.Tensor:
            return self.model(inputs_embeds=embedded).logits

    net = OfEmbeddings()

    def integrated(together: int | None) -> torch.Tensor:
        made = IntegratedGradients(net).attribute(
            x, below, target=1, n_steps=steps, method="gausslegendre", internal_batch_size=together
        )
        return made.sum(-1)[0].detach()

    def lifted() -> torch.Tensor:
        return DeepLift(net).attribute(x, below, target=1).sum(-1)[0].detach()

    def forward() -> Any:
        with torch.no_grad():
            return stock(given)

    with torch.no_grad():
        change = float((net(x) - net(below))[0, 1])

    def ours(name: str) -> Any:
        options: dict[str, Any] = {"steps": steps} if name == "integrated_gradients" else {}
        return mixlens.attribute(trace, name, target=1, baseline="zero", embedding="word", **options)

    integrated(16)
    sizes = {size: seconds(partial(integrated, size), "cpu")[0] for size in (4, 16, None)}
    best = min(sizes, key=lambda size: sizes[size])  # captum is given the batches it likes best
    theirs: dict[str, Callable[[], torch.Tensor]] = {
        "integrated_gradients": lambda: integrated(best),
        "deeplift": lifted,
    }
    for name, their in theirs.items():
        row: dict[str, Any] = {"id": name, "peer": "captum", "n": TOKENS, "versions": versions}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of captum, about its own hooks
                made, expected = ours(name), their()
            row["disagreement"] = rounded(float((made.scores - expected).abs().max() / expected.abs().max()), 2)
            row["gap"] = rounded(abs(float(made.scores.sum()) - change) / abs(change), 2)
            row["peer_gap"] = rounded(abs(float(expected.sum()) - change) / abs(change), 2)
            row |= beside(forward, partial(ours, name), device="cpu", budget=budget, least=2).told()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row |= beside(forward, their, device="cpu", budget=budget, least=2).told("peer_")
            row["times_faster"] = rounded(row["peer_seconds"] / row["seconds"])
        except Exception as error:  # whatever a peer raises is a result
            row["failed"] = one_line(error)
        results.put("peers", row)
        print({key: value for key, value in row.items() if key != "versions"}, flush=True)


# --- inseq ------------------------------------------------------------------------------------------------------------


def environment(folder: Path) -> Path:
    """A Python with inseq, made where it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED]
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        if told.returncode:
            lines = (
                [line for line in told.stderr.splitlines() if line.startswith("ERROR")]
                or told.stderr.splitlines()
                or ["pip failed"]
            )
            python.unlink(missing_ok=True)  # so that the next run tries again
            raise RuntimeError(lines[-1])
    return python


def with_inseq(results: Results, *, folder: Path, rounds: int) -> None:
    try:
        python = environment(folder)
    except Exception as error:
        results.put("peers", {"id": "value_zeroing", "peer": "inseq", "failed": one_line(error), "pinned": PINNED})
        print(f"inseq cannot be installed: {one_line(error)}", flush=True)
        return
    for model_type, shape in SHAPES.items():
        row = zeroed(python, model_type, shape, rounds=rounds)
        results.put("peers", row)
        print({key: value for key, value in row.items() if key != "versions"}, flush=True)


def zeroed(python: Path, model_type: str, shape: dict[str, Any], *, rounds: int) -> dict[str, Any]:
    """All rows of all layers, in both, on the same weights and ids."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **shape)
    stock = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    ids = torch.randint(4, config.vocab_size, (TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()
    row: dict[str, Any] = {
        "id": "value_zeroing",
        "peer": "inseq",
        "model_type": model_type,
        "n": TOKENS,
        "pinned": PINNED,
    }
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        weights = {key: value.contiguous().clone() for key, value in stock.state_dict().items()}
        save_file(weights, work / "weights.safetensors")
        asked = {
            "model_type": model_type,
            "config": shape,
            "ids": ids,
            "threads": torch.get_num_threads(),
            "rounds": rounds,
        }
        (work / "shape.json").write_text(json.dumps(asked))
        command = [str(python), str(HERE / "inseq_value_zeroing.py"), name]
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        if told.returncode:
            return row | {"failed": one_line(raised(told.stderr))}
        theirs, scores = (
            json.loads((work / "result.json").read_text()),
            load_file(work / "scores.safetensors")["scores"],
        )
    model = mixlens.load(stock)
    made = mixlens.mix(model.trace(input_ids=ids), "value_zeroing")
    # Deeper layers turn less, and 1 - cos in float32 has a floor; its last layer is read after the model's final norm.
    row["disagreement"] = rounded(apart(made.scores[:1], scores[:1, :TOKENS, :TOKENS]), 2)
    row["disagreement_deeper"] = rounded(apart(made.scores[1:-1], scores[1:-1, :TOKENS, :TOKENS]), 2)
    given = torch.tensor([ids])

    @torch.no_grad()
    def forward() -> Any:
        return stock(given, use_cache=False)

    row |= beside(
        forward, lambda: mixlens.mix(model.trace(input_ids=ids), "value_zeroing"), device="cpu", budget=6
    ).told()
    row |= {"peer_seconds": rounded(theirs["seconds"]), "peer_forward_seconds": rounded(theirs["forward_seconds"])}
    row |= {"peer_ratio": rounded(theirs["seconds"] / theirs["forward_seconds"]), "peer_rounds": theirs["rounds"]}
    row |= {"versions": theirs["versions"], "times_faster": rounded(theirs["seconds"] / row["seconds"])}
    return row


def raised(text: str) -> str:
    """The line of a traceback that says what was raised."""
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in reversed(lines) if "Error" in line and not line.startswith(" ")), lines[-1])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="captum,inseq")
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each row's rounds")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    asked = parser.parse_args(given)
    transformers.logging.set_verbosity_error()
    results = Results(asked.out / "peers.json")
    wanted = asked.only.split(",")
    results.begin(
        "peers", command="python -m benchmarks.peers", device="cpu", keep=lambda row: row["peer"] not in wanted
    )
    if "captum" in wanted:
        with_captum(results, budget=asked.budget)
    if "inseq" in wanted:
        with_inseq(results, folder=asked.environment, rounds=3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
