"""A table of results as a value, and as CSV and Markdown. The same records give the same bytes: no dates, no timings."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...metrics import Interval
from ...types import Record

Cell = str | int | float | Interval | None
INTERVAL = ("", "_low", "_high", "_std", "_n", "_undefined")  # the columns of CSV that one interval fills


@dataclass(frozen=True)
class Table:
    """One table: its short name (that of its file), a title, and rows. A cell may be an interval."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    printed: bool = True  # False: the table is a file of numbers, and no page or command prints it

    def column(self, name: str) -> list[Any]:
        return [row[self.columns.index(name)] for row in self.rows]

    def row(self, method: str) -> dict[str, Any]:
        """The row of a method, by column."""
        return dict(zip(self.columns, self.rows[self.column("method").index(method)], strict=True))

    @property
    def csv(self) -> str:
        """Every interval is six columns: mean, low, high, std, n, undefined."""
        wide = [any(isinstance(row[i], Interval) for row in self.rows) for i in range(len(self.columns))]
        out = io.StringIO()
        write = csv.writer(out, lineterminator="\n").writerow
        write(
            [name + end for name, many in zip(self.columns, wide, strict=True) for end in (INTERVAL if many else ("",))]
        )
        for row in self.rows:
            write([text for cell, many in zip(row, wide, strict=True) for text in _cells(cell, many)])
        return out.getvalue()

    @property
    def markdown(self) -> str:
        lines = [f"### {self.title}", "", _line(self.columns), _line("---" for _ in self.columns)]
        lines += [_line(_told(cell) for cell in row) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def _cells(cell: Cell, many: bool) -> list[str]:
    if isinstance(cell, Interval):
        return [_plain(v) for v in (cell.mean, cell.low, cell.high, cell.std, cell.n, cell.undefined)]
    return [_plain(cell), *([""] * (len(INTERVAL) - 1 if many else 0))]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _told(cell: Cell) -> str:
    if isinstance(cell, Interval):
        if math.isnan(cell.mean):
            return "undefined"
        reach = "" if math.isnan(cell.low) else f" [{_short(cell.low)}, {_short(cell.high)}]"
        return f"{_short(cell.mean)}{reach}" + (f" ({cell.undefined} undefined)" if cell.undefined else "")
    return _short(cell) if isinstance(cell, float) else "" if cell is None else str(cell).replace("|", "\\|")


def _short(value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def by(records: Sequence[Record], *fields: str) -> dict[tuple[Any, ...], list[Record]]:
    """Records grouped by some of their fields (or of their info), in the order in which the groups first come."""
    made: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        made.setdefault(tuple(_field(record, name) for name in fields), []).append(record)
    return made


def _field(record: Record, name: str) -> Any:
    known: Mapping[str, Any] = {"example": record.example, "method": record.method, "metric": record.metric}
    return known[name] if name in known else record.info.get(name)
