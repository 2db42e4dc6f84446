"""A corpus run loses nothing: kill -9, Ctrl-C, a full disk, damaged and foreign files, a hundred random schedules of
faults."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import hf_model, ids
from test_run import bad, go, table
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base import files as disk
from mixlens.base.errors import InputError, ResultError
from mixlens.cli.app import app
from mixlens.runs.corpus import shards
from mixlens.runs.corpus import worker as work

pytest.importorskip("pyarrow")

ROWS: list[Any] = [{"input_ids": ids(2 + n % 5, seed=n), "note": f"n{n}"} for n in range(11)]
ROWS[4] = {"input_ids": [], "note": "nothing"}
ROWS[9] = {"input_ids": [3, 10**6], "note": "not in the vocabulary"}
ASKED: dict[str, Any] = {"methods": ["alti", "attention"], "columns": ["note"], "shard_rows": 2, "maps": True}


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load(hf_model("bert"))


@pytest.fixture(scope="module")
def whole(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    made = go(ROWS, out, model=model, **ASKED)
    assert (made.rows, made.errors) == (9, 2)
    return out


def same(out: Path, whole: Path) -> None:
    assert table(out) == table(whole)
    assert bad(out) == bad(whole)
    assert [p.name for p in shards.shard_files(out, "maps")] == [
        p.name for p in shards.shard_files(whole, "maps")
    ]  # by checksum
    assert [path.name[:12] for path in shards.shard_files(out)] == [
        path.name[:12] for path in shards.shard_files(whole)
    ]
    assert not [*out.rglob(".tmp-*")]
    assert json.loads((out / "manifest.json").read_text())["finished"]


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the shards that were worked on."""
    numbers: list[int] = []
    own = work.Worker.window

    def window(self: Any, number: int, *rest: Any) -> Any:
        numbers.append(number)
        return own(self, number, *rest)

    monkeypatch.setattr(work.Worker, "window", window)
    return numbers


def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


# --- a hundred schedules ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As if the process ended here."""


class Faults:
    """Something goes wrong at some of the writes, syncs and moves; after `calls` of them nothing more."""

    def __init__(self, draw: random.Random, calls: int):
        self.draw, self.calls, self.dead = draw, calls, False

    def patched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sync, move, write = disk.sync, disk.move, disk.write

        def faulty_sync(file: int) -> None:
            self.maybe(lambda: os.ftruncate(file, int(os.fstat(file).st_size * self.draw.random())))
            sync(file)

        def faulty_move(beside: Path, place: Path) -> None:
            self.maybe(lambda: None)
            move(beside, place)
            self.maybe(lambda: None)

        def faulty_write(place: Path, content: Any) -> None:
            if self.dead:
                raise Killed  # a killed process writes nothing more
            self.maybe(lambda: place.with_name(f"{disk.TEMPORARY}{0:012x}-{place.name}").write_bytes(b"PAR1 half"))
            write(place, content)

        monkeypatch.setattr(disk, "sync", faulty_sync)
        monkeypatch.setattr(disk, "move", faulty_move)
        monkeypatch.setattr(shards, "write", faulty_write)

    def maybe(self, damage: Any) -> None:
        if self.calls <= 0 or self.draw.random() > 0.25:
            return
        self.calls -= 1
        damage()
        if self.draw.random() < 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.dead = True
        raise Killed


def spoil(out: Path, draw: random.Random) -> set[int]:
    """Between two runs a file is damaged, lost or put there by a stranger. The numbers of the shards that are gone."""
    files = shards.shard_files(out) if (out / "manifest.json").exists() else []
    if not files or draw.random() < 0.5:
        return set()
    path = draw.choice(files)
    number, content = int(path.name[5:12]), path.read_bytes()
    kind = draw.choice(["cut", "flip", "lost", "foreign", "maps"])
    if kind == "cut":
        path.write_bytes(content[: int(len(content) * draw.random())])
    elif kind == "flip":
        place = draw.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
    elif kind == "lost":
        path.unlink()
    elif kind == "foreign":
        (out / "shards" / "part-0000099-0123456789abcdef.parquet").write_bytes(content)
        return set()
    else:
        told = shards.facts_of(path)
        (out / "maps" / told["maps"]).write_bytes(b"")
    return {number}


@pytest.mark.parametrize("ten", range(10))
def test_a_hundred_schedules_of_faults_end_in_the_same_rows(
    ten: int, model: Any, whole: Path, tmp_path: Path, worked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        draw, out = random.Random(seed), tmp_path / str(seed)
        calls, broken = draw.randrange(1, 6), set[int]()
        for _ in range(20):
            there = (
                {int(path.name[5:12]) for path in shards.shard_files(out)}
                if (out / "manifest.json").exists()
                else set()
            )
            broken |= spoil(out, draw) if calls else set()
            worked.clear()
            faults = Faults(draw, calls)
            with monkeypatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                faults.patched(patch)
                try:
                    go(ROWS, out, model=model, **ASKED)
                    ended = True
                except (Killed, ResultError):
                    ended = False
            assert not (there - broken) & set(worked), f"schedule {seed}: a finished example was done twice"
            broken -= set(worked)
            calls = faults.calls
            if ended:
                break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            go(ROWS, out, model=model, **ASKED)  # whatever the last fault damaged after the end is made good too
        same(out, whole)


# --- one by one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign run", "renamed", "no Parquet", "maps"])
def test_a_damaged_or_foreign_shard_is_named_and_done_again(
    damage: str, model: Any, whole: Path, tmp_path: Path, worked: list[int]
) -> None:
    out = copied(whole, tmp_path)
    path = shards.shard_files(out)[2]
    content = path.read_bytes()
    name = path.name
    if damage == "cut":
        path.write_bytes(content[:-20])
    elif damage == "flip":
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "foreign run":  # whole in itself, the right number, but of another model's run
        go(ROWS, tmp_path / "other", model=model, **{**ASKED, "methods": ["attention"]})
        other = shards.shard_files(tmp_path / "other")[2]
        path.unlink()
        name = other.name
        shutil.copy(other, path.with_name(name))
    elif damage == "renamed":
        name = path.name.replace("part-0000002", "part-0000077")
        path.rename(path.with_name(name))
    elif damage == "no Parquet":
        path.unlink()
        name = shards.file_name(2, b"hello")
        path.with_name(name).write_bytes(b"hello")
    else:
        name = str(shards.facts_of(path)["maps"])
        (out / "maps" / name).write_bytes(b"x")
    with pytest.warns(UserWarning, match=name):
        made = go(ROWS, out, model=model, **ASKED)
    assert name in made.aside
    assert worked[-1:] == [2]
    assert made.done == 2
    same(out, whole)
    worked.clear()
    assert go(ROWS, out, model=model, **ASKED).done == 0
    assert not worked


def test_a_folder_of_another_run_or_of_something_else_is_refused(model: Any, whole: Path, tmp_path: Path) -> None:
    out = copied(whole, tmp_path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != disk.LOCK}
    for other in ({"methods": ["alti"]}, {"limit": 3}, {"shard_rows": 3}, {"maps": "float16"}, {"columns": []}):
        with pytest.raises(InputError, match="belongs to another run"):
            go(ROWS, out, model=model, **{**ASKED, **other})
    with pytest.raises(InputError, match=r"belongs to another run .*model"):
        go(ROWS, out, model=mixlens.load(hf_model("bert", head="AutoModelForMaskedLM")), **ASKED)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("do not lose")
    with pytest.raises(InputError, match=r"not empty .thesis\.tex. and holds no run"):
        go(ROWS, tmp_path / "mine", model=model, **ASKED)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != disk.LOCK}


def test_data_that_changed_is_refused(model: Any, whole: Path, tmp_path: Path) -> None:
    out = copied(whole, tmp_path)
    changed = [*ROWS[:3], {"input_ids": [7, 8, 9], "note": "new"}, *ROWS[4:]]
    with pytest.raises(InputError, match="rows from 3 on differ"):
        go(changed, out, model=model, **ASKED)
    with pytest.raises(InputError, match="not there any more"):
        go(ROWS[:4], out, model=model, **ASKED)


def test_two_runs_do_not_write_to_one_folder(model: Any, tmp_path: Path) -> None:
    with disk.RunFolder(tmp_path).held(), pytest.raises(InputError, match="another run is writing"):
        go(ROWS, tmp_path, model=model, **ASKED)


def test_what_failed_for_want_of_room_takes_no_room(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))

    def full(file: int) -> None:
        if next(calls) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", full)
        with pytest.raises(ResultError, match=r"No space left on device\. What is done is safe"):
            go(ROWS, tmp_path / "run", model=model, **ASKED)
    assert not [*(tmp_path / "run").rglob(".tmp-*")]
    assert shards.shard_files(tmp_path / "run")


# --- real ones --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs root on Linux: a small disk is mounted")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(model: Any, whole: Path, small_disk: Path, worked: list[int]) -> None:
    out = small_disk / "run"
    with pytest.raises(ResultError, match="No space left on device"):
        go(ROWS, out, model=model, **ASKED)
    there = {int(path.name[5:12]) for path in shards.shard_files(out)}
    assert 0 < len(there) < 6
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    worked.clear()
    go(ROWS, out, model=model, resume=True, **ASKED)
    assert not there & set(worked)
    same(out, whole)


def test_ctrl_c_leaves_a_folder_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("The keys [MASK] rusty.\n" * 6)
    asked = ["run", str(tmp_path / "x.txt"), "--out", str(tmp_path / "run"), "--shard-rows", "2"]
    own = work.Worker.window

    def stopped(self: Any, number: int, *rest: Any) -> Any:
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return own(self, number, *rest)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever other tests left there
    with monkeypatch.context() as patch:
        patch.setattr(work.Worker, "window", stopped)
        ran = CliRunner().invoke(app, asked)
    signal.signal(signal.SIGINT, before)
    assert ran.exit_code == 130
    assert "the same command goes on" in ran.stderr
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 0
    assert "6 rows" in again.stdout
    assert "(2 done now" in again.stdout


def killed_at(call: int) -> None:
    """This process ends by SIGKILL at the `call`-th sync, move or window of rows from now: no moment depends on a
    clock."""
    left = [call]

    def counted(own: Any) -> Any:
        def counting(*given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return own(*given)

        return counting

    disk.sync, disk.move = counted(disk.sync), counted(disk.move)
    work.Worker.window = counted(work.Worker.window)  # type: ignore[method-assign]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks beside threads; these are killed
def test_killed_at_many_moments_and_continued(model: Any, whole: Path, tmp_path: Path) -> None:
    """Real processes, each ended by SIGKILL in the middle: between a write and its sync, before a move, before rows are
    read."""
    draw = random.Random(7)
    for number in range(6):
        out = tmp_path / str(number)
        for _ in range(4):
            call, child = draw.randrange(1, 8), os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    killed_at(call)
                    go(ROWS, out, model=model, **ASKED)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status)
            assert os.WTERMSIG(status) == signal.SIGKILL
        assert len(shards.shard_files(out) if (out / "manifest.json").exists() else []) < 6
        go(ROWS, out, model=model, **ASKED)
        same(out, whole)


STOPS = """
import signal, sys
from mixlens.cli import main
from mixlens.runs.corpus import worker as work

own = work.Worker.window

def window(self, number, *rest):
    if number == 7:
        print("here", flush=True)
        signal.pause()  # until it is killed
    return own(self, number, *rest)

work.Worker.window = window
sys.argv = ["mixlens", *sys.argv[1:]]
main()
"""


def test_the_command_killed_and_continued(tmp_path: Path) -> None:
    texts = [example.text for example in data.load("agreement", n=240, seed=5)]
    (tmp_path / "x.txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "run"
    command = [sys.executable, "-c", STOPS, "run", str(tmp_path / "x.txt"), "--out", str(out), "--shard-rows", "20"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.kill()
    process.communicate()
    done = {path.name for path in shards.shard_files(out)}
    assert 1 <= len(done) <= 7
    asked: dict[str, Any] = {"model": "agreement", "shard_rows": 20}
    made = go(str(tmp_path / "x.txt"), out, resume=True, **asked)
    assert made.done == 240 - 20 * len(done)
    assert done <= {path.name for path in shards.shard_files(out)}  # not one of them was written again
    go(str(tmp_path / "x.txt"), tmp_path / "whole", **asked)
    same(out, tmp_path / "whole")
