"""Results to and from files and tables. Nothing that is loaded can run, and JSON comes back bit for bit.

A file has the scores, facts that are tensors, and a header with everything else. What is read is checked part by part
before a result is made of it, so that the code which shows it can rely on it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..base.doors import door
from ..base.errors import MixlensError, ResultError, is_integer
from ..base.files import refuse_foreign, write
from ..base.optional import optional
from ..base.paths import is_file, is_folder, path_of
from ..types import Attribution, HeadMaps, Map, Result
from .provenance import public_name

if TYPE_CHECKING:
    import pandas

Saved = Result | HeadMaps
Content = tuple[dict[str, Any], dict[str, Tensor]]  # the header of a file and its tensors
SCHEMA = 1
SUFFIXES = (".safetensors", ".json", ".csv")
KINDS: dict[str, type[Map] | type[HeadMaps] | type[Attribution]] = {
    "Map": Map,
    "HeadMaps": HeadMaps,
    "Attribution": Attribution,
}
AXES: dict[type, tuple[str, ...]] = {  # of scores
    Map: ("layer", "token", "token"),
    HeadMaps: ("layer", "head", "token", "token"),
    Attribution: ("token",),
}
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no such numbers
NUMBERS = ("float16", "bfloat16", "float32", "float64")
DTYPES = {name: getattr(torch, name) for name in (*NUMBERS, "int32", "int64", "int16", "int8", "uint8", "bool")}
DEPTH = 32  # levels of lists and dicts inside of the facts
FAULTS = (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError, OverflowError)
# The facts that the code which shows a result relies on, and the kinds of their values. A method may add others.
FACTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("model", "revision", "family", "task", "dtype", "quantization", "text", "pair"), (str, None)),
    **dict.fromkeys(("paper", "method", "variant", "convention", "unit", "special_tokens"), (str, None)),
    **dict.fromkeys(("score", "generated", "precision"), (str, None)),
    **dict.fromkeys(("check", "tolerance"), (float, int, None)),
    **dict.fromkeys(("gap", "precision_error"), (float, int)),
    **dict.fromkeys(("query", "at_layer"), (int, None)),
    **dict.fromkeys(("options", "versions", "gaps", "seconds", "rollout"), (dict, None)),
    **dict.fromkeys(("notes", "input_ids"), (list, None)),
    "layer": (int,),
    "query_token": (str,),
    "target": (str, list, float, int, None),
    "causal": (bool, None),
    "prediction": (list,),
}


class WrongError(ValueError):
    """A statement in a file that no result makes."""


# --- writing ----------------------------------------------------------------------------------------------------------


@door
def save(result: Saved, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write one file with the scores and all facts about them; .csv has the scores alone. It is whole, or it is not
    there. A file that is no result of mixlens is kept, unless `force`."""
    place = path_of(path)
    if place.suffix not in SUFFIXES:
        raise ResultError(f"a result is saved as .safetensors, .json or .csv, not {place.name!r}.")
    if not is_folder(place.parent):
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    refuse_foreign(place, force=force)
    is_text = place.suffix in (".json", ".csv")
    try:
        write(place, text_of(result, place.suffix).encode() if is_text else partial(_write_tensors, result))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResultError(f"the result could not be written to {str(place)!r}: {reason}.") from error


def _write_tensors(result: Saved, place: Path) -> None:
    metadata = {"mixlens": json.dumps(header_of(result), ensure_ascii=False)}
    tensors = {f"info.{key}": value.contiguous() for key, value in result.info.items() if isinstance(value, Tensor)}
    save_file({"scores": result.scores.cpu().contiguous(), **tensors}, place, metadata=metadata)


def header_of(result: Saved) -> dict[str, Any]:
    """All that a file says of a result besides tensors."""
    return {
        "kind": type(result).__name__,
        "schema": SCHEMA,
        "tokens": list(result.tokens),
        "method": result.method,
        "info": {key: value for key, value in public_facts(result.info).items() if not isinstance(value, Tensor)},
        "special": list(result.special),
        "words": result.words,
    }


def public_facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a result as others may read them: a folder of this machine by its last part alone."""
    name = info.get("model")
    return {**info, "model": public_name(name)} if isinstance(name, str) else dict(info)


def saved_or_text(
    result: Saved, path: str | os.PathLike[str] | None, suffix: str, *, force: bool = False
) -> str | None:
    """The text of a result; with a path nothing, and the text is written there."""
    if path is None:
        return text_of(result, suffix)
    place = path_of(path)
    if place.suffix != suffix:
        raise ResultError(f"a file for this ends in {suffix}, and {place.name!r} does not.")
    save(result, place, force=force)
    return None


def text_of(result: Saved, suffix: str) -> str:
    """A result as one line of JSON, or as a table: one row for each token, or for each layer, query and key."""
    if suffix == ".json":
        return json.dumps(dict_of(result), ensure_ascii=False, allow_nan=False)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    if isinstance(result, Attribution):
        special = result.special or (False,) * len(result.tokens)
        table.writerow(["position", "token", "special", "score"])
        table.writerows(zip(range(len(special)), result.tokens, special, result.scores.tolist(), strict=True))
    else:
        axes = ["layer", "query", "key"] if isinstance(result, Map) else ["layer", "head", "query", "key"]
        table.writerow([*axes, "query_token", "key_token", "score"])
        places = product(*map(range, result.scores.shape))
        for place, score in zip(places, result.scores.flatten().tolist(), strict=True):
            table.writerow([*place, *(result.tokens[i] for i in place[-2:]), score])
    return out.getvalue()


def dict_of(result: Saved) -> dict[str, Any]:
    """Everything about a result in plain types: texts, numbers, lists, dicts. `scores` is nested as the tensor is."""
    scores = result.scores.detach().cpu()
    return {
        "kind": type(result).__name__.lower(),
        "schema": SCHEMA,
        "method": result.method,
        "tokens": list(result.tokens),
        "scores": _plain_numbers(scores.tolist()),
        "dtype": _name(scores.dtype),
        "special": list(result.special),
        "words": None if result.words is None else [[word, list(positions)] for word, positions in result.words],
        "info": {key: _plain(value) for key, value in public_facts(result.info).items()},
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _plain_numbers(values: Any) -> Any:
    """Nested lists of numbers; by its name a number that JSON does not have."""
    if isinstance(values, list):
        return [_plain_numbers(one) for one in values]
    if not isinstance(values, float) or math.isfinite(values):
        return values
    return "NaN" if math.isnan(values) else "Infinity" if values > 0 else "-Infinity"


def _plain(value: Any) -> Any:
    """A fact in plain types."""
    if isinstance(value, Tensor):
        numbers = _plain_numbers(value.detach().cpu().reshape(-1).tolist())
        return {"tensor": _name(value.dtype), "shape": list(value.shape), "values": numbers}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": _plain_numbers(value)}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# --- reading ----------------------------------------------------------------------------------------------------------


def load_result(path: str | os.PathLike[str]) -> Any:
    """The Map, HeadMaps or Attribution that `.save` wrote as .safetensors or .json, bit for bit; or the `Why` of a
    JSON file.

    A file with anything that these do not write is refused.
    """
    place = path_of(path)
    if not is_file(place):
        raise ResultError(f"no file {str(place)!r}.")
    if place.suffix == ".csv":
        raise ResultError(
            f"{place.name!r}: a table has the scores alone. Save a result as .safetensors or .json to load it again."
        )
    try:
        if place.suffix != ".json":
            return result_of(*_content_of_tensors(place))
        text = place.read_text(encoding="utf-8")
        return _answer(text) or result_of(*content_of(text, place.name))
    except MixlensError:
        raise
    except FAULTS as error:
        fault = str(error) if isinstance(error, WrongError) else type(error).__name__
        raise ResultError(f"{place.name!r} is not a mixlens result (or is damaged): {fault}.") from error


def _answer(text: str) -> Any:
    """The `Why` of a text of JSON; None where the text does not say that it holds one."""
    from ..answers import from_dict

    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return from_dict(content) if isinstance(content, dict) and content.get("kind") == "why" else None


def _content_of_tensors(place: Path) -> Content:
    """The header and the tensors of a .safetensors file, unchecked but for the schema."""
    with safe_open(place, framework="pt") as file:
        header = json.loads((file.metadata() or {})["mixlens"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    if header["schema"] != SCHEMA:
        raise ResultError(f"{place.name!r} has schema {header['schema']}; this mixlens reads {SCHEMA}.")
    return header, tensors


def content_of(text: str, name: str) -> Content:
    """The header and the tensors that a text of JSON describes, unchecked but for its kind and schema."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no number of JSON")

    found = json.loads(text, parse_constant=refuse)
    require(isinstance(found, dict), "it holds no object")
    kind, kinds = found.get("kind"), {kind.lower(): kind for kind in KINDS}
    if kind not in kinds:
        read = (
            " Generation.load reads a written text; `mixlens report --from` shows it." if kind == "generation" else ""
        )
        raise ResultError(f"{name!r} holds the kind {kind!r:.40}; {' and '.join(kinds)} are read.{read}")
    if found["schema"] != SCHEMA:
        raise ResultError(f"{name!r} has schema {found['schema']!r:.40}; this mixlens reads {SCHEMA}.")
    require(isinstance(found["info"], dict), "its facts are not written as a result's are")
    facts = {key: _fact(value) for key, value in found["info"].items()}
    tensors = {f"info.{key}": value for key, value in facts.items() if isinstance(value, Tensor)}
    header = {key: found[key] for key in ("schema", "method", "tokens", "special", "words")} | {"kind": kinds[kind]}
    header["info"] = {key: value for key, value in facts.items() if not isinstance(value, Tensor)}
    return header, {"scores": _tensor(found["scores"], found["dtype"]), **tensors}


def _fact(value: Any) -> Any:
    """A fact as it was: a tensor, a number that JSON does not have, or the value itself."""
    if isinstance(value, list):
        return [_fact(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"number"}:
        return NOT_FINITE[value["number"]]
    if value.keys() != {"tensor", "shape", "values"}:
        return {key: _fact(one) for key, one in value.items()}
    flat, shape = _tensor(value["values"], value["tensor"]), value["shape"]
    are_sizes = isinstance(shape, list) and all(is_integer(n) and n >= 0 for n in shape)
    fits = are_sizes and math.prod(shape) == flat.numel() and flat.dim() == 1
    require(fits, "a tensor among its facts has another shape")
    return flat.reshape(shape)


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


# --- what is read, checked --------------------------------------------------------------------------------------------


def require(condition: bool, fault: str) -> None:
    if not condition:
        raise WrongError(fault)


def result_of(header: dict[str, Any], tensors: dict[str, Tensor]) -> Saved:
    """The result that a file describes. Every part is checked first."""
    kind, scores, special, words = KINDS[header["kind"]], tensors["scores"], header["special"], header["words"]
    tokens = header["tokens"]
    are_texts = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    require(are_texts and bool(tokens), "its tokens are no texts")
    n, axes = len(tokens), AXES[kind]
    fits = scores.dim() == len(axes) and scores.numel() > 0 and set(scores.shape[-2:]) == {n}
    shape = f"[{', '.join(axes)}]"
    require(fits, f"its scores have the shape {list(scores.shape)}, not {shape} of its {n} tokens")
    require(_name(scores.dtype) in NUMBERS, f"its scores are {_name(scores.dtype)} numbers")
    require(not bool(scores.isnan().all()), "none of its scores is a number")
    require(isinstance(header["method"], str), "its method is no name")
    are_flags = isinstance(special, list) and all(isinstance(one, bool) for one in special) and len(special) in (0, n)
    require(are_flags, "its list of special tokens does not fit its tokens")
    require(words is None or _are_words(words, n), "its words do not fit its tokens")
    info = _info(header["info"], tensors)
    groups = None if words is None else tuple((word, tuple(positions)) for word, positions in words)
    return kind(scores, tuple(tokens), header["method"], info, tuple(special), groups)


def _are_words(words: Any, n: int) -> bool:
    """Each word is a text with at least one position; no position belongs to two words."""
    if not _are_pairs(words) or not all(isinstance(w, str) and isinstance(group, list) and group for w, group in words):
        return False
    places = [place for _, group in words for place in group]
    return all(_is_of(place, (int,)) and 0 <= place < n for place in places) and len(set(places)) == len(places)


def _info(facts: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """`.info` of a result: the facts of the header and those that are tensors, each checked by FACTS."""
    require(isinstance(facts, dict) and not _is_deep(facts), "its facts are not written as a result's are")
    names = [key for key in tensors if key != "scores"]
    others = [key for key in names if not key.startswith("info.")]
    require(not others, f"it holds {others[:1]}, which no result has")
    info = facts | {key.removeprefix("info."): tensors[key] for key in names}
    for name, value in info.items():
        fits = name not in FACTS or _is_of(value, FACTS[name])
        if fits and name == "prediction":
            fits = _are_pairs(value) and all(isinstance(word, str) and _is_of(p, (float, int)) for word, p in value)
        if fits and name == "rollout" and value is not None:
            fits = isinstance(value.get("convention"), str)
        require(fits, f"its fact {name!r:.40} has a value that no result has")
    if "query_token" in info:  # a token comes with its position, a target with its score
        require(isinstance(info.get("query"), int), "its facts name a token and no position")
        has_score = info.get("target") is None or isinstance(info.get("score"), str)
        require(has_score, "its facts name a target and no score")
    if "prediction" in info:
        info["prediction"] = list(map(tuple, info["prediction"]))
    return info


def _is_of(value: Any, kinds: Iterable[Any]) -> bool:
    """Is a value of one of these kinds? A whole number has 64 bits, and True is none."""
    whole = is_integer(value) and abs(value) < 1 << 63
    return any(value is None if kind is None else whole if kind is int else isinstance(value, kind) for kind in kinds)


def _are_pairs(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, list) and len(value) == 2 for value in values)


def _is_deep(facts: dict[str, Any]) -> bool:
    """Whether lists and dicts are nested more than DEPTH times."""
    level: list[Any] = [facts]
    for _ in range(DEPTH):
        inside = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = list(chain.from_iterable(inside))
    return any(isinstance(value, dict | list) for value in level)


# --- tables -----------------------------------------------------------------------------------------------------------


def frame_of(result: Saved) -> pandas.DataFrame:
    """A table with one row per token; of a map per layer, query and key, of heads also per head."""
    pandas = optional("pandas", "pandas", "pandas", what="tables", error=MixlensError)
    if isinstance(result, Attribution):
        columns = {"position": range(len(result.tokens)), "token": list(result.tokens), "score": result.to_numpy()}
        return pandas.DataFrame(columns)
    axes = ("layer", "query", "key") if isinstance(result, Map) else ("layer", "head", "query", "key")
    places = torch.meshgrid(*map(torch.arange, result.scores.shape), indexing="ij")
    columns = {axis: place.flatten().numpy() for axis, place in zip(axes, places, strict=True)}
    names = {f"{axis}_token": [result.tokens[i] for i in columns[axis]] for axis in ("query", "key")}
    return pandas.DataFrame({**columns, **names, "score": result.to_numpy().reshape(-1)})
