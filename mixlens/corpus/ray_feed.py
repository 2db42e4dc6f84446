"""Where windows wait on a Ray cluster, and the task that puts out a ticket for each. Both are sent to the cluster whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def feed_class() -> type:
    """The class is made here so that Ray sends it whole: the process it lives in need not load torch for it."""
    import asyncio

    class Feed:
        """Where windows wait to be taken. It holds no more than references, and is told all of them again if it dies."""

        def __init__(self) -> None:
            self.windows: dict[int, Any] = {}  # by ticket
            self.given, self.ended = 0, False
            self.workers: dict[Any, dict[str, Any]] = {}
            self.began = 0  # to load the model, since one last could
            self.loaded = 0  # how often one could
            self.changed = asyncio.Condition()

        async def put(self, windows: dict[int, Any], gone: list[int], given: int, ended: bool) -> None:
            """All tickets below `given` are out; those that are not held are done."""
            async with self.changed:
                self.windows |= windows
                for ticket in gone:
                    self.windows.pop(ticket, None)
                self.given, self.ended = max(given, self.given), ended or self.ended
                self.changed.notify_all()

        async def tickets(self, after: int) -> int:
            """How many there are, as soon as there are more, or will be no more."""
            async with self.changed:
                await self.changed.wait_for(lambda: self.given > after or self.ended)
                return self.given

        async def take(self, ticket: int, worker: dict[str, Any]) -> Any:
            self.workers[worker["actor"]._actor_id] = worker
            async with self.changed:
                await self.changed.wait_for(lambda: self.given > ticket or self.ended)
                return self.windows.get(ticket)

        async def begun(self, worker: dict[str, Any]) -> None:
            self.workers[worker["actor"]._actor_id] = worker
            self.began += 1

        async def ready(self) -> None:
            self.began = 0
            self.loaded += 1

        async def state(self) -> tuple[int, int, list[dict[str, Any]], int]:
            return self.given, self.began, [*self.workers.values()], self.loaded

    return Feed


def tickets_of(feed: Any) -> Callable[[Any], Iterator[dict[str, list[int]]]]:
    """A task that has no end: one row for each window, as they are handed in. Made here as `feed_class` is."""

    def tickets(_: Any) -> Iterator[dict[str, list[int]]]:
        import ray

        at = 0
        while True:
            try:
                given = ray.get(feed.tickets.remote(at), timeout=60)
            except ray.exceptions.GetTimeoutError:  # no new window for a minute
                continue
            if given <= at:
                return
            for ticket in range(at, given):
                yield {"ticket": [ticket]}
            at = given

    return tickets
