"""The connection to Ray: the cluster that is found or started, its settings while a run lasts, and what it would print."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import InputError

# What a cluster on this machine alone is started with: it listens on the loopback address, and its workers have the priority
# of this process. Ray's default is niceness 15, with which workers starve where others compute. It sends no usage statistics.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
# What the environment of this process has during a run: Ray Data would start a thread that asks localhost:9090 for its own
# statistics until the process ends.
DURING = {"RAY_DATA_USAGE_DISABLED": "1"}
# What Ray Data is set to during a run: every ticket goes on at once, no bars, and no limit to the time of a window.
CONTEXT = {"target_max_block_size": 1, "enable_progress_bars": False, "execution_no_progress_timeout_s": -1}


# --- the cluster ------------------------------------------------------------------------------------------------------


def connect(ray: Any, address: str) -> None:
    """Make this process a part of a cluster: the one at `address`; with "auto" the one that RAY_ADDRESS or this machine knows
    of, else a new one on this machine."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named.startswith("ray://"):
        raise InputError(
            "ray:// is for processes outside of the cluster, and this one has to be a part of it: run the command on a "
            "machine of the cluster (or as a Ray job), with --ray auto or HOST:PORT."
        )
    try:
        where, start = _cluster(ray, address, named)
        with quiet_backend(), start:
            ray.init(**where, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"cannot reach a Ray cluster at {address!r}: {reason}") from None


def _cluster(ray: Any, address: str, named: str) -> tuple[dict[str, str], contextlib.AbstractContextManager[None]]:
    """The arguments of `ray.init`, and the context it is called in."""
    if not named and not _has_cluster():
        return {"address": "local"}, this_machine_alone(ray)
    if not listens(named):
        raise ConnectionError("nobody answers there")
    return {} if address == "auto" else {"address": address}, contextlib.nullcontext()


def _has_cluster() -> bool:
    """Whether `ray start` noted a cluster on this machine that answers: one that was killed leaves its note behind."""
    address = noted_address()
    return bool(address) and listens(address)


def noted_address() -> str:
    """The address that `ray start` noted on this machine, if it did."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def listens(address: str) -> bool:
    """Whether a process listens at HOST:PORT; an address of another form is left to Ray. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError):
        return False
    return True


class _Core:
    """Ray's core in the worker of this process, until its end begins: from then on it is gone."""

    def __init__(self, core: Any):
        self.core = core

    def shutdown_driver(self) -> None:
        vars(self).pop("core").shutdown_driver()

    def __getattr__(self, name: str) -> Any:
        if "core" not in vars(self):
            raise AttributeError(f"Ray has ended: {name}")  # what Ray's own destructors expect then
        return getattr(self.core, name)


def disconnect(ray: Any) -> None:
    """End the connection, and the cluster if it was started here. Ray's core ends the whole process, with exit code 1 and not
    a word, when a thread (of Ray Data, which lets go of its objects) asks it for anything while it ends: no thread reaches it."""
    worker = ray._private.worker.global_worker
    if hasattr(worker, "core_worker"):
        worker.core_worker = _Core(worker.core_worker)
    ray.shutdown()


@contextlib.contextmanager
def quiet_backend() -> Iterator[None]:
    """Ray's C++ side writes nothing to the terminal: it would warn on every run of how Ray Data starts actors, and say that it
    was silenced."""
    name = "RAY_BACKEND_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.environ[name] = "fatal"
        os.dup2(nowhere, 2)
        yield
    finally:
        os.environ.pop(name, None)
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


@contextlib.contextmanager
def this_machine_alone(ray: Any) -> Iterator[None]:
    """The settings ALONE while a cluster is started. Those that the user set stay as they are."""
    constants = ray._private.ray_constants  # read from the first of these names when Ray was imported
    before = constants.ENABLE_RAY_CLUSTER
    with _environment(ALONE) as added:
        constants.ENABLE_RAY_CLUSTER = before and "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in added
        try:
            yield
        finally:
            constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[list[str]]:
    """Environment variables that the user did not set, set for a while. Gives their names."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield added
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C is ignored, where this is the thread that gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- settings while a run lasts ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def settings(ray: Any) -> Iterator[deque[str]]:
    """Ray Data set to CONTEXT and silent, and no cluster but this. The last lines that Ray would have printed of workers that
    died are collected."""
    warnings.filterwarnings("ignore", "The minimum number of concurrent actors")  # fewer shards than workers is no fault
    with (
        _environment(DURING),
        _one_cluster(ray._private.auto_init_hook),
        _context(ray.data.DataContext.get_current()),
        _silent_terminal(),
        _collected(ray._private.worker) as lines,
    ):
        yield lines


class _ForOthers:
    """A setting of Ray's for all threads but those that were begun since, and when that time is over for all but those of them
    that go on. It is read as true or false."""

    def __init__(self, before: Any):
        self.before, self.earlier = before, weakref.WeakSet(threading.enumerate())
        self.left: weakref.WeakSet[threading.Thread] | None = None

    def end(self) -> bool:
        """The time is over; whether any thread goes on."""
        self.left = weakref.WeakSet(thread for thread in threading.enumerate() if thread not in self.earlier)
        return bool(self.left)

    def __bool__(self) -> bool:
        thread = threading.current_thread()
        return bool(self.before) and (thread in self.earlier if self.left is None else thread not in self.left)


@contextlib.contextmanager
def _one_cluster(hook: Any) -> Iterator[None]:
    """Ray's functions start a cluster where there is none. A thread that was begun meanwhile, by Ray Data, and goes on after
    the end of this cluster would start another: it may not."""
    before = hook.enable_auto_connect
    hook.enable_auto_connect = allowed = _ForOthers(before)
    try:
        yield
    finally:
        if not allowed.end():
            hook.enable_auto_connect = before


@contextlib.contextmanager
def _context(context: Any) -> Iterator[None]:
    before = {name: getattr(context, name) for name in CONTEXT if hasattr(context, name)}
    try:
        _set(context, {name: CONTEXT[name] for name in before})
        yield
    finally:
        _set(context, before)


def _set(target: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(target, name, value)


@contextlib.contextmanager
def _silent_terminal() -> Iterator[None]:
    """Ray Data logs nothing to the terminal. What goes wrong is raised, and is in Ray's own log file."""
    handlers = [handler for handler in logging.getLogger("ray.data").handlers if handler.get_name() == "console"]
    try:
        for handler in handlers:
            handler.addFilter(_drop)
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False


@contextlib.contextmanager
def _collected(worker: Any) -> Iterator[deque[str]]:
    """The last 20 lines that Ray's driver would print for its workers."""
    lines: deque[str] = deque(maxlen=20)
    before = worker.print_to_stdstream

    def collect(data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        lines.extend(map(str, data.get("lines", ())))

    try:
        worker.print_to_stdstream = collect
        yield lines
    finally:
        worker.print_to_stdstream = before
