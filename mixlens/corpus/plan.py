"""What a corpus run asks of every row, checked before a row is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..asking import MethodRequest
from ..errors import InputError, is_text, methods_within, nearest
from ..model.model import Model
from ..targets import SCORES, output_id
from .rows import LIMITS

OWN = (  # columns of every run; a carried column may not have the name of one
    *("row", "id", "text", "pair", "input_ids", "tokens", "starts", "ends", "segments", "query"),
    *("prediction", "probability", "target", "gap", "seconds"),
)
RATIO = "mixing_ratio:"  # then the method
DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Plan:
    """What is asked of every row."""

    methods: tuple[str, ...]
    target: Any = "predicted"
    foil: str | int | None = None
    score: str | None = None
    query: int | str | None = None
    maps: str | None = None  # the number type maps are kept in
    batch_tokens: int | None = None
    columns: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (column, type) of carried columns that are no text


def plan_of(
    methods: Any, target: Any, foil: Any, score: Any, query: Any, maps: Any, batch_tokens: Any, columns: Sequence[str]
) -> Plan:
    """The plan that the arguments of `run` mean."""
    if not isinstance(methods, str | Sequence) or not isinstance(columns, str | Sequence):
        raise InputError("methods and columns are lists of names.")
    names = _method_names(methods)
    number_type = _number_type(maps)
    if batch_tokens is not None and not is_count(batch_tokens):
        raise InputError(f"batch_tokens must be at least 1, not {batch_tokens!r}.")
    _refuse_words({"score": score, "foil": foil, "query": query, "target": target})
    if score is not None and score not in SCORES:
        raise InputError(f"unknown score {score!r}. {nearest(score, SCORES)}")
    _refuse_half_characters([*names, score, foil, query, *(target if isinstance(target, tuple) else (target,))])
    carried = tuple([columns] if isinstance(columns, str) else columns)
    _refuse_columns(carried, names)
    return Plan(tuple(names), target, foil, score, query, number_type, batch_tokens, carried)


def is_count(value: Any) -> bool:
    """A whole number of at least 1; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _method_names(methods: str | Sequence[Any]) -> list[str]:
    written = [name.strip() for name in methods.split(",")] if isinstance(methods, str) else list(methods)
    names = [name for name in written if name]
    methods_within(names, LIMITS.methods)
    if not all(isinstance(name, str) for name in names):
        raise InputError("methods are names, as `mixlens methods` lists them.")
    if len(set(names)) != len(names):
        raise InputError(f"a method is named twice: {', '.join(sorted({m for m in names if names.count(m) > 1}))}.")
    return names


def _number_type(maps: Any) -> str | None:
    name = "float32" if maps is True else maps or None
    if name is not None and name not in DTYPES:
        raise InputError(f"maps are kept as {' or '.join(DTYPES)}, not {maps!r}.")
    return name


def _refuse_words(options: dict[str, Any]) -> None:
    """Options that are words or numbers; a target may be a pair of them."""
    for name, value in options.items():
        parts = value if name == "target" and isinstance(value, tuple) and len(value) == 2 else (value,)
        kinds = str | None if name == "score" else str | int | None
        if not all(isinstance(part, kinds) and not isinstance(part, bool) for part in parts):
            raise InputError(f"{name} is a word{'' if name == 'score' else ' or a number'}, not {value!r:.80}.")


def _refuse_half_characters(words: Iterable[Any]) -> None:
    for word in words:
        if isinstance(word, str) and not is_text(word):
            raise InputError(f"{word!r} holds half a character (a lone surrogate), which is no text.")


def _refuse_columns(columns: Sequence[Any], methods: Sequence[str]) -> None:
    for name in columns:
        taken = name in OWN or name in methods
        if not isinstance(name, str) or taken or name.startswith(RATIO) or columns.count(name) > 1:
            raise InputError(f"the column {name!r} is named twice, or is one that every run writes ({', '.join(OWN)}).")
        if not name.isprintable() or not is_text(name):
            raise InputError(f"{name!r} is no name of a column.")


def refuse_target(model: Model, plan: Plan, requests: dict[str, MethodRequest]) -> None:
    """A target, a foil or a score that no row could have is refused."""
    specific = [written for written, request in requests.items() if request.class_specific]
    if not specific:
        if plan.target != "predicted" or plan.foil is not None or plan.score is not None:
            raise InputError("target, foil and score are for methods that explain a class or a word, and none of these does.")
        return
    if model.task == "base":
        raise InputError(f"{model.name!r} was loaded without a head, so {specific[0]!r} has no prediction to explain.")
    if model.task != "question-answering":
        for role, value in (("target", plan.target), ("foil", plan.foil)):
            if value not in (None, "predicted", "gold"):
                output_id(model, value, role)
