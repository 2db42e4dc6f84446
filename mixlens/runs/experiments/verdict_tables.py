"""The tables behind a ranking: the leader against the others, the signs of scores, right and wrong predictions, fillers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics import Interval, mean_with_interval
from ...metrics.agreement import kendall
from ...metrics.comparisons import Difference
from ...metrics.intervals import difference_with_interval
from ...types import Record
from ..judge.judged_metrics import OTHER_SIGNS
from ..judge.scoreboard import FEWEST, Array, Scoreboard, Values, against_zero
from .experiment import Setup
from .tables import Cell, Table, by
from .verdict_notes import SURE

MANY = 100_000  # texts
RESAMPLES = 500  # of texts, for the interval of an agreement
Rows = list[tuple[Cell, ...]]
Groups = Mapping[tuple[Any, ...], Sequence[Record]]
Readings = dict[
    str, tuple[Array, Array]
]  # method -> a metric's values by the one and by the other reading of the signs


def mean_of(values: Array, seed: int) -> Interval:
    return mean_with_interval(values, seed=seed, how="studentised")


# --- pairs --------------------------------------------------------------------------------------------------------------


def pairs_table(name: str, question: str, board: Scoreboard) -> Table | None:
    """The method with the highest score against every other, where they can be compared."""
    leader = board.order[0]
    rows = [_pair_row(other, d) for (first, other), d in board.differences.items() if first == leader]
    columns = ("method", f"{leader} less method", "told apart", "p, adjusted", "texts needed")
    note = (
        "Texts needed: so many would tell the two apart among all pairs at once, with 80 % power, if the difference is as large "
        "as here."
    )
    note += " Differences are over the kinds that both have." if any(map(board.lacks, board.methods)) else ""
    title = f"{leader}, the highest score in {question}, against every other method"
    return Table(f"{name}_pairs", title, columns, tuple(rows), note) if rows else None


def _pair_row(method: str, difference: Difference) -> tuple[Cell, ...]:
    interval = Interval(difference.mean, difference.low, difference.high, difference.n, math.nan)
    size = None if difference.sign else size_text(difference.needed_for_all)
    return method, interval, "yes" if difference.sign else "no", p_text(difference.p), size


def size_text(n: int | None) -> int | str | None:
    """A number of texts; a number that nobody has is not written out."""
    return "more than 100,000" if n is not None and n > MANY else n


def p_text(p: float) -> str:
    """A p-value in three digits; it is never 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


# --- signs --------------------------------------------------------------------------------------------------------------


def signs_table(setup: Setup, methods: Sequence[str], records: Sequence[Record]) -> Table | None:
    """The methods for which it matters whether tokens are ranked by signed scores or by their magnitude."""
    groups = by(records, "method", "metric")
    rows = [
        row for names in OTHER_SIGNS.items() for row in _sign_rows(names, _readings(groups, methods, names), setup.seed)
    ]
    columns = ("method", "as ranked", "mean", "other reading of the signs", "its mean", "difference")
    note = "Rows are shown where the difference, text by text, is not 0 (95 % intervals, for all methods at once)."
    return Table("signs", "Where signed scores and magnitudes disagree", columns, tuple(rows), note) if rows else None


def _readings(groups: Groups, methods: Sequence[str], names: tuple[str, str]) -> Readings:
    """method -> the values of a metric, and those by the other reading of the signs, [text] each."""
    both = [method for method in methods if all((method, name) in groups for name in names)]
    first, second = ({m: np.array([r.value for r in groups[m, name]]) for m in both} for name in names)
    return {method: (first[method], second[method]) for method in both}


def _sign_rows(names: tuple[str, str], readings: Readings, seed: int) -> Rows:
    """The methods for which the two readings of a metric differ."""
    differences = against_zero({method: first - second for method, (first, second) in readings.items()}, seed=seed)
    return [_sign_row(method, names, readings[method], str(d), seed) for method, d in differences.items() if d.sign]


def _sign_row(
    method: str, names: tuple[str, str], both: tuple[Array, Array], difference: str, seed: int
) -> tuple[Cell, ...]:
    first, second = (mean_of(values, seed) for values in both)
    return method, names[0], first, names[1], second, difference


# --- right and wrong predictions ----------------------------------------------------------------------------------------


def correctness_table(board: Scoreboard, records: Sequence[Record], labels: str = "") -> Table | None:
    """The scores on texts that the model gets right and on those that it gets wrong, where both are known. `labels`: what is said
    of labels."""
    sides = _sides(records)
    if min(int(side.sum()) for side in sides.values()) < 2:
        return None
    rows = tuple(_of_sides(board, method, [*sides.values()]) for method in board.order)
    columns = ("method", *(f"{name} ({int(side.sum())} texts)" for name, side in sides.items()), "right less wrong")
    note = (
        "The score of the first table, on the texts that the model predicts right and on those that it predicts wrong. Right "
        "less wrong: the difference of the two means; the texts of each side are resampled apart, for each method by itself. "
        f"No interval is made from fewer than {FEWEST} texts."
    )
    parts = [note, labels, *(_few(name, int(side.sum())) for name, side in sides.items())]
    return Table("correctness", "Right and wrong predictions", columns, rows, " ".join(filter(None, parts)))


def _sides(records: Sequence[Record]) -> dict[str, Array]:
    """[text]: 1 where the model is right, and where it is wrong; where nothing is known, neither."""
    of_one = [record for record in records if (record.method, record.metric) == (records[0].method, records[0].metric)]
    known = [record.info.get("right") for record in of_one]
    return {name: np.array([right is side for right in known]) for name, side in (("right", True), ("wrong", False))}


def _few(side: str, n: int) -> str:
    return "" if n >= SURE else f"Caution: {n} {side} predictions are few."


def _of_sides(board: Scoreboard, method: str, sides: Sequence[Array]) -> tuple[Cell, ...]:
    """The mean of each side, and the first less the second; without intervals where a side is too small for one."""
    scores = board.scores(method)
    values = [scores[side & ~np.isnan(scores)] for side in sides]
    enough = min(map(len, values)) >= FEWEST
    return (
        method,
        *(_mean_of_side(row, board.seed) for row in values),
        difference_with_interval(*values, seed=board.seed) if enough else None,
    )


def _mean_of_side(values: Array, seed: int) -> Interval:
    if len(values) >= FEWEST:
        return mean_of(values, seed)
    mean = float(values.mean()) if len(values) else math.nan
    return Interval(mean, math.nan, math.nan, len(values), math.nan)


# --- fillers ------------------------------------------------------------------------------------------------------------


def fillers_table(board: Scoreboard) -> Table | None:
    """How much the order of the methods depends on what stands in the place of a token that is taken away."""
    fillers = [values for values in board.metrics if "replacement" in values.request.options]
    if len(fillers) < 2 or len(fillers[0].of_methods) < 2:
        return None
    rows = tuple(_filler_row(values, fillers[0], board.seed) for values in fillers)
    agreement = f"agreement of the order with {fillers[0].request.written}"
    columns = ("metric", "best method", "best less the next", "told apart", "random scores", agreement)
    note = (
        "Best less the next: the method with the second mean, and the paired difference of the two, with a 95 % interval that "
        "holds for the best against all others. Agreement: Kendall's tau between the two orders of the methods, 1 where they are "
        f"the same; its interval is the middle 95 % of {RESAMPLES} resamples of the texts."
    )
    return Table("fillers", "What stands in the place of removed tokens", columns, rows, note)


def _filler_row(values: Values, first: Values, seed: int) -> tuple[Cell, ...]:
    rows = {method: np.where(values.defined, of, np.nan) for method, of in values.of_methods.items()}
    best, *others = sorted(rows, key=lambda method: -values.request.sign * float(np.nanmean(rows[method])))
    less = against_zero({method: rows[best] - rows[method] for method in others}, seed=seed).get(others[0])
    next_one = (None, None) if less is None else (f"{others[0]}: {less}", "yes" if less.sign else "no")
    random = None if values.random is None else mean_of(values.random, seed)
    agreement = 1.0 if values is first else _agreement(values, first, seed)
    return values.request.written, best, *next_one, random, agreement


def _agreement(one: Values, other: Values, seed: int) -> Interval:
    """Kendall's tau between the orders of the methods by two metrics, and its interval over resampled texts."""
    table = np.stack([[v.standard(method) for method in one.of_methods] for v in (one, other)])
    shared = table[:, :, ~np.isnan(table).any((0, 1))]
    n = shared.shape[-1]
    picked = np.random.default_rng(seed).integers(0, n, size=(RESAMPLES if n >= FEWEST else 0, n))
    taus = [float(kendall(*shared[:, :, places].mean(-1))) for places in picked]
    low, high, spread = (*np.nanpercentile(taus, [2.5, 97.5]), np.nanstd(taus)) if taus else (math.nan,) * 3
    return Interval(float(kendall(*shared.mean(-1))), float(low), float(high), n, float(spread))
