"""Sheets of heat maps, strips, histograms and tables of written words on values written by hand: where everything stands."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import artists
import numpy as np
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mixlens.metrics import Interval
from mixlens.show.colors import LIGHT
from mixlens.show.figure import heat, histograms, line_plot, matrices, sheets, strips, written
from mixlens.show.figure.layout import BETWEEN, GAP
from mixlens.show.figure.legend import colours_of
from mixlens.show.figure.options import Options
from mixlens.show.figure.sheets import Panel, Places, Sheet
from mixlens.show.figure.strips import Box, Token
from mixlens.types import Attribution, Map

LETTER = 4 / 72  # inches of a letter of 8 points
OPTIONS = Options(None, 3.0, None, None, True)


def sheet(
    count: int = 1, *, rows: int = 3, columns: int = 4, square: bool = False, head: str = "", name: str = ""
) -> Sheet:
    panels = [Panel(np.ones((rows, columns)), head) for _ in range(count)]
    colours = colours_of([np.ones(1)], None)
    return Sheet(panels, ["c"] * columns, ["rows"] * rows, name, square, colours, "share")


# --- sheets -------------------------------------------------------------------------------------------------------------


def test_places_of_one_panel() -> None:
    with artists.equal_letters():
        one = Places(sheet(), 3.0, 0.5, 0.2)
        assert one.label == pytest.approx(4 * LETTER)
        assert one.left == pytest.approx(GAP + 4 * LETTER + 0.06)
        assert one.room == pytest.approx(3.0 - one.left - 0.2)
        assert (one.beside, one.down) == (1, 1)
        assert one.pitch == pytest.approx(0.6)
        assert one.row == pytest.approx(0.18)
        assert (one.wide, one.high) == (pytest.approx(2.4), pytest.approx(0.54))
        assert (one.heads, one.head, one.step, one.whole) == ([[]], 0.0, pytest.approx(0.6), pytest.approx(0.54))
        assert one.foot == pytest.approx(0.16)
        assert one.corner(0) == pytest.approx((one.left, 0.5))
        named = Places(sheet(name="layer", square=True, columns=3), 3.0, 0.5, 0.2)
        assert named.left == pytest.approx(one.left + 0.17)
        assert (named.pitch, named.row) == (pytest.approx(0.42), pytest.approx(0.42))
        assert named.foot == pytest.approx(0.32)
        assert Places(sheet(), 0.5, 0.5, 0.2).label == pytest.approx(0.15)


def test_rows_of_several_panels_share_the_height_of_the_page() -> None:
    with artists.equal_letters():
        high = Places(sheet(4, rows=24, columns=30), 3.0, 0.5, 0.2)
        assert (high.beside, high.down) == (1, 4)
        assert high.row == 0.14  # 24 rows in four panels have less: a row is never lower than this
        few = Places(sheet(2, rows=24, columns=30), 3.0, 0.5, 0.2)
        assert few.down == 2
        assert few.row == pytest.approx((9.0 - 1.5) / 24 / 2)


def test_panels_are_spread_evenly() -> None:
    with artists.equal_letters():
        for count, beside, down in ((1, 1, 1), (2, 2, 1), (4, 2, 2), (5, 3, 2), (7, 3, 3)):
            one = Places(sheet(count, square=True, columns=9, rows=9, head="head"), 3.4, 0.5, 0.1)
            assert one.room + BETWEEN >= 3 * 0.95 - 0.01
            assert (one.beside, one.down) == (beside, down)
        assert one.pitch == pytest.approx((one.room - 2 * BETWEEN) / 3 / 9)
        assert one.heads == [["head"]] * 7
        assert one.head == pytest.approx(7 * 1.25 / 72 + 0.03)
        assert one.step == pytest.approx(one.head + one.high + GAP)
        assert one.whole == pytest.approx(2 * one.step + one.high)
        assert one.corner(4) == pytest.approx((one.left + one.wide + BETWEEN, 0.5 + one.head + one.step))
        lying = Places(sheet(2), 4.0 + GAP + 4 * LETTER + 0.06, 0.5, 0.0)
        assert lying.room == pytest.approx(4.0)
        assert lying.beside == 2
        assert Places(sheet(2), lying.width - 0.31, 0.5, 0.0).beside == 1  # two panels of 1.9 inches need 3.7
        many = Places(sheet(rows=60), 3.0, 0.5, 0.2)
        assert many.row == pytest.approx(0.14)
        assert Places(sheet(rows=50), 3.0, 0.5, 0.2).row == pytest.approx(7.5 / 50)


def test_a_colour_bar_stands_upright_where_square_panels_are_high_enough() -> None:
    with artists.equal_letters():
        high, upright = sheets.arranged(sheet(square=True, rows=4), OPTIONS, 0.5)
        assert upright
        assert high.right == pytest.approx(0.1 + 0.08 + 3.5 / 72 + 0.2 + GAP)
        assert sheets.arranged(sheet(square=False, rows=9), OPTIONS, 0.5)[1] is False
        low, upright = sheets.arranged(sheet(square=True, rows=1, columns=20), OPTIONS, 0.5)
        assert (upright, low.right, low.above, low.width) == (False, GAP, 0.5, 3.0)
        bare = sheets.arranged(sheet(square=True, rows=4), Options(None, 3.0, None, None, False), 0.5)[0]
        assert bare.right == GAP
        assert sheets._label_height(["abc"], 1.0) == 0.16
        assert sheets._label_height(["abc"], 0.15) == pytest.approx(3 * LETTER + 0.04)
        assert sheets._label_height(["a" * 40], 0.15) == pytest.approx(0.89)


# --- heat maps ------------------------------------------------------------------------------------------------------------


def test_rows_without_signs_have_a_line_and_colours_of_their_own() -> None:
    axes = Figure().add_subplot()
    heat._draw_lines(axes, 4, 2)
    found = [(line.get_ydata()[0], to_hex(line.get_color()), line.get_linewidth()) for line in axes.lines]  # type: ignore[index]
    white, ink = LIGHT["surface"].lower(), LIGHT["ink"].lower()
    assert found == [(0.5, white, 0.8), (1.5, ink, 1.0), (2.5, white, 0.8)]
    values = np.array([[0.2, -1.0], [0.5, 0.0]])
    two = Sheet(
        *([Panel(values)], ["a", "b"], ["x", "y"], "", False, colours_of([values], None), "score"),
        second=colours_of([values[1:]], None),
        split=1,
    )
    axes = Figure().add_subplot()
    heat._draw_panel(axes, two, two.panels[0], 0.5, 0.5, None)
    first, second = axes.images
    assert np.ma.getmaskarray(second.get_array()).tolist() == [[True, True], [False, False]]  # type: ignore[arg-type]
    assert (first.norm.vmin, first.norm.vmax, second.norm.vmin, second.norm.vmax) == (-1.0, 1.0, 0.0, 0.5)
    assert len(axes.patches) == 1
    assert heat._end([np.array([[9.0, 2.0], [-3.0, 9.0]])], square=True) == 3.0
    assert heat._end([np.eye(2)], square=True) is None
    assert heat._end([np.ones((2, 2))], square=False) is None


def test_scales_of_rows_and_matrices() -> None:
    values = np.array([[1.0, -4.0], [0.0, 0.0], [2.0, 1.0]])
    assert matrices._by_row(values, "own").tolist() == [[0.25, -1.0], [0.0, 0.0], [1.0, 0.5]]
    assert matrices._by_row(values, "all") is values
    assert matrices._by_largest(Panel(values, "h")).values.tolist() == (values / 4).tolist()
    assert matrices._by_largest(Panel(np.zeros((1, 1)), "h")).values.tolist() == [[0.0]]
    shares = Map(torch.full((1, 2, 2), 0.5), ("a", "b"), "alti", {})
    panels = [Panel(values, "h")]
    assert matrices._scaled(panels, [shares], None) == (panels, "all")
    scaled, scale = matrices._scaled(panels, [shares], "own")
    assert (scaled[0].head, scale, float(np.abs(scaled[0].values).max())) == ("h", "own", 1.0)


# --- strips ---------------------------------------------------------------------------------------------------------------


def test_words_stand_beside_each_other_up_to_the_room() -> None:
    lines = strips._Lines(1.0, 0.1)
    for token in (
        Token(0.4, "a", False, 0.4),
        Token(0.5, "b", False, 0.5),
        Token(0.3, "c", False, 0.7),
        Token(0.4, "d", True, 0.4),
    ):
        lines.add(token)
    assert lines.boxes == [Box(0, 0.0, 0.4, "a"), Box(0, 0.5, 0.5, "b"), Box(1, 0.0, 0.3, "c"), Box(1, 0.3, 0.4, "d")]
    assert Token(0.4, "a", False, 0.9).needed(0.9) == 0.9
    assert Token(0.4, "a", False, 0.9).needed(0.8) == 0.4
    assert Token(0.4, "a", True, 0.9).needed(0.9) == 0.4
    assert strips._word_widths([1, 2, 4, 8], [False, True, True, False]) == [7, 6, 4, 8]


def test_tokens_are_measured_with_what_stands_below_them() -> None:
    pad = 0.35 * 8 / 72
    with artists.equal_letters():
        plain = strips._measured(["ab", "##c", "d"], 9.0, 8.0, ())
        wide = strips._measured(["ab", "##c", "d"], 9.0, 8.0, (0.0, 0.9, 0.0))
        cut = strips._measured(["abcdefgh"], 4 * LETTER + 2 * pad + 1e-9, 8.0, ())
    one, two, three = (count * LETTER + 2 * pad for count in (1, 2, 3))
    assert [(token.wide, token.text, token.goes_on, token.word) for token in plain] == [
        (pytest.approx(two), "ab", False, pytest.approx(two + one)),
        (pytest.approx(one), "c", True, pytest.approx(one)),
        (pytest.approx(one), "d", False, pytest.approx(one)),
    ]
    assert [token.wide for token in wide] == pytest.approx([two, 0.9, one])
    assert wide[0].word == pytest.approx(two + 0.9)
    assert cut[0].text == "abc…"
    assert three > two


def test_a_strip_is_as_high_as_its_lines() -> None:
    result = Attribution(torch.tensor([0.97, 0.03, 0.0, -0.5]), ("aa", "bb", "cc", "dd"), "attcat", {"target": "x"})
    strip = strips.Strip(result, strips._colours(result, OPTIONS), [])
    with artists.equal_letters():
        widths = strips._value_widths(strip)
        assert [wide > 0 for wide in widths] == [True, False, False, True]  # 0.03 of 1.5 is under 3 %
        assert widths[0] == pytest.approx(len("+0.97") * 3.25 / 72)
        assert strips._height(strip, 9.0, valued=True) == pytest.approx((2.95 - 0.3) * 8 / 72)
        assert strips._height(strip, 9.0, valued=False) == pytest.approx((1.6 + 0.3 - 0.3) * 8 / 72)
        narrow = strips._boxes(result.tokens, 0.3, 8.0)
        assert [box.line for box in narrow] == [0, 1, 2, 3]
        assert strips._height(strip, 0.3, valued=False) == pytest.approx((4 * 1.9 - 0.3) * 8 / 72)
        high = (4 * 1.9 - 0.3) / 72
        assert strips._font_size(result.tokens, 0.3, 8 * high) == (8.0, pytest.approx(8 * high))
        assert strips._font_size(result.tokens, 0.3, 7.9 * high)[0] == 7.0
        assert strips._font_size(result.tokens, 0.3, 0.0)[0] == 6.5
        assert strips._font_size(result.tokens, 0.3)[0] == 8.0
    even = Attribution(torch.zeros(2), ("a", "b"), "attcat", {})
    with artists.equal_letters():
        assert strips._value_widths(strips.Strip(even, strips._colours(even, OPTIONS), [])) == [0.0, 0.0]


def test_marked_tokens_have_a_line_and_their_value() -> None:
    def drawn(*scores: float, valued: bool) -> Any:
        result = Attribution(torch.tensor(scores, dtype=torch.float64), ("aa", "bb", "cc"), "attcat", {})
        axes = Figure().add_subplot()
        strips._draw_strip(axes, strips.Strip(result, strips._colours(result, OPTIONS), []), 3.0, 8.0, valued=valued)
        return axes

    with artists.equal_letters():
        axes = drawn(-0.5, 0.015, 0.0, valued=True)
        assert [text.get_text() for text in axes.texts] == ["aa", "−0.5", "bb", "cc"]
        assert len(drawn(0.0, 0.0, 0.0, valued=True).lines) == 0  # nothing is strong where all are 0
        exact = drawn(0.97, 0.03, 0.0, valued=False)  # 3 % of the sum is marked
        assert [text.get_text() for text in exact.texts] == ["aa", "bb", "cc"]
        assert len(exact.lines) == 2
    (line,) = axes.lines
    boxes: list[Any] = list(axes.patches)
    high = 1.6 * 8 / 72
    assert [box.get_gid() for box in boxes] == ["token-0", "token-1", "token-2"]
    assert boxes[0].get_bbox().bounds == pytest.approx((0.0, 0.0, boxes[0].get_width(), high))
    assert list(line.get_xdata()) == pytest.approx([0.0, boxes[0].get_width()])
    assert list(line.get_ydata()) == pytest.approx([high, high])
    assert (to_hex(line.get_color()), line.get_linewidth(), line.is_dashed()) == (LIGHT["against"].lower(), 1.2, True)
    word, value = axes.texts[:2]
    assert word.get_position() == pytest.approx((boxes[0].get_width() / 2, 0.73 * high))
    assert value.get_position() == pytest.approx((boxes[0].get_width() / 2, high + 0.03))
    assert axes.get_xlim() == (0.0, 3.0)
    assert axes.get_ylim() == (pytest.approx((2.95 - 0.3) * 8 / 72), 0.0)


# --- histograms and curves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "ticks"), [(2.0, 3), (2.01, 5)])
def test_an_axis_has_more_ticks_where_there_is_room(room: float, ticks: int) -> None:
    axes = Figure().add_subplot()
    axes.set_xlim(0, 1)
    histograms._label([axes], "x $", "", room)
    texts = [label.get_text() for label in axes.get_xticklabels()]
    assert len(texts) == ticks
    assert (texts[0], texts[-1]) == ("0\u2009%", "100\u2009%")
    assert (axes.get_xlabel(), len(axes.texts)) == ("x $", 0)


def test_a_row_of_a_histogram() -> None:
    axes = Figure().add_subplot()
    histograms._draw_row(axes, [2.0, 8.0, 0.0], [0.0, 1.0, 3.0, 4.0], 10.0, "#112233")
    bars: list[Any] = list(axes.patches)
    assert [bar.get_bbox().bounds for bar in bars] == [
        *(pytest.approx((0.0, 0, 0.94, 2.0)), pytest.approx((1.0, 0, 1.88, 8.0)), pytest.approx((3.0, 0, 0.94, 0.0))),
    ]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.0, 4.0), (0.0, 15.0))
    (number,) = axes.texts  # an outer column of nothing has no number
    assert (number.get_text(), number.get_position()) == ("2", pytest.approx((0.5, 2.6)))
    histograms._draw_row(axes, [1.0, 1.0, 5.5], [0.0, 1.0, 3.0, 4.0], 10.0, "#112233")
    assert [text.get_text() for text in axes.texts] == ["2", "1", "5.5"]
    assert axes.texts[2].get_position() == pytest.approx((3.5, 6.1))
    axes.set_xlim(0, 4)
    histograms._label([axes], "", "value", 2.0)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "4"]
    assert axes.texts[-1].get_position() == pytest.approx((1.04, 1.05))


def test_rows_of_a_histogram_stand_below_each_other() -> None:
    with artists.equal_letters():
        page = histograms.histogram_rows(
            {"long name": [1.0, 4.0], "b": [2.0, 0.0]},
            edges=[0, 1, 2],
            values={"b": "12 %"},
            value_name="v",
            grey="b",
            width=3.0,
        )
    first, second = page.axes
    left, right = GAP + 9 * LETTER + 0.08, 4 * LETTER + 0.1
    high = float(page.get_size_inches()[1])
    assert high == pytest.approx(histograms.ABOVE + 2 * histograms.ROW + histograms.BELOW)
    assert second.get_position().bounds == pytest.approx(
        (left / 3, 1 - (histograms.ABOVE + 2 * histograms.ROW) / high, (3 - left - right) / 3, histograms.ROW / high)
    )
    assert (first.get_ylim(), second.get_ylim()) == ((0.0, 6.0), (0.0, 6.0))
    assert [to_hex(axes.patches[0].get_facecolor()) for axes in (first, second)] == [
        LIGHT["ink"].lower(),
        LIGHT["edge"].lower(),
    ]
    name = next(text for text in second.texts if text.get_text() == "b")
    value = next(text for text in second.texts if text.get_text() == "12 %")
    assert name.get_position() == pytest.approx((-0.08 / (3 - left - right), 0.08))
    assert value.get_position() == pytest.approx((1 + 0.08 / (3 - left - right), 0.08))
    assert "12 %" not in [text.get_text() for text in first.texts]


def test_points_of_curves() -> None:
    interval = Interval(2.0, 1.0, 3.0, 5, 0.95)
    points = line_plot._points("a", [1.0, interval, (9, 4)], None)
    assert [place for place, _ in points] == [1.0, 2.0, 9.0]
    assert points[1][1] is interval
    assert (points[0][1].mean, points[0][1].n, points[2][1].mean) == (1.0, 1, 4.0)
    assert math.isnan(points[0][1].low)
    assert [place for place, _ in line_plot._points("a", [1, 2], [0.5, 0.25])] == [0.5, 0.25]
    sizes = [tuple(line_plot._new_axes(2.0, count).figure.get_size_inches()) for count in (1, 3, 4)]  # type: ignore[union-attr]
    assert sizes == [pytest.approx((2.0, 1.4)), pytest.approx((2.0, 1.4)), pytest.approx((2.0, 1.56))]


# --- written words ------------------------------------------------------------------------------------------------------------


def table(**given: Any) -> written.Sheet:
    usual: dict[str, Any] = {"generation": SimpleNamespace(signed=True, method="alti"), "kind": "words", "width": 3.0}
    return written.Sheet(**{**usual, "title": None, "vmax": None, **given})


def test_the_scale_of_written_words_covers_almost_all_cells() -> None:
    many = np.full((10, 20), 0.1)
    many[0, 0] = -9.0
    bands = [written.Band("", ("begin",), None), written.Band("s", ("a",), many)]
    assert table()._most(bands) == pytest.approx(0.1)
    assert table(vmax=2.0)._most(bands) == 2.0
    assert table()._most(bands[:1]) == 1.0
    assert table()._most([written.Band("s", ("a",), np.array([[np.nan, -0.5]]))]) == pytest.approx(0.5)
    assert table()._most([written.Band("s", ("a",), np.array([[np.nan]]))]) == 1.0
    assert [table(kind=kind).signed for kind in ("words", "sentences", "left_out")] == [True, False, True]
    assert table(kind="left_out")._ticks(0.123) == ["+12", "0", "−12"]
    assert len(table()._ticks(0.5)) == 3
    assert table(kind="sentences")._ticks(0.5)[0] == "0"
    assert [
        written._hatch(*one)
        for one in ((np.nan, "for", 0.0), (-1.0, "against", 0.21), (-1.0, "against", 0.2), (1.0, "for", 1.0))
    ] == [
        *("xxxx", "////", None, None),
    ]


def test_a_bracket_over_a_sentence_has_the_longest_name_that_fits() -> None:
    axes = Figure().add_subplot()
    letter = written.AXIS / 2 / 72
    with artists.equal_letters():
        written._bracket(axes, 1.0, 10 * letter + 1e-9, "sentence 2")
        written._bracket(axes, 1.0, 10 * letter - 1e-6, "sentence 2")
        written._bracket(axes, 1.0, 0.01, "sentence 2345")
    assert [text.get_text() for text in axes.texts[:2]] == ["sentence 2", "s2"]
    assert axes.texts[2].get_text() == "s" + "2345"[: int(0.1 / letter) - 2] + "…"
    assert axes.texts[0].get_position() == pytest.approx((1.0 + 5 * letter, 0.14))
    line = axes.lines[0]
    assert list(line.get_xdata()) == pytest.approx([1.0, 1.0, 1 + 10 * letter, 1 + 10 * letter])  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [0.21, 0.17, 0.17, 0.21]  # type: ignore[arg-type]
