"""The same run on a Ray cluster: actors with a model each compute windows; this process alone reads, gives out and
writes.

Few windows are out at a time, so memory does not grow with the corpus. A window gives the same bytes whoever does it,
and however often. So a worker that dies is replaced, and what it held is given out again.
"""

from __future__ import annotations

import contextlib
import os
import platform
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any

from ...base.errors import InputError, MixlensError
from ...base.optional import optional
from ...model.loading import load
from ...scoring.provenance import model_fingerprint, whereabouts
from .plan import Plan, is_count
from .ray_connect import connect, silent, uninterrupted
from .rows import Window
from .worker import ShardFiles, Worker

AHEAD = 2  # windows that each worker holds, so that none waits for the next one
CRASHES = 3  # workers that may die, beside one for each place, since a window last came back
PATIENCE = 30.0  # seconds without an answer (or four times the longest pause) before windows are given out again
NO_PLACE = 60.0  # seconds without a worker before a warning says so


class Remote:
    """A worker on the cluster: a window in, the files of a shard out. It remembers nothing between two windows."""

    def __init__(self, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str], run: str):
        self.run = run
        self.worker: Worker | MixlensError = self._worker(model, options, plan, expected)

    def _worker(
        self, model: str, options: Mapping[str, Any], plan: Plan, expected: Mapping[str, str]
    ) -> Worker | MixlensError:
        """A worker, or why there is none: to Ray an actor that raises here is one that died."""
        try:
            lens = load(model, **options)
            facts = {**whereabouts(lens), "model": model_fingerprint(lens), "device": lens.device.type}
            for name, value in expected.items():
                if facts.get(name) != value:
                    raise InputError(f"another {name} than the run's: {facts.get(name)}, not {value}")
            return Worker(lens, plan)
        except MixlensError as error:
            return type(error)(f"{error} (on the Ray worker {platform.node()})")

    def process(self) -> int:
        return os.getpid()

    def window(self, window: Window) -> ShardFiles | MixlensError:
        try:
            if isinstance(self.worker, MixlensError):
                raise self.worker
            return self.worker.window(*window, self.run)
        except MixlensError as error:  # an answer: whatever is raised to Ray loses its type
            return error


class Pool:
    """Actors on a Ray cluster: one for each GPU, or for each CPU where there are none; or as many as asked for."""

    def __init__(self, address: str, model: Any, options: Mapping[str, Any], plan: Plan, workers: int | None):
        if workers is not None and not is_count(workers):
            raise InputError(f"workers= must be at least 1, not {workers!r}.")
        self.ray = optional("ray", "ray", "ray", what="runs on a cluster")
        self.model, self.options, self.plan = os.fspath(model), dict(options), plan
        self.is_connected_here = not self.ray.is_initialized()
        if self.is_connected_here:
            connect(self.ray, address)
        resources = self.ray.cluster_resources()
        gpus = 0 if str(options.get("device") or "").startswith("cpu") else int(resources.get("GPU", 0))
        self.device, self.needs = ("cuda" if gpus else "cpu"), {"num_cpus": 1, "num_gpus": min(gpus, 1)}
        places = gpus or max(1, int(resources.get("CPU", 1)))
        self.size = workers or places
        self.actors: dict[Any, int] = {}  # worker -> its process; 0 until it has loaded the model
        # answer that is awaited -> its worker, and its window (None: it begins)
        self.out: dict[Any, tuple[Any, Any]] = {}
        self.silence = contextlib.ExitStack()
        self.open: set[Any] = set()  # windows that have not come back
        self.deaths = 0  # of workers, since a window last came back

    def shards(
        self, missing: Iterable[Window], run: str, expected: Mapping[str, str], tick: Callable[[int], Any]
    ) -> Iterator[ShardFiles]:
        """Shards as they are done, in any order."""
        self.silence.enter_context(silent(self.ray))
        make = self.ray.remote(max_restarts=0, **self.needs)(Remote).remote
        arguments = (self.model, self.options, self.plan, dict(expected), run)
        windows = map(self.ray.put, missing)  # Ray holds a window once, for as long as it is out
        waiting = deque(islice(windows, 1))  # windows to give out: the next one, and those of workers that died
        self.open.update(waiting)
        began = last = monotonic()
        longest, warned = 0.0, False
        while self.open:
            while len(self.actors) < self.size:
                actor = make(*arguments)
                self.actors[actor] = 0
                self.out[actor.process.remote()] = actor, None
            ready, _ = self.ray.wait(list(self.out), timeout=1.0)
            pause = monotonic() - last
            if ready:
                last, longest = monotonic(), max(longest, pause)
            elif pause > max(PATIENCE, 4 * longest):  # a worker stands still: to compute a window twice does no harm
                waiting.extend(self.open.difference(waiting))
                last = monotonic()
            for answer in ready:
                files = self._answer(answer, waiting)
                if files is not None:
                    tick(files.rows + len(files.bad))
                    yield files
            self._give(waiting, windows)
            if not warned and not any(self.actors.values()) and monotonic() - began > NO_PLACE:
                warned = True
                warnings.warn(
                    f"no Ray worker has begun yet: each needs {self.needs}, and others may hold them.", stacklevel=3
                )

    def _give(self, waiting: deque[Any], windows: Iterator[Any]) -> None:
        """Give each worker windows until it holds AHEAD."""
        for actor in [actor for actor, process in self.actors.items() if process]:
            held = sum(worker is actor for worker, _ in self.out.values())
            for _ in range(held, AHEAD):
                if not waiting:
                    waiting.extend(islice(windows, 1))
                    self.open.update(waiting)
                window = waiting.popleft() if waiting else None
                if window in self.open:
                    self.out[actor.window.remote(window)] = actor, window

    def _answer(self, answer: Any, waiting: deque[Any]) -> ShardFiles | None:
        """The files that a worker sent. A worker that died is let go: what it held waits again. Too many deaths end
        the run."""
        actor, window = self.out.pop(answer)
        try:
            said = self.ray.get(answer)
        except self.ray.exceptions.RayError as error:
            waiting.extend([window] if window else [])
            self._let_go(actor, error)
            return None
        if isinstance(said, MixlensError):
            raise said
        if window is None:
            self.actors[actor] = said
            return None
        self.deaths = 0
        if window not in self.open:  # it came back before
            return None
        self.open.remove(window)
        return said

    def _let_go(self, actor: Any, error: Exception) -> None:
        if self.actors.pop(actor, None) is None:  # it was let go with another window
            return
        self.ray.kill(actor)  # it may live, where its machine was out of reach for a while
        self.deaths += 1
        if self.deaths > self.size + CRASHES:
            raise MixlensError(
                f"the Ray workers die: {self.deaths} did since a shard last came back. Too little memory for "
                f"{self.model!r}, most often: give fewer workers, or machines with more. Ray says: "
                f"{' '.join(str(error).split())[:300]} What is done is safe: the same command goes on."
            )

    def processes(self) -> list[int]:
        """The process ids of the workers that have loaded the model."""
        return [process for process in self.actors.values() if process]

    def close(self) -> None:
        """Leave nothing of the run on the cluster, however it ended. A second Ctrl-C does not keep it from that."""
        with uninterrupted():
            for actor in self.actors:
                self.ray.kill(actor)
            self.actors, self.out = {}, {}
            if self.is_connected_here:
                self.ray.shutdown()
            self.silence.close()
