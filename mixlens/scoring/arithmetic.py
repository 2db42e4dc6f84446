"""Results as numbers: sums, differences, multiples, parts and shares of Attributions and Maps of the same tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeVar

from torch import Tensor

from ..base.errors import InputError, is_integer, nearest
from ..types import Attribution, Map
from .aggregate import find, words_at

Kind = TypeVar("Kind", Attribution, Map)
Item = TypeVar("Item")
# What a sum says of itself where both sides say the same. What one method says of its own scores (gaps, shares) is not said.
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
        "causal",
    ),
    *("unit", "special_tokens", "prediction", "layer", "at_layer", "score", "target"),
)
PLACE = ("query", "query_token")
TOLD = (
    "method",
    "variant",
    "options",
    "model",
    "text",
    "pair",
    "target",
    "score",
    "query",
    "query_token",
    "layer",
    "at_layer",
)
TELLING = (
    "target",
    "score",
    "model",
    "variant",
    "options",
    "query_token",
    "layer",
    "at_layer",
)  # between results of one method
NORMS = ("share", "max", "length")


# --- sums and multiples -------------------------------------------------------------------------------------------------


def combined(left: Kind, right: Any, sign: int) -> Kind:
    """left + sign right, score by score, of one kind and of the same tokens; `.info["arithmetic"]` says what each side is."""
    other = _same_kind(left, right)
    word = "+" if sign > 0 else "-"
    scores = left.scores + sign * other.scores.to(left.scores.device)
    facts = {"operation": word, "left": _told(left), "right": _told(other), "differ": _differences(left, other)}
    return replace(
        left,
        scores=scores,
        method=f" {word} ".join(_labels(left, other, facts["differ"])),
        words=left.words if left.words == other.words else None,
        info={**_shared(left.info, other.info), "signed": True, "arithmetic": facts},
    )


def _same_kind(left: Kind, right: Any) -> Kind:
    if type(right) is not type(left):
        kind = type(left).__name__
        raise InputError(
            f"{kind} and {type(right).__name__} do not add up: give two of the same kind, or {kind} * number."
        )
    if left.tokens != right.tokens:
        raise InputError(f"the two are not of the same tokens: {_first_difference(left.tokens, right.tokens)}.")
    if left.scores.shape != right.scores.shape:
        raise InputError(f"the two have {len(left.scores)} and {len(right.scores)} layers.")
    other: Kind = right
    return other


def _first_difference(one: Sequence[str], other: Sequence[str]) -> str:
    """Where two lists of tokens part."""
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} tokens. For the mean over different texts use mixlens.mean(..., by='word')"
    place = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return f"at {place} they are {one[place]!r} and {other[place]!r}"


def _told(result: Attribution | Map) -> dict[str, Any]:
    """What a result is of, for the info of what is made of it."""
    facts = {key: value for key in TOLD if (value := result.info.get(key)) is not None}
    return {**facts, "method": result.method, **_earlier(result.info)}


def _earlier(info: Mapping[str, Any]) -> dict[str, Any]:
    return {"arithmetic": info["arithmetic"]} if "arithmetic" in info else {}


def _differences(left: Attribution | Map, right: Attribution | Map) -> list[str]:
    """The facts in which the two differ."""
    named = ["method"] if left.method != right.method else []
    return named + [key for key in TOLD if key != "method" and left.info.get(key) != right.info.get(key)]


def _labels(left: Attribution | Map, right: Attribution | Map, differ: Any) -> list[str]:
    """The methods; where they are the same, with the first thing that differs."""
    key = next((key for key in TELLING if key in differ), None)
    if left.method != right.method or key is None:
        return [left.method, right.method]
    return [f"{one.method} ({one.info.get(key)})" for one in (left, right)]


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that hold of both. A target stands with its score, a token with its position."""
    same = {key: one[key] for key in SHARED if _has_both(one, other, key) and _equal(one[key], other[key])}
    same |= _shared_place(one, other)
    if "score" not in same:
        same.pop("target", None)
    return same


def _has_both(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    return key in one and key in other


def _shared_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The position and its token, where both are the same."""
    same = all(key in one and one[key] == other.get(key) for key in PLACE)
    return {key: one[key] for key in PLACE} if same else {}


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other)


def multiplied(result: Kind, factor: Any) -> Kind:
    """result * factor, for a finite number."""
    if not _is_number(factor) or not math.isfinite(factor):
        raise InputError(f"a result is multiplied by a finite number, not by {factor!r:.40}.")
    facts = {"operation": "*", "factor": float(factor), "left": _told(result)}
    name = f"-{result.method}" if factor == -1 else f"{factor:g} * {result.method}"
    info = {**_shared(result.info, result.info), "signed": True, "arithmetic": facts}
    return replace(result, scores=result.scores * float(factor), method=name, info=info)


def divided(result: Kind, divisor: Any) -> Kind:
    """result / divisor, for a finite number other than 0."""
    if not _is_number(divisor) or not divisor:
        raise InputError(
            f"a result is divided by a number other than 0, not by {divisor!r:.40}. For shares use .normalize()."
        )
    return multiplied(result, 1 / float(divisor))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


# --- parts --------------------------------------------------------------------------------------------------------------


def part(result: Kind, index: Any) -> Any:
    """One score (`a[2]`, `a["wonderful"]`: a token, or the sum over a word's tokens), or a part of a result: `a[2:5]`, or a list
    of tokens and words, `a[["dull", "wonderful"]]`. A map is cut in both axes."""
    if isinstance(index, slice):
        return _cut(result, list(range(*_whole(index).indices(len(result.tokens)))))
    if isinstance(index, list | tuple):
        return _cut(result, sorted({place for one in index for place in places(result, one)}))
    if isinstance(result, Map):
        raise InputError("of a map a slice or a list is taken, such as m[2:5]; one row is m.readout(token).")
    return float(result.scores[list(places(result, index))].sum())


def _whole(index: slice) -> slice:
    for end in (index.start, index.stop, index.step):
        if end is not None and not is_integer(end):
            raise InputError(f"a slice is of positions, such as a[2:5], not of {end!r:.40}. A word is a['word'].")
    return index


def places(result: Attribution | Map, name: Any) -> tuple[int, ...]:
    """The positions of a token or a word: an index, a word that occurs once, or a token that does."""
    found = [positions for word, positions in result.words or () if word == name]
    if isinstance(name, str) and len(found) == 1:
        return found[0]
    _refuse_repeated(name, found)
    return (find(result.tokens, name),)


def _refuse_repeated(name: Any, found: Sequence[tuple[int, ...]]) -> None:
    if len(found) > 1:
        raise InputError(
            f"the word {name!r} occurs {len(found)} times, at {[one[0] for one in found]}. Say which one by an index."
        )


def _cut(result: Kind, positions: list[int]) -> Kind:
    """The result at these positions alone."""
    if not positions:
        raise InputError(f"no token is left: there are {len(result.tokens)}, 0 to {len(result.tokens) - 1}.")
    scores = result.scores[..., positions]
    return replace(
        result,
        scores=scores[..., positions, :] if isinstance(result, Map) else scores,
        tokens=_at(result.tokens, positions),
        special=_at(result.special, positions) if result.special else (),
        words=words_at(result.words, positions),
        info=_info_of_part(result, positions),
    )


def _at(values: Sequence[Item], positions: Sequence[int]) -> tuple[Item, ...]:
    return tuple(values[i] for i in positions)


def _info_of_part(result: Attribution | Map, positions: list[int]) -> dict[str, Any]:
    """The facts of a part: the query by its new number, where it is still there. What holds of all tokens alone is left out."""
    whole = ("completeness", "input_ids", "prediction_tokens", "distribution", *PLACE)
    facts = {key: value for key, value in result.info.items() if key not in whole and not isinstance(value, Tensor)}
    return {
        **facts,
        **_query_of_part(result.info, positions),
        "part": {"positions": positions, "of": len(result.tokens)},
    }


def _query_of_part(info: Mapping[str, Any], positions: list[int]) -> dict[str, Any]:
    """The query by its number in the part; nothing where it is not in it."""
    query = info.get("query")
    if query not in positions:
        return {}
    return {key: info[key] for key in PLACE if key in info} | {"query": positions.index(query)}


# --- shares -------------------------------------------------------------------------------------------------------------


def normalized(result: Kind, how: str) -> Kind:
    """Scores divided by the sum of their sizes ("share"), by the largest size ("max"), or by their length ("length"): of an
    attribution as a whole, of a map row by row. Signs stay; what is 0 throughout stays 0."""
    if not isinstance(how, str) or how not in NORMS:
        raise InputError(f"unknown normalization {how!r}. {nearest(str(how), NORMS)}")
    sizes = result.scores.abs()
    total = {
        "share": lambda: sizes.sum(-1),
        "max": lambda: sizes.amax(-1),
        "length": lambda: result.scores.norm(dim=-1),
    }[how]()
    scores = result.scores / total.where(total > 0, total.new_ones(()))[..., None]
    left_out = ("completeness", "distribution", "rollout")  # they are of the scores as they were
    info = {key: value for key, value in result.info.items() if key not in left_out}
    return replace(result, scores=scores, info={**info, "normalized": how})
