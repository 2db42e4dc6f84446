"""One row of a corpus: what is read of its fields, and what a shard of rows is known by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from ...base.errors import InputError, Limits, MixlensError, readable
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
    name = row.get("id")
    row_id = str(written(name)) if _is_whole(name) or (isinstance(name, str) and name) else str(number)
    try:
        inputs = _inputs(row, fields)
    except InputError as error:
        return RowError(source, number, str(error), unit, id=row_id)
    words = {name: value for name in ("target", "label", "foil") if isinstance(value := row.get(name), str | int)}
    typed = dict(fields.kinds)
    carried = tuple(row.get(name) if name in typed else written(row.get(name)) for name in fields.columns)
    target = words.get("target", words.get("label"))
    return InputRow(number, row_id, **inputs, target=target, foil=words.get("foil"), columns=carried)


def _inputs(row: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """What a model reads of a row: its text (with a pair), its ids, or its messages."""
    inputs: dict[str, Any] = dict.fromkeys(("text", "pair", "input_ids", "token_type_ids", "attention_mask"))
    text = fields.text or TEXT_FIELDS[0]
    if fields.messages is not None:
        if row.get(fields.messages) is not None:
            return {**inputs, "messages": _messages(row[fields.messages], fields.messages)}
        if row.get(text) is None:
            raise InputError(f"neither field {fields.messages!r} nor field {text!r} holds anything.")
    if fields.ids is None:
        inputs["text"] = readable(row.get(text), text, most=LIMITS.characters)
    if fields.pair is not None:
        inputs["pair"] = readable(row.get(fields.pair), fields.pair, most=LIMITS.characters)
    if fields.ids is not None:
        names = {"input_ids": fields.ids, "token_type_ids": "token_type_ids", "attention_mask": "attention_mask"}
        inputs |= {part: _numbers(row.get(name), name) for part, name in names.items()}
        if inputs["input_ids"] is None:
            raise InputError(f"field {fields.ids!r} holds no ids.")
    return inputs


def _messages(value: Any, name: str) -> tuple[Any, ...]:
    """A list of messages; in CSV, which has none, written as JSON. Each is looked at when the model's template reads
    it."""
    messages = _from_json(value) if isinstance(value, str) else value
    if not isinstance(messages, list) or not messages:
        raise InputError(f'field {name!r} does not hold a list of messages as {{"role": "user", "content": "..."}}.')
    contents = (message.get("content") for message in messages if isinstance(message, Mapping))
    texts = [content for content in contents if isinstance(content, str)]
    if texts:
        readable("".join(texts), name, most=LIMITS.characters)
    return tuple(messages)


def as_conversation(row: InputRow | RowError) -> InputRow | RowError:
    """A row with messages as it is; the text of any other as one message of a user."""
    if isinstance(row, RowError) or row.messages is not None:
        return row
    if row.text is None or row.pair is not None:
        return RowError("rows", row.row, "a text with a pair, or ids, which are no conversation", "row", id=row.id)
    return replace(row, text=None, messages=({"role": "user", "content": row.text},))


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


def written(value: Any) -> str | None:
    """A carried value as text: a string as it is, anything else as JSON, or the name of its type where it has none (a
    list that contains itself). Half a character is written out, as in Python."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# --- shards of rows ---------------------------------------------------------------------------------------------------


def windows(rows: Rows, size: int) -> Iterator[Window]:
    """(number, rows): what goes into one shard. One window is held here at a time. An error of the system while rows
    are read names the data, not the folder that is written to."""
    for number in count():
        try:
            window = list(islice(rows, size))
        except OSError as error:
            if isinstance(error, MixlensError):
                raise
            reason = error.strerror or error
            raise InputError(f"the data cannot be read: {reason}. The same command goes on.") from error
        if not window:
            return
        yield number, window


def place_of(row: InputRow | RowError) -> int:
    """The line a row begins on, or its place in the data."""
    return row.number if isinstance(row, RowError) else row.row


def fingerprint(rows: Sequence[InputRow | RowError]) -> str:
    """A checksum of everything that these rows hold, before they were cut."""
    digest = hashlib.sha256()
    for row in rows:
        if isinstance(row, RowError):
            content: list[Any] = [row.number, row.reason]
        else:
            *content, messages, _ = vars(row).values()
            content += [] if messages is None else [messages]
        digest.update(json.dumps(content, default=str).encode())
    return digest.hexdigest()[:16]
