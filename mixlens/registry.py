"""What every registered method has: a name, its function, its paper, and the options it is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .errors import InputError, MixlensError, nearest

KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,), "None": (type(None),)}
SMALLEST, LARGEST = -(2**31), 2**32 - 1  # whole numbers; a seed may be a checksum of 32 bits


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


@dataclass(frozen=True)
class Registered:
    id: str
    function: Callable[..., Any]
    paper: str
    variants: tuple[str, ...]  # the first is the default
    cost: str  # in forward passes, roughly

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Its keyword arguments and their defaults; `variant` has a place of its own."""
        parameters = list(parameters_of(self.function).values())[1:]
        return {p.name: p.default for p in parameters if p.name != "variant"}

    def arguments(self, variant: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """All it is called with, checked by name."""
        if variant is not None and not (isinstance(variant, str) and variant in self.variants):
            raise InputError(f"{self.id!r} has no variant {variant!r}. {nearest(variant, self.variants)}")
        for option in options:
            if option not in self.options:
                raise InputError(f"{self.id!r} has no option {option!r}. {nearest(option, [*self.options, 'variant'])}")
        given = {**self.options, **options}
        for name, value in options.items():
            self._fits(name, value)
        if "variant" in parameters_of(self.function):
            given["variant"] = variant or self.variants[0]
        return given

    def _fits(self, name: str, value: Any) -> None:
        """An option whose annotation names plain types, such as `int | None`, takes those alone. True is no number."""
        if name == "query":  # an index or a token: looked up in each text, and refused there
            return
        kind = str(parameters_of(self.function)[name].annotation)
        named = kind.split(" | ")
        allowed = tuple(one for part in named for one in KINDS.get(part, ()))
        known = all(one in KINDS for one in named)
        if known and not (isinstance(value, allowed) and ("bool" in named or not isinstance(value, bool))):
            raise InputError(f"{name!r} of {self.id!r} is of type {kind}, not {type(value).__name__}.")
        if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
            raise InputError(f"{name!r} of {self.id!r} is from {SMALLEST} to {LARGEST}, not {value}.")


def refuse_second(name: str, function: Callable[..., Any], others: Iterable[Registered]) -> None:
    """One name, one method: a package that brings another of the same name is told so."""
    for other in others:
        if other.id == name and other.function.__module__ != function.__module__:
            raise MixlensError(f"two methods are called {name!r}: in {other.function.__module__} and {function.__module__}.")
