"""The tool that counts which faults the tests see: the faults it makes, the sample it draws, and a run on a small
project."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from recipes.mutants import run as mutants_run
from recipes.mutants import sample as mutants
from recipes.mutants import tests as mutants_tests
from recipes.mutants.faults import OPERATORS, Fault, faults, readable
from recipes.sources import parsed

TOY = '''
"""Not this: 1 + 1."""

def toy(a: int, b: int = 2, *rest, key=None):
    """Not this: 1 + 1."""
    if a < b and key is not None:
        a += b
    elif not rest:
        raise ValueError(f"not this {a + b}", 1 + 1)
    assert a + b, "not this"
    total = -a * b + sum(one for one in rest if one > 3)
    total = max(total, 0)
    rows = rest[1:a]
    table = key.mT @ key.transpose(0, -1)
    key.clear()
    print(rows, table.clamp(min=0), flush=True)
    return abs(total) / 2.5 - b

class Shape:
    size: int = 7

    def area(self):
        yield self.size

def nothing():
    return True
'''
EXPECTED = [  # operator, before, after
    ("arithmetic", "-a * b + sum((one for one in rest if one > 3))", "-a * b - sum((one for one in rest if one > 3))"),
    ("arithmetic", "-a * b", "-a / b"),
    ("arithmetic", "a += b", "a -= b"),
    ("arithmetic", "key.mT @ key.transpose(0, -1)", "key.mT * key.transpose(0, -1)"),
    ("comparison", "a < b", "a <= b"),
    ("comparison", "key is not None", "key is None"),
    ("boolean", "a < b and key is not None", "a < b or key is not None"),
    ("constant", "2", "3"),
    ("constant", "2.5", "5.0"),
    ("constant", "True", "False"),
    ("axis", "-1", "-2"),
    ("negated condition", "a < b and key is not None", "not (a < b and key is not None)"),
    ("negated condition", "not rest", "rest"),
    ("dropped filter", "one > 3", "True"),
    ("removed statement", "key.clear()", "pass"),
    ("removed statement", "total = max(total, 0)", "pass"),
    ("removed statement", "a += b", "pass"),
    ("swapped arguments", "print(rows, table.clamp(min=0), flush=True)", "print(table.clamp(min=0), rows, flush=True)"),
    ("slice", "1", "1 + 1"),
    ("slice", "a", "a + 1"),
    ("dropped call", "abs(total)", "total"),
    ("dropped call", "max(total, 0)", "0"),
    ("dropped call", "table.clamp(min=0)", "table"),
    ("dropped keyword", "table.clamp(min=0)", "table.clamp()"),
    ("aggregate", "max(total, 0)", "min(total, 0)"),
    ("aggregate", "sum((one for one in rest if one > 3))", "mean((one for one in rest if one > 3))"),
    ("sign", "abs(total) / 2.5 - b", "b - abs(total) / 2.5"),
    ("sign", "-a", "a"),
    ("dropped term", "abs(total) / 2.5 - b", "abs(total) / 2.5"),
    ("dropped factor", "abs(total) / 2.5", "abs(total)"),
    ("dropped transpose", "key.mT", "key"),
    ("dropped transpose", "key.transpose(0, -1)", "key"),
    ("early return", "", "return a"),
    ("early return", "", "return None"),
]


def test_each_kind_of_fault_is_made() -> None:
    found = faults(TOY, "toy.py")
    told = {(fault.operator, fault.before, fault.after) for fault in found}
    for expected in EXPECTED:
        assert expected in told
    assert {operator for operator, _, _ in EXPECTED} == set(OPERATORS) == {fault.operator for fault in found}
    assert all(readable(fault, TOY) for fault in found)
    assert len({fault.id for fault in found}) == len(found)


def test_a_fault_is_the_change_it_says_and_no_other() -> None:
    """The changed text is read back: it is the function with the one expression replaced."""
    for fault in faults(TOY, "toy.py"):
        changed = fault.applied(TOY)
        assert changed != TOY
        whole = ast.unparse(parsed(changed))
        assert whole != ast.unparse(parsed(TOY))
        assert fault.function in ("toy", "Shape.area", "nothing")
        if fault.operator != "removed statement":
            assert ast.unparse(parsed(fault.after)) in whole


def test_texts_messages_annotations_and_refusals_are_left_alone() -> None:
    at = TOY.splitlines()
    spared = {number for number, line in enumerate(at, 1) if "ot this" in line or "size: int" in line}
    assert len(spared) == 5
    assert not [fault for fault in faults(TOY, "toy.py") if fault.line in spared]
    assert not faults("x: int = 1 + 1\ny = [1, 2][0]\n", "toy.py"), "outside functions"
    assert not [
        fault for fault in faults("def f(a, b):\n    return g(strict=True)\n", "f.py") if "strict" in fault.before
    ]


def test_a_fault_keeps_its_name_where_the_code_moves() -> None:
    moved = "import os\n\n\n" + TOY.replace("def nothing", "def another(x):\n    return x\n\n\ndef nothing")
    before, after = ({one.id: one for one in faults(text, "toy.py")} for text in (TOY, moved))
    assert set(before) <= set(after)
    assert all(after[name].line > one.line for name, one in before.items())
    elsewhere = {one.id for one in faults(TOY, "other.py")}
    assert not elsewhere & set(before)
    twice = [one for one in faults("def f(a):\n    return a + 1, a + 1\n", "f.py") if one.operator == "arithmetic"]
    assert [one.number for one in twice] == [0, 1]
    assert twice[0].id != twice[1].id


def project(tmp_path: Path) -> Path:
    """A project of one file with a good test, a test that sees nothing and a test that fails by itself."""
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "toys.py").write_text(
        textwrap.dedent(
            """
            def seen(a, b):
                return a + b

            def unseen(a, b):
                return a * b

            def endless(n):
                while n > 0:
                    n = n - 1
                return n
            """
        )
    )
    (root / "tests" / "test_toys.py").write_text(
        textwrap.dedent(
            """
            import toys

            def test_fails_by_itself():
                assert toys.seen(1, 1) == 3

            def test_seen():
                assert toys.seen(1, 2) == 3

            def test_unseen():
                assert toys.unseen(1, 1) == 1

            def test_endless():
                assert toys.endless(3) == 0
            """
        )
    )
    return root


def test_a_sample_is_fixed_by_its_seed(tmp_path: Path) -> None:
    root = project(tmp_path)
    found = mutants.all_faults(root, ["toys.py"])
    some = [[fault.id for fault in mutants.sample(root, found, 6, seed)] for seed in (1, 1, 2)]
    assert some[0] == some[1] != some[2]
    assert len(set(some[0])) == 6
    every = mutants.sample(root, found, 10_000, 1)
    assert {fault.id for fault in every} == {fault.id for fault in found["toys.py"]}
    assert len(every) == len(found["toys.py"])


RUN = """
import json, sys
from pathlib import Path
from recipes.mutants import sample as mutants
from recipes.mutants import run as mutants_run

root, folder = Path(sys.argv[1]), Path(sys.argv[2])
found = {fault.id: fault for fault in mutants.all_faults(root, ["toys.py"])["toys.py"]}
picked = [found[name] for name in sys.argv[3].split(",")]
said = []
results = mutants_run.run([(one, [["tests/test_toys.py"]]) for one in picked], root, folder, jobs=2, limit=6.0, said=said.append)
print(json.dumps([[[one.fault.id, one.status, one.test] for one in results], said]))
"""  # noqa: E501


def test_a_run_tells_what_is_seen(tmp_path: Path) -> None:
    """Killed, survived, and ended by the clock; a test that fails without a fault kills nothing; nothing is written
    beside."""
    root = project(tmp_path)
    by_change = {(fault.function, fault.after): fault for fault in mutants.all_faults(root, ["toys.py"])["toys.py"]}
    picked: list[Fault] = [
        by_change["seen", "a - b"],
        by_change["unseen", "a / b"],
        by_change["endless", "n + 1"],
        by_change["seen", "return a"],
    ]
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    made = subprocess.run(
        [sys.executable, "-c", RUN, str(root), str(tmp_path / "work"), ",".join(fault.id for fault in picked)],
        capture_output=True,
        text=True,
        check=False,
        cwd=mutants.ROOT,
    )
    assert made.returncode == 0, made.stderr
    results, said = json.loads(made.stdout.splitlines()[-1])
    assert [one[0] for one in results] == [fault.id for fault in picked]
    assert [one[1] for one in results] == ["killed", "survived", "killed by the clock", "killed"]
    assert [one[2] for one in results] == ["tests/test_toys.py::test_seen", "", "", "tests/test_toys.py::test_seen"]
    assert said
    assert set(said) == {"tests/test_toys.py::test_fails_by_itself fails without a fault too: it is left out."}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ("tests/test_a.py", ["one", "two[bert]", "three"]),
        ("tests/test_a.py:one,two", ["one", "two[bert]"]),
        ("tests/test_a.py:!one,two", ["three"]),
        ("tests/test_a.py::three", ["three"]),
        ("tests/test_b.py", []),
    ],
)
def test_which_tests_are_asked(asked: str, taken: list[str]) -> None:
    assert [
        name for name in ("one", "two[bert]", "three") if mutants_run.wanted(asked, f"tests/test_a.py::{name}")
    ] == taken


def told(file: str, status: str) -> Any:
    return mutants_run.Told(Fault(file, "f", "sign", "-a", "a", 0, 1, 0, 0, ""), status)


def test_the_score_leaves_equivalent_faults_out() -> None:
    results = [
        told("a.py", "killed"),
        told("a.py", "survived"),
        told("b.py", "killed by the clock"),
        told("b.py", "killed"),
    ]
    same = [told("b.py", "survived").fault]
    lines, share = mutants.score(results, same, {"a.py": "methods", "b.py": "show"})
    assert share == 0.75
    assert [line.split("|")[1:-1] for line in lines[2:]] == [
        [" methods ", " 2 ", " 1 ", " 0 ", " 1 ", " 0 ", " 1/2 = 50 % "],
        [" show ", " 3 ", " 2 ", " 1 ", " 0 ", " 1 ", " 2/2 = 100 % "],
        [" all ", " 5 ", " 3 ", " 1 ", " 1 ", " 1 ", " 3/4 = 75 % "],
    ]


def test_reviewed_faults_have_a_reason_and_are_missed_when_they_go(tmp_path: Path) -> None:
    root, path = project(tmp_path), tmp_path / "equivalent.json"
    entries = [
        {"file": "toys.py", "function": "unseen", "before": "a * b", "after": "a / b", "reason": "b is 1"},
        {"file": "toys.py", "function": "unseen", "before": "a ** b", "after": "a * b", "reason": "gone"},
        {"file": "gone.py", "function": "f", "before": "a", "after": "b", "reason": "gone"},
    ]
    path.write_text(json.dumps(entries))
    reviewed = mutants.reviewed(path)
    assert reviewed["toys.py", "unseen", "a * b", "a / b"] == "b is 1"
    assert [key[0:3:2] for key in mutants.stale(reviewed, root)] == [("toys.py", "a ** b"), ("gone.py", "a")]
    for wrong in ({**entries[0], "reason": ""}, {key: value for key, value in entries[0].items() if key != "reason"}):
        path.write_text(json.dumps([wrong]))
        with pytest.raises(SystemExit, match="a reason"):
            mutants.reviewed(path)
    assert mutants.reviewed(tmp_path / "none.json") == {}
    assert mutants.reviewed(mutants.EQUIVALENT) is not None


def test_every_file_is_in_an_area_or_left_out_with_a_reason() -> None:
    files = {path.relative_to(mutants.ROOT).as_posix() for path in (mutants.ROOT / "mixlens").rglob("*.py")}
    inside = mutants_tests.files_of(mutants.ROOT, list(mutants_tests.AREAS))
    outside = {file for file in files for pattern in mutants_tests.LEFT_OUT if fnmatch(file, pattern)}
    assert files - set(inside) == outside, "a new folder: add it to AREAS or to LEFT_OUT in recipes/mutants/tests.py"
    assert set(inside.values()) == set(mutants_tests.AREAS)
    assert all(mutants_tests.LEFT_OUT.values())
    for file, area in inside.items():
        assert mutants_tests.tests_of(file, area), file


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--list", "--area", "metrics", "--sample", "5", "--seed", "3"]) == 0
    lines = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "mixlens/" in line and not line.startswith("equivalent")
    ]
    assert len(lines) == 5
    assert all(line.split()[1].startswith(("mixlens/metrics/", "mixlens/experiments/")) for line in lines)
    assert mutants.main(["--only", "nothing"]) == 2
    assert "there is no fault 'nothing'" in capsys.readouterr().err
    for given in (["--sample", "0"], ["--area", "nowhere"]):
        with pytest.raises(SystemExit) as ended:
            mutants.main(given)
        assert ended.value.code == 2
