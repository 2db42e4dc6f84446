"""The files of a shard as bytes: rows and maps as Parquet. The same rows give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import torch

from ...base.optional import optional
from .plan import (
    BEFORE,
    COLUMNS,
    COMPLETENESS,
    CUT,
    RANDOM_TURNED,
    RANDOM_WITHOUT,
    RATIO,
    TURNED,
    WITHOUT,
    WORD_OF,
    WORDS,
    WRITTEN,
    WRITTEN_SCORES,
    Plan,
)
from .shards import SCHEMA

Row = dict[str, Any]


def arrow() -> Any:
    return optional("pyarrow", "pyarrow", "data", what="corpus runs")


def schema_of(plan: Plan, dtype: torch.dtype, ratios: Sequence[str]) -> Any:
    """The columns of a run, the same in every shard. `ratios` are the methods that hand out a mixing ratio."""
    pa = arrow()
    numbers = {"row": pa.int64(), "query": pa.int32(), **dict.fromkeys(("probability", "gap", "seconds"), pa.float64())}
    lists = {
        "input_ids": pa.int32(),
        "tokens": pa.string(),
        "segments": pa.int8(),
        "starts": pa.int32(),
        "ends": pa.int32(),
    }
    lists |= {WORDS: pa.string(), BEFORE: pa.string(), WORD_OF: pa.int32()}
    kinds = numbers | {name: pa.list_(kind) for name, kind in lists.items()}
    kinds |= {name: pa.type_for_alias(kind) for name, kind in plan.kinds}
    kinds |= dict.fromkeys(plan.methods, pa.list_(pa.float64() if dtype == torch.float64 else pa.float32()))
    more = {RATIO + method: pa.list_(pa.float32()) for method in ratios}
    if plan.trust:  # the check of the first words
        of_methods = {WITHOUT: pa.float64(), TURNED: pa.bool_(), COMPLETENESS: pa.float64()}
        more |= {prefix + method: kind for prefix, kind in of_methods.items() for method in plan.methods}
        more |= {RANDOM_WITHOUT: pa.list_(pa.float64()), RANDOM_TURNED: pa.list_(pa.bool_())}
    if plan.generate is not None:
        more |= {**dict.fromkeys(WRITTEN, pa.string()), "written_ids": pa.list_(pa.int32())}
        more |= {"probabilities": pa.list_(pa.float64())}
        more |= {WRITTEN_SCORES + method: kinds[method] for method in plan.methods}
    if plan.truncate:  # how many tokens a text had before it was cut, where texts are
        more |= {CUT: pa.int32()}
    kinds |= more
    names = (*COLUMNS[:-1], *plan.columns, *plan.methods, *more, COLUMNS[-1])
    return pa.schema([(name, kinds.get(name, pa.string())) for name in names])


def maps_content(number: int, rows: Sequence[Row], number_type: str) -> bytes:
    """One row per map: [layer query key] flattened. The first bytes of all numbers stand together, then the second
    bytes, and so on (byte stream split), which compresses well."""
    pa = arrow()
    kind = pa.list_(pa.float16() if number_type == "float16" else pa.float32())
    schema = pa.schema(
        [("row", pa.int64()), ("method", pa.string()), ("layers", pa.int32()), ("tokens", pa.int32()), ("scores", kind)]
    )
    flat = [
        {
            "row": row["row"],
            "method": method,
            "layers": len(scores),
            "tokens": scores.shape[-1],
            "scores": scores.reshape(-1),
        }
        for row in rows
        for method, scores in row["maps"].items()
    ]
    table = table_of(flat, schema, {"schema": SCHEMA, "number": number})
    return parquet_content(table, use_byte_stream_split=["scores.list.element"], use_dictionary=["method"])


def table_of(rows: Sequence[Row], schema: Any, facts: Mapping[str, Any]) -> Any:
    """The rows as a table, with the facts in its metadata."""
    pa = arrow()
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema.with_metadata({"mixlens": json.dumps(facts)}))


def parquet_content(table: Any, **options: Any) -> bytes:
    content = BytesIO()
    parquet = optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    parquet.write_table(table, content, compression="zstd", **options)
    return content.getvalue()
