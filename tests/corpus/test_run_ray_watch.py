"""A run on Ray ends when its workers cannot live, says what is so, and leaves the terminal alone. No cluster but where said."""

from __future__ import annotations

import json
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

from mixlens.base.errors import MixlensError  # noqa: E402
from mixlens.runs.corpus import ray_pool as cluster  # noqa: E402
from mixlens.runs.corpus import ray_session  # noqa: E402
from mixlens.runs.corpus.ray_watch import Patience, Watch, WorkerCounts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


# --- patience ---


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_patience_is_thirty_seconds_or_four_times_the_longest_and_doubles() -> None:
    clock = Clock()
    patience = Patience(30.0, clock)
    clock.now += 30
    assert not patience.is_over()
    clock.now += 1
    assert patience.is_over()
    assert not patience.is_over()  # it begins anew, and twice as long
    clock.now += 60
    assert not patience.is_over()
    clock.now += 1
    assert patience.is_over()
    patience.done(20.0)  # a slow worker: 80 seconds from now on, and no longer doubled
    patience.done(1.0)  # a quick one changes nothing about that
    clock.now += 79
    assert not patience.is_over()
    clock.now += 2
    assert patience.is_over()
    patience.done(2.0)
    clock.now += 79
    assert not patience.is_over()  # of all windows, the longest counts


# --- deaths, from outside ---


def actor(name: str = "MapWorker(MapBatches(Remote))", restarts: int = 0, pid: int = 0) -> dict[str, Any]:
    return {"ActorClassName": name, "NumRestarts": restarts, "Pid": pid, "State": "ALIVE"}


def test_deaths_count_since_somebody_last_worked() -> None:
    table: dict[str, Any] = {"old": actor(restarts=7, pid=1), "feed": actor("Feed", restarts=1)}
    watch = Watch(lambda: table, "feed")
    assert watch.look(worked=False) == WorkerCounts(0, 0, 1)
    table |= {"a": actor(), "b": actor(restarts=2, pid=5), "other": actor("Else", restarts=9, pid=3)}
    assert watch.look(worked=False) == WorkerCounts(1, 2, 1)
    assert watch.alive() == ["a", "b"]
    table["a"]["State"] = "DEAD"
    assert watch.alive() == ["b"]
    table["b"]["NumRestarts"] = 4
    assert watch.look(worked=True) == WorkerCounts(1, 0, 0)
    table["a"]["NumRestarts"], table["feed"]["NumRestarts"] = 1, 3
    assert watch.look(worked=False) == WorkerCounts(1, 1, 2)


class FakePool(cluster.Pool):
    """A pool of two places whose cluster is a table."""

    def __init__(self, table: dict[str, Any], state: Any):
        def get(what: Any, timeout: float) -> Any:
            assert timeout > 0
            if isinstance(what, Exception):
                raise what
            return what

        self.ray = SimpleNamespace(get=get, exceptions=ray.exceptions, put=lambda window: window)
        self.told = state
        put = SimpleNamespace(remote=lambda *_: None)
        self.feed = SimpleNamespace(state=SimpleNamespace(remote=lambda: self.told), put=put)
        self.size, self.gpus, self.model = (2, 2), 0, "agreement"
        self.watch = Watch(lambda: table, "feed")
        self.printed = deque(["(raylet) Worker exit type: SYSTEM_ERROR\n Worker exit detail: killed"])
        self.loaded, self.answered = 0, time.monotonic()

    def looked(self) -> tuple[bool, WorkerCounts]:
        return self.look_after(SimpleNamespace(count=0, held={}, tell=lambda *_: None), worked=False)  # type: ignore[arg-type]


NOTHING = (0, 0, [], 0)


def test_workers_that_die_before_they_begin_end_the_run_with_what_ray_said() -> None:
    table = {"feed": actor("Feed")}
    pool = FakePool(table, NOTHING)
    table["a"] = actor(restarts=5, pid=9)  # two places and three more are allowed
    assert pool.looked() == (False, WorkerCounts(1, 5, 0))
    table["a"]["NumRestarts"] = 6
    with pytest.raises(
        MixlensError, match=r"die before they can load 'agreement': 6 died .* Ray says: .*exit detail: killed"
    ):
        pool.looked()


def test_a_worker_that_loaded_its_model_sets_the_count_back() -> None:
    table = {"feed": actor("Feed")}
    pool = FakePool(table, NOTHING)
    table["a"] = actor(restarts=5, pid=9)
    pool.looked()
    table["a"]["NumRestarts"] = 6
    pool.told = (0, 0, [{"machine": "here"}], 1)
    assert pool.looked() == (True, WorkerCounts(1, 0, 0))


@pytest.mark.parametrize(
    "failure", [ray.exceptions.GetTimeoutError(), ray.exceptions.ActorUnavailableError("gone", None)]
)
def test_a_feed_that_does_not_answer_is_not_waited_for_for_ever(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"feed": actor("Feed")}
    pool = FakePool(table, failure)
    assert pool.looked() == (False, WorkerCounts(0, 0, 0))
    pool.answered -= cluster.SILENCE + 1
    with pytest.raises(
        MixlensError, match=r"hands out the work has not answered for 181 seconds.*the same command goes on"
    ):
        pool.looked()
    pool = FakePool(table, failure)
    table["feed"]["NumRestarts"] = 6
    with pytest.raises(MixlensError, match="hands out the work died 6 times"):
        pool.looked()


def test_what_is_said_of_workers_that_have_not_begun_is_so() -> None:
    pool = FakePool({}, NOTHING)
    assert pool.not_begun(WorkerCounts(0, 0, 0)).startswith(
        "no Ray worker has found a place yet: each worker needs a CPU, "
    )
    assert "2 were started: their machines are busy" in pool.not_begun(WorkerCounts(2, 0, 0))
    assert "niceness" in pool.not_begun(WorkerCounts(2, 0, 0))
    assert "3 were started and died" in pool.not_begun(WorkerCounts(1, 3, 0))


def test_an_end_is_seen_while_windows_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself looks, without any worker telling anything."""
    table = {"feed": actor("Feed")}
    pool = FakePool(table, NOTHING)
    table["a"] = actor(restarts=9, pid=9)
    monkeypatch.setattr(pool, "_begin", lambda *_: queue.Queue())
    with pytest.raises(MixlensError, match="9 died and none came through"):
        list(pool.shards(iter([(0, [])]), "run", {}, lambda _: None))


# --- the terminal and the cluster of our own ---


def test_only_rays_own_terminal_is_silenced_and_only_while_a_run_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("ray.data")
    before = list(log.handlers)
    seen: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(f"{self.get_name()}: {record.getMessage()}")

    handlers = [Kept(), Kept()]
    for handler, name in zip(handlers, ("console", "file"), strict=True):
        handler.set_name(name)
    log.handlers = [*handlers]
    try:
        with ray_session.settings(ray) as said:
            log.error("inside")
            ray._private.worker.print_to_stdstream(
                {"lines": ["a worker died"], "pid": "raylet", "is_err": False}, False
            )
        log.error("after")
    finally:
        log.handlers = before
    assert seen == ["file: inside", "console: after", "file: after"]
    assert list(said) == ["a worker died"]
    assert capsys.readouterr().out == ""
    assert ray._private.worker.print_to_stdstream.__module__ == "ray._private.worker"


def listening() -> dict[str, str]:
    """Addresses that this process and its children listen on, in hex as the kernel has them, and who does."""
    sockets: dict[str, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(place.name)
            while parent not in (0, 1, os.getpid()):
                parent = int((Path("/proc") / str(parent) / "stat").read_text().rpartition(")")[2].split()[1])
            if parent != os.getpid():
                continue
            for one in (place / "fd").iterdir():
                target = os.readlink(one)
                if target.startswith("socket:["):
                    sockets[target[8:-1]] = (place / "cmdline").read_text()[:80]
        except OSError:  # it ended while we looked
            continue
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found[fields[1]] = sockets[fields[9]]
    return found


LOCAL = """
import json, os, ray
from mixlens.runs.corpus import ray_pool as cluster
from test_run_ray_watch import listening

before = dict(os.environ)
pool = cluster.Pool("auto", "agreement", {"device": "cpu"}, cluster.Plan(("alti",)), 1)
priority = ray.remote(num_cpus=0)(lambda: os.nice(0))
niceness = ray.get(priority.remote(), timeout=120) - os.nice(0)
told = {"listening": listening(), "niceness": niceness, "added": sorted(set(os.environ) - set(before))}
pool.close()
print(json.dumps({**told, "open": ray.is_initialized()}))
"""


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    """As `--ray auto` starts a cluster where there is none, in a process of its own."""
    place = tempfile.mkdtemp(prefix="r-")  # short: the path of a socket has a limit
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_worker_niceness")}
    environment = {
        **kept,
        "RAY_TMPDIR": place,
        "PYTHONPATH": f"{Path(__file__).parent}:{Path(cluster.__file__).parents[2]}",
    }
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    shutil.rmtree(place, ignore_errors=True)
    return ran


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="needs /proc, which says who listens")
def test_a_cluster_of_our_own_listens_on_this_machine_alone() -> None:
    ran = in_a_process(LOCAL)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    assert len(told["listening"]) >= 2, told
    for address, who in told["listening"].items():
        assert address.rpartition(":")[0].endswith("0100007F"), (address, who)  # 127.0.0.1, in IPv6 too
    assert told["niceness"] == 0
    assert not {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_worker_niceness"} & set(told["added"])
    assert told["open"] is False


# Threads of Ray Data let go of objects while the connection ends; here three do nothing else.
LETTING_GO = """
import sys, threading, ray
from mixlens.runs.corpus import ray_pool as cluster

pool = cluster.Pool("auto", "agreement", {"device": "cpu"}, cluster.Plan(("alti",)), 1)
held = [[ray.put(number) for number in range(2000)] for _ in range(3)]

closed = threading.Event()

def let_go(mine):
    while mine and not closed.wait(0.005):
        mine.pop()

threads = [threading.Thread(target=let_go, args=(mine,)) for mine in held]
for thread in threads:
    thread.start()
pool.close()
print("closed", all(held))
closed.set()
for thread in threads:
    thread.join()
sys.exit(5)
"""


def test_threads_that_let_go_of_objects_while_ray_ends_do_not_end_the_process() -> None:
    """Ray ends a process that asks it for anything after its own end: exit code 1, and not a word."""
    ran = in_a_process(LETTING_GO)
    assert (ran.returncode, ran.stdout.strip()) == (5, "closed True"), ran.stderr
