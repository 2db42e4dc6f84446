"""The same run on Ray Data: a pool of actors with a model each computes the windows, this process alone reads and writes.

Ray Data reads its input on the workers, or must know all of it beforehand; here one process reads it row by row, and it may
have no end. So tickets go through Ray Data, one for each window: numbers that a task puts out as fast as windows are handed
in at the Feed, where the actor that got the ticket takes the window. A ticket can be done again, on any machine, and means the
same window, so the retries of Ray Data lose nothing. What comes back for a window that is done already is dropped.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ...base.errors import InputError, MixlensError
from ...base.optional import optional
from .parquet import Row
from .plan import Plan, is_count
from .ray_feed import feed_class, tickets_of
from .ray_session import connect, disconnect, settings, uninterrupted
from .ray_tickets import Tickets
from .ray_watch import Patience, Watch, WorkerCounts
from .ray_worker import Remote, files_of
from .rows import Window
from .worker import ShardFiles

AHEAD = 2  # windows that wait for each actor, so that no actor waits for a window
PATIENCE = 30.0  # seconds without any window done (or four times what one took) before windows get second tickets
NO_PLACE = 60.0  # seconds without a worker before a warning says so
CRASHES = 3  # workers in a row that may die, beside one for each place, before one has loaded the model
ANSWER = 10.0  # seconds that Ray has for an answer
CLOSING = 5.0  # seconds that the pipeline has to end by itself where others use the cluster too
SILENCE = 180.0  # seconds without any answer of the Feed before the run ends
Workers = int | tuple[int, int] | None


class FeedState(NamedTuple):
    """What the Feed says of itself and of the workers."""

    tickets: int  # that it knows of
    began: int  # workers that began to load the model since one last succeeded
    workers: list[dict[str, Any]]
    loaded: int  # how often a worker loaded the model


class Pool:
    """Actors on a Ray cluster: one for each GPU, or for each CPU where there are none; or as many as asked for."""

    def __init__(self, address: str, model: Any, options: Mapping[str, Any], plan: Plan, workers: Workers):
        sizes = _sizes(workers)
        self.ray = optional("ray", "ray", "ray", what="runs on a cluster")
        optional("ray.data", "ray[data]", "ray", what="runs on a cluster")
        self.model, self.options, self.plan = os.fspath(model), dict(options), plan
        self.is_connected_here = not self.ray.is_initialized()
        if self.is_connected_here:
            connect(self.ray, address)
        gpus, cpus = _resources(self.ray, options)
        self.gpus = min(gpus, 1)
        self.device = "cuda" if gpus else "cpu"
        self.size = sizes or (gpus or max(1, cpus),) * 2
        self.feed: Any = None
        self.pump: threading.Thread | None = None
        self.settings = contextlib.ExitStack()
        self.printed: deque[str] = deque()  # what Ray would have printed of workers that died
        self.watch: Watch | None = None
        self.loaded = 0  # how often a worker loaded the model, as the Feed last said
        self.answered = time.monotonic()

    def _begin(self, expected: Mapping[str, str], run: str) -> queue.Queue[Any]:
        """Start the pipeline. What comes out of it arrives in the queue: a row, an exception, or None at its end."""
        ray = self.ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 1000}
        self.feed = ray.remote(feed_class()).options(**lasting, scheduling_strategy=here).remote()
        arguments = (self.feed, self.model, self.options, self.plan, dict(expected), run)
        least, most = self.size
        self.printed = self.settings.enter_context(settings(ray))
        self.watch, self.answered = Watch(ray._private.state.actors, self.feed._actor_id.hex()), time.monotonic()
        tickets = ray.data.from_items([0]).map_batches(tickets_of(self.feed), batch_size=1, num_cpus=0)
        done = tickets.map_batches(
            Remote,
            batch_size=1,
            batch_format="pyarrow",
            fn_constructor_args=arguments,
            compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most, max_tasks_in_flight_per_actor=AHEAD),
            num_cpus=1,
            num_gpus=self.gpus or None,
        )
        arrivals: queue.Queue[Any] = queue.Queue()
        self.pump = threading.Thread(target=_pump, args=(done, arrivals), daemon=True)
        self.pump.start()
        return arrivals

    def processes(self) -> list[int]:
        """The process ids of the workers that said they began."""
        state = FeedState(*self.ray.get(self.feed.state.remote(), timeout=60))
        return [worker["process"] for worker in state.workers]

    # - the loop

    def shards(
        self, missing: Iterable[Window], run: str, expected: Mapping[str, str], tick: Callable[[int], Any]
    ) -> Iterator[ShardFiles]:
        """Shards as they are done, in any order. Few windows are held at a time."""
        arrivals = self._begin(expected, run)
        tickets, windows = Tickets(self.ray, self.feed), iter(missing)
        wait = _Wait(self, tickets)
        while tickets.fill(windows, AHEAD * self.size[1] + 1):
            try:
                row = arrivals.get(timeout=1.0)
            except queue.Empty:
                wait.look()
                continue
            files = self._files(row, tickets)
            if files is not None:
                wait.done(row["seconds"])
                tick(files.rows + len(files.bad))
                yield files

    def _files(self, row: Row | BaseException | None, tickets: Tickets) -> ShardFiles | None:
        """The files that a row carries; None where its window came back before. The end of the pipeline is an error."""
        if row is None or isinstance(row, BaseException):
            raise _failure(row)
        if row["facts"] is None:  # its window was done already; if not, a Feed that died had forgotten it
            tickets.repeat(row["ticket"])
            return None
        return files_of(row) if tickets.take(row["ticket"]) else None

    # - the workers, from outside

    def look_after(self, tickets: Tickets, *, worked: bool) -> tuple[bool, WorkerCounts]:
        """Whether a worker has begun, and what is seen from outside. Workers that die again and again end the run."""
        assert self.watch is not None
        state = self._state(tickets)
        seen = self.watch.look(worked=worked or state.loaded > self.loaded)
        self.loaded = state.loaded
        self._refuse_deaths(state, seen)
        self._refuse_feed(seen)
        return bool(state.workers), seen

    def _state(self, tickets: Tickets) -> FeedState:
        """What the Feed says; nothing new where it did not answer in time, or is being started again."""
        state = FeedState(tickets.count, 0, [], self.loaded)
        with contextlib.suppress(self.ray.exceptions.RayError):
            state = FeedState(*self.ray.get(self.feed.state.remote(), timeout=ANSWER))
            self.answered = time.monotonic()
            if state.tickets < tickets.count:  # it died, and was started again empty
                tickets.tell(tickets.held)
        return state

    def _most_deaths(self) -> int:
        return self.size[1] + CRASHES

    def _refuse_deaths(self, state: FeedState, seen: WorkerCounts) -> None:
        if state.began > self._most_deaths():
            machines = ", ".join(sorted({worker["machine"] for worker in state.workers}))
            raise MixlensError(
                f"the Ray workers die while they load {self.model!r} ({machines}): {state.began} began and none came through. "
                f"Too little memory for it, most often: give fewer workers, or machines with more.{self._reason()}"
            )
        if seen.deaths > self._most_deaths():
            raise MixlensError(
                f"the Ray workers die before they can load {self.model!r}: {seen.deaths} died and none came through. Somebody "
                f"ends them, or memory is short: give fewer workers, or machines with more.{self._reason()}"
            )

    def _refuse_feed(self, seen: WorkerCounts) -> None:
        silent = time.monotonic() - self.answered
        dies = seen.feed_deaths > self._most_deaths()
        if dies or silent > SILENCE:
            how = f"died {seen.feed_deaths} times" if dies else f"has not answered for {silent:.0f} seconds"
            raise MixlensError(
                f"the Ray actor that hands out the work {how}. Somebody ends it, or memory is short on this machine."
                f"{self._reason()} What is done is safe: the same command goes on."
            )

    def _reason(self) -> str:
        """What Ray said of the last worker that died."""
        return f" Ray says: {' '.join(self.printed[-1].split())[:300]}" if self.printed else ""

    def not_begun(self, seen: WorkerCounts) -> str:
        """Why no worker has begun, as far as it is seen."""
        if seen.deaths:
            return f"no Ray worker has begun yet: {seen.deaths} were started and died.{self._reason()}"
        if seen.started:
            return (
                f"no Ray worker has begun yet, though {seen.started} were started: their machines are busy. Ray gives workers a "
                "low priority (niceness 15); where the cluster is started, RAY_worker_niceness=0 changes that."
            )
        needs = f"each worker needs a CPU{' and a GPU' if self.gpus else ''}"
        return f"no Ray worker has found a place yet: {needs}, and others may hold them."

    # - the end

    def close(self) -> None:
        """Leave nothing of the run on the cluster, however it ended. A second Ctrl-C does not keep it from that."""
        with uninterrupted():
            if self.feed is not None and self.pump is not None:
                self._close_feed(self.pump)
            if self.is_connected_here:
                disconnect(self.ray)
            self.settings.close()

    def _close_feed(self, pump: threading.Thread) -> None:
        gone = contextlib.suppress(self.ray.exceptions.RayError)  # the Feed died, or does not answer: the rest is closed
        with gone:
            self.ray.get(self.feed.put.remote({}, [], 0, True), timeout=5)
        pump.join(0 if self.is_connected_here else CLOSING)
        if pump.is_alive():  # a worker still computes, or is started again and again
            self._kill_workers()
            pump.join(20)  # a request of the pump after the end of Ray would start another cluster
        with gone:
            self.ray.kill(self.feed)

    def _kill_workers(self) -> None:
        """Kill workers by their ids, as `ray.kill` does by handles: a worker that never began has no handle here."""
        workers = self.watch.alive() if self.watch is not None else []
        for name in workers:
            with contextlib.suppress(self.ray.exceptions.RayError, ValueError):  # it ended in the meantime
                self.ray._private.worker.global_worker.core_worker.kill_actor(self.ray.ActorID(bytes.fromhex(name)), True)


class _Wait:
    """What is done while no window comes back: look after the workers, warn once, give windows second tickets."""

    def __init__(self, pool: Pool, tickets: Tickets):
        self.pool, self.tickets, self.patience = pool, tickets, Patience(PATIENCE)
        self.started, self.worked, self.warned = time.monotonic(), False, False

    def done(self, seconds: float) -> None:
        """A window came back that took so long."""
        self.patience.done(seconds)
        self.worked = True

    def look(self) -> None:
        begun, seen = self.pool.look_after(self.tickets, worked=self.worked)
        self.worked = False
        if not begun:
            self._warn(seen)
        if self.patience.is_over():
            self.tickets.repeat_all()  # to compute a window twice does no harm

    def _warn(self, seen: WorkerCounts) -> None:
        if not self.warned and time.monotonic() - self.started > NO_PLACE:
            self.warned = True
            warnings.warn(self.pool.not_begun(seen), stacklevel=4)


def _sizes(workers: Any) -> tuple[int, int] | None:
    """The least and the most workers; None: as many as there are places."""
    if workers is None:
        return None
    pair = tuple(workers) if isinstance(workers, tuple | list) else (workers, workers)
    if len(pair) != 2 or not _is_range(*pair):
        raise InputError(f"workers= must be at least 1, or the least and the most of them, not {workers!r}.")
    return pair


def _is_range(least: Any, most: Any) -> bool:
    return is_count(least) and is_count(most) and least <= most


def _resources(ray: Any, options: Mapping[str, Any]) -> tuple[int, int]:
    """How many GPUs and CPUs the cluster has; no GPU where the model is to run on CPUs."""
    resources = ray.cluster_resources()
    on_cpu = str(options.get("device") or "").startswith("cpu")
    return 0 if on_cpu else int(resources.get("GPU", 0)), int(resources.get("CPU", 1))


def _pump(done: Any, arrivals: queue.Queue[Any]) -> None:
    """Move rows from Ray Data to the queue; at the end None, or the exception that ended it."""
    try:
        for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for row in batch.to_pylist():
                arrivals.put(row)
        arrivals.put(None)
    except BaseException as error:
        arrivals.put(error)


def _failure(error: BaseException | None) -> MixlensError:
    """What ended the pipeline, as an error of mixlens; its own error, where it raised one."""
    refusal = _refusal_in(error)
    if refusal is not None:
        return refusal
    reason = "it ended before its time" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
    failure = MixlensError(f"Ray gave up ({reason}). What is done is safe: the same command goes on.")
    failure.__cause__ = error
    return failure


def _refusal_in(error: BaseException | None) -> MixlensError | None:
    """The error of mixlens among the causes of an error of Ray."""
    cause = getattr(error, "cause", None) or error
    while cause is not None and not isinstance(cause, MixlensError):
        cause = cause.__cause__
    return cause
