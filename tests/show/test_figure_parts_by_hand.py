"""Parts of figures on numbers written by hand: where the columns and bands of a flow stand, how legends break into lines."""

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

from mixlens.show.colors import LIGHT
from mixlens.show.figure import flow, legend, notes
from mixlens.show.figure.layout import GAP
from mixlens.show.figure.notes import Note
from mixlens.show.figure.options import Options
from mixlens.show.flow_groups import Group
from mixlens.show.flow_numbers import Bands, flow_of

# --- the columns of a flow ----------------------------------------------------------------------------------------------

LEFT = GAP + 7 * 3.5 / 72 + 0.08  # "layer 2": seven letters, each half as wide as the 7 points it is high


def drawing(shares: Any, *, width: float = 3.0, layers: int = 2, followed: Any = (0,), **known: Any) -> flow.Drawing:
    """A flow of these shares [level column], with no title."""
    numbers: Any = SimpleNamespace(
        flow=SimpleNamespace(shares=np.array(shares), rolled=[None] * layers, **known), title="“x”", scores=made.a_map()
    )
    return flow.Drawing(numbers, followed, Options(None, width, "", None, True))


def test_columns_share_what_is_left_of_the_room() -> None:
    with artists.equal_letters():
        one = drawing([[0.75, 0.25, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]])
        room = 3.0 - LEFT - GAP
        assert (one.layers, one.left, one.room) == (2, pytest.approx(LEFT), pytest.approx(room))
        # 0.55 of the room for 100 %: the widest bars below the answer take 0.75, 0.25 and 0.5 of it, and 0.05 inches each
        assert one.scale == pytest.approx(0.55 * room)
        needed = np.array([0.75, 0.25, 0.5]) * 0.55 * room + 0.05
        assert one._needed(one.scale) == pytest.approx(needed)
        widths = needed + (room - needed.sum()) / 3
        assert one.edges == pytest.approx([LEFT, *(LEFT + np.cumsum(widths))])
        assert one.edges[-1] == pytest.approx(3.0 - GAP)
        assert one.middles == pytest.approx([(one.edges[i] + one.edges[i + 1]) / 2 for i in range(3)])
        assert one.middle(1, 2) == pytest.approx(one.middles[2])
        assert one.middle(2, 0) == one.middle(2, 2) == pytest.approx(LEFT + room / 2)


def test_a_column_is_never_narrower_than_its_name() -> None:
    with artists.equal_letters():
        one = drawing([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        assert one._needed(0.05) == pytest.approx(
            [0.112, 0.112]
        )  # a bar of 0.05 and 0.05 beside it are less than a name
        assert one._needed(0.1) == pytest.approx([0.15, 0.112])


def test_bars_are_as_wide_as_all_find_room() -> None:
    with artists.equal_letters():
        one = drawing([[0.9, 0.9, 0.9], [0.0] * 3, [1.0, 0.0, 0.0]])
        steps = np.linspace(0.55, 0.1, 46) * one.room
        fitting = [scale for scale in steps if 3 * (0.9 * scale + 0.05) <= one.room]
        assert one.scale == pytest.approx(max(fitting))
        assert one.scale + 0.011 * one.room > max(fitting)
        exact = drawing([[1.0] * 2, [0.0] * 2, [1.0, 0.0]], width=LEFT + GAP + 1.0)
        assert exact.scale == pytest.approx(0.45)  # 2 * (0.45 + 0.05) is all of the room


def test_columns_that_find_no_room_keep_their_least_width() -> None:
    with artists.equal_letters():
        one = drawing([[0.0] * 30, [0.0] * 30, [0.0] * 30], width=1.5)
        assert one.room < 30 * 0.112
        assert one.scale == pytest.approx(0.1 * one.room)
        assert np.diff(one.edges) == pytest.approx([0.112] * 30)


@pytest.mark.parametrize(("layers", "apart"), [(7, 0.42), (8, 0.3)])
def test_levels_stand_one_above_the_other(layers: int, apart: float) -> None:
    with artists.equal_letters():
        one = drawing([[1.0]], layers=layers)
        assert one.top == pytest.approx(GAP + 0.3)
        assert [one.level(number) for number in (layers, layers - 1, 0)] == pytest.approx(
            [GAP + 0.3, GAP + 0.3 + apart, GAP + 0.3 + layers * apart]
        )


def test_bands_of_one_place_lie_side_by_side_in_the_order_of_their_other_ends() -> None:
    """The upper layer takes from both columns, and the lower crosses: no band covers another at either end."""
    bands = Bands(
        layer=np.array([0, 0, 0, 1, 1]),
        above=np.array([1, 0, 0, 0, 0]),
        below=np.array([0, 1, 0, 1, 0]),
        share=np.array([0.2, 0.3, 0.5, 0.2, 0.8]),
        parts=np.array([[0.2, 0.0], [0.0, 0.3], [0.5, 0.0], [0.2, 0.0], [0.5, 0.3]]),
    )
    with artists.equal_letters():
        one = drawing([[0.7, 0.3], [0.8, 0.2], [1.0, 0.0]], bands=bands, followed=(0,))
        scale, (first, second), last = one.scale, one.middles, one.middle(2, 0)
        drawn = one.bands
    assert [band.layer for band in drawn] == [0, 0, 0, 1, 1]
    assert [band.wide for band in drawn] == pytest.approx(
        [0.2 * scale, 0.3 * scale, 0.5 * scale, 0.2 * scale, 0.8 * scale]
    )
    assert [band.own for band in drawn] == pytest.approx([0.2 * scale, 0.0, 0.5 * scale, 0.2 * scale, 0.5 * scale])
    at_first = first - 0.7 * scale / 2  # the band that goes straight up, then the one to the right
    assert [band.start for band in drawn] == pytest.approx(
        [at_first + 0.5 * scale, second - 0.15 * scale, at_first, second - 0.1 * scale, first - 0.4 * scale]
    )
    into_first, into_last = first - 0.8 * scale / 2, last - scale / 2
    assert [band.end for band in drawn] == pytest.approx(
        [second - 0.1 * scale, into_first + 0.5 * scale, into_first, into_last + 0.8 * scale, into_last]
    )


def test_what_is_followed_is_the_largest_columns_of_the_text() -> None:
    groups = [Group(kind, "", "", (place,)) for place, kind in enumerate(("answer", "word", "word", "mark", "word"))]
    numbers: Any = SimpleNamespace(
        groups=groups, unit="word", flow=SimpleNamespace(shares=np.array([[0.9, 0.1, 0.3, 0.8, 0.2]]))
    )
    assert [flow._followed(numbers, top) for top in (None, 1, 2, 9)] == [[2], [2], [2, 4], [2, 4, 1]]


def test_names_of_the_legend_are_cut_with_their_quotes_closed() -> None:
    with artists.equal_letters():
        assert flow._short("“abc”") == "“abc”"
        fitting = int(1.0 * 72 / 3.25)  # letters of 6.5 points in an inch
        assert flow._short("“" + "a" * 40 + "”") == "“" + "a" * (fitting - 2) + "…”"
        assert flow._short("b" * 40) == "b" * (fitting - 1) + "…"
        assert flow._left(9) == pytest.approx(LEFT)
        assert flow._left(10) == pytest.approx(LEFT + 3.5 / 72)


# --- legends ------------------------------------------------------------------------------------------------------------


def test_what_a_colour_bar_means_breaks_between_words() -> None:
    letter = 3.5 / 72
    with artists.equal_letters():
        text = "aa bb cc dd ee"
        broken = {room: legend.meaning_lines(text, room * letter + 1e-9) for room in (14, 13, 8, 7, 5, 4, 1)}
    assert broken == {
        14: [text],
        13: ["aa bb cc dd", "ee"],
        8: ["aa bb cc", "dd ee"],
        7: ["aa bb", "cc dd", "ee"],
        5: ["aa bb", "cc dd", "ee"],
        4: ["aa", "bb", "cc", "dd", "ee"],
        1: ["aa", "bb", "cc", "dd", "ee"],
    }
    assert legend.meaning_lines("", 1.0) == [""]


def test_notes_stand_beside_each_other_and_long_ones_break() -> None:
    letter = 1.05 * 3.25 / 72  # of 6.5 points, and a little wider
    long = Note("aa bb cc dd", "#123456", 0.25, "//", True)
    with artists.equal_letters():
        assert (Note("ab").before, Note("ab").wide) == (0.0, pytest.approx(2 * letter))
        assert (long.before, long.wide) == (pytest.approx(0.3), pytest.approx(0.3 + 11 * letter))
        assert notes._broken(long, long.wide + 1e-9) == [long]
        two = [Note("aa bb cc", "#123456", 0.25, "//", True), Note("dd", indent=0.3)]
        assert notes._broken(long, long.wide - 1e-9) == two
        assert notes._broken(long, 0.3 + 5 * letter + 1e-9) == [
            Note("aa bb", "#123456", 0.25, "//", True),
            Note("cc dd", indent=0.3),
        ]
        four = [Note("aa", "#123456", 0.25, "//", True), *(Note(word, indent=0.3) for word in ("bb", "cc", "dd"))]
        assert notes._broken(long, 0.3 + 3 * letter) == four
        assert notes._broken(Note("abcdef"), 4 * letter + 1e-9) == [Note("abc…")]  # a word alone is cut
        pair = [Note("aa"), Note("bbb")]
        room = 5 * letter + 0.14
        assert notes.wrapped(pair, room + 1e-9) == [pair]
        assert notes.wrapped(pair, room - 1e-9) == [[pair[0]], [pair[1]]]
        three = [Note("a"), Note("b"), Note("c")]
        assert notes.wrapped(three, 3 * letter + 0.28 + 1e-9) == [three]
        assert notes.wrapped(three, 3 * letter + 0.28 - 1e-9) == [three[:2], three[2:]]
        assert notes.wrapped([Note("a"), Note("bb bb")], 3 * letter) == [[Note("a")], [Note("bb")], [Note("bb")]]
    assert notes.note_height([[], []]) == pytest.approx(0.33)


def test_notes_are_written_line_by_line() -> None:
    page = Figure(figsize=(4.0, 2.0))
    rows = [
        [Note("a", "#112233", 0.2), Note("bb", "#445566", 0.1, frame=True)],
        [Note("cc", "#778899", 0.3, "//"), Note("d")],
    ]
    with artists.equal_letters():
        notes.write_notes(page, rows, 0.5, 1.0)
    (axes,) = page.axes
    assert axes.get_gid() == "notes"
    assert not axes.axison
    assert axes.get_position().bounds == pytest.approx((0.125, 1 - 1.33 / 2, 3.5 / 4, 0.33 / 2))
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 3.5), (pytest.approx(0.33), 0))
    letter = 1.05 * 3.25 / 72
    second = 0.25 + letter + 0.14
    heights = [0.03 + 0.0675, 0.03 + 0.2025]
    assert [
        (text.get_text(), *text.get_position(), text.get_fontsize(), text.get_verticalalignment())
        for text in axes.texts
    ] == [
        ("a", pytest.approx(0.25), pytest.approx(heights[0]), 6.5, "center_baseline"),
        ("bb", pytest.approx(second + 0.15), pytest.approx(heights[0]), 6.5, "center_baseline"),
        ("cc", pytest.approx(0.35), pytest.approx(heights[1]), 6.5, "center_baseline"),
        ("d", pytest.approx(0.35 + 2 * letter + 0.14), pytest.approx(heights[1]), 6.5, "center_baseline"),
    ]
    boxes: list[Any] = list(axes.patches)
    places = [(box.get_x(), box.get_y(), box.get_width(), box.get_height()) for box in boxes]
    expected = [(0.0, heights[0], 0.2), (second, heights[0], 0.1), (0.0, heights[1], 0.3)]
    assert places == [pytest.approx((x, y - 0.04, wide, 0.08)) for x, y, wide in expected]
    assert [(to_hex(box.get_facecolor()), box.get_linewidth(), box.get_hatch()) for box in boxes] == [
        *(("#112233", 0.0, None), ("#445566", 0.8, None), ("#778899", 0.0, "//")),
    ]
    assert [to_hex(box.get_edgecolor(), keep_alpha=True) for box in boxes] == [
        *("#00000000", f"{LIGHT['ink'].lower()}ff", f"{LIGHT['edge'].lower()}ff"),
    ]


# --- the numbers of a flow ------------------------------------------------------------------------------------------------


def test_bands_carry_what_passes_and_say_where_it_came_from() -> None:
    """Two layers of two tokens, each a column, read at the second token; multiplied out by hand."""
    layers = np.array([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.2, 0.8]]])
    got = flow_of(layers, 1, [[0], [1]], [[0, 1]])
    assert got.shares == pytest.approx(np.array([[0.3, 0.7], [0.2, 0.8], [0.0, 1.0]]))
    assert got.origins[1] == pytest.approx(np.array([[0.1, 0.1], [0.2, 0.6]]))
    assert got.origins[2] == pytest.approx(np.array([[0.0, 0.0], [0.3, 0.7]]))
    bands = got.bands
    rows = list(
        zip(bands.layer.tolist(), bands.above.tolist(), bands.below.tolist(), bands.share.tolist(), strict=True)
    )
    assert rows == [
        *((0, 0, 0, pytest.approx(0.1)), (0, 0, 1, pytest.approx(0.1)), (0, 1, 0, pytest.approx(0.2))),
        *((0, 1, 1, pytest.approx(0.6)), (1, 1, 0, pytest.approx(0.2)), (1, 1, 1, pytest.approx(0.8))),
    ]
    assert bands.parts == pytest.approx(np.array([[0.1, 0], [0, 0.1], [0.2, 0], [0, 0.6], [0.1, 0.1], [0.2, 0.6]]))
    assert got.rolled[1] == pytest.approx(np.array([[0.5, 0.5], [0.3, 0.7]]))
    assert got.alone == pytest.approx(layers)
    assert got.rolled_words == pytest.approx(np.ones((2, 2, 1)))
    assert got.words == pytest.approx([1.0])
    assert got.input_bands == pytest.approx(np.array([[0.2], [0.8]]))
    assert got.undrawn == 0.0
