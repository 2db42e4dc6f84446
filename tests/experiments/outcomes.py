"""How tests read what an experiment measured, and make up what it might have measured."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mixlens import types
from mixlens.runs.experiments import claims, known

LETTERS = {claims.SAME: "S", claims.DIFFERENT: "D", claims.UNDECIDED: "U", claims.INCOMPARABLE: "-"}


def values(outcome: Any, method: str, metric: str, **info: Any) -> list[float]:
    """The values of a method and a metric, in the order of the examples, of the records with this info."""
    found = [r for r in outcome.records if (r.method, r.metric) == (method, metric)]
    return [r.value for r in found if all(r.info[key] == value for key, value in info.items())]


def cell(table: Any, method: str, column: str) -> Any:
    """One cell of a table, by its method and its column."""
    return table.row(method)[column]


def table(outcome: Any, name: str) -> Any:
    return next(one for one in outcome.tables if one.name == name)


def made_up(means: Mapping[tuple[Any, ...], float], *, spread: float = 0.05, n: int = 60, **info: Any) -> list[Any]:
    """Records of n examples about a mean, of each (method, metric) or (method, metric, layer)."""
    records = []
    for (method, metric, *layer), mean in means.items():
        facts = {**info, **({"layer": layer[0]} if layer else {})}
        seed = zlib.crc32(f"{method} {metric} {mean} {facts}".encode())
        draws = np.random.default_rng(seed).normal(mean, spread, n)
        records += [types.Record(str(i), method, metric, float(value), facts) for i, value in enumerate(draws)]
    return records


def setup_of(name: str, **changed: Any) -> Any:
    """What the checks of claims and the tables ask of a setup."""
    declared = known()[name]
    options = {**declared.options, **changed.pop("options", {})}
    facts = {"seed": 0, "data": "", "models": (None, None), "methods": declared.methods, "examples": ()}
    return SimpleNamespace(**{**facts, "experiment": declared, **changed}, options=options)


def verdicts(name: str, records: list[Any], **changed: Any) -> str:
    """The verdict on each claim of an experiment, a letter each: same, different, undecided, - for not comparable."""
    setup = setup_of(name, **changed)
    return "".join(LETTERS[claim.check(setup, records, []).word] for claim in setup.experiment.claims)
