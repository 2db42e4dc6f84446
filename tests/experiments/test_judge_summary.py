"""The ranking that fits a terminal: one row for each method, and nothing that the full table does not say."""

from __future__ import annotations

from typing import Any

import pytest

from mixlens.metrics import Interval
from mixlens.runs.experiments.tables import Table
from mixlens.runs.judge.judge import judge, judge_text, ranking
from mixlens.runs.judge.judge_summary import by_kind, columns_shown, summary_lines

TEXTS = ["The plot was not dull.", "The music was good and the cast was dreadful.", "A wonderful film."]
COLUMNS = ("rank", "method", "group", "score", "aopc", "lodds", "sufficiency", "better than random on", "seconds")


def table(*, groups: bool = True, method: str = "alti") -> Table:
    number = Interval(0.5, 0.25, 0.75, 3, 0.1)
    group, wins = ("A", "3 of 3") if groups else (None, "-")
    return Table("ranking", "", COLUMNS, ((1, method, group, number, number, number, number, wins, 0.01),), "")


def test_metrics_that_fit_are_shown_one_of_each_kind_first() -> None:
    assert by_kind(["aopc", "lodds", "sufficiency", "lds"]) == ["aopc", "sufficiency", "lds", "lodds"]
    assert columns_shown(table(), 200, False) == list(COLUMNS)
    narrow = columns_shown(table(), 68, False)
    assert [name for name in narrow if name in ("aopc", "lodds", "sufficiency")] == ["aopc", "sufficiency"]
    assert columns_shown(table(), 10, False) == ["rank", "method", "group", "score", "better than random on", "seconds"]


def test_columns_that_say_nothing_are_left_out() -> None:
    assert columns_shown(table(groups=False), 200, True) == [
        "method",
        "score",
        "aopc",
        "lodds",
        "sufficiency",
        "seconds",
    ]
    assert columns_shown(table(groups=False), 200, False)[0] == "rank"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_say_what_is_missing(width: int) -> None:
    told = summary_lines(table(method="a = b = c"), width=width, one_text=False)
    assert max(map(len, told[:2])) <= width
    assert told[1].split()[:6] == ["1", "a", "(=", "2)", "A", "0.500"]
    assert "a (= 2): the same scores have b, c." in told
    shown = columns_shown(table(), width, False)
    missing = [name for name in ("aopc", "lodds", "sufficiency") if name not in shown]
    assert (
        told[-1]
        == (f"Not shown: {', '.join(missing)}. " if missing else "")
        + "Every metric with its interval, and further tables: --full."
    )


def test_every_number_is_that_of_the_full_table() -> None:
    outcome = judge("sentiment", TEXTS, methods="random,attcat,grad_x_input", metrics="aopc,lds", progress=False)
    whole = ranking(outcome)
    rows = summary_lines(whole, width=200, one_text=False)[1 : 1 + len(whole.rows)]
    for row, full in zip(rows, whole.rows, strict=True):
        means = [f"{cell.mean:.3f}" for cell in full if isinstance(cell, Interval)]
        assert row.split()[2 : 2 + len(means)] == means  # behind the rank and the method; so few texts have no groups
        assert str(full[1]) in row


def test_one_text_is_told_to_be_no_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {
        "methods": "random,alti,attcat",
        "metrics": "aopc",
        "width": 80,
        "full": False,
        "progress": False,
    }
    told = judge_text("sentiment", None, text=TEXTS[0], **asked)
    assert "One text: the order below is not a ranking" in told
    assert not any(line.startswith("rank ") for line in told.splitlines())
    assert max(map(len, told.splitlines())) <= 80
    several = judge_text("sentiment", None, **{**asked, "n": 2})
    assert "One text" not in several
    assert any(line.startswith("rank ") for line in several.splitlines())
