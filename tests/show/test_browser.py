"""The report and a notebook's output in a real browser: what is shown is what the arrays say.

Needs playwright (extra `browser`) and a Chromium; `make browser` gets both, and axe-core for the accessibility checks.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import mixlens
from mixlens import Attribution, Map
from mixlens.show.report import gather

api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (found := shutil.which(name))),
    None,
)
if CHROMIUM is None:
    pytest.skip("needs a Chromium: make browser", allow_module_level=True)
AXE = Path(__file__).resolve().parents[2] / ".browser/node_modules/axe-core/axe.min.js"
SHOTS = os.environ.get("MIXLENS_SHOTS")  # a folder for pictures, for whoever wants to look
SENTENCE = "The keys to the cabinet [MASK] rusty."
METHODS = ["alti", "attention", "effective_attention", "attcat"]
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "שלום",
    "مرحبا",
    "\u200b",
    "\u202e",
    "👩‍👩‍👧",
    "e\u0301",
    "a" * 300,
)


@cache
def agreement() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page and watches it: an error in the console, a dialog or a request to anywhere else fails the test."""
    contexts, wrong = [], []

    def open_page(
        address: str,
        *,
        width: int = 1280,
        theme: str = "light",
        ready: str = "[data-ready]",
        own: str = "",
        refused: bool = False,
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()

        def said(message: Any) -> None:
            expected = refused and "status of 4" in message.text  # browsers log every refusal
            if message.type in ("error", "warning") and not expected:
                wrong.append(message.text)

        page.on("console", said)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url == address
                or asked.url.startswith(("data:", "blob:"))
                or (own and asked.url.startswith(own))
                else wrong.append(f"request to {asked.url}")
            ),
        )
        page.goto(address)
        page.wait_for_selector(ready, state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    texts = [SENTENCE, "The unhappyish keys [MASK] old."]
    place = tmp_path_factory.mktemp("report") / "r.html"
    return mixlens.report(agreement(), place, texts=texts, methods=METHODS).as_uri()


def settled(page: Any) -> None:
    """Until the last choice is drawn."""
    page.evaluate(
        """() => new Promise((done) => {
            let last = null;
            const look = () => {
                const now = document.documentElement.dataset.ready;
                if (now !== undefined && now === last) done();
                else { last = now; setTimeout(look, 60); }
            };
            look();
        })"""
    )


def panel(method: str) -> str:
    """The part of the explorer that shows a method."""
    return f'[data-method="{method}"]'


def strip(page: Any, method: str) -> list[float]:
    """The raw numbers on the tokens of one method's panel, special tokens too where they are hidden."""
    return page.eval_on_selector_all(
        f"{panel(method)} .token", "tokens => tokens.map(token => Number(token.dataset.value))"
    )


def by_token(page: Any) -> None:
    """Tokens instead of words."""
    page.get_by_role("radio", name="tokens").check()
    settled(page)


def close_to(seen: list[float], wanted: torch.Tensor) -> None:
    torch.testing.assert_close(torch.tensor(seen, dtype=torch.float64), wanted.double(), rtol=1e-5, atol=1e-7)


def flowed(page: Any) -> list[float]:
    """What is at the input of the flow picture, token by token; raw numbers."""
    return [
        float(one)
        for one in page.locator(".flow text.share").evaluate_all("all => all.map((one) => one.dataset.value)")
    ]


def set_layer(page: Any, layer: int) -> None:
    slider = page.locator(".explorer input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(layer - 1):
        page.keyboard.press("ArrowRight")
    settled(page)


def picture(page: Any, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_page_begins_where_the_model_predicts(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    trace = agreement().trace(SENTENCE)
    close_to(strip(page, "alti"), mixlens.mix(trace, "alti").rollout().by_word().scores[-1, 6])
    assert page.locator(f"{panel('alti')} .token:visible").all_inner_texts()[1:4] == [
        "The",
        "keys",
        "to",
    ]  # words, not pieces
    assert "took most from rusty" in page.locator(".shown > .said").inner_text()
    page.get_by_text("Where these maps come from").click()
    about = page.locator(".folds").inner_text()
    for piece in (
        "agreement",
        "Reconstruction gap",
        "allowed: 1e-04",
        "torch",
        "Ferrando",
        SENTENCE,
        "every number, in 32 bits",
    ):
        assert piece in about


def test_the_report_opens_on_the_answer(opened: Callable[..., Any], report: str) -> None:
    page = opened(report, width=1400)
    why = agreement().why(SENTENCE)
    assert page.locator("h1").inner_text() == why.question
    assert page.locator("h1").count() == 1
    chips = page.locator(".answer .chip").all_inner_texts()
    assert chips == [why.words[k].text for k in (*why.answer.for_, *why.answer.against)]
    rows = page.locator(".text-row").all_inner_texts()
    assert len(rows) == 2
    assert why.sentence in rows[0]
    page.locator(".text-row input").nth(1).check()
    settled(page)
    other = agreement().why("The unhappyish keys [MASK] old.")
    assert page.locator("h1").inner_text() == other.question
    assert page.locator(".hero .strip .w b").all_inner_texts() == [
        one.text for one in other.words if not one.special or one.text == "[MASK]"
    ]
    assert page.locator(".hero").count() == page.locator(".explorer").count() == page.locator(".trust").count() == 1


def test_presets_and_all_methods_as_rows(opened: Callable[..., Any], report: str) -> None:
    page = opened(report, width=1400)
    assert page.get_by_role("group", name="What is shown").first.inner_text().split("\n")[1:] == [
        "Why this answer",
        "What flows where",
        "Compare methods",
    ]
    page.get_by_role("radio", name="Why this answer").check()
    settled(page)
    trace = agreement().trace(SENTENCE)
    close_to(strip(page, "attcat"), mixlens.attribute(trace, "attcat").by_word().scores)
    hidden = page.locator(f"{panel('attcat')} .token[hidden]").all_text_contents()
    assert hidden == ["[CLS]", "[SEP]"]  # off by default for attributions
    page.get_by_label("Show special tokens").last.check()
    settled(page)
    assert page.locator(f"{panel('attcat')} .token[hidden]").count() == 0
    page.get_by_role("radio", name="Compare methods").check()
    settled(page)
    table = page.locator(".explorer .wide-table")
    rows = table.locator("tbody tr:not(.divider)")
    assert rows.count() == len(METHODS)
    first = [row.split("\n")[0] for row in rows.all_inner_texts()][:2]  # signed methods first
    assert sorted(first) == ["Attention × gradient", "Looks that reach the output"]
    alti = mixlens.mix(trace, "alti").rollout().by_word().scores[-1, 6]
    cells = table.locator("tr", has_text="ALTI").locator("td.cell").all_inner_texts()
    assert cells == ["·" if share < 0.005 else f"{100 * share:.0f}" for share in (alti / alti.sum()).tolist()]


def test_tokens_layers_methods_and_sheets_show_the_arrays(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    by_token(page)
    trace = agreement().trace(SENTENCE)
    for method in ("alti", "attention", "effective_attention"):
        page.get_by_role("combobox", name="Method").select_option(method)
        settled(page)
        made = mixlens.mix(trace, method)
        for sheet, scores in (("from the input", made.rollout()), ("this layer alone", made)):
            page.get_by_role("radio", name=sheet).check()
            for layer in (1, 3):
                set_layer(page, layer)
                assert page.locator(".explorer output").inner_text() == f"{layer} of 4"
                for token in (2, 6):
                    page.locator(f"{panel(method)} .token").nth(token).click()
                    settled(page)
                    close_to(strip(page, method), scores.scores[layer - 1, token])
    page.get_by_label("where it went").check()
    settled(page)
    close_to(strip(page, "effective_attention"), made.scores[2, :, 6])
    first = page.locator(".largest tbody tr").first
    shares = made.scores[2] / made.scores[2].abs().sum(-1, keepdim=True)  # of what each position took
    largest = int(shares[:, 6].abs().argmax())
    assert first.locator("th").inner_text() == trace.tokens[largest]
    assert float(first.locator("td.number").get_attribute("data-value") or "") == pytest.approx(
        float(made.scores[2, largest, 6])
    )
    told = first.locator("td.number").first.inner_text().replace("\u202f%", "").replace("\u2212", "-").lstrip("+")
    assert float(told) == pytest.approx(100 * float(shares[largest, 6]), abs=0.5)


def test_every_number_can_be_read_in_a_table(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    page.get_by_text("Every number of this row").click()
    page.wait_for_selector(".explorer details[open] table")
    rows = page.locator(".explorer details[open] tbody tr td:nth-last-child(2)").all_inner_texts()  # the raw numbers
    wanted = mixlens.mix(agreement().trace(SENTENCE), "alti").rollout().by_word().scores[-1, 6]
    assert [float(row) for row in rows] == pytest.approx(wanted.tolist(), rel=1e-3)


def test_words_are_summed_over_keys_and_averaged_over_queries(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    page.locator(".text-row input").nth(1).check()
    settled(page)
    trace = agreement().trace("The unhappyish keys [MASK] old.")
    rolled = mixlens.mix(trace, "alti").rollout().by_word()
    assert len(rolled.tokens) < len(trace)
    word = next(i for i, (_, places) in enumerate(trace.words) if len(places) > 1)
    page.locator(f"{panel('alti')} .token").nth(word).click()
    settled(page)
    close_to(strip(page, "alti"), rolled.scores[-1, word])
    assert page.locator(f"{panel('alti')} .token").all_inner_texts() == list(rolled.tokens)
    page.get_by_role("combobox", name="Method").select_option("attcat")
    settled(page)
    close_to(strip(page, "attcat"), mixlens.attribute(trace, "attcat").by_word().scores)


def test_the_flow_adds_up_to_the_rollout(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    by_token(page)
    trace = agreement().trace(SENTENCE)
    for method in ("alti", "attention"):
        page.get_by_role("combobox", name="Method").select_option(method)
        page.locator(f"{panel(method)} .token").nth(3).click()
        settled(page)
        shares = flowed(page)
        wanted = mixlens.mix(trace, method).rollout().scores[-1, 3]
        assert shares == pytest.approx(wanted.tolist(), rel=1e-3)
        path = page.locator(".paths li").first
        layers = mixlens.mix(trace, method).scores
        if method == "attention":
            layers = (layers + torch.eye(len(trace))) / 2
        best = torch.zeros(len(trace))
        best[3] = 1
        for layer in reversed(layers):
            best = (best[:, None] * layer).max(0).values
        assert float(path.get_attribute("data-value") or "") == pytest.approx(float(best.max()), rel=1e-5)
        assert path.inner_text().split("%")[1].split()[0] == trace.tokens[int(best.argmax())]
        assert path.inner_text().endswith(trace.tokens[3])


def test_a_map_that_grows_from_layer_to_layer_is_drawn_in_every_layer(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    scores = mixlens.mix(agreement().trace(SENTENCE), "alti").scores * 30  # rows that sum to 30, as they are
    tokens = agreement().trace(SENTENCE).tokens
    made = Map(scores, tokens, "globenc", {"model": "m", "text": "x", "convention": "globenc", "query": 6})
    page = opened(mixlens.report(made, tmp_path / "r.html").as_uri())
    told = " ".join(page.locator(".flow .edge title").all_text_contents())
    assert all(f"layer {layer}:" in told for layer in (1, 2, 3, 4))
    shares = flowed(page)
    assert shares == pytest.approx(made.rollout().scores[-1, 6].tolist(), rel=1e-3)


def test_two_methods_side_by_side(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    by_token(page)
    page.get_by_label("Beside it").select_option("attcat")
    settled(page)
    assert page.locator(".panel-part").count() == 2
    left, right = (page.locator(".panel-part").nth(i).bounding_box() for i in range(2))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    scores = mixlens.attribute(agreement().trace(SENTENCE), "attcat").scores
    close_to(strip(page, "attcat"), scores)
    colors = page.eval_on_selector_all(
        f"{panel('attcat')} .token", "tokens => tokens.map(token => getComputedStyle(token).backgroundColor)"
    )
    for color, score in zip(colors, scores.tolist(), strict=True):  # blue for, orange against
        red, _, blue = (float(part) for part in re.findall(r"[\d.]+", color)[:3])
        assert (blue >= red) if score > 0 else (red >= blue)
    page.set_viewport_size({"width": 390, "height": 900})
    top, bottom = (page.locator(".panel-part").nth(i).bounding_box() for i in range(2))
    assert top["y"] + top["height"] <= bottom["y"]


def test_pointing_at_a_cell_shows_its_numbers(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    by_token(page)
    canvas = page.locator(".cells canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    scores = mixlens.mix(agreement().trace(SENTENCE), "alti").rollout().scores[-1]
    page.mouse.move(box["x"] + (7 + 0.5) / 10 * box["width"], box["y"] + (2 + 0.5) / 10 * box["height"])
    line = page.locator(".map-frame .readout")
    assert line.inner_text().startswith("“keys” (2) took ")
    numbers = [float(line.get_attribute(f"data-{name}") or "") for name in ("took", "gave")]
    assert numbers == pytest.approx([float(scores[2, 7]), float(scores[7, 2])], rel=1e-5)
    told = [float(number) for number in re.findall(r"([\d.]+)\u202f%", line.inner_text())]
    assert told == pytest.approx([100 * float(scores[2, 7]), 100 * float(scores[7, 2])], abs=0.5)
    page.locator(".map-frame .scroll").focus()
    page.keyboard.press("ArrowDown")
    assert line.inner_text().startswith("“to” (3) took ")
    page.mouse.click(box["x"] + 5, box["y"] + (5 + 0.5) / 10 * box["height"])
    settled(page)
    close_to(strip(page, "alti"), scores[5])


def test_everything_is_reached_by_the_keyboard(opened: Callable[..., Any], report: str) -> None:
    page = opened(report)
    seen = []
    for _ in range(45):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.className || document.activeElement.type || document.activeElement.tagName"
            )
        )
    joined = " ".join(str(one) for one in seen)
    for part in ("skip", "radio", "w for", "bar-row", "SUMMARY", "select-one", "range", "token", "scroll"):
        assert part in joined, (part, seen)
    page.locator('.token[aria-selected="true"]').focus()
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert page.evaluate("document.activeElement.innerText") == "cabinet"
    close_to(strip(page, "alti"), mixlens.mix(agreement().trace(SENTENCE), "alti").rollout().by_word().scores[-1, 5])
    page.keyboard.press("Home")
    settled(page)
    assert page.evaluate("document.activeElement.innerText") == "[CLS]"


def test_light_dark_and_paper(opened: Callable[..., Any], report: str) -> None:
    page = opened(report, theme="dark")

    def paper() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert paper() == "rgb(16, 19, 24)"
    page.get_by_role("radio", name="Light").check()
    settled(page)
    assert paper() == "rgb(250, 249, 247)"
    page.get_by_role("radio", name="Dark").check()
    page.emulate_media(media="print", color_scheme="dark")
    settled(page)
    assert paper() == "rgb(255, 255, 255)"
    assert not page.locator(".explorer .controls").is_visible()
    assert page.locator(".trust").is_visible()
    weak = page.locator(".token").first.evaluate("token => getComputedStyle(token).backgroundColor")
    channels = [float(part) for part in re.findall(r"[\d.]+", weak)[:3]]
    assert min(channels) > (0.78 if max(channels) <= 1 else 200)  # on paper the weakest token is light
    picture(page, "print")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(opened: Callable[..., Any], report: str, theme: str, width: int) -> None:
    page = opened(report, width=width, theme=theme)
    page.get_by_label("Beside it").select_option("attcat")
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"report-{theme}-{width}")


def violations(page: Any) -> list[str]:
    if not AXE.is_file():
        pytest.skip("needs axe-core: make browser")
    page.evaluate(AXE.read_text())  # not as an element: the page's own policy would refuse it
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {[node['html'][:150] for node in one['nodes'][:3]]}" for one in found["violations"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(opened: Callable[..., Any], report: str, theme: str, width: int) -> None:
    page = opened(report, width=width, theme=theme)
    page.get_by_label("Beside it").select_option("attcat")
    page.get_by_text("Every number of this row").first.click()
    settled(page)
    assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_tokens_are_shown_as_text(opened: Callable[..., Any], tmp_path: Path, theme: str) -> None:
    n = len(HOSTILE)
    info = {"model": HOSTILE[1], "text": " ".join(HOSTILE), "prediction": [(HOSTILE[0], 0.5)], "words": None}
    scores = torch.randn(3, n, n, generator=torch.Generator().manual_seed(0)).softmax(-1)
    words = tuple((token, (i,)) for i, token in enumerate(HOSTILE))
    results = [
        Map(scores, HOSTILE, HOSTILE[0], info, (), words),
        Attribution(scores[0, 0], HOSTILE, "<b>x</b>", info, (), words),
    ]
    page = opened(mixlens.report(results, tmp_path / "r.html", title=HOSTILE[0]).as_uri(), theme=theme, width=390)
    shown = page.locator(".token").all_inner_texts()
    assert shown[:4] == list(HOSTILE[:4])
    assert shown[4:6] == ["\\u200b", "\\u202e"]
    assert page.locator("h1").inner_text() == HOSTILE[0]
    assert page.locator("img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("Beside it").select_option("<b>x</b>")
    by_token(page)
    assert [text for text in page.locator("main b").all_inner_texts() if text == "x"] == []
    picture(page, f"hostile-{theme}")
    assert violations(page) == []


def test_400_tokens_and_12_layers(opened: Callable[..., Any], tmp_path: Path) -> None:
    n = 400
    scores = (torch.randn(12, n, n, generator=torch.Generator().manual_seed(0)) * 1.5).softmax(-1)
    made = Map(
        scores,
        tuple(f"t{i}" for i in range(n)),
        "alti",
        {"model": "m", "text": "x", "convention": "alti", "query": 399},
    )
    page = opened(mixlens.report(made, tmp_path / "r.html").as_uri())
    page.get_by_label("this layer alone").check()
    set_layer(page, 7)
    page.locator(".token").nth(300).click()
    settled(page)
    seen, wanted = torch.tensor(strip(page, "alti")), scores[6, 300]
    held = seen != 0
    assert 20 < int(held.sum()) <= n
    assert float((seen - wanted)[held].abs().max()) <= float(wanted.max()) / 500
    assert float(wanted[~held].max()) <= float(wanted[held].min()) + float(wanted.max()) / 500
    rest = page.locator("tr.rest td.number").first.inner_text().replace("\u202f%", "")
    assert float(rest) == pytest.approx(100 * float(wanted[~held].sum()), abs=1)
    page.get_by_text("Where these maps come from").click()
    page.locator(".folds").get_by_text("largest numbers of each row").wait_for()
    assert page.locator(".flow circle").count() > 8
    page.get_by_label("from the input").check()
    page.get_by_text("Every number of this row").click()
    settled(page)
    rows = [row.split() for row in page.locator("details[open] .largest tbody tr:not(.rest)").all_inner_texts()]
    listed = {row[0]: row[1] for row in rows}
    drawn = dict(
        zip(
            page.locator(".flow text.name").all_text_contents(),
            page.locator(".flow text.share").all_text_contents(),
            strict=True,
        )
    )
    both = {name: share.split()[0] for name, share in drawn.items() if name in listed}
    assert len(both) >= 4
    assert both == {name: listed[name] for name in both}  # one thing has one value on the page
    picture(page, "long")


# --- a notebook -------------------------------------------------------------------------------------------------------


def notebook(tmp_path: Path, *results: Any, color: str = "black") -> str:
    """Outputs one below the other, as a notebook that was saved and opened again has them."""
    cells = "".join(f'<div class="output">{result._repr_html_()}</div>' for result in results)
    head = f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>body{{color:{color}}}p{{color:red}}</style>'  # noqa: E501
    place = tmp_path / "notebook.html"
    place.write_text(head + cells, encoding="utf-8")
    return place.as_uri()


def test_a_notebook_shows_maps_and_attributions_side_by_side(opened: Callable[..., Any], tmp_path: Path) -> None:
    trace = agreement().trace(SENTENCE)
    made, read = mixlens.mix(trace, "alti"), mixlens.attribute(trace, "attcat")
    names = "Object.keys(window).length"
    page = opened(notebook(tmp_path, made, made, read), ready="[data-started]")
    page.wait_for_selector(".frame .token[data-value]")
    hosts = page.locator("[data-mixlens]")
    assert hosts.count() == 3
    assert page.locator("[id]").count() == 0
    assert page.locator("[data-mixlens] > p").count() == 0  # each was started once, and none complains

    def numbers(host: int) -> list[float]:
        return (
            hosts.nth(host).locator(".token").evaluate_all("tokens => tokens.map(token => Number(token.dataset.value))")
        )

    close_to(numbers(0), made.scores[-1, 6])
    slider = hosts.nth(0).locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    hosts.nth(0).locator(".token").nth(2).click()
    close_to(numbers(0), made.scores[0, 2])
    close_to(numbers(1), made.scores[-1, 6])  # the other output is not moved
    close_to(numbers(2), read.scores)
    hosts.nth(0).locator(".token").nth(7).hover()
    told = hosts.nth(0).locator(".readout").first
    assert told.inner_text().startswith("“keys” (2) took")
    assert float(told.get_attribute("data-value") or "") == pytest.approx(float(made.scores[0, 2, 7]), rel=1e-5)
    assert hosts.nth(0).locator(".mark").nth(1).is_visible()
    box = hosts.nth(1).locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"])
    assert hosts.nth(1).locator(".map-frame .readout").inner_text().startswith("“keys” (2) took")
    assert page.evaluate("['Sheet', 'make', 'startOutputs'].filter((name) => name in window)") == []
    (tmp_path / "empty.html").write_text('<!doctype html><link rel="icon" href="data:,">')
    assert page.evaluate(names) == opened((tmp_path / "empty.html").as_uri(), ready="html").evaluate(names)
    picture(page, "notebook")
    around = (
        "document-title",
        "html-has-lang",
        "landmark-one-main",
        "page-has-heading-one",
        "region",
    )  # not of the output
    assert [one for one in violations(page) if one.partition(":")[0] not in around] == []


def test_a_dark_notebook_gets_dark_maps(opened: Callable[..., Any], tmp_path: Path) -> None:
    made = mixlens.mix(agreement().trace(SENTENCE), "alti")
    page = opened(notebook(tmp_path, made, color="rgb(230,230,230)"), ready="[data-started]")
    page.wait_for_selector(".frame.dark .token[data-value]")


def test_without_scripts_a_table_remains(browser: Any, tmp_path: Path) -> None:
    made = mixlens.mix(agreement().trace(SENTENCE), "alti")
    page = browser.new_page(java_script_enabled=False)
    page.goto(notebook(tmp_path, made))
    assert page.locator("details[open] td[title]").count() == 100
    page.close()


# --- results that were given -----------------------------------------------------------------------------------------


def test_a_report_of_gathered_results_is_the_same_page(opened: Callable[..., Any], tmp_path: Path) -> None:
    results = gather(mixlens.load("sentiment"), "a good film", ["globenc"])
    page = opened(mixlens.report(results, tmp_path / "r.html").as_uri())
    close_to(strip(page, "globenc"), results[0].rollout().scores[-1, 0])  # type: ignore[union-attr]
