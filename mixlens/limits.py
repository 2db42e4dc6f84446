"""How much is taken in at once, and the words that refuse more: the same for a run and for the local page."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

from .errors import InputError


class LongError(InputError):
    """More of it than is read."""


@dataclass(frozen=True)
class Limits:
    """As a run has them. The page's own are narrower, since it is for many and they wait."""

    characters: int = 1_000_000  # of a text: a longer one is no sentence, and to cut it up would take memory without end
    methods: int = 64  # at once
    tokens: int | None = None  # of a text, beside what the model itself reads


def kind_of(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def readable(value: Any, field: str, *, most: int | None = None) -> str:
    """A text that can be read: a string, not empty, of whole characters, not endless."""
    if not isinstance(value, str):
        raise InputError(f"field {field!r} holds {kind_of(value)}, not text.")
    if most is not None and len(value) > most:
        raise LongError(f"field {field!r} has {len(value):,} characters; {most:,} are allowed. Shorten or split it.")
    if not value.strip():
        raise InputError(f"field {field!r} is empty.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"field {field!r} holds half a character (a lone surrogate), which is no text.") from None
    return value


def tokens_within(count: int, most: int | None, reader: str) -> None:
    if most is not None and count > most:
        raise InputError(f"the text has {count} tokens, {reader} reads at most {most}. Shorten or split it.")


def methods_within(names: Sized, most: int | None = None) -> None:
    if not len(names):
        raise InputError("no method was asked for. Give names, as `mixlens methods` lists them.")
    if most is not None and len(names) > most:
        raise InputError(f"{len(names)} methods were asked for; {most} are allowed at once.")
