"""One row of a corpus: what is read of its fields, and what a shard of rows is known by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ...base.errors import InputError, Limits, readable
from ...data import RowError
from ...data.reading import TEXT_FIELDS

LIMITS = Limits()


@dataclass(frozen=True)
class InputRow:
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
    messages: tuple[Any, ...] | None = None  # a conversation in the place of a text
    whole: int | None = None  # how many tokens the text had before it was cut; None where it was not


Rows = Iterator[InputRow | RowError]
Window = tuple[int, list[InputRow | RowError]]  # the number of a shard, and the rows that go into it


@dataclass(frozen=True)
class Fields:
    """Which fields of a row are what. None: the usual ones."""

    text: str | None = None
    pair: str | None = None
    ids: str | None = None
    columns: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (column, type) of those that are carried as they are, not as text
    chat: bool = False  # rows are conversations
    messages: str | None = None  # the field of a row's messages, where it has some; else its text is one message


# --- from fields to a row ---------------------------------------------------------------------------------------------


def row_of(number: int, row: Mapping[str, Any], fields: Fields, source: str, unit: str) -> InputRow | RowError:
    """The row that a mapping of fields holds, or the reason why it cannot be read."""
    try:
        inputs = _inputs(row, fields)
    except InputError as error:
        return RowError(source, number, str(error), unit, id=_id(row, number))
    target, foil = _first_word(row, "target", "label"), _first_word(row, "foil")
    return InputRow(number, _id(row, number), **inputs, target=target, foil=foil, columns=_carried(row, fields))


def _inputs(row: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """What a model reads of a row: its text (with a pair), its ids, or its messages."""
    messages = None if fields.messages is None else row.get(fields.messages)
    if messages is None:
        _refuse_neither(row, fields)
        return {**_texts(row, fields), **_ids(row, fields)}
    read = _messages(messages, str(fields.messages))
    return {**dict.fromkeys(("text", "pair", "input_ids", "token_type_ids", "attention_mask")), "messages": read}


def _refuse_neither(row: Mapping[str, Any], fields: Fields) -> None:
    """Refuse a row that may hold messages or a text, and holds none of the two."""
    text = fields.text or TEXT_FIELDS[0]
    if fields.messages is not None and row.get(text) is None:
        raise InputError(f"neither field {fields.messages!r} nor field {text!r} holds anything.")


def _messages(value: Any, name: str) -> tuple[Any, ...]:
    """A list of messages; in CSV, which has none, written as JSON. Each is looked at when the model's template reads it."""
    messages = _from_json(value) if isinstance(value, str) else value
    if not isinstance(messages, list) or not messages:
        raise InputError(f'field {name!r} does not hold a list of messages as {{"role": "user", "content": "..."}}.')
    texts = [message["content"] for message in messages if isinstance(message, Mapping) and _is_content(message)]
    if texts:
        readable("".join(texts), name, most=LIMITS.characters)
    return tuple(messages)


def _is_content(message: Mapping[str, Any]) -> bool:
    return isinstance(message.get("content"), str)


def as_conversation(row: InputRow | RowError) -> InputRow | RowError:
    """A row with messages as it is; the text of any other as one message of a user."""
    if isinstance(row, RowError) or row.messages is not None:
        return row
    if row.text is None or row.pair is not None:
        return RowError("rows", row.row, "a text with a pair, or ids, which are no conversation", "row", id=row.id)
    return replace(row, text=None, messages=({"role": "user", "content": row.text},))


def _texts(row: Mapping[str, Any], fields: Fields) -> dict[str, str | None]:
    text = None if fields.ids is not None else _text(row, fields.text or TEXT_FIELDS[0])
    return {"text": text, "pair": None if fields.pair is None else _text(row, fields.pair)}


def _text(row: Mapping[str, Any], field: str) -> str:
    return readable(row.get(field), field, most=LIMITS.characters)


def _ids(row: Mapping[str, Any], fields: Fields) -> dict[str, list[int] | None]:
    """The ids, the segments and the mask of a row; None for each where it is read as text."""
    names = {"input_ids": fields.ids, "token_type_ids": "token_type_ids", "attention_mask": "attention_mask"}
    if fields.ids is None:
        return dict.fromkeys(names)
    ids = {part: _numbers(row.get(str(name)), str(name)) for part, name in names.items()}
    if ids["input_ids"] is None:
        raise InputError(f"field {fields.ids!r} holds no ids.")
    return ids


def _numbers(value: Any, name: str) -> list[int] | None:
    """A list of integers; in CSV, which has none, written as JSON."""
    if value is None:
        return None
    numbers = _from_json(value) if isinstance(value, str) else value
    if not isinstance(numbers, list) or not all(map(_is_whole, numbers)):
        raise InputError(f"field {name!r} does not hold a list of integers.")
    return numbers


def _from_json(text: str) -> Any:
    """The value that JSON means; None where the text is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _id(row: Mapping[str, Any], number: int) -> str:
    """The row's own id, which is a word or a number; else its place."""
    name = row.get("id")
    is_id = _is_whole(name) or (isinstance(name, str) and name != "")
    return str(written(name)) if is_id else str(number)


def _first_word(row: Mapping[str, Any], *names: str) -> str | int | None:
    """The first of these fields that holds a word or a number."""
    values = (row.get(name) for name in names)
    return next((value for value in values if isinstance(value, str | int)), None)


def _carried(row: Mapping[str, Any], fields: Fields) -> tuple[Any, ...]:
    typed = dict(fields.kinds)
    return tuple(row.get(name) if name in typed else written(row.get(name)) for name in fields.columns)


def written(value: Any) -> str | None:
    """A carried value as text: a string as it is, anything else as JSON. Half a character is written out, as in Python."""
    if value is None:
        return None
    text = value if isinstance(value, str) else _as_json(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _as_json(value: Any) -> str:
    """JSON of a value; the name of its type where it has none."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # a list that contains itself
        return type(value).__name__


# --- shards of rows ---------------------------------------------------------------------------------------------------


def windows(rows: Rows, size: int) -> Iterator[Window]:
    """(number, rows): what goes into one shard. One window is held here at a time."""
    number = 0
    while window := list(islice(rows, size)):
        yield number, window
        number += 1


def place_of(row: InputRow | RowError) -> int:
    """The line a row begins on, or its place in the data."""
    return row.number if isinstance(row, RowError) else row.row


def fingerprint(rows: Sequence[InputRow | RowError]) -> str:
    """A checksum of everything that these rows hold."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(_content(row), default=str).encode())
    return digest.hexdigest()[:16]


def _content(row: InputRow | RowError) -> list[Any]:
    if isinstance(row, RowError):
        return [row.number, row.reason]
    *values, messages, _ = vars(row).values()  # rows are known by what they were before they were cut
    return values if messages is None else [*values, messages]
