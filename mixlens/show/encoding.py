"""Terminals that cannot show every character (Latin-1, ASCII): pictures get plain letters and do not end in an
error."""

from __future__ import annotations

import codecs
from typing import Any, TextIO

ERRORS = "mixlens"  # the name of the error handler
DRAWN = "█▒·…←"  # what pictures are made of
PLAIN = {
    **dict(zip("█▒·…←→␣⏎◌−–—‘’“”▁≤≥×", "#-|~<>_/o---''\"\"_<>x", strict=True)),
    **{"\u200e": "", "\u200d": ""},
}


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """The error handler: plain letters of the same width for what pictures are made of; all else is written as
    \\u0000."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    codes = {char: f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}" for char in letters}
    return "".join(PLAIN.get(char, codes[char]) for char in letters), error.end


codecs.register_error(ERRORS, _plain)


def can_show(out: Any, text: str = DRAWN, *, replaced: bool = True) -> bool:
    """Can this stream write these characters, or, unless `replaced` is False, does it know what to write instead?"""
    if replaced and getattr(out, "errors", None) == ERRORS:
        return True
    try:
        text.encode(getattr(out, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Plain:
    """A text stream that writes plain letters where its encoding has no others."""

    def __init__(self, out: TextIO):
        self._out = out

    def write(self, text: str) -> int:
        encoding = self._out.encoding or "ascii"
        self._out.write(text.encode(encoding, ERRORS).decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


def readable(out: Any) -> Any:
    """The stream itself, or one that writes to it without an error."""
    return out if can_show(out) else Plain(out)


def make_readable(out: Any) -> None:
    """From now on everything that is written to this stream can be. For a program's own output."""
    if not can_show(out) and hasattr(out, "reconfigure"):
        out.reconfigure(errors=ERRORS)
