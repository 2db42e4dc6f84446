"""What mixlens raises when it refuses: one line that says what came, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{meant}Known: {', '.join(known)}."
