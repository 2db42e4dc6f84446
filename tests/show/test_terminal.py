"""Terminal pictures letter by letter: widths, colours, wide and hostile characters."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

import mixlens
from mixlens import Attribution, Map, data
from mixlens.base.errors import printable
from mixlens.cli.app import main
from mixlens.show import tables, tokens
from mixlens.show import text as show

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "[bold red]x[/]",
    "\x9b31m",
    "\u202eevil",
    "a\u200bb",
    "\u0301",
    "日本語",
    "👩\u200d👧",
    "שלום",
    "\r\n\t",
    "\U000e0041",
)


def attribution(scores: list[float], tokens: tuple[str, ...], **info: Any) -> Attribution:
    return Attribution(torch.tensor(scores), tokens, "alti", {"model": "m", **info})


def codes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_text_is_wrapped_between_cells_and_words(width: int) -> None:
    words = "  ".join(f"word{number} +{number} % (5 rows)" for number in range(9))
    lines = tables.fitted(f"short\n  alti      {words}\n- confirmed: {'a long claim ' * 9}\n{'p' * 99}", width).split(
        "\n"
    )
    assert lines[0] == "short"
    assert lines[-1] == "p" * 99  # a path can be copied
    assert max(map(len, lines[:-1])) <= width
    assert {line[:12].strip() for line in lines[2:] if "word" in line} == {""}
    told = " ".join(" ".join(lines).split())
    assert told == " ".join(f"short alti {words} - confirmed: {'a long claim ' * 9} {'p' * 99}".split())


@pytest.mark.parametrize("command", ["experiment", "reproduce"])
def test_lists_of_experiments_fit_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["mixlens", command])
    with pytest.raises(SystemExit):
        main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80


def test_a_summary_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [example.text for example in data.load("sentiment", n=6)]
    mixlens.run(texts, model="sentiment", out=tmp_path / "run", progress=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["mixlens", "summarize", "run", "--least-rows", "1"])
    with pytest.raises(SystemExit):
        main()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(" " * 8) for line in lines)
    assert max(map(len, lines)) <= 80


def test_byte_level_tokens_are_joined_by_their_missing_marks() -> None:
    assert tokens.glued(("<s>", "un", "happy", "Ġkeys", "</s>")) == [False, False, True, False, False]
    assert tokens.glued(("[CLS]", "un", "##happy", "[SEP]")) == [False, False, True, False]
    assert tokens.glued(()) == []
    read = attribution([0.0] * 5, ("ĠThe", "Ġun", "happy", "ĊĊ", "Ġx"))
    assert show.rendered(show.view(read)).splitlines()[2] == "The unhappy ⏎⏎ x"


def test_of_a_long_text_the_largest_are_shown_and_how_to_see_the_rest() -> None:
    scores = [float(i % 7) for i in range(357)]
    read = attribution(scores, tuple(f"w{i}" for i in range(357)))

    def bars_of(**options: Any) -> list[str]:
        return [line for line in show.rendered(show.view(read, **options)).splitlines() if re.match(r" +\d+  w", line)]

    assert len(bars_of()) == 15
    assert "342 more: --top 0 shows all" in show.rendered(show.view(read))
    assert len(bars_of(top=0)) == 357
    assert "more:" not in show.rendered(show.view(read, top=0))
    assert len(bars_of(top=40)) == 40
    short = attribution(scores[:30], read.tokens[:30])
    assert "more:" not in show.rendered(show.view(short))
    table = show.rendered(show.compare_view([read, read]), width=80)
    assert table.count("\n alti ") == 2  # one block of fifteen columns
    assert "342 more: --top 0 shows all" in table
    assert len(show.rendered(show.compare_view([read, read], top=0), width=80).splitlines()) > 60


def several() -> list[Attribution]:
    tokens = ("the", "un", "##happy", "keys")
    made = (("alti", [0.1, 0.2, 0.3, 0.4]), ("attcat", [-0.5, 2.0, 0.0, -1.0]))
    return [Attribution(torch.tensor(scores), tokens, name, {"model": "m"}) for name, scores in made]


def test_hostile_tokens_are_written_out() -> None:
    assert [tokens.shown(token) for token in HOSTILE] == [
        "\\u001b[31mred\\u001b[0m",
        "[bold red]x[/]",
        "\\u009b31m",
        "\\u202eevil",
        "a\\u200bb",
        "◌\u0301",
        "日本語",
        "👩\u200d👧",
        "שלום",
        "\\u000d\\u000a\\u0009",
        "\\U000e0041",
    ]
    assert printable("\ufe0f\u3164") == "\\ufe0f\\u3164"


def test_an_emoji_is_whole_and_a_joiner_elsewhere_is_written_out() -> None:
    for emoji in ("👩\u200d👩\u200d👧", "❤\ufe0f", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈", "❤\ufe0f\u200d🔥"):
        assert printable(emoji) == emoji
        assert printable(f"a{emoji}\u200db") == f"a{emoji}\\u200db"
    for hidden in (
        "\u200d",
        "a\u200db",
        "👩\u200d",
        "\u200d👩",
        "👩\u200d\u200d👧",
        "\u2066",
        "\u2800\ufe0f",
        "\u3164\ufe0f",
        "👩\u202e",
    ):
        assert printable(hidden).isprintable(), hidden
        assert "\\u" in printable(hidden)


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("color", [True, False])
def test_nothing_in_a_token_reaches_the_terminal(width: int, color: bool) -> None:
    """Tokens, method, model and target: what is left after our own colours is printable, and no line is too long."""
    info = {"model": "\x1b]0;own\x07", "query": 0, "query_token": "\x1b[2J", "target": "\x9b1m", "score": "logit"}
    info["prediction"] = [("\x1b[31m", 0.5)]
    reads = [Attribution(torch.arange(11.0), HOSTILE, name, info) for name in ("\x1b[5m", "[red]m[/]")]
    views = [
        show.view(reads[0]),
        show.compare_view(reads),
        show.view(Map(torch.rand(2, 11, 11), HOSTILE, "\x1b[5m", info)),
    ]
    for view in views:
        for line in show.rendered(view, width=width, color=color).splitlines():
            plain = codes(line) if color else line
            assert plain.replace("\u200e", "").replace("👩\u200d👧", "").isprintable(), plain
            assert cell_len(plain) <= width
    assert "[red]m[/]" in show.rendered(show.compare_view(reads), width=100).replace("\n", "")


def test_columns_stay_aligned_whatever_is_in_them() -> None:
    letters = ("日本語", "👩", "שלום", "e\u0301", "a")
    lines = show.rendered(show.view(attribution([1.0] * 5, letters))).splitlines()[-5:]
    assert {cell_len(line[: line.index("1", 3)]) for line in lines} == {cell_len(" 0  日本語  ")}
    assert "שלום\u200e" in lines[2]  # or a terminal that turns text around would move the number, too


def test_no_colour_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    view = show.compare_view(several())
    for force, env, color, coloured in (
        (True, {}, True, True),
        (True, {"NO_COLOR": "1"}, True, False),
        (True, {}, False, False),
        (False, {}, True, False),
    ):
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        made = show.console(color=color)
        out = io.StringIO()
        made = Console(
            file=out,
            force_terminal=force,
            no_color=made.no_color,
            width=80,
            color_system="truecolor" if force else "auto",
        )
        made.print(view)
        assert ("48;2;" in out.getvalue()) == coloured, (force, env, color)
        assert ("percent of each row" in out.getvalue()) == (not coloured)
    out = io.StringIO()  # sixteen colours have no shades
    Console(file=out, force_terminal=True, color_system="standard", no_color=False, width=80).print(view)
    assert "percent of each row" in out.getvalue()


def forget_styles() -> None:
    """rich keeps the codes of a style for the first system that it wrote them for; a process has one, these tests have
    three."""
    from rich.style import Style

    for kept in vars(Style).values():
        kept = getattr(kept, "__func__", kept)
        if hasattr(kept, "cache_clear"):
            kept.cache_clear()


def codes_of(view: Any, system: str) -> str:
    out = io.StringIO()
    forget_styles()
    Console(file=out, force_terminal=True, color_system=system, no_color=False, width=80, highlight=False).print(view)  # type: ignore[arg-type]
    forget_styles()
    return out.getvalue()


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_the_sign_is_seen_in_every_terminal_with_colours(system: str) -> None:
    """Strips, maps and bars: towards, against and nothing are three different looks, for large scores and for small
    ones."""
    scores = [1.0, -1.0, 0.5, -0.5, 0.3, -0.3, 0.0]
    tokens = tuple(f"t{i}" for i in range(len(scores)))
    read = attribution(scores, tokens)
    made = Map(torch.tensor([scores] * 7)[None], tokens, "alti", {"model": "m"})
    sentence = codes_of(show.view(read), system).splitlines()[2]
    looks = {token: look for look, token in re.findall(r"((?:\x1b\[[0-9;]*m)*)(t\d)\b", sentence)}
    cells = {
        number: look
        for look, number in re.findall(r"((?:\x1b\[[0-9;]*m)*) ?(-?\d\.\d\d)", codes_of(show.view(made), system))
    }
    for towards, against in ((0, 1), (2, 3), (4, 5)):
        assert len({looks[f"t{towards}"], looks[f"t{against}"], looks["t6"]}) == 3, (looks, towards)
        assert len({cells[f"{scores[towards]:.2f}"], cells[f"{scores[against]:.2f}"], cells["0.00"]}) == 3, (
            cells,
            towards,
        )
    bars = set(re.findall(r"(\x1b\[[0-9;]*m)([█▒])", codes_of(show.view(read), system)))
    assert len({look for look, _ in bars}) == len({block for _, block in bars}) == 2, bars


def test_a_map_of_a_long_text_leaves_out_what_a_token_keeps() -> None:
    scores = torch.eye(70)[None] * 0.9
    scores[0, 3, 5] = 0.01
    made = Map(scores, tuple(f"w{i}" for i in range(70)), "alti", {"model": "m"})
    lines = [line for line in show.rendered(show.view(made), width=60).splitlines() if "←" in line]
    assert re.fullmatch(r" 0\.01 +3 w3 +← +5 w5", lines[0])
    assert not [line for line in lines if re.search(r"(\bw\d+\b).*← .*\1\b", line)]


OF_SUMS = [
    (0.004, "adds up to within 0.4%", False),
    (2e-7, "adds up to within 0.1%", False),
    (0.98, "does not add up (98.0% off)", True),
    (1.875, "does not add up (187.5% off)", True),
]


@pytest.mark.parametrize(("gap", "told", "warned"), OF_SUMS)
def test_what_scores_miss_of_their_sum_is_in_the_header(gap: float, told: str, warned: bool) -> None:
    sums = {"sum": 29.03, "expected": 14.68, "relative_gap": gap}
    read = attribution([1.0], ("a",), completeness=sums)
    lines = show.rendered(show.view(read), width=200).splitlines()
    assert lines[0] == f"model m · method alti · {told}"
    warning = f"note: the scores add up to 29.03 and what they explain is 14.68: {100 * gap:.1f}% apart."
    assert lines[1].startswith(warning) == warned
    assert (f"note: alti: {warning[6:]}" in show.rendered(show.compare_view([read]), width=200)) == warned
    assert "adds up" not in show.rendered(show.view(attribution([1.0], ("a",), completeness=None)))


class Narrow(io.TextIOWrapper):
    def __init__(self, encoding: str):
        super().__init__(io.BytesIO(), encoding=encoding)

    def written(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_pictures_are_readable_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ("Ġthe", "café", "日本", "שלום", "👩\u200d👧", "Ċ")
    read = attribution([0.5, 1.0, -0.5, 0.25, 0.1, 0.2], tokens, query=0, query_token="Ġthe")
    out = Narrow(encoding)
    monkeypatch.setattr("sys.stdout", out)
    read.show()
    Map(torch.eye(70)[None], tuple("x" * 70), "alti", {"model": "…"}).show()
    told = out.written()
    assert out.errors == "strict"  # a program's own stream is left as it is
    if encoding == "utf-8":
        assert "model m · method alti" in told
        assert re.search(r"日本 .*▒+", told)
        return
    assert "model m · method alti" in told if encoding != "ascii" else "model m | method alti" in told
    assert re.search(r"the  .*0\.5   +#+\n", told)
    assert re.search(r"-0\.5  -+\n", told)
    assert "\\u65e5\\u672c" in told
    assert ("café" in told) == (encoding != "ascii")
