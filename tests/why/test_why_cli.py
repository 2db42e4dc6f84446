"""`mixlens why` on the command line: the answer first, one line for what is refused, any terminal."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import mixlens
from mixlens import answers, cli
from mixlens.show import text as shown_text
from mixlens.show import why_text

TEXT = "A dull film, but the cast is wonderful."


def run(line: str, *words: str, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.argv", ["mixlens", *shlex.split(line), *words])
    with pytest.raises(SystemExit) as done:
        cli.main()
    if done.value.code not in (0, None):
        raise RuntimeError(done.value.code)


@pytest.fixture(scope="module")
def why() -> Any:
    return mixlens.why(mixlens.load("sentiment"), TEXT)


def test_the_answer_comes_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("why", TEXT, monkeypatch=monkeypatch, columns=200)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"positive \(\d\d\.\d %\), because of “wonderful”(, “\w+”)*(; against it: “\w+”)?", lines[0])
    assert re.match(
        r"without (this word|these \w+ words): [<\d.]+ % positive \(\w+ random words?: [\d.]+ % on average, all \d+ "
        r"other sets\)",
        lines[1],
    )
    assert re.match(r"DeepLift: .*; completeness gap [\d.<]+ %; \d of 5 methods put the same .* first", lines[2])
    assert TEXT in lines
    below = lines[lines.index(TEXT) + 1]
    assert set(below) <= {" ", "+", "-"}
    assert "+" * len("wonderful") in below
    assert any(line.startswith("Trust: Yes, for ") for line in lines)
    assert any(re.match(r"(ok|!)  Without ", line) for line in lines)


def test_json_csv_and_page_of_one_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, table = str(tmp_path / "a.html"), str(tmp_path / "a.csv")
    run("why", TEXT, "--json", "--csv", table, "-o", page, "--methods", "attcat", monkeypatch=monkeypatch)
    told = capsys.readouterr()
    assert f"mixlens: wrote {page}, {table}\n" in told.err
    content = json.loads(told.out)
    assert content["kind"] == "why"
    assert content["text"] == TEXT
    assert content["provenance"]["command"].startswith(
        "mixlens why 'A dull film, but the cast is wonderful.' -m sentiment"
    )
    assert (tmp_path / "a.csv").read_text().startswith("word,segment,special,mark,score,share,attcat\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["why"], "give one text"),
        (["why --target bad", TEXT], "has no class 'bad'"),
        (["why --method deeplyft", TEXT], "unknown method 'deeplyft'"),
        (["why --filler zero", TEXT], "unknown filler 'zero'"),
        (["why --draws 0", TEXT], "draws is a number of random sets"),
        (["why 'The keys were rusty.' -m agreement"], "or name a word: --query WORD"),
        (["why --csv no/such/folder.csv", TEXT], "no folder 'no/such'"),
        (["why --csv table.xlsx", TEXT], "--csv writes a .csv file, not 'table.xlsx'"),
        (["why", "good " * 800], "Shorten or split it"),
    ],
)
def test_refusals_are_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="2"):
        run(*arguments, monkeypatch=monkeypatch)
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal(why: Any, width: int, color: bool) -> None:
    text = re.sub(r"\x1b\[[\d;]*m", "", shown_text.rendered(why_text.view(why), width=width, color=color))
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\u202f" not in text
    assert text.startswith("positive")


def test_sign_is_never_lost(why: Any) -> None:
    """Without colours by the line of + and -, with sixteen colours by two hues."""
    plain = shown_text.rendered(why_text.view(why), width=100)
    assert "+++++++++" in plain
    coloured = {why_text.style_of(share, 16) for share in (1.0, -1.0)}
    assert len(coloured) == 2


def test_at_most_twelve_bars_and_the_rest_is_counted() -> None:
    text = (
        "The film was good and the staff was nice but the food was awful and the room was old and the view was lovely."
    )
    why = mixlens.why(mixlens.load("sentiment"), text, methods=["grad_x_input"], draws=2)
    lines = shown_text.rendered(why_text.view(why), width=80).splitlines()
    bars = [line for line in lines if re.match(r"  \S+( \(\d+.. word\))? +[+−][\d.<]+ %", line)]
    assert 0 < len(bars) <= why_text.MOST_BARS
    rest = next(line for line in lines if " more words" in line)
    assert int(rest.split()[0]) + len(bars) == sum(not word.special and word.share != 0 for word in why.words)


def changed(why: Any, **parts: Any) -> Any:
    """The answer with other facts; what is said of them is said anew."""
    return answers.from_dict({**why.to_dict(), **parts})


def test_a_word_that_stands_in_the_text_more_than_once_has_its_place_beside_its_bar(why: Any) -> None:
    facts = why.to_dict()
    text = (("the", 0.4), ("keys", 0.2), ("to", 0.1), ("the", 0.3))
    words = [{**facts["words"][1], "text": one, "share": share, "tokens": [0]} for one, share in text]
    answer, trust = {**facts["answer"], "for": [0], "against": []}, {**facts["trust"], "single": None}
    lines = shown_text.rendered(why_text.view(changed(why, words=words, answer=answer, trust=trust)), width=80)
    assert re.findall(r"^  (.+?) +\+\d+ %", lines, re.MULTILINE) == ["the (1st word)", "the (4th word)", "keys", "to"]


def test_a_named_word_has_a_bar_and_a_mark_in_a_long_text(why: Any) -> None:
    """Of forty words, the named ones have the smallest shares."""
    facts = why.to_dict()
    shares = [0.001, -0.001, *[0.998 / 38] * 38]
    words = [{**facts["words"][1], "text": f"w{k}", "share": share, "tokens": [k]} for k, share in enumerate(shares)]
    answer, trust = {**facts["answer"], "for": [0], "against": [1]}, {**facts["trust"], "single": None}
    lines = shown_text.rendered(why_text.view(changed(why, words=words, answer=answer, trust=trust)), width=80)
    bars = re.findall(r"^  (\w+) +[+−]", lines, re.MULTILINE)
    assert {"w0", "w1"} <= set(bars)
    assert len(bars) == why_text.MOST_BARS
    below = next(line for line in lines.splitlines() if line.startswith("+"))
    assert below[:4] == "++--"  # both are marked


def test_the_share_of_two_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The keys to the cabinet [MASK] rusty."
    run("why -m agreement --target were --foil was", text, monkeypatch=monkeypatch, columns=200)
    out = capsys.readouterr().out
    assert re.match(
        r"[\d.]+ % for were rather than was \(99\.\d % of the two\); the model says are \([\d.]+ %\); for were: “keys”",
        out,
    )
    assert re.search(r"^without this word: of the two words were and was, were has [\d.]+ % \(", out, re.MULTILINE)
    assert re.search(r"Without this word: 99\.\d % of the two becomes [\d.]+ %\.", out)


def test_a_number_and_its_percent_are_on_one_line(why: Any) -> None:
    for width in (40, 60, 70, 80):
        lines = shown_text.rendered(why_text.view(why), width=width).splitlines()
        assert not [line for line in lines if line.strip().startswith("%")]


def test_a_target_of_several_tokens_is_for_explain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="2"):
        run("why 'The keys [MASK] [MASK] old.' -m agreement --target zap", monkeypatch=monkeypatch)
    told = capsys.readouterr().err
    command = "mixlens explain TEXT -m agreement --method integrated_gradients --target zap"
    assert f"why explains one token, and target 'zap' is 3 of 'agreement' (z ##a ##p). Ask: {command}" in told
    assert told.count("\n") == 1


def test_a_written_text_is_for_explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="2"):
        run("why --generate 3", TEXT, monkeypatch=monkeypatch)
    assert "mixlens explain --generate 3" in " ".join(capsys.readouterr().err.split())


def test_a_notebook_escapes_the_text() -> None:
    why = mixlens.why(mixlens.load("sentiment"), "<script>alert(1)</script> is good", methods=["grad_x_input"], draws=1)
    shown = why._repr_html_()
    assert "<script>alert" not in shown
    assert "&lt;script&gt;" in shown


def test_narrow_lines_have_no_spaces_at_their_ends(why: Any) -> None:
    import io

    from rich.console import Console

    for width in (40, 80):
        out = io.StringIO()
        Console(file=out, width=width, color_system=None, highlight=False, force_jupyter=False).print(
            why_text.view(why)
        )
        assert [line for line in out.getvalue().splitlines() if line != line.rstrip()] == []


def test_garbage_is_not_looked_for_while_a_command_loads_and_is_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    from mixlens.cli import group

    assert gc.isenabled()
    with group.Loading("why"):
        assert not gc.isenabled()
        group.loaded()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
    with group.Loading("families"):
        assert gc.isenabled()
    with pytest.raises(KeyError), group.Loading("explain"):
        raise KeyError
    assert gc.isenabled()


def test_a_spinner_tells_the_step_and_the_seconds_of_a_long_wait() -> None:
    from mixlens.cli import waiting

    assert waiting.line_of("|", "words taken out", 0.4) == "| mixlens: words taken out"
    assert waiting.line_of("|", "words taken out", 2.6) == "| mixlens: words taken out (3 s)"


def test_the_help_tells_the_limits_of_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mixlens.answers import case, rules

    run("why --help", monkeypatch=monkeypatch, columns=200)
    told = " ".join(capsys.readouterr().out.split())
    assert f"at least {100 * rules.LIMITS['removal_ok']:.0f} points more" in told
    assert f"(! from {100 * rules.LIMITS['removal_caution']:.0f} points)" in told
    assert (
        f"within {100 * rules.LIMITS['completeness_ok']:.0f} % (! to {100 * rules.LIMITS['completeness_caution']:.0f} "
        f"%)" in told
    )
    assert f"default: {case.DRAWS}" in told
    assert "Examples:" in told
