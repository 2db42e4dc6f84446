"""The same run on Ray: actors with a model each do the shards' work, this process alone writes. Nothing else differs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..disk import optional
from ..errors import InputError, MixlensError
from ..experiments.core import model_fingerprint, whereabouts
from ..model import Model, load
from .inputs import Given, RowError
from .work import Made, Plan, Worker

AHEAD = 2  # shards that wait for each actor, so that none of them does
Window = tuple[int, list[Given | RowError]]


class Remote:
    """What lives in an actor: a model of its own. It remembers nothing, so one that died is simply made again."""

    def __init__(self, model: str, options: Mapping[str, Any], plan: Plan):
        self.worker = Worker(load(model, **options), plan)

    def facts(self) -> dict[str, Any]:
        made = self.worker.model
        return {"model": model_fingerprint(made), **whereabouts(made)}

    def process(self) -> int:
        return os.getpid()

    def window(self, number: int, rows: list[Given | RowError], run: str) -> Made:
        return self.worker.window(number, rows, run)


class Pool:
    """Actors on a Ray cluster: one for each GPU, or for each CPU where there are none (or as many as asked for)."""

    def __init__(self, address: str, model: Any, options: Mapping[str, Any], plan: Plan, workers: int | None):
        if isinstance(model, Model):
            raise InputError("every Ray worker loads the model itself: give its name or its folder, not a loaded one.")
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise InputError(f"workers must be at least 1, not {workers!r}.")
        self.ray = optional("ray", "ray", "ray", what="runs on a cluster")
        self.own = not self.ray.is_initialized()
        if self.own:
            self._connect(address)
        there = self.ray.cluster_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
        # A worker that dies is made again, and what it was at is done again: windows give the same bytes every time.
        needs = {"num_cpus": 1, "num_gpus": 1 if gpus else 0, "max_restarts": -1, "max_task_retries": -1}
        made = self.ray.remote(Remote).options(**needs)
        self.actors = [made.remote(os.fspath(model), dict(options), plan) for _ in range(workers or gpus or max(1, cpus))]

    def _connect(self, address: str) -> None:
        common = {"log_to_driver": False, "logging_level": "error"}
        try:
            if address == "auto":
                self.ray.init(**common)  # the cluster that RAY_ADDRESS or this machine knows of, else one on this machine
            else:
                self.ray.init(address=address, **common)
        except (ConnectionError, OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"cannot reach a Ray cluster at {address!r}: {reason}") from None

    def facts(self) -> dict[str, Any]:
        """Of the first actor that is up."""
        return dict(self._result(self.actors[0].facts.remote()))

    def processes(self) -> list[int]:
        return [self._result(actor.process.remote()) for actor in self.actors]

    def made(self, wanted: Iterable[Window], run: str, tick: Callable[[int], Any]) -> Iterator[Made]:
        """Shards as they are done, in any order. Few windows are held at a time."""
        waiting: dict[Any, Any] = {}  # what was asked for -> the actor
        load_of = dict.fromkeys(self.actors, 0)
        windows = iter(wanted)
        more = True
        while more or waiting:
            while more and len(waiting) < AHEAD * len(self.actors):
                given = next(windows, None)
                if given is None:
                    more = False
                    break
                actor = min(self.actors, key=load_of.__getitem__)
                waiting[actor.window.remote(*given, run)] = actor
                load_of[actor] += 1
            if not waiting:
                return
            (done,), _ = self.ray.wait(list(waiting), num_returns=1)
            load_of[waiting.pop(done)] -= 1
            found: Made = self._result(done)
            tick(found.rows + len(found.bad))
            yield found

    def _result(self, asked: Any) -> Any:
        try:
            return self.ray.get(asked)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, MixlensError):
                raise error.cause from None
            raise
        except self.ray.exceptions.RayError as error:
            raise MixlensError(f"Ray gave up: {' '.join(str(error).split())[:300]}") from error

    def close(self) -> None:
        for actor in self.actors:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.kill(actor)
        if self.own:
            self.ray.shutdown()
