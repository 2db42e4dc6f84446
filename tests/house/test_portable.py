"""The suite itself is the same on every machine: no clock decides, and whoever reads a skip knows what would run the
test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from recipes.sources import parsed

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.Call | ast.Assert]:
    """The calls and assertions of a file."""
    return [node for node in ast.walk(parsed(path.read_text())) if isinstance(node, ast.Call | ast.Assert)]


def calls(path: Path, *names: str) -> list[ast.Call]:
    """Calls of `pytest.name(...)` and `pytest.mark.name(...)` in a file."""
    found = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
    return [node for node in found if isinstance(node.func, ast.Attribute) and node.func.attr in names]


def test_hypothesis_does_not_mind_a_slow_machine() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    for path in FILES:
        for call in calls(path, "settings") + [
            node
            for node in nodes_of(path)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "settings"
        ]:
            for keyword in call.keywords:
                place = f"{path.name}:{call.lineno}"
                assert keyword.arg != "deadline" or ast.literal_eval(keyword.value) is None, place
                assert keyword.arg != "suppress_health_check" or "too_slow" in ast.unparse(keyword.value), place


def test_every_skip_says_what_would_run_the_test() -> None:
    reasons = []
    for path in FILES:
        for call in calls(path, "skip", "skipif", "importorskip"):
            told = next((word.value for word in call.keywords if word.arg == "reason"), None)
            if call.func.attr == "skip" and call.args:  # type: ignore[attr-defined]
                told = call.args[0]
            if told is None:
                assert call.func.attr == "importorskip", f"{path.name}:{call.lineno}: no reason"  # type: ignore[attr-defined]
                continue
            assert isinstance(told, ast.Constant), f"{path.name}:{call.lineno}: write the reason out"
            reasons.append((f"{path.name}:{call.lineno}", str(told.value)))
    assert len(reasons) > 10
    assert [(place, reason) for place, reason in reasons if not reason.startswith("needs ")] == []


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test_one():\n    pytest.importorskip('no_such_package')\n"
    )
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    for name in ("no_such_package", "no_such_module"):
        (line,) = [line for line in told.splitlines() if line.startswith("SKIPPED") and name in line]
        assert "`make test` installs it" in line


@pytest.mark.parametrize("name", ["perf_counter", "monotonic", "time.time("])
def test_no_assertion_of_the_suite_compares_a_time_with_a_limit(name: str) -> None:
    """`assert time... < 10` fails on a busy machine; limits that only end a wait (`deadline`, `timeout`) are another
    matter."""
    for path in FILES:
        if name not in path.read_text() or path.name == Path(__file__).name:
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Assert):
                assert name not in ast.unparse(node.test), f"{path.name}:{node.lineno}"


# --- packages ---------------------------------------------------------------------------------------------------------

ROOT = TESTS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_A_GPU = ("nvidia-", "cuda-", "triton")  # come with torch where it is built for GPUs


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> set[str]:
    """The packages of the extra `dev` and all that they need, as far as they are installed."""
    from packaging.requirements import Requirement

    extras = PROJECT["optional-dependencies"]
    waiting = [
        Requirement(one) for one in [*PROJECT["dependencies"], *(one for some in extras.values() for one in some)]
    ]
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        key = plain(one.name), frozenset(one.extras)
        if key in found or key[0] == "mixlens":
            continue
        try:
            inside = metadata.requires(one.name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(key)
        for told in map(Requirement, inside):
            if told.marker is None or any(told.marker.evaluate({"extra": extra}) for extra in (*one.extras, "")):
                waiting.append(told)
    return {name for name, _ in found}


def test_every_package_that_is_needed_has_its_exact_version() -> None:
    pinned = {
        plain(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    names = {name for name in needed() if not name.startswith(OF_A_GPU)}
    assert {"torch", "transformers", "numpy"} <= names
    assert names - pinned - {"setuptools"} == set()


def test_the_versions_of_python_are_told_once_and_alike() -> None:
    from packaging.specifiers import SpecifierSet

    allowed = SpecifierSet(PROJECT["requires-python"])
    told = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert told == [f"3.{minor}" for minor in range(5, 30) if f"3.{minor}" in allowed]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in told


def test_exact_versions_are_within_the_ranges() -> None:
    from packaging.requirements import Requirement

    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    exact = {plain(name): version for name, version in pins.items()}
    some = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    for one in map(Requirement, some):
        if one.name != "mixlens":
            assert exact[plain(one.name)] in one.specifier, str(one)


def test_each_dependency_is_told_once() -> None:
    page = (ROOT / "docs/promises/dependencies.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line[:2] == "| "]
    told = [
        (name.strip(), (re.findall(r"`(\w+)`", row) or [""])[0])
        for row in rows
        for name in row.split(" (")[0].split(",")
    ]
    assert len(rows) > 15
    assert [one for one in told if told.count(one) > 1] == []


# --- make -------------------------------------------------------------------------------------------------------------


def test_make_test_portable_runs_files_that_are_there_and_ci_runs_it() -> None:
    made = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    named = re.search(r"TESTED := \$\(addprefix tests/,([^)]*)\)", made)
    assert named is not None
    files = named[1].split()
    core = ("golden", "methods", "families", "distances", "hta", "lrp", "deeplift")
    assert {f"test_{name}.py" for name in core} <= {Path(file).name for file in files}
    assert [file for file in files if not (TESTS / file).is_file()] == []
    assert (ROOT / ".ci/run").read_text().splitlines()[-2:] == ["make test", "make test-portable"]
