"""`mixlens reproduce`: every run of a plan, resumable, with a page; and what a plan must hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mixlens import data
from mixlens.base.errors import InputError, MixlensError
from mixlens.base.registry import Registry
from mixlens.cli.app import app
from mixlens.model.loading import EMBEDDED
from mixlens.runs.experiments import known
from mixlens.runs.experiments.claims import SAME, Verdict
from mixlens.runs.experiments.command import step_options_of
from mixlens.runs.experiments.experiment import Outcome
from mixlens.runs.experiments.plan import PLANS, Comparison, Item, Plan, Role, Step
from mixlens.runs.experiments.reproduction import reproduce
from mixlens.runs.experiments.reproduction_page import command, page, whole_command

STEPS = (
    Step(
        "table", "attcat-faithfulness", ("classifier",), "sentiment", "Table 1", n=3, fast=2, methods=("cat", "attcat")
    ),
    Step(
        "layers", "attcat-layers", ("classifier",), "sentiment", "Figure 4", n=3, fast=2, options={"variant": "paper"}
    ),
    Step("absent", "attcat-qa", ("reader",), "squad1", "Figure 3"),
)
ITEMS = (Item("Table 1", "numbers", steps=("table",)), Item("Figure 1", "a drawing", reason="a drawing"))
ROLES = (Role("classifier", "a classifier", "sentiment"), Role("reader", "a reader"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of two runs on the embedded model, and one whose model has no published name."""
    plan = Plan("small", "Nobody 2020, Nothing", __name__, ROLES, STEPS, ITEMS)
    PLANS.known()
    monkeypatch.setitem(PLANS, "small", plan)
    return plan


def test_every_run_of_a_plan_is_made_or_refused_with_its_reason(small: Plan, tmp_path: Path) -> None:
    made = reproduce("small", out=tmp_path, progress=False)
    assert list(made.outcomes) == ["table", "layers"]
    assert made.refusals["absent"].startswith(
        "the paper's model 'reader' has no published name: give one, --model reader=NAME"
    )
    assert json.loads((tmp_path / "table" / "manifest.json").read_text())["finished"]
    setups = [outcome.setup for outcome in made.outcomes.values()]
    claims = [claim for setup in setups for claim in setup.experiment.claims if claim.is_about(setup)]
    assert len(claims) == 13
    assert [row[1] for row in made.claims] == [claim.says for claim in claims]


def test_a_claim_about_two_runs_is_judged_where_both_were_made(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(runs: Sequence[Outcome]) -> Verdict:
        return Verdict(SAME, " and ".join(run.setup.experiment.name for run in runs))

    two = Comparison("Section 9", "Tables are larger than layers.", "2 against 1", ("layers", "table"), check)
    absent = replace(two, steps=("table", "absent"))
    monkeypatch.setitem(PLANS, "small", replace(small, comparisons=(two, absent)))
    made = reproduce("small", fast=True, progress=False)
    told = ("layers, table", two.says, "Section 9", "2 against 1", "attcat-layers and attcat-faithfulness", "same")
    assert [row for row in made.claims if row[2] == "Section 9"] == [told]
    assert (
        f"| {two.says} | Section 9 | layers, table | 2 against 1 | attcat-layers and attcat-faithfulness | same |"
        in page(made)
    )


@pytest.mark.parametrize("name", ["alti", "identifiability"])
def test_comparisons_are_of_steps_of_the_plan(name: str) -> None:
    plan = PLANS.find(name)
    assert plan.comparisons
    assert {step for one in plan.comparisons for step in one.steps} <= {step.name for step in plan.steps}


def test_the_page_has_the_verdicts_the_commands_and_every_item(small: Plan, tmp_path: Path) -> None:
    text = page(reproduce("small", out=tmp_path, progress=False))
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


def test_a_reproduction_goes_on_where_it_was_stopped(small: Plan, tmp_path: Path) -> None:
    whole = page(reproduce("small", out=tmp_path / "a", progress=False))
    reproduce("small", out=tmp_path / "b", only=["table"], progress=False)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "table" / "records").iterdir()}
    assert page(reproduce("small", out=tmp_path / "b", progress=False)) == whole
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "table" / "records").iterdir()} == before


def test_models_data_and_sizes_are_replaced(small: Plan, tmp_path: Path) -> None:
    rows = [{"sentence": example.text, "label": 1} for example in data.load("sentiment", n=4)]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = reproduce("small", models={"classifier": "sentiment"}, fast=True, only=["table"], progress=False)
    assert len(made.outcomes["table"].setup.examples) == 2
    sized = reproduce("small", sizes={"table": 1}, only=["table"], progress=False)
    assert len(sized.outcomes["table"].setup.examples) == 1
    assert "--n 1 --methods" in page(sized)
    line = command(STEPS[0], {"classifier": "FOLDER"}, {"sentiment": str(file)})
    assert f"--model FOLDER --data sentiment={file} --n 3 --methods cat,attcat" in line
    for wrong, told in (
        ({"models": {"classifer": "x"}}, "no model 'classifer'.*classifier"),
        ({"data": {"sst2": "x"}}, "no dataset 'sst2'"),
        ({"only": ["tabel"]}, "no step 'tabel'.*table"),
        ({"sizes": {"tabel": 2}}, "no step 'tabel'.*table"),
        ({"options": {"tabel": {"variant": "paper"}}}, "no step 'tabel'.*table"),
        ({"options": {"layers": {"varient": "paper"}}}, "step 'layers' has no option 'varient'.*variant"),
    ):
        with pytest.raises(InputError, match=told):
            reproduce("small", progress=False, **wrong)
    with pytest.raises(InputError, match="unknown paper 'smal'"):
        reproduce("smal")


def test_one_step_has_a_model_of_its_own(small: Plan, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(EMBEDDED / "sentiment", own)
    models = {"layers:classifier": str(own)}
    made = reproduce("small", models=models, only=["table", "layers"], fast=True, progress=False)
    names = [str(made.outcomes[step].setup.model.name) for step in ("table", "layers")]
    assert names == ["sentiment", str(own)]
    assert f"--model layers:classifier={own}" in whole_command(made)
    text = page(made)
    assert f"mixlens experiment attcat-layers --model {own} " in text
    assert "| classifier | a classifier, `sentiment` | `sentiment`, `own` |" in text
    for wrong, told in (
        ("tabel:classifier", "no step 'tabel'.*table"),
        ("table:reader", "no model 'reader'.*classifier"),
    ):
        with pytest.raises(InputError, match=told):
            reproduce("small", models={wrong: "x"}, progress=False)


@pytest.mark.parametrize("fast", [False, True])
def test_options_of_one_step_are_replaced(small: Plan, fast: bool) -> None:
    made = reproduce("small", options={"layers": {"variant": "released"}}, fast=fast, progress=False)
    assert made.outcomes["layers"].setup.options["variant"] == "released"
    assert made.outcomes["table"].setup.options["variant"] == "paper"
    assert "--option layers:variant=released" in whole_command(made)
    assert "--option" not in whole_command(reproduce("small", only=["table"], fast=True, progress=False))


def test_the_command_takes_options_of_one_step(small: Plan) -> None:
    """A value may be JSON, and may have a colon or an equals sign."""
    assert step_options_of(["a:folds=5", "a:rate=0.1", 'b:methods=["hta:probes=2"]', "b:x=y=z"]) == {
        "a": {"folds": 5, "rate": 0.1},
        "b": {"methods": ["hta:probes=2"], "x": "y=z"},
    }
    told = CliRunner().invoke(app, ["reproduce", "small", "--only", "layers", "--option", "layers:variant=released"])
    assert told.exit_code == 0, told.output


def test_the_command_prints_the_answer_first_and_writes_the_page(small: Plan, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["reproduce", "small", "--fast", "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert "Nobody 2020, Nothing\nOf 13 claims:" in told.output
    assert (tmp_path / "out" / "README.md").read_text().startswith("# Nobody 2020, Nothing")
    for wrong, line in (
        (["--size", "table=many"], "NAME=NUMBER, not table=many"),
        (["--model", "a=b", "--model", "c"], "NAME=VALUE"),
        (["--option", "variant=paper"], "STEP:KEY=VALUE, as identity:folds=1, not 'variant=paper'"),
    ):
        with pytest.raises(InputError, match=line):
            CliRunner().invoke(app, ["reproduce", "small", *wrong], catch_exceptions=False)
    listing = CliRunner().invoke(app, ["reproduce"])
    assert "small: Nobody 2020" in listing.output
    shutil.rmtree(tmp_path / "out")


def test_help_of_an_experiment_says_what_differs() -> None:
    told = " ".join(CliRunner().invoke(app, ["experiment", "attcat-qa", "--help"]).output.split())
    assert "Differs from the paper: - The paper does not say where a map is read." in told
    assert "Differs from the paper" not in CliRunner().invoke(app, ["experiment", "--help"]).output


# --- the plans of the papers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PLANS.known()))
def test_a_plan_names_what_there_is(name: str) -> None:
    """Experiments, roles, datasets, options and steps of a plan exist; every item says what makes it, or why nothing does."""
    plan = PLANS.known()[name]
    roles, steps = {role.name for role in plan.roles}, [step.name for step in plan.steps]
    assert len(set(steps)) == len(steps)
    for step in plan.steps:
        declared = known()[step.experiment]
        assert set(step.models) <= roles
        assert step.data in data.DATASETS
        assert {*step.options, *step.fast_options} <= {*declared.options, "methods"}
        assert len(step.models) >= declared.n_models
    assert {name for item in plan.items for name in item.steps} == set(steps)


def test_commands_of_items_name_a_model_and_the_texts_that_a_paper_prints() -> None:
    """Commands that have no model and no mask are refused: the embedded model fills gaps. attcat-qa has no embedded model."""
    commands = {
        (name, item.where): item.command for name, plan in PLANS.known().items() for item in plan.items if item.command
    }
    needing = ("mixlens explain", "mixlens plot", "mixlens compare", "mixlens experiment attcat-qa")
    assert [key for key, one in commands.items() if one.startswith(needing) and "--model " not in one] == []
    for where, words in (("Figure 6", "research into military brats"), ("Figures 19-25", "foodservice pie business")):
        assert words in commands["identifiability", where]


OF_THE_PAPERS = sorted(name for name in known() if name.split("-")[0] in ("alti", "globenc", "vz", "id", "attcat"))


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_an_experiment_of_a_paper_says_what_differs_and_is_in_a_plan(name: str) -> None:
    declared = known()[name]
    assert declared.differs, "what differs from the paper is not said"
    assert declared.claims or declared.published, "neither a claim nor a number of the paper"
    steps = [step.experiment for plan in PLANS.known().values() for step in plan.steps]
    assert name in steps or any(
        f"mixlens experiment {name}" in item.command for plan in PLANS.values() for item in plan.items
    )


def test_plans_are_a_registry() -> None:
    assert isinstance(PLANS, Registry)
    assert all(plan.name == name for name, plan in PLANS.known().items())


def test_the_page_of_the_papers_is_written_from_the_plans() -> None:
    from recipes.pages.papers import PAGE, text

    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == text(), (
        "make it again: python -m recipes.pages.papers"
    )


def test_the_page_is_written_where_no_step_made_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixlens.runs.experiments import command

    monkeypatch.setattr(command, "reproduce", lambda name, **question: name)
    monkeypatch.setattr(command, "page", lambda reproduction: f"page of {reproduction}")
    monkeypatch.setattr(command, "reproduction_text", lambda reproduction, out: f"{reproduction} in {out}")
    folder = tmp_path / "new" / "runs"
    assert command.reproduce_text("alti", out=folder) == f"alti in {folder}"
    assert (folder / "README.md").read_text() == "page of alti"
    file = tmp_path / "mine.csv"
    file.write_text("mine")
    with pytest.raises(InputError, match=r"mine\.csv' is a file\. --out is a folder"):
        command.reproduce_text("alti", out=file)
    with pytest.raises(MixlensError, match="could not be written"):
        command.reproduce_text("alti", out=file / "below")
    assert file.read_text() == "mine"
