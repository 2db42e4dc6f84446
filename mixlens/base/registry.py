"""One registry for all that can be added to mixlens: map methods, attribution methods, metrics, experiments.

METRICS = Registry[Metric]("metric", folders=("mixlens.metrics",), group="mixlens.metrics")

def metric(*, paper, ...):                                  # the decorator that a new metric is written with
    return METRICS.register(lambda name, function: Metric(name, function, paper, ...))

METRICS.known()                                             # those of the folder and of installed packages, by name
METRICS.find("auc")                                         # one of them, or a refusal with the nearest names
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, Protocol, TypeVar

from .errors import InputError, MixlensError, nearest

KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
    "None": (type(None),),
}
SMALLEST, LARGEST = -(2**31), 2**32 - 1  # whole numbers; a seed may be a checksum of 32 bits


class Entry(Protocol):
    """What a registry holds: anything that knows the module it was written in."""

    @property
    def module(self) -> str: ...


E = TypeVar("E", bound=Entry)
Function = TypeVar("Function", bound=Callable[..., Any])


class Registry(dict[str, E], Generic[E]):
    """Entries by name. As a dict it holds what is registered so far; `known()` first loads all there is."""

    def __init__(self, kind: str, *, folders: tuple[str, ...], group: str):
        """`kind`: the noun in messages. `folders`: the packages whose files register. `group`: of entry points that do."""
        super().__init__()
        self.kind, self.folders, self.group = kind, folders, group
        self._is_loaded = False
        self._lock = threading.RLock()  # importing a file may ask for what is known

    def register(
        self, entry_of: Callable[[str, Function], E], *, name: str | None = None
    ) -> Callable[[Function], Function]:
        """A decorator: the entry of a function is registered under `name`, by default under the function's name."""

        def decorator(function: Function) -> Function:
            title = str(name or getattr(function, "__name__", ""))
            self.add(title, entry_of(title, function))
            return function

        return decorator

    def add(self, name: str, entry: E) -> None:
        """Register an entry. Two modules cannot register the same name."""
        other = self.get(name)
        if other is not None and other.module != entry.module:
            raise MixlensError(f"two {self.kind}s are called {name!r}: in {other.module} and {entry.module}.")
        self[name] = entry

    def known(self) -> dict[str, E]:
        """All entries: every file of the folder and every entry point of the group is imported once."""
        with self._lock:
            if not self._is_loaded:
                for folder in self.folders:
                    import_files(folder)
                for _ in installed(self.group):
                    pass  # an entry point registers while it is imported
                self._sort()
                self._is_loaded = True
        return self

    def _sort(self) -> None:
        """The order of the folder's files, then other packages: whichever file was imported first."""
        files = [file for folder in self.folders for file in files_of(folder)]
        entries = sorted(
            self.items(), key=lambda pair: files.index(pair[1].module) if pair[1].module in files else len(files)
        )
        for name, entry in entries:
            del self[name]
            self[name] = entry

    def find(self, name: Any) -> E:
        """The entry of this name, or a refusal that lists the nearest names."""
        if not isinstance(name, str) or name not in self.known():
            raise InputError(f"unknown {self.kind} {name!r:.80}. {nearest(name, self.known())}")
        return self[name]


def import_files(folder: str) -> None:
    """Import every module of a package: whatever they hold is registered on the way."""
    for file in files_of(folder):
        importlib.import_module(file)


def files_of(folder: str) -> list[str]:
    """The modules of a package and of the packages in it."""
    package = importlib.import_module(folder)
    return [module.name for module in pkgutil.walk_packages(package.__path__, f"{folder}.")]


def installed(group: str) -> Iterator[Any]:
    """What the installed packages give as entry points of this group."""
    for point in entry_points(group=group):
        yield point.load()


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


@dataclass(frozen=True)
class Registered:
    """An entry that is a function with options: a method or a metric."""

    id: str
    function: Callable[..., Any]
    paper: str
    variants: tuple[str, ...]  # the first is the default
    cost: str  # in forward passes, roughly

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Its keyword arguments and their defaults. `variant` is not among them: it is checked by itself."""
        parameters = list(parameters_of(self.function).values())[1:]
        return {p.name: p.default for p in parameters if p.name != "variant"}

    def arguments(self, variant: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """All keyword arguments of a call: `options` and `variant`, checked, and the defaults of the others."""
        self._check_variant(variant)
        for option in options:
            if option not in self.options:
                raise InputError(f"{self.id!r} has no option {option!r}. {nearest(option, [*self.options, 'variant'])}")
        for option, value in options.items():
            self._check_type(option, value)
            self._check_range(option, value)
        chosen = {"variant": variant or self.variants[0]} if "variant" in parameters_of(self.function) else {}
        return {**self.options, **options, **chosen}

    def _check_variant(self, variant: Any) -> None:
        if variant is not None and not (isinstance(variant, str) and variant in self.variants):
            raise InputError(f"{self.id!r} has no variant {variant!r}. {nearest(variant, self.variants)}")

    def _check_type(self, option: str, value: Any) -> None:
        """An option whose annotation names plain types alone, such as `int | None`, takes values of these types."""
        annotation = _annotation(parameters_of(self.function)[option])
        names = annotation.split(" | ")
        if option != "query" and all(name in KINDS for name in names) and not _is_of(value, names):
            raise InputError(f"{option!r} of {self.id!r} is of type {annotation}, not {type(value).__name__}.")

    def _check_range(self, option: str, value: Any) -> None:
        """Whole numbers are bounded. `query` is a position or a token: each text checks it for itself."""
        if option != "query" and isinstance(value, int) and not SMALLEST <= value <= LARGEST:
            raise InputError(f"{option!r} of {self.id!r} cannot be {value}: no option takes a number of that size.")


def _annotation(parameter: inspect.Parameter) -> str:
    """As it is written, whether or not the module postpones the evaluation of annotations."""
    kind = parameter.annotation
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _is_of(value: Any, names: Iterable[str]) -> bool:
    """Whether a value is of one of these types. A bool is an int to Python; here it is a number only where "bool" is named."""
    types = tuple(kind for name in names for kind in KINDS[name])
    return isinstance(value, types) and ("bool" in names or not isinstance(value, bool))
