"""What a figure says about its results: names of rows, titles, the meaning of the colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...answers.names import NAMES
from ...base.errors import printable
from ...types import Attribution, Result
from ..heading import rollout_name, unusual_variant
from ..tokens import shown

TELLS_APART = (
    ("at_layer", "layer"),
    ("layer", "layer"),
    ("variant", ""),
    ("target", ""),
)  # key of info, word before its value


def array_of(result: Result) -> NDArray[np.float64]:
    """The scores of a result as a numpy array of float64."""
    return result.scores.detach().double().cpu().numpy()


def names_of(results: Sequence[Result]) -> list[str]:
    """The methods of the results; where methods repeat, the methods with what tells the results apart."""
    methods = [result.method for result in results]
    if len(set(methods)) == len(methods):
        return methods
    longer = (_longer_names(results, key, word) for key, word in TELLS_APART)
    return next(filter(None, longer), [f"{method} {number + 1}" for number, method in enumerate(methods)])


def _longer_names(results: Sequence[Result], key: str, word: str) -> list[str]:
    """The methods with this fact of each result; nothing where the fact does not tell the results apart."""
    values = [result.info.get(key) for result in results]
    if None in values or not _differ(results, values):
        return []
    return _with_methods(results, [f"{word} {_counted(key, value)}" for value in values])


def _differ(results: Sequence[Result], values: Sequence[Any]) -> bool:
    """Whether no two results have the same method and the same value."""
    pairs = {(result.method, str(value)) for result, value in zip(results, values, strict=True)}
    return len(pairs) == len(results)


def _with_methods(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """Names with the method before them, where the results are not all of one method."""
    if len({result.method for result in results}) == 1:
        return list(map(str.strip, names))
    return [f"{result.method} {name}" for result, name in zip(results, names, strict=True)]


def _counted(key: str, value: Any) -> Any:
    """A fact as a name says it: a layer after which a map ends is counted from 1."""
    return int(value) + 1 if key == "layer" else value


def researcher_name(name: str) -> str:
    """A method as researchers call it; any other name as it is."""
    return NAMES[name].name if name in NAMES else name


def target_of(results: Sequence[Result]) -> str:
    """What all results speak for; nothing where they differ or speak for nothing."""
    targets = {str(result.info.get("target") or "") for result in results}
    return printable(targets.pop().replace(" - ", " − ")) if len(targets) == 1 else ""


def title_of(result: Result, *more: str, method: bool = True) -> str:
    """The title of a result: method, variant, rollout, layer, target or position, and `more`."""
    parts = [researcher_name(result.method)] if method else []
    return printable(" · ".join([*parts, *_computed(result), *_explained(result), *more]))


def _computed(result: Result) -> Iterator[str]:
    """How the result was computed, where that is not the usual way."""
    info = result.info
    parts = [unusual_variant(info), _rollout_part(result), _layer_part(result), _input_part(info)]
    return (part for part in parts if part is not None)


def _rollout_part(result: Result) -> str | None:
    """How the layers were put together; a convention that is called as the method is its own."""
    name, rolled = rollout_name(result.info), result.info.get("rollout") or {}
    return name.removesuffix(f" {result.method}") if name and rolled.get("convention") == result.method else name


def _layer_part(result: Result) -> str | None:
    """The layer after which an attribution was read."""
    layer = result.info.get("layer") if isinstance(result, Attribution) else None
    return None if layer is None else f"layer {layer + 1}"


def _input_part(info: Mapping[str, Any]) -> str | None:
    """The layer at whose input a method attributes."""
    return None if info.get("at_layer") is None else f"input of layer {info['at_layer'] + 1}"


def _explained(result: Result) -> Iterator[str]:
    """What the result explains: a target, or a position."""
    info = result.info
    if info.get("target") is not None:
        yield score_name(info)
    elif isinstance(result, Attribution) and "query_token" in info:
        yield f"at {shown(info['query_token'])}"


def score_name(info: Mapping[str, Any]) -> str:
    """What is explained: "logit of were − was"."""
    name = f"{str(info.get('score', 'score')).replace('_', ' ')} of {info['target']}"
    return name.replace(" - ", " − ")


def meaning_of(results: Sequence[Result], signed: bool, scale: str = "all", each: str = "row") -> str:
    """The unit of the colours: a share, or the score that is explained; or the largest score of `each` row or map."""
    if scale == "own":
        return f"of the largest in each {each}"
    if not signed and all(map(is_share, results)):
        return "share"
    explained = {score_name(result.info) for result in results if result.info.get("target") is not None}
    return printable(explained.pop()) if len(explained) == 1 else "score"


def is_share(result: Result) -> bool:
    """Whether the scores of every row sum to 1."""
    return bool(np.allclose(array_of(result).sum(-1), 1, atol=1e-3))
