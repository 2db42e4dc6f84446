"""The site builds strictly, every link and anchor of it leads somewhere, and it asks no other host for anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import mixlens

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from recipes.pages import accuracy  # noqa: E402
from recipes.site import commands, origin  # noqa: E402

FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("link", "href"),
}  # what a browser asks for
GENERATED = {  # pages that a command writes
    *("use/methods.md", "use/gallery.md", "use/papers.md", "measured/performance.md"),
    *(
        f"measured/results/{name}.md"
        for name in ("README", "alti", "globenc", "value-zeroing", "identifiability", "attcat", "agreement")
    ),
}
BUILT = {"reference/commands.md", "reference/python.md", "reference/values.md", "reference/metrics.md"}


# --- a page, as a browser reads it ------------------------------------------------------------------------------------


@dataclass
class Page(HTMLParser):
    """What a page links to, what it fetches, and the anchors it has."""

    links: set[str] = field(default_factory=set)
    fetched: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")
            elif (tag, name) in FETCHED:
                self.fetched.add(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.add(value or "")


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def dead(site: Path) -> list[str]:
    """Links, anchors and fetched files that are not there."""
    pages = {path.resolve(): read(path) for path in site.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        for link in page.links | page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            start = site.resolve() if parts.path.startswith("/") else path.parent  # 404.html is served at any depth
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                wrong.append(f"{path.relative_to(site.resolve())}: {link}")
    return sorted(wrong)


def elsewhere(site: Path) -> list[str]:
    """What a page would ask another host for."""
    asked = [(path, one) for path in site.rglob("*.html") for one in read(path).fetched if urlsplit(one).netloc]
    styles = [
        (path, one)
        for path in site.rglob("*.css")
        for one in re.findall(r"url\(['\"]?((?:https?:)?//[^)]+)\)", path.read_text())
    ]
    return [f"{path.relative_to(site)}: {one}" for path, one in asked + styles]


# --- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name)
    place = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return place


def sources() -> list[str]:
    return sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def built(site: Path, source: str) -> Path:
    return site / re.sub(r"README\.md$", "index.md", source).replace(".md", ".html")


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > len(sources())
    assert dead(site) == []


def test_the_site_asks_no_other_host_for_anything(site: Path) -> None:
    assert elsewhere(site) == []


def test_every_page_says_how_it_is_made(site: Path) -> None:
    told = {}
    for source in sources():
        lines = re.findall(
            r"<em>(Generated by|Generated when|Written by hand)", built(site, source).read_text().split("<hr")[-1]
        )
        assert len(lines) == 1, source
        told[source] = lines[0]
    assert {source for source in told if told[source] == "Generated by"} == GENERATED
    assert {source for source in told if told[source] == "Generated when"} == BUILT


def is_there(first: str, *rest: str) -> bool:
    """`python -m x.y` is a module, `make x` a target, `mixlens x` a command of a released version."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return (
        first == "mixlens"
        or (first == "make" and rest[0] in targets)
        or (first == "python" and find_spec(rest[1]) is not None)
    )


def test_commands_that_generate_pages_are_there() -> None:
    assert not is_there("make", "nothing")
    for source in GENERATED:
        command = origin.command_of((ROOT / "docs" / source).read_text())
        assert command is not None, source
        assert is_there(*command.split()), command


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = {
        anchor.rpartition(".")[2] for path in (site / "reference").glob("*.html") for anchor in read(path).anchors
    }
    assert set(mixlens.__all__) - {"__version__"} - anchors == set()


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    import typer

    from mixlens import cli

    shown = (site / "reference/commands.html").read_text()
    group: Any = typer.main.get_command(cli.app)
    for name, command in group.commands.items():
        assert f">mixlens {name}<" in shown, name
        section = commands.section(name, command)
        text = "\n".join(section)
        options = [option for option in command.params if not getattr(option, "hidden", False)]
        assert [one for option in options for one in option.opts if one.startswith("--") and one not in text] == []


def test_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {built(site, source).relative_to(site).as_posix() for source in sources()} - found == set()


def test_search_works_from_disk_and_no_request_leaves_the_machine(site: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser")
    chromium = next(
        (place for name in ("chromium", "chromium-browser", "google-chrome") if (place := shutil.which(name))), None
    )
    if chromium is None:
        pytest.skip("needs a Chromium: make browser")
    asked: list[str] = []
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").focus()
        page.keyboard.type("rollout")
        page.locator(".md-search-result__item").first.wait_for()
        assert "rollout" in page.locator(".md-search-result__list").inner_text().lower()
        browser.close()
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []


# --- the test itself --------------------------------------------------------------------------------------------------


def test_a_dead_link_a_dead_anchor_and_another_host_are_seen(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a><a href="#no">x</a>'
        '<a href="https://example.org/">x</a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h2 id="there">x</h2><img src="//example.org/x.png">')
    (tmp_path / "c.css").write_text("body { background: url(https://example.org/y.png) }")
    assert dead(tmp_path) == ["index.html: #no", "index.html: b.html#gone", "index.html: c.html"]
    assert len(elsewhere(tmp_path)) == 3


def test_the_page_of_accuracy_keeps_what_was_written_by_hand() -> None:
    """The recipe writes the table; with the page's own numbers the page stays as it is."""
    text = (ROOT / "docs/promises/accuracy.md").read_text()
    head, *rows = [line for line in text.splitlines() if line.startswith("| ")][: 1 + len(accuracy.ROWS)]
    models = [cell.strip() for cell in head.strip("|").split("|")][1:]
    numbers = [[float(cell) for cell in row.strip("|").split("|")[1:]] for row in rows]
    table = {
        (model, method, variant): numbers[i][j]
        for i, (method, variant, _) in enumerate(accuracy.ROWS)
        for j, model in enumerate(models)
    }
    assert accuracy.page(text, table, models, 100) == text
    table[models[0], "alti", None] = 0.5
    assert (
        accuracy.page(text, table, models, 7).replace("5.0e-01", f"{numbers[2][0]:.1e}").replace("7 sent", "100 sent")
        == text
    )
    with pytest.raises(SystemExit, match="no table"):
        accuracy.page("# Another page\n", table, models, 100)
