"""What mixlens raises when it refuses: one line that says what came, what is allowed and what to do."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

# Characters that count as printable and yet are not seen: joiners, fillers, variation selectors.
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


class MixlensError(ValueError):
    """Every refusal of mixlens. The command line prints it as one line and exits with code 2."""


class ModelError(MixlensError):
    """A model that cannot be loaded, is not known, or does not pass its own proof."""


class InputError(MixlensError):
    """A text, a list of ids, a query or an option that cannot be used."""


class ResultError(MixlensError):
    """A result that cannot be saved, or a file that is not a mixlens result."""


def nearest(name: object, known: Iterable[str]) -> str:
    """`Known: a, b, c.` with the likely meant names first, for an error about an unknown name."""
    known = sorted(known)
    suggestion = suggested(name, known, cutoff=0.5)
    return f"{suggestion} Known: {', '.join(known)}.".lstrip()


def suggested(name: object, known: Iterable[str], *, cutoff: float = 0.7) -> str:
    """`Did you mean 'a' or 'b'?` with the names that share most letters with this one, or nothing where none is near."""
    close = difflib.get_close_matches(str(name), sorted(known), n=3, cutoff=cutoff)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


# Inside an emoji they are seen: a symbol, how it is drawn, and what it is joined with.
_SYMBOL = "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2934-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_DRAWN = "[\ufe0f\U0001f3fb-\U0001f3ff]?"
EMOJI = re.compile(f"{_SYMBOL}{_DRAWN}(?:\u200d{_SYMBOL}{_DRAWN})*")


def printable(text: str) -> str:
    """The text on one line with nothing hidden in it: control, zero-width and direction characters are written out.

    What joins the parts of an emoji is a part of it, and stays.
    """
    if text.isprintable() and not UNSEEN.search(text):
        return text
    parts, end = [], 0
    for emoji in EMOJI.finditer(text):
        parts += [_plainly(text[end : emoji.start()]), emoji[0]]
        end = emoji.end()
    return "".join([*parts, _plainly(text[end:])])


def _plainly(text: str) -> str:
    return "".join(char if char.isprintable() and not UNSEEN.match(char) else _written(char) for char in text)


def printable_json(text: str) -> str:
    """JSON that means the same and holds no character that a terminal obeys or does not show."""
    if text.isprintable() and not UNSEEN.search(text):
        return text
    return "".join(char if char.isprintable() and not UNSEEN.match(char) else json.dumps(char)[1:-1] for char in text)


def _written(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
