"""Results as plain values, JSON and CSV. JSON comes back bit for bit: a number is written with all the digits it has."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ..base.errors import ResultError, is_integer
from ..types import Attribution, HeadMaps, Map
from .result_facts import KINDS, SCHEMA, Saved, header_of, public_facts, require

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no such numbers
DTYPES = {
    name: getattr(torch, name)
    for name in ("float16", "bfloat16", "float32", "float64", "int32", "int64", "int16", "int8", "uint8")
} | {"bool": torch.bool}
TENSOR = {"tensor", "shape", "values"}  # the keys of a tensor among the facts


# --- plain values -------------------------------------------------------------------------------------------------------


def dict_of(result: Saved) -> dict[str, Any]:
    """Everything about a result in plain types: texts, numbers, lists, dicts. `scores` is nested as the tensor is."""
    header = header_of(result)
    scores = result.scores.detach().cpu()
    facts = {key: _plain(value) for key, value in public_facts(result.info).items()}
    start = {"kind": header["kind"].lower(), "schema": SCHEMA, "method": result.method, "tokens": list(result.tokens)}
    middle = {"scores": _nested(scores), "dtype": _name(scores.dtype), "special": list(result.special)}
    words = None if result.words is None else [[word, list(positions)] for word, positions in result.words]
    return {**start, **middle, "words": words, "info": facts}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _nested(scores: Tensor) -> Any:
    return [_nested(part) for part in scores] if scores.dim() > 1 else [_number(value) for value in scores.tolist()]


def _number(value: Any) -> Any:
    """A number; by its name where JSON has none for it."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: Any) -> Any:
    """A fact in plain types."""
    if isinstance(value, Tensor):
        return _plain_tensor(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": _number(value)}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _plain_tensor(value: Tensor) -> dict[str, Any]:
    flat = value.detach().cpu().reshape(-1)
    return {"tensor": _name(value.dtype), "shape": list(value.shape), "values": [_number(one) for one in flat.tolist()]}


# --- JSON ---------------------------------------------------------------------------------------------------------------


def json_of(result: Saved) -> str:
    """A result as one line of JSON."""
    return json.dumps(dict_of(result), ensure_ascii=False, allow_nan=False)


def content_of(text: str, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors that a text of JSON describes, unchecked but for its kind and schema."""
    found = json.loads(text, parse_constant=_refuse_constant)
    require(isinstance(found, dict), "it holds no object")
    kinds = {kind.lower(): kind for kind in KINDS}
    _refuse_other_kind(found, name, list(kinds))
    require(isinstance(found["info"], dict), "its facts are not written as a result's are")
    facts = {key: _fact(value) for key, value in found["info"].items()}
    tensors = {f"info.{key}": value for key, value in facts.items() if isinstance(value, Tensor)}
    names = ("schema", "method", "tokens", "special", "words")
    header = {"kind": kinds[found["kind"]], **{key: found[key] for key in names}}
    header["info"] = {key: value for key, value in facts.items() if not isinstance(value, Tensor)}
    return header, {"scores": _tensor(found["scores"], found["dtype"]), **tensors}


def _refuse_other_kind(found: Mapping[str, Any], name: str, kinds: list[str]) -> None:
    """What is not a result, or is one of another schema."""
    if found.get("kind") not in kinds:
        kind = found.get("kind")
        advice = (
            " Generation.load reads a written text; `mixlens report --from` shows it." if kind == "generation" else ""
        )
        raise ResultError(f"{name!r} holds the kind {kind!r:.40}; {' and '.join(kinds)} are read.{advice}")
    if found["schema"] != SCHEMA:
        raise ResultError(f"{name!r} has schema {found['schema']!r:.40}; this mixlens reads {SCHEMA}.")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _fact(value: Any) -> Any:
    """A fact as it was: a tensor, a number that JSON does not have, or the value itself."""
    if isinstance(value, dict) and value.keys() == TENSOR:
        return _tensor_fact(value)
    if isinstance(value, dict) and value.keys() == {"number"}:
        return NOT_FINITE[value["number"]]
    if isinstance(value, dict):
        return {key: _fact(one) for key, one in value.items()}
    return [_fact(one) for one in value] if isinstance(value, list) else value


def _tensor_fact(value: Mapping[str, Any]) -> Tensor:
    """A tensor among the facts: its values in a row, and its shape."""
    flat, shape = _tensor(value["values"], value["tensor"]), value["shape"]
    fits = _is_shape(shape) and math.prod(shape) == flat.numel()
    require(fits and flat.dim() == 1, "a tensor among its facts has another shape")
    return flat.reshape(shape)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(is_integer(n) and n >= 0 for n in shape)


def _tensor(values: Any, dtype: Any) -> Tensor:
    require(isinstance(dtype, str) and dtype in DTYPES, "its numbers are of an unknown type")
    return torch.tensor(_numbers(values), dtype=DTYPES[dtype])


def _numbers(values: Any) -> Any:
    """Nested lists of numbers; the names of numbers that are not finite in their place."""
    if isinstance(values, list):
        return [_numbers(one) for one in values]
    if isinstance(values, str):
        return NOT_FINITE[values]
    require(isinstance(values, int | float), "its numbers are none")
    return values


# --- CSV ----------------------------------------------------------------------------------------------------------------


def csv_of(result: Saved) -> str:
    """A table with a head: one row for each token, or for each layer, query and key. The facts are not in it."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerows(_rows(result) if isinstance(result, Attribution) else _map_rows(result))
    return out.getvalue()


def _rows(result: Attribution) -> Iterator[list[Any]]:
    special = result.special or (False,) * len(result.tokens)
    yield ["position", "token", "special", "score"]
    for i, score in enumerate(result.scores.tolist()):
        yield [i, result.tokens[i], special[i], score]


def _map_rows(result: Map | HeadMaps) -> Iterator[list[Any]]:
    axes = ["layer", "query", "key"] if isinstance(result, Map) else ["layer", "head", "query", "key"]
    yield [*axes, "query_token", "key_token", "score"]
    places = product(*map(range, result.scores.shape))
    for place, score in zip(places, result.scores.flatten().tolist(), strict=True):
        yield [*place, *(result.tokens[i] for i in place[-2:]), score]
