"""Every path of a page that anything in the project names is there, and every link between pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("mixlens", "recipes", "benchmarks", "tests", "docs", "notebooks")
KINDS = (".py", ".md", ".ipynb", ".json", ".js", ".html")
ALONE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "MANIFEST.in")
NAMED = re.compile(r"(?<![\w/.])docs/[\w/.-]*\w\.(?:md|svg)")
FILE = re.compile(r"(?<![\w/.])(?:mixlens|tests|recipes|benchmarks)/[\w/]+\.(?:py|c)\b")
SHORT = re.compile(r"`((?:[a-z_]+/)+\w+\.(?:py|c))`")  # of a file of the package, without "mixlens/"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#([^)\s]+))?\)")


def texts() -> list[Path]:
    inside = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS and path.is_file()
    ]
    return [*inside, *(ROOT / name for name in ALONE)]


def anchors(page: str) -> set[str]:
    """The names under which the headings of a page are reached."""
    heads = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_every_page_that_is_named_is_there() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts()
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    }
    assert not missing


PAGES = [ROOT / name for name in ALONE if name.endswith(".md")] + sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """But for the changelog, which names files as they were."""
    named = set() if page.name == "CHANGELOG.md" else set(FILE.findall(page.read_text()))
    missing = {name for name in named if not (ROOT / name).exists()}
    if page.name == "architecture.md":
        short = set(SHORT.findall(page.read_text()))
        missing |= {name for name in short if not (ROOT / "mixlens" / name).exists() and not (ROOT / name).exists()}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        place = page.parent / target
        assert place.exists(), target
        assert not anchor or anchor in anchors(place.read_text()), f"{target}#{anchor}"


def test_every_page_is_listed() -> None:
    """The menu of the site names each page under docs/."""
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"[\w/-]+\.md", menu))
    assert named == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
