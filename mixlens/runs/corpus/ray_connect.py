"""The connection of a corpus run to Ray: the cluster that is found, or one on this machine alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...base.errors import InputError

# A cluster on this machine alone listens on the loopback address, its workers have the priority of this process (Ray's
# own niceness of 15 starves them where others compute), and no usage statistics are sent.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def connect(ray: Any, address: str) -> None:
    """Make this process a part of the cluster at `address`; "auto": the one that RAY_ADDRESS or this machine knows of,
    else a new one on this machine."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named.startswith("ray://"):
        raise InputError(
            "ray:// is for processes outside of the cluster, and this one has to be a part of it: run the command on a "
            "machine of the cluster (or as a Ray job), with --ray auto or HOST:PORT."
        )
    try:
        with quiet_backend():
            if not named and not listens(noted_address()):
                with alone(ray):
                    ray.init(address="local", log_to_driver=False, logging_level="error")
                return
            if named and not listens(named):
                raise ConnectionError("nobody answers there")
            ray.init(address=None if address == "auto" else address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"cannot reach a Ray cluster at {address!r}: {reason}") from None


def noted_address() -> str:
    """The address that `ray start` noted on this machine; a cluster that was killed leaves its note behind."""
    try:
        return (Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def listens(address: str) -> bool:
    """Whether a process listens at HOST:PORT; another form is left to Ray. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not address or not port.isdecimal():
        return bool(address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def alone(ray: Any) -> Iterator[None]:
    """The settings ALONE while a cluster is started; those that the user set stay as they are."""
    added = [name for name in ALONE if name not in os.environ]
    os.environ.update({name: ALONE[name] for name in added})
    constants = ray._private.ray_constants  # read from the environment when Ray was imported
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in added
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def quiet_backend() -> Iterator[None]:
    """Ray's C++ side writes nothing to the terminal, unless the user set its log level."""
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
def uninterrupted() -> Iterator[None]:
    """Ctrl-C is ignored, where this is the thread that gets it."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def silent(ray: Any) -> Iterator[None]:
    """Ray prints nothing of workers that died (`log_to_driver=False` leaves that): why they died is raised."""
    worker = ray._private.worker
    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before
