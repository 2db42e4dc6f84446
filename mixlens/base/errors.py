"""What mixlens raises when it refuses: one line that says what came, what is allowed and what to do.

The checks of texts and of amounts are here too, so that a run and the local page refuse with the same words.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Any


class MixlensError(ValueError):
    """Every refusal of mixlens. The command line prints it as one line and exits with code 2."""


class ModelError(MixlensError):
    """A model that cannot be loaded, is not known, or does not pass its own proof."""


class RowsError(ModelError):
    """A row of a batch is not what it is alone: no number that is made in batches can be trusted."""


class InputError(MixlensError):
    """A text, a list of ids, a query or an option that cannot be used."""


class LongError(InputError):
    """A text with more characters than are read."""


class TokenLimitError(InputError):
    """A text with more tokens than are read."""


class ResultError(MixlensError):
    """A result that cannot be saved, or a file that is not a mixlens result."""


MARGIN = 0.15  # of likeness, between the nearest name and others that may be meant


def nearest(name: object, known: Iterable[str]) -> str:
    """`Known: a, b, c.` with the likely meant names first, for an error about an unknown name."""
    known = sorted(known)
    suggestion = suggested(name, known, cutoff=0.5)
    return f"{suggestion} Known: {', '.join(known)}.".lstrip()


def unknown_method(name: object, known: Iterable[str]) -> InputError:
    """The refusal of a method's name. There are many methods: it has the nearest names, and the command that lists
    all."""
    likely = suggested(name, known, cutoff=0.5)
    return InputError(f"unknown method {name!r:.80}. {likely}{' ' * bool(likely)}`mixlens methods` lists all.")


def suggested(name: object, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """`Did you mean 'a' or 'b'?` with the names that share most letters with this one, or nothing where none is near.
    Names that are far less like it than the nearest are left out."""
    close = difflib.get_close_matches(str(name), sorted(known), n=3, cutoff=cutoff)
    likeness = [difflib.SequenceMatcher(None, one, str(name)).ratio() for one in close]
    close = [one for one, like in zip(close, likeness, strict=True) if like > likeness[0] - MARGIN]
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


# --- texts ------------------------------------------------------------------------------------------------------------

# Characters that Python calls printable and that no reader sees: joiners, fillers, variation selectors.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Inside an emoji they show: a symbol, its variation selector or skin tone, and the symbols joined to it.
_SYMBOL = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2934-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_STYLE = "[\ufe0f\U0001f3fb-\U0001f3ff]?"
EMOJI = re.compile(f"{_SYMBOL}{_STYLE}(?:\u200d{_SYMBOL}{_STYLE})*")


def is_text(text: str) -> bool:
    """Whether all characters are whole. Half a character (a lone surrogate) can neither be tokenised nor written to a
    file."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text on one line with nothing hidden in it: control, zero-width and direction characters are escaped.

    The joiners and selectors inside an emoji belong to it, and stay.
    """
    if _is_visible(text):
        return text
    parts, end = [], 0
    for emoji in EMOJI.finditer(text):
        parts += [_escaped(text[end : emoji.start()], _python_escape), emoji[0]]
        end = emoji.end()
    return "".join([*parts, _escaped(text[end:], _python_escape)])


def printable_json(text: str) -> str:
    """JSON of the same value, with every character escaped that a terminal obeys or does not show."""
    return text if _is_visible(text) else _escaped(text, lambda char: json.dumps(char)[1:-1])


def _is_visible(text: str) -> bool:
    return text.isprintable() and not INVISIBLE.search(text)


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    return "".join(char if _is_visible(char) else escape(char) for char in text)


def _python_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


# --- limits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """The most that one request may hold. These are the limits of a run; the local page has narrower ones, as many
    share it."""

    characters: int = 1_000_000  # of a text: tokenising a longer one takes memory without bound
    methods: int = 64  # in one request
    tokens: int | None = None  # of a text, where it is less than the model reads


def kind_of(value: Any) -> str:
    """The type of a value and its first 40 characters, for an error about it."""
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def ended(sentence: str) -> str:
    """The sentence, with a full stop where it has no end."""
    return sentence if sentence.endswith((".", "?", "!", "…")) else f"{sentence}."


def is_integer(value: Any) -> bool:
    """Whether this is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_seed(seed: Any) -> int:
    """The seed, if random numbers can be drawn from it."""
    if not is_integer(seed) or seed < 0:
        raise InputError(f"seed is a number, 0 or more, not {seed!r}.")
    return int(seed)


def readable(value: Any, field: str, *, most: int | None = None) -> str:
    """The value, if it is a text that a model can read: a string, not empty, of whole characters, at most `most` of
    them."""
    if not isinstance(value, str):
        raise InputError(f"field {field!r} holds {kind_of(value)}, not text.")
    if most is not None and len(value) > most:
        raise LongError(f"field {field!r} has {len(value):,} characters; {most:,} are allowed. Shorten or split it.")
    if not value.strip():
        raise InputError(f"field {field!r} is empty.")
    if not is_text(value):
        raise InputError(f"field {field!r} holds half a character (a lone surrogate), which is no text.")
    return value


def tokens_within(count: int, most: int | None, reader: str) -> None:
    """Refuse a text of more tokens than its reader (a model, the page) takes."""
    if most is not None and count > most:
        raise TokenLimitError(f"the text has {count} tokens, {reader} reads at most {most}. Shorten or split it.")


def methods_within(names: Sized, most: int | None = None) -> None:
    """Refuse a request for no method, or for more than `most`."""
    if not len(names):
        raise InputError("no method was asked for. Give names, as `mixlens methods` lists them.")
    if most is not None and len(names) > most:
        raise InputError(f"{len(names)} methods were asked for; {most} are allowed at once.")
