"""The windows that wait for a worker of a Ray cluster, or that one computes, by their tickets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .rows import Window


class Tickets:
    """The windows that are out, by ticket. One window may be out by several tickets."""

    def __init__(self, ray: Any, feed: Any):
        self.ray, self.feed = ray, feed
        self.held: dict[int, tuple[Any]] = {}  # in a tuple, so that Ray hands on the reference and not the window
        self.count, self.ended = 0, False

    def fill(self, windows: Iterator[Window], limit: int) -> bool:
        """Hand in windows until `limit` tickets are out; whether any ticket is out."""
        while not self.ended and len(self.held) < limit:
            self.give(next(windows, None))
        return bool(self.held)

    def give(self, window: Window | None) -> None:
        """Hand in one more window; None: there are no more."""
        self.ended = window is None
        if window is not None:
            self._add((self.ray.put(window),))

    def repeat_all(self) -> None:
        """Give every window that is out one more ticket. The old tickets stay good."""
        windows = {id(held): held for held in self.held.values()}
        for held in windows.values():
            self._add(held)

    def repeat(self, ticket: int) -> None:
        """Give the window of a ticket one more ticket, if it is out."""
        if ticket in self.held:
            self._add(self.held[ticket])

    def _add(self, held: tuple[Any]) -> None:
        self.held[self.count] = held
        self.count += 1
        self.tell({self.count - 1: held})

    def take(self, ticket: int) -> bool:
        """A ticket came back, and its window is out no more. False: the window came back before."""
        held = self.held.get(ticket)
        gone = [other for other, window in self.held.items() if window is held]
        for other in gone:
            del self.held[other]
        self.tell({}, gone)
        return held is not None

    def tell(self, windows: Mapping[int, Any], gone: Iterable[int] = ()) -> None:
        """Tell the Feed which windows are new, which tickets are done, and how many tickets there are."""
        self.feed.put.remote(dict(windows), list(gone), self.count, False)
