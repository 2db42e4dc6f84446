"""`python -m recipes.pages.results`: every run of every paper whose models are at hand, into pages in a folder of one's own."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mixlens import data
from mixlens.data.stored import jsonl
from mixlens.model.loading import EMBEDDED
from mixlens.runs.experiments.plan import PLANS, Item, Plan, Role, Step
from mixlens.runs.experiments.reproduction import Reproduction
from recipes.pages import overview, renewed, results

STEPS = (
    Step("table", "attcat-confidence", ("classifier",), "sentiment", "Table 2", n=5, fast=2, methods=("cat", "attcat")),
    Step("layers", "attcat-layers", ("classifier",), "sentiment", "Figure 4", n=5, fast=2),
    Step("absent", "attcat-layers", ("reader",), "sentiment", "Figure 5"),
)
ROLES = (Role("classifier", "a classifier", "sentiment"), Role("reader", "a reader"))
ITEMS = (Item("Table 2", "numbers", steps=("table",)),)


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One small paper: a model of the folder `shared`, one that was not tuned, and a size of its own for one run."""
    PLANS.known()
    monkeypatch.setitem(PLANS, "small", Plan("small", "Nobody 2020, Nothing", __name__, ROLES, STEPS, ITEMS))
    own = results.Material(
        {"classifier": "sentiment", "reader": "+tuned"},
        {"sentiment": "sentiment.jsonl"},
        sizes={"table": 4},
        options={"layers": {"variant": "paper"}},
        data_note="Data: few sentences.",
    )
    monkeypatch.setattr(results, "MATERIALS", {"small": own})
    monkeypatch.setattr(results, "SHARED", tmp_path / "shared")
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "shared" / "models").mkdir()
    (tmp_path / "shared" / "models" / "sentiment").symlink_to(EMBEDDED / "sentiment")
    texts = list(data.load("sentiment", n=6))
    (tmp_path / "shared" / "data" / "sentiment.jsonl").write_text(jsonl(texts), encoding="utf-8")
    return tmp_path


def examples(runs: Path) -> dict[str, int]:
    manifests = {
        step: json.loads((runs / "small" / step / "manifest.json").read_text()) for step in ("table", "layers")
    }
    return {step: manifest["identity"]["examples"] for step, manifest in manifests.items()}


def test_what_a_paper_puts_first_is_told_in_one_line() -> None:
    def cells(run: str, verdict: str, says: str = "AttCAT has more answer tokens than others") -> list[str]:
        return [says, "Figure 3", run, "highest", "+1", verdict]

    claims = {
        "attcat": [
            cells("a", "same"),
            cells("b", "different (the other way round: x - y, x - z)"),
            cells("c", "different (the other way round: x - z, x - u, x - v)"),
            cells("a", "same", "another statement"),
        ],
        "globenc": [cells("a", "not told apart (5 would tell)", "Rollout correlates more than single layers")],
    }
    rows = overview.main_rows(overview.statements_of(claims))
    assert rows == [
        ("[globenc](globenc.md)", "Rollout correlates more than single layers", "not told apart in its one run"),
        (
            "[attcat](attcat.md)",
            "AttCAT has more answer tokens than others",
            "same in 1 of 3 runs, different in 2; the other way round: x - y, x - z",
        ),
    ]


def test_a_long_list_of_what_is_the_other_way_round_is_cut_between_its_pairs() -> None:
    pairs = ", ".join(f"one - other{number}" for number in range(20))
    told = overview._the_other_way([f"the other way round: {pairs}", "the other way round: a - b"])
    assert told.startswith("; the other way round: one - other0, one - other1")
    assert told.endswith("one - other4 ...")
    assert len(told) < overview.LINE + 8
    assert overview._the_other_way([]) == ""


def test_every_main_statement_is_on_its_page() -> None:
    statements = overview.statements_of(results.claims_of(results.DOCS))
    for paper, beginnings in overview.MAIN.items():
        for beginning in beginnings:
            assert any(one.paper == paper and one.says.startswith(beginning) for one in statements), beginning


def test_one_command_makes_the_runs_and_writes_the_pages_where_it_is_told(material: Path) -> None:
    runs, docs = material / "runs", material / "docs"
    assert results.main([str(runs), "--docs", str(docs), "--models", str(material / "none")]) == 0
    assert examples(runs) == {"table": 4, "layers": 5}
    page, overview = ((docs / name).read_text(encoding="utf-8") for name in ("small.md", "README.md"))
    assert "--size table=4 --option layers:variant=paper --only table --only layers" in page
    assert "Data: few sentences. [All papers](README.md)." in page
    assert {file.name for file in (docs / "figures").iterdir()} == {"small-table.svg", "small-layers.svg"}
    assert "| [Nobody 2020, Nothing](small.md) | 8 |" in overview
    assert not (Path(results.DOCS) / "small.md").exists()


def test_a_step_is_made_where_each_of_its_models_is_there(material: Path) -> None:
    tuned = material / "tuned"
    assert results.steps_of("small", tuned) == ["table", "layers"]
    (tuned / "tuned").mkdir(parents=True)
    assert results.steps_of("small", tuned) == ["table", "layers", "absent"]
    results.MATERIALS["small"].models["layers:classifier"] = "+own"  # type: ignore[index]
    assert results.steps_of("small", tuned) == ["table", "absent"]
    (tuned / "own").mkdir()
    assert results.steps_of("small", tuned) == ["table", "layers", "absent"]


def test_fast_takes_the_few_examples_of_the_plan(material: Path) -> None:
    runs = material / "runs"
    assert results.main([str(runs), "small", "--fast", "--docs", str(material / "docs")]) == 0
    assert examples(runs) == {"table": 2, "layers": 2}


def test_jobs_are_the_steps_the_long_ones_first(material: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is one job; the pages are written from what the jobs measured, and nothing is measured twice."""
    asked: list[tuple[str, ...]] = []
    made = results.made

    def noted(name: str, runs: Path, tuned: Path, settings: Any, only: Any = None) -> Reproduction:
        asked.append(tuple(only or ("all",)))
        return made(name, runs, tuned, settings, only)

    monkeypatch.setattr(results, "LONGEST", ("layers",))
    monkeypatch.setattr(results, "made", noted)
    monkeypatch.setattr(
        results, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(1)
    )  # a process has no patches
    given = [str(material / "runs"), "--fast", "--docs", str(material / "docs"), "--jobs", "2"]
    assert results.main(given) == 0
    assert asked == [("layers",), ("table",), ("all",)]
    assert (material / "docs" / "small.md").exists()


def test_every_material_is_of_a_paper_and_names_its_steps() -> None:
    named = set()
    for name, material in results.MATERIALS.items():
        plan = PLANS.find(name)
        steps = {step.name for step in plan.steps}
        assert {*material.sizes, *material.options, *material.left_out} <= steps
        of_one_step = {f"{step.name}:{role}" for step in plan.steps for role in step.models}
        assert set(material.models) <= {role.name for role in plan.roles} | of_one_step
        assert set(material.data) <= {step.data for step in plan.steps}
        named |= steps
    assert set(results.LONGEST) <= named


def test_an_unknown_paper_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        results.main([str(tmp_path), "bert"])
    assert (
        "there is no paper 'bert'; there are alti, globenc, value-zeroing, identifiability, attcat"
        in capsys.readouterr().err
    )


def test_some_runs_are_written_into_the_page_that_is_there(material: Path) -> None:
    runs, docs = material / "runs", material / "docs"
    asked = ["--docs", str(docs), "--models", str(material / "none")]
    assert results.main([str(runs), *asked]) == 0
    page = docs / "small.md"
    before, overview = page.read_text(encoding="utf-8"), (docs / "README.md").read_text(encoding="utf-8")
    others = [row for row in renewed.claim_rows(before) if row[renewed.RUN] == "layers"]
    assert others
    spoiled = re.sub(r"(?m)^(\| .* \| table \| .* \|) \S[^|]* \|$", r"\1 spoiled |", before).replace(
        "## Table 2\n", "## Table 2\n\nOld.\n"
    )
    spoiled = spoiled.replace("Of ", "Of 9", 1)
    page.write_text(spoiled, encoding="utf-8")
    assert results.main([str(material / "again"), "small", "--step", "table", *asked]) == 0
    assert page.read_text(encoding="utf-8") == before
    assert (docs / "README.md").read_text(encoding="utf-8") == overview
    assert not (material / "again" / "small" / "layers").exists()


def test_items_and_what_was_not_made_follow_the_plan_of_today(material: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of an older plan: without the run `absent` and with another item. Only `table` is made again."""
    runs, docs = material / "runs", material / "docs"
    today, asked = PLANS.find("small"), ["--docs", str(docs), "--models", str(material / "none")]
    older = Plan("small", today.paper, __name__, ROLES, STEPS[:2], (Item("Table 9", "gone", steps=("layers",)),))
    monkeypatch.setitem(PLANS, "small", older)
    assert results.main([str(runs), *asked]) == 0
    page = docs / "small.md"
    assert "Table 9" in page.read_text(encoding="utf-8")
    assert "Not made here" not in page.read_text(encoding="utf-8")
    monkeypatch.setitem(PLANS, "small", today)
    assert results.main([str(runs), "small", "--step", "table", *asked]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Table 9" not in text
    assert "| Table 2 | numbers |" in text
    _, _, listed = text.partition("## Not made here")
    names = [row for row in listed.partition("## ")[0].splitlines() if row.startswith("| ")][1:]
    assert [row.split(" | ")[0] for row in names] == ["| ---", "| Figure 5"]
    assert "not asked for; no model was named for `reader`" in names[1]
    assert text.index("## Figure 4") < text.index("## Not made here") < text.index("## Every table")


CLAIMS = {
    "alti": [
        [r"A \| B is above C.", "Table 2", "one", "0.5", "+0.1", "same"],
        [r"A \| B is above C.", "Table 3", "two", "0.5", "-0.1", "different (the other way round: C)"],
        ["D falls.", "Figure 1", "one", "-", "+0.1", "same"],
        ["E falls.", "Figure 1", "one", "-", "+0.1", "not comparable (no)"],
    ],
    "globenc": [["D falls.", "Figure 1", "one", "-", "-0.1", "different"]],
}


def test_the_overview_has_each_statement_once_with_its_runs() -> None:
    text = overview.overview(CLAIMS)
    assert r"| [alti](alti.md) | A \| B is above C. | Table 2; Table 3 | one | two |  |  |" in text
    assert text.count("D falls.") == 2  # of two papers
    assert "| [globenc](globenc.md) | D falls. | Figure 1 |  | one |  |  |" in text
    told = "Of 4 statements 1 hold in every run that judges them, 1 in some runs and not in others, 1 in none and are different in"
    assert told in text
    assert "one run or more, and 1 are not decided." in text
    assert "| 4 | 2 same, 1 different, 1 not comparable |" in text
    assert (
        text.index("Of 4 statements")
        < text.index("## How the runs were made")
        < text.index("## How a verdict is reached")
    )


def test_steps_are_those_of_one_paper(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        results.main(["runs", "--step", "table"])
    assert "--step is for one paper: name it" in capsys.readouterr().err


def test_cells_keep_their_bars() -> None:
    assert renewed._cells(r"| a \| b | c |") == [r"a \| b", "c"]


def test_rows_of_a_new_run_and_of_a_comparison_are_written_too() -> None:
    def row(says: str, run: str, verdict: str) -> list[str]:
        return [says, "Figure 1", run, "-", "-", verdict]

    old = [
        row("a", "one", "same"),
        row("b", "two", "same"),
        row("c", "one, two", "same"),
        row("d", "one, three", "same"),
    ]
    new = [
        row("a", "one", "different"),
        row("e", "one", "same"),
        row("f", "four", "same"),
        row("c", "one, four", "different"),
    ]
    merged = renewed._merged(old, new, ["one", "four"])
    assert merged == [new[0], new[1], *old[1:], new[2], new[3]]
    assert renewed._merged(old, [*new, row("c", "one, two", "different")], ["one", "two"])[-2:] == [
        row("c", "one, two", "different"),
        old[3],
    ]
