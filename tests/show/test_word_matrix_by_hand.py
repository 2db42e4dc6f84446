"""A matrix by words on numbers written by hand: cells, their places, brackets, the scale; and the bytes of numbers on a page."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import artists
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mixlens.base.errors import InputError
from mixlens.base.words import Word
from mixlens.show import colors, packing
from mixlens.show.colors import LIGHT
from mixlens.show.figure import brackets, layout, word_matrix, word_units
from mixlens.show.figure.brackets import Bracket
from mixlens.show.figure.layout import GAP
from mixlens.show.figure.notes import note_height, wrapped
from mixlens.show.figure.options import Options
from mixlens.show.figure.word_units import Unit, Units
from mixlens.types import Map

LETTER = 3.25 / 72  # inches of a letter of 6.5 points
WIDE = 84 / 25.4
LAYER = np.array([[0.5, 0.1, 0.2, 0.2], [0.2, 0.4, 0.1, 0.3], [0.0, 0.2, 0.6, 0.2], [0.1, 0.1, 0.4, 0.4]])


def unit(name: str, *tokens: int, mark: bool = False) -> Unit:
    return Unit(name, f"“{name}”", name, tokens, mark)


THREE = (unit("start", 0, mark=True), unit("ab", 1, 2), unit("c", 3))


def drawing(
    units: Any = THREE,
    layer: Any = LAYER,
    *,
    noun: str = "words",
    answer: int = 1,
    pairs: Any = (),
    pieces: Any = (),
    **given: Any,
) -> word_matrix.Drawing:
    info = {"query": given.pop("query", 3), "prediction": given.pop("prediction", [("x", 0.5)])}
    tokens = tuple(f"t{place}" for place in range(len(layer)))
    scores = Map(torch.tensor(layer)[None], tokens, given.pop("method", "alti"), info)
    options = Options(None, given.pop("width", WIDE), None, given.pop("vmax", None), True, **given)
    rows = Units(units, noun, answer, pairs, pieces)
    return word_matrix.Drawing(scores, rows, np.array(layer), "the input", "Title", options)


# --- numbers and places ---------------------------------------------------------------------------------------------------


def test_cells_are_sums_of_what_gave_and_means_of_what_took() -> None:
    one = drawing()
    assert one.values == pytest.approx(np.array([[0.5, 0.3, 0.2], [0.1, 0.65, 0.25], [0.1, 0.5, 0.4]]))
    assert one.marks.tolist() == [True, False, False]


def test_places_of_cells() -> None:
    with artists.equal_letters():
        one = drawing()
        left = GAP + 0.21 + 1.04 * 5 * LETTER
        assert one.left == pytest.approx(left)
        assert one.right == pytest.approx(GAP)
        assert one.cell == pytest.approx(0.24)
        assert one.row == pytest.approx(0.24)
        assert one.apart == pytest.approx(0.1)
        assert one.edges == pytest.approx([0.0, 0.1, 0.34, 0.58])
        top = GAP + (10 / 72 + GAP) + 0.15 + 1.04 * 5 * LETTER + 0.06
        assert one.top == pytest.approx(top)
        assert (one.down(1), one.bottom) == (pytest.approx(top + 0.24), pytest.approx(top + 0.72))
        both = drawing(pairs=[Bracket(1, 2, "first text")], pieces=[Bracket(1, 3)])
        assert both.right == pytest.approx(GAP + 0.19 + 0.07)
        assert both.top == pytest.approx(top + 0.19 + 0.07)
        assert both._span(Bracket(1, 3)) == pytest.approx((0.1 + 0.015, 0.58 - 0.015))
        assert both._rows_of(Bracket(1, 3)) == pytest.approx((both.down(1) + 0.015, both.down(3) - 0.015))


def test_cells_are_as_wide_as_their_page_allows() -> None:
    with artists.equal_letters():
        wide, narrow = drawing(width=2 * WIDE), drawing(width=0.9)
        assert wide.cell == pytest.approx(0.24 * 4)
        assert wide.row == pytest.approx(0.24)
        room = 0.9 - narrow.left - GAP
        assert narrow.cell == narrow.row == pytest.approx((room - 0.1) / 2)
        numbers = drawing(numbers=True)
        assert (numbers.cell, numbers.row, numbers.apart) == (
            pytest.approx(0.34),
            pytest.approx(0.34),
            pytest.approx(0.34),
        )
        large = drawing(numbers=True, width=2 * WIDE)
        assert (large.cell, large.row) == (pytest.approx(0.96), pytest.approx(0.34))
        tight = drawing(numbers=True, width=1.2)
        assert tight.cell == pytest.approx((1.2 - tight.left - GAP) / 3)
        marks = drawing([unit(str(place), place, mark=True) for place in range(4)])
        assert marks.cell == pytest.approx(0.24)


def test_the_scale_ends_at_the_largest_cell_off_the_diagonal_and_off_the_marks() -> None:
    assert drawing()._end() == pytest.approx(0.5)
    assert drawing([unit("a", 0, mark=True), unit("b", 1, mark=True)], np.eye(2))._end() is None
    assert drawing([unit("a", 0), unit("b", 1)], np.eye(2))._end() is None
    many = np.full((20, 20), 0.01)
    many[0, 1] = 0.9
    units = [unit(str(place), place) for place in range(20)]
    assert drawing(units, many)._end() == pytest.approx(0.01)  # one cell of 380 is far larger
    many[0, 1] = 0.02
    assert drawing(units, many)._end() == pytest.approx(0.02)  # not more than twice as large
    assert drawing(units, many).colours.end == pytest.approx(0.02)
    assert drawing(units, many, vmax=0.5).colours.end == 0.5
    assert drawing(units, -many)._end() == pytest.approx(0.02)
    assert [drawing(numbers=numbers).colours.text for numbers in (None, True)] == [False, True]
    assert (drawing().colours.percent, drawing(layer=2 * LAYER).colours.percent) == (True, False)


def test_what_is_said_of_a_matrix() -> None:
    assert drawing(answer=2).notes[0] == word_matrix.Note("the answer’s row", LIGHT["surface"], 0.2, frame=True)
    with artists.equal_letters():
        assert drawing(answer=1, query=2)._framed == "the row of “ab”, where the answer is read"
        assert drawing(answer=2, prediction=[])._framed == "the row of “c”"
        said = drawing(pieces=[Bracket(1, 3)]).notes
        assert said[1:] == [
            word_matrix.Note("special tokens, outside the scale", LIGHT["sunk"], 0.2, hatch="//////"),
            word_matrix.Note("brackets: pieces of one word"),
        ]
        assert drawing(numbers=True).notes[1].hatch == ""
        grouped = drawing(noun="sentences").notes
        assert grouped[2].text == "rows and columns are sentences: columns are sums over words, rows their averages"
        assert len(drawing(THREE[1:], answer=0).notes) == 1
        assert drawing()._legend == pytest.approx(0.36)
        assert drawing().unit == "percent of the row; every row adds up to 100\u202f%"
        short = drawing(width=1.5)
        assert short._legend == pytest.approx(0.36 + 0.12 * (len(short._unit_lines) - 1))
        assert len(short._unit_lines) > 1


def test_cells_names_and_brackets_are_drawn_where_they_stand() -> None:
    with artists.equal_letters():
        one = drawing(pairs=[Bracket(1, 2, "first text"), Bracket(2, 3, "second text")], pieces=[Bracket(1, 3)])
        page = one.draw()
        below = note_height(wrapped(one.notes, WIDE - 2 * GAP))
    axes: Axes = page.axes[0]
    assert page.get_size_inches().tolist() == pytest.approx([WIDE, one.bottom + 0.08 + 0.36 + below + GAP])
    names = {text.get_text(): text for text in axes.texts}
    assert names["took"].get_position() == pytest.approx((GAP, (one.top + one.bottom) / 2))
    assert names["gave: words of the input"].get_position() == pytest.approx((one.left, GAP + 10 / 72 + GAP + 0.1))
    rows = [text for text in axes.texts if text.get_horizontalalignment() == "right"]
    assert [text.get_position() for text in rows] == [
        pytest.approx((one.left - 0.05, one.down(place + 0.5))) for place in range(3)
    ]
    heads = [text for text in axes.texts if text.get_rotation() == 90 and text.get_horizontalalignment() == "center"]
    middles = [0.05, 0.22, 0.46]
    assert [text.get_position() for text in heads] == [pytest.approx((one.left + at, one.top - 0.05)) for at in middles]
    assert (
        [text.get_fontstyle() for text in rows]
        == [text.get_fontstyle() for text in heads]
        == ["italic", "normal", "normal"]
    )
    boxes: list[Any] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    mark, frame = boxes
    assert mark.get_bbox().bounds == pytest.approx((one.left, one.top, 0.1, 0.72))
    assert (mark.get_hatch(), to_hex(mark.get_facecolor())) == ("//////", LIGHT["sunk"].lower())
    assert frame.get_bbox().bounds == pytest.approx((one.left, one.down(1), 0.58, 0.24))
    assert (frame.get_fill(), frame.get_linewidth(), frame.get_zorder()) == (False, 0.8, 5)
    above = one.top - 0.06 - 1.04 * 5 * LETTER - 0.03
    beside = one.left + 0.58 + 0.07
    lying, upright = axes.lines[0::2], axes.lines[1::2]
    assert [line.get_ydata()[1] for line in lying] == pytest.approx([above, above - 0.07, above - 0.07])  # type: ignore[index]
    assert [line.get_xdata()[1] for line in upright] == pytest.approx([beside, beside + 0.07, beside + 0.07])  # type: ignore[index]
    spans = [
        (one.left + start + 0.015, one.left + stop - 0.015) for start, stop in ((0.1, 0.58), (0.1, 0.34), (0.34, 0.58))
    ]
    assert [(line.get_xdata()[0], line.get_xdata()[-1]) for line in lying] == [pytest.approx(span) for span in spans]  # type: ignore[index]


def test_cells_against_are_hatched_from_a_twentieth_of_the_end_on() -> None:
    layer = np.array([[0.0, -1.0, 0.3], [-0.05, 0.0, 0.5], [-0.9, -0.04, 1.0]])
    units = [unit("a", 0, mark=True), unit("b", 1), unit("c", 2)]
    with artists.equal_letters():
        one = drawing(units, layer, method="norm", vmax=1.0, answer=0)
        axes = Figure().add_subplot()
        one._hatch(axes)
        (box,) = list(axes.patches)
        assert box.get_bbox().bounds == pytest.approx((one.left + 0.1, one.top, one.cell, one.row))  # type: ignore[attr-defined]
        edge = np.array([[0.0, 0.0, 0.3], [0.0, 0.0, 0.5], [0.0, -0.05, 1.0]])
        one = drawing(units, edge, method="norm", vmax=1.0, answer=0)
        one._hatch(axes)
        assert axes.patches[1].get_bbox().bounds == pytest.approx((one.left + 0.1, one.down(2), one.cell, one.row))  # type: ignore[attr-defined]
        assert len(axes.patches) == 2


def test_one_group_is_no_matrix() -> None:
    whole = Units([unit("start", 0, mark=True), unit("1", 1)], "sentences", 0, (), ())
    with pytest.raises(InputError) as refusal:
        word_matrix._refuse_one_group(whole, 12, 1.5)
    assert str(refusal.value) == "12 words have no room side by side in 1.5 inches. Give a larger width=."
    word_matrix._refuse_one_group(Units(whole.units, "words", 0, (), ()), 12, 1.5)
    word_matrix._refuse_one_group(Units([*whole.units, unit("2", 2)], "parts", 0, (), ()), 12, 1.5)


# --- words and brackets -----------------------------------------------------------------------------------------------------


def words(*named: Any) -> list[Word]:
    return [Word(text, " ", (place,), source, source < 0) for place, (text, source) in enumerate(named)]


def test_words_have_room_up_to_the_width_of_the_page() -> None:
    plain = words(*[("abc", 0)] * 10)
    with artists.equal_letters():
        name = 3 * LETTER
        exact = 10 * 0.112 + name + 0.6
        assert word_matrix._most(plain, exact + 1e-9) == 10
        tight = 10 * 0.112 + 2 * GAP + 0.21 + 1.04 * name
        assert word_matrix._fit(plain, ["abc"], tight + 1e-9)
        assert not word_matrix._fit(plain, ["abc"], tight - 1e-9)
        assert word_matrix._most(plain, tight + 1e-9) == 10
        assert word_matrix._most(plain, tight - 1e-9) == max(4, int((tight - 0.4 * tight - 0.6) / 0.112) - 2)
        pair = words(("[CLS]", -1), ("abc", 0), ("[SEP]", -1), ("abc", 1), ("[MASK]", -1))
        needed = 3 * 0.112 + 2 * 0.1 + 0.19 + 2 * GAP + 0.21 + 1.04 * name  # a mask is as wide as a word
        assert word_matrix._fit(pair, ["abc"], needed + 1e-9)
        assert not word_matrix._fit(pair, ["abc"], needed - 1e-9)
    assert [word_matrix._longest_text(width) for width in (2.0, 4.25, 9.0)] == pytest.approx([0.8, 1.7, 1.7])


def test_brackets_of_texts_and_pieces() -> None:
    pair = words(("[CLS]", -1), ("a", 0), ("b", 0), ("[SEP]", -1), ("c", 1), ("[SEP]", -1))
    assert brackets.source_brackets(pair) == [Bracket(1, 3, "first text"), Bracket(4, 5, "second text")]
    assert brackets.source_brackets(pair[:4]) == []
    several = [Word("ab", "", (1, 2), 0, False), Word("c", "", (3,), 0, False), Word("def", "", (4, 5, 6), 0, False)]
    assert brackets.piece_brackets(several) == [Bracket(1, 3), Bracket(4, 7)]


def test_brackets_are_lines_with_arms_and_a_name() -> None:
    axes = Figure().add_subplot()
    with artists.equal_letters():
        brackets.across(axes, 1.0, 3.0, 5.0, "name", upward=True)
        brackets.across(axes, 1.0, 3.0, 5.0, "name", upward=False)
        brackets.across(axes, 1.0, 1.1, 5.0, "n" * 40, upward=False)
        brackets.across(axes, 1.0, 1.1, 5.0, "", upward=False)
        brackets.along(axes, 1.0, 3.0, 5.0, "name")
    lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]  # type: ignore[arg-type]
    assert lines[0] == ([1.0, 1.0, 3.0, 3.0], pytest.approx([4.965, 5.0, 5.0, 4.965]))
    assert lines[1] == ([1.0, 1.0, 3.0, 3.0], pytest.approx([5.035, 5.0, 5.0, 5.035]))
    assert lines[4] == (pytest.approx([4.965, 5.0, 5.0, 4.965]), [1.0, 1.0, 3.0, 3.0])
    assert {(to_hex(line.get_color()), line.get_linewidth()) for line in axes.lines} == {(LIGHT["edge"].lower(), 0.6)}
    up, down, cut, beside = axes.texts
    assert (up.get_position(), up.get_verticalalignment()) == (pytest.approx((2.0, 5.0175)), "top")
    assert (down.get_position(), down.get_verticalalignment()) == (pytest.approx((2.0, 4.9825)), "bottom")
    assert cut.get_text() == "n" * (int(0.2 / LETTER) - 1) + "…"
    assert (beside.get_position(), beside.get_rotation(), beside.get_horizontalalignment()) == (
        pytest.approx((5.03, 2.0)),
        270,
        "left",
    )


def test_pieces_are_units_of_their_own() -> None:
    tokens = ("[CLS]", "un", "##happy", "[MASK]")
    scores = Map(torch.ones(1, 4, 4), tokens, "alti", {}, (True, False, False, True))
    given = [
        Word("[CLS]", "", (0,), -1, True),
        Word("unhappy", "", (1, 2), 0, False),
        Word("[MASK]", " ", (3,), 0, True),
    ]
    made = word_units.pieces_as_units(scores, given, 2)
    assert (made.noun, made.answer, made.brackets, made.pieces) == ("tokens", 2, [], [Bracket(1, 3)])
    assert [(one.name, one.title, one.label, one.tokens, one.mark) for one in made.units] == [
        *(("[CLS]", "“[CLS]”", "[CLS]", (0,), True), ("un", "“un”", "un", (1,), False)),
        *(("##happy", "“##happy”", "##happy", (2,), False), ("[MASK]", "“[MASK]”", "[MASK]", (3,), False)),
    ]


def test_texts_are_cut_between_words() -> None:
    with artists.equal_letters():
        room = {
            count: layout.cut_between_words("one two, three", 6.5, count * LETTER + 1e-9)
            for count in (14, 13, 10, 9, 7, 4, 3)
        }
    assert room == {14: "one two, three", 13: "one two…", 10: "one two…", 9: "one…", 7: "one…", 4: "one…", 3: "on…"}


# --- colours and bytes ------------------------------------------------------------------------------------------------------


def test_a_token_over_another_is_a_part_of_the_way() -> None:
    edge, white = colors.rgb_of(LIGHT["edge"]), (255, 255, 255)
    assert edge == (0x86, 0x8B, 0x95)
    third = [round(w + (e - w) * 0.34) for e, w in zip(edge, white, strict=True)]
    assert colors.mixed("edge", "surface", 0.34) == "#{:02x}{:02x}{:02x}".format(*third) == "#d6d8db"
    assert colors.mixed("edge", "surface", 0.0) == "#ffffff"
    assert colors.mixed("edge", "surface", 1.0) == LIGHT["edge"].lower()
    assert colors.mixed("surface", "ink", 0.0) == LIGHT["ink"].lower()


def test_bytes_of_one_significance_stand_together() -> None:
    rows = np.array([[1.0, 2.0], [0.5, 4.0]])
    exact = zlib.decompress(base64.b64decode(packing.encode(rows, packing.EXACT)["data"]))
    whole = rows.astype("<f4").tobytes()
    assert exact == b"".join(whole[place::4] for place in range(4))
    block = packing.encode(np.array([[0.5, 1.0], [0.0, 0.0]]), packing.Precision("bits16"))
    held = zlib.decompress(base64.b64decode(block["data"]))
    scale, steps = np.array([1.0, 0.0], "<f4").tobytes(), np.array([32768, 65535, 0, 0], "<u2").tobytes()
    assert held[:8] == b"".join(scale[place::4] for place in range(4))
    assert held[8:16] == steps[0::2] + steps[1::2]
    rest = np.array([1.5 - (32768 + 65535) / 65535, 0.0]).astype("<f4").tobytes()  # what rounding took from each row
    assert held[16:] == b"".join(rest[place::4] for place in range(4))
    assert {key: block[key] for key in ("coding", "rows", "columns", "signed")} == {
        **{"coding": "bits16", "rows": 2, "columns": 2, "signed": False},
    }


def test_how_many_columns_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [Word("ab", " ", (place,), 0, False) for place in range(10)]
    monkeypatch.setattr(word_matrix, "_fit", lambda *given: False)
    with artists.equal_letters():
        room = 2 * LETTER + word_matrix.AROUND
        assert word_matrix._most(words, room + 10.5 * word_matrix.LEAST) == 10  # as many as there are
        assert word_matrix._most(words, room + 9.5 * word_matrix.LEAST) < 10
        monkeypatch.setattr(word_matrix, "_fit", lambda *given: True)
        assert word_matrix._most(words, room + 9.5 * word_matrix.LEAST) == 10
