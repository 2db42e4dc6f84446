"""A run on Ray gives the rows of a run without it, whoever is killed in mid-run: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_run import go
from test_run_faults import same

import mixlens
from mixlens import data
from mixlens.base.errors import InputError, MixlensError, ModelError
from mixlens.runs.corpus import cluster, shards

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs Linux: processes are found in /proc"),
]
NICENESS = "RAY_worker_niceness"
ASKED: dict[str, Any] = {"model": "agreement", "methods": ["alti", "attcat"], "shard_rows": 8}
ROWS: list[Any] = [*(example.text for example in data.load("agreement", n=190, seed=3)), "", "no gap here"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with a place for one worker each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ[NICENESS] = "0"  # at Ray's 15 its workers starve where other tests run
    place = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(
        prefix="r-"
    )  # whoever says auto on this machine is not to find it
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000}
    # A node that is gone is found to be so in two seconds, not in half a minute.
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False, "_system_config": quick})
    made.add_node(**node)
    yield made
    ray.shutdown()
    made.shutdown()
    del os.environ["RAY_TMPDIR"], os.environ[NICENESS]
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def connected(nodes: Any) -> Iterator[str]:
    """As somebody who works with Ray anyway: what a run leaves behind would stay."""
    ray.init(nodes.address, log_to_driver=False)
    yield nodes.address
    ray.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without Ray, and beside it the file."""
    place = tmp_path_factory.mktemp("alone")
    (place / "x.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    assert go(place / "x.jsonl", place / "run", **ASKED).errors == 2
    return place / "run"


def processes(title: str) -> list[int]:
    """Those of this test's cluster whose title holds this."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            named, parent = (place / "cmdline").read_bytes().decode(errors="replace"), int(place.name)
            while parent not in (0, os.getpid()):
                parent = int((Path("/proc") / str(parent) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended while we looked
            continue
        found += [int(place.name)] if title in named and parent else []
    return found


def during(monkeypatch: pytest.MonkeyPatch, what: dict[int, Callable[[Any], Any]]) -> list[Any]:
    """what[n](pool) when n shards have come back and others are under way; and what each said."""
    own, said = cluster.Pool.shards, []

    def watched(self: Any, *rest: Any) -> Iterator[Any]:
        for number, one in enumerate(own(self, *rest), 1):
            if number in what:
                said.append(what[number](self))
            yield one

    monkeypatch.setattr(cluster.Pool, "shards", watched)
    return said


def kill(*wanted: int) -> list[int]:
    """Those of them that live."""
    killed = [process for process in wanted if Path(f"/proc/{process}").exists()]
    for process in killed:
        os.kill(process, signal.SIGKILL)
    return killed


def all_free() -> bool:
    """Nothing of a run is left on the cluster, or soon will not be."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]:
            return True
        time.sleep(0.2)
    return False


def test_a_worker_that_stands_still_is_not_waited_for(
    connected: str, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is given out again, and whatever it says later is thrown away. (While both machines are there: it
    keeps its place.)"""
    monkeypatch.setattr(cluster, "PATIENCE", 3.0)

    def stop_one(pool: Any) -> int:
        os.kill(pool.processes()[0], signal.SIGSTOP)
        return len(pool.processes())

    # late enough that both have begun; with the first shards one alone may have
    said = during(monkeypatch, {16: stop_one})
    ran = go(alone.parent / "x.jsonl", tmp_path / "ray", ray=connected, workers=2, **ASKED)
    assert len(said) == 1
    assert ran.rows + ran.errors == ran.done == len(ROWS)
    same(tmp_path / "ray", alone)
    assert all_free()


def test_whoever_is_killed_the_rows_are_the_same(
    nodes: Any, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker of two, again and again, both workers at once, and a whole node for good."""

    def end_a_node(pool: Any) -> list[int]:
        own = ray.get_runtime_context().get_node_id()
        nodes.remove_node(next(node for node in nodes.list_all_nodes() if node.node_id != own), allow_graceful=False)
        return [0]

    said = during(
        monkeypatch,
        {
            2: lambda pool: kill(pool.processes()[0]),
            5: lambda pool: kill(*pool.processes()[:1]),
            8: lambda pool: kill(*pool.processes()[:1]),
            12: lambda pool: kill(*pool.processes()),
            16: end_a_node,
        },
    )
    ahead = []

    def rows() -> Iterator[Any]:
        for number, row in enumerate(ROWS):
            ahead.append(number - 8 * len(list(tmp_path.glob("ray/shards/part-*.parquet"))))
            yield row

    ran = go(rows(), tmp_path / "ray", ray=nodes.address, workers=2, **ASKED)
    assert len(said) == 5
    assert all(said)
    assert len({process for some in said for process in some}) == sum(map(len, said))  # replaced, and killed in turn
    assert ran.rows + ran.errors == ran.done == len(ROWS)
    same(tmp_path / "ray", alone)
    assert max(ahead) <= 8 * (cluster.AHEAD * 2 + 2)  # the input is read as it is needed, by this process


def test_the_process_that_was_started_is_killed_and_the_run_goes_on(
    connected: str, alone: Path, tmp_path: Path
) -> None:
    out, file = tmp_path / "run", str(alone.parent / "x.jsonl")
    command = [sys.executable, "-m", "mixlens", "run", file, "--out", str(out), "--shard-rows", "8"]
    command += ["--methods", "alti,attcat", "--ray", connected, "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while len(list(out.glob("shards/part-*.parquet"))) < 4:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.kill()
    said = process.communicate()[0]
    assert "Traceback" not in said
    assert all_free()
    done = {path.name for path in shards.shard_files(out)}
    assert 4 <= len(done) < 24
    ran = go(file, out, **ASKED)  # without Ray
    assert ran.done == len(ROWS) - 8 * len(done)
    same(out, alone)
    for path in shards.shard_files(out)[3:6]:
        path.unlink()
    ran = go(file, out, ray="auto", workers=1, **ASKED)  # and with it
    assert ran.done == 3 * 8
    same(out, alone)
    assert all_free()


def test_a_worker_that_cannot_load_the_model_says_so(
    connected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cluster.Pool.shards

    def elsewhere(self: Any, *rest: Any) -> Iterator[Any]:
        self.model = str(tmp_path / "nowhere")
        return own(self, *rest)

    monkeypatch.setattr(cluster.Pool, "shards", elsewhere)
    with pytest.raises(ModelError, match=r"nowhere.*on the Ray worker"):
        go(ROWS, tmp_path / "run", ray=connected, workers=1, **ASKED)
    assert all_free()


def test_workers_that_die_are_not_made_for_ever(
    connected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying() -> type:  # a class of this file would be looked for on the cluster
        class Remote:
            def __init__(self, *_: Any):
                os._exit(1)

            def process(self) -> int:
                return 1

        return Remote

    monkeypatch.setattr(cluster, "Remote", dying())
    monkeypatch.setattr(cluster, "CRASHES", 0)
    with pytest.raises(MixlensError, match=r"the Ray workers die: 2 did .* 'agreement'"):
        go(ROWS, tmp_path / "run", ray=connected, workers=1, **ASKED)
    assert all_free()


def test_what_ray_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="every Ray worker loads the model itself"):
        go(ROWS, tmp_path / "x", **{**ASKED, "model": mixlens.load("agreement")}, ray="auto")
    for workers in (0, (2, 1), (1, 2, 3), True, "many"):
        with pytest.raises(InputError, match="workers= must be at least 1"):
            go(ROWS, tmp_path / "x", ray="auto", workers=workers, **ASKED)
    with pytest.raises(InputError, match="ray:// is for processes outside of the cluster"):
        go(ROWS, tmp_path / "x", ray="ray://127.0.0.1:10001", **ASKED)
    with pytest.raises(InputError, match=r"cannot reach a Ray cluster at '127\.0\.0\.1:1'"):
        go(ROWS, tmp_path / "x", ray="127.0.0.1:1", **ASKED)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1")  # as a cluster leaves it that was killed
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    begun: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda **asked: begun.append(asked))
    monkeypatch.setattr(ray, "cluster_resources", dict)
    cluster.Pool("auto", "agreement", {}, cluster.Plan(("alti",)), None)
    assert begun[0]["address"] == "local"


def test_workers_get_the_options_of_large_models(connected: str, tmp_path: Path) -> None:
    """All options of `load` go to a worker in one mapping; layers on disk are what another form of loading would not
    give."""
    pytest.importorskip("accelerate")
    asked = {**ASKED, "methods": ["alti"], "device_map": {"": "disk"}}
    go(ROWS[:9], tmp_path / "alone", **asked)
    go(ROWS[:9], tmp_path / "ray", ray=connected, workers=1, **asked)
    same(tmp_path / "ray", tmp_path / "alone")
    alone, other = (
        json.loads((tmp_path / name / "manifest.json").read_text())["identity"] for name in ("alone", "ray")
    )
    assert alone == other
    assert alone["device_map"]


@pytest.mark.parametrize(
    ("resources", "options", "workers", "expected"),
    [
        ({"CPU": 3.0}, {}, None, (3, 0, "cpu")),
        ({"CPU": 0.5}, {}, None, (1, 0, "cpu")),
        ({}, {}, None, (1, 0, "cpu")),
        ({"CPU": 8.0, "GPU": 2.0}, {"device": "cuda"}, None, (2, 1, "cuda")),
        ({"CPU": 8.0, "GPU": 2.0}, {"device": "cpu"}, None, (8, 0, "cpu")),
        ({"CPU": 8.0, "GPU": 2.0}, {}, 5, (5, 1, "cuda")),
    ],
    ids=str,
)
def test_one_worker_for_each_gpu_or_each_cpu_or_as_many_as_asked(
    resources: dict[str, float], options: dict[str, Any], workers: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: resources)
    pool = cluster.Pool("auto", "agreement", options, cluster.Plan(("alti",)), workers)
    assert (pool.size, pool.needs["num_gpus"], pool.device) == expected


def listening() -> dict[str, str]:
    """Addresses that this process and its children listen on, in hex as the kernel has them, and who does."""
    sockets: dict[str, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(place.name)
            while parent not in (0, 1, os.getpid()):
                parent = int((Path("/proc") / str(parent) / "stat").read_text().rpartition(")")[2].split()[1])
            for one in (place / "fd").iterdir() if parent == os.getpid() else ():
                target = os.readlink(one)
                if target.startswith("socket:["):
                    sockets[target[8:-1]] = (place / "cmdline").read_text()[:80]
        except OSError:  # it ended while we looked
            continue
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {fields[1]: sockets[fields[9]] for fields in lines[1:] if fields[3] == "0A" and fields[9] in sockets}


LOCAL = """
import json, os, ray
from mixlens.runs.corpus import cluster
from test_run_ray import listening

before = dict(os.environ)
pool = cluster.Pool("auto", "agreement", {"device": "cpu"}, cluster.Plan(("alti",)), 1)
priority = ray.remote(num_cpus=0)(lambda: os.nice(0))
niceness = ray.get(priority.remote(), timeout=120) - os.nice(0)
told = {"listening": listening(), "niceness": niceness, "added": sorted(set(os.environ) - set(before))}
pool.close()
print(json.dumps({**told, "open": ray.is_initialized()}))
"""


def test_a_cluster_of_our_own_listens_on_this_machine_alone() -> None:
    """As `--ray auto` starts a cluster where there is none, in a process of its own."""
    place = tempfile.mkdtemp(prefix="r-")  # short: the path of a socket has a limit
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", NICENESS)}
    paths = f"{Path(__file__).parent}:{Path(__file__).parents[1]}:{Path(mixlens.__file__).parents[1]}"
    ran = subprocess.run(
        [sys.executable, "-c", LOCAL],
        capture_output=True,
        text=True,
        env={**kept, "RAY_TMPDIR": place, "PYTHONPATH": paths},
        check=False,
    )
    shutil.rmtree(place, ignore_errors=True)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    assert len(told["listening"]) >= 2, told
    for address, who in told["listening"].items():
        assert address.rpartition(":")[0].endswith("0100007F"), (address, who)  # 127.0.0.1, in IPv6 too
    assert told["niceness"] == 0
    assert not {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", NICENESS} & set(told["added"])
    assert told["open"] is False
