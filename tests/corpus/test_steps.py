"""Single steps of a corpus run, each against the same thing written out slowly."""

from __future__ import annotations

import weakref
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixlens.base.errors import InputError
from mixlens.runs.corpus import tally as counting
from mixlens.runs.corpus.answers import answers_of
from mixlens.runs.corpus.page_samples import WHY, Examples
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


def test_the_words_that_are_left_are_those_of_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rarest words go; of words that are equally rare the first go first, whatever class and method they are in."""
    random = np.random.default_rng(0)
    tally = counting.Tally(["a", "b"])
    for of_class in ("x", "y"):
        counts = tally.classes.setdefault(of_class, counting.ClassCounts())
        for method in ("a", "b"):
            for word in range(50):
                tally.entries += counts.count(method, [(f"w{word}", 0.1)] * int(random.integers(1, 5)))
    monkeypatch.setattr(counting, "TOKENS", 90)
    entries = [
        (share.count, (of_class, method, word))
        for of_class, counts in tally.classes.items()
        for method, shares in counts.shares.items()
        for word, share in shares.items()
    ]
    assert tally.entries == len(entries) == 200
    expected = [entry for _, entry in sorted(entries, key=lambda entry: entry[0])[200 - 90 :]]
    tally._bound()
    left = [
        (of_class, method, word)
        for of_class, counts in tally.classes.items()
        for method, shares in counts.shares.items()
        for word in shares
    ]
    assert Counter(left) == Counter(expected)
    assert (tally.entries, tally.has_dropped) == (90, True)


def test_a_mixing_ratio_may_begin_with_a_row_that_has_none() -> None:
    tally = counting.Tally(["a"])
    row = {"row": 1, "id": "1", "seconds": 0.1, "prediction": "x", "tokens": ["w"], "a": [1.0]}
    for ratio in (None, [0.25, 0.5], [0.75, 0.5]):
        tally.add({**row, "mixing_ratio:a": ratio})
    assert [mean.value for mean in tally.ratios["a"]] == [0.5, 0.5]


def test_questions_that_cannot_be_asked_answer_themselves() -> None:
    calls = []

    def answer(asked: list[int]) -> list[str]:
        calls.append(asked)
        return [f"answer {i}" for i in asked]

    refusal = InputError("no target")
    assert answers_of(["a", refusal, "c"], answer) == ["answer 0", refusal, "answer 2"]  # type: ignore[arg-type]
    assert calls == [[0, 2]]


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


def test_examples_take_turns() -> None:
    """One row of each reason, then the next of each."""
    examples = Examples(24)
    rows = {
        why: [SimpleNamespace(row=10 * number + i) for i in range(3 - number)] for number, why in enumerate(WHY[1:], 1)
    }
    examples.spaced.items = []
    for why, items in rows.items():
        for place, item in enumerate(items):
            examples.chosen[why].offer(float(place), item.row, lambda item=item: item)
    assert [(why, sample.row) for why, sample in examples._in_turns()] == [
        ("methods disagree", 10),
        ("least certain", 20),
        ("methods disagree", 11),
    ]
