"""Rows a second of a corpus run's own work, file writing aside: tokenised rows in, rows with scores out.

    python -m benchmarks.scale                   # BERT-base in shape, random weights, this machine's CPU
    python -m benchmarks.scale --device cuda     # a GPU

Sentences of 6 to 60 tokens, 25 on average, in shards of 512 rows and batches as `mixlens run` makes them, beside plain
forward passes over the very same batches. `docs/measured/scale.md` has what came out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import transformers

import mixlens
from mixlens.runs.corpus.rows import InputRow
from mixlens.runs.corpus.worker import Plan, Worker

SHARD = 512
ASKED = ("alti", "alti,globenc,attention", "attcat", "alti,attcat", "value_zeroing")


def model(device: str) -> mixlens.Model:
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    stock = (
        transformers.BertForSequenceClassification(transformers.BertConfig(initializer_range=0.05)).eval().to(device)
    )
    return mixlens.load(stock.requires_grad_(False))


def sentences(count: int) -> list[InputRow]:
    seeded = torch.Generator().manual_seed(0)
    lengths = (torch.randn(count, generator=seeded) * 11 + 25).round().clamp(6, 60).long().tolist()
    texts = [torch.randint(1000, 30000, (n,), generator=seeded).tolist() for n in lengths]
    return [InputRow(row, str(row), None, None, ids, None, None, None, None, ()) for row, ids in enumerate(texts, 1)]


def worked(lens: mixlens.Model, methods: str, rows: list[InputRow]) -> float:
    """Rows a second, after one shard that is not counted."""
    worker = Worker(lens, Plan(methods=tuple(methods.split(","))))
    shards = [rows[i : i + SHARD] for i in range(0, len(rows), SHARD)]
    started, done = 0.0, 0
    for number, shard in enumerate(shards):
        if number == 1:
            _wait(lens)
            started = time.perf_counter()
        encoded = [worker.encode(one) for one in shard]
        for batch in lens.batches(encoded, None, None):
            made = worker._batch([shard[i] for i in batch], [encoded[i] for i in batch])
            assert all(isinstance(row, dict) for row in made), made
        done += len(shard) if number else 0
    _wait(lens)
    return done / (time.perf_counter() - started)


@torch.no_grad()
def plain(lens: mixlens.Model, rows: list[InputRow]) -> float:
    """The same of plain forward passes over the same batches, tokenised and padded beforehand."""
    batches = []
    for start in range(0, len(rows), SHARD):
        encoded = [lens.encode_ids(one.input_ids) for one in rows[start : start + SHARD]]
        batches += [(len(some), lens.inputs([encoded[i] for i in some])) for some in lens.batches(encoded, None, None)]
    for _, given in batches[:3]:
        lens.hf_model(**given)
    _wait(lens)
    started = time.perf_counter()
    for _, given in batches:
        lens.hf_model(**given).logits.cpu()
    return len(rows) / (time.perf_counter() - started)


def _wait(lens: mixlens.Model) -> None:
    if lens.device.type == "cuda":
        torch.cuda.synchronize()


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rows", type=int, default=None, help="by default 1,536 on a CPU, 16,384 on a GPU")
    parser.add_argument("--only", default=None, help="methods as `mixlens run` takes them; by default several lists")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args(given)
    lens = model(asked.device)
    rows = sentences(asked.rows or (16384 if asked.device == "cuda" else 3 * SHARD))
    results: list[dict[str, Any]] = [{"what": "plain forward passes", "rows_a_second": round(plain(lens, rows), 1)}]
    print(results[-1], flush=True)
    for methods in [asked.only] if asked.only else ASKED:
        slow = 8 if "value_zeroing" in methods else 1
        row = {
            "what": methods,
            "rows_a_second": round(worked(lens, methods, rows[: max(2 * SHARD, len(rows) // slow)]), 1),
        }
        results.append(row | {"share_of_plain": round(row["rows_a_second"] / results[0]["rows_a_second"], 3)})
        print(results[-1], flush=True)
    if asked.device == "cuda":
        print({"what": "most memory", "mb": round(torch.cuda.max_memory_allocated() / 1e6)}, flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
