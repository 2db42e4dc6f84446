"""`mixlens experiment` and `mixlens reproduce`: the experiments from the command line, values in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.errors import InputError, ResultError
from ...base.files import write
from ...base.paths import is_there
from ...scoring.asking import json_or_text
from ...show.tables import aligned, fitted, listed
from ..judge.judge import lines
from .experiment import Experiment, known
from .plan import PLANS
from .reproduction import reproduce
from .reproduction_page import page, summary
from .running import run


def experiment_text(name: str | None, *, options: Sequence[str] = (), width: int | None = None, **question: Any) -> str:
    """What `mixlens experiment` prints: the tables, or without a name the experiments there are. Lines fit `width`."""
    if name is None:
        rows = [("experiment", "model for", "data", "shows", "what it asks")]
        rows += [(e.name, ", ".join(e.task) or "any", e.data, e.shows, e.summary) for e in known().values()]
        return "\n".join(aligned(rows) if width is None else listed(rows, width))
    if name not in known():
        run(name)  # refuses, and names the nearest
    if (methods := question.get("methods")) is not None:
        question["methods"] = [one.strip() for one in methods.split(",") if one.strip()]
    outcome = run(name, **question, **dict(_option(name, written) for written in options))
    text = [f"{name} ({outcome.setup.experiment.shows}): {len(outcome.setup.examples)} examples"]
    for table in [table for table in outcome.tables if table.printed]:
        claims = table.name == "claims"  # sentences, that stand below each other
        body = [claim_text(*map(str, row)) for row in table.rows] if claims else lines(table, width=width)
        text += ["", table.title, *body, *([table.note] if table.note else [])]
    told = "\n".join([*text, *([] if outcome.out is None else ["", f"Records, tables and figure: {outcome.out}"])])
    return told if width is None else fitted(told, width)


def claim_text(says: str, where: str, paper: str, here: str, verdict: str) -> str:
    """One claim: the verdict first, then what the paper has and what was measured."""
    return f"- {verdict}: {says} ({where})\n    paper: {paper}\n    here: {here}"


def _option(name: str, written: str) -> tuple[str, Any]:
    """`key=value`; the value is read as JSON where it is JSON."""
    key, sign, value = written.partition("=")
    if not sign:
        raise InputError(
            f"an option is written key=value, not {written!r}. {name!r} has: {dict(known()[name].options)}."
        )
    return key, json_or_text(value)


def help_text(declared: Experiment) -> str:
    """What `mixlens experiment NAME --help` adds: the paper, the protocol that is the default, and what differs from
    it."""
    facts = [f"{declared.name}: {declared.summary}", f"{declared.paper}: {declared.shows}."]
    facts += [
        f"Model for: {', '.join(declared.task) or 'any task'}. Default model: {declared.model}. Data: {declared.data}."
    ]
    facts += [f"Methods: {', '.join(declared.methods) or 'none'}."]
    facts += [f"Options: {', '.join(f'{key}={value}' for key, value in declared.options.items()) or 'none'}."]
    differs = ["Differs from the paper:", *(f"- {one}" for one in declared.differs)] if declared.differs else []
    return "\n".join([*facts, *differs])


def reproduce_text(name: str | None, **question: Any) -> str:
    """What `mixlens reproduce` prints: the verdicts, or without a name the papers there are."""
    if name is None:
        told = []
        for plan in PLANS.known().values():
            data = ", ".join(dict.fromkeys(step.data for step in plan.steps))
            told += [f"{plan.name}: {plan.paper}", f"  models: {', '.join(role.name for role in plan.roles)}"]
            told += [f"  data: {data}", f"  steps: {', '.join(step.name for step in plan.steps)}"]
        return "\n".join(told)
    folder = None if question.get("out") is None else Path(question["out"])
    if folder is not None and is_there(folder) and not folder.is_dir():
        raise InputError(f"{str(folder)!r} is a file. --out is a folder for the records and the page.")
    reproduction = reproduce(name, **question)
    if folder is not None:
        try:  # the folder may be missing where no step could be made
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / "README.md", page(reproduction).encode())
        except OSError as error:
            raise ResultError(f"the page could not be written to {str(folder)!r}: {error.strerror}.") from error
    # The answer first: how many claims have which verdict, then each of them, then what was not made.
    text = [reproduction.plan.paper, *summary(reproduction)]
    text += [claim_text(*claim[1:]) for claim in reproduction.claims]
    text += [f"not made: {step}: {reason}" for step, reason in reproduction.refusals.items()]
    return "\n".join([*text, *([] if folder is None else ["", f"The page: {question['out']}/README.md"])])


def pairs_of(written: Sequence[str], flag: str) -> dict[str, str]:
    """`NAME=VALUE` of an option that may be given several times."""
    parts = [one.partition("=") for one in written]
    for name, sign, value in parts:
        if not (name and sign and value):
            raise InputError(f"{flag} is written NAME=VALUE, not {name + sign + value!r}.")
    return {name: value for name, _, value in parts}


def numbers_of(written: Sequence[str], flag: str) -> dict[str, int]:
    """`NAME=NUMBER` of an option that may be given several times."""
    pairs = pairs_of(written, flag)
    for name, number in pairs.items():
        if not number.strip().isdigit():
            raise InputError(f"{flag} is written NAME=NUMBER, not {name}={number}.")
    return {name.strip(): int(number) for name, number in pairs.items()}


def step_options_of(written: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`STEP:KEY=VALUE`: options of some steps of a plan; a value is read as JSON where it is JSON."""
    options: dict[str, dict[str, Any]] = {}
    for one in written:
        step, _, pair = one.partition(":")
        key, sign, value = pair.partition("=")
        if not (step and key and sign):
            raise InputError(f"--option is written STEP:KEY=VALUE, as identity:folds=1, not {one!r}.")
        options.setdefault(step, {})[key] = json_or_text(value)
    return options


def labels_of(written: str | None) -> dict[str, int] | None:
    """`negative=0,positive=1`: the class of each label of the data."""
    return None if written is None else numbers_of(written.split(","), "--labels")


def sizes_of(written: Sequence[str]) -> dict[str, int]:
    """`STEP=N`: the examples of some steps of a plan."""
    return numbers_of(written, "--size")
