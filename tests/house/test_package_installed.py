"""The built wheel in clean environments, away from the source: the core alone, without a compiler; every extra
resolves.

    make package

builds what is installed here. It needs the package index of this machine, and minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "dist").glob("mixlens-*.whl"))
ARCHIVES = sorted((ROOT / "dist").glob("mixlens-*.tar.gz"))
EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
WHERE = "import json, sys, mixlens; json.dump([mixlens.__file__, mixlens.__version__], sys.stdout)"
# What a plain install must not bring: the library works without them, and says so where it cannot.
NOT_CORE = (
    "pandas",
    "scipy",
    "sklearn",
    "pyarrow",
    "datasets",
    "matplotlib",
    "fastapi",
    "ray",
    "igraph",
    "pytest",
    "mkdocs",
)

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("MIXLENS_SLOW"), reason="needs minutes and MIXLENS_SLOW=1, as `make package` sets it"
    ),
    pytest.mark.skipif(
        len(WHEELS) != 1 or len(ARCHIVES) != 1, reason="needs one wheel and one archive in dist/: make package"
    ),
]


@dataclass(frozen=True)
class Installed:
    """An environment and an empty home. `tools` is the only folder of the path beside the environment's own."""

    place: Path

    @property
    def programs(self) -> Path:
        return self.place / ("Scripts" if os.name == "nt" else "bin")

    def run(self, *words: str, code: int = 0) -> str:
        around = {
            "PATH": str(self.programs),
            "HOME": str(self.place / "home"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        where = self.place / "home"
        where.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP", "TMP") if name in os.environ}
        ran = subprocess.run(
            words, cwd=where, env={**kept, **around}, capture_output=True, text=True, check=False, timeout=600
        )
        assert ran.returncode == code, f"{words}: exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout + ran.stderr


def pip(python: Path, *words: str) -> str:
    asked = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-c",
        str(ROOT / "constraints.txt"),
        *words,
    ]
    around = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(asked, env=around, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout


def environment(place: Path) -> Installed:
    venv.create(place, with_pip=True)
    return Installed(place)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = environment(tmp_path_factory.mktemp("core") / "environment")
    pip(made.programs / "python", "--quiet", str(WHEELS[0]))
    return made


def test_the_core_alone_comes_from_the_wheel(core: Installed) -> None:
    place, version = json.loads(core.run("python", "-c", WHERE))
    assert Path(place).is_relative_to(core.place)
    assert version in WHEELS[0].name
    found = core.run(
        "python", "-c", f"from importlib.util import find_spec as f; print([n for n in {NOT_CORE!r} if f(n)])"
    )
    assert found.strip() == "[]"


def test_both_ways_to_start_it_explain_a_sentence_without_a_compiler(core: Installed) -> None:
    told = core.run("python", "-c", "import shutil; print([shutil.which(n) for n in ('cc', 'gcc', 'clang', 'cl')])")
    assert told.strip() == "[None, None, None, None]"
    sentence = "The keys to the cabinet [MASK] rusty."
    ways = [
        core.run("mixlens", "explain", sentence, "--json"),
        core.run("python", "-m", "mixlens", "explain", sentence, "--json"),
    ]
    first, second = map(json.loads, ways)
    assert first["tokens"][2] == "keys"
    assert first["scores"] == second["scores"]
    assert "identities" in core.run("mixlens", "check", "sentiment").lower() or "gap" in core.run(
        "mixlens", "check", "sentiment"
    )


def test_a_page_is_written_and_what_is_missing_is_said_in_one_line(core: Installed) -> None:
    core.run("mixlens", "report", "It was a dull film.", "-m", "sentiment", "--methods", "alti", "-o", "page.html")
    assert (core.place / "home/page.html").stat().st_size > 10_000
    told = core.run("mixlens", "plot", "It was a dull film.", "-m", "sentiment", "-o", "x.svg", code=2)
    assert "mixlens[plot]" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "pwsh"])
def test_shell_completion_is_there(core: Installed, shell: str) -> None:
    program = shutil.which("mixlens", path=str(core.programs))
    assert program is not None
    around = {"PATH": str(core.programs), "_MIXLENS_COMPLETE": f"source_{shell}"}
    ran = subprocess.run([program], env=around, cwd=core.place, capture_output=True, text=True, check=True)
    assert "_MIXLENS_COMPLETE" in ran.stdout
    assert "mixlens" in ran.stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_resolves(core: Installed, extra: str) -> None:
    said = pip(core.programs / "python", "--dry-run", f"mixlens[{extra}] @ {WHEELS[0].as_uri()}")
    assert "does not provide the extra" not in said


def test_the_archive_gives_the_same_package(core: Installed, tmp_path: Path) -> None:
    import zipfile

    asked = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*asked, "--wheel-dir", str(tmp_path), str(ARCHIVES[0])], check=True, cwd=tmp_path)
    with zipfile.ZipFile(WHEELS[0]) as ours, zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as theirs:
        left, right = (
            {one.filename: one.CRC for one in file.infolist() if ".dist-info/" not in one.filename}
            for file in (ours, theirs)
        )
    assert left == right
