"""Which tests run which line: the tests that can see a fault in it.

    python -m recipes.mutants.covering     # runs the suite once under coverage.py (half an hour on two cores)

The answer is kept in build/covering.json.gz and used by `python -m recipes.mutants` where it is there. A line is known
by its function and its text, so that the file serves while other lines move. Code that tests run in other processes is
not seen: a fault on a line that no test runs in its own process meets the tests that recipes/mutants/tests.py names for
the file.
"""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..sources import parsed
from .faults import Fault

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "covering.json.gz"
STAGES = (6.0, 20.0, 60.0)  # seconds of tests; a fault that survives the tests of one stage meets those of the next
LEFT_OUT = ("tests/show/test_browser", "tests/corpus/test_run_ray.py")  # each test starts a browser or a cluster
FILES = 6  # files of tests in the first stage; collecting a file takes time of its own
FOLDER = "MIXLENS_COVERING"  # the variable that tells recipes.mutants.recorder where to write
DURATION = re.compile(r"^\s*([\d.]+)s (call|setup)\s+(\S.*\S|\S)\s*$")


@dataclass(frozen=True)
class Covering:
    """Tests by file and function, and by the text of a line in it; and the seconds that a test takes."""

    functions: Mapping[str, Sequence[str]]
    lines: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]

    @cached_property
    def files(self) -> frozenset[str]:
        """The files of tests that were run."""
        return frozenset(test.split("::", 1)[0] for test in self.seconds)

    @cached_property
    def breadth(self) -> Mapping[str, int]:
        """How many functions each test runs."""
        return Counter(test for some in self.functions.values() for test in some)

    def tests(self, fault: Fault, source: str) -> list[str]:
        """The tests that run the line of a fault; those of its function where the line is new. Those that run little
        else come first: they say most about it."""
        text = source.splitlines()[fault.line - 1].strip()
        whole = f"{fault.file}::{fault.function}"
        found = self.lines.get(f"{whole}::{text}") or self.functions.get(whole, ())
        return in_turn(found, self.breadth)

    def stages(self, fault: Fault, source: str, others: Sequence[str]) -> list[list[str]]:
        """The tests of a fault in groups, each with about the seconds of its stage. `others`: the tests to run instead
        where no test is known to run the line."""
        found = self.tests(fault, source)
        if not found:
            return [list(others)]
        groups: list[list[str]] = []
        left = found
        for limit in STAGES:
            group, left = within(left, limit, self.seconds, FILES if limit == STAGES[0] else 3 * FILES)
            if group:
                groups.append(group)
        return groups


def in_turn(tests: Iterable[str], cost: Mapping[str, float]) -> list[str]:
    """The cheapest case of every test function, then the second case of every one, and so on."""
    cases: defaultdict[str, list[str]] = defaultdict(list)
    for test in sorted(set(tests), key=lambda one: (cost.get(one, 0), one)):
        cases[test.split("[", 1)[0]].append(test)
    turn = {test: number for some in cases.values() for number, test in enumerate(some)}
    return sorted(turn, key=lambda one: (turn[one], cost.get(one, 0), one))


def within(tests: Sequence[str], limit: float, seconds: Mapping[str, float], files: int) -> tuple[list[str], list[str]]:
    """The first tests that fit into the limit, of so many files; and the rest. One test is always taken."""
    taken: list[str] = []
    rest: list[str] = []
    spent, used = 0.0, set[str]()
    for test in tests:
        file, cost = test.split("::", 1)[0], seconds.get(test, 0.1)
        fits = not taken or (spent + cost <= limit and (file in used or len(used) < files))
        (taken if fits else rest).append(test)
        if fits:
            spent += cost
            used.add(file)
    return taken, rest


def read(path: Path = KEPT) -> Covering | None:
    if not path.is_file():
        return None
    with gzip.open(path, "rt") as stream:
        told = json.load(stream)
    names = told["tests"]
    functions, lines = (
        {key: [names[one] for one in some] for key, some in told[part].items()} for part in ("functions", "lines")
    )
    return Covering(functions, lines, dict(zip(names, told["seconds"], strict=True)))


def write(path: Path, covering: Covering) -> None:
    names = sorted({*covering.seconds, *(test for some in covering.functions.values() for test in some)})
    number = {name: place for place, name in enumerate(names)}
    told = {
        "tests": names,
        "seconds": [round(covering.seconds.get(name, 0.1), 3) for name in names],
        "functions": {key: [number[one] for one in some] for key, some in covering.functions.items()},
        "lines": {key: [number[one] for one in some] for key, some in covering.lines.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        json.dump(told, stream)


def functions_of(source: str) -> Iterator[tuple[str, int, int]]:
    """The name, the first and the last line of every function, with its classes and functions around; inner ones
    last."""

    def walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*scope, child.name)
                if not isinstance(child, ast.ClassDef):
                    assert child.end_lineno is not None
                    yield ".".join(inner), child.lineno, child.end_lineno
            yield from walk(child, inner)

    yield from walk(parsed(source), ())


Runs = Mapping[
    str, Mapping[int, Sequence[str]]
]  # by file and line: the tests that ran it, each followed by |setup or |run


def from_runs(runs: Runs, root: Path, seconds: Mapping[str, float]) -> Covering:
    """What a fixture of a file runs counts for every test of that file."""
    functions: defaultdict[str, set[str]] = defaultdict(set)
    lines: defaultdict[str, set[str]] = defaultdict(set)
    by_file = tests_by_file(runs)
    for file, contexts_of in runs.items():
        source = (root / file).read_text()
        texts = [text.strip() for text in source.splitlines()]
        function_of: dict[int, str] = {}
        for name, first, last in functions_of(source):
            function_of |= dict.fromkeys(range(first, last + 1), name)
        for line in sorted(set(contexts_of) & set(function_of)):
            tests = set(tests_named(contexts_of[line], by_file))
            functions[f"{file}::{function_of[line]}"] |= tests
            lines[f"{file}::{function_of[line]}::{texts[line - 1]}"] |= tests
    return Covering(
        {key: sorted(some) for key, some in functions.items()},
        {key: sorted(some) for key, some in lines.items()},
        seconds,
    )


def tests_by_file(runs: Runs) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for context in {context for contexts_of in runs.values() for some in contexts_of.values() for context in some}:
        test, bar, _ = context.rpartition("|")
        if bar:
            found[test.split("::", 1)[0]].add(test)
    return dict(found)


def tests_named(contexts: Iterable[str], by_file: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for context in contexts:
        test, _, when = context.rpartition("|")
        if test.startswith(LEFT_OUT):
            continue
        if when == "run":
            yield test
        elif when == "setup":
            yield from by_file[test.split("::", 1)[0]]


def merged(folder: Path, root: Path) -> Runs:
    """What the processes wrote, by path from the root."""
    runs: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for part in sorted(folder.glob("*.json")):
        for file, contexts_of in json.loads(part.read_text()).items():
            for line, contexts in contexts_of.items():
                runs[Path(file).relative_to(root).as_posix()][int(line)] += contexts
    return runs


def seconds_told(log: str) -> dict[str, float]:
    """The seconds of each test, from the table that `--durations=0` prints."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in log.splitlines():
        if told := DURATION.match(line):
            found[told[3]] += float(told[1])
    return dict(found)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="covering-") as folder:
        asked = ["-p", "recipes.mutants.recorder", "--durations=0", "--durations-min=0", "-vv"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "2", "-q", *asked],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", FOLDER: folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            print(ran.stdout[-3000:] + ran.stderr[-3000:], file=sys.stderr)
        write(KEPT, from_runs(merged(Path(folder), ROOT), ROOT, seconds_told(ran.stdout)))
    print(f"{KEPT.relative_to(ROOT)} is written." + (" Some tests failed: they are above." if ran.returncode else ""))
    return int(ran.returncode > 0)


if __name__ == "__main__":
    sys.exit(main())
