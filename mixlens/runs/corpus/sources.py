"""Where the rows of a corpus come from: a file, a dataset by name, a dataset of the hub, or texts in Python."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ...base.errors import InputError, nearest
from ...base.optional import optional
from ...base.paths import is_file, is_folder
from ...data import DATASETS, RowError, read
from ...data.reading import TEXT_FIELDS, fields_of, not_empty, rows_of
from ...data.source import Source
from ...types import Chat, Example
from .rows import Fields, InputRow, Rows, as_conversation, row_of, written

IDS_FIELD, MESSAGES_FIELD = "input_ids", "messages"
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")  # these fit 64 bits with a sign
# The types of Parquet columns that are carried as they are, by the names Arrow gives them, and the types they are
# written with.
CARRIED_TYPES = {**dict.fromkeys(WHOLE, "int64"), "float": "float64", "double": "float64", "bool": "bool"}


@dataclass(frozen=True)
class Corpus:
    """Where rows come from. `rows` starts from the first row with every call."""

    name: str
    fingerprint: str | None  # of a file, whole; other sources are known by what each shard read
    total: int | None  # rows, as far as is known beforehand
    rows: Callable[[], Rows]
    kinds: tuple[tuple[str, str], ...] = ()  # as in Fields
    source: Source | None = None  # the file, where it is one: its bytes are compared whenever they are read

    def unchanged(self) -> None:
        """Refuse a file that is not what it was when the run began. Of other sources every shard knows its rows."""
        if self.source is not None:
            self.source.unchanged()

    def close(self) -> None:
        if self.source is not None:
            self.source.close()

    def first(self, count: int) -> Corpus:
        """The same corpus with its first `count` rows alone."""
        total = count if self.total is None else min(count, self.total)
        return replace(self, total=total, rows=lambda: islice(self.rows(), count))


def corpus(data: Any, *, fields: Fields, split: str | None, limit: int | None) -> Corpus:
    """The corpus that `data` names or holds. What can be refused before a row is explained is refused here."""
    if limit is not None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InputError(f"limit= must be at least 1, not {limit!r}.")
        if limit > sys.maxsize:
            raise InputError(f"limit= must be at most {sys.maxsize:,}, not {limit}.")
    if isinstance(data, str | os.PathLike):
        whole = _named(os.fspath(data), fields, split, has_limit=limit is not None)
    elif not isinstance(data, Iterable) or isinstance(data, bytes | Mapping):
        raise InputError(f"data is a file, a dataset or a list of texts, not {type(data).__name__}.")
    else:
        if split is not None:
            raise InputError("rows that are given in Python have no split: leave split= out.")
        total = len(data) if isinstance(data, Sequence) else None
        if total == 0:
            raise InputError("data holds no row. Give at least one text.")
        whole = Corpus("rows given in Python", None, total, partial(_python_rows, data, fields))
    rows = whole.rows
    if fields.chat:
        whole = replace(whole, rows=lambda: map(as_conversation, rows()))
    return whole if limit is None else whole.first(limit)


def _named(name: str, fields: Fields, split: str | None, *, has_limit: bool) -> Corpus:
    if name in DATASETS and not is_file(name):  # a dataset of `mixlens data`
        if any((fields.text, fields.pair, fields.ids)):
            raise InputError(f"{name!r} knows its own fields: leave text_field=, pair_field= and ids_field= out.")
        if DATASETS[name].stream is not None and not has_limit:
            raise InputError(f"{name!r} has no end: say how many examples, limit=.")
        return Corpus(name, None, None, partial(_dataset_rows, name, split, fields.columns))
    if is_folder(name):
        raise InputError(f"{name!r} is a folder; give one file of it.")
    if not is_file(name):  # a dataset of the hub; one that cannot be used is refused now
        next(_file_rows(name, split, fields))
        return Corpus(name, None, None, partial(_file_rows, name, split, fields))
    rows_of(name, split=split)  # a file of an unknown kind, or without permission, is refused before it is read
    source = Source(Path(name))
    try:
        next(_file_rows(name, split, fields, source))  # a file that cannot be used is refused now
        total = source.lines
        if Path(name).suffix.lower() == ".parquet":
            parquet = optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
            with source.reader() as content, parquet.ParquetFile(content) as file:
                total = file.metadata.num_rows
                fields = replace(fields, kinds=typed_columns(file.schema_arrow, fields.columns))
        rows = partial(_file_rows, name, split, fields, source, warn=True)
        return Corpus(name, source.sha256, total, rows, fields.kinds, source)
    except BaseException:
        source.close()
        raise


# --- datasets ---------------------------------------------------------------------------------------------------------


def _dataset_rows(name: str, split: str | None, columns: Sequence[str]) -> Rows:
    for number, example in enumerate(read(name, split=split, keep_bad=True), 1):
        yield example if isinstance(example, RowError) else _row_of_example(number, example, columns)


def _row_of_example(number: int, example: Example, columns: Sequence[str]) -> InputRow:
    known = {"target": example.target, "foil": example.foil, "cues": list(example.cues), **example.info}
    if number == 1:  # all examples of a dataset have the same fields
        _refuse_missing(columns, known, "the examples have")
    gold = example.target if example.target is not None else known.get("label")
    carried = tuple(written(known.get(name)) for name in columns)
    row_id = str(number) if example.id is None else str(written(str(example.id)))
    return InputRow(number, row_id, example.text, example.pair, None, None, None, gold, example.foil, carried)


def _refuse_missing(names: Iterable[str], known: Iterable[str], subject: str, remedy: str = "") -> None:
    """Refuse the first name that is no known field. `remedy`: what to do, behind the names that are known."""
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise InputError(f"{subject} no field {missing!r}. {nearest(missing, known)}{remedy}")


# --- files, and datasets of the hub -----------------------------------------------------------------------------------


def typed_columns(schema: Any, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(column, type) of the Parquet columns that are carried as they are: whole numbers that fit 64 bits, decimals, yes
    or no."""
    types = {name: str(schema.field(name).type) for name in columns if schema.names.count(name) == 1}
    return tuple((name, CARRIED_TYPES[kind]) for name, kind in types.items() if kind in CARRIED_TYPES)


def _file_rows(
    name: str, split: str | None, fields: Fields, content: Source | None = None, *, warn: bool = False
) -> Rows:
    source, unit, rows = rows_of(name, split=split, content=content)
    names, rows = fields_of(not_empty(rows, f"{source} holds no row."))
    fields = _usual_fields(fields, names, source) if names else fields
    for number, row in rows:
        if warn and isinstance(row, RowError) and row.lines > 1:  # of CSV, where a quote is not closed
            warnings.warn(f"{row}. Close the quote, and begin anew in another folder.", stacklevel=3)
        yield row if isinstance(row, RowError) else row_of(number, row, fields, source, unit)


def _usual_fields(fields: Fields, names: Sequence[str], source: str) -> Fields:
    """The fields that are meant; each is one of `names`. Of conversations the text is read where a row has no
    messages."""
    usual = next((name for name in (*TEXT_FIELDS, IDS_FIELD) if name in names), TEXT_FIELDS[0])
    has, name_it = f"{source} has", " Name the field: text_field=NAME."
    if fields.chat:
        text = (
            next((name for name in TEXT_FIELDS if name in names), TEXT_FIELDS[0])
            if fields.text is None
            else fields.text
        )
        messages = MESSAGES_FIELD if fields.text is None else None
        _refuse_missing([text] if messages not in names else [], names, has, name_it)
        _refuse_missing(fields.columns, names, has)
        return replace(fields, text=text, messages=messages)
    if fields.ids is not None and fields.text is not None:
        raise InputError("a row is read as text or as ids: give text_field= or ids_field=, not both.")
    if (fields.text, fields.ids) == (None, None):
        if MESSAGES_FIELD in names and not {*TEXT_FIELDS, IDS_FIELD}.intersection(names):
            raise InputError(
                f"{source} has no field {TEXT_FIELDS[0]!r}, but {MESSAGES_FIELD!r}: to read conversations give "
                "chat=True, on "
                "the command line --chat."
            )
        fields = replace(fields, ids=usual) if usual == IDS_FIELD else replace(fields, text=usual)
    if fields.ids is not None and fields.pair is not None:
        raise InputError("ids hold both texts already: leave pair_field= out.")
    for option, name in (("text_field", fields.text), ("ids_field", fields.ids), ("pair_field", fields.pair)):
        _refuse_missing([] if name is None else [name], names, has, f" Name the field: {option}=NAME.")
    _refuse_missing(fields.columns, names, has)
    return fields


# --- rows in Python ---------------------------------------------------------------------------------------------------


def _python_rows(data: Iterable[Any], fields: Fields) -> Iterator[InputRow | RowError]:
    """Strings, (text, pair) tuples, Examples, or mappings with fields: the first mapping decides which of its fields
    are read of every mapping."""
    usual: Fields | None = None
    for number, value in enumerate(data, 1):
        reason = ""
        read_as: tuple[Mapping[Any, Any], Fields] | None = None
        if isinstance(value, Example):
            row = _row_of_example(number, value, fields.columns)
            if isinstance(row.text, str) and isinstance(row.pair, str | None):
                yield row
                continue
            reason = f"the text is {type(value.text).__name__}, not a string"
        elif isinstance(value, Mapping):
            usual = usual or _usual_fields(fields, list(map(str, value)), "rows")
            read_as = value, usual
        elif isinstance(value, str):
            read_as = {"text": value}, Fields("text")
        elif isinstance(value, tuple) and len(value) == 2:
            read_as = dict(zip(("text", "pair"), value, strict=True)), Fields("text", "pair")
        elif isinstance(value, Chat) and not fields.chat:
            reason = "a conversation, and rows are read as texts: give chat=True"
        elif isinstance(value, Chat) or (isinstance(value, list) and fields.chat):
            messages = list(value.messages) if isinstance(value, Chat) else value
            read_as = {MESSAGES_FIELD: messages}, Fields(messages=MESSAGES_FIELD)
        else:
            reason = f"{type(value).__name__}, not a text, a (text, pair), an Example or a mapping"
        yield row_of(number, *read_as, "rows", "row") if read_as else RowError("rows", number, reason, "row")
