"""What a model writes after each row of a corpus, explained token by token; and read back as Generations.

Of every method a row has the mean of its scores for the prompt's tokens (which summaries and pages read), and its scores for
every written token (`written:` and the method): rows of growing length, one behind the other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...answers.generation import Generation
from ...answers.generation.explaining import Written, explain_written, write_each
from ...answers.generation.files import SCHEMA, from_dict, to_dict
from ...base.errors import InputError, MixlensError
from ...model.encode import Encoded
from ...model.model import Model
from ...scoring.asking import MethodRequest, parse_method
from .answers import input_columns
from .parquet import Row
from .plan import WRITTEN, WRITTEN_SCORES, Plan
from .reading import manifest_of, mapping, methods_of
from .rows import InputRow, written
from .shards import rows_in, shard_files

LAYOUT = ("tokens", "words", "groups", "spans", "unit")  # of a Generation as plain types


# --- rows out -----------------------------------------------------------------------------------------------------------


def written_rows(
    model: Model,
    plan: Plan,
    requests: Mapping[str, MethodRequest],
    rows: Sequence[InputRow],
    encoded: Sequence[Encoded],
) -> list[Row | MixlensError]:
    """The columns of each row, or why it has none. The model writes after all of them at once."""
    started = time.perf_counter()
    texts = write_each(model, encoded, plan.generate or 0)
    seconds = (time.perf_counter() - started) / len(rows)
    return [_row_or_reason(plan, requests, row, text, seconds) for row, text in zip(rows, texts, strict=True)]


def _row_or_reason(
    plan: Plan, requests: Mapping[str, MethodRequest], row: InputRow, text: Written, seconds: float
) -> Row | MixlensError:
    try:
        return _row(plan, requests, row, text, seconds)
    except MixlensError as error:
        return error


def _row(plan: Plan, requests: Mapping[str, MethodRequest], row: InputRow, text: Written, seconds: float) -> Row:
    started = time.perf_counter()
    results = {name: _explained(text, request, plan) for name, request in requests.items()}
    first = next(iter(results.values()))
    columns: Row = {
        **input_columns(row, text.prompt),
        **_prediction(first),
        **_text_columns(first),
    }
    columns |= zip(plan.columns, row.columns, strict=True)
    for name, result in results.items():
        columns |= _score_columns(name, result)
    gaps = [float(result.info["gap"]) for result in results.values() if "gap" in result.info]
    return {**columns, "gap": max(gaps, default=None), "seconds": seconds + time.perf_counter() - started}


def _explained(text: Written, request: MethodRequest, plan: Plan) -> Generation:
    options: dict[str, Any] = {"variant": request.variant, **request.options_for(text.whole)}
    options |= {"foil": plan.foil, "score": plan.score} if request.class_specific else {}
    options |= {} if request.rollout is None else {"rollout": request.rollout}
    return explain_written(text, request.name, **options)


def _prediction(result: Generation) -> Row:
    """What the model would have written first: as in every other run, the prediction after the row's own text."""
    (word, probability), *_ = result[0].info["prediction"]
    return {"query": result.text.begin - 1, "prediction": written(word), "probability": probability, "target": None}


def _text_columns(result: Generation) -> Row:
    begin, content = result.text.begin, to_dict(result)
    layout = {**{name: content[name] for name in LAYOUT}, "tokens": content["tokens"][begin:]}
    assert result.whole is not None
    values = (
        written(result.text.written),
        list(result.whole.input_ids[begin:]),
        list(result.probabilities),
        written(json.dumps(layout, ensure_ascii=False)),
    )
    return dict(zip(WRITTEN, values, strict=True))


def _score_columns(name: str, result: Generation) -> Row:
    begin = result.text.begin
    parts = [result.scores[number, : begin + number] for number in range(len(result))]
    return {name: result.scores[:, :begin].mean(0).numpy(), WRITTEN_SCORES + name: torch.cat(parts).numpy()}


# --- and back -----------------------------------------------------------------------------------------------------------


def generations(
    out: str | os.PathLike[str], method: str | None = None, rows: Collection[int] | None = None
) -> Iterator[tuple[int, Generation]]:
    """(row, Generation) of a run with `generate`, by one of its methods (by default the first), in the order of the data; of
    all rows, or of some. They hold no model, so nothing can be left out."""
    manifest = manifest_of(out)
    name = _method(manifest, method)
    wanted = ["row", "text", "pair", "tokens", *WRITTEN, WRITTEN_SCORES + name]
    for path in shard_files(out):
        for row in rows_in(path, wanted):
            if rows is None or row["row"] in rows:
                yield row["row"], _generation(row, name, manifest)


def _method(manifest: Mapping[str, Any], method: str | None) -> str:
    """The method that is asked for, or the first; refused where the run has none of this name, or wrote no text."""
    known = methods_of(manifest)
    options = mapping(mapping(manifest.get("identity")).get("options"))
    if options.get("generate") is None:
        raise InputError("this run has no written texts. Give generate= to run, on the command line --generate.")
    if method is not None and method not in known:
        raise InputError(f"the run has no method {method!r}. It has {', '.join(known)}.")
    return method or known[0]


def _generation(row: Mapping[str, Any], name: str, manifest: Mapping[str, Any]) -> Generation:
    layout, begin, count = json.loads(row["layout"]), len(row["tokens"]), len(row["written_ids"])
    content = {
        **layout,
        "kind": "generation",
        "schema": SCHEMA,
        "text": row["text"],
        "pair": row["pair"],
        "written": row["written"],
        "given": False,
        "tokens": [*row["tokens"], *layout["tokens"]],
        "begin": begin,
        "probabilities": row["probabilities"],
        "scores": _table(row[WRITTEN_SCORES + name], begin, count).tolist(),
        "is_map": parse_method(name).is_map,
        "method": {"id": name},
        "filler": None,
        "predictions": [[]] * count,
        "provenance": _provenance(manifest),
    }
    return from_dict(content)


def _table(flat: Sequence[float], begin: int, count: int) -> np.ndarray:
    """[written token, token] of rows of growing length, one behind the other."""
    table, place = np.zeros((count, begin + count)), 0
    for number in range(count):
        table[number, : begin + number] = flat[place : place + begin + number]
        place += begin + number
    return table


def _provenance(manifest: Mapping[str, Any]) -> dict[str, Any]:
    model = mapping(manifest.get("model"))
    facts = {"model": model.get("name"), "revision": model.get("revision"), "family": model.get("family")}
    dtype = mapping(manifest.get("identity")).get("dtype")
    return {**facts, "task": model.get("task"), "dtype": dtype, "versions": manifest.get("versions")}
