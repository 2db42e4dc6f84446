"""What a figure of a flow draws of numbers written by hand: each band, each bar, each name at its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import artists
import made_values as made
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from mixlens.base.words import Word
from mixlens.show.colors import LIGHT
from mixlens.show.figure import flow
from mixlens.show.figure.flow import REST, Band
from mixlens.show.figure.layout import GAP
from mixlens.show.figure.options import Options
from mixlens.show.flow_groups import Group

SHARES = [[0.5, 0.3, 0.2], [0.1, 0.4, 0.5], [0.0, 0.0, 1.0]]
WORDS = [Word("ab", "", (0,), 0, False), Word("cd", " ", (1,), 1, False), Word("[SEP]", "", (2,), -1, True)]
GROUPS = [
    Group("word", "ab", "“ab”", (0,)),
    Group("word", "cd", "“cd”", (1,)),
    Group("answer", "end", "the end mark", (2,)),
]
ORIGINS = np.zeros((3, 3, 3))
ORIGINS[0] = np.diag(SHARES[0])
ORIGINS[1] = [
    [0.1, 0.0, 0.0],
    [0.2, 0.2, 0.0],
    [0.3, 0.1, 0.1],
]  # of the first: more than half, just half, more than half
ORIGINS[2, 2] = [0.5, 0.3, 0.2]


def drawing(*, followed: Any = (0,), unit: str = "word", groups: Any = GROUPS, **given: Any) -> flow.Drawing:
    values = SimpleNamespace(shares=np.array(SHARES), rolled=[None, None], origins=ORIGINS, undrawn=0.0)
    scores = made.a_map(2, 3, query=given.pop("query", 2), tokens=("ab", "cd", "[SEP]"))
    numbers: Any = SimpleNamespace(
        flow=values, title="the end mark", scores=scores, groups=groups, words=WORDS, unit=unit
    )
    numbers.prediction, numbers.query, numbers.column, numbers.read = (
        given.pop("prediction", [("yes", 0.75)]),
        2,
        2,
        (2,),
    )
    numbers.text_of = lambda group: "first words of it"
    return flow.Drawing(numbers, followed, Options(None, 3.0, "", None, True))


def test_a_band_rises_from_its_lower_to_its_upper_end() -> None:
    with artists.equal_letters():
        one, axes = drawing(), Figure().add_subplot()
        one._draw_band(axes, Band(1, 0.5, 0.9, 0.2, 0.1), 0.2, "#112233")
        low, up = one.level(1) - 0.0225, one.level(2) + 0.0225
    (band,) = list(axes.patches)
    half = (low + up) / 2
    assert isinstance(band, PathPatch)
    assert band.get_path().vertices == pytest.approx(
        np.array([
            *[(0.5, low), (0.5, half), (0.9, half), (0.9, up)],
            *[(1.1, up), (1.1, half), (0.7, half), (0.7, low), (0.5, low)],
        ])
    )  # fmt: skip
    codes: Any = band.get_path().codes
    assert codes.tolist() == [1, 4, 4, 4, 2, 4, 4, 4, 79]
    assert (to_hex(band.get_facecolor()), band.get_linewidth()) == ("#112233", 0)


def test_wide_bands_are_drawn_last_and_followed_parts_above_all() -> None:
    with artists.equal_letters():
        one, axes = drawing(), Figure().add_subplot()
        least = 0.0004 * one.scale
        bands = [
            Band(0, 0.0, 0.0, 0.3, 0.2),
            Band(0, 1.0, 1.0, 0.1, 0.5),
            Band(0, 2.0, 2.0, 0.2, least),
            Band(0, 3.0, 3.0, 0.05, 1.01 * least),
        ]
        object.__setattr__(one, "__dict__", {**one.__dict__, "bands": bands})
        one._draw_bands(axes)
    drawn: list[Any] = list(axes.patches)
    found = [
        (float(band.get_path().vertices[0][0]), float(np.ptp(band.get_path().vertices[[0, 7], 0]))) for band in drawn
    ]
    assert found == [
        *[pytest.approx(one) for one in ((3.0, 0.05), (1.0, 0.1), (2.0, 0.2), (0.0, 0.3))],
        *[pytest.approx(one) for one in ((3.0, 1.01 * least), (0.0, 0.2), (1.0, 0.1))],  # no wider than the band itself
    ]
    assert [to_hex(band.get_facecolor()) for band in drawn] == [REST] * 4 + [LIGHT["share"].lower()] * 3


def test_bars_and_names_of_the_levels() -> None:
    with artists.equal_letters():
        one, axes = drawing(), Figure().add_subplot()
        one._draw_levels(axes)
        places = [(level, column) for level in (0, 1) for column in range(3)] + [(2, 2)]
        wide = [max(0.01, SHARES[level][column] * one.scale) for level, column in places]
        corners = [one.middle(*place) - size / 2 for place, size in zip(places, wide, strict=True)]
        heights = [one.level(level) - 0.0225 for level, _ in places]
        levels = [one.level(level) for level in range(3)]
    bars: list[Any] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    expected = [(x, y, size, 0.045) for x, y, size in zip(corners, heights, wide, strict=True)]
    assert [bar.get_bbox().bounds for bar in bars] == [pytest.approx(bounds) for bounds in expected]
    violet = [to_hex(bar.get_facecolor()) == LIGHT["share"].lower() for bar in bars]
    assert violet == [True, False, False, True, False, True, False]
    assert [(text.get_text(), *text.get_position()) for text in axes.texts] == [
        (name, GAP, pytest.approx(level)) for name, level in zip(("input", "layer 1", "layer 2"), levels, strict=True)
    ]


def test_names_stand_below_their_columns_and_texts_have_brackets() -> None:
    with artists.equal_letters():
        one, axes = drawing(followed=(1,)), Figure().add_subplot()
        one._write_labels(axes, 3.0)
        names = [(text.get_position(), text.get_text()) for text in axes.texts[:3]]
        assert names == [
            (pytest.approx((one.middles[place], one.level(0) + 0.06)), one.labels[place]) for place in range(3)
        ]
        spans = [(one.edges[place] + 0.03, one.edges[place + 1] - 0.03) for place in (0, 1)]
        lines: list[Any] = list(axes.lines)
        assert [(line.get_xdata()[0], line.get_xdata()[-1]) for line in lines] == [
            pytest.approx(span) for span in spans
        ]
        assert [line.get_ydata()[1] for line in lines] == pytest.approx([2.8, 2.8])
    assert [text.get_rotation() for text in axes.texts[:3]] == [270.0] * 3
    plain, bold, italic = axes.texts[:3]
    assert (plain.get_fontweight(), plain.get_fontstyle()) == ("normal", "normal")
    assert (bold.get_fontweight(), to_hex(bold.get_color())) == ("bold", LIGHT["share-ink"].lower())
    assert (italic.get_fontstyle(), to_hex(italic.get_color())) == ("italic", LIGHT["soft"].lower())
    assert [text.get_text() for text in axes.texts[3:]] == ["first text", "second text"]


def test_labels_have_the_share_and_groups_their_first_words() -> None:
    with artists.equal_letters():
        one = drawing()
        shares = ["50\u202f%", "30\u202f%", "20\u202f%"]
        assert one.labels == [f"{name}  {share}" for name, share in zip(("ab", "cd", "end"), shares, strict=True)]
        assert one.size == 7.0
        plain = len("ab  50\u202f%") * 3.5 / 72
        assert [one._label_height(place) for place in (0, 1)] == pytest.approx([1.12 * plain, 1.04 * plain])
        long = [Group("word", "x" * 60, "", (0,)), *GROUPS[1:]]
        taken = len("  50\u202f%") * 3.5 / 72
        fitting = int((1.0 - taken) / (3.5 / 72))
        assert drawing(groups=long).labels[0] == "x" * (fitting - 1) + "…  50\u202f%"
        sentence = [Group("sentence", "1", "sentence 1", (0,)), *GROUPS[1:]]
        grouped = drawing(groups=sentence, unit="sentence")
        assert grouped.labels[0] == "1  first words of it  50\u202f%"
        assert one._grouped == []
        assert [note.text for note in grouped._grouped] == [
            "columns are sentences: 1 words have no room side by side; a column is the sum of its words"
        ]


def test_the_legend_and_the_answer() -> None:
    with artists.equal_letters():
        one = drawing(followed=(0, 1))
        notes = [note.text.replace("\u202f", " ") for note in one.notes]
        assert notes[:3] == [
            "from “ab” and “cd”: 80 % of the answer",
            "everything else",
            "this wide: 10 % of the answer",
        ]
        assert [note.swatch for note in one.notes[:4]] == pytest.approx([0.25, 0.25, 0.1 * one.scale, 0.0])
        assert [note.colour for note in one.notes[:3]] == [LIGHT["share"], REST, LIGHT["soft"]]
        assert drawing(query=0).notes[2].text.endswith("of the flow")
        axes = Figure().add_subplot()
        one._write_answer(axes)
        x = one.left + one.room / 2
        assert [(text.get_text(), text.get_position()) for text in axes.texts] == [
            ("the answer: yes", pytest.approx((x, one.top - 0.19))),
            ("read at the end mark", pytest.approx((x, one.top - 0.07))),
        ]
        axes = Figure().add_subplot()
        drawing(prediction=[])._write_answer(axes)
        assert [text.get_text() for text in axes.texts] == ["the end mark"]
