"""A run on a Ray cluster gives the rows of a run without one; a worker killed in mid-run is replaced, nothing lost or doubled."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_run import bad, go, table

from mixlens import data
from mixlens.corpus import cluster, running, shards
from mixlens.errors import InputError

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")
ASKED: dict[str, Any] = {"model": "agreement", "methods": ["alti", "attcat"], "shard_rows": 8}
ROWS: list[Any] = [*(example.text for example in data.load("agreement", n=60, seed=3)), "", "no gap here"]


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """A cluster of one machine."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=2, num_gpus=0, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_killed_worker_is_replaced_and_the_rows_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(ROWS, tmp_path / "alone", **ASKED)
    killed: list[int] = []
    own = cluster.Pool.made

    def made(self: Any, *rest: Any) -> Any:
        for number, one in enumerate(own(self, *rest)):
            if number == 1:  # others are under way
                killed.extend(self.processes()[:1])
                os.kill(killed[0], signal.SIGKILL)
            yield one
        assert self.processes()[0] != killed[0]

    monkeypatch.setattr(cluster.Pool, "made", made)
    ran = go(ROWS, tmp_path / "ray", ray="auto", workers=1, **ASKED)
    assert killed
    assert ran.rows + ran.errors == ran.done == len(ROWS)
    assert table(tmp_path / "ray") == table(tmp_path / "alone")
    assert bad(tmp_path / "ray") == bad(tmp_path / "alone")
    monkeypatch.setattr(running, "Pool", None)  # the folder is one of any run: without Ray it goes on just so
    shards.shard_files(tmp_path / "ray")[3].unlink()
    assert go(ROWS, tmp_path / "ray", **ASKED).done == ASKED["shard_rows"]
    assert table(tmp_path / "ray") == table(tmp_path / "alone")


def test_what_ray_cannot_do_is_refused(tmp_path: Path) -> None:
    import mixlens

    with pytest.raises(InputError, match="every Ray worker loads the model itself"):
        go(ROWS, tmp_path / "x", **{**ASKED, "model": mixlens.load("agreement")}, ray="auto")
    with pytest.raises(InputError, match="workers must be at least 1"):
        go(ROWS, tmp_path / "x", ray="auto", workers=0, **ASKED)


@pytest.mark.parametrize(
    ("asked", "told"), [({"device_map": {"": "disk"}}, "device_map"), ({"quantization": "4bit"}, "quantization")]
)
def test_workers_get_the_options_of_large_models(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("bitsandbytes")
    go(ROWS[:9], tmp_path / "alone", **ASKED, **asked)
    go(ROWS[:9], tmp_path / "ray", ray="auto", workers=1, **ASKED, **asked)
    assert table(tmp_path / "ray") == table(tmp_path / "alone")
    alone, other = (json.loads((tmp_path / name / "manifest.json").read_text())["identity"] for name in ("alone", "ray"))
    assert alone == other
    assert alone[told]
