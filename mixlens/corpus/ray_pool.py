"""The same run on Ray Data: a pool of actors with a model each does the windows' work, this process alone reads and writes.

Ray Data knows its input beforehand, or reads it on the workers; here it is read row by row by one process, and may have no
end. So what goes through Ray Data are tickets, one for each window: numbers that a task puts out as fast as windows are
handed in at the Feed, where the actor that got the ticket takes the window. A ticket can be done again, anywhere, and means
the same window, so Ray Data's own retries lose nothing. What comes back for a window that is done already is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .. import errors
from ..errors import InputError, MixlensError
from ..model.loading import load
from ..model.model import Model
from ..optional import optional
from ..provenance import model_fingerprint, whereabouts
from .parquet import arrow
from .plan import Plan
from .ray_feed import feed_class, tickets_of
from .ray_session import listens, noted, quiet_backend, settings, this_machine_alone, uninterrupted
from .ray_watch import Patience, Seen, Watch
from .rows import Given, RowError
from .worker import BadRow, ShardFiles, Worker

AHEAD = 2  # windows that wait for each actor, so that none of them does
PATIENCE = 30.0  # seconds without any window done (or four times what one took) before what is out is given out again
FILES = ("content", "maps")  # of ShardFiles
NO_PLACE = 60.0  # seconds without a worker before that is said
CRASHES = 3  # workers in a row that may die, beside one for each place, before one has loaded the model
ANSWER = 10.0  # seconds that Ray has for an answer
SILENCE = 180.0  # seconds without any answer of the Feed before the run ends
Window = tuple[int, list[Given | RowError]]
Workers = int | tuple[int, int] | None
Row = dict[str, Any]


# --- on the cluster ---------------------------------------------------------------------------------------------------


class Remote:
    """What an actor of the pool does with a ticket. It remembers nothing, so one that died is simply made again."""

    def __init__(self, feed: Any, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str], run: str):
        import ray

        self.feed, self.run, self.get = feed, run, _waiting(ray)
        actor = ray.get_runtime_context().current_actor
        self.here = {"process": os.getpid(), "machine": platform.node(), "actor": actor}
        self.get(lambda: feed.begun.remote(self.here))
        self.worker: Worker | MixlensError
        try:
            lens = load(model, **options)
            facts = {**whereabouts(lens), "model": model_fingerprint(lens), "device": lens.device.type}
            for what in expected:
                if facts.get(what) != expected[what]:
                    raise InputError(f"another {what} than the run's: {facts.get(what)}, not {expected[what]}")
            self.worker = Worker(lens, plan)
        except MixlensError as error:  # told when asked: an actor that cannot be made would be made again and again
            self.worker = type(error)(f"{error} (on the Ray worker {self.here['machine']})")
        self.get(feed.ready.remote)

    def __call__(self, tickets: Any) -> Any:
        return _table([self.row(ticket) for ticket in tickets["ticket"].to_pylist()])

    def row(self, ticket: int) -> Row:
        held, started = self.get(lambda: self.feed.take.remote(ticket, self.here)), time.monotonic()
        if held is None:  # done in the meantime
            return {"ticket": ticket}
        try:
            if isinstance(self.worker, MixlensError):
                raise self.worker
            number, rows = self.get(lambda: held[0])
            files = self.worker.window(number, rows, self.run)
        except MixlensError as error:
            return {"ticket": ticket, "told": json.dumps({"error": [type(error).__name__, str(error)]})}
        facts = {name: value for name, value in vars(files).items() if name not in FILES}
        facts["bad"] = [vars(one) for one in files.bad]
        took = time.monotonic() - started
        return {"ticket": ticket, "seconds": took, "told": json.dumps(facts), **{name: getattr(files, name) for name in FILES}}


def _waiting(ray: Any) -> Callable[[Callable[[], Any]], Any]:
    """`ray.get` on the cluster, asked anew every minute: a window may be long in coming, and a Feed that died is made again."""

    def get(call: Callable[[], Any]) -> Any:
        while True:
            try:
                return ray.get(call(), timeout=60)
            except ray.exceptions.GetTimeoutError:
                continue

    return get


def _table(rows: list[Row]) -> Any:
    """ShardFiles as Ray Data can carry them: bytes, and JSON."""
    pa = arrow()
    kinds = {"ticket": pa.int64(), "seconds": pa.float64(), "told": pa.string(), **dict.fromkeys(FILES, pa.large_binary())}
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def _files_of(row: Row) -> ShardFiles:
    """The ShardFiles that a row carries; an error that came instead is raised, as the kind it was."""
    facts = json.loads(row["told"])
    if "error" in facts:
        kind, message = facts["error"]
        raise getattr(errors, kind, MixlensError)(message)
    bad = tuple(BadRow(**one) for one in facts["bad"])
    return ShardFiles(**{**facts, "bad": bad}, **{name: row[name] for name in FILES})


# --- here -------------------------------------------------------------------------------------------------------------


class Pool:
    """Actors on a Ray cluster: one for each GPU, or for each CPU where there are none; or as many as asked for."""

    def __init__(self, address: str, model: Any, options: Mapping[str, Any], plan: Plan, workers: Workers):
        if isinstance(model, Model):
            raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
        self.asked = _sizes(workers)
        self.ray = optional("ray", "ray", "ray", what="runs on a cluster")
        optional("ray.data", "ray[data]", "ray", what="runs on a cluster")
        self.model, self.options, self.plan = os.fspath(model), dict(options), plan
        self.own = not self.ray.is_initialized()
        if self.own:
            self._connect(address)
        there = self.ray.cluster_resources()
        on_cpu = str(options.get("device") or "").startswith("cpu")
        gpus, cpus = 0 if on_cpu else int(there.get("GPU", 0)), int(there.get("CPU", 1))
        self.gpus = 1 if gpus else 0
        self.device = "cuda" if gpus else "cpu"
        self.size = self.asked or (gpus or max(1, cpus),) * 2
        self.feed: Any = None
        self.pump: threading.Thread | None = None
        self.settings = contextlib.ExitStack()
        self.printed: deque[str] = deque()  # by Ray, of workers that died
        self.watch: Watch | None = None
        self.loaded = 0  # workers, as the Feed last told
        self.answered = time.monotonic()

    def _connect(self, address: str) -> None:
        # "auto": the cluster that RAY_ADDRESS or this machine knows of, else one on this machine
        named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
        where = {} if address == "auto" else {"address": address}
        if named.startswith("ray://"):
            raise InputError(
                "ray:// is for processes outside of the cluster, and this one has to be a part of it: run the command on a "
                "machine of the cluster (or as a Ray job), with --ray auto or HOST:PORT."
            )
        try:
            started: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            there = noted()
            if not named and (not there or not listens(there)):  # none, or one that was killed and left its note behind
                where, started = {"address": "local"}, this_machine_alone(self.ray)
            elif not listens(named):
                raise ConnectionError("nobody answers there")
            with quiet_backend(), started:
                self.ray.init(**where, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"cannot reach a Ray cluster at {address!r}: {reason}") from None

    def _begin(self, expected: Mapping[str, str], run: str) -> queue.Queue[Any]:
        """The pipeline, begun; what comes out of it arrives in the queue: a row, an exception, or None at its end."""
        ray = self.ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        kept = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 1000}
        self.feed = ray.remote(feed_class()).options(**kept, scheduling_strategy=here).remote()
        asked = (self.feed, self.model, self.options, self.plan, dict(expected), run)
        least, most = self.size
        self.printed = self.settings.enter_context(settings(ray))
        self.watch, self.answered = Watch(ray._private.state.actors, self.feed._actor_id.hex()), time.monotonic()
        tickets = ray.data.from_items([0]).map_batches(tickets_of(self.feed), batch_size=1, num_cpus=0)
        done = tickets.map_batches(
            Remote,
            batch_size=1,
            batch_format="pyarrow",
            fn_constructor_args=asked,
            compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most, max_tasks_in_flight_per_actor=AHEAD),
            num_cpus=1,
            num_gpus=self.gpus or None,
        )
        found: queue.Queue[Any] = queue.Queue()
        self.pump = threading.Thread(target=_pump, args=(done, found), daemon=True)
        self.pump.start()
        return found

    def processes(self) -> list[int]:
        """Of the workers that began, as far as they told."""
        return [one["process"] for one in self.ray.get(self.feed.state.remote(), timeout=60)[2]]

    def made(
        self, missing: Iterable[Window], run: str, expected: Mapping[str, str], tick: Callable[[int], Any]
    ) -> Iterator[ShardFiles]:
        """Shards as they are done, in any order. Few windows are held at a time."""
        found = self._begin(expected, run)
        out, began, warned = _Out(self.ray, self.feed), time.monotonic(), False
        windows, limit = iter(missing), AHEAD * self.size[1] + 1
        patience, worked = Patience(PATIENCE), False
        while not out.ended or out.held:
            while not out.ended and len(out.held) < limit:
                out.give(next(windows, None))
            if not out.held:
                break
            try:
                row = found.get(timeout=1.0)
            except queue.Empty:
                begun, seen = self._look_after(out, worked=worked)
                worked = False
                if not begun and not warned and time.monotonic() - began > NO_PLACE:
                    warned = True
                    warnings.warn(self._not_begun(seen), stacklevel=2)
                if patience.is_over():
                    out.again()  # to do them twice does no harm
                continue
            if row is None or isinstance(row, BaseException):
                raise self._said(row)
            if row["told"] is None:  # its window was done already; if not, a Feed that died had forgotten it
                out.again(row["ticket"])
                continue
            if not out.take(row["ticket"]):  # done before, by another
                continue
            files = _files_of(row)
            patience.done(row["seconds"])
            worked = True
            tick(files.rows + len(files.bad))
            yield files

    def _look_after(self, out: _Out, *, worked: bool) -> tuple[bool, Seen]:
        """Whether a worker has begun, and what is seen from outside. Workers that die again and again end the run."""
        assert self.watch is not None
        began, workers, loaded = 0, [], self.loaded
        with contextlib.suppress(self.ray.exceptions.RayError):  # it did not answer in time, or is being made again
            given, began, workers, loaded = self.ray.get(self.feed.state.remote(), timeout=ANSWER)
            self.answered = time.monotonic()
            if given < out.given:  # it died, and was made again empty
                out.tell(out.held)
        seen = self.watch.look(worked=worked or loaded > self.loaded)
        self.loaded = loaded
        most = self.size[1] + CRASHES
        if began > most:
            where = ", ".join(sorted({one["machine"] for one in workers}))
            raise MixlensError(
                f"the Ray workers die while they load {self.model!r} ({where}): {began} began and none came through. "
                f"Too little memory for it, most often: give fewer workers, or machines with more.{self._reason()}"
            )
        if seen.deaths > most:
            raise MixlensError(
                f"the Ray workers die before they can load {self.model!r}: {seen.deaths} died and none came through. Somebody "
                f"ends them, or memory is short: give fewer workers, or machines with more.{self._reason()}"
            )
        silent = time.monotonic() - self.answered
        if seen.feed_deaths > most or silent > SILENCE:
            how = f"died {seen.feed_deaths} times" if seen.feed_deaths > most else f"has not answered for {silent:.0f} seconds"
            raise MixlensError(
                f"the Ray actor that hands out the work {how}. Somebody ends it, or memory is short on this machine."
                f"{self._reason()} What is done is safe: the same command goes on."
            )
        return bool(workers), seen

    def _reason(self) -> str:
        """What Ray said of the last worker that died."""
        return f" Ray says: {' '.join(self.printed[-1].split())[:300]}" if self.printed else ""

    def _not_begun(self, seen: Seen) -> str:
        if seen.deaths:
            return f"no Ray worker has begun yet: {seen.deaths} were started and died.{self._reason()}"
        if seen.started:
            return (
                f"no Ray worker has begun yet, though {seen.started} were started: their machines are busy. Ray gives workers a "
                "low priority (niceness 15); where the cluster is started, RAY_worker_niceness=0 changes that."
            )
        needs = f"each worker needs a CPU{' and a GPU' if self.gpus else ''}"
        return f"no Ray worker has found a place yet: {needs}, and others may hold them."

    def _said(self, error: BaseException | None) -> MixlensError:
        cause = getattr(error, "cause", None) or error
        while cause is not None and not isinstance(cause, MixlensError):
            cause = cause.__cause__
        if cause is not None:
            return cause
        reason = "it ended before its time" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
        made = MixlensError(f"Ray gave up ({reason}). What is done is safe: the same command goes on.")
        made.__cause__ = error
        return made

    def close(self) -> None:
        """Whatever happened: nothing of it stays on the cluster. Who is stopped twice over still closes first."""
        ray = self.ray
        with uninterrupted():
            if self.feed is not None and self.pump is not None:
                gone = contextlib.suppress(ray.exceptions.RayError)  # the Feed died, or does not answer: the rest is tidied
                with gone:
                    ray.get(self.feed.put.remote({}, [], 0, True), timeout=5)
                self.pump.join(0 if self.own else 5)
                if self.pump.is_alive():  # a worker is at something still, or is made again and again
                    self._kill_workers()
                    self.pump.join(20)  # what it asked of Ray after its end would start another
                with gone:
                    ray.kill(self.feed)
            if self.own:
                ray.shutdown()
            self.settings.close()

    def _kill_workers(self) -> None:
        """As `ray.kill` does, by their ids: one that never began is known by nothing else."""
        for name in self.watch.alive() if self.watch is not None else ():
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):  # gone in the meantime
                self.ray._private.worker.global_worker.core_worker.kill_actor(self.ray.ActorID(bytes.fromhex(name)), True)


class _Out:
    """The windows that are out, by ticket. One window may be out twice."""

    def __init__(self, ray: Any, feed: Any):
        self.ray, self.feed = ray, feed
        self.held: dict[int, tuple[Any]] = {}  # in a tuple, so that Ray hands on the reference and not the window
        self.given, self.ended = 0, False

    def give(self, window: Window | None) -> None:
        """One more; None: there are no more."""
        self.ended = window is None
        if window is not None:
            self._add((self.ray.put(window),))

    def again(self, ticket: int | None = None) -> None:
        """Everything that is out (or the window of one ticket, if it is), by new tickets. The old ones stay good."""
        wanted = self.held if ticket is None else {ticket: self.held[ticket]} if ticket in self.held else {}
        for held in {id(held): held for held in wanted.values()}.values():
            self._add(held)

    def _add(self, held: tuple[Any]) -> None:
        self.held[self.given] = held
        self.given += 1
        self.tell({self.given - 1: held})

    def take(self, ticket: int) -> bool:
        """A ticket came back, and its window is out no more. False: it was out no more before."""
        held = self.held.get(ticket)
        gone = [one for one, other in self.held.items() if other is held]
        for one in gone:
            del self.held[one]
        self.tell({}, gone)
        return held is not None

    def tell(self, windows: Mapping[int, Any], gone: Iterable[int] = ()) -> None:
        self.feed.put.remote(dict(windows), list(gone), self.given, False)


def _sizes(workers: Any) -> tuple[int, int] | None:
    if workers is None:
        return None
    pair = tuple(workers) if isinstance(workers, tuple | list) else (workers, workers)
    whole = len(pair) == 2 and all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
    if not whole or not 1 <= pair[0] <= pair[1]:
        raise InputError(f"workers must be at least 1, or (least, most), not {workers!r}.")
    return pair


def _pump(done: Any, found: queue.Queue[Any]) -> None:
    try:
        for some in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for row in some.to_pylist():
                found.put(row)
        found.put(None)
    except BaseException as error:
        found.put(error)
