"""What is built holds all that is needed: folders of data in the package; docs, tests and versions in the source archive."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import mixlens

ROOT = Path(mixlens.__file__).parents[1]
BUILD = "from setuptools import build_meta as b; print(b.build_sdist('dist')); print(b.build_wheel('dist'))"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules")


def test_archive_and_wheel_hold_what_they_must(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77: pip install 'setuptools>=77'")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("needs a checkout: the source beside the package")
    place = shutil.copytree(ROOT, tmp_path / "source", ignore=LEFT_OUT)
    around = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run([sys.executable, "-c", BUILD], cwd=place, env=around, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "absent from the `packages` configuration" not in ran.stdout + ran.stderr
    (wheel,), (archive,) = (list((place / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
    package = {path.relative_to(place).as_posix() for path in (place / "mixlens").rglob("*") if path.is_file()}
    assert package <= inside
    assert not {name for name in inside if name.startswith(("tests/", "docs/"))}
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for needed in (
        "constraints.txt",
        "Makefile",
        "pyproject.toml",
        "README.md",
        "docs/use/run.md",
        "tests/conftest.py",
        "mixlens/cli/app.py",
    ):
        assert needed in names
