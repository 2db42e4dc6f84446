"""One worker, a short queue, a few kept results: what is asked for is computed one after the other, or refused."""

from __future__ import annotations

import copy
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..base import errors
from ..base.errors import InputError, MixlensError
from ..base.steps import Step, listening
from ..data.fit import truncated
from ..model.model import Model
from ..show.page_entry import Entry, entry
from ..show.report import METHODS, gather, steps_of
from ..show.results_page import page_room
from ..types import Example
from .work import Answered, answered

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
    connections: int = 512


class FullError(MixlensError):
    """The queue is full."""


@dataclass
class Job:
    """One text and what is asked about it. Only the worker and the desk change it."""

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
    question: str = "maps"  # one of work.QUESTIONS
    answer: Answered | None = None  # of every other question than maps
    steps: list[str] = field(default_factory=list)  # in words, as far as they are known
    begun: int = 0  # how many steps have begun
    within: str = ""  # how far the step is that runs: "64 of 500 texts"
    known: list[tuple[str, float]] = field(default_factory=list)  # what the model says, as soon as it is known

    @property
    def seconds(self) -> float:
        """How long it has run, or before that, how long it has waited."""
        begin = self.created if self.started is None else self.started
        end = time.monotonic() if self.ended is None else self.ended
        return end - begin

    def finish(self, state: str, error: str | None) -> None:
        self.state, self.error, self.ended = state, error, time.monotonic()


class StoppedError(MixlensError):
    """A job was cancelled, or took too long."""


class Watch:
    """Follows a job, and says why it is to be stopped: it was cancelled, or it takes longer than `seconds`."""

    def __init__(self, job: Job, seconds: float):
        self.job, self.seconds = job, seconds
        self.is_gathering = False  # then `gather` notes all there is

    def reason(self) -> str | None:
        """Why the job is to be stopped; None while it may go on."""
        if self.job.stop is None and self.job.seconds > self.seconds:
            self.job.stop = (
                f"stopped after {self.seconds:g} seconds, the most one text may take. Shorten it, or ask for less."
            )
        return self.job.stop

    def note(self, doing: str, share: float) -> None:
        """Writes down how far the job is, and stops it if it must not go on."""
        self.job.doing, self.job.share = doing, share
        reason = self.reason()
        if reason is not None and share < 1:
            raise StoppedError(reason)

    def plan(self, steps: Sequence[str]) -> None:
        """The steps that are to come."""
        self.job.steps, self.job.begun = list(steps), 0

    def next(self, text: str | None = None) -> None:
        """The next step begins; `text` says more of the first one."""
        if text is not None:
            self.job.steps[0] = text
        self.job.begun, self.job.within = self.job.begun + 1, ""
        self.note(self.job.steps[self.job.begun - 1], (self.job.begun - 1) / len(self.job.steps))

    def hear(self, step: Step) -> None:
        """How far the step is that runs. Its job may be stopped here, too."""
        if self.job.begun and not self.is_gathering:
            self.job.within = step.text
            self.note(self.job.doing, (self.job.begun - 1 + step.share) / len(self.job.steps))

    def gathered(self, doing: str, share: float) -> None:
        """What `gather` notes: the name of a step when it begins, then the name with how far the step is."""
        job, self.is_gathering = self.job, True
        if job.steps[job.begun : job.begun + 1] == [doing]:
            job.begun, job.within = job.begun + 1, ""
        elif job.begun and doing.startswith(f"{job.steps[job.begun - 1]}, "):
            job.within = doing.removeprefix(f"{job.steps[job.begun - 1]}, ")
        self.note(doing, share)

    def know(self, predictions: Sequence[tuple[str, float]]) -> None:
        self.job.known = list(predictions)


# Operations that restore the gradient mode: they run in a job that is stopped, too.
SWITCHES = {"_set_grad_enabled", "set_grad_enabled"}


class Stoppable(TorchFunctionMode):
    """Stops what this thread computes as soon as there is a reason. The reason is read before every operation of torch,
    and in a backward pass before every saved tensor, since a backward pass calls no operation. It is raised once, so
    that code that tidies up runs."""

    def __init__(self, reason: Callable[[], str | None]):
        super().__init__()
        self.reason, self.has_stopped = reason, False
        self.backward_hooks = torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, self.unpacked)

    def __enter__(self) -> Stoppable:
        super().__enter__()
        self.backward_hooks.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.backward_hooks.__exit__()
        super().__exit__(*failure)

    def check(self) -> None:
        """Stops what is being computed, once, if there is a reason."""
        if not self.has_stopped and (reason := self.reason()) is not None:
            self.has_stopped = True
            raise StoppedError(reason)

    def unpacked(self, saved: torch.Tensor) -> torch.Tensor:
        self.check()
        return saved

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in SWITCHES:
            self.check()
        return func(*args, **(kwargs or {}))


class Desk:
    """Takes jobs, has them done one by one by a thread of its own, and keeps the last results."""

    def __init__(self, models: Sequence[Model], limits: Limits):
        self.limits = limits
        self.models = _by_shown_name(models)
        self._readers = {name: _reader(model) for name, model in self.models.items()}
        self._reading = threading.Lock()  # a tokenizer is not for two threads at once
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._trials: deque[Job] = deque()  # examples that are timed while nobody waits
        self._trial: Job | None = None
        self.times: dict[tuple[str, str], tuple[float, int]] = {}  # (model, question): the last seconds, tokens
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="mixlens-worker", daemon=True)
        self._thread.start()

    def tokens_at_most(self, model: Model) -> int:
        return min(self.limits.tokens, model.max_tokens or self.limits.tokens)

    def read(self, name: str, text: Any) -> int:
        """How many tokens a text has. It is refused here, before it waits, if it is empty or too long."""
        length = self.count(name, text)
        most = self.tokens_at_most(self.models[name])  # the message names whichever allows less, the model or the page
        errors.tokens_within(length, most, repr(name) if most == self.models[name].max_tokens else "this page")
        return length

    def cut(self, name: str, text: Any) -> tuple[Any, str | None]:
        """The text cut to what is taken, and a line that says so; a text that fits as it is."""
        most = self.tokens_at_most(self.models[name])
        with self._reading:
            example = Example(*text) if isinstance(text, tuple) else Example(text)
            shorter = truncated(example, self._readers[name], most)
        if shorter is example:
            return text, None
        line = (
            f"The text has {shorter.info['truncated']} tokens; the first {most} are explained, the rest was not read."
        )
        return shorter.text if shorter.pair is None else (shorter.text, shorter.pair), line

    def notes(self, name: str, text: Any) -> list[str]:
        """What is worth knowing about a text before its result: that nothing is predicted in it."""
        model = self.models[name]
        mask = getattr(model.tokenizer, "mask_token_id", None)
        if model.task != "masked-lm" or mask is None or mask in self._ids(name, text):
            return []
        token = model.tokenizer.mask_token
        return [
            f"The text has no {token}, so no word of it is predicted. Write {token} in place of a word to see what for."
        ]

    def count(self, name: str, text: Any) -> int:
        """How many tokens a text has, however many."""
        return len(self._ids(name, text))

    def _ids(self, name: str, text: Any) -> Sequence[int]:
        with self._reading:
            return self._readers[name].encode(text).input_ids

    def full(self) -> bool:
        with self._changed:
            return len(self._waiting) >= self.limits.queue

    def measure(self, name: str, arguments: Mapping[str, Any], question: str) -> None:
        """Time a question on an example as soon as nobody waits. A text that comes meanwhile goes first."""
        with self._changed:
            self._trials.append(Job("", self.models[name], arguments, question=question))
            self._changed.notify_all()

    def behind(self, job: Job) -> int:
        """How many wait behind it."""
        with self._changed:
            return len(self._waiting) - (self._waiting.index(job) + 1 if job in self._waiting else 0)

    def submit(self, name: str, arguments: Mapping[str, Any], notes: Sequence[str] = (), question: str = "maps") -> Job:
        """A new job at the end of the queue; a full queue is refused."""
        job = Job(secrets.token_urlsafe(9), self.models[name], arguments, notes=tuple(notes), question=question)
        with self._changed:
            if len(self._waiting) >= self.limits.queue:
                raise FullError(
                    f"the queue is full: {len(self._waiting)} texts are waiting. Try again in a few seconds."
                )
            self._waiting.append(job)
            if self._trial is not None:
                self._trial.stop = "a text came first."
            self._jobs[job.id] = job
            self._forget_old()
            self._changed.notify_all()
        return job

    def _forget_old(self) -> None:
        """Of the jobs that have ended, the last ones are kept."""
        ended = [job.id for job in self._jobs.values() if job.ended is not None]
        for number in ended[: max(0, len(ended) - self.limits.kept)]:
            del self._jobs[number]

    def job(self, number: str) -> Job | None:
        with self._changed:
            return self._jobs.get(number)

    def ahead(self, job: Job) -> int:
        """How many are before it, the running one included."""
        with self._changed:
            running = any(other.state == "running" for other in self._jobs.values())
            return int(running) + (self._waiting.index(job) if job in self._waiting else 0)

    def cancel(self, job: Job) -> None:
        """A waiting job is gone at once; a running one stops at its next operation."""
        with self._changed:
            job.stop = job.stop or "cancelled."
            if job in self._waiting:
                self._waiting.remove(job)
                job.finish("cancelled", "cancelled before it began.")

    def close(self) -> None:
        """Stops all jobs and ends the thread."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.stop = job.stop or "the server is closing."
            if self._trial is not None:
                self._trial.stop = "the server is closing."
            self._changed.notify_all()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        """What the thread does: one job after the other, until the desk is closed."""
        torch.set_grad_enabled(True)
        while (job := self._next_job()) is not None:
            state, error = self._outcome(job)
            torch.set_grad_enabled(True)
            with self._changed:
                job.finish(state, error)
                self._time(job)

    def _next_job(self) -> Job | None:
        """The job that has waited longest, as soon as there is one; None when the desk is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._trials or self._closed)
            if self._closed:
                return None
            job = self._waiting.popleft() if self._waiting else self._trials.popleft()
            self._trial = job if job.id == "" else None
            job.state, job.started = "running", time.monotonic()
            return job

    def _outcome(self, job: Job) -> tuple[str, str | None]:
        """Does a job. Gives the state it ends in, and the error if it failed."""
        watch = Watch(job, self.limits.seconds)
        try:
            with Stoppable(watch.reason), listening(watch.hear):
                if job.question == "maps":
                    watch.plan(steps_of(job.arguments.get("methods", METHODS)))
                    results = gather(job.model, note=watch.gathered, **job.arguments)
                    job.entry = entry(results, room=PAGE - page_room())
                else:
                    arguments = {**job.arguments, "question": job.question}
                    job.answer = answered(job.model, job.question, arguments, watch)
        except Exception as failure:  # one text that goes wrong must not end the server for the next one
            return _failed(failure)
        return "done", None

    def _time(self, job: Job) -> None:
        """Remember how long an answer took; an example that was put off is timed later."""
        if job.state == "done" and job.question != "maps":
            self.times[job.model.name, job.question] = job.seconds, job.arguments["tokens"]
        if job is self._trial and job.stop == "a text came first.":
            self._trials.append(Job("", job.model, job.arguments, question=job.question))
        self._trial = None


def _failed(failure: Exception) -> tuple[str, str]:
    """The state and the error of a job that ended in this failure."""
    if isinstance(failure, StoppedError):
        return "cancelled" if str(failure) == "cancelled." else "failed", str(failure)
    if isinstance(failure, MixlensError):
        return "failed", str(failure)
    if isinstance(failure, MemoryError):  # of numpy; methods refuse what is too much for torch
        return "failed", "memory runs out with this text and these methods. Shorten it, or ask for less."
    log.warning("a job failed: %s: %s", type(failure).__name__, failure)
    return "failed", f"this went wrong inside ({type(failure).__name__}). The server goes on; try another text."


# --- models -----------------------------------------------------------------------------------------------------------


def _by_shown_name(models: Sequence[Model]) -> dict[str, Model]:
    """The models by the names that are shown: of a folder its own name, as its path is not shown to visitors; a second
    one of that name is numbered. Models that cannot be served are refused."""
    if not models:
        raise InputError("no model to serve.")
    shown: dict[str, Model] = {}
    for number, model in enumerate(models):
        if model.tokenizer is None:
            raise InputError(f"{model.name!r} has no tokenizer, so it cannot read what is typed.")
        if model.name in [other.name for other in models[:number]]:
            raise InputError(f"two models are called {model.name!r}. Serve one of them.")
        path = Path(model.name)
        short = (path.name if path.is_absolute() or path.is_dir() else "") or model.name
        named = copy.copy(model)  # the same weights and the same lock
        named.name = next(one for one in chain([short], (f"{short} ({k})" for k in count(2))) if one not in shown)
        shown[named.name] = named
    return shown


def _reader(model: Model) -> Model:
    """A copy of the model with another tokenizer, which reads texts while the worker uses the first one."""
    reader = copy.copy(model)
    reader.tokenizer = copy.deepcopy(model.tokenizer)
    return reader
