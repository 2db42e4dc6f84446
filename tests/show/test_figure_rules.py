"""Figures at their limits: what is refused, word by word, and the last size that still fits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
import artists
import made_values as made
import matplotlib
import numpy as np
from matplotlib.figure import Figure

import mixlens
from mixlens.base.errors import InputError
from mixlens.metrics import Interval
from mixlens.show import curves as show_curves
from mixlens.show import figure
from mixlens.show.figure import (
    bars,
    heat,
    histograms,
    layout,
    legend,
    matrices,
    numbers,
    picture,
    sheets,
    strips,
    wording,
    written,
)
from mixlens.show.figure.options import Options
from mixlens.types import Attribution, Map


def said(call: Any) -> str:
    with pytest.raises(InputError) as refusal:
        call()
    return str(refusal.value)


ONE, MAP, HEADS = made.attribution(), made.a_map(2, 3), made.heads()
OTHER = made.attribution((1.0, 2.0))


def scored(*scores: Any, tokens: tuple[str, ...] = ("a", "b")) -> Attribution:
    return Attribution(torch.tensor(scores, dtype=torch.float64), tokens, "x", {})


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: ONE.plot(kind="matrix"),
        "an Attribution cannot be drawn as 'matrix'. Did you mean 'strip'? Known: bars, strip.",
    ),
    (
        lambda: MAP.plot(kind="matix"),
        "a Map cannot be drawn as 'matix'. Did you mean 'matrix'? Known: flow, grid, layers, matrix.",
    ),
    (lambda: HEADS.plot(kind="x"), "a HeadMaps cannot be drawn as 'x'. Known: heads."),
    (
        lambda: mixlens.plot([ONE], kind="bars"),
        "several Attributions cannot be drawn as 'bars'. Did you mean 'rows'? Known: rows, strip.",
    ),
    (lambda: mixlens.plot([MAP], kind="grid"), "several Maps cannot be drawn as 'grid'. Known: layers, matrix."),
    (lambda: mixlens.plot([]), "there is nothing to draw: no results were given."),
    (lambda: mixlens.plot({}), "there is nothing to draw: no results were given."),
    (lambda: mixlens.plot(3), "a figure is made of an Attribution, a Map or several of one kind, not of int."),  # type: ignore[arg-type]
    (lambda: mixlens.plot([ONE, 3]), "a figure is made of an Attribution, a Map or several of one kind, not of list."),  # type: ignore[list-item]
    (
        lambda: mixlens.plot({"a": HEADS}),
        "a figure is made of an Attribution, a Map or several of one kind, not of dict.",
    ),  # type: ignore[dict-item]
    (
        lambda: mixlens.plot([ONE, MAP]),
        "attributions and maps cannot stand in one figure. Read the maps out first: map.readout(query).",
    ),
    (lambda: mixlens.plot([ONE, OTHER]), "these results are not of the same tokens, so they cannot share one axis."),
    (lambda: ONE.plot(layer=0), "a figure of kind 'strip' of one result takes no layer=."),
    (lambda: ONE.plot(kind="bars", numbers=False), "a figure of kind 'bars' of one result takes no numbers=."),
    (lambda: MAP.plot(scale="all"), "a figure of kind 'matrix' of one result takes no scale=."),
    (lambda: MAP.plot(query=0), "a figure of kind 'matrix' of one result takes no query=."),
    (lambda: MAP.plot(kind="layers", layer=0), "a figure of kind 'layers' of one result takes no layer=."),
    (lambda: MAP.plot(kind="grid", layer=0), "a figure of kind 'grid' of one result takes no layer=."),
    (lambda: HEADS.plot(top=3), "a figure of kind 'heads' of one result takes no top=."),
    (lambda: mixlens.plot([ONE, ONE], top=3), "a figure of kind 'rows' takes no top=."),
    (lambda: mixlens.plot([ONE, ONE], labels=["a"]), "1 labels for 2 results. Give one for each."),
    (lambda: mixlens.plot([ONE], scale="al"), "unknown scale 'al'. Did you mean 'all'? Known: all, own."),
    (lambda: ONE.plot(vmax=0), "vmax must be a number above 0, not 0."),
    (lambda: ONE.plot(vmax=float("inf")), "vmax must be a number above 0, not inf."),
    (lambda: ONE.plot(ax=3), "ax must be matplotlib Axes, not int."),
    (lambda: MAP.plot(kind="grid", ax=axes()), "a figure of kind 'grid' has many axes, so it takes no ax=."),
    (lambda: HEADS.plot(ax=axes()), "a figure of kind 'heads' has many axes, so it takes no ax=."),
    (lambda: mixlens.plot([MAP], ax=axes()), "a figure of kind 'matrix' has many axes, so it takes no ax=."),
    (
        lambda: mixlens.plot([ONE], kind="strip", ax=axes()),
        "a figure of kind 'strip' has many axes, so it takes no ax=.",
    ),
    (lambda: ONE.plot(width="wide"), "unknown width 'wide': single, double, or inches. Known: double, single."),
    (lambda: ONE.plot(width=1.49), "a width is single, double, or 1.5 to 30 inches, not 1.49."),
    (lambda: ONE.plot(width=30.1), "a width is single, double, or 1.5 to 30 inches, not 30.1."),
    (lambda: ONE.plot(width=True), "a width is single, double, or 1.5 to 30 inches, not True."),
    (lambda: ONE.plot(kind="bars", top=0), "top must be a whole number of at least 1, not 0."),
    (lambda: ONE.plot(kind="bars", top=True), "top must be a whole number of at least 1, not True."),
    (lambda: ONE.plot(kind="bars", top=1.5), "top must be a whole number of at least 1, not 1.5."),
    (
        lambda: ONE.plot(font="No Such"),
        "no font 'No Such' here. Give the name of an installed one, or leave font= out.",
    ),
    (lambda: scored(tokens=()).plot(), "there are no tokens to draw."),
    (lambda: scored(1.0).plot(), "scores of shape (1,) do not fit 2 tokens."),
    (lambda: scored(1.0, float("inf")).plot(), "'x' has scores that are not finite: there is nothing true to draw."),
    (lambda: Map(torch.ones(0, 2, 2), ("a", "b"), "x", {}).plot(), "scores of shape (0, 2, 2) do not fit 2 tokens."),
    (lambda: Map(torch.ones(1, 2, 3), ("a", "b"), "x", {}).plot(), "scores of shape (1, 2, 3) do not fit 2 tokens."),
    (
        lambda: made.HeadMaps(torch.ones(1, 2, 2, 1), ("a", "b"), "x", {}).plot(),
        "scores of shape (1, 2, 2, 1) do not fit 2 tokens.",
    ),
    (lambda: MAP.plot(layer=2), "layer 2 is out of range: the map has 2 layers, 0 to 1."),
    (lambda: MAP.plot(layer=-3), "layer -3 is out of range: the map has 2 layers, 0 to 1."),
    (lambda: MAP.plot(layer=True), "layer True is out of range: the map has 2 layers, 0 to 1."),
    (lambda: mixlens.plot([made.a_map(3, 3), MAP], layer=2), "layer 2 is out of range: the map has 3 layers, 0 to 2."),
    (
        lambda: mixlens.plot([made.a_map(3, 3), MAP], kind="layers"),
        "these maps have different numbers of layers, so they cannot share one axis.",
    ),
    (
        lambda: made.a_map(1, 3, tokens=("[MASK]", "a", "<mask>")).plot(kind="layers"),
        "there are 2 mask tokens, at [0, 2]. Say which one: query=INDEX.",
    ),
    (
        lambda: made.a_map(1, 40).plot(numbers=True),
        "cells of 0.05 inches are too small for numbers. Give a larger width=, or leave numbers out.",
    ),
    (lambda: figure.curves({}), "there is nothing to draw: no curves were given."),
    (lambda: figure.curves({"a": []}), "curve 'a' has no points."),
    (lambda: figure.curves({"a": [1]}, at=[1, 2]), "curve 'a' has 1 points and at= has 2 places. Give one for each."),
    (lambda: figure.curves({"a": [1]}, ax=3), "ax must be matplotlib Axes, not int."),  # type: ignore[arg-type]
    (lambda: figure.curves({"a": [1]}, save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (lambda: figure.histogram_rows({}, edges=[0, 1]), "there is nothing to draw: no rows were given."),
    (
        lambda: figure.histogram_rows({"a": [1]}, edges=[0, 1], save="no/x.svg"),
        "no folder 'no' to save in.",
    ),
    (
        lambda: figure.histogram_rows({"a": [1], "b": [1, 2]}, edges=[0, 1]),
        "row 'b' has 2 counts, and 2 edges have 1 columns between them.",
    ),
    (lambda: made.generation().plot(layer=0), "a figure of a Generation takes no layer=."),
    (lambda: made.generation().plot(numbers=False), "a figure of a Generation takes no numbers=."),
    (lambda: made.generation().plot(scale="all"), "a figure of a Generation takes no scale=."),
    (lambda: made.generation().plot(vmax=-1), "vmax must be a number above 0, not -1."),
    (lambda: made.generation().plot(save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (lambda: ONE.plot(save="x.gif"), "a figure is saved as .svg, .pdf, .png, not 'x.gif'."),
    (
        lambda: made.generation().plot(kind="word"),
        "a Generation cannot be drawn as 'word'. Did you mean 'words'? Known: left_out, sentences, words.",
    ),
    (
        lambda: made.generation(effects=False).plot(kind="left_out"),
        "what leaving out does was not measured: draw generation.with_effects().",
    ),
    (
        lambda: made.generation().plot(kind="words", width=1.5),
        "the words of this prompt are too many for the width. Give a larger width=, or kind='sentences'.",
    ),
]


def axes() -> Any:
    return Figure().add_subplot()


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_cannot_be_drawn_is_refused_in_one_line(place: int) -> None:
    call, message = REFUSED[place]
    assert said(call) == message


def test_widths() -> None:
    assert [
        layout.inches_of(width, wide=wide) for width in (None, "single", "double", 1.5, 30) for wide in (False, True)
    ] == [
        *(84 / 25.4, 174 / 25.4, 84 / 25.4, 84 / 25.4, 174 / 25.4, 174 / 25.4, 1.5, 1.5, 30.0, 30.0),
    ]
    assert isinstance(layout.inches_of(3, wide=True), float)


def test_texts_are_cut_where_the_room_ends() -> None:
    with artists.equal_letters():
        letter = layout.text_width("x", 8.0)
        assert letter == 4 / 72
        assert layout.widest(["a", "abc", "ab"], 8.0) == 3 * letter
        assert [layout.cut("abcdef", 8.0, room * letter + 1e-9) for room in (6, 5.99, 5, 4, 3, 2, 1, 0)] == [
            *("abcdef", "abcd…", "abcd…", "abc…", "ab…", "a…", "a…", "a…"),
        ]
        title = "aa · bb · cccccccc"
        assert [layout.broken(title, 8.0, room * letter + 1e-9) for room in (18, 17.9, 8, 7, 6, 2)] == [
            *(["aa · bb · cccccccc"], ["aa · bb", "cccccccc"], ["aa · bb", "cccccccc"], ["aa · bb", "cccccc…"]),
            *(["aa", "bb", "ccccc…"], ["aa", "bb", "c…"]),
        ]
        assert layout.broken("", 8.0, 1.0) == []
        assert layout.broken("aa · bb · cc · dd · ee", 8.0, 7 * letter + 1e-9) == ["aa · bb", "cc · dd", "ee"]
    assert layout.title_height([]) == 0
    assert layout.title_height(["a", "b"]) == pytest.approx(2 * 10 / 72 + 0.06)
    assert layout.literal("a$b\n") == "a\\$b\\u000a"


def test_bars_are_as_high_as_a_page_allows() -> None:
    options = Options(None, 3.0, None, None, True)
    with artists.equal_letters():
        pitches = [bars._axes_and_pitch(["a"] * count, "", options)[1] for count in (1, 47, 48, 400, 500)]
    assert pitches == pytest.approx([0.17, 0.17, 8 / 48, 0.02, 0.02])


def test_labels_are_thinned_where_they_would_touch() -> None:
    step = 1.15 / 72
    assert [layout.thinned(size * step) for size in (8.0, 7.99, 7.0, 6.99, 6.5, 6.49, 3.25, 3.2)] == [
        *((8.0, 1), (7.0, 1), (7.0, 1), (6.5, 1), (6.5, 1), (6.5, 2), (6.5, 2), (6.5, 3)),
    ]


def test_real_letters_are_measured_in_inches() -> None:
    with picture.settings(None, new_figure=True):
        assert layout.text_width("mmmm", 8.0) == pytest.approx(4 * layout.text_width("m", 8.0), rel=0.05)
        assert layout.text_width("m", 16.0) == pytest.approx(2 * layout.text_width("m", 8.0), rel=0.05)
        assert 0.05 < layout.text_width("m", 8.0) < 0.2
        assert layout.text_width("$m$", 8.0) > 2 * layout.text_width("m", 8.0)


def test_labels_lie_while_they_fit() -> None:
    with artists.equal_letters():
        wide = layout.text_width("abc", 8.0)
        assert sheets.lies(["a", "abc"], wide / 0.9 * 1.0000001)
        assert not sheets.lies(["a", "abc"], wide / 0.9 * 0.9999999)
        assert heat._fits("abc", layout.text_width("abc", 7.0))
        assert not heat._fits("abc", layout.text_width("abc", 7.0) - 1e-9)


@pytest.mark.parametrize(
    ("value", "percent", "sign", "text"),
    [
        (0.0, False, True, "0"),
        (0.0, True, True, "0\u2009%"),
        (0.12345, False, False, "0.12"),
        (-0.12345, False, True, "−0.12"),
        (0.5, True, True, "+50\u2009%"),
        (123456.0, False, False, "120000"),
        (1e-7, False, False, "1e-07"),
        (-0.00123, True, False, "−0.12\u2009%"),
        (2.0, False, True, "+2"),
    ],
)
def test_numbers_beside_colours(value: float, percent: bool, sign: bool, text: str) -> None:
    assert legend.number(value, percent=percent, sign=sign) == text


def test_colours_of_values() -> None:
    plain = legend.colours_of([np.array([[0.0, 2.0]]), np.array([1.0])], None)
    assert (plain.end, plain.signed, plain.beyond, plain.ticks, plain.sides) == (2.0, False, False, ["0", "2"], None)
    assert (plain.text, plain.percent, plain.target, plain.cmap.N, plain.cmap.name) == (False, False, "", 256, "share")
    assert [plain.shade(score) for score in (0.0, 1.0, 2.0, 9.0)] == ["#ffffff", "#aea4d4", "#5d4aa8", "#5d4aa8"]
    signed = legend.colours_of([np.array([-2.0, 1.0])], 1.5, text=True, percent=True, target="t" * 21)
    assert (signed.end, signed.signed, signed.beyond, signed.cmap.N, signed.cmap.name) == (
        1.5,
        True,
        True,
        511,
        "signed",
    )
    assert signed.ticks == ["−150\u2009% and more", "0", "150\u2009% and more"]
    assert signed.sides == ("against", f"for {'t' * 19}…")
    assert [signed.shade(score) for score in (-9.0, -1.5, -0.75, 0.0, 1.5)] == [
        "#ec9554",
        "#ec9554",
        "#f6caaa",
        "#ffffff",
        "#4a9fd1",
    ]
    assert legend.colours_of([np.array([-1.0])], None, target="t" * 20).sides == ("against", f"for {'t' * 20}")
    assert legend.colours_of([np.array([-1.0])], None).sides == ("against", "for")
    empty = legend.colours_of([], None)
    assert (empty.end, empty.beyond, empty.signed) == (1.0, False, False)
    assert legend.colours_of([np.zeros(2)], None, percent=True).ticks == ["0\u2009%", "100\u2009%"]
    assert not legend.colours_of([np.array([1.0])], 1.0).beyond
    assert legend.colours_of([np.array([1.0])], 0.999).beyond
    assert [signed.hue(share) for share in (-0.1, 0.0, 0.1)] == ["against", "for", "for"]


def test_the_room_of_colour_bars() -> None:
    with artists.equal_letters():
        short = legend.colours_of([np.array([1.0])], None)
        assert legend.upright_width(short) == pytest.approx(0.1 + 0.08 + 3.5 / 72 + 0.2 + 0.06)
        for room, meaning, place in BELOW:
            page = Figure(figsize=(10, 10))
            legend.legend_below(page, 1.0, 2.0, room, short, meaning)
            left, low, wide, high = (10 * one for one in page.axes[0].get_position().bounds)
            assert (left, wide) == pytest.approx(place), (room, meaning)
            assert (low, high) == pytest.approx((10 - 2.07, 0.07))


OUT = 3.5 / 72 / 2  # half of a number's width
BELOW = [  # room, meaning -> left edge and width
    (5.0, "", (1 + OUT, 1.4)),
    (1.0, "", (1 + OUT, 1.0 - 2 * OUT)),
    (0.2, "", (1 + OUT, 0.3)),
    (5.0, "x" * 72, (1 + (3.5 - 1.4) / 2, 1.4)),
    (3.6, "x" * 72, (1 + (3.5 - 1.4) / 2, 1.4)),
    (3.4, "x" * 72, (1 + (3.5 - 1.4) / 2, 1.4)),
]


def test_numbers_in_cells() -> None:
    assert [numbers._whole_percent(value) for value in (0.0, 0.0049, 0.005, -0.005, 0.126, -0.5)] == [
        "·",
        "·",
        "0",
        "−0",
        "13",
        "−50",
    ]
    assert [numbers._number(value) for value in (0.0, 0.5, -0.25, 1.5, 99.99, 100.0, -123.0)] == [
        ".00",
        ".50",
        "−.25",
        "1.50",
        "99.99",
        "1e+02",
        "−1.2e+02",
    ]
    with artists.equal_letters():
        wide = layout.text_width("100", 7.0) / 0.96
        assert numbers._number_size(["1", "100"], wide, 1.0) == 7.0
        assert numbers._number_size(["1", "100"], wide / 2 * 1.9, 1.0) == pytest.approx(6.65)
        assert numbers._number_size(["1"], 1.0, 6.5 * 1.1 / 72) == pytest.approx(6.5)
        with pytest.raises(InputError):
            numbers._number_size(["1"], 1.0, 6.4 * 1.1 / 72)


@pytest.mark.parametrize(("limit", "hatched"), [(16, True), (15, False)])
def test_cells_against_are_hatched_up_to_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, hatched: bool) -> None:
    monkeypatch.setattr(heat, "MOST_HATCHED", limit)
    assert bool(artists.signed_map().plot().axes[0].patches) == hatched


def test_the_end_of_the_colours_of_maps() -> None:
    square = np.array([[9.0, 1.0], [-3.0, 9.0]])
    assert heat._end([square, np.eye(2)], square=True) == 3.0
    assert heat._end([np.eye(2)], square=True) is None
    assert heat._end([square], square=False) is None


@pytest.mark.parametrize(
    ("count", "text"), [(0.5, "0.5"), (3.0, "3"), (9.94, "9.9"), (10.5, "10"), (11.5, "12"), (1234.0, "1,234")]
)
def test_counts_on_columns(count: float, text: str) -> None:
    assert histograms._count(count) == text


def test_names_that_tell_results_apart() -> None:
    def names(*infos: dict[str, Any], methods: str = "") -> list[str]:
        some = [
            Attribution(torch.ones(1), ("a",), method, info)
            for method, info in zip(methods or "m" * len(infos), infos, strict=True)
        ]
        return wording.names_of(some)

    assert names({}, {}, methods="ab") == ["a", "b"]
    assert names({}, {}) == ["m 1", "m 2"]
    assert names({"layer": 0}, {"layer": 4}) == ["layer 1", "layer 5"]
    assert names({"at_layer": 0, "layer": 1}, {"at_layer": 4, "layer": 2}) == ["layer 0", "layer 4"]
    assert names({"layer": 0}, {"layer": 0}) == ["m 1", "m 2"]
    assert names({"layer": 0}, {}) == ["m 1", "m 2"]
    assert names({"variant": "v", "layer": 1}, {"variant": "w", "layer": 1}) == ["v", "w"]
    assert names({"target": "v"}, {"target": "w"}, {"target": "v"}, methods="aab") == ["a  v", "a  w", "b  v"]


def test_what_colours_mean() -> None:
    share, norm = made.row_of_map(), made.attribution((0.5, 0.3), target=None)
    assert wording.is_share(share)
    assert not wording.is_share(norm)
    assert [wording.is_share(scored(1.0, off)) for off in (0.0005, 0.0025)] == [True, False]
    assert wording.meaning_of([share], False) == "share"
    assert wording.meaning_of([share], True) == "score"
    assert wording.meaning_of([share, norm], False) == "score"
    assert wording.meaning_of([share], False, "own") == "of the largest in each row"
    assert wording.meaning_of([share], False, "own", "map") == "of the largest in each map"
    assert wording.meaning_of([ONE, share], True) == "log prob of was − were"
    assert wording.meaning_of([ONE, made.attribution(target="x")], True) == "score"
    assert [wording.target_of(some) for some in ([ONE], [ONE, share], [share], [])] == ["was − were", "", "", ""]


def test_positions_that_are_read() -> None:
    options = Options(None, 3.0, None, None, True)
    assert matrices._query_of(made.a_map(1, 3), options) == 0
    assert matrices._query_of(made.a_map(1, 3, causal=True), options) == 2
    assert matrices._query_of(made.a_map(1, 3, tokens=("a", "<mask>", "b"), causal=True), options) == 1
    assert matrices._query_of(made.a_map(1, 3), Options(None, 3.0, None, None, True, query="w2")) == 2
    assert [options.title_or("usual"), Options(None, 3.0, "", None, True).title_or("usual")] == ["usual", ""]


def test_rows_with_signs_stand_first() -> None:
    share, signed = made.row_of_map(), ONE
    assert matrices._signed_first([share, signed, share]) == ([1, 0, 2], 1)
    assert matrices._signed_first([signed, signed]) == ([0, 1], None)
    assert matrices._signed_first([share, share]) == ([0, 1], None)
    assert matrices._signed_first([made.attribution((1.0, 2.0)), OTHER, made.attribution((-1.0, 2.0))]) == (
        [0, 1, 2],
        None,
    )
    titles = [
        matrices._title_of_rows(some)
        for some in ([share, signed], [signed, made.attribution(layer=2)], [share, scored(1.0, 2.0)])
    ]
    assert titles == ["log prob of was − were · at [MASK]", "AttCAT · log prob of was − were", "at [MASK]"]


def test_words_stay_on_one_line_if_they_can() -> None:
    with artists.equal_letters():
        pad, letter = 2 * 0.35 * 8 / 72, 4 / 72
        tokens, room = ("aa", "##bb", "cccc", "##dddd", "e"), 8 * letter + 2 * pad
        boxes = strips._boxes(tokens, room, 8.0)
        assert [(box.line, box.text) for box in boxes] == [(0, "aa"), (0, "bb"), (1, "cccc"), (1, "dddd"), (2, "e")]
        assert [box.left for box in boxes] == pytest.approx([0.0, 2 * letter + pad, 0.0, 4 * letter + pad, 0.0])
        narrow = strips._boxes(tokens, room - 0.001, 8.0)
        assert [box.line for box in narrow] == [0, 0, 1, 2, 2]
        assert strips._boxes(("abcdef",), 4 * letter + pad, 8.0)[0].text == "abc…"
        assert strips._boxes(("a",), 1.0, 8.0, [0.9])[0].wide == 0.9
        spaced = strips._boxes(("a", "b"), 1.0, 8.0)
        assert spaced[1].left == pytest.approx(letter + pad + 0.3 * 8 / 72)
        assert strips._word_widths([1.0, 2.0, 4.0], [False, True, False]) == [3.0, 2.0, 4.0]
        assert strips._font_size(("a",), 1.0) == (8.0, pytest.approx(1.6 * 8 / 72))
        assert strips._font_size(("a",), 1.0, 1.6 * 7 / 72 + 1e-9)[0] == 7.0
        assert strips._font_size(("a",), 1.0, 0.01) == (6.5, pytest.approx(1.6 * 6.5 / 72))


def test_words_fit_a_written_figure_up_to_its_width() -> None:
    with artists.equal_letters():
        one = made.generation()
        needed = 5 * 0.105 + 2 * 0.06 + written._label_width(one) + 0.8 + 3 * 0.06
        assert written._label_width(one) == pytest.approx((7 * 3.5 + 5 * 3.25) / 72 + 0.16)
        assert written._fits(one, needed + 1e-9)
        assert not written._fits(one, needed - 1e-9)
        assert [written._hatch(value, hue, strength) for value, hue, strength in HATCHES] == [
            None,
            "////",
            None,
            "xxxx",
        ]


HATCHES = [(0.3, "against", 0.2), (0.3, "against", 0.21), (0.3, "for", 1.0), (float("nan"), "for", 0.0)]


# --- files ------------------------------------------------------------------------------------------------------------


def test_paths_of_figures(tmp_path: Path) -> None:
    assert figure.check_path(tmp_path / "a.SVG") == tmp_path / "a.SVG"
    (tmp_path / "d.png").mkdir()
    assert said(lambda: figure.check_path(tmp_path / "d.png")) == f"{str(tmp_path / 'd.png')!r} is a folder."
    assert (
        said(lambda: figure.check_path(tmp_path / "no" / "a.png")) == f"no folder {str(tmp_path / 'no')!r} to save in."
    )
    assert said(lambda: figure.check_path(tmp_path / "a")) == "a figure is saved as .svg, .pdf, .png, not 'a'."


def test_figures_are_saved_where_they_are_asked_to(tmp_path: Path) -> None:
    page = ONE.plot(save=tmp_path / "a.svg", title="One\ntitle")
    text = (tmp_path / "a.svg").read_text()
    assert "<dc:title>One title</dc:title>" in text.replace("\n", "")
    assert "dc:date" not in text
    assert "Matplotlib" not in text.replace("Created with matplotlib", "")
    page.save(tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_text() == text
    user = Figure(figsize=(3, 2))
    place = user.add_subplot()
    assert ONE.plot(ax=place, save=tmp_path / "c.svg") is place
    assert "keys" in (tmp_path / "c.svg").read_text()
    assert figure.curves({"a": [1, 2]}, ax=place) is place
    figure.curves({"a": [1, 2]}, save=tmp_path / "d.pdf")
    figure.histogram_rows({"a": [1]}, edges=[0, 1], save=tmp_path / "e.png")
    made.generation().plot(save=tmp_path / "f.svg")
    assert [(tmp_path / name).read_bytes()[:4] for name in ("d.pdf", "e.png")] == [b"%PDF", b"\x89PNG"]
    assert "sneezed" in (tmp_path / "f.svg").read_text()


def test_a_picture_in_a_notebook_has_the_size_of_the_page() -> None:
    page = figure.Picture(figsize=(2.0, 1.0))
    png, size = page._repr_png_()
    assert size == {"width": 192, "height": 96}
    assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (320, 160)
    whole = figure.content(page, ".png")
    assert (int.from_bytes(whole[16:20]), int.from_bytes(whole[20:24])) == (600, 300)
    assert b"Software" not in whole


def test_letters_that_no_font_has_are_named() -> None:
    page = scored(
        1.0, 2.0, 3.0, 4.0, 5.0, 6.0, tokens=tuple("\U00013000\U00013001\U00013002\U00013003\U00013004\U00013005")
    ).plot()
    with pytest.warns(
        UserWarning, match=r"U\+13000\).*U\+13004\) \.\.\.\. Save it as \.svg, or name a font that has: font=\.\.\.$"
    ):
        figure.content(page, ".png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.content(page, ".svg")
    assert picture._character_names("ab") == "a (U+0061) b (U+0062)"
    assert picture._character_names("abcde").endswith("e (U+0065)")
    assert picture._character_names("abcdef").endswith("e (U+0065) ...")


def test_other_warnings_pass() -> None:
    def gathered() -> list[str]:
        with picture.missing_characters() as missing:
            warnings.warn("mine", RuntimeWarning, stacklevel=1)
            for code in (233, 233, 7):
                warnings.warn(f"Glyph {code} (x) missing from font", UserWarning, stacklevel=1)
        return missing

    with pytest.warns(RuntimeWarning, match="mine"):
        assert gathered() == ["é", "\x07"]


def test_settings_hold_inside_alone() -> None:
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"lines.linewidth": 7.0}):
        with picture.settings("DejaVu Serif", new_figure=True):
            assert matplotlib.rcParams["lines.linewidth"] == 1.5
            assert matplotlib.rcParams["font.family"] == ["DejaVu Serif", "DejaVu Sans"]
            assert matplotlib.rcParams["font.size"] == 8.0
        with picture.settings(["DejaVu Serif", "DejaVu Sans Mono"], new_figure=False):
            assert matplotlib.rcParams["lines.linewidth"] == 7.0
            assert matplotlib.rcParams["font.family"] == ["DejaVu Serif", "DejaVu Sans Mono", "DejaVu Sans"]
    assert dict(matplotlib.rcParams) == before


# --- curves -----------------------------------------------------------------------------------------------------------


def test_legends_have_as_many_columns_as_fit() -> None:
    assert show_curves._legend_columns(["a" * 10, "b"], 2 * 0.4 + 0.055 * 11 + 1e-9) == 2
    assert show_curves._legend_columns(["a" * 10, "b"], 2 * 0.4 + 0.055 * 11 - 1e-9) == 1
    assert show_curves._legend_columns(["a" * 10] * 9, 5.0) == 5
    assert show_curves._legend_columns(["a" * 30, "b", "b", "b"], 2.5) == 1


def test_only_one_legend_stands_below_several_axes() -> None:
    page = Figure(figsize=(6, 3), layout="constrained")
    for place in page.subplots(1, 2):
        show_curves.lines(
            place,
            {
                "a": [(1.0, Interval(1, 0, 2, 3, 0.5))],
            },
            x="x",
            y="y",
        )
    assert len(page.legends) == 1


@pytest.mark.parametrize(("heads", "high"), [(["a", ""], 0.03), (["", ""], 0.0), (["a", "b"], 0.03)])
def test_room_above_panels_is_left_where_one_of_them_has_a_head(heads: list[str], high: float) -> None:
    panels = [sheets.Panel(np.zeros((1, 1)), head) for head in heads]
    places = sheets.Places(sheets.Sheet(panels, ["c"], ["r"], "", True, None, ""), 4.0, 0.0, 0.0)  # type: ignore[arg-type]
    lines = max(map(len, places.heads)) * layout.AXES * layout.LINE / 72
    assert places.head - lines == pytest.approx(high)
