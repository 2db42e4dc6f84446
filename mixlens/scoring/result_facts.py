"""What a file says of a result: its header, and the checks by which a file is refused that no result could have written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..base.errors import is_integer
from ..types import Attribution, HeadMaps, Map, Result
from .provenance import public_name

Saved = Result | HeadMaps
KINDS: dict[str, type[Map] | type[HeadMaps] | type[Attribution]] = {
    "Map": Map,
    "HeadMaps": HeadMaps,
    "Attribution": Attribution,
}
SHAPES: dict[type, tuple[str, ...]] = {  # the axes of scores
    Map: ("layer", "token", "token"),
    HeadMaps: ("layer", "head", "token", "token"),
    Attribution: ("token",),
}
SCHEMA = 1
Check = Callable[[Any], bool]


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
    return {
        key: public_name(value) if key == "model" and isinstance(value, str) else value for key, value in info.items()
    }


class WrongError(ValueError):
    """A statement in a file that no result makes."""


def result_of(header: dict[str, Any], tensors: dict[str, Tensor]) -> Saved:
    """The result that a file describes. Every part is checked first, so that the code which shows it can rely on it."""
    kind, scores, tokens, words = KINDS[header["kind"]], tensors["scores"], header["tokens"], header["words"]
    require(_are_texts(tokens) and bool(tokens), "its tokens are no texts")
    _check_scores(scores, kind, len(tokens))
    require(isinstance(header["method"], str), "its method is no name")
    require(_are_flags(header["special"], len(tokens)), "its list of special tokens does not fit its tokens")
    require(words is None or _are_words(words, len(tokens)), "its words do not fit its tokens")
    info = _info(header["info"], tensors)
    groups = None if words is None else tuple((word, tuple(positions)) for word, positions in words)
    return kind(scores, tuple(tokens), header["method"], info, tuple(header["special"]), groups)


def _check_scores(scores: Tensor, kind: type[Saved], n: int) -> None:
    """[layer, token, token] of a map, [token] of an attribution, ...; floating-point numbers."""
    axes = SHAPES[kind]
    fits = scores.dim() == len(axes) and scores.numel() > 0 and set(scores.shape[-2:]) == {n}
    shape = f"[{', '.join(axes)}]"
    require(fits, f"its scores have the shape {list(scores.shape)}, not {shape} of its {n} tokens")
    require(scores.dtype in NUMBERS, f"its scores are {str(scores.dtype).removeprefix('torch.')} numbers")
    require(not bool(scores.isnan().all()), "none of its scores is a number")


def _info(facts: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """`.info` of a result: the facts of the header and those that are tensors, each checked by FACTS."""
    require(isinstance(facts, dict) and not _is_deep(facts), "its facts are not written as a result's are")
    info = facts | _tensor_facts(tensors)
    for name, value in info.items():
        require(FACTS.get(name, _is_anything)(value), f"its fact {name!r:.40} has a value that no result has")
    _check_query(info)
    if "prediction" in info:
        info["prediction"] = list(map(tuple, info["prediction"]))
    return info


def _tensor_facts(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The facts that are tensors, by their names; a tensor that is neither a fact nor the scores is refused."""
    names = [key for key in tensors if key != "scores"]
    others = [key for key in names if not key.startswith("info.")]
    require(not others, f"it holds {others[:1]}, which no result has")
    return {key.removeprefix("info."): tensors[key] for key in names}


def _check_query(info: Mapping[str, Any]) -> None:
    """A token comes with its position, a target with its score."""
    if "query_token" in info:
        require(isinstance(info.get("query"), int), "its facts name a token and no position")
        require(
            info.get("target") is None or isinstance(info.get("score"), str), "its facts name a target and no score"
        )


def require(condition: bool, fault: str) -> None:
    if not condition:
        raise WrongError(fault)


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
    return all(_is_whole(position) and 0 <= position < n for position in positions) and len(set(positions)) == len(
        positions
    )


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
