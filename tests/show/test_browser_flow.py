"""The flow page in a real browser: bands and bars are as wide as the numbers say, and every control does what it
says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_browser import HOSTILE, SENTENCE, api, browser, opened, picture, settled, violations
from test_flow_page import LONG

import mixlens
from mixlens import HeadMaps, Map
from mixlens.show import flow_page

BANDS = "all => all.map(one => ({...one.dataset, d: one.getAttribute('d'), width: one.getAttribute('width')}))"


@pytest.fixture(scope="module")
def long_text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, flow_page.Picture]:
    scores, heads = flow_page.flow_results(mixlens.load("sentiment"), LONG)
    place = flow_page.write_flow(scores, tmp_path_factory.mktemp("flow") / "long.html", heads=heads)
    return place.as_uri(), flow_page.picture_of(scores, heads=heads)


@pytest.fixture(scope="module")
def short_text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, flow_page.Picture]:
    scores, heads = flow_page.flow_results(mixlens.load("agreement"), SENTENCE)
    place = flow_page.write_flow(scores, tmp_path_factory.mktemp("flow") / "short.html", heads=heads)
    return place.as_uri(), flow_page.picture_of(scores, heads=heads)


def facts(page: Any, selector: str) -> list[dict[str, Any]]:
    return page.eval_on_selector_all(selector, BANDS)


def read(page: Any, number: int = 0) -> str:
    return page.locator(".readout").nth(number).inner_text().replace("\u202f", " ")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 100 * share < 9.95 else f"{100 * share:.0f} %"


@pytest.mark.parametrize("text", ["long_text", "short_text"])
def test_bands_and_bars_are_the_numbers(opened: Callable[..., Any], text: str, request: pytest.FixtureRequest) -> None:
    address, made = request.getfixturevalue(text)
    page, flow = opened(address, width=1400), made.flow
    bars = [bar for bar in facts(page, "rect.level-bar") if "level" in bar]
    depth = len(flow.rolled)
    scale = None
    for level in range(depth + 1):
        held = {int(bar["column"]): bar for bar in bars if int(bar["level"]) == level}
        assert sum(float(bar["share"]) for bar in held.values()) == pytest.approx(1, abs=1e-6)
        for column, bar in held.items():
            assert float(bar["share"]) == pytest.approx(flow.shares[level, column], abs=1e-6)
            if float(bar["share"]) > 0.02:
                scale = scale or float(bar["width"]) / float(bar["share"])
                assert float(bar["width"]) == pytest.approx(float(bar["share"]) * scale, rel=1e-6)
    bands = facts(page, "path.band:not(.own)")
    wanted = {
        (int(layer), int(above), int(below)): share
        for layer, above, below, share in zip(
            flow.bands.layer, flow.bands.above, flow.bands.below, flow.bands.share, strict=True
        )
    }
    assert {(int(band["layer"]), int(band["above"]), int(band["below"])) for band in bands} == set(wanted)
    chosen = int(page.locator('button.column[aria-pressed="true"]').get_attribute("data-column"))
    parts = {key: flow.bands.parts[number, chosen] for number, key in enumerate(wanted)}
    for band in bands:
        key = (int(band["layer"]), int(band["above"]), int(band["below"]))
        drawn = float(band["d"].partition("h")[2].partition("C")[0])
        assert drawn == pytest.approx(wanted[key] * scale, rel=1e-5)
        assert float(band["part"]) == pytest.approx(parts[key], rel=2**-10, abs=1e-6)
    for band in facts(page, "path.band.own"):
        key = (int(band["layer"]), int(band["above"]), int(band["below"]))
        assert float(band["d"].partition("h")[2].partition("C")[0]) == pytest.approx(
            parts[key] * scale, rel=2**-10, abs=0.01
        )  # of a pixel: three digits of the band


def ends_of(bands: list[dict[str, Any]], side: str) -> dict[Any, list[tuple[float, float]]]:
    """Where bands begin (or end) on each bar: from, to."""
    ends: dict[Any, list[tuple[float, float]]] = {}
    for band in bands:
        start = float(band["d"][1:].split(" ")[0])
        wide = float(band["wide"])
        if side == "below":
            ends.setdefault((band["layer"], band["below"]), []).append((start, start + wide))
    return ends


def test_ends_stack_without_overlap(opened: Callable[..., Any], long_text: tuple[str, flow_page.Picture]) -> None:
    page = opened(long_text[0], width=1400)
    for ends in ends_of(facts(page, "path.band:not(.own)"), "below").values():
        for (_, before), (after, _) in zip(sorted(ends), sorted(ends)[1:], strict=False):
            assert after >= before - 1e-6


def test_the_answer_stands_first(opened: Callable[..., Any], long_text: tuple[str, flow_page.Picture]) -> None:
    page, made = opened(long_text[0]), long_text[1]
    name, probability = made.prediction[0]
    assert page.locator("h1").inner_text() == f"What flowed into the answer {name}?"
    shares = made.flow.shares[0]
    best = max(
        (number for number, group in enumerate(made.groups) if group.kind == "sentence"), key=lambda i: shares[i]
    )
    assert f"number {made.groups[best].name} ({percent(shares[best])})" in page.locator(
        "p.answer"
    ).inner_text().replace("\u202f", " ")
    assert page.locator("p.answer").count() == 1
    assert f"{100 * probability:.1f}" in page.locator(".hero").inner_text() or probability > 0.999
    values = page.locator(".column .value").all_inner_texts()
    sentences = [number for number, group in enumerate(made.groups) if group.kind == "sentence"]
    assert [value.replace("\u202f", " ") for value in values] == [percent(shares[number]) for number in sentences]
    assert page.locator('button.column[aria-pressed="true"]').get_attribute("data-column") == str(best)
    assert page.title() == f"What flowed into the answer {name}? · mixlens"


def test_one_number_for_one_thing(opened: Callable[..., Any], long_text: tuple[str, flow_page.Picture]) -> None:
    """The share of a sentence in the list, under the bands, in the answer's row of the map and in the table."""
    page, made = opened(long_text[0], width=1400), long_text[1]
    listed = page.locator(".column .value").all_inner_texts()
    row = made.column
    cells = facts(page, f'.cell[data-row="{row}"]')
    page.get_by_text("Every number: what the answer").click()
    table = page.locator(".pictures > .aside table tbody tr").evaluate_all(
        "rows => rows.map(row => row.lastElementChild.textContent)"
    )
    labels = page.locator("svg.bands .label tspan").all_text_contents()
    for place, group in enumerate(made.groups):
        if group.kind != "sentence":
            continue
        value = listed.pop(0)
        assert table[place] == value
        assert labels[place] == value
        assert percent(float(cells[place]["value"])) == value.replace("\u202f", " ")


def test_the_map_shows_the_arrays(opened: Callable[..., Any], long_text: tuple[str, flow_page.Picture]) -> None:
    page, made = opened(long_text[0], width=1400), long_text[1]
    n, depth = len(made.groups), len(made.flow.rolled)

    def shown() -> np.ndarray:
        return np.array([float(cell["value"]) for cell in facts(page, ".cell")]).reshape(n, -1)

    np.testing.assert_allclose(shown(), made.flow.rolled[-1], atol=1e-6)
    page.locator("input[type=range]").focus()
    page.keyboard.press("Home")
    settled(page)
    np.testing.assert_allclose(shown(), made.flow.rolled[0], atol=1e-6)
    page.get_by_label("this layer alone").check()
    page.keyboard.press("Tab")
    settled(page)
    np.testing.assert_allclose(shown(), made.flow.alone[0], atol=1e-6)
    assert page.locator("output").inner_text() == f"1 of {depth}"
    page.get_by_label("word by word").check()
    settled(page)
    chosen = int(page.locator('button.column[aria-pressed="true"]').get_attribute("data-column"))
    words = list(made.groups[chosen].words)
    opened_cells = shown()
    assert opened_cells.shape == (n, n - 1 + len(words))
    np.testing.assert_allclose(
        opened_cells[:, chosen : chosen + len(words)], made.flow.alone_words[0][:, words], atol=1e-5
    )
    np.testing.assert_allclose(opened_cells.sum(-1), 1, atol=1e-4)
    bands = [band for band in facts(page, "path.band:not(.own)") if "word" in band]
    assert {int(band["word"]) for band in bands} <= set(range(len(words)))
    for band in bands:
        wanted = made.flow.input_bands[int(band["above"]), words[int(band["word"])]]
        assert float(band["share"]) == pytest.approx(wanted, abs=2e-5)


def test_pictures_by_keyboard(opened: Callable[..., Any], long_text: tuple[str, flow_page.Picture]) -> None:
    page, made = opened(long_text[0], width=1400), long_text[1]
    depth = len(made.flow.rolled)
    page.locator(".picture-frame").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("output").inner_text() == f"{depth - 1} of {depth}"
    chosen = int(page.locator('button.column[aria-pressed="true"]').get_attribute("data-column"))
    held = made.flow.origins[depth - 1, :, chosen]
    assert f"{percent(held[chosen])} is still in its own place" in read(page)
    page.keyboard.press("ArrowLeft")
    pressed = page.locator('button.column[aria-pressed="true"]')
    assert pressed.count() == 0 or pressed.get_attribute("data-column") == str(chosen - 1)
    page.locator(".map-frame").focus()
    page.keyboard.press("ArrowRight")
    first = read(page, 1)
    assert "took" in first or "kept" in first
    page.keyboard.press("ArrowDown")
    second = read(page, 1)
    assert second != first
    value = made.flow.rolled[depth - 2, made.column + 1, 0]
    assert percent(value) in second or percent(made.flow.rolled[depth - 2, made.column + 1, 1]) in second
    heads = page.locator(".heads canvas")
    heads.first.focus()
    assert "Head 1 of layer" in read(page, 2)
    page.keyboard.press("ArrowRight")
    assert "Head 2 of layer" in read(page, 2)


def test_heads_are_named_and_drawn(opened: Callable[..., Any], short_text: tuple[str, flow_page.Picture]) -> None:
    page, made = opened(short_text[0], width=1400), short_text[1]
    heads = made.heads
    assert heads is not None
    depth, count = heads.scores.shape[:2]
    roles = heads.roles()[-count:]
    captions = [
        text.replace("\u202f", " ").replace("\n", " ")
        for text in page.locator(".head-map figcaption").all_inner_texts()
    ]
    assert captions == [f"Head {role.head + 1} {role.name}, {percent(role.share)}" for role in roles]
    colour = page.evaluate(
        "() => [...document.querySelectorAll('canvas')[1].getContext('2d').getImageData(0, 0, 10, 10).data]"
    )
    weights = heads.scores[-1, 1].numpy()
    full, zero = np.array([0x5D, 0x4A, 0xA8]), np.array([255, 255, 255])
    expected = zero + (full - zero) * np.minimum(1, weights / 0.5)[..., None]
    np.testing.assert_allclose(np.array(colour).reshape(10, 10, 4)[..., :3], expected, atol=1.01)
    page.get_by_label("all layers").check()
    assert page.locator(".model-view canvas").count() == depth * count
    assert page.locator(".model-view canvas").first.get_attribute("aria-label").startswith(f"Head 1 of layer {depth}: ")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing(
    opened: Callable[..., Any],
    long_text: tuple[str, flow_page.Picture],
    width: int,
    theme: str,
) -> None:
    page = opened(long_text[0], width=width, theme=theme)
    page.get_by_label("word by word").check()
    page.get_by_label("all layers").check()
    for fold in page.locator("summary").all():
        fold.click()
    settled(page)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"flow_{width}_{theme}")


def test_hostile_words_are_text(opened: Callable[..., Any], tmp_path: Path) -> None:
    n = len(HOSTILE)
    info = {"model": HOSTILE[1], "text": " ".join(HOSTILE), "prediction": [(HOSTILE[0], 0.5)], "convention": "alti"}
    even = torch.full((2, n, n), 1 / n, dtype=torch.float64)
    heads = HeadMaps(even[:, None], HOSTILE, "attention", info, (False,) * n)
    place = flow_page.write_flow(Map(even, HOSTILE, "alti", info, (False,) * n), tmp_path / "hostile.html", heads=heads)
    page = opened(place.as_uri(), width=390)
    assert HOSTILE[0] in page.locator("h1").inner_text()
    page.get_by_text("Where these numbers come from").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("script").count() == 2


def test_print_is_light_and_shows_where_numbers_come_from(
    opened: Callable[..., Any],
    long_text: tuple[str, flow_page.Picture],
) -> None:
    page = opened(long_text[0], theme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".controls").is_visible()
    assert "Ferrando" in page.locator(".facts").inner_text()
    assert page.locator("svg.bands").is_visible()


def test_the_list_shows_the_chosen_sentence_and_scrolls(
    opened: Callable[..., Any],
    long_text: tuple[str, flow_page.Picture],
) -> None:
    page = opened(long_text[0], width=1400)
    page.set_viewport_size({"width": 1400, "height": 300})  # the list is 320 pixels high, and longer
    box = page.locator(".columns")
    assert box.evaluate("one => one.scrollHeight > one.clientHeight")
    page.locator(".picture-frame").first.focus()
    for key in ("ArrowRight", "ArrowLeft"):
        for _ in long_text[1].groups:
            page.keyboard.press(key)
            settled(page)
            chosen = page.locator('button.column[aria-pressed="true"]')
            if chosen.count():  # a mark has no line in the list
                room, place = box.bounding_box(), chosen.bounding_box()
                assert room["y"] - 1 <= place["y"]
                assert place["y"] + place["height"] <= room["y"] + room["height"] + 1
    assert page.locator(".text-list .scroll-hint").is_visible()
    assert page.locator(".text-list .scroll-hint").inner_text().endswith("sentences: scroll the list to see all.")


@pytest.mark.parametrize("text", ["long_text", "short_text"])
def test_every_column_has_its_percent_and_marks_are_set_as_marks(
    opened: Callable[..., Any],
    text: str,
    request: pytest.FixtureRequest,
) -> None:
    """Start and end alike: slanted in both pictures, hatched in the map. A mask is a place for a word, and no mark."""
    address, made = request.getfixturevalue(text)
    page = opened(address, width=1400)
    labels = [label.replace("\u202f", " ") for label in page.locator(".bands text.label").all_text_contents()]
    shares = made.flow.rolled[-1][made.column]
    for label, group, share in zip(labels, made.groups, shares.tolist(), strict=True):
        assert label.replace(" ", "") == f"{group.name}{percent(share)}".replace(" ", "")
    marks = [group.name for group in made.groups if group.title.endswith(" mark")]
    assert {"start", "end"} <= set(marks)
    assert [
        name.split("\u202f")[0].rstrip("0123456789. ")
        for name in page.locator(".bands text.label.mark").all_text_contents()
    ] == marks
    assert page.locator(".map rect.hatch").count() == len(marks)
    assert page.locator(".map .cell.mark").count() == len(marks) * len(made.groups)


# --- groups of words --------------------------------------------------------------------------------------------------


def cells_of(page: Any, rows: int) -> np.ndarray:
    return np.array([float(cell["value"]) for cell in facts(page, ".cell")]).reshape(rows, -1)


@pytest.mark.parametrize("sheet", ["from the input", "this layer alone"])
def test_a_group_opens_by_click_or_enter_and_its_words_add_up_to_it(
    opened: Callable[..., Any],
    long_text: tuple[str, flow_page.Picture],
    sheet: str,
) -> None:
    page, made = opened(long_text[0], width=1400), long_text[1]
    page.get_by_role("radio", name=sheet).check()
    n = len(made.groups)
    number = next(at for at, group in enumerate(made.groups) if group.kind == "sentence" and len(group.words) > 4)
    size, whole = len(made.groups[number].words), cells_of(page, n)
    through = {int(band["above"]): float(band["share"]) for band in first_bands(page, number)}
    page.locator(f'svg.bands .opener[data-opens="{number}"]').click()
    settled(page)
    assert f"{size} words and marks, together {percent(made.flow.shares[0, number])}" in read(page)
    words = cells_of(page, n)[:, number : number + size]
    np.testing.assert_allclose(words.sum(1), whole[:, number], rtol=1e-12, atol=0)  # the same number, not a near one
    spread: dict[int, float] = {}
    for band in first_bands(page, number):
        spread[int(band["above"])] = spread.get(int(band["above"]), 0.0) + float(band["share"])
    for above, share in through.items():  # but for bands of words that are too small to be drawn
        assert share - size * 0.0003 <= spread.get(above, 0.0) <= share * (1 + 1e-9)
    button = page.locator(f'button.column[data-column="{number}"]')
    assert button.get_attribute("aria-expanded") == "true"
    assert page.get_by_label("word by word").is_checked()
    page.locator(".picture-frame").first.focus()
    page.keyboard.press("Enter")
    settled(page)
    assert button.get_attribute("aria-expanded") == "false"
    assert page.get_by_label("as one").is_checked()
    np.testing.assert_array_equal(cells_of(page, n), whole)
    button.click()  # chosen already: it opens
    settled(page)
    assert cells_of(page, n).shape == (n, n - 1 + size)
    page.locator(f'svg.map .opener[data-opens="{number}"]').first.click()
    settled(page)
    assert cells_of(page, n).shape == (n, n)


def first_bands(page: Any, number: int) -> list[dict[str, Any]]:
    bands = facts(page, "path.band:not(.own)")
    return [band for band in bands if int(band["layer"]) == 0 and int(band["below"]) == number]


def test_the_page_says_that_it_groups(
    opened: Callable[..., Any],
    long_text: tuple[str, flow_page.Picture],
    short_text: tuple[str, flow_page.Picture],
) -> None:
    page, made = opened(long_text[0], width=1400), long_text[1]
    count = sum(len(group.words) for group in made.groups if group.kind == "sentence")
    assert f"{count} words and marks are too many for one picture, so they are grouped by sentence" in page.inner_text(
        "main"
    )
    page = opened(short_text[0], width=1400)
    assert "grouped" not in page.locator(".text-list").inner_text()
    assert page.locator("[aria-expanded]").count() == 0


def test_words_that_a_page_does_not_hold_share_what_is_left(
    opened: Callable[..., Any],
    short_text: tuple[str, flow_page.Picture],
) -> None:
    source = (Path(mixlens.__file__).parent / "show" / "page" / "flow.js").read_text()
    function = source[source.index("function addedTo") : source.index("const UNITS")]
    page = opened(short_text[0])

    def added(call: str) -> list[float]:
        return page.evaluate(f"() => {{ {function} return addedTo({call}); }}")

    assert added("1, [0.5, 0, 0], true") == [0.5, 0.25, 0.25]
    assert added("1, [0.5, 0.3, 0], false") == pytest.approx([0.625, 0.375, 0])
    assert added("0.4, [0.5, 0, 0.3], true") == pytest.approx([0.25, 0, 0.15])  # rounded up: scaled down
    assert added("0.3, [0, 0, 0], false") == pytest.approx([0.1] * 3)
