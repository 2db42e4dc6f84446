"""A whole corpus: 1,000 real sentences, norm maps, ALTI and all rollouts, against plain batches of the stock model.

Needs the models and data beside the project (../shared); without them it says so and is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mixlens

from .measure import Results, apart, beside, rounded, seconds
from .rows import NORMS

SHARED = Path(__file__).resolve().parents[3] / "shared"
NAMES = [*NORMS, "alti"]
COUNT = 1000


def sentences(folder: Path, count: int = COUNT) -> list[str]:
    """The development sentences; the last few from the training file, where Parquet can be read."""
    found = [json.loads(line)["sentence"] for line in (folder / "dev.jsonl").read_text().splitlines()][:count]
    if len(found) < count:
        try:
            import pyarrow.parquet

            found += pyarrow.parquet.read_table(folder / "train.parquet", columns=["sentence"])["sentence"].to_pylist()
        except ImportError:
            print(f"without pyarrow there are {len(found)} sentences", flush=True)
    return found[:count]


def batches(coded: list[list[int]], tokens: int) -> Iterator[list[int]]:
    """Indices sorted by length, about so many tokens a batch."""
    batch: list[int] = []
    for i in sorted(range(len(coded)), key=lambda i: len(coded[i])):
        if batch and (len(batch) + 1) * len(coded[i]) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@torch.no_grad()
def plain(stock: Any, tokenizer: Any, texts: list[str], tokens: int) -> Tensor:
    """What anyone would write to have the model read a corpus: logits, in the order of the texts."""
    coded = tokenizer(texts)["input_ids"]
    logits = torch.zeros(len(texts), stock.config.num_labels)
    for batch in batches(coded, tokens):
        padded = tokenizer.pad({"input_ids": [coded[i] for i in batch]}, return_tensors="pt").to(stock.device)
        logits[batch] = stock(**padded).logits.cpu()
    return logits


def rolled(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: one.rollout() for name, one in each.items()} for each in made]


def ours(model: mixlens.Model, texts: list[str]) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    return {
        "trace_mix": lambda: rolled(mixlens.mix(model.trace(texts), NAMES)),
        "streamed": lambda: rolled(model.mix(texts, NAMES)),
    }


TITLES = {"trace_mix": "mixlens.mix(model.trace(texts), names)", "streamed": "model.mix(texts, names)"}


def load(shared: Path, device: str) -> tuple[Any, Any, mixlens.Model]:
    import transformers

    transformers.logging.set_verbosity_error()
    folder = shared / "models" / "minilm-sst2"
    stock = (
        transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval().to(device)
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return stock, tokenizer, mixlens.load(stock, tokenizer=tokenizer)


def measure(results: Results, *, device: str, command: str, budget: float, shared: Path = SHARED) -> list[str]:
    if not (shared / "models" / "minilm-sst2").is_dir() or not (shared / "data" / "sst2").is_dir():
        print("corpus: skipped, it needs the models and data beside the project (../shared)", flush=True)
        return []
    stock, tokenizer, model = load(shared, device)
    texts = sentences(shared / "data" / "sst2")
    results.begin(
        "corpus",
        command=command,
        device=device,
        sentences=len(texts),
        methods=NAMES,
        model="minilm-sst2 (BERT, 6 layers, width 384)",
    )
    refused = []
    timed = {}
    for tokens in (512, 1024, 4096, 16384):  # the plain pass is given the batches it likes best
        plain(stock, tokenizer, texts[:200], tokens)
        timed[tokens] = seconds(partial(plain, stock, tokenizer, texts, tokens), device)[0]
    best = min(timed, key=lambda tokens: timed[tokens])
    logits = plain(stock, tokenizer, texts, best)
    print(
        f"plain forward pass, {len(texts)} sentences: {timed[best]:.2f} s in batches of about {best} tokens", flush=True
    )
    expected = {i: mixlens.mix(model.trace(texts[i]), NAMES) for i in range(0, len(texts), max(1, len(texts) // 20))}
    for name, work in ours(model, texts).items():
        try:
            made = work()
        except Exception as error:
            refused.append(f"corpus, {name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        differs = max(apart(made[i][m].scores, each[m].rollout().scores) for i, each in expected.items() for m in NAMES)
        said = max(
            float((torch.stack([t.logits for t in model.trace(texts[:50])]).cpu() - logits[:50]).abs().max()), 0.0
        )
        row: dict[str, Any] = {
            "id": name,
            "title": TITLES[name],
            "disagreement": rounded(differs, 2),
            "logits_apart": rounded(said, 2),
        }
        if not (differs <= 2e-5 and said <= 1e-4):
            row["refused"] = f"differs from the sentences one by one by {differs:.1e}, the logits by {said:.1e}"
            refused.append(f"corpus, {name}: {row['refused']}")
        else:
            del made
            ratio = beside(
                lambda: plain(stock, tokenizer, texts, best), work, device=device, budget=budget, patience=60
            )
            row |= ratio.told() | {
                "plain_batch_tokens": best,
                "plain_sentences_per_second": rounded(len(texts) / ratio.forward_seconds),
                "sentences_per_second": rounded(len(texts) / ratio.seconds),
                "share": rounded(1 / ratio.median),
                "share_spread": [rounded(1 / ratio.high), rounded(1 / ratio.low)],
            }
            print(
                f"{TITLES[name]:42s} {row['sentences_per_second']:.0f} sentences a second, {100 * row['share']:.0f} % "
                f"of the "
                f"plain pass ({100 * row['share_spread'][0]:.0f} to {100 * row['share_spread'][1]:.0f})",
                flush=True,
            )
        results.put("corpus", row)
    return refused
