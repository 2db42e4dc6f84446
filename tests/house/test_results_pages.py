"""`python -m recipes.pages.results`: every run of every paper whose models are at hand, into pages in a folder of one's
own."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mixlens import data
from mixlens.data import stored as storing
from mixlens.model import loading
from mixlens.runs.experiments import plan as plans
from mixlens.runs.experiments import reproduction
from recipes.pages import results, stored

STEPS = (
    plans.Step(
        "table", "attcat-confidence", ("classifier",), "sentiment", "Table 2", n=5, fast=2, methods=("cat", "attcat")
    ),
    plans.Step("layers", "attcat-layers", ("classifier",), "sentiment", "Figure 4", n=5, fast=2),
    plans.Step("absent", "attcat-layers", ("reader",), "sentiment", "Figure 5"),
)
ROLES = (plans.Role("classifier", "a classifier", "sentiment"), plans.Role("reader", "a reader"))
ITEMS = (plans.Item("Table 2", "numbers", steps=("table",)),)


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One small paper: a model of the folder `shared`, one that was not tuned, and a size of its own for one run."""
    plans.PLANS.known()
    monkeypatch.setitem(
        plans.PLANS, "small", plans.Plan("small", "Nobody 2020, Nothing", __name__, ROLES, STEPS, ITEMS)
    )
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
    (tmp_path / "shared" / "models" / "sentiment").symlink_to(loading.EMBEDDED / "sentiment")
    texts = list(data.load("sentiment", n=6))
    (tmp_path / "shared" / "data" / "sentiment.jsonl").write_text(storing.jsonl(texts), encoding="utf-8")
    return tmp_path


def examples(runs: Path) -> dict[str, int]:
    manifests = {
        step: json.loads((runs / "small" / step / "manifest.json").read_text()) for step in ("table", "layers")
    }
    return {step: manifest["identity"]["examples"] for step, manifest in manifests.items()}


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

    def noted(name: str, runs: Path, tuned: Path, settings: Any, only: Any = None) -> reproduction.Reproduction:
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
        plan = plans.PLANS.find(name)
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


def test_steps_are_those_of_one_paper(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        results.main(["runs", "--step", "table"])
    assert "--step is for one paper: name it" in capsys.readouterr().err


def claim(run: str, verdict: str, says: str = "AttCAT has more answer tokens than others") -> dict[str, str]:
    return {"run": run, "says": says, "where": "Figure 3", "paper": "highest", "here": "+1", "verdict": verdict}


def test_a_statement_is_told_once_with_its_runs() -> None:
    claims = [
        claim("a", "same"),
        claim("b", "different (the other way round: x - y, x - z)"),
        claim("c", "different (the other way round: x - z)"),
        claim("a", "same", "another statement"),
        claim("a", "not told apart (5 would tell)", "a third one"),
    ]
    first, second, third = stored.statements_of(claims)
    assert first["verdicts"] == ["**same**: a", "**different**: b, c"]
    assert (first["where"], first["against"]) == (["Figure 3"], "the other way round: x - y, x - z")
    assert stored.in_words(first["runs"]) == "same in 1 of 3 runs, different in 2"
    assert stored.in_words(second["runs"]) == "same in its one run"
    assert stored.put_first("attcat", [second, first, third]) == [first]
    assert stored.summary([first, second, third]) == (
        "Of 3 statements 1 hold in every run that judges them, 1 in some runs and not in others, 0 in none and are "
        "different in "
        "one run or more, and 1 are not decided."
    )
    assert stored.verdict_counts(claims) == "2 same, 2 different, 1 not told apart"


def test_one_command_makes_the_runs_and_writes_the_pages_where_it_is_told(material: Path) -> None:
    """The numbers are stored, and the pages are made of what is stored alone: without the runs they are the same."""
    runs, docs = material / "runs", material / "docs"
    assert results.main([str(runs), "--docs", str(docs), "--models", str(material / "none")]) == 0
    assert examples(runs) == {"table": 4, "layers": 5}
    page, overview = ((docs / name).read_text(encoding="utf-8") for name in ("small.md", "README.md"))
    assert "Data: few sentences. [All papers](README.md)" in page
    assert "| Figure 5 | models: a reader |" in page
    assert "[Nobody 2020, Nothing](small.md)" in overview
    assert {file.name for file in (docs / "figures").iterdir()} == {"small-table.svg", "small-layers.svg"}
    step = json.loads((docs / "stored" / "small" / "table.json").read_text(encoding="utf-8"))
    assert step["command"].startswith("mixlens experiment attcat-confidence --model")
    assert all(len(row) == len(table["columns"]) for table in step["tables"] for row in table["rows"])
    assert len(stored.claims_of("small", docs / "stored" / "small")) == 8
    assert "#### " + step["tables"][0]["title"] in stored.tables("small", docs / "stored" / "small")
    for name in ("small.md", "README.md"):
        (docs / name).unlink()
    assert results.main(["--pages", "--docs", str(docs)]) == 0
    assert ((docs / "small.md").read_text(encoding="utf-8"), (docs / "README.md").read_text(encoding="utf-8")) == (
        page,
        overview,
    )
    assert not (Path(results.DOCS) / "small.md").exists()


def test_a_run_that_is_made_again_leaves_the_numbers_of_others(material: Path) -> None:
    runs, docs = material / "runs", material / "docs"
    asked = ["--docs", str(docs), "--models", str(material / "none")]
    assert results.main([str(runs), *asked]) == 0
    before = {path: path.read_text(encoding="utf-8") for path in docs.rglob("*") if path.suffix in (".md", ".json")}
    table = docs / "stored" / "small" / "table.json"
    table.write_text(table.read_text(encoding="utf-8").replace("Table 2", "Table 9"), encoding="utf-8")
    assert results.main([str(material / "again"), "small", "--step", "table", *asked]) == 0
    assert {path: path.read_text(encoding="utf-8") for path in before} == before
    assert not (material / "again" / "small" / "layers").exists()


def test_the_pages_are_made_of_the_stored_numbers(tmp_path: Path) -> None:
    """Those of the project: no page was written by hand, and each statement that a paper puts first is among its
    claims."""
    (tmp_path / "stored").symlink_to(results.DOCS.resolve() / "stored")
    results.pages(tmp_path)
    for page in tmp_path.glob("*.md"):
        assert page.read_text(encoding="utf-8") == (results.DOCS / page.name).read_text(encoding="utf-8"), "--pages"
    for name, beginnings in stored.FIRST.items():
        claims = stored.claims_of(name, results.DOCS / "stored" / name)
        assert len({one["says"] for one in stored.put_first(name, claims)}) >= len(beginnings)


def test_a_claim_about_several_runs_is_stored_once(tmp_path: Path) -> None:
    """Made again it takes the place of the old one; claims about other runs stay."""
    of_alti = plans.PLANS.find("alti")
    for verdict, others in (("same", [("a, c", "It falls.", "5", "-", "-", "same")]), ("different", [])):
        claims = [("a, b", "It rises.", "5", "-", "-", verdict), *others]
        made: Any = SimpleNamespace(plan=of_alti, outcomes={}, claims=claims)
        stored.store(made, tmp_path)
    found = stored.claims_of("alti", tmp_path)
    assert {(one["run"], one["verdict"]) for one in found} == {("a, c", "same"), ("a, b", "different")}
    assert len(found) == 2
