"""`mixlens reproduce`: every run of a plan, resumable, with a page; and what a plan must hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mixlens import data
from mixlens.base import errors
from mixlens.cli import app
from mixlens.model import loading
from mixlens.runs.experiments import claims, command, reproduction
from mixlens.runs.experiments import plan as plans
from mixlens.runs.experiments import reproduction_page as pages

STEPS = (
    plans.Step(
        "table", "attcat-faithfulness", ("classifier",), "sentiment", "Table 1", n=3, fast=2, methods=("cat", "attcat")
    ),
    plans.Step(
        "layers", "attcat-layers", ("classifier",), "sentiment", "Figure 4", n=3, fast=2, options={"variant": "paper"}
    ),
    plans.Step("absent", "attcat-qa", ("reader",), "squad1", "Figure 3"),
)
ITEMS = (plans.Item("Table 1", "numbers", steps=("table",)), plans.Item("Figure 1", "a drawing", reason="a drawing"))
ROLES = (plans.Role("classifier", "a classifier", "sentiment"), plans.Role("reader", "a reader"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> plans.Plan:
    """A plan of two runs on the embedded model, and one whose model has no published name."""
    plan = plans.Plan("small", "Nobody 2020, Nothing", __name__, ROLES, STEPS, ITEMS)
    plans.PLANS.known()
    monkeypatch.setitem(plans.PLANS, "small", plan)
    return plan


def test_every_run_of_a_plan_is_made_or_refused_with_its_reason(small: plans.Plan, tmp_path: Path) -> None:
    made = reproduction.reproduce("small", out=tmp_path, progress=False)
    assert list(made.outcomes) == ["table", "layers"]
    assert made.refusals["absent"].startswith(
        "the paper's model 'reader' has no published name: give one, --model reader=NAME"
    )
    assert json.loads((tmp_path / "table" / "manifest.json").read_text())["finished"]
    setups = [outcome.setup for outcome in made.outcomes.values()]
    claims = [claim for setup in setups for claim in setup.experiment.claims if claim.is_about(setup)]
    assert len(claims) == 13
    assert [row[1] for row in made.claims] == [claim.says for claim in claims]


def test_a_claim_about_two_runs_is_judged_where_both_were_made(
    small: plans.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(runs: Sequence[Any]) -> claims.Verdict:
        return claims.Verdict(claims.SAME, " and ".join(run.setup.experiment.name for run in runs))

    two = plans.Comparison("Section 9", "Tables are larger than layers.", "2 against 1", ("layers", "table"), check)
    absent = replace(two, steps=("table", "absent"))
    monkeypatch.setitem(plans.PLANS, "small", replace(small, comparisons=(two, absent)))
    made = reproduction.reproduce("small", fast=True, progress=False)
    told = ("layers, table", two.says, "Section 9", "2 against 1", "attcat-layers and attcat-faithfulness", "same")
    assert [row for row in made.claims if row[2] == "Section 9"] == [told]
    assert (
        f"| {two.says} | Section 9 | layers, table | 2 against 1 | attcat-layers and attcat-faithfulness | same |"
        in pages.page(made)
    )


def test_the_page_has_the_verdicts_the_commands_and_every_item(small: plans.Plan, tmp_path: Path) -> None:
    text = pages.page(reproduction.reproduce("small", out=tmp_path, progress=False))
    assert text.index("What replicates") < text.index("## Table 1")
    assert "How a verdict is reached: A claim of order" in text
    assert (
        "mixlens experiment attcat-layers --model sentiment --data sentiment --n 3 --option variant=paper --leave-out"
        in text
    )
    assert "| Figure 3 | the paper's model 'reader' has no published name" in text
    assert "`mixlens experiment attcat-qa --model MODEL --data squad1 --leave-out` |" in text
    assert "![Figure 4](layers/figure.svg)" in text
    assert "| Figure 1 | a drawing | none: a drawing |" in text
    assert "Differs from the paper" in text


def test_a_reproduction_goes_on_where_it_was_stopped(small: plans.Plan, tmp_path: Path) -> None:
    whole = pages.page(reproduction.reproduce("small", out=tmp_path / "a", progress=False))
    reproduction.reproduce("small", out=tmp_path / "b", only=["table"], progress=False)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "table" / "records").iterdir()}
    assert pages.page(reproduction.reproduce("small", out=tmp_path / "b", progress=False)) == whole
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "table" / "records").iterdir()} == before


def test_models_data_and_sizes_are_replaced(small: plans.Plan, tmp_path: Path) -> None:
    rows = [{"sentence": example.text, "label": 1} for example in data.load("sentiment", n=4)]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = reproduction.reproduce(
        "small", models={"classifier": "sentiment"}, fast=True, only=["table"], progress=False
    )
    assert len(made.outcomes["table"].setup.examples) == 2
    sized = reproduction.reproduce("small", sizes={"table": 1}, only=["table"], progress=False)
    assert len(sized.outcomes["table"].setup.examples) == 1
    assert "--n 1 --methods" in pages.page(sized)
    line = pages.command(STEPS[0], {"classifier": "FOLDER"}, {"sentiment": str(file)})
    assert f"--model FOLDER --data sentiment={file} --n 3 --methods cat,attcat" in line
    for wrong, told in (
        ({"models": {"classifer": "x"}}, "no model 'classifer'.*classifier"),
        ({"data": {"sst2": "x"}}, "no dataset 'sst2'"),
        ({"only": ["tabel"]}, "no step 'tabel'.*table"),
        ({"sizes": {"tabel": 2}}, "no step 'tabel'.*table"),
        ({"options": {"tabel": {"variant": "paper"}}}, "no step 'tabel'.*table"),
        ({"options": {"layers": {"varient": "paper"}}}, "step 'layers' has no option 'varient'.*variant"),
    ):
        with pytest.raises(errors.InputError, match=told):
            reproduction.reproduce("small", progress=False, **wrong)
    with pytest.raises(errors.InputError, match="unknown paper 'smal'"):
        reproduction.reproduce("smal")


def test_one_step_has_a_model_of_its_own(small: plans.Plan, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(loading.EMBEDDED / "sentiment", own)
    models = {"layers:classifier": str(own)}
    made = reproduction.reproduce("small", models=models, only=["table", "layers"], fast=True, progress=False)
    names = [str(made.outcomes[step].setup.model.name) for step in ("table", "layers")]
    assert names == ["sentiment", str(own)]
    assert f"--model layers:classifier={own}" in pages.whole_command(made)
    text = pages.page(made)
    assert f"mixlens experiment attcat-layers --model {own} " in text
    assert "| classifier | a classifier, `sentiment` | `sentiment`, `own` |" in text
    for wrong, told in (
        ("tabel:classifier", "no step 'tabel'.*table"),
        ("table:reader", "no model 'reader'.*classifier"),
    ):
        with pytest.raises(errors.InputError, match=told):
            reproduction.reproduce("small", models={wrong: "x"}, progress=False)


@pytest.mark.parametrize("fast", [False, True])
def test_options_of_one_step_are_replaced(small: plans.Plan, fast: bool) -> None:
    made = reproduction.reproduce("small", options={"layers": {"variant": "released"}}, fast=fast, progress=False)
    assert made.outcomes["layers"].setup.options["variant"] == "released"
    assert made.outcomes["table"].setup.options["variant"] == "paper"
    assert "--option layers:variant=released" in pages.whole_command(made)
    assert "--option" not in pages.whole_command(
        reproduction.reproduce("small", only=["table"], fast=True, progress=False)
    )


def test_the_command_takes_options_of_one_step(small: plans.Plan) -> None:
    """A value may be JSON, and may have a colon or an equals sign."""
    assert command.step_options_of(["a:folds=5", "a:rate=0.1", 'b:methods=["hta:probes=2"]', "b:x=y=z"]) == {
        "a": {"folds": 5, "rate": 0.1},
        "b": {"methods": ["hta:probes=2"], "x": "y=z"},
    }
    told = CliRunner().invoke(app, ["reproduce", "small", "--only", "layers", "--option", "layers:variant=released"])
    assert told.exit_code == 0, told.output


def test_the_command_prints_the_answer_first_and_writes_the_page(small: plans.Plan, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["reproduce", "small", "--fast", "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert "Nobody 2020, Nothing\nOf 13 claims:" in told.output
    assert (tmp_path / "out" / "README.md").read_text().startswith("# Nobody 2020, Nothing")
    for wrong, line in (
        (["--size", "table=many"], "NAME=NUMBER, not table=many"),
        (["--model", "a=b", "--model", "c"], "NAME=VALUE"),
        (["--option", "variant=paper"], "STEP:KEY=VALUE, as identity:folds=1, not 'variant=paper'"),
    ):
        with pytest.raises(errors.InputError, match=line):
            CliRunner().invoke(app, ["reproduce", "small", *wrong], catch_exceptions=False)
    listing = CliRunner().invoke(app, ["reproduce"])
    assert "small: Nobody 2020" in listing.output
    shutil.rmtree(tmp_path / "out")


def test_help_of_an_experiment_says_what_differs() -> None:
    told = " ".join(CliRunner().invoke(app, ["experiment", "attcat-qa", "--help"]).output.split())
    assert "Differs from the paper: - The paper does not say where a map is read." in told
    assert "Differs from the paper" not in CliRunner().invoke(app, ["experiment", "--help"]).output


# --- the plans of the papers ------------------------------------------------------------------------------------------


def test_the_page_of_the_papers_is_written_from_the_plans() -> None:
    from recipes.pages.papers import PAGE, text

    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == text(), (
        "make it again: python -m recipes.pages.papers"
    )


def test_the_page_is_written_where_no_step_made_a_folder(small: plans.Plan, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "runs"
    command.reproduce_text("small", out=folder, only=["absent"], progress=False)
    assert "No claim was judged. 1 of 3 runs could not be made here." in (folder / "README.md").read_text()
    file = tmp_path / "mine.csv"
    file.write_text("mine")
    with pytest.raises(errors.InputError, match=r"mine\.csv' is a file\. --out is a folder"):
        command.reproduce_text("small", out=file, only=["absent"], progress=False)
    with pytest.raises(errors.MixlensError, match="could not be written"):
        command.reproduce_text("small", out=file / "below", only=["absent"], progress=False)
    assert file.read_text() == "mine"
