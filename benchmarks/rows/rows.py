"""Each method at BERT-base shape against a plain forward pass of the stock model and against the straightforward code.

What is measured has the traced forward pass in it. Results are compared first: a quick answer that is another answer is
not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import mixlens

from . import straightforward
from .measure import (
    PATIENCE,
    Results,
    Work,
    apart,
    available_memory,
    beside,
    median_seconds,
    plain_loops,
    rounded,
    seconds,
)
from .models import Pair, bert

NORMS = list(straightforward.NORMS)
FIVE = ["attention", "norm", "norm_residual_ln", "globenc", "alti"]
Maps = dict[str, Tensor]


@dataclass(frozen=True)
class Row:
    """What is asked for, how we do it, how the straightforward code does it. Both give tensors by name, to be
    compared."""

    id: str
    title: str
    ours: Callable[[], Maps]
    slow: Callable[[], Maps] | None = None
    allowed: float = 2e-5  # largest difference of a row-normalised score
    layers: int = 12
    alone: Callable[[], Any] | None = None  # the map alone, of a trace that is there already
    note: str = ""
    plain: bool = False  # with the plain loops
    picked: int | None = None  # the one query that counts


def scores(name: str, **options: Any) -> Callable[..., Maps]:
    return lambda model, ids: {name: mixlens.mix(model.trace(input_ids=ids), name, **options).scores}


def rolled(model: mixlens.Model, ids: list[int], names: list[str]) -> Maps:
    """On a GPU in one go, on a CPU from a trace that could serve more."""
    on_gpu = model.device.type == "cuda"
    made = model.mix(input_ids=ids, name=names) if on_gpu else mixlens.mix(model.trace(input_ids=ids), names)
    over = mixlens.rollout(made)
    return {name: one.scores for name, one in made.items()} | {
        f"{name} rollout": one.scores for name, one in over.items()
    }


def separately(model: mixlens.Model, ids: list[int]) -> Maps:
    return {name: mixlens.mix(model.trace(input_ids=ids), name).scores for name in FIVE}


def slow_norms(pair: Pair, given: Tensor) -> Maps:
    made = straightforward.norm_maps(pair.eager, given)
    return made | {f"{name} rollout": straightforward.rollout(maps, normalize=False) for name, maps in made.items()}


def slow_alti(pair: Pair, given: Tensor) -> Maps:
    made = straightforward.alti(pair.eager, given)
    return {"alti": made, "alti rollout": straightforward.rollout(made)}


def slow_five(pair: Pair, given: Tensor) -> Maps:
    norms = straightforward.norm_maps(pair.eager, given)
    others = {
        "attention": straightforward.attention(pair.eager, given),
        "alti": straightforward.alti(pair.eager, given),
    }
    return {**{name: norms[name] for name in FIVE if name in norms}, **others}


class Once:
    """A long work that two rows share: run when first asked for."""

    def __init__(self, work: Callable[[], Maps], device: str):
        self.work, self.device, self.took = work, device, 0.0
        self.made: Maps | None = None

    def __call__(self) -> Maps:
        if self.made is None:
            self.took, self.made = seconds(self.work, self.device)
        return self.made


def rows(pair: Pair, one_layer: Pair, narrow: Pair, n: int, device: str) -> Iterator[Row]:
    """BERT-base itself, one layer of it, and one layer of width 384."""
    ids, given = pair.input(n)
    model, eager = pair.model, pair.eager
    query = n // 2
    held = (
        16 * pair.stock.config.hidden_size * n * n
    )  # bytes of the straightforward code's four tensors of pairs by features
    fits = available_memory() > 3 * held if device == "cpu" else torch.cuda.mem_get_info()[0] > 3 * held
    no_room = "" if fits else "the straightforward code does not fit this machine"

    def norms() -> Maps:
        return rolled(model, ids, NORMS)

    def alti() -> Maps:
        return rolled(model, ids, ["alti"])

    yield Row("trace", "the traced forward pass alone", lambda: {"": model.trace(input_ids=ids).layers[-1].output})
    slow = partial(slow_norms, pair, given) if fits else None
    yield Row("norm_maps", "norm maps (4) + rollout", norms, slow, note=no_room)
    slow = partial(slow_alti, pair, given) if fits else None
    # The straightforward code subtracts two large sums: in float32 its own error is the larger one.
    yield Row("alti", "ALTI + rollout", alti, slow, allowed=1e-4, note=no_room)
    yield Row("norm_maps_plain", "norm maps (4) + rollout, plain loops", norms, plain=True)
    yield Row("alti_plain", "ALTI + rollout, plain loops", alti, plain=True)
    whole = pair if n <= 128 or device == "cuda" else one_layer
    note = "" if whole is pair else "one layer of the same shape"
    work, traced = whole.model, whole.model.trace(input_ids=ids)
    zeroed = Once(lambda: {"value_zeroing": straightforward.value_zeroing(whole.eager, given)}, device)
    yield Row(
        "value_zeroing",
        "Value Zeroing, all rows",
        lambda: scores("value_zeroing")(work, ids),
        zeroed,
        allowed=1e-4,
        layers=len(work.parts),
        alone=lambda: mixlens.mix(traced, "value_zeroing"),
        note=note,
    )
    yield Row(
        "value_zeroing_row",
        "Value Zeroing, one row a layer",
        lambda: scores("value_zeroing", query=query)(model, ids),
        zeroed if whole is pair else None,
        allowed=1e-4,
        picked=query,
        note="the straightforward code runs the same layers for one row as for all",
    )
    yield Row(
        "effective_attention",
        "effective attention",
        lambda: scores("effective_attention")(model, ids),
        (lambda: {"effective_attention": straightforward.effective_attention(eager, given)})
        if n <= 128 or device == "cpu"
        else None,
        allowed=1e-4,
    )
    yield Row(
        "five_together",
        "five methods on one trace",
        lambda: {name: one.scores for name, one in mixlens.mix(model.trace(input_ids=ids), FIVE).items()},
        partial(slow_five, pair, given) if n <= 128 or device == "cuda" else None,
        allowed=1e-4,
    )
    yield Row(
        "five_separately",
        "the same five, each with its own trace",
        lambda: separately(model, ids),
        note="compare with the row above",
    )
    if n == 128:
        short, shorter = narrow.input(32)
        yield Row(
            "hta_layer",
            "HTA of one layer, exact (n = 32, width 384)",
            lambda: scores("hta_layer")(narrow.model, short),
            lambda: {"hta_layer": straightforward.hta_layer(narrow.eager, shorter)},
            layers=1,
            note="against batched autograd",
        )


def disagreement(ours: Maps, slow: Maps, picked: int | None) -> float:
    rows = slice(None) if picked is None else slice(picked, picked + 1)
    return max(apart(ours[name][:, rows], slow[name][:, rows]) for name in slow)


def measure(results: Results, *, device: str, sizes: list[int], command: str, budget: float) -> list[str]:
    """Every row at every size; returns what was refused."""
    pair, one_layer = bert(device), bert(device, num_hidden_layers=1)
    narrow = bert(device, num_hidden_layers=1, hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    again = {*sizes, 32} if 128 in sizes else {*sizes}  # the rows of other sizes stay
    told: dict[str, Any] = {"shape": "BERT-base, float32, batch 1, random weights", "five": FIVE}
    results.begin("rows", command=command, device=device, keep=lambda row: row["n"] not in again, **told)
    refused = []
    for n in sizes:
        for row in rows(pair, one_layer, narrow, n, device):
            with torch.no_grad():
                made = measured(row, pair, one_layer, narrow, n, device=device, budget=budget)
            results.put("rows", made)
            print(line(made), flush=True)
            if "refused" in made:
                refused.append(f"{row.id}, n = {n}: {made['refused']}")
    return refused


def forward_of(row: Row, pair: Pair, one_layer: Pair, narrow: Pair, n: int) -> Work:
    used = narrow if row.id == "hta_layer" else one_layer if row.layers == 1 else pair
    given = used.input(32 if row.id == "hta_layer" else n)[1]
    return lambda: used.stock(given)


def measured(
    row: Row, pair: Pair, one_layer: Pair, narrow: Pair, n: int, *, device: str, budget: float
) -> dict[str, Any]:
    forward = forward_of(row, pair, one_layer, narrow, n)
    told: dict[str, Any] = {
        "id": row.id,
        "title": row.title,
        "n": 32 if row.id == "hta_layer" else n,
        "layers": row.layers,
    }
    if row.note:
        told["note"] = row.note
    if row.plain:
        with plain_loops():
            for _ in range(4 if device == "cuda" else 1):
                forward(), row.ours()
            return told | beside(forward, row.ours, device=device, budget=budget).told()
    forward()
    made = row.ours()
    slow_took = None
    if row.slow is not None:
        slow_took, expected = seconds(row.slow, device)
        slow_took = row.slow.took if isinstance(row.slow, Once) else slow_took
        told["disagreement"] = rounded(disagreement(made, expected, row.picked), 2)
        if not told["disagreement"] <= row.allowed:
            return told | {"refused": f"differs from the straightforward code by {told['disagreement']:.1e}"}
        del expected
    for _ in range(3 if device == "cuda" else 0):  # what is replayed is captured now: the page says when that pays
        row.ours()
    told |= beside(forward, row.ours, device=device, budget=budget).told()
    told["ms_per_layer"] = rounded(1000 * told["seconds"] / row.layers)
    if row.alone is not None:
        told["map_ms_per_layer"] = rounded(
            1000 * median_seconds(row.alone, device=device, budget=budget / 2) / row.layers
        )
    if row.slow is not None and slow_took is not None:
        if slow_took > PATIENCE or isinstance(row.slow, Once):  # the run it was compared by is its measurement
            told |= {
                "slow_ratio": rounded(slow_took / told["forward_seconds"]),
                "slow_seconds": rounded(slow_took),
                "slow_rounds": 1,
            }
        else:
            slow = beside(forward, row.slow, device=device, budget=budget, most=5, least=1).told("slow_")
            told |= {key: slow[key] for key in ("slow_ratio", "slow_seconds", "slow_rounds")}
        told["times_faster"] = rounded(told["slow_seconds"] / told["seconds"])
    return told


def line(told: dict[str, Any]) -> str:
    if "refused" in told:
        return f"n = {told['n']:4d}  {told['title']:42s} NOT MEASURED: {told['refused']}"
    low, high = told["spread"]
    slow = (
        f", straightforward {told['slow_ratio']:.1f} x, apart {told['disagreement']:.0e}"
        if "slow_ratio" in told
        else ""
    )
    return (
        f"n = {told['n']:4d}  {told['title']:42s} {told['ratio']:7.2f} x a forward pass ({low:.2f} to {high:.2f}){slow}"
    )
