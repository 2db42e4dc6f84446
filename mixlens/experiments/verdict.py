"""The tables of `judge`, and the answer in one sentence: which methods lead, and which are not told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..asking import RANDOM
from ..metrics import Interval, mean_with_interval
from ..metrics.comparisons import simultaneous
from ..types import Record
from .experiment import Setup
from .figures import bars
from .judged_metrics import OTHER_SIGNS, MetricRequest, parse_metric, requests_of
from .scoreboard import Array, Scoreboard, Values
from .tables import Cell, Table, by

NAMED = 5  # methods that a sentence names
SURE = 30  # texts from which on a ranking is more than a hint
PLAUSIBLE = ("cues", "rationales")  # kinds of metrics; every other kind measures faithfulness, or something of its own
FAITHFUL = ("removing", "keeping", "one by one", "subsets")
TITLES = {
    "ranking": "Faithfulness: which method finds the tokens that the prediction rests on",
    "plausibility": "Plausibility: which method finds the tokens that are known to decide, or that people marked",
    "others": "Other metrics",
}


# --- from records to values ---------------------------------------------------------------------------------------------


def values_of(records: Sequence[Record]) -> dict[tuple[str, str], Array]:
    """(method, metric) -> [text], in the order of the texts."""
    groups = by(records, "method", "metric")
    return {(method, metric): np.array([r.value for r in group]) for (method, metric), group in groups.items()}


def twins_in(setup: Setup, records: Sequence[Record]) -> dict[str, list[str]]:
    """The first of each group of methods that have the same scores on every text -> the methods of the group."""
    firsts: dict[str, set[str]] = {}
    for record in records:
        firsts.setdefault(record.method, set()).add(record.info.get("same_as", record.method))
    groups: dict[str, list[str]] = {}
    for method in setup.methods:
        of_texts = firsts.get(method, {method})
        groups.setdefault(next(iter(of_texts)) if len(of_texts) == 1 else method, []).append(method)
    return groups


def metric_values(request: MetricRequest, methods: Iterable[str], records: Sequence[Record]) -> Values:
    """The values of one metric, of the methods that it can judge."""
    values = values_of([record for record in records if record.metric == request.written])
    of_methods = {m: values[m, request.written] for m in methods if m != RANDOM and (m, request.written) in values}
    drawn = [r for r in records if (r.method, r.metric) == (RANDOM, request.written)]
    if not drawn:
        return Values(request, of_methods)
    spread = np.array([record.info.get("spread", 0.0) for record in drawn])
    return Values(request, of_methods, np.array([record.value for record in drawn]), spread)


def boards_of(setup: Setup, records: Sequence[Record]) -> dict[str, Scoreboard]:
    """One scoreboard for each question that the metrics of a run answer: "ranking" (faithfulness), "plausibility", "others"."""
    methods = list(twins_in(setup, records))
    boards: dict[str, list[Values]] = {name: [] for name in TITLES}
    for request in requests_of(setup.options["metrics"]):
        values = metric_values(request, methods, records)
        if values.of_methods:
            boards[question_of(request)].append(values)
    shown = {name: [m for m in methods if any(_is_shown(m, v) for v in metrics)] for name, metrics in boards.items()}
    return {name: Scoreboard(tuple(metrics), tuple(shown[name]), setup.seed) for name, metrics in boards.items() if metrics}


def _is_shown(method: str, values: Values) -> bool:
    return method in values.of_methods or (method == RANDOM and values.random is not None)


def question_of(request: MetricRequest) -> str:
    """The table that a metric belongs to."""
    kind = request.metric.kind
    return "ranking" if kind in FAITHFUL else "plausibility" if kind in PLAUSIBLE else "others"


# --- the tables ---------------------------------------------------------------------------------------------------------


def tables_of(setup: Setup, records: list[Record]) -> list[Table]:
    """The rankings, the leader against every other method, and what depends on signs, on correctness and on fillers."""
    boards, twins = boards_of(setup, records), twins_in(setup, records)
    tables = [_ranking(setup, name, board, twins) for name, board in boards.items()]
    for name, board in boards.items():
        tables += _pairs(name, board)
    first = next(iter(boards.values()))
    return [*tables, *_signs(setup, first, boards, records), *_by_correctness(first, records), *_fillers(first)]


def _ranking(setup: Setup, name: str, board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> Table:
    with_random = any(values.random is not None for values in board.metrics)
    ends = ["better than random on"] if with_random else []
    columns = ("rank", "method", "group", "score", *(values.request.written for values in board.metrics), *ends)
    rows = [(rank, *_row(board, method, twins, with_random)) for rank, method in enumerate(board.order, 1)]
    return Table(name, TITLES[name], columns, tuple(rows), note_of(setup, board, twins))


def _row(board: Scoreboard, method: str, twins: Mapping[str, Sequence[str]], with_random: bool) -> tuple[Cell, ...]:
    cells = [v.interval(method, board.seed) if _is_shown(method, v) else None for v in board.metrics]
    tested = method != RANDOM and bool(board.differences)
    wins = f"{board.wins(method)} of {sum(cell is not None for cell in cells)}" if tested else "-"
    group = board.groups[method] if board.differences else None
    return (" = ".join(twins[method]), group, board.means[method], *cells, *([wins] if with_random else []))


def note_of(setup: Setup, board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> str:
    """How to read a ranking, and what is left out of it."""
    parts = [*_how_to_read(board), *_exceptions(board, twins)]
    if len(setup.examples) == 1:
        parts.append("One text has no intervals, and no two methods are told apart by it.")
    elif len(setup.examples) < SURE:
        parts.append(
            f"Caution: {len(setup.examples)} texts are few. On other texts the order may be another: look at the groups, and "
            f"judge {SURE} texts or more."
        )
    return " ".join(parts)


def _how_to_read(board: Scoreboard) -> list[str]:
    ways = {way: [v.request.written for v in board.metrics if v.request.metric.better == way] for way in ("higher", "lower")}
    directions = "; ".join(f"{way} is better: {', '.join(names)}" for way, names in ways.items() if names)
    parts = [f"{directions[0].upper()}{directions[1:]}."]
    kinds = {k: [v.request.written for v in board.metrics if v.request.metric.kind == k] for k in board.kinds}
    listed = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in kinds.items())
    if all(values.random is not None for values in board.metrics):
        parts.append(
            f"Score: how much better than random scores on the same text, in standard deviations of a random draw; the mean over "
            f"kinds of metrics, each of which counts once: {listed}."
        )
    if board.differences:
        parts.append(
            "Group: the methods that are not told apart from the first of the group, by 95 % intervals of paired differences "
            "that hold for all pairs at once."
        )
    return parts


def _exceptions(board: Scoreboard, twins: Mapping[str, Sequence[str]]) -> list[str]:
    """What a reader must know of single rows and columns."""
    parts = []
    if any(len(group) > 1 for group in twins.values()):
        parts.append("Methods joined by = have the same scores on every text and are one row.")
    if any(not values.of_methods.keys() >= set(board.methods) - {RANDOM} for values in board.metrics):
        parts.append(
            "blank_out has no blank_out_faithfulness: it would be compared with itself. Its score and its differences are over "
            "the other kinds."
        )
    for values in board.metrics:
        left = int((~values.defined).sum())
        if left:
            parts.append(f"{values.request.written} is undefined for a method on {left} texts, which are left out for all.")
    return parts


def _pairs(name: str, board: Scoreboard) -> list[Table]:
    """The leader against every other method, where they can be compared."""
    leader = board.order[0]
    found = {other: board.differences.get((leader, other)) for other in board.order[1:]}
    rows: list[tuple[Cell, ...]] = [
        (other, Interval(d.mean, d.low, d.high, d.n, math.nan), "no" if d.sign == 0 else "yes", d.p, d.needed)
        for other, d in found.items()
        if d is not None
    ]
    columns = ("method", f"{leader} less method", "told apart", "p, adjusted", "texts needed")
    note = "Texts needed: so many would tell this pair alone apart, with 80 % power, if the difference is as large as here."
    title = f"{leader}, the highest score of {'faithfulness' if name == 'ranking' else name}, against every other method"
    return [Table(f"{name}_pairs", title, columns, tuple(rows), note)] if rows else []


def _signs(setup: Setup, first: Scoreboard, boards: Mapping[str, Scoreboard], records: Sequence[Record]) -> list[Table]:
    """The methods for which it matters whether tokens are ranked by signed scores or by their magnitude."""
    values, rows = values_of(records), []
    methods = {method for board in boards.values() for method in board.methods}
    for name, other in OTHER_SIGNS.items():
        pairs = {
            m: (values[m, name], values[m, other])
            for m in setup.methods
            if m in methods and {(m, name), (m, other)} <= values.keys()
        }
        rows += _sign_rows(name, other, pairs, first.seed)
    columns = ("method", "metric", "as ranked", "other reading of the signs", "difference")
    note = "Rows are shown where the difference, text by text, is not 0 (95 % intervals, for all methods at once)."
    title = "Where signed scores and magnitudes disagree"
    return [Table("signs", title, columns, tuple(rows), note)] if rows else []


def _sign_rows(name: str, other: str, pairs: Mapping[str, tuple[Array, Array]], seed: int) -> list[tuple[Cell, ...]]:
    """(method, metric, as ranked, by the other reading, difference) of the methods for which the two readings differ."""
    series = {(method, i): row for method, both in pairs.items() for i, row in enumerate(both)}
    tested = [m for m, (a, b) in pairs.items() if len(a) > 4 and int((np.abs(a - b) > 1e-9).sum()) >= min(len(a), 8)]
    compared = simultaneous(series, [((m, 0), (m, 1)) for m in tested], seed=seed)
    return [
        (m, f"{name} ({other.partition(':')[2]} beside it)", *(_mean(row, seed) for row in pairs[m]), str(difference))
        for ((m, _), _), difference in compared.items()
        if difference.sign != 0
    ]


def _mean(values: Array, seed: int) -> Interval:
    return mean_with_interval(values, seed=seed, how="studentised")


def _by_correctness(board: Scoreboard, records: Sequence[Record]) -> list[Table]:
    """The scores on texts that the model gets right and on those that it gets wrong, where both are known."""
    one = [record for record in records if (record.method, record.metric) == (records[0].method, records[0].metric)]
    right = np.array([record.info.get("right") for record in one], dtype=object)
    sides = {"right": right == True, "wrong": right == False}  # noqa: E712 - None is neither
    if min(int(side.sum()) for side in sides.values()) < 2:
        return []
    rows: list[tuple[Cell, ...]] = [
        (m, *(_mean(np.where(side, board.scores(m), np.nan), board.seed) for side in sides.values())) for m in board.order
    ]
    columns = ("method", *(f"{name} ({int(side.sum())} texts)" for name, side in sides.items()))
    note = "The score of the first table, on the texts that the model predicts right and on those that it predicts wrong."
    return [Table("correctness", "Right and wrong predictions", columns, tuple(rows), note)]


def _fillers(board: Scoreboard) -> list[Table]:
    """How much the order of the methods depends on what stands in the place of a token that is taken away."""
    named = [v for v in board.metrics if "replacement" in v.request.options]
    if len({v.request.replacement() for v in named}) < 2:
        return []
    from ..metrics.agreement import kendall

    means = {v.request.replacement(): [v.standard(m)[v.defined].mean() for m in v.of_methods] for v in named}
    first = next(iter(means))
    rows: list[tuple[Cell, ...]] = [
        (
            str(way),
            list(v.of_methods)[int(np.argmax(means[way]))],
            _mean(v.random, board.seed),
            float(kendall(means[first], means[way])),
        )
        for v in named
        if (way := v.request.replacement()) in means and v.random is not None and len(v.of_methods) > 1
    ]
    columns = ("replacement", "best method", "random scores", f"agreement of the order with {first}")
    note = "Agreement: Kendall's tau between the two orders of the methods, 1 where they are the same."
    return [Table("fillers", "What stands in the place of removed tokens", columns, tuple(rows), note)]


# --- the answer -----------------------------------------------------------------------------------------------------------


def answers_of(setup: Setup, records: Sequence[Record]) -> list[str]:
    """One sentence for each question: who leads, and how many texts would tell more."""
    return [_answer(setup, name, board) for name, board in boards_of(setup, records).items()]


def _answer(setup: Setup, name: str, board: Scoreboard) -> str:
    n, leader = len(setup.examples), board.order[0]
    question = {"ranking": "faithfulness", "plausibility": "plausibility"}.get(name, "the other metrics")
    if not board.differences:
        texts = "this text" if n == 1 else f"these {n} texts"
        return f"On {texts} {leader} has the highest score in {question}; so few texts tell no two methods apart."
    texts, others = f"these {n} texts", board.leaders[1:]
    if not others:
        return f"On {texts} {leader} leads in {question} and is told apart from every other method{_below(board)}."
    verb = f"{_listed(board.leaders)} are not told apart and lead in {question}"
    return f"On {texts} {verb}{_below(board)}."


def _below(board: Scoreboard) -> str:
    """What is said of the methods that do not lead."""
    rest = [method for method in board.order if method not in board.leaders and method != RANDOM]
    chance = [m for m in board.order if m != RANDOM and RANDOM in board.methods and not board.told_apart(m, RANDOM)]
    parts = [f"; {len(rest)} other{'s' if len(rest) > 1 else ''} score lower" if rest else ""]
    parts += [f"; not told apart from random scores: {_listed(chance)}" if chance else ""]
    return "".join(parts)


def _listed(names: Sequence[str]) -> str:
    """The names, the first five of them where they are many."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- the figure -----------------------------------------------------------------------------------------------------------


def figure_of(setup: Setup, tables: list[Table], figure: Any) -> None:
    """The first metric as bars, the best on top: in the order of what is drawn, not of the score over all metrics."""
    table = tables[0]
    name = table.columns[4]
    place, request = table.columns.index(name), parse_metric(name)

    def key(row: tuple[Cell, ...]) -> float:
        mean = row[place].mean if isinstance(row[place], Interval) else math.nan  # type: ignore[union-attr]
        return math.inf if math.isnan(mean) else -request.sign * mean

    ordered = Table(table.name, table.title, table.columns, tuple(sorted(table.rows, key=key)), table.note)
    bars(figure.subplots(), ordered, name, title=f"{name}, mean and 95 % interval ({request.metric.better} is better)")
