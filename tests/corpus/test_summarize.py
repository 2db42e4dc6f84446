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
from mixlens.runs.corpus import counts, row_words, summary

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
            for at in [np.array(row["word_of_token"])]
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


def with_words(**row: Any) -> dict[str, Any]:
    """A row as a run reads it."""
    return {**row, **row_words.word_columns(row)}


def test_signed_scores_are_listed_towards_and_against() -> None:
    """A word that counts against is not among those that count towards, however large it is."""
    known = counts.Counts(["attcat", "alti"])
    for number in range(4):
        known.add(
            with_words(
                **{"row": number, "id": str(number), "seconds": 0.1, "prediction": "positive", "text": "Good but fine"},
                **{"tokens": ["[CLS]", "good", "but", "fi", "##ne"], "segments": [-1, 0, 0, 0, 0]},
                **{"starts": [0, 0, 5, 9, 11], "ends": [0, 4, 8, 11, 13]},
                **{"attcat": [9.0, 1.0, -4.0, 1.0, 2.0], "alti": [0.1, 0.2, 0.4, 0.1, 0.2]},
            )
        )
    top, signed, _ = known.word_lists("positive", top=3, least=1, least_rows=1)
    assert top["alti"] == [
        ("but", pytest.approx(4 / 9), 4),
        ("fine", pytest.approx(3 / 9), 4),
        ("good", pytest.approx(2 / 9), 4),
    ]
    assert signed == {"attcat": {"towards": [("fine", 0.375, 4), ("good", 0.125, 4)], "against": [("but", -0.5, 4)]}}


def test_words_of_a_class_are_means_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word twice in a row counts once, with both shares; marks and words in too few rows are not listed."""
    monkeypatch.setattr(counts, "AT_ONCE", 5)  # several groups, which are added up
    known = counts.Counts(["attcat"])
    for number in range(5):
        tokens = ["good", "good", "!", "but"] if number else ["good", "bad", "!", "but"]
        row = {"row": number, "id": str(number), "seconds": 0.1, "prediction": "positive", "tokens": tokens}
        known.add(with_words(**row, segments=[0] * 4, attcat=[1.0, 2.0, -4.0, -1.0]))
    found = known.word_lists("positive", top=9, least=1, least_rows=5)[2]["attcat"]
    assert found == {
        "for": [("good", pytest.approx((4 * 3 / 8 + 1 / 8) / 5), 5)],
        "against": [("but", pytest.approx(-1 / 8), 5)],
    }
    assert known.word_lists("positive", top=9, least=1, least_rows=6)[2]["attcat"] == {"for": [], "against": []}


def test_a_mixing_ratio_may_begin_with_a_row_that_has_none() -> None:
    known = counts.Counts(["a"])
    row = {"row": 1, "id": "1", "seconds": 0.1, "prediction": "x", "tokens": ["w"], "a": [1.0]}
    for ratio in (None, [0.25, 0.5], [0.75, 0.5]):
        known.add(with_words(**row, **{"mixing_ratio:a": ratio}))
    assert [mean.value for mean in known.ratios["a"]] == [0.5, 0.5]


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
    found = with_words(**row)
    assert found["word_texts"] == (["The", "USly", "Café"] if known else ["The", "US", "ly", "Café"])
    assert found["word_of_token"] == ([-1, 0, 1, 1, 2] if known else [-1, 0, 1, 2, 3])
    assert row_words.listed_words(found)[0] == found["word_texts"]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("it 's fun , they 're", ["it", "'s", "fun", ",", "they", "'re"]),
        ("it's do n't", ["it's", "do", "n't"]),
        ("a 'fine' film", ["a", "'", "fine", "'", "film"]),
        ("dogs ' s", ["dogs", "'", "s"]),
        ("They ’ll Café", ["they", "’ll", "café"]),
    ],
)
def test_an_apostrophe_and_its_ending_are_one_word_of_a_list(text: str, joined: list[str]) -> None:
    """Lists are in small letters where tokens are; the words that a run took out stay as they are."""
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    row = with_words(
        tokens=[text.lower()[a:b] for a, b in spans],
        segments=[0] * len(spans),
        text=text,
        pair=None,
        starts=[a for a, _ in spans],
        ends=[b for _, b in spans],
    )
    names, places = row_words.listed_words(row)
    assert names == joined
    assert [
        "".join(row["word_texts"][i] for i in np.flatnonzero(places == k)).lower() for k in range(len(names))
    ] == joined
    assert "".join(word.before + word.text for word in row_words.words_of(row)) == text


def test_what_is_counted_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_WORDS", 60), ("NAMES", 20), ("AT_ONCE", 10)):
        monkeypatch.setattr(counts, name, value)
    known = counts.Counts(["a"])
    for number in range(1, 600):
        often = number % 3 == 0
        row = {"row": number, "id": "i", "seconds": 0.1, "prediction": "often" if often else f"p{number}"}
        known.add(with_words(**row, tokens=["the", "same"] if often else [f"w{number}", "x"], a=[1.0, 2.0]))
        assert len(known.predicted) <= 40
    assert known.word_lists("often", top=9, least=1, least_rows=1)[0]["a"] == [
        ("same", pytest.approx(2 / 3), 199),  # frequent ones are not let go
        ("the", pytest.approx(1 / 3), 199),
    ]
    assert known.has_dropped
    assert known.unnamed + known.predicted.total() == 599


def test_a_run_without_words_in_its_shards_is_summarized_as_one_with(tmp_path: Path) -> None:
    """Earlier versions wrote none; a run of such shards goes on, and its new shards have them."""
    import pyarrow.parquet as pq

    from mixlens.runs.corpus import shards

    rows = [example.text for example in data.load("sentiment", n=12)]
    asked: dict[str, Any] = {"model": "sentiment", "methods": ["alti", "deeplift"], "shard_rows": 4}
    go(rows, tmp_path / "run", **asked)
    whole = mixlens.summarize(tmp_path / "run")
    for number, path in enumerate(shards.shard_files(tmp_path / "run")):
        if number < 2:
            old = pq.read_table(path).drop_columns(["word_texts", "words_before", "word_of_token"])
            pq.write_table(old, path)
            path.rename(path.with_name(shards.file_name(number, path.read_bytes())))
        else:
            path.unlink()
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    (tmp_path / "run/manifest.json").write_text(json.dumps({**manifest, "finished": False, "shards": []}))
    assert go(rows, tmp_path / "run", **asked).done == 4
    again = mixlens.summarize(tmp_path / "run")
    assert again.words == whole.words
    assert again.top == whole.top


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


def summary_of(**more: Any) -> summary.Summary:
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
    return summary.Summary(**{**given, "open": {"deeplift": {"rows": 4, "open": 1, "largest": 0.02}}, **more})


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
