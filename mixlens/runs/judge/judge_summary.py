"""A ranked table of `judge` in lines that fit a terminal: one row for each method, means without intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...metrics import Interval
from ..experiments.tables import Table
from .judged_metrics import parse_metric

FIRST = ("rank", "method", "group", "score")
LAST = ("better than random on", "seconds")
SHORT = {"better than random on": "> random"}
KIND = "score ({})"  # the part of a score that a kind of metrics makes
TWINS = " = "  # between methods that have the same scores
ONE_TEXT = (
    "One text: the order below is not a ranking, and another text may turn it round. Judge 30 texts or more to rank methods: "
    "mixlens judge MODEL DATA --n 50."
)


def summary_lines(table: Table, *, width: int, one_text: bool) -> list[str]:
    """The table in lines of at most `width` columns where the names allow it, then which methods and metrics are not in it."""
    shown = columns_shown(table, width, one_text)
    rows = [[SHORT.get(name, name) for name in shown], *(_row(table, row, shown) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(shown))]
    body = ["  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*body, "", *twins_told(table), *metrics_told(table, shown)]


def columns_shown(table: Table, width: int, one_text: bool) -> list[str]:
    """The first and the last columns that say something, and between them the metrics for which there is room: one of each kind
    before a second one."""
    first = [name for name in FIRST if _says_something(table, name) and not (one_text and name == "rank")]
    last = [name for name in LAST if name in table.columns and _says_something(table, name)]
    chosen = _metrics_with_room(table, width, first, last)
    return [*first, *(name for name in table.columns if name in chosen), *last]


def _metrics_with_room(table: Table, width: int, first: Sequence[str], last: Sequence[str]) -> list[str]:
    """The metrics that fit the line between the first and the last columns, one of each kind before a second one."""
    chosen: list[str] = []
    for metric in by_kind(metrics_in(table)):
        if _width(table, [*first, *chosen, metric, *last]) <= width:
            chosen.append(metric)
    return chosen


def metrics_in(table: Table) -> list[str]:
    return [name for name in table.columns if name not in (*FIRST, *LAST) and not is_of_kind(name)]


def kind_column(kind: str) -> str:
    return KIND.format(kind)


def is_of_kind(column: str) -> bool:
    """Whether a column is the part of a score that a kind of metrics makes."""
    start, end = KIND.split("{}")
    return column.startswith(start) and column.endswith(end)


def by_kind(metrics: Sequence[str]) -> list[str]:
    """The first metric of each kind, then the others."""
    kinds: dict[str, list[str]] = {}
    for name in metrics:
        kinds.setdefault(parse_metric(name).metric.kind, []).append(name)
    firsts = [names[0] for names in kinds.values()]
    return firsts + [name for name in metrics if name not in firsts]


def _says_something(table: Table, column: str) -> bool:
    place = table.columns.index(column)
    return any(row[place] not in (None, "-") for row in table.rows)


def _width(table: Table, columns: Sequence[str]) -> int:
    rows = [[SHORT.get(name, name) for name in columns], *(_row(table, row, columns) for row in table.rows)]
    return sum(max(len(row[i]) for row in rows) for i in range(len(columns))) + 2 * (len(columns) - 1)


def _row(table: Table, row: Sequence[Any], columns: Sequence[str]) -> list[str]:
    return [cell_text(row[table.columns.index(name)], name) for name in columns]


def cell_text(cell: Any, column: str) -> str:
    """A cell without its interval; of methods with the same scores the first, and how many others there are."""
    if column == "method":
        name, *others = str(cell).split(TWINS)
        return f"{name} (= {len(others)})" if others else name
    number = cell.mean if isinstance(cell, Interval) else cell
    return f"{number:.3f}" if isinstance(number, float) else "" if number is None else str(number)


def twins_told(table: Table) -> list[str]:
    """A line for each group of methods with the same scores."""
    groups = [str(row[table.columns.index("method")]).split(TWINS) for row in table.rows]
    return [
        f"{name} (= {len(others)}): the same scores have {', '.join(others)}." for name, *others in groups if others
    ]


def metrics_told(table: Table, shown: Sequence[str]) -> list[str]:
    """The metrics that are not in the lines, and how to see them."""
    left = [name for name in metrics_in(table) if name not in shown]
    said = f"Not shown: {', '.join(left)}. " if left else ""
    return [f"{said}Every metric with its interval, and further tables: --full."]
