"""Results as numbers: sums, differences, multiples, parts and shares of Attributions and Maps of the same tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, TypeVar

from torch import Tensor

from ..base.errors import InputError, is_integer, nearest
from ..types import Attribution, Map
from .aggregate import words_at
from .by_word import tokens_meant

Kind = TypeVar("Kind", Attribution, Map)
# What a sum says of itself where both sides say the same. What one method says of its own scores (gaps, shares) is
# not said.
SHARED = (
    *(
        "model",
        "revision",
        "family",
        "task",
        "dtype",
        "quantization",
        "device",
        "versions",
        "text",
        "pair",
        "input_ids",
    ),
    *("causal", "unit", "special_tokens", "prediction", "layer", "at_layer", "score", "target"),
)
PLACE = ("query", "query_token")
TOLD = ("method", "variant", "options", "model", "text", "pair", "target", "score", *PLACE, "layer", "at_layer")
# Between results of one method, what tells them apart: the first of these that differs.
TELLING = ("target", "score", "model", "variant", "options", "query_token", "layer", "at_layer")
NORMS = ("share", "max", "length")


# --- sums and multiples -----------------------------------------------------------------------------------------------


def combined(left: Kind, right: Any, sign: int) -> Kind:
    """left + sign right, score by score, of one kind and of the same tokens; `.info["arithmetic"]` says what each
    side is."""
    if type(right) is not type(left):
        kind = type(left).__name__
        raise InputError(
            f"{kind} and {type(right).__name__} do not add up: give two of the same kind, or {kind} * number."
        )
    a, b = left.tokens, right.tokens
    if len(a) != len(b):
        advice = "For the mean over different texts use mixlens.mean(..., by='word')"
        raise InputError(f"the two are not of the same tokens: {len(a)} and {len(b)} tokens. {advice}.")
    if a != b:
        place = next(i for i in range(len(a)) if a[i] != b[i])
        raise InputError(f"the two are not of the same tokens: at {place} they are {a[place]!r} and {b[place]!r}.")
    if left.scores.shape != right.scores.shape:
        raise InputError(f"the two have {len(left.scores)} and {len(right.scores)} layers.")
    word = "+" if sign > 0 else "-"
    differ = ["method"] if left.method != right.method else []
    differ += [key for key in TOLD if key != "method" and left.info.get(key) != right.info.get(key)]
    telling = next((key for key in TELLING if key in differ), "")
    alike = left.method == right.method and telling
    labels = [f"{one.method} ({one.info.get(telling)})" if alike else one.method for one in (left, right)]
    facts = {"operation": word, "left": _told(left), "right": _told(right), "differ": differ}
    return replace(
        left,
        scores=left.scores + sign * right.scores.to(left.scores.device),
        method=f" {word} ".join(labels),
        words=left.words if left.words == right.words else None,
        info={**_shared(left.info, right.info), "signed": True, "arithmetic": facts},
    )


def _told(result: Attribution | Map) -> dict[str, Any]:
    """What a result is of, for the info of what is made of it."""
    facts = {key: value for key in TOLD if (value := result.info.get(key)) is not None} | {"method": result.method}
    return {**facts, "arithmetic": result.info["arithmetic"]} if "arithmetic" in result.info else facts


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that hold of both. A target stands with its score, a token with its position."""

    def equal(a: Any, b: Any) -> bool:
        return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)

    same = {key: one[key] for key in SHARED if key in one and key in other and equal(one[key], other[key])}
    if all(key in one and one[key] == other.get(key) for key in PLACE):
        same |= {key: one[key] for key in PLACE}
    if "score" not in same:
        same.pop("target", None)
    return same


def multiplied(result: Kind, factor: Any) -> Kind:
    """result * factor, for a finite number."""
    if not isinstance(factor, Real) or isinstance(factor, bool) or not math.isfinite(factor):
        raise InputError(f"a result is multiplied by a finite number, not by {factor!r:.40}.")
    facts = {"operation": "*", "factor": float(factor), "left": _told(result)}
    name = f"-{result.method}" if factor == -1 else f"{factor:g} * {result.method}"
    info = {**_shared(result.info, result.info), "signed": True, "arithmetic": facts}
    return replace(result, scores=result.scores * float(factor), method=name, info=info)


def divided(result: Kind, divisor: Any) -> Kind:
    """result / divisor, for a finite number other than 0."""
    if not isinstance(divisor, Real) or isinstance(divisor, bool) or not divisor:
        raise InputError(
            f"a result is divided by a number other than 0, not by {divisor!r:.40}. For shares use .normalize()."
        )
    return multiplied(result, 1 / float(divisor))


# --- parts ------------------------------------------------------------------------------------------------------------


def part(result: Kind, index: Any) -> Any:
    """One score (`a[2]`, `a["wonderful"]`: a token, or the sum over a word's tokens), or a part of a result:
    `a[2:5]`, or a list of tokens and words, `a[["dull", "wonderful"]]`. A map is cut in both axes."""
    if isinstance(index, slice):
        for end in (index.start, index.stop, index.step):
            if end is not None and not is_integer(end):
                raise InputError(f"a slice is of positions, such as a[2:5], not of {end!r:.40}. A word is a['word'].")
        return _cut(result, list(range(*index.indices(len(result.tokens)))))
    if isinstance(index, list | tuple):
        return _cut(result, sorted({place for one in index for place in tokens_meant(result, one)}))
    if isinstance(result, Map):
        raise InputError("of a map a slice or a list is taken, such as m[2:5]; one row is m.readout(token).")
    return float(result.scores[list(tokens_meant(result, index))].sum())


def _cut(result: Kind, positions: list[int]) -> Kind:
    """The result at these positions alone: the query by its new number, where it is still there. What holds of all
    tokens alone is left out."""
    if not positions:
        raise InputError(f"no token is left: there are {len(result.tokens)}, 0 to {len(result.tokens) - 1}.")
    whole = ("completeness", "input_ids", "prediction_tokens", "distribution", *PLACE)
    info = {key: value for key, value in result.info.items() if key not in whole and not isinstance(value, Tensor)}
    query = result.info.get("query")
    if query in positions:
        info |= {key: result.info[key] for key in PLACE if key in result.info} | {"query": positions.index(query)}
    info["part"] = {"positions": positions, "of": len(result.tokens)}
    scores = result.scores[..., positions]
    return replace(
        result,
        scores=scores[..., positions, :] if isinstance(result, Map) else scores,
        tokens=tuple(result.tokens[i] for i in positions),
        special=tuple(result.special[i] for i in positions) if result.special else (),
        words=words_at(result.words, positions),
        info=info,
    )


# --- shares -----------------------------------------------------------------------------------------------------------


def normalized(result: Kind, how: str) -> Kind:
    """Scores divided by the sum of their sizes ("share"), by the largest size ("max"), or by their length ("length"):
    of an attribution as a whole, of a map row by row. Signs stay; what is 0 throughout stays 0."""
    if not isinstance(how, str) or how not in NORMS:
        raise InputError(f"unknown normalization {how!r}. {nearest(str(how), NORMS)}")
    sizes = result.scores.abs()
    total = sizes.sum(-1) if how == "share" else sizes.amax(-1) if how == "max" else sizes.norm(dim=-1)
    scores = result.scores / total.where(total > 0, total.new_ones(()))[..., None]
    left_out = ("completeness", "distribution", "rollout")  # they are of the scores as they were
    info = {key: value for key, value in result.info.items() if key not in left_out}
    return replace(result, scores=scores, info={**info, "normalized": how})
