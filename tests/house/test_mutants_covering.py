"""Which tests `recipes.mutants` runs for a fault: those that run its line, those that run little else first, in
groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.mutants import covering, sample
from recipes.mutants.faults import Fault, faults

SOURCE = (
    "def f(a):\n    if a:\n        return a + 1\n    return a - 1\n\n\nclass C:\n    def g(self):\n        return 2\n"
)
TESTS = {
    "tests/a.py::one|run": [2, 3],
    "tests/a.py::two|run": [2, 4],
    "tests/b.py::x[1]|setup": [9],
    "tests/b.py::y|run": [2],
}


def runs() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {1: ["between tests"]}
    for test, lines in TESTS.items():
        for line in lines:
            found.setdefault(line, []).append(test)
    return found


@pytest.fixture
def known(tmp_path: Path) -> covering.Covering:
    (tmp_path / "m.py").write_text(SOURCE)
    made = covering.from_runs(
        {"m.py": runs()}, tmp_path, {"tests/a.py::one": 5.0, "tests/a.py::two": 3.0, "tests/b.py::y": 0.5}
    )
    covering.write(tmp_path / "kept.json.gz", made)
    again = covering.read(tmp_path / "kept.json.gz")
    assert again is not None
    assert (again.functions, again.lines) == (made.functions, made.lines)
    assert again.seconds == {**dict.fromkeys(("tests/b.py::x[1]",), 0.1), **made.seconds}
    return again


def fault(text: str, after: str, source: str = SOURCE) -> Fault:
    (found,) = [one for one in faults(source, "m.py") if (one.before, one.after) == (text, after)]
    return found


def test_a_fault_meets_the_tests_of_its_line(known: covering.Covering) -> None:
    assert known.tests(fault("a + 1", "a - 1"), SOURCE) == ["tests/a.py::one"]
    assert known.tests(fault("a - 1", "a + 1"), SOURCE) == ["tests/a.py::two"]
    assert known.tests(fault("a", "not a"), SOURCE) == ["tests/a.py::one", "tests/a.py::two", "tests/b.py::y"], (
        "narrow ones first"
    )
    moved = "import os\n\n" + SOURCE
    assert known.tests(fault("a - 1", "a + 1", moved), moved) == ["tests/a.py::two"], "lines may move"
    edited = SOURCE.replace("a - 1", "a - 7")
    assert len(known.tests(fault("a - 7", "a + 7", edited), edited)) == 3, "a new line has the tests of its function"


def test_what_a_fixture_runs_counts_for_the_tests_of_its_file(known: covering.Covering) -> None:
    assert known.tests(fault("2", "3"), SOURCE) == ["tests/b.py::x[1]", "tests/b.py::y"]


def test_groups_grow_and_lose_no_test(known: covering.Covering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "STAGES", (3.6, 10.0))
    condition = fault("a", "not a")
    assert known.stages(condition, SOURCE, ["tests/c.py"]) == [
        ["tests/a.py::one"],
        ["tests/a.py::two", "tests/b.py::y"],
    ]
    unknown = fault("a", "not a", "def h(a):\n    return 1 if a else 2\n")
    assert known.stages(unknown, "def h(a):\n    return 1 if a else 2\n", ["tests/c.py"]) == [["tests/c.py"]]


def test_cases_of_one_test_take_turns() -> None:
    seconds = {"t::a[1]": 0.2, "t::a[2]": 0.1, "t::b": 1.0, "t::c[x]": 0.3}
    assert covering.in_turn(seconds, seconds) == ["t::a[2]", "t::c[x]", "t::b", "t::a[1]"]
    taken, rest = covering.within(
        ["p::a", "q::b", "p::c", "p::d"], 2.5, dict.fromkeys(("p::a", "p::c", "p::d"), 1.0), files=1
    )
    assert (taken, rest) == (["p::a", "p::c"], ["q::b", "p::d"])
    assert covering.within(["p::a"], 0.5, {"p::a": 1.0}, files=1) == (["p::a"], []), "one test is always taken"


def test_seconds_come_from_the_table_of_durations() -> None:
    log = (
        "1.50s call     tests/a.py::one[a b]\n0.25s setup    tests/a.py::one[a b]\n0.10s teardown tests/a.py::one[a b]"
    )
    assert covering.seconds_told(log) == {"tests/a.py::one[a b]": 1.75}


def test_without_that_file_the_tests_named_for_a_file_are_run(tmp_path: Path) -> None:
    assert covering.read(tmp_path / "none") is None
    one = Fault("mixlens/base/text.py", "percent", "sign", "-a", "a", 0, 1, 0, 0, "")
    named = list(sample.tests_of(one.file, "base"))
    assert sample.groups_of(one, "base", None) == [named]
    held = covering.Covering({}, {}, {f"{name.split(':')[0]}::a": 1.0 for name in named[1:]})
    assert sample.groups_of(one, "base", held) == [
        [name for name in named if name.split(":")[0] not in held.files],
        named,
    ]


PROBE = """
from mixlens.base.text import percent

def test_one():
    assert percent(0.5)

def test_two():
    pass
"""


def test_the_recorder_writes_which_lines_each_test_runs(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    (tmp_path / "test_probe.py").write_text(PROBE)
    ran = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-n",
                "1",
                "-p",
                "recipes.mutants.recorder",
                "-p",
                "no:cacheprovider",
            ),
            str(tmp_path),
        ],
        cwd=covering.ROOT,
        env={**os.environ, covering.FOLDER: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = covering.merged(tmp_path, covering.ROOT)["mixlens/base/text.py"]
    known = {test.rpartition("::")[2] for tests in told.values() for test in tests if test.endswith("|run")}
    assert known == {"test_one|run"}
