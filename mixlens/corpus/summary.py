"""`summarize`: what a run found, in one pass over its shards that holds no more than counts."""

from __future__ import annotations

import heapq
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..aggregate import bare
from ..disk import RunFolder
from ..errors import ResultError
from ..metrics.agreement import linear, ranks
from .shards import batches, shard_files, told_by
from .work import RATIO

TOKENS = 50_000  # tokens counted for each class and method; the rarest are let go beyond that


@dataclass
class Mean:
    """A running mean, and the largest."""

    count: int = 0
    total: float = 0.0
    largest: float = -math.inf

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.count, self.total, self.largest = self.count + 1, self.total + value, max(self.largest, value)

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(frozen=True)
class Summary:
    """What `mixlens summarize` prints."""

    out: str
    model: str
    finished: bool
    rows: int
    errors: int
    reasons: list[tuple[str, int]]  # why rows could not be explained, the most frequent first
    tokens_a_row: float | None
    seconds_a_row: float | None
    classes: dict[str, int]  # predictions, the most frequent first
    top: dict[str, dict[str, list[tuple[str, float, int]]]]  # class -> method -> (token, mean share, times)
    agreement: dict[str, float | None]  # "a, b" -> mean Spearman correlation
    mixing_ratio: dict[str, list[float]]  # method -> mean for each layer
    gap: dict[str, float | None]  # mean and largest
    slow: list[dict[str, Any]] = field(default_factory=list)

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    def text(self) -> str:
        return "\n".join(_lines(self))


def summarize(out: str | os.PathLike[str], *, top: int = 8, classes: int = 8, least: int = 3) -> Summary:
    """Top tokens for each predicted class (by their mean share of the absolute scores, of tokens seen `least` times),
    agreement between methods, mixing ratio per layer, reconstruction gaps, slow examples, reasons of errors."""
    files = shard_files(out)
    manifest = RunFolder(Path(out)).manifest
    if manifest.get("identity", {}).get("kind") != "corpus" or not isinstance(manifest["identity"].get("methods"), list):
        raise ResultError(f"{str(out)!r} is not the folder of a corpus run.")
    methods = list(manifest["identity"]["methods"])
    tally = _Tally(methods)
    reasons: Counter[str] = Counter()
    errors = 0
    for path in files:
        told = told_by(path)["errors"]
        errors += len(told)
        reasons.update(_kind(one["reason"]) for one in told)
        for some in batches(path):
            for row in some:
                tally.add(row)
    found = [name for name, _ in tally.predicted.most_common(classes)]
    return Summary(
        out=str(out),
        model=str(manifest.get("model", {}).get("name")),
        finished=bool(manifest.get("finished")),
        rows=tally.rows,
        errors=errors,
        reasons=reasons.most_common(5),
        tokens_a_row=tally.tokens.value,
        seconds_a_row=tally.seconds.value,
        classes=dict(tally.predicted.most_common(classes)),
        top={name: {method: tally.top(name, method, top, least) for method in methods} for name in found},
        agreement={f"{a}, {b}": mean.value for (a, b), mean in tally.agreement.items()},
        mixing_ratio={name: [mean.value or 0.0 for mean in layers] for name, layers in tally.ratios.items()},
        gap={"mean": tally.gap.value, "largest": tally.gap.largest if tally.gap.count else None},
        slow=tally.slowest(5),
    )


def _kind(reason: str) -> str:
    """A reason without its numbers, so that rows that are alike count as one."""
    return "".join("N" if c.isdigit() else c for c in reason).replace("NN", "N")[:80]


class _Tally:
    def __init__(self, methods: list[str]):
        self.methods = methods
        self.rows = 0
        self.predicted: Counter[str] = Counter()
        self.tokens, self.seconds, self.gap = Mean(), Mean(), Mean()
        self.agreement = {pair: Mean() for pair in combinations(methods, 2)}
        self.ratios: dict[str, list[Mean]] = {}
        self.shares: dict[tuple[str, str], dict[str, Mean]] = defaultdict(dict)
        self.slow: list[tuple[float, int, dict[str, Any]]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        predicted = row.get("prediction") or "(none)"
        self.predicted[predicted] += 1
        tokens = row["tokens"]
        self.tokens.add(len(tokens))
        self.seconds.add(row["seconds"])
        if row.get("gap") is not None:
            self.gap.add(row["gap"])
        own = [segment >= 0 for segment in row["segments"]] if row.get("segments") else [True] * len(tokens)
        scores = {name: np.array(row[name], dtype=np.float64) for name in self.methods if row.get(name) is not None}
        for name, found in scores.items():
            self._count(self.shares[predicted, name], tokens, own, np.abs(found))
        ranked = {name: ranks(found) for name, found in scores.items()} if len(scores) > 1 and len(tokens) > 1 else {}
        for a, b in self.agreement:
            if a in ranked and b in ranked:
                self.agreement[a, b].add(float(linear(ranked[a], ranked[b])))
        for name, values in row.items():
            if name.startswith(RATIO) and values is not None:
                layers = self.ratios.setdefault(name.removeprefix(RATIO), [Mean() for _ in values])
                for mean, value in zip(layers, values, strict=False):
                    mean.add(value)
        told = {"row": row["row"], "id": row["id"], "tokens": len(tokens), "seconds": row["seconds"]}
        heapq.heappush(self.slow, (row["seconds"], row["row"], told))
        if len(self.slow) > 32:
            heapq.heappop(self.slow)

    def _count(self, counted: dict[str, Mean], tokens: list[str], own: list[bool], sizes: Any) -> None:
        total = sizes[own].sum() if len(own) == len(sizes) else 0.0
        if not total > 0:
            return
        for token, mine, size in zip(tokens, own, sizes, strict=True):
            if mine:
                counted.setdefault(bare(token), Mean()).add(float(size / total))
        if len(counted) > 2 * TOKENS:
            for token, _ in sorted(counted.items(), key=lambda pair: pair[1].count)[:TOKENS]:
                del counted[token]

    def top(self, predicted: str, method: str, count: int, least: int) -> list[tuple[str, float, int]]:
        counted = self.shares.get((predicted, method), {})
        known = {token: mean for token, mean in counted.items() if mean.count >= least} or counted
        best = heapq.nlargest(count, known.items(), key=lambda pair: (pair[1].value or 0.0, pair[0]))
        return [(token, mean.value or 0.0, mean.count) for token, mean in best]

    def slowest(self, count: int) -> list[dict[str, Any]]:
        return [told for _, _, told in heapq.nlargest(count, self.slow, key=lambda one: one[:2])]


def _lines(found: Summary) -> Iterator[str]:
    state = "finished" if found.finished else "not finished"
    yield f"{found.out}: model {found.model}, {found.rows} rows explained, {found.errors} could not be, {state}"
    for reason, count in found.reasons:
        yield f"  {count:>7}  {reason}"
    if not found.rows:
        return
    yield f"{found.tokens_a_row:.1f} tokens a row, {1000 * (found.seconds_a_row or 0):.2f} ms a row"
    if found.gap["mean"] is not None:
        yield f"reconstruction gap: mean {found.gap['mean']:.1e}, largest {found.gap['largest']:.1e}"
    for name, methods in found.top.items():
        yield ""
        yield f"predicted {name!r}: {found.classes[name]} rows"
        width = max(map(len, methods))
        for method, tokens in methods.items():
            yield f"  {method:<{width}}  " + "  ".join(f"{token} {share:.3f}" for token, share, _ in tokens)
    if found.agreement:
        yield ""
        yield "agreement between methods (mean Spearman correlation over the tokens of a row)"
        width = max(map(len, found.agreement))
        for pair, value in found.agreement.items():
            yield f"  {pair:<{width}}  " + ("-" if value is None else f"{value:.3f}")
    if found.mixing_ratio:
        yield ""
        yield "mixing ratio by layer"
        width = max(map(len, found.mixing_ratio))
        for name, layers in found.mixing_ratio.items():
            yield f"  {name:<{width}}  " + "  ".join(f"{value:.3f}" for value in layers)
    yield ""
    yield "slowest rows"
    for one in found.slow:
        yield f"  row {one['row']:<9} {one['tokens']:>5} tokens  {1000 * one['seconds']:>9.2f} ms"
