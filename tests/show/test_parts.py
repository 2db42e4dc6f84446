"""The small parts that pages, terminals and notebooks are made of, each against its definition written out."""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mixlens
from mixlens.base.errors import InputError
from mixlens.show.colors import AGAINST, SIXTEEN, TOWARDS, hex_of, ink, shade, shares, style_of
from mixlens.show.encoding import PLAIN, Plain, can_show, make_readable
from mixlens.show.heading import (
    bound,
    explained,
    explained_by_each,
    heading_line,
    largest_of,
    notes_of_each,
    number_of,
    percent,
    removed_by_each,
    unit_lines,
)
from mixlens.show.layout import chopped, clipped, columns_of, fitting, in_blocks, item_lines
from mixlens.show.notebook import html as notebook_output
from mixlens.show.packing import EXACT, LEVELS, Precision, decode, encode, fit
from mixlens.show.tables import aligned, listed, widths_of
from mixlens.show.tokens import glued, pieces, shown
from mixlens.types import Attribution, Map

# --- numbers on a page ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 1e300])
@pytest.mark.parametrize("precision", [EXACT, Precision("bits16"), Precision("bits8"), Precision("top", 2)], ids=str)
def test_one_number_that_cannot_be_held_is_refused(wrong: float, precision: Precision) -> None:
    scores = np.full((3, 4), 0.5)
    scores[1, 2] = wrong
    with pytest.raises(InputError, match="a score is not finite"):
        encode(scores, precision)


def rows_of(block: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a quantised block, and for each row what it says it does not hold."""
    import base64
    import zlib

    held = decode(block)
    kind = "bits16" if block["coding"] == "bits16" else "bits8"
    packed = zlib.decompress(base64.b64decode(block["data"]))
    rows = block["rows"]
    wide = 4 * rows
    at = wide if block["coding"] == "top" else wide + rows * block["columns"] * (2 if kind == "bits16" else 1)
    planes = np.frombuffer(packed, "u1", wide, at).reshape(4, rows)
    return held, np.ascontiguousarray(planes.T).reshape(-1).view("<f4")


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("precision", [Precision("bits16"), Precision("bits8"), Precision("top", 3)], ids=str)
def test_what_a_row_holds_and_what_it_does_not_are_its_sum(precision: Precision, signed: bool) -> None:
    """Each number is within half a step; the sum of a row is kept, apart from the rounding of one float32."""
    numbers = np.random.default_rng(0).random((5, 9)) - (0.5 if signed else 0)
    numbers[2] = 0.0
    held, rest = rows_of(encode(numbers, precision))
    np.testing.assert_allclose(
        held.sum(1) + rest, numbers.sum(1), rtol=0, atol=1e-2 if precision.kind == "top" else 1e-6
    )
    kind = "bits8" if precision.kind == "top" else precision.kind
    step = np.abs(numbers).max(1, keepdims=True) / LEVELS[kind, signed]
    there = held != 0
    assert (np.abs(held - numbers)[there] <= np.broadcast_to(step, held.shape)[there] / 2 * (1 + 1e-6)).all()
    assert not held[2].any()
    if precision.kind == "top":
        assert (there.sum(1) <= 3).all()
        for row, kept in zip(numbers, there, strict=True):
            assert not row.any() or np.abs(row[kept]).min() >= np.abs(row[~kept]).max()


@pytest.mark.parametrize(("n", "slack"), [(40, 1.0), (160, 1.1)])
def test_the_finest_precision_that_fits_is_taken(n: int, slack: float) -> None:
    """Every kind is tried from fine to coarse. Of large maps a sample says how much room they take, hence the slack."""
    sheets = [np.random.default_rng(1).random((n, n)), np.random.default_rng(2).random((n, n)) ** 8]
    order = [EXACT, Precision("bits16"), Precision("bits8")]
    sizes = [sum(len(encode(sheet, precision)["data"]) for sheet in sheets) for precision in order]
    assert sizes[0] > slack * sizes[1] > slack**2 * sizes[2]
    for number, (precision, size) in enumerate(zip(order, sizes, strict=True)):
        found, blocks = fit(sheets, int(slack * size))
        assert found == precision
        assert [decode(block).shape for block in blocks] == [(n, n)] * 2
        assert sum(len(block["data"]) for block in blocks) == size
        found, blocks = fit(sheets, size - 1)
        assert found == order[number + 1] if number < 2 else found.kind == "top"
        assert sum(len(block["data"]) for block in blocks) < size
    room = sizes[-1] // 2
    found, blocks = fit(sheets, room)
    assert found.kind == "top"
    used = sum(len(block["data"]) for block in blocks)
    assert (0.6 if n > 100 else 0.4) * room < used <= room, "what is kept fills the room"
    with pytest.raises(InputError, match=rf"2 maps of {n} tokens do not fit into 0\.0 MB"):
        fit(sheets, 10)
    assert fit([], 0) == (EXACT, [])


def test_the_number_of_kept_scores_is_found_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole maps are encoded few times, however little room there is."""
    sheets = [np.random.default_rng(1).random((160, 160)), np.random.default_rng(2).random((160, 160)) ** 8]
    size = sum(len(encode(sheet, Precision("bits8"))["data"]) for sheet in sheets)
    whole: list[str] = []

    def counted(scores: np.ndarray, precision: Precision) -> dict[str, Any]:
        whole.extend([precision.kind] if len(scores) == 160 else [])
        return encode(scores, precision)

    monkeypatch.setattr("mixlens.show.packing.encode", counted)
    for share in (2, 4, 8):
        whole.clear()
        assert fit(sheets, size // share)[0].kind == "top"
        assert len(whole) <= 12  # two sheets, a few tries


def test_a_notebook_says_what_it_holds_unless_it_holds_all() -> None:
    def holds(result: Any) -> Any:
        (written,) = re.findall(r'data-result="([^"]*)"', notebook_output(result))
        return json.loads(html.unescape(written))["holds"]

    small = Map(torch.rand(2, 3, 3), ("a", "b", "c"), "alti", {})
    large = Map(torch.rand(12, 256, 256), tuple("x" * 256), "alti", {})
    assert holds(small) is None
    assert holds(Attribution(torch.tensor([0.5, 0.25]), ("a", "b"), "alti", {})) is None
    assert re.match(r"every number, to 1/|the \d+ largest numbers of each row", holds(large))


# --- columns in a terminal --------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab 日é…ש"), max_size=12)


@given(TEXTS, st.integers(-3, 14))
def test_a_clipped_text_is_the_longest_beginning_that_fits(text: str, width: int) -> None:
    found = clipped(text, width)
    if columns_of(text) <= width:
        assert found == text
    elif width <= 0:
        assert found == ""
    else:
        assert found.endswith("…")
        beginning = found[:-1]
        assert text.startswith(beginning)
        assert columns_of(found) <= width
        assert columns_of(text[: len(beginning) + 1]) > width - 1


@given(TEXTS, st.integers(0, 14))
def test_a_fitting_text_has_exactly_the_width(text: str, width: int) -> None:
    plain = clipped(text, width)
    room = width - columns_of(plain)
    for options, left in (({}, 0), ({"right": True}, room), ({"middle": True}, room // 2)):
        found = fitting(text, width, **options).replace("\u200e", "")
        assert found == " " * left + plain + " " * (room - left)


@given(TEXTS, st.integers(2, 14))
def test_a_chopped_text_is_the_same_text_in_full_lines(text: str, width: int) -> None:
    parts = chopped(text, width)
    assert "".join(parts) == text
    assert all(columns_of(part) <= width for part in parts)
    assert all(columns_of(part + after[0]) > width for part, after in pairwise(parts))


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6), st.integers(1, 20))
def test_items_are_broken_between_them_where_they_fit(items: list[str], width: int) -> None:
    lines = [line.plain for line in item_lines(items, ", ", width, first="")]
    assert all(columns_of(line) <= width for line in lines)
    assert "".join(lines).replace(", ", "") == "".join(items)
    if all(len(item) <= width for item in items):
        words = [line.split(", ") for line in lines]
        assert [word for line in words for word in line] == items
        assert all(len(", ".join([*line, after[0]])) > width for line, after in pairwise(words))


@given(st.lists(st.integers(1, 9), max_size=9), st.integers(1, 25), st.integers(0, 3))
def test_columns_go_beside_each_other_as_long_as_they_fit(wide: list[int], room: int, gap: int) -> None:
    groups = list(in_blocks(wide, room, gap=gap))
    assert [number for start, end in groups for number in range(start, end)] == list(range(len(wide)))

    def size(start: int, end: int) -> int:
        return sum(wide[start:end]) + gap * (end - start - 1)

    assert all(end - start == 1 or size(start, end) <= room for start, end in groups)
    assert all(size(start, end + 1) > room for start, end in groups[:-1])


def test_a_list_is_a_table_where_it_fits_and_stacked_where_not() -> None:
    rows = [("name", "what it is", "x"), ("a", "", "yy"), ("long name", "b c", "")]
    table = ["name       what it is  x", "a                      yy", "long name  b c"]
    assert widths_of(rows) == [9, 10, 2]
    assert [line.rstrip() for line in aligned(rows)] == table
    assert listed(rows, 25) == listed(rows, 100) == table  # 9 + 10 + 2 and two gaps of 2
    assert listed(rows, 24) == ["name", "    what it is  x", "a", "    yy", "long name", "    b c"]
    assert listed(rows, 20)[:2] == ["name", "what it is  x"]  # no indent where there is little room


# --- colours ----------------------------------------------------------------------------------------------------------


def test_shares_are_scores_over_the_largest_magnitude() -> None:
    assert shares([]) == []
    assert shares([0.0, 0.0]) == [0.0, 0.0]
    assert shares([1.0, -4.0, 2.0]) == [0.25, -1.0, 0.5]


def test_a_shade_goes_from_white_to_the_hue() -> None:
    assert (shade(1.0), shade(-1.0), shade(0.0), shade(-3.0)) == (TOWARDS, AGAINST, (255, 255, 255), AGAINST)
    for share in (0.25, -0.25, 0.5):
        hue = TOWARDS if share > 0 else AGAINST
        assert shade(share) == tuple(round(255 - (255 - channel) * abs(share)) for channel in hue)


def luminance(color: tuple[int, int, int]) -> float:
    """WCAG 2: relative luminance."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_ink_is_the_colour_of_more_contrast(color: tuple[int, int, int]) -> None:
    on_black, on_white = (luminance(color) + 0.05) / 0.05, 1.05 / (luminance(color) + 0.05)
    assert ink(color) == ((0, 0, 0) if on_black >= on_white else (255, 255, 255))


def test_styles_have_as_many_colours_as_the_terminal() -> None:
    assert style_of(1.0, 0) == ""
    for share, towards in ((0.5, True), (-0.5, False), (1.0, True)):
        assert style_of(share, 16) == style_of(share, 8) == SIXTEEN[towards][0]
        assert style_of(share, 16, ink_only=True) == SIXTEEN[towards][1]
    assert (style_of(0.1, 16), style_of(-0.49, 16), style_of(0.09, 16)) == (SIXTEEN[True][1], SIXTEEN[False][1], "")
    assert style_of(0.5, 256) == f"{hex_of(ink(shade(0.5)))} on {hex_of(shade(0.5))}"
    assert style_of(0.5, 17, ink_only=True) == hex_of(shade(0.5))


# --- what stands above a picture --------------------------------------------------------------------------------------


def test_a_heading_names_what_is_known() -> None:
    assert heading_line({}, "alti") == "model ? · method alti"
    info = {"model": "m", "variant": "released", "rollout": {"convention": "alti"}, "layer": 2, "gap": 3.2e-7}
    assert (
        heading_line(info, "alti")
        == "model m · method alti · variant released · rollout alti · after layer 3 · gap 3e-07"
    )
    flow = {"model": "m", "variant": "paper", "rollout": {"convention": "abnar", "flow": True}}
    assert heading_line(flow, "alti") == "model m · method alti · flow abnar"


def test_percentages_have_a_digit_or_an_exponent() -> None:
    assert [percent(share) for share in (0.0, 0.004, 0.5, 0.0005, 0.00049, -0.004, 2e-7)] == [
        *("0.0%", "0.4%", "50.0%", "0.1%", "5e-02%", "-0.4%", "2e-05%"),
    ]
    assert [bound(share) for share in (0.0, 0.0005, 0.001, 0.02)] == ["0.1%", "0.1%", "0.1%", "2.0%"]


def attribution(**info: Any) -> Attribution:
    return Attribution(torch.tensor([0.5]), ("a",), "alti", info)


def test_special_tokens_are_named_row_by_row_where_they_were_left_out() -> None:
    none = attribution()
    shared = attribution(special_removed={"tokens": 2, "sum": 0.3, "share": 0.25, "rest_made_to_sum_to_1": True})
    summed = attribution(special_removed={"tokens": 2, "sum": -1.5, "rest_made_to_sum_to_1": False})
    assert removed_by_each([none], ["x"]) == []
    assert removed_by_each([none, shared, summed], ["x", "y", "z\u200b"]) == [
        "special tokens left out: y 25.0%, z\\u200b -1.5"
    ]
    assert heading_line(shared.info, "alti").endswith("special tokens left out (25.0% of the row; the rest sums to 1)")
    assert heading_line(summed.info, "alti").endswith("special tokens left out (their sum: -1.5)")


def test_a_notice_about_the_text_is_written_once() -> None:
    both = [attribution(notices=["few words are known"]), attribution(notices=["few words are known", "no mask"])]
    assert notes_of_each(both, ["x", "y"]) == ["note: few words are known", "note: no mask"]


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_marks_of_tokenizers_are_not_shown() -> None:
    written = {"Ġthe": "the", "▁the": "the", "Ġ": "␣", "▁": "␣", "Ċ": "⏎", "low</w>": "low", "": "␣", "##ing": "##ing"}
    assert {token: shown(token) for token in written} == written
    assert shown("\u0301") == "◌\u0301"


def test_tokens_of_one_word_are_glued() -> None:
    assert glued(["un", "##happy", "##", "keys"]) == [False, True, True, False]
    assert glued(["Ġun", "happy", "Ġkeys", "Ċ", "x"]) == [False, True, False, False, True]
    assert glued(["[CLS]", "##ing", "[SEP]", "▁a", "<s>", "b"]) == [False, False, False, False, False, False]
    assert glued(["a"]) == [False]
    assert glued([]) == []
    assert pieces(["un", "##happy", "##"]) == [("un", False), ("happy", True), ("##", True)]
    assert pieces(["un", "##happy"], words=True) == [("un", False), ("##happy", False)]


# --- encodings --------------------------------------------------------------------------------------------------------


class Stream:
    """A text stream of one encoding."""

    def __init__(self, encoding: str | None, errors: str = "strict"):
        self.encoding, self.errors, self.written = encoding, errors, ""

    def write(self, text: str) -> int:
        if self.encoding:
            text.encode(self.encoding, self.errors)
        self.written += text
        return len(text)

    def reconfigure(self, *, errors: str) -> None:
        self.errors = errors


def test_a_stream_without_the_characters_gets_plain_letters() -> None:
    out = Stream("latin-1")
    assert not can_show(out)
    assert can_show(out, "é")
    assert can_show(Stream("utf-8"))
    assert can_show(Stream(None))
    assert not can_show(Stream("no such encoding"))
    assert Plain(out).write("█é…日👩") == 5  # type: ignore[arg-type]
    assert out.written == "#é~\\u65e5\\U0001f469"
    assert Plain(out).encoding == "latin-1"  # type: ignore[arg-type]
    make_readable(out)
    assert out.errors == "mixlens"
    assert can_show(out)
    assert not can_show(out, replaced=False)
    kept = Stream("utf-8")
    make_readable(kept)
    assert kept.errors == "strict"
    for char, letter in PLAIN.items():
        assert char.encode("ascii", "mixlens").decode() == letter


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [30, 61, 100])
def test_the_list_of_datasets_fits_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from mixlens.cli import lists
    from mixlens.data import listing

    monkeypatch.setattr("mixlens.show.text.console", lambda: Console(width=width))
    lists.data()
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    together = "".join(printed.split())  # a word longer than a line is broken
    assert not [cell for row in listing() for cell in row if "".join(cell.split()) not in together]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_result_as_json_can_be_read_back_and_hides_nothing(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    from mixlens.cli.explain import print_json

    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    tokens = ("é", "a\u200b", "\x1b[31m", "\u202e", "日")
    info = {"layer": 2, "null_dimension": torch.tensor([[1, 2]])}
    print_json(Attribution(torch.tensor([0.5, -0.25, 0.0, 1.0, 2.0]), tokens, "alti", info))
    out.flush()
    line = out.buffer.getvalue().decode(encoding).removesuffix("\n")  # type: ignore[attr-defined]
    assert line.isprintable()
    assert ("é" in line) == (encoding == "utf-8")
    assert json.loads(line) == {
        **{"method": "alti", "tokens": list(tokens), "scores": [0.5, -0.25, 0.0, 1.0, 2.0]},
        "info": {"layer": 2, "null_dimension": [[1, 2]]},
    }


def test_a_position_of_a_report_may_be_a_number_or_a_token() -> None:
    from mixlens.show.report import gather

    model, text = mixlens.load("agreement"), "The keys to the cabinet [MASK] rusty."
    heard: list[tuple[str, float]] = []
    for query, place in ((None, 6), ("keys", 2), (2, 2), ("2", 2), ("-2", 8), (-2, 8)):
        found = gather(
            model, text, ["attention", "grad_x_input", "norm"], query=query, note=lambda *told: heard.append(told)
        )
        assert [result.method for result in found] == ["attention", "grad_x_input", "norm"]
        assert [result.info["query"] for result in found if isinstance(result, Map)] == [place, place]
        assert [result.info["query_token"] for result in found if isinstance(result, Map)] == [
            model.trace(text).tokens[place]
        ] * 2
    with pytest.raises(InputError, match="no token 'zzz'"):
        gather(model, text, ["attention"], query="zzz")
    shares = [share for _, share in heard[: len(heard) // 6]]
    assert shares == sorted(shares)
    assert heard[0] == ("running the model", 0.0)
    assert heard[-1] == ("done", 1.0)
    assert ("attention, norm, layer 1 of 4", 0.0) in heard
    assert ("attention, norm, layer 4 of 4", 0.375) in heard  # three quarters of the first of two steps
    assert ("grad_x_input", 0.5) in heard


# --- units and rates --------------------------------------------------------------------------------------------------


def test_what_is_explained_is_named() -> None:
    info: dict[str, Any] = {"query": 3, "query_token": "Ġkeys"}
    assert explained(info) == "explains  keys (position 3)"
    aim = {**info, "target": "were\u200b", "score": "log_probability"}
    assert explained(aim) == "explains  log probability of were\\u200b at keys (position 3)"
    span = {**info, "task": "question-answering", "target": "span 3 to 5", "score": "logit"}
    assert explained(span) == "explains  logit of span 3 to 5: its start and its end together"
    assert explained({**aim, "generated": "Ġx"}) == "explains  x, written after keys (position 3)"
    rows = [attribution(**info), attribution(**aim), attribution(), attribution(**info)]
    assert explained_by_each(rows[:1], ["a"]) == ["explains  keys (position 3)"]
    assert explained_by_each([rows[0], rows[3]], ["a", "d"]) == ["explains  keys (position 3)"]
    assert explained_by_each(rows, ["a", "b", "c", "d\u200b"]) == [
        "explains  keys (position 3): a, d\\u200b",
        "explains  log probability of were\\u200b at keys (position 3): b",
    ]


def test_scores_are_written_in_their_unit() -> None:
    shares_, logits = {"distribution": True}, {"target": "x", "score": "log_probability"}
    norms = {"distribution": False}
    scores = [0.125, -0.375, 0.5]
    assert largest_of({}, scores) == "0.5"
    assert largest_of({}, []) == "0"
    assert largest_of({**logits, "method": "blank_out"}, scores) == "0.5 (of the log probability)"
    assert largest_of({**logits, "method": "attcat"}, scores) == "0.5"
    assert largest_of({"target": "x", "score": None}, scores) == largest_of({"score": "logit"}, scores) == "0.5"
    assert largest_of(norms, scores) == "50 % of the row"
    assert [number_of(norms, scores, 3)(score) for score in scores] == ["12 %", "\N{MINUS SIGN}38 %", "50 %"]
    assert number_of(norms, [0.0], 3)(0.0) == "0 %"
    assert number_of(shares_, scores, 2)(0.12345) == "12 %"
    assert unit_lines(shares_, scores) == []
    assert unit_lines(norms, scores) == ["in percent of the row; its sum is 1, in a unit of the method's own"]


def test_a_rate_is_of_rows_or_of_seconds() -> None:
    from mixlens.cli.runs import rate_of

    assert [rate_of(*one) for one in ((100, 10.0), (40, 10.0), (10, 10.0), (4, 10.0), (1000, 1.0))] == [
        *("10 a second", "4.0 a second", "1.0 a second", "2.5 s each", "1000 a second"),
    ]


@pytest.mark.parametrize("length", [78, 79, 80, 81, 200])
def test_a_list_calls_a_text_by_its_beginning(length: int) -> None:
    from mixlens.show.page_entry import entry

    text = "".join(chr(97 + i % 26) for i in range(length))
    found = entry([attribution(text=text, query=0, query_token="a")], room=100_000)
    assert found["label"] == (text if length <= 80 else text[:79] + "…")


def test_sums_that_nearly_cancel_are_judged_by_the_size_of_the_scores() -> None:
    from mixlens.scoring.completeness import NEARLY_NOTHING, completeness

    scores = torch.tensor([3.0, -1.0, -2.0])
    assert completeness(scores, 0.0) == {"sum": 0.0, "expected": 0.0, "relative_gap": 0.0}
    assert completeness(scores, 2.0)["relative_gap"] == 1.0
    small = 0.5 * NEARLY_NOTHING * 6
    assert completeness(scores, small)["relative_gap"] == pytest.approx(0.5)
    assert completeness(torch.zeros(2), 0.0)["relative_gap"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["runs/none"], "there is no folder 'runs/none'"),
        (["a text", "runs/none"], "there is no folder 'runs/none'"),
        (["either/or is said"], None),
        (["two words"], None),
        (["word"], None),
    ],
)
def test_a_path_without_a_folder_is_no_text(
    arguments: list[str],
    refused: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    from mixlens.cli.pages import _run_folder, _warn_of_one_word

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    if refused:
        with pytest.raises(InputError, match=refused):
            _run_folder(arguments)
        return
    assert _run_folder(arguments) is None
    _warn_of_one_word(arguments)
    assert ("is shown as a text of one word" in capsys.readouterr().err) == (arguments == ["word"])
    assert str(_run_folder(["run"])) == "run"
    with pytest.raises(InputError, match="'run' is a folder, and a report shows one run"):
        _run_folder([*arguments, "run"])


def test_a_result_as_latex_stands_alone_where_that_is_asked_for() -> None:
    read = Attribution(torch.tensor([0.5, 0.25]), ("a", "b"), "alti", {"query": 0, "query_token": "a"})
    alone, part = read.to_latex(standalone=True), read.to_latex(standalone=False)
    assert "\\begin{document}" in alone
    assert "\\begin{document}" not in part
