"""What macOS and Windows do otherwise, as far as one machine can show it: no fork, other locks, paths, encodings and
consoles."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
import types
from pathlib import Path, PureWindowsPath

import pytest

import mixlens
from mixlens.base import errors, files
from mixlens.fast.loops import cpu
from recipes.sources import parsed

PACKAGE = Path(mixlens.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# Names of modules and functions that only POSIX has. `fcntl` is used behind a test of the platform.
POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "syslog"}
CALLS = {
    "fork",
    "forkpty",
    "killpg",
    "getpgid",
    "setsid",
    "mkfifo",
    "getuid",
    "geteuid",
    "statvfs",
    "sched_getaffinity",
    "uname",
    "sync",
}
TEXT = {"open", "read_text", "write_text"}


def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path.read_text(encoding="utf-8"))))


def test_modules_of_posix_alone_are_imported_in_one_place() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name.name)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name in POSIX
    }
    assert found == {("base/files.py", "fcntl")}


def test_no_call_that_windows_lacks_is_made_without_a_look() -> None:
    """`os.getuid` is read where `hasattr` says that it is there."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in CALLS
    }
    assert found == {("fast/loops/compiled.py", "getuid")}
    assert 'hasattr(os, "getuid")' in (PACKAGE / "fast/loops/compiled.py").read_text(encoding="utf-8")


def without_encoding(source: str) -> list[int]:
    """Lines that open a text file and leave its encoding to the machine."""
    wrong = []
    for node in ast.walk(parsed(source)):
        if (
            isinstance(node, ast.Call)
            and _name(node) in TEXT
            and not any(word.arg == "encoding" for word in node.keywords)
        ):
            modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            binary = any("b" in mode and len(mode) <= 3 for mode in modes)
            own = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in (
                "os.open",
                "webbrowser.open",
                "Image.open",
            )
            if not (binary or own):
                wrong.append(node.lineno)
    return wrong


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_every_text_file_is_opened_with_its_encoding() -> None:
    """Windows reads text as code page 1252 unless it is told. Files of Linux and of Ray alone are left out."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), line)
        for path in MODULES
        for line in without_encoding(path.read_text("utf-8"))
    }
    assert {name for name, _ in found} <= {"fast/loops/cpu.py", "runs/corpus/ray_connect.py"}
    assert without_encoding("open('x')\nopen('x', 'rb')\nPath('x').read_text()\nopen('x', encoding='utf-8')") == [1, 3]


# --- locks and renames ------------------------------------------------------------------------------------------------


class Msvcrt(types.ModuleType):
    """The lock of Windows: one holder of a file; another try is refused as Windows refuses it."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: set[tuple[int, int]] = set()

    def locking(self, file: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        facts = os.fstat(file)
        key = facts.st_dev, facts.st_ino
        if key in self.held:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.held.add(key)


def test_windows_takes_a_lock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    first, second = files.RunFolder(tmp_path / "run"), files.RunFolder(tmp_path / "run")
    with first.held(), pytest.raises(errors.InputError, match="another run is writing"), second.held():
        pass


def test_windows_tries_again_where_a_scanner_has_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    own = os.replace

    def busy(beside: Path, place: Path) -> None:
        asked.append(place)
        if len(asked) < 3:
            raise PermissionError(errno.EACCES, "in use")
        own(beside, place)

    monkeypatch.setattr(files, "WAITS", (0, 0, 0))
    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "new").write_text("x", encoding="utf-8")
    with pytest.raises(PermissionError):  # elsewhere a refusal means what it says
        files.move(tmp_path / "new", tmp_path / "place")
    beside, place = tmp_path / "new", tmp_path / "place"
    with monkeypatch.context() as windows:  # ends before pytest makes a path
        windows.setattr(files.os, "name", "nt")
        files.move(beside, place)
    assert (tmp_path / "place").read_text(encoding="utf-8") == "x"
    assert len(asked) == 3


def test_no_loops_are_compiled_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as windows:
        windows.setattr(cpu.os, "name", "nt")
        found = cpu._compiler()
    assert found is None


# --- consoles, paths, processes ---------------------------------------------------------------------------------------


def command(*words: str, **around: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "PYTHONPATH": str(PACKAGE.parent), **around}
    return subprocess.run([sys.executable, "-m", "mixlens", *words], env=env, capture_output=True, check=False)


def test_a_console_of_code_page_1252_shows_an_answer() -> None:
    ran = command(
        "why",
        "The café was dull, but the acting was wonderful — truly.",
        PYTHONIOENCODING="cp1252:strict",
        PYTHONUTF8="0",
    )
    assert ran.returncode == 0, ran.stderr.decode("cp1252")
    shown = ran.stdout.decode("cp1252")
    assert "because of" in shown
    assert "####" in shown  # bars, in letters that the code page has
    assert "é" in shown


def test_a_folder_of_windows_is_named_by_its_last_part() -> None:
    assert PureWindowsPath(r"C:\models\my model").name == "my model"
    told = command("why", "x", "-m", r"C:\models\none").stderr.decode()
    assert told.startswith("mixlens: cannot load")
    assert len(told.splitlines()) == 1


def test_the_workflows_run_what_is_there() -> None:
    """Each file parses; every path, target and extra that a step names exists; the versions of Python are the
    project's."""
    import re
    import tomllib

    yaml = pytest.importorskip("yaml")
    root = PACKAGE.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = re.findall(r"^([\w-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    places = sorted((root / ".github/workflows").glob("*.yml"))
    assert {place.stem for place in places} == {"lint", "tests", "package", "site"}
    for place in places:
        jobs = yaml.safe_load(place.read_text(encoding="utf-8"))["jobs"]
        for job in jobs.values():
            versions = job.get("strategy", {}).get("matrix", {}).get("python")
            assert versions in (
                None,
                [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one],
            )
            for step in job["steps"]:
                run = step.get("run", "")
                assert [name for name in re.findall(r"tests/[\w/.]+", run) if not (root / name).exists()] == []
                assert [
                    name
                    for some in re.findall(r"\.\[([\w,]+)\]", run)
                    for name in some.split(",")
                    if name not in project["optional-dependencies"]
                ] == []
                assert not run.startswith("make") or run.split()[-1] in targets
