"""`mixlens judge`: which method to trust, values in, text out."""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from ...base.errors import InputError, checked_seed, suggested
from ...base.wrong_kinds import wrong_kinds_in_one_line
from ...metrics import Interval
from ...metrics.arguments import refuse_missing
from ...metrics.foreign import as_methods
from ...model.model import Model
from ...types import Example
from ..experiments.experiment import Outcome
from ..experiments.prepare import examples_of, models_of, prepared
from ..experiments.running import refuse_unwritable, run_setup
from ..experiments.tables import Table
from ..experiments.verdict import answers_of
from .judge_remarks import remarks_of
from .judge_summary import ONE_TEXT, summary_lines
from .judged_methods import asked_methods, every_method, peers, scorers_of
from .judged_metrics import CUES, FAITHFULNESS, GROUPS, RATIONALES, metrics_of, missing_token, packages_of

EMBEDDED = ("agreement", "sentiment")  # models that have a dataset of the same name


@wrong_kinds_in_one_line
def judge(
    model: Any,
    data: str | os.PathLike[str] | Iterable[Example | str | tuple[str, str]] | None = None,
    *,
    methods: str | Callable[..., Any] | Sequence[Any] | Mapping[str, Any] = "all",
    metrics: str | Sequence[str] = "faithfulness",
    n: int | None = 50,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    leave_out: bool = False,
    progress: bool = True,
    text_field: str | None = None,
    pair_field: str | None = None,
    label_field: str | None = None,
    infill: Any = None,
    loading: Mapping[str, Any] | None = None,
    **options: Any,
) -> Outcome:
    """Which method should I trust on my model? Every method on n texts, by every metric; one ranked table for each question.

    `data`: a dataset of `mixlens data`, a file (its fields: `text_field`, by default text or sentence, `pair_field`,
    `label_field`), Examples, texts, or (text, pair) tuples; an embedded model has sentences of its own.
    `methods`: "all", "peers" (methods of other tools, such as shap and lime), or names (with options:
    `value_zeroing:distance=euclidean`). In a list also functions `trace -> scores`, and dicts of a name and a function or a
    list of the scores of each text (`mixlens.attribution_from` says what scores may be). `metrics`: names (with options:
    `aopc:replacement=mask`), or the groups "faithfulness", "cues", "rationales", "fillers". Where every text has cues or
    rationales these are judged too. `infill`: a masked language model that fills gaps. `loading`: arguments of `mixlens.load`.
    `options`: `explains` ("measured" or "logit"), `ranking` ("default", "signed", "magnitude"), `unit` ("token", "word",
    "sentence"), `draws` of random scores. See docs/use/judging.md, and `run` for the rest.
    """
    checked_seed(seed)
    groups = _names(metrics)
    names, given = asked_methods(methods)
    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    chosen = metrics_of(groups)
    source = _data_of(model, data)
    examples = examples_of(source, n=n, seed=seed, **fields)
    if set(chosen) & set(FAITHFULNESS):
        chosen += _of_marks(chosen, examples)
    refuse_missing(packages_of(chosen))  # before the model is loaded
    with as_methods(scorers_of(given, examples)):
        models = models_of([model, *([] if infill is None else [infill])], **(loading or {}))
        chosen = _possible_for(models, groups, chosen)
        refuse_unwritable(out)
        question: dict[str, Any] = {
            "methods": names,
            "seed": seed,
            "labels": None,
            "options": {"metrics": chosen, **options},
        }
        setup = prepared("judge", model=list(models), data=examples, n=None, leave_out=leave_out, **question)
        named = isinstance(source, str | os.PathLike) and not any(fields.values())
        return run_setup(setup, out=out, source=source if named else examples, progress=progress)


def _data_of(model: Any, data: Any) -> Any:
    """The data that was given; the embedded models have sentences of their own."""
    if data is not None:
        return data
    if isinstance(model, str) and model in EMBEDDED:
        return model
    raise InputError(
        "no texts were given: name a dataset of `mixlens data` or a file (mixlens judge MODEL DATA), or give one text "
        f"(mixlens judge MODEL --text '...').{_meant(model)}"
    )


def _meant(model: Any) -> str:
    """The embedded model whose name is nearly this one, which would have needed no texts."""
    meant = suggested(model, EMBEDDED) if isinstance(model, str) else ""
    return f" {meant.removesuffix('?')}, which has sentences of its own?" if meant else ""


def _possible_for(models: Sequence[Model], groups: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """The metrics without those of a group that this model cannot be asked. One that is named by itself stays, and is refused
    later."""
    of_groups = {name for group in groups if group in GROUPS for name in GROUPS[group]} - set(groups)
    infill = len(models) > 1
    return [m for m in metrics if m not in of_groups or missing_token(models[0], m, infill=infill) is None]


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


def ranking(outcome: Outcome, place: int = 0) -> Table:
    """A ranked table with the seconds that one example takes, of the first method of a row."""
    table, spent = outcome.tables[place], seconds(outcome)
    rows = tuple((*row, spent[str(row[1]).partition(" = ")[0]]) for row in table.rows)
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
        return _interval_text(cell)
    return f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell)


def _interval_text(cell: Interval) -> str:
    """A mean, its interval where it has one, and how many values are not defined."""
    reach = "" if math.isnan(cell.low) else f" [{cell.low:.3f}, {cell.high:.3f}]"
    return f"{cell.mean:.3f}{reach}" + (f" -{cell.undefined}" if cell.undefined else "")


def judge_text(
    model: str,
    data: str | None,
    *,
    methods: str,
    metrics: str,
    text: str | None = None,
    width: int | None = None,
    full: bool = True,
    **options: Any,
) -> str:
    """What `mixlens judge` prints, in lines of at most `width` columns: the answer, the tables, how to read them. Not `full`: the
    rankings alone, one row for each method."""
    started = time.perf_counter()
    if text is not None and data is not None:
        raise InputError("give DATA or --text, not both.")
    outcome = judge(model, data if text is None else [text], methods=methods, metrics=metrics, **options)
    tables = _all_tables(outcome, width) if full or width is None else _summaries(outcome, width)
    ends = _wrapped(_left_out(), width) if methods == "all" else []
    told = remarks_of(outcome.setup, _names(metrics), data, options)
    return "\n".join(
        [
            *_answers(outcome, width, told),
            *tables,
            "",
            *ends,
            *_folder(outcome),
            f"{time.perf_counter() - started:.1f} s",
        ]
    )


def _answers(outcome: Outcome, width: int | None, remarks: Iterable[str] = ()) -> Iterable[str]:
    """The answers in lines; of one text, that it ranks nothing; what is not in the tables, and why."""
    one_text = [ONE_TEXT] * (len(outcome.setup.examples) == 1)
    told = chain(answers_of(outcome.setup, outcome.records), one_text, remarks)
    return chain.from_iterable(_wrapped(line, width) for line in told)


def _folder(outcome: Outcome) -> list[str]:
    return [] if outcome.out is None else [f"Records, tables and figure: {outcome.out}"]


def _all_tables(outcome: Outcome, width: int | None) -> Iterable[str]:
    """Every table with every column, in parts that fit the line."""
    return chain.from_iterable(_table_lines(outcome, place, width) for place in range(len(outcome.tables)))


def _summaries(outcome: Outcome, width: int) -> Iterable[str]:
    """The rankings, one row for each method."""
    one_text = len(outcome.setup.examples) == 1
    for place, table in enumerate(outcome.tables):
        if table.columns[0] == "rank":
            body = summary_lines(ranking(outcome, place), width=width, one_text=one_text)
            rows = len(table.rows) + 2
            ends = chain.from_iterable(_wrapped(line, width) for line in body[rows:])
            yield from ["", *_wrapped(table.title, width), "", *body[:rows], *ends, "", *_wrapped(table.note, width)]


def _table_lines(outcome: Outcome, place: int, width: int | None) -> list[str]:
    """One table with its title and its note."""
    table = outcome.tables[place]
    ranked = table.columns[0] == "rank"
    body = lines(ranking(outcome, place) if ranked else table, width=width, beside=2 if ranked else 1)
    return ["", *_wrapped(table.title, width), "", *body, "", *_wrapped(table.note, width)]


def _left_out() -> str:
    return (
        f"Left out, minutes for one text of a large model: {', '.join(every_method()[1])}. Name them to have them: --methods ... "
        f"Methods of other tools ({', '.join(peers())}) are a group of their own: --methods all,peers."
    )


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
