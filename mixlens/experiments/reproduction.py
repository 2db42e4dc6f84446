"""`reproduce`: every run of a paper's plan, into one folder, with a page that sets ours beside the paper's."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, MixlensError, nearest
from ..files import write
from ..provenance import public_name
from .claims import RULES
from .experiment import Outcome
from .plan import PLANS, Plan, Step
from .running import differences, run
from .tables import Table

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` gives back: the outcome of each step that was made, the reason of each that was not."""

    plan: Plan
    models: Mapping[str, str]  # role -> name
    data: Mapping[str, str]  # dataset -> file
    fast: bool
    outcomes: Mapping[str, Outcome] = field(repr=False)
    refusals: Mapping[str, str] = field(default_factory=dict)

    @property
    def claims(self) -> list[tuple[str, ...]]:
        """(step, claim, where, paper, here, verdict) of every claim of every step."""
        return [
            (name, *map(str, row))
            for name, outcome in self.outcomes.items()
            for table in outcome.tables
            if table.name == "claims"
            for row in table.rows
        ]


def reproduce(
    name: str,
    *,
    models: Mapping[str, str] | str | None = None,
    data: Mapping[str, str | os.PathLike[str]] | None = None,
    out: str | os.PathLike[str] | None = None,
    fast: bool = False,
    only: Sequence[str] | None = None,
    seed: int = 0,
    loading: Mapping[str, Any] | None = None,
    progress: bool = True,
    said: Progress | None = None,
) -> Reproduction:
    """Everything of one paper: `alti`, `globenc`, `value-zeroing`, `identifiability` or `attcat`.

    `models` replaces the paper's models: {role: name}, or one name for every role. `data` names local copies: {dataset: file}.
    `fast` takes a few examples for each run. `only` names steps. Each step is a run in a folder of `out` that goes on where it
    was stopped; README.md in `out` is the page. A step whose model or data cannot be had is not made, and the page says why.
    """
    plan = PLANS.find(name)
    chosen = _models(plan, models)
    files = _files(plan, data)
    steps = _steps(plan, only)
    outcomes, refusals = {}, {}
    for step in steps:
        try:
            outcomes[step.name] = _made(step, chosen, files, out, fast, seed, loading, progress)
        except MixlensError as error:
            refusals[step.name] = str(error)
        if said is not None:
            said(f"{step.name}: {refusals.get(step.name, 'done')}")
    reproduction = Reproduction(plan, chosen, files, fast, outcomes, refusals)
    if out is not None:
        write(Path(out) / "README.md", page(reproduction).encode())
    return reproduction


def _models(plan: Plan, models: Mapping[str, str] | str | None) -> dict[str, str]:
    """role -> name: the paper's own where no other was named."""
    names = {role.name: role.hub for role in plan.roles}
    if isinstance(models, str):
        return dict.fromkeys(names, models)
    for role in models or {}:
        _refuse_unknown("model", role, list(names), plan)
    return {**names, **{role: str(name) for role, name in (models or {}).items()}}


def _files(plan: Plan, data: Mapping[str, Any] | None) -> dict[str, str]:
    """dataset -> file, of the datasets that have a local copy."""
    known = list(dict.fromkeys(step.data for step in plan.steps))
    for name in data or {}:
        _refuse_unknown("dataset", name, known, plan)
    return {name: os.fspath(path) for name, path in (data or {}).items()}


def _steps(plan: Plan, only: Sequence[str] | None) -> list[Step]:
    for name in only or ():
        _refuse_unknown("step", name, [step.name for step in plan.steps], plan)
    return [step for step in plan.steps if only is None or step.name in only]


def _refuse_unknown(kind: str, name: str, known: Sequence[str], plan: Plan) -> None:
    if name not in known:
        raise InputError(f"the plan of {plan.name!r} has no {kind} {name!r}. {nearest(name, known)}")


def _made(
    step: Step,
    models: Mapping[str, str],
    files: Mapping[str, str],
    out: str | os.PathLike[str] | None,
    fast: bool,
    seed: int,
    loading: Mapping[str, Any] | None,
    progress: bool,
) -> Outcome:
    """One run of the plan, begun or continued."""
    absent = [role for role in step.models if not models[role]]
    if absent:
        raise InputError(f"the paper's model {absent[0]!r} has no published name: give one, --model {absent[0]}=NAME.")
    options: dict[str, Any] = {**question(step, models, files, fast), "seed": seed, "loading": loading, "progress": progress}
    return run(step.experiment, out=None if out is None else Path(out) / step.name, leave_out=True, **options)


def question(step: Step, models: Mapping[str, str], files: Mapping[str, str], fast: bool) -> dict[str, Any]:
    """The arguments of `run` for one step."""
    data = f"{step.data}={files[step.data]}" if step.data in files else step.data
    names = [models[role] for role in step.models]
    count = min(step.fast, step.n or step.fast) if fast else step.n
    settings: dict[str, Any] = {"model": names if len(names) > 1 else names[0], "data": data, "n": count, "split": step.split}
    settings |= {"methods": step.methods} | dict(step.options) | dict(step.fast_options if fast else {})
    return {key: value for key, value in settings.items() if value is not None}


# --- the page -----------------------------------------------------------------------------------------------------------

WORDS_OF_RUN = ("model", "data", "n", "split", "methods")


def command(step: Step, models: Mapping[str, str], files: Mapping[str, str], fast: bool = False) -> str:
    """The command line that makes one step alone."""
    words = ["mixlens", "experiment", step.experiment]
    for key, value in question(step, models, files, fast).items():
        words += _words(key, value)
    return " ".join([*(shlex.quote(word) for word in words), "--leave-out"])


def _words(key: str, value: Any) -> list[str]:
    if key == "model":
        names = value if isinstance(value, list) else [value]
        return [word for name in names for word in ("--model", str(name))]
    if key in WORDS_OF_RUN:
        return [f"--{key}", ",".join(value) if key == "methods" else str(value)]
    return ["--option", f"{key}={_json(value)}"]


def _json(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def page(reproduction: Reproduction) -> str:
    """The page of a reproduction: verdicts first, then each run with its tables, then every item of the paper."""
    plan = reproduction.plan
    parts = [f"# {plan.paper}", "", f"*Written by `{_whole_command(reproduction)}`.*", ""]
    parts += [*_verdicts(reproduction), *_materials(reproduction)]
    for step in plan.steps:
        parts += _section(reproduction, step)
    return "\n".join([*parts, *items(plan)])


def _whole_command(reproduction: Reproduction) -> str:
    words = ["mixlens", "reproduce", reproduction.plan.name]
    own = {role.name: role.hub for role in reproduction.plan.roles}
    for role, name in reproduction.models.items():
        words += ["--model", f"{role}={public_name(name)}"] if name != own[role] else []
    for name, path in reproduction.data.items():
        words += ["--data", f"{name}={path}"]
    return " ".join([*map(shlex.quote, words), *(["--fast"] if reproduction.fast else [])])


def _verdicts(reproduction: Reproduction) -> list[str]:
    rows = tuple((says, where, paper, here, verdict) for _, says, where, paper, here, verdict in reproduction.claims)
    if not rows:
        return []
    table = Table("", "What replicates", ("the paper says", "where", "paper", "here", "verdict"), rows)
    return ["##" + table.markdown.removeprefix("###"), f"How a verdict is reached: {RULES}", ""]


def _materials(reproduction: Reproduction) -> list[str]:
    rows = tuple(
        (role.name, f"{role.what}{f', `{role.hub}`' if role.hub else ''}", f"`{public_name(reproduction.models[role.name])}`")
        for role in reproduction.plan.roles
    )
    table = Table("", "Models", ("role", "the paper's", "here"), rows)
    return ["##" + table.markdown.removeprefix("###")]


def _section(reproduction: Reproduction, step: Step) -> list[str]:
    """One run: its command, its tables and its figure, or the reason why it was not made."""
    head = [f"## {step.shows}", "", f"    {command(step, reproduction.models, reproduction.data, reproduction.fast)}", ""]
    if step.name not in reproduction.outcomes:
        return [*head, f"Not made: {reproduction.refusals.get(step.name, 'not asked for')}", ""]
    outcome = reproduction.outcomes[step.name]
    tables = [table.markdown for table in outcome.tables if table.name != "claims"]
    return [*head, _sample(outcome), "", *tables, *_figure(outcome, step), *differences(outcome.setup.experiment)]


def _sample(outcome: Outcome) -> str:
    setup = outcome.setup
    left_out = f"; {setup.left_out} that do not fit the model are left out" if setup.left_out else ""
    return f"{outcome.setup.experiment.summary} {len(setup.examples)} examples{left_out}; seed {setup.seed}."


def _figure(outcome: Outcome, step: Step) -> list[str]:
    drawn = outcome.out is not None and outcome.setup.experiment.figure is not None
    return [f"![{step.shows}]({step.name}/figure.svg)", ""] if drawn else []


def items(plan: Plan) -> list[str]:
    """Every table, figure and number in the text of the paper, with what makes it, as lines of Markdown."""
    steps = {step.name: step for step in plan.steps}
    rows = tuple(
        (item.where, item.what, _maker(item.steps, item.command, steps) or f"none: {item.reason}") for item in plan.items
    )
    table = Table("", f"Every table and figure of {plan.paper}", ("where", "what", "made by"), rows)
    return ["##" + table.markdown.removeprefix("###")]


def _maker(names: Sequence[str], written: str, steps: Mapping[str, Step]) -> str:
    makers = [f"`{steps[name].experiment}` (step `{name}`)" for name in names]
    return ", ".join([*makers, *([f"`{written}`"] if written else [])])
