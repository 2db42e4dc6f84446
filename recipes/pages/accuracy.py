"""Writes the table of docs/promises/accuracy.md: float32 against float64 on real models, and what the released forms
lose.

    python -m recipes.pages.accuracy --models ../shared/models --data ../shared/data/sst2/dev.jsonl

Needs real models and sentences beside the project; the folder names are the defaults above.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import torch

import mixlens

ROWS = (  # method, variant in float32, variant of the float64 reference
    ("norm_residual_ln", None, None),
    ("globenc", None, None),
    ("alti", None, None),
    ("value_zeroing", None, None),
    ("value_zeroing", "released", "paper"),
)
HEAD = "method (float32 against float64)"
OLD = rf"(?m)^\d+ sentences of SST-2\.\n\n\| {re.escape(HEAD)} .*\n(?:\|.*\n)+"  # the table, and the line above it


def largest_difference(narrow: list[mixlens.Map], wide: list[mixlens.Map]) -> float:
    """Largest difference of row-normalised scores over all sentences, layers, queries and keys."""

    def shares(scores: torch.Tensor) -> torch.Tensor:
        return scores.double() / scores.double().sum(-1, keepdim=True)

    return max(float((shares(a.scores) - shares(b.scores)).abs().max()) for a, b in zip(narrow, wide, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("../shared/models"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/sst2/dev.jsonl"))
    parser.add_argument("--n", type=int, default=100, help="number of sentences")
    parser.add_argument("--out", type=Path, default=Path("docs/promises/accuracy.md"))
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        parser.error(f"no data at {arguments.data}: give --data a JSONL file with the field `sentence`")
    texts = [json.loads(line)["sentence"] for line in arguments.data.read_text().splitlines()[: arguments.n]]
    folders = [arguments.models / name for name in ("minilm-sst2", "minilm-agreement", "stories260K")]
    table = {}
    for folder in folders:
        narrow, wide = (mixlens.load(folder, dtype=dtype).trace(texts) for dtype in ("float32", "float64"))
        for method, variant, reference in ROWS:
            a, b = mixlens.mix(narrow, method, variant=variant), mixlens.mix(wide, method, variant=reference)
            table[folder.name, method, variant] = largest_difference(a, b)
            print(folder.name, method, variant or "", f"{table[folder.name, method, variant]:.1e}", flush=True)
    arguments.out.write_text(page(arguments.out.read_text(), table, [folder.name for folder in folders], len(texts)))


def page(text: str, table: dict[tuple[str, str, str | None], float], models: list[str], n: int) -> str:
    """The page with this table in the place of its own; every other line stays."""
    lines = [f"{n} sentences of SST-2.", "", f"| {HEAD} | {' | '.join(models)} |", f"|---|{'---|' * len(models)}"]
    for method, variant, _ in ROWS:
        name = f"`{method}`" + (f', `variant="{variant}"` (1 - cos)' if variant else "")
        lines.append(f"| {name} | {' | '.join(f'{table[model, method, variant]:.1e}' for model in models)} |")
    whole, count = re.subn(OLD, lambda _: "\n".join(lines) + "\n", text, count=1)
    if not count:
        raise SystemExit("the page has no table to write anew: its head is not what this recipe writes.")
    return whole


if __name__ == "__main__":
    main()
