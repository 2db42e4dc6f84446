"""Rows of local files, one at a time: JSONL, CSV, TSV, Parquet, plain text. A file is never held whole."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, overload

from ..base.errors import InputError, MixlensError, nearest
from ..base.optional import optional
from ..base.paths import is_there
from .source import Source

Row = dict[str, Any]
BOM = b"\xef\xbb\xbf"
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
NAME = re.compile(r'"?\w[\w .-]*"?')  # of a field, as a header has it
LONGEST_CELL = 1 << 24  # characters; what an unclosed quote may swallow before it is called an error


class RowError(InputError):
    """One row that cannot be used. Its place and the reason are attributes, for a caller that goes on with the next row."""

    def __init__(
        self, source: str, number: int, reason: str, unit: str = "line", lines: int = 1, id: str | None = None
    ) -> None:
        super().__init__(source, number, reason, unit, lines, id)
        self.source, self.number, self.reason, self.unit = source, number, reason, unit
        self.lines = lines  # of the file that are lost with this row
        self.id = str(number) if id is None else id  # the row's own, where it could be read

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
    the file as an earlier reader opened it: reading stops with an error where its bytes have changed since.
    """
    place = Path(path)
    reader = reader_of(place)
    if content is None:
        _refuse_unreadable(place)
    numbered = reader(place, columns, place.open if content is None else lambda _: content.reader())
    return numbered if keep_bad else _or_raise(numbered)


def _refuse_unreadable(place: Path) -> None:
    if is_there(place) and not place.is_file() and not place.is_dir():
        raise InputError(
            f"{str(place)!r} is a pipe or a device, and data is read more than once: write it to a file first."
        )
    if not place.is_file():
        raise InputError(f"no file {str(place)!r}.")
    if not os.access(place, os.R_OK):
        raise InputError(f"{str(place)!r} may not be read.")


def _or_raise(numbered: Numbered) -> Iterator[tuple[int, Row]]:
    for number, row in numbered:
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
        yield number, line if isinstance(line, RowError) else _json_row(place.name, number, line)


def _json_row(source: str, number: int, line: str) -> Row | RowError:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # nested too deep, or a number of thousands of digits
        return RowError(source, number, f"not JSON ({str(error).splitlines()[0]})")
    if isinstance(row, dict):
        return row
    return RowError(source, number, f"a JSON {type(row).__name__}, not an object. One object per line.")


def _csv(place: Path, columns: Sequence[str] | None, opened: Opened, *, delimiter: str, quoting: Any) -> Numbered:
    with opened("rb") as file:
        # A byte that is not UTF-8 becomes a lone surrogate, so that the row around it can still be parsed and named.
        first = file.readline().removeprefix(BOM)
        _refuse_separator(place, "" if columns else first.decode("utf-8", "replace").strip(), delimiter)
        lines = (raw.decode("utf-8", "surrogateescape") for raw in _with(first, file))
        header = None if columns is None else list(columns)
        for number, cells in _csv_cells(
            place.name, csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
        ):
            if isinstance(cells, RowError):
                yield number, cells
            elif header is None:
                header = _header(place.name, cells)
            else:
                yield number, _csv_row(place.name, number, header, cells)


def _refuse_separator(place: Path, header: str, delimiter: str) -> None:
    """Refuse a header of names with another sign between them: read as one name, it would lead every cell into the text."""
    other = next((sign for sign in SEPARATORS if _is_between_names(sign, header)), delimiter)
    if delimiter not in header and other != delimiter:
        raise RowError(place.name, 1, _separated(other, delimiter, place.suffix.lower()))


def _is_between_names(sign: str, header: str) -> bool:
    names = header.split(sign)
    return len(names) > 1 and all(map(NAME.fullmatch, names))


def _separated(found: str, read: str, kind: str) -> str:
    """What is wrong with a file whose fields have the sign `found` between them."""
    tabs = " With tabs between them it is read as .tsv." if found == "\t" else ""
    between = f"{SEPARATORS[found]} stands between the fields, and a {kind} file is read with {SEPARATORS[read]} there"
    return f"{between}. Save it with {SEPARATORS[read]} between them.{tabs}"


def _csv_cells(source: str, reader: Any) -> Iterator[tuple[int, list[str] | RowError]]:
    """(first line, cells) of each row with text in it."""
    while True:
        number = reader.line_num + 1
        limit = csv.field_size_limit(
            LONGEST_CELL
        )  # the csv module has one limit for all its users: it is put back below
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, _not_csv(source, number, reader.line_num, str(error))
            continue
        finally:
            csv.field_size_limit(limit)
        if any(cells):
            yield number, cells


def _csv_row(source: str, number: int, header: list[str], cells: list[str]) -> Row | RowError:
    byte = _foreign_byte(cells)
    if byte is not None:
        return RowError(source, number, _not_utf8(byte))
    if len(cells) != len(header):
        return RowError(source, number, f"{len(cells)} cells where there should be {len(header)}")
    return dict(zip(header, cells, strict=True))


def _foreign_byte(cells: list[str]) -> int | None:
    """The first byte that was not UTF-8: `surrogateescape` reads byte 0x80 to 0xff as character U+DC80 to U+DCFF."""
    return next((ord(char) & 0xFF for cell in cells for char in cell if "\udc80" <= char <= "\udcff"), None)


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


def _header(source: str, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    byte = _foreign_byte(cells)
    if byte is not None:
        raise RowError(source, 1, _not_utf8(byte))
    if "" in names or len(set(names)) != len(names):
        raise RowError(source, 1, f"the header has an empty name, or one name twice: {', '.join(map(repr, names))}")
    return names


def _parquet(place: Path, columns: Sequence[str] | None, opened: Opened) -> Numbered:
    parquet = needed("pyarrow.parquet", "reading Parquet")
    with opened("rb") as content:
        yield from _parquet_rows(place, parquet, content)


def _parquet_rows(place: Path, parquet: Any, content: BinaryIO) -> Numbered:
    try:
        file = parquet.ParquetFile(content)
    except MixlensError:
        raise
    except (ValueError, OSError) as error:  # the errors of pyarrow derive from these two
        raise InputError(f"{place.name!r} is not a Parquet file ({str(error).splitlines()[0]})") from None
    with file:
        for number, row in enumerate(_until_broken(file.iter_batches(batch_size=1024)), 1):
            yield number, RowError(place.name, number, row, "row") if isinstance(row, str) else row


def _until_broken(batches: Iterator[Any]) -> Iterator[Row | str]:
    """The rows; last of all, where the file cannot be read to its end, the reason why not."""
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except MixlensError:
            raise
        except (ValueError, OSError) as error:
            yield f"the file cannot be read from here on ({str(error).splitlines()[0]})"
            return
        yield from _batch_rows(batch)


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
