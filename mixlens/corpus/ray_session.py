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
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def noted() -> str:
    """The address that `ray start` noted on this machine, if it did."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def listens(address: str) -> bool:
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
def quiet_backend() -> Iterator[None]:
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
def this_machine_alone(ray: Any) -> Iterator[None]:
    """How a cluster of our own is started: it listens on the loopback address, and its workers have the priority of this
    process (Ray's own are at niceness 15 and starve where others compute). What the user set stands."""
    wanted = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    constants = ray._private.ray_constants  # read from the first of these names when Ray was imported
    before = constants.ENABLE_RAY_CLUSTER
    os.environ.update(added)
    constants.ENABLE_RAY_CLUSTER = before and "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in added
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
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
def settings(ray: Any) -> Iterator[deque[str]]:
    """Of Ray Data, while a run lasts: every ticket goes on at once, a window takes its time, the terminal is ours. What Ray
    would have printed of workers that died is kept instead, the last few lines of it."""
    said: deque[str] = deque(maxlen=20)
    inside = ray._private.worker
    printed = inside.print_to_stdstream
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
        inside.print_to_stdstream = lambda data, *_, **__: said.extend(str(line) for line in data.get("lines", ()))
        yield said
    finally:
        inside.print_to_stdstream = printed
        for name, value in before.items():
            setattr(context, name, value)
        for handler in terminal:
            handler.removeFilter(_silent)


def _silent(record: logging.LogRecord) -> bool:
    """What goes wrong is raised, and Ray's own log file has it too."""
    return False
