"""How tests read what an experiment measured: values of records, cells of tables."""

from __future__ import annotations

from typing import Any

from mixlens.runs.experiments import Table


def values(outcome: Any, method: str, metric: str, **info: Any) -> list[float]:
    """The values of a method and a metric, in the order of the examples, of the records with this info."""
    return [
        r.value
        for r in outcome.records
        if (r.method, r.metric) == (method, metric) and all(r.info[key] == value for key, value in info.items())
    ]


def cell(table: Table, method: str, column: str) -> Any:
    """One cell of a table, by its method and its column."""
    return table.rows[table.column("method").index(method)][table.columns.index(column)]
