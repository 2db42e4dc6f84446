"""Which package a function was written in, and which functions it calls: by these, code of a user is told from stock code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import FunctionType
from typing import Any

import torch

OPERATIONS = (torch.nn.functional, torch, torch.Tensor)  # where code of models finds operations by name


def packages_of(function: Any) -> set[str]:
    """The packages that a function names as its own. `functools.wraps` copies the name of a module, not the globals."""
    if isinstance(function, partial):
        return packages_of(function.func)
    names = (getattr(function, "__module__", None), _globals_of(function).get("__name__"))
    return {package(str(name)) for name in names if name is not None}


def package(module: str) -> str:
    return module.partition(".")[0]


def _globals_of(function: Any) -> dict[str, Any]:
    """Of a function, or of the `__call__` of an object that is called like one; none of what is not written in Python."""
    called = function if hasattr(function, "__globals__") else type(function).__call__
    return getattr(called, "__globals__", {})


def called_by(function: Any) -> tuple[Any, ...]:
    """The functions that a function calls: those of its own file, and torch's operations of the names that it uses."""
    code = getattr(function, "__code__", None)
    return () if code is None else tuple(_named(code.co_names, function.__globals__))


def _named(names: tuple[str, ...], known: dict[str, Any]) -> Iterator[Any]:
    for name in names:
        if isinstance(known.get(name), FunctionType):
            yield known[name]
        yield from (getattr(place, name) for place in OPERATIONS if hasattr(place, name))
