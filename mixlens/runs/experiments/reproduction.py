"""`reproduce`: every run of a paper's plan, into one folder, with a page that sets ours beside the paper's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base.errors import InputError, MixlensError, nearest
from ...data import DATASETS
from .experiment import Outcome, known
from .plan import PLANS, Plan, Step
from .running import run

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` gives back: the outcome of each step that was made, the reason of each that was not."""

    plan: Plan
    models: Mapping[str, str]  # role -> name, and STEP:ROLE -> name where one step has another
    data: Mapping[str, str]  # dataset -> file
    fast: bool
    outcomes: Mapping[str, Outcome] = field(repr=False)
    refusals: Mapping[str, str] = field(default_factory=dict)

    @property
    def claims(self) -> list[tuple[str, ...]]:
        """(step, claim, where, paper, here, verdict) of every claim of every step, then of those about several
        steps."""
        of_steps = [
            (name, *map(str, row))
            for name, outcome in self.outcomes.items()
            for table in outcome.tables
            if table.name == "claims"
            for row in table.rows
        ]
        return of_steps + [row for one in self.plan.comparisons if (row := one.judged(self.outcomes)) is not None]


def reproduce(
    name: str,
    *,
    models: Mapping[str, str] | str | None = None,
    data: Mapping[str, str | os.PathLike[str]] | None = None,
    out: str | os.PathLike[str] | None = None,
    fast: bool = False,
    only: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    loading: Mapping[str, Any] | None = None,
    progress: bool = True,
    said: Progress | None = None,
) -> Reproduction:
    """Everything of one paper: `alti`, `globenc`, `value-zeroing`, `identifiability` or `attcat`.

    `models` replaces the paper's models: {role: name}, {"step:role": name} for one step alone, or one name for every
    role. `data` names local copies: {dataset: file}. `fast` takes a few examples for each run. `only` names steps,
    `sizes` the examples of some: {step: n}, `options` the options of their experiments: {step: {option: value}}. Each
    step is a run in a folder of `out` that goes on where it was stopped. A step whose model or data cannot be had is
    not made, and its reason is given. See `reproduction_page.page`.
    """
    plan = PLANS.find(name)
    chosen, files, steps = _models(plan, models), _files(plan, data), _steps(plan, only, sizes, options)
    outcomes, refusals = {}, {}
    for step in steps:
        try:
            absent = [role for role in step.models if not name_for(role, step, chosen)]
            if absent:
                told = f"the paper's model {absent[0]!r} has no published name: give one, --model {absent[0]}=NAME."
                raise InputError(told)
            asked = {**question(step, chosen, files, fast), "seed": seed, "loading": loading, "progress": progress}
            folder = None if out is None else Path(out) / step.name
            outcomes[step.name] = run(step.experiment, out=folder, leave_out=True, **asked)
        except MixlensError as error:
            refusals[step.name] = str(error)
        if said is not None:
            said(f"{step.name}: {refusals.get(step.name, 'done')}")
    made = {step.name: step for step in steps}
    as_made = replace(plan, steps=tuple(made.get(step.name, step) for step in plan.steps))
    return Reproduction(as_made, chosen, files, fast, outcomes, refusals)


def _models(plan: Plan, models: Mapping[str, str] | str | None) -> dict[str, str]:
    """role -> name: the paper's own where no other was named."""
    names = {role.name: role.hub for role in plan.roles}
    if isinstance(models, str):
        return dict.fromkeys(names, models)
    for key in models or {}:
        step, _, role = key.rpartition(":")
        if step:
            _refuse_unknown("step", step, [one.name for one in plan.steps], plan)
        _refuse_unknown(
            "model", role, list(next(one for one in plan.steps if one.name == step).models if step else names), plan
        )
    return {**names, **{key: str(name) for key, name in (models or {}).items()}}


def name_for(role: str, step: Step, models: Mapping[str, str]) -> str:
    """The model that plays a role in a step: the step's own where it has one."""
    return models.get(f"{step.name}:{role}", models[role])


def _files(plan: Plan, data: Mapping[str, Any] | None) -> dict[str, str]:
    """dataset -> file, of the datasets that have a local copy."""
    known = list(dict.fromkeys(step.data for step in plan.steps))
    for name in data or {}:
        _refuse_unknown("dataset", name, known, plan)
    return {name: os.fspath(path) for name, path in (data or {}).items()}


def _steps(
    plan: Plan,
    only: Sequence[str] | None,
    sizes: Mapping[str, int] | None,
    options: Mapping[str, Mapping[str, Any]] | None,
) -> list[Step]:
    """The steps to make, each with the examples and the options that were asked for, with and without --fast."""
    sizes, options = sizes or {}, options or {}
    for name in (*(only or ()), *sizes, *options):
        _refuse_unknown("step", name, [step.name for step in plan.steps], plan)
    steps = []
    for step in plan.steps:
        if only is None or step.name in only:
            own = options.get(step.name, {})
            allowed = ["methods", *known()[step.experiment].options]
            if unknown := set(own) - set(allowed):
                raise InputError(f"step {step.name!r} has no option {min(unknown)!r}. {nearest(min(unknown), allowed)}")
            n = sizes.get(step.name, step.n)
            fast = sizes.get(step.name, step.fast)
            both: dict[str, Any] = {"options": {**step.options, **own}, "fast_options": {**step.fast_options, **own}}
            steps.append(replace(step, n=n, fast=fast, **both))
    return steps


def _refuse_unknown(kind: str, name: str, known: Sequence[str], plan: Plan) -> None:
    if name not in known:
        raise InputError(f"the plan of {plan.name!r} has no {kind} {name!r}. {nearest(name, known)}")


def question(step: Step, models: Mapping[str, str], files: Mapping[str, str], fast: bool) -> dict[str, Any]:
    """The arguments of `run` for one step. A local file is read whole, unless the dataset divides it itself."""
    names = [name_for(role, step, models) for role in step.models]
    settings: dict[str, Any] = {
        "model": names if len(names) > 1 else names[0],
        "data": f"{step.data}={files[step.data]}" if step.data in files else step.data,
        "n": min(step.fast, step.n or step.fast) if fast else step.n,
        "split": step.split if step.data not in files or DATASETS[step.data].halves else None,
        "first": step.first or None,
        "methods": step.methods,
        "truncate": step.truncate or None,
        **step.options,
        **(step.fast_options if fast else {}),
    }
    return {key: value for key, value in settings.items() if value is not None}
