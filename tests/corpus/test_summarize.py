"""The summary of a run says what can be counted by hand from its rows."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_run import go, table
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base.errors import MixlensError
from mixlens.cli.app import app
from mixlens.metrics.agreement import spearman
from mixlens.runs.corpus.row_words import apostrophes, words_in
from mixlens.runs.corpus.tally import Tally

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("summary") / "run"
    rows: list[Any] = [example.text for example in data.load("sentiment", n=40)]
    go([*rows, "", 7], place, model="sentiment", methods=["alti", "globenc", "grad_x_input"], shard_rows=16)
    return place


def test_the_numbers_are_those_of_the_rows(out: Path) -> None:
    found, rows = mixlens.summarize(out, least=1), table(out)
    assert (found.rows, found.errors, found.finished) == (40, 2, True)
    assert found.classes == dict(Counter(row["prediction"] for row in rows).most_common())
    for a, b in (("alti", "globenc"), ("alti", "grad_x_input"), ("globenc", "grad_x_input")):
        assert found.agreement[f"{a}, {b}"] == pytest.approx(np.mean([spearman(row[a], row[b]) for row in rows]))
        by_word = [
            [np.bincount(at[at >= 0], np.array(row[m])[at >= 0]) for m in (a, b)]
            for row in rows
            for _, at in [words_in(row)]
        ]
        assert found.word_agreement[f"{a}, {b}"] == pytest.approx(np.mean([spearman(*pair) for pair in by_word]))
    ratio = np.mean([row["mixing_ratio:globenc"] for row in rows], 0)
    assert found.mixing_ratio["globenc"] == pytest.approx(ratio)
    assert found.gap["largest"] == max(row["gap"] for row in rows)
    name = next(iter(found.classes))
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row["prediction"] == name:
            kept = [i for i, segment in enumerate(row["segments"]) if segment >= 0]
            whole = sum(abs(row["grad_x_input"][i]) for i in kept)
            for i in kept:
                shares.setdefault(row["tokens"][i].removeprefix("##"), []).append(abs(row["grad_x_input"][i]) / whole)
    best = max(shares, key=lambda token: (np.mean(shares[token]), token))
    token, share, times = found.top[name]["grad_x_input"][0]
    assert (token, times) == (best, len(shares[best]))
    assert share == pytest.approx(np.mean(shares[best]))
    assert len(found.slow) == 5
    assert sum(count for _, count in found.reasons) == 2


def test_signed_scores_are_listed_towards_and_against() -> None:
    """A word that counts against is not among those that count towards, however large it is."""
    tally = Tally(["attcat", "alti"])
    for number in range(4):
        tally.add(
            {
                **{"row": number, "id": str(number), "seconds": 0.1, "prediction": "positive", "text": "Good but fine"},
                **{"tokens": ["[CLS]", "good", "but", "fi", "##ne"], "segments": [-1, 0, 0, 0, 0]},
                **{"starts": [0, 0, 5, 9, 11], "ends": [0, 4, 8, 11, 13]},
                **{"attcat": [9.0, 1.0, -4.0, 1.0, 2.0], "alti": [0.1, 0.2, 0.4, 0.1, 0.2]},
            }
        )
    assert tally.top("positive", "attcat", 3, 1) == [("but", 0.5, 4), ("fine", 0.375, 4), ("good", 0.125, 4)]
    assert tally.signed_top("positive", 3, 1) == {
        "attcat": {"towards": [("fine", 0.375, 4), ("good", 0.125, 4)], "against": [("but", -0.5, 4)]}
    }


def test_words_of_a_class_are_means_of_rows() -> None:
    """A word twice in a row counts once, with both shares; marks and words in too few rows are not listed."""
    tally = Tally(["attcat"])
    for number in range(5):
        tokens = ["good", "good", "!", "but"] if number else ["good", "bad", "!", "but"]
        row = {"row": number, "id": str(number), "seconds": 0.1, "prediction": "positive", "tokens": tokens}
        tally.add({**row, "segments": [0] * 4, "attcat": [1.0, 2.0, -4.0, -1.0]})
    found = tally.words_of_rows("positive", 9, 5)["attcat"]
    assert found == {
        "for": [("good", pytest.approx((4 * 3 / 8 + 1 / 8) / 5), 5)],
        "against": [("but", pytest.approx(-1 / 8), 5)],
    }
    assert tally.words_of_rows("positive", 9, 6)["attcat"] == {"for": [], "against": []}


def test_what_turned_is_summarized(tmp_path: Path) -> None:
    rows = [example.text for example in data.load("sentiment", n=12)]
    go(rows, tmp_path / "run", model="sentiment", methods=["deeplift", "alti"], trust=True)
    found, written = mixlens.summarize(tmp_path / "run"), table(tmp_path / "run")
    for method in ("deeplift", "alti"):
        assert found.turned[method]["share"] == pytest.approx(np.mean([row[f"turned:{method}"] for row in written]))
    assert found.turned["(random words)"]["share"] == pytest.approx(
        np.mean([np.mean(row["turned_random"]) for row in written])
    )
    assert list(found.turned)[-1] == "(random words)"
    gaps = [row["completeness:deeplift"] for row in written]
    assert found.open == {
        "deeplift": {"rows": 12, "open": sum(gap > 0.01 for gap in gaps), "largest": pytest.approx(max(gaps))}
    }
    told = found.text()
    assert re.search(r"three random words +[\d.]+ %  \([\d.]+ % to [\d.]+ %; 12 rows\)", told)
    assert "scores that do not add up" in told


@pytest.mark.parametrize("known", [True, False])
def test_words_are_counted_where_their_characters_are_known(known: bool) -> None:
    row = {"tokens": ["<s>", "▁The", "▁US", "ly", "ĠCafé"], "segments": [-1, 0, 0, 0, 0], "text": "The USly Café"}
    row |= {"starts": [0, 0, 3, 6, 8], "ends": [0, 3, 6, 8, 13]} if known else {}
    names, places = words_in(row)
    assert names == (["The", "USly", "Café"] if known else ["The", "US", "ly", "Café"])
    assert places.tolist() == ([-1, 0, 1, 1, 2] if known else [-1, 0, 1, 2, 3])


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("it 's fun , they 're", ["it", "'s", "fun", ",", "they", "'re"]),
        ("it's do n't", ["it's", "do", "n't"]),
        ("a 'fine' film", ["a", "'", "fine", "'", "film"]),
        ("dogs ' s", ["dogs", "'", "s"]),
        ("they ’ll", ["they", "’ll"]),
    ],
)
def test_an_apostrophe_and_its_ending_are_one_word_of_a_list(text: str, joined: list[str]) -> None:
    """Their shares are added and no other share changes; the words that a run took out stay as they were."""
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    row = {"tokens": [text[a:b] for a, b in spans], "segments": [0] * len(spans), "text": text, "pair": None}
    row |= {"starts": [a for a, _ in spans], "ends": [b for _, b in spans]}
    words, places = words_in(row)
    marks = apostrophes(row, words)
    assert [*joined] == [
        word + words[k + 1] if k in marks else word for k, word in enumerate(words) if k - 1 not in marks
    ]
    scores = np.random.default_rng(0).normal(size=len(spans))
    tally = Tally(["m"])
    tally._count_words("yes", row, {"m": scores})
    sums = np.bincount(places, scores)
    expected: dict[str, list[float]] = {}
    for k, word in enumerate(words):
        if k - 1 not in marks:
            both = sums[k] + (sums[k + 1] if k in marks else 0)
            expected.setdefault(word + words[k + 1] if k in marks else word, []).append(both / np.abs(sums).sum())
    counted = tally.classes["yes"].shares["m"]
    assert {word: share.of_row * share.rows for word, share in counted.items()} == pytest.approx(
        {word: sum(shares) for word, shares in expected.items()}
    )


def test_the_command(out: Path) -> None:
    told = CliRunner().invoke(app, ["summarize", str(out)], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    for word in ("40 rows explained, 2 could not be", "predicted 'positive'", "Spearman", "mixing ratio", "slowest"):
        assert word in told.stdout
    assert re.search(
        r"  grad_x_input  for:     \S+ \+[\d.]+ % \(\d+ rows\) .*\n +against: \S+ -[\d.]+ % \(\d+ rows\)", told.stdout
    )
    assert re.search(r"  alti          \S+ [\d.]+ % \(\d+ rows\) ", told.stdout)
    made = json.loads(CliRunner().invoke(app, ["summarize", str(out), "--json"]).stdout)
    assert made["rows"] == 40
    assert set(made["signed"]["positive"]) == {"grad_x_input"}


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MixlensError, match="holds no run"):
        mixlens.summarize(tmp_path)
    (tmp_path / "manifest.json").write_text('{"identity": {"kind": "other"}}')
    with pytest.raises(MixlensError, match="not the folder of a corpus run"):
        mixlens.summarize(tmp_path)


def test_a_shard_that_was_changed_is_refused(out: Path, tmp_path: Path) -> None:
    """Under its own name, and under the name of its new content, which the manifest does not list."""
    import pyarrow.parquet as pq

    from mixlens.runs.corpus.shards import file_name

    place = tmp_path / "run"
    shutil.copytree(out, place)
    shard = sorted((place / "shards").glob("part-*"))[1]
    whole = pq.read_table(shard)
    pq.write_table(whole.slice(0, len(whole) - 1), shard)  # one row less
    renamed = shard.with_name(file_name(1, shard.read_bytes()))
    for command in (["summarize", str(place)], ["report", str(place), "-o", str(tmp_path / "x.html")]):
        told = CliRunner().invoke(app, command)
        assert isinstance(told.exception, MixlensError), command  # which the command line prints, and ends with code 2
        assert str(told.exception).startswith(f"{shard.name!r} is not the file that the run wrote")
    shard.rename(renamed)
    with pytest.raises(MixlensError, match="is not the file that the run wrote"):
        mixlens.summarize(place)


def test_a_manifest_of_another_schema_is_refused(out: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(out, place)
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "schema": "x"}))
    with pytest.raises(MixlensError, match="has schema 'x'; this mixlens reads 1"):
        mixlens.summarize(place)
