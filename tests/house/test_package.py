"""What is built: a wheel with all that the package needs, a source archive with docs and tests, and metadata that an
index takes.

`make package` builds both with `build`, checks them with `twine`, and installs them
(tests/house/test_package_installed.py).
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import mixlens

ROOT = Path(mixlens.__file__).parents[1]
BUILD = "from setuptools import build_meta as b; print(b.build_sdist('dist')); print(b.build_wheel('dist'))"
LEFT_OUT = shutil.ignore_patterns(".[!cg]*", ".git", "__pycache__", "*.egg-info", "build", "dist", "node_modules")
UNSET = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # setuptools tells of the second
NOT_IN_ALL = {"all", "dev", "ray", "readers", "browser", "site", "package"}  # docs/extend/release.md says why
IN_THE_ARCHIVE = (
    *(
        ".ci/run",
        ".github/workflows/tests.yml",
        "constraints.txt",
        "Makefile",
        "mkdocs.yml",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    ),
    *(
        "docs/use/run.md",
        "tests/conftest.py",
        "recipes/site/hooks.py",
        "notebooks/first_steps.ipynb",
        "mixlens/cli/app.py",
    ),
)


@dataclass(frozen=True)
class Built:
    source: Path
    said: str
    wheel: Path
    archive: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77: pip install 'setuptools>=77'")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("needs a checkout: the source beside the package")
    place = shutil.copytree(ROOT, tmp_path_factory.mktemp("package") / "source", ignore=LEFT_OUT)
    around = {key: value for key, value in os.environ.items() if key not in UNSET}
    ran = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=place, env=around, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (wheel,), (archive,) = (list((place / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    return Built(place, ran.stdout + ran.stderr, wheel, archive)


def test_setuptools_has_nothing_to_warn_of(built: Built) -> None:
    assert re.findall(r".*(?:[Ww]arning|absent from the `packages`|Deprecat).*", built.said) == []


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as file:
        inside = {name for name in file.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(built.source).as_posix() for path in (built.source / "mixlens").rglob("*") if path.is_file()
    }
    assert inside == package
    assert built.wheel.name.endswith("-py3-none-any.whl")  # no compiler was needed: the C loops are source


def test_the_archive_holds_what_whoever_builds_and_tests_it_needs(built: Built) -> None:
    with tarfile.open(built.archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert [needed for needed in IN_THE_ARCHIVE if needed not in names] == []
    assert not {name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so"))}


def test_metadata_are_what_an_index_takes(built: Built) -> None:
    """As `twine check --strict` asks, and each field by its own rule."""
    from packaging.metadata import Metadata

    with zipfile.ZipFile(built.wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        (entries,) = [file.read(one).decode() for one in file.namelist() if one.endswith("entry_points.txt")]
        raw = file.read(name)
    told = Metadata.from_email(raw, validate=True)
    assert (told.name, str(told.version), told.license_expression) == ("mixlens", mixlens.__version__, "Apache-2.0")
    assert email.message_from_bytes(raw)["Description-Content-Type"].startswith("text/markdown")
    assert told.description is not None
    assert told.description.startswith("# mixlens")
    assert "mixlens = mixlens.__main__:main" in entries


def test_all_is_every_extra_that_a_user_may_want() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r"mixlens\[(.*)\]", extras["all"][0])
    assert set(named.split(",")) == set(extras) - NOT_IN_ALL


def test_every_link_of_the_readme_is_one_of_the_archive(built: Built) -> None:
    with tarfile.open(built.archive) as file:
        names = {name.partition("/")[2].rstrip("/") for name in file.getnames()}
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if "://" not in link and link.rstrip("/") not in names] == []


def test_the_changelog_begins_with_this_version_or_the_next() -> None:
    from packaging.version import Version

    heads = re.findall(r"^## (\S+)(?: \((.+)\))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [Version(version) for version, _ in heads]
    assert versions == sorted(versions, reverse=True)
    assert len(set(versions)) == len(versions)
    assert versions[0] >= Version(mixlens.__version__)
    assert [
        told for version, told in heads if told == "unreleased" and Version(version) <= Version(mixlens.__version__)
    ] == []
