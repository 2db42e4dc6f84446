"""Whole summaries, pages and written rows of a run, from rows written by hand: every number is where a reader looks for it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.runs.corpus import page, page_facts, rows, summary, taken_out, writing
from mixlens.runs.corpus.plan import WRITTEN
from mixlens.runs.corpus.turned_figure import turned_figure

MANIFEST: dict[str, Any] = {
    **{
        "identity": {"kind": "corpus", "methods": ["m", "k"], "dtype": "float32"},
        "finished": 1,
        "versions": {"mixlens": "1"},
    },
    **{"model": {"name": "tiny", "revision": "r", "family": "bert", "task": "causal-lm"}},
}


def row(number: int, **given: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "row": number,
        "id": f"r{number}",
        "text": "ab cd",
        "pair": None,
        "tokens": ["ab", "cd"],
        "query": 0,
    }
    usual |= {"prediction": "yes", "probability": 0.5, "gap": None, "seconds": 1.0, "m": [1.0, 3.0], "k": [3.0, -1.0]}
    return {**usual, **given}


ROWS = [
    *(row(number, seconds=float(number), gap=10.0**-number, probability=0.995) for number in range(1, 7)),
    *(row(number, prediction="no", tokens=["ab", "ef"], seconds=0.5) for number in range(7, 10)),
    row(10, prediction="maybe", tokens=["x", "y"], probability=None, seconds=0.25),
]
REASONS = Counter({f"reason {number}": number for number in range(1, 25)})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A run of the rows above, whatever folder is asked for."""
    asked: list[Any] = []

    def visit_rows(out: Any, manifest: Any, visitor: Any) -> Counter[str]:
        asked.append((out, manifest))
        for one in ROWS:
            visitor(one, "part")
        return REASONS

    for module in (summary, page_facts, sys.modules[turned_figure.__module__]):
        monkeypatch.setattr(module, "manifest_of", lambda out: MANIFEST)
        monkeypatch.setattr(module, "visit_rows", visit_rows)
    return asked


def test_a_summary_has_every_count(run: list[Any]) -> None:
    told = summary.summarize("folder", top=1, classes=2, least=2)
    assert run[:1] == [("folder", MANIFEST)]
    assert (told.out, told.model, told.finished, told.rows, told.errors) == ("folder", "tiny", True, 10, 300)
    assert told.reasons == [(f"reason {number}", number) for number in range(24, 19, -1)]
    assert (told.tokens_a_row, told.seconds_a_row) == (2.0, pytest.approx((21 + 1.5 + 0.25) / 10))
    assert told.classes == {"yes": 6, "no": 3}
    assert {name: sorted(methods) for name, methods in told.top.items()} == {"yes": ["k", "m"], "no": ["k", "m"]}
    assert told.top["yes"]["m"] == [("cd", pytest.approx(0.75), 6)]
    assert told.top["yes"]["k"] == [("ab", pytest.approx(0.75), 6)]
    assert told.signed["yes"]["k"]["against"] == [("cd", pytest.approx(-0.25), 6)]
    assert told.words["yes"]["m"]["for"] == [("cd", pytest.approx(0.75), 6)]
    assert told.words["no"]["m"]["for"] == []  # three rows are under five
    assert told.least_rows == 5
    rarer = summary.summarize("folder", top=1, least_rows=3)
    assert [rows for *_, rows in rarer.words["no"]["m"]["for"]] == [3]
    assert told.agreement == {"m, k": pytest.approx(-1.0)}
    assert list(told.word_agreement) == ["m, k"]
    gaps = [10.0**-number for number in range(1, 7)]
    assert told.gap == {"mean": pytest.approx(sum(gaps) / 6), "largest": 0.1}
    assert [one["row"] for one in told.slow] == [6, 5, 4, 3, 2]
    assert (told.turned, told.open, told.mixing_ratio) == ({}, {}, {})


def test_a_summary_knows_whether_texts_were_written(run: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert summary.summarize("folder").generate is None
    monkeypatch.setattr(
        summary,
        "manifest_of",
        lambda out: {**MANIFEST, "identity": {**MANIFEST["identity"], "options": {"generate": 3}}},
    )
    assert summary.summarize("folder").generate == 3


def test_an_overview_has_every_count(run: list[Any]) -> None:
    told = page_facts.overview("folder", examples=4, top=1, classes=2, least=2)
    assert (told.out, told.manifest, told.methods, told.finished) == ("folder", MANIFEST, ("m", "k"), True)
    assert (told.rows, told.errors, told.other_classes, told.sure, told.no_gap) == (10, 300, 1, 6, 0)
    assert told.reasons == [(f"reason {number}", number) for number in range(24, 4, -1)]
    assert [(one.name, one.rows, one.counted, one.mean) for one in told.classes] == [
        *(("yes", 6, 6, pytest.approx(0.995)), ("no", 3, 3, 0.5)),
    ]
    assert told.classes[0].top["m"] == [("cd", pytest.approx(0.75), 6)]
    assert told.classes[0].words["m"]["for"] == [("cd", pytest.approx(0.75), 6)]
    assert told.probability.counts.sum() == 9
    assert (told.judged, told.signed, told.removal) == (None, ("k",), None)
    assert told.agreement[("m", "k")].value == pytest.approx(-1.0)
    assert (told.gap.largest, told.gap.count, told.gaps.counts.sum()) == (0.1, 6, 6)
    assert [one["row"] for one in told.largest_gaps] == [1, 2, 3, 4, 5]
    assert (told.lengths, told.seconds.count, told.times.counts.sum()) == (Counter({2: 10}), 10, 10)
    assert [one["row"] for one in told.slow][:6] == [6, 5, 4, 3, 2, 1]
    assert len(told.slow) == 10
    assert 1 <= len(told.examples) <= 10
    assert len(page_facts.overview("folder", examples=0).examples) == 0
    assert told.notes == []


def test_a_run_without_a_check_has_no_figure_of_it(run: list[Any]) -> None:
    with pytest.raises(InputError) as refusal:
        turned_figure("folder")
    assert str(refusal.value) == (
        "no row of 'folder' was checked. Make the run with trust=True (--trust), in texts of four words or more."
    )


def test_the_page_of_a_run_takes_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    kept = [["maps"], []]
    monkeypatch.setattr(page, "overview", lambda *given, **options: asked.append((given, options)) or "facts")
    monkeypatch.setattr(page, "shard_files", lambda out, kind: kept.pop(0))
    monkeypatch.setattr(page, "maps", lambda out, rows: (out, rows))
    monkeypatch.setattr(page.run_page, "page", lambda facts, **options: asked.append((facts, options)) or "text")
    assert page.page_of("folder", label="gold", examples=0, title="T", room=99) == "text"
    page.page_of("folder", room=1)
    assert asked[0] == (("folder",), {"label": "gold", "examples": 0})
    assert asked[2] == (("folder",), {"label": None, "examples": 300})
    maps = asked[1][1].pop("maps")
    assert maps([3]) == ("folder", [3])
    assert asked[1] == ("facts", {"title": "T", "room": 99})
    assert asked[3] == ("facts", {"maps": None, "title": None, "room": 1})
    written: list[Any] = []
    monkeypatch.setattr(page, "page_of", lambda out, **options: written.append((out, options)) or "html")
    monkeypatch.setattr(page, "may_write", lambda place, *, force: written.append((place, force)))
    place = tmp_path / "page.html"
    options: dict[str, Any] = {"label": "gold", "examples": 7, "title": "T"}
    assert page.write_page("folder", place, megabytes=0.5, force=True, **options) == place
    assert place.read_text() == "html"
    page.write_page("folder", str(place))
    usual = {"label": None, "examples": None, "title": None, "room": 2_000_000}
    assert written == [(place, True), ("folder", {**options, "room": 500_000}), (place, False), ("folder", usual)]


# --- words that are taken out -----------------------------------------------------------------------------------------------


def test_columns_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five words: ten random sets, and the three first words of each method, each run once."""
    asked: list[Any] = []

    def left_without(trace: Any, target: Any, sets: Any) -> dict[Any, Any]:
        asked.append((trace, target, sets))
        return {gone: taken_out.Left(sum(gone) / 100, sum(gone) > 9) for gone in sets}

    target = SimpleNamespace(positions=(0,))
    monkeypatch.setattr(taken_out, "_left_without", left_without)
    monkeypatch.setattr(taken_out, "_target", lambda trace: target)
    scores: Any = {
        "m": SimpleNamespace(info={"completeness": {"relative_gap": 0.25}}),
        "k": SimpleNamespace(info={}),
    }
    tokens = ["[x]", "a", "b", "c", "d", "e"]
    one = row(1, text=None, tokens=tokens, m=[9.0, 5.0, 4.0, 3.0, 2.0, 1.0], k=[9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    columns = taken_out.trust_columns("trace", one, scores)  # type: ignore[arg-type]
    sets = asked[0][2]
    assert asked[0][:2] == ("trace", target)
    assert {frozenset({1, 2, 3}), frozenset({3, 4, 5})} <= sets
    assert len(sets) == 10  # all sets of five words
    drawn = columns.pop("without_random")
    assert len(drawn) == 10
    assert columns.pop("turned_random") == [probability > 0.09 for probability in drawn]
    assert columns == {
        **{"completeness:m": 0.25, "completeness:k": None, "without:m": 0.06, "without:k": 0.12},
        **{"turned:m": False, "turned:k": True},
    }
    alone = {"completeness:m": 0.25, "completeness:k": None}
    assert taken_out.trust_columns("trace", {**one, "prediction": None}, scores) == alone  # type: ignore[arg-type]
    short = {**one, "tokens": tokens[:4]}  # three words: every set is the same one
    assert taken_out.trust_columns("trace", short, scores) == alone  # type: ignore[arg-type]
    del short["k"]
    assert list(taken_out.trust_columns("trace", short, scores)) == ["completeness:m"]  # type: ignore[arg-type]


def test_what_is_checked_is_the_predicted_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(taken_out, "resolve", lambda *given, **options: asked.append((given[1:], options)) or "target")
    for task in ("classification", "masked-lm"):
        trace: Any = SimpleNamespace(model=SimpleNamespace(task=task), predicts=(4, 5))
        assert taken_out._target(trace) == "target"
    assert asked == [(("predicted",), {"score": "probability", "query": query}) for query in (None, 4)]


# --- written words --------------------------------------------------------------------------------------------------------------


class Generated:
    """Two tokens written after a prompt of two."""

    def __init__(self, gap: float | None):
        self.info: dict[str, Any] = {} if gap is None else {"gap": gap}
        self.text = SimpleNamespace(begin=2, written="c d")
        self.whole = SimpleNamespace(input_ids=(1, 2, 3, 4))
        self.probabilities = (0.5, 0.25)
        self.scores = torch.tensor([[0.25, 0.75, 0.0, 0.0], [0.5, 0.25, 0.25, 0.0]])

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> Any:
        assert place == 0
        return SimpleNamespace(info={"prediction": [("c", 0.5), ("x", 0.125)]})


def test_the_columns_of_a_written_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"m": Generated(0.5), "k": Generated(0.75), "n": Generated(None)}
    layout = {"tokens": ["a", "b", "c", "d"], "words": [1], "groups": [2], "spans": [3], "unit": "word", "more": 4}
    monkeypatch.setattr(writing, "_explained", lambda text, request, plan: made[request])
    monkeypatch.setattr(writing, "input_columns", lambda row, prompt: {"row": row.row, "prompt": prompt})
    monkeypatch.setattr(writing, "spans", lambda prompt: {"spans": prompt})
    monkeypatch.setattr(writing, "to_dict", lambda result: layout)
    monkeypatch.setattr(writing.time, "perf_counter", iter([10.0, 12.0, 20.0, 23.0, 30.0, 36.0]).__next__)
    plan: Any = SimpleNamespace(columns=("label", "source"), generate=2)
    rows: Any = [SimpleNamespace(row=7, columns=("good", 3)), SimpleNamespace(row=8, columns=("bad", 4))]
    text = SimpleNamespace(prompt="prompt")
    asked: list[Any] = []
    monkeypatch.setattr(writing, "write_each", lambda *given: asked.append(given) or [text, text])
    found: Any = writing.written_rows("model", plan, {"m": "m", "k": "k", "n": "n"}, rows, ["e1", "e2"])  # type: ignore[arg-type,dict-item,list-item]
    assert asked == [("model", ["e1", "e2"], 2)]
    assert [one["seconds"] for one in found] == [1.0 + 3.0, 1.0 + 6.0]  # half of the writing, and its own explaining
    first = found[0]
    assert {name: first[name] for name in ("row", "prompt", "spans", "label", "source", "gap")} == {
        **{"row": 7, "prompt": "prompt", "spans": "prompt", "label": "good", "source": 3, "gap": 0.75},
    }
    assert {name: first[name] for name in ("query", "prediction", "probability", "target")} == {
        **{"query": 1, "prediction": "c", "probability": 0.5, "target": None},
    }
    assert [first[name] for name in WRITTEN[:3]] == ["c d", [3, 4], [0.5, 0.25]]
    assert json.loads(first["layout"]) == {
        "tokens": ["c", "d"],
        "words": [1],
        "groups": [2],
        "spans": [3],
        "unit": "word",
    }
    assert first["m"].tolist() == pytest.approx([0.375, 0.5])
    assert first["written:m"].tolist() == pytest.approx([0.25, 0.75, 0.5, 0.25, 0.25])


def test_a_row_that_cannot_be_explained_is_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    error = InputError("no")

    def refuse(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(writing, "_row", refuse)
    assert writing._row_or_reason(None, {}, None, None, 0.0) is error  # type: ignore[arg-type]


@pytest.mark.parametrize(("specific", "rollout"), [(True, None), (False, "alti")])
def test_options_of_a_method_that_explains_written_words(
    monkeypatch: pytest.MonkeyPatch, specific: bool, rollout: str | None
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        writing, "explain_written", lambda *given, **options: asked.append((given, options)) or "generation"
    )
    request: Any = SimpleNamespace(name="m", variant="released", class_specific=specific, rollout=rollout)
    request.options_for = lambda whole: {"steps": whole}
    text: Any = SimpleNamespace(whole=9)
    assert writing._explained(text, request, SimpleNamespace(foil="f", score="logit")) == "generation"  # type: ignore[arg-type]
    more: dict[str, Any] = {"foil": "f", "score": "logit"} if specific else {"rollout": rollout}
    assert asked == [((text, "m"), {"variant": "released", "steps": 9, **more})]


def test_written_rows_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    layout = {"tokens": ["c", "d"], "words": [1], "groups": [2], "spans": [3], "unit": "word"}
    stored = [
        {
            **{
                "row": number,
                "text": "ab",
                "pair": None,
                "tokens": ["a", "b"],
                "written": "c d",
                "written_ids": [3, 4],
            },
            **{"probabilities": [0.5, 0.25], "layout": json.dumps(layout), "written:alti": [1.0, 2.0, 3.0, 4.0, 5.0]},
        }
        for number in (4, 5)
    ]
    manifest = {**MANIFEST, "identity": {"methods": ["norm", "alti"], "dtype": "float32", "options": {"generate": 2}}}
    monkeypatch.setattr(writing, "manifest_of", lambda out: manifest)
    monkeypatch.setattr(writing, "shard_files", lambda out: ["shard"])
    monkeypatch.setattr(writing, "rows_in", lambda path, columns: asked.append((path, columns)) or stored)
    monkeypatch.setattr(writing, "from_dict", lambda content: content)
    found: Any = list(writing.generations("folder", "alti"))
    assert asked == [("shard", ["row", "text", "pair", "tokens", *WRITTEN, "written:alti"])]
    assert [number for number, _ in found] == [4, 5]
    content = dict(found[0][1])
    assert content.pop("schema") == writing.SCHEMA
    assert content == {
        **{
            **layout,
            "tokens": ["a", "b", "c", "d"],
            "kind": "generation",
            "text": "ab",
            "pair": None,
            "written": "c d",
        },
        **{
            "given": False,
            "begin": 2,
            "probabilities": [0.5, 0.25],
            "is_map": True,
            "method": {"id": "alti"},
            "filler": None,
        },
        **{"scores": [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 5.0, 0.0]], "predictions": [[], []]},
        "provenance": {
            **{"model": "tiny", "revision": "r", "family": "bert", "task": "causal-lm", "dtype": "float32"},
            "versions": {"mixlens": "1"},
        },
    }
    assert [number for number, _ in writing.generations("folder", "alti", rows=[5])] == [5]
    assert np.array(content["scores"]).shape == (2, 4)


def test_every_column_of_a_written_text_is_computed() -> None:
    from mixlens.runs.corpus.plan import WRITTEN, is_computed

    assert all(is_computed(name) for name in WRITTEN[1:])
    assert not is_computed("a method")


def test_a_row_that_holds_neither_messages_nor_a_text() -> None:
    chat = rows.Fields(chat=True, messages="talk")
    assert rows._refuse_neither({"text": "a"}, chat) is None
    assert rows._refuse_neither({}, rows.Fields()) is None
    assert rows._refuse_neither({"prompt": "a"}, replace(chat, text="prompt")) is None
    for row, fields, name in (
        ({"sentence": "a"}, chat, "text"),
        ({"text": "a"}, replace(chat, text="prompt"), "prompt"),
    ):
        with pytest.raises(InputError, match=f"^neither field 'talk' nor field '{name}' holds anything\\.$"):
            rows._refuse_neither(row, fields)


def test_the_texts_of_messages_are_read_and_other_parts_left_to_the_template() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "\ud800"}]}
    told = [{"role": "user", "content": "a"}, parts, "no message", {"role": "user"}]
    assert rows._messages(told, "talk") == tuple(told)
    assert [rows._is_content(one) for one in ({"content": ""}, {"content": 3}, {}, {"content": None})] == [
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(InputError, match="half a character"):
        rows._messages([{"role": "user", "content": "\ud800"}], "talk")
    only_parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert rows._messages(only_parts, "talk") == tuple(only_parts)
