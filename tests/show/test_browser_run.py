"""The page of a run in a real browser: the numbers drawn are those of the rows, and every control does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_browser import HOSTILE, api, browser, opened, picture, settled, violations
from test_run import go

import mixlens
from mixlens import data
from mixlens.runs.corpus import maps
from mixlens.show import page_template, run_page

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
METHODS = ["alti", "globenc", "deeplift"]
THIN = "\u202f"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("run")
    rows: list[Any] = [{"text": one.text, "label": one.info["label"]} for one in data.load("sentiment", n=80)]
    for row in rows[::6]:
        row["label"] = "positive" if row["label"] == "negative" else "negative"
    options = {"model": "sentiment", "methods": METHODS, "columns": ["label"], "maps": True, "trust": True}
    return go([*rows, {"text": ""}], place / "run", **options)


@pytest.fixture(scope="module")
def address(made: Any) -> str:
    return made.report(made.out.parent / "r.html").as_uri()


@pytest.fixture(scope="module")
def frame(made: Any) -> Any:
    return made.to_pandas().set_index("row")


def told(page: Any, name: str) -> str:
    return page.get_by_role("region", name=name, exact=True).inner_text()


def shown(page: Any) -> list[int]:
    return [int(row) for row in page.locator("details.row").evaluate_all("all => all.map(one => one.dataset.row)")]


def whole_list(page: Any) -> list[int]:
    """All rows that are found, not only the first ones."""
    while (more := page.get_by_role("button", name=re.compile(r"^Show \d+ more$"))).is_visible():
        more.click()
        settled(page)
    return shown(page)


def shares_of(row: Any, method: str) -> list[float]:
    """The shares of the words of a row: this model's vocabulary has pieces that go on with "##"."""
    sums: list[float] = []
    for token, segment, score in zip(row["tokens"], row["segments"], row[method], strict=True):
        if segment >= 0 and token.startswith("##"):
            sums[-1] += score
        elif segment >= 0:
            sums.append(float(score))
    return [score / sum(map(abs, sums)) for score in sums]


def test_the_answer_comes_first(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    assert page.locator("h1").inner_text() == "Which words decide negative and positive?"
    answer = page.locator(".answer").inner_text()
    turned, random = frame["turned:deeplift"].mean(), frame["turned_random"].map(np.mean).mean()
    for share in (turned, random):
        assert f"{100 * share:.{0 if share >= 0.0995 else 1}f}{THIN}%" in answer
    facts = page.locator(".stats").inner_text()
    right = int((frame["label"] == frame["prediction"]).sum())
    for piece in (
        f"{len(frame)}\n",
        "1 could not be",
        f"{100 * right / len(frame):.1f}{THIN}%",
        f"{len(frame) - right} wrong",
    ):
        assert piece in facts
    assert f"{(frame['probability'] > 0.99).sum()} of {len(frame)}" in facts


def answer_of(page: Any, *classes: dict[str, list[Any]]) -> str:
    """The first sentence of a page, for words of classes made by hand: (word, mean share, rows)."""
    named = [{"name": name, "rows": 40, "words": [words]} for name, words in zip("ABC", classes, strict=False)]
    run = {"lead": 0, "isSigned": [True], "classes": named}
    ask = "return make('p', {}, ...answerOf(run)).textContent;"
    body = page_template.script_of(*run_page.RUN.scripts, start=ask)
    return page.evaluate(re.sub(r"^\(\(\) => \{", "(run) => {", body).rstrip().removesuffix("})();") + "}", run)


def test_a_word_that_leads_several_classes_is_not_named(opened: Callable[..., Any], address: str) -> None:
    page = opened(address)
    common, dull, superb = ["is", 0.2, 40], ["dull", 0.3, 9], ["superb", 0.25, 8]
    words = {"for": [common], "against": []}
    nothing = (
        f"No word stands out: none in five rows or more carries 5.0{THIN}% of a row’s evidence for one class alone."
    )
    assert answer_of(page, words, words) == nothing
    assert (
        answer_of(page, {"for": [["dull", 0.049, 9]], "against": []}, words)
        == "B hangs on is; no word stands out for A."
    )
    both = [{"for": [common, dull], "against": []}, {"for": [common, superb], "against": []}]
    assert answer_of(page, *both) == "A hangs on dull; B on superb."
    # a class that holds less than half as much of a word leaves it to the other
    assert answer_of(page, {"for": [dull], "against": []}, {"for": [["dull", 0.1, 6], superb], "against": []}) == (
        "A hangs on dull; B on superb."
    )


def test_a_narrow_screen_keeps_numbers_apart(opened: Callable[..., Any], address: str) -> None:
    """Names of sides are on one line in every chart, and no count touches a value."""
    page = opened(address, width=390)
    heads = page.locator(".word-head div span").evaluate_all(
        "all => all.map(one => one.getClientRects().length && one.offsetHeight)"
    )
    assert len(set(heads)) == 1
    rooms = page.locator(".word-row").evaluate_all(
        "all => all.map(one => one.querySelector('.value').getBoundingClientRect().left + 6"
        " - one.querySelector('.count').getBoundingClientRect().right)"
    )
    assert min(rooms) >= 4  # pixels; the value has a padding of 6


def test_words_are_on_one_scale_and_lead_to_their_rows(
    opened: Callable[..., Any],
    address: str,
    frame: Any,
) -> None:
    page = opened(address)
    bars = page.locator(".word-row")
    seen = bars.evaluate_all(
        "all => all.map(one => [+one.dataset.value, one.querySelector('.bar').getBoundingClientRect().width])"
    )
    widths = [width / abs(value) for value, width in seen if abs(value) > 0.02]
    assert max(widths) == pytest.approx(min(widths), rel=0.05)  # pixels are rounded
    first = bars.first
    word, count = first.get_attribute("data-word"), int(first.locator(".count").inner_text())
    called = page.locator(".class-words").first.locator("h3").inner_text().split()[1]
    first.click()
    settled(page)
    rows = whole_list(page)
    assert len(rows) == count
    assert all(word in frame.loc[row, "tokens"].tolist() and frame.loc[row, "prediction"] == called for row in rows)
    page.get_by_label("By", exact=True).select_option("0")
    assert bars.first.locator(".bar.share").count() == 1  # ALTI has no sign


def test_what_turned_is_drawn(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    drawn = page.locator("svg.usual")
    values = drawn.locator("text.value").all_text_contents()
    shares = sorted((frame[f"turned:{method}"].mean() for method in METHODS), reverse=True)
    shares.append(frame["turned_random"].map(np.mean).mean())
    assert [float(value.removesuffix(f"{THIN}%")) for value in values] == pytest.approx(
        [100 * one for one in shares], abs=0.5
    )
    assert drawn.locator("text.name").all_text_contents()[-1] == "three random words"
    heights = [
        float(one)
        for one in drawn.locator("rect.random").evaluate_all("all => all.map(one => one.getAttribute('height'))")
    ]
    counts = np.histogram(np.concatenate(frame["without_random"].to_list()), bins=20, range=(0, 1))[0]
    assert np.argmax(heights) == np.argmax(counts)
    assert [height > 0 for height in heights] == [count > 0 for count in counts]


def test_agreement_is_of_words(opened: Callable[..., Any], address: str, made: Any) -> None:
    page = opened(address)
    found = mixlens.summarize(made.out).word_agreement
    cells = [
        float(one)
        for one in page.locator("table.matrix .cell").evaluate_all("all => all.map(one => one.dataset.value)")
    ]
    assert sorted(cells) == pytest.approx(sorted(found.values()))
    hues = page.locator("table.matrix .cell").evaluate_all("all => all.map(one => [+one.dataset.value, one.className])")
    signed = min(cells) < 0
    for value, name in hues:  # those of the legend: blue and orange where some are below 0, else violet
        assert f"t-{'against' if value < 0 else 'for' if signed else 'share'}" in name.split()


def test_a_row_opens_into_its_methods(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    first = page.locator("details.row").first
    row = frame.loc[int(first.get_attribute("data-row"))]
    seen = first.locator(".row-text [data-value]").evaluate_all("all => all.map(one => +one.dataset.value)")
    assert seen == pytest.approx(shares_of(row, "deeplift"), abs=1e-4)  # scores are packed in 16 bits
    assert "".join(first.locator(".row-text").all_text_contents()) == row["text"]
    first.locator("summary").first.click()
    table = first.locator("table.across")
    table.locator("tbody th").first.wait_for()  # on a busy machine the row is filled a moment after the click
    assert table.locator("tbody th").all_text_contents() == ["DeepLift", "ALTI", "GlobEnc"]  # signed before unsigned
    for name, method in (("ALTI", "alti"), ("DeepLift", "deeplift")):
        cells = table.locator("tr", has_text=name).locator(".cell")
        assert cells.evaluate_all("all => all.map(one => +one.dataset.value)") == pytest.approx(
            shares_of(row, method), abs=1e-4
        )
    first.get_by_text("Every number").click()
    cells_ = first.locator(".aside tbody tr").nth(2).inner_text().replace("−", "-").split()
    assert cells_[1] == row["tokens"][2]
    assert [float(cell) for cell in cells_[2:]] == pytest.approx([row[method][2] for method in METHODS], rel=1e-3)
    page.get_by_label("Tint by", exact=True).select_option("0")
    settled(page)
    again = page.locator("details.row").first.locator(".row-text [data-value]")
    assert again.evaluate_all("all => all.map(one => +one.dataset.value)") == pytest.approx(
        shares_of(row, "alti"), abs=1e-4
    )


def test_rows_are_found_filtered_and_sorted(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    assert len(shown(page)) == 10
    assert whole_list(page) == sorted(frame.index)
    page.get_by_label("Called", exact=True).select_option("negative")
    settled(page)
    assert whole_list(page) == [row for row in frame.index if frame.loc[row, "prediction"] == "negative"]
    page.get_by_label("Called", exact=True).select_option("")
    page.get_by_label("Only", exact=True).select_option("bad")
    page.get_by_label("Order", exact=True).select_option("sure")
    settled(page)
    wrong = frame[frame["label"] != frame["prediction"]]
    assert whole_list(page) == sorted(wrong.index, key=lambda row: (-frame.loc[row, "probability"], row))
    page.get_by_label("Order", exact=True).select_option("fall")
    settled(page)
    fall = frame["without:deeplift"] - frame["probability"]
    assert whole_list(page) == sorted(wrong.index, key=lambda row: (fall[row], row))
    page.get_by_label("Only", exact=True).select_option("")
    word = frame.loc[3, "text"].split()[-1]
    page.get_by_label("Word or text", exact=True).fill(word.upper())
    settled(page)
    assert set(whole_list(page)) == {row for row in frame.index if word.lower() in frame.loc[row, "text"].lower()}
    page.get_by_label("Word or text", exact=True).fill("nobody wrote this")
    settled(page)
    assert shown(page) == []
    assert page.locator(".found").inner_text().startswith("No row has this.")


def test_lists_lead_to_their_rows(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    held = frame[frame[[f"without:{method}" for method in METHODS]].min(axis=1) >= 0.9]
    box = page.locator('.list[data-tag="held"]')
    assert box.locator(".list-head b").inner_text() == str(len(held))
    box.get_by_role("button").click()
    settled(page)
    assert set(whole_list(page)) == set(held.index)
    assert page.get_by_label("Only", exact=True).input_value() == "held"
    wrong = frame[(frame["label"] != frame["prediction"]) & (frame["probability"] > 0.95)]
    assert page.locator('.list[data-tag="wrong"] .list-head b').inner_text() == str(len(wrong))


def test_more_numbers(opened: Callable[..., Any], address: str, frame: Any) -> None:
    page = opened(address)
    for name in ("More numbers", "Rows that could not be explained", "Where these numbers come from"):
        page.locator("summary", has_text=name).click()
    table = pandas.crosstab(frame["label"], frame["prediction"])
    cells = page.locator("table.confusion td[data-value]").evaluate_all("all => all.map(one => +one.dataset.value)")
    assert sorted(cells) == sorted(table.to_numpy().flatten().tolist())
    assert "field 'text' is empty" in page.locator(".fold", has_text="Rows that could not").inner_text()
    titles = page.get_by_role("region", name="Lengths", exact=True).locator("rect title").all_text_contents()
    assert sum(int(re.findall(r"(\d+) row", one)[0]) for one in titles) == len(frame)
    assert "GlobEnc" in told(page, "Mixing ratio")
    about = page.locator(".fold", has_text="Where these numbers").inner_text()
    for piece in ("sentiment", "rows given in Python", "alti, globenc, deeplift", "torch"):
        assert piece in about


def test_maps_can_be_looked_at(opened: Callable[..., Any], address: str, made: Any) -> None:
    page = opened(address)
    first = page.locator("details.row").first
    row = int(first.get_attribute("data-row"))
    first.locator("summary").first.click()
    first.get_by_text("Layer maps").click()
    page.wait_for_selector(".maps canvas")
    first.get_by_label("Map", exact=True).select_option("1")
    slider = first.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert first.locator("output").inner_text() == "2 of 4"
    whole = {one.method: one for _, one in maps(made.out, [row])}["globenc"].scores[1]
    n = len(whole)
    box = first.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 3.5 / n * box["width"], box["y"] + 1.5 / n * box["height"])
    numbers = [
        float(number) for number in re.findall(r"(?:took|it) ([\d.e-]+)", first.locator(".maps .readout").inner_text())
    ]
    close = float(whole.max()) / 400  # maps are packed in 8 bits
    assert numbers == pytest.approx([float(whole[1, 3]), float(whole[3, 1])], abs=close)


def test_light_dark_and_paper(opened: Callable[..., Any], address: str) -> None:
    page = opened(address, theme="dark")
    word = page.locator(".row-text .for").first
    before = word.evaluate("one => getComputedStyle(one).backgroundColor")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 24)"
    page.get_by_role("radio", name="Light").check()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 249, 247)"
    assert word.evaluate("one => getComputedStyle(one).backgroundColor") != before
    page.emulate_media(media="print")
    assert not page.locator(".find").first.is_visible()
    assert page.locator("details.row").first.is_visible()


def test_everything_is_reached_by_the_keyboard(opened: Callable[..., Any], address: str) -> None:
    page = opened(address)
    seen = []
    for _ in range(90):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(document.activeElement.tagName + ' ' + document.activeElement.className).trim()"))
    for part in ("BUTTON word-row", "A skip", "SUMMARY", "SELECT", "INPUT", "BUTTON quiet no-print"):
        assert part in seen, seen


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_sticks_out_and_axe_finds_nothing(
    opened: Callable[..., Any],
    address: str,
    theme: str,
    width: int,
) -> None:
    page = opened(address, theme=theme, width=width)
    page.locator("details.row > summary").nth(1).click()
    for summary in page.locator("details.fold > summary, details.aside > summary").all():
        if summary.is_visible():
            summary.click()
    page.wait_for_selector(".maps canvas")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"run-{theme}-{width}")
    assert violations(page) == []


def test_hostile_rows_are_shown_as_text(opened: Callable[..., Any], tmp_path: Path) -> None:
    bad = " ".join(HOSTILE[:8])
    rows = [{"text": f"good {bad}", "id": bad, "label": bad}]
    made = go(rows, tmp_path / "run", model="sentiment", columns=["label"])
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    manifest["model"]["name"] = manifest["data"] = HOSTILE[1]
    (tmp_path / "run/manifest.json").write_text(json.dumps(manifest))
    page = opened(made.report(tmp_path / "r.html", title=HOSTILE[0]).as_uri(), width=390)
    page.locator("details.row > summary").click()
    assert page.locator("h1").inner_text() == HOSTILE[0]
    assert page.locator("img, main script").count() == 0
    assert HOSTILE[0] in page.locator("details.row").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_a_check_the_page_says_how_to_make_one(opened: Callable[..., Any], tmp_path: Path) -> None:
    rows = [one.text for one in data.load("sentiment", n=6)]
    page = opened(go(rows, tmp_path / "run", model="sentiment").report(tmp_path / "r.html").as_uri())
    assert "Make the run again with --trust" in page.locator("section", has=page.locator("#matter")).inner_text()
    assert page.locator("svg.usual, table.matrix, .list").count() == 0  # no empty frame
    assert "turns" not in page.locator(".answer").inner_text()


def test_a_run_without_rows_says_so(opened: Callable[..., Any], tmp_path: Path) -> None:
    made = go([""], tmp_path / "run", model="sentiment")
    page = opened(made.report(tmp_path / "r.html").as_uri())
    assert "No row could be explained" in page.locator(".note").inner_text()
    for path in (tmp_path / "run/shards").iterdir():
        path.unlink()
    page = opened(mixlens.report(tmp_path / "run", tmp_path / "e.html").as_uri())
    assert "No row has been worked on yet" in page.locator(".note").inner_text()
    assert page.locator(".facts").is_visible()
