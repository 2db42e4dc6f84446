"""The ranked table of `judge`, worked out by hand from its records, and the text that shows it."""

from __future__ import annotations

import json
import math
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mixlens import data
from mixlens.metrics import Interval
from mixlens.runs.experiments import Table
from mixlens.runs.judge.judge import judge, judge_text, lines, ranking, seconds
from mixlens.runs.judge.judging import possible
from mixlens.types import Example

METHODS = ("random", "alti", "attcat", "grad_x_input")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("judge") / "out"
    return judge("agreement", "agreement", methods=",".join(METHODS), n=3, out=out, progress=False)


def values_of(outcome: Any, method: str, metric: str) -> list[float]:
    return [record.value for record in outcome.records if (record.method, record.metric) == (method, metric)]


def mean_of(values: list[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return statistics.fmean(there) if there else math.nan


def place(metric: str, method: str, outcome: Any) -> float:
    """1 + how many methods are better + half of how many others are equal."""
    sign = 1 if possible()[metric].better == "higher" else -1
    means = {name: sign * mean_of(values_of(outcome, name, metric)) for name in METHODS}
    better = sum(means[name] > means[method] for name in METHODS)
    equal = sum(means[name] == means[method] for name in METHODS if name != method)
    return 1 + better + equal / 2


def test_seconds_are_the_mean_over_examples(outcome: Any) -> None:
    for method, mean in seconds(outcome).items():
        spent = {record.example: record.info["seconds"] for record in outcome.records if record.method == method}
        assert len(spent) == 3
        assert mean == pytest.approx(sum(spent.values()) / 3, rel=1e-12)
    table = ranking(outcome)
    assert dict(zip(table.column("method"), table.column("seconds"), strict=True)) == seconds(outcome)


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("agreement", {}, "agreement"),
        ("texts.csv", {}, "texts.csv"),
        ("texts.csv", {"text_field": "words"}, "examples given in Python"),
        ("examples", {}, "examples given in Python"),
    ],
)
def test_a_manifest_names_the_data_as_it_was_named(
    source: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "texts.csv").write_text("text,words\nThe film was good.,The plot was dull.\n")
    texts: dict[str, Any] = {"agreement": "agreement", "texts.csv": tmp_path / "texts.csv"}
    examples = texts.get(source) or [Example("The film was good.")]
    model = "agreement" if source == "agreement" else "sentiment"
    judge(model, examples, methods="random,alti", metrics="aopc", n=1, out=tmp_path / "out", progress=False, **options)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["data"] == expected


# --- the text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [1, 2, 3])
@pytest.mark.parametrize("width", range(24, 70, 5))
def test_a_part_of_a_table_is_as_wide_as_fits_and_no_wider(width: int, beside: int) -> None:
    """Each part holds as many columns as fit: with the first column of the next part it would be too wide."""
    columns = tuple(f"{'column'[: 2 + i % 5]}{i}" for i in range(11))
    table = Table("t", "", columns, (tuple("x" * (1 + i % 3) for i in range(11)),))
    widths = [max(len(name), 1 + i % 3) for i, name in enumerate(columns)]
    heads = [line.split() for line in lines(table, width=width, beside=beside)[::3]]
    assert [name for head in heads for name in head[beside:]] == list(columns[beside:])
    for head, after in pairwise(heads):
        assert head[:beside] == list(columns[:beside])
        used = sum(widths[columns.index(name)] + 2 for name in head)
        assert used + widths[columns.index(after[beside])] > width
        assert len(head) == beside + 1 or used - 2 <= width


def test_cells_are_numbers_of_three_digits() -> None:
    interval = (0.5, 0.25, 0.75, 3, 0.1)
    for cell, text in (
        (0.12345, "0.123"),
        (7, "7"),
        ("x", "x"),
        (None, ""),
        (Interval(*interval), "0.500 [0.250, 0.750]"),
        (Interval(*interval, undefined=2), "0.500 [0.250, 0.750] -2"),
    ):
        assert lines(Table("t", "", ("name",), ((cell,),)))[1] == text


def test_slow_methods_are_named_where_all_were_asked_for(outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["mixlens.runs.judge.judge"]
    monkeypatch.setattr(module, "judge", lambda *_, **__: outcome)
    monkeypatch.setattr(module, "every_method", lambda: (list(METHODS), ["slow_one", "slow_two"]))
    text = judge_text("agreement", "agreement", methods="all", metrics="faithfulness", width=80)
    assert "Left out, minutes for one text of a large model: slow_one, slow_two." in text
    assert max(map(len, text.splitlines()[:-2])) <= 80
    assert f"Records, tables and figure: {outcome.out}" in text.splitlines()
    assert text.startswith("On these 3 texts ")
    assert text.endswith(" s")
    named = judge_text("agreement", "agreement", methods="alti", metrics="faithfulness")
    assert "Left out" not in named


def test_data_of_the_fixture_has_cues() -> None:
    assert all(example.cues for example in data.load("agreement", n=3))
