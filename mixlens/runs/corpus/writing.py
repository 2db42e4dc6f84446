"""What a model writes after each row of a corpus, explained token by token; and read back as Generations.

Of every method a row has the mean of its scores for the prompt's tokens (which summaries and pages read), and its
scores for every written token (`written:` and the method): rows of growing length, one behind the other.
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
from .parquet import Row
from .plan import WRITTEN, WRITTEN_SCORES, Plan
from .reading import manifest_of, mapping, methods_of
from .row_words import input_columns
from .rows import InputRow, written
from .shards import rows_in, shard_files

LAYOUT = ("tokens", "words", "groups", "spans", "unit")  # of a Generation as plain types


# --- rows out ---------------------------------------------------------------------------------------------------------


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
    made: list[Row | MixlensError] = []
    for row, text in zip(rows, texts, strict=True):
        try:
            made.append(_row(plan, requests, row, text, seconds))
        except MixlensError as error:
            made.append(error)
    return made


def _row(plan: Plan, requests: Mapping[str, MethodRequest], row: InputRow, text: Written, seconds: float) -> Row:
    started = time.perf_counter()
    results: dict[str, Generation] = {}
    for name, request in requests.items():
        options: dict[str, Any] = {"variant": request.variant, **request.options_for(text.whole)}
        options |= {"foil": plan.foil, "score": plan.score} if request.class_specific else {}
        options |= {} if request.rollout is None else {"rollout": request.rollout}
        results[name] = explain_written(text, request.name, **options)
    first = next(iter(results.values()))
    begin, content = first.text.begin, to_dict(first)
    layout = {**{name: content[name] for name in LAYOUT}, "tokens": content["tokens"][begin:]}
    assert first.whole is not None
    columns: Row = input_columns(row, text.prompt)
    # What the model would have written first: as in every other run, the prediction after the row's own text.
    (word, probability), *_ = first[0].info["prediction"]
    columns |= {"query": begin - 1, "prediction": written(word), "probability": probability, "target": None}
    said = written(first.text.written), list(first.whole.input_ids[begin:]), list(first.probabilities)
    columns |= zip(WRITTEN, (*said, written(json.dumps(layout, ensure_ascii=False))), strict=True)
    columns |= zip(plan.columns, row.columns, strict=True)
    for name, result in results.items():
        parts = [result.scores[number, : begin + number] for number in range(len(result))]
        columns[name] = result.scores[:, :begin].mean(0).numpy()
        columns[WRITTEN_SCORES + name] = torch.cat(parts).numpy()
    gaps = [float(result.info["gap"]) for result in results.values() if "gap" in result.info]
    return {**columns, "gap": max(gaps, default=None), "seconds": seconds + time.perf_counter() - started}


# --- and back ---------------------------------------------------------------------------------------------------------


def generations(
    out: str | os.PathLike[str], method: str | None = None, rows: Collection[int] | None = None
) -> Iterator[tuple[int, Generation]]:
    """(row, Generation) of a run with `generate`, by one of its methods (by default the first), in the order of the
    data; of all rows, or of some. They hold no model, so nothing can be left out."""
    manifest = manifest_of(out)
    known, model = methods_of(manifest), mapping(manifest.get("model"))
    identity = mapping(manifest.get("identity"))
    if mapping(identity.get("options")).get("generate") is None:
        raise InputError("this run has no written texts. Give generate= to run, on the command line --generate.")
    if method is not None and method not in known:
        raise InputError(f"the run has no method {method!r}. It has {', '.join(known)}.")
    name = method or known[0]
    provenance = {
        "model": model.get("name"),
        "revision": model.get("revision"),
        "family": model.get("family"),
        "task": model.get("task"),
        "dtype": identity.get("dtype"),
        "versions": manifest.get("versions"),
    }
    wanted = ["row", "text", "pair", "tokens", *WRITTEN, WRITTEN_SCORES + name]
    for path in shard_files(out):
        for row in rows_in(path, wanted):
            if rows is None or row["row"] in rows:
                yield row["row"], _generation(row, name, provenance)


def _generation(row: Mapping[str, Any], name: str, provenance: Mapping[str, Any]) -> Generation:
    layout, begin, count = json.loads(row["layout"]), len(row["tokens"]), len(row["written_ids"])
    table, place = np.zeros((count, begin + count)), 0  # from rows of growing length, one behind the other
    for number in range(count):
        table[number, : begin + number] = row[WRITTEN_SCORES + name][place : place + begin + number]
        place += begin + number
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
        "scores": table.tolist(),
        "is_map": parse_method(name).is_map,
        "method": {"id": name},
        "filler": None,
        "predictions": [[]] * count,
        "provenance": provenance,
    }
    return from_dict(content)
