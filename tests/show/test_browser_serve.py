"""The served page in a real browser: empty, running, error, done; by mouse and by keyboard; what it shows is the
library's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from test_browser import HOSTILE, api, browser, opened, picture, violations

import mixlens

pytest.importorskip("fastapi", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

from mixlens.answers.names import name_of  # noqa: E402
from mixlens.base.steps import tell  # noqa: E402
from mixlens.base.text import THIN  # noqa: E402
from mixlens.serve.app import Limits, application  # noqa: E402

REVIEW = "a good film but a dull plot"


@cache
def loaded(name: str) -> Any:
    return mixlens.load(name)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Any]]:
    app = application([loaded("sentiment"), loaded("agreement")], limits=Limits(tokens=64, kept=40))
    place = socket.create_server(("127.0.0.1", 0))
    listening = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=listening.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{place.getsockname()[1]}/", app
    listening.should_exit = True
    thread.join(10)
    app.desk.close()
    place.close()


@pytest.fixture
def served(opened: Callable[..., Any], server: tuple[str, Any]) -> Callable[..., Any]:
    return lambda **options: opened(server[0], ready="[data-form=ready]", own=server[0], **options)


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A question stands at its second step until the event is set, but can be stopped."""
    going = threading.Event()

    def slow(model: Any, question: str, asked: Any, track: Any) -> Any:
        track.plan(["Read the text: 9 tokens", "Run the model", "Path of gradients", "Take the top words out"])
        track.next()
        track.next("Read the text: 9 tokens, 7 words")
        track.know([("positive", 0.75), ("negative", 0.25)])
        while not going.wait(0.01):
            tell(16, 64, "texts")  # as a method does, while it runs
        raise mixlens.base.errors.InputError("the model went away. Load it again.")

    monkeypatch.setattr("mixlens.serve.jobs.answered", slow)
    yield going
    going.set()


def text_box(page: Any) -> Any:
    return page.get_by_role("textbox", name="Text", exact=True)


def explain(page: Any, text: str | None = None) -> None:
    if text is not None:
        text_box(page).fill(text)
    page.get_by_role("button", name="Explain", exact=True).click()


def state(page: Any, name: str) -> Any:
    page.wait_for_selector(f".grid[data-state={name}]", timeout=60_000)
    return page.locator(".state")


def answers(page: Any, count: int) -> Any:
    page.wait_for_selector(f"[data-answers='{count}']", state="attached", timeout=60_000)
    return page.locator(".state")


def plain(text: str) -> str:
    return text.replace(THIN, " ").replace("\u2212", "-")


# --- empty ------------------------------------------------------------------------------------------------------------


def test_the_page_says_what_will_come(served: Callable[..., Any], server: tuple[str, Any]) -> None:
    page = served(width=1400)
    assert page.locator("h1").inner_text() == "Ask what a prediction rests on"
    assert page.title() == "Ask what a prediction rests on · mixlens"
    told = state(page, "empty").inner_text()
    for part in ("What you will get", "The answer in one sentence", "Whether to trust it"):
        assert part in told
    assert [page.locator(".question b").nth(number).inner_text() for number in range(3)] == [
        *("Why this class?", "What flows where?", "Compare methods"),
    ]
    assert page.locator(".under-text span").inner_text() == "0 of 64 tokens"
    assert page.locator("select").first.locator("option").all_inner_texts() == [
        *("sentiment: negative or positive", "agreement: fills in a missing word"),
    ]
    page.get_by_role("button", name="Try an example").click()
    api.expect(page.locator(".under-text span")).to_have_text("12 of 64 tokens")
    picture(page, "served-empty")


def test_times_are_those_that_were_measured(served: Callable[..., Any], server: tuple[str, Any]) -> None:
    times = server[1].desk.times
    times["sentiment", "flow"] = (3.4, 10)
    page = served()
    card = page.locator(".question", has_text="What flows where?").locator(".time")
    api.expect(card).to_have_text("about 3 s")
    text_box(page).fill("a good film " * 15)
    api.expect(card).to_have_text("3 s at 10 tokens")  # not measured with such a text: the page says with which
    times["sentiment", "flow"] = (0.2, 47)
    page = served()
    api.expect(page.locator(".question", has_text="What flows where?").locator(".time")).to_have_text("under 1 s")


# --- done -------------------------------------------------------------------------------------------------------------


def test_the_answer_stands_on_the_first_screen_and_is_the_librarys(served: Callable[..., Any]) -> None:
    page = served(width=1400)
    explain(page, REVIEW)
    shown = answers(page, 1)
    wanted = loaded("sentiment").why(REVIEW).to_dict()
    assert shown.locator("h2").first.inner_text() == wanted["question"]
    chips = shown.locator(".answer .chip").all_inner_texts()
    assert chips == [wanted["words"][k]["text"] for k in wanted["answer"]["for"] + wanted["answer"]["against"]]
    assert shown.locator(".answer").bounding_box()["y"] < 500
    assert shown.locator(f".check.{wanted['trust']['verdict']}").count() == 1
    assert wanted["trust"]["sentence"] in shown.locator(".check").inner_text()
    assert f"{100 * wanted['trust']['without']:.1f} %" in plain(shown.locator(".check").inner_text())
    values = [float(plain(value).rstrip(" %")) for value in shown.locator(".strip .w i").all_inner_texts()]
    shares = [100 * word["share"] for word in wanted["words"] if not word["special"] and abs(word["share"]) >= 0.03]
    assert values == pytest.approx(shares, abs=0.51)  # whole percents from 10 on
    below = page.locator(".below-form")
    for title in ("Can I trust this?", "Which words counted, and which way", "The same text, read by five methods"):
        assert below.get_by_role("heading", name=title).count() == 1
    api.expect(page.locator(".question", has_text="Why this class?").locator(".time")).not_to_have_text("")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Open the whole answer").click()
    popup.value.wait_for_selector("[data-ready]", state="attached")
    assert popup.value.locator("h1").inner_text() == wanted["question"]
    picture(page, "served-why")


def test_every_question_is_answered_with_its_own_components(served: Callable[..., Any]) -> None:
    page = served(width=1400)
    text_box(page).fill(REVIEW)
    page.get_by_role("radio", name="What flows where?").check()
    explain(page)
    shown = answers(page, 1)
    assert shown.locator("h2").first.inner_text().startswith("What flowed into the answer ")
    assert page.locator(".below-form .band").count() > 0
    page.get_by_role("radio", name="Compare methods").check()
    page.get_by_text("More choices").click()
    for name in ("integrated_gradients", "blank_out", "alti", "deeplift"):
        page.get_by_role("checkbox", name=f"{name_of(name).everyday} {name_of(name).name}.").uncheck()
    page.get_by_role("checkbox", name="Norms of what is passed on").check()
    page.get_by_label("Explain", exact=True).select_option("negative")
    page.get_by_role("checkbox", name="Show special tokens").first.check()
    explain(page)
    shown = answers(page, 2)
    assert shown.locator("h2").first.inner_text() == loaded("sentiment").why(REVIEW, target="negative").question
    assert page.locator(".below-form h2").first.inner_text() == "The same text, read by two methods"
    assert page.locator(".below-form .wide-table tbody .names b").all_inner_texts() == [
        "Attention × gradient",
        "Norms of what is passed on",
    ]
    assert shown.locator(".strip .w.special").count() == 2
    assert page.get_by_role("link", name="Save as one file").get_attribute("href").endswith("/file?save=true")
    picture(page, "served-methods")


def test_everything_goes_by_keyboard(served: Callable[..., Any]) -> None:
    page = served()
    text_box(page).focus()
    page.keyboard.type(REVIEW)
    page.keyboard.press("Tab")  # Try an example
    page.keyboard.press("Tab")  # Model
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "why"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.value") == "flow"
    page.keyboard.press("Control+Enter")
    answers(page, 1)
    assert page.evaluate("document.activeElement.className") == "question-asked"


def test_doubt_is_shown_with_a_triangle_above_the_answer(served: Callable[..., Any]) -> None:
    page, text = served(), "The keys to the cabinet are [MASK]."
    wanted = loaded("agreement").why(text).to_dict()
    assert [one for one in wanted["notes"] if one["state"] == "caution"]
    page.get_by_role("combobox", name="Model", exact=True).select_option("agreement")
    explain(page, text)
    shown = answers(page, 1)
    notes = shown.locator(".note.caution")
    assert notes.all_inner_texts() == [one["text"] for one in wanted["notes"] if one["state"] == "caution"]
    assert notes.first.bounding_box()["y"] < shown.locator(".answer").bounding_box()["y"]


# --- running ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1400])
def test_progress_names_the_step_and_can_be_cancelled(
    served: Callable[..., Any], held_up: threading.Event, width: int
) -> None:
    page = served(width=width)
    explain(page, REVIEW)
    shown = state(page, "running")
    api.expect(shown.locator(".progress-line")).to_contain_text("Step 2 of 4, 16 of 64 texts")
    told = plain(shown.inner_text())
    assert "31 % · " in told  # one step of four, and a quarter of the second
    assert shown.locator(".steps .now .within").inner_text() == "16 of 64 texts"
    assert "nobody is waiting behind you" in told
    assert shown.locator(".steps li").evaluate_all("all => all.map(one => one.className)") == [
        "done",
        "now",
        "waits",
        "waits",
    ]
    assert shown.locator(".steps li").first.inner_text().startswith("Read the text: 9 tokens, 7 words")
    assert [plain(one) for one in shown.locator(".known-row b").all_inner_texts()] == ["75.0 %", "25.0 %"]
    assert page.get_by_role("button", name="Explaining").is_disabled()
    assert page.get_by_role("progressbar").get_attribute("aria-valuenow") == "31"
    assert 0 <= shown.bounding_box()["y"] < 900  # also on a phone
    assert violations(page) == []
    picture(page, f"served-running-{width}")
    page.get_by_role("button", name="Cancel").click()
    told = state(page, "empty").inner_text()
    assert "Cancelled" in told
    assert text_box(page).input_value() == REVIEW
    assert page.get_by_role("button", name="Explain", exact=True).is_enabled()


def test_what_fails_is_told_and_the_text_is_kept(served: Callable[..., Any], held_up: threading.Event) -> None:
    held_up.set()
    page = served()
    explain(page, REVIEW)
    told = state(page, "error").inner_text()
    assert "The model went away." in told
    assert "Load it again." in told
    assert text_box(page).input_value() == REVIEW


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_blank_text_is_no_text(served: Callable[..., Any]) -> None:
    page = served()
    explain(page, "  \n ")
    told = state(page, "error")
    assert "There is no text yet" in told.inner_text()
    assert told.get_by_role("alert").locator("svg.icon").count() == 1
    assert text_box(page).get_attribute("aria-invalid") == "true"
    told.get_by_role("button", name="Try an example").click()
    assert text_box(page).input_value() == "The plot was dull but the acting was brilliant."
    assert text_box(page).get_attribute("aria-invalid") is None


@pytest.mark.parametrize("width", [390, 1400])
def test_too_long_a_text_is_refused_or_cut(served: Callable[..., Any], width: int) -> None:
    page = served(width=width, refused=True)
    text = "a good film " * 40
    text_box(page).fill(text)
    api.expect(page.locator(".under-text span")).to_have_text("58 tokens too many")
    explain(page)
    told = state(page, "error")
    assert "It has 122 tokens; at most 64 are read." in told.inner_text()
    assert page.locator(".field-error").inner_text() == "122 tokens; at most 64 are read."
    assert text_box(page).input_value() == text
    assert 0 <= told.bounding_box()["y"] < 900
    assert violations(page) == []
    picture(page, f"served-error-{width}")
    told.get_by_role("button", name="Use the first 64 tokens").click()
    shown = answers(page, 1)
    assert "The text has 122 tokens; the first 64 are explained, the rest was not read." in shown.inner_text()
    assert text_box(page).input_value() == text


def test_a_missing_mask_is_put_in(served: Callable[..., Any]) -> None:
    page = served(refused=True)
    page.get_by_role("combobox", name="Model", exact=True).select_option("agreement")
    explain(page, "The keys to the cabinet were rusty.")
    told = state(page, "error")
    assert "The text has no [MASK]" in told.inner_text()
    told.get_by_role("button", name="Put [MASK] in place of the last word").click()
    answers(page, 1)
    assert text_box(page).input_value() == "The keys to the cabinet were [MASK]."


def test_what_flows_where_needs_no_mask_but_says_that_there_is_none(served: Callable[..., Any]) -> None:
    page = served()
    page.get_by_role("combobox", name="Model", exact=True).select_option("agreement")
    page.get_by_role("radio", name="What flows where?").check()
    explain(page, "The keys to the cabinet were rusty.")
    assert answers(page, 1).locator(".note.caution").all_inner_texts() == [
        "The text has no [MASK], so no word of it is predicted. Write [MASK] in place of a word to see what for."
    ]


def test_a_server_that_is_gone_is_told(served: Callable[..., Any]) -> None:
    page = served()
    page.evaluate("() => { window.kept = fetch; window.fetch = () => Promise.reject(new TypeError('no server')); }")
    text_box(page).fill(REVIEW)
    page.get_by_role("button", name="Explain", exact=True).click()
    told = state(page, "error").inner_text()
    assert "The program behind this page does not answer" in told
    assert "mixlens serve" in told
    assert text_box(page).input_value() == REVIEW
    page.evaluate("() => { window.fetch = window.kept; }")
    page.get_by_role("button", name="Try again").click()
    answers(page, 1)


# --- for everyone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing_and_nothing_scrolls_sideways(served: Callable[..., Any], width: int, theme: str) -> None:
    page = served(width=width, theme=theme)
    page.get_by_text("More choices").click()
    page.get_by_text("more", exact=False).filter(has_text="more").last.scroll_into_view_if_needed()
    assert violations(page) == []
    page.get_by_text("More choices").click()
    explain(page, " ".join(HOSTILE[:7]))
    answers(page, 1)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    picture(page, f"served-hostile-{width}-{theme}")


def test_on_a_phone_the_evidence_follows_the_answer(served: Callable[..., Any]) -> None:
    page = served(width=390)
    explain(page, REVIEW)
    answers(page, 1)
    tops = [page.locator(part).bounding_box()["y"] for part in (".hero", ".state", ".below-form", "form.ask")]
    assert tops == sorted(tops)


def test_the_description_of_the_api_is_plain(opened: Callable[..., Any], server: tuple[str, Any]) -> None:
    page = opened(f"{server[0]}docs", ready="h1", own=server[0])
    assert "POST /api/jobs" in page.locator("main").inner_text()
    assert violations(page) == []
