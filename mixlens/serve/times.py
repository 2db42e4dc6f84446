"""How long questions took on this machine: by model and question, the last time each was answered."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Took:
    """One measured answer: its seconds, and the tokens of its text."""

    seconds: float
    tokens: int


class Times:
    """The last measured time of every model and question. Read and written by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._took: dict[tuple[str, str], Took] = {}

    def took(self, model: str, question: str, seconds: float, tokens: int) -> None:
        with self._lock:
            self._took[model, question] = Took(seconds, tokens)

    def of(self, model: str) -> dict[str, dict[str, float]]:
        """By question: seconds and tokens."""
        with self._lock:
            return {
                question: {"seconds": round(took.seconds, 3), "tokens": took.tokens}
                for (name, question), took in self._took.items()
                if name == model
            }
