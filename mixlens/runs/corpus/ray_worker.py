"""What an actor of the pool does on a Ray cluster, and how the files of a shard travel back."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...base import errors
from ...base.errors import InputError, MixlensError
from ...model.loading import load
from ...scoring.provenance import model_fingerprint, whereabouts
from .parquet import Row, arrow
from .plan import Plan
from .worker import BadRow, ShardFiles, Worker

FILES = ("content", "maps")  # the fields of ShardFiles that are bytes


class Remote:
    """An actor of the pool: a ticket in, a row with the files of a shard out. It remembers nothing between two tickets, so an
    actor that died is replaced by a new one."""

    def __init__(self, feed: Any, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str], run: str):
        import ray

        self.feed, self.run, self.get = feed, run, _waiting(ray)
        actor = ray.get_runtime_context().current_actor
        self.here = {"process": os.getpid(), "machine": platform.node(), "actor": actor}
        self.get(lambda: feed.begun.remote(self.here))
        self.worker = self._worker(model, options, plan, expected)
        self.get(feed.ready.remote)

    def _worker(self, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str]) -> Worker | MixlensError:
        """A worker, or the reason why there is none. The reason is raised when a window is asked for: Ray would start an actor
        that raises here again and again."""
        try:
            lens = load(model, **options)
            facts = {**whereabouts(lens), "model": model_fingerprint(lens), "device": lens.device.type}
            _refuse_other(facts, expected)
            return Worker(lens, plan)
        except MixlensError as error:
            return type(error)(f"{error} (on the Ray worker {self.here['machine']})")

    def __call__(self, tickets: Any) -> Any:
        return _table([self.row(ticket) for ticket in tickets["ticket"].to_pylist()])

    def row(self, ticket: int) -> Row:
        """The row for a ticket: the files of its shard, an error, or nothing where another actor has done the window."""
        held, started = self.get(lambda: self.feed.take.remote(ticket, self.here)), time.monotonic()
        if held is None:
            return {"ticket": ticket}
        try:
            files = self._files(held)
        except MixlensError as error:
            return {"ticket": ticket, "facts": json.dumps({"error": [type(error).__name__, str(error)]})}
        return {"ticket": ticket, "seconds": time.monotonic() - started, **_row_of(files)}

    def _files(self, held: tuple[Any]) -> ShardFiles:
        if isinstance(self.worker, MixlensError):
            raise self.worker
        number, rows = self.get(lambda: held[0])
        return self.worker.window(number, rows, self.run)


def _refuse_other(facts: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Refuse a model that differs from the run's."""
    for name, value in expected.items():
        if facts.get(name) != value:
            raise InputError(f"another {name} than the run's: {facts.get(name)}, not {value}")


def _waiting(ray: Any) -> Callable[[Callable[[], Any]], Any]:
    """`ray.get` that calls again every minute: a window may be long in coming, and a Feed that died is started again."""

    def get(call: Callable[[], Any]) -> Any:
        while True:
            try:
                return ray.get(call(), timeout=60)
            except ray.exceptions.GetTimeoutError:
                continue

    return get


# --- the way back -----------------------------------------------------------------------------------------------------


def _row_of(files: ShardFiles) -> Row:
    """The bytes of a shard's files as they are, and everything else as JSON."""
    facts = {name: value for name, value in vars(files).items() if name not in FILES}
    facts["bad"] = list(map(vars, files.bad))
    return {"facts": json.dumps(facts), **{name: getattr(files, name) for name in FILES}}


def _table(rows: list[Row]) -> Any:
    pa = arrow()
    kinds = {"ticket": pa.int64(), "seconds": pa.float64(), "facts": pa.string(), **dict.fromkeys(FILES, pa.large_binary())}
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def files_of(row: Row) -> ShardFiles:
    """The ShardFiles that a row carries; an error that came instead is raised, as the kind it was."""
    facts = json.loads(row["facts"])
    if "error" in facts:
        kind, message = facts["error"]
        raise getattr(errors, kind, MixlensError)(message)
    bad = tuple(BadRow(**row) for row in facts["bad"])
    return ShardFiles(**{**facts, "bad": bad}, **{name: row[name] for name in FILES})
