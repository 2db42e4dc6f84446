"""Each paper's experiments on tiny cases: the numbers are those of the metrics, written out; extremes are what they must be."""

from __future__ import annotations

from typing import Any

import pytest

import mixlens
from mixlens import data
from mixlens.experiments import core, known, run
from mixlens.experiments.running import all_tables
from mixlens.metrics import Interval
from mixlens.types import Example


@pytest.fixture(scope="module")
def model() -> Any:
    return mixlens.load("sentiment")


@pytest.fixture(scope="module")
def gap_model() -> Any:
    return mixlens.load("agreement")


@pytest.fixture(scope="module")
def texts() -> list[Example]:
    return list(data.load("sentiment", n=3))


@pytest.fixture(scope="module")
def gaps() -> list[Example]:
    return list(data.load("agreement", n=3))


# --- every experiment -------------------------------------------------------------------------------------------------

OURS = [
    *("attcat-faithfulness", "attcat-confidence"),
]


@pytest.mark.parametrize("name", OURS)
def test_tables_and_figures_come_from_records_alone(
    name: str, model: Any, gap_model: Any, texts: list[Example], gaps: list[Example]
) -> None:
    """`finish` twice gives the same and leaves the records as they were; so does the figure."""
    used = known()[name]
    at_gap = used.model == "agreement"
    methods = [
        method for method in used.methods if core.asked(method).name not in ("integrated_gradients", "deeplift", "transatt")
    ]
    asked: dict[str, Any] = {"model": gap_model if at_gap else model, "data": (gaps if at_gap else texts)[:2]}
    made = run(name, methods=methods[:3], progress=False, **asked)
    before = [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records]
    again = all_tables(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records] == before
    assert core.drawn(made)["svg"] == core.drawn(made)["svg"]
    assert any(isinstance(one, Interval) for row in made.tables[0].rows for one in row)
