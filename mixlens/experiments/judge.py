"""`mixlens judge` and `mixlens experiment`: the experiments from the command line, values in, text out."""

from __future__ import annotations

import json
import os
import re
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..attributions import known as attributions
from ..errors import InputError
from ..maps import known as maps
from ..metrics import Interval
from ..metrics.arguments import refuse_missing
from ..types import Example
from .experiment import Outcome, examples_of, known, models_of, run
from .judging import CUES, FAITHFULNESS, RATIONALES, metrics_of, missing_token, packages_of
from .tables import Table

NO_EXPLANATION = ("null_attention",)  # what the model's output cannot know of


def slow(name: str) -> bool:
    """Its cost grows with the width of the model: minutes for one text."""
    cost = (maps()[name] if name in maps() else attributions()[name]).cost
    return bool(re.search(r"\bd\b", cost))


def every_method() -> tuple[list[str], list[str]]:
    """All methods that explain, and those left out because they take minutes for one text."""
    all_ = [name for name in [*maps(), *attributions()] if name not in NO_EXPLANATION]
    return [name for name in all_ if not slow(name)], [name for name in all_ if slow(name)]


def judge(
    model: Any,
    data: str | os.PathLike[str] | Iterable[Example | str | tuple[str, str]],
    *,
    methods: str | Sequence[str] = "all",
    metrics: str | Sequence[str] = "faithfulness",
    n: int | None = 50,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    leave_out: bool = False,
    progress: bool = True,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
) -> Outcome:
    """Which method should I trust on my model? Every method on n texts, by every metric; one ranked table.

    `data`: a dataset of `mixlens data`, a file (its fields: `text_field`, by default text or sentence, `pair_field`,
    `label_field`), Examples, texts, or (text, pair) tuples.
    `methods`: "all", or names (with options: `value_zeroing:distance=euclidean`). `metrics`: names, or the groups
    "faithfulness", "cues", "rationales". Where every text has cues or rationales these are judged too. See `run` for the rest.
    """
    wanted = metrics_of(_names(metrics))
    chosen = every_method()[0] if methods == "all" else _names(methods)
    fields = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    examples = examples_of(data, n=n, seed=seed, **fields)
    if set(wanted) & set(FAITHFULNESS):
        wanted += [name for name in CUES if name not in wanted and all(example.cues for example in examples)]
        wanted += [name for name in RATIONALES if name not in wanted and all(e.info.get("rationale") for e in examples)]
    refuse_missing(packages_of(wanted))  # before the model is loaded
    models = models_of(model)
    if "faithfulness" in _names(metrics):  # of the group, what this model can be asked
        wanted = [name for name in wanted if missing_token(models[0], name) is None]
    asked: dict[str, Any] = {"methods": chosen, "metrics": wanted, "n": n, "seed": seed, "out": out}
    named = isinstance(data, str | os.PathLike) and not any(fields.values())
    source: Any = data if named else examples
    return run("judge", model=list(models), data=source, leave_out=leave_out, progress=progress, **asked)


def _names(given: str | Sequence[str]) -> list[str]:
    return [one.strip() for one in given.split(",") if one.strip()] if isinstance(given, str) else list(given)


def seconds(outcome: Outcome) -> dict[str, float]:
    """Mean seconds for one example by method. Timings are in no table that a run writes, so that tables stay the same."""
    spent: dict[str, dict[str, float]] = {}
    for record in outcome.records:
        if "seconds" in record.info:
            spent.setdefault(record.method, {})[record.example] = record.info["seconds"]
    return {method: sum(each.values()) / len(each) for method, each in spent.items()}


def ranking(outcome: Outcome) -> Table:
    """The ranked table with the seconds that one example takes."""
    table, spent = outcome.tables[0], seconds(outcome)
    rows = tuple((*row, spent[str(row[table.columns.index("method")])]) for row in table.rows)
    return Table(table.name, table.title, (*table.columns, "seconds"), rows, table.note)


def lines(table: Table, *, width: int | None = None, beside: int = 1) -> list[str]:
    """A table for the terminal. Where it is wider than `width`, the first `beside` columns are said again beside the rest."""
    rows = [list(table.columns), *([_cell(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    parts: list[list[int]] = [[]]
    left = sum(widths[:beside]) + 2 * beside
    room = None if width is None else width - left
    for i in range(beside, len(widths)):
        if room is not None and parts[-1] and sum(widths[j] + 2 for j in parts[-1]) + widths[i] > room:
            parts.append([])
        parts[-1].append(i)
    made: list[str] = []
    for part in parts:
        made += [""] if made else []
        wanted = [*range(min(beside, len(widths))), *part]
        made += ["  ".join(f"{row[i]:<{widths[i]}}" for i in wanted).rstrip() for row in rows]
    return made


def _cell(cell: Any) -> str:
    if isinstance(cell, Interval):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]" + (f" -{cell.undefined}" if cell.undefined else "")
    return f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell)


def judge_text(model: str, data: str, *, methods: str, metrics: str, width: int | None = None, **options: Any) -> str:
    """What `mixlens judge` prints, in lines of at most `width` columns."""
    started = time.perf_counter()
    outcome = judge(model, data, methods=methods, metrics=metrics, **options)
    table, left = ranking(outcome), every_method()[1] if methods == "all" else []
    told = [f"{outcome.setup.model.name}: {len(outcome.setup.examples)} examples"]
    said = [f"Left out, minutes for one text: {', '.join(left)}. Name them to have them: --methods ..."] if left else []
    told += ["", *lines(table, width=width, beside=2), "", *_wrapped(table.note, width)]
    told += [line for one in said for line in _wrapped(one, width)]
    if outcome.out is not None:
        told.append(f"Records, tables and figure: {outcome.out}")
    return "\n".join([*told, f"{time.perf_counter() - started:.1f} s"])


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def experiment_text(name: str | None, *, options: Sequence[str] = (), **given: Any) -> str:
    """What `mixlens experiment` prints: the tables, or without a name the experiments there are."""
    if name is None:
        rows = [("experiment", "model for", "data", "shows", "what it asks")]
        rows += [(e.name, ", ".join(e.task) or "any", e.data, e.shows, e.summary) for e in known().values()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row[:4], widths, strict=True)) + "  " + row[4] for row in rows
        )
    if name not in known():
        run(name)  # refuses, and names the nearest
    given["methods"] = None if given.get("methods") is None else _names(given["methods"])
    outcome = run(name, **given, **dict(_option(name, one) for one in options))
    told = [f"{name} ({outcome.setup.experiment.shows}): {len(outcome.setup.examples)} examples"]
    for table in outcome.tables:
        told += ["", table.title, *lines(table), *([table.note] if table.note else [])]
    return "\n".join([*told, *([] if outcome.out is None else ["", f"Records, tables and figure: {outcome.out}"])])


def _option(name: str, written: str) -> tuple[str, Any]:
    """`key=value`; the value as JSON where it is."""
    key, sign, value = written.partition("=")
    if not sign:
        raise InputError(f"an option is written key=value, not {written!r}. {name!r} has: {dict(known()[name].options)}.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
