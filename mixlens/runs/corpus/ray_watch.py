"""The workers of a run on Ray, seen from outside: whether they live, and how long to wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

WORKER = "MapWorker"  # what Ray Data calls an actor of a pool
Table = Callable[[], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class WorkerCounts:
    """What Ray's table of actors says of the run's workers."""

    started: int  # workers that have or had a process
    deaths: int  # of workers, since one of them last worked
    feed_deaths: int  # of the actor that hands out windows, since a worker last worked


class Watch:
    """Counts deaths in Ray's table of actors: a worker that dies before its first line runs cannot report it."""

    def __init__(self, table: Table, feed: str):
        self.table, self.feed = table, feed
        self.before = set(table())  # actors of other programs, or of an earlier run
        self.counted = self.feed_counted = 0

    def _workers(self, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        return {name: row for name, row in rows.items() if name not in self.before and WORKER in row["ActorClassName"]}

    def alive(self) -> list[str]:
        """The ids of workers that live, or that Ray would start again."""
        return [name for name, row in self._workers(self.table()).items() if row["State"] != "DEAD"]

    def look(self, *, worked: bool) -> WorkerCounts:
        """`worked`: a worker has loaded its model, or a window came back, since the last look."""
        rows = self.table()
        workers = [*self._workers(rows).values()]
        deaths, feed_deaths = _deaths(workers), _deaths([rows[self.feed]] if self.feed in rows else [])
        if worked:
            self.counted, self.feed_counted = deaths, feed_deaths
        return WorkerCounts(sum(bool(row["Pid"]) for row in workers), deaths - self.counted, feed_deaths - self.feed_counted)


def _deaths(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(row["NumRestarts"]) for row in rows)


class Patience:
    """When windows that are out get second tickets: after `least` seconds without any window done, or four times what the
    longest took, and twice as long each time. Their machine may be gone, and their worker find no place elsewhere."""

    def __init__(self, least: float, clock: Callable[[], float] = time.monotonic):
        self.least, self.clock = least, clock
        self.last, self.longest, self.times = clock(), 0.0, 1.0

    def done(self, seconds: float) -> None:
        """A window came back that took so long."""
        self.last, self.longest, self.times = self.clock(), max(self.longest, seconds), 1.0

    def is_over(self) -> bool:
        """Whether the time is over; if it is, twice that time begins."""
        if self.clock() - self.last <= self.times * max(self.least, 4 * self.longest):
            return False
        self.last, self.times = self.clock(), 2 * self.times
        return True
