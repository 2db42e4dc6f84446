"""`mixlens judge`: which method to trust, values in, text out."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..attributions import known as attributions
from ..maps import known as maps
from ..metrics import Interval
from ..metrics.arguments import refuse_missing
from ..types import Example
from .experiment import Outcome
from .judging import CUES, FAITHFULNESS, RATIONALES, metrics_of, missing_token, packages_of
from .prepare import examples_of, models_of, prepared
from .running import refuse_unwritable, run_setup
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
    groups = _names(metrics)
    names = every_method()[0] if methods == "all" else _names(methods)
    fields = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    chosen = metrics_of(groups)
    examples = examples_of(data, n=n, seed=seed, **fields)
    if set(chosen) & set(FAITHFULNESS):
        chosen += _of_marks(chosen, examples)
    refuse_missing(packages_of(chosen))  # before the model is loaded
    models = models_of(model)
    if "faithfulness" in groups:  # of the group, what this model can be asked
        chosen = [name for name in chosen if missing_token(models[0], name) is None]
    refuse_unwritable(out)
    question: dict[str, Any] = {"methods": names, "seed": seed, "labels": None, "options": {"metrics": chosen}}
    setup = prepared("judge", model=list(models), data=examples, n=None, leave_out=leave_out, **question)
    named = isinstance(data, str | os.PathLike) and not any(fields.values())
    return run_setup(setup, out=out, source=data if named else examples, progress=progress)


def _of_marks(metrics: Sequence[str], examples: Sequence[Example]) -> list[str]:
    """The other metrics of cues and of rationales, where every example has them."""
    cues = CUES if all(example.cues for example in examples) else ()
    rationales = RATIONALES if all(example.info.get("rationale") for example in examples) else ()
    return [name for name in (*cues, *rationales) if name not in metrics]


def _names(written: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in written.split(",") if name.strip()] if isinstance(written, str) else list(written)


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
    """A table for the terminal. Where it is wider than `width`, it is cut into parts, and each part begins with the first
    `beside` columns."""
    rows = [list(table.columns), *([_cell(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    text: list[str] = []
    for part in _parts(widths, width, beside):
        text += [""] if text else []
        columns = [*range(min(beside, len(widths))), *part]
        text += ["  ".join(f"{row[i]:<{widths[i]}}" for i in columns).rstrip() for row in rows]
    return text


def _parts(widths: Sequence[int], width: int | None, beside: int) -> list[list[int]]:
    """The columns after the first `beside`, in groups that fit a line beside these."""
    parts: list[list[int]] = [[]]
    room = None if width is None else width - sum(widths[:beside]) - 2 * beside
    for i in range(beside, len(widths)):
        if room is not None and parts[-1] and sum(widths[j] + 2 for j in parts[-1]) + widths[i] > room:
            parts.append([])
        parts[-1].append(i)
    return parts


def _cell(cell: Any) -> str:
    if isinstance(cell, Interval):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]" + (f" -{cell.undefined}" if cell.undefined else "")
    return f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell)


def judge_text(model: str, data: str, *, methods: str, metrics: str, width: int | None = None, **options: Any) -> str:
    """What `mixlens judge` prints, in lines of at most `width` columns."""
    started = time.perf_counter()
    outcome = judge(model, data, methods=methods, metrics=metrics, **options)
    table, slow_ones = ranking(outcome), every_method()[1] if methods == "all" else []
    text = [f"{outcome.setup.model.name}: {len(outcome.setup.examples)} examples"]
    text += ["", *lines(table, width=width, beside=2), "", *_wrapped(table.note, width)]
    if slow_ones:
        left_out = f"Left out, minutes for one text: {', '.join(slow_ones)}. Name them to have them: --methods ..."
        text += _wrapped(left_out, width)
    if outcome.out is not None:
        text.append(f"Records, tables and figure: {outcome.out}")
    return "\n".join([*text, f"{time.perf_counter() - started:.1f} s"])


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
