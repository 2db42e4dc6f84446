"""Runs tests on a copy of the tree with one fault in it, in a process of its own that is forked from one with torch
loaded.

For `recipes.mutants`. The working tree is only read.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .faults import Fault

IGNORED = (".git", ".venv", "__pycache__", ".hypothesis", ".*_cache", ".browser", "build", "dist", "*.egg-info")
FAMILIES = (
    "bert",
    "roberta",
    "electra",
    "distilbert",
    "albert",
    "modernbert",
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "opt",
    "llama",
)
MORE_FAMILIES = (
    *("mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "olmo2", "camembert", "xlm_roberta"),
    *(
        "arcee",
        "biogpt",
        "cohere",
        "cohere2",
        "ernie",
        "ernie4_5",
        "glm",
        "glm4",
        "gpt_bigcode",
        "gptj",
        "ministral",
        "nemotron",
    ),
    *("nomic_bert", "olmo", "olmo3", "phi", "roberta_prelayernorm", "smollm3", "stablelm", "starcoder2"),
)
# What a test would wait for. Nothing of the project itself: each process imports the copy that it tests.
PRELOADED = (
    *("numpy", "torch", "transformers", "transformers.models.auto.modeling_auto", "safetensors.torch"),
    *(f"transformers.models.{name}.modeling_{name}" for name in (*FAMILIES, *MORE_FAMILIES)),
    *("scipy.stats", "sklearn.metrics", "sklearn.linear_model", "pandas", "hypothesis.strategies", "_pytest.python"),
)
NO_TESTS = 5  # pytest's word for it
POLL = 0.05


@dataclass
class Told:
    """What the tests said of one fault."""

    fault: Fault
    status: str  # "killed", "killed by the clock" or "survived"
    test: str = ""
    seconds: float = 0.0


@dataclass
class Outcome:
    code: int  # pytest's; minus the signal that ended the process
    failed: str = ""  # the first test that failed, or the file that could not be collected
    order: list[str] = field(default_factory=list)  # the tests, as they ran
    late: bool = False


class Selection:
    """A pytest plugin: takes the tests that are asked for, up to `until`, and writes down which and the first that
    fails."""

    def __init__(self, asked: Sequence[str], spared: Sequence[str], until: str, told: Path):
        self.asked, self.spared, self.until, self.told = asked, spared, until, told

    def files(self) -> list[str]:
        return list(dict.fromkeys(one.split(":", 1)[0] for one in self.asked))

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        ordered: dict[str, Any] = {}
        for one in self.asked:
            for item in items:
                if item.nodeid not in self.spared and wanted(one, item.nodeid):
                    ordered.setdefault(item.nodeid, item)
        names = list(ordered)
        if self.until in ordered:
            names = names[: names.index(self.until) + 1]
        items[:] = [ordered[name] for name in names]
        self.told.with_name("order").write_text("\n".join(names))

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self.told.exists():
            self.told.write_text(report.nodeid)


def wanted(asked: str, nodeid: str) -> bool:
    """Whether `FILE`, `FILE:a,b`, `FILE:!a,b` or `FILE::test` names a test."""
    if "::" in asked:
        return asked == nodeid
    file, _, words = asked.partition(":")
    if nodeid.split("::", 1)[0] != file:
        return False
    name = nodeid.split("::", 1)[1]
    if not words:
        return True
    found = any(word in name for word in words.lstrip("!").split(","))
    return found != words.startswith("!")


def preload(names: Sequence[str] = PRELOADED) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Place:
    """One copy of the tree, for one fault at a time."""

    def __init__(self, root: Path, folder: Path, limit: float):
        self.root, self.tree, self.folder, self.limit = root, folder / root.name, folder, limit
        shutil.copytree(root, self.tree, ignore=shutil.ignore_patterns(*IGNORED))
        if (root.parent / "shared").is_dir():  # what lies beside the project lies beside its copy
            (folder / "shared").symlink_to(root.parent / "shared")

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        path = self.tree / fault.file
        whole = (self.root / fault.file).read_text()
        path.write_text(fault.applied(whole))
        try:
            yield
        finally:
            path.write_text(whole)


class Running:
    """Tests in a forked process, with a limit on its time."""

    result: Outcome  # once it has ended

    def __init__(
        self, place: Place, asked: Sequence[str], spared: Sequence[str], *, until: str = "", only_read: bool = False
    ):
        """`until`: the last test to run. `only_read`: the tests are collected, none is run."""
        self.told = place.folder / "failed"
        for name in ("failed", "order"):
            (place.folder / name).unlink(missing_ok=True)
        self.limit, self.started = place.limit, time.monotonic()
        assert "mixlens" not in sys.modules, "each process imports the copy that it tests"
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _test(place, Selection(asked, spared, until, self.told), only_read)

    def ended(self) -> Outcome | None:
        """How it ended, or None while it runs. Past its limit it is ended, with all that it has started."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return self._outcome(os.waitstatus_to_exitcode(status))
        if time.monotonic() - self.started < self.limit:
            return None
        self.kill()
        return Outcome(-signal.SIGKILL, late=True)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _outcome(self, code: int) -> Outcome:
        order = self.told.with_name("order")
        failed = self.told.read_text() if self.told.exists() else ""
        return Outcome(code, failed, order.read_text().split("\n") if order.exists() else [])


def _test(place: Place, selection: Selection, only_read: bool) -> None:
    """In the forked process: pytest on the copy; never returns."""
    code = 3
    try:
        os.setsid()
        out = os.open(place.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(place.tree)
        here = {"", str(place.root), str(Path.cwd())}
        sys.path[:] = [str(place.tree), *(path for path in sys.path if path not in here)]
        sys.dont_write_bytecode = True  # a file is changed more often than its time stamp can tell
        os.environ |= {"PYTHONPATH": str(place.tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        for name in [name for name in sys.modules if name.split(".")[0] == "recipes"]:
            del sys.modules[name]
        import pytest

        given = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        if importlib.util.find_spec("hypothesis"):
            given.append("--hypothesis-seed=0")
        if only_read:
            given.append("--collect-only")
        code = int(pytest.main([*given, *selection.files()], plugins=[selection]))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(
    faults: Sequence[tuple[Fault, Sequence[Sequence[str]]]],
    root: Path,
    folder: Path,
    *,
    jobs: int = 2,
    limit: float = 600.0,
    told: Callable[[Told], None] = lambda one: None,
    said: Callable[[str], None] = lambda line: None,
) -> list[Told]:
    """Each fault with the tests for it, in groups: the next group is run where the fault survives the last. A test that
    kills is run without the fault too, after the same tests as before: one that fails all the same says nothing of the
    fault, is named, and left out from then on."""
    waiting, found = list(faults), dict[str, Told]()
    spared: list[str] = []
    fine: set[str] = set()  # tests known to pass without a fault, or with another
    places = [Place(root, folder / f"copy{number}", limit) for number in range(max(1, min(jobs, len(waiting))))]
    busy: list[tuple[Place, Any]] = []

    def work(place: Place, fault: Fault, groups: Sequence[Sequence[str]]) -> Iterator[Running]:
        started = time.monotonic()
        for tests in groups:
            outcome = yield from attempt(place, fault, tests)
            if outcome.code != 0:
                break
        status = "survived" if outcome.code == 0 else "killed by the clock" if outcome.late else "killed"
        found[fault.id] = Told(fault, status, outcome.failed, round(time.monotonic() - started, 1))
        told(found[fault.id])

    def attempt(place: Place, fault: Fault, tests: Sequence[str]) -> Generator[Running, None, Outcome]:
        while True:
            with place.with_fault(fault):
                running = Running(place, tests, spared)
                yield running
                outcome = running.result
            if outcome.code == NO_TESTS:
                raise RuntimeError(f"no test is selected by {' '.join(tests)} for {fault.file}.")
            if outcome.code > 0 and not outcome.failed:  # neither a test nor a file of tests failed, but pytest itself
                raise RuntimeError(
                    f"pytest could not run for {fault.file}:\n{(place.folder / 'output').read_text()[-3000:]}"
                )
            if outcome.code == 0:
                fine.update(outcome.order)
            if outcome.code == 0 or outcome.late or not outcome.failed or outcome.failed in fine:
                return outcome
            if outcome.failed in spared:  # another fault has shown meanwhile that it fails without one
                continue
            if "::" in outcome.failed:
                again = Running(place, tests, spared, until=outcome.failed)
            else:  # a file that could not be read
                again = Running(place, [outcome.failed], (), only_read=True)
            yield again
            if again.result.code == 0:
                fine.update({outcome.failed, *again.result.order})
                return outcome
            outcome.failed = again.result.failed or outcome.failed
            said(f"{outcome.failed} fails without a fault too: it is left out.")
            spared.append(outcome.failed)

    def step(place: Place, process: Iterator[Running]) -> None:
        running = next(process, None)
        if running is not None:
            busy.append((place, (process, running)))
        elif waiting:
            step(place, work(place, *waiting.pop(0)))

    try:
        for place in places:
            if waiting:
                step(place, work(place, *waiting.pop(0)))
        while busy:
            place, (process, running) = busy.pop(0)
            outcome = running.ended()
            if outcome is None:
                busy.append((place, (process, running)))
                time.sleep(POLL)
            else:
                running.result = outcome
                step(place, process)
    finally:
        for _, (_, running) in busy:
            running.kill()
    return [found[fault.id] for fault, _ in faults]


def write(path: Path, results: Sequence[Told]) -> None:
    """One line of JSON for each fault."""
    lines = [
        json.dumps(
            {
                "id": one.fault.id,
                "status": one.status,
                "test": one.test,
                "seconds": one.seconds,
                **{
                    name: getattr(one.fault, name)
                    for name in ("file", "line", "function", "operator", "before", "after")
                },
            }
        )
        for one in results
    ]
    path.write_text("\n".join(lines) + "\n")
