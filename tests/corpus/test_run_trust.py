"""`run(trust=True)`: what is written of taking words out is what the stock model says of the text without them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_run import go, table
from typer.testing import CliRunner

import mixlens
from mixlens import data
from mixlens.base.errors import InputError
from mixlens.cli.app import app
from mixlens.runs.corpus import counts

pytest.importorskip("pyarrow")
stats = pytest.importorskip("scipy.stats")
METHODS = ["grad_x_input", "alti", "deeplift"]


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment", dtype="float64")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [one.text for one in data.load("sentiment", n=14)]


@pytest.fixture(scope="module")
def rows(model: Any, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("trust") / "run"
    go([*texts, "good, bad!"], out, model=model, methods=METHODS, trust=True, shard_rows=6)
    return table(out)


def words_by_hand(row: dict[str, Any]) -> list[list[int]]:
    """Positions of words: pieces joined by their "##", marks and special tokens left out."""
    words: list[list[int]] = []
    for i, (token, segment) in enumerate(zip(row["tokens"], row["segments"], strict=True)):
        if segment < 0:
            continue
        if token.startswith("##"):
            words[-1].append(i)
        else:
            words.append([i])
    return [word for word in words if any(map(str.isalnum, row["tokens"][word[0]]))]


def left_by_hand(model: Any, row: dict[str, Any], gone: list[int]) -> tuple[float, bool]:
    """The stock model on the ids that are left."""
    ids = [number for i, number in enumerate(row["input_ids"]) if i not in gone]
    with torch.no_grad():
        shares = model.hf_model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    names = model.hf_model.config.id2label
    wanted = next(number for number, name in names.items() if name == row["prediction"])
    return float(shares[wanted]), names[int(shares.argmax())] != row["prediction"]


def test_the_first_three_words_are_taken_out(model: Any, rows: list[dict[str, Any]]) -> None:
    turned = set()
    for row in rows[:-1]:
        words = words_by_hand(row)
        for method in METHODS:
            scores = [sum(row[method][i] for i in word) for word in words]
            first = sorted(range(len(words)), key=lambda number, scores=scores: -scores[number])[:3]
            left, has_turned = left_by_hand(model, row, [i for number in first for i in words[number]])
            assert row[f"without:{method}"] == pytest.approx(left, abs=1e-9)  # float64; batches pad
            assert row[f"turned:{method}"] == has_turned
            turned.add(has_turned)
    assert turned == {True, False}  # or the check could not tell the two apart


def test_random_words_are_three_of_the_same_words(model: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows[:-1]:
        words = words_by_hand(row)
        possible = [left_by_hand(model, row, [i for word in some for i in word]) for some in combinations(words, 3)]
        assert len(row["without_random"]) == len(row["turned_random"]) == min(10, len(possible))
        for left, has_turned in zip(row["without_random"], row["turned_random"], strict=True):
            nearest = min(possible, key=lambda one, left=left: abs(one[0] - left))
            assert left == pytest.approx(nearest[0], abs=1e-9)
            assert has_turned == nearest[1]


def test_a_row_of_three_words_or_fewer_is_not_checked(rows: list[dict[str, Any]]) -> None:
    short = rows[-1]
    assert short["without_random"] is short["turned_random"] is None
    assert [short[f"without:{method}"] for method in METHODS] == [None] * 3
    assert short["completeness:deeplift"] is not None


def test_completeness_is_the_methods_own(model: Any, texts: list[str], rows: list[dict[str, Any]]) -> None:
    for text, row in zip(texts, rows, strict=False):
        gap = mixlens.attribute(model.trace(text), "deeplift").info["completeness"]["relative_gap"]
        assert row["completeness:deeplift"] == pytest.approx(gap, abs=1e-9)
        assert row["completeness:alti"] is row["completeness:grad_x_input"] is None


def test_masked_and_next_words_keep_the_position_that_is_read(tmp_path: Path) -> None:
    model = mixlens.load("agreement", dtype="float64")
    text = "The keys to the old cabinet [MASK] rusty."
    go([text], tmp_path / "run", model=model, methods=["alti"], trust=True)
    (row,) = table(tmp_path / "run")
    mask = row["tokens"].index("[MASK]")
    words = [word for word in words_by_hand(row) if mask not in word]
    scores = [sum(row["alti"][i] for i in word) for word in words]
    gone = [i for number in np.argsort(scores)[::-1][:3] for i in words[number]]
    ids = [number for i, number in enumerate(row["input_ids"]) if i not in gone]
    with torch.no_grad():
        shares = (
            model.hf_model(input_ids=torch.tensor([ids]))
            .logits[0, ids.index(model.tokenizer.mask_token_id)]
            .softmax(-1)
        )
    wanted = model.tokenizer.convert_tokens_to_ids(row["prediction"])
    assert row["without:alti"] == pytest.approx(float(shares[wanted]), abs=1e-9)
    assert row["turned:alti"] == (int(shares.argmax()) != wanted)


def test_the_same_again_after_a_stop(model: Any, texts: list[str], rows: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "run"
    everything = [*texts, "good, bad!"]
    go(everything, out, model=model, methods=METHODS, trust=True, shard_rows=6)
    next((out / "shards").iterdir()).unlink()
    go(everything, out, model=model, methods=METHODS, trust=True, shard_rows=6)
    assert table(out) == rows


def test_without_trust_nothing_is_added(model: Any, texts: list[str], tmp_path: Path) -> None:
    go(texts[:2], tmp_path / "run", model=model, methods=["alti"], columns=[])
    (row, *_) = table(tmp_path / "run")
    assert not [name for name in row if name.startswith(("without", "turned", "completeness"))]
    with pytest.raises(InputError, match="trust"):
        go(texts[:2], tmp_path / "run", model=model, methods=["alti"], trust=True)


def test_refusals(model: Any, texts: list[str], tmp_path: Path) -> None:
    for options, said in (
        ({"trust": 1}, "trust is True or False, not 1"),
        ({"trust": True, "methods": ["grad_x_input"], "target": "positive"}, "Leave target= and foil= out, or trust="),
        ({"trust": True, "columns": ["without_random"]}, "one that every run writes"),
        ({"trust": True, "columns": ["turned:alti"]}, "one that every run writes"),
    ):
        with pytest.raises(InputError, match=said):
            go(texts[:1], tmp_path / "run", **{"model": model, "methods": ["alti"], **options})
    base = mixlens.load("sentiment", task="base")
    with pytest.raises(InputError, match="predicts no one class or word"):
        go(texts[:1], tmp_path / "run", model=base, methods=["alti"], trust=True)
    assert not (tmp_path / "run/shards").exists()


def test_the_command(tmp_path: Path, texts: list[str]) -> None:
    file = tmp_path / "x.txt"
    file.write_text("\n".join(texts[:3]))
    arguments = ["run", str(file), "-m", "sentiment", "--methods", "alti", "--trust", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert table(tmp_path / "run")[0]["without:alti"] is not None


@pytest.mark.parametrize(("successes", "count"), [(0, 9), (3, 10), (156, 300), (40, 40)])
def test_the_interval_is_wilsons(successes: int, count: int) -> None:
    known = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
    assert counts.wilson(successes, count) == pytest.approx((known.low, known.high), abs=1e-6)  # 1.959964


def test_every_draw_counts_on_its_own() -> None:
    """Two rows, in each of which one draw of ten turns: averaged before the threshold, none would."""
    known = counts.Removal({"alti": counts.Turned()}, {"alti": counts.Gaps()})
    left = [0.1] + [0.99] * 9
    for _ in range(2):
        known.add(counts.RowCheck({"alti": 0.1}, {"alti": True}, left, [one < 0.5 for one in left], {"alti": 0.02}))
    known.add(counts.RowCheck({}, {}, [], [], {"alti": 0.01}))
    assert known.random.share == pytest.approx(0.1)
    assert known.random.left.counts[[2, 19]].tolist() == [2, 18]
    assert (known.methods["alti"].share, known.best_first()) == (1.0, ["alti"])
    assert (known.gaps["alti"], known.open_rows, known.unchecked) == (counts.Gaps(3, 2, 0.02), 2, 1)
