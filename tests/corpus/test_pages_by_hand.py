"""What pages and summaries of a run hold, on rows made by hand: samples, labels, bins, lines of text, words taken out."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mixlens.base.errors import InputError
from mixlens.runs.corpus import page_facts, page_labels, page_samples, plan, summary, taken_out
from mixlens.runs.corpus.bins import Bins
from mixlens.runs.corpus.page_facts import PageTally
from mixlens.runs.corpus.page_labels import Judged, Labels, labels_of
from mixlens.runs.corpus.page_samples import Candidate, Examples, Lowest, Spaced, spread
from mixlens.runs.corpus.reading import kind, mapping, names
from mixlens.runs.corpus.row_words import WrittenWord
from mixlens.runs.corpus.summary import Summary
from mixlens.runs.corpus.tally import RowFacts
from mixlens.runs.corpus.turned_counts import RowCheck
from mixlens.runs.corpus.turned_figure import _rows

# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "room"), [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4)])
def test_a_spaced_sample_keeps_every_other_item(most: int, room: int) -> None:
    sample = Spaced(most)
    assert sample.most == room
    for number in range(9):
        sample.offer(lambda number=number: number)
    assert (sample.items, sample.step, sample.seen) == (([0, 8], 8, 9) if room == 2 else ([0, 4, 8], 4, 9))


def test_items_that_are_not_held_are_not_made() -> None:
    made: list[int] = []
    sample = Spaced(2)
    for number in range(6):
        sample.offer(lambda number=number: made.append(number) or number)
    assert (made, sample.items, sample.step) == ([0, 1, 2, 4], [0, 4], 4)
    made.clear()
    lowest = Lowest(2)
    for row, value in enumerate([3.0, 2.0, 4.0, 2.0, math.nan, 1.0, math.inf]):
        lowest.offer(value, row, lambda row=row: made.append(row) or row)
    assert (made, lowest.lowest_first(), lowest.seen) == ([0, 1, 3, 5], [5, 1], 5)
    none = Lowest(0)
    none.offer(1.0, 0, lambda: made.append(9))
    assert (none.heap, made) == ([], [0, 1, 3, 5])


def test_the_lowest_of_equal_values_are_those_of_the_first_rows() -> None:
    lowest = Lowest(2)
    for row in (5, 3, 4, 3):
        lowest.offer(1.0, row, lambda row=row: row)
    assert lowest.lowest_first() == [3, 3]


def test_a_spread_order() -> None:
    assert spread(list("abcdefg")) == ["a", "e", "c", "g", "b", "f", "d"]
    assert [spread(list("abcdefgh"[:count])) for count in (0, 1, 2, 3, 4)] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "c", "b"],
        ["a", "c", "b", "d"],
    ]
    assert spread(list("abcde")) == ["a", "e", "c", "b", "d"]


# --- examples ---------------------------------------------------------------------------------------------------------


def candidate(
    number: int = 3, *, check: RowCheck | None = None, words: dict[Any, float] | None = None, **more: Any
) -> Candidate:
    row = {
        "row": number,
        "id": 7,
        "tokens": ["[CLS]", "a", "b"],
        "segments": [-1, 0, 0],
        "query": 2,
        "seconds": 1,
        "text": None,
    }
    row |= {
        "pair": None,
        "probability": 0.5,
        "target": "t",
        "gap": 0.25,
        "prediction": "yes",
        "input_ids": [1],
        "m": [1.0, 2.0, 3.0],
    }
    known = {name: more.pop(name, None) for name in ("label", "correct", "column")}
    seen = RowFacts("yes", {"m": np.array([1.0, 2.0, 3.0])}, {}, words or {}, check)
    return Candidate({**row, **more}, "part-1.parquet", seen, **known)


def test_a_sample_of_a_row() -> None:
    found = candidate(carried=["x"], nothing=None, label="L", correct=True, column="gold", gold="raw").sample()
    assert (found.row, found.id, found.text, found.pair, found.tokens) == (
        3,
        "7",
        "[CLS] a b",
        None,
        ("[CLS]", "a", "b"),
    )
    assert (found.special, found.left_out, found.query, found.prediction) == ((True, False, False), 0, 2, "yes")
    assert (found.probability, found.target, found.label, found.correct, found.gap) == (0.5, "t", "L", True, 0.25)
    assert (found.seconds, type(found.seconds), found.agreement, found.methods, found.file) == (
        1.0,
        float,
        None,
        ("m",),
        "part-1.parquet",
    )
    assert (found.carried, found.scores.tolist()) == ((("carried", "['x']"), ("gold", "raw")), [[1.0, 2.0, 3.0]])
    assert found.words == (WrittenWord("a", "", 0, (1,)), WrittenWord("b", " ", 0, (2,)))
    assert (found.why, found.check, found.tags) == ((), None, ())


def test_long_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_samples, "LONG", 2)
    monkeypatch.setattr(page_samples, "TEXT", 5)
    monkeypatch.setattr(page_samples, "FIELD", 4)
    found = candidate(id="12345", text="123456", pair="12345", extra="abcde", column="gold", gold="uvwxyz").sample()
    assert (found.id, found.text, found.pair, found.label) == ("123…", "1234…", "12345", "uvw…")
    assert (found.tokens, found.special, found.left_out, found.scores.tolist()) == (
        ("[CLS]", "a"),
        (True, False),
        1,
        [[1.0, 2.0]],
    )
    assert (found.carried, [word.text for word in found.words]) == ((("extra", "abc…"), ("gold", "uvw…")), ["a"])
    assert [page_samples.cut("abcd", most) for most in (3, 4)] == ["ab…", "abcd"]
    assert candidate(column="gold", gold=None).sample().label is None
    assert candidate(column=None, gold="x").sample().label is None


def test_the_lists_that_a_row_belongs_to() -> None:
    held = RowCheck({"m": 0.95, "n": 0.92}, {}, [], [], {"m": 0.011, "n": 0.005})
    words = {("m", "n"): 0.05, ("m", "o"): math.nan, ("n", "o"): 0.1}
    whole = candidate(check=held, words=words, correct=False, probability=0.96)
    assert whole.agreement() == pytest.approx(0.075)
    assert whole.tags() == ("wrong", "held", "apart", "open")
    assert whole.values() == {
        **{"methods disagree": pytest.approx(0.075), "least certain": 0.96, "wrong": -0.96},
        **{"nothing turned it": -0.92, "does not add up": -0.011},
    }
    assert whole.sample().tags == whole.tags()
    plain = candidate(
        check=RowCheck({"m": 0.5}, {}, [], [], {"m": 0.01}), words={("m", "n"): 0.1}, correct=False, probability=0.95
    )
    assert plain.tags() == ()
    assert plain.values() == {
        "methods disagree": 0.1,
        "least certain": 0.95,
        "wrong": -0.95,
        "nothing turned it": None,
        "does not add up": None,
    }
    right = candidate(correct=True, probability=0.99)
    assert (right.tags(), right.values()["wrong"]) == ((), None)
    unknown = candidate(correct=None, probability=0.99)
    assert (unknown.tags(), unknown.values()["wrong"]) == ((), None)
    nothing = candidate(correct=False, probability=None)
    assert (nothing.tags(), set(nothing.values().values())) == ((), {None})


def test_small_runs_are_held_whole() -> None:
    examples = Examples(12)
    assert (examples.spaced.most, {why: kept.most for why, kept in examples.chosen.items()}) == (
        6,
        dict.fromkeys(page_samples.WHY[1:], 2),
    )
    for number in range(12):
        examples.offer(candidate(number, correct=False, probability=0.9 + number / 1000))
    assert [sample.row for sample in examples.every or ()] == list(range(12))
    rows = examples.rows()
    assert [(sample.row, sample.why) for sample in rows] == [
        *((0, ("evenly spaced", "least certain")), (11, ("wrong",)), (8, ("evenly spaced",)), (1, ("least certain",))),
        *((10, ("wrong", "evenly spaced")), (4, ("evenly spaced",)), (2, ("evenly spaced",)), (6, ("evenly spaced",))),
        *((3, ()), (5, ()), (7, ()), (9, ())),
    ]
    assert {sample.row for sample in rows} == set(range(12))
    examples.offer(candidate(12, correct=False, probability=0.99))
    assert examples.every is None
    assert examples.tagged == Counter({"wrong": 1})
    none = Examples(0)
    none.offer(candidate(0, correct=False, probability=0.99))
    assert (none.rows(), none.tagged, none.spaced.items) == ([], Counter({"wrong": 1}), [])


# --- labels -----------------------------------------------------------------------------------------------------------


def test_predictions_are_compared_with_labels() -> None:
    labels = Labels("gold", ["neg", "pos"])
    assert labels.add({"gold": "POS"}, "pos") == ("pos", True)
    assert labels.add({"gold": 0.0}, "pos") == ("neg", False)
    assert labels.add({"gold": 1}, "pos") == ("pos", True)
    assert labels.add({"gold": "other"}, "pos") == (None, None)
    assert labels.add({"gold": 0.5}, "pos") == (None, None)
    assert labels.add({"gold": None}, "pos") == (None, None)
    assert labels.add({"gold": "pos"}, "(none)") == (None, None)
    table = Counter({("pos", "pos"): 2, ("neg", "pos"): 1})
    assert labels.judged() == Judged("gold", 3, 2, 2, 1, table)
    assert labels.why_not() is None
    assert Labels(None, []).add({"gold": "pos"}, "pos") == (None, None)


def test_words_are_compared_as_text() -> None:
    labels = Labels("gold", [])
    assert labels.add({"gold": " cat "}, "cat") == ("cat", True)
    assert labels.add({"gold": "  "}, "cat") == (None, None)
    assert labels.judged() == Judged("gold", 1, 1, 0, 1, Counter())


def test_why_there_is_no_accuracy() -> None:
    labels = Labels("gold", [str(number) for number in range(14)])
    assert labels.judged() is None
    labels.add({"gold": "x"}, "1")
    labels.add({}, "1")
    labels.add({}, "1")
    assert labels.why_not() == (
        "No row has a label in the column 'gold' that is a class of the model (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), so "
        "there is no accuracy. 1 rows have another value, 2 have none."
    )
    assert Labels(None, [], "because").why_not() == "because"
    assert "of the model, so there is" in str(Labels("gold", []).why_not())


def test_the_column_of_labels() -> None:
    manifest = {"model": {"classes": ["a", "b"]}, "identity": {"options": {"columns": ["x", "gold", "label"]}}}
    found = labels_of(manifest, None)
    assert (found.column, found.classes) == ("label", ["a", "b"])
    assert labels_of(manifest, "x").column == "x"
    assert labels_of(manifest, "x").classes == ["a", "b"]
    with pytest.raises(InputError) as told:
        labels_of(manifest, "gol")
    assert str(told.value) == "the run carried no column 'gol'. Did you mean 'gold'? Known: gold, label, x."
    bare = {"identity": {"options": {"columns": ["class"]}}}
    assert (labels_of(bare, None).column, labels_of(bare, None).why_not()) == (
        None,
        "The model has no classes by name, so the column 'class' is not compared with what it predicts.",
    )
    with pytest.raises(InputError, match=r"^the run carried no column 'x'\. This run carried none: --columns\.$"):
        labels_of({}, "x")
    assert (labels_of({}, None).column, labels_of({}, None).why_not()) == (None, None)
    assert page_labels.LABELS == ("label", "labels", "gold", "class")


def test_reasons_without_their_numbers() -> None:
    assert kind("field 'a' holds int '12', not text.") == "field 'a' holds int, not text."
    assert kind('holds str "it\'s" at 0x7fff and 1,234 of 5') == "holds str at N and N of N"
    assert kind("x" * 80) == "x" * 80
    assert kind("x" * 81) == "x" * 79 + "…"
    assert (mapping([]), mapping({"a": 1}), names("ab"), names([1, "b"])) == ({}, {"a": 1}, [], ["1", "b"])


# --- the tally of a page ----------------------------------------------------------------------------------------------


def page_row(number: int, **more: Any) -> dict[str, Any]:
    row = {"row": number, "id": f"r{number}", "tokens": ["a", "b"], "seconds": 0.01, "prediction": "yes", "query": 0}
    return {**row, "text": "a b", "pair": None, "m": [1.0, 2.0], **more}


def test_a_page_counts_probabilities_gaps_and_lengths() -> None:
    counts = PageTally(["m"], Labels(None, []), 4)
    counts.add(page_row(1, probability=0.99, gap=0.0), "f")
    counts.add(page_row(2, probability=0.995, gap=1e-3, tokens=["a"], m=[1.0]), "f")
    counts.add(page_row(3, probability=0.25, gap=1e-2, prediction="no"), "f")
    counts.add(page_row(4, probability=None, gap=None, prediction=None, seconds=2.0), "f")
    assert (counts.sure, counts.no_gap, counts.lengths) == (1, 1, Counter({2: 3, 1: 1}))
    assert {place: count for place, count in enumerate(counts.probability.counts.tolist()) if count} == {5: 1, 19: 2}
    assert counts.gaps.counts.sum() == 2
    assert [fact["row"] for fact in counts.largest.lowest_first()] == [3, 2, 1]
    assert counts.largest.lowest_first()[0] == {"row": 3, "id": "r3", "gap": 1e-2}
    assert counts.times.counts.sum() == 4
    assert counts.notes() == []
    one = counts.of_class("yes", 2, 3, 1)
    assert (one.name, one.rows, one.counted, one.mean) == ("yes", 2, 2, pytest.approx(0.9925))
    assert one.top == {"m": [("b", pytest.approx(2 / 3), 1), ("a", pytest.approx(2 / 3), 2)]}
    assert (one.signed, one.words) == ({}, {"m": {"for": [], "against": []}})
    none = counts.of_class("never", 0, 3, 1)
    assert (none.counted, none.mean, none.probability.counts.sum(), none.top) == (0, None, 0, {"m": []})
    counts.tally.has_dropped, counts.tally.unnamed = True, 1234
    assert counts.notes() == [
        "There were more different tokens than are counted: the rarest were let go, so top tokens are of frequent ones.",
        "1,234 rows have a prediction that was too rare to be kept; they count in all other numbers.",
    ]
    assert len(counts.examples.every or ()) == 4


def test_certainties_of_classes_that_were_dropped_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_facts, "CLASSES", 2)
    counts = PageTally([], Labels(None, []), 0)
    for name in "abcdefgh":
        counts._add_probability(name, 0.5)
    assert list(counts.certain) == list("abcdefgh")
    counts.tally.classes = {"a": None, "i": None}  # type: ignore[dict-item]
    counts._add_probability("i", 0.5)
    assert list(counts.certain) == ["a", "i"]


@pytest.mark.parametrize("count", [-1, 10_001, True, 1.0, "3"])
def test_how_many_examples_are_allowed(count: Any) -> None:
    with pytest.raises(InputError) as told:
        page_facts._refuse_examples(count)
    assert str(told.value) == f"examples is how many rows can be looked at, 0 to 10,000, not {count!r}."
    page_facts._refuse_examples(0)
    page_facts._refuse_examples(10_000)


def test_rows_of_a_histogram_are_parts_of_rows() -> None:
    way = SimpleNamespace(draws=10, rows=4, left=Bins(np.arange(3.0), np.array([5, 10])))
    assert _rows(way) == [2.0, 4.0]  # type: ignore[arg-type]


# --- the text of a summary --------------------------------------------------------------------------------------------


def summary_of(**more: Any) -> Summary:
    given: dict[str, Any] = {
        "out": "o",
        "model": "m",
        "finished": True,
        "rows": 2,
        "errors": 1,
        "reasons": [("bad", 1)],
    }
    given |= {"tokens_a_row": 3.25, "seconds_a_row": 0.0125, "classes": {"yes": 2}, "top": {}, "agreement": {}}
    given |= {"mixing_ratio": {"alti": [0.5, 0.25], "x": [1.0]}, "gap": {"mean": 1e-6, "largest": 2e-6}}
    given |= {"slow": [{"row": 12, "id": "r", "tokens": 5, "seconds": 0.5}], "signed": {"yes": {"attcat": {}}}}
    ways = {"for": [("good", 0.25, 6), ("film", 0.5, 5)], "against": [("bad", -0.0625, 7)]}
    given |= {"words": {"yes": {"attcat": ways, "alti": {**ways, "against": []}, "z": {"for": [], "against": []}}}}
    given |= {"word_agreement": {"a, b": 0.5, "a, long": None}}
    given |= {
        "turned": {
            "alti": {"share": 0.5, "low": 0.25, "high": 0.75, "rows": 4},
            "(random words)": {"share": 0.0, "low": 0.0, "high": 0.5, "rows": 4},
        }
    }
    return Summary(**{**given, "open": {"deeplift": {"rows": 4, "open": 1, "largest": 0.02}}, **more})


def test_the_whole_text_of_a_summary() -> None:
    assert summary_of().text().splitlines() == [
        "o: model m, 2 rows explained, 1 could not be, finished",
        "        1  bad",
        "3.2 tokens a row, 12.50 ms a row",
        "reconstruction gap: mean 1.0e-06, largest 2.0e-06 (each row has the largest of its batch)",
        "",
        "predicted 'yes': 2 rows",
        "  attcat  for:     good +25 % (6 rows)  film +50 % (5 rows)",
        "          against: bad -6.2 % (7 rows)",
        "  alti    good 25 % (6 rows)  film 50 % (5 rows)",
        "  z       no word is in 5 rows or more; rarer ones: --least-rows 1 (least_rows=1)",
        "",
        "predictions that turn without the three first words (95 % interval)",
        "  alti                  50 %  (25 % to 75 %; 4 rows)",
        "  three random words     0 %  (0 % to 50 %; 4 rows)",
        "",
        "scores that do not add up within 1 %",
        "  deeplift  1 of 4 rows, at worst 2 %",
        "",
        "agreement between methods (mean Spearman correlation over the words of a row)",
        "  a, b     0.500",
        "  a, long  -",
        "",
        "mixing ratio by layer",
        "  alti  0.500  0.250",
        "  x     1.000",
        "",
        "slowest rows (the time of a batch is shared out evenly over its rows)",
        "  row 12            5 tokens     500.00 ms",
    ]


def test_a_summary_of_written_texts_says_what_it_summarizes() -> None:
    lines = summary_of(generate=3).text().splitlines()
    assert lines[4:9] == [
        "written texts: up to 3 tokens after each row. Below, words are those of the",
        "rows' own texts, by their mean share over the written tokens; rows are grouped",
        "by the token that was written first. The texts: mixlens.runs.corpus.generations.",
        "",
        "wrote 'yes' first: 2 rows",
    ]


def test_the_reasons_of_a_summary_add_up_to_the_rows_that_could_not_be_explained() -> None:
    lines = summary_of(rows=0, errors=7, reasons=[("bad", 4), ("long", 2)]).text().splitlines()
    assert lines[1:] == ["        4  bad", "        2  long", "        1  for other reasons: errors.jsonl has each"]
    assert sum(int(line.split()[0]) for line in lines[1:]) == 7


def test_the_text_of_a_summary_without_rows_or_parts() -> None:
    none = summary_of(rows=0, errors=0, finished=False, reasons=[])
    assert none.text() == "o: model m, 0 rows explained, 0 could not be, not finished"
    bare = summary_of(
        gap={"mean": None, "largest": None}, words={}, turned={}, open={}, word_agreement={}, mixing_ratio={}, slow=[]
    )
    assert bare.text().splitlines()[2:] == ["3.2 tokens a row, 12.50 ms a row"]
    one = summary_of(words={"yes": {"attcat": {"for": [], "against": [("bad", -0.5, 5)]}}}).text().splitlines()
    assert one[6:8] == ["  attcat  for:     -", "          against: bad -50 % (5 rows)"]
    assert "  z       no word is in 1 row or more" in summary_of(least_rows=1).text().splitlines()
    assert "\\u001b" in summary_of(out="\x1b").text()
    assert summary.LEAST_ROWS == 5


# --- words taken out of a row -----------------------------------------------------------------------------------------


def test_sets_of_words_are_all_or_drawn() -> None:
    assert taken_out.drawn_sets(4, 0) == list(combinations(range(4), 3))
    assert taken_out.drawn_sets(5, 0) == list(combinations(range(5), 3))  # ten sets
    drawn = taken_out.drawn_sets(6, 7)
    generator = np.random.default_rng(7)
    expected: dict[tuple[int, ...], None] = {}
    while len(expected) < 10:
        expected[tuple(sorted(generator.choice(6, 3, replace=False).tolist()))] = None
    assert drawn == list(expected)


def test_the_first_words_of_a_method() -> None:
    scores = np.array([9.0, 1.0, 1.0, 2.0, 0.5, 2.0])
    assert taken_out.first_of(scores, [[1, 2], [3], [4], [5]]) == [0, 1, 3]
    row = {"tokens": ["[CLS]", "un", "##do", "!", "it", "now"], "segments": [-1, 0, 0, 0, 0, 0], "text": "undo! it now"}
    row |= {"starts": [0, 0, 2, 4, 6, 9], "ends": [0, 2, 4, 5, 8, 12], "pair": None}
    assert taken_out._units(row, ()) == [[1, 2], [4], [5]]
    assert taken_out._units(row, (2,)) == [[4], [5]]
    assert taken_out._positions([[1, 2], [4], [5]], [0, 2]) == frozenset({1, 2, 5})
    assert taken_out._completeness(SimpleNamespace(info={})) is None  # type: ignore[arg-type]
    assert taken_out._completeness(SimpleNamespace(info={"completeness": {"relative_gap": 0.5}})) == 0.5  # type: ignore[arg-type]


def test_the_answer_without_words_is_read_where_it_moved() -> None:
    """Outputs by position: the number of the first id of the row that is read decides the class."""
    asked: list[Any] = []
    compared: list[bool] = []

    def outputs(inputs: list[Any], *, compare: bool) -> Any:
        compared.append(compare)
        asked.append([(one.input_ids, one.attention_mask, one.token_type_ids) for one in inputs])
        width = max(len(one.input_ids) for one in inputs)
        logits = torch.zeros(len(inputs), width, 3)
        for number, one in enumerate(inputs):
            for place, token in enumerate(one.input_ids):
                logits[number, place, token % 3] = 2.0
        return SimpleNamespace(logits=logits)

    class Trace(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.input_ids)

    model = SimpleNamespace(outputs=outputs, batch_limit=2)
    trace: Any = Trace(model=model, input_ids=[0, 1, 2, 3, 4], attention_mask=None, token_type_ids=[0, 0, 0, 1, 1])
    target: Any = SimpleNamespace(positions=(3,), ids=(0,))
    sets = [frozenset({4}), frozenset({0, 1}), frozenset({1})]
    left = taken_out._left_without(trace, target, sets)
    assert asked == [
        [([2, 3, 4], None, [0, 1, 1]), ([0, 2, 3, 4], None, [0, 0, 1, 1])],
        [([0, 1, 2, 3], None, [0, 0, 0, 1])],
    ]
    assert compared == [True, False]  # the first batch alone
    sure = math.exp(2) / (math.exp(2) + 2)
    assert set(left) == set(sets)
    assert all((one.probability, one.turned) == (pytest.approx(sure), False) for one in left.values())
    other: Any = SimpleNamespace(positions=(3,), ids=(1,))
    turned = taken_out._left_without(trace, other, [frozenset({4})])[frozenset({4})]
    assert (turned.probability, turned.turned) == (pytest.approx(1 / (math.exp(2) + 2)), True)
    model.batch_limit = None
    asked.clear()
    taken_out._left_without(trace, target, sets)
    assert [len(batch) for batch in asked] == [3]


def test_what_trust_refuses() -> None:
    config = SimpleNamespace(num_labels=2)
    model: Any = SimpleNamespace(task="question-answering", name="m", hf_model=SimpleNamespace(config=config))
    with pytest.raises(
        InputError, match=r"^trust= takes words out and looks whether the prediction turns, and 'm' \(question-ans"
    ):
        taken_out.refuse_trust(model, "predicted", None)
    model.task = "classification"
    taken_out.refuse_trust(model, "predicted", None)
    for target, foil in (("a", None), ("predicted", "b")):
        with pytest.raises(
            InputError, match=r"^trust= checks the words for the predicted class or word\. Leave target= and foil="
        ):
            taken_out.refuse_trust(model, target, foil)


# --- what is asked of every row ---------------------------------------------------------------------------------------


def planned(**more: Any) -> plan.Plan:
    usual = {
        "methods": "alti",
        "target": "predicted",
        "foil": None,
        "score": None,
        "query": None,
        "maps": False,
        "batch_tokens": None,
        "columns": (),
    }
    return plan.plan_of(**{**usual, **more})


def test_a_plan_of_arguments() -> None:
    assert planned() == plan.Plan(("alti",))
    whole = {
        "methods": ["alti", "cat"],
        "target": ("a", 1),
        "foil": 3,
        "score": "logit",
        "query": "w",
        "maps": True,
        "batch_tokens": 1,
    }
    assert planned(**whole, columns="x", trust=True) == plan.Plan(
        ("alti", "cat"), ("a", 1), 3, "logit", "w", "float32", 1, ("x",), (), True, None
    )
    assert planned(generate=2, methods=" alti , ,cat") == plan.Plan(("alti", "cat"), generate=2)
    assert planned(maps="float16").maps == "float16"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"methods": "b,a,b,a"}, "a method is named twice: a, b."),
        ({"methods": [3]}, "methods are names, as `mixlens methods` lists them."),
        ({"methods": 3}, "methods and columns are lists of names."),
        ({"columns": 3}, "methods and columns are lists of names."),
        ({"maps": "float64"}, "maps are kept as float32 or float16, not 'float64'."),
        ({"batch_tokens": 0}, "batch_tokens= must be at least 1, not 0."),
        ({"score": 3}, "score is a word, not 3."),
        ({"foil": True}, "foil is a word or a number, not True."),
        ({"query": 0.5}, "query is a word or a number, not 0.5."),
        ({"target": ("a", True)}, "target is a word or a number, not ('a', True)."),
        ({"target": ("a", "b", "c")}, "target is a word or a number, not ('a', 'b', 'c')."),
        ({"target": ("a", "\ud800")}, "'\\ud800' holds half a character (a lone surrogate), which is no text."),
        ({"methods": ["\ud800"]}, "'\\ud800' holds half a character (a lone surrogate), which is no text."),
        ({"trust": 1}, "trust is True or False, not 1."),
        ({"generate": 0}, "generate= is how many tokens the model writes, at least 1, not 0."),
        (
            {"generate": 1, "trust": True, "query": 0, "maps": True, "target": "a"},
            "generate= explains each token that the model writes: leave target= and query= and maps= and trust= out.",
        ),
        ({"columns": ["a\n"]}, "'a\\n' is no name of a column."),
        ({"columns": ["\ud800"]}, "'\\ud800' is no name of a column."),
    ],
)
def test_what_a_plan_refuses(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as found:
        planned(**given)
    assert str(found.value) == told


def test_columns_that_a_run_writes_itself() -> None:
    always = ("row", "seconds", "alti", "mixing_ratio:x", 3)
    for name in always:
        with pytest.raises(InputError, match="is named twice, or is one that every run writes"):
            planned(columns=(name,))
    with pytest.raises(InputError, match="is named twice"):
        planned(columns=("a", "b", "a"))
    for name in ("without_random", "without:x", "turned:x", "completeness:x"):
        assert planned(columns=(name,)).columns == (name,)
        with pytest.raises(InputError, match="is named twice"):
            planned(columns=(name,), trust=True)
    for name in ("written", "written_ids", "layout", "written:x"):
        assert planned(columns=(name,)).columns == (name,)
        with pytest.raises(InputError, match="is named twice"):
            planned(columns=(name,), generate=1)
    assert [plan.is_computed(name) for name in ("row", "written", "layout", "turned:x", "turned_random", "alti")] == [
        *(True, False, True, True, True, False)
    ]
    assert [plan.is_count(value) for value in (0, 1, True, 1.0)] == [False, True, False, False]


def test_targets_that_no_row_could_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(plan, "output_id", lambda model, value, role: asked.append((value, role)))
    model: Any = SimpleNamespace(task="classification", name="m")
    maps: Any = {"alti": SimpleNamespace(class_specific=False)}
    both: Any = {**maps, "attcat": SimpleNamespace(class_specific=True)}
    plan.refuse_target(model, planned(), maps)
    for given in ({"target": "a"}, {"foil": "a"}, {"score": "logit"}):
        with pytest.raises(
            InputError, match=r"^'alti' explains a position, whatever the class or word: leave (target|foil|score)= out"
        ):
            plan.refuse_target(model, planned(**given), maps)
    plan.refuse_target(model, planned(target="gold"), both)
    assert asked == []
    plan.refuse_target(model, planned(target="a", foil="b"), both)
    assert asked == [("a", "target"), ("b", "foil")]
    model.task = "question-answering"
    plan.refuse_target(model, planned(target="a"), both)
    assert len(asked) == 2
    model.task = "base"
    with pytest.raises(InputError) as told:
        plan.refuse_target(model, planned(), both)
    assert str(told.value) == "'m' was loaded without a head, so 'attcat' has no prediction to explain."
