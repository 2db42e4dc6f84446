"""The page of a reproduction: the verdicts first, then each run with ours beside the paper's, then every item of the paper."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...scoring.provenance import public_name
from .claims import RULES, WORDS
from .experiment import Outcome
from .plan import PLANS, Plan, Step
from .reproduction import Reproduction, name_for, question
from .running import differences
from .tables import Table

FLAGS = ("first", "truncate")  # arguments of a run that are flags of the command line
NAMED = ("data", "n", "split", "methods")  # arguments of a run that are options of the command line
LONGEST = 60  # rows of a table that a page shows
FIGURE = "{step}/figure.svg"  # beside the page
NOT_ASKED = "not asked for"
NOT_MADE = "Not made here"  # the heading of the runs that were not made
ITEMS = "Every table and figure of"  # the heading of what a paper has, before its name
COLUMNS = ("the paper says", "where", "run", "paper", "here", "verdict")


def page(reproduction: Reproduction, *, figure: str = FIGURE) -> str:
    """The page as Markdown. `figure` says where the picture of a step lies, seen from the page."""
    plan = reproduction.plan
    parts = [f"# {plan.paper}", "", f"*Written by `{whole_command(reproduction)}`.*", ""]
    parts += [*summary(reproduction), *_verdicts(reproduction), *_models(reproduction)]
    for step in plan.steps:
        parts += _section(reproduction, step, figure)
    return "\n".join([*parts, *_not_made(reproduction), *items(plan)])


# --- commands -----------------------------------------------------------------------------------------------------------


def command(step: Step, models: Mapping[str, str], files: Mapping[str, str], fast: bool = False) -> str:
    """The command line that makes one step alone."""
    words = ["mixlens", "experiment", step.experiment]
    for key, value in question(step, models, files, fast).items():
        words += _words(key, value)
    return " ".join([*(shlex.quote(word) for word in words), "--leave-out"])


def _words(key: str, value: Any) -> list[str]:
    """One argument of a run as the command line writes it."""
    if key in FLAGS:
        return [f"--{key}"]
    if key == "model":
        return _model_words(value if isinstance(value, list) else [value])
    if key in NAMED:
        return [f"--{key}", ",".join(value) if key == "methods" else str(value)]
    return ["--option", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]


def _model_words(names: Sequence[Any]) -> list[str]:
    return [word for name in names for word in ("--model", str(name) or "MODEL")]


def whole_command(reproduction: Reproduction) -> str:
    """The command line that makes all steps."""
    words = ["mixlens", "reproduce", reproduction.plan.name]
    hub = {role.name: role.hub for role in reproduction.plan.roles}
    for role, name in reproduction.models.items():
        words += ["--model", f"{role}={name}"] if name != hub.get(role) else []
    for name, path in reproduction.data.items():
        words += ["--data", f"{name}={path}"]
    words += [*_sizes(reproduction), *_options(reproduction), *_only(reproduction)]
    return " ".join([*map(shlex.quote, words), *(["--fast"] if reproduction.fast else [])])


def _sizes(reproduction: Reproduction) -> list[str]:
    """The numbers of examples that are not those of the plan, as options."""
    planned = {step.name: step.n for step in PLANS.find(reproduction.plan.name).steps}
    changed = [step for step in reproduction.plan.steps if step.n != planned.get(step.name, step.n)]
    return [word for step in changed for word in ("--size", f"{step.name}={step.n}")]


def _options(reproduction: Reproduction) -> list[str]:
    """The options of steps that are not those of the plan, as options."""
    planned = {step.name: step.options for step in PLANS.find(reproduction.plan.name).steps}
    changed = [
        f"{step.name}:{key}={value if isinstance(value, str) else json.dumps(value)}"
        for step in reproduction.plan.steps
        for key, value in step.options.items()
        if key not in planned.get(step.name, {}) or planned[step.name][key] != value
    ]
    return [word for one in changed for word in ("--option", one)]


def _only(reproduction: Reproduction) -> list[str]:
    """The steps that were asked for, where these are not all, as options."""
    asked = {*reproduction.outcomes, *reproduction.refusals}
    steps = [step.name for step in reproduction.plan.steps if step.name in asked]
    return [] if len(steps) == len(reproduction.plan.steps) else [word for name in steps for word in ("--only", name)]


# --- parts of the page --------------------------------------------------------------------------------------------------


def verdict_counts(claims: Sequence[Sequence[str]]) -> str:
    """How many claims have which verdict: "5 same, 2 different". The verdict is the last cell of a claim."""
    words = [claim[-1].partition(" (")[0] for claim in claims]
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


def summary(reproduction: Reproduction) -> list[str]:
    """The answer in one sentence."""
    told = (
        f"Of {len(reproduction.claims)} claims: {verdict_counts(reproduction.claims)}."
        if reproduction.claims
        else "No claim was judged."
    )
    absent = len(reproduction.refusals)
    return [told + (f" {absent} of {len(reproduction.plan.steps)} runs could not be made here." if absent else ""), ""]


def _section_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """A table under a heading of the page."""
    return [f"## {title}", "", *Table("", "", columns, tuple(rows)).markdown.splitlines()[2:], ""]


def claim_cells(claim: Sequence[str]) -> tuple[str, ...]:
    """(step, claim, where, paper, here, verdict) in the order of the columns."""
    step, says, where, *rest = claim
    return (says, where, step, *rest)


def _verdicts(reproduction: Reproduction) -> list[str]:
    if not reproduction.claims:
        return []
    rows = [claim_cells(claim) for claim in reproduction.claims]
    return [*_section_table("What replicates", COLUMNS, rows), f"How a verdict is reached: {RULES}", ""]


def _models(reproduction: Reproduction) -> list[str]:
    rows = [
        (role.name, role.what + (f", `{role.hub}`" if role.hub else ""), _name_here(reproduction, role.name))
        for role in reproduction.plan.roles
    ]
    return _section_table("Models", ("role", "the paper's, and a checkpoint for it", "here"), rows)


def _name_here(reproduction: Reproduction, role: str) -> str:
    steps = [step for step in reproduction.plan.steps if step.name in reproduction.outcomes]
    names = [name_for(role, step, reproduction.models) for step in steps if role in step.models]
    return ", ".join(f"`{public_name(name)}`" for name in dict.fromkeys(names)) or "not run"


def _section(reproduction: Reproduction, step: Step, figure: str) -> list[str]:
    """One run: its command, its tables and its figure. Nothing where it was not made."""
    if step.name not in reproduction.outcomes:
        return []
    line = command(step, reproduction.models, reproduction.data, reproduction.fast)
    outcome = reproduction.outcomes[step.name]
    head = [f"## {step.shows}", "", f"    {line}", "", sample(outcome), ""]
    return [*head, *_tables(outcome), *_figure(outcome, step, figure), *differences(outcome.setup.experiment)]


def _not_made(reproduction: Reproduction) -> list[str]:
    """The runs that were not made, each with its reason and its command."""
    steps = [step for step in reproduction.plan.steps if step.name not in reproduction.outcomes]
    rows = [
        (
            step.shows,
            reproduction.refusals.get(step.name) or _why_not(reproduction, step),
            f"`{command(step, reproduction.models, reproduction.data)}`",
        )
        for step in steps
    ]
    return _section_table(NOT_MADE, ("what", "why", "command"), rows) if rows else []


def _why_not(reproduction: Reproduction, step: Step) -> str:
    """Why a step was not made: it was not asked for, and perhaps nothing was named for one of its models or for its data."""
    hub = {role.name: role.hub for role in reproduction.plan.roles}
    names = {role: name_for(role, step, reproduction.models) for role in step.models}
    lacking = [f"model was named for `{role}`" for role, name in names.items() if name == hub[role]]
    lacking += [f"file for `{step.data}`"] if step.data not in reproduction.data else []
    return f"{NOT_ASKED}; no {', no '.join(lacking)}" if lacking else NOT_ASKED


def sample(outcome: Outcome) -> str:
    setup = outcome.setup
    left_out = f"; {setup.left_out} that do not fit the model are left out" if setup.left_out else ""
    cut = f"; {setup.truncated} are cut to the length that the model reads" if setup.truncated else ""
    return f"{setup.experiment.summary} {len(setup.examples)} examples{left_out}{cut}; seed {setup.seed}."


def tables_shown(outcome: Outcome) -> list[Table]:
    """The tables of a run without the claims, and without those whose numbers stand beside the paper's in another one."""
    tables = [table for table in outcome.tables if table.printed and table.name != "claims"]
    return [table for table in tables if not _stands_beside(table, outcome.tables)]


def _tables(outcome: Outcome) -> list[str]:
    """The tables of a run; long ones are in its folder."""
    return [table.markdown if len(table.rows) <= LONGEST else _too_long(table) for table in tables_shown(outcome)]


def _stands_beside(table: Table, tables: Sequence[Table]) -> bool:
    """Is every column of this table shown with the paper's numbers in another one?"""
    values = [column for column in table.columns if column not in ("method", "layer")]
    names = {other.name for other in tables}
    return all(f"paper-{table.name}-{column}".replace(" ", "-") in names for column in values) and bool(values)


def _too_long(table: Table) -> str:
    return f"*{table.title}: {len(table.rows)} rows, in `{table.name}.csv` of the run.*\n"


def _figure(outcome: Outcome, step: Step, figure: str) -> list[str]:
    drawn = outcome.out is not None and outcome.setup.experiment.figure is not None
    return [f"![{step.shows}]({figure.format(step=step.name)})", ""] if drawn else []


# --- items of the paper -------------------------------------------------------------------------------------------------


def items(plan: Plan) -> list[str]:
    """Every table, figure and number in the text of the paper, with what makes it, as lines of Markdown."""
    steps = {step.name: step for step in plan.steps}
    rows = [
        (item.where, item.what, _maker(item.steps, item.command, steps) or f"none: {item.reason}")
        for item in plan.items
    ]
    return _section_table(f"{ITEMS} {plan.paper}", ("where", "what", "made by"), rows)


def _maker(names: Sequence[str], written: str, steps: Mapping[str, Step]) -> str:
    experiments: dict[str, list[str]] = {}
    for name in names:
        experiments.setdefault(steps[name].experiment, []).append(name)
    makers = [f"`mixlens experiment {one}` (steps {', '.join(of)})" for one, of in experiments.items()]
    return "; ".join([*makers, *([f"`{written}`"] if written else [])])
