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
# The types of Parquet columns that are carried as they are, by the names Arrow gives them, and the types they are written with.
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
        return replace(self, total=total, rows=partial(_first_rows, self.rows, count))


def _first_rows(rows: Callable[[], Rows], count: int) -> Rows:
    return islice(rows(), count)


def corpus(data: Any, *, fields: Fields, split: str | None, limit: int | None) -> Corpus:
    """The corpus that `data` names or holds. What can be refused before a row is explained is refused here."""
    if limit is not None:
        _refuse_limit(limit)
    whole = _whole_corpus(data, fields, split, has_limit=limit is not None)
    whole = replace(whole, rows=partial(_conversations, whole.rows)) if fields.chat else whole
    return whole if limit is None else whole.first(limit)


def _conversations(rows: Callable[[], Rows]) -> Rows:
    return map(as_conversation, rows())


def _refuse_limit(limit: Any) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InputError(f"limit= must be at least 1, not {limit!r}.")
    if limit > sys.maxsize:
        raise InputError(f"limit= must be at most {sys.maxsize:,}, not {limit}.")


def _whole_corpus(data: Any, fields: Fields, split: str | None, *, has_limit: bool) -> Corpus:
    if isinstance(data, str | os.PathLike):
        return _named(os.fspath(data), fields, split, has_limit=has_limit)
    if not isinstance(data, Iterable) or isinstance(data, bytes | Mapping):
        raise InputError(f"data is a file, a dataset or a list of texts, not {type(data).__name__}.")
    return _in_python(data, fields, split)


def _named(name: str, fields: Fields, split: str | None, *, has_limit: bool) -> Corpus:
    if name in DATASETS and not is_file(name):
        return _dataset(name, fields, split, has_limit=has_limit)
    if is_folder(name):
        raise InputError(f"{name!r} is a folder; give one file of it.")
    return _file(name, fields, split) if is_file(name) else _of_the_hub(name, fields, split)


# --- datasets ---------------------------------------------------------------------------------------------------------


def _dataset(name: str, fields: Fields, split: str | None, *, has_limit: bool) -> Corpus:
    """A dataset of `mixlens data`."""
    if any((fields.text, fields.pair, fields.ids)):
        raise InputError(f"{name!r} knows its own fields: leave text_field=, pair_field= and ids_field= out.")
    if DATASETS[name].stream is not None and not has_limit:
        raise InputError(f"{name!r} has no end: say how many examples, limit=.")
    return Corpus(name, None, None, partial(_dataset_rows, name, split, fields.columns))


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


def _of_the_hub(name: str, fields: Fields, split: str | None) -> Corpus:
    next(_file_rows(name, split, fields))  # a dataset that cannot be used is refused now
    return Corpus(name, None, None, partial(_file_rows, name, split, fields))


def _file(name: str, fields: Fields, split: str | None) -> Corpus:
    rows_of(name, split=split)  # a file of an unknown kind, or without permission, is refused before it is read
    source = Source(Path(name))
    try:
        return _of_source(name, fields, split, source)
    except BaseException:
        source.close()
        raise


def _of_source(name: str, fields: Fields, split: str | None, source: Source) -> Corpus:
    next(_file_rows(name, split, fields, source))  # a file that cannot be used is refused now
    total = source.lines
    if Path(name).suffix.lower() == ".parquet":
        total, schema = _parquet_facts(source)
        fields = replace(fields, kinds=typed_columns(schema, fields.columns))
    rows = partial(_file_rows, name, split, fields, source, warn=True)
    return Corpus(name, source.sha256, total, rows, fields.kinds, source)


def _parquet_facts(source: Source) -> tuple[int, Any]:
    """How many rows a Parquet file has, and its schema."""
    parquet = optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    with source.reader() as content, parquet.ParquetFile(content) as file:
        return file.metadata.num_rows, file.schema_arrow


def typed_columns(schema: Any, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(column, type) of the Parquet columns that are carried as they are: whole numbers that fit 64 bits, decimals, yes or no."""
    types = {name: str(schema.field(name).type) for name in columns if schema.names.count(name) == 1}
    return tuple((name, CARRIED_TYPES[kind]) for name, kind in types.items() if kind in CARRIED_TYPES)


def _file_rows(
    name: str, split: str | None, fields: Fields, content: Source | None = None, *, warn: bool = False
) -> Rows:
    source, unit, rows = rows_of(name, split=split, content=content)
    names, rows = fields_of(not_empty(rows, f"{source} holds no row."))
    fields = _usual_fields(fields, names, source) if names else fields
    for number, row in rows:
        if warn:
            _warn_of_quote(row)
        yield row if isinstance(row, RowError) else row_of(number, row, fields, source, unit)


def _warn_of_quote(row: Any) -> None:
    """Warn of a row of CSV that takes several lines because a quote is not closed."""
    if isinstance(row, RowError) and row.lines > 1:
        warnings.warn(f"{row}. Close the quote, and begin anew in another folder.", stacklevel=3)


def _usual_fields(fields: Fields, names: Sequence[str], source: str) -> Fields:
    """The fields that are meant; each is one of `names`. Of conversations the text is read where a row has no messages."""
    if fields.chat:
        return _chat_fields(fields, names, source)
    _refuse_ids_beside(
        fields, fields.text, "a row is read as text or as ids: give text_field= or ids_field=, not both."
    )
    _refuse_conversations(fields, names, source)
    fields = _with_input(fields, names)
    _refuse_ids_beside(fields, fields.pair, "ids hold both texts already: leave pair_field= out.")
    for option, name in (("text_field", fields.text), ("ids_field", fields.ids), ("pair_field", fields.pair)):
        _refuse_missing([] if name is None else [name], names, f"{source} has", f" Name the field: {option}=NAME.")
    _refuse_missing(fields.columns, names, f"{source} has")
    return fields


def _chat_fields(fields: Fields, names: Sequence[str], source: str) -> Fields:
    text = next((name for name in TEXT_FIELDS if name in names), TEXT_FIELDS[0]) if fields.text is None else fields.text
    messages = MESSAGES_FIELD if fields.text is None else None
    _refuse_missing(
        [text] if messages not in names else [], names, f"{source} has", " Name the field: text_field=NAME."
    )
    _refuse_missing(fields.columns, names, f"{source} has")
    return replace(fields, text=text, messages=messages)


def _refuse_conversations(fields: Fields, names: Sequence[str], source: str) -> None:
    """Refuse rows that have messages and no text, unless they are to be read as conversations."""
    is_named = (fields.text, fields.ids) != (None, None)
    if MESSAGES_FIELD in names and not is_named and not {*TEXT_FIELDS, IDS_FIELD}.intersection(names):
        raise InputError(
            f"{source} has no field {TEXT_FIELDS[0]!r}, but {MESSAGES_FIELD!r}: to read conversations give chat=True, on the "
            "command line --chat."
        )


def _refuse_ids_beside(fields: Fields, other: str | None, refusal: str) -> None:
    if fields.ids is not None and other is not None:
        raise InputError(refusal)


def _with_input(fields: Fields, names: Sequence[str]) -> Fields:
    """The fields, with the usual field of texts or of ids where neither is named."""
    if (fields.text, fields.ids) != (None, None):
        return fields
    usual = next((name for name in (*TEXT_FIELDS, IDS_FIELD) if name in names), TEXT_FIELDS[0])
    return replace(fields, ids=usual) if usual == IDS_FIELD else replace(fields, text=usual)


# --- rows in Python ---------------------------------------------------------------------------------------------------


def _in_python(data: Iterable[Any], fields: Fields, split: str | None) -> Corpus:
    if split is not None:
        raise InputError("rows that are given in Python have no split: leave split= out.")
    total = len(data) if isinstance(data, Sequence) else None
    if total == 0:
        raise InputError("data holds no row. Give at least one text.")
    return Corpus("rows given in Python", None, total, partial(_python_rows, data, fields))


def _python_rows(data: Iterable[Any], fields: Fields) -> Iterator[InputRow | RowError]:
    """Strings, (text, pair) tuples, Examples, or mappings with fields."""
    rows = _PythonRows(fields)
    for number, value in enumerate(data, 1):
        yield rows.row(number, value)


class _PythonRows:
    """Rows of values in Python. The first mapping decides which of its fields are read of every mapping."""

    source = "rows"

    def __init__(self, fields: Fields):
        self.fields = fields
        self.usual: Fields | None = None
        texts = ((Example, self._example), (Mapping, self._mapping), (str, self._text), (tuple, self._tuple))
        self.readers = (*texts, (Chat, self._chat), *(((list, self._messages),) if fields.chat else ()))

    def row(self, number: int, value: Any) -> InputRow | RowError:
        reader = next((reader for kind, reader in self.readers if isinstance(value, kind)), self._refused)
        return reader(number, value)

    def _example(self, number: int, value: Example) -> InputRow | RowError:
        row = _row_of_example(number, value, self.fields.columns)
        if isinstance(row.text, str) and isinstance(row.pair, str | None):
            return row
        return RowError(self.source, number, f"the text is {type(value.text).__name__}, not a string", "row")

    def _mapping(self, number: int, value: Mapping[Any, Any]) -> InputRow | RowError:
        self.usual = self.usual or _usual_fields(self.fields, list(map(str, value)), self.source)
        return row_of(number, value, self.usual, self.source, "row")

    def _text(self, number: int, value: str) -> InputRow | RowError:
        return row_of(number, {"text": value}, Fields("text"), self.source, "row")

    def _tuple(self, number: int, value: tuple[Any, ...]) -> InputRow | RowError:
        if len(value) != 2:
            return self._refused(number, value)
        text, pair = value
        return row_of(number, {"text": text, "pair": pair}, Fields("text", "pair"), self.source, "row")

    def _chat(self, number: int, value: Chat) -> InputRow | RowError:
        if not self.fields.chat:
            return RowError(self.source, number, "a conversation, and rows are read as texts: give chat=True", "row")
        return self._messages(number, list(value.messages))

    def _messages(self, number: int, value: list[Any]) -> InputRow | RowError:
        return row_of(number, {MESSAGES_FIELD: value}, Fields(messages=MESSAGES_FIELD), self.source, "row")

    def _refused(self, number: int, value: Any) -> RowError:
        reason = f"{type(value).__name__}, not a text, a (text, pair), an Example or a mapping"
        return RowError(self.source, number, reason, "row")
