"""Rows of local files, one at a time: JSONL, CSV, TSV, Parquet, plain text. A file is never held whole."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from ..base.errors import InputError, MixlensError, nearest
from ..base.optional import optional
from ..base.paths import is_file, is_there
from .source import Source

Row = dict[str, Any]
BOM = b"\xef\xbb\xbf"
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
NAME = re.compile(r'"?\w[\w .-]*"?')  # of a field, as a header has it
LONGEST_CELL = 1 << 24  # characters; what an unclosed quote may swallow before it is called an error


class RowError(InputError):
    """One row that cannot be used. Its place and the reason are attributes, for a caller that goes on with the next
    row."""

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
Found = Iterator[
    tuple[int, Row | RowError | str]
]  # as the reader of a kind gives them: a text is why a row cannot be used


def rows(
    path: str | os.PathLike[str],
    *,
    keep_bad: bool = False,
    columns: Sequence[str] | None = None,
    content: Source | None = None,
) -> Iterator[tuple[int, Any]]:
    """(number, row) for every row: the line it begins on, or its place in a Parquet file, counted from 1.

    A row that cannot be read raises a RowError; with `keep_bad` the RowError takes the row's place and reading goes on.
    `columns` names the columns of a CSV or TSV file that has no header. Lines without any text are passed over.
    `content` is the file as an earlier reader opened it: reading stops with an error where its bytes have changed
    since.
    """
    place = Path(path)
    reader = reader_of(place)
    if content is None and not is_file(place):
        if is_there(place) and not place.is_dir():
            raise InputError(
                f"{str(place)!r} is a pipe or a device, and data is read more than once: write it to a file first."
            )
        raise InputError(f"no file {str(place)!r}.")
    if content is None and not os.access(place, os.R_OK):
        raise InputError(f"{str(place)!r} may not be read.")
    return _numbered(reader, place, columns, content, keep_bad)


def _numbered(reader: Reader, place: Path, columns: Any, content: Source | None, keep_bad: bool) -> Numbered:
    with place.open("rb") if content is None else content.reader() as file:
        for number, row in reader(place, columns, file):
            found = RowError(place.name, number, row, unit_of(place)) if isinstance(row, str) else row
            if isinstance(found, RowError) and not keep_bad:
                raise found
            yield number, found


def reader_of(place: Path) -> Reader:
    if place.suffix.lower() not in READERS:
        raise InputError(f"{place.name!r} is of no known kind. {nearest(place.suffix.lower(), READERS)}")
    return READERS[place.suffix.lower()]


def unit_of(place: Path) -> str:
    """The word for one of its rows."""
    return "row" if place.suffix.lower() == ".parquet" else "line"


def needed(module: str, what: str) -> Any:
    """A package of the extra `data`, or a refusal that names the command which installs it."""
    return optional(module, module.partition(".")[0], "data", what=what, verb="needs the package")


# --- one function per kind --------------------------------------------------------------------------------------------


def _lines(place: Path, columns: Any, file: BinaryIO, *, row_of: Callable[[str], Row | str]) -> Found:
    """Lines with text in them. Only a line feed ends a line: a text may hold any other separator of Unicode."""
    for number, raw in enumerate(file, 1):
        raw = raw.removeprefix(BOM) if number == 1 else raw
        try:
            line = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield number, _not_utf8(raw[error.start])
            continue
        if line.strip():
            yield number, row_of(line)


def _not_utf8(byte: int) -> str:
    return f"not UTF-8 (byte 0x{byte:02x}). Save the file as UTF-8."


def _object(line: str) -> Row | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # nested too deep, or a number of thousands of digits
        return f"not JSON ({str(error).splitlines()[0]})"
    return row if isinstance(row, dict) else f"a JSON {type(row).__name__}, not an object. One object per line."


def _csv(place: Path, columns: Any, file: BinaryIO, *, delimiter: str, quoting: Any) -> Found:
    # A byte that is not UTF-8 becomes a lone surrogate, so that the row around it can still be parsed and named.
    first = file.readline().removeprefix(BOM)
    if not columns:
        _refuse_separator(place, first.decode("utf-8", "replace").strip(), delimiter)
    lines = (raw.decode("utf-8", "surrogateescape") for raw in chain([first] if first else [], file))
    header = columns
    for number, cells in _csv_cells(place.name, csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)):
        if isinstance(cells, RowError):
            yield number, cells
            continue
        # `surrogateescape` reads byte 0x80 to 0xff as character U+DC80 to U+DCFF.
        byte = next((ord(char) & 0xFF for cell in cells for char in cell if "\udc80" <= char <= "\udcff"), None)
        if header is None:
            header = [cell.strip() for cell in cells]
            if byte is not None:
                raise RowError(place.name, 1, _not_utf8(byte))
            if "" in header or len(set(header)) != len(header):
                told = f"the header has an empty name, or one name twice: {', '.join(map(repr, header))}"
                raise RowError(place.name, 1, told)
        elif byte is not None:
            yield number, _not_utf8(byte)
        elif len(cells) != len(header):
            yield number, f"{len(cells)} cells where there should be {len(header)}"
        else:
            yield number, dict(zip(header, cells, strict=True))


def _refuse_separator(place: Path, header: str, delimiter: str) -> None:
    """Refuse a header of names with another sign between them: read as one name, it would lead every cell into the
    text."""
    if delimiter in header:
        return
    for sign, told in SEPARATORS.items():
        names = header.split(sign)
        if len(names) > 1 and all(map(NAME.fullmatch, names)):
            tabs = " With tabs between them it is read as .tsv." if sign == "\t" else ""
            raise RowError(
                place.name,
                1,
                f"{told} stands between the fields, and a {place.suffix.lower()} file is read with "
                f"{SEPARATORS[delimiter]} "
                f"there. Save it with {SEPARATORS[delimiter]} between them.{tabs}",
            )


def _csv_cells(source: str, reader: Any) -> Iterator[tuple[int, list[str] | RowError]]:
    """(first line, cells) of each row with text in it. A row that goes on over many lines and is no CSV has, most
    often, a quote that nobody closed."""
    while True:
        number = reader.line_num + 1
        limit = csv.field_size_limit(LONGEST_CELL)  # the module has one for all its users: it is put back below
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines, reason = max(1, reader.line_num - number + 1), f"not CSV ({error})"
            if lines > 1:
                reason += f"; a quote that opens here took the {lines - 1:,} lines behind it, "
                reason += f"to line {reader.line_num:,}, with it"
            yield number, RowError(source, number, reason, lines=lines)
            continue
        finally:
            csv.field_size_limit(limit)
        if any(cells):
            yield number, cells


def _parquet(place: Path, columns: Any, file: BinaryIO) -> Found:
    try:
        table = needed("pyarrow.parquet", "reading Parquet").ParquetFile(file)
    except MixlensError:
        raise
    except (ValueError, OSError) as error:  # the errors of pyarrow derive from these two
        raise InputError(f"{place.name!r} is not a Parquet file ({str(error).splitlines()[0]})") from None
    return enumerate(_parquet_rows(table), 1)


def _parquet_rows(table: Any) -> Iterator[Row | str]:
    """The rows; last of all, where the file cannot be read to its end, the reason."""
    with table:
        try:
            for batch in table.iter_batches(batch_size=1024):
                yield from _batch_rows(batch)
        except MixlensError:
            raise
        except (ValueError, OSError) as error:
            yield f"the file cannot be read from here on ({str(error).splitlines()[0]})"


def _batch_rows(batch: Any) -> list[Row | str]:
    """The rows, or for a row with text that is not UTF-8 the reason why not."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [_not_utf8(error.object[error.start])]
        return [row for i in range(batch.num_rows) for row in _batch_rows(batch.slice(i, 1))]


Reader = Callable[[Path, Any, BinaryIO], Found]
READERS: dict[str, Reader] = {
    **dict.fromkeys((".jsonl", ".ndjson"), partial(_lines, row_of=_object)),
    ".csv": partial(_csv, delimiter=",", quoting=csv.QUOTE_MINIMAL),
    ".tsv": partial(_csv, delimiter="\t", quoting=csv.QUOTE_NONE),  # as GLUE writes them: a quote is a letter
    ".parquet": _parquet,
    ".txt": partial(_lines, row_of=lambda line: {"text": line}),
}
