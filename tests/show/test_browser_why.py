"""The page that answers why, in a real browser: it opens on the answer, and its numbers are those of the answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_browser import browser, opened, picture, violations
from why_example import SCORES, TEXT, WORDS, example, shares, special, trust

from mixlens.answers import from_dict
from mixlens.show.page_template import BASE_SCRIPTS, script_of
from mixlens.show.why_page import write_why

THIN, MINUS = "\u202f", "\u2212"
Open = Callable[..., Any]


def written(folder: Path, **changed: Any) -> str:
    """The address of the page of an answer."""
    return write_why(from_dict(example(**changed)), folder / "why.html").as_uri()


def percent(share: float, *, sign: bool = True) -> str:
    """A share, written out by hand."""
    mark = (MINUS if share < 0 else "+") if sign else ""
    size = abs(share) * 100
    return f"{mark}{size:.1f}{THIN}%" if size < 9.95 else f"{mark}{size:.0f}{THIN}%"


def test_the_page_opens_on_the_answer_and_shows_its_numbers(opened: Open, tmp_path: Path) -> None:
    page = opened(written(tmp_path), width=1400)
    assert page.title().startswith("Why did the model say positive? A thin plot")
    assert page.locator("h1").inner_text() == "Why did the model say positive?"
    assert page.locator("h1 u").inner_text() == "positive"
    answer = page.locator(".answer")
    assert answer.count() == 1
    told = f"positive (95.0{THIN}%), because of superb, acting, but; against it: thin."
    assert answer.inner_text() == told
    assert answer.bounding_box()["y"] < 300  # on the first screen
    assert page.locator(".chip.for").all_inner_texts() == ["superb", "acting", "but"]
    assert page.locator(".chip.against").all_inner_texts() == ["thin"]
    # the text: as it was written, special tokens off, values of those that carry 3 % and more
    strip = page.locator(".strip")
    evidence = [(word, share) for (word, _), share in zip(WORDS, shares(SCORES), strict=True) if not special(word)]
    bodies = strip.locator(".w b").all_inner_texts()
    assert bodies == [word for word, _ in evidence]
    spoken = strip.evaluate(
        "one => { const copy = one.cloneNode(true); copy.querySelectorAll('i').forEach((i) => i.remove()); "
        "return copy.textContent; }"
    )
    assert spoken == TEXT
    marked = [(word, share) for word, share in evidence if abs(share) >= 0.03]
    assert strip.locator(".w i").all_inner_texts() == [percent(share) for _, share in marked]
    assert strip.locator(".w.against b").all_inner_texts() == [word for word, share in marked if share < 0]
    largest = max(abs(share) for _, share in evidence)
    assert page.locator(".specimen .ticks span").all_inner_texts() == [percent(-largest), "0", percent(largest)]
    # bars: sorted, seven at most, the rest in one line
    rows = page.locator(".which .bar-row")
    order = sorted(sorted(evidence, key=lambda one: -abs(one[1]))[:7], key=lambda one: -one[1])
    assert [row.split("\n")[0] for row in rows.all_inner_texts()] == [word for word, share in order if share]
    assert page.locator(".which .value").all_inner_texts()[2:] == [percent(share) for _, share in order if share]
    gone = [share for _, share in evidence if share > 0]
    assert (
        page.locator(".balance-names").inner_text().split("\n")[-1] == f"{percent(sum(gone), sign=False)} for positive"
    )
    assert page.locator(".which .rest").count() == 0  # what is left carries nothing
    # trust
    panel = page.locator(".trust")
    assert panel.locator(".track .what").all_inner_texts() == [
        f"Without these three words: 95.0{THIN}% becomes 12.0{THIN}%.",
        f"Without three random words: 90.0{THIN}% on average.",
        f"With these three words alone: 99.0{THIN}%.",
    ]
    told = panel.inner_text()
    for piece in (
        "Partly, for these three words",
        "now says negative",
        "20 draws, from",
        f"31.0{THIN}% to 97.0{THIN}%",
        "in 2 the model says something else",
        "words are deleted",
    ):
        assert piece in told
    assert panel.locator(".check").count() == 4  # the verdict, and three checks
    first = example()["trust"]["curve"]["first"]
    assert page.locator(".fall .point title").all_text_contents() == [
        f"{i} taken out: {value:.1%}".replace("%", f"{THIN}%") for i, value in enumerate(first)
    ]
    # methods
    cells = page.locator(".wide-table tbody tr").first.locator("td.cell").all_inner_texts()
    whole = [round(abs(share) * 100) for _, share in evidence]
    assert cells == [
        "·" if not size else f"{'+' if share > 0 else MINUS}{size}"
        for size, (_, share) in zip(whole, evidence, strict=True)
    ]
    assert "Without a sign" in page.locator(".wide-table .divider").inner_text()
    assert page.locator(".wide-table td.number").all_inner_texts() == ["3 of 3", "2 of 3"]
    page.get_by_text("Where these numbers come from").click()
    about = page.locator(".facts").inner_text()
    for piece in ("made-up", "Nobody 2020", "gap 0.001", "4.6e-07", "mixlens why", "20 points", "steps = 50"):
        assert piece in about


def test_a_word_is_one_thing_everywhere_and_reached_by_the_keyboard(opened: Open, tmp_path: Path) -> None:
    page = opened(written(tmp_path), width=1400)
    page.locator('.strip [data-k="6"]').hover()
    lit = page.locator(".hit").evaluate_all("ones => ones.map((one) => one.dataset.k)")
    assert set(lit) == {"6"}
    assert len(lit) >= 5  # strip, chip, bar, and both methods
    assert "carries +40" in page.locator(".readout").inner_text()
    assert "raw score 2" in page.locator(".readout").inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator(".strip .w").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.k") == "8"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.k") == "7"
    assert "acting" in page.locator(".readout").inner_text()
    order = []
    for _ in range(12):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.tagName + ' ' + document.activeElement.className"))
    assert order[0].startswith("INPUT")  # the switch for special tokens, then the bars, then the fold of numbers
    assert [one for one in order if "bar-row" in one]
    assert "SUMMARY " in order
    page.get_by_label("Show special tokens").check()
    assert page.locator(".strip .w.special b").all_inner_texts() == ["[CLS]", "[SEP]"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing_and_nothing_sticks_out(opened: Open, tmp_path: Path, theme: str, width: int) -> None:
    note = {"id": "shredded", "state": "caution", "text": "Half of the words are not known."}
    page = opened(written(tmp_path, notes=[note]), width=width, theme=theme)
    picture(page, f"why-{theme}-{width}")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.get_by_label("Show special tokens").check()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".narrow-table" if width < 860 else ".wide-table").is_visible()
    assert not page.locator(".wide-table" if width < 860 else ".narrow-table").is_visible()
    assert violations(page) == []
    page.get_by_role("radio", name="Dark" if theme == "light" else "Light").check()
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == {"light": "rgb(16, 19, 24)", "dark": "rgb(250, 249, 247)"}[theme]
    )
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible()


def test_a_failed_check_is_as_large_as_a_passed_one(opened: Open, tmp_path: Path) -> None:
    told = trust(without=0.94, without_prediction="positive", single=None)
    page = opened(written(tmp_path, trust=told, gaps={"completeness": 0.4, "reconstruction": None}))
    banner = page.locator(".note.fail")
    assert f"miss 40{THIN}%" in banner.inner_text()
    assert banner.bounding_box()["y"] < page.locator(".answer").bounding_box()["y"]
    assert "but taking random words out changes more" in page.locator(".answer").inner_text()
    assert page.locator(".verdict.fail").count() == 1
    assert page.locator(".which .bar.doubt").count() == page.locator(".which .bar-row").count()
    assert page.locator(".which .bar-row .bar.for").count() == 0


def test_leaning_foils_pairs_and_no_words(opened: Open, tmp_path: Path) -> None:
    words = [{**one, "segment": "pair" if k > 5 else "text"} for k, one in enumerate(example()["words"])]
    answer = {**example()["answer"], "certainty": "leans", "probability": 0.4, "foil": "negative"}
    page = opened(written(tmp_path, words=words, answer=answer, pair="superb acting."))
    told = f"leans to positive rather than negative (40.0{THIN}%; 95.0{THIN}% of the two), because of superb"
    assert page.locator(".answer").inner_text().startswith(told)
    assert page.locator(".segment > p").all_inner_texts() == ["Text", "Second text"]
    none = {**answer, "for": [], "against": []}
    page = opened(
        written(
            tmp_path,
            answer=none,
            trust=trust(k=0, single=None),
            gaps={"completeness": None, "reconstruction": None},
            methods=example()["methods"][:1],
        )
    )
    assert "no word speaks for it" in page.locator(".answer").inner_text()
    assert page.locator(".trust .track, .fall, .methods-table, .checks .check").count() == 0  # no empty frame


def test_a_word_that_stands_in_the_text_more_than_once_has_its_place(opened: Open, tmp_path: Path) -> None:
    words = [{**one, "text": {3: "thin", 8: ","}.get(k, one["text"])} for k, one in enumerate(example()["words"])]
    page = opened(written(tmp_path, words=words))
    names = [name.strip() for name in page.locator(".which .bar-row .name").all_inner_texts()]
    assert {"thin (2nd word)", "thin (3rd word)", ", (2nd of 2)", "superb"} <= set(names)


def test_a_target_that_the_model_does_not_say_is_not_given_its_reason(opened: Open, tmp_path: Path) -> None:
    answer = {
        **example()["answer"],
        "target": "were",
        "foil": "was",
        "probability": 0.281,
        "against": [],
        "predicted": False,
    }
    said = [["are", 0.6], ["were", 0.281], ["is", 0.05], ["was", 0.01]]
    page = opened(
        written(
            tmp_path,
            task="masked-lm",
            answer=answer,
            predictions=said,
            question="What speaks for were rather than was?",
        )
    )
    assert page.locator(".answer").inner_text() == (
        f"28.1{THIN}% for were rather than was (95.0{THIN}% of the two); the model says are (60.0{THIN}%); "
        "for were: superb, acting, but."
    )
    assert "in 2 was is likelier" in page.locator(".trust").inner_text()
    told = f"The model’s own: are 60.0{THIN}%, is 5.0{THIN}%, was 1.0{THIN}%."
    assert page.locator(".others").inner_text() == told
    alone = trust(random={**trust()["random"], "count": 0})
    assert opened(written(tmp_path, trust=alone)).locator(".trust .track").count() == 2  # nothing to compare with


HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "שלום", "👩‍👩‍👧", "\u202e", "a" * 200)


def test_hostile_words_are_text(opened: Open, tmp_path: Path) -> None:
    words = [{**example()["words"][1 + k], "text": text, "special": False} for k, text in enumerate(HOSTILE)]
    few = [
        {**one, "shares": one["shares"][: len(words)], "scores": one["scores"][: len(words)]}
        for one in example()["methods"]
    ]
    answer = {**example()["answer"], "target": HOSTILE[0], "for": [0, 5], "against": [1]}
    changed = {
        "words": words,
        "methods": few,
        "answer": answer,
        "question": f"Why did the model say {HOSTILE[0]}?",
        "text": " ".join(HOSTILE),
    }
    page = opened(
        written(tmp_path, **changed, trust=trust(single=None), predictions=[[HOSTILE[0], 0.9], [HOSTILE[1], 0.1]]),
        width=390,
    )
    assert page.locator(".strip .w b").all_inner_texts()[:4] == list(HOSTILE[:4])
    assert page.locator("img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []


def test_long_texts_are_set_small_and_stay_light(opened: Open, tmp_path: Path) -> None:
    n = 512
    words = [
        {
            **example()["words"][1],
            "text": f"word{k}",
            "before": " ",
            "share": (-1) ** k * (k + 1) / (n * (n + 1) / 2),
            "score": k + 1.0,
            "tokens": [k],
        }
        for k in range(n)
    ]
    shares_ = [one["share"] for one in words]
    methods = [
        {**one, "shares": shares_, "scores": [one["score"] for one in words]}
        for one in example()["methods"]
        for _ in (0, 1)
    ]
    address = written(
        tmp_path, words=words, methods=methods, answer={**example()["answer"], "for": [510, 508, 506], "against": [511]}
    )
    assert (tmp_path / "why.html").stat().st_size < 2_000_000
    page = opened(address, width=390)
    assert page.locator(".strip.long .w").count() == n
    assert page.locator(".strip .w.for, .strip .w.against").count() == 20
    assert page.locator(".strip .w i").count() == 0
    assert page.locator(".narrow-table tbody tr").count() == 16  # fourteen words, the others, and who agrees
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "505 more words carry" in page.locator(".which .rest").inner_text()


NUMBERS = (0, 1e-9, 3e-4, 0.0005, 0.001, 0.0994, 0.0996, 0.1, 0.1949, 0.5, 0.9994, 0.9995, 0.99999, 1)


def test_the_script_writes_numbers_as_python_does(opened: Open, tmp_path: Path) -> None:
    wording = pytest.importorskip("mixlens.base.text")
    page = opened(written(tmp_path))
    ask = "return numbers.map((one) => [percent(one), signedPercent(-one), probability(one), points(-one), gapText(one)]);"  # noqa: E501
    body = (
        re.sub(r"^\(\(\) => \{", "(numbers) => {", script_of(*BASE_SCRIPTS, start=ask)).rstrip().removesuffix("})();")
        + "}"
    )
    seen = page.evaluate(body, list(NUMBERS))
    wanted = [
        [
            wording.percent(one),
            wording.percent(-one, sign=True),
            wording.probability(one),
            wording.points(-one),
            wording.gap(one),
        ]
        for one in NUMBERS
    ]
    assert seen == wanted


def test_a_notebook_shows_the_answer_in_a_root_of_its_own(opened: Open, browser: Any, tmp_path: Path) -> None:
    import mixlens

    why = mixlens.load("sentiment").why("a good film")
    place = tmp_path / "notebook.html"
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>n</title><link rel="icon" href="data:,">'
    place.write_text(
        f"{head}<style>p{{color:red}}</style><main><h1>n</h1>{why._repr_html_() * 2}</main>", encoding="utf-8"
    )
    page = opened(place.as_uri(), ready="[data-started]", width=900)
    hosts = page.locator("[data-mixlens]")
    assert hosts.count() == 2
    assert hosts.locator(".question").all_inner_texts() == [why.question] * 2
    assert hosts.nth(1).locator(".chip").all_inner_texts() == [why.words[k].text for k in why.answer.for_]
    hosts.nth(0).locator(".strip .w").first.hover()
    assert "carries" in hosts.nth(0).locator(".readout").inner_text()
    assert "carries" not in hosts.nth(1).locator(".readout").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
    assert page.evaluate("['startWhy', 'make', 'startOutputs'].filter((name) => name in window)") == []
    around = ("heading-order", "landmark-unique")  # the same answer twice, in a notebook with headings of its own
    assert [one for one in violations(page) if one.partition(":")[0] not in around] == []
    picture(page, "notebook-why")
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(place.as_uri())
    assert why.question in plain.locator("main").inner_text()
    assert why.trust.sentence in plain.locator("main").inner_text()
    plain.close()


def reading_of(shares: list[float], *, signed: bool = True) -> dict[str, Any]:
    return {**example()["methods"][0], "shares": shares, "scores": shares, "signed": signed}


def test_methods_disagree_most_about_the_word_they_are_furthest_apart_on(opened: Open, tmp_path: Path) -> None:
    """The largest spread of signed shares, with both ends; signs need not differ, and a method without signs does not
    count."""
    first = [0.0, 0.0, 0.04, -0.06, 0.0, 0.0, 0.60, 0.30, 0.0, 0.0]
    second = [0.0, 0.0, -0.04, -0.06, 0.0, 0.0, 0.37, 0.30, 0.20, 0.0]
    third = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    spread = [abs(a - b) for a, b in zip(first, second, strict=True)]
    methods = [reading_of(first), reading_of(second), reading_of(third, signed=False)]
    told = opened(written(tmp_path, methods=methods)).locator("section[aria-labelledby=methods] .lead").inner_text()
    assert example()["words"][spread.index(max(spread))]["text"] == "superb"
    assert f"They disagree most about “superb” (+37{THIN}% to +60{THIN}%)." in told
    alike = [reading_of(first), reading_of([share - 0.01 for share in first]), reading_of(third, signed=False)]
    assert (
        "disagree"
        not in opened(written(tmp_path, methods=alike)).locator("section[aria-labelledby=methods]").inner_text()
    )


def test_named_words_have_columns_in_a_long_text(opened: Open, tmp_path: Path) -> None:
    """Words that the answer names come first, however small their shares are."""
    n = 60
    shares_ = [(k + 1) / 2000 for k in range(n)]
    words = [
        {**example()["words"][1], "text": f"word{k}", "before": " ", "share": shares_[k], "tokens": [k]}
        for k in range(n)
    ]
    answer = {**example()["answer"], "for": [2, 7, 58], "against": [11]}
    other = [*shares_[:4], 0.2, *shares_[5:]]
    page = opened(written(tmp_path, words=words, methods=[reading_of(shares_), reading_of(other)], answer=answer))
    columns = page.locator(".wide-table thead th.said").all_inner_texts()
    assert len(columns) == 14
    assert {"word2", "word7", "word58", "word11", "word4"} <= set(
        columns
    )  # four that are named, one that is disagreed about
    assert columns == sorted(columns, key=lambda word: int(word[4:]))


def test_named_words_have_bars_in_a_long_text(opened: Open, tmp_path: Path) -> None:
    """A word that the sentence names has a bar, however small its share is; bars go from most for to most against."""
    n = 40
    shares_ = [(k + 1) / 1000 * (-1 if k % 3 == 2 else 1) for k in range(n)]
    words = [
        {**example()["words"][1], "text": f"word{k}", "before": " ", "share": shares_[k], "tokens": [k]}
        for k in range(n)
    ]
    answer = {**example()["answer"], "for": [1, 4, 39], "against": [5]}
    page = opened(written(tmp_path, words=words, methods=[reading_of(shares_)], answer=answer))
    bars = [int(text.split("\n")[0].removeprefix("word")) for text in page.locator(".which .bar-row").all_inner_texts()]
    strongest = sorted((k for k in range(n) if k not in (1, 4, 39, 5)), key=lambda k: -abs(shares_[k]))[:3]
    assert bars == sorted([1, 4, 39, 5, *strongest], key=lambda k: -shares_[k])
    left = sum(abs(share) for k, share in enumerate(shares_) if k not in bars)
    assert f"{n - 7} more words carry {percent(left, sign=False)} together" in page.locator(".which .rest").inner_text()


def test_options_are_written_as_name_and_value(opened: Open, tmp_path: Path) -> None:
    """What is empty is left out."""
    options = {"embedding": "word", "baseline": None, "layers": [1, 2], "named": {}, "text": ""}
    methods = {
        "first": {"options": options, "baseline": "mask", "completeness": {"relative_gap": 5.76139e-08}},
        "other": {"options": {}},
    }
    provenance = {**example()["provenance"], "revision": None, "methods": methods}
    page = opened(written(tmp_path, provenance=provenance))
    page.get_by_text("Where these numbers come from").click()
    told = page.locator(".facts").inner_text()
    assert "embedding = word; layers = 1, 2; baseline = mask; completeness relative gap = 5.761e-08" in told
    for gone in ("Revision", "Options of other", "named", "baseline –", "text ="):
        assert gone not in told
