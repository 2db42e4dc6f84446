"""What a figure says about its results: names of rows, titles, the meaning of the colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...answers.names import NAMES
from ...base.errors import printable
from ...types import Attribution, Result
from ..heading import rollout_name, unusual_variant
from ..tokens import shown

TELLS_APART = (("at_layer", "layer "), ("layer", "layer "), ("variant", ""), ("target", ""))  # fact, word before it


def array_of(result: Result) -> NDArray[np.float64]:
    """The scores of a result as a numpy array of float64."""
    return result.scores.detach().double().cpu().numpy()


def names_of(results: Sequence[Result]) -> list[str]:
    """The methods of the results; where methods repeat, the methods (unless all are of one) with the first fact that
    tells the results apart: a layer after which a map ends is counted from 1."""
    methods = [result.method for result in results]
    if len(set(methods)) == len(methods):
        return methods
    for key, word in TELLS_APART:
        values: list[Any] = [result.info.get(key) for result in results]
        if None not in values and len(set(zip(methods, map(str, values), strict=True))) == len(results):
            names = [f"{word}{value + 1 if key == 'layer' else value}" for value in values]
            pairs = zip(methods, names, strict=True)
            return names if len(set(methods)) == 1 else [f"{method} {name}" for method, name in pairs]
    return [f"{method} {number + 1}" for number, method in enumerate(methods)]


def researcher_name(name: str) -> str:
    """A method as researchers call it; any other name as it is."""
    return NAMES[name].name if name in NAMES else name


def target_of(results: Sequence[Result]) -> str:
    """What all results speak for; nothing where they differ or speak for nothing."""
    targets = {str(result.info.get("target") or "") for result in results}
    return printable(targets.pop().replace(" - ", " − ")) if len(targets) == 1 else ""


def title_of(result: Result, *more: str, method: bool = True) -> str:
    """The title of a result: method, variant, rollout, layer (where these are not the usual ones), target or position,
    and `more`. A convention that is called as the method is its own."""
    info, of_row = result.info, isinstance(result, Attribution)
    rollout, rolled = rollout_name(info), info.get("rollout") or {}
    if rollout and rolled.get("convention") == result.method:
        rollout = rollout.removesuffix(f" {result.method}")
    layer, at_layer = info.get("layer") if of_row else None, info.get("at_layer")
    explained = f"at {shown(info['query_token'])}" if of_row and "query_token" in info else None
    parts = [
        researcher_name(result.method) if method else None,
        unusual_variant(info),
        rollout,
        None if layer is None else f"layer {layer + 1}",
        None if at_layer is None else f"input of layer {at_layer + 1}",
        explained if info.get("target") is None else score_name(info),
    ]
    return printable(" · ".join([*(part for part in parts if part is not None), *more]))


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
