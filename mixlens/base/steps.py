"""How far a long method is: it tells every step that it has done, and whoever listens hears it. A method does not
know who does.

The terminal's spinner and the served page listen (`listening`). A method that asks another for parts of its work
tells them as steps of its own (`part_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .budget import setting, settings


@dataclass(frozen=True)
class Step:
    """So many of `count` are done. `count` is what is planned: methods that go on until a sum is right plan more on
    the way."""

    done: int
    count: int
    noun: str  # points, texts, ...
    since: float = 0.0  # the share of a method's work that was done before the first of these steps, and after the last
    until: float = 1.0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        within = min(1.0, self.done / self.count) if self.count else 0.0
        return self.since + (self.until - self.since) * within

    @property
    def text(self) -> str:
        """ "64 of 500 texts"; of what is not counted its name alone."""
        return self.noun if not self.count else f"{self.done:,} of {max(self.done, self.count):,} {self.noun}"


Listener = Callable[[Step], None]


def tell(done: int, count: int, noun: str, *, since: float = 0.0, until: float = 1.0) -> None:
    """Tell whoever listens how far this is. A method whose work has two kinds of steps says which share each kind
    is."""
    listener = settings().listener
    if listener is not None:
        listener(Step(done, count, noun, since, until))


def tell_preparing(what: str) -> None:
    """Tell whoever listens that this is being made ready, which takes a while and is not counted."""
    tell(0, 0, f"preparing {what}")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, steps are told to this listener alone."""
    with setting(listener=listener):
        yield


@contextmanager
def part_of(before: int, count: int, noun: str) -> Iterator[None]:
    """Steps within the block are steps of a larger work, of which `before` are done already."""
    listener = settings().listener
    if listener is None:
        yield
        return
    with listening(lambda step: listener(Step(before + step.done, count, noun))):
        yield
