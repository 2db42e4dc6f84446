"""Where windows wait on a Ray cluster, and the task that puts out a ticket for each. Both are sent to the cluster whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def feed_class() -> type:
    """The class is defined in a function so that Ray sends its code: the process it runs in need not import torch for it."""
    import asyncio

    class Feed:
        """Where windows wait to be taken. It holds references to windows, and gets all of them again if it dies."""

        def __init__(self) -> None:
            self.windows: dict[int, Any] = {}  # by ticket
            self.count, self.ended = 0, False
            self.workers: dict[Any, dict[str, Any]] = {}
            self.began = 0  # workers that began to load the model since one last succeeded
            self.loaded = 0  # how often a worker loaded the model
            self.changed = asyncio.Condition()

        async def put(self, windows: dict[int, Any], gone: list[int], count: int, ended: bool) -> None:
            """All tickets below `count` are out; those that are not held are done."""
            async with self.changed:
                self.windows |= windows
                for ticket in gone:
                    self.windows.pop(ticket, None)
                self.count, self.ended = max(count, self.count), ended or self.ended
                self.changed.notify_all()

        async def tickets(self, after: int) -> int:
            """How many tickets there are, as soon as there are more than `after`, or there will be no more."""
            async with self.changed:
                await self.changed.wait_for(lambda: self.count > after or self.ended)
                return self.count

        async def take(self, ticket: int, worker: dict[str, Any]) -> Any:
            self.workers[worker["actor"]._actor_id] = worker
            async with self.changed:
                await self.changed.wait_for(lambda: self.count > ticket or self.ended)
                return self.windows.get(ticket)

        async def begun(self, worker: dict[str, Any]) -> None:
            self.workers[worker["actor"]._actor_id] = worker
            self.began += 1

        async def ready(self) -> None:
            self.began = 0
            self.loaded += 1

        async def state(self) -> tuple[int, int, list[dict[str, Any]], int]:
            return self.count, self.began, [*self.workers.values()], self.loaded

    return Feed


def tickets_of(feed: Any) -> Callable[[Any], Iterator[dict[str, list[int]]]]:
    """A task that puts out one row for each window as it is handed in, and ends with the Feed. Defined as `feed_class` is."""

    def tickets(_: Any) -> Iterator[dict[str, list[int]]]:
        import ray

        first = 0
        while True:
            try:
                count = ray.get(feed.tickets.remote(first), timeout=60)
            except ray.exceptions.GetTimeoutError:  # no new window for a minute
                continue
            if count <= first:
                return
            yield from ({"ticket": [ticket]} for ticket in range(first, count))
            first = count

    return tickets
