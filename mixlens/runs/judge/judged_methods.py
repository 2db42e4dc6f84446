"""The methods of `judge`: the groups "all" and "peers", names, functions of a trace, and scores that were made elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import InputError
from ...metrics.foreign import Scorer
from ...scoring.attributions import known as attributions
from ...scoring.maps import known as maps
from ...types import Example, Trace

NO_EXPLANATION = ("null_attention",)  # what the model's output cannot know of


def slow(name: str) -> bool:
    """Its cost grows with the width of the model: minutes for one text."""
    cost = (maps()[name] if name in maps() else attributions()[name]).cost
    return bool(re.search(r"\bd\b", cost))


def peers() -> list[str]:
    """Methods of other tools, to compare with: some need a library, some hundreds of passes."""
    return [name for name, method in attributions().items() if method.peer]


def every_method() -> tuple[list[str], list[str]]:
    """All methods that explain, and those left out because they take minutes for one text. Peers are a group of their own."""
    all_ = [name for name in [*maps(), *attributions()] if name not in (*NO_EXPLANATION, *peers())]
    return [name for name in all_ if not slow(name)], [name for name in all_ if slow(name)]


def asked_methods(methods: Any) -> tuple[list[str], dict[str, Any]]:
    """The names of the methods, and those among them that are given from outside: functions, or lists of scores."""
    names: list[str] = []
    given: dict[str, Any] = {}
    for one in _listed(methods):
        for name, value in _named(one).items():
            names += _group(name) if value is None else [name]
            given |= {} if value is None else {name: value}
    return list(dict.fromkeys(names)) if _has_group(methods) else names, given


def _listed(methods: Any) -> Sequence[Any]:
    """Methods as written, one by one."""
    if isinstance(methods, str):
        return [name.strip() for name in methods.split(",") if name.strip()]
    return [methods] if callable(methods) or isinstance(methods, Mapping) else list(methods)


def _has_group(methods: Any) -> bool:
    return any(one in ("all", "peers") for one in _listed(methods) if isinstance(one, str))


def _group(name: str) -> list[str]:
    return {"all": every_method()[0], "peers": peers()}.get(name, [name])


def _named(one: Any) -> Mapping[str, Any]:
    """A method by its name: None where the name says all."""
    if isinstance(one, str):
        return {one: None}
    if isinstance(one, Mapping):
        return one
    if not callable(one):
        raise InputError(f"a method is a name, a function of a trace, or a dict of a name and scores, not {one!r:.60}.")
    return {getattr(one, "__name__", type(one).__name__).strip("<>"): one}


# --- scores that were made elsewhere ----------------------------------------------------------------------------------------


def scorers_of(given: Mapping[str, Any], examples: Sequence[Example]) -> dict[str, Scorer]:
    """A function of a trace for each method from outside."""
    return {name: value if callable(value) else _looked_up(name, value, examples) for name, value in given.items()}


def _looked_up(name: str, scores: Any, examples: Sequence[Example]) -> Scorer:
    """The scores of each text, found by the text."""
    if not isinstance(scores, list | tuple) or len(scores) != len(examples):
        count = len(scores) if hasattr(scores, "__len__") else "no list"
        raise InputError(
            f"{name!r} has the scores of {count}, and there are {len(examples)} texts. Give a list with those of each."
        )
    by_text: dict[tuple[str, str | None], Any] = {}
    for example, one in zip(examples, scores, strict=True):
        if (example.text, example.pair) in by_text:
            raise InputError(
                f"{name!r}: the text {example.text!r:.60} is there twice, so its scores are not told apart."
            )
        by_text[example.text, example.pair] = one

    def given_scores(trace: Trace) -> Any:
        """Scores that were made elsewhere."""
        return by_text[str(trace.text), trace.pair]

    return given_scores
