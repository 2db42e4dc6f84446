"""The page of a reproduction: the verdicts first, then each run with ours beside the paper's, then every item of the
paper."""

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

LONGEST = 60  # rows of a table that a page shows
FIGURE = "{step}/figure.svg"  # beside the page
COLUMNS = ("the paper says", "where", "run", "paper", "here", "verdict")


def page(reproduction: Reproduction, *, figure: str = FIGURE) -> str:
    """The page as Markdown. `figure` says where the picture of a step lies, seen from the page."""
    plan, models, files = reproduction.plan, reproduction.models, reproduction.data
    lines = [f"# {plan.paper}", "", f"*Written by `{whole_command(reproduction)}`.*", "", *summary(reproduction)]
    if reproduction.claims:
        rows = [(says, where, step, *rest) for step, says, where, *rest in reproduction.claims]
        lines += [*_section("What replicates", COLUMNS, rows), f"How a verdict is reached: {RULES}", ""]
    roles = [(role.name, role.what + (f", `{role.hub}`" if role.hub else "")) for role in plan.roles]
    here = [(*role, _names_here(reproduction, role[0])) for role in roles]
    lines += _section("Models", ("role", "the paper's, and a checkpoint for it", "here"), here)
    for step in plan.steps:
        if outcome := reproduction.outcomes.get(step.name):
            own = command(step, models, files, reproduction.fast)
            lines += [f"## {step.shows}", "", f"    {own}", "", sample(outcome), ""]
            for table in tables_shown(outcome):
                told = f"*{table.title}: {len(table.rows)} rows, in `{table.name}.csv` of the run.*\n"
                lines.append(table.markdown if len(table.rows) <= LONGEST else told)
            if outcome.out is not None and outcome.setup.experiment.figure is not None:
                lines += [f"![{step.shows}]({figure.format(step=step.name)})", ""]
            lines += differences(outcome.setup.experiment)
    absent = [step for step in plan.steps if step.name not in reproduction.outcomes]
    if absent:
        why = [(step.shows, _why_not(reproduction, step), f"`{command(step, models, files)}`") for step in absent]
        lines += _section("Not made here", ("what", "why", "command"), why)
    return "\n".join([*lines, *items(plan)])


def _section(title: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """A table under a heading of the page."""
    return [f"## {title}", "", *Table("", "", columns, tuple(rows)).markdown.splitlines()[2:], ""]


# --- commands ---------------------------------------------------------------------------------------------------------


def command(step: Step, models: Mapping[str, str], files: Mapping[str, str], fast: bool = False) -> str:
    """The command line that makes one step alone."""
    words = ["mixlens", "experiment", step.experiment]
    for key, value in question(step, models, files, fast).items():
        if key == "model":
            for name in value if isinstance(value, list) else [value]:
                words += ["--model", str(name) or "MODEL"]
        elif key in ("first", "truncate"):
            words.append(f"--{key}")
        elif key in ("data", "n", "split", "methods"):
            words += [f"--{key}", ",".join(value) if key == "methods" else str(value)]
        else:
            words += ["--option", f"{key}={_written(value)}"]
    return " ".join([*(shlex.quote(word) for word in words), "--leave-out"])


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def whole_command(reproduction: Reproduction) -> str:
    """The command line that makes all steps: models, files, examples and options that are not those of the plan, and
    the steps that were asked for, where these are not all."""
    plan, steps = PLANS.find(reproduction.plan.name), reproduction.plan.steps
    hub, planned = {role.name: role.hub for role in plan.roles}, {step.name: step for step in plan.steps}
    asked = {*reproduction.outcomes, *reproduction.refusals}
    named = [("--model", f"{role}={name}") for role, name in reproduction.models.items() if name != hub.get(role)]
    named += [("--data", f"{name}={path}") for name, path in reproduction.data.items()]
    named += [("--size", f"{step.name}={step.n}") for step in steps if step.n != planned[step.name].n]
    for step in steps:
        before = planned[step.name].options
        changed = {key: value for key, value in step.options.items() if key not in before or before[key] != value}
        named += [("--option", f"{step.name}:{key}={_written(value)}") for key, value in changed.items()]
    only = [step.name for step in steps if step.name in asked]
    named += [("--only", name) for name in only if len(only) < len(steps)]
    words = ["mixlens", "reproduce", plan.name, *(word for pair in named for word in pair)]
    return " ".join([*map(shlex.quote, words), *(["--fast"] if reproduction.fast else [])])


# --- parts of the page ------------------------------------------------------------------------------------------------


def summary(reproduction: Reproduction) -> list[str]:
    """The answer in one sentence: how many claims have which verdict."""
    words = [claim[-1].partition(" (")[0] for claim in reproduction.claims]
    counts = ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)
    told = f"Of {len(words)} claims: {counts}." if words else "No claim was judged."
    absent = len(reproduction.refusals)
    return [told + (f" {absent} of {len(reproduction.plan.steps)} runs could not be made here." if absent else ""), ""]


def _names_here(reproduction: Reproduction, role: str) -> str:
    steps = [step for step in reproduction.plan.steps if step.name in reproduction.outcomes and role in step.models]
    names = dict.fromkeys(name_for(role, step, reproduction.models) for step in steps)
    return ", ".join(f"`{public_name(name)}`" for name in names) or "not run"


def _why_not(reproduction: Reproduction, step: Step) -> str:
    """Why a step was not made: it was not asked for, and perhaps nothing was named for one of its models or for its
    data."""
    if refusal := reproduction.refusals.get(step.name):
        return refusal
    hub = {role.name: role.hub for role in reproduction.plan.roles}
    unnamed = [role for role in step.models if name_for(role, step, reproduction.models) == hub[role]]
    lacking = [f"model was named for `{role}`" for role in dict.fromkeys(unnamed)]
    lacking += [f"file for `{step.data}`"] if step.data not in reproduction.data else []
    return "; no ".join(["not asked for", ", no ".join(lacking)]) if lacking else "not asked for"


def sample(outcome: Outcome) -> str:
    setup = outcome.setup
    left_out = f"; {setup.left_out} that do not fit the model are left out" if setup.left_out else ""
    cut = f"; {setup.truncated} are cut to the length that the model reads" if setup.truncated else ""
    return f"{setup.experiment.summary} {len(setup.examples)} examples{left_out}{cut}; seed {setup.seed}."


def tables_shown(outcome: Outcome) -> list[Table]:
    """The tables of a run without the claims, and without those whose numbers all stand beside the paper's in another
    one."""
    names, shown = {table.name for table in outcome.tables}, []
    for table in outcome.tables:
        values = [column for column in table.columns if column not in ("method", "layer")]
        beside = {f"paper-{table.name}-{column}".replace(" ", "-") for column in values}
        if table.printed and table.name != "claims" and not (values and beside <= names):
            shown.append(table)
    return shown


def items(plan: Plan) -> list[str]:
    """Every table, figure and number in the text of the paper, with what makes it, as lines of Markdown."""
    experiments = {step.name: step.experiment for step in plan.steps}
    rows = []
    for item in plan.items:
        groups: dict[str, list[str]] = {}
        for name in item.steps:
            groups.setdefault(experiments[name], []).append(name)
        makers = [f"`mixlens experiment {one}` (steps {', '.join(steps)})" for one, steps in groups.items()]
        makers += [f"`{item.command}`"] if item.command else []
        rows.append((item.where, item.what, "; ".join(makers) or f"none: {item.reason}"))
    return _section(f"Every table and figure of {plan.paper}", ("where", "what", "made by"), rows)
