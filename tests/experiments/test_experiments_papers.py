"""Each paper's experiments on tiny cases: the numbers are those of the metrics, written out; extremes are what they must be."""

from __future__ import annotations

import re
from typing import Any

import pytest

import mixlens
from mixlens import data
from mixlens.metrics import Interval
from mixlens.runs.experiments import known, run, running
from mixlens.runs.experiments.running import all_tables
from mixlens.scoring import asking
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
        method
        for method in used.methods
        if asking.parse_method(method).name not in ("integrated_gradients", "deeplift", "transatt")
    ]
    asked: dict[str, Any] = {"model": gap_model if at_gap else model, "data": (gaps if at_gap else texts)[:2]}
    made = run(name, methods=methods[:3], progress=False, **asked)
    before = [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records]
    again = all_tables(made.setup, made.records)
    assert [(t.csv, t.markdown) for t in again] == [(t.csv, t.markdown) for t in made.tables]
    assert [(r.example, r.method, r.metric, r.value, dict(r.info)) for r in made.records] == before
    assert running.drawn(made)["svg"] == running.drawn(made)["svg"]
    assert any(isinstance(one, Interval) for row in made.tables[0].rows for one in row)


PROMISED = re.compile(r"\b(far more|much|considerably|significantly)\b")
READ = ("(here: ", "read here as ")  # how a claim says what its rule takes a word of the paper to mean


@pytest.mark.parametrize("name", sorted(name for name in known() if name.split("-")[0] in ("alti", "globenc", "vz")))
def test_a_claim_that_promises_a_size_says_what_its_rule_asks(name: str) -> None:
    """Rules of order ask for any margin: a claim with a word such as "much" says so."""
    for claim in known()[name].claims:
        assert not PROMISED.search(claim.says) or any(words in claim.says for words in READ), claim.says


def test_the_claim_about_distances_names_all_that_its_rule_asks_for() -> None:
    """Every distance but the first: two others, and three with normalised representations."""
    declared = known()["vz-distances"]
    (claim,) = [claim for claim in declared.claims if "pattern" in claim.says]
    others = [asking.parse_method(method).options for method in declared.methods[1:]]
    assert sorted(one["distance"] for one in others if "standardize" not in one) == ["euclidean", "spearman"]
    assert sorted(one["distance"] for one in others if "standardize" in one) == ["cosine", "euclidean", "spearman"]
    for words in ("Spearman's and Euclidean distance", "all three with normalised representations"):
        assert words in claim.says
