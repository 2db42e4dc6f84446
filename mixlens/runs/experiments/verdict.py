"""The rankings of `judge`, and the answer in one sentence: which method has the highest score, and which are not told apart from
it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics import Interval
from ...scoring.asking import RANDOM
from ...types import Record
from ..judge.judge_summary import kind_column, metrics_in
from ..judge.judged_labels import labels_told
from ..judge.judged_metrics import BLANKED, IS_BLANK_OUT, MetricRequest, parse_metric, requests_of
from ..judge.scoreboard import Array, Scoreboard, Values
from .experiment import Setup
from .figure_style import axis_label
from .figures import bars
from .tables import Cell, Table, by
from .verdict_notes import note_of
from .verdict_tables import correctness_table, fillers_table, pairs_table, signs_table

NAMED = 5  # methods that a sentence names
FAITHFUL, PLAUSIBLE = ("removing", "keeping", "one by one", "subsets"), ("cues", "rationales")  # kinds of metrics
TITLES = {
    "ranking": "Faithfulness: which method finds the tokens that the prediction rests on",
    "plausibility": "Plausibility: which method finds the tokens that are known to decide, or that people marked",
    "others": "Other metrics",
}
QUESTIONS = {"ranking": "faithfulness", "plausibility": "plausibility", "others": "the other metrics"}
Twins = Mapping[str, Sequence[str]]  # the first method of a row -> the methods of the row


# --- from records to scoreboards ----------------------------------------------------------------------------------------


def twins_in(setup: Setup, records: Sequence[Record]) -> dict[str, list[str]]:
    """The first of each group of methods that have the same scores on every text -> the methods of the group."""
    groups: dict[str, list[str]] = {}
    for method in setup.methods:
        groups.setdefault(_first_twin(method, records), []).append(method)
    return groups


def _first_twin(method: str, records: Sequence[Record]) -> str:
    """The method that has the same scores on every text; itself, where the texts name several."""
    firsts = {record.info.get("same_as", method) for record in records if record.method == method}
    return str(firsts.pop()) if len(firsts) == 1 else method


def metric_values(request: MetricRequest, methods: Iterable[str], records: Sequence[Record]) -> Values:
    """The values of one metric, of the methods that it can judge."""
    by_method = {method: group for (method,), group in by(_of_metric(records, request.written), "method").items()}
    drawn = by_method.pop(RANDOM, None)
    judged = [method for method in methods if method in by_method and not _is_circular(request, by_method[method])]
    of_methods = {method: _numbers(by_method[method]) for method in judged}
    if drawn is None:
        return Values(request, of_methods)
    return Values(request, of_methods, _numbers(drawn), np.array([record.info.get("spread", 0.0) for record in drawn]))


def _is_circular(request: MetricRequest, records: Sequence[Record]) -> bool:
    """Whether a metric would compare a method with itself on every text."""
    return request.name == BLANKED and all(record.info.get(IS_BLANK_OUT) for record in records)


def _of_metric(records: Sequence[Record], metric: str) -> list[Record]:
    return [record for record in records if record.metric == metric]


def _numbers(records: Sequence[Record]) -> Array:
    return np.array([record.value for record in records])


def boards_of(setup: Setup, records: Sequence[Record]) -> dict[str, Scoreboard]:
    """One scoreboard for each question that the metrics of a run answer: "ranking" (faithfulness), "plausibility", "others"."""
    methods = list(twins_in(setup, records))
    every = [metric_values(request, methods, records) for request in requests_of(setup.options["metrics"])]
    questions = {question_of(values.request) for values in every if values.rows}
    return {name: _board(setup, _of_question(every, name), methods) for name in TITLES if name in questions}


def _of_question(metrics: Sequence[Values], name: str) -> list[Values]:
    return [values for values in metrics if question_of(values.request) == name and values.rows]


def _board(setup: Setup, metrics: Sequence[Values], methods: Sequence[str]) -> Scoreboard:
    shown = [method for method in methods if any(values.judges(method) for values in metrics)]
    return Scoreboard(tuple(metrics), tuple(shown), setup.seed)


def question_of(request: MetricRequest) -> str:
    """The table that a metric belongs to."""
    kind = request.metric.kind
    return "ranking" if kind in FAITHFUL else "plausibility" if kind in PLAUSIBLE else "others"


# --- the tables ---------------------------------------------------------------------------------------------------------


def tables_of(setup: Setup, records: list[Record]) -> list[Table]:
    """The rankings, the leader against every other method, and what depends on signs, on correctness and on fillers."""
    boards, twins = boards_of(setup, records), twins_in(setup, records)
    first = next(iter(boards.values()))
    tables = [_ranking(setup, name, board, twins) for name, board in boards.items()]
    details = [pairs_table(name, QUESTIONS[name], board) for name, board in boards.items()]
    details += [
        signs_table(setup, list(twins), records),
        correctness_table(first, records, labels_told(setup)),
        fillers_table(first),
    ]
    return [*tables, *(table for table in details if table is not None)]


def _ranking(setup: Setup, name: str, board: Scoreboard, twins: Twins) -> Table:
    metrics = [values.request.written for values in board.metrics]
    last = ["better than random on"] if board.has_random else []
    columns = ("rank", "method", "group", "score", *map(kind_column, _kinds(board)), *metrics, *last)
    rows = tuple((rank, *_row(board, method, twins)) for rank, method in enumerate(board.order, 1))
    return Table(name, TITLES[name], columns, rows, note_of(setup, board, twins))


def _row(board: Scoreboard, method: str, twins: Twins) -> tuple[Cell, ...]:
    cells = [values.interval(method, board.seed) for values in board.metrics]
    group = board.groups[method] if board.differences else None
    wins = [_wins(board, method, cells)] if board.has_random else []
    return (" = ".join(twins[method]), group, board.means[method], *_of_kinds(board, method), *cells, *wins)


def _kinds(board: Scoreboard) -> Sequence[str]:
    """The kinds that have a column: where there is one alone, it is the score."""
    return board.kinds if len(board.kinds) > 1 else ()


def _of_kinds(board: Scoreboard, method: str) -> list[Cell]:
    """The means of the parts of a score, which is their mean; None where a kind cannot judge the method."""
    return [
        None if kind in board.lacks(method) else mean_of_kind(board.by_kind[method][kind]) for kind in _kinds(board)
    ]


def mean_of_kind(scores: Array) -> float:
    return math.nan if np.isnan(scores).all() else float(np.nanmean(scores))


def _wins(board: Scoreboard, method: str, cells: Sequence[Cell]) -> str:
    """On how many metrics a method is better than random; a dash where nothing is tested."""
    if method == RANDOM or not board.differences:
        return "-"
    return f"{board.wins(method)} of {len(cells) - cells.count(None)}"


# --- the answer -----------------------------------------------------------------------------------------------------------


def answers_of(setup: Setup, records: Sequence[Record]) -> list[str]:
    """One sentence for each question: which method has the highest score, and which are not told apart from it or from random
    scores."""
    return [_answer(len(setup.examples), QUESTIONS[name], board) for name, board in boards_of(setup, records).items()]


def _answer(n: int, question: str, board: Scoreboard) -> str:
    texts, leader = "this text" if n == 1 else f"these {n} texts", board.order[0]
    if not board.differences:
        first = [method for method in board.order if board.means[method].mean == board.means[leader].mean]
        has = (
            f"{leader} has the highest score" if len(first) < 2 else f"{listed(first)} have the same score, the highest"
        )
        return f"On {texts} {has} in {question}; so few texts tell no two methods apart."
    lacking = "".join(f" (without the kind {kind})" for kind in board.lacks(leader))
    return f"On {texts} {leader} has the highest score in {question}{lacking}{_near(board)}{_apart(board)}."


def _near(board: Scoreboard) -> str:
    """What is said of the methods that are not told apart from the one with the highest score."""
    near = board.leaders[1:]
    if not near:
        return " and is told apart from every other method"
    return f"; {len(near)} {'is' if len(near) == 1 else 'are'} not told apart from it: {listed(near)}"


def _apart(board: Scoreboard) -> str:
    """What is said of the methods that are told apart from it, and of those that are like random scores."""
    below, above, chance = board.below, board.above, board.like_random
    lower = f"; it is above {len(below)} other{'s' if len(below) > 1 else ''}" if below else ""
    verb = "is" if len(above) == 1 else "are"
    higher = f"; over the kinds that both have, {listed(above)} {verb} above it" if above else ""
    return lower + higher + (f"; not told apart from random scores: {listed(chance)}" if chance else "")


def listed(names: Sequence[str]) -> str:
    """The names, the first five of them where they are many."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# --- the figure -----------------------------------------------------------------------------------------------------------


def figure_of(setup: Setup, tables: list[Table], figure: Any) -> None:
    """The first metric as bars, the best on top: in the order of what is drawn, not of the score over all metrics."""
    table, name = tables[0], metrics_in(tables[0])[0]
    request, place = parse_metric(name), tables[0].columns.index(name)
    rows = sorted(table.rows, key=lambda row: _lowness(row[place], request.sign))
    ordered = Table(table.name, table.title, table.columns, tuple(rows), table.note)
    shown = "" if len(setup.examples) == 1 else ", mean and 95 % interval"
    title = f"{axis_label(name)}{shown} ({request.metric.better} is better)"
    bars(figure.subplots(), ordered, name, title=title, ordered=True)


def _lowness(cell: Cell, sign: int) -> float:
    """A number that is the smaller, the better a cell is."""
    mean = cell.mean if isinstance(cell, Interval) else math.nan
    return math.inf if math.isnan(mean) else -sign * mean
