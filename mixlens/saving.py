"""Results to and from files and tables. safetensors only: nothing that is loaded can run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import MixlensError, ResultError, is_integer
from .files import write
from .optional import optional
from .types import Attribution, Map, Result

if TYPE_CHECKING:
    import pandas

KINDS: dict[str, type[Map] | type[Attribution]] = {"Map": Map, "Attribution": Attribution}
SHAPES: dict[type, tuple[str, ...]] = {Map: ("layer", "token", "token"), Attribution: ("token",)}  # the axes of scores
SCHEMA = 1
Check = Callable[[Any], bool]


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write one file with the scores and all facts about them. The file is whole, or it is not there."""
    place = _checked_place(path)
    metadata = {"mixlens": json.dumps(_header(result), ensure_ascii=False)}
    tensors = {f"info.{key}": value.contiguous() for key, value in result.info.items() if isinstance(value, Tensor)}
    content = {"scores": result.scores.cpu().contiguous(), **tensors}
    try:
        write(place, lambda beside: save_file(content, beside, metadata=metadata))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResultError(f"the result could not be written to {str(place)!r}: {reason}.") from error


def _header(result: Result) -> dict[str, Any]:
    """All that a file says of a result besides tensors."""
    return {
        "kind": type(result).__name__,
        "schema": SCHEMA,
        "tokens": list(result.tokens),
        "method": result.method,
        "info": {key: value for key, value in result.info.items() if not isinstance(value, Tensor)},
        "special": list(result.special),
        "words": result.words,
    }


def _checked_place(path: str | os.PathLike[str]) -> Path:
    place = Path(path)
    if place.suffix != ".safetensors":
        raise ResultError(
            f"a result is saved as .safetensors, not {place.name!r}. For a table use .to_pandas(), on the command line --json."
        )
    if not place.parent.is_dir():
        raise ResultError(f"no folder {str(place.parent)!r} to save in.")
    return place


def load_result(path: str | os.PathLike[str]) -> Any:
    """The Map or Attribution that `.save` wrote, bit for bit. A file with anything that `.save` does not write is refused.

    A .json file is the answer that `Why.to_json` wrote.
    """
    place = Path(path)
    if not place.is_file():
        raise ResultError(f"no file {str(place)!r}.")
    if place.suffix == ".json":
        return _answer(place)
    try:
        return _result(*_content(place))
    except MixlensError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        fault = str(error) if isinstance(error, _WrongError) else type(error).__name__
        raise ResultError(f"{place.name!r} is not a mixlens result (or is damaged): {fault}.") from error


def _answer(place: Path) -> Any:
    """The `Why` of a JSON file."""
    from .why import from_dict

    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        raise ResultError(f"{place.name!r} is not JSON (or is damaged).") from None
    return from_dict(content)


def _content(place: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, unchecked but for the schema."""
    with safe_open(place, framework="pt") as file:
        header = json.loads((file.metadata() or {})["mixlens"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    if header["schema"] != SCHEMA:
        raise ResultError(f"{place.name!r} has schema {header['schema']}; this mixlens reads {SCHEMA}.")
    return header, tensors


class _WrongError(ValueError):
    """A statement in a file that no result makes."""


def _result(header: dict[str, Any], tensors: dict[str, Tensor]) -> Result:
    """The result that a file describes. Every part is checked first, so that the code which shows it can rely on it."""
    kind, scores, tokens, words = KINDS[header["kind"]], tensors["scores"], header["tokens"], header["words"]
    _require(_are_texts(tokens) and bool(tokens), "its tokens are no texts")
    _check_scores(scores, kind, len(tokens))
    _require(isinstance(header["method"], str), "its method is no name")
    _require(_are_flags(header["special"], len(tokens)), "its list of special tokens does not fit its tokens")
    _require(words is None or _are_words(words, len(tokens)), "its words do not fit its tokens")
    info = _info(header["info"], tensors)
    groups = None if words is None else tuple((word, tuple(positions)) for word, positions in words)
    return kind(scores, tuple(tokens), header["method"], info, tuple(header["special"]), groups)


def _check_scores(scores: Tensor, kind: type[Map] | type[Attribution], n: int) -> None:
    """[layer, token, token] of a map, [token] of an attribution; floating-point numbers."""
    axes = SHAPES[kind]
    fits = scores.dim() == len(axes) and len(scores) > 0 and set(scores.shape[-2:]) == {n}
    shape = f"[{', '.join(axes)}]"
    _require(fits, f"its scores have the shape {list(scores.shape)}, not {shape} of its {n} tokens")
    _require(scores.dtype in NUMBERS, f"its scores are {str(scores.dtype).removeprefix('torch.')} numbers")


def _info(facts: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """`.info` of a result: the facts of the header and those that are tensors, each checked by FACTS."""
    _require(isinstance(facts, dict) and not _is_deep(facts), "its facts are not written as a result's are")
    info = facts | _tensor_facts(tensors)
    for name, value in info.items():
        _require(FACTS.get(name, _is_anything)(value), f"its fact {name!r:.40} has a value that no result has")
    _check_query(info)
    if "prediction" in info:
        info["prediction"] = list(map(tuple, info["prediction"]))
    return info


def _tensor_facts(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The facts that are tensors, by their names; a tensor that is neither a fact nor the scores is refused."""
    names = [key for key in tensors if key != "scores"]
    others = [key for key in names if not key.startswith("info.")]
    _require(not others, f"it holds {others[:1]}, which no result has")
    return {key.removeprefix("info."): tensors[key] for key in names}


def _check_query(info: Mapping[str, Any]) -> None:
    """A token comes with its position, a target with its score."""
    if "query_token" in info:
        _require(isinstance(info.get("query"), int), "its facts name a token and no position")
        _require(info.get("target") is None or isinstance(info.get("score"), str), "its facts name a target and no score")


def _require(condition: bool, fault: str) -> None:
    if not condition:
        raise _WrongError(fault)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _are_flags(values: Any, n: int) -> bool:
    """True or False for each of n tokens, or for none of them."""
    return isinstance(values, list) and all(isinstance(value, bool) for value in values) and len(values) in (0, n)


def _are_pairs(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, list) and len(value) == 2 for value in values)


def _are_words(words: Any, n: int) -> bool:
    """Each word is a text with at least one position; no position belongs to two words."""
    if not _are_pairs(words) or not all(_is_word(*pair) for pair in words):
        return False
    return _are_positions([position for _, group in words for position in group], n)


def _are_positions(positions: list[Any], n: int) -> bool:
    """Are these different positions of a text of n tokens?"""
    return all(_is_whole(position) and 0 <= position < n for position in positions) and len(set(positions)) == len(positions)


def _is_word(word: Any, positions: Any) -> bool:
    return isinstance(word, str) and isinstance(positions, list) and bool(positions)


def _is_deep(facts: dict[str, Any]) -> bool:
    """Whether lists and dicts are nested more than DEPTH times."""
    level: list[Any] = [facts]
    for _ in range(DEPTH):
        level = list(chain.from_iterable(map(_inside, level)))
    return any(isinstance(value, dict | list) for value in level)


def _inside(value: Any) -> Iterable[Any]:
    """The values of a dict, the items of a list, nothing of anything else."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _is_anything(value: Any) -> bool:
    return True


def _is_whole(value: Any) -> bool:
    return is_integer(value) and abs(value) < 1 << 63


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_target(value: Any) -> bool:
    return isinstance(value, str | list) or _is_number(value)


def _is_prediction(value: Any) -> bool:
    return _are_pairs(value) and all(isinstance(word, str) and _is_number(probability) for word, probability in value)


def _is_rollout(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("convention"), str)


def _is_of(*types: type) -> Check:
    return lambda value: isinstance(value, types)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


DEPTH = 32  # levels of lists and dicts inside of the facts
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# The facts that the code which shows a result relies on, each with its check. A method may add others.
FACTS: dict[str, Check] = {
    **dict.fromkeys(
        ("model", "revision", "family", "task", "dtype", "quantization", "text", "pair", "paper"), _or_none(_is_text)
    ),
    **dict.fromkeys(("method", "variant", "convention", "unit", "special_tokens"), _or_none(_is_text)),
    **dict.fromkeys(("score", "generated", "precision"), _or_none(_is_text)),
    **dict.fromkeys(("check", "tolerance"), _or_none(_is_number)),
    **dict.fromkeys(("gap", "precision_error"), _is_number),
    **dict.fromkeys(("query", "at_layer"), _or_none(_is_whole)),
    **dict.fromkeys(("options", "versions", "gaps", "seconds"), _or_none(_is_of(dict))),
    **dict.fromkeys(("notes", "input_ids"), _or_none(_is_of(list))),
    "layer": _is_whole,
    "query_token": _is_text,
    "target": _or_none(_is_target),
    "causal": _or_none(_is_of(bool)),
    "prediction": _is_prediction,
    "rollout": _or_none(_is_rollout),
}


def _pandas() -> Any:
    return optional("pandas", "pandas", "pandas", what="tables", error=MixlensError)


def map_frame(scores: Map) -> pandas.DataFrame:
    """A table with one row per layer, query and key."""
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
    """A table with one row per token."""
    return _pandas().DataFrame({"position": range(len(scores.tokens)), "token": list(scores.tokens), "score": scores.to_numpy()})
