"""The same run on Ray Data: a pool of actors with a model each does the windows' work, this process alone reads and writes.

Ray Data knows its input beforehand, or reads it on the workers; here it is read row by row by one process, and may have no
end. So what goes through Ray Data are tickets, one for each window: numbers that a task puts out as fast as windows are
handed in at the Feed, where the actor that got the ticket takes the window. A ticket can be done again, anywhere, and means
the same window, so Ray Data's own retries lose nothing. What comes back for a window that is done already is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import queue
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import errors
from ..disk import optional
from ..errors import InputError, MixlensError
from ..experiments.core import model_fingerprint, whereabouts
from ..model import Model, load
from .inputs import Given, RowError
from .work import Bad, Made, Plan, Worker, arrow

AHEAD = 2  # windows that wait for each actor, so that none of them does
PATIENCE = 30.0  # seconds without any window done (or four times what one took) before what is out is given out again
FILES = ("content", "maps")  # of a Made
NO_PLACE = 60.0  # seconds without a worker before that is said
CRASHES = 3  # workers in a row that may die while they load the model
Window = tuple[int, list[Given | RowError]]
Workers = int | tuple[int, int] | None
Row = dict[str, Any]


# --- on the cluster ---------------------------------------------------------------------------------------------------


class Remote:
    """What an actor of the pool does with a ticket. It remembers nothing, so one that died is simply made again."""

    def __init__(self, feed: Any, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str], run: str):
        import ray

        self.feed, self.run, self.get = feed, run, ray.get
        actor = ray.get_runtime_context().current_actor
        self.here = {"process": os.getpid(), "machine": platform.node(), "actor": actor}
        ray.get(feed.begun.remote(self.here))
        self.worker: Worker | MixlensError
        try:
            made = load(model, **options)
            found = {**whereabouts(made), "model": model_fingerprint(made), "device": made.device.type}
            for what in expected:
                if found.get(what) != expected[what]:
                    raise InputError(f"another {what} than the run's: {found.get(what)}, not {expected[what]}")
            self.worker = Worker(made, plan)
        except MixlensError as error:  # told when asked: an actor that cannot be made would be made again and again
            self.worker = type(error)(f"{error} (on the Ray worker {self.here['machine']})")
        ray.get(feed.ready.remote())

    def __call__(self, tickets: Any) -> Any:
        return _table([self.row(ticket) for ticket in tickets["ticket"].to_pylist()])

    def row(self, ticket: int) -> Row:
        held, started = self.get(self.feed.take.remote(ticket, self.here)), time.monotonic()
        if held is None:  # done in the meantime
            return {"ticket": ticket}
        try:
            if isinstance(self.worker, MixlensError):
                raise self.worker
            number, rows = self.get(held[0])
            made = self.worker.window(number, rows, self.run)
        except MixlensError as error:
            return {"ticket": ticket, "told": json.dumps({"error": [type(error).__name__, str(error)]})}
        told = {name: value for name, value in vars(made).items() if name not in FILES}
        told["bad"] = [vars(one) for one in made.bad]
        took = time.monotonic() - started
        return {"ticket": ticket, "seconds": took, "told": json.dumps(told), **{name: getattr(made, name) for name in FILES}}


def _table(rows: list[Row]) -> Any:
    """A Made as Ray Data can carry it: bytes, and JSON."""
    pa = arrow()
    kinds = {"ticket": pa.int64(), "seconds": pa.float64(), "told": pa.string(), **dict.fromkeys(FILES, pa.large_binary())}
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def _made(row: Row) -> Made:
    """A Made again; or the error that came instead is raised, as what it was."""
    told = json.loads(row["told"])
    if "error" in told:
        kind, said = told["error"]
        raise getattr(errors, kind, MixlensError)(said)
    return Made(**{**told, "bad": tuple(Bad(**one) for one in told["bad"])}, **{name: row[name] for name in FILES})


def _feed() -> type:
    """The class is made here so that Ray sends it whole: the process it lives in need not load torch for it."""
    import asyncio

    class Feed:
        """Where windows wait to be taken. It holds no more than references, and is told all of them again if it dies."""

        def __init__(self) -> None:
            self.windows: dict[int, Any] = {}  # by ticket
            self.given, self.ended = 0, False
            self.workers: dict[Any, dict[str, Any]] = {}
            self.began = 0  # to load the model, since one last could
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

        async def state(self) -> tuple[int, int, list[dict[str, Any]]]:
            return self.given, self.began, [*self.workers.values()]

    return Feed


def _tickets(feed: Any) -> Callable[[Any], Iterator[dict[str, list[int]]]]:
    """A task that has no end: one row for each window, as they are handed in. Made here as `_feed` is."""

    def tickets(_: Any) -> Iterator[dict[str, list[int]]]:
        import ray

        at = 0
        while (given := ray.get(feed.tickets.remote(at))) > at:
            for ticket in range(at, given):
                yield {"ticket": [ticket]}
            at = given

    return tickets


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
            if not named and not _listens(_noted()):  # a cluster that was killed left its note behind
                where = {"address": "local"}
            elif not _listens(named):
                raise ConnectionError("nobody answers there")
            with _quiet_backend():
                self.ray.init(**where, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"cannot reach a Ray cluster at {address!r}: {reason}") from None

    def _begin(self, expected: Mapping[str, str], run: str) -> queue.Queue[Any]:
        """The pipeline, begun; what comes out of it arrives in the queue: a row, an exception, or None at its end."""
        ray = self.ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        kept = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 1000}
        self.feed = ray.remote(_feed()).options(**kept, scheduling_strategy=here).remote()
        asked = (self.feed, self.model, self.options, self.plan, dict(expected), run)
        least, most = self.size
        self.settings.enter_context(_settings(ray))
        tickets = ray.data.from_items([0]).map_batches(_tickets(self.feed), batch_size=1, num_cpus=0)
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
        return [one["process"] for one in self.ray.get(self.feed.state.remote())[2]]

    def made(self, wanted: Iterable[Window], run: str, expected: Mapping[str, str], tick: Callable[[int], Any]) -> Iterator[Made]:
        """Shards as they are done, in any order. Few windows are held at a time."""
        found = self._begin(expected, run)
        out, began, warned = _Out(self.ray, self.feed), time.monotonic(), False
        windows, limit = iter(wanted), AHEAD * self.size[1] + 1
        last, longest, patience = time.monotonic(), 0.0, 1.0
        while not out.ended or out.held:
            while not out.ended and len(out.held) < limit:
                out.give(next(windows, None))
            if not out.held:
                break
            try:
                row = found.get(timeout=1.0)
            except queue.Empty:
                if not self._look_after(out) and not warned and time.monotonic() - began > NO_PLACE:
                    warned = True
                    needs = f"each worker needs a CPU{' and a GPU' if self.gpus else ''}"
                    warnings.warn(f"no Ray worker has found a place yet: {needs}, and others may hold them.", stacklevel=2)
                if time.monotonic() - last > patience * max(PATIENCE, 4 * longest):
                    # On a machine that is gone, perhaps, whose worker finds no place elsewhere. To do them twice does no harm.
                    out.again()
                    last, patience = time.monotonic(), 2 * patience
                continue
            if row is None or isinstance(row, BaseException):
                raise self._said(row)
            if row["told"] is None:  # its window was done already; if not, a Feed that died had forgotten it
                out.again(row["ticket"])
                continue
            if not out.take(row["ticket"]):  # done before, by another
                continue
            made = _made(row)
            last, longest, patience = time.monotonic(), max(longest, row["seconds"]), 1.0
            tick(made.rows + len(made.bad))
            yield made

    def _look_after(self, out: _Out) -> bool:
        """Whether a worker has begun."""
        given, began, workers = self.ray.get(self.feed.state.remote())
        if given < out.given:  # it died, and was made again empty
            out.tell(out.held)
        if began > self.size[1] + CRASHES:
            where = ", ".join(sorted({one["machine"] for one in workers}))
            raise MixlensError(
                f"the Ray workers die while they load {self.model!r} ({where}): {began} began and none came through. "
                "Too little memory for it, most often: give fewer workers, or machines with more."
            )
        return bool(workers)

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
        with _uninterrupted():
            if self.feed is not None and self.pump is not None:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.get(self.feed.put.remote({}, [], 0, True), timeout=5)
                    self.pump.join(0 if self.own else 5)
                    if self.pump.is_alive():  # a worker is at something still
                        for one in ray.get(self.feed.state.remote(), timeout=5)[2]:
                            ray.kill(one["actor"])
                        self.pump.join(20)  # what it asked of Ray after its end would start another
                    ray.kill(self.feed)
            if self.own:
                ray.shutdown()
            self.settings.close()


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


def _noted() -> str:
    """The address that `ray start` noted on this machine, if it did."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _listens(address: str) -> bool:
    """Whether somebody does at HOST:PORT (anything else is Ray's to judge). Ray itself would go on asking for many minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def _quiet_backend() -> Iterator[None]:
    """Ray's C++ side would warn, on every run, of how Ray Data starts actors. That it was silenced it would also say."""
    name = "RAY_BACKEND_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.environ[name] = "fatal"
        os.dup2(nowhere, 2)
        yield
    finally:
        os.environ.pop(name, None)
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits, where this is the thread that gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _settings(ray: Any) -> Iterator[None]:
    """Of Ray Data, while a run lasts: every ticket goes on at once, a window takes its time, the terminal is ours."""
    context = ray.data.DataContext.get_current()
    wanted = {"target_max_block_size": 1, "enable_progress_bars": False, "execution_no_progress_timeout_s": -1}
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    terminal = [handler for handler in logging.getLogger("ray.data").handlers if handler.get_name() == "console"]
    warnings.filterwarnings("ignore", "The minimum number of concurrent actors")  # fewer shards than workers is no fault
    try:
        for name in before:
            setattr(context, name, wanted[name])
        for handler in terminal:
            handler.addFilter(_silent)
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        for handler in terminal:
            handler.removeFilter(_silent)


def _silent(record: logging.LogRecord) -> bool:
    """What goes wrong is raised, and Ray's own log file has it too."""
    return False


def _pump(done: Any, found: queue.Queue[Any]) -> None:
    try:
        for some in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for row in some.to_pylist():
                found.put(row)
        found.put(None)
    except BaseException as error:
        found.put(error)
