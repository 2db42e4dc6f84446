"""The rows of a corpus, one at a time, whatever it is: a file, a dataset, or anything that yields texts."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ..data import DATASETS, RowError, read
from ..data.reading import TEXT_FIELDS, fields_of, not_empty, rows_of
from ..data.source import Source
from ..errors import InputError, Limits, nearest, readable
from ..optional import optional
from ..types import Example

IDS_FIELD = "input_ids"
LIMITS = Limits()


@dataclass(frozen=True)
class Given:
    """One row. `columns` are the carried ones: as text, or of the type that the file's own schema says."""

    row: int  # the line it begins on, or its place, counted from 1
    id: str
    text: str | None
    pair: str | None
    input_ids: Any
    token_type_ids: Any
    attention_mask: Any
    target: str | int | None
    foil: str | int | None
    columns: tuple[str | int | float | bool | None, ...]


@dataclass(frozen=True)
class Fields:
    """Which fields of a row are what. None: the usual ones."""

    text: str | None = None
    pair: str | None = None
    ids: str | None = None
    columns: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (column, type) of those that are carried as they are, not as text


@dataclass(frozen=True)
class Corpus:
    """Where rows come from. `rows` begins anew with every call."""

    name: str
    fingerprint: str | None  # of a file, whole; other sources are known by what each shard read
    total: int | None  # rows, as far as is known beforehand
    rows: Callable[[], Iterator[Given | RowError]]
    kinds: tuple[tuple[str, str], ...] = ()  # as in Fields
    source: Source | None = None  # the file, where it is one: its bytes are compared whenever they are read

    def unchanged(self) -> None:
        """Refuse where the file is not what it was when the run began. Of other sources every shard knows its rows."""
        if self.source is not None:
            self.source.unchanged()

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


def corpus(data: Any, *, fields: Fields, split: str | None, limit: int | None) -> Corpus:
    """What is meant by `data`; refused here where the whole of it cannot be used."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InputError(f"limit must be at least 1, not {limit!r}.")
    if limit is not None and limit > sys.maxsize:
        raise InputError(f"limit must be at most {sys.maxsize:,}, not {limit}.")
    if isinstance(data, str | os.PathLike):
        source = _named(os.fspath(data), fields, split, limit)
    elif isinstance(data, Iterable) and not isinstance(data, bytes | Mapping):
        if split is not None:
            raise InputError("rows that are given in Python have no split: leave split= out.")
        total = len(data) if isinstance(data, Sequence) else None
        source = Corpus("rows given in Python", None, total, partial(_of_values, data, fields))
    else:
        raise InputError(f"data is a file, a dataset or a list of texts, not {type(data).__name__}.")
    if limit is None:
        return source
    total = limit if source.total is None else min(limit, source.total)
    return replace(source, total=total, rows=lambda: islice(source.rows(), limit))


def _named(name: str, fields: Fields, split: str | None, limit: int | None) -> Corpus:
    if name in DATASETS and not Path(name).is_file():
        if fields.text or fields.pair or fields.ids:
            raise InputError(f"{name!r} knows its own fields: leave text_field, pair_field and ids_field out.")
        if DATASETS[name].stream is not None and limit is None:
            raise InputError(f"{name!r} has no end: say how many examples, limit=.")
        return Corpus(name, None, None, partial(_of_dataset, name, split, fields.columns))
    place = Path(name)
    if place.is_dir():
        raise InputError(f"{name!r} is a folder; give one file of it.")
    if not place.is_file():
        next(_of_rows(name, split, fields))  # what cannot be used is refused now
        return Corpus(name, None, None, partial(_of_rows, name, split, fields))
    rows_of(name, split=split)  # a kind of file that is not known, or may not be read, is refused before it is read
    source = Source(place)
    try:
        next(_of_rows(name, split, fields, source))  # a file that cannot be used is refused now
        total: int = source.lines
        if place.suffix.lower() == ".parquet":
            with (
                source.reader() as content,
                optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs").ParquetFile(content) as file,
            ):
                total, schema = file.metadata.num_rows, file.schema_arrow
            fields = replace(fields, kinds=_simple(schema, fields.columns))
    except BaseException:
        source.close()
        raise
    return Corpus(name, source.sha256, total, partial(_of_rows, name, split, fields, source, warn=True), fields.kinds, source)


def _simple(schema: Any, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Columns of a Parquet file that are carried as they are: whole numbers that fit 64 bits, decimals, yes or no."""
    types = optional("pyarrow.types", "pyarrow", "data", what="corpus runs")

    def kind(name: str) -> str | None:
        column = schema.field(name).type
        if types.is_signed_integer(column) or (types.is_unsigned_integer(column) and column.bit_width < 64):
            return "int64"
        return "float64" if types.is_float32(column) or types.is_float64(column) else "bool" if types.is_boolean(column) else None

    kinds = {name: kind(name) for name in columns if schema.names.count(name) == 1}
    return tuple((name, simple) for name, simple in kinds.items() if simple is not None)


# --- rows of each kind ------------------------------------------------------------------------------------------------


def _of_rows(
    name: str, split: str | None, fields: Fields, content: Source | None = None, *, warn: bool = False
) -> Iterator[Given | RowError]:
    source, unit, rows = rows_of(name, split=split, content=content)
    there, rows = fields_of(not_empty(rows, f"{source} holds no row."))
    fields = _usual(fields, there, source) if there else fields
    for number, row in rows:
        if warn and isinstance(row, RowError) and row.lines > 1:
            warnings.warn(f"{row}. Close the quote, and begin anew in another folder.", stacklevel=2)
        yield row if isinstance(row, RowError) else _given(number, row, fields, source, unit)


def _usual(fields: Fields, there: Sequence[str], source: str) -> Fields:
    """The fields that are meant, all of them there."""
    text, ids = fields.text, fields.ids
    if text is not None and ids is not None:
        raise InputError("a row is read as text or as ids: give text_field= or ids_field=, not both.")
    if text is None and ids is None:
        text = next((one for one in TEXT_FIELDS if one in there), None)
        ids = IDS_FIELD if text is None and IDS_FIELD in there else None
        text = TEXT_FIELDS[0] if text is None and ids is None else text
    if ids is not None and fields.pair is not None:
        raise InputError("ids hold both texts already: leave pair_field out.")
    for one in (text, ids, fields.pair, *fields.columns):
        if one is not None and one not in there:
            raise InputError(f"{source} has no field {one!r}. {nearest(one, there)}")
    return replace(fields, text=text, ids=ids)


def _given(number: int, row: Mapping[str, Any], fields: Fields, source: str, unit: str) -> Given | RowError:
    try:
        text = None if fields.ids is not None else _text(row, fields.text or TEXT_FIELDS[0])
        pair = None if fields.pair is None else _text(row, fields.pair)
        ids, types, mask = (
            (None, None, None)
            if fields.ids is None
            else (_numbers(row.get(name), name) for name in (fields.ids, "token_type_ids", "attention_mask"))
        )
        if fields.ids is not None and ids is None:
            raise InputError(f"field {fields.ids!r} holds no ids.")
    except InputError as error:
        return RowError(source, number, str(error), unit)
    kinds = dict(fields.kinds)
    name = row.get("id")
    row_id = str(number) if not isinstance(name, str | int) or isinstance(name, bool) or name == "" else str(written(name))
    target, foil = (row.get(name) for name in ("target", "foil"))
    gold = target if isinstance(target, str | int) else row.get("label")
    return Given(
        number,
        row_id,
        text,
        pair,
        ids,
        types,
        mask,
        gold if isinstance(gold, str | int) else None,
        foil if isinstance(foil, str | int) else None,
        tuple(row.get(name) if name in kinds else written(row.get(name)) for name in fields.columns),
    )


def _text(row: Mapping[str, Any], field: str) -> str:
    return readable(row.get(field), field, most=LIMITS.characters)


def _numbers(value: Any, name: str) -> list[int] | None:
    """A list of integers; in CSV, which has none, written as JSON."""
    if value is None:
        return None
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise InputError(f"field {name!r} does not hold a list of integers.")
    return value


def written(value: Any) -> str | None:
    """A carried value as text: a string as it is, anything else as JSON. Half a character is written out, as in Python."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a list that holds itself
        text = str(type(value).__name__)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _of_dataset(name: str, split: str | None, columns: Sequence[str]) -> Iterator[Given | RowError]:
    for number, example in enumerate(read(name, split=split, keep_bad=True), 1):
        yield example if isinstance(example, RowError) else _of_example(number, example, columns)


def _of_example(number: int, example: Example, columns: Sequence[str]) -> Given:
    known = {"target": example.target, "foil": example.foil, "cues": list(example.cues), **example.info}
    if number == 1 and (missing := [one for one in columns if one not in known]):
        raise InputError(f"the examples have no field {missing[0]!r}. {nearest(missing[0], known)}")
    gold = example.target if example.target is not None else known.get("label")
    carried = tuple(written(known.get(name)) for name in columns)
    row_id = str(number) if example.id is None else str(written(str(example.id)))
    return Given(number, row_id, example.text, example.pair, None, None, None, gold, example.foil, carried)


def _of_values(data: Iterable[Any], fields: Fields) -> Iterator[Given | RowError]:
    """Strings, (text, pair) tuples, Examples, or mappings with fields."""
    source, usual = "rows", None
    for number, value in enumerate(data, 1):
        if isinstance(value, Example):
            row = _of_example(number, value, fields.columns)
            if isinstance(row.text, str) and isinstance(row.pair, str | None):
                yield row
            else:
                yield RowError(source, number, f"the text is {type(value.text).__name__}, not a string", "row")
        elif isinstance(value, Mapping):
            usual = usual or _usual(fields, [str(key) for key in value], source)
            yield _given(number, value, usual, source, "row")
        elif isinstance(value, str):
            yield _given(number, {"text": value}, Fields("text"), source, "row")
        elif isinstance(value, tuple) and len(value) == 2:
            yield _given(number, {"text": value[0], "pair": value[1]}, Fields("text", "pair"), source, "row")
        else:
            yield RowError(source, number, f"{type(value).__name__}, not a text, a (text, pair), an Example or a mapping", "row")


# --- shards of them ---------------------------------------------------------------------------------------------------


def windows(rows: Iterator[Given | RowError], size: int) -> Iterator[tuple[int, list[Given | RowError]]]:
    """(number, rows): what goes into one shard. Never more than one is held here."""
    number = 0
    while window := list(islice(rows, size)):
        yield number, window
        number += 1


def fingerprint(rows: Sequence[Given | RowError]) -> str:
    """Of everything these rows hold."""
    digest = hashlib.sha256()
    for one in rows:
        row = [one.number, one.reason] if isinstance(one, RowError) else list(vars(one).values())
        digest.update(json.dumps(row, default=str).encode())
    return digest.hexdigest()[:16]
