"""Results to and from files and tables. safetensors only: nothing that is loaded can run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import MixlensError, ResultError
from .files import write
from .optional import optional
from .types import Attribution, Map, Result

if TYPE_CHECKING:
    import pandas

KINDS: dict[str, type[Map] | type[Attribution]] = {"Map": Map, "Attribution": Attribution}
SCHEMA = 1


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """One file with the scores and all that is known about them, whole or not there."""
    place = Path(path)
    if place.suffix != ".safetensors":
        raise ResultError(
            f"a result is saved as .safetensors, not {place.name!r}. For a table use .to_pandas(), on the command line --json."
        )
    if not place.parent.is_dir():
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    tensors = {"scores": result.scores.cpu().contiguous()}
    plain: dict[str, Any] = {}
    for key, value in result.info.items():
        if isinstance(value, Tensor):
            tensors[f"info.{key}"] = value.contiguous()
        else:
            plain[key] = value
    told = {
        "kind": type(result).__name__,
        "schema": SCHEMA,
        "tokens": list(result.tokens),
        "method": result.method,
        "info": plain,
        "special": list(result.special),
        "words": result.words,
    }
    head = {"mixlens": json.dumps(told, ensure_ascii=False)}
    try:
        write(place, lambda beside: save_file(tensors, beside, metadata=head))
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ResultError(f"the result could not be written to {str(place)!r}: {reason}.") from error


def load_result(path: str | os.PathLike[str]) -> Result:
    """The Map or Attribution that `.save` wrote, bit for bit. A file that says anything else than `.save` writes is refused."""
    place = Path(path)
    if not place.is_file():
        raise ResultError(f"no file {str(place)!r}.")
    try:
        with safe_open(place, framework="pt") as file:
            told = json.loads((file.metadata() or {})["mixlens"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        if told["schema"] != SCHEMA:
            raise ResultError(f"{place.name!r} has schema {told['schema']}; this mixlens reads {SCHEMA}.")
        return _result(told, tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, MixlensError):
            raise
        what = str(error) if isinstance(error, _WrongError) else type(error).__name__
        raise ResultError(f"{place.name!r} is not a mixlens result (or is damaged): {what}.") from error


class _WrongError(ValueError):
    """What a file says that no result says."""


def _result(told: dict[str, Any], tensors: dict[str, Tensor]) -> Result:
    """A result of what the file says, all of which is checked: whoever shows it need not doubt it."""
    kind, scores, tokens, special, words = KINDS[told["kind"]], tensors["scores"], told["tokens"], told["special"], told["words"]
    _right(isinstance(tokens, list) and bool(tokens) and all(isinstance(one, str) for one in tokens), "its tokens are no texts")
    n = len(tokens)
    shape = "[layer, token, token]" if kind is Map else "[token]"
    fits = scores.shape == (n,) if kind is Attribution else scores.dim() == 3 and len(scores) > 0 and scores.shape[1:] == (n, n)
    _right(fits, f"its scores have the shape {list(scores.shape)}, not {shape} of its {n} tokens")
    _right(scores.dtype in NUMBERS, f"its scores are {str(scores.dtype).removeprefix('torch.')} numbers")
    _right(isinstance(told["method"], str), "its method is no name")
    flags = isinstance(special, list) and all(isinstance(one, bool) for one in special) and len(special) in (0, n)
    _right(flags, "its list of special tokens does not fit its tokens")
    _right(words is None or _are_words(words, n), "its words do not fit its tokens")
    _right(isinstance(told["info"], dict) and not _deep(told["info"]), "its facts are not written as a result's are")
    strange = [key for key in tensors if key != "scores" and not key.startswith("info.")]
    _right(not strange, f"it holds {strange[:1]}, which no result has")
    info = told["info"] | {key.removeprefix("info."): value for key, value in tensors.items() if key != "scores"}
    for name, value in info.items():
        _right(name not in FACTS or FACTS[name](value), f"its fact {name!r:.40} has a value that no result has")
    if "query_token" in info:  # these are said together
        _right(isinstance(info.get("query"), int), "its facts name a token and no position")
        _right(info.get("target") is None or isinstance(info.get("score"), str), "its facts name a target and no score")
    if "prediction" in info:
        info["prediction"] = [(word, probability) for word, probability in info["prediction"]]
    groups = None if words is None else tuple((word, tuple(places)) for word, places in words)
    return kind(scores, tuple(tokens), told["method"], info, tuple(special), groups)


def _right(right: bool, otherwise: str) -> None:
    if not right:
        raise _WrongError(otherwise)


def _are_words(words: Any, n: int) -> bool:
    """Each word with positions of its own, at least one."""
    pairs = isinstance(words, list) and all(isinstance(one, list) and len(one) == 2 for one in words)
    if not pairs or not all(isinstance(word, str) and isinstance(places, list) and places for word, places in words):
        return False
    every = [place for _, places in words for place in places]
    return all(_is_whole(place) and 0 <= place < n for place in every) and len(set(every)) == len(every)


def _deep(info: dict[str, Any]) -> bool:
    """Are lists in lists deeper than DEPTH?"""
    level: list[Any] = [info]
    for _ in range(DEPTH):
        level = [
            inner for one in level if isinstance(one, dict | list) for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_prediction(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value)
    return pairs and all(isinstance(word, str) and _is_number(probability) for word, probability in value)


def _is_rollout(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and isinstance(value.get("convention"), str))


DEPTH = 32  # lists in lists that facts may have
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# What those who show a result rely on, each with its test. Methods may add facts of their own.
FACTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("model", "revision", "family", "task", "dtype", "quantization", "text", "pair", "paper"), _is_text),
    **dict.fromkeys(("method", "variant", "convention", "unit", "special_tokens", "score", "generated", "precision"), _is_text),
    **dict.fromkeys(("check", "tolerance"), lambda value: value is None or _is_number(value)),
    **dict.fromkeys(("gap", "precision_error"), _is_number),
    **dict.fromkeys(("query", "at_layer"), lambda value: value is None or _is_whole(value)),
    **dict.fromkeys(("options", "versions", "gaps", "seconds"), lambda value: value is None or isinstance(value, dict)),
    **dict.fromkeys(("notes", "input_ids"), lambda value: value is None or isinstance(value, list)),
    "layer": _is_whole,
    "query_token": lambda value: isinstance(value, str),
    "target": lambda value: value is None or isinstance(value, str | list) or _is_number(value),
    "causal": lambda value: value is None or isinstance(value, bool),
    "prediction": _is_prediction,
    "rollout": _is_rollout,
}


def _pandas() -> Any:
    return optional("pandas", "pandas", "pandas", what="tables", error=MixlensError)


def map_frame(scores: Map) -> pandas.DataFrame:
    depth, n, _ = scores.scores.shape
    layer, query, key = (axis.flatten().numpy() for axis in torch.meshgrid(*map(torch.arange, (depth, n, n)), indexing="ij"))
    tokens = list(scores.tokens)
    return _pandas().DataFrame(
        {
            "layer": layer,
            "query": query,
            "key": key,
            "query_token": [tokens[i] for i in query],
            "key_token": [tokens[i] for i in key],
            "score": scores.to_numpy().reshape(-1),
        }
    )


def attribution_frame(scores: Attribution) -> pandas.DataFrame:
    return _pandas().DataFrame({"position": range(len(scores.tokens)), "token": list(scores.tokens), "score": scores.to_numpy()})
