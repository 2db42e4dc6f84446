"""The page of a run in a real browser: the numbers drawn are those of the rows, and every control does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_browser import HOSTILE, api, browser, opened, picture, settled, violations  # noqa: F401 - fixtures
from test_run import go

import mixlens
from mixlens import data
from mixlens.corpus import maps

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
METHODS = ["alti", "globenc", "attcat"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("run")
    rows: list[Any] = [{"text": one.text, "label": one.info["label"]} for one in data.load("sentiment", n=80)]
    for row in rows[::6]:
        row["label"] = "positive" if row["label"] == "negative" else "negative"
    return go([*rows, {"text": ""}], place / "run", model="sentiment", methods=METHODS, columns=["label"], maps=True)


@pytest.fixture(scope="module")
def address(made: Any) -> str:
    return made.report(made.out.parent / "r.html").as_uri()


@pytest.fixture(scope="module")
def frame(made: Any) -> Any:
    return made.to_pandas().set_index("row")


def told(page: Any, name: str) -> str:
    return page.get_by_role("region", name=name, exact=True).inner_text()


def shown(page: Any) -> list[int]:
    return [int(row) for row in page.locator(".example").evaluate_all("all => all.map(one => one.dataset.row)")]


def test_the_numbers_are_on_the_page(opened: Callable[..., Any], address: str, frame: Any) -> None:  # noqa: F811
    page = opened(address)
    tiles = page.locator(".tiles").inner_text()
    right = int((frame["label"] == frame["prediction"]).sum())
    for piece in (f"{len(frame)}\n", f"{right / len(frame):.1%}", f"{right} of {len(frame)} rows, against label"):
        assert piece in tiles
    for name, rows in frame["prediction"].value_counts().items():
        assert re.search(rf"{name}\s+{rows}\s+{rows / len(frame):.1%}", told(page, "Predictions"))
    cells = page.locator('section[aria-label="Against the labels"] .heat td[data-value]')
    table = pandas.crosstab(frame["label"], frame["prediction"])
    assert sorted(int(one) for one in cells.evaluate_all("all => all.map(one => one.dataset.value)")) == sorted(
        table.to_numpy().flatten().tolist()
    )
    assert "field 'text' is empty" in told(page, "Rows that could not be explained")
    bars = page.locator('section[aria-label="Lengths"] .column title').all_text_contents()
    assert sum(int(bar.split(": ")[1].split()[0]) for bar in bars) == len(frame)
    assert "globenc" in told(page, "Mixing ratio")
    assert page.locator('section[aria-label="Mixing ratio"] circle').count() == 4
    about = page.locator("#about").inner_text()
    for piece in ("sentiment", "rows given in Python", "alti, globenc, attcat", "torch"):
        assert piece in about


def test_examples_show_the_scores(opened: Callable[..., Any], address: str, frame: Any) -> None:  # noqa: F811
    page = opened(address)
    first = page.locator(".example").first
    row = int(first.get_attribute("data-row"))
    for method in METHODS:
        seen = page.locator(f'[aria-label="Row {row} by {method}"] .token').evaluate_all(
            "all => all.map(one => +one.dataset.value)"
        )
        assert seen == pytest.approx(frame.loc[row, method].tolist(), rel=1e-5, abs=1e-7)
    page.get_by_label("Method", exact=True).select_option("globenc")
    settled(page)
    assert page.locator(f'[aria-label="Row {row} by globenc"]').count() == 1
    assert page.locator(f'[aria-label="Row {row} by alti"]').count() == 0
    first.get_by_text("Every number").click()
    cells = first.locator("tbody tr").nth(2).inner_text().split()
    assert cells[1] == frame.loc[row, "tokens"][2]
    assert [float(cell) for cell in cells[2:]] == pytest.approx([frame.loc[row, method][2] for method in METHODS], rel=1e-3)


def test_examples_are_found_filtered_and_sorted(opened: Callable[..., Any], address: str, frame: Any) -> None:  # noqa: F811
    page = opened(address)
    assert len(shown(page)) == 20
    page.get_by_role("button", name="Show more").click()
    settled(page)
    everyone = shown(page)
    assert everyone == sorted(everyone)
    assert len(everyone) > 20
    page.get_by_label("Predicted", exact=True).select_option("negative")
    settled(page)
    assert shown(page) == [row for row in everyone if frame.loc[row, "prediction"] == "negative"][:20]
    page.get_by_label("Predicted", exact=True).select_option("")
    page.get_by_label("Chosen as", exact=True).select_option("wrong")
    page.get_by_label("Order", exact=True).select_option("sure")
    settled(page)
    rows = shown(page)
    assert rows
    assert all(frame.loc[row, "label"] != frame.loc[row, "prediction"] for row in rows)
    assert rows == sorted(rows, key=lambda row: (-frame.loc[row, "probability"], row))
    page.get_by_label("Chosen as", exact=True).select_option("")
    word = frame.loc[everyone[3], "text"].split()[-1]
    page.get_by_label("Search", exact=True).fill(word.upper())
    settled(page)
    assert set(shown(page)) == {row for row in everyone if word in frame.loc[row, "text"]}
    page.get_by_label("Search", exact=True).fill("nobody wrote this")
    settled(page)
    assert shown(page) == []
    assert page.locator("#examples .said").inner_text().startswith("0 of ")


def test_maps_can_be_looked_at(opened: Callable[..., Any], address: str, made: Any) -> None:  # noqa: F811
    page = opened(address)
    first = page.locator(".example").first
    row = int(first.get_attribute("data-row"))
    first.get_by_text("Layer maps").click()
    page.wait_for_selector(".maps canvas")
    first.get_by_label("Map", exact=True).select_option("globenc")
    slider = first.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert first.locator("output").inner_text() == "2 of 4"
    whole = {one.method: one for _, one in maps(made.out, [row])}["globenc"].scores[1]
    n = len(whole)
    box = first.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 3.5 / n * box["width"], box["y"] + 1.5 / n * box["height"])
    numbers = [float(first.locator(".readout").get_attribute(f"data-{name}") or "") for name in ("took", "gave")]
    close = float(whole.max()) / 400
    assert numbers == pytest.approx([float(whole[1, 3]), float(whole[3, 1])], abs=close)


def test_light_dark_and_paper(opened: Callable[..., Any], address: str) -> None:  # noqa: F811
    page = opened(address, theme="dark")
    token = page.locator(".example .token").first
    before = token.evaluate("one => getComputedStyle(one).backgroundColor")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 24)"
    page.get_by_role("radio", name="Light").check()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 249, 247)"
    assert token.evaluate("one => getComputedStyle(one).backgroundColor") != before
    page.emulate_media(media="print")
    assert not page.locator(".examples-controls").is_visible()
    assert page.locator("#about").is_visible()


def test_everything_is_reached_by_the_keyboard(opened: Callable[..., Any], address: str) -> None:  # noqa: F811
    page = opened(address)
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(document.activeElement.tagName + ' ' + document.activeElement.className).trim()"))
    for part in ("A", "SUMMARY", "SELECT", "INPUT", "DIV table-scroll"):
        assert part in seen, seen


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_and_axe_finds_nothing(
    opened: Callable[..., Any],  # noqa: F811
    address: str,
    theme: str,
    width: int,
) -> None:
    page = opened(address, theme=theme, width=width)
    for name in ("Every number", "Layer maps"):
        page.locator(".example").first.get_by_text(name).click()
    page.wait_for_selector(".maps canvas")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"run-{theme}-{width}")
    assert violations(page) == []


def test_hostile_rows_are_shown_as_text(opened: Callable[..., Any], tmp_path: Path) -> None:  # noqa: F811
    bad = " ".join(HOSTILE[:8])
    rows = [{"text": f"good {bad}", "id": bad, "label": bad}]
    made = go(rows, tmp_path / "run", model="sentiment", columns=["label"])
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    manifest["model"]["name"] = manifest["data"] = HOSTILE[1]
    (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
    page = opened(made.report(tmp_path / "r.html", title=HOSTILE[0]).as_uri(), width=390)
    page.get_by_text("Every number").last.click()
    assert page.locator("h1").inner_text() == HOSTILE[0]
    assert page.locator("img, main script").count() == 0
    assert HOSTILE[0] in page.locator(".example").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_run_without_rows_says_so(opened: Callable[..., Any], tmp_path: Path) -> None:  # noqa: F811
    made = go([""], tmp_path / "run", model="sentiment")
    page = opened(made.report(tmp_path / "r.html").as_uri())
    assert "No row could be explained" in page.locator(".notice").inner_text()
    for path in (tmp_path / "run/shards").iterdir():
        path.unlink()
    page = opened(mixlens.report(tmp_path / "run", tmp_path / "e.html").as_uri())
    assert "No row has been worked on yet" in page.locator(".notice").inner_text()
    assert page.locator("#about").is_visible()
