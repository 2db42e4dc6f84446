"""A table of results as a value, and as CSV and Markdown. The same records give the same bytes: no dates, no
timings."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...metrics import Interval, mean_with_interval
from ...types import Record

OF_RECORDS = ("example", "method", "metric")
Cell = str | int | float | Interval | None
INTERVAL = {  # the columns of CSV that one interval fills
    "": "mean", "_low": "low", "_high": "high", "_std": "std", "_n": "n", "_undefined": "undefined",
}  # fmt: skip


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
            cells: list[Any] = []
            for cell, many in zip(row, wide, strict=True):
                if isinstance(cell, Interval):
                    cells += [getattr(cell, name) for name in INTERVAL.values()]
                else:
                    cells += [cell, *[None] * (len(INTERVAL) - 1 if many else 0)]
            write([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
        return out.getvalue()

    @property
    def rows_as_text(self) -> list[list[str]]:
        return [list(map(_told, row)) for row in self.rows]

    @property
    def markdown(self) -> str:
        cells = [[cell.replace("|", "\\|") for cell in row] for row in self.rows_as_text]
        rows = [self.columns, ["---"] * len(self.columns), *cells]
        lines = [f"### {self.title}", "", *(f"| {' | '.join(row)} |" for row in rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def _told(cell: Cell) -> str:
    if isinstance(cell, Interval):
        reach = "" if math.isnan(cell.low) else f" [{_short(cell.low)}, {_short(cell.high)}]"
        undefined = f" ({cell.undefined} undefined)" if cell.undefined else ""
        return "undefined" if math.isnan(cell.mean) else f"{_short(cell.mean)}{reach}{undefined}"
    return _short(cell) if isinstance(cell, float) else "" if cell is None else str(cell)


def _short(value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


# --- from records -----------------------------------------------------------------------------------------------------


def by(records: Iterable[Record], *fields: str) -> dict[tuple[Any, ...], list[Record]]:
    """Records grouped by some of their fields (or of their info), in the order in which the groups first come."""
    made: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = tuple(getattr(record, name) if name in OF_RECORDS else record.info.get(name) for name in fields)
        made.setdefault(key, []).append(record)
    return made


def interval_of(
    records: Sequence[Record] | None, seed: int, *, together: bool = False, confidence: float = 0.95
) -> Any:
    """Mean and interval over examples; None where there are no records. `together`: an example with several values
    counts as one, and they are not drawn apart."""
    if not records:
        return None
    groups = [record.example for record in records] if together else None
    return mean_with_interval([record.value for record in records], groups=groups, seed=seed, confidence=confidence)


def long_rows(records: Iterable[Record], *fields: str, seed: int) -> tuple[tuple[Any, ...], ...]:
    """One row for each group of records that agree in `fields`: the fields, and the mean."""
    return tuple((*key, interval_of(group, seed)) for key, group in by(records, *fields).items())


def wide_rows(
    records: Iterable[Record],
    columns: Iterable[Any],
    fields: Sequence[str] = ("method",),
    by_field: str = "metric",
    **how: Any,
) -> tuple[tuple[Any, ...], ...]:
    """One row for each group of records that agree in `fields`: the fields, and the mean for each of `columns`, the
    values of another field."""
    wanted, rows = list(columns), []
    for key, group in by(records, *fields).items():
        cells = by(group, by_field)
        rows.append((*key, *(interval_of(cells.get((column,)), **how) for column in wanted)))
    return tuple(rows)


def layer_records(example: Any, method: str, metric: str, values: Iterable[Any], first: int = 1) -> list[Record]:
    """One record for each layer, counted from `first`."""
    return [Record(str(example), method, metric, float(value), {"layer": i}) for i, value in enumerate(values, first)]
