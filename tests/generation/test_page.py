"""The page of a written text in a real browser: the answer first, the numbers of the table, keyboard, accessibility,
size."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import talker

import mixlens
from mixlens.base import text as shown_text
from mixlens.show import generation_page, page_template

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "show"))
pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser")
from test_browser import HOSTILE, browser, opened, violations  # noqa: F401 - fixtures

THIN, MINUS = "\u202f", "\u2212"
PROMPT = "the cat likes the red ball. the dog is a cat! where is the park"
WRITTEN = "open the ball. playing dogs likes red"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def generation() -> Any:
    return talker().explain(PROMPT, continuation=WRITTEN).with_effects()


def percent(share: float) -> str:
    """Written out by hand."""
    size = abs(share) * 100
    if 0 < size < 0.05:
        return f"<0.1{THIN}%"
    return f"{size:.1f}{THIN}%" if 0 < round(size, 1) < 10 else f"{size:.0f}{THIN}%"


def words(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def test_a_cut_last_word_is_marked_and_explained(opened: Open, tmp_path: Path) -> None:  # noqa: F811
    asked = ((prompt, count) for prompt in ("the cat likes the red ball", PROMPT) for count in range(1, 7))
    texts = (talker().explain(prompt, method="attention", generate=count) for prompt, count in asked)
    cut = next(text for text in texts if text.cut)
    page = opened(cut.report(tmp_path / "g.html").as_uri(), width=1400)
    assert words(page, ".story .written button")[-1] == f"{cut.rows[-1].text}…"
    assert "its last word is not whole" in page.locator(".story .cut").inner_text()
    assert page.locator(".matrix .name").last.text_content() == f"{cut.rows[-1].text}…"


def test_the_page_opens_on_the_answer_and_shows_the_table(opened: Open, generation: Any, tmp_path: Path) -> None:  # noqa: F811
    page = opened(generation.report(tmp_path / "g.html").as_uri(), width=1400)
    assert page.locator("h1").inner_text() == "What did each written word rest on?"
    told = page.locator(".answer")
    assert told.count() == 1
    assert told.inner_text() == generation.sentence.replace("“", "").replace("”", "")
    assert told.bounding_box()["y"] < 320
    assert words(page, ".gave") == [word.text for word in generation.columns if word.counts]
    assert words(page, ".story .written button") == [row.text for row in generation.rows]
    assert page.locator(".story .cut").count() == 0  # the text was given
    # every cell is its number: the same colour as the share, and the same words
    prompt = [number for number, word in enumerate(generation.columns) if word.counts]
    cells = page.locator(".matrix .cell")
    assert cells.count() == len(prompt) * len(generation.rows)
    number = prompt.index(max(prompt, key=lambda column: float(generation.matrix[2, column])))
    cells.nth(number * len(generation.rows) + 2).hover()
    share, word = float(generation.matrix[2, prompt[number]]), generation.columns[prompt[number]].text
    assert (
        page.locator("section .readout").inner_text()
        == f"“{generation.rows[2].text}” is made {percent(share)} of “{word}”."
    )
    assert words(page, ".matrix .name") == [row.text for row in generation.rows]
    # a chosen word: its row, its line, its numbers
    page.locator(".story .written button").nth(4).click()
    line = page.locator(".story .readout").inner_text()
    assert line.startswith(f"“{generation.rows[4].text}” ({percent(generation.row_probabilities[4])} sure): ")
    page.locator("summary", has_text="Every number").click()
    page.locator("section table tbody td.number").first.wait_for()  # the fold is filled after it opens
    shown = page.locator("section table tbody td.number").all_inner_texts()
    shares = [percent(float(generation.matrix[4, column])) for column in prompt]
    assert shown[::2] == shares
    # leaving out: shown_text.points, both ways, and the units of one table never mix
    page.get_by_role("radio", name="what leaving it out does").check(force=True)
    assert page.locator(".matrix .own-bar").count() == 0
    ends = page.locator(".legend.changes .ticks span").all_inner_texts()
    assert ends[0].startswith("+")
    assert ends[2].startswith(MINUS)
    page.get_by_role("radio", name="by sentence").check(force=True)
    effects = generation.effects  # where leaving out a sentence differs most from leaving out its first word
    firsts = effects.words[:, [one.words[0] for one in generation.text.groups]]
    row, group = divmod(int((effects.groups - firsts).abs().argmax()), 3)
    cells = page.locator(".matrix .cell")
    assert cells.count() == len(generation.rows) * 3
    cells.nth(group * len(generation.rows) + row).hover()
    before, change = generation.row_probabilities[row], float(generation.effects.groups[row, group])
    said = page.locator("section .readout").inner_text()
    after = percent(max(0.0, before + change))
    named = f"Without sentence {group + 1}, “{generation.rows[row].text}”"
    assert said == f"{named} goes from {percent(before)} to {after}: {shown_text.points(change)}."
    assert shown_text.points(change) != shown_text.points(float(firsts[row, group]))
    # own words one by one
    page.get_by_role("radio", name="how much it is made of").check(force=True)
    page.get_by_role("radio", name="one by one").check(force=True)
    count = len(generation.rows)
    assert page.locator(".matrix .cell").count() == count * 3 + count * (count - 1) // 2
    # sentences in short
    assert page.locator(".span-row").count() == 2
    assert len(Path(tmp_path / "g.html").read_bytes()) < 200_000


def test_keyboard(opened: Open, generation: Any, tmp_path: Path) -> None:  # noqa: F811
    page = opened(generation.report(tmp_path / "g.html").as_uri())
    pressed = page.locator('.written button[aria-pressed="true"]')
    page.locator(".matrix-box").focus()
    page.keyboard.press("ArrowUp")
    first = [button.get_attribute("aria-pressed") for button in page.locator(".written button").all()].index("true")
    page.keyboard.press("ArrowDown")
    assert pressed.inner_text() == generation.rows[first + 1].text
    pressed.focus()
    page.keyboard.press("End")
    assert pressed.inner_text() == generation.rows[-1].text
    page.keyboard.press("Home")
    assert pressed.inner_text() == generation.rows[0].text


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (390, "dark")])
def test_nothing_is_found_by_axe_and_nothing_runs_over(
    opened: Open,  # noqa: F811
    generation: Any,
    tmp_path: Path,
    width: int,
    theme: str,
) -> None:
    page = opened(generation.report(tmp_path / "g.html").as_uri(), width=width, theme=theme)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.get_by_role("radio", name="without it" if width == 390 else "what leaving it out does").check(force=True)
    page.get_by_role("radio", name="by sentence").check(force=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []


def test_a_chat_has_its_turns_and_its_template_apart(opened: Open, tmp_path: Path) -> None:  # noqa: F811
    messages = [{"role": "system", "content": "the dog is red."}, {"role": "user", "content": "where is the cat?"}]
    chat = talker().explain(messages=messages, continuation="the park")
    page = opened(chat.report(tmp_path / "g.html").as_uri())
    assert [name.split("turn")[0].strip() for name in words(page, ".matrix .strong")][:2] == ["System", "User"]
    assert page.locator(".matrix .apart").count() == 3 * len(chat.rows)  # before, between and behind the turns
    assert words(page, ".matrix .slanted") == ["<|system|>", "<|user|>", "<|assistant|>"]
    assert words(page, ".story .role") == ["System", "User"]


def test_a_signed_method_says_which_way(opened: Open, tmp_path: Path) -> None:  # noqa: F811
    signed = talker().explain(PROMPT, method="grad_x_input", continuation=WRITTEN)
    page = opened(signed.report(tmp_path / "g.html", leave_out=False).as_uri())
    assert page.get_by_role("radio", name="what leaving it out does").count() == 0
    assert "against the written word" in page.locator(".under .legend").inner_text()
    assert page.locator(".matrix .dash").count() > 0


def test_hostile_words_are_texts(opened: Open, tmp_path: Path) -> None:  # noqa: F811
    """Words of a file are shown as they are, and nothing of them runs."""
    content = talker().explain(PROMPT, continuation=WRITTEN).to_dict()
    for word, text in zip(content["words"][1:], HOSTILE, strict=False):
        word["text"] = text
    content["words"][-1]["text"] = "</script><script>alert(3)</script>"
    page = opened(mixlens.answers.generation.files.from_dict(content).report(tmp_path / "g.html").as_uri(), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "</script><script>alert(3)</script>" in words(page, ".story .written button")


def test_long_texts_open_one_sentence_at_a_time(opened: Open, tmp_path: Path) -> None:  # noqa: F811
    long = talker().explain("the cat likes the red ball. " * 8, continuation=WRITTEN)
    place = long.report(tmp_path / "g.html", leave_out=False)
    page = opened(place.as_uri(), width=1400)
    assert page.locator(".matrix .cell").count() == 8 * len(long.rows)
    page.get_by_role("radio", name="by word").check(force=True)
    assert page.locator(".matrix .cell").count() == (7 + 7) * len(long.rows)
    page.locator(".matrix .opener").first.click()
    assert re.search(r"the\s*cat", " ".join(words(page, ".matrix .read:not(.name)")))


def test_a_narrow_page_says_what_it_shows(opened: Open, generation: Any, tmp_path: Path) -> None:  # noqa: F811
    """The title follows the columns, a switch is on one line, and a mark is quoted so that it is not read as ours."""
    place = generation.report(tmp_path / "narrow.html").as_uri()
    page = opened(place, width=390)
    title = page.locator("section h2").first
    assert title.inner_text() == "Written words by sentences of the prompt"
    heights = page.locator(".controls .choices").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert len(set(heights)) == 1
    page.get_by_label("by word", exact=True).check()
    assert title.inner_text() == "Written words by prompt words"
    parts = "[['quote', '.'], ['quote', 'ball'], ['strong', '!']]"
    ask = f"return {parts}.map((one) => make('p', {{}}, ...answerParts([one])).textContent);"
    body = page_template.script_of(*generation_page.GENERATE.scripts, start=ask)
    assert page.evaluate(body.replace("(() => {", "() => {", 1).rstrip().removesuffix("})();") + "}") == [
        "“.”",
        "ball",
        "“!”",
    ]
