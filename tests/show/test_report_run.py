"""The page of a run: every number on it is what pandas finds in the shards; it is small, it is safe, and it works half
done."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import held as held_by
from test_report import unpacked
from test_run import go
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base import errors
from mixlens.cli.app import app, main
from mixlens.runs.corpus import counts, maps, overview, shards

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
stats = pytest.importorskip("scipy.stats")

METHODS = ["alti", "globenc", "grad_x_input"]
HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> \u202e\u200b & {data} שלום 😀"


def held(path: Path) -> dict[str, Any]:
    return held_by(path)["run"]


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def out(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "run"
    rows: list[Any] = [
        {"text": one.text, "label": one.info["label"], "note": f"n{i}"}
        for i, one in enumerate(data.load("sentiment", n=90))
    ]
    for row in rows[::7]:  # wrong labels, so that there is something to find
        row["label"] = "Pos" if row["label"] == "negative" else 0
    rows[20]["label"], rows[21]["label"] = "mixed", None
    rows += [{"text": ""}, {"text": 7}, {"text": "good " * 600}]
    go(rows, place, model=model, methods=METHODS, columns=["label", "note"], shard_rows=16, maps=True, trust=True)
    return place


@pytest.fixture(scope="module")
def frame(out: Path) -> Any:
    return pandas.read_parquet(out / "shards")


@pytest.fixture(scope="module")
def page(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixlens.report(out, tmp_path_factory.mktemp("page") / "r.html", examples=60)


@pytest.fixture(scope="module")
def run(page: Path) -> dict[str, Any]:
    return held(page)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_rows_errors_and_classes(run: dict[str, Any], frame: Any) -> None:
    assert (run["rows"], run["errors"], run["finished"]) == (len(frame), 3, True)
    assert {one["name"]: one["rows"] for one in run["classes"]} == frame["prediction"].value_counts().to_dict()
    assert sum(count for _, count in run["reasons"]) == 3
    for one in run["classes"]:
        own = frame[frame["prediction"] == one["name"]]["probability"]
        assert one["mean"] == pytest.approx(own.mean())
        assert one["counts"] == np.histogram(own, bins=20, range=(0, 1))[0].tolist()
        assert one["counted"] == one["rows"]
    assert run["probability"]["counts"] == np.histogram(frame["probability"], bins=20, range=(0, 1))[0].tolist()


def test_accuracy_and_confusion(run: dict[str, Any], frame: Any) -> None:
    named = {"0": "negative", "1": "positive", "Pos": "positive", "negative": "negative", "positive": "positive"}
    labels = frame["label"].map(named)
    labelled = frame[labels.notna()]
    told = run["labels"]
    assert told["rows"] == len(labelled) == len(frame) - 2
    assert told["correct"] == int((labelled["prediction"] == labels[labels.notna()]).sum())
    assert (told["unknown"], told["without"]) == (1, 1)
    assert 0 < told["correct"] < told["rows"]
    table = pandas.crosstab(labels, frame["prediction"])
    for i, label in enumerate(told["names"]):
        assert told["table"][i] == [int(table.loc[label, predicted]) for predicted in told["names"]]


def words_by_hand(row: Any, method: str) -> list[tuple[str, float]]:
    """Pieces joined where they touch and the second goes on ("##"), and the sum of their scores."""
    made: list[tuple[str, float]] = []
    for i in np.flatnonzero(row["segments"] >= 0):
        token, score = row["tokens"][i], float(row[method][i])
        if token.startswith("##"):
            made[-1] = (made[-1][0] + token.removeprefix("##"), made[-1][1] + score)
        else:
            made.append((token, score))
    return made


def agreement_by_hand(row: Any) -> float:
    """The mean rank correlation of all pairs of methods over the words of a row."""
    scores = [[score for _, score in words_by_hand(row, method)] for method in METHODS]
    return float(np.mean([stats.spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]))


def test_words_for_and_against_are_means_of_rows(run: dict[str, Any], frame: Any) -> None:
    assert run["isSigned"] == [False, False, True]
    assert run["names"] == ["ALTI", "GlobEnc", "Gradient × Input"]
    assert run["lead"] == 2  # the first with signs
    listed = 0
    for one in run["classes"]:
        for number, method in enumerate(METHODS):
            shares: dict[str, list[float]] = {}
            for _, row in frame[frame["prediction"] == one["name"]].iterrows():
                words = words_by_hand(row, method)
                whole = sum(abs(score) for _, score in words)
                for word in {word for word, _ in words if word.isalnum()}:
                    shares.setdefault(word, []).append(sum(score for own, score in words if own == word) / whole)
            means = {word: np.mean(found) for word, found in shares.items() if len(found) >= 5}
            for way, sign in (("for", 1), ("against", -1)):
                best = sorted(
                    (word for word in means if sign * means[word] > 0), key=lambda word: (sign * means[word], word)
                )
                told = one["words"][number][way]
                assert [(word, rows) for word, _, rows in told] == [
                    (word, len(shares[word])) for word in best[::-1][:12]
                ]
                assert [share for _, share, _ in told] == pytest.approx([means[word] for word in best[::-1][:12]])
                listed += len(told)
    assert listed > 40


def test_what_turned_is_counted_by_draws(run: dict[str, Any], frame: Any) -> None:
    removal = run["removal"]
    shares = {METHODS[one["method"]]: one for one in removal["methods"]}
    for method, one in shares.items():
        assert one["share"] == pytest.approx(frame[f"turned:{method}"].mean())
        assert one["low"] < one["share"] < one["high"]
        assert one["counts"] == np.histogram(frame[f"without:{method}"], bins=20, range=(0, 1))[0].tolist()
    assert [one["share"] for one in removal["methods"]] == sorted(
        (one["share"] for one in shares.values()), reverse=True
    )
    draws = np.concatenate(frame["without_random"].to_list())
    assert removal["random"]["share"] == pytest.approx(frame["turned_random"].map(np.mean).mean())
    assert removal["random"]["counts"] == np.histogram(draws, bins=20, range=(0, 1))[0].tolist()
    assert removal["random"]["draws"] == len(draws) > removal["random"]["rows"] == len(frame)
    mean = frame["without_random"].map(np.mean)
    assert removal["random"]["share"] > (mean < 0.5).mean()  # what averaging a row's draws first would say


def test_rows_worth_a_look_are_counted_over_all_rows(run: dict[str, Any], frame: Any) -> None:
    named = {"0": "negative", "1": "positive", "Pos": "positive", "negative": "negative", "positive": "positive"}
    labels = frame["label"].map(named)
    wrong = labels.notna() & (labels != frame["prediction"]) & (frame["probability"] > 0.95)
    held_ = frame[[f"without:{method}" for method in METHODS]].min(axis=1) >= 0.9
    apart = frame.apply(agreement_by_hand, axis=1) < 0.1
    assert run["tagged"] == {"wrong": wrong.sum(), "held": held_.sum(), "apart": apart.sum(), "open": 0}
    assert run["completeness"] is None  # none of these methods has a sum
    assert run["sure"] == (frame["probability"] > 0.99).sum()
    by_row = dict(zip(frame["row"], zip(wrong, held_, apart, strict=True), strict=True))
    for one in run["examples"]:
        assert [tag in one["tags"] for tag in ("wrong", "held", "apart")] == list(map(bool, by_row[one["row"]]))


def test_words_of_an_example_spell_its_text(run: dict[str, Any]) -> None:
    for one in run["examples"]:
        assert "".join(before + text for text, before, _, _ in one["words"]) == one["text"]
        assert sorted(token for *_, tokens in one["words"] for token in tokens) == [
            i for i in range(len(one["tokens"])) if i not in one["special"]
        ]


def test_small_runs_are_shown_whole(out: Path, tmp_path: Path, frame: Any) -> None:
    whole = held(mixlens.report(out, tmp_path / "r.html"))
    assert [one["row"] for one in whole["examples"]] == sorted(frame["row"])


def test_top_words(run: dict[str, Any], frame: Any) -> None:
    pieces = frame["tokens"].map(lambda tokens: any(token.startswith("##") for token in tokens))
    assert pieces.any()  # or words would be tokens
    below = {method for method in METHODS if frame[method].map(lambda scores: (scores < 0).any()).any()}
    assert below == {"grad_x_input"}
    for one in run["classes"]:
        for number, method in enumerate(METHODS):
            shares: dict[str, list[float]] = {}
            for _, row in frame[frame["prediction"] == one["name"]].iterrows():
                words = words_by_hand(row, method)
                whole = sum(abs(score) for _, score in words)
                for word, score in words:
                    shares.setdefault(word, []).append(score / whole)
            often = {word: np.array(found) for word, found in shares.items() if len(found) >= 3}
            sizes = {word: np.abs(found).mean() for word, found in often.items()}
            best = sorted(often, key=lambda word, sizes=sizes: (sizes[word], word), reverse=True)[:12]
            assert [(word, times) for word, _, times in one["top"][number]] == [
                (word, len(often[word])) for word in best
            ]
            assert [share for _, share, _ in one["top"][number]] == pytest.approx([sizes[word] for word in best])
            if method not in below:
                assert one["signed"][number] is None
                continue
            for way, sign in (("towards", 1), ("against", -1)):
                means = {word: sign * found.mean() for word, found in often.items() if sign * found.mean() > 0}
                best = sorted(means, key=lambda word, means=means: (means[word], word), reverse=True)[:12]
                listed = one["signed"][number][way]
                assert [(word, times) for word, _, times in listed] == [(word, len(often[word])) for word in best]
                assert [share for _, share, _ in listed] == pytest.approx([sign * means[word] for word in best])


def test_agreement_and_mixing_ratio(run: dict[str, Any], frame: Any) -> None:
    for i, a in enumerate(METHODS):
        for j, b in enumerate(METHODS):
            if i == j:
                assert run["agreement"]["mean"][i][j] is None
                continue
            found = [stats.spearmanr(x, y).statistic for x, y in zip(frame[a], frame[b], strict=True)]
            assert run["agreement"]["mean"][i][j] == pytest.approx(np.mean(found))
            assert run["agreement"]["rows"][i][j] == len(frame)
    (ratio,) = run["ratios"]
    assert (ratio["method"], ratio["rows"]) == ("globenc", len(frame))
    assert ratio["layers"] == pytest.approx(np.mean(np.stack(frame["mixing_ratio:globenc"]), 0))


def test_gaps_lengths_and_seconds(run: dict[str, Any], frame: Any) -> None:
    gap, seconds, lengths = run["gap"], run["seconds"], run["lengths"]
    assert (gap["rows"], gap["zero"]) == (len(frame), int((frame["gap"] == 0).sum()))
    assert (gap["mean"], gap["largest"]) == (pytest.approx(frame["gap"].mean()), frame["gap"].max())
    assert gap["counts"] == np.histogram(frame["gap"], bins=gap["edges"])[0].tolist()
    assert [one["gap"] for one in gap["worst"]] == frame["gap"].nlargest(5).tolist()
    assert (seconds["mean"], seconds["total"]) == pytest.approx((frame["seconds"].mean(), frame["seconds"].sum()))
    assert seconds["counts"] == np.histogram(frame["seconds"], bins=seconds["edges"])[0].tolist()
    counts = frame["tokens"].map(len)
    assert (lengths["mean"], lengths["largest"]) == (pytest.approx(counts.mean()), counts.max())
    assert lengths["counts"] == np.histogram(counts, bins=lengths["edges"])[0].tolist()
    assert min(lengths["counts"][0], lengths["counts"][-1]) > 0  # from the shortest to the longest
    slow = frame.nlargest(10, "seconds")
    assert [(one["row"], one["seconds"]) for one in run["slow"]] == list(zip(slow["row"], slow["seconds"], strict=True))


def test_examples_are_rows_of_the_run(run: dict[str, Any], frame: Any) -> None:
    rows = frame.set_index("row")
    assert len(run["examples"]) > 20
    assert [one["row"] for one in run["examples"]] == sorted({one["row"] for one in run["examples"]})
    for one in run["examples"]:
        row = rows.loc[one["row"]]
        assert (one["text"], one["prediction"], one["probability"]) == (
            row["text"],
            row["prediction"],
            row["probability"],
        )
        assert one["special"] == [i for i, segment in enumerate(row["segments"]) if segment < 0]
        assert len(one["tokens"]) == len(row["tokens"])
        assert dict(one["carried"])["note"] == row["note"]
        scores, bound, _ = unpacked(one["scores"])
        assert (np.abs(scores - np.stack([row[method] for method in METHODS])) <= bound[:, None]).all()
        assert one["agreement"] == pytest.approx(agreement_by_hand(row))


def test_examples_are_those_that_say_most(run: dict[str, Any], frame: Any) -> None:
    chosen = {why: [one["row"] for one in run["examples"] if why in one["why"]] for why in run["chosenAs"]}
    spaced = [list(frame["row"]).index(row) for row in chosen["evenly spaced"]]
    assert len({b - a for a, b in itertools.pairwise(spaced)}) == 1
    assert spaced[-1] > len(frame) * 0.8
    assert set(chosen["least certain"]) == set(frame.nsmallest(10, "probability")["row"])
    agreement = frame.apply(agreement_by_hand, axis=1)
    assert set(chosen["methods disagree"]) == set(frame.loc[agreement.nsmallest(10).index, "row"])
    wrong = [one for one in run["examples"] if "wrong" in one["why"]]
    assert len(wrong) == 10
    assert all(one["correct"] is False for one in wrong)
    assert (
        min(one["probability"] for one in wrong)
        >= sorted(one["probability"] for one in run["examples"] if one["correct"] is False)[-10]
    )


def test_maps_of_examples_are_those_that_were_kept(run: dict[str, Any], out: Path) -> None:
    kept = {(row, made.method): made.scores.numpy() for row, made in maps(out)}
    seen = 0
    for one in run["examples"]:
        for made in one["maps"]:
            whole = kept[one["row"], made["method"]]
            found, bound, _ = unpacked(made["block"])
            assert (np.abs(found - whole.reshape(found.shape)) <= bound[:, None]).all()
            seen += 1
    assert seen == 2 * len(run["examples"])
    assert f"Maps of {len(run['examples'])} examples" in run["held"]


def test_where_the_numbers_come_from(run: dict[str, Any], out: Path) -> None:
    about = dict(run["about"])
    told = json.loads((out / "manifest.json").read_text())
    assert (about["Model"], about["Data"], about["Run"]) == ("sentiment", "rows given in Python", told["run"])
    assert about["Classes"] == "negative, positive"
    assert f"torch {told['versions']['torch']}" in about["Versions"]
    assert about["Methods"] == ", ".join(METHODS)


def test_it_is_the_same_every_time(page: Path, out: Path, tmp_path: Path) -> None:
    assert mixlens.report(out, tmp_path / "again.html", examples=60).read_text() == page.read_text()


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_that_do_not_match_are_said_not_counted(model: Any, tmp_path: Path) -> None:
    rows = [
        {"text": "a good film", "label": "sports", "kind": "positive"},
        {"text": "a bad film", "label": "9", "kind": "positive"},
    ]
    go(rows, tmp_path / "run", model=model, columns=["label", "kind"])
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html"))
    assert run["labels"] is None
    assert (
        "No row has a label in the column 'label' that is a class of the model (negative, positive)" in run["noLabels"]
    )
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html", label="kind"))
    assert (run["labels"]["column"], run["labels"]["rows"], run["labels"]["correct"]) == ("kind", 2, 1)
    with pytest.raises(errors.InputError, match="carried no column 'gold'"):
        mixlens.report(tmp_path / "run", tmp_path / "r.html", label="gold")


def test_words_are_compared_only_when_asked(tmp_path: Path) -> None:
    rows = [{"text": "The keys [MASK] rusty.", "label": "are"}, {"text": "The key [MASK] rusty.", "label": "were"}]
    go(rows, tmp_path / "run", model="agreement", columns=["label"])
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html"))
    assert run["labels"] is None
    assert "no classes by name" in run["noLabels"]
    predicted = [one["prediction"] for one in run["examples"]]
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html", label="label"))
    assert run["labels"]["correct"] == sum(a == b for a, b in zip(predicted, ("are", "were"), strict=True))
    assert run["labels"]["rows"] == 2


# --- any run ----------------------------------------------------------------------------------------------------------


def test_a_run_that_was_stopped(model: Any, tmp_path: Path) -> None:
    def rows() -> Iterator[str]:
        yield from ["a good film"] * 9
        raise RuntimeError("the power failed")

    with pytest.raises(RuntimeError, match="power"):
        go(rows(), tmp_path / "run", model=model, shard_rows=4)
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html"))
    assert (run["rows"], run["finished"]) == (8, False)
    assert dict(run["about"])["Finished"] == "no"


def test_a_run_without_a_row(model: Any, tmp_path: Path) -> None:
    def rows() -> Iterator[str]:
        raise RuntimeError("at once")
        yield ""

    with pytest.raises(RuntimeError, match="at once"):
        go(rows(), tmp_path / "run", model=model)
    run = held(mixlens.report(tmp_path / "run", tmp_path / "r.html"))
    assert (run["rows"], run["errors"], run["examples"], run["classes"]) == (0, 0, [], [])
    go([""], tmp_path / "bad", model=model)
    run = held(mixlens.report(tmp_path / "bad", tmp_path / "r.html"))
    assert (run["rows"], run["errors"], len(run["reasons"])) == (0, 1, 1)


def test_ids_pairs_and_one_method(tmp_path: Path) -> None:
    made = go([{"input_ids": [3, 9, 4]}, {"input_ids": [3, 4]}], tmp_path / "ids", model="agreement", methods="alti")
    run = held(made.report(tmp_path / "r.html"))
    assert [one["tokens"] for one in run["examples"]] == list(
        pandas.read_parquet(tmp_path / "ids/shards")["tokens"].map(list)
    )
    assert run["examples"][0]["agreement"] is None
    made = go([("a [MASK] film", "is good")], tmp_path / "pair", model="agreement")
    assert held(made.report(tmp_path / "r.html"))["examples"][0]["pair"] == "is good"


def test_hostile_text_stays_text(model: Any, tmp_path: Path) -> None:
    rows = [{"text": f"good {HOSTILE}", "id": HOSTILE, "label": HOSTILE, "note<b>": HOSTILE}]
    made = go(rows, tmp_path / "run", model=model, columns=["label", "note<b>"])
    text = made.report(tmp_path / "r.html", title=HOSTILE).read_text()
    assert text.count("</script>") == 2
    for piece in ("<script>alert", "<img src=x", "note<b>"):
        assert piece not in text
    (one,) = held(tmp_path / "r.html")["examples"]
    assert one["text"].startswith("good </script><script>alert(1)")
    assert "\\u202e\\u200b" in one["text"]
    assert "\u202e" not in json.dumps(held(tmp_path / "r.html"), ensure_ascii=False)


def test_the_page_fetches_nothing(page: Path) -> None:
    text = page.read_text()
    assert [found for found in re.findall(r"https?://[^\"'\s)]+", text) if found != "http://www.w3.org/2000/svg"] == []
    assert "default-src 'none'" in text


# --- room -------------------------------------------------------------------------------------------------------------


def test_the_file_is_as_small_as_was_asked(model: Any, tmp_path: Path) -> None:
    texts = [f"a good film number {i} " + "with a very good plot and bad acting " * 7 for i in range(40)]
    made = go(texts, tmp_path / "run", model=model, methods=METHODS, maps="float16", columns=[])
    assert made.report(tmp_path / "two.html").stat().st_size <= 2_000_000
    small = made.report(tmp_path / "r.html", megabytes=0.2)
    assert small.stat().st_size <= 200_000
    run, whole = held(small), held(tmp_path / "two.html")
    assert run["rows"] == 40
    assert 0 < len(run["examples"]) < len(whole["examples"])
    assert "examples are left out" in " ".join(run["notes"])
    assert "are left out" in run["held"]
    assert whole["notes"] == []
    with_maps = [one for one in whole["examples"] if one["maps"]]
    assert f"Maps of {len(with_maps)} examples" in whole["held"]
    assert with_maps
    assert len(held(made.report(tmp_path / "few.html", examples=6))["examples"]) <= 8
    assert held(made.report(tmp_path / "none.html", examples=0))["examples"] == []


def test_memory_does_not_grow_with_the_rows(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows again and again in one shard: five times as many, about the same peak.

    Which two reads are there at once is up to the reader's threads, hence up to twice as much (1.51 was seen on
    a busy machine). Rows that were all kept would need more than twice the memory.
    """
    import pyarrow as pa
    from pyarrow import parquet

    peaks, rows = [], []
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    first, *others = shards.shard_files(copy)
    for path in others:
        path.unlink()
    table = parquet.read_table(first)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(
        json.dumps({**manifest, "shards": []})
    )  # shards are judged by their names alone
    monkeypatch.setattr(shards, "ROWS_HELD", 64)
    monkeypatch.setattr(counts, "AT_ONCE", 500)
    for times in (8, 40):  # two reads may be there at once
        parquet.write_table(pa.concat_tables([table] * times), first)
        first = first.rename(first.with_name(shards.file_name(0, first.read_bytes())))
        tracemalloc.start()
        rows.append(overview(copy).rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert rows[1] == 5 * rows[0] == 5 * 8 * 16
    assert peaks[1] < 2 * peaks[0]


# --- what is no run ---------------------------------------------------------------------------------------------------


def test_what_is_no_run_is_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.MixlensError, match="holds no run"):
        mixlens.report(tmp_path, tmp_path / "r.html")
    with pytest.raises(errors.MixlensError, match="holds no run"):
        mixlens.report(tmp_path / "nowhere", tmp_path / "r.html")
    (tmp_path / "manifest.json").write_text('{"identity": {"kind": "other"}}')
    with pytest.raises(errors.ResultError, match="not the folder of a corpus run"):
        mixlens.report(tmp_path, tmp_path / "r.html")
    with pytest.raises(errors.InputError, match="go with a model"):
        mixlens.report(out, tmp_path / "r.html", methods="alti")
    with pytest.raises(errors.InputError, match="go with a run"):
        mixlens.report(mixlens.load("agreement"), tmp_path / "r.html", texts="a [MASK]", label="x")
    with pytest.raises(errors.InputError, match="0 to 10,000"):
        mixlens.report(out, tmp_path / "r.html", examples=-1)
    assert not (tmp_path / "r.html").exists()


def test_a_foreign_or_damaged_shard_is_named(out: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    told = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**told, "run": "other"}))
    with pytest.raises(errors.ResultError, match="a shard of another run"):
        overview(copy)
    (copy / "manifest.json").write_text(json.dumps(told))
    first = shards.shard_files(copy)[0]
    first.write_bytes(first.read_bytes()[:-100])
    with pytest.raises(errors.ResultError, match=first.name):
        mixlens.report(copy, tmp_path / "r.html")


@pytest.mark.parametrize(
    "told", [{"model": "x"}, {"model": {"classes": 3}}, {"versions": []}, {"check": "no"}, {"data": 7}]
)
def test_an_odd_manifest_is_no_crash(out: Path, tmp_path: Path, told: dict[str, Any]) -> None:
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, **told}))
    mixlens.report(copy, tmp_path / "r.html")
    page = held(tmp_path / "r.html")
    whole = held(mixlens.report(out, tmp_path / "whole.html"))
    assert (page["rows"], page["errors"]) == (whole["rows"], whole["errors"])  # what rows say is not in the manifest
    shown, expected = ({one["row"]: (one["text"], one["scores"]) for one in made["examples"]} for made in (page, whole))
    both = shown.keys() & expected.keys()  # which rows are chosen hangs on the classes
    assert both
    assert all(shown[row] == expected[row] for row in both)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command(out: Path, frame: Any, tmp_path: Path) -> None:
    asked = [
        "report",
        str(out),
        "-o",
        str(tmp_path / "r.html"),
        "--label",
        "label",
        "--examples",
        "12",
        "--title",
        "My run",
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert done.output.startswith(str(tmp_path / "r.html"))
    run = held(tmp_path / "r.html")
    assert run["rows"] == len(frame)
    assert len(run["examples"]) <= 14
    assert "<h1>My run</h1>" in (tmp_path / "r.html").read_text()
    assert Counter(one["name"] for one in run["classes"]) == Counter({"negative": 1, "positive": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{out}", "--methods", "alti"), "a run is shown as it is"),
        (("{out}", "a text"), "give it alone"),
        (("runs/nowhere",), "there is no folder 'runs/nowhere'"),
        (("empty",), "holds no run"),
        (("a text", "--examples", "3"), "for the folder of a run"),
        (("{out}", "--label", "nothing"), "carried no column 'nothing'"),
    ],
)
def test_errors_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["mixlens", "report", *(one.format(out=out) for one in arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
