"""Rows of local files, one at a time: JSONL, CSV, TSV, Parquet, plain text. A file is never held whole."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, overload

from ..errors import InputError, MixlensError, nearest
from ..optional import optional
from .source import Source

Row = dict[str, Any]
BOM = b"\xef\xbb\xbf"
LONGEST_CELL = 1 << 24  # characters; what an unclosed quote may swallow before it is called an error


class RowError(InputError):
    """One row that cannot be used. Where and why are kept apart, for whoever goes on with the next row."""

    def __init__(self, source: str, number: int, reason: str, unit: str = "line", lines: int = 1) -> None:
        super().__init__(source, number, reason, unit, lines)
        self.source, self.number, self.reason, self.unit = source, number, reason, unit
        self.lines = lines  # of the file that are lost with this row

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}: {self.reason}"


Numbered = Iterator[tuple[int, Row | RowError]]


@overload
def rows(
    path: str | os.PathLike[str],
    *,
    keep_bad: Literal[False] = False,
    columns: Sequence[str] | None = None,
    content: Source | None = None,
) -> Iterator[tuple[int, Row]]: ...
@overload
def rows(
    path: str | os.PathLike[str], *, keep_bad: bool, columns: Sequence[str] | None = None, content: Source | None = None
) -> Numbered: ...
def rows(
    path: str | os.PathLike[str],
    *,
    keep_bad: bool = False,
    columns: Sequence[str] | None = None,
    content: Source | None = None,
) -> Any:
    """(number, row) for every row: the line it begins on, or its place in a Parquet file, counted from 1.

    A row that cannot be read raises a RowError; with `keep_bad` the RowError takes the row's place and reading goes on.
    `columns` names the columns of a CSV or TSV file that has no header. Lines without any text are passed over. `content` is
    the file as it was opened before: it is then read only as long as it is the same.
    """
    place = Path(path)
    reader = reader_of(place)
    if content is None:
        if place.exists() and not place.is_file() and not place.is_dir():
            raise InputError(f"{str(place)!r} is a pipe or a device, and data is read more than once: write it to a file first.")
        if not place.is_file():
            raise InputError(f"no file {str(place)!r}.")
        if not os.access(place, os.R_OK):
            raise InputError(f"{str(place)!r} may not be read.")
    found = reader(place, columns, place.open if content is None else lambda _: content.reader())
    return found if keep_bad else _or_raise(found)


def _or_raise(found: Numbered) -> Iterator[tuple[int, Row]]:
    for number, row in found:
        if isinstance(row, RowError):
            raise row
        yield number, row


Opened = Callable[[Any], Any]  # how a reader opens the file: as Path.open does, given "rb"


def reader_of(place: Path) -> Callable[[Path, Sequence[str] | None, Opened], Numbered]:
    if place.suffix.lower() not in READERS:
        raise InputError(f"{place.name!r} is of no known kind. {nearest(place.suffix.lower(), READERS)}")
    return READERS[place.suffix.lower()]


def needed(module: str, what: str) -> Any:
    """A package of the extra `data`, or a refusal that names the command which installs it."""
    return optional(module, module.partition(".")[0], "data", what=what, verb="needs the package")


# --- one function per kind --------------------------------------------------------------------------------------------


def _lines(place: Path, opened: Opened) -> Iterator[tuple[int, str | RowError]]:
    """Lines with text in them. Only a line feed ends a line: a text may hold any other separator of Unicode."""
    with opened("rb") as file:
        for number, raw in enumerate(file, 1):
            raw = raw.removeprefix(BOM) if number == 1 else raw
            try:
                line = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield number, RowError(place.name, number, _not_utf8(raw[error.start]))
                continue
            if line.strip():
                yield number, line


def _not_utf8(byte: int) -> str:
    return f"not UTF-8 (byte 0x{byte:02x}). Save the file as UTF-8."


def _text(place: Path, columns: Sequence[str] | None, opened: Opened) -> Numbered:
    for number, line in _lines(place, opened):
        yield number, line if isinstance(line, RowError) else {"text": line}


def _json(place: Path, columns: Sequence[str] | None, opened: Opened) -> Numbered:
    for number, line in _lines(place, opened):
        if isinstance(line, RowError):
            yield number, line
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # nested too deep, or a number of thousands of digits
            yield number, RowError(place.name, number, f"not JSON ({str(error).splitlines()[0]})")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, RowError(place.name, number, f"a JSON {type(row).__name__}, not an object. One object per line.")


def _csv(place: Path, columns: Sequence[str] | None, opened: Opened, *, delimiter: str, quoting: Any) -> Numbered:
    with opened("rb") as file:
        # A byte that is not UTF-8 becomes a lone surrogate, so that the row around it can still be found and named.
        first = file.readline().removeprefix(BOM)
        lines = (raw.decode("utf-8", "surrogateescape") for raw in _with(first, file))
        reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
        header = None if columns is None else list(columns)
        while True:
            number = reader.line_num + 1
            before = csv.field_size_limit(LONGEST_CELL)  # the csv module has one limit for everybody: put it back
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, _not_csv(place.name, number, reader.line_num, str(error))
                continue
            finally:
                csv.field_size_limit(before)
            wrong = next((ord(c) & 0xFF for cell in cells for c in cell if "\udc80" <= c <= "\udcff"), None)
            if not any(cells):
                continue
            if header is None:
                header = _header(place, cells, wrong)
            elif wrong is not None:
                yield number, RowError(place.name, number, _not_utf8(wrong))
            elif len(cells) != len(header):
                yield number, RowError(place.name, number, f"{len(cells)} cells where there should be {len(header)}")
            else:
                yield number, dict(zip(header, cells, strict=True))


def _not_csv(source: str, number: int, last: int, error: str) -> RowError:
    """A row that is no CSV. One that goes on over many lines has, most often, a quote that nobody closed."""
    lines, reason = max(1, last - number + 1), f"not CSV ({error})"
    if lines > 1:
        reason += f"; a quote that opens here took the {lines - 1:,} lines behind it, to line {last:,}, with it"
    return RowError(source, number, reason, lines=lines)


def _with(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
        yield from rest


def _header(place: Path, cells: list[str], wrong: int | None) -> list[str]:
    names = [cell.strip() for cell in cells]
    if wrong is not None:
        raise RowError(place.name, 1, _not_utf8(wrong))
    if "" in names or len(set(names)) != len(names):
        raise RowError(place.name, 1, f"the header has an empty name, or one name twice: {', '.join(map(repr, names))}")
    return names


def _parquet(place: Path, columns: Sequence[str] | None, opened: Opened) -> Numbered:
    parquet = needed("pyarrow.parquet", "reading Parquet")
    with opened("rb") as content:
        yield from _parquet_rows(place, parquet, content)


def _parquet_rows(place: Path, parquet: Any, content: BinaryIO) -> Numbered:
    try:
        file = parquet.ParquetFile(content)
    except (ValueError, OSError) as error:  # what pyarrow raises derives from these two
        if isinstance(error, MixlensError):
            raise
        raise InputError(f"{place.name!r} is not a Parquet file ({str(error).splitlines()[0]})") from None
    number = 0
    with file:
        batches = file.iter_batches(batch_size=1024)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (ValueError, OSError) as error:
                if isinstance(error, MixlensError):
                    raise
                reason = f"the file cannot be read from here on ({str(error).splitlines()[0]})"
                yield number + 1, RowError(place.name, number + 1, reason, "row")
                return
            for row in _batch_rows(batch):
                number += 1
                yield number, RowError(place.name, number, row, "row") if isinstance(row, str) else row


def _batch_rows(batch: Any) -> list[Row | str]:
    """The rows, or for a row with text that is not UTF-8 the reason why not."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [_not_utf8(error.object[error.start])]
        return [row for i in range(batch.num_rows) for row in _batch_rows(batch.slice(i, 1))]


READERS: dict[str, Callable[[Path, Sequence[str] | None, Opened], Numbered]] = {
    ".jsonl": _json,
    ".ndjson": _json,
    ".csv": partial(_csv, delimiter=",", quoting=csv.QUOTE_MINIMAL),
    ".tsv": partial(_csv, delimiter="\t", quoting=csv.QUOTE_NONE),  # as GLUE writes them: a quote is a letter
    ".parquet": _parquet,
    ".txt": _text,
}
