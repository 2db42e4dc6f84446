"""Terminals, notebooks and pages at their limits: the last value that fits, files that are kept, streams without letters."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_values as made
import numpy as np
import pytest
import torch
import why_example

from mixlens.base.errors import InputError, ResultError
from mixlens.show import (
    encoding,
    flow_numbers,
    flow_page,
    generation_page,
    generation_text,
    layout,
    map_views,
    notebook,
    packing,
    page_entry,
    page_file,
    page_template,
    results_page,
    row_views,
    run_page,
    text,
    why_notebook,
    why_page,
    why_text,
)
from mixlens.show.packing import Precision
from mixlens.types import Attribution, Map

# --- streams ----------------------------------------------------------------------------------------------------------


class Stream(io.StringIO):
    """A stream with an encoding; it can be told to write errors another way."""

    def __init__(self, name: str | None, errors: str = "strict"):
        super().__init__()
        self._encoding, self._errors, self.asked = name, errors, []

    encoding = property(lambda self: self._encoding)  # type: ignore[assignment]
    errors = property(lambda self: self._errors)  # type: ignore[assignment]

    def reconfigure(self, **given: Any) -> None:
        self.asked.append(given)


def test_streams_without_letters_write_plain_ones() -> None:
    full, poor = Stream("utf-8"), Stream("ascii")
    assert encoding.readable(full) is full
    plain = encoding.readable(poor)
    assert isinstance(plain, encoding.Plain)
    assert plain.write("█ a…") == 4
    assert poor.getvalue() == "# a~"
    assert plain.getvalue() == "# a~"
    assert encoding.readable(Stream("ascii", encoding.ERRORS)) is not None
    assert not isinstance(encoding.readable(Stream("ascii", encoding.ERRORS)), encoding.Plain)
    unnamed = Stream(None)
    encoding.Plain(unnamed).write("é…")
    assert unnamed.getvalue() == "\\u00e9~"


def test_a_programs_own_output_is_made_readable() -> None:
    full, poor, ours = Stream("utf-8"), Stream("latin-1"), Stream("ascii", encoding.ERRORS)
    for out in (full, poor, ours, SimpleNamespace(encoding="ascii", errors="strict")):
        encoding.make_readable(out)
    assert (full.asked, poor.asked, ours.asked) == ([], [{"errors": "mixlens"}], [])
    assert encoding.can_show(ours)
    assert not encoding.can_show(ours, replaced=False)


def test_the_console_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Stream("ascii")
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert text.console().no_color is False
    assert text.console(color=False).no_color is True
    assert isinstance(text.console().file, encoding.Plain)
    for show in (
        lambda: text.show(made.attribution((1.0, 2.0)), color=False, top=1),
        lambda: generation_text.show(made.generation(), color=False, by="sentence"),
        lambda: why_text.show_why(made.answer(), color=False),
    ):
        before = len(out.getvalue())
        show()
        assert len(out.getvalue()) > before
    told = out.getvalue()
    assert "1  The  2  ####" in told
    assert " s1 change" in told
    assert "Yes, for these three words" in told
    assert "█" not in told
    assert "note" not in told
    monkeypatch.setenv("NO_COLOR", "1")
    assert text.console().no_color is True


def test_numbers_have_four_digits() -> None:
    shown = text.rendered(text.view(made.attribution((0.123456, 2.0))))
    assert " 0  [CLS]  0.1235  █" in shown
    assert layout.columns_of("a") == 1


# --- terminals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "label"), [(30, 9), (16, 5), (15, 4), (13, 4), (7, 4)])
def test_labels_of_a_matrix_take_a_third_of_the_terminal(width: int, label: int) -> None:
    lines = list(map_views.matrix(("longest token", "b"), [[0.5, 0.5], [0.25, 0.75]]).lay(width, 0))  # type: ignore[attr-defined]
    assert len(lines[0].plain) - len(lines[0].plain.lstrip()) >= label
    assert lines[1].plain[:label] == "longest token"[: label - 1] + "…"


def test_a_map_is_a_matrix_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST", 3)
    assert "rows: position" in text.rendered(text.map_view(made.a_map(1, 3)))
    assert "4 tokens, too many" in text.rendered(text.map_view(made.a_map(1, 4)))


def test_the_largest_scores_are_twenty() -> None:
    scores = [[float(i * 10 + j) for j in range(6)] for i in range(6)]
    lines = list(map_views.largest_scores("abcdef", scores).lay(60, 0))  # type: ignore[attr-defined]
    assert len(lines) == 20
    assert lines[0].plain == " 54           5 f                 ←    4 e"
    narrow = list(map_views.largest_scores(["abcdefgh"] * 6, scores).lay(34, 0))  # type: ignore[attr-defined]
    assert narrow[0].plain == " 54           5 abc… ←    4 abc…"


# --- notebooks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "layers"), [(18, 2), (17, 1), (9, 1), (8, 0)])
def test_tables_are_written_out_up_to_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, layers: int) -> None:
    monkeypatch.setattr(notebook, "PLAIN_CELLS", limit)
    assert notebook.without_script(made.a_map(2, 3)).count("<table") == layers


def test_tokens_are_named_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "PLAIN_CELLS", 1)
    monkeypatch.setattr(notebook, "MOST_NAMED", 3)
    assert "2 layers of 3 x 3 tokens: w0 w1 w2<" in notebook.without_script(made.a_map(2, 3))
    assert "2 layers of 4 x 4 tokens: w0 w1 w2 …<" in notebook.without_script(made.a_map(2, 4))


@pytest.mark.parametrize(("limit", "columns"), [(15, 5), (14, 2)])
def test_written_words_are_columns_up_to_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, columns: int) -> None:
    monkeypatch.setattr(generation_page, "CELLS", limit)
    table = generation_page.notebook_html(made.generation())
    assert table.count("<th") == columns + 1 + 3
    assert (">sentence 1</th>" in table) == (columns == 2)


def test_a_table_of_nothing() -> None:
    whole = made.generation(effects=False)
    words = tuple(replace(word, segment="template") if word.segment == "text" else word for word in whole.text.words)
    bare = replace(whole, text=replace(whole.text, words=words, groups=()))
    assert generation_page.notebook_html(bare).count("<th") == 1 + 3
    zeros = replace(whole, scores=torch.zeros_like(whole.scores))
    assert generation_page.notebook_html(zeros).count(">·</td>") == 15


def test_marks_of_outputs_and_room() -> None:
    seen: list[Any] = []
    script, mark = notebook.output_script(("tokens.css",), ("dom.js",), "go")
    assert script.endswith(
        f'startOutputs("{mark}", {notebook.json.dumps(page_template.asset("tokens.css"))}, go);\n}})();\n'
    )
    assert (len(mark), mark != notebook.output_script(("base.css",), ("dom.js",), "go")[1]) == (12, True)
    real = notebook.fit
    try:
        notebook.fit = lambda sheets, room: seen.append((sheets[0].shape, room)) or real(sheets, room)  # type: ignore[assignment]
        notebook.html(made.a_map(2, 3))
        notebook.html(made.attribution())
    finally:
        notebook.fit = real
    assert seen == [((6, 3), 1_000_000), ((1, 10), 1_000_000)]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_bands_are_drawn_from_their_limit_on() -> None:
    drawn = flow_numbers.DRAWN
    flow = flow_numbers.flow_of(np.array([[[drawn, 1 - drawn], [0.5, 0.5]]]), 0, [[0], [1]], [[0], [1]])
    assert flow.bands.share.tolist() == [drawn, 1 - drawn]
    assert flow.undrawn == 0.0
    less = np.nextafter(drawn, 0)
    flow = flow_numbers.flow_of(np.array([[[less, 1 - less], [0.5, 0.5]]]), 0, [[0], [1]], [[0], [1]])
    assert flow.bands.below.tolist() == [1]
    assert flow.undrawn == less


@pytest.mark.parametrize(("factor", "fits"), [(0.9995, True), (1.0005, True), (0.9985, False), (1.0015, False)])
def test_rows_are_shares_if_they_miss_one_by_little(factor: float, fits: bool) -> None:
    scores = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64) * factor
    one = Map(scores, ("a", "b"), "alti", {})
    if fits:
        layers, facts = flow_numbers.layers_of(one, "globenc")
        assert layers.tolist() == [[[1.0, 0.0], [0.5, 0.5]]]
        assert facts["convention"] == "globenc"
    else:
        with pytest.raises(InputError, match="whose rows do not add up to 1"):
            flow_numbers.layers_of(one, "globenc")


def test_precisions_are_tried_from_fine_to_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    sheets = [np.ones((10, 30))]
    monkeypatch.setattr(packing, "_keep_for", lambda sheets, room: 41)
    tried = list(packing._candidates(sheets, 5))
    assert [one.kind for one in tried[:4]] == ["float32", "bits16", "bits8", "top"]
    keeps = [one.keep for one in tried[3:]]
    assert keeps[:4] == [41, 38, 36, 34]
    assert keeps[-6:] == [6, 5, 4, 3, 2, 1]
    monkeypatch.setattr(packing, "_keep_for", lambda sheets, room: 1)
    assert [one.keep for one in packing._candidates(sheets, 5)] == [0, 0, 0, 1]


def test_what_surely_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[Any] = []
    monkeypatch.setattr(packing, "_estimated_size", lambda sheets, precision: sizes.append(precision.kind) or 1000.0)
    small, large = [np.ones((100, 200))], [np.ones((100, 200)), np.ones((1, 1))]
    assert packing._may_fit(small, "float32", 0)
    assert not sizes
    assert packing._may_fit(large, "bits8", 953)
    assert not packing._may_fit(large, "bits8", 952)
    assert not packing._may_fit(large, "bits16", 6000)
    assert packing._may_fit(large, "bits16", 6001)
    assert not packing._may_fit(large, "float32", 40_001)
    assert packing._may_fit(large, "float32", 40_002)
    assert sizes == ["bits8", "bits8", "bits16", "float32"]


def test_how_many_numbers_of_a_row_fill_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(
        packing, "_estimated_size", lambda sheets, precision: tried.append(precision.keep) or 100.0 * precision.keep
    )
    assert packing._keep_for([np.ones((2, 80)), np.ones((2, 64))], 2500) == 25
    assert tried == [10, 25, 25]
    assert packing._keep_for([np.ones((2, 80))], 10**9) == 40
    assert packing._keep_for([np.ones((2, 80))], 10) == 1
    assert packing._keep_for([np.ones((2, 3))], 250) == 1
    monkeypatch.setattr(packing, "_estimated_size", lambda sheets, precision: 0.0)
    assert packing._keep_for([np.ones((2, 80))], 3) == 40


def test_a_sample_of_rows_tells_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        packing, "encode", lambda rows, precision: seen.append(rows[:, 0].tolist()) or {"data": "x" * len(rows)}
    )
    sheets = [np.arange(40.0)[:, None], np.arange(16.0)[:, None]]
    assert packing._estimated_size(sheets, Precision("bits8")) == 16 * (3 + 1)
    assert seen == [[0.0, 16.0, 32.0], [0.0]]


def test_blocks_fill_the_room_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "encode", lambda rows, precision: {"data": "x" * 10})
    sheets = [np.ones((1, 1))] * 2
    assert packing._blocks_within(sheets, Precision("bits8"), 20) == [{"data": "x" * 10}] * 2
    assert packing._blocks_within(sheets, Precision("bits8"), 19) is None


def test_many_bytes_are_deflated_less(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []
    monkeypatch.setattr(packing.zlib, "compress", lambda data, level: levels.append(level) or b"x")
    for size in (3_999_999, 4_000_000):
        assert packing._deflated(bytes(size)) == "eA=="
    assert levels == [9, 6]


def test_what_a_page_takes_is_left_out_of_the_room_of_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    real = page_entry.fit
    monkeypatch.setattr(page_entry, "fit", lambda sheets, room: rooms.append(room) or real(sheets, 10**6))
    one = made.a_map(2, 3)
    facts = page_entry.entry([one], room=0)
    for method in facts["methods"]:
        method["sheets"] = {}
    size = len(
        page_template.safe_json({key: facts[key] for key in facts if key not in ("holds", "precision")}).encode()
    )
    page_entry.entry([one], room=50_000)
    assert rooms == [0, 50_000 - size - 4 * 200]


def test_half_precision_becomes_single() -> None:
    kinds = {
        dtype: page_entry.numpy_of(Attribution(torch.ones(1, dtype=dtype), ("a",), "x", {})).dtype.name
        for dtype in HALVES
    }
    assert list(kinds.values()) == ["float32", "float32", "float32", "float64"]


HALVES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def test_maps_that_cannot_be_rolled_out_are_kept_by_layer() -> None:
    zeros = Map(torch.tensor([[[0.0, 0.0], [1.0, 1.0]]]), ("a", "b"), "x", {})
    assert list(page_entry.sheets_of(zeros)) == ["layer"]
    rolled = Map(torch.ones(1, 2, 2), ("a", "b"), "x", {"rollout": {"convention": "alti"}})
    assert list(page_entry.sheets_of(rolled)) == ["rollout"]
    whole = Map(torch.ones(1, 2, 2), ("a", "b"), "x", {"convention": "input"})
    assert list(page_entry.sheets_of(whole)) == ["rollout"]
    assert page_entry.sheets_of(made.attribution()) == {}
    assert page_entry.sheets_of(made.a_map(2, 3))["rollout"].shape == (6, 3)


# --- files of pages ---------------------------------------------------------------------------------------------------


def refused(call: Any) -> str:
    with pytest.raises((ResultError, InputError)) as refusal:
        call()
    return str(refusal.value)


def test_where_a_page_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    mine, empty, report, far = (tmp_path / f"{name}.html" for name in ("mine", "empty", "report", "far"))
    mine.write_text("mine")
    empty.write_text("")
    report.write_text("x" * (2000 - len(page_template.MARK)) + page_template.MARK)
    far.write_text("x" * (2001 - len(page_template.MARK)) + page_template.MARK)
    for place in (empty, report, tmp_path / "new.HTM", tmp_path / "new.html"):
        page_file.may_write(place, force=False)
    page_file.may_write(mine, force=True)
    kept = "exists and is not a mixlens report. Choose another name, or say --force (force=True)."
    for place in (mine, far):
        assert refused(lambda place=place: page_file.may_write(place, force=False)) == f"{str(place)!r} {kept}"
    assert (
        refused(lambda: page_file.may_write(tmp_path / "a.txt", force=True))
        == "a report is an .html file, not 'a.txt'."
    )
    nowhere = tmp_path / "no" / "a.html"
    assert (
        refused(lambda: page_file.may_write(nowhere, force=True))
        == f"no folder {str(nowhere.parent)!r} to write the report in."
    )
    folder = tmp_path / "folder.html"
    assert (
        refused(lambda: page_file.may_write(folder, force=True))
        == f"{str(folder)!r} is a folder. Give the name of a file."
    )
    assert refused(lambda: page_file.write("x", nowhere)).startswith(
        f"the report could not be written to {str(nowhere)!r}: No such file"
    )
    page_file.write("é", empty)
    assert empty.read_bytes() == "é".encode()


@pytest.mark.parametrize("megabytes", [0.19, 1000.1, float("nan")])
def test_rooms_that_no_page_has(megabytes: float) -> None:
    line = f"megabytes is the most a text (or a run) may take, 0.2 to 1000, not {megabytes}."
    assert refused(lambda: page_file.room_of(megabytes)) == line
    assert [page_file.room_of(size) for size in (0.2, 1000, 2.5)] == [200_000, 1_000_000_000, 2_500_000]


WRITERS: dict[str, Any] = {
    "written": lambda place, **force: generation_page.write_generation(made.generation(), place, **force),
    "why": lambda place, **force: why_page.write_why(SimpleNamespace(to_dict=why_example.example), place, **force),
    "flow": lambda place, **force: flow_page.write_flow(made.a_map(2, 3), place, **force),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_pages_are_written_but_not_over_other_files(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "p.html"
    place.write_text("mine")
    with pytest.raises(ResultError, match="exists and is not a mixlens report"):
        WRITERS[kind](str(place))
    assert place.read_text() == "mine"
    assert WRITERS[kind](str(place), force=True) == place
    assert page_template.MARK in place.read_text()[:2000]
    assert WRITERS[kind](place) == place


def test_flow_pages_take_what_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(flow_page, "flow_page", lambda scores, **more: seen.append(more) or "page")
    flow_page.write_flow(made.a_map(2, 3), tmp_path / "a.html")
    flow_page.write_flow(
        made.a_map(2, 3), tmp_path / "b.html", heads=made.heads(), query=1, rollout="abnar", megabytes=0.5
    )
    assert seen[0] == {"heads": None, "query": None, "rollout": None, "megabytes": 2.0}
    assert (seen[1]["query"], seen[1]["rollout"], seen[1]["megabytes"], seen[1]["heads"] is None) == (
        1,
        "abnar",
        0.5,
        False,
    )


def test_results_of_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trace:
        tokens, query = ("a", "b", "c"), 2

        def prediction(self) -> Any:
            return [("yes", 0.5)]

    seen: list[Any] = []

    def mix(trace: Any, method: str, **more: Any) -> Any:
        seen.append((method, more))
        return made.a_map(1, 3) if method != "attention" else "heads"

    monkeypatch.setattr(flow_page, "mix", mix)
    monkeypatch.setattr(flow_page, "Trace", Trace)
    model: Any = SimpleNamespace(trace=lambda text: seen.append(text) or Trace())
    scores, heads = flow_page.flow_results(model, "text")
    assert (scores.info["query"], scores.info["prediction"], heads) == (2, [("yes", 0.5)], "heads")
    scores, _ = flow_page.flow_results(model, Trace(), method="globenc", query="b")
    assert (scores.info["query"], scores.info["prediction"]) == (1, [])
    assert seen == [
        "text",
        ("alti", {}),
        ("attention", {"head": "all"}),
        ("globenc", {}),
        ("attention", {"head": "all"}),
    ]


def test_pages_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made.a_map(2, 3)
    size = len(flow_page.flow_page(one).encode())
    monkeypatch.setattr(flow_page, "room_of", int)
    assert len(flow_page.flow_page(one, megabytes=size).encode()) == size
    line = f"the page takes {size / 1e6:.1f} MB, more than {size - 1}. Allow more megabytes."
    assert refused(lambda: flow_page.flow_page(one, megabytes=size - 1)) == line


def test_the_room_of_a_page_is_that_of_its_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    real = results_page.entry
    monkeypatch.setattr(
        results_page, "entry", lambda results, room, more: rooms.append(room) or real(results, room=10**6, more=more)
    )
    results_page.page([made.attribution()])
    results_page.page([made.attribution()], room=500_000)
    results_page.page_of_texts([results_page.Told([made.attribution()])])
    empty = len(page_template.filled_page({"entries": []}, page_template.REPORT, title="", subtitle="").encode())
    assert rooms == [2_000_000 - empty - 1000, 500_000 - empty - 1000, 2_000_000 - empty - 1000]


# --- rows of a terminal, maps of a run --------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "lines"), [(17, [" n  a b  b 2, a 1"]), (16, [" n  a b", "    b 2, a 1"])])
def test_the_largest_scores_stand_behind_a_strip_while_they_fit(width: int, lines: list[str]) -> None:
    view: Any = row_views.rows(["n"], ("a", "b"), [[1.0, 2.0]], infos=[{}])
    assert [line.plain for line in view.lay(width, 256)] == lines


def test_long_written_words_are_cut() -> None:
    whole = made.generation()
    words = tuple(
        replace(word, text="incomprehensibly") if word.text == "sneezed" else word for word in whole.text.words
    )
    shown = text.rendered(
        generation_text.generation_view(replace(whole, text=replace(whole.text, words=words)), by="sentence")
    )
    assert "\nincomprehen…  72 %" in shown
    assert "\nShe           50 %" in shown


def test_maps_of_a_row_that_take_too_much_go_as_a_whole() -> None:
    one = made.a_map(2, 4)
    block = run_page._map_block(one)
    assert block is not None
    size = len(page_template.safe_json(block)) + 10
    assert run_page._size_of(block) == size
    blocks = run_page._MapBlocks({1, 2}, 2 * size)
    told = []
    for row in (1, 1, 3, 2, 2):
        blocks.add(row, one)
        told.append((blocks.room, {key: len(some) for key, some in blocks.by_row.items()}))
    assert told == [(size, {1: 1}), *[(0, {1: 2})] * 4]
    assert blocks.rows == {1}
    infinite = replace(one, scores=one.scores * float("inf"))
    blocks.add(1, infinite)
    assert (blocks.rows, len(blocks.by_row[1])) == (set(), 2)


def test_a_row_gives_back_all_that_its_maps_took() -> None:
    one = made.a_map(2, 4)
    size = run_page._size_of(run_page._map_block(one) or {})
    blocks = run_page._MapBlocks({1, 2}, 3 * size - 1)
    for _ in range(3):
        blocks.add(1, one)
    assert (blocks.room, blocks.by_row, blocks.rows) == (3 * size - 1, {}, {2})


def test_an_answer_in_a_notebook_holds_its_data() -> None:
    answer = made.answer()
    output = why_notebook.html(answer)
    script, mark = notebook.output_script(why_notebook.STYLES, why_notebook.SCRIPTS, "startAnswer")
    held = escape(json.dumps({"why": page_template.plain(why_page.shown_why(answer.to_dict()))}))
    assert output == (
        f'<div data-mixlens="{mark}" data-result="{held}">{why_notebook.without_script(answer)}</div>'
        f'<script type="text/javascript">{script}</script>'
    )


def test_a_long_word_is_cut_into_parts_of_the_width() -> None:
    assert why_text._parts("abcdefg", 3) == ["abc", "def", "g"]
    assert why_text._parts("漢字ab", 3) == ["漢", "字a", "b"]  # a character of two columns
    assert why_text._parts("漢字", 1) == ["漢", "字"]
    assert why_text._parts("", 3) == [""]


def test_the_maps_of_the_first_example_say_how_many_layers_there_are() -> None:
    asked = []

    def maps(rows: list[int]) -> Any:
        asked.append(rows)
        return [(rows[0], SimpleNamespace(scores=[0] * 3)), (rows[0], SimpleNamespace(scores=[0] * 2))]

    examples: Any = [SimpleNamespace(row=4), SimpleNamespace(row=6)]
    assert run_page._layers_of(maps, examples) == 5
    assert asked == [[4]]
    assert run_page._layers_of(maps, []) == 0
