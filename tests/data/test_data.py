"""Datasets: every way to write a row, every file kind, bad rows by file and line, cues where they should be."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import SHARED
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import mixlens
from mixlens import data, types
from mixlens.base import errors
from mixlens.data import portions, rows, stored

DATA = SHARED / "data"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "use" / "data.md"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the folder `shared` (datasets) beside the project")


# --- writing files ----------------------------------------------------------------------------------------------------


def as_jsonl(path: Path, given: list[dict[str, Any]], *, ascii_: bool = False) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=ascii_) + "\n" for row in given), encoding="utf-8", newline="")
    return path


def as_csv(path: Path, given: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(given[0]))
        writer.writeheader()
        for row in given:
            writer.writerow(
                {k: v if isinstance(v, str | int) else json.dumps(v, ensure_ascii=False) for k, v in row.items()}
            )
    return path


def as_parquet(path: Path, given: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(given), path)
    return path


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], Path]] = {
    "rows.jsonl": as_jsonl,
    "rows.csv": as_csv,
    "rows.parquet": as_parquet,
}

# One row for every layout of every dataset.
PAIR = {"premise": "A cat sleeps.", "hypothesis": "An animal rests."}
ROWS: dict[str, list[dict[str, Any]]] = {
    "sst2": [{"sentence": "A fine film.", "label": 1}],
    "mnli": [{**PAIR, "label": "entailment"}],
    "snli": [{**PAIR, "label": 2}],
    "qqp": [{"question1": "Who?", "question2": "Which one?", "label": 0}],
    "mrpc": [{"sentence1": "He left.", "sentence2": "He went.", "label": 1}],
    "cola": [{"sentence": "Cats sleeps.", "label": 0}],
    "imdb": [{"text": "Dull.", "label": "neg"}],
    "yelp": [{"text": "Great soup!", "label": 1}],
    "amazon": [{"content": "Great book!", "label": 1}],
    "hatexplain": [
        {"tokens": ["you", "utter", "fool", "go", "away"], "label3": "offensive", "rationale": [0, 1, 1, 0, 1]},
        {
            "post_tokens": ["you", "utter", "fool", "go", "away"],
            "annotators": [{"label": 2}, {"label": 2}, {"label": 1}],
            "rationales": [[0, 0, 1, 0, 0], [0, 1, 1, 0, 1]],
        },
        {"text": "you utter fool go away", "label3": "offensive"},
    ],
    "hatexplain_toxic": [
        {"tokens": ["you", "fool"], "label2": "toxic", "rationale": [0, 1]},
        {"post_tokens": ["you", "fool"], "annotators": {"label": [0, 2, 0]}, "rationales": [[0, 1]]},
    ],
    "squad1": [
        {"question": "Who?", "context": "The cat sat.", "answers": [{"text": "cat", "start": 4}]},
        {"question": "Who?", "context": "The cat sat.", "answers": {"text": ["cat", "cat"], "answer_start": [4, 4]}},
    ],
    "squad2": [{"question": "Why?", "context": "The cat sat.", "answers": []}],
    "sva": [
        {"words": ["the", "keys", "are", "old"], "verb_index": 2, "verb": "are", "foil": "is", "number": "plural"},
        {"words": ["the", "keys", "are", "old"], "verb_index": 2, "verb": "are", "foil": "is", "cue_indices": [1]},
        {
            "orig_sentence": "the keys are old",
            "subj": "keys",
            "subj_index": 2,
            "verb_index": 3,
            "n_diff_intervening": 0,
            "verb_pos": "VBP",
        },
    ],
    "sva_goldberg": [{"n_attractors": 1, "masked": "the keys ***mask*** old", "good": "are", "bad": "is"}],
    "sva_gulordava": [
        {"words": ["the", "keys", "are"], "verb_index": 2, "verb": "are", "foil": "is", "number": "plur"}
    ],
    "blimp": [
        {
            "words_good": ["The", "keys", "are", "not", "old", "."],
            "target_index": 2,
            "good_word": "are",
            "bad_word": "is",
            "cue_indices": [1],
            "label": "plural",
            "task": "rpsv",
        },
        {
            "UID": "regular_plural_subject_verb_agreement_1",
            "sentence_good": "The keys aren't old.",
            "sentence_bad": "The keys isn't old.",
        },
    ],
    "ud_english": [
        {"text": "I don't.", "tokens": ["I", "do", "n't", "."], "upos": ["PRON", "AUX", "PART", "PUNCT"]},
        {"text": "I don't.", "tokens": ["I", "don't", "do", "n't", "."], "upos": ["PRON", "_", "AUX", "PART", "PUNCT"]},
        {"tokens": ["I", "do"], "upos": ["PRON", "AUX"]},
    ],
    "wikitext": [{"text": "The lobster is blue . " * 8}],
}
LABELS = {
    "sst2": "positive",
    "mnli": "entailment",
    "snli": "contradiction",
    "qqp": "not_duplicate",
    "mrpc": "equivalent",
    "cola": "unacceptable",
    "imdb": "negative",
    "yelp": "positive",
    "amazon": "positive",
    "hatexplain": "offensive",
    "hatexplain_toxic": "toxic",
}
CASES = [(name, i) for name, given in ROWS.items() for i in range(len(given))]


def words_at(example: types.Example, spans: Any, *, of: str = "text") -> list[str]:
    return [getattr(example, of)[span[0] : span[1]] for span in spans]


def one(name: str, row: dict[str, Any], folder: Path) -> types.Example:
    (example,) = data.load(name, path=as_jsonl(folder / "one.jsonl", [row]))
    return example


# --- rows to examples -------------------------------------------------------------------------------------------------


def test_every_dataset_has_a_row_here_for_every_layout() -> None:
    for name, dataset in data.DATASETS.items():
        for layout in dataset.layouts:
            known = ROWS["blimp"] if name.startswith("blimp_") else ROWS[name]
            assert any(all(field in row for field in layout.needs) for row in known), (name, layout.needs)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_row_gives_the_same_example_from_every_kind_of_file(name: str, case: int, tmp_path: Path) -> None:
    row = ROWS[name][case]
    columns = data.DATASETS[name].columns
    if columns is not None:  # a file without a header
        cells = {"sentence": "the keys are old"} | {key: str(value) for key, value in row.items()}
        path = tmp_path / "rows.tsv"
        path.write_text("\t".join(cells[column] for column in columns) + "\n")
        assert list(data.load(name, path=path)) == [one(name, row, tmp_path)]
        return
    found = [list(data.load(name, path=write(tmp_path / file, [row]))) for file, write in WRITERS.items()]
    assert [example.id for (example,) in found] == ["1", "2", "1"]  # a CSV file has its header on line 1
    first, *others = (replace(example, id=None) for (example,) in found)
    assert all(example == first for example in others)
    assert first.info.get("label") == LABELS.get(name)


def test_what_rows_say_about_their_texts(tmp_path: Path) -> None:
    pair = one("mnli", ROWS["mnli"][0], tmp_path)
    assert (pair.text, pair.pair) == ("A cat sleeps.", "An animal rests.")

    for row in ROWS["hatexplain"][:2]:
        post = one("hatexplain", row, tmp_path)
        assert words_at(post, post.info["rationale"]) == ["utter fool", "away"]  # neighbours are one span
    assert "rationale" not in one("hatexplain", ROWS["hatexplain"][2], tmp_path).info

    for row in ROWS["squad1"]:
        asked = one("squad1", row, tmp_path)
        assert words_at(asked, asked.info["answers"], of="pair") == ["cat"]
    assert one("squad2", ROWS["squad2"][0], tmp_path).info["answers"] == ()

    row = {
        "tokens": ["I", "don't", "do", "n't"],
        "upos": ["PRON", "_", "AUX", "PART"],
        "xpos": ["PRP", "_", "VBP", "RB"],
    }
    assert one("ud_english", {**row, "text": "I don't"}, tmp_path).info["penn"] == (
        (0, 1, "PRP"),
        (2, 4, "VBP"),
        (4, 7, "RB"),
    )
    for row, tags in zip(ROWS["ud_english"], ("PRON AUX PART PUNCT", "PRON AUX PART PUNCT", "PRON AUX"), strict=True):
        tagged = one("ud_english", row, tmp_path)
        assert [tag for *_, tag in tagged.info["pos"]] == tags.split()
        assert words_at(tagged, tagged.info["pos"]) == ["I", "do", "n't", "."][: len(tags.split())]


def test_gaps_and_cues(tmp_path: Path) -> None:
    for name in ("sva", "sva_goldberg", "sva_gulordava", "blimp"):
        for row in ROWS[name]:
            example = one(name, row, tmp_path)
            assert words_at(example, [example.info["mask"]]) == ["[MASK]"]
            assert example.target == "are"
            assert example.foil == (None if "subj" in row else "is")
            known = name == "blimp" or "subj" in row or "cue_indices" in row
            assert words_at(example, example.cues) == (["keys"] if known else [])
    assert one("blimp", ROWS["blimp"][1], tmp_path).text == "The keys [MASK] not old."
    assert one("sva", ROWS["sva"][2], tmp_path).info == {"n_attractors": 0, "number": "plural", "mask": (9, 15)}
    assert one("sva_gulordava", ROWS["sva_gulordava"][0], tmp_path).info["number"] == "plural"


def test_posts_on_which_people_disagree_are_left_out_and_normal_ones_have_no_rationale(tmp_path: Path) -> None:
    post = {"post_tokens": ["go", "away"], "rationales": [[1, 1]]}
    path = as_jsonl(
        tmp_path / "x.jsonl", [{**post, "annotators": {"label": votes}} for votes in ([0, 1, 2], [1, 1, 0])]
    )
    (kept,) = data.load("hatexplain", path=path)
    assert kept.id == "2"
    assert kept.info == {"label": "normal", "rationale": ()}


def test_rows_of_other_templates_are_not_part_of_a_blimp_task(tmp_path: Path) -> None:
    row = ROWS["blimp"][1]
    path = as_jsonl(tmp_path / "x.jsonl", [row | {"UID": "wh_island"}, row])
    assert [example.id for example in data.load("blimp", path=path)] == ["2"]
    assert [example.info["task"] for example in data.load("blimp_rpsv", path=path)] == ["rpsv"]
    with pytest.raises(errors.InputError, match=r"x\.jsonl holds no example of 'blimp_ana'"):
        data.load("blimp_ana", path=path)


@pytest.mark.parametrize(
    ("task", "good", "bad", "text", "cues", "number"),
    [
        (
            "ana",
            "The boys can't hurt themselves.",
            "The boys can't hurt himself.",
            "The boys cannot hurt [MASK].",
            "The boys",
            "plural",
        ),
        (
            "ana",
            "A lot of boys saw themselves.",
            "A lot of boys saw himself.",
            "A lot of boys saw [MASK].",
            "A lot of boys",
            "plural",
        ),
        ("ana", "Ann won't see herself.", "Ann won't see themselves.", "Ann will not see [MASK].", "Ann", "singular"),
        (
            "dna",
            "Ann cleans this art gallery.",
            "Ann cleans these art gallery.",
            "Ann cleans [MASK] art gallery.",
            "gallery",
            "singular",
        ),
        (
            "dnaa",
            "Ann cleans that old rug.",
            "Ann cleans those old rug.",
            "Ann cleans [MASK] old rug.",
            "rug",
            "singular",
        ),
        ("darn", "The old men of Ann run.", "The old men of Ann runs.", "The old men of Ann [MASK].", "men", "plural"),
        ("rpsv", "The keys haven't shone.", "The keys hasn't shone.", "The keys [MASK] not shone.", "keys", "plural"),
        ("rpsv", "The key shines.", "The key shine.", "The key [MASK].", "key", "singular"),
        ("rpsv2", "The key shines.", "The keys shines.", "The [MASK] shines.", "shines", "singular"),
        ("rpsv2", "The women shine.", "The woman shine.", "The [MASK] shine.", "shine", "plural"),
    ],
)
def test_the_rules_of_each_template(
    task: str, good: str, bad: str, text: str, cues: str, number: str, tmp_path: Path
) -> None:
    (uid,) = data.DATASETS[f"blimp_{task}"].templates
    example = one(f"blimp_{task}", {"UID": uid, "sentence_good": good, "sentence_bad": bad}, tmp_path)
    assert example.text == text
    assert words_at(example, example.cues) == cues.split()
    assert example.info["number"] == number


def test_a_verb_whose_two_forms_are_of_one_length_has_no_known_number(tmp_path: Path) -> None:
    uid = "regular_plural_subject_verb_agreement_1"
    row = {"UID": uid, "sentence_good": "The keys abc.", "sentence_bad": "The keys abd."}
    assert "number" not in one("blimp_rpsv", row, tmp_path).info


def gap_of(i: int, task: str, number: str) -> types.Example:
    return types.Example(f"text {i}", id=str(i), info={"task": task, "number": number})


def test_halves_are_balanced_disjoint_whole_and_the_same_again() -> None:
    """Of 13 singular and 9 plural rpsv sentences 9 each are kept; another task stays as it is."""
    kinds = ["rpsv singular"] * 13 + ["rpsv plural"] * 9 + ["dna singular"] * 5 + ["dna plural"] * 4
    examples = [gap_of(i, *kind.split()) for i, kind in enumerate(kinds)]
    whole = list(portions.portion(examples, None, balanced=("rpsv",)))
    counts = Counter((e.info["task"], e.info["number"]) for e in whole)
    assert counts == {("rpsv", "singular"): 9, ("rpsv", "plural"): 9, ("dna", "singular"): 5, ("dna", "plural"): 4}
    train, test = (list(portions.portion(examples, half, balanced=("rpsv",))) for half in ("train", "test"))
    assert sorted(int(e.id or 0) for e in (*train, *test)) == [int(e.id or 0) for e in whole]
    assert [len(train), len(test)] == [14, 13]  # the odd ones: one of each number of rpsv to train, one of dna to test
    for half in (train, test):
        numbers = Counter(e.info["number"] for e in half if e.info["task"] == "rpsv")
        assert numbers["singular"] == numbers["plural"]
        assert [int(e.id or 0) for e in half] == sorted(int(e.id or 0) for e in half)
        assert list(portions.portion(half, None, balanced=("rpsv",))) == half
    assert list(portions.portion(reversed(examples), "test", balanced=("rpsv",))) != test  # drawn by place
    assert list(portions.portion(iter(examples), "test", balanced=("rpsv",))) == test


@pytest.mark.parametrize(("name", "case"), CASES)
def test_an_example_that_was_written_is_read_again_as_it_was(name: str, case: int, tmp_path: Path) -> None:
    if data.DATASETS[name].columns is not None:
        return  # a file without a header
    example = one(name, ROWS[name][case], tmp_path)
    (tmp_path / "stored.jsonl").write_text(stored.jsonl([example]), encoding="utf-8")
    assert list(data.load(name, path=tmp_path / "stored.jsonl")) == [example]


def test_sentences_of_a_grammar_are_read_again_too(tmp_path: Path) -> None:
    sentences = list(data.load("agreement", n=5))
    (tmp_path / "stored.jsonl").write_text(stored.jsonl(sentences), encoding="utf-8")
    assert list(data.load("agreement", path=tmp_path / "stored.jsonl")) == sentences


@pytest.mark.parametrize("label", [-1, "-1", None, ""])
def test_a_hidden_label_is_no_label(label: Any, tmp_path: Path) -> None:
    assert one("sst2", {"sentence": "Fine.", "label": label}, tmp_path).info == {}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sst2", {"label": 2}, "label 2 is neither one of negative, positive nor a number from 0 to 1"),
        ("sst2", {"label": "maybe"}, "label 'maybe' is neither"),
        ("sst2", {"sentence": 7}, "field 'sentence' holds int '7', not text"),
        ("sst2", {"sentence": " "}, "field 'sentence' is empty"),
        ("sst2", {"sentence": "\ud83d"}, "a lone surrogate"),
        ("mnli", {"premise": None}, "field 'premise' holds nothing, not text"),
        ("hatexplain", {"rationale": [1]}, "1 marks for 5 tokens"),
        ("hatexplain", {"tokens": "you fool"}, "field 'tokens' should hold a list"),
        ("hatexplain", {"tokens": ["you", ""]}, "none of them empty"),
        (
            "squad1",
            {"answers": [{"text": "cat", "start": 5}]},
            "the answer 'cat' is not in the paragraph at character 5",
        ),
        ("squad1", {"answers": [{"words": "cat"}]}, "not as documented (KeyError"),
        ("squad1", {"answers": 3}, "not as documented (TypeError"),
        ("sva", {"verb_index": 9}, "field 'verb_index' points at word 9 of 4"),
        ("sva", {"verb_index": "two"}, "not a whole number"),
        ("sva", {"verb_index": 1}, "the word left out should be 'are', but the sentence has 'keys' there"),
        ("sva", {"cue_indices": [2]}, "cannot be its own cue"),
        ("sva", {"cue_indices": [-1]}, "points at word -1"),
        ("sva", {"foil": "are"}, "or its own foil"),
        ("sva_goldberg", {"masked": "no gap"}, "0 times ***mask***, not once"),
        ("ud_english", {"tokens": ["I", "do", "not", "."]}, "no 'not' after character 4"),
        ("ud_english", {"text": "I really don't."}, "no 'do' after character 1"),
        ("ud_english", {"upos": ["PRON"]}, "1 parts of speech for 4 tokens"),
    ],
)
def test_a_wrong_row_is_named_by_file_line_and_reason(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    right = ROWS[name][0]
    path = as_jsonl(tmp_path / "some.jsonl", [right, right | change], ascii_=True)
    found = data.load(name, path=path)  # the first row is right
    next(found)
    with pytest.raises(data.RowError, match=r"some\.jsonl, line 2: ") as error:
        next(found)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_pairs_and_wrong_subjects(tmp_path: Path) -> None:
    blimp, linzen = ROWS["blimp"][1], ROWS["sva"][2]
    with pytest.raises(data.RowError, match="do not differ in one word"):
        one("blimp", blimp | {"sentence_bad": "The key is old."}, tmp_path)
    with pytest.raises(data.RowError, match="the subject should be 'doors', but the sentence has 'keys' there"):
        one("sva", linzen | {"subj": "doors"}, tmp_path)


# --- files ------------------------------------------------------------------------------------------------------------


def test_rows_carry_the_line_they_begin_on(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbftext,label\r\n"two\r\nlines, and ""quotes""",1\r\n\r\nplain,0')
    assert list(rows(path)) == [
        (2, {"text": 'two\r\nlines, and "quotes"', "label": "1"}),
        (5, {"text": "plain", "label": "0"}),
    ]
    path = tmp_path / "x.tsv"
    path.write_text('text\tlabel\n"a quote is a letter\t1\n')
    assert list(rows(path)) == [(2, {"text": '"a quote is a letter', "label": "1"})]
    assert next(rows(path, columns=("a", "b"))) == (1, {"a": "text", "b": "label"})
    path = tmp_path / "x.txt"
    path.write_bytes("one\n\n  \n two\u2028still two \r\nthree".encode())
    assert list(rows(path)) == [(1, {"text": "one"}), (4, {"text": " two\u2028still two "}), (5, {"text": "three"})]
    path = tmp_path / "x.ndjson"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\n\n{"text": "two"}\n')
    assert list(rows(path)) == [(1, {"text": "one"}), (3, {"text": "two"})]


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
TABLE = st.lists(st.fixed_dictionaries({"text": ANY_TEXT, "pair": ANY_TEXT}), min_size=1, max_size=5)
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(table=TABLE, ascii_=st.booleans())
def test_reading_gives_back_any_text(table: list[dict[str, str]], ascii_: bool, tmp_path: Path) -> None:
    there = [row for row in table if any(row.values())]
    assume(there)  # a file without a row is refused
    files = {as_jsonl(tmp_path / "x.jsonl", table, ascii_=ascii_): table, as_csv(tmp_path / "x.csv", table): there}
    for path, expected in files.items():
        assert [row for _, row in rows(path)] == expected
        found = [one for one in data.read(path, text_field="text", keep_bad=True) if isinstance(one, types.Example)]
        assert [example.text for example in found] == [row["text"] for row in table if row["text"].strip()]


BROKEN = {
    "x.jsonl": (
        b'{"text": "one"}\n{"text": \n["text"]\n{"text": "\xff"}\n{"other": 1}\n{"text": null}\n'
        + b"[" * 100_000
        + b'\n{"text": "eight"}\n',
        {
            2: "not JSON",
            3: "a JSON list, not an object",
            4: "not UTF-8 (byte 0xff)",
            5: "holds nothing",
            6: "holds nothing",
            7: "not JSON",
        },
    ),
    "x.csv": (
        b'text,label\none,1\ntwo\n"three"x,1\nfo\xffur,1\n"fi\nve",1\nseven,1,1\nlast,1\n',
        {3: "1 cells where there should be 2", 4: "not CSV", 5: "not UTF-8 (byte 0xff)", 8: "3 cells where"},
    ),
    "x.tsv": (b"text\tlabel\none\t1\ntwo\t2\t2\nthree\t1\n", {3: "3 cells where there should be 2"}),
    "x.txt": (b"one\n\xe4\ntwo\n", {2: "not UTF-8 (byte 0xe4). Save the file as UTF-8"}),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_bad_rows_take_their_place_or_stop_the_reading(name: str, tmp_path: Path) -> None:
    content, wrong = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    found = list(data.read(path, keep_bad=True))
    bad = {error.number: error for error in found if isinstance(error, data.RowError)}
    assert bad.keys() == wrong.keys()
    for number, reason in wrong.items():
        assert reason in bad[number].reason
        assert str(bad[number]).startswith(f"{name}, line {number}: ")
        assert "\n" not in str(bad[number])
    good = [example for example in found if isinstance(example, types.Example)]
    assert good[0].text == "one"
    assert len(good) >= 2
    strict = data.read(path)
    assert next(strict) == good[0]
    with pytest.raises(data.RowError, match=f"{name}, line {min(wrong)}"):
        list(strict)


def test_a_file_of_another_kind_than_its_name_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("plain\n" * 2000)
    with pytest.raises(
        errors.InputError, match=r"none of the first 1000 rows can be read. The first: x\.jsonl, line 1: not JSON"
    ):
        data.read(tmp_path / "x.jsonl", keep_bad=True)
    (tmp_path / "y.jsonl").write_text("plain\n" * 20)
    assert len(list(data.read(tmp_path / "y.jsonl", keep_bad=True))) == 20


def test_a_row_error_survives_a_process_boundary() -> None:
    error = data.RowError("x.csv", 3, "no", "row")
    again = type(error)(*error.args)
    assert str(again) == str(error) == "x.csv, row 3: no"


def test_parquet_rows_and_damage(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = as_parquet(tmp_path / "x.parquet", [{"text": f"number {i}"} for i in range(3000)])
    assert [number for number, _ in rows(path)] == list(range(1, 3001))
    assert next(data.read(path)).text == "number 0"
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(errors.InputError, match=r"'damaged\.parquet' is not a Parquet file"):
        data.read(damaged)
    texts = pyarrow.array([b"fine", b"\xff", b"too"], pyarrow.binary()).cast(pyarrow.string(), safe=False)
    bytes_ = pyarrow.StringArray.from_buffers(3, texts.buffers()[1], texts.buffers()[2])
    parquet.write_table(pyarrow.table({"text": bytes_}), tmp_path / "bytes.parquet")
    kept = list(data.read(tmp_path / "bytes.parquet", keep_bad=True))
    assert [str(one.id) if isinstance(one, types.Example) else str(one) for one in kept] == [
        "1",
        "bytes.parquet, row 2: not UTF-8 (byte 0xff). Save the file as UTF-8.",
        "3",
    ]


@pytest.mark.parametrize("kind", ["x.jsonl", "x.csv"])
def test_a_file_is_never_held_whole(kind: str, tmp_path: Path) -> None:
    table = [{"text": f"{i} " + "word " * 400} for i in range(4000)]  # 8 MB
    path = WRITERS["rows" + Path(kind).suffix](tmp_path / kind, table)
    del table
    size = path.stat().st_size
    tracemalloc.start()
    count = sum(1 for _ in data.read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000
    assert peak < size / 8


@pytest.mark.parametrize(
    ("name", "header", "told"),
    [
        ("x.csv", "text;label", "a semicolon stands between the fields, and a .csv file is read with a comma there."),
        (
            "x.csv",
            '"text";"label"',
            "a semicolon stands between the fields, and a .csv file is read with a comma there.",
        ),
        ("x.csv", "text\tlabel", "With tabs between them it is read as .tsv."),
        ("x.tsv", "review text,label", "a comma stands between the fields, and a .tsv file is read with a tab there."),
    ],
)
def test_another_sign_between_the_fields_is_told(name: str, header: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{header}\nA good, old film;1\n")
    with pytest.raises(errors.InputError, match=re.escape(told)):
        list(data.read(tmp_path / name))


def test_one_column_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text; as written\nA good film\n")
    assert [example.text for example in data.read(tmp_path / "x.csv", text_field="text; as written")] == ["A good film"]


def test_the_csv_module_keeps_its_limit(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "x.csv", [{"text": "long " * 100_000}])
    before = csv.field_size_limit(1000)
    try:
        assert len(next(data.read(path)).text) == 500_000
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


# --- what is refused before the first example -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: data.load("sst-2", path=f / "a.jsonl"), "unknown dataset 'sst-2'. Did you mean 'sst2'"),
        (
            lambda f: data.load("sst22"),
            "no file, no dataset of `mixlens data` and no hub id (owner/name). Did you mean 'sst2'",
        ),
        (lambda f: data.load("sst2", path=f / "none.jsonl"), "no file "),
        (lambda f: data.load("sst2", path=f / "a.xlsx"), "'a.xlsx' is of no known kind. Known: .csv, .jsonl"),
        (
            lambda f: data.load("sst2", path=f / "a.jsonl"),
            "a.jsonl is not written as 'sst2': it needs the fields sentence + label. It has: 'text', 'n'",
        ),
        (lambda f: data.load("sst2", path=f / "a.jsonl", split="dev"), "is one file and is read whole"),
        (lambda f: data.load("sst2", path=f, split="dev"), "0 files for split 'dev'"),
        (
            lambda f: data.load("sst2", path=f),
            "3 files to read 'sst2' from. There are: a.jsonl, empty.csv, wrong.ndjson. Give split=",
        ),
        (lambda f: data.load("imdb", path=f / "wrong.ndjson"), "wrong.ndjson, line 1: label 7 is neither"),
        (
            lambda f: data.read(f / "wrong.ndjson", text_field="label"),
            "wrong.ndjson, line 1: field 'label' holds int '7', not text",
        ),
        (lambda f: data.load("imdb", path=f / "empty.csv"), "empty.csv holds no example of 'imdb'"),
        (lambda f: data.load("sva"), "'sva' is not on the hub. Give a local file as path=: .jsonl"),
        (lambda f: data.load("imdb", path=f / "a.jsonl", n=0), "n must be at least 1, not 0"),
        (lambda f: data.load(f / "a.jsonl", seed=1), "say how many, n="),
        (
            lambda f: data.load("agreement", path=f / "a.jsonl"),
            "is not written as 'agreement': it needs the fields text + info.",
        ),
        (lambda f: data.load("blimp_vz", split="dev"), "there is no split 'dev'"),
        (lambda f: data.load("agreement", split="dev"), "no split 'dev'. Known: heldout, train"),
        (lambda f: data.read(f / "a.jsonl", text_field="body"), "a.jsonl has no field 'body'. It has: 'text', 'n'"),
        (lambda f: data.read(f / "a.jsonl", pair_field="b"), "no field 'b'"),
        (lambda f: data.read(f / "a.jsonl", label_field="b"), "no field 'b'"),
        (lambda f: data.read(f / "a.jsonl", split="train"), "leave split= out"),
        (lambda f: data.read(f / "a.jsonl", limit=0), "limit must be at least 1"),
        (data.read, "is no file, no dataset"),
        (lambda f: data.read(f / "empty.csv"), "holds no row"),
        (lambda f: data.read("sst2", text_field="text"), "'sst2' knows its own fields: leave text_field out"),
    ],
)
def test_refused_before_the_first_example(call: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    as_jsonl(tmp_path / "a.jsonl", [{"text": "a", "n": 1}])
    (tmp_path / "empty.csv").write_text("text,label\n")
    (tmp_path / "a.xlsx").write_text("")
    as_jsonl(tmp_path / "wrong.ndjson", [{"text": "a", "label": 7}])
    with pytest.raises(errors.InputError) as error:
        call(tmp_path)  # not even `next`
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may read everything: as root the test is another user for a while."""
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 0)
        yield
        os.setresuid(0, 0, 0)
    else:
        yield


def test_a_file_that_may_not_be_read(nobody: None) -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that this user owns
        path = as_jsonl(Path(folder) / "a.jsonl", [{"text": "a"}])
        path.chmod(0)
        with pytest.raises(errors.InputError, match="may not be read"):
            data.read(path)


@pytest.mark.parametrize("header", [b"text,text\n", b"text,\n", b"te\xffxt\n"])
def test_a_header_must_name_every_column_once(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(header + b"1,2\n")
    with pytest.raises(data.RowError, match=r"x\.csv, line 1"):
        data.read(path, keep_bad=True)


@pytest.mark.parametrize("package", ["datasets", "pyarrow"])
def test_a_package_that_is_not_there_is_named_with_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.parquet").write_bytes(b"")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(errors.InputError, match=rf"needs the package {package}: pip install .*\[data\]'"):
        data.load("sst2", path=None if package == "datasets" else tmp_path / "x.parquet")


# --- how many ---------------------------------------------------------------------------------------------------------


def test_the_first_n_or_n_drawn(tmp_path: Path) -> None:
    path = as_jsonl(tmp_path / "x.jsonl", [{"text": f"t{i}", "label": i % 2} for i in range(200)])

    def ids(**options: Any) -> list[int]:
        return [int(str(example.id)) for example in data.load("imdb", path=path, **options)]

    assert ids(n=5) == [1, 2, 3, 4, 5]
    assert ids() == list(range(1, 201))
    assert ids(n=300, seed=0) == ids()
    drawn = ids(n=20, seed=3)
    assert drawn == ids(n=20, seed=3) == sorted(set(drawn))
    assert drawn != ids(n=20, seed=4)
    often = Counter(i for seed in range(400) for i in ids(n=20, seed=seed))
    halves = sum(often[i] for i in range(1, 101)), sum(often[i] for i in range(101, 201))
    assert abs(halves[0] - halves[1]) < 400  # of 8,000; nine in ten thousand draws would be further apart
    assert [example.id for example in data.load(path, n=2)] == ["1", "2"]


def test_a_sample_stays_what_it_was(tmp_path: Path) -> None:
    path = as_jsonl(tmp_path / "x.jsonl", [{"text": f"t{i}"} for i in range(100)])
    assert [example.id for example in data.load(path, n=5, seed=0)] == SAMPLE


SAMPLE = ["2", "9", "31", "46", "58"]


def test_a_folder_holds_one_file_for_each_split(tmp_path: Path) -> None:
    as_jsonl(tmp_path / "dev.jsonl", [{"sentence": "Dev.", "label": 1}])
    as_csv(tmp_path / "train.csv", [{"sentence": "Train.", "label": 1}])
    assert [
        example.text for split in ("dev", "train") for example in data.load("sst2", path=tmp_path, split=split)
    ] == [
        "Dev.",
        "Train.",
    ]


def test_reading_any_texts(tmp_path: Path) -> None:
    path = as_csv(
        tmp_path / "x.csv",
        [{"id": "z", "a": "one", "b": "two", "c": "yes"}, {"id": "z", "a": "three", "b": "four", "c": "no"}],
    )
    found = list(data.read(path, text_field="a", pair_field="b", label_field="c"))
    assert found == [
        types.Example("one", "two", id="2", info={"label": "yes"}),
        types.Example("three", "four", id="3", info={"label": "no"}),
    ]
    assert len(list(data.read(path, text_field="a", limit=1))) == 1
    assert next(data.read(as_jsonl(tmp_path / "x.jsonl", [{"sentence": "s", "n": 1}]))).text == "s"
    (tmp_path / "x.txt").write_text("plain\ntext\n")
    assert [example.text for example in data.read(tmp_path / "x.txt")] == ["plain", "text"]
    (first,) = data.read("agreement", limit=1)
    assert first.cues


def test_an_example_is_still_a_key_of_a_set() -> None:
    known = types.Example("a", info={"label": "x"})
    assert hash(known) == hash(types.Example("a"))
    assert known != types.Example("a")
    assert len({known, types.Example("a", info={"label": "x"})}) == 1


# --- the grammar ------------------------------------------------------------------------------------------------------


def test_the_grammar_is_a_dataset_with_known_cues() -> None:
    examples = list(data.load("agreement", n=300, seed=1))
    assert examples == list(data.load("agreement", n=300, seed=1))
    assert examples != list(data.load("agreement", n=300, seed=2))
    assert not {example.text for example in examples} & {
        example.text for example in data.load("agreement", n=300, split="train")
    }
    assert len({example.id for example in examples}) == 300
    for example in examples:
        assert words_at(example, [example.info["mask"]]) == ["[MASK]"]
        assert example.cues
    for example in data.load("sentiment", n=50, seed=1):
        assert example.target is None
        assert example.info["label"] in data.DATASETS["sentiment"].labels
        assert example.cues


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What `datasets` would fetch, put in its place; gives the calls back."""
    library = pytest.importorskip("datasets")
    monkeypatch.setattr("mixlens.data.hub._unreachable", lambda: False)

    def put(given: list[dict[str, Any]], features: Any = None) -> list[Any]:
        calls: list[Any] = []

        def load_dataset(*asked: Any, **options: Any) -> Any:
            calls.append((*asked, options))
            return library.Dataset.from_list(given, features=features)

        monkeypatch.setattr(library, "load_dataset", load_dataset)
        return calls

    return put


def test_a_dataset_from_the_hub(hub: Callable[..., list[Any]]) -> None:
    from datasets import ClassLabel, Features, List, Value

    names = ClassLabel(names=["negative", "positive"])
    calls = hub(
        [{"sentence": "Fine.", "label": 1, "idx": 0}] * 2,
        Features(sentence=Value("string"), label=names, idx=Value("int32")),
    )
    assert list(data.load("sst2")) == [types.Example("Fine.", id=str(i), info={"label": "positive"}) for i in (1, 2)]
    assert calls == [("nyu-mll/glue", "sst2", {"split": "validation", "data_dir": None, "revision": None})]
    assert next(data.load("sst2", split="train")).text == "Fine."
    assert calls[-1][-1]["split"] == "train"

    tags = ClassLabel(names=["NOUN", "_", "VERB"])
    hub([{"tokens": ["Cats", "sleep"], "upos": [0, 2]}], Features(tokens=List(Value("string")), upos=List(tags)))
    assert next(data.load("ud_english")).info["pos"] == ((0, 4, "NOUN"), (5, 10, "VERB"))

    calls = hub([ROWS["blimp"][1] | {"pair_id": 3}])
    assert len(list(data.load("blimp_rpsv"))) == 1
    assert [call[1] for call in calls] == ["regular_plural_subject_verb_agreement_1"]
    assert len(list(data.load("blimp"))) == len({call[1] for call in calls}) == 6

    calls = hub([{"body": "Some text."}])
    assert [example.text for example in data.read("owner/name:part", text_field="body", split="test")] == ["Some text."]
    assert calls == [("owner/name", "part", {"split": "test", "data_dir": None, "revision": None})]


def test_hub_rows_of_another_shape_are_refused_at_once(hub: Callable[..., list[Any]]) -> None:
    hub([{"text": "a"}])
    with pytest.raises(
        errors.InputError, match=r"nyu-mll/glue:sst2 is not written as 'sst2': it needs the fields sentence \+ label"
    ):
        data.load("sst2")


def test_a_hub_that_refuses(hub: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    hub([])

    def refuse(*asked: Any, **options: Any) -> Any:
        raise ValueError("Unknown split\n'dev'.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    message = r"cannot read 'nyu-mll/glue', split 'dev', from the hub: Unknown split 'dev'\. A local file would do, as path=: \.jsonl"  # noqa: E501
    with pytest.raises(errors.InputError, match=message):
        data.load("sst2", split="dev")


def test_without_a_connection_it_says_so_at_once_and_names_the_file_that_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets = pytest.importorskip("datasets")

    def refused(*address: Any, **options: Any) -> Any:
        raise OSError("no route")

    monkeypatch.setattr("socket.create_connection", refused)
    monkeypatch.setattr("mixlens.data.hub.getproxies", dict)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        errors.InputError,
        match=r"the hub cannot be reached, so 'nyu-mll/glue' .* \.parquet, .* fields sentence \+ label",
    ):
        data.load("sst2")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)  # then only the cache is asked, which has nothing
    with pytest.raises(
        errors.InputError, match=r"cannot read 'no-such/name', split 'train', from the hub: .* A local file would do"
    ):
        data.read("no-such/name")


# --- examples and a model ---------------------------------------------------------------------------------------------


def classifier(names: list[str]) -> Any:
    config = SimpleNamespace(id2label=dict(enumerate(names)))
    return SimpleNamespace(name="m", task="classification", hf_model=SimpleNamespace(config=config))


def test_labels_are_matched_by_name_and_never_guessed() -> None:
    assert data.label_ids(["negative", "positive"], classifier(["POS", "Negative"])) == {"negative": 1, "positive": 0}
    assert data.label_ids(["not_equivalent"], classifier(["NOT EQUIVALENT", "equivalent"])) == {"not_equivalent": 0}
    assert data.label_ids(["hatespeech", "normal"], classifier(["hate speech", "normal", "offensive"])) == {
        "hatespeech": 0,
        "normal": 1,
    }
    with pytest.raises(
        errors.InputError, match=r"'m' has 0 = LABEL_0, 1 = LABEL_1, which does not say .* labels=\{'negative': \?, 'po"
    ):
        data.label_ids(["negative", "positive"], classifier(["LABEL_0", "LABEL_1"]))
    order = data.DATASETS["sst2"].order
    assert data.label_ids(["positive"], classifier(["LABEL_0", "LABEL_1"]), given=order) == {"positive": 1}
    with pytest.raises(errors.InputError, match="gives no class for 'neutral'"):
        data.label_ids(["neutral"], classifier(["LABEL_0", "LABEL_1"]), given=order)
    with pytest.raises(errors.InputError, match="the label set does not match: 'contradiction' of the data"):
        data.label_ids(["contradiction", "entailment"], classifier(["entailment", "not_entailment"]))
    with pytest.raises(errors.InputError, match="is a masked-lm model: it has no classes"):
        data.label_ids(["positive"], mixlens.load("agreement"))


def test_check_gives_the_examples_back_or_counts_what_is_wrong() -> None:
    model = mixlens.load("sentiment")
    examples = list(data.load("sentiment", n=20))
    assert data.check(iter(examples), model, needs=("label", "cues")) == examples
    long = "good " * (model.max_tokens or 0)
    wrong = [*examples, *(types.Example(long, id=f"long-{i}") for i in range(5)), types.Example("Short.")]
    with pytest.raises(errors.InputError) as error:
        data.check(wrong, model, needs=("cues",))
    told = str(error.value)
    assert "not every one of 26 examples can be used with 'sentiment': " in told
    assert f"5 are longer than the {model.max_tokens} tokens it reads (long-0: " in told
    assert "long-2: " in told
    assert "long-3: " not in told
    assert "6 have no 'cues' (long-0, long-1, long-2 ...)" in told
    with pytest.raises(errors.InputError, match="1 have no 'label'"):
        data.check([*examples, types.Example("No label.")], model, needs=("label",))
    with pytest.raises(errors.InputError, match="the label set does not match: 'neutral'"):
        data.check([types.Example("x", info={"label": "neutral"})], model, needs=("label",))
    with pytest.raises(errors.InputError, match="no examples"):
        data.check([], model)


def byte_level(mask: str | None) -> Any:
    """A tokenizer like RoBERTa's or GPT-2's: a space belongs to the word after it, and rare words are cut to pieces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    special = [mask] if mask else []
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the keys to the cabinet are old"] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **({"mask_token": mask} if mask else {}))


def traced(text: str, pair: str | None, tokenizer: Any) -> Any:
    ids = tuple(tokenizer(text, pair)["input_ids"])
    return SimpleNamespace(text=text, pair=pair, input_ids=ids, model=SimpleNamespace(tokenizer=tokenizer, name="m"))


def test_cue_tokens_are_all_pieces_of_the_cue() -> None:
    tokenizer = byte_level(None)
    text = "the keys to the unforgettable cabinetmakers"
    start = text.index("unforgettable")
    example = types.Example(text, cues=((4, 8), (start, start + len("unforgettable"))))
    trace = traced(text, None, tokenizer)
    found = data.cue_tokens(example, trace)
    assert tokenizer.decode([trace.input_ids[i] for i in found]).replace(" ", "") == "keysunforgettable"
    assert len(found) > 3
    visible = [i for i, token in enumerate(trace.input_ids) if tokenizer.decode([token]).strip()]
    assert data.span_tokens([(0, len(text))], trace) == visible
    assert data.span_tokens([(3, 4)], trace) == []  # a space alone is nobody's
    with pytest.raises(errors.InputError, match="no token of 'm' covers the cue ' '"):
        data.cue_tokens(types.Example(text, cues=((3, 4),)), trace)
    with pytest.raises(errors.InputError, match="has no cue"):
        data.cue_tokens(types.Example(text), trace)
    with pytest.raises(errors.InputError, match="of another text"):
        data.cue_tokens(types.Example("other", cues=((0, 1),)), trace)
    with pytest.raises(errors.InputError, match="does not hold the tokens of its text"):
        data.span_tokens([(0, 1)], SimpleNamespace(**{**vars(trace), "input_ids": (1, 2)}))
    with pytest.raises(errors.InputError, match="no second text"):
        data.span_tokens([(0, 1)], trace, pair=True)


def test_answers_are_found_in_the_second_text() -> None:
    tokenizer = byte_level(None)
    trace = traced("who are old", "the keys are old", tokenizer)
    found = data.span_tokens([(4, 8)], trace, pair=True)
    assert tokenizer.decode([trace.input_ids[i] for i in found]) == " keys"
    assert min(found) > max(data.span_tokens([(0, 11)], trace))


def test_cue_tokens_of_the_embedded_model() -> None:
    model = mixlens.load("agreement")
    for example in data.check(data.load("agreement", n=40), model, needs=("cues", "target", "foil")):
        trace = model.trace(example)
        for cue in example.cues:
            positions = data.cue_tokens(types.Example(example.text, cues=(cue,)), trace)
            assert "".join(trace.tokens[i].removeprefix("##") for i in positions) == example.text[slice(*cue)].lower()
        assert trace.query in data.span_tokens([example.info["mask"]], trace)


def test_the_gap_is_written_as_the_model_writes_it() -> None:
    example = types.Example(
        "The [MASK] near the doors are old.",
        target="keys",
        cues=((26, 29),),
        id="x",
        info={"mask": (4, 10), "attractors": ((20, 25),), "pos": ((0, 3, "DET"), (20, 25, "NOUN")), "task": "t"},
    )
    masked = SimpleNamespace(name="m", task="masked-lm", tokenizer=byte_level("<mask>"), max_tokens=None)
    fitted = data.for_model(example, masked)
    assert fitted.text == "The <mask> near the doors are old."
    wider = data.for_model(
        example, SimpleNamespace(**{**vars(masked), "tokenizer": SimpleNamespace(mask_token="<the mask>")})
    )
    for moved in (fitted, wider):
        assert words_at(moved, moved.cues) == ["are"]
        assert words_at(moved, moved.info["attractors"]) == ["doors"]
        assert words_at(moved, moved.info["pos"]) == ["The", "doors"]
        assert [tag for *_, tag in moved.info["pos"]] == ["DET", "NOUN"]
    assert wider.text[slice(*wider.info["mask"])] == "<the mask>"
    with pytest.raises(
        errors.InputError, match=r"1 write the gap as \[MASK\], this model as <mask>: pass them through for_model \(x\)"
    ):
        data.check([example], masked)
    assert data.check([fitted], masked) == [fitted]

    writer = SimpleNamespace(name="w", task="causal-lm", tokenizer=byte_level(None), max_tokens=None)
    with pytest.raises(
        errors.InputError,
        match="x is of no use to 'w', which reads from left to right: its cue 'are' comes after the gap",
    ):
        data.for_model(example, writer)
    known = types.Example(
        "The keys [MASK] old.",
        target="are",
        cues=((4, 8),),
        info={"mask": (9, 15), "pos": ((4, 8, "NOUN"), (16, 19, "ADJ"))},
    )
    with pytest.raises(errors.InputError, match="this model by ending there"):
        data.check([known], writer)
    cut = data.for_model(known, writer)
    assert (cut.text, cut.cues, cut.info) == ("The keys", ((4, 8),), {"pos": ((4, 8, "NOUN"),)})
    assert data.check([cut], writer) == [cut]
    assert data.for_model(types.Example("a"), writer) == types.Example("a")
    with pytest.raises(errors.InputError, match="it begins with the gap"):
        data.for_model(types.Example("[MASK] keys", info={"mask": (0, 6)}), writer)


# --- the list, the page, the real data --------------------------------------------------------------------------------


def test_the_list_and_the_page_name_every_dataset() -> None:
    heading, *table = data.listing()
    assert [row[0] for row in table] == list(data.DATASETS)
    assert all(len(row) == len(heading) and all(row[:3]) and all(row[4:]) for row in table)
    page = DOCS.read_text(encoding="utf-8")
    for name, task, known, labels, source, licence, paper in table:
        assert f"| `{name}` | {task} | {known} | {labels} | {source} | {licence} | {paper} |" in page
    for dataset in data.DATASETS.values():
        for layout in dataset.layouts:
            assert all(f"`{field}`" in page for field in layout.needs), (dataset.name, layout.needs)


COUNTS = {  # dataset, folder: how many
    ("sst2", "sst2"): 936,
    ("mnli", "mnli"): 1000,
    ("snli", "snli"): 1000,
    ("qqp", "qqp"): 1000,
    ("mrpc", "mrpc"): 408,
    ("cola", "cola"): 527,
    ("imdb", "imdb_cad"): 245,
    ("imdb", "imdb_tf"): 500,
    ("yelp", "yelp_tf"): 500,
    ("hatexplain", "hatexplain"): 1922,
    ("hatexplain_toxic", "hatexplain"): 1922,
    ("squad1", "squad1_xquad_en"): 509,
    ("squad2", "squad2_articles"): 626,
    ("sva", "sva_linzen"): 1965,
    ("sva_gulordava", "sva_gulordava"): 210,
    ("blimp", "blimp_vz"): 3000,
    ("blimp", "blimp_all"): 3000,
    ("blimp_vz", "blimp_all"): 2312,
    ("blimp_darn", "blimp_vz"): 500,
    ("ud_english", "ud_ewt"): 2001,
    ("wikitext", "wikitext2"): 1495,
}


@needs_data
@pytest.mark.parametrize(("name", "folder"), list(COUNTS) if DATA.is_dir() else list(COUNTS)[:1])
def test_real_files_are_read_whole_and_every_span_holds(name: str, folder: str) -> None:
    if folder == "blimp_all":
        pytest.importorskip("pyarrow")
    examples = list(data.load(name, path=DATA / folder, split=None if data.DATASETS[name].halves else "dev"))
    assert len(examples) == COUNTS[name, folder]
    labels = {example.info.get("label") for example in examples} - {None}
    assert labels == set(data.DATASETS[name].labels)
    for example in examples:
        for spans, text in ((example.cues, example.text), (example.info.get("rationale", ()), example.text)):
            assert all(text[a:b] and text[a:b] == text[a:b].strip() for a, b in spans)
        if "mask" in example.info:
            assert words_at(example, [example.info["mask"]]) == ["[MASK]"]


@needs_data
def test_rules_find_the_annotated_cues_of_every_sentence() -> None:
    """The published sentences with our rules, against the words and cue places of the annotated file."""
    checked = 0
    for _, row in rows(DATA / "blimp_vz" / "dev.jsonl"):
        published = {key: row[key] for key in ("UID", "sentence_good", "sentence_bad")}
        by_rule, by_file = (data.DATASETS["blimp"].example(one) for one in (published, row))
        assert by_rule is not None
        assert by_file is not None
        facts = [
            (e.text, e.target, e.foil, e.cues, e.info["mask"], e.info["task"], e.info["number"])
            for e in (by_rule, by_file)
        ]
        assert facts[0] == facts[1]
        assert words_at(by_file, by_file.cues) == [row["words_good"][i] for i in row["cue_indices"]]
        checked += 1
    assert checked == 3000


@needs_data
def test_real_labels_fit_a_real_model() -> None:
    model = mixlens.load(SHARED / "models" / "minilm-sst2")
    assert len(data.check(data.load("sst2", path=DATA / "sst2", split="dev", n=100), model, needs=("label",))) == 100
    with pytest.raises(errors.InputError, match="the label set does not match"):
        data.check(data.load("mnli", path=DATA / "mnli", n=20), model, needs=("label",))
    with pytest.raises(
        errors.InputError, match=r"71 are longer than the 512 tokens it reads \(tf-imdb-\d+: \d+, tf-imdb-"
    ):
        data.check(data.load("imdb", path=DATA / "imdb_tf", split="dev"), model)
