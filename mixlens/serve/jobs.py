"""One worker, a short queue, a few kept results: what is asked for is computed one after the other, or refused."""

from __future__ import annotations

import copy
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import errors
from ..errors import InputError, MixlensError
from ..model.model import Model
from ..report import gather
from ..show.page_entry import Entry, entry
from ..show.results_page import PAGE_ROOM

log = logging.getLogger("mixlens.serve")
PAGE = 2_000_000  # characters of one result


@dataclass(frozen=True)
class Limits(errors.Limits):
    """What one server does for whoever asks."""

    characters: int = 20_000
    methods: int = 8
    tokens: int = 512
    queue: int = 8
    seconds: float = 120.0
    kept: int = 16
    body: int = 100_000  # bytes of a request
    at_once: int = 64  # requests that are being answered
    arrival: float = 10.0  # seconds the head of a request may take to arrive, and its body
    connections: int = 512


class FullError(MixlensError):
    """The queue is full."""


class StoppedError(MixlensError):
    """A job was cancelled, or took too long."""


@dataclass
class Job:
    """One text and what is asked about it. Only the worker and its own lock change it."""

    id: str
    model: Model
    arguments: Mapping[str, Any]
    state: str = "waiting"  # then running; at last done, failed or cancelled
    error: str | None = None
    doing: str = "waiting"
    share: float = 0.0
    created: float = field(default_factory=time.monotonic)
    started: float | None = None
    ended: float | None = None
    entry: Entry | None = None
    stop: str | None = None  # why it is to be stopped
    notes: tuple[str, ...] = ()  # what is worth knowing about the text

    @property
    def seconds(self) -> float:
        begun = self.created if self.started is None else self.started
        return (time.monotonic() if self.ended is None else self.ended) - begun


SWITCHES = {"_set_grad_enabled", "set_grad_enabled"}  # must run whatever happens, so that gradients are as they were


class Stoppable(TorchFunctionMode):
    """Asks before every operation of torch in this thread whether to go on, and on the way back through a graph before every
    step of it, which no operation is called for. Says no once: what tidies up must run."""

    def __init__(self, reason: Callable[[], str | None]):
        super().__init__()
        self.reason, self.said = reason, False
        self.on_the_way_back = torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, self.unpacked)

    def __enter__(self) -> Stoppable:
        super().__enter__()
        self.on_the_way_back.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.on_the_way_back.__exit__()
        super().__exit__(*failure)

    def asked(self) -> None:
        if not self.said and (why := self.reason()) is not None:
            self.said = True
            raise StoppedError(why)

    def unpacked(self, saved: torch.Tensor) -> torch.Tensor:
        self.asked()
        return saved

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in SWITCHES:
            self.asked()
        return func(*args, **(kwargs or {}))


class Desk:
    """Takes jobs, has them done one by one by a thread of its own, and keeps the last results."""

    def __init__(self, models: Sequence[Model], limits: Limits):
        self.limits = limits
        self.models: dict[str, Model] = {}  # by the name that is shown
        names: set[str] = set()
        for model in models:
            if model.tokenizer is None:
                raise InputError(f"{model.name!r} has no tokenizer, so it cannot read what is typed.")
            if model.name in names:
                raise InputError(f"two models are called {model.name!r}. Serve one of them.")
            names.add(model.name)
            named = copy.copy(model)  # the same weights and the same lock
            named.name = _shown_name(model.name, self.models)
            self.models[named.name] = named
        if not self.models:
            raise InputError("no model to serve.")
        self._readers = {name: _reader(model) for name, model in self.models.items()}
        self._reading = threading.Lock()  # a tokenizer is not for two threads at once
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="mixlens-worker", daemon=True)
        self._thread.start()

    def tokens_at_most(self, model: Model) -> int:
        return min(self.limits.tokens, model.max_tokens or self.limits.tokens)

    def read(self, name: str, text: Any) -> int:
        """How many tokens a text has. It is refused here, before it waits, if it is empty or too long."""
        with self._reading:
            count = len(self._readers[name].encode(text).input_ids)
        most = self.tokens_at_most(self.models[name])  # the narrower of the two is told
        errors.tokens_within(count, most, repr(name) if most == self.models[name].max_tokens else "this page")
        return count

    def notes(self, name: str, text: Any) -> list[str]:
        """What is worth knowing about a text before its result: that nothing is predicted in it."""
        model = self.models[name]
        with self._reading:
            ids = self._readers[name].encode(text).input_ids
        mask = getattr(model.tokenizer, "mask_token_id", None)
        if model.task != "masked-lm" or mask is None or mask in ids:
            return []
        written = model.tokenizer.mask_token
        return [f"The text has no {written}, so no word of it is predicted. Write {written} in place of a word to see what for."]

    def full(self) -> bool:
        with self._changed:
            return len(self._waiting) >= self.limits.queue

    def submit(self, name: str, arguments: Mapping[str, Any], notes: Sequence[str] = ()) -> Job:
        job = Job(secrets.token_urlsafe(9), self.models[name], arguments, notes=tuple(notes))
        with self._changed:
            if len(self._waiting) >= self.limits.queue:
                raise FullError(f"the queue is full: {len(self._waiting)} texts are waiting. Try again in a few seconds.")
            self._waiting.append(job)
            self._jobs[job.id] = job
            ended = [one.id for one in self._jobs.values() if one.ended is not None]
            for old in ended[: max(0, len(ended) - self.limits.kept)]:
                del self._jobs[old]
            self._changed.notify_all()
        return job

    def job(self, number: str) -> Job | None:
        with self._changed:
            return self._jobs.get(number)

    def ahead(self, job: Job) -> int:
        """How many are before it, the running one included."""
        with self._changed:
            running = any(one.state == "running" for one in self._jobs.values())
            return int(running) + (self._waiting.index(job) if job in self._waiting else 0)

    def cancel(self, job: Job) -> None:
        """A waiting job is gone at once; a running one stops at its next operation."""
        with self._changed:
            job.stop = job.stop or "cancelled."
            if job in self._waiting:
                self._waiting.remove(job)
                self._end(job, "cancelled", "cancelled before it began.")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.stop = job.stop or "the server is closing."
            self._changed.notify_all()
        self._thread.join(timeout=10)

    def _end(self, job: Job, state: str, error: str | None) -> None:
        job.state, job.error, job.ended = state, error, time.monotonic()

    def _work(self) -> None:
        torch.set_grad_enabled(True)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.state, job.started = "running", time.monotonic()
            self._do(job)

    def _do(self, job: Job) -> None:
        def reason() -> str | None:
            if job.stop is None and job.seconds > self.limits.seconds:
                job.stop = (
                    f"stopped after {self.limits.seconds:g} seconds, the most one text may take. Shorten it, or ask for less."
                )
            return job.stop

        def note(doing: str, share: float) -> None:
            job.doing, job.share = doing, share
            why = reason()
            if why is not None and share < 1:
                raise StoppedError(why)

        state, error = "done", None
        try:
            with Stoppable(reason):
                results = gather(job.model, note=note, **job.arguments)
                job.entry = entry(results, room=PAGE - PAGE_ROOM)
        except StoppedError as stop:
            state, error = "cancelled" if str(stop) == "cancelled." else "failed", str(stop)
        except MixlensError as refusal:
            state, error = "failed", str(refusal)
        except MemoryError:  # numpy's; torch's is told by the methods
            state, error = "failed", "memory runs out with this text and these methods. Shorten it, or ask for less."
        except Exception as failure:  # one text that goes wrong must not end the server for the next one
            log.warning("a job failed: %s: %s", type(failure).__name__, failure)
            state, error = "failed", f"this went wrong inside ({type(failure).__name__}). The server goes on; try another text."
        torch.set_grad_enabled(True)
        with self._changed:
            self._end(job, state, error)


def _shown_name(name: str, taken: Container[str]) -> str:
    """Of a model in a folder the folder's own name: where it lies is nobody's business. A second one of that name is numbered."""
    short = Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name
    short = shown = short or name
    number = 1
    while shown in taken:
        number += 1
        shown = f"{short} ({number})"
    return shown


def _reader(model: Model) -> Model:
    """The model's way to read a text, with a tokenizer of its own: the worker's is in use."""
    reader = copy.copy(model)
    reader.tokenizer = copy.deepcopy(model.tokenizer)
    return reader
