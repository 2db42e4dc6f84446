"""`mixlens judge`: which method to trust, values in, text out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from ...base.doors import door
from ...base.errors import InputError, checked_seed, suggested
from ...metrics.arguments import refuse_missing
from ...metrics.foreign import as_methods
from ...types import Example
from ..experiments.experiment import Outcome
from ..experiments.prepare import examples_of, models_of, prepared
from ..experiments.running import refuse_unwritable, run_setup
from ..experiments.tables import Table
from .ask import (
    CUES,
    FAITHFULNESS,
    GROUPS,
    RATIONALES,
    asked_methods,
    every_method,
    missing_token,
    names_in,
    packages_of,
    parse_metric,
    peers,
    requests_of,
    scorers_of,
)
from .say import ONE_TEXT, TWINS, answers_of, lines, remarks_of, summary_lines, wrapped

EMBEDDED = ("agreement", "sentiment")  # models that have a dataset of the same name


@door
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
    """Which method should I trust on my model? Every method on n texts, by every metric; one ranked table for each
    question.

    `data`: a dataset of `mixlens data`, a file (its fields: `text_field`, by default text or sentence, `pair_field`,
    `label_field`), Examples, texts, or (text, pair) tuples; an embedded model has sentences of its own.
    `methods`: "all", "peers" (methods of other tools, such as shap and lime), or names (with options:
    `value_zeroing:distance=euclidean`). In a list also functions `trace -> scores`, and dicts of a name and a function
    or a list of the scores of each text (`mixlens.attribution_from` says what scores may be). `metrics`: names (with
    options: `aopc:replacement=mask`), or the groups "faithfulness", "cues", "rationales", "fillers". Where every text
    has cues or rationales these are judged too. `infill`: a masked language model that fills gaps. `loading`: arguments
    of `mixlens.load`. `options`: `explains` ("measured" or "logit"), `ranking` ("default", "signed", "magnitude"),
    `unit` ("token", "word", "sentence"), `draws` of random scores. See docs/use/judging.md, and `run` for the rest."""
    checked_seed(seed)
    groups = names_in(metrics)
    names, given = asked_methods(methods)
    chosen = [request.written for request in requests_of(groups)]
    if data is None and not (isinstance(model, str) and model in EMBEDDED):
        meant = suggested(model, EMBEDDED) if isinstance(model, str) else ""
        raise InputError(
            "no texts were given: name a dataset of `mixlens data` or a file (mixlens judge MODEL DATA), or give one "
            "text (mixlens judge MODEL --text '...')."
            + (f" {meant.removesuffix('?')}, which has sentences of its own?" if meant else "")
        )
    source = model if data is None else data
    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    examples = examples_of(source, n=n, seed=seed, **fields)
    if {*chosen} & {*FAITHFULNESS}:
        marks = [*(CUES if all(example.cues for example in examples) else ())]
        marks += RATIONALES if all(example.info.get("rationale") for example in examples) else ()
        chosen += [name for name in marks if name not in chosen]
    refuse_missing(packages_of(chosen))  # before the model is loaded
    with as_methods(scorers_of(given, examples)):
        models = models_of([model, *([] if infill is None else [infill])], **(loading or {}))
        # Of a group stays what this model can be asked. A metric that is named by itself stays too, and is refused
        # later.
        of_groups = {*chain.from_iterable(GROUPS.get(group, ()) for group in groups)} - {*groups}
        lacks = [m for m in of_groups if missing_token(models[0], parse_metric(m), infill=len(models) > 1) is not None]
        asked = {"metrics": [name for name in chosen if name not in lacks], **options}
        refuse_unwritable(out)
        question: dict[str, Any] = {"methods": names, "seed": seed, "labels": None, "options": asked}
        setup = prepared("judge", model=list(models), data=examples, n=None, leave_out=leave_out, **question)
        named = isinstance(source, str | os.PathLike) and not any(fields.values())
        return run_setup(setup, out=out, source=source if named else examples, progress=progress)


def seconds(outcome: Outcome) -> dict[str, float]:
    """Mean seconds for one example by method. Timings are in no table that a run writes, so that tables stay the
    same."""
    spent: dict[str, dict[str, float]] = {}
    for record in outcome.records:
        if "seconds" in record.info:
            spent.setdefault(record.method, {})[record.example] = record.info["seconds"]
    return {method: sum(each.values()) / len(each) for method, each in spent.items()}


def ranking(outcome: Outcome, place: int = 0) -> Table:
    """A ranked table with the seconds that one example takes, of the first method of a row."""
    table, spent = outcome.tables[place], seconds(outcome)
    rows = tuple((*row, spent[str(row[1]).partition(TWINS)[0]]) for row in table.rows)
    return Table(table.name, table.title, (*table.columns, "seconds"), rows, table.note)


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
    """What `mixlens judge` prints, in lines of at most `width` columns: the answer, the tables, how to read them. Not
    `full`: the rankings alone, one row for each method."""
    started = time.perf_counter()
    if text is not None and data is not None:
        raise InputError("give DATA or --text, not both.")
    outcome = judge(model, data if text is None else [text], methods=methods, metrics=metrics, **options)
    one_text = len(outcome.setup.examples) == 1
    told = [*answers_of(outcome.setup, outcome.records), *([ONE_TEXT] if one_text else [])]
    told += remarks_of(outcome.setup, names_in(metrics), data, options)
    printed = [line for one in told for line in wrapped(one, width)]
    for place, table in enumerate(outcome.tables):
        ranked = table.columns[0] == "rank"
        shown = ranking(outcome, place) if ranked else table
        if full or width is None:
            body = lines(shown, width=width, beside=2 if ranked else 1)
        elif ranked:
            body = summary_lines(shown, width=width, one_text=one_text)
            rows = len(table.rows) + 2
            body = [*body[:rows], *(line for one in body[rows:] for line in wrapped(one, width))]
        else:
            continue
        printed += ["", *wrapped(table.title, width), "", *body, "", *wrapped(table.note, width)]
    printed.append("")
    if methods == "all":
        left_out = (
            f"Left out, minutes for one text of a large model: {', '.join(every_method()[1])}. Name them to have them: "
            f"--methods ... Methods of other tools ({', '.join(peers())}) are a group of their own: --methods "
            "all,peers."
        )
        printed += wrapped(left_out, width)
    printed += [] if outcome.out is None else [f"Records, tables and figure: {outcome.out}"]
    return "\n".join([*printed, f"{time.perf_counter() - started:.1f} s"])
