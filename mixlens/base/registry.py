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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
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
        """`kind`: the noun in messages. `folders`: the packages whose files register. `group`: of entry points that
        do."""
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
        """All entries, those of the folders' files first, in the files' order: every file and entry point is imported
        once."""
        with self._lock:
            if not self._is_loaded:
                files: list[str] = []
                for folder in self.folders:
                    package = importlib.import_module(folder)
                    files += [module.name for module in pkgutil.walk_packages(package.__path__, f"{folder}.")]
                for file in files:
                    importlib.import_module(file)
                for _ in installed(self.group):
                    pass  # an entry point registers while it is imported
                places = {file: place for place, file in enumerate(files)}
                entries = sorted(self.items(), key=lambda pair: places.get(pair[1].module, len(files)))
                for name, entry in entries:
                    del self[name]
                    self[name] = entry
                self._is_loaded = True
        return self

    def import_file(self, name: str) -> None:
        """Import the file of an entry's own name, if there is one: it is found without all others."""
        file = f"{self.folders[0]}.{name}"
        if not self._is_loaded and name not in self and name.isidentifier() and find_spec(file):
            importlib.import_module(file)

    def find(self, name: Any) -> E:
        """The entry of this name, or a refusal that lists the nearest names."""
        if not isinstance(name, str) or name not in self.known():
            raise InputError(f"unknown {self.kind} {name!r:.80}. {nearest(name, self.known())}")
        return self[name]


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
        if variant is not None and not (isinstance(variant, str) and variant in self.variants):
            raise InputError(f"{self.id!r} has no variant {variant!r}. {nearest(variant, self.variants)}")
        known, parameters = self.options, parameters_of(self.function)
        for option in options:
            if option not in known:
                raise InputError(f"{self.id!r} has no option {option!r}. {nearest(option, [*known, 'variant'])}")
        for option, value in options.items():
            if option == "query":  # a position or a token: each text checks it for itself
                continue
            # Where the annotation names plain types alone, such as `int | None`, the option takes values of these
            # types. It is
            # a text in modules that postpone the evaluation of annotations. A bool is an int to Python, and no number
            # here.
            kind = parameters[option].annotation
            annotation = kind.__name__ if isinstance(kind, type) else str(kind)
            names = annotation.split(" | ")
            if all(name in KINDS for name in names):
                types = tuple(one for name in names for one in KINDS[name])
                if not isinstance(value, types) or (isinstance(value, bool) and "bool" not in names):
                    raise InputError(f"{option!r} of {self.id!r} is of type {annotation}, not {type(value).__name__}.")
            if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
                raise InputError(f"{option!r} of {self.id!r} cannot be {value}: no option takes a number of that size.")
        chosen = {"variant": variant or self.variants[0]} if "variant" in parameters else {}
        return {**known, **options, **chosen}
