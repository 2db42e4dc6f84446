"""Single steps of a corpus run, each against the same thing written out slowly."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from mixlens.base.errors import InputError
from mixlens.runs.corpus.rows import InputRow
from mixlens.runs.corpus.sources import typed_columns
from mixlens.runs.corpus.worker import BadRow, Plan, Worker

pa = pytest.importorskip("pyarrow")


def carried_type(column: Any) -> str | None:
    """The type that a column is carried with, by the predicates of Arrow; None: it is carried as text."""
    is_whole = pa.types.is_signed_integer(column) or (pa.types.is_unsigned_integer(column) and column.bit_width < 64)
    is_decimal = pa.types.is_float32(column) or pa.types.is_float64(column)
    return "int64" if is_whole else "float64" if is_decimal else "bool" if pa.types.is_boolean(column) else None


def test_numbers_and_yes_or_no_are_carried_as_they_are() -> None:
    numbers = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    decimals = [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2)]
    others = [pa.bool_(), pa.string(), pa.large_string(), pa.timestamp("s"), pa.list_(pa.int64()), pa.null()]
    types = [*numbers, *decimals, *others, pa.dictionary(pa.int8(), pa.string())]
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(types)])
    expected = {name: carried_type(schema.field(name).type) for name in schema.names}
    assert dict(typed_columns(schema, schema.names)) == {
        name: kind for name, kind in expected.items() if kind is not None
    }
    twice = pa.schema([("c", pa.int64()), ("c", pa.string())])
    assert typed_columns(twice, ["c"]) == ()  # which of the two is meant is not known


def test_an_error_is_not_held_beyond_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback of an error holds the traces of its batch, and a shard has hundreds of rows."""
    errors: list[Any] = []

    def fails(self: Worker, rows: Any, encoded: Any, compare: bool) -> list[Any]:
        assert all(error() is None for error in errors)
        error = InputError("no")
        errors.append(weakref.ref(error))
        return [error]

    monkeypatch.setattr(Worker, "_batch", fails)
    worker = Worker(SimpleNamespace(batches=lambda *_: [[0], [1], [2]]), Plan(("alti",)))  # type: ignore[arg-type]
    rows = [InputRow(i, str(i), "text", None, None, None, None, None, None, ()) for i in range(3)]
    answers = worker._columns_by_text([(row, None) for row in rows], lambda _: None)  # type: ignore[misc]
    assert answers == {i: BadRow(i, str(i), "no") for i in range(3)}
    assert len(errors) == 3
